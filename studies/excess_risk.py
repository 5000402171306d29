"""The study `excess-risk`: measured excess risk against dimension, examples, epsilon and classes, beside the bounds.

On a synthetic problem whose best model is known (`excess_problem.py`) it asks two questions: does the risk of label-private
learning depend on the dimension p, from 10 to 100,000, as DP-SGD's does; and where do the measured numbers lie between the
papers' upper and lower bounds (`excess_bounds.py`)?

>>> [sweep.symbol for sweep in SWEEPS], SWEEPS[0].points[-1]
(['p', 'n', 'epsilon', 'K'], 100000)

References: Ghazi et al. 2021, supplement F (Theorem 9, Corollary 10, Propositions 11 and 12) and G (Theorem 17); Bassily,
Feldman, Talwar, Thakurta 2019; Song, Steinke, Thakkar, Thakurta, "Evading the Curse of Dimensionality in Unconstrained
Private GLMs" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from labeldp.report import Plot
from studies.adult_learners_cases import need_opacus
from studies.excess_methods import METHODS, Method, Task
from studies.excess_plots import Point, Sweep, bound_of, drawn, setting
from studies.excess_problem import DIAMETER, Problem
from studies.excess_words import findings
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

BASE = Point(p=1_000, n=10_000, epsilon=1.0, K=2)
SWEEPS = (
    Sweep(symbol="p", points=(10, 100, 1_000, 10_000, 100_000), base=BASE),
    Sweep(symbol="n", points=(1_000, 3_000, 10_000, 30_000, 100_000), base=BASE),
    Sweep(symbol="epsilon", points=(0.1, 0.25, 0.5, 1.0, 2.0), base=BASE),
    Sweep(symbol="K", points=(2, 4, 8, 16), base=BASE),
)
QUICK_ROWS = 500
#: Rows over which the divergence is averaged; drawn apart from all training rows.
TEST_ROWS, TEST_SEED = 20_000, 1_000_000
#: The unit of the tables: thousandths of a nat.
SCALE = 1000.0


class ExcessRisk(Study):
    """Four sweeps around one point; eight learners; five bounds."""

    name: ClassVar[str] = "excess-risk"
    title: ClassVar[str] = "Excess risk against dimension, examples, epsilon and classes, beside the bounds"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), supplement F: not a measured value but the upper bound, of "
        "Theorem 9 (LP-RR-SGD), Corollary 10 (top 2) or Proposition 11 (LP-Normal-SGD), with the constants of its proof"
    )
    measure: ClassVar[str] = "excess population risk, nats / 1000"
    default_seeds: ClassVar[int] = 3

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Fit every learner at every point with every seed: a few minutes on one core, half of them for p = 100,000."""
        need_opacus()
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        sweeps = tuple(_shortened(sweep) for sweep in SWEEPS) if quick else SWEEPS
        rows: list[StudyRow] = []
        for i, sweep in enumerate(sweeps):
            for j, value in enumerate(sweep.points):
                tell((i + j / len(sweep.points)) / len(sweeps), f"{sweep.symbol} = {value:,}")
                rows += measured_point(sweep, value, numbers)
        tell(1.0, "done")
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=findings(rows, sweeps),
            facts={
                **watch.facts(seeds=numbers, quick=quick, command=command),
                "diameter of the ball": DIAMETER,
                "rows of the test mean": TEST_ROWS,
                "points": {sweep.symbol: list(sweep.points) for sweep in sweeps},
                "the other three, where one is varied": repr(sweeps[0].base),
            },
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """One plot per sweep: measured means, and the bounds; logarithms of both axes."""
        return tuple(drawn(result.rows, sweep) for sweep in _swept(result))


def _swept(result: StudyResult) -> tuple[Sweep, ...]:
    """Return the sweeps of a result, quick or not."""
    return tuple(_shortened(sweep) for sweep in SWEEPS) if result.facts.get("quick") else SWEEPS


def _shortened(sweep: Sweep) -> Sweep:
    """Return the quick version: the first two points, few examples; its numbers mean nothing."""
    points = (200, QUICK_ROWS) if sweep.symbol == "n" else sweep.points[:2]
    return replace(sweep, points=points, base=replace(sweep.base, n=QUICK_ROWS, p=100))


@dataclass(frozen=True, kw_only=True)
class _Measured:
    excess: float
    epsilon: float
    trust: str


def measured_point(sweep: Sweep, value: float, seeds: Sequence[int]) -> list[StudyRow]:
    """Return a row per method at one point of a sweep; every method sees the same data for the same seed."""
    at = sweep.at(value)
    problem = Problem(n_features=at.p, n_classes=at.K)
    test, _ = problem.draw(TEST_ROWS, seed=TEST_SEED)
    methods = [method for method in METHODS if sweep.symbol in method.sweeps]
    found: dict[str, list[_Measured]] = {method.name: [] for method in methods}
    for seed in seeds:
        rows, labels = problem.draw(at.n, seed=seed)
        task = Task(problem=problem, epsilon=at.epsilon, rows=rows, labels=labels, seed=seed)
        fitted: dict[Any, Any] = {}
        for method in methods:
            found[method.name].append(_measured(method, task, fitted, test))
    return [_row(sweep, value, method, found[method.name], bound_of(method.name, at, test)) for method in methods]


def _measured(method: Method, task: Task, fitted: dict[Any, Any], test: Any) -> _Measured:
    """Fit, unless the same fit was just made, and measure; the worst of what its guarantee says at its delta."""
    if method.fit not in fitted:
        fitted[method.fit] = method.fit(task)
    model = fitted[method.fit]
    promise = model.guarantee_
    shown = model if method.after is None else method.after(model)
    excess = task.problem.excess(shown.predict_proba(test), test)
    trust = "everyone" if math.isinf(promise.epsilon(method.delta)) else promise.trust.words
    return _Measured(excess=SCALE * excess, epsilon=promise.epsilon(method.delta), trust=trust)


def _row(sweep: Sweep, value: float, method: Method, found: list[_Measured], bound: float | None) -> StudyRow:
    units = {"label": "one label replaced", "record": "one record added or removed", "none": ""}
    kind = f"; delta {method.delta:g}" if method.delta else ""
    return StudyRow(
        table=sweep.title,
        setting=setting(method.name, sweep.symbol, value),
        epsilon=max(one.epsilon for one in found),
        trust=found[0].trust,
        values=tuple(one.excess for one in found),
        paper=None if bound is None else SCALE * bound,
        note=units[method.unit] + kind,
    )
