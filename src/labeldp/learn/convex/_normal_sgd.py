r"""`LPNormalSGD`: Gaussian noise on each gradient, in the few directions in which a label can move it.

The possible gradients of example i are g(1), .., g(K); the label picks one. Noise is needed only in the span of their
differences, K - 1 dimensions however many parameters there are. Since sum_k q_k g(k) is linear in the row q, noise on
the one-hot label, projected on rows that sum to zero, is such noise: softmax regression has g(k) = (p - e_k) x', so
q = e_y + s (z - mean z) adds s (z - mean z) x' to the gradient, which is N(0, s^2 |x|^2) on that span.

So the noisy row is released once, at L2 sensitivity sqrt 2 (1 for the one number of two classes), and every gradient
of every pass is post-processing of it: passes are free, where noise drawn anew in each step would compose.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat([0, 1], 500)
>>> model = LPNormalSGD(epsilon=1.0, delta=1e-5, clip=1.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon(1e-5) <= 1.0
([0, 1], True)

References: Ghazi et al. 2021, supplement F: Algorithm 6 (LP-Normal-SGD), Proposition 11; Balle & Wang 2018.

Design notes. The paper draws on the span of the gradients themselves (K dimensions) with a textbook sigma for sensitivity
2 L; this is K - 1 dimensions and the exact sigma. No amplification by subsampling is claimed: the noise lies in the
example's own directions, which say which example it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import as_key
from labeldp._validate import check_delta, check_epsilon
from labeldp.learn.convex._base import ConvexClassifier, Floats
from labeldp.learn.convex._losses import chosen_loss, one_hot
from labeldp.learn.convex._sgd import batch_second_moment, checked_plan, projected_sgd, public_order
from labeldp.release._measure_real import VectorQuery, measure_vector


class OneHotLabels(VectorQuery):
    """Every label as a row: one-hot (n, K), or the indicator of the second of two classes (n, 1)."""

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """A replaced label moves two entries of one row by 1; of two classes one entry."""
        return 1.0 if n_classes == 2 else float(np.nextafter(np.sqrt(2.0), 2.0))

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.float64]:
        """Return the rows."""
        rows = one_hot(codes, n_classes).astype(np.float64, copy=False)
        return rows[:, 1:] if n_classes == 2 else rows


class LPNormalSGD(ConvexClassifier):
    """Convex learning from one-hot labels with Gaussian noise.

    Parameters
    ----------
    epsilon, delta : float
        The budget; delta must be > 0.
    loss, clip, diameter, epochs, batch_size, average, fit_intercept, intercept_scaling, classes, random_state, ledger, \
label_set
        As in LPRRSGD.

    Guarantee
    ---------
    (epsilon, delta) when one label is replaced, by the exact profile of Gaussian noise; trusts a curator. The noise is
    continuous: the guarantee names floating point among its assumptions.

    Edge cases
    ----------
    delta = 0 is refused. epsilon = inf trains on the labels.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
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
        self.delta = delta
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

    def fit(self, X: Any, y: Any) -> LPNormalSGD:
        """Release y once, with noise, and train on what was released; y is not kept."""
        rows, labels = self._prepared(X, y)
        loss = chosen_loss("LPNormalSGD", self.loss, labels.n_classes)
        reach, plan = checked_plan(
            "LPNormalSGD",
            diameter=self.diameter,
            radius=self._rows.radius,
            epochs=self.epochs,
            batch_size=self.batch_size,
            average=self.average,
        )
        epsilon, delta = check_epsilon("LPNormalSGD", self.epsilon), check_delta("LPNormalSGD", self.delta)
        key = as_key("LPNormalSGD", self.random_state)
        measured = measure_vector(labels, OneHotLabels(), epsilon=epsilon, delta=delta, rng=key, ledger=self.ledger)
        targets = summing_to_one(measured.value)
        clean = loss.slope_bound(reach) * self._rows.radius
        # Var of sum_k noise_k g(k) is at most sigma^2 sum_k |g(k) - mean|^2 <= sigma^2 K L^2.
        noisy = clean**2 * (1.0 + (measured.sigma or 0.0) ** 2 * labels.n_classes)
        moment = batch_second_moment(clean=clean, noisy=noisy, batch_size=plan.batch_size)
        plan = replace(plan, second_moment=moment)
        weights = projected_sgd(rows, targets, loss, plan, order=public_order(key))
        self._keep(weights, labels, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        return self


def summing_to_one(noisy: Floats) -> Floats:
    """Return noisy rows projected on those that sum to one (a known fact of one-hot rows); one column gets its twin.

    >>> summing_to_one(np.array([[0.25]])).tolist(), summing_to_one(np.array([[1.0, 0.5, 0.0]])).round(6).tolist()
    ([[0.75, 0.25]], [[0.833333, 0.333333, -0.166667]])
    """
    if noisy.shape[1] == 1:
        return np.concatenate([1.0 - noisy, noisy], axis=1)
    rows: Floats = noisy + (1.0 - noisy.sum(axis=1, keepdims=True)) / noisy.shape[1]
    return rows
