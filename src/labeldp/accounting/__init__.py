"""Budgets and noise: how much noise a budget needs, and what noise costs. Every answer ends on the safe side.

>>> round(analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 4)
3.7306
"""

from labeldp.accounting.calibration import (
    AssociationBound,
    analytic_gaussian_sigma,
    calibrate,
    discrete_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    label_association,
    laplace_scale,
    least_cluster_size,
    what_is_left,
    zcdp_rho,
)
from labeldp.accounting.ledger import Ledger, LedgerEntry, fingerprint
from labeldp.accounting.peers import (
    PeerSettings,
    calibrate_peers,
    calibrate_peers_both,
    calibrate_peers_theta,
    peers_delta,
    peers_epsilon,
    peers_paper_epsilon,
    peers_shuffle_epsilon,
)
from labeldp.guarantee import advantage_bound, best_guess

__all__ = [
    "AssociationBound",
    "Ledger",
    "LedgerEntry",
    "PeerSettings",
    "advantage_bound",
    "analytic_gaussian_sigma",
    "best_guess",
    "calibrate",
    "calibrate_peers",
    "calibrate_peers_both",
    "calibrate_peers_theta",
    "discrete_gaussian_sigma",
    "fingerprint",
    "gaussian_delta",
    "gaussian_epsilon",
    "label_association",
    "laplace_scale",
    "least_cluster_size",
    "peers_delta",
    "peers_epsilon",
    "peers_paper_epsilon",
    "peers_shuffle_epsilon",
    "what_is_left",
    "zcdp_rho",
]
