"""The analytic Gaussian mechanism: noise from a budget, and a budget from noise, exactly.

>>> sigma = analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0)
>>> round(sigma, 4), gaussian_delta(1.0, sigma=sigma, sensitivity=1.0) <= 1e-5
(3.7306, True)

References: Balle & Wang 2018 (Theorem 8 and Algorithm 1).

Design notes: the textbook sigma = sensitivity sqrt(2 log(1.25/delta))/epsilon is larger, and wrong for epsilon > 1.
Sensitivity is named in every call; there is no "noise multiplier".
"""

from __future__ import annotations

from labeldp._validate import check_delta, check_epsilon, check_positive
from labeldp.accounting.calibration import calibrate
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee


def gaussian_epsilon(delta: float, *, sigma: float, sensitivity: float) -> float:
    """Return the exact epsilon at `delta` of N(0, sigma^2) noise on a statistic of this L2 sensitivity, rounded up."""
    return Guarantee.gaussian(sigma=sigma, sensitivity=sensitivity).epsilon(delta)


def gaussian_delta(epsilon: float, *, sigma: float, sensitivity: float) -> float:
    """Return the exact delta at `epsilon` of N(0, sigma^2) noise on a statistic of this L2 sensitivity, rounded up."""
    return Guarantee.gaussian(sigma=sigma, sensitivity=sensitivity).delta(epsilon)


def analytic_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma whose Gaussian noise is (epsilon, delta)-DP, from above.

    *Guarantee*: gaussian_delta(epsilon, sigma=returned, sensitivity=sensitivity) <= delta, by evaluation.

    *Edge cases*: epsilon = inf or sensitivity = 0 needs no noise (0.0); delta = 0 is out of reach of Gaussian noise;
    epsilon = 0 is not (delta is then a total variation distance).
    """
    owner = "analytic_gaussian_sigma"
    target, slack = check_epsilon(owner, epsilon), check_delta(owner, delta)
    if slack == 0:
        fix = "Gaussian noise is never pure: use discrete Laplace noise."
        raise invalid(owner, "delta", "be in (0, 1)", got=delta, fix=fix)
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    if reach == 0 or target == float("inf"):
        return 0.0
    check_positive(owner, "sensitivity", sensitivity)

    def noise(multiple: float) -> Guarantee:
        return Guarantee.gaussian(sigma=multiple * reach, sensitivity=reach)

    # delta >= TV at epsilon = 0 is met by a multiple of 1/delta, and no budget takes less than 1e-9 of noise usefully.
    return calibrate(noise, epsilon=target, delta=slack, low=1e-9, high=1.0 / slack) * reach
