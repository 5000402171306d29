"""Training on what was released: the same few corrections for any scikit-learn classifier.

>>> from sklearn.linear_model import LogisticRegression
>>> from labeldp.learn.softmax import SoftmaxRegression
>>> choose_correction(SoftmaxRegression(), "auto"), choose_correction(LogisticRegression(), "auto")
('forward', 'crossfit')

Let L_i[y] = T[y, o_i] be the likelihood of an example: how probable its output is for each label.

- forward: maximise sum_i log sum_y p(y | x_i) L_i[y]. No prior is in it.
- crossfit: for estimators that cannot do that, its effect by other means (`labeldp.learn.crossfit`).
- posterior: soft targets prior L / sum prior L. The noise counts twice in them: probabilities come out too flat, and are
  nearer to 1/K than the truth unless epsilon is large or the prior is very good. Kept for comparison.
- em: forward first, and then fits on soft targets p(y | x_i) L_i[y], normalised, p the last model's (`labeldp.learn.stages`).
- unbiased: the channel's signed targets, whose loss is unbiased for the true label's.
- none: the released labels as they are.

A prior is a belief to start from: of the first posteriors, of EM, of a distilled model, of the choice of a channel. It is
never a factor of the forward likelihood. sum_y p[y] prior[y] L[y] is largest where p puts all its mass on the label that the prior
prefers, so that a model that repeats the prior, and exaggerates it, would win against the truth. An example whose
channel says nothing (one candidate: T[y, o] = 1 for every y) adds a constant to forward; posteriors, EM and crossfit give it
what is believed. Where a prior chose channels of labels, the likelihood alone therefore leaves out what the prior knew, and may
leave nothing: "auto" then is crossfit for every estimator. Answers that are sets say something under any prior, so that
it is em for those that take likelihoods (`labeldp.learn.settings.settle_settings`).

References: Patrini et al., "Making Deep Neural Networks Robust to Label Noise" (2017), for forward; Natarajan et al.,
"Learning with Noisy Labels" (2013), for unbiased.

Design notes. What every learner around another estimator needs is here too: its label-free transformers apart from the
classifier (`split_pipeline`), features as the classifier can take them (`check_rows`), and soft targets as weighted copies
of rows (`draw_copies`, `fit_copies`).
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.feature_selection import (
    SelectFromModel,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    chi2,
    f_classif,
    f_regression,
    mutual_info_classif,
    mutual_info_regression,
    r_regression,
)
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import _num_samples, check_array, has_fit_parameter, validate_data

from labeldp.arrays import Floats, Places
from labeldp.channel import Evidence, FiniteChannel
from labeldp.channel.evidence import keep_small
from labeldp.errors import Described, invalid
from labeldp.items import Items, is_dataset
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.priors import model_probabilities
from labeldp.release import Release
from labeldp.release.release import check_release
from labeldp.softmax import RowBatches
from labeldp.validate import check_epsilon, expect_numbers, keep_axes, refuse_repeats, stack_examples

CORRECTIONS = ("auto", "forward", "crossfit", "posterior", "em", "unbiased", "none")
#: Soft targets below this weight, times 2 / K, are not replicated: they cost a row and say nothing.
LEAST_WEIGHT = 1e-3
#: Copies of a row, on average over rows, that soft targets may cost.
COPIES = 2
#: Weight of a row that is there only so that a class is.
TOKEN_WEIGHT = 1e-6


def choose_correction(estimator: BaseEstimator, correction: str) -> str:
    """Return the correction to use: for "auto", em if the estimator takes likelihoods, and else crossfit.

    em is forward first and rounds of EM after it. `SoftmaxRegression` finds the maximum of the likelihood itself, where EM
    stands still: for it "auto" is forward, of pooled answers where they say little (`labeldp.learn.pools`). So it is for an estimator that is to be fitted once (`fits_once`): the gradient of the
    forward loss is that of the posteriors under the newest weights, an E-step in each step of its one long fit.

    Forward needs `fit_likelihood`, unbiased `fit_targets`, posterior and em `fit_targets` or sample weights. A correction
    that the estimator cannot take is refused. Crossfit and none take any classifier.
    """
    can_forward, can_soft = hasattr(estimator, "fit_likelihood"), hasattr(estimator, "fit_targets")
    if correction == "auto":
        if can_forward and (isinstance(estimator, SoftmaxRegression) or not can_soft or fits_once(estimator)):
            return "forward"
        return "em" if can_forward else "crossfit"
    soft = can_soft or takes_weights(estimator)
    able = {"forward": can_forward, "unbiased": can_soft, "posterior": soft, "em": soft}
    if not able.get(correction, True):
        need = {
            "forward": "`fit_likelihood`",
            "unbiased": "`fit_targets`",
            "posterior": "sample weights or `fit_targets`",
            "em": "sample weights or `fit_targets`",
        }
        fix = f"{type(estimator).__name__} has no {need[correction]}; use SoftmaxRegression, or correction='auto'."
        raise invalid(
            "LabelPrivateClassifier", "correction", "be one that the estimator can take", got=correction, fix=fix
        )
    return correction


def takes_weights(estimator: BaseEstimator) -> bool:
    """Whether the estimator's `fit` takes `sample_weight`.

    Votes and stacks of scikit-learn 1.6 name it, and fail where an estimator inside does not take it; later ones do not.
    """
    kind = type(estimator)
    passed_on = hasattr(kind, "named_estimators") and kind.fit.__module__.startswith("sklearn.ensemble.")
    return not passed_on and bool(has_fit_parameter(estimator, "sample_weight"))


def fits_once(estimator: BaseEstimator) -> bool:
    """Whether an estimator says that its fits are long (`fits_once`), so that a plan that is "auto" has one of them."""
    return bool(getattr(estimator, "fits_once", False))


def check_weighable(estimator: BaseEstimator, correction: str, *, distil: bool) -> None:
    """Refuse public weights for an estimator whose `fit_likelihood` or `fit_targets` takes none, where it would be called.

    Any other estimator can be weighted: by the `sample_weight` of its `fit`, or by drawing rows (`draw_copies`).
    """
    soft = distil or correction not in {"forward", "none"}
    for name in [*(["fit_likelihood"] if correction in {"forward", "em"} else []), *(["fit_targets"] if soft else [])]:
        method = getattr(estimator, name, None)
        if method is not None and "sample_weight" not in inspect.signature(method).parameters:
            got = Described(f"weights for {type(estimator).__name__}, whose `{name}` has no `sample_weight`")
            fix = "Leave the weights out, or use SoftmaxRegression or a classifier of scikit-learn."
            raise invalid("LabelPrivateClassifier", "sample_weight", "be taken by the estimator", got=got, fix=fix)


def fit_released(
    estimator: BaseEstimator,
    X: Any,
    *,
    codes: npt.NDArray[Any],
    channel: FiniteChannel,
    prior: Any,
    correction: str,
    classes: Sequence[Any],
    weights: Floats | None = None,
) -> BaseEstimator:
    """Fit the estimator on released outputs under a correction, and return it.

    Parameters
    ----------
    estimator
        What to fit; it has what the correction needs (`choose_correction`).
    X, codes, channel, prior
        The features, the outputs of the channel, the channel of these examples, and the belief (n, K) about each label
        that did not come from these outputs: posteriors start from it.
    correction : {"forward", "posterior", "unbiased", "none"}
        "none" needs outputs that are labels. Crossfit has its own chapter.
    classes
        The classes, in the order of codes and columns.
    weights : array of shape (n,), optional
        Public weights > 0 of the examples.
    """
    labels = np.asarray(classes)
    extra = {} if weights is None else {"sample_weight": weights}
    if correction == "none":
        if not channel.outputs_are_labels:
            got = Described("outputs that are not labels")
            fix = 'Use correction="forward" or "posterior", with an estimator that can take it.'
            raise invalid("LabelPrivateClassifier", "release", "hold labels for correction='none'", got=got, fix=fix)
        if weights is None and hasattr(estimator, "fit_targets") and len(np.unique(codes)) < len(labels):
            # Fitted on labels it would not know the classes that nobody has here, and could not go on from a fit that does.
            return estimator.fit_targets(X, np.eye(len(labels))[codes], classes=labels)
        copies = np.arange(len(codes)), codes.astype(np.intp), np.ones(len(codes)) if weights is None else weights
        if weights is not None and not takes_weights(estimator):
            copies = draw_copies(estimator, np.eye(len(labels))[copies[1]], weights=weights)
        return fit_copies(estimator, X, *copies, classes=classes)
    if correction == "unbiased":
        return estimator.fit_targets(X, channel.unbiased_targets(codes), classes=labels, **extra)
    if correction == "forward":
        return estimator.fit_likelihood(X, likelihood_for(estimator, codes, channel), classes=labels, **extra)
    targets = channel.posterior(np.asarray(prior), codes)
    return fit_soft(estimator, X, targets, classes, weights=weights)


def likelihood_for(estimator: BaseEstimator, codes: npt.NDArray[Any], channel: FiniteChannel) -> Any:
    """Return the likelihood of released outputs: lazy rows for our own estimators where it is large, else an array (n, K)."""
    evidence = Evidence(codes, channel)
    found = keep_small(evidence)
    return found if takes_lazy_rows(estimator) else np.asarray(found)


def takes_lazy_rows(estimator: BaseEstimator) -> bool:
    """Whether the estimator's `fit_likelihood` and `fit_targets` take `LazyRows`: those of labeldp say so."""
    return bool(getattr(estimator, "takes_lazy_rows", False))


