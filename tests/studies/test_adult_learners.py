"""The study `adult-learners`: its rows, its words, and what its committed table holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from studies import adult_learners as subject
from studies import read_result
from studies.adult_learners import LEARNERS

NAMES = [learner.setting for learner in LEARNERS]


@pytest.fixture(scope="module")
def study() -> subject.AdultLearners:
    made = subject.AdultLearners(quick=True)
    assert len(made.adult.y_train) == subject.QUICK_ROWS
    return made


@pytest.mark.parametrize("name", ["LP-RR-SGD", "sufficient statistics, pure", "output perturbation (record)"])
def test_a_case_is_fitted_and_measured(study: subject.AdultLearners, name: str):
    learner = next(learner for learner in LEARNERS if learner.setting == name)
    found = study.run_case(subject.Case(epsilon=1.0, learner=learner), seed=0)
    assert all(one.epsilon <= 1.0 for one in found)
    auc, loss, accuracy = (one.value for one in found)
    assert 60 < auc < 92  # chance is 50, no privacy 90.7
    assert 30 < loss < 70  # predicting the base rate has 55
    assert 60 < accuracy < 90


def test_without_privacy_is_the_ceiling(study: subject.AdultLearners):
    case = subject.Case(epsilon=0.5, learner=None)
    auc, _, _ = study.run_case(case, seed=0)
    assert math.isinf(auc.epsilon)
    assert auc.value > 85  # 90.7 on all rows
    assert study.choose_seeds(case, range(5)) == range(1)


def test_every_case_is_made_with_the_budget_and_public_classes():
    for learner in LEARNERS:
        if not learner.setting.startswith("DP-SGD"):
            model = learner.make(0.5, 3)
            assert model.epsilon == 0.5
            assert tuple(model.classes) == (0, 1)
            assert model.random_state == 3


def test_units_are_said_in_every_note():
    for learner in LEARNERS:
        words = {"label": "one label replaced", "record": "one record"}[learner.unit]
        assert words in learner.note
        assert learner.setting.endswith("(record)") == (learner.unit == "record")
        assert ("pure" in learner.note) == (learner.delta == 0)


def test_rows_have_norm_one(study: subject.AdultLearners):
    assert abs((study.adult.X_train**2).sum(axis=1) - 1.0).max() < 1e-9


def test_the_committed_table_has_every_learner_at_every_epsilon(repository: Path):
    result = read_result(repository / "studies" / "results" / "adult-learners" / "result.json")
    assert result.facts["quick"] is False
    for measure in subject.MEASURES:
        for epsilon in subject.EPSILONS:
            rows = {row.setting: row for row in result.rows if row.table == subject.table_name(measure, epsilon)}
            assert list(rows) == [subject.OPEN, *NAMES]
            assert math.isinf(rows[subject.OPEN].epsilon)
            for name in NAMES:
                assert rows[name].n_seeds == 5
                assert rows[name].epsilon <= epsilon
                assert rows[name].note
    assert subject.AdultLearners().findings(result.rows) == result.findings  # the words are those of these rows
    assert all(f"epsilon {epsilon:g}" in result.findings[i] for i, epsilon in enumerate(subject.EPSILONS))
