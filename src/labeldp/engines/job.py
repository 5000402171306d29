"""A release from its charge to its name: charged once, drawn into a hidden folder, shown in one step; or taken up again.

    .out.partial-<job>/
        job.json      what the job is, and its ledger entry
        key.json      the key, sealed with a passphrase, if one was given
        work/         files being written
        done/         a note for each finished piece: its checksum, its rows
        release/      finished files, in their places; it becomes `out`

>>> key = NoiseKey.from_seed(7)
>>> CarriedKey.of(key)
<CarriedKey: secret>

**Order.** The key is sealed (if a passphrase was given) before the charge, so that a charge is never lost for want of its key;
the charge carries the job's name, so that a resumed job finds it; noise comes after it. Drawing again under the same key
gives the same labels, so a resumed job is the same release and costs nothing more.

**Staging.** A piece is written under a name of its own in work/, flushed, and moved to its place: two workers with the same
piece write the same bytes and cannot meet. The release appears by one rename of release/; a worker that was given up for
dead has then no place to move its file to. Behind a URL there is no rename of folders: files are moved one by one and
release.json last, without which no reader takes a folder for a release.

**Keys.** A job claims its whole key (`NoiseKey.claim_all`), so that nothing else is drawn from it, and may then draw a row as
often as it must: a task that runs twice, a stage that is learned from and then written. It is the same row, by the same
channel, so it is the same draw. A job that may be taken up again sees to both: it reads the label column once more and notes
its mark, a MAC under the key, and before the first draw it notes the mark of how each row will be answered (its group or its
beliefs, and the channels). A table, a prior or groups that have changed since are refused, whatever they are called: the same
noise through another channel would show where the two answers part. A copy of the folder has a note of its own, and may have been
taken before anything was noted; so the mark is part of the noise's name too, and noisy counts have the noise of their groups. A
copy that answers alike draws the same; one that answers otherwise makes a second release, with noise of its own, which is worth
its epsilon once more and is on no ledger. Seeded jobs protect no one, and have the noise of the seed alone.
`labeldp.release.unfinished` seals the key; the box is removed when the job ends. A carried key pickles, on purpose, and shows
nothing: schedulers and workers print the arguments of tasks that fail.

How rows are drawn and written is the chapter `labeldp.engines.drawing`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.accounting import note_entry, recall_entry
from labeldp.data.places import Place, UrlPath, place_of
from labeldp.engines.drawing import Randomizer, Response, Writer
from labeldp.engines.engine import Engine, Progress
from labeldp.engines.rows import OWNER, Rows, Span
from labeldp.errors import ColumnTypeError, Described, LabelDPError, ReleaseError, invalid, was_interrupted
from labeldp.guarantee import Guarantee
from labeldp.priors import Reader
from labeldp.random import NoiseKey
from labeldp.release import Release
from labeldp.release.budget import Budget
from labeldp.release.manifest import MANIFEST, digest, file_facts
from labeldp.release.persons import AnswerPlan
from labeldp.release.saving import finish_release, flush, flush_directory
from labeldp.release.unfinished import (
    check_passphrase,
    hold,
    is_partial,
    make_private,
    mark,
    mark_labels,
    remove_leftover,
    seal,
    unseal,
    write_private,
)
from labeldp.untrusted import read_json

#: Keys of unfinished jobs that this process keeps, by the job's name: in memory, and nowhere else.
_held: dict[str, NoiseKey] = {}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be released, how, under which key, by which engine, and where it is made.

    `promise` is what is charged to `budget`, and `words` name the mechanism and the prior for people. `respond` is called
    once, after the charge, and gives the response to all batches. `keep` says whether a job that fails can be resumed. `answers`
    says which rows are answered, where a person has answers for some of hers only; it is part of what the job is. `person_column`
    is where their owners' ids stand, and `owners` a digest of who they are, which is part of a job that can be resumed: the ledger was
    charged for them, and for nobody else.
    """

    rows: Rows
    respond: Callable[[], Response]
    promise: Guarantee
    words: str
    budget: Budget
    key: NoiseKey
    size: int
    engine: Engine
    staging: Staging
    progress: Progress | None
    passphrase: str | None
    keep: bool
    answers: AnswerPlan | None = None
    person_column: str | None = None
    owners: str | None = None

    def identity(self) -> str:
        """Return a digest of what is released and how; a resumed job must have the same."""
        facts = {
            "label": [self.rows.label, self.rows.name, list(self.rows.classes), self.rows.row_ids],
            "spans": [[span.name, count] for span, count in zip(self.rows.spans, self.rows.counts, strict=True)],
            "schema": str(self.rows.source.schema),
            "promise": self.promise.to_json(),
            "mechanism": self.words,
            "noise": NOISE,
        }
        if self.rows.bounds is not None:
            facts["numbers"] = [*self.rows.bounds, self.rows.outside]
        if self.answers is not None:  # which rows of whom are asked
            facts["persons"] = [self.answers.digest, self.person_column, self.owners]
        if self.rows.left_out:
            facts["left out"] = sorted(self.rows.left_out)
        if self.rows.source.rewritten is not None:
            facts["rewritten"] = self.rows.source.rewritten.words
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def run(job: Job, target: Place) -> tuple[int | None, float]:
    """Do the job; return the ledger's entry and the expected share of true labels."""
    charges: list[int | None] = [None]
    taken_up = job.staging.place.exists()
    with contextlib.ExitStack() as stack:
        if taken_up:  # refused before anything of it is touched, if another process is at work on it
            stack.enter_context(job.staging.hold())
        stack.enter_context(_clear_after(job, target, charges))
        job.staging.make([span.name for span in job.rows.spans])
        if not taken_up:
            stack.enter_context(job.staging.hold())
        _begin(job)
        charges[0] = _charge_once(job)
        accuracy = _write_all(job, ledger_entry=charges[0])
        job.staging.publish(target)
    return charges[0], accuracy


