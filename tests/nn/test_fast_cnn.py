"""The network that trains in minutes: its layers and optimizer against their definitions, its plan, its images, its restarts."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from labeldp.errors import LabelDPError, PixelScaleWarning
from labeldp.learn import LabelPrivateClassifier, load_model, recipe, save_model
from labeldp.nn import Augment, NetClassifier, Training, cpu_preset, load_network, save_network
from labeldp.nn.fast_cnn import (
    MANY_CHANNELS,
    Convolution,
    FastCNN,
    Muon,
    count_operations,
    make_orthogonal,
    plan_epochs,
    shrink_images,
)
from labeldp.nn.inputs import ArrayInputs, Scale
from labeldp.nn.models import build
from labeldp.nn.presets import settle_training
from labeldp.nn.training import Evidence, Task, start_run, take_step
from labeldp.priors import UniformPrior

QUICK = {"hidden": 16, "epochs": 3, "batch_size": 20}


@pytest.fixture(scope="module")
def stripes():
    """Upright and level stripes in noise, 12 x 12, grey bytes: what a convolution tells at once."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 120)
    wave = 60 * np.sin(2 * np.pi * (np.arange(12) / 4 + generator.random((120, 1))))
    images = np.where(y[:, None, None] == 0, wave[:, :, None], wave[:, None, :]) + 20 * generator.normal(
        size=(120, 12, 12)
    )
    return (images + 128).clip(0, 255).astype(np.uint8), y


@pytest.fixture(scope="module")
def fitted(stripes):
    return NetClassifier("fast-cnn", **QUICK).fit(*stripes)


def arrays(model):
    return {name: tensor.numpy() for name, tensor in model.module_.state_dict().items()}


def identical(one, other):
    return all(np.array_equal(array, arrays(other)[name]) for name, array in arrays(one).items())


# ------------------------------------------------------------------------------------------- the layers, the optimizer


@pytest.mark.parametrize("channels", [1, 3])
def test_patches_are_whitened_and_stay_so(channels):
    torch.manual_seed(0)
    images = torch.randn(200, channels, 12, 12).cumsum(dim=3)  # neighbours are alike
    images = images / images.std()
    network = FastCNN(channels, n_classes=2, width=8)
    network.fit_whitening([images[:120], images[120:]])
    found = network.whiten(images).transpose(0, 1).flatten(1)
    half = len(found) // 2
    products = (found[:half] @ found[:half].T / found.shape[1]).double()
    # The floor takes part of the weakest direction: 5e-4 beside a spread of 0.02 here.
    assert torch.allclose(products, torch.eye(half, dtype=torch.float64), atol=0.05)
    assert torch.equal(network.whiten.weight[half:], -network.whiten.weight[:half])
    assert not network.whiten.weight.requires_grad
    plain = FastCNN(channels, n_classes=2, width=8).whiten(images).transpose(0, 1).flatten(1)[:half]
    assert not torch.allclose(
        plain @ plain.T / plain.shape[1], torch.eye(half), atol=0.3
    )  # without the fit it is not so


