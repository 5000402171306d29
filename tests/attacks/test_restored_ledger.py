"""Two releases for one charge: an older copy of the ledger is put back between them.

The attacker is the owner's careless (or hostile) colleague. She copies spent.sqlite, releases the labels, puts the copy
back, and releases them again. The second release gets the number that the first one had. Allowed: whoever holds a
release and the ledger can tell that the two do not belong together.

On the commit before, each of the two releases passed "ledger charged" on its own: 2 of 2, from memory, from a table and
from a learner (with a journal even the first failed, since its entry also names the run). Now the release whose
charge is gone fails: it keeps the hash that closed the chain up to its entry, and that hash is not in the ledger any
more. Nothing here is statistical.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.accounting import Ledger
from labeldp.audit import audit
from labeldp.engines import privatize_table
from labeldp.errors import PrivacyError
from labeldp.learn import LabelPrivateClassifier
from labeldp.release import load_release
from labeldp.release.manifest import digest

LABELS = np.arange(200) % 2
FEATURES = np.column_stack([LABELS, np.arange(200) % 7]).astype(float)


def from_memory(ledger: Ledger, place: Path) -> None:
    labeldp.privatize(LABELS, labeldp.RandomizedResponse(1.0, n_classes=2), ledger=ledger).save(place)


def from_table(ledger: Ledger, place: Path) -> None:
    table = place.parent / "people.parquet"
    pq.write_table(pa.table({"x": FEATURES[:, 0], "income": LABELS}), table)
    privatize_table(table, label="income", epsilon=1.0, classes=[0, 1], to=place, ledger=ledger, label_set="labels")


def from_learner(ledger: Ledger, place: Path) -> None:
    model = LabelPrivateClassifier(epsilon=1.0, stages=2, ledger=ledger)
    model.fit(FEATURES, LABELS).release_.save(place)


def passes(place: Path, ledger: Path) -> bool:
    """Whether an audit finds nothing wrong between a release and a ledger."""
    found = audit(place, ledger=Ledger(ledger))
    return all(check.passed for check in found.checks if check.name.startswith("ledger"))


def from_stopped_learner(ledger: Ledger, place: Path) -> None:
    """The run is taken up again from its journal, which noted the entry: the hash must come back with the number."""
    model = LabelPrivateClassifier(epsilon=1.0, stages=2, ledger=ledger, checkpoint=place.parent / f"{place.name}-run")
    model.fit(FEATURES, LABELS)
    model.fit(FEATURES, LABELS).release_.save(place)


@pytest.mark.parametrize("release", [from_memory, from_table, from_learner, from_stopped_learner])
@pytest.mark.filterwarnings("ignore")
def test_two_releases_cannot_both_show_one_entry(tmp_path: Path, release: Any) -> None:
    book, copy = tmp_path / "spent.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(book, budget=1.0)
    shutil.copy(book, copy)
    release(ledger, tmp_path / "first")
    assert passes(tmp_path / "first", book)
    shutil.copy(copy, book)
    release(Ledger(book), tmp_path / "second")  # the budget of 1 has been spent twice
    both = [passes(tmp_path / name, book) for name in ("first", "second")]
    assert both == [False, True]  # before: [True, True]


def test_a_stopped_clock_does_not_make_two_charges_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash covers the time; an attacker who sets the clock back too must not get the same hash twice."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2026, 1, 1, tzinfo=tz or timezone.utc)

    monkeypatch.setattr("labeldp.accounting.ledger_file.datetime", Stopped)
    test_two_releases_cannot_both_show_one_entry(tmp_path, from_memory)


def test_taking_the_hash_out_is_a_finding_and_no_pass(tmp_path: Path) -> None:
    """The manifest's own digest is no signature: whoever takes the hash out can seal it again."""
    book = tmp_path / "spent.sqlite"
    from_memory(Ledger(book, budget=1.0), tmp_path / "out")
    path = tmp_path / "out" / "release.json"
    manifest = json.loads(path.read_text())
    manifest.pop("ledger_hash", None)
    manifest["sha256"] = digest(manifest)
    path.write_text(json.dumps(manifest))
    assert load_release(tmp_path / "out").ledger_entry == 2  # a release of an older version is read as before
    found = audit(tmp_path / "out", ledger=Ledger(book))
    (charged,) = (check for check in found.checks if check.name == "ledger charged")
    assert not charged.passed
    assert "only the entry's number is recorded" in charged.detail


def test_the_hash_kept_elsewhere_finds_the_restored_copy(tmp_path: Path) -> None:
    """The off-site anchor: what `labeldp ledger --known` compares. It needs no release at all."""
    book, copy = tmp_path / "spent.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(book, budget=1.0)
    shutil.copy(book, copy)
    from_memory(ledger, tmp_path / "first")
    anchor = ledger.verify()
    shutil.copy(copy, book)
    from_memory(Ledger(book), tmp_path / "second")
    assert Ledger(book).verify()  # the chain in itself is whole
    with pytest.raises(PrivacyError, match="known hash"):
        Ledger(book).verify(known=anchor)
