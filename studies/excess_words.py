"""What the study `excess-risk` says about its rows: growth with the dimension, distance from the bounds, and the limits.

>>> times(2.0, 1.0), times(0.03, 0.02)
('2.0 times', '1.5 times')
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.excess_methods import BLIND, METHODS, NORMAL, RESPONSE
from studies.excess_plots import Sweep, generalization, setting
from studies.excess_problem import DIAMETER
from studies.study import StudyRow


def times(last: float, first: float) -> str:
    """Return a ratio in words."""
    return f"{last / first:.1f} times"


def findings(rows: Sequence[StudyRow], sweeps: Sequence[Sweep]) -> tuple[str, ...]:
    """Say what the rows show, and what they do not."""
    by_symbol = {sweep.symbol: sweep for sweep in sweeps}
    return (
        _dimension(rows, by_symbol["p"]),
        _blind(rows, by_symbol["p"]),
        _slopes(rows, by_symbol["n"]),
        _bounds(rows, by_symbol["n"]),
        (
            "What this is not: the lower rate of Proposition 12 is drawn with constant 1, which its proof does not state, and it "
            "is about the worst problem, so that a measured line below it contradicts nothing. Features here are sparse, of "
            "norm 1, with five informative coordinates; the label-private walks are one pass with the theorems' steps, not what "
            "one would use to win (the learners' defaults make five passes). DP-SGD's epsilon is for a record, the others' for a label."
        ),
    )


def _ends(rows: Sequence[StudyRow], sweep: Sweep, method: str) -> tuple[StudyRow, StudyRow]:
    named = {row.setting: row for row in rows if row.table == sweep.title}
    first, last = (named[setting(method, sweep.symbol, value)] for value in (sweep.points[0], sweep.points[-1]))
    return first, last


def _dimension(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    told = []
    for method in METHODS:
        if "p" in method.sweeps and method.name != BLIND:
            first, last = _ends(rows, sweep, method.name)
            told.append(f"{method.name} {first.mean:.1f} to {last.mean:.1f} ({times(last.mean, first.mean)})")
    low, high = sweep.points[0], sweep.points[-1]
    return f"From p = {low:,} to {high:,} the mean excess risk, in thousandths of a nat, goes: " + "; ".join(told) + "."


def _blind(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    first, last = _ends(rows, sweep, BLIND)
    return (
        f"DP-SGD with a step that ignores p and without the ball goes from {first.mean:.1f} to {last.mean:.1f}: on a "
        "generalised linear model the noise meets each row in one direction only, and the growth with p comes from the steps "
        "and the ball that the theory of general convex losses needs (Song et al. 2021). The dependence on p is of the general "
        "problem; this one shows it for the algorithm as analysed, not for every way to run it."
    )


def _slopes(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    told = []
    for method in (RESPONSE, NORMAL):
        first, last = _ends(rows, sweep, method)
        told.append(f"{method} {first.mean:.1f} to {last.mean:.1f}")
    ratio = (sweep.points[-1] / sweep.points[0]) ** 0.5
    return f"From n = {sweep.points[0]:,} to {sweep.points[-1]:,}: {'; '.join(told)}. A rate of 1/sqrt n would divide by {ratio:.1f}."


def _bounds(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    _, last = _ends(rows, sweep, RESPONSE)
    bound = last.paper or 0.0
    general = generalization(sweep.at(sweep.points[-1])) or 0.0
    return (
        f"The upper bounds hold and are far away: at n = {sweep.points[-1]:,} Theorem 9 allows {bound / 1000:.2f} nats where "
        f"{last.mean / 1000:.4f} is measured, and twice the corrected Theorem 17 allows {general:.2f}. With D = {DIAMETER:g} they "
        "say something about the rate only; predicting the uniform distribution loses a few tenths of a nat. The theorems are "
        "about the last iterate; the learners return the mean of the second half of them, for which convexity gives at most "
        "sqrt 2 times as much."
    )
