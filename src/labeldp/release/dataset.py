"""`ReleasedItems`: examples and what was released of each, one by one, for a training loop of your own.

>>> from labeldp import RandomizedResponse, SensitiveLabels, privatize
>>> X = np.random.default_rng(0).normal(size=(4, 2))
>>> release = privatize(SensitiveLabels([0, 1, 1, 0], classes=[0, 1]), RandomizedResponse(1.0), rng=0)
>>> data = release.dataset(X)
>>> x, likelihood = data[2]
>>> (
...     len(data),
...     x.dtype,
...     [round(float(chance), 4) for chance in likelihood],
... )  # of what was released of row 2, under each label
(4, dtype('float32'), [0.2689, 0.7311])

It is a map-style dataset as PyTorch has them: `torch.utils.data.DataLoader` takes it, with workers, shuffling and its default
way to stack examples, and so does anything else that asks for a length and for items by number. Nothing here imports torch;
for libraries that ask whether something *is* a `torch.utils.data.Dataset`, `labeldp.nn.ReleasedDataset` is this and that.

| a release of | the evidence of an example | for |
|---|---|---|
| labels, candidate sets, sets, arcs, matrices | `evidence="likelihood"`: Pr[what was released given label k], (K,) | `labeldp.nn.ForwardLoss`, `PosteriorLoss` |
| the same, where the channel can be inverted | `evidence="unbiased"`: signed targets, (K,) | `labeldp.nn.UnbiasedLoss` |
| numbers | `evidence="values"`: the released number | any squared loss |

**Privacy.** It holds the codes and the channel of a release, and the features: no raw label and no key, so that whoever unpickles it,
a worker among others, learns what a receiver of the release knows. Of a dataset that yields (input, label) it passes on the
input alone (`labeldp.items`); the dataset itself goes along as it is, with whatever it holds.

Design notes. Evidence is made for the rows of a batch, from codes: with 10,000 classes all of it would be gigabytes
(`labeldp.channel.Evidence`). Where all of it is small it is made once in each process, and never pickled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from labeldp.arrays import Array, Float32s
from labeldp.channel import Evidence, NumericChannel
from labeldp.channel.evidence import LazyRows, UnbiasedTargets, is_small
from labeldp.errors import Described, invalid
from labeldp.items import Items, Part
from labeldp.release.release import Release, check_release
from labeldp.validate import check_choice

OWNER = "ReleasedDataset"
KINDS = ("likelihood", "unbiased", "values")
#: Rows of an array that are looked at together.
CHUNK = 4096


class ReleasedItems:
    """Pairs (x, evidence): each example of `dataset`, and what the release says of its label.

    Parameters
    ----------
    dataset : array, tensor, or dataset with a length and items by number
        The features of the released rows, in their order. Rows of an array come as float32, unless they are whole numbers.
    release : Release
        What was released of those rows.
    take : int, str or tuple of them, optional
        Which part of an item is the input; by default the first of a tuple. Labels beside it are left behind.
    evidence : {"likelihood", "unbiased", "values"}, optional
        What is said of a label (see the module); by default the likelihood, and for numbers the values.

    Notes
    -----
    A dataset of another length than the release is refused, when it is given and whenever it changes later.
    """

    def __init__(self, dataset: Any, release: Any, *, take: Part = None, evidence: str | None = None) -> None:
        check_release(OWNER, release)
        _refuse_label_column(dataset, release)
        self._inputs = _check_inputs(dataset, take)
        if len(self._inputs) != len(release):
            got = Described(f"{len(self._inputs)} examples for {len(release)} released rows")
            fix = "Use release.take(rows) with the same rows of both."
            raise invalid(OWNER, "dataset", "have one example per released row", got=got, fix=fix)
        self._evidence, self.kind = _open_evidence(release, evidence), _choose_kind(release, evidence)
        self.classes = release.classes
        #: The promise of the release, which training on it does not change; and whether its noise came from a seed: then there is none.
        self.guarantee, self.seeded = release.guarantee, release.seeded
        self._whole: Float32s | None = None

    def __len__(self) -> int:
        return len(self._evidence)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        """Return one example and its evidence."""
        place = np.array([range(len(self))[row]])  # below 0 counts from the end, beyond it is an IndexError
        return self._read(place)[0], self._say(place)[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        """Return several examples and their evidence, which is made for all of them at once: what PyTorch's loaders ask for.

        They stack tensors several times faster than rows of arrays, so arrays come as tensors here where torch is loaded.
        """
        numbers = range(len(self))
        places = np.array([numbers[row] for row in rows], np.intp)
        return list(zip(_split(self._read(places)), _split(self._say(places)), strict=True))

    def _read(self, places: Array) -> Any:
        """Return the inputs of some examples, one after the other: rows of a new array or tensor, or items one by one."""
        if isinstance(self._inputs, Items):
            items = [self._inputs[place] for place in places.tolist()]
            return [x.astype(np.float32) if _is_wide(x) else x for x in items]
        chosen = self._inputs[places]
        return chosen.astype(np.float32) if _is_wide(chosen) else chosen

    def _say(self, places: Array) -> Any:
        if not isinstance(self._evidence, LazyRows):
            return self._evidence[places]
        if self._whole is None and is_small(self._evidence):
            self._whole = self._evidence.make(slice(None)).astype(np.float32)
        return self._evidence.make(places).astype(np.float32) if self._whole is None else self._whole[places]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": None}  # codes are smaller, and say the same

    def __repr__(self) -> str:
        warning = "SEEDED, NOT PRIVATE; " if self.seeded else ""
        return f"<{type(self).__name__}: {warning}{len(self)} examples with the {self.kind} of what was released, {len(self.classes)} classes>"


def _split(batch: Any) -> Any:
    """Return the rows of an array or a tensor, as tensors where torch is loaded; a list of items as it is."""
    torch: Any = sys.modules.get("torch")
    if torch is None or isinstance(batch, list):
        return batch
    return torch.as_tensor(batch).unbind(0)


def _is_wide(x: Any) -> bool:
    """Whether x is an array of floats other than float32: networks take that."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.dtype != np.float32


