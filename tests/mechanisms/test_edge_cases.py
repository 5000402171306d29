"""The corners of the mechanisms: extreme epsilons and sizes, and input that must be refused in the one shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.channel import Channel
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import (
    ClusterRR,
    MeanInformation,
    Mechanism,
    OptimalResponse,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
)
from labeldp.release import SensitiveLabels, privatize
from labeldp.testing import check_mechanism
from labeldp.testing.suite import best_accuracy

PRIOR = np.array([0.5, 0.3, 0.2])
EVEN = np.array([[0.5, 0.5]])


def matrix_of(mechanism: Mechanism, prior: np.ndarray = PRIOR) -> np.ndarray:
    given = None if isinstance(mechanism, RandomizedResponse) else prior
    return np.asarray(mechanism.channel(given, n_classes=len(prior)).matrix())


# ------------------------------------------------------------------------------------------------------ extreme epsilon


def test_epsilon_zero_tells_nothing():
    np.testing.assert_array_equal(matrix_of(RandomizedResponse(0.0)), np.full((3, 3), 1 / 3))
    np.testing.assert_array_equal(matrix_of(RRTopK(0.0, k=2)), [[0.5, 0.5, 0.0]] * 3)
    np.testing.assert_array_equal(matrix_of(RRWithPrior(0.0)), [[1.0, 0.0, 0.0]] * 3)


@pytest.mark.parametrize("n_classes", [2, 10, 64, 65, 1000])
def test_epsilon_zero_answers_the_first_likeliest_label(n_classes: int):
    tied = np.zeros((3, n_classes))
    tied[0, [0, n_classes - 1]] = 0.5
    tied[1, n_classes - 1] = 1.0
    tied[2] = 1.0 / n_classes
    channel = RRWithPrior(0.0).channel(tied)
    assert channel.sizes.tolist() == [1, 1, 1]
    assert channel.base.argmax(axis=1).tolist() == [0, n_classes - 1, 0]
    assert channel.epsilon == 0.0
    for prior in (tied, tied[0]):
        labels = SensitiveLabels(np.array([0, 1, n_classes - 1]), n_classes=n_classes)
        assert privatize(labels, RRWithPrior(0.0), prior=prior).codes[0] == 0


@pytest.mark.parametrize("epsilon", [1e-300, 1e-17])
def test_a_tiny_epsilon_is_not_exceeded(epsilon: float):
    for mechanism in (RandomizedResponse(epsilon), RRTopK(epsilon, k=2), RRWithPrior(epsilon)):
        check_mechanism(mechanism, n_classes=3)
        assert (
            mechanism.channel(None if isinstance(mechanism, RandomizedResponse) else PRIOR, n_classes=3).epsilon
            <= epsilon
        )
    best = RRWithPrior(epsilon).channel(PRIOR).expected_accuracy(PRIOR)
    assert best == pytest.approx(best_accuracy(PRIOR, epsilon), abs=1e-15)  # one rounding of a number below one


@pytest.mark.parametrize("epsilon", [50.0, 800.0, 1e308, math.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_huge_epsilon_neither_overflows_nor_hides(epsilon: float, dtype: type):
    labels = np.arange(3000) % 3
    for mechanism in (RandomizedResponse(epsilon), RRTopK(epsilon, k=3), RRWithPrior(epsilon)):
        prior = None if isinstance(mechanism, RandomizedResponse) else PRIOR.astype(dtype)
        release = privatize(SensitiveLabels(labels, n_classes=3), mechanism, prior=prior, rng=0)
        # A label is redrawn with probability 2 e^-50 < 4e-22 at most: 3000 of them never are.
        np.testing.assert_array_equal(release.codes, labels)
        assert release.channel.epsilon <= epsilon


@pytest.mark.parametrize("n_classes", [3, 70])
def test_infinite_epsilon_is_the_identity_also_where_the_prior_is_zero(n_classes: int):
    prior = np.zeros(n_classes)
    prior[1] = 1.0
    np.testing.assert_array_equal(matrix_of(RRWithPrior(math.inf), prior), np.eye(n_classes))
    labels = SensitiveLabels(np.arange(n_classes), n_classes=n_classes)
    per_example = privatize(labels, RRWithPrior(math.inf), prior=np.tile(prior, (n_classes, 1)))
    np.testing.assert_array_equal(per_example.codes, np.arange(n_classes))


def test_top_k_at_infinite_epsilon_still_redraws_the_others():
    np.testing.assert_array_equal(matrix_of(RRTopK(math.inf, k=2)), [[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]])


# -------------------------------------------------------------------------------------------------------- ties and sets


def test_top_k_breaks_ties_by_the_lower_label():
    channel = RRTopK(1.0, k=2).channel(np.array([[0.25, 0.25, 0.25, 0.25], [0.1, 0.3, 0.3, 0.3]]))
    assert (channel.base > 0).tolist() == [[True, True, False, False], [False, True, True, False]]


def test_top_one_is_constant_and_free():
    channel = RRTopK(5.0, k=1).channel(PRIOR)
    assert channel.epsilon == 0.0
    np.testing.assert_array_equal(channel.matrix(), [[1.0, 0.0, 0.0]] * 3)


def test_without_prior_it_is_randomized_response():
    np.testing.assert_array_equal(
        RRWithPrior(1.0).channel(n_classes=4).matrix(), RandomizedResponse(1.0, n_classes=4).channel().matrix()
    )


def test_top_all_is_randomized_response():
    # The same numbers in another order of roundings.
    np.testing.assert_allclose(matrix_of(RRTopK(1.0, k=3)), matrix_of(RandomizedResponse(1.0)), rtol=1e-15)


# ---------------------------------------------------------------------------------------------------------- many classes


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", ["flat", "steep", "random"])
def test_a_hundred_thousand_classes(dtype: type, shape: str):
    size = 100_000
    at = np.arange(size, dtype=np.float64)
    row = {"flat": np.ones(size), "steep": 1 / (1 + at), "random": np.random.default_rng(0).exponential(size=size)}[
        shape
    ]
    prior = np.tile(row / row.sum(), (2, 1)).astype(dtype)
    labels = SensitiveLabels(np.array([3, size - 1]), n_classes=size)
    for mechanism in (RRWithPrior(1.0), RRTopK(1.0, k=5)):
        release = privatize(labels, mechanism, prior=prior, rng=0)
        inside = release.channel.base > 0
        assert inside[np.arange(2), release.codes].all()
        assert 1.0 - 1e-9 <= release.channel.epsilon <= 1.0
    # Relative: the accuracies are near 1e-5. Single precision keeps seven digits of each probability; sums are double.
    best = best_accuracy(prior[0].astype(np.float64), 1.0)
    got = RRWithPrior(1.0).channel(prior).expected_accuracy(prior)[0]
    assert got == pytest.approx(best, rel=1e-12 if dtype is np.float64 else 1e-5)


def test_randomized_response_over_a_hundred_thousand_classes():
    release = privatize(np.arange(100_000), RandomizedResponse(30.0, n_classes=100_000), rng=0)
    # Pr[a label changes] <= 1e5 e^-30 = 1e-8; of 100,000 labels, 1e-3 are expected to: the seed is fixed.
    assert (release.codes == np.arange(100_000)).mean() > 0.999
    assert release.codes.dtype == np.uint32


# ------------------------------------------------------------------------------------------------------------ bad input

W, K2 = RRWithPrior(1.0), RRTopK(1.0, k=2)


def bad_prior(width: int, value: float, row: int = 3) -> np.ndarray:
    prior = np.full((5, width), 1.0 / width)
    prior[row, 1] = value
    return prior


@pytest.mark.parametrize("mechanism", [W, K2, RRWithPrior(math.inf), RRWithPrior(0.0)], ids=str)
@pytest.mark.parametrize("width", [3, 64, 70])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "NaN"),
        (math.inf, "an infinite value"),
        (-math.inf, "an infinite value"),
        (-0.1, "-0.1"),
        (0.9, "a sum of"),
    ],
)
def test_bad_rows_are_named(mechanism: Mechanism, width: int, dtype: type, value: float, words: str):
    prior = bad_prior(width, value).astype(dtype)
    with pytest.raises(LabelDPError, match=rf"`prior` must have rows of probabilities .* {words}.* in row 3\. "):
        mechanism.channel(prior)
    stream = iter([np.full((4, width), 1.0 / width, dtype), prior])
    with pytest.raises(LabelDPError, match=r"in row 7\. "):
        mechanism.channel(stream)
    with pytest.raises(LabelDPError, match=r"in row 0\. "):
        mechanism.channel(prior[3])


@pytest.mark.parametrize("mechanism", [W, K2], ids=str)
@pytest.mark.parametrize("width", [3, 70])
def test_an_all_zero_row_is_named(mechanism: Mechanism, width: int):
    prior = np.full((5, width), 1.0 / width)
    prior[2] = 0.0
    with pytest.raises(LabelDPError, match=r"only zeros in row 2\. Use a uniform row"):
        mechanism.channel(prior)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "one class": (lambda: RandomizedResponse(1.0, n_classes=1), "`n_classes` must be an integer in .* got 1"),
    "one class in a prior": (lambda: W.channel(np.ones((4, 1))), "`n_classes` must be an integer in .* got 1"),
    "negative epsilon": (lambda: RRWithPrior(-1.0), "RRWithPrior: `epsilon` must be >= 0, got -1.0. Use math.inf"),
    "NaN epsilon": (lambda: RRTopK(math.nan, k=2), "RRTopK: `epsilon` must be >= 0, got nan"),
    "text epsilon": (lambda: RandomizedResponse("1"), "`epsilon` must be a number, got '1'"),
    "boolean epsilon": (lambda: RandomizedResponse(True), "`epsilon` must be a number, got True"),
    "no k": (lambda: RRTopK(1.0, k=0), "`k` must be an integer >= 1, got 0"),
    "k is not whole": (lambda: RRTopK(1.0, k=2.0), "`k` must be an integer >= 1, got 2.0"),
    "k above K": (lambda: RRTopK(1.0, k=4).channel(PRIOR), r"`k` must be an integer in \[1, 3\], got 4"),
    "too narrow": (lambda: W.channel(PRIOR, n_classes=4), "`prior` must have 4 columns, one per class, got 3 columns"),
    "too narrow per example": (lambda: W.channel(EVEN, n_classes=3), "`prior` must have 3 columns"),
    "three axes": (lambda: W.channel(np.ones((2, 2, 2))), "`prior` must be a matrix with a column per class"),
    "text prior": (lambda: W.channel(np.array([["a", "b"]])), "`prior` must hold numbers"),
    "no columns": (lambda: W.channel([]), "`prior` must be a matrix with a column per class"),
    "no batch": (lambda: W.channel(iter([])), "`prior` must have at least one batch, got none"),
    "two precisions": (
        lambda: W.channel(iter([EVEN, EVEN.astype(np.float32)])),
        "one precision in all batches, got float64 and then float32",
    ),
    "two widths": (lambda: W.channel(iter([EVEN, PRIOR[None]])), "`prior` must have 2 columns, .* got 3 columns"),
    "prior refused": (lambda: RandomizedResponse(1.0).channel(PRIOR), "`prior` must be left out"),
    "groups refused": (lambda: RandomizedResponse(1.0).channel(groups=[0], n_classes=2), "`groups` must be left out"),
    "other K": (lambda: RandomizedResponse(1.0, n_classes=3).channel(n_classes=4), "`n_classes` must be 3"),
    "no prior": (lambda: K2.channel(n_classes=3), "`prior` must be given, got None"),
    "one row, groups": (lambda: W.channel(PRIOR, groups=[0, 0]), "`prior` must have a row per group, got one row"),
    "groups for batches": (
        lambda: W.channel(iter([EVEN]), groups=[0]),
        "`groups` must be left out when the prior comes",
    ),
    "group out of range": (lambda: W.channel(np.array([PRIOR, PRIOR]), groups=[0, 2]), r"must be in \[0, 1\], got 2"),
    "groups missing": (
        lambda: privatize(np.array([0, 1, 2]), W, prior=np.array([PRIOR, PRIOR])),
        "`prior` must have one row per label, got 2 for 3 labels",
    ),
    "too few groups": (
        lambda: privatize(np.array([0, 1, 2]), W, prior=np.array([PRIOR, PRIOR]), groups=[0, 1]),
        "`groups` must have one row per label, got 2 for 3 labels",
    ),
    "label outside": (
        lambda: privatize(np.array([0, 3]), W, prior=PRIOR),
        "`labels` must be among the classes, got another one in row 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_one_shape(name: str):
    call, message = REFUSED[name]
    with pytest.raises(LabelDPError, match=message):
        call()


def test_an_empty_batch_is_no_batch_of_its_own():
    channel = W.channel(iter([np.empty((0, 3)), np.array([PRIOR]), np.empty((0, 3))]))
    assert channel.n_examples == 1


def test_mechanisms_are_values():
    assert RRWithPrior(1) == RRWithPrior(1.0)
    assert hash(RRTopK(1.0, k=2)) == hash(RRTopK(1.0, k=2))
    with pytest.raises(AttributeError):
        W.epsilon = 2.0  # type: ignore[misc]
    assert labeldp.RRWithPrior is RRWithPrior


@pytest.mark.parametrize(
    "mechanism",
    [
        RandomizedResponse(1.0, n_classes=4),
        RRTopK(1.0, k=2),
        RRWithPrior(1.0),
        ClusterRR(1.0, split=0.25, prune=True),
        OptimalResponse(1.0, objective=MeanInformation(values=(1, 2, 3), spread=0.5)),
    ],
)
def test_the_same_mechanism_at_another_epsilon(mechanism: Mechanism) -> None:
    other = mechanism.with_epsilon(0.5)
    assert other.guarantee.epsilon() == 0.5
    assert other.with_epsilon(1.0) == mechanism
    with pytest.raises(LabelDPError, match="`epsilon` must be >= 0"):
        mechanism.with_epsilon(-1.0)


def test_a_mechanism_without_an_epsilon_cannot_be_set_to_another() -> None:
    class Constant(Mechanism):
        guarantee = Guarantee.pure(0.0)

        def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
            return Channel(keep=0.0, base=[1.0, 0.0])

    with pytest.raises(LabelDPError, match=r"Constant: `epsilon` must be a field of the mechanism.*with_epsilon"):
        Constant().with_epsilon(1.0)
