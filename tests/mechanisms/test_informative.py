"""InformativeResponse: exact privacy, edge cases, information against the linear program, and the law of its answers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import labeldp
from labeldp import InformativeResponse, LabelDPError, RandomizedResponse, SensitiveLabels
from labeldp.channel import ArcChannel, BlockChannel, SetChannel, join_channels, safe_odds
from labeldp.channel.sets import arc_size, block_integers, block_shapes, score_mass
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import Mechanism, informative_worth, most_information, response_worth, subset_worth
from labeldp.testing import check_mechanism

WORDS = 1 << 64


def release(codes: Any, mechanism: Mechanism, *, n_classes: int, **options: Any) -> Any:
    return labeldp.privatize(SensitiveLabels(np.asarray(codes), n_classes=n_classes), mechanism, **options)


def random_priors(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Sharp and flat rows, some with all mass on one label, some with zeros."""
    rows = rng.dirichlet(np.full(k, rng.choice([0.05, 0.3, 1.0, 5.0])), n) + 1e-300
    rows[:: max(1, n // 2)] = np.eye(k)[rng.integers(0, k)]
    return rows / rows.sum(axis=1, keepdims=True)


# ------------------------------------------------------------------------------------------------- exact privacy


def test_integers_keep_the_claim_in_high_precision_for_ten_thousand_shapes() -> None:
    """A / B and (A + R) / (B + R) are at most e^epsilon, with 60 digits, and all words are used; nothing is tolerated."""
    rng = np.random.default_rng(17)
    mpmath.mp.dps = 60
    tried = 0
    while tried < 10_000:
        epsilon = float(np.exp(rng.uniform(math.log(1e-6), math.log(50.0))))
        k = int(rng.integers(2, 1001))
        b = int(rng.choice([k, rng.integers(2, k + 1), rng.integers(2, 17)]))
        d = int(rng.choice([1, rng.integers(1, b), arc_size(safe_odds(epsilon), b)]))
        inside, outside, rest = block_integers(safe_odds(epsilon), (b, d))
        assert d * inside + (b - d) * outside + rest == WORDS
        assert 0 <= rest < d
        assert 1 <= outside <= inside
        limit = mpmath.exp(mpmath.mpf(epsilon))
        assert mpmath.mpf(inside) <= limit * outside
        assert mpmath.mpf(inside + rest) <= limit * (outside + rest)
        tried += 1


@pytest.mark.parametrize("seed", range(8))
def test_blocks_of_random_priors_include_every_label_equally(seed: int) -> None:
    """Every label is in exactly d of b blocks, whatever the prior (10,000 rows): the one thing that privacy stands on."""
    rng = np.random.default_rng(seed)
    for _ in range(5):
        k = int(rng.choice([3, 5, 8, 10, 16, 17, 40, 100, 1000]))
        epsilon = float(np.exp(rng.uniform(math.log(1e-6), math.log(50.0))))
        channel = InformativeResponse(epsilon, seed=seed).channel(random_priors(rng, 250, k)).place(seed * 1000, 250)
        assert isinstance(channel, BlockChannel)
        for low in range(0, 250, 10):
            shapes, inside = channel._blocks(low, low + 10)
            there = np.arange(inside.shape[1]) < shapes[:, :1]
            assert ((inside & there[:, :, None]).sum(axis=1) == shapes[:, 1:]).all()
        assert channel.epsilon <= epsilon


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 50.0), st.integers(2, 12), st.integers(0, 2**32))
def test_stated_law_of_arcs_is_private_and_sums_to_one(epsilon: float, k: int, seed: int) -> None:
    channel = InformativeResponse(epsilon, seed=seed).channel(n_classes=k)
    matrix = channel.matrix()
    assert np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-12)  # K roundings
    assert channel.epsilon <= epsilon
    assert float(np.log(matrix.max(axis=0) / matrix.min(axis=0)).max()) <= epsilon + 1e-15 * (
        1 + epsilon
    )  # the log's own


def exact_rational_law(channel: BlockChannel, row: int) -> dict[int, dict[bytes, int]]:
    """Count the words of every set under every label from the integers, block by block."""
    shapes, inside = channel._blocks(row, row + 1)
    shape = tuple(int(one) for one in shapes[0])
    numbers = channel.integers[channel.shapes.index(shape)]
    laws: dict[int, dict[bytes, int]] = {}
    for label in range(channel.n_classes):
        law: dict[bytes, int] = {}
        for j in range(shape[0]):
            count = numbers.inside if inside[0, j, label] else numbers.outside
            count += numbers.rest if j == 0 else 0
            law[inside[0, j].tobytes()] = law.get(inside[0, j].tobytes(), 0) + count
        laws[label] = law
    return laws


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 4.0, 50.0])
def test_sampled_law_is_private_exactly(epsilon: float) -> None:
    """Counted in words, no set is more than e^epsilon times likelier under one label than under another."""
    rng = np.random.default_rng(3)
    mpmath.mp.dps = 60
    limit = mpmath.exp(mpmath.mpf(epsilon))
    for k in (3, 10, 25):
        channel = InformativeResponse(epsilon).channel(random_priors(rng, 4, k))
        assert isinstance(channel, BlockChannel)
        for row in range(4):
            laws = exact_rational_law(channel, row)
            for law in laws.values():
                assert sum(law.values()) == WORDS
            for answer in laws[0]:
                counts = [law[answer] for law in laws.values()]
                assert mpmath.mpf(max(counts)) <= limit * min(counts)


