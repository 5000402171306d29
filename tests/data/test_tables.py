"""Tables on disk: rows in order whatever the format, bounded batches, and clear errors for what is not a table."""

from __future__ import annotations

import csv
import gzip
import math
import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from labeldp.data import column, open_table, tables, text
from labeldp.data.tables import find_missing
from labeldp.errors import ColumnTypeError, LabelDPError

ROWS = 1_000


@pytest.fixture
def table():
    return pa.table(
        {
            "row": np.arange(ROWS),
            "text": [f"line {i}\nand, more" if i % 7 == 0 else f"t{i}" for i in range(ROWS)],
            "income": ["high" if i % 3 else "low" for i in range(ROWS)],
        }
    )


@pytest.fixture(params=["parquet", "pq", "csv", "csv.gz", "folder"])
def stored(request, table, tmp_path):
    """The same table in each format; Parquet in many row groups."""
    path = tmp_path / f"people.{request.param}"
    if request.param == "folder":
        path.mkdir()
        pq.write_table(table.slice(0, 400), path / "part-0.parquet")
        pq.write_table(table.slice(400), path / "part-1.parquet", row_group_size=17)
        (path / "_SUCCESS").write_text("")
    elif request.param.startswith("csv"):
        with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(table.column_names)
            writer.writerows(zip(*table.to_pydict().values(), strict=True))
    else:
        pq.write_table(table, path, row_group_size=64)
    return path


def test_rows_come_in_order_in_bounded_batches(stored, table, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 2_000)  # several blocks
    source = open_table(stored)
    batches = list(source.batches(batch_rows=50))
    assert pa.Table.from_batches(batches).cast(table.schema).equals(table)
    assert max(batch.num_rows for batch in batches) <= 50
    assert source.names == ("row", "text", "income")
    assert source.rows == (None if "csv" in stored.name else ROWS)


def test_columns_are_chosen_in_the_order_asked(stored, table):
    source = open_table(stored)
    chosen = pa.Table.from_batches(source.batches(columns=["income", "row"]))
    assert chosen.column_names == ["income", "row"]
    assert chosen["row"].to_pylist() == table["row"].to_pylist()
    assert column(stored, "income").to_pylist() == table["income"].to_pylist()
    assert column(source, "row").to_pylist() == table["row"].to_pylist()


def test_a_batch_longer_than_the_table_is_the_table(stored):
    assert sum(batch.num_rows for batch in open_table(stored).batches(batch_rows=10**6)) == ROWS


def test_missing_column_is_answered_with_the_nearest(stored):
    with pytest.raises(LabelDPError, match=r"got 'incmoe'. Did you mean `income`\?"):
        column(stored, "incmoe")
    with pytest.raises(LabelDPError, match="Did you mean `income`"):
        list(open_table(stored).batches(columns=["row", "incomee"]))


@pytest.mark.parametrize("rows", [0, -1, 2.0, True])
def test_batch_rows_must_be_a_positive_integer(rows, table, tmp_path):
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(LabelDPError, match="`batch_rows` must be an integer >= 1"):
        list(open_table(tmp_path / "a.parquet").batches(batch_rows=rows))


def most_held(path) -> int:
    """The most bytes that Arrow holds at any batch of a table, beyond what it held before."""
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    return max(pool.bytes_allocated() - before for _ in open_table(path).batches(batch_rows=2_000))


@pytest.mark.parametrize(
    ("name", "setting", "small", "whole", "bound"),
    [
        # 6.4 MB in one row group: 0.5 MB held, and 6.8 MB where the columns are fetched whole.
        ("people.parquet", "PARQUET_BUFFER_BYTES", 2**14, 0, 2e6),
        # 15 MB of text: 1.2 MB held, as Arrow reads 32 blocks ahead however slow its reader is; 15 MB in large blocks.
        ("people.csv", "BLOCK_BYTES", 2**15, 2**20, 4e6),
    ],
)
def test_memory_is_bounded_by_the_batch_not_by_the_file(name, setting, small, whole, bound, tmp_path, monkeypatch):
    path = tmp_path / name
    noise = pa.table({f"f{i}": np.random.default_rng(i).random(100_000) for i in range(8)})  # incompressible
    if path.suffix == ".csv":
        pa_csv.write_csv(noise, path)
    else:
        pq.write_table(noise, path, row_group_size=len(noise), use_dictionary=False, data_page_size=2**14)
    del noise
    room = text if setting == "BLOCK_BYTES" else tables
    monkeypatch.setattr(room, setting, small)
    assert most_held(path) < bound
    monkeypatch.setattr(room, setting, whole)  # the twin: the measure sees what reading it all would cost
    assert most_held(path) > bound


# ------------------------------------------------------------------------------------------------------------- errors


