"""What an epsilon means, in numbers that need no logarithm.

>>> round(advantage(1.0), 6)
0.462117
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

if TYPE_CHECKING:  # a guarantee brings SciPy, and --help must not wait for it
    from labeldp.guarantee import Guarantee


def advantage(epsilon: float, delta: float = 0.0) -> float:
    """Return (E - 1 + 2 delta) / (E + 1), the best that any test between two labels can do beyond chance."""
    # (E - 1) / (E + 1) = tanh(epsilon / 2), which does not overflow; 2 / (E + 1) = 1 - tanh(epsilon / 2).
    half = math.tanh(epsilon / 2.0)
    return min(1.0, half + delta * (1.0 - half))


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return the most often that a guess between two labels, even before, can be right after the release."""
    return (1.0 + advantage(epsilon, delta)) / 2.0


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
        f"{percent(best_guess(epsilon, delta), up=True)} of the time after seeing the release"
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


def promise_facts(guarantee: Guarantee) -> dict[str, object]:
    """Return a guarantee as plain facts, for JSON."""
    epsilon, delta = cost(guarantee)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "unit": guarantee.unit.value,
        "trust": guarantee.trust.words,
        "assumptions": list(guarantee.assumptions),
        "attacker_advantage": advantage(epsilon, delta),
        "text": str(guarantee),
    }


def promise_rows(guarantee: Guarantee) -> list[tuple[str, str | None]]:
    """Return a guarantee as rows of a table, for people."""
    epsilon, delta = cost(guarantee)
    rows: list[tuple[str, str | None]] = [
        ("promise", str(guarantee)),
        ("in words", in_words(epsilon, delta)),
        ("advantage", f"an attacker gains at most {percent(advantage(epsilon, delta), up=True)} over a blind guess"),
    ]
    rows += [("made of", f"{name}: {part}") for name, part in guarantee.parts]
    rows += [("assumes", text) for text in guarantee.assumptions]
    return rows
