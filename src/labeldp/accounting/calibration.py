r"""Noise from a budget: the least that meets it, for the noises of this house and for anything that states a guarantee.

>>> round(analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 4)
3.7306
>>> def sixty_responses(noise: float) -> Guarantee:
...     return Guarantee.pure(1.0 / noise).times(60)
>>> noise = calibrate(sixty_responses, epsilon=2.0, delta=1e-6, low=1e-3, high=1e6)
>>> sixty_responses(noise).epsilon(1e-6) <= 2.0
True

| call | answers | exact for |
|---|---|---|
| `calibrate` | the least parameter of any family of guarantees | what the family states |
| `analytic_gaussian_sigma` | sigma of Gaussian noise | continuous noise (Balle & Wang) |
| `discrete_gaussian_sigma` | sigma of discrete Gaussian noise | integers, by their exact sums (`labeldp.loss.discrete`) |
| `laplace_scale` | scale of (discrete) Laplace noise | pure epsilon |
| `zcdp_rho` | rho that implies (epsilon, delta) | the conversion |

Sensitivity is named in every call; there is no "noise multiplier". The textbook sigma = sensitivity sqrt(2
log(1.25/delta))/epsilon is larger than the analytic one, and wrong for epsilon > 1.

**How small a cluster can be** (`label_association`): the precision that no private mechanism exceeds. A cluster holds s
examples with s different labels out of K. From a private release one wants to name the labels that occur in each
cluster. Naming more labels buys recall and costs precision; without privacy both can be 1.

>>> bound = label_association(epsilon=1.0, cluster_size=10, n_classes=1000)
>>> round(bound.best_precision, 3), round(bound.largest_product, 3), bound.too_small
(0.027, 0.027, True)

The proof of Esfandiari et al.: let labels be assigned at random, and redraw one of them, y', outside its cluster's set.
A mechanism that names a true label with probability at least `recall` also names y' without its being there with
probability at least e^-epsilon recall, and there are K - s such labels in each cluster, so that

    precision * recall <= s e^epsilon / (K - s)                                       (largest_product).

Keep the true positives in the count of named labels and compare averages over the random assignment, under which both
data sets have the same law: per cluster s recall are right and at least (K - s) e^-epsilon recall are wrong, so

    precision <= s e^epsilon / (s e^epsilon + K - s),                                  (best_precision)

whatever the recall. At epsilon = 0 it is the s/K of blind naming; for s = 1 randomized response attains it.

References: Balle & Wang 2018 (Theorem 8 and Algorithm 1); Canonne, Kamath & Steinke 2020 (discrete Gaussian; the
conversion of zCDP); Dwork et al. 2006 (Laplace); Esfandiari, Mirrokni, Syed, Vassilvitskii 2022 (Definition 2, Theorem
5 and its proof).

Design notes. Every answer was evaluated and met the budget, so it is right even where the guarantee is not monotone in
the parameter; monotony only makes it the least one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.loss.rounding import UNIT, quotient_up
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

#: The bracket ends this narrow, relative to the parameter: noise a trillionth above the least is no loss.
WIDTH = 1e-12
#: For discrete noise, whose sums take milliseconds.
NARROW = 1e-8
#: Below this rho there is no signal left in any statistic of a data set that fits on earth.
LEAST_RHO = 1e-30


def calibrate(
    make_guarantee: Callable[[float], Guarantee], *, epsilon: float, delta: float, low: float, high: float
) -> float:
    """Return the least parameter in [low, high] whose guarantee is (epsilon, delta)-DP: more parameter, more noise.

    Parameters
    ----------
    make_guarantee : callable
        From a parameter (a scale, a sigma, 1/rho) to the `Guarantee` that it gives.
    epsilon, delta : float
        The budget.
    low, high : float
        Where to look, both > 0; `high` must meet the budget.

    Returns
    -------
    float
        *Guarantee*: both .epsilon(delta) <= epsilon and .delta(epsilon) <= delta hold for it, evaluated. It is within a
        trillionth of the least, by bisection on a logarithmic scale.

    Raises
    ------
    PrivacyError
        If `high` does not meet the budget.
    """
    owner = "calibrate"
    target, slack = check_epsilon(owner, epsilon), check_delta(owner, delta)
    low, high = check_positive(owner, "low", low), check_positive(owner, "high", high)
    if low > high:
        raise invalid(owner, "low", f"be <= high ({high!r})", got=low)

    def has_delta(parameter: float) -> bool:
        return make_guarantee(parameter).delta(target) <= slack

    def meets(parameter: float) -> bool:
        guarantee = make_guarantee(parameter)
        return guarantee.delta(target) <= slack and guarantee.epsilon(slack) <= target

    if not meets(high):
        fix = f"Raise `high`, or allow more than epsilon = {target!r}, delta = {slack!r}."
        raise invalid(owner, "high", "meet the budget", got=high, fix=fix, kind=PrivacyError)
    # Epsilon is itself found by a search over delta, so it is asked for last: it can only ask for more noise.
    least = low if has_delta(low) else _narrow_bracket(has_delta, low, high)
    return least if meets(least) else _narrow_bracket(meets, least, high)


def _narrow_bracket(meets: Callable[[float], bool], low: float, high: float, *, width: float = WIDTH) -> float:
    """Return the upper end of a bracket whose upper end meets the budget and whose lower end does not."""
    while high / low > 1 + width:
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def gaussian_delta(epsilon: float, *, sigma: float, sensitivity: float) -> float:
    """Return the exact delta at `epsilon` of N(0, sigma^2) noise on a statistic of this L2 sensitivity, rounded up."""
    return Guarantee.gaussian(sigma=sigma, sensitivity=sensitivity).delta(epsilon)


def analytic_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma whose Gaussian noise is (epsilon, delta)-DP, from above.

    *Guarantee*: gaussian_delta(epsilon, sigma=returned, sensitivity=sensitivity) <= delta, by evaluation.

    *Edge cases*: epsilon = inf or sensitivity = 0 needs no noise (0.0); delta = 0 is out of reach of Gaussian noise;
    epsilon = 0 is not (delta is then a total variation distance).
    """
    owner = "analytic_gaussian_sigma"
    target, slack = check_epsilon(owner, epsilon), check_delta(owner, delta)
    if slack == 0:
        fix = "Gaussian noise is never pure: use discrete Laplace noise."
        raise invalid(owner, "delta", "be in (0, 1)", got=delta, fix=fix)
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    if reach == 0 or target == float("inf"):
        return 0.0
    check_positive(owner, "sensitivity", sensitivity)

    def noise(multiple: float) -> Guarantee:
        return Guarantee.gaussian(sigma=multiple * reach, sensitivity=reach)

    # delta >= TV at epsilon = 0 is met by a multiple of 1/delta, and no budget takes less than 1e-9 of noise usefully.
    return calibrate(noise, epsilon=target, delta=slack, low=1e-9, high=1.0 / slack) * reach


