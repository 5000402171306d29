"""`measure`: the noise has the stated law, and the law keeps the promise.

Statistical judgements use `alarm`: the count of every cell of the law is binomial; the smallest exact two-sided
probability times the number of cells bounds the chance of a false alarm. The line is 1e-7, each test judges at most
twice, the seed is fixed, and a noise of twice the rate falls below the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import labeldp
from labeldp import (
    ClusterPrior,
    ClusterRR,
    InformativeResponse,
    LabelPrivateClassifier,
    RandomizedResponse,
    UnbiasedResponse,
    privatize,
)
from labeldp.accounting import Ledger
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee, Trust, Unit, did_not_see
from labeldp.learn import (
    LPRRSGD,
    PATE,
    MultiLabelPATE,
    OutputPerturbation,
    PrivateGLM,
    SoftmaxRegression,
    SufficientStatistics,
    evaluate,
)
from labeldp.learn.ratings import LabelPrivateRatings
from labeldp.random import NoiseKey
from labeldp.release import LabelCounts, LabelSums, Query, SensitiveLabels, Sensitivity, measure
from labeldp.release.budget import Budget
from labeldp.release.measurement import choose_noise

ALARM = 1e-7
GROUPS = 20_000
LABELS = [0, 1, 2, 2]
BOXED = SensitiveLabels(LABELS, n_classes=3)


def many_counts(**budget: Any) -> npt.NDArray[np.int64]:
    """The noise of 60,000 counts: all groups but the first are empty, so their true counts are zero."""
    query = LabelCounts(groups=[0, 0, 0, 0], n_groups=GROUPS)
    value = measure(SensitiveLabels(LABELS, n_classes=3), query, rng=11, **budget).value
    value[0] -= [1, 1, 2]
    return value.reshape(-1)


def cells(noise: npt.NDArray[np.int64], weight: Callable[[int], float], width: int) -> float:
    """The chance, at most, that draws from the law look as odd as these: cells -width .. width and the two tails."""
    total = sum(weight(z) for z in range(-2000, 2001))
    law = np.array([weight(z) / total for z in range(-width, width + 1)])
    tail = (1 - law.sum()) / 2
    law = np.concatenate([[tail], law, [tail]])
    clipped = np.clip(noise, -width - 1, width + 1) + width + 1
    counts = np.bincount(clipped, minlength=len(law))
    both_sides = 2 * np.minimum(binom.cdf(counts, len(noise), law), binom.sf(counts - 1, len(noise), law))
    return float(both_sides.min() * len(law))


def test_pure_noise_is_discrete_laplace_at_epsilon_over_the_sensitivity() -> None:
    noise = many_counts(epsilon=1.0)  # three classes: the 1-norm sensitivity is 2, the rate 1/2
    assert cells(noise, lambda z: math.exp(-abs(z) / 2), 8) > ALARM


@pytest.mark.parametrize("rate", [0.47, 0.53, 1.0])
def test_another_rate_is_caught(rate: float) -> None:
    """Also the rate 1 of someone who takes the sensitivity of three counts to be 1."""
    noise = many_counts(epsilon=1.0)
    assert cells(noise, lambda z: math.exp(-abs(z) * rate), 8) < ALARM


def test_noise_with_a_delta_is_discrete_gaussian_of_the_stated_variance() -> None:
    query = LabelCounts(groups=[0, 0, 0, 0], n_groups=GROUPS)
    stated = measure(SensitiveLabels(LABELS, n_classes=3), query, epsilon=2.0, delta=1e-3, rng=11)
    variance = float(stated.noise.removeprefix("discrete Gaussian, variance "))
    noise = many_counts(epsilon=2.0, delta=1e-3)
    # The text has six digits: 1e-6 of the variance moves no cell by more than 1e-6 of itself, far below the 1e-3 that
    # 60,000 draws can see.
    assert cells(noise, lambda z: math.exp(-z * z / (2 * variance)), 6) > ALARM
    assert cells(noise, lambda z: math.exp(-z * z / (2 * variance * 0.9)), 6) < ALARM


def test_no_noise_and_no_promise_at_infinite_epsilon() -> None:
    answer = measure(BOXED, LabelCounts(), epsilon=math.inf)
    assert answer.value.tolist() == [[1, 1, 2]]
    assert answer.noise == "no noise"
    assert answer.guarantee.epsilon() == math.inf
    assert answer.guarantee.trust == Trust.CURATOR


def test_a_statistic_that_no_label_moves_is_free_and_exact() -> None:
    answer = measure(BOXED, LabelSums(scores=[7, 7, 7]), epsilon=0.1)
    assert (answer.value.tolist(), answer.guarantee.epsilon(), answer.noise) == ([28], 0.0, "no noise")


@pytest.mark.parametrize(
    "query", [LabelCounts(), LabelSums(scores=[0, 1, 5], weights=[[1, 2], [0, 1], [4, 4], [1, 1]])]
)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.0), (0.1, 1e-6), (1.0, 1e-9), (8.0, 0.01)])
def test_the_guarantee_meets_the_budget_and_names_the_curator(query: Query, epsilon: float, delta: float) -> None:
    answer = measure(SensitiveLabels(LABELS, n_classes=3), query, epsilon=epsilon, delta=delta)
    assert answer.guarantee.epsilon(delta) <= epsilon
    assert answer.guarantee.epsilon(delta) > 0.99 * epsilon  # and does not waste it
    assert (answer.guarantee.unit, answer.guarantee.trust) == (Unit.LABEL, Trust.CURATOR)
    weighted = isinstance(query, LabelSums) and query.weights is not None
    assert answer.guarantee.assumptions == (did_not_see("weights") if weighted else ())
    assert "curator" in repr(answer)
    assert answer.value.dtype == np.int64


@given(epsilon=st.floats(1e-6, 1e6), l1=st.one_of(st.integers(1, 10**6), st.sampled_from([2**53 - 1, 3**33])))
def test_the_rate_times_the_sensitivity_never_exceeds_epsilon(epsilon: float, l1: int) -> None:
    noise = choose_noise(Sensitivity(float(l1), float(l1)), epsilon, 0.0)
    assert noise.rate is not None
    assert noise.rate * l1 <= Fraction(epsilon)
    assert noise.rate * l1 >= Fraction(epsilon) * (1 - Fraction(2, 10**6))  # rate_below keeps 21 bits
    assert Fraction(noise.guarantee.epsilon()) == Fraction(epsilon)


@settings(max_examples=15)  # a calibration takes about 0.1 s
@given(epsilon=st.floats(0.01, 20), delta=st.sampled_from([1e-12, 1e-6, 0.01]), l2=st.floats(0.5, 1e4))
def test_the_stated_loss_is_that_of_the_drawn_variance(epsilon: float, delta: float, l2: float) -> None:
    noise = choose_noise(Sensitivity(l2, l2), epsilon, delta)
    assert noise.variance is not None
    loss = noise.guarantee.to_json()["loss"]
    assert Fraction(loss["variance"]) == noise.variance  # 21 bits fit in a float
    # The square of an integer vector's length is an integer: nothing between l2^2 and its floor can occur.
    assert loss["square"] >= max(1, math.floor(Fraction(l2) ** 2))
    assert noise.guarantee.epsilon(delta) <= epsilon


@pytest.mark.parametrize("l2", [1.0, math.sqrt(3), 2.5, 1e5])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-9), (8.0, 1e-5)])
def test_noise_of_a_stage_is_dominated_by_its_promise(epsilon: float, delta: float, l2: float) -> None:
    """Five stages measured `within` their parts cost no more than the five promises do, at every delta."""
    part = (
        Budget(owner="test", labels=SensitiveLabels([0, 1], n_classes=2))
        .share(epsilon, delta, stages=5, name="count")
        .part
    )
    noise = choose_noise(Sensitivity(l2, l2), part.epsilon(delta), delta, within=part)
    assert noise.guarantee.epsilon(delta) <= part.epsilon(delta)
    five = noise.guarantee.times(5)
    assert five.epsilon(delta) <= epsilon
    for other in (1e-3, 1e-12):
        assert five.epsilon(other) <= part.times(5).epsilon(other)


class Mean(Query):
    """A query that does not keep to whole numbers: noise of rate n epsilon is nearly always 0."""

    def __init__(self, reach: float, kind: str = "float64") -> None:
        self.reach, self.kind = reach, kind

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        return Sensitivity(self.reach, self.reach)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Any:
        return np.array([codes.mean()]).astype(self.kind)


def test_a_query_whose_answer_is_no_whole_number_gives_nothing_away(tmp_path: Path) -> None:
    labels = SensitiveLabels([0, 1] * 50, n_classes=2, name="answers")
    ledger = Ledger(tmp_path / "ledger.db")
    for reach in (0.01, math.nan, -1.0):
        with pytest.raises(LabelDPError, match="sensitivities of 0, or of 1 or more"):
            measure(labels, Mean(reach), epsilon=1.0, ledger=ledger)
    assert not ledger.entries()
    for kind in ("float64", "float32", "object", "bool"):
        with pytest.raises(PrivacyError, match=r"Mean.exact returned .*, and exact noise is for integers"):
            measure(labels, Mean(1.0, kind), epsilon=1.0, ledger=ledger)
    whole = measure(labels, Mean(1.0, "uint64"), epsilon=1.0)
    assert whole.value.dtype == np.int64


def test_a_promise_of_another_kind_is_refused() -> None:
    with pytest.raises(LabelDPError, match="`within` must be a Gaussian promise"):
        measure(BOXED, LabelCounts(), epsilon=1.0, delta=1e-5, within=Guarantee.pure(1.0))


def test_seeds_repeat_and_are_marked() -> None:
    one, again = (measure(BOXED, LabelCounts(), epsilon=0.1, rng=4) for _ in range(2))
    assert one.value.tolist() == again.value.tolist()
    assert one.seeded
    assert "SEEDED: not private" in repr(one)
    fresh = measure(BOXED, LabelCounts(), epsilon=0.1)
    assert not fresh.seeded
    assert "SEEDED" not in repr(fresh)


def test_the_two_leaves_draw_from_different_words_of_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a noisy count made of the words that keep or redraw labels, it would help to undo them."""
    seen: list[npt.NDArray[np.uint64]] = []
    real = NoiseKey.words

    def spied(self: NoiseKey, *, start: int, count: int, stream: int = 0) -> npt.NDArray[np.uint64]:
        seen.append(real(self, start=start, count=count, stream=stream))
        return seen[-1]

    monkeypatch.setattr(NoiseKey, "words", spied)
    measure(BOXED, LabelCounts(), epsilon=1.0, rng=1)
    counted, seen = seen, []
    labeldp.privatize(LABELS, labeldp.RandomizedResponse(1.0, n_classes=3), rng=1)
    assert len(counted) > 0
    assert len(seen) == 1
    assert not np.isin(np.concatenate([w.reshape(-1) for w in counted]), seen[0]).any()


