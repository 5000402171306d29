"""What a network is given: examples (rows, views, images, indices or a Dataset), one batch at a time, and their targets.

| X | meaning | what is done to it |
|---|---|---|
| (n, d) | rows of features | column means off, one overall spread |
| (n, views, d) | several label-free views of each example | the same over all views |
| (n, height, width), (n, height, width, channels), (n, channels, height, width) | images, floats or bytes | channel means off, one overall spread |
| rows (n, d) with `image_shape`, for a network of images | the same | the same |
| (n, 2) for "ncf" | user and item numbers | nothing |
| torch Dataset | its items, or the first part of items that are tuples; images with axes as above | nothing: it brings its own transform |

>>> import numpy as np
>>> inputs = ArrayInputs.of(np.array([[0.0, 4.0], [2.0, 8.0]], np.float32))
>>> inputs.batch(
...     torch.tensor([0, 1])
... ).tolist()  # the spread of all four numbers about their columns' means is sqrt(2.5)
[[-0.632..., -1.264...], [0.632..., 1.264...]]

Design notes. One spread and not one per column: features such as those of PCA carry their importance in their scale. Bytes
stay bytes until a batch is taken, and no standardised copy of the data is kept. None of this looks at labels. The scale is
a function of all features, so it is measured once, in the fit, and kept with the network. What comes from the user is
checked first, by the functions at the end of this file; the classes in front take it as it is.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from labeldp.arrays import Array, Float32s, Floats
from labeldp.channel import LazyRows
from labeldp.channel.evidence import keep_small
from labeldp.errors import Described, NewRunWarning, hide_warnings, invalid
from labeldp.items import Items, is_dataset
from labeldp.nn.models import MODELS
from labeldp.validate import MOST_CHANNELS, check_sides, expect_numbers, keep_axes, measure_pixels, stack_examples

#: Rows that means and spread are taken over, evenly spaced: more would change the third digit and cost seconds.
SAMPLE = 8192
#: Rows that are looked at together.
CHUNK = 1024
#: Items that are read twice, to see whether a Dataset answers the same: one that flips half of them is missed once in 256.
PROBED = 8


class Inputs(Protocol):
    """Examples that can be taken in batches."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one example as the network sees it."""
        ...

    @property
    def n_views(self) -> int:
        """How many views an example has; 1 for most."""
        ...

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor, *, view: int | None = None) -> Tensor:
        """Return the examples of these rows on the device of the inputs.

        With several views, `view` names the one to take; without it, each view takes an equal share of the batch.
        """
        ...

    def update_digest(self, digest: hashlib.blake2b) -> None:
        """Add the examples to the fingerprint of a run."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """How arrays are standardised: subtract `shift` (per column or channel), multiply by `factor`.

    Images that come later on another scale of pixels are warned of (`labeldp.validate.warn_of_scale`).
    """

    shift: Float32s
    factor: float
    #: The smallest and the largest pixel of images; None for rows and views, and in files of labeldp 0.1.
    pixels: tuple[float, float] | None = None

    @classmethod
    def measure(cls, X: Array) -> Scale:
        """Return the scale that standardises X.

        `shift` holds the means of columns (rows, views) or channels (images). `factor` is one over the spread of all
        numbers about these means, or 1 where nothing varies. At most about two times `SAMPLE` examples are read.
        """
        X = X[:: max(1, len(X) // SAMPLE)]
        kept = -1 if X.ndim < 4 else 1
        axes = tuple(axis for axis in range(X.ndim) if axis != kept % X.ndim)
        mean = X.mean(axis=axes, dtype=np.float64)
        shape = (-1,) if X.ndim < 4 else (-1, 1, 1)
        square = 0.0
        for low in range(0, len(X), CHUNK):
            square += float(np.square(X[low : low + CHUNK] - mean.reshape(shape)).sum())
        spread = np.sqrt(square / X.size)
        return cls(
            shift=mean.reshape(shape).astype(np.float32),
            factor=float(1 / spread) if spread > 0 else 1.0,
            pixels=measure_pixels(X) if X.ndim == 4 else None,
        )

    @classmethod
    def identity(cls) -> Scale:
        """Return the scale that changes nothing."""
        return cls(shift=np.zeros(1, np.float32), factor=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayInputs:
    """Examples of an array in memory (or mapped from disk), standardised batch by batch.

    `tensor` shares the memory of the array, the views of an example in consecutive rows. `whole` marks whole numbers that
    index an embedding and are handed over as they are.
    """

    tensor: Tensor
    shift: Tensor
    factor: float
    views: int
    whole: bool = False

    @classmethod
    def of(cls, X: Array, *, scale: Scale | None = None, device: str = "cpu") -> ArrayInputs:
        """Return the inputs of an array (n, d), (n, views, d) or (n, channels, height, width); without a scale, its own."""
        scale = Scale.measure(X) if scale is None else scale
        views = X.shape[1] if X.ndim == 3 else 1
        flat = X.reshape(len(X) * views, *X.shape[2:]) if X.ndim == 3 else X
        shift = torch.from_numpy(scale.shift).to(device)
        return cls(tensor=share_memory(flat), shift=shift, factor=scale.factor, views=views)

    @classmethod
    def of_indices(cls, X: Array, *, device: str = "cpu") -> ArrayInputs:
        """Return the inputs of whole numbers, which nothing is done to."""
        here = torch.zeros(1, device=device)
        return cls(tensor=share_memory(X.astype(np.int64)), shift=here, factor=1.0, views=1, whole=True)

    def __len__(self) -> int:
        return len(self.tensor) // self.views

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one view of one example."""
        return tuple(self.tensor.shape[1:])

    @property
    def n_views(self) -> int:
        """How many views an example has."""
        return self.views

    def batch(self, rows: Tensor, *, view: int | None = None) -> Tensor:
        """Return standardised examples on the device; images in the order of memory that convolutions prefer."""
        if self.views > 1:
            # Rows come in random order, so that equal shares by position give each example a random view.
            of = torch.arange(len(rows)) * self.views // len(rows) if view is None else view
            rows = rows * self.views + of
        taken = self.tensor.index_select(0, rows).to(self.shift.device)
        if self.whole:
            return taken
        values = taken.sub_(self.shift) if taken.dtype == torch.float32 else taken.to(torch.float32).sub_(self.shift)
        values.mul_(self.factor)
        return values.contiguous(memory_format=torch.channels_last) if values.ndim == 4 else values

    def update_digest(self, digest: hashlib.blake2b) -> None:
        """Add all examples, their shape and their scale to a fingerprint."""
        digest.update(repr((self.views, tuple(self.tensor.shape), str(self.tensor.dtype), self.factor)).encode())
        for low in range(0, len(self.tensor), CHUNK):
            digest.update(self.tensor[low : low + CHUNK].contiguous().numpy().data)


