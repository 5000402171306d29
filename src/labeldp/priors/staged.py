r"""`StagedClusterPrior`: noisy histograms one after the other, each on clusters of a better space.

The first histogram counts labels in clusters of the features. A model is fitted on its beliefs, and the examples are
clustered again in what that model makes of them: its hidden features, or where it has none its log-probabilities. Clusters
there are purer, so the same noise says more. The second histogram corrects the model's beliefs p_i: with m_c the mean
of p over cluster c and s_c the released shares,

    p_i[y]  <-  p_i[y] s_c[y] / m_c[y],   normalised,   c = the cluster of i,

repeated a few times (iterative proportional fitting): the beliefs of a cluster then add up to what was released of it,
and keep the model's opinion on who in the cluster is what.

Clusters after the first depend on the labels only through earlier releases: post-processing. Each histogram is pure
epsilon_p / T, in sequence epsilon_p.

>>> prior = StagedClusterPrior(None, histograms=2, epsilon=0.5)
>>> prior.cost(1.0, n_examples=1000, n_classes=10)
0.5
>>> fitted_shares(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([[0.4, 0.6]]), np.array([0, 0])).round(2).tolist()
[[0.17, 0.83], [0.64, 0.36]]

References: Ghazi et al. 2021, Algorithm 4 (one histogram); Deming & Stephan 1940 (proportional fitting).

Design notes. The table that comes out has a row per example and travels with a release, so that a receiver starts from
it and needs neither the clusters nor the models behind it. Models are trained here, on soft targets, by their
`fit_targets`; nothing is known about them otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Ints
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.priors.base import Kept, Prior, PriorTable, flat_features, model_probabilities
from labeldp.priors.cluster import ClusterPrior
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.labels import equal_parts
from labeldp.validate import check_epsilon, check_integer

OWNER = "StagedClusterPrior"
#: Examples of a cluster times epsilon_p over ln K: the largest of K noises of scale 2 / epsilon_p is (2 / epsilon_p) ln K.
EVIDENCE = 22.0
MOST_CLUSTERS = 1000
#: Steps of proportional fitting; more change little.
STEPS = 3
#: A cluster's mean belief in a class is not taken to be less than this: a noisy share over nothing says nothing.
LEAST_MEAN = 1e-3


@dataclass(frozen=True, eq=False)
class StagedClusterPrior(Prior):
    """Histograms of clusters, the later ones of clusters that a model trained on the earlier ones sees.

    Parameters
    ----------
    estimator : classifier with `fit_targets` and `predict_proba`
        With `hidden_features`, these are clustered. It is copied, never changed.
    histograms : int
        How many share epsilon_p evenly.
    epsilon : float, optional
        epsilon_p, what all histograms spend together. By default half of the budget.
    n_components, hidden_components : int
        Principal components of the features, and of the model's space, that are clustered.
    shrink, full_steps : float, int
        As in ClusterPrior.
    whole_budget : bool
        Spend all of the budget: nothing else is released about these labels.
    random_state : int
        Seed of k-means. It sees no labels, so this is not a privacy matter.

    Guarantee
    ---------
    Pure epsilon_p when one label is replaced, in sequence with whatever uses the prior on the same labels; trusts a
    curator, who counts.
    """

    estimator: Any = field(repr=False)
    histograms: int = field(default=2, kw_only=True)
    epsilon: float | None = field(default=None, kw_only=True)
    n_components: int = field(default=128, kw_only=True)
    hidden_components: int = field(default=64, kw_only=True)
    shrink: float = field(default=0.5, kw_only=True)
    full_steps: int = field(default=12, kw_only=True)
    whole_budget: bool = field(default=False, kw_only=True)
    random_state: int = field(default=0, kw_only=True)
    _first: Ints | None = field(default=None, kw_only=True, repr=False)
    _kept: Kept | None = field(default=None, kw_only=True, repr=False)

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """epsilon_p: as given, all of the budget, or half of it."""
        if not 0 < budget < math.inf:
            fix = "Without noise, or with nothing but noise, use UniformPrior()."
            raise invalid(OWNER, "budget", "be > 0 and finite", got=budget, fix=fix)
        check_integer(OWNER, "histograms", self.histograms, least=1, most=100)
        if self.whole_budget:
            return budget
        spent = budget / 2 if self.epsilon is None else check_epsilon(OWNER, self.epsilon)
        if not 0 < spent < budget:
            fix = "The histograms and the response share one budget."
            raise invalid(OWNER, "epsilon", f"be in (0, {budget:g})", got=self.epsilon, fix=fix)
        return spent

    def alone(self) -> StagedClusterPrior:
        """Return this prior with the whole budget, unless it was told its epsilon."""
        return self if self.epsilon is not None else replace(self, whole_budget=True)

    def journaled(self, kept: Kept) -> StagedClusterPrior:
        """Return this prior with a memory for each histogram: a label that was counted in it is not counted again."""
        return replace(self, _kept=kept)

    def prepared(self, X: Any, *, budget: float, n_examples: int, n_classes: int) -> StagedClusterPrior:
        """Return the prior with its first clusters found and its settings checked."""
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        if self.histograms > 1 and not hasattr(self.estimator, "fit_targets"):
            got, fix = (
                type(self.estimator).__name__,
                "For example SoftmaxRegression() or labeldp.nn.NetClassifier('mlp').",
            )
            raise invalid(OWNER, "estimator", "have `fit_targets`", got=got, fix=fix)
        return replace(self, _first=self._first_groups(X, n_examples, n_classes, spent))

    def _first_groups(self, X: Any, n_examples: int, n_classes: int, spent: float) -> Ints:
        rows = flat_features(X, n_components=self.n_components, random_state=self.random_state)
        count = cluster_count(spent / self.histograms, n_examples=n_examples, n_classes=n_classes)
        return self._clusters(rows, count, spent)

    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Count, believe, learn, and count again where the model has put the examples."""
        spent = self.cost(budget, n_examples=len(labels), n_classes=labels.n_classes)
        each = equal_parts(spent, self.histograms)
        first = self._first if self._first is not None else self._first_groups(X, len(labels), labels.n_classes, spent)
        counts = [self._remembered(0, first, labels, each, key)]
        beliefs = counts[0].probabilities()
        for number in range(1, self.histograms):
            model = self._model(number).fit_targets(X, beliefs, classes=np.asarray(labels.classes))
            groups = self._seen_by(model, X, labels, each)
            counts.append(self._remembered(number, groups, labels, each, key))
            beliefs = fitted_shares(model_probabilities(model, X, labels.classes), counts[-1].rows, counts[-1].index)
        return PriorTable(
            rows=beliefs,
            index=np.arange(len(labels)),
            guarantee=_promised(counts, each=each, spent=spent),
            seeded=any(count.seeded for count in counts),
            description=f"{self.histograms} noisy histograms at epsilon {each:.4g} each",
        )

    def _remembered(
        self, number: int, groups: Any, labels: SensitiveLabels, epsilon: float, key: NoiseKey
    ) -> PriorTable:
        """Return a histogram, measured or remembered; a remembered one has its own clusters with it."""
        make = partial(self._histogram, groups, labels, epsilon, key.child("histogram", number))
        return make() if self._kept is None else self._kept(f"histogram-{number + 1}", make)

    def _histogram(self, groups: Any, labels: SensitiveLabels, epsilon: float, key: NoiseKey) -> PriorTable:
        source = ClusterPrior(groups=groups, epsilon=epsilon, shrink=self.shrink)
        return source.table(None, labels, budget=math.inf, key=key)

    def _clusters(self, rows: Any, count: int, budget: float) -> Ints:
        source = ClusterPrior(
            n_clusters=count, random_state=self.random_state, full_steps=self.full_steps, whole_budget=True
        )
        groups: Ints = source.prepared(rows, budget=budget, n_examples=rows.shape[0], n_classes=2).groups
        return groups

    def _seen_by(self, model: Any, X: Any, labels: SensitiveLabels, epsilon: float) -> Ints:
        """Return clusters of the examples in the model's own space, half-whitened."""
        if hasattr(model, "hidden_features"):
            space = np.asarray(model.hidden_features(X), np.float64)
        else:
            space = np.log(np.maximum(model_probabilities(model, X, labels.classes), 1e-6))
        rows = half_white(space, n_components=self.hidden_components)
        count = cluster_count(epsilon, n_examples=len(labels), n_classes=labels.n_classes)
        return self._clusters(rows, count, epsilon)

    def _model(self, number: int) -> Any:
        from sklearn.base import clone

        model = clone(self.estimator)
        seed = model.get_params(deep=False).get("random_state")
        if isinstance(seed, int) and not isinstance(seed, bool):
            model.set_params(
                random_state=seed + 1000 * number
            )  # apart from the seeds of those who learn from the prior
        return model


