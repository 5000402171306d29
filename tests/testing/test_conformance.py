"""The conformance suite: sound mechanisms pass every check, and every broken twin is caught by the check named for it.

Seeds are fixed, so these tests give one answer, but for `secure_by_default`, whose draws come from the operating
system: it fails by chance with probability 1e-9 per layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.channel import Channel, FiniteChannel
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.testing import ConformanceError, Subject, check_mechanism, check_optimal, mechanism_checks
from labeldp.testing.broken import Broken, DrawsFromAll, OffByOneK, broken_subjects
from labeldp.testing.suite import agreement, two_sided, worst_log_ratio

CHECKS = mechanism_checks(optimal=True)
#: Every epsilon, every number of classes, and the usual epsilon with the fewest and the most classes.
SOUND = [
    (mechanism, n_classes)
    for epsilon, n_classes in ((0.0, 3), (0.1, 3), (1.0, 2), (1.0, 10), (4.0, 3), (math.inf, 2))
    for mechanism in (RandomizedResponse(epsilon), RRTopK(epsilon, k=2), RRWithPrior(epsilon))
]


@pytest.mark.parametrize(("mechanism", "n_classes"), SOUND, ids=str)
def test_sound_mechanisms_pass_every_check(mechanism: Mechanism, n_classes: int):
    check_mechanism(mechanism, n_classes=n_classes)


@pytest.mark.parametrize(
    ("epsilon", "n_classes"), [*((e, k) for e in (0.0, 0.01, 1.0, 8.0, 50.0) for k in (2, 3, 10)), (1.0, 70)]
)
def test_rr_with_prior_is_optimal(epsilon: float, n_classes: int):
    check_optimal(RRWithPrior(epsilon), n_classes=n_classes)


def test_randomized_response_is_optimal_for_the_flat_prior_alone():
    check_optimal(RandomizedResponse(1.0), n_classes=4)
    with pytest.raises(ConformanceError, match="is_optimal"):
        check_optimal(RRTopK(1.0, k=2), n_classes=4)


@pytest.mark.parametrize("broken", broken_subjects(), ids=lambda broken: broken.name)
def test_every_broken_twin_is_caught_by_its_check(broken: Broken):
    check = next(check for check in CHECKS if check.name == broken.caught_by)
    with pytest.raises(ConformanceError) as caught:
        check(broken.subject)
    assert caught.value.failed == (broken.caught_by,)


def test_every_check_has_a_twin_that_it_catches():
    named = {broken.caught_by for broken in broken_subjects()}
    # These two need a channel that its own constructor would refuse; they have twins below.
    assert {check.name for check in CHECKS} - named == {"rows_are_distributions", "epsilon_is_exact"}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("off by one k", set()),  # private, and all that it says is true
        # A wrong law of the outputs also changes how often two of them agree.
        ("draws from all, lies", {"examples_are_independent"}),
        ("noise repeats", set()),
        ("fixed seed", set()),
        ("start ignored", set()),
    ],
)
def test_twins_show_only_their_fault(name: str, others: set[str]):
    # A twin that failed everything would show nothing about the check that is named for it.
    broken = next(b for b in broken_subjects() if b.name == name)
    rest = [check for check in mechanism_checks() if check.name != broken.caught_by]  # that one has its own test
    assert {check.name for check in rest if check.faults(broken.subject)} == others


def test_the_door_refuses_to_draw_from_all_labels():
    with pytest.raises(PrivacyError, match=r"claims epsilon = 1\.0, but its channel has inf"):
        labeldp.privatize(np.arange(4), DrawsFromAll(1.0, 2), prior=np.array([0.4, 0.3, 0.2, 0.1]), rng=0)


def test_off_by_one_ignores_the_label_at_a_small_epsilon():
    flat = np.full(10, 0.1)
    assert np.ptp(OffByOneK(0.1).channel(flat).matrix(), axis=0).max() == 0  # every label has the same row
    assert np.ptp(RRWithPrior(0.1).channel(flat).matrix(), axis=0).max() > 0


# ------------------------------------------------------------------------------- twins that need a channel of their own


class WrongSums(Channel):
    """A channel whose matrix loses a thousandth."""

    def _matrix(self, i: int) -> Any:
        return 0.999 * super()._matrix(i)


class WrongEpsilon(Channel):
    """A channel that states less than its rows have."""

    epsilon = 0.5


@dataclass(frozen=True)
class Of(Mechanism):
    """Randomized response with a channel class of choice."""

    kind: type[Channel]

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.pure(1.0)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        honest = RandomizedResponse(1.0).channel(prior, groups=groups, n_classes=n_classes)
        return self.kind(keep=honest.keep, redraw=honest.redraw, base=honest.base)


@pytest.mark.parametrize(("kind", "check"), [(WrongSums, "rows_are_distributions"), (WrongEpsilon, "epsilon_is_exact")])
def test_wrong_channels_are_caught(kind: type[Channel], check: str):
    with pytest.raises(ConformanceError) as caught:
        check_mechanism(Of(kind))
    assert check in caught.value.failed
    check_mechanism(Of(Channel))


# --------------------------------------------------------------------------------------------------- how it is reported


def test_all_failures_are_listed_at_once():
    broken = next(b for b in broken_subjects() if b.name == "draws from all, says so")
    with pytest.raises(ConformanceError, match="privacy_holds") as caught:
        check_mechanism(broken.subject.mechanism, n_classes=3)
    assert {"privacy_holds", "frequencies_match"} <= set(caught.value.failed)
    assert "raised PrivacyError" in str(caught.value)  # the door's refusal is a finding, not a crash
    assert isinstance(caught.value, AssertionError)
    assert all(name in str(caught.value) for name in caught.value.failed)


def test_one_check_raises_by_name_and_counts_the_rest():
    broken = next(b for b in broken_subjects() if b.name == "epsilon doubled")
    check = next(c for c in CHECKS if c.name == "frequencies_match")
    with pytest.raises(ConformanceError, match=r"(?s)frequencies_match .* and \d+ more"):
        check(broken.subject)


def test_a_door_that_forgets_the_guarantee_of_pieces_is_named():
    def shuffles(labels: Any, mechanism: Mechanism, **rest: Any) -> Any:
        release = labeldp.privatize(labels, mechanism, **rest)
        return replace(release, codes=release.codes[::-1])

    with pytest.raises(ConformanceError) as caught:
        check_mechanism(RandomizedResponse(1.0), privatize=shuffles, n_classes=3)
    assert {"frequencies_match", "pieces_equal_whole"} <= set(caught.value.failed)


def test_subject_refuses_what_no_mechanism_could_use():
    with pytest.raises(LabelDPError, match="`k` must be an integer in"):
        Subject(mechanism=RRTopK(1.0, k=7), n_classes=5)
    with pytest.raises(LabelDPError, match=r"sum of 0\.9 in row 0"):
        Subject(mechanism=RRWithPrior(1.0), prior=[0.5, 0.4], n_classes=2)
    with pytest.raises(LabelDPError, match="`n_classes`"):
        Subject(mechanism=RRWithPrior(1.0), n_classes=1)
    assert Subject(mechanism=RandomizedResponse(1.0, n_classes=7)).n_classes == 7
    assert Subject(mechanism=RandomizedResponse(1.0)).priors is None


# ----------------------------------------------------------------------------------------------------- the exact tests


def test_two_sided_is_the_binomial_by_enumeration():
    from fractions import Fraction

    n, p = 12, Fraction(3, 10)
    law = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    exact = [float(min(Fraction(1), 2 * min(sum(law[: c + 1]), sum(law[c:])))) for c in range(n + 1)]
    # The incomplete beta function is accurate to some 1e-14; 1e-12 is asked.
    np.testing.assert_allclose(two_sided(np.arange(n + 1), n, float(p)), exact, rtol=1e-12)


def test_two_sided_at_certainty():
    # Impossible outcomes have p-value 0, certain ones 1: labels outside a candidate set are judged by this.
    assert two_sided([0, 1], 10, [0.0, 0.0]).tolist() == [1.0, 0.0]
    assert two_sided([10, 9], 10, [1.0, 1.0]).tolist() == [1.0, 0.0]


def test_two_sided_never_alarms_too_often():
    # Pr[p-value <= a] <= a, by enumeration of all counts; the slack is the rounding of the probabilities' sum.
    from scipy.stats import binom

    for n, p in ((7, 0.5), (40, 0.1), (200, 0.73)):
        counts = np.arange(n + 1)
        values = two_sided(counts, n, p)
        for level in (0.5, 0.1, 1e-3, 1e-6):
            assert binom.pmf(counts, n, p)[values <= level].sum() <= level * (1 + 1e-9)


def test_worst_log_ratio_and_agreement():
    assert worst_log_ratio([[1.0, 0.0], [1.0, 0.0]]) == 0.0  # an output that never comes tells nothing
    assert worst_log_ratio([[1.0, 0.0], [0.5, 0.5]]) == math.inf
    assert worst_log_ratio([[0.8, 0.2], [0.4, 0.6]]) == pytest.approx(math.log(3), abs=1e-15)
    assert agreement([0.7, 0.2, 0.1]) == pytest.approx(0.54, abs=1e-15)