@dataclass(frozen=True, kw_only=True, eq=False)
class DatasetInputs:
    """Examples of a torch Dataset: the inputs of its items (`labeldp.items.Items`), stacked.

    They are taken as they are, but for the axes of `images`, which may be any that an array of images has.
    """

    items: Items
    device: str = "cpu"
    images: bool = False

    def __len__(self) -> int:
        return len(self.items)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of the first item, as the network sees it."""
        return tuple(self._stack([0]).shape[1:])

    @property
    def n_views(self) -> int:
        """One: a Dataset that wants several makes them itself."""
        return 1

    def batch(self, rows: Tensor, *, view: int | None = None) -> Tensor:
        """Return the items of these rows, stacked, as floats on the device; there is one view only."""
        stacked = self._stack(rows.tolist())
        return (stacked.float() if not stacked.is_floating_point() else stacked).to(self.device)

    def _stack(self, rows: list[int]) -> Tensor:
        stacked = torch.stack([as_tensor(self.items[row]) for row in rows])
        if stacked.is_floating_point() and len(rows) and not bool(stacked.isfinite().all()):
            wrong = int((~stacked.flatten(1).isfinite().all(dim=1)).int().argmax())
            raise self.items.describe_gap(rows[wrong])
        return order_axes(stacked) if self.images else stacked

    def update_digest(self, digest: hashlib.blake2b) -> None:
        """Add all items to a fingerprint, one by one: a Dataset may be larger than memory, and may differ in any of them.

        It costs one pass over the Dataset: the reading of one epoch, and none of its training. Items that are drawn anew each
        time (flips, crops) are read under one fixed state of the generators of torch, NumPy and Python (`same_draws`), so that
        they are the same in the next process. A Dataset with a generator of its own may have another fingerprint there:
        its run then begins anew, never with the weights of other data, and a `NewRunWarning` says so.
        """
        few = range(min(len(self), PROBED))
        if self._hash_items(few) != self._hash_items(few):
            warnings.warn(
                "NetClassifier: items of this Dataset are not the same when they are read twice, so a fit that is stopped may not find"
                " its `checkpoint` again and begin anew. Let augmentation draw from torch's own generator.",
                NewRunWarning,
                stacklevel=2,
            )
        digest.update(f"{len(self)}|".encode() + self._hash_items(range(len(self))))

    def _hash_items(self, rows: range) -> bytes:
        digest = hashlib.blake2b(digest_size=32)
        with same_draws():
            for row in rows:
                item = as_tensor(self.items[row]).detach().cpu()
                digest.update(f"{tuple(item.shape)}|{item.dtype}|".encode())
                # As bytes: NumPy has no bfloat16.
                digest.update(item.contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.digest()


@contextmanager
def same_draws() -> Iterator[None]:
    """Inside, the generators that people's transforms draw from begin at one fixed state; afterwards they are where they were."""
    ours, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - what transforms of others draw from
    with torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(numbers)  # noqa: NPY002


