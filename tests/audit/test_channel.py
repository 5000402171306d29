"""The channel audit: valid under the null, sharp for randomized response, and fed by nothing but a callable."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import labeldp
from labeldp.audit import Randomizer, audit, channel_audit
from labeldp.audit.channel import best_event, log_ratio, observed_audit
from labeldp.errors import LabelDPError

#: Of each audit here. A test makes four at most, so it fails for a sound mechanism with probability 4e-7 at most.
SURE = 1 - 1e-7
#: Tables of counts in which every event can be enumerated.
SMALL = arrays(np.int64, (2, 3, 4), elements=st.integers(0, 400))


def response(epsilon: float, n_classes: int) -> Callable[[Any], Any]:
    mechanism = labeldp.RandomizedResponse(epsilon, n_classes=n_classes)
    return lambda labels: labeldp.privatize(labels, mechanism).codes


def ignoring(labels: Any) -> Any:
    """The null: outputs that have nothing to do with the labels."""
    return np.random.default_rng().integers(0, 3, len(labels))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_bound_of_randomized_response_is_close_and_not_above(n_classes: int):
    found = channel_audit(response(1.0, n_classes), n_classes=n_classes, n_draws=200_000, confidence=SURE, claimed=1.0)
    # Two classes: the limits at 5e-8 lie 5.3 standard deviations away, each 0.003 or 0.007 in the logarithm.
    assert (0.9 if n_classes == 2 else 0.75) < found.lower_bound <= 1.0
    assert not found.rejected
    assert found.event.startswith("which output")


def test_ten_percent_too_much_is_rejected():
    found = channel_audit(response(1.1, 2), n_classes=2, n_draws=400_000, confidence=SURE, claimed=1.0)
    # One standard deviation of the log-ratio is 0.006 at 100,000 draws a label, and the two limits take 8 of them
    # (5.3 each, not in quadrature): the bound is 1.05 in the mean and below 1 with probability < 1e-12.
    assert found.rejected
    assert not audit(Randomizer(run=response(1.1, 2), n_classes=2, claimed=1.0), n_draws=200_000).passed


def test_null_gives_zero():
    # The bound is positive only if a lower limit exceeds an upper one though the shares are equal: for 95 % that takes
    # 2.8 standard deviations of the difference, probability 0.003. Twenty runs with four or more alarms: below 1e-6.
    bounds = [channel_audit(ignoring, n_classes=3, n_draws=8000).lower_bound for _ in range(20)]
    assert sum(bound > 0 for bound in bounds) < 4


def test_a_bound_without_limits_would_fail_under_the_null():
    """The broken twin: the plain log-ratio of the best event is positive nearly always."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(20):
        counts = rng.multinomial(1000, [1 / 3] * 3, size=3)
        alarms += bool(np.log(counts.max(axis=0) / counts.min(axis=0)).max() > 0)
    assert alarms == 20


def test_delta_lets_rare_outputs_go():
    def leaks_rarely(labels: Any) -> Any:
        """Reveal one label in fifty, else nothing: (0, 0.02)-private and not pure."""
        rng = np.random.default_rng()
        return np.where(rng.random(len(labels)) < 0.02, labels + 1, 0)

    pure = channel_audit(leaks_rarely, n_classes=2, n_draws=80_000, confidence=SURE, claimed=1.0)
    loose = channel_audit(leaks_rarely, n_classes=2, n_draws=80_000, confidence=SURE, delta=0.02)
    assert pure.rejected
    assert loose.lower_bound == 0.0


def test_many_outputs_are_joined_into_one_event():
    def scattered(labels: Any) -> Any:
        """A hundred outputs for each answer: none is seen often, their union is."""
        return np.asarray(response(2.0, 2)(labels), np.int64) * 100 + np.random.default_rng().integers(
            0, 100, len(labels)
        )

    # In 150 runs: 1.64 in the mean, deviation 0.07; single cells alone give 0.18 and 0.16.
    assert channel_audit(scattered, n_classes=2, n_draws=40_000, confidence=SURE).lower_bound > 1.15


def test_a_claim_may_be_a_guarantee():
    claim = labeldp.Guarantee.pure(0.5)
    assert channel_audit(response(1.0, 2), n_classes=2, n_draws=100_000, confidence=SURE, claimed=claim).rejected


