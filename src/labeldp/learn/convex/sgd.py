r"""`LPRRSGD` and `LPNormalSGD`: release every label once, without bias, then run stochastic gradients on what was released.

A loss is taken linear in the label: the gradient of example i at targets q_i is sum_k q_ik grad loss(w; x_i, k). If E[q_i]
is the one-hot label, it is unbiased, for every convex loss. So labels are released once, as such rows q_i, and every
gradient of every pass is post-processing of them: passes are free, where noise drawn anew in each step would compose.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat([0, 1], 500)
>>> model = LPRRSGD(epsilon=1.0, clip=1.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon()
([0, 1], 1.0)
>>> model = LPNormalSGD(epsilon=1.0, delta=1e-5, clip=1.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon(1e-5) <= 1.0
([0, 1], True)

*Randomized response.* With E = e^epsilon, the observed label o becomes the row q = ((E + K - 1) e_o - 1) / (E - 1), whose
expectation is the one-hot label; sum_k q_k g(k) is the paper's (E + K - 1)/(E - 1) (g(o) - sum_k g(k)/(E + K - 1)).
Two bounds hold. No gradient is longer than L sum_k |q_k| = w L, with w = (E + 2K - 3)/(E - 1). And with
a = (E + K - 1)/(E - 1) the gradient is a g(o) less a vector that does not depend on o, so its variance is that of a g(o), at most
a^2 L^2, around a mean of length at most L:

    E|sum_k q_k g(k)|^2 <= L^2 min(w^2, a^2 + 1).

At epsilon 1 the roots are 11.5 L and 6.9 L for 10 classes, 116 L and 59 L for 100; the paper's bound, 6 K L / epsilon for
epsilon < 1, is 60 L and 600 L. With a prior the channel has a candidate set per example and k for K; a label outside its set
is redrawn within it, which biases the gradient by at most 2 L times the prior's chance of being wrong (Corollary 10), and
both bounds stay.

*Gaussian noise.* The possible gradients of example i are g(1), .., g(K); the label picks one. Noise is needed only in the
span of their differences, K - 1 dimensions however many parameters there are. Since sum_k q_k g(k) is linear in the row q,
noise on the one-hot label, projected on rows that sum to zero, is such noise: softmax regression has g(k) = (p - e_k) x', so
q = e_y + s (z - mean z) adds s (z - mean z) x' to the gradient, which is N(0, s^2 |x|^2) on that span. The L2 sensitivity of
the row is sqrt 2 (1 for the one number of two classes). The noise is an exact discrete Gaussian on a grid of 2^-j, of which
one-hot rows are multiples (`labeldp.release.vectors`): some 2^11 steps to sigma, so that its variance is the stated one.

*Steps.* Over a ball of diameter D with steps D / (G sqrt t), where E|gradient|^2 <= G^2, the expected excess risk of the last
iterate after T steps is at most 2 D G (2 + log T) / sqrt T (Shamir & Zhang 2013, Theorem 2). A batch of b has second moment
at most L^2 (1 + a^2 / b) (the noise of its examples is independent), so its step may be longer. This is a statement about ONE
pass (epochs=1, average=False) over examples drawn independently: each step then sees a fresh gradient that is unbiased for
the population. Further passes see the same noise again. They are free in privacy and help in practice, but no bound of this
kind is claimed for them.

References: Ghazi et al. 2021, supplement F: Algorithm 5 (LP-RR-SGD), Theorem 9, Corollary 10, Algorithm 6 (LP-Normal-SGD),
Proposition 11; Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization" (2013); Balle & Wang 2018.

Design notes. For LP-Normal-SGD the paper draws on the span of the gradients themselves (K dimensions) with a textbook sigma
for sensitivity 2 L; this is K - 1 dimensions and the exact sigma. No amplification by subsampling is claimed: the noise
lies in the example's own directions, which say which example it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.errors import invalid
from labeldp.guarantee import Trust
from labeldp.learn.convex.base import ConvexClassifier
from labeldp.learn.convex.losses import Loss, choose_loss, one_hot
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRWithPrior
from labeldp.priors import ArrayExamples, Prior
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.budget import Budget
from labeldp.release.vectors import VectorQuery, measure_vector
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

#: Below, the square of 1 / epsilon is no float; there is one answer in 1e100 that says anything.
LEAST_EPSILON = 1e-100
#: Without a stated diameter, scores stay within this distance of zero: beyond it a probability is certain to 5e-5.
DEFAULT_SCORE = 10.0


class LPRRSGD(ConvexClassifier):
    """Convex learning from randomized responses.

    Parameters
    ----------
    epsilon : float
        The whole budget, pure: for the responses, and for a prior that looks at labels.
    prior : Prior, optional
        UniformPrior, PublicPrior, ClusterPrior, ModelPrior: responses are then within each example's likeliest labels.
    loss : {"auto", "logistic", "softmax", "huber", "squared_hinge", "squared"}
        "auto" is logistic for two classes and softmax for more.
    clip : float or "unit-norm"
        The public bound on the norm of a row; required.
    diameter : float, optional
        D, of the ball that weights stay in; by default scores stay within 10.
    epochs, batch_size, average
        How long, how many examples to a step, and whether the second half of the iterates is averaged. All free.
    fit_intercept, intercept_scaling
        Whether rows end with a constant, and how large it is relative to `clip`.
    classes, random_state, ledger, label_set
        As in LabelPrivateClassifier: None for random_state is secure noise, anything else marks the model `seeded_`.

    Notes
    -----
    *Guarantee.*
    Pure epsilon when one label is replaced, trusting no one (a curator, with a prior that counts labels).

    *Edge cases.*
    epsilon = 0 is refused: responses then say nothing, and there is nothing to unbias. A constant label is learned as
    such. epsilon = inf trains on the labels.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        prior: Prior | None = None,
        loss: str = "auto",
        clip: float | str | None = None,
        diameter: float | None = None,
        epochs: int = 5,
        batch_size: int = 64,
        average: bool = True,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.25,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.prior = prior
        self.loss = loss
        self.clip = clip
        self.diameter = diameter
        self.epochs = epochs
        self.batch_size = batch_size
        self.average = average
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> LPRRSGD:
        """Privatize y once and train on the responses; y is not kept."""
        inputs = self._read_inputs(X, y)
        labels = inputs.labels
        loss = choose_loss("LPRRSGD", self.loss, labels.n_classes)
        reach, plan = make_plan(self, radius=inputs.row_map.radius)
        key = as_key("LPRRSGD", self.random_state, name="random_state")
        self.release_ = self._release(X, labels, key)
        targets = self.release_.channel.unbiased_targets(self.release_.codes)
        clean = loss.slope_bound(reach) * inputs.row_map.radius
        moment = clean**2 * bound_response_moment(targets, batch_size=plan.batch_size)
        plan = replace(plan, second_moment=moment)
        weights = run_sgd(inputs.rows, targets, loss, plan, order=make_order(key))
        self._keep(weights, inputs, loss=loss, guarantee=self.release_.guarantee, seeded=self.release_.seeded)
        return self

    def _release(self, X: Any, labels: SensitiveLabels, key: NoiseKey) -> Release:
        """Release the labels: plain, or within what a prior thinks likely after it has been paid for."""
        epsilon = check_epsilon("LPRRSGD", self.epsilon)
        if epsilon == 0:
            raise invalid("LPRRSGD", "epsilon", "be > 0", got=self.epsilon, fix="Responses at epsilon 0 say nothing.")
        if epsilon < LEAST_EPSILON:
            fix = "Targets are as long as 1 / epsilon, and steps go by their squares. Nothing was charged."
            raise invalid("LPRRSGD", "epsilon", f"be at least {LEAST_EPSILON:g}", got=self.epsilon, fix=fix)
        if self.prior is None:
            mechanism: Mechanism = RandomizedResponse(epsilon=epsilon, n_classes=labels.n_classes)
            return privatize(labels, mechanism, rng=key, ledger=self.ledger)
        budget = Budget(owner="LPRRSGD", labels=labels, ledger=self.ledger, seeded=key.seeded)
        prior = self.prior.prepare(ArrayExamples(X, labels), budget=epsilon)  # may fail: before the charge
        split = budget.split(epsilon, prior=prior)
        entry = budget.charge(split.promise, mechanism=f"LPRRSGD, {self.prior!r}")
        table = prior.table(X, labels, budget=epsilon, key=key)
        budget.check_spent(table.guarantee, epsilon=split.spent)
        release = privatize(labels, RRWithPrior(split.response), prior=table.probabilities(), rng=key)
        return replace(release, guarantee=split.promise, ledger_entry=entry)


