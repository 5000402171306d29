"""What an epsilon buys, before it is spent: the figures of `labeldp plan`, from public numbers alone.

>>> worth(1.0, n_classes=2, prior_accuracies=[0.9]).keep
0.7310585786300049

Randomized response keeps a label with probability E / (E + K - 1). With a prior, RRWithPrior keeps the k likeliest labels
and is right with probability w_k = E / (E + k - 1) (p_1 + ... + p_k), at the best k. The prior that stands for "its first
guess is right with probability A" falls geometrically: p_j proportional to r^j with p_1 = A, the flattest tail of one
shape that is not a special case (with equal tails k would be 1 or K only).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._advantage import advantage_bound, best_guess
from labeldp._validate import check_epsilon, check_integer
from labeldp.errors import invalid

#: Most classes for which a prior is laid out.
MOST_CLASSES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class WithPrior:
    """Expected label accuracy of RRWithPrior when the prior's first guess is right this often; k labels are kept."""

    prior_accuracy: float
    label_accuracy: float
    candidates: int


@dataclass(frozen=True, kw_only=True)
class Worth:
    """One line of a plan. `keep` is Pr[released = true] of plain randomized response."""

    epsilon: float
    keep: float
    advantage: float
    best_guess: float
    with_prior: tuple[WithPrior, ...]


def worth(epsilon: float, *, n_classes: int, prior_accuracies: Sequence[float]) -> Worth:
    """Return what one epsilon buys with this many classes."""
    budget = check_epsilon("plan", epsilon)
    size = check_integer("plan", "classes", n_classes, least=2, most=MOST_CLASSES)
    rows = tuple(_with_prior(budget, accuracy, size) for accuracy in prior_accuracies)
    return Worth(
        epsilon=budget,
        keep=float(kept(budget, np.asarray([size]))[0]),
        advantage=advantage_bound(budget),
        best_guess=best_guess(budget),
        with_prior=rows,
    )


def kept(epsilon: float, sizes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
    """Return E / (E + k - 1) for each k, as 1 / (1 + (k - 1) e^-epsilon): no overflow."""
    return np.asarray(1.0 / (1.0 + (sizes - 1) * math.exp(-epsilon)), np.float64)


def falling_prior(accuracy: float, n_classes: int) -> npt.NDArray[np.float64]:
    """Return probabilities p_j ~ r^j whose first is `accuracy`; r is found by halving.

    >>> falling_prior(0.5, 3).round(4).tolist()
    [0.5, 0.309, 0.191]
    """
    if not 1.0 / n_classes <= accuracy <= 1.0:
        fix = "A blind guess is right that often already."
        must = f"be in [1/{n_classes}, 1]"
        raise invalid("plan", "prior accuracy", must, got=accuracy, fix=fix)
    powers = np.arange(n_classes)
    low, high = 0.0, 1.0
    for _ in range(60):  # below the spacing of doubles
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 / (middle**powers).sum() > accuracy else (low, middle)
    shape = high**powers
    answer: npt.NDArray[np.float64] = shape / shape.sum()
    return answer


def _with_prior(epsilon: float, accuracy: float, n_classes: int) -> WithPrior:
    prior = falling_prior(accuracy, n_classes)
    right = kept(epsilon, np.arange(1, n_classes + 1)) * np.cumsum(prior)
    best = int(np.argmax(right)) if math.isfinite(epsilon) else n_classes - 1
    return WithPrior(prior_accuracy=accuracy, label_accuracy=float(min(right[best], 1.0)), candidates=best + 1)
