"""Write docs/papers.md: every numbered table, figure, theorem and algorithm of the papers, and where it is here.

    python scripts/papers.py            # writes the page
    python scripts/papers.py --check    # exit code 1 if the page is not what the committed results say

Our numbers are read from studies/results/*/result.json, never typed. The papers' are in `studies` (one constant for each table)
or below, where no study repeats the cell. A study without a committed result is shown as such: cells say "not yet".
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from labeldp.selection import StablePlan  # noqa: E402
from studies import StudyRow, names, read_result  # noqa: E402

PAGE = ROOT / "docs" / "papers.md"
RESULTS = ROOT / "studies" / "results"
#: What LP-1ST and LP-2ST promise; rows of other promises never stand in their lines.
SAME = "trusts no one, pure"
NOT_YET = "not yet"
INF = math.inf

# ------------------------------------------------------------------------------- the papers' own numbers, as printed

#: Ghazi et al. 2021, Table 1: CIFAR-10, test accuracy in %.
TABLE_1 = {
    "LP-1ST": {1.0: 59.96, 2.0: 82.38, 3.0: 89.89, 4.0: 92.58, 6.0: 93.58, 8.0: 94.70, INF: 94.96},
    "LP-2ST": {1.0: 63.67, 2.0: 86.05, 3.0: 92.19, 4.0: 93.37, 6.0: 94.26, 8.0: 94.52},
    "LP-1ST, pre-trained": {1.0: 67.64, 2.0: 83.99, 3.0: 90.24, 4.0: 92.83, 6.0: 94.02, 8.0: 94.96, INF: 95.25},
    "LP-2ST, pre-trained": {1.0: 70.16, 2.0: 87.22, 3.0: 92.12, 4.0: 93.53, 6.0: 94.41, 8.0: 94.59},
}
#: Table 3: MovieLens-1M, test RMSE.
TABLE_3 = {
    "LP-1ST": {1.0: 1.122, 2.0: 0.981, 3.0: 0.902, 4.0: 0.877, 8.0: 0.867, INF: 0.868},
    "LP-2ST": {1.0: 1.034, 2.0: 0.928, 3.0: 0.891, 4.0: 0.874, 8.0: 0.865},
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
#: Zhu & Wang 2022, Table 2: epsilon for 600 answers about CelebA at delta 1e-6.
TABLE_2_EPSILON = 3.6


# --------------------------------------------------------------------------------------------------- reading results


@cache
def rows_of(study: str) -> tuple[StudyRow, ...]:
    """Return the rows of a committed result, none where there is no result."""
    path = RESULTS / study / "result.json"
    return read_result(path).rows if path.exists() else ()


def is_at(row: StudyRow, epsilon: float) -> bool:
    """Whether a row is of this epsilon: what a fit spent is a rounding below what was asked."""
    return row.epsilon == epsilon or math.isclose(row.epsilon, epsilon, rel_tol=2e-3)


def find(study: str, table: str, setting: str, epsilon: float) -> StudyRow | None:
    """Return the one row of a table, setting and epsilon, if it was measured."""
    found = [row for row in rows_of(study) if row.table == table and row.setting == setting and is_at(row, epsilon)]
    return found[0] if found else None


def best(study: str, table: str, epsilon: float, promise: str, *, least: bool = False) -> StudyRow | None:
    """Return the best row of one promise at an epsilon; `least` where small is good."""
    mine = [row for row in rows_of(study) if row.table == table and row.promise == promise and is_at(row, epsilon)]
    return (min if least else max)(mine, key=lambda row: row.mean) if mine else None


def promises(study: str, table: str) -> list[str]:
    """Return the promises of the private rows of a table, no one's trust first."""
    found = {row.promise for row in rows_of(study) if row.table == table and math.isfinite(row.epsilon)}
    return sorted(found, key=lambda text: (not text.startswith("trusts no one"), text))


def cell(row: StudyRow | None, *, digits: int = 2, scale: float = 1.0, name: bool = False) -> str:
    """Return mean and spread of a row, and its name where asked."""
    if row is None:
        return NOT_YET
    spread = f" ± {row.spread / scale:.{digits}f}" if row.n_seeds > 1 else ""
    return f"{row.mean / scale:.{digits}f}{spread}" + (f"<br>{row.setting}" if name else "")


# ----------------------------------------------------------------------------------------------- pieces of the page