def test_missing_file_is_answered_with_the_nearest(table, tmp_path):
    pq.write_table(table, tmp_path / "people.parquet")
    with pytest.raises(LabelDPError, match=f"Looked in {re.escape(str(tmp_path))}. Did you mean `people.parquet`"):
        open_table(tmp_path / "peple.parquet")
    with pytest.raises(LabelDPError, match="which does not exist either"):
        open_table(tmp_path / "no" / "people.parquet")


def test_missing_file_in_a_folder_without_tables(tmp_path):
    with pytest.raises(LabelDPError, match="There is no table in that folder"):
        open_table(tmp_path / "people.parquet")
    with pytest.raises(LabelDPError, match="must be a folder with Parquet files"):
        open_table(tmp_path)


def test_unknown_extension(tmp_path):
    (tmp_path / "people.xlsx").write_bytes(b"PK")
    with pytest.raises(
        LabelDPError, match=r"known format, got 'people.xlsx'. Known are .parquet, .pq, .feather, .arrow, .csv, "
    ):
        open_table(tmp_path / "people.xlsx")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_truncated_parquet(keep, table, tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(table, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(LabelDPError, match=r"`people.parquet` must be readable Parquet"):
        open_table(path)


def test_parquet_damaged_inside_is_reported_by_the_batch_that_meets_it(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"row": np.arange(5_000)}), path)
    content = bytearray(path.read_bytes())
    content[100:2_000] = bytes(1_900)
    path.write_bytes(bytes(content))
    source = open_table(path)
    with pytest.raises(LabelDPError, match="must be readable Parquet"):
        list(source.batches())


def test_a_file_that_vanishes_is_our_error(table, tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(table, path)
    source = open_table(path)
    path.unlink()
    with pytest.raises(LabelDPError, match="must be readable Parquet"):
        list(source.batches())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have rows, got an empty file"),
        ("a,b\n", "must have rows, got an empty table"),
        ("a,b\n1,2\n3\n", "must be readable CSV, got 1 columns where 2 were expected"),
        ("a,a\n1,2\n", "must have columns of different names, got 'a' more than once"),
    ],
    ids=["empty", "header only", "ragged", "same name twice"],
)
def test_bad_csv(content, message, tmp_path):
    (tmp_path / "people.csv").write_text(content)
    with pytest.raises(LabelDPError, match=message):
        open_table(tmp_path / "people.csv")


def test_parquet_without_rows(table, tmp_path):
    pq.write_table(table.slice(0, 0), tmp_path / "people.parquet")
    with pytest.raises(LabelDPError, match="must have rows, got an empty table"):
        open_table(tmp_path / "people.parquet")


def test_folder_of_two_schemas(table, tmp_path):
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.drop_columns(["text"]), tmp_path / "b.parquet")
    with pytest.raises(LabelDPError, match=r"must have one schema, that of a.parquet, got another schema in b.parquet"):
        open_table(tmp_path)


# ------------------------------------------------------------------------------------------------------ types of a CSV


@pytest.mark.parametrize(("late", "kind"), [("x", "string"), ("1.5", "double"), ("", "int64"), ("?", "int64")])
def test_a_wrong_guess_is_found_out_and_mended(late, kind, tmp_path, monkeypatch):
    for name, value in {"HEAD_BYTES": 200, "PIECE_BYTES": 100, "MORE_PIECES": 2}.items():
        monkeypatch.setattr(text, name, value)
    path = tmp_path / "people.csv"
    path.write_text("code,row\n" + "1,2\n" * 5_000 + f"{late},3\n" + "1,2\n" * 5_000)
    source = open_table(path)
    assert source.schema.field("code").type == pa.int64()
    if late:
        with pytest.raises(ColumnTypeError, match=r"types=\{'code': 'string'\}"):
            column(source, "code")
    settled = source.settle()
    assert str(settled.schema.field("code").type) == kind
    values = column(settled, "code").to_pylist()
    assert len(values) == 10_001
    assert values[5_000] == {"x": "x", "1.5": 1.5}.get(late)
    source = open_table(path, types={"code": "string"})
    assert column(source, "code").to_pylist() == ["1"] * 5_000 + [late or None] + ["1"] * 5_000


def test_types_are_checked(tmp_path):
    (tmp_path / "people.csv").write_text("code\n1\n")
    with pytest.raises(LabelDPError, match="`types` must spell Arrow's name of a type for code, got 'text'"):
        open_table(tmp_path / "people.csv", types={"code": "text"})
    with pytest.raises(LabelDPError, match="Did you mean `code`"):
        open_table(tmp_path / "people.csv", types={"cod": "string"})


