"""The engines on the command line: `labeldp privatize --engine dask`, and jobs that are taken up or thrown away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labeldp.cli import app
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError

pytest.importorskip("distributed", reason="needs labeldp[dask]")

PHRASE = "correct horse battery staple"


def run(*words: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["privatize", *map(str, words)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def halfway(done: int, total: int) -> None:
    raise LabelDPError("the power went.")


def unfinished(folder: Path, **options: Any) -> Path:
    settings: dict[str, Any] = {"label": "level", "to": folder.parent / "out", "epsilon": 1.0, "label_set": "in:level"}
    with pytest.raises(LabelDPError, match=r"kept in"):
        privatize_table(folder, progress=halfway, **settings, **options)
    (place,) = folder.parent.glob(".out.partial-*")
    return place


def test_a_scheduler_by_its_address(folder: Path, cluster: Any, contents: Callable[[Path], dict[str, str]]) -> None:
    out = folder.parent
    options = ("--label", "level", "--epsilon", 1, "--seed", 4, "--json")
    there = run(folder, "--to", out / "a", "--engine", "dask", "--scheduler", cluster.address, *options)
    run(folder, "--to", out / "b", *options)
    assert json.loads(there.stdout)["rows"] == 2_000
    assert contents(out / "a") == contents(out / "b")


def test_a_job_is_taken_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = unfinished(folder, passphrase=PHRASE)
    monkeypatch.setattr("labeldp.engines.job._held", {})  # as in another process
    phrase = folder.parent / "phrase"
    phrase.write_text(PHRASE + "\n")
    options = (folder, "--label", "level", "--epsilon", 1, "--to", folder.parent / "out", "--resume", place)
    assert "passphrase" in run(*options, code=2).stderr
    run(*options, "--passphrase-file", phrase)
    assert (folder.parent / "out" / "release.json").is_file()
    assert not place.exists()


def test_a_job_is_thrown_away_without_other_options(folder: Path) -> None:
    place = unfinished(folder, keep_unfinished=True)
    assert "discarded" in run("--discard", place).stderr
    assert not place.exists()
    assert "unfinished job" in run("--discard", place, code=2).stderr


def test_a_scheduler_that_does_not_answer(folder: Path) -> None:
    options = (folder, "--label", "level", "--epsilon", 1, "--to", folder.parent / "out")
    told = run(*options, "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1", code=2).stderr
    assert "tcp://127.0.0.1:1" in told
    assert not (folder.parent / "out").exists()
