"""`SensitiveLabels`: raw labels on their way to the door, showing nothing of themselves.

>>> SensitiveLabels(["yes", "no", "no"], classes=["no", "yes"])
<SensitiveLabels 'labels': 3 labels of 2 classes, contents hidden>

Labels of any hashable kind become codes 0 .. K-1 by a public list of classes. Without a list, a categorical or boolean
dtype says what the classes are, integers are taken as 0 .. K-1 when K is known, and otherwise the list is read off the
labels themselves: which classes occur is then taken to be public, and the guarantee says so among its assumptions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer, code_dtype
from labeldp.errors import Described, LabelDPError, invalid, nearest
from labeldp.release._encoding import as_plain, categories_of, first_unknown, is_declared, look_up, missing_in

Codes = npt.NDArray[np.unsignedinteger[Any]]

CLASSES_READ_OFF = "the list of classes is public (it was read off the labels)"


class SensitiveLabels:
    """Labels that must not be shown: no values in repr, no iteration, no pickling.

    Parameters
    ----------
    values : sequence, NumPy array, pandas, polars or pyarrow column
        One label per example.
    classes : sequence of hashables, optional
        The public list of classes, in the order of their codes.
    n_classes : int, optional
        K, for integer labels 0 .. K-1 without a list.
    name : str
        What a ledger calls this set of labels; a budget belongs to a name.
    row_ids : sequence, optional
        Public identifiers of the rows, for the ledger's fingerprint.
    """

    __slots__ = ("_codes", "classes", "classes_read_off", "name", "row_ids")

    def __init__(
        self,
        values: Any,
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
        name: str = "labels",
        row_ids: Any = None,
    ) -> None:
        self.name = str(name)
        self.row_ids = row_ids
        if n_classes is not None:
            check_integer("labels", "n_classes", n_classes, least=1)
        plain, dtype_classes = _column(values)
        self.classes_read_off = False
        if classes is not None:
            self.classes = _checked_classes(classes)
        elif dtype_classes is not None:
            self.classes = dtype_classes
            # An inferred categorical lists what occurs in the data; an enumeration or a boolean is declared beforehand.
            self.classes_read_off = not is_declared(values, plain)
        elif n_classes is not None and plain.dtype.kind in "iu":
            self.classes = tuple(range(n_classes))
        else:
            self.classes = _read_off(plain)
            self.classes_read_off = True
        self._codes = _encoded(plain, self.classes)
        if n_classes is not None and n_classes != len(self.classes):
            fix = "Pass classes=, the full public list: a class that happens not to occur still counts."
            raise invalid(
                "labels", "classes", f"have {n_classes} entries", got=Described(f"{len(self.classes)}"), fix=fix
            )

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"<SensitiveLabels {self.name!r}: {len(self)} labels of {self.n_classes} classes, contents hidden>"

    def __iter__(self) -> NoReturn:
        raise LabelDPError("SensitiveLabels: labels are not shown. Use labeldp.privatize or labeldp.measure.")

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("SensitiveLabels: labels are not pickled. Privatize them first and share the release.")

    def take(self, rows: Any) -> SensitiveLabels:
        """Return the labels of a subset of rows (a stage, a part), under the same name and classes."""
        part = object.__new__(SensitiveLabels)
        part.name, part.classes, part.classes_read_off = self.name, self.classes, self.classes_read_off
        part.row_ids = None if self.row_ids is None else np.asarray(self.row_ids)[rows]
        part._codes = self._codes[rows]
        return part


def codes_of(labels: SensitiveLabels) -> Codes:
    """Return the raw codes. Only the door may call this, and PATE.

    PATE's teachers learn from raw labels inside the curator; what comes out are noisy votes, charged to the ledger.
    """
    return labels._codes  # noqa: SLF001 - the one place that opens the box


def as_sensitive(labels: Any, n_classes: int | None) -> SensitiveLabels:
    """Return labels boxed; labels that already are must have the number of classes that the mechanism expects."""
    boxed = labels if isinstance(labels, SensitiveLabels) else SensitiveLabels(labels, n_classes=n_classes)
    if n_classes is not None and boxed.n_classes != n_classes:
        got = Described(f"{n_classes} from the mechanism or prior for {boxed.n_classes} classes of labels")
        raise invalid("labels", "n_classes", "agree with the list of classes", got=got)
    if len(boxed) == 0:
        raise invalid("labels", "labels", "hold at least one label", got=Described("none"))
    return boxed


def _column(values: Any) -> tuple[npt.NDArray[Any], tuple[Hashable, ...] | None]:
    """Return labels as a NumPy vector, and the classes that their dtype declares, if it declares any."""
    if isinstance(values, SensitiveLabels):
        raise invalid("SensitiveLabels", "values", "be raw labels", got=Described("labels that are boxed already"))
    declared = categories_of(values)
    plain = as_plain(values)
    if plain.ndim != 1:
        raise invalid("labels", "labels", "be one label per example", got=Described(f"an array of shape {plain.shape}"))
    gone = missing_in(plain)
    if gone:
        fix = "Drop or fill them first: a missing label is not a class unless you say so."
        raise invalid("labels", "labels", "have no missing values", got=Described(f"{gone} missing"), fix=fix)
    if declared is None and plain.dtype == np.bool_:
        declared = (False, True)
    return plain, declared


def _checked_classes(classes: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return the list of classes, each once."""
    listed = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    odd = next((c for c in listed if not isinstance(c, Hashable)), None)
    if odd is not None:
        raise invalid("labels", "classes", "be hashable", got=Described(f"a {type(odd).__name__}"), fix="Use text.")
    if len(set(listed)) != len(listed):
        twice = next(c for c in listed if listed.count(c) > 1)
        raise invalid("labels", "classes", "name each class once", got=Described(f"{twice!r} twice"))
    return listed


def _read_off(plain: npt.NDArray[Any]) -> tuple[Hashable, ...]:
    """Return the classes that occur, sorted: their order says nothing about whose they are."""
    try:
        return tuple(np.unique(plain).tolist())
    except TypeError:
        fix = "Pass classes=, the full public list, in the order of your choice."
        raise invalid("labels", "labels", "be of one kind to be sorted", got=Described("a mixture"), fix=fix) from None


def _encoded(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> Codes:
    """Return codes in the smallest dtype, or say which value is no class and how often; never more of the labels."""
    codes = look_up(plain, classes)
    if codes is None:
        value, count = first_unknown(plain, classes)
        got = Described(f"{value!r}, {count} time{'s' if count > 1 else ''}")
        fix = nearest(str(value), [str(c) for c in classes]) + " Pass classes=, the full public list."
        raise invalid("labels", "labels", "be among the classes", got=got, fix=fix)
    # A copy even where the dtype fits: a caller who changes her array later must not change labels that were checked.
    return codes.astype(code_dtype(len(classes)))