def as_tensor(item: Any) -> Tensor:
    """Return an item of a dataset as a tensor; of an array that may only be read, as images of PIL make it, torch wants a copy."""
    return torch.as_tensor(item.copy() if isinstance(item, np.ndarray) and not item.flags.writeable else item)


def share_memory(array: Array) -> Tensor:
    """Return a tensor on the memory of an array; it is only read, so a read-only array is fine.

    Images may have their channels last in memory, as convolutions prefer them. Other arrays are copied if they have gaps.
    """
    with hide_warnings(message="The given NumPy array is not writable"):
        as_it_is = array.ndim == 4 and array.transpose(0, 2, 3, 1).flags.c_contiguous
        return torch.from_numpy(array if as_it_is else np.ascontiguousarray(array))


# --------------------------------------------------------------------------------------------------------------- checks


def check_examples(learner: Any, X: Any, *, reset: bool) -> Any:
    """Return the examples of a `NetClassifier` in a form that `ArrayInputs` or `DatasetInputs` takes, or refuse them.

    Of a Dataset the inputs are returned, without labels. Anything else, a list of images or a tensor too, becomes an array: bytes
    stay bytes, other numbers become float32, and the pairs of "ncf" are whole numbers >= 0. Images for a network by name may have
    their channels last, or none (`order_axes`). With `reset`, which a fit sets, the learner remembers `n_features_in_`; without it,
    rows must have as many columns as then.
    """
    if is_dataset(X):
        if len(X) < 1:
            raise invalid("NetClassifier", "X", "have examples", got=Described("an empty Dataset"))
        if learner.module == "ncf":
            raise invalid("NetClassifier", "X", "be an array of pairs for 'ncf'", got=Described("a Dataset"))
        return X if isinstance(X, Items) else Items(X, owner="NetClassifier")
    X = stack_examples("NetClassifier", X)
    if getattr(X, "ndim", 2) <= 2:
        dtype = np.float64 if learner.module == "ncf" else np.float32
        with expect_numbers("NetClassifier", X):
            rows = validate_data(learner, X, dtype=dtype, reset=reset)
        if learner.module == "ncf":
            _check_indices(rows)
        return fold_rows(rows, learner.image_shape) if takes_images(learner.module) else rows
    array = np.asarray(X)
    if array.ndim not in (3, 4):
        got = Described(f"an array with {array.ndim} axes")
        must = "be rows (n, d), views (n, views, d) or images (n, height, width), with channels last or first"
        raise invalid("NetClassifier", "X", must, got=got)
    if takes_images(learner.module):
        array = order_axes(array)
    if array.dtype != np.uint8:
        with expect_numbers("NetClassifier", array):
            array = check_array(array, dtype=np.float32, allow_nd=True, input_name="X", estimator=learner)
    if reset:
        keep_axes(learner, array)
    return array


def read_examples(learner: Any, X: Any) -> tuple[Any, int]:
    """Return the first examples as `check_examples` does, and how many there are; all of them are looked at, or refused.

    An array is read a block at a time: one that has to be converted is never there twice. Of a Dataset the first items are read.
    """
    if not isinstance(X, np.ndarray) or X.ndim < 2:
        checked = check_examples(learner, X, reset=True)
        return checked, len(checked)
    first = check_examples(learner, X[:CHUNK], reset=True)
    for low in range(CHUNK, len(X), CHUNK):
        check_examples(learner, X[low : low + CHUNK], reset=False)
    return first, len(X)


def takes_images(module: Any) -> bool:
    """Whether a network has a name and takes images; a module of the user's own takes what it takes."""
    return isinstance(module, str) and module in MODELS and MODELS[module].axes == 3


