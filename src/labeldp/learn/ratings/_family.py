"""The law of an ordered label given its mean, tabulated: what turns any channel's output into evidence about the mean.

>>> family = RatingFamily.of((1, 2, 3, 4, 5))
>>> family.law(3.0).round(3).tolist()
[0.054, 0.244, 0.403, 0.244, 0.054]

The law is a discretised normal, p[y] ~ exp(-(v[y] - c)^2 / (2 d)), tilted to the mean. Its dispersion d is public: by
default a quarter of the range, squared, which leaves two standard deviations to either side of the middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.mechanisms._optimal_tilts import slopes, tilted_laws

Floats = npt.NDArray[np.floating[Any]]

#: Grid points of the mean: a hundredth of a star for five stars.
_POINTS = 381
#: The grid ends this share of the range from its ends, where a mean says that all labels are the same.
_MARGIN = 0.025


@dataclass(frozen=True, kw_only=True, eq=False)
class RatingFamily:
    """Laws on a grid of means: `laws` (Q, K), their derivatives `slopes` (Q, K), and `variances` (Q,)."""

    values: Floats
    grid: Floats
    laws: Floats
    slopes: Floats
    variances: Floats

    @classmethod
    def of(cls, values: Any, *, dispersion: float | None = None) -> RatingFamily:
        """Return the family of these rising values."""
        numbers = np.asarray(values, dtype=np.float64)
        span, middle = float(np.ptp(numbers)), float(numbers.min() + numbers.max()) / 2
        spread = (span / 4) ** 2 if dispersion is None else dispersion
        base = np.exp(-((numbers - middle) ** 2) / (2 * spread))
        grid = np.linspace(numbers[0] + _MARGIN * span, numbers[-1] - _MARGIN * span, _POINTS)
        laws = tilted_laws(base / base.sum(), numbers, grid)
        variances = (laws * (numbers - grid[:, None]) ** 2).sum(axis=1)
        return cls(values=numbers, grid=grid, laws=laws, slopes=slopes(laws, numbers), variances=variances)

    @property
    def span(self) -> float:
        """Largest value less the least."""
        return float(self.values[-1] - self.values[0])

    def law(self, mean: float) -> Floats:
        """Return the law at the grid point nearest a mean."""
        answer: Floats = self.laws[self.at(np.asarray([mean]))[0]]
        return answer

    def variance(self, mean: float) -> float:
        """Return the variance of a label with this mean."""
        return float(self.variances[self.at(np.asarray([mean]))[0]])

    def at(self, means: Floats) -> npt.NDArray[np.intp]:
        """Return the nearest grid points."""
        step = self.grid[1] - self.grid[0]
        nearest: npt.NDArray[np.intp] = (
            np.rint((means - self.grid[0]) / step).clip(0, len(self.grid) - 1).astype(np.intp)
        )
        return nearest
