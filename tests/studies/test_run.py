"""Studies by name: the command, the files that a run leaves, and the README of the results."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import studies
from labeldp.errors import LabelDPError
from studies import StudyResult, StudyRow, prior_response, read_result, rich_table, write_result
from studies.__main__ import app
from studies.run import format_cells

ROWS = (
    StudyRow(table="mnist", setting="no privacy", epsilon=float("inf"), trust="everyone", values=(92.0,), paper=99.33),
    StudyRow(table="mnist", setting="plain", epsilon=1.0, trust="no one", values=(78.0, 80.0, 79.0), note="n"),
)
RESULT = StudyResult(
    name="first-model",
    title="A title",
    paper="A paper",
    measure="%",
    rows=ROWS,
    findings=("Found this.", "And <that>."),
    facts={"seeds": list(range(30)), "quick": False, "versions": {"numpy": "2"}},
)


def test_epsilon_is_shown_rounded_up():
    row = StudyRow(table="t", setting="s", epsilon=1.0000001, trust="no one", values=(1.0,))
    assert float(format_cells(row)[1]) >= row.epsilon


def test_table_fits_80_columns_and_shows_trust():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(RESULT))
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("no one", "everyone", "99.33", "-7.33", "79.00", "not private"):
        assert word in text


def test_files_of_a_result(tmp_path: Path):
    page = write_result(RESULT, tmp_path / "out")
    assert sorted(p.name for p in page.parent.iterdir()) == ["index.html", "plot-1.svg", "result.json"]
    text = page.read_text(encoding="utf-8")
    assert "Not private." in text
    assert "And &lt;that&gt;." in text
    assert "0 to 29" in text  # thirty seeds are not listed one by one
    assert read_result(page.parent / "result.json") == RESULT


#: Studies whose results are not here yet: hours of processor time, and no number is typed by hand. When the result comes, the name goes.
UNMEASURED = {"encoder", "networks"}


def test_every_study_is_where_the_list_says():
    for name in studies.names():
        found = studies.find_study(name)
        assert found.name == name
        assert found.title
        assert found.paper
        assert found.measure
        assert found.needs


def test_the_readme_of_the_results_is_made_from_the_studies(repository: Path):
    written = repository / "studies" / "results" / "README.md"
    assert written.read_text(encoding="utf-8") == studies.results_readme()
    for name in studies.names():
        assert (written.parent / name / "result.json").exists() == (name not in UNMEASURED)


@pytest.mark.parametrize("name", sorted({*studies.names()} - UNMEASURED))
def test_a_page_can_be_made_again_from_every_committed_result(name: str, repository: Path):
    result = read_result(repository / "studies" / "results" / name / "result.json")
    assert result.name == name
    assert result.facts["quick"] is False
    plots = studies.find_study(name).plots(result.rows)
    committed = [path for path in (repository / "studies" / "results" / name).iterdir() if path.suffix == ".svg"]
    assert len(plots) == len(committed)


def test_data_that_is_absent_is_told_before_anything_is_written(tmp_path: Path):
    with pytest.raises(LabelDPError, match="mnist"):
        studies.run("first-model", directory=tmp_path / "nothing", out_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------------- the command


def test_the_list_names_every_study():
    shown = CliRunner().invoke(app, ["--list"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == list(studies.names())
    plain = CliRunner().invoke(app, ["--list", "--json"])
    assert json.loads(plain.stdout)["studies"]["prior-response"] == "How often is a released label right?"


def test_the_readme_is_printed():
    assert CliRunner().invoke(app, ["--readme"]).stdout == studies.results_readme()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prior-respnse"], "Did you mean `prior-response`"),
        (["frist-model"], "Did you mean `first-model`"),
        ([], "There are: adult-learners, "),
        (["prior-response", "--seeds", "0"], "`seeds` must be"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(arguments: list[str], said: str):
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert shown.stdout == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_the_result_and_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
):
    monkeypatch.setattr(prior_response, "EPSILONS", (1.0,))
    arguments = ["prior-response", "--quick", "--seeds", "2", "--out-dir", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, arguments + ["--json"] * as_json)
    assert shown.exit_code == 0, shown.stderr
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["index.html", "plot-1.svg", "result.json"]  # nothing partial remains
    if as_json:
        told = json.loads(shown.stdout)
        assert told["facts"]["seeds"] == [0, 1]
        assert told["page"] == str(tmp_path / "out" / "index.html")
    else:
        assert "At epsilon 1, " in shown.stdout
        assert max(len(line) for line in shown.stdout.splitlines() if "page:" not in line) <= 100
