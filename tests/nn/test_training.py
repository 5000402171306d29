"""What trains a network, each part against what it is defined to be: losses, schedules, batches, mixup, averages, inputs.

Gradients that are written out are compared with autograd, values with high precision.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

from labeldp.items import Items
from labeldp.mechanisms import RandomizedResponse
from labeldp.nn import Training
from labeldp.nn.inputs import ArrayInputs, DatasetInputs, Scale
from labeldp.nn.models import NeuralCollaborativeFiltering
from labeldp.nn.training import (
    Evidence,
    Task,
    draw_batches,
    mix_logits,
    share_of_peak,
    start_run,
    train,
    update_average,
)

# ----------------------------------------------------------------------------------------------------------- losses


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


def loss_of(kind, logits, values):
    """The mean loss of a batch and its gradient, as the loop asks for them."""
    evidence = Evidence(kind=kind, values=values, n_classes=logits.shape[1])
    return evidence.loss(logits, torch.arange(len(logits)))


def test_plain_is_cross_entropy(logits):
    codes = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    agree(loss_of("plain", logits, codes), by_autograd(lambda z: torch.nn.functional.cross_entropy(z, codes), logits))


def test_soft_takes_signed_targets(logits):
    targets = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = targets - targets.mean(1, keepdim=True) + 0.2  # rows sum to one, entries of both signs
    assert (targets < 0).any()
    agree(loss_of("soft", logits, targets), by_autograd(lambda z: -(targets * z.log_softmax(1)).sum(1).mean(), logits))


def test_forward_is_the_log_chance_of_what_was_seen(logits):
    likelihood = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    likelihood[:, 2] = 0.0
    expected = by_autograd(lambda z: -(z.softmax(1) * likelihood).sum(1).log().mean(), logits)
    agree(loss_of("forward", logits, likelihood), expected)


def test_weighted_counts_examples(logits):
    codes, weights = torch.tensor([0, 1, 2, 3, 4, 0, 1]), torch.arange(7, dtype=torch.float64)
    both = torch.stack([codes.double(), weights], dim=1)

    def expected(z):
        return (torch.nn.functional.cross_entropy(z, codes, reduction="none") * weights).mean()

    agree(loss_of("weighted", logits, both), by_autograd(expected, logits))


def test_forward_survives_logits_that_underflow():
    # The only label that explains the observation is 200 below the top: exp(-200) is 0 in float32.
    logits = torch.tensor([[200.0, 0.0, -50.0]])
    likelihood = torch.tensor([[0.0, 0.25, 0.0]])
    value, gradient = loss_of("forward", logits, likelihood)
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
    channel = RandomizedResponse(epsilon=1.0, n_classes=3).channel()
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    matrix = channel.matrix(0)
    for label in range(3):
        mean = sum(
            matrix[label, seen]
            * loss_of(
                "soft", logits, torch.from_numpy(np.asarray(channel.unbiased_targets(np.array([seen]))).astype(float))
            )[1]
            for seen in range(3)
        )
        # Exact in exact arithmetic; float64 leaves rounding of three products.
        assert torch.allclose(mean, loss_of("plain", logits, torch.tensor([label]))[1], atol=1e-12)


# --------------------------------------------------------------------------------------------------------- the loop


@pytest.mark.parametrize("schedule", ["linear", "piecewise", "constant"])
def test_schedules_warm_up_and_stay_in_range(schedule):
    shares = [share_of_peak(schedule, at, warm_up=0.15) for at in np.linspace(0, 1, 201)]
    assert shares[0] == 0.0
    assert max(shares) == 1.0
    assert min(shares) >= 0.0
    assert np.argmax(shares) == 30  # 15% of 200


def task_of(n, *, batch_size, mixup=0.0):
    settings = Training(epochs=1, batch_size=batch_size, lr=0.1, weight_decay=0.0, optimizer="sgd", mixup=mixup)
    X = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    evidence = Evidence(kind="plain", values=torch.zeros(n, dtype=torch.int64), n_classes=2)
    return Task(inputs=ArrayInputs.of(X), evidence=evidence, training=settings)


@pytest.mark.parametrize(("n", "batch_size"), [(2, 256), (3, 2), (5, 2), (257, 256), (1000, 256), (512, 256)])
def test_an_epoch_takes_every_example_once_and_no_batch_alone(n, batch_size):
    drawn = draw_batches(task_of(n, batch_size=batch_size))
    assert sorted(torch.cat([rows for rows, _ in drawn]).tolist()) == list(range(n))
    sizes = [len(rows) for rows, _ in drawn]
    assert min(sizes) >= 2
    assert max(sizes) <= max(batch_size, 3)  # an odd one out joins a batch of two
    assert max(sizes) - min(sizes) <= 1


def test_mixup_keeps_a_beta_share():
    torch.manual_seed(0)
    keeps = [keep for _, keep in draw_batches(task_of(4000, batch_size=2, mixup=8.0))]
    # Beta(8, 8): mean 1/2, variance 1/68. 2000 draws: the mean is within 6 standard errors but for probability 2e-9.
    assert abs(np.mean(keeps) - 0.5) < 6 * (1 / 68 / 2000) ** 0.5
    assert np.std(keeps) == pytest.approx((1 / 68) ** 0.5, rel=0.15)  # 9 standard errors of a standard deviation


def test_mixup_mixes_inputs_or_embeddings():
    identity = torch.nn.Identity()
    x = torch.tensor([[1.0], [2.0], [4.0]])
    assert mix_logits(identity, x, keep=0.75).flatten().tolist() == [0.75 * 1 + 0.25 * 4, 1.75, 3.5]
    pairs = torch.tensor([[0, 1], [1, 0]])
    network = NeuralCollaborativeFiltering(2, 2, n_classes=3).eval()
    embedded = network.embed(pairs)
    assert torch.equal(
        mix_logits(network, pairs, keep=0.5), network.head(torch.lerp(embedded.roll(1, 0), embedded, 0.5))
    )


def test_average_follows():
    module = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    average = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    before = average[0].weight.item()
    module[1].num_batches_tracked += 5
    update_average(average, module, decay=0.75)
    assert average[0].weight.item() == pytest.approx(
        0.75 * before + 0.25 * module[0].weight.item(), rel=1e-6
    )  # float32
    assert int(average[1].num_batches_tracked) == 5


def test_one_step_of_sgd_is_the_hand_computed_one():
    task = task_of(4, batch_size=4)
    torch.manual_seed(0)
    network = torch.nn.Linear(2, 2)
    run = start_run(network, task.training)
    weight = network.weight.detach().clone()
    inputs = task.inputs.batch(torch.arange(4))
    torch.nn.functional.cross_entropy(network(inputs), torch.zeros(4, dtype=torch.int64)).backward()
    gradient = network.weight.grad.clone()
    train(run, task)
    rate = 0.1 * share_of_peak("linear", 0.5, warm_up=0.1)  # the one step stands in the middle of the run
    assert torch.allclose(network.weight, weight - rate * gradient, atol=1e-6)  # float32


# ---------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize("shape", [(50, 7), (50, 2, 7), (50, 3, 4, 4)])
def test_inputs_have_mean_zero_and_one_overall_spread(shape):
    X = np.random.default_rng(0).normal(3.0, 2.0, size=shape).astype(np.float32)
    inputs = ArrayInputs.of(X)
    views = [inputs.batch(torch.arange(50), view=view).numpy() for view in range(inputs.n_views)]
    whole = np.stack(views)
    assert abs(whole.mean()) < 1e-5  # float32 sums
    assert whole.std() == pytest.approx(1.0, abs=1e-5)
    assert len(inputs) == 50
    assert np.array_equal(X, np.random.default_rng(0).normal(3.0, 2.0, size=shape).astype(np.float32))  # untouched


def test_bytes_stay_bytes_until_a_batch_is_taken():
    X = np.random.default_rng(0).integers(0, 256, size=(20, 1, 3, 3), dtype=np.uint8)
    inputs = ArrayInputs.of(X)
    assert inputs.tensor.dtype == torch.uint8
    assert np.allclose(
        inputs.batch(torch.arange(20)).numpy(), ArrayInputs.of(X.astype(np.float32)).batch(torch.arange(20)).numpy()
    )


def test_views_take_equal_shares_of_a_batch():
    X = np.stack([np.zeros((6, 1)), np.ones((6, 1))], axis=1).astype(np.float32)
    batch = ArrayInputs.of(X, scale=Scale.identity()).batch(torch.tensor([5, 0, 1, 4]))
    assert batch.flatten().tolist() == [0.0, 0.0, 1.0, 1.0]


def test_dataset_items_come_as_they_are():
    items = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
    inputs = DatasetInputs(items=Items(items, owner="test"))
    assert inputs.sample_shape == (2,)
    assert inputs.batch(torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [0.0, 1.0]]
