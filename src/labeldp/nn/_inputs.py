"""Examples on their way into a network: rows, views, images, indices or a Dataset, one batch at a time.

| X | meaning | what is done to it |
|---|---|---|
| (n, d) | rows of features | column means off, one overall spread |
| (n, views, d) | several label-free views of each example | the same over all views |
| (n, channels, height, width) | images, floats or bytes | channel means off, one overall spread |
| (n, 2) for "ncf" | user and item numbers | nothing |
| torch Dataset | whatever its items are | nothing: it brings its own transform |

>>> import numpy as np
>>> inputs = ArrayInputs.of(np.array([[0.0, 4.0], [2.0, 8.0]], np.float32))
>>> inputs.batch(
...     torch.tensor([0, 1])
... ).tolist()  # the spread of all four numbers about their columns' means is sqrt(2.5)
[[-0.632..., -1.264...], [0.632..., 1.264...]]

Design notes. One spread and not one per column: features such as those of PCA carry their importance in their scale. Bytes
stay bytes until a batch is taken, and no standardised copy of the data is kept. None of this looks at labels.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

#: Rows that means and spread are taken over, evenly spaced: more would change the third digit and cost seconds.
SAMPLE = 8192
#: Rows that are looked at together.
CHUNK = 1024


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
        """Return the examples of these rows; without a `view`, each view takes an equal share of the batch."""
        ...

    def update(self, digest: hashlib.blake2b) -> None:
        """Add what is in here to a fingerprint."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """Subtract `shift` (per column or channel), multiply by `factor`."""

    shift: npt.NDArray[np.float32]
    factor: float

    @classmethod
    def measured(cls, X: npt.NDArray[Any]) -> Scale:
        """Return the means of columns (rows, views) or channels (images) and one over the spread about them."""
        X = X[:: max(1, len(X) // SAMPLE)]
        kept = -1 if X.ndim < 4 else 1
        axes = tuple(axis for axis in range(X.ndim) if axis != kept % X.ndim)
        mean = X.mean(axis=axes, dtype=np.float64)
        shape = (-1,) if X.ndim < 4 else (-1, 1, 1)
        square = 0.0
        for low in range(0, len(X), CHUNK):
            square += float(np.square(X[low : low + CHUNK] - mean.reshape(shape)).sum())
        spread = np.sqrt(square / X.size)
        return cls(shift=mean.reshape(shape).astype(np.float32), factor=float(1 / spread) if spread > 0 else 1.0)

    @classmethod
    def none(cls) -> Scale:
        """Return the scale that changes nothing."""
        return cls(shift=np.zeros(1, np.float32), factor=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayInputs:
    """Examples of an array in memory (or mapped from disk), standardised batch by batch."""

    tensor: Tensor
    shift: Tensor
    factor: float
    views: int
    whole: bool = False

    @classmethod
    def of(cls, X: npt.NDArray[Any], *, scale: Scale | None = None, device: str = "cpu") -> ArrayInputs:
        """Return the inputs of an array; without a scale, its own."""
        scale = Scale.measured(X) if scale is None else scale
        views = X.shape[1] if X.ndim == 3 else 1
        flat = X.reshape(len(X) * views, *X.shape[2:]) if X.ndim == 3 else X
        return cls(
            tensor=shared(flat), shift=torch.from_numpy(scale.shift).to(device), factor=scale.factor, views=views
        )

    @classmethod
    def of_indices(cls, X: npt.NDArray[Any], *, device: str = "cpu") -> ArrayInputs:
        """Return whole numbers, which nothing is done to."""
        here = torch.zeros(1, device=device)
        return cls(tensor=shared(X.astype(np.int64)), shift=here, factor=1.0, views=1, whole=True)

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
        """Return standardised examples on the device."""
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

    def update(self, digest: hashlib.blake2b) -> None:
        """Add all examples to a fingerprint."""
        digest.update(repr((self.views, tuple(self.tensor.shape), str(self.tensor.dtype), self.factor)).encode())
        for low in range(0, len(self.tensor), CHUNK):
            digest.update(self.tensor[low : low + CHUNK].contiguous().numpy().data)


@dataclass(frozen=True, kw_only=True, eq=False)
class DatasetInputs:
    """Examples of a torch Dataset: its items, or the first part of items that are tuples, stacked as they are."""

    items: Any
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.items)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of the first item."""
        return tuple(first_part(self.items[0]).shape)

    @property
    def n_views(self) -> int:
        """One: a Dataset that wants several makes them itself."""
        return 1

    def batch(self, rows: Tensor, *, view: int | None = None) -> Tensor:
        """Return the items of these rows, stacked, on the device."""
        stacked = torch.stack([first_part(self.items[row]) for row in rows.tolist()])
        return (stacked.float() if not stacked.is_floating_point() else stacked).to(self.device)

    def update(self, digest: hashlib.blake2b) -> None:
        """Add the number of items and the ends to a fingerprint: a Dataset may be larger than memory."""
        digest.update(str(len(self)).encode())
        for row in (0, len(self) - 1):
            digest.update(first_part(self.items[row]).contiguous().numpy().tobytes())


def first_part(item: Any) -> Tensor:
    """Return the input of an item that may carry more."""
    part = item[0] if isinstance(item, Sequence) else item
    return part if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part))


def shared(array: npt.NDArray[Any]) -> Tensor:
    """Return a tensor on the memory of an array; it is only read, so a read-only array is fine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
