"""The leaf of the door for real vectors: noise of the stated law, a guarantee that covers it, and labels that stay in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from labeldp.accounting import Ledger, analytic_gaussian_sigma
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit
from labeldp.random import BitStream, NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.vectors import (
    FLOATING_POINT,
    OnGrid,
    Procedure,
    VectorQuery,
    curate,
    find_step,
    measure_vector,
    normals,
    uniforms,
)


class Shares(VectorQuery):
    """The share of each class, many times over so that there is much noise to look at."""

    def __init__(self, copies: int = 1, value: float | None = None) -> None:
        self.copies, self.value, self.calls = copies, value, 0

    def size(self, *, n_classes: int, n_examples: int) -> int:
        return n_classes * self.copies

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        return math.sqrt(2.0 * self.copies) / n_examples

    def exact(self, codes: np.ndarray, *, n_classes: int) -> np.ndarray:
        self.calls += 1
        shares = np.bincount(codes, minlength=n_classes) / len(codes)
        return np.tile(shares if self.value is None else np.full(n_classes, self.value), self.copies)


class FirstLabel(Procedure):
    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        return Guarantee.pure(2.0)

    def run(self, codes: np.ndarray, *, n_classes: int, bits: BitStream) -> np.ndarray:
        return np.array([float(codes[0]) + normals(bits, 1)[0]])


class ExactFirstLabel(FirstLabel):
    exact_noise = True


def test_noise_is_normal_with_the_calibrated_sigma_and_others_are_caught():
    """A Kolmogorov-Smirnov test at level 1e-6 on 20,000 draws; two thirds or three halves of the noise are rejected.

    Steps are at most 2^-11 sigma, so that the discrete law is within 2e-4 of the continuous one: far below what 20,000
    draws can tell.
    """
    query = Shares(copies=10_000)
    measured = measure_vector([False, True], query, epsilon=1.0, delta=1e-5, rng=3)
    noise = (measured.value - 0.5) / measured.sigma
    assert kstest(noise, "norm").pvalue > 1e-6
    assert kstest(noise * 2 / 3, "norm").pvalue < 1e-6
    assert kstest(noise * 3 / 2, "norm").pvalue < 1e-6
    least = analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=query.sensitivity(n_classes=2, n_examples=2))
    assert least <= measured.sigma <= (1 + 1e-4) * least  # rounding costs 2e-5, the exact account next to nothing


def test_the_answer_is_a_whole_number_of_public_steps():
    """The step is a power of two that labels have no part in, and the quotient of every answer by it is an integer."""
    steps = set()
    for labels in ([0, 1, 1], [0, 0, 0]):
        boxed = SensitiveLabels(labels, classes=[0, 1])
        measured = measure_vector(boxed, Shares(copies=50), epsilon=0.3, delta=1e-6)
        steps.add(measured.step)
        assert math.frexp(measured.step)[0] == 0.5
        assert np.array_equal(measured.value / measured.step, np.rint(measured.value / measured.step))
        assert measured.sigma >= 2**11 * measured.step
        assert not np.signbit(measured.value[measured.value == 0]).any()
    assert len(steps) == 1


@given(
    seed=st.integers(min_value=0, max_value=2**32),
    size=st.integers(min_value=1, max_value=40),
    reach=st.floats(min_value=1e-250, max_value=1e250),
    epsilon=st.sampled_from([0.1, 1.0, 8.0]),
)
def test_rounding_never_moves_neighbours_further_than_the_sensitivity_that_is_measured(
    seed: int, size: int, reach: float, epsilon: float
):
    """In integers, exactly: |k - k'|^2 <= (claimed)^2, for neighbours at the stated distance, large or small, or beyond 2^52 steps."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=size) * reach * 10.0 ** rng.uniform(-3, 20)
    move = rng.normal(size=size)
    move *= reach / np.linalg.norm(move)

    class Two(VectorQuery):
        def size(self, *, n_classes: int, n_examples: int) -> int:
            return size

        def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
            return math.nextafter(math.hypot(*((base + move) - base).tolist()) * (1 + 1e-12), math.inf)

        def exact(self, codes: np.ndarray, *, n_classes: int) -> np.ndarray:
            return base + move if codes[0] else base

    query = Two()
    claimed = query.sensitivity(n_classes=2, n_examples=1)
    if not 2.0**-900 < claimed < 2.0**900:  # base swallowed the move
        return
    step = find_step(query, claimed, size, epsilon, 1e-5)
    grid = OnGrid(query=query, reach=claimed, size=size, step=step)
    one, two = (grid.exact(np.array([k]), n_classes=2).tolist() for k in (0, 1))
    square = sum((a - b) ** 2 for a, b in zip(one, two, strict=True))
    assert math.isqrt(square) <= grid.sensitivity(n_classes=2).l2
    assert sum(abs(a - b) for a, b in zip(one, two, strict=True)) <= grid.sensitivity(n_classes=2).l1
    assert grid.sensitivity(n_classes=2).l2 * step <= claimed * (1 + 2e-5)  # and it costs next to nothing