@lru_cache(maxsize=256)
def discrete_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma for which discrete Gaussian noise on integers is (epsilon, delta)-DP, from above.

    `sensitivity` is the L2 sensitivity of the whole integer vector, so its square is an integer; what is left over is
    rounding. Sigma is the root of the parameter V in Pr[z] ~ e^(-z^2/(2 V)).

    *Guarantee*: `Guarantee.discrete_gaussian(variance=returned^2, sensitivity=sensitivity)` meets the budget, both ways, by
    evaluation. A budget that allows less than about 2 units of noise is met by some sigma below others that do not meet it:
    the loss of discrete noise jumps in steps of 1/sigma^2, and more noise may move a step past epsilon. The search comes
    from above in steps of 1%, so that what is returned has no gap above it.

    *Edge cases*: epsilon = inf or sensitivity = 0 needs no noise (0.0); delta = 0 is out of reach of Gaussian noise.
    """
    owner = "discrete_gaussian_sigma"
    target, slack = check_epsilon(owner, epsilon), check_delta(owner, delta)
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    if math.isinf(target) or reach == 0:
        return 0.0
    if slack == 0:
        fix = "Allow a delta > 0, or use discrete Laplace noise."
        raise invalid(owner, "delta", "leave room for Gaussian noise", got=delta, fix=fix)
    check_positive(owner, "sensitivity", sensitivity)

    def noise(sigma: float) -> Guarantee:
        return Guarantee.discrete_gaussian(variance=sigma * sigma * (1 - 4 * UNIT), sensitivity=reach)

    def meets(sigma: float) -> bool:
        return noise(sigma).delta(target) <= slack

    # From above: zCDP needs at most 11% more than continuous noise does, and where it does not, the first loop climbs.
    high = 1.15 * analytic_gaussian_sigma(epsilon=target, delta=slack, sensitivity=max(1.0, reach))
    while not meets(high):
        high *= 1.15
    low = high / 1.01
    while meets(low):
        low, high = low / 1.01, low
    found = _narrow_bracket(meets, low, high, width=NARROW)
    while not noise(found).epsilon(slack) <= target:
        found *= 1 + NARROW
    return found


def zcdp_rho(*, epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP implies (epsilon, delta)-DP, from below.

    *Guarantee*: Guarantee.zcdp(returned).epsilon(delta) <= epsilon, by evaluation.

    *Edge cases*: epsilon = inf gives inf; epsilon = 0 and delta = 0 give what they can, down to 0.
    """
    target, slack = check_epsilon("zcdp_rho", epsilon), check_delta("zcdp_rho", delta)
    if math.isinf(target):
        return math.inf
    if slack == 0:
        return 0.0
    if Guarantee.zcdp(LEAST_RHO).epsilon(slack) > target:
        return 0.0
    # rho <= epsilon + log(1/(1 - delta)) in any case; the parameter is 1/rho, so that more means more noise.
    most = 4.0 * (target + 1.0) - 4.0 * math.log1p(-slack) + 4.0
    found = calibrate(_guarantee_of_inverse, epsilon=target, delta=slack, low=1.0 / most, high=1.0 / LEAST_RHO)
    return 1.0 / found


