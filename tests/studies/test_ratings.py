"""The study `ratings`: its words are read off its rows, and its treatments run on a small table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.learn.ratings.pairs import PairTable
from studies import StudyRow
from studies import ratings as subject


def row(setting: str, value: float, *, note: str = "", paper: float | None = None) -> StudyRow:
    return StudyRow(
        table="epsilon 1", setting=setting, epsilon=1.0, trust="no one", values=(value,), paper=paper, note=note
    )


def test_findings_are_read_off_the_rows():
    rows = [
        row("NCF, LP-1ST", 1100.0, paper=1122.0),
        row(subject.UNORDERED, 970.0),
        row(subject.FIXED, 937.0),
        row(subject.ADAPTIVE, 928.0),
        row(subject.RESPONSES, 910.0),
        row(subject.SUMS, 904.0, note="the default at this epsilon"),
    ]
    said = subject.Ratings().findings(rows)
    assert "has 0.9040" in said[0]
    assert "NCF, LP-1ST 1.100 here, 1.122 in the paper" in said[0]
    assert "an ordered channel +0.0330" in said[1]
    assert "features of the public pairs +0.0180" in said[1]
    assert "central sums instead of responses +0.0060" in said[1]


@pytest.fixture(scope="module")
def small() -> subject.RatingData:
    rng = np.random.default_rng(0)
    pairs = np.column_stack([rng.integers(0, 50, 1_500), rng.integers(0, 30, 1_500)])
    codes = np.clip(pairs[:, 1] % 5 + rng.integers(-1, 2, 1_500), 0, 4)
    test = pairs[:200]
    return subject.RatingData(
        pairs=pairs, codes=codes, test_pairs=test, test_stars=codes[:200] + 1.0, table=PairTable.of(pairs)
    )


CHEAP = [one for one in subject.TREATMENTS if not one.setting.startswith("NCF")]


def short_learner(_epsilon: float, seed: int, *, pair_features: int) -> subject.MatrixFactorisation:
    return subject.MatrixFactorisation(
        factors=2, sweeps=4, burn=1, pair_features=min(pair_features, 3), random_state=seed
    )


@pytest.mark.parametrize("treatment", CHEAP, ids=lambda treatment: treatment.setting)
def test_every_treatment_keeps_its_epsilon(small, treatment, monkeypatch):
    monkeypatch.setattr(subject, "make_learner", short_learner)
    study, case = subject.Ratings(), subject.Case(treatment=treatment, epsilon=2.0)
    study.ratings = small
    (found,) = study.run_case(case, seed=0)
    assert found.epsilon <= 2.0
    assert len(study.choose_seeds(case, (0, 1))) == (1 if treatment.one_seed else 2)
    summed = "sums" in treatment.setting or treatment.setting.startswith("private")
    assert found.trust == ("a curator" if summed else "no one")
    assert 500 < found.value < 2_000  # stars are in thousandths


def test_a_split_made_afterwards_has_the_same_ratings(small):
    new = subject.split_anew(small, seed=3)
    assert len(new.codes) == int(0.8 * (len(small.codes) + len(small.test_stars)))
    both = np.concatenate([new.codes + 1.0, new.test_stars])
    assert sorted(both) == sorted(np.concatenate([small.codes + 1.0, small.test_stars]))


def test_the_network_runs(small):
    pytest.importorskip("torch")
    treatment = next(one for one in subject.TREATMENTS if one.setting == "NCF, LP-2ST")
    found = subject.measure_treatment(small, subject.Case(treatment=treatment, epsilon=2.0), seed=0)
    assert found.paper == 928.0
    assert found.epsilon <= 2.0
    assert 500 < found.value < 2_500


def test_plots_have_a_line_per_treatment_and_the_papers():
    rows = [
        StudyRow(table="epsilon 1", setting="NCF, LP-1ST", epsilon=1.0, trust="no one", values=(1.0, 2.0), paper=3.0),
        StudyRow(table="no privacy", setting="free", epsilon=math.inf, trust="everyone", values=(1.0,)),
    ]
    (plot,) = subject.Ratings().plots(rows)
    assert [line.name for line in plot.series] == ["NCF, LP-1ST", "NCF, LP-1ST, the paper's"]
    assert plot.references == (("free", 1.0),)


@pytest.mark.data
def test_the_real_table_is_split_four_to_one(shared_data):
    data = subject.read_ratings(shared_data("movielens-1m").parent, quick=True)
    assert len(data.codes) == subject.QUICK_ROWS
    assert 199_000 < len(data.test_stars) < 201_500  # a hash of a million rows: within four deviations of a fifth
