r"""`measure_vector` and `curate`: the door for real-valued statistics of labels, and for whole private procedures.

`measure` adds exact noise to integers. A minimiser of a loss, or a one-hot label to be averaged later, is a vector of
real numbers: `measure_vector` rounds it to a grid, and measures the integers. `curate` runs a procedure that makes its own
noise, such as samples from a private distribution. In both, raw codes are handed out inside the door only, to the object
whose stated guarantee was charged first.

>>> import numpy as np
>>> class Share(VectorQuery):
...     def size(self, *, n_classes, n_examples):
...         return 1
...
...     def sensitivity(self, *, n_classes, n_examples):
...         return 1.0 / n_examples
...
...     def exact(self, codes, *, n_classes):
...         return np.array([np.mean(codes == 1)])
>>> share = measure_vector([False, True, True, True], Share(), epsilon=1.0, delta=1e-5, rng=0)
>>> share.value.shape, share.guarantee.epsilon(1e-5) <= 1.0, share.seeded
((1,), True, True)
>>> float(share.value[0] / share.step) == round(share.value[0] / share.step), share.step
(True, 3.814697265625e-06)

*Why a grid.* A float plus a float is not a real plus a real. A normal computed from 53 random bits takes few of the floats
near it, and the sum v + sigma z can reach other floats from v than from v': who knows both tells them apart by asking
which of them could have made the answer (Mironov 2012 for Laplace noise; the same for Gaussian noise). Here

- v is brought within [-2^52 g, 2^52 g] in each coordinate. That is a projection on a box: it moves no two vectors apart;
- k = the integers nearest to v / g, for a step g that is a power of two, so that the quotient is exact. Rounding moves each
  coordinate by 1/2 at most, so that neighbours with |v - v'| <= s have |k - k'| <= s / g + sqrt d;
- k + (exact discrete Gaussian noise) is measured, by `measure`, at that sensitivity. Its law is the stated one: every
  decision of the sampler compares integers. What comes out is g times an integer: a function of what was measured.

The step is public: it follows from d, s and the noise alone. It is small enough that sqrt d g <= 2^-16 s, so that rounding
costs less than 2e-5 of the noise, and that sigma is at least 2^11 steps. An answer that is whole already (`whole`) costs
nothing to round.

References: Mironov, "On significance of the least significant bits for differential privacy" (2012); Canonne, Kamath,
Steinke, "The Discrete Gaussian for Differential Privacy" (2020).

Design notes. An error is seen by whoever runs the code, and no noise covers it. So what can fail by the labels must not
fail: numbers that are too large are brought back, not refused. Only a NaN is refused, after the charge: a statistic that
is not a number for some labels has no sensitivity, and its query is wrong.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.arrays import Float64s, Int64s
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.random import BitStream, as_key
from labeldp.release.budget import Budget
from labeldp.release.labels import SensitiveLabels, as_sensitive, codes_of
from labeldp.release.measurement import measure
from labeldp.release.persons import ASSIGNMENT, Persons
from labeldp.release.queries import Query, Sensitivity, round_to_integers
from labeldp.validate import check_delta, check_epsilon, check_integer

FLOATING_POINT = "noise and statistic are floating-point numbers, taken for real ones"
#: sqrt d steps are at most this share of the sensitivity.
FINE = 2.0**-16
#: sigma is at least half this many steps: more would leave the sampler's fast integers for no use.
STEPS_TO_SIGMA = 2.0**12
#: Answers are within this many steps of 0, before noise: a sum with noise is exact in a float.
MOST_STEPS = 1 << 52
#: Sensitivities beyond this or below its inverse are refused: their steps would leave the range of floats.
EXTREME = 2.0**900


class VectorQuery(abc.ABC):
    """A statistic of labels: real numbers, with a stated L2 sensitivity in a stated unit.

    `unit` is the change that the sensitivity speaks of. `trust` is whom this noise needs: a curator, unless every entry
    is made of one label alone, and its owner could have drawn the noise herself. `whole` says that all entries are whole
    numbers.
    """

    unit: Unit = Unit.LABEL
    trust: Trust = Trust.CURATOR
    whole: bool = False
    #: What the statement of the sensitivity stands on.
    assumptions: tuple[str, ...] = ()

    @abc.abstractmethod
    def size(self, *, n_classes: int, n_examples: int) -> int:
        """How many numbers `exact` returns: a public fact."""

    @abc.abstractmethod
    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """How far one change of the unit moves what `exact` returns, in the 2-norm; an upper bound.

        It bounds the floats that are returned: what rounding or a solver's tolerance adds is part of it.
        """

    def row_reach(self, *, n_classes: int, n_examples: int) -> Float64s | None:
        """How far each row's label moves what `exact` returns, in the 2-norm (n,); None where only the largest is known."""
        return None

    def person_sensitivity(self, persons: Persons, *, n_classes: int, n_examples: int) -> float:
        """How far all labels of one person, replaced together, move what `exact` returns: an upper bound.

        Labels are replaced one after the other: by the triangle inequality it is at most the sum over her rows of what each
        moves. A sum of labels times features moves by the range of labels times |x_i| in row i, so that weights with
        sum_i w_i range |x_i| <= R over each person's rows have sensitivity R.
        """
        reach = self.row_reach(n_classes=n_classes, n_examples=n_examples)
        if reach is None:
            reach = np.full(n_examples, self.sensitivity(n_classes=n_classes, n_examples=n_examples))
        return persons.largest_sum(reach)

    @abc.abstractmethod
    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Float64s:
        """Compute the statistic from raw codes: only `measure_vector` calls this, after the charge.

        It must not fail in a way that depends on the codes: an error is seen, and no noise covers it.
        """