@pytest.mark.parametrize("name", ["people.csv", "people.jsonl"])
def test_an_unknown_type_is_answered_with_the_known_ones(tmp_path, name):
    """Before: lines of JSON took any word, and any column, without a sign."""
    (tmp_path / name).write_text("code\n1\n" if name.endswith("csv") else '{"code": 1}\n')
    with pytest.raises(LabelDPError, match=r"got 'number'. Known are string, bool, int8 to int64,.* %d/%m/%Y"):
        open_table(tmp_path / name, types={"code": "number"})
    with pytest.raises(LabelDPError, match="Did you mean `code`"):
        open_table(tmp_path / name, types={"cod": "string"})


def test_a_type_may_be_for_a_column_that_lines_of_json_show_late(tmp_path):
    early = '{"code": 1, "pad": "' + "x" * 1000 + '"}\n'
    (tmp_path / "late.jsonl").write_text(early * 5_000 + '{"code": 1, "pad": "", "zip": 8001}\n')
    source = open_table(tmp_path / "late.jsonl", types={"zip": "string"})
    assert column(source, "zip").to_pylist()[-1] == "8001"


def test_empty_text_and_na_are_missing_in_csv(tmp_path):
    (tmp_path / "people.csv").write_text('ill,row\nyes,1\n,2\nNA,3\n"",4\n')
    assert column(tmp_path / "people.csv", "ill").to_pylist() == ["yes", None, None, None]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind", ["half", "float", "double", "dictionary", "text"])
def test_missing_values_are_found_in_every_type(kind, chunked):
    """pyarrow 15 refuses half precision here, and finds no NaN in a dictionary."""
    values = ["1", None, "2", None] if kind == "text" else [1.0, None, 2.0, math.nan]
    types = {"half": pa.float16(), "float": pa.float32(), "text": pa.string()}
    given = [np.float16(one) if kind == "half" and one is not None else one for one in values]
    found = pa.array(given, types.get(kind, pa.float64()))
    found = found.dictionary_encode() if kind == "dictionary" else found
    absent = find_missing(pa.chunked_array([found, found]) if chunked else found)
    assert absent.to_pylist() == [False, True] * (4 if chunked else 2)


def encode_count(number):
    """Return a number as the footer of a Parquet file writes it: zigzag, seven bits a byte."""
    number, found = 2 * number, b""
    while number > 127:
        found, number = found + bytes([number % 128 + 128]), number // 128
    return found + bytes([number])


@pytest.mark.parametrize("claim", [ROWS + 1, 8_000])
def test_a_footer_that_counts_other_rows(tmp_path, claim):
    """The counts of rows of the file and of its row group agree with each other, and not with the column.

    Before: the rows that were there came, and a check of row ids went over the table once for each 2^24 that were not.
    """
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"id": np.arange(ROWS)}), path, write_statistics=False, use_dictionary=False)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer, written = data[-8 - size : -8], encode_count(ROWS)
    assert footer.count(written) >= 3  # of the file, of the column, of the row group
    places = footer.index(written), footer.rindex(written)
    changed = bytearray(footer)
    for place in places:
        changed[place : place + 2] = encode_count(claim)
    path.write_bytes(data[: -8 - size] + bytes(changed) + data[-8:])
    source = open_table(path)
    assert source.rows == claim
    with pytest.raises(LabelDPError, match="must be readable Parquet"):
        list(source.batches(batch_rows=100))


def test_views_that_an_old_pyarrow_does_not_read_are_named(tmp_path, monkeypatch):
    monkeypatch.delattr(pa, "string_view", raising=False)
    pl.DataFrame({"age": [1, 2], "ill": ["no", "yes"]}).write_ipc(tmp_path / "people.arrow")
    with pytest.raises(LabelDPError, match=r"`ill` must be text in a form that it reads.*Upgrade pyarrow"):
        open_table(tmp_path / "people.arrow")


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow cannot make views")
@pytest.mark.parametrize("name", ["people.arrow", "people.parquet"])
def test_texts_in_views_are_read_as_texts(name, tmp_path):
    """As polars writes them: pyarrow takes no rows of views, and makes no dictionary of them."""
    views = pa.array(["yes", None, "no", "yes"], pa.string_view())
    words = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    table = pa.table({"ill": views, "bytes": pa.array([b"x"] * 4, pa.binary_view())})
    if name.endswith(".arrow"):  # Parquet has no dictionaries of views
        table = table.append_column("ward", words)
        with pa.ipc.new_file(tmp_path / name, table.schema) as file:
            file.write_table(table)
    else:
        pq.write_table(table, tmp_path / name)
    source = open_table(tmp_path / name)
    read = pa.Table.from_batches(source.batches(batch_rows=3))
    assert read.schema.equals(source.schema)
    assert str(read.schema.field("ill").type) == "large_string"
    assert read.to_pydict() == table.to_pydict()
    assert column(source, "ill").take([2, 0]).to_pylist() == ["no", "yes"]
    assert source.rewrite("ill", merge={"yes": "no"}).schema.field("ill").type == pa.large_string()
