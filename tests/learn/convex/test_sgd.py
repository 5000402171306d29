"""Gradients of the two SGD learners are unbiased: by exact expectation over the channel, not by sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.learn.convex.losses import Huber, Logistic, Loss, Softmax, Squared, one_hot
from labeldp.learn.convex.sgd import (
    OneHotLabels,
    batch_gradient,
    bound_response_moment,
    bound_second_moment,
    project,
    project_rows,
)
from labeldp.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.vectors import measure_vector

CASES = [
    (Logistic(), 2),
    (Huber(), 2),
    (Squared(two=True), 2),
    (Softmax(), 3),
    (Softmax(), 10),
    (Squared(two=False), 4),
]


def ids(case: tuple[Loss, int]) -> str:
    return f"{case[0].name}-{case[1]}"


def gradient(loss: Loss, row: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return batch_gradient(row[None, :], target[None, :], loss, weights)


def setting(loss: Loss, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    row = rng.normal(size=5)
    return row / np.linalg.norm(row), rng.normal(size=(loss.n_scores(n_classes), 5))


def expected_gradient(channel, loss, row, weights, label: int, *, corrected: bool = True) -> np.ndarray:
    """The expectation over the channel's outputs of the gradient that the learner would take."""
    law = channel.matrix(0)[label]
    total = np.zeros_like(weights)
    for output, chance in enumerate(law):
        if chance > 0:
            unbiased = channel.unbiased_targets(np.array([output]))[0]
            target = unbiased if corrected else np.eye(len(law))[output]
            total += chance * gradient(loss, row, target, weights)
    return total


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("loss", "n_classes"), CASES, ids=map(ids, CASES))
def test_responses_give_the_true_gradient_on_average(loss: Loss, n_classes: int, epsilon: float):
    row, weights = setting(loss, n_classes, seed=1)
    channel = RandomizedResponse(epsilon=epsilon, n_classes=n_classes).channel()
    for label in range(n_classes):
        truth = gradient(loss, row, np.eye(n_classes)[label], weights)
        found = expected_gradient(channel, loss, row, weights, label)
        # Targets are about K/epsilon large; 1e-11 is 1e5 ulps of the largest.
        np.testing.assert_allclose(found, truth, atol=1e-11)


def test_without_the_correction_the_gradient_is_biased():
    row, weights = setting(Softmax(), 10, seed=1)
    channel = RandomizedResponse(epsilon=1.0, n_classes=10).channel()
    truth = gradient(Softmax(), row, np.eye(10)[3], weights)
    broken = expected_gradient(channel, Softmax(), row, weights, 3, corrected=False)
    assert np.abs(broken - truth).max() > 0.1


