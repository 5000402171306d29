"""Pictures with a class each: digits (bundled with scikit-learn), MNIST, Fashion-MNIST, KMNIST, CIFAR-10, CIFAR-100.

>>> digits()
Dataset('digits', 1,424 train + 373 test rows, 64 features, 10 classes of `digit`)

Each is read from its canonical files in a folder of its own; nothing is downloaded, and nothing is unpickled. A file that is
not the one it should be (another shape, another number of rows) is refused with what was expected.

References: each `Dataset` cites its own source.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s
from labeldp.data.dataset import (
    Dataset,
    choose_test_rows,
    expect,
    explain_damage,
    find_files,
    read_bytes,
    read_idx,
    read_npz,
)
from labeldp.errors import LabelDPError

#: The folder that has a folder per data set; None for the one that LABELDP_DATA names.
Directory = str | os.PathLike[str] | None

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
HIRAGANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
#: Rows of the train and of the test part.
ROWS = {"idx": (60_000, 10_000), "cifar": (50_000, 10_000)}
CIFAR_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def digits(_directory: Directory = None) -> Dataset:
    """Load 1,797 handwritten digits of 8 x 8 pixels; a fifth of the positions, by hash, is the test part.

    >>> digits()
    Dataset('digits', 1,424 train + 373 test rows, 64 features, 10 classes of `digit`)
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test = choose_test_rows(np.arange(len(y)), share=0.2)
    rows = flatten(X, largest=16)
    return Dataset(
        name="digits",
        X_train=rows[~test],
        y_train=y[~test].astype(np.int64),
        X_test=rows[test],
        y_test=y[test].astype(np.int64),
        classes=DIGITS,
        feature_names=name_pixels((8, 8)),
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
    return _load_idx_images(
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
    return _load_idx_images(
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


def kmnist(directory: Directory = None) -> Dataset:
    """Load KMNIST: 60,000 + 10,000 cursive Hiragana of 28 x 28 pixels, ten characters, in the four idx files of MNIST."""
    return _load_idx_images(
        "kmnist",
        directory,
        classes=HIRAGANA,
        label_name="character",
        sensitive_label="which character was written (a stand-in: nothing about a person)",
        licence="CC BY-SA 4.0",
        citation=(
            "Clanuwat, T., Bober-Irizar, M., Kitamoto, A., Lamb, A., Yamamoto, K. and Ha, D. (2018). Deep learning for "
            "classical Japanese literature. arXiv:1812.01718 (KMNIST Dataset, created by CODH)."
        ),
    )


def _load_idx_images(
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
    paths = find_files(name, IDX_FILES, directory=directory)
    train, test = ROWS["idx"]
    shapes: list[tuple[int, ...]] = [(train, 28, 28), (train,), (test, 28, 28), (test,)]
    X_train, y_train, X_test, y_test = (read_idx(p, shape=s) for p, s in zip(paths, shapes, strict=True))
    return Dataset(
        name=name,
        X_train=flatten(X_train),
        y_train=y_train.astype(np.int64),
        X_test=flatten(X_test),
        y_test=y_test.astype(np.int64),
        classes=classes,
        feature_names=name_pixels((28, 28)),
        label_name=label_name,
        sensitive_label=sensitive_label,
        licence=licence,
        citation=citation,
        image_shape=(28, 28),
    )


def cifar10(directory: Directory = None) -> Dataset:
    """Load CIFAR-10: 50,000 + 10,000 pictures of 32 x 32 x 3, from one npz file of four arrays."""
    (path,) = find_files("cifar10", ("cifar10.npz",), directory=directory)
    X_train, y_train, X_test, y_test = read_npz(path, CIFAR_KEYS)
    for key, array, rows in zip(CIFAR_KEYS[::2], (X_train, X_test), ROWS["cifar"], strict=True):
        expect(path, f"{key} of shape", want=(rows, 32, 32, 3), got=array.shape)
    return Dataset(
        name="cifar10",
        X_train=flatten(X_train),
        y_train=y_train.astype(np.int64),
        X_test=flatten(X_test),
        y_test=y_test.astype(np.int64),
        classes=THINGS,
        feature_names=name_pixels((32, 32, 3)),
        label_name="object",
        sensitive_label="which object is shown (a stand-in: nothing about a person)",
        licence="not stated with the files",
        citation="Krizhevsky, A. (2009). Learning multiple layers of features from tiny images. Technical report.",
        image_shape=(32, 32, 3),
    )


#: The binary version of CIFAR-100, as downloaded and as unpacked. The Python version is a pickle, which runs code: never read.
CIFAR100_ARCHIVE, CIFAR100_FILES = "cifar-100-binary.tar.gz", ("train.bin", "test.bin", "fine_label_names.txt")
#: A picture in it: the coarse class, the fine class, and three planes of 32 x 32 bytes.
PICTURE_BYTES = 2 + 3 * 32 * 32
#: The list of names is short; a longer file is another one.
MOST_NAME_BYTES = 1 << 16


def cifar100(directory: Directory = None) -> Dataset:
    """Load CIFAR-100 with its 100 fine classes: 50,000 + 10,000 pictures of 32 x 32 x 3, from its binary version.

    Either the archive ``cifar-100-binary.tar.gz`` or the files in it (``train.bin``, ``test.bin``, ``fine_label_names.txt``)
    lie in the folder ``cifar100``. The version for Python is a pickle and is not read.
    """
    path, contents = _read_cifar100_files(directory)
    parts = [
        read_binary_pictures(data, rows=rows, path=path) for data, rows in zip(contents, ROWS["cifar"], strict=False)
    ]
    with explain_damage(path, "a list of 100 names"):
        names = tuple(contents[2].decode("ascii").split())
    expect(path, "fine classes", want=100, got=len(names))
    (X_train, y_train), (X_test, y_test) = parts
    return Dataset(
        name="cifar100",
        X_train=flatten(X_train),
        y_train=y_train,
        X_test=flatten(X_test),
        y_test=y_test,
        classes=names,
        feature_names=name_pixels((32, 32, 3)),
        label_name="object",
        sensitive_label="which object is shown (a stand-in: nothing about a person)",
        licence="not stated with the files",
        citation="Krizhevsky, A. (2009). Learning multiple layers of features from tiny images. Technical report.",
        image_shape=(32, 32, 3),
    )


def _read_cifar100_files(directory: Directory) -> tuple[Path, list[bytes]]:
    """Return the bytes of the three files, from the folder or from the archive, and the path that errors name."""
    try:
        paths = find_files("cifar100", CIFAR100_FILES, directory=directory)
    except LabelDPError:
        (path,) = find_files("cifar100", (CIFAR100_ARCHIVE,), directory=directory)
    else:
        return paths[0], [read_bytes(one) for one in paths]
    sizes = dict(zip(CIFAR100_FILES, (*(rows * PICTURE_BYTES for rows in ROWS["cifar"]), None), strict=True))
    found: dict[str, bytes] = {}
    with explain_damage(path, "the archive of the binary version"), tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            stream = archive.extractfile(member) if member.isfile() and name in sizes else None
            if stream is not None:
                size = sizes[name]
                expect(path, f"bytes in {name}:", want=member.size if size is None else size, got=member.size)
                found[name] = stream.read(MOST_NAME_BYTES if size is None else size)
    expect(path, "the files", want=sorted(CIFAR100_FILES), got=sorted(found))
    return path, [found[name] for name in CIFAR100_FILES]


def read_binary_pictures(content: bytes, *, rows: int, path: Path) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return pictures (rows, 32, 32, 3) and fine classes of the binary version: for each, two classes and three planes."""
    expect(path, f"bytes of {rows:,} pictures:", want=rows * PICTURE_BYTES, got=len(content))
    table = np.frombuffer(content, np.uint8).reshape(rows, PICTURE_BYTES)
    planes = table[:, 2:].reshape(rows, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), table[:, 1].astype(np.int64)


def flatten(images: npt.NDArray[Any], *, largest: int = 255) -> Floats:
    """Return pictures as rows, float32 in [0, 1]."""
    rows = images.reshape(len(images), -1).astype(np.float32)
    rows /= np.float32(largest)
    return rows


def name_pixels(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return a name for each pixel, made of its indices."""
    return tuple("pixel_" + "_".join(str(i) for i in index) for index in np.ndindex(*shape))
