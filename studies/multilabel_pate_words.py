"""The words and plots of the study `multilabel-pate`, all read off its rows.

>>> from studies.study import StudyRow
>>> rows = [
...     StudyRow(table="t", setting=name, epsilon=epsilon, trust="a curator", values=(value,))
...     for name, epsilon, value in (("a", 2.0, 40.0), ("a", 4.0, 50.0), ("b", 2.0, 20.0), ("b", 4.0, 39.0))
... ]
>>> least_epsilon(rows, "t", "b", 39.0), halves(rows, "t", "a", "b")
(4.0, (1, 1))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from labeldp.guarantee import shown
from labeldp.report import Lines, Plot, Series
from studies.multilabel_pate_cases import BOUNDED, COUNTS, METHODS, STABLE, Poll
from studies.multilabel_pate_classes import METHODS as CLASS_METHODS
from studies.multilabel_pate_classes import TABLES as CLASS_TABLES
from studies.study import StudyResult, StudyRow

NOISELESS = "majority, no noise"
MEASURES = {
    "answers_f1": "answers, micro-F1",
    "answers_accuracy": "answers, accuracy per label",
    "student_f1": "student, micro-F1",
}
#: A method has arrived when it is this near to the majority without noise.
ARRIVED = 0.95
#: Two epsilons of the grid are one half when they agree to this; spent epsilons are a little below those asked for.
SAME = 0.02


STUDENT = (
    "The student evens out false labels of PATE, which fall on random points, and does not miss the points that "
    "StableTopK leaves out, which are the hard ones: between students the methods differ less than between answers. "
    "PATE-tau, with a clip that fits the set, is cheaper than either on every set here, as it draws about as much noise as "
    "StableTopK and needs no test: prefer it where the number of labels of a row is known."
)
CHOSEN = (
    "How settings were chosen: clip and bound by public rules, the same for all sets. Penalty and features, the sets and the "
    "thresholds shown (0.5 and 0.3), the number of teachers and the share of the budget that chooses k in the bounded variant were settled after "
    "trials that looked at test labels, so that levels may be optimistic; all methods share the votes, but for that share."
)
CAUTION = (
    "Most of these epsilons are too large for a promise worth much: 100 queries to 100 or 300 teachers are few teachers. "
    "More teachers at the same agreement lower all of them alike. Accuracy per label, the paper's measure, is "
    "nearly that of naming no label at all where labels are rare: read it beside micro-F1."
)


def table_name(task: str, measure: str) -> str:
    """The table of a set and a measure."""
    return f"{task}: {MEASURES[measure]}"


def line(rows: Sequence[StudyRow], table: str, setting: str) -> list[StudyRow]:
    """Return the rows of a setting by rising epsilon."""
    return sorted((row for row in rows if row.table == table and row.setting == setting), key=lambda row: row.epsilon)


def least_epsilon(rows: Sequence[StudyRow], table: str, setting: str, level: float) -> float:
    """Return the least epsilon of the grid from which on the mean stays at the level or above; inf if none."""
    found = math.inf
    for row in reversed(line(rows, table, setting)):
        if row.mean < level:
            break
        found = row.epsilon
    return found


def halves(rows: Sequence[StudyRow], table: str, one: str, other: str) -> tuple[int, int]:
    """Return at how many epsilons of `other` `one` is as good with half of it, and how many there are to compare."""
    ours = line(rows, table, one)
    good = total = 0
    for row in line(rows, table, other):
        half = [mine for mine in ours if abs(2 * mine.epsilon / row.epsilon - 1) < SAME]
        total += bool(half)
        good += any(mine.mean >= row.mean for mine in half)
    return good, total


def gap_fact(polls: Sequence[Poll]) -> str:
    """Say how clear the votes are: the largest gap of a query, as a share of the teachers."""
    gaps = np.concatenate([poll.gaps() for poll in polls])
    low, middle, high = (100 * float(np.quantile(gaps, share)) for share in (0.1, 0.5, 0.9))
    return (
        f"{polls[0].n_labels} labels; largest gap of a query in % of the teachers: {middle:.0f} (median), "
        f"{low:.0f} to {high:.0f} (middle 80%)"
    )


def findings(rows: Sequence[StudyRow], gaps: Mapping[str, str]) -> tuple[str, ...]:
    """Say who needs how much, where half of PATE's epsilon is enough, and why."""
    tasks = list(dict.fromkeys(row.table.split(": ")[0] for row in rows if row.setting == NOISELESS))
    return (
        _verdict(rows, tasks),
        *(_needed(rows, task) for task in tasks),
        *(_half(rows, tasks, measure) for measure in MEASURES),
        "Why: for one answer of T at zCDP rho, PATE draws noise of sqrt(m T / (2 rho)) on each of m counts and needs every count "
        "some of these away from half of the teachers; StableTopK draws noise of 2 sqrt(T / rho) and needs one gap of about 5 "
        "to 10 of these, however many labels there are. So it wins where labels are many and votes fall off one cliff, and "
        "loses where labels are few or votes slope. "
        + "; ".join(f"{name}: {text}" for name, text in gaps.items())
        + ".",
        STUDENT,
        _classes(rows),
        CHOSEN,
        CAUTION,
    )