def discard_job(directory: Any) -> None:
    """Throw an unfinished job away: its folder and its key. What the ledger was charged stays charged.

    Any leftover of ours will do, whenever it was killed (`labeldp.release.unfinished`); one that a process is still at work
    on is refused.
    """
    place = place_of(directory)
    if not is_partial(place.name) or not place.exists():
        raise _refuse_place("directory", place)
    staging = Staging(place)
    _held.pop(staging.job, None)
    if isinstance(place, UrlPath):
        staging.remove()
    elif not remove_leftover(place):
        raise _refuse_use("directory", place)


def find_key(staging: Staging, passphrase: str | None) -> NoiseKey:
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
    return unseal(box, passphrase, about=staging.job.encode(), owner=OWNER)


def _begin(job: Job) -> None:
    """Note what the job is, and seal its key; a job that is taken up must be the same."""
    noted = job.staging.get(JOB)
    labels = _mark_labels(job) if job.keep else None
    if noted is None:
        if job.passphrase is not None:
            box = seal(job.key, check_passphrase(job.passphrase, owner=OWNER), about=job.staging.job.encode())
            job.staging.put(KEY, box)
        job.staging.put(
            JOB, {"format": "labeldp job", "identity": job.identity(), "labels": labels, **note_entry(None)}
        )
    elif noted.get("identity") != job.identity() or noted.get("labels") != labels:
        raise _refuse_change("another table, label, budget or prior")


def _refuse_change(got: str) -> LabelDPError:
    fix = "Give the options of the first run, on the same table; or throw it away (--discard)."
    return invalid(OWNER, "resume", "be the same job as before", got=Described(got), fix=fix)


def _mark_labels(job: Job) -> str:
    """Return a mark of all labels under the job's key: the same noise on other labels would show where they differ."""
    found = dict(job.engine.each(functools.partial(_mark_piece, size=job.size), _carry_key(job)))
    return mark(job.key, *(found[number].encode() for number in range(len(found))))


def _carry_key(job: Job) -> list[tuple[Rows, CarriedKey]]:
    """Return each piece with the key beside it. Inside the work a key would be stored: on a worker's disk, if memory is short."""
    carried = CarriedKey.of(job.key)
    return [(piece, carried) for piece in job.rows.pieces()]


