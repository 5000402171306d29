"""The study `prior-response`: the formula, the channel and the draws agree."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import studies
from studies import StudyResult
from studies.prior_response import BELIEVED, EPSILONS, REAL, SETTINGS, promised_accuracy


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> StudyResult:
    told: list[float] = []
    folder = tmp_path_factory.mktemp("study")
    made = studies.run(
        "prior-response", quick=True, seeds=5, out_dir=folder, progress=lambda share, text: told.append(share)
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert made.page == folder / "index.html"
    return made


def test_channel_is_the_papers_formula(result: StudyResult):
    rows = [row for row in result.rows if row.table == BELIEVED]
    assert len(rows) == len(EPSILONS) * len(SETTINGS)
    # Points of a percent; thresholds of 64-bit words and float64 sums leave 1e-12.
    assert max(abs(row.difference or 0.0) for row in rows) < 1e-9


def test_best_k_is_never_worse_than_any_k(result: StudyResult):
    for epsilon in EPSILONS:
        rows = [r for r in result.rows if r.table == BELIEVED and math.isclose(r.epsilon, epsilon, rel_tol=1e-6)]
        best = next(row.mean for row in rows if row.setting == "RRWithPrior")
        assert best >= max(row.mean for row in rows) - 1e-9


def test_draws_agree_with_the_exact_chance(result: StudyResult):
    # Hoeffding: 5 seeds of 1,124 labels are 5,620 independent draws; a mean off by t has probability at most
    # 2 exp(-2 n t^2). t = 0.045 makes that 2.6e-10, and 35 settings 1e-8 in all. Seeds are fixed anyway.
    rows = [row for row in result.rows if row.table == REAL]
    gaps = [abs(row.mean - (row.expected or 0.0)) for row in rows]
    assert max(gaps) < 4.5
    # The broken twin: draws at twice the epsilon would be caught.
    one = next(row for row in rows if row.setting == "RR" and math.isclose(row.epsilon, 1.0, rel_tol=1e-6))
    two = next(row for row in rows if row.setting == "RR" and math.isclose(row.epsilon, 2.0, rel_tol=1e-6))
    assert abs(two.mean - (one.expected or 0.0)) > 4.5


def test_result_says_what_it_must(result: StudyResult):
    assert result.seeded
    assert {row.trust for row in result.rows} == {"no one"}
    assert result.facts["seeds"] == [0, 1, 2, 3, 4]
    assert Path(str(result.page)).with_name("plot-1.svg").exists()


def test_formula_on_cases_done_by_hand():
    flat = np.full((1, 4), 0.25)
    assert promised_accuracy(flat, math.log(3.0), 4) == pytest.approx(3 / 6)
    assert promised_accuracy(flat, 0.0, None) == pytest.approx(0.25)
    assert promised_accuracy(np.array([[0.6, 0.4, 0.0]]), 800.0, 2) == pytest.approx(1.0)  # no overflow
