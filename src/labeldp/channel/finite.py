"""`FiniteChannel`: what every channel answers, however it is stored.

A channel is public: it says how labels were randomized, never what they were. Learners ask the channel, not the
mechanism, so that every mechanism trains in the same way.

>>> from labeldp.channel import Channel
>>> coin = Channel(keep=0.5, base=[0.5, 0.5])
>>> coin.likelihood([0, 1]).tolist()
[[0.75, 0.25], [0.25, 0.75]]

Mathematics. With T[y, o] = Pr[output = o | true label = y], for one example:

| question | answer |
|---|---|
| `epsilon` | the largest log T[y, o] / T[z, o] |
| `likelihood` at the output o | the column T[., o] |
| `forward` of a model's p | p T, the law of the output |
| `posterior` under a prior p | p[y] T[y, o], divided by its sum over y |
| `unbiased` loss | a function v of the output with sum_o T[y, o] v[o] = loss[y] |
| `expected_accuracy` under a prior p | sum_y p[y] T[y, y] |

Design notes. The base class checks arguments and walks the examples in spans; a kind of channel supplies the formulas
for one span. No array of n x K x K is ever made, and no temporary larger than a span.

*Storing and joining.* A channel is three things: a few facts (`header`), arrays with an entry per row (`row_arrays`), and
arrays with an entry per example (`example_arrays`), of which one, named ``row``, may say which row an example has.
`build_channel` turns them back into the channel. `join_channels` makes one channel of several groups of examples: two
channels whose facts are equal become one by putting their arrays one after the other and moving the row numbers of the
second past the rows of the first. Equal facts mean: the same kind, the same classes and outputs, and for candidate sets
the same odds. What differs in one of them cannot be written as one channel, and is refused. Parts that share their rows
(stages of one release, or one row that serves every stage) share them in the whole too.

*Integers.* The sampler compares 64-bit words with integers, rounded so that no claim is exceeded. To keep a label the upper
63 bits of a word are compared with an integer ``h`` in [0, 2^63], so that "never" and "always" are exact. To redraw
uniformly from k labels the word is scaled: each label gets floor(2^64 / k) or one more of the 2^64 words. To redraw from a
general row, the upper 63 bits are looked up in cumulative integer weights that sum to 2^63 exactly. The claim of a row is
the ratio R = 1 + keep / (redraw base_min). With the integer weights the smallest share is m (perhaps a little under
base_min), and the sampled channel has ratio 1 + h / ((2^63 - h) m). It stays within the claim iff h / (2^63 - h) <= q,
where q = (keep / redraw) (m / base_min): so h = floor(2^63 q / (1 + q)), computed in exact rational arithmetic. These
numbers are made once per row (or per size of a candidate set) and shared by all examples, so exact arithmetic costs
nothing; the compiled loops of `labeldp.kernels` only compare.

>>> half = Fraction(1, 2)
>>> keep_threshold(half, half, least=half, share=half) == HALF_RANGE // 2
True
>>> first, second = Channel(keep=0.5, base=[0.5, 0.5]), Channel(keep=0.25, base=[0.5, 0.5])
>>> whole = join_channels([first, second], counts=[2, 1])
>>> whole.index.tolist(), whole.keep.tolist()
([0, 0, 1], [0.5, 0.25])
"""

from __future__ import annotations

import abc
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Array, Bools, Floats, Ints, Words
from labeldp.errors import Described, invalid
from labeldp.validate import check_integer, code_dtype

Rows = slice | Ints

#: Formulas work on this many examples at a time, and on fewer where rows are long (8 MiB of float64 at most, unless one
#: row is longer), so that temporaries stay small whatever n and K are.
SPAN = 1 << 13
SPAN_CELLS = 1 << 20


