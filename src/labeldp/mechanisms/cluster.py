r"""`ClusterRR`: redraw labels from the noisy label distribution of their cluster.

>>> import labeldp
>>> release = labeldp.privatize([0, 0, 1, 1, 2, 2], ClusterRR(1.0), groups=[0, 0, 0, 1, 1, 1], rng=0)
>>> release.guarantee.epsilon(), release.channel.base.shape
(1.0, (2, 3))

References: Esfandiari, Mirrokni, Syed, Vassilvitskii, "Label differential privacy via clustering" (2022), Algorithm 1,
Theorem 2 (`bound_cluster_risk`), Corollary 2 (`prescribe_cluster`).

Design notes. The paper's Theorem 1 states 1/sigma for the histogram; a replaced label moves two of its entries, so the
cost is 2/sigma. Here the noise is sized to the budget instead: discrete Laplace of rate epsilon_1 / 2 on counts. The
mechanism itself never sees a label: `labeldp.privatize` hands it noisy counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Float64s, Floats, Int64s, Ints
from labeldp.channel import Channel, FiniteChannel, safe_odds
from labeldp.channel.finite import check_row_index
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.mechanisms.response import (
    MeasuringMechanism,
    NoisyCounts,
    check_n_classes,
    check_width,
    find_distinct_rows,
)
from labeldp.validate import check_epsilon, check_integer, check_positive, check_probability_rows, check_real

OWNER = "ClusterRR"
#: tau by default, as a share of the uniform 1/K.
TAU_SHARE = 0.1
SPLIT = 0.5
#: Neither part of a split budget may be smaller: the noise would drown any cluster, and nothing would be kept.
LEAST_PART = 1e-6
#: All sizes of a pruned support up to this are tried, then powers of two times it.
ALL_SIZES = 32


@dataclass(frozen=True)
class ClusterRR(MeasuringMechanism):
    r"""Keep a label with probability 1 - lambda, else redraw it from its cluster's noisy label distribution.

    The curator counts labels per cluster with noise (epsilon_1), turns each cluster's counts into shares q that are
    floored at tau and sum to one, and randomizes each label (epsilon_2) with

        T[y, o] = (1 - lambda) 1[o = y] + lambda q[o],      lambda = 1 / (1 + (e^epsilon_2 - 1) min q),

    min q being the realised minimum of that cluster, never below tau. The modified loss of the paper with beta = lambda
    is `release.channel.unbiased`: (loss[o] - lambda sum_j q[j] loss[j]) / (1 - lambda), no matrix inverse; beta = 0 is
    training on the released labels as they are.

    Parameters
    ----------
    epsilon : float
        The total, histogram included: epsilon_1 + epsilon_2.
    tau : float, optional
        The least share of a class in a cluster, in (0, 1/K]. Small tau: redrawn labels look like the cluster's own,
        but few labels are kept; large tau: the reverse, and 1/K is uniform. By default 0.1 / K: it costs at most a
        tenth of the mass, and in simulated clusters of 50 to 2000 examples (3, 10 and 50 classes, epsilon 0.25 to 4)
        it was within 0.02 of the best floor's accuracy at this split, on average.
    split : float, optional
        epsilon_1 / epsilon, in [0, 1). By default a half, which in the same simulations was within 0.04 of the best
        single split for each number of classes; few classes want less, many want more. 0 takes no histogram: all of
        epsilon goes to the response, no curator is needed, and labels are redrawn uniformly (UniformRR: the channel of
        RandomizedResponse) or from a public `prior`.
    prune : bool
        Let only the k likeliest labels of each cluster come out, with the k that makes a right answer likeliest under
        the noisy shares; others are always redrawn. The corrected loss is then exact only for labels inside.

    Guarantee
    ---------
    Pure epsilon when one label is replaced, in two parts, "histogram" and "response". A replaced label moves two counts
    of its cluster by one: discrete Laplace noise of rate epsilon_1 / 2 on each gives e^epsilon_1 (with two classes one
    count is released, at rate epsilon_1). Given the histogram, the channel is fixed, and its ratios are at most
    1 + (1 - lambda) / (lambda min q) = e^epsilon_2. The two compose in sequence. A curator is trusted for the first.

    Assumes
    -------
    The clusters did not see the labels.

    Edge cases
    ----------
    epsilon = 0 is possible only with split = 0. epsilon = inf returns the labels. A cluster number without examples, a
    tau above 1/K, and a budget too small to be split are errors. A data set given in pieces (`start=`) is counted piece
    by piece: each piece has its own histograms.
    """

    epsilon: float
    tau: float | None = field(default=None, kw_only=True)
    split: float | None = field(default=None, kw_only=True)
    prune: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(OWNER, self.epsilon))
        object.__setattr__(self, "split", check_split(self.epsilon, SPLIT if self.split is None else self.split))
        if self.tau is not None:
            object.__setattr__(self, "tau", check_positive(OWNER, "tau", self.tau, fix="At most 1/K."))
        if not isinstance(self.prune, bool):
            raise invalid(OWNER, "prune", "be True or False", got=self.prune)

    @property
    def histogram_epsilon(self) -> float:
        """epsilon_1, what the counts spend: a whole number of steps of epsilon's last bit, so that the parts add up."""
        share = float(self.split or 0.0)
        if math.isinf(self.epsilon):
            return math.inf if share else 0.0
        step = math.ulp(self.epsilon)
        return round(share * self.epsilon / step) * step

    @property
    def response_epsilon(self) -> float:
        """epsilon_2, what is left for the channel."""
        return self.epsilon if math.isinf(self.epsilon) else self.epsilon - self.histogram_epsilon

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon: the histogram and then the response."""
        if not self.split:
            return Guarantee.pure(self.epsilon)
        histogram = Guarantee.pure(self.histogram_epsilon, trust=Trust.CURATOR).named("histogram")
        return histogram.then(Guarantee.pure(self.response_epsilon).named("response"))

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        """Return the response for label distributions that are public already; without one it must be measured."""
        if prior is None and self.split:
            fix = (
                "Its channel depends on noisy counts: call labeldp.privatize(labels, ClusterRR(...), groups=clusters)."
            )
            raise invalid(OWNER, "prior", "be the public label distribution of each cluster", got=None, fix=fix)
        if prior is None:
            size = check_n_classes(OWNER, n_classes)
            self._floor(size)
            return self._response(np.full((1, size), 1.0 / size), None)
        rows = check_probability_rows(OWNER, "prior", np.atleast_2d(np.asarray(prior))).astype(np.float64)
        check_width(OWNER, rows.shape[1], n_classes)
        if np.ndim(prior) == 1 and groups is None:
            return self._response(rows, None)
        if np.ndim(prior) == 1:
            raise invalid(OWNER, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
        if groups is None:  # a distribution per example: equal ones share a row
            return self._response(*find_distinct_rows(rows))
        return self._response(rows, check_row_index(OWNER, "groups", groups, len(rows)))

    def measured_channel(
        self, count: NoisyCounts, *, groups: Any, n_classes: int, n_examples: int, prior: Any = None
    ) -> FiniteChannel:
        """Ask for the noisy counts of each cluster's labels, then return the response to their shares."""
        if not self.split:
            return self.channel(prior, groups=None if prior is None else groups, n_classes=n_classes)
        if prior is not None:
            fix = "Set split=0 to spend all of epsilon on the response where the distributions are public."
            raise invalid(OWNER, "prior", "be left out: it is measured", got=Described("one"), fix=fix)
        self._floor(check_n_classes(OWNER, n_classes))
        clusters, sizes = check_clusters(groups, n_examples)
        counts = count(clusters, len(sizes), self.histogram_epsilon)
        return self._response(counts / sizes[:, None].astype(np.float64), clusters)

    def _floor(self, n_classes: int) -> float:
        """Return tau: as given, or a tenth of 1/K."""
        if self.tau is None:
            return TAU_SHARE / n_classes
        if self.tau * n_classes > 1.0 + 1e-12:  # 1/K times K may round to a hair above 1
            must = f"be at most 1/K = {1.0 / n_classes:.6g} for {n_classes} classes"
            raise invalid(OWNER, "tau", must, got=self.tau, fix="Leave it out for 0.1 / K.")
        return min(self.tau, 1.0 / n_classes)

    def _response(self, shares: Floats, index: Ints | None) -> Channel:
        """Return the channel that redraws from these shares, floored, with the keep that each row can afford."""
        odds = safe_odds(self.response_epsilon)
        floor = self._floor(shares.shape[1])
        base = raise_to_floor(shares, floor)
        if self.prune and math.isfinite(odds):
            base = prune_support(base, floor=floor, odds=odds)
        keep, redraw = keep_probabilities(base, odds)
        return Channel(keep=keep, redraw=redraw, base=base, index=index)


