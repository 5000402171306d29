"""Mechanisms: public facts that say how a label will be randomized.

A mechanism is a frozen value. Its `channel` turns a prior into a `Channel` and its `guarantee` says what that costs;
neither ever sees a label. `labeldp.privatize` draws.

>>> from labeldp.mechanisms import RandomizedResponse
>>> RandomizedResponse(1.0, n_classes=10).channel().epsilon <= 1.0
True
"""

from labeldp.mechanisms._base import MeasuringMechanism, Mechanism, NoisyCounts
from labeldp.mechanisms._cluster import ClusterRR
from labeldp.mechanisms._peers import PeerReports, PeerToPeerRR
from labeldp.mechanisms._randomized_response import RandomizedResponse
from labeldp.mechanisms._top_k import RRTopK
from labeldp.mechanisms._with_prior import RRWithPrior

__all__ = [
    "ClusterRR",
    "MeasuringMechanism",
    "Mechanism",
    "NoisyCounts",
    "PeerReports",
    "PeerToPeerRR",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
]
