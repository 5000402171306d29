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
from fractions import Fraction

from labeldp._validate import check_delta, check_epsilon, check_positive
from labeldp.errors import BudgetError, PrivacyError, invalid
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


def what_is_left(budget: float, *, after: float) -> float:
    """Return the largest pure epsilon that, in sequence with the pure epsilon `after`, keeps within `budget`.

    Sums of guarantees are exact and round up, so the last digit of a difference matters.

    >>> 0.1 + what_is_left(0.3, after=0.1) <= 0.3
    True
    """
    total, spent = (
        check_epsilon("what_is_left", budget, name="budget"),
        check_epsilon("what_is_left", after, name="after"),
    )
    if math.isinf(total):
        return total
    if spent > total:
        raise invalid("what_is_left", "after", f"be within the budget {total:g}", got=after, kind=BudgetError)
    rest = total - spent
    # The difference is rounded to nearest: one step down mends it if it went up.
    return rest if Fraction(spent) + Fraction(rest) <= Fraction(total) else math.nextafter(rest, 0.0)


def _narrowed(meets: Callable[[float], bool], low: float, high: float) -> float:
    """Return the upper end of a bracket whose upper end meets the budget and whose lower end does not."""
    while high / low > 1 + WIDTH:
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high
