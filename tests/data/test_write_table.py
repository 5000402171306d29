"""Parquet out: complete or absent, never over something else, nothing left behind."""

from __future__ import annotations

import errno
import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp.data import write_table
from labeldp.errors import LabelDPError

BATCH = pa.RecordBatch.from_pydict({"row": np.arange(100), "ill": ["no", "yes"] * 50})


def left_in(folder):
    return [path.name for path in folder.iterdir()]


def test_round_trip_of_batches_and_tables(tmp_path):
    path = tmp_path / "out.parquet"
    assert write_table([BATCH, pa.Table.from_batches([BATCH])], BATCH.schema, path) == 200
    assert pq.read_table(path).equals(pa.Table.from_batches([BATCH, BATCH]))
    assert left_in(tmp_path) == ["out.parquet"]


def test_no_batches_make_an_empty_table_with_its_schema(tmp_path):
    assert write_table(iter(()), BATCH.schema, tmp_path / "out.parquet") == 0
    assert pq.read_table(tmp_path / "out.parquet").schema.equals(BATCH.schema)


def test_schema_metadata_and_compression_are_kept(tmp_path):
    schema = BATCH.schema.with_metadata({"who": "owner"})
    write_table([BATCH], schema, tmp_path / "out.parquet", compression="zstd")
    assert pq.read_schema(tmp_path / "out.parquet").metadata[b"who"] == b"owner"
    assert pq.read_metadata(tmp_path / "out.parquet").row_group(0).column(0).compression == "ZSTD"


def test_rights_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    write_table([BATCH], BATCH.schema, tmp_path / "out.parquet")
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "out.parquet")]
    assert rights[0] == rights[1]


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_existing_target_is_refused_and_untouched(kind, tmp_path):
    path = tmp_path / "out.parquet"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(LabelDPError, match=r"must be a new file.*nothing is overwritten"):
        write_table([BATCH], BATCH.schema, path)
    assert left_in(tmp_path) == ["out.parquet"]
    assert kind != "file" or path.read_text() == "precious"


def test_target_made_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "out.parquet"

    def batches():
        yield BATCH
        path.write_text("the other writer's")

    with pytest.raises(LabelDPError, match="must be a new file"):
        write_table(batches(), BATCH.schema, path)
    assert path.read_text() == "the other writer's"
    assert left_in(tmp_path) == ["out.parquet"]


def test_target_is_invisible_until_complete(tmp_path):
    path, seen = tmp_path / "out.parquet", []

    def batches():
        for _ in range(3):
            seen.append(path.exists())
            yield BATCH

    write_table(batches(), BATCH.schema, path)
    assert seen == [False] * 3
    assert path.exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, LabelDPError])
def test_an_error_of_the_batches_passes_and_leaves_nothing(error, tmp_path):
    def batches():
        yield BATCH
        raise error("stop")

    with pytest.raises(error, match="stop"):
        write_table(batches(), BATCH.schema, tmp_path / "out.parquet")
    assert left_in(tmp_path) == []


def test_batches_of_another_schema_are_refused(tmp_path):
    with pytest.raises(LabelDPError, match="must have the schema that was given, got columns row"):
        write_table([BATCH, BATCH.select(["row"])], BATCH.schema, tmp_path / "out.parquet")
    assert left_in(tmp_path) == []


def test_without_hard_links_a_rename_does(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    write_table([BATCH], BATCH.schema, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 100
    assert left_in(tmp_path) == ["out.parquet"]


FILL = """
import resource, sys
import numpy as np, pyarrow as pa
from labeldp.data import write_table
from labeldp.errors import LabelDPError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
batch = pa.RecordBatch.from_pydict({"noise": np.random.default_rng(0).random(200_000)})
try:
    write_table([batch] * 3, batch.schema, sys.argv[1])
except LabelDPError as error:
    print(error)
"""


def test_no_room_is_a_clear_error_and_leaves_nothing(tmp_path, forks):
    # A real limit of the kernel on the size of a file, in a process of its own: the write fails as on a full disk.
    done = forks.run(FILL, tmp_path / "out.parquet")
    assert done.returncode == 0, done.stderr
    assert "must have room on its disk, got File too large. Free some space" in done.stdout
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [(errno.ENOSPC, LabelDPError, "got No space left on device"), (errno.EIO, OSError, "Input/output error")],
)
def test_a_full_device_is_no_room_and_other_errors_pass(number, kind, words, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match=words):
        write_table([BATCH], BATCH.schema, tmp_path / "out.parquet")
    assert left_in(tmp_path) == []