def test_first_weights_of_a_fit_are_whitened_and_not_trained(stripes, fitted):
    longer = NetClassifier("fast-cnn", **{**QUICK, "epochs": 4}).fit(*stripes)
    assert np.array_equal(arrays(fitted)["whiten.weight"], arrays(longer)["whiten.weight"])
    assert not np.array_equal(arrays(fitted)["stages.0.conv1.weight"], arrays(longer)["stages.0.conv1.weight"])


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (8, 8)])
def test_orthogonal_steps_keep_the_directions_and_even_out_their_sizes(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.T @ make_orthogonal(matrix) @ right.T
    even = found.diagonal()
    assert torch.allclose(found, torch.diag(even), atol=1e-9)  # the singular vectors are those of the matrix
    kept = sizes / sizes.norm() > 0.05  # three steps lift what is not tiny
    assert even[kept].min() > 0.5
    assert even.max() < 1.3
    assert sizes[kept].max() / sizes[kept].min() > even[kept].max() / even[kept].min()
    assert not make_orthogonal(torch.zeros(shape)).any()


@pytest.mark.parametrize("side", [(1, 1), (2, 2), (1, 4), (5, 3)])
def test_gradients_of_convolutions_are_those_of_torch(side):
    """In float64, where torch's own gradient is the oracle and only the order of sums differs; and by finite differences, twice."""
    torch.manual_seed(0)
    images = torch.randn(3, MANY_CHANNELS, *side, dtype=torch.float64, requires_grad=True)
    layer = Convolution(MANY_CHANNELS, 4, 3, padding=1, bias=False, dtype=torch.float64)
    weight = torch.randn(3, 4, *side, dtype=torch.float64)
    found = layer(images)
    assert type(found.grad_fn).__name__ == "TapByTapBackward"
    plain = torch.nn.functional.conv2d(images, layer.weight, padding=1)
    assert torch.equal(found, plain)
    ours = torch.autograd.grad((found * weight).sum(), [images, layer.weight])
    theirs = torch.autograd.grad((plain * weight).sum(), [images, layer.weight])
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        # Sums of at most 9 * 64 products of normal numbers, in another order: errors near 1e-15 each.
        assert torch.allclose(one, other, rtol=0, atol=1e-11)
    few = images[:1, :, :1, :2].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x).tanh(), (few,))
    assert torch.autograd.gradgradcheck(lambda x: layer(x).tanh(), (few,))


def test_small_convolutions_and_predictions_are_left_to_torch():
    small = Convolution(MANY_CHANNELS - 1, 2, 3, padding=1, bias=False)
    assert type(small(torch.zeros(1, MANY_CHANNELS - 1, 2, 2)).grad_fn).__name__ == "ConvolutionBackward0"
    large = Convolution(MANY_CHANNELS, 2, 3, padding=1, bias=False)
    with torch.no_grad():
        assert large(torch.zeros(1, MANY_CHANNELS, 2, 2)).grad_fn is None


def test_orthogonal_steps_on_the_square_are_those_on_the_matrix():
    """Against the plain iteration in float64, on singular values that span five decades."""
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(24, 96, dtype=torch.float64), full_matrices=False)
    matrix = (left * torch.logspace(0, -5, 24, dtype=torch.float64)) @ right
    plain = matrix / matrix.norm()
    for _ in range(3):
        square = plain @ plain.T
        plain = 3.4445 * plain + (-4.7750 * square + 2.0315 * square @ square) @ plain
    # Three polynomials whose slope at 0 is 3.4 enlarge a rounding error by at most 3.4445^3 = 41; a few sums have some.
    assert torch.allclose(make_orthogonal(matrix), plain, rtol=0, atol=100 * 1e-15)
    assert torch.allclose(make_orthogonal(matrix.float()).double(), plain, rtol=0, atol=100 * 1e-6)
    assert torch.equal(make_orthogonal(torch.zeros(3, 5)), torch.zeros(3, 5))


def test_muon_is_what_it_says():
    """Four steps, written down a second time; each flaw shows."""

    def by_hand(*, norm=True, momentum=0.85, share=10.0):
        filters, shift = start.double().clone(), torch.ones(3, dtype=torch.float64)
        memory = [torch.zeros_like(filters), torch.zeros_like(shift)]
        for pair in gradients:
            grads = [grad.double() for grad in pair]
            memory = [momentum * old + grad for old, grad in zip(memory, grads, strict=True)]
            ahead = [grad + momentum * new for new, grad in zip(memory, grads, strict=True)]
            if norm:
                filters = filters * len(filters) ** 0.5 / filters.norm()
            filters = filters - 0.1 * make_orthogonal(ahead[0].reshape(4, -1)).reshape(filters.shape)
            shift = shift * (1 - 0.01) - 0.1 * share * ahead[1]
        return torch.cat([filters.flatten(), shift])

    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 2, 3, 3, generator=generator)
    gradients = [(torch.randn(4, 2, 3, 3, generator=generator), torch.randn(3, generator=generator)) for _ in range(4)]
    weights = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.ones(3))]
    groups = [
        {"params": weights[:1], "share": 1.0, "orthogonal": True, "decay": 0.0},
        {"params": weights[1:], "share": 10.0, "orthogonal": False, "decay": 0.01},
    ]
    optimizer = Muon(groups, lr=0.1)
    for grads in gradients:
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad.clone()
        optimizer.step()
    found = torch.cat([weight.detach().flatten() for weight in weights]).double()
    assert torch.allclose(found, by_hand(), rtol=1e-4, atol=1e-5)  # float32 against float64
    for flaw in ({"norm": False}, {"momentum": 0.9}, {"share": 9.0}):
        assert not torch.allclose(found, by_hand(**flaw), rtol=1e-2, atol=1e-2)


