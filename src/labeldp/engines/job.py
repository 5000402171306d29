"""A release from its charge to its name: charged once, drawn into a hidden folder, shown in one step; or taken up again.

Design notes. The order of work is the safety. The key is sealed (if a passphrase was given) before the charge, so that a charge
is never lost for want of its key; the charge carries the job's name, so that a resumed job finds it; noise comes after
it. Drawing again under the same key gives the same labels, so a resumed job is the same release and costs nothing more.

Where a release is made before anyone sees it: a hidden folder beside its target, which can be taken up again.

    .out.partial-<job>/
        job.json      what the job is, and its ledger entry
        key.json      the key, sealed with a passphrase, if one was given
        work/         files being written
        done/         a note for each finished piece: its checksum, its rows
        release/      finished files, in their places; it becomes `out`

Design notes. A piece is written under a name of its own in work/, flushed, and moved to its place: two workers with the same
piece write the same bytes and cannot meet. The release appears by one rename of release/; a worker that was given up for
dead has then no place to move its file to. Behind a URL there is no rename of folders: files are moved one by one and
release.json last, without which no reader takes a folder for a release.

A release's key outside of the process that made it: as task data on its way to a worker, or sealed with a passphrase.

>>> key = NoiseKey.from_seed(7)
>>> CarriedKey.of(key)
<CarriedKey: secret>
>>> opened(sealed(key, "correct horse battery", about=b"job 1"), "correct horse battery", about=b"job 1")
<NoiseKey: secret, seeded>
>>> opened(sealed(key, "correct horse battery", about=b"job 1"), "guess", about=b"job 1")
Traceback (most recent call last):
...
labeldp.errors.PrivacyError: privatize_table: `passphrase` must be that of the job, ...

References: RFC 7914 (scrypt); NIST SP 800-38D (AES-GCM).

Design notes. scrypt with 128 MiB makes each guess of a passphrase dear; AES-GCM tells a wrong one from a right one, and binds
the box to its job. Whoever has the box and the passphrase can undo the noise: it is removed when the job ends. A carried
key pickles, on purpose, and shows nothing: schedulers and workers print the arguments of tasks that fail.

From pieces to files: reading, randomizing and writing at once, each in a thread of its own.

Design notes. The writer is the caller's thread: it reports progress, and an interrupt there stops the others. The
number of batches in memory is fixed by `DEPTH`, and so is the memory, whatever the table's length. Row groups have the same
rows whatever the batches, and one chunk each: the bytes of a file are a function of its rows.

The one function from Arrow batch to Arrow batch: released labels in the place of raw ones. Engines only carry batches.

Design notes. The noise of a row is that of its position under the key, so a batch may be drawn twice, in any order, in any
process, and comes out the same. A `Randomizer` travels: it holds what is public, and is given the key at each call.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from labeldp.data.tables import Place, UrlPath, place_of
from labeldp.engines.beliefs import Belief, Response
from labeldp.engines.engine import Engine, Progress, prefetched
from labeldp.engines.plan import OWNER, Plan
from labeldp.engines.rows import Rows, Span, changed, regrouped, released_column, released_schema
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.random import KEY_BYTES, NoiseKey
from labeldp.release import Release
from labeldp.release.door import draw_part
from labeldp.release.files import (
    GROUP_ROWS,
    MANIFEST,
    LabelsStream,
    as_column,
    file_facts,
    finish_release,
    flush,
    flush_directory,
)
from labeldp.validate import code_dtype

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
            "label": [self.rows.label, self.plan.budget.labels.name, list(self.rows.classes), self.row_ids],
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
        entry = job.plan.budget.charge(job.plan.promise, mechanism=job.plan.words, note=name)
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
    names = {one.name: one.facts for one in done}
    finish_release(head, job.staging.release, label_files=names, n_examples=job.rows.count)
    return math.fsum(one.accuracy for one in done) / job.rows.count


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
        label_set=job.plan.budget.labels.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=ledger_entry,
        prior=response.prior,
        label_column=job.rows.label,
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


JOB, KEY = "job.json", "key.json"


@dataclass(frozen=True, kw_only=True)
class Written:
    """A finished piece: its number, its file in the release with checksum and size, its rows and expected true labels."""

    number: int
    name: str
    facts: dict[str, Any]
    rows: int
    accuracy: float


@dataclass(frozen=True)
class Staging:
    """The hidden folder of one job."""

    place: Place

    @classmethod
    def beside(cls, target: Place, *, job: str) -> Staging:
        """Return the staging area of a new job, not made yet."""
        return cls(target.parent / f".{target.name}.partial-{job}")

    @property
    def job(self) -> str:
        """The job's random name."""
        return self.place.name.rpartition("-")[2]

    @property
    def work(self) -> Place:
        """Where files are written."""
        return self.place / "work"

    @property
    def release(self) -> Place:
        """What will be the release."""
        return self.place / "release"

    def make(self, names: list[str]) -> None:
        """Make the folders, those of the files in the release too."""
        folders = {self.work, self.place / "done", self.release, *((self.release / name).parent for name in names)}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)

    def draft(self) -> str:
        """Return a new name in work/."""
        return f"{secrets.token_hex(8)}.parquet"

    def keep(self, span: Span, draft: str, *, facts: dict[str, Any], rows: int, accuracy: float) -> Written:
        """Move a finished file to its place, and note that it is there."""
        _move(self.work / draft, self.release / span.name)
        note: dict[str, Any] = {"name": span.name, "facts": facts, "rows": rows, "accuracy": accuracy}
        self.put(f"done/{span.number}.json", note)
        return Written(number=span.number, **note)

    def kept(self, span: Span, *, rows: int) -> Written | None:
        """Return what an earlier run finished of a span, if it is still whole."""
        note = self.get(f"done/{span.number}.json")
        if note is None or note["name"] != span.name or note["rows"] != rows:
            return None
        path = self.release / span.name
        if not path.is_file() or file_facts(path) != note["facts"]:
            return None
        return Written(number=span.number, **note)

    def put(self, name: str, value: dict[str, Any]) -> None:
        """Write a small JSON file, at once or not at all."""
        draft = self.work / f"{secrets.token_hex(8)}.json"
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(value, handle)
            flush(handle)
        _move(draft, self.place / name)

    def get(self, name: str) -> Any:
        """Read a small JSON file; None if it is not there."""
        path = self.place / name
        return json.loads(path.read_bytes()) if path.is_file() else None

    def publish(self, target: Place) -> None:
        """Give the release its name: the one step that makes it visible."""
        if isinstance(self.release, Path) and isinstance(target, Path):
            for folder in {path.parent for path in self.release.rglob("*")}:
                flush_directory(folder)
            self.release.rename(target)
            flush_directory(target.parent)
            return
        assert isinstance(self.release, UrlPath)  # staging lies beside its target
        files = sorted(self.release.files(), key=lambda path: path.name == MANIFEST and path.parent == self.release)
        for path in files:
            place = target
            for name in path.parts[len(self.release.parts) :]:
                place = place / name
            _move(path, place)

    def remove(self) -> None:
        """Throw everything away that is not visible."""
        if isinstance(self.place, UrlPath):
            self.place.remove()
        else:
            shutil.rmtree(self.place, ignore_errors=True)


