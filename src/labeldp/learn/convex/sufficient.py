r"""`SufficientStatistics`: release the class moments of the features with exact noise; then any solver is free.

Linear and canonical models see labels only through Phi'Y. Features are public under label privacy, so this matrix is all
that needs noise: L2 sensitivity sqrt 2 R (R for two classes), whatever the number of examples. Centring by a label-free
prediction P, Phi'(Y - P), is a public shift.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(3000, 4))
>>> y = np.argmax(X[:, :3], axis=1)
>>> model = SufficientStatistics(epsilon=1.0, clip=3.0, classes=[0, 1, 2], random_state=0).fit(X, y)
>>> model.score(X, y, labels_are_public=True) > 0.9, model.guarantee_.epsilon(1e-5) <= 1.0, model.noise_
(True, True, 'discrete Gaussian, variance ...')

*In stages*, with a network, each stage's moments are of better features. Stage 1 releases Phi_1'(Y - 1/K) on the features as
they are, and its linear scores, read as beliefs, become the soft targets of the network. Stage t releases Phi_t'(Y - P),
where P are that network's beliefs and Phi_t its hidden features: centred, divided by the fourth root of their variances
along the principal axes ("half-whitened"), and brought to norm one. P and Phi_t are functions of earlier releases and of
public features, so each stage has the sensitivity of the first, whatever the network is; a linear correction of beliefs
that are nearly right needs few directions, and these are the network's best.

*Budget.* Every stage asks about all labels: stages compose in sequence. With delta, the Gaussian loss mu that meets (epsilon,
delta) is divided evenly, mu / sqrt(T) each, and dominates the discrete noise of its stage (`labeldp.loss.discrete`); pure
stages get epsilon / T each (`labeldp.release.budget.Budget.share`).

References: Vu & Slavkovic 2009 and Foulds et al. 2016 (noisy sufficient statistics); Canonne, Kamath, Steinke 2020
(discrete noise); Dong, Roth & Su 2022 (squares of mu add up).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.extmath import row_norms

from labeldp.arrays import Floats
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.base import UNIT_NORM, ConvexClassifier, Inputs, check_penalty, make_row_map
from labeldp.learn.convex.losses import Softmax, Squared
from labeldp.learn.convex.moments import (
    ClassMoments,
    Moments,
    check_centre,
    choose_ridge,
    cut_to_grid,
    log_belief,
    release_moments,
    solve_ridge,
    solve_softmax,
)
from labeldp.learn.convex.persons import noise_ratio, share_influence
from labeldp.learn.corrections import check_rows
from labeldp.learn.rehearsal import check_estimator
from labeldp.priors import model_probabilities
from labeldp.priors.staged import half_whiten
from labeldp.random import NoiseKey, as_key
from labeldp.release.budget import Budget
from labeldp.release.labels import SensitiveLabels, box_labels
from labeldp.release.persons import ASSIGNMENT, Persons
from labeldp.release.stages import StageDoor, run_stages
from labeldp.release.templates import copy_template, list_weights
from labeldp.validate import check_choice, check_delta, check_epsilon, check_integer

OWNER = "SufficientStatistics"
#: A ridge score is read as a probability no smaller than this share of 1/K.
LEAST_SHARE = 0.02
#: A soft target is no smaller than this share of 1/K: linear scores know no bounds.
TARGET_FLOOR = 0.2
#: Bits that the grid has more where rows have weights.
PERSON_BITS = 6


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
    row_weights_ : (n,) the public weights of rows in the (last) moments, where persons were given

    Notes
    -----
    *Guarantee.*
    Pure epsilon (delta = 0) or zCDP that implies (epsilon, delta), when one label is replaced, or, with `persons`, all labels of
    one person; trusts a curator. The noise is discrete and exact.

    *Edge cases.*
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

    def fit(self, X: Any, y: Any, *, centre: Any = None, persons: Any = None) -> SufficientStatistics:
        """Release the moments of y and solve.

        `centre` is a label-free belief about the labels, (K,) for all or (n, K); by default uniform. A belief of each
        row's own is needed again to predict. The guarantee says that it did not see the labels.

        `persons` (n,) are the public ids of who owns each row: then (epsilon, delta) is for all labels of a person. Her rows have
        public weights such that together they move the moments by a bounded amount (`labeldp.learn.convex.persons`), and the
        model is that of weighted rows; `row_weights_` has them.
        """
        check_choice(OWNER, "head", self.head, ("ridge", "softmax"))
        if self.l2 != "auto":
            check_penalty(OWNER, self.l2)
        epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
        stages = check_integer(OWNER, "stages", self.stages, least=1, most=100)
        key = as_key(OWNER, self.random_state, name="random_state")
        if self.network is not None:
            return self._fit_in_stages(X, y, centre, persons, stages=stages, epsilon=epsilon, delta=delta, key=key)
        if stages > 1:
            fix = "Each stage needs a network to make its features: pass network=."
            raise invalid(OWNER, "stages", "be 1 without a network", got=stages, fix=fix)
        inputs = self._read_inputs(X, y)
        inputs = inputs._replace(labels=_name_centre(inputs.labels, centre))
        belief = check_centre(centre, inputs.rows.shape[0], inputs.labels.n_classes)
        owners = None if persons is None else Persons.of(persons, n_rows=len(inputs.labels), owner=OWNER)
        found = self._measure(inputs, owners, epsilon=epsilon, delta=delta, key=key, ledger=self.ledger)
        weights, penalty = self._solve(found, belief)
        self._keep_moments(found, penalty)
        self.centre_ = belief[0] if len(belief) == 1 else None
        loss = Softmax() if self.head == "softmax" else Squared(two=False)
        self._keep(weights, inputs, loss=loss, guarantee=found.guarantee, seeded=key.seeded)
        self.__dict__.pop("network_", None)  # of an earlier fit in stages
        return self

    def _fit_in_stages(
        self, X: Any, y: Any, centre: Any, persons: Any, *, stages: int, epsilon: float, delta: float, key: NoiseKey
    ) -> SufficientStatistics:
        """Charge the whole; then release, train the network, and go on with its hidden features."""
        check_network(self.network)
        network = copy_template(OWNER, "network", self.network)
        params = copy_template(OWNER, "stage_params", self.stage_params, safe=False)
        X = check_rows(self, X, inner=self.network, reset=True)
        row_map = self._make_row_map()
        labels = box_labels(OWNER, y, n_rows=len(X), classes=self.classes, label_set=self.label_set)
        labels = _name_centre(labels, centre)
        ways = [find_stage_params(params, number) for number in range(stages)]
        check_estimator(network, X, n_classes=labels.n_classes, ways=ways)
        owners = None if persons is None else Persons.of(persons, n_rows=len(X), owner=OWNER)
        given = list_weights(self.network, self.stage_params)
        given = given if owners is None else (*given, ASSIGNMENT)
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=owners)
        plan = budget.share(epsilon, delta, stages=stages, name="moments")
        first = StageBelief(
            Inputs(row_map, row_map.apply(average_views(X)), labels), check_centre(centre, len(X), labels.n_classes)
        )
        budget.charge(plan.promise, mechanism=f"{OWNER}, {stages} stages")
        door: StageDoor[Moments] = StageDoor(budget=budget, key=key, epsilon=plan.epsilon, delta=plan.delta)

        def believe(_number: int, last: StageModel | None) -> StageBelief:
            if last is None:
                return first
            hidden = make_row_map(OWNER, clip=UNIT_NORM, fit_intercept=False, intercept_scaling=None)
            rows = hidden.apply(half_whiten(last.network.hidden_features(X)))
            return StageBelief(Inputs(hidden, rows, labels), model_probabilities(last.network, X, labels.classes))

        def release(number: int, belief: StageBelief) -> Moments:
            def measure_stage(stage_key: NoiseKey) -> Moments:
                return self._measure(
                    belief.inputs, owners, epsilon=plan.epsilon, delta=plan.delta, within=plan.part, key=stage_key
                )

            return door.draw(number, measure_stage)

        def learn(number: int, _last: StageModel | None, belief: StageBelief, found: Moments) -> StageModel:
            weights, penalty = self._solve(found, belief.centre)
            # Some rows of no weight are not in the moments.
            rows = found.rows if found.weights is None else belief.inputs.rows
            targets = soften_scores(self._score(rows, weights, belief.centre))
            trained = train_network(network, X, targets, classes=labels.classes, number=number, params=params)
            return StageModel(trained, found, penalty)

        start: StageModel | None = None
        last = run_stages(stages, start=start, believe=believe, release=release, learn=learn)
        assert last is not None  # there is at least one stage
        self._keep_moments(last.moments, last.penalty)
        self.network_, self.classes_ = last.network, np.asarray(labels.classes)
        self.guarantee_, self.seeded_, self.centre_ = plan.promise, key.seeded, None
        for name in ("coef_", "intercept_"):
            self.__dict__.pop(name, None)  # of an earlier fit in one stage
        return self

    def _measure(
        self,
        inputs: Inputs,
        persons: Persons | None,
        *,
        epsilon: float,
        delta: float,
        key: NoiseKey,
        within: Guarantee | None = None,
        ledger: Any = None,
    ) -> Moments:
        """Release the class moments of the rows, cut to the grid."""
        bits = check_integer(OWNER, "grid_bits", self.grid_bits, least=1, most=30)
        radius = inputs.row_map.radius
        step = radius / 2.0**bits
        rows, weights = inputs.rows, None
        if persons is not None:
            # Weights are small where a person has many rows: a finer grid keeps as much of each.
            bits, step = bits + PERSON_BITS, step / 2.0**PERSON_BITS
            weights = weigh_rows(rows, persons, n_classes=inputs.labels.n_classes, epsilon=epsilon, delta=delta)
            sparse = scipy.sparse.issparse(rows)
            rows = scipy.sparse.csr_matrix(scipy.sparse.diags(weights) @ rows) if sparse else rows * weights[:, None]
        query = ClassMoments(rows=cut_to_grid(rows, bound=radius, bits=bits))
        return release_moments(
            inputs.labels,
            query,
            step=step,
            epsilon=epsilon,
            delta=delta,
            within=within,
            key=key,
            ledger=ledger,
            persons=persons,
            weights=weights,
        )

    def _solve(self, found: Moments, belief: Floats) -> tuple[Floats, float]:
        """Return (K, D) weights and the penalty used, from the released moments, the public rows and the belief."""
        rows, n_classes = found.rows, len(found.sums)
        if self.head == "softmax" and self.l2 != "auto":  # the one way that needs no D x D matrix
            penalty = float(self.l2)
            return (
                solve_softmax(rows, found.sums, log_belief(belief), l2=penalty, row_weights=found.weights),
                penalty,
            )
        product = rows.T @ found.weighted
        gram = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
        shifts = np.broadcast_to(belief, (rows.shape[0], n_classes))
        residual = found.sums - np.asarray(found.weighted.T @ shifts).T
        # Completion leaves (K - 1)/K of the variance; of two classes, measured as one, each has all of it.
        spread = found.scale * (1.0 if n_classes == 2 else math.sqrt(1.0 - 1.0 / n_classes))
        chosen = choose_ridge(gram, residual, noise=spread, n=found.total) if self.l2 == "auto" else float(self.l2)
        if self.head == "softmax":
            penalty = chosen / n_classes
            return (
                solve_softmax(rows, found.sums, log_belief(belief), l2=penalty, row_weights=found.weights),
                penalty,
            )
        return solve_ridge(gram, residual, l2=chosen), chosen

    def _score(self, rows: Any, weights: Floats, belief: Floats) -> Floats:
        """Return what the head says of these rows, on the scale of probabilities."""
        scores = np.asarray(rows @ weights.T)
        if self.head == "softmax":
            return Softmax().probabilities(scores + log_belief(belief))
        total: Floats = scores + belief
        return total

    def _keep_moments(self, found: Moments, penalty: float) -> None:
        """Keep what was released, and how."""
        self.moments_, self.l2_ = found.sums, penalty
        self.noise_, self.noise_scale_, self.sensitivity_ = found.noise, found.scale, found.sensitivity
        self.__dict__.pop("row_weights_", None)  # of an earlier fit for persons
        if found.weights is not None:
            self.row_weights_ = found.weights

    def decision_function(self, X: Any, *, centre: Any = None) -> Floats:
        """Return the scores with the belief added (of a network, its log-probabilities); for two classes their difference."""
        scores = log_belief(self.predict_proba(X)) if hasattr(self, "network_") else self._add_belief(X, centre)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, *, centre: Any = None) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        if hasattr(self, "network_"):
            rows = check_rows(self, X, inner=self.network_, reset=False)
            return model_probabilities(self.network_, rows, tuple(self.classes_.tolist()))
        scores = self._add_belief(X, centre)
        if self.head == "softmax":
            return Softmax().probabilities(scores)
        cut = np.maximum(scores, LEAST_SHARE / scores.shape[1])
        shares: Floats = cut / cut.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any, *, centre: Any = None) -> npt.NDArray[Any]:
        """Return the class of the largest score of each row."""
        scores = self.decision_function(X, centre=centre)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def _add_belief(self, X: Any, centre: Any) -> Floats:
        """Return the scores (n, K) on top of the belief (its logarithm, for softmax)."""
        scores = self._find_scores(X)
        if centre is None and self.centre_ is None:
            fix = "The model was fitted on residuals of a belief about each row: pass that belief for these rows."
            raise invalid(OWNER, "centre", "be given", got=None, fix=fix)
        given = self.centre_ if centre is None else centre
        belief = check_centre(given, len(scores), scores.shape[1])
        total: Floats = scores + (log_belief(belief) if self.head == "softmax" else belief)
        return total

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.network is not None:
            inner = get_tags(self.network).input_tags
            tags.input_tags.sparse, tags.input_tags.three_d_array = inner.sparse, inner.three_d_array
        return tags


class StageBelief(NamedTuple):
    """What a stage measures: bounded rows with their labels, and the label-free belief that it centres by."""

    inputs: Inputs
    centre: Floats


class StageModel(NamedTuple):
    """What a stage leaves behind: the network trained on it, its release, and the penalty used."""

    network: Any
    moments: Moments
    penalty: float


def _name_centre(labels: SensitiveLabels, centre: Any) -> SensitiveLabels:
    """Return the labels with what was handed in beside them: the model is made of a centre too, which must not have seen them."""
    return labels if centre is None else labels.with_beside("centre")


def weigh_rows(rows: Any, persons: Persons, *, n_classes: int, epsilon: float, delta: float) -> Floats:
    """Return the public weight of each row, such that no person's rows together say too much (`share_influence`)."""
    ratio = noise_ratio(rows, n_classes=n_classes, epsilon=epsilon, delta=delta)
    return share_influence(row_norms(rows), persons, ratio=ratio).weights


