"""The study `excess-risk` in its smallest form, its words from its rows, and what its committed result shows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from studies.adult_learners_cases import need_opacus
from studies.excess_methods import BLIND, IN_BALL, METHODS, NORMAL, PRIOR, RECORD, RESPONSE, in_ball
from studies.excess_plots import Point, Sweep, setting
from studies.excess_problem import DIAMETER

from labeldp.errors import MissingExtraError
from labeldp.report import Lines
from studies import excess_risk as subject
from studies import read_result

SMALL = Sweep(symbol="p", points=(10, 40), base=Point(p=20, n=300, epsilon=1.0, K=2))


@pytest.fixture
def opacus() -> None:
    try:
        need_opacus()
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_a_point_has_a_row_for_every_method(opacus: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "TEST_ROWS", 500)
    rows = subject.measured_point(SMALL, 40, seeds=(0,))
    named = {row.setting: row for row in rows}
    assert set(named) == {setting(m.name, "p", 40) for m in METHODS if "p" in m.sweeps}
    assert math.isinf(named["SGD, no privacy, p = 40"].epsilon)
    assert all(row.epsilon <= 1.0 for name, row in named.items() if "no privacy" not in name)
    record = named[setting(RECORD, "p", 40)]
    assert record.note == "one record added or removed; delta 1e-05"
    assert record.trust == "a curator"
    assert named[setting(RESPONSE, "p", 40)].trust == "no one"
    assert named[setting(RESPONSE, "p", 40)].paper > named[setting(RESPONSE, "p", 40)].mean
    assert record.paper is None


def test_a_prior_takes_part_in_the_sweep_of_classes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "TEST_ROWS", 500)
    monkeypatch.setattr(subject, "METHODS", [m for m in METHODS if m.unit != "record"])
    sweep = replace(SMALL, symbol="K", points=(2, 4))
    rows = {row.setting: row for row in subject.measured_point(sweep, 4, seeds=(0, 1))}
    prior = rows[setting(PRIOR, "K", 4)]
    assert prior.n_seeds == 2
    assert prior.epsilon <= 1.0
    assert prior.trust == "no one"


def test_projection_on_the_ball_shrinks_and_leaves_the_model_alone():
    model = SimpleNamespace(coefs_=[np.array([[30.0], [0.0]])], intercepts_=[np.array([40.0])])
    nearer = in_ball(model)
    assert math.hypot(nearer.coefs_[0][0, 0], nearer.intercepts_[0][0]) == pytest.approx(DIAMETER / 2)
    assert nearer.intercepts_[0][0] / nearer.coefs_[0][0, 0] == pytest.approx(4 / 3)
    assert model.coefs_[0][0, 0] == 30.0


def committed(repository: Path):
    return read_result(repository / "studies" / "results" / "excess-risk" / "result.json")


def test_the_committed_result_shows_independence_of_dimension(repository: Path):
    result = committed(repository)
    assert result.facts["quick"] is False
    assert result.facts["points"]["p"] == [10, 100, 1000, 10000, 100000]
    named = {row.setting: row for row in result.rows if row.table == subject.SWEEPS[0].title}

    def growth(method: str) -> float:
        return named[setting(method, "p", 100_000)].mean / named[setting(method, "p", 10)].mean

    # Label-private walks: no growth beyond the luck of three seeds. DP-SGD as analysed: by far more.
    assert growth(RESPONSE) < 1.5
    assert growth(NORMAL) < 1.5
    assert growth(RECORD) > 2.0
    assert growth(IN_BALL) > growth(RECORD)
    assert growth(BLIND) < growth(RECORD)


def test_the_committed_result_is_below_every_upper_bound(repository: Path):
    bounded = [row for row in committed(repository).rows if row.paper is not None]
    assert len(bounded) > 30
    assert all(max(row.values) <= row.paper for row in bounded)
    assert all(row.n_seeds == 3 for row in bounded)


def test_plots_of_the_committed_result_have_measured_lines_and_bounds(repository: Path):
    plots = subject.ExcessRisk().plots(committed(repository))
    assert len(plots) == 4
    names = [{line.name for line in plot.series} for plot in plots if isinstance(plot, Lines)]
    assert all({RESPONSE, "Theorem 9", "Proposition 11", "rate of Proposition 12"} <= found for found in names)
    assert "Theorem 17 (corrected), x 2" in names[0]
    assert "Corollary 10" in names[3]
    assert all(len(found) <= 8 for found in names)  # as many as can be told apart
