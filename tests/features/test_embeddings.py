"""Embeddings: what an encoder says, once; the cache is what was computed or nothing; no label comes near it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from labeldp import LabelPrivateClassifier
from labeldp.errors import LabelDPError
from labeldp.features import Embeddings, embeddings
from labeldp.learn import SoftmaxRegression, load_model, save_model


class Encoder:
    """Products with a fixed matrix, and a count of the rows that it was asked for."""

    def __init__(self, seed: int = 0) -> None:
        self.matrix = np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
        self.rows = 0

    def __call__(self, batch):
        self.rows += len(batch)
        return batch @ self.matrix


class Pairs:
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], self.y[row]


@pytest.fixture
def few(monkeypatch):
    """Blocks of 16 rows, and 50 rows."""
    monkeypatch.setattr(embeddings, "BLOCK", 16)
    return np.random.default_rng(0).normal(2.0, 3.0, size=(50, 3)).astype(np.float32)


def test_columns_are_brought_to_mean_0_and_spread_1(few):
    encoder = Encoder()
    found = Embeddings(encoder, batch_size=7).fit(few)
    rows = found.transform(few)
    direct = few.astype(np.float64) @ encoder.matrix.astype(np.float64)
    expected = (direct - direct.mean(axis=0)) / direct.std(axis=0)
    assert rows.dtype == np.float32
    assert np.allclose(rows, expected, atol=1e-5)  # float32 products of three numbers of size 10
    new = found.transform(few[:1] + 100)
    assert np.allclose(new, ((few[:1] + 100) @ encoder.matrix - direct.mean(axis=0)) / direct.std(axis=0), atol=1e-3)
    assert (found.fit_transform(few) == rows).all()
    assert list(found.get_feature_names_out()) == [f"embeddings{k}" for k in range(4)]


def test_columns_that_do_not_vary_are_zero_and_norms_are_at_most_one(few):
    constant = np.concatenate([few, np.full((50, 1), 0.1, np.float32)], axis=1)
    rows = Embeddings().fit_transform(constant)
    assert (rows[:, 3] == 0).all()
    unit = Embeddings(unit_norm=True).fit_transform(few)
    # np.longdouble holds the squares of float32 exactly: enough to see an ulp above one.
    assert np.sqrt((unit.astype(np.longdouble) ** 2).sum(axis=1)).max() <= 1.0
    views = np.stack([few, few + 1], axis=1)
    assert Embeddings().fit_transform(views).shape == (50, 2, 3)


def test_fit_computes_each_row_once(few):
    encoder = Encoder()
    told = []
    Embeddings(encoder, batch_size=5, progress=lambda done, total: told.append((done, total))).fit_transform(few)
    assert encoder.rows == 50
    assert told == [(16, 50), (32, 50), (48, 50), (50, 50)]


def test_scikit_learn_s_checks_pass():
    results = check_estimator(Embeddings(), on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []


# ------------------------------------------------------------------------------------------------------------ the cache


def test_a_second_pass_computes_next_to_nothing(few, tmp_path):
    first, second = Encoder(), Encoder()
    rows = Embeddings(first, cache=tmp_path / "made").fit_transform(few)
    again = Embeddings(second, cache=tmp_path / "made").fit_transform(few)
    assert (rows == again).all()
    assert (first.rows, second.rows) == (50, 4 * embeddings.PROBE)
    files = sorted((tmp_path / "made").iterdir())
    assert len(files) == 4
    assert all(file.suffix == ".npy" for file in files)
    more = Encoder()
    Embeddings(more, cache=tmp_path / "made").fit(np.concatenate([few[:48], few[:4] + 1]))
    assert more.rows == 3 * embeddings.PROBE + 4  # blocks that are the same are found, whatever comes after them


def test_a_killed_pass_goes_on_after_its_last_block(few, tmp_path):
    def stop(done, _total):
        if done == 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Embeddings(Encoder(), cache=tmp_path, progress=stop).fit(few)
    assert sorted(path.name[:11] for path in tmp_path.iterdir()) == ["embeddings-"] * 2
    resumed = Encoder()
    rows = Embeddings(resumed, cache=tmp_path).fit_transform(few)
    assert resumed.rows == 2 * embeddings.PROBE + 18
    assert (rows == Embeddings(Encoder()).fit_transform(few)).all()


def test_damaged_files_are_computed_again(few, tmp_path):
    whole = Embeddings(Encoder(), cache=tmp_path).fit_transform(few)
    cut, swollen, pickled, other = sorted(tmp_path.iterdir())
    cut.write_bytes(cut.read_bytes()[:-5])
    swollen.write_bytes(swollen.read_bytes() + b"x")
    np.save(pickled, np.array([{"a": 1}], object), allow_pickle=True)
    np.save(other, np.full((16, 4), np.nan, np.float32))
    encoder = Encoder()
    assert (Embeddings(encoder, cache=tmp_path).fit_transform(few) == whole).all()
    assert encoder.rows == 50


class Opaque:
    """An encoder of which nothing can be known: what it multiplies by is behind a descriptor of compiled code."""

    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, batch):
        return batch * np.float32(self.factor)


@pytest.mark.parametrize("factor", [3.0, 2.0 * (1 + 2 * embeddings.NEAR)])
def test_an_encoder_that_answers_otherwise_is_refused(few, tmp_path, factor):
    """Not all of it has a hash: the same name, and answers that are other by more than rounding, in whichever block is left."""
    Embeddings(Opaque(2.0), cache=tmp_path).fit(few)
    Embeddings(Opaque(2.0 * (1 + embeddings.NEAR / 2)), cache=tmp_path).fit(few)
    with pytest.raises(LabelDPError, match="encoder has changed"):
        Embeddings(Opaque(factor), cache=tmp_path).fit(few)
    with pytest.raises(LabelDPError, match="encoder has changed"):
        Embeddings(Opaque(factor), cache=tmp_path).fit(np.concatenate([few[:16] + 1, few[16:]]))


def test_rows_that_others_wrote_are_found_in_any_block(few, tmp_path):
    """Before: two rows of the first block were compared, and everything else was believed."""
    Embeddings(Encoder(), cache=tmp_path).fit(few)
    files = sorted(tmp_path.iterdir())
    for file in files:
        kept = np.load(file)
        np.save(file, np.full_like(kept, 7.0))
        with pytest.raises(LabelDPError, match="encoder has changed"):
            Embeddings(Encoder(), cache=tmp_path).fit(few)
        np.save(file, kept)


def test_sixteen_bits_may_round_further(few, tmp_path):
    """Answers of half precision move by a step of theirs with the size of a batch; those of float32 may not by as much."""
    for factor in (1.0, 1.004):
        Embeddings(Rounded(Opaque(factor)), cache=tmp_path).fit(few)
    assert len(list(tmp_path.iterdir())) == 4


class Rounded:
    """Another encoder's answers in float16; nothing is known of the other but its type."""

    def __init__(self, encoder):
        self.encoder = encoder

    def __call__(self, batch):
        return self.encoder(batch).astype(np.float16)


