"""Torch's own loaders and datasets: workers, default collation, subsets, and `LabelPrivateClassifier` on a Dataset."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from labeldp import InformativeResponse, LabelPrivateClassifier, SensitiveLabels, privatize
from labeldp.errors import LabelDPError
from labeldp.features import Embeddings, PatchFeatures
from labeldp.learn import LabelPrivateRegressor, SoftmaxRegression, load_model, save_model
from labeldp.nn import ForwardLoss, NetClassifier, ReleasedDataset
from labeldp.priors import ClusterPrior

QUICK = {"hidden": 16, "epochs": 3, "batch_size": 64, "random_state": 0}


class Watched(Dataset):
    """(input, label) pairs that keep count of who looked at a label."""

    def __init__(self, X, y):
        self.X, self.y = torch.from_numpy(X), y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], f"secret-{self.y[row]}"


@pytest.fixture(scope="module")
def released(blobs):
    return privatize(SensitiveLabels(blobs[1], classes=range(3)), InformativeResponse(3.0), rng=0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # on a machine of one core
@pytest.mark.parametrize(("workers", "how"), [(0, None), (2, "fork"), (1, "spawn")])
def test_a_loader_with_workers_gives_every_row_once(blobs, released, workers, how):
    X, _ = blobs
    data = released.dataset(torch.utils.data.TensorDataset(torch.from_numpy(X)))
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=workers, multiprocessing_context=how)
    x, evidence = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert x.shape == (450, 5)
    assert evidence.shape == (450, 3)
    assert x.dtype == evidence.dtype == torch.float32
    likelihood = released.channel.likelihood(released.codes).astype(np.float32)
    order = [int(np.flatnonzero((row.numpy() == X).all(axis=1))[0]) for row in x]
    assert sorted(order) == list(range(450))
    assert (evidence.numpy() == likelihood[order]).all()


def test_a_loop_learns_and_never_sees_a_label(blobs, released):
    X, y = blobs
    data = ReleasedDataset(Watched(X, y), released)
    torch.manual_seed(0)
    network, loss = torch.nn.Linear(5, 3), ForwardLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(10):
        for x, likelihood in DataLoader(Subset(data, range(400)), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            loss(network(x), likelihood).backward()
            optimizer.step()
    found = network(torch.from_numpy(X[400:])).argmax(1).numpy()
    assert (found == y[400:]).mean() > 0.8  # the best possible is 0.97, chance a third


def test_a_tensor_with_gaps_is_refused_like_an_array(blobs, released):
    X = torch.from_numpy(blobs[0].copy())
    X[333, 1] = torch.nan
    with pytest.raises(LabelDPError, match="`dataset` must be finite, got NaN or infinity in row 333"):
        released.dataset(X)
    with pytest.raises(LabelDPError, match="one example after the other, got a single number"):
        released.dataset(X[0, 0])
    assert len(released.dataset(X.to("meta"))) == 450  # holds no numbers to look at


def test_iterable_datasets_are_refused(released):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(450))

    class Sized(Stream):
        def __len__(self):
            return 450

    with pytest.raises(LabelDPError, match="map-style"):
        released.dataset(Stream())
    with pytest.raises(LabelDPError, match="map-style"):
        released.dataset(Sized())


# ------------------------------------------------------------------------------------- LabelPrivateClassifier on a Dataset


def test_a_dataset_trains_as_its_array_does(blobs):
    """The same rows, by number or in an array: the same release, and as good a network; a receiver gets the owner's."""
    X, y = blobs
    settings = {"epsilon": 4.0, "classes": range(3), "random_state": 0, "rounds": 1, "stages": 1}
    network = NetClassifier("mlp", **{**QUICK, "epochs": 12})
    by_items = LabelPrivateClassifier(network, **settings).fit(Watched(X, y), y)
    by_array = LabelPrivateClassifier(network, **settings).fit(X, y)
    assert (by_items.release_.codes == by_array.release_.codes).all()
    assert (by_items.predict(Watched(X, y)) == y).mean() > 0.9
    received = LabelPrivateClassifier(network, **settings).fit_release(Watched(X, y), by_items.release_)
    assert (received.predict_proba(Watched(X, y)) == by_items.predict_proba(Watched(X, y))).all()
    two = LabelPrivateClassifier(network, **{**settings, "stages": 2}).fit(
        Watched(X, y), y
    )  # rows of a stage, by number
    assert (two.predict(Watched(X, y)) == y).mean() > 0.85


