"""Checkpoints: an interrupted run goes on as it began, and its private folder is the owner's, checked, and deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from labeldp import Ledger
from labeldp.errors import LabelDPError, PrivacyError, ReleaseError
from labeldp.learn.pate import PATE, MultiLabelPATE
from labeldp.learn.pate.teachers import VoteStore, digest_run
from labeldp.release.unfinished import hidden_name, hold

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(200, 2)), RNG.normal(size=(20, 2))
y = (X[:, 0] > 0).astype(int)


class Counted(DecisionTreeClassifier):
    """A tree that counts how often any of its kind was fitted, and may give up after so many."""

    fits = 0
    patience = 10**9

    def fit(self, X, y):
        if Counted.fits >= Counted.patience:
            raise KeyboardInterrupt
        Counted.fits += 1
        return super().fit(X, y)


@pytest.fixture(autouse=True)
def _fresh():
    Counted.fits, Counted.patience = 0, 10**9


def model(folder: Path | None, **settings) -> PATE:
    chosen = {
        "n_teachers": 10,
        "epsilon": 50.0,
        "aggregation": "gnmax",
        "classes": [0, 1],
        "random_state": 4,
        **settings,
    }
    return PATE(Counted(), student=DecisionTreeClassifier(), checkpoint=folder, **chosen)


def interrupted(folder: Path, **settings) -> None:
    Counted.patience = 9  # blocks of 4 teachers on one worker: 8 are kept
    with pytest.raises(KeyboardInterrupt):
        model(folder, **settings).fit(X, y, PUBLIC)
    Counted.fits, Counted.patience = 0, 10**9


def test_an_interrupted_run_goes_on_as_it_began(tmp_path: Path):
    folder, ledger = tmp_path / "votes", Ledger(tmp_path / "ledger.db")
    interrupted(folder, ledger=ledger)
    assert len(list(folder.glob("votes-*.npy"))) == 8
    assert ledger.entries() == ()  # no vote was counted
    resumed = model(folder, ledger=ledger).fit(X, y, PUBLIC)
    assert Counted.fits == 2
    assert len(ledger.entries()) == 1
    assert not folder.exists()
    assert np.array_equal(resumed.answers_, model(None).fit(X, y, PUBLIC).answers_)


def test_a_resumed_run_keeps_its_parts_and_draws_fresh_noise(tmp_path: Path):
    folder = tmp_path / "votes"
    interrupted(folder, random_state=None)
    model(folder, random_state=None).fit(X, y, PUBLIC)
    assert Counted.fits == 2


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_folder_and_its_files_are_the_owners_alone(tmp_path: Path):
    folder = tmp_path / "votes"
    interrupted(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = {path.name for path in folder.iterdir()}
    assert {"PRIVATE.txt", "manifest.json"} < names
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    folder.chmod(0o755)
    with pytest.raises(PrivacyError, match="owner's alone"):
        model(folder).fit(X, y, PUBLIC)


@pytest.mark.parametrize("what", ["labels", "rows", "points", "teachers", "settings"])
def test_votes_of_another_run_are_not_counted(tmp_path: Path, what: str):
    folder = tmp_path / "votes"
    interrupted(folder)
    other = model(folder, n_teachers=11 if what == "teachers" else 10)
    if what == "settings":
        other.set_params(teacher__max_depth=1)
    rows, labels = X + (what == "rows"), 1 - y if what == "labels" else y
    with pytest.raises(LabelDPError, match="this very run"):
        other.fit(rows, labels, PUBLIC[::-1] if what == "points" else PUBLIC)
    assert Counted.fits == 0


def test_a_clip_is_part_of_a_runs_identity(tmp_path: Path):
    folder, Y = tmp_path / "votes", (X > 0).astype(int)
    settings = {"n_teachers": 10, "epsilon": 50.0, "aggregation": "pate-tau", "checkpoint": folder, "random_state": 1}
    Counted.patience = 9
    with pytest.raises(KeyboardInterrupt):
        MultiLabelPATE(Counted(), tau=2, **settings).fit(X, Y, PUBLIC)
    with pytest.raises(LabelDPError, match="this very run"):
        MultiLabelPATE(Counted(), tau=1, **settings).fit(X, Y, PUBLIC)
    Counted.patience = 10**9
    MultiLabelPATE(Counted(), tau=2, **settings).fit(X, Y, PUBLIC)
    assert not folder.exists()


def test_foreign_folders_files_and_damage_are_refused(tmp_path: Path):
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    (foreign / "letter.txt").write_text("dear")
    with pytest.raises(LabelDPError, match="be new or a folder of votes"):
        model(foreign).fit(X, y, PUBLIC)
    with pytest.raises(LabelDPError, match="be a folder"):
        model(foreign / "letter.txt").fit(X, y, PUBLIC)
    with pytest.raises(LabelDPError, match="existing folder"):
        model(tmp_path / "no" / "such").fit(X, y, PUBLIC)
    folder = tmp_path / "votes"
    interrupted(folder)
    (folder / "votes-000002.npy").write_bytes(b"half")
    with pytest.raises(ReleaseError, match=r"votes-000002\.npy is not readable"):
        model(folder).fit(X, y, PUBLIC)


def test_discarding_leaves_what_is_not_ours(tmp_path: Path):
    store = VoteStore.open("test", tmp_path / "votes", identity="a", split=1)
    store.save(0, np.arange(3))
    (store.folder / "note.txt").write_text("mine")
    store.discard()
    assert [path.name for path in store.folder.iterdir()] == ["note.txt"]


@pytest.mark.parametrize("of", ["votes-000008.npy", "manifest.json"])
def test_what_a_kill_left_half_written_goes_with_the_rest(tmp_path: Path, of: str):
    """Before: votes that a kill caught while they were written stayed behind, in a folder that said no more what it holds."""
    folder = tmp_path / "votes"
    interrupted(folder)
    (folder / hidden_name(of)).write_bytes(b"the first half of raw votes")
    model(folder).fit(X, y, PUBLIC)
    assert not folder.exists()


def test_what_another_process_is_writing_stays(tmp_path: Path):
    store = VoteStore.open("test", tmp_path / "votes", identity="a", split=1)
    theirs = store.folder / hidden_name("votes-000001.npy")
    theirs.write_bytes(b"half")
    with hold(theirs):
        store.discard()
        assert theirs.exists()


def test_identities_tell_arrays_apart():
    a = np.arange(6)
    values = [(a,), (a.astype(np.int32),), (a.reshape(2, 3),), (a[::-1],), (a, 1), (a, "1"), (a[:3], a[3:])]
    assert len({digest_run(*value) for value in values}) == len(values)
    assert digest_run(a[::2]) == digest_run(a[::2].copy())