def test_the_ledger_is_told_query_noise_and_rows(recorder: Callable[..., Any]) -> None:
    ledger = recorder()
    answer = measure(
        SensitiveLabels(LABELS, n_classes=3, name="opinion"), LabelCounts(), epsilon=0.5, ledger=ledger, rng=1
    )
    (charge,) = ledger.charges
    assert charge["mechanism"] == f"LabelCounts, {answer.noise}"
    assert charge["mechanism"].startswith("LabelCounts, discrete Laplace, rate 0.2")  # just below 0.5 / 2
    assert (charge["guarantee"], charge["n_rows"], charge["label_set"]) == (answer.guarantee, 4, "opinion")
    assert charge["seeded"] is True
    assert answer.ledger_entry == 42


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"epsilon": 0}, r"^measure: `epsilon` must be > 0, got 0\. Use a small epsilon"),
        ({"epsilon": -1.0}, r"^measure: `epsilon` must be >= 0, got -1\.0"),
        ({"epsilon": math.nan}, r"^measure: `epsilon` must be >= 0, got nan"),
        ({"epsilon": "1"}, r"^measure: `epsilon` must be a number, got '1'"),
        ({"epsilon": True}, r"^measure: `epsilon` must be a number, got True"),
        ({"epsilon": 1.0, "delta": 1.0}, r"^measure: `delta` must be in \[0, 1\), got 1\.0"),
        ({"epsilon": 1.0, "delta": -0.1}, r"^measure: `delta` must be in \[0, 1\), got -0\.1"),
        ({"epsilon": 1.0, "delta": math.nan}, r"^measure: `delta` must be in \[0, 1\), got nan"),
        ({"epsilon": 1.0, "rng": "x"}, r"^measure: `rng` must be None, an int or a numpy.random.Generator, got 'x'"),
    ],
)
def test_bad_budgets_are_refused_before_anything_is_charged(
    budget: dict[str, Any], message: str, recorder: Callable[..., Any]
) -> None:
    ledger = recorder()
    with pytest.raises(LabelDPError, match=message):
        measure(BOXED, LabelCounts(), ledger=ledger, **budget)
    assert ledger.charges == []


