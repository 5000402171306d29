"""Filters learned from patches without labels: whiten, then spherical k-means in which a patch and its negative are one.

>>> import numpy as np
>>> images = np.random.default_rng(0).normal(size=(20, 12, 12, 1)).astype(np.float32)
>>> bank = learn_bank(images, size=6, count=5, rng=np.random.default_rng(1))
>>> bank.weights.shape, bank.threshold > 0
((36, 5), True)

References: Coates, Ng, Lee, "An Analysis of Single-Layer Networks in Unsupervised Feature Learning" (2011).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Float32 = npt.NDArray[np.float32]

#: Images and patches that filters are learned from; more did not change the features' worth.
SAMPLE_IMAGES = 4000
SAMPLE_PATCHES = 80_000
#: Patches flatter than this (in standard deviations of all pixels) say nothing.
FLAT = 0.15
ROUNDS = 8
#: Added to a patch's variance (in variances of all pixels) before its contrast is divided out: flat patches stay flat.
CONTRAST_FLOOR = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Bank:
    """Filters of one patch size: responses are patches @ weights; `threshold` is their mean size.

    With `contrast` a patch is divided by its own spread first; every `stride`-th patch is looked at each way.
    """

    size: int
    weights: Float32
    threshold: float
    stride: int = 1
    contrast: bool = False

    def responses(self, images: Float32) -> Float32:
        """Return (n, rows, columns, filters): the weights ignore a patch's mean, so that only its spread is divided."""
        patches = patches_of(images, self.size, stride=self.stride)
        found: Float32 = patches @ self.weights
        if self.contrast:
            found /= _spread(patches)
        return found


def learn_bank(
    images: Float32, *, size: int, count: int, rng: np.random.Generator, stride: int = 1, contrast: bool = False
) -> Bank:
    """Return `count` filters of `size` x `size` pixels, learned from images (n, h, w, c)."""
    patches = _centred(sample_patches(images, size=size, rng=rng))
    if contrast:
        patches = patches / _spread(patches)
    whitener = whitening(patches)
    white = patches @ whitener.T
    length = np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-6)
    centres = signed_kmeans(white / length, count=count, rng=rng)
    threshold = float(np.abs(white @ centres.T).mean())
    weights = np.ascontiguousarray((centres @ whitener).T, dtype=np.float32)
    return Bank(size=size, weights=weights, threshold=threshold, stride=stride, contrast=contrast)


def patches_of(images: Float32, size: int, *, stride: int = 1) -> Float32:
    """Return patches as rows, every `stride`-th each way: (n, h - size + 1, w - size + 1, size * size * c) for 1."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    n, height, width = windows.shape[:3]
    return np.ascontiguousarray(windows).reshape(n, height, width, -1)


def sample_patches(images: Float32, *, size: int, rng: np.random.Generator) -> Float32:
    """Return random patches of random images, without the flat ones if enough are left."""
    some = images[rng.permutation(len(images))[:SAMPLE_IMAGES]]
    windows = np.lib.stride_tricks.sliding_window_view(some, (size, size), axis=(1, 2))
    count = min(SAMPLE_PATCHES, int(np.prod(windows.shape[:3])))
    image, top, left = (rng.integers(length, size=count) for length in windows.shape[:3])
    patches: Float32 = windows[image, top, left].reshape(count, -1)
    lively = patches[patches.std(axis=1) > FLAT]
    return lively if len(lively) >= 1000 else patches


def whitening(patches: Float32) -> Float32:
    """Return the symmetric whitening of centred patches, damped where they vary little, that ignores brightness."""
    covariance = np.cov(patches.T, dtype=np.float64)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    scale = 1.0 / np.sqrt(values + 0.02 * values.mean() + 0.01)
    whole = (vectors * scale) @ vectors.T
    centring = np.eye(len(whole)) - 1.0 / len(whole)
    answer: Float32 = (whole @ centring).astype(np.float32)
    return answer


def signed_kmeans(rows: Float32, *, count: int, rng: np.random.Generator) -> Float32:
    """Return unit centres (count, p); each row counts for the centre of largest |cosine|, with its sign."""
    centres = rows[rng.permutation(len(rows))[:count]]
    if len(centres) < count:
        centres = np.concatenate([centres, _random_units(count - len(centres), rows.shape[1], rng)])
    for _ in range(ROUNDS):
        cosines = rows @ centres.T
        nearest = np.abs(cosines).argmax(axis=1)
        signs = np.sign(np.take_along_axis(cosines, nearest[:, None], axis=1))
        centres = _cluster_sums(rows * signs, nearest, count)
        length = np.linalg.norm(centres, axis=1, keepdims=True)
        empty = length[:, 0] < 1e-6
        centres[empty], length[empty] = _random_units(int(empty.sum()), rows.shape[1], rng), 1.0
        centres /= length
    return centres


def _cluster_sums(rows: Float32, nearest: npt.NDArray[np.intp], count: int) -> Float32:
    import scipy.sparse

    shape = (count, len(rows))
    members = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (nearest, np.arange(len(rows)))), shape=shape)
    sums: Float32 = np.asarray(members @ rows, np.float32)
    return sums


def _random_units(count: int, width: int, rng: np.random.Generator) -> Float32:
    drawn = rng.normal(size=(count, width)).astype(np.float32)
    units: Float32 = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return units


def _spread(patches: Float32) -> Float32:
    """Return the root of each patch's variance and `CONTRAST_FLOOR`, with a last axis of one."""
    width = patches.shape[-1]
    squares = np.einsum("...j,...j->...", patches, patches)[..., None] / width
    mean = patches.mean(axis=-1, keepdims=True)
    spread: Float32 = np.sqrt(np.maximum(squares - mean * mean, 0.0) + np.float32(CONTRAST_FLOOR))
    return spread


def _centred(patches: Float32) -> Float32:
    centred: Float32 = patches - patches.mean(axis=1, keepdims=True)
    return centred
