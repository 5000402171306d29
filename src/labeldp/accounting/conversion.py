"""Noise for a budget, where the mechanism's own guarantee is zCDP or pure.

>>> rho = zcdp_rho(epsilon=1.0, delta=1e-5)
>>> round(rho, 5), Guarantee.zcdp(rho).epsilon(1e-5) <= 1.0
(0.03056, True)

References: Canonne, Kamath & Steinke 2020 (discrete Gaussian: rho = sensitivity^2/(2 sigma^2); the conversion);
Dwork et al. 2006 (Laplace).
"""

from __future__ import annotations

import math
from fractions import Fraction

from labeldp._loss.rounding import quotient_up
from labeldp._validate import check_delta, check_epsilon
from labeldp.accounting.calibration import calibrate
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee


def zcdp_rho(*, epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP implies (epsilon, delta)-DP, from below.

    *Guarantee*: Guarantee.zcdp(returned).epsilon(delta) <= epsilon, by evaluation.

    *Edge cases*: epsilon = inf gives inf; epsilon = 0 and delta = 0 give what they can, down to 0.
    """
    target, slack = check_epsilon("zcdp_rho", epsilon), check_delta("zcdp_rho", delta)
    if math.isinf(target):
        return math.inf
    if slack == 0:
        return 0.0
    if Guarantee.zcdp(LEAST_RHO).epsilon(slack) > target:
        return 0.0
    # rho <= epsilon + log(1/(1 - delta)) in any case; the parameter is 1/rho, so that more means more noise.
    most = 4.0 * (target + 1.0) - 4.0 * math.log1p(-slack) + 4.0
    found = calibrate(_inverse_rho, epsilon=target, delta=slack, low=1.0 / most, high=1.0 / LEAST_RHO)
    return 1.0 / found


#: Below this rho there is no signal left in any statistic of a data set that fits on earth.
LEAST_RHO = 1e-30


def _inverse_rho(parameter: float) -> Guarantee:
    return Guarantee.zcdp(1.0 / parameter)


def discrete_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma for which discrete Gaussian noise is (epsilon, delta)-DP through its zCDP, from above.

    rho = sensitivity^2/(2 sigma^2) with the L2 sensitivity of the whole integer vector. The bound is that of the
    continuous Gaussian's zCDP, a little more noise than `analytic_gaussian_sigma`; it holds for the discrete one.
    """
    owner = "discrete_gaussian_sigma"
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    rho = zcdp_rho(epsilon=epsilon, delta=delta)
    if rho == 0:
        fix = "Allow a delta > 0, or use discrete Laplace noise."
        raise invalid(owner, "delta", "leave room for Gaussian noise", got=delta, fix=fix)
    if math.isinf(rho) or reach == 0:
        return 0.0
    guess = reach / math.sqrt(2 * rho)
    square = Fraction(reach) ** 2
    while square > 2 * Fraction(rho) * Fraction(guess) ** 2:
        guess = math.nextafter(guess, math.inf)
    return guess


def laplace_scale(*, epsilon: float, sensitivity: float) -> float:
    """Return the scale of (discrete) Laplace noise for pure epsilon at this L1 sensitivity, rounded up.

    Pr[z] proportional to exp(-|z|/scale), so that a change of `sensitivity` costs sensitivity/scale.

    *Edge cases*: epsilon = inf needs no noise (0.0); epsilon = 0 needs infinitely much, and is refused.
    """
    owner = "laplace_scale"
    target = check_epsilon(owner, epsilon)
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    if target == 0 and reach > 0:
        raise invalid(owner, "epsilon", "be > 0", got=epsilon, fix="No finite noise gives epsilon 0.")
    return 0.0 if reach == 0 else quotient_up(reach, target)
