r"""Projected stochastic gradients on released, unbiased targets: post-processing, so any number of passes is free.

The gradient of example i at targets q_i is sum_k q_ik grad loss(w; x_i, k). If E[q_i] is the one-hot label, it is
unbiased, for every convex loss. Over a ball of diameter D with steps D / (G sqrt t), where E|gradient|^2 <= G^2, the
expected excess risk after T steps is at most 2 D G (2 + log T) / sqrt T (Shamir & Zhang 2013, Theorem 2).

>>> import numpy as np
>>> from labeldp.learn.convex._losses import Logistic
>>> rows, targets = np.array([[1.0], [-1.0]] * 50), np.array([[-0.5, 1.5], [1.5, -0.5]] * 50)
>>> plan = Plan(diameter=10.0, second_moment=4.0, epochs=2, batch_size=10, average=True)
>>> bool(projected_sgd(rows, targets, Logistic(), plan, order=np.random.default_rng(0))[0, 0] > 0)
True

References: Ghazi et al. 2021, supplement F; Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization" (2013).

Design notes. A batch of b has second moment at most L^2 + G^2 / b (the noise of its examples is independent), so its
step may be longer; that is `Plan.second_moment`'s business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp._validate import check_integer, check_positive
from labeldp.learn.convex._losses import Loss

Floats = npt.NDArray[np.floating[Any]]

#: Without a stated diameter, scores stay within this distance of zero: beyond it a probability is certain to 5e-5.
DEFAULT_SCORE = 10.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The diameter of the ball, a bound G^2 on the second moment of a batch's gradient, and how long to go on."""

    diameter: float
    second_moment: float
    epochs: int
    batch_size: int
    average: bool


def checked_plan(
    owner: str, *, diameter: Any, radius: float, epochs: Any, batch_size: Any, average: bool
) -> tuple[float, Plan]:
    """Return the largest score that the ball allows and a plan whose second moment is still to be set."""
    wide = 2.0 * DEFAULT_SCORE / radius if diameter is None else check_positive(owner, "diameter", diameter)
    plan = Plan(
        diameter=wide,
        second_moment=1.0,
        epochs=check_integer(owner, "epochs", epochs, least=1),
        batch_size=check_integer(owner, "batch_size", batch_size, least=1),
        average=bool(average),
    )
    return 0.5 * wide * radius, plan


def batch_second_moment(*, clean: float, noisy: float, batch_size: int) -> float:
    """Return L^2 + G^2 / b: the mean gradient is at most L long, and noise of variance <= G^2 averages out."""
    return clean**2 + noisy / batch_size


def projected_sgd(rows: Any, targets: Floats, loss: Loss, plan: Plan, *, order: np.random.Generator) -> Floats:
    """Return the weights (C, D): the last iterate, or the mean of the second half of them."""
    n, radius = rows.shape[0], plan.diameter / 2.0
    weights = np.zeros((loss.n_scores(targets.shape[1]), rows.shape[1]))
    total, kept, step = np.zeros_like(weights), 0, 0
    steps = plan.epochs * -(-n // plan.batch_size)
    length = plan.diameter / math.sqrt(plan.second_moment)
    for _ in range(plan.epochs):
        shuffled = order.permutation(n)
        for low in range(0, n, plan.batch_size):
            batch = shuffled[low : low + plan.batch_size]
            step += 1
            gradient = batch_gradient(rows[batch], targets[batch], loss, weights)
            weights = projected(weights - length / math.sqrt(step) * gradient, radius)
            if 2 * step > steps:
                total += weights
                kept += 1
    return total / kept if plan.average else weights


def batch_gradient(rows: Any, targets: Floats, loss: Loss, weights: Floats) -> Floats:
    """Return the mean gradient of a batch, unbiased if its targets are."""
    slopes = loss.slopes(np.asarray(rows @ weights.T), targets)
    gradient: Floats = np.asarray(rows.T @ slopes).T / rows.shape[0]
    return gradient


def projected(weights: Floats, radius: float) -> Floats:
    """Return the nearest weights in the ball."""
    size = float(np.linalg.norm(weights))
    return weights if size <= radius else weights * (radius / size)


def public_order(key: NoiseKey) -> np.random.Generator:
    """Return a generator for the order of examples: not noise, so it need not be secret."""
    return np.random.default_rng(key.child("order").words(start=0, count=2).reshape(-1))
