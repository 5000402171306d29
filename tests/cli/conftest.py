"""Small tables, and a way to run a command as a user would, with what it wrote on either stream."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import typer.main

from labeldp.cli import app

N_TRAIN, N_TEST = 600, 200
#: Made once: typer's own runner makes all commands anew for each line, which takes longer than most of them run.
COMMAND = typer.main.get_command(app)


def people(n: int, seed: int) -> pa.Table:
    """Rows whose label follows from the features, so that a model can be told from a coin."""
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(40, 10, n).round(1), rng.choice(["f", "m"], n)
    rich = age + 5 * (sex == "m") + rng.normal(0, 3, n) > 42
    return pa.table({"id": np.arange(n), "age": age, "sex": sex, "income": np.where(rich, "high", "low")})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with people.parquet and test.csv."""
    pq.write_table(people(N_TRAIN, 1), tmp_path / "people.parquet")
    pa.csv.write_csv(people(N_TEST, 2), tmp_path / "test.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command line and expect an exit code; returns what it wrote on either stream."""

    def call(line: str, *, code: int = 0) -> Any:
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as left:
            COMMAND.main(line.split(), prog_name="labeldp")
        assert left.value.code == code, f"{line}: {left.value.code}\n{stdout.getvalue()}\n{stderr.getvalue()}"
        return SimpleNamespace(exit_code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    return call


@pytest.fixture
def run_json(run: Callable[..., Any]) -> Callable[[str], Any]:
    """Run a command with --json: stdout is one JSON object on one line, and nothing else."""

    def call(line: str) -> Any:
        text = run(f"{line} --json").stdout
        assert text.count("\n") == 1
        facts = json.loads(text)
        assert isinstance(facts, dict)
        return facts

    return call


@pytest.fixture
def refused(run: Callable[..., Any], folder: Path) -> Callable[..., str]:
    """Run a line that must fail: one line on stderr, an empty stdout, and a folder as it was; returns that line."""

    def call(line: str, *, code: int = 2) -> str:
        before = sorted(p.name for p in folder.iterdir())
        result = run(line, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert sorted(p.name for p in folder.iterdir()) == before
        return str(result.stderr)

    return call
