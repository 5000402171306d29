"""The study `top-k`: which private selection finds the leading items, at one budget and one neighbouring relation.

It repeats Table 1 and Figure 1 of the paper on private top-k: films by how many people rated them (in place of places by
who checked in, which we do not have), diagnoses by patients, tags of web pages, words of questions, labels of pictures,
states by COVID-19 cases, and bins of 700 or 0. Every method of a table is accounted for the same relation, and both
relations are shown where the order of methods depends on it.

>>> TopK.name, KS, EPSILONS
('top-k', (3, 10, 50), (0.4, 0.8, 1.0))
>>> question = Question(table="demo", histograms=(Histogram.of(np.array([900, 800, 700, 3, 2, 1])),), k=3, delta=1e-6)
>>> case = Case(question=question, method=METHODS[0], epsilon=1.0, neighbours="add_remove")
>>> recall, epsilon = case.run(seed=0)
>>> case.setting, recall, epsilon <= 1.0
('k = 3: StableTopK', 100.0, True)

Reference: Zhu & Wang 2022, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE", section 4.

Design notes. A person counts once for a film. The list of films is public: numbers 1 to 3952, as the set's README has it.
Delta is 1 / users, as in the paper. Nothing was tuned: all methods run with the library's defaults. Recall is the share of
the true top k that is among the items returned ("proportion of true top-k" in the paper). Ties at rank k: the first by
position count as the top, for all methods alike. "Top Stable, filled up" is what the paper's Figure 1(a) describes: half
of the budget finds a stable list, the other half fills it up by the exponential mechanism; k rounds are paid for, whatever
the length of the list, so that the cost does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypedDict

import numpy as np

from labeldp.arrays import Int64s
from labeldp.data import us_covid
from labeldp.guarantee import Guarantee, Trust
from labeldp.random import NoiseKey
from labeldp.report import Lines, Plot, Series
from labeldp.selection import (
    Histogram,
    exponential_guarantee,
    exponential_scale,
    limited_domain,
    stable_plan,
    stable_top_k,
    top_k_exponential,
    top_stable,
)
from labeldp.selection.base import RELATIONS as RELATIONS_OF
from labeldp.selection.base import gaussian_offset
from labeldp.selection.exponential import DEFAULT_SPREAD, bottom_offset, limited_domain_scale
from studies.counts import COUNTS, count_films, read_film_pairs
from studies.study import Measurement, Study, StudyRow

KS, EPSILONS = (3, 10, 50), (0.4, 0.8, 1.0)
RELATIONS = ("add_remove", "replace")
#: Parts of the users, by number: the last is as large as the paper's Foursquare.
USERS, USERS_EPSILON, USERS_KS = (200, 500, 1_000, 2_293), 0.4, (10, 50)
FIRST_DAY, GROUPS, GROUP_DAYS = "2020-03-12", 4, 10
DAYS_K, DAYS_EPSILON, DAYS_DELTA = 15, 0.1, 1e-6
N_BINS, HEIGHT, BINS_EPSILON, BINS_DELTA = 15_000, 700, 0.15, 1e-6
BINS_KS = (10, 30, 100, 300, 1_000, 1_500)
FILMS = "films, Table 1"
FEWER = "films, Table 1 with fewer users, add_remove"
TOTALS = "states, Figure 1(a), all cases so far, add_remove"
NEW = "states, Figure 1(a), new cases of the day, add_remove"
BINS = "bins, Figure 1(b)"
#: What the counts must have: the end of the table's name, and the two rows.
NEEDS = ", what each needs (users, not recall)"
LINE = "count at rank k above the line of Limited Domain"
STEEP = "steepest gap from k/2 to 2k above what the test needs"
#: Two means are level when they differ by no more than this many standard errors of their difference.
LEVEL = 2.0
NOTE = "the paper's set is Foursquare"


class TopK(Study["AnyCase"]):
    """Five selections on counts by people, states and bins: about five minutes on one core."""

    name: ClassVar[str] = "top-k"
    title: ClassVar[str] = "Private top k: which selection finds the leading items?"
    paper: ClassVar[str] = (
        "Zhu and Wang (2022), Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE, Table 1 "
        "(Foursquare, where ours is MovieLens-1M) and Figure 1 (curves without numbers)"
    )
    measure: ClassVar[str] = "recall: the share of the true top k that was returned, %"
    needs: ClassVar[str] = "MovieLens-1M, us-covid, diabetes-readmission, CLINC150 and the multilabel sets"
    default_seeds: ClassVar[int] = 100

    def cases(self) -> Sequence[AnyCase]:
        """Every method on films, other counts, states and bins, and what is exact."""
        return [
            *list_film_cases(self.directory),
            *list_count_cases(self.directory),
            *list_state_cases(self.directory),
            *list_bin_cases(),
        ]

    def choose_seeds(self, case: AnyCase, seeds: Sequence[int]) -> Sequence[int]:
        """One for what is computed and not drawn."""
        return seeds[:1] if isinstance(case, Needs) else seeds

    def run_case(self, case: AnyCase, seed: int) -> Sequence[Measurement]:
        """Select once from every histogram of a case."""
        if isinstance(case, Needs):
            return case.measure()
        recall, epsilon = case.run(seed)
        measured = Measurement(
            table=case.question.table,
            setting=case.setting,
            epsilon=epsilon,
            trust=Trust.CURATOR.words,
            value=recall,
            paper=case.paper,
            note="" if case.paper is None else NOTE,
        )
        return [measured]

    def facts(self) -> dict[str, Any]:
        """The delta of each table."""
        return {"delta": "1 / users for counts by people, 1e-6 for states (ten days together) and bins"}

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say whether the paper's order holds, and where it does not, why."""
        tables = (_table_1(rows, table, relation) for table in list_count_tables(rows) for relation in RELATIONS)
        return (*tables, ORDER, *_when(rows), _fewer(rows), _days(rows), *_bins(rows), NOTES)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Recall against epsilon, the number of users, the days, and k for both relations."""
        return (
            *(_lines(rows, f"{FILMS}, {relation}", "k = 50", "epsilon") for relation in RELATIONS),
            _lines(rows, FEWER, "k = 50", "users", log=True),
            *(_lines(rows, table, "days", "last day") for table in (TOTALS, NEW)),
            *(_lines(rows, f"{BINS}, {relation}", "k", "k", log=True) for relation in RELATIONS),
        )


# ------------------------------------------------------------------------------------------------------ the methods


class Terms(TypedDict):
    """Budget and relation as arguments."""

    epsilon: float
    delta: float
    neighbours: str
    queries: int


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one selection may cost: `queries` of them together are (epsilon, delta)-DP for these neighbours."""

    epsilon: float
    delta: float
    neighbours: str
    queries: int = 1

    def terms(self) -> Terms:
        """The arguments that every selection takes."""
        return Terms(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours, queries=self.queries)

    def half(self) -> Budget:
        """Half of epsilon and of delta: two such compose to the whole."""
        return replace(self, epsilon=self.epsilon / 2, delta=self.delta / 2)

    def spent(self, one: Guarantee) -> float:
        """Return the epsilon of all queries at delta."""
        return one.times(self.queries).epsilon(self.delta)