OFFSET = 1.0


def add_offset(batch):
    return batch + OFFSET


class Model:
    """An encoder by one of its methods, with a weight that is no array of torch's."""

    def __init__(self, weight, inner=None):
        self.weight, self.inner = weight, inner

    def encode(self, batch):
        return batch * self.weight if self.inner is None else self.inner.encode(batch)

    def half(self, batch):
        return self.encode(batch) / 2


def test_what_an_encoder_holds_is_in_the_name(few, tmp_path, monkeypatch):
    """Code, what it closed over, attributes and defaults: each by itself is another encoder, however near its answers are."""

    def layer(number):
        return lambda batch: batch + np.float32(1e-6) * number

    def shift(batch, by):
        return batch + by

    def shift_by(batch, settings):
        return batch + settings.by

    encoders = [
        *(layer(number) for number in (0, 1)),
        lambda batch: batch * 1.0,
        lambda batch: batch / 1.0,
        lambda batch: batch * 1.000001,
        *(Model(weight).encode for weight in (1.0, 1.000001)),
        Model(2.0).half,
        *(Model(0.0, inner=Model(0.0, inner=Model(0.0, inner=Model(weight)))).encode for weight in (1.0, 1.000001)),
        *(partial(shift, by=by) for by in (0.0, 1e-6)),
        *(partial(shift_by, settings=SimpleNamespace(by=by)) for by in (0.0, 1e-6)),
        add_offset,
    ]
    for number, encoder in enumerate(encoders, start=1):
        for _ in range(2):  # and each finds its own again
            found = Embeddings(encoder, cache=tmp_path, standardise=False).fit_transform(few)
            assert np.allclose(found, encoder(few), rtol=1e-5)
            assert len(list(tmp_path.iterdir())) == 4 * number
    monkeypatch.setattr(f"{__name__}.OFFSET", 2.0)
    assert (Embeddings(add_offset, cache=tmp_path, standardise=False).fit_transform(few) == few + 2).all()


