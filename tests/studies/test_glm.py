"""The study `glm`: its features see no label and no test row, and its quick version says what it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from studies.glm import CLAIMS, FIRST_SPLIT, GROUPS, HOUSING, MOMENTS, Case, Glm, choose_rows, poisson_deviance
from studies.numbers import WholeTable
from studies.study import StudyRow


def made_up(name: str, n: int = 1500) -> WholeTable:
    """A table with the columns of the set, and labels that follow them."""
    rng = np.random.default_rng(0)
    if name == "housing":
        names = ("longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population")
        columns: dict[str, Any] = {
            column: rng.uniform(1, 9, size=n) for column in (*names, "households", "median_income")
        }
        y = np.clip(columns["median_income"] / 2, 0.2, 4.9)
        columns["ocean_proximity"] = pa.array(rng.choice(["INLAND", "NEAR BAY"], size=n))
        return WholeTable(X=pa.table(columns), y=y, exposure=None, bounds=(0.15, 5.0))
    columns = {column: rng.uniform(1, 90, size=n) for column in ("ageph", "power", "agec", "long", "lat")}
    columns |= {"bm": rng.integers(0, 20, size=n), "postcode": rng.integers(1000, 1040, size=n)}
    columns |= {column: pa.array(rng.choice(["a", "b"], size=n)) for column in ("coverage", "sex", "fuel", "use")}
    years = rng.uniform(0.2, 1.0, size=n)
    y = rng.poisson(years * np.exp(-1.0 + columns["ageph"] / 60)).astype(float)
    return WholeTable(X=pa.table(columns), y=y, exposure=years, bounds=(0.0, 2.0))


@pytest.fixture(scope="module")
def study() -> Glm:
    made = Glm(quick=True)
    made.__dict__["tables"] = {name: made_up(name) for name in ("housing", "claims")}
    return made


def test_each_case_is_measured_at_the_epsilon_that_it_says(study: Glm):
    rows = []
    for case in study.cases():
        if case.epsilon not in (0.5, 0.0, 2.0) or "60" in case.table:
            continue
        (found,) = study.run_case(case, 0)
        assert found.epsilon <= case.epsilon
        assert np.isfinite(found.value)
        rows.append(StudyRow.of([found]))
    settings = {(row.table, row.setting): row.mean for row in rows}
    assert settings[HOUSING, MOMENTS] < settings[HOUSING, "one mean for all"]
    said = " ".join(study.findings(rows))
    assert "target 0.62" in said
    assert "From totals by age" in said
    assert len(study.plots(rows)) == 2


def test_test_rows_are_apart_and_no_split_is_one_that_was_looked_at():
    train, test = choose_rows(1000, 0, None)
    assert not set(train) & set(test)
    assert (len(train), len(test)) == (800, 200)
    looked_at = {tuple(np.random.default_rng(seed).permutation(1000)[:5]) for seed in range(3)}
    assert tuple(np.random.default_rng(FIRST_SPLIT).permutation(1000)[:5]) not in looked_at


def test_no_privacy_keeps_all_of_the_gain(study: Glm):
    (found,) = study.run_case(Case(table=CLAIMS, setting="no privacy", epsilon=np.inf), 0)
    assert found.value == 100.0
    assert GROUPS != MOMENTS


def test_the_deviance_is_zero_for_a_perfect_model_and_positive_otherwise():
    y = np.array([0.0, 1.0, 3.0])
    assert poisson_deviance(y, np.maximum(y, 1e-300)) == pytest.approx(0.0, abs=1e-12)
    assert poisson_deviance(y, np.ones(3)) > 0
