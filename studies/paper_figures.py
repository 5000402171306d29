"""The figures of Ghazi et al. 2021 as rows of the study `paper-stages`: the paper's tables, what rows say in words, and drawings.

Every function takes any part of the rows, and says or draws what they carry.

>>> name_prior(0), name_prior(100)
('uniform prior', '100 clusters counted at 0.05')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev

from labeldp.report import Bars, Lines, Plot, Series
from studies.study import StudyRow, list_tables

INF = math.inf
#: Table 1: CIFAR-10, test accuracy in %.
TABLE_1 = {
    "LP-1ST": {1.0: 59.96, 2.0: 82.38, 3.0: 89.89, 4.0: 92.58, 6.0: 93.58, 8.0: 94.70, INF: 94.96},
    "LP-2ST": {1.0: 63.67, 2.0: 86.05, 3.0: 92.19, 4.0: 93.37, 6.0: 94.26, 8.0: 94.52},
    "LP-1ST, pre-trained": {1.0: 67.64, 2.0: 83.99, 3.0: 90.24, 4.0: 92.83, 6.0: 94.02, 8.0: 94.96, INF: 95.25},
    "LP-2ST, pre-trained": {1.0: 70.16, 2.0: 87.22, 3.0: 92.12, 4.0: 93.53, 6.0: 94.41, 8.0: 94.59},
}
#: Table 4 of the supplement, by set.
TABLE_4 = {
    "mnist": {
        "LP-1ST": {1.0: 95.34, 2.0: 98.16, 3.0: 98.81, 4.0: 99.08, INF: 99.33},
        "LP-2ST": {1.0: 95.82, 2.0: 98.78, 3.0: 99.14, 4.0: 99.24},
    },
    "fashion-mnist": {
        "LP-1ST": {1.0: 80.78, 2.0: 90.18, 3.0: 92.52, 4.0: 93.50, INF: 94.28},
        "LP-2ST": {1.0: 83.26, 2.0: 91.24, 3.0: 93.18, 4.0: 94.10},
    },
}
PRINTED = {"cifar10": TABLE_1, **TABLE_4}

FIGURE_1A, FIGURE_1B = "Figure 1(a), stages", "Figure 1(b), priors"
FIGURE_2, FIGURE_3 = "Figure 2, votes of clusters", "Figure 3, passes"
FIGURE_4A, FIGURE_4B = "Figure 4(a), share and temperature", "Figure 4(b), mixup of each stage"
FIGURE_5 = "Figure 5, what stage 1 knows (top-k test accuracy, %)"

#: The epsilon of Figures 3, 4 and 5.
EPSILON = 2.0
#: The paper's own, for features that it learned on CIFAR-10 without labels (BYOL): clusters, and what their counts cost.
PRIOR_CLUSTERS, PRIOR_COST = 100, 0.05
#: Figure 5 has ranges of so many points.
RANGE = 5


def name_prior(clusters: int) -> str:
    """Return what a row of Figure 1(b) is called."""
    return f"{clusters} clusters counted at {PRIOR_COST:g}" if clusters else "uniform prior"


# ---------------------------------------------------------------------------------------------------------- the words


def _of(rows: Sequence[StudyRow], table: str) -> list[StudyRow]:
    return [row for row in rows if row.table == table]


def _at(row: StudyRow) -> float:
    """The epsilon that was asked for: what was spent is a rounding below it."""
    return float(f"{row.epsilon:.3g}")


def _numbers(text: str) -> list[float]:
    """The numbers in the name of a setting."""
    return [float(word) for word in text.replace(",", " ").split() if word.replace(".", "", 1).isdigit()]


def describe_rows(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    """Return what each table and figure shows, as far as it is measured."""
    return (
        *_tell_tables(rows),
        *_tell_stages(rows),
        *_tell_priors(rows),
        *_tell_votes(rows),
        *_tell_passes(rows),
        *(text for name in (FIGURE_4A, FIGURE_4B) for text in _tell_sweep(name, rows)),
        *_tell_first(rows),
    )


def _tell_tables(rows: Sequence[StudyRow]) -> list[str]:
    sentences = []
    for table in (name for name in list_tables(rows) if name.startswith("Table")):
        for epsilon in dict.fromkeys(_at(row) for row in _of(rows, table)):
            mine = [row for row in _of(rows, table) if _at(row) == epsilon]
            words = [
                f"{row.setting} {row.mean:.2f}"
                + (f" (sd {row.spread:.2f})" if row.n_seeds > 1 else "")
                + ("" if row.paper is None else f", paper {row.paper:.2f}")
                for row in mine
            ]
            sentences.append(f"{table}, epsilon {epsilon:g}: {'; '.join(words)}.")
    return sentences


def _tell_stages(rows: Sequence[StudyRow]) -> list[str]:
    sentences = []
    for epsilon in dict.fromkeys(_at(row) for row in _of(rows, FIGURE_1A)):
        mine = [row for row in _of(rows, FIGURE_1A) if _at(row) == epsilon]
        told = ", ".join(f"{row.mean:.2f} in {row.setting}" for row in mine)
        steps = ", ".join(f"{after.mean - before.mean:+.2f}" for before, after in pairwise(mine))
        sentences.append(
            f"{FIGURE_1A}, epsilon {epsilon:g}: {told}" + (f"; each stage more: {steps}." if steps else ".")
        )
    return [*sentences, "The paper reports 1 to 2 points from two stages to three."] if sentences else []


def _tell_priors(rows: Sequence[StudyRow]) -> list[str]:
    named: dict[str, dict[float, StudyRow]] = {}
    for row in _of(rows, FIGURE_1B):
        named.setdefault(row.setting, {})[_at(row)] = row
    flat, counted = (
        named.get(name_prior(0), {}),
        named.get(name_prior(PRIOR_CLUSTERS), {}),
    )
    gains = [f"{counted[at].mean - flat[at].mean:+.2f} at {at:g}" for at in flat if at in counted]
    if not gains:
        return []
    said = (
        f"{FIGURE_1B}: with {PRIOR_CLUSTERS} clusters counted at {PRIOR_COST:g} of epsilon (a curator) against a uniform prior (no one), "
        f"points: {', '.join(gains)}. The paper's own finding is that such priors help at small epsilon and cost a little at 8."
    )
    return [said]


def _tell_votes(rows: Sequence[StudyRow]) -> list[str]:
    told = []
    for epsilon in dict.fromkeys(_at(row) for row in _of(rows, FIGURE_2)):
        mine = [row for row in _of(rows, FIGURE_2) if _at(row) == epsilon]
        most = max(mine, key=lambda row: row.mean)
        told.append(f"{most.setting} at {epsilon:g} ({most.mean:.1f})")
    return [f"{FIGURE_2}: the best number of clusters for each cost of the counts: {', '.join(told)}."] if told else []


def _tell_passes(rows: Sequence[StudyRow]) -> list[str]:
    curves = read_curves(rows)
    if not curves:
        return []
    told = "; ".join(f"{name} " + ", ".join(f"{value:.1f}" for _, value in points) for name, points in curves.items())
    counts = ", ".join(str(at) for at, _ in next(iter(curves.values())))
    said = (
        f"{FIGURE_3} ({counts}): {told}. The paper's text: stage 1 on 65% of the examples stays below LP-1ST, its top-2 accuracy reaches "
        "90%, and the second stage chooses from 1.86 candidates on average."
    )
    return [said]


def read_curves(rows: Sequence[StudyRow]) -> dict[str, list[tuple[int, float]]]:
    """Return passes and accuracies of each curve of Figure 3."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in _of(rows, FIGURE_3):
        name, _, end = row.setting.rpartition(", ")
        found.setdefault(name, []).append((int(end.split()[0]), row.mean))
    return {name: sorted(points) for name, points in found.items()}


