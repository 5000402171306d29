"""BYOL and brought modules: features without labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from labeldp.errors import LabelDPError
from labeldp.nn import BYOL, ModuleFeatures
from labeldp.nn.byol import Pair, Views, disagreement, rising


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    images = np.pad(data.images[:900, None].astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    return images, data.target[:900]


def stripes(n):
    """Stripes in four directions, at any phase, under a brightness that says nothing about the direction."""
    generator = np.random.default_rng(0)
    direction, at = generator.integers(0, 4, n), np.arange(10)
    angle = (np.pi * direction / 4)[:, None, None]
    along = np.cos(angle) * at[None, :, None] + np.sin(angle) * at[None, None, :]
    images = np.sin(np.pi * along / 2 + generator.uniform(0, 2 * np.pi, n)[:, None, None])
    images += generator.normal(size=n)[:, None, None] + 0.1 * generator.normal(size=(n, 10, 10))
    return images[:, None].astype(np.float32), direction


def neighbours_agree(features, labels):
    half = len(labels) // 2
    return KNeighborsClassifier(5).fit(features[:half], labels[:half]).score(features[half:], labels[half:])


@pytest.mark.slow
def test_training_brings_alike_images_together():
    # One seed alone says little: over so few steps the gain of a seed was between -4 and +24 points. The mean of three
    # was measured at +13; a quarter of that is asked for, since rounding on other machines moves each seed.
    images, labels = stripes(500)
    settings = {"width": 4, "hidden": 64, "projection": 32, "batch_size": 50, "flip": False}
    views = {"brightness": 3.0, "contrast": 0.3, "least_window": 0.8}
    before, after = [], []
    for seed in range(3):
        model = BYOL(**settings, **views, epochs=40, random_state=seed)
        before.append(neighbours_agree(clone(model).set_params(epochs=0).fit_transform(images), labels))
        after.append(neighbours_agree(model.fit_transform(images), labels))
        assert model.history_[-1] < 0.7 * model.history_[0]
    print(f"five nearest neighbours: {np.mean(before):.3f} before, {np.mean(after):.3f} after; {before} {after}")
    assert np.mean(after) > np.mean(before) + 0.03


def test_target_is_the_moving_average_and_never_trained():
    torch.manual_seed(0)
    pair = Pair.made(1, width=2, hidden=8, projection=4)
    old = [weight.clone() for weight in pair.target.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(old, pair.online.parameters(), strict=True))
    weights = [*pair.online.parameters(), *pair.predictor.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    first, second = torch.randn(2, 6, 1, 8, 8)
    pair.step(first, second, optimizer, decay=0.75)
    moved = False
    for before, target, online in zip(old, pair.target.parameters(), pair.online.parameters(), strict=True):
        assert target.grad is None
        assert torch.allclose(target, 0.75 * before + 0.25 * online, atol=1e-6)  # float32
        moved |= not torch.equal(online, before)
    assert moved


def test_loss_and_decay_are_as_defined():
    rows = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    assert float(disagreement(rows, rows)) == pytest.approx(0.0, abs=1e-6)
    assert float(disagreement(rows, -rows)) == pytest.approx(4.0)
    assert float(disagreement(rows, rows.flip(0))) == pytest.approx(2.0)
    assert rising(0.9, 0.0) == pytest.approx(0.9)
    assert rising(0.9, 1.0) == pytest.approx(1.0)


def test_views_without_change_are_the_image():
    images = torch.rand(4, 1, 9, 9)
    still = Views(least_window=1.0, flip=False, brightness=0.0, contrast=0.0)
    assert torch.allclose(still(images), images, atol=1e-5)  # bilinear interpolation at the pixels themselves
    torch.manual_seed(0)
    assert not torch.allclose(Views()(images), Views()(images), atol=0.05)


def test_labels_are_not_looked_at_and_the_seed_decides(digits):
    images, labels = digits
    model = BYOL(width=2, epochs=1, batch_size=50)
    one = clone(model).fit(images[:100], labels[:100]).transform(images[:20])
    two = clone(model).fit(images[:100]).transform(images[:20])
    assert np.array_equal(one, two)
    assert one.shape == (20, 16)
    assert len(model.fit(images[:10]).get_feature_names_out()) == 16


def test_byol_refuses_what_is_no_image(digits):
    images = digits[0]
    with pytest.raises(LabelDPError, match="8 x 8"):
        BYOL().fit(images.reshape(len(images), -1))
    with pytest.raises(LabelDPError, match="decay"):
        BYOL(decay=1.5).fit(images[:10])
    fitted = BYOL(width=1, epochs=0).fit(images[:10])
    with pytest.raises(LabelDPError, match="as in fit"):
        fitted.transform(images[:, :, :9, :9])


def test_brought_module_gives_its_answers_in_batches():
    images = np.random.default_rng(0).integers(0, 256, size=(7, 3, 4, 4), dtype=np.uint8)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Dropout(0.5))
    features = ModuleFeatures(module, batch_size=3).fit_transform(images)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(images).float()).flatten(1).numpy()
    assert features.shape == (7, 8)
    assert np.allclose(features, expected, rtol=1e-4, atol=1e-3)  # batches of other sizes round otherwise
    rows = ModuleFeatures(torch.nn.Linear(5, 2)).fit(np.zeros((4, 5)))
    assert rows.transform(np.zeros((4, 5))).shape == (4, 2)
    assert len(rows.get_feature_names_out()) == 2


def test_brought_module_refusals():
    with pytest.raises(LabelDPError, match="torch module"):
        ModuleFeatures("dino").fit(np.zeros((2, 3)))
    with pytest.raises(LabelDPError, match="what the module takes"):
        ModuleFeatures(torch.nn.Linear(5, 2)).fit(np.zeros((2, 3)))
    fitted = ModuleFeatures(torch.nn.Flatten()).fit(np.zeros((2, 3, 4, 4)))
    with pytest.raises(LabelDPError, match="as in fit"):
        fitted.transform(np.zeros((2, 3, 5, 4)))
    with pytest.raises(LabelDPError, match="numbers"):
        ModuleFeatures(torch.nn.Flatten()).fit(np.array([["a"]]))
