"""Studies: rows survive JSON, tables fit a terminal, and a run leaves JSON, a plot and a page."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from studies.pages import cells

import studies
from labeldp.errors import LabelDPError
from studies import StudyResult, StudyRow, read_result, rich_table, write_result


def some_result() -> StudyResult:
    rows = (
        StudyRow(table="mnist", setting="no privacy", epsilon=math.inf, trust="everyone", values=(92.0,), paper=99.33),
        StudyRow(table="mnist", setting="plain", epsilon=1.0, trust="no one", values=(78.0, 80.0, 79.0), note="n"),
    )
    title, found = "A title", ("Found this.", "And <that>.")
    facts = {"seeds": [0, 1, 2], "quick": False, "versions": {"numpy": "2"}}
    return StudyResult(
        name="first-model", title=title, paper="A paper", measure="%", rows=rows, findings=found, facts=facts
    )


def test_row_statistics():
    row = some_result().rows[1]
    assert (row.mean, row.spread, row.n_seeds, row.difference) == (79.0, 1.0, 3, None)
    single = some_result().rows[0]
    assert single.spread == 0.0
    assert single.difference == pytest.approx(92.0 - 99.33)


def test_result_survives_json():
    result = some_result()
    text = json.dumps(result.to_json(), allow_nan=False)  # no infinity in JSON
    assert StudyResult.from_json(json.loads(text)) == result


@pytest.mark.parametrize("damage", ["rows", "findings", "name"])
def test_json_that_is_not_a_study_is_refused(damage: str, tmp_path):
    data = some_result().to_json()
    del data[damage]
    with pytest.raises(LabelDPError, match="not the JSON of a study"):
        StudyResult.from_json(data)
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(LabelDPError, match="cannot read"):
        read_result(tmp_path / "x.json")


def test_epsilon_is_shown_rounded_up():
    row = StudyRow(table="t", setting="s", epsilon=1.0000001, trust="no one", values=(1.0,))
    assert float(cells(row)[1]) >= row.epsilon


def test_table_fits_80_columns_and_shows_trust():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(some_result()))
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("no one", "everyone", "99.33", "-7.33", "79.00", "not private"):
        assert word in text


def test_files_of_a_result(tmp_path):
    page = write_result(some_result(), tmp_path / "out")
    assert sorted(p.name for p in page.parent.iterdir()) == ["index.html", "plot-1.svg", "result.json"]
    text = page.read_text(encoding="utf-8")
    assert "Not private." in text
    assert "And &lt;that&gt;." in text
    assert read_result(page.parent / "result.json") == some_result()


def test_names_and_mistakes():
    assert {"cluster-response", "first-model", "prior-response"} <= set(studies.names())
    for name in studies.names():  # each is where the list says, under its own name
        assert studies.study(name).name == name
    with pytest.raises(LabelDPError, match="Did you mean `first-model`"):
        studies.run("frist-model")
    with pytest.raises(LabelDPError, match="seeds"):
        studies.run("prior-response", seeds=0)


def test_data_that_is_absent_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(LabelDPError, match="mnist"):
        studies.run("first-model", directory=tmp_path / "nothing", out_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_committed_results_meet_what_they_must_show(repository: Path):
    # Issue 3: multi-stage or cluster prior beats plain randomized response by 3 points on each set, mean of 5 seeds.
    result = read_result(repository / "studies" / "results" / "first-model" / "result.json")
    assert result.tables() == ("mnist", "fashion-mnist")
    for table in result.tables():
        rows = {row.setting: row for row in result.rows if row.table == table}
        informed = [row for name, row in rows.items() if name.startswith(("two stages", "cluster prior"))]
        plain = rows["randomized response, plain"]
        assert plain.n_seeds == 5
        assert all(row.n_seeds == 5 and row.epsilon <= 1.0 for row in [plain, *informed])
        assert max(row.mean for row in informed) >= plain.mean + 3.0
        assert {row.trust for row in informed} == {"no one", "a curator"}
    assert result.facts["quick"] is False