@pytest.mark.parametrize("query", ["counts", LabelCounts, None])
def test_something_that_is_no_query(query: Any) -> None:
    with pytest.raises(LabelDPError, match=r"^measure: `query` must be a query, got"):
        measure(BOXED, query, epsilon=1.0)


def test_the_spread_that_is_told_is_the_standard_deviation_of_the_law():
    """Of a discrete Laplace by summing its law; of a discrete Gaussian of variance 25 it is 5 to 1e-12 and more."""
    noise = choose_noise(Sensitivity(2.0, 2.0), 0.6, 0.0)
    support = np.arange(-400, 401)
    law = np.exp(-float(noise.rate) * np.abs(support))
    assert noise.spread == pytest.approx(math.sqrt(law @ support**2 / law.sum()), rel=1e-9)
    gaussian = choose_noise(Sensitivity(2.0, 2.0), 0.6, 1e-5)
    law = np.exp(-(support**2) / (2.0 * float(gaussian.variance)))
    assert gaussian.spread == pytest.approx(math.sqrt(law @ support**2 / law.sum()), rel=1e-9)
    assert choose_noise(Sensitivity(2.0, 2.0), math.inf, 1e-5).spread == 0.0


@pytest.mark.parametrize("epsilon", [1e-9, 1e3, 1e4, 1e6])
def test_the_ends_of_the_range_of_epsilon_are_measured(epsilon: float, tmp_path: Path):
    """Before: at 1e4 the standard deviation was an OverflowError, after the charge."""
    ledger = Ledger(tmp_path / "ledger")
    found = measure(BOXED, LabelCounts(), epsilon=epsilon, ledger=ledger)
    assert [entry.guarantee.epsilon() for entry in ledger.entries()] == [epsilon]
    assert found.spread == choose_noise(Sensitivity(2.0, math.sqrt(2.0)), epsilon, 0.0).spread
    if epsilon >= 1e3:  # Pr[any noise] is below 4 e^-500
        assert found.value.tolist() == measure(BOXED, LabelCounts(), epsilon=math.inf).value.tolist()
    else:  # sqrt 2 / rate, but for rate^2 / 24 of it and what rounds the rate
        assert found.spread == pytest.approx(math.sqrt(2.0) * 2.0 / epsilon, rel=1e-5)


