"""The study `ratings`: its words are read off its rows, and its treatments run on a small table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.learn.ratings.evidence import PairTable
from studies import StudyRow, ratings_cases
from studies import ratings as subject


def row(setting: str, value: float, *, note: str = "", paper: float | None = None) -> StudyRow:
    return StudyRow(
        table="epsilon 1", setting=setting, epsilon=1.0, trust="no one", values=(value,), paper=paper, note=note
    )


def test_findings_are_read_off_the_rows():
    rows = [
        row("NCF, LP-1ST", 1100.0, paper=1122.0),
        row(ratings_cases.UNORDERED, 970.0),
        row(ratings_cases.FIXED, 937.0),
        row(ratings_cases.ADAPTIVE, 928.0),
        row(ratings_cases.RESPONSES, 910.0),
        row(ratings_cases.SUMS, 904.0, note="the default at this epsilon"),
    ]
    said = subject.findings(rows)
    assert "has 0.9040" in said[0]
    assert "NCF, LP-1ST 1.100 here, 1.122 in the paper" in said[0]
    assert "an ordered channel +0.0330" in said[1]
    assert "features of the public pairs +0.0180" in said[1]
    assert "central sums instead of responses +0.0060" in said[1]


@pytest.fixture(scope="module")
def small() -> ratings_cases.RatingData:
    rng = np.random.default_rng(0)
    pairs = np.column_stack([rng.integers(0, 50, 3_000), rng.integers(0, 30, 3_000)])
    codes = np.clip(pairs[:, 1] % 5 + rng.integers(-1, 2, 3_000), 0, 4)
    test = pairs[:200]
    return ratings_cases.RatingData(
        pairs=pairs, codes=codes, test_pairs=test, test_stars=codes[:200] + 1.0, table=PairTable.of(pairs)
    )


CHEAP = [case for case in ratings_cases.CASES if not case.setting.startswith("NCF")]


@pytest.mark.parametrize("case", CHEAP, ids=lambda case: case.setting)
def test_every_treatment_keeps_its_epsilon(small, case, monkeypatch):
    short = lambda epsilon, seed, *, pair_features: ratings_cases.MatrixFactorisation(  # noqa: E731
        factors=2, sweeps=6, burn=2, pair_features=min(pair_features, 3), random_state=seed
    )
    monkeypatch.setattr(ratings_cases, "learner", short)
    made = subject.measured(small, case, 2.0, (0, 1))
    assert made.epsilon <= 2.0
    assert made.n_seeds == (1 if case.one_seed else 2)
    assert made.trust == ("a curator" if "sums" in case.setting or case.setting.startswith("private") else "no one")
    assert 500 < made.mean < 2_000  # stars are in thousandths


def test_the_network_runs(small):
    pytest.importorskip("torch")
    made = subject.measured(small, next(c for c in ratings_cases.CASES if c.setting == "NCF, LP-2ST"), 2.0, (0,))
    assert made.paper == 928.0
    assert made.epsilon <= 2.0
    assert 500 < made.mean < 2_500


def test_plots_have_a_line_per_treatment_and_the_papers():
    rows = [
        StudyRow(table="epsilon 1", setting="NCF, LP-1ST", epsilon=1.0, trust="no one", values=(1.0, 2.0), paper=3.0),
        StudyRow(table="no privacy", setting="free", epsilon=math.inf, trust="everyone", values=(1.0,)),
    ]
    result = subject.StudyResult(
        name="ratings", title="t", paper="p", measure="m", rows=tuple(rows), findings=(), facts={"quick": False}
    )
    (plot,) = subject.Ratings().plots(result)
    assert [line.name for line in plot.series] == ["NCF, LP-1ST", "NCF, LP-1ST, the paper's"]
    assert plot.references == (("free", 1.0),)


@pytest.mark.data
def test_the_real_table_is_split_four_to_one(shared_data):
    data = subject.read_data(shared_data("movielens-1m").parent, quick=True)
    assert len(data.codes) == subject.QUICK_ROWS
    assert 199_000 < len(data.test_stars) < 201_500  # a hash of a million rows: within four deviations of a fifth
