"""One side of the factor model: its factors, their prior, and the two exact ways to draw the regression on features.

See `_gibbs` for the model. Everything here is linear algebra on small matrices; the loops over ratings are in `_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.learn.ratings._evidence import CellSums

Floats = npt.NDArray[np.floating[Any]]

#: Prior precision of the regression on features, in units of a factor's own. Picked on MovieLens (studies/ratings.py, CHOSEN).
RIDGE = 4.0
#: Factors start narrow, a tenth around their mean: from a wide start the chain is long in shrinking factors that are noise.
_FIRST_PRECISION = 100.0
#: Rows whose features are multiplied out at a time: 12 MB at 19 features.
_CHUNK = 4096
_NOTHING = np.empty(0)


class Side:
    """One side: its factors and their prior, its ratings in order, and the sums over its own cells."""

    def __init__(
        self, own: Any, other: Any, n: int, features: Floats, sums: CellSums | None, *, unit: int, factors: int
    ) -> None:
        self.other = other.astype(np.int32)
        self.groups = 1 if sums is None else sums.n_groups
        self.cell = own * self.groups + (0 if sums is None else sums.groups[other])
        self.order = np.lexsort((other, self.cell)).astype(np.int32)
        counts = np.bincount(self.cell, minlength=n * self.groups)
        self.pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.counts, self.features = counts.astype(np.float64), features
        self.gram = features.T @ features + RIDGE * np.eye(features.shape[1])
        self.sums = sums
        self.weight, self.residual = _NOTHING, _NOTHING
        self.factors = np.zeros((n, factors))
        # One factor starts at one on this side and so is a bias of the other side, which starts at zero there.
        self.bias = unit
        self.slope = np.zeros((features.shape[1], factors))
        self.slope[0, unit] = 1.0
        self.precision = np.diag(np.full(factors, _FIRST_PRECISION))
        self.gram_data, self.pull = np.zeros((n, factors, factors)), np.zeros((n, factors))
        self.met = np.empty((0, features.shape[1]))

    def meet(self, across: Side) -> None:
        """Sum this side's features over the cells of the other side: how the regression enters the other side's sums."""
        if across.sums is not None:
            own = across.other
            columns = [
                np.bincount(across.cell, column[own], minlength=len(across.counts)) for column in self.features.T
            ]
            self.met = np.column_stack(columns)

    def with_stranger(self) -> Floats:
        """The factors, and those of an id with average features."""
        return np.vstack([self.factors, self.slope[:1]])

    def draw_prior(self, rng: np.random.Generator) -> None:
        """Draw L and then B given L, from the factors: the conjugate matrix normal and Wishart.

        With G = F'F + RIDGE I, M = G^-1 F'U and E = U - F M: L ~ Wishart(n + k, (I + E'E + RIDGE M'M)^-1), and
        B ~ N(M, G^-1 x L^-1). Of C C' = I + E'E + RIDGE M'M, C'^-1 is a root of the scale.
        """
        n, k = self.factors.shape
        best = np.linalg.solve(self.gram, self.features.T @ self.factors)
        away = self.factors - self.features @ best
        scatter = np.linalg.cholesky(np.eye(k) + away.T @ away + RIDGE * best.T @ best)
        lower = np.zeros((k, k))
        for row in range(k):  # Bartlett's decomposition
            lower[row, row] = np.sqrt(rng.chisquare(n + k - row))
            lower[row, :row] = rng.standard_normal(row)
        root = np.linalg.solve(scatter.T, lower)
        self.precision = root @ root.T
        noise = rng.standard_normal(best.shape)
        left = np.linalg.solve(np.linalg.cholesky(self.gram).T, noise)
        self.slope = best + np.linalg.solve(root.T, left.T).T

    def draw_slope(self, across: Side, rng: np.random.Generator) -> None:
        """Draw B given the data and U - F B, as a step d: B += d, U += F d.

        Row u contributes f_u f_u' x A_u, A_u its information matrix; a cell c of row i of the other side, in which
        features sum to h_c, contributes w_c h_c h_c' x v_i v_i'. The prior adds RIDGE I x L.
        """
        width, k = self.slope.shape
        precision = RIDGE * np.einsum("ab,kl->akbl", np.eye(width), self.precision)
        slope = -RIDGE * self.slope @ self.precision
        for low in range(0, len(self.factors), _CHUNK):
            rows = slice(low, low + _CHUNK)
            precision += _kron_sum(_outer(self.features[rows]), self.gram_data[rows])
            away = self.pull[rows] - np.einsum("nkl,nl->nk", self.gram_data[rows], self.factors[rows])
            slope += self.features[rows].T @ away
        if len(self.met):
            for low in range(0, len(across.factors), _CHUNK):
                rows = slice(low, low + _CHUNK)
                cells = slice(low * across.groups, min(low + _CHUNK, len(across.factors)) * across.groups)
                shape = (-1, across.groups, width)
                met, weighted = (
                    self.met[cells].reshape(shape),
                    (self.met[cells] * across.weight[cells, None]).reshape(shape),
                )
                v = across.factors[rows]
                precision += _kron_sum(np.einsum("nga,ngb->nab", weighted, met), _outer(v))
                slope += np.einsum("nga,ng->na", weighted, across.residual[cells].reshape(-1, across.groups)).T @ v
        root = np.linalg.cholesky(precision.reshape(width * k, width * k))
        half = np.linalg.solve(root, slope.reshape(-1)) + rng.standard_normal(width * k)
        step = np.linalg.solve(root.T, half).reshape(width, k)
        self.slope = self.slope + step
        self.factors += self.features @ step

    def refresh(self, means: Floats, center: float, label_variance: float) -> None:
        """Set the weight of each cell's sum and what it has over the current means."""
        if self.sums is None:
            return
        predicted = np.bincount(self.cell, means, minlength=len(self.counts)) + center * self.counts
        self.residual = self.sums.sums.reshape(-1) - predicted
        self.weight = 1.0 / (self.sums.noise_variance + label_variance * self.counts)


def _outer(rows: Floats) -> Floats:
    answer: Floats = rows[:, :, None] * rows[:, None, :]
    return answer


def _kron_sum(left: Floats, right: Floats) -> Floats:
    """Return sum_n left[n] x right[n] with axes (a, k, b, l): one matrix product."""
    n, a, k = len(left), left.shape[1], right.shape[1]
    flat = left.reshape(n, a * a).T @ right.reshape(n, k * k)
    answer: Floats = flat.reshape(a, a, k, k).transpose(0, 2, 1, 3)
    return answer