def _guarantee_of_inverse(parameter: float) -> Guarantee:
    """Return zCDP of 1 / parameter: more parameter, more noise."""
    return Guarantee.zcdp(1.0 / parameter)


def laplace_scale(*, epsilon: float, sensitivity: float) -> float:
    """Return the scale of (discrete) Laplace noise for pure epsilon at this L1 sensitivity, rounded up.

    Pr[z] proportional to exp(-|z|/scale), so that a change of `sensitivity` costs sensitivity/scale.

    *Edge cases*: epsilon = inf needs no noise (0.0); epsilon = 0 needs infinitely much, and is refused.
    """
    owner = "laplace_scale"
    target = check_epsilon(owner, epsilon)
    reach = check_epsilon(owner, sensitivity, name="sensitivity")
    if target == 0 and reach > 0:
        raise invalid(owner, "epsilon", "be > 0", got=epsilon, fix="No finite noise gives epsilon 0.")
    return 0.0 if reach == 0 else quotient_up(reach, target)


@dataclass(frozen=True, kw_only=True)
class AssociationBound:
    """What can be known of the labels that occur in clusters of one size.

    Fields
    ------
    best_precision : float
        No epsilon-private mechanism names labels of which a larger share are right, on every data set.
    largest_product : float
        The paper's bound on precision times recall, at most 1; weaker, and stated for comparison.
    blind_precision : float
        s/K, what naming every label achieves.
    """

    epsilon: float
    cluster_size: int
    n_classes: int
    best_precision: float
    largest_product: float
    blind_precision: float

    @property
    def too_small(self) -> bool:
        """Whether most of what is named must be wrong: clusters are too small for this many classes at this epsilon."""
        return self.best_precision < 0.5

    @property
    def sentence(self) -> str:
        """The bound in words, for a plan or a report."""
        return (
            f"In clusters of {self.cluster_size} examples with {self.n_classes} possible labels, at epsilon "
            f"{self.epsilon:g}, at most {self.best_precision:.1%} of the labels that any mechanism names can be right "
            f"in the worst case (naming all: {self.blind_precision:.1%})."
        )


def label_association(epsilon: float, *, cluster_size: int, n_classes: int) -> AssociationBound:
    """Return the bounds for clusters of `cluster_size` examples and `n_classes` possible labels.

    *Edge cases*: a cluster as large as the number of classes may hold every label, and nothing is bounded (1); epsilon
    = inf bounds nothing either.
    """
    owner = "label_association"
    budget = check_epsilon(owner, epsilon)
    classes = check_integer(owner, "n_classes", n_classes, least=2)
    size = check_integer(owner, "cluster_size", cluster_size, least=1)
    odds = math.exp(-budget)
    absent = max(classes - size, 0) * odds
    return AssociationBound(
        epsilon=budget,
        cluster_size=size,
        n_classes=classes,
        best_precision=size / (size + absent),
        largest_product=min(1.0, size / absent) if absent > 0 else 1.0,
        blind_precision=min(1.0, size / classes),
    )


def least_cluster_size(epsilon: float, *, n_classes: int, precision: float = 0.5) -> int:
    """Return the smallest cluster for which `precision` is not ruled out: s >= p (K - s) / ((1 - p) e^epsilon).

    >>> least_cluster_size(1.0, n_classes=1000)
    269
    """
    owner = "least_cluster_size"
    budget = check_epsilon(owner, epsilon)
    classes = check_integer(owner, "n_classes", n_classes, least=2)
    if not 0 < precision < 1:
        raise invalid(owner, "precision", "be in (0, 1)", got=precision)
    ratio = precision / (1 - precision) * math.exp(-budget)
    size = max(1, math.ceil(classes * ratio / (1 + ratio)))
    while size > 1 and label_association(budget, cluster_size=size - 1, n_classes=classes).best_precision >= precision:
        size -= 1  # the ceiling of a float may be one too high
    return size
