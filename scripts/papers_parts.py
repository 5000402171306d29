"""The pieces that docs/papers.md is made of: rows of committed results, cells and tables, links, commands.

Everything that a table shows is read from studies/results/*/result.json. A study without a committed result has no rows, and a cell
without a row says "not yet".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from studies import StudyResult, StudyRow, names, read_result  # noqa: E402 - studies are not installed

RESULTS = ROOT / "studies" / "results"
#: What LP-1ST and LP-2ST promise; rows of other promises never stand in their lines.
SAME = "trusts no one, pure"
NOT_YET = "not yet"
#: A blank at which no line is broken.
BLANK = "\u00a0"
INF = math.inf


# --------------------------------------------------------------------------------------------------- reading results


@cache
def result_of(study: str) -> StudyResult | None:
    """Return a committed result, None where there is none."""
    path = RESULTS / study / "result.json"
    return read_result(path) if path.exists() else None


def rows_of(study: str) -> tuple[StudyRow, ...]:
    """Return the rows of a committed result, none where there is no result."""
    result = result_of(study)
    return () if result is None else result.rows


def findings(study: str) -> tuple[str, ...]:
    """Return the findings of a committed result."""
    result = result_of(study)
    return () if result is None else result.findings


def told(study: str, count: int) -> str:
    """Return the first findings of a study, as it says them."""
    return "\n\n".join(findings(study)[:count]) or f"{NOT_YET.capitalize()}."


def is_at(row: StudyRow, epsilon: float) -> bool:
    """Whether a row is of this epsilon: what a fit spent is a rounding below what was asked."""
    return row.epsilon == epsilon or math.isclose(row.epsilon, epsilon, rel_tol=2e-3)


def find(rows: Iterable[StudyRow], setting: str, epsilon: float) -> StudyRow | None:
    """Return the first row of a setting and epsilon, if it was measured."""
    return next((row for row in rows if row.setting == setting and is_at(row, epsilon)), None)


def pick_best(rows: Iterable[StudyRow], epsilon: float, promise: str, *, least: bool = False) -> StudyRow | None:
    """Return the best row of one promise at an epsilon; `least` where small is good."""
    mine = [row for row in rows if row.promise == promise and is_at(row, epsilon)]
    return (min if least else max)(mine, key=lambda row: row.mean) if mine else None


def best(study: str, table: str, epsilon: float, promise: str, *, least: bool = False) -> StudyRow | None:
    """Return the best row of one promise in a table of a study."""
    return pick_best((row for row in rows_of(study) if row.table == table), epsilon, promise, least=least)


def promises(rows: Iterable[StudyRow]) -> list[str]:
    """Return the promises of private rows, no one's trust first."""
    found = {row.promise for row in rows if math.isfinite(row.epsilon)}
    return sorted(found, key=lambda text: (not text.startswith("trusts no one"), text))


def cell(row: StudyRow | None, *, digits: int = 2, scale: float = 1.0, name: bool = False) -> str:
    """Return mean and spread of a row, and its name where asked."""
    if row is None:
        return NOT_YET
    spread = f"{BLANK}±{BLANK}{row.spread / scale:.{digits}f}" if row.n_seeds > 1 else ""
    return f"{row.mean / scale:.{digits}f}{spread}" + (f"<br>{row.setting}" if name else "")


# ----------------------------------------------------------------------------------------------- pieces of the page