#: (histogram without names, k, budget, key) -> places of the items, and what one query promises (the first part of it)
Select = Callable[[Histogram, int, Budget, NoiseKey], tuple[Int64s, Guarantee]]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to select k items; `halves`: it is two mechanisms with half of the budget each."""

    name: str
    select: Select
    halves: bool = False


def select_stable(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Algorithm 3 with the library's defaults."""
    found = stable_top_k(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def select_limited_domain(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Limited Domain with the library's defaults (k_bar = 10 k)."""
    found = limited_domain(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def select_top_stable(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Top Stable: what is stable and no more."""
    found = top_stable(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def select_exponential(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """One-shot Gumbel noise, accounted as bounded range (EM-CDP)."""
    found = top_k_exponential(histogram, k=k, rng=key, **budget.terms())
    return found.items, found.guarantee


def select_filled_up(histogram: Histogram, k: int, budget: Budget, key: NoiseKey) -> tuple[Int64s, Guarantee]:
    """Top Stable with half of the budget, then the first of k draws from the rest with the other half."""
    stable, promise = select_top_stable(histogram, k, budget.half(), key.child("stable"))
    if stable.size == k:
        return stable, promise
    rest = np.setdiff1d(np.arange(histogram.counts.size), stable)
    drawn, _ = select_exponential(Histogram.of(histogram.counts[rest]), k, budget.half(), key.child("rest"))
    return np.concatenate([stable, rest[drawn[: k - stable.size]]]), promise


STABLE = Method(name="StableTopK", select=select_stable)
LIMITED = Method(name="Limited Domain", select=select_limited_domain)
SPARSE = Method(name="Top Stable", select=select_top_stable)
FILLED = Method(name="Top Stable, filled up", select=select_filled_up, halves=True)
EXPONENTIAL = Method(name="EM-CDP", select=select_exponential)
METHODS = (STABLE, LIMITED, SPARSE, FILLED, EXPONENTIAL)
#: The paper's Table 1 on Foursquare (2,293 users), in percent: (epsilon, k) -> value.
PAPER = {
    SPARSE.name: (100, 64, 11, 100, 90, 18, 100, 90, 18),
    LIMITED.name: (68, 62, 13, 75, 85, 24, 91, 94, 28),
    STABLE.name: (100, 72, 48, 100, 100, 67, 100, 100, 67),
}


# -------------------------------------------------------------------------------------------------------- the cases


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """The k leading items of each histogram; several histograms share one budget, a query each."""

    table: str
    histograms: tuple[Histogram, ...]
    k: int
    delta: float
    label: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One question to one method at one budget; what does not depend on the seed is computed once."""

    question: Question
    method: Method
    epsilon: float
    neighbours: str
    paper: float | None = None
    #: The epsilon, once it is known: it is the same for every seed.
    spent: list[float] = field(default_factory=list, repr=False)

    @property
    def setting(self) -> str:
        """The row's name."""
        return f"{self.question.label or f'k = {self.question.k}'}: {self.method.name}"

    @property
    def name(self) -> str:
        """Table, row and epsilon."""
        return f"{self.question.table}: {self.setting}, epsilon {self.epsilon:g}"

    @property
    def budget(self) -> Budget:
        """What all histograms together may cost."""
        queries = len(self.question.histograms)
        return Budget(epsilon=self.epsilon, delta=self.question.delta, neighbours=self.neighbours, queries=queries)

    @cached_property
    def tops(self) -> list[Int64s]:
        """The true top k of each histogram."""
        return [histogram.top(self.question.k) for histogram in self.question.histograms]

    def run(self, seed: int) -> tuple[float, float]:
        """Return the recall in percent, averaged over the histograms, and the epsilon that the method spent on all."""
        key = NoiseKey.from_seed(seed).child(self.method.name)
        days = enumerate(self.question.histograms)
        found = [self.method.select(one, self.question.k, self.budget, key.child(day)) for day, one in days]
        recalls = [np.isin(top, items).mean() for top, (items, _) in zip(self.tops, found, strict=True)]
        if not self.spent:
            self.spent.append(_spend(self.budget, found[0][1], k=self.question.k, halves=self.method.halves))
        return round(100.0 * float(np.mean(recalls)), 3), self.spent[0]


def _spend(budget: Budget, promise: Guarantee, *, k: int, halves: bool) -> float:
    """Return the epsilon of a method: of its one mechanism, or of both halves together."""
    if not halves:
        return budget.spent(promise)
    half = budget.half()
    scale = exponential_scale(k=k, **half.terms())
    return half.spent(promise) + half.spent(exponential_guarantee(k=k, scale=scale, neighbours=half.neighbours))


@dataclass(frozen=True, kw_only=True, eq=False)
class Needs:
    """How far the counts are from what Limited Domain and StableTopK need, in users: nothing is drawn."""

    question: Question
    epsilon: float
    neighbours: str

    @property
    def name(self) -> str:
        """Table, k and epsilon."""
        return f"{self.question.table}: needs of k = {self.question.k}, epsilon {self.epsilon:g}"

    def measure(self) -> Sequence[Measurement]:
        """Return the count at rank k above Limited Domain's line, and the steepest gap above what half of the tests pass."""
        k, (histogram,) = self.question.k, self.question.histograms
        reach, share = RELATIONS_OF[self.neighbours].reach, self.question.delta / 2
        terms: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.question.delta, "neighbours": self.neighbours}
        scale = limited_domain_scale(k=k, test_delta=share, queries=1, **terms)
        spread = DEFAULT_SPREAD * k
        line = histogram.levels.value_at(spread + 1) + reach + bottom_offset(scale, spread, share)
        plan = stable_plan(k=k, **terms)
        needed = reach + gaussian_offset(plan.sigma, plan.test_delta)
        steepest = max(histogram.levels.gap_at(rank) for rank in range(max(1, k // 2), 2 * k + 1))
        at_k = histogram.levels.value_at(k)
        shared: dict[str, Any] = {
            "table": self.question.table + NEEDS,
            "epsilon": self.epsilon,
            "trust": Trust.CURATOR.words,
        }
        return [
            Measurement(
                setting=f"k = {k}: {LINE}", value=at_k - line, note=f"{at_k:,} users against {line:,.0f}", **shared
            ),
            Measurement(
                setting=f"k = {k}: {STEEP}", value=steepest - needed, note=f"{steepest:,} against {needed:,}", **shared
            ),
        ]


AnyCase = Case | Needs


def list_table_1(table: str, histogram: Histogram, n_users: int, *, printed: bool = False) -> Iterator[Case | Needs]:
    """Table 1 of one histogram for both relations; `printed`: the paper's numbers stand beside it."""
    for neighbours in RELATIONS:
        for i, epsilon in enumerate(EPSILONS):
            for j, k in enumerate(KS):
                given = Question(
                    table=f"{table}, {neighbours}",
                    histograms=(histogram,),
                    k=k,
                    delta=1 / n_users,
                    label=f"k = {k}",
                )
                for method in METHODS:
                    cells = PAPER.get(method.name) if printed and neighbours == "add_remove" else None
                    paper = None if cells is None else float(cells[i * len(KS) + j])
                    yield Case(question=given, method=method, epsilon=epsilon, neighbours=neighbours, paper=paper)
                yield Needs(question=given, epsilon=epsilon, neighbours=neighbours)


def list_film_cases(directory: Any) -> Iterator[Case | Needs]:
    """Table 1 for both relations, and the same with fewer users."""
    users, films = read_film_pairs(directory)
    n_users = np.unique(users).size
    yield from list_table_1(FILMS, count_films(users, films, n_users), n_users, printed=True)
    for count in USERS:
        counts = count_films(users, films, count)
        for k in USERS_KS:
            table, label = FEWER, f"{count} users, k = {k}"
            given = Question(table=table, histograms=(counts,), k=k, delta=1 / count, label=label)
            for method in METHODS:
                yield Case(question=given, method=method, epsilon=USERS_EPSILON, neighbours="add_remove")


def list_count_cases(directory: Any) -> Iterator[Case | Needs]:
    """Table 1's settings on the other counts by people: diagnoses, tags, words, pictures."""
    for table, (read, _) in COUNTS.items():
        histogram, n_users = read(directory)
        yield from list_table_1(table, histogram, n_users)


def list_state_cases(directory: Any) -> Iterator[Case]:
    """Figure 1(a): four times ten days, of all cases so far and of new ones; a day is one query."""
    totals, new = us_covid(directory).between(FIRST_DAY, days=GROUPS * GROUP_DAYS)
    for table, counts in ((TOTALS, totals), (NEW, new)):
        for group in range(GROUPS):
            first = group * GROUP_DAYS
            given = Question(
                table=table,
                histograms=tuple(Histogram.of(day) for day in counts[first : first + GROUP_DAYS]),
                k=DAYS_K,
                delta=DAYS_DELTA,
                label=f"days {first + 1}-{first + GROUP_DAYS}",
            )
            for method in METHODS:
                yield Case(question=given, method=method, epsilon=DAYS_EPSILON, neighbours="add_remove")


def list_bin_cases() -> Iterator[Case]:
    """Figure 1(b): k bins of 700 among 15,000."""
    for neighbours in RELATIONS:
        for k in BINS_KS:
            counts = np.where(np.arange(N_BINS) < k, HEIGHT, 0)
            table, histogram = f"{BINS}, {neighbours}", Histogram.of(counts)
            given = Question(table=table, histograms=(histogram,), k=k, delta=BINS_DELTA)
            for method in METHODS:
                yield Case(question=given, method=method, epsilon=BINS_EPSILON, neighbours=neighbours)


# -------------------------------------------------------------------------------------------------- words and plots


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one method does against another, cell by cell: differences of means where they are not level."""

    one: str
    other: str
    cells: int
    ahead: tuple[tuple[tuple[str, int], float], ...]
    behind: tuple[tuple[tuple[str, int], float], ...]

    def sentence(self) -> str:
        """The count in words."""
        level = self.cells - len(self.ahead) - len(self.behind)
        most = f" (by at most {max(-gap for _, gap in self.behind):.1f} points)" if self.behind else ""
        return (
            f"{self.one} is ahead of {self.other} in {len(self.ahead)} of {self.cells} cells, level in {level}, behind in "
            f"{len(self.behind)}{most}"
        )


def compare_methods(rows: Sequence[StudyRow], table: str, one: str, other: str) -> Comparison:
    """Compare two methods on all cells of a table; a cell is a setting and an epsilon."""
    ours, theirs = pick_cells(rows, table, one), pick_cells(rows, table, other)
    gaps = {cell: (ours[cell], theirs[cell]) for cell in ours}
    far = [(cell, a.mean - b.mean) for cell, (a, b) in gaps.items() if abs(a.mean - b.mean) > LEVEL * _error(a, b)]
    return Comparison(
        one=one,
        other=other,
        cells=len(gaps),
        ahead=tuple((cell, gap) for cell, gap in far if gap > 0),
        behind=tuple((cell, gap) for cell, gap in far if gap < 0),
    )


def pick_cells(rows: Sequence[StudyRow], table: str, method: str) -> dict[tuple[str, int], StudyRow]:
    """Return a method's rows by what is asked and how often it was asked before (at another epsilon), in order."""
    found: dict[tuple[str, int], StudyRow] = {}
    for row in rows:
        asked, name = row.setting.split(": ", 1)
        if row.table == table and name == method:
            found[asked, sum(known == asked for known, _ in found)] = row
    return found


def _error(one: StudyRow, other: StudyRow) -> float:
    return math.sqrt(one.spread**2 / one.n_seeds + other.spread**2 / other.n_seeds)


ORDER = (
    "The paper's order in Table 1 is StableTopK before both Top Stable and Limited Domain. Against Top Stable it holds. Against "
    "Limited Domain it does not on the whole set, by a point or two: films have thousands of users, so that its bottom line, "
    "the count at rank 10 k and a logarithm of noise above it, lies far below the top 50. What is left of it is the exponential "
    "mechanism with all of the budget, while StableTopK spends half on the choice and the test of a rank that saves it "
    "one item of k: no film but the first stands clear of the next."
)
NOTES = (
    "Films, codes, words and labels are taken as a public list. Every table is accounted for the relation in its name, the same for all methods, at the epsilon and delta of the paper; "
    "nothing was tuned. Limited Domain here has a Renyi curve of its own (see labeldp.selection.limited_domain), Top Stable our "
    "own constants (see labeldp.selection.top_stable). Top Stable and Limited Domain do not need the list of candidates to be "
    "public, EM-CDP and a StableTopK that fills up do."
)
CLIFF = (
    "In Figure 1(b) the order is the paper's: StableTopK does not pay for k, EM-CDP does. (Under replace a gap of "
    "700 is less than the test is sure to pass, and now and then another rank is chosen.) Limited Domain, not in the figure, "
    "returns next to nothing: its bottom line is a logarithm of 10 k above the empty bins, at a scale that grows with the root "
    "of k. A gap of 700 is enough for Top Stable under add_remove, where it is level with StableTopK; under replace, where its "
    "offset doubles, it falls behind as in the paper. Top Stable filled up has half of the budget, which is not enough."
)


def list_count_tables(rows: Sequence[StudyRow]) -> list[str]:
    """Return which tables of Table 1's kind the rows have."""
    return [table for table in (FILMS, *COUNTS) if any(row.table == f"{table}, {RELATIONS[0]}" for row in rows)]


def _table_1(rows: Sequence[StudyRow], table: str, relation: str) -> str:
    others = (SPARSE, FILLED, LIMITED, EXPONENTIAL)
    words = [compare_methods(rows, f"{table}, {relation}", STABLE.name, other.name).sentence() for other in others]
    kind = f" ({COUNTS[table][1]})" if table in COUNTS else ""
    return f"Table 1 on {table.split(',', maxsplit=1)[0]}{kind}, {relation}: " + "; ".join(words) + "."


def _when(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    """Where StableTopK is ahead of Limited Domain and where not, by what the two of them need."""
    groups: dict[tuple[bool, bool], list[float]] = {}
    for table in list_count_tables(rows):
        for relation in RELATIONS:
            name = f"{table}, {relation}"
            needs = [pick_cells(rows, name + NEEDS, what) for what in (LINE, STEEP)]
            stable, limited = (pick_cells(rows, name, method.name) for method in (STABLE, LIMITED))
            for cell, row in stable.items():
                if cell in needs[0]:
                    above, steep = (need[cell].mean > 0 for need in needs)
                    groups.setdefault((above, steep), []).append(row.mean - limited[cell].mean)
    words = []
    for (above, steep), gaps in sorted(groups.items()):
        where = f"rank k is {'above' if above else 'below'} Limited Domain's line and {'a' if steep else 'no'} gap is steep enough"
        words.append(
            f"{where}: {len(gaps)} cells, StableTopK {np.mean(gaps):+.1f} points, {min(gaps):+.1f} to {max(gaps):+.1f}"
        )
    if not words:
        return ()
    return (
        "When StableTopK is ahead of Limited Domain, over all sets, both relations, k and epsilon of Table 1. "
        + "; ".join(words)
        + ". Steep enough: some gap from rank k / 2 to 2 k passes half of the tests. So it is ahead wherever the count at rank k "
        "has not risen above the line, a logarithm of noise over the count at rank 10 k. Above the line Limited Domain is the "
        "exponential mechanism with all of the budget: StableTopK is level with it where a gap is steep, and a little behind "
        "where it has spent half of its budget on a test that fails. It would be ahead there only where the exponential "
        "mechanism itself goes wrong: many items nearly level and a cliff after them, as in Figure 1(b).",
    )


def _fewer(rows: Sequence[StudyRow]) -> str:
    stable, limited = (pick_cells(rows, FEWER, method.name) for method in (STABLE, LIMITED))
    parts = [f"{cell[0]}: {row.mean:.0f} against {limited[cell].mean:.0f}" for cell, row in stable.items()]
    return (
        "With fewer users of the same set (epsilon 0.4) the counts come down to the threshold, as on the paper's check-ins, "
        "and the paper's order returns, the sooner the larger k is; recall of StableTopK against Limited Domain: "
        + "; ".join(parts)
        + "."
    )


def _days(rows: Sequence[StudyRow]) -> str:
    words = []
    for table in (TOTALS, NEW):
        means = {method.name: [row.mean for row in pick_cells(rows, table, method.name).values()] for method in METHODS}
        parts = [f"{name} " + ", ".join(f"{value:.0f}" for value in values) for name, values in means.items()]
        words.append(f"{table}: " + "; ".join(parts))
    return (
        "Figure 1(a), recall for days 1-10, 11-20, 21-30 and 31-40. "
        + ". ".join(words)
        + ". As in the paper EM-CDP is best or "
        "level with the best, since the gap at rank 15 is small, and recall follows that gap. The paper does not say whether "
        "cases are new or all so far; its words on growing gaps fit all so far. Its Top Stable is the one that is filled up."
    )


def _bins(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    words = []
    for relation in RELATIONS:
        table = f"{BINS}, {relation}"
        means = {method.name: [row.mean for row in pick_cells(rows, table, method.name).values()] for method in METHODS}
        parts = [f"{name} {values[0]:.0f} to {values[-1]:.0f}" for name, values in means.items()]
        first = compare_methods(rows, table, STABLE.name, SPARSE.name)
        words.append(
            f"Figure 1(b), {relation}, recall from the least k to the largest: "
            + "; ".join(parts)
            + f". {first.sentence()}."
        )
    return (
        *words,
        CLIFF,
    )


def _lines(rows: Sequence[StudyRow], table: str, part: str, axis: str, *, log: bool = False) -> Plot:
    """Return the lines of the rows of a table whose setting has `part`, over the axis."""
    series = []
    for method in METHODS:
        mine = [row for cell, row in pick_cells(rows, table, method.name).items() if part in cell[0]]
        series.append(
            Series(
                name=method.name,
                x=tuple(_place(row, axis) for row in mine),
                y=tuple(row.mean for row in mine),
                spreads=tuple(row.spread for row in mine),
            )
        )
    return Lines(
        title=f"{table}" + (f", {part}" if axis in {"epsilon", "users"} else ""),
        series=tuple(series),
        x_title=axis,
        y_title="recall, % (bars: one standard deviation)",
        alt="; ".join(f"{line.name} " + ", ".join(f"{value:.0f}" for value in line.y) for line in series),
        x_log=log,
    )


def _place(row: StudyRow, axis: str) -> float:
    """Return where a row stands on the axis: its epsilon, or the number that its setting names."""
    if axis == "epsilon":
        return row.epsilon
    asked = row.setting.split(":", maxsplit=1)[0]
    return float({"users": asked.split(" ")[0], "last day": asked.split("-")[-1], "k": asked.split(" ")[-1]}[axis])