def at_half(rows: Sequence[StudyRow], tasks: Sequence[str], method: str, measure: str) -> list[str]:
    """Return the sets on which a method arrives with half of the epsilon with which PATE does."""
    found = []
    for task in tasks:
        table = table_name(task, measure)
        level = ARRIVED * line(rows, table, NOISELESS)[0].mean
        ours, theirs = (least_epsilon(rows, table, name, level) for name in (method, COUNTS.name))
        if math.isfinite(ours) and 2 * ours <= theirs * (1 + SAME):
            found.append(task)
    return found


def _verdict(rows: Sequence[StudyRow], tasks: Sequence[str]) -> str:
    """Say on which sets half of PATE's epsilon is enough."""
    parts = []
    for measure, words in MEASURES.items():
        names = [
            f"{method.name}: {', '.join(at_half(rows, tasks, method.name, measure)) or 'none'}"
            for method in (STABLE, BOUNDED)
        ]
        parts.append(f"{words}: " + "; ".join(names))
    return (
        f"Sets on which StableTopK comes to {100 * ARRIVED:.0f}% of the majority without noise with at most half of the epsilon "
        "of PATE (a noisy count per label), accounted for replace. "
        + ". ".join(parts)
        + ". By accuracy per label this says little: "
        "answers without any label come there as well. By micro-F1 it is one set for answers, and no variant does it for "
        "two sets; the other findings say where each wins, and why."
    )


def _needed(rows: Sequence[StudyRow], task: str) -> str:
    """Say the epsilon at equal accuracy, and the accuracy at equal epsilon."""
    table = table_name(task, "answers_f1")
    level = ARRIVED * line(rows, table, NOISELESS)[0].mean
    needs = {method.name: least_epsilon(rows, table, method.name, level) for method in METHODS}
    parts = [
        f"{name} {'more than the grid has' if math.isinf(need) else shown(round(need, 2))}"
        for name, need in needs.items()
    ]
    middle = line(rows, table, COUNTS.name)
    at = middle[len(middle) // 2].epsilon
    equal = [f"{method.name} {_near(rows, table, method.name, at):.1f}" for method in METHODS]
    return (
        f"{task}, answers: epsilon for {100 * ARRIVED:.0f}% of the micro-F1 of the majority without noise: "
        + ", ".join(parts)
        + f". Micro-F1 at epsilon {shown(round(at, 1))}: "
        + ", ".join(equal)
        + "."
    )


def _near(rows: Sequence[StudyRow], table: str, setting: str, epsilon: float) -> float:
    return min(line(rows, table, setting), key=lambda row: abs(row.epsilon - epsilon)).mean


def _half(rows: Sequence[StudyRow], tasks: Sequence[str], measure: str) -> str:
    """Say at how many epsilons StableTopK with half of it is as good as PATE."""
    parts = []
    for task in tasks:
        counts = [halves(rows, table_name(task, measure), method.name, COUNTS.name) for method in (STABLE, BOUNDED)]
        parts.append(f"{task}: {counts[0][0]} and {counts[1][0]} of {counts[0][1]}")
    return (
        f"{MEASURES[measure]}: epsilons at which {STABLE.name}, and {BOUNDED.name}, are at least as good as {COUNTS.name} with "
        "half of its epsilon. " + "; ".join(parts) + "."
    )


def _classes(rows: Sequence[StudyRow]) -> str:
    """Say how the two ways to answer with a class compare."""
    words = []
    for table in CLASS_TABLES:
        parts = [
            f"{name} "
            + ", ".join(f"{row.mean:.1f} (epsilon {shown(round(row.epsilon, 2))})" for row in line(rows, table, name))
            for name, _ in CLASS_METHODS
        ]
        words.append(f"{table}: " + "; ".join(parts))
    return (
        "One class a row. "
        + ". ".join(words)
        + ". Confident-GNMax is more often right, on points that are easier, from which "
        "the student does not learn more."
    )


def drawn(result: StudyResult) -> tuple[Plot, ...]:
    """One plot for each table but those of accuracy per label, which is nearly flat."""
    flat = MEASURES["answers_accuracy"]
    return tuple(_plot(result.rows, table) for table in result.tables() if not table.endswith(flat))


def _plot(rows: Sequence[StudyRow], table: str) -> Plot:
    names = [name for name, _ in CLASS_METHODS] if table in CLASS_TABLES else [method.name for method in METHODS]
    series = []
    for name in names:
        mine = line(rows, table, name)
        xs, ys = tuple(row.epsilon for row in mine), tuple(row.mean for row in mine)
        series.append(Series(name=name, x=xs, y=ys, spreads=tuple(row.spread for row in mine)))
    return Lines(
        title=table,
        series=tuple(series),
        x_title="epsilon",
        y_title="% (bars: one standard deviation)",
        alt="; ".join(f"{one.name} " + ", ".join(f"{value:.0f}" for value in one.y) for one in series),
        x_log=True,
        references=tuple((NOISELESS, row.mean) for row in rows if row.table == table and row.setting == NOISELESS),
    )
