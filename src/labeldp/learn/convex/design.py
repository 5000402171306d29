r"""Rows of bounded influence: public features, brought to one unit, and weighted so that no label moves a sum by much.

A canonical model sees labels through t = sum_i v_i y_i z_i, with public weights v_i. One replaced label moves it by at most
(high - low) v_i |z_i|. `make_design` chooses, from public features alone,

- z_i = ((x_i - m) / s, c): columns centred and divided by their deviations, and a constant whose weight is the intercept.
  Columns of any unit may come; the fitted weights are handed back in the units of the columns (`map_back`);
- v_i = min(w_i, R / |z_i|), with w_i the sample weight, so that v_i |z_i| <= R for every row.

>>> X = np.array([[0.0, 1000.0], [1.0, 3000.0], [2.0, 2000.0], [9.0, 2000.0]])
>>> design = make_design("example", X, clip=1.0, standardise=True, intercept_scaling=0.25)
>>> design.rows.shape, bool((design.weights * np.linalg.norm(design.rows, axis=1)).max() <= design.radius * (1 + 1e-12))
((4, 3), True)

*Why weights and not clipped rows.* A row that is scaled down is another person with another prediction, and the model is
then about rows that do not exist. A row of less weight is the same row: the model stays the linear one in the user's
columns, its estimate stays consistent, and what is lost is what a long row knew beyond its share. R is the median norm
unless it is given: half of the rows keep their weight. Features are public under label privacy, and so are m, s, R and v.

*Persons.* Where all labels of a person are protected together, R bounds the sum of v_i |z_i| over her rows, and R and v are
chosen for the least estimated error (`labeldp.learn.convex.persons`): of one row each, v is as above.

*The grid.* v_i z_i is rounded to multiples of R 2^-bits, to the nearest, and the sensitivity is that of the integers:
rounding may lengthen a row, and the noise knows it.

References: Hampel et al. 1986 (bounded influence); McCullagh & Nelder 1989.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, invalid
from labeldp.learn.convex.persons import noise_ratio, share_influence
from labeldp.release.persons import Persons
from labeldp.release.queries import round_to_integers
from labeldp.softmax import ColumnMoments
from labeldp.validate import check_positive, check_weights

#: A column whose deviation is at most this share of its mean is taken to be constant: the rest is rounding.
CONSTANT = 1e-12
#: Bits of the grid of rows, and of all: 16 of a label, these, and those that count rows stay below 2^62.
ROW_BITS, MOST_BITS = 20, 61 - 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Rows (n, d + 1) with the constant last, their weights and exposures, and how columns became them. All public."""

    rows: Floats
    weights: Floats
    exposure: Floats
    centre: Floats
    inverse_scale: Floats
    radius: float

    @property
    def constant(self) -> float:
        """The last entry of each row."""
        return float(self.rows[0, -1])

    def on_grid(self) -> tuple[Int64s, float]:
        """Return weighted rows as integers, and the step: coarser for more than 2^25 rows, so that sums fit in 64 bits."""
        bits = max(min(ROW_BITS, MOST_BITS - math.ceil(math.log2(len(self.rows) + 1))), 4)
        step = self.radius / 2.0**bits
        return round_to_integers("make_design", "X", self.rows * self.weights[:, None] / step), step

    def map_back(self, weights: Floats, offset: Any) -> tuple[Floats, Floats]:
        """Return coefficients (.., d) and intercepts (..) of the columns as they came, from weights (.., d + 1)."""
        coefficients = weights[..., :-1] * self.inverse_scale
        intercepts = offset + weights[..., -1] * self.constant - coefficients @ self.centre
        return coefficients, np.asarray(intercepts)

    def take(self, part: Any) -> Design:
        """Return some of the rows, on the same scale."""
        return Design(
            rows=self.rows[part],
            weights=self.weights[part],
            exposure=self.exposure[part],
            centre=self.centre,
            inverse_scale=self.inverse_scale,
            radius=self.radius,
        )


