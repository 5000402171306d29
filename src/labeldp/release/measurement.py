"""`measure`: the leaf of the door for statistics: a declared query in, the noisy value and its guarantee out.

A query is public (`labeldp.release.queries`). It says what it would compute, and how far one replaced label can move the answer;
`measure` computes it, adds exact integer noise and hands out only the noisy value. Whoever calls it sees the raw labels, so its
guarantee says that a curator is trusted.

>>> counts = measure([0, 0, 1, 1, 2, 2], LabelCounts(), epsilon=1.0)
>>> counts.value.shape, counts.guarantee.epsilon()
((1, 3), 1.0)

Two callers need counts in another way and get them here too. `Counter` answers a mechanism that asks for noisy counts while
it builds its channel (`ClusterRR`), within the release's own guarantee. `StreamedCounts` counts a table's labels batch by
batch; sums of integers do not depend on their order, and the noise comes from the same place of the same key, so its answer
is that of `measure` on all labels at once, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting import discrete_gaussian_sigma
from labeldp.arrays import Int64s
from labeldp.channel.finite import hash_parts
from labeldp.display import NOT_PRIVATE, card
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.loss import DiscreteGaussian, Gaussian, Loss
from labeldp.loss.discrete import least_variance
from labeldp.mechanisms import MeasuringMechanism
from labeldp.random import BitStream, NoiseKey, as_key
from labeldp.release.budget import Budget, check_measurable
from labeldp.release.labels import SensitiveLabels, as_sensitive, codes_of
from labeldp.release.persons import ASSIGNMENT, Persons, best_cap, choose_rows
from labeldp.release.queries import LabelCounts, Query, Sensitivity, describe_public
from labeldp.samplers import discrete_gaussian, discrete_laplace, rate_below, variance_above
from labeldp.validate import check_delta, check_epsilon, check_integer

#: The widest noise that is drawn: of integers of 64 bits, with a chance below e^-180 that a draw is not one.
MOST_SPREAD = 2.0**56
#: Variances tried before a budget is given up; each is a millionth above the last.
MOST_TRIES = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """A noisy statistic of labels, and what it cost.

    `value` is an integer array; `noise` says how it was made ("discrete Laplace, rate 1/2"), `spread` is the standard
    deviation of its noise, `seeded` that it is reproducible and hence not private. `rows` are, publicly, the rows that count,
    where a person's rows were capped; None where all do.
    """

    value: npt.NDArray[np.int64]
    guarantee: Guarantee
    seeded: bool
    noise: str
    spread: float = 0.0
    ledger_entry: int | None = None
    rows: Int64s | None = None

    def __repr__(self) -> str:
        warning = ", SEEDED: not private" if self.seeded else ""
        return f"<Measurement: {self.value.shape} integers, {self.noise}, {self.guarantee.headline}{warning}>"

    def _repr_html_(self) -> str:
        """Return a card for a notebook: the noisy numbers, their noise, and what they cost."""
        shape = " x ".join(f"{size:,}" for size in self.value.shape)
        rows = [
            ("holds", f"{shape} whole numbers, noise included"),
            ("noise", f"{self.noise}; standard deviation {self.spread:.4g} on each"),
            *self.guarantee.card_rows(),
            *([] if self.rows is None else [("counts", f"{len(self.rows):,} rows, chosen without labels")]),
            ("charged", "to no ledger" if self.ledger_entry is None else f"entry {self.ledger_entry} of a ledger"),
        ]
        return card("Measurement", rows=rows, warning=NOT_PRIVATE if self.seeded else "")


def measure(
    labels: Any,
    query: Query,
    *,
    epsilon: float,
    delta: float = 0.0,
    within: Guarantee | None = None,
    rng: Any = None,
    ledger: Any = None,
    persons: Any = None,
    cap: int | None = None,
) -> Measurement:
    """Release a statistic of labels with exact noise.

    With delta = 0, discrete Laplace noise of rate epsilon / (L1 sensitivity): Pr[z] ~ exp(-rate |z|) in each coordinate.
    Neighbouring answers differ by at most that sensitivity in the 1-norm, so densities differ by e^epsilon at most.
    With delta > 0, discrete Gaussian noise of the least variance that meets (epsilon, delta) at the L2 sensitivity, by the
    exact sums of `labeldp.loss.DiscreteGaussian`.

    `within` is a Gaussian promise that was charged before this measurement (a stage's part of `Budget.share`): the noise is
    such that the promise dominates it, so that the promise still holds when it is composed with others.

    `persons`, a column of ids, makes it a promise about all labels of a person. At most `cap` rows of each count, chosen by public
    chance (`labeldp.release.persons.choose_rows`), and the noise is for what they can move together
    (`Query.person_sensitivity`). Without `cap` the one of least estimated error is taken (`best_cap`), where the query counts
    rows alike; a query with weights of its own counts all of them.

    Guarantee
    ---------
    Pure epsilon, or the exact loss of discrete Gaussian noise, which implies (epsilon, delta), when one label is replaced, or, with
    `persons`, all labels of one person. The one who calls this sees the raw labels: the guarantee says that she is trusted.

    Edge cases
    ----------
    epsilon = inf adds no noise and promises nothing. epsilon = 0 is refused: no finite noise achieves it. So is, before anything is
    charged, a finite one outside of 1e-9 to 1e6 (`labeldp.release.budget.MEASURABLE`), and noise that is wider than 64 bits.

    Example:
    -------
    >>> from labeldp import LabelCounts, measure
    >>> counts = measure([0, 0, 1, 1, 2, 2], LabelCounts(), epsilon=1.0)
    >>> counts.value.shape, counts.guarantee.epsilon(), str(counts.guarantee.trust.words)
    ((1, 3), 1.0, 'a curator')
    """
    if not isinstance(query, Query):
        raise invalid("measure", "query", "be a query", got=query, fix="For example LabelCounts().")
    target, failure = check_measuring(epsilon, delta)
    boxed = as_sensitive(labels, None)
    key = as_key("measure", rng)
    query.check_size(len(boxed))
    owners = None if persons is None else Persons.of(persons, n_rows=len(boxed), owner="measure")
    if owners is None and cap is not None:
        raise invalid("measure", "cap", "come with persons", got=cap, fix="It is how many rows of a person count.")
    budget = Budget(
        owner="measure",
        labels=boxed,
        ledger=ledger,
        seeded=key.seeded,
        persons=owners,
        given=() if owners is None else (ASSIGNMENT,),
    )
    rows, unit, text = None, query.unit, query.name
    if owners is None:
        reach = query.sensitivity(n_classes=boxed.n_classes)
    else:
        query, rows, reach = _limit_persons(
            query, owners, cap=cap, n_classes=boxed.n_classes, epsilon=target, delta=failure
        )
        boxed = boxed if rows is None else boxed.take(rows)
        unit, text = Unit.PERSON, f"{text} of {len(boxed):,} of {len(owners):,} rows of {owners.n_persons:,} persons"
    check_reach(query, reach)
    noise = choose_noise(reach, target, failure, within=within)
    if noise.spread > MOST_SPREAD:
        fix = "Nothing was charged. Use a larger epsilon, or coarser units."
        got = Described(f"{target:g} at a sensitivity of {reach.l1:.3g}: a standard deviation of {noise.spread:.3g}")
        raise invalid("measure", "epsilon", "leave noise that integers of 64 bits hold", got=got, fix=fix)
    guarantee = budget.state(replace(noise.guarantee, unit=unit, trust=query.trust), *query.assumptions)
    entry = budget.charge(guarantee, mechanism=f"{text}, {noise.text}")
    exact = as_whole(query, query.exact(codes_of(boxed), n_classes=boxed.n_classes))
    key = key.through(lambda: describe_public([query, noise.text, noise.rate, noise.variance, rows, exact.shape]))
    noisy = exact + noise.draw(key, exact.size).reshape(exact.shape)
    value = query.present(noisy, n_examples=len(boxed), n_classes=boxed.n_classes)
    return Measurement(
        value=value,
        guarantee=guarantee,
        seeded=key.seeded,
        noise=noise.text,
        spread=noise.spread,
        ledger_entry=entry,
        rows=rows,
    )


def check_reach(query: Query, reach: Sensitivity) -> None:
    """Refuse a sensitivity that no statistic of whole numbers has: they move by 0 or by 1 at least."""
    if not all(one == 0 or one >= 1 for one in reach):
        fix = "Answers are whole numbers: ask for a sum, and divide what `measure` returns."
        got = Described(f"{reach.l1:g} and {reach.l2:g} of {query.name}")
        raise invalid("measure", "query", "state sensitivities of 0, or of 1 or more", got=got, fix=fix)


def as_whole(query: Query, exact: Any) -> Int64s:
    """Return what a query found as integers; noise of integers would leave the digits behind the point as they are."""
    found = np.asarray(exact)
    if found.dtype.kind not in "iu":
        raise PrivacyError(
            f"measure: {query.name}.exact returned {found.dtype}, and exact noise is for integers. Nothing was released, and the "
            "ledger keeps the charge. Round to a public grid there, and state the sensitivity of the rounded sum."
        )
    return found.astype(np.int64)


def _limit_persons(
    query: Query, persons: Persons, *, cap: int | None, n_classes: int, epsilon: float, delta: float
) -> tuple[Query, Int64s | None, Sensitivity]:
    """Return the query of the rows that count, which they are (None for all), and how far one person moves it."""
    if query.unit is not Unit.LABEL:
        got = Described(f"one about `{query.unit.value}`")
        raise invalid("measure", "query", "be about one label where persons are given", got=got, kind=PrivacyError)
    if cap is not None:
        limit = check_integer("measure", "cap", cap, least=1)
    elif query.counts_alike:
        row = query.sensitivity(n_classes=n_classes)
        limit = best_cap(persons.counts, reach=row.l2 if delta else row.l1, epsilon=epsilon, delta=delta)
    else:
        limit = persons.most_rows
    if limit >= persons.most_rows:
        return query, None, query.person_sensitivity(persons, n_classes=n_classes)
    rows = choose_rows(persons, limit)
    part = query.take(rows)
    return part, rows, part.person_sensitivity(persons.take(rows), n_classes=n_classes)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Which exact sampler, with what parameter, and what it promises."""

    rate: Fraction | None = None
    variance: Fraction | None = None
    guarantee: Guarantee

    @property
    def text(self) -> str:
        """The sampler and its parameter, in words."""
        if self.rate is not None:
            return f"discrete Laplace, rate {float(self.rate):.6g}"
        if self.variance is not None:
            return f"discrete Gaussian, variance {float(self.variance):.6g}"
        return "no noise"

    @property
    def spread(self) -> float:
        """The standard deviation: 1 / (sqrt 2 sinh(rate/2)) for Laplace, the root of the parameter for Gaussian noise.

        A discrete Laplace of rate a has variance 2 e^a / (e^a - 1)^2. The discrete Gaussian's is at most its parameter.
        """
        if self.rate is not None:
            half = float(self.rate) / 2.0  # 1 / sinh(h) = 2 e^-h / (1 - e^-2h): sinh of a large one is no float
            return math.sqrt(2.0) * math.exp(-half) / -math.expm1(-2.0 * half)
        return math.sqrt(float(self.variance)) if self.variance is not None else 0.0

    def draw(self, key: NoiseKey, size: int) -> npt.NDArray[np.int64]:
        """Return independent draws; a key that is not seeded serves one measurement only."""
        bits = BitStream(key.claim("measure"))
        if self.rate is not None:
            return discrete_laplace(bits, rate=self.rate, size=size)
        if self.variance is not None:
            return discrete_gaussian(bits, variance=self.variance, size=size)
        return np.zeros(size, np.int64)


def check_measuring(epsilon: Any, delta: Any) -> tuple[float, float]:
    """Return (epsilon, delta) as floats; epsilon 0 is refused, since no finite noise achieves it."""
    target = check_epsilon("measure", epsilon)
    if target == 0:
        fix = "Use a small epsilon > 0, or leave the measurement out."
        raise invalid("measure", "epsilon", "be > 0", got=epsilon, fix=fix)
    return check_measurable("measure", target), check_delta("measure", delta)


def choose_noise(sensitivity: Sensitivity, epsilon: float, delta: float, *, within: Guarantee | None = None) -> Noise:
    """Return the noise that meets the budget for this sensitivity, and that `within` dominates if it is given.

    At delta = 0 a promise of pure epsilon composes as it is, and `within` adds nothing.
    """
    if math.isinf(epsilon) or sensitivity.l1 == 0:  # a statistic that no label can move needs none
        spent = epsilon if sensitivity.l1 else 0.0
        return Noise(guarantee=Guarantee.pure(spent, trust=Trust.CURATOR))
    if delta == 0:
        rate = rate_below(math.nextafter(epsilon / sensitivity.l1, 0.0))
        return Noise(rate=rate, guarantee=Guarantee.pure(epsilon, trust=Trust.CURATOR))
    return _choose_gaussian(sensitivity.l2, epsilon, delta, None if within is None else within.loss)


@lru_cache(maxsize=256)
def _choose_gaussian(reach: float, epsilon: float, delta: float, within: Loss | None) -> Noise:
    """Return discrete Gaussian noise; it depends on no data, so that many measurements at one budget solve it once."""
    if isinstance(within, Gaussian):
        least = least_variance(mu=within.mu, reach=reach)
    elif within is None:
        least = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=reach) ** 2
    else:
        raise invalid("measure", "within", "be a Gaussian promise when delta > 0", got=Described(within.kind))
    variance = variance_above(math.nextafter(least, math.inf))
    for _ in range(MOST_TRIES):
        # The proof by evaluation. A rounded variance may lie where a little more noise is a little worse.
        guarantee = Guarantee.discrete_gaussian(variance=variance, sensitivity=reach, trust=Trust.CURATOR)
        worse = DiscreteGaussian.from_reach(variance=variance, reach=reach).gaussian
        if (within is None or worse.mu <= within.mu) and guarantee.epsilon(delta) <= epsilon:
            return Noise(variance=variance, guarantee=guarantee)
        variance = variance_above(float(variance) * (1 + 1e-6))
    raise invalid("measure", "epsilon", f"be met at delta {delta:g}", got=epsilon, fix="Allow a little more.")


