"""Totals of groups: the density of noise plus sampling, models from others' totals, and rounds on disjoint rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from labeldp.accounting import Ledger
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import GaussianNoise, LaplaceNoise, PrivateGLM
from labeldp.learn.convex.totals import GroupTotals, choose_groups, cluster_rows
from labeldp.release import SensitiveLabels


def conversions(n: int = 12_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, counts with mean exp(-1 + x_0 / 2), and public groups that follow the features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.minimum(rng.poisson(np.exp(-1.0 + 0.5 * X[:, 0])), 5)
    groups = np.searchsorted(np.quantile(X[:, 0] + 0.3 * rng.normal(size=n), np.linspace(0, 1, 61)[1:-1]), X[:, 0])
    return X, y.astype(float), groups


# ------------------------------------------------------------------------------------------------- the density


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("variance", [0.01, 1.0, 400.0])
def test_the_density_is_the_convolution_and_its_slope_the_derivative(scale: float, variance: float):
    """Against numerical integration, whose own tolerance is 1e-9."""
    spread = math.sqrt(variance)
    at = np.array([-3.0, -0.5, 0.0, 1.0, 6.0]) * math.hypot(scale, spread)
    value, slope = LaplaceNoise(scale).log_density(at, np.full(len(at), variance))
    for residual, found in zip(at, value, strict=True):
        exact, _ = scipy.integrate.quad(
            lambda z, residual=residual: (
                scipy.stats.laplace.pdf(z, scale=scale) * scipy.stats.norm.pdf(residual - z, scale=spread)
            ),
            residual - 12 * spread,  # beyond it the normal has nothing left
            residual + 12 * spread,
            points=[0.0] if abs(residual) < 12 * spread else None,
            limit=500,
            epsabs=1e-14,
        )
        assert found == pytest.approx(math.log(exact), abs=1e-5)
    step = 1e-5 * math.hypot(scale, spread)
    ahead, behind = (LaplaceNoise(scale).log_density(at + s, np.full(len(at), variance))[0] for s in (step, -step))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-8 / scale)


def test_a_total_far_off_pulls_no_harder_than_one_over_the_scale():
    value, slope = LaplaceNoise(2.0).log_density(np.array([1e6, -1e6]), np.ones(2))
    assert np.isfinite(value).all()
    np.testing.assert_allclose(slope, [-0.5, 0.5])
    _, gaussian = GaussianNoise(2.0).log_density(np.array([1e6]), np.ones(1))
    assert abs(gaussian[0]) > 1e5


def test_scales_are_checked_and_a_report_has_twice_its_largest_value():
    assert LaplaceNoise.of_report(max_value=65536, epsilon=14.0).scale == pytest.approx(2 * 65536 / 14)
    assert GaussianNoise(0.0).variance == 0.0
    for bad in (-1.0, math.nan, math.inf, "a", [[1.0]]):
        with pytest.raises(LabelDPError):
            GaussianNoise(bad)
        with pytest.raises(LabelDPError):
            LaplaceNoise(bad)
    with pytest.raises(LabelDPError):
        LaplaceNoise(0.0)


# ------------------------------------------------------------------------------------------------- others' totals


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "each"])
def test_a_model_is_found_from_totals_that_others_released(kind: str):
    X, y, groups = conversions()
    rng = np.random.default_rng(1)
    exact = np.bincount(groups, weights=y)
    scale: Any = np.linspace(5.0, 15.0, len(exact)) if kind == "each" else 10.0
    noisy = exact + (rng.normal(size=len(exact)) if kind == "gaussian" else rng.laplace(size=len(exact))) * scale
    noise: Any = GaussianNoise(scale) if kind == "gaussian" else LaplaceNoise(scale)
    model = PrivateGLM("poisson", bounds=(0, 5)).fit_measurement(X, groups=groups, sums=noisy, noise=noise)
    # 60 groups of 200 rows, whose mean of x_0 has a spread of 1: the slope's error is about 10 / (80 sqrt 60).
    assert model.coef_[0] == pytest.approx(0.5, abs=0.15)
    assert model.intercept_ == pytest.approx(-1.0, abs=0.15)
    assert abs(model.coef_[1]) < 0.4  # groups say nothing of it, and the prior keeps it small


def test_the_promise_is_theirs_and_nothing_is_spent(tmp_path: Any):
    X, y, groups = conversions(2000)
    sums, noise = np.bincount(groups, weights=y), LaplaceNoise(5.0)
    ledger = Ledger(tmp_path / "ledger")
    model = PrivateGLM("poisson", bounds=(0, 5), ledger=ledger)
    model.fit_measurement(X, groups=groups, sums=sums, noise=noise)
    assert math.isinf(model.guarantee_.epsilon())
    assert "assumes: nothing is known of what the totals promise" in str(model.guarantee_)
    theirs = Guarantee.pure(2.0, trust=Trust.CURATOR)
    model.fit_measurement(X, groups=groups, sums=sums, noise=noise, promise=theirs)
    assert model.guarantee_.epsilon() == 2.0
    assert "released by someone else: the promise is theirs" in str(model.guarantee_)
    assert ledger.entries() == ()


def test_rows_may_stand_for_many_labels_each():
    """A survey's table: one row a group, its mean features, how many people it has, and their total."""
    rng = np.random.default_rng(2)
    X, counts = rng.normal(size=(400, 2)), rng.integers(5, 200, size=400)
    sums = counts * (3.0 + X @ [1.0, -0.5]) + rng.normal(size=400) * np.sqrt(counts) + rng.normal(size=400) * 4.0
    model = PrivateGLM("gaussian", bounds=(-10, 10)).fit_measurement(
        X, groups=np.arange(400), sums=sums, noise=GaussianNoise(4.0), counts=counts
    )
    np.testing.assert_allclose([*model.coef_, model.intercept_], [1.0, -0.5, 3.0], atol=0.05)


