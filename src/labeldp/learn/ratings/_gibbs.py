"""The sampler of factors: Bayesian matrix factorisation whose factor means are linear in public features.

Model. Rating e of user u and item i has mean m = center + U_u . V_i. Factors of a side are U = F B + noise, F the public
features, rows of the noise N(0, L^-1); B has a matrix normal prior of precision `RIDGE` times L, and L a Wishart prior.
Given everything else, each of B, L, U, V has a standard law, and the passes draw from those in turn (Salakhutdinov and
Mnih, "Bayesian probabilistic matrix factorization using MCMC", ICML 2008, with features as in Adams, Dahl and Murray,
"Incorporating side information in probabilistic matrix factorization", UAI 2010).

Where labels say little, U is nearly F B and drawing B given U hardly moves it. So B is drawn a second time, given the data
and U - F B: the residuals stay, and U moves along. Both are exact steps of the same law (Yu and Meng, "To center or not to
center: that is not the question", JCGS 20(3), 2011); without the second, a fit at epsilon 1 needs hundreds of passes.

Outputs of a channel enter by scoring steps around a slowly moving average of the means (see `_evidence`), sums by their
exact Gaussian conditional, plain numbers with a noise precision that is drawn as well.

Randomness here is not privacy noise: it works on what was released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.learn.ratings._evidence import CellSums, Responses
from labeldp.learn.ratings._family import RatingFamily
from labeldp.learn.ratings._pairs import PairTable
from labeldp.learn.ratings._side import Side

Floats = npt.NDArray[np.floating[Any]]
Progress = Callable[[float, str], None]

#: The moving average of the means follows the sampler at this rate once it has settled.
_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Number of factors, passes, and passes that are thrown away."""

    factors: int
    sweeps: int
    burn: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything known about the ratings of a pair table; any part may be absent."""

    responses: Responses | None = None
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
    family: RatingFamily,
    features: tuple[Floats, Floats],
    settings: SamplerSettings,
    *,
    seed: Any = None,
    progress: Progress | None = None,
) -> Samples:
    """Run the sampler and keep what comes after the burn-in."""
    rng = np.random.default_rng(seed)
    state = _State(table, evidence, family, features=features, factors=settings.factors, rng=rng)
    kept: list[tuple[Floats, Floats]] = []
    for sweep in range(settings.sweeps):
        state.step(sweep)
        if sweep >= settings.burn:
            kept.append((state.users.with_stranger(), state.items.with_stranger()))
        if progress is not None:
            progress((sweep + 1) / settings.sweeps, f"sweep {sweep + 1} of {settings.sweeps}")
    return Samples(
        center=state.center,
        users=np.stack([pair[0] for pair in kept]).astype(np.float32),
        items=np.stack([pair[1] for pair in kept]).astype(np.float32),
    )


class _State:
    """Where the chain is."""

    def __init__(
        self,
        table: PairTable,
        evidence: Evidence,
        family: RatingFamily,
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
            side.meet(across)
        self.center = common_mean(evidence, family, len(table))
        for side in (self.users, self.items):
            side.factors[:] = 0.1 * rng.standard_normal(side.factors.shape)
            side.factors[:, side.bias], side.factors[:, 1 - side.bias] = 1.0, 0.0
        informed = evidence.responses is not None or evidence.numbers is not None
        size = len(table) if informed else 0
        self.target, self.weight = np.zeros(size), np.zeros(size)
        self.average = np.full(len(table), self.center)
        self.current = np.zeros(len(table))
        self._predict()

    def step(self, sweep: int) -> None:
        """One pass over hyperparameters, items and users."""
        self._look(sweep)
        if sweep > 0:
            self.items.draw_prior(self.rng)
            self.users.draw_prior(self.rng)
        self._refresh()
        for side, across in ((self.items, self.users), (self.users, self.items)):
            self._pass(side, across)
            side.draw_slope(across, self.rng)
            self._predict()
            self._refresh()
        rate = max(1.0 / (sweep + 1), _RATE)
        self.average += rate * (self.center + self.current - self.average)

    def _refresh(self) -> None:
        variance = self.family.variance(self.center)
        for side in (self.users, self.items):
            side.refresh(self.current, self.center, variance)

    def _look(self, sweep: int) -> None:
        """Set targets, relative to the center, and weights from what was released."""
        from labeldp.learn.ratings import _kernels as kernels

        told = self.evidence.responses
        if told is not None:
            low, step = float(self.family.grid[0]), float(self.family.grid[1] - self.family.grid[0])
            tables = (told.column, told.matrix, told.score, told.information)
            kernels.linearise(self.average, *tables, low, step, self.target, self.weight)
            self.target -= self.center
        elif self.evidence.numbers is not None:
            self.target[:] = self.evidence.numbers - self.center
            usual = len(self.target) * self.family.variance(self.center)
            left = float(((self.target - self.current) ** 2).sum()) if sweep > 0 else usual
            # A hundredth of the usual variance is always left: ratings that fit exactly would have infinite precision.
            self.weight[:] = self.rng.chisquare(len(self.target)) / (left + 0.01 * usual)

    def _pass(self, side: Side, across: Side) -> None:
        from labeldp.learn.ratings import _kernels as kernels

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

    def _predict(self) -> None:
        from labeldp.learn.ratings import _kernels as kernels

        kernels.products(self.items.other, self.users.other, self.users.factors, self.items.factors, self.current)


def common_mean(evidence: Evidence, family: RatingFamily, n: int) -> float:
    """Return the mean of all ratings as the evidence has it: from sums, outputs or numbers, in this order."""
    for sums in (evidence.by_user, evidence.by_item):
        if sums is not None:
            return float(np.clip(sums.sums.sum() / n, family.grid[0], family.grid[-1]))
    if evidence.responses is not None:
        return evidence.responses.mean(family)
    if evidence.numbers is not None:
        return float(evidence.numbers.mean())
    return float(family.values[0] + family.values[-1]) / 2
