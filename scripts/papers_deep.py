"""The first paper of docs/papers.md: Deep learning with label differential privacy (Ghazi et al. 2021), and its supplement.

The paper's tables are constants of the studies that repeat them; its figures print no numbers, so that ours stand alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from statistics import fmean

from papers_parts import (
    CHANNEL,
    CLASSIFIER,
    CLUSTERS,
    INF,
    LOAD,
    NETWORK,
    NORMAL,
    NOT_YET,
    PATCHES,
    PRESET,
    PRIOR,
    RATINGS,
    SAME,
    TOP,
    WALK,
    best,
    cell,
    command,
    find,
    index,
    is_at,
    name_epsilon,
    pick_best,
    picture,
    promises,
    rows_of,
    run_study,
    say_seeds,
    see,
    table,
    tests,
    told,
)

from studies import StudyRow, encoder, excess_risk, networks, paper_figures, paper_stages, ratings
from studies.paper_figures import TABLE_1, TABLE_4

#: Table 3: MovieLens-1M, test RMSE.
TABLE_3 = {one.setting.removeprefix("NCF, "): one.paper for one in (*ratings.TREATMENTS, *ratings.OPENLY) if one.paper}

# ---------------------------------------------------------------------------------------------------------- the tables


def image_rows(data: str) -> list[StudyRow]:
    """Return our rows on the features of a set: of its own study, and of the one that fills the paper's tables."""
    number = 1 if data == "cifar10" else 4
    mine = [row for row in rows_of(f"images-{data}") if row.table == data]
    return mine + [row for row in rows_of("paper-stages") if row.table == f"Table {number}, {data}"]


#: A line of a table beside the paper's: its name, the row at an epsilon, and the epsilons at which there is one to measure.
Line = tuple[str, Callable[[float], StudyRow | None], Sequence[float]]


def accuracy_table(
    data: str, paper: dict[str, dict[float, float]], epsilons: Sequence[float], extra: Sequence[Line]
) -> str:
    """Return the paper's lines and ours of one set, each of ours within one promise."""
    rows, lines = image_rows(data), []
    finite = [at for at in epsilons if math.isfinite(at)]
    for name, cells in paper.items():
        printed = [f"{cells[epsilon]:.2f}" if epsilon in cells else "" for epsilon in epsilons]
        lines.append([f"paper: {name}, GPU", *printed])
        if name in {"LP-1ST", "LP-2ST"}:
            ours = [cell(find(rows, name, at)) for at in finite]
            last = cell(find(rows, "no privacy", INF)) if name == "LP-1ST" else ""
            lines.append([f"ours: {name}, features without labels, CPU", *ours, last])
    for promise in promises(rows):
        # Without "auto" a best of this promise is not known yet: LP-MST alone is not it.
        known = [at for at in finite if promise != SAME or find(rows, paper_stages.NO_ONE, at) is not None]
        found = [pick_best(rows, at, promise) if at in known else None for at in finite]
        if not any(found):  # a curator whom no plan needs at these budgets
            continue
        # Of other promises the study has what pays there: from epsilon 2 on nothing is gained by counting labels.
        shown = [cell(row, name=True) if row is not None or promise == SAME else "" for row in found]
        lines.append([f"ours: best that {promise}", *shown, ""])
    for name, pick, there in extra:
        lines.append([name, *(cell(row) if (row := pick(at)) is not None or at in there else "" for at in epsilons)])
    return table(["test accuracy, %", *map(name_epsilon, epsilons)], lines)


def network_line(data: str, *, pretrained: bool = False) -> Line:
    """Return the line of networks that were trained end to end on the images of a set."""

    def pick(epsilon: float) -> StudyRow | None:
        mine = [row for row in rows_of("networks") if row.table == data and is_at(row, epsilon)]
        chosen = [row for row in mine if row.setting.endswith("pretrained") == pretrained]
        return max(chosen, key=lambda row: row.mean) if chosen else None

    how = "pre-trained without labels" if pretrained else "end to end"
    there = networks.PRETRAINED[data] if pretrained else tuple(networks.MINUTES[data])
    return f"ours: network {how}, one core; {SAME}", pick, there


def cifar_table() -> str:
    """Return Table 1, with networks and a public encoder where they are measured."""

    def encoded(epsilon: float) -> StudyRow | None:
        return pick_best(rows_of("encoder"), epsilon, SAME if math.isfinite(epsilon) else "trusts everyone, pure")

    extra: Sequence[Line] = (
        network_line("cifar10"),
        network_line("cifar10", pretrained=True),
        (f"ours: best on a public encoder; {SAME}", encoded, {*encoder.EPSILONS, *encoder.MIRROR_EPSILONS, INF}),
    )
    return accuracy_table("cifar10", TABLE_1, (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, INF), extra)


