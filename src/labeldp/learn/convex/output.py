r"""`OutputPerturbation`: minimise a regularised loss to a certificate, and release the minimiser with Gaussian noise.

For F(w) = sum_i loss(<w, x_i>; y_i) + l2/2 |w|^2 on D and F' on its neighbour, F - F' is the difference of one example's
two losses, whose gradient is at most c R long: c = D_y if its label was replaced, 2 L if all of it was. By strong
convexity the minimisers are at most c R / l2 apart (l2 |w - w'|^2 <= <grad F(w') - grad F'(w'), w' - w> and
Cauchy-Schwarz). What is released is within gamma / l2 of its minimiser, where gamma bounds the gradient's norm. So

    sensitivity = (c R + 2 gamma) / l2.

The weights are then rounded to a grid, at the price of sqrt(their number) steps of sensitivity, and get exact discrete
Gaussian noise (`labeldp.release.vectors`): the steps are so small that this costs less than 2e-5 of the noise.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat([0, 1], 500)
>>> model = OutputPerturbation(epsilon=1.0, delta=1e-5, clip=1.0, l2=50.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), round(model.sensitivity_, 4)
([0, 1], 0.0207)

*Certificate.* With |grad F(w)| <= gamma, strong convexity gives |w - w*| <= gamma / l2, for whatever labels: the released
w moves by at most 2 gamma / l2 more than the exact minimiser does. The norm is certified in floating point: what rounding
may have hidden is added to what was computed (`Regularised.certificate`).

>>> from labeldp.learn.convex.losses import Logistic, one_hot
>>> rows, targets = np.array([[1.0], [-1.0], [0.5]]), one_hot(np.array([1, 0, 0]), 2)
>>> problem = Regularised(rows=rows, targets=targets, loss=Logistic(), l2=1.0)
>>> problem.certificate(find_minimum(problem, tolerance=1e-6)) <= 1e-6
True

*It is always met.* A refusal is seen by whoever runs the code, so it must not depend on labels. L-BFGS and Newton steps
nearly always arrive; where they do not, plain gradient steps of length 1/M do, M = n L_g R^2 + l2 being the smoothness of
F. With an error of at most E in each gradient,

    F(w+) <= F(w) - (|grad F(w)|^2 - E^2) / (2 M),

so that F falls by more than (3/8 M) |grad F|^2 in each step while |grad F| > 2 E. F is bounded below: after a number of
steps that does not depend on the labels, some |grad F| <= max(2 E, gamma - 2 E). Then the certificate, which is at most
|grad F| + 2 E, is met, if only gamma >= 4 E. E is bounded by public numbers alone (`public_rounding`): |w|^2 l2 / 2 <=
F(0) <= n max(1, log K) along the way. A smaller gamma is refused before the labels are touched.

References: Chaudhuri, Monteleoni, Sarwate 2011; Jain & Thakurta 2014, supplement A, whose noise
L R sqrt(log(1/delta) + epsilon)/(l2 epsilon) is too small for this: at epsilon 1, delta 1e-5, its delta is 1.4e-2.

Design notes. gamma is a public parameter, never the norm that was reached. Neither the number of iterations nor the
loss is kept: they depend on raw labels. So does the time that a fit takes, which is not covered. L-BFGS goes most of the
way; near the minimum it is stopped by the rounding of F, whose differences are the square of the gradient. Newton steps by
conjugate gradients, accepted when the gradient shrinks, finish.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.utils.extmath import row_norms

from labeldp.arrays import Floats
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Unit
from labeldp.learn.convex.base import ConvexClassifier, check_penalty
from labeldp.learn.convex.bounds import balance_output
from labeldp.learn.convex.losses import Loss, choose_loss, one_hot
from labeldp.random import as_key
from labeldp.release.vectors import VectorQuery, measure_vector
from labeldp.validate import check_choice, check_delta, check_epsilon, check_positive

UNITS = {"label": Unit.LABEL, "record": Unit.RECORD_REPLACE}
#: The automatic l2 supposes that good scores have about this size.
USUAL_SCORE = 5.0
NEWTON_STEPS = 40
#: A Newton step is halved down to this share of itself before it is given up.
LEAST_SHARE = 1e-4
#: Half a unit in the last place of 1.
UNIT = 2.0**-53
#: The certificate sums over blocks of rows, and then the blocks: the rounding of a sum grows with its number of terms.
BLOCK = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimiser(VectorQuery):
    """The certified minimiser of sum of losses + l2/2 |w|^2, flat: a query whose sensitivity is that of the module."""

    rows: Any
    loss: Loss
    l2: float
    tolerance: float
    radius: float
    unit: Unit = Unit.LABEL

    def size(self, *, n_classes: int, n_examples: int) -> int:
        """Scores times columns."""
        return self.loss.n_scores(n_classes) * int(self.rows.shape[1])

    def check_tolerance(self, *, n_classes: int) -> None:
        """Refuse, from public numbers, a tolerance that rounding might keep the solver from; see the module.

        Where labels alone are secret, the rows are public, and so is the longest of them.
        """
        radius = self.radius
        if self.unit is Unit.LABEL:
            radius = min(radius, float(row_norms(self.rows).max(initial=0.0)) * (1 + 1e-9))
        least = 4.0 * public_rounding(self.loss, shape=self.rows.shape, n_classes=n_classes, l2=self.l2, radius=radius)
        if not self.tolerance >= least:
            raise PrivacyError(
                f"OutputPerturbation: a gradient norm of {self.tolerance:g}, on which the sensitivity rests, may be out of"
                f" reach for floating point, and a refusal later would tell of labels. Nothing was released. Raise"
                f" `tolerance` to {least:.2g} or more (a little more noise), or `l2`."
            )

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        """(D_y R + 2 gamma) / l2 for a label, (2 L R + 2 gamma) / l2 for a record; rounded up."""
        reach = self.loss.label_reach if self.unit is Unit.LABEL else 2.0 * self.loss.slope_bound(math.inf)
        return (reach * self.radius + 2.0 * self.tolerance) / self.l2 * (1 + 1e-15)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.float64]:
        """Solve, to the certificate."""
        problem = Regularised(rows=self.rows, targets=one_hot(codes, n_classes), loss=self.loss, l2=self.l2)
        return np.asarray(find_minimum(problem, tolerance=self.tolerance), np.float64)


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
        lambda, against the SUM of losses. "auto" balances noise and bias without looking at labels, for good scores of about 5:
        `labeldp.learn.convex.bounds.balance_output`.
    clip : float or "unit-norm"
        The public bound on the norm of a row; required.
    tolerance : float, optional
        gamma, the norm of the gradient to reach; by default a thousandth of R.
    unit : {"label", "record"}
        What one change of the data is: one label replaced, or one whole record.
    fit_intercept, intercept_scaling, classes, random_state, ledger, label_set
        As in LPRRSGD. The intercept is penalised: a free one would void the guarantee.

    Notes
    -----
    *Guarantee.*
    (epsilon, delta) in the stated unit; trusts a curator. The noise is discrete and exact, on weights rounded to a grid.
    A tolerance that the solver might not reach is refused before labels are read (PrivacyError).

    *Edge cases.*
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
        inputs = self._read_inputs(X, y)
        rows, labels = inputs.rows, inputs.labels
        loss = choose_loss(owner, self.loss, labels.n_classes)
        epsilon, delta = check_epsilon(owner, self.epsilon), check_delta(owner, self.delta)
        unit = UNITS[check_choice(owner, "unit", self.unit, tuple(UNITS))]
        if unit is not Unit.LABEL and not math.isfinite(loss.slope_bound(math.inf)):
            fix = 'Use the logistic, softmax or huber loss, or unit="label".'
            raise invalid(owner, "loss", "have a bounded gradient", got=self.loss, fix=fix, kind=PrivacyError)
        radius = inputs.row_map.radius
        query = Minimiser(
            rows=rows,
            loss=loss,
            l2=self._choose_penalty(epsilon, delta, rows.shape[0], labels.n_classes, loss=loss, radius=radius),
            tolerance=1e-3 * radius if self.tolerance is None else check_positive(owner, "tolerance", self.tolerance),
            radius=radius,
            unit=unit,
        )
        query.check_tolerance(n_classes=labels.n_classes)
        key = as_key(owner, self.random_state, name="random_state")
        measured = measure_vector(labels, query, epsilon=epsilon, delta=delta, rng=key, ledger=self.ledger)
        self.l2_ = query.l2
        self.sensitivity_ = query.sensitivity(n_classes=labels.n_classes, n_examples=len(labels))
        self.sigma_ = measured.sigma
        self._keep(measured.value, inputs, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        return self

    def _choose_penalty(
        self, epsilon: float, delta: float, n: int, n_classes: int, *, loss: Loss, radius: float
    ) -> float:
        """Return lambda: what was given, or the balance for weights of 5 / R, which are scores of 5."""
        if self.l2 != "auto":
            return check_penalty("OutputPerturbation", self.l2)
        if math.isinf(epsilon):
            return 1.0
        return balance_output(
            n,
            loss=loss,
            radius=radius,
            norm=USUAL_SCORE / radius,
            epsilon=epsilon,
            delta=delta,
            n_classes=n_classes,
            unit=self.unit,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Regularised:
    """F(W) = sum of losses + l2/2 |W|^2 for rows (n, D) and targets (n, K); W is (C, D)."""

    rows: Any
    targets: Floats
    loss: Loss
    l2: float

    @property
    def shape(self) -> tuple[int, int]:
        """(C, D)."""
        return (self.loss.n_scores(self.targets.shape[1]), int(self.rows.shape[1]))

    def scores(self, weights: Floats) -> Floats:
        """Return (n, C) scores."""
        return np.asarray(self.rows @ weights.T)

    def value(self, weights: Floats) -> float:
        """Return F."""
        return self.loss.value(self.scores(weights), self.targets) + 0.5 * self.l2 * float(np.vdot(weights, weights))

    def gradient(self, weights: Floats) -> Floats:
        """Return the gradient of F, (C, D)."""
        slopes = self.loss.slopes(self.scores(weights), self.targets)
        gradient: Floats = np.asarray(self.rows.T @ slopes).T + self.l2 * weights
        return gradient

    def certificate(self, weights: Floats) -> float:
        """Return an upper bound on the norm of the gradient: as computed, plus what rounding may have hidden."""
        slopes = self.loss.slopes(self.scores(weights), self.targets)
        gradient = self.careful_gradient(weights, slopes)
        hidden = rounding_error(
            self.loss,
            shape=self.rows.shape,
            slopes=float(np.abs(slopes).sum()),
            size=float(np.linalg.norm(weights)),
            l2=self.l2,
            radius=float(row_norms(self.rows).max(initial=0.0)) * (1 + self.rows.shape[1] * UNIT),
            n_scores=self.shape[0],
        )
        return float(np.linalg.norm(gradient)) * (1 + gradient.size * UNIT) + hidden

    def careful_gradient(self, weights: Floats, slopes: Floats) -> Floats:
        """Return the gradient of F, summed block by block."""
        total = np.zeros(self.shape)
        for low in range(0, self.rows.shape[0], BLOCK):
            total += np.asarray(self.rows[low : low + BLOCK].T @ slopes[low : low + BLOCK]).T
        total += self.l2 * weights
        return total

    @property
    def curvature(self) -> float:
        """M, the smoothness of F: n L_g R^2 + l2, rounded up."""
        square = float(row_norms(self.rows, squared=True).max(initial=0.0))
        return float((self.rows.shape[0] * self.loss.smoothness * square + self.l2) * (1 + 1e-9))

    def newton_step(self, weights: Floats, gradient: Floats) -> Floats:
        """Return the solution of Hessian x = gradient, to a thousandth, by conjugate gradients."""
        scores = self.scores(weights)

        def times(flat: Floats) -> Floats:
            change = self.scores(flat.reshape(self.shape))
            bent = np.asarray(self.rows.T @ self.loss.bend(scores, self.targets, change)).T
            product: Floats = bent.reshape(-1) + self.l2 * flat.reshape(-1)
            return product

        operator = LinearOperator((gradient.size, gradient.size), matvec=times, dtype=np.float64)
        # The relative tolerance is `tol` before SciPy 1.12 and `rtol` since; the absolute one has one name in both.
        near = 1e-3 * float(np.linalg.norm(gradient))
        answer, _ = cg(operator, gradient.reshape(-1), atol=near, maxiter=200)
        step: Floats = answer.reshape(self.shape)
        return step


def rounding_error(
    loss: Loss,
    *,
    shape: tuple[int, int],
    slopes: float,
    size: float,
    l2: float,
    radius: float,
    n_scores: int,
) -> float:
    """Return a bound on the error of a gradient that is summed in blocks, or of a step along it; twice what is counted.

    In units of 2^-53, n rows of D columns, S the sum of |slopes|, C scores a row, |w| = `size`:

    - a sum over blocks of b errs by b + n/b units of the sum of sizes: (b + n/b) S R;
    - scores err by D |w| R, slopes by L_g times that, and a sum over n rows by n R times that; the step itself, w - g/M,
      is off by |w| (1 + D), which is as much as n L_g R^2 |w| (and l2 |w|) in the gradient;
    - exponentials, quotients and the difference p - q err by C + 16 at most: n (C + 16) R;
    - the term l2 w, and its sum with the rest, by 8 l2 |w|.
    """
    n, width = shape
    terms = min(n, BLOCK) + n / BLOCK + 16.0
    curved = loss.smoothness * (width + 8.0) * size * radius**2 * n
    units = terms * slopes * radius + curved + n * (n_scores + 16.0) * radius + 8.0 * l2 * size
    return float(2.0 * UNIT * units)


def public_rounding(loss: Loss, *, shape: tuple[int, int], n_classes: int, l2: float, radius: float) -> float:
    """Return the largest `rounding_error` that any labels can cause on the way to the minimum: E of the module.

    F never exceeds F(0) <= n f, f = max(1, log K), so |w| <= sqrt(2 n f / l2); twice that is allowed for. Slopes of the
    squared loss are roots of twice their losses, whose sum is at most n f: on average they are at most sqrt(2 f).
    """
    n, n_scores, start = shape[0], loss.n_scores(n_classes), max(1.0, math.log(n_classes))
    size = 2.0 * math.sqrt(2.0 * n * start / l2)
    slopes = n * min(loss.slope_bound(size * radius), math.sqrt(2.0 * start)) * math.sqrt(n_scores)
    return rounding_error(loss, shape=shape, slopes=slopes, size=size, l2=l2, radius=radius, n_scores=n_scores)


def find_minimum(problem: Regularised, *, tolerance: float) -> Floats:
    """Return weights (C, D) whose certificate is at most `tolerance`, which is not below 4 E of the module.

    It does not fail, and neither does its answer tell which way was taken.
    """
    weights = _polish(problem, _descend(problem, tolerance), tolerance)
    return weights if problem.certificate(weights) <= tolerance else take_small_steps(problem, tolerance=tolerance)


def take_small_steps(problem: Regularised, *, tolerance: float) -> Floats:
    """Return weights whose certificate is at most `tolerance`, by gradient steps of length 1/M from 0: slow, and sure.

    The loop ends by the module's argument, after about (M / l2) log(F(0) M / tolerance^2) steps.
    """
    weights, curvature = np.zeros(problem.shape), problem.curvature
    while not problem.certificate(weights) <= tolerance:
        slopes = problem.loss.slopes(problem.scores(weights), problem.targets)
        weights = weights - problem.careful_gradient(weights, slopes) / curvature
    return weights


def _descend(problem: Regularised, tolerance: float, max_iter: int = 1000) -> Floats:
    """Return where L-BFGS ends."""
    scale = 1.0 / problem.rows.shape[0]  # keeps its first step sane

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(problem.shape)
        scores = problem.scores(weights)
        total = problem.loss.value(scores, problem.targets) + 0.5 * problem.l2 * float(flat @ flat)
        slopes = problem.loss.slopes(scores, problem.targets)
        gradient = np.asarray(problem.rows.T @ slopes).T + problem.l2 * weights
        return scale * total, scale * gradient.reshape(-1)

    size = math.prod(problem.shape)
    goal = scale * tolerance / (2.0 * math.sqrt(size))
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "gtol": goal, "ftol": 0.0, "maxcor": 20}
    found = scipy.optimize.minimize(objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
    weights: Floats = found.x.reshape(problem.shape)
    return weights


def _polish(problem: Regularised, weights: Floats, tolerance: float) -> Floats:
    """Take Newton steps until the gradient is half the tolerance or nothing helps."""
    for _ in range(NEWTON_STEPS):
        gradient = problem.gradient(weights)
        if float(np.linalg.norm(gradient)) <= 0.5 * tolerance:
            break
        nearer = _take_newton_step(problem, weights, gradient)
        if nearer is None:
            break
        weights = nearer
    return weights


def _take_newton_step(problem: Regularised, weights: Floats, gradient: Floats) -> Floats | None:
    """Return the weights after a Newton step, halved until the gradient shrinks; None if it never does."""
    step, share, size = problem.newton_step(weights, gradient), 1.0, float(np.linalg.norm(gradient))
    while share > LEAST_SHARE:
        nearer: Floats = weights - share * step
        if float(np.linalg.norm(problem.gradient(nearer))) < (1 - 0.1 * share) * size:
            return nearer
        share /= 2
    return None
