"""`MatrixChannel`: the general finite channel, whose outputs need not be labels (a subset, a bin, a pattern).

>>> three_to_two = MatrixChannel([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
>>> three_to_two.n_classes, three_to_two.n_outputs
(3, 2)
>>> three_to_two.posterior([0.25, 0.5, 0.25], [0]).tolist()
[[0.375, 0.5, 0.125]]

Mathematics. T is K x M with rows that sum to one. Every answer is a product with T or with a column of it, O(K M) per
example; the unbiased loss needs a right inverse of T, which exists iff T has rank K.

Design notes. Entries are multiples of 2^-52 (`GRID`). Such a number is exact as a float and, shifted, exact in the
sampler's 63 bits, so that the matrix that is shown, the epsilon that is computed from it and the law that is drawn are
one and the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from labeldp.arrays import Array, Floats, Int32s, Int64s, Ints, Words
from labeldp.channel.finite import HALF_RANGE, FiniteChannel, Rows, check_row_index, log1p_up
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_probability_rows

if TYPE_CHECKING:
    from typing_extensions import Self

#: Transitions are multiples of this: exact in a float, and exactly what the sampler draws.
GRID = 1 << 52


class MatrixChannel(FiniteChannel, kind="matrix"):
    """A K x M matrix T[true, output] for all examples, or one per group.

    Parameters
    ----------
    transition : array of shape (K, M) or (G, K, M)
        Rows are probability vectors. They are moved to the nearest lower multiple of 2^-52 (the remainder goes to the
        row's largest entry), so that `transition`, `epsilon` and the sampler speak of exactly the same numbers.
    index : array of shape (n,), optional
        The group of each example. Without it there must be one matrix, and it serves any number of examples.
    outputs_are_labels : bool
        Whether output j means label j (then M = K).

    Guarantee
    ---------
    `epsilon` = max over groups, o, y, z of log T[y, o] / T[z, o]; infinite if some output rules a label out.

    Example
    -------
    >>> flip = MatrixChannel([[0.75, 0.25], [0.25, 0.75]])
    >>> round(flip.epsilon, 6)
    1.098612
    >>> flip.unbiased([[1.0, 0.0]], [0]).round(6).tolist()
    [1.5]
    """

    def __init__(self, transition: Any, *, index: Any = None, outputs_are_labels: bool = False) -> None:
        array = np.asarray(transition, dtype=np.float64)
        array = array[None] if array.ndim == 2 else array
        if array.ndim != 3 or 0 in array.shape:
            got = Described(f"an array of shape {array.shape}")
            raise invalid("MatrixChannel", "transition", "be a K x M matrix, or one per group", got=got)
        check_probability_rows("MatrixChannel", "transition", array.reshape(-1, array.shape[-1]))
        if outputs_are_labels and array.shape[1] != array.shape[2]:
            got = Described(f"{array.shape[1]} x {array.shape[2]}")
            raise invalid("MatrixChannel", "transition", "be square when outputs are labels", got=got)
        if index is None and len(array) != 1:
            raise invalid("MatrixChannel", "index", f"say which of {len(array)} matrices each example has", got=None)
        self._weights = _round_to_grid(array)
        self._transition = self._weights / GRID
        self._index = None if index is None else check_row_index("MatrixChannel", "index", index, len(array))
        self._outputs_are_labels = bool(outputs_are_labels)

    @property
    def transition(self) -> Floats:
        """T[group, true, output]."""
        return self._transition

    @property
    def index(self) -> Ints | None:
        """The group of each example; None if one matrix serves all."""
        return self._index

    @property
    def n_classes(self) -> int:
        """Number of labels, K."""
        return int(self._transition.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of outputs, M."""
        return int(self._transition.shape[2])

    @property
    def outputs_are_labels(self) -> bool:
        """Whether output j means label j."""
        return self._outputs_are_labels

    @property
    def n_examples(self) -> int | None:
        """Number of examples it describes; None if one matrix serves any number."""
        return None if self._index is None else len(self._index)

    @cached_property
    def epsilon(self) -> float:
        """The largest log-ratio within a column, over groups, rounded up; 0 if no output depends on the label."""
        most, least = self._transition.max(axis=1), self._transition.min(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # log1p keeps its digits where the two are nearly equal; on the grid their difference is exact.
            ratio = np.where(most > least, log1p_up((most - least) / least), 0.0)
        return float(ratio.max())

    def take(self, rows: Rows) -> Self:
        """Return the channel of a subset of examples (a slice does not copy)."""
        if self._index is None:
            return self
        part = object.__new__(type(self))  # the matrices were checked when this channel was made
        part.__dict__.update(self.__dict__)
        part._index = self._index[rows]
        return part

    def draw(self, codes: Ints, words: Words) -> Int32s:
        """Return an output for every true label, from the second of its two words."""
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        kernels.draw_matrix(codes, words, self._groups(0, len(codes)), self._sums, out)
        return out

    def prepare(self) -> None:
        """Make the cumulative weights of all groups, once."""
        _ = self._sums

    @cached_property
    def _sums(self) -> Words:
        """Cumulative weights, scaled from the grid to the sampler's 63 bits (a shift: nothing is rounded)."""
        scale = np.uint64(HALF_RANGE // GRID)
        return np.cumsum(self._weights.astype(np.uint64) * scale, axis=2, dtype=np.uint64)

    @cached_property
    def _right_inverse(self) -> Floats:
        """R per group, with T R = I and rows that sum to one: v = R loss has expectation T v = loss.

        T^+ is a right inverse. With more outputs than labels its rows need not sum to one, and a constant loss would be
        estimated with noise. T maps 1 to 1, so it maps the gap 1 - T^+ 1 to 0, and R = T^+ + (1 - T^+ 1) 1' / K is one
        whose rows do.
        """
        inverse = np.linalg.pinv(self._transition)
        answer: Floats = inverse + (1.0 - inverse.sum(axis=2, keepdims=True)) / self.n_classes
        return answer

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays."""
        facts = {"kind": "matrix", "n_classes": self.n_classes, "n_outputs": self.n_outputs}
        return {**facts, "outputs_are_labels": self._outputs_are_labels}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored matrices, which lie flat in their rows."""
        flat = rows["transition"]
        transition = flat.reshape(len(flat), header["n_classes"], header["n_outputs"])
        return cls(transition, index=examples.get("row"), outputs_are_labels=header["outputs_are_labels"])

    def row_arrays(self) -> dict[str, Array]:
        """The matrices, a flat row per group."""
        return {"transition": self._transition.reshape(len(self._transition), -1)}

    def example_arrays(self) -> dict[str, Array]:
        """The group of each example, if they differ."""
        return {} if self._index is None else {"row": self._index}

    def _groups(self, low: int, high: int) -> Ints:
        return np.zeros(high - low, np.int64) if self._index is None else self._index[low:high]

    def _matrix(self, i: int) -> Floats:
        dense: Floats = self._transition[self._groups(i, i + 1)[0]].copy()
        return dense

    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats:
        answer: Floats = np.einsum("nk,nk->n", self._unbiased_targets(low, high, observed), losses)
        return answer

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        chosen: Floats = self._right_inverse[self._groups(low, high), observed]
        return chosen

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        if self._index is None:
            answer: Floats = probabilities @ self._transition[0]
            return answer
        out = np.empty((high - low, self.n_outputs))
        groups = self._groups(low, high)
        for group in np.unique(groups):
            rows = groups == group
            out[rows] = probabilities[rows] @ self._transition[group]
        return out

    def _joint(self, low: int, high: int, prior: Floats, observed: Ints) -> Floats:
        answer: Floats = prior * self._transition[self._groups(low, high), :, observed]
        return answer

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        diagonal = np.diagonal(self._transition, axis1=1, axis2=2)[self._groups(low, high)]
        answer: Floats = np.einsum("nk,nk->n", prior, diagonal)
        return answer

    def _check_invertible(self) -> None:
        ranks = np.linalg.matrix_rank(self._transition)
        if np.any(ranks < self.n_classes):
            raise LabelDPError(
                f"MatrixChannel.unbiased: the matrix of group {int(np.argmin(ranks))} has rank {int(ranks.min())} for "
                f"{self.n_classes} labels, so no unbiased estimate exists. Use forward or posterior instead."
            )


def _round_to_grid(transition: Floats) -> Int64s:
    """Return integer weights that sum to `GRID` in each row: rounded down, what is missing given to the largest."""
    weights = np.floor(transition * GRID).astype(np.int64)
    largest = transition.argmax(axis=2)[..., None]
    spare = GRID - weights.sum(axis=2, keepdims=True)
    np.put_along_axis(weights, largest, np.take_along_axis(weights, largest, axis=2) + spare, axis=2)
    return weights
