"""The least noise that meets a budget, for anything that states a guarantee.

>>> from labeldp import Guarantee
>>> def sixty_responses(noise: float) -> Guarantee:
...     return Guarantee.pure(1.0 / noise).times(60)
>>> noise = calibrate(sixty_responses, epsilon=2.0, delta=1e-6, low=1e-3, high=1e6)
>>> sixty_responses(noise).epsilon(1e-6) <= 2.0
True

Design notes: the answer was evaluated and met the budget, so it is right even where the guarantee is not monotone in
the parameter; monotony only makes it the least one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from labeldp._validate import check_delta, check_epsilon, check_positive
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Guarantee

#: The bracket ends this narrow, relative to the parameter: noise a trillionth above the least is no loss.
WIDTH = 1e-12


def calibrate(
    make_guarantee: Callable[[float], Guarantee], *, epsilon: float, delta: float, low: float, high: float
) -> float:
    """Return the least parameter in [low, high] whose guarantee is (epsilon, delta)-DP: more parameter, more noise.

    *Guarantee*: both .epsilon(delta) <= epsilon and .delta(epsilon) <= delta hold for what is returned, evaluated.
    Bisection on a logarithmic scale; refuses a budget that `high` does not meet.
    """
    owner = "calibrate"
    target, slack = check_epsilon(owner, epsilon), check_delta(owner, delta)
    low, high = check_positive(owner, "low", low), check_positive(owner, "high", high)
    if low > high:
        raise invalid(owner, "low", f"be <= high ({high!r})", got=low)

    def meets(parameter: float) -> bool:
        guarantee = make_guarantee(parameter)
        return guarantee.delta(target) <= slack and guarantee.epsilon(slack) <= target

    if not meets(high):
        fix = f"Raise `high`, or allow more than epsilon = {target!r}, delta = {slack!r}."
        raise invalid(owner, "high", "meet the budget", got=high, fix=fix, kind=PrivacyError)
    return low if meets(low) else _narrowed(meets, low, high)


def _narrowed(meets: Callable[[float], bool], low: float, high: float) -> float:
    """Return the upper end of a bracket whose upper end meets the budget and whose lower end does not."""
    while high / low > 1 + WIDTH:
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high
