r"""`SufficientStatistics`: release the class moments of the features once, with exact noise; then any solver is free.

Linear and canonical models see labels only through Phi'Y. Features are public under label privacy, so this matrix is all
that needs noise: L2 sensitivity sqrt 2 R (R for two classes), whatever the number of examples. Centring by a label-free
prediction P, Phi'(Y - P), is a public shift.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(3000, 4))
>>> y = np.argmax(X[:, :3], axis=1)
>>> model = SufficientStatistics(epsilon=1.0, clip=3.0, classes=[0, 1, 2], random_state=0).fit(X, y)
>>> model.score(X, y) > 0.9, model.guarantee_.epsilon(1e-5) <= 1.0, model.noise_
(True, True, 'discrete Gaussian, variance ...')

References: MECHANISMS.md, section 7; Canonne, Kamath, Steinke 2020 (discrete noise).

Noisy moments in stages: each on the hidden features of a network that was trained on what the last stage released.

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
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from labeldp.arrays import Floats
from labeldp.errors import invalid
from labeldp.learn.convex.base import UNIT_NORM, ConvexClassifier, check_penalty, row_map
from labeldp.learn.convex.losses import Softmax, Squared
from labeldp.learn.convex.moments import (
    ClassMoments,
    best_ridge,
    checked_centre,
    completed,
    logs,
    noise_scale,
    on_grid,
    ridge,
    softmax_head,
)
from labeldp.learn.corrections import checked_rows
from labeldp.priors import model_probabilities
from labeldp.random import NoiseKey, as_key
from labeldp.release import Measurement, SensitiveLabels, Sensitivity, measure
from labeldp.release.labels import Budget, box_labels
from labeldp.validate import check_choice, check_delta, check_epsilon, check_integer

#: A ridge score is read as a probability no smaller than this.
LEAST_SHARE = 0.02


class SufficientStatistics(ConvexClassifier):
    """A linear classifier from noisy sums of features by class.

    Parameters
    ----------
    epsilon, delta : float
        The budget. delta > 0: discrete Gaussian noise; delta = 0: discrete Laplace noise, whose 1-norm sensitivity grows
        with the root of the number of features.
    head : {"ridge", "softmax"}
        Least squares (closed form), or the softmax model with the released moments.
    l2 : float or "auto"
        The penalty, against the SUM of losses. "auto" minimises an unbiased estimate of the risk that noise causes,
        from what was released and the known noise: free.
    clip : float or "unit-norm"
        The public bound on the norm of a row; required.
    stages : int
        Releases, which share the budget; more than one needs a network.
    network : estimator with `fit_targets`, `predict_proba` and `hidden_features`, optional
        Trained on each stage's beliefs; the next stage releases moments of its hidden features, and the last one
        predicts. For example `labeldp.nn.NetClassifier("mlp")`. X may then have views, (n, views, d).
    stage_params : list of dicts, optional
        Parameters of the network for each stage; the last ones hold for all that come later.
    grid_bits : int
        Features are cut to multiples of R 2^-grid_bits before they are summed.
    fit_intercept, intercept_scaling, classes, random_state, ledger, label_set
        As in LPRRSGD.

    Attributes
    ----------
    moments_ : (K, D) the released class moments, in units of the features; post-process them as you like
    l2_, noise_, noise_scale_, sensitivity_ : the penalty used, the noise in words and its spread, and the sensitivity
    coef_, intercept_, classes_, guarantee_, seeded_ : as always; with a network there are no coefficients
    network_ : the network of the last stage

    Guarantee
    ---------
    Pure epsilon (delta = 0) or zCDP that implies (epsilon, delta), when one label is replaced; trusts a curator. The
    noise is discrete and exact.

    Edge cases
    ----------
    A constant label, separable data and d > n need no care: every statistic is bounded and l2 > 0. epsilon = inf
    releases exact moments. Sparse features stay sparse; but for head="softmax" with a given l2, a dense matrix of the
    squared number of columns is solved with.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        head: str = "ridge",
        l2: float | str = "auto",
        clip: float | str | None = None,
        stages: int = 1,
        network: Any = None,
        stage_params: Sequence[Mapping[str, Any]] | None = None,
        grid_bits: int = 14,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.25,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.head = head
        self.l2 = l2
        self.clip = clip
        self.stages = stages
        self.network = network
        self.stage_params = stage_params
        self.grid_bits = grid_bits
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any, *, centre: Any = None) -> SufficientStatistics:
        """Release the moments of y and solve.

        `centre` is a label-free belief about the labels, (K,) for all or (n, K); by default uniform. A belief of each
        row's own is needed again to predict.
        """
        owner = "SufficientStatistics"
        check_choice(owner, "head", self.head, ("ridge", "softmax"))
        if self.l2 != "auto":
            check_penalty(owner, self.l2)
        epsilon, delta = check_epsilon(owner, self.epsilon), check_delta(owner, self.delta)
        stages = check_integer(owner, "stages", self.stages, least=1, most=100)
        key = as_key(owner, self.random_state)
        if self.network is not None:
            return self._fit_in_stages(X, y, centre, stages=stages, budget=(epsilon, delta), key=key)
        if stages > 1:
            fix = "Each stage needs a network to make its features: pass network=."
            raise invalid(owner, "stages", "be 1 without a network", got=stages, fix=fix)
        rows, labels = self._prepared(X, y)
        belief = checked_centre(centre, rows.shape[0], labels.n_classes)
        cut, measured = self._measured(rows, labels, epsilon=epsilon, delta=delta, key=key, ledger=self.ledger)
        self.centre_ = belief[0] if len(belief) == 1 else None
        weights = self._solved(cut, belief, n_classes=labels.n_classes)
        loss = Softmax() if self.head == "softmax" else Squared(two=False)
        self._keep(weights, labels, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        self.__dict__.pop("network_", None)  # of an earlier fit in stages
        return self

    def _fit_in_stages(
        self, X: Any, y: Any, centre: Any, *, stages: int, budget: tuple[float, float], key: NoiseKey
    ) -> SufficientStatistics:
        """Charge the whole, then release, train and go on with the network's hidden features (see `_staged`)."""
        owner = "SufficientStatistics"
        check_network(self.network)
        X = checked_rows(self, X, inner=self.network, reset=True)
        self._rows = self._row_map()
        labels = box_labels(owner, y, n_rows=len(X), classes=self.classes, label_set=self.label_set)
        purse = Budget(owner=owner, labels=labels, ledger=self.ledger, seeded=key.seeded)
        plan = purse.share(*budget, stages=stages, name="moments")
        belief, rows = checked_centre(centre, len(X), labels.n_classes), self._rows.apply(flat_views(X))
        purse.charge(plan.promise, mechanism=f"{owner}, {stages} stages")
        network: Any = None
        for number in range(stages):
            if number:
                belief = model_probabilities(network, X, labels.classes)
                self._rows = row_map(owner, clip=UNIT_NORM, fit_intercept=False, intercept_scaling=None)
                rows = self._rows.apply(half_whitened(network.hidden_features(X)))
            stage_key = key.child("stage", number)
            cut, measured = self._measured(
                rows, labels, epsilon=plan.epsilon, delta=plan.delta, key=stage_key, ledger=None
            )
            purse.check_spent(measured.guarantee, epsilon=plan.epsilon, delta=plan.delta)
            weights = self._solved(cut, belief, n_classes=labels.n_classes)
            targets = soft_targets(self._scored(cut, weights, belief))
            network = trained(self.network, X, targets, classes=labels.classes, number=number, params=self.stage_params)
        self.network_, self.classes_ = network, np.asarray(labels.classes)
        self.guarantee_, self.seeded_, self.centre_ = plan.promise, key.seeded, None
        for name in ("coef_", "intercept_"):
            self.__dict__.pop(name, None)  # of an earlier fit in one stage
        return self

    def _scored(self, rows: Any, weights: Floats, belief: Floats) -> Floats:
        """Return what the head says of these rows, on the scale of probabilities."""
        scores = np.asarray(rows @ weights.T)
        if self.head == "softmax":
            return Softmax().probabilities(scores + logs(belief))
        total: Floats = scores + belief
        return total

    def _measured(
        self, rows: Any, labels: SensitiveLabels, *, epsilon: float, delta: float, key: NoiseKey, ledger: Any
    ) -> tuple[Any, Measurement]:
        """Release the class moments of the rows, cut to the grid; return those rows and what was measured."""
        owner = "SufficientStatistics"
        bits = check_integer(owner, "grid_bits", self.grid_bits, least=1, most=30)
        step = self._rows.radius / 2.0**bits
        query = ClassMoments(rows=on_grid(rows, bound=self._rows.radius, bits=bits))
        measured = measure(labels, query, epsilon=epsilon, delta=delta, rng=key, ledger=ledger)
        reach = query.sensitivity(n_classes=labels.n_classes)
        self.sensitivity_ = Sensitivity(reach.l1 * step, reach.l2 * step)
        self.noise_, self.noise_scale_ = measured.noise, step * noise_scale(reach, measured.guarantee)
        cut = query.rows.astype(np.float64) * step
        self.moments_ = completed(measured.value * step, np.asarray(cut.sum(axis=0)).reshape(-1))
        return cut, measured

    def _solved(self, rows: Any, belief: Floats, *, n_classes: int) -> Floats:
        """Return (K, D) weights from the released moments, the public rows and the public belief."""
        if self.head == "softmax" and self.l2 != "auto":  # the one way that needs no D x D matrix
            self.l2_ = float(self.l2)
            return softmax_head(rows, self.moments_, logs(belief), l2=self.l2_)
        product = rows.T @ rows
        gram = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
        shifts = np.broadcast_to(belief, (rows.shape[0], n_classes))
        residual = self.moments_ - np.asarray(rows.T @ shifts).T
        # Completion leaves (K - 1)/K of the variance; of two classes, measured as one, each has all of it.
        spread = self.noise_scale_ * (1.0 if n_classes == 2 else math.sqrt(1.0 - 1.0 / n_classes))
        chosen = best_ridge(gram, residual, noise=spread, n=rows.shape[0]) if self.l2 == "auto" else float(self.l2)
        self.l2_ = chosen / n_classes if self.head == "softmax" else chosen
        if self.head == "softmax":
            return softmax_head(rows, self.moments_, logs(belief), l2=self.l2_)
        return ridge(gram, residual, l2=self.l2_)

    def decision_function(self, X: Any, *, centre: Any = None) -> Floats:
        """Return the scores with the belief added (of a network, its log-probabilities); for two classes their difference."""
        scores = logs(self.predict_proba(X)) if hasattr(self, "network_") else self._believed(X, centre)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, *, centre: Any = None) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        if hasattr(self, "network_"):
            rows = checked_rows(self, X, inner=self.network_, reset=False)
            return model_probabilities(self.network_, rows, tuple(self.classes_.tolist()))
        scores = self._believed(X, centre)
        if self.head == "softmax":
            return self._loss.probabilities(scores)
        cut = np.maximum(scores, LEAST_SHARE / scores.shape[1])
        shares: Floats = cut / cut.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any, *, centre: Any = None) -> npt.NDArray[Any]:
        """Return the class of the largest score of each row."""
        scores = self.decision_function(X, centre=centre)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def _believed(self, X: Any, centre: Any) -> Floats:
        """Return the scores (n, K) on top of the belief (its logarithm, for softmax)."""
        scores = self._scores(X)
        if centre is None and self.centre_ is None:
            fix = "The model was fitted on residuals of a belief about each row: pass that belief for these rows."
            raise invalid("SufficientStatistics", "centre", "be given", got=None, fix=fix)
        given = self.centre_ if centre is None else centre
        belief = checked_centre(given, len(scores), scores.shape[1])
        total: Floats = scores + (logs(belief) if self.head == "softmax" else belief)
        return total

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.network is not None:
            inner = get_tags(self.network).input_tags
            tags.input_tags.sparse, tags.input_tags.three_d_array = inner.sparse, inner.three_d_array
        return tags


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
