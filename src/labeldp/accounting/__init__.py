"""Budgets and noise: how much noise a budget needs, and what noise costs. Every answer ends on the safe side.

>>> round(analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 4)
3.7306
"""

from labeldp.accounting.calibration import calibrate, what_is_left
from labeldp.accounting.conversion import discrete_gaussian_sigma, laplace_scale, zcdp_rho
from labeldp.accounting.gaussian import analytic_gaussian_sigma, gaussian_delta, gaussian_epsilon
from labeldp.accounting.ledger import Ledger, LedgerEntry, fingerprint

__all__ = [
    "Ledger",
    "LedgerEntry",
    "analytic_gaussian_sigma",
    "calibrate",
    "discrete_gaussian_sigma",
    "fingerprint",
    "gaussian_delta",
    "gaussian_epsilon",
    "laplace_scale",
    "what_is_left",
    "zcdp_rho",
]
