"""What an epsilon means, in numbers that need no logarithm.

>>> in_words(1.0)
'whoever guessed right 50% of the time can guess right at most 73.2% of the time after seeing the release'

Whatever is released with (epsilon, delta)-differential privacy, a test between two values of one label has true and
false positive rates with tpr <= E fpr + delta and (1 - fpr) <= E (1 - tpr) + delta, E = e^epsilon. Their difference is
largest where both are equalities: advantage = (E - 1 + 2 delta) / (E + 1). From even odds that is a right guess with
probability (1 + advantage) / 2; from prior odds r the posterior odds are at most E r when delta = 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from labeldp.guarantee import best_guess

if TYPE_CHECKING:
    from labeldp.guarantee import Guarantee


def percent(share: float, *, up: bool = False) -> str:
    """Return a share with one decimal, or with more where fewer would say certainty; `up` never understates a risk.

    >>> percent(0.73106, up=True), percent(0.99999, up=True), percent(1.0), percent(0.5), percent(0.9997)
    ('73.2%', '99.999%', '100%', '50%', '99.97%')
    """
    digits, shown = 1, _rounded(share, 1, up=up)
    while share < 1.0 and shown >= 100.0 and digits < 6:
        digits += 1
        shown = _rounded(share, digits, up=up)
    return f"{shown:.{digits}f}".rstrip("0").rstrip(".") + "%"


def _rounded(share: float, digits: int, *, up: bool) -> float:
    # A hair is taken off before rounding up: 0.5 is 50 %, whatever the product's last bit says.
    return math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits if up else round(share * 100, digits)


def in_words(epsilon: float, delta: float = 0.0) -> str:
    """Return what anyone can learn about one label, for a reader who has never met epsilon."""
    if math.isinf(epsilon):
        return "nothing is hidden: the labels are as they were"
    if epsilon == 0:
        return "nothing about a label can be learned from the release"
    return (
        "whoever guessed right 50% of the time can guess right at most "
        f"{percent(best_guess(epsilon, delta=delta), up=True)} of the time after seeing the release"
    )


class Cost(NamedTuple):
    """Epsilon, and the delta at which it is read: 0 where epsilon is finite there."""

    epsilon: float
    delta: float


def cost(guarantee: Guarantee) -> Cost:
    """Return the pure epsilon of a guarantee, or else its epsilon at the delta at which it is shown."""
    from labeldp.guarantee import SHOWN_DELTA

    pure = guarantee.epsilon()
    at_delta = pure if math.isfinite(pure) else guarantee.epsilon(SHOWN_DELTA)
    return Cost(at_delta, SHOWN_DELTA) if at_delta < pure else Cost(pure, 0.0)


def right_guesses(prior: float, epsilon: float, delta: float = 0.0) -> float:
    """Return how often a guess between two values can be right after a release, for one believed with `prior` before.

    A guess is a test with true and false positive rates (t, f) and is right with probability p t + (1 - p) (1 - f). The
    rates lie in the region t <= E f + delta, 1 - f <= E (1 - t) + delta, and a linear function is largest at a corner:
    (0, delta), (1 - delta, 1), or where both bounds meet, t = 1 - f = (E + delta) / (E + 1).

    >>> round(right_guesses(0.5, 1.0), 4), right_guesses(0.9, 0.0)
    (0.7311, 0.9)
    """
    return max(best_guess(epsilon, delta=delta), (1 - prior) + prior * delta, prior + (1 - prior) * delta)


def largest_belief(prior: float, epsilon: float) -> float:
    """Return p E / (p E + 1 - p), the most that a belief p can become by Bayes' rule under pure epsilon.

    >>> round(largest_belief(0.5, 1.0), 4), largest_belief(0.01, math.inf), largest_belief(0.3, 0.0)
    (0.7311, 1.0, 0.3)
    """
    # As p / (p + (1 - p) / E): no overflow.
    return prior / (prior + (1 - prior) * math.exp(-epsilon))
