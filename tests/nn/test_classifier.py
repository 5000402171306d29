"""`NetClassifier`: what it learns from, that it repeats itself, that stages carry it, and what it refuses."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

import labeldp.nn
from labeldp.errors import LabelDPError, MissingExtraError
from labeldp.learn import LabelPrivateClassifier
from labeldp.nn import NetClassifier, cpu_preset
from labeldp.nn.models import MODELS, build

QUICK = {"hidden": 16, "epochs": 6, "batch_size": 64, "lr": 0.02, "dropout": 0.0}


@pytest.fixture(scope="module")
def plain(blobs):
    """A network fitted on the plain labels; a test that changes it takes a copy."""
    return NetClassifier("mlp", **QUICK).fit(*blobs)


def same(one, other):
    pairs = zip(one.module_.state_dict().values(), other.module_.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# --------------------------------------------------------------------------------------------------------- learning


def test_learns_from_labels_targets_and_likelihoods(blobs, plain):
    X, y = blobs
    one_hot = np.eye(3)[y]
    soft = NetClassifier("mlp", **QUICK).fit_targets(X, one_hot, classes=[0, 1, 2])
    unseen = NetClassifier("mlp", **QUICK).fit_likelihood(X, 0.9 * one_hot + 0.05, classes=[0, 1, 2])
    for model in (plain, soft, unseen):
        assert model.score(X, y) > 0.9  # the best possible is about 0.97 on these blobs
        assert model.history_[-1] < model.history_[0]
    # One-hot targets are plain labels: the two losses round differently, and no more.
    assert np.allclose(plain.predict_proba(X), soft.predict_proba(X), atol=1e-3)


def test_forward_beats_plain_under_skewed_noise(blobs):
    X, y = blobs
    generator = np.random.default_rng(1)
    transition = np.array([[0.4, 0.6, 0.0], [0.0, 0.4, 0.6], [0.6, 0.0, 0.4]])  # most labels are wrong
    seen = np.array([generator.choice(3, p=transition[label]) for label in y])
    noisy = NetClassifier("mlp", **QUICK).fit(X, seen).score(X, y)
    corrected = NetClassifier("mlp", **QUICK).fit_likelihood(X, transition[:, seen].T, classes=[0, 1, 2]).score(X, y)
    assert noisy < 0.4
    assert corrected > 0.85


def test_weights_that_are_equal_change_nothing_and_zero_removes(blobs, plain):
    X, y = blobs
    twos = NetClassifier("mlp", **QUICK).fit(X, y, sample_weight=np.full(len(y), 2.0))
    assert np.allclose(twos.predict_proba(X), plain.predict_proba(X), atol=1e-3)  # the losses round differently
    wrong = np.where(y == 0, 1, y)
    hidden = NetClassifier("mlp", **QUICK).fit(X, wrong, sample_weight=(y != 0).astype(float))
    assert (hidden.predict(X[y == 2]) == 2).mean() > 0.9


def test_views_are_averaged(blobs):
    X, y = blobs
    views = np.stack([X, X + 0.1], axis=1)
    model = NetClassifier("mlp", **QUICK).fit(views, y)
    apart = [model.predict_proba(np.repeat(views[:, [view]], 2, axis=1)) for view in (0, 1)]
    assert np.allclose(model.predict_proba(views), (apart[0] + apart[1]) / 2)
    assert model.n_features_in_ == 5
    assert model.score(views, y) > 0.9


def test_hidden_features_feed_the_last_layer(blobs, plain):
    X = blobs[0]
    hidden = plain.hidden_features(X)
    assert hidden.shape == (len(X), 16)
    last = plain.module_[-1]
    logits = torch.from_numpy(hidden) @ last.weight.T + last.bias
    assert np.allclose(logits.detach().softmax(1).numpy(), plain.predict_proba(X), atol=1e-5)  # float32


@pytest.mark.parametrize("name", ["small-cnn", "inception", "resnet18"])
def test_image_networks_take_a_step(name):
    images = np.random.default_rng(0).integers(0, 256, size=(6, 3, 8, 8), dtype=np.uint8)
    model = NetClassifier(name, epochs=1, batch_size=6, augment="crop,flip,cutout", mixup=1.0, ema=0.9)
    model.fit(images, [0, 1, 0, 1, 0, 1])
    assert model.predict_proba(images).shape == (6, 2)
    assert np.isfinite(model.history_).all()


def test_the_papers_networks_have_the_papers_layers():
    inception, resnet = (build(name, n_classes=10, sample_shape=(1, 28, 28)) for name in ("inception", "resnet18"))
    counts = [sum(isinstance(m, torch.nn.Conv2d) for m in network.modules()) for network in (inception, resnet)]
    # Inception: 1 + 8 blocks of 2 + 2 strided. ResNet18: 1 + 8 blocks of 2 + 3 shortcuts.
    assert counts == [19, 20]
    assert inception[-1].in_features == 336
    assert resnet[-1].in_features == 512


def test_small_cnn_learns_stripes():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 200)
    rows = np.sign(np.sin(np.arange(8) + generator.uniform(0, 6, 200)[:, None]))
    images = np.where(y[:, None, None] == 0, rows[:, :, None], rows[:, None, :]) + 0.3 * generator.normal(
        size=(200, 8, 8)
    )
    model = NetClassifier("small-cnn", epochs=6, batch_size=32).fit(images[:150, None].astype(np.float32), y[:150])
    assert model.score(images[150:, None].astype(np.float32), y[150:]) > 0.9


def test_ratings_network_learns_users_and_items_and_meets_strangers():
    generator = np.random.default_rng(0)
    pairs = np.stack([generator.integers(0, 20, 1500), generator.integers(0, 30, 1500)], axis=1)
    likes = (pairs[:, 0] % 2 == pairs[:, 1] % 2).astype(int)
    settings = {"epochs": 12, "batch_size": 128, "lr": 0.02, "weight_decay": 1e-3}
    model = NetClassifier("ncf", **settings).fit(pairs[:1200], likes[:1200])
    assert model.score(pairs[1200:], likes[1200:]) > 0.95
    assert np.isfinite(model.predict_proba([[999, 3], [2, 10**6]])).all()


def test_dataset_of_inputs(blobs):
    X, y = blobs
    items = torch.utils.data.TensorDataset(torch.from_numpy(X))
    model = NetClassifier("mlp", **{**QUICK, "epochs": 4}).fit(items, y)
    assert (model.predict(items) == y).mean() > 0.9


# ------------------------------------------------------------------------------------------------------ determinism


def test_same_seed_same_weights_and_nobody_elses_generator_moves(blobs):
    X, y = blobs
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    settings = {**QUICK, "epochs": 2, "dropout": 0.3, "mixup": 2.0, "ema": 0.9}
    one, two = (NetClassifier("mlp", **settings).fit(X, y) for _ in range(2))
    assert torch.equal(torch.rand(1), expected)
    assert same(one, two)
    assert not same(one, NetClassifier("mlp", **settings, random_state=1).fit(X, y))


def test_warm_start_carries_weights_and_statistics(blobs):
    X, y = blobs
    model = NetClassifier("mlp", **{**QUICK, "lr": 1e-9, "epochs": 1}, warm_start=True, weight_decay=0.0).fit(X, y)
    before = {name: tensor.clone() for name, tensor in model.module_.state_dict().items()}
    model.fit(X, y)
    after = model.module_.state_dict()
    assert torch.allclose(before["0.weight"], after["0.weight"], atol=1e-6)  # the rate is 1e-9: it stays where it was
    assert int(after["1.num_batches_tracked"]) == 2 * int(before["1.num_batches_tracked"])
    assert not torch.allclose(
        before["0.weight"], model.set_params(warm_start=False, random_state=3).fit(X, y).module_[0].weight, atol=1e-2
    )


def test_a_module_is_copied_and_a_factory_called(blobs):
    X, y = blobs
    own = torch.nn.Linear(5, 3)
    torch.nn.init.zeros_(own.weight)
    fitted = NetClassifier(own, epochs=6, batch_size=64, lr=0.05).fit(X, y)
    assert not own.weight.any()
    assert fitted.score(X, y) > 0.8

    def factory(*, n_classes, sample_shape):
        return torch.nn.Linear(sample_shape[0], n_classes)

    assert NetClassifier(factory, epochs=6, batch_size=64, lr=0.05).fit(X, y).score(X, y) > 0.8


# ----------------------------------------------------------------------------------------------------------- stages


@pytest.mark.parametrize("correction", ["posterior", "unbiased", "none"])
def test_every_correction_trains(blobs, correction):
    X, y = blobs
    network = NetClassifier("mlp", **{**QUICK, "epochs": 3})
    model = LabelPrivateClassifier(network, epsilon=4.0, correction=correction, classes=[0, 1, 2], random_state=0)
    assert model.fit(X, y).score(X, y) > 0.8


# --------------------------------------------------------------------------------------------------------- progress


def test_progress_tells_each_step(blobs, capsys):
    X, y = blobs
    told = []
    NetClassifier("mlp", **{**QUICK, "epochs": 2}, progress=lambda *facts: told.append(facts)).fit(X, y)
    assert [done for done, _, _ in told] == list(range(1, 17))  # 450 rows, batches of 56 or 57, two epochs
    assert {total for _, total, _ in told} == {16}
    NetClassifier("mlp", **{**QUICK, "epochs": 1}, progress=True).fit(X, y)
    assert capsys.readouterr().out == ""  # the bar is on the standard error


# --------------------------------------------------------------------------------------------------------- bad input


def test_wrong_shapes_are_named(blobs):
    X, y = blobs
    images = np.zeros((4, 3, 16, 16), np.float32)
    with pytest.raises(LabelDPError, match="image_shape"):
        NetClassifier("resnet18").fit(X, y)
    with pytest.raises(LabelDPError, match="rows"):
        NetClassifier("mlp").fit(images, [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match="8 x 8"):
        NetClassifier("small-cnn").fit(images[:, :, :4, :4], [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match="axes"):
        NetClassifier("small-cnn").fit(images[None], [0])
    fitted = NetClassifier("small-cnn", epochs=1).fit(images, [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match=r"shape \(3, 16, 16\), as in fit"):
        fitted.predict(images[:, :1])
    with pytest.raises(LabelDPError, match="pairs"):
        NetClassifier("ncf").fit(np.zeros((4, 5)), [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match="numbers 0, 1, 2"):
        NetClassifier("ncf").fit([[0.5, 1], [1, 2]], [0, 1])


def test_modules_that_do_not_fit_are_refused(blobs):
    X, y = blobs
    with pytest.raises(LabelDPError, match=r"return \(n, 3\) logits, got an output of shape \(2, 4\)"):
        NetClassifier(torch.nn.Linear(5, 4)).fit(X, y)
    with pytest.raises(LabelDPError, match="what the module takes"):
        NetClassifier(torch.nn.Linear(6, 3)).fit(X, y)
    grey = np.zeros((4, 6, 7), np.float32)  # before: "got examples of shape (7,)", of an X that has no such shape
    with pytest.raises(LabelDPError, match=r"\(n, 6, 7\): 6 views of rows .*X\[:, np.newaxis\], \(n, 1, 6, 7\)"):
        NetClassifier(torch.nn.Sequential(torch.nn.Conv2d(1, 3, 2), torch.nn.Flatten())).fit(grey, [0, 1, 2, 0])
    with pytest.raises(LabelDPError, match="Did you mean `resnet18`"):
        NetClassifier("resnet-18").fit(X, y)
    with pytest.raises(LabelDPError, match="on a CPU use 'fast-cnn', or say `epochs`"):
        NetClassifier("resnet18").fit(np.zeros((4, 8, 8), np.float32), [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match="a name, a torch module or a callable"):
        NetClassifier(3).fit(X, y)
    with pytest.raises(LabelDPError, match=r"take n_classes and sample_shape, got the class Linear\. .* made already"):
        NetClassifier(torch.nn.Linear).fit(X, y)
    without = NetClassifier(torch.nn.BatchNorm1d(3), epochs=1).fit(X[:, :3], y)
    with pytest.raises(LabelDPError, match="linear layer"):
        without.hidden_features(X[:, :3])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_absent_is_said_to_be(blobs):
    with pytest.raises(LabelDPError, match="device='cpu'"):
        NetClassifier("mlp", device="cuda").fit(*blobs)
    with pytest.raises(LabelDPError, match="torch device"):
        NetClassifier("mlp", device="abacus").fit(*blobs)


def test_a_loss_that_is_not_finite_stops(blobs, plain):
    X, y = blobs
    model = copy.deepcopy(plain)
    before = model.predict_proba(X)
    with pytest.raises(LabelDPError, match=r"`loss` must stay finite, got (nan|inf) in epoch 1"):
        model.set_params(module=Exploding(), warm_start=False).fit(X, y)
    assert np.array_equal(model.predict_proba(X), before)  # the last fit is as it was


class Exploding(torch.nn.Module):
    """Fine while it is tried, infinite while it is trained."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 3)

    def forward(self, rows):
        return self.linear(rows) * (float("inf") if self.training else 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, X: m.fit(X, np.zeros(len(X))), "two classes"),
        (lambda m, X: m.fit_targets(X, np.full((len(X), 3), 0.2), classes=[0, 1, 2]), "sum to 1"),
        (lambda m, X: m.fit_targets(X, np.ones((len(X), 2)), classes=[0, 1, 2]), "have shape"),
        (lambda m, X: m.fit_targets(X, np.full((len(X), 3), np.nan), classes=[0, 1, 2]), "finite"),
        (lambda m, X: m.fit_likelihood(X, np.zeros((len(X), 3)), classes=[0, 1, 2]), "not all zero"),
        (lambda m, X: m.fit_likelihood(X, np.full((len(X), 3), -1.0), classes=[0, 1, 2]), ">= 0"),
        (lambda m, X: m.set_params(progress="loud").fit(X, np.arange(len(X)) % 2), "progress"),
        (lambda m, X: m.set_params(dropout=1.0).fit(X, np.arange(len(X)) % 2), "dropout"),
    ],
)
def test_bad_targets_and_settings_are_refused(blobs, call, message):
    with pytest.raises(LabelDPError, match=message):
        call(NetClassifier("mlp", **QUICK), blobs[0])