def fit_soft(
    estimator: BaseEstimator, X: Any, targets: Any, classes: Sequence[Any], *, weights: Floats | None = None
) -> BaseEstimator:
    """Fit the estimator on soft targets (n, K), an array or lazy rows, by its own method or by weighted copies, and return it."""
    if hasattr(estimator, "fit_targets"):
        extra = {} if weights is None else {"sample_weight": weights}
        targets = targets if takes_lazy_rows(estimator) else np.asarray(targets)
        return estimator.fit_targets(X, targets, classes=np.asarray(classes), **extra)
    return fit_copies(estimator, X, *draw_copies(estimator, np.asarray(targets), weights=weights), classes=classes)


# ------------------------------------------------------------------------------------------- soft targets as copies of rows

#: Rows of the features, columns of the soft targets, and weights: one entry for each copy.
Copies = tuple[Places, Places, Floats]


def draw_copies(
    estimator: BaseEstimator, targets: Floats, *, weights: Floats | None = None, most: float = COPIES
) -> Copies:
    """Return copies of rows that stand for soft targets (n, K): each row once for every label it may have, weighted by q.

    A weighted loss over the copies, sum_y q[y] loss(y), is the soft-target loss, but for dropped weights below
    `LEAST_WEIGHT`. If that makes more than `most` n copies, a weight w < tau stays with chance w / tau, as tau, and larger ones
    stay as they are: the expectation of the loss is the same, and of all such choices of so many copies this one has the
    least variance (Fearnhead and Clifford 2003). Draws are systematic along the rows, so that every row stays.

    An estimator without `sample_weight` gets `COPIES` labels a row, drawn from its target, systematically too.

    Public `weights` (n,), > 0, multiply the copies of their rows; small ones are then drawn with small chances, and a row may be
    left out. An estimator without `sample_weight` gets as many copies as before, of each row in proportion to its weight.
    """
    n, n_classes = targets.shape
    generator = np.random.default_rng(public_seed(estimator))
    if not takes_weights(estimator):
        if weights is not None:
            along = np.cumsum(targets * weights[:, None])
            marks = (generator.random() + np.arange(n * COPIES)) / (n * COPIES) * along[-1]
            # Rounding may put the last mark at the very end.
            cells = np.minimum(np.searchsorted(along, marks, side="right"), np.searchsorted(along, along[-1]))
            return cells // n_classes, cells % n_classes, np.ones(n * COPIES)
        ends = np.cumsum(targets, axis=1)
        marks = (generator.random((n, 1)) + np.arange(COPIES)) / COPIES * ends[:, -1:]
        drawn = (marks[:, :, None] > ends[:, None, :]).sum(axis=2)
        return np.repeat(np.arange(n), COPIES), drawn.reshape(-1), np.ones(n * COPIES)
    # Likelier labels first, so that the draw does not depend on the order of the classes.
    order = np.argsort(-targets, axis=1, kind="stable")
    ranked = np.take_along_axis(targets, order, axis=1)
    rows, places = np.nonzero(ranked >= LEAST_WEIGHT * 2 / n_classes)
    columns = order[rows, places]
    shares = ranked[rows, places]
    if weights is not None:
        shares = shares * weights[rows]
    if len(shares) > most * n:
        rising = np.sort(shares)
        below = np.concatenate([[0.0], np.cumsum(rising)])
        # sum min(1, w / tau) falls with tau; the j smallest weights are drawn, the first with a sum that fits is not.
        sums = below[1:] / rising + np.arange(len(rising))[::-1]
        j = int(np.argmax(np.append(sums, 0.0) <= most * n))
        tau = below[j] / (most * n - (len(rising) - j))
        passed = np.floor(np.cumsum(np.minimum(1.0, shares / tau)) + generator.random())
        kept = np.diff(passed, prepend=0.0) > 0
        rows, columns, shares = rows[kept], columns[kept], np.maximum(shares[kept], tau)
    if (
        len(np.unique(columns)) == 1
    ):  # most estimators refuse one class: the likeliest other one stays, at its own weight
        masses = targets if weights is None else targets * weights[:, None]
        others = np.where(np.arange(n_classes) == columns[0], 0.0, masses.sum(axis=0))
        second = int(others.argmax())
        if others[second] > 0:
            row = int(masses[:, second].argmax())
            rows, columns = np.append(rows, row), np.append(columns, second)
            shares = np.append(shares, masses[row, second])
    return rows, columns, shares


