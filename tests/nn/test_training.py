"""Schedules, augmentation, mixup, averages and batches: each against what it is defined to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labeldp.errors import LabelDPError
from labeldp.nn import Augment, Training, cpu_preset, paper_preset
from labeldp.nn.inputs import ArrayInputs, DatasetInputs, Scale
from labeldp.nn.presets import CPU, blank_squares, mirror_half, parse_augment, resolve_training, shift_images
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
    keeps = [keep for _, keep in draw_batches(task_of(4000, batch_size=2, mixup=8.0))]
    # Beta(8, 8): mean 1/2, variance 1/68. 2000 draws: the mean is within 6 standard errors but for probability 2e-9.
    assert abs(np.mean(keeps) - 0.5) < 6 * (1 / 68 / 2000) ** 0.5
    assert np.std(keeps) == pytest.approx((1 / 68) ** 0.5, rel=0.15)  # 9 standard errors of a standard deviation


def test_mixup_mixes_inputs_or_embeddings():
    from labeldp.nn.models import NeuralCollaborativeFiltering

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
    inputs = DatasetInputs(items=items)
    assert inputs.sample_shape == (2,)
    assert inputs.batch(torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [0.0, 1.0]]


# ---------------------------------------------------------------------------------------------------- augmentation


def test_shift_moves_the_whole_image():
    image = torch.zeros(64, 1, 8, 8)
    image[:, :, 4, 4] = 1.0
    torch.manual_seed(0)
    moved = shift_images(image, most=2)
    assert moved.sum(dim=(1, 2, 3)).tolist() == [1.0] * 64
    places = {tuple(place) for place in moved.nonzero()[:, 2:].tolist()}
    assert places <= {(row, column) for row in range(2, 7) for column in range(2, 7)}
    assert len(places) > 10  # 64 draws of 25 places: fewer than 11 has probability below 1e-9


def test_flip_mirrors_about_half():
    image = torch.arange(4.0).expand(1000, 1, 1, 4)
    torch.manual_seed(0)
    turned = int((mirror_half(image)[:, 0, 0, 0] == 3).sum())
    assert abs(turned - 500) < 6 * 250**0.5  # binomial, six standard deviations: 2e-9


def test_cutout_blanks_a_square():
    torch.manual_seed(0)
    left = blank_squares(torch.ones(32, 1, 8, 8), side=4)
    gone = (left == 0).sum(dim=(1, 2, 3))
    assert gone.max() == 16
    assert gone.min() >= 4  # a corner of the square at least
    assert set(left.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("wrong", ["crop,spin", 3, Augment(crop=1.5)])
def test_unknown_augmentation_is_refused(wrong):
    with pytest.raises(LabelDPError, match="augment"):
        parse_augment("NetClassifier", wrong)


# --------------------------------------------------------------------------------------------------------- presets


def test_paper_presets_are_the_papers():
    grey = paper_preset("fashion-mnist", epsilon=1.0, stages=2)
    assert (grey.module, grey.stages, grey.temperature, grey.mixup) == ("inception", (0.8, 0.2), 0.6, (16.0, 8.0))
    settings = grey.training
    assert (settings.epochs, settings.batch_size, settings.lr, settings.warm_up) == (40, 265, 0.02, 0.15)
    assert (settings.optimizer, settings.schedule, settings.weight_decay) == ("sgd", "linear", 1e-4)
    colour = paper_preset("cifar10", epsilon=8.0, stages=3)
    assert (colour.training.epochs, colour.training.batch_size, colour.training.lr) == (200, 512, 0.4)
    assert (colour.stages, colour.mixup) == ((0.6, 0.2, 0.2), (4.0, 4.0, 4.0))
    assert paper_preset("cifar100", epsilon=4.0).training.batch_size == 256
    assert paper_preset("movielens-1m", epsilon=4.0, stages=1).stages == (1.0,)


def test_a_setting_wins_over_its_preset():
    settings = resolve_training("NetClassifier", "cpu", "mlp", {"lr": 0.5, "epochs": None, "augment": "flip"})
    assert (settings.lr, settings.epochs, settings.augment) == (0.5, CPU["mlp"].epochs, Augment(flip=True))
    assert settings.count_epochs(1) == cpu_preset("mlp").least_steps  # a small table gets enough steps
    assert (
        resolve_training("NetClassifier", "cpu", "mlp", {"epochs": 2}).count_epochs(1) == 2
    )  # unless the user says how many


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 1.5),
        ("batch_size", 1),
        ("lr", -1.0),
        ("lr", float("nan")),
        ("weight_decay", -1.0),
        ("mixup", -0.5),
        ("mixup", float("inf")),
        ("ema", 1.0),
        ("optimizer", "adam"),
        ("schedule", "cosine"),
    ],
)
def test_bad_settings_are_refused(name, value):
    with pytest.raises(LabelDPError, match=name):
        resolve_training("NetClassifier", "cpu", "mlp", {name: value})


def test_bad_presets_are_refused():
    with pytest.raises(LabelDPError, match="preset"):
        resolve_training("NetClassifier", "gpu", "mlp", {})
    with pytest.raises(LabelDPError, match="data"):
        paper_preset("imagenet", epsilon=1.0)
