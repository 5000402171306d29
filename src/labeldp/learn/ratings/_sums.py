"""Private sums over public cells: every person's ratings by group of items, every item's by group of people.

>>> integer_scores((1, 2, 3, 4, 5)), integer_scores((0.5, 1.0, 1.5))
((array([-2, -1,  0,  1,  2]), 1.0, 3.0), (array([-1,  0,  1]), 0.5, 1.0))

For those who trust a curator, two numbers per id and group say more at small epsilon than a randomized label per rating:
the noise of a sum does not grow with the number of ratings in it. Groups are clusters of the public features.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.errors import invalid
from labeldp.learn.ratings._evidence import CellSums
from labeldp.learn.ratings._query import GroupSums
from labeldp.priors._cluster import cluster
from labeldp.release import SensitiveLabels, measure

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

#: Leading features that groups are made from: more of them are noise to a clustering.
_GROUPING = 5
#: A cell should hold this many times as many ratings as its noise has standard deviations, on average; then a label's own
#: variance and the noise weigh alike, and finer cells would only add noise.
_PER_DEVIATION = 2.0
#: More groups than this were never of use, and cost a sum each.
_MOST_GROUPS = 64


def integer_scores(values: Any) -> tuple[Ints, float, float]:
    """Return integers s, a step and a base with values = base + step s: exact noise needs integers."""
    numbers = np.asarray(values, dtype=np.float64)
    base, step = float(numbers[len(numbers) // 2]), float(np.diff(numbers).min())
    scores = np.rint((numbers - base) / step)
    # 1e-9: decimals such as 0.1 are not exact in binary.
    if np.any(np.abs(base + step * scores - numbers) > 1e-9 * max(1.0, np.abs(numbers).max())):
        fix = "Use sums=0, which needs no grid."
        raise invalid("LabelPrivateRatings", "values", "lie on a grid for sums", got=tuple(numbers.tolist()), fix=fix)
    return scores.astype(np.int64), step, base


def laplace_variance(rate: float) -> float:
    """Return the variance of discrete Laplace noise, Pr[z] ~ e^(-rate |z|): 2 q / (1 - q)^2 with q = e^-rate."""
    q = math.exp(-rate)
    return 2 * q / (1 - q) ** 2


def number_of_groups(n_ratings: int, n_own: int, n_other: int, *, epsilon: float, scores: Ints) -> int:
    """Return how many groups to divide an id's ratings into: from public counts and the noise alone."""
    deviation = math.sqrt(laplace_variance(epsilon / float(np.ptp(scores))))
    wanted = round(n_ratings / n_own / (_PER_DEVIATION * max(deviation, 1.0)))
    return int(min(max(wanted, 1), _MOST_GROUPS, max(n_other // 2, 1)))


def cell_sums(
    labels: SensitiveLabels,
    own: Ints,
    other: Ints,
    n_own: int,
    other_features: Floats,
    *,
    values: Any,
    epsilon: float,
    key: NoiseKey,
) -> CellSums:
    """Measure one side: discrete Laplace on integer sums of (value - base), the base added back by public counts."""
    scores, step, base = integer_scores(values)
    count = number_of_groups(len(own), n_own, len(other_features), epsilon=epsilon, scores=scores)
    groups = grouped(other_features, count)
    cell = own * count + groups[other]
    query = GroupSums(scores=scores, groups=cell, n_groups=n_own * count)
    noisy = measure(labels, query, epsilon=epsilon, rng=key).value
    sizes = np.bincount(cell, minlength=n_own * count)
    variance = 0.0 if math.isinf(epsilon) else step**2 * laplace_variance(epsilon / float(np.ptp(scores)))
    sums = (step * noisy + base * sizes).reshape(n_own, count)
    return CellSums(sums=sums, groups=groups, noise_variance=variance)


def grouped(features: Floats, count: int) -> Ints:
    """Return a group for every id: clusters of its leading public features; the seed is fixed and sees no label."""
    useful = features[:, 1 : 1 + _GROUPING]
    if count == 1 or useful.shape[1] == 0:
        return np.zeros(len(features), np.int64)
    return cluster(np.ascontiguousarray(useful, np.float32), n_clusters=count, random_state=0).astype(np.int64)
