"""Training in bfloat16: what is rounded and what is not, what a run is then, and who is told that it is slow."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sklearn.base import clone

from labeldp import LabelPrivateClassifier
from labeldp.errors import LabelDPError, SlowPrecisionWarning
from labeldp.learn import load_model, save_model
from labeldp.nn import NetClassifier, Training, cpu_preset, load_network, save_network
from labeldp.nn.checkpoint import get_arrays
from labeldp.nn.fast_cnn import MANY_CHANNELS, SPEEDS, Convolution
from labeldp.nn.inputs import ArrayInputs
from labeldp.nn.models import MODELS, build
from labeldp.nn.presets import settle_training
from labeldp.nn.training import (
    Evidence,
    Task,
    check_precision,
    draw_batches,
    share_of_peak,
    start_run,
    take_step,
    train,
)

#: A number is rounded to 8 significant bits: by half of the last one at most.
ROUNDING = 2.0**-9


@pytest.fixture(autouse=True)
def modern(monkeypatch):
    """A processor with instructions for bfloat16, wherever the tests run: results do not depend on it, warnings do."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)


@pytest.fixture(scope="module")
def stripes():
    """Upright and level stripes in noise, 12 x 12, grey bytes."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 80)
    wave = 60 * np.sin(2 * np.pi * (np.arange(12) / 4 + generator.random((80, 1))))
    images = np.where(y[:, None, None] == 0, wave[:, :, None], wave[:, None, :])
    return (images + 20 * generator.normal(size=(80, 12, 12)) + 128).clip(0, 255).astype(np.uint8), y


QUICK = {"hidden": 16, "epochs": 3, "batch_size": 20}


def identical(one, other):
    arrays = get_arrays(other.module_)
    return all(np.array_equal(array, arrays[name]) for name, array in get_arrays(one.module_).items())


# ------------------------------------------------------------------------------------------------------------ a step


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_is_the_loop_written_by_hand(rows, precision):
    """Bit for bit: in float32 the network runs as it stands, in bfloat16 its forward pass alone under autocast."""
    settings = Training(epochs=2, batch_size=20, lr=0.1, weight_decay=0.0, optimizer="sgd", precision=precision)
    X, y = ArrayInputs.of(rows[0]), torch.from_numpy(rows[1])
    task = Task(inputs=X, evidence=Evidence(kind="plain", values=y, n_classes=3), training=settings)
    network = build("mlp", n_classes=3, sample_shape=(4,), hidden=8)
    by_hand = copy.deepcopy(network).train()
    torch.manual_seed(0)
    train(start_run(network, settings), task)
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9)
    for number in range(8):
        if number % 4 == 0:
            batches = draw_batches(task)
        taken = batches[number % 4][0]
        optimizer.param_groups[0]["lr"] = 0.1 * share_of_peak("linear", (number + 0.5) / 8, warm_up=0.1)
        with nullcontext() if precision == "float32" else torch.autocast("cpu", dtype=torch.bfloat16):
            logits = by_hand(X.batch(taken))
        assert logits.dtype == getattr(torch, precision)
        _, gradient = task.evidence.loss(logits.detach().float(), taken)
        optimizer.zero_grad()
        logits.float().backward(gradient)
        optimizer.step()
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, by_hand.state_dict()[name])


def test_losses_of_first_steps_are_those_of_float32_but_for_rounding(stripes):
    X, y = ArrayInputs.of(stripes[0][:, None]), torch.from_numpy(stripes[1])
    losses = {}
    for precision in SPEEDS:
        settings = Training(epochs=1, batch_size=40, lr=0.01, weight_decay=0.0, optimizer="muon", precision=precision)
        task = Task(inputs=X, evidence=Evidence(kind="plain", values=y, n_classes=2), training=settings)
        torch.manual_seed(0)
        run = start_run(build("fast-cnn", n_classes=2, sample_shape=(1, 12, 12), hidden=128), settings)
        run.module.train()
        parts = enumerate(torch.arange(80).split(20))
        losses[precision] = [take_step(run, task, part, keep=1.0, part=0.5, number=n) for n, part in parts]
    gap = np.abs(np.subtract(losses["bfloat16"], losses["float32"]))
    # Eight layers, each of which rounds what comes in, its filters and its answer: 24 errors that know nothing of each other, in logits
    # that are small in first steps (a loss of log 2 is that of zeros), and a loss moves no more than they do.
    most = 24**0.5 * ROUNDING * 0.25
    assert gap.max() < most
    assert losses["float32"][0] - losses["float32"][-1] > 2 * most  # what the steps do is more
    assert gap.min() > 1e-6  # and it was not float32 that was compared with itself: its own errors are below


def test_patches_are_whitened_in_float32():
    layer = build("fast-cnn", n_classes=2, sample_shape=(3, 12, 12)).whiten
    images = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    alone = layer(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(images), alone)
        assert torch.nn.functional.conv2d(images, layer.weight).dtype == torch.bfloat16  # what others would do


def test_gradients_of_convolutions_are_those_of_torch():
    """Of those whose gradient is written out: float32, and rounded where torch's own, under the same autocast, is."""
    torch.manual_seed(0)
    layer = Convolution(MANY_CHANNELS, 8, 3, padding=1, bias=False)
    found = {}
    for name, compute in (("ours", layer), ("torch's", super(Convolution, layer).forward)):
        images = torch.randn(4, MANY_CHANNELS, 5, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            answer = compute(images)
        assert answer.dtype == torch.bfloat16
        found[name] = answer, *torch.autograd.grad(answer.float().square().sum(), [images, layer.weight])
    assert type(found["ours"][0].grad_fn).__name__ == "TapByTapBackward"
    for one, other in zip(found["ours"][1:], found["torch's"][1:], strict=True):
        assert one.dtype == torch.float32
        # Both are sums in float32 of the same products, rounded once more at the end.
        assert (one - other).norm() <= 2 * ROUNDING * other.norm()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_network_by_name_learns_in_it_and_is_float32(name):
    generator = np.random.default_rng(0)
    axes = MODELS[name].axes
    X = generator.random((8, 1, 10, 10) if axes == 3 else (8, 5)).astype(np.float32)
    X = generator.integers(0, 3, (8, 2)) if name == "ncf" else X
    settings = {"epochs": 1, "batch_size": 4, "mixup": 1.0, "ema": 0.5, "precision": "bfloat16"}
    seen = []

    def watch(layer, _given, answer):
        if layer.training and isinstance(layer, torch.nn.Linear):
            seen.append(answer.dtype)

    with_hook = torch.nn.modules.module.register_module_forward_hook(watch)
    try:
        model = NetClassifier(name, **settings).fit(X, [0, 1] * 4)
    finally:
        with_hook.remove()
    assert set(seen) == {torch.bfloat16}
    kept = {tensor.dtype for tensor in model.module_.state_dict().values()}
    assert kept <= {torch.float32, torch.int64}  # BatchNorm counts batches
    assert model.training_.precision == "bfloat16"


def test_optimizer_and_average_are_float32(stripes, monkeypatch):
    runs = []
    monkeypatch.setattr("labeldp.nn.classifier.start_run", lambda *facts: runs.append(start_run(*facts)) or runs[-1])
    NetClassifier("fast-cnn", **{**QUICK, "epochs": 1}, ema=0.5, precision="bfloat16").fit(*stripes)
    (run,) = runs
    slots = [value for state in run.optimizer.state_dict()["state"].values() for value in state.values()]
    tensors = [*slots, *run.module.parameters(), *run.average.parameters()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert {weight.grad.dtype for weight in run.module.parameters() if weight.requires_grad} == {torch.float32}


# ------------------------------------------------------------------------------------------------------ as an estimator


@pytest.fixture(scope="module")
def fitted(stripes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
        return NetClassifier("fast-cnn", **QUICK, precision="bfloat16").fit(*stripes)


def test_it_learns_and_repeats_and_leaves_float32_as_it_was(stripes, fitted):
    X, y = stripes
    before = NetClassifier("fast-cnn", **QUICK).fit(X, y)
    assert fitted.score(X, y) > 0.9  # a guess is right for half of them
    assert identical(fitted, clone(fitted).fit(X, y))
    after = NetClassifier("fast-cnn", **QUICK, precision="float32").fit(X, y)
    assert identical(before, after)
    assert not identical(before, fitted)


def test_a_prediction_is_that_of_its_weights_in_float32(stripes, fitted):
    plain = NetClassifier("fast-cnn", **QUICK).fit(*stripes)
    plain.module_.load_state_dict(fitted.module_.state_dict())
    assert np.array_equal(plain.predict_proba(stripes[0]), fitted.predict_proba(stripes[0]))
    assert np.array_equal(plain.hidden_features(stripes[0]), fitted.hidden_features(stripes[0]))


def test_it_is_a_setting_like_any_other(stripes, fitted, tmp_path):
    assert clone(fitted).get_params()["precision"] == "bfloat16"
    save_network(fitted, tmp_path / "net.npz")
    save_model(fitted, tmp_path / "model.skops")
    for loaded in (load_network(tmp_path / "net.npz"), load_model(tmp_path / "model.skops")):
        assert (loaded.precision, loaded.training_.precision) == ("bfloat16", "bfloat16")
        assert np.array_equal(loaded.predict_proba(stripes[0]), fitted.predict_proba(stripes[0]))
    own = Training(epochs=1, batch_size=20, lr=0.1, weight_decay=0.0, precision="bfloat16")
    assert NetClassifier("small-cnn", preset=own)._resolve_training() == own
    assert NetClassifier("small-cnn", preset=own, precision="float32")._resolve_training().precision == "float32"
    assert Training.from_json(own.to_json()) == own
    assert "precision" not in cpu_preset("mlp").to_json()  # so that runs that older versions began are found again


def test_the_same_minutes_are_more_passes():
    shapes = {"n_examples": 50_000, "sample_shape": (3, 32, 32), "n_classes": 10, "width": 192}
    passes = {
        precision: settle_training(
            NetClassifier("fast-cnn", precision=precision, cpu_minutes=30)._resolve_training(), **shapes
        ).epochs
        for precision in SPEEDS
    }
    ratio = SPEEDS["bfloat16"] / SPEEDS["float32"]
    assert ratio > 1
    # Both numbers are rounded to whole passes.
    assert abs(passes["bfloat16"] - ratio * passes["float32"]) <= 0.5 * (1 + ratio)


def test_private_labels_are_learned_in_it(stripes):
    network = NetClassifier("fast-cnn", **QUICK, precision="bfloat16")
    model = LabelPrivateClassifier(network, epsilon=8.0, trust="no one", classes=[0, 1], random_state=0).fit(*stripes)
    assert model.estimator_.training_.precision == "bfloat16"
    assert np.mean(model.predict(stripes[0]) == stripes[1]) > 0.9  # one in three thousand answers is wrong


# ---------------------------------------------------------------------------------------------------------- killed runs


class KilledError(Exception):
    """Stands for a signal that cannot be caught."""


@pytest.mark.parametrize(
    ("more", "killed", "goes_on"),
    [
        ({"ema": 0.5, "members": 2}, 19, (17, 24)),  # four steps a pass, twelve a network: in the second one
        ({"pretrain": 3}, 7, (1, 12)),  # after one pass of pretraining, of four steps
    ],
    ids=["members", "pretraining"],
)
def test_a_killed_run_ends_with_the_same_bits(stripes, tmp_path, more, killed, goes_on):
    settings = {**QUICK, "augment": "shift,flip", "precision": "bfloat16", **more}
    whole = NetClassifier("fast-cnn", **settings).fit(*stripes)
    calls = []

    def kill(done, _total, _loss):
        calls.append(done)
        if len(calls) == killed:
            raise KilledError

    with pytest.raises(KilledError):
        NetClassifier("fast-cnn", **settings, checkpoint=tmp_path, progress=kill).fit(*stripes)
    told = []
    again = NetClassifier(
        "fast-cnn", **settings, checkpoint=tmp_path, progress=lambda done, total, _loss: told.append((done, total))
    ).fit(*stripes)
    assert told[0] == goes_on  # from the end of the last whole pass
    assert identical(whole, again)


def test_a_run_of_another_precision_is_not_taken_up(rows, tmp_path):
    settings = {**QUICK, "checkpoint": tmp_path}
    for precision in ("bfloat16", "float32", None):
        steps = []
        model = NetClassifier(
            "mlp", **settings, precision=precision, progress=lambda done, *_, to=steps: to.append(done)
        )
        model.fit(*rows)
        assert steps == ([] if precision is None else list(range(1, 13)))  # the last is the default, and found finished
    assert len(list(tmp_path.glob("*.npz"))) == 2


# ------------------------------------------------------------------------------------------------- refusals, a warning


@pytest.mark.parametrize("precision", ["float16", "bf16", torch.bfloat16, 32])
def test_other_names_are_refused(rows, precision):
    with pytest.raises(LabelDPError, match="`precision` must be one of 'float32', 'bfloat16', got "):
        NetClassifier("mlp", precision=precision).fit(*rows)


def test_a_device_that_cannot_do_it_is_refused():
    with pytest.raises(LabelDPError, match=r"`precision` must be 'float32' on meta, got 'bfloat16'\. torch says: "):
        check_precision("bfloat16", torch.device("meta"))
    check_precision("float32", torch.device("meta"))


class Exacting(torch.nn.Linear):
    """A module that adds to numbers of its own, which are float32."""

    def forward(self, rows):
        answer = super().forward(rows)
        return torch.zeros(answer.shape).index_add_(0, torch.arange(len(rows)), answer)


def test_a_module_that_takes_float32_alone_is_refused_before_a_charge(rows):
    model = NetClassifier(Exacting(4, 3), epochs=1)
    model.check_fit(rows[0], n_classes=3)
    with pytest.raises(LabelDPError, match=r"`precision` must be 'float32' for a module .* It says: .*BFloat16"):
        model.set_params(precision="bfloat16").check_fit(rows[0], n_classes=3)


#: What torch tells of a processor, of vectors alone where it is older than 2.10, and whether it is slow.
PROCESSORS = {
    "x86 without": ({"avx512_f": True, "avx512_bf16": False}, "AVX512", True),
    "x86 with": ({"avx512_bf16": True}, "AVX512", False),
    "matrix unit": ({"amx_bf16": True}, "AVX512", False),
    "ARM with": ({"neon": True, "bf16": True}, "DEFAULT", False),
    "ARM without": ({"neon": True, "bf16": False}, "DEFAULT", True),
    "old torch, short vectors": (None, "AVX2", True),
    "old torch, who knows": (None, "AVX512", False),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_without_instructions_for_it_is_warned_of(rows, monkeypatch, name):
    told, vectors, slow = PROCESSORS[name]
    if told is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities")
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    model = NetClassifier("mlp", **{**QUICK, "epochs": 1})
    model.fit(*rows)  # warnings are errors here: float32 has none
    words = re.escape("no instructions for bfloat16, so that precision='bfloat16' takes longer")
    with pytest.warns(SlowPrecisionWarning, match=words) if slow else nullcontext():
        model.set_params(precision="bfloat16").fit(*rows)