def keep_probabilities(base: Float64s, odds: float) -> tuple[Float64s, Float64s]:
    """Return keep = odds m / (1 + odds m) and redraw = 1 / (1 + odds m), m the least positive entry of each row.

    Then the ratio 1 + keep / (redraw m) is 1 + odds, whatever the row.
    """
    least = np.where(base > 0, base, np.inf).min(axis=1)
    if math.isinf(odds):
        return np.ones(len(base)), np.zeros(len(base))
    return odds * least / (1.0 + odds * least), 1.0 / (1.0 + odds * least)


def raise_to_floor(shares: Any, floor: float) -> Float64s:
    """Return rows in [floor, 1] that sum to one, by the paper's renormalisation.

    Clip to [floor, 1]. If the row sums to more than one, take the surplus from each entry in proportion to what it has
    above the floor; if to less, give in proportion to what it lacks of 1. No entry leaves [floor, 1] (their Theorem 6).
    """
    clipped = np.clip(np.asarray(shares, dtype=np.float64), floor, 1.0)
    missing = 1.0 - clipped.sum(axis=1, keepdims=True)
    room = np.where(missing < 0, clipped - floor, 1.0 - clipped)
    total = room.sum(axis=1, keepdims=True)
    moved = np.divide(room, total, out=np.zeros_like(room), where=total > 0) * missing
    answer: Float64s = np.clip(clipped + moved, floor, 1.0)
    return answer