def staging_at(directory: Place) -> Staging:
    """Return the staging area of an unfinished job."""
    staging = Staging(directory)
    if ".partial-" not in directory.name or staging.get(JOB) is None:
        fix = "It is called .NAME.partial-..., beside the release's NAME; the error of the failed run names it."
        raise invalid(OWNER, "resume", "be the folder of an unfinished job", got=str(directory), fix=fix)
    return staging


def _move(path: Any, target: Any) -> None:
    if isinstance(target, UrlPath):
        target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)


#: scrypt's cost: 128 * R * N = 128 MiB and some 0.3 s a guess.
N, R, P = 2**17, 8, 1
SALT_BYTES, NONCE_BYTES = 16, 12
LEAST_PASSPHRASE = 12


class CarriedKey:
    """A key as data of a task. It pickles, since that is what it is for; it shows nothing."""

    __slots__ = ("_secret", "_seeded")

    def __init__(self, secret: bytes, seeded: bool) -> None:  # noqa: FBT001 - pickle calls it by position
        self._secret, self._seeded = secret, seeded

    @classmethod
    def of(cls, key: NoiseKey) -> CarriedKey:
        """Return a key to be carried."""
        return cls(key.reveal(), key.seeded)

    def key(self) -> NoiseKey:
        """Return the key, where it has arrived."""
        return NoiseKey(self._secret, seeded=self._seeded)

    def __repr__(self) -> str:
        return "<CarriedKey: secret>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CarriedKey, (self._secret, self._seeded)


