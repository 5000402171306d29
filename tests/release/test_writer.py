"""One way of writing: a hidden directory that becomes the release at once, and long files hashed as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.channel import Channel
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.guarantee import Guarantee
from labeldp.release import Release, load_release
from labeldp.release import saving as writer
from labeldp.release.manifest import LABELS, MANIFEST, digest, file_facts


def head(**facts: Any) -> Release:
    """A release without examples, as a table's writer has it."""
    return Release(
        codes=np.empty(0, np.uint8),
        classes=("a", "b"),
        channel=Channel(keep=0.2, base=[0.5, 0.5]),
        guarantee=Guarantee.pure(1.0),
        mechanism="test",
        seeded=True,
        **facts,
    )


def write_table_release(root: Path, batches: list[pa.RecordBatch], **facts: Any) -> None:
    """Write a table's release by the parts that the engine uses."""
    with writer.stage_directory(root, owner="test") as partial:
        stream = writer.LabelsStream(partial, batches[0].schema)
        for batch in batches:
            stream.write(batch)
        files = {LABELS: stream.close()}
        rows = sum(batch.num_rows for batch in batches)
        made = head(**{"label_column": "truth of the matter", **facts})
        writer.finish_release(made, partial, label_files=files, n_examples=rows)


def batch(n: int = 10) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"truth of the matter": ["a", "b"] * (n // 2), "label": np.arange(n), "row": np.arange(n)}
    )


class TestStaged:
    def test_an_error_leaves_nothing(self, tmp_path: Path) -> None:
        def half() -> None:
            with writer.stage_directory(tmp_path / "out", owner="test") as partial:
                (partial / "half").write_text("half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            half()
        assert list(tmp_path.iterdir()) == []

    def test_what_is_staged_is_hidden_until_the_end(self, tmp_path: Path) -> None:
        with writer.stage_directory(tmp_path / "out", owner="test") as partial:
            (partial / "file").write_text("whole")
            assert [path.name[0] for path in tmp_path.iterdir()] == ["."]
        assert (tmp_path / "out" / "file").read_text() == "whole"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_a_target_that_appears_meanwhile_is_not_overwritten(self, tmp_path: Path) -> None:
        def late() -> None:
            with writer.stage_directory(tmp_path / "out", owner="test"):
                (tmp_path / "out").mkdir()
                (tmp_path / "out" / "other").write_text("someone else's")

        with pytest.raises(LabelDPError, match=r"could not write"):
            late()
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        assert (tmp_path / "out" / "other").read_text() == "someone else's"

    def test_the_owner_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(LabelDPError, match=r"^engine: `directory` must not exist yet"):
            writer.check_target(tmp_path, owner="engine")


class TestLabelsStream:
    def test_facts_are_those_of_the_file(self, tmp_path: Path) -> None:
        stream = writer.LabelsStream(tmp_path, batch().schema)
        for _ in range(3):
            stream.write(batch())
        assert stream.close() == file_facts(tmp_path / LABELS)
        assert pq.read_table(tmp_path / LABELS).num_rows == 30

    def test_row_groups_do_not_follow_the_batches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "GROUP_ROWS", 40)
        stream = writer.LabelsStream(tmp_path, batch().schema)
        for _ in range(9):
            stream.write(batch())
        stream.close()
        found = pq.ParquetFile(tmp_path / LABELS).metadata
        assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [40, 40, 10]


class TestTableReleases:
    def test_a_table_loads_as_a_release(self, tmp_path: Path) -> None:
        write_table_release(tmp_path / "out", [batch(), batch()])
        release = load_release(tmp_path / "out")
        assert release.labels.tolist() == ["a", "b"] * 10
        assert (release.stage, release.prior, release.channel.n_examples) == (None, None, None)

    def test_columns_of_the_table_are_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_table_release(tmp_path / "out", [batch()])
        read: list[Any] = []
        real = pq.ParquetFile.iter_batches

        def spy(file: Any, *, columns: Any, **options: Any) -> Any:
            read.append(columns)
            return real(file, columns=columns, **options)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
        load_release(tmp_path / "out")
        # Once for a row of each group, which checks the footer, and once for all; the channel has a file of its own.
        assert [names for names in read if "keep" not in names] == [["truth of the matter"]] * 2

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            ({"label_column": "no such"}, "is not a readable release"),
            ({"label_column": "label"}, "is not a readable release"),  # a number column of the table
            ({"n_examples": 11}, "a manifest of 11"),
        ],
        ids=["no such column", "another column", "another number of rows"],
    )
    def test_a_manifest_that_does_not_fit(self, facts: dict[str, Any], message: str, tmp_path: Path) -> None:
        write_table_release(tmp_path / "out", [batch()])
        path = tmp_path / "out" / MANIFEST
        manifest = {**json.loads(path.read_text()), **facts}
        path.write_text(json.dumps({**manifest, "sha256": digest(manifest)}))
        with pytest.raises(ReleaseError, match=message):
            load_release(tmp_path / "out")

    @pytest.mark.parametrize("classes", [("a", "b", "c"), (0, 1, 2), (0.5, 1.0, 2.5), (False, True), (1, 2.5)])
    def test_labels_of_every_kind_come_back(self, classes: tuple[Any, ...], tmp_path: Path) -> None:
        labels = labeldp.SensitiveLabels([classes[i % len(classes)] for i in range(50)], classes=classes)
        release = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), rng=0)
        release.save(tmp_path / "out")
        again = load_release(tmp_path / "out")
        assert again.classes == classes
        np.testing.assert_array_equal(again.codes, release.codes)
