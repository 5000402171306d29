"""The bounds of Theorems 1 and 4 of Jain and Thakurta: against measured risks, and what they say of the prescribed parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.errors import LabelDPError
from labeldp.learn.convex import OutputPerturbation, SimplexERM
from labeldp.learn.convex.bounds import (
    balance_output,
    bound_output_risk,
    bound_simplex_risk,
    prescribe_output,
    prescribe_simplex,
)
from labeldp.learn.convex.losses import Huber, Logistic, Softmax, Squared
from labeldp.learn.convex.simplex import sample_range

AT = {"loss": Logistic(), "radius": 1.0, "norm": 4.0, "epsilon": 1.0, "delta": 1e-5}


def draw(rng: np.random.Generator, n: int, width: int, best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows on the unit sphere and labels of a logistic model: its weights minimise the risk."""
    X = rng.normal(size=(n, width))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, (rng.random(n) < expit(X @ best)).astype(int)


def excess(X: np.ndarray, best: np.ndarray, weights: np.ndarray) -> float:
    """E loss(weights) - E loss(best), the mean over rows of a divergence: no labels are drawn."""
    p, z, zz = expit(X @ best), X @ best, X @ weights
    return float(np.mean(np.logaddexp(0, zz) - p * zz - np.logaddexp(0, z) + p * z))


@pytest.mark.parametrize("width", [2, 50])
def test_theorem_1_bounds_measured_risks(width: int):
    """The mean of 20 runs; the bound is on the expectation and several times larger, in 2 and in 50 dimensions alike."""
    rng, n = np.random.default_rng(0), 4000
    best = np.zeros(width)
    best[0] = AT["norm"]
    l2 = prescribe_output(n, loss=Logistic(), radius=1.0, norm=AT["norm"])
    test = draw(rng, 4000, width, best)[0]
    found = []
    for seed in range(20):
        X, y = draw(rng, n, width, best)
        model = OutputPerturbation(
            epsilon=1.0, clip=1.0, l2=l2, tolerance=1e-3, fit_intercept=False, classes=[0, 1], random_state=seed
        ).fit(X, y)
        found.append(excess(test, best, model.coef_[0]))
    bound = bound_output_risk(n, **AT, tolerance=1e-3)
    assert 0 < np.mean(found) < bound
    assert bound < math.log(2)  # it says more than that of predicting one half, whose loss is log 2


def test_theorem_1_has_the_terms_of_its_proof():
    n, s = 10_000, analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0)
    l2 = prescribe_output(n, loss=Logistic(), radius=1.0, norm=4.0)
    assert l2 == 25.0  # L R sqrt n / B
    expected = s / l2 + 2 / l2 + l2 * 16 / (2 * n)
    assert bound_output_risk(n, **AT) == pytest.approx(expected, rel=1e-12)
    # 1 / sqrt n; a record costs twice the noise of a label for logistic loss; more scores, more noise.
    assert bound_output_risk(4 * n, **AT) == pytest.approx(expected / 2, rel=1e-12)
    assert bound_output_risk(n, **AT, unit="record") == pytest.approx(expected + s / l2, rel=1e-12)
    assert bound_output_risk(n, **AT, n_scores=4) == pytest.approx(expected + s / l2, rel=1e-12)
    assert bound_output_risk(n, **{**AT, "epsilon": math.inf}) == pytest.approx(expected - s / l2, rel=1e-12)
    # The best penalty is sqrt(2 n A) / B, with A / l all terms but the last.
    best = math.sqrt(2 * n * (s + 2)) / 4.0
    around = [bound_output_risk(n, **AT, l2=best * share) for share in (0.9, 1.0, 1.1)]
    assert around[1] == min(around) < bound_output_risk(n, **AT)


def test_theorem_1_is_about_bounded_slopes():
    assert bound_output_risk(100, **{**AT, "loss": Softmax()}, n_scores=3) > 0
    with pytest.raises(LabelDPError, match="bounded slope"):
        bound_output_risk(100, **{**AT, "loss": Squared(two=True)})


def test_theorem_4_bounds_measured_risks():
    """Without privacy's part: what sampling, entropy and n examples cost, for the best theta of a model in the ball."""
    rng, n, width, radius = np.random.default_rng(1), 3000, 5, 2.0
    best = np.zeros(width)
    best[0] = radius
    test = rng.uniform(-1, 1, size=(4000, width))
    found, entropy = [], 60.0
    for seed in range(10):
        X = rng.uniform(-1, 1, size=(n, width))
        y = (rng.random(n) < expit(X @ best)).astype(int)
        model = SimplexERM(
            epsilon=400.0,
            clip=1.0,
            radius=radius,
            n_samples=50,
            entropy=entropy,
            fit_intercept=False,
            classes=[0, 1],
            random_state=seed,
        ).fit(X, y)
        found.append(excess(test, best, model.coef_[0]))
    bound = bound_simplex_risk(n, n_corners=2 * width, loss=Logistic(), reach=radius, entropy=entropy, n_samples=50)
    assert 0 < np.mean(found) < bound


