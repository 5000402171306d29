"""Which of a person's rows are asked, or count in a statistic: chosen by public things alone.

>>> from labeldp.release.persons.owners import Persons
>>> persons = Persons.of(["ann", "bob", "ann", "ann"])
>>> pick_rows(persons).tolist() == choose_rows(persons, 1).tolist()
True

**Which row.** The one of the largest public score, and of equal ones by public chance: a function of a public seed and the row's
position, never of the noise's key and never of labels. Nobody learns anything from which rows were asked, since everybody
could have told beforehand.

Design notes. `Persons` and the plan know no label. A table too large to hold is planned from its column of ids by `gather_rows` of
each piece and `RowsOfPersons.join`, which gives the rows that one call on all of it gives. What is in memory is, for each
person, her id, a count (8 bytes) and, for each of her rows that may be asked, a position, a score, a word and her number (32 bytes):
48 bytes a person with ids of whole numbers, and while two pieces are joined three times that.

The default, one row of each by chance, numbers nobody (`pick_rows`): rows are dealt into buckets that fit a core's cache. The word of a
row is a bijection of its position, so each person's largest word is all that is kept of her: the row is found from it again.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Float64s, Int64s, Words
from labeldp.errors import Described, invalid
from labeldp.mechanisms import Mechanism
from labeldp.release.budget import equal_parts
from labeldp.release.persons.owners import OWNER, TABLE_PER_ROW, Persons, find_span
from labeldp.release.persons.plans import (
    COMMON,
    GROUP,
    ONE,
    SHARES,
    WAYS,
    AnswerPlan,
    best_answers,
    best_common,
    check_person_mechanism,
    information_of,
)
from labeldp.validate import check_choice, check_integer

#: Of public chance: which row is asked where scores are equal. Pass a score of your own for another choice.
SEED = 0
#: Rows are dealt into buckets of about 2^BUCKET_BITS persons or rows, 2^MOST_BUCKETS at most: 128 KiB of a core's cache.
BUCKET_BITS, MOST_BUCKETS = 14, 9
#: An odd number that spreads ids over buckets, and how many slots are looked at for each row, in a bucket, before it is given up.
SPREAD, MOST_TRIED = 0x9E3779B97F4A7C15, 32


def plan_answers(
    persons: Persons,
    mechanism: Mechanism,
    *,
    way: str = ONE,
    score: Any = None,
    n_classes: int | None = None,
    prior: Any = None,
    first: int = 0,
) -> AnswerPlan:
    """Return which rows of each person are answered, and at which epsilon: see the table of the module.

    Parameters
    ----------
    persons : Persons
        Who owns which row.
    mechanism : Mechanism
        Its epsilon is what a person spends in all. It must be pure, and ask each label by itself.
    way : "one", "common", "shares" or "group"
        How her epsilon is spent on her rows.
    score : array of shape (n,), optional
        How much an answer of each row would teach, a public number: the rows of the largest scores are asked. Without it, and
        among equal scores, public chance decides.
    n_classes : int, optional
        K, where neither the mechanism nor the prior says it.
    prior : array, optional
        What is believed of labels, for the information of an answer; the mean of its rows is used.
    first : int
        The position of the first row, which public chance goes by.
    """
    check_choice(OWNER, "persons_way", way, WAYS)
    epsilon = check_person_mechanism(mechanism)
    if way in (SHARES, GROUP):
        found = gather_rows(persons, most=None, first=first)
        return found.plan(way=way, epsilon=epsilon, most=persons.most_rows, first=first)
    information = information_of(mechanism, n_classes=n_classes, prior=prior)
    most = best_answers(epsilon, information, most=len(persons))
    if most == 1 and score is None:
        return _plan_single(persons, way=way, epsilon=epsilon, first=first)
    most = min(most, persons.most_rows)
    if way == COMMON:
        most = best_common(epsilon, information, persons.counts, most=most)
    return gather_rows(persons, most=most, score=score, first=first).plan(
        way=way, epsilon=epsilon, most=most, first=first
    )


def _plan_single(persons: Persons, *, way: str, epsilon: float, first: int) -> AnswerPlan:
    """Return the plan that asks one row of each person, by chance; each answer is another person's."""
    rows = pick_rows(persons, first=first)
    return AnswerPlan(
        way=way,
        epsilon=epsilon,
        n_rows=len(persons),
        n_persons=len(rows),
        rows=rows,
        owners=np.arange(len(rows), dtype=np.int64),
        epsilons=(epsilon,),
        share=np.zeros(len(rows), np.uint16),
    )


