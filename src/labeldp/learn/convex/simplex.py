r"""`SimplexERM`: an entropy-regularised minimiser on the simplex, of which only samples are released.

Weights are w = B (theta_+ - theta_-) with (theta_+, theta_-) on the simplex of 2 d corners, so |w|_1 <= B. With
a_i = B (x_i, -x_i), |a_i|_inf <= R = B clip, the minimiser of sum_i loss(<a_i, theta>; y_i) + l sum_j theta_j log theta_j
satisfies theta = softmax(-g(theta)/l), g the gradient of the losses. Its m samples, averaged, are the model.

*Privacy.* Entropy is 1-strongly convex in the 1-norm, so replacing a label moves the minimiser by at most D_y R / l. The
solver's theta is within gamma of it, certified (below), and samples are drawn from softmax(-g(theta)/l). Between
neighbours g changes, in each coordinate, by at most D_y R (the label) + n L_g R^2 (D_y R / l + 2 gamma) (theta's move), and
each g is computed with an error of at most E (`slope_error`, from public numbers). The logits -g/l are rounded to multiples
of h = 2^-30. Logits then differ by all that over l, and h; the log-ratio of two softmaxes spans at most twice the largest
difference:

    epsilon_s = (2 / l) (D_y R + n L_g R^2 (D_y R / l + 2 gamma) + 2 E) + 2 h,

a bounded range, so that m samples are m epsilon_s^2 / 8 zCDP (Cesar & Rogers 2021) and m epsilon_s pure. For a whole record
(`unit="record"`) the gradient of one example changes by at most 2 L R, label and row together: 2 L stands for D_y.

*Sampling* is exact: with integers t_j = logit_j / h, a corner is proposed uniformly and kept with probability
exp(-(max t - t_j) h), by coins that compare integers (`labeldp.samplers.bernoulli_exp`). What is kept has law
exp(h t_j) / sum, with no rounding anywhere. A cumulative sum of floats would give a corner of small probability none at all,
or a neighbour's: its log-ratio has no bound.

*Certificate.* With r = g(theta) + l log theta, strong convexity and optimality give
l |theta - theta*|_1^2 <= <r, theta - theta*> <= (max r - min r)/2 |theta - theta*|_1, hence
|theta - theta*|_1 <= (max r - min r) / (2 l).

*It is always met.* With k = n L_g R^2 / l, mirror descent with steps eta = 1 / (1 + k) shrinks the divergence from the
minimiser by 1 - eta in each (Lu, Freund, Nesterov 2018); an error of e in the gradient leaves |theta - theta*|_1 <= 2 e / l,
and log theta, which follows g/l by the same steps, within (2/l)(k 2 e + e). Then (max r - min r) / (2 l) is at most
(2 + 4 k) e / l. A tolerance below twice that is refused before labels are read: a refusal later would tell of them.

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
from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.convex.base import ConvexClassifier, Inputs, RowMap, make_row_map, read_finite
from labeldp.learn.convex.losses import Loss, choose_loss, one_hot
from labeldp.learn.convex.output import BLOCK, UNITS
from labeldp.random import BitStream, as_key
from labeldp.release import SensitiveLabels
from labeldp.release.queries import round_to_integers
from labeldp.release.vectors import Procedure, curate
from labeldp.samplers import bernoulli_exp, uniform_below
from labeldp.validate import check_choice, check_delta, check_epsilon, check_integer, check_positive

#: Half a unit in the last place of 1.
UNIT = 2.0**-53
#: Logits are multiples of 2^-30: fine beside any epsilon_s, and coarse enough for the sampler's fast integers.
LOGIT_BITS = 30
#: Proposals at a time.
PROPOSALS = 1 << 13


@dataclass(frozen=True, kw_only=True, eq=False)
class SimplexSamples(Procedure):
    """How often each corner was drawn in `n_samples` draws from the certified minimiser."""

    corners: Any
    loss: Loss
    entropy: float
    tolerance: float
    reach: float
    n_samples: int
    unit: Unit = Unit.LABEL
    exact_noise = True

    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """That of the module: n_samples draws of bounded range epsilon_s."""
        each = sample_range(
            self.loss,
            entropy=self.entropy,
            tolerance=self.tolerance,
            reach=self.reach,
            n_examples=n_examples,
            n_corners=int(self.corners.shape[1]),
            unit=self.unit,
        )
        return Guarantee.bounded_range(each, unit=self.unit).times(self.n_samples)

    def run(self, codes: npt.NDArray[Any], *, n_classes: int, bits: BitStream) -> npt.NDArray[np.float64]:
        """Solve to the certificate, round the logits, draw."""
        targets = one_hot(codes, n_classes)
        theta = find_simplex_minimum(self.corners, targets, self.loss, self.entropy, self.tolerance)
        logits = -sum_slopes(self.corners, targets, self.loss, theta) / self.entropy
        whole = round_to_integers("SimplexERM", "logits", logits * 2.0**LOGIT_BITS)
        drawn = draw_corners(bits, whole.max() - whole, self.n_samples)
        return np.bincount(drawn, minlength=whole.size).astype(np.float64)


def draw_corners(bits: BitStream, behind: Int64s, count: int) -> Int64s:
    """Return `count` independent corners j with probability proportional to exp(-behind_j 2^-30), exactly.

    `behind` are integers >= 0 of which one is 0, so that a proposal is kept with probability 1 / (number of corners) or
    more. How many proposals it takes depends on the law; time is not covered.
    """
    drawn, done = np.empty(count, np.int64), 0
    bounds = np.full(PROPOSALS, behind.size)
    while done < count:
        proposed = uniform_below(bits, bounds)
        kept = proposed[bernoulli_exp(bits, numerator=behind[proposed], denominator=1 << LOGIT_BITS)][: count - done]
        drawn[done : done + kept.size] = kept
        done += kept.size
    return drawn


def slope_error(loss: Loss, *, reach: float, n_examples: int, n_corners: int) -> float:
    """Return E, a bound on the error of a computed coordinate of g(theta)/l, times l; twice what is counted.

    In units of 2^-53: a sum over blocks of b rows errs by (b + n/b) n L R; scores, of N terms, by N R and slopes by L_g
    times that; theta, whose sum is 1 up to 4 N units, by n L_g R^2 4 N; functions by 16 a slope; the quotient by n L R.
    """
    steep = n_examples * loss.slope_bound(math.inf) * reach
    curved = n_examples * loss.smoothness * reach**2
    units = (min(n_examples, BLOCK) + n_examples / BLOCK + 32.0) * steep + 5.0 * (n_corners + 8.0) * curved
    return 2.0 * UNIT * units


def slope_change(loss: Loss, unit: Unit) -> float:
    """Return the largest change of one example's slope: D_y for a label, 2 L for a record."""
    return loss.label_reach if unit is Unit.LABEL else 2.0 * loss.slope_bound(math.inf)