def test_a_name_is_the_same_in_another_process(few, tmp_path):
    """Nothing of a place in memory, or of the order of a set, is in it."""
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", NAMED, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert len(list(tmp_path.iterdir())) == 1


NAMED = """
import sys, threading, logging, numpy as np
from labeldp.features import Embeddings
FACTOR, NAMES = 2.0, {"a", "b", "c"}
class Part:
    def __init__(self):
        self.words, self.lock, self.log = {"one", "two", "three"}, threading.Lock(), logging.getLogger("here")
        self.me = self
class Model:
    def __init__(self):
        self.part, self.ways = Part(), {"x": np.ones(3), "y": [np.sin, len]}
    def encode(self, batch):
        return helper(batch) if len(batch) in {1, 2, 3, "other"} else batch * FACTOR
def helper(batch):
    return batch * FACTOR
Embeddings(Model().encode, cache=sys.argv[1]).fit(np.ones((10, 3), np.float32))
"""


def test_what_is_no_file_is_computed_again(few, tmp_path):
    """A pipe that nobody writes to, and an array of 2.5 TB that is all holes. Before: no end, and a MemoryError."""
    whole = Embeddings(Encoder(), cache=tmp_path).fit_transform(few)
    pipe, sparse, *_ = sorted(tmp_path.iterdir())
    pipe.unlink()
    os.mkfifo(pipe)
    with sparse.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": "<f4", "fortran_order": False, "shape": (16, 2**35)})
        handle.truncate(handle.tell() + 16 * 2**35 * 4)
    found = []
    worker = threading.Thread(
        target=lambda: found.append(Embeddings(Encoder(), cache=tmp_path).fit_transform(few)), daemon=True
    )
    worker.start()
    worker.join(60)
    assert found, "it waits for the pipe"
    assert (found[0] == whole).all()
    assert pipe.is_file()


def test_half_a_character_is_a_text(tmp_path):
    for _ in range(2):
        found = Embeddings(lambda batch: np.array([[len(text)] for text in batch]), cache=tmp_path, standardise=False)
        assert found.fit_transform(["a\ud800", "b"]).tolist() == [[2], [1]]


def test_weights_and_rows_are_in_the_name(few, tmp_path):
    torch = pytest.importorskip("torch", reason="modules need labeldp[torch]")
    torch.manual_seed(0)
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    for module, X in ((one, few), (other, few), (one, few + 1)):
        found = Embeddings(module, cache=tmp_path, standardise=False).fit_transform(X)
        assert np.allclose(found, module(torch.from_numpy(X)).detach().numpy(), atol=1e-5)  # batches round otherwise
    assert len(list(tmp_path.iterdir())) == 12
    for exponent in (1.0, 1.000001):  # an attribute that is no weight
        Embeddings(make_power(torch, exponent), cache=tmp_path).fit(few)
    assert len(list(tmp_path.iterdir())) == 20
    wider = torch.nn.Sequential(one, torch.nn.ReLU())  # the same weights, other layers
    assert Embeddings(wider, cache=tmp_path, standardise=False).fit_transform(few).min() == 0


def make_power(torch, exponent):
    class Power(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.exponent = exponent

        def forward(self, rows):
            return rows.abs() ** self.exponent

    return torch.nn.Sequential(Power())


def test_the_cache_holds_numbers_of_inputs_alone(few, tmp_path):
    """Labels beside the inputs, in any shape, change no byte of any file."""
    contents = []
    for number, labels in enumerate((["secret"] * 50, list(range(50)))):
        Embeddings(Encoder(), cache=tmp_path / str(number)).fit(Pairs(few, labels), labels)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / str(number)).iterdir()})
    assert contents[0] == contents[1]
    assert not any(b"secret" in content for content in contents[0].values())


def test_a_place_that_cannot_be_written(few, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LabelDPError, match="be a folder"):
        Embeddings(Encoder(), cache=tmp_path / "file").fit(few)
    (tmp_path / "full").mkdir()
    Embeddings(Encoder(), cache=tmp_path / "full").fit(few[:16])
    (name,) = (path.name for path in (tmp_path / "full").iterdir())
    (tmp_path / "taken" / name).mkdir(parents=True)
    with pytest.raises(LabelDPError, match="could not write"):
        Embeddings(Encoder(), cache=tmp_path / "taken").fit(few[:16])
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [name]


# ------------------------------------------------------------------------------------------------------- kinds of input