def small_images_table(data: str) -> str:
    """Return Table 4 of one set, with the epsilons that only the study of recipes has, and networks where they are measured."""
    mine = [row for row in rows_of("recipes") if row.table.startswith(f"{data}, 60000")]

    def recipe(epsilon: float) -> StudyRow | None:
        return find(mine, "auto, no one", epsilon)

    extra: list[Line] = [(f"ours: auto, no one, of the study of recipes; {SAME}", recipe, (1.0, 2.0, 4.0))]
    if data in networks.MINUTES:
        extra.append(network_line(data))
    return accuracy_table(data, TABLE_4[data], (1.0, 2.0, 3.0, 4.0, INF), extra)


def ratings_table() -> str:
    """Return Table 3 in stars."""
    epsilons = (1.0, 2.0, 3.0, 4.0, 8.0)
    rows, lines = rows_of("ratings"), []
    openly = {one.setting: one.paper.get(INF) for one in ratings.OPENLY}
    for name in ("LP-1ST", "LP-2ST"):
        first = name == "LP-1ST"
        last = f"{openly[ratings.OPEN_NETWORK]:.3f}" if first else ""
        lines.append([f"paper: {name}", *(f"{TABLE_3[name][at]:.3f}" for at in epsilons), last])
        ours = [find(rows, f"NCF, {name}", at) for at in epsilons]
        shown = [cell(row, digits=3, scale=1000) for row in ours]
        last = cell(find(rows, ratings.OPEN_NETWORK, INF), digits=3, scale=1000) if first else ""
        lines.append([f"ours: {name}, the paper's network", *shown, last])
    for promise in (SAME, "trusts a curator, pure"):
        found = [best("ratings", f"epsilon {at:g}", at, promise, least=True) for at in epsilons]
        shown = [
            cell(row, digits=3, scale=1000, name=True) if row is not None or promise == SAME else "" for row in found
        ]
        last = cell(find(rows, ratings.NO_PRIVACY, INF), digits=3, scale=1000, name=True) if promise == SAME else ""
        lines.append([f"ours: best that {promise}", *shown, last])
    return table(["test RMSE, stars", *map(name_epsilon, (*epsilons, INF))], lines)


# --------------------------------------------------------------------------------------------------------- the figures


def figure(name: str) -> list[StudyRow]:
    """Return the rows of a figure."""
    return [row for row in rows_of("paper-stages") if row.table == name]


def count_seeds(*names: str) -> str:
    """Say how many seeds the rows of figures have."""
    said = say_seeds(row for name in names for row in figure(name))
    return f"{said.capitalize()} of each cell" if said else "Not measured yet"


def stages_table() -> str:
    """Return Figure 1(a): accuracy by stages."""
    rows, counts = figure(paper_figures.FIGURE_1A), range(1, paper_stages.MOST_STAGES + 1)
    lines = [
        [name_epsilon(at), *(cell(find(rows, f"{count} stages", at)) for count in counts)]
        for at in paper_stages.STAGE_EPSILONS
    ]
    return table(["test accuracy, %", *(f"LP-{count}ST" for count in counts)], lines)


def priors_table() -> str:
    """Return Figure 1(b): accuracy by epsilon, with and without counts."""
    rows, epsilons = figure(paper_figures.FIGURE_1B), paper_stages.PRIOR_EPSILONS
    settings = [paper_figures.name_prior(count) for count in (0, paper_figures.PRIOR_CLUSTERS)]
    lines = []
    for setting in settings:
        found = [find(rows, setting, at) for at in epsilons]
        trust = next((f"; {row.promise}" for row in found if row is not None), "")
        lines.append([setting + trust, *map(cell, found)])
    return table(["test accuracy, %", *map(name_epsilon, epsilons)], lines)


def votes_table() -> str:
    """Return Figure 2: accuracy of votes by clusters and by the cost of the counts."""
    rows, costs = figure(paper_figures.FIGURE_2), paper_stages.COUNT_EPSILONS
    lines = [
        [f"{count} clusters", *(cell(find(rows, f"{count} clusters", at), digits=1) for at in costs)]
        for count in paper_stages.CLUSTERS
    ]
    return table(["test accuracy, %; trusts a curator, pure", *map(name_epsilon, costs)], lines)


