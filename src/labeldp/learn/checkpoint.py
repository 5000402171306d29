"""A training run that may be killed: what was charged, measured and drawn is on disk before anything is learned from it.

    plan/       the split of the examples, and what the run is about
    charged/    the ledger's entry
    prior/      the prior table, as it was measured; histogram-1/, ... where it took several
    stage-1/    the release of stage 1, ...

Each is a directory that appears whole or not at all. A run that starts again on the same directory takes what is there
and goes on: a label that was drawn is not drawn again, and the ledger is not charged again. Training itself is repeated
from the kept releases, so that a seeded run ends with the model that it would have had.

>>> from labeldp.learn.checkpoint import Journal
>>> Journal(None, facts={}).keep_release(0, lambda: "drawn")
'drawn'

Design notes. The ledger's row names the run (a random token in the plan, written before the charge), so that a kill
between the charge and its note is found by reading the ledger. A kill between a draw and its directory loses the draw;
nobody saw it, and no key is stored to make it again. Raw labels and keys are never written. A run over other labels
under the same name and number cannot be told apart: labels are not compared with anything on disk.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting import note_entry, recall_entry
from labeldp.errors import Described, ReleaseError, invalid
from labeldp.guarantee import Guarantee
from labeldp.priors import PriorTable
from labeldp.release import Release

OWNER = "LabelPrivateClassifier"
VERSION = 1
PLAN, CHARGED, PRIOR = "plan", "charged", "prior"
FACTS = "facts.json"


class Journal:
    """The directory of one run. With None for a directory everything is made anew and nothing is kept.

    Each `keep_` method returns what is on disk, or makes it, writes it and then returns what was written. `facts` are
    plain values that say what the run is about; a directory whose run had other facts is refused.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, *, facts: dict[str, Any]) -> None:
        self._root = None if directory is None else Path(directory)
        self._facts = {"version": VERSION, **facts}
        self.token = ""

    def keep_split(self, make: Callable[[], npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
        """Return the stage of each example: that of the run that began here, or a new one, written down."""
        if self._root is None:
            return make()
        if not (self._root / PLAN).is_dir():
            self._begin(make())
        facts = self._read(PLAN)
        self.token = str(facts.pop("token"))
        strange = sorted(name for name in {*facts, *self._facts} if facts.get(name) != self._facts.get(name))
        if strange:
            got = Described(f"another {strange[0]}")
            fix = "Give this run a directory of its own."
            raise invalid(OWNER, "checkpoint", "hold a run of the same settings", got=got, fix=fix)
        return self._read_arrays(PLAN).get("stage")

    def keep_charge(self, charge: Callable[[str], int | None], *, ledger: Any) -> int | None:
        """Return the ledger's entry of this run; `charge`, told how the run is called, makes one if there is none."""
        if self._root is None:
            return charge("")
        if not (self._root / CHARGED).is_dir():
            found = [] if ledger is None else [entry.id for entry in ledger.entries() if self.token in entry.mechanism]
            entry = found[0] if found else charge(f", run {self.token}")
            self._write(CHARGED, note_entry(entry))
        return recall_entry(self._read(CHARGED))

    def keep_table(self, name: str, make: Callable[[], PriorTable]) -> PriorTable:
        """Return the prior, or a histogram on the way to it, as it was measured."""
        if self._root is None:
            return make()
        if not (self._root / name).is_dir():
            self._write_table(name, make())
        facts, arrays = self._read(name), self._read_arrays(name)
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
        if self._root is None:
            return draw()
        from labeldp.release import load_release

        place = self._root / f"stage-{number + 1}"
        if place.is_dir():
            return load_release(place)
        release = draw()
        release.save(place)
        return release

    def _begin(self, stage: npt.NDArray[Any] | None) -> None:
        assert self._root is not None
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            got, fix = str(self._root), str(error.strerror or error)
            raise invalid(OWNER, "checkpoint", "be a directory that can be made", got=got, fix=fix) from error
        arrays = {} if stage is None else {"stage": stage}
        self._write(PLAN, {**self._facts, "token": secrets.token_hex(8)}, **arrays)

    def _write_table(self, name: str, table: PriorTable) -> None:
        promise = None if table.guarantee is None else table.guarantee.to_json()
        facts = {"guarantee": promise, "seeded": table.seeded, "description": table.description}
        self._write(name, facts, rows=table.rows, index=table.index)

    def _write(self, name: str, facts: dict[str, Any], **arrays: npt.NDArray[Any]) -> None:
        from labeldp.release.files import stage_directory

        assert self._root is not None
        with stage_directory(self._root / name, owner=OWNER) as partial:
            for key, array in arrays.items():
                with (partial / f"{key}.npy").open("xb") as handle:
                    np.save(handle, array, allow_pickle=False)
                    os.fsync(handle.fileno())
            with (partial / FACTS).open("x", encoding="utf-8") as text:
                json.dump(facts, text)
                text.flush()
                os.fsync(text.fileno())

    def _read(self, name: str) -> dict[str, Any]:
        assert self._root is not None
        try:
            facts: dict[str, Any] = json.loads((self._root / name / FACTS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._refuse_damage(name, error) from error
        return facts

    def _read_arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        assert self._root is not None
        try:
            return {path.stem: np.load(path, allow_pickle=False) for path in (self._root / name).glob("*.npy")}
        except (OSError, ValueError, EOFError) as error:
            raise self._refuse_damage(name, error) from error

    def _refuse_damage(self, name: str, error: Exception) -> ReleaseError:
        return ReleaseError(
            f"{OWNER}: the checkpoint's {name} in {self._root} cannot be read ({error}). What was charged stays charged; "
            "restore it from a copy, or begin a new run in a new directory, which is charged again."
        )
