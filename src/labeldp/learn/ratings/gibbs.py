"""The sampler of factors: Bayesian matrix factorisation whose factor means are linear in public features.

>>> from labeldp.channel import MeanTable, NormalLaws
>>> from labeldp.learn.ratings.pairs import PairTable
>>> table = PairTable.of([(u, i) for u in range(8) for i in range(6)])
>>> evidence = Evidence(numbers=np.where(table.items % 2 == 0, 5.0, 1.0))
>>> settings = SamplerSettings(factors=2, sweeps=12, burn=4)
>>> samples = sample_factors(table, evidence, MeanTable.of(NormalLaws((1, 5))), table.features(0), settings, seed=0)
>>> samples.users.shape, samples.items.shape
((8, 9, 2), (8, 7, 2))

*Model.* Rating e of user u and item i has mean m = center + U_u . V_i. Factors of a side are U = F B + noise, F the public
features, rows of the noise N(0, L^-1); B has a matrix normal prior of precision `RIDGE` times L, and L a Wishart prior.
Given everything else, each of B, L, U, V has a standard law, and the passes draw from those in turn (Salakhutdinov and
Mnih, "Bayesian probabilistic matrix factorization using MCMC", ICML 2008, with features as in Adams, Dahl and Murray,
"Incorporating side information in probabilistic matrix factorization", UAI 2010).

*Two draws of the regression.* Where labels say little, U is nearly F B and drawing B given U hardly moves it. So B is drawn a second time, given the data
and U - F B: the residuals stay, and U moves along. Both are exact steps of the same law (Yu and Meng, "To center or not to
center: that is not the question", JCGS 20(3), 2011); without the second, a fit at epsilon 1 needs hundreds of passes.

*Evidence.* Outputs of a channel enter by scoring steps around a slowly moving average of the means (see
`labeldp.channel.means`), sums by their exact Gaussian conditional, plain numbers with a noise precision that is
drawn as well.

Design notes. Randomness here is not privacy noise: it works on what was released. `Chain` holds both sides and draws in
turn; `Side` is the linear algebra of one side, on small matrices; the loops over ratings are compiled
(`labeldp.learn.ratings.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.channel import MeanEvidence, MeanTable
from labeldp.learn.ratings.pairs import CellSums, PairTable

Progress = Callable[[float, str], None]

#: The moving average of the means follows the sampler at this rate once it has settled.
_RATE = 0.1
#: Prior precision of the regression on features, in units of a factor's own. Picked on MovieLens (`studies/ratings.py`).
RIDGE = 4.0
#: Factors start narrow, a tenth around their mean: from a wide start the chain is long in shrinking factors that are noise.
_FIRST_PRECISION = 100.0
#: Rows whose features are multiplied out at a time: 12 MB at 19 features.
_CHUNK = 4096
_NOTHING = np.empty(0)


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Number of factors, passes, and passes that are thrown away."""

    factors: int
    sweeps: int
    burn: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything known about the ratings of a pair table; any part may be absent."""

    responses: MeanEvidence | None = None
    numbers: Floats | None = None
    by_user: CellSums | None = None
    by_item: CellSums | None = None

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Evidence:
        """Return what is known of some ratings, or of all in another order; sums are over all of them."""
        return replace(
            self,
            responses=None if self.responses is None else self.responses.take(rows),
            numbers=None if self.numbers is None else self.numbers[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Kept factors, (S, n + 1, k) for each side: the last row is an id that was never seen. Mean = center + u . v."""

    center: float
    users: npt.NDArray[np.float32]
    items: npt.NDArray[np.float32]


def sample_factors(
    table: PairTable,
    evidence: Evidence,
    family: MeanTable,
    features: tuple[Floats, Floats],
    settings: SamplerSettings,
    *,
    seed: Any = None,
    progress: Progress | None = None,
) -> Samples:
    """Run the sampler and keep what comes after the burn-in.

    Parameters
    ----------
    table, evidence : PairTable, Evidence
        Who rated what, and what is known of the ratings; evidence per rating is in the order of the table.
    family : MeanTable
        The law of a rating given its mean.
    features : pair of arrays
        Public features of the users and of the items, a row per id, first column one.
    settings : SamplerSettings
        How many factors and passes.
    seed : int, optional
        Of the sampler.
    progress : (share done, text) -> None, optional
        Called after every pass.
    """
    rng = np.random.default_rng(seed)
    chain = Chain(table, evidence, family, features=features, factors=settings.factors, rng=rng)
    kept: list[tuple[Floats, Floats]] = []
    for sweep in range(settings.sweeps):
        chain.step(sweep)
        if sweep >= settings.burn:
            kept.append((chain.users.add_stranger(), chain.items.add_stranger()))
        if progress is not None:
            progress((sweep + 1) / settings.sweeps, f"sweep {sweep + 1} of {settings.sweeps}")
    return Samples(
        center=chain.center,
        users=np.stack([pair[0] for pair in kept]).astype(np.float32),
        items=np.stack([pair[1] for pair in kept]).astype(np.float32),
    )


