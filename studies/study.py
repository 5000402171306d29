"""The template of a study: a class with `cases`, `run_case`, `findings` and `plots`; everything else is done here.

A study repeats an experiment of a paper. It lists cases (a data set, a mechanism, an epsilon), measures each case with
each seed, and says in words and in plots what the rows show. This module loops over cases and seeds, reports progress,
keeps what was measured if the run is killed, and puts together a `StudyResult` that survives JSON.

>>> from dataclasses import dataclass
>>> from labeldp import RandomizedResponse
>>> @dataclass(frozen=True)
... class Budget:
...     epsilon: float
...
...     @property
...     def name(self) -> str:
...         return f"epsilon {self.epsilon:g}"
>>> class Kept10(Study[Budget]):
...     name, title, paper, measure = "kept-10", "How often is a label kept?", "Warner (1965)", "labels kept, %"
...
...     def cases(self):
...         return [Budget(1.0), Budget(2.0)]
...
...     def run_case(self, case, seed):
...         channel = RandomizedResponse(case.epsilon, n_classes=10).channel()
...         kept = 100 * float(channel.likelihood([0])[0, 0])
...         return [
...             Measurement(table="ten classes", setting=case.name, epsilon=case.epsilon, trust="no one", value=kept)
...         ]
...
...     def findings(self, rows):
...         return (f"At epsilon {rows[0].epsilon:g}, {rows[0].mean:.1f}% are kept.",)
...
...     def plots(self, rows):
...         return ()
>>> Kept10().run(seeds=2).findings
('At epsilon 1, 23.2% are kept.',)

To add a study, copy the shortest one (`prior_response.py`), and give it a line in `STUDIES` (`run.py`).

Design notes. Every study draws its noise from seeds: its numbers can be repeated, and none of its releases is private. A
measurement depends on its case and its seed alone, so that neither the order of the loop, nor threads, nor a run in two
halves changes a number. Results are plain values: a page can be made again from a committed file without running
anything.
"""

from __future__ import annotations

import abc
import json
import math
import os
import platform
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

import labeldp
from labeldp.errors import LabelDPError
from labeldp.report import Plot

#: (share done in [0, 1], what is being done)
Progress = Callable[[float, str], None]
Arrays = dict[str, npt.NDArray[Any]]
#: The packages, besides labeldp, whose version can change a number.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
#: How words and plots fail whose rows are not there: by name, by number, the first of none, a generator's first of none.
NEEDS_ALL_ROWS = (LookupError, ValueError, StopIteration, RuntimeError)


# ------------------------------------------------------------------------------------------------ what is measured


