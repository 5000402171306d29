"""Releases on disk: what goes in comes out, and nothing else is in there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.channel import FiniteChannel
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.random import NoiseKey
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.loading import load_release
from labeldp.release.manifest import CHANNEL, LABELS, MANIFEST, PRIOR

RR = labeldp.RandomizedResponse
PLAIN = {MANIFEST, LABELS, CHANNEL, PRIOR}


def assert_same(one: Release, other: Release) -> None:
    assert type(one.channel) is type(other.channel)
    assert one.channel.header() == other.channel.header()
    for parts in (FiniteChannel.row_arrays, FiniteChannel.example_arrays):
        mine, theirs = getattr(one.channel, parts.__name__)(), getattr(other.channel, parts.__name__)()
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name])
    np.testing.assert_array_equal(one.codes, other.codes)
    assert one.codes.dtype == other.codes.dtype
    assert one.channel.epsilon == other.channel.epsilon
    fields = ("classes", "guarantee", "mechanism", "seeded", "start", "label_set", "created", "ledger_entry")
    assert {f: getattr(one, f) for f in fields} == {f: getattr(other, f) for f in fields}


def test_every_kind_of_channel_survives(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "out")
    loaded = load_release(tmp_path / "out")
    assert_same(release, loaded)
    assert loaded.guarantee.epsilon() == release.guarantee.epsilon()
    # and it can be trained on: the channel still answers, with the same numbers
    p = np.full((len(release), release.n_classes), 1 / release.n_classes)
    np.testing.assert_array_equal(loaded.channel.forward(p), release.channel.forward(p))
    np.testing.assert_array_equal(
        loaded.channel.posterior(p, loaded.codes), release.channel.posterior(p, release.codes)
    )


@pytest.mark.parametrize(
    "classes",
    [
        ("no", "yes"),
        ("", "\u00e9\u4e2d \U0001f600", 'quote " and \\'),
        (0, 1, 2),
        (-5, 7, 2**53 + 1),
        (False, True),
        (0.1, -2.5, 1e300),
        (1, 2.5),
    ],
    ids=repr,
)
def test_every_kind_of_label_survives(classes: tuple[Any, ...], tmp_path: Path) -> None:
    labels = SensitiveLabels([classes[i % len(classes)] for i in range(30)], classes=classes)
    release = privatize(labels, RR(1.0), rng=1)
    release.save(tmp_path / "out")
    loaded = labeldp.load_release(tmp_path / "out")
    assert loaded.classes == classes
    assert [type(c) for c in loaded.classes] == [type(c) for c in classes]
    assert loaded.labels.tolist() == release.labels.tolist()
    assert loaded.labels.dtype == release.labels.dtype


@pytest.mark.parametrize(("rng", "seeded"), [(None, False), (1, True)])
def test_seeded_survives(rng: Any, seeded: bool, tmp_path: Path) -> None:
    privatize([0, 1], RR(1.0, n_classes=2), rng=rng).save(tmp_path / "out")
    assert load_release(tmp_path / "out").seeded is seeded
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert (manifest["seeded"], manifest["private"]) == (seeded, not seeded)


def test_facts_survive(tmp_path: Path, recorder: Callable[..., Any]) -> None:
    labels = SensitiveLabels(["a", "b"] * 2, name="opinion \u00e9")
    release = privatize(labels, RR(1.0), start=1 << 40, ledger=recorder())
    release.save(str(tmp_path / "out"))  # a path as text will do
    loaded = load_release(str(tmp_path / "out"))
    assert (loaded.label_set, loaded.start, loaded.ledger_entry) == ("opinion \u00e9", 1 << 40, 42)
    assert loaded.guarantee.assumptions == release.guarantee.assumptions != ()


def test_a_part_of_a_release_can_be_saved(release: Release, tmp_path: Path) -> None:
    part = release.take(slice(5, 20, 3))
    part.save(tmp_path / "out")
    assert_same(part, load_release(tmp_path / "out"))


def test_stages_and_a_released_prior_survive(release: Release, tmp_path: Path) -> None:
    stage = (np.arange(60) // 20).astype(np.uint8)
    prior = np.array([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    staged = replace(release, stage=stage, prior=prior, prior_index=np.arange(60) % 2)
    rows = np.array([59, 0, 30])
    for name, whole in (("all", staged), ("part", staged.take(rows))):
        whole.save(tmp_path / name)
        loaded = load_release(tmp_path / name)
        assert_same(whole, loaded)
        for field in ("stage", "prior", "prior_index"):
            np.testing.assert_array_equal(getattr(loaded, field), getattr(whole, field))
    part = staged.take(rows)
    np.testing.assert_array_equal(np.asarray(part.stage), [2, 0, 1])
    np.testing.assert_array_equal(np.asarray(part.prior_index), [1, 0, 0])
    assert (release.stage, release.prior, release.prior_index) == (None, None, None)
    (tmp_path / "all" / PRIOR).unlink()
    with pytest.raises(ReleaseError, match="is missing"):
        load_release(tmp_path / "all")


def test_many_examples_over_several_row_groups(tmp_path: Path) -> None:
    n = (1 << 20) + 3  # Parquet's writer starts a new row group after 2^20 rows
    release = privatize(np.zeros(n, np.uint8), RR(1.0, n_classes=2), rng=1)
    release.save(tmp_path / "out")
    assert pq.ParquetFile(tmp_path / "out" / LABELS).num_row_groups > 1
    np.testing.assert_array_equal(load_release(tmp_path / "out").codes, release.codes)


# What is in the directory


def test_files_are_plain_parquet_and_json_and_nothing_else(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]  # no partial directory is left
    files = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    assert set(files) <= PLAIN
    assert (CHANNEL in files) == bool(release.channel.row_arrays())
    json.loads(files[MANIFEST])
    for name in set(files) - {MANIFEST}:
        assert files[name][:4] == files[name][-4:] == b"PAR1"
        schema = pq.read_schema(tmp_path / "out" / name)
        assert not any(key.startswith(b"pandas") for key in (schema.metadata or {}))
        assert all(is_plain(field.type) for field in schema)


def is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return is_plain(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_string,
            pa.types.is_fixed_size_binary,
        )
    )


LOADING = """
import sys
from labeldp.release import load_release
load_release(sys.argv[1])  # the first load imports what it needs
events = []
watching = False
def watch(event, arguments):
    if watching and event in ("exec", "compile", "import", "pickle.find_class", "subprocess.Popen", "os.system", "marshal.loads"):
        events.append((event, str(arguments)[:80]))