def test_warm_start_refuses_another_shape(blobs):
    X, y = blobs
    model = NetClassifier("mlp", **{**QUICK, "epochs": 1}, warm_start=True).fit(X, y)
    with pytest.raises(LabelDPError, match="warm_start=False"):
        model.fit(X[:, :4], y)


def test_without_torch_the_package_names_its_extra(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest)
    )
    monkeypatch.delitem(sys.modules, "labeldp.nn")
    with pytest.raises(MissingExtraError, match=r"pip install 'labeldp\[torch\]'"):
        importlib.import_module("labeldp.nn")


def test_what_is_gone_says_what_to_use():
    """`from labeldp.nn import BYOL`, as an old script has it, is answered with more than that it cannot be."""
    for name, instead in {"BYOL": "PatchFeatures", "ModuleFeatures": "Embeddings"}.items():
        with pytest.raises(ImportError, match=instead):
            exec(f"from labeldp.nn import {name}")
    with pytest.raises(AttributeError, match="Did you mean `NetClassifier`"):
        _ = labeldp.nn.NetClasifier


def test_every_named_network_has_a_cpu_preset():
    assert len({id(cpu_preset(name)) for name in MODELS}) == len(MODELS)


# ------------------------------------------------------------------------------------------------------- scikit-learn


def known_failures(_estimator):
    reason = "a weight of 2 is one step of twice the size, and two copies fall into different batches"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


SMALL = NetClassifier("mlp", hidden=32, batch_size=64, epochs=6, lr=0.08, dropout=0.0)


@parametrize_with_checks([SMALL], expected_failed_checks=known_failures)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
