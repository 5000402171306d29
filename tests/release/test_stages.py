"""Stages: the order of things, noise of their own, what was kept is not drawn again, and no stage spends too much."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from labeldp.errors import PrivacyError
from labeldp.guarantee import Guarantee, Trust
from labeldp.mechanisms import RandomizedResponse
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels, privatize
from labeldp.release.budget import Budget
from labeldp.release.stages import StageDoor, run_stages


def labels(n=64):
    return SensitiveLabels(np.arange(n) % 2, n_classes=2)


def budget():
    return Budget(owner="example", labels=labels())


@pytest.mark.parametrize("spent", [0.0, 0.4])
def test_whom_a_prior_trusts_the_whole_trusts(spent):
    """Also one that costs nothing: it may be told by somebody who counts."""
    told = Guarantee.pure(spent, trust=Trust.PEERS)
    whole = budget().split(1.0, prior=SimpleNamespace(promise=lambda *_, **__: told)).promise
    assert whole.trust == Trust.PEERS
    assert whole.epsilon() <= 1.0


def test_every_stage_believes_then_releases_then_learns_from_what_came_before():
    seen = []

    def believe(number, model):
        seen.append(("believe", number, model))
        return f"belief {number}"

    def release(number, belief):
        seen.append(("release", number, belief))
        return f"release {number}"

    def learn(number, model, belief, outcome):
        seen.append(("learn", number, belief, outcome))
        return [*model, number]

    assert run_stages(2, start=[], believe=believe, release=release, learn=learn) == [0, 1]
    assert seen == [
        ("believe", 0, []),
        ("release", 0, "belief 0"),
        ("learn", 0, "belief 0", "release 0"),
        ("believe", 1, [0]),
        ("release", 1, "belief 1"),
        ("learn", 1, "belief 1", "release 1"),
    ]
    assert run_stages(0, start="as it was", believe=believe, release=release, learn=learn) == "as it was"


def test_each_stage_has_noise_of_its_own_and_a_kept_stage_is_not_drawn_again():
    """A run that stopped after its first stage goes on as the uninterrupted one did, and draws that stage once."""
    drawn = []

    def respond(key):
        drawn.append(key)
        return privatize(labels(), RandomizedResponse(1.0), rng=key)

    door = StageDoor(budget=budget(), key=NoiseKey.from_seed(3), epsilon=1.0)
    first, second = (door.draw(number, respond).codes for number in range(2))
    assert not np.array_equal(first, second)  # of 64 labels: equal with probability below 2^-30
    kept = {}

    def keep(number, make):
        if number not in kept:
            kept[number] = make()
        return kept[number]

    stopped = StageDoor(budget=budget(), key=NoiseKey.from_seed(3), epsilon=1.0, keep=keep)
    stopped.draw(0, respond)
    drawn.clear()
    assert np.array_equal(stopped.draw(0, respond).codes, first)
    assert not drawn
    assert np.array_equal(stopped.draw(1, respond).codes, second)
    named = StageDoor(budget=budget(), key=NoiseKey.from_seed(3), epsilon=1.0, name="histogram")
    assert not np.array_equal(named.draw(0, respond).codes, first)


@pytest.mark.parametrize("kept", [False, True], ids=["drawn", "kept"])
def test_a_stage_that_spends_more_than_was_charged_stops_the_run(kept):
    costly = SimpleNamespace(guarantee=Guarantee.pure(1.5))
    keep = (lambda _number, _make: costly) if kept else None
    door = StageDoor(budget=budget(), key=NoiseKey.from_seed(0), epsilon=1.0, keep=keep)
    with pytest.raises(PrivacyError, match="was charged for a part that spent"):
        door.draw(0, lambda _key: costly)
    # The same cost within its part passes, and so does what cost nothing.
    StageDoor(budget=budget(), key=NoiseKey.from_seed(0), epsilon=1.5).draw(0, lambda _key: costly)
    free = SimpleNamespace(guarantee=None)
    assert StageDoor(budget=budget(), key=NoiseKey.from_seed(0), epsilon=0.0).draw(0, lambda _key: free) is free


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize("epsilon", [0.05, 8.0])
@pytest.mark.parametrize("stages", [1, 2, 7])
def test_stages_share_one_budget(epsilon, delta, stages):
    shares = budget().share(epsilon, delta, stages=stages, name="moments")
    assert shares.promise.epsilon(delta) <= epsilon
    assert shares.promise.epsilon(delta) > epsilon * (1 - 1e-6)  # and leave next to nothing of it
    assert len(shares.promise.parts) == (stages if stages > 1 else 0)  # one part is the whole
    assert shares.promise.trust == Trust.CURATOR
    # The broken twin: every stage at the whole budget.
    each = Guarantee.pure(epsilon) if delta == 0 else shares.promise
    assert stages == 1 or each.then(each).epsilon(delta) > epsilon


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 3.0])
def test_a_share_and_what_is_left_add_up_to_no_more(epsilon, share):
    part, rest = budget().take_share(epsilon, share=share)
    whole = Guarantee.in_sequence([Guarantee.pure(part), Guarantee.pure(rest)]).epsilon()
    assert epsilon * (1 - 1e-15) <= whole <= epsilon
    assert budget().take_share(float("inf"), share=0.0) == (0.0, float("inf"))
