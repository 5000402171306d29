r"""Losses as functions of linear scores, linear in the label: that is what makes their gradients easy to unbias.

A label is a row q of weights over classes that sums to one: one-hot for a true label, signed for an unbiased estimate
of one. Every loss here is taken linear in q, sum_k q_k loss(score, k), so that E[q] = one-hot(y) makes the gradient
unbiased, whatever the loss.

>>> import numpy as np
>>> Logistic().slopes(np.array([[0.0]]), np.array([[0.0, 1.0]])).tolist()
[[-0.5]]

With scores z (n, C), each loss says

- `value`: the sum of losses; `slopes` (n, C): d loss / dz; `bend`: the change of the slopes along a change of z;
- `slope_bound(reach)`: the largest norm of a slope row while scores have norm at most `reach` (L);
- `label_reach`: the largest change of a slope row when the label is replaced (D_y), at any score;
- `smoothness`: the largest eigenvalue of the Hessian in z (L_g), and `bend_bound` bounds their sum (T).

| loss | scores | L | D_y | L_g |
|---|---|---|---|---|
| logistic, log(1 + e^z) - q_1 z | 1 | 1 | 1 | 1/4 |
| softmax, log sum e^z - q.z | K | sqrt 2 | sqrt 2 | 1/2 |
| huber: hinge with a parabola of half-width h at its corner | 1 | 1 | 2 | 1/(2h) |
| squared hinge, max(0, 1 - u)^2 / 2 with u = z or -z by label | 1 | reach + 1 | none: 1 + reach beyond 1 | 1 |
| squared, (z - s)^2 / 2 with s = -1, 1 (or one-hot, K scores) | 1 or K | reach + 1 | 2 (sqrt 2) | 1 |

D_y: logistic slopes are sigma(z) - q_1, so they differ by 1; softmax slopes p - q by |e_j - e_k| = sqrt 2; a hinge has
slope -1 for one label where it has 1 for the other; squared slopes z - s differ by 2.

*Who may take the squared hinge.* Its slopes are -max(0, 1 - z) for one label and max(0, 1 + z) for the other: they differ
by 1 + |z| wherever |z| > 1, so it has no D_y, and neither output perturbation nor sampling from a minimiser has a
sensitivity that does not grow with the scores. LPRRSGD and LPNormalSGD release labels first and stay in a ball, where its
slopes are bounded by 1 + reach: they take it, the others refuse.

References: Chaudhuri, Monteleoni, Sarwate, "Differentially Private Empirical Risk Minimization" (2011), for the
Huberised hinge.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logsumexp, softmax

from labeldp.arrays import Floats
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.validate import check_choice

NAMES = ("auto", "logistic", "softmax", "huber", "squared_hinge", "squared")
#: Learners whose privacy does not rest on the loss, and whose weights stay in a ball.
BALL_LEARNERS = ("LPRRSGD", "LPNormalSGD")
#: A score read as a probability gives no class less than this.
LEAST_SHARE = 1e-3


class Loss(abc.ABC):
    """A convex loss of linear scores (n, C), with targets (n, K) of which every row sums to one; see the module."""

    name: ClassVar[str]
    label_reach: float
    smoothness: float

    @abc.abstractmethod
    def n_scores(self, n_classes: int) -> int:
        """C."""

    @abc.abstractmethod
    def value(self, scores: Floats, targets: Floats) -> float:
        """Return the sum of losses."""

    @abc.abstractmethod
    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        """Return d loss / d scores, a row per example."""

    @abc.abstractmethod
    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        """Return the directional derivative of `slopes` along `change`."""

    @abc.abstractmethod
    def slope_bound(self, reach: float) -> float:
        """Return L, for scores of norm at most `reach`."""

    def bend_bound(self, n_classes: int) -> float:
        """Return T, a bound on the trace of the Hessian in z: noise of variance 1 in every score costs at most T/2."""
        return self.n_scores(n_classes) * self.smoothness

    def probabilities(self, scores: Floats) -> Floats:
        """Return class probabilities (n, K)."""
        second = expit(scores[:, 0])
        return np.stack([1.0 - second, second], axis=1)


class Logistic(Loss):
    """log(1 + e^z) - q_1 z, for two classes and one score."""

    name = "logistic"
    label_reach = 1.0
    smoothness = 0.25

    def n_scores(self, n_classes: int) -> int:
        return 1

    def value(self, scores: Floats, targets: Floats) -> float:
        z = scores[:, 0]
        return float(np.logaddexp(0.0, z).sum() - targets[:, 1] @ z)

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slopes: Floats = expit(scores) - targets[:, 1:]
        return slopes

    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        p = expit(scores)
        bent: Floats = p * (1.0 - p) * change
        return bent

    def slope_bound(self, reach: float) -> float:
        return 1.0


class Softmax(Loss):
    """log sum_k e^{z_k} - q.z, for K classes and K scores."""

    name = "softmax"
    label_reach = math.sqrt(2.0)
    smoothness = 0.5

    def n_scores(self, n_classes: int) -> int:
        return n_classes

    def value(self, scores: Floats, targets: Floats) -> float:
        return float(logsumexp(scores, axis=1).sum() - np.vdot(targets, scores))

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slopes: Floats = softmax(scores, axis=1) - targets
        return slopes

    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        p = softmax(scores, axis=1)
        bent: Floats = p * (change - (p * change).sum(axis=1, keepdims=True))
        return bent

    def slope_bound(self, reach: float) -> float:
        return math.sqrt(2.0)

    def bend_bound(self, n_classes: int) -> float:
        """1 - 1/K: the trace of diag(p) - p p' is 1 - |p|^2, and |p|^2 is least for even p."""
        return 1.0 - 1.0 / n_classes

    def probabilities(self, scores: Floats) -> Floats:
        shares: Floats = softmax(scores, axis=1)
        return shares


@dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """The hinge max(0, 1 - u), u = z or -z by label, with a parabola where |1 - u| <= width; two classes, one score."""

    name: ClassVar[str] = "huber"
    width: float = 0.5
    label_reach: float = 2.0

    @property
    def smoothness(self) -> float:  # type: ignore[override]  # fixed by the width
        """1 / (2 width)."""
        return 0.5 / self.width

    def n_scores(self, n_classes: int) -> int:
        return 1

    def value(self, scores: Floats, targets: Floats) -> float:
        z = scores[:, 0]
        return float(targets[:, 1] @ self._hinge(z) + targets[:, 0] @ self._hinge(-z))

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slopes: Floats = targets[:, :1] * self._steep(-scores) - targets[:, 1:] * self._steep(scores)
        return slopes

    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        inside = [np.abs(1.0 - u) <= self.width for u in (-scores, scores)]
        weight = targets[:, :1] * inside[0] + targets[:, 1:] * inside[1]
        bent: Floats = weight * change / (2.0 * self.width)
        return bent

    def slope_bound(self, reach: float) -> float:
        return 1.0

    def _steep(self, u: Floats) -> Floats:
        """Minus the hinge's derivative: from 1 on the left to 0 on the right."""
        steep: Floats = np.clip((1.0 + self.width - u) / (2.0 * self.width), 0.0, 1.0)
        return steep

    def _hinge(self, u: Floats) -> Floats:
        parabola = np.maximum(1.0 + self.width - u, 0.0) ** 2 / (4.0 * self.width)
        hinge: Floats = np.where(u < 1.0 - self.width, 1.0 - u, parabola)
        return hinge


class SquaredHinge(Loss):
    """max(0, 1 - u)^2 / 2, u = z or -z by label, for two classes and one score; for learners in a ball only.

    Its expectation at Pr[second class] = a has its minimum where a (1 - z) = (1 - a)(1 + z), at z = 2 a - 1: scores are
    read as probabilities (1 + z)/2.
    """

    name = "squared_hinge"
    label_reach = math.inf
    smoothness = 1.0

    def n_scores(self, n_classes: int) -> int:
        return 1

    def value(self, scores: Floats, targets: Floats) -> float:
        z = scores[:, 0]
        left, right = np.maximum(0.0, 1.0 + z), np.maximum(0.0, 1.0 - z)
        return float(0.5 * (targets[:, 0] @ left**2 + targets[:, 1] @ right**2))

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slopes: Floats = targets[:, :1] * np.maximum(0.0, 1.0 + scores) - targets[:, 1:] * np.maximum(0.0, 1.0 - scores)
        return slopes

    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        bent: Floats = (targets[:, :1] * (scores > -1.0) + targets[:, 1:] * (scores < 1.0)) * change
        return bent

    def slope_bound(self, reach: float) -> float:
        return reach + 1.0

    def probabilities(self, scores: Floats) -> Floats:
        return read_signed(scores)


