"""Class moments: exact sensitivities of the rounded integers on thousands of neighbours, and heads that use them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.guarantee import SEEDED, Trust, did_not_see
from labeldp.learn.convex import SufficientStatistics
from labeldp.learn.convex.base import RowMap
from labeldp.learn.convex.losses import Softmax, one_hot
from labeldp.learn.convex.moments import (
    ClassMoments,
    choose_ridge,
    complete_sums,
    cut_to_grid,
    estimate_risks,
    solve_ridge,
    solve_softmax,
)
from labeldp.learn.convex.output import Regularised, find_minimum

DRAWS = st.integers(min_value=0, max_value=2**32 - 1)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_neighbours_never_differ_by_more_than_the_sensitivity_and_the_worst_row_reaches_it(n_classes: int):
    """400 random data sets for each K, a random and the worst row replaced in each; integer arithmetic, no tolerance."""
    rng = np.random.default_rng(n_classes)
    for _ in range(400):
        n, width = int(rng.integers(2, 7)), int(rng.integers(1, 5))
        rows = cut_to_grid(
            RowMap(clip=1.0, unit=False, constant=0.25).apply(rng.normal(size=(n, width))), bound=1.1, bits=6
        )
        query = ClassMoments(rows=rows)
        claimed = query.sensitivity(n_classes=n_classes)
        codes = rng.integers(n_classes, size=n)
        base = query.exact(codes, n_classes=n_classes)
        worst = int((rows * rows).sum(axis=1).argmax())
        for place in (int(rng.integers(n)), worst):
            other = codes.copy()
            other[place] = (other[place] + rng.integers(1, n_classes)) % n_classes
            change = query.exact(other, n_classes=n_classes) - base
            square = int((change * change).sum())
            assert Fraction(square) <= Fraction(claimed.l2) ** 2
            assert np.abs(change).sum() <= claimed.l1
        assert math.sqrt(square) >= claimed.l2 * (1 - 1e-15)


@given(seed=DRAWS, bits=st.integers(min_value=1, max_value=20), clip=st.floats(min_value=1e-3, max_value=1e3))
def test_rounding_towards_zero_keeps_the_clip_bound(seed: int, bits: int, clip: float):
    rows = np.random.default_rng(seed).normal(scale=clip, size=(20, 7))
    bounded = RowMap(clip=clip, unit=False, constant=0.25 * clip)
    grid = cut_to_grid(bounded.apply(rows), bound=bounded.radius, bits=bits)
    assert int((grid * grid).sum(axis=1).max()) <= (1 << bits) ** 2


def test_rounding_to_the_nearest_would_break_the_clip_bound():
    """The broken twin: eight entries of 0.6 grid steps have norm 1.7 steps, and round to norm 2.8."""
    row = np.full((1, 8), 0.6)
    bound = float(np.linalg.norm(row))
    assert np.linalg.norm(np.rint(row)) > bound
    assert np.linalg.norm(cut_to_grid(row, bound=1.0, bits=0)) <= bound


def test_sparse_rows_give_the_same_integers_and_stay_sparse():
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(30, 9)) * (rng.random((30, 9)) < 0.3)
    codes = rng.integers(4, size=30)
    grid, sparse_grid = (cut_to_grid(rows, bound=3.0, bits=10) for rows in (dense, scipy.sparse.csr_matrix(dense)))
    assert scipy.sparse.issparse(sparse_grid)
    assert sparse_grid.dtype == np.int64
    one, two = ClassMoments(rows=grid), ClassMoments(rows=sparse_grid)
    assert (one.exact(codes, n_classes=4) == two.exact(codes, n_classes=4)).all()
    assert one.sensitivity(n_classes=4) == two.sensitivity(n_classes=4)


def test_exact_is_the_sum_over_each_class():
    rng = np.random.default_rng(2)
    rows, codes = rng.integers(-9, 9, size=(50, 3)), rng.integers(3, size=50)
    expected = np.stack([rows[codes == k].sum(axis=0) for k in range(3)])
    assert (ClassMoments(rows=rows).exact(codes, n_classes=3) == expected).all()
    binary = ClassMoments(rows=rows).exact(codes % 2, n_classes=2)
    assert (binary == rows[codes % 2 == 1].sum(axis=0)).all()


def test_completion_uses_the_public_total():
    total = np.array([6.0, 3.0])
    np.testing.assert_allclose(complete_sums(np.array([[1.0, 2.0]]), total), [[5.0, 1.0], [1.0, 2.0]])
    projected = complete_sums(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), total)
    np.testing.assert_allclose(projected.sum(axis=0), total)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_grid_refuses_what_is_not_finite_or_does_not_fit(bad: float, sparse: bool):
    rows = np.array([[0.5, 0.0], [0.0, bad]])
    with pytest.raises(LabelDPError, match="finite and fit in 64 bits, got 1 of"):
        cut_to_grid(scipy.sparse.csr_matrix(rows) if sparse else rows, bound=1.0, bits=14)


def test_sparse_entries_stored_in_parts_are_cut_as_their_sum():
    """Parts of 0.6 steps are nothing each; their sum of 1.2 steps is 1, as it is for the dense matrix."""
    parts = scipy.sparse.csr_matrix((np.array([0.6, 0.6]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    assert cut_to_grid(parts, bound=1.0, bits=0).toarray().tolist() == [[1]]
    assert cut_to_grid(parts.toarray(), bound=1.0, bits=0).tolist() == [[1]]


def test_the_most_negative_integer_has_no_small_absolute_value():
    """abs(-2^63) is -2^63: a bound taken of absolute values in 64 bits lets it pass."""
    with pytest.raises(LabelDPError, match="fit in 64 bits"):
        ClassMoments(rows=np.array([[-(2**63), 1]]))
    with pytest.raises(LabelDPError, match="fit in 64 bits"):
        ClassMoments(rows=scipy.sparse.csr_matrix(np.array([[-(2**63), 0]])))


def test_overflow_and_wrong_types_are_refused():
    with pytest.raises(LabelDPError, match="int64 matrix"):
        ClassMoments(rows=np.ones((2, 2)))
    with pytest.raises(LabelDPError, match="fit in 64 bits"):
        ClassMoments(rows=np.full((2, 2), 2**61))
    with pytest.raises(LabelDPError, match="one row per label"):
        ClassMoments(rows=np.ones((2, 2), np.int64)).exact(np.zeros(3, int), n_classes=2)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_guarantee_noise_and_sensitivity(n_classes: int, delta: float):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(400, 5)), rng.integers(n_classes, size=400)
    model = SufficientStatistics(
        epsilon=0.7, delta=delta, clip="unit-norm", fit_intercept=False, classes=range(n_classes), random_state=0
    ).fit(X, y)
    assert model.guarantee_.epsilon(delta) <= 0.7
    assert model.guarantee_.trust is Trust.CURATOR
    assert model.guarantee_.assumptions == (SEEDED, *did_not_see("features"))  # exact noise: no note on floating point
    assert model.noise_.startswith("discrete Laplace" if delta == 0 else "discrete Gaussian")
    # Rows have norm 1 but for the grid of 2^-14.
    assert model.sensitivity_.l2 == pytest.approx(1.0 if n_classes == 2 else math.sqrt(2.0), rel=1e-3)
    assert model.sensitivity_.l1 <= (1.0 if n_classes == 2 else 2.0) * math.sqrt(5)
    assert model.moments_.shape == (n_classes, 5)
    np.testing.assert_allclose(model.coef_.shape, (n_classes, 5))


def test_noise_of_the_released_moments_has_the_stated_spread():
    """3000 entries, of which the public total leaves 2000 free: their mean square is chi-square with 2000 degrees.

    Beyond 18 % of its expectation, either way, lies a probability below 1e-6 (5.7 sigma; scipy.stats.chi2: 5e-8 or so).
    Half and twice the noise are caught.
    """
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(500, 1000)), rng.integers(3, size=500)
    settings = {"clip": "unit-norm", "classes": range(3), "fit_intercept": False, "l2": 1.0}
    noisy = SufficientStatistics(epsilon=1.0, random_state=1, **settings).fit(X, y)
    exact = SufficientStatistics(epsilon=math.inf, random_state=1, **settings).fit(X, y)
    spread = float(np.mean((noisy.moments_ - exact.moments_) ** 2)) / (noisy.noise_scale_**2 * 2 / 3)
    assert abs(spread - 1.0) < 0.18
    assert abs(spread * 4.0 - 1.0) > 0.18
    assert abs(spread / 4.0 - 1.0) > 0.18


def test_estimated_risk_is_unbiased_up_to_a_constant():
    """The estimate is linear in the squared moments: put their expectation in, and compare with the true risk."""
    rng = np.random.default_rng(5)
    values, weights, noise = rng.uniform(0.1, 50, size=8), rng.normal(size=8), 3.0
    penalties = np.logspace(-2, 3, 40)
    expected_squares = (values * weights) ** 2 + noise**2
    estimate = estimate_risks(values, expected_squares, variance=noise**2, penalties=penalties)
    shrunk = values + penalties[:, None]
    truth = (values * ((values * weights / shrunk - weights) ** 2 + noise**2 / shrunk**2)).sum(axis=1)
    np.testing.assert_allclose(truth - estimate, (values * weights**2).sum(), rtol=1e-9)


def test_more_noise_asks_for_more_penalty():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(200, 6))
    moments = rng.normal(scale=30, size=(3, 6))
    chosen = [choose_ridge(rows.T @ rows, moments, noise=noise, n=200) for noise in (0.0, 5.0, 20.0, 60.0)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_without_noise_the_heads_are_ridge_and_softmax_regression():
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 4))
    y = np.argmax(X[:, :3] + rng.normal(size=(300, 3)), axis=1)
    settings = {"epsilon": math.inf, "clip": 50.0, "fit_intercept": False, "l2": 3.0, "grid_bits": 30}
    model = SufficientStatistics(**settings).fit(X, y)
    peer = Ridge(alpha=3.0, fit_intercept=False).fit(X, np.eye(3)[y] - 1 / 3)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)  # the grid is 50 2^-30 = 5e-8 wide
    soft = SufficientStatistics(head="softmax", **settings).fit(X, y)
    problem = Regularised(rows=X, targets=one_hot(y, 3), loss=Softmax(), l2=3.0)
    best = find_minimum(problem, tolerance=1e-8)
    np.testing.assert_allclose(soft.coef_, best, atol=1e-3)  # the head stops at a gradient of 1e-6 n
    np.testing.assert_allclose(solve_ridge(np.eye(2), np.array([[2.0, 4.0]]), l2=1.0), [[1.0, 2.0]])


def test_softmax_head_is_bounded_even_where_noise_left_the_range_of_moments():
    rows = np.ones((10, 1))
    weights = solve_softmax(rows, np.array([[50.0], [-40.0]]), np.zeros((1, 2)), l2=1.0)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("head", ["ridge", "softmax"])
def test_a_belief_about_each_row_is_used_and_asked_for_again(head: str):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(2000, 3))
    y = (X[:, 0] > 0).astype(int)
    belief = np.where((y == 1)[:, None], [0.3, 0.7], [0.7, 0.3])
    model = SufficientStatistics(head=head, clip=2.0, random_state=0, classes=[0, 1])
    model.fit(X, y, centre=belief)
    with pytest.raises(LabelDPError, match="`centre` must be given"):
        model.predict(X)
    assert np.mean(model.predict(X, centre=belief) == y) > 0.95
    uniform = model.fit(X, y)
    assert uniform.centre_ is not None
    common = uniform.fit(X, y, centre=[0.5, 0.5]).predict_proba(X)
    np.testing.assert_allclose(common.sum(axis=1), 1.0)
    with pytest.raises(LabelDPError, match="`centre` must have"):
        model.fit(X, y, centre=belief[:7])
    with pytest.raises(LabelDPError, match="sum to 1"):
        model.fit(X, y, centre=[0.5, 0.6])


@pytest.mark.parametrize("seed", range(8))
def test_the_penalty_is_not_fooled_by_directions_without_extent(seed):
    """One-hot columns are linearly dependent: along those directions the moments are noise, and must not ask for l2 = 0."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (2000, 6))
    X = np.concatenate([np.eye(4)[column] for column in codes.T], axis=1) / np.sqrt(6)  # rank 19 of 24
    signal = X.T @ (rng.random(2000) < 0.5)
    noise = 30.0
    gram, moments = X.T @ X, (signal - X.sum(axis=0) / 2 + noise * rng.normal(size=24))[None]
    # With noise this loud the estimate must shrink: less than the mean eigenvalue would multiply noise, not signal.
    assert choose_ridge(gram, moments, noise=noise, n=2000) > np.trace(gram) / 24 / 10