def test_datasets_texts_and_bytes(few):
    by_items = Embeddings(Encoder()).fit_transform(Pairs(few, [None] * 50))
    assert (by_items == Embeddings(Encoder()).fit_transform(few)).all()
    assert Embeddings().fit_transform(Pairs(few, few)).shape == (50, 3)
    texts = ["one", "two words", "three words here"] * 10

    def count(batch):
        return np.array([[len(text), text.count(" ")] for text in batch])

    for X in (texts, np.array(texts)):
        assert Embeddings(count, standardise=False).fit_transform(X)[:3].tolist() == [[3, 0], [9, 1], [16, 2]]
    images = np.random.default_rng(0).integers(0, 256, size=(20, 4, 4, 3), dtype=np.uint8)
    flat = Embeddings(lambda batch: batch, standardise=False).fit_transform(images)
    assert (flat == images.reshape(20, -1)).all()


def test_a_module_is_only_evaluated():
    torch = pytest.importorskip("torch", reason="modules need labeldp[torch]")
    images = np.random.default_rng(0).integers(0, 256, size=(7, 3, 4, 4), dtype=np.uint8)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Dropout(0.5)).train()
    features = Embeddings(module, batch_size=3, standardise=False).fit_transform(images)
    assert all(part.training for part in module.modules())  # as it was
    assert module[1].num_batches_tracked == 0
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(images).float()).flatten(1).numpy()
    assert features.shape == (7, 8)
    assert np.allclose(features, expected, rtol=1e-4, atol=1e-3)  # batches of other sizes round otherwise
    with pytest.raises(LabelDPError, match=r"cannot take a batch of shape \(7, 3\)"):
        Embeddings(torch.nn.Linear(5, 2)).fit(np.zeros((7, 3)))


def test_bad_input_is_refused(few):
    wrong = few.copy()
    wrong[37, 1] = np.nan
    with pytest.raises(LabelDPError, match="infinity in row 37"):
        Embeddings(Encoder()).fit(wrong)
    with pytest.raises(LabelDPError, match="NaN or infinity in row 37"):
        Embeddings().fit(wrong)
    with pytest.raises(LabelDPError, match="NaN or infinity in row 37"):
        Embeddings().fit(few).transform(wrong)
    for answer in (lambda batch: (batch, 1), lambda batch: {"pooled": batch}):
        with pytest.raises(LabelDPError, match=r"got a (tuple|dict) of [12] parts. Choose the part"):
            Embeddings(answer).fit(few)
    for answer in (lambda batch: batch[:-1], lambda batch: batch[:, 0], lambda _: ["a"]):
        with pytest.raises(LabelDPError, match="a row for each example"):
            Embeddings(answer).fit(few)
    with pytest.raises(LabelDPError, match="finite numbers"), np.errstate(divide="ignore"):
        Embeddings(lambda batch: batch / 0).fit(few)
    with pytest.raises(LabelDPError, match="function of a batch"):
        Embeddings("dino").fit(few)
    with pytest.raises(LabelDPError, match="have examples"):
        Embeddings(Encoder()).fit(few[:0])
    with pytest.raises(LabelDPError, match="list of texts"):
        Embeddings(Encoder()).fit([1.0, 2.0])
    with pytest.raises(LabelDPError, match="without an encoder"):
        Embeddings().fit(np.zeros((3, 4, 4, 3)))
    fitted = Embeddings(lambda batch: batch).fit(few)
    with pytest.raises(LabelDPError, match="of 3 numbers, as in fit"):
        fitted.transform(few[:, :2])
    widths = iter([3, 3, 3, 2])
    with pytest.raises(LabelDPError, match="as many numbers"):
        Embeddings(lambda batch: batch[:, : next(widths)], batch_size=16).fit(few)
    widths = iter([3, 2] * 99)  # within one block
    with pytest.raises(LabelDPError, match="as many numbers for each example, got 2 and 3 numbers"):
        Embeddings(lambda batch: batch[:, : next(widths)], batch_size=1).fit(few[:2])
    with pytest.raises(LabelDPError, match="one shape"):
        Embeddings(Encoder()).fit(Pairs([few[0], few[0, :2]] * 5, [0] * 10))
    with pytest.raises(LabelDPError, match="progress"):
        Embeddings(Encoder(), progress="yes").fit(few)


# ------------------------------------------------------------------------------------------------- in front of a learner