# ---------------------------------------------------------------------------------------------------- edge cases


def test_two_classes_are_randomized_response_in_law() -> None:
    """The same integers decide, so the same words give the same labels, with any prior."""
    for epsilon in (0.1, 1.0, 3.0):
        expected = RandomizedResponse(epsilon, n_classes=2).channel().matrix()
        assert np.allclose(InformativeResponse(epsilon).channel(n_classes=2).matrix(), expected, rtol=1e-12)
        for prior in ([0.5, 0.5], [0.99, 0.01], [1.0, 0.0]):
            channel = InformativeResponse(epsilon).channel([prior])
            matrix = channel.matrix()
            assert np.allclose(np.sort(matrix[0])[::-1][:2], [expected[0, 0], expected[0, 1]], rtol=1e-12)
            assert np.count_nonzero(matrix[0]) == 2


def test_a_prior_with_all_mass_on_one_label_asks_about_that_label() -> None:
    channel = InformativeResponse(1.0).channel(np.eye(10)[[4]])
    shapes, inside = channel._blocks(0, 1)
    alone = inside[0, : shapes[0, 0]].sum(axis=1) == 1
    assert inside[0, : shapes[0, 0]][alone][:, 4].any()
    assert channel.information()[0] > 0.99 * best_information(0.9 * np.eye(10)[4] + 0.01, safe_odds(1.0))