sys.addaudithook(watch)
watching = True
load_release(sys.argv[1])
eval("1")
watching = False
print(events[:-2], [event for event, _ in events[-2:]])
"""


def test_loading_runs_nothing(tmp_path: Path, forks: Any) -> None:
    """Python's audit hooks see every exec, import and unpickling; a second load has none. `eval` shows they listen."""
    privatize(["a", "b"] * 2, RR(1.0), rng=1).save(tmp_path / "out")
    done = forks.run(LOADING, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] ['compile', 'exec']"


def test_no_raw_label_is_written(tmp_path: Path) -> None:
    """RRTop-1 releases the prior's favourite whatever the label is: what is written must not depend on the labels."""
    prior = np.tile([0.6, 0.3, 0.1], (200, 1))
    classes = ["favourite", "quite-secret", "most-secret"]
    written = []
    for name, label in (("one", "quite-secret"), ("other", "most-secret")):
        boxed = SensitiveLabels([label] * 200, classes=classes)
        release = privatize(boxed, labeldp.RRTopK(1.0, k=1), prior=prior)
        assert set(release.labels.tolist()) == {"favourite"}
        release.save(tmp_path / name)
        assert set(pq.read_table(tmp_path / name / LABELS).column_names) == {"label", "candidates"}
        manifest = json.loads((tmp_path / name / MANIFEST).read_text())
        assert json.dumps(manifest).count("secret") == 2  # the public list of classes, and nowhere else
        for path in (tmp_path / name).glob("*.parquet"):
            assert b"secret" not in path.read_bytes()
        written.append((tmp_path / name / LABELS).read_bytes())
    assert written[0] == written[1]


def test_no_key_is_written(tmp_path: Path) -> None:
    secret = bytes(range(7, 39))
    spy = NoiseKey(secret, seeded=False)
    for name, made in (
        ("rows", privatize([0, 1] * 50, RR(1.0), rng=spy)),
        (
            "candidates",
            privatize([0, 1] * 50, labeldp.RRWithPrior(1.0), prior=np.full((100, 2), 0.5), rng=spy, start=100),
        ),
    ):
        assert made.seeded is False
        made.save(tmp_path / name)
        encodings = (secret, secret[::-1], secret.hex().encode(), base64.b64encode(secret), repr(secret).encode())
        for path in (tmp_path / name).iterdir():
            content = path.read_bytes().lower() + path.read_bytes()
            assert not any(form[:12] in content for form in encodings), path
        assert not any(form[:12].decode("latin1") in repr(vars(made)) for form in encodings)


# What is refused on saving


def test_an_existing_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    release = privatize([0, 1], RR(1.0, n_classes=2))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me too")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("full", "file", "dangling"):
        with pytest.raises(
            LabelDPError, match=r"^Release\.save: `directory` must not exist yet, got .* never overwritten"
        ):
            release.save(tmp_path / name)
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dangling", "file", "full"]


def test_a_missing_parent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelDPError, match=r"`directory` must have a parent directory, got .* Create it first"):
        privatize([0, 1], RR(1.0, n_classes=2)).save(tmp_path / "no" / "such")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((b"a", b"b"), r"`classes` must be text, numbers or booleans, got 'bytes'"),
        (((0, 1), "b"), r"`classes` must be text, numbers or booleans, got 'tuple'"),
        (("a", 1), r"`classes` must be of one kind, got a mixture\. Use text for all"),
        ((True, 2), r"`classes` must be of one kind, got a mixture\. Use text for all"),
        ((True, "a"), r"`classes` must be of one kind, got a mixture\. Use text for all"),
        ((0.5, float("inf")), r"`classes` must be finite: JSON has no infinity, got inf"),
    ],
)
def test_classes_that_json_cannot_hold_are_refused(classes: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    plain = np.empty(2, object)
    plain[:] = classes
    release = privatize(SensitiveLabels(plain, classes=classes), RR(1.0))
    with pytest.raises(LabelDPError, match=message):
        release.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