def fit_copies(
    estimator: BaseEstimator, X: Any, rows: Places, columns: Places, weights: Floats, *, classes: Sequence[Any]
) -> BaseEstimator:
    """Fit the estimator on copies of rows and return it; where each row is there once and weighs 1, it is a plain fit."""
    if needs_codes(estimator):
        missing = np.setdiff1d(np.arange(len(classes)), columns)
        rows, columns = np.append(rows, np.repeat(rows[:1], len(missing))), np.append(columns, missing)
        weights = np.append(weights, np.full(len(missing), TOKEN_WEIGHT))
    labels = columns if needs_codes(estimator) else np.asarray(classes)[columns]
    whole = len(rows) == _num_samples(X) and bool((rows == np.arange(len(rows))).all())
    features = X if whole else take_rows(X, rows)
    if bool((weights == 1.0).all()):
        return estimator.fit(features, labels)
    return estimator.fit(features, labels, sample_weight=weights)


def predict_classes(model: Any, X: Any, classes: Sequence[Any]) -> Floats:
    """Return a fitted model's probabilities (n, K) in the order of `classes`; classes that it never saw get none."""
    return model_probabilities(model, X, tuple(range(len(classes))) if needs_codes(model) else classes)


def needs_codes(estimator: Any) -> bool:
    """Whether the estimator wants labels 0, 1, ..., K - 1 and all of them, as XGBoost does: it is given the codes."""
    return "xgboost" in (type(estimator).__module__.split(".")[0], getattr(estimator, "library", None))


