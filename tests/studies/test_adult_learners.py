"""The study `adult-learners`: its rows, its words, and what its committed table holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from studies.adult_learners_cases import CASES

from studies import adult_learners as subject
from studies import read_result

NAMES = [case.setting for case in CASES]


@pytest.fixture(scope="module")
def small() -> subject.Data:
    data = subject.adult(quick=True, directory=None)
    assert len(data.y_train) == subject.QUICK_ROWS
    return data


@pytest.mark.parametrize("name", ["LP-RR-SGD", "sufficient statistics, pure", "output perturbation (record)"])
def test_a_case_is_fitted_and_measured(small: subject.Data, name: str):
    case = next(case for case in CASES if case.setting == name)
    found = subject.scored(case, small, 1.0, seeds=(0,))
    assert found.epsilon <= 1.0
    auc, loss, accuracy = found.measures[0]
    assert 60 < auc < 92  # chance is 50, no privacy 90.7
    assert 30 < loss < 70  # predicting the base rate has 55
    assert 60 < accuracy < 90


def test_every_case_is_made_with_the_budget_and_public_classes():
    for case in CASES:
        if not case.setting.startswith("DP-SGD"):
            model = case.make(0.5, 3)
            assert model.epsilon == 0.5
            assert tuple(model.classes) == (0, 1)
            assert model.random_state == 3


def test_units_are_said_in_every_note():
    for case in CASES:
        words = {"label": "one label replaced", "record": "one record"}[case.unit]
        assert words in case.note
        assert case.setting.endswith("(record)") == (case.unit == "record")
        assert ("pure" in case.note) == (case.delta == 0)


def test_rows_have_norm_one(small: subject.Data):
    assert abs((small.X_train**2).sum(axis=1) - 1.0).max() < 1e-9


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
    assert subject.findings(result.rows) == result.findings  # the words are those of these rows
    assert all(f"epsilon {epsilon:g}" in result.findings[i] for i, epsilon in enumerate(subject.EPSILONS))