def make_design(
    owner: str,
    X: Floats,
    *,
    clip: Any,
    standardise: bool,
    intercept_scaling: Any,
    exposure: Any = None,
    sample_weight: Any = None,
    sharing: Sharing | None = None,
) -> Design:
    """Return the rows, weights and scales of the module for finite features (n, d), or say what is wrong.

    Parameters
    ----------
    owner : str
        Who asks, for messages.
    X : float64 array of shape (n, d)
        Finite features.
    clip : float or "auto"
        The norm of a row, without its constant, at which its weight begins to fall; "auto" is the median.
    standardise : bool
        Whether columns are divided by their deviations; they are centred in any case.
    intercept_scaling : float
        The constant, as a multiple of `clip`.
    exposure, sample_weight : arrays of shape (n,), optional
        Exposures > 0 and weights >= 0; weights are taken relative to their mean.
    sharing : Sharing, optional
        Who owns each row, and for which noise. Then R bounds the sum of v_i |z_i| over a person's rows, and is chosen with the
        weights by `labeldp.learn.convex.persons`, unless `clip` is given, which says it.
    """
    n = len(X)
    exposed = check_exposure(owner, exposure, n_rows=n)
    given = np.ones(n) if sample_weight is None else check_weights(owner, "sample_weight", sample_weight, n_rows=n)
    given = given / given.mean()
    scaling = check_positive(owner, "intercept_scaling", intercept_scaling)
    bound = None if isinstance(clip, str) and clip == "auto" else check_positive(owner, "clip", clip)
    # Scales are those of rows as they will count: a person about once, so that a column that whoever has many rows stretches
    # does not drown in the noise of all others.
    once = 1.0 if sharing is None else 1.0 / sharing.persons.counts[sharing.persons.codes]
    with np.errstate(over="ignore", invalid="ignore"):
        moments = ColumnMoments.of_rows(X, given * exposed * once)
        deviation = np.sqrt(moments.squares / moments.total)
        whole = float(moments.squares.sum())
    if not (np.isfinite(moments.mean).all() and math.isfinite(whole)):
        got, fix = Described("columns whose squares are beyond the range of floats"), "Divide them first."
        raise invalid(owner, "X", "have a finite variance", got=got, fix=fix)
    varies = deviation > CONSTANT * np.abs(moments.mean)
    inverse = np.where(varies, 1.0 / np.where(varies, deviation, 1.0) if standardise else 1.0, 0.0)
    first = bound_rows(X, moments.mean, inverse, given, scaling, bound, sharing)
    # The centre of the rows as they are weighted, so that the intercept is apart from the others.
    shift = np.average(X - moments.mean, axis=0, weights=first.weights * exposed)
    last = bound_rows(X, moments.mean + shift, inverse, given, scaling, bound, sharing)
    return Design(
        rows=np.column_stack([last.body, np.full(n, scaling * last.length)]),
        weights=last.weights,
        exposure=exposed,
        centre=moments.mean + shift,
        inverse_scale=inverse,
        radius=last.radius,
    )


class Sharing(NamedTuple):
    """Persons who share out R among their rows, and the noise that R costs: for sums by so many classes (2 for numbers)."""

    persons: Persons
    n_classes: int
    epsilon: float
    delta: float


class BoundedRows(NamedTuple):
    """Rows without their constant, their weights, the norm at which these begin to fall, and R."""

    body: Floats
    weights: Floats
    length: float
    radius: float


def bound_rows(  # noqa: PLR0917  # one caller, above
    X: Floats,
    centre: Floats,
    inverse: Floats,
    given: Floats,
    scaling: float,
    bound: float | None,
    sharing: Sharing | None,
) -> BoundedRows:
    """Return rows about a centre, with weights that hold each one's norm, its constant included, to R, or a person's sum of them."""
    body = (X - centre) * inverse
    norms = np.sqrt(np.einsum("ij,ij->i", body, body))
    length = bound if bound is not None else find_clip(norms, given)
    radius = length * math.hypot(1.0, scaling)
    if sharing is not None:
        sizes = given * np.hypot(norms, scaling * length)
        ratio = noise_ratio(body, n_classes=sharing.n_classes, epsilon=sharing.epsilon, delta=sharing.delta)
        found = share_influence(sizes, sharing.persons, ratio=ratio, radius=None if bound is None else radius)
        return BoundedRows(body, given * found.weights, length, found.radius)
    return BoundedRows(body, np.minimum(given, radius / np.hypot(norms, scaling * length)), length, radius)


def find_clip(norms: Floats, weights: Floats) -> float:
    """Return the median norm of the rows that count; 1 where all rows are the same."""
    counted = norms[(weights > 0) & (norms > 0)]
    return float(np.median(counted)) if counted.size else 1.0


def check_exposure(owner: str, exposure: Any, *, n_rows: int) -> Floats:
    """Return one public exposure > 0 per row; ones if none is given."""
    if exposure is None:
        return np.ones(n_rows)
    values = check_weights(owner, "exposure", exposure, n_rows=n_rows)
    if not (values > 0).all():
        got = Described(f"0 in row {int(np.argmax(values == 0))}")
        raise invalid(owner, "exposure", "be > 0", got=got, fix="Leave rows without exposure out.")
    return values