#: Scores of columns that compare them with labels.
LABEL_SCORES = (chi2, f_classif, f_regression, mutual_info_classif, mutual_info_regression, r_regression)


def public_seed(estimator: BaseEstimator) -> int:
    """Return the seed of what is drawn in training: the estimator's own, if it is a number, and else 0.

    It has nothing to do with the noise of a release, and is the same for the owner of labels and for a receiver.
    """
    seed = estimator.get_params(deep=False).get("random_state")
    return int(seed) if isinstance(seed, (int, np.integer)) and seed >= 0 else 0


def split_pipeline(
    estimator: BaseEstimator, *, owner: str = "LabelPrivateClassifier"
) -> tuple[Pipeline | None, BaseEstimator]:
    """Return the label-free transformers of a pipeline and its last step, which alone learns from labels."""
    if not isinstance(estimator, Pipeline):
        return None, estimator
    steps = estimator.steps
    for name, step in steps[:-1]:
        _refuse_supervised(owner, name, step)
    return (Pipeline(steps[:-1]) if len(steps) > 1 else None), steps[-1][1]


def _refuse_supervised(owner: str, name: str, step: Any) -> None:
    """Refuse a transformer that learns from labels, alone or inside of steps that only carry others.

    A frozen one learns nothing here: that it has learned is for `labeldp.release.templates.check_untrained`.
    """
    if isinstance(step, FrozenEstimator):
        return
    for carried in ("steps", "transformers", "transformer_list"):
        if isinstance(step, BaseEstimator) and isinstance(getattr(step, carried, None), list):
            for inner in getattr(step, carried):
                _refuse_supervised(owner, f"{name}: {inner[0]}", inner[1])
            return
    if isinstance(step, BaseEstimator) and _reads_labels(step):
        fix = (
            f"Leave out `{name}` ({type(step).__name__}): what it learned from raw labels would be released with the model, and no "
            "guarantee covers it. Transformers see features alone: VarianceThreshold and PCA choose without labels, and so may "
            "the last step (a penalty, a forest)."
        )
        raise invalid(owner, "estimator", "transform without labels", got=name, fix=fix)


