r"""`measure_vector` and `curate`: the door for real-valued statistics of labels, and for whole private procedures.

`measure` adds exact noise to integers. A minimiser of a loss, or a one-hot label to be averaged later, is a vector of
real numbers: `measure_vector` adds Gaussian noise to it, calibrated exactly (Balle & Wang 2018). `curate` runs a
procedure that makes its own noise, such as a sample from a private distribution. In both, raw codes are handed out
inside this file only, to the object whose stated guarantee was charged first.

>>> import numpy as np
>>> class Share(VectorQuery):
...     def sensitivity(self, *, n_classes, n_examples):
...         return 1.0 / n_examples
...
...     def exact(self, codes, *, n_classes):
...         return np.array([np.mean(codes == 1)])
>>> share = measure_vector([0, 1, 1, 1], Share(), epsilon=1.0, delta=1e-5, rng=0)
>>> share.value.shape, share.guarantee.epsilon(1e-5) <= 1.0, share.seeded
((1,), True, True)

References: Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018); Mironov, "On significance of
the least significant bits for differential privacy" (2012), for why the note on floating point is there.

Design notes. A normal is Phi^-1((w + 1/2) 2^-53) of a 53-bit word: within 8.3 sigma of 0 (the tail beyond has
probability 1e-16) and of finite resolution. That is what `FLOATING_POINT` says among the assumptions of the guarantee.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.arrays import Float64s
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.random import BitStream, as_key
from labeldp.release.labels import Budget, SensitiveLabels, as_sensitive, codes_of
from labeldp.validate import check_delta, check_epsilon

FLOATING_POINT = "noise and statistic are floating-point numbers, taken for real ones"


class VectorQuery(abc.ABC):
    """A statistic of labels: real numbers, with a stated L2 sensitivity in a stated unit."""

    unit: Unit = Unit.LABEL
    #: What the statement of the sensitivity stands on, besides floating point.
    assumptions: tuple[str, ...] = ()

    @abc.abstractmethod
    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """How far one change of the unit moves what `exact` returns, in the 2-norm; an upper bound."""

    @abc.abstractmethod
    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Float64s:
        """Compute the statistic from raw codes: only `measure_vector` calls this."""


class Procedure(abc.ABC):
    """A computation that sees raw codes, draws its own noise and returns only what its guarantee covers.

    Whoever writes one proves its guarantee: `curate` cannot check it.
    """

    @abc.abstractmethod
    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """What is promised about whatever `run` returns; known before it runs."""

    @abc.abstractmethod
    def run(self, codes: npt.NDArray[Any], *, n_classes: int, bits: BitStream) -> Float64s:
        """Compute the private answer: only `curate` calls this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorMeasurement:
    """A private vector of reals and what it cost; `sigma` is the spread of its Gaussian noise, if that is what it has."""

    value: Float64s
    guarantee: Guarantee
    seeded: bool
    noise: str
    sigma: float | None = None
    ledger_entry: int | None = None

    def __repr__(self) -> str:
        warning = ", SEEDED: not private" if self.seeded else ""
        return f"<VectorMeasurement: {self.value.shape} reals, {self.noise}, {self.guarantee}{warning}>"


def measure_vector(
    labels: Any, query: VectorQuery, *, epsilon: float, delta: float, rng: Any = None, ledger: Any = None
) -> VectorMeasurement:
    """Release a real statistic of labels with Gaussian noise of the least sigma that meets (epsilon, delta).

    Guarantee
    ---------
    (epsilon, delta) in the query's unit, by the exact profile of Gaussian noise at its stated L2 sensitivity. The one
    who calls this sees the raw labels: the guarantee says that she is trusted, and names `FLOATING_POINT`.

    Edge cases
    ----------
    epsilon = inf adds no noise and promises nothing. delta = 0 is refused: Gaussian noise is never pure.
    """
    if not isinstance(query, VectorQuery):
        raise invalid("measure_vector", "query", "be a query for a vector", got=query)
    check_epsilon("measure_vector", epsilon)
    check_delta("measure_vector", delta)
    boxed = as_sensitive(labels, None)
    reach = query.sensitivity(n_classes=boxed.n_classes, n_examples=len(boxed))
    sigma = 0.0 if math.isinf(epsilon) else find_sigma(epsilon=epsilon, delta=delta, sensitivity=reach)
    text = f"Gaussian, sigma {sigma:.6g} for L2 sensitivity {reach:.6g}" if sigma else "no noise"

    def work(codes: npt.NDArray[Any], bits: BitStream) -> Float64s:
        value = query.exact(codes, n_classes=boxed.n_classes)
        return value + sigma * normals(bits, value.size).reshape(value.shape) if sigma else value

    answer = _release(
        boxed,
        _promise_gaussian(query, sigma, reach, epsilon, delta),
        work,
        assumptions=(FLOATING_POINT, *query.assumptions),
        text=f"{type(query).__name__}, {text}",
        rng=rng,
        ledger=ledger,
    )
    return replace(answer, noise=text, sigma=sigma)


