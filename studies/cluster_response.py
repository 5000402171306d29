"""The study `cluster-response`: whether it pays to redraw labels from their cluster, at the epsilon that is really spent.

It repeats Figures 1 and 2 of the paper on clusters: UniformRR, ClusterRR and RRWithPrior with the same histogram on three
sets of pictures, the number of clusters, and a binary task beside LP-2ST. Every method has one linear model, one rule for
its penalty (`cluster_model`) and the true total epsilon; each row of ClusterRR says what the paper's accounting would have
claimed for the same noise.

>>> ClusterResponse.name, MUST_SHOW
('cluster-response', (0.1, 0.2, 0.5, 1.0))

Reference: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022, Label differential privacy via clustering, section 7.

Design notes. Rows are independent, so that two threads share them; arithmetic releases the interpreter's lock. Noise
and clusters of a row depend on its seeds alone: the order in which rows are made changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.report import Plot
from studies import cluster_cases as cases
from studies.cluster_model import model
from studies.cluster_words import CLUSTERS_EPSILON, clusters_table, drawn, findings
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
#: The epsilons that get all seeds; the others get `FEW_SEEDS`.
MUST_SHOW = (0.1, 0.2, 0.5, 1.0)
FEW_SEEDS = 2
SETS = ("mnist", "fashion-mnist", "cifar10")
#: A set that many do not have; the study goes on without it, and says so.
OPTIONAL = "cifar10"
TREATMENTS = (
    cases.UNIFORM_PLAIN,
    cases.UNIFORM,
    cases.UNIFORM_FORWARD,
    cases.CLUSTER,
    cases.CLUSTER_FORWARD,
    cases.CLUSTER_BOTH,
    cases.PRIOR_FORWARD,
    cases.PRIOR_BOTH,
)
CLUSTER_COUNTS = (10, 30, 100, 300, 1000)
#: Figure 2's task is "one digit against the rest"; the paper does not say which. An easy and a hard one.
BINARY_SET, DIGITS = "mnist", (0, 8)
BINARY_TREATMENTS = (cases.UNIFORM_FORWARD, cases.CLUSTER, cases.CLUSTER_BOTH, cases.STAGES, cases.STAGES_FORWARD)
QUICK_ROWS, QUICK_EPSILONS, QUICK_COUNTS = 3_000, (0.5, 1.0), (10, 30)
WORKERS = 2


class ClusterResponse(Study):
    """UniformRR, ClusterRR and RRWithPrior on three sets; the number of clusters; a binary task."""

    name: ClassVar[str] = "cluster-response"
    title: ClassVar[str] = "Labels from their clusters: when does it pay, at the epsilon that is really spent?"
    paper: ClassVar[str] = (
        "Esfandiari, Mirrokni, Syed and Vassilvitskii (2022), Label differential privacy via clustering, Figures 1 and 2 "
        "(curves without numbers, so that there is no column of theirs)"
    )
    measure: ClassVar[str] = "test accuracy as a share of the accuracy without privacy, %"

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Measure every row: about ten minutes on two cores."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        rows: list[StudyRow] = []
        missing: list[str] = []
        for position, name in enumerate(SETS):
            tell(position / len(SETS), f"{name}: reading")
            try:
                dataset = load(name, directory=directory)
            except LabelDPError:
                if name != OPTIONAL:
                    raise
                missing.append(name)
                continue
            given = cases.case(dataset, rows=QUICK_ROWS if quick else None)
            rows += _rows(given, numbers, quick=quick, tell=_part(tell, position))
        tell(1.0, "done")
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        facts = watch.facts(seeds=numbers, quick=quick, command=command)
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(sorted(rows, key=lambda row: row.table.startswith(("binary", "clusters")))),
            findings=findings(rows, missing),
            facts={**facts, **_settings()},
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """Accuracy against epsilon for each task, and against the number of clusters."""
        return drawn(result)


def _part(tell: Progress, position: int) -> Progress:
    return lambda share, text: tell((position + share) / len(SETS), text)


def _settings() -> dict[str, Any]:
    return {
        "features": f"the first {cases.COMPONENTS} principal components of the pixels, for clusters and model",
        "clusters": f"MiniBatchKMeans, {cases.N_CLUSTERS} unless a row says otherwise, found anew for each seed",
        "model": repr(model()),
        "penalty": "l2 = root mean square of an example's gradient at zero weights / sqrt(n), for every row",
        "threads": WORKERS,
    }


def _rows(given: cases.Case, numbers: tuple[int, ...], *, quick: bool, tell: Progress) -> list[StudyRow]:
    """Measure all rows of a set."""
    jobs = list(_jobs(given, numbers, quick=quick))
    rows = [cases.full_row(given)]
    with ThreadPoolExecutor(WORKERS) as pool:
        for done, row in enumerate(pool.map(cases.Job.row, jobs), start=1):
            tell(done / len(jobs), f"{row.table}: {row.setting}")
            rows.append(row)
    return rows


def _jobs(given: cases.Case, numbers: tuple[int, ...], *, quick: bool) -> Iterator[cases.Job]:
    yield from _over_epsilons(given, TREATMENTS, numbers, quick=quick)
    for epsilon in (0.5, 1.0):  # one seed is enough to show what it is
        yield cases.Job(case=given, treatment=cases.CLUSTER_UNBIASED, epsilon=epsilon, seeds=numbers[:1])
    for count in QUICK_COUNTS if quick else CLUSTER_COUNTS:
        for treatment in (cases.CLUSTER, cases.CLUSTER_BOTH):
            yield cases.Job(
                case=given,
                treatment=treatment,
                epsilon=CLUSTERS_EPSILON,
                seeds=numbers[:FEW_SEEDS],
                n_clusters=count,
                table=clusters_table(given.name),
                setting=f"{treatment.setting}, {count} clusters",
            )
    if given.name == BINARY_SET:
        for digit in DIGITS:
            yield from _over_epsilons(given.binary(digit), BINARY_TREATMENTS, numbers, quick=quick)


def _over_epsilons(
    given: cases.Case, treatments: tuple[cases.Treatment, ...], numbers: tuple[int, ...], *, quick: bool
) -> Iterator[cases.Job]:
    for treatment in treatments:
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            seeds = numbers if epsilon in MUST_SHOW else numbers[:FEW_SEEDS]
            yield cases.Job(case=given, treatment=treatment, epsilon=epsilon, seeds=seeds)