def sample_range(
    loss: Loss,
    *,
    entropy: float,
    tolerance: float,
    reach: float,
    n_examples: int,
    n_corners: int,
    unit: Unit = Unit.LABEL,
) -> float:
    """Return epsilon_s, rounded up."""
    steep = slope_change(loss, unit) * reach
    moved = steep / entropy + 2.0 * tolerance
    change = steep + n_examples * loss.smoothness * reach**2 * moved
    change += 2.0 * slope_error(loss, reach=reach, n_examples=n_examples, n_corners=n_corners)
    return (2.0 / entropy * change + 2.0 * 2.0**-LOGIT_BITS) * (1 + 1e-14)


def find_entropy(
    each: float,
    loss: Loss,
    *,
    tolerance: float,
    reach: float,
    n_examples: int,
    n_corners: int,
    unit: Unit = Unit.LABEL,
) -> float:
    """Return the entropy weight at which epsilon_s is `each`: the root of (each - 2 h) l^2 - 2 b l - 2 c = 0.

    Infinite where 2 h, the rounding of the logits, is more than `each`.
    """
    share = each - 2.0 * 2.0**-LOGIT_BITS
    if share <= 0:
        return math.inf
    curved = n_examples * loss.smoothness * reach**2
    error = slope_error(loss, reach=reach, n_examples=n_examples, n_corners=n_corners)
    steep = slope_change(loss, unit) * reach
    b = steep + 2.0 * tolerance * curved + 2.0 * error
    c = curved * steep
    return (b + math.sqrt(b * b + 2.0 * share * c)) / share


def find_floor(loss: Loss, *, entropy: float, reach: float, n_examples: int, n_corners: int) -> float:
    """Return the least tolerance that the solver reaches whatever the labels, with a factor of 2 to spare.

    e of the module is E, and the rounding of log theta in a step, which is as much as (l + n L_g R^2) times it in the
    gradient; logs are at most 2 n L R / l + log N.
    """
    curved = n_examples * loss.smoothness * reach**2
    longest = 2.0 * n_examples * loss.slope_bound(math.inf) * reach / entropy + math.log(n_corners) + 8.0
    error = slope_error(loss, reach=reach, n_examples=n_examples, n_corners=n_corners)
    error += (entropy + curved) * longest * 8.0 * UNIT
    return 2.0 * (2.0 + 4.0 * curved / entropy) * error / entropy + 8.0 * (n_corners + 8.0) * UNIT


