r"""What a fitted model believes of rows, and what it believes once their answers are seen: made a few rows at a time.

>>> from labeldp.learn.softmax import SoftmaxRegression
>>> X = np.array([[-1.0], [0.0], [1.0]])
>>> model = SoftmaxRegression().fit(X, [0, 1, 1])
>>> ModelBeliefs(model, X, classes=(0, 1)).make([2, 0]).round(1).tolist()
[[0.0, 1.0], [1.0, 0.0]]

Both are `labeldp.channel.LazyRows` of shape (n, K). `ModelBeliefs` is p(y | x), tempered and mixed as a stage's prior is.
`Posteriors` is the E-step of EM,

    q_i[y] = p_i[y] L_i[y] / sum_k p_i[k] L_i[k],

L_i = 1 for rows of which nothing was released. With few classes they are arrays at once (`labeldp.channel.evidence.keep_small`);
with many, `SoftmaxRegression` reads targets in one pass over all rows, a network those of a batch in its step, and
`InformativeResponse` priors as it draws. A row is then predicted as often as it is asked for: time for memory.

Design notes. A model that is fitted again from its own weights is the same object: what was believed before must not change
with it, so lazy beliefs hold a copy of the model. Nothing here holds a label: models and evidence are made of released answers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from labeldp.arrays import Floats, Places
from labeldp.channel import LazyRows
from labeldp.channel.evidence import check_memory, is_small, keep_small, make_rows
from labeldp.learn.corrections import predict_classes, take_rows
from labeldp.priors import tempered

#: A model that rules a label out altogether could contradict what was released; it never quite does.
LEAST_BELIEF = 1e-12


class ModelBeliefs(LazyRows):
    """A model's probabilities of the rows of X, to the power 1 / `temperature`, with `floor` of the uniform law mixed in."""

    def __init__(
        self, model: Any, X: Any, *, classes: Sequence[Any], temperature: float | None = None, floor: float = 0.0
    ) -> None:
        self._model, self._X, self._classes = model, X, classes
        self._temperature, self._floor = temperature, floor
        self.shape = (X.shape[0] if hasattr(X, "shape") else len(X), len(classes))

    def make(self, rows: Any) -> Floats:
        """Return the beliefs of some rows."""
        whole = isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1)
        chosen = self._X if whole else take_rows(self._X, np.arange(len(self))[rows])
        found = predict_classes(self._model, chosen, self._classes)
        if self._temperature is not None:
            found = tempered(found, self._temperature)
        return mix_uniform(found, self._floor) if self._floor else found

    def kept(self) -> Any:
        """Return an array where that is small, and else lazy rows that a later fit of the model does not change."""
        if not is_small(self):
            self._model = copy.deepcopy(self._model)
        return keep_small(self)


class Posteriors(LazyRows):
    """q of the module: `beliefs` (n, K), array or lazy, times the likelihood of `evidence` at `rows`, normalised.

    The likelihood is taken to a `power`, 1 unless the beliefs have seen the same evidence (`labeldp.learn.pools`).
    """

    def __init__(self, beliefs: Any, parts: Sequence[tuple[Places, Any]], *, power: float = 1.0) -> None:
        self._beliefs, self._power, self.shape = beliefs, power, beliefs.shape
        self._evidence = [evidence for _, evidence in parts]
        #: Which part has released something of a row, and its place there; -1 where there is none.
        self._part, self._place = np.full(len(beliefs), -1, np.int16), np.zeros(len(beliefs), np.int64)
        for number, (rows, _) in enumerate(parts):
            self._part[rows], self._place[rows] = number, np.arange(len(rows))

    def make(self, rows: Any) -> Floats:
        """Return the posteriors of some rows."""
        joint: Floats = np.maximum(make_rows(self._beliefs, rows), LEAST_BELIEF)
        part, place = self._part[rows], self._place[rows]
        for number, evidence in enumerate(self._evidence):
            mine = np.flatnonzero(part == number)
            if len(mine):
                likely = evidence.make(place[mine])
                joint[mine] *= likely if self._power == 1.0 else likely**self._power
        joint /= joint.sum(axis=1, keepdims=True)
        return joint


def mix_uniform(prior: Floats, floor: float) -> Floats:
    """Return a prior (n, K) with a share `floor` of the uniform one; rows that are one row in memory stay that."""
    if len(prior) and prior.strides[0] == 0:
        return np.broadcast_to((1 - floor) * prior[:1] + floor / prior.shape[1], prior.shape)
    answer: Floats = (1 - floor) * prior + floor / prior.shape[1]
    return answer


def predict_labels(model: Any, X: Any, classes: Sequence[Any]) -> Places:
    """Return the position of the likeliest class of each row; probabilities of all rows are never in memory at once."""
    beliefs = ModelBeliefs(model, X, classes=classes)
    best: Places
    if is_small(beliefs):
        best = beliefs.make(slice(None)).argmax(axis=1)
    else:
        best = np.concatenate([batch.argmax(axis=1) for batch in beliefs])
    return best


def check_whole_arrays(estimator: BaseEstimator, correction: str, *, n_rows: int, n_classes: int) -> None:
    """Refuse more rows and classes than fit into memory, where training needs whole (n, K) arrays.

    Crossfit holds about six of them. An estimator without `fit_likelihood` and `fit_targets` is given copies of rows, drawn
    from an array of posteriors. Forward and em of `SoftmaxRegression` and `NetClassifier` need none.
    """
    own = hasattr(estimator, "fit_likelihood") and hasattr(estimator, "fit_targets")
    arrays = 6 if correction == "crossfit" else 2 if correction == "unbiased" or not own else 0
    if arrays and correction != "none":
        check_memory("LabelPrivateClassifier", n_rows=n_rows, n_classes=n_classes, arrays=arrays)
