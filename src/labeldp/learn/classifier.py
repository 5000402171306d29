r"""`LabelPrivateClassifier`: any scikit-learn classifier, trained on labels that it never sees.

Which stages and which prior: the default that "auto" stands for, from epsilon, the number of classes and of examples.

Let n be the examples, K the classes and e the budget. The prior is a noisy histogram of labels per cluster. A count has
noise of scale 2 / e_p, the largest of K of them is about (2 / e_p) ln K, and a cluster's own class should stand far
above that: clusters of

    size = 22 ln K / e_p                                  (50 / e_p for ten classes)

examples, at most 1000 of them. The budget is divided by

    e <= 0.2         one histogram takes all of it; no label is released (stages = 0);
    e <= 1           two histograms of e / 2 take all of it, the second on clusters of what a model learned from the
                     first (`StagedClusterPrior`);
    e  > 1           one histogram takes 1/4, and the labels are released by RRWithPrior at e - 1/4, in three parts
                     (0.4, 0.3, 0.3), each with the model of the parts before it as prior.

An estimator without `fit_targets` has one histogram throughout, alone up to e = 0.3, and then min(e / 2, 1/4). Where even
two clusters would be too small, or e is 0 or infinite, there is no prior: two stages of the paper (one, at 0 or infinity).
One histogram, the parts and their numbers are those of RECIPES.md.

>>> recipe(0.1, n_examples=60_000, n_classes=10)
Recipe(shares=(), prior=ClusterPrior(n_clusters=118, ..., whole_budget=True, random_state=0))
>>> recipe(2.0, n_examples=60_000, n_classes=10).shares
(0.4, 0.3, 0.3)
>>> recipe(0.1, n_examples=100, n_classes=10).prior
UniformPrior()

Trust: the histogram is counted by a curator who sees the labels, and the guarantee says so. `stages=2, prior=None` needs
no one's trust.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.learn.checkpoint import PRIOR, Journal
from labeldp.learn.corrections import checked_rows, split_pipeline
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.learn.stages import (
    Settings,
    Walked,
    assign_stages,
    drawn_by,
    is_silent,
    merged,
    released_prior,
    replayed_from,
    settings_of,
    stage_shares,
    walk,
)
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import ClusterPrior, Prior, PriorTable, StagedClusterPrior, UniformPrior, model_probabilities
from labeldp.priors.staged import cluster_count
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, SensitiveLabels
from labeldp.release.labels import Budget, Split, box_labels
from labeldp.validate import check_choice, check_epsilon


class Spending(NamedTuple):
    """Whose labels, from which noise, for what promise, in which stages, and where it is written down."""

    labels: SensitiveLabels
    key: NoiseKey
    budget: Budget
    division: Split
    plan: Recipe
    journal: Journal


class LabelPrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Privatize labels once, in stages, and train any classifier with `predict_proba` on what was released.

    `fit(X, y)` splits the examples without looking at y. Stage 1 randomizes its labels with what the prior says; each
    later stage uses the model of the stages before it as prior for its own labels (RRWithPrior). Every label is drawn
    once, so the stages cost `epsilon` in all; a prior that looks at the labels takes its share of that budget first.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, or a pipeline that ends in one; default SoftmaxRegression()
        Transformers of a pipeline are fitted on the features alone, which are not secret.
    epsilon : float
        The whole budget, for the prior and the labels together.
    stages : int, sequence of shares, or "auto"
        1 is plain randomized response (LP-1ST), 2 is LP-2ST, ... 0 releases no label: the prior has the whole budget,
        and the model is distilled from it. "auto": 0 up to epsilon 1, else (0.4, 0.3, 0.3).
    prior : Prior or "auto", optional
        What the first stage knows: UniformPrior, PublicPrior, ClusterPrior, ... "auto" is a histogram of clusters of about
        22 ln(K) / epsilon_p examples, epsilon_p = 1/4 before a response, or without stages all of epsilon, from 0.2 on
        in two histograms (`StagedClusterPrior`). It trusts a curator; the guarantee says so. `labeldp.learn.recipe` has
        the rule, after RECIPES.md.
    correction : {"auto", "forward", "posterior", "em", "unbiased", "none"}
        How training accounts for the noise; "auto" takes the first of forward, posterior, none that the estimator can,
        or "em" where the prior is distilled.
    distil : bool or "auto"
        Whether the estimator is first fitted on the prior's own beliefs, its predictions then being the prior of stage
        1. "auto": if `stages` or `prior` is "auto", or there are no stages. Post-processing, free.
    rounds : int or "auto"
        Fits after the last stage on the posteriors of all examples (EM; without stages, self-training). Free. "auto": 2
        where the prior is distilled, else 0.
    stage_params : list of dicts, optional
        Parameters of the estimator fit by fit: for distilling the prior, if it is distilled, then for each stage and
        round; the last ones hold for all that comes later. Mixup, for example.
    final_params : dict, optional
        Parameters of the estimator for the last fit: a wider network, more epochs.
    temperature : float, optional
        Below 1 sharpens a stage's model before it serves as prior. By default the paper's, for this epsilon; 1 for
        "em"; and 2/3 for self-training without stages.
    filter_earlier : bool
        Drop labels of earlier stages that the newest model does not rank among its first k (the mean candidates of the
        new stage, rounded up). Free: it looks at released labels only.
    classes : sequence, optional
        The public list of classes. If it is left out it is read off y, and the guarantee says so.
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release `seeded`: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    checkpoint : path, optional
        A directory where everything drawn is kept before it is used. A run that was killed goes on from it: no label is
        drawn twice, the ledger is charged once, and a seeded run ends with the same model.
    label_set : str
        The ledger's name for these labels.

    Attributes
    ----------
    guarantee_, release_, stages_ : what was promised, what was released, and each stage as it was run
    estimator_ : the classifier of the last fit
    correction_, distil_, rounds_, shares_, prior_ : what "auto" came to; the prior in words
    classes_, n_features_in_, feature_names_in_ : as always

    Example
    -------
    >>> import numpy as np
    >>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
    >>> y = np.repeat(["no", "yes"], 500)
    >>> model = LabelPrivateClassifier(epsilon=2.0, classes=["no", "yes"], random_state=0).fit(X, y)
    >>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon(), model.release_.seeded
    (['no', 'yes'], 2.0, True)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float = 1.0,
        stages: int | Sequence[float] | str = 1,
        prior: Prior | str | None = None,
        correction: str = "auto",
        distil: bool | str = "auto",
        rounds: int | str = "auto",
        stage_params: Sequence[Mapping[str, Any]] | None = None,
        final_params: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        filter_earlier: bool = False,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.stages = stages
        self.prior = prior
        self.correction = correction
        self.distil = distil
        self.rounds = rounds
        self.stage_params = stage_params
        self.final_params = final_params
        self.temperature = temperature
        self.filter_earlier = filter_earlier
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any) -> LabelPrivateClassifier:
        """Privatize y in stages and train; y is not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.
        """
        n_rows = _num_samples(X)
        labels = box_labels("LabelPrivateClassifier", y, n_rows=n_rows, classes=self.classes, label_set=self.label_set)
        key = as_key("LabelPrivateClassifier", self.random_state)
        budget = check_epsilon("LabelPrivateClassifier", self.epsilon)
        sizes = {"n_examples": len(labels), "n_classes": labels.n_classes}
        last = split_pipeline(SoftmaxRegression() if self.estimator is None else self.estimator)[1]
        plan = recipe(budget, stages=self.stages, prior=self.prior, estimator=last, **sizes)
        purse = Budget(owner="LabelPrivateClassifier", labels=labels, ledger=self.ledger, seeded=key.seeded)
        division = purse.split(budget, prior=plan.prior, response=bool(plan.shares))
        transformer, settings = settings_of(self, labels.classes, division.promise.epsilon(), silent=not plan.shares)
        features = self._fitted_features(transformer, settings, X)
        known = X if plan.prior.raw_features else features
        source = plan.prior.prepared(known, budget=budget, **sizes)
        journal = self._journal(labels, plan, seeded=key.seeded)
        made = partial(source.journaled(journal.table).table, known, labels, budget=budget, key=key)
        spending = Spending(labels=labels, key=key, budget=purse, division=division, plan=plan, journal=journal)
        walked, release = self._spent(features, made, spending, settings, sees=source.sees_labels)
        return self._finish(walked, release, transformer, settings, plan)

    def _spent(
        self, features: Any, made: Callable[[], PriorTable], spending: Spending, settings: Settings, *, sees: bool
    ) -> tuple[Walked, Release]:
        """Charge, and then measure, draw and train; what a checkpoint has already is taken from there."""
        labels, key, division, plan = spending.labels, spending.key, spending.division, spending.plan
        table, journal = None if sees else made(), spending.journal
        split = partial(assign_stages, len(labels), plan.shares, key.child("split"))
        stage = journal.split(split if plan.shares else lambda: None)
        promised = partial(spending.budget.charge, division.promise)
        entry = journal.charged(lambda run: promised(mechanism=self._description() + run), ledger=self.ledger)
        table = journal.table(PRIOR, made) if table is None else table
        spending.budget.check_spent(table.guarantee, epsilon=division.spent)
        draw = drawn_by(labels, RRWithPrior(division.response), key, kept=journal.kept)
        walked = walk(features, stage, table, draw, settings)
        promise, words = division.promise, self._description()
        release = merged(walked, stage, table, labels, seeded=key.seeded, guarantee=promise, mechanism=words)
        return walked, replace(release, ledger_entry=entry)

    def fit_release(self, X: Any, release: Release) -> LabelPrivateClassifier:
        """Train from a release that someone else made; with the owner's parameters, the model is that of her `fit`.

        Needs the release and the features, and no label. A release without stages is one stage, and one that holds a
        prior and no answers is none. `epsilon`, the shares of the stages, what the prior says and `classes` are those of
        the release; "auto" means here what it means to the owner.
        """
        if _num_samples(X) != len(release):
            got = Described(f"{_num_samples(X)} rows for {len(release)} labels")
            raise invalid("LabelPrivateClassifier", "X", "have one row per released label", got=got)
        silent = is_silent(release)
        transformer, settings = settings_of(self, release.classes, release.guarantee.epsilon(), silent=silent)
        features = self._fitted_features(transformer, settings, X)
        stage = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        walked = walk(features, None if silent else stage, released_prior(release), replayed_from(release), settings)
        shares = tuple(report.share for report in walked.stages)
        return self._finish(walked, release, transformer, settings, Recipe(shares=shares, prior=UniformPrior()))

    def _finish(
        self, walked: Walked, release: Release, transformer: Any, settings: Settings, plan: Recipe
    ) -> LabelPrivateClassifier:
        """Keep the result, all of it at once: a fit that fails leaves the last one as it was."""
        self._transformer = transformer
        self.release_ = release
        self.estimator_ = walked.model
        self.stages_ = tuple(walked.stages)
        self.guarantee_ = release.guarantee
        self.classes_ = np.asarray(release.classes)
        self.correction_, self.distil_, self.rounds_ = settings.correction, settings.distil, settings.rounds
        self.shares_ = plan.shares
        self.prior_ = (
            "that of the release"
            if isinstance(plan.prior, UniformPrior) and release.prior is not None
            else repr(plan.prior)
        )
        return self

    # Checks and settings

    def _journal(self, labels: SensitiveLabels, plan: Recipe, *, seeded: bool) -> Journal:
        """Return the run's journal; what would not fit on disk is refused before anything is spent."""
        if self.checkpoint is not None:
            from labeldp.release.files import check_plain_classes

            check_plain_classes(labels.classes, owner="LabelPrivateClassifier")
        facts = {
            "settings": f"{self._description()}, {plan!r}",
            "classes": [repr(c) for c in labels.classes],
            "examples": len(labels),
            "label set": labels.name,
            "seeded": seeded,
        }
        return Journal(self.checkpoint, facts=facts)

    def _fitted_features(self, transformer: Any, settings: Settings, X: Any) -> Any:
        """Return the features as the last step wants them; transformers are fitted here and never see a label."""
        if transformer is None:
            return checked_rows(self, X, inner=settings.estimator, reset=True)
        validate_data(self, X, skip_check_array=True, reset=True)
        return transformer.fit_transform(X)

    def _features(self, X: Any) -> Any:
        """Return new features as the last step wants them."""
        if self._transformer is None:
            return checked_rows(self, X, inner=self.estimator_, reset=False)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._transformer.transform(X)

    def _description(self) -> str:
        return f"LabelPrivateClassifier(epsilon={self.epsilon!r}, stages={self.stages!r}, prior={self.prior!r})"

    # Prediction

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        check_is_fitted(self, "estimator_")
        return model_probabilities(self.estimator_, self._features(X), tuple(self.classes_.tolist()))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(SoftmaxRegression() if self.estimator is None else self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        tags.input_tags.three_d_array = inner.three_d_array
        return tags


#: Up to these epsilons histograms alone were better than a histogram and a response: one of them, and two.
ONE_ALONE, TWO_ALONE = 0.3, 1.0
#: Below this epsilon half of it is too little for a histogram.
LEAST_FOR_TWO = 0.2
#: What a histogram before a response takes at most: more was worth less than a better response.
BEFORE_RESPONSE = 0.25
SHARES = (0.4, 0.3, 0.3)
#: Principal components that are clustered, steps of k-means over all rows, and noise scales taken off a noisy count.
COMPONENTS = 128
FULL_STEPS = 12
SHRINK = 0.5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The shares of the stages (none: no label is released) and where the first prior comes from."""

    shares: tuple[float, ...]
    prior: Prior


def recipe(
    epsilon: float,
    *,
    n_examples: int,
    n_classes: int,
    stages: Any = "auto",
    prior: Any = "auto",
    estimator: Any = None,
) -> Recipe:
    """Return what to do; what is not "auto" is taken as it is, and `None` is the uniform prior."""
    many = hasattr(estimator, "fit_targets")
    if isinstance(stages, str):
        check_choice("LabelPrivateClassifier", "stages", stages, ("auto",))
        alone = epsilon <= (TWO_ALONE if many else ONE_ALONE)
    else:
        alone = _is_none(stages)
    count = 2 if many and alone and epsilon > LEAST_FOR_TWO else 1
    source = prior
    if isinstance(prior, str):
        check_choice("LabelPrivateClassifier", "prior", prior, ("auto",))
        sizes = {"n_examples": n_examples, "n_classes": n_classes}
        source = _histograms(epsilon, count, alone=alone, estimator=estimator, **sizes)
    source = UniformPrior() if source is None else source
    if isinstance(stages, str):
        return Recipe(shares=_shares(epsilon, source, alone=alone and isinstance(prior, str)), prior=source)
    if alone and isinstance(source, UniformPrior):
        fix = "Without a label and without a prior there is nothing to learn from; use ClusterPrior(), or a stage."
        raise invalid("LabelPrivateClassifier", "stages", "be 1 or more without a prior", got=stages, fix=fix)
    return Recipe(shares=() if alone else stage_shares(stages, epsilon), prior=source.alone() if alone else source)


def _is_none(stages: Any) -> bool:
    return isinstance(stages, int) and not isinstance(stages, bool) and stages == 0


def _shares(epsilon: float, source: Prior, *, alone: bool) -> tuple[float, ...]:
    """Return the shares for "auto": none, the three parts, or the paper's two where nothing is known."""
    if isinstance(source, UniformPrior):
        return stage_shares(2 if 0 < epsilon < math.inf else 1, epsilon)
    return () if alone else SHARES


def _histograms(epsilon: float, count: int, *, alone: bool, estimator: Any, n_examples: int, n_classes: int) -> Prior:
    """Return the histogram or histograms that this much data can carry, or the uniform prior."""
    if not 0 < epsilon < math.inf:
        return UniformPrior()
    spent = epsilon if alone else min(epsilon / 2, BEFORE_RESPONSE)
    clusters = cluster_count(spent / count, n_examples=n_examples, n_classes=n_classes)
    if clusters < 2:
        return UniformPrior()
    told = None if alone else spent
    if count > 1:
        return StagedClusterPrior(
            estimator,
            histograms=count,
            epsilon=told,
            n_components=COMPONENTS,
            full_steps=FULL_STEPS,
            shrink=SHRINK,
            whole_budget=alone,
        )
    return ClusterPrior(
        n_clusters=clusters,
        epsilon=told,
        n_components=COMPONENTS,
        full_steps=FULL_STEPS,
        shrink=SHRINK,
        whole_budget=alone,
    )