def _reads_labels(step: BaseEstimator) -> bool:
    """Whether a transformer cannot be fitted without labels. The tags of scikit-learn say so of most, and not of some."""
    if get_tags(step).target_tags.required:
        return True
    if isinstance(step, PLSRegression | PLSCanonical | CCA | PLSSVD):
        return True
    if isinstance(step, SelectFromModel) and step.prefit:  # its model learned before
        return False
    if isinstance(step, SelectFromModel | SequentialFeatureSelector):
        return bool(get_tags(step.estimator).target_tags.required)
    if isinstance(step, SelectKBest | SelectPercentile):  # a score of one's own may do without labels
        return getattr(step.score_func, "func", step.score_func) in LABEL_SCORES
    return False


def as_indexable(owner: str, X: Any) -> Any:
    """Return features whose rows `take_rows` can take: a sparse matrix by rows, anything that is no array as one."""
    if isinstance(X, RowBatches):
        return X
    if not (scipy.sparse.issparse(X) or hasattr(X, "__getitem__") or hasattr(X, "__array__")):
        fix = "Some of the rows are held out: read the table into memory first."
        raise invalid(
            owner, "X", "be rows that can be taken one by one", got=Described(f"a {type(X).__name__}"), fix=fix
        )
    return indexable(X)[0]


def take_rows(X: Any, rows: npt.NDArray[Any]) -> Any:
    """Return some rows of the features, whatever holds them; of `RowBatches` nothing is read yet."""
    if isinstance(X, RowBatches | pa.Table | Items):  # scikit-learn takes rows of a table of pyarrow from 1.7 on
        return X.take(rows)
    return X[rows] if isinstance(X, np.ndarray) or scipy.sparse.issparse(X) else _safe_indexing(X, rows)


