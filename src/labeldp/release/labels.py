"""Raw labels on their way to the door: boxed so that they show nothing, and checked.

>>> SensitiveLabels(["yes", "no", "no"], classes=["no", "yes"])
<SensitiveLabels 'labels': 3 labels of 2 classes, contents hidden>

Labels of any hashable kind become codes 0 .. K-1 by a public list of classes. Without a list, a categorical or boolean
dtype says what the classes are, integers are taken as 0 .. K-1 when K is known, and otherwise the list is read off the
labels themselves. Which classes occur is then taken to be public, and whoever made the list has seen the labels of all:
the guarantee says both, and a class that one row alone has is refused, since the list itself would give that row away.

Numbers (amounts, durations, counts) have public bounds instead of classes; `labeldp.release.numbers` reads them.

>>> SensitiveLabels([120.0, 99.5], bounds=(0, 100))
<SensitiveLabels 'labels': 2 numbers in [0, 100], contents hidden>

No message here shows a label, or says how often one occurs: messages end up in logs. They say which row is at fault, and
whoever may see the labels can look there. How many labels are missing is said: that a row has no label is a fact about
which rows can be released at all, and the release shows it anyway.

Design notes. `SensitiveLabels` is the box, `box_labels` the way in for every learner, `codes_of` the only way out, used by
the door alone. What may be spent on them, and what a promise about them stands on, is the other half: `labeldp.release.budget`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Codes
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.mechanisms.numbers import check_bounds
from labeldp.release.numbers import Asked, read_numbers, say_bounds
from labeldp.validate import check_class_list, check_classes, check_integer, check_not_alone, code_dtype, hide_labels

#: What to do with labels that look like quantities.
NUMBERS = "Amounts are no classes: they have public bounds (UnbiasedResponse(bounds=), LabelPrivateRegressor)."


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
        Public identifiers of the rows, by which a ledger recognises them, under another name too.
    bounds : (low, high), optional
        Public bounds of labels that are numbers, never read off them; then there are no classes.
    outside : {"clip", "refuse"}
        What is done with a number outside of the bounds: it is brought to the nearest one, and the guarantee says so; or
        the labels are refused.

    Attributes
    ----------
    classes, n_classes : the list of classes and its length; none, and 0, for numbers
    bounds, outside : of numbers; None for classes. Numbers on a grid (`labeldp.release.grid`) have both
    classes_read_off : whether the list was read off the labels
    beside : what its owner handed in with the labels (features, say), which must not have seen them; see `Budget.state`
    """

    __slots__ = ("_codes", "_owners", "beside", "bounds", "classes", "classes_read_off", "name", "outside", "row_ids")

    def __init__(
        self,
        values: Any,
        *,
        classes: Sequence[Hashable] | None = None,
        n_classes: int | None = None,
        name: str = "labels",
        row_ids: Any = None,
        bounds: tuple[float, float] | None = None,
        outside: str = "clip",
    ) -> None:
        self.name = name if hasattr(name, "rows") else str(name)  # an AccountName knows its rows
        self.row_ids = row_ids
        self.beside: tuple[str, ...] = ()
        self.bounds = None if bounds is None else check_bounds("labels", bounds)
        self.outside = None if bounds is None else outside
        self._owners: Any = None  # the persons whom the list of classes was compared with (`with_persons`)
        self._codes: npt.NDArray[Any]
        if self.bounds is not None:
            if classes is not None or n_classes is not None:
                got, fix = Described("both"), "Numbers have bounds, classes have a list."
                raise invalid("labels", "bounds", "be left out where classes are given", got=got, fix=fix)
            self.classes: tuple[Hashable, ...] = ()
            self.classes_read_off = False
            _refuse_boxed(values)
            self._codes = read_numbers(as_plain(values), self.bounds, outside=outside)
            return
        if n_classes is not None:
            check_integer("labels", "n_classes", n_classes, least=1)
        with hide_labels("labels", "labels", must="be single values: numbers, texts, dates"):
            plain, dtype_classes = _read_column(values)
            self._set_classes(
                plain, dtype_classes, declared=is_declared(values, plain), classes=classes, n_classes=n_classes
            )

    def _set_classes(
        self,
        plain: npt.NDArray[Any],
        dtype_classes: tuple[Hashable, ...] | None,
        *,
        declared: bool,
        classes: Sequence[Hashable] | None,
        n_classes: int | None,
    ) -> None:
        """Choose the list of classes: as given, as the column's type declares it, or as labels have it; and encode."""
        self.classes_read_off = False
        if classes is not None:
            self.classes = _check_classes(classes)
        elif dtype_classes is not None:
            self.classes = dtype_classes
            # An inferred categorical lists what occurs in the data; an enumeration or a boolean is declared beforehand.
            self.classes_read_off = not declared
        elif n_classes is not None and plain.dtype.kind in "iu":
            self.classes = tuple(range(n_classes))
        else:
            self.classes = _read_classes_off(plain)
            self.classes_read_off = True
        self._codes = _encode(plain, self.classes)
        if n_classes is not None and n_classes != len(self.classes):
            fix = "Pass classes=, the full public list: a class that happens not to occur still counts."
            raise invalid(
                "labels", "classes", f"have {n_classes} entries", got=Described(f"{len(self.classes)}"), fix=fix
            )
        if self.classes_read_off:
            counts = np.bincount(self._codes, minlength=len(self.classes))
            try:
                check_not_alone("labels", "labels", counts, find_row=lambda code: int(np.argmax(self._codes == code)))
            except LabelDPError as error:
                if plain.dtype.kind != "f":
                    raise
                raise LabelDPError(f"{error} {NUMBERS}") from None

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        what = (
            f"labels of {self.n_classes} classes" if self.bounds is None else f"numbers in [{say_bounds(self.bounds)}]"
        )
        return f"<SensitiveLabels {self.name!r}: {len(self)} {what}, contents hidden>"

    def __iter__(self) -> NoReturn:
        raise LabelDPError("SensitiveLabels: labels are not shown. Use labeldp.privatize or labeldp.measure.")

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("SensitiveLabels: labels are not pickled. Privatize them first and share the release.")

    def fingerprint(self, *, start: int = 0) -> str:
        """Return what a ledger knows these rows by, without a word about their labels."""
        from labeldp.accounting import fingerprint

        return fingerprint(self.name, n_rows=len(self), start=start, row_ids=self.row_ids)

    def take(self, rows: Any) -> SensitiveLabels:
        """Return the labels of a subset of rows (a stage, a part), under the same name and classes."""
        part = object.__new__(SensitiveLabels)
        part.name, part.classes, part.classes_read_off = self.name, self.classes, self.classes_read_off
        part.row_ids = None if self.row_ids is None else np.asanyarray(self.row_ids)[rows]
        part._codes, part.beside = self._codes[rows], self.beside
        part.bounds, part.outside = self.bounds, self.outside
        part._owners = None if self._owners is None else self._owners.take(rows)
        return part

    def with_beside(self, *things: str) -> SensitiveLabels:
        """Return the same labels, handed in with these things beside them."""
        same = self.take(slice(None))
        same.row_ids, same.beside = self.row_ids, (*self.beside, *things)
        return same

    def with_persons(self, persons: Any) -> SensitiveLabels:
        """Return the same labels, once their list of classes was found to name no class that one of these persons alone has.

        `persons` (`labeldp.release.Persons`) own the rows. A list that was read off speaks of all labels, so all are looked at, here and
        once. Parts of the answer remember it: in a part a class may be one person's by chance, and the list does not tell of that.
        """
        check_classes_shared(self, persons)
        same = self.with_beside()
        same._owners = persons if self.classes_read_off else None  # noqa: SLF001 - its own
        return same


