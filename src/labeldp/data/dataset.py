"""A data set as every study and demo takes it: features that are public, labels that are not, and where it is from.

>>> import numpy as np
>>> Dataset(
...     name="tiny",
...     X_train=np.zeros((3, 2)),
...     y_train=np.array([0, 1, 1]),
...     X_test=np.zeros((1, 2)),
...     y_test=np.array([0]),
...     classes=("no", "yes"),
...     feature_names=("a", "b"),
...     label_name="ill",
...     sensitive_label="an illness",
...     licence="none",
...     citation="made up",
... )
Dataset('tiny', 3 train + 1 test rows, 2 features, 2 classes of `ill`)

The chapter has three parts: the data set itself, its features as numbers (`Dataset.matrix`), and what the loaders read
files with: where they are, what they must hold, and which rows are the test part.

Design notes. Labels are codes (position in `classes`), or an indicator matrix with a column per class for multi-label
sets, so that one mechanism serves every set. Tables of mixed columns stay `pyarrow.Table`, because pandas is not a
dependency and text as a float matrix is a decision of the modeller; `matrix` makes the plain, label-free decision for
those who want a linear model at once. Its columns come numeric first, then categories in order. The repr counts rows and
shows no label: data sets are printed in notebooks.

Nothing is ever downloaded: a library about privacy does not call out on its own. No pickle is read.

Random generators may change their streams between releases; the hash that splits train from test may not. A row is in the
test part when the hash of its key falls below share * 2**64, so all rows of one person, given the person's number as key,
land on one side. SplitMix64's finaliser: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.arrays import Floats
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_choice


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Features and sensitive labels, split into train and test without a look at the labels.

    `X_train` and `X_test` are float32 arrays (images flat, in [0, 1], with `image_shape` to undo that) or
    `pyarrow.Table` for mixed tables, where `categorical` names the columns that are categories and `identifiers`
    those that name a person or a row and are no features, and `texts` those that are sentences. `y_*` are int64 codes into
    `classes`; a multi-label set has a uint8 indicator matrix with one column per class; of numbers they are float64, there are
    no classes, and `bounds` are public ones, from what is known of such numbers. `exposure` names the column that says how long, or how
    much, a row was observed; `matrix` leaves it out. `sensitive_label` says in words what the label tells.
    """

    name: str
    X_train: Any
    y_train: npt.NDArray[Any]
    X_test: Any
    y_test: npt.NDArray[Any]
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    label_name: str
    sensitive_label: str
    licence: str
    citation: str
    categorical: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    image_shape: tuple[int, ...] | None = None
    texts: tuple[str, ...] = ()
    exposure: str | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for part, X, y in (("train", self.X_train, self.y_train), ("test", self.X_test, self.y_test)):
            self._check_part(part, X, y)

        if self.exposure is not None and self.exposure not in self.feature_names:
            raise invalid(f"Dataset {self.name}", "exposure", "name a column", got=self.exposure)

    def _check_part(self, part: str, X: Any, y: npt.NDArray[Any]) -> None:
        """Refuse labels that do not fit their rows or their classes."""
        if len(y) != X.shape[0]:
            got = Described(f"{len(y):,} labels for {X.shape[0]:,} rows")
            raise invalid(f"Dataset {self.name}", f"y_{part}", "have a label for every row", got=got)
        if y.dtype.kind == "f":
            if self.classes or y.ndim != 1 or not np.isfinite(y).all():
                got = Described(f"{self.n_classes} classes, and an array of shape {y.shape}")
                raise invalid(f"Dataset {self.name}", f"y_{part}", "be finite numbers without classes", got=got)
            return
        width = y.shape[1] if y.ndim == 2 else int(y.max(initial=0)) + 1
        if width > self.n_classes or (y.ndim == 2 and width != self.n_classes) or y.min(initial=0) < 0:
            must, got = "hold codes of `classes`", Described(f"{width} classes where {self.n_classes} are named")
            raise invalid(f"Dataset {self.name}", f"y_{part}", must, got=got)

    def __repr__(self) -> str:
        rows = f"{len(self.y_train):,} train + {len(self.y_test):,} test rows"
        kind = f"{self.n_classes:,} {'labels' if self.multilabel else 'classes'}" if self.classes else "numbers"
        shape = f"{len(self.feature_names):,} features, {kind} of `{self.label_name}`"
        return f"Dataset({self.name!r}, {rows}, {shape})"

    @property
    def n_classes(self) -> int:
        """Number of classes; of labels for a multi-label set."""
        return len(self.classes)

    @property
    def multilabel(self) -> bool:
        """Whether a row may have several labels at once."""
        return self.y_train.ndim == 2

    @property
    def is_table(self) -> bool:
        """Whether the features are a `pyarrow.Table` of mixed columns."""
        return isinstance(self.X_train, pa.Table)

    def matrix(self) -> Matrices:
        """Return the features as two float32 matrices, ``(train, test)``, ready for a linear model.

        Categories become one column each (at most 50 a column; rarer ones share the last), numbers are centred and
        scaled by their train mean and deviation, identifiers and the exposure are left out. Arrays whose train values already lie in
        [0, 1], such as images, stay as they are. Nothing here sees a label, so it costs no privacy. The answer is
        computed once.
        """
        return self._matrices

    @cached_property
    def _matrices(self) -> Matrices:
        """The answer of `matrix`, computed at its first call."""
        if self.texts:
            fix = f"Use labeldp.features.TextFeatures on `{self.texts[0]}`, or an encoder of your own."
            got = Described("columns of texts")
            raise invalid(f"Dataset {self.name}", "matrix", "be of numbers and categories", got=got, fix=fix)
        if not self.is_table:
            return scale_arrays(self.X_train, self.X_test)
        features = [name for name in self.feature_names if name not in (*self.identifiers, self.exposure)]
        categorical = [name for name in features if name in self.categorical]
        numeric = [name for name in features if name not in self.categorical]
        return encode_tables(self.X_train, self.X_test, categorical=categorical, numeric=numeric)

    def table(self, *, part: str = "train") -> Any:
        """Return features and the label column, in words, as one `pyarrow.Table`: what an owner has on disk.

        `part` is "train" or "test". The label column is sensitive. A multi-label set has a column per label.
        """
        check_choice(f"Dataset {self.name}", "part", part, ("train", "test"))
        X, y = (self.X_train, self.y_train) if part == "train" else (self.X_test, self.y_test)
        if not self.is_table:
            X = pa.table({name: X[:, i] for i, name in enumerate(self.feature_names)})
        if self.multilabel:
            for i, name in enumerate(self.classes):
                X = X.append_column(name, pa.array(y[:, i]))
            return X
        if not self.classes:
            return X.append_column(self.label_name, pa.array(y))
        codes = pa.array(y.astype(np.int32))
        return X.append_column(self.label_name, pa.DictionaryArray.from_arrays(codes, pa.array(self.classes)))


