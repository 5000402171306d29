"""Augmentation and presets: images are changed as defined, settings are as documented, bad ones are refused."""

from __future__ import annotations

import pytest
import torch

from labeldp.errors import LabelDPError
from labeldp.nn import Augment, cpu_preset, paper_preset
from labeldp.nn.presets import blank_squares, mirror_half, parse_augment, resolve_training, shift_images

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


def test_paper_presets_have_the_papers_training_and_our_shares():
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
    assert (settings.lr, settings.epochs, settings.augment) == (0.5, cpu_preset("mlp").epochs, Augment(flip=True))
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
