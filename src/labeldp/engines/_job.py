"""A release from its charge to its name: charged once, drawn into a hidden folder, shown in one step; or taken up again.

Design notes. The order of work is the safety. The key is sealed (if a passphrase was given) before the charge, so that a charge
is never lost for want of its key; the charge carries the job's name, so that a resumed job finds it; noise comes after
it. Drawing again under the same key gives the same labels, so a resumed job is the same release and costs nothing more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from labeldp._random import NoiseKey
from labeldp._validate import code_dtype
from labeldp.data.tables._url import Place, place_of
from labeldp.engines._beliefs import Belief, Response
from labeldp.engines._carry import Engine, Progress
from labeldp.engines._pipeline import Writer
from labeldp.engines._plan import OWNER, Plan, charged
from labeldp.engines._randomizer import Randomizer
from labeldp.engines._rows import Rows
from labeldp.engines._sealed import check_passphrase, opened, sealed
from labeldp.engines._staging import JOB, KEY, Staging, Written, staging_at
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.release import Release
from labeldp.release._writer import write_manifest, write_shared

#: Keys of unfinished jobs that this process keeps, by the job's name: in memory, and nowhere else.
_held: dict[str, NoiseKey] = {}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be released, how, under which key, by which engine, and where it is made."""

    rows: Rows
    belief: Belief
    plan: Plan
    key: NoiseKey
    size: int
    engine: Engine
    staging: Staging
    progress: Progress | None
    ledger: Any
    row_ids: str | None
    passphrase: str | None
    keep: bool

    @property
    def batch_rows(self) -> int:
        """The size asked for, rounded up to whole chunks of the belief."""
        return -(-self.size // self.belief.chunk) * self.belief.chunk

    def identity(self) -> str:
        """Return a digest of what is released and how; a resumed job must have the same."""
        facts = {
            "label": [self.rows.label, self.plan.label_set, list(self.rows.classes), self.row_ids],
            "spans": [[span.name, count] for span, count in zip(self.rows.spans, self.rows.counts, strict=True)],
            "schema": str(self.rows.source.schema),
            "promise": self.plan.promise.to_json(),
            "mechanism": self.plan.words,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def run(job: Job, target: Place) -> tuple[int | None, float]:
    """Do the job; return the ledger's entry and the expected share of true labels."""
    charges: list[int | None] = [None]
    with _cleared(job, target, charges):
        job.staging.make([span.name for span in job.rows.spans])
        _begin(job)
        charges[0] = _entry(job)
        accuracy = _written(job, ledger_entry=charges[0])
        job.staging.publish(target)
    return charges[0], accuracy


def discard_job(directory: Any) -> None:
    """Throw an unfinished job away: its folder and its key. What the ledger was charged stays charged."""
    staging = staging_at(place_of(directory))
    _held.pop(staging.job, None)
    staging.remove()


def resumed_key(staging: Staging, passphrase: str | None) -> NoiseKey:
    """Return the key of an unfinished job: kept by this process, or sealed in its folder."""
    if staging.job in _held:
        return _held[staging.job]
    box = staging.get(KEY)
    if box is None:
        fix = "Throw it away with discard_job (--discard), and run it anew."
        got = Described("one whose key is gone")
        raise invalid(OWNER, "resume", "be a job whose key was kept or sealed", got=got, fix=fix)
    if passphrase is None:
        fix = "It was given when the job was begun."
        raise invalid(OWNER, "passphrase", "open the key of the job", got=None, fix=fix)
    return opened(box, passphrase, about=staging.job.encode())


def _begin(job: Job) -> None:
    """Note what the job is, and seal its key; a job that is taken up must be the same."""
    noted = job.staging.get(JOB)
    if noted is None:
        if job.passphrase is not None:
            box = sealed(job.key, check_passphrase(job.passphrase), about=job.staging.job.encode())
            job.staging.put(KEY, box)
        job.staging.put(JOB, {"format": "labeldp job", "identity": job.identity(), "ledger_entry": None})
    elif noted["identity"] != job.identity():
        got = Described("another table, label, budget or prior")
        fix = "Give the options of the first run, on the same table; or throw it away (--discard)."
        raise invalid(OWNER, "resume", "be the same job as before", got=got, fix=fix)


def _entry(job: Job) -> int | None:
    """Return the job's entry in the ledger: the one it has, or a new one. The ledger is asked, not the job's note."""
    noted = job.staging.get(JOB)
    name = f"job {job.staging.job}"
    entry: int | None = noted["ledger_entry"]
    if job.ledger is not None:
        entry = next((int(one.id) for one in job.ledger.entries() if getattr(one, "note", "") == name), None)
    if entry is None:
        entry = charged(job.ledger, job.plan, job.rows, row_ids=job.row_ids, seeded=job.key.seeded, note=name)
    job.staging.put(JOB, {**noted, "ledger_entry": entry})
    return entry


def _written(job: Job, *, ledger_entry: int | None) -> float:
    """Draw what is not there yet, then write what all examples share, and the manifest last."""
    response = job.belief.respond(job.rows, job.plan.mechanism, spent=job.plan.spent, key=job.key)
    head = _head(job, response, ledger_entry)
    pieces = job.rows.pieces()
    there = [job.staging.kept(piece.spans[0], rows=piece.count) for piece in pieces]
    missing = [piece for piece, one in zip(pieces, there, strict=True) if one is None]
    randomizer = Randomizer.of(response, promise=job.plan.mechanism.guarantee, rows=job.rows)
    writer = Writer(randomizer=randomizer, staging=job.staging, size=job.batch_rows)
    new = job.engine.write(writer, missing, key=job.key, progress=job.progress)
    done: list[Written] = sorted([*new, *(one for one in there if one is not None)], key=lambda one: one.number)
    _write_manifest(job, head, done)
    return math.fsum(one.accuracy for one in done) / job.rows.count


def _write_manifest(job: Job, head: Release, done: list[Written]) -> None:
    names = [one.name for one in done]
    files = {**{one.name: one.facts for one in done}, **write_shared(head, job.staging.release)}
    count, label = job.rows.count, job.rows.label
    write_manifest(head, job.staging.release, files=files, n_examples=count, label_column=label, label_files=names)


def _head(job: Job, response: Response, ledger_entry: int | None) -> Release:
    """Return the release without its examples: what the manifest and the shared files are written from."""
    channel = response.shared.take(slice(0, 0))
    return Release(
        codes=np.empty(0, code_dtype(channel.n_outputs)),
        classes=job.rows.classes,
        channel=channel,
        guarantee=job.plan.promise,
        mechanism=job.plan.words,
        seeded=job.key.seeded,
        label_set=job.plan.label_set,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=ledger_entry,
        prior=response.prior,
    )


@contextlib.contextmanager
def _cleared(job: Job, target: Place, charges: list[int | None]) -> Iterator[None]:
    """Remove the hidden folder at the end, or keep it if the job may be taken up again, and say which."""
    kept = False
    try:
        yield
    except OSError as error:
        kept = _kept(job)
        text = f"{OWNER}: could not write {target}: {error.strerror or error}."
        raise LabelDPError(text + _verdict(job, charges[0], kept=kept, lost=" Nothing was kept.")) from error
    except LabelDPError as error:
        kept = _kept(job)
        raise type(error)(f"{error}{_verdict(job, charges[0], kept=kept, lost='')}") from error
    except BaseException:
        kept = _kept(job)
        raise
    finally:
        if not kept:
            _held.pop(job.staging.job, None)
            job.staging.remove()


def _kept(job: Job) -> bool:
    """Keep the key of a job that has begun, if that was asked for."""
    if not job.keep or job.staging.get(JOB) is None:
        return False
    _held[job.staging.job] = job.key
    return True


def _verdict(job: Job, entry: int | None, *, kept: bool, lost: str) -> str:
    """Say what is left of a job that failed."""
    if kept:
        paid = "" if entry is None else f" Entry {entry} of the ledger covers it: taking it up again is not charged."
        place = job.staging.place
        return f" The unfinished job is kept in {place}: take it up with resume (--resume) or discard it (--discard).{paid}"
    if entry is None:
        return lost
    return f"{lost} Entry {entry} of the ledger stays: noise may have been drawn, and a new run is charged anew."