def passes_table() -> str:
    """Return Figure 3: accuracy by passes."""
    curves = paper_figures.read_curves(rows_of("paper-stages"))
    names = ("LP-1ST", "stage 1", "stage 1, top 2", "LP-2ST")
    lines = []
    for name in names:
        points = dict(curves.get(name, ()))
        shown = [f"{points[at]:.1f}" if at in points else NOT_YET for at in paper_stages.CURVE]
        lines.append([f"{name} of LP-2ST" if name.startswith("stage") else name, *shown])
    return table(["test accuracy, %, ε = 2", *(f"{at} pass{'es' * (at > 1)}" for at in paper_stages.CURVE)], lines)


def sweep_table(name: str) -> str:
    """Return a half of Figure 4, one quantity down and the other across."""
    rows = {row.setting: row for row in figure(name)}
    cells: dict[str, dict[str, str]] = {}
    for sweep in paper_stages.list_sweeps():
        if sweep.table == name:
            down, _, across = sweep.setting.partition(", ")
            cells.setdefault(down, {})[across] = cell(rows.get(sweep.setting))
    head = next(iter(cells.values()))
    return table(["test accuracy, %, ε = 2", *head], [[down, *line.values()] for down, line in cells.items()])


def first_table() -> str:
    """Return Figure 5: the final accuracy by range of what stage 1 knows."""
    lines = [
        [f"{name} %", str(len(values)), f"{min(values):.2f}", f"{fmean(values):.2f}", f"{max(values):.2f}"]
        for name, values in paper_figures.group_first(rows_of("paper-stages"))
    ]
    head = ["top-k accuracy of stage 1", "cells", "lowest final accuracy, %", "mean", "highest"]
    return table(head, lines or [[NOT_YET] * len(head)])


def settings_table() -> str:
    """Return three one-dimensional sweeps on Fashion-MNIST."""
    names = ("share of stage 1", "temperature", "mixup")
    lines = []
    for name in names:
        mine = [row for row in rows_of("stage-settings") if row.table == name]
        said = ", ".join(f"{row.setting.removeprefix(name).strip()}: {row.mean:.2f}" for row in mine)
        lines.append([name, said or NOT_YET])
    return table(["varied", "test accuracy, %"], lines, numbers=False)


def risk_table() -> str:
    """Return measured excess risk beside the bounds of supplement F, at the ends of its sweeps."""
    lines = []
    for row in rows_of("excess-risk"):
        method, _, at = row.setting.rpartition(", ")
        if method in {"LP-RR-SGD", "LP-RR-SGD, top 2", "LP-Normal-SGD", "DP-SGD (record)"} and at in {
            "p = 10", "p = 100,000", "n = 1,000", "n = 100,000", "K = 16",
        }:  # fmt: skip
            paper = "" if row.paper is None else f"{row.paper:,.0f}"
            symbol, _, value = at.partition(" = ")
            point = dataclasses.replace(excess_risk.BASE, **{symbol: int(value.replace(",", ""))})
            lowest = excess_risk.proposition_12_rate(
                point.n, epsilon=point.epsilon, n_classes=point.K, diameter=excess_risk.DIAMETER
            )
            lower = f"{1000 * lowest:,.0f}" if method.startswith("LP") else ""
            lines.append([method, at, row.promise, paper, lower, cell(row, digits=1)])
    head = ["learner", "at", "promise", "bound", "rate of Proposition 12", "measured"]
    return table(head, lines)


# ------------------------------------------------------------------------------------------------------- the section


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
                    f"{LOAD}`('cifar100')`",
                    f"not measured, since we do not have the set; with it: {run_study('images-cifar100', kept=False)}",
                ),
                ("Table 3, MovieLens-1M", RATINGS, see("table-3")),
                (
                    "Figure 1(a), more than two stages",
                    f"{CLASSIFIER} with `stages=`",
                    see("figure-1a"),
                ),
                (
                    "Figure 1(b), priors of self-supervision",
                    f"{CLUSTERS} on {PATCHES}",
                    see("figure-1b"),
                ),
                ("Theorem 5 = 9; Algorithm 5, LP-RR-SGD", WALK, see("excess-risk")),
                ("Corollary 6 = 10, with a prior", f"{WALK} with `prior=`", see("excess-risk")),
                (
                    "Algorithm 4, priors from clusters",
                    CLUSTERS,
                    f"{tests('priors/test_cluster')}; its `dlaplace.rvs(eps / 2, K)` draws one number for all bins: [errata](proofs.md)",
                ),
                ("Figure 2, histograms of self-supervised features", CLUSTERS, see("figure-2")),
                ("Table 4, MNIST and Fashion-MNIST", CLASSIFIER, see("table-4")),
                (
                    "Table 5, KMNIST",
                    f"{LOAD}`('kmnist')`",
                    f"not measured, since we do not have the set; with it: {run_study('images-kmnist', kept=False)}",
                ),
                ("Figure 3, learning curves of the stages", NETWORK, see("figure-3")),
                ("Figure 4, split, temperature, mixup", CLASSIFIER, see("figure-4")),
                ("Figure 5, stage 1 and the final accuracy", CLASSIFIER, see("figure-5")),
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

