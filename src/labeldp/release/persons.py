r"""Persons: who owns which row, and which of her labels are asked so that all of them together cost epsilon.

A patient has several stays, a customer several visits. A promise about one label is then no promise about her: with m rows her
loss is m times as large. Here the unit is the person (`Unit.PERSON`): all her labels may be replaced at once. Rows and who owns
them are public; labels are not.

>>> from labeldp.mechanisms import InformativeResponse
>>> persons = Persons.of(["ann", "bob", "ann", "ann"])
>>> persons
<Persons: 4 rows of 2 persons, at most 3 of one>
>>> plan = plan_answers(persons, InformativeResponse(1.0, n_classes=2))
>>> len(plan.rows), plan.person_epsilon(), plan.label_epsilon
(2, 1.0, 1.0)

**What an answer can tell.** Her labels (y_1, .., y_m) are one label with K^m values. Whatever she answers at epsilon about it, its
information is at most x - 1 - ln x, x = epsilon / (1 - e^-epsilon), however many rows she has (`most_information`). One answer about
one label has most of that already. Information grows with the square of a small epsilon, so epsilon / m for each of m rows
gives about 1/m of it. So the default asks one row of each person, and more where c answers at epsilon / c are computed to tell
more than one at epsilon (`best_answers`).

| way | rows that are asked | each at | her epsilon |
|---|---|---|---|
| "one" | c = min(c*, her m rows): c* maximises c I(epsilon / c) | epsilon / c | epsilon |
| "common" | min(c, m), with one c for everybody: that of most information in all | epsilon / c | min(c, m) epsilon / c |
| "shares" | all | epsilon / m | epsilon |
| "group" | all | epsilon / (the most rows of anyone) | m epsilon / most rows |

Where c* is 1, which it is below an epsilon of 3.7 with two classes and of more with more (docs/persons.md), "one" and "common" are the same. Tables are answered at one epsilon, by
"common" or "group". Shares are the largest floats whose exact sum keeps within epsilon (`equal_parts`).

**Which row.** The one of the largest public score, and of equal ones by public chance: a function of a public seed and the row's
position, never of the noise's key and never of labels. Nobody learns anything from which rows were asked, since everybody
could have told beforehand.

**Guarantee.** The answers of a person's rows are drawn independently given her labels. Let x_i be the channel of row i, with exact
epsilon e_i. For two vectors of labels y, z of hers and any answers o, Pr[o | y] / Pr[o | z] = prod_i x_i[y_i, o_i] / x_i[z_i, o_i] <=
exp(sum_i e_i) over her answered rows; rows without an answer contribute nothing. Other persons' answers have the same law. So the
release is pure epsilon-DP per person with epsilon the largest sum over persons (`person_epsilon`, in exact rationals).
The bound is tight: choose the worst pair of labels and the worst answer in every row.

Design notes. `Persons` and the plan know no label. A table too large to hold is planned from its column of ids by `gather_rows` of
each piece and `RowsOfPersons.join`, which gives the rows that one call on all of it gives. What is in memory is, for each
person, her id, a count (8 bytes) and, for each of her rows that may be asked, a position, a score, a word and her number (32 bytes):
48 bytes a person with ids of whole numbers, and while two pieces are joined three times that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Float64s, Int64s, Ints, Words
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.loss import Pure
from labeldp.loss.rounding import fraction_up
from labeldp.mechanisms import MeasuringMechanism, Mechanism, answer_worth
from labeldp.release.budget import equal_parts
from labeldp.validate import check_choice, check_integer

OWNER = "persons"
#: The ways in which a person's epsilon is spent on her rows.
WAYS = ONE, COMMON, SHARES, GROUP = "one", "common", "shares", "group"
_WORDS = {
    ONE: "one answer, or the few that tell more",
    COMMON: "so many answers at most",
    SHARES: "equal shares",
    GROUP: "by the most rows of anyone",
}
#: Of public chance: which row is asked where scores are equal. Pass a score of your own for another choice.
SEED = 0
#: What is assumed where persons are handed in, and where a score chose their rows.
ASSIGNMENT, CHOICE = "assignment of rows to persons", "score of rows"
#: Whole numbers beyond this are not told apart as floats.
MOST_WHOLE = 2.0**53


@dataclass(frozen=True, kw_only=True, eq=False)
class Persons:
    """Who owns each row: public.

    Fields
    ------
    codes : integers of shape (n,)
        The person of each row, 0 .. P-1, in the order in which persons first occur.
    ids : Arrow array of P entries
        What each of them is called: text or whole numbers.

    Make one with `Persons.of`, from a column of ids.
    """

    codes: Int64s = field(repr=False)
    ids: Any = field(repr=False)

    @classmethod
    def of(cls, ids: Any, *, n_rows: int | None = None, owner: str = OWNER) -> Persons:
        """Return the persons that a column of ids names, one id for each row; `Persons` are returned as they are.

        An id is text or a whole number. Whole floats count as the integers they are, so that a column with 1 and 1.0 names one
        person. Refused, since a person could hide in two: missing ids, a mixture of text and numbers (is "1" the
        person 1?), text with spaces around it, fractions, booleans, dates.

        >>> Persons.of([7, 7, 8]).codes.tolist()
        [0, 0, 1]
        """
        if isinstance(ids, Persons):
            found = ids
        else:
            column = read_ids(ids, owner=owner)
            encoded = column.dictionary_encode()
            found = cls(codes=encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), ids=encoded.dictionary)
        if n_rows is not None and len(found) != n_rows:
            got = Described(f"{len(found):,} for {n_rows:,} rows")
            raise invalid(owner, "persons", "have one id for each row", got=got)
        return found

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_persons(self) -> int:
        """P: how many persons have a row."""
        return len(self.ids)

    @cached_property
    def counts(self) -> Int64s:
        """How many rows each person has (P,)."""
        return np.bincount(self.codes, minlength=self.n_persons).astype(np.int64)

    @property
    def most_rows(self) -> int:
        """The most rows that one person has."""
        return int(self.counts.max(initial=0))

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of which rows belong together, and of nothing else: what the persons are called does not matter."""
        return hashlib.sha256(b"labeldp persons 1\n" + self.codes.astype("<i8").tobytes()).hexdigest()

    def take(self, rows: Any) -> Persons:
        """Return the persons of some rows, numbered anew; who has none of them is not among them."""
        import pyarrow as pa

        part = self.codes[rows]
        encoded = pa.array(part).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Persons(codes=codes, ids=self.ids.take(encoded.dictionary))

    def rows_of(self, chosen: Any) -> Int64s:
        """Return the rows of some persons, given as a mask over the P persons: a part that splits nobody."""
        mask = np.asarray(chosen)
        if mask.shape != (self.n_persons,) or mask.dtype != np.bool_:
            got = Described(f"an array of shape {mask.shape} and dtype {mask.dtype}")
            raise invalid(OWNER, "chosen", f"be a mask over {self.n_persons:,} persons", got=got)
        return np.flatnonzero(mask[self.codes]).astype(np.int64)

    def sums(self, values: Any) -> Float64s:
        """Return the sum of a number per row, for each person (P,), as floats; `largest_sum` is a bound on the largest."""
        weights = np.asarray(values, np.float64)
        return np.bincount(self.codes, weights=weights, minlength=self.n_persons).astype(np.float64)

    def largest_sum(self, values: Any) -> float:
        """Return an upper bound on the largest sum of numbers >= 0 over one person's rows; exact up to rounding up.

        A sum of m floats >= 0 errs by at most (m - 1) 2^-53 relatively; whole numbers below 2^53 are summed exactly.
        """
        given = np.asarray(values, np.float64)
        top = float(self.sums(given).max(initial=0.0))
        if top < MOST_WHOLE and bool(np.all(given == np.floor(given))):
            return top
        return top * (1.0 + (self.most_rows + 2) * 2.0**-52)

    def __repr__(self) -> str:
        return f"<Persons: {len(self):,} rows of {self.n_persons:,} persons, at most {self.most_rows:,} of one>"


