"""Numbers as labels for sums: clipped to public bounds, brought to a public grid, and boxed as codes.

A sum that exact noise is added to is one of integers. So a number y becomes the code k of the grid point nearest to it,
y ~ low + step scores[k], and the door sees codes like those of any other labels: `measure` answers queries that say what a
code counts for (`LabelSums`), and a code's range is all that sensitivity needs.

>>> box = box_on_grid("example", [0, 1, 7], n_rows=3, bounds=(0.0, 2.0), label_set="claims")
>>> box.labels
<SensitiveLabels 'claims': 3 numbers in [0, 2], contents hidden>
>>> low, high = (float(box.low + box.step * box.scores[k]) for k in (0, -1))
>>> low, high
(0.0, 2.0)

Rounding to the grid moves a label by half a step at most, 2^-17 of the distance of the bounds. It costs no privacy: the range of
the codes is exactly that of the bounds. Bounds are never read off the labels: the largest label would be public.

Design notes. Numbers are read and clipped in one place, `labeldp.release.numbers`, and bounds are checked in one,
`labeldp.mechanisms.numbers`; here they only get codes. The box of codes keeps the bounds, so that the promise says what was clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid
from labeldp.release.labels import SensitiveLabels, as_plain, box_numbers, codes_of
from labeldp.release.numbers import Asked, read_finite

#: Numbers are brought to a grid of at most this many steps between their bounds.
MOST_STEPS = 1 << 16


class GridLabels(NamedTuple):
    """Numbers in a box: code k stands for low + step scores[k], and no other number occurs. All of it but the codes is public.

    Scores are 0 .. `steps`. They are the codes themselves where numbers were boxed here, and not where classes that are numbers came
    in: their codes say the place in a list in any order, and its largest score need not be `steps`.
    """

    labels: SensitiveLabels
    scores: npt.NDArray[np.int64]
    low: float
    step: float
    steps: int


def box_on_grid(
    owner: str,
    y: Any,
    *,
    n_rows: int,
    bounds: tuple[float, float],
    label_set: str,
    beside: Sequence[str] = (),
    steps: int | None = None,
) -> GridLabels:
    """Return one boxed number for each of the rows: clipped to public bounds, and on a public grid between them.

    The grid has `steps` steps. By default they are 2^16; if the bounds are a whole number apart, a multiple of it, so that counts are exact. A number is
    rounded to the nearest point. Numbers in a box already must have these bounds; so may classes that are numbers, which are
    clipped. Booleans count as 0 and 1. What is missing, infinite or no number is refused; which row is said, never what it holds.
    """
    low, high = bounds
    width = high - low
    if steps is None:
        steps = int(width) * (MOST_STEPS // int(width)) if width in range(1, MOST_STEPS) else MOST_STEPS
    if isinstance(y, SensitiveLabels) and y.bounds is None:
        if n_rows != len(y):
            got = Described(f"{len(y)} for {n_rows} rows")
            raise invalid(owner, "y", "have one label per row of X (inconsistent numbers of samples)", got=got)
        asked = Asked(owner, "classes of y", place="class", must="be numbers", fix="For classes use a classifier.")
        listed = np.empty(y.n_classes, object)
        listed[:] = y.classes
        scores = _find_steps(read_finite(listed, asked), low, high, steps)
        labels, outside = y.with_beside("features", *beside), "clip"
    else:
        boxed = box_numbers(
            owner, _count_booleans(y), n_rows=n_rows, bounds=bounds, outside="clip", label_set=label_set
        )
        codes = _find_steps(codes_of(boxed), low, high, steps)
        scores = np.arange(steps + 1, dtype=np.int64)
        labels = SensitiveLabels(codes, n_classes=steps + 1, name=boxed.name, row_ids=boxed.row_ids)
        labels, outside = labels.with_beside(*boxed.beside, *beside), boxed.outside or "clip"
    labels.bounds, labels.outside = bounds, outside
    return GridLabels(labels, scores, low, width / steps, steps)


def _count_booleans(y: Any) -> Any:
    """Return labels with 0 and 1 for booleans: whether something happened is a count."""
    if y is None or isinstance(y, SensitiveLabels):
        return y
    plain = as_plain(y)
    if plain.dtype == np.bool_:
        return plain.astype(np.uint8)
    if plain.dtype == object and plain.ndim == 1:
        plain = plain.copy()
        plain[:] = [int(value) if isinstance(value, (bool, np.bool_)) else value for value in plain]
    return plain


def _find_steps(values: npt.NDArray[np.float64], low: float, high: float, steps: int) -> npt.NDArray[np.int64]:
    """Return the number of steps from `low` to the grid point nearest to each value, clipped: 0 .. steps."""
    inside = (np.clip(values, low, high) - low) / (high - low)
    return np.clip(np.rint(inside * steps), 0, steps).astype(np.int64)