class FiniteChannel(abc.ABC):
    """T[y, o] = Pr[output = o | true = y], for K labels, M outputs and any number of examples.

    A kind of channel that is to be stored names itself, ``class Channel(FiniteChannel, kind="rows")``: its headers bear
    that name, and `build_channel` finds the class by it.
    """

    #: Every kind that can be stored, by the name in its header.
    kinds: ClassVar[dict[str, type[FiniteChannel]]] = {}

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            FiniteChannel.kinds[kind] = cls

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
    def outputs_are_numbers(self) -> bool:
        """Whether an output stands for a number, as those of a `NumericChannel` do."""
        return False

    @property
    @abc.abstractmethod
    def epsilon(self) -> float:
        """The exact pure epsilon: the largest log T[y, o] / T[z, o] over examples, y, z and o."""

    @abc.abstractmethod
    def take(self, rows: Rows) -> FiniteChannel:
        """Return the channel of a subset of examples, in the order of `rows`: a slice (no copy) or an array of numbers.

        A channel that serves any number of examples returns itself.
        """

    @abc.abstractmethod
    def draw(self, codes: Ints, words: Words) -> Array:
        """Return an output for every true label in `codes` (int32, 0 .. K-1), from two words per example.

        `words` has shape (n, 2) and comes from `labeldp.random`. Only `labeldp.privatize` and the engines call this
        with real labels. words[r] decides example r alone, so batches and threads do not change the answer.
        """

    def place(self, start: int, count: int) -> FiniteChannel:
        """Return the channel of the rows at positions `start` .. `start + count - 1` of a data set.

        Where public chance goes by position (`labeldp.channel.sets`) it says which; every other channel returns itself.
        """
        return self

    def released(self) -> FiniteChannel:
        """Return what a release carries of the channel: the channel itself, unless some of it is needed for the draw alone."""
        return self

    def listed(self) -> FiniteChannel:
        """Return the channel with all that it knows of each example in `example_arrays`, as joining needs it."""
        return self

    def empty_codes(self, n: int) -> Any:
        """Return room for the outputs of n examples, of the type that a release has."""
        return np.empty(n, code_dtype(self.n_outputs))

    def are_outputs(self, observed: Any) -> Bools:
        """Return, for each code, whether the channel has such an output."""
        answer: Bools = np.asarray(observed) < self.n_outputs
        return answer

    def outputs_of(self, observed: Any) -> Ints:
        """Return the number of each code among the outputs of its example: the columns of `matrix` and `forward`."""
        return self._check_observed(observed)

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the integers that `draw` compares words with; parts that are taken afterwards share them."""

    def matrix(self, i: int = 0) -> Floats:
        """Return the dense K x M matrix T[true, output] of example i, as a new array."""
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
        codes = self._check_observed(observed)
        matrix = self._check_per_example("losses", losses, len(codes))
        out = np.empty(len(codes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._unbiased(low, high, matrix[low:high], codes[low:high])
        return out

    def forward(self, probabilities: Any) -> Floats:
        """Return the law of the output (n, M) under a model's `probabilities` (n, K): p T, row by row.

        Its logarithm at what was observed is the forward loss, which is fitted by the true law of the labels.
        """
        matrix = np.atleast_2d(np.asarray(probabilities))
        matrix = self._check_per_example("probabilities", matrix, len(matrix))
        out = np.empty((len(matrix), self.n_outputs))
        for low, high in self._spans(len(matrix)):
            out[low:high] = self._forward(low, high, matrix[low:high])
        return out

    def posterior(self, prior: Any, observed: Any) -> Floats:
        """Return Pr[true label | output] for each example (n, K), by Bayes' rule.

        Parameters
        ----------
        prior : array of shape (K,) or (n, K)
            What is believed of each label before the output is seen; weights that need not sum to one.
        observed : array of shape (n,)
            The output that was released, as a code.

        Raises
        ------
        LabelDPError
            If the prior of an example gives no mass to any label that could have given its output.
        """
        codes = self._check_observed(observed)
        matrix = self._check_per_example("prior", prior, len(codes))
        if not np.all(matrix >= 0):
            owner = f"{type(self).__name__}.posterior"
            raise invalid(owner, "prior", "have no negative or missing entries", got=Described("one or more"))
        out = np.empty((len(codes), self.n_classes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._normalise(low, self._joint(low, high, matrix[low:high], codes[low:high]))
        return out

    def likelihood(self, observed: Any) -> Floats:
        """Return T[y, o] for every label y at the output o of each example (n, K): what a forward loss needs.

        -log sum_y p[y] T[y, o] is the forward loss of a model p, and its gradient in the logits is p minus the
        posterior that p and this column give.
        """
        codes = self._check_observed(observed)
        out = np.empty((len(codes), self.n_classes))
        one = np.ones(self.n_classes)
        for low, high in self._spans(len(codes)):
            out[low:high] = self._joint(low, high, np.broadcast_to(one, (high - low, len(one))), codes[low:high])
        return out

    def possible(self, observed: Any) -> Bools:
        """Return, for each example, whether some label gives its output a probability above 0 (n,).

        Where epsilon is finite that is every label or none. Whatever a channel drew is possible under it, so that one
        `False` shows that something else made the output.
        """
        codes = self._check_observed(observed)
        rows = self.example_arrays().get("row")
        if rows is None and self.n_examples is not None:
            out = np.empty(len(codes), np.bool_)
            one = np.ones(self.n_classes)
            for low, high in self._spans(len(codes)):
                joint = self._joint(low, high, np.broadcast_to(one, (high - low, len(one))), codes[low:high])
                out[low:high] = joint.any(axis=1)
            return out
        # Few rows serve many examples: each pair of a row and an output is asked about once.
        pairs = codes if rows is None else rows.astype(np.int64) * self.n_outputs + codes
        first = np.full(int(pairs.max(initial=-1)) + 1, -1, np.int64)
        first[pairs[::-1]] = np.arange(len(pairs))[::-1]
        asked = first[first >= 0]
        known = np.zeros(len(first), np.bool_)
        known[pairs[asked]] = self.take(asked).likelihood(codes[asked]).any(axis=1) if len(asked) else False
        answer: Bools = known[pairs]
        return answer

    def unbiased_targets(self, observed: Any) -> Floats:
        """Return c (n, K) with sum_y c[y] loss[y] = `unbiased(loss, observed)`: signed soft targets that sum to one."""
        self._check_invertible()
        codes = self._check_observed(observed)
        out = np.empty((len(codes), self.n_classes))
        for low, high in self._spans(len(codes)):
            out[low:high] = self._unbiased_targets(low, high, codes[low:high])
        return out

    def expected_accuracy(self, prior: Any = None) -> Any:
        """Return Pr[output = true] for y ~ prior (uniform if none is given), per example.

        A channel that serves any number of examples, asked about one prior, answers with one number. Outputs that are
        not labels cannot be right or wrong: then this is an error.
        """
        self._check_outputs_are_labels()
        given = np.full(self.n_classes, 1.0 / self.n_classes) if prior is None else np.asarray(prior)
        n = self.n_examples if self.n_examples is not None else (1 if given.ndim == 1 else len(given))
        matrix = self._check_per_example("prior", given, n)
        out = np.empty(n)
        for low, high in self._spans(n):
            out[low:high] = self._accuracy(low, high, matrix[low:high])
        return float(out[0]) if self.n_examples is None and given.ndim == 1 else out

    # How it is stored

    @abc.abstractmethod
    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays, as plain JSON values; ``kind`` names the class for `build_channel`."""

    @classmethod
    @abc.abstractmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel whose `header`, `row_arrays` and `example_arrays` these are; the constructor checks them."""

    @abc.abstractmethod
    def row_arrays(self) -> dict[str, Array]:
        """Arrays with one entry per row, by name; rows are what several examples may share."""

    @abc.abstractmethod
    def example_arrays(self) -> dict[str, Array]:
        """Arrays with one entry per example, by name; ``row`` is the row that an example has."""

    def digest(self) -> str:
        """Return a SHA-256 of all that decides, beside the noise, what is drawn of a label: facts, rows and examples.

        A kind of channel that draws by more than it stores adds that.
        """
        arrays = {**self.row_arrays(), **self.example_arrays()}
        parts = [type(self).__name__.encode(), json.dumps(self.header(), sort_keys=True, default=str).encode()]
        return hash_parts([*parts, *(part for name in sorted(arrays) for part in (name.encode(), arrays[name]))])

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

    def _normalise(self, low: int, joint: Floats) -> Floats:
        total = joint.sum(axis=1, keepdims=True)
        if not np.all(total > 0):
            example = low + int(np.argmin(total[:, 0] > 0))
            got = Described(f"zero for every label that could give the output of example {example}")
            owner = f"{type(self).__name__}.posterior"
            raise invalid(owner, "prior", "allow what was observed", got=got, fix="Smooth the prior.")
        answer: Floats = joint / total
        return answer

    def _check_observed(self, observed: Any) -> Ints:
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

    def _check_per_example(self, name: str, values: Any, n: int) -> Floats:
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
    """Yield consecutive [low, high) that cover n examples with rows of `width` numbers, short enough for a temporary."""
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


def log1p_up(ratio: Any) -> Floats:
    """Return log(1 + ratio), not less than the exact value for a ratio that was rounded three times.

    Three roundings move it by less than 2^-51 relative, the logarithm by less than one step of the floats.
    """
    answer: Floats = np.nextafter(np.log1p(np.asarray(ratio, dtype=np.float64) * (1 + 2.0**-50)), np.inf)
    return answer


# ---------------------------------------------------------------------------------- storing and joining

OWNER = "join_channels"


def join_channels(channels: Sequence[FiniteChannel], *, counts: Sequence[int] | None = None) -> FiniteChannel:
    """Return the channel of several groups of examples, one group after the other.

    Parameters
    ----------
    channels : sequence of channels
        One per group, all of one kind, with the same classes, the same outputs and, for candidate sets, the same odds.
    counts : sequence of int, optional
        How many examples each group has. Needed where a channel serves any number of examples (its `n_examples` is
        None); where it has a number, the count must be that number.

    Returns
    -------
    FiniteChannel
        Example i of the whole is randomized as it was in its group: `matrix`, `likelihood`, `posterior` and the other
        answers are those of the parts, and `epsilon` is the largest of theirs. The same words draw the same outputs.
        One exception: a group with one uniform row for all draws without a search, and in a whole with other rows by a
        search, so that an output differs in law by at most K / 2^63.

    Notes
    -----
    One channel is returned as it is. If all serve any number of examples and are equal, the first of them is returned:
    it serves the whole too, with or without `counts`.

    Raises
    ------
    LabelDPError
        If the list is empty, the channels are of different kinds or have different facts, or a count is missing.
    """
    parts = list(channels)
    if not parts:
        raise invalid(OWNER, "channels", "hold at least one channel", got=Described("none"))
    sizes = _count_examples(parts, counts)
    if len(parts) > 1:
        parts = [part.listed() for part in parts]
    _check_facts(parts)
    starts, rows = _stack_rows(parts)
    if len(parts) == 1 or (len(set(starts)) == 1 and all(part.n_examples is None for part in parts)):
        return parts[0]
    if any(size is None for size in sizes):
        fix = "Pass counts=, how many examples each channel has."
        raise invalid(OWNER, "counts", "be given where a channel serves any number of examples", got=None, fix=fix)
    pieces = [
        _example_arrays(part, int(size or 0), start) for part, size, start in zip(parts, sizes, starts, strict=True)
    ]
    examples = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return build_channel(parts[0].header(), rows=rows, examples=examples)


def build_channel(
    header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
) -> FiniteChannel:
    """Return the channel that `header`, `row_arrays` and `example_arrays` of a channel describe.

    The constructors' own checks apply, so arrays from an untrusted file either make a channel or raise `LabelDPError`.
    An unknown ``kind`` raises it too. A missing array raises `KeyError`: the caller knows which file lacks it.
    """
    kind = header["kind"]
    if kind not in FiniteChannel.kinds:
        known, fix = ", ".join(sorted(FiniteChannel.kinds)), "Upgrade labeldp to read what a newer version wrote."
        raise invalid("build_channel", "kind", f"be one of {known}", got=kind, fix=fix)
    return FiniteChannel.kinds[kind].from_arrays(header, rows=rows, examples=examples)


def _count_examples(parts: list[FiniteChannel], counts: Sequence[int] | None) -> list[int | None]:
    """Return the number of examples of each part; None where neither the channel nor `counts` says it."""
    if counts is None:
        return [part.n_examples for part in parts]
    if len(counts) != len(parts):
        got = Described(f"{len(counts)} for {len(parts)} channels")
        raise invalid(OWNER, "counts", "have one entry per channel", got=got)
    sizes = [check_integer(OWNER, "counts", count, least=0) for count in counts]
    for part, size in zip(parts, sizes, strict=True):
        if part.n_examples not in (None, size):
            got = Described(f"{size} for a channel of {part.n_examples} examples")
            raise invalid(OWNER, "counts", "be the numbers of examples that the channels have", got=got)
    return list(sizes)


def _check_facts(parts: list[FiniteChannel]) -> None:
    """Refuse channels that differ in more than their rows and examples, and name the first fact that differs."""
    expected = parts[0].header()
    for part in parts[1:]:
        facts = part.header()
        for name in {**expected, **facts}:
            if facts.get(name) != expected.get(name):
                got = Described(f"`{name}` {expected.get(name)} and {facts.get(name)}")
                fix = "Keep the parts apart, or make them with one mechanism at one epsilon."
                raise invalid(OWNER, "channels", "be of one kind with the same outputs", got=got, fix=fix)


def _stack_rows(parts: list[FiniteChannel]) -> tuple[list[int], dict[str, Array]]:
    """Return where each part's rows start in the whole, and the rows; a part with the rows of an earlier one adds none."""
    kept: list[tuple[int, dict[str, Array]]] = []
    starts: list[int] = []
    length = 0
    for part in parts:
        rows = part.row_arrays()
        start = next((start for start, seen in kept if _are_equal(seen, rows)), None)
        if start is None:
            start, length = length, length + max((len(array) for array in rows.values()), default=0)
            kept.append((start, rows))
        starts.append(start)
    return starts, {name: np.concatenate([rows[name] for _, rows in kept]) for name in kept[0][1]}