def test_seed_fixes_the_labels_and_progress_is_told():
    told: list[tuple[int, int]] = []
    seen: list[Any] = []

    def run(labels: Any) -> Any:
        seen.append(labels.copy())
        return labels % 2

    for _ in range(2):
        channel_audit(run, n_classes=2, n_draws=400, seed=3, progress=lambda done, total: told.append((done, total)))
    calls = 16 + 32  # long ones, and short ones
    assert told == [(j + 1, calls) for j in range(calls)] * 2
    assert all(np.array_equal(one, two) for one, two in zip(seen[:calls], seen[calls:], strict=True))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"n_classes": 1}, "n_classes"),
        ({"n_draws": 10}, "n_draws"),
        ({"confidence": 1.0}, "confidence"),
        ({"delta": 1.0}, "delta"),
        ({"claimed": -1.0}, "claimed"),
    ],
)
def test_bad_arguments_are_named(wrong: dict[str, Any], match: str):
    with pytest.raises(LabelDPError, match=match):
        channel_audit(ignoring, **{"n_classes": 2, "n_draws": 1000, **wrong})


def test_a_run_with_too_few_outputs_is_refused():
    with pytest.raises(LabelDPError, match="return 62 outputs"):
        channel_audit(lambda labels: labels[:3], n_classes=2, n_draws=1000)


def test_observed_labels_of_one_release():
    labels = np.random.default_rng(0).integers(0, 3, 60_000)
    release = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=3))
    assert 0.6 < observed_audit(release, labels, confidence=SURE).lower_bound <= 1.0
    # Labels of someone else say nothing about this release.
    shuffled = np.random.default_rng(1).permutation(labels)
    assert observed_audit(release, shuffled, confidence=SURE).lower_bound == 0.0
    with pytest.raises(LabelDPError, match="integer codes"):  # what lies under a mask is no label
        observed_audit(release, np.ma.array(labels, mask=labels == 2))


def test_observed_labels_are_compared_within_a_channel_row_only():
    """Groups with different priors and labels: over all rows two labels differ by more than epsilon, within none."""
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 2, 40_000)
    labels = np.where(rng.random(40_000) < 0.9, groups * 2, rng.integers(0, 4, 40_000))
    prior = np.array([[0.49, 0.49, 0.01, 0.01], [0.01, 0.01, 0.49, 0.49]])
    release = labeldp.privatize(labels, labeldp.RRWithPrior(1.0), prior=prior, groups=groups)
    found = observed_audit(release, labels, confidence=SURE)
    assert not found.rejected
    pooled = np.array([[np.mean(release.codes[labels == y] == o) for o in range(4)] for y in range(4)])
    assert math.log(pooled[:, 2].max() / max(pooled[:, 2].min(), 1e-9)) > 1.2  # the mistake would have been seen


def every_event(counts: np.ndarray, *, delta: float, cells: list[tuple[int, ...]]) -> float:
    """The largest bound over contexts, ordered pairs of labels and these sets of cells."""
    found = [0.0]
    for rows in counts:
        total = rows.sum(axis=1)
        for one, other in itertools.permutations(range(len(rows)), 2):
            for inside in cells:
                a, b = rows[one, list(inside)].sum(), rows[other, list(inside)].sum()
                found.append(float(log_ratio(a, total[one], b, total[other], delta=delta, level=0.05)))
    return max(found)


@given(counts=SMALL, delta=st.sampled_from([0.0, 0.05]))
@settings(max_examples=25)
def test_choice_is_between_the_best_cell_and_the_best_set(counts: np.ndarray, delta: float):
    event = best_event(counts, delta=delta, level=0.05)
    single = [(cell,) for cell in range(4)]
    sets = [s for size in range(1, 5) for s in itertools.combinations(range(4), size)]
    most = every_event(counts, delta=delta, cells=sets)
    assert event.bound <= most + 1e-12  # the same sums in another order
    if delta == 0:
        assert event.bound >= every_event(counts, delta=delta, cells=single) - 1e-12


def test_bound_of_an_event_is_that_of_other_draws():
    counts = np.array([[[90, 10], [10, 90]]])
    event = best_event(counts, delta=0.0, level=0.05)
    judged = event.judge(np.array([[[50, 50], [50, 50]]]), delta=0.0, level=0.05)
    assert event.bound > 1.0
    assert judged.bound == 0.0
    assert (judged.one, judged.other, judged.cells) == (event.one, event.other, event.cells)


@pytest.mark.parametrize("empty", [np.zeros((1, 2, 2), np.int64), np.array([[[5, 5], [0, 0]]])])
def test_tables_with_nothing_in_them_say_nothing(empty: np.ndarray):
    event = best_event(empty, delta=0.0, level=0.05)
    assert max(event.bound, 0.0) == 0.0
    assert event.judge(empty, delta=0.0, level=0.05).bound == 0.0