class OneHotLabels(VectorQuery):
    """Every label as a row: one-hot (n, K), or the indicator of the second of two classes (n, 1).

    A row is made of one label, and its noise is independent of all others: each owner could have drawn her own row, from
    public numbers (K and the budget). Nobody need be trusted. Entries are 0 and 1, so that rounding costs nothing.
    """

    trust = Trust.NO_ONE
    whole = True

    def size(self, *, n_classes: int, n_examples: int) -> int:
        """One number per label for two classes, else K."""
        return n_examples * (1 if n_classes == 2 else n_classes)

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """A replaced label moves two entries of one row by 1; of two classes one entry."""
        return 1.0 if n_classes == 2 else float(np.nextafter(np.sqrt(2.0), 2.0))

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.float64]:
        """Return the rows."""
        rows = one_hot(codes, n_classes).astype(np.float64, copy=False)
        return rows[:, 1:] if n_classes == 2 else rows


class LPNormalSGD(ConvexClassifier):
    """Convex learning from one-hot labels with Gaussian noise.

    Parameters
    ----------
    epsilon, delta : float
        The budget; delta must be > 0.
    loss, clip, diameter, epochs, batch_size, average, fit_intercept, intercept_scaling, classes, random_state, ledger, \
label_set
        As in LPRRSGD.

    Notes
    -----
    *Guarantee.*
    (epsilon, delta) when one label is replaced, trusting no one: the noise of a label is drawn for it alone. The noise is
    discrete and exact.

    *Edge cases.*
    delta = 0 is refused. epsilon = inf trains on the labels.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        loss: str = "auto",
        clip: float | str | None = None,
        diameter: float | None = None,
        epochs: int = 5,
        batch_size: int = 64,
        average: bool = True,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.25,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.clip = clip
        self.diameter = diameter
        self.epochs = epochs
        self.batch_size = batch_size
        self.average = average
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> LPNormalSGD:
        """Release y once, with noise, and train on what was released; y is not kept."""
        inputs = self._read_inputs(X, y)
        labels = inputs.labels
        loss = choose_loss("LPNormalSGD", self.loss, labels.n_classes)
        reach, plan = make_plan(self, radius=inputs.row_map.radius)
        epsilon, delta = check_epsilon("LPNormalSGD", self.epsilon), check_delta("LPNormalSGD", self.delta)
        key = as_key("LPNormalSGD", self.random_state, name="random_state")
        measured = measure_vector(labels, OneHotLabels(), epsilon=epsilon, delta=delta, rng=key, ledger=self.ledger)
        targets = project_rows(measured.value)
        clean = loss.slope_bound(reach) * inputs.row_map.radius
        # Var of sum_k noise_k g(k) is at most sigma^2 sum_k |g(k) - mean|^2 <= sigma^2 K L^2.
        noisy = clean**2 * (1.0 + (measured.sigma or 0.0) ** 2 * labels.n_classes)
        moment = bound_second_moment(clean=clean, noisy=noisy, batch_size=plan.batch_size)
        plan = replace(plan, second_moment=moment)
        weights = run_sgd(inputs.rows, targets, loss, plan, order=make_order(key))
        self._keep(weights, inputs, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        return self


def project_rows(noisy: Floats) -> Floats:
    """Return noisy rows projected on those that sum to one (a known fact of one-hot rows); one column gets its twin.

    >>> project_rows(np.array([[0.25]])).tolist(), project_rows(np.array([[1.0, 0.5, 0.0]])).round(6).tolist()
    ([[0.75, 0.25]], [[0.833333, 0.333333, -0.166667]])
    """
    if noisy.shape[1] == 1:
        return np.concatenate([1.0 - noisy, noisy], axis=1)
    rows: Floats = noisy + (1.0 - noisy.sum(axis=1, keepdims=True)) / noisy.shape[1]
    return rows


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to descend.

    `diameter` of the ball that weights stay in, `second_moment` G^2 of a batch's gradient, passes over the data
    (`epochs`), examples to a step, and whether the second half of the iterates is averaged.

    >>> from labeldp.learn.convex.losses import Logistic
    >>> rows, targets = np.array([[1.0], [-1.0]] * 50), np.array([[-0.5, 1.5], [1.5, -0.5]] * 50)
    >>> plan = Plan(diameter=10.0, second_moment=4.0, epochs=2, batch_size=10, average=True)
    >>> bool(run_sgd(rows, targets, Logistic(), plan, order=np.random.default_rng(0))[0, 0] > 0)
    True
    """

    diameter: float
    second_moment: float
    epochs: int
    batch_size: int
    average: bool