def codes_of(labels: SensitiveLabels) -> npt.NDArray[Any]:
    """Return the raw codes, or the raw numbers. Only the door may call this, and PATE.

    PATE's teachers learn from raw labels inside the curator; what comes out are noisy votes, charged to the ledger.
    """
    return labels._codes  # noqa: SLF001 - the one place that opens the box


def check_classes_shared(labels: SensitiveLabels, persons: Any) -> None:
    """Refuse a list of classes, read off labels, with a class that one person alone has, in however many rows.

    As a class that one row alone has where labels are protected: without her labels it would not be on the list, which becomes
    public. `persons` (`labeldp.release.Persons`) own the rows. The message says which row it is, and not which class.

    Labels that came through `with_persons`, and parts of them, are not looked at again, if they are given the persons that were compared
    then. Given others they are: who shares a class among some persons may be alone with it among others.
    """
    known = labels._owners  # noqa: SLF001 - this is the box's own chapter
    if not labels.classes_read_off or (known is not None and (known is persons or known.digest == persons.digest)):
        return
    codes, owners = labels._codes.astype(np.int64), persons.codes  # noqa: SLF001 - this is the box's own chapter
    some = np.full(labels.n_classes, -1, np.int64)
    some[codes] = owners  # one owner of each class, whichever
    shared = np.zeros(labels.n_classes, np.bool_)
    shared[codes[owners != some[codes]]] = True
    alone = np.flatnonzero(~shared & (some >= 0))
    if alone.size:
        refuse_lonely_class("labels", f"row {int(np.argmax(codes == alone[0])):,}")


