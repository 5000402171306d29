"""Sets in which a row has several labels at once: text tags, genes, scenes, moods.

>>> sorted(SHAPES)[:3]
['bibtex', 'corel5k', 'delicious']

References: the sets and their train/test parts are those of Mulan (Tsoumakas et al., JMLR 12, 2011), as the package
scikit-multilearn carried them.

Design notes. One npz a set, in the folder ``multilabel``. Labels come as an indicator matrix, uint8, with a column
per label; the files hold no names, so labels and features are numbered.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.data._dataset import Dataset
from labeldp.data._files import expect, find, read_npz
from labeldp.errors import Described, invalid

Directory = str | os.PathLike[str] | None

#: name -> (train rows, test rows, features, labels)
SHAPES = {
    "bibtex": (4_880, 2_515, 1_836, 159),
    "corel5k": (4_500, 500, 499, 374),
    "delicious": (12_920, 3_185, 500, 983),
    "emotions": (391, 202, 72, 6),
    "enron": (1_123, 579, 1_001, 53),
    "mediamill": (30_993, 12_914, 120, 101),
    "medical": (333, 645, 1_449, 45),
    "scene": (1_211, 1_196, 294, 6),
    "tmc2007-500": (21_519, 7_077, 500, 22),
    "yeast": (1_500, 917, 103, 14),
}
ABOUT = {
    "bibtex": "which tags a person gave to a reference",
    "corel5k": "what a photograph shows",
    "delicious": "which tags a person gave to a page",
    "emotions": "which emotions a piece of music raises",
    "enron": "what an employee's e-mail is about",
    "mediamill": "what a scene of the news shows",
    "medical": "which diagnoses a radiology report supports",
    "scene": "what kind of place a photograph shows",
    "tmc2007-500": "which problems a flight report tells of",
    "yeast": "which functions a gene has",
}


def multilabel(name: str, directory: Directory = None) -> Dataset:
    """Load one of `SHAPES`, checked against its known shape."""
    (path,) = find("multilabel", (f"{'Corel5k' if name == 'corel5k' else name}.npz",), directory=directory)
    X_key = "X_micro" if name == "mediamill" else "X"
    X_train, y_train, X_test, y_test = read_npz(path, (f"{X_key}_train", "y_train", f"{X_key}_test", "y_test"))
    n_train, n_test, n_features, n_labels = SHAPES[name]
    found = (X_train.shape, y_train.shape, X_test.shape, y_test.shape)
    want = ((n_train, n_features), (n_train, n_labels), (n_test, n_features), (n_test, n_labels))
    expect(path, "X and y of shapes", want=want, got=found)
    return Dataset(
        name=name,
        X_train=_numbers(X_train, X_key),
        y_train=_indicators(name, y_train),
        X_test=_numbers(X_test, X_key),
        y_test=_indicators(name, y_test),
        classes=tuple(f"label_{i}" for i in range(n_labels)),
        feature_names=tuple(f"feature_{i}" for i in range(n_features)),
        label_name="labels",
        sensitive_label=ABOUT[name],
        licence="not stated with the files",
        citation=(
            "Tsoumakas, G., Spyromitros-Xioufis, E., Vilcek, J. and Vlahavas, I. (2011). Mulan: A Java library for "
            "multi-label learning. JMLR 12, 2411-2414; there the source of each set is given."
        ),
    )


def _numbers(X: npt.NDArray[Any], key: str) -> npt.NDArray[np.float32]:
    """Features as float32; mediamill's file keeps millionths as whole numbers."""
    rows = X.astype(np.float32)
    return rows / np.float32(1e6) if key == "X_micro" else rows


def _indicators(name: str, y: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if y.max(initial=0) > 1 or y.min(initial=0) < 0:
        raise invalid("load", name, "have labels that are 0 or 1", got=Described(f"{y.min()} to {y.max()}"))
    return y.astype(np.uint8)
