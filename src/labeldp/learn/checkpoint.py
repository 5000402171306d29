"""A training run that may be killed: what was charged, measured and drawn is on disk before anything is learned from it.

    plan/         the split of the examples, and what the run is about
    run-1.json    the run's name, and its noise key if it is sealed; run-2.json, ... where a key was lost
    prior/        the prior table, as it was measured; histogram-1/, ... where it took several
    stage-1/      the release of stage 1, ...
    lock          held while a run works here

A run that starts again on the same directory takes what is there and goes on: the ledger is not charged again, and what is
missing is drawn as it would have been. Training itself is repeated from the kept releases, so that a seeded run ends with
the model that it would have had.

>>> from labeldp.learn.checkpoint import Checkpoint
>>> Checkpoint("runs/7", passphrase="correct horse battery")
Checkpoint('runs/7', sealed)

**The promise.** One charge, one draw: there is no way to two different draws of a label under one entry of a ledger. Everything
below serves it, for whoever kills, copies, restores, deletes and edits as she likes, and fits again.

**The key.** All noise of a run is a function of one key and of positions, so a repeated draw is the same draw. The key is kept
by this process until `fit` has ended, or, with a passphrase, in a box in run-1.json (`labeldp.release.unfinished`), so that
another process can go on. Then it is destroyed. A run is named by a MAC, under its key, of the labels, the settings and the
split, and its noise comes from a child of that name. So the same key on other labels, settings or rows is another run,
with other noise and a charge of its own; the difference of two draws shows nothing.

**A key that is gone** (a kill without a passphrase, a deleted run-1.json). What was kept whole is used as it is: it was charged.
If anything must be drawn, it is drawn under a new key, as a new run, under a new charge; a `ChargedAgainWarning` says so
before, and the ledger decides. Without a ledger nobody could tell the two draws apart, and it is refused.

**The same draw.** A second draw under the key could still differ if its beliefs did: an estimator that trains differently each
time, other features. The same noise through two channels tells of a label what no epsilon bounds. So the noise of a draw is that of
the key and of a digest of what it is drawn through, channel or query (`NoiseKey.apart`): other beliefs have independent noise. And
each draw is marked (a MAC of its outputs and channel) before it leaves memory: in the sealed box, or this process's memory, and as a
row of the ledger that costs nothing, "run N: stage-2 M". A draw whose mark is another than the first is thrown away and refused. The
box holds key and marks together: whoever deletes the marks has deleted the key. Of two copies of a directory that draw at the same
time, the first row of the ledger wins.

**States**, each of which a kill may leave, and why it is safe there:

| after | on disk | a run that goes on |
|---|---|---|
| 0 | nothing, or a plan | begins: nothing was charged or drawn |
| 1 run-N.json | name, sealed key | with the key: finds no charge, charges. Without: a new run, charged; run N drew nothing |
| 2 the charge | its row, by the run's name, promise and rows | with the key: finds the row, in the ledger. Without: a new charge |
| 3 a draw, in memory | nothing more | the draw is lost; nobody saw it. With the key the same again; without, a new charge |
| 4 its mark | a row, the box | the same again, or refused |
| 5 a hidden folder `.stage-2.partial-...` | some of the draw | as 4; the folder is removed at the start, and `load_release` refuses it. It was the same draw |
| 6 stage-2/ | the draw, whole: one rename | is read; nothing is drawn |
| 7 the last stage | all draws, a key that is not needed | nothing is drawn; the key is destroyed |
| 8 the key destroyed | all draws | nothing is drawn. A stage deleted now is a key that is gone: charged again |

A copy or an older state of the directory is one of these states with the same key, or without one. With a ledger, copies draw the
same or are refused. **Without a ledger copies have nothing in common but the key**: each has its own marks, and nothing tells one of
the other. Whoever has the passphrase and copies an unfinished run gets the same draw from each copy that believes the same, and
from a copy with other features or another estimator a second draw with noise of its own: two releases, 2 epsilon, of which each says
one. The promise above needs the ledger; what holds without it is that no two draws share noise unless they are the same draw.

**Files.** The directory is 0700 and the files of keys 0600, whatever the umask. Raw labels are never written, and keys never
unless sealed. Seeded runs are reproducible, not private: they keep no key and no marks, and their noise is that of the seed and the
stage alone, so that a seeded run draws the same with a checkpoint and without.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import ChargedAgainWarning, Described, LabelDPError, PrivacyError, ReleaseError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.priors import PriorTable
from labeldp.random import NoiseKey
from labeldp.release import Release, SensitiveLabels
from labeldp.release.budget import Budget
from labeldp.release.unfinished import (
    Box,
    check_passphrase,
    is_partial,
    mark,
    mark_labels,
    remove_leftover,
    write_private,
)
from labeldp.untrusted import parse_json, read_json, read_npy

if TYPE_CHECKING:
    from labeldp.accounting import EntryNumber

OWNER = "LabelPrivateClassifier"
#: Version 3 has the digests of what it keeps.
VERSION = 3
PLAN, PRIOR, LOCK = "plan", "prior", "lock"
FACTS = "facts.json"


class Checkpoint:
    """Where a run keeps what it has drawn, and the passphrase that seals its noise key there until it ends.

    Parameters
    ----------
    place : path
        A directory, made if it is not there; 0700. One run at a time.
    passphrase : str, optional
        12 characters or more. With it a run that was killed goes on in another process, under the same charge. Without
        it only this process can; after a kill what was not kept yet is charged again. Whoever has the directory of an
        unfinished run and the passphrase can undo its noise.

    Notes
    -----
    It shows no passphrase, and pickles without it.
    """

    def __init__(self, place: str | os.PathLike[str], *, passphrase: str | None = None) -> None:
        self.place = Path(place)
        self._passphrase = None if passphrase is None else check_passphrase(passphrase, owner="Checkpoint")

    @classmethod
    def of(cls, place: Any) -> Checkpoint | None:
        """Return the checkpoint that a path or a checkpoint is; None stays None."""
        return place if place is None or isinstance(place, Checkpoint) else cls(place)

    @property
    def is_sealed(self) -> bool:
        """Whether there is a passphrase."""
        return self._passphrase is not None

    def stretch(self) -> Box | None:
        """Return a new box that closes with the passphrase; None without one."""
        return None if self._passphrase is None else Box.of(self._passphrase)

    def unseal(self, closed: dict[str, Any], *, about: bytes, owner: str = OWNER) -> tuple[Box, bytes]:
        """Open a box of an earlier process."""
        if self._passphrase is None:
            fix = (
                'Give it: checkpoint=Checkpoint(place, passphrase="..."). If it is lost, delete the file run-*.json with '
                "the largest number: what is missing is then drawn under a new key, and charged again."
            )
            raise invalid(owner, "passphrase", "open the key of the run", got=None, fix=fix)
        return Box.open(closed, self._passphrase, about=about, owner=owner)

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.place)!r}{', sealed' if self.is_sealed else ''})"

    def __deepcopy__(self, _: Any) -> Checkpoint:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "_passphrase": None}


@dataclass(eq=False)
class _Run:
    """A run whose key is here. `draws` are the marks of what was drawn, `box` closes it all for the disk."""

    name: str
    key: NoiseKey = field(repr=False)
    draws: dict[str, str]
    box: Box | None = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        plain = json.dumps({"key": self.key.reveal().hex(), "draws": self.draws}).encode()
        closed = None if self.box is None else self.box.close(plain, about=self.name.encode())
        return {"run": self.name, "key": closed}


#: Runs of this process that have not ended, by name: in memory, and nowhere else.
_held: dict[str, _Run] = {}
_marking = threading.Lock()


class Journal:
    """The directory of one run, a context: it ends a run that ends well. With None everything is made and nothing kept.

    Parameters
    ----------
    checkpoint : Checkpoint or path, optional
        Where it is.
    facts : dict
        Plain values that say what the run is about; a directory whose run had other facts is refused.
    labels : SensitiveLabels
        What is drawn from. They are told by their mark under the key and never written.
    key : NoiseKey
        The key of a new run; a run that goes on has its own. A seeded one is used as it is.
    pieces : sequence of str
        The directories that will be there in the end: "prior", "stage-1", ...
    owner : str
        The learner whose run it is, for messages.

    Notes
    -----
    Each `keep_` method returns what is on disk, or makes it, writes it and then returns what was written. They are called in
    the order split, charge, the rest. `key` is the noise of the run, after the charge.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | str | os.PathLike[str] | None,
        *,
        facts: dict[str, Any],
        labels: SensitiveLabels,
        key: NoiseKey,
        pieces: Sequence[str],
        owner: str = OWNER,
    ) -> None:
        self._owner = owner
        self._checkpoint = Checkpoint.of(checkpoint)
        self._facts = {"version": VERSION, **facts}
        self._labels, self._given, self._pieces = labels, key, tuple(pieces)
        self._number, self._name, self._run = 0, "", None  # type: int, str, _Run | None
        self._budget: Budget | None = None
        self._unit = Unit.LABEL
        self._split = b""
        self._may_draw = True
        self._closing = contextlib.ExitStack()
        self.key = key

    def __enter__(self) -> Journal:  # noqa: PYI034 - typing.Self came with Python 3.11
        if self._checkpoint is not None:
            self._make_root()
            self._closing.enter_context(_locked(self._root, owner=self._owner))
            try:
                self._sweep()
                self._find_run()
            except BaseException:
                self._closing.close()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._closing:
            if kind is None and self._checkpoint is not None:
                self._destroy_keys()

    # ------------------------------------------------------------------------------------------------- plan and charge

    def keep_split(self, make: Callable[[NoiseKey], npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
        """Return the stage of each example: that of the run that began here, or a new one by a key, written down."""
        if self._checkpoint is None:
            return make(self._given)
        if not (self._root / PLAN).is_dir():
            strange = next((name for name in self._pieces if (self._root / name).exists()), None)
            if strange is not None:
                raise self._refuse_damage(PLAN, FileNotFoundError(f"{strange} is there, and {PLAN} is not"))
            # The twin keeps no account: the key itself is claimed when its run begins.
            key = self._given if self._run is None else self._run.key
            stage = make(NoiseKey.carried(key.reveal(), seeded=key.seeded))
            self._write(PLAN, self._facts, **({} if stage is None else {"stage": stage}))
        facts, arrays = self._read(PLAN)
        strange = next((n for n in sorted({*facts, *self._facts}) if facts.get(n) != self._facts.get(n)), None)
        if strange is not None:
            raise self._refuse_other(strange)
        stage = arrays.get("stage")
        self._split = b"" if stage is None else stage.tobytes()
        if self._run is not None and self._run.name != self._name_run(self._run.key):
            raise self._refuse_other("labels, or another split of them")
        return stage

    def keep_charge(self, budget: Budget, promise: Guarantee, *, mechanism: str) -> EntryNumber | None:
        """Return the ledger's entry of this run, found by the run's name or made now; the key is then there to draw with.

        Where the key is gone and something must be drawn, a new run begins: a `ChargedAgainWarning` is given and the whole
        promise is charged again, or without a ledger `PrivacyError` is raised.
        """
        self._budget, self._unit = budget, promise.unit
        if self._checkpoint is None:
            return budget.charge(promise, mechanism=mechanism)
        if self._given.seeded:
            if not self._name:
                self._number, self._name = 1, secrets.token_hex(16)
                self._write_run({"run": self._name, "key": None})
        elif self._run is not None or not self._name or self._missing():
            self._begin_run(budget, promise)
        else:
            # All is there: nothing is drawn, by this key or another.
            self._may_draw, self.key = False, NoiseKey.from_os()
        found = budget.find_charge(promise, note=self._note)
        return found or budget.charge(promise, mechanism=mechanism, note=self._note)

    @property
    def _note(self) -> str:
        """What the charge of this run says in the ledger."""
        return f"run {self._name}"

    def _begin_run(self, budget: Budget, promise: Guarantee) -> None:
        """Take the key that is here, or begin a run with a new one; it is on disk, if sealed, before the charge."""
        if self._run is None:
            if self._name:
                self._say_gone(budget, promise)
            key = self._given.claim_all()
            assert self._checkpoint is not None
            self._name = self._name_run(key)
            self._run = _Run(self._name, key, {}, self._checkpoint.stretch())
            _held[self._name] = self._run
            self._number += 1
            self._write_run(self._run.to_json())
        self.key = self._run.key.child("run", self._run.name).apart()

    def _say_gone(self, budget: Budget, promise: Guarantee) -> None:
        missing = ", ".join(self._missing())
        if budget.ledger is None:
            raise PrivacyError(
                f"{self._owner}: the noise key of the run in {self._root} is gone, and {missing} would be drawn a second time. "
                "Without a ledger nothing would tell. Begin a new run in a new directory; next time give a ledger, or "
                'seal the key: checkpoint=Checkpoint(place, passphrase="...").'
            )
        paid = budget.find_charge(promise, note=self._note)
        if paid is not None:
            warnings.warn(
                f"The noise key of the run in {self._root} is gone (entry {paid} of the ledger). {missing} may have been "
                "drawn before, so it is drawn under a new key, and the whole guarantee is charged again. To go on under "
                'one charge next time, seal the key: checkpoint=Checkpoint(place, passphrase="...").',
                ChargedAgainWarning,
                stacklevel=6,
            )

    def _missing(self) -> list[str]:
        return [name for name in self._pieces if not (self._root / name).is_dir()]

    # ------------------------------------------------------------------------------------------------- tables and stages

    def keep_table(self, name: str, make: Callable[[], PriorTable]) -> PriorTable:
        """Return the prior, or a histogram on the way to it, as it was measured."""
        if self._checkpoint is None:
            return make()
        if not (self._root / name).is_dir():
            table = self._draw(name, make, lambda made: {"rows": made.rows, "index": made.index})
            promise = None if table.guarantee is None else table.guarantee.to_json()
            facts = {"guarantee": promise, "seeded": table.seeded, "description": table.description}
            self._write(name, facts, rows=table.rows, index=table.index)
        facts, arrays = self._read(name)
        promise = facts["guarantee"]
        return PriorTable(
            rows=arrays["rows"],
            index=arrays["index"],
            guarantee=None if promise is None else Guarantee.from_json(promise),
            seeded=bool(facts["seeded"]),
            description=str(facts["description"]),
        )

    def keep_release(self, number: int, draw: Callable[[], Release]) -> Release:
        """Return the release of a stage (from 0): the one on disk, or a new one that is on disk when this returns."""
        if self._checkpoint is None:
            return draw()
        from labeldp.release.loading import load_release
        from labeldp.release.saving import save_release

        name = f"stage-{number + 1}"
        if (self._root / name).is_dir():
            return load_release(self._root / name)
        release: Release = self._draw(name, draw, _arrays_of)
        save_release(release, self._root / name, owner=self._owner, private=True)
        return release

    def _draw(self, name: str, draw: Callable[[], Any], arrays: Callable[[Any], dict[str, Any]]) -> Any:
        """Draw, in memory, and return the draw once its mark is kept; one that differs from an earlier one is refused."""
        if not self._may_draw:
            raise PrivacyError(
                f"{self._owner}: {name} of the run in {self._root} was taken away while it was read. Fit again."
            )
        drawn = draw()
        if self._run is not None:
            parts = [
                f"{key}:{np.asarray(value).dtype}:{np.shape(value)}".encode() for key, value in arrays(drawn).items()
            ]
            contents = [np.ascontiguousarray(value).tobytes() for value in arrays(drawn).values()]
            self._keep_mark(name, mark(self._run.key, name.encode(), *parts, *contents))
        return drawn

    def _keep_mark(self, name: str, found: str) -> None:
        assert self._run is not None
        with _marking:
            first = self._run.draws.setdefault(name, found)
        if self._run.box is not None:
            self._write_run(self._run.to_json())
        if first == found and self._budget is not None and self._budget.ledger is not None:
            first = self._first_row(self._budget, f"{self._note}: {name} ", found)
        if first != found:
            raise PrivacyError(
                f"{self._owner}: {name} of the run in {self._root} was drawn before from other beliefs, and this draw is not "
                "shown. Labels or features changed, or the estimator trains differently each time: give it a "
                "random_state. Begin a new run in a new directory, which is charged again."
            )

    def _first_row(self, budget: Budget, start: str, found: str) -> str:
        """Return the mark that the ledger knows first; it costs nothing to write one."""
        ledger = budget.ledger

        def rows() -> list[str]:
            return [one.note.removeprefix(start) for one in ledger.find_noted(start, longer=True)]

        known = rows()
        if not known:
            nothing = Guarantee.pure(0.0, unit=self._unit)
            budget.charge(
                nothing, mechanism=f"{self._owner}: what was drawn, so that it is drawn once", note=start + found
            )
            known = rows()
        return next(iter(known), found)

    # --------------------------------------------------------------------------------------------------- what is on disk

    @property
    def _root(self) -> Path:
        assert self._checkpoint is not None
        return self._checkpoint.place

    def _make_root(self) -> None:
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.chmod(0o700)
        except OSError as error:
            got, fix = str(self._root), str(error.strerror or error)
            raise invalid(self._owner, "checkpoint", "be a directory that can be made", got=got, fix=fix) from error

    def _sweep(self) -> None:
        """Remove what killed runs left half written. The lock is held: nobody is writing."""
        for path in [path for path in self._root.iterdir() if is_partial(path.name)]:
            remove_leftover(path)

    def _find_run(self) -> None:
        """Find the newest run, and its key: kept by this process, or sealed here, or gone."""
        numbers = [int(path.stem[4:]) for path in self._root.glob("run-*.json") if path.stem[4:].isdigit()]
        if not numbers:
            return
        self._number = max(numbers)
        try:
            record = read_json(self._run_file())
            self._name, closed = str(record["run"]), record["key"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._refuse_damage(self._run_file().name, error) from error
        if self._given.seeded:
            return
        self._run = _held.get(self._name)
        if self._run is None and closed is not None:
            assert self._checkpoint is not None
            box, plain = self._checkpoint.unseal(closed, about=self._name.encode(), owner=self._owner)
            held = parse_json(plain)
            key = NoiseKey.carried(bytes.fromhex(held["key"]), seeded=False)
            self._run = _held[self._name] = _Run(self._name, key, held["draws"], box)

    def _name_run(self, key: NoiseKey) -> str:
        return mark_labels(key, [self._labels], json.dumps(self._facts, sort_keys=True).encode(), self._split)

    def _run_file(self) -> Path:
        return self._root / f"run-{self._number}.json"

    def _write_run(self, record: dict[str, Any]) -> None:
        write_private(self._run_file(), record)

    def _destroy_keys(self) -> None:
        """Forget the keys of all runs here: what was drawn is kept, and nothing more will be."""
        for path in self._root.glob("run-*.json"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = read_json(path)
                _held.pop(record["run"], None)
                if record["key"] is not None:
                    write_private(path, {**record, "key": None})
        _held.pop(self._name, None)

    def _write(self, name: str, facts: dict[str, Any], **arrays: npt.NDArray[Any]) -> None:
        from labeldp.release.manifest import digest, file_facts
        from labeldp.release.saving import stage_directory

        with stage_directory(self._root / name, owner=self._owner, private=True) as partial:
            for key, array in arrays.items():
                with (partial / f"{key}.npy").open("xb") as handle:
                    np.save(handle, array, allow_pickle=False)
                    os.fsync(handle.fileno())
            files = {key: file_facts(partial / f"{key}.npy") for key in arrays}
            whole = {"facts": facts, "files": files}
            with (partial / FACTS).open("x", encoding="utf-8") as text:
                json.dump({**whole, "sha256": digest(whole)}, text)
                text.flush()
                os.fsync(text.fileno())

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the facts and the arrays of a directory that is as it was written."""
        from labeldp.release.manifest import digest, file_facts

        place = self._root / name
        try:
            whole = read_json(place / FACTS)
            sealed = isinstance(whole, dict) and whole.get("sha256") == digest(whole)
            files: dict[str, Any] = whole["files"] if sealed else {}
            if not sealed or any(file_facts(place / f"{key}.npy") != facts for key, facts in files.items()):
                raise self._refuse_damage(name, ValueError("it was changed after it was written"))
            return whole["facts"], {key: read_npy(place / f"{key}.npy") for key in files}
        except ReleaseError:
            raise
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise self._refuse_damage(name, error) from error

    def _refuse_damage(self, name: str, error: Exception) -> ReleaseError:
        return ReleaseError(
            f"{self._owner}: the checkpoint's {name} in {self._root} cannot be read ({error}). What was charged stays charged; "
            "restore it from a copy, or begin a new run in a new directory, which is charged again."
        )

    def _refuse_other(self, name: str) -> LabelDPError:
        got, fix = Described(f"another {name}"), "Give this run a directory of its own."
        return invalid(self._owner, "checkpoint", "hold a run of the same settings", got=got, fix=fix)


def _arrays_of(release: Release) -> dict[str, Any]:
    """Return what a draw is: its outputs and the channel that they came through."""
    asked = {} if release.rows is None else {"rows": release.rows}  # which rows of persons were asked belongs to it
    return {"codes": release.codes, **asked, **release.channel.row_arrays(), **release.channel.example_arrays()}


@contextlib.contextmanager
def _locked(root: Path, *, owner: str) -> Iterator[None]:
    """Hold the directory's lock; the system lets go of it if the process is killed. Refuse if another run holds it."""
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such lock on Windows: the ledger's rows are then the only judge of two runs at once
            pass
        except OSError as error:
            fix = "Another run works there. Wait for it, or give this one a directory of its own."
            got = Described(f"{root}, which is in use")
            raise invalid(owner, "checkpoint", "be a directory of one run at a time", got=got, fix=fix) from error
        yield
    finally:
        os.close(descriptor)