ROWS = np.linspace(-0.5, 0.5, 60)[:, None]
CODES = (ROWS[:, 0] > 0).astype(int)
OWNERS = np.arange(60) // 3
PAIRS, STARS = np.stack([np.arange(60) % 12, np.arange(60) % 5], axis=1), 1 + np.arange(60) % 5
#: Whoever charges: for a statistic, for answers, or for a budget of which these are parts.
PAYERS: dict[str, Callable[[float, Ledger], Any]] = {
    "measure": lambda e, book: measure(BOXED, LabelCounts(), epsilon=e, ledger=book),
    "persons": lambda e, book: measure(CODES, LabelCounts(), epsilon=e, persons=OWNERS, ledger=book),
    "answers": lambda e, book: privatize(CODES, RandomizedResponse(e, n_classes=2), ledger=book),
    "answers of persons": lambda e, book: privatize(CODES, InformativeResponse(e), persons=OWNERS, ledger=book),
    "numbers": lambda e, book: privatize(ROWS[:, 0], UnbiasedResponse(e, bounds=(-1, 1)), ledger=book),
    "clusters": lambda e, book: privatize(CODES, ClusterRR(epsilon=e), groups=np.zeros(60, int), ledger=book),
    "a prior": lambda e, book: LabelPrivateClassifier(
        epsilon=e, stages=1, trust="curator", prior=ClusterPrior(n_clusters=2), ledger=book
    ).fit(ROWS, CODES),
    "moments": lambda e, book: SufficientStatistics(epsilon=e, clip=1.0, ledger=book).fit(ROWS, CODES),
    "a vector": lambda e, book: OutputPerturbation(epsilon=e, delta=1e-5, clip=1.0, ledger=book).fit(ROWS, CODES),
    "a walk": lambda e, book: LPRRSGD(epsilon=e, clip=1.0, epochs=1, ledger=book).fit(ROWS, CODES),
    "rounds": lambda e, book: PrivateGLM(
        family="poisson", epsilon=e, bounds=(0, 5), statistic="groups", ledger=book
    ).fit(ROWS, STARS),
    "ratings by sums": lambda e, book: LabelPrivateRatings(epsilon=e, sums=1.0, values=range(1, 6), ledger=book).fit(
        PAIRS, STARS
    ),
    "ratings": lambda e, book: LabelPrivateRatings(epsilon=e, values=range(1, 6), ledger=book).fit(PAIRS, STARS),
    "PATE": lambda e, book: PATE(n_teachers=4, epsilon=e, threshold=0.0, ledger=book).fit(ROWS, CODES, ROWS[:4]),
    "several labels": lambda e, book: MultiLabelPATE(n_teachers=9, epsilon=e, ledger=book).fit(
        ROWS, np.stack([CODES, 1 - CODES], axis=1), ROWS[:4]
    ),
    "a score": lambda e, book: evaluate(FITTED, ROWS, CODES, epsilon=e, ledger=book),
}
FITTED = SoftmaxRegression(l2=0.1).fit(ROWS, CODES)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-11, 1e4, 1e308])
@pytest.mark.parametrize("payer", PAYERS)
def test_an_extreme_epsilon_works_or_is_refused_before_a_charge(payer: str, epsilon: float, tmp_path: Path):
    """Before: draws beyond 64 bits, divisions by zero, overflows and NaN, of some after the charge."""
    ledger = Ledger(tmp_path / "ledger", budget=math.inf, delta=0.1)
    refused = ""
    try:
        with np.errstate(all="ignore"):
            PAYERS[payer](epsilon, ledger)
    except LabelDPError as error:
        refused = str(error)
    assert bool(ledger.entries()) == (not refused)
    assert not refused or re.search("epsilon|n_teachers", refused)