#: Enough for every country of Adult; the thousands of diagnosis codes of a hospital table would make it wide and empty.
MOST_CATEGORIES = 50


class Matrices(NamedTuple):
    """The features as float32 matrices: ``X_train, X_test = dataset.matrix()``."""

    train: Floats
    test: Floats


def scale_arrays(train: Any, test: Any) -> Matrices:
    """Return arrays as float32: as they are when train lies in [0, 1], otherwise centred and scaled by column."""
    if train.size == 0 or (train.min() >= 0 and train.max() <= 1):
        return Matrices(np.asarray(train, np.float32), np.asarray(test, np.float32))
    return _scale(np.asarray(train), np.asarray(test))


def encode_tables(train: Any, test: Any, *, categorical: list[str], numeric: list[str]) -> Matrices:
    """Return `pyarrow` tables as float32: numeric columns scaled, then each category as a column of zeros and ones.

    Everything is fitted on the train features alone. A column has at most `MOST_CATEGORIES` categories; rarer ones share
    the last.

    >>> train = pa.table({"age": [20, 40], "sex": ["f", "m"]})
    >>> encode_tables(train, train, categorical=["sex"], numeric=["age"]).train
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]], dtype=float32)
    """
    blocks = []
    if numeric:
        blocks.append(_scale(_stack_numbers(train, numeric), _stack_numbers(test, numeric)))
    if categorical:
        codes = [_number_values(train[name], test[name]) for name in categorical]
        blocks.append(_encode_one_hot(np.column_stack([c[0] for c in codes]), np.column_stack([c[1] for c in codes])))
    if not blocks:
        return Matrices(np.empty((train.num_rows, 0), np.float32), np.empty((test.num_rows, 0), np.float32))
    return Matrices(np.hstack([b.train for b in blocks]), np.hstack([b.test for b in blocks]))


def _stack_numbers(table: Any, names: list[str]) -> Any:
    """Return numeric columns side by side, as float64."""
    return np.column_stack([np.asarray(table[name].to_numpy(), dtype=np.float64) for name in names])


def _number_values(train: Any, test: Any) -> tuple[Any, Any]:
    """Return each value's position among the sorted values of train, -1 for one that train lacks.

    The encoder sorts whole numbers many times faster than text, and the columns come out in the same order.
    """
    words = [pc.fill_null(column.cast(pa.string()), "missing") for column in (train, test)]
    values = pc.unique(words[0])
    values = values.take(pc.sort_indices(values))
    first, second = (pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy() for column in words)
    return first, second


