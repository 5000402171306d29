"""Scoring on protected test labels: a release like any other, with its noise and its price.

The number of right predictions, c = sum_i 1[label_i = prediction_i], moves by at most 1 when one label is replaced.
With discrete Laplace noise of rate a = epsilon, Pr[Z = z] = (1 - q) / (1 + q) q^|z|, q = e^-a, hence
Pr[|Z| > t] = 2 q^(t+1) / (1 + q): the noise stays within t with 95 % for t = ceil(log(40 / (1 + q)) / a) - 1.

>>> score = score_privately(["a", "b", "b"], ["a", "b", "a"], classes=["a", "b"], epsilon=50.0)
>>> score.correct, score.n_examples, score.guarantee.epsilon()
(2, 3, 50.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.release import Query, SensitiveLabels, Sensitivity, measure

#: How sure the stated width of the noise is.
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectCount(Query):
    """How many public predictions (codes, one per label; -1 is no class) equal the label: sensitivity 1."""

    predicted: Any

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """One replaced label makes at most one prediction right or wrong."""
        return Sensitivity(1.0, 1.0)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.int64]:
        """Count."""
        if len(self.predicted) != len(codes):
            got = Described(f"{len(self.predicted)} for {len(codes)} labels")
            raise invalid("CorrectCount", "predicted", "have one prediction per label", got=got)
        return np.asarray([np.count_nonzero(np.asarray(self.predicted) == codes)], np.int64)


@dataclass(frozen=True, kw_only=True)
class PrivateScore:
    """A noisy count of right predictions; `within` is how far the noise moves it in 95 of 100 draws."""

    correct: int
    n_examples: int
    within: int
    noise: str
    guarantee: Guarantee
    seeded: bool
    ledger_entry: int | None

    @property
    def accuracy(self) -> float:
        """The noisy share of right predictions, clipped to what a share can be."""
        return min(max(self.correct / self.n_examples, 0.0), 1.0)


def score_privately(
    predictions: Any,
    labels: Any,
    *,
    classes: Sequence[Any] | None = None,
    epsilon: float,
    ledger: Any = None,
    label_set: str = "labels",
    rng: Any = None,
) -> PrivateScore:
    """Measure how many predictions are right, with exact noise, charged to the ledger before it is drawn."""
    boxed = labels if isinstance(labels, SensitiveLabels) else SensitiveLabels(labels, classes=classes, name=label_set)
    query = CorrectCount(predicted=codes_in(predictions, boxed.classes))
    measured = measure(boxed, query, epsilon=epsilon, rng=rng, ledger=ledger)
    return PrivateScore(
        correct=int(measured.value[0]),
        n_examples=len(boxed),
        within=noise_width(epsilon),
        noise=measured.noise,
        guarantee=measured.guarantee,
        seeded=measured.seeded,
        ledger_entry=measured.ledger_entry,
    )


def codes_in(predictions: Any, classes: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return each prediction's position among the classes; a class that the labels cannot have is never right."""
    position = {c: j for j, c in enumerate(classes)}
    values = np.asarray(predictions).tolist()
    return np.fromiter((position.get(value, -1) for value in values), np.int64, len(values))


def noise_width(epsilon: float) -> int:
    """Return the least t with Pr[|Z| > t] <= 5 % for discrete Laplace noise of rate epsilon.

    >>> noise_width(1.0), noise_width(math.inf)
    (3, 0)
    """
    if math.isinf(epsilon):
        return 0
    q = math.exp(-epsilon)
    needed = math.log(2.0 / ((1.0 - CONFIDENCE) * (1.0 + q))) / epsilon
    return max(0, math.ceil(needed) - 1)
