"""The study `excess-risk`: its bounds against what they are about, its smallest form, and what its committed result shows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom

from labeldp.errors import MissingExtraError
from labeldp.learn import LPRRSGD
from labeldp.mechanisms import RandomizedResponse
from labeldp.report import Lines
from studies import StudyResult, read_result
from studies import excess_risk as subject
from studies.adult_learners import need_opacus
from studies.excess_risk import BLIND, IN_BALL, METHODS, NORMAL, PRIOR, RECORD, RESPONSE, Point, Sweep, name_row

SMALL = Sweep(symbol="p", points=(10, 40), base=Point(p=20, n=300, epsilon=1.0, K=2))


@pytest.fixture
def opacus() -> None:
    try:
        need_opacus()
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_a_point_has_a_row_for_every_method(opacus: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "TEST_ROWS", 500)
    rows = subject.measure_point(SMALL, 40, seed=0)
    named = {row.setting: row for row in rows}
    assert set(named) == {name_row(m.name, "p", 40) for m in METHODS if "p" in m.sweeps}
    assert math.isinf(named["SGD, no privacy, p = 40"].epsilon)
    assert all(row.epsilon <= 1.0 for name, row in named.items() if "no privacy" not in name)
    record = named[name_row(RECORD, "p", 40)]
    assert record.note == "one record added or removed; delta 1e-05"
    assert record.trust == "a curator"
    assert named[name_row(RESPONSE, "p", 40)].trust == "no one"
    assert named[name_row(RESPONSE, "p", 40)].paper > named[name_row(RESPONSE, "p", 40)].value
    assert record.paper is None


def test_a_prior_takes_part_in_the_sweep_of_classes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "TEST_ROWS", 500)
    monkeypatch.setattr(subject, "METHODS", [m for m in METHODS if m.unit != "record"])
    sweep = replace(SMALL, symbol="K", points=(2, 4))
    rows = {row.setting: row for row in subject.measure_point(sweep, 4, seed=0)}
    prior = rows[name_row(PRIOR, "K", 4)]
    assert prior.epsilon <= 1.0
    assert prior.trust == "no one"


def test_a_quick_version_has_two_points_of_each_sweep(opacus: None):
    study = subject.ExcessRisk(quick=True)
    assert [case.sweep.symbol for case in study.cases()] == ["p", "p", "n", "n", "epsilon", "epsilon", "K", "K"]


def test_projection_on_the_ball_shrinks_and_leaves_the_model_alone():
    model = SimpleNamespace(coefs_=[np.array([[30.0], [0.0]])], intercepts_=[np.array([40.0])])
    nearer = subject.project_on_ball(model)
    assert math.hypot(nearer.coefs_[0][0, 0], nearer.intercepts_[0][0]) == pytest.approx(subject.DIAMETER / 2)
    assert nearer.intercepts_[0][0] / nearer.coefs_[0][0, 0] == pytest.approx(4 / 3)
    assert model.coefs_[0][0, 0] == 30.0


def committed(repository: Path) -> StudyResult:
    return read_result(repository / "studies" / "results" / "excess-risk" / "result.json")


def test_the_committed_result_shows_independence_of_dimension(repository: Path):
    result = committed(repository)
    assert result.facts["quick"] is False
    assert result.facts["points"]["p"] == [10, 100, 1000, 10000, 100000]
    named = {row.setting: row for row in result.rows if row.table == subject.SWEEPS[0].title}

    def growth(method: str) -> float:
        return named[name_row(method, "p", 100_000)].mean / named[name_row(method, "p", 10)].mean

    # Label-private walks: no growth beyond the luck of three seeds. DP-SGD as analysed: by far more.
    assert growth(RESPONSE) < 1.5
    assert growth(NORMAL) < 1.5
    assert growth(RECORD) > 2.0
    assert growth(IN_BALL) > growth(RECORD)
    assert growth(BLIND) < growth(RECORD)


def test_the_committed_words_are_those_of_the_rows(repository: Path):
    result = committed(repository)
    assert subject.ExcessRisk().findings(result.rows) == result.findings


def test_the_committed_result_is_below_every_upper_bound(repository: Path):
    bounded = [row for row in committed(repository).rows if row.paper is not None]
    assert len(bounded) > 30
    assert all(max(row.values) <= row.paper for row in bounded)
    assert all(row.n_seeds == 3 for row in bounded)


def test_plots_of_the_committed_result_have_measured_lines_and_bounds(repository: Path):
    plots = subject.ExcessRisk().plots(committed(repository).rows)
    assert len(plots) == 4
    names = [{line.name for line in plot.series} for plot in plots if isinstance(plot, Lines)]
    assert all({RESPONSE, "Theorem 9", "Proposition 11", "rate of Proposition 12"} <= found for found in names)
    assert "Theorem 17 (corrected), x 2" in names[0]
    assert "Corollary 10" in names[3]
    assert all(len(found) <= 8 for found in names)  # as many as can be told apart


# ------------------------------------------------------------------------------------------------------ the bounds


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("size", [2, 3, 10])
def test_the_moment_of_responses_is_the_largest_sum_of_weights(epsilon: float, size: int):
    """By enumeration: the channel's unbiased targets of every observed label."""
    channel = RandomizedResponse(epsilon=epsilon, n_classes=size).channel()
    weights = channel.unbiased_targets(np.arange(size))
    # The channel's probabilities are multiples of 2^-64, which moves its weights by less than 1e-12 of themselves.
    spread, longest = subject.response_weights(epsilon, size)
    assert longest == pytest.approx(np.abs(weights).sum(axis=1).max(), rel=1e-9)
    assert spread == pytest.approx((weights.max(axis=1) - weights.min(axis=1)).max(), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("k", [2, 10])
def test_the_width_of_a_debiased_loss_is_reached_by_losses_of_zero_and_one(epsilon: float, k: int):
    p = 1.0 / (math.exp(epsilon) + k - 1.0)
    values = []
    for ones in range(2**k if k < 5 else 2 * k):
        losses = np.array([(ones >> j) & 1 for j in range(k)]) if k < 5 else np.arange(k) < (ones % (k + 1))
        values.extend((losses - p * losses.sum()) / (1 - k * p))
    assert max(values) - min(values) <= subject.debiased_width(epsilon, k) * (1 + 1e-12)
    # All zeros but the observed one reach the top, all ones but the observed one the bottom, but for one p.
    reached = (1 - p) / (1 - k * p) + (k - 1) * p / (1 - k * p)
    assert max(values) - min(values) == pytest.approx(reached)


def deviation_chance(allowed: float, *, n: int, epsilon: float) -> float:
    """Return the exact probability that the mean debiased loss of one function is off by more than `allowed`.

    Binary labels, all truly 1; the loss is 1 at label 1 and 0 at label 0, so its debiased form has two values.
    """
    E = math.exp(epsilon)
    high, low, keep = E / (E - 1), -1.0 / (E - 1), E / (E + 1)
    ones = np.arange(n + 1)
    off = np.abs((high * ones + low * (n - ones)) / n - 1.0) > allowed
    return float(binom.pmf(ones, n, keep)[off].sum())


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_theorem_17_holds_with_the_width_and_fails_without_it(epsilon: float):
    """A class of one function has no complexity: what remains is the concentration, exactly a binomial tail."""
    n, confidence = 2000, 0.05
    settings = {"epsilon": epsilon, "k": 2, "complexity": 0.0, "slope": 1.0, "confidence": confidence}
    corrected = subject.theorem_17(n, **settings)
    assert deviation_chance(corrected, n=n, epsilon=epsilon) <= confidence
    papers = corrected / subject.debiased_width(epsilon, 2)
    assert papers == pytest.approx(math.sqrt(math.log(2 / confidence) / (2 * n)))
    assert deviation_chance(papers, n=n, epsilon=epsilon) > 2 * confidence  # its claim of 5 % is false


def test_bounds_shrink_with_n_and_epsilon_and_grow_with_classes_and_misses():
    def nine(n: int = 1000, epsilon: float = 1.0, K: int = 4) -> float:
        return subject.theorem_9(n, epsilon=epsilon, n_classes=K, diameter=20.0)

    def ten(miss: float, k: int = 2) -> float:
        return subject.corollary_10(1000, epsilon=1.0, k=k, n_classes=4, miss=miss, diameter=20.0)

    assert nine(n=4000) < nine() < nine(epsilon=0.5)
    assert nine(K=3) < nine() < nine(K=8)
    assert ten(0.0) < nine() == ten(0.0, k=4)
    assert ten(0.1) - ten(0.0) == pytest.approx(2 * 20.0 * math.sqrt(2) * 0.1)
    eleven = [subject.proposition_11(1000, epsilon=e, delta=1e-5, n_classes=4, diameter=20.0) for e in (0.5, 1.0)]
    assert eleven[0] > eleven[1]
    assert subject.proposition_12_rate(100, epsilon=0.25, n_classes=2, diameter=20.0) == 4.0  # 20 / sqrt(25)


def test_infinite_epsilon_leaves_the_bound_of_plain_sgd():
    assert subject.response_weights(math.inf, 10) == (1.0, 1.0)
    assert subject.response_weights(800.0, 10) == pytest.approx((1.0, 1.0))  # e^800 would overflow


def test_theorem_9_bounds_a_measured_walk():
    problem = subject.Problem(n_features=50)
    rows, labels = problem.draw(3000, seed=0)
    test, _ = problem.draw(3000, seed=1)
    model = LPRRSGD(
        epsilon=1.0,
        clip=1.0,
        diameter=subject.DIAMETER,
        epochs=1,
        batch_size=10,
        fit_intercept=False,
        classes=[0, 1],
        random_state=0,
    ).fit(rows, labels)
    excess = problem.excess(model.predict_proba(test), test)
    assert 0 < excess <= subject.theorem_9(3000, epsilon=1.0, n_classes=2, diameter=subject.DIAMETER, batch_size=10)
    assert excess < 0.5 * problem.excess(np.full((3000, 2), 0.5), test)  # and it learned something


# --------------------------------------------------------------------------------------------------- the problem


@pytest.mark.parametrize("n_classes", [2, 5])
def test_theta_minimises_the_population_risk(n_classes: int):
    """By finite differences: no small step in any direction of a random sample of them lowers the divergence."""
    problem = subject.Problem(n_features=40, n_classes=n_classes)
    rows, _ = problem.draw(4000, seed=2)
    signal = rows[:, : subject.SIGNAL].toarray()
    rng = np.random.default_rng(3)
    for _ in range(20):
        moved = problem.theta + 0.1 * rng.normal(size=problem.theta.shape)
        assert problem.excess(softmax(signal @ moved.T, axis=1), rows) > 0
    assert np.linalg.norm(problem.theta) <= subject.DIAMETER / 2


def test_rows_have_norm_one_and_ten_entries_in_every_dimension():
    for p in (10, 37, 100_000):
        rows, labels = subject.Problem(n_features=p).draw(300, seed=4)
        assert rows.shape == (300, p)
        np.testing.assert_allclose(np.sqrt(rows.multiply(rows).sum(axis=1)), 1.0, atol=1e-12)
        assert rows.nnz == 3000
        assert rows.indices.max() < p
        assert set(labels) == {0, 1}


def test_labels_follow_the_model():
    problem = subject.Problem(n_features=20, n_classes=3)
    rows, labels = problem.draw(8_000, seed=5)
    expected = problem.probabilities(rows)
    for k in range(3):
        gap = float(np.sum(labels == k) - expected[:, k].sum())
        spread = math.sqrt(float((expected[:, k] * (1 - expected[:, k])).sum()))
        assert abs(gap) < 5.5 * spread  # three normal tails: wrong with probability 1.2e-7
    wrong = float(np.sum(labels == 0) - expected[:, 1].sum())
    assert abs(wrong) > 5.5 * math.sqrt(8_000 / 4)  # classes mixed up would be seen
