"""`measure`: the leaf of the door for statistics: a declared query in, the noisy value and its guarantee out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import BitStream, NoiseKey, as_key
from labeldp._samplers import discrete_gaussian, discrete_laplace, rate_below, variance_above
from labeldp._validate import check_delta, check_epsilon
from labeldp.accounting import discrete_gaussian_sigma
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.release._charging import charge
from labeldp.release._labels import CLASSES_READ_OFF, as_sensitive, codes_of
from labeldp.release._queries import Query, Sensitivity


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """A noisy statistic of labels, and what it cost.

    `value` is an integer array; `noise` says how it was made ("discrete Laplace, rate 1/2"), `seeded` that it is
    reproducible and hence not private.
    """

    value: npt.NDArray[np.int64]
    guarantee: Guarantee
    seeded: bool
    noise: str
    ledger_entry: int | None = None

    def __repr__(self) -> str:
        warning = ", SEEDED: not private" if self.seeded else ""
        return f"<Measurement: {self.value.shape} integers, {self.noise}, {self.guarantee}{warning}>"


def measure(
    labels: Any,
    query: Query,
    *,
    epsilon: float,
    delta: float = 0.0,
    rng: Any = None,
    ledger: Any = None,
) -> Measurement:
    """Release a statistic of labels with exact noise.

    With delta = 0, discrete Laplace noise of rate epsilon / (L1 sensitivity): Pr[z] ~ exp(-rate |z|) in each coordinate.
    Neighbouring answers differ by at most that sensitivity in the 1-norm, so densities differ by e^epsilon at most.
    With delta > 0, discrete Gaussian noise whose zCDP, (L2 sensitivity)^2 / (2 sigma^2), meets (epsilon, delta).

    Guarantee
    ---------
    Pure epsilon, or zCDP that implies (epsilon, delta), when one label is replaced. The one who calls this sees the raw
    labels: the guarantee says that she is trusted.

    Edge cases
    ----------
    epsilon = inf adds no noise and promises nothing. epsilon = 0 is refused: no finite noise achieves it.

    Example:
    -------
    >>> from labeldp import LabelCounts, measure
    >>> counts = measure([0, 1, 2, 2], LabelCounts(), epsilon=1.0)
    >>> counts.value.shape, counts.guarantee.epsilon(), str(counts.guarantee.trust.words)
    ((1, 3), 1.0, 'a curator')
    """
    if not isinstance(query, Query):
        raise invalid("measure", "query", "be a query", got=query, fix="For example LabelCounts().")
    target, failure = _check_budget(epsilon, delta)
    boxed = as_sensitive(labels, None)
    key = as_key("measure", rng)
    noise = _noise_for(query.sensitivity(n_classes=boxed.n_classes), target, failure)
    guarantee = noise.guarantee
    if boxed.classes_read_off:
        guarantee = guarantee.assuming(CLASSES_READ_OFF)
    exact = query.exact(codes_of(boxed), n_classes=boxed.n_classes)
    entry = charge(ledger, guarantee, boxed, mechanism=f"{type(query).__name__}, {noise.text}", seeded=key.seeded)
    noisy = exact + noise.draw(key, exact.size).reshape(exact.shape)
    value = query.present(noisy, n_examples=len(boxed), n_classes=boxed.n_classes)
    return Measurement(value=value, guarantee=guarantee, seeded=key.seeded, noise=noise.text, ledger_entry=entry)


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """Which exact sampler, with what parameter, and what it promises."""

    rate: Fraction | None = None
    variance: Fraction | None = None
    guarantee: Guarantee

    @property
    def text(self) -> str:
        if self.rate is not None:
            return f"discrete Laplace, rate {float(self.rate):.6g}"
        if self.variance is not None:
            return f"discrete Gaussian, variance {float(self.variance):.6g}"
        return "no noise"

    def draw(self, key: NoiseKey, size: int) -> npt.NDArray[np.int64]:
        bits = BitStream(key.claim("measure"))
        if self.rate is not None:
            return discrete_laplace(bits, rate=self.rate, size=size)
        if self.variance is not None:
            return discrete_gaussian(bits, variance=self.variance, size=size)
        return np.zeros(size, np.int64)


def _check_budget(epsilon: Any, delta: Any) -> tuple[float, float]:
    target = check_epsilon("measure", epsilon)
    if target == 0:
        fix = "Use a small epsilon > 0, or leave the measurement out."
        raise invalid("measure", "epsilon", "be > 0", got=epsilon, fix=fix)
    return target, check_delta("measure", delta)


def _noise_for(sensitivity: Sensitivity, epsilon: float, delta: float) -> _Noise:
    """Return the noise that meets the budget for this sensitivity."""
    if math.isinf(epsilon) or sensitivity.l1 == 0:  # a statistic that no label can move needs none
        spent = epsilon if sensitivity.l1 else 0.0
        return _Noise(guarantee=Guarantee.pure(spent, trust=Trust.CURATOR))
    if delta == 0:
        rate = rate_below(math.nextafter(epsilon / sensitivity.l1, 0.0))
        return _Noise(rate=rate, guarantee=Guarantee.pure(epsilon, trust=Trust.CURATOR))
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity.l2)
    variance = variance_above(math.nextafter(sigma * sigma, math.inf))
    rho = math.nextafter(sensitivity.l2**2 / (2.0 * float(variance)) * (1 + 1e-15), math.inf)
    guarantee = Guarantee.zcdp(rho, trust=Trust.CURATOR)
    if not guarantee.epsilon(delta) <= epsilon:  # the rounding above is one-sided; this is the proof by evaluation
        raise invalid("measure", "epsilon", f"be met at delta {delta:g}", got=Described(f"{guarantee.epsilon(delta)}"))
    return _Noise(variance=variance, guarantee=guarantee)
