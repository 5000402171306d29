"""Damage, carelessness and lies in a stored release are found on loading, each with a clear error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.errors import PrivacyError, ReleaseError
from labeldp.release import Release, load_release
from labeldp.release import manifest as store

Edit = Callable[[dict[str, Any]], object]
FILES = [store.MANIFEST, store.LABELS, store.CHANNEL]


@pytest.fixture
def saved(tmp_path: Path, make_release: Callable[[str], Release]) -> Path:
    """A release with all three files."""
    make_release("rows by group").save(tmp_path / "out")
    return tmp_path / "out"


def edit(directory: Path, change: Edit, *, honest: bool) -> None:
    """Change the manifest; an `honest` editor recomputes its digest, as anyone can."""
    path = directory / store.MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    if honest:
        manifest["sha256"] = store.digest(manifest)
    path.write_text(json.dumps(manifest))


def replace_file(directory: Path, name: str, table: pa.Table) -> None:
    """Swap a Parquet file and recompute all checksums."""
    pq.write_table(table, directory / name)
    edit(directory, lambda m: m["files"].update({name: store.file_facts(directory / name)}), honest=True)


def test_the_release_is_sound_before_it_is_damaged(saved: Path) -> None:
    assert len(load_release(saved)) == 60
    edit(saved, lambda m: None, honest=True)  # rewriting it unchanged is no damage
    assert len(load_release(saved)) == 60


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0, 1, 0.5, -1])
def test_a_truncated_file(saved: Path, name: str, left: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(len(content) * left) if left == 0.5 else int(left)])
    with pytest.raises(ReleaseError, match=r"^load_release: .*(incomplete|is not readable JSON)"):
        load_release(saved)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere(saved: Path, name: str) -> None:
    """Every byte of the manifest and 64 places of each Parquet file; the lowest bit, so that text stays text."""
    content = bytearray((saved / name).read_bytes())
    places = range(len(content)) if name == store.MANIFEST else np.linspace(0, len(content) - 1, 64).astype(int)
    for place in places:
        content[place] ^= 1
        (saved / name).write_bytes(content)
        with pytest.raises(ReleaseError, match=r"^load_release: "):
            load_release(saved)
        content[place] ^= 1
    (saved / name).write_bytes(content)
    assert len(load_release(saved)) == 60


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    expected = "must hold a release" if name == store.MANIFEST else "is missing"
    with pytest.raises(ReleaseError, match=rf"^load_release: .*{expected}"):
        load_release(saved)


def test_no_directory_a_file_and_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "file", "empty"):
        with pytest.raises(ReleaseError, match=r"`directory` must hold a release, got .* No release\.json there"):
            load_release(tmp_path / name)


@pytest.mark.parametrize("text", ["{}", "[]", "3", '"labeldp release"', '{"format": "another"}', "null"])
def test_other_json_is_not_ours(saved: Path, text: str) -> None:
    (saved / store.MANIFEST).write_text(text)
    with pytest.raises(ReleaseError, match=r"`release\.json` must be a 'labeldp release', got something else"):
        load_release(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"not json", b"\x80\x04}q\x00."])
def test_no_json_at_all(saved: Path, content: bytes) -> None:
    (saved / store.MANIFEST).write_bytes(content)
    with pytest.raises(ReleaseError, match=r"is not readable JSON"):
        load_release(saved)


@pytest.mark.parametrize("version", [2, 99, "1", None])
def test_another_version_asks_for_an_upgrade(saved: Path, version: Any) -> None:
    edit(saved, lambda m: m.update(version=version), honest=True)
    with pytest.raises(ReleaseError, match=r"`version` must be 1, got .* Upgrade labeldp to read newer releases"):
        load_release(saved)


def lower_epsilon(manifest: dict[str, Any]) -> None:
    manifest["guarantee"] = labeldp.Guarantee.pure(0.5).to_json()


EDITS: dict[str, Edit] = {
    "epsilon": lower_epsilon,
    "seeded": lambda m: m.update(seeded=False),
    "classes": lambda m: m["classes"].reverse(),
    "a file left out": lambda m: m["files"].pop(store.CHANNEL),
    "a field added": lambda m: m.update(note="hello"),
    "a field removed": lambda m: m.pop("start"),
    "no digest": lambda m: m.pop("sha256"),
}


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edited_manifest_is_noticed(saved: Path, name: str) -> None:
    edit(saved, EDITS[name], honest=False)
    with pytest.raises(ReleaseError, match=r"was changed after it was written"):
        load_release(saved)


@pytest.mark.parametrize("kind", ["one row", "rows by group", "candidates", "square matrix"])
def test_a_promise_that_the_channel_does_not_keep_is_a_privacy_error(
    kind: str, tmp_path: Path, make_release: Callable[[str], Release]
) -> None:
    """Checksums are no signature: whoever recomputes them still cannot claim less than the channel costs."""
    make_release(kind).save(tmp_path / "out")
    edit(tmp_path / "out", lower_epsilon, honest=True)
    with pytest.raises(PrivacyError, match=r"claims epsilon = 0\.5 .*, but its channel has epsilon .* Do not use it"):
        load_release(tmp_path / "out")


LIES: dict[str, Edit] = {
    "no guarantee": lambda m: m.pop("guarantee"),
    "another guarantee": lambda m: m.update(guarantee={"epsilon": 1}),
    "a guarantee of text": lambda m: m.update(guarantee="strong"),
    "no files": lambda m: m.pop("files"),
    "files as a list": lambda m: m.update(files=[store.LABELS]),
    "facts of a file as text": lambda m: m["files"].update({store.LABELS: "fine"}),
    "no channel": lambda m: m.pop("channel"),
    "a channel of another kind": lambda m: m["channel"].update(kind="pickle"),
    "a channel without a kind": lambda m: m["channel"].pop("kind"),
    "rows that are not there": lambda m: m["files"].pop(store.CHANNEL),
    "a class less": lambda m: m["classes"].pop(),
    "a class more": lambda m: m["classes"].append(99),
    "an example less": lambda m: m.update(n_examples=59),
    "classes as a number": lambda m: m.update(classes=3),
    "classes that are lists": lambda m: m.update(classes=[[0], [1], [2]]),
    "a start of text": lambda m: m.update(start="here"),
    "a file elsewhere": lambda m: m["files"].update({"../elsewhere": {"bytes": 0, "sha256": ""}}),
}


@pytest.mark.parametrize("name", list(LIES))
def test_a_manifest_that_makes_no_sense_is_no_release(saved: Path, name: str) -> None:
    edit(saved, LIES[name], honest=True)
    with pytest.raises(ReleaseError, match=r"^load_release: "):
        load_release(saved)


def test_labels_that_the_manifest_does_not_vouch_for(saved: Path) -> None:
    edit(saved, lambda m: m["files"].pop(store.LABELS), honest=True)
    (saved / store.LABELS).unlink()
    with pytest.raises(ReleaseError, match=r"^load_release: "):
        load_release(saved)


def test_a_released_label_that_is_no_class(saved: Path) -> None:
    table = pq.read_table(saved / store.LABELS)
    stranger = pa.array(np.full(len(table), 17))
    replace_file(saved, store.LABELS, table.set_column(0, "label", stranger))
    with pytest.raises(ReleaseError, match="a released label is not among the classes"):
        load_release(saved)


@pytest.mark.parametrize("column", ["label", "row"])
def test_a_missing_column(saved: Path, column: str) -> None:
    table = pq.read_table(saved / store.LABELS)
    replace_file(saved, store.LABELS, table.drop_columns([column]))
    with pytest.raises(ReleaseError, match=r"^load_release: .* is not a readable release"):
        load_release(saved)


def test_channel_rows_that_are_no_probabilities(saved: Path) -> None:
    table = pq.read_table(saved / store.CHANNEL)
    replace_file(saved, store.CHANNEL, table.set_column(0, "keep", pa.array([2.0] * len(table))))
    with pytest.raises(ReleaseError, match=r"is not a readable release: Channel: `keep` must be in \[0, 1\]"):
        load_release(saved)


def test_something_that_is_not_parquet(saved: Path) -> None:
    (saved / store.LABELS).write_bytes(b"\x80\x04}q\x00.")  # a pickle
    edit(saved, lambda m: m["files"].update({store.LABELS: store.file_facts(saved / store.LABELS)}), honest=True)
    with pytest.raises(ReleaseError, match=r"is not a readable release"):
        load_release(saved)


def test_files_of_two_releases_are_not_mixed(
    saved: Path, tmp_path: Path, make_release: Callable[[str], Release]
) -> None:
    make_release("uneven rows by group").save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / store.CHANNEL, saved / store.CHANNEL)
    with pytest.raises(ReleaseError, match=r"(was changed after it was written|it is incomplete)"):
        load_release(saved)