@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    """Half the squared distance of the scores from -1, 1 (two classes) or from one-hot rows (more)."""

    name: ClassVar[str] = "squared"
    two: bool
    smoothness: float = 1.0

    @property
    def label_reach(self) -> float:  # type: ignore[override]  # depends on the coding of labels
        """2 between -1 and 1; sqrt 2 between one-hot rows."""
        return 2.0 if self.two else math.sqrt(2.0)

    def n_scores(self, n_classes: int) -> int:
        return 1 if self.two else n_classes

    def value(self, scores: Floats, targets: Floats) -> float:
        return float(0.5 * (np.vdot(scores, scores) - 2.0 * np.vdot(scores, self._goals(targets)) + len(scores)))

    def slopes(self, scores: Floats, targets: Floats) -> Floats:
        slopes: Floats = scores - self._goals(targets)
        return slopes

    def bend(self, scores: Floats, targets: Floats, change: Floats) -> Floats:
        return change

    def slope_bound(self, reach: float) -> float:
        return reach + 1.0

    def probabilities(self, scores: Floats) -> Floats:
        """Return scores read as probabilities: cut at 0 and divided by their sum."""
        if self.two:
            return read_signed(scores)
        cut = np.maximum(scores, LEAST_SHARE)
        shares: Floats = cut / cut.sum(axis=1, keepdims=True)
        return shares

    def _goals(self, targets: Floats) -> Floats:
        return targets[:, 1:] - targets[:, :1] if self.two else targets


def read_signed(scores: Floats) -> Floats:
    """Return (1 - z)/2 and (1 + z)/2, cut at `LEAST_SHARE` and divided by their sum."""
    cut = np.maximum(np.concatenate([1.0 - scores, 1.0 + scores], axis=1) / 2.0, LEAST_SHARE)
    shares: Floats = cut / cut.sum(axis=1, keepdims=True)
    return shares


def choose_loss(owner: str, name: Any, n_classes: int) -> Loss:
    """Return the loss of this name for this many classes, or say why `owner` cannot have it.

    "auto" is logistic for two classes and softmax for more. The squared hinge is for learners in a ball only, see above.
    """
    check_choice(owner, "loss", name, NAMES)
    if name == "auto":
        name = "logistic" if n_classes == 2 else "softmax"
    if name in ("logistic", "huber", "squared_hinge") and n_classes != 2:
        got, fix = Described(f"{name!r} for {n_classes} classes"), 'Use "softmax" or "squared" for more than two.'
        raise invalid(owner, "loss", "fit the number of classes", got=got, fix=fix)
    if name == "squared_hinge" and owner not in BALL_LEARNERS:
        fix = 'Use "huber", whose slopes are bounded, or LPRRSGD or LPNormalSGD.'
        must = "change its slope by a bounded amount when a label is replaced"
        raise invalid(owner, "loss", must, got=name, fix=fix, kind=PrivacyError)
    return find_loss(name, n_classes)


def find_loss(name: str, n_classes: int) -> Loss:
    """Return the loss of this name (not "auto"): what `Loss.name` of a fitted learner stands for."""
    kinds: dict[str, Callable[[], Loss]] = {
        "logistic": Logistic,
        "softmax": Softmax,
        "huber": Huber,
        "squared_hinge": SquaredHinge,
        "squared": partial(Squared, two=n_classes == 2),
    }
    return kinds[name]()


def one_hot(codes: npt.NDArray[Any], n_classes: int) -> Floats:
    """Return rows of the identity: what a true label is among targets."""
    rows = np.zeros((len(codes), n_classes))
    rows[np.arange(len(codes)), codes] = 1.0
    return rows