def find_simplex_minimum(corners: Any, targets: Floats, loss: Loss, entropy: float, tolerance: float) -> Floats:
    """Return theta within `tolerance`, which is not below `find_floor`, of the minimiser in the 1-norm.

    By mirror descent, which arrives whatever the labels: see the module. theta is kept by its logarithms.
    """
    n, width = corners.shape
    largest = float(abs(corners).max())
    share = entropy / (entropy + n * loss.smoothness * largest**2)
    error = slope_error(loss, reach=largest, n_examples=n, n_corners=width)
    logs = np.full(width, -math.log(width))
    while True:
        theta: Floats = np.exp(logs)
        slopes = sum_slopes(corners, targets, loss, theta)
        residual = slopes + entropy * logs
        hidden = error + entropy * 4.0 * UNIT * (float(np.abs(logs).max()) + 8.0)
        if (residual.max() - residual.min() + 2 * hidden) / (2.0 * entropy) + 4.0 * (width + 8) * UNIT <= tolerance:
            return theta
        logs = log_shares((1.0 - share) * logs - share / entropy * slopes)


@lru_cache(maxsize=256)
def _find_rho(epsilon: float, delta: float) -> float:
    """Return `zcdp_rho`, which does not depend on data: many fits at one budget solve it once."""
    return zcdp_rho(epsilon=epsilon, delta=delta)


def sum_slopes(corners: Any, targets: Floats, loss: Loss, theta: Floats) -> Floats:
    """Return g(theta), the gradient of the sum of losses, summed block by block."""
    slopes = loss.slopes(np.asarray(corners @ theta)[:, None], targets)[:, 0]
    sums: Floats = np.zeros(corners.shape[1])
    for low in range(0, corners.shape[0], BLOCK):
        sums += np.asarray(corners[low : low + BLOCK].T @ slopes[low : low + BLOCK])
    return sums


def log_shares(logits: Floats) -> Floats:
    """Return the logarithm of the softmax of a vector."""
    shifted = logits - logits.max()
    logs: Floats = shifted - math.log(float(np.exp(shifted).sum()))
    return logs


class CutRows(RowMap):
    """Rows whose entries are cut to [-clip, clip]."""

    def apply(self, X: Any) -> Any:
        """Return float64 rows with every entry cut, and the constant."""
        rows = read_finite(X)
        if scipy.sparse.issparse(rows):
            rows.data = np.clip(rows.data, -self.clip, self.clip)
            return self._scale_sparse(rows, ())
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
    unit : {"label", "record"}
        What one change of the data is: one label replaced, or one whole record.
    fit_intercept : bool
        Whether there is a constant feature, of size `clip`.
    classes, random_state, ledger, label_set
        As in LPRRSGD.

    Notes
    -----
    *Guarantee.*
    (epsilon, delta), or pure epsilon, in the stated unit; trusts a curator. Samples are drawn exactly. A tolerance
    that the solver might not reach is refused before labels are read (PrivacyError).
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
        unit: str = "label",
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
        self.unit = unit
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
        key = as_key("SimplexERM", self.random_state, name="random_state")
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
        unit = UNITS[check_choice(owner, "unit", self.unit, tuple(UNITS))]
        size = check_positive(owner, "radius", self.radius)
        count = check_integer(owner, "n_samples", self.n_samples, least=1)
        tolerance = check_positive(owner, "tolerance", self.tolerance)
        reach = size * inputs.row_map.clip * (1 + 1e-15)
        corners = double_corners(inputs.rows, size)
        sizes: dict[str, Any] = {"reach": reach, "n_examples": n, "n_corners": int(corners.shape[1])}
        if self.entropy is None:
            # Pure sums or zCDP, whichever allows more; exact composition would allow half a percent more than zCDP.
            share = max(epsilon / count, math.sqrt(8.0 * _find_rho(epsilon, delta) / count)) * (1 - 1e-9)
            entropy = find_entropy(share, loss, tolerance=tolerance, unit=unit, **sizes)
        else:
            entropy = check_positive(owner, "entropy", self.entropy)
        each = sample_range(loss, entropy=entropy, tolerance=tolerance, unit=unit, **sizes)
        # A range that far above the budget is hopeless, and beyond what its Renyi curve can be computed for.
        hopeless = not math.isfinite(entropy) or each > 2.0 * epsilon + 10.0
        if hopeless or not Guarantee.bounded_range(each).times(count).epsilon(delta) <= epsilon:
            fix = "Raise `entropy`, draw fewer samples, or leave entropy=None."
            raise invalid(owner, "entropy", "meet the budget", got=entropy, fix=fix, kind=PrivacyError)
        least = find_floor(loss, entropy=entropy, **sizes)
        if not tolerance >= least:
            raise PrivacyError(
                f"SimplexERM: a distance of {tolerance:g} from the minimiser, on which the sensitivity rests, may be out of"
                f" reach for floating point, and a refusal later would tell of labels. Nothing was released. Raise"
                f" `tolerance` to {least:.2g} or more, or `entropy`."
            )
        return SimplexSamples(
            corners=corners,
            loss=loss,
            entropy=entropy,
            tolerance=tolerance,
            reach=reach,
            n_samples=count,
            unit=unit,
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