def test_theorem_4_has_the_terms_of_its_proof():
    bound = bound_simplex_risk(1000, n_corners=8, loss=Logistic(), reach=3.0, entropy=50.0, n_samples=9)
    assert bound == pytest.approx(3 / 3 + 2 * 9 / 50 + 50 / 1000 * math.log(8), rel=1e-12)


def test_theorem_4_prescribes_no_sample_until_n_is_ten_million():
    at = {"n_corners": 1000, "loss": Logistic(), "reach": 1.0, "epsilon": 1.0, "delta": 1e-5}
    counts = [prescribe_simplex(10**k, **at).n_samples for k in (4, 5, 6, 7, 8, 9)]
    assert counts[:3] == [0, 0, 0]
    assert counts[4] > 1
    plan = prescribe_simplex(1000, **{**at, "epsilon": 8.0, "n_corners": 3})
    assert plan.entropy == pytest.approx(100 / (8 * math.log(3)) ** (1 / 3), rel=1e-12)


def test_theorem_4_prescription_is_private_where_it_draws():
    """Its m and l by our accounting, with the distance 2 L R / l for records: within (1, 1e-5), by far."""
    from labeldp.guarantee import Guarantee, Unit

    n, p = 10**9, 1000
    plan = prescribe_simplex(n, n_corners=p, loss=Logistic(), reach=1.0, epsilon=1.0, delta=1e-5)
    each = sample_range(
        Logistic(),
        entropy=plan.entropy,
        tolerance=0.0,
        reach=1.0,
        n_examples=n,
        n_corners=p,
        unit=Unit.RECORD_REPLACE,
    )
    assert plan.n_samples > 10
    assert Guarantee.bounded_range(each).times(plan.n_samples).epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("loss", [Logistic(), Softmax(), Huber(), Squared(two=True), Squared(two=False)])
def test_the_trace_of_the_hessian_keeps_its_bound(loss):
    """Columns of the Hessian are directional derivatives along the scores; the bound is reached somewhere."""
    rng, classes = np.random.default_rng(1), 2 if loss.n_scores(3) == 1 else 3
    scores = np.vstack([np.zeros((1, loss.n_scores(classes))), 3 * rng.normal(size=(500, loss.n_scores(classes)))])
    scores = np.vstack([scores, np.ones_like(scores[:1])])
    targets = np.eye(classes)[rng.integers(classes, size=len(scores))]
    trace = np.zeros(len(scores))
    for column in range(scores.shape[1]):
        change = np.zeros_like(scores)
        change[:, column] = 1.0
        trace += loss.bend(scores, targets, change)[:, column]
    assert trace.max() == pytest.approx(loss.bend_bound(classes), rel=1e-12)  # a handful of roundings


def test_noise_costs_its_second_order_and_the_balance_is_least():
    """The mean over 4,000 draws of noise is below T R^2 s^2 / 2: its standard error is a fiftieth of that."""
    rng, best = np.random.default_rng(2), np.array([4.0, 0.0, 0.0])
    X, spread = draw(rng, 2000, 3, best)[0], 0.5
    moved = [excess(X, best, best + spread * rng.normal(size=3)) for _ in range(4000)]
    assert np.mean(moved) < Logistic().bend_bound(2) * spread**2 / 2

    n, s = 10_000, analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0)

    def cost(l2: float) -> float:
        return 0.25 * (s / l2) ** 2 / 2 + l2 * AT["norm"] ** 2 / (2 * n)

    found = balance_output(n, **AT)
    # Near a minimum the cost is flat: the search's place is right to the root of its precision.
    assert minimize_scalar(cost, bounds=(1.0, 100.0), method="bounded").x == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("n", [1_000, 4_000])
def test_the_default_penalty_is_no_worse_than_the_papers_which_knows_the_best_weights(n: int):
    """Twelve runs each with fixed seeds; the default knows neither the best weights nor their length."""
    rng, best = np.random.default_rng(3), np.array([8.0, *np.zeros(19)])
    test = draw(rng, 4000, 20, best)[0]
    found = {"auto": [], prescribe_output(n, loss=Logistic(), radius=1.0, norm=8.0): []}
    for seed in range(12):
        X, y = draw(rng, n, 20, best)
        for l2, risks in found.items():
            model = OutputPerturbation(clip=1.0, l2=l2, fit_intercept=False, classes=[0, 1], random_state=seed)
            risks.append(excess(test, best, model.fit(X, y).coef_[0]))
    ours, theirs = (np.mean(risks) for risks in found.values())
    assert ours <= theirs


def test_the_default_penalty_is_the_balance_of_its_unit_and_classes():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(300, 4)), rng.integers(3, size=300)
    at = {"epsilon": 2.0, "delta": 1e-6}
    for unit in ("label", "record"):
        model = OutputPerturbation(**at, clip=2.0, unit=unit, fit_intercept=False, classes=range(3), random_state=0)
        balance = balance_output(300, loss=Softmax(), radius=2.0, norm=2.5, n_classes=3, unit=unit, **at)
        assert model.fit(X, y).l2_ == pytest.approx(balance, rel=1e-12)  # the radius is rounded up
    assert OutputPerturbation(epsilon=math.inf, clip=1.0, classes=range(3)).fit(X, y).l2_ == 1.0
