"""Studies by name: the command, the files that a run leaves, and the README of the results."""

from __future__ import annotations

import dataclasses
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
from studies.study import Kept

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
UNMEASURED: set[str] = set()
#: Studies of sets that we do not have: they run where a user has the files.
ABSENT = {"images-cifar100", "images-kmnist"}


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
        assert (written.parent / name / "result.json").exists() == (name not in UNMEASURED | ABSENT)


@pytest.mark.parametrize("name", sorted({*studies.names()} - UNMEASURED - ABSENT))
def test_a_page_can_be_made_again_from_every_committed_result(name: str, repository: Path):
    folder = repository / "studies" / "results" / name
    result = read_result(folder / "result.json")
    assert result.name == name
    assert result.facts["quick"] is False
    assert not result.is_partial  # what was measured in part is not shown as a result
    assert not (folder / "partial.jsonl").exists()
    plots = studies.find_study(name).plots(result.rows)
    committed = [path for path in folder.iterdir() if path.suffix == ".svg"]
    assert len(plots) == len(committed)


@pytest.mark.parametrize(
    "name", ["images-cifar10", "recipes"]
)  # hours of work each; `networks` and `encoder` have tests of their own
def test_a_long_study_has_words_and_a_plot_for_any_of_its_rows(name: str, repository: Path, tmp_path: Path):
    rows = read_result(repository / "studies" / "results" / name / "result.json").rows
    study = studies.find_study(name, kept=Kept(tmp_path / "partial.jsonl"))
    study.known = {"feature_cpu_seconds": 100.0}
    for some in (rows[:1], rows[-1:], rows[1::2], rows[: len(rows) // 2]):
        assert study.findings(some)
        study.plots(some)


def test_a_part_is_shown_as_one_and_the_next_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prior_response, "EPSILONS", (1.0, 2.0))
    out = ["--quick", "--out-dir", str(tmp_path / "out")]
    command = CliRunner()
    nothing = command.invoke(app, ["prior-response", *out, "--measured"])
    assert nothing.exit_code == 2
    assert "Measure something first" in nothing.stderr
    both = command.invoke(app, ["prior-response", *out, "--measured", "--only", "x"])
    assert both.exit_code == 2
    assert "stand without --only" in both.stderr
    case, *others = prior_response.PriorResponse(quick=True).cases()
    assert others
    assert command.invoke(app, ["prior-response", *out, "--only", case.name]).exit_code == 0
    shown = command.invoke(app, ["prior-response", *out, "--measured"])
    assert shown.exit_code == 0, shown.stderr
    assert "measured in part" in shown.stdout
    part = read_result(tmp_path / "out" / "result.json")
    assert part.is_partial
    assert part.facts["command"] == "python -m studies prior-response --quick --measured"
    missing = part.facts["not_measured"]
    assert [text.partition(" (seed")[0] for text in missing] == [other.name for other in others]
    assert all(text in part.findings[0] for text in missing)
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "(measured in part)" in page
    assert others[-1].name in page
    assert (tmp_path / "out" / "partial-quick.jsonl").exists()
    assert command.invoke(app, ["prior-response", *out]).exit_code == 0
    whole = read_result(tmp_path / "out" / "result.json")
    assert not whole.is_partial
    assert whole.facts["processes"] == 2
    assert whole.facts["cpu_seconds"] >= part.facts["cpu_seconds"]
    assert not (tmp_path / "out" / "partial-quick.jsonl").exists()


@pytest.fixture
def old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a whole result of a study that has got one more case since."""
    monkeypatch.setattr(prior_response, "EPSILONS", (1.0,))
    studies.run("prior-response", seeds=1, out_dir=tmp_path)
    monkeypatch.setattr(prior_response, "EPSILONS", (1.0, 2.0))
    return tmp_path


def test_a_case_that_was_measured_later_is_added_with_its_own_date(old_result: Path):
    before = read_result(old_result / "result.json")
    later = prior_response.PriorResponse().cases()[-1]
    out = ["--seeds", "1", "--out-dir", str(old_result)]
    command = CliRunner()
    assert command.invoke(app, ["prior-response", "--only", later.name, *out]).exit_code == 0
    shown = command.invoke(app, ["prior-response", "--add", *out])
    assert shown.exit_code == 0, shown.stderr
    after = read_result(old_result / "result.json")
    assert f"added {len(after.rows) - len(before.rows)} rows of {later.name}" in shown.stdout
    assert len(after.rows) > len(before.rows)
    assert [row for row in after.rows if row in before.rows] == list(before.rows)
    assert {name: after.facts[name] for name in before.facts} == before.facts
    (added,) = after.facts["added"]
    assert added["cases"] == [later.name]
    assert added["versions"] == before.facts["versions"]
    assert added["finished"] >= before.facts["finished"]
    assert after.findings == prior_response.PriorResponse().findings(after.rows)
    assert later.name in (old_result / "index.html").read_text(encoding="utf-8")
    assert not (old_result / "partial.jsonl").exists()


def test_a_row_that_is_there_is_not_added_twice(old_result: Path):
    before = (old_result / "result.json").read_text(encoding="utf-8")
    first = prior_response.PriorResponse().cases()[0]
    out = ["--seeds", "1", "--out-dir", str(old_result)]
    command = CliRunner()
    assert command.invoke(app, ["prior-response", "--only", first.name, *out]).exit_code == 0
    shown = command.invoke(app, ["prior-response", "--add", *out])
    assert shown.exit_code == 2
    assert "Run the study as a whole" in shown.stderr
    assert (old_result / "result.json").read_text(encoding="utf-8") == before
    assert (old_result / "partial.jsonl").exists()


#: Their words need the data themselves, or what a run of theirs has made.
NEED_DATA = {"multilabel-pate"}


@pytest.mark.parametrize("name", sorted({*studies.names()} - UNMEASURED - ABSENT - NEED_DATA))
def test_committed_findings_are_what_the_study_says_of_its_rows_today(name: str, repository: Path):
    """After a change of words: python -m studies NAME --retell --out-dir studies/results/NAME."""
    result = read_result(repository / "studies" / "results" / name / "result.json")
    assert studies.retell(result).findings == result.findings


def test_findings_are_said_anew_by_the_command(repository: Path, tmp_path: Path):
    old = read_result(repository / "studies" / "results" / "images-cifar10" / "result.json")
    write_result(dataclasses.replace(old, findings=("Our best against the paper's.",)), tmp_path)
    shown = CliRunner().invoke(app, ["images-cifar10", "--retell", "--out-dir", str(tmp_path)])
    assert shown.exit_code == 0
    assert read_result(tmp_path / "result.json").findings == old.findings
    assert "our best that trusts no one, pure, against the paper's best of the same promise" in shown.stdout


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
