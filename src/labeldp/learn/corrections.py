"""Training on what was released: the same few corrections for any scikit-learn classifier.

>>> from sklearn.linear_model import LogisticRegression
>>> from labeldp.learn.softmax import SoftmaxRegression
>>> choose_correction(SoftmaxRegression(), "auto"), choose_correction(LogisticRegression(), "auto")
('forward', 'posterior')

Let e[y] = prior[y] T[y, o] be the evidence that an example gives about its label: how likely its output o is for each
label, times what was believed before (uniform, where nothing was). The prior belongs in it: a candidate set of one label
gives T[y, o] = 1 for every y, and all that such a release says is what its prior said.

- forward: maximise sum_i log sum_y p(y | x_i) e_i[y]. With a uniform prior this is the forward-corrected likelihood.
- posterior: soft targets e / sum e. An estimator without soft targets sees each row once per label, with weights.
- em: soft targets p(y | x_i) T[y, o_i], normalised, p the last model's, on all examples (`labeldp.learn.stages`).
- unbiased: the channel's signed targets, whose loss is unbiased for the true label's.
- none: the released labels as they are.

References: Patrini et al., "Making Deep Neural Networks Robust to Label Noise" (2017), for forward; Natarajan et al.,
"Learning with Noisy Labels" (2013), for unbiased.

Design notes. What every learner around another estimator needs is here too: its label-free transformers apart from the
classifier (`split_pipeline`), and features as the classifier can take them (`check_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import has_fit_parameter, validate_data

from labeldp.arrays import Floats
from labeldp.channel import FiniteChannel
from labeldp.errors import Described, invalid
from labeldp.softmax import RowBatches

CORRECTIONS = ("auto", "forward", "posterior", "em", "unbiased", "none")
#: Soft targets below this weight are not replicated: they cost a row and say nothing.
LEAST_WEIGHT = 1e-3


def choose_correction(estimator: BaseEstimator, correction: str) -> str:
    """Return the correction to use: for "auto", the first of forward, posterior and none that the estimator can take.

    Forward needs `fit_likelihood`, unbiased `fit_targets`, posterior and em `fit_targets` or sample weights. A correction
    that the estimator cannot take is refused.
    """
    can_forward, can_soft = hasattr(estimator, "fit_likelihood"), hasattr(estimator, "fit_targets")
    weighted = has_fit_parameter(estimator, "sample_weight")
    if correction == "auto":
        return "forward" if can_forward else "posterior" if can_soft or weighted else "none"
    soft = can_soft or weighted
    able = {"forward": can_forward, "unbiased": can_soft, "posterior": soft, "em": soft, "none": True}
    if not able[correction]:
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


def fit_released(
    estimator: BaseEstimator,
    X: Any,
    *,
    codes: npt.NDArray[Any],
    channel: FiniteChannel,
    prior: Floats,
    correction: str,
    classes: Sequence[Any],
) -> BaseEstimator:
    """Fit the estimator on released outputs under a correction, and return it.

    Parameters
    ----------
    estimator
        What to fit; it has what the correction needs (`choose_correction`).
    X, codes, channel, prior
        The features, the outputs of the channel, the channel of these examples, and the belief (n, K) about each label
        that did not come from these outputs.
    correction : {"forward", "posterior", "unbiased", "none"}
        "none" needs outputs that are labels.
    classes
        The classes, in the order of codes and columns.
    """
    labels = np.asarray(classes)
    if correction == "none":
        if not channel.outputs_are_labels:
            got = Described("outputs that are not labels")
            fix = 'Use correction="forward" or "posterior", with an estimator that can take it.'
            raise invalid("LabelPrivateClassifier", "release", "hold labels for correction='none'", got=got, fix=fix)
        return estimator.fit(X, labels[codes])
    if correction == "unbiased":
        return estimator.fit_targets(X, channel.unbiased_targets(codes), classes=labels)
    if correction == "forward":
        return estimator.fit_likelihood(X, channel.likelihood(codes) * prior, classes=labels)
    return fit_soft(estimator, X, channel.posterior(prior, codes), classes)


def fit_soft(estimator: BaseEstimator, X: Any, targets: Floats, classes: Sequence[Any]) -> BaseEstimator:
    """Fit the estimator on soft targets (n, K), by its own method or by weighted copies, and return it."""
    labels = np.asarray(classes)
    if hasattr(estimator, "fit_targets"):
        return estimator.fit_targets(X, targets, classes=labels)
    return _fit_replicated(estimator, X, targets, labels)


def _fit_replicated(estimator: BaseEstimator, X: Any, targets: Floats, labels: npt.NDArray[Any]) -> BaseEstimator:
    """Fit on each row once for every label it may have, weighted by the posterior.

    A weighted loss over the copies, sum_y q[y] loss(y), is the soft-target loss: nothing is approximated but the dropped
    weights below `LEAST_WEIGHT`.
    """
    rows, columns = np.nonzero(targets >= LEAST_WEIGHT)
    return estimator.fit(take_rows(X, rows), labels[columns], sample_weight=targets[rows, columns])


def split_pipeline(estimator: BaseEstimator) -> tuple[Pipeline | None, BaseEstimator]:
    """Return the label-free transformers of a pipeline and its last step, which alone learns from labels."""
    if not isinstance(estimator, Pipeline):
        return None, estimator
    steps = estimator.steps
    for name, step in steps[:-1]:
        if isinstance(step, BaseEstimator) and get_tags(step).target_tags.required:
            fix = f"Leave out `{name}` ({type(step).__name__}): transformers see features alone."
            raise invalid("LabelPrivateClassifier", "estimator", "transform without labels", got=name, fix=fix)
    return (Pipeline(steps[:-1]) if len(steps) > 1 else None), steps[-1][1]


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
    if isinstance(X, RowBatches | pa.Table):  # scikit-learn takes rows of a table of pyarrow from 1.7 on
        return X.take(rows)
    return X[rows] if isinstance(X, np.ndarray) or scipy.sparse.issparse(X) else _safe_indexing(X, rows)


def check_rows(learner: BaseEstimator, X: Any, *, inner: Any, reset: bool) -> Any:
    """Return a numeric matrix, sparse or with gaps only where `inner` says that it can; `learner` keeps the shape.

    Views of an example (n, views, d) and images (n, ...) pass where `inner` has the tag `three_d_array`.
    """
    accepts = get_tags(inner).input_tags
    return validate_data(
        learner,
        X,
        accept_sparse="csr" if accepts.sparse else False,
        ensure_all_finite="allow-nan" if accepts.allow_nan else True,
        dtype=[np.float64, np.float32],
        allow_nd=bool(accepts.three_d_array),
        reset=reset,
    )