def test_noise_wider_than_64_bits_is_refused_before_a_charge(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger")
    query = LabelSums(scores=[0, 2**40, 0])
    with pytest.raises(
        LabelDPError, match=r"must leave noise that integers of 64 bits hold, got 1e-06 at a sensitivity of 1\.1e\+12"
    ):
        measure(BOXED, query, epsilon=1e-6, ledger=ledger)
    assert not ledger.entries()


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        (LabelSums(scores=[0, 1], weights=[1, 2, 3]), "one row per label"),
        (LabelSums(scores=[0, 2**61]), "within 64 bits"),
        (LabelCounts(groups=[0, 1, 1]), "one entry per label"),
    ],
)
def test_a_query_that_does_not_fit_is_refused_before_it_is_charged(query: Query, fault: str, tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(LabelDPError, match=fault):
        measure(SensitiveLabels([0, 1], n_classes=2), query, epsilon=1.0, ledger=ledger)
    assert not ledger.entries()


def test_whole_numbers_beyond_64_bits_are_refused_not_wrapped():
    with pytest.raises(LabelDPError, match="below"):
        LabelSums(scores=[0, 1], weights=np.array([2**63 + 1, 1], np.uint64))
    with pytest.raises(LabelDPError, match="numbered from 0"):
        LabelCounts(groups=np.array([2**63 + 5, 0], np.uint64))