# ------------------------------------------------------------------------------------------------------------ the plan


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 24, 40)])
def test_operations_are_those_that_the_layers_do(shape):
    network, counted = FastCNN(shape[0], n_classes=7, width=48), []

    def count(layer, _given, answer):
        products = answer.numel() * layer.weight[0].numel()
        passes = 1 if layer is network.whiten else 2 if layer is network.stages[0].conv1 else 3
        counted.append(2 * passes * products)

    layers = [part for part in network.modules() if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    network.eval()(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    assert count_operations(shape, n_classes=7, width=48) == sum(counted)


def test_minutes_become_passes_whoever_runs_them():
    facts = {"sample_shape": (3, 32, 32), "n_classes": 10, "width": 192, "sizes": cpu_preset("fast-cnn").sizes}
    passes = [plan_epochs(minutes, n_examples=50_000, most=200, **facts) for minutes in (0.01, 5, 10, 60, 10_000)]
    assert passes[0] == 1
    assert passes[-1] == 200
    assert passes == sorted(passes)
    assert abs(passes[2] - 2 * passes[1]) <= 1  # twice the time, twice the passes, but for rounding
    assert plan_epochs(5, n_examples=25_000, most=200, **facts) in range(2 * passes[1] - 1, 2 * passes[1] + 2)


def test_work_goes_by_pixels():
    settings = cpu_preset("fast-cnn")
    steps = [(number + 0.5) / 1000 for number in range(1000)]
    work = np.cumsum([settings.find_size(part) ** 2 for part in steps])
    measured = [settings.measure_work((number + 1) / 1000) for number in range(1000)]
    assert np.allclose(measured, work / work[-1], atol=2e-3)  # a step lies on a border of two sizes
    assert (settings.measure_work(0.0), settings.measure_work(1.0)) == (0.0, pytest.approx(1.0))
    assert Training(epochs=1, batch_size=2, lr=1.0, weight_decay=0.0).measure_work(0.3) == 0.3


def watch_sides(network, X, y):
    """Fit, and return the sides of the images that each step has seen."""
    sides = []

    def watch(module, given):
        if isinstance(module, FastCNN) and module.training:
            sides.append(given[0].shape[2])

    hook = torch.nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        network.fit(X, y)
    finally:
        hook.remove()
    return sides


def test_images_in_colour_grow_and_grey_ones_do_not(stripes):
    grey = np.repeat(np.repeat(stripes[0], 2, axis=1), 2, axis=2)  # 24 pixels: 12, 18, 24
    colour = np.repeat(grey[..., None], 3, axis=3)
    network = NetClassifier("fast-cnn", hidden=16, epochs=10, batch_size=20)
    sides = watch_sides(network, colour, stripes[1])
    assert sides == sorted(sides)
    assert [sides.count(side) for side in (12, 18, 24)] == [38, 18, 4]  # 63, 31 and 6% of 60 steps
    assert watch_sides(network, grey, stripes[1]) == [24] * 60
    own = replace(cpu_preset("fast-cnn"), sizes=((0.5, 0.5), (1.0, 0.5)))
    assert watch_sides(network.set_params(preset=own), grey, stripes[1]) == [12] * 30 + [24] * 30
    # A Training is taken as it is, also where it says what the preset says.
    assert watch_sides(network.set_params(preset=cpu_preset("fast-cnn")), grey, stripes[1]) == sides


def test_minutes_of_grey_images_are_those_of_their_own_size():
    facts = {"n_examples": 50_000, "n_classes": 10, "width": 192}
    asked = replace(cpu_preset("fast-cnn"), cpu_minutes=20.0)
    grey = settle_training(asked, sample_shape=(1, 28, 28), **facts)
    assert grey.epochs == plan_epochs(20, sample_shape=(1, 28, 28), sizes=((1.0, 1.0),), most=200, **facts)
    assert settle_training(asked, sample_shape=(3, 28, 28), **facts).epochs > 2 * grey.epochs


def test_images_take_turns_before_the_mirror():
    settings = NetClassifier("fast-cnn", augment="flip")._resolve_training()
    batch, rows = torch.arange(24.0).expand(50, 1, 24, 24), torch.arange(50)
    passes = [settings.show_images(batch, rows, part=1.0, epoch=epoch) for epoch in (0, 1, 2)]
    turned = [(seen[:, 0, 0, 0] == 23.0) for seen in passes]
    assert torch.equal(turned[0], ~turned[1])
    assert torch.equal(turned[0], turned[2])
    assert 10 < int(turned[0].sum()) < 40


def test_smaller_images_are_means():
    image = torch.arange(16.0 * 16).reshape(1, 1, 16, 16).repeat(1, 1, 2, 2)
    half = shrink_images(image, 0.5)
    assert torch.equal(half[0, 0, 0, 0], image[0, 0, :2, :2].mean())
    assert shrink_images(image, 0.75).shape == (1, 1, 24, 24)
    assert torch.allclose(shrink_images(image, 0.75).mean(), image.mean(), rtol=1e-2)
    assert shrink_images(image, 0.1).shape == (1, 1, 10, 10)  # no smaller than three stages can halve
    assert shrink_images(image, 1.0) is image


# ----------------------------------------------------------------------------------------------------- as an estimator


def test_it_learns_and_repeats(stripes, fitted):
    X, y = stripes
    assert fitted.score(X, y) > 0.95
    assert identical(fitted, clone(fitted).fit(X, y))
    assert not identical(fitted, clone(fitted).set_params(random_state=1).fit(X, y))
    assert fitted.hidden_features(X[:3]).shape == (3, 16)
    assert fitted.training_.cpu_minutes == 0.0  # nothing is left open


def test_images_in_any_form_give_the_same_network(stripes, fitted):
    X, y = stripes
    colour = np.stack([X, X[:, ::-1], 255 - X], axis=3)
    forms = [
        (fitted, [(X[:, None], {}), (X[..., None], {}), (X.reshape(len(X), -1), {}), (X.astype(np.float64), {})]),
        (
            NetClassifier("fast-cnn", **QUICK).fit(colour, y),
            [(colour.transpose(0, 3, 1, 2), {}), (colour.reshape(len(X), -1), {"image_shape": (12, 12, 3)})],
        ),
    ]
    for first, others in forms:
        for images, said in others:
            again = NetClassifier("fast-cnn", **QUICK, **said).fit(images, y)
            assert identical(first, again)
            assert np.array_equal(again.predict_proba(images), first.predict_proba(others[0][0]))


@pytest.mark.parametrize("way", ["as it is", "pickle", "save_network", "save_model"])
def test_another_scale_of_pixels_is_warned_of(stripes, fitted, tmp_path, way):
    """Floats 0 to 1 after bytes, and bytes after floats, would be told apart no better than by chance; a stored network knows it too."""
    X, y = stripes
    store = {
        "as it is": lambda model, _path: model,
        "pickle": lambda model, _path: pickle.loads(pickle.dumps(model)),
        "save_network": lambda model, path: (save_network(model, path), load_network(path))[1],
        "save_model": lambda model, path: (save_model(model, path), load_model(path))[1],
    }[way]
    of_bytes = store(fitted, tmp_path / "bytes")
    for other in (X / 255.0, (X / 255.0).reshape(len(X), -1), X > 128):
        with pytest.warns(PixelScaleWarning, match="pixels were 7 to 254 in the fit"):
            of_bytes.predict(other)
    for same in (X, X.astype(np.float64), X // 200, np.zeros_like(X, np.float32)):  # warnings are errors here
        of_bytes.predict(same)
    of_floats = store(NetClassifier("fast-cnn", **QUICK).fit(X / 255.0, y), tmp_path / "floats")
    with pytest.warns(PixelScaleWarning, match="divided by 255"):
        of_floats.predict(X)
    of_floats.predict(2.0 * X / 255)  # brighter images are no other scale


def test_no_images_are_refused_by_all(stripes, fitted):
    private = LabelPrivateClassifier(fitted, epsilon=8.0, classes=range(2), random_state=0).fit(*stripes)
    for model in (fitted, private):
        for none in (stripes[0][:0], []):
            with pytest.raises(LabelDPError, match="`X` must have examples, got none"):
                model.predict(none)


def test_a_bar_says_which_network_learns(stripes, capsys, monkeypatch):
    """A private fit of grey images trains the quick reader several times before the long fit."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setattr("labeldp.display.can_show_bars", lambda: True)
    network = NetClassifier("fast-cnn", **{**QUICK, "epochs": 1}, pretrain=2, progress=True)
    LabelPrivateClassifier(network, epsilon=1.0, classes=range(2), random_state=0).fit(*stripes)
    shown = capsys.readouterr().err
    assert "mlp" in shown
    assert "fast-cnn" in shown
    assert "look alike" in shown


def test_mirror_images_are_asked_for(stripes, fitted):
    X, y = stripes
    turned = X[:, :, ::-1]
    assert not np.allclose(fitted.predict_proba(X), fitted.predict_proba(turned), atol=1e-3)  # no flips unless told
    flipped = NetClassifier("fast-cnn", **QUICK, augment="shift,flip").fit(X, y)
    assert np.allclose(flipped.predict_proba(X), flipped.predict_proba(turned), atol=1e-6)  # sums in another order


def test_a_prediction_is_the_mean_of_moved_and_mirrored_images(stripes):
    """Against the six images made by hand, one by one, by a network that looks once."""
    X, y = stripes
    model = NetClassifier("fast-cnn", **QUICK, augment="shift,flip").fit(X, y)
    found = model.predict_proba(X)
    model.training_ = replace(model.training_, mirrors=False)
    total = np.zeros_like(found)
    for turned in (X, X[:, :, ::-1]):
        edged = np.pad(turned, ((0, 0), (1, 1), (1, 1)), mode="edge")
        total += 0.25 * model.predict_proba(turned)
        total += 0.125 * (model.predict_proba(edged[:, :12, :12]) + model.predict_proba(edged[:, 2:, 2:]))
    assert np.allclose(found, total, atol=1e-6)  # sums in another order
    assert not np.allclose(found, model.predict_proba(X), atol=1e-3)


def test_it_is_stored_without_pickle_and_answers_the_same(stripes, tmp_path):
    X, y = stripes
    settings = {**QUICK, "image_shape": (12, 12), "augment": "shift,flip"}
    model = NetClassifier("fast-cnn", preset="hours", **settings).fit(X.reshape(len(X), -1), y)
    save_network(model.set_params(hidden=99), tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    rows = X.reshape(len(X), -1)
    assert np.array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert (loaded.training_, loaded.preset, loaded.image_shape) == (model.training_, "hours", [12, 12])
    private = LabelPrivateClassifier(NetClassifier("fast-cnn", **settings), epsilon=4.0, classes=[0, 1], random_state=0)
    private.fit(rows, y)
    save_model(private, tmp_path / "model.skops")
    assert np.array_equal(load_model(tmp_path / "model.skops").predict_proba(rows), private.predict_proba(rows))


class KilledError(Exception):
    """Stands for a signal that cannot be caught."""


#: Sides of 10, 11 and 12 pixels, for two passes of four, one and one.
GROWING = ((0.84, 0.5), (0.92, 0.25), (1.0, 0.25))


@pytest.mark.parametrize(
    ("pretrain", "epochs", "killed", "goes_on"),
    [
        (0, 4, 8, (7, 24)),  # six steps a pass: goes on in the second, on the smallest images
        (0, 4, 15, (13, 24)),  # as they grow
        (0, 4, 20, (19, 24)),  # at their own size
        (3, 8, 8, (7, 12)),  # in the second of two passes of pretraining
        (3, 4, 15, (7, 24)),  # after one pass of it
    ],
)
def test_a_killed_run_ends_with_the_same_bits(stripes, tmp_path, pretrain, epochs, killed, goes_on):
    X, y = stripes
    preset = replace(cpu_preset("fast-cnn"), sizes=GROWING)
    settings = {**QUICK, "epochs": epochs, "augment": "shift,flip", "ema": 0.5, "pretrain": pretrain, "preset": preset}
    whole = NetClassifier("fast-cnn", **settings).fit(X, y)
    calls = []

    def kill(done, total, _loss):
        calls.append((done, total))
        if len(calls) == killed:
            raise KilledError

    with pytest.raises(KilledError):
        NetClassifier("fast-cnn", **settings, checkpoint=tmp_path, progress=kill).fit(X, y)
    told = []
    again = NetClassifier(
        "fast-cnn", **settings, checkpoint=tmp_path, progress=lambda done, total, _loss: told.append((done, total))
    ).fit(X, y)
    assert told[0] == goes_on  # from the end of the last whole pass
    assert identical(whole, again)
    assert whole.history_ == again.history_
    if pretrain:
        assert not identical(whole, NetClassifier("fast-cnn", **{**settings, "pretrain": 0}).fit(X, y))


@pytest.mark.parametrize("name", ["fast-cnn", "small-cnn"])
def test_a_step_makes_nothing_beside_its_device(stripes, name):
    """On "meta", which holds no numbers and like a GPU refuses tensors of the CPU, a step is what it is elsewhere."""

    class Blind(Evidence):
        """Evidence whose loss has a value: "meta" has none to look at."""

        def loss(self, logits, rows, *, keep=1.0):
            value, gradient = super().loss(logits, rows, keep=keep)
            assert value.device.type == gradient.device.type == "meta"
            return torch.zeros(()), gradient

    X, _ = stripes
    training = replace(cpu_preset(name), augment=Augment(crop=0.1, flip=True, cutout=0.2), mixup=1.0, ema=0.9)
    inputs = ArrayInputs.of(X[:, None], scale=Scale.measure(X[:, None]), device="meta")
    network = build(name, n_classes=2, sample_shape=(1, 12, 12), hidden=16).to("meta")
    task = Task(
        inputs=inputs, evidence=Blind(kind="forward", values=torch.ones(len(X), 2), n_classes=2), training=training
    )
    run = start_run(network, training)
    for part in (0.1, 0.99):
        take_step(run, task, torch.arange(20), keep=0.7, part=part, number=0)
    assert {weight.device.type for weight in run.result.state_dict().values()} == {"meta"}
    with pytest.raises(RuntimeError, match="meta"):  # the twin: a network that was left behind
        take_step(start_run(build(name, n_classes=2, sample_shape=(1, 12, 12)), training), task, torch.arange(20), keep=1.0, part=0.1, number=0)  # fmt: skip


def test_a_warm_start_goes_on_from_its_weights(stripes):
    X, y = stripes
    model = NetClassifier("fast-cnn", **QUICK, warm_start=True).fit(X, y)
    before, first = arrays(model), model.history_[0]
    model.fit(X, y)
    assert np.array_equal(before["whiten.weight"], arrays(model)["whiten.weight"])
    assert model.history_[0] < first


# ------------------------------------------------------------------------------------------------- with private labels


def test_private_labels_are_drawn_once_and_the_network_is_fitted_once(stripes):
    X, y = stripes
    totals = []
    network = NetClassifier(
        "fast-cnn", **{**QUICK, "epochs": 6}, progress=lambda done, total, _loss: totals.append((done, total))
    )
    model = LabelPrivateClassifier(network, epsilon=8.0, trust="no one", classes=[0, 1], random_state=0).fit(X, y)
    assert totals == [(done, 36) for done in range(1, 37)]
    assert (model.shares_, model.correction_, model.rounds_) == ((1.0,), "forward", 0)
    assert model.guarantee_.epsilon() <= 8.0
    assert np.mean(model.predict(X) == y) > 0.9  # one in three thousand answers is wrong
    receiver = clone(model).fit_release(X, model.release_)  # has images and answers, and no label
    assert identical(model.estimator_, receiver.estimator_)


@pytest.mark.parametrize("trust", ["no one", "curator"])
def test_auto_is_one_fit_for_whomever_is_trusted(trust):
    sizes = {"n_examples": 60_000, "n_classes": 10, "trust": trust}
    for epsilon in (0.1, 1.0, 4.0):
        plan = recipe(epsilon, estimator=NetClassifier("fast-cnn"), **sizes)
        assert plan.shares == (1.0,)
        assert isinstance(plan.prior, UniformPrior)
    others = recipe(0.1 if trust == "curator" else 1.0, estimator=NetClassifier("mlp"), **sizes)
    assert others.shares == (() if trust == "curator" else (0.25, 0.75))  # other networks are as they were


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"module": "mlp", "cpu_minutes": 5.0}, "cpu_minutes"),
        ({"module": "mlp", "preset": "hours"}, "preset"),
        ({"module": "mlp", "optimizer": "muon"}, "optimizer"),
        ({"module": "mlp", "pretrain": 5}, "pretrain"),
        ({"preset": "paper"}, "preset"),
        ({"epochs": 2, "cpu_minutes": 5.0}, "epochs"),
        ({"cpu_minutes": -1.0}, "cpu_minutes"),
        ({"cpu_minutes": 0}, "cpu_minutes"),
        ({"cpu_minutes": float("inf")}, "cpu_minutes"),
        ({"epochs": 1, "pretrain": 61}, "pretrain"),
        ({"epochs": 1, "pretrain": -1}, "pretrain"),
        ({"hidden": 0}, "hidden"),
        ({"preset": Training(epochs=1, batch_size=9, lr=1.0, weight_decay=0.0, sizes=((0.5, 0.4),))}, "sizes"),
        ({"preset": Training(epochs=1, batch_size=9, lr=1.0, weight_decay=0.0, sizes=(0.5, 0.5))}, "sizes"),
    ],
)
def test_bad_settings_are_refused(stripes, settings, name):
    X, y = stripes
    X = X.reshape(len(X), -1) if settings.get("module") == "mlp" else X
    with pytest.raises(LabelDPError, match=name):
        NetClassifier(**{"module": "fast-cnn", **settings}).fit(X, y)


def test_bad_images_are_refused(stripes, fitted):
    X, y = stripes
    with pytest.raises(LabelDPError, match="10 x 10"):
        NetClassifier("fast-cnn").fit(X[:, :8, :8], y)
    with pytest.raises(LabelDPError, match="image_shape"):
        NetClassifier("fast-cnn").fit(X.reshape(len(X), -1)[:, :140], y)
    for shape in ((10, 10), (12,), "12", (12, 12, 0)):
        with pytest.raises(LabelDPError, match="image_shape"):
            NetClassifier("fast-cnn", image_shape=shape).fit(X.reshape(len(X), -1), y)
    with pytest.raises(LabelDPError, match=r"image_shape is \(height, width, channels\): \(12, 12, 1\)"):
        NetClassifier("fast-cnn", image_shape=(1, 12, 12)).fit(X.reshape(len(X), -1), y)
    with pytest.raises(ValueError, match="NaN"):
        NetClassifier("fast-cnn").fit(np.full((4, 12, 12), np.nan), [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match="as in fit"):
        fitted.predict(X[:, :11])
    with pytest.raises(LabelDPError, match="axes"):
        NetClassifier("fast-cnn").fit(X[None, None], [0])
    with pytest.raises(LabelDPError, match="be images"):
        NetClassifier("fast-cnn").fit(torch.utils.data.TensorDataset(torch.zeros(4, 5)), [0, 1, 0, 1])


@pytest.mark.data
def test_clothes_are_told_apart(shared_data):
    """Four thousand images of Fashion-MNIST, epsilon 8, four passes of a narrow network: seconds."""
    from labeldp.data import load

    raw = load("fashion-mnist", directory=shared_data("fashion-mnist").parent)
    network = NetClassifier("fast-cnn", hidden=48, epochs=4, batch_size=100, augment="shift,flip")
    model = LabelPrivateClassifier(network, epsilon=8.0, trust="no one", classes=range(10), random_state=0)
    model.fit(raw.X_train[:4000], raw.y_train[:4000])
    # Three standard deviations of a score on 2,000 images are 3%; 75% is what a linear model on pixels has at most.
    assert np.mean(model.predict(raw.X_test[:2000]) == raw.y_test[:2000]) > 0.75