class Procedure(abc.ABC):
    """A computation that sees raw codes, draws its own noise and returns only what its guarantee covers.

    Whoever writes one proves its guarantee: `curate` cannot check it. `exact_noise` says that every draw decides by
    integers, so that the law of the answer is the stated one; otherwise the guarantee names `FLOATING_POINT`.
    """

    exact_noise: bool = False

    @abc.abstractmethod
    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """What is promised about whatever `run` returns; known before it runs."""

    @abc.abstractmethod
    def run(self, codes: npt.NDArray[Any], *, n_classes: int, bits: BitStream) -> Float64s:
        """Compute the private answer: only `curate` calls this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorMeasurement:
    """A private vector of reals and what it cost.

    Of Gaussian noise `sigma` is the spread and `step` the grid: every entry of `value` is a multiple of it.
    """

    value: Float64s
    guarantee: Guarantee
    seeded: bool
    noise: str
    sigma: float | None = None
    step: float | None = None
    ledger_entry: int | None = None

    def __repr__(self) -> str:
        warning = ", SEEDED: not private" if self.seeded else ""
        return f"<VectorMeasurement: {self.value.shape} reals, {self.noise}, {self.guarantee.headline}{warning}>"


def measure_vector(
    labels: Any,
    query: VectorQuery,
    *,
    epsilon: float,
    delta: float,
    rng: Any = None,
    ledger: Any = None,
    persons: Any = None,
) -> VectorMeasurement:
    """Release a real statistic of labels, rounded to a public grid, with exact discrete Gaussian noise.

    With `persons`, a column of ids, the noise is for all labels of a person (`VectorQuery.person_sensitivity`).

    Guarantee
    ---------
    (epsilon, delta) in the query's unit: that of `measure` for integers of L2 sensitivity s / g + sqrt d (s / g if the
    answer is whole). The one who calls this sees the raw labels, and is trusted with them, unless the query says that its
    noise needs no one.

    Edge cases
    ----------
    epsilon = inf adds no noise, does not round and promises nothing. delta = 0 is refused: Gaussian noise is never pure.
    A sensitivity of 0 says that labels have no say: no noise, nothing spent. Entries beyond 2^52 steps are brought back to
    that, infinite ones too. An answer that is NaN, or has another size than stated, is refused after the charge: its
    query is wrong, and what it told of the labels by failing is not covered.
    """
    if not isinstance(query, VectorQuery):
        raise invalid("measure_vector", "query", "be a query for a vector", got=query)
    target = check_epsilon("measure_vector", epsilon)
    if check_delta("measure_vector", delta) == 0:
        raise invalid("measure_vector", "delta", "be > 0: Gaussian noise is never pure", got=delta)
    if target == 0:
        raise invalid("measure_vector", "epsilon", "be > 0", got=epsilon, fix="No finite noise achieves 0.")
    boxed = as_sensitive(labels, None)
    sizes = {"n_classes": boxed.n_classes, "n_examples": len(boxed)}
    owners = None if persons is None else Persons.of(persons, n_rows=len(boxed), owner="measure_vector")
    reach = query.sensitivity(**sizes) if owners is None else _person_reach(query, owners, sizes)
    if math.isinf(target) or reach == 0:
        return _release_bare(boxed, query, reach, rng=rng, ledger=ledger, persons=owners)
    if not 1.0 / EXTREME < reach < EXTREME:
        raise invalid("measure_vector", "sensitivity", "be within 2^-900 and 2^900", got=reach)
    size = check_integer("measure_vector", "size", query.size(**sizes), least=1)
    on_grid = OnGrid(query=query, reach=reach, size=size, step=find_step(query, reach, size, target, delta))
    measured = measure(boxed, on_grid, epsilon=target, delta=delta, rng=rng, ledger=ledger, persons=owners)
    sigma = measured.spread * on_grid.step
    return VectorMeasurement(
        value=measured.value.astype(np.float64) * on_grid.step,
        guarantee=measured.guarantee,
        seeded=measured.seeded,
        noise=f"discrete Gaussian, sigma {sigma:.6g} for L2 sensitivity {reach:.6g}, in steps of {on_grid.step:.6g}",
        sigma=sigma,
        step=on_grid.step,
        ledger_entry=measured.ledger_entry,
    )


def _person_reach(query: VectorQuery, persons: Persons, sizes: dict[str, int]) -> float:
    """Return how far one person moves a vector; refuse a query whose sensitivity is about another change."""
    if query.unit is not Unit.LABEL:
        got = Described(f"one about `{query.unit.value}`")
        raise invalid(
            "measure_vector", "query", "be about one label where persons are given", got=got, kind=PrivacyError
        )
    return query.person_sensitivity(persons, **sizes)


def find_step(query: VectorQuery, reach: float, size: int, epsilon: float, delta: float) -> float:
    """Return the grid's step, a power of two, from public numbers: see the module.

    A whole answer needs no finer grid than its noise; 1 is the coarsest that it lies on.
    """
    step = find_sigma(epsilon=epsilon, delta=delta, sensitivity=reach) / STEPS_TO_SIGMA
    step = min(step, 1.0) if query.whole else min(step, FINE * reach / math.sqrt(size))
    return 2.0 ** (math.frexp(step)[1] - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class OnGrid(Query):
    """The integers nearest to a vector of reals in units of a step: what `measure` measures of it."""

    query: VectorQuery
    reach: float
    size: int
    step: float

    @property
    def unit(self) -> Unit:  # type: ignore[override]  # the vector's own
        """That of the vector."""
        return self.query.unit

    @property
    def trust(self) -> Trust:  # type: ignore[override]  # the vector's own
        """That of the vector."""
        return self.query.trust

    @property
    def assumptions(self) -> tuple[str, ...]:  # type: ignore[override]  # the vector's own
        """Those of the vector."""
        return self.query.assumptions

    @property
    def name(self) -> str:
        """That of the vector."""
        return type(self.query).__name__

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """S / g, and sqrt d for rounding; the 1-norm is at most sqrt d times that. Rounded up."""
        up = 1.0 + 2.0**-50
        root = math.sqrt(self.size) * up
        l2 = (self.reach / self.step + (0.0 if self.query.whole else root)) * up
        return Sensitivity(l2 * root, l2)

    @property
    def counts_alike(self) -> bool:
        """Rows of a vector have reaches of their own: `measure_vector` has added them up."""
        return False

    def person_sensitivity(self, persons: Persons, *, n_classes: int) -> Sensitivity:
        """That of the integers: `reach` is a person's where persons were given."""
        return self.sensitivity(n_classes=n_classes)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Compute, bring within bounds, round."""
        value = np.asarray(self.query.exact(codes, n_classes=n_classes), np.float64)
        if value.size != self.size or np.isnan(value).any():
            raise PrivacyError(
                f"measure_vector: {self.name} is not {self.size} numbers. Nothing was released; its query is wrong."
            )
        most = MOST_STEPS * self.step
        return round_to_integers(self.name, "value", np.clip(value, -most, most) / self.step)


def curate(
    labels: Any, procedure: Procedure, *, rng: Any = None, ledger: Any = None, persons: Any = None
) -> VectorMeasurement:
    """Run a private procedure on labels: its guarantee is charged, then it runs, and its answer comes out.

    The guarantee is the procedure's own statement, with the trust in a curator added, and the note on floating point
    unless its noise is exact. With `persons`, a column of ids, it is that statement for whoever has most rows, by group privacy.
    """
    if not isinstance(procedure, Procedure):
        raise invalid("curate", "procedure", "be a procedure", got=procedure)
    boxed = as_sensitive(labels, None)
    promise = procedure.guarantee(n_classes=boxed.n_classes, n_examples=len(boxed)).trusting(Trust.CURATOR)
    owners = None if persons is None else Persons.of(persons, n_rows=len(boxed), owner="curate")
    if owners is not None:
        promise = promise.for_persons(owners.most_rows)

    def work(codes: npt.NDArray[Any], bits: BitStream) -> Float64s:
        return procedure.run(codes, n_classes=boxed.n_classes, bits=bits)

    assumptions = () if procedure.exact_noise else (FLOATING_POINT,)
    name = type(procedure).__name__
    return _release(boxed, promise, work, assumptions=assumptions, text=name, rng=rng, ledger=ledger, persons=owners)


def _release_bare(
    boxed: SensitiveLabels, query: VectorQuery, reach: float, *, rng: Any, ledger: Any, persons: Persons | None
) -> VectorMeasurement:
    """Release a statistic without noise: nobody asked for privacy, or no label can move it."""
    unit = query.unit if persons is None else Unit.PERSON
    promise = Guarantee.pure(math.inf if reach else 0.0, unit=unit, trust=query.trust)

    def work(codes: npt.NDArray[Any], _bits: BitStream) -> Float64s:
        return query.exact(codes, n_classes=boxed.n_classes)

    text = f"{type(query).__name__}, no noise"
    known = query.assumptions
    return _release(
        boxed, promise, work, assumptions=known, text=text, sigma=0.0, rng=rng, ledger=ledger, persons=persons
    )


def _release(
    boxed: SensitiveLabels,
    promise: Guarantee,
    work: Callable[[npt.NDArray[Any], BitStream], Float64s],
    *,
    assumptions: Sequence[str],
    text: str,
    rng: Any,
    ledger: Any,
    persons: Persons | None,
    sigma: float | None = None,
) -> VectorMeasurement:
    """Charge the promise, then hand the raw codes and the noise to `work`, and return what it makes of them.

    Raises `PrivacyError` if the answer is not finite: a NaN would tell of the labels what no guarantee covers.
    """
    key = as_key("measure_vector", rng)
    given = () if persons is None else (ASSIGNMENT,)
    budget = Budget(
        owner="measure_vector", labels=boxed, ledger=ledger, seeded=key.seeded, persons=persons, given=given
    )
    promise = budget.state(promise, *assumptions)
    entry = budget.charge(promise, mechanism=text)
    value = work(codes_of(boxed), BitStream(key.claim("measure vector")))
    if not np.isfinite(value).all():
        raise PrivacyError(f"measure_vector: {text} is not finite. Nothing was released; check features and labels.")
    return VectorMeasurement(
        value=value, guarantee=promise, seeded=key.seeded, noise=text, sigma=sigma, ledger_entry=entry
    )


@lru_cache(maxsize=256)
def find_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return `analytic_gaussian_sigma`, which does not depend on data: many fits at one budget solve it once."""
    return analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)


def normals(bits: BitStream, count: int) -> Float64s:
    """Return standard normals by the inverse distribution function, one per word; not for what is released as such.

    A normal is Phi^-1((w + 1/2) 2^-53) of a 53-bit word: within 8.3 sigma of 0 (the tail beyond has probability 1e-16)
    and of finite resolution. Who adds one to a secret must say so (`FLOATING_POINT`).
    """
    from scipy.special import ndtri

    drawn: Float64s = ndtri(uniforms(bits, count))
    return drawn


def uniforms(bits: BitStream, count: int) -> Float64s:
    """Return numbers (w + 1/2) 2^-53, w uniform below 2^53: never 0 or 1."""
    # (2^53 - 1 + 1/2) 2^-53 would round to 1: the largest float below 1 is 1 - 2^-53.
    raw = (bits.take(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    return np.minimum(raw, 1.0 - 2.0**-53)
