"""The study `numbers`: its words, one small case, and what was committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import StudyRow, read_result
from studies import numbers as subject


def row(setting: str, value: float) -> StudyRow:
    return StudyRow(table=subject.TABLE, setting=setting, epsilon=1.0, trust="no one", values=(1000 * value,))


def test_findings_are_read_off_the_rows():
    unbiased = f"{subject.RIDGE}: {subject.UNBIASED}"
    rows = [row(f"{unbiased}, epsilon 1", 0.44), row(f"{unbiased}, epsilon 2", 0.40)]
    rows += [row(f"{subject.RIDGE}: {subject.OPEN}", 0.35), row(subject.CONSTANT, 1.33)]
    (told,) = subject.compare_with_asked(rows)
    assert "0.440 at epsilon 1 (asked: 0.45, reached); 0.400 at epsilon 2 (asked: 0.39, NOT reached)" in told
    assert "Without privacy 0.350, the mean label 1.330." in told


@pytest.mark.data
def test_one_small_case(shared_data):
    study = subject.Numbers(quick=True, directory=shared_data("california-housing").parent)
    case = subject.Case(way=subject.WAYS[1], epsilon=4.0)
    (found,) = study.run_case(case, seed=0)
    assert (found.epsilon, found.trust) == (4.0, "no one")
    # 1,600 answers at epsilon 4 teach more than the mean label, whose error is above 900 on these rows.
    assert found.value < 600


def test_committed_results_reach_what_was_asked(repository: Path):
    result = read_result(repository / "studies" / "results" / "numbers" / "result.json")
    assert min(len(one.values) for one in result.rows) >= 3
    for epsilon, asked in subject.ASKED.items():
        found = subject.find_mean(result.rows, f"{subject.RIDGE}: {subject.UNBIASED}", epsilon)
        assert found is not None
        assert found <= asked
    trees = subject.find_mean(result.rows, f"{subject.TREES}: {subject.UNBIASED}", 2.0)
    assert trees is not None
    assert trees <= subject.ASKED_OF_TREES
