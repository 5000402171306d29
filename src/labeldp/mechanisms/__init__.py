"""Mechanisms: public facts that say how a label will be randomized.

A mechanism is a frozen value. Its `channel` turns a prior into a channel, its `guarantee` says what that costs, and
`with_epsilon` gives the same mechanism at another epsilon; none of them ever sees a label. `labeldp.privatize` draws.

>>> from labeldp.mechanisms import RandomizedResponse
>>> RandomizedResponse(1.0, n_classes=10).channel().epsilon <= 1.0
True

| mechanism | best for | who is trusted |
|---|---|---|
| `RandomizedResponse` | no prior | no one |
| `RRTopK`, `RRWithPrior` | right labels under a prior | no one |
| `InformativeResponse` | training: most information, with or without a prior; answers are sets of labels | no one |
| `OptimalResponse` | an objective of your own, up to ten classes | no one |
| `UnbiasedResponse` | numbers: an answer whose mean is the label, of the least variance under a prior | no one |
| `LaplaceResponse`, `BinnedResponse` | numbers: baselines, unbiased too | no one |
| `ClusterRR` | groups of similar examples, no prior | a curator, for the histograms |
| `PeerToPeerRR` | two classes, users who can ask each other | peers |

To write one, subclass `Mechanism` (docs/extending.md), or `MeasuringMechanism` if its channel needs noisy counts.
"""

from labeldp.mechanisms.cluster import ClusterRR
from labeldp.mechanisms.informative import (
    InformativeResponse,
    Worth,
    answer_worth,
    informative_worth,
    most_information,
    response_worth,
    subset_worth,
)
from labeldp.mechanisms.numbers import BinnedResponse, LaplaceResponse, NumericMechanism, UnbiasedResponse
from labeldp.mechanisms.optimal import (
    Accuracy,
    MeanInformation,
    Objective,
    OptimalResponse,
    UnbiasedReport,
    make_private,
)
from labeldp.mechanisms.peers import PeerToPeerRR
from labeldp.mechanisms.response import (
    MeasuringMechanism,
    Mechanism,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
)

__all__ = [
    "Accuracy",
    "BinnedResponse",
    "ClusterRR",
    "InformativeResponse",
    "LaplaceResponse",
    "MeanInformation",
    "MeasuringMechanism",
    "Mechanism",
    "NumericMechanism",
    "Objective",
    "OptimalResponse",
    "PeerToPeerRR",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "UnbiasedReport",
    "UnbiasedResponse",
    "Worth",
    "answer_worth",
    "informative_worth",
    "make_private",
    "most_information",
    "response_worth",
    "subset_worth",
]
