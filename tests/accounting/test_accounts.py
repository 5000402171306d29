"""Sketches of rows: one form for one value, sums and samples that do not depend on order or pieces, and the rule."""

from __future__ import annotations

import datetime as dt
import decimal
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from labeldp.accounting import AccountName, Ledger, RowKey, protect_ids, protect_rows
from labeldp.accounting.accounts import KnownRows, Overlap, choose_account, compare_rows
from labeldp.accounting.sketches import SAMPLE_ROWS, RowSketch
from labeldp.errors import AccountError, LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee

KEY = RowKey(bytes(range(32)))


def sketch(columns: dict[str, Any], key: RowKey = KEY) -> RowSketch:
    found = protect_rows(pa.table(columns).to_batches(), key, label="y").columns
    assert found is not None
    return found


def known(one: RowSketch, name: str = "a") -> KnownRows:
    return KnownRows(label_set=name, kind=one.kind, sets=(one.rows,), sample=one.sample)


def total(values: Any) -> str:
    return sketch({"x": values}).rows.total


# ------------------------------------------------------------------------------------------------------ one form a value

DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, 30, 1)  # noqa: DTZ001 - a table may have it so
ALIKE = [
    [pa.array([1, -7, None], kind) for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64())]
    + [pa.array([1.0, -7.0, float("nan")]), pa.array([decimal.Decimal("1.00"), decimal.Decimal(-7), None])]
    + [pa.array([1, -7, None]).dictionary_encode()],
    [pa.array([0.0, 1.0]), pa.array([-0.0, 1.0]), pa.array([False, True]), pa.array([0, 1], pa.uint64())],
    [pa.array([0.1, 2.5]), pa.array([decimal.Decimal("0.1"), decimal.Decimal("2.5")])],
    [
        pa.array(["a", "", "longer than eight bytes", "é"], kind)
        for kind in (pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string()))
    ]
    + [pa.array(["a", None, "longer than eight bytes", "é"])],
    [pa.array([DAY], pa.date32()), pa.array([DAY], pa.date64()), pa.array([DAY], pa.date32()).cast(pa.timestamp("s"))],
    [pa.array([NOON], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
    + [pa.array([NOON.replace(tzinfo=dt.timezone.utc)], pa.timestamp("us", tz="UTC"))],
    [pa.array([None, None], pa.null()), pa.array([None, None], pa.int32()), pa.array(["", None])],
]


@pytest.mark.parametrize("columns", ALIKE)
def test_a_value_counts_once_however_it_is_stored(columns: list[Any]) -> None:
    assert len({total(column) for column in columns}) == 1


DIFFERENT = [
    pa.array([1]),
    pa.array([2]),
    pa.array([1.5]),
    pa.array([-1]),
    pa.array([None], pa.int64()),
    pa.array(["1"]),
    pa.array([2**64 - 1], pa.uint64()),
    pa.array([2.0**70]),
    pa.array([float("inf")]),
    pa.array([1], pa.timestamp("ns")),
    pa.array([1], pa.time64("ns")),
    pa.array([1], pa.duration("ns")),
    pa.array(["a"]),
    pa.array(["a\0"]),
    pa.array(["aaaaaaaa"]),
    pa.array(["aaaaaaaaa"]),
    pa.array([[1]]),
    pa.array([[1, 2]]),
    pa.array([{"a": 1}]),
    pa.array([b"123"], pa.binary(3)),
]


def test_different_values_are_told_apart() -> None:
    """Two of 20 totals agree by chance with probability 190 / 2^64."""
    assert len({total(column) for column in DIFFERENT}) == len(DIFFERENT)


def test_slices_of_arrays_count_from_where_they_begin() -> None:
    for column in (
        pa.array(["x", "a", None, "longer words"]),
        pa.array([9, 1, None, 5]),
        pa.array([True, False, None]),
    ):
        assert total(column.slice(1)) == total(pa.array(column.to_pylist()[1:], column.type))
        folded = pa.chunked_array([column.slice(0, 2), column.slice(2)])
        assert total(folded) == total(column)


def test_names_of_columns_and_repeats_count_and_order_does_not() -> None:
    base = {"a": [1, 2, 2], "b": ["x", "y", "y"]}
    first = sketch(base).rows
    assert sketch({"b": ["y", "x", "y"], "a": [2, 1, 2]}).rows == first
    for other in (
        {"a": [1, 2], "b": ["x", "y"]},
        {"a": [1, 1, 2], "b": ["x", "x", "y"]},
        {"b": [1, 2, 2], "a": ["x", "y", "y"]},
        {"a": [1, 2, 2], "c": ["x", "y", "y"]},
        {"a": [1, 2, 2], "b": ["y", "x", "y"]},  # the same columns, other rows
    ):
        assert sketch(other).rows.total != first.total
    assert sketch(base, RowKey.fresh()).rows.total != first.total


def test_hashes_spread_evenly() -> None:
    """Each of 64 bits of 16,384 hashes is set in half of them, within 6 standard errors. The key is fixed: no chance is left."""
    hashes = sketch({"x": np.arange(SAMPLE_ROWS)}).sample.hashes
    assert len(hashes) == SAMPLE_ROWS
    shares = [float(((hashes >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 6 * 0.5 / SAMPLE_ROWS**0.5


# ------------------------------------------------------------------------------------------------------------- sketches


def test_pieces_in_any_order_give_the_sketch_of_the_whole() -> None:
    table = pa.table({"x": np.arange(40_000) // 2, "y": np.zeros(40_000)})
    whole = protect_rows(table.to_batches(), KEY, label="y")
    parts = [
        protect_rows(table.slice(at, 9000).to_batches(max_chunksize=700), KEY, label="y")
        for at in range(0, 40_000, 9000)
    ]
    joined = parts[3]
    for part in (parts[0], parts[4], parts[2], parts[1]):
        joined = joined.joined(part)
    assert whole.columns is not None
    assert joined.columns is not None
    assert joined.columns.rows == whole.columns.rows
    assert (joined.columns.sample.hashes == whole.columns.sample.hashes).all()
    assert (joined.columns.sample.counts == 2).all()
    assert (whole.columns.sample.counts == 2).all()


def test_memory_is_that_of_a_batch_and_a_sample() -> None:
    """Two million rows take what 400,000 take, a tenth more at most; if all hashes were kept it would be five times that."""

    def batches(count: int) -> Any:
        for number in range(count):
            start = number * 50_000
            yield pa.RecordBatch.from_pydict({"x": np.arange(start, start + 50_000), "y": pa.nulls(50_000)})

    def peak(count: int) -> int:
        tracemalloc.start()
        found = protect_rows(batches(count), KEY, label="y")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.columns is not None
        assert found.n_rows == 50_000 * count
        assert found.columns.sample.hashes.nbytes + found.columns.sample.counts.nbytes < 150_000
        return most

    peak(1)  # compiles
    assert peak(40) < 1.1 * peak(8)


def test_a_share_is_estimated_within_the_error_of_the_sample() -> None:
    """Half of 200,000 rows: 16,384 of them in the sample; 6 standard errors of a share are 2.4 %: fails 2e-9 of times."""
    one = sketch({"x": np.arange(200_000)})
    other = sketch({"x": np.arange(100_000, 300_000)})
    found = compare_rows(one, known(other))
    assert found is not None
    assert found.share == pytest.approx(0.5, abs=6 * 0.5 / SAMPLE_ROWS**0.5)


@pytest.mark.parametrize("values", [10, 100, 300, 1000, 3000])
@pytest.mark.parametrize(("n_one", "n_other"), [(20_000, 20_000), (20_000, 1000), (1000, 20_000)])
def test_chance_is_no_overlap(values: int, n_one: int, n_other: int) -> None:
    """Rows of two columns, drawn independently: some coincide. Fixed seeds: the answer is the same each time."""
    rng = np.random.default_rng(values)

    def draw(size: int) -> RowSketch:
        return sketch({"a": rng.integers(0, values, size), "b": rng.integers(0, values, size)})

    assert compare_rows(draw(n_one), known(draw(n_other))) is None


def test_a_part_is_found_where_most_rows_are_single() -> None:
    """The broken twin of the test above: the same tables, and one of them has a tenth of the other's rows."""
    rng = np.random.default_rng(5)
    one = {"a": rng.integers(0, 1000, 20_000), "b": rng.integers(0, 1000, 20_000)}
    part = {name: column[:2000] for name, column in one.items()}
    found = compare_rows(sketch(part), known(sketch(one)))
    assert found is not None
    assert found.share > 0.9


def test_less_than_a_hundredth_is_no_overlap_without_ids_and_one_is_with_ids() -> None:
    assert compare_rows(sketch({"x": np.arange(1000)}), known(sketch({"x": np.arange(995, 1995)}))) is None
    assert compare_rows(sketch({"x": np.arange(1000)}), known(sketch({"x": np.arange(980, 1980)}))) is not None
    one, other = protect_ids(np.arange(1000), KEY).ids, protect_ids(np.arange(999, 1999), KEY).ids
    assert one is not None
    assert other is not None
    assert compare_rows(one, known(other)) is not None


# ------------------------------------------------------------------------------------------------------------- the rule


def overlap(name: str, *, share: float = 1.0, equal: bool = False, label: str = "y") -> Overlap:
    return Overlap(label_set=name, share=share, equal=equal, labels=(label,))


def choose(name: str, *found: Overlap, given: bool = False, **state: str) -> tuple[str, int]:
    choice = choose_account(name, found, given=given, label="y", state={**state})
    return choice.label_set, len(choice.notes)


def test_the_rule() -> None:
    assert choose("new") == ("new", 0)
    assert choose("a", a="name") == ("a", 1)
    assert choose("a", a="rows") == ("a #2", 1)
    assert choose("a", **{"a": "rows", "a #2": "rows"}) == ("a #3", 1)
    assert choose("a", overlap("a", equal=True), a="rows") == ("a", 0)
    assert choose("copy", overlap("a", equal=True)) == ("a", 1)
    assert choose("copy", overlap("a", equal=True), overlap("b", share=0.3)) == ("a", 1)
    assert choose("a", overlap("a", share=0.5), a="rows") == ("a", 1)  # it has grown
    assert choose("a", overlap("a", equal=True), overlap("b", equal=True)) == ("a", 0)
    for found in (
        [overlap("a", share=0.3)],
        [overlap("a", share=0.3), overlap("copy", share=0.3)],
        [overlap("a", equal=True), overlap("b", equal=True)],
        [overlap("a", equal=True, label="other")],
        [overlap("copy", equal=True, label="other")],
    ):
        with pytest.raises(AccountError, match="must be given"):
            choose("copy", *found)
        name, notes = choose("copy", *found, given=True)
        assert (name, notes) == ("copy", int(any(one.label_set != "copy" for one in found)))
    assert choose("copy", overlap("a", equal=True, label="")) == ("a", 1)  # labels in memory have no column


def test_rows_of_another_ledger_are_refused(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.row_key()
    name = AccountName("a", protect_ids([1, 2], RowKey.fresh()))
    with pytest.raises(LabelDPError, match="read for this ledger"):
        ledger.charge(Guarantee.pure(1.0), label_set=name, rows="0" * 64, n_rows=2, mechanism="RR")
    assert ledger.entries() == ()


def test_an_account_is_widened_and_keeps_all_its_tables(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for first in (0, 5, 0):
        ids = protect_ids(np.arange(first, first + 10), ledger.row_key())
        name = AccountName("a", ids, given=True)
        ledger.charge(Guarantee.pure(1.0), label_set=name, rows="0" * 64, n_rows=10, mechanism="RR")
    (found,) = ledger.known_rows("a")
    assert ([one.n_rows for one in found.sets], len(found.sample)) == ([10, 10], 15)
    ledger.verify()
    both = AccountName("b", protect_ids(np.arange(14, 30), ledger.row_key()))
    with pytest.raises(AccountError, match="'a'"):
        ledger.choose_account(both)


def test_a_ledger_of_the_first_version_keeps_the_key_with_its_first_charge(tmp_path: Any) -> None:
    """Rows of version 1 are replayed by the first charge, which is the first that may write: the key waits for it."""
    import sqlite3
    from contextlib import closing

    from labeldp.accounting.ledger_file import SCHEMAS

    path = tmp_path / "ledger.sqlite"
    Ledger(path)
    with closing(sqlite3.connect(path)) as other:
        for command in SCHEMAS[1].values():
            other.execute(command)
        other.execute("PRAGMA application_id = 0x4C44504C")
        other.execute("PRAGMA user_version = 1")
        other.commit()
    ledger = Ledger(path)
    name = AccountName("a", protect_ids([1, 2], ledger.row_key()))
    assert ledger.choose_account(name).label_set == "a"
    ledger.charge(Guarantee.pure(1.0), label_set=name, rows="0" * 64, n_rows=2, mechanism="RR")
    assert ledger.row_key().digest == Ledger(path).row_key().digest
    assert ledger.choose_account(AccountName("b", protect_ids([2, 1], ledger.row_key()))).label_set == "a"
    Ledger(path).verify()


def test_a_key_that_is_none_is_refused(tmp_path: Any) -> None:
    with pytest.raises(LabelDPError, match="32 bytes"):
        RowKey(b"short")
    import sqlite3
    from contextlib import closing

    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.row_key()
    with closing(sqlite3.connect(ledger.path)) as other:
        other.execute("UPDATE row_key SET bytes = 'text'")
        other.commit()
    with pytest.raises(PrivacyError, match="did not make"):
        ledger.row_key()
