"""The stages: how they are split, what they report, and what the filter drops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from labeldp import RRWithPrior
from labeldp.channel import CandidateChannel, SetChannel
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.learn import stages as stage_loop
from labeldp.learn.settings import assign_stages, stage_shares
from labeldp.random import NoiseKey


@pytest.mark.parametrize(
    ("epsilon", "first"), [(0.5, 0.8), (1.0, 0.8), (1.5, 0.75), (2.0, 0.7), (4.0, 0.6), (9.0, 0.6)]
)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_default_shares_stand_at_four_epsilons(epsilon, first, count):
    shares = stage_shares(count, epsilon)
    assert shares[0] == first  # our values, and straight lines between
    assert len(set(shares[1:])) == 1
    assert abs(sum(shares) - 1) < count * 1e-6  # shares are rounded to six digits


def test_the_split_is_random_and_of_the_right_sizes():
    stage = assign_stages(10_000, (0.7, 0.2, 0.1), NoiseKey.from_seed(0))
    assert np.bincount(stage).tolist() == [7000, 2000, 1000]
    other = assign_stages(10_000, (0.7, 0.2, 0.1), NoiseKey.from_seed(1))
    # Independent splits agree on 0.54 of the rows, +- 0.005; ten deviations are far beyond 1e-6.
    assert abs(np.mean(stage == other) - 0.54) < 0.05
    # No drift along the rows: stage-0 rows in each tenth are hypergeometric, mean 700, deviation 14; 1e-6 is at 5 + room.
    tenths = np.add.reduceat(stage == 0, np.arange(0, 10_000, 1000))
    assert np.abs(tenths - 700).max() < 100


def test_stages_are_reported_as_they_were_run(problem):
    paper = {"mechanism": RRWithPrior(2.0), "stages": (0.5, 0.3, 0.2)}
    model = LabelPrivateClassifier(epsilon=2.0, random_state=0, **paper).fit(problem.X, problem.y)
    assert [stage.number for stage in model.stages_] == [1, 2, 3]
    assert [stage.n_examples for stage in model.stages_] == [300, 180, 120]
    assert math.isclose(sum(stage.share for stage in model.stages_), 1.0)
    assert model.stages_[0].average_k == 3.0  # a uniform prior is randomized response over all classes
    assert model.stages_[0].expected_accuracy == pytest.approx(math.exp(2) / (math.exp(2) + 2), rel=1e-12)
    for number, stage in enumerate(model.stages_):
        channel = model.release_.channel
        assert isinstance(channel, CandidateChannel)
        assert stage.average_k == channel.sizes[model.release_.stage == number].mean()
    assert model.stages_[2].average_k < 2.0  # a model that knows the classes narrows them down


def test_expected_accuracy_is_the_accuracy_when_the_prior_is_true(problem_of):
    """Stage 1 is exact (RR): its correct labels are binomial. A normal bound at 1e-7 each side, n = 20000."""
    data = problem_of(20_000, seed=4)
    paper = {"mechanism": RRWithPrior(1.0), "stages": 2, "temperature": 1.0}
    model = LabelPrivateClassifier(epsilon=1.0, random_state=0, **paper).fit(data.X, data.y)
    right = model.release_.labels == data.y
    for number, stage in enumerate(model.stages_):
        mine = right[model.release_.stage == number]
        slack = scipy.stats.norm.isf(1e-7) * math.sqrt(0.25 / len(mine))
        # Stage 2 trusts a model of noisy labels: a calibration error of 0.05 comes on top of the sampling error.
        assert abs(mine.mean() - stage.expected_accuracy) < slack + (0.05 if number else 0.0)
    # The broken twin: plain randomized response would have reached no more than this in stage 2.
    plain = math.e / (math.e + 2)
    second = right[model.release_.stage == 1]
    assert second.mean() > plain + scipy.stats.norm.isf(1e-7) * math.sqrt(0.25 / len(second))


class Spy:
    """Remember which released rows each training saw."""

    def __init__(self, monkeypatch):
        self.calls = []
        plain = stage_loop.fit_released

        def watched(estimator, X, **facts):
            self.calls.append((X, facts["codes"]))
            return plain(estimator, X, **facts)

        monkeypatch.setattr(stage_loop, "fit_released", watched)


def test_the_filter_drops_by_released_labels_alone(problem, monkeypatch):
    """Replayed from the release, without a label, it drops the same rows: they follow from what was released."""
    spy = Spy(monkeypatch)
    settings = {"stages": 3, "filter_earlier": True, "epsilon": 1.0}
    owner = LabelPrivateClassifier(random_state=0, **settings).fit(problem.X, problem.y)
    seen = list(spy.calls)
    spy.calls.clear()
    receiver = LabelPrivateClassifier(**settings).fit_release(problem.X, owner.release_)
    assert [stage.n_dropped for stage in owner.stages_] == [stage.n_dropped for stage in receiver.stages_]
    for mine, theirs in zip(seen, spy.calls, strict=True):
        assert np.array_equal(mine[0], theirs[0])
        assert np.array_equal(mine[1], theirs[1])
    assert owner.stages_[0].n_dropped == 0
    assert owner.stages_[1].n_dropped > 0


def test_the_filter_keeps_what_the_newest_model_ranks_among_its_first_k(problem, monkeypatch):
    spy = Spy(monkeypatch)
    model = LabelPrivateClassifier(stages=2, filter_earlier=True, random_state=0).fit(problem.X, problem.y)
    first = np.flatnonzero(model.release_.stage == 0)
    second = np.flatnonzero(model.release_.stage == 1)
    codes = model.release_.codes
    stage_one = SoftmaxRegression().fit_likelihood(
        problem.X[first], model.release_.channel.take(first).likelihood(codes[first]) / 3, classes=[0, 1, 2]
    )
    allowed = math.ceil(model.stages_[1].average_k)
    ranks = np.argsort(np.argsort(-stage_one.predict_proba(problem.X[first]), axis=1), axis=1)
    kept = first[ranks[np.arange(len(first)), codes[first]] < allowed]
    assert np.array_equal(spy.calls[1][0], problem.X[np.concatenate([kept, second])])
    assert model.stages_[1].n_dropped == len(first) - len(kept)


def test_without_the_filter_nothing_is_dropped(problem):
    model = LabelPrivateClassifier(stages=3, random_state=0).fit(problem.X, problem.y)
    assert [stage.n_dropped for stage in model.stages_] == [0, 0, 0]


def test_a_temperature_below_one_narrows_the_candidates(problem):
    def average(temperature):
        paper = {"mechanism": RRWithPrior(1.0), "stages": 2, "temperature": temperature}
        model = LabelPrivateClassifier(random_state=0, **paper)
        return model.fit(problem.X, problem.y).stages_[1].average_k

    assert average(0.2) < average(1.0) <= average(20.0)


def test_a_second_stage_beats_randomized_response(problem_of):
    """On labels, at epsilon 1: what multi-stage training is for. Sampling error as in the accuracy test."""
    data = problem_of(5000, seed=6)
    plain, staged = (
        LabelPrivateClassifier(stages=stages, mechanism=RRWithPrior(1.0), random_state=0).fit(data.X, data.y).release_
        for stages in (1, 3)
    )
    late = staged.stage > 0
    slack = scipy.stats.norm.isf(1e-7) * math.sqrt(0.25 / late.sum() + 0.25 / 5000)
    assert np.mean(staged.labels[late] == data.y[late]) > np.mean(plain.labels == data.y) + slack


def test_stages_of_sets_are_reported_and_joined(problem):
    """Arcs of the first stage and blocks of the second are one release of sets, and a receiver reports the same."""
    model = LabelPrivateClassifier(epsilon=1.0, stages=(0.5, 0.5), random_state=0).fit(problem.X, problem.y)
    release = model.release_
    assert isinstance(release.channel, SetChannel)
    named = release.channel.members(release.codes)
    e = math.e
    assert model.stages_[0].expected_accuracy == pytest.approx(e / (e + 2), rel=1e-9)  # one of three labels, as in RR
    for number, stage in enumerate(model.stages_):
        assert stage.average_k == named[release.stage == number].sum(axis=1).mean()
    receiver = LabelPrivateClassifier().fit_release(problem.X, release)
    assert receiver.stages_ == model.stages_
    # Six standard errors of a mean of 300 coins: 1e-9.
    for number, stage in enumerate(model.stages_):
        mine = release.stage == number
        hit = named[mine, problem.y[mine]].mean()
        assert abs(hit - stage.expected_accuracy) < 6 * math.sqrt(0.25 / mine.sum())
