"""`BlockChannel`: sets of labels with a prior, as balanced blocks. The mathematics is in `labeldp.channel.sets`.

>>> channel = BlockChannel(odds=1.0, prior=np.array([[0.7, 0.1, 0.1, 0.1]]))
>>> bool(abs(channel.matrix().sum(axis=1) - 1.0).max() < 1e-12)
True

Blocks are made where they are needed, a span of rows at a time, and forgotten: they are a function of the prior, the row's
position and a public seed (`labeldp.channel.kernels`). What a release keeps is the set that was drawn.
"""

from __future__ import annotations

import functools
import math
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Bools, Floats, Int64s, Ints, Places, UInt8s, Words
from labeldp.channel.evidence import LazyRows, make_rows
from labeldp.channel.finite import FULL_RANGE, FiniteChannel, Rows, hash_parts, spans
from labeldp.channel.sets import FEW, Integers, Positions, SetChannel, block_integers, block_shapes, score_mass
from labeldp.validate import check_integer

#: A smaller shape is preferred to one that is better by less than this share.
SLACK = 0.003


class BlockChannel(SetChannel):
    """Blocks of labels by each row's prior: what `draw` answers from. A release keeps its `SetChannel` alone.

    Parameters
    ----------
    odds : float
        e^epsilon - 1.
    prior : array of shape (R, K), or LazyRows
        Rows of probabilities, checked by the caller. Lazy rows have an example each.
    index : array of shape (n,), optional
        The row of each example. None: example r has row r, or all have the one row if `shared`.
    shared : bool
        Whether rows of the prior serve many examples: then `explore` of the examples, by public chance, have blocks as if all
        labels were equally likely, since blocks that are always the same never tell the labels within one apart.
    seed, first
        Of public chance; the position of the first example.
    mix, explore : float
        The share of the uniform prior in each row; see `shared`.

    Guarantee
    ---------
    `epsilon` is log(1 + odds), rounded up, whatever the prior: see `labeldp.channel.sets`.
    """

    def __init__(
        self,
        *,
        odds: float,
        prior: Any,
        index: Ints | None = None,
        shared: bool = False,
        seed: int = 0,
        first: int = 0,
        mix: float = 0.1,
        explore: float = 0.25,
    ) -> None:
        k = prior.shape[1]
        super().__init__(odds=odds, n_classes=k, shapes=block_shapes(odds, k))
        self._prior, self._index, self._shared = prior, index, shared
        self._seed, self._mix = check_integer("BlockChannel", "seed", seed, least=0, most=FULL_RANGE - 1), mix
        self._explore = math.floor(explore * (FULL_RANGE - 1)) if shared else 0
        everyone = None if shared and index is None else len(prior) if index is None else len(index)
        self._rows = Positions(first, everyone, None)
        _ = self.integers

    @property
    def prior(self) -> Any:
        """The rows of the prior, as given."""
        return self._prior

    @property
    def n_examples(self) -> int | None:
        """Number of rows it describes; None if one row of the prior serves any number."""
        return self._rows.total

    @cached_property
    def integers(self) -> tuple[Integers, ...]:
        """The sampler's integers of every shape: the whole truth about what `draw` does."""
        return tuple(block_integers(self._odds, shape) for shape in self._shapes)

    def place(self, start: int, count: int) -> BlockChannel:
        """Return the channel whose rows are at positions `start` .. `start + count - 1`."""
        return self._at(Positions(start, count, None), self._index, self._prior)

    def take(self, rows: Rows) -> BlockChannel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        positions = self._rows.take(rows)
        if self._index is not None:
            return self._at(positions, self._index[rows], self._prior)
        return self._at(positions, None, self._prior if self._shared else self._prior[rows])

    def _at(self, positions: Positions, index: Ints | None, prior: Any) -> BlockChannel:
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._rows, part._index, part._prior = positions, index, prior
        return part

    def released(self) -> FiniteChannel:
        """Return the channel without blocks and prior."""
        return SetChannel(odds=self._odds, n_classes=self._n_classes, shapes=self._shapes)

    def digest(self) -> str:
        """Return that of what is stored, and of what the blocks are made of: the prior, its rows' places and public chance."""
        rows, places = self._rows, self._rows.places
        chance = repr((self._seed, self._explore, self._mix, self._shared, rows.first, rows.total)).encode()
        listed = [np.empty(0, np.int64) if one is None else np.asarray(one) for one in (places, self._index)]
        prior = self._prior if isinstance(self._prior, LazyRows) else [np.asarray(self._prior)]
        return hash_parts([super().digest().encode(), chance, *listed, *prior])

    def draw(self, codes: Ints, words: Words) -> UInt8s:
        """Return a shape and a set for every true label, from the first of its two words."""
        from labeldp.channel import kernels

        out = self.empty_codes(len(codes))
        table = np.array([[one.inside, one.outside, FULL_RANGE - 1 - one.rest] for one in self.integers], np.uint64)
        loop = kernels.draw_few_blocks if self._n_classes <= FEW else kernels.draw_cells
        lazy = isinstance(self._prior, LazyRows)  # made a few rows at a time, and forgotten
        for low, high in spans(len(codes), width=self._n_classes) if lazy else [(0, len(codes))]:
            loop(codes[low:high], words[low:high], *self._arguments(low, high), table, out[low:high])
        return out

    def prepare(self) -> None:
        """Settle which shapes suit which priors, once."""
        _ = self._plan

    @cached_property
    def _plan(self) -> tuple[Any, ...]:
        """What the compiled loops need to choose shapes, the same for all rows."""
        return plan_blocks(self._odds, self._n_classes)

    def _arguments(self, low: int, high: int) -> tuple[Any, ...]:
        """Return what the compiled loops take of rows low .. high - 1."""
        if self._index is not None:
            prior, index = self._prior, self._index[low:high]
        elif self._shared:
            prior, index = self._prior, np.zeros(high - low, np.int64)
        else:
            prior, index = make_rows(self._prior, slice(low, high)), np.empty(0, np.int64)
        chance = np.array([self._seed, self._explore], np.uint64)
        return self._rows.span(low, high), prior, index, chance, self._mix, *self._plan

    def _blocks(self, low: int, high: int) -> tuple[Int64s, Bools]:
        """Return the shapes of rows and which labels their blocks name (m, most blocks, K)."""
        from labeldp.channel import kernels

        chosen, numbers = np.empty(high - low, np.int64), np.empty((high - low, self._n_classes), np.int64)
        few = self._n_classes <= FEW
        loop = kernels.show_few_blocks if few else kernels.show_cells
        loop(*self._arguments(low, high), chosen, numbers)
        block = np.arange(self.n_outputs)[None, :, None]
        inside = (numbers[:, None, :] >> block) & 1 == 1 if few else numbers[:, None, :] == block
        return np.array(self._shapes, np.int64)[chosen], inside

    def information(self, prior: Any = None) -> Floats:
        """Return the mutual information of each row's label and answer, in nats.

        Labels follow `prior`; by default the row's own, mixed as the blocks are.
        """
        given = None if prior is None else np.asarray(prior, np.float64)
        n = self.n_examples if self.n_examples is not None else 1 if given is None or given.ndim == 1 else len(given)
        rows = None if given is None else self._check_per_example("prior", given, n)
        out = np.empty(n)
        for low, high in self._spans(n):
            shapes, inside = self._blocks(low, high)
            mass = np.einsum("mbk,mk->mb", inside, self.own_prior(low, high) if rows is None else rows[low:high])
            norm = shapes[:, 1] * (1.0 + self._odds) + shapes[:, 0] - shapes[:, 1]
            there = np.arange(inside.shape[1]) < shapes[:, :1]
            out[low:high] = np.where(there, score_mass(np.minimum(mass, 1.0), self._odds), 0.0).sum(axis=1) / norm
        return out

    def own_prior(self, low: int, high: int) -> Floats:
        """Return the mixed prior of rows low .. high - 1."""
        rows = make_rows(self._prior, slice(low, high))
        if self._index is not None:
            rows = self._prior[self._index[low:high]]
        elif self._shared:
            rows = np.repeat(self._prior, high - low, axis=0)
        share = rows / rows.sum(axis=1, keepdims=True, dtype=np.float64)
        mixed: Floats = (1.0 - self._mix) * share + self._mix / self._n_classes
        return mixed

    def outputs_of(self, observed: Any) -> Places:
        """Return the number of each answer among its row's blocks, the first of equal ones; -1 where it is none of them."""
        codes = self._check_observed(observed)
        out = np.empty(len(codes), np.intp)
        for low, high in self._spans(len(codes)):
            shapes, inside = self._blocks(low, high)
            same = (inside == self._members(low, high, codes[low:high])[:, None, :]).all(axis=2)
            same &= np.arange(same.shape[1]) < shapes[:, :1]
            same &= (self.shapes_of(codes[low:high]) == shapes).all(axis=1)[:, None]
            out[low:high] = np.where(same.any(axis=1), same.argmax(axis=1), -1)
        return out

    def _spans(self, n: int) -> Any:
        return spans(n, width=self._n_classes * self.n_outputs)

    def _matrix(self, i: int) -> Floats:
        shapes, inside = self._blocks(i, i + 1)
        law = np.where(inside[0].T, *(chance[0] for chance in self.chances(shapes)))
        dense: Floats = self._merge_equal(shapes, inside, law[None])[0]
        return dense

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        shapes, inside = self._blocks(low, high)
        mass = np.einsum("mbk,mk->mb", inside, probabilities)
        yes, no = (chance[:, None] for chance in self.chances(shapes))
        law = no * np.maximum(probabilities.sum(axis=1, keepdims=True) - mass, 0.0) + yes * mass
        return self._merge_equal(shapes, inside, law[:, None, :])[:, 0, :]

    def _merge_equal(self, shapes: Int64s, inside: Bools, law: Floats) -> Floats:
        """Return laws (m, any, blocks) in which blocks of equal labels are one answer, the first of them."""
        there = np.arange(inside.shape[1]) < shapes[:, :1]
        if self._n_classes > FEW:  # cells are disjoint: only empty ones are equal
            same = ~inside.any(axis=2) & there
            first = np.where(same, same.argmax(axis=1)[:, None], np.arange(inside.shape[1]))
        else:
            bits = inside @ (1 << np.arange(self._n_classes))
            bits = np.where(there, bits, -1)
            first = (bits[:, :, None] == bits[:, None, :]).argmax(axis=2)
        out = np.zeros_like(law)
        rows = np.arange(len(law))[:, None]
        np.add.at(out.transpose(0, 2, 1), (rows, first), np.where(there[:, None, :], law, 0.0).transpose(0, 2, 1))
        return out


@functools.lru_cache(maxsize=64)
def plan_blocks(odds: float, n_classes: int) -> tuple[Any, ...]:
    """Return what the compiled loops choose shapes by: shapes and norms, and then tables (few labels) or the odds."""
    from labeldp.channel import kernels

    shapes = np.array(block_shapes(odds, n_classes), np.int64)
    norms = shapes[:, 1] * (1.0 + odds) + (shapes[:, 0] - shapes[:, 1])
    if n_classes > FEW:
        cells = int((shapes[:, 1] == 1).sum()) if shapes[-1, 1] == 1 else len(shapes) - 1
        return shapes[:cells], norms[:cells], float(odds)
    # Odds of 0 make every block worthless, and any shape as good as another.
    table = score_mass((np.arange(kernels.TABLE + 1) / kernels.TABLE) ** 2, odds)
    choice = np.zeros((kernels.BINS ** min(3, n_classes - 1), kernels.TAILS), np.uint8)
    kernels.choose_shapes(n_classes, shapes, norms, table, SLACK, choice)
    return shapes, norms, table, choice