class Counter:
    """Answers a mechanism's questions for noisy counts; the first answer charges the whole release, each has its price.

    The prices and the mechanism's `response_epsilon` may not add up to more than its guarantee: they are added exactly,
    and the door refuses before anything is counted. `pay` is called once, before the first draw. `count(query, epsilon,
    key)` answers a `LabelCounts` with noisy counts: `measure` for labels in memory, `StreamedCounts` for those of a table.
    """

    def __init__(
        self,
        count: Callable[[LabelCounts, float, NoiseKey], npt.NDArray[np.int64]],
        mechanism: MeasuringMechanism,
        key: NoiseKey,
        pay: Callable[[], int | None],
        *,
        start: int,
    ) -> None:
        self._count, self._mechanism, self._key, self._pay, self._start = count, mechanism, key, pay, start
        self._prices: list[float] = []
        self._paid = False
        self._entry: int | None = None
        self.counts: npt.NDArray[np.int64] | None = None
        self.groups: npt.NDArray[np.int64] | None = None

    def __call__(self, groups: Any, n_groups: int, epsilon: float) -> npt.NDArray[np.int64]:
        """Return noisy counts, one row per group."""
        query = LabelCounts(groups=groups, n_groups=n_groups)
        self._prices.append(epsilon)
        self._check_prices()
        check_measurable("privatize", epsilon, of=self._mechanism.guarantee.epsilon())
        self.settle()
        # The noise belongs to this question about these rows: another piece of a data set must not repeat it.
        key = self._key.child("counts", self._start, len(self._prices))
        self.counts = self._count(query, epsilon, key)
        self.groups = query.groups
        return self.counts

    @property
    def shares(self) -> npt.NDArray[np.float64] | None:
        """The last counts as probabilities, a belief that whoever receives the release may use; None if none were asked."""
        return None if self.counts is None else shares(self.counts)

    def settle(self) -> int | None:
        """Charge the release if it was not charged yet, and return the ledger's entry."""
        if not self._paid:
            self._entry, self._paid = self._pay(), True
        return self._entry

    def _check_prices(self) -> None:
        promised = self._mechanism.guarantee.epsilon()
        if math.isinf(promised):
            return
        parts = [*self._prices, self._mechanism.response_epsilon]
        if not all(map(math.isfinite, parts)) or sum(map(Fraction, parts), Fraction(0)) > Fraction(promised):
            raise PrivacyError(
                f"privatize: {self._mechanism!r} claims epsilon = {promised!r}, but asks for counts and a response that "
                f"cost {' + '.join(map(repr, parts))}. Nothing was drawn. Fix the mechanism's budget."
            )


