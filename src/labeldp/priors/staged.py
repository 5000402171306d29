r"""Priors that learn in between: histograms one after the other (`StagedClusterPrior`), or labels drawn first (`LearnedPrior`).

**StagedClusterPrior.** The first histogram counts labels in clusters of the features. A model is fitted on its beliefs, and
the examples are clustered again in what that model makes of them: its hidden features, or where it has none its
log-probabilities. Clusters there are purer, so the same noise says more. The second histogram corrects the model's beliefs
p_i: with m_c the mean of p over cluster c and s_c the released shares,

    p_i[y]  <-  p_i[y] s_c[y] / m_c[y],   normalised,   c = the cluster of i,

repeated a few times (iterative proportional fitting): the beliefs of a cluster then add up to what was released of it,
and keep the model's opinion on who in the cluster is what. Clusters after the first depend on the labels only through
earlier releases: post-processing. Each histogram is pure epsilon_p / T, in sequence epsilon_p.

>>> prior = StagedClusterPrior(None, histograms=2, epsilon=0.5)
>>> prior.cost(1.0, n_examples=1000, n_classes=10)
0.5
>>> fit_shares(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([[0.4, 0.6]]), np.array([0, 0])).round(2).tolist()
[[0.17, 0.83], [0.64, 0.36]]

**LearnedPrior.** Two stages in one release (LP-MST): the rows are split without looking at labels, the first part is
released by randomized response, a model learns from it, and the second part is released on the model's predictions.
The stage of a row is a keyed hash of its position, so any worker computes it by itself. The salt is derived from the key
one way, and tells nothing of it; stages are released anyway.

>>> salt = stage_salt(NoiseKey.from_seed(1))
>>> stages = stage_of(salt, 0, 8, first_share=0.5)
>>> bool((stage_of(salt, 3, 5, first_share=0.5) == stages[3:]).all())
True

References: Ghazi et al., "Deep learning with label differential privacy" (2021), Algorithms 3 (LP-MST) and 4 (one histogram);
Deming & Stephan 1940 (proportional fitting).

Design notes. The table of a StagedClusterPrior has a row per example and travels with a release, so that a receiver starts
from it and needs neither the clusters nor the models behind it. Models are trained here, on soft targets, by their
`fit_targets`; nothing is known about them otherwise. A LearnedPrior draws the labels of the first stage once for training
and again for the release, under the same noise: the same labels. `LabelPrivateClassifier(stages=2)` is the same idea for
features in memory; it partitions by itself and takes no LearnedPrior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Float64s, Floats, Ints
from labeldp.channel import SetAnswers
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust, did_not_see
from labeldp.mechanisms import Mechanism
from labeldp.priors.base import (
    ArrayExamples,
    Beliefs,
    Examples,
    Kept,
    Prior,
    PriorTable,
    Reader,
    chunk_probabilities,
    model_probabilities,
    one_thread,
)
from labeldp.priors.cluster import ClusterPrior, cluster
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.budget import equal_parts
from labeldp.release.persons import Persons
from labeldp.validate import check_epsilon, check_integer

OWNER = "StagedClusterPrior"
#: Examples of a cluster times epsilon_p over ln K: the largest of K noises of scale 2 / epsilon_p is (2 / epsilon_p) ln K.
EVIDENCE = 22.0
MOST_CLUSTERS = 1000
#: Steps of proportional fitting; more change little.
STEPS = 3
#: A cluster's mean belief in a class is not taken to be less than this: a noisy share over nothing says nothing.
LEAST_MEAN = 1e-3
#: Variances below this share of the largest are not blown up further.
LEAST_VARIANCE = 1e-3


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

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Epsilon_p, by a curator; and that weights which a network brings along, whose clusters are counted, saw no label."""
        spent = super().promise(budget, n_examples=n_examples, n_classes=n_classes)
        return replace(spent, assumptions=(*spent.assumptions, *_assume_weights(self.estimator)))

    def alone(self) -> StagedClusterPrior:
        """Return this prior with the whole budget, unless it was told its epsilon."""
        return self if self.epsilon is not None else replace(self, whole_budget=True)

    def with_journal(self, kept: Kept) -> StagedClusterPrior:
        """Return this prior with a memory for each histogram: a label that was counted in it is not counted again."""
        return replace(self, _kept=kept)

    def prepare(self, examples: Examples, *, budget: float) -> StagedClusterPrior:
        """Return the prior with its first clusters found and its settings checked; it works in memory only."""
        n_examples, n_classes = len(examples), examples.n_classes
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        if self.histograms > 1 and not hasattr(self.estimator, "fit_targets"):
            got, fix = (
                type(self.estimator).__name__,
                "For example SoftmaxRegression() or labeldp.nn.NetClassifier('mlp').",
            )
            raise invalid(OWNER, "estimator", "have `fit_targets`", got=got, fix=fix)
        self._model(0)
        if not isinstance(examples, ArrayExamples):
            fix = "Use ClusterPrior(n_clusters=...) for a table."
            raise invalid(OWNER, "examples", "be in memory", got=Described("rows that come in batches"), fix=fix)
        count = cluster_count(spent / self.histograms, n_examples=n_examples, n_classes=n_classes)
        grouping = examples.group_clusters(
            count, random_state=self.random_state, full_steps=self.full_steps, n_components=self.n_components
        )
        return replace(self, _first=grouping.read(None, slice(0, n_examples)))

    def table(
        self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey, persons: Persons | None = None
    ) -> PriorTable:
        """Count, believe, learn, and count again where the model has put the examples."""
        spent = self.cost(budget, n_examples=len(labels), n_classes=labels.n_classes)
        each = equal_parts(spent, self.histograms)
        ready = self if self._first is not None else self.prepare(ArrayExamples(X, labels), budget=budget)
        count = partial(self._recall, labels=labels, epsilon=each, key=key, persons=persons)
        first = ready._first  # noqa: SLF001 - its own
        counts = [count(0, first)]
        beliefs = counts[0].probabilities()
        for number in range(1, self.histograms):
            model = self._model(number).fit_targets(X, beliefs, classes=np.asarray(labels.classes))
            groups = self._cluster_hidden(model, X, labels, each)
            counts.append(count(number, groups))
            beliefs = fit_shares(model_probabilities(model, X, labels.classes), counts[-1].rows, counts[-1].index)
        return PriorTable(
            rows=beliefs,
            index=np.arange(len(labels)),
            guarantee=_promise(counts, each=each, spent=spent),
            seeded=any(one.seeded for one in counts),
            description=f"{self.histograms} noisy histograms at epsilon {each:.4g} each",
        )

    def _recall(
        self,
        number: int,
        groups: Any,
        *,
        labels: SensitiveLabels,
        epsilon: float,
        key: NoiseKey,
        persons: Persons | None,
    ) -> PriorTable:
        """Return a histogram, measured or remembered; a remembered one has its own clusters with it."""
        told = {} if persons is None else {"persons": persons}
        make = partial(self._histogram, groups, labels, epsilon, key.child("histogram", number), **told)
        return make() if self._kept is None else self._kept(f"histogram-{number + 1}", make)

    def _histogram(
        self, groups: Any, labels: SensitiveLabels, epsilon: float, key: NoiseKey, *, persons: Persons | None = None
    ) -> PriorTable:
        source = ClusterPrior(groups=groups, epsilon=epsilon, shrink=self.shrink)
        return source.table(None, labels, budget=math.inf, key=key, persons=persons)

    def _cluster_hidden(self, model: Any, X: Any, labels: SensitiveLabels, epsilon: float) -> Ints:
        """Return clusters of the examples in the model's own space, half-whitened."""
        if hasattr(model, "hidden_features"):
            space = np.asarray(model.hidden_features(X), np.float64)
        else:
            space = np.log(np.maximum(model_probabilities(model, X, labels.classes), 1e-6))
        rows = half_whiten(space, n_components=self.hidden_components).astype(np.float32)
        count = cluster_count(epsilon, n_examples=len(labels), n_classes=labels.n_classes)
        return cluster(rows, n_clusters=count, random_state=self.random_state, full_steps=self.full_steps)

    def _model(self, number: int) -> Any:
        from labeldp.release.templates import copy_template

        model = copy_template(OWNER, "estimator", self.estimator)
        seed = model.get_params(deep=False).get("random_state")
        if isinstance(seed, int) and not isinstance(seed, bool):
            model.set_params(
                random_state=seed + 1000 * number
            )  # apart from the seeds of those who learn from the prior
        return model


