"""Numbers as labels for sums: clipped to public bounds, brought to a public grid, and boxed as codes.

A sum that exact noise is added to is one of integers. So a number y becomes the code k of the grid point nearest to it,
y ~ low + step scores[k], and the door sees codes like those of any other labels: `measure` answers queries that say what a
code counts for (`LabelSums`), and a code's range is all that sensitivity needs.

>>> box = box_on_grid("example", [0, 1, 7], n_rows=3, bounds=(0.0, 2.0), label_set="claims")
>>> box.labels
<SensitiveLabels 'claims': 3 labels of 65537 classes, contents hidden>
>>> low, high = (float(box.low + box.step * box.scores[k]) for k in (0, -1))
>>> low, high
(0.0, 2.0)

Rounding to the grid moves a label by half a step at most, 2^-17 of the distance of the bounds. It costs no privacy: the range of
the codes is exactly that of the bounds. Bounds are never read off the labels: the largest label would be public.

Design notes. Whatever is wrong with a column is said before anything is charged. That a number is missing or infinite, or that a
column holds dates or text, is a fact about the table that its owner has to mend; which number it is, nobody is told.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid
from labeldp.release.labels import SensitiveLabels, as_plain, count_missing
from labeldp.validate import check_real

#: Numbers are brought to a grid of at most this many steps between their bounds.
MOST_STEPS = 1 << 16


class GridLabels(NamedTuple):
    """Numbers in a box: code k stands for low + step scores[k], and no other number occurs. All of it but the codes is public."""

    labels: SensitiveLabels
    scores: npt.NDArray[np.int64]
    low: float
    step: float


def check_bounds(owner: str, bounds: Any, *, name: str = "bounds") -> tuple[float, float]:
    """Return public bounds (low, high) of numbers, low < high, or say what is wrong.

    >>> check_bounds("example", (0, 5))
    (0.0, 5.0)
    """
    fix = "Pass (low, high) from what everybody knows of these numbers, never from the labels; what lies outside is clipped."
    if bounds is None:
        raise invalid(owner, name, "be given: sensitivity is a multiple of their distance", got=None, fix=fix)
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise invalid(
            owner, name, "be a pair (low, high)", got=Described(f"a {type(bounds).__name__}"), fix=fix
        ) from None
    low, high = check_real(owner, f"{name}[0]", low), check_real(owner, f"{name}[1]", high)
    # The width itself must be a number that can be divided into steps.
    if not (math.isfinite(high - low) and high - low > MOST_STEPS * np.finfo(np.float64).tiny):
        raise invalid(owner, name, "be finite, the low one first", got=(low, high), fix=fix)
    return low, high


def box_on_grid(
    owner: str, y: Any, *, n_rows: int, bounds: tuple[float, float], label_set: str, beside: Sequence[str] = ()
) -> GridLabels:
    """Return one boxed number for each of the rows: clipped to public bounds, and on a public grid between them.

    The grid has 2^16 steps; if the bounds are a whole number apart, a multiple of it, so that counts are exact. A number is
    rounded to the nearest point. Labels in a box already must have classes that are numbers. Refused: what is missing, is
    infinite or is no number, a date or a text included; which row is said, never what it holds.
    """
    if y is None:
        fix = "This learner requires y to be passed, but the target y is None."
        raise invalid(owner, "y", "be given", got=None, fix=fix)
    low, high = bounds
    width = high - low
    steps = int(width) * (MOST_STEPS // int(width)) if width in range(1, MOST_STEPS) else MOST_STEPS
    things = ("features", "bounds", *beside)
    if isinstance(y, SensitiveLabels):
        values = read_numbers(owner, np.asarray(y.classes, object), things="classes")
        scores, labels = _find_steps(values, low, high, steps), y
    else:
        values = read_numbers(owner, as_plain(_as_column(y)))
        scores = np.arange(steps + 1, dtype=np.int64)
        labels = SensitiveLabels(_find_steps(values, low, high, steps), n_classes=steps + 1, name=label_set)
    if n_rows != len(labels):
        got = Described(f"{len(labels)} for {n_rows} rows")
        raise invalid(owner, "y", "have one label per row of X (inconsistent numbers of samples)", got=got)
    return GridLabels(labels.with_beside(*things), scores, low, width / steps)


def read_numbers(
    owner: str, plain: npt.NDArray[Any], *, name: str = "y", things: str = "labels"
) -> npt.NDArray[np.float64]:
    """Return a column as float64, all of it finite, or say which row is none; booleans and decimals are numbers too."""
    kinds = {"M": "dates", "m": "durations", "c": "complex numbers", "V": "records"}
    if plain.dtype.kind in kinds:
        fix = "Complex data not supported." if plain.dtype.kind == "c" else "Count days or seconds from a public date."
        raise invalid(owner, name, "be numbers", got=Described(kinds[plain.dtype.kind]), fix=fix)
    if plain.ndim != 1:
        raise invalid(owner, name, "be one number per example", got=Described(f"an array of shape {plain.shape}"))
    gone = count_missing(plain)
    if gone:
        fix = "Drop those rows first: a missing number is not 0."
        raise invalid(owner, name, "have no missing values", got=Described(f"{gone} missing (NaN or None)"), fix=fix)
    if plain.dtype == object:
        odd = next(
            (row for row, value in enumerate(plain) if not isinstance(value, (numbers.Number, Decimal, np.bool_))), None
        )
        odd = next((row for row, value in enumerate(plain) if isinstance(value, complex)), None) if odd is None else odd
        if odd is not None:
            got = Described(f"{things} that are none, the first in row {odd} (rows count from 0)")
            raise invalid(
                owner, name, "be numbers", got=got, fix='For classes use family="multinomial" or a classifier.'
            )
    try:
        values: npt.NDArray[np.float64] = plain.astype(np.float64)
    except OverflowError:
        raise invalid(owner, name, "be finite", got=Described("numbers beyond the range of floats")) from None
    if not np.isfinite(values).all():
        row = int(np.argmax(~np.isfinite(values)))
        got = Described(f"an infinity (inf) in row {row} (rows count from 0)")
        raise invalid(owner, name, "be finite", got=got, fix="Replace it by the bound that you mean.")
    return values


def _as_column(y: Any) -> Any:
    """Return y, a single column of a matrix as a vector, with scikit-learn's warning."""
    from sklearn.utils.validation import column_or_1d

    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        return column_or_1d(y, warn=True)
    return y


def _find_steps(values: npt.NDArray[np.float64], low: float, high: float, steps: int) -> npt.NDArray[np.int64]:
    """Return the number of steps from `low` to the grid point nearest to each value, clipped: 0 .. steps."""
    inside = (np.clip(values, low, high) - low) / (high - low)
    return np.clip(np.rint(inside * steps), 0, steps).astype(np.int64)
