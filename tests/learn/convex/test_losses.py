"""Losses: slopes and bends against finite differences, and the constants that sensitivity rests on, by scanning."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.learn.convex import LPRRSGD, LPNormalSGD, OutputPerturbation, SimplexERM
from labeldp.learn.convex.losses import Huber, Logistic, Loss, Softmax, Squared, SquaredHinge, choose_loss, one_hot

CASES = [
    (Logistic(), 2),
    (Softmax(), 2),
    (Softmax(), 4),
    (Huber(), 2),
    (Huber(width=0.1), 2),
    (SquaredHinge(), 2),
    (Squared(two=True), 2),
    (Squared(two=False), 3),
]


def ids(case: tuple[Loss, int]) -> str:
    return f"{case[0].name}-{case[1]}"


def random_problem(loss: Loss, n_classes: int, seed: int, n: int = 40):
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=2.0, size=(n, loss.n_scores(n_classes)))
    targets = rng.normal(size=(n, n_classes))
    targets += (1.0 - targets.sum(axis=1, keepdims=True)) / n_classes
    return rng, scores, targets


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_slopes_are_the_derivative_of_the_value(loss: Loss, n_classes: int):
    rng, scores, targets = random_problem(loss, n_classes, seed=1)
    step = 1e-6 * rng.normal(size=scores.shape)
    change = loss.value(scores + step, targets) - loss.value(scores - step, targets)
    # Central differences err by step^2 and by the rounding of a value of about 100: 1e-13 against steps of 1e-5.
    assert change / 2 == pytest.approx(np.vdot(loss.slopes(scores, targets), step), abs=1e-10)


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_bend_is_the_derivative_of_the_slopes(loss: Loss, n_classes: int):
    rng, scores, targets = random_problem(loss, n_classes, seed=2)
    step = 1e-6 * rng.normal(size=scores.shape)
    change = (loss.slopes(scores + step, targets) - loss.slopes(scores - step, targets)) / 2
    # A Huber score within the step of a corner would miss; with this seed none is.
    np.testing.assert_allclose(loss.bend(scores, targets, step), change, atol=1e-11)


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_loss_is_linear_in_the_target(loss: Loss, n_classes: int):
    _, scores, targets = random_problem(loss, n_classes, seed=3)
    parts = [loss.slopes(scores, one_hot(np.full(len(scores), k), n_classes)) for k in range(n_classes)]
    mixed = sum(targets[:, k : k + 1] * parts[k] for k in range(n_classes))
    np.testing.assert_allclose(loss.slopes(scores, targets), mixed, atol=1e-12)


def extreme_slopes(loss: Loss, n_classes: int) -> np.ndarray:
    """Slopes at a wide grid of scores for every label: (K, n, C)."""
    line = np.concatenate([np.linspace(-30, 30, 1201), [0.0]])
    if loss.n_scores(n_classes) == 1:
        scores = line[:, None]
    else:
        rng = np.random.default_rng(4)
        scores = np.concatenate([rng.normal(scale=s, size=(400, n_classes)) for s in (0.1, 1.0, 30.0)])
        scores = np.concatenate([scores, 40.0 * np.eye(n_classes)])
    return np.stack([loss.slopes(scores, one_hot(np.full(len(scores), k), n_classes)) for k in range(n_classes)])


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_label_reach_is_the_largest_change_of_a_slope_and_is_reached(loss: Loss, n_classes: int):
    slopes = extreme_slopes(loss, n_classes)
    worst = max(
        float(np.linalg.norm(slopes[j] - slopes[k], axis=1).max()) for j in range(n_classes) for k in range(n_classes)
    )
    assert worst <= loss.label_reach * (1 + 1e-12)
    if loss.name == "squared_hinge":
        assert worst == pytest.approx(1.0 + 30.0)  # the grid ends at 30: it grows with the scores, so there is no bound
        return
    assert worst >= loss.label_reach * (1 - 1e-9)


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_slope_bound_holds_and_is_nearly_reached(loss: Loss, n_classes: int):
    slopes = extreme_slopes(loss, n_classes)
    if loss.name in ("squared", "squared_hinge"):
        assert loss.slope_bound(math.inf) == math.inf
        assert loss.slope_bound(3.0) == 4.0
        return
    worst = float(np.linalg.norm(slopes, axis=2).max())
    assert 0.999 * loss.slope_bound(math.inf) <= worst <= loss.slope_bound(math.inf) * (1 + 1e-12)


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_smoothness_bounds_every_bend(loss: Loss, n_classes: int):
    rng = np.random.default_rng(5)
    scores = rng.normal(scale=1.0, size=(3000, loss.n_scores(n_classes)))
    targets = one_hot(rng.integers(n_classes, size=3000), n_classes)
    change = rng.normal(size=scores.shape)
    bent = np.linalg.norm(loss.bend(scores, targets, change), axis=1)
    assert (bent <= loss.smoothness * np.linalg.norm(change, axis=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_probabilities_are_probabilities(loss: Loss, n_classes: int):
    _, scores, _ = random_problem(loss, n_classes, seed=6)
    shares = loss.probabilities(scores)
    assert shares.shape == (len(scores), n_classes)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-12)


def test_auto_takes_logistic_for_two_classes_and_softmax_for_more():
    assert choose_loss("T", "auto", 2).name == "logistic"
    assert choose_loss("T", "auto", 3).name == "softmax"


@pytest.mark.parametrize(("name", "n_classes"), [("logistic", 3), ("huber", 5), ("squared_hinge", 3), ("hinge", 2)])
def test_a_loss_that_does_not_fit_is_refused(name: str, n_classes: int):
    with pytest.raises(LabelDPError, match="`loss` must"):
        choose_loss("LPRRSGD", name, n_classes)


def test_squared_hinge_slopes_are_bounded_in_a_ball():
    loss, reach = SquaredHinge(), 3.0
    scores = np.linspace(-reach, reach, 601)[:, None]
    for k in range(2):
        slopes = loss.slopes(scores, one_hot(np.full(601, k), 2))
        assert np.abs(slopes).max() == pytest.approx(loss.slope_bound(reach))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_squared_hinge_scores_at_their_minimum_are_probabilities(share: float):
    loss, line = SquaredHinge(), np.linspace(-2, 2, 4001)
    target = np.array([[1 - share, share]])
    values = [loss.value(np.array([[z]]), target) for z in line]
    best = line[int(np.argmin(values))]
    # The grid's step is 1e-3, half of it in the share.
    assert loss.probabilities(np.array([[best]]))[0, 1] == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("learner", [LPRRSGD, LPNormalSGD])
def test_walks_in_a_ball_learn_with_the_squared_hinge(learner):
    rng = np.random.default_rng(9)
    X = rng.uniform(-1, 1, size=(4000, 3))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0.1).astype(int)
    model = learner(epsilon=4.0, clip=2.0, loss="squared_hinge", classes=[0, 1], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("learner", [OutputPerturbation, SimplexERM])
def test_minimisers_refuse_the_squared_hinge(learner):
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(PrivacyError, match="bounded amount"):
        learner(clip=1.0, loss="squared_hinge", classes=[0, 1]).fit(X, y)
