"""The least noise that meets a budget, by way of Renyi curves: about ten evaluations of a millisecond.

>>> from labeldp.guarantee import Guarantee
>>> noise = least_noise("demo", lambda s: Guarantee.zcdp(1 / s**2), epsilon=1.0, delta=1e-6)
>>> Guarantee.zcdp(1 / noise**2).epsilon(1e-6) <= 1.0
True

Design notes. `labeldp.accounting.calibrate` does the same for any guarantee, and asks it for its tightest delta. That
may convolve losses, a tenth of a second each; a selection is calibrated once per query, so this one uses the Renyi
curve alone. What it finds meets the budget; the guarantee may then show a little less than was asked for. (Folders of
one layer do not import each other.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from labeldp._loss.renyi import delta_from_rdp
from labeldp._validate import check_delta, check_positive
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Guarantee

#: Relative width at which the search ends: noise a millionth above the least is no loss.
WIDTH = 1e-6
#: Beyond this the search gives up: noise of 1e12 counts is no answer.
MOST_NOISE = 1e12


def check_budget(owner: str, epsilon: Any, delta: Any, *, least_delta: bool = True) -> tuple[float, float]:
    """Return a finite epsilon > 0 and a delta in [0, 1), or in (0, 1) where the method needs one."""
    budget = check_positive(owner, "epsilon", epsilon)
    slack = check_delta(owner, delta)
    if least_delta and slack == 0:
        fix = "A released set is never pure; top_k_exponential is, with delta=0."
        raise invalid(owner, "delta", "be > 0", got=delta, fix=fix)
    return budget, slack


def check_test_delta(owner: str, test_delta: Any, delta: float, queries: int) -> float:
    """Return the probability of a false pass: half of one query's share of delta, or what the caller says."""
    if test_delta is None:
        return delta / 2 / queries
    share = check_delta(owner, test_delta, name="test_delta")
    if not 0 < share * queries < delta:
        fix = f"All {queries} tests must leave some of delta = {delta!r} to the noise; half of it is the default."
        raise invalid(owner, "test_delta", "be > 0 and less than delta / queries", got=test_delta, fix=fix)
    return share


def least_noise(owner: str, make: Callable[[float], Guarantee], *, epsilon: float, delta: float) -> float:
    """Return nearly the least noise whose guarantee, made by `make`, is (epsilon, delta)-DP for delta > 0."""

    def excess(noise: float) -> float:
        """The logarithm of how far delta, slack aside, is from the budget: > 0 is too much, and nearly linear."""
        loss = make(noise).loss
        reached = delta_from_rdp(loss.rdp, epsilon, slack=loss.slack, landmarks=loss.landmarks)
        if reached > delta:
            return max(math.log((reached - loss.slack) / (delta - loss.slack)), 1e-9) if delta > loss.slack else 1e9
        return min(math.log(max(reached - loss.slack, 1e-300) / (delta - loss.slack)), -1e-300)

    # rho of about (epsilon / 2)^2 / log(1 / delta), so noise of about 2 sqrt(log(1 / delta)) / epsilon.
    high = 2 * math.sqrt(math.log(1 / delta) + 1) / epsilon
    above = excess(high)
    while above > 0:
        high *= 2
        if high > MOST_NOISE:
            must = "be enough for this selection"
            raise invalid(owner, "epsilon and delta", must, got=(epsilon, delta), fix="Raise them.", kind=PrivacyError)
        above = excess(high)
    low = high / 2
    below = excess(low)
    while below <= 0 and low > 1 / MOST_NOISE:
        low, high, above = low / 2, low, below
        below = excess(low)
    return _narrowed(excess, low, high, below, above) if below > 0 else high


def _narrowed(excess: Callable[[float], float], low: float, high: float, below: float, above: float) -> float:
    """Return the upper end of a narrow bracket around the root; `high` always meets the budget.

    Each step tries the secant's point, a quarter of the wanted width above it so that it tends to meet the budget, and
    the middle after a step that has not halved the bracket.
    """
    halved = True
    while high / low > 1 + WIDTH:
        width = high - low
        secant = high - above * width / (above - below) + low * WIDTH / 4
        point = min(max(secant, low + low * WIDTH / 2), high - low * WIDTH / 2) if halved else math.sqrt(low * high)
        value = excess(point)
        low, below, high, above = (point, value, high, above) if value > 0 else (low, below, point, value)
        halved = high - low < width / 2
    return high


def approximate(epsilon: float, delta: float, **terms: Any) -> Guarantee:
    """Return (epsilon, delta)-DP as a profile: randomized response that leaks with probability delta dominates it.

    At t <= epsilon its delta is delta + (1 - delta)(E - e^t)/(E + 1) [Kairouz, Oh & Viswanath 2015], linear in e^t, so
    that its two ends say all.
    """
    return Guarantee.profile([0.0, epsilon], [delta + (1 - delta) * math.tanh(epsilon / 2), delta], **terms)
