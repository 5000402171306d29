"""What a report is made of: sections of text, tables, facts and plots, all plain values.

>>> Table(caption="Two numbers", columns=("setting", "accuracy"), rows=(("plain", "79.0"),)).columns
('setting', 'accuracy')
>>> Section(title="Result", blocks=("One sentence.",)).anchor
'result'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from labeldp.errors import Described, invalid


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a caption; the first column names its row. Columns listed in `numeric` are aligned to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                got = Described(f"{len(row)} cells in row {number}")
                raise invalid("Table", "rows", f"have {len(self.columns)} cells each", got=got)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of a name and what it is, shown as a description list."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a plot: points in order of x; `spreads`, if any, are drawn as bars around them."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.spreads and len(self.spreads) != len(self.x)):
            got = Described(f"{len(self.x)} x, {len(self.y)} y and {len(self.spreads)} spreads")
            raise invalid(f"Series {self.name}", "x", "have as many values as y (and spreads)", got=got)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over x. `references` are horizontal lines with a name (no privacy, chance); `alt` says it all in words."""

    title: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    alt: str
    x_log: bool = False
    references: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Horizontal bars from zero, one per label, with their spread."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
    x_title: str
    alt: str
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.values) or (self.spreads and len(self.spreads) != len(self.values)):
            got = Described(f"{len(self.labels)} labels, {len(self.values)} values and {len(self.spreads)} spreads")
            raise invalid("Bars", "values", "have one value per label", got=got)


Plot = Lines | Bars
Block = str | Table | Facts | Lines | Bars


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it; a text block is one paragraph."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """The heading as the last part of a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"
