"""`FiniteChannel`: what every channel answers, however it is stored.

A channel is public: it says how labels were randomized, never what they were. Learners ask the channel, not the
mechanism, so that every mechanism trains in the same way.

Design notes. This class checks arguments and walks the examples in spans; a kind of channel supplies the formulas for
one span. No array of n x K x K, and no temporary larger than a span, is ever made.

The channel's mathematics on aligned rows, once for every way a channel is stored.

Aligned means: ``keep`` and ``redraw`` have shape (m, 1) or (1, 1), ``base`` has shape (m, K) or (1, K), and row r
describes example r. Everything is O(K) per example; nothing inverts a matrix.

With S = {o : base[o] > 0},

    T[y, o] = keep 1[o = y, y in S] + (1 - keep 1[y in S]) base[o].

Probabilities as integers: what the sampler compares its words with, rounded so that no claim is exceeded.

A word is 64 uniform bits. To keep a label its upper 63 bits are compared with an integer ``h`` in [0, 2^63], so that
"never" and "always" are exact. To redraw uniformly from k labels the word is scaled: each label gets
floor(2^64 / k) or one more of the 2^64 words. To redraw from a general row, the upper 63 bits are looked up in
cumulative integer weights that sum to 2^63 exactly.

The claim of a row is the ratio R = 1 + keep / (redraw base_min). With the integer weights the smallest share is m
(perhaps a little under base_min), and the sampled channel has ratio 1 + h / ((2^63 - h) m). It stays within the claim
iff h / (2^63 - h) <= q, where q = (keep / redraw) (m / base_min): so h = floor(2^63 q / (1 + q)), computed in exact
rational arithmetic.

>>> keep_threshold(Fraction(1, 2), Fraction(1, 2), least=Fraction(1, 2), share=Fraction(1, 2)) == HALF_RANGE // 2
True
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Ints, Words
from labeldp.errors import Described, invalid

Rows = slice | Ints

#: Formulas work on this many examples at a time, and on fewer where rows are long (8 MiB of float64 at most, unless one
#: row is longer), so that temporaries stay small whatever n and K are.
SPAN = 1 << 13
SPAN_CELLS = 1 << 20


class FiniteChannel(abc.ABC):
    """T[y, o] = Pr[output = o | true = y], for K labels, M outputs and any number of examples."""

    @property
    @abc.abstractmethod
    def n_classes(self) -> int:
        """Number of true labels, K."""

    @property
    @abc.abstractmethod
    def n_examples(self) -> int | None:
        """Number of examples it describes; None if it serves any number."""

    @property
    def n_outputs(self) -> int:
        """Number of possible outputs, M: the labels themselves unless a kind says otherwise."""
        return self.n_classes

    @property
    def outputs_are_labels(self) -> bool:
        """Whether output j means label j."""
        return True

    @property
    @abc.abstractmethod
    def epsilon(self) -> float:
        """The exact pure epsilon: the largest log T[y, o] / T[z, o] over examples, y, z and o."""

    @abc.abstractmethod
    def take(self, rows: Rows) -> FiniteChannel:
        """Return the channel of a subset of examples (a slice does not copy)."""

    @abc.abstractmethod
    def draw(self, codes: Ints, words: Words) -> npt.NDArray[np.int32]:
        """Return an output for every true label in `codes` (int32, 0 .. K-1), from two words per example.

        Only the door calls this with real labels. words[r] decides example r alone.
        """

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the integers that `draw` compares words with; parts that are taken afterwards share them."""

    def matrix(self, i: int = 0) -> Floats:
        """Return the dense K x M matrix T[true, output] of example i."""
        n = self.n_examples
        if n is not None and not 0 <= i < n:
            raise invalid(f"{type(self).__name__}.matrix", "i", f"be in [0, {n - 1}]", got=i)
        return self._matrix(0 if n is None else i)

    def unbiased(self, losses: Any, observed: Any) -> Floats:
        """Return the corrected loss of each example: its expectation over the noise is the loss at the true label.

        Parameters
        ----------
        losses : array of shape (n, K)
            Loss of each example for every label it might have.
        observed : array of shape (n,)
            The output that was released, as a code.

        Notes
        -----
        Exact for labels that the channel can keep. A label outside a candidate set is always redrawn, and the
        corrected loss then averages to the mean loss over that set.
        """
        self._check_invertible()
        codes = self._observed(observed)
        matrix = self._per_example("losses", losses, len(codes))
        out = np.empty(len(codes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._unbiased(low, high, matrix[low:high], codes[low:high])
        return out

    def forward(self, probabilities: Any) -> Floats:
        """Return the law of the output (n, M) under a model's `probabilities` (n, K): take its log for a loss."""
        matrix = np.atleast_2d(np.asarray(probabilities))
        matrix = self._per_example("probabilities", matrix, len(matrix))
        out = np.empty((len(matrix), self.n_outputs))
        for low, high in self._spans(len(matrix)):
            out[low:high] = self._forward(low, high, matrix[low:high])
        return out

    def posterior(self, prior: Any, observed: Any) -> Floats:
        """Return Pr[true label | output] for each example (n, K), by Bayes' rule from `prior` (K,) or (n, K)."""
        codes = self._observed(observed)
        matrix = self._per_example("prior", prior, len(codes))
        if not np.all(matrix >= 0):
            owner = f"{type(self).__name__}.posterior"
            raise invalid(owner, "prior", "have no negative or missing entries", got=Described("one or more"))
        out = np.empty((len(codes), self.n_classes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._normalised(low, self._joint(low, high, matrix[low:high], codes[low:high]))
        return out

    def likelihood(self, observed: Any) -> Floats:
        """Return T[y, o] for every label y at the output o of each example (n, K): what a forward loss needs.

        -log sum_y p[y] T[y, o] is the forward loss of a model p, and its gradient in the logits is p minus the
        posterior that p and this column give.
        """
        codes = self._observed(observed)
        out = np.empty((len(codes), self.n_classes))
        one = np.ones(self.n_classes)
        for low, high in self._spans(len(codes)):
            out[low:high] = self._joint(low, high, np.broadcast_to(one, (high - low, len(one))), codes[low:high])
        return out

    def unbiased_targets(self, observed: Any) -> Floats:
        """Return c (n, K) with sum_y c[y] loss[y] = `unbiased(loss, observed)`: signed soft targets that sum to one."""
        self._check_invertible()
        codes = self._observed(observed)
        out = np.empty((len(codes), self.n_classes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._unbiased_targets(low, high, codes[low:high])
        return out

    def expected_accuracy(self, prior: Any = None) -> Any:
        """Return Pr[output = true] for y ~ prior (uniform if none is given), per example.

        A channel that serves any number of examples, asked about one prior, answers with one number.
        """
        self._check_outputs_are_labels()
        given = np.full(self.n_classes, 1.0 / self.n_classes) if prior is None else np.asarray(prior)
        n = self.n_examples if self.n_examples is not None else (1 if given.ndim == 1 else len(given))
        matrix = self._per_example("prior", given, n)
        out = np.empty(n)
        for low, high in self._spans(n):
            out[low:high] = self._accuracy(low, high, matrix[low:high])
        return float(out[0]) if self.n_examples is None and given.ndim == 1 else out

    # How it is stored

    @abc.abstractmethod
    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays, as plain JSON values."""

    @abc.abstractmethod
    def row_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays with one entry per row."""

    @abc.abstractmethod
    def example_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays with one entry per example."""

    # The formulas for one span of examples

    @abc.abstractmethod
    def _matrix(self, i: int) -> Floats: ...
    @abc.abstractmethod
    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats: ...
    @abc.abstractmethod
    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats: ...
    @abc.abstractmethod
    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats: ...
    @abc.abstractmethod
    def _joint(self, low: int, high: int, prior: Floats, observed: Ints) -> Floats: ...
    @abc.abstractmethod
    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats: ...
    @abc.abstractmethod
    def _check_invertible(self) -> None: ...

    # Shared checks

    def _normalised(self, low: int, joint: Floats) -> Floats:
        total = joint.sum(axis=1, keepdims=True)
        if not np.all(total > 0):
            example = low + int(np.argmin(total[:, 0] > 0))
            got = Described(f"zero for every label that could give the output of example {example}")
            owner = f"{type(self).__name__}.posterior"
            raise invalid(owner, "prior", "allow what was observed", got=got, fix="Smooth the prior.")
        answer: Floats = joint / total
        return answer

    def _observed(self, observed: Any) -> Ints:
        codes = np.atleast_1d(np.asarray(observed))
        owner = type(self).__name__
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            got = Described(f"an array of shape {codes.shape} and dtype {codes.dtype}")
            raise invalid(owner, "observed", "be integer codes, one per example", got=got, fix="Use release.codes.")
        if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= self.n_outputs):
            got = Described(f"{int(codes.min())} .. {int(codes.max())}")
            raise invalid(owner, "observed", f"be in [0, {self.n_outputs - 1}]", got=got)
        self._check_length("observed", len(codes))
        return codes.astype(np.intp, copy=False)

    def _per_example(self, name: str, values: Any, n: int) -> Floats:
        array = np.asarray(values)
        owner = type(self).__name__
        if array.dtype.kind not in "fiub" or array.ndim not in (1, 2) or array.shape[-1] != self.n_classes:
            got = Described(f"an array of shape {array.shape}")
            raise invalid(owner, name, f"have {self.n_classes} columns, one per class", got=got)
        if array.ndim == 1:
            array = np.broadcast_to(array, (n, self.n_classes))
        if len(array) != n:
            raise invalid(owner, name, f"have {n} rows, one per example", got=Described(f"{len(array)} rows"))
        self._check_length(name, n)
        return array

    def _spans(self, n: int) -> Iterator[tuple[int, int]]:
        return spans(n, width=max(self.n_classes, self.n_outputs))

    def _check_length(self, name: str, n: int) -> None:
        if self.n_examples is not None and n != self.n_examples:
            must = f"have one entry for each of the {self.n_examples} examples"
            fix = "Use channel.take(rows) for a part of the examples."
            raise invalid(type(self).__name__, name, must, got=Described(f"{n}"), fix=fix)

    def _check_outputs_are_labels(self) -> None:
        if not self.outputs_are_labels:
            got = Described("outputs that are not labels")
            raise invalid(type(self).__name__, "expected_accuracy", "compare outputs with labels", got=got)

    def __repr__(self) -> str:
        n = "any number of" if self.n_examples is None else f"{self.n_examples}"
        return f"<{type(self).__name__}: {self.n_classes} classes, {n} examples, epsilon {self.epsilon:.6g}>"


def spans(n: int, *, width: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive [low, high) that cover n examples with rows of `width` numbers."""
    step = max(1, min(SPAN, SPAN_CELLS // width))
    return ((low, min(low + step, n)) for low in range(0, n, step))


def check_row_index(owner: str, name: str, index: Any, n_rows: int) -> Ints:
    """Return a row index as int64 in [0, n_rows), or say what is wrong with it."""
    array = np.asarray(index)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(owner, name, "be a vector of row numbers", got=got)
    if array.size and (int(array.min()) < 0 or int(array.max()) >= n_rows):
        outside = int(array.min()) if int(array.min()) < 0 else int(array.max())
        raise invalid(owner, name, f"be in [0, {n_rows - 1}]", got=outside)
    return array.astype(np.int64, copy=False)


class AlignedRows(NamedTuple):
    """Rows of a channel, one per example (or one for all)."""

    keep: Floats
    redraw: Floats
    base: Floats

    @property
    def support(self) -> npt.NDArray[np.bool_]:
        """Which labels can come out."""
        return self.base > 0


def matrix(rows: AlignedRows) -> Floats:
    """Return T of the first row as a dense K x K matrix."""
    inside = rows.support[0].astype(float)
    kept = float(rows.keep[0, 0]) * inside
    # 1 - keep is taken from `redraw`, which is accurate when keep is close to one.
    rest = np.where(inside > 0, float(rows.redraw[0, 0]), 1.0)
    answer: Floats = np.diag(kept) + rest[:, None] * rows.base[0][None, :]
    return answer


def unbiased(rows: AlignedRows, losses: Floats, observed: Ints) -> Floats:
    """Return (loss[o] - redraw sum_j base[j] loss[j]) / keep.

    For y in S its expectation over o ~ T[y, .] is
    (keep loss[y] + redraw sum base loss - redraw sum base loss) / keep = loss[y].
    """
    at_observed = np.take_along_axis(losses, observed[:, None], axis=1)[:, 0]
    redrawn = np.einsum("mk,mk->m", np.broadcast_to(rows.base, losses.shape), losses)
    answer: Floats = (at_observed - rows.redraw[:, 0] * redrawn) / rows.keep[:, 0]
    return answer


def unbiased_targets(rows: AlignedRows, observed: Ints) -> Floats:
    """Return (1[y = o] - redraw base[y]) / keep: the weights of `unbiased`, which sum to one."""
    answer: Floats = np.broadcast_to(-rows.redraw * rows.base / rows.keep, (len(observed), rows.base.shape[1])).copy()
    answer[np.arange(len(observed)), observed] += np.broadcast_to(1.0 / rows.keep[:, 0], len(observed))
    return answer


def forward(rows: AlignedRows, probabilities: Floats) -> Floats:
    """Return the law of the output when the label follows `probabilities`: p T, in O(K).

    (p T)[o] = keep p[o] 1[o in S] + (1 - keep p(S)) base[o].
    """
    kept = rows.keep * np.where(rows.support, probabilities, 0.0)
    total = probabilities.sum(axis=1, keepdims=True)
    answer: Floats = kept + (total - kept.sum(axis=1, keepdims=True)) * rows.base
    return answer


def joint(rows: AlignedRows, prior: Floats, observed: Ints) -> Floats:
    """Return prior[y] T[y, o] for every label y: Bayes' rule before it is normalised."""
    at = observed[:, None]
    base_at = np.take_along_axis(np.broadcast_to(rows.base, (len(observed), rows.base.shape[1])), at, axis=1)
    answer: Floats = prior * np.where(rows.support, rows.redraw, 1.0) * base_at
    kept = rows.keep * np.take_along_axis(prior, at, axis=1) * (base_at > 0)
    np.put_along_axis(answer, at, np.take_along_axis(answer, at, axis=1) + kept, axis=1)
    return answer


def accuracy(rows: AlignedRows, prior: Floats) -> Floats:
    """Return Pr[o = y] for y ~ prior: keep p(S) + redraw sum_y p[y] base[y]."""
    inside = np.where(rows.support, prior, 0.0).sum(axis=1)
    redrawn = np.einsum("mk,mk->m", np.broadcast_to(rows.base, prior.shape), prior)
    answer: Floats = rows.keep[:, 0] * inside + rows.redraw[:, 0] * redrawn
    return answer


def epsilon(rows: AlignedRows) -> Floats:
    """Return the exact pure epsilon of each row, rounded up.

    The largest log-ratio over y, z, o is log(T[o, o] / T[z, o]) = log(1 + keep / (redraw base[o])) at the least likely
    member o of S, for z in S. A label z outside S has T[z, o] = base[o] >= redraw base[o], so its pairs never
    exceed this. With one member, or keep = 0, the output says nothing: 0.
    """
    support = rows.support
    least = np.where(support, rows.base, np.inf).min(axis=1)
    keep = rows.keep[:, 0]
    with np.errstate(divide="ignore"):
        answer = log1p_up(keep / (rows.redraw[:, 0] * least))
    answer[(support.sum(axis=1) < 2) | (keep == 0)] = 0.0
    return answer


def log1p_up(ratio: Any) -> Floats:
    """Return log(1 + ratio), not less than the exact value for a ratio that was rounded three times.

    Three roundings move it by less than 2^-51 relative, the logarithm by less than one step of the floats.
    """
    answer: Floats = np.nextafter(np.log1p(np.asarray(ratio, dtype=np.float64) * (1 + 2.0**-50)), np.inf)
    return answer


HALF_RANGE = 1 << 63
FULL_RANGE = 1 << 64
#: Up to this many classes the thresholds of all sizes cost less than finding out which sizes occur.
_ALL_SIZES = 64


def keep_threshold(keep: Fraction, redraw: Fraction, *, least: Fraction, share: Fraction) -> int:
    """Return h: a label is kept iff the upper 63 bits of its first word are below h.

    `least` is the smallest base probability of the claim, `share` the smallest one that the integer draw realises.
    """
    if redraw == 0:
        return HALF_RANGE
    odds = keep / redraw * min(share / least, Fraction(1))
    return math.floor(HALF_RANGE * odds / (1 + odds))


def uniform_share(size: int) -> Fraction:
    """Return the smallest probability of a label when a scaled 64-bit word picks one of `size`."""
    return Fraction(FULL_RANGE // size, FULL_RANGE)


def least_share(weights: list[int]) -> Fraction:
    """Return the smallest probability that cumulative integer weights realise (zeros are never drawn)."""
    return Fraction(min(w for w in weights if w > 0), HALF_RANGE)


def integer_weights(probabilities: npt.NDArray[np.floating[Any]], total: int = HALF_RANGE) -> list[int]:
    """Return integers that sum to `total` in the proportions given; what rounding leaves goes to the largest.

    Zero stays zero and anything positive gets at least 1: a label that can be kept must also be one that others can
    turn into, or its appearance would give it away.
    """
    exact = [Fraction(float(p)) for p in probabilities]
    norm = sum(exact)
    weights = [max(1, math.floor(total * p / norm)) if p else 0 for p in exact]
    weights[int(np.argmax(probabilities))] += total - sum(weights)
    return weights


def cumulative(weights: list[int]) -> Words:
    """Return the cumulative sums; label j is drawn iff the word lies in [c[j - 1], c[j])."""
    sums = np.cumsum(np.array(weights, dtype=np.uint64), dtype=np.uint64)
    return sums


def by_size(odds: float, sizes: npt.NDArray[np.integer[Any]], n_classes: int) -> Words:
    """Return h for every candidate-set size that occurs, for keep = odds / (odds + k) and a uniform base."""
    table = np.zeros(n_classes + 1, np.uint64)
    exact = None if math.isinf(odds) else Fraction(odds)
    occurring = range(1, n_classes + 1) if n_classes <= _ALL_SIZES else np.flatnonzero(np.bincount(sizes)).tolist()
    for size in occurring:
        if exact is None:
            table[size] = HALF_RANGE
            continue
        keep, redraw = exact / (exact + size), Fraction(size) / (exact + size)
        table[size] = keep_threshold(keep, redraw, least=Fraction(1, size), share=uniform_share(size))
    return table
