"""The learners of the study `excess-risk`: those of the theorems as their theorems run them, and DP-SGD three ways.

>>> [method.name for method in METHODS if method.unit == "record"]
['DP-SGD (record)', 'DP-SGD in the ball (record)', 'DP-SGD, step blind to p (record)']

Design notes. The label-private walks make one pass over the data in small batches, within the ball. DP-SGD has the step of
the theory, which shrinks with the root of p once noise outweighs gradients; the same, projected on the ball that the
problem allows (post-processing); and a step that ignores p and the ball.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp.arrays import Floats
from labeldp.learn import LPRRSGD, LPNormalSGD, OutputPerturbation
from labeldp.priors import PublicPrior
from studies.adult_learners_cases import private_sgd
from studies.excess_problem import DIAMETER, Problem

DELTA = 1e-5
#: Examples to a step of the label-private walks, and the candidates that a prior leaves.
BATCH, CANDIDATES = 10, 2
#: DP-SGD: one pass in batches of 250. Its step blind to p is that of p = 0 without noise.
PASSES, RECORD_BATCH = 1, 250


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One point of a sweep with one seed: the problem, the budget and the training data."""

    problem: Problem
    epsilon: float
    rows: Any
    labels: Any
    seed: int


@dataclass(frozen=True, kw_only=True)
class Method:
    """A learner, by name: how it is fitted, the delta of its epsilon, its unit and the sweeps that it takes part in.

    `after` turns what `fit` released into another model: post-processing, which needs no second fit.
    """

    name: str
    fit: Callable[[Task], Any]
    after: Callable[[Any], Any] | None = None
    delta: float = 0.0
    unit: str = "label"
    sweeps: tuple[str, ...] = ("p", "n", "epsilon", "K")


def _walk(task: Task) -> dict[str, Any]:
    return {
        "clip": 1.0,
        "diameter": DIAMETER,
        "epochs": 1,
        "batch_size": BATCH,
        "fit_intercept": False,
        "classes": range(task.problem.n_classes),
        "random_state": task.seed,
    }


def _open(task: Task) -> Any:
    return LPRRSGD(epsilon=math.inf, **_walk(task)).fit(task.rows, task.labels)


def _response(task: Task) -> Any:
    return LPRRSGD(epsilon=task.epsilon, **_walk(task)).fit(task.rows, task.labels)


def top_prior(problem: Problem, rows: Any) -> Floats:
    """Return a public prior: the true model's two likeliest labels of each row, even; the others are ruled out."""
    shares = problem.probabilities(rows)
    chosen = np.argsort(-shares, axis=1)[:, :CANDIDATES]
    prior = np.zeros_like(shares)
    np.put_along_axis(prior, chosen, 1.0 / CANDIDATES, axis=1)
    return prior


def miss(problem: Problem, rows: Any) -> float:
    """Return the probability that a label is not among the prior's candidates."""
    shares = -np.sort(-problem.probabilities(rows), axis=1)
    return float(shares[:, CANDIDATES:].sum(axis=1).mean())


def _prior_response(task: Task) -> Any:
    prior = PublicPrior(top_prior(task.problem, task.rows))
    return LPRRSGD(epsilon=task.epsilon, prior=prior, **_walk(task)).fit(task.rows, task.labels)


def _normal(task: Task) -> Any:
    return LPNormalSGD(epsilon=task.epsilon, delta=DELTA, **_walk(task)).fit(task.rows, task.labels)


def _output(task: Task) -> Any:
    model = OutputPerturbation(
        epsilon=task.epsilon,
        delta=DELTA,
        clip=1.0,
        fit_intercept=False,
        classes=range(task.problem.n_classes),
        random_state=task.seed,
    )
    return model.fit(task.rows, task.labels)


def _record(task: Task, learning_rate: float | str = "auto") -> Any:
    model = private_sgd(
        epsilon=task.epsilon,
        delta=DELTA,
        epochs=PASSES,
        batch_size=RECORD_BATCH,
        learning_rate=learning_rate,
        classes=range(task.problem.n_classes),
        random_state=task.seed,
    )
    return model.fit(task.rows, task.labels)


def in_ball(model: Any) -> Any:
    """Return a copy whose weights, offsets included, are projected on the ball."""
    size = math.hypot(float(np.linalg.norm(model.coefs_[0])), float(np.linalg.norm(model.intercepts_[0])))
    share = min(1.0, 0.5 * DIAMETER / size) if size > 0 else 1.0
    nearer = copy(model)
    nearer.coefs_, nearer.intercepts_ = [share * model.coefs_[0]], [share * model.intercepts_[0]]
    return nearer


def _record_blind(task: Task) -> Any:
    steps = math.ceil(PASSES * len(task.labels) / min(RECORD_BATCH, len(task.labels)))
    return _record(task, DIAMETER / math.sqrt(steps))


RESPONSE, PRIOR, NORMAL = "LP-RR-SGD", "LP-RR-SGD, top 2", "LP-Normal-SGD"
RECORD, IN_BALL, BLIND = "DP-SGD (record)", "DP-SGD in the ball (record)", "DP-SGD, step blind to p (record)"
METHODS = (
    Method(name="SGD, no privacy", fit=_open, unit="none"),
    Method(name=RESPONSE, fit=_response),
    Method(name=PRIOR, fit=_prior_response, sweeps=("K",)),
    Method(name=NORMAL, fit=_normal, delta=DELTA),
    Method(name="output perturbation", fit=_output, delta=DELTA, sweeps=("p", "n", "epsilon")),
    Method(name=RECORD, fit=_record, delta=DELTA, unit="record"),
    Method(
        name=IN_BALL,
        fit=_record,
        after=in_ball,
        delta=DELTA,
        unit="record",
        sweeps=("p", "n", "epsilon"),
    ),
    Method(name=BLIND, fit=_record_blind, delta=DELTA, unit="record", sweeps=("p",)),
)