def prune_support(base: Float64s, *, floor: float, odds: float) -> Float64s:
    """Return each row restricted to its k likeliest labels, k chosen for the most right answers under the row itself.

    A support S of size k redraws from base / base(S), floored again at `floor` or 1/k. Ties go to the lower label:
    nothing here looks at a label.
    """
    n_classes = base.shape[1]
    order = np.argsort(-base, axis=1, kind="stable")
    ranked = np.take_along_axis(base, order, axis=1)
    best = np.full(len(base), -1.0)
    answer = np.zeros_like(base)
    for k in support_sizes(n_classes):
        top = ranked[:, :k]
        rows = raise_to_floor(top / top.sum(axis=1, keepdims=True), min(floor, 1.0 / k))
        keep, redraw = keep_probabilities(rows, odds)
        right = keep * top.sum(axis=1) + redraw * (top * rows).sum(axis=1)
        better = np.flatnonzero(right > best)
        best[better] = right[better]
        answer[better] = 0.0
        answer[better[:, None], order[better, :k]] = rows[better]
    return answer


def support_sizes(n_classes: int) -> list[int]:
    """Return the sizes of supports to try: all up to `ALL_SIZES`, then doubling, and K itself."""
    sizes = list(range(1, min(n_classes, ALL_SIZES) + 1))
    while sizes[-1] < n_classes:
        sizes.append(min(2 * sizes[-1], n_classes))
    return sizes


class RiskBound(NamedTuple):
    """An upper bound on the excess risk of the empirical minimiser: what vanishes as n grows, and what stays."""

    sampling: float
    residual: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.sampling + self.residual


