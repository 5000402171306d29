"""Events that tell two labels apart: chosen on one half of the draws, judged on the other.

>>> import numpy as np
>>> chosen = best_event(np.array([[[900, 100], [100, 900]]]), delta=0.0, level=0.05)
>>> (chosen.one, chosen.other, chosen.cells), round(chosen.bound, 2)
((0, 1, (0,)), 1.99)

Design notes. A table of counts has the shape (contexts, labels, cells): in each context (a group, the label of a
companion) and for each label, how often the output fell into each cell. An event is a context, two labels a and b and a
set A of cells. With p = Pr[A | a] and q = Pr[A | b], (epsilon, delta)-privacy says p <= e^epsilon q + delta, so

    epsilon >= log((p - delta) / q) >= log((lower limit of p - delta) / upper limit of q),

the last with probability 1 - level when each limit spends half of it. The event is chosen on draws that are not used
for this: given the choice, the counts on the other half are binomial as if the event had been named beforehand. That is
simultaneous over all events without dividing the level among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.audit._intervals import lower_limit, upper_limit

Counts = npt.NDArray[np.int64]

#: Pairs of labels (in some context) whose unions of cells are tried; more would cost time and rarely find a better event.
MOST_PAIRS = 32


@dataclass(frozen=True, kw_only=True)
class Event:
    """Label `one` gives an output in `cells` more often than label `other` does, in one context."""

    context: int
    one: int
    other: int
    cells: tuple[int, ...]
    bound: float

    def judged(self, counts: Counts, *, delta: float, level: float) -> Event:
        """Return the event with the bound that other draws give it."""
        rows = counts[self.context]
        inside = rows[:, list(self.cells)].sum(axis=1)
        total = rows.sum(axis=1)
        bound = log_ratio(
            inside[self.one], total[self.one], inside[self.other], total[self.other], delta=delta, level=level
        )
        return replace(self, bound=float(bound))


def log_ratio(
    one_inside: Any, one_total: Any, other_inside: Any, other_total: Any, *, delta: float, level: float
) -> Any:
    """Return log((lower limit of p - delta) / upper limit of q), at least 0."""
    low = lower_limit(one_inside, one_total, level=level / 2) - delta
    high = upper_limit(other_inside, other_total, level=level / 2)
    return np.log(np.maximum(low, high) / high)


def best_event(counts: Counts, *, delta: float, level: float) -> Event:
    """Return the event with the largest bound over contexts, pairs of labels and unions of cells.

    By Neyman and Pearson the best set for a pair holds the cells with the largest ratios, so it is one of the prefixes
    when cells are sorted by their (slightly smoothed) ratio; few draws may make a single cell better. Pairs are tried
    where a single cell tells most. If nothing tells labels apart, the event compares label 0 with itself.
    """
    best = Event(context=0, one=0, other=0, cells=(0,), bound=0.0)
    for context, one, other in _pairs(counts, level=level):
        rows = counts[context]
        order = np.argsort(-(rows[one] + 0.5) / (rows[other] + 0.5), kind="stable")
        sorted_rows = (rows[one][order], rows[other][order])
        first, second = (np.concatenate([np.cumsum(row), row]) for row in sorted_rows)  # prefixes, then single cells
        bounds = log_ratio(first, rows[one].sum(), second, rows[other].sum(), delta=delta, level=level)
        most = int(np.argmax(bounds))
        if bounds[most] > best.bound:
            size = len(order)
            chosen = order[: most + 1] if most < size else order[most - size : most - size + 1]
            cells = tuple(int(cell) for cell in chosen)
            best = Event(context=context, one=one, other=other, cells=cells, bound=float(bounds[most]))
    return best


def _pairs(counts: Counts, *, level: float) -> list[tuple[int, int, int]]:
    """Return the (context, one label, other label) that some single cell tells apart best."""
    total = counts.sum(axis=2, keepdims=True)
    low = lower_limit(counts, total, level=level / 2)
    high = np.where(total > 0, upper_limit(counts, total, level=level / 2), 1.0)
    one, other = low.argmax(axis=1), high.argmin(axis=1)
    ratio = low.max(axis=1) / high.min(axis=1)
    ranked = np.argsort(-ratio, axis=None, kind="stable")
    found: dict[tuple[int, int, int], None] = {}
    for context, cell in zip(*np.unravel_index(ranked, ratio.shape), strict=True):
        pair = (int(context), int(one[context, cell]), int(other[context, cell]))
        if pair[1] != pair[2]:
            found[pair] = None
        if len(found) == MOST_PAIRS:
            break
    return list(found)
