"""COVID-19 cases by state: what the file holds, new cases, and files that are not it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from labeldp.data import us_covid
from labeldp.errors import LabelDPError

HEAD = "date,state,fips,cases,deaths\n"
ROWS = "2020-03-01,B,1,5,0\n2020-03-02,A,2,3,0\n2020-03-02,B,1,9,1\n2020-03-03,A,2,2,0\n2020-03-03,B,1,9,1\n"


def written(folder: Path, text: str, *, packed: bool = True) -> Path:
    home = folder / "us-covid"
    home.mkdir()
    if packed:
        (home / "us-states.csv.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (home / "us-states.csv").write_text(text)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_days_and_states_become_a_matrix(tmp_path: Path, packed: bool):
    found = us_covid(written(tmp_path, HEAD + ROWS, packed=packed))
    assert (found.days, found.states) == (("2020-03-01", "2020-03-02", "2020-03-03"), ("A", "B"))
    assert found.totals.tolist() == [[0, 5], [3, 9], [2, 9]]
    # A's total was corrected from 3 to 2: no new case.
    assert found.new().tolist() == [[0, 5], [3, 4], [0, 0]]
    totals, new = found.between("2020-03-02", days=2)
    assert (totals.tolist(), new.tolist()) == ([[3, 9], [2, 9]], [[3, 4], [0, 0]])
    assert repr(found) == "StateCases(3 days from 2020-03-01, 2 states)"


@pytest.mark.parametrize(("day", "days"), [("2020-02-29", 1), ("2020-03-02", 3)])
def test_days_outside_are_refused(tmp_path: Path, day: str, days: int):
    with pytest.raises(LabelDPError, match="2020-03-01 to 2020-03-03"):
        us_covid(written(tmp_path, HEAD + ROWS)).between(day, days=days)


@pytest.mark.parametrize(
    "text",
    [
        "date,county,fips,cases,deaths\n" + ROWS,  # another table of the same source
        HEAD + ROWS + ROWS[:19],  # a day and state twice
        HEAD + "2020-03-01,B,1,many,0\n",
        "",
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str):
    with pytest.raises(LabelDPError, match=r"us-states\.csv"):
        us_covid(written(tmp_path, text))


def test_the_file_itself(shared_data):
    found = us_covid(shared_data("us-covid").parent)
    assert len(found.states) == 56  # 50 states, DC and 5 territories
    totals, new = found.between("2020-03-12", days=40)
    assert totals.shape == new.shape == (40, 56)
    # Line by line, as another reader sees them.
    with gzip.open(shared_data("us-covid") / "us-states.csv.gz", "rt") as file:
        day = {row["state"]: int(row["cases"]) for row in csv.DictReader(file) if row["date"] == "2020-04-01"}
    assert {name: int(count) for name, count in zip(found.states, totals[20], strict=True) if count} == day
    assert (np.diff(totals.sum(axis=1)) > 0).all()