def take_answered(owner: str, X: Any, release: Release) -> Any:
    """Return the rows of the features that a release has an answer for, as `Release.answered`, whatever holds them."""
    if release.rows is not None and _num_samples(X) == release.n_rows:
        return take_rows(X, release.rows)
    return release.answered(X, owner=owner)


def check_answered(owner: str, X: Any, release: Release) -> None:
    """Refuse what is no release, and features that have a row neither for each answer of it nor for each row that it is about."""
    check_release(owner, release)
    if _num_samples(X) not in (len(release), release.rows_in_all):
        release.answered(X, owner=owner)  # says what is wrong


#: A promise may stay below the budget that was asked for by so much, relatively: noise is calibrated in whole steps.
SAME_BUDGET = 0.01


def warn_of_budget(owner: str, epsilon: Any, release: Release) -> None:
    """Warn of a budget that was given beside a release of another one: what a release cost was spent when it was made.

    The owner's own settings say what she asked for, the release what was promised: the same, or a little less. A promise that is
    not pure has no epsilon to compare with.
    """
    if epsilon is None:
        return
    asked, promised = check_epsilon(owner, epsilon), release.guarantee.epsilon()
    if math.isfinite(promised) and not math.isclose(asked, promised, rel_tol=SAME_BUDGET):
        warnings.warn(
            f"{owner}: `epsilon` is {asked:g} and the release has {promised:g}, which stands: it was spent when the release was "
            "made, and to learn from it costs nothing. Leave `epsilon` out.",
            UserWarning,
            stacklevel=3,
        )


def remember_columns(learner: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Let the learner keep the number and the names of X's columns (`reset`), or refuse others; transformers look at the rest.

    Images have none, nor has a dataset: an item of it may be a pair of an input and a label, whose length says nothing.
    """
    if not is_dataset(X) and getattr(X, "ndim", 2) <= 2:
        refuse_repeats(type(learner).__name__, X)
        validate_data(learner, X, skip_check_array=True, reset=reset)
    elif reset:
        for name in ("n_features_in_", "feature_names_in_"):
            vars(learner).pop(name, None)


def check_rows(learner: BaseEstimator, X: Any, *, inner: Any, reset: bool) -> Any:
    """Return a numeric matrix, sparse or with gaps only where `inner` says that it can; `learner` keeps the shape.

    Views of an example (n, views, d) and images (n, ...) pass where `inner` has the tag `three_d_array`, bytes as bytes; a list of
    images and a tensor pass as the array of them. Whether images, or rows of their pixels, have the shape of the fit is for
    `inner` to say. Of a torch Dataset the inputs pass, without labels, where `inner` takes datasets.
    """
    if is_dataset(X):
        if not getattr(inner, "takes_datasets", False):
            got = Described(f"a {type(X).__name__} for {type(inner).__name__}")
            fix = "Put labeldp.features.Embeddings in front, which reads datasets, or use labeldp.nn.NetClassifier."
            raise invalid(type(learner).__name__, "X", "be an array or a table", got=got, fix=fix)
        return X if isinstance(X, Items) else Items(X, owner=type(learner).__name__)
    accepts = get_tags(inner).input_tags
    finite: Any = "allow-nan" if accepts.allow_nan else True
    X = stack_examples(type(learner).__name__, X)
    with expect_numbers(type(learner).__name__, X):
        if accepts.three_d_array and getattr(X, "ndim", 2) > 2:
            X = np.asarray(X)
            X = inner.arrange_examples(X) if hasattr(inner, "arrange_examples") else X
            kinds: Any = np.uint8 if X.dtype == np.uint8 else [np.float64, np.float32]
            X = check_array(X, dtype=kinds, ensure_all_finite=finite, allow_nd=True, input_name="X", estimator=learner)
            if reset:
                keep_axes(learner, X)
            return X
        return validate_data(
            learner,
            X,
            accept_sparse="csr" if accepts.sparse else False,
            ensure_all_finite=finite,
            dtype=[np.float64, np.float32],
            reset=reset,
        )
