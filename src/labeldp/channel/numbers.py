"""`NumericChannel`: labels that are numbers on a grid, answered with numbers.

>>> channel = NumericChannel([[0.75, 0.25], [0.25, 0.75]], levels=[0.0, 10.0], values=[-5.0, 15.0])
>>> channel.decode([0, 1]).tolist(), channel.bias.tolist()
([-5.0, 15.0], [[0.0, 0.0]])
>>> channel.posterior_mean([0.5, 0.5], [1]).tolist(), channel.posterior_variance([0.5, 0.5], [1]).tolist()
([7.5], [18.75])

Mathematics. A label y lies between the first and the last of K evenly spaced levels l_1 < ... < l_K. It is first moved to one
of its two neighbours, up with probability w = (y - l_j) / (l_(j+1) - l_j): its mean stays y. Then output o is drawn from the
row of that level, and stands for the number v_o. The law of the answer is the mixture (1 - w) T[j, .] + w T[j+1, .], so that

| question | answer |
|---|---|
| `bias` at a level | sum_o T[l, o] v_o - l; zero for an unbiased mechanism, and then zero for every y between the levels |
| `variances` at a level | sum_o T[l, o] (v_o - sum_u T[l, u] v_u)^2 |
| `spread` under a prior p | sum_l p[l] sum_o T[l, o] (v_o - l)^2: the mean squared error of an answer |
| `posterior_mean` under p | sum_l l p[l] T[l, o] / sum_l p[l] T[l, o], and the variance likewise |

A mixture of rows is within a factor e^epsilon of every other one wherever the rows are, so rounding costs no privacy: a label
between levels has the promise of the levels. It does cost variance, at most a quarter of a squared step. The prior of
`posterior_mean` speaks of the level, which a label between two levels shares with them.

Design notes. Levels are the "classes" of this channel, by which priors and likelihoods are counted. Values of one row of the
channel are distinct, so that a released number says which output it was: files hold numbers, and no codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Array, Codes, Floats, Int32s, Words
from labeldp.channel.finite import HALF_RANGE, FiniteChannel
from labeldp.channel.matrix import MatrixChannel
from labeldp.errors import Described, invalid
from labeldp.validate import code_dtype

OWNER = "NumericChannel"
#: Upper bits of a word that the guide of a draw knows.
GUIDE_BITS = 8
#: Levels are evenly spaced up to this share of a step: what `numpy.linspace` rounds, with room.
EVEN = 1e-6


class NumericChannel(MatrixChannel, kind="numbers"):
    """A K x M matrix T[level, output] for all examples, or one per group, whose levels and outputs are numbers.

    Parameters
    ----------
    transition : array of shape (K, M) or (G, K, M)
        As for `MatrixChannel`: rows are probabilities, moved to multiples of 2^-52.
    levels : array of shape (K,)
        The numbers that the rows stand for, rising and evenly spaced; the first and the last are the bounds of labels.
    values : array of shape (M,) or (G, M)
        The numbers that the outputs stand for, rising in each group. They may lie outside of the bounds.
    index : array of shape (n,), optional
        The group of each example. Without it there must be one matrix, and it serves any number of examples.

    Guarantee
    ---------
    `epsilon` as for `MatrixChannel`; it holds for labels between levels too.
    """

    def __init__(self, transition: Any, *, levels: Any, values: Any, index: Any = None) -> None:
        super().__init__(transition, index=index)
        self._levels = _check_levels(levels, self.n_classes)
        self._values = _check_values(values, self.transition.shape)

    @property
    def levels(self) -> Floats:
        """The numbers that labels are rounded to."""
        return self._levels

    @property
    def values(self) -> Floats:
        """The numbers that outputs stand for: [group, output]."""
        return self._values

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest label."""
        return float(self._levels[0]), float(self._levels[-1])

    @property
    def outputs_are_numbers(self) -> bool:
        """They are."""
        return True

    def decode(self, observed: Any) -> Floats:
        """Return the number that each output stands for."""
        codes = self._check_observed(observed)
        numbers: Floats = self._values[self._groups(0, len(codes)), codes]
        return numbers

    def encode(self, numbers: Any) -> Codes:
        """Return the output that each number stands for; one that no output of its example has is refused."""
        given = np.asarray(numbers, np.float64)
        self._check_length("numbers", len(given))
        groups = self._groups(0, len(given))
        codes = np.empty(len(given), code_dtype(self.n_outputs))
        for group in range(len(self._values)):
            mine = slice(None) if self._index is None else np.flatnonzero(groups == group)
            place = np.searchsorted(self._values[group], given[mine]).clip(max=self.n_outputs - 1)
            codes[mine] = place
        if not np.array_equal(self._values[groups, codes], given):
            row = int(np.argmax(self._values[groups, codes] != given))
            raise invalid(OWNER, "numbers", "be numbers of the channel", got=Described(f"another one in row {row}"))
        return codes

    @cached_property
    def bias(self) -> Floats:
        """The mean of the answer at each level, less the level: [group, level]."""
        exact = self.transition.astype(np.longdouble) @ self._values.astype(np.longdouble)[:, :, None]
        answer: Floats = (exact[..., 0] - self._levels).astype(np.float64)
        return answer

    @cached_property
    def variances(self) -> Floats:
        """The variance of the answer at each level: [group, level]; where answers are unbiased, their squared error."""
        means = (self._levels + self.bias)[:, :, None]
        answer: Floats = (self.transition * (self._values[:, None, :] - means) ** 2).sum(axis=2)
        return answer

    def spread(self, prior: Any = None) -> Floats:
        """Return the mean squared error of an answer if its label follows `prior` (uniform if none is given).

        For each example, or one number for all where one matrix and one prior serve any number.
        """
        errors = self.variances + self.bias**2
        law = np.full(self.n_classes, 1.0 / self.n_classes) if prior is None else np.asarray(prior, np.float64)
        if law.shape[-1:] != (self.n_classes,) or law.ndim > 2:
            got = Described(f"an array of shape {law.shape}")
            raise invalid(OWNER, "prior", f"have {self.n_classes} columns, one per level", got=got)
        if law.ndim == 1:
            # Each group by itself: a BLAS sums them in another order where there are others, as in a receiver's channel of all stages.
            by_group: Floats = (errors * law).sum(axis=1)
            return by_group[0] if self._index is None else by_group[self._index]
        self._check_length("prior", len(law))
        answer: Floats = np.einsum("nk,nk->n", law, errors[self._groups(0, len(law))])
        return answer

    def posterior_mean(self, prior: Any, observed: Any) -> Floats:
        """Return the mean of the level of each example, given its answer, under a prior (K,) or (n, K)."""
        answer: Floats = self.posterior(prior, observed) @ self._levels
        return answer

    def posterior_variance(self, prior: Any, observed: Any) -> Floats:
        """Return the variance of the level of each example, given its answer, under a prior (K,) or (n, K)."""
        law = self.posterior(prior, observed)
        away = (self._levels - (law @ self._levels)[:, None]) ** 2
        answer: Floats = np.einsum("nk,nk->n", law, away)
        return answer

    def draw(self, codes: Any, words: Words) -> Int32s:
        """Return an output for every label: a number within the bounds (float64), or a level by its code (integers).

        The first word of an example rounds its number to a level, the second draws the output.
        """
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        groups = self._groups(0, len(codes))
        if np.asarray(codes).dtype.kind == "f":
            step = (self._levels[-1] - self._levels[0]) / (self.n_classes - 1)
            kernels.draw_numbers(codes, words, groups, self._levels[0], step, self._sums, self._guide, out)
        else:
            kernels.draw_levels(codes, words, groups, self._sums, self._guide, out)
        return out

    def prepare(self) -> None:
        """Make the cumulative weights of all groups, and where to begin in them, once."""
        _ = self._guide

    @cached_property
    def _guide(self) -> Array:
        """The first output that a word can be, by its upper bits: [group, level, bits]."""
        starts = np.arange(1 << GUIDE_BITS, dtype=np.uint64) * np.uint64(HALF_RANGE >> GUIDE_BITS)
        flat = self._sums.reshape(-1, self.n_outputs)
        found = np.stack([np.searchsorted(row, starts, side="right") for row in flat])
        return found.reshape(*self._sums.shape[:2], -1).astype(np.uint16)

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays of the channel's rows."""
        facts = {"kind": "numbers", "n_classes": self.n_classes, "n_outputs": self.n_outputs}
        return {**facts, "levels": self._levels.tolist()}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored matrices, which lie flat in their rows."""
        flat = rows["transition"]
        transition = flat.reshape(len(flat), header["n_classes"], header["n_outputs"])
        return cls(transition, levels=header["levels"], values=rows["values"], index=examples.get("row"))

    def row_arrays(self) -> dict[str, Array]:
        """The matrices, a flat row per group, and what outputs stand for."""
        return {**super().row_arrays(), "values": self._values}


def _check_levels(levels: Any, count: int) -> Floats:
    """Return the levels: as many as rows, finite, rising, evenly spaced."""
    array = np.asarray(levels)
    if array.dtype.kind not in "fiu" or array.shape != (count,) or count < 2:
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(OWNER, "levels", f"be {max(count, 2)} numbers, one per row of `transition`", got=got)
    grid = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        steps, step = np.diff(grid), (grid[-1] - grid[0]) / (count - 1)
        even = np.isfinite(step) and bool(np.all(np.abs(steps - step) <= EVEN * step)) and step > 0
    if not even:
        raise invalid(OWNER, "levels", "be finite, rising and evenly spaced", got=Described("something else"))
    return grid


def _check_values(values: Any, shape: tuple[int, ...]) -> Floats:
    """Return what outputs stand for, a row per group: finite and rising."""
    array = np.asarray(values)
    array = array[None] if array.ndim == 1 else array
    if array.dtype.kind not in "fiu" or array.shape != (shape[0], shape[2]):
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(OWNER, "values", f"be {shape[2]} numbers, one per output, in each group", got=got)
    numbers = array.astype(np.float64)
    if not (np.isfinite(numbers).all() and np.all(numbers[:, :-1] < numbers[:, 1:])):
        raise invalid(OWNER, "values", "be finite and rising", got=Described("something else"))
    return numbers