def test_answers_beyond_the_bounds_are_brought_back_and_do_not_fail():
    """An error would tell of labels: infinite and huge entries come back as 2^52 steps with noise."""
    for value in (math.inf, -math.inf, 1e300):
        measured = measure_vector([False, True], Shares(value=value), epsilon=1.0, delta=1e-5, rng=0)
        np.testing.assert_allclose(measured.value, math.copysign(2.0**52 * measured.step, value), rtol=1e-9)


def test_guarantee_meets_the_budget_and_names_trust_but_no_floating_point():
    labels = SensitiveLabels([0, 1, 1], classes=[0, 1])
    measured = measure_vector(labels, Shares(), epsilon=0.3, delta=1e-6, rng=0)
    assert measured.guarantee.epsilon(1e-6) <= 0.3
    assert measured.guarantee.epsilon(1e-6) > 0.2999
    assert measured.guarantee.trust is Trust.CURATOR
    assert measured.guarantee.assumptions == (SEEDED,)
    assert measured.seeded
    assert "SEEDED" in repr(measured)
    read_off = measure_vector([0, 1, 1, 0], Shares(), epsilon=0.3, delta=1e-6)
    assert any("read off" in text for text in read_off.guarantee.assumptions)
    assert not read_off.seeded


def test_unit_trust_and_assumptions_are_the_query_s_own():
    class Records(Shares):
        unit = Unit.RECORD_REPLACE
        trust = Trust.NO_ONE
        assumptions = ("records are whole",)

    labels = SensitiveLabels([0, 1, 1], classes=[0, 1])
    for epsilon in (1.0, math.inf):
        promise = measure_vector(labels, Records(), epsilon=epsilon, delta=1e-5).guarantee
        assert promise.unit is Unit.RECORD_REPLACE
        assert promise.trust is Trust.NO_ONE
        assert promise.assumptions == ("records are whole",)


def test_secure_noise_differs_and_seeds_repeat():
    one, two = (measure_vector([False, True], Shares(), epsilon=1.0, delta=1e-5).value for _ in range(2))
    assert not np.array_equal(one, two)
    three, four = (measure_vector([False, True], Shares(), epsilon=1.0, delta=1e-5, rng=7).value for _ in range(2))
    assert np.array_equal(three, four)


def test_a_secure_key_serves_one_vector_and_one_procedure():
    key = NoiseKey.from_os()
    measure_vector([False, True], Shares(), epsilon=1.0, delta=1e-5, rng=key)
    with pytest.raises(PrivacyError, match="before"):
        measure_vector([False, True], Shares(), epsilon=1.0, delta=1e-5, rng=key)
    other = NoiseKey.from_os()
    curate([True, False], FirstLabel(), rng=other)
    with pytest.raises(PrivacyError, match="before"):
        curate([True, False], FirstLabel(), rng=other)


def test_infinite_epsilon_adds_nothing_and_promises_nothing():
    measured = measure_vector([False, True, True, True], Shares(), epsilon=math.inf, delta=1e-5)
    assert measured.value.tolist() == [0.25, 0.75]
    assert measured.guarantee.epsilon(0.5) == math.inf