def _tell_sweep(table: str, rows: Sequence[StudyRow]) -> list[str]:
    mine = _of(rows, table)
    if len(mine) < 2:
        return []
    best, worst = max(mine, key=lambda row: row.mean), min(mine, key=lambda row: row.mean)
    return [f"{table}, {len(mine)} cells: best {best.setting} {best.mean:.2f}, worst {worst.setting} {worst.mean:.2f}."]


def pair_first(rows: Sequence[StudyRow]) -> list[tuple[float, float]]:
    """Return for each cell of Figure 4 what its stage 1 knows (top-k, %) and its final accuracy."""
    final = {row.setting: row.mean for row in rows if row.table in {FIGURE_4A, FIGURE_4B}}
    return sorted((row.mean, final[row.setting]) for row in _of(rows, FIGURE_5) if row.setting in final)


def group_first(rows: Sequence[StudyRow]) -> list[tuple[str, list[float]]]:
    """Return the final accuracies by range of what stage 1 knows."""
    found: dict[int, list[float]] = {}
    for known, final in pair_first(rows):
        found.setdefault(int(known // RANGE) * RANGE, []).append(final)
    return [(f"{low} to {low + RANGE}", values) for low, values in sorted(found.items())]


def _tell_first(rows: Sequence[StudyRow]) -> list[str]:
    groups = group_first(rows)
    if not groups:
        return []
    told = "; ".join(f"{name}: {fmean(values):.2f} ({len(values)} cells)" for name, values in groups)
    return [f"Figure 5, mean final accuracy by the top-k accuracy of stage 1, where stage 2 chose from k: {told}."]


# ------------------------------------------------------------------------------------------------------- the drawings


def draw_rows(rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
    """Return a drawing of each figure that has rows."""
    drawn = (draw_stages(rows), draw_priors(rows), draw_votes(rows), draw_passes(rows), *draw_sweeps(rows))
    return tuple(plot for plot in (*drawn, draw_first(rows)) if plot is not None)


def _series(name: str, points: Sequence[tuple[float, StudyRow]]) -> Series:
    inside = sorted(points, key=lambda point: point[0])
    spreads = tuple(row.spread for _, row in inside)
    return Series(
        name=name,
        x=tuple(at for at, _ in inside),
        y=tuple(row.mean for _, row in inside),
        spreads=spreads if any(spreads) else (),
    )


def _lines(title: str, series: Sequence[Series], *, x_title: str, x_log: bool = False) -> Lines | None:
    """A drawing whose words say where each line begins and ends; None without rows."""
    if not series:
        return None
    ends = "; ".join(f"{one.name}: {one.y[0]:.1f} at {one.x[0]:g}, {one.y[-1]:.1f} at {one.x[-1]:g}" for one in series)
    return Lines(title=title, series=tuple(series), x_title=x_title, y_title="test accuracy, %", alt=ends, x_log=x_log)


def draw_stages(rows: Sequence[StudyRow]) -> Lines | None:
    """Accuracy against stages, a line for each epsilon."""
    mine = _of(rows, FIGURE_1A)
    series = [
        _series(f"epsilon {at:g}", [(_numbers(row.setting)[0], row) for row in mine if _at(row) == at])
        for at in dict.fromkeys(map(_at, mine))
    ]
    return _lines("CIFAR-10: accuracy against stages", series, x_title="stages")


def draw_priors(rows: Sequence[StudyRow]) -> Lines | None:
    """Accuracy against epsilon, a line for each prior."""
    mine = _of(rows, FIGURE_1B)
    series = [
        _series(f"{name}, trusts {found[0].trust}", [(_at(row), row) for row in found])
        for name in dict.fromkeys(row.setting for row in mine)
        if (found := [row for row in mine if row.setting == name])
    ]
    return _lines("CIFAR-10: RRWithPrior with and without counts", series, x_title="epsilon", x_log=True)


def draw_votes(rows: Sequence[StudyRow]) -> Lines | None:
    """Accuracy of votes against what the counts cost, a line for each number of clusters."""
    mine = _of(rows, FIGURE_2)
    series = [
        _series(name, [(_at(row), row) for row in mine if row.setting == name])
        for name in dict.fromkeys(row.setting for row in mine)
    ]
    return _lines("CIFAR-10: votes of clusters", series, x_title="epsilon of the counts", x_log=True)


def draw_passes(rows: Sequence[StudyRow]) -> Lines | None:
    """Accuracy against passes, a line for each stage."""
    series = [
        Series(name=name, x=tuple(float(at) for at, _ in points), y=tuple(value for _, value in points))
        for name, points in read_curves(rows).items()
    ]
    return _lines(f"CIFAR-10 at epsilon {EPSILON:g}: accuracy against passes", series, x_title="passes")


def draw_sweeps(rows: Sequence[StudyRow]) -> tuple[Lines | None, ...]:
    """Figure 4, each half as lines: one quantity along the axis, a line for each value of the other."""
    drawn = []
    for table, x_title, other in (
        (FIGURE_4A, "share of stage 1", "temperature"),
        (FIGURE_4B, "mixup of stage 1", "mixup of stage 2"),
    ):
        cells = [(_numbers(row.setting), row) for row in _of(rows, table)]
        series = [
            _series(f"{other} {value:g}", [(pair[0], row) for pair, row in cells if pair[1] == value])
            for value in dict.fromkeys(pair[1] for pair, _ in cells)
        ]
        drawn.append(_lines(f"CIFAR-10 at epsilon {EPSILON:g}: {table}", series, x_title=x_title))
    return tuple(drawn)


def draw_first(rows: Sequence[StudyRow]) -> Bars | None:
    """Final accuracy by range of what stage 1 knows."""
    groups = group_first(rows)
    if not groups:
        return None
    values = tuple(fmean(values) for _, values in groups)
    title = "final accuracy, %, by the top-k accuracy of stage 1"
    return Bars(
        title=title,
        labels=tuple(f"{name}% ({len(found)} cells)" for name, found in groups),
        values=values,
        spreads=tuple(stdev(found) if len(found) > 1 else 0.0 for _, found in groups),
        x_title=title,
        alt="; ".join(f"{name}: {value:.1f}" for (name, _), value in zip(groups, values, strict=True)),
    )
