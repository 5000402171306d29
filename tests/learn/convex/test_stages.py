"""Noisy moments in stages: one budget, the right statistic on the right features, and a network that predicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.accounting import Ledger
from labeldp.errors import BudgetError, LabelDPError
from labeldp.guarantee import SEEDED, did_not_see
from labeldp.learn import SoftmaxRegression, SufficientStatistics
from labeldp.learn.convex import moments as _moments
from labeldp.learn.convex import sufficient as _sufficient
from labeldp.learn.convex.sufficient import soften_scores
from labeldp.priors.staged import half_whiten


class LinearNet(SoftmaxRegression):
    """A network of no layers: its hidden features are a fixed turn of its inputs. Takes views."""

    def fit_targets(self, X, targets, *, classes):
        return super().fit_targets(flat(X), targets, classes=classes)

    def predict_proba(self, X):
        return super().predict_proba(flat(X))

    def hidden_features(self, X):
        return np.tanh(flat(X) @ np.array([[1.0, 1, 0], [1, -1, 0], [0, 0, 1.0]]))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def flat(X):
    return X.mean(axis=1) if X.ndim == 3 else X


def problem(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.argmax(X + 0.3 * rng.normal(size=(n, 3)), axis=1)


def learner(**changes):
    settings = {"epsilon": 1.0, "clip": "unit-norm", "stages": 3, "network": LinearNet(), "classes": [0, 1, 2]}
    return SufficientStatistics(**{**settings, "random_state": 0, **changes})


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_what_is_measured_is_within_what_is_promised(monkeypatch, delta):
    """The guarantees of the measurements themselves, composed, are no more than the promise and no more than asked.

    Each stage asks about every label once, with noise of its own.
    """
    found, sizes, plain = [], [], _moments.measure

    def watched(labels, query, **settings):
        answer = plain(labels, query, **settings)
        found.append((query, answer.guarantee))
        sizes.append(len(labels))
        return answer

    monkeypatch.setattr(_moments, "measure", watched)
    X, y = problem()
    model = learner(delta=delta).fit(X, y)
    total = found[0][1].then(found[1][1]).then(found[2][1])
    assert total.epsilon(delta) <= model.guarantee_.epsilon(delta) <= 1.0
    assert sizes == [1000] * 3
    # Later stages measure rows of norm one (on the grid of 2^14) without an intercept.
    for query, _ in found[1:]:
        norms = np.sqrt((query.rows.astype(float) ** 2).sum(axis=1))
        assert norms.max() <= 2**14
        assert query.rows.shape == (1000, 3)


def test_without_noise_the_stages_are_least_squares_on_residuals():
    """epsilon = inf, by hand: scores of stage 1, a network, then its residuals on its half-whitened features."""
    X, y = problem()
    model = learner(epsilon=math.inf, stages=2, l2=1e-6, grid_bits=24, fit_intercept=False).fit(X, y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    labels = np.eye(3)[y]
    first = unit @ np.linalg.solve(unit.T @ unit, unit.T @ (labels - 1 / 3)) + 1 / 3
    network = LinearNet().fit_targets(X, soften_scores(first), classes=[0, 1, 2])
    hidden = half_whiten(network.hidden_features(X))
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    belief = network.predict_proba(X)
    second = belief + hidden @ np.linalg.solve(hidden.T @ hidden, hidden.T @ (labels - belief))
    last = LinearNet().fit_targets(X, soften_scores(second), classes=[0, 1, 2])
    # The grid of 2^-24, l2 = 1e-6 and the solver's tolerance of 1e-5
    np.testing.assert_allclose(model.predict_proba(X), last.predict_proba(X), atol=1e-3)


def test_it_learns_and_the_network_predicts():
    X, y = problem(seed=1)
    new, truth = problem(seed=2)
    model = learner().fit(X, y)
    assert model.score(new, truth) > 0.8  # seeded; the labels' own noise leaves 0.87
    assert np.array_equal(model.predict_proba(new), model.network_.predict_proba(new))
    assert np.array_equal(model.predict(new), model.decision_function(new).argmax(axis=1))
    assert model.seeded_
    assert not hasattr(model, "coef_")
    again = learner(network=None, stages=1).fit(X, y)
    assert not hasattr(again, "network_")


def test_views_are_averaged_for_the_first_stage():
    X, y = problem()
    views = np.stack([X + 0.25, X - 0.25], axis=1)
    viewed, plain = learner().fit(views, y), learner().fit(views.mean(axis=1), y)
    np.testing.assert_allclose(viewed.predict_proba(views), plain.predict_proba(views.mean(axis=1)), atol=1e-12)


def test_two_classes():
    X, y = problem(2000)
    model = learner(classes=["no", "yes"]).fit(X, np.where(y == 0, "yes", "no"))
    assert model.score(X, np.where(y == 0, "yes", "no")) > 0.8
    assert model.decision_function(X).shape == (2000,)


def test_parameters_per_stage_and_a_moving_seed(monkeypatch):
    seen, plain = [], _sufficient.train_network

    def watched(network, X, targets, **facts):
        answer = plain(network, X, targets, **facts)
        seen.append(answer.get_params()["l2"])
        return answer

    monkeypatch.setattr(_sufficient, "train_network", watched)
    X, y = problem()
    learner(stage_params=[{"l2": 0.1}, {"l2": 0.2}]).fit(X, y)
    assert seen == [0.1, 0.2, 0.2]


def test_the_whole_is_charged_before_the_first_stage(tmp_path, monkeypatch):
    X, y = problem()
    ledger = Ledger(tmp_path / "budget.ledger", budget=1.0, delta=1e-5)
    learner(ledger=ledger).fit(X, y)
    assert len(ledger.entries()) == 1
    assert ledger.spent().epsilon(1e-5) <= 1.0
    monkeypatch.setattr(_moments, "measure", lambda *_args, **_facts: pytest.fail("measured"))
    with pytest.raises(BudgetError):
        learner(ledger=ledger).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": None}, "`stages` must be 1 without a network"),
        ({"network": SoftmaxRegression()}, "`network` must have `hidden_features`"),
        ({"stages": 0}, "`stages` must be an integer"),
        ({"clip": None}, "`clip` must be given"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    X, y = problem(100)
    with pytest.raises(LabelDPError, match=message):
        learner(**changes).fit(X, y)


def test_soft_targets_are_probabilities_with_a_floor():
    targets = soften_scores(np.array([[1.5, -0.5, 0.0], [0.2, 0.3, 0.5]]))
    np.testing.assert_allclose(targets.sum(axis=1), 1.0, rtol=1e-12)
    assert targets.min() > 0.2 / 3 / 2
    np.testing.assert_allclose(targets[1], [0.2, 0.3, 0.5], rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"stages": 1, "network": None}], ids=["stages", "one stage"])
@pytest.mark.parametrize("of_rows", [False, True])
def test_a_centre_did_not_see_the_labels_and_the_promise_says_so(changes, of_rows):
    """A centre that is made of the labels tells of them: the model keeps their shares, or what noisy sums have beside their sums.

    Before: the promise said nothing of it.
    """
    X, y = problem(n=60)
    shares = np.eye(3)[y] if of_rows else np.bincount(y, minlength=3) / len(y)
    said = {SEEDED, *did_not_see("features")}
    assert set(learner(**changes).fit(X, y).guarantee_.assumptions) == said
    model = learner(**changes).fit(X, y, centre=shares)
    assert set(model.guarantee_.assumptions) == {*said, *did_not_see("centre")}