def table(head: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a Markdown table; numbers are aligned to the right of the first column."""
    rule = ["---", *(["---:" if numbers else "---"] * (len(head) - 1))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def command(*studies: str) -> str:
    """Return the sentence that names the commands of a table, and what of them is missing."""
    lines = [f"Command: {'; '.join(f'{run_study(name)}{_tell_seeds(name)}' for name in studies)}."]
    missing = [f"`{name}`" for name in studies if result_of(name) is None]
    if missing:
        lines.append(f"No result is committed yet of {', '.join(missing)}.")
    found = [(name, result) for name in studies if (result := result_of(name)) is not None]
    lines += [
        f"`{name}` is measured in part: {len(result.facts['not_measured'])} of its cases are open."
        for name, result in found
        if result.is_partial
    ]
    lines += [
        f"{later['rows']} rows of `{name}` were measured later, {later['finished'][:10]} by labeldp "
        f"{later['versions']['labeldp']}, the others {result.facts['finished'][:10]} by {result.facts['versions']['labeldp']}."
        for name, result in found
        for later in result.facts.get("added", ())
    ]
    return " ".join(lines)


def run_study(name: str, *, kept: bool = True) -> str:
    """Return the command that runs a study, which must exist, and keeps its result in its place."""
    if name not in names():
        raise SystemExit(f"there is no study {name}")
    return f"`python -m studies {name}{f' --out-dir studies/results/{name}' if kept else ''}`"


def say_seeds(rows: Iterable[StudyRow]) -> str:
    """Say how many seeds rows have, in words up to three; what is computed and not drawn has one.

    >>> say_seeds([StudyRow(table="", setting="", epsilon=1.0, trust="no one", values=(1.0, 2.0))])
    'two seeds'
    """
    counts = sorted({row.n_seeds for row in rows})
    few = ("no", "one", "two", "three")
    words = [few[count] if counts[-1] < len(few) else str(count) for count in counts]
    joined = " or ".join(words) if len(words) <= 2 else f"{words[0]} to {words[-1]}"
    return f"{joined} seed{'s' * (counts[-1:] != [1])}" if counts else ""


def _tell_seeds(study: str) -> str:
    """The seeds of a study's rows in brackets; nothing where there are none."""
    said = say_seeds(rows_of(study))
    return f" ({said})" if said else ""


def link(name: str, target: str) -> str:
    """Return a link to a name of the API pages."""
    return f"[`{name}`][{target}]"


RESPONSE = link("RandomizedResponse", "labeldp.mechanisms.RandomizedResponse")
TOP = link("RRTopK", "labeldp.mechanisms.RRTopK")
PRIOR = link("RRWithPrior", "labeldp.mechanisms.RRWithPrior")
CLUSTER = link("ClusterRR", "labeldp.mechanisms.ClusterRR")
PEERS = link("PeerToPeerRR", "labeldp.mechanisms.PeerToPeerRR")
CLUSTERS = link("ClusterPrior", "labeldp.priors.ClusterPrior")
CLASSIFIER = link("LabelPrivateClassifier", "labeldp.learn.LabelPrivateClassifier")
STATISTICS = link("SufficientStatistics", "labeldp.learn.SufficientStatistics")
RATINGS = link("LabelPrivateRatings", "labeldp.learn.ratings.LabelPrivateRatings")
WALK = link("LPRRSGD", "labeldp.learn.LPRRSGD")
NORMAL = link("LPNormalSGD", "labeldp.learn.LPNormalSGD")
OUTPUT = link("OutputPerturbation", "labeldp.learn.OutputPerturbation")
SIMPLEX = link("SimplexERM", "labeldp.learn.SimplexERM")
CHANNEL = link("Channel", "labeldp.channel.Channel")
STABLE = link("stable_top_k", "labeldp.selection.stable_top_k")
GAP = link("large_gap", "labeldp.selection.large_gap")
MAXIMUM = link("noisy_max", "labeldp.selection.noisy_max")
TEST = link("propose_test_release", "labeldp.selection.propose_test_release")
RELEASABLE = link("releasable_gap", "labeldp.selection.releasable_gap")
PATE = link("PATE", "labeldp.learn.PATE")
MULTILABEL = link("MultiLabelPATE", "labeldp.learn.MultiLabelPATE")
GUARANTEE = link("Guarantee", "labeldp.guarantee.Guarantee")
NETWORK = link("NetClassifier", "labeldp.nn.NetClassifier")
PRESET = link("paper_preset", "labeldp.nn.paper_preset")
PATCHES = link("PatchFeatures", "labeldp.features.PatchFeatures")
LOAD = link("load", "labeldp.data.load")


def index(lines: Iterable[tuple[str, str, str]]) -> str:
    """Return the table of a paper: what is numbered there, where it is here, and what shows it."""
    return table(("in the paper", "here", "shown by"), lines, numbers=False)


def picture(name: str, words: str) -> str:
    """Return a drawing of docs/pictures (scripts/pictures.py) and an empty line; nothing where its rows are not measured yet."""
    there = (ROOT / "docs" / "pictures" / f"{name}.svg").exists()
    return f'<div class="picture"><img src="pictures/{name}.svg" alt="{words}"></div>\n\n' if there else ""


def tests(*files: str) -> str:
    """Return the command of the tests that show something, which must exist."""
    gone = [name for name in files if not (ROOT / "tests" / f"{name}.py").exists()]
    if gone:
        raise SystemExit(f"there is no tests/{gone[0]}.py")
    return f"`pytest {' '.join(f'tests/{name}.py' for name in files)}`"


def see(anchor: str) -> str:
    """Return a link to a section of this page."""
    return f"[numbers](#{anchor})"


def name_epsilon(epsilon: float) -> str:
    """Return the head of a column."""
    return "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def plain_table(study: str, tables: Sequence[str], head: Sequence[str], *, digits: int = 2) -> str:
    """Return rows of tables as they are: setting, epsilon, the paper's or the bound, exact, ours."""
    lines = []
    for row in (row for name in tables for row in rows_of(study) if row.table == name):
        paper = "" if row.paper is None else f"{row.paper:.{digits}f}"
        exact = "" if row.expected is None else f"{row.expected:.{digits}f}"
        lines.append([row.setting, f"{row.epsilon:.3g}", paper, exact, cell(row, digits=digits)])
    kept = [i for i in range(5) if i < 2 or any(line[i] for line in lines)]
    return table([head[i] for i in kept], [[line[i] for i in kept] for line in lines] or [[NOT_YET] * len(kept)])
