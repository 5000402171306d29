"""The study `noisy-max`: which noise for one answer and for many, and how large a gap must be to be let out.

The paper on private top-k compares noises in words and in its Theorem 20. Here are the numbers: the most rated film by a
noisy maximum with Gumbel, exponential, Laplace and Gaussian noise, once and a hundred times, and the gap that a
propose-test-release with Laplace or Gaussian noise lets out nine times in ten, which is computed and not drawn.

>>> [one.value for one in Gap(noise="laplace", queries=1).measure(0)]
[31.0, 61.0]

Reference: Zhu & Wang 2022, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE", section 3.1
and Theorem 20; Ding, Kifer, Steinke, Wang, Xiao & Zhang 2021 (exponential noise).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from labeldp.guarantee import Guarantee, Trust
from labeldp.random import NoiseKey
from labeldp.report import Lines, Plot, Series
from labeldp.selection import Histogram, noisy_max, releasable_gap
from labeldp.selection.base import least_noise
from studies.counts import count_films, read_film_pairs
from studies.study import Measurement, Study, StudyRow

RELATIONS = ("add_remove", "replace")
GAPS = "Theorem 20: gap that is let out 9 times in 10 (users, not recall)"
GAP_EPSILON, GAP_DELTA, GAP_FAILURE, GAP_QUERIES = 0.5, 1e-6, 0.1, (1, 2, 5, 10, 100)
NOISES = "noisy max with four noises: the most rated film, 500 users, add_remove"
NOISE_USERS, NOISE_EPSILONS, NOISE_QUERIES, NOISE_TOGETHER = 500, (0.1, 0.4, 1.0), 100, 1.0
NOISE_DELTA, NOISE_RUNS = 1e-6, 20


class NoisyMax(Study["Gap | Noise"]):
    """Four noises and the gaps of Theorem 20: a minute on one core."""

    name: ClassVar[str] = "noisy-max"
    title: ClassVar[str] = "Which noise finds the first of many, and which gap can be let out?"
    paper: ClassVar[str] = (
        "Zhu and Wang (2022), Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE, section 3.1 "
        "(in words) and Theorem 20"
    )
    measure: ClassVar[str] = "how often the first item is found, % (Theorem 20: users)"
    needs: ClassVar[str] = "MovieLens-1M"

    def cases(self) -> Sequence[Gap | Noise]:
        """The noises, then the gaps."""
        gaps = (Gap(noise=noise, queries=queries) for queries in GAP_QUERIES for noise in ("laplace", "gaussian"))
        return [*list_noise_cases(self.directory), *gaps]

    def choose_seeds(self, case: Gap | Noise, seeds: Sequence[int]) -> Sequence[int]:
        """One for what is computed and not drawn."""
        return seeds[:1] if isinstance(case, Gap) else seeds

    def run_case(self, case: Gap | Noise, seed: int) -> Sequence[Measurement]:
        """Draw, or compute a gap."""
        return case.measure(seed)

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Which noise for one answer, which for many."""
        return (*_noises(rows), *_gaps(rows))

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """The gap against the number of queries, for both noises."""
        mine = [row for row in rows if row.table == f"{GAPS}, add_remove"]
        series = []
        for noise in ("laplace", "gaussian"):
            chosen = [row for row in mine if row.setting.endswith(noise)]
            places = tuple(float(row.setting.split(" ")[0]) for row in chosen)
            series.append(Series(name=noise, x=places, y=tuple(row.mean for row in chosen)))
        return (
            Lines(
                title="Theorem 20: the gap that is let out, add_remove",
                series=tuple(series),
                x_title="queries that share the budget",
                y_title="users",
                alt="; ".join(f"{line.name} " + ", ".join(f"{value:.0f}" for value in line.y) for line in series),
                x_log=True,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Theorem 20: the gap that a test lets out nine times in ten."""

    noise: str
    queries: int

    @property
    def name(self) -> str:
        """Noise and queries."""
        return f"{GAPS}: {self.noise}, {self.queries} queries"

    def measure(self, _seed: int) -> Sequence[Measurement]:
        """Return the least gap for each relation; the paper's, for one query, is a formula."""
        found = []
        terms: dict[str, Any] = {
            "epsilon": GAP_EPSILON,
            "delta": GAP_DELTA,
            "noise": self.noise,
            "queries": self.queries,
        }
        for neighbours in RELATIONS:
            logs = (math.log(1 / GAP_DELTA) + math.log(1 / GAP_FAILURE)) / GAP_EPSILON
            paper = 1 + logs * (4 if self.noise == "gaussian" else 1)
            known = self.queries == 1 and neighbours == "add_remove"
            gap = releasable_gap(neighbours=neighbours, failure=GAP_FAILURE, **terms)
            found.append(
                Measurement(
                    table=f"{GAPS}, {neighbours}",
                    setting=f"{self.queries} queries: {self.noise}",
                    epsilon=GAP_EPSILON,
                    trust=Trust.CURATOR.words,
                    value=float(gap),
                    paper=paper if known else None,
                )
            )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """The most frequent item by a noisy maximum with one of four noises."""

    histogram: Histogram
    noise: str
    queries: int
    epsilon: float

    @property
    def name(self) -> str:
        """Noise, queries and epsilon."""
        return f"{NOISES}: {self.noise}, {self.queries} queries, epsilon {self.epsilon:g}"

    @cached_property
    def each(self) -> float:
        """The pure epsilon of one query such that all of them together are (epsilon, delta)-DP."""
        if self.queries == 1:
            return self.epsilon
        make = Guarantee.bounded_range if self.noise == "gumbel" else Guarantee.pure
        noise = least_noise("noise", lambda s: make(1 / s).times(self.queries), epsilon=self.epsilon, delta=NOISE_DELTA)
        return 1 / noise

    def measure(self, seed: int) -> Sequence[Measurement]:
        """Return 100 if the winner is the most frequent item."""
        key = NoiseKey.from_seed(seed).child("noise", self.noise)
        delta = NOISE_DELTA if self.noise == "gaussian" else 0.0
        runs = [
            noisy_max(
                self.histogram,
                epsilon=self.each,
                delta=delta,
                neighbours="add_remove",
                noise=self.noise,
                rng=key.child(i),
            )
            for i in range(NOISE_RUNS)
        ]
        top = int(self.histogram.counts.argmax())
        right = 100.0 * float(np.mean([int(one.items[0]) == top for one in runs]))
        together = f"{self.queries} queries share it, delta {NOISE_DELTA:g}" if self.queries > 1 else ""
        return [
            Measurement(
                table=NOISES,
                setting=f"{self.queries} queries: {self.noise}",
                epsilon=self.epsilon,
                trust=Trust.CURATOR.words,
                value=right,
                note=f"delta {NOISE_DELTA:g}" if self.noise == "gaussian" else together,
            )
        ]


def list_noise_cases(directory: Any) -> Iterator[Noise]:
    """The most rated film among few users, with four noises, once and a hundred times."""
    users, films = read_film_pairs(directory)
    histogram = count_films(users, films, NOISE_USERS)
    for epsilon in NOISE_EPSILONS:
        for noise in ("gumbel", "exponential", "laplace", "gaussian"):
            yield Noise(histogram=histogram, noise=noise, queries=1, epsilon=epsilon)
    for noise in ("gumbel", "exponential", "laplace"):
        yield Noise(histogram=histogram, noise=noise, queries=NOISE_QUERIES, epsilon=NOISE_TOGETHER)


def _noises(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    mine = [row for row in rows if row.table == NOISES]
    if not mine:
        return ()
    groups: dict[tuple[str, float], list[str]] = {}
    for row in mine:
        asked, noise = row.setting.split(": ")
        groups.setdefault((asked, row.epsilon), []).append(f"{noise} {row.mean:.0f}")
    words = [
        f"{asked.replace('1 queries', 'one query')} at epsilon {epsilon:g}: {', '.join(parts)}"
        for (asked, epsilon), parts in groups.items()
    ]
    return (
        f"Noisy max, how often (%) the most rated film of {NOISE_USERS} users is found. "
        + "; ".join(words)
        + ". Exponential "
        "noise is the best single answer at a pure epsilon; of many that compose, Gumbel noise is, as the paper says of its "
        "choice of k.",
    )


def _gaps(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    words = []
    for relation in RELATIONS:
        mine = [row for row in rows if row.table == f"{GAPS}, {relation}"]
        pairs = [(one, two) for one, two in zip(mine[::2], mine[1::2], strict=True)]
        words += [f"{relation}, {one.setting.split(':')[0]}: {one.mean:.0f} and {two.mean:.0f}" for one, two in pairs]
    printed = {row.setting: row.paper for row in rows if row.table.startswith(GAPS) and row.paper is not None}
    told = "; ".join(f"{setting} {value:.0f}" for setting, value in printed.items())
    if not words:
        return ()
    return (
        f"Theorem 20, epsilon {GAP_EPSILON:g}, delta {GAP_DELTA:g}: the gap that passes with Laplace and with Gaussian noise. "
        + "; ".join(words)
        + f". The paper's formulas for add_remove: {told}; its Gaussian one has a loose constant.",
    )
