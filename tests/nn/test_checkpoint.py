"""A killed run goes on and ends with the same bits; a damaged file is named and left alone."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch

from labeldp.errors import LabelDPError, NewRunWarning, ReleaseError
from labeldp.nn import NetClassifier
from labeldp.nn.checkpoint import read_arrays, write_arrays


class KilledError(Exception):
    """Stands for a signal that cannot be caught."""


@pytest.fixture(scope="module")
def whole_runs(rows):
    """For each variant, the network of a run that nobody stopped."""
    return [NetClassifier("mlp", **SETTINGS, **variant).fit(*rows) for variant in VARIANTS]


SETTINGS = {"hidden": 8, "epochs": 4, "batch_size": 10, "dropout": 0.3, "mixup": 2.0}
VARIANTS = [
    {},
    {"optimizer": "sgd", "lr": 0.05, "schedule": "piecewise"},
    {"ema": 0.9},
]


def weights(model):
    return {name: tensor.numpy() for name, tensor in model.module_.state_dict().items()}


def identical(one, other):
    return all(np.array_equal(array, weights(other)[name]) for name, array in weights(one).items())


def killed_at(step):
    def told(done, _total, _loss):
        if done == step:
            raise KilledError

    return told


@pytest.mark.parametrize("number", range(len(VARIANTS)), ids=["adamw", "sgd", "ema"])
@pytest.mark.parametrize("step", [10, 14, 15])  # 7 steps an epoch: in the second epoch, at its end, just after it
def test_resumed_run_has_the_same_bits(rows, whole_runs, tmp_path, number, step):
    X, y = rows
    whole, variant = whole_runs[number], VARIANTS[number]
    with pytest.raises(KilledError):
        NetClassifier("mlp", **SETTINGS, **variant, checkpoint=tmp_path, progress=killed_at(step)).fit(X, y)
    steps = []
    resumed = NetClassifier(
        "mlp", **SETTINGS, **variant, checkpoint=tmp_path, progress=lambda done, _total, _loss: steps.append(done)
    )
    resumed.fit(X, y)
    assert steps[0] == (8 if step <= 14 else 15)  # it did not begin anew
    assert identical(whole, resumed)
    assert whole.history_ == resumed.history_
    assert not list(tmp_path.glob(".*"))  # no half-written file is left


def test_without_the_generator_state_the_bits_differ(rows, whole_runs, tmp_path):
    # The broken twin: a checkpoint that forgets the generators does not resume the same run.
    X, y = rows
    with pytest.raises(KilledError):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, progress=killed_at(10)).fit(X, y)
    (path,) = tmp_path.glob("*.npz")
    arrays, header = read_arrays(path)
    arrays["generator/cpu"] = torch.Generator().manual_seed(99).get_state().numpy()
    write_arrays(path, arrays, header, new=False)
    assert not identical(whole_runs[0], NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X, y))


def test_a_finished_run_is_found_finished_and_another_is_not_taken_for_it(rows, tmp_path):
    X, y = rows
    first = NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X, y)
    steps = []
    again = NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, progress=lambda *facts: steps.append(facts))
    assert identical(first, again.fit(X, y))
    assert steps == []
    for changed in (
        NetClassifier("mlp", **{**SETTINGS, "mixup": 1.0}, checkpoint=tmp_path),
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, random_state=1),
    ):
        changed.fit(X, y)
    NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X + 1e-3, y)
    NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X, 2 - y)
    assert len(list(tmp_path.glob("*.npz"))) == 5


class Listed(torch.utils.data.Dataset):
    """Rows one by one, moved by noise if asked: torch's own generator, or one of the dataset's."""

    def __init__(self, X, draw=None):
        self.X, self.draw = torch.from_numpy(X), draw

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row] if self.draw is None else self.X[row] + self.draw()


def test_a_dataset_that_differs_in_one_item_is_another(rows, tmp_path):
    """Before: the first and the last item were compared, and weights of other data came back."""
    X, y = rows
    other = X.copy()
    other[30] += 1
    first = NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(Listed(X), y)
    steps = []
    settings = {**SETTINGS, "checkpoint": tmp_path, "progress": lambda *facts: steps.append(facts)}
    assert identical(first, NetClassifier("mlp", **settings).fit(Listed(X), y))
    assert steps == []
    second = NetClassifier("mlp", **settings).fit(Listed(other), y)
    assert steps
    assert identical(second, NetClassifier("mlp", **SETTINGS).fit(Listed(other), y))


def test_a_dataset_that_draws_from_torch_goes_on(rows, tmp_path):
    """Augmentation of most people: another item each time, and yet the same data; what it draws is part of the state."""
    X, y = rows

    def draw():
        return 0.1 * torch.randn(4)

    whole = NetClassifier("mlp", **SETTINGS).fit(Listed(X, draw), y)
    with pytest.raises(KilledError):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, progress=killed_at(15)).fit(Listed(X, draw), y)
    torch.rand(7)  # another process has its generator elsewhere
    steps = []
    settings = {**SETTINGS, "checkpoint": tmp_path, "progress": lambda done, *_: steps.append(done)}
    assert identical(whole, NetClassifier("mlp", **settings).fit(Listed(X, draw), y))
    assert steps[0] == 15


def test_a_dataset_with_a_generator_of_its_own_is_warned_of(rows, tmp_path):
    X, y = rows
    generator = torch.Generator().manual_seed(0)
    data = Listed(X, lambda: 0.1 * torch.randn(4, generator=generator))
    with pytest.warns(NewRunWarning, match="begin anew"):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(data, y)


def test_stages_have_their_own_places(rows, tmp_path):
    X, y = rows
    whole = NetClassifier("mlp", **SETTINGS, warm_start=True).fit(X[:35], y[:35]).fit(X, y)
    staged = NetClassifier("mlp", **SETTINGS, warm_start=True, checkpoint=tmp_path).fit(X[:35], y[:35])
    with pytest.raises(KilledError):
        staged.set_params(progress=killed_at(16)).fit(X, y)
    afresh = NetClassifier("mlp", **SETTINGS, warm_start=True, checkpoint=tmp_path).fit(X[:35], y[:35]).fit(X, y)
    assert identical(whole, afresh)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "another network"])
def test_a_damaged_checkpoint_is_named_and_left_alone(rows, tmp_path, damage):
    X, y = rows
    with pytest.raises(KilledError):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, progress=killed_at(10)).fit(X, y)
    (path,) = tmp_path.glob("*.npz")
    spoil(path, damage)
    left = path.read_bytes()
    with pytest.raises(ReleaseError, match=r"cannot be read.*move it away"):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X, y)
    assert path.read_bytes() == left


def test_a_checkpoint_that_has_no_end_is_not_read(rows, tmp_path):
    """A link to a device in its place. Before: read until there was no memory left."""
    X, y = rows
    with pytest.raises(KilledError):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path, progress=killed_at(10)).fit(X, y)
    (path,) = tmp_path.glob("*.npz")
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ReleaseError, match="it is no file"):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path).fit(X, y)


def spoil(path, damage):
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(bytes(data[: len(data) // 2]))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        with zipfile.ZipFile(path) as archive:
            inside = archive.getinfo("module/0.weight.npy").header_offset
        data[inside + 250] ^= 0xFF  # inside the stored numbers: the checksum of the archive sees it
        path.write_bytes(bytes(data))
    else:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if damage == "foreign":
            arrays["header"] = np.array(json.dumps({"format": "something else", "version": 1}))
        else:
            arrays["module/0.weight"] = arrays["module/0.weight"][:, :2]
        np.savez(path, **arrays)


def test_a_loss_that_explodes_keeps_the_last_checkpoint(rows, whole_runs, tmp_path):
    X, y = rows
    broken = {**SETTINGS, "checkpoint": tmp_path}

    def poison(done, _total, _loss):
        if done == 9:  # in the second epoch
            with torch.no_grad():
                for weight in found:
                    weight.fill_(float("nan"))

    found = []
    original = torch.optim.AdamW.__init__

    def remember(self, weights, *rest, **named):
        found.extend(weights)
        original(self, weights, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "__init__", remember)
        with pytest.raises(LabelDPError, match=r"stay finite, got nan in epoch 2.*last checkpoint"):
            NetClassifier("mlp", **broken, progress=poison).fit(X, y)
    assert identical(whole_runs[0], NetClassifier("mlp", **broken).fit(X, y))


def test_a_place_that_cannot_be_a_directory_is_refused(rows, tmp_path):
    (tmp_path / "file").write_text("taken")
    with pytest.raises(LabelDPError, match="checkpoint"):
        NetClassifier("mlp", **SETTINGS, checkpoint=tmp_path / "file").fit(*rows)
