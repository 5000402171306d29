r"""Models from noisy totals of public groups: other people's aggregates, and groups that the owner of labels releases in rounds.

Someone released S_g = (sum of the labels of group g) + noise: a clean room, a browser's report on conversions, a survey's
table. Who is in which group is public, and so are the features. A generalised linear model says that the sum has mean
M_g(w) = sum over the group of e_i A'(<w, x_i>) and the variance V_g of so many labels; the noise is known. `fit_totals`
maximises the likelihood of what was released, with a normal prior on the weights.

>>> from labeldp.learn.convex.design import make_design
>>> from labeldp.learn.convex.families import find_family
>>> rng = np.random.default_rng(0)
>>> X, groups = rng.normal(size=(3000, 1)), np.arange(3000) // 10
>>> sums = np.bincount(groups, weights=2.0 + 0.5 * X[:, 0]) + rng.laplace(scale=2.0, size=300)
>>> design = make_design("example", X, clip="auto", standardise=True, intercept_scaling=0.25)
>>> found = fit_totals(find_family("gaussian"), design, groups, sums, LaplaceNoise(2.0), bounds=(0.0, 4.0))
>>> slope, intercept = design.map_back(found.weights, found.offset)
>>> bool(abs(slope[0] - 0.5) < 0.1), bool(abs(intercept - 2.0) < 0.1)
(True, True)

*Gaussian noise* of deviation s: S_g - M_g is normal with variance V_g + s^2. *Laplace noise* of scale b: a normal plus a
Laplace variable, whose density at r is, with Phi the normal distribution function and v = V_g,

    (T_1 + T_2) e^{v / 2b^2} / 2b,      T_1 = e^{-r/b} Phi((r - v/b) / sqrt v),      T_2 = e^{r/b} Phi(-(r + v/b) / sqrt v).

The derivatives of the two Phi cancel, so that the logarithm has slope (T_2 - T_1) / (b (T_1 + T_2)): at most 1/b, however
far off a total is. V_g is taken at the null model, then at the fitted one.

*The prior.* Linearised at the null model, residuals over the root of their variance are J w + (noise of variance 1), w ~
N(0, tau^2): the tau of the largest likelihood is taken, at most a public bound. It needs no more than what was released.

*Rounds.* `release_rounds` divides the rows at random in disjoint parts. A part is cut into groups of similar rows, their
totals are released, and the model is fitted again on all totals so far. Groups of the first part are clusters of the
features; of a later one, clusters of what the current model makes of them (each feature times its weight): rows of one
prediction for one reason go together, and what does not matter to the labels does not divide them.

Guarantee
---------
Of `fit_totals`: none of its own, it sees no label. Of `release_rounds`: a label is in one group of one round, and moves one
total by at most high - low, so discrete Laplace noise of that scale over epsilon makes every round pure epsilon. Rounds ask about
different rows: they compose in parallel, and later groups depend on earlier releases alone. Pure epsilon in all; a curator
sees the labels and is trusted.

References: Reed & Jorgensen 2004 (normal-Laplace); Quadrianto et al. 2009 (learning from proportions).
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn.convex.design import Design
from labeldp.learn.convex.families import Family
from labeldp.learn.convex.moments import VARIANCES, minimise_round
from labeldp.random import NoiseKey
from labeldp.release import Measurement, Query, Sensitivity, measure
from labeldp.release.budget import Budget, check_measurable
from labeldp.release.grid import GridLabels
from labeldp.release.persons import ASSIGNMENT, Persons, choose_rows
from labeldp.release.queries import MOST_TOTAL, check_groups
from labeldp.release.stages import StageDoor, run_stages
from labeldp.validate import check_positive

#: Rows of a group at epsilon 1. A group's mean has noise sqrt 2 R / (eps n); at n = 20 / eps that is R / 14.
ROWS_AT_ONE = 20.0
#: Groups in a round, at least and at most.
FEWEST, MOST_GROUPS = 4, 512
#: Rows that clusters are found on; all rows then go to the nearest centre.
CLUSTER_ROWS = 20_000


class TotalNoise(abc.ABC):
    """Noise that someone added to totals: its variance, and the likelihood of a residual that has normal noise beside it."""

    @property
    @abc.abstractmethod
    def variance(self) -> Any:
        """The variance, one for all or of each group."""

    @abc.abstractmethod
    def log_density(self, residuals: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return the logarithm of the density of noise plus a normal of these variances, and its slope."""


