"""What a guarantee means to someone who guesses a label: her advantage over chance, and how often she can be right.

>>> round(advantage_bound(1.0), 6), advantage_bound(math.inf), round(best_guess(1.0), 3)
(0.462117, 1.0, 0.731)
"""

from __future__ import annotations

import math

#: C libraries promise tanh to about two units in the last place (4e-16); this is twice that, upwards.
ROUND_UP = 1.0 + 2.0**-50


def advantage_bound(epsilon: float, *, delta: float = 0.0) -> float:
    """Return (E - 1 + 2 delta) / (E + 1), E = e^epsilon: the most that two labels' outputs can differ in any event.

    *Derivation.* Let an event have probability t under one label and f under the other. Privacy says t <= E f + delta and,
    for the complement, 1 - f <= E (1 - t) + delta. Add them: (t - f)(1 + E) <= E - 1 + 2 delta. Randomized response
    between two labels attains it at delta = 0. Rounded up, as privacy numbers are.
    """
    from labeldp._validate import check_delta, check_epsilon  # brings NumPy, and --help must not wait for it

    # (E - 1) / (E + 1) = tanh(epsilon / 2) does not overflow, and 2 / (E + 1) = 1 - tanh(epsilon / 2).
    half = math.tanh(check_epsilon("advantage_bound", epsilon) / 2.0)
    return min(1.0, (half + check_delta("advantage_bound", delta) * (1.0 - half)) * ROUND_UP)


def best_guess(epsilon: float, *, delta: float = 0.0) -> float:
    """Return the most often that a guess between two labels, even before, can be right after the release. Rounded up."""
    return min(1.0, (1.0 + advantage_bound(epsilon, delta=delta)) / 2.0 * ROUND_UP)
