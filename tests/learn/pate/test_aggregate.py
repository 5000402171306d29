"""Aggregation: what one teacher can move, that clipped votes are the ones counted, and noise of the stated size."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from labeldp.errors import PrivacyError
from labeldp.learn.pate import VotePlan
from labeldp.learn.pate.teachers import clip_votes
from labeldp.learn.pate.votes import (
    answer_classes,
    answer_labels,
    answer_stable,
    count_classes,
    count_labels,
    draw_noise,
)
from labeldp.random import BitStream, NoiseKey
from labeldp.selection import stable_plan

#: Each statistical test here fails by chance with at most this probability.
FAILURE = 1e-6


def bits(seed: int = 0) -> BitStream:
    return BitStream(NoiseKey.from_seed(seed))


def room(n: int) -> float:
    """Hoeffding: a mean of n numbers in [0, 1] is farther than this from its expectation with chance <= FAILURE."""
    return math.sqrt(math.log(2 / FAILURE) / (2 * n))


def test_one_teacher_moves_class_counts_by_at_most_the_accounted_distance():
    """All votes of 3 teachers for 3 classes, all replacements of one of them."""
    worst_counts = worst_largest = 0
    for votes in itertools.product(range(3), repeat=3):
        for teacher, other in itertools.product(range(3), range(3)):
            changed = list(votes)
            changed[teacher] = other
            one, two = (count_classes(np.array(v)[:, None], n_classes=3)[0] for v in (votes, changed))
            worst_counts = max(worst_counts, int(((one - two) ** 2).sum()))
            worst_largest = max(worst_largest, abs(int(one.max()) - int(two.max())))
    assert worst_counts == 2  # D^2 of GNMax
    assert worst_largest == 1  # the reach of the confidence test


@pytest.mark.parametrize("m", [1, 3, 4])
def test_one_teacher_moves_label_counts_by_at_most_the_accounted_distance(m: int):
    """All pairs of votes for m labels, whole and clipped to tau."""
    votes = np.array(list(itertools.product((0, 1), repeat=m)), np.uint8)
    scores = np.random.default_rng(0).random(votes.shape)
    for tau in (None, *range(1, m + 1)):
        used = votes if tau is None else clip_votes(votes, scores, tau=tau)
        distances = ((used[:, None].astype(int) - used[None].astype(int)) ** 2).sum(axis=2)
        assert distances.max() <= (m if tau is None else min(2 * tau, m))
        if tau is None:
            assert distances.max() == m


def test_clipping_keeps_votes_of_the_highest_scores_and_adds_none():
    rng = np.random.default_rng(1)
    votes = rng.integers(2, size=(200, 6)).astype(np.uint8)
    scores = rng.random((200, 6))
    for tau in range(1, 7):
        kept = clip_votes(votes, scores, tau=tau)
        assert (kept <= votes).all()
        assert (kept.sum(axis=1) == np.minimum(votes.sum(axis=1), tau)).all()
        for row in range(200):
            dropped = scores[row][(votes[row] == 1) & (kept[row] == 0)]
            assert dropped.size == 0 or dropped.max() <= scores[row][kept[row] == 1].min()


def test_votes_beyond_the_clip_are_not_counted():
    votes = np.ones((5, 2, 3), np.uint8)
    assert (count_labels(votes, tau=None) == 5).all()
    with pytest.raises(PrivacyError, match="at most tau = 2"):
        count_labels(votes, tau=2)


@pytest.mark.parametrize("votes", [np.array([[0, 3]]), np.array([[-1, 0]]), np.array([[0.0, 1.0]]), np.array([0, 1])])
def test_votes_that_are_no_codes_are_refused(votes: np.ndarray):
    with pytest.raises(PrivacyError, match="votes"):
        count_classes(votes, n_classes=3)


@pytest.mark.parametrize("bad", [2, -1])
def test_votes_that_are_no_indicators_are_refused(bad: int):
    with pytest.raises(PrivacyError, match="0 or 1"):
        count_labels(np.full((2, 2, 2), bad), tau=None)


def right_share(sigma: float, lead: int, n: int) -> float:
    """How often GNMax names the leading of two classes."""
    counts = np.tile([lead, 0], (n, 1))
    return float(
        (
            answer_classes(counts, VotePlan(n_queries=n, n_answers=n, sigma=sigma), level=0, bits=bits()).codes == 0
        ).mean()
    )


def test_answers_have_the_noise_of_the_plan_and_half_of_it_would_be_seen():
    """The lead has noise of deviation sqrt(2) s; ties (chance < 0.02 here) go to the leading class."""
    n, sigma, lead = 30_000, 20.0, 28
    # Pr[lead + N(0, 2 s^2) >= -1/2]: the continuity correction errs by less than 1e-3 at this sigma.
    expected = 0.5 * math.erfc(-(lead + 0.5) / (2 * sigma))
    assert abs(right_share(sigma, lead, n) - expected) < room(n) + 1e-3
    assert abs(right_share(sigma / 2, lead, n) - expected) > room(n) + 1e-3


def test_confidence_tests_have_the_noise_of_the_plan_and_half_of_it_would_be_seen():
    n, sigma = 30_000, 20.0

    def passed(threshold_sigma: float) -> float:
        plan = VotePlan(n_queries=n, n_answers=n, sigma=0.1, threshold_sigma=threshold_sigma)
        return answer_classes(np.tile([30, 10], (n, 1)), plan, level=50.0, bits=bits(1)).rows.size / n

    # Pr[30 + N(0, s^2) >= 49.5]; same correction as above.
    expected = 0.5 * math.erfc(19.5 / (sigma * math.sqrt(2)))
    assert abs(passed(sigma) - expected) < room(n) + 1e-3
    assert abs(passed(sigma / 2) - expected) > room(n) + 1e-3


def test_counts_per_label_have_the_noise_of_the_plan_and_half_of_it_would_be_seen():
    n, sigma = 30_000, 20.0

    def named(used: float) -> float:
        plan = VotePlan(n_queries=n, n_answers=n, sigma=used, squared_reach=1)
        return float(answer_labels(np.full((n, 1), 70), plan, n_teachers=100, bits=bits(2)).sets.mean())

    # 70 + Z > 50, so Z >= -19, corrected to -19.5.
    expected = 0.5 * math.erfc(-19.5 / (sigma * math.sqrt(2)))
    assert abs(named(sigma) - expected) < room(n) + 1e-3
    assert abs(named(sigma / 2) - expected) > room(n) + 1e-3


def test_noise_differs_between_classes_and_queries():
    drawn = draw_noise(bits(3), 1000.0, (50, 4))
    # A repeat among 200 draws of deviation 1000 is likely; whole equal columns (50 coincidences of 3e-4) are not.
    assert len({tuple(column) for column in drawn.T}) == 4
    assert len({tuple(row) for row in drawn}) == 50


def test_answers_stop_when_all_that_were_paid_for_are_given():
    counts = np.tile([100, 0], (20, 1))
    counts[:5] = [10, 0]
    plan = VotePlan(n_queries=20, n_answers=6, sigma=0.1, threshold_sigma=0.1)
    found = answer_classes(counts, plan, level=60.0, bits=bits())
    assert found.rows.tolist() == [5, 6, 7, 8, 9, 10]
    assert found.n_asked == 11
    all_asked = answer_classes(counts[:8], plan, level=60.0, bits=bits())
    assert (all_asked.rows.tolist(), all_asked.n_asked) == ([5, 6, 7], 8)


def test_more_queries_than_were_paid_for_are_refused():
    with pytest.raises(PrivacyError, match="plan's queries"):
        answer_classes(np.ones((3, 2), int), VotePlan(n_queries=2, n_answers=2, sigma=1.0), level=0.0, bits=bits())


def test_no_query_need_pass():
    plan = VotePlan(n_queries=3, n_answers=2, sigma=1.0, threshold_sigma=0.1)
    found = answer_classes(np.ones((3, 2), int), plan, level=1e6, bits=bits())
    assert (found.rows.size, found.codes.size, found.n_asked) == (0, 0, 3)


def test_stable_answers_know_none_some_and_all_labels():
    """Clear votes of 2000 teachers at gaps of 1800 or more, beyond what any test of this plan may miss."""
    plan = stable_plan(epsilon=1.0, delta=1e-5, neighbours="replace", queries=4)
    assert plan.sure_gap < 1500
    counts = np.array([[0, 0, 0], [2000, 100, 100], [1900, 1950, 50], [2000, 2000, 2000]])
    # Fails by chance with at most 4 test_delta = 5e-6 / 2 for the tests, and far less for the choices of k; the seed is
    # fixed, so that it does so always or never.
    found = answer_stable(counts, plan, n_teachers=2000, key=NoiseKey.from_seed(4))
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert found.sets.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_one_teacher_moves_gaps_by_at_most_two_with_the_public_candidates_added():
    """All replacements of one of 2 teachers who vote for any of 3 labels."""
    sets = [np.array(votes) for votes in itertools.product((0, 1), repeat=3)]

    def gaps(*votes: np.ndarray) -> np.ndarray:
        return -np.diff(np.sort(np.concatenate([[2], np.sum(votes, axis=0), [0]]))[::-1])

    moved = [np.abs(gaps(kept, old) - gaps(kept, new)).max() for kept, old, new in itertools.product(sets, repeat=3)]
    assert max(moved) == 2


def test_stable_answers_are_withheld_where_teachers_do_not_agree():
    plan = stable_plan(epsilon=0.5, delta=1e-6, neighbours="replace", queries=10)
    counts = np.tile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], (10, 1))
    # Every gap is at most the reach, so each test passes with chance <= test_delta = 5e-8.
    assert answer_stable(counts, plan, n_teachers=11, key=NoiseKey.from_seed(5)).rows.size == 0


def test_the_largest_rank_of_a_gaussian_choice_is_within_the_plan():
    plan = stable_plan(epsilon=8.0, delta=1e-5, neighbours="replace", queries=3, noise="gaussian", choices=4)
    counts = np.array([[400, 0, 0], [0, 0, 0], [400, 400, 400]])
    assert answer_stable(counts, plan, n_teachers=400, key=NoiseKey.from_seed(6)).sets.shape[1] == 3