class Chain:
    """The state of the sampler: factors of both sides, and what the evidence says at the current means.

    `step` moves it on by one pass. `target` and `weight` are the pseudo-observations of each rating, relative to `center`;
    `current` is u . v of each rating, `average` its slowly moving mean, at which channel outputs are linearised.
    """

    def __init__(
        self,
        table: PairTable,
        evidence: Evidence,
        family: MeanTable,
        *,
        features: tuple[Floats, Floats],
        factors: int,
        rng: np.random.Generator,
    ) -> None:
        self.family, self.rng = family, rng
        # By user, so that one of the two passes reads its ratings in the order of memory.
        rows = np.argsort(table.users, kind="stable")
        self.evidence = evidence.take(rows)
        users, items = table.users[rows], table.items[rows]
        self.users = Side(users, items, table.n_users, features[0], evidence.by_user, unit=0, factors=factors)
        self.items = Side(items, users, table.n_items, features[1], evidence.by_item, unit=1, factors=factors)
        for side, across in ((self.users, self.items), (self.items, self.users)):
            side.sum_features(across)
        self.center = common_mean(evidence, family, len(table))
        for side in (self.users, self.items):
            side.factors[:] = 0.1 * rng.standard_normal(side.factors.shape)
            side.factors[:, side.bias], side.factors[:, 1 - side.bias] = 1.0, 0.0
        informed = evidence.responses is not None or evidence.numbers is not None
        size = len(table) if informed else 0
        self.target, self.weight = np.zeros(size), np.zeros(size)
        self.average = np.full(len(table), self.center)
        self.current = np.zeros(len(table))
        self.predict()

    def step(self, sweep: int) -> None:
        """One pass over hyperparameters, items and users."""
        self._read_evidence(sweep)
        if sweep > 0:
            self.items.draw_prior(self.rng)
            self.users.draw_prior(self.rng)
        self.refresh()
        for side, across in ((self.items, self.users), (self.users, self.items)):
            self.draw_side(side, across)
            side.draw_slope(across, self.rng)
            self.predict()
            self.refresh()
        rate = max(1.0 / (sweep + 1), _RATE)
        self.average += rate * (self.center + self.current - self.average)

    def refresh(self) -> None:
        """Set the residuals and weights of both sides' sums at the current means."""
        variance = self.family.variance(self.center)
        for side in (self.users, self.items):
            side.refresh(self.current, self.center, variance)

    def _read_evidence(self, sweep: int) -> None:
        """Set targets, relative to the center, and weights from what was released."""
        told = self.evidence.responses
        if told is not None:
            told.write_targets(self.average, self.target, self.weight)
            self.target -= self.center
        elif self.evidence.numbers is not None:
            self.target[:] = self.evidence.numbers - self.center
            usual = len(self.target) * self.family.variance(self.center)
            left = float(((self.target - self.current) ** 2).sum()) if sweep > 0 else usual
            # A hundredth of the usual variance is always left: ratings that fit exactly would have infinite precision.
            self.weight[:] = self.rng.chisquare(len(self.target)) / (left + 0.01 * usual)

    def draw_side(self, side: Side, across: Side) -> None:
        """Draw every row of factors of one side, given the other."""
        from labeldp.learn.ratings import kernels

        kernels.gibbs_pass(
            side.pointer,
            side.order,
            side.other,
            side.groups,
            self.target,
            self.weight,
            across.factors,
            side.precision,
            (side.features @ side.slope) @ side.precision,
            side.weight,
            side.residual,
            across.cell,
            across.weight,
            across.residual,
            self.rng.standard_normal(side.factors.shape),
            side.factors,
            side.gram_data,
            side.pull,
        )

    def predict(self) -> None:
        """Set `current` from the factors."""
        from labeldp.learn.ratings import kernels

        kernels.products(self.items.other, self.users.other, self.users.factors, self.items.factors, self.current)


def common_mean(evidence: Evidence, family: MeanTable, n: int) -> float:
    """Return the mean of all ratings as the evidence has it: from sums, outputs or numbers, in this order."""
    for sums in (evidence.by_user, evidence.by_item):
        if sums is not None:
            return float(np.clip(sums.sums.sum() / n, family.grid[0], family.grid[-1]))
    if evidence.responses is not None:
        return evidence.responses.mean()
    if evidence.numbers is not None:
        return float(evidence.numbers.mean())
    return float(family.values[0] + family.values[-1]) / 2