def list_owners(labels: SensitiveLabels, persons: Any) -> dict[int, tuple[frozenset[Any], int]]:
    """Return, for each class of a batch, the ids of two of its owners or of the only one, and a row of it.

    For a table, whose classes and persons are in many batches; it stays with whoever reads the labels (`labeldp.engines`).
    """
    codes = labels._codes.astype(np.int64)  # noqa: SLF001 - this is the box's own chapter
    found: dict[int, tuple[frozenset[Any], int]] = {}
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        mine = persons.codes[rows]
        other = mine[mine != mine[0]][:1].tolist()
        ids = [persons.ids[place].as_py() for place in (int(mine[0]), *other)]
        found[code] = (frozenset(ids), int(rows[0]))
    return found


def refuse_lonely_class(owner: str, row: str) -> NoReturn:
    """Raise the refusal of a class that the owner of a row alone has."""
    got = Described(f"one that the owner of {row} alone has (rows count from 0)")
    fix = (
        "The list of classes becomes public and would give that person away: merge her class into another one, or pass "
        "classes= (--classes), the full list, if everyone knows which classes there are."
    )
    raise invalid(owner, "labels", "be shared by two persons or more where the classes are read off", got=got, fix=fix)


def as_sensitive(labels: Any, n_classes: int | None) -> SensitiveLabels:
    """Return labels boxed; labels that already are must have the number of classes that the mechanism expects."""
    boxed = labels if isinstance(labels, SensitiveLabels) else SensitiveLabels(labels, n_classes=n_classes)
    if boxed.bounds is not None and not boxed.classes:  # numbers on a grid have codes
        fix = "For numbers use privatize with UnbiasedResponse(epsilon, bounds=...), or LabelPrivateRegressor."
        raise invalid("labels", "labels", "have classes here", got=Described("numbers with bounds"), fix=fix)
    if n_classes is not None and boxed.n_classes != n_classes:
        got = Described(f"{n_classes} from the mechanism or prior for {boxed.n_classes} classes of labels")
        raise invalid("labels", "n_classes", "agree with the list of classes", got=got)
    if len(boxed) == 0:
        raise invalid("labels", "labels", "hold at least one label", got=Described("none"))
    return boxed


def as_sensitive_numbers(labels: Any, bounds: tuple[float, float], *, outside: str = "clip") -> SensitiveLabels:
    """Return numbers boxed, clipped to these bounds; those that already are boxed must have them."""
    boxed = labels if isinstance(labels, SensitiveLabels) else SensitiveLabels(labels, bounds=bounds, outside=outside)
    if boxed.bounds is None or boxed.classes:  # numbers on a grid are codes: a channel would take them for its levels
        fix = "Box numbers as SensitiveLabels(values, bounds=(low, high))."
        raise invalid("labels", "labels", "be numbers", got=Described(f"{boxed.n_classes} classes"), fix=fix)
    if boxed.bounds != bounds:
        got = Described(f"[{say_bounds(boxed.bounds)}] for a mechanism of [{say_bounds(bounds)}]")
        raise invalid("labels", "bounds", "be those of the mechanism", got=got, fix="Give both the same public bounds.")
    if len(boxed) == 0:
        raise invalid("labels", "labels", "hold at least one label", got=Described("none"))
    return boxed


class NumberRule(NamedTuple):
    """What the numbers of a table's label column are checked against, before anything is spent: `labeldp.data.label_profile`."""

    bounds: tuple[float, float]
    outside: str

    def check(self, values: Any, rows: npt.NDArray[np.int64], *, label: str, first: int = 0, where: str = "") -> None:
        """Refuse values of an Arrow column that are no numbers, or not within bounds where that is asked; `rows` are theirs."""
        fix = f"Text is read as numbers with types={{{label!r}: 'double'}} (--type {label}=double). Classes have no bounds."
        asked = Asked(label, "label", fix=fix, rows=rows + first, where=f"{where} (rows count from 0)")
        plain = values.dictionary_decode() if hasattr(values, "dictionary_decode") else values
        read_numbers(as_plain(plain), self.bounds, outside=self.outside, asked=asked)


