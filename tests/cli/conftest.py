"""Small tables, and ways to run a command as a user would: see the fixture `run` of all tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

N_TRAIN, N_TEST = 600, 200


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