def test_no_label_in_a_checkpoint(tmp_path):
    """Of 200 classes, so that sixteen labels in a row are no accident, as bytes of any usual type."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)).astype(np.float32), rng.integers(0, 200, 600)
    network = NetClassifier("mlp", **{**QUICK, "epochs": 1}, checkpoint=tmp_path)
    settings = {"epsilon": 1.0, "stages": 1, "rounds": 1, "classes": range(200), "random_state": 0}
    LabelPrivateClassifier(network, **settings).fit(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), y)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2  # the forward fit, and a round
    held = b"".join(array.tobytes() for file in files for array in np.load(file).values())
    for kind in ("u1", "u2", "i4", "i8", "f4", "f8"):
        assert y[:16].astype(kind).tobytes() not in held
        assert y[:16].astype(kind).tobytes() in held + y.astype(kind).tobytes()  # the twin: a file with labels is found


def test_a_dataset_goes_through_an_encoder(blobs, tmp_path):
    X, y = blobs
    encoder = torch.nn.Linear(5, 5)
    pipeline = make_pipeline(Embeddings(encoder), SoftmaxRegression())
    model = LabelPrivateClassifier(pipeline, epsilon=4.0, classes=range(3), random_state=0)
    model.fit(Watched(X, y), y)
    assert (model.predict(Watched(X, y)) == y).mean() > 0.85
    with pytest.raises(LabelDPError, match=r"with estimator__embeddings__encoder, a Linear\. .*docs/embeddings\.md"):
        save_model(model, tmp_path / "model.skops")


def test_who_cannot_take_a_dataset_says_so(blobs):
    X, y = blobs
    with pytest.raises(LabelDPError, match="Embeddings"):
        LabelPrivateClassifier(SoftmaxRegression(), classes=range(3)).fit(Watched(X, y), y)
    curator = LabelPrivateClassifier(
        NetClassifier("mlp", **QUICK),
        trust="curator",
        prior=ClusterPrior(n_clusters=5),
        classes=range(3),
        random_state=0,
    )
    with pytest.raises(LabelDPError, match="Embeddings"):
        curator.fit(Watched(X, y), y)
    with pytest.raises(LabelDPError, match="449"):
        curator.fit(TensorDataset(torch.from_numpy(X[1:])), y)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("row", [3, 333])
def test_an_item_that_is_no_number_is_named(blobs, stages, row):
    """Whoever reads it first, in whichever stage: by its number in the dataset, and by the learner that people called."""
    X, y = blobs[0].copy(), blobs[1]
    X[row, 1] = np.nan
    model = LabelPrivateClassifier(
        NetClassifier("mlp", **QUICK), epsilon=4.0, stages=stages, classes=range(3), random_state=0
    )
    said = rf"^(LabelPrivate|Net)Classifier: `dataset` must be finite, got NaN or infinity in item {row}\. Fill"
    with pytest.raises(LabelDPError, match=said):
        model.fit(TensorDataset(torch.from_numpy(X)), y)
    with pytest.raises(LabelDPError, match=said):
        NetClassifier("mlp", **QUICK).fit(TensorDataset(torch.from_numpy(X)), y)


def test_a_regressor_reads_a_dataset_through_an_encoder():
    """Pairs of an input and a label have two parts and no columns: rows of an array may follow them, and the other way round."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    labels = SensitiveLabels(np.clip(X[:, 0], -2, 2), bounds=(-2, 2))
    model = LabelPrivateRegressor(make_pipeline(Embeddings(), Ridge()), epsilon=4.0, random_state=0)
    by_items, by_array = (clone(model).fit(data, labels) for data in (Watched(X, X), X))
    for data in (Watched(X, X), X):
        assert (by_items.predict(data) == by_array.predict(data)).all()
    received = clone(model).fit_release(Watched(X, X), by_items.release_)
    assert (received.predict(X) == by_items.predict(X)).all()
    again = clone(model).fit(X, labels).fit(Watched(X, X), labels)
    assert not hasattr(again, "n_features_in_")
    with pytest.raises(LabelDPError, match="Embeddings"):
        LabelPrivateRegressor(Ridge(), random_state=0).fit(Watched(X, X), labels)


# ------------------------------------------------------------------------------------------------- images as people have them


