"""The study `top-k`: which private selection finds the leading items, at one budget and one neighbouring relation.

It repeats Table 1 and Figure 1 of the paper on private top-k: films by how many people rated them (in place of places by
who checked in, which we do not have), states by COVID-19 cases, and bins of 700 or 0. Every method of a table is
accounted for the same relation, and both relations are shown where the order of methods depends on it.

>>> TopK.name, KS, EPSILONS
('top-k', (3, 10, 50), (0.4, 0.8, 1.0))

Reference: Zhu & Wang 2022, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE", section 4.

Design notes. A person counts once for a film. The list of films is public: numbers 1 to 3952, as the set's README has it.
Delta is 1 / users, as in the paper. Nothing was tuned: all methods run with the library's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from labeldp.data import load, us_covid
from labeldp.report import Plot
from labeldp.selection import Histogram
from studies import top_k_cases as cases
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet
from studies.top_k_words import BINS, FEWER, FILMS, NEW, TOTALS, drawn, findings

KS, EPSILONS = (3, 10, 50), (0.4, 0.8, 1.0)
RELATIONS = ("add_remove", "replace")
#: The README of MovieLens 1M: "MovieIDs range between 1 and 3952".
LAST_FILM = 3_952
#: Parts of the users, by number: the last is as large as the paper's Foursquare.
USERS, USERS_EPSILON, USERS_KS = (200, 500, 1_000, 2_293), 0.4, (10, 50)
FIRST_DAY, GROUPS, GROUP_DAYS = "2020-03-12", 4, 10
DAYS_K, DAYS_EPSILON, DAYS_DELTA = 15, 0.1, 1e-6
N_BINS, HEIGHT, BINS_EPSILON, BINS_DELTA = 15_000, 700, 0.15, 1e-6
BINS_KS = (10, 30, 100, 300, 1_000, 1_500)
#: The paper's Table 1 on Foursquare (2,293 users), in percent: (epsilon, k) -> value.
PAPER = {
    cases.SPARSE.name: (100, 64, 11, 100, 90, 18, 100, 90, 18),
    cases.LIMITED.name: (68, 62, 13, 75, 85, 24, 91, 94, 28),
    cases.STABLE.name: (100, 72, 48, 100, 100, 67, 100, 100, 67),
}
NOTE = "the paper's set is Foursquare"


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One row to be measured."""

    case: cases.Case
    method: cases.Method
    epsilon: float
    neighbours: str
    paper: float | None = None

    def row(self, seeds: tuple[int, ...]) -> StudyRow:
        """Measure it."""
        return cases.measured(
            self.case,
            self.method,
            epsilon=self.epsilon,
            neighbours=self.neighbours,
            seeds=seeds,
            paper=self.paper,
            note="" if self.paper is None else NOTE,
        )


class TopK(Study):
    """Five selections on films, states and bins."""

    name: ClassVar[str] = "top-k"
    title: ClassVar[str] = "Private top k: which selection finds the leading items?"
    paper: ClassVar[str] = (
        "Zhu and Wang (2022), Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE, Table 1 "
        "(Foursquare, where ours is MovieLens-1M) and Figure 1 (curves without numbers)"
    )
    measure: ClassVar[str] = "recall: the share of the true top k that was returned, %"
    default_seeds: ClassVar[int] = 100

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Measure every row: about three minutes on one core."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        tell(0.0, "reading")
        jobs = [*film_jobs(directory), *state_jobs(directory), *bin_jobs()]
        rows = []
        for done, job in enumerate(jobs):
            tell(done / len(jobs), f"{job.case.table}: {job.case.words(job.method)}")
            rows.append(job.row(numbers))
        tell(1.0, "done")
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        facts = watch.facts(seeds=numbers, quick=quick, command=command)
        facts["seeds"] = f"0 to {numbers[-1]}"
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=findings(rows),
            facts={**facts, "delta": "1 / users for films, 1e-6 for states (ten days together) and bins"},
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """Recall against users, days and k."""
        return drawn(result)


def film_jobs(directory: str | Path | None) -> Iterator[Job]:
    """Table 1 for both relations, and the same with fewer users."""
    users, films = film_pairs(directory)
    n_users = np.unique(users).size
    for neighbours in RELATIONS:
        for i, epsilon in enumerate(EPSILONS):
            for j, k in enumerate(KS):
                given = cases.Case(
                    table=f"{FILMS}, {neighbours}",
                    histograms=(film_counts(users, films, n_users),),
                    k=k,
                    delta=1 / n_users,
                    label=f"k = {k}",
                )
                for method in cases.METHODS:
                    cells = PAPER.get(method.name) if neighbours == "add_remove" else None
                    paper = None if cells is None else float(cells[i * len(KS) + j])
                    yield Job(case=given, method=method, epsilon=epsilon, neighbours=neighbours, paper=paper)
    for count in USERS:
        counts = film_counts(users, films, count)
        for k in USERS_KS:
            table, label = FEWER, f"{count} users, k = {k}"
            given = cases.Case(table=table, histograms=(counts,), k=k, delta=1 / count, label=label)
            for method in cases.METHODS:
                yield Job(case=given, method=method, epsilon=USERS_EPSILON, neighbours="add_remove")


def film_pairs(directory: str | Path | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return who rated which film, of all ratings: nobody learns anything here, so that there is no test part."""
    data = load("movielens-1m", directory=directory)
    users, films = (
        np.concatenate([part[name].to_numpy() for part in (data.X_train, data.X_test)]).astype(np.int64)
        for name in ("user_id", "movie_id")
    )
    return users, films


def film_counts(users: npt.NDArray[np.int64], films: npt.NDArray[np.int64], most: int) -> Histogram:
    """Return how many of the users numbered 1 to `most` rated each film."""
    kept = users <= most
    named = Histogram.from_pairs(users[kept], films[kept], candidates=range(1, LAST_FILM + 1))
    return Histogram.of(named.counts)


def state_jobs(directory: str | Path | None) -> Iterator[Job]:
    """Figure 1(a): four times ten days, of all cases so far and of new ones; a day is one query."""
    totals, new = us_covid(directory).between(FIRST_DAY, days=GROUPS * GROUP_DAYS)
    for table, counts in ((TOTALS, totals), (NEW, new)):
        for group in range(GROUPS):
            first = group * GROUP_DAYS
            given = cases.Case(
                table=table,
                histograms=tuple(Histogram.of(day) for day in counts[first : first + GROUP_DAYS]),
                k=DAYS_K,
                delta=DAYS_DELTA,
                label=f"days {first + 1}-{first + GROUP_DAYS}",
            )
            for method in cases.METHODS:
                yield Job(case=given, method=method, epsilon=DAYS_EPSILON, neighbours="add_remove")


def bin_jobs() -> Iterator[Job]:
    """Figure 1(b): k bins of 700 among 15,000."""
    for neighbours in RELATIONS:
        for k in BINS_KS:
            counts = np.where(np.arange(N_BINS) < k, HEIGHT, 0)
            table, histogram = f"{BINS}, {neighbours}", Histogram.of(counts)
            given = cases.Case(table=table, histograms=(histogram,), k=k, delta=BINS_DELTA)
            for method in cases.METHODS:
                yield Job(case=given, method=method, epsilon=BINS_EPSILON, neighbours=neighbours)