def _refuse_boxed(values: Any) -> None:
    if isinstance(values, SensitiveLabels):
        raise invalid("SensitiveLabels", "values", "be raw labels", got=Described("labels that are boxed already"))


def _read_column(values: Any) -> tuple[npt.NDArray[Any], tuple[Hashable, ...] | None]:
    """Return labels as a NumPy vector, and the classes that their dtype declares, if it declares any."""
    _refuse_boxed(values)
    declared = categories_of(values)
    plain = as_plain(values)
    if plain.ndim != 1:
        raise invalid("labels", "labels", "be one label per example", got=Described(f"an array of shape {plain.shape}"))
    _refuse_missing("labels", "labels", plain)
    if declared is None and plain.dtype == np.bool_:
        declared = (False, True)
    return plain, declared


def refuse_masked(owner: str, name: str, values: Any) -> None:
    """Refuse an array with masked values: scikit-learn would take what lies under the mask."""
    if np.ma.is_masked(values):
        _refuse_missing(owner, name, _from_sequence(values))


def _refuse_missing(owner: str, name: str, plain: npt.NDArray[Any]) -> None:
    gone = count_missing(plain.reshape(-1))
    if gone:
        fix = "Drop or fill them first: a missing label is not a class unless you say so."
        raise invalid(owner, name, "have no missing values", got=Described(f"{gone} missing"), fix=fix)


