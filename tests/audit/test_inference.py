"""Label inference: the bound against every attacker by enumeration, and attacks that stay below it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.audit import attack_release
from labeldp.audit.inference import accuracy_audit, label_inference
from labeldp.errors import LabelDPError
from labeldp.guarantee import advantage_bound


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_advantage_bound_is_the_linear_program(epsilon: float, delta: float):
    """Largest t - f with t <= E f + delta and 1 - f <= E (1 - t) + delta, solved on its corners."""
    from scipy.optimize import linprog

    E = math.exp(epsilon)
    solved = linprog([-1, 1], A_ub=[[1, -E], [E, -1]], b_ub=[delta, E - 1 + delta], bounds=[(0, 1), (0, 1)])
    assert advantage_bound(epsilon, delta=delta) == pytest.approx(-solved.fun, abs=1e-9)  # the solver's tolerance


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_attacker_gains_more_than_the_bound(prior: list[float], epsilon: float):
    """Every deterministic attacker on randomized response, enumerated: her exact gain, and the best is Bayes'."""
    p = np.array(prior)
    k = len(p)
    matrix = labeldp.RandomizedResponse(epsilon, n_classes=k).channel().matrix()
    bound = (1 - p.max()) * advantage_bound(epsilon)
    gains = []
    for guess in itertools.product(range(k), repeat=k):
        right = sum(p[guess[o]] * matrix[guess[o], o] for o in range(k))
        gains.append(right - p.max())
    assert max(gains) <= bound + 1e-12  # rounding of a few sums of numbers below 1
    if k == 2 and p[0] == 0.5:
        assert max(gains) == pytest.approx(bound, abs=1e-12)  # attained


def test_attack_on_a_release_stays_below_its_bound():
    labels = np.random.default_rng(0).integers(0, 4, 20_000)
    release = labeldp.privatize(labels, labeldp.RandomizedResponse(2.0, n_classes=4))
    found = attack_release(release, labels, confidence=1 - 1e-7)
    expected = float(release.channel.expected_accuracy())
    assert found.accuracy_interval[0] < expected < found.accuracy_interval[1]
    assert not found.exceeded
    assert found.bound == pytest.approx(0.75 * advantage_bound(2.0))
    assert found.two_label_bound == pytest.approx(advantage_bound(2.0))
    assert found.check().passed


def test_a_release_that_claims_too_little_is_exceeded():
    from dataclasses import replace

    labels = np.random.default_rng(0).integers(0, 2, 20_000)
    release = labeldp.privatize(labels, labeldp.RandomizedResponse(3.0, n_classes=2))
    lying = replace(release, guarantee=labeldp.Guarantee.pure(0.5))
    found = attack_release(lying, labels, confidence=1 - 1e-7)
    assert found.exceeded
    assert not found.check().passed


def test_a_model_is_compared_with_what_was_known_before():
    labels = np.array([0, 0, 1, 1] * 50)
    before = np.tile([0.6, 0.4], (200, 1))
    after = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    found = label_inference(after, labels, prior=before, claimed=math.inf)
    assert (found.accuracy, found.prior_accuracy, found.advantage) == (1.0, 0.5, 0.5)
    assert found.advantage_interval[0] < 0.5 < found.advantage_interval[1]
    same = label_inference(before, labels, prior=before)
    assert same.advantage == 0.0
    assert same.bound is None
    assert not same.exceeded


def test_interval_of_the_advantage_covers():
    """200 attacks whose true gain is 0.2; each 99 % interval covers it, but for 12 misses at most (13 or more: 1.6e-7)."""
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(200):
        labels = rng.integers(0, 2, 400)
        right = rng.random(400) < 0.7
        after = np.eye(2)[np.where(right, labels, 1 - labels)]
        found = label_inference(after, labels, prior=np.eye(2)[rng.integers(0, 2, 400)], confidence=0.99)
        misses += not found.advantage_interval[0] <= 0.2 <= found.advantage_interval[1]
    assert misses <= 12


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1], [0.0, 1.0, 1.0], np.ma.array([0, 1, 1], mask=[0, 1, 0])])
def test_labels_that_do_not_fit_are_refused(labels: Any):
    with pytest.raises(LabelDPError, match="labels"):
        label_inference(np.full((3, 2), 0.5), labels, prior=[0.5, 0.5])


def test_accuracy_that_is_claimed_too_high():
    truth = float(labeldp.RandomizedResponse(1.0, n_classes=2).channel().expected_accuracy())

    def run(labels: np.ndarray) -> np.ndarray:
        return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2)).codes

    assert not accuracy_audit(run, prior=[0.5, 0.5], claimed=truth, n_draws=50_000, confidence=1 - 1e-7).rejected
    assert accuracy_audit(run, prior=[0.5, 0.5], claimed=truth + 0.02, n_draws=50_000, confidence=1 - 1e-7).rejected
