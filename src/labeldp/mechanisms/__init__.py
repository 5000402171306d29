"""Mechanisms: public facts that say how a label will be randomized.

A mechanism is a frozen value. Its `channel` turns a prior into a `Channel` and its `guarantee` says what that costs;
neither ever sees a label. `labeldp.privatize` draws.

>>> from labeldp.mechanisms import RandomizedResponse
>>> RandomizedResponse(1.0, n_classes=10).channel().epsilon <= 1.0
True
"""

from labeldp.mechanisms.cluster import ClusterRR
from labeldp.mechanisms.optimal import (
    Accuracy,
    MeanInformation,
    Objective,
    OptimalResponse,
    ResponseDesign,
    UnbiasedReport,
)
from labeldp.mechanisms.peers import PeerReports, PeerToPeerRR
from labeldp.mechanisms.response import (
    MeasuringMechanism,
    Mechanism,
    NoisyCounts,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
)

__all__ = [
    "Accuracy",
    "ClusterRR",
    "MeanInformation",
    "MeasuringMechanism",
    "Mechanism",
    "NoisyCounts",
    "Objective",
    "OptimalResponse",
    "PeerReports",
    "PeerToPeerRR",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "ResponseDesign",
    "UnbiasedReport",
]
