"""The data sets by name.

>>> load("adlut")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: load: `name` must be a known data set, got 'adlut'. Did you mean `adult`?
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from labeldp.data import _images, _mixed, _ratings
from labeldp.data._dataset import Dataset
from labeldp.data._multilabel import SHAPES, multilabel
from labeldp.errors import invalid, nearest

Directory = str | os.PathLike[str] | None

#: These two come with the package and with scikit-learn; all others are read from the user's folder.
BUNDLED = ("adult", "digits")

_LOADERS: dict[str, Callable[[Directory], Dataset]] = {
    "adult": _mixed.adult,
    "cifar10": _images.cifar10,
    "credit-default": _mixed.credit_default,
    "diabetes-readmission": _mixed.diabetes_readmission,
    "digits": _images.digits,
    "fashion-mnist": _images.fashion_mnist,
    "mnist": _images.mnist,
    "movielens-1m": _ratings.movielens_1m,
    **{name: partial(multilabel, name) for name in SHAPES},
}


def names(*, bundled: bool = False) -> tuple[str, ...]:
    """Return the names that `load` knows; with ``bundled=True``, those that need no files of yours.

    >>> names(bundled=True)
    ('adult', 'digits')
    """
    return BUNDLED if bundled else tuple(sorted(_LOADERS))


def load(name: str, *, directory: Directory = None) -> Dataset:
    """Return a data set, read and checked.

    `directory` is the folder that has a folder per data set; without it the environment variable LABELDP_DATA names
    it. The bundled sets need neither. An absent file is an error that names it; nothing is ever downloaded.
    """
    if name not in _LOADERS:
        raise invalid("load", "name", "be a known data set", got=name, fix=nearest(name, names()))
    return _LOADERS[name](directory)
