r"""`SimplexERM`: an entropy-regularised minimiser on the simplex, of which only samples are released.

Weights are w = B (theta_+ - theta_-) with (theta_+, theta_-) on the simplex of 2 d corners, so |w|_1 <= B. With
a_i = B (x_i, -x_i), |a_i|_inf <= R = B clip, the minimiser of sum_i loss(<a_i, theta>; y_i) + l sum_j theta_j log theta_j
satisfies theta = softmax(-g(theta)/l), g the gradient of the losses. Its m samples, averaged, are the model.

*Privacy.* Entropy is 1-strongly convex in the 1-norm, so replacing a label moves the minimiser by at most D_y R / l. The
solver's theta is within gamma of it, certified (below), and samples are drawn from softmax(-g(theta)/l). Between
neighbours g changes, in each coordinate, by at most D_y R (the label) + n L_g R^2 (D_y R / l + 2 gamma) (theta's move).
Logits then differ by that over l, and the log-ratio of two softmaxes spans at most twice the largest difference:

    epsilon_s = (2 / l) (D_y R + n L_g R^2 (D_y R / l + 2 gamma)),

a bounded range, so that m samples are m epsilon_s^2 / 8 zCDP (Cesar & Rogers 2021) and m epsilon_s pure.

*Certificate.* With r = g(theta) + l log theta, strong convexity and optimality give
l |theta - theta*|_1^2 <= <r, theta - theta*> <= (max r - min r)/2 |theta - theta*|_1, hence
|theta - theta*|_1 <= (max r - min r) / (2 l).

>>> import numpy as np
>>> X = np.repeat([[-1.0, 0.2], [1.0, 0.2]], 2000, axis=0)
>>> y = np.repeat([0, 1], 2000)
>>> model = SimplexERM(epsilon=2.0, delta=1e-5, clip=1.0, radius=2.0, classes=[0, 1], random_state=0).fit(X, y)
>>> model.predict([[-1.0, 0.2], [1.0, 0.2]]).tolist(), model.guarantee_.epsilon(1e-5) <= 2.0
([0, 1], True)

References: Jain & Thakurta 2014, supplement B (whose |change|_1 <= L R / l is violated by examples: the proof gives 2 L R / l
for records); Cesar & Rogers, "Bounding, Concentrating, and Truncating" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from labeldp.accounting import zcdp_rho
from labeldp.arrays import Floats
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.base import ConvexClassifier, Inputs, RowMap, make_row_map
from labeldp.learn.convex.losses import Loss, choose_loss, one_hot
from labeldp.learn.convex.output import CERTIFIED
from labeldp.random import BitStream, as_key
from labeldp.release import SensitiveLabels
from labeldp.release.vectors import Procedure, curate, uniforms
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

MOST_STEPS = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class SimplexSamples(Procedure):
    """How often each corner was drawn in `n_samples` draws from the certified minimiser."""

    corners: Any
    loss: Loss
    entropy: float
    tolerance: float
    reach: float
    n_samples: int

    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """That of the module: n_samples draws of bounded range epsilon_s."""
        each = sample_range(
            self.loss, entropy=self.entropy, tolerance=self.tolerance, reach=self.reach, n_examples=n_examples
        )
        return Guarantee.bounded_range(each, assumptions=(CERTIFIED,)).times(self.n_samples)

    def run(self, codes: npt.NDArray[Any], *, n_classes: int, bits: BitStream) -> npt.NDArray[np.float64]:
        """Solve, check the certificate, draw."""
        targets = one_hot(codes, n_classes)
        theta = find_simplex_minimum(self.corners, targets, self.loss, self.entropy, self.tolerance)
        shares = to_shares(-sum_slopes(self.corners, targets, self.loss, theta) / self.entropy)
        edges = np.cumsum(shares)
        drawn = np.searchsorted(edges / edges[-1], uniforms(bits, self.n_samples), side="right")
        return np.bincount(drawn, minlength=len(shares)).astype(np.float64)


def sample_range(loss: Loss, *, entropy: float, tolerance: float, reach: float, n_examples: int) -> float:
    """Return epsilon_s, rounded up."""
    moved = loss.label_reach * reach / entropy + 2.0 * tolerance
    change = loss.label_reach * reach + n_examples * loss.smoothness * reach**2 * moved
    return 2.0 / entropy * change * (1 + 1e-14)


def find_entropy(each: float, loss: Loss, *, tolerance: float, reach: float, n_examples: int) -> float:
    """Return the entropy weight at which epsilon_s is `each`: the root of each l^2 - 2 b l - 2 c = 0."""
    curved = n_examples * loss.smoothness * reach**2
    b = loss.label_reach * reach + 2.0 * tolerance * curved
    c = curved * loss.label_reach * reach
    return (b + math.sqrt(b * b + 2.0 * each * c)) / each


def find_simplex_minimum(corners: Any, targets: Floats, loss: Loss, entropy: float, tolerance: float) -> Floats:
    """Return theta within `tolerance` of the minimiser in the 1-norm, by mirror descent; else PrivacyError.

    The losses are n L_g R^2-smooth in the 1-norm, so with steps eta = l / (l + n L_g R^2) the distance to the minimiser
    shrinks by 1 - eta in each (Lu, Freund, Nesterov 2018).
    """
    largest = float(abs(corners).max())
    share = entropy / (entropy + corners.shape[0] * loss.smoothness * largest**2)
    logs = np.full(corners.shape[1], -np.log(corners.shape[1]))
    for _ in range(MOST_STEPS):
        slopes = sum_slopes(corners, targets, loss, np.exp(logs))
        residual = slopes + entropy * logs
        # Rounding of the sums: n units of n terms of size at most L R.
        hidden = 2.0**-53 * corners.shape[0] * float(np.abs(slopes).max() + corners.shape[0] * largest)
        if (residual.max() - residual.min() + 2 * hidden) / (2.0 * entropy) <= tolerance:
            return np.exp(logs)
        logs = np.log(to_shares((1.0 - share) * logs - share / entropy * slopes))
    raise PrivacyError(
        f"SimplexERM: the solver did not come within {tolerance:g} of the minimiser, on which the sensitivity rests."
        " Nothing was released. Raise `tolerance` or `entropy`."
    )


@lru_cache(maxsize=256)
def _find_rho(epsilon: float, delta: float) -> float:
    """Return `zcdp_rho`, which does not depend on data: many fits at one budget solve it once."""
    return zcdp_rho(epsilon=epsilon, delta=delta)


def sum_slopes(corners: Any, targets: Floats, loss: Loss, theta: Floats) -> Floats:
    """Return g(theta), the gradient of the sum of losses."""
    scores = np.asarray(corners @ theta)[:, None]
    sums: Floats = np.asarray(corners.T @ loss.slopes(scores, targets)[:, 0])
    return sums


def to_shares(logits: Floats) -> Floats:
    """Return the softmax of a vector, with no share 0."""
    shifted = np.exp(np.maximum(logits - logits.max(), -700.0))  # never 0: its logarithm is needed
    shares: Floats = shifted / shifted.sum()
    return shares


class CutRows(RowMap):
    """Rows whose entries are cut to [-clip, clip]."""

    def apply(self, X: Any) -> Any:
        """Return float64 rows with every entry cut, and the constant."""
        rows = X.astype(np.float64)
        if scipy.sparse.issparse(rows):
            rows.data = np.clip(rows.data, -self.clip, self.clip)
            return self._scale_sparse(rows, np.ones(rows.shape[0]))
        cut = np.clip(rows, -self.clip, self.clip)
        return np.column_stack([cut, np.full(len(cut), self.constant)]) if self.constant else cut


class SimplexERM(ConvexClassifier):
    """A sparse linear model for two classes, in a 1-norm ball: for many features of which few matter.

    Parameters
    ----------
    epsilon, delta : float
        The budget; delta = 0 is pure.
    loss : {"auto", "logistic", "huber"}
    clip : float
        The public bound on the absolute value of a feature; larger ones are cut. Required.
    radius : float
        B, the 1-norm of the weights.
    n_samples : int
        m, samples averaged: more are finer, and each costs.
    entropy : float, optional
        l, the weight of the entropy against the SUM of losses. By default the least that meets the budget.
    tolerance : float
        gamma, the certified distance from the minimiser.
    fit_intercept : bool
        Whether there is a constant feature, of size `clip`.
    classes, random_state, ledger, label_set
        As in LPRRSGD.

    Guarantee
    ---------
    (epsilon, delta), or pure epsilon, when one label is replaced; trusts a curator. No certificate, no release.
    """

    intercept_scaling = 1.0
    row_kind = CutRows

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        loss: str = "auto",
        clip: float | None = None,
        radius: float = 5.0,
        n_samples: int = 200,
        entropy: float | None = None,
        tolerance: float = 1e-6,
        fit_intercept: bool = True,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.clip = clip
        self.radius = radius
        self.n_samples = n_samples
        self.entropy = entropy
        self.tolerance = tolerance
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> SimplexERM:
        """Solve and sample inside the door, and keep the samples' mean."""
        inputs = self._read_inputs(X, y)
        labels = inputs.labels
        loss = self._choose_loss(labels)
        procedure = self._make_procedure(inputs, loss)
        key = as_key("SimplexERM", self.random_state)
        measured = curate(labels, procedure, rng=key, ledger=self.ledger)
        shares = measured.value.reshape(2, -1) / procedure.n_samples
        self.entropy_ = procedure.entropy
        weights = (self.radius * (shares[0] - shares[1]))[None, :]
        self._keep(weights, inputs, loss=loss, guarantee=measured.guarantee, seeded=measured.seeded)
        return self

    def _choose_loss(self, labels: SensitiveLabels) -> Loss:
        if labels.n_classes != 2:
            got, fix = Described(f"{labels.n_classes} classes"), "Use SufficientStatistics or OutputPerturbation."
            message = "have two classes (Only binary classification is supported)"
            raise invalid("SimplexERM", "y", message, got=got, fix=fix)
        loss = choose_loss("SimplexERM", self.loss, 2)
        if loss.name in ("softmax", "squared"):
            fix = 'Use "logistic" or "huber".'
            raise invalid("SimplexERM", "loss", "be a bounded loss of one score", got=self.loss, fix=fix)
        return loss

    def _make_procedure(self, inputs: Inputs, loss: Loss) -> SimplexSamples:
        """Return what will run inside the door; its entropy weight meets the budget, or it is refused."""
        owner, n = "SimplexERM", len(inputs.labels)
        epsilon, delta = check_epsilon(owner, self.epsilon), check_delta(owner, self.delta)
        if epsilon == math.inf:
            fix = "Without privacy, use a solver for the lasso."
            raise invalid(
                owner, "epsilon", "be finite: samples of the minimiser are the mechanism", got=epsilon, fix=fix
            )
        size = check_positive(owner, "radius", self.radius)
        count = check_integer(owner, "n_samples", self.n_samples, least=1)
        tolerance = check_positive(owner, "tolerance", self.tolerance)
        reach = size * inputs.row_map.clip * (1 + 1e-15)
        if self.entropy is None:
            # Pure sums or zCDP, whichever allows more; exact composition would allow half a percent more than zCDP.
            share = max(epsilon / count, math.sqrt(8.0 * _find_rho(epsilon, delta) / count)) * (1 - 1e-9)
            entropy = find_entropy(share, loss, tolerance=tolerance, reach=reach, n_examples=n)
        else:
            entropy = check_positive(owner, "entropy", self.entropy)
        each = sample_range(loss, entropy=entropy, tolerance=tolerance, reach=reach, n_examples=n)
        # A range that far above the budget is hopeless, and beyond what its Renyi curve can be computed for.
        hopeless = each > 2.0 * epsilon + 10.0
        if hopeless or not Guarantee.bounded_range(each).times(count).epsilon(delta) <= epsilon:
            fix = "Raise `entropy`, draw fewer samples, or leave entropy=None."
            raise invalid(owner, "entropy", "meet the budget", got=entropy, fix=fix, kind=PrivacyError)
        return SimplexSamples(
            corners=double_corners(inputs.rows, size),
            loss=loss,
            entropy=entropy,
            tolerance=tolerance,
            reach=reach,
            n_samples=count,
        )

    def _make_row_map(self) -> RowMap:
        if isinstance(self.clip, str):
            fix = "Pass the public bound on the absolute value of a feature."
            raise invalid("SimplexERM", "clip", "be a number", got=self.clip, fix=fix)
        given = make_row_map("SimplexERM", clip=self.clip, fit_intercept=self.fit_intercept, intercept_scaling=1.0)
        return CutRows(clip=given.clip, unit=False, constant=given.constant)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def double_corners(rows: Any, size: float) -> Any:
    """Return B (x, -x)."""
    if scipy.sparse.issparse(rows):
        return scipy.sparse.hstack([size * rows, -size * rows], format="csr")
    return np.concatenate([size * rows, -size * rows], axis=1)
