r"""Group privacy: what a loss for one change is for several changes at once, as all labels of one person are.

>>> from labeldp.loss import Gaussian, Pure
>>> group_loss(Pure(worst=0.5), 3), group_loss(Gaussian(mu=0.1), 4)
(Pure(worst=1.5), Gaussian(mu=0.4))

Two data sets that differ in m labels are joined by a chain P_0, P_1, .., P_m in which neighbours differ in one. What is known
of each step gives, for each kind of loss:

| one change | m changes | because |
|---|---|---|
| pure epsilon | m epsilon | log-ratios add |
| bounded range w | bounded range m w | log-ratios within [t_i - w, t_i] add up to some within [sum t_i - m w, sum t_i] |
| Gaussian mu | m mu | trade-off functions compose along the chain, and those of Gaussians to G_(m mu) (Dong, Roth, Su 2022) |
| discrete Gaussian, square n | square m^2 n | m moves of length sqrt(n) are at most one of m sqrt(n) |
| zCDP rho | m^2 rho | the next line, solved for a straight line (Bun, Steinke 2016, Proposition 1.9) |
| Renyi curve | by doubling: a + b changes from a and from b | the weak triangle inequality, below |
| epsilon, delta | m epsilon, delta (e^(m epsilon) - 1)/(e^epsilon - 1) | Pr_0 <= e^eps Pr_1 + delta, m times: delta (1 + e^eps + ..) |
| in sequence | the parts in sequence, each for m changes | each part meets the same m changes |
| a lump (sums of epsilon, of rho) | m epsilon, m^2 rho | both bounds above |
| side by side, profiles, losses with a slack | the line of (epsilon, delta) at every epsilon | m labels may lie in several of the parts |

*Renyi curves.* For p > 1 and 1/p + 1/q = 1 (Mironov 2017, Proposition 11)

    D_a(P||Q) <= (a - 1/p)/(a - 1) D_(p a)(P||R) + D_(q (a - 1/p))(R||Q).

Every p gives a bound; those around p = 1 + (n_2/n_1)(a - 1)/a are tried, n_1 and n_2 being the changes from P to R and from R
to Q: for D_a = a rho n^2 that p is the best, and gives a rho (n_1 + n_2)^2. Orders that reach beyond the last known one give
nothing, so that a curve known up to order A says something of m changes up to about A / m.

*Profiles.* delta_m(E) = delta(E/m) (e^E - 1)/(e^(E/m) - 1) bounds the profile of m changes at every E. The bound at some E, and
the lower convex hull of the points (a profile is convex in e^E), is a `Profile` again. Its knots are those of the loss, m times as
far out, and points between.

References: Dwork, Roth 2014 (Theorem 2.2); Vadhan 2017 (Lemma 2.2, for delta); Bun, Steinke 2016; Mironov 2017; Dong, Roth, Su 2022.

Design notes. m is an exact integer and every product is taken in rationals and rounded up. A group of one is the loss itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from labeldp.arrays import Float64s
from labeldp.loss.base import BoundedRange, Loss, Pure
from labeldp.loss.compose import NOTHING, Lump, Then, sequence
from labeldp.loss.curves import LARGEST, RDP, ZCDP, Gaussian, Profile, hull_of_knots
from labeldp.loss.discrete import DiscreteGaussian
from labeldp.loss.rounding import UNIT, fraction_up
from labeldp.validate import check_integer

#: Values of p tried around the best one for a straight line, and the orders at which a curve of several changes is kept.
TRIED = np.geomspace(1.0 / 64.0, 64.0, 97)
KEPT_ORDERS = 96
#: Points of a profile of several changes, beside its own knots; and the delta below which it is followed no further.
POINTS, LAST_DELTA = 256, 1e-30


def group_loss(loss: Loss, size: int) -> Loss:
    """Return a loss that bounds `size` changes at once, from what bounds one; see the table of the module.

    >>> from labeldp.loss import ZCDP
    >>> group_loss(ZCDP(rho=0.5), 2)
    ZCDP(rho=2.0, slack=0.0)
    """
    count = check_integer("group_loss", "size", size, least=1)
    if count == 1:
        return loss
    if isinstance(loss, Then):
        return sequence((group_loss(part, count), times) for part, times in loss.items)
    if isinstance(loss, Pure):
        return Pure(worst=_times(loss.worst, count))
    if isinstance(loss, BoundedRange):
        return BoundedRange(width=_times(loss.width, count))
    if isinstance(loss, Gaussian):
        return Gaussian(mu=_times(loss.mu, count))
    if isinstance(loss, DiscreteGaussian):
        return DiscreteGaussian(variance=loss.variance, square=loss.square * count**2)
    if isinstance(loss, Lump):
        return Lump(worst=loss.worst * count, rho=loss.rho * count**2)
    if isinstance(loss, ZCDP) and loss.slack == 0:
        return ZCDP(rho=_times(loss.rho, count**2))
    if isinstance(loss, RDP) and loss.slack == 0:
        return _group_curve(loss, count)
    return _group_profile(loss, count)


def _times(value: float, count: int) -> float:
    """Return value * count, rounded up."""
    return math.inf if math.isinf(value) else fraction_up(Fraction(value) * count)


def _group_curve(loss: RDP, count: int) -> Loss:
    """Return the Renyi curve of `count` changes, put together from powers of two."""
    known = [(order, value) for order, value in zip(loss.orders, loss.values, strict=True) if value < math.inf]
    if not known or known[-1][0] / count <= 1.0 + 1e-3:
        return NOTHING  # no order above 1 is left
    last = known[-1][0]
    whole: tuple[int, Callable[[Float64s], Float64s]] | None = None
    power: tuple[int, Callable[[Float64s], Float64s]] = (1, loss.rdp)
    rest = count
    while True:
        if rest & 1:
            whole = power if whole is None else _join_curves(whole, power, last)
        rest >>= 1
        if not rest:
            break
        power = _join_curves(power, power, last)
    assert whole is not None  # count >= 1 has a highest bit
    orders = _orders(last / count)
    values = whole[1](orders)
    finite = np.isfinite(values)
    if not finite.any():
        return NOTHING
    return RDP(orders=tuple(orders[finite].tolist()), values=tuple(values[finite].tolist()))


def _orders(last: float) -> Float64s:
    """Return orders above 1 up to about `last`."""
    return 1.0 + np.geomspace(1e-3, max(last - 1.0, 2e-3), KEPT_ORDERS)


def _join_curves(
    one: tuple[int, Callable[[Float64s], Float64s]], other: tuple[int, Callable[[Float64s], Float64s]], last: float
) -> tuple[int, Callable[[Float64s], Float64s]]:
    """Return the curve of both groups' changes together, by the weak triangle inequality at the best p tried."""
    (first, left), (second, right) = one, other
    orders = _orders(last / (first + second))
    a = orders[:, None]
    p = 1.0 + (second / first) * (a - 1.0) / a * TRIED
    # The orders that are asked for, rounded up: a Renyi divergence does not fall with its order.
    up = 1.0 + 16 * UNIT
    near = left((p * a * up).ravel()).reshape(p.shape)
    far = right((((p * a - 1.0) / (p - 1.0)) * up).ravel()).reshape(p.shape)
    bound = (a - 1.0 / p) / (a - 1.0) * up * near + far
    values = bound.min(axis=1) * (1.0 + 16 * UNIT)
    finite = np.isfinite(values)
    if not finite.any():
        return first + second, lambda asked: np.full_like(asked, np.inf)
    curve = RDP(orders=tuple(orders[finite].tolist()), values=tuple(values[finite].tolist()))
    return first + second, curve.rdp


