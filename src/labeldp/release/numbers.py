"""Numbers as labels: a column of amounts, durations or counts, checked and clipped to public bounds.

>>> read_numbers([1, 2.5, 99], (0, 10), outside="clip").tolist()
[1.0, 2.5, 10.0]

The bounds are public. They are never read off the labels: the largest income of a table is somebody's. A number outside is
brought to the nearest bound ("clip"), or the column is refused ("refuse"); a refusal names the row and not the number, is
seen by whoever runs the code, and is not covered by any noise. How many were clipped is not said: it is a count of labels.

| column | what happens |
|---|---|
| integers, floats of any width, decimals, fractions | taken as float64: 53 bits, about 16 digits |
| missing (NaN, None, NA), infinite | refused, with the row |
| booleans, text, complex numbers, other objects | refused: classes are given with `classes=` |
| dates, times, durations | refused: subtract a public date and divide by a unit first |
| numbers beyond float64 | refused, with the row |
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from numbers import Rational
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Array, Float64s
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_choice

OWNER = "labels"
OUTSIDE = ("clip", "refuse")
DATES = (
    "Subtract a public date and divide by a unit, (y - start) / numpy.timedelta64(1, 'D'), to have a number of days."
)


class Asked(NamedTuple):
    """Who asks for numbers, what she calls them, and what one of them stands in: the words of a refusal."""

    owner: str = OWNER
    name: str = "labels"
    place: str = "row"
    must: str = "be numbers, where bounds are given"
    fix: str = "For classes leave out bounds, and pass classes=."
    rows: Any = None  # which row of a table each number stands in, where that is not its position
    where: str = ""

    def say_place(self, at: int) -> str:
        """Return where the number at this position stands."""
        return f"{self.place} {at if self.rows is None else int(self.rows[at])}{self.where}"

    def refuse(self, got: str, fix: str = "", *, must: str = "") -> LabelDPError:
        """Return the error."""
        return invalid(self.owner, self.name, must or self.must, got=Described(got), fix=fix)


def read_numbers(
    plain: Any,
    bounds: tuple[float, float],
    *,
    outside: str,
    asked: Asked = Asked(),  # noqa: B008 - a value
) -> Float64s:
    """Return a new vector of numbers within the bounds, or say which row is at fault and never what it holds.

    `plain` is a vector of NumPy, or a sequence; `bounds` were checked.
    """
    check_choice(asked.owner, "outside", outside, OUTSIDE)
    numbers = read_finite(plain, asked)
    low, high = bounds
    if len(numbers) and (numbers.min() < low or numbers.max() > high):
        if outside == "refuse":
            at = int(np.argmax((numbers < low) | (numbers > high)))
            fix = 'Widen the public bounds, or let outside="clip" bring such numbers to the nearest bound.'
            raise asked.refuse(f"another one in {asked.say_place(at)}", fix, must="be within bounds")
        np.clip(numbers, low, high, out=numbers)
    return numbers


def read_finite(plain: Any, asked: Asked) -> Float64s:
    """Return a new vector of finite numbers, wherever they lie.

    >>> read_finite([2, 99], Asked("example", "sums")).tolist()
    [2.0, 99.0]
    """
    column = np.asarray(plain)
    if column.ndim != 1:
        raise asked.refuse(f"an array of shape {column.shape}", must="be one number per example")
    numbers = _as_floats(column, asked)
    # NaN, if there is one, comes out of both.
    if len(numbers) and not (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):
        at = int(np.argmin(np.isfinite(numbers)))
        fix = "Drop such rows, or fill them from what is public: a bound is a number like any other."
        raise asked.refuse(f"a missing or infinite number in {asked.say_place(at)}", fix, must="be finite")
    return numbers


def say_bounds(bounds: tuple[float, float]) -> str:
    """Return public bounds in words.

    >>> say_bounds((0.0, 1e5)), say_bounds((0.1234567891, 2.0))
    ('0, 100000', '0.1234567891, 2')
    """
    return ", ".join(f"{bound:g}" if float(f"{bound:g}") == bound else repr(bound) for bound in bounds)


def say_number(value: float) -> str:
    """Return a number for people: four digits, or all before the point.

    >>> say_number(0.123456), say_number(2213.4), say_number(50010.2)
    ('0.1235', '2,213', '50,010')
    """
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _as_floats(column: Array, asked: Asked) -> Float64s:
    """Return a copy as float64; what is no number is refused."""
    if column.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            return column.astype(np.float64)
    if column.dtype.kind in "mM":
        raise asked.refuse("dates or durations", DATES)
    if column.dtype != object:
        kind = {"b": "booleans", "c": "complex numbers", "U": "text", "S": "text", "T": "text"}.get(column.dtype.kind)
        raise asked.refuse(kind or f"dtype {column.dtype}", asked.fix)
    numbers = np.empty(len(column), np.float64)
    for at, value in enumerate(column.tolist()):
        numbers[at] = _as_float(value, at, asked)
    return numbers


def _as_float(value: Any, at: int, asked: Asked) -> float:
    """Return one object as a float: an int, a float, a decimal or a fraction; NaN for what stands for nothing."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return np.nan
    if isinstance(value, (dt.date, dt.time, dt.timedelta)):
        raise asked.refuse(f"dates or durations, the first in {asked.say_place(at)}", DATES)
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (float, Rational, Decimal, np.integer, np.floating)
    ):
        kind = {str: "text", bool: "a boolean"}.get(type(value), "something else")
        raise asked.refuse(f"{kind} in {asked.say_place(at)}", asked.fix)
    try:
        return float(value)
    except (OverflowError, ValueError):  # a signalling NaN of decimal, an int of 400 digits
        raise asked.refuse(f"a number beyond float64 in {asked.say_place(at)}", must="be finite numbers") from None