def cluster_count(epsilon: float, *, n_examples: int, n_classes: int) -> int:
    """Return how many clusters a histogram at this epsilon can carry: sizes of 22 ln K / epsilon, at most 1000.

    >>> cluster_count(0.1, n_examples=60_000, n_classes=10), cluster_count(0.1, n_examples=100, n_classes=10)
    (118, 1)
    """
    wanted = int(n_examples * epsilon / (EVIDENCE * math.log(max(n_classes, 2))))
    return max(1, min(wanted, MOST_CLUSTERS, n_examples // 2))


def fitted_shares(beliefs: Floats, shares: Floats, groups: Ints) -> Floats:
    """Return beliefs (n, K) moved, by proportional fitting, so that each group's mean comes to its share (C, K)."""
    fitted = np.array(beliefs, dtype=np.float64)
    sizes = np.bincount(groups, minlength=len(shares))[:, None]
    for _ in range(STEPS):
        sums = [np.bincount(groups, weights=column, minlength=len(shares)) for column in fitted.T]
        means = np.stack(sums, axis=1) / np.maximum(sizes, 1)
        fitted *= (shares / np.maximum(means, LEAST_MEAN))[groups]
        fitted /= np.maximum(fitted.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return fitted


def half_white(space: npt.NDArray[np.float64], *, n_components: int) -> npt.NDArray[np.float32]:
    """Return the largest principal components, each divided by the fourth root of its variance."""
    centred = space - space.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    top = slice(max(0, len(values) - n_components), None)
    damped = np.maximum(values[top], 1e-3 * max(float(values[-1]), np.finfo(np.float64).tiny))
    return np.asarray((centred @ axes[:, top]) / damped**0.25, np.float32)


def _promised(counts: list[PriorTable], *, each: float, spent: float) -> Guarantee:
    """Return pure epsilon_p, after checking that no histogram spent more than its part."""
    assumptions: tuple[str, ...] = ()
    for count in counts:
        if count.guarantee is None or not count.guarantee.epsilon() <= each:
            raise PrivacyError(f"{OWNER}: a histogram spent more than its part of epsilon, {each!r}. Stopped there.")
        assumptions = count.guarantee.assumptions
    whole = Guarantee.pure(spent, trust=Trust.CURATOR).named("cluster histograms")
    return replace(whole, assumptions=assumptions)