def bound_cluster_risk(
    n_examples: int,
    *,
    n_classes: int,
    dimension: float,
    heterogeneity: float,
    least_size: int,
    noise: float,
    floor: float,
    redraw: float,
    correction: float | None = None,
    failure: float = 0.05,
    constant: float = 1.0,
) -> RiskBound:
    r"""Return the paper's Theorem 2 for ClusterRR: how far the minimiser of the modified loss is from the best hypothesis.

    With probability 1 - gamma over n independent examples, for a loss in [0, 1] and every cluster of size >= s,

        E risk(h~) - inf risk <= C K/(1 - beta) sqrt(dim log(1/gamma) / n) + C K |beta - lambda|/(1 - beta) (phi + K sigma/s + K tau).

    Parameters
    ----------
    n_examples, n_classes, dimension
        n; K; the dimension of the class and its loss (for K = 2 of the order of the VC dimension).
    heterogeneity, least_size
        phi of Definition 1 (`labeldp.priors.heterogeneity` bounds it); s.
    noise, floor, redraw, correction
        sigma, the Laplace scale on counts (2 / epsilon_1 here); tau; lambda; beta, by default lambda: unbiased.
    failure, constant
        gamma; C. The paper does not give C: with the default of 1 this is a rate, not a number to rely on.

    Notes
    -----
    The factors K and C of the second term are loose: `bound_cluster_bias` has it with constants. So is the K of the first:
    the modified loss, (loss[o] - beta sum_j q[j] loss[j]) / (1 - beta), lies in [-beta, 1]/(1 - beta) whatever K is.
    """
    owner = "bound_cluster_risk"
    n, k = (
        check_integer(owner, "n_examples", n_examples, least=1),
        check_integer(owner, "n_classes", n_classes, least=2),
    )
    size = check_integer(owner, "least_size", least_size, least=1)
    beta = _check_share(owner, "correction", redraw if correction is None else correction)
    bias = abs(beta - _check_share(owner, "redraw", redraw))
    width = constant * k / (1.0 - beta)
    sampling = width * math.sqrt(dimension * -math.log(check_positive(owner, "failure", failure)) / n)
    return RiskBound(sampling, width * bias * (heterogeneity + k * noise / size + k * floor) if bias else 0.0)


class ClusterPlan(NamedTuple):
    """tau, lambda and sigma of Corollary 2, what they really spend, and the histogram's share of it."""

    floor: float
    redraw: float
    noise: float
    epsilon: float
    split: float


def prescribe_cluster(epsilon: float, *, heterogeneity: float, n_classes: int) -> ClusterPlan:
    r"""Return the parameters of Corollary 2: tau = phi, lambda = 1/(1 + (e^epsilon - 1) phi), sigma = 1/epsilon, beta = 0.

    The corollary says O(epsilon). By Theorem 1, corrected, they spend 2/sigma + log(1 + (1 - lambda)/(lambda tau)) = 3
    epsilon; with two classes, of which one count is released, 2 epsilon. So ``ClusterRR(plan.epsilon, tau=plan.floor,
    split=plan.split)`` runs it, and `bound_cluster_risk` at floor, redraw and noise with correction=0 is its bound,

        C K sqrt(dim log(1/gamma) / n) + C K lambda (phi + K sigma/s + K tau),

    the corollary's for s >= 1/(epsilon phi). phi must not come from raw labels (`labeldp.priors.heterogeneity` of noisy ones).

    *Edge cases.* A floor cannot exceed 1/K. Where phi does, the floor is 1/K: labels are then redrawn uniformly, and the
    clusters are of no use. In ten classes that is the rule: phi < 0.1 needs clusters of which 95 % of the labels agree.

    >>> plan = prescribe_cluster(0.5, heterogeneity=0.04, n_classes=10)
    >>> plan.floor, round(plan.redraw, 3), plan.noise, plan.epsilon
    (0.04, 0.975, 2.0, 1.5)
    >>> prescribe_cluster(0.5, heterogeneity=0.6, n_classes=10).floor
    0.1
    """
    owner = "prescribe_cluster"
    budget = check_positive(owner, "epsilon", epsilon)
    k = check_integer(owner, "n_classes", n_classes, least=2)
    floor = min(check_positive(owner, "heterogeneity", heterogeneity), 1.0 / k)
    histogram = (1.0 if k == 2 else 2.0) * budget
    redraw = 1.0 / (1.0 + math.expm1(budget) * floor)
    return ClusterPlan(floor, redraw, 1.0 / budget, histogram + budget, histogram / (histogram + budget))