class Side:
    """One side: its factors and their prior, its ratings in order, and the sums over its own cells."""

    def __init__(
        self, own: Any, other: Any, n: int, features: Floats, sums: CellSums | None, *, unit: int, factors: int
    ) -> None:
        self.other = other.astype(np.int32)
        self.groups = 1 if sums is None else sums.n_groups
        self.cell = own * self.groups + (0 if sums is None else sums.groups[other])
        self.order = np.lexsort((other, self.cell)).astype(np.int32)
        counts = np.bincount(self.cell, minlength=n * self.groups)
        self.pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.counts, self.features = counts.astype(np.float64), features
        self.gram = features.T @ features + RIDGE * np.eye(features.shape[1])
        self.sums = sums
        self.weight, self.residual = _NOTHING, _NOTHING
        self.factors = np.zeros((n, factors))
        # One factor starts at one on this side and so is a bias of the other side, which starts at zero there.
        self.bias = unit
        self.slope = np.zeros((features.shape[1], factors))
        self.slope[0, unit] = 1.0
        self.precision = np.diag(np.full(factors, _FIRST_PRECISION))
        self.gram_data, self.pull = np.zeros((n, factors, factors)), np.zeros((n, factors))
        self.feature_sums = np.empty((0, features.shape[1]))

    def sum_features(self, across: Side) -> None:
        """Sum this side's features over the cells of the other side: how the regression enters the other side's sums."""
        if across.sums is not None:
            own = across.other
            columns = [
                np.bincount(across.cell, column[own], minlength=len(across.counts)) for column in self.features.T
            ]
            self.feature_sums = np.column_stack(columns)

    def add_stranger(self) -> Floats:
        """Return the factors, and below them those of an id with average features."""
        return np.vstack([self.factors, self.slope[:1]])

    def draw_prior(self, rng: np.random.Generator) -> None:
        """Draw L and then B given L, from the factors: the conjugate matrix normal and Wishart.

        With G = F'F + RIDGE I, M = G^-1 F'U and E = U - F M: L ~ Wishart(n + k, (I + E'E + RIDGE M'M)^-1), and
        B ~ N(M, G^-1 x L^-1). Of C C' = I + E'E + RIDGE M'M, C'^-1 is a root of the scale.
        """
        n, k = self.factors.shape
        best = np.linalg.solve(self.gram, self.features.T @ self.factors)
        away = self.factors - self.features @ best
        scatter = np.linalg.cholesky(np.eye(k) + away.T @ away + RIDGE * best.T @ best)
        lower = np.zeros((k, k))
        for row in range(k):  # Bartlett's decomposition
            lower[row, row] = np.sqrt(rng.chisquare(n + k - row))
            lower[row, :row] = rng.standard_normal(row)
        root = np.linalg.solve(scatter.T, lower)
        self.precision = root @ root.T
        noise = rng.standard_normal(best.shape)
        left = np.linalg.solve(np.linalg.cholesky(self.gram).T, noise)
        self.slope = best + np.linalg.solve(root.T, left.T).T

    def draw_slope(self, across: Side, rng: np.random.Generator) -> None:
        """Draw B given the data and U - F B, as a step d: B += d, U += F d.

        Row u contributes f_u f_u' x A_u, A_u its information matrix; a cell c of row i of the other side, in which
        features sum to h_c, contributes w_c h_c h_c' x v_i v_i'. The prior adds RIDGE I x L.
        """
        width, k = self.slope.shape
        precision = RIDGE * np.einsum("ab,kl->akbl", np.eye(width), self.precision)
        slope = -RIDGE * self.slope @ self.precision
        for low in range(0, len(self.factors), _CHUNK):
            rows = slice(low, low + _CHUNK)
            precision += _kron_sum(_outer(self.features[rows]), self.gram_data[rows])
            away = self.pull[rows] - np.einsum("nkl,nl->nk", self.gram_data[rows], self.factors[rows])
            slope += self.features[rows].T @ away
        if len(self.feature_sums):
            for low in range(0, len(across.factors), _CHUNK):
                rows = slice(low, low + _CHUNK)
                cells = slice(low * across.groups, min(low + _CHUNK, len(across.factors)) * across.groups)
                shape = (-1, across.groups, width)
                sums, weighted = (
                    self.feature_sums[cells].reshape(shape),
                    (self.feature_sums[cells] * across.weight[cells, None]).reshape(shape),
                )
                v = across.factors[rows]
                precision += _kron_sum(np.einsum("nga,ngb->nab", weighted, sums), _outer(v))
                slope += np.einsum("nga,ng->na", weighted, across.residual[cells].reshape(-1, across.groups)).T @ v
        root = np.linalg.cholesky(precision.reshape(width * k, width * k))
        half = np.linalg.solve(root, slope.reshape(-1)) + rng.standard_normal(width * k)
        step = np.linalg.solve(root.T, half).reshape(width, k)
        self.slope = self.slope + step
        self.factors += self.features @ step

    def refresh(self, means: Floats, center: float, label_variance: float) -> None:
        """Set the weight of each cell's sum and what it has over the current means."""
        if self.sums is None:
            return
        predicted = np.bincount(self.cell, means, minlength=len(self.counts)) + center * self.counts
        self.residual = self.sums.sums.reshape(-1) - predicted
        self.weight = 1.0 / (self.sums.noise_variance + label_variance * self.counts)


def _outer(rows: Floats) -> Floats:
    answer: Floats = rows[:, :, None] * rows[:, None, :]
    return answer


def _kron_sum(left: Floats, right: Floats) -> Floats:
    """Return sum_n left[n] x right[n] with axes (a, k, b, l): one matrix product."""
    n, a, k = len(left), left.shape[1], right.shape[1]
    flat = left.reshape(n, a * a).T @ right.reshape(n, k * k)
    answer: Floats = flat.reshape(a, a, k, k).transpose(0, 2, 1, 3)
    return answer