def test_what_no_label_can_move_is_free():
    class Fixed(Shares):
        def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
            return 0.0

    measured = measure_vector([False, True, True, True], Fixed(value=0.3), epsilon=1.0, delta=1e-5)
    assert measured.value.tolist() == [0.3, 0.3]
    assert measured.guarantee.epsilon() == 0.0


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta"),
    ],
)
def test_bad_budgets_are_refused_before_labels_are_touched(budget: dict[str, float], match: str):
    query = Shares()
    with pytest.raises(LabelDPError, match=match):
        measure_vector([False, True], query, **budget)
    assert query.calls == 0


@pytest.mark.parametrize("reach", [1e-300, 1e300])
def test_sensitivities_that_no_float_grid_serves_are_refused(reach: float):
    class Extreme(Shares):
        def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
            return reach

    query = Extreme()
    with pytest.raises(LabelDPError, match="sensitivity"):
        measure_vector([False, True], query, epsilon=1.0, delta=1e-5)
    assert query.calls == 0


def test_the_ledger_is_charged_first_and_refuses_over_budget(tmp_path: Any):
    ledger = Ledger(tmp_path / "ledger")
    query = Shares()
    measured = measure_vector([False, True, True], query, epsilon=1.0, delta=1e-5, ledger=ledger, rng=0)
    assert measured.ledger_entry is not None
    assert query.calls == 1
    assert "Shares, discrete Gaussian" in ledger.entries()[0].mechanism


def test_something_else_and_answers_that_are_not_numbers_are_refused_after_the_charge(tmp_path: Any):
    with pytest.raises(LabelDPError, match="query for a vector"):
        measure_vector([False, True], "mean", epsilon=1.0, delta=1e-5)  # type: ignore[arg-type]
    with pytest.raises(LabelDPError, match="be a procedure"):
        curate([False, True], "mean")  # type: ignore[arg-type]
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(PrivacyError, match="its query is wrong"):
        measure_vector([False, True], Shares(value=math.nan), epsilon=1.0, delta=1e-5, ledger=ledger)
    assert len(ledger.entries()) == 1

    class Short(Shares):
        def size(self, *, n_classes: int, n_examples: int) -> int:
            return 1

    with pytest.raises(PrivacyError, match="its query is wrong"):
        measure_vector([False, True], Short(), epsilon=1.0, delta=1e-5)


def test_curate_runs_a_procedure_under_its_own_guarantee():
    answer = curate(SensitiveLabels([1, 0], classes=[0, 1]), FirstLabel(), rng=0)
    assert answer.guarantee.epsilon() == 2.0
    assert answer.guarantee.trust is Trust.CURATOR
    assert FLOATING_POINT in answer.guarantee.assumptions
    assert answer.value.shape == (1,)
    exact = curate(SensitiveLabels([1, 0], classes=[0, 1]), ExactFirstLabel(), rng=0)
    assert exact.guarantee.assumptions == (SEEDED,)


def test_uniforms_stay_inside_and_normals_are_finite():
    class Extremes:
        def take(self, count: int) -> np.ndarray:
            return np.array([0, 2**64 - 1] * count, np.uint64)[:count]

    ends = uniforms(Extremes(), 2)  # type: ignore[arg-type]
    assert 0.0 < ends[0] < ends[1] < 1.0
    assert np.isfinite(normals(Extremes(), 2)).all()  # type: ignore[arg-type]
    assert uniforms(BitStream(NoiseKey.from_seed(1)), 5).shape == (5,)


def test_a_budget_that_is_spent_refuses(recorded_budget: Any):
    ledger, query = recorded_budget
    with pytest.raises(BudgetError):
        measure_vector([False, True, True], query, epsilon=5.0, delta=1e-5, ledger=ledger, rng=0)
    assert query.calls == 0


@pytest.fixture
def recorded_budget(tmp_path: Any) -> tuple[Ledger, Shares]:
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(1.0, delta=1e-5)
    return ledger, Shares()
