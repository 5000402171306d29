"""Bad input is refused in the one shape: who, which argument, what it must be, what it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.errors import LabelDPError

FLIP = [[0.75, 0.25], [0.25, 0.75]]
BYTES = np.array([[3], [1]], np.uint8)
NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": -0.1, "base": [0.5, 0.5]}, r"^Channel: `keep` must be in \[0, 1\], got "),
        ({"keep": 1.1, "base": [0.5, 0.5]}, r"^Channel: `keep` must be in \[0, 1\], got "),
        ({"keep": NAN, "base": [0.5, 0.5]}, r"^Channel: `keep` must be in \[0, 1\], got"),
        ({"keep": [0.1, 0.2], "base": [0.5, 0.5]}, r"`keep` must have one value per row of `base`, got 2 for 1 rows"),
        ({"keep": 0.5, "base": [0.5, 0.4]}, r"`base` must have rows .* sum to 1, got a sum of 0\.9 in row 0"),
        ({"keep": 0.5, "base": [1.5, -0.5]}, r"`base` must have rows .* sum to 1, got -0\.5 in row 0"),
        ({"keep": 0.5, "base": [NAN, 1.0]}, r"`base` must have rows .* sum to 1, got NaN in row 0"),
        ({"keep": 0.5, "base": [np.inf, 1.0]}, r"`base` must have rows .* sum to 1, got an infinite value in row 0"),
        ({"keep": 0.5, "base": [[0.5, 0.5], [0.0, 0.0]], "index": [0]}, r"got only zeros in row 1"),
        ({"keep": 0.5, "base": ["a", "b"]}, r"`base` must hold numbers, got dtype"),
        ({"keep": 0.5, "base": []}, r"`base` must be a matrix with a column per class"),
        ({"keep": 0.5, "base": np.ones((1, 1, 1))}, r"`base` must be a matrix .*, got an array of shape \(1, 1, 1\)"),
        ({"keep": 0.5, "base": [0.5, 0.5], "redraw": 0.4}, r"`redraw` must be 1 - keep, got another value"),
        ({"keep": 0.5, "base": [0.5, 0.5], "redraw": [0.5, 0.5]}, r"`redraw` must have one value per row"),
        ({"keep": [0.5, 0.5], "base": FLIP}, r"`index` must say which of the 2 rows each example has, got None"),
        ({"keep": [0.5, 0.5], "base": FLIP, "index": [0, 2]}, r"`index` must be in \[0, 1\], got 2"),
        ({"keep": [0.5, 0.5], "base": FLIP, "index": [0, -1]}, r"`index` must be in \[0, 1\], got -1"),
        (
            {"keep": [0.5, 0.5], "base": FLIP, "index": [0.0, 1.0]},
            r"`index` must be a vector of row numbers, got .*float64",
        ),
        (
            {"keep": [0.5, 0.5], "base": FLIP, "index": [[0, 1]]},
            r"`index` must be a vector of row numbers, got .*\(1, 2\)",
        ),
    ],
)
def test_rows(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        Channel(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"odds": -1.0}, r"^CandidateChannel: `odds` must be >= 0, got -1\.0"),
        ({"odds": NAN}, r"^CandidateChannel: `odds` must be >= 0, got nan"),
        ({"members": BYTES.astype(int)}, r"`members` must be uint8 of shape \(n, 1\), got int64 of shape \(2, 1\)"),
        ({"members": BYTES[0]}, r"`members` must be uint8 of shape \(n, 1\), got uint8 of shape \(1,\)"),
        ({"n_classes": 9}, r"`members` must be uint8 of shape \(n, 2\), got uint8 of shape \(2, 1\)"),
        ({"n_classes": 1}, r"`members` must name only labels that exist, got a spare bit set"),
        (
            {"members": np.array([[1], [0]], np.uint8)},
            r"`members` must have a candidate in each row, got none in row 1",
        ),
    ],
)
def test_candidates(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"odds": 1.0, "members": BYTES, "n_classes": 2}
    assert CandidateChannel(**good).n_examples == 2
    with pytest.raises(LabelDPError, match=message):
        CandidateChannel(**{**good, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"transition": [0.5, 0.5]},
            r"^MatrixChannel: `transition` must be a K x M matrix, or one per group, got .*\(2,\)",
        ),
        ({"transition": np.ones((2, 0))}, r"`transition` must be a K x M matrix"),
        ({"transition": [[0.5, 0.4], [0.5, 0.5]]}, r"`transition` must have rows .*, got a sum of 0\.9 in row 0"),
        ({"transition": [[0.5, 0.5], [2.0, -1.0]]}, r"`transition` must have rows .*, got -1 in row 1"),
        ({"transition": [[0.5, NAN], [0.5, 0.5]]}, r"`transition` must have rows .*, got NaN in row 0"),
        ({"transition": [[0.5, 0.5]], "outputs_are_labels": True}, r"`transition` must be square .*, got 1 x 2"),
        ({"transition": [FLIP, FLIP]}, r"`index` must say which of 2 matrices each example has, got None"),
        ({"transition": [FLIP, FLIP], "index": [0, 2]}, r"`index` must be in \[0, 1\], got 2"),
    ],
)
def test_matrices(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        MatrixChannel(**arguments)


def test_a_matrix_without_a_left_inverse_names_its_group_and_rank() -> None:
    channel = MatrixChannel([FLIP, [[0.5, 0.5], [0.5, 0.5]]], index=[0, 1])
    with pytest.raises(LabelDPError, match=r"^MatrixChannel\.unbiased: the matrix of group 1 has rank 1 for 2 labels"):
        channel.unbiased(np.zeros((2, 2)), [0, 0])


def n_of(channel: FiniteChannel) -> int:
    return channel.n_examples if channel.n_examples is not None else 3


def test_questions_of_the_wrong_width_or_kind(channel: FiniteChannel) -> None:
    name, n, K = type(channel).__name__, n_of(channel), channel.n_classes
    columns = rf"must have {K} columns, one per class, got an array of shape"
    observed = np.zeros(n, int)
    with pytest.raises(LabelDPError, match=rf"^{name}: `probabilities` {columns}"):
        channel.forward(np.ones((n, K + 1)))
    with pytest.raises(LabelDPError, match=rf"^{name}: `probabilities` {columns}"):
        channel.forward(np.full((n, K), "a"))
    with pytest.raises(LabelDPError, match=rf"^{name}: `prior` {columns}"):
        channel.posterior(np.ones((n, K - 1)), observed)
    with pytest.raises(LabelDPError, match=rf"^{name}: `prior` must have {n} rows, one per example, got {n + 1} rows"):
        channel.posterior(np.ones((n + 1, K)), observed)
    if channel.outputs_are_labels:
        with pytest.raises(LabelDPError, match=rf"^{name}: `prior` {columns}"):
            channel.expected_accuracy(np.ones(K + 1))


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.full, r"`observed` must be in \[0, \d+\], got"),
        (lambda n, m: np.full(n, -1), r"`observed` must be in \[0, \d+\], got -1 \.\. -1"),
        (lambda n, m: np.zeros(n), r"`observed` must be integer codes, one per example, got .*float64"),
        (lambda n, m: np.zeros((n, 1), int), r"`observed` must be integer codes, one per example, got .*, 1\)"),
        (lambda n, m: np.full(n, "a"), r"`observed` must be integer codes, one per example"),
    ],
)
def test_observed_that_is_no_output(channel: FiniteChannel, observed: Any, message: str) -> None:
    codes = observed(n_of(channel), channel.n_outputs)
    with pytest.raises(LabelDPError, match=message):
        channel.posterior(np.ones(channel.n_classes), codes)
    with pytest.raises(LabelDPError, match=message):
        channel.likelihood(codes)


def test_another_number_of_examples_than_the_channel_has() -> None:
    channel = Channel(keep=0.5, base=[0.5, 0.5], index=[0, 0, 0])
    must = r"must have one entry for each of the 3 examples, got 2\. Use channel\.take\(rows\)"
    with pytest.raises(LabelDPError, match=rf"`probabilities` {must}"):
        channel.forward(np.full((2, 2), 0.5))
    with pytest.raises(LabelDPError, match=rf"`observed` {must}"):
        channel.posterior([0.5, 0.5], [0, 1])
    with pytest.raises(LabelDPError, match=rf"`observed` {must}"):
        channel.unbiased(np.zeros((2, 2)), [0, 1])
    with pytest.raises(LabelDPError, match=r"`prior` must have 3 rows, one per example, got 2 rows"):
        channel.expected_accuracy(np.full((2, 2), 0.5))


@pytest.mark.parametrize("i", [-1, 3])
def test_an_example_that_does_not_exist(i: int) -> None:
    channel = Channel(keep=0.5, base=[0.5, 0.5], index=[0, 0, 0])
    with pytest.raises(LabelDPError, match=rf"^Channel\.matrix: `i` must be in \[0, 2\], got {i}"):
        channel.matrix(i)


def test_a_prior_that_rules_out_what_was_observed_names_the_example() -> None:
    exact = Channel(keep=1.0, base=[0.5, 0.5])
    message = r"^Channel\.posterior: `prior` must allow what was observed, got zero for every label .* of example 1\."
    with pytest.raises(LabelDPError, match=message):
        exact.posterior([[0.0, 1.0], [0.0, 1.0]], [1, 0])