def make_plan(learner: Any, *, radius: float) -> tuple[float, Plan]:
    """Return the largest score that the ball allows, and the learner's plan, whose second moment is still to be set.

    `radius` is the largest norm of a row. Without a stated diameter scores stay within `DEFAULT_SCORE`.
    """
    owner, diameter = type(learner).__name__, learner.diameter
    wide = 2.0 * DEFAULT_SCORE / radius if diameter is None else check_positive(owner, "diameter", diameter)
    plan = Plan(
        diameter=wide,
        second_moment=1.0,
        epochs=check_integer(owner, "epochs", learner.epochs, least=1),
        batch_size=check_integer(owner, "batch_size", learner.batch_size, least=1),
        average=bool(learner.average),
    )
    return 0.5 * wide * radius, plan


def bound_response_moment(targets: Floats, *, batch_size: int) -> float:
    """Return min(w^2, 1 + a^2 / b) of the module, the second moment of a batch's gradient in units of L^2.

    w is the largest sum of |q|, and a the largest difference of two entries of a row: that is 1/keep, whichever label was
    observed, since responses are uniform within a candidate set. Both are facts of the channel, not of the labels. A row
    with one candidate has no noise, and w = 1.

    >>> bound_response_moment(np.array([[1.5, -0.5], [-0.5, 1.5]]), batch_size=1)
    4.0
    """
    longest = float(np.abs(targets).sum(axis=1).max())
    spread = float((targets.max(axis=1) - targets.min(axis=1)).max())
    return min(longest**2, 1.0 + spread**2 / batch_size)


