"""COVID-19 cases by state and day: counts of people, for studies of private selection.

>>> from labeldp.data import us_covid
>>> us_covid(directory="no/such/folder")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: load: `directory` must hold us-covid/us-states.csv.gz, got no such file. ...

References: The New York Times, "Coronavirus (Covid-19) Data in the United States",
https://github.com/nytimes/covid-19-data: non-commercial use with attribution, so it is never bundled.

Design notes. No row here has a label of its own, so this is no `Dataset` and `labeldp.data.load` does not know it. A
state that a day's report does not name has no case yet. Reports are corrected later, so that a few totals fall from
one day to the next; new cases are then 0, since a count of people is not negative.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from labeldp.data._files import expect, find, read_bytes, reading
from labeldp.errors import Described, invalid

FILE = "us-states.csv.gz"
COLUMNS = ("date", "state", "fips", "cases", "deaths")

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StateCases:
    """Cases by day and state. `days`: ISO dates, rising; `states`: sorted names; `totals`: cases so far (days, states)."""

    days: tuple[str, ...]
    states: tuple[str, ...]
    totals: Counts

    def __repr__(self) -> str:
        return f"StateCases({len(self.days)} days from {self.days[0]}, {len(self.states)} states)"

    def new(self) -> Counts:
        """Return the new cases of each day; on the first, all so far."""
        first = np.zeros((1, len(self.states)), np.int64)
        changes: Counts = np.diff(self.totals, axis=0, prepend=first)
        return np.maximum(changes, 0)

    def between(self, first_day: str, *, days: int) -> tuple[Counts, Counts]:
        """Return totals and new cases of so many days from `first_day` on."""
        if first_day not in self.days or self.days.index(first_day) + days > len(self.days):
            got = Described(f"{days} days from {first_day}")
            raise invalid("StateCases", "first_day", f"lie in {self.days[0]} to {self.days[-1]}", got=got)
        part = slice(self.days.index(first_day), self.days.index(first_day) + days)
        return self.totals[part], self.new()[part]


def us_covid(directory: str | os.PathLike[str] | None = None) -> StateCases:
    """Read the cases of all states and territories from ``us-covid/us-states.csv`` (or its ``.gz``)."""
    (path,) = find("us-covid", (FILE,), directory=directory)
    with reading(path, "a table of date, state, fips, cases and deaths"):
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)))
        expect(path, "columns", want=COLUMNS, got=tuple(table.column_names))
        day, state = (table[name].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str) for name in COLUMNS[:2])
        cases = table["cases"].to_numpy().astype(np.int64)
        days, row = np.unique(day, return_inverse=True)
        states, column = np.unique(state, return_inverse=True)
        expect(path, "rows for each day and state", want=1, got=int(np.bincount(row * states.size + column).max()))
        totals = np.zeros((days.size, states.size), np.int64)
        totals[row, column] = cases
    return StateCases(days=tuple(days.tolist()), states=tuple(states.tolist()), totals=totals)
