"""How tables are cut and put together again: spans, profiles, counts, and releases of several files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.data.label_column import join_profiles, label_profile
from labeldp.data.places import UrlPath, place_of
from labeldp.data.tables import open_table
from labeldp.engines import privatize_table
from labeldp.engines.rows import cut, spans_of
from labeldp.errors import PrivacyError, ReleaseError
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels, load_release
from labeldp.release.manifest import digest
from labeldp.release.measurement import StreamedCounts
from labeldp.release.unfinished import seal, unseal


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 60))
def test_runs_cover_all_groups_once_and_are_as_long_as_they_may(sizes: list[int], most: int) -> None:
    runs = cut(sizes, most=most)
    assert [number for low, high in runs for number in range(low, high)] == list(range(len(sizes)))
    for low, high in runs:
        assert sum(sizes[low:high]) <= most or sum(size > 0 for size in sizes[low:high]) == 1
    for (low, _), (_, high) in itertools.pairwise(runs):
        assert sum(sizes[low:high]) > most  # two neighbours never fit into one


def test_spans_read_what_the_table_reads(path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labeldp.engines.rows.SPAN_ROWS", 1500)
    source = open_table(path)
    spans = spans_of(source)
    assert [span.rows for span in spans] == [1402, 1402, 196]  # row groups of 701
    batches = [batch for span in spans for batch in span.of(source).batches()]
    assert pa.Table.from_batches(batches).equals(table.cast(batches[0].schema))


def test_profiles_and_counts_of_pieces_add_up(path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labeldp.engines.rows.SPAN_ROWS", 1500)
    source = open_table(path)
    first, second, third = (label_profile(span.of(source), "level") for span in spans_of(source))
    joined, whole = join_profiles(third, join_profiles(first, second)), label_profile(source, "level")
    assert (joined.rows, joined.missing, dict(joined.counts), joined.complete) == (
        whole.rows,
        whole.missing,
        dict(whole.counts),
        whole.complete,
    )
    codes, groups = table["number"].to_numpy(), table["zone"].to_numpy().astype(np.int64) - 10
    one, two, both = (StreamedCounts(n_groups=4, n_classes=3) for _ in range(3))
    for counts, rows in ((one, slice(0, 1000)), (two, slice(1000, None)), (both, slice(None))):
        counts.add(SensitiveLabels(codes[rows], n_classes=3), groups[rows])
    key = NoiseKey.from_seed(1)
    np.testing.assert_array_equal(
        two.joined(one).release(epsilon=1.0, key=key).value, both.release(epsilon=1.0, key=key).value
    )


class TestSeveralFiles:
    """A release of several files is checked file by file."""

    @pytest.fixture
    def out(self, folder: Path) -> Path:
        privatize_table(folder, label="level", to=folder.parent / "out", epsilon=1.0)
        return folder.parent / "out"

    def edited(self, out: Path, change: Callable[[dict[str, object]], None]) -> None:
        manifest = json.loads((out / "release.json").read_text())
        change(manifest)
        manifest["sha256"] = digest(manifest)
        (out / "release.json").write_text(json.dumps(manifest))

    def test_damage_names_the_file(self, out: Path) -> None:
        part = out / "labels" / "year=2021" / "part-3.parquet"
        part.write_bytes(part.read_bytes()[:-1] + b"x")
        with pytest.raises(ReleaseError, match=r"part-3\.parquet was changed after it was written"):
            load_release(out)

    def test_a_missing_file(self, out: Path) -> None:
        (out / "labels" / "year=2020" / "part-0.parquet").unlink()
        with pytest.raises(ReleaseError, match=r"part-0\.parquet is missing"):
            load_release(out)

    def test_a_file_without_a_checksum(self, out: Path) -> None:
        self.edited(out, lambda manifest: manifest["label_files"].append("labels/other.parquet"))  # type: ignore[attr-defined]
        with pytest.raises(ReleaseError, match=r"a file of labels has no checksum"):
            load_release(out)

    @pytest.mark.parametrize("name", ["../in/year=2020/part-0.parquet", "/etc/hostname"])
    def test_a_file_outside(self, name: str, out: Path) -> None:
        def change(manifest: dict[str, object]) -> None:
            manifest["files"][name] = {"sha256": "", "bytes": 0}  # type: ignore[index]

        self.edited(out, change)
        with pytest.raises(ReleaseError, match=r"`files` must be names of files of a release"):
            load_release(out)

    def test_the_order_of_the_rows_is_that_of_the_list(self, out: Path) -> None:
        before = load_release(out).codes
        self.edited(out, lambda manifest: manifest["label_files"].reverse())  # type: ignore[attr-defined]
        after = load_release(out).codes
        np.testing.assert_array_equal(after[:100], before[1_900:])  # the last file has 100 rows


def test_urls_are_places() -> None:
    place = place_of("memory://bucket/day=1/part.parquet")
    assert isinstance(place, UrlPath)
    assert (place.name, place.suffix, place.stem, str(place.parent)) == (
        "part.parquet",
        ".parquet",
        "part",
        "memory://bucket/day=1",
    )
    assert place_of("file:///tmp/a%20b.parquet") == Path("/tmp/a b.parquet")


def test_a_box_opens_for_its_job_only() -> None:
    key = NoiseKey.from_seed(4)
    box = seal(key, "correct horse battery", about=b"one")
    assert unseal(box, "correct horse battery", about=b"one", owner="x").reveal() == key.reveal()
    assert key.reveal().hex() not in json.dumps(box)
    with pytest.raises(PrivacyError, match=r"be that of the job"):
        unseal(box, "correct horse battery", about=b"two", owner="x")
    with pytest.raises(PrivacyError, match=r"be that of the job"):
        unseal({**box, "box": "00" * 49}, "correct horse battery", about=b"one", owner="x")