def bound_second_moment(*, clean: float, noisy: float, batch_size: int) -> float:
    """Return L^2 + G^2 / b: the mean gradient is at most L long, and noise of variance <= G^2 averages out."""
    return clean**2 + noisy / batch_size


def run_sgd(rows: Any, targets: Floats, loss: Loss, plan: Plan, *, order: np.random.Generator) -> Floats:
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
            weights = project(weights - length / math.sqrt(step) * gradient, radius)
            if 2 * step > steps:
                total += weights
                kept += 1
    return total / kept if plan.average else weights


def batch_gradient(rows: Any, targets: Floats, loss: Loss, weights: Floats) -> Floats:
    """Return the mean gradient of a batch, unbiased if its targets are."""
    slopes = loss.slopes(np.asarray(rows @ weights.T), targets)
    gradient: Floats = np.asarray(rows.T @ slopes).T / rows.shape[0]
    return gradient


def project(weights: Floats, radius: float) -> Floats:
    """Return the nearest weights in the ball."""
    size = float(np.linalg.norm(weights))
    return weights if size <= radius else weights * (radius / size)


def make_order(key: NoiseKey) -> np.random.Generator:
    """Return a generator for the order of examples: not noise, so it need not be secret."""
    return np.random.default_rng(key.child("order").words(start=0, count=2).reshape(-1))