@pytest.fixture(scope="module")
def pictures():
    """Bytes (n, 12, 10, 3) of two classes: the bright half is left or right."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    images = rng.integers(0, 60, size=(120, 12, 10, 3))
    images[y == 0, :, :5] += 120
    images[y == 1, :, 5:] += 120
    return images.astype(np.uint8), y


def test_channels_last_or_first_or_none(pictures):
    images, y = pictures
    settings = {"epochs": 2, "batch_size": 32, "augment": "", "random_state": 0}
    last = NetClassifier("small-cnn", **settings).fit(images, y)
    first = NetClassifier("small-cnn", **settings).fit(images.transpose(0, 3, 1, 2), y)
    assert (last.predict_proba(images) == first.predict_proba(images.transpose(0, 3, 1, 2))).all()
    grey = NetClassifier("small-cnn", **settings).fit(images[..., 0], y)
    assert (grey.predict_proba(images[..., 0]) == grey.predict_proba(images[..., :1])).all()
    floats = NetClassifier("small-cnn", **settings).fit(images.astype(np.float64) / 255, y)
    # The scale of pixels is divided out; what is left is rounding of float32, over eight steps.
    assert np.allclose(floats.predict_proba(images / 255), last.predict_proba(images), atol=2e-2)


def test_gaps_in_images_are_named_by_every_reader_of_images(pictures):
    images, y = pictures[0].astype(np.float32), pictures[1]
    network = NetClassifier("small-cnn", epochs=1, batch_size=32, augment="", random_state=0).fit(images, y)
    wrong = images.copy()
    wrong[77, 2, 2] = np.nan
    private = LabelPrivateClassifier(clone(network), classes=range(2))
    for ask in (network.predict, lambda X: private.fit(X, y), PatchFeatures().fit):
        with pytest.raises(LabelDPError, match=r"`X` must have no gaps, got one in row 77 .*np\.nan_to_num"):
            ask(wrong)


@pytest.mark.parametrize("trust", ["no one", "curator"])
def test_private_labels_of_images(pictures, trust):
    images, y = pictures
    network = NetClassifier("small-cnn", epochs=3, batch_size=32, augment="", random_state=0)
    model = LabelPrivateClassifier(network, epsilon=4.0, trust=trust, classes=range(2), random_state=0, rounds=1)
    assert (model.fit(images[..., 0], y).predict(images[..., 0]) == y).mean() > 0.8
    assert model.fit(images, y).predict(images).shape == (120,)


def test_lists_tensors_and_rows_are_as_good_as_arrays(pictures):
    """Whatever the fit was given, and whatever is predicted; for the owner of labels and for a receiver."""
    images, y = pictures
    settings = {"epochs": 1, "batch_size": 32, "augment": "", "random_state": 0, "image_shape": (12, 10, 3)}
    network = NetClassifier("small-cnn", **settings)
    forms = {
        "array": images,
        "list": list(images),
        "list of tensors": [torch.from_numpy(image) for image in images],
        "tensor": torch.from_numpy(images),
        "rows": images.reshape(len(images), -1),
    }
    alone = network.fit(images, y).predict_proba(images)
    settings = {"epsilon": 8.0, "classes": range(2), "random_state": 0, "rounds": 0, "stages": 1}
    private = LabelPrivateClassifier(network, **settings).fit(images, y)
    expected = private.predict_proba(images)
    for form in forms.values():
        assert (clone(network).fit(form, y).predict_proba(images) == alone).all()
        assert (network.predict_proba(form) == alone).all()
        fitted = LabelPrivateClassifier(network, **settings).fit(form, y)
        received = LabelPrivateClassifier(network, **settings).fit_release(form, private.release_)
        assert fitted.n_features_in_ == received.n_features_in_ == 360
        for model in (fitted, received):
            assert all((model.predict_proba(other) == expected).all() for other in forms.values())
    with pytest.raises(LabelDPError, match=r"one shape, got \(12, 10, 3\) at first and \(11, 10, 3\) in place 1"):
        network.fit([images[0], images[1][1:]], [0, 1])


class Pictures(Dataset):
    """(image, label) pairs in a form of the caller's choice."""

    def __init__(self, images, form):
        self.images, self.form = images, form

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.form(self.images[row]), "a label"


@pytest.mark.parametrize("colour", [False, True])
def test_items_of_a_dataset_have_the_axes_of_arrays(pictures, colour):
    """Channels first, last or none, and images of PIL, which torchvision's datasets yield without a transform: the same network."""
    images, y = pictures
    images = images if colour else images[..., 0]
    network = NetClassifier("small-cnn", epochs=3, batch_size=32, augment="", random_state=0)
    first = Pictures(images, lambda image: torch.from_numpy(np.atleast_3d(image).transpose(2, 0, 1).copy()))
    expected = network.fit(first, y).predict_proba(first)
    assert (network.predict(first) == y).mean() > 0.8
    assert network.are_grey(first) != colour
    forms = [np.asarray, np.atleast_3d, torch.from_numpy, lambda image: image.astype(np.float64).astype(np.float32)]
    if find_spec("PIL"):
        from PIL import Image

        forms.append(Image.fromarray)
    for form in forms:
        data = Pictures(images, form)
        assert network.are_grey(data) != colour
        assert (clone(network).fit(data, y).predict_proba(data) == expected).all()
    private = LabelPrivateClassifier(network, epsilon=8.0, classes=range(2), random_state=0, rounds=0)
    assert (private.fit(data, y).predict(data) == y).mean() > 0.8


@pytest.mark.parametrize("form", ["grey bytes", "colour bytes", "grey floats", "colour floats"])
def test_patch_features_of_images_in_a_stored_model(pictures, tmp_path, form):
    """As a user has them, from fit to a file and back: no axis is folded by hand."""
    images, y = pictures
    X = images[..., 0] if "grey" in form else images
    X = X / 255 if "floats" in form else X
    pipeline = make_pipeline(PatchFeatures(n_components=4, filters=((5, 8),), flips=False), SoftmaxRegression())
    model = LabelPrivateClassifier(pipeline, epsilon=4.0, classes=range(2), random_state=0).fit(X, y)
    assert (model.predict(X) == y).mean() > 0.8
    save_model(model, tmp_path / "model.skops")
    loaded = load_model(tmp_path / "model.skops").predict_proba(X)
    # Arrays come back at other places in memory, and products of float32 are rounded by where they begin: some 1e-6 was seen.
    assert np.allclose(loaded, model.predict_proba(X), rtol=1e-3)
