"""What the rows of `cluster-response` say, in words and in plots: read off the rows, never written beforehand.

>>> clusters_table("mnist")
'clusters at epsilon 0.5: mnist'
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from labeldp.report import Lines, Plot, Series
from studies import cluster_cases as cases
from studies.study import StudyResult, StudyRow

CLUSTERS_EPSILON = 0.5
UNIFORM = (cases.UNIFORM_PLAIN, cases.UNIFORM, cases.UNIFORM_FORWARD)
#: Epsilon as asked for and as promised differ by rounding at most.
NEAR = 1e-9


def clusters_table(name: str) -> str:
    """Return the table of the rows that vary the number of clusters."""
    return f"clusters at epsilon {CLUSTERS_EPSILON:g}: {name}"


def _sets(rows: Iterable[StudyRow]) -> list[str]:
    names = dict.fromkeys(row.table for row in rows)
    return [name for name in names if not name.startswith(("clusters", "binary"))]


def line(rows: Iterable[StudyRow], table: str, setting: str) -> list[StudyRow]:
    """Return the rows of a setting, in order of epsilon."""
    mine = [row for row in rows if row.table == table and row.setting == setting and math.isfinite(row.epsilon)]
    return sorted(mine, key=lambda row: row.epsilon)


def findings(rows: Sequence[StudyRow], missing: Sequence[str] = ()) -> tuple[str, ...]:
    """Say what each set shows, then what holds for all of them."""
    names = _sets(rows)
    said = [compared(rows, name) for name in names]
    said += [_best_use(rows, names), _beside_prior(rows, names), _unbiased(rows, names), _accounting()]
    said += [_clusters(rows, name) for name in names]
    said += [_binary(rows, table) for table in dict.fromkeys(row.table for row in rows) if table.startswith("binary")]
    said += [_settings()]
    if missing:
        said.append(f"Left out, since the folder of data sets does not have it: {', '.join(missing)}.")
    return tuple(said)


def compared(rows: Sequence[StudyRow], table: str) -> str:
    """Compare both uses of ClusterRR with each correction of UniformRR, at every epsilon."""
    verdicts = []
    for treatment in (cases.CLUSTER_BOTH, cases.CLUSTER):
        ours = line(rows, table, treatment.setting)
        against = [_verdict(ours, line(rows, table, base.setting), base.setting) for base in UNIFORM]
        verdicts.append(f"{treatment.setting} {'; '.join(against)}")
    return f"{table}: " + ". ".join(verdicts) + "."


def _verdict(ours: Sequence[StudyRow], theirs: Sequence[StudyRow], name: str) -> str:
    gains = [(a.epsilon, a.mean - b.mean) for a, b in zip(ours, theirs, strict=True)]
    lost = [f"{epsilon:g} ({gain:+.1f})" for epsilon, gain in gains if gain <= 0]
    won = [f"{epsilon:g} ({gain:+.1f})" for epsilon, gain in gains if gain > 0]
    words = f"beats {name} at epsilon {', '.join(won)}" if won else f"never beats {name}"
    return words + (f" and does not at {', '.join(lost)}" if lost and won else "")


def _best_use(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    """Say which use of ClusterRR is best at each epsilon: no one use is best everywhere."""
    parts = []
    for name in names:
        uses = [line(rows, name, one.setting) for one in (cases.CLUSTER, cases.CLUSTER_FORWARD, cases.CLUSTER_BOTH)]
        best = [max(column, key=lambda row: row.mean) for column in zip(*uses, strict=True)]
        words = [f"{row.setting.removeprefix('ClusterRR, ')} ({row.mean:.1f}) at {row.epsilon:g}" for row in best]
        parts.append(f"{name} {', '.join(words)}")
    return "The best use of ClusterRR: " + "; ".join(parts) + "."


def _beside_prior(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        pairs = zip(
            line(rows, name, cases.CLUSTER_BOTH.setting), line(rows, name, cases.PRIOR_BOTH.setting), strict=True
        )
        gains = ", ".join(f"{a.mean - b.mean:+.1f} at {a.epsilon:g}" for a, b in pairs)
        parts.append(f"{name} {gains}")
    return (
        "ClusterRR less RRWithPrior with the same histogram and the same budgets, both trained on labels and histogram, in "
        "points: " + "; ".join(parts) + "."
    )


def _unbiased(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    parts = [
        f"{name} {row.mean:.0f}%" for name in names for row in line(rows, name, cases.CLUSTER_UNBIASED.setting)[-1:]
    ]
    return (
        "The modified loss with beta = lambda is of no use with a small floor tau: a label is kept with probability of "
        f"about tau (e^epsilon_2 - 1), and the targets grow as its inverse (at epsilon 1: {', '.join(parts)}). The paper's "
        "Corollary 2 has beta = 0, training on the labels as they are: that is the row `ClusterRR, plain`."
    )


def _accounting() -> str:
    return (
        "Epsilon is the true total everywhere. The dashed line is the same noise where the paper's Theorem 1 would have put "
        "it: its histogram term is half of what a changed label costs, since it moves two counts. At the default split it "
        "claims 0.75 epsilon. With two classes one count is released, and there is no gap."
    )


def _count(row: StudyRow) -> int:
    found = re.search(r"(\d+) clusters", row.setting)
    return int(found.group(1)) if found else 0


def _by_count(rows: Sequence[StudyRow], name: str, treatment: cases.Treatment) -> list[StudyRow]:
    table = clusters_table(name)
    mine = [row for row in rows if row.table == table and row.setting.startswith(treatment.setting)]
    return sorted(mine, key=_count)


def _clusters(rows: Sequence[StudyRow], name: str) -> str:
    parts = []
    for treatment in (cases.CLUSTER, cases.CLUSTER_BOTH):
        values = ", ".join(f"{_count(row)}: {row.mean:.1f}" for row in _by_count(rows, name, treatment))
        parts.append(f"{treatment.setting} {values}")
    return f"{name}, number of clusters at epsilon {CLUSTERS_EPSILON:g}: " + "; ".join(parts) + "."


def _binary(rows: Sequence[StudyRow], table: str) -> str:
    first, second = (cases.CLUSTER.setting, cases.STAGES.setting)
    plain = _verdict(line(rows, table, first), line(rows, table, second), second)
    first, second = (cases.CLUSTER_BOTH.setting, cases.STAGES_FORWARD.setting)
    best = _verdict(line(rows, table, first), line(rows, table, second), second)
    return f"{table}: {cases.CLUSTER.setting} {plain}; {first} {best}. Nine in ten labels are of one class here."


def _settings() -> str:
    return (
        "ClusterRR and RRWithPrior trust a curator with the labels for their histogram; UniformRR and LP-2ST trust no one: at "
        "the same epsilon that is not the same promise. Two settings were fixed while prototypes on MNIST and Fashion-MNIST "
        "showed test accuracy for one seed: the penalty's rule was taken without a factor (a quarter of it was also seen, "
        "and favours ClusterRR over unbiased UniformRR), and tau = 1/K with the library's rule for the histogram's share was taken for "
        "`ClusterRR, histogram` (other shares and floors were also seen). Test labels are taken as public."
    )


def drawn(result: StudyResult) -> tuple[Plot, ...]:
    """Return the plots: a panel per set, the number of clusters, the binary tasks."""
    names = _sets(result.rows)
    binary = [table for table in result.tables() if table.startswith("binary")]
    panels = [_against_epsilon(result, name) for name in names]
    return (*panels, _against_count(result, names), *(_against_epsilon(result, table) for table in binary))


def _against_epsilon(result: StudyResult, table: str) -> Lines:
    settings = dict.fromkeys(row.setting for row in result.rows if row.table == table and math.isfinite(row.epsilon))
    # Two points near chance; a line on top of another, where eight can be told apart; and the one that is drawn first.
    left_out = {cases.CLUSTER_UNBIASED.setting, cases.CLUSTER_FORWARD.setting, cases.CLUSTER.setting}
    plain = line(result.rows, table, cases.CLUSTER.setting)
    series = [_series(cases.CLUSTER.setting, plain)]
    if any(claim(row) < row.epsilon - NEAR for row in plain):
        series.append(_series("the same, as the paper would claim it", plain, claimed=True))
    series += [_series(name, line(result.rows, table, name)) for name in settings if name not in left_out]
    return Lines(
        title=f"{table}: accuracy against epsilon",
        series=tuple(series),
        x_title="epsilon, the true total (dashed: the paper's claim)",
        y_title="share of the accuracy without privacy, %",
        alt="; ".join(f"{one.name} from {one.y[0]:.0f}% to {one.y[-1]:.0f}%" for one in series),
        x_log=True,
    )


def claim(row: StudyRow) -> float:
    """Return what the paper would claim, from the note of a row of ClusterRR."""
    return float(row.note.rsplit(" ", 1)[-1])


def _series(name: str, rows: Sequence[StudyRow], *, claimed: bool = False) -> Series:
    return Series(
        name=name,
        x=tuple(claim(row) if claimed else row.epsilon for row in rows),
        y=tuple(row.mean for row in rows),
        spreads=tuple(row.spread for row in rows),
    )


def _against_count(result: StudyResult, names: Sequence[str]) -> Lines:
    series = []
    for name in names:
        for treatment in (cases.CLUSTER, cases.CLUSTER_BOTH):
            rows = _by_count(result.rows, name, treatment)
            x, y = tuple(float(_count(row)) for row in rows), tuple(row.mean for row in rows)
            spreads = tuple(row.spread for row in rows)
            series.append(Series(name=f"{name}, {treatment.setting}", x=x, y=y, spreads=spreads))
    return Lines(
        title=f"Number of clusters at epsilon {CLUSTERS_EPSILON:g}",
        series=tuple(series),
        x_title="clusters",
        y_title="share of the accuracy without privacy, %",
        alt="; ".join(f"{one.name} from {one.y[0]:.0f}% to {one.y[-1]:.0f}%" for one in series),
        x_log=True,
    )