def bound_cluster_bias(
    *,
    n_classes: int,
    heterogeneity: float,
    least_size: int,
    noise: float,
    floor: float,
    redraw: float,
    correction: float = 0.0,
) -> float:
    r"""Return what stays of Theorem 2 as n grows, with constants: |lambda - beta|/(1 - beta) (phi + psi).

    A label y of features x is kept or redrawn from q; the modified loss is then, on average,
    loss[y] + (lambda - beta)/(1 - beta) (sum_j q[j] loss[j] - loss[y]). Averaged over y the bracket is
    sum_j (q[j] - p(j | x)) loss[j], at most half the 1-norm of q - p(. | x) for a loss in [0, 1]. So every hypothesis' risk is
    off by at most half of (..)(phi + psi), and the difference of two by all of it, where psi = E|q - p(. | c)|_1. Clipping
    p^ + z to [tau, 1] moves an entry by at most max(tau, |z|), renormalising moves the row by no more than clipping did, and
    E|z| = sigma/s; the sample's own shares are off by at most sqrt((K - 1)/s) on average. So

        psi <= 2 K (sigma/s + tau) + sqrt((K - 1)/s).

    Parameters are those of `bound_cluster_risk`; beta = 0 is training on the released labels as they are.
    """
    owner = "bound_cluster_bias"
    k, size = (
        check_integer(owner, "n_classes", n_classes, least=2),
        check_integer(owner, "least_size", least_size, least=1),
    )
    beta, share = _check_share(owner, "correction", correction), _check_share(owner, "redraw", redraw)
    distortion = 2.0 * k * (noise / size + floor) + math.sqrt((k - 1.0) / size)
    return abs(share - beta) / (1.0 - beta) * (heterogeneity + distortion)


def _check_share(owner: str, name: str, value: float) -> float:
    """Return a number in [0, 1)."""
    share = check_real(owner, name, value)
    if not 0 <= share < 1:
        raise invalid(owner, name, "be in [0, 1)", got=value)
    return share


def check_split(epsilon: float, split: Any) -> float:
    """Return the split, or say that it leaves too little."""
    share = check_real(OWNER, "split", split)
    if not 0 <= share < 1:
        raise invalid(OWNER, "split", "be in [0, 1)", got=split, fix="It is the histogram's share of epsilon.")
    if share and epsilon * min(share, 1 - share) < LEAST_PART:
        must = f"leave at least {LEAST_PART:g} for the histogram and for the response"
        fix = "Use split=0 for randomized response without a histogram."
        raise invalid(OWNER, "epsilon", must, got=Described(f"{epsilon:g} at split {share:g}"), fix=fix)
    return share


def check_clusters(groups: Any, n_examples: int, *, owner: str = OWNER) -> tuple[Int64s, Int64s]:
    """Return the cluster of each example, numbered from 0 without gaps, and the clusters' sizes."""
    if groups is None:
        fix = "Pass groups=, the cluster of each example (found without labels)."
        raise invalid(owner, "groups", "be given", got=None, fix=fix)
    array = np.asarray(groups)
    if array.shape != (n_examples,) or array.dtype.kind not in "iu":
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype} for {n_examples} labels")
        raise invalid(owner, "groups", "be integers, one per label", got=got)
    if int(array.min()) < 0 or int(array.max()) >= n_examples:
        got = Described(f"a number outside 0 .. {n_examples - 1} for {n_examples} labels")
        raise invalid(owner, "groups", "be numbered from 0 without gaps", got=got)
    clusters = array.astype(np.int64, copy=False)
    sizes = np.bincount(clusters)
    if not sizes.all():
        got = Described(f"no example in cluster {int(np.argmin(sizes))} of {len(sizes)}")
        fix = "Number the clusters without gaps: numpy.unique(groups, return_inverse=True)[1]."
        raise invalid(owner, "groups", "have an example in every cluster", got=got, fix=fix)
    return clusters, sizes
