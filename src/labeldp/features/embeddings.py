"""`Embeddings`: what an encoder that never saw these labels says of each example, computed once, checked and normalised.

Most people who train on little have a network that was trained on much: of images, of sentences, of graphs. What it says of an
example, a few hundred numbers, is a feature like any other, and under label privacy it costs nothing. A linear learner or a
small network on top of it needs few labels, so it stands a small epsilon.

>>> rows = np.random.default_rng(0).normal(3.0, 2.0, size=(100, 4))
>>> found = Embeddings().fit_transform(rows)  # computed elsewhere: checked and normalised
>>> np.abs(found.mean(axis=0)).round(4).tolist(), found.std(axis=0).round(4).tolist()
([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
>>> squares = Embeddings(lambda batch: batch**2, standardise=False)  # any function of a batch
>>> squares.fit_transform(rows).shape
(100, 4)

**Encoders.** A torch module is run in evaluation mode, without gradients, where its weights are. Anything else that can be called is
given a batch: an array of float32 (bytes come as floats 0 .. 255), or a list where X is a list of texts, and returns an array or a
tensor with a row for each. What belongs in front of a network (its own scale of pixels, its size, its order of axes) is part of
the encoder.

**The cache.** With `cache`, a folder, what was computed stays there, in blocks of `BLOCK` rows: one `.npy` file for each, without
pickle, written whole or not at all. A killed run goes on after its last whole block, and a second one computes next to nothing. The
name of a file is a hash of the block's rows and of what can be known of the encoder: its code, what its functions have closed over,
its weights, its attributes and the text that describes its layers (`describe`). Not all of an encoder can be known, so `PROBE`
rows of each block that is found are computed again and compared: one that answers otherwise is refused. An encoder that changes
its own attributes as it works, a counter for example, has another name afterwards, and is computed again. All this is against
mistakes: whoever may write to the folder can put there what is believed, so let it be yours alone.

**Privacy.** Features are public under label privacy, and a file of the cache is a function of features and of the encoder: no label
comes near it. A dataset of (input, label) is read for its inputs (`labeldp.items`). An encoder that was trained on the labels
that are to be protected is another matter: what it says of an example may give them away, and no guarantee here covers that.

Design notes. Columns are brought to mean 0 and spread 1 over the rows of the fit, because an encoder's columns have scales that mean nothing
and some of them are large. Torch is not imported: whoever brings a module has it loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import sys
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp import display
from labeldp.arrays import Array, Float32s
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.features.transforms import scale_rows
from labeldp.items import Items, is_dataset, stack_items
from labeldp.untrusted import read_npy
from labeldp.validate import MOST_CHANNELS, check_integer

OWNER = "Embeddings"
#: The value of `flips` for both views of an example.
VIEWS = "views"
#: Rows of one file of the cache: some seconds to half a minute of work for a small network.
BLOCK = 2048
#: Rows of each block that are computed again when its file is found: a thousandth of the work. Two, since some encoders take no batch of one.
PROBE = 2
#: How far they may be from what is kept, as a share of the largest number in them. In float32 other sizes of batches, processors and
#: TF32 move an answer by 1e-6 to some 1e-4 of it; a network that was trained for one more step moves it by more than this, mostly.
NEAR = 1e-3
#: The same where all numbers of a block are of 16 bits: one step of bfloat16 is up to 0.8 % of a number.
NEAR_HALF = 1e-2
#: How deep objects in objects, lists in lists and functions that call functions are looked into, for the name of an encoder.
#: An attribute of an object is three steps: its attributes, one of them, and its value.
DEPTH = 24
#: A part of every name: a change of what the names are made of is a change of this number.
VERSION = 2

Told = Callable[[int, int], None]


class Embeddings(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Rows of float32 from an encoder, or as they come, with columns of mean 0 and spread 1.

    Parameters
    ----------
    encoder : torch module, callable or None
        What makes a row of numbers of each example; answers with more than two axes are made flat. None: X are embeddings
        already, (n, d), or (n, views, d).
    batch_size : int
        Examples that the encoder sees together.
    flips : bool or "views"
        Whether the encoder is also asked about mirror images, for X that are images: twice the work. True: the mean of both answers.
        "views": both, (n, 2, d), for learners that take several views of an example, as networks do.
    standardise : bool
        Whether columns are brought to mean 0 and spread 1, as they are over the rows of the fit. One that does not vary there is 0.
    unit_norm : bool
        Whether each row is then brought to norm one (at most, rounding included), as the convex learners want it.
    cache : folder, optional
        Where what was computed stays; it is made if it is not there.
    progress : bool or callable (examples done, in all)
        Show a bar on standard error, or be told.

    Attributes
    ----------
    mean_, scale_ : float32 (d,)
        What was taken off each column, and what it was multiplied by.

    Notes
    -----
    X is an array, a list of texts, or a dataset whose items are inputs or tuples that begin with one.

    *Edge cases.*
    NaN and infinity are refused, in X and in what the encoder returns; messages name the row. One row has no spread: its
    columns are 0 after standardising.
    """

    def __init__(
        self,
        encoder: Any = None,
        *,
        batch_size: int = 256,
        flips: bool | str = False,
        standardise: bool = True,
        unit_norm: bool = False,
        cache: str | os.PathLike[str] | None = None,
        progress: Any = False,
    ) -> None:
        self.encoder = encoder
        self.batch_size = batch_size
        self.flips = flips
        self.standardise = standardise
        self.unit_norm = unit_norm
        self.cache = cache
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> Embeddings:
        """Learn the means and spreads of columns; `y` is not looked at. `fit_transform` computes embeddings once, not twice."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Float32s:
        """Return the normalised embeddings of X, and remember how they were normalised; `y` is not looked at."""
        found = self._compute(X, reset=True)
        width = found.shape[-1]
        flat = found.reshape(-1, width)
        mean, scale = np.zeros(width, np.float32), np.ones(width, np.float32)
        if self.standardise:
            mean = flat.mean(axis=0, dtype=np.float64).astype(np.float32)
            # A spread that is nothing but rounding is none: the mean of many equal numbers is off by some ulps.
            spread, least = measure_spread(flat, mean), 1e-6 * np.maximum(np.abs(mean), 1e-30)
            scale = np.divide(1.0, spread, out=np.zeros(width), where=spread > least).astype(np.float32)
        self.mean_, self.scale_, self._n_features_out = mean, scale, width
        return self._normalise(found)

    def transform(self, X: Any) -> Float32s:
        """Return the normalised embeddings of X, float32 (n, d), or (n, views, d) where they came so."""
        check_is_fitted(self, "mean_")
        found = self._compute(X, reset=False)
        if found.shape[-1] != len(self.mean_):
            got = Described(f"{found.shape[-1]}")
            raise invalid(OWNER, "X", f"have embeddings of {len(self.mean_)} numbers, as in fit", got=got)
        return self._normalise(found)

    def _normalise(self, found: Float32s) -> Float32s:
        """Return embeddings on the scale of the fit; a new array, so that what was computed stays as it is."""
        rows: Float32s = found - self.mean_ if self.standardise else found.copy()
        if self.standardise:
            rows *= self.scale_
        if self.unit_norm:
            rows = np.asarray(scale_rows(rows.reshape(-1, rows.shape[-1]))).reshape(rows.shape)
        return rows

    def _compute(self, X: Any, *, reset: bool) -> Float32s:
        """Return what the encoder says of all of X, or X itself, checked."""
        if self.flips not in (False, True, VIEWS):
            raise invalid(OWNER, "flips", f'be False, True or "{VIEWS}"', got=self.flips)
        if self.encoder is None:
            if self.flips:
                fix = f"Embeddings of mirror images are views: X of shape (n, 2, d), or flips={self.flips!r} with the encoder."
                raise invalid(OWNER, "flips", "be False without an encoder", got=self.flips, fix=fix)
            if is_dataset(X):
                X = stack_items(OWNER, list(Items(X, owner=OWNER)))
            if any(isinstance(one, str) for one in (X[:1] if isinstance(X, (list, tuple, np.ndarray)) else ())):
                fix = "Texts need an encoder: Embeddings(model.encode); or see labeldp.features.TextFeatures."
                raise invalid(OWNER, "X", "be numbers without an encoder", got=Described("texts"), fix=fix)
            given: Float32s = validate_data(
                self, X, dtype=np.float32, allow_nd=True, ensure_all_finite=False, reset=reset
            )
            if given.ndim not in (2, 3):
                got = Described(f"an array with {given.ndim} axes")
                fix = "Give the encoder that makes rows of numbers of them."
                raise invalid(
                    OWNER, "X", "be rows (n, d), or views (n, views, d), without an encoder", got=got, fix=fix
                )
            check_finite(given)
            return given
        size = check_integer(OWNER, "batch_size", self.batch_size, least=1)
        source = Source(X)
        encode = open_encoder(self.encoder)
        store = None if self.cache is None else Cache(self.cache, key=describe_encoder(self.encoder))
        parts: list[Float32s] = []
        mirrored: list[Float32s] = []
        with open_bar(self.progress, len(source)) as tell:
            for low in range(0, len(source), BLOCK):
                block = source.read(low, min(low + BLOCK, len(source)))
                parts.append(self._find_block(block, low, encode, size, store))
                if self.flips:
                    mirrored.append(self._find_block(mirror(block), low, encode, size, store))
                tell(low + len(block), len(source))
        if not self.flips:
            return join_answers(parts)
        views: Float32s = np.stack([join_answers(parts), join_answers(mirrored)], axis=1)
        return views if self.flips == VIEWS else views.mean(axis=1)

    def _find_block(self, block: Any, low: int, encode: Any, size: int, store: Cache | None) -> Float32s:
        """Return the embeddings of a block: found in the cache, or computed and kept there."""

        def compute(rows: Any) -> Float32s:
            batches = [rows[start : start + size] for start in range(0, len(rows), size)]
            return join_answers([check_answer(encode(batch), len(batch), first=low) for batch in batches])

        return compute(block) if store is None else store.get(block, compute)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def measure_spread(rows: Float32s, mean: Float32s) -> Array:
    """Return the standard deviation of each column; a block at a time, since a copy of all rows may not fit."""
    squares = np.zeros(rows.shape[1])
    for low in range(0, len(rows), BLOCK):
        squares += np.square(rows[low : low + BLOCK] - mean, dtype=np.float64).sum(axis=0)
    spread: Array = np.sqrt(squares / len(rows))
    return spread


# --------------------------------------------------------------------------------------------------------------- inputs


class Source:
    """Examples of X in blocks: slices of an array as float32, of a list as it is, items of a dataset stacked."""

    def __init__(self, X: Any) -> None:
        if is_dataset(X):
            X = Items(X, owner=OWNER)
        elif not isinstance(X, (list, tuple)):
            X = np.asarray(X)
            if X.ndim < 1 or X.dtype.kind not in "fiubUO":
                got = Described(f"an array of shape {X.shape} and type {X.dtype}")
                raise invalid(OWNER, "X", "be numbers or texts, one example after the other", got=got)
        if not len(X):
            raise invalid(OWNER, "X", "have examples", got=Described("none"))
        self._X = X

    def __len__(self) -> int:
        return len(self._X)

    def read(self, low: int, high: int) -> Any:
        """Return some examples: an array of finite float32, or a list of texts."""
        if isinstance(self._X, Items):
            block = stack_items(OWNER, [self._X[row] for row in range(low, high)])
        else:
            block = self._X[low:high]
        if isinstance(block, np.ndarray) and block.dtype.kind in "UO":
            block = block.tolist()
        if isinstance(block, (list, tuple)):
            wrong = [row for row, text in enumerate(block, start=low) if not isinstance(text, str)]
            if wrong:
                got = Described(f"a {type(block[wrong[0] - low]).__name__} in row {wrong[0]}")
                raise invalid(OWNER, "X", "be an array, a dataset, or a list of texts", got=got)
            return list(block)
        numbers = np.ascontiguousarray(block, dtype=np.float32)
        check_finite(numbers, first=low)
        return numbers


def mirror(images: Any) -> Float32s:
    """Return the mirror images of images (n, height, width), (n, height, width, channels) or (n, channels, height, width).

    The axis of channels is the short one, of at most four; the last, if both ends are short.

    >>> mirror(np.arange(6, dtype=np.float32).reshape(1, 2, 3)).tolist()
    [[[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]]
    """
    axes = images.ndim if isinstance(images, np.ndarray) else 0
    last = axes == 4 and images.shape[3] <= MOST_CHANNELS
    if axes != 3 and not (axes == 4 and (last or images.shape[1] <= MOST_CHANNELS)):
        got = Described(f"examples of shape {images.shape[1:]}" if axes else "texts")
        fix = "Images are (height, width), (height, width, channels) or (channels, height, width); fold rows first, or leave `flips` out."
        raise invalid(OWNER, "X", "be images to have mirror images", got=got, fix=fix)
    return np.ascontiguousarray(np.flip(images, axis=2 if axes == 3 or last else 3))


def check_finite(numbers: Float32s, *, first: int = 0) -> None:
    """Refuse NaN and infinity in X, with the row; `first` is the number of the first one."""
    if not np.isfinite(numbers).all():
        row = first + int(np.argmin(np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)))
        raise invalid(OWNER, "X", "be finite", got=Described(f"NaN or infinity in row {row}"))


# ------------------------------------------------------------------------------------------------------------- encoders


def open_encoder(encoder: Any) -> Callable[[Any], Any]:
    """Return a function of a batch: for a torch module, its answer in evaluation mode, without gradients, where its weights are."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(encoder, torch.nn.Module):
        if not callable(encoder):
            got = Described(f"a {type(encoder).__name__}")
            fix = "Use None for X that are embeddings already."
            raise invalid(OWNER, "encoder", "be a torch module or a function of a batch", got=got, fix=fix)
        function: Callable[[Any], Any] = encoder
        return function

    def encode(batch: Any) -> Any:
        weights = next(encoder.parameters(), None)
        modes = [(part, part.training) for part in encoder.modules()]
        encoder.eval()
        try:
            with torch.inference_mode():
                given = torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch
                return encoder(given if weights is None or isinstance(given, list) else given.to(weights.device))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            shape = f" of shape {batch.shape}" if isinstance(batch, np.ndarray) else ""
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise LabelDPError(f"{OWNER}: the encoder cannot take a batch{shape}: {reason}") from error
        finally:
            for part, was in modes:
                part.training = was

    return encode


def check_answer(answer: Any, n_rows: int, *, first: int) -> Float32s:
    """Return what an encoder said of a batch as finite float32 (n, d); refuse anything else."""
    if isinstance(answer, (tuple, Mapping)):
        got = Described(f"a {type(answer).__name__} of {len(answer)} parts")
        fix = "Choose the part that describes an example: lambda batch: encoder(batch)[0], for instance."
        raise invalid(OWNER, "encoder", "return an array or a tensor with a row for each example", got=got, fix=fix)
    if hasattr(answer, "detach"):
        answer = answer.detach().float().cpu().numpy()
    array = np.asarray(answer)
    if array.dtype.kind not in "fiub" or array.ndim < 2 or len(array) != n_rows:
        got = Described(f"an array of shape {array.shape} for {n_rows} examples")
        raise invalid(OWNER, "encoder", "return an array or a tensor with a row for each example", got=got)
    rows = np.ascontiguousarray(array.reshape(n_rows, -1), dtype=np.float32)
    if not np.isfinite(rows).all():
        row = int(np.argmin(np.isfinite(rows).all(axis=1)))
        got = Described(f"NaN or infinity, in the block of rows from {first} on (row {row} of a batch)")
        raise invalid(OWNER, "encoder", "return finite numbers", got=got)
    return rows


def join_answers(parts: list[Float32s]) -> Float32s:
    """Return what was said of batch after batch as one array; refuse other widths from one to the next."""
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        got = Described(f"{' and '.join(map(str, sorted(widths)[:2]))} numbers")
        raise invalid(OWNER, "encoder", "return as many numbers for each example", got=got)
    return np.concatenate(parts)


def describe_encoder(encoder: Any) -> bytes:
    """Return a hash of what can be known of an encoder, for the names of its files."""
    return hashlib.blake2b(describe(encoder), key=str(VERSION).encode(), digest_size=16).digest()


def describe(value: Any, depth: int = DEPTH, seen: dict[int, tuple[int, Any]] | None = None) -> bytes:
    """Return a hash of a value and of all that it is made of, as far as that can be known, and nothing that another process has otherwise.

    Numbers, texts, arrays and tensors are their bytes. Functions are their code, their defaults, what they closed over, and the
    numbers and functions of their own module that they name. Objects are their class and their attributes. Of the rest
    (sessions, locks, compiled code) only the type is known.

    >>> def scale_by(factor):
    ...     return lambda batch: batch * factor
    >>> describe(scale_by(2)) == describe(scale_by(2)), describe(scale_by(2)) == describe(scale_by(3))
    (True, False)
    """
    seen = {} if seen is None else seen
    kind: str = name_type(type(value))
    parts: Sequence[Any] = ()
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        kind = f"{kind}|{hex(value) if isinstance(value, int) else repr(value)}"
    elif id(value) in seen:  # a circle, or what several parts share: it is described once
        kind = f"again|{seen[id(value)][0]}"
    elif depth > 0:
        seen[id(value)] = (len(seen), value)  # kept, so that no other object gets its number
        kind, parts = take_apart(value)
    hashes = [part if isinstance(part, bytes) else describe(part, depth - 1, seen) for part in parts]
    if isinstance(value, (set, frozenset, Mapping)):
        hashes.sort()  # their order is nobody's, and another in the next process
    digest = hashlib.blake2b(kind.encode("utf-8", "surrogatepass"), digest_size=16)
    for part in hashes:
        digest.update(f"{len(part)}|".encode())
        digest.update(part)
    return digest.digest()


def take_apart(value: Any) -> tuple[str, Sequence[Any]]:
    """Return what a value is, in a word, and the parts that make it up: bytes, or values that are described in turn."""
    if isinstance(value, (bytes, bytearray)):
        return "bytes", [bytes(value)]
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        bare = tuple(array.ravel().tolist()) if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
        return f"array|{array.shape}|{array.dtype}", [bare]
    if _is_tensor(value):
        return read_tensor(value)
    if isinstance(value, (MutableMapping, MutableSequence, MutableSet)):
        return name_type(type(value)), []  # a record that grows as it is used (calls, hooks) makes no other encoder
    if isinstance(value, Mapping):
        return "mapping", list(value.items())
    if isinstance(value, (tuple, frozenset)):
        return "list", list(value)
    if isinstance(value, os.PathLike):
        return "path", [os.fspath(value)]
    if isinstance(value, (types.CodeType, types.FunctionType, types.MethodType, functools.partial, type)):
        return take_code_apart(value)
    return take_object_apart(value)


def take_code_apart(value: Any) -> tuple[str, Sequence[Any]]:
    """Return what a function, a method or a class is made of."""
    if isinstance(value, types.CodeType):
        return "code", [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, types.MethodType):
        return "method", [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return "partial", [value.func, value.args, MappingProxyType(value.keywords)]
    if isinstance(value, type):
        return name_type(value), [MappingProxyType(find_code(kind)) for kind in value.__mro__]
    if _top(value) == "torch":  # its compiler's functions close over what is another in each process
        return name_type(value), []
    closed = tuple(cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
    named = MappingProxyType(value.__kwdefaults__ or {})
    return name_type(value), [value.__code__, value.__defaults__, named, closed, MappingProxyType(find_globals(value))]


def take_object_apart(value: Any) -> tuple[str, Sequence[Any]]:
    """Return what an object holds; of a torch module, its weights and the attributes of all modules inside it."""
    kind = name_type(type(value))
    own = _top(type(value)) in WITHOUT_PARTS or (_top(type(value)) == "torch" and not hasattr(value, "named_modules"))
    if own or isinstance(value, types.ModuleType) or not hasattr(value, "__dict__"):
        return f"{kind}|{getattr(value, '__qualname__', '')}", []  # the name of a compiled function
    if not hasattr(value, "state_dict"):
        return kind, [type(value), MappingProxyType(vars(value))]
    shows: Any = type(value).__repr__
    shown = "" if shows is object.__repr__ else repr(value)  # that of objects is their place in memory
    modules = value.named_modules() if hasattr(value, "named_modules") else [("", value)]
    held = [
        (name, type(part), MappingProxyType({key: value for key, value in vars(part).items() if key not in ELSEWHERE}))
        for name, part in modules
    ]
    return f"{kind}|{shown}", [MappingProxyType(dict(value.state_dict())), tuple(held)]


#: Attributes of a torch module that are not looked at twice, and its mode, which is always that of evaluation here.
ELSEWHERE = frozenset({"_parameters", "_modules", "training"})


def read_tensor(tensor: Any) -> tuple[str, Sequence[Any]]:
    """Return what a tensor is and its bytes, of whatever type; of one that has no plain bytes (on no device, quantised), what it is."""
    torch: Any = sys.modules.get("torch")
    kind = f"tensor|{tuple(tensor.shape)}|{tensor.dtype}"
    try:
        plain = tensor.detach().cpu().contiguous().flatten()
        return kind, [plain.view(torch.uint8).numpy().tobytes()]
    except (RuntimeError, TypeError, AttributeError):
        return kind, []


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def find_globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the numbers, texts and arrays that a function names outside itself, and the functions and classes of its own module."""

    def find_names(code: types.CodeType) -> set[str]:
        inside = [find_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
        return set(code.co_names).union(*inside)

    found = {}
    for name in sorted(find_names(function.__code__)):
        value = function.__globals__.get(name)
        ours = isinstance(value, (types.FunctionType, type)) and value.__module__ == function.__module__
        if ours or isinstance(value, (bool, int, float, complex, str, bytes, np.ndarray)) or _is_tensor(value):
            found[name] = value
    return found


def find_code(kind: type) -> dict[str, Any]:
    """Return the functions, numbers and texts that are written in a class; those of Python and of torch are known by its name."""
    if _top(kind) in sys.stdlib_module_names | {"torch"}:
        return {}
    plain = {name: getattr(part, "__func__", getattr(part, "fget", part)) for name, part in vars(kind).items()}
    kept = (types.FunctionType, bool, int, float, complex, bytes, str, np.ndarray)
    return {name: part for name, part in plain.items() if isinstance(part, kept) and name not in PLACES}


#: What Python notes in a class about where it was written.
PLACES = frozenset({"__doc__", "__firstlineno__", "__module__", "__qualname__"})


def name_type(kind: Any) -> str:
    """Return the module and the name of a class or a function."""
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"


#: Modules of Python whose objects are no part of what an encoder says, and are others in each process: locks, loggers, files.
WITHOUT_PARTS = frozenset(
    [
        "_io",
        "_thread",
        "asyncio",
        "concurrent",
        "io",
        "logging",
        "multiprocessing",
        "queue",
        "socket",
        "subprocess",
        "threading",
        "weakref",
    ]
)


def _top(kind: Any) -> str:
    """Return the package that a class or a function comes from."""
    return str(getattr(kind, "__module__", "") or "").partition(".")[0]


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name that the function closes over before it has a value
        return False
    return True


# ------------------------------------------------------------------------------------------------------------ the cache


class Cache:
    """A folder of blocks, each in a file of its own whose name says what it was made of."""

    def __init__(self, folder: str | os.PathLike[str], *, key: bytes) -> None:
        self._folder, self._key = Path(folder), key
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = f"The system says: {error.strerror or error}."
            raise invalid(OWNER, "cache", "be a folder", got=str(folder), fix=fix) from error

    def get(self, block: Any, compute: Callable[[Any], Float32s]) -> Float32s:
        """Return what is kept of a block; where nothing is, or it cannot be read, compute and keep it."""
        name = self._name(block)
        path = self._folder / f"embeddings-{name}.npy"
        found = self._read(path, len(block))
        if found is None:
            found = compute(block)
            self._write(path, found)
        else:
            rows = choose_rows(name, len(block))
            probe = block[rows] if isinstance(block, np.ndarray) else [block[row] for row in rows]
            self._compare(found, rows, compute(probe), path)
        return found

    def _name(self, block: Any) -> str:
        digest = hashlib.blake2b(self._key, digest_size=16)
        if isinstance(block, np.ndarray):
            digest.update(f"{block.shape}|{block.dtype}".encode())
            digest.update(block.data)
        else:
            for text in block:
                plain = text.encode("utf-8", "surrogatepass")  # half a character is a text too, if an ugly one
                digest.update(f"{len(plain)}|".encode() + plain)
        return digest.hexdigest()

    @staticmethod
    def _read(path: Path, n_rows: int) -> Float32s | None:
        """Return a file's rows; None where there is none, or a damaged one: it can be computed again."""
        try:
            found = read_npy(path)
            whole = found.dtype == np.float32 and found.ndim == 2 and len(found) == n_rows and np.isfinite(found).all()
        except (OSError, ValueError, EOFError, MemoryError):  # what needs more memory than there is was never ours
            return None
        return found if whole else None

    @staticmethod
    def _compare(found: Float32s, rows: list[int], computed: Float32s, path: Path) -> None:
        """Refuse a file of which the encoder does not give some rows any more, up to what rounding moves (`NEAR`)."""
        kept, share = found[rows], NEAR_HALF if is_half(found) else NEAR
        # Rows of nothing but zeros among others are computed as nearly zero.
        most = max(float(np.abs(kept).max(initial=0)), 1e-3 * float(np.abs(found).max(initial=0)))
        if kept.shape != computed.shape or np.abs(kept - computed).max(initial=0) > share * most:
            got = Described(f"other rows in {path.name}")
            fix = "Some of its rows were computed again: the encoder has changed, or its answers are random. Name another folder, or remove this one."
            raise invalid(OWNER, "cache", "hold what this encoder answers", got=got, fix=fix)

    @staticmethod
    def _write(path: Path, rows: Float32s) -> None:
        """Write a block beside its place and rename it: the place holds a whole file or none."""
        hidden = path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
        try:
            with hidden.open("xb") as handle:
                np.save(handle, rows, allow_pickle=False)
                handle.flush()
                os.fsync(handle.fileno())
            hidden.replace(path)
        except OSError as error:
            raise LabelDPError(
                f"{OWNER}: could not write {path}: {error.strerror or error}. The blocks before it are kept."
            ) from error
        finally:
            hidden.unlink(missing_ok=True)


def choose_rows(name: str, n_rows: int) -> list[int]:
    """Return `PROBE` different rows of a block, or its only one: any of them, and the same whenever the file has this name."""
    order = np.random.default_rng(int(name, 16)).permutation(n_rows)
    return sorted(order[:PROBE].tolist())


def is_half(rows: Float32s) -> bool:
    """Whether numbers of float32 are all of 16 bits: float16, or bfloat16, whose last 16 bits of 32 are zero."""
    with np.errstate(over="ignore"):
        return not (rows.view(np.uint32) & np.uint32(0xFFFF)).any() or bool((rows.astype(np.float16) == rows).all())


@contextlib.contextmanager
def open_bar(progress: Any, total: int) -> Iterator[Told]:
    """Give what is called after each block: nothing for False, the user's callable, or for True a bar on standard error."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise invalid(OWNER, "progress", "be a bool or a callable", got=progress)
    elif not progress:
        yield lambda _done, _total: None
    else:
        with display.open_bar("embedding", total=total) as told:
            yield told
