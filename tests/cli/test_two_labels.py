"""Two labels in one table: the release of one must not publish the other, which the same ledger protects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp.accounting import Ledger
from labeldp.engines import privatize_table
from labeldp.errors import AccountWarning, LabelDPError, PrivacyError
from labeldp.priors import PublicPrior

N = 400
FIRST = "privatize two.parquet -l left -e 1 --classes no,yes --to first --ledger l.sqlite --budget 5"
SECOND = "privatize two.parquet -l segment -e 1 --classes A,B,C --to second --ledger l.sqlite --label-set segments"


def two_labels(n: int = N) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(n),
            "age": rng.normal(40, 10, n).round(1),
            "left": rng.choice(["no", "yes"], n),
            "segment": rng.choice(["A", "B", "C"], n),
        }
    )


@pytest.fixture
def two(folder):
    pq.write_table(two_labels(), folder / "two.parquet")
    return folder


def test_a_second_label_does_not_publish_the_first(two, run, refused):
    run(FIRST)
    told = refused(SECOND, code=4)
    assert "'left'" in told
    assert "--drop left" in told
    assert len(Ledger("l.sqlite").entries()) == 1
    run(SECOND + " --drop left")
    assert "left" not in pq.read_schema(two / "second" / "labels.parquet").names
    # And the other way round: the first label is released again, and the second is protected by now.
    assert "--drop segment" in refused(FIRST.replace("first", "again"), code=4)
    run(FIRST.replace("first", "again") + " --drop segment,id")
    assert pq.read_schema(two / "again" / "labels.parquet").names == ["age", "left"]


@pytest.mark.parametrize(
    "line",
    [
        "train two.parquet -l segment -e 1 --classes A,B,C --to m.skops --ledger l.sqlite --label-set mine",
        "pate two.parquet -l segment -e 4 --classes A,B,C --public public.parquet --to m.skops --ledger l.sqlite",
    ],
)
def test_a_model_does_not_learn_from_the_other_label(two, run, refused, line):
    run(FIRST.replace("--ledger", "--label-set churn --ledger"))  # a name that does not say which column it is
    pq.write_table(two_labels(100).drop_columns(["segment"]), two / "public.parquet")
    told = refused(line, code=4)
    assert "'left' (the label of account 'churn')" in told
    assert "--drop left" in told


def test_rows_that_are_known_by_ids_are_found_in_a_part_of_the_table(two, run, refused):
    run(FIRST + " --row-ids id")
    pq.write_table(two_labels().slice(0, N // 2), two / "two.parquet")
    assert "--drop left" in refused(SECOND + " --row-ids id", code=4)


def test_a_label_of_that_name_in_other_rows_is_told(two, run):
    run(FIRST)
    pq.write_table(two_labels().slice(0, N // 2), two / "two.parquet")  # no ids were named: a part is not recognised
    said = " ".join(run(SECOND).stderr.split())
    assert "note: column 'left' is used as it is, and account 'two.parquet:left' protects a label of that name" in said


@pytest.mark.parametrize("engine", ["local", pytest.param("dask", marks=pytest.mark.slow)])
def test_tables_in_python_are_held_to_the_same(two, engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    ledger = Ledger("l.sqlite", budget=5.0)
    options = {"epsilon": 1.0, "ledger": ledger, "engine": engine}
    options |= {"workers": 1} if engine == "dask" else {}
    privatize_table("two.parquet", label="left", classes=["no", "yes"], to="first", **options)
    second = {"label": "segment", "classes": ["A", "B", "C"], "to": "second", "label_set": "segments", **options}
    with pytest.raises(PrivacyError, match="drop=\\['left'\\]"):
        privatize_table("two.parquet", **second)
    assert not (two / "second").exists()
    assert len(ledger.entries()) == 1
    with pytest.warns(AccountWarning, match="as you say"):
        done = privatize_table("two.parquet", **second, drop=["left"])
    assert done.load().label_column == "segment"
    assert pq.read_schema(two / "second" / "labels.parquet").names == ["id", "age", "segment"]


def test_nothing_of_a_dropped_column_is_released(two):
    options = {"label": "segment", "classes": ["A", "B", "C"], "to": "out", "epsilon": 1.0, "drop": ["left"]}
    for wrong in ({"cluster_column": "left"}, {"prior": PublicPrior(["left", "age", "id"])}):
        with pytest.raises(LabelDPError, match="not be read from a column that is dropped, got 'left'"):
            privatize_table("two.parquet", **options, **wrong)
    with pytest.raises(LabelDPError, match="`drop` must not be the label column"):
        privatize_table("two.parquet", **{**options, "drop": ["segment"]})
    with pytest.raises(LabelDPError, match=r"must be a column of the table, got 'lft'. Did you mean `left`"):
        privatize_table("two.parquet", **{**options, "drop": ["lft"]})
