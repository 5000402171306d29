"""Checks that read: each passes on what labeldp writes and fails on a twin with one fault."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.audit import audit
from labeldp.audit.contents import raw_label_check
from labeldp.audit.static import directory_check, ledger_checks, matrix_check, private_check
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.release.manifest import digest, read_manifest
from labeldp.testing.broken import DrawsFromAll

PRIOR = np.array([0.6, 0.2, 0.1, 0.1])


@pytest.fixture
def release() -> Any:
    labels = np.random.default_rng(0).integers(0, 4, 3000)
    return labeldp.privatize(labels, labeldp.RRWithPrior(1.0), prior=PRIOR)


def verdicts(found: Any) -> dict[str, bool]:
    return {check.name: check.passed for check in found.checks}


@pytest.mark.parametrize(
    ("mechanism", "prior"),
    [
        (labeldp.RandomizedResponse(1.0, n_classes=4), None),
        (labeldp.RRTopK(2.0, k=2), PRIOR),
        (labeldp.RRWithPrior(3.0), np.tile(PRIOR, (3000, 1))),
        (labeldp.RRWithPrior(4.0), np.random.default_rng(1).dirichlet(np.ones(4), 3000)),
    ],
    ids=["rr", "top-k", "per example", "many rows"],
)
def test_matrix_within_guarantee(mechanism, prior):
    labels = np.random.default_rng(0).integers(0, 4, 3000)
    made = labeldp.privatize(labels, mechanism, prior=prior)
    assert matrix_check(made).passed
    less = replace(made, guarantee=labeldp.Guarantee.pure(mechanism.epsilon * 0.99))
    assert not matrix_check(less).passed


def test_matrix_with_a_zero_is_infinite(release):
    lying = replace(release, channel=DrawsFromAll(1.0, 2).channel(PRIOR))
    assert "inf" in matrix_check(lying).detail
    assert not matrix_check(lying).passed


def test_seeded_release_fails(release):
    assert private_check(release).passed
    assert not private_check(replace(release, seeded=True)).passed


def test_release_directory_passes_whole(release, tmp_path):
    release.save(tmp_path / "out")
    found = audit(tmp_path / "out")
    assert found.passed, found.checks
    assert found.lower_bound is None
    assert set(verdicts(found)) == {
        "intact",
        "no key or stray file",
        "only what labeldp writes",
        "no raw label column",
        "outputs possible",
        "outputs plausible",
        "matrix within guarantee",
        "not seeded",
    }


def test_damage_is_a_failed_check(release, tmp_path):
    release.save(tmp_path / "out")
    (tmp_path / "out" / "labels.parquet").write_bytes(b"x")
    found = audit(tmp_path / "out")
    assert not found.passed
    assert verdicts(found) == {"intact": False}


@pytest.mark.parametrize("name", ["noise.key", "labels.csv", "folder"])
def test_stray_files_are_found(release, tmp_path, name):
    release.save(tmp_path / "out")
    assert directory_check(tmp_path / "out").passed
    stray = tmp_path / "out" / name
    _ = stray.mkdir() if name == "folder" else stray.write_text("secret")
    found = directory_check(tmp_path / "out")
    assert not found.passed
    assert name in found.detail


@pytest.mark.parametrize("key", ["seed", "noise_key", "raw_labels"])
def test_a_secret_in_the_manifest_is_found(release, tmp_path, key):
    release.save(tmp_path / "out")
    path = tmp_path / "out" / "release.json"
    manifest = read_manifest(tmp_path / "out").content
    changed = {**manifest, "channel": {**manifest["channel"], key: 1}}
    path.write_text(json.dumps(changed))
    with pytest.raises(ReleaseError, match="changed after it was written"):
        directory_check(tmp_path / "out")
    path.write_text(json.dumps({**changed, "sha256": digest(changed)}))
    assert key in directory_check(tmp_path / "out").detail


def released_table(folder: Path, columns: dict[str, Any]) -> Path:
    """Release a table with these columns beside its label; returns the directory."""
    from labeldp.engines import privatize_table

    pq.write_table(pa.table(columns), folder / "people.parquet")
    privatize_table(folder / "people.parquet", label="income", to=folder / "out", epsilon=2.0)
    return folder / "out"


def test_a_copy_of_the_raw_labels_is_found(tmp_path):
    rng = np.random.default_rng(0)
    raw = rng.choice(["low", "high"], 4000)
    columns = {"income": raw, "age": rng.integers(20, 60, 4000), "other": rng.choice(["low", "high"], 4000)}
    clean = released_table(tmp_path, columns)
    assert raw_label_check(clean, labeldp.load_release(clean)).passed
    (tmp_path / "again").mkdir()
    leaky = released_table(tmp_path / "again", {**columns, "copy": raw})
    found = audit(leaky)
    assert verdicts(found)["no raw label column"] is False
    assert "copy" in next(check.detail for check in found.checks if not check.passed)


def test_a_release_of_several_files_is_read_whole(tmp_path):
    from labeldp.engines import privatize_table

    rng = np.random.default_rng(0)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        raw = rng.integers(0, 2, 3000)
        columns = {"y": raw, "copy": raw, "other": rng.integers(0, 2, 3000)}
        pq.write_table(pa.table(columns), tmp_path / "parts" / f"{part}.parquet")
    privatize_table(tmp_path / "parts", label="y", to=tmp_path / "out", epsilon=2.0, classes=[0, 1])
    found = audit(tmp_path / "out")
    assert [check.name for check in found.checks if not check.passed] == ["no raw label column"]
    assert "'copy'" in next(check.detail for check in found.checks if not check.passed)
    (tmp_path / "out" / "labels" / "key.bin").write_bytes(b"x")
    assert "labels/key.bin" in directory_check(tmp_path / "out").detail


def test_ledger_and_release_agree(tmp_path):
    book = labeldp.Ledger(tmp_path / "spent.sqlite", budget=4.0)
    labels = np.arange(600) % 3
    made = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=3), ledger=book)
    assert all(check.passed for check in ledger_checks(book, [("one", made)]))
    stranger = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=3))
    for wrong, words in (
        (stranger, "no entry"),
        (replace(made, guarantee=labeldp.Guarantee.pure(0.5)), "guarantee"),
        (made.take(np.arange(10)), "rows"),
        (replace(made, label_set="another"), "label set"),
        (replace(made, seeded=True), "seeded"),
    ):
        found = ledger_checks(book, [("one", wrong)])[-1]
        assert not found.passed
        assert words in found.detail
    twice = ledger_checks(book, [("one", made), ("two", made)])[-1]
    assert not twice.passed
    assert "shares entry" in twice.detail


def test_an_edited_ledger_fails(tmp_path):
    import sqlite3
    from contextlib import closing

    book = labeldp.Ledger(tmp_path / "spent.sqlite")
    made = labeldp.privatize([0, 1] * 50, labeldp.RandomizedResponse(1.0, n_classes=2), ledger=book)
    assert audit(made, ledger=book).passed
    with closing(sqlite3.connect(tmp_path / "spent.sqlite")) as raw, raw:
        table, column = _text_column(raw)
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(f"UPDATE {table} SET {column} = replace({column}, 'Randomized', 'Honest')")
    found = audit(made, ledger=book)
    assert verdicts(found)["ledger intact"] is False


def _text_column(raw: Any) -> tuple[str, str]:
    """Return the table and column that hold the mechanism's words."""
    for (table,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_rest in raw.execute(f"PRAGMA table_info({table})").fetchall():
            if raw.execute(f"SELECT 1 FROM {table} WHERE {column} LIKE '%RandomizedResponse%'").fetchone():
                return table, column
    raise AssertionError("no such column")


def test_owner_attacks_her_own_release():
    labels = np.random.default_rng(3).integers(0, 2, 20_000)
    made = labeldp.privatize(labels, labeldp.RandomizedResponse(2.0, n_classes=2))
    found = audit(made, labels=labels, confidence=1 - 1e-7)
    assert found.passed, found.checks
    assert found.lower_bound is not None
    assert 1.0 < found.lower_bound <= 2.0
    assert json.loads(json.dumps(found.to_json()))["measures"]["attack"]["n"] == 20_000


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(LabelDPError, match="subject"):
        audit(3)