An empty cell is one that no study has: noisy statistics are measured up to ε = 1, networks up to ε = 4, pre-trained ones up to ε = 1.
{command("images-cifar10", "paper-stages", "networks", "encoder")}

### Table 3, MovieLens-1M {{ #table-3 }}

{ratings_table()}

{command("ratings")}

### Table 4, MNIST and Fashion-MNIST {{ #table-4 }}

**MNIST**

{small_images_table("mnist")}

**Fashion-MNIST**

{small_images_table("fashion-mnist")}

{command("images-mnist", "images-fashion-mnist", "paper-stages", "recipes", "networks")}

### Figure 1(a), more stages {{ #figure-1a }}

CIFAR-10 on features without labels; the first stage has 0.6 of the examples, the others equal parts of the rest. {
        count_seeds(paper_figures.FIGURE_1A)
    }.
The paper's figure has curves without numbers; its text says 1 to 2 points from two stages to three, and little beyond four.

{picture("paper-stages", "CIFAR-10: test accuracy of LP-MST against the number of stages, a line for each epsilon.")}{
        stages_table()
    }

{command("paper-stages")}

### Figure 1(b), priors from clusters {{ #figure-1b }}

RRWithPrior in one stage. The paper's priors come from BYOL and DINO; ours from {
        PATCHES
    }, which sees no label either, with the paper's
{paper_figures.PRIOR_CLUSTERS} clusters at {paper_figures.PRIOR_COST:g}. {
        count_seeds(paper_figures.FIGURE_1B)
    }. The two lines are different promises: a curator counts the labels of clusters.

{priors_table()}

{command("paper-stages")}

### Figure 2, votes of clusters {{ #figure-2 }}

A test image gets the label that is counted most often, with noise, in its cluster of training and test images. {
        count_seeds(paper_figures.FIGURE_2)
    }.

{votes_table()}

{command("paper-stages")}

### Figure 3, learning curves {{ #figure-3 }}

{
        count_seeds(paper_figures.FIGURE_3)
    }. A network that trains tells its loss, not its accuracy, to whoever listens: each cell is a fit of its own that ends
there, after a stage 1 of five passes where it is of LP-2ST. The paper's text: top 2 of stage 1 reaches 90 %.

{passes_table()}

{command("paper-stages")}

### Figure 4, settings of two stages {{ #figure-4 }}

On CIFAR-10, two quantities at a time, as in the paper. {count_seeds(paper_figures.FIGURE_4A, paper_figures.FIGURE_4B)}.

{
        picture(
            "paper-stage-settings",
            "Two maps of test accuracy: share of stage 1 with temperature, and mixup of stage 1 with mixup of stage 2.",
        )
    }{sweep_table(paper_figures.FIGURE_4A)}

{sweep_table(paper_figures.FIGURE_4B)}

{command("paper-stages")}

On Fashion-MNIST, at ε = 1, one quantity at a time, {say_seeds(rows_of("stage-settings"))}:

{settings_table()}

{command("stage-settings")}

### Figure 5, stage 1 and the end {{ #figure-5 }}

The cells of Figure 4 by the share of test images whose label is among the k likeliest of stage 1; k is the number that stage 2 chose
from on average, rounded. The paper finds the best final accuracy between a low and a high one.

{first_table()}

{command("paper-stages")}

### How often a released label is right {{ #prior-response }}

{told("prior-response", 2)}

{command("prior-response")}

### Supplement F: excess risk {{ #excess-risk }}

Thousandths of a nat; the bound has the constants of the supplement's proofs. Proposition 12 is a lower bound for the worst problem, whose proof
states no constant: its rate stands here with a constant of 1, and an easier problem may lie below it. DP-SGD hides a record, the others a label.

{risk_table()}

{command("excess-risk")}
"""
