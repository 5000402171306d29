"""`LabelPrivateClassifier`: any scikit-learn classifier, trained on labels that it never sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
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
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn._corrections import CORRECTIONS, chosen_correction, split_pipeline
from labeldp.learn._softmax import SoftmaxRegression
from labeldp.learn._stages import TEMPERATURE, assign_stages, interpolated, stage_shares
from labeldp.learn._walk import Settings, Walked, drawn_by, joined, replayed_from, walk
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import Prior, PriorTable, UniformPrior, model_probabilities
from labeldp.release import Release, SensitiveLabels
from labeldp.release._charging import charge
from labeldp.release._labels import CLASSES_READ_OFF

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
        """Privatize y in stages and train; y is not kept."""
        labels = self._boxed(X, y)
        settings = self._settings(labels.classes)
        key = as_key("LabelPrivateClassifier", self.random_state)
        budget = check_epsilon("LabelPrivateClassifier", self.epsilon)
        source = UniformPrior() if self.prior is None else self.prior
        stage = assign_stages(len(labels), stage_shares(self.stages, budget), key.child("split"))
        features = self._transformed(X, fit=True)
        plan = _plan(source, budget, labels)
        entry = charge(self.ledger, plan.promise, labels, mechanism=self._description(), seeded=key.seeded)
        table = source.table(features, labels, budget=budget, key=key)
        walked = walk(features, stage, table, drawn_by(labels, RRWithPrior(plan.response), key), settings)
        release = _merged(walked, stage, table, labels, key.seeded)
        self.release_ = replace(release, guarantee=plan.promise, mechanism=self._description(), ledger_entry=entry)
        return self._finish(walked, settings)

    def fit_release(self, X: Any, release: Release) -> LabelPrivateClassifier:
        """Train from a release that someone else made; the model is the one that its owner's `fit` gives.

        Needs the release and the features, and no label. A release without stages is one stage.
        """
        if _num_samples(X) != len(release):
            got = Described(f"{_num_samples(X)} rows for {len(release)} labels")
            raise invalid("LabelPrivateClassifier", "X", "have one row per released label", got=got)
        settings = self._settings(release.classes)
        stage = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        walked = walk(self._transformed(X, fit=True), stage, _released_prior(release), replayed_from(release), settings)
        self.release_ = release
        return self._finish(walked, settings)

    def _finish(self, walked: Walked, settings: Settings) -> LabelPrivateClassifier:
        self.estimator_ = walked.model
        self.stages_ = tuple(walked.stages)
        self.guarantee_ = self.release_.guarantee
        self.classes_ = np.asarray(self.release_.classes)
        self.correction_ = settings.correction
        return self

    # Checks and settings

    def _boxed(self, X: Any, y: Any) -> SensitiveLabels:
        """Check labels as scikit-learn does, and box them."""
        if isinstance(y, SensitiveLabels):
            boxed = y
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

    def _settings(self, classes: Sequence[Any]) -> Settings:
        check_choice("LabelPrivateClassifier", "correction", self.correction, CORRECTIONS)
        estimator = SoftmaxRegression() if self.estimator is None else clone(self.estimator)
        self._transformer, last = split_pipeline(estimator)
        if not hasattr(last, "predict_proba"):
            fix = "Wrap it in CalibratedClassifierCV, or use a classifier that has it."
            raise invalid(
                "LabelPrivateClassifier", "estimator", "have `predict_proba`", got=type(last).__name__, fix=fix
            )
        temperature = interpolated(TEMPERATURE, self.epsilon) if self.temperature is None else self.temperature
        return Settings(
            estimator=last,
            correction=chosen_correction(last, self.correction),
            temperature=check_positive("LabelPrivateClassifier", "temperature", temperature),
            filter_earlier=bool(self.filter_earlier),
            classes=tuple(classes),
        )

    def _transformed(self, X: Any, *, fit: bool = False) -> Any:
        """Return the features as the last step wants them; transformers never see a label."""
        if self._transformer is None:
            return validate_data(self, X, accept_sparse="csr", reset=fit, dtype=[np.float64, np.float32])
        validate_data(self, X, skip_check_array=True, reset=fit)
        return self._transformer.fit_transform(X) if fit else self._transformer.transform(X)

    def _description(self) -> str:
        return f"LabelPrivateClassifier(epsilon={self.epsilon!r}, stages={self.stages!r}, prior={self.prior!r})"

    # Prediction

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        check_is_fitted(self, "estimator_")
        return model_probabilities(self.estimator_, self._transformed(X), tuple(self.classes_.tolist()))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        labels: npt.NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class _Plan(NamedTuple):
    """How a budget is divided: what the labels' response gets, and the promise of the whole."""

    response: float
    promise: Guarantee


def _plan(source: Prior, budget: float, labels: SensitiveLabels) -> _Plan:
    """Divide the budget between the prior and the response, rounding so that together they never exceed it."""
    spent = source.cost(budget, n_examples=len(labels), n_classes=labels.n_classes)
    if spent >= budget > 0 and spent > 0:
        fix = "Give the classifier a larger epsilon or the prior a smaller one."
        raise invalid("LabelPrivateClassifier", "epsilon", f"exceed the prior's cost {spent:g}", got=budget, fix=fix)
    rest = budget - spent
    while spent + rest > budget:
        rest = math.nextafter(rest, 0.0)
    promise = Guarantee.pure(rest).named("response")
    if spent > 0:
        histogram = Guarantee.pure(spent, trust=Trust.CURATOR).named("prior")
        promise = histogram.then(promise)
    return _Plan(rest, promise.assuming(CLASSES_READ_OFF) if labels.classes_read_off else promise)


def _merged(
    walked: Walked, stage: npt.NDArray[Any], table: PriorTable, labels: SensitiveLabels, seeded: bool
) -> Release:
    """Return the release of all stages, in the order of the data set."""
    order = np.argsort(np.concatenate([part.rows for part in walked.parts]), kind="stable")
    informed = table.guarantee is not None
    return Release(
        codes=np.concatenate([part.codes for part in walked.parts])[order],
        classes=labels.classes,
        channel=joined([part.channel for part in walked.parts]).take(order),
        guarantee=Guarantee.pure(0.0),
        mechanism="",
        seeded=seeded,
        label_set=labels.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        stage=stage,
        prior=table.rows if informed else None,
        prior_index=table.index if informed else None,
    )


def _released_prior(release: Release) -> PriorTable:
    """Return the belief that a release carries, or the uniform one."""
    if release.prior is not None and release.prior_index is not None:
        return PriorTable(rows=release.prior, index=release.prior_index)
    uniform = np.full((1, release.n_classes), 1.0 / release.n_classes)
    return PriorTable(rows=uniform, index=np.zeros(len(release), np.int64))