def order_axes(images: Any) -> Any:
    """Return images as (n, channels, height, width): given so, as (n, height, width, channels), or as (n, height, width).

    They are an array, or a tensor. Which axis is that of channels is told by its length, at most four, where the other end is
    longer. Where both ends are so short, the first is taken, as PyTorch has it.

    >>> (
    ...     order_axes(np.zeros((2, 32, 32, 3))).shape,
    ...     order_axes(np.zeros((2, 3, 32, 32))).shape,
    ...     order_axes(np.zeros((2, 28, 28))).shape,
    ... )
    ((2, 3, 32, 32), (2, 3, 32, 32), (2, 1, 28, 28))
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] <= MOST_CHANNELS < images.shape[1]:
        return images.permute(0, 3, 1, 2) if isinstance(images, Tensor) else images.transpose(0, 3, 1, 2)
    return images


def fold_rows(rows: Array, image_shape: Any) -> Array:
    """Return rows (n, d) as images (n, channels, height, width), in the memory of the rows.

    `image_shape` is (height, width) or (height, width, channels); square grey images need not say it.
    """
    columns = rows.shape[1]
    if image_shape is None and math.isqrt(columns) ** 2 == columns:
        shape: tuple[int, ...] = (math.isqrt(columns),) * 2
    else:
        given = image_shape if isinstance(image_shape, Sequence) and not isinstance(image_shape, str) else ()
        shape = check_sides("NetClassifier", given)
    if len(shape) not in (2, 3) or math.prod(shape) != columns:
        got = Described(f"{image_shape} for rows of {columns} numbers")
        fix = "Say how a row is folded, for example image_shape=(32, 32, 3)."
        raise invalid(
            "NetClassifier", "image_shape", "be (height, width) or (height, width, channels)", got=got, fix=fix
        )
    return rows.reshape(len(rows), *shape, *(1,) * (3 - len(shape))).transpose(0, 3, 1, 2)


def _check_indices(rows: Floats) -> None:
    """Refuse numbers of users and items that are negative or not whole."""
    wrong = (rows < 0) | (rows != np.floor(rows))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        got = Described(f"{rows[row].tolist()} in row {row}")
        raise invalid("NetClassifier", "X", "hold user and item numbers 0, 1, 2, ...", got=got)


def check_targets(targets: Any, *, n: int, n_classes: int) -> Any:
    """Return soft targets (n, K) whose rows sum to one; entries may be negative. Refuse anything else.

    Lazy rows that are too many for an array are returned as they are: `check_batch` looks at those of a batch.
    """
    matrix = _check_matrix("targets", targets, n=n, n_classes=n_classes)
    if isinstance(matrix, LazyRows):
        return matrix
    sums = matrix.sum(axis=1, dtype=np.float64)
    # float32 targets are welcome, and rounding grows with the largest entry of a signed row.
    wrong = np.abs(sums - 1.0) > 1e-4 * np.maximum(1.0, np.abs(matrix).max(axis=1))
    if wrong.any():
        row = int(np.argmax(wrong))
        got = Described(f"a sum of {sums[row]:.9g} in row {row}")
        raise invalid("NetClassifier", "targets", "have rows that sum to 1", got=got)
    return matrix


def check_likelihood(likelihood: Any, *, n: int, n_classes: int) -> Any:
    """Return the chances (n, K) of what was observed under each label.

    Negative chances are refused, and a row of zeros: no label explains what was observed there. Lazy rows as above.
    """
    matrix = _check_matrix("likelihood", likelihood, n=n, n_classes=n_classes)
    if isinstance(matrix, LazyRows):
        return matrix
    wrong = (matrix < 0).any(axis=1) | (matrix.max(axis=1) <= 0)
    if wrong.any():
        got = Described(f"row {int(np.argmax(wrong))}")
        fix = "What was observed has a chance under some label."
        raise invalid("NetClassifier", "likelihood", "be >= 0 and not all zero in a row", got=got, fix=fix)
    return matrix


def check_batch(kind: str, values: Floats) -> Float32s:
    """Return lazy targets ("soft") or likelihoods ("forward") that were made for a batch, checked like those of an array."""
    check = check_targets if kind == "soft" else check_likelihood
    checked: Floats = check(values, n=len(values), n_classes=values.shape[1])
    return checked.astype(np.float32)


def _check_matrix(name: str, values: Any, *, n: int, n_classes: int) -> Any:
    """Return a finite matrix with a row per example and a column per class, or lazy rows that are too many for one."""
    if n_classes < 2:
        raise invalid("NetClassifier", "classes", "be two or more", got=Described(f"{n_classes}"))
    if isinstance(values, LazyRows):
        if values.shape != (n, n_classes):
            got = Described(f"rows of shape {values.shape}")
            raise invalid("NetClassifier", name, f"have shape ({n}, {n_classes})", got=got)
        values = keep_small(values)
        if isinstance(values, LazyRows):
            return values
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "fiu" or matrix.shape != (n, n_classes):
        got = Described(f"an array of shape {matrix.shape}")
        raise invalid("NetClassifier", name, f"have shape ({n}, {n_classes})", got=got)
    if not np.isfinite(matrix).all():
        raise invalid("NetClassifier", name, "be finite", got=Described("NaN or infinity"))
    return matrix
