"""What a study is, and what it leaves behind: rows of paper / ours / difference, with seeds, spread, trust and facts.

>>> row = StudyRow(table="mnist", setting="LP-1ST", epsilon=1.0, trust="no one", values=(95.0, 96.0), paper=95.34)
>>> row.mean, round(row.spread, 3), row.n_seeds, round(row.difference, 2)
(95.5, 0.707, 2, 0.16)

Design notes. Results are plain values that survive JSON, so that a page can be made again from a committed file without
running anything. Every study draws its noise from seeds: its numbers can be repeated, and none of its releases is private.
"""

from __future__ import annotations

import abc
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

from labeldp.errors import LabelDPError
from labeldp.report import Plot
from studies.kept import Kept

#: (share done in [0, 1], what is being done)
Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One setting: its true total epsilon, whom it trusts, one value per seed, and the paper's value if it has one.

    `expected` is the exact expectation of the values, where it can be computed without drawing. `spread` is the standard deviation over seeds (n - 1 in the denominator); it is 0 for one seed, where there is none.
    """

    table: str
    setting: str
    epsilon: float
    trust: str
    values: tuple[float, ...]
    paper: float | None = None
    expected: float | None = None
    note: str = ""

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
    def difference(self) -> float | None:
        """Ours minus the paper's, where the paper has a value."""
        return None if self.paper is None else self.mean - self.paper


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

    def tables(self) -> tuple[str, ...]:
        """The tables that the rows belong to, in order."""
        return tuple(dict.fromkeys(row.table for row in self.rows))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; infinite epsilon is the text "inf", since JSON has no infinity."""
        rows = []
        for row in self.rows:
            epsilon = row.epsilon if math.isfinite(row.epsilon) else "inf"
            derived = {"mean": row.mean, "spread": row.spread, "n_seeds": row.n_seeds, "difference": row.difference}
            rows.append({**asdict(row), "epsilon": epsilon, "values": list(row.values), **derived})
        plain = {"name": self.name, "title": self.title, "paper": self.paper, "measure": self.measure}
        return {
            **plain,
            "seeded": self.seeded,
            "findings": list(self.findings),
            "facts": dict(self.facts),
            "rows": rows,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StudyResult:
        """Return the result that `to_json` wrote."""
        try:
            rows = tuple(_row(cells) for cells in data["rows"])
            return cls(
                name=str(data["name"]),
                title=str(data["title"]),
                paper=str(data["paper"]),
                measure=str(data["measure"]),
                rows=rows,
                findings=tuple(str(text) for text in data["findings"]),
                facts=dict(data["facts"]),
                seeded=bool(data["seeded"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LabelDPError(
                f"StudyResult: this is not the JSON of a study ({error!r}). Run the study again."
            ) from None


def _row(cells: Mapping[str, Any]) -> StudyRow:
    return StudyRow(
        table=str(cells["table"]),
        setting=str(cells["setting"]),
        epsilon=float(cells["epsilon"]),
        trust=str(cells["trust"]),
        values=tuple(float(value) for value in cells["values"]),
        paper=_optional(cells["paper"]),
        expected=_optional(cells.get("expected")),
        note=str(cells["note"]),
    )


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def read_result(path: str | Path) -> StudyResult:
    """Return the result in a `result.json`, for instance a committed one."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabelDPError(f"StudyResult: cannot read {path}: {error}") from None
    return StudyResult.from_json(data)


class Study(abc.ABC):
    """A named experiment. A subclass states its facts and says how to run it and how to draw it.

    What a long one measures goes through `kept`, so that a run that was killed does not start again from nothing.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    measure: ClassVar[str]
    default_seeds: ClassVar[int] = 5
    quick_seeds: ClassVar[int] = 2

    def __init__(self, *, kept: Kept | None = None) -> None:
        self.kept = Kept() if kept is None else kept

    @abc.abstractmethod
    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Run it: `quick` is a small version that only shows that it runs; `seeds` is how many, 0 .. seeds - 1."""

    @abc.abstractmethod
    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """Return the plots of a result."""

    def seed_list(self, *, quick: bool, seeds: int | None) -> tuple[int, ...]:
        """Return the seeds to use."""
        count = seeds if seeds is not None else (self.quick_seeds if quick else self.default_seeds)
        return tuple(range(count))


def quiet(_share: float, _text: str) -> None:
    """A progress that says nothing."""