def read_ids(ids: Any, *, owner: str = OWNER) -> Any:
    """Return a column of ids as an Arrow array of text or of int64, with none missing: the one check of ids.

    >>> read_ids([1.0, 2.0]).to_pylist()
    [1, 2]
    >>> read_ids([1, "1"])
    Traceback (most recent call last):
    labeldp.errors.LabelDPError: persons: `persons` must be ids of one type, got text and numbers. ...
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _as_arrow(ids, owner)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    gone = pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
    if gone:
        fix = "Drop such rows, or give each an id of its own: rows without an id cannot be one person's."
        raise invalid(owner, "persons", "have no missing ids", got=Described(f"{gone:,} missing"), fix=fix)
    if pa.types.is_integer(kind):
        if kind == pa.uint64() and len(column) and pc.max(column).as_py() >= 1 << 63:
            raise invalid(owner, "persons", "be below 2^63", got=Described("larger ones"), fix="Give them as text.")
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not (np.all(numbers == np.floor(numbers)) and np.all(np.abs(numbers) < MOST_WHOLE)):
            fix = "A float does not name a person: give whole numbers, or text."
            raise invalid(owner, "persons", "be text or whole numbers", got=Described("fractions"), fix=fix)
        return pa.array(numbers.astype(np.int64))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_string())
        trimmed = pc.utf8_trim_whitespace(column)
        if not trimmed.equals(column):
            fix = "Take the spaces away first: 'ann' and 'ann ' would be two persons."
            raise invalid(owner, "persons", "have no spaces around them", got=Described("some"), fix=fix)
        if len(column) and pc.min(pc.binary_length(column)).as_py() == 0:
            fix = "An empty text is a missing id: drop such rows, or give each an id of its own."
            raise invalid(owner, "persons", "have no missing ids", got=Described("empty ones"), fix=fix)
        return column
    raise invalid(owner, "persons", "be text or whole numbers", got=Described(f"{kind}"), fix="Give them as text.")


def _as_arrow(ids: Any, owner: str) -> Any:
    """Return a column of any library as an Arrow array."""
    import pyarrow as pa

    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        return ids
    if hasattr(ids, "to_arrow"):  # polars
        return ids.to_arrow()
    plain = ids
    if not (hasattr(ids, "dtype") and hasattr(ids, "array")):  # pandas has both, and pyarrow knows it
        plain = np.asarray(ids)
        if plain.ndim != 1:
            got = Described(f"an array of shape {plain.shape}")
            raise invalid(owner, "persons", "be one id for each row", got=got)
        if plain.dtype.kind in "US" and isinstance(ids, (list, tuple)):
            plain = np.array(ids, dtype=object)  # NumPy would turn 1 beside "a" into text
    try:
        return pa.array(plain, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        fix = (
            "Is the person 1 the same as '1'? Make them all text, or all whole numbers, so that one person has one id."
        )
        raise invalid(owner, "persons", "be ids of one type", got=Described("text and numbers"), fix=fix) from None


def check_apart(persons: Persons, parts: Sequence[Any]) -> None:
    """Refuse parts of the rows of which two have rows of one person: releases of them do not compose in parallel.

    >>> check_apart(Persons.of(["ann", "bob", "ann"]), [[0, 1], [2]])
    Traceback (most recent call last):
    labeldp.errors.PrivacyError: persons: `parts` must not have rows of one person in two of them, got 1 such person. ...
    """
    seen = np.full(persons.n_persons, -1, np.int64)
    split = np.zeros(persons.n_persons, np.bool_)
    for number, rows in enumerate(parts):
        mine = np.unique(persons.codes[rows])
        split[mine] |= seen[mine] >= 0
        seen[mine] = number
    count = int(split.sum())
    if count:
        got = Described(f"{count:,} such person{'s' if count > 1 else ''}")
        fix = "Split persons, not rows (Persons.rows_of); or compose the releases in sequence."
        raise invalid(OWNER, "parts", "not have rows of one person in two of them", got=got, fix=fix, kind=PrivacyError)


# ----------------------------------------------------------------------------------------------------- the plan of answers


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerPlan:
    """Which rows are answered, and with which epsilon: a function of public things.

    Fields
    ------
    way : str
        "one", "common", "shares" or "group".
    epsilon : float
        What a person may spend in all.
    n_rows, n_persons : int
        Of all rows, answered or not.
    rows : int64 of shape (A,)
        The positions of the answered rows among all, rising.
    owners : int64 of shape (A,)
        The person of each answered row; her number says only which rows are hers.
    epsilons : tuple of floats
        The different epsilons of an answer, falling.
    share : uint16 of shape (A,)
        Which of them each answered row has.
    """

    way: str
    epsilon: float
    n_rows: int
    n_persons: int
    rows: Int64s = field(repr=False)
    owners: Int64s = field(repr=False)
    epsilons: tuple[float, ...]
    share: Ints = field(repr=False)

    @property
    def label_epsilon(self) -> float:
        """The most that is spent on one label."""
        return max(self.epsilons)

    def parts(self) -> list[tuple[float, Int64s]]:
        """Return each epsilon with the positions of the rows that are answered at it."""
        return [(epsilon, self.rows[self.share == place]) for place, epsilon in enumerate(self.epsilons)]

    def person_epsilon(self, actual: Sequence[float] | None = None) -> float:
        """Return the largest sum of epsilons over one person's answered rows: exact, and then rounded up to a float.

        `actual` are the epsilons that the channels really have, in the place of those that were planned.
        """
        each = list(self.epsilons if actual is None else actual)
        if any(math.isinf(one) for one in each) and len(self.rows):
            return math.inf
        exact = [Fraction(one) for one in each]
        if len(each) == 1:  # as it nearly always is: her number of answers, times their epsilon
            return fraction_up(exact[0] * int(np.bincount(self.owners).max(initial=0)))
        pairs = self.owners * np.int64(len(each)) + self.share.astype(np.int64)
        found, counts = np.unique(pairs, return_counts=True)
        owners, shares = found // len(each), found % len(each)
        worst = Fraction(0)
        alone = np.ones(len(found), np.bool_)
        if len(found) > 1:
            same = owners[1:] == owners[:-1]
            alone[1:] &= ~same
            alone[:-1] &= ~same
        # Whoever has one epsilon in all her rows is one of few cases; the others are added up one by one.
        for share in range(len(each)):
            most = int(counts[alone & (shares == share)].max(initial=0))
            worst = max(worst, exact[share] * most)
        rest = np.flatnonzero(~alone)
        total, last = Fraction(0), -1
        for place in rest.tolist():
            total = (total if owners[place] == last else Fraction(0)) + exact[shares[place]] * int(counts[place])
            last = owners[place]
            worst = max(worst, total)
        return fraction_up(worst)

    def information(self, information: Callable[[float], float]) -> float:
        """Return the mean over persons of the nats that her answers have, added up over her rows.

        `information` gives the nats of one answer at an epsilon (`information_of`).
        """
        counts = np.bincount(self.share, minlength=len(self.epsilons))
        total = math.fsum(int(count) * information(one) for one, count in zip(self.epsilons, counts, strict=True))
        return total / max(1, self.n_persons)

    def promise_for(self, promise: Guarantee) -> Guarantee:
        """Return the plan's promise about a person, with the trust and assumptions of a mechanism's promise about a label.

        The door compares the channels with it. Refused for a plan that does not keep its own epsilon.
        """
        spent = self.person_epsilon()
        if not spent <= self.epsilon:
            raise PrivacyError(f"persons: a plan of epsilon {spent!r} for a person does not keep {self.epsilon!r}.")
        loss, label = Pure(worst=self.epsilon), Pure(worst=self.label_epsilon)
        return replace(promise, loss=loss, unit=Unit.PERSON, label_loss=label)

    def describe(self, mechanism: str) -> str:
        """Return what was asked, in words: the mechanism, and how many rows of how many persons."""
        return (
            f"{mechanism} for each of {self.n_persons:,} persons ({_WORDS[self.way]}: {len(self.rows):,} of "
            f"{self.n_rows:,} rows answered)"
        )

    @property
    def digest(self) -> str:
        """A SHA-256 of which rows are answered and how: part of what a job is."""
        facts = repr((self.way, self.epsilon, self.n_rows, self.epsilons)).encode()
        parts = (self.rows.astype("<i8"), self.share.astype("<u2"))
        return hashlib.sha256(b"\n".join([facts, *(part.tobytes() for part in parts)])).hexdigest()


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
    most = persons.most_rows
    if way in (SHARES, GROUP):
        return gather_rows(persons, most=None, first=first).plan(way=way, epsilon=epsilon, most=most, first=first)
    information = information_of(mechanism, n_classes=n_classes, prior=prior)
    most = best_answers(epsilon, information, most=most)
    if way == COMMON:
        most = best_common(epsilon, information, persons.counts, most=most)
    return gather_rows(persons, most=most, score=score, first=first).plan(
        way=way, epsilon=epsilon, most=most, first=first
    )


def check_person_mechanism(mechanism: Mechanism) -> float:
    """Return the epsilon of a mechanism that can answer for persons; refuse one whose promise does not add up over rows."""
    promise = mechanism.guarantee
    epsilon = promise.epsilon()
    if isinstance(mechanism, MeasuringMechanism) or (math.isinf(epsilon) and promise.delta(0.0) < 1.0):
        got = Described(repr(mechanism))
        fix = "Use InformativeResponse, RandomizedResponse, RRWithPrior, UnbiasedResponse, ..., whose answers are of one label each."
        raise invalid(
            "privatize", "mechanism", "be pure and ask labels alone where persons are given", got=got, fix=fix
        )
    return epsilon


def information_of(
    mechanism: Mechanism, *, n_classes: int | None = None, prior: Any = None
) -> Callable[[float], float]:
    """Return the function that gives the nats of one answer of this mechanism at an epsilon, remembered.

    Labels follow the mean of the prior's rows, or are equally likely. It is the exact mutual information of label and answer
    under the channel's own matrix (`labeldp.mechanisms.answer_worth`).
    """
    law = _mean_prior(mechanism, n_classes, prior)
    known: dict[float, float] = {}

    def information(epsilon: float) -> float:
        if epsilon not in known:
            worth = answer_worth(mechanism.with_epsilon(epsilon), law, informed=prior is not None, rows=4)
            known[epsilon] = worth.information
        return known[epsilon]

    return information


def _mean_prior(mechanism: Mechanism, n_classes: int | None, prior: Any) -> Float64s:
    """Return one law of labels: the mean of the prior's rows, or the uniform one."""
    if isinstance(prior, np.ndarray) or (isinstance(prior, (list, tuple)) and np.ndim(prior) in (1, 2)):
        rows = np.atleast_2d(np.asarray(prior, np.float64))
        step = max(1, len(rows) // 4096)
        mean = rows[::step].mean(axis=0)
        law: Float64s = mean / mean.sum()
        return law
    size = n_classes
    if mechanism.takes_numbers:
        size = len(mechanism.levels)  # type: ignore[attr-defined]  # whoever takes numbers has levels
    elif size is None:
        size = getattr(mechanism, "n_classes", None)
    if size is None:
        fix = "Give the mechanism its n_classes, or a prior."
        raise invalid(OWNER, "n_classes", "be known", got=None, fix=fix)
    return np.full(size, 1.0 / size)


def best_answers(epsilon: float, information: Callable[[float], float], *, most: int) -> int:
    """Return the number c of answers, at epsilon / c each, that tell most: c I(epsilon / c), at most `most`.

    I(e) / e, the information per unit of epsilon, rises from 0 and falls again once an answer tells nearly all there is to
    tell; so c I(epsilon / c) rises and then falls, and the first c after which it falls is the best. Infinite epsilon
    asks everything, and zero asks one.

    >>> from labeldp.mechanisms import InformativeResponse
    >>> [best_answers(e, information_of(InformativeResponse(1.0, n_classes=2)), most=40) for e in (0.5, 2.0, 4.0, 12.0)]
    [1, 1, 2, 5]
    """
    limit = check_integer(OWNER, "most", most, least=0)
    if math.isinf(epsilon):
        return max(1, limit)
    best, count = information(epsilon), 1
    while count < limit:
        told = (count + 1) * information(equal_parts(epsilon, count + 1))
        if not told > best * (1 + 1e-9):  # sums in floats: a gain below that is none
            break
        best, count = told, count + 1
    return count


def best_common(epsilon: float, information: Callable[[float], float], counts: Any, *, most: int) -> int:
    """Return the c, at most `most`, for which everybody's answers tell most at one epsilon: sum_i min(c, m_i) I(epsilon / c).

    Beyond c* (`best_answers`) c I(epsilon / c) falls, and min(c, m) / c does not rise: `most` need be no larger than that.
    """
    if math.isinf(epsilon):
        return most
    rows = np.asarray(counts, np.int64)
    told = [int(np.minimum(rows, c).sum()) * information(equal_parts(epsilon, c)) for c in range(1, most + 1)]
    return int(np.argmax(told)) + 1


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


def _cap_error(rows: Int64s, caps: Int64s, *, reach: float, v: float) -> Float64s:
    """Return the squared error of a share for each cap; `rows` are sorted."""
    total = np.concatenate([[0], np.cumsum(rows)]).astype(np.float64)
    below = np.searchsorted(rows, caps, side="right")
    counted = total[below] + caps.astype(np.float64) * (len(rows) - below)
    error: Float64s = 0.25 * (1.0 / counted - 1.0 / total[-1]) + v * (caps * reach) ** 2 / counted**2
    return error
