"""`labeldp train` on a table longer than a batch: the model of memory, in batches, from a table and from a release."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from labeldp.learn import TableEncoder, load_model

BATCH = 150


@pytest.fixture
def encoded(monkeypatch):
    """The rows of every matrix that an encoder makes."""
    rows = []
    plain = TableEncoder.transform

    def transform(self, X):
        matrix = plain(self, X)
        rows.append(len(matrix) if isinstance(matrix, np.ndarray) else 0)
        return matrix

    monkeypatch.setattr(TableEncoder, "transform", transform)
    return rows


@pytest.mark.parametrize("table", ["people.parquet", "test.csv"])
def test_a_long_table_is_read_in_batches_and_gives_the_same_model(run, folder, monkeypatch, encoded, table):
    """Both stop where no entry of the gradient exceeds 1e-5: probabilities agree to 5e-3 (see tests/learn/test_tables)."""
    line = f"train {table} -l income -e 2 --drop id --stages 2 --seed 3"
    run(f"{line} --save-release whole --to whole.skops")
    assert max(encoded) > BATCH
    encoded.clear()
    monkeypatch.setattr("labeldp.data.tables.BATCH_ROWS", BATCH)
    run(f"{line} --save-release parts --to parts.skops")
    run("train parts --to receiver.skops")
    assert 0 < max(encoded) <= BATCH
    assert pq.read_table("whole/labels.parquet").equals(pq.read_table("parts/labels.parquet"))
    features = pq.read_table("people.parquet").drop_columns(["income", "id"])
    whole, parts, receiver = (
        load_model(f"{name}.skops").predict_proba(features) for name in ("whole", "parts", "receiver")
    )
    assert np.abs(whole - parts).max() < 5e-3
    assert np.array_equal(parts, receiver)


@pytest.mark.parametrize("options", ["--estimator bayes", "--prior cluster --clusters 4"])
def test_what_needs_all_rows_at_once_gets_them(run, folder, monkeypatch, encoded, options):
    monkeypatch.setattr("labeldp.data.tables.BATCH_ROWS", BATCH)
    run(f"train people.parquet -l income -e 2 --drop id --to m.skops {options}")
    assert max(encoded) > BATCH
