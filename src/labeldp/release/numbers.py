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
from typing import Any

import numpy as np

from labeldp.arrays import Array, Float64s
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_choice

OWNER = "labels"
OUTSIDE = ("clip", "refuse")
DATES = (
    "Subtract a public date and divide by a unit, (y - start) / numpy.timedelta64(1, 'D'), to have a number of days."
)


def read_numbers(plain: Any, bounds: tuple[float, float], *, outside: str) -> Float64s:
    """Return a new vector of numbers within the bounds, or say which row is at fault and never what it holds.

    `plain` is a vector of NumPy, or a sequence; `bounds` were checked.
    """
    check_choice(OWNER, "outside", outside, OUTSIDE)
    column = np.asarray(plain)
    if column.ndim != 1:
        raise invalid(OWNER, "labels", "be one number per example", got=Described(f"an array of shape {column.shape}"))
    numbers = _as_floats(column)
    low, high = bounds
    if not len(numbers):
        return numbers
    least, most = float(numbers.min()), float(numbers.max())  # NaN, if there is one, comes out of both
    if not (np.isfinite(least) and np.isfinite(most)):
        row = int(np.argmin(np.isfinite(numbers)))
        fix = "Drop such rows, or fill them from what is public: a bound is a number like any other."
        raise invalid(
            OWNER, "labels", "be finite", got=Described(f"a missing or infinite number in row {row}"), fix=fix
        )
    if least < low or most > high:
        if outside == "refuse":
            row = int(np.argmax((numbers < low) | (numbers > high)))
            fix = 'Widen the public bounds, or let outside="clip" bring such numbers to the nearest bound.'
            raise invalid(OWNER, "labels", "be within bounds", got=Described(f"another one in row {row}"), fix=fix)
        np.clip(numbers, low, high, out=numbers)
    return numbers


def say_bounds(bounds: tuple[float, float]) -> str:
    """Return public bounds in words.

    >>> say_bounds((0.0, 1e5)), say_bounds((0.1234567891, 2.0))
    ('0, 100000', '0.1234567891, 2')
    """
    return ", ".join(f"{bound:g}" if float(f"{bound:g}") == bound else repr(bound) for bound in bounds)


def _as_floats(column: Array) -> Float64s:
    """Return a copy as float64; what is no number is refused."""
    if column.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            return column.astype(np.float64)
    if column.dtype.kind in "mM":
        raise _refuse(Described("dates or durations"), DATES)
    if column.dtype != object:
        kind = {"b": "booleans", "c": "complex numbers", "U": "text", "S": "text", "T": "text"}.get(column.dtype.kind)
        raise _refuse(Described(kind or f"dtype {column.dtype}"), "For classes leave out bounds, and pass classes=.")
    numbers = np.empty(len(column), np.float64)
    for row, value in enumerate(column.tolist()):
        numbers[row] = _as_float(row, value)
    return numbers


def _as_float(row: int, value: Any) -> float:
    """Return one object as a float: an int, a float, a decimal or a fraction; NaN for what stands for nothing."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return np.nan
    if isinstance(value, (dt.date, dt.time, dt.timedelta)):
        raise _refuse(Described(f"dates or durations, the first in row {row}"), DATES)
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (float, Rational, Decimal, np.integer, np.floating)
    ):
        raise _refuse(Described(f"something else in row {row}"), "For classes leave out bounds, and pass classes=.")
    try:
        return float(value)
    except (OverflowError, ValueError):  # a signalling NaN of decimal, an int of 400 digits
        got = Described(f"a number beyond float64 in row {row}")
        raise invalid(OWNER, "labels", "be finite numbers", got=got) from None


def _refuse(got: Described, fix: str) -> LabelDPError:
    return invalid(OWNER, "labels", "be numbers, where bounds are given", got=got, fix=fix)