class Case(Protocol):
    """What `run_case` measures. The name is unique within a study: progress shows it, and measurements are kept under it."""

    @property
    def name(self) -> str:
        """A few words."""
        ...


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number of one case with one seed.

    `table` and `setting` say where it stands; `epsilon` is the true total for one label, and `trust` whom its owner must
    trust. `paper` is the paper's value, `expected` the exact expectation without drawing, where there is one. `note` may
    name entries of `details` in braces: of numbers it shows the mean over the seeds, of words all, one after another
    (``note="{seconds:.0f} CPU s a fit", details={"seconds": 2.1}``).
    """

    table: str
    setting: str
    epsilon: float
    trust: str
    value: float
    paper: float | None = None
    expected: float | None = None
    note: str = ""
    details: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One setting: its true total epsilon, whom it trusts, one value per seed, and the paper's value if it has one.

    `expected` is the exact expectation of the values, where it can be computed without drawing. `spread` is the standard
    deviation over seeds (n - 1 in the denominator); it is 0 for one seed, where there is none.

    >>> row = StudyRow(table="mnist", setting="LP-1ST", epsilon=1.0, trust="no one", values=(95.0, 96.0), paper=95.34)
    >>> row.mean, round(row.spread, 3), row.n_seeds, round(row.difference, 2)
    (95.5, 0.707, 2, 0.16)
    """

    table: str
    setting: str
    epsilon: float
    trust: str
    values: tuple[float, ...]
    paper: float | None = None
    expected: float | None = None
    note: str = ""

    @classmethod
    def of(cls, seeds: Sequence[Measurement]) -> StudyRow:
        """Join the measurements of one setting with several seeds; the epsilon is the largest that any of them states."""
        first = seeds[0]
        details = {name: _join_details([one.details[name] for one in seeds]) for name in first.details}
        return cls(
            table=first.table,
            setting=first.setting,
            epsilon=max(one.epsilon for one in seeds),
            trust=first.trust,
            values=tuple(one.value for one in seeds),
            paper=first.paper,
            expected=first.expected,
            note=first.note.format(**details) if details else first.note,
        )

    @classmethod
    def from_json(cls, cells: Mapping[str, Any]) -> StudyRow:
        """Return the row of a `result.json`."""
        return cls(
            table=str(cells["table"]),
            setting=str(cells["setting"]),
            epsilon=float(cells["epsilon"]),
            trust=str(cells["trust"]),
            values=tuple(float(value) for value in cells["values"]),
            paper=_optional(cells["paper"]),
            expected=_optional(cells.get("expected")),
            note=str(cells["note"]),
        )

    @property
    def mean(self) -> float:
        """Ours: the mean over seeds."""
        return fmean(self.values)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def n_seeds(self) -> int:
        """How many seeds."""
        return len(self.values)

    @property
    def promise(self) -> str:
        """Whom it trusts and at which delta (which the note states): rows whose promises differ are not compared.

        >>> StudyRow(
        ...     table="t", setting="s", epsilon=1.0, trust="a curator", values=(1.0,), note="delta 1e-05; 2 s"
        ... ).promise
        'trusts a curator, delta 1e-05'
        """
        delta = re.search(r"\bdelta ([^;]+)", self.note)
        return f"trusts {self.trust}, " + (f"delta {delta[1].strip()}" if delta else "pure")

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where the paper has a value."""
        return None if self.paper is None else self.mean - self.paper


def _join_details(values: Sequence[float | str]) -> float | str:
    numbers = [value for value in values if not isinstance(value, str)]
    return fmean(numbers) if numbers else ", ".join(str(value) for value in values)


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def list_tables(rows: Iterable[StudyRow]) -> tuple[str, ...]:
    """Return the tables that rows belong to, in the order in which they are first seen."""
    return tuple(dict.fromkeys(row.table for row in rows))


# --------------------------------------------------------------------------------------------------- the template

C = TypeVar("C", bound=Case)


class Study(abc.ABC, Generic[C]):
    """An experiment with a name. A subclass states what it is, lists its cases and says how to run one of them.

    `quick` asks for a small version that only shows that it runs; `directory` is the folder of data sets (None: the
    environment variable LABELDP_DATA); `kept` is where measurements wait until the run has ended. Data that several
    cases share is read once and held by the study (`functools.cached_property`, or in `cases`).

    Class attributes: `name`, `title`, `paper` and `measure` are shown on the page; `needs` says which data and extras
    a run needs; `default_seeds` and `quick_seeds` are how many seeds there are unless the caller says it; `workers`
    above 1 measures in as many threads, for cases whose arithmetic releases the interpreter's lock.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    measure: ClassVar[str]
    needs: ClassVar[str] = "nothing"
    default_seeds: ClassVar[int] = 5
    quick_seeds: ClassVar[int] = 2
    workers: ClassVar[int] = 1

    def __init__(self, *, quick: bool = False, directory: str | Path | None = None, kept: Kept | None = None) -> None:
        self.quick = quick
        self.directory = directory
        self.kept = Kept() if kept is None else kept
        #: The seeds of the run, set when it starts.
        self.seeds: tuple[int, ...] = ()
        self._seeds_given: int | None = None
        #: The facts of the run, set before `findings` is asked: words that need more than rows take it from here.
        self.known: Mapping[str, Any] = {}

    @abc.abstractmethod
    def cases(self) -> Sequence[C]:
        """Return what is to be measured, in the order of the tables. Missing data is an error here, before any work."""

    @abc.abstractmethod
    def run_case(self, case: C, seed: int) -> Sequence[Measurement]:
        """Measure one case with one seed: as many measurements, in the same order, for every seed."""

    @abc.abstractmethod
    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say in sentences what the rows show: read off the rows, never written beforehand."""

    @abc.abstractmethod
    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Draw the rows."""

    def choose_seeds(self, case: C, seeds: Sequence[int]) -> Sequence[int]:
        """Return the seeds of a case: all, unless a study says that fewer are enough for it."""
        return seeds

    def arrange_rows(self, rows: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """Return the rows in the order of the page: as measured, unless a study says otherwise."""
        return rows

    def facts(self) -> dict[str, Any]:
        """Return what a reader must know of this run besides seeds, versions and time. Called after the last case."""
        return {}

    def measure_part(self, only: str, *, seeds: int | None = None, progress: Progress | None = None) -> int:
        """Measure the cases whose name begins with `only`, keep what they gave for a whole run, and return how many there were."""
        self._choose_seeds(seeds)
        cases = [case for case in self.cases() if case.name.startswith(only)]
        self._measure_cases(cases, progress or say_nothing)
        return len(cases)

    def join_measured(self, *, seeds: int | None = None) -> StudyResult:
        """Return the result of what has been measured so far; nothing is measured now, and nothing is written.

        A case has a row as soon as one of its seeds has been measured. The first finding and the fact `not_measured` name what is
        missing; where nothing is, the result is that of a whole run. A study of which nothing has been measured is an error.
        """
        self._choose_seeds(seeds)
        found: dict[str, list[Sequence[Measurement]]] = {}
        missing: list[str] = []
        for case in self.cases():
            mine = {seed: self.kept.find(_key(case, seed)) for seed in self.choose_seeds(case, self.seeds)}
            found[case.name] = [_read_measurements(kept) for kept in mine.values() if kept is not None]
            lacking = [seed for seed, kept in mine.items() if kept is None]
            if lacking:
                missing.append(f"{case.name} ({_name_seeds(lacking)})")
        if not any(found.values()):
            where = "" if self.kept.path is None else f" in {self.kept.path}"
            raise LabelDPError(
                f"study {self.name}: nothing of it by labeldp {labeldp.__version__} is kept{where}. "
                f"Measure something first: python -m studies {self.name} --only CASE, with the same --out-dir."
            )
        option = " --measured" if missing else ""
        return self._make_result(found, seconds=self.kept.seconds, wall=None, missing=missing, option=option)

    def _make_result(
        self,
        found: Mapping[str, Sequence[Sequence[Measurement]]],
        *,
        seconds: float,
        wall: float | None,
        missing: Sequence[str] = (),
        option: str = "",
    ) -> StudyResult:
        """Return rows, words and facts of what each case gave, seed by seed."""
        joined = [StudyRow.of(column) for runs in found.values() for column in zip(*runs, strict=True)]
        rows = tuple(self.arrange_rows(joined))
        said = () if not missing else (_tell_missing(self.name, sum(map(len, found.values())), missing),)
        given = "" if self._seeds_given is None else f" --seeds {self._seeds_given}"
        facts: dict[str, Any] = {
            "command": f"python -m studies {self.name}{' --quick' if self.quick else ''}{given}{option}",
            "quick": self.quick,
            "seeds": list(self.seeds),
            "cpu_seconds": round(seconds, 1),
            "processes": self.kept.parts,
        }
        if wall is not None and self.kept.parts <= 1:  # the clock of one process says nothing of several
            facts["wall_seconds"] = round(wall, 1)
        facts |= {
            "processors": os.cpu_count(),
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "versions": read_versions(),
        }
        if missing:
            facts |= {"partial": True, "not_measured": list(missing)}
        self.known = {**facts, **self.facts()}
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=rows,
            findings=(*said, *self.describe_part(rows)) if missing else self.findings(rows),
            facts=self.known,
        )

    def describe_part(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what some of the rows show; studies of minutes, whose sentences set row beside row, need not be able to."""
        try:
            return self.findings(rows)
        except LabelDPError:  # data or a package that is absent
            raise
        except NEEDS_ALL_ROWS:
            return ("What this study says in words compares rows that are not measured yet: the words come with them.",)

    def draw_part(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Draw some of the rows; nothing where the drawing needs them all."""
        try:
            return self.plots(rows)
        except LabelDPError:
            raise
        except NEEDS_ALL_ROWS:
            return ()

    def _choose_seeds(self, seeds: int | None) -> None:
        self._seeds_given = seeds
        count = seeds if seeds is not None else (self.quick_seeds if self.quick else self.default_seeds)
        self.seeds = tuple(range(count))

    def _measure_cases(self, cases: Sequence[C], tell: Progress) -> dict[str, list[Sequence[Measurement]]]:
        """Return what each case gave, seed by seed, under its name."""
        todo = [(case, seed) for case in cases for seed in self.choose_seeds(case, self.seeds)]
        found: dict[str, list[Sequence[Measurement]]] = {case.name: [] for case in cases}
        for done, ((case, seed), measured) in enumerate(zip(todo, self._measure(todo), strict=True), start=1):
            tell(done / len(todo), f"{case.name}, seed {seed}")
            found[case.name].append(measured)
        return found

    def run(self, *, seeds: int | None = None, progress: Progress | None = None) -> StudyResult:
        """Measure every case with seeds 0 .. `seeds` - 1 and return rows, findings and facts; nothing is written."""
        tell, start = progress or say_nothing, time.perf_counter()
        self._choose_seeds(seeds)
        tell(0.0, "reading")
        found = self._measure_cases(list(self.cases()), tell)
        wall = time.perf_counter() - start
        return self._make_result(found, seconds=self.kept.seconds + self.kept.measure_since(), wall=wall)

    def _measure(self, todo: Sequence[tuple[C, int]]) -> Iterator[Sequence[Measurement]]:
        """Yield what each case with its seed gives, in order; from memory where it was measured before."""

        def measure_one(item: tuple[C, int]) -> Sequence[Measurement]:
            case, seed = item
            return _read_measurements(
                self.kept.get(_key(case, seed), lambda: [asdict(one) for one in self.run_case(case, seed)])
            )

        if self.workers == 1:
            yield from map(measure_one, todo)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(measure_one, todo)


def say_nothing(_share: float, _text: str) -> None:
    """The progress of a caller who does not want any."""


def _key(case: Case, seed: int) -> str:
    """The name under which a case with a seed is kept."""
    return f"{case.name}, seed {seed}"


def _read_measurements(kept: Sequence[Mapping[str, Any]]) -> Sequence[Measurement]:
    return [Measurement(**one) for one in kept]


def _name_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _tell_missing(name: str, done: int, missing: Sequence[str]) -> str:
    """The first sentence of a page that is not whole."""
    return (
        f"A part of the study: {done} runs have been measured, and everything below is of those alone. Not measured yet: "
        f"{'; '.join(missing)}. `python -m studies {name}` with this folder as --out-dir goes on."
    )


def read_versions() -> dict[str, str]:
    """Return the versions of everything that can change a number.

    >>> sorted(read_versions())[:3]
    ['labeldp', 'numba', 'numpy']
    """
    found = {"labeldp": labeldp.__version__, "python": platform.python_version()}
    return dict(sorted({**found, **{package: version(package) for package in PACKAGES}}.items()))


# ----------------------------------------------------------------------------------------------------- the result


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """The rows of a study, what it found in words, and the facts of the run; `page` is where its page was written."""

    name: str
    title: str
    paper: str
    measure: str
    rows: tuple[StudyRow, ...]
    findings: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    page: Path | None = field(default=None, compare=False)

    @property
    def is_partial(self) -> bool:
        """Whether cases or seeds of the study are missing; the fact `not_measured` names them."""
        return bool(self.facts.get("partial"))

    def tables(self) -> tuple[str, ...]:
        """The tables that the rows belong to, in order."""
        return list_tables(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; infinite epsilon is the text "inf", since JSON has no infinity."""
        rows = []
        for row in self.rows:
            epsilon = row.epsilon if math.isfinite(row.epsilon) else "inf"
            derived = {"mean": row.mean, "spread": row.spread, "n_seeds": row.n_seeds, "difference": row.difference}
            rows.append({**asdict(row), "epsilon": epsilon, "values": list(row.values), **derived})
        plain = {"name": self.name, "title": self.title, "paper": self.paper, "measure": self.measure}
        told = {"seeded": self.seeded, "findings": list(self.findings), "facts": dict(self.facts)}
        return {**plain, **told, "rows": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StudyResult:
        """Return the result that `to_json` wrote."""
        try:
            return cls(
                name=str(data["name"]),
                title=str(data["title"]),
                paper=str(data["paper"]),
                measure=str(data["measure"]),
                rows=tuple(StudyRow.from_json(cells) for cells in data["rows"]),
                findings=tuple(str(text) for text in data["findings"]),
                facts=dict(data["facts"]),
                seeded=bool(data["seeded"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LabelDPError(
                f"StudyResult: this is not the JSON of a study ({error!r}). Run the study again."
            ) from None


def read_result(path: str | Path) -> StudyResult:
    """Return the result in a `result.json`, for instance a committed one."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabelDPError(f"StudyResult: cannot read {path}: {error}") from None
    return StudyResult.from_json(data)


# --------------------------------------------------------------------------------------- what a killed run leaves


class Kept:
    """What a run has measured so far, in a file, so that a run that was killed goes on where it stopped.

    Without a path it lasts as long as this object. One line of JSON per measurement, appended when it is known; a line
    cut short by a crash is left out. Lines carry the version of labeldp, and those of another version do not count.

    A line also carries the processor seconds that its process spent since the line before, or since this object was made:
    those of its own measurement, and of what was read for it. They add up (`seconds`), whether processes came one after the
    other or side by side. What a killed process spent on a measurement that it did not end is not in a line; a study that
    can go on in the middle of one says what the earlier attempts took (`add_seconds`).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "partial.jsonl"
    >>> Kept(path).get("a", lambda: {"accuracy": 90.0})
    {'accuracy': 90.0}
    >>> Kept(path).get("a", lambda: {"accuracy": 0.0})  # another run: what was measured stands
    {'accuracy': 90.0}
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        lines = [] if path is None or not path.exists() else _read_lines(path)
        self._known: dict[str, Any] = {line["name"]: line["measured"] for line in lines}
        self._spent = dict(zip((line["name"] for line in lines), _read_seconds(lines), strict=True))
        self._parts = {line["part"] for line in lines if "part" in line}
        self._part = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._mark = time.process_time()

    @property
    def seconds(self) -> float:
        """Processor seconds of all that is kept; what was measured twice, side by side, counts once."""
        return sum(self._spent.values())

    @property
    def parts(self) -> int:
        """How many processes measured what is kept."""
        return len(self._parts)

    def measure_since(self) -> float:
        """Return the processor seconds of this process that are in no line yet."""
        return time.process_time() - self._mark

    def add_seconds(self, seconds: float) -> None:
        """Count what an earlier process spent on the measurement that is being made."""
        with self._lock:
            self._mark -= seconds

    def find(self, name: str) -> Any:
        """Return what is known under a name, or None."""
        return self._known.get(name)

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what is known under a name, or measure it, which gives a JSON value, and keep it."""
        if name not in self._known:
            found = measure()
            with self._lock:
                now = time.process_time()
                self._known[name], self._spent[name], self._mark = found, now - self._mark, now
                self._parts.add(self._part)
                self._append(name)
        return self._known[name]

    def arrays(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return arrays that take long to make, from a file beside the measurements or made now and kept there."""
        if self.path is None:
            return make()
        file = self.path.with_name(f"{self.path.stem}-{name}-{labeldp.__version__}.npz")
        if not file.exists():
            found = make()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            half = file.with_suffix(".half.npz")
            np.savez(half, **found)  # type: ignore[arg-type]  # NumPy's stubs take the names for options
            half.rename(file)  # whole or not at all
            return found
        with np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}

    def forget(self) -> None:
        """Remove the files: the result has been written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            for file in self.path.parent.glob(f"{self.path.stem}-*.npz"):
                file.unlink()

    def _append(self, name: str) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        told = {"version": labeldp.__version__, "name": name, "measured": self._known[name]}
        line = json.dumps({**told, "part": self._part, "spent": round(self._spent[name], 2)})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _read_seconds(lines: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield the processor seconds of each line. Lines of before have those of their process until then: the difference counts."""
    before: dict[str, float] = {}
    for line in lines:
        if "spent" in line or "part" not in line:
            yield float(line.get("spent", 0.0))
        else:
            yield float(line["seconds"]) - before.get(line["part"], 0.0)
            before[line["part"]] = float(line["seconds"])


def _read_lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut short by a crash
        if row["version"] == labeldp.__version__:
            found.append(row)
    return found