def _check_classes(classes: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return the list of classes, each once."""
    listed = check_class_list("labels", classes)
    odd = next((c for c in listed if not isinstance(c, Hashable)), None)
    if odd is not None:
        raise invalid("labels", "classes", "be hashable", got=Described(f"a {type(odd).__name__}"), fix="Use text.")
    if len(set(listed)) != len(listed):
        place = next(
            j for j, c in enumerate(listed) if c in listed[:j]
        )  # not its name: labels may have been given here
        raise invalid("labels", "classes", "name each class once", got=Described(f"one again at place {place}"))
    return listed


def _read_classes_off(plain: npt.NDArray[Any]) -> tuple[Hashable, ...]:
    """Return the classes that occur, sorted: their order says nothing about whose they are."""
    try:
        return tuple(np.unique(plain).tolist())
    except TypeError:
        fix = "Pass classes=, the full public list, in the order of your choice."
        raise invalid("labels", "labels", "be of one kind to be sorted", got=Described("a mixture"), fix=fix) from None


def _encode(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> Codes:
    """Return codes in the smallest dtype, or say which row has a label that is no class; never what it is."""
    codes = look_up(plain, classes)
    if codes is None:
        got = Described(f"another one in row {find_unknown(plain, classes)} (rows count from 0)")
        fix = "Pass classes=, the full public list, with values of the same type; the label is not shown."
        raise invalid("labels", "labels", "be among the classes", got=got, fix=fix)
    # A copy even where the dtype fits: a caller who changes her array later must not change labels that were checked.
    return codes.astype(code_dtype(len(classes)))


def categories_of(values: Any) -> tuple[Hashable, ...] | None:
    """Return the classes that a categorical column declares, or None for other columns.

    Duck-typed, so that none of the libraries need be installed: pandas has `.cat.categories` or `.categories`, a polars
    Enum `.dtype.categories`, pyarrow a dictionary type. A polars Categorical declares nothing: it grows with the data.
    An unordered pyarrow dictionary is sorted, since `dictionary_encode` lists values as they first occur: its own order
    would give the first label away.
    """
    holder = getattr(values, "cat", values) if hasattr(values, "dtype") else values
    if type(values).__module__.startswith("pyarrow"):
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            chunk = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            listed = chunk.dictionary.to_pylist()
            return tuple(listed if values.type.ordered else sorted(listed))
        return None
    if type(values).__module__.startswith("polars") and str(values.dtype).startswith("Enum"):
        return tuple(values.dtype.categories.to_list())
    if type(values).__module__.startswith("pandas"):
        categories = getattr(holder, "categories", None)
        return None if categories is None else tuple(categories.tolist())
    return None


def is_declared(values: Any, plain: npt.NDArray[Any]) -> bool:
    """Whether a column's type fixes its classes before any label is seen: a boolean, or a polars enumeration."""
    if plain.dtype == np.bool_:
        return True
    return type(values).__module__.startswith("polars") and str(values.dtype).startswith("Enum")


def as_plain(values: Any) -> npt.NDArray[Any]:
    """Return a column as a NumPy array; text as objects, so that no length is lost."""
    if type(values).__module__.startswith("pyarrow"):
        array = np.asarray(
            values.to_numpy(zero_copy_only=False) if hasattr(values, "chunk") is False else values.to_numpy()
        )
    elif type(values).__module__.startswith("polars"):
        array = np.asarray(values.to_numpy())
    else:
        array = _from_sequence(values)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _from_sequence(values: Any) -> npt.NDArray[Any]:
    """Return a list as an array of what it holds: NumPy alone would turn 1 and NaN beside text into text.

    What is masked is missing, whatever lies under the mask.
    """
    if np.ma.is_masked(values):
        array = values.data.astype(object)
        array[np.ma.getmaskarray(values)] = None
        return np.asarray(array)
    try:
        array = np.asarray(values)
    except ValueError:
        got = Described("sequences of different lengths")
        raise invalid("labels", "labels", "be one label per example", got=got) from None
    mixed = array.dtype.kind in "US" and isinstance(values, (list, tuple))
    return np.array(values, dtype=object) if mixed else array


def count_missing(plain: npt.NDArray[Any]) -> int:
    """Return how many values are missing: NaN, NaT or None."""
    if plain.dtype.kind == "f":
        return int(np.isnan(plain).sum())
    if plain.dtype.kind in "mM":
        return int(np.isnat(plain).sum())
    if plain.dtype == object:
        return sum(1 for v in plain if _is_missing(v))
    return 0


def _is_missing(value: Any) -> bool:
    """Whether an object stands for nothing; pandas.NA compares unequal to itself in its own way."""
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    return type(value).__name__ in ("NAType", "NaTType")


def look_up(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> npt.NDArray[np.integer[Any]] | None:
    """Return the code of each label, or None if some label is not among the classes."""
    if plain.dtype.kind in "iu" and classes == tuple(range(len(classes))):
        inside = len(plain) == 0 or (int(plain.min()) >= 0 and int(plain.max()) < len(classes))
        return plain if inside else None
    if plain.dtype.kind in "iufb" and all(isinstance(c, (bool, int, float)) for c in classes):
        return _search(plain, np.asarray(classes))
    code = {c: j for j, c in enumerate(classes)}
    found = [code.get(_scalar(v), -1) for v in plain.tolist()]
    codes = np.asarray(found, dtype=np.int64)
    return None if np.any(codes < 0) else codes


def _search(plain: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.integer[Any]] | None:
    """Look numbers up by binary search in the sorted classes."""
    order = np.argsort(classes)
    at = np.searchsorted(classes[order], plain).clip(max=len(classes) - 1)
    codes = order[at]
    return codes if np.array_equal(classes[codes], plain) else None


def find_unknown(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> int:
    """Return the position of the first value that is not among the classes."""
    known = set(classes)
    return next((row for row, value in enumerate(plain.tolist()) if _scalar(value) not in known), 0)


def _scalar(value: Any) -> Any:
    """Return a hashable Python value; an unhashable one is no class."""
    try:
        hash(value)
    except TypeError:
        return _UNHASHABLE
    return value


_UNHASHABLE = object()


def decode_labels(codes: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> npt.NDArray[Any]:
    """Return the class of each code: numbers and booleans as such, everything else as objects."""
    kinds = {type(c) for c in classes}
    if kinds <= {int} or kinds <= {bool} or kinds <= {int, float}:
        table = np.asarray(classes)
    else:
        table = np.empty(len(classes), object)
        table[:] = classes
    named: npt.NDArray[Any] = table[codes]
    return named


def box_labels(
    owner: str,
    y: Any,
    *,
    n_rows: int,
    classes: Sequence[Any] | None,
    label_set: str,
    argument: str = "y",
    numeric: bool = False,
) -> SensitiveLabels:
    """Return one boxed label for each of the rows, of two classes or more: the way in for every learner.

    Parameters
    ----------
    owner, argument : str
        Who asks, and what she calls the labels, for messages.
    y : sequence or SensitiveLabels
        The labels. If they are boxed already, `classes` must be theirs or None, and their own name stands.
    n_rows : int
        How many there must be: the rows of the features, which a learner is handed in with the labels. The box says so
        (`beside`), and every promise about it stands on features that did not see these labels.
    classes : sequence, optional
        The public list of classes; read off the labels if it is left out.
    label_set : str
        The ledger's name for them.
    numeric : bool
        Whether labels are numbers on a scale, such as half stars. Otherwise fractions are refused as the targets of a
        regression.
    """
    if y is None:
        fix = f"This learner requires {argument} to be passed, but the target {argument} is None."
        raise invalid(owner, argument, "be given", got=None, fix=fix)
    _refuse_release(owner, argument, y)
    if n_rows == 1 and classes is None and not isinstance(y, SensitiveLabels):
        fix = "Pass classes=, the full public list; a class need not occur."
        raise invalid(owner, argument, "have two classes or more", got=Described("1 sample"), fix=fix)
    if isinstance(y, SensitiveLabels):
        boxed = _check_same_classes(owner, y, classes)
    else:
        boxed = _box(owner, y, classes, label_set, argument=argument, numeric=numeric)
    if n_rows != len(boxed):
        got = Described(f"{len(boxed)} for {n_rows} rows")
        raise invalid(owner, argument, "have one label per row of X (inconsistent numbers of samples)", got=got)
    if boxed.n_classes < 2:
        got, fix = Described("1 class"), "Pass classes=, the full public list; a class need not occur."
        raise invalid(owner, argument, "have two classes or more", got=got, fix=fix)
    return boxed.with_beside("features")


def _refuse_release(owner: str, argument: str, y: Any) -> None:
    """Refuse a release where raw labels are expected: it has its own way into a learner."""
    from labeldp.release.release import Release

    if isinstance(y, Release):
        fix = "Train from a release with fit_release(X, release): it costs nothing."
        raise invalid(owner, argument, "be raw labels", got=Described("a Release"), fix=fix)


def box_numbers(owner: str, y: Any, *, n_rows: int, bounds: Any, outside: str, label_set: str) -> SensitiveLabels:
    """Return one boxed number for each of the rows, within public bounds: the way in for every learner of numbers.

    Labels that are boxed already know their bounds; `bounds` must be theirs or None, and their own name stands.
    """
    if y is None:
        fix = "This learner requires y to be passed, but the target y is None."
        raise invalid(owner, "y", "be given", got=None, fix=fix)
    _refuse_release(owner, "y", y)
    if isinstance(y, SensitiveLabels):
        known = y.bounds if bounds is None and y.bounds is not None else check_bounds(owner, bounds)
        boxed = as_sensitive_numbers(y, known)
    else:
        if bounds is None:
            fix = "Two public numbers (low, high) that every label lies between, known without looking at the labels."
            raise invalid(owner, "bounds", "be given", got=None, fix=fix)
        boxed = SensitiveLabels(_as_one_column(owner, y), bounds=bounds, outside=outside, name=label_set)
    if n_rows != len(boxed):
        got = Described(f"{len(boxed)} for {n_rows} rows")
        raise invalid(owner, "y", "have one label per row of X (inconsistent numbers of samples)", got=got)
    return boxed.with_beside("features")


def _as_one_column(owner: str, y: Any) -> Any:
    """Return a vector, also of a matrix with one column, with scikit-learn's warning; its messages may quote data."""
    from sklearn.utils.validation import column_or_1d

    if hasattr(y, "dtype") and not isinstance(y, np.ndarray):
        return y
    refuse_masked(owner, "y", y)
    with hide_labels(owner, "y", must="be one number per row (bad input shape)", fix="Pass a vector of numbers."):
        return column_or_1d(y, warn=True)


def _box(
    owner: str, y: Any, classes: Sequence[Any] | None, label_set: str, *, argument: str, numeric: bool
) -> SensitiveLabels:
    plain = y
    if not hasattr(y, "dtype") or isinstance(y, np.ndarray):
        # First of all: scikit-learn would sort None among words, and NumPy take NaN beside them for a word.
        _refuse_missing(owner, argument, _from_sequence(y))
        plain = check_classes(owner, argument, y, numeric=numeric)
    return SensitiveLabels(plain, classes=classes, name=label_set)


def _check_same_classes(owner: str, labels: SensitiveLabels, classes: Sequence[Any] | None) -> SensitiveLabels:
    """Refuse boxed labels whose classes are not the ones asked for."""
    if classes is not None and check_class_list(owner, classes) != labels.classes:
        got = Described(f"{len(classes)} for labels that have their own {labels.n_classes}")
        fix = "Leave classes out: SensitiveLabels know theirs."
        raise invalid(owner, "classes", "be those of the labels", got=got, fix=fix)
    return labels
