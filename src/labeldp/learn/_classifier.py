"""`LabelPrivateClassifier`: any scikit-learn classifier, trained on labels that it never sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _assert_all_finite,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from labeldp._random import as_key
from labeldp._validate import check_choice, check_epsilon, check_positive
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn._budget import divided, within
from labeldp.learn._corrections import CORRECTIONS, chosen_correction, split_pipeline
from labeldp.learn._rows import checked_rows
from labeldp.learn._softmax import SoftmaxRegression
from labeldp.learn._stages import TEMPERATURE, assign_stages, interpolated, stage_shares
from labeldp.learn._walk import Settings, Walked, drawn_by, joined, replayed_from, walk
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import Prior, PriorTable, UniformPrior, model_probabilities
from labeldp.release import Release, SensitiveLabels
from labeldp.release._charging import charge

Floats = npt.NDArray[np.floating[Any]]


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
    stages : int or sequence of shares
        1 is plain randomized response (LP-1ST), 2 is LP-2ST, ...
    prior : Prior, optional
        What the first stage knows: UniformPrior, PublicPrior, ClusterPrior, ModelPrior.
    correction : {"auto", "forward", "posterior", "unbiased", "none"}
        How training accounts for the noise; "auto" takes the first of forward, posterior, none that the estimator can.
    temperature : float, optional
        Below 1 sharpens a stage's model before it serves as prior. By default the paper's, for this epsilon.
    filter_earlier : bool
        Drop labels of earlier stages that the newest model does not rank among its first k (the mean candidates of the
        new stage, rounded up). Free: it looks at released labels only.
    classes : sequence, optional
        The public list of classes. If it is left out it is read off y, and the guarantee says so.
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release `seeded`: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    label_set : str
        The ledger's name for these labels.

    Attributes
    ----------
    guarantee_, release_, stages_ : what was promised, what was released, and each stage as it was run
    estimator_ : the classifier of the last stage;  correction_ : the correction used
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
        stages: int | Sequence[float] = 1,
        prior: Prior | None = None,
        correction: str = "auto",
        temperature: float | None = None,
        filter_earlier: bool = False,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.stages = stages
        self.prior = prior
        self.correction = correction
        self.temperature = temperature
        self.filter_earlier = filter_earlier
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> LabelPrivateClassifier:
        """Privatize y in stages and train; y is not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.
        """
        labels = self._boxed(X, y)
        key = as_key("LabelPrivateClassifier", self.random_state)
        budget = check_epsilon("LabelPrivateClassifier", self.epsilon)
        stage = assign_stages(len(labels), stage_shares(self.stages, budget), key.child("split"))
        source = UniformPrior() if self.prior is None else self.prior
        plan = divided("LabelPrivateClassifier", source, budget, labels)
        transformer, settings = self._settings(labels.classes, plan.promise.epsilon())
        features = self._fitted_features(transformer, settings, X)
        known = X if source.raw_features else features
        source = source.prepared(known, budget=budget, n_examples=len(labels), n_classes=labels.n_classes)
        made = partial(source.table, known, labels, budget=budget, key=key)
        table = None if source.sees_labels else made()
        entry = charge(self.ledger, plan.promise, labels, mechanism=self._description(), seeded=key.seeded)
        table = within("LabelPrivateClassifier", plan, made() if table is None else table)
        walked = walk(features, stage, table, drawn_by(labels, RRWithPrior(plan.response), key), settings)
        release = _merged(walked, stage, table, labels, seeded=key.seeded)
        release = replace(release, guarantee=plan.promise, mechanism=self._description(), ledger_entry=entry)
        return self._finish(walked, release, transformer, settings)

    def fit_release(self, X: Any, release: Release) -> LabelPrivateClassifier:
        """Train from a release that someone else made; with the owner's parameters, the model is that of her `fit`.

        Needs the release and the features, and no label. A release without stages is one stage. `epsilon`, `stages`,
        `prior` and `classes` are those of the release, whatever they are here.
        """
        if _num_samples(X) != len(release):
            got = Described(f"{_num_samples(X)} rows for {len(release)} labels")
            raise invalid("LabelPrivateClassifier", "X", "have one row per released label", got=got)
        transformer, settings = self._settings(release.classes, release.guarantee.epsilon())
        features = self._fitted_features(transformer, settings, X)
        stage = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        walked = walk(features, stage, _released_prior(release), replayed_from(release), settings)
        return self._finish(walked, release, transformer, settings)

    def _finish(self, walked: Walked, release: Release, transformer: Any, settings: Settings) -> LabelPrivateClassifier:
        """Keep the result, all of it at once: a fit that fails leaves the last one as it was."""
        self._transformer = transformer
        self.release_ = release
        self.estimator_ = walked.model
        self.stages_ = tuple(walked.stages)
        self.guarantee_ = release.guarantee
        self.classes_ = np.asarray(release.classes)
        self.correction_ = settings.correction
        return self

    # Checks and settings

    def _boxed(self, X: Any, y: Any) -> SensitiveLabels:
        """Check labels as scikit-learn does, and box them."""
        if isinstance(y, SensitiveLabels):
            boxed = self._agreed(y)
        else:
            plain = y
            if not hasattr(y, "dtype") or isinstance(y, np.ndarray):
                plain = column_or_1d(y, warn=True)
                _assert_all_finite(plain, input_name="y", estimator_name="LabelPrivateClassifier")
                check_classification_targets(plain)
            boxed = SensitiveLabels(plain, classes=self.classes, name=self.label_set)
        if _num_samples(X) != len(boxed):
            got = Described(f"{len(boxed)} for {_num_samples(X)} rows")
            raise invalid("LabelPrivateClassifier", "y", "have one label per row of X", got=got)
        if boxed.n_classes < 2:
            got, fix = Described("1 class"), "Pass classes=, the full public list."
            raise invalid("LabelPrivateClassifier", "y", "have two classes or more", got=got, fix=fix)
        return boxed

    def _agreed(self, labels: SensitiveLabels) -> SensitiveLabels:
        """Refuse boxed labels whose classes are not the ones asked for."""
        if self.classes is not None and tuple(np.asarray(self.classes).tolist()) != labels.classes:
            got = Described(f"{len(self.classes)} for labels that have their own {labels.n_classes}")
            fix = "Leave classes out: SensitiveLabels know theirs."
            raise invalid("LabelPrivateClassifier", "classes", "be those of the labels", got=got, fix=fix)
        return labels

    def _settings(self, classes: Sequence[Any], epsilon: float) -> tuple[Any, Settings]:
        """Return the transformers of the estimator, unfitted, and what the walk needs to know."""
        check_choice("LabelPrivateClassifier", "correction", self.correction, CORRECTIONS)
        transformer, last = split_pipeline(SoftmaxRegression() if self.estimator is None else clone(self.estimator))
        if not hasattr(last, "predict_proba"):
            fix = "Wrap it in CalibratedClassifierCV, or use a classifier that has it."
            raise invalid(
                "LabelPrivateClassifier", "estimator", "have `predict_proba`", got=type(last).__name__, fix=fix
            )
        # The promised epsilon, which a receiver of the release knows to the last bit, and not the one asked for.
        temperature = interpolated(TEMPERATURE, epsilon) if self.temperature is None else self.temperature
        settings = Settings(
            estimator=last,
            correction=chosen_correction(last, self.correction),
            temperature=check_positive("LabelPrivateClassifier", "temperature", temperature),
            filter_earlier=bool(self.filter_earlier),
            classes=tuple(classes),
        )
        return transformer, settings

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
        return tags


def _merged(
    walked: Walked, stage: npt.NDArray[Any], table: PriorTable, labels: SensitiveLabels, *, seeded: bool
) -> Release:
    """Return the release of all stages, in the order of the data set."""
    order = np.argsort(np.concatenate([part.rows for part in walked.parts]), kind="stable")
    return Release(
        codes=np.concatenate([part.codes for part in walked.parts])[order],
        classes=labels.classes,
        channel=joined([part.channel for part in walked.parts]).take(order),
        guarantee=Guarantee.pure(0.0),
        mechanism="",
        seeded=seeded or table.seeded,
        label_set=labels.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        stage=stage,
        prior=None if table.says_nothing else table.rows,
        prior_index=None if table.says_nothing else table.index,
    )


def _released_prior(release: Release) -> PriorTable:
    """Return the belief that a release carries, or the uniform one."""
    if release.prior is not None and release.prior_index is not None:
        return PriorTable(rows=release.prior, index=release.prior_index)
    uniform = np.full((1, release.n_classes), 1.0 / release.n_classes)
    return PriorTable(rows=uniform, index=np.zeros(len(release), np.int64))