def _are_equal(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Whether two sets of row arrays are the same; parts taken from one channel share them, which costs nothing to see."""
    return all(one[name] is other[name] or np.array_equal(one[name], other[name]) for name in one)


def _example_arrays(part: FiniteChannel, size: int, start: int) -> dict[str, Array]:
    """Return the arrays of a part's examples, with the rows they name moved by `start`."""
    arrays = part.example_arrays()
    if not part.row_arrays():
        return arrays
    index: Ints = arrays.get("row", np.zeros(size, np.int64))
    return {**arrays, "row": index + start}


# -------------------------------------------------------------------------------------------- integers

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


def integer_weights(probabilities: Floats, total: int = HALF_RANGE) -> list[int]:
    """Return integers that sum to `total` in the proportions given; what rounding leaves goes to the largest.

    Zero stays zero and anything positive gets at least 1: a label that can be kept must also be one that others can
    turn into, or its appearance would give it away.
    """
    exact = [Fraction(float(p)) for p in probabilities]
    norm = sum(exact)
    weights = [max(1, math.floor(total * p / norm)) if p else 0 for p in exact]
    weights[int(np.argmax(probabilities))] += total - sum(weights)
    return weights


def cumulative_weights(weights: list[int]) -> Words:
    """Return the cumulative sums; label j is drawn iff the word lies in [c[j - 1], c[j])."""
    sums = np.cumsum(np.array(weights, dtype=np.uint64), dtype=np.uint64)
    return sums


def keep_thresholds(odds: float, sizes: Ints, n_classes: int) -> Words:
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


def hash_parts(parts: Iterable[bytes | Array]) -> str:
    """Return a SHA-256 of bytes and arrays, one after the other, such that no two lists of them have the same.

    >>> hash_parts([b"ab", b"c"]) == hash_parts([b"a", b"bc"])
    False
    """
    made = hashlib.sha256()
    for part in parts:
        head = b"" if isinstance(part, bytes) else f"{part.dtype.str}{part.shape}:".encode()
        body = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        for one in (head, body):
            made.update(len(one).to_bytes(8, "big"))
            made.update(one)
    return made.hexdigest()
