"""The sweeps of the study `excess-risk`, the bound that belongs to each point, and how both are drawn.

>>> base = Point(p=100, n=1000, epsilon=1.0, K=2)
>>> Sweep(symbol="n", points=(10, 20), base=base).at(20).n
20
>>> setting("LP-RR-SGD", "p", 100000)
'LP-RR-SGD, p = 100,000'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from labeldp.report import Lines, Plot, Series
from studies.excess_bounds import (
    ball_complexity,
    corollary_10,
    proposition_11,
    proposition_12_rate,
    theorem_9,
    theorem_17,
)
from studies.excess_methods import BATCH, CANDIDATES, DELTA, IN_BALL, METHODS, NORMAL, PRIOR, RECORD, RESPONSE, miss
from studies.excess_problem import DIAMETER, Problem
from studies.study import StudyRow

#: The lines of the plots: with the bounds, more could not be told apart. The tables have all.
DRAWN = (RESPONSE, PRIOR, NORMAL, RECORD, IN_BALL)
LOWER, UPPER = "rate of Proposition 12", "Theorem 17 (corrected), x 2"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where the four quantities stand."""

    p: int
    n: int
    epsilon: float
    K: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One quantity is varied over `points`; the others stay at `base`."""

    symbol: str
    points: tuple[float, ...]
    base: Point

    def at(self, value: float) -> Point:
        """Return the point with the varied quantity at this value."""
        named: dict[str, Any] = {self.symbol: value}
        return replace(self.base, **named)

    @property
    def title(self) -> str:
        """Name the sweep and what stays."""
        rest = [f"{name} = {getattr(self.base, name):,}" for name in ("p", "n", "epsilon", "K") if name != self.symbol]
        return f"against {self.symbol} ({', '.join(rest)})"


def setting(method: str, symbol: str, value: float) -> str:
    """Return the name of a row: plots and words find it again by this."""
    return f"{method}, {symbol} = {value:,}"


def bound_of(method: str, at: Point, rows: Any) -> float | None:
    """Return the paper's upper bound for a method at a point, in nats; None where it has none."""
    common: dict[str, Any] = {"n_classes": at.K, "diameter": DIAMETER, "batch_size": BATCH}
    if method == RESPONSE:
        return theorem_9(at.n, epsilon=at.epsilon, **common)
    if method == NORMAL:
        return proposition_11(at.n, epsilon=at.epsilon, delta=DELTA, **common)
    if method == PRIOR:
        absent = miss(Problem(n_features=at.p, n_classes=at.K), rows)
        return corollary_10(at.n, epsilon=at.epsilon, k=CANDIDATES, miss=absent, **common)
    return None


def generalization(at: Point) -> float | None:
    """Return twice Theorem 17's bound, for two classes and no prior: what the debiased empirical minimiser may lose.

    On the ball the logistic loss spans at most log(1 + e^{D/2}) and has slope 1.
    """
    if at.K != 2:
        return None
    span = math.log1p(math.exp(0.5 * DIAMETER))
    complexity = ball_complexity(at.n, diameter=DIAMETER)
    return 2.0 * theorem_17(at.n, epsilon=at.epsilon, k=2, complexity=complexity, slope=1.0, width=span)


def drawn(rows: Sequence[StudyRow], sweep: Sweep) -> Plot:
    """Return the plot of a sweep: log10 of the excess in nats against the varied quantity."""
    named = {row.setting: row for row in rows if row.table == sweep.title}
    lines = []
    for method in METHODS:
        if sweep.symbol in method.sweeps and method.name in DRAWN:
            means = [named[setting(method.name, sweep.symbol, value)].mean / 1000.0 for value in sweep.points]
            lines.append(Series(name=method.name, x=sweep.points, y=tuple(map(_log, means))))
    lines += [*_upper_bounds(named, sweep), _lower_rate(sweep)]
    told = "; ".join(f"{line.name} from {10 ** line.y[0]:.2g} to {10 ** line.y[-1]:.2g}" for line in lines)
    return Lines(
        title=f"Excess risk {sweep.title}",
        series=tuple(lines),
        x_title=f"{sweep.symbol} (logarithmic)",
        y_title="log10 of the excess risk in nats",
        alt=f"From {sweep.symbol} = {sweep.points[0]:,} to {sweep.points[-1]:,}: {told}.",
        x_log=True,
    )


def _upper_bounds(named: dict[str, StudyRow], sweep: Sweep) -> list[Series]:
    answer = []
    for method, name in ((RESPONSE, "Theorem 9"), (PRIOR, "Corollary 10"), (NORMAL, "Proposition 11")):
        rows = [named.get(setting(method, sweep.symbol, value)) for value in sweep.points]
        bounds = [row.paper for row in rows if row is not None and row.paper is not None]
        if len(bounds) == len(sweep.points):
            answer.append(Series(name=name, x=sweep.points, y=tuple(_log(bound / 1000.0) for bound in bounds)))
    general = [generalization(sweep.at(value)) for value in sweep.points]
    known = [value for value in general if value is not None]
    if len(known) == len(sweep.points):
        answer.append(Series(name=UPPER, x=sweep.points, y=tuple(map(_log, known))))
    return answer


def _lower_rate(sweep: Sweep) -> Series:
    places = [sweep.at(value) for value in sweep.points]
    rates = [proposition_12_rate(at.n, epsilon=at.epsilon, n_classes=at.K, diameter=DIAMETER) for at in places]
    return Series(name=LOWER, x=sweep.points, y=tuple(map(_log, rates)))


def _log(value: float) -> float:
    """log10; an excess that a mean over test rows puts at or below zero is drawn at 1e-6."""
    return math.log10(max(value, 1e-6))
