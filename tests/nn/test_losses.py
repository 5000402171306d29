"""Losses: written-out gradients against autograd, values against high precision, and the broken twins they would catch."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

from labeldp.nn.training import Evidence, forward_loss, plain_loss, soft_loss, weighted_loss


@pytest.fixture
def logits():
    return torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def by_autograd(function, logits):
    leaf = logits.clone().requires_grad_()
    value = function(leaf)
    value.backward()
    return value.detach(), leaf.grad


def agree(pair, expected):
    # float64 throughout; the two ways differ by the order of a handful of additions.
    assert torch.allclose(pair[0], expected[0], rtol=1e-12, atol=1e-13)
    assert torch.allclose(pair[1], expected[1], rtol=1e-10, atol=1e-13)


def test_plain_is_cross_entropy(logits):
    codes = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    agree(plain_loss(logits, codes), by_autograd(lambda z: torch.nn.functional.cross_entropy(z, codes), logits))


def test_soft_takes_signed_targets(logits):
    targets = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = targets - targets.mean(1, keepdim=True) + 0.2  # rows sum to one, entries of both signs
    assert (targets < 0).any()
    agree(soft_loss(logits, targets), by_autograd(lambda z: -(targets * z.log_softmax(1)).sum(1).mean(), logits))


def test_forward_is_the_log_chance_of_what_was_seen(logits):
    likelihood = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    likelihood[:, 2] = 0.0
    expected = by_autograd(lambda z: -(z.softmax(1) * likelihood).sum(1).log().mean(), logits)
    agree(forward_loss(logits, likelihood), expected)


def test_weighted_counts_examples(logits):
    codes, weights = torch.tensor([0, 1, 2, 3, 4, 0, 1]), torch.arange(7, dtype=torch.float64)
    both = torch.stack([codes.double(), weights], dim=1)

    def expected(z):
        return (torch.nn.functional.cross_entropy(z, codes, reduction="none") * weights).mean()

    agree(weighted_loss(logits, both), by_autograd(expected, logits))


def test_forward_survives_logits_that_underflow():
    # The only label that explains the observation is 200 below the top: exp(-200) is 0 in float32.
    logits = torch.tensor([[200.0, 0.0, -50.0]])
    likelihood = torch.tensor([[0.0, 0.25, 0.0]])
    value, gradient = forward_loss(logits, likelihood)
    with mpmath.workdps(60):
        total = mpmath.exp(200) + 1 + mpmath.exp(-50)
        exact = float(-mpmath.log(mpmath.mpf("0.25") / total))
    assert float(value) == pytest.approx(exact, rel=1e-6)  # float32 has seven digits
    assert gradient[0].tolist() == pytest.approx([1.0, -1.0, 0.0], abs=1e-6)
    naive = -(logits.softmax(1) * likelihood).sum(1).log()
    assert torch.isinf(naive).all()  # what the guarded form protects from


def test_mixup_adds_the_losses_of_both_examples(logits):
    likelihood = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    evidence = Evidence(kind="forward", values=likelihood, n_classes=5)
    rows = torch.tensor([6, 5, 4, 3, 2, 1, 0])
    here, before = likelihood[rows], likelihood[rows].roll(1, 0)

    def expected(z):
        chances = [(z.softmax(1) * part).sum(1).log() for part in (here, before)]
        return -(0.3 * chances[0] + 0.7 * chances[1]).mean()

    agree(evidence.loss(logits, rows, keep=0.3), by_autograd(expected, logits))


def test_unbiased_targets_have_the_mean_gradient_of_true_labels():
    from labeldp.mechanisms import RandomizedResponse

    channel = RandomizedResponse(epsilon=1.0, n_classes=3).channel()
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    matrix = channel.matrix(0)
    for label in range(3):
        mean = sum(
            matrix[label, seen]
            * soft_loss(logits, torch.from_numpy(np.asarray(channel.unbiased_targets(np.array([seen]))).astype(float)))[
                1
            ]
            for seen in range(3)
        )
        # Exact in exact arithmetic; float64 leaves rounding of three products.
        assert torch.allclose(mean, plain_loss(logits, torch.tensor([label]))[1], atol=1e-12)