def curate(labels: Any, procedure: Procedure, *, rng: Any = None, ledger: Any = None) -> VectorMeasurement:
    """Run a private procedure on labels: its guarantee is charged, then it runs, and its answer comes out.

    The guarantee is the procedure's own statement, with the trust in a curator and the note on floating point added.
    """
    if not isinstance(procedure, Procedure):
        raise invalid("curate", "procedure", "be a procedure", got=procedure)
    boxed = as_sensitive(labels, None)
    promise = procedure.guarantee(n_classes=boxed.n_classes, n_examples=len(boxed)).trusting(Trust.CURATOR)

    def work(codes: npt.NDArray[Any], bits: BitStream) -> Float64s:
        return procedure.run(codes, n_classes=boxed.n_classes, bits=bits)

    text = type(procedure).__name__
    return _release(boxed, promise, work, assumptions=(FLOATING_POINT,), text=text, rng=rng, ledger=ledger)


def _release(
    boxed: SensitiveLabels,
    promise: Guarantee,
    work: Callable[[npt.NDArray[Any], BitStream], Float64s],
    *,
    assumptions: Sequence[str],
    text: str,
    rng: Any,
    ledger: Any,
) -> VectorMeasurement:
    """Charge the promise, then hand the raw codes and the noise to `work`, and return what it makes of them.

    Raises `PrivacyError` if the answer is not finite: a NaN would tell of the labels what no guarantee covers.
    """
    key = as_key("measure_vector", rng)
    budget = Budget(owner="measure_vector", labels=boxed, ledger=ledger, seeded=key.seeded)
    promise = budget.state(promise, *assumptions)
    entry = budget.charge(promise, mechanism=text)
    value = work(codes_of(boxed), BitStream(key.child("measure vector")))
    if not np.isfinite(value).all():
        raise PrivacyError(f"measure_vector: {text} is not finite. Nothing was released; check features and labels.")
    return VectorMeasurement(value=value, guarantee=promise, seeded=key.seeded, noise=text, ledger_entry=entry)


def _promise_gaussian(query: VectorQuery, sigma: float, reach: float, epsilon: float, delta: float) -> Guarantee:
    """Return the exact guarantee of this noise, after evaluating that it meets the budget."""
    if sigma == 0.0:
        return Guarantee.pure(math.inf if reach else 0.0, unit=query.unit, trust=Trust.CURATOR)
    promise = Guarantee.gaussian(sigma=sigma, sensitivity=reach, unit=query.unit, trust=Trust.CURATOR)
    if not promise.epsilon(delta) <= epsilon:
        got = Described(f"{promise.epsilon(delta)}")
        raise invalid("measure_vector", "epsilon", f"be met at delta {delta:g}", got=got, kind=PrivacyError)
    return promise


@lru_cache(maxsize=256)
def find_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return `analytic_gaussian_sigma`, which does not depend on data: many fits at one budget solve it once."""
    return analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)


def normals(bits: BitStream, count: int) -> Float64s:
    """Return standard normals by the inverse distribution function, one per word."""
    from scipy.special import ndtri

    drawn: Float64s = ndtri(uniforms(bits, count))
    return drawn


def uniforms(bits: BitStream, count: int) -> Float64s:
    """Return numbers (w + 1/2) 2^-53, w uniform below 2^53: never 0 or 1."""
    # (2^53 - 1 + 1/2) 2^-53 would round to 1: the largest float below 1 is 1 - 2^-53.
    raw = (bits.take(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    return np.minimum(raw, 1.0 - 2.0**-53)