def check_network(network: Any) -> None:
    """Refuse a network that lacks one of three methods; `labeldp.nn.NetClassifier` has them.

    `fit_targets(X, targets, classes=)` trains on soft targets, `predict_proba(X)` returns class probabilities, and
    `hidden_features(X)` what feeds the last layer.
    """
    for name in ("fit_targets", "predict_proba", "hidden_features"):
        if not hasattr(network, name):
            got, fix = type(network).__name__, "For example labeldp.nn.NetClassifier('mlp')."
            raise invalid(OWNER, "network", f"have `{name}`", got=got, fix=fix)


def average_views(X: Any) -> Any:
    """Return a row per example: the mean over its views, where there are some."""
    return X.mean(axis=1) if isinstance(X, np.ndarray) and X.ndim == 3 else X


def soften_scores(scores: Floats) -> Floats:
    """Return linear scores as probabilities: none below `TARGET_FLOOR` / K, each row divided by its sum."""
    cut = np.maximum(scores, TARGET_FLOOR / scores.shape[1])
    targets: Floats = cut / cut.sum(axis=1, keepdims=True)
    return targets


def train_network(network: Any, X: Any, targets: Floats, *, classes: Sequence[Any], number: int, params: Any) -> Any:
    """Return a fresh copy of the network, trained on soft targets; its whole-number seed is moved on by `number`."""
    fresh = clone(network)
    seed = fresh.get_params(deep=False).get("random_state")
    if isinstance(seed, int) and not isinstance(seed, bool):
        fresh.set_params(random_state=seed + number)
    fresh.set_params(**find_stage_params(params, number))
    return fresh.fit_targets(X, targets, classes=np.asarray(classes))


def find_stage_params(params: Sequence[Mapping[str, Any]] | None, number: int) -> Mapping[str, Any]:
    """Return the parameters of a stage (from 0); the last ones given hold for all that come later."""
    return params[min(number, len(params) - 1)] if params else {}
