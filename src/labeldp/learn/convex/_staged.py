r"""Noisy moments in stages: each on the hidden features of a network that was trained on what the last stage released.

Stage 1 releases Phi_1'(Y - 1/K) on the features as they are, and its linear scores, read as beliefs, become the soft
targets of a network. Stage t releases Phi_t'(Y - P), where P are that network's beliefs and Phi_t its hidden features:
centred, divided by the fourth root of their variances along the principal axes ("half-whitened"), and brought to norm
one. P and Phi_t are functions of earlier releases and of public features, so each stage has the sensitivity of the first,
whatever the network is; a linear correction of beliefs that are nearly right needs few directions, and these are the
network's best.

Budget. Stages compose in sequence. With delta, the zCDP that implies (epsilon, delta) is divided evenly, rho / T each;
pure stages get epsilon / T each. `planned` composes what each stage will promise, rounded up, and checks that the whole
keeps (epsilon, delta) before anything is charged.

>>> plan = planned(3, epsilon=1.0, delta=1e-5)
>>> plan.promise.epsilon(1e-5) <= 1.0, len(plan.promise.parts)
(True, 3)

References: RECIPES.md ("Central statistics"); Bun & Steinke 2016 (zCDP adds up).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from labeldp.accounting import zcdp_rho
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust

Floats = npt.NDArray[np.floating[Any]]

OWNER = "SufficientStatistics"
#: A soft target is no smaller than this share of 1/K: linear scores know no bounds.
TARGET_FLOOR = 0.2
#: Variances below this share of the largest are not blown up further.
LEAST_VARIANCE = 1e-3
#: What is held back of a stage's zCDP, relatively, so that inverting the conversion twice cannot exceed the whole.
ROOM = 1e-9


class Network(Protocol):
    """What a network must be able to do; `labeldp.nn.NetClassifier` can."""

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> Any:
        """Train on soft targets."""

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities."""

    def hidden_features(self, X: Any) -> Floats:
        """Return what feeds the last layer."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one stage may spend, as `measure` takes it, and the promise of all of them."""

    epsilon: float
    delta: float
    promise: Guarantee


def planned(stages: int, *, epsilon: float, delta: float) -> Plan:
    """Divide the budget evenly, and compose what the stages will promise."""
    if math.isinf(epsilon) or delta == 0:
        share = epsilon if math.isinf(epsilon) else math.nextafter(epsilon / stages * (1 - ROOM), 0.0)
        each = Guarantee.pure(share, trust=Trust.CURATOR)
    else:
        share = Guarantee.zcdp(zcdp_rho(epsilon=epsilon, delta=delta) / stages * (1 - ROOM)).epsilon(delta)
        # `measure` will find the rho that implies `share`; its own rounding is within a few units of the last place.
        each = Guarantee.zcdp(zcdp_rho(epsilon=share, delta=delta) * (1 + 1e-12), trust=Trust.CURATOR)
    parts = [each.named(f"moments of stage {number + 1}") for number in range(stages)]
    promise = reduce(lambda whole, part: whole.then(part), parts)
    if not promise.epsilon(delta) <= epsilon:
        got = Described(f"{promise.epsilon(delta)!r} at delta {delta:g}")
        raise invalid(OWNER, "epsilon", f"be kept by {stages} stages", got=got)
    return Plan(epsilon=share, delta=delta, promise=promise)


def within_plan(measured: Guarantee, plan: Plan) -> None:
    """Refuse to go on if a stage promised less than was charged for it: the proof by evaluation."""
    if not measured.epsilon(plan.delta) <= plan.epsilon:
        raise PrivacyError(
            f"{OWNER}: a stage spent epsilon = {measured.epsilon(plan.delta)!r} of {plan.epsilon!r}. Stopped there."
        )


def check_network(network: Any) -> None:
    """Refuse a network without the three methods."""
    for name in ("fit_targets", "predict_proba", "hidden_features"):
        if not hasattr(network, name):
            got, fix = type(network).__name__, "For example labeldp.nn.NetClassifier('mlp')."
            raise invalid(OWNER, "network", f"have `{name}`", got=got, fix=fix)


def flat_views(X: Any) -> Any:
    """Return a row per example: the mean over its views, where there are some."""
    return X.mean(axis=1) if isinstance(X, np.ndarray) and X.ndim == 3 else X


def soft_targets(scores: Floats) -> Floats:
    """Return linear scores as probabilities: none below `TARGET_FLOOR` / K, each row divided by its sum."""
    cut = np.maximum(scores, TARGET_FLOOR / scores.shape[1])
    targets: Floats = cut / cut.sum(axis=1, keepdims=True)
    return targets


def half_whitened(hidden: Floats) -> Floats:
    """Return centred features along their principal axes, divided by the fourth root of the variance there.

    >>> rows = np.random.default_rng(0).normal(size=(5000, 2)) * [4.0, 1.0]
    >>> np.sort(half_whitened(rows).std(axis=0)).round(1).tolist()
    [1.0, 2.0]
    """
    centred = hidden.astype(np.float64)
    centred -= centred.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    damped = np.maximum(values, LEAST_VARIANCE * max(float(values[-1]), np.finfo(np.float64).tiny))
    white: Floats = (centred @ axes) / damped**0.25
    return white


def trained(network: Any, X: Any, targets: Floats, *, classes: Sequence[Any], number: int, params: Any) -> Any:
    """Return a fresh copy of the network, trained on soft targets; its whole-number seed is moved on by `number`."""
    fresh = clone(network)
    seed = fresh.get_params(deep=False).get("random_state")
    if isinstance(seed, int) and not isinstance(seed, bool):
        fresh.set_params(random_state=seed + number)
    fresh.set_params(**stage_entry(params, number))
    return fresh.fit_targets(X, targets, classes=np.asarray(classes))


def stage_entry(params: Sequence[Mapping[str, Any]] | None, number: int) -> Mapping[str, Any]:
    """Return the parameters of a stage (from 0); the last ones given hold for all that come later."""
    return params[min(number, len(params) - 1)] if params else {}
