"""Channels that become one: every answer of the whole is that of its parts, and what cannot be one is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from labeldp.channel import (
    ArcChannel,
    CandidateChannel,
    Channel,
    FiniteChannel,
    MatrixChannel,
    build_channel,
    join_answers,
    join_channels,
)
from labeldp.errors import LabelDPError


def packed(*sets: list[int]) -> npt.NDArray[np.uint8]:
    return np.packbits(np.asarray(sets, bool), axis=1, bitorder="little")


def rows(seed: int, *shape: int) -> npt.NDArray[np.float64]:
    drawn = np.random.default_rng(seed).exponential(size=shape)
    normalised: npt.NDArray[np.float64] = drawn / drawn.sum(axis=-1, keepdims=True)
    return normalised


#: Groups that can be joined: the channels and how many examples each has.
JOINABLE: dict[str, Callable[[], list[tuple[FiniteChannel, int]]]] = {
    "candidates": lambda: [
        (CandidateChannel(odds=1.7, members=packed([1, 1, 0], [0, 0, 1]), n_classes=3), 2),
        (CandidateChannel(odds=1.7, members=packed([1, 1, 1]), n_classes=3), 1),
    ],
    "one row each": lambda: [
        (Channel(keep=0.3, base=[0.2, 0.5, 0.3]), 4),
        (Channel(keep=0.9, base=[0.5, 0.0, 0.5]), 3),
        (Channel(keep=0.3, base=[0.2, 0.5, 0.3]), 2),
    ],
    "rows by group": lambda: [
        (Channel(keep=[0.1, 0.5], base=[[0.2, 0.5, 0.3], [0.5, 0.5, 0.0]], index=[1, 0, 1]), 3),
        (Channel(keep=0.2, base=[1 / 3, 1 / 3, 1 / 3]), 5),
        (Channel(keep=[0.999], base=[[1e-9, 0.5, 0.5 - 1e-9]], index=[0]), 1),
    ],
    "one matrix each": lambda: [(MatrixChannel(rows(1, 3, 5)), 2), (MatrixChannel(rows(2, 3, 5)), 4)],
    "matrices by group": lambda: [
        (MatrixChannel(rows(3, 2, 4, 4), index=[0, 1, 1], outputs_are_labels=True), 3),
        (MatrixChannel(rows(4, 4, 4), outputs_are_labels=True), 2),
        (MatrixChannel(rows(3, 2, 4, 4), index=[1], outputs_are_labels=True), 1),
    ],
    "an empty group": lambda: [(Channel(keep=0.3, base=[0.5, 0.5]), 0), (Channel(keep=0.4, base=[0.5, 0.5]), 2)],
}


@pytest.fixture(params=list(JOINABLE))
def groups(request: pytest.FixtureRequest) -> list[tuple[FiniteChannel, int]]:
    """The channels of one case and their numbers of examples."""
    return JOINABLE[request.param]()


def join(groups: list[tuple[FiniteChannel, int]]) -> FiniteChannel:
    return join_channels([channel for channel, _ in groups], counts=[count for _, count in groups])


def test_the_whole_answers_as_its_parts_do(groups: list[tuple[FiniteChannel, int]]) -> None:
    whole = join(groups)
    assert whole.n_examples == sum(count for _, count in groups)
    assert whole.epsilon == max(channel.epsilon for channel, _ in groups)
    generator = np.random.default_rng(5)
    start = 0
    for channel, count in groups:
        part, observed = whole.take(slice(start, start + count)), np.zeros(count, int)
        prior = generator.dirichlet(np.ones(whole.n_classes), size=count)
        np.testing.assert_array_equal(part.likelihood(observed), channel.likelihood(observed))
        np.testing.assert_array_equal(part.forward(prior), channel.forward(prior))
        for i in range(count):
            np.testing.assert_array_equal(whole.matrix(start + i), channel.matrix(i))
        start += count


def test_the_whole_draws_what_its_parts_draw(groups: list[tuple[FiniteChannel, int]]) -> None:
    """Many rounds of the same words; a uniform row for all may differ with probability 3 / 2^63 a draw."""
    whole = join(groups)
    n = int(whole.n_examples or 0)
    generator = np.random.default_rng(6)
    for _ in range(100):
        words = generator.integers(0, 1 << 64, size=(n, 2), dtype=np.uint64)
        codes = generator.integers(0, whole.n_classes, n).astype(np.int32)
        drawn, start = whole.draw(codes, words), 0
        for channel, count in groups:
            part = slice(start, start + count)
            np.testing.assert_array_equal(drawn[part], channel.draw(codes[part], words[part]))
            start += count


def test_rows_that_parts_share_are_stored_once() -> None:
    release = Channel(keep=[0.1, 0.5], base=[[0.2, 0.8], [0.5, 0.5]], index=[0, 1, 1, 0, 1])
    whole = join_channels([release.take(slice(0, 2)), release.take(slice(2, 5))])
    assert isinstance(whole, Channel)
    assert len(whole.base) == 2
    np.testing.assert_array_equal(whole.index, release.index)


@pytest.mark.parametrize("counts", [None, [3, 4]])
def test_one_row_that_serves_all_serves_the_whole(counts: list[int] | None) -> None:
    one, same = Channel(keep=0.3, base=[0.5, 0.5]), Channel(keep=0.3, base=[0.5, 0.5])
    assert join_channels([one, same], counts=counts) is one
    assert join_channels([one], counts=None if counts is None else [3]) is one


ROW, MATRIX = Channel(keep=0.3, base=[0.5, 0.5]), MatrixChannel([[0.5, 0.5], [0.25, 0.75]])
SETS = CandidateChannel(odds=1.0, members=packed([1, 1], [0, 1]), n_classes=2)


@pytest.mark.parametrize(
    ("channels", "counts", "message"),
    [
        ([], None, "at least one channel"),
        ([ROW, MATRIX], [1, 1], "`kind` rows and matrix"),
        ([SETS, ROW], [2, 1], "`kind` candidates and rows"),
        ([ROW, Channel(keep=0.3, base=[0.5, 0.25, 0.25])], [1, 1], "`n_classes` 2 and 3"),
        ([MATRIX, MatrixChannel([[0.5, 0.25, 0.25]] * 2)], [1, 1], "`n_outputs` 2 and 3"),
        ([MATRIX, MatrixChannel(np.eye(2), outputs_are_labels=True)], [1, 1], "`outputs_are_labels` False and True"),
        ([SETS, CandidateChannel(odds=2.0, members=packed([1, 1]), n_classes=2)], None, "`odds` 1.0 and 2.0"),
        ([ROW, Channel(keep=0.4, base=[0.5, 0.5])], None, "serves any number of examples"),
        ([SETS, SETS], [2], "1 for 2 channels"),
        ([SETS, SETS], [2, 3], "3 for a channel of 2 examples"),
        ([ROW, Channel(keep=0.4, base=[0.5, 0.5])], [2, -1], "an integer >= 0"),
    ],
)
def test_what_cannot_be_one_channel_is_refused(
    channels: list[FiniteChannel], counts: list[int] | None, message: str
) -> None:
    with pytest.raises(LabelDPError, match=message):
        join_channels(channels, counts=counts)


def test_a_channel_is_built_again_from_what_it_stores(channel: FiniteChannel) -> None:
    built = build_channel(channel.header(), rows=channel.row_arrays(), examples=channel.example_arrays())
    assert type(built) is type(channel)
    assert built.header() == channel.header()
    assert built.epsilon == channel.epsilon
    for stored, again in (
        (channel.row_arrays(), built.row_arrays()),
        (channel.example_arrays(), built.example_arrays()),
    ):
        assert stored.keys() == again.keys()
        for name, array in stored.items():
            np.testing.assert_array_equal(array, again[name])


def test_an_unknown_kind_of_channel_is_refused() -> None:
    # Between them may stand a kind that another test has made.
    with pytest.raises(LabelDPError, match=r"be one of arcs, candidates, .*matrix, numbers, rows, sets, got 'cube'"):
        build_channel({"kind": "cube"}, rows={}, examples={})


def arcs_of_one_label(*epsilons: float) -> tuple[npt.NDArray[np.int64], FiniteChannel]:
    """Return two answers of two classes at each epsilon, and their channel."""
    parts = [
        (np.array([0, 1]), ArcChannel(odds=np.expm1(epsilon), size=1, n_classes=2, seed=7)) for epsilon in epsilons
    ]
    return join_answers(parts)


@pytest.mark.parametrize("epsilons", [[(1.0,), (2.0,)], [(1.0, 2.0), (2.0,)], [(2.0,), (0.5, 1.0)]])
def test_labels_of_several_epsilons_are_one_release(epsilons: list[tuple[float, ...]]):
    """Parts that answer with one label, arcs or labels of several epsilons already, keep what each says of its labels."""
    parts = [arcs_of_one_label(*some) for some in epsilons]
    codes, whole = join_answers(parts)
    assert whole.outputs_are_labels
    assert codes.tolist() == [code for answers, _ in parts for code in answers.tolist()]
    apart = np.concatenate([channel.likelihood(answers) for answers, channel in parts])
    assert np.allclose(whole.likelihood(codes), apart, rtol=1e-12)  # a few roundings
    told = [np.exp(epsilon) / (1 + np.exp(epsilon)) for some in epsilons for epsilon in some for _ in range(2)]
    assert np.allclose(whole.likelihood(codes)[np.arange(len(codes)), codes], told, rtol=1e-12)  # by the definition
    assert max(epsilon for some in epsilons for epsilon in some) == pytest.approx(whole.epsilon, rel=1e-12)
