r"""`OutputPerturbation`: minimise a regularised loss to a certificate, and release the minimiser with Gaussian noise.

For F(w) = sum_i loss(<w, x_i>; y_i) + l2/2 |w|^2 on D and F' on its neighbour, F - F' is the difference of one example's
two losses, whose gradient is at most c R long: c = D_y if its label was replaced, 2 L if all of it was. By strong
convexity the minimisers are at most c R / l2 apart (l2 |w - w'|^2 <= <grad F(w') - grad F'(w'), w' - w> and
Cauchy-Schwarz). What is released is within gamma / l2 of its minimiser, where gamma bounds the gradient's norm. So

    sensitivity = (c R + 2 gamma) / l2,       and the noise is that of the analytic Gaussian mechanism.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat([0, 1], 500)
>>> model = OutputPerturbation(epsilon=1.0, delta=1e-5, clip=1.0, l2=50.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), round(model.sensitivity_, 4)
([0, 1], 0.0207)

References: Chaudhuri, Monteleoni, Sarwate 2011; Jain & Thakurta 2014, supplement A, whose noise
L R sqrt(log(1/delta) + epsilon)/(l2 epsilon) is too small for this: at epsilon 1, delta 1e-5, its delta is 1.4e-2.

Design notes. gamma is a public parameter, never the norm that was reached. Neither the number of iterations nor the
loss is kept: they depend on raw labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import as_key
from labeldp._validate import check_choice, check_delta, check_epsilon, check_positive
from labeldp.accounting import analytic_gaussian_sigma
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Unit
from labeldp.learn.convex._base import ConvexClassifier
from labeldp.learn.convex._losses import Loss, chosen_loss, one_hot
from labeldp.learn.convex._rows import check_penalty
from labeldp.learn.convex._solver import Regularised, certified_minimum
from labeldp.release._measure_real import VectorQuery, measure_vector

UNITS = {"label": Unit.LABEL, "record": Unit.RECORD_REPLACE}
CERTIFIED = "the solver's certificate (a gradient norm below its tolerance) was met; a refusal would be visible"
#: The automatic l2 supposes that good scores have about this size.
USUAL_SCORE = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimiser(VectorQuery):
    """The certified minimiser of sum of losses + l2/2 |w|^2, flat: a query whose sensitivity is that of the module."""

    rows: Any
    loss: Loss
    l2: float
    tolerance: float
    radius: float
    unit: Unit = Unit.LABEL
    assumptions: tuple[str, ...] = (CERTIFIED,)

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """(D_y R + 2 gamma) / l2 for a label, (2 L R + 2 gamma) / l2 for a record; rounded up."""
        reach = self.loss.label_reach if self.unit is Unit.LABEL else 2.0 * self.loss.slope_bound(math.inf)
        return (reach * self.radius + 2.0 * self.tolerance) / self.l2 * (1 + 1e-15)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.float64]:
        """Solve, to the certificate."""
        problem = Regularised(rows=self.rows, targets=one_hot(codes, n_classes), loss=self.loss, l2=self.l2)
        found = certified_minimum(problem, tolerance=self.tolerance, owner="OutputPerturbation")
        return np.asarray(found, np.float64)


class OutputPerturbation(ConvexClassifier):
    """A regularised linear model, released with noise on its weights.

    Parameters
    ----------
    epsilon, delta : float
        The budget; delta must be > 0.
    loss : {"auto", "logistic", "softmax", "huber", "squared"}
        "auto" is logistic for two classes and softmax for more. Squared loss protects labels only: its gradient has no
        bound when a whole record may change.
    l2 : float or "auto"
        lambda, against the SUM of losses. "auto" balances noise and bias without looking at labels:
        R^2 sqrt(2 n sigma_1) / 5, with sigma_1 the noise at sensitivity 1, is best if good scores are about 5.
    clip : float or "unit-norm"
        The public bound on the norm of a row; required.
    tolerance : float, optional
        gamma, the norm of the gradient to reach; by default a thousandth of R.
    unit : {"label", "record"}
        What one change of the data is: one label replaced, or one whole record.
    fit_intercept, intercept_scaling, classes, random_state, ledger, label_set
        As in LPRRSGD. The intercept is penalised: a free one would void the guarantee.

    Guarantee
    ---------
    (epsilon, delta) in the stated unit; trusts a curator. No certificate, no release (PrivacyError).

    Edge cases
    ----------
    l2 = 0 is refused. Separable data and d > n are no trouble: l2 > 0 makes the minimiser unique and bounded. A constant
    label is learned as such.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        loss: str = "auto",
        l2: float | str = "auto",
        clip: float | str | None = None,
        tolerance: float | None = None,
        unit: str = "label",
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
        self.l2 = l2
        self.clip = clip
        self.tolerance = tolerance
        self.unit = unit
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> OutputPerturbation:
        """Solve inside the door and keep what comes out of it."""
        owner = "OutputPerturbation"
        rows, labels = self._prepared(X, y)
        loss = chosen_loss(owner, self.loss, labels.n_classes)
        epsilon, delta = check_epsilon(owner, self.epsilon), check_delta(owner, self.delta)
        unit = UNITS[check_choice(owner, "unit", self.unit, tuple(UNITS))]
        if unit is not Unit.LABEL and not math.isfinite(loss.slope_bound(math.inf)):
            fix = 'Use the logistic, softmax or huber loss, or unit="label".'
            raise invalid(owner, "loss", "have a bounded gradient", got=self.loss, fix=fix, kind=PrivacyError)
        radius = self._rows.radius
        query = Minimiser(
            rows=rows,
            loss=loss,
            l2=self._penalty(epsilon, delta, rows.shape[0]),
            tolerance=1e-3 * radius if self.tolerance is None else check_positive(owner, "tolerance", self.tolerance),
            radius=radius,
            unit=unit,
        )
        key = as_key(owner, self.random_state)
        measured = measure_vector(labels, query, epsilon=epsilon, delta=delta, rng=key, ledger=self.ledger)
        self.l2_ = query.l2
        self.sensitivity_ = query.sensitivity(n_classes=labels.n_classes, n_examples=len(labels))
        self.sigma_ = measured.sigma
        self._keep(measured.value, labels, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        return self

    def _penalty(self, epsilon: float, delta: float, n: int) -> float:
        """Return lambda.

        Noise moves a loss by about R (sigma_1 R / l2), the penalty biases it by l2 |w|^2 / (2 n): the sum is least at
        l2 = R sqrt(2 n sigma_1) / |w|, and |w| = 5 / R for scores of 5.
        """
        if self.l2 != "auto":
            return check_penalty("OutputPerturbation", self.l2)
        if math.isinf(epsilon):
            return 1.0
        unit_noise = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
        return self._rows.radius**2 * math.sqrt(2.0 * n * unit_noise) / USUAL_SCORE