def table(head: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a Markdown table; numbers are aligned to the right of the first column."""
    rule = ["---", *(["---:" if numbers else "---"] * (len(head) - 1))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def command(*studies: str) -> str:
    """Return the sentence that names the commands of a table."""
    told = [f"`python -m studies {study} --out-dir studies/results/{study}`" for study in studies]
    missing = [f"`{study}`" for study in studies if not rows_of(study)]
    return (
        "Command: "
        + "; ".join(told)
        + "."
        + (f" No result is committed yet of {', '.join(missing)}." if missing else "")
    )


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


def tests(*files: str) -> str:
    """Return the command of the tests that show something, which must exist."""
    gone = [name for name in files if not (ROOT / "tests" / f"{name}.py").exists()]
    if gone:
        raise SystemExit(f"there is no tests/{gone[0]}.py")
    return f"`pytest {' '.join(f'tests/{name}.py' for name in files)}`"


def name_study(name: str) -> str:
    """Return the name of a study, which must exist."""
    if name not in names():
        raise SystemExit(f"there is no study {name}")
    return f"study `{name}`"


def see(anchor: str) -> str:
    """Return a link to a section of this page."""
    return f"[numbers](#{anchor})"


# ------------------------------------------------------------------------------------------------------- the numbers


def name_epsilon(epsilon: float) -> str:
    """Return the head of a column."""
    return "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def accuracy_table(
    study: str,
    data: str,
    paper: dict[str, dict[float, float]],
    epsilons: Sequence[float],
    extra: Sequence[tuple[str, Callable[[float], StudyRow | None]]] = (),
) -> str:
    """Return the paper's lines and ours of one set, each of ours within one promise."""
    lines = []
    for name, cells in paper.items():
        printed = [f"{cells[epsilon]:.2f}" if epsilon in cells else "" for epsilon in epsilons]
        lines.append([f"paper: {name}, GPU", *printed])
        if name in {"LP-1ST", "LP-2ST"}:
            ours = [
                find(study, data, name if math.isfinite(epsilon) else "no privacy", epsilon) for epsilon in epsilons
            ]
            same = [
                cell(row) if name == "LP-1ST" or math.isfinite(at) else ""
                for row, at in zip(ours, epsilons, strict=True)
            ]
            lines.append([f"ours: {name}, features without labels, CPU", *same])
    for promise in promises(study, data):
        found = [best(study, data, epsilon, promise) for epsilon in epsilons if math.isfinite(epsilon)]
        if not any(found):  # a curator whom no plan needs at these budgets
            continue
        shown = [cell(row, name=True) for row in found]
        lines.append([f"ours: best that {promise}", *shown, *([""] if math.isinf(epsilons[-1]) else [])])
    for name, pick in extra:
        open_too = study == "images-cifar10"  # the studies of networks and of the encoder have a row without privacy
        lines.append([name, *(cell(pick(at)) if open_too or math.isfinite(at) else "" for at in epsilons)])
    return table(["test accuracy, %", *map(name_epsilon, epsilons)], lines)


def cifar_table() -> str:
    """Return Table 1, with networks and a public encoder where they are measured."""

    def network(setting_end: str) -> Callable[[float], StudyRow | None]:
        def pick(epsilon: float) -> StudyRow | None:
            mine = [row for row in rows_of("networks") if row.table == "cifar10" and is_at(row, epsilon)]
            chosen = [row for row in mine if row.setting.endswith("pretrained") == (setting_end == "pretrained")]
            return max(chosen, key=lambda row: row.mean) if chosen else None

        return pick

    def encoder(epsilon: float) -> StudyRow | None:
        names = sorted({row.table for row in rows_of("encoder")})
        if math.isinf(epsilon):
            return next((row for row in rows_of("encoder") if math.isinf(row.epsilon)), None)
        return best("encoder", names[0], epsilon, SAME) if names else None

    extra = (
        (f"ours: network end to end, one core; {SAME}", network("")),
        (f"ours: network pre-trained without labels, one core; {SAME}", network("pretrained")),
        (f"ours: best on a public encoder; {SAME}", encoder),
    )
    return accuracy_table("images-cifar10", "cifar10", TABLE_1, (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, INF), extra)


def small_images_table(data: str) -> str:
    """Return Table 4 of one set, with the epsilons that only the study of recipes has."""
    names_of = [row.table for row in rows_of("recipes") if row.table.startswith(f"{data}, 60000")]

    def recipe(epsilon: float) -> StudyRow | None:
        return find("recipes", names_of[0], "auto, no one", epsilon) if names_of and math.isfinite(epsilon) else None

    extra = ((f"ours: auto, no one, of the study of recipes; {SAME}", recipe),)
    return accuracy_table(f"images-{data}", data, TABLE_4[data], (1.0, 2.0, 3.0, 4.0, INF), extra)


def ratings_table() -> str:
    """Return Table 3 in stars."""
    epsilons = (1.0, 2.0, 3.0, 4.0, 8.0)
    lines = []
    for name, cells in TABLE_3.items():
        lines.append([f"paper: {name}", *(f"{cells[epsilon]:.3f}" for epsilon in epsilons)])
        ours = [find("ratings", f"epsilon {epsilon:g}", f"NCF, {name}", epsilon) for epsilon in epsilons]
        lines.append([f"ours: {name}, the paper's network", *(cell(row, digits=3, scale=1000) for row in ours)])
    for promise in (SAME, "trusts a curator, pure"):
        found = [best("ratings", f"epsilon {epsilon:g}", epsilon, promise, least=True) for epsilon in epsilons]
        lines.append([f"ours: best that {promise}", *(cell(row, digits=3, scale=1000, name=True) for row in found)])
    return table(["test RMSE, stars", *map(name_epsilon, epsilons)], lines)


def settings_table() -> str:
    """Return what we have of Figure 4: three one-dimensional sweeps on Fashion-MNIST."""
    names = ("share of stage 1", "temperature", "mixup")
    lines = []
    for name in names:
        mine = [row for row in rows_of("stage-settings") if row.table == name]
        told = ", ".join(f"{row.setting.removeprefix(name).strip()}: {row.mean:.2f}" for row in mine)
        lines.append([name, told or NOT_YET])
    return table(["varied", "test accuracy, %"], lines, numbers=False)


def cluster_table(data: str) -> str:
    """Return Figure 1 of the clustering paper: UniformRR, ClusterRR, and DP-SGD in its own unit."""
    epsilons = (0.1, 0.5, 1.0, 2.0)
    settings = ("UniformRR, plain", "UniformRR, forward", "ClusterRR, plain", "ClusterRR, histogram")
    lines = []
    for setting in settings:
        found = [find("cluster-response", data, setting, epsilon) for epsilon in epsilons]
        trust = next((row.promise for row in found if row is not None), "")
        lines.append([f"{setting}; a label, {trust}", *(cell(row, digits=1) for row in found)])
    figure = f"{data}, Figure 1 (share of the accuracy without privacy, %)"
    sgd = [
        next((row for row in rows_of("cluster-bounds") if row.table == figure and is_at(row, at)), None)
        for at in epsilons
    ]
    lines.append(["DP-SGD; a record, trusts a curator, delta 1 / n", *(cell(row, digits=1) for row in sgd)])
    return table([f"{data}, share of the accuracy without privacy, %", *map(name_epsilon, epsilons)], lines)


def cluster_bound_table() -> str:
    """Return measured excess error and the bounds, a line per task and release."""
    end = ", Theorem 2 (excess test error, points)"
    epsilons = (0.5, 1.0, 2.0)
    lines = []
    for name in dict.fromkeys(row.table for row in rows_of("cluster-bounds") if row.table.endswith(end)):
        mine = [row for row in rows_of("cluster-bounds") if row.table == name]
        for setting in dict.fromkeys(row.setting for row in mine):
            found = [next((row for row in mine if row.setting == setting and is_at(row, at)), None) for at in epsilons]
            cells = [NOT_YET if row is None else f"{row.mean:.1f} (≤ {row.paper:.0f})" for row in found]
            lines.append([f"{name.removesuffix(end)}: {setting}", *cells])
    head = ["excess error, points (bound, constant 1)", *map(name_epsilon, epsilons)]
    return table(head, lines or [["every task", *[NOT_YET] * len(epsilons)]])


def plain_table(study: str, tables: Sequence[str], head: Sequence[str], *, digits: int = 2) -> str:
    """Return rows of tables as they are: setting, epsilon, the paper's or the bound, exact, ours."""
    lines = []
    for row in (row for name in tables for row in rows_of(study) if row.table == name):
        paper = "" if row.paper is None else f"{row.paper:.{digits}f}"
        exact = "" if row.expected is None else f"{row.expected:.{digits}f}"
        lines.append([row.setting, f"{row.epsilon:.3g}", paper, exact, cell(row, digits=digits)])
    kept = [i for i in range(5) if i < 2 or any(line[i] for line in lines)]
    return table([head[i] for i in kept], [[line[i] for i in kept] for line in lines] or [[NOT_YET] * len(kept)])


def peer_tables() -> dict[str, str]:
    """Return the tables of the peers' study, by their first word."""
    names = dict.fromkeys(row.table for row in rows_of("peers"))
    heads = {
        "Theorem 3 and Lemma 9": ("cluster", "ε", "Lemma 9", "exact", "ours, computed"),
        "Theorem 4": ("setting", "ε", "Theorem 4", "exact", "drawn"),
    }
    usual = ("setting", "ε", "bound", "exact", "drawn")
    firsts = {name.split(":")[0]: name for name in names}
    return {first: plain_table("peers", [name], heads.get(first, usual)) for first, name in firsts.items()}


def selection_table() -> str:
    """Return Table 1 of the paper on top k: theirs on Foursquare, ours on five sets, add_remove."""
    epsilons, ks = (0.4, 0.8, 1.0), (3, 10, 50)
    head = ["recall, %", *(f"ε = {epsilon:g}, k = {k}" for epsilon in epsilons for k in ks)]
    names = [row.table for row in rows_of("top-k") if row.table.endswith("Table 1, add_remove")]
    lines = []
    for name in dict.fromkeys(names):
        for method in ("StableTopK", "Limited Domain", "Top Stable", "EM-CDP"):
            cells = []
            for epsilon in epsilons:
                for k in ks:
                    mine = [
                        row for row in rows_of("top-k") if row.table == name and row.setting == f"k = {k}: {method}"
                    ]
                    near = min(mine, key=lambda row: abs(row.epsilon - epsilon))
                    theirs = f" ({near.paper:.0f})" if near.paper is not None else ""
                    cells.append(f"{near.mean:.0f}{theirs}")
            lines.append([f"{name.split(',', maxsplit=1)[0]}: {method}", *cells])
    return table(head, lines)


def bins_table() -> str:
    """Return Figure 1(b): recall against k, both relations."""
    ks = (10, 30, 100, 300, 1_000, 1_500)
    lines = []
    for relation in ("add_remove", "replace"):
        for method in ("StableTopK", "Top Stable", "EM-CDP"):
            mine = {row.setting: row for row in rows_of("top-k") if row.table == f"bins, Figure 1(b), {relation}"}
            cells = [cell(mine.get(f"k = {k}: {method}"), digits=0) for k in ks]
            lines.append([f"{method}, `{relation}`", *cells])
    return table(["recall, %, ε = 0.15", *(f"k = {k:,}" for k in ks)], lines)


def days_table() -> str:
    """Return Figure 1(a): recall by ten days, all cases so far."""
    name = "states, Figure 1(a), all cases so far, add_remove"
    days = ("days 1-10", "days 11-20", "days 21-30", "days 31-40")
    mine = {row.setting: row for row in rows_of("top-k") if row.table == name}
    methods = ("StableTopK", "Limited Domain", "Top Stable, filled up", "EM-CDP")
    lines = [[method, *(cell(mine.get(f"{day}: {method}"), digits=0) for day in days)] for method in methods]
    return table(["recall, %, ε = 0.1 for ten days", *days], lines)


def celeba_sentence() -> str:
    """Say what the settings of the paper's Table 2 really cost, computed here."""
    costs = []
    for relation in ("add_remove", "replace"):
        plan = StablePlan(neighbours=relation, scale=50.0, sigma=60.0, test_delta=1e-9, noise="gaussian", choices=39)
        costs.append(f"{plan.guarantee.times(600).epsilon(1e-6):.1f} (`{relation}`)")
    return (
        f"The paper prints ε = {TABLE_2_EPSILON} for 600 answers about CelebA. The same noise (sigma 50 and 60, δ_t = 1e-9), accounted "
        f"here, costs {' and '.join(costs)} at δ = 1e-6. We do not have CelebA; the {name_study('multilabel-pate')} asks the same question "
        "of four multi-label sets."
    )


def risk_table() -> str:
    """Return measured excess risk and bounds of supplement F at n = 100,000, and against the dimension."""
    lines = []
    for row in rows_of("excess-risk"):
        method, _, at = row.setting.rpartition(", ")
        if method in {"LP-RR-SGD", "LP-RR-SGD, top 2", "LP-Normal-SGD", "DP-SGD (record)"} and at in {
            "p = 10", "p = 100,000", "n = 1,000", "n = 100,000", "K = 16",
        }:  # fmt: skip
            paper = "" if row.paper is None else f"{row.paper:,.0f}"
            lines.append([method, at, row.promise, paper, cell(row, digits=1)])
    head = ["learner", "at", "promise", "bound", "measured"]
    return table(head, lines)


# -------------------------------------------------------------------------------------------------------- the page


def deep_learning() -> str:
    """Return the section of the first paper."""
    return f"""## Deep learning with label differential privacy {{ #deep-learning }}

Ghazi, Golowich, Kumar, Manurangsi, Zhang, NeurIPS 2021, and its supplement. Unit: one label replaced. LP-1ST and LP-2ST trust no
one and are pure; lines of other promises are named as such and are not compared with them.

{
        index(
            [
                ("Algorithm 1, RRTop-k; Lemma 1", TOP, tests("mechanisms/test_optimality", "channel/test_privacy")),
                (
                    "Algorithm 2, RRWithPrior; Corollary 2",
                    PRIOR,
                    f"{see('prior-response')}; {tests('mechanisms/test_edge_cases')}",
                ),
                (
                    "Theorem 3, it is optimal",
                    f"{PRIOR}, oracle: its linear program",
                    tests("mechanisms/test_optimality"),
                ),
                (
                    "Algorithm 3, LP-MST; Observation 4",
                    f"{CLASSIFIER} with `stages=`",
                    f"{see('table-1')}; {tests('learn/test_stages')}",
                ),
                ("Table 1, CIFAR-10", CLASSIFIER, see("table-1")),
                (
                    "Table 2, CIFAR-100",
                    f"{LOAD}`('cifar100')`, {name_study('images-cifar100')}",
                    "not measured: we do not have the set",
                ),
                ("Table 3, MovieLens-1M", RATINGS, see("table-3")),
                (
                    "Figure 1(a), more than two stages",
                    f"{CLASSIFIER} with `stages=3`",
                    "not measured yet for LP-MST; the staged statistics of Table 4 have three",
                ),
                (
                    "Figure 1(b), priors of self-supervision",
                    f"{CLUSTERS} on {PATCHES}",
                    f"not measured yet against ε; the encoder's line of Table 1 and the cluster priors of {name_study('first-model')} are parts of it",
                ),
                ("Theorem 5 = 9; Algorithm 5, LP-RR-SGD", WALK, see("excess-risk")),
                ("Corollary 6 = 10, with a prior", f"{WALK} with `prior=`", see("excess-risk")),
                (
                    "Algorithm 4, priors from clusters",
                    CLUSTERS,
                    f"{tests('priors/test_cluster')}; its `dlaplace.rvs(eps / 2, K)` draws one number for all bins: [errata](proofs.md)",
                ),
                ("Figure 2, histograms of self-supervised features", CLUSTERS, "not measured yet"),
                ("Table 4, MNIST and Fashion-MNIST", CLASSIFIER, see("table-4")),
                (
                    "Table 5, KMNIST",
                    f"{LOAD}`('kmnist')`, {name_study('images-kmnist')}",
                    "not measured: we do not have the set",
                ),
                ("Figure 3, learning curves of the stages", NETWORK, "not measured yet"),
                ("Figure 4, split, temperature, mixup", CLASSIFIER, see("figure-4")),
                ("Figure 5, stage 1 and the final accuracy", CLASSIFIER, "not measured yet"),
                ("Section B, architectures and schedules", PRESET, tests("nn/test_presets")),
                ("Algorithm 6, LP-Normal-SGD; Proposition 11", NORMAL, see("excess-risk")),
                (
                    "Propositions 12, 13; Lemmas 15, 16: lower bounds",
                    "`studies/excess_risk.py`: the rate of 12",
                    see("excess-risk"),
                ),
                (
                    "Equation 17, Lemmas 18, 19: the debiased loss",
                    f"{CHANNEL}`.unbiased`",
                    tests("channel/test_algebra"),
                ),
                (
                    "Theorem 17, generalization (Lemmas 20 to 22)",
                    "`studies/excess_risk.py`: `theorem_17`, corrected",
                    tests("studies/test_excess_risk"),
                ),
            ]
        )
    }

### Table 1, CIFAR-10 {{ #table-1 }}

{cifar_table()}

{command("images-cifar10", "networks", "encoder")}

### Table 3, MovieLens-1M {{ #table-3 }}

{ratings_table()}

{command("ratings")}

### Table 4, MNIST and Fashion-MNIST {{ #table-4 }}

**MNIST**

{small_images_table("mnist")}

**Fashion-MNIST**

{small_images_table("fashion-mnist")}

{command("images-mnist", "images-fashion-mnist", "recipes")}

### Figure 4, settings of two stages {{ #figure-4 }}

On Fashion-MNIST, one quantity at a time; the paper's figure has two at a time, on CIFAR-10.

{settings_table()}

{command("stage-settings")}

### How often a released label is right {{ #prior-response }}

{told("prior-response", 2)}

{command("prior-response")}

### Supplement F: excess risk {{ #excess-risk }}

Thousandths of a nat; the bound has the constants of the supplement's proofs. DP-SGD hides a record, the others a label.

{risk_table()}

{command("excess-risk")}
"""


def told(study: str, count: int) -> str:
    """Return the first findings of a study, as it says them."""
    path = RESULTS / study / "result.json"
    if not path.exists():
        return f"{NOT_YET.capitalize()}."
    return "\n\n".join(read_result(path).findings[:count])


def clustering() -> str:
    """Return the section of the second paper."""
    peers = peer_tables()
    return f"""## Label differential privacy via clustering {{ #clustering }}

Esfandiari, Mirrokni, Syed, Vassilvitskii, 2022. Unit: one label replaced. {
        CLUSTER
    } trusts a curator for its histogram, UniformRR no
one, {PEERS} the other peers.

{
        index(
            [
                ("Table 1, rates", "the functions of the lines below", "a summary of Theorems 2 and 4"),
                (
                    "Definition 1, heterogeneity",
                    "`labeldp.priors.heterogeneity`, from noisy shares",
                    tests("priors/test_clustering"),
                ),
                ("Algorithm 1, centralized; Theorem 6", CLUSTER, tests("mechanisms/test_cluster")),
                (
                    "Theorem 1, its privacy",
                    f"{CLUSTER}`.guarantee`",
                    f"{tests('mechanisms/test_cluster')}; printed too small by half of its first term: [errata](proofs.md)",
                ),
                (
                    "Theorem 2, its utility (Lemmas 1 to 7)",
                    f"{link('bound_cluster_risk', 'labeldp.mechanisms.cluster.bound_cluster_risk')}, {link('bound_cluster_bias', 'labeldp.mechanisms.cluster.bound_cluster_bias')}",
                    see("cluster-bounds"),
                ),
                ("Corollary 1, uniform response", f"{CLUSTER} with `split=0`; {RESPONSE}", see("cluster-bounds")),
                (
                    "Corollary 2, clusters",
                    link("prescribe_cluster", "labeldp.mechanisms.cluster.prescribe_cluster"),
                    see("cluster-bounds"),
                ),
                (
                    "Algorithm 2, peer to peer",
                    f"{PEERS}, `labeldp.peers.run_peers`",
                    f"{see('peers')}; {tests('peers/test_law', 'peers/test_dropout')}",
                ),
                (
                    "Theorem 3, its privacy (Lemmas 8, 9)",
                    f"{link('peers_epsilon', 'labeldp.accounting.peers_epsilon')}: exact",
                    see("peers"),
                ),
                (
                    "Theorem 4, its utility",
                    link("bound_peer_risk", "labeldp.mechanisms.peers.bound_peer_risk"),
                    see("peers"),
                ),
                (
                    "Definition 2, Theorem 5: no private learner of label sets",
                    "none: a statement about every mechanism",
                    "a proof, nothing to run",
                ),
                (
                    "Figure 1, three sets; number of clusters",
                    f"{CLUSTER}, {RESPONSE}, {link('DPSGDClassifier', 'labeldp.nn.DPSGDClassifier')}",
                    see("figure-1-clusters"),
                ),
                (
                    "Figure 2, a binary task beside LP-2ST",
                    f"{CLUSTER}, {CLASSIFIER}",
                    f"{name_study('cluster-response')}, tables `binary mnist`",
                ),
            ]
        )
    }

### Figure 1, three sets {{ #figure-1-clusters }}

The paper's figure is curves without numbers. A linear model on 50 principal components; DP-SGD hides a record, at δ = 1 / n, and
its rows are scaled to norm 1.

{cluster_table("mnist")}

{cluster_table("fashion-mnist")}

{cluster_table("cifar10")}

{command("cluster-response", "cluster-bounds")}

### Theorem 2, Corollaries 1 and 2 {{ #cluster-bounds }}

Test accuracy without privacy less test accuracy, and in brackets what the theorem allows with a constant of 1 (the paper states
none). Corollary 2 sets τ = φ, which is above 1 / K on every set of ten classes: its floor is then 1 / K, and its clusters say nothing.

{cluster_bound_table()}

{command("cluster-bounds")}

### Peers {{ #peers }}

Binary labels in clusters of 200 of which a fifth are positive; error of the estimated share in points, drawn and exact. Theorem 4 is
taken with a constant of 1. Above 4,000 peers ours is a bound too.

**Participation**, alpha made for ε = 1 at δ = 1e-5

{peers.get("participation", NOT_YET)}

**Flips**, all take part

{peers.get("flips", NOT_YET)}

**Drop-out**, alpha = 0.1

{peers.get("drop-out", NOT_YET)}

**Theorem 4**: excess risk in points

{peers.get("Theorem 4", NOT_YET)}

**Theorem 3**: the learner's ε at δ = 1e-5, alpha = 0.1

{peers.get("Theorem 3 and Lemma 9", NOT_YET)}

{command("peers")}
"""


def selection() -> str:
    """Return the section of the third paper."""
    noises = [row.table for row in rows_of("noisy-max")]
    gaps = [name for name in dict.fromkeys(noises) if name.startswith("Theorem 20")]
    others = [name for name in dict.fromkeys(noises) if not name.startswith("Theorem 20")]
    return f"""## Adaptive private k-selection {{ #selection }}

Zhu, Wang, AISTATS 2022. Unit: one user added or removed (`add_remove`, the paper's) or replaced (`replace`); a curator is trusted.

{
        index(
            [
                ("Definitions 1, 2, 5, 15; Lemmas 3, 4, 16, 17", GUARANTEE, tests("selection/test_calibration")),
                (
                    "Algorithm 1, large gap; Proposition 7",
                    GAP,
                    tests("selection/test_exhaustive", "selection/test_draws"),
                ),
                ("Section 3.1, exponential and Laplace noise", f"{MAXIMUM} with `noise=`", see("noises")),
                (
                    "Theorem 8 = 21, Corollary 9 = 22: Gaussian noise",
                    f"{GAP}, {MAXIMUM} with `noise='gaussian'`",
                    f"{tests('selection/test_maximum')}; a second bound is often far smaller",
                ),
                ("Lemma 10, local sensitivity", "`labeldp.selection.base`", tests("selection/test_exhaustive")),
                (
                    "Algorithm 2, StableTopK; Theorem 11",
                    STABLE,
                    f"{tests('selection/test_exhaustive')}; its conversion to (ε, δ) is not valid: [errata](proofs.md)",
                ),
                ("Algorithm 3, fixed k; Theorem 12", f"{STABLE} with `k=`", see("table-1-top-k")),
                ("Example 13, PATE", PATE, tests("learn/pate/test_learners")),
                ("Example 14, multi-label PATE", MULTILABEL, name_study("multilabel-pate")),
                ("Table 1, fixed k", STABLE, see("table-1-top-k")),
                ("Figure 1(a), states by day", STABLE, see("figure-1-top-k")),
                ("Figure 1(b), bins of 700", STABLE, see("figure-1-top-k")),
                ("Table 2, CelebA", MULTILABEL, "[what it costs](#table-2-top-k); we do not have the set"),
                ("Algorithms 4, 5; Lemma 18 = 23, Corollary 19", TEST, tests("selection/test_exhaustive")),
                ("Theorem 20, the gap that passes", RELEASABLE, see("noises")),
            ]
        )
    }

### Table 1, fixed k {{ #table-1-top-k }}

`add_remove`, δ = 1 / users, 100 draws. In brackets the paper's value on Foursquare, which we do not have; ours beside it is on the
films of MovieLens. The study has the same for `replace`.

{selection_table()}

{next((text for text in findings("top-k") if text.startswith("When StableTopK")), NOT_YET)}

{command("top-k")}

### Figure 1 {{ #figure-1-top-k }}

{days_table()}

{bins_table()}

{command("top-k")}

### Table 2, CelebA {{ #table-2-top-k }}

{celeba_sentence()} Command: `python scripts/papers.py`, which computes it.

### Noises, and Theorem 20 {{ #noises }}

{plain_table("noisy-max", others, ("the most rated film found, %", "ε", "paper", "exact", "ours"), digits=0)}

{
        plain_table(
            "noisy-max",
            gaps[:1],
            ("gap let out 9 times in 10, users, `add_remove`", "ε", "paper's formula", "exact", "ours"),
            digits=0,
        )
    }

{command("noisy-max")}
"""


def findings(study: str) -> tuple[str, ...]:
    """Return the findings of a committed result."""
    path = RESULTS / study / "result.json"
    return read_result(path).findings if path.exists() else ()


def dimension_free() -> str:
    """Return the section of the fourth paper."""
    names = list(dict.fromkeys(row.table for row in rows_of("dimension-free")))
    head = ("setting", "ε", "bound", "exact", "measured")
    parts = "\n\n".join(f"**{name}**\n\n{plain_table('dimension-free', [name], head, digits=1)}" for name in names)
    return f"""## Dimension independent risk bounds {{ #dimension }}

Jain, Thakurta, ICML 2014: the supplement, with the theorems that it proves. Unit: one label replaced; a curator is trusted; δ = 1e-5.

{
        index(
            [
                (
                    "Theorem 1, output perturbation (Lemma 1)",
                    f"{OUTPUT}, {link('bound_output_risk', 'labeldp.learn.convex.bounds.bound_output_risk')}",
                    f"{see('prescribed')}; its noise is too small: [errata](proofs.md)",
                ),
                ("its λ", link("prescribe_output", "labeldp.learn.convex.bounds.prescribe_output"), see("prescribed")),
                ("Theorem 2", "not in the supplement", "we do not have the paper itself"),
                (
                    "Theorem 3, samples on the simplex are private",
                    SIMPLEX,
                    f"{tests('learn/convex/test_simplex')}; its distance is violated by examples: [errata](proofs.md)",
                ),
                (
                    "Theorem 4, their risk (Lemma 2)",
                    link("bound_simplex_risk", "labeldp.learn.convex.bounds.bound_simplex_risk"),
                    see("prescribed"),
                ),
                (
                    "its m and λ",
                    link("prescribe_simplex", "labeldp.learn.convex.bounds.prescribe_simplex"),
                    see("prescribed"),
                ),
                (
                    "Theorem 5, uniform convergence (of Shalev-Shwartz et al.)",
                    "stability instead: `labeldp.learn.convex.bounds`",
                    tests("learn/convex/test_bounds"),
                ),
            ]
        )
    }

### With the papers' own parameters {{ #prescribed }}

Excess risk in thousandths of a nat.

{parts or NOT_YET}

{command("dimension-free")}
"""


def make_page() -> str:
    """Return the whole page."""
    known = [
        study for study in ("networks", "encoder", "cluster-bounds", "peers", "dimension-free") if not rows_of(study)
    ]
    waiting = f" Results that are not committed yet: {', '.join(f'`{name}`' for name in known)}." if known else ""
    return f"""# The papers, line by line

Every numbered table, figure, theorem and algorithm of the five papers that this library began with (two of the five are one paper
and its supplement): where it is here, and our number beside theirs. Ours are means over seeds ± one standard deviation, read
from the committed results by `python scripts/papers.py`, which writes this page; each table names the command that measured it. "{NOT_YET}"
is a cell that could be measured and was not. Lines are compared within one promise: the same unit, trust and δ. Where a paper is
wrong or loose, [Proofs, and the papers' errors](proofs.md) has the derivation.{waiting}

{deep_learning()}
{clustering()}
{selection()}
{dimension_free()}"""


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    made = make_page()
    if parser.parse_args().check:
        if made != PAGE.read_text(encoding="utf-8"):
            print("docs/papers.md is not up to date. Run: python scripts/papers.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(made, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