def test_exposure_scales_the_mean_of_a_group():
    X, _, groups = conversions(20_000)
    rng = np.random.default_rng(3)
    years = rng.uniform(0.1, 2.0, size=len(X))
    y = rng.poisson(years * np.exp(-1.0 + 0.5 * X[:, 0]))
    model = PrivateGLM("poisson", bounds=(0, 10)).fit_measurement(
        X, groups=groups, sums=np.bincount(groups, weights=y), noise=GaussianNoise(1.0), exposure=years
    )
    np.testing.assert_allclose([model.coef_[0], model.intercept_], [0.5, -1.0], atol=0.1)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"groups": np.full(200, 9)}, "below n_groups"),
        ({"groups": np.full(200, -1)}, "numbered from 0"),
        ({"groups": np.zeros(199, int)}, "one entry per row of X"),
        ({"groups": np.zeros(200)}, "`groups` must be integers"),
        ({"sums": [1.0, math.nan]}, "missing"),
        ({"sums": [1.0, math.inf]}, "finite"),
        ({"sums": ["a", "b"]}, "`sums` must be numbers"),
        ({"noise": 3.0}, "`noise` must be the noise"),
        ({"noise": LaplaceNoise([1.0, 2.0, 3.0])}, "one for each sum"),
        ({"counts": np.full(200, -1)}, "`counts` must be"),
        ({"promise": 1.0}, "`promise` must be"),
    ],
)
def test_bad_totals_are_refused(given: dict[str, Any], match: str):
    X = np.random.default_rng(4).normal(size=(200, 2))
    right = {"groups": np.arange(200) % 2, "sums": [10.0, 20.0], "noise": LaplaceNoise(1.0)}
    with pytest.raises(LabelDPError, match=match):
        PrivateGLM("poisson", bounds=(0, 5)).fit_measurement(X, **{**right, **given})
    with pytest.raises(LabelDPError, match="one of numbers"):
        PrivateGLM("multinomial").fit_measurement(X, **right)


# ------------------------------------------------------------------------------------------------- rounds