@dataclass(frozen=True)
class GaussianNoise(TotalNoise):
    """Normal noise of standard deviation `sigma`, one for all groups or one each; 0 for totals as they are."""

    sigma: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _check_scale("GaussianNoise", "sigma", self.sigma, zero=True))

    @property
    def variance(self) -> Any:
        """The square."""
        return np.square(self.sigma)

    def log_density(self, residuals: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """A normal's."""
        both = variances + self.variance
        return -0.5 * (residuals**2 / both + np.log(both)), -residuals / both


@dataclass(frozen=True)
class LaplaceNoise(TotalNoise):
    """Laplace noise of this `scale`, one for all groups or one each: density e^{-|z| / scale} / (2 scale).

    >>> LaplaceNoise.of_report(max_value=65536, epsilon=2.0)
    LaplaceNoise(scale=65536.0)
    """

    scale: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check_scale("LaplaceNoise", "scale", self.scale, zero=False))

    @classmethod
    def of_report(cls, *, max_value: float, epsilon: float) -> LaplaceNoise:
        """Return the noise of an attribution report of the W3C's kind: scale 2 max_value / epsilon."""
        owner = "LaplaceNoise.of_report"
        return cls(2.0 * check_positive(owner, "max_value", max_value) / check_positive(owner, "epsilon", epsilon))

    @property
    def variance(self) -> Any:
        """Twice the squared scale."""
        return 2.0 * np.square(self.scale)

    def log_density(self, residuals: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """The normal-Laplace density of the module."""
        spread, b = np.sqrt(variances), self.scale
        first = -residuals / b + scipy.special.log_ndtr(residuals / spread - spread / b)
        second = residuals / b + scipy.special.log_ndtr(-residuals / spread - spread / b)
        value = np.logaddexp(first, second) + variances / (2 * b**2) - np.log(2 * b)
        return value, np.tanh((second - first) / 2) / b


def _check_scale(owner: str, name: str, value: Any, *, zero: bool) -> Any:
    """Return a float, or an array of one for each group."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise invalid(owner, name, "be a number", got=Described(f"a {type(value).__name__}")) from None
    if array.ndim > 1 or not (np.isfinite(array).all() and ((array > 0) | (zero & (array == 0))).all()):
        got = value if array.ndim == 0 else Described("numbers that are not")
        raise invalid(owner, name, "be finite and >= 0" if zero else "be finite and > 0", got=got)
    return float(array) if array.ndim == 0 else array


class FittedWeights(NamedTuple):
    """Weights (d + 1) of a design's rows, the null model's offset and factor, and the prior variance of a weight."""

    weights: Floats
    offset: float
    factor: float
    prior_variance: float


def fit_totals(
    family: Family,
    design: Design,
    groups: Int64s,
    sums: Floats,
    noise: TotalNoise,
    *,
    bounds: tuple[float, float],
    counts: Floats | None = None,
    l2: float | None = None,
) -> FittedWeights:
    """Return the model of the largest posterior for noisy totals of groups; see the module.

    Parameters
    ----------
    family, design : Family, Design
        The model, and public rows; their weights are not used, since sums of labels have none.
    groups : int64 of shape (n,)
        The group of each row.
    sums : floats of shape (G,)
        The noisy total of each group.
    noise : GaussianNoise or LaplaceNoise
        What was added to each.
    bounds : (low, high)
        Of one label.
    counts : floats of shape (n,), optional
        How many labels a row stands for, where the features of single ones are not known; 1 by default.
    l2 : float, optional
        A penalty on weights of the standardised columns; by default the prior is chosen.
    """
    copies = np.ones(len(design.rows)) if counts is None else counts
    exposed = copies * design.exposure
    add = _Adder(groups, len(sums))
    extent, people = add(exposed), add(copies)
    variances = noise.variance + people * (bounds[1] - bounds[0]) ** 2 / 16
    mean, error = _find_null(sums, extent, variances)
    mean = family.clip_mean(mean, bounds, exposure=float(exposed.sum() / copies.sum()), noise=error)
    offset, factor = family.anchor(mean)
    weights: Floats = np.zeros(design.rows.shape[1])
    prior = 0.0
    for _ in range(2):  # the second time with the variances of the fitted model
        means = design.exposure * factor * family.mean(offset + design.rows @ weights)
        own = np.maximum(add(copies * family.variance(means, bounds)), 1e-12 * (bounds[1] - bounds[0]) ** 2)
        null = exposed * factor
        slopes = np.stack(
            [add(null * family.slope(np.full(len(null), offset)) * column) for column in design.rows.T], axis=1
        )
        levels = add(null * family.mean(np.full(len(null), offset)))
        prior = _choose_prior(slopes, sums - levels, own + noise.variance, design, spread=family.spread(bounds))
        penalty = np.full(len(weights), (1.0 / prior) if l2 is None else l2)
        penalty[-1] = (design.constant / family.spread(bounds)) ** 2
        problem = _Totals(
            family=family,
            rows=design.rows,
            exposed=null,
            offset=offset,
            add=add,
            sums=sums,
            noise=noise,
            own=own,
            penalty=penalty,
        )
        information = (slopes / (own + noise.variance)[:, None]).T @ slopes
        weights = problem.minimise(weights, information)
    return FittedWeights(weights, offset, factor, prior)


class _Adder:
    """Adds up values of rows within their groups."""

    def __init__(self, groups: Int64s, size: int) -> None:
        self.groups, self.size = groups, size

    def __call__(self, values: Floats) -> Floats:
        totals: Floats = np.bincount(self.groups, weights=values, minlength=self.size).astype(np.float64)
        return totals


def _find_null(sums: Floats, extent: Floats, variances: Floats) -> tuple[float, float]:
    """Return the mean of a label per unit of exposure, by weighted least squares on the totals, and its error."""
    strength = float((extent**2 / variances).sum())
    return float((extent * sums / variances).sum()) / strength, 1.0 / math.sqrt(strength)


def _choose_prior(slopes: Floats, residuals: Floats, variances: Floats, design: Design, *, spread: float) -> float:
    """Return tau^2 of the largest likelihood of the residuals, the intercept taken out of them."""
    scaled, left = slopes / np.sqrt(variances)[:, None], residuals / np.sqrt(variances)
    level = scaled[:, -1] / max(float(np.linalg.norm(scaled[:, -1])), 1e-300)
    body = scaled[:, :-1] - np.outer(level, level @ scaled[:, :-1])
    left = left - level * (level @ left)
    vectors, values, _ = np.linalg.svd(body, full_matrices=False)
    squares = (left @ vectors) ** 2
    most = spread**2 / max(float((design.rows[:, :-1] ** 2).sum(axis=1).mean()), 1e-300)
    tried = most * VARIANCES
    spreads = 1.0 + tried[:, None] * values[None, :] ** 2
    likely = -(np.log(spreads) + squares[None, :] / spreads).sum(axis=1)
    return float(tried[int(np.argmax(likely))])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Totals:
    """The negative log-posterior of weights, its gradient, and where it is least."""

    family: Family
    rows: Floats
    exposed: Floats
    offset: float
    add: _Adder
    sums: Floats
    noise: TotalNoise
    own: Floats
    penalty: Floats

    def __call__(self, weights: Floats) -> tuple[float, Floats]:
        scores = self.offset + self.rows @ weights
        levels = self.add(self.exposed * self.family.mean(scores))
        value, slope = self.noise.log_density(self.sums - levels, self.own)
        pull = slope[self.add.groups] * self.exposed * self.family.slope(scores)
        gradient = self.rows.T @ pull + self.penalty * weights
        return float(-value.sum() + 0.5 * weights @ (self.penalty * weights)), gradient

    def minimise(self, start: Floats, information: Floats) -> Floats:
        """Minimise by L-BFGS in coordinates in which the problem is round at the null model."""
        return minimise_round(self, start, information + np.diag(self.penalty))


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupTotals(Query):
    """The sum of numbers in each public group: `scores[k]` is the number of code k, `groups` the group of each label.

    A replaced label moves one total by the range of the scores at most, in either norm.
    """

    scores: Int64s
    groups: Int64s
    n_groups: int

    def check_size(self, n_examples: int) -> None:
        """One group per label, and no sum beyond what floats add exactly."""
        check_groups("GroupTotals", self.groups, self.n_groups)
        top = int(np.abs(self.scores).max())
        if len(self.groups) != n_examples or top * n_examples >= min(MOST_TOTAL, 1 << 53):
            got = Described(f"{len(self.groups)} for {n_examples} labels")
            raise invalid("GroupTotals", "groups", "have one entry per label, and sums below 2^53", got=got)

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """The range of the scores."""
        width = float(int(self.scores.max()) - int(self.scores.min()))
        return Sensitivity(width, width)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Sum: floats hold these integers exactly."""
        totals = np.bincount(self.groups, weights=self.scores[codes].astype(np.float64), minlength=self.n_groups)
        return totals.astype(np.int64)


class Rounds(NamedTuple):
    """All that was released: the groups of all rows, numbered through, their totals, the noise in words, and the promise."""

    groups: Int64s
    sums: Floats
    noise: TotalNoise
    words: str
    guarantee: Guarantee
    model: FittedWeights


def release_rounds(
    owner: str,
    family: Family,
    design: Design,
    box: GridLabels,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    rounds: int,
    n_groups: int | None,
    l2: float | None,
    key: NoiseKey,
    ledger: Any,
    persons: Persons | None = None,
) -> Rounds:
    """Release totals of groups in rounds of disjoint rows, each shaped by the model so far; see the module.

    `n_groups` is how many groups a round has; by default `choose_groups` says. The whole is
    charged before anything is drawn. With `persons` one row of each counts, by public chance, so that her labels move one total
    by the range at most, in her round.
    """
    labels, whole = box.labels, persons
    if persons is not None:
        labels = labels.with_persons(persons)  # the groups are of parts
        counted = choose_rows(persons, 1)
        labels, design, persons = labels.take(counted), design.take(counted), persons.take(counted)
    n = len(design.rows)
    if n < rounds:
        raise invalid(owner, "rounds", "leave each round a row", got=Described(f"{rounds} for {n} rows"))
    given = () if whole is None else (ASSIGNMENT,)
    budget = Budget(owner=owner, labels=box.labels, ledger=ledger, seeded=key.seeded, given=given, persons=whole)
    promise = budget.state(budget.about_unit(Guarantee.pure(epsilon, trust=Trust.CURATOR)))
    parts = np.array_split(np.argsort(key.child("parts").words(start=0, count=n)[:, 0], kind="stable"), rounds)
    size = n_groups if n_groups is not None else choose_groups(n // rounds, epsilon)
    check_measurable(owner, epsilon)
    budget.charge(promise, mechanism=f"{owner}, totals of groups in {rounds} rounds")
    door: StageDoor[Measurement] = StageDoor(budget=budget, key=key, epsilon=epsilon, name="round")
    groups, sums = np.full(n, -1, np.int64), np.empty(0)
    noise: TotalNoise = GaussianNoise(0.0) if math.isinf(epsilon) else LaplaceNoise((bounds[1] - bounds[0]) / epsilon)

    def believe(number: int, model: FittedWeights | None) -> Int64s:
        rows = design.rows[parts[number], :-1]
        return cluster_rows(rows if model is None else rows * model.weights[:-1], size)

    def release(number: int, cells: Int64s) -> Measurement:
        query = GroupTotals(scores=box.scores, groups=cells, n_groups=int(cells.max()) + 1)
        part, whose = labels.take(parts[number]), None if persons is None else persons.take(parts[number])
        return door.draw(number, lambda stage_key: measure(part, query, epsilon=epsilon, rng=stage_key, persons=whose))

    def learn(number: int, _model: FittedWeights | None, cells: Int64s, found: Measurement) -> FittedWeights:
        nonlocal sums
        groups[parts[number]] = cells + len(sums)
        counts = np.bincount(cells, minlength=int(cells.max()) + 1)
        sums = np.concatenate([sums, found.value * box.step + box.low * counts])
        known = np.flatnonzero(groups >= 0)
        return fit_totals(family, design.take(known), groups[known], sums, noise, bounds=bounds, l2=l2)

    start: FittedWeights | None = None
    model = run_stages(rounds, start=start, believe=believe, release=release, learn=learn)
    assert model is not None  # there is at least one round
    words = "no noise" if math.isinf(epsilon) else f"discrete Laplace of scale {(bounds[1] - bounds[0]) / epsilon:.6g}"
    return Rounds(groups, sums, noise, words, promise, model)


def choose_groups(n_rows: int, epsilon: float) -> int:
    """Return how many groups a round of so many rows has: of 20 / epsilon rows, so that a mean's noise is a 14th of the range.

    >>> choose_groups(6400, 1.0), choose_groups(6400, 0.1), choose_groups(6400, math.inf)
    (320, 32, 512)
    """
    rows = ROWS_AT_ONE / epsilon
    return int(min(max(n_rows / max(rows, 1.0), FEWEST), MOST_GROUPS, n_rows))


def cluster_rows(rows: Floats, size: int) -> Int64s:
    """Return a group of similar rows for each row, numbered without gaps; public, and the same each time."""
    from sklearn.cluster import MiniBatchKMeans

    spread = float(np.sqrt((rows**2).sum(axis=1).mean()))
    if size == 1 or not spread > 0:
        return np.zeros(len(rows), np.int64)
    known = rows[:: max(1, len(rows) // CLUSTER_ROWS)] / spread
    means = MiniBatchKMeans(n_clusters=min(size, len(known)), batch_size=4096, n_init=1, random_state=0)
    nearest = means.fit(known).predict(rows / spread)
    return np.unique(nearest, return_inverse=True)[1].reshape(-1).astype(np.int64)
