"""What is wrong with a table or a call is said in one line, before anything is charged, and nothing is left behind."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import labeldp
from labeldp.engines import open_released_table, privatize_table
from labeldp.errors import BudgetError, LabelDPError
from labeldp.release import privatize

PRIOR = ["p_high", "p_low", "p_middle"]


def refused(path: Path, message: str, *, kind: type[Exception] = LabelDPError, **options: Any) -> None:
    """Expect an error, an uncharged ledger, and a folder with nothing new in it."""
    before = sorted(path.parent.iterdir())
    ledger = labeldp.Ledger(path.parent / "ledger.sqlite")
    settings: dict[str, Any] = {
        "label": "level",
        "epsilon": 1.0,
        "to": path.parent / "out",
        "ledger": ledger,
        **options,
    }
    with pytest.raises(kind, match=message):
        privatize_table(path, **settings)
    assert ledger.entries() == ()
    assert sorted(path.parent.iterdir()) == before


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_a_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "table.parquet", r"`path` must be an existing file, got 'table.parquet'")


def test_a_missing_column_names_the_nearest(path: Path) -> None:
    refused(path, r"`column` must be .*, got 'levels'\. Did you mean `level`", label="levels")


@pytest.mark.parametrize(
    "options",
    [{"row_ids": "idd"}, {"cluster_column": "idd"}, {"prior_columns": ["p_high", "p_low", "idd"]}],
    ids=lambda options: next(iter(options)),
)
def test_other_missing_columns(options: dict[str, Any], path: Path) -> None:
    refused(path, r"`column` must be a column of the table, got 'idd'\. Did you mean `id`", **options)


def test_missing_labels_say_how_many(write: Callable[..., Path], table: pa.Table) -> None:
    gone = pa.array(np.arange(len(table)) % 100 == 0)
    path = write(replaced(table, "level", pc.if_else(gone, None, table["level"])))
    refused(path, r"no missing values, got 30 missing of 3,000 rows\. .*--missing drop")


def test_a_label_seen_once(write: Callable[..., Path], table: pa.Table) -> None:
    path = write(replaced(table, "level", pa.array(["odd", *table["level"].to_pylist()[1:]])))
    refused(path, r"more than once .*, got one that row 0 alone has")
    done = privatize_table(
        path, label="level", to=path.parent / "listed", epsilon=1.0, classes=["high", "low", "middle", "odd"]
    )
    assert len(done.classes) == 4


def test_a_constant_label(write: Callable[..., Path], table: pa.Table) -> None:
    refused(write(replaced(table, "level", pa.array(["low"] * len(table)))), r"two values or more, got one value only")


def test_a_quantity_is_told_its_way(path: Path) -> None:
    refused(path, r"at most 1,000 values, got more different numbers\. Numbers: give public bounds", label="x")


HALF = np.repeat([1.5, 2.5], 5)
#: Labels that are no numbers within bounds, by what is wrong; a row is named as for classes, and no value.
NOT_NUMBERS: dict[str, tuple[Any, str]] = {
    "infinity": (
        [1.0, np.inf],
        r"`label` must be finite, got a missing or infinite number in row 1 \(rows count from 0\)",
    ),
    "missing": ([1.0, None, np.nan], r"no missing values, got 2 missing of 3 rows\. .*--missing drop"),
    "nothing": (pa.nulls(3), r"have values, got 3 missing of 3 rows"),
    "text that looks like numbers": (["1.5", "2.5"], r"be numbers, .* got text in row 0 .*--type bad=double"),
    "booleans": ([True, False], r"be numbers, where bounds are given, got booleans"),
    "dates": (pa.array([1, 2], pa.date32()), r"got dates or durations.*Subtract a public date"),
    "times": (pa.array([1, 2], pa.time32("s")), r"got dates or durations.*Subtract a public date"),
    "durations": (pa.array([1, 2], pa.duration("s")), r"got dates or durations"),
    "lists": ([[1.0], [2.0]], r"be a column of single values"),
    "bytes": ([b"1", b"2"], r"got something else in row 0"),
}


@pytest.mark.parametrize("case", NOT_NUMBERS)
def test_labels_that_are_no_numbers(case: str, write: Callable[..., Path]) -> None:
    values, message = NOT_NUMBERS[case]
    path = write(pa.table({"x": np.arange(len(values)), "bad": values}))
    refused(path, message, label="bad", bounds=(0, 10))


def test_numbers_outside_are_refused_where_that_is_asked(write: Callable[..., Path]) -> None:
    """The row and its file, as for classes; of a table in row groups too, and not how many there are, or what they hold."""
    column = np.append(HALF, [77.25, 99.0])
    path = write(pa.table({"bad": column}), row_group_size=3)
    message = r"^bad: `label` must be within bounds, got another one in row 10 \(rows count from 0\)\. Widen"
    refused(path, message, label="bad", bounds=(0, 10), outside="refuse")
    for name in ("a", "b"):
        (path.parent / "parts").mkdir(exist_ok=True)
        pq.write_table(pa.table({"bad": HALF if name == "a" else column}), path.parent / "parts" / f"{name}.parquet")
    refused(path.parent / "parts", r"row 10 of b.parquet \(rows", label="bad", bounds=(0, 10), outside="refuse")
    done = privatize_table(path, label="bad", to=path.parent / "out", bounds=(0, 10), epsilon=1.0)
    assert "numbers outside were clipped to them" in str(done.guarantee)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": (5, 0)}, r"`bounds` must rise, got \(5, 0\)"),
        ({"bounds": (0, np.inf)}, r"`bounds` must be finite"),
        ({"bounds": (0, 1e200)}, r"told apart by floats"),
        ({"bounds": (1e9, 1e9 + 0.1)}, r"told apart by floats"),
        ({"bounds": "0,1"}, r"`bounds` must be \(low, high\)"),
        ({"bounds": (0, 1), "counts": 4}, r"`bounds` must be left out where counts are given"),
        ({"counts": 0}, r"`counts` must be the largest count"),
        ({"counts": 4.0}, r"`counts` must be the largest count"),
        ({"counts": 500}, r"at most 129: .*--bounds"),
        ({"bounds": (0, 1), "classes": [0, 1]}, r"`classes` must be left out for labels that are numbers"),
        ({"bounds": (0, 1), "strip": True}, r"`strip` must be left out for labels that are numbers"),
        ({"bounds": (0, 1), "purpose": "labels"}, r"`purpose` must be left out for labels that are numbers"),
        ({"bounds": (0, 1), "outside": "drop"}, r"`outside` must be"),
        ({"bounds": (0, 1), "epsilon": 0.0}, r"`epsilon` must be > 0"),
        ({"bounds": (0, 1), "cluster_column": "site"}, r"`prior` must be a public one for labels that are numbers"),
        ({"bounds": (0, 1), "groups": "site"}, r"`groups` must be left out"),
        ({"bounds": (0, 1), "mechanism": labeldp.RRTopK(1.0, k=2)}, r"be one for numbers, got 'RRTopK'.*unbiased"),
        ({"bounds": (0, 2), "mechanism": labeldp.UnbiasedResponse(1.0, bounds=(0, 1))}, r"be those of the mechanism"),
        ({"bounds": (0, 1), "prior": [0.5, 0.5]}, r"`source` must .*33"),
    ],
    ids=str,
)
def test_options_of_numbers_that_are_none(options: dict[str, Any], message: str, path: Path) -> None:
    refused(path, message, label="x", **options)


def test_a_value_outside_the_listed_classes(path: Path) -> None:
    refused(path, r"hold only listed classes, got another value in row \d+ \(rows", classes=["high", "low"])


def test_classes_of_another_type(path: Path) -> None:
    refused(path, r"`classes` must be values of the column's type, int8", label="number", classes=["zero", "one"])


def test_duplicate_row_ids(write: Callable[..., Path], table: pa.Table) -> None:
    ids = table["id"].to_numpy().copy()
    ids[10] = ids[20]
    refused(write(replaced(table, "id", pa.array(ids))), r"differ from row to row, got 27 2 times", row_ids="id")


def test_an_unreadable_parquet(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    refused(path, r"be readable Parquet")


def test_damage_past_the_footer(write: Callable[..., Path], table: pa.Table) -> None:
    """The footer is whole and the label column too; a feature column is not: with a ledger, whose accounts are
    known by all columns, that is found before the charge."""
    path = write(table.select(["level", "x"]), row_group_size=3000)
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = os.urandom(chunk.total_compressed_size)
    path.write_bytes(bytes(data))
    ledger = labeldp.Ledger(path.parent / "ledger.sqlite")
    with pytest.raises(LabelDPError, match=r"be readable Parquet"):
        privatize_table(path, label="level", to=path.parent / "out", epsilon=1.0, ledger=ledger)
    assert ledger.entries() == ()
    assert {p.name for p in path.parent.iterdir()} == {"table.parquet", "ledger.sqlite"}


def test_an_existing_target(path: Path) -> None:
    (path.parent / "out").mkdir()
    refused(path, r"`directory` must not exist yet")


def test_a_target_without_a_parent(path: Path) -> None:
    refused(path, r"`directory` must have a parent", to=path.parent / "no" / "such")


def test_a_reserved_name(write: Callable[..., Path], table: pa.Table) -> None:
    path = write(table.append_column("_labeldp_row", table["id"]))
    refused(path, r"not have a reserved name, got '_labeldp_row'\. .*rename or drop")


def test_columns_of_our_plain_names_are_no_collision(write: Callable[..., Path], table: pa.Table) -> None:
    """A table may have columns called row, candidates, stage or label of its own."""
    extra = table.select(["level", "site", "id"]).append_column("row", table["id"])
    for name in ("candidates", "stage", "prior_row", "label"):
        extra = extra.append_column(name, table["site"])
    path = write(extra)
    done = privatize_table(
        path, label="level", to=path.parent / "out", epsilon=1.0, cluster_column="site", purpose="labels"
    )
    features, release = open_released_table(done.directory)
    assert {"row", "candidates", "stage", "prior_row", "label"} <= set(features.names)
    assert release.stage is None
    assert set(release.labels) <= {"high", "low", "middle"}


def test_a_budget_that_does_not_admit_it(path: Path) -> None:
    labeldp.Ledger(path.parent / "ledger.sqlite", budget=0.5)
    refused(path, r"within its budget of epsilon = 0\.5", kind=BudgetError)


def test_a_ledger_that_is_not_ours(path: Path) -> None:
    other = path.parent / "notes.sqlite"
    ledger = labeldp.Ledger(other)
    other.write_text("not a database at all, but long enough to be looked at" * 50)
    with pytest.raises(LabelDPError, match=r"notes\.sqlite"):
        privatize_table(path, label="level", to=path.parent / "out", epsilon=1.0, ledger=ledger)
    assert {p.name for p in path.parent.iterdir()} == {"table.parquet", "notes.sqlite"}


class TestCalls:
    """Options that do not go together, or that would give the label away."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"prior_columns": PRIOR, "n_clusters": 3}, r"one source at most, got prior_columns and n_clusters"),
            ({"prior_epsilon": 0.1}, r"`prior_epsilon` must be left out"),
            ({"prior_columns": PRIOR[:2]}, r"one column per class, got 2 different columns for 3 classes"),
            ({"prior_columns": ["p_high", "p_low", "level"]}, r"`prior` must not be the label column"),
            ({"cluster_column": "level"}, r"`prior` must not be the label column"),
            ({"row_ids": "level"}, r"`row_ids` must not be the label column"),
            ({"prior_columns": ["p_high", "p_low", "site"]}, r"`prior_columns` must hold numbers, got string in site"),
            ({"prior_columns": ["p_high", "p_low", "x"]}, r"`source` must have rows of probabilities"),
            ({"cluster_column": "x"}, r"`groups` must be a column of whole numbers or text, got 'double'"),
            ({"n_clusters": 0}, r"`n_clusters` must be an integer in \[1, 3000\], got 0"),
            ({"n_clusters": 1001}, r"`n_clusters` must be an integer in \[1, 1000\], got 1001"),
            ({"n_clusters": 4, "epsilon": 0.0}, r"`budget` must be > 0, got 0.0. At epsilon 0 no histogram"),
            ({"cluster_column": "site", "prior_epsilon": 2.0}, r"`epsilon` must be in \(0, 1\), got 2\.0"),
            ({"batch_rows": 0}, r"`batch_rows` must be an integer >= 1"),
            ({"epsilon": -1.0}, r"`epsilon` must be >= 0"),
            ({"missing": "ignore"}, r"`missing` must be one of 'error', 'drop'"),
            ({"model": Ridge()}, r"`model` must have `predict_proba`"),
            ({"rng": "seed"}, r"`rng` must be None, an int"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_refused(self, options: dict[str, Any], message: str, path: Path) -> None:
        refused(path, message, **options)

    def test_a_group_id_that_is_missing(self, write: Callable[..., Path], table: pa.Table) -> None:
        gaps = pc.if_else(pa.array(np.arange(len(table)) == 5), None, table["site"])
        refused(
            write(replaced(table, "site", gaps)), r"no missing values, got missing ones in site", cluster_column="site"
        )

    def test_a_probability_that_is_missing_late_in_the_table(self, write: Callable[..., Path], table: pa.Table) -> None:
        gaps = pc.if_else(pa.array(np.arange(len(table)) == 2999), None, table["p_low"])
        path = write(replaced(table, "p_low", gaps))
        refused(path, r"got NaN in row 2999", prior_columns=PRIOR)

    def test_a_model_that_saw_the_label(self, path: Path, table: pa.Table) -> None:
        part = table.select(["x", "number"])
        model = LogisticRegression().fit(part, table["level"].to_numpy(zero_copy_only=False))
        refused(path, r"not take the label as a feature, got 'number'", label="number", model=model)

    def test_a_model_of_other_features(self, path: Path) -> None:
        model = LogisticRegression().fit(np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3)
        refused(path, r"a model of 2 features for 10 numeric columns", model=model)

    def test_a_model_of_other_classes(self, path: Path, table: pa.Table) -> None:
        model = LogisticRegression().fit(table.select(["x"]), table["site"].to_numpy(zero_copy_only=False))
        refused(path, r"predict the classes of the labels, got 's0'", model=model)


def test_a_release_of_labels_alone_has_no_features(tmp_path: Path) -> None:
    privatize([0, 1] * 2, labeldp.RandomizedResponse(1.0)).save(tmp_path / "labels")
    with pytest.raises(LabelDPError, match=r"hold a table with its features, got labels alone"):
        open_released_table(tmp_path / "labels")


def test_a_full_disk(path: Path) -> None:
    """A real one: the process may not write files past 40 kB, which the kernel reports as it reports no room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(LabelDPError) as error:
            privatize_table(path, label="level", to=path.parent / "out", epsilon=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value).startswith("privatize_table: could not write ")
    assert str(error.value).endswith("File too large. Nothing was kept.")
    assert [p.name for p in path.parent.iterdir()] == ["table.parquet"]


class Meddling(labeldp.Ledger):
    """A ledger that changes the table when it is charged: after the checks, and before anything is drawn."""

    def __init__(self, path: Path, *, table: Path, later: pa.Table) -> None:
        super().__init__(path)
        self.table, self.later = table, later

    def charge(self, *arguments: Any, **facts: Any) -> Any:
        pq.write_table(self.later, self.table)
        return super().charge(*arguments, **facts)


@pytest.mark.parametrize("how", ["shorter", "another label"])
def test_a_table_that_changes_between_check_and_draw(how: str, path: Path, table: pa.Table) -> None:
    others = pa.array(["new", *table["level"].to_pylist()[1:]])
    later = table.slice(0, 10) if how == "shorter" else replaced(table, "level", others)
    ledger = Meddling(path.parent / "ledger.sqlite", table=path, later=later)
    with pytest.raises(LabelDPError, match=r"changed while it was read.* Entry 1 of the ledger stays"):
        privatize_table(path, label="level", to=path.parent / "out", epsilon=1.0, ledger=ledger)
    assert {p.name for p in path.parent.iterdir()} == {"table.parquet", "ledger.sqlite"}