def _group_profile(loss: Loss, count: int) -> Loss:
    """Return the profile of `count` changes by the bound for (epsilon, delta)."""
    worst = loss.epsilon(0.0)
    if count * min(worst, loss.epsilon(0.5)) >= LARGEST:
        return Pure(worst=_times(worst, count))  # beyond what a profile holds, or nothing at all
    knots = getattr(loss, "epsilons", ())
    far = worst if math.isfinite(worst) else loss.epsilon(max(loss.slack * (1 + 1e-9), LAST_DELTA))
    far = max(far, *knots) if knots else far
    end = min(LARGEST, _times(far, count) if math.isfinite(far) else LARGEST)
    own = [value for value in knots if value * count <= end]
    points = np.unique(np.concatenate([np.linspace(0.0, end, POINTS), [_times(value, count) for value in own], [end]]))
    points = points[points <= LARGEST]
    deltas = np.array([_group_delta(loss, float(point), count) for point in points])
    deltas = np.minimum.accumulate(deltas)
    if deltas[-1] >= 1.0:
        return Pure(worst=_times(worst, count))
    # What is true at the knots is true on their hull; rounded up, and not rising.
    x, heights = hull_of_knots(points, deltas)
    kept = points[np.isin(np.exp(points), x) | (points == 0.0)]
    hull = np.minimum(1.0, np.interp(np.exp(kept), x, heights) * (1.0 + 64 * UNIT))
    return Profile(epsilons=tuple(kept.tolist()), deltas=tuple(np.minimum.accumulate(hull).tolist()))


def _group_delta(loss: Loss, epsilon: float, count: int) -> float:
    """Return the bound on delta of `count` changes at epsilon, rounded up, at most 1."""
    # The largest float whose `count`-fold is at most epsilon: a smaller epsilon has no smaller delta.
    each = epsilon / count
    if Fraction(each) * count > Fraction(epsilon):
        each = math.nextafter(each, 0.0)
    one = loss.delta(each)
    if one == 0.0:
        return 0.0
    factor = count if each == 0 else math.expm1(epsilon) / math.expm1(each)
    return min(1.0, one * factor * (1.0 + 32 * UNIT))