def test_a_replaced_label_moves_one_total_by_the_range_at_most():
    rng = np.random.default_rng(5)
    for _ in range(200):
        n, size = int(rng.integers(2, 8)), int(rng.integers(1, 4))
        query = GroupTotals(scores=np.arange(7) * 3, groups=rng.integers(size, size=n), n_groups=size)
        codes = rng.integers(7, size=n)
        other = codes.copy()
        other[int(rng.integers(n))] = rng.integers(7)
        change = query.exact(other, n_classes=7) - query.exact(codes, n_classes=7)
        claimed = query.sensitivity(n_classes=7)
        assert claimed == (18.0, 18.0)
        assert np.abs(change).sum() <= claimed.l1
        assert np.count_nonzero(change) <= 1
    with pytest.raises(LabelDPError, match="one entry per label"):
        query.check_size(n + 1)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_noise_of_every_round_is_that_of_the_whole_epsilon(rounds: int):
    """All labels at their lower bound: totals are 0, and what is released is the noise.

    Sizes of Laplace noise over its scale R / epsilon are exponential: their sum is gamma distributed, outside these limits with
    probability 1e-6. Rounds at epsilon / 3, as if they asked about the same rows, would have sizes of 3; half the noise 1/2.
    """
    X = np.random.default_rng(6).normal(size=(9000, 3))
    settings = {"bounds": (0, 2), "epsilon": 2.0, "statistic": "groups", "rounds": rounds, "random_state": 0}
    model = PrivateGLM("poisson", **settings, n_groups=300 // rounds).fit(X, np.zeros(9000))
    sizes = np.abs(model.statistic_)  # R / epsilon is 1
    low, high = scipy.stats.gamma.ppf([5e-7, 1 - 5e-7], a=len(sizes))
    assert len(sizes) > 200
    assert low < sizes.sum() < high
    assert not low < 3 * sizes.sum() < high
    assert not low < sizes.sum() / 2 < high
    assert model.guarantee_.epsilon() <= 2.0
    assert model.noise_scale_ == pytest.approx(math.sqrt(2))


def test_totals_without_noise_are_those_of_disjoint_groups():
    X, y, _ = conversions(3000)
    model = PrivateGLM("poisson", bounds=(0, 5), epsilon=math.inf, statistic="groups", rounds=3, random_state=0)
    model.fit(X, y)
    assert model.statistic_.sum() == pytest.approx(y.sum(), abs=1e-6)  # every label once


def test_rounds_learn_more_than_one_noisy_sum_at_pure_epsilon():
    """Forty columns of three, delta = 0: the 1-norm of a row grows with the root of their number, a group's total does not."""
    rng = np.random.default_rng(7)
    body = rng.normal(size=(6000, 3))
    X = body @ rng.normal(size=(3, 40)) + 0.1 * rng.normal(size=(6000, 40))
    y = np.clip(body[:, 0] + 0.5 * body[:, 1] + 0.3 * rng.normal(size=6000), -3, 3)
    scores = [
        PrivateGLM(epsilon=0.2, delta=0.0, bounds=(-3, 3), statistic=statistic, random_state=0)
        .fit(X, y)
        .score(X, y, labels_are_public=True)
        for statistic in ("moments", "groups")
    ]
    assert scores[1] > scores[0]
    assert scores[1] > 0.5


def test_groups_are_chosen_from_features_and_public_numbers():
    rows = np.random.default_rng(8).normal(size=(500, 2))
    assert np.array_equal(cluster_rows(rows, 20), cluster_rows(rows, 20))
    assert set(cluster_rows(np.zeros((9, 2)), 3)) == {0}
    assert choose_groups(100, 1e-3) == 4
    assert choose_groups(3, 1.0) == 3
    boxed = SensitiveLabels([0, 1, 2] * 100, n_classes=3)
    model = PrivateGLM("poisson", bounds=(0, 2), statistic="groups", random_state=0).fit(rows[:300], boxed)
    said = "the bounds [0, 2] did not see these labels; numbers outside were clipped to them"
    assert said in model.guarantee_.assumptions


def test_more_rounds_than_rows_are_refused():
    with pytest.raises(LabelDPError, match="leave each round a row"):
        PrivateGLM("poisson", bounds=(0, 2), statistic="groups", rounds=5).fit(np.ones((3, 1)), [0, 1, 2])