def test_epsilon_zero_says_nothing() -> None:
    words = np.array([[w, 0] for w in (0, 1, WORDS // 3, WORDS // 2, WORDS - 2, WORDS - 1)], np.uint64)
    arcs = InformativeResponse(0.0).channel(n_classes=6)
    assert arcs.epsilon == 0.0
    assert np.allclose(arcs.matrix(), 1 / 6)
    with pytest.raises(LabelDPError, match="epsilon = 0"):
        arcs.unbiased_targets([0])
    blocks = InformativeResponse(0.0).channel(np.full((6, 6), 1 / 6))
    assert (blocks.matrix(2) == blocks.matrix(2)[0]).all()
    assert len(blocks.draw(np.zeros(6, np.int32), words)) == 6


@pytest.mark.parametrize("k", [2, 10, 30])
def test_infinite_epsilon_returns_every_label(k: int) -> None:
    codes = np.arange(k).repeat(3)
    found = release(codes, InformativeResponse(math.inf), n_classes=k)
    assert (found.labels == codes).all()
    certain = np.eye(k)[np.zeros(len(codes), int)]  # the prior thinks the others impossible
    found = release(codes, InformativeResponse(math.inf), n_classes=k, prior=certain)
    assert (found.channel.likelihood(found.codes).argmax(axis=1) == codes).all()


@pytest.mark.parametrize("epsilon", [5e-324, 1e-30, 1e-19])
def test_an_epsilon_too_small_for_words_is_refused_before_anything_is_charged(epsilon: float, tmp_path: Any) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.db")
    for options in ({}, {"prior": np.full((4, 10), 0.1)}):
        with pytest.raises(LabelDPError, match="64-bit words"):
            release([0, 1, 2, 3], InformativeResponse(epsilon), n_classes=10, ledger=ledger, **options)
    assert list(ledger.entries()) == []


def test_ten_thousand_classes() -> None:
    k, rng = 10_000, np.random.default_rng(0)
    codes = rng.integers(0, k, 30)
    found = release(codes, InformativeResponse(3.0), n_classes=k, rng=0)
    assert found.codes.dtype == np.uint16
    assert (found.channel.members(found.codes).sum(axis=1) == found.channel.size).all()
    prior = rng.dirichlet(np.full(k, 0.01), 30)
    found = release(codes, InformativeResponse(3.0), n_classes=k, rng=0, prior=prior)
    assert found.codes.shape == (30, 1 + k // 8)
    assert found.channel.likelihood(found.codes).shape == (30, k)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": [[0.5, 0.6]]}, "sum of 1.1 in row 0"),
        ({"prior": [[0.5, 0.5], [1.5, -0.5]]}, "-0.5 in row 1"),
        ({"prior": [[math.nan, 1.0]]}, "NaN in row 0"),
        ({"prior": [[0.0, 0.0]]}, "only zeros"),
        ({"prior": np.full(3, 1 / 3), "n_classes": 4}, "4 columns"),
        ({"groups": [0, 1], "n_classes": 3}, "left out without a prior"),
        ({"prior": [0.5, 0.5], "groups": [0, 0]}, "row per group"),
        ({"prior": [[0.5, 0.5]], "groups": [0, 1]}, r"be in \[0, 0\]"),
        ({}, "`n_classes` must be given"),
        ({"n_classes": 1}, "nothing to protect"),
        ({"n_classes": 1 << 17}, "Merge some classes"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        InformativeResponse(1.0).channel(**options)


def test_bad_fields_are_refused() -> None:
    for make in (
        lambda: InformativeResponse(-1.0),
        lambda: InformativeResponse(math.nan),
        lambda: InformativeResponse(1.0, seed=-1),
        lambda: InformativeResponse(1.0, n_classes=1),
        lambda: InformativeResponse(1.0, n_classes=3).channel(n_classes=4),
    ):
        with pytest.raises(LabelDPError):
            make()


# -------------------------------------------------------------------------------------------------- information


def best_information(prior: np.ndarray, odds: float) -> float:
    """The linear program over all staircase patterns: the most information of any epsilon-private channel."""
    k = len(prior)
    patterns = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
    solved = linprog(
        -score_mass(patterns @ prior, odds), A_eq=(1 + odds * patterns).T, b_eq=np.ones(k), bounds=(0, None)
    )
    return float(-solved.fun)


def hard_priors(k: int) -> dict[str, np.ndarray]:
    ranks = np.arange(1, k + 1)
    rows = {
        "flat": np.ones(k),
        "top 60": np.r_[0.6, np.full(k - 1, 0.4 / (k - 1))],
        "top 90": np.r_[0.9, np.full(k - 1, 0.1 / (k - 1))],
        "two peaks": np.r_[0.5, 0.4, np.full(k - 2, 0.1 / (k - 2))],
        "zipf": 1.0 / ranks,
        "geometric": 0.6**ranks,
        "three peaks": np.r_[0.4, 0.38, 0.2, np.full(k - 3, 0.02 / (k - 3))],
        "falling": np.linspace(2, 0.4, k),
    }
    return {name: row / row.sum() for name, row in rows.items()}


@pytest.mark.parametrize("k", [8, 10])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0, 4.0])
def test_information_is_within_a_per_cent_of_the_linear_program(k: int, epsilon: float) -> None:
    """Under the prior that blocks are made for: nine tenths of the given one and a tenth of the uniform."""
    odds = safe_odds(epsilon)
    for name, prior in hard_priors(k).items():
        mixed = 0.9 * prior + 0.1 / k
        found = float(InformativeResponse(epsilon).channel(prior[None]).information()[0])
        best = best_information(mixed, odds)
        assert 0.99 * best <= found <= best * (1 + 1e-6), name  # the solver's tolerance


def test_no_answer_exceeds_the_bound_and_sets_beat_labels() -> None:
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        for prior in hard_priors(10).values():
            ours, theirs = informative_worth(epsilon, prior, rows=4), response_worth(epsilon, prior)
            assert ours.information <= most_information(epsilon) * (1 + 1e-9)
            assert theirs.information <= most_information(epsilon) * (1 + 1e-9)
    assert informative_worth(0.5, hard_priors(10)["flat"]).information > 2 * response_worth(0.5, [0.1] * 10).information
    plain = subset_worth(2.0, n_classes=10, size=1)
    assert subset_worth(2.0, n_classes=10).clean_labels > plain.clean_labels


def test_the_size_of_arcs_is_the_best_for_two_labels_in_doubt() -> None:
    for epsilon, k in itertools.product((0.1, 0.5, 1.0, 2.0, 4.0, 8.0), (2, 3, 10, 57)):
        size = arc_size(safe_odds(epsilon), k)
        best = max(subset_worth(epsilon, n_classes=k, size=d).clean_labels for d in range(1, k))
        assert subset_worth(epsilon, n_classes=k, size=size).clean_labels == pytest.approx(best, rel=1e-12)


# ------------------------------------------------------------------------------------------------- law and learning


@dataclass(frozen=True)
class Uninformed(Mechanism):
    """InformativeResponse that refuses a prior, so that the suite examines it without one."""

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Any:
        if prior is not None or groups is not None:
            raise LabelDPError("Uninformed: leave out the prior.")
        return InformativeResponse(self.epsilon).channel(n_classes=n_classes)


@pytest.mark.parametrize(
    "mechanism",
    [InformativeResponse(1.0), InformativeResponse(9.0), Uninformed(1.0), Uninformed(4.0), Uninformed(12.0)],
    ids=repr,
)
def test_it_conforms(mechanism: Mechanism) -> None:
    check_mechanism(mechanism)


def test_arcs_are_uniform_subsets_and_targets_are_unbiased() -> None:
    """Over circles and noise: inclusion of each label, and of pairs; a sound one fails less than once in a million times."""
    k, n, epsilon = 6, 60_000, 1.0
    found = release(np.full(n, 2), InformativeResponse(epsilon), n_classes=k, rng=5)
    members = found.channel.members(found.codes)
    p, q = found.channel.inclusion
    spread = 6.0 * 0.5 / math.sqrt(n)  # 15 + 6 numbers, each beyond 6 sigma once in 5e8
    assert abs(members[:, 2].mean() - p) < spread
    others = np.delete(np.arange(k), 2)
    assert (abs(members[:, others].mean(axis=0) - q) < spread).all()
    pairs = [(members[:, a] & members[:, b]).mean() for a, b in itertools.combinations(others, 2)]
    assert np.ptp(pairs) < 2 * spread
    targets = found.channel.unbiased_targets(found.codes)
    assert np.allclose(targets.sum(axis=1), 1.0)
    assert np.allclose(targets.mean(axis=0), np.eye(k)[2], atol=spread / (p - q))


def test_answers_of_a_prior_and_of_none_join() -> None:
    k, rng = 10, np.random.default_rng(0)
    codes, prior = rng.integers(0, k, 40), rng.dirichlet(np.ones(k), 40)
    first = release(codes, InformativeResponse(1.0), n_classes=k, rng=1)
    second = release(codes, InformativeResponse(1.0), n_classes=k, rng=2, prior=prior)
    sets, channel = first.channel.as_sets(first.codes)
    assert isinstance(channel, SetChannel)
    assert np.allclose(channel.likelihood(sets), first.channel.likelihood(first.codes), rtol=1e-15)
    whole = join_channels([channel, second.channel])
    both = np.concatenate([sets, second.codes])
    assert np.allclose(whole.likelihood(both)[40:], second.channel.likelihood(second.codes))
    halves = [first.channel.take(slice(0, 15)), first.channel.take(np.arange(15, 40)[::-1])]
    joined = join_channels(halves)
    order = np.r_[np.arange(15), np.arange(15, 40)[::-1]]
    assert isinstance(joined, ArcChannel)
    assert np.array_equal(joined.likelihood(first.codes[order]), first.channel.likelihood(first.codes)[order])


def test_rows_that_share_a_prior_do_not_share_their_blocks() -> None:
    """One prior for all would else ask every row the same question, and never tell the labels of one block apart."""
    prior = np.r_[0.82, np.full(9, 0.02)]
    found = release(np.zeros(4000, int), InformativeResponse(0.5), n_classes=10, prior=prior, rng=0)
    sets = {row.tobytes() for row in found.codes}
    assert len(sets) > 50
    posterior = found.channel.posterior(np.full(10, 0.1), found.codes)
    assert np.linalg.matrix_rank(posterior - posterior.mean(axis=0), tol=1e-6) >= 9


def test_likelihood_posterior_and_draws_do_not_depend_on_spans() -> None:
    k, rng = 12, np.random.default_rng(1)
    codes, prior = rng.integers(0, k, 300), rng.dirichlet(np.ones(k), 300)
    whole = release(codes, InformativeResponse(1.5), n_classes=k, prior=prior, rng=4)
    streamed = release(codes, InformativeResponse(1.5), n_classes=k, prior=iter([prior[:7], prior[7:]]), rng=4)
    assert np.array_equal(whole.codes, streamed.codes)
    part = whole.take(np.arange(5, 250, 3))
    assert np.array_equal(part.channel.likelihood(part.codes), whole.channel.likelihood(whole.codes)[5:250:3])
    assert (whole.channel.posterior(prior, whole.codes).sum(axis=1) - 1 < 1e-12).all()
    with pytest.raises(LabelDPError, match="not released"):
        whole.channel.forward(prior)
    with pytest.raises(LabelDPError, match="no unbiased"):
        whole.channel.unbiased_targets(whole.codes)


def test_shapes_stay_small_and_exact_integers_follow_them() -> None:
    for k in (2, 3, 10, 16, 17, 1000, 10_000):
        shapes = block_shapes(safe_odds(1.0), k)
        assert len(shapes) <= 255
        assert all(0 < d < b for b, d in shapes)
    assert block_shapes(safe_odds(1.0), 2) == ((2, 1),)
    assert max(b for b, _ in block_shapes(safe_odds(1.0), 10)) <= 16
    numbers = block_integers(1.0, (16, 7))
    assert Fraction(numbers.inside, numbers.outside) <= 2