def _assume_weights(estimator: Any) -> tuple[str, ...]:
    """Return what is assumed of the weights that a network brings along, if there are any."""
    from labeldp.release.templates import list_weights  # loads scikit-learn

    return did_not_see(*list_weights(estimator))


def cluster_count(epsilon: float, *, n_examples: int, n_classes: int) -> int:
    """Return how many clusters a histogram at this epsilon can carry: sizes of 22 ln K / epsilon, at most 1000.

    >>> cluster_count(0.1, n_examples=60_000, n_classes=10), cluster_count(0.1, n_examples=100, n_classes=10)
    (118, 1)
    """
    wanted = int(n_examples * epsilon / (EVIDENCE * math.log(max(n_classes, 2))))
    return max(1, min(wanted, MOST_CLUSTERS, n_examples // 2))


def fit_shares(beliefs: Floats, shares: Floats, groups: Ints) -> Floats:
    """Return beliefs (n, K) moved, by proportional fitting, so that each group's mean comes to its share (C, K)."""
    fitted = np.array(beliefs, dtype=np.float64)
    sizes = np.bincount(groups, minlength=len(shares))[:, None]
    for _ in range(STEPS):
        sums = [np.bincount(groups, weights=column, minlength=len(shares)) for column in fitted.T]
        means = np.stack(sums, axis=1) / np.maximum(sizes, 1)
        fitted *= (shares / np.maximum(means, LEAST_MEAN))[groups]
        fitted /= np.maximum(fitted.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return fitted


def half_whiten(space: Any, *, n_components: int | None = None) -> Float64s:
    """Return rows centred, along their largest principal axes (all of them by default), each divided by the fourth root of
    its variance; variances below `LEAST_VARIANCE` of the largest are not blown up further.

    >>> rows = np.random.default_rng(0).normal(size=(5000, 2)) * [4.0, 1.0]
    >>> np.sort(half_whiten(rows).std(axis=0)).round(1).tolist()
    [1.0, 2.0]
    """
    rows = np.asarray(space, np.float64)
    centred = rows - rows.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    first = 0 if n_components is None else max(0, len(values) - n_components)
    damped = np.maximum(values[first:], LEAST_VARIANCE * max(float(values[-1]), np.finfo(np.float64).tiny))
    white: Float64s = (centred @ axes[:, first:]) / damped**0.25
    return white


def _promise(counts: list[PriorTable], *, each: float, spent: float) -> Guarantee:
    """Return pure epsilon_p, after checking that no histogram spent more than its part."""
    assumptions: tuple[str, ...] = ()
    units = {count.guarantee.unit for count in counts if count.guarantee is not None}
    if len(units) > 1:
        raise PrivacyError(f"{OWNER}: histograms promise for different units. Stopped there.")
    for count in counts:
        if count.guarantee is None or not count.guarantee.epsilon() <= each:
            raise PrivacyError(f"{OWNER}: a histogram spent more than its part of epsilon, {each!r}. Stopped there.")
        assumptions = (*assumptions, *count.guarantee.assumptions)
    whole = Guarantee.pure(spent, trust=Trust.CURATOR, unit=units.pop()).named("cluster histograms")
    return replace(whole, assumptions=assumptions)


# ------------------------------------------------------------------------------------------------- labels drawn first

#: Share of the first stage, between our 0.8 at epsilon 1 and 0.6 from 4 on; the paper has 65% at epsilon 2.
FIRST_SHARE = 0.7


@dataclass(frozen=True, eq=False)
class LearnedPrior(Prior):
    """What a learner makes of the labels of a first stage, which are drawn without a prior; nothing, for those themselves.

    Parameters
    ----------
    learner : classifier with `partial_fit` and `predict_proba`
        An untrained copy of it learns, chunk after chunk, from the numeric features on one scale and the released labels.
    first_share : float
        The share of the rows in the first stage.

    Guarantee
    ---------
    Costs nothing beyond the response. Each label is drawn once, by a channel that is epsilon-DP and depends on features and
    on the released labels of *other* rows alone. Replacing one label of the first stage changes the law of that one output
    by at most e^epsilon, and what follows is computed from it; one of the second stage changes its own output alone. Hence
    epsilon in all, provided that the release is drawn under the same key and by the same mechanism: `privatize_table` does.

    Edge cases
    ----------
    Without a `response` (in a learner) it is refused: the labels of the first stage would be drawn twice.
    """

    learner: Any
    first_share: float = field(default=FIRST_SHARE, kw_only=True)
    _features: Reader | None = field(default=None, kw_only=True, repr=False)
    sees_labels: ClassVar[bool] = True
    draws_labels: ClassVar[bool] = True

    @property
    def description(self) -> str:
        """The learner, and that there are stages."""
        return f"a {type(self.learner).__name__}'s predictions, in two stages"

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Nothing: each label is drawn once, and what is learned from it is post-processing."""
        return 0.0

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Nothing, since a row's beliefs come from the released labels of other rows; weights that are brought along saw none."""
        return Guarantee.pure(0.0, assumptions=_assume_weights(self.learner))

    def prepare(self, examples: Examples, *, budget: float) -> LearnedPrior:
        """Return the prior with the features chosen and their scale learned."""
        if not (hasattr(self.learner, "partial_fit") and hasattr(self.learner, "predict_proba")):
            fix = "For example SGDClassifier(loss='log_loss'), or GaussianNB()."
            got = type(self.learner).__name__
            raise invalid("LearnedPrior", "learner", "have `partial_fit` and `predict_proba`", got=got, fix=fix)
        self._copy_learner()
        return replace(self, _features=examples.read_features("LearnedPrior"))

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Train on the first stage as it is released, and believe in the second what was learned."""
        if response is None:
            fix = "LabelPrivateClassifier(stages=2) learns in stages itself; leave the prior out."
            raise invalid("LearnedPrior", "response", "draw the labels of the first stage", got=None, fix=fix)
        ready = self if self._features is not None else self.prepare(examples, budget=budget)
        features = ready._features  # noqa: SLF001 - its own
        assert features is not None
        stage = _Stages(stage_salt(key), self.first_share)
        model, inclusion = self._train(examples, features, response, key, stage)
        read = _ReadSecond(model, inclusion, features, stage, examples.classes)
        reader = Reader(read=read, columns=features.columns, chunk=features.chunk)
        return Beliefs(reader=reader, seeded=key.seeded, description=self.description, stage=stage)

    def _copy_learner(self) -> Any:
        """Return an untrained copy of the learner, or refuse one that stays trained: it may know raw labels of the second stage."""
        from labeldp.release.templates import copy_template  # loads scikit-learn

        return copy_template("LearnedPrior", "learner", self.learner, safe=False)

    def _train(
        self, examples: Examples, features: Reader, response: Mechanism, key: NoiseKey, stage: _Stages
    ) -> tuple[Any, _Inclusion | None]:
        """Fit a copy of the learner on the answers of the first stage, chunk after chunk.

        A row whose answer is a set is learned once as each label of the set; what the learner then predicts is undone
        by how often a set names the true label and others (`_Inclusion`).
        """
        model, names = self._copy_learner(), np.asarray(examples.classes)
        inclusion: _Inclusion | None = None

        def answer(count: int) -> Any:
            return response.channel(np.full((count, len(names)), 1.0 / len(names)), n_classes=len(names))

        for matrix, rows, codes in examples.draw(features, answer, promise=response.guarantee, key=key):
            first = np.flatnonzero(stage(rows) == 0)
            channel = answer(len(codes)).place(rows.start, len(codes))
            if isinstance(channel, SetAnswers) and not channel.outputs_are_labels:
                part, observed = channel.take(first), codes[first]
                named = part.members(observed)
                inclusion = _Inclusion.of(part, observed, named, before=inclusion)
                which, labels = np.nonzero(named)
                learned, targets = matrix[first[which]], names[labels]
            else:
                learned, targets = matrix[first], names[codes[first]]
            if len(targets):
                with one_thread():
                    model.partial_fit(learned, targets, classes=names)
        return model, inclusion


@dataclass(frozen=True)
class _Stages:
    """The stage of the rows at some positions; it travels, and holds the salt, never the key."""

    salt: bytes = field(repr=False)
    first_share: float

    def __call__(self, rows: slice) -> npt.NDArray[np.uint8]:
        return stage_of(self.salt, rows.start, rows.stop - rows.start, first_share=self.first_share)


@dataclass(frozen=True)
class _Inclusion:
    """Sums over answers that are sets: how many there are, the labels that they name, the chances of the true one.

    With equally likely labels, a set of mean size m names the true label with chance p and each other one with
    q = (m - p) / (K - 1). A learner of rows repeated for each label of their sets estimates s[k] = (q + (p - q) P(k)) / m.
    """

    rows: int
    named: float
    surely: float

    @classmethod
    def of(cls, channel: SetAnswers, observed: Any, named: Any, *, before: _Inclusion | None) -> _Inclusion:
        """Return the sums with more answers."""
        shapes = channel.shapes_of(observed)
        surely = float((shapes[:, 1] * channel.chances(shapes)[0]).sum())
        sums = cls(len(shapes), float(named.sum()), surely)
        return sums if before is None else cls(*(getattr(before, name) + value for name, value in vars(sums).items()))

    def undo(self, shares: Floats) -> Floats:
        """Return P from s, with what comes out negative at zero; flat where sets tell nothing."""
        n_classes = shares.shape[1]
        size, p = self.named / max(self.rows, 1), self.surely / max(self.rows, 1)
        found = np.maximum(shares * size - (size - p) / (n_classes - 1), 0.0)
        total = found.sum(axis=1, keepdims=True)
        flat = np.full_like(found, 1.0 / n_classes)
        answer: Floats = np.divide(found, total, out=flat, where=total > 0)
        return answer


@dataclass(frozen=True)
class _ReadSecond:
    """Reads uniform beliefs for rows of the first stage and a model's predictions for those of the second."""

    model: Any
    inclusion: _Inclusion | None
    features: Reader
    stage: _Stages
    classes: tuple[Any, ...]

    def __call__(self, batch: Any, rows: slice) -> Floats:
        matrix = self.features.read(batch, rows)
        beliefs = np.full((len(matrix), len(self.classes)), 1.0 / len(self.classes))
        later = self.stage(rows) == 1
        learned = chunk_probabilities(self.model, matrix, self.classes)[later]
        beliefs[later] = learned if self.inclusion is None else self.inclusion.undo(learned)
        return beliefs


def stage_salt(key: NoiseKey) -> bytes:
    """Return the salt of a release's stages: a one-way function of its key."""
    return key.child("stages").reveal()


def stage_of(salt: bytes, start: int, count: int, *, first_share: float) -> npt.NDArray[np.uint8]:
    """Return the stage, 0 or 1, of rows `start` .. by a keyed hash of their positions: AES in counter mode."""
    words = NoiseKey(salt, seeded=True).words(start=start, count=count)[:, 0]
    stages: npt.NDArray[np.uint8] = (words >= np.uint64(int(first_share * 2.0**64))).astype(np.uint8)
    return stages
