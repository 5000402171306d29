"""Examples that come one by one: datasets as PyTorch has them (a length, and an item for each number), without PyTorch.

>>> class Pairs:
...     def __len__(self):
...         return 3
...
...     def __getitem__(self, row):
...         return np.array([row, row + 0.5]), "a label"
>>> pairs = Pairs()
>>> is_dataset(pairs), is_dataset([1, 2]), is_dataset(np.zeros((2, 2)))
(True, False, False)
>>> inputs = Items(pairs, owner="example")
>>> inputs[1].tolist(), len(inputs.take(np.array([2, 0])))
([1.0, 1.5], 2)

**Privacy.** A dataset of somebody else often yields (input, label). Labels have one door (`labeldp.privatize`), and this is not
it: `Items` hands out the input and nothing else. The first part of a tuple is the input, as everywhere in PyTorch, unless `take`
names another; a first part that is a single number, or a text beside more than numbers, may as well be the label of
(label, input), so then `take` must say; what stands beside it is dropped where it is read. An input that has parts itself (a pair in a pair, a row of a
table, an array of objects) is refused: a label may be one of them. The dataset itself stays as it is: if it holds labels, so
does a process that it is sent to.

Design notes. Arrays are looked at in slices and are no datasets; nor are lists, texts and tables. A dataset whose length changes would
give an example the evidence of another, so every access compares lengths. Nothing here imports torch: a `torch.utils.data.Dataset`
is recognised by what it can do, and so is anything that behaves like one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from labeldp.arrays import Places
from labeldp.errors import Described, LabelDPError, invalid

#: Which part of an item is the input: a place, a key, or several of them.
Part = int | str | tuple[int | str, ...] | None


def is_dataset(X: Any) -> bool:
    """Whether X gives examples by their numbers, and is no array, table, list, mapping or text."""
    known = isinstance(X, (str, bytes, list, tuple, Mapping)) or hasattr(X, "shape") or hasattr(X, "__array__")
    return not known and hasattr(X, "__getitem__") and hasattr(X, "__len__")


class Items:
    """The inputs of a dataset, or of some `rows` of it, by number; labels beside them stay behind.

    `take` says which part of an item is the input: a place in a tuple, a key of a mapping, or several, which come as a tuple
    or a mapping again. By default it is the first part of a tuple, or the whole item where it is no tuple. What has parts of its
    own is no input, except numbers in lists and tuples that `take` named.
    """

    def __init__(self, dataset: Any, *, owner: str, take: Part = None, rows: Places | None = None) -> None:
        if isinstance(dataset, Items):
            raise invalid(owner, "dataset", "be a dataset of yours", got=Described("one that is wrapped already"))
        # An iterable dataset of torch inherits `__getitem__` without having one, and may have a length.
        streams = any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__)
        if streams or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            got = Described(f"a {type(dataset).__name__}")
            fix = "Examples are taken by their numbers: use a map-style dataset, with `__len__` and `__getitem__`."
            raise invalid(owner, "dataset", "be map-style", got=got, fix=fix)
        self._length = len(dataset)
        self._dataset, self._owner, self._part = dataset, owner, take
        self._rows = rows

    def __len__(self) -> int:
        return self._length if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Any:
        """Return the input of one example."""
        place = self._find(int(row))
        now = len(self._dataset)
        if now != self._length:
            raise invalid(
                self._owner, "dataset", f"keep its {self._length} items", got=Described(f"{now} of them"), fix=CHANGED
            )
        return choose_part(self._owner, self._dataset[place], self._part)

    def _find(self, row: int) -> int:
        if not -len(self) <= row < len(self):
            raise IndexError(f"{self._owner}: there is no example {row}: there are {len(self)}")
        row += len(self) if row < 0 else 0
        return row if self._rows is None else int(self._rows[row])

    def read(self) -> Any:
        """Return all inputs as one array of finite numbers."""
        stacked = stack_items(self._owner, list(self))
        if stacked.dtype.kind == "f":
            finite = np.isfinite(stacked).reshape(len(stacked), -1).all(axis=1)
            if not finite.all():
                raise self.describe_gap(int(np.argmin(finite)))
        return stacked

    def describe_gap(self, row: int) -> LabelDPError:
        """Return the error for an example that is no numbers, by the number that it has in the dataset itself."""
        got = Described(f"NaN or infinity in item {self._find(int(row))}")
        return invalid(self._owner, "dataset", "be finite", got=got, fix="Fill what is missing in its transform.")

    def take(self, rows: Any) -> Items:
        """Return some of the examples, in the order of `rows`; nothing is read yet."""
        old = np.arange(self._length) if self._rows is None else self._rows
        chosen = Items(self._dataset, owner=self._owner, take=self._part, rows=old[rows])
        chosen._length = self._length  # what it was at first, not what it may be by now
        return chosen

    def __repr__(self) -> str:
        return f"<Items: the inputs of {len(self)} examples of a {type(self._dataset).__name__}>"


CHANGED = (
    "Rows and what was released of them go by their numbers. Wrap the dataset again, with the release of its rows."
)


#: What counts as a number in a list or tuple.
NUMBERS = (int, float, np.number)


def choose_part(owner: str, item: Any, part: Part) -> Any:
    """Return the input of an item, as an array or a tensor where it is numbers; the rest of the item is dropped."""
    if isinstance(part, tuple):
        chosen = {name: choose_part(owner, item, name) for name in part}
        return chosen if isinstance(item, Mapping) else tuple(chosen.values())
    if isinstance(item, Mapping):
        if part is None or part not in item:
            got = Described(f"{part!r} for an item with the keys {', '.join(map(repr, item))}")
            fix = 'Name the inputs, e.g. take="image" or take=("input_ids", "attention_mask"). Never name a label.'
            raise invalid(owner, "take", "name what is the input in a mapping", got=got, fix=fix)
        item = item[part]
    elif isinstance(item, Sequence) and not isinstance(item, (str, bytes)):
        if part is None and len(item) and _may_be_label(item):
            kind = "text" if isinstance(item[0], (str, bytes)) else "number"
            only = all(_is_number(one) for one in item)
            what = f"of {len(item)} numbers" if only else f"that begins with a {kind}, of {len(item)} parts"
            got = Described(f"a {type(item).__name__} {what}")
            name = "Make an array of rows that are numbers, np.asarray(rows); or name" if kind == "number" else "Name"
            fix = (
                f"A {kind} that comes first may be the label. {name} the input with take=, e.g. take=0 for ({kind}, label), "
                "take=1 for (label, input)."
            )
            raise invalid(owner, "dataset", "say which part of an item is the input", got=got, fix=fix)
        place = 0 if part is None else part
        if not isinstance(place, int) or not -len(item) <= place < len(item):
            got = Described(f"{part!r} for an item of {len(item)} parts")
            raise invalid(owner, "take", "be the place of the input in an item", got=got)
        item = item[place]
    elif part not in (None, 0):
        got = Described(f"{part!r} for a {type(item).__name__} without parts")
        raise invalid(owner, "take", "be left out where items have no parts", got=got)
    if isinstance(item, (str, bytes)):
        return item
    _refuse_parts(owner, item, named=part is not None)
    return item if hasattr(item, "shape") else as_numbers(owner, item)


def _refuse_parts(owner: str, item: Any, *, named: bool) -> None:
    """Refuse an input that has parts of its own: nobody said that none of them is a label.

    A list or tuple of nothing but numbers is an input where `take` named it. Where nobody did, it may be a row, or (number, label).
    """
    if isinstance(item, (Mapping, Sequence)):
        parts = not (named and _is_plain(item))
    elif isinstance(item, (np.ndarray, np.generic)):
        parts = item.dtype.kind in "OV"  # objects; fields, as in a row of a structured array
    else:
        parts = any(hasattr(item, mark) for mark in ("iloc", "columns", "column_names"))  # rows of tables
    if parts:
        got = Described(f"a {type(item).__name__}, which has parts of its own")
        fix = "A label may be among them: let the dataset yield (array or tensor, anything else), or name the input with take=."
        raise invalid(owner, "dataset", "have inputs that are one array of numbers, or a text", got=got, fix=fix)


def _may_be_label(item: Sequence[Any]) -> bool:
    """Whether the first part may be the label of (label, input): a number, or a text unless only numbers, which are codes, are beside it."""
    first, *others = item
    if isinstance(first, (str, bytes)):
        return not all(_is_number(one) for one in others)
    return _is_number(first)


def _is_number(item: Any) -> bool:
    """Whether it is one number, also as an array or a tensor without axes."""
    return isinstance(item, NUMBERS) or (hasattr(item, "shape") and hasattr(item, "dtype") and len(item.shape) == 0)


def _is_plain(item: Any) -> bool:
    """Whether a list or tuple holds numbers, or lists and tuples of them, and nothing else."""
    if isinstance(item, (list, tuple)):
        return all(_is_plain(part) for part in item)
    return isinstance(item, NUMBERS)


def as_numbers(owner: str, item: Any) -> Any:
    """Return an input that is no array yet as one; refuse what is no numbers."""
    try:
        array = np.asarray(item)
    except (ValueError, TypeError):  # lists of different lengths; the message may quote data
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        got = Described(f"a {type(item).__name__}")
        fix = "Let the dataset turn it into numbers, in its transform."
        raise invalid(owner, "dataset", "have items that are numbers", got=got, fix=fix)
    return array


def stack_items(owner: str, items: Sequence[Any]) -> Any:
    """Return inputs of one shape as one array; tensors, wherever they are, come as arrays too."""
    arrays = [item.detach().cpu().numpy() if hasattr(item, "detach") else np.asarray(item) for item in items]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        got = Described(f"shapes {' and '.join(map(str, sorted(shapes, key=str)[:2]))}")
        fix = "Let the dataset bring its items to one size, in its transform."
        raise invalid(owner, "dataset", "have items of one shape", got=got, fix=fix)
    return np.stack(arrays)
