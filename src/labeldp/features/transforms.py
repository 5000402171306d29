"""`PatchFeatures` for images and `UnitRows` for any features: transformers that never ask for a label.

>>> import numpy as np
>>> images = np.random.default_rng(0).uniform(size=(40, 64)).astype(np.float32)
>>> patches = PatchFeatures(image_shape=(8, 8), filters=((5, 4),), n_components=6, random_state=0)
>>> patches.fit_transform(images).shape
(40, 6)

`PatchFeatures` compares whitened patches with filters that k-means found among such patches; the responses are rectified
(both signs), averaged over a 4 x 4 grid, square-rooted, averaged over the image and its mirror image (or both kept, as two
views of one example), and reduced by PCA. It runs on a CPU. `UnitRows` brings every row to norm one.

References: Coates, Ng, Lee, "An Analysis of Single-Layer Networks in Unsupervised Feature Learning" (2011).

Design notes. Labels are never asked for, so under label privacy the features cost nothing. Responses are one matrix
product per batch and one compiled pass over it; a batch takes some tens of megabytes whatever n is, so memory is
that of the input, of the output, and of the sample that PCA is fitted on. Rows of `UnitRows` are divided by a norm that
is rounded up: the result is at most one, which is what the sensitivity of the convex learners rests on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd, row_norms
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.arrays import Float32s, Floats
from labeldp.errors import Described, invalid
from labeldp.validate import (
    check_choice,
    check_integer,
    check_real,
    check_sides,
    expect_numbers,
    measure_pixels,
    stack_examples,
    warn_of_scale,
)


class Preset(NamedTuple):
    """(patch size, number of filters) of each bank, the components of PCA, and how patches are taken."""

    filters: tuple[tuple[int, int], ...]
    n_components: int
    stride: int = 1
    contrast: bool = False


#: On 60,000 images of 28 x 28 "small" is a good default; "full" is worth about a point and costs three to
#: four times as much. "colour" is for photographs of 32 x 32, whose light varies.
PRESETS: dict[str, Preset] = {
    "small": Preset(((6, 64),), 512),
    "full": Preset(((6, 128), (9, 48)), 640),
    "colour": Preset(((6, 400),), 768, stride=2, contrast=True),
}
#: Pooling bins each way.
BINS = 4
#: Images that PCA is fitted on: 9000 rows of 5632 float32 take 200 MB.
SAMPLE = 9000
#: Responses of one batch take about this many bytes.
BATCH_BYTES = 1 << 25
#: Images and patches that filters are learned from; more did not change the features' worth.
SAMPLE_IMAGES = 4000
SAMPLE_PATCHES = 80_000
#: Patches flatter than this (in standard deviations of all pixels) say nothing.
FLAT = 0.15
#: Rounds of k-means.
ROUNDS = 8
#: Added to a patch's variance (in variances of all pixels) before its contrast is divided out: flat patches stay flat.
CONTRAST_FLOOR = 0.01


class PatchFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Patch features of images: (n, height, width), (n, height, width, channels), or flat rows; floats or bytes.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels), optional
        How a flat row is folded; square grey images need not say it, and images with their axes never do.
    preset : {"small", "full", "colour"}
        Filters and components: ((6, 64),) and 512, ((6, 128), (9, 48)) and 640, or ((6, 400),) and 768; "colour" also
        takes every second patch each way and divides it by its own contrast.
    filters : sequence of (patch size, number of filters), optional
        Instead of the preset's.
    n_components : int, optional
        Instead of the preset's; no more than there are rows or responses.
    flips : bool or "views"
        Whether to average over an image and its mirror image. Not for digits and letters. "views" keeps both: the
        features are (n, 2, components), for a network that sees one or the other at each step.
    whiten : float
        0 leaves the components' spread as it is, 1 gives all the same, 0.5 (which served best) is between.
    unit_norm : bool
        Whether to bring each row to norm one (at most, rounding included), as the convex learners want it.
    random_state : int
        Seed of the sampled patches and of PCA. It sees no labels, so this is not a privacy matter.
    progress : callable (done, total), optional
        Told after each batch how many images are done.

    Attributes
    ----------
    banks_, mean_, components_, scale_, pixel_mean_, pixel_scale_, pixel_range_
    """

    def __init__(
        self,
        *,
        image_shape: Sequence[int] | None = None,
        preset: str = "small",
        filters: Sequence[tuple[int, int]] | None = None,
        n_components: int | None = None,
        flips: bool | str = True,
        whiten: float = 0.5,
        unit_norm: bool = False,
        random_state: Any = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.preset = preset
        self.filters = filters
        self.n_components = n_components
        self.flips = flips
        self.whiten = whiten
        self.unit_norm = unit_norm
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> PatchFeatures:
        """Learn filters and components from the images; `y` is not looked at."""
        rows, axes = flatten_images(X)
        with expect_numbers("PatchFeatures", X):
            X = validate_data(self, rows, dtype=np.float32, ensure_min_samples=2)
        self._image_shape = check_shape(axes if self.image_shape is None else self.image_shape, X.shape[1])
        self._check_axes(axes)
        plan = self._plan()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        self.pixel_mean_, self.pixel_scale_ = float(X.mean(dtype=np.float64)), max(float(X.std(dtype=np.float64)), 1e-6)
        self.pixel_range_ = measure_pixels(X)
        sampled = X[np.sort(rng.permutation(len(X))[:SAMPLE])]
        images = self._images(sampled)
        self.banks_ = tuple(
            learn_bank(images, size=size, count=count, rng=rng, stride=plan.stride, contrast=plan.contrast)
            for size, count in plan.filters
        )
        # Of two views PCA sees the image as it is: the mirror image's filters are among the others' already.
        responses = np.concatenate([views[:, 0] for views in self._pool(sampled)])
        self.mean_ = responses.mean(axis=0)
        responses -= self.mean_
        rank = min(plan.n_components, *responses.shape)
        _, values, self.components_ = randomized_svd(
            responses, rank, n_iter=3, n_oversamples=60, random_state=int(rng.integers(2**31))
        )
        spread = np.maximum(values / math.sqrt(len(responses)), 1e-6 * max(float(values[0]), 1e-6))
        self.scale_ = (spread ** -check_whiten(self.whiten)).astype(np.float32)
        return self

    def transform(self, X: Any) -> Float32s:
        """Return the features of images, float32 (n, components), or (n, 2, components) for flips="views"."""
        check_is_fitted(self, "components_")
        rows, axes = flatten_images(X)
        self._check_axes(axes)
        with expect_numbers("PatchFeatures", X):
            X = validate_data(self, rows, dtype=np.float32, reset=False)
        as_given = rows if isinstance(rows, np.ndarray) and rows.dtype == np.uint8 else X  # bytes may all be dark
        warn_of_scale("PatchFeatures", as_given, getattr(self, "pixel_range_", None))  # not in models of labeldp 0.1
        views = 2 if self.flips == "views" else 1
        out = np.empty((len(X), views, len(self.components_)), np.float32)
        # In one order of memory, whatever that of the components: a saved model must sum as the fitted one does, to the last bit.
        projection = np.ascontiguousarray((self.components_ * self.scale_[:, None]).T, np.float32)
        done = 0
        for pooled in self._pool(X):
            out[done : done + len(pooled)] = (pooled - self.mean_) @ projection
            done += len(pooled)
            if self.progress is not None:
                self.progress(done, len(X))
        if self.unit_norm:
            out = np.asarray(scale_rows(out.reshape(-1, out.shape[2]))).reshape(out.shape)
        return out if views == 2 else out[:, 0]

    def _check_axes(self, axes: tuple[int, ...] | None) -> None:
        """Refuse images of another shape than that of the fit, or than the setting says."""
        if axes is not None and (*axes, 1)[:3] != self._image_shape:
            got = Described(f"images of shape {axes}")
            raise invalid("PatchFeatures", "X", f"be images of shape {self._image_shape}", got=got)

    def _plan(self) -> Preset:
        """Return the checked filters and number of components."""
        check_choice("PatchFeatures", "preset", self.preset, tuple(PRESETS))
        if not isinstance(self.flips, (bool, np.bool_)):
            check_choice("PatchFeatures", "flips", self.flips, ("views",))
        preset = PRESETS[self.preset]
        filters = preset.filters if self.filters is None else tuple((size, count) for size, count in self.filters)
        most = min(self._image_shape[:2])
        fix = "Patches are no larger than the image."
        for size, count in filters:
            check_integer("PatchFeatures", "patch size", size, least=2, most=most, fix=fix)
            check_integer("PatchFeatures", "number of filters", count, least=1)
        wanted = preset.n_components if self.n_components is None else self.n_components
        components = check_integer("PatchFeatures", "n_components", wanted, least=1)
        return preset._replace(filters=filters, n_components=components)

    def _images(self, X: Float32s) -> Float32s:
        """Return rows as images (n, h, w, c) of mean 0 and spread 1 over all pixels."""
        images: Float32s = ((X - self.pixel_mean_) / self.pixel_scale_).astype(np.float32, copy=False)
        return images.reshape(len(X), *self._image_shape)

    def _pool(self, X: Float32s) -> Iterator[Float32s]:
        """Yield the square roots of the pooled responses, (batch, views, D), averaged over mirror images or beside them."""
        height, width, _ = self._image_shape
        most = max(bank.weights.size for bank in self.banks_) // min(b.size for b in self.banks_) ** 2
        step = max(1, BATCH_BYTES // (4 * height * width * max(most, 64)))
        for low in range(0, len(X), step):
            images = self._images(X[low : low + step])
            pooled = pool_responses(images, self.banks_)
            if not self.flips:
                yield pooled[:, None]
                continue
            mirrored = pool_responses(np.ascontiguousarray(images[:, :, ::-1]), self.banks_)
            both = np.stack([pooled, mirrored], axis=1)
            yield both if self.flips == "views" else both.mean(axis=1, keepdims=True)

    @property
    def _n_features_out(self) -> int:
        """The number of features, for their names in scikit-learn."""
        return len(self.components_)

    def __getstate__(self) -> dict[str, Any]:
        """The state as plain values and arrays: a file of a model (`labeldp.learn.save_model`) names no class of filters."""
        state: dict[str, Any] = {**super().__getstate__(), "progress": None}
        if "banks_" in state:
            state["banks_"] = [asdict(bank) for bank in state["banks_"]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "banks_" in state:
            banks = tuple(bank if isinstance(bank, Bank) else Bank(**bank) for bank in state["banks_"])
            state = {**state, "banks_": banks}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def flatten_images(X: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Return images, in an array, a list or a tensor, as flat rows, and the shape of one; rows stay as they are, and have none.

    >>> rows, axes = flatten_images(np.zeros((2, 28, 28), np.uint8))
    >>> rows.shape, axes
    ((2, 784), (28, 28))
    """
    X = stack_examples("PatchFeatures", X)
    if getattr(X, "ndim", 2) not in (3, 4):
        return X, None
    images = np.asarray(X)
    axes = images.shape[1:]
    if len(axes) == 3 and axes[0] <= 4 < axes[2]:
        fix = "Use X.transpose(0, 2, 3, 1)."
        got = Described(f"images of shape {axes}")
        raise invalid("PatchFeatures", "X", "have channels last, (n, height, width, channels)", got=got, fix=fix)
    return images.reshape(len(images), -1), axes


def check_shape(image_shape: Sequence[int] | None, n_columns: int) -> tuple[int, int, int]:
    """Return (height, width, channels); without a shape a row must be a square grey image."""
    if image_shape is None:
        side = math.isqrt(n_columns)
        if side * side != n_columns:
            got, fix = (
                Described(f"rows of {n_columns} numbers"),
                "Say how a row is folded, e.g. image_shape=(32, 32, 3).",
            )
            raise invalid(
                "PatchFeatures", "image_shape", "be given unless images are square and grey", got=got, fix=fix
            )
        return (side, side, 1)
    shape = check_sides("PatchFeatures", image_shape)
    if len(shape) not in (2, 3) or math.prod(shape) != n_columns:
        got = Described(f"{shape} for rows of {n_columns} numbers")
        raise invalid("PatchFeatures", "image_shape", "be (height, width) or (height, width, channels)", got=got)
    return (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)


def check_whiten(value: Any) -> float:
    """Return the share of whitening, in [0, 1]."""
    share = check_real("PatchFeatures", "whiten", value)
    if not 0 <= share <= 1:
        raise invalid("PatchFeatures", "whiten", "be in [0, 1]", got=value)
    return share


@dataclass(frozen=True, kw_only=True, eq=False)
class Bank:
    """Filters of one patch size: responses are patches @ weights; `threshold` is their mean size.

    With `contrast` a patch is divided by its own spread first; every `stride`-th patch is looked at each way.
    """

    size: int
    weights: Float32s
    threshold: float
    stride: int = 1
    contrast: bool = False

    def responses(self, images: Float32s) -> Float32s:
        """Return (n, rows, columns, filters): the weights ignore a patch's mean, so that only its spread is divided."""
        patches = cut_patches(images, self.size, stride=self.stride)
        found: Float32s = patches @ self.weights
        if self.contrast:
            found /= _measure_spread(patches)
        return found


def learn_bank(
    images: Float32s, *, size: int, count: int, rng: np.random.Generator, stride: int = 1, contrast: bool = False
) -> Bank:
    """Return `count` filters of `size` x `size` pixels, learned from images (n, h, w, c) without labels.

    Patches are whitened; then spherical k-means finds centres, where a patch and its negative are one. With `contrast`
    patches are divided by their spread first. `rng` draws the sample and the first centres.

    >>> images = np.random.default_rng(0).normal(size=(20, 12, 12, 1)).astype(np.float32)
    >>> bank = learn_bank(images, size=6, count=5, rng=np.random.default_rng(1))
    >>> bank.weights.shape, bank.threshold > 0
    ((36, 5), True)
    """
    patches = _centre(sample_patches(images, size=size, rng=rng))
    if contrast:
        patches = patches / _measure_spread(patches)
    whitener = fit_whitening(patches)
    white = patches @ whitener.T
    length = np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-6)
    centres = signed_kmeans(white / length, count=count, rng=rng)
    threshold = float(np.abs(white @ centres.T).mean())
    weights = np.ascontiguousarray((centres @ whitener).T, dtype=np.float32)
    return Bank(size=size, weights=weights, threshold=threshold, stride=stride, contrast=contrast)


def sample_patches(images: Float32s, *, size: int, rng: np.random.Generator) -> Float32s:
    """Return random patches of random images, without the flat ones if enough are left."""
    some = images[rng.permutation(len(images))[:SAMPLE_IMAGES]]
    windows = np.lib.stride_tricks.sliding_window_view(some, (size, size), axis=(1, 2))
    count = min(SAMPLE_PATCHES, int(np.prod(windows.shape[:3])))
    image, top, left = (rng.integers(length, size=count) for length in windows.shape[:3])
    patches: Float32s = windows[image, top, left].reshape(count, -1)
    lively = patches[patches.std(axis=1) > FLAT]
    return lively if len(lively) >= 1000 else patches


def fit_whitening(patches: Float32s) -> Float32s:
    """Return the symmetric whitening of centred patches, damped where they vary little, that ignores brightness."""
    covariance = np.cov(patches.T, dtype=np.float64)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    scale = 1.0 / np.sqrt(values + 0.02 * values.mean() + 0.01)
    whole = (vectors * scale) @ vectors.T
    centring = np.eye(len(whole)) - 1.0 / len(whole)
    answer: Float32s = (whole @ centring).astype(np.float32)
    return answer


def signed_kmeans(rows: Float32s, *, count: int, rng: np.random.Generator) -> Float32s:
    """Return unit centres (count, p); each row counts for the centre of largest |cosine|, with its sign."""
    centres = rows[rng.permutation(len(rows))[:count]]
    if len(centres) < count:
        centres = np.concatenate([centres, _draw_units(count - len(centres), rows.shape[1], rng)])
    for _ in range(ROUNDS):
        cosines = rows @ centres.T
        nearest = np.abs(cosines).argmax(axis=1)
        signs = np.sign(np.take_along_axis(cosines, nearest[:, None], axis=1))
        centres = _sum_clusters(rows * signs, nearest, count)
        length = np.linalg.norm(centres, axis=1, keepdims=True)
        empty = length[:, 0] < 1e-6
        centres[empty], length[empty] = _draw_units(int(empty.sum()), rows.shape[1], rng), 1.0
        centres /= length
    return centres


def _sum_clusters(rows: Float32s, nearest: npt.NDArray[np.intp], count: int) -> Float32s:
    """Return the sum of the rows of each cluster, by one sparse product."""
    import scipy.sparse

    shape = (count, len(rows))
    members = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (nearest, np.arange(len(rows)))), shape=shape)
    sums: Float32s = np.asarray(members @ rows, np.float32)
    return sums


def _draw_units(count: int, width: int, rng: np.random.Generator) -> Float32s:
    """Return random unit vectors, for clusters that have no rows."""
    drawn = rng.normal(size=(count, width)).astype(np.float32)
    units: Float32s = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return units


def pool_responses(images: Float32s, banks: Sequence[Bank]) -> Float32s:
    """Return (n, D) square roots of the rectified responses of all banks, pooled."""
    from labeldp import kernels

    parts = []
    for bank in banks:
        responses = bank.responses(images)
        n, height, width, count = responses.shape
        bins = min(BINS, height, width)
        out = np.zeros((n, bins, bins, 2, count), np.float32)
        rows, columns = kernels.bin_edges(height, bins), kernels.bin_edges(width, bins)
        kernels.pool_rectified(responses, np.float32(bank.threshold), rows, columns, out)
        parts.append(out.reshape(n, -1))
    pooled: Float32s = np.sqrt(np.concatenate(parts, axis=1))
    return pooled


def cut_patches(images: Float32s, size: int, *, stride: int = 1) -> Float32s:
    """Return patches as rows, every `stride`-th each way: (n, h - size + 1, w - size + 1, size * size * c) for 1."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    n, height, width = windows.shape[:3]
    return np.ascontiguousarray(windows).reshape(n, height, width, -1)


def _measure_spread(patches: Float32s) -> Float32s:
    """Return the root of each patch's variance and `CONTRAST_FLOOR`, with a last axis of one."""
    width = patches.shape[-1]
    squares = np.einsum("...j,...j->...", patches, patches)[..., None] / width
    mean = patches.mean(axis=-1, keepdims=True)
    spread: Float32s = np.sqrt(np.maximum(squares - mean * mean, 0.0) + np.float32(CONTRAST_FLOOR))
    return spread


def _centre(patches: Float32s) -> Float32s:
    """Return patches without their brightness: each of mean 0."""
    centred: Float32s = patches - patches.mean(axis=1, keepdims=True)
    return centred


class UnitRows(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Divide each row by its Euclidean norm, rounded up by a few ulps; labels are never looked at.

    The same for dense and sparse (csr) features. A row of zeros stays. scikit-learn's `Normalizer` divides by the norm and
    may end an ulp above one; a sensitivity that says "norm at most one" must not rest on that.

    >>> UnitRows().fit_transform([[3.0, 4.0], [0.0, 0.0]]).round(9).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """

    def fit(self, X: Any, y: Any = None) -> UnitRows:
        """Learn the number of columns; there is nothing else to learn."""
        validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return self

    def transform(self, X: Any) -> Any:
        """Return rows of norm at most one (and one but for rounding); rows of zeros stay."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return scale_rows(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        return tags


def scale_rows(X: Any) -> Any:
    """Return the rows of a checked dense or csr matrix at norm one; float32 stays float32.

    The division is by norm * (1 + 8 ulp): a norm of d terms summed pairwise, a root and a quotient each lose less.
    """
    resolution = float(np.finfo(X.dtype).eps)
    norms = row_norms(X.astype(np.float64, copy=False)) * (1 + 8 * resolution)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_matrix(scipy.sparse.diags(inverse) @ X, dtype=X.dtype)
    rows: Floats = (X * inverse[:, None]).astype(X.dtype, copy=False)
    return rows
