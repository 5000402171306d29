"""The sampler's steps against dense linear algebra: each must be the exact conditional of one joint Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labeldp.channel import MeanTable, NormalLaws
from labeldp.learn.ratings.gibbs import RIDGE, Chain, Evidence
from labeldp.learn.ratings.pairs import CellSums, PairTable

N_USERS, N_ITEMS, K = 5, 4, 3


class Silent(np.random.Generator):
    """A generator whose normals are zero: a conditional's draw is then its mean."""

    def standard_normal(self, size: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        return np.zeros(() if size is None else size)


def small_state(*, sums: bool, numbers: bool) -> tuple[Chain, PairTable, Evidence]:
    """Return a state with some of everything, at random factors."""
    rng = np.random.default_rng(11)
    grid = [(u, i) for u in range(N_USERS) for i in range(N_ITEMS) if (u + 2 * i) % 3]
    table = PairTable.of(np.asarray([*grid, grid[-1], grid[-1], grid[3]]))  # two pairs occur more than once
    noisy = lambda n, g: rng.normal(5, 2, (n, g))  # noqa: E731
    by_user = CellSums(sums=noisy(N_USERS, 2), groups=np.array([0, 1, 0, 1]), noise_variance=3.0)
    by_item = CellSums(sums=noisy(N_ITEMS, 3), groups=np.array([0, 1, 2, 0, 1]), noise_variance=5.0)
    evidence = Evidence(
        numbers=rng.uniform(1, 5, len(table)) if numbers else None,
        by_user=by_user if sums else None,
        by_item=by_item if sums else None,
    )
    features = (rng.normal(size=(N_USERS, 2)), rng.normal(size=(N_ITEMS, 2)))
    family, first = MeanTable.of(NormalLaws((1, 2, 3, 4, 5))), np.random.default_rng(5)
    state = Chain(table, evidence, family, features=features, factors=K, rng=first)
    for side in (state.users, state.items):
        side.slope = rng.normal(size=side.slope.shape)
        side.factors[:] = rng.normal(size=side.factors.shape)
        root = rng.normal(size=(K, K))
        side.precision = root @ root.T + np.eye(K)
    if numbers:
        state.target[:] = rng.normal(size=len(table))
        state.weight[:] = rng.uniform(0.5, 2.0, len(table))
    state.predict()
    state.refresh()
    return state, table, evidence


def log_density(state: Chain, evidence: Evidence, users: np.ndarray, items: np.ndarray, slopes: Any) -> float:
    """The joint log density of everything at these factors and slopes, from its definition, up to a constant."""
    left, right = state.items.other, state.users.other
    mean = np.einsum("ek,ek->e", users[left], items[right])
    total = -0.5 * float((state.weight * (state.target - mean) ** 2).sum()) if len(state.target) else 0.0
    variance = state.family.variance(state.center)
    for side, sums in ((state.users, evidence.by_user), (state.items, evidence.by_item)):
        if sums is None:
            continue
        for cell, value in enumerate(sums.sums.reshape(-1)):
            inside = side.cell == cell
            expected = float((mean[inside] + state.center).sum())
            total -= 0.5 * (value - expected) ** 2 / (sums.noise_variance + variance * inside.sum())
    for side, factors, slope in ((state.users, users, slopes[0]), (state.items, items, slopes[1])):
        away = factors - side.features @ slope
        total -= 0.5 * float(np.einsum("nk,kl,nl->", away, side.precision, away))
        total -= 0.5 * RIDGE * float(np.einsum("ak,kl,al->", slope, side.precision, slope))
    return total


def gradient(function: Any, point: np.ndarray) -> np.ndarray:
    """A central difference: exact for a quadratic, up to rounding."""
    answer, step = np.zeros(point.shape), 1e-4
    for place in np.ndindex(point.shape):
        up, down = point.copy(), point.copy()
        up[place] += step
        down[place] -= step
        answer[place] = (function(up) - function(down)) / (2 * step)
    return answer


@pytest.mark.parametrize(("sums", "numbers"), [(True, False), (False, True), (True, True)])
def test_a_pass_ends_every_row_at_the_top_of_its_conditional(sums, numbers):
    """Rows are drawn in turn, so the last row's conditional is the one that still holds after the pass."""
    state, _, evidence = small_state(sums=sums, numbers=numbers)
    state.rng = Silent(np.random.PCG64(0))
    for side, across in ((state.items, state.users), (state.users, state.items)):
        state.draw_side(side, across)
        slopes = (state.users.slope, state.items.slope)

        def at_row(row: np.ndarray, side: Any = side, slopes: Any = slopes) -> float:
            factors = side.factors.copy()
            factors[-1] = row
            users = factors if side is state.users else state.users.factors
            items = factors if side is state.items else state.items.factors
            return log_density(state, evidence, users, items, slopes)

        # The density is a quadratic with entries of order 1e2; rounding over a step of 1e-4 leaves 1e-8.
        assert gradient(at_row, side.factors[-1].copy()) == pytest.approx(np.zeros(K), abs=1e-6)
        broken = side.factors[-1] + 0.1
        assert np.abs(gradient(at_row, broken)).max() > 1e-2  # the check tells a row that is off
        state.predict()
        state.refresh()


@pytest.mark.parametrize(("sums", "numbers"), [(True, False), (False, True), (True, True)])
def test_residuals_follow_the_rows(sums, numbers):
    state, _, _ = small_state(sums=sums, numbers=numbers)
    state.draw_side(state.items, state.users)
    kept = [side.residual.copy() for side in (state.users, state.items)]
    state.predict()
    state.refresh()
    for side, before in zip((state.users, state.items), kept, strict=True):
        assert before == pytest.approx(side.residual, abs=1e-9)  # sums of some ten products


@pytest.mark.parametrize(("sums", "numbers"), [(True, False), (False, True), (True, True)])
def test_the_slope_step_ends_at_the_top_of_its_conditional(sums, numbers):
    """Moving B with the residuals U - F B held: the gradient along that direction is zero after the step."""
    state, _, evidence = small_state(sums=sums, numbers=numbers)
    for side, across in ((state.items, state.users), (state.users, state.items)):
        state.draw_side(side, across)
        side.draw_slope(across, Silent(np.random.PCG64(0)))
        state.predict()
        state.refresh()

        def along(slope: np.ndarray, side: Any = side) -> float:
            factors = side.factors + side.features @ (slope - side.slope)
            users, items = (
                factors if side is state.users else state.users.factors,
                factors if side is state.items else state.items.factors,
            )
            slopes = (slope, state.items.slope) if side is state.users else (state.users.slope, slope)
            return log_density(state, evidence, users, items, slopes)

        assert gradient(along, side.slope.copy()) == pytest.approx(np.zeros(side.slope.shape), abs=1e-5)
        assert np.abs(gradient(along, side.slope + 0.1)).max() > 1e-1


def test_draws_have_the_covariance_of_the_inverse():
    """20,000 draws of a row: each entry of the covariance is within six standard errors (failure below 1e-7 for all)."""
    from labeldp.learn.ratings.kernels import draw_row

    matrix = np.array([[2.0, 0.3], [0.3, 1.0]])
    rng, n = np.random.default_rng(0), 20_000
    draws = np.empty((n, 2))
    for r in range(n):
        draw_row(matrix.copy(), np.array([1.0, -1.0]), rng.standard_normal(2), draws[r])
    covariance = np.linalg.inv(matrix)
    error = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / n)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 6 * error)
    assert not np.all(np.abs(np.cov(1.5 * draws.T) - covariance) < 6 * error)  # a wrong scale is caught
    assert np.all(np.abs(draws.mean(axis=0) - covariance @ [1.0, -1.0]) < 6 * np.sqrt(np.diag(covariance) / n))


def test_the_prior_is_drawn_around_the_regression():
    """With 4,000 rows B and L are known: B within 0.1 of the truth and L within 20 %, ten times their deviations."""
    rng = np.random.default_rng(2)
    features = np.column_stack([np.ones(4_000), rng.normal(size=4_000)])
    table = PairTable.of(np.column_stack([np.arange(4_000), np.arange(4_000) % 7]))
    evidence = Evidence(numbers=rng.uniform(1, 5, 4_000))
    family = MeanTable.of(NormalLaws((1, 2, 3, 4, 5)))
    state = Chain(table, evidence, family, features=(features, np.ones((7, 1))), factors=2, rng=rng)
    slope = np.array([[1.0, 0.0], [0.5, -0.5]])
    state.users.factors[:] = features @ slope + 0.5 * rng.standard_normal((4_000, 2))
    state.users.draw_prior(rng)
    assert state.users.slope == pytest.approx(slope, abs=0.1)
    assert state.users.precision == pytest.approx(4 * np.eye(2), abs=0.8)