def _refuse_label_column(dataset: Any, release: Release) -> None:
    """Refuse a table that still has the column of the labels: raw or released, it is no feature."""
    names = getattr(dataset, "column_names", getattr(dataset, "columns", ()))
    if release.label_column is not None and release.label_column in list(names):
        got = Described(f"a table with the column `{release.label_column}`")
        raise invalid(OWNER, "dataset", "be without the labels", got=got, fix="Drop the column: labels have one door.")


def _check_inputs(dataset: Any, take: Part) -> Any:
    """Return an array or a tensor as it is, finite, and anything else as items without their labels."""
    if scipy.sparse.issparse(dataset):
        fix = "Use X.toarray(), or a dataset that makes rows of it."
        raise invalid(OWNER, "dataset", "be dense", got=Described("a sparse matrix"), fix=fix)
    if isinstance(dataset, np.ndarray) or (hasattr(dataset, "__array__") and not hasattr(dataset, "requires_grad")):
        array: Array = np.asarray(dataset)
        if array.ndim < 1 or array.dtype.kind not in "fiub":
            got = Described(f"an array of shape {array.shape} and type {array.dtype}")
            fix = "Turn categories and texts into numbers first."
            raise invalid(OWNER, "dataset", "be numbers, one example after the other", got=got, fix=fix)
        if array.dtype.kind == "f":
            _refuse_gaps(array, np.isfinite)
        return array
    if hasattr(dataset, "requires_grad"):  # a tensor: rows of it are tensors
        if dataset.ndim < 1:
            raise invalid(OWNER, "dataset", "be numbers, one example after the other", got=Described("a single number"))
        if dataset.is_floating_point() and not dataset.is_meta:
            _refuse_gaps(dataset.detach(), lambda part: part.isfinite().cpu().numpy())
        return dataset
    return Items(dataset, owner=OWNER, take=take)


def _refuse_gaps(rows: Any, are_finite: Callable[[Any], Array]) -> None:
    """Refuse NaN and infinity in an array or a tensor, with the row."""
    for low in range(0, len(rows), CHUNK):
        part = rows[low : low + CHUNK]
        finite = are_finite(part).reshape(len(part), -1).all(axis=1)
        if not finite.all():
            got = Described(f"NaN or infinity in row {low + int(np.argmin(finite))}")
            raise invalid(OWNER, "dataset", "be finite", got=got)


def _choose_kind(release: Release, kind: str | None) -> str:
    numbers = isinstance(release.channel, NumericChannel)
    chosen = ("values" if numbers else "likelihood") if kind is None else check_choice(OWNER, "evidence", kind, KINDS)
    if (chosen == "values") != numbers:
        got = Described(f"{chosen!r} for a release of {'numbers' if numbers else 'labels'}")
        raise invalid(OWNER, "evidence", "be 'values' for numbers, and for numbers alone", got=got)
    return chosen


def _open_evidence(release: Release, kind: str | None) -> Any:
    """Return what is said of all rows, made when it is asked for; of numbers, an array."""
    chosen = _choose_kind(release, kind)
    if chosen == "values":
        return release.values.astype(np.float32)
    if len(release) and release.channel.epsilon == 0:
        got = Described("one whose answers say nothing (epsilon 0)")
        fix = "A release that holds a prior and no answers is for LabelPrivateClassifier.fit_release."
        raise invalid(OWNER, "release", "say something of labels", got=got, fix=fix)
    kinds = {"likelihood": Evidence, "unbiased": UnbiasedTargets}
    rows: LazyRows = kinds[chosen](release.codes, release.channel)
    if chosen == "unbiased" and len(release):
        rows.make(slice(0, 1))  # a channel that cannot be inverted says so now
    return rows
