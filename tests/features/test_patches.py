"""Patch features: what they compute against plain loops, and that they are label-free, repeatable and bounded."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from labeldp import LabelPrivateClassifier
from labeldp.errors import LabelDPError, PixelScaleWarning
from labeldp.features import PatchFeatures
from labeldp.features.transforms import (
    PRESETS,
    Bank,
    cut_patches,
    fit_whitening,
    learn_bank,
    pool_responses,
    signed_kmeans,
)
from labeldp.kernels import bin_edges, pool_rectified
from labeldp.learn import SoftmaxRegression

SMALL = {"filters": ((4, 6), (5, 3)), "n_components": 12, "random_state": 0}


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


@pytest.fixture(scope="module")
def few(digits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return digits[0][:300]


@pytest.fixture(scope="module")
def fitted(few: np.ndarray) -> PatchFeatures:
    return PatchFeatures(**SMALL).fit(few)


def plain_pooling(responses: np.ndarray, threshold: float, bins: int) -> np.ndarray:
    """Means over bins, one at a time: the oracle of the compiled pass."""
    rows, columns = bin_edges(responses.shape[1], bins), bin_edges(responses.shape[2], bins)
    out = np.zeros((len(responses), bins, bins, 2, responses.shape[3]))
    for a in range(bins):
        for b in range(bins):
            part = responses[:, slice(*rows[a]), slice(*columns[b])].astype(np.float64)
            out[:, a, b, 0] = np.maximum(part - threshold, 0).mean(axis=(1, 2))
            out[:, a, b, 1] = np.maximum(-part - threshold, 0).mean(axis=(1, 2))
    return out


@pytest.mark.parametrize("shape", [(23, 23), (5, 9), (4, 4)])
def test_compiled_pooling_equals_plain_loops(shape: tuple[int, int]):
    responses = np.random.default_rng(1).normal(size=(3, *shape, 5)).astype(np.float32)
    out = np.zeros((3, 4, 4, 2, 5), np.float32)
    pool_rectified(responses, np.float32(0.3), bin_edges(shape[0], 4), bin_edges(shape[1], 4), out)
    # float32 sums of at most 49 numbers of size 1
    np.testing.assert_allclose(out, plain_pooling(responses, 0.3, 4), atol=1e-5)


def test_bins_cover_everything_and_none_is_empty():
    for length in range(4, 40):
        edges = bin_edges(length, 4)
        assert (edges[:, 1] > edges[:, 0]).all()
        assert set().union(*(range(*edge) for edge in edges)) == set(range(length))


def test_responses_are_convolutions():
    from scipy.signal import correlate2d

    rng = np.random.default_rng(2)
    images = rng.normal(size=(2, 9, 8, 1)).astype(np.float32)
    weights = rng.normal(size=(9, 2)).astype(np.float32)
    responses = cut_patches(images, 3) @ weights
    for image in range(2):
        for m in range(2):
            expected = correlate2d(images[image, :, :, 0], weights[:, m].reshape(3, 3), mode="valid")
            np.testing.assert_allclose(responses[image, :, :, m], expected, atol=1e-4)
    pooled = pool_responses(images, [Bank(size=3, weights=weights, threshold=0.2)])
    np.testing.assert_allclose(pooled**2, plain_pooling(responses, 0.2, 4).reshape(2, -1), atol=1e-4)


def test_a_mirror_image_has_the_same_features(few: np.ndarray, fitted: PatchFeatures):
    X = few[:30]
    mirrored = X.reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64)
    np.testing.assert_allclose(fitted.transform(X), fitted.transform(mirrored), atol=1e-3)
    one_sided = PatchFeatures(**SMALL, flips=False).fit(few)
    assert np.abs(one_sided.transform(X) - one_sided.transform(mirrored)).max() > 0.1


def test_features_do_not_depend_on_batches_labels_or_company(
    few: np.ndarray, fitted: PatchFeatures, monkeypatch: pytest.MonkeyPatch
):
    X, y = few, np.arange(len(few)) % 2
    whole = fitted.transform(X[:200])
    assert whole.dtype == np.float32
    # float32 products of other shapes may be summed in another order
    np.testing.assert_allclose(fitted.transform(X[50:60]), whole[50:60], atol=1e-3)
    monkeypatch.setattr("labeldp.features.transforms.BATCH_BYTES", 1)
    np.testing.assert_allclose(fitted.transform(X[:20]), whole[:20], atol=1e-3)
    with_labels = clone(fitted).fit(X, y)
    assert np.array_equal(with_labels.components_, clone(fitted).fit(X).components_)


def test_repeatable_under_a_seed_and_different_under_another(few: np.ndarray, fitted: PatchFeatures):
    X = few
    assert np.array_equal(clone(fitted).fit(X).transform(X[:10]), fitted.transform(X[:10]))
    other = clone(fitted).set_params(random_state=1).fit(X)
    assert not np.allclose(other.transform(X[:10]), fitted.transform(X[:10]))


def test_unit_norm_rows_have_norm_at_most_one(few: np.ndarray):
    rows = PatchFeatures(**SMALL, unit_norm=True).fit_transform(few)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert norms.max() <= 1.0
    assert norms.min() > 1 - 1e-5  # float32


def test_whitening_sets_the_spread_of_the_components(few: np.ndarray):
    X = few
    spreads = {w: PatchFeatures(**SMALL, whiten=w).fit_transform(X).std(axis=0) for w in (0.0, 0.5, 1.0)}
    np.testing.assert_allclose(spreads[1.0], 1.0, rtol=0.05)
    np.testing.assert_allclose(spreads[0.5], np.sqrt(spreads[0.0]), rtol=0.05)
    assert spreads[0.0][0] > 2 * spreads[0.0][-1]


def test_a_linear_model_on_them_reads_digits(digits: tuple[np.ndarray, np.ndarray]):
    """A quarter held out; a linear model on pixels gets 95 to 96 %, so that 97 % needs the features."""
    from sklearn.linear_model import RidgeClassifier

    X, y = digits
    features = PatchFeatures(filters=((4, 24),), n_components=128, flips=False, random_state=0).fit_transform(X)
    held = np.arange(len(y)) % 4 == 0
    accuracy = RidgeClassifier().fit(features[~held], y[~held]).score(features[held], y[held])
    pixels = RidgeClassifier().fit(X[~held], y[~held]).score(X[held], y[held])
    print(f"digits, linear: pixels {pixels:.3f}, patch features {accuracy:.3f}")
    assert accuracy > 0.97
    assert accuracy > pixels


def test_colour_images_progress_and_rank():
    told: list[tuple[int, int]] = []
    images = np.random.default_rng(3).uniform(size=(15, 6 * 7 * 3)).astype(np.float32)
    patches = PatchFeatures(
        image_shape=(6, 7, 3),
        filters=((3, 4),),
        n_components=50,
        progress=lambda done, total: told.append((done, total)),
    )
    features = patches.fit_transform(images)
    assert features.shape == (15, 15)  # no more components than rows
    assert np.isfinite(features).all()
    assert told[-1] == (15, 15)
    assert patches.get_feature_names_out()[-1] == "patchfeatures14"


def test_constant_images_are_no_trouble():
    features = PatchFeatures(filters=((3, 4),), n_components=3).fit_transform(np.ones((20, 36), np.float32))
    assert np.isfinite(features).all()


def test_presets_are_the_recipes():
    assert PRESETS == {
        "small": (((6, 64),), 512, 1, False),
        "full": (((6, 128), (9, 48)), 640, 1, False),
        "colour": (((6, 400),), 768, 2, True),
    }


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"image_shape": (8, 9)}, "image_shape"),
        ({"image_shape": (64,)}, "image_shape"),
        ({"preset": "huge"}, "preset"),
        ({"filters": ((9, 4),)}, "patch size"),
        ({"filters": ((4, 0),)}, "number of filters"),
        ({"n_components": 0}, "n_components"),
        ({"whiten": 2.0}, "whiten"),
        ({"flips": "both"}, "flips"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], match: str):
    with pytest.raises(LabelDPError, match=match):
        PatchFeatures(**{**SMALL, **settings}).fit(np.random.default_rng(0).uniform(size=(20, 64)))


def test_rows_that_are_no_square_need_a_shape_and_transform_needs_a_fit():
    with pytest.raises(LabelDPError, match="square and grey"):
        PatchFeatures(**SMALL).fit(np.ones((5, 60)))
    with pytest.raises(NotFittedError):
        PatchFeatures(**SMALL).transform(np.ones((5, 64)))


def test_whitened_patches_are_white_and_blind_to_brightness():
    rng = np.random.default_rng(4)
    patches = (rng.normal(size=(5000, 9)) @ rng.normal(size=(9, 9))).astype(np.float32)
    patches -= patches.mean(axis=1, keepdims=True)
    whitener = fit_whitening(patches)
    np.testing.assert_allclose(whitener @ np.ones(9), 0.0, atol=1e-5)
    spread = np.linalg.eigvalsh(np.cov((patches @ whitener.T).T))[1:]
    assert (spread < 1.0 + 1e-3).all()
    assert spread[-1] > 0.9


def test_signed_kmeans_takes_a_patch_and_its_negative_for_one():
    rng = np.random.default_rng(5)
    truth = np.linalg.qr(rng.normal(size=(6, 6)))[0][:3].astype(np.float32)
    rows = truth[rng.integers(3, size=900)] * rng.choice([-1.0, 1.0], size=(900, 1))
    rows = (rows + 0.02 * rng.normal(size=rows.shape)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    best = max(
        (np.abs(signed_kmeans(rows, count=3, rng=np.random.default_rng(seed)) @ truth.T) for seed in range(8)),
        key=lambda cosines: cosines.max(axis=0).min(),
    )
    assert best.max(axis=0).min() > 0.99


def test_few_patches_still_make_a_bank():
    images = np.random.default_rng(6).normal(size=(2, 4, 4, 1)).astype(np.float32)
    assert learn_bank(images, size=4, count=7, rng=np.random.default_rng(0)).weights.shape == (16, 7)


def test_views_are_the_features_of_the_image_and_of_its_mirror_image(few: np.ndarray):
    patches = PatchFeatures(**SMALL, flips="views", unit_norm=True).fit(few)
    views = patches.transform(few[:30])
    mirrored = few[:30].reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64)
    assert views.shape == (30, 2, 12)
    np.testing.assert_allclose(views[:, ::-1], patches.transform(mirrored), atol=1e-4)  # float32 sums in batches
    assert np.linalg.norm(views.astype(np.float64), axis=2).max() <= 1.0
    assert np.abs(views[:, 0] - views[:, 1]).max() > 0.1


def test_contrast_and_stride_against_plain_loops():
    rng = np.random.default_rng(7)
    images = rng.normal(size=(2, 9, 8, 3)).astype(np.float32)
    bank = learn_bank(images, size=3, count=4, rng=rng, stride=2, contrast=True)
    responses = bank.responses(images)
    assert responses.shape == (2, 4, 3, 4)
    for image, row, column in np.ndindex(2, 4, 3):
        patch = images[image, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        flat = patch.transpose(2, 0, 1).reshape(-1).astype(np.float64)  # the windows' order: channel, row, column
        expected = (flat - flat.mean()) / np.sqrt(flat.var() + 0.01) @ bank.weights
        # float32 products of 27 terms of size one
        np.testing.assert_allclose(responses[image, row, column], expected, atol=1e-4)


@pytest.mark.parametrize("shape", [(8, 8), (4, 8, 2), (8, 8, 1)])
def test_images_come_with_their_axes_or_flat(few: np.ndarray, shape: tuple[int, ...]):
    """Whatever the axes, and bytes or floats: the same features."""
    settings = {**SMALL, "filters": ((4, 6),)}
    flat = PatchFeatures(image_shape=shape, **settings).fit(few)
    images = few.reshape(len(few), *shape)
    folded = PatchFeatures(**settings).fit(images)
    assert (folded.transform(images) == flat.transform(few)).all()
    assert (folded.transform(few) == flat.transform(few)).all()
    whole = (few * 16).astype(np.uint8)
    as_bytes = PatchFeatures(**settings).fit(whole.reshape(images.shape))
    # The scale of all pixels is divided out; what is left is rounding of float32 in a sum of 64 products.
    assert np.allclose(as_bytes.transform(whole), folded.transform(few), atol=1e-3)


def test_images_of_another_shape_are_refused(few: np.ndarray):
    fitted = PatchFeatures(**SMALL).fit(few.reshape(-1, 8, 8))
    with pytest.raises(LabelDPError, match=r"images of shape \(8, 8, 1\), got images of shape \(4, 16\)"):
        fitted.transform(few.reshape(-1, 4, 16))
    with pytest.raises(LabelDPError, match="images of shape"):
        PatchFeatures(image_shape=(8, 8), **SMALL).fit(few.reshape(-1, 4, 16))
    with pytest.raises(LabelDPError, match="transpose"):
        PatchFeatures(**SMALL).fit(np.zeros((5, 3, 12, 12)))
    with pytest.raises(LabelDPError, match=r"images of shape \(8, 8, 1\), got images of shape \(7, 8\)"):
        fitted.transform(few.reshape(-1, 8, 8)[:, 1:])
    with pytest.raises(LabelDPError, match=r"image_shape is \(height, width, channels\): \(8, 8, 1\)"):
        PatchFeatures(image_shape=(1, 8, 8), **SMALL).fit(few)
    for none in (few.reshape(-1, 8, 8)[:0], []):
        with pytest.raises(LabelDPError, match="`X` must have examples, got none"):
            fitted.transform(none)


def test_a_list_of_images_is_as_good_as_an_array(few: np.ndarray):
    images = few.reshape(-1, 8, 8)
    fitted = PatchFeatures(**SMALL).fit(list(images))
    assert (fitted.transform(list(images)) == PatchFeatures(**SMALL).fit(images).transform(images)).all()


def test_another_scale_of_pixels_is_warned_of(few: np.ndarray):
    """What bytes taught is lost on floats 0 to 1, and the other way round; a copy, as a stored model is one, knows it too."""
    images = few.reshape(-1, 8, 8)
    whole, small = (255 * images / images.max()).astype(np.uint8), images / images.max()
    of_bytes, of_floats = (pickle.loads(pickle.dumps(PatchFeatures(**SMALL).fit(X))) for X in (whole, small))
    for model, other in (
        (of_bytes, small),
        (of_bytes, small > 0.5),
        (of_floats, whole),
        (of_floats, whole.astype(float)),
    ):
        with pytest.warns(PixelScaleWarning, match="one scale"):
            model.transform(other)
    of_bytes.transform(whole.astype(float))  # warnings are errors here
    of_bytes.transform(whole // 200)  # dark, and bytes
    of_floats.transform(small / 2)
    del of_bytes.pixel_range_  # a model of labeldp 0.1
    of_bytes.transform(small)


def test_images_in_front_of_a_private_learner(digits: tuple[np.ndarray, np.ndarray]):
    X, y = digits
    pipeline = make_pipeline(PatchFeatures(**SMALL), SoftmaxRegression())
    model = LabelPrivateClassifier(pipeline, epsilon=8.0, classes=range(10), random_state=0)
    images = X.reshape(-1, 8, 8)
    assert (model.fit(images, y).predict(images) == y).mean() > 0.8