def compare_ways(
    persons: Persons, mechanism: Mechanism, *, n_classes: int | None = None, prior: Any = None
) -> dict[str, float]:
    """Return, for each way, the nats that a person's answers have on average: what to compare before anything is spent.

    >>> from labeldp.mechanisms import InformativeResponse
    >>> persons = Persons.of([0, 0, 0, 0, 1])
    >>> told = compare_ways(persons, InformativeResponse(1.0, n_classes=2))
    >>> {way: round(nats, 4) for way, nats in told.items()}
    {'one': 0.1109, 'common': 0.1109, 'shares': 0.071, 'group': 0.0194}
    """
    information = information_of(mechanism, n_classes=n_classes, prior=prior)
    told = {}
    for way in WAYS:
        plan = plan_answers(persons, mechanism, way=way, n_classes=n_classes, prior=prior)
        told[way] = plan.information(information)
    return told


# --------------------------------------------------------------------------------------------------- rows of many persons


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsOfPersons:
    """What a plan is made of, from the column of ids alone: each person's count, and her rows that may be asked.

    `rows` are positions; `owners` say whose they are (a place in `ids`), `scores` and `words` which of hers come first. With
    `most` only so many rows of each are kept. Two of them join, in any order, to what one pass over both would have given.
    """

    ids: Any
    counts: Int64s
    rows: Int64s
    owners: Int64s
    scores: Float64s
    words: Words
    most: int | None

    def join(self, other: RowsOfPersons) -> RowsOfPersons:
        """Return both together; a person may have rows in both."""
        import pyarrow as pa

        if self.ids.type != other.ids.type:
            fix = "Make the column text, or whole numbers, in every file."
            raise invalid(OWNER, "persons", "be ids of one type", got=Described("text and numbers"), fix=fix)
        encoded = pa.concat_arrays([self.ids, other.ids]).dictionary_encode()
        place = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        mine, its = place[: len(self.ids)], place[len(self.ids) :]
        counts = np.zeros(len(encoded.dictionary), np.int64)
        counts[mine] += self.counts
        counts[its] += other.counts
        if self.most == 1:  # one row of each person on either side: compared, not sorted
            return self._join_single(other, encoded.dictionary, counts, mine, its)
        whole = RowsOfPersons(
            ids=encoded.dictionary,
            counts=counts,
            rows=np.concatenate([self.rows, other.rows]),
            owners=np.concatenate([mine[self.owners], its[other.owners]]),
            scores=np.concatenate([self.scores, other.scores]),
            words=np.concatenate([self.words, other.words]),
            most=self.most,
        )
        return whole if self.most is None else whole.keep(self.most)

    def _join_single(self, other: RowsOfPersons, ids: Any, counts: Int64s, mine: Int64s, its: Int64s) -> RowsOfPersons:
        """Return the better row of each person: the larger score, then word, then the first."""
        size = len(ids)
        rows, scores, words = np.full(size, -1, np.int64), np.zeros(size), np.zeros(size, np.uint64)
        at = mine[self.owners]
        rows[at], scores[at], words[at] = self.rows, self.scores, self.words
        at = its[other.owners]
        equal = (rows[at] >= 0) & (scores[at] == other.scores)
        better = (rows[at] < 0) | (other.scores > scores[at]) | (equal & (other.words > words[at]))
        better |= equal & (other.words == words[at]) & (other.rows < rows[at])
        at = at[better]
        rows[at], scores[at], words[at] = other.rows[better], other.scores[better], other.words[better]
        owners = np.arange(size, dtype=np.int64)
        return RowsOfPersons(ids=ids, counts=counts, rows=rows, owners=owners, scores=scores, words=words, most=1)

    def digest_owners(self) -> str:
        """Return a SHA-256 of who has how many rows, in whichever order they were found: part of what a job is.

        Which rows are asked may be the same for other persons, and it is these whom a ledger was charged for.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        order = pc.sort_indices(self.ids)
        ids, counts = self.ids.take(order), self.counts[order.to_numpy()]
        if pa.types.is_integer(ids.type):
            parts = [b"numbers", ids.to_numpy().astype("<i8").tobytes()]
        else:
            _, offsets, text = ids.cast(pa.large_string()).buffers()
            ends = np.frombuffer(offsets, np.int64, count=len(ids) + 1, offset=8 * ids.offset)
            parts = [b"text", np.diff(ends).astype("<i8").tobytes(), text.to_pybytes()[ends[0] : ends[-1]]]
        return hashlib.sha256(b"\n".join([*parts, counts.astype("<i8").tobytes()])).hexdigest()

    def keep(self, most: int) -> RowsOfPersons:
        """Return the same with at most so many rows of each person: those of the largest score, then word, then the first."""
        order = np.lexsort((self.rows, ~self.words, -self.scores, self.owners))
        owners = self.owners[order]
        starts = (
            np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]])) if len(owners) else np.empty(0, int)
        )
        rank = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
        chosen = order[rank < most]
        return RowsOfPersons(
            ids=self.ids,
            counts=self.counts,
            rows=self.rows[chosen],
            owners=self.owners[chosen],
            scores=self.scores[chosen],
            words=self.words[chosen],
            most=most,
        )

    def plan_group(self, *, epsilon: float) -> AnswerPlan:
        """Return the plan that answers every row at the epsilon of whoever has most rows; the counts are all it needs."""
        n = int(self.counts.sum())
        part = epsilon if math.isinf(epsilon) else equal_parts(epsilon, int(self.counts.max(initial=1)))
        owners = np.repeat(np.arange(len(self.counts), dtype=np.int64), self.counts)  # how many each has is what counts
        return AnswerPlan(
            way=GROUP,
            epsilon=epsilon,
            n_rows=n,
            n_persons=len(self.counts),
            rows=np.arange(n, dtype=np.int64),
            owners=owners,
            epsilons=(part,),
            share=np.zeros(n, np.uint16),
        )

    def plan(self, *, way: str, epsilon: float, most: int, first: int = 0) -> AnswerPlan:
        """Return the plan; `most` is c* for "one", and c for "common". Rows are counted from `first` on."""
        order = np.argsort(self.rows, kind="stable")
        rows, owners = self.rows[order], self.owners[order]
        # The number of parts that each person's epsilon has; mostly one number for all.
        alike = {ONE: 1 if most == 1 else None, COMMON: most, GROUP: int(self.counts.max(initial=1)), SHARES: None}[way]
        if alike is not None:
            parts, place = np.array([alike]), None
        else:
            answers = np.minimum(self.counts, most) if way == ONE else self.counts
            parts, place = np.unique(answers, return_inverse=True)
        epsilons = tuple(epsilon if math.isinf(epsilon) else equal_parts(epsilon, int(count)) for count in parts)
        if len(epsilons) > 1 << 16:
            fix = 'Use persons_way="one".'
            raise invalid(
                OWNER, "persons", "have at most 65,536 different numbers of rows", got=Described("more"), fix=fix
            )
        kept = tuple(dict.fromkeys(epsilons))  # of an infinite epsilon every part is the same
        number = np.array([kept.index(one) for one in epsilons], np.uint16)
        return AnswerPlan(
            way=way,
            epsilon=epsilon,
            n_rows=int(self.counts.sum()),
            n_persons=len(self.counts),
            rows=rows - first,
            owners=owners,
            epsilons=kept or (epsilon,),
            share=np.zeros(len(owners), np.uint16) if place is None else number[place.reshape(-1)][owners],
        )


def gather_rows(persons: Persons, *, most: int | None, score: Any = None, first: int = 0) -> RowsOfPersons:
    """Return the rows of persons that may be asked, at positions from `first` on: at most `most` of each, or all."""
    from labeldp.release.kernels import find_first_rows, make_words

    n, size = len(persons), persons.n_persons
    scores = check_score(score, n)
    common = {"ids": persons.ids, "counts": persons.counts, "most": most}
    if most == 1:
        best, best_scores = np.full(size, -1, np.int64), np.zeros(size)
        words = np.zeros(size, np.uint64)
        find_first_rows(persons.codes, scores, np.uint64(SEED), first, best, best_scores, words)
        owners = np.arange(size, dtype=np.int64)
        return RowsOfPersons(rows=best, owners=owners, scores=best_scores, words=words, **common)
    places = np.arange(first, first + n, dtype=np.int64)
    words = np.empty(n, np.uint64)
    make_words(np.uint64(SEED), places, words)
    whole = RowsOfPersons(
        rows=places, owners=persons.codes, scores=scores if len(scores) else np.zeros(n), words=words, **common
    )
    return whole if most is None else whole.keep(most)


def pick_rows(persons: Persons, *, first: int = 0) -> Int64s:
    """Return one row of each person by public chance, rising: as `choose_rows(persons, 1)`, without numbering persons.

    Rows are first dealt into buckets by their owner, number and row in one 64-bit word, so that what is known of the persons of a
    bucket stays in a core's cache. Numbers that lie close together are then places in a table of the largest word of each person;
    others are looked for in a hash table for each bucket. Where ids were made so that they meet in it the words are
    sorted instead, and where a word is too short the persons are numbered first.
    """
    from labeldp.channel.kernels import find_place
    from labeldp.release.kernels import count_buckets, fill_buckets, mark_by_hash, mark_by_sort, mark_by_table

    numbers, n = persons.numbers, len(persons)
    if first <= int(find_place(np.uint64(SEED), np.uint64(0))) < first + n:  # a word of zero is "none yet" in the table
        return np.sort(gather_rows(persons, most=1, first=first).rows - first)
    low, span = find_span(numbers)
    bits = max(1, (n - 1).bit_length())
    if span > TABLE_PER_ROW * n and (span - 1).bit_length() + bits > 63:  # a key plus one has to fit
        numbers, low, span = persons.codes, 0, persons.n_persons
    near = span <= TABLE_PER_ROW * n
    wide = max(0, span - 1).bit_length()
    buckets = min(MOST_BUCKETS, max(0, (wide if near else bits) - BUCKET_BITS), wide)
    dealt = np.uint64(1 if near else SPREAD), np.uint64((1 << wide) - 1), np.uint64(wide - buckets)
    sizes = np.zeros(1 << buckets, np.int64)
    count_buckets(numbers, low, *dealt, sizes)
    places, keys = np.cumsum(sizes) - sizes, np.empty(n, np.uint64)
    fill_buckets(numbers, low, *dealt, np.uint64(bits), places, keys)
    chosen = np.zeros(-(-n // 8), np.uint8)  # bits: few enough to stay in a cache while they are set here and there
    about = np.uint64(SEED), first
    if near:
        mark_by_table(keys, np.uint64(bits), *about, np.zeros(span, np.uint64), chosen)
    elif not mark_by_hash(keys, np.uint64(bits), places, *about, MOST_TRIED, chosen):
        chosen[:] = 0
        keys.sort()
        mark_by_sort(keys, np.uint64(bits), *about, chosen)
    marked = np.unpackbits(chosen, count=n, bitorder="little").view(np.bool_)
    return np.flatnonzero(marked).astype(np.int64, copy=False)


def choose_rows(persons: Persons, most: int, *, score: Any = None, first: int = 0) -> Int64s:
    """Return at most `most` rows of each person, rising: those of the largest public score, then by public chance.

    >>> len(choose_rows(Persons.of([0, 0, 0, 1]), 2))
    3
    """
    count = check_integer(OWNER, "most", most, least=1)
    found = gather_rows(persons, most=count, score=score, first=first).rows - first
    return np.sort(found)


def check_score(score: Any, n_rows: int) -> Float64s:
    """Return a public score for each row, or an empty array where there is none; NaN is refused."""
    if score is None:
        return np.empty(0)
    scores = np.asarray(score)
    if scores.dtype.kind not in "fiub" or scores.shape != (n_rows,):
        got = Described(f"an array of shape {scores.shape} and dtype {scores.dtype}")
        raise invalid(OWNER, "persons_score", f"be {n_rows:,} numbers, one for each row", got=got)
    numbers = scores.astype(np.float64)
    if np.isnan(numbers).any():
        row = int(np.argmax(np.isnan(numbers)))
        raise invalid(OWNER, "persons_score", "have no missing numbers", got=Described(f"one in row {row}"))
    return numbers


# ------------------------------------------------------------------------------------------------------------ statistics


def best_cap(counts: Any, *, reach: float, epsilon: float, delta: float = 0.0) -> int:
    r"""Return how many rows of a person should count at most in a statistic of labels, from public counts alone.

    Let a person have m_i rows, and let at most c of each count: n_c = sum_i min(c, m_i) of n rows, chosen by public chance. A share
    of the table (how many labels are of one class) is then estimated by that of the rows that count. If a person's rows are
    like other rows, so that which of them count says nothing about labels, it has no bias, and its squared error is

        p (1 - p) (1/n_c - 1/n)    by sampling: n_c of n rows, drawn without replacement
      + (c s)^2 v / n_c^2          by noise, whose variance is v (c s)^2 at sensitivity c s

    with p (1 - p) <= 1/4, s = `reach` the sensitivity to one row, and v = 2 / epsilon^2 for Laplace noise, and about
    2 ln(1.25/delta) / epsilon^2 for Gaussian noise. c is the one of least error among all numbers of rows that occur: between two of
    them n_c is a straight line in c, so that both terms are monotone or smooth there; the best whole c between the neighbours of the
    best is looked at too. With few rows noise counts, and the cap is low; with many, sampling.

    >>> best_cap([1] * 900 + [50] * 2, reach=2.0, epsilon=0.1), best_cap([3] * 100_000, reach=2.0, epsilon=1.0)
    (1, 3)
    """
    rows = np.sort(np.asarray(counts, np.int64))
    if len(rows) == 0 or math.isinf(epsilon):
        return int(rows.max(initial=1))
    v = (2.0 * math.log(1.25 / delta) if delta else 2.0) / epsilon**2
    occurring = np.unique(rows)
    error = _cap_error(rows, occurring, reach=reach, v=v)
    best = int(np.argmin(error))
    low = int(occurring[max(0, best - 1)]) if best else 1
    high = int(occurring[min(len(occurring) - 1, best + 1)])
    # Whole numbers around the best one, at most some thousands of them.
    tried = np.unique(np.linspace(low, high, min(high - low + 1, 4096)).astype(np.int64))
    return int(tried[np.argmin(_cap_error(rows, tried, reach=reach, v=v))])


class Counted(NamedTuple):
    """Which rows count in sums of labels where persons own them: None for all; `persons` are those of the rows that do.

    `everyone` owns all rows, `most` is the most rows of one person that count, and `notes` say it in words.
    """

    rows: Int64s | None = None
    persons: Persons | None = None
    everyone: Persons | None = None
    most: int = 1
    notes: tuple[str, ...] = ()


def count_rows(persons: Any, n_rows: int, *, reach: float, epsilon: float, owner: str = OWNER) -> Counted:
    """Return which rows count in a report, at most so many of each person as `best_cap` says; all where persons are None.

    >>> count_rows([0, 0, 0, 1], 4, reach=2.0, epsilon=0.1).notes
    ("at most 1 of each person's rows count: 2 of 4, of 2 persons",)
    """
    if persons is None:
        return Counted()
    everyone = Persons.of(persons, n_rows=n_rows, owner=owner)
    cap = best_cap(everyone.counts, reach=reach, epsilon=epsilon)
    rows = None if cap >= everyone.most_rows else choose_rows(everyone, cap)
    part = everyone if rows is None else everyone.take(rows)
    note = f"at most {part.most_rows} of each person's rows count: {len(part):,} of {n_rows:,}, of {part.n_persons:,} persons"
    if part.most_rows > 1:
        note += ". Intervals about a population take rows as independent, also those of one person"
    return Counted(rows, part, everyone, max(1, part.most_rows), (note,))


def _cap_error(rows: Int64s, caps: Int64s, *, reach: float, v: float) -> Float64s:
    """Return the squared error of a share for each cap; `rows` are sorted."""
    total = np.concatenate([[0], np.cumsum(rows)]).astype(np.float64)
    below = np.searchsorted(rows, caps, side="right")
    counted = total[below] + caps.astype(np.float64) * (len(rows) - below)
    error: Float64s = 0.25 * (1.0 / counted - 1.0 / total[-1]) + v * (caps * reach) ** 2 / counted**2
    return error
