"""Noisy counts for a mechanism that needs them: handed out by the door, paid for within the release's own guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.errors import PrivacyError
from labeldp.mechanisms import MeasuringMechanism
from labeldp.release._labels import SensitiveLabels
from labeldp.release._measure import measure
from labeldp.release._queries import LabelCounts


class Counter:
    """Answers a mechanism's questions for noisy counts; the first answer charges the whole release, each has its price.

    The prices and the mechanism's `response_epsilon` may not add up to more than its guarantee: they are added exactly,
    and the door refuses before anything is counted. `pay` is called once, before the first draw.
    """

    def __init__(
        self,
        labels: SensitiveLabels,
        mechanism: MeasuringMechanism,
        key: NoiseKey,
        pay: Callable[[], int | None],
        *,
        start: int,
    ) -> None:
        self._labels, self._mechanism, self._key, self._pay, self._start = labels, mechanism, key, pay, start
        self._prices: list[float] = []
        self._paid = False
        self._entry: int | None = None
        self.counts: npt.NDArray[np.int64] | None = None
        self.groups: npt.NDArray[np.int64] | None = None

    def __call__(self, groups: Any, n_groups: int, epsilon: float) -> npt.NDArray[np.int64]:
        """Return noisy counts, one row per group."""
        query = LabelCounts(groups=groups, n_groups=n_groups)
        self._prices.append(epsilon)
        self._check_prices()
        self.settle()
        # The noise belongs to this question about these rows: another piece of a data set must not repeat it.
        key = self._key.child("counts", self._start, len(self._prices))
        self.counts = measure(self._labels, query, epsilon=epsilon, rng=key).value
        self.groups = query.groups
        return self.counts

    @property
    def shares(self) -> npt.NDArray[np.float64] | None:
        """The last counts as probabilities, a belief that whoever receives the release may use; None if none were asked."""
        return None if self.counts is None else shares(self.counts)

    def settle(self) -> int | None:
        """Charge the release if it was not charged yet, and return the ledger's entry."""
        if not self._paid:
            self._entry, self._paid = self._pay(), True
        return self._entry

    def _check_prices(self) -> None:
        promised = self._mechanism.guarantee.epsilon()
        if math.isinf(promised):
            return
        parts = [*self._prices, self._mechanism.response_epsilon]
        if not all(map(math.isfinite, parts)) or sum(map(Fraction, parts), Fraction(0)) > Fraction(promised):
            raise PrivacyError(
                f"privatize: {self._mechanism!r} claims epsilon = {promised!r}, but asks for counts and a response that "
                f"cost {' + '.join(map(repr, parts))}. Nothing was drawn. Fix the mechanism's budget."
            )


def shares(counts: Any) -> npt.NDArray[np.float64]:
    """Return noisy counts as probabilities: clipped at 0 and divided by their sum; nothing left means uniform.

    >>> shares([[3, -1], [-2, 0]]).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    clipped = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    total = clipped.sum(axis=1, keepdims=True)
    uniform = np.full(clipped.shape, 1.0 / clipped.shape[1])
    return np.asarray(np.divide(clipped, total, out=uniform, where=total > 0), np.float64)