def check_passphrase(passphrase: Any) -> str:
    """Return a passphrase that is worth sealing with."""
    if not isinstance(passphrase, str) or len(passphrase) < LEAST_PASSPHRASE:
        got = Described("one that is shorter" if isinstance(passphrase, str) else type(passphrase).__name__)
        fix = "Whoever guesses it can undo the noise of an unfinished job."
        must = f"be a text of {LEAST_PASSPHRASE} characters or more"
        raise invalid("privatize_table", "passphrase", must, got=got, fix=fix)
    return passphrase


def sealed(key: NoiseKey, passphrase: str, *, about: bytes) -> dict[str, Any]:
    """Return a box, as JSON, that opens with the passphrase and for this job only."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    box = AESGCM(_stretched(passphrase, salt)).encrypt(nonce, bytes([key.seeded]) + key.reveal(), about)
    return {"kdf": "scrypt", "n": N, "r": R, "p": P, "salt": salt.hex(), "nonce": nonce.hex(), "box": box.hex()}


def opened(box: dict[str, Any], passphrase: str, *, about: bytes) -> NoiseKey:
    """Return the key of a box."""
    try:
        salt, nonce = bytes.fromhex(box["salt"]), bytes.fromhex(box["nonce"])
        plain = AESGCM(_stretched(passphrase, salt)).decrypt(nonce, bytes.fromhex(box["box"]), about)
    except (InvalidTag, KeyError, TypeError, ValueError) as error:
        fix = "Try again, or throw the job away (--discard)."
        got = Described("one that does not open its key")
        raise invalid(
            "privatize_table", "passphrase", "be that of the job", got=got, fix=fix, kind=PrivacyError
        ) from error
    return NoiseKey(plain[1:], seeded=bool(plain[0]))


def _stretched(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, n=N, r=R, p=P).derive(passphrase.encode("utf-8", "surrogatepass"))


#: Batches that wait between two steps: with the one that each step holds, some eight are in memory.
DEPTH = 2


class Done(NamedTuple):
    """A released batch of a span, and how many of its labels are expected to be true."""

    span: int
    batch: Any
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Draws pieces and writes each to its staged file. It travels to workers; the key does not travel with it."""

    randomizer: Randomizer
    staging: Staging
    size: int

    def write(self, pieces: Sequence[Rows], *, key: NoiseKey, progress: Progress | None = None) -> Iterator[Written]:
        """Yield what was written, piece after piece; `progress` hears of every batch."""
        told = _Told(progress, total=sum(piece.count for piece in pieces))
        by_number = {piece.spans[0].number: piece for piece in pieces}
        drawn = prefetched(self._drawn(pieces, key), depth=DEPTH)
        try:
            for number, batches in itertools.groupby(drawn, key=lambda done: done.span):
                yield self._file(by_number[number], batches, told)
        finally:
            drawn.close()  # type: ignore[attr-defined]  # a generator: its threads end with it

    def _drawn(self, pieces: Sequence[Rows], key: NoiseKey) -> Iterator[Done]:
        for piece, start, batch in prefetched(_read(pieces, self.size), depth=DEPTH):
            number = piece.spans[0].number
            if batch is None:
                yield Done(number, self.randomizer.empty(), 0.0)
            else:
                yield Done(number, *self.randomizer(batch, rows=piece, start=start, key=key))

    def _file(self, piece: Rows, batches: Iterable[Done], told: _Told) -> Written:
        """Write one piece's batches, and check that there were as many rows as were counted."""
        stream = LabelsStream(self.staging.work, self.randomizer.schema, name=(draft := self.staging.draft()))
        rows, accuracy = 0, 0.0

        def taken() -> Iterator[Any]:
            nonlocal rows, accuracy
            for done in batches:
                rows, accuracy = rows + done.batch.num_rows, accuracy + done.accuracy
                yield done.batch
                told(done.batch.num_rows)

        try:
            for group in regrouped(taken(), GROUP_ROWS):
                stream.write(group)
            facts = stream.close()
        except BaseException:
            stream.abandon()
            raise
        if rows != piece.count:
            raise changed(piece.source)
        return self.staging.keep(piece.spans[0], draft, facts=facts, rows=rows, accuracy=accuracy)


