"""Pictures with a class each: digits (bundled with scikit-learn), MNIST, Fashion-MNIST, CIFAR-10.

>>> digits()
Dataset('digits', 1,424 train + 373 test rows, 64 features, 10 classes of `digit`)
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import FloatArray
from labeldp.data._dataset import Dataset
from labeldp.data._files import expect, find, read_idx, read_npz
from labeldp.data._split import held_out

Directory = str | os.PathLike[str] | None

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def flat(images: npt.NDArray[Any], *, largest: int = 255) -> FloatArray:
    """One row a picture, float32 in [0, 1]."""
    rows = images.reshape(len(images), -1).astype(np.float32)
    rows /= np.float32(largest)
    return rows


def pixel_names(shape: tuple[int, ...]) -> tuple[str, ...]:
    """A name for each pixel: its indices."""
    return tuple("pixel_" + "_".join(str(i) for i in index) for index in np.ndindex(*shape))


def digits(_directory: Directory = None) -> Dataset:
    """Load 1,797 handwritten digits of 8 x 8 pixels; a fifth of the positions, by hash, is the test part."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test = held_out(np.arange(len(y)), share=0.2)
    rows = flat(X, largest=16)
    return Dataset(
        name="digits",
        X_train=rows[~test],
        y_train=y[~test].astype(np.int64),
        X_test=rows[test],
        y_test=y[test].astype(np.int64),
        classes=DIGITS,
        feature_names=pixel_names((8, 8)),
        label_name="digit",
        sensitive_label="which digit was written (a stand-in: nothing about a person)",
        licence="CC BY 4.0; bundled with scikit-learn",
        citation=(
            "Alpaydin, E. and Kaynak, C. (1998). Optical Recognition of Handwritten Digits. UCI Machine Learning "
            "Repository, https://doi.org/10.24432/C50P49 (its test part, as scikit-learn bundles it)."
        ),
        image_shape=(8, 8),
    )


def mnist(directory: Directory = None) -> Dataset:
    """Load MNIST: 60,000 + 10,000 handwritten digits of 28 x 28 pixels."""
    return _idx_images(
        "mnist",
        directory,
        classes=DIGITS,
        label_name="digit",
        sensitive_label="which digit was written (a stand-in: nothing about a person)",
        licence="not stated with the files",
        citation="LeCun, Y., Cortes, C. and Burges, C. J. C. The MNIST database of handwritten digits.",
    )


def fashion_mnist(directory: Directory = None) -> Dataset:
    """Load Fashion-MNIST: 60,000 + 10,000 pictures of clothes, 28 x 28 pixels."""
    return _idx_images(
        "fashion-mnist",
        directory,
        classes=CLOTHES,
        label_name="article",
        sensitive_label="which article of clothing is shown (a stand-in: nothing about a person)",
        licence="MIT",
        citation=(
            "Xiao, H., Rasul, K. and Vollgraf, R. (2017). Fashion-MNIST: a novel image dataset for benchmarking "
            "machine learning algorithms. arXiv:1708.07747."
        ),
    )


def _idx_images(
    name: str,
    directory: Directory,
    *,
    classes: tuple[str, ...],
    label_name: str,
    sensitive_label: str,
    licence: str,
    citation: str,
) -> Dataset:
    """Read the four canonical idx files of a set in the shape of MNIST."""
    paths = find(name, IDX_FILES, directory=directory)
    shapes: list[tuple[int, ...]] = [(60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)]
    X_train, y_train, X_test, y_test = (read_idx(p, shape=s) for p, s in zip(paths, shapes, strict=True))
    return Dataset(
        name=name,
        X_train=flat(X_train),
        y_train=y_train.astype(np.int64),
        X_test=flat(X_test),
        y_test=y_test.astype(np.int64),
        classes=classes,
        feature_names=pixel_names((28, 28)),
        label_name=label_name,
        sensitive_label=sensitive_label,
        licence=licence,
        citation=citation,
        image_shape=(28, 28),
    )


def cifar10(directory: Directory = None) -> Dataset:
    """Load CIFAR-10: 50,000 + 10,000 pictures of 32 x 32 x 3, from one npz file of four arrays."""
    (path,) = find("cifar10", ("cifar10.npz",), directory=directory)
    X_train, y_train, X_test, y_test = read_npz(path, CIFAR_KEYS)
    for key, array, rows in (("train_images", X_train, 50_000), ("test_images", X_test, 10_000)):
        expect(path, f"{key} of shape", want=(rows, 32, 32, 3), got=array.shape)
    return Dataset(
        name="cifar10",
        X_train=flat(X_train),
        y_train=y_train.astype(np.int64),
        X_test=flat(X_test),
        y_test=y_test.astype(np.int64),
        classes=THINGS,
        feature_names=pixel_names((32, 32, 3)),
        label_name="object",
        sensitive_label="which object is shown (a stand-in: nothing about a person)",
        licence="not stated with the files",
        citation="Krizhevsky, A. (2009). Learning multiple layers of features from tiny images. Technical report.",
        image_shape=(32, 32, 3),
    )
