"""`labeldp report`: one page out of a release, and nothing written when something is wrong."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture
def released(run, folder):
    run("privatize people.parquet -l income -e 1 --to release --ledger l --budget 3")
    return folder


@pytest.mark.filterwarnings("ignore::labeldp.errors.OptimisticScoreWarning")  # that is what the page then says
def test_a_page_with_ledger_and_model(run, run_json, released):
    run("train release --drop id --to m.skops")
    facts = run_json("report release --to report.html --ledger l --model m.skops")
    page = (released / "report.html").read_text(encoding="utf-8")
    assert facts == {
        "report": "report.html",
        "release": "release",
        "bytes": len(page.encode()),
        "seeded": False,
    }
    assert facts["bytes"] < 100_000
    text = re.sub(r"<[^>]*>", " ", page)
    assert "at most 73.2%" in text
    assert "as charged" in text
    assert "it adds nothing to what the release cost" in text
    assert "Not private" not in text
    # How good the model is, from the released labels alone; that it learned from them is said.
    assert "What it bought" in text
    assert "the model was trained on this very release" in text
    (released / "e.json").write_text(run("evaluate m.skops --release release --json").stdout)
    run("report release --to second.html --evaluation e.json")
    assert "What it bought" in (released / "second.html").read_text(encoding="utf-8")


def test_what_audit_writes_report_reads(run, released):
    (released / "audit.json").write_text(run("audit release --json").stdout)
    run("report release --out report.html --audit audit.json")
    page = (released / "report.html").read_text(encoding="utf-8")
    assert "Every check passed." in page
    assert "NOT of this release" not in page
    assert len(page) < 100_000


def test_an_audit_of_the_owners_labels_is_not_written_into_a_page(run, released):
    """It may find nothing, or something: what it says is counts of raw labels either way, and the page is for anyone."""
    # A sound release is found at fault, which is exit code 1 here, with probability 1e-7 at most.
    line = "audit release --labels people.parquet --label income --confidence 0.9999999 --json"
    (released / "audit.json").write_text(run(line).stdout)
    said = run("report release --to report.html --audit audit.json", code=4).stderr
    assert "leave --labels out" in " ".join(said.split())
    assert not (released / "report.html").exists()


def test_an_option_that_has_no_effect_any_more_is_accepted_and_not_shown(run, released):
    run("report release --to one.html")
    run("report release --to two.html --static")
    assert (released / "one.html").read_bytes() == (released / "two.html").read_bytes()
    assert "--static" not in run("report --help").stdout


def test_a_seed_is_shouted_about(run, folder):
    run("privatize people.parquet -l income -e 1 --to release --seed 1")
    assert "NOT PRIVATE" in run("report release --to report.html").stderr
    assert 'role="alert"' in (folder / "report.html").read_text(encoding="utf-8")


BAD = {
    "report relaese --to report.html": "Did you mean `release`",
    "report release --to people.parquet": "new file",
    "report release --to no/such/report.html": "existing folder",
    "report release --to report.html --evaluation people.parquet": "labeldp evaluate",
    "report release --to report.html --ledger ll": "Did you mean `l`",
    "report release --to report.html --audit test.csv": "be a JSON file",
    "report release --to report.html --audit odd.json": "answer of an audit",
    "report release --to report.html --model odd.skops": "existing file",
    "report release --to report.html --ledger people.parquet": "ledger of labeldp",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_lines(refused, released, line):
    (released / "odd.json").write_text(json.dumps([1, 2]))
    assert BAD[line] in refused(line)


def test_a_damaged_release_is_refused(refused, released):
    path = released / "release" / "labels.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    assert "checksum" in refused("report release --to report.html", code=4)