def test_targets_are_the_paper_s_formula():
    loss, (row, weights) = Softmax(), setting(Softmax(), 10, seed=2)
    growth = math.exp(1.0)
    channel = RandomizedResponse(epsilon=1.0, n_classes=10).channel()
    each = np.stack([gradient(loss, row, np.eye(10)[k], weights) for k in range(10)])
    for output in range(10):
        paper = (growth + 9) / (growth - 1) * (each[output] - each.sum(axis=0) / (growth + 9))
        ours = gradient(loss, row, channel.unbiased_targets(np.array([output]))[0], weights)
        # The channel's odds are rounded down by up to 1e-15 or so: the formula agrees to that times its size.
        np.testing.assert_allclose(ours, paper, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
def test_gradient_bound_of_the_step_size(epsilon: float, n_classes: int):
    channel = RandomizedResponse(epsilon=epsilon, n_classes=n_classes).channel()
    size = float(np.abs(channel.unbiased_targets(np.array([0]))).sum())
    growth = math.exp(epsilon)
    assert size <= (growth + 2 * n_classes - 1) / (growth - 1)
    assert size == pytest.approx((growth + 2 * n_classes - 3) / (growth - 1), rel=1e-9)
    row, weights = setting(Softmax(), n_classes, seed=3)
    target = channel.unbiased_targets(np.array([1]))[0]
    assert np.linalg.norm(gradient(Softmax(), row, target, weights)) <= math.sqrt(2) * size


def test_with_a_prior_labels_in_the_candidate_set_are_unbiased_and_others_average_over_it():
    loss, (row, weights) = Softmax(), setting(Softmax(), 5, seed=4)
    channel = RRWithPrior(1.0).channel([[0.45, 0.4, 0.1, 0.03, 0.02]])
    inside = np.flatnonzero(channel.base[0] > 0)
    assert 1 < len(inside) < 5
    each = np.stack([gradient(loss, row, np.eye(5)[k], weights) for k in range(5)])
    for label in range(5):
        found = expected_gradient(channel, loss, row, weights, label)
        truth = each[label] if label in inside else each[inside].mean(axis=0)
        np.testing.assert_allclose(found, truth, atol=1e-11)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_normal_noise_lies_in_the_span_of_gradient_differences(n_classes: int):
    """The used row is e_y + (z - mean z) for noise z, so the gradient's noise is (z - mean z) x' for softmax regression."""
    row, weights = setting(Softmax(), n_classes, seed=5)
    labels = SensitiveLabels(np.arange(n_classes), n_classes=n_classes)
    measured = measure_vector(labels, OneHotLabels(), epsilon=1.0, delta=1e-5, rng=NoiseKey.from_seed(6))
    drawn = measured.value - np.eye(n_classes)
    targets = project_rows(measured.value)
    for label in range(n_classes):
        noise = drawn[label] - drawn[label].mean()
        np.testing.assert_allclose(targets[label], np.eye(n_classes)[label] + noise, atol=1e-12)
        off = gradient(Softmax(), row, targets[label], weights) - gradient(
            Softmax(), row, np.eye(n_classes)[label], weights
        )
        # targets come in with a minus in p - q
        np.testing.assert_allclose(off, -np.outer(noise, row), atol=1e-12)


def test_one_hot_sensitivity_is_reached_by_a_replaced_label():
    for n_classes, expected in ((2, 1.0), (5, math.sqrt(2))):
        query = OneHotLabels()
        one, two = (query.exact(np.array([k, 0]), n_classes=n_classes) for k in (0, 1))
        claimed = query.sensitivity(n_classes=n_classes, n_examples=2)
        assert np.linalg.norm(one - two) <= claimed
        assert claimed == pytest.approx(expected, rel=1e-15)


def enumerate_second_moment(channel, gradients: np.ndarray, label: int) -> float:
    """E|sum_k q_k g(k)|^2 over every output of the channel."""
    law = channel.matrix(0)[label]
    targets = np.stack([channel.unbiased_targets(np.array([output]))[0] for output in range(len(law))])
    return float(law @ ((targets @ gradients) ** 2).sum(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_second_moment_of_responses_against_enumeration(n_classes: int, epsilon: float):
    """No set of gradients of length L exceeds the bound; opposite ones come near it, and the paper's is far above."""
    channel = RandomizedResponse(epsilon=epsilon, n_classes=n_classes).channel()
    targets = channel.unbiased_targets(np.arange(n_classes))
    e = math.exp(epsilon)
    a, w = (e + n_classes - 1) / (e - 1), (e + 2 * n_classes - 3) / (e - 1)
    bound = bound_response_moment(targets, batch_size=1)
    assert bound == pytest.approx(min(w**2, a**2 + 1), rel=1e-6)  # thresholds of 64 bits round keep
    rng = np.random.default_rng(0)
    unit = rng.normal(size=(30, n_classes, 3))
    unit /= np.linalg.norm(unit, axis=2, keepdims=True)
    signs = np.stack([np.where(np.arange(n_classes) < half, 1.0, -1.0)[:, None] for half in range(1, n_classes, 9)])
    for gradients in [*unit, *signs]:
        for label in (0, n_classes - 1):
            assert enumerate_second_moment(channel, gradients, label) <= bound * (1 + 1e-9)
    halves = np.where(np.arange(n_classes) % 2 == 0, 1.0, -1.0)[:, None]
    assert enumerate_second_moment(channel, halves, 0) >= 0.5 * bound
    if epsilon <= 1:
        assert 6 * n_classes / epsilon > 4 * math.sqrt(bound)  # the paper's G / L


def test_the_paper_s_gradient_bound_is_nine_times_too_long():
    """Theorem 9 steps by G = 6 K L / epsilon: 60 L at 10 classes and epsilon 1. No gradient is longer than 11.5 L, and the
    root of the second moment is at most 6.9 L, with equality where no bound can be better by more than a few percent.
    """
    channel = RandomizedResponse(epsilon=1.0, n_classes=10).channel()
    targets = channel.unbiased_targets(np.arange(10))
    paper = 6 * 10 / 1.0
    longest, root = float(np.abs(targets).sum(axis=1).max()), math.sqrt(bound_response_moment(targets, batch_size=1))
    assert (round(longest, 1), round(root, 1)) == (11.5, 6.9)
    assert paper > 5 * longest > 8 * root
    halves = np.where(np.arange(10) % 2 == 0, 1.0, -1.0)[:, None]
    assert math.sqrt(enumerate_second_moment(channel, halves, 0)) > 0.97 * root


def test_steps_are_longer_by_the_variance_bound():
    """Steps of 1 example are D / (G sqrt t): G falls from the longest gradient to the root of the second moment."""
    ratios = []
    for n_classes in (10, 100):
        targets = RandomizedResponse(epsilon=1.0, n_classes=n_classes).channel().unbiased_targets(np.arange(n_classes))
        longest = np.abs(targets).sum(axis=1).max()
        ratios.append(longest / math.sqrt(bound_response_moment(targets, batch_size=1)))
    assert [round(float(ratio), 2) for ratio in ratios] == [1.66, 1.96]


def test_second_moment_within_candidate_sets():
    """One candidate has no noise; of three rows with 1, 2 and 4 candidates the last one counts."""
    prior = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    channel = RRWithPrior(1.0).channel(prior=prior)
    assert bound_response_moment(channel.unbiased_targets(np.array([0, 1, 3])), batch_size=1) == pytest.approx(
        ((math.e + 3) / (math.e - 1)) ** 2 + 1, rel=1e-6
    )
    alone = RRWithPrior(1.0).channel(prior=prior[:1])
    assert bound_response_moment(alone.unbiased_targets(np.array([0])), batch_size=1) == pytest.approx(1.0)


def test_second_moment_and_projection():
    assert bound_second_moment(clean=2.0, noisy=100.0, batch_size=25) == 8.0
    weights = np.array([[3.0, 4.0]])
    np.testing.assert_allclose(np.linalg.norm(project(weights, 2.0)), 2.0)
    assert project(weights, 6.0) is weights
    assert one_hot(np.array([1]), 3).tolist() == [[0.0, 1.0, 0.0]]
