"""What the study `top-k` measures: five ways to select k items, one budget and one relation for all, and their recall.

>>> import numpy as np
>>> from labeldp.selection import Histogram
>>> given = Case(table="demo", histograms=(Histogram.of(np.array([900, 800, 700, 3, 2, 1])),), k=3, delta=1e-6)
>>> row = measured(given, METHODS[0], epsilon=1.0, neighbours="add_remove", seeds=(0, 1))
>>> row.setting, row.values, row.epsilon <= 1.0
('k = 3: StableTopK', (100.0, 100.0), True)

Design notes. Recall is the share of the true top k that is among the items returned ("proportion of true top-k" in the
paper). Ties at rank k: the first by position count as the top, for all methods alike. "Top Stable, filled up" is what
the paper's Figure 1(a) describes: half of the budget finds a stable list, the other half fills it up by the exponential
mechanism; k rounds are paid for, whatever the length of the list, so that the cost does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from labeldp.arrays import Int64s
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee
from labeldp.random import NoiseKey
from labeldp.selection import (
    Histogram,
    exponential_guarantee,
    exponential_scale,
    limited_domain,
    stable_top_k,
    top_k_exponential,
    top_stable,
)
from studies.study import StudyRow


class Terms(TypedDict):
    """Budget and relation as arguments."""

    epsilon: float
    delta: float
    neighbours: str
    queries: int


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one selection may cost: `queries` of them together are (epsilon, delta)-DP for these neighbours."""

    epsilon: float
    delta: float
    neighbours: str
    queries: int = 1

    def terms(self) -> Terms:
        """The arguments that every selection takes."""
        return Terms(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours, queries=self.queries)

    def half(self) -> Budget:
        """Half of epsilon and of delta: two such compose to the whole."""
        return replace(self, epsilon=self.epsilon / 2, delta=self.delta / 2)

    def spent(self, one: Guarantee) -> float:
        """Return the epsilon of all queries at delta."""
        return one.times(self.queries).epsilon(self.delta)


#: (histogram without names, k, budget, key) -> places of the items, and what one query promises (the first part of it)
Select = Callable[[Histogram, int, Budget, NoiseKey], tuple[Int64s, Guarantee]]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to select k items; `halves`: it is two mechanisms with half of the budget each."""

    name: str
    select: Select
    halves: bool = False


def by_stable(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Algorithm 3 with the library's defaults."""
    found = stable_top_k(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def by_limited_domain(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Limited Domain with the library's defaults (k_bar = 10 k)."""
    found = limited_domain(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def by_top_stable(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Top Stable: what is stable and no more."""
    found = top_stable(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def by_exponential(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """One-shot Gumbel noise, accounted as bounded range (EM-CDP)."""
    found = top_k_exponential(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def filled_up(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Top Stable with half of the budget, then the first of k draws from the rest with the other half."""
    stable, promise = by_top_stable(histogram, k, budget.half(), key.child("stable"))
    if stable.size == k:
        return stable, promise
    rest = np.setdiff1d(np.arange(histogram.counts.size), stable)
    drawn, _ = by_exponential(Histogram.of(histogram.counts[rest]), k, budget.half(), key.child("rest"))
    return np.concatenate([stable, rest[drawn[: k - stable.size]]]), promise


STABLE = Method(name="StableTopK", select=by_stable)
LIMITED = Method(name="Limited Domain", select=by_limited_domain)
SPARSE = Method(name="Top Stable", select=by_top_stable)
FILLED = Method(name="Top Stable, filled up", select=filled_up, halves=True)
EXPONENTIAL = Method(name="EM-CDP", select=by_exponential)
METHODS = (STABLE, LIMITED, SPARSE, FILLED, EXPONENTIAL)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One question: the k leading items of each histogram; several histograms share one budget, a query each."""

    table: str
    histograms: tuple[Histogram, ...]
    k: int
    delta: float
    label: str = ""

    def words(self, method: Method) -> str:
        """The row's name."""
        return f"{self.label or f'k = {self.k}'}: {method.name}"


def measured(
    given: Case,
    method: Method,
    *,
    epsilon: float,
    neighbours: str,
    seeds: tuple[int, ...],
    paper: float | None = None,
    note: str = "",
) -> StudyRow:
    """Return the row: for each seed the recall, in percent, averaged over the histograms."""
    budget = Budget(epsilon=epsilon, delta=given.delta, neighbours=neighbours, queries=len(given.histograms))
    tops = [histogram.top(given.k) for histogram in given.histograms]
    values, promise = [], None
    for seed in seeds:
        key = NoiseKey.from_seed(seed).child(method.name)
        recalls = []
        for day, (histogram, top) in enumerate(zip(given.histograms, tops, strict=True)):
            items, promise = method.select(histogram, given.k, budget, key.child(day))
            recalls.append(np.isin(top, items).mean())
        values.append(round(100.0 * float(np.mean(recalls)), 3))
    if promise is None:
        raise invalid("study", "seeds", "be at least one", got=len(seeds))
    return StudyRow(
        table=given.table,
        setting=given.words(method),
        epsilon=_spent(budget, promise, k=given.k, halves=method.halves),
        trust=promise.trust.words,
        values=tuple(values),
        paper=paper,
        note=note,
    )


def _spent(budget: Budget, promise: Guarantee, *, k: int, halves: bool) -> float:
    """Return the epsilon of a method: of its one mechanism, or of both halves together."""
    if not halves:
        return budget.spent(promise)
    half = budget.half()
    scale = exponential_scale(k=k, **half.terms())
    return half.spent(promise) + half.spent(exponential_guarantee(k=k, scale=scale, neighbours=half.neighbours))
