"""Tables for the engine's tests: a few thousand rows with every kind of column that the engine treats differently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

N = 3_000
CLASSES = ("high", "low", "middle")


def make_table(n: int = N, *, seed: int = 0) -> pa.Table:
    """Ids, numbers, text, group ids, a prior in three columns, and labels of four types."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, n)
    prior = rng.dirichlet(np.ones(3), n)
    return pa.table(
        {
            "id": np.arange(n) + 7,
            "x": rng.normal(size=n) + codes,
            "level": pa.array(np.asarray(CLASSES, dtype=object)[codes]),
            "y": pa.array(rng.normal(size=n) - codes, mask=rng.random(n) < 0.05),
            "site": pa.array([f"s{c}" for c in rng.integers(0, 5, n)]),
            "zone": rng.integers(10, 14, n).astype(np.int16),
            "p_high": prior[:, 0],
            "p_low": prior[:, 1],
            "p_middle": prior[:, 2],
            "number": codes.astype(np.int8),
            "flag": codes == 1,
            "half": codes / 2.0,
            "kind": pa.array(np.asarray(CLASSES, dtype=object)[codes]).dictionary_encode(),
        }
    )


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return make_table()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a table, by default in row groups that no batch size divides, and returns its path."""

    def written(table: Any, name: str = "table.parquet", *, row_group_size: int = 701) -> Path:
        path = tmp_path / name
        pq.write_table(table, path, row_group_size=row_group_size)
        return path

    return written


@pytest.fixture
def path(table: pa.Table, write: Callable[..., Path]) -> Path:
    return write(table)