class StreamedCounts:
    """Labels counted by class in public groups, as they come; only the noisy counts come out.

    Guarantee
    ---------
    That of ``measure(labels, LabelCounts(groups=...), epsilon=...)`` on all the labels at once: the same sensitivity
    (2, or 1 for two classes), the same noise. Charging is the caller's, once for the whole stream and before `release`.

    Example:
    -------
    >>> counts = StreamedCounts(n_groups=1, n_classes=3)
    >>> for part in ([0, 1], [2, 2]):
    ...     counts.add(SensitiveLabels(part, n_classes=3), np.zeros(2, np.int64))
    >>> counts
    <StreamedCounts: 4 labels of 3 classes in 1 groups, contents hidden>
    >>> counts.release(epsilon=1.0, key=NoiseKey.from_os()).value.shape
    (1, 3)
    """

    __slots__ = ("_exact", "_groups", "_sizes", "n_classes", "n_groups")

    def __init__(self, *, n_groups: int, n_classes: int) -> None:
        self.n_groups, self.n_classes = n_groups, n_classes
        self._exact = np.zeros((n_groups, 1 if n_classes == 2 else n_classes), np.int64)
        self._sizes = np.zeros(n_groups, np.int64)
        # A sum of hashes of batches with their places: who is in which group, in whatever order they came.
        self._groups = 0

    def __repr__(self) -> str:
        size = f"{int(self._sizes.sum())} labels of {self.n_classes} classes in {self.n_groups} groups"
        return f"<StreamedCounts: {size}, contents hidden>"

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The public size of each group."""
        return self._sizes.copy()

    def add(self, labels: SensitiveLabels, groups: npt.NDArray[np.int64], *, start: int = 0) -> None:
        """Count a batch, whose first row is at position `start` of the stream."""
        query = LabelCounts(groups=groups, n_groups=self.n_groups)
        self._exact += query.exact(codes_of(labels), n_classes=self.n_classes)
        self._sizes += np.bincount(groups, minlength=self.n_groups)
        self._groups += int(hash_parts([str(start).encode(), np.asarray(groups)]), 16)

    def joined(self, other: StreamedCounts) -> StreamedCounts:
        """Return the counts of two disjoint sets of rows together: sums, in whatever order, of whole numbers."""
        both = StreamedCounts(n_groups=self.n_groups, n_classes=self.n_classes)
        both._exact += self._exact + other._exact
        both._sizes += self._sizes + other._sizes
        both._groups = self._groups + other._groups
        return both

    def release(self, *, epsilon: float, key: NoiseKey) -> Measurement:
        """Return the noisy counts (C, K); with two classes the first follows from the public group size.

        Noise that has no seed is that of this question: of these groups of these rows, at this rate. A job of a table whose copy goes
        on elsewhere, with other groups, has other noise there.
        """
        target, _ = check_measuring(epsilon, 0.0)
        noise = choose_noise(LabelCounts().sensitivity(n_classes=self.n_classes), target, 0.0)
        key.claim_call("to count a stream")  # once, whatever the groups
        key = key.apart().through(
            lambda: describe_public([self._groups, self.n_groups, self.n_classes, noise.text, noise.rate])
        )
        noisy = self._exact + noise.draw(key, self._exact.size).reshape(self._exact.shape)
        if self.n_classes == 2:
            noisy = np.stack([self._sizes - noisy[:, 0], noisy[:, 0]], axis=1)
        return Measurement(value=noisy, guarantee=noise.guarantee, seeded=key.seeded, noise=noise.text)


def shares(counts: Any) -> npt.NDArray[np.float64]:
    """Return noisy counts as probabilities: clipped at 0 and divided by their sum; nothing left means uniform.

    >>> shares([[3, -1], [-2, 0]]).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    clipped = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    total = clipped.sum(axis=1, keepdims=True)
    uniform = np.full(clipped.shape, 1.0 / clipped.shape[1])
    return np.asarray(np.divide(clipped, total, out=uniform, where=total > 0), np.float64)
