"""Channels made of other channels or of stored arrays: parts of a data set become one, files become channels again.

>>> from labeldp.channel import Channel, join_channels
>>> first, second = Channel(keep=0.5, base=[0.5, 0.5]), Channel(keep=0.25, base=[0.5, 0.5])
>>> whole = join_channels([first, second], counts=[2, 1])
>>> whole.index.tolist(), whole.keep.tolist()
([0, 0, 1], [0.5, 0.25])

A channel is three things (`FiniteChannel.header`, `row_arrays`, `example_arrays`): a few facts, arrays with an entry
per row, and arrays with an entry per example, of which one, named ``row``, may say which row an example has.
`build_channel` turns them back into the channel. Two channels whose facts are equal become one by putting their arrays
one after the other and moving the row numbers of the second past the rows of the first.

Design notes. Equal facts mean: the same kind, the same classes and outputs, and for candidate sets the same odds. What
differs in one of them cannot be written as one channel, and is refused. Parts that share their rows (stages of one
release, or one row that serves every stage) share them in the whole too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labeldp.arrays import Array, Ints
from labeldp.channel.finite import FiniteChannel
from labeldp.channel.labels import CandidateChannel, Channel
from labeldp.channel.matrix import MatrixChannel
from labeldp.errors import Described, invalid
from labeldp.validate import check_integer

OWNER = "join_channels"
#: The kinds of channels that `build_channel` knows, as their headers name them.
CHANNEL_KINDS = ("rows", "candidates", "matrix")


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
    if kind == "candidates":
        return CandidateChannel(
            odds=float(header["odds"]), members=examples["candidates"], n_classes=header["n_classes"]
        )
    if kind == "rows":
        return Channel(keep=rows["keep"], redraw=rows["redraw"], base=rows["base"], index=examples.get("row"))
    if kind == "matrix":
        flat = rows["transition"]
        transition = flat.reshape(len(flat), header["n_classes"], header["n_outputs"])
        return MatrixChannel(transition, index=examples.get("row"), outputs_are_labels=header["outputs_are_labels"])
    fix = "Upgrade labeldp to read what a newer version wrote."
    raise invalid("build_channel", "kind", "be rows, candidates or matrix", got=kind, fix=fix)


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