def test_in_front_of_the_default_learner(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = (4 * np.eye(3)[y] + rng.normal(size=(600, 3))).astype(np.float32)
    scaled = X * [1e-3, 1.0, 1e4]  # an encoder's columns have scales that mean nothing
    pipeline = make_pipeline(Embeddings(), SoftmaxRegression())
    model = LabelPrivateClassifier(pipeline, epsilon=4.0, classes=range(3), random_state=0).fit(scaled, y)
    assert (model.predict(scaled) == y).mean() > 0.95
    save_model(model, tmp_path / "model.skops")
    assert (load_model(tmp_path / "model.skops").predict_proba(scaled) == model.predict_proba(scaled)).all()
    assert clone(pipeline).fit(scaled, y).predict(scaled).shape == (600,)


# ------------------------------------------------------------------------------------------------------- mirror images


def look_left(batch):
    """An encoder that is no friend of symmetry: the mean of the left half of each image, and of the whole."""
    rows = np.asarray(batch).reshape(len(batch), 4, 6, -1)
    return np.stack([rows[:, :, :3].mean((1, 2, 3)), rows.mean((1, 2, 3))], axis=1)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
def test_an_encoder_is_asked_about_mirror_images_too(shape):
    images = np.random.default_rng(0).integers(0, 256, (40, *shape)).astype(np.uint8)
    both = [look_left(images.astype(np.float32)), look_left(images[:, :, ::-1].astype(np.float32))]
    views = Embeddings(look_left, flips="views", standardise=False).fit_transform(images)
    # Sums of 72 numbers up to 255 in float32, in one order or another.
    assert np.allclose(views, np.stack(both, axis=1), rtol=1e-5)
    mean = Embeddings(look_left, flips=True, standardise=False).fit_transform(images)
    assert np.allclose(mean, np.mean(both, axis=0), rtol=1e-5)
    scaled = Embeddings(look_left, flips="views").fit(images)
    assert scaled.transform(images[:5]).shape == (5, 2, 2)
    assert np.abs(scaled.transform(images).reshape(-1, 2).mean(axis=0)).max() < 1e-4  # normalised over both views


def test_channels_may_come_first_and_views_are_kept(tmp_path):
    asked = []

    def encode(batch):
        asked.append(len(batch))
        return batch.reshape(len(batch), -1)

    images = np.random.default_rng(1).random((10, 3, 5, 6)).astype(np.float32)
    settings = {"flips": "views", "standardise": False, "cache": tmp_path}
    views = Embeddings(encode, **settings).fit_transform(images)
    assert np.array_equal(views[:, 1].reshape(images.shape), images[:, :, :, ::-1])
    first = sum(asked)
    again = Embeddings(encode, **settings).fit_transform(images)
    assert np.array_equal(again, views)
    assert (first, sum(asked) - first) == (20, 2 * embeddings.PROBE)


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (np.ones((5, 7)), {"flips": True}, r"`X` must be images to have mirror images, got examples of shape \(7,\)"),
        (np.ones((5, 8, 9, 9)), {"flips": "views"}, r"got examples of shape \(8, 9, 9\)"),
        (["a", "b"], {"flips": True}, "got texts"),
        (np.ones((5, 4, 6)), {"flips": "both"}, r"`flips` must be False, True or \"views\""),
        (np.ones((5, 2, 7)), {"encoder": None, "flips": "views"}, "`flips` must be False without an encoder"),
    ],
)
def test_what_has_no_mirror_image_is_refused(X, settings, message):
    encoder = settings.get("encoder", lambda batch: np.ones((len(batch), 2)))
    with pytest.raises(LabelDPError, match=message):
        Embeddings(**{"encoder": encoder, **settings}).fit(X)


def test_a_network_learns_from_both_views():
    pytest.importorskip("torch", reason="needs labeldp[torch]")
    from labeldp.nn import NetClassifier

    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 300)
    images = (rng.random((300, 4, 6)) + y[:, None, None]).astype(np.float32)
    embed = Embeddings(lambda batch: batch.reshape(len(batch), -1), flips="views")
    pipeline = make_pipeline(embed, NetClassifier("mlp", hidden=8, epochs=10, batch_size=20))
    model = LabelPrivateClassifier(pipeline, epsilon=8.0, classes=[0, 1], random_state=0).fit(images, y)
    assert np.mean(model.predict(images) == y) > 0.9
    # An image and its mirror image are the same two views.
    assert np.allclose(model.predict_proba(images), model.predict_proba(images[:, :, ::-1]), atol=1e-6)


@pytest.mark.parametrize("kind", [list, np.array])
def test_texts_without_an_encoder_are_refused(kind):
    with pytest.raises(
        LabelDPError, match=r"`X` must be numbers without an encoder, got texts\. Texts need an encoder"
    ):
        Embeddings().fit(kind(["good", "bad"]))
