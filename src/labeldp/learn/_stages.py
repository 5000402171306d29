"""Multi-stage training: how the examples are split, and what each stage was like.

The split never looks at labels. Each label is drawn in one stage only, so that the stages compose in parallel: epsilon in
all (Ghazi et al. 2021, Algorithm 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp._validate import check_integer
from labeldp.errors import Described, invalid

#: Share of the first stage and temperature of its model's prior, at these epsilons (Ghazi et al. 2021, supplement E).
PAPER_EPSILONS = (1.0, 2.0, 4.0, 8.0)
FIRST_SHARE = (0.8, 0.7, 0.6, 0.6)
TEMPERATURE = (0.6, 0.5, 0.5, 0.5)
#: More than anyone found useful (the paper stops at four); the number of a stage fits in a byte.
MOST_STAGES = 100


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage as it was run: `share` of the examples, mean candidates, and the expected accuracy of its labels.

    `expected_accuracy` is under the prior that the stage used, so it is known without looking at a label.
    """

    number: int
    n_examples: int
    share: float
    average_k: float
    expected_accuracy: float
    n_dropped: int = 0


def stage_shares(stages: Any, epsilon: float) -> tuple[float, ...]:
    """Return the share of each stage: as given, or the paper's first share and equal parts of the rest.

    >>> stage_shares(1, 1.0), stage_shares(2, 1.0), stage_shares((0.5, 0.3, 0.2), 1.0)
    ((1.0,), (0.8, 0.2), (0.5, 0.3, 0.2))
    """
    if isinstance(stages, (list, tuple, np.ndarray)):
        shares = tuple(float(s) for s in stages)
        if (
            not 0 < len(shares) <= MOST_STAGES or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9
        ):  # shares are typed by hand: decimals round
            fix = "For example (0.7, 0.3)."
            raise invalid(
                "LabelPrivateClassifier",
                "stages",
                f"be at most {MOST_STAGES} shares > 0 that sum to 1",
                got=stages,
                fix=fix,
            )
        return shares
    fix = "A number, or the stages' shares."
    count = check_integer("LabelPrivateClassifier", "stages", stages, least=1, most=MOST_STAGES, fix=fix)
    if count == 1:
        return (1.0,)
    first = round(interpolated(FIRST_SHARE, epsilon), 6)
    return (first, *([round((1.0 - first) / (count - 1), 6)] * (count - 1)))


def interpolated(values: tuple[float, ...], epsilon: float) -> float:
    """Return a default between the epsilons that the paper tuned; constant outside them."""
    return float(np.interp(epsilon, PAPER_EPSILONS, values))


def assign_stages(n: int, shares: tuple[float, ...], key: NoiseKey) -> npt.NDArray[np.uint8]:
    """Return the stage of each example: a random split with these shares, made without looking at labels."""
    ends = np.round(np.cumsum(shares) * n).astype(int)
    ends[-1] = n
    sizes = np.diff(np.concatenate([[0], ends]))
    if np.any(sizes < 1):
        got = Described(f"{n} examples for {len(shares)} stages")
        raise invalid("LabelPrivateClassifier", "stages", "leave each stage an example", got=got)
    # Sorting by independent 64-bit words is a uniform random permutation (ties have probability below n^2 / 2^64).
    order = np.argsort(key.words(start=0, count=n)[:, 0], kind="stable")
    stage = np.empty(n, np.uint8)
    stage[order] = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    return stage
