"""The leaf of the door for real vectors: noise of the stated law, a guarantee that covers it, and labels that stay in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from labeldp.accounting import Ledger, analytic_gaussian_sigma
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee, Trust
from labeldp.random import BitStream, NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.vectors import FLOATING_POINT, Procedure, VectorQuery, curate, measure_vector, normals, uniforms


class Shares(VectorQuery):
    """The share of each class, many times over so that there is much noise to look at."""

    def __init__(self, copies: int = 1, value: float | None = None) -> None:
        self.copies, self.value, self.calls = copies, value, 0

    def sensitivity(self, *, n_classes: int, n_examples: int) -> float:
        return math.sqrt(2.0 * self.copies) / n_examples

    def exact(self, codes: np.ndarray, *, n_classes: int) -> np.ndarray:
        self.calls += 1
        shares = np.bincount(codes, minlength=n_classes) / len(codes)
        return np.tile(shares, self.copies) if self.value is None else np.full(3, self.value)


class FirstLabel(Procedure):
    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        return Guarantee.pure(2.0)

    def run(self, codes: np.ndarray, *, n_classes: int, bits: BitStream) -> np.ndarray:
        return np.array([float(codes[0]) + normals(bits, 1)[0]])


def test_noise_is_normal_with_the_calibrated_sigma_and_others_are_caught():
    """A Kolmogorov-Smirnov test at level 1e-6 on 20,000 draws; two thirds or three halves of the noise are rejected."""
    query = Shares(copies=10_000)
    measured = measure_vector([0, 1], query, epsilon=1.0, delta=1e-5, rng=3)
    noise = (measured.value - 0.5) / measured.sigma
    assert kstest(noise, "norm").pvalue > 1e-6
    assert kstest(noise * 2 / 3, "norm").pvalue < 1e-6
    assert kstest(noise * 3 / 2, "norm").pvalue < 1e-6
    reach = query.sensitivity(n_classes=2, n_examples=2)
    assert measured.sigma == analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=reach)


def test_guarantee_meets_the_budget_and_names_trust_and_floating_point():
    labels = SensitiveLabels([0, 1, 1], classes=[0, 1])
    measured = measure_vector(labels, Shares(), epsilon=0.3, delta=1e-6, rng=0)
    assert measured.guarantee.epsilon(1e-6) <= 0.3
    assert measured.guarantee.epsilon(1e-6) > 0.2999
    assert measured.guarantee.trust is Trust.CURATOR
    assert measured.guarantee.assumptions == (FLOATING_POINT,)
    assert measured.seeded
    assert "SEEDED" in repr(measured)
    read_off = measure_vector([0, 1, 1], Shares(), epsilon=0.3, delta=1e-6)
    assert any("read off" in text for text in read_off.guarantee.assumptions)
    assert not read_off.seeded


def test_secure_noise_differs_and_seeds_repeat():
    one, two = (measure_vector([0, 1], Shares(), epsilon=1.0, delta=1e-5).value for _ in range(2))
    assert not np.array_equal(one, two)
    three, four = (measure_vector([0, 1], Shares(), epsilon=1.0, delta=1e-5, rng=7).value for _ in range(2))
    assert np.array_equal(three, four)


def test_infinite_epsilon_adds_nothing_and_promises_nothing():
    measured = measure_vector([0, 1, 1, 1], Shares(), epsilon=math.inf, delta=1e-5)
    assert measured.value.tolist() == [0.25, 0.75]
    assert measured.guarantee.epsilon(0.5) == math.inf


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta"),
    ],
)
def test_bad_budgets_are_refused_before_labels_are_touched(budget: dict[str, float], match: str):
    query = Shares()
    with pytest.raises(LabelDPError, match=match):
        measure_vector([0, 1], query, **budget)
    assert query.calls == 0


def test_the_ledger_is_charged_first_and_refuses_over_budget(tmp_path: Any):
    ledger = Ledger(tmp_path / "ledger")
    query = Shares()
    measured = measure_vector([0, 1, 1], query, epsilon=1.0, delta=1e-5, ledger=ledger, rng=0)
    assert measured.ledger_entry is not None
    assert query.calls == 1


def test_something_else_and_infinite_answers_are_refused():
    with pytest.raises(LabelDPError, match="query for a vector"):
        measure_vector([0, 1], "mean", epsilon=1.0, delta=1e-5)  # type: ignore[arg-type]
    with pytest.raises(LabelDPError, match="be a procedure"):
        curate([0, 1], "mean")  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="not finite"):
        measure_vector([0, 1], Shares(value=math.nan), epsilon=1.0, delta=1e-5)


def test_curate_runs_a_procedure_under_its_own_guarantee():
    answer = curate(SensitiveLabels([1, 0], classes=[0, 1]), FirstLabel(), rng=0)
    assert answer.guarantee.epsilon() == 2.0
    assert answer.guarantee.trust is Trust.CURATOR
    assert FLOATING_POINT in answer.guarantee.assumptions
    assert answer.value.shape == (1,)


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
        measure_vector([0, 1, 1], query, epsilon=5.0, delta=1e-5, ledger=ledger, rng=0)
    assert query.calls == 0


@pytest.fixture
def recorded_budget(tmp_path: Any) -> tuple[Ledger, Shares]:
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(1.0, delta=1e-5)
    return ledger, Shares()
