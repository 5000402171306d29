"""Every broken mechanism of `labeldp.testing` is rejected, by callables alone, and the sound ones are not."""

from __future__ import annotations

from typing import Any

import pytest

import labeldp
from labeldp.audit import Audit
from labeldp.audit.suite import door_audit
from labeldp.testing.broken import Broken, OffByOneK, broken_subjects
from labeldp.testing.subject import default_priors

#: Of each audit: a sound mechanism fails its test with probability 1e-7 at most.
SURE = 1 - 1e-7
#: Repetition at a distance of 4096 shows in pairs, a thousand for each two labels: enough for a bound near 2.
DRAWS, MANY_DRAWS = 60_000, 150_000


def audits(broken: Broken) -> list[Audit]:
    """Audit a twin under each of its priors, until one audit fails."""
    found: list[Audit] = []
    subject = broken.subject
    for prior in [None] if subject.priors is None else subject.priors:
        found.append(
            door_audit(
                subject.privatize,
                subject.mechanism,
                n_classes=subject.n_classes,
                prior=prior,
                claimed_accuracy=promised(subject.mechanism, prior),
                n_draws=MANY_DRAWS if broken.name in REPEATING else DRAWS,
                confidence=SURE,
            )
        )
        if not found[-1].passed:
            break
    return found


def promised(mechanism: Any, prior: Any) -> float | None:
    """The twin with a wrong k is private; what it breaks is the accuracy that RRWithPrior has."""
    if not isinstance(mechanism, OffByOneK):
        return None
    return float(labeldp.RRWithPrior(mechanism.epsilon).channel(prior).expected_accuracy(prior))


REPEATING = {"fixed seed", "noise repeats", "start ignored"}
FAILS = {
    "off by one k": "accuracy",
    "draws from all, says so": "released",
    "epsilon halved in words": "released",
    "seed unmarked": "seed marked",
    "start ignored": "channel, in pieces",
    "unequal inclusion": "released",
}
#: Faults of fewer than d in 2^64 words: no number of draws shows them. The conformance suite counts the words. And biased
#: answers to numbers, which are private: what they break is no promise about labels.
UNSEEN = {"left-over words look at the label", "bins as they are", "numbers rounded to the nearest level"}


@pytest.mark.parametrize(
    "broken", [one for one in broken_subjects() if one.name not in UNSEEN], ids=lambda broken: broken.name
)
def test_broken_mechanism_is_rejected(broken: Broken):
    last = audits(broken)[-1]
    assert not last.passed
    failed = [check.name for check in last.checks if not check.passed]
    assert any(name.startswith(FAILS.get(broken.name, "channel")) for name in failed)


@pytest.mark.parametrize(
    "mechanism",
    [
        labeldp.UnbiasedResponse(1.0, bounds=(0, 10), grid=5, outputs=9),
        labeldp.RandomizedResponse(1.0),
        labeldp.RRTopK(1.0, k=2),
        labeldp.RRWithPrior(1.0),
        labeldp.InformativeResponse(1.0),
    ],
    ids=repr,
)
def test_sound_mechanism_passes(mechanism: Any):
    prior = None if isinstance(mechanism, labeldp.RandomizedResponse) else default_priors(5)[1]
    found = door_audit(labeldp.privatize, mechanism, n_classes=5, prior=prior, n_draws=DRAWS, confidence=SURE)
    assert found.passed, found.checks
    assert found.lower_bound is not None
    assert 0 < found.lower_bound <= 1.0
