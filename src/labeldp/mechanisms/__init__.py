"""Mechanisms: public facts that say how a label will be randomized.

A mechanism is a frozen value. Its `channel` turns a prior into a `Channel` and its `guarantee` says what that costs;
neither ever sees a label. `labeldp.privatize` draws.

>>> from labeldp.mechanisms import RandomizedResponse
>>> RandomizedResponse(1.0, n_classes=10).channel().epsilon <= 1.0
True
"""

from labeldp.mechanisms._base import MeasuringMechanism, Mechanism, NoisyCounts
from labeldp.mechanisms._cluster import ClusterRR
from labeldp.mechanisms._optimal import OptimalResponse, ResponseDesign
from labeldp.mechanisms._optimal_objectives import Accuracy, MeanInformation, Objective, UnbiasedReport
from labeldp.mechanisms._peers import PeerReports, PeerToPeerRR
from labeldp.mechanisms._randomized_response import RandomizedResponse
from labeldp.mechanisms._top_k import RRTopK
from labeldp.mechanisms._with_prior import RRWithPrior

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
