"""RRWithPrior chooses the best candidate set: against the linear program of Theorem 3, a sort, and the algebra."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from labeldp.channel import safe_odds
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.testing.suite import best_accuracy, rounding_of, worst_log_ratio

KINDS = ("flat", "random", "peaked", "ties", "zeros", "geometric")


def random_priors(kind: str, n: int, n_classes: int, generator: np.random.Generator) -> np.ndarray:
    """Return n random priors of one kind."""
    if kind == "flat":
        rows = 1.0 + 1e-3 * generator.random((n, n_classes))
        rows[0] = 1.0
    elif kind == "random":
        rows = generator.exponential(size=(n, n_classes))
    elif kind == "peaked":
        rows = generator.gamma(0.05, size=(n, n_classes)) + 1e-12
    elif kind == "ties":
        rows = generator.integers(1, 4, size=(n, n_classes)).astype(float)
    elif kind == "zeros":
        rows = generator.exponential(size=(n, n_classes)) * (generator.random((n, n_classes)) < 0.4)
        rows[:, generator.integers(n_classes)] += 0.1
    else:
        rows = generator.permuted(0.7 ** np.tile(np.arange(n_classes), (n, 1)), axis=1) + 1e-300
    return rows / rows.sum(axis=1, keepdims=True)


# ------------------------------------------------------------------------------------- the linear program of Theorem 3


def best_by_linear_program(prior: np.ndarray, epsilon: float) -> float:
    """Maximise sum_y p_y T[y, y] over all matrices with T[y, o] <= e^epsilon T[z, o] and rows that sum to one."""
    size = len(prior)
    pairs = [(y, z, o) for o in range(size) for y in range(size) for z in range(size) if y != z]
    private = np.zeros((len(pairs), size, size))
    for r, (y, z, o) in enumerate(pairs):
        private[r, y, o], private[r, z, o] = 1.0, -math.exp(epsilon)
    sums = np.zeros((size, size, size))
    sums[np.arange(size), np.arange(size), :] = 1.0
    # 1e-10 is the least that HiGHS accepts.
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog(
        -np.diag(prior).ravel(),
        A_ub=private.reshape(len(pairs), -1),
        b_ub=np.zeros(len(pairs)),
        A_eq=sums.reshape(size, -1),
        b_eq=np.ones(size),
        bounds=(0, 1),
        method="highs",
        options=options,
    )
    assert solved.status == 0, solved.message
    return float(-solved.fun)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", range(2, 9))
def test_same_optimum_as_the_linear_program(kind: str, n_classes: int):
    generator = np.random.default_rng(1000 + n_classes)
    for epsilon in (0.01, 0.3, 1.0, 3.0, 8.0)[n_classes % 2 :]:
        prior = random_priors(kind, 2, n_classes, generator)[1]
        channel = RRWithPrior(epsilon).channel(prior)
        exact = best_by_linear_program(prior, epsilon)
        # 1e-9: ten times the solver's own tolerance; labeldp's error is some 1e-15.
        assert channel.expected_accuracy(prior) == pytest.approx(exact, abs=1e-9)


def test_the_linear_program_tells_a_wrong_k():
    prior = np.full(4, 0.25)
    exact = best_by_linear_program(prior, 1.0)
    for k in (1, 2, 3):
        assert RRTopK(1.0, k=k).channel(prior).expected_accuracy(prior) < exact - 1e-3


# ------------------------------------------------------------------------------------------------------- against a sort


def accuracy_by_size(rows: np.ndarray, epsilon: float) -> np.ndarray:
    """Return w_k for k = 1 .. K of each row, by sorting, in double precision."""
    mass = np.cumsum(np.sort(rows.astype(np.float64), axis=1)[:, ::-1], axis=1)
    return mass / (1 + np.arange(rows.shape[1]) * math.exp(-epsilon))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n_classes", "n"), [(2, 300), (3, 300), (10, 300), (64, 150), (65, 150), (257, 60), (1000, 30)]
)
def test_candidate_sets_are_those_of_a_sort(n_classes: int, n: int, dtype: type):
    generator = np.random.default_rng(n_classes)
    # Double: sums of 1000 terms round by less than 1e-13. Single: by up to K 2^-24, and some such loss is inherent.
    tolerance = 1e-12 if dtype is np.float64 else n_classes * 2.0**-24
    for kind in KINDS:
        rows = random_priors(kind, n, n_classes, generator).astype(dtype)
        for epsilon in (0.01, 1.0, 4.0, 12.0):
            channel = RRWithPrior(epsilon).channel(rows)
            inside = np.unpackbits(channel.members, axis=1, count=n_classes, bitorder="little").astype(bool)
            sizes = inside.sum(axis=1)
            assert np.array_equal(sizes, channel.sizes)
            assert sizes.min() >= 1
            w = accuracy_by_size(rows, epsilon)
            got = w[np.arange(n), sizes - 1]
            assert np.all(got >= w.max(axis=1) - tolerance)
            # No label outside is likelier than one inside, and tied labels enter together.
            least_in = np.where(inside, rows, np.inf).min(axis=1)
            most_out = np.where(inside, -np.inf, rows).max(axis=1)
            assert np.all((least_in > most_out) | (sizes == 1) & (least_in >= most_out))
            if dtype is np.float64:
                clear = (w >= w.max(axis=1, keepdims=True) - 1e-12).sum(axis=1) == 1
                assert np.array_equal(sizes[clear], w.argmax(axis=1)[clear] + 1)
                np.testing.assert_allclose(channel.expected_accuracy(rows), w.max(axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_classes", "n"), [(2, 200), (10, 200), (65, 60), (300, 2)])
def test_the_guarantee_is_the_worst_log_ratio(n_classes: int, n: int, dtype: type):
    generator = np.random.default_rng(7 * n_classes)
    for kind in KINDS:
        rows = random_priors(kind, n, n_classes, generator).astype(dtype)
        for epsilon in (0.01, 1.0, 8.0):
            for mechanism in (RRWithPrior(epsilon), RRTopK(epsilon, k=2)):
                channel = mechanism.channel(rows)
                assert channel.epsilon <= epsilon
                for i in range(min(n, 8)):
                    exact = worst_log_ratio(channel.matrix(i))
                    assert exact <= mechanism.guarantee.epsilon() + rounding_of(epsilon)
                    expected = epsilon if channel.sizes[i] >= 2 else 0.0
                    assert exact == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 10.0, 30.0, 50.0])
def test_randomized_response_is_tight(n_classes: int, epsilon: float):
    channel = RandomizedResponse(epsilon, n_classes=n_classes).channel()
    exact = worst_log_ratio(channel.matrix())
    assert channel.epsilon <= epsilon
    assert exact <= epsilon + rounding_of(epsilon)
    assert exact == pytest.approx(epsilon, abs=1e-9)


# ------------------------------------------------------------------------------------------------------------ the algebra


def priors(most: int = 12) -> st.SearchStrategy[np.ndarray]:
    """Small whole numbers as weights: many ties and zeros, and never nothing at all."""
    weights = st.lists(st.integers(0, 6), min_size=2, max_size=most).filter(any)
    return weights.map(lambda w: np.array(w) / sum(w))


@given(prior=priors(30), epsilon=st.floats(0.001, 12))
def test_accuracy_rises_to_one_peak_and_falls(prior: np.ndarray, epsilon: float):
    steps = np.diff(accuracy_by_size(prior[None], epsilon)[0])
    # Steps below 1e-14 are ties that rounding decides.
    signs = np.sign(np.where(np.abs(steps) < 1e-14, 0.0, steps))
    signs = signs[signs != 0]
    assert np.all(np.diff(signs) <= 0)


@given(prior=priors(), epsilon=st.floats(0.001, 12), data=st.data())
def test_permuting_classes_permutes_the_answer(prior: np.ndarray, epsilon: float, data: st.DataObject):
    order = np.array(data.draw(st.permutations(range(len(prior)))))
    plain = RRWithPrior(epsilon).channel(prior).matrix()
    moved = RRWithPrior(epsilon).channel(prior[order]).matrix()
    w = np.sort(accuracy_by_size(prior[None], epsilon)[0])
    if w[-1] - w[-2] > 1e-12:  # at an exact tie between two sizes the order of a sum may decide, and both are optimal
        np.testing.assert_array_equal(moved, plain[np.ix_(order, order)])


@given(prior=priors(), low=st.floats(0, 12), high=st.floats(0, 12))
@pytest.mark.parametrize("kind", [RRWithPrior, lambda epsilon: RRTopK(epsilon, k=2)], ids=["with prior", "top 2"])
def test_more_epsilon_never_means_less_accuracy(kind: type[RRWithPrior], prior: np.ndarray, low: float, high: float):
    low, high = min(low, high), max(low, high)
    less, more = (kind(e).channel(prior).expected_accuracy(prior) for e in (low, high))
    assert less <= more + 1e-14  # rounding of two sums


@given(prior=priors(), epsilon=st.floats(0, 12))
def test_never_worse_than_any_top_k(prior: np.ndarray, epsilon: float):
    best = RRWithPrior(epsilon).channel(prior).expected_accuracy(prior)
    every: list[Mechanism] = [RRTopK(epsilon, k=k) for k in range(1, len(prior) + 1)]
    assert best >= max(m.channel(prior).expected_accuracy(prior) for m in every) - 1e-14
    assert best == pytest.approx(best_accuracy(prior, epsilon), abs=1e-12)


@given(epsilon=st.floats(0, 800))
def test_safe_odds_stay_below(epsilon: float):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        assert mpmath.log1p(mpmath.mpf(safe_odds(epsilon))) <= mpmath.mpf(epsilon)