class _Told:
    """Adds up what was written, for whoever wants to know."""

    def __init__(self, progress: Progress | None, *, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None and rows:
            self._progress(self._done, self._total)


def _read(pieces: Sequence[Rows], size: int) -> Iterator[tuple[Rows, int, Any]]:
    """Yield each batch with its piece and its first position; a piece without rows has one batch that is None."""
    for piece in pieces:
        start = piece.first
        if piece.count == 0:
            yield piece, start, None
        for batch in piece.batches(size=size):
            yield piece, start, batch
            start += batch.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomizer:
    """Answers batches by a response, under a promise that every channel is checked against."""

    response: Response
    promise: Guarantee
    schema: Any

    @classmethod
    def of(cls, response: Response, *, promise: Guarantee, rows: Rows) -> Randomizer:
        """Return the randomizer of a table's rows."""
        schema = released_schema(rows.source.schema, label=rows.label, extras=_extras(response))
        return cls(response=response, promise=promise, schema=schema)

    def __call__(self, batch: Any, *, rows: Rows, start: int, key: NoiseKey) -> tuple[Any, float]:
        """Return the released batch of the rows from position `start` on, and its expected number of true labels."""
        channel, accuracy = self.response.answer(batch, start)
        codes = draw_part(rows.labels(batch), channel, promise=self.promise, key=key, start=start)
        return self._replaced(batch, codes, channel, rows, start), accuracy

    def empty(self) -> Any:
        """Return a released batch of no rows."""
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)

    def _replaced(self, batch: Any, codes: Any, channel: Any, rows: Rows, start: int) -> Any:
        """Return the batch with its labels replaced, and what differs from row to row of the channel behind it."""
        place = batch.schema.get_field_index(rows.label)
        columns = batch.columns
        columns[place] = released_column(codes, dtype=self.schema.field(place).type, classes=rows.classes)
        extras = {name: _narrow(array) for name, array in channel.example_arrays().items()}
        if self.response.stage is not None:
            extras["stage"] = self.response.stage(start, batch.num_rows)
        if self.response.prior is not None:  # learned of groups: the row of the channel is that of the prior
            extras["prior_row"] = extras["row"]
        columns += [as_column(array) for array in extras.values()]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _extras(response: Response) -> dict[str, Any]:
    """Return the reserved columns, and their types."""
    arrays = response.shared.example_arrays()
    extras = {name: as_column(_narrow(array)).type for name, array in arrays.items()}
    if response.stage is not None:
        extras["stage"] = pa.uint8()
    return extras if response.prior is None else {**extras, "prior_row": extras["row"]}


def _narrow(array: Any) -> Any:
    """Group numbers in 32 bits: there are never more groups than that."""
    return array.astype(np.int32) if array.dtype == np.int64 else array