def _mark_piece(item: tuple[Rows, CarriedKey], *, size: int) -> str:
    piece, key = item
    return mark_labels(key.key(), map(piece.labels, piece.batches(columns=[piece.label], size=size)))


def _keep_answers(job: Job, response: Response) -> str:
    """Note the mark of how each row is answered, before the first draw, and return it; a job that is taken up must answer alike.

    It costs a second look at what the prior reads: the groups, or a model's beliefs.
    """
    channel = response.channel
    shared = {**channel.row_arrays(), **(channel.example_arrays() if channel.n_examples is not None else {})}
    facts = [json.dumps(channel.header(), sort_keys=True, default=str).encode()]
    facts += [part for name in sorted(shared) for part in (name.encode(), _bytes_of(shared[name]))]
    if response.reader is not None:
        size = -(-job.size // response.chunk) * response.chunk
        found = dict(
            job.engine.each(functools.partial(_mark_answers, reader=response.reader, size=size), _carry_key(job))
        )
        facts += [found[number].encode() for number in range(len(found))]
    answers = mark(job.key, *facts)
    noted = job.staging.get(JOB) or {}
    if noted.get("answers", answers) != answers:
        raise _refuse_change("another prior, grouping or channel for some row")
    job.staging.put(JOB, {**noted, "answers": answers})
    return answers


def _mark_answers(item: tuple[Rows, CarriedKey], *, reader: Reader, size: int) -> str:
    """Return the mark of what the reader says of each row of a piece, however it is cut into batches."""
    piece, key = item
    digest = hashlib.sha256()
    start = piece.first
    for batch in piece.batches(columns=list(reader.columns) or [piece.label], size=size) if piece.count else ():
        digest.update(_bytes_of(reader.read(batch, slice(start, start + batch.num_rows))))
        start += batch.num_rows
    return mark(key.key(), digest.digest())


def _bytes_of(values: Any) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _charge_once(job: Job) -> int | None:
    """Return the job's entry in the ledger: the one it has, or a new one. The ledger is asked, not the job's note."""
    noted = job.staging.get(JOB) or {}
    entry: int | None = recall_entry(noted) if job.budget.ledger is None else _find_charge(job)
    if entry is None:
        entry = job.budget.charge(job.promise, mechanism=job.words, note=_note_of(job))
    job.staging.put(JOB, {**noted, **note_entry(entry)})
    return entry


def _find_charge(job: Job) -> int | None:
    """Return the entry that the job's ledger has of it, if there is any."""
    return job.budget.find_charge(job.promise, note=_note_of(job))


def _note_of(job: Job) -> str:
    """Return what the charge of a job says in the ledger."""
    return f"job {job.staging.job}"


def _write_all(job: Job, *, ledger_entry: int | None) -> float:
    """Draw what is not there yet, then write what all examples share, and the manifest last.

    Returns the share of labels that are expected to come out true; NaN where outputs are not labels.
    """
    response = job.respond()
    if job.keep:
        answers = _keep_answers(job, response)
        # A copy of the folder has a note of its own, or none yet: other answers must have other noise there.
        response = response if job.key.seeded else dataclasses.replace(response, mark=answers)
    head = _describe_release(job, response, ledger_entry)
    try:
        done = _draw_pieces(job, response)
    except ColumnTypeError:
        # A column of text turned out to be of another type in a row that was not looked at. Labels were all read before the
        # charge, and what a prior reads was too. The same key draws the same labels, so this is the same release.
        source = job.rows.source.retype(keep=[job.rows.label])
        job = dataclasses.replace(job, rows=dataclasses.replace(job.rows, source=source))
        done = _draw_pieces(job, response)
    names = {one.name: one.facts for one in done}
    finish_release(
        head,
        job.staging.release,
        label_files=names,
        n_examples=job.rows.count,
        features=list(job.rows.features),
        stages=None if response.stage is None else TABLE_STAGES,
        answered=None if job.rows.asked is None else job.rows.answered,
    )
    return math.fsum(one.accuracy for one in done) / job.rows.answered


def _draw_pieces(job: Job, response: Response) -> list[Written]:
    """Draw and write the pieces that are not there yet, and return all, in order."""
    pieces = job.rows.pieces()
    there = [job.staging.find_kept(piece.spans[0], rows=piece.count) for piece in pieces]
    missing = [piece for piece, one in zip(pieces, there, strict=True) if one is None]
    size = -(-job.size // response.chunk) * response.chunk  # whole chunks of what reads the prior
    writer = Writer(randomizer=Randomizer.of(response, rows=job.rows), staging=job.staging, size=size)
    new = job.engine.write(writer, missing, key=job.key, progress=job.progress)
    return sorted([*new, *(one for one in there if one is not None)], key=lambda one: one.number)


def _describe_release(job: Job, response: Response, ledger_entry: int | None) -> Release:
    """Return the release without its examples: what the manifest and the shared files are written from."""
    channel = response.channel.take(slice(0, 0)).released()
    return Release(
        codes=channel.empty_codes(0),
        classes=job.rows.classes,
        channel=channel,
        guarantee=job.promise,
        mechanism=job.words,
        seeded=job.key.seeded,
        label_set=str(job.rows.name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=ledger_entry,
        prior=response.prior,
        label_column=job.rows.label,
        person_column=job.person_column,
        label_notes=() if job.rows.source.rewritten is None else tuple(job.rows.source.rewritten.words),
    )


@contextlib.contextmanager
def _clear_after(job: Job, target: Place, charges: list[int | None]) -> Iterator[None]:
    """Remove the hidden folder at the end, or keep it if the job may be taken up again, and say which."""
    settled = False  # whether the folder is as it shall be: removed, or kept
    try:
        yield
        _remove(job)
        settled = True
    except OSError as error:
        settled = kept = _keep_key(job, target)
        text = f"{OWNER}: could not write {target}: {error.strerror or error}."
        left = _say_what_is_left(job, target, charges[0], kept=kept, lost=" Nothing was kept.")
        raise LabelDPError(text + left) from error
    except LabelDPError as error:
        settled = kept = _keep_key(job, target)
        raise type(error)(f"{error}{_say_what_is_left(job, target, charges[0], kept=kept, lost='')}") from error
    except BaseException as error:
        settled = kept = _keep_key(job, target)
        if not was_interrupted(error):
            raise
        entry = _find_charge(job) if charges[0] is None else charges[0]  # it may have come right after the charge
        left = _say_what_is_left(job, target, entry, kept=kept, lost=" Nothing was kept.")
        raise KeyboardInterrupt(f"{OWNER}: interrupted.{left}") from error
    finally:
        if not settled:
            _remove(job)


def _remove(job: Job) -> None:
    job.staging.remove()
    _held.pop(job.staging.job, None)


def _is_published(target: Place) -> bool:
    """Whether the release has its name: a job that fails later has nothing left to do."""
    return (target / MANIFEST).is_file()


def _keep_key(job: Job, target: Place) -> bool:
    """Keep the key of a job that has begun and is not done, if that was asked for."""
    if not job.keep or _is_published(target) or not (job.staging.place / JOB).is_file():
        return False
    _held[job.staging.job] = job.key
    return True


def _say_what_is_left(job: Job, target: Place, entry: int | None, *, kept: bool, lost: str) -> str:
    """Say what is left of a job that failed."""
    if _is_published(target):
        return f" The release was done, and is whole: {target}."
    if kept:
        paid = "" if entry is None else f" Entry {entry} of the ledger covers it: taking it up again is not charged."
        place = job.staging.place
        return f" The unfinished job is kept in {place}: take it up with resume (--resume) or discard it (--discard).{paid}"
    if entry is None:
        return lost
    return f"{lost} Entry {entry} of the ledger stays: noise may have been drawn, and a new run is charged anew."


JOB, KEY = "job.json", "key.json"
#: How noise follows from a job's key. Version 2 has the mark of the answers in it; what version 1 began is not taken up.
NOISE = 2
#: Where a table's labels are drawn in stages, there are two (`labeldp.priors.LearnedPrior`).
TABLE_STAGES = 2


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

    def make(self, names: Sequence[str]) -> None:
        """Make the folders, those of the files in the release too. On this machine the outermost is its owner's alone.

        What is inside has the usual modes, since some of it will be the release: nobody else gets there before.
        """
        if isinstance(self.place, Path) and not self.place.exists():
            make_private(self.place)
        folders = {self.work, self.place / "done", self.release, *((self.release / name).parent for name in names)}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes from taking the job up or away while this one works; behind a URL there are no locks."""
        if isinstance(self.place, UrlPath):
            yield
            return
        with hold(self.place) as free:
            if not free:
                raise _refuse_use("resume", self.place)
            yield

    def draft(self) -> str:
        """Return a new name in work/."""
        return f"{secrets.token_hex(8)}.parquet"

    def keep(self, span: Span, draft: str, *, facts: dict[str, Any], rows: int, accuracy: float) -> Written:
        """Move a finished file to its place, and note that it is there."""
        _move(self.work / draft, self.release / span.name)
        note: dict[str, Any] = {"name": span.name, "facts": facts, "rows": rows}
        # JSON has no NaN, which is the accuracy of outputs that are not labels.
        self.put(f"done/{span.number}.json", {**note, "accuracy": None if math.isnan(accuracy) else accuracy})
        return Written(number=span.number, accuracy=accuracy, **note)

    def find_kept(self, span: Span, *, rows: int) -> Written | None:
        """Return what an earlier run finished of a span, if it is still whole.

        What is damaged counts as absent: it is drawn again under the same key, and comes out the same.
        """
        try:
            note = self.get(f"done/{span.number}.json") or {}
        except ReleaseError:
            return None
        path, share = self.release / span.name, note.get("accuracy")
        if (note.get("name"), note.get("rows")) != (span.name, rows) or not isinstance(share, float | int | None):
            return None
        if (
            (isinstance(path, Path) and path.is_symlink())
            or not path.is_file()
            or file_facts(path) != note.get("facts")
        ):
            return None
        accuracy = math.nan if share is None else float(share)
        return Written(number=span.number, name=span.name, facts=note["facts"], rows=rows, accuracy=accuracy)

    def put(self, name: str, value: dict[str, Any]) -> None:
        """Write a small JSON object with its digest, at once or not at all; on this machine its owner alone may read it."""
        value = {**value, "sha256": digest(value)}
        if isinstance(self.place, Path):
            write_private(self.place / name, value)
            return
        draft = self.work / f"{secrets.token_hex(8)}.json"
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(value, handle)
            flush(handle)
        _move(draft, self.place / name)

    def get(self, name: str) -> dict[str, Any] | None:
        """Read a small JSON object; None if it is not there, and `ReleaseError` if it cannot be read."""
        path = self.place / name
        try:
            found = read_json(path) if path.is_file() else None
        except (OSError, ValueError) as error:
            raise self._refuse_damage(name, str(error)) from error
        if found is None:
            return None
        if not isinstance(found, dict) or found.pop("sha256", None) != digest(found):
            raise self._refuse_damage(name, "it was changed after it was written")
        return found

    def _refuse_damage(self, name: str, reason: str) -> ReleaseError:
        text = f"{OWNER}: {name} of the unfinished job in {self.place} cannot be read: {reason}."
        return ReleaseError(f"{text} Throw the job away with discard_job (--discard), and run it anew.")

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
        raise _refuse_place("resume", directory)
    return staging


def _refuse_place(argument: str, place: Place) -> LabelDPError:
    fix = "It is called .NAME.partial-..., beside the release's NAME; the error of the failed run names it."
    return invalid(OWNER, argument, "be the folder of an unfinished job", got=str(place), fix=fix)


def _refuse_use(argument: str, place: Place) -> LabelDPError:
    fix = "Another process is at work on it: wait for it, or end it first."
    return invalid(OWNER, argument, "be a job that nobody is at work on", got=str(place), fix=fix)


def _move(path: Any, target: Any) -> None:
    if isinstance(target, UrlPath):
        target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)


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
        return NoiseKey.carried(self._secret, seeded=self._seeded)

    def __repr__(self) -> str:
        return "<CarriedKey: secret>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CarriedKey, (self._secret, self._seeded)
