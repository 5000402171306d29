r"""`DPSGDClassifier`: the baseline of whole-record privacy, DP-SGD through opacus, to set beside label privacy.

It hides whether a record is there at all, features and label; a label-private learner hides the label only. Its epsilon
is therefore not that of the others: `guarantee_.unit` says which, and tables must too.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat(["no", "yes"], 500)
>>> model = DPSGDClassifier(epsilon=2.0, epochs=2, batch_size=100, classes=["no", "yes"], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.unit.sentence
(['no', 'yes'], 'one record added or removed')

References: Abadi et al. 2016; Bassily, Smith, Thakurta 2014 (the step size); Yousefpour et al. 2021 (opacus).

Design notes. Everything of torch and opacus is in `_dpsgd_train.py`, imported by `fit`: a fitted model predicts with
NumPy alone. The automatic step is D / (G sqrt T) of projected gradient descent with G^2 = C^2 (1 + p (z/B)^2), p the
number of parameters: where noise outweighs gradients the step shrinks with sqrt p, as the theory has it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.random import as_key
from labeldp.release.labels import box_labels
from labeldp.release.vectors import curate
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

OWNER = "DPSGDClassifier"
#: The automatic step supposes scores within this distance of zero (as LPRRSGD does) and rows about as long as C.
LARGEST_SCORE = 10.0


class DPSGDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic or softmax regression, or a small network, by DP-SGD at record level.

    Parameters
    ----------
    epsilon, delta : float
        The budget for one record added or removed; delta must be > 0. opacus finds the noise multiplier for it.
    hidden : sequence of int
        Widths of hidden layers with ReLU between; none is a linear model.
    epochs, batch_size
        The expected number of visits of a record, and of records in a batch: batches are Poisson samples. Each step costs.
    max_grad_norm : float
        C, to which the gradient of an example is cut. Bring rows to about this norm by a rule that sees one row only.
    learning_rate : float or "auto"
        "auto" is 2 * 10 / (C^2 sqrt(T (1 + p (z/B)^2))) for T steps, p parameters, noise z and batches of B: no data.
    average : bool
        Whether the second half of the iterates is averaged. Free: all of them are covered by the guarantee.
    classes, random_state, ledger, label_set
        As in LabelPrivateClassifier: None for random_state is secure noise, anything else marks the model `seeded_`.

    Attributes
    ----------
    guarantee_, seeded_ : what is promised, with its unit, and whether a seed made it worthless
    noise_multiplier_, sample_rate_, n_steps_, learning_rate_ : z, q, T and the step; facts, not of the data
    coefs_, intercepts_, classes_, n_features_in_ : the model, a matrix (inputs, outputs) and a row for each layer

    Guarantee
    ---------
    A Renyi curve that implies (epsilon, delta) when one record is added or removed, by opacus' accountant for Poisson
    samples; trusts a curator. The number of records is taken as public. Noise and samples come from labeldp's AES key,
    not from torch's generator (opacus' default) and not from opacus' `secure_mode`, so they are cryptographic unless
    seeded; they are floating-point numbers, and `secure_mode`'s sums of several draws against that are not made: the
    guarantee names it among its assumptions.

    Assumes
    -------
    Nothing was computed from all rows before: a scaler or encoder fitted on the training features is not covered.

    Edge cases
    ----------
    delta = 0 is refused. epsilon = inf clips and adds no noise. A constant label is learned as such if `classes` has
    two. Separable data and d > n need no care: gradients are clipped and steps are finitely many. Sparse features are
    made dense one batch at a time.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        hidden: Sequence[int] = (),
        epochs: int = 10,
        batch_size: int = 512,
        max_grad_norm: float = 1.0,
        learning_rate: float | str = "auto",
        average: bool = True,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_grad_norm = max_grad_norm
        self.learning_rate = learning_rate
        self.average = average
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> DPSGDClassifier:
        """Calibrate, charge, train inside the door, and keep what comes out of it."""
        training = importlib.import_module("labeldp.nn.dpsgd_train")
        rows = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=True)
        labels = box_labels(OWNER, y, n_rows=rows.shape[0], classes=self.classes, label_set=self.label_set)
        key = as_key(OWNER, self.random_state)
        widths = self._widths(rows.shape[1], labels.n_classes)
        settings = self._settings(training, rows.shape[0], widths)
        procedure = training.PrivateTraining(rows=rows, widths=widths, average=bool(self.average), **settings)
        self._check_budget(procedure.guarantee(n_classes=labels.n_classes, n_examples=len(labels)))
        measured = curate(labels, procedure, rng=key, ledger=self.ledger)
        self.coefs_, self.intercepts_ = _layers(measured.value, widths)
        self.classes_ = np.asarray(labels.classes)
        self.guarantee_, self.seeded_ = measured.guarantee, measured.seeded
        self.noise_multiplier_, self.sample_rate_ = procedure.noise_multiplier, procedure.sample_rate
        self.n_steps_, self.learning_rate_ = procedure.steps, procedure.learning_rate
        return self

    def _widths(self, n_features: int, n_classes: int) -> tuple[int, ...]:
        """Return the widths of all layers; two classes need one score."""
        middle = [check_integer(OWNER, "hidden", width, least=1) for width in self.hidden]
        return (n_features, *middle, 1 if n_classes == 2 else n_classes)

    def _settings(self, training: Any, n: int, widths: tuple[int, ...]) -> dict[str, Any]:
        """Return the sampling, noise and step: functions of the parameters, n and p, never of the data."""
        epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
        if epsilon == 0 or (delta == 0 and math.isfinite(epsilon)):
            name = "epsilon" if epsilon == 0 else "delta"
            fix = "Gaussian noise is never pure, and no finite noise says nothing."
            raise invalid(OWNER, name, "be > 0", got=getattr(self, name), fix=fix)
        epochs = check_integer(OWNER, "epochs", self.epochs, least=1)
        rate = min(1.0, check_integer(OWNER, "batch_size", self.batch_size, least=1) / n)
        steps = math.ceil(epochs / rate)
        noise = training.calibrated_noise(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
        bound = check_positive(OWNER, "max_grad_norm", self.max_grad_norm)
        automatic = self.learning_rate == "auto"
        step = 1.0 if automatic else check_positive(OWNER, "learning_rate", self.learning_rate)
        if automatic:
            size = sum((narrow + 1) * wide for narrow, wide in pairwise(widths))
            step = 2.0 * LARGEST_SCORE / (bound**2 * math.sqrt(steps * (1.0 + size * (noise / (rate * n)) ** 2)))
        return {
            "noise_multiplier": noise,
            "sample_rate": rate,
            "steps": steps,
            "max_grad_norm": bound,
            "learning_rate": step,
        }

    def _check_budget(self, promise: Any) -> None:
        """Refuse what the calibration does not meet: the curve decides, not the calibration."""
        spent = promise.epsilon(self.delta)
        if not spent <= self.epsilon:
            fix = "Ask for fewer epochs, or for a larger epsilon."
            raise invalid(OWNER, "epsilon", "be met", got=Described(f"{spent}"), fix=fix, kind=PrivacyError)

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: one column per class, or for two classes one number, > 0 for the second."""
        check_is_fitted(self, "coefs_")
        rows = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)
        for layer, (matrix, offset) in enumerate(zip(self.coefs_, self.intercepts_, strict=True)):
            rows = np.asarray((rows if layer == 0 else np.maximum(rows, 0.0)) @ matrix) + offset
        scores: Floats = rows[:, 0] if rows.shape[1] == 1 else rows
        return scores

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            shares: Floats = softmax(scores, axis=1)
            return shares
        second = expit(scores)
        return np.stack([1.0 - second, second], axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _layers(flat: Floats, widths: tuple[int, ...]) -> tuple[list[Floats], list[Floats]]:
    """Return matrices and offsets of each layer from torch's order: (outputs, inputs), then the offsets."""
    matrices, offsets, start = [], [], 0
    for narrow, wide in pairwise(widths):
        matrices.append(flat[start : start + narrow * wide].reshape(wide, narrow).T.copy())
        offsets.append(flat[start + narrow * wide : start + (narrow + 1) * wide].copy())
        start += (narrow + 1) * wide
    return matrices, offsets
