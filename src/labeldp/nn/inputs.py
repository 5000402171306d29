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

From what the user calls a network to a network: a name, a module (copied) or a factory, checked against the data.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from labeldp.errors import Described, invalid
from labeldp.nn.models import MODELS, build, check_sample

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


def name_of(module: Any) -> str | None:
    """Return the name of a network by name, None for the user's own."""
    return module if isinstance(module, str) else None


def made(
    module: Any, *, n_classes: int, sample_shape: tuple[int, ...], hidden: int, dropout: float, sizes: tuple[int, ...]
) -> nn.Module:
    """Return a new network; torch's generator decides its first weights unless it is a module, which keeps its own."""
    if isinstance(module, str):
        return build(
            module, n_classes=n_classes, sample_shape=sample_shape, hidden=hidden, dropout=dropout, sizes=sizes
        )
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    network = module(n_classes=n_classes, sample_shape=sample_shape) if callable(module) else None
    if not isinstance(network, nn.Module):
        names = ", ".join(repr(name) for name in MODELS)
        got = module if network is None else Described(f"a callable that returns {type(network).__name__}")
        fix = f"Names are {names}; a callable takes n_classes and sample_shape."
        raise invalid(
            "NetClassifier", "module", "be a name, a torch module or a callable that makes one", got=got, fix=fix
        )
    return network


def check_module(module: Any) -> None:
    """Refuse a name that is not known before anything else is looked at."""
    if isinstance(module, str) and module not in MODELS:
        check_sample(module, ())


def checked_network(network: nn.Module, inputs: Inputs, *, n_classes: int) -> nn.Module:
    """Return the network if it answers two examples with one logit per class."""
    logits = tried(network, inputs.batch(torch.arange(min(2, len(inputs))), view=0))
    if logits.ndim != 2 or logits.shape[1] != n_classes:
        got = Described(f"an output of shape {tuple(logits.shape)}")
        fix = "The last layer has one output per class, and no softmax."
        raise invalid("NetClassifier", "module", f"return (n, {n_classes}) logits", got=got, fix=fix)
    return network


def tried(network: nn.Module, batch: Tensor) -> Tensor:
    """Return what a network says to a batch, its complaints in our words."""
    network.eval()
    try:
        with torch.no_grad():
            answer = network(batch)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        got = Described(f"examples of shape {tuple(batch.shape[1:])}")
        raise invalid("NetClassifier", "X", "be what the module takes", got=got, fix=f"It says: {first}") from error
    if not isinstance(answer, Tensor):
        fix = "Wrap it so that it returns the logits alone."
        raise invalid("NetClassifier", "module", "return a tensor", got=type(answer).__name__, fix=fix)
    return answer


def last_linear(network: nn.Module) -> nn.Linear:
    """Return the last linear layer, in the order in which the network was put together."""
    found = [part for part in network.modules() if isinstance(part, nn.Linear)]
    if not found:
        fix = "Hidden features are what feeds the last nn.Linear."
        raise invalid("NetClassifier", "module", "have a linear layer", got=type(network).__name__, fix=fix)
    return found[-1]


def placed(network: nn.Module, *, sample_shape: tuple[int, ...], device: torch.device) -> nn.Module:
    """Return the network on its device; for images in the order of memory that convolutions on a CPU prefer.

    The order decides how sums are rounded, so a network that was stored gets it back.
    """
    network = network.to(device)
    if len(sample_shape) != 3:
        return network
    ordered: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    return ordered


def checked_device(device: Any) -> torch.device:
    """Return a device that is there."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        fix = "For example 'cpu' or 'cuda'."
        raise invalid("NetClassifier", "device", "be a torch device", got=device, fix=fix) from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(chosen.type, False):
        fix = "This torch sees no such device here; use device='cpu'."
        raise invalid("NetClassifier", "device", "be present", got=str(device), fix=fix)
    return chosen
