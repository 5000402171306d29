r"""`LPRRSGD`: randomized response once per label, then stochastic gradients that its noise does not bias.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat([0, 1], 500)
>>> model = LPRRSGD(epsilon=1.0, clip=1.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon()
([0, 1], 1.0)

References: Ghazi et al. 2021, supplement F: Algorithm 5 (LP-RR-SGD), Theorem 9, Corollary 10.

Design notes. With E = e^epsilon, the observed label o becomes the row q = ((E + K - 1) e_o - 1) / (E - 1), whose
expectation is the one-hot label; sum_k q_k g(k) is the paper's (E + K - 1)/(E - 1) (g(o) - sum_k g(k)/(E + K - 1)).
Its norm is at most L sum_k |q_k| = L (E + 2K - 3)/(E - 1), for every epsilon; the paper's 60 L is for epsilon < 1. With
a prior the channel has a candidate set per example and k for K; a label outside its set is redrawn within it, which
biases the gradient by at most 2 L times the prior's chance of being wrong (Corollary 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labeldp._random import NoiseKey, as_key
from labeldp._validate import check_epsilon
from labeldp.errors import invalid
from labeldp.learn._budget import divided, within
from labeldp.learn.convex._base import ConvexClassifier, Floats
from labeldp.learn.convex._losses import chosen_loss
from labeldp.learn.convex._sgd import Plan, batch_second_moment, checked_plan, projected_sgd, public_order
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRWithPrior
from labeldp.priors import Prior
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release._charging import charge


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

    Guarantee
    ---------
    Pure epsilon when one label is replaced, trusting no one (a curator, with a prior that counts labels).

    Edge cases
    ----------
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
        rows, labels = self._prepared(X, y)
        loss = chosen_loss("LPRRSGD", self.loss, labels.n_classes)
        reach, plan = checked_plan(
            "LPRRSGD",
            diameter=self.diameter,
            radius=self._rows.radius,
            epochs=self.epochs,
            batch_size=self.batch_size,
            average=self.average,
        )
        key = as_key("LPRRSGD", self.random_state)
        self.release_ = self._released(X, labels, key)
        targets = self.release_.channel.unbiased_targets(self.release_.codes)
        clean = loss.slope_bound(reach) * self._rows.radius
        weights = projected_sgd(rows, targets, loss, self._sized(plan, targets, clean), order=public_order(key))
        self._keep(weights, labels, loss=loss, guarantee=self.release_.guarantee, seeded=self.release_.seeded)
        return self

    def _sized(self, plan: Plan, targets: Floats, clean: float) -> Plan:
        """Return the plan with G^2 from the largest sum of |q|: a fact of the channel, not of the labels."""
        noisy = (clean * float(np.abs(targets).sum(axis=1).max())) ** 2
        return replace(plan, second_moment=batch_second_moment(clean=clean, noisy=noisy, batch_size=plan.batch_size))

    def _released(self, X: Any, labels: SensitiveLabels, key: NoiseKey) -> Release:
        """Release the labels: plain, or within what a prior thinks likely after it has been paid for."""
        budget = check_epsilon("LPRRSGD", self.epsilon)
        if budget == 0:
            raise invalid("LPRRSGD", "epsilon", "be > 0", got=self.epsilon, fix="Responses at epsilon 0 say nothing.")
        if self.prior is None:
            mechanism: Mechanism = RandomizedResponse(epsilon=budget, n_classes=labels.n_classes)
            return privatize(labels, mechanism, rng=key, ledger=self.ledger)
        plan = divided("LPRRSGD", self.prior, budget, labels)
        entry = charge(self.ledger, plan.promise, labels, mechanism=f"LPRRSGD, {self.prior!r}", seeded=key.seeded)
        table = within("LPRRSGD", plan, self.prior.table(X, labels, budget=budget, key=key))
        release = privatize(labels, RRWithPrior(plan.response), prior=table.probabilities(), rng=key)
        return replace(release, guarantee=plan.promise, ledger_entry=entry)