def _scale(train: Any, test: Any) -> Matrices:
    """Return both parts centred and scaled by the mean and deviation of train."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train.astype(np.float64))
    return Matrices(scaler.transform(train).astype(np.float32), scaler.transform(test).astype(np.float32))


def _encode_one_hot(train: Any, test: Any) -> Matrices:
    """Return a column of zeros and ones per category of train; an unknown one counts as rare."""
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(
        sparse_output=False, dtype=np.float32, max_categories=MOST_CATEGORIES, handle_unknown="infrequent_if_exist"
    )
    return Matrices(encoder.fit_transform(train), encoder.transform(test))


#: The environment variable that names the folder of data sets.
VARIABLE = "LABELDP_DATA"

#: What a file that is cut short, of another kind or of another data set makes its reader raise.
DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    ValueError,
    KeyError,
    IndexError,
    UnicodeDecodeError,
)


def find_files(name: str, files: tuple[str, ...], *, directory: str | os.PathLike[str] | None) -> list[Path]:
    """Return the paths of `files` in ``directory/name``; each may also be there without its ``.gz``.

    Without a directory the environment variable LABELDP_DATA names it. A file that is not there is an error that says
    where was looked.

    >>> find_files("mnist", ("train-images-idx3-ubyte.gz",), directory="no/such/folder")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: load: `directory` must hold mnist/train-images-idx3-ubyte.gz, got no such file. Looked in no/such/folder/mnist. ...
    """
    root = _choose_folder(name, files, directory)
    return [_find_file(root, name, file) for file in files]


def _choose_folder(name: str, files: tuple[str, ...], directory: str | os.PathLike[str] | None) -> Path:
    """Return the folder of data sets: the one given, or the one that the environment names."""
    named = directory if directory is not None else os.environ.get(VARIABLE)
    if named:
        return Path(named)
    fix = f"Set {VARIABLE} to the folder that has {name}/ with {', '.join(files)}; nothing is downloaded."
    raise invalid("load", "directory", f"name the folder of data sets to load {name!r}", got=None, fix=fix)


def _find_file(root: Path, name: str, file: str) -> Path:
    """Return the path of one file of a data set, packed or not."""
    for candidate in (file, file.removesuffix(".gz")):
        if (root / name / candidate).is_file():
            return root / name / candidate
    fix = f"Looked in {root / name}. Name the folder with directory= or {VARIABLE}; nothing is downloaded."
    raise invalid("load", "directory", f"hold {name}/{file}", got=Described("no such file"), fix=fix)


@contextmanager
def explain_damage(path: Path, content: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign file makes its reader raise into one error that says what was expected."""
    try:
        yield
    except LabelDPError:
        raise
    except DAMAGE as error:
        detail = Described(f"{type(error).__name__}: {error}")
        raise invalid(
            "load", path.name, f"be {content}", got=detail, fix="Get the file again; it is damaged."
        ) from error


def expect(path: Path, what: str, *, want: object, got: object) -> None:
    """Refuse a file that can be read but is not the one it should be: `what` is `got` where it must be `want`."""
    if want != got:
        fix = "This is another file than the one known by that name, or a part of it."
        raise invalid("load", path.name, f"have {what} {want}", got=Described(repr(got)), fix=fix)


def read_bytes(path: Path) -> bytes:
    """Return the content, unpacked when the name ends in ``.gz``."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_idx(path: Path, *, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes: 0, 0, 8, the number of axes, each axis as a big-endian int32, then the bytes."""
    with explain_damage(path, "an idx file of bytes"):
        content = read_bytes(path)
        expect(path, "the magic number", want=bytes([0, 0, 8, len(shape)]), got=content[:4])
        start = 4 + 4 * len(shape)
        found = tuple(int(n) for n in np.frombuffer(content[4:start], ">i4"))
        expect(path, "the shape", want=shape, got=found)
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_npz(path: Path, keys: tuple[str, ...]) -> list[npt.NDArray[Any]]:
    """Read the named arrays of an npz file; pickled content is refused by NumPy."""
    with explain_damage(path, f"an npz file with {', '.join(keys)}"), np.load(path, allow_pickle=False) as arrays:
        return [arrays[key] for key in keys]


def choose_test_rows(keys: npt.NDArray[Any], *, share: float) -> npt.NDArray[np.bool_]:
    """Return which rows are test rows: about `share` of the distinct keys, by a hash that never changes.

    Give a key to each row, a whole number: its position, or the number of a person whose rows must stay together.

    >>> choose_test_rows(np.arange(10), share=0.3).astype(int).tolist()
    [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    """
    word = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return word < np.uint64(int(share * 2**64))
