"""Canaries that are persons: ours keeps its epsilon, a pipeline that forgets a person's second row does not."""

from __future__ import annotations

import numpy as np
import pytest

import labeldp
from labeldp.audit import Pipeline, audit, canary_audit, release_scores
from labeldp.errors import LabelDPError

SURE = 1 - 1e-7  # of each audit: a sound pipeline fails with probability 1e-6 at most
#: Each of 800 persons has three rows, scattered.
OWNERS = np.random.default_rng(0).permutation(np.repeat(np.arange(800), 3))
LABELS = np.zeros(len(OWNERS), np.int64)


def ours(epsilon, way="one"):
    mechanism = labeldp.RandomizedResponse(epsilon, n_classes=2)
    return lambda y: release_scores(labeldp.privatize(y, mechanism, persons=OWNERS, persons_way=way))


def forgetful(epsilon):
    """Answers every row at epsilon, as if nobody had a second one: the promise about labels, read as one about persons."""
    return lambda y: release_scores(labeldp.privatize(y, labeldp.RandomizedResponse(epsilon, n_classes=2)))


@pytest.mark.parametrize("way", ["one", "shares", "group"])
def test_a_persons_labels_flipped_together_stay_hidden(way):
    found = canary_audit(
        ours(1.0, way), LABELS, n_classes=2, persons=OWNERS, references=0, confidence=SURE, claimed=1.0, canaries=800
    )
    assert found.lower_bound <= 1.0
    assert found.n_canaries == 800
    assert not found.rejected


def test_a_pipeline_that_forgets_a_second_row_is_caught():
    subject = {"labels": LABELS, "n_classes": 2, "claimed": 1.0, "references": 0, "canaries": 800}
    # Planted one by one, its labels keep the promise; a person's labels flipped together do not.
    assert audit(Pipeline(train=forgetful(1.0), **subject), confidence=SURE, seed=1).passed
    caught = audit(Pipeline(train=forgetful(1.0), persons=OWNERS, **subject), confidence=SURE, seed=1)
    assert not caught.passed
    assert caught.lower_bound > 1.0


def test_a_claim_is_about_what_is_planted():
    promise = labeldp.Guarantee.pure(1.0)
    with pytest.raises(LabelDPError, match="for_persons"):
        canary_audit(ours(1.0), LABELS, n_classes=2, persons=OWNERS, references=0, claimed=promise)
    person = labeldp.privatize(LABELS, labeldp.RandomizedResponse(1.0, n_classes=2), persons=OWNERS).guarantee
    assert canary_audit(ours(1.0), LABELS, n_classes=2, persons=OWNERS, references=0, claimed=person).claimed == 1.0
    group = promise.for_persons(3)
    assert canary_audit(forgetful(1.0), LABELS, n_classes=2, references=0, claimed=group).claimed == 1.0
    with pytest.raises(LabelDPError, match="one id for each row"):
        canary_audit(ours(1.0), LABELS, n_classes=2, persons=OWNERS[:-1], references=0)


def test_the_audit_of_a_saved_release_knows_rows_without_an_answer(tmp_path):
    mechanism = labeldp.InformativeResponse(1.0, n_classes=5)
    labels = np.arange(len(OWNERS)) % 5
    release = labeldp.privatize(labels, mechanism, persons=OWNERS)
    release.save(tmp_path / "out")
    found = audit(tmp_path / "out", labels=labels, confidence=SURE)
    assert found.passed, [check for check in found.checks if not check.passed]
