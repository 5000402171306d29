"""What a channel may be best for: the objectives of `OptimalResponse`.

| objective | gain of an output with pattern S, under a prior p | an output stands for |
|---|---|---|
| `Accuracy` | max_y p[y] S[y]: the chance that the best guess is right | a label |
| `MeanInformation` | (S.dp)^2 / (S.p): Fisher information about the mean | its posterior mean |
| `UnbiasedReport` | - sum_y p[y] S[y] (g - v[y])^2, with E[g] = v[y] for every y | a number g |

>>> UnbiasedReport(values=(1, 2, 3)).values
(1.0, 2.0, 3.0)

The first two are sublinear in S (a maximum of linear forms; a quadratic over a linear form), so mixtures of staircase
patterns reach their optimum; for the third, outputs with one report and any columns are mixtures of patterns with it.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer, check_positive, check_real
from labeldp.errors import Described, invalid
from labeldp.mechanisms._optimal_program import Columns
from labeldp.mechanisms._optimal_tilts import slopes, tilted_laws

Floats = npt.NDArray[np.floating[Any]]

#: Gauss-Hermite nodes that average over where the mean may be: exact for polynomials of degree 17.
_NODES = 9


class Objective(abc.ABC):
    """A purpose: the columns that may be mixed and what each gains."""

    #: Whether outputs stand for labels, so that those with one report are one output.
    reports_labels: bool = False

    @abc.abstractmethod
    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Return the candidate outputs for these patterns under a prior."""

    @abc.abstractmethod
    def reports_of_labels(self, n_classes: int) -> Floats:
        """Return what each label is reported as when nothing is hidden."""

    @abc.abstractmethod
    def check_classes(self, n_classes: int) -> None:
        """Refuse a number of classes that the objective does not fit."""

    def most_outputs(self, n_classes: int) -> int:
        """Return how many outputs an optimum may need: a vertex has as many as there are conditions, one per label."""
        return n_classes


@dataclass(frozen=True, kw_only=True)
class Accuracy(Objective):
    """The chance that the output is the label: what RRWithPrior is best for (Ghazi et al. 2021, Theorem 3)."""

    reports_labels = True

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Guess the likeliest label of each pattern."""
        joint = pattern * prior
        return _free(pattern, joint.argmax(axis=1).astype(np.float64), joint.max(axis=1))

    def reports_of_labels(self, n_classes: int) -> Floats:
        """Each label is itself."""
        return np.arange(n_classes, dtype=np.float64)

    def check_classes(self, n_classes: int) -> None:
        """Any number fits."""


@dataclass(frozen=True, kw_only=True)
class _Valued(Objective):
    """An objective for labels that are numbers; `values` are public, rising, in the order of the classes."""

    values: Sequence[float]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        numbers = tuple(check_real(owner, "values", value) for value in self.values)
        if len(numbers) < 2 or not all(a < b for a, b in pairwise(numbers)):
            raise invalid(owner, "values", "be two or more rising numbers, one per class", got=numbers)
        if not all(math.isfinite(number) for number in numbers):
            raise invalid(owner, "values", "be finite", got=numbers)
        object.__setattr__(self, "values", numbers)

    def reports_of_labels(self, n_classes: int) -> Floats:
        """Each label is its value."""
        return np.asarray(self.values)

    def check_classes(self, n_classes: int) -> None:
        """There must be a value per class."""
        if len(self.values) != n_classes:
            got = Described(f"{len(self.values)} for {n_classes} classes")
            raise invalid(type(self).__name__, "values", "have one entry per class", got=got)


@dataclass(frozen=True, kw_only=True)
class MeanInformation(_Valued):
    """Fisher information about the mean of ordered labels, where the prior is right about the shape of their law.

    Parameters
    ----------
    values : sequence of rising numbers
        What the classes are worth, in their order (1, 2, 3, 4, 5 stars).
    spread : float
        How uncertain the prior's mean m is: the information is averaged over means m + spread z, z standard normal,
        each with the tilt of the prior that has it (`tilted_laws`).

    Notes
    -----
    An output o of pattern S has Pr[o] = theta S.p(m), whose derivative in m is theta S.dp, so that it adds
    theta (S.dp)^2 / (S.p) to the information. A prior that is a point says nothing of a shape: a flat one stands in.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        spread = check_real("MeanInformation", "spread", self.spread)
        if not (spread >= 0 and math.isfinite(spread)):
            raise invalid("MeanInformation", "spread", "be finite and >= 0", got=self.spread)
        object.__setattr__(self, "spread", spread)

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Average the information over the quadrature nodes; report the posterior mean under the prior."""
        values = np.asarray(self.values)
        law = prior if np.count_nonzero(prior) > 1 else np.full(len(prior), 1.0 / len(prior))
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES if self.spread > 0 else 1)
        laws = tilted_laws(law, values, law @ values + self.spread * nodes)
        chance, change = pattern @ laws.T, pattern @ slopes(laws, values).T
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(chance > 0, change**2 / chance, 0.0) @ (weights / weights.sum())
        mass = pattern @ law
        with np.errstate(divide="ignore", invalid="ignore"):
            report = np.where(mass > 0, pattern @ (law * values) / mass, law @ values)
        return _free(pattern, report, gain)


@dataclass(frozen=True, kw_only=True)
class UnbiasedReport(_Valued):
    """The least variance, under the prior, of a number whose mean is the label's value whatever the label is.

    Parameters
    ----------
    values : sequence of rising numbers
        What the classes are worth, in their order.
    reach : float, optional
        How far from the middle of the values a report may lie, in half-ranges. By default 3 coth(epsilon / 2), three
        times what two-point randomized response needs: with reports middle +- a half-range, a coth(epsilon / 2) half-range
        is the least that makes it unbiased.
    n_reports : int
        Size of the grid of reports, besides the values themselves.
    """

    reach: float | None = None
    n_reports: int = 121

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reach is not None:
            check_positive("UnbiasedReport", "reach", self.reach)
        check_integer("UnbiasedReport", "n_reports", self.n_reports, least=2)

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Pair every pattern with every report; two conditions per label: rows sum to one and reports are unbiased."""
        values, grid = np.asarray(self.values), self._grid(float(pattern.min()))
        rows = np.repeat(pattern, len(grid), axis=0)
        report = np.tile(grid, len(pattern))
        cost = ((report[:, None] - values) ** 2 * rows) @ prior
        return Columns(rows, report, -cost, (rows * report[:, None]).T, values)

    def most_outputs(self, n_classes: int) -> int:
        """Two conditions per label."""
        return 2 * n_classes

    def _grid(self, least: float) -> Floats:
        """The reports; `least` is e^-epsilon."""
        low, high = self.values[0], self.values[-1]
        if least >= 1:
            raise invalid("UnbiasedReport", "epsilon", "be > 0", got=0.0, fix="No report is unbiased without budget.")
        reach = 3.0 * (1 + least) / (1 - least) if self.reach is None else self.reach
        half = reach * (high - low) / 2
        return np.union1d(np.linspace((low + high) / 2 - half, (low + high) / 2 + half, self.n_reports), self.values)


def _free(pattern: Floats, report: Floats, gain: Floats) -> Columns:
    """Columns without further conditions."""
    return Columns(pattern, report, gain, np.empty((0, len(pattern))), np.empty(0))
