"""Ugly files: each is read as its generator knows it to be, or refused with the fix in the message; nothing is spent."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.data import open_table
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError

PLACE = Path(__file__).parents[2] / "benchmarks" / "ugly_tables.py"
SPEC = importlib.util.spec_from_file_location("ugly_tables", PLACE)
assert SPEC is not None
ugly_tables = importlib.util.module_from_spec(SPEC)
sys.modules["ugly_tables"] = ugly_tables
SPEC.loader.exec_module(ugly_tables)
CASES = ugly_tables.CASES
READ = [case for case in CASES if case.truth is not None]
REFUSED = [case for case in CASES if case.truth is None]


def name(case):
    return case.name


def test_there_are_enough_of_them():
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", READ, ids=name)
def test_it_is_read_as_it_is(case, tmp_path):
    source = open_table(case.write(tmp_path), **case.options).settle()
    found = pa.Table.from_batches(source.batches(), schema=source.schema).to_pydict()
    assert list(found) == list(case.truth)
    for column, values in case.truth.items():
        assert found[column] == values
        assert {type(value) for value in found[column]} == {type(value) for value in values}


def test_late_values_are_in_none_of_the_pieces_that_are_looked_at(tmp_path):
    late = [case for case in READ if case.name.startswith("late-")]
    assert len(late) == 2
    for case in late:
        assert open_table(case.write(tmp_path)).schema.field("code").type == pa.int64()


@pytest.mark.parametrize("case", READ, ids=name)
def test_it_is_released(case, tmp_path):
    """The other columns come out as they are, also where a type turns out to be another one after the charge."""
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite", budget=1.0)
    source = open_table(case.write(tmp_path), **case.options)
    done = privatize_table(source, label=case.label, to=tmp_path / "out", epsilon=1.0, ledger=ledger)
    assert done.rows == len(case.truth[case.label])
    found = pq.read_table(tmp_path / "out" / "labels.parquet")
    for column, values in case.truth.items():
        if column != case.label:
            assert found[column].to_pylist() == values
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("case", REFUSED, ids=name)
def test_it_is_refused_with_the_fix_and_nothing_is_spent(case, tmp_path):
    path = case.write(tmp_path)
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite", budget=1.0)
    with pytest.raises(LabelDPError) as error:
        source = open_table(path, **case.options)
        privatize_table(source, label=case.label, to=tmp_path / "out", epsilon=1.0, ledger=ledger)
    assert case.says in str(error.value)
    assert "yes" not in str(error.value)
    assert ledger.entries() == ()
    assert {left.name for left in tmp_path.iterdir()} <= {
        path.name,
        "ledger.sqlite",
        "ledger.sqlite-wal",
        "ledger.sqlite-shm",
    }
