"""A look over the label column and the row ids before anything is spent: whether a table can be released at all.

>>> profile = LabelProfile(
...     column="ill",
...     dtype="string",
...     numeric=False,
...     rows=5,
...     missing=1,
...     counts={"no": 2, "yes": 2},
...     first={"no": 0, "yes": 1},
... )
>>> profile
LabelProfile(column='ill', dtype='string', numeric=False, rows=5, missing=1, complete=True)
>>> check_label(profile)
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: ill: `label` must have no missing values, got 1 missing of 5 rows. ...
>>> check_label(profile, missing="drop")
('no', 'yes')

Design notes. *Labels.* The profile is the owner's and is not private: it holds exact counts of raw labels. It is never
saved with a release, and its repr hides them. One pass over one column; at most `MOST_COUNTED` values are held. The
set of classes becomes public with a release, whatever the noise: that is why a value that one row alone has is refused
unless its owner lists it as a class that was known beforehand (`check_not_alone`, as for labels in memory). No message
shows a value or how often it occurs, since messages end up in logs: it says which row to look at. How many labels are
missing is said: which rows have a label at all is not what is hidden.

*Row ids.* They must differ: the ledger knows a label set by them, and a row given twice is released twice. At most
`IDS_AT_ONCE` ids are in memory: a longer table is read several times, each pass taking the ids of one residue of a hash.
Whole numbers are their own key. Text is keyed by a 64-bit hash, and keys that meet are confirmed on the ids themselves in
one more pass, so that a collision is never reported as a duplicate.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.arrays import Int64s
from labeldp.data.tables import TableSource, decode_dictionary, find_missing, value_type
from labeldp.errors import ColumnTypeError, Described, LabelDPError, invalid, name_type
from labeldp.validate import check_choice, check_not_alone

#: Counting stops past this many values: more are not classes, and a table of ids must not fill the memory.
MOST_COUNTED = 10_000
#: A numeric column with more values than this is a quantity, to be binned; the largest class sets in use that are
#: numbered rather than named have a thousand.
MOST_NUMERIC = 1_000
#: The same for one with fractions: half stars are ten, grades by tenths some fifty.
MOST_FRACTIONS = 60
#: Value counts of longer batches cost less per row; the column alone is read, so a batch stays near 10 MB.
PROFILE_ROWS = 2**18
#: 128 MB of 64-bit keys, and as much again to sort them.
IDS_AT_ONCE = 2**24
#: Candidates that one pass confirms: enough to find a true duplicate among chance collisions of 64-bit hashes.
MOST_CANDIDATES = 1_000
#: Rows of a batch of ids.
ID_ROWS = 2**18


#: What to do about a column of quantities.
NUMBERS = "Numbers: give public bounds, bounds=(low, high) (--bounds low,high), or counts= (--counts 0..C)."


@dataclass(frozen=True, kw_only=True)
class LabelProfile:
    """What one pass over a label column found: how often each value occurs, and the first row that has it.

    `complete` is False when values past `MOST_COUNTED` went uncounted.
    """

    column: str
    dtype: str
    numeric: bool
    rows: int
    missing: int
    counts: Mapping[Any, int] = field(repr=False)
    first: Mapping[Any, int] = field(repr=False)
    complete: bool = True

    @property
    def n_values(self) -> int:
        """Distinct values seen; a lower bound when the profile is not complete."""
        return len(self.counts)


def label_profile(
    source: TableSource, label: str, *, check: Callable[[Any, Int64s], None] | None = None
) -> LabelProfile:
    """Return how often each value of a label column occurs, from one pass over it.

    NaN counts as missing. Counting stops at `MOST_COUNTED` values; rows and missing values are counted to the end. Where
    labels are numbers no value is counted: `check` is called with those of each batch that are not missing, and the row of
    each, and refuses what it must.
    """
    source.require(label)
    dtype = _check_value_type(source, label)
    rows = missing = 0
    # Text of a plain file is read along, to see that all of it is UTF-8: the only fault of a value that no wider type mends.
    form = source.form
    along = [] if form is None or form.encoding != "utf-8" else [n for n, kind in form.kinds.items() if kind == "text"]
    counts: Counter[Any] = Counter()
    first: dict[Any, int] = {}
    for batch in source.batches(columns=list(dict.fromkeys([label, *along])), batch_rows=PROFILE_ROWS):
        values = batch.column(0)
        absent = find_missing(values)
        gone = pc.sum(absent).as_py() or 0
        missing += gone
        if check is not None:
            present = pc.indices_nonzero(pc.invert(absent)) if gone else None
            places = np.arange(len(values)) if present is None else present.to_numpy().astype(np.int64)
            check(values if present is None else values.take(present), places + rows)
        elif len(counts) <= MOST_COUNTED:
            present = pc.indices_nonzero(pc.invert(absent))
            _add_counts(counts, first, values.take(present), positions=present.to_numpy() + rows)
        rows += len(values)
    return LabelProfile(
        column=label,
        dtype=str(dtype),
        numeric=pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype),
        rows=rows,
        missing=missing,
        counts=dict(counts.most_common(MOST_COUNTED + 1)),
        first=first,
        complete=len(counts) <= MOST_COUNTED,
    )


def find_unmatched(source: TableSource) -> list[Any]:
    """Return the spellings that are to be read as another class, and that no label of the table has.

    Whether a label occurs is private: this is for the owner's eyes alone, and never for a file.
    """
    change = source.rewritten
    if change is None or not change.pairs:
        return []
    before = replace(change, pairs=()) if change.strip else None
    wanted, _ = change.values_of(value_type(source.schema.field(change.column).type))
    try:
        for batch in replace(source, rewritten=before).batches(columns=[change.column], batch_rows=PROFILE_ROWS):
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=decode_dictionary(batch.column(0)))))
            if not len(wanted):
                break
    except ColumnTypeError:  # in a row that was not looked at
        return find_unmatched(source.settle())
    return list(wanted.to_pylist())


def join_profiles(first: LabelProfile, second: LabelProfile) -> LabelProfile:
    """Return the profile of two pieces of one column together."""
    counts = Counter(first.counts)
    counts.update(second.counts)
    return replace(
        first,
        rows=first.rows + second.rows,
        missing=first.missing + second.missing,
        counts=dict(counts.most_common(MOST_COUNTED + 1)),
        first={**{value: first.rows + row for value, row in second.first.items()}, **first.first},
        complete=first.complete and second.complete and len(counts) <= MOST_COUNTED,
    )


def check_label(
    profile: LabelProfile, *, missing: str = "error", classes: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Return the classes of a label column, sorted (or as listed), or say why it cannot be released.

    Parameters
    ----------
    profile : LabelProfile
        From `label_profile`.
    missing : "error" or "drop"
        What to do about rows without a label; with "drop" the caller leaves them out.
    classes : sequence, optional
        Classes that are public knowledge; then rare values among them are welcome and any other value is refused.

    Notes
    -----
    Refused, in this order: an unknown choice, no rows with a label, missing values, values outside `classes`, too many
    values, one value only, values that differ in spaces or capitals alone, a question mark among text, a value that one row
    alone has.
    """
    check_missing(profile, missing)
    if classes is not None:
        return _check_listed(profile, classes)
    _check_many(profile)
    _check_constant(profile)
    _check_alike(profile)
    values = list(profile.counts)
    try:
        check_not_alone(
            profile.column, "label", list(profile.counts.values()), find_row=lambda place: profile.first[values[place]]
        )
    except LabelDPError as error:
        if not profile.numeric:
            raise
        raise LabelDPError(f"{error} {NUMBERS}") from None
    return tuple(sorted(values))


def _check_value_type(source: TableSource, label: str) -> Any:
    """Return the type of the values of a column, which must not be lists or structures."""
    dtype = source.schema.field(label).type
    inner = value_type(dtype)
    if pa.types.is_nested(inner):
        fix = "Give each label a column of its own."
        raise invalid(label, "label", "be a column of single values", got=name_type(dtype), fix=fix)
    return inner


def _add_counts(counts: Counter[Any], first: dict[Any, int], values: Any, *, positions: Int64s) -> None:
    """Add the counts of one batch and the rows where its new values are first seen, up to one value more than are counted."""
    new = []
    for pair in pc.value_counts(values):
        value = pair["values"].as_py()
        if value not in counts:
            new.append(value)
        counts[value] += pair["counts"].as_py()
        if len(counts) > MOST_COUNTED:
            break
    # `value_counts` lists values as they first occur, and so does the encoding: one sort finds where.
    if new:
        plain = decode_dictionary(values)
        encoded = plain.dictionary_encode()
        places = np.unique(encoded.indices.to_numpy(), return_index=True)[1]
        at = dict(zip(encoded.dictionary.to_pylist(), positions[places].tolist(), strict=True))
        first.update({value: at[value] for value in new})


def check_missing(profile: LabelProfile, missing: str) -> None:
    """Refuse a column without values, and missing values unless they are dropped."""
    check_choice(profile.column, "missing", missing, ("error", "drop"))
    if profile.missing == profile.rows:
        got = Described(f"{profile.missing:,} missing of {profile.rows:,} rows")
        raise invalid(profile.column, "label", "have values", got=got, fix="Choose another label column.")
    if profile.missing and missing == "error":
        got = Described(f"{profile.missing:,} missing of {profile.rows:,} rows")
        fix = "Leave those rows out with missing='drop' (--missing drop), or fill them."
        raise invalid(profile.column, "label", "have no missing values", got=got, fix=fix)


def _check_listed(profile: LabelProfile, classes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the listed classes; refuse a list that is none, and values outside it."""
    listed = tuple(classes)
    known = set(listed)
    if len(known) != len(listed) or len(listed) < 2:
        got = Described(f"{len(listed)} listed, {len(known)} of them different")
        raise invalid(profile.column, "classes", "be two or more different values", got=got)
    others = [value for value in profile.counts if value not in known]
    if others or not profile.complete:
        raise outside_list(profile, known)
    return listed


def outside_list(profile: LabelProfile, known: Container[Any], *, where: str = "") -> LabelDPError:
    """Return the error for a column that holds a value outside the list; it says in which row, and not which value."""
    rows = [row for value, row in profile.first.items() if value not in known]
    place = f"in row {min(rows):,}{where} (rows count from 0)" if rows else f"past the rows that were looked at{where}"
    got = Described(f"another value {place}")
    fix = "List it too (--classes), or merge it into another class (--strip, --merge); `labeldp look` shows it."
    return invalid(profile.column, "label", "hold only listed classes", got=got, fix=fix)


def _check_many(profile: LabelProfile) -> None:
    """Refuse a quantity, free text and identifiers: more values than classes have."""
    if is_quantity(profile):
        most = MOST_NUMERIC if profile.n_values > MOST_NUMERIC else MOST_FRACTIONS
        shown = Described("more different numbers")  # how many would be a count of labels, and one of them moves it
        fix = f"{NUMBERS} Classes: list them, classes= (--classes)."
        raise invalid(profile.column, "label", f"have at most {most:,} values", got=shown, fix=fix)
    if not profile.complete:
        got = Described(f"more than {MOST_COUNTED:,} values")
        fix = "It looks like free text or an identifier: choose another column, or group its values."
        raise invalid(profile.column, "label", "have classes", got=got, fix=fix)


def is_quantity(profile: LabelProfile) -> bool:
    """Whether a column holds numbers of more values than classes have, or of many with fractions among them."""
    many = profile.numeric and profile.n_values > MOST_FRACTIONS
    return many and (profile.n_values > MOST_NUMERIC or any(float(value) % 1 for value in profile.counts))


def find_alike(values: Iterable[Any]) -> list[list[Any]]:
    """Return the groups of texts that differ in spaces, capitals or ways of writing one letter alone.

    >>> find_alike(["no", "yes", "YES", "yes "])
    [['yes', 'YES', 'yes ']]
    """
    groups: dict[str, list[Any]] = {}
    for value in values:
        if isinstance(value, str):
            key = " ".join(unicodedata.normalize("NFKC", value).casefold().split())
            groups.setdefault(key, []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def choose_spelling(group: Sequence[str]) -> str:
    """Return the spelling that stands for values that are alike: without spaces and in small letters, if there is one.

    It is a function of the set of spellings alone, never of how often each occurs.
    """
    return min((value.strip() for value in group), key=lambda value: (value != value.lower(), value))


def _check_alike(profile: LabelProfile) -> None:
    """Refuse values that are most likely one class in several spellings, and a mark that most likely means missing."""
    for group in find_alike(profile.counts):
        rows = sorted(profile.first[value] for value in group)
        got = Described(f"rows {rows[0]:,} and {rows[1]:,} that differ in spaces or capitals (rows count from 0)")
        fix = (
            "`labeldp look` shows them. One class: strip=True (--strip) or merge= (--merge yes=YES). Several: list them, "
            "classes= (--classes)."
        )
        raise invalid(profile.column, "label", "spell each class in one way", got=got, fix=fix)
    if "?" in profile.counts:
        got = Described(f"a question mark in row {profile.first['?']:,} (rows count from 0)")
        fix = "Missing: missing_values=['?'] (--na '?'). A class: list it, classes= (--classes)."
        raise invalid(profile.column, "label", "say which labels are missing", got=got, fix=fix)


def _check_constant(profile: LabelProfile) -> None:
    """Refuse a column with one value only."""
    if profile.n_values == 1:
        fix = "There is nothing to hide or to learn; list the other possible classes with --classes if there are any."
        raise invalid(profile.column, "label", "have two values or more", got=Described("one value only"), fix=fix)


def check_row_ids(source: TableSource, column: str) -> None:
    """Refuse a column of row ids (whole numbers or text) that misses one or has one twice.

    The ledger knows a label set by its row ids, and a row that is given twice would be released twice.
    """
    source.require(column)
    _check_type(source, column)
    rows = source.rows if source.rows is not None else sum(batch.num_rows for batch in source.batches(columns=[column]))
    passes = max(1, -(-rows // IDS_AT_ONCE))
    for number in range(passes):
        keys = [key[_choose_pass(key, passes) == number] for _, key in _read_keys(source, column)]
        candidates, repeats = _find_repeated(np.concatenate(keys))
        if repeats:
            _confirm(source, column, candidates, repeats)


def _check_type(source: TableSource, column: str) -> None:
    """Refuse ids that are neither whole numbers nor text."""
    dtype = value_type(source.schema.field(column).type)
    if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
        fix = "Cast it first; rounding would make different ids equal."
        raise invalid(column, "row ids", "be whole numbers or text", got=name_type(dtype), fix=fix)


def _read_keys(source: TableSource, column: str) -> Iterator[tuple[Any, Int64s]]:
    """Yield each batch of ids, with a 64-bit key for each id."""
    for batch in source.batches(columns=[column], batch_rows=ID_ROWS):
        ids = batch.column(0)
        if ids.null_count:
            raise invalid(
                column, "row ids", "have no missing values", got=Described(f"{ids.null_count:,} in one batch")
            )
        yield ids, _make_keys(ids)


def _make_keys(ids: Any) -> Int64s:
    """Return a 64-bit key for each id: the number itself, or a hash of the text."""
    ids = decode_dictionary(ids)
    if pa.types.is_integer(ids.type):
        # uint64 wraps around into int64 one to one, so equality is kept.
        keys: Int64s = ids.to_numpy(zero_copy_only=False).astype(np.int64)
        return keys
    return np.fromiter((hash(text) for text in ids.to_pylist()), np.int64, len(ids))


def _choose_pass(keys: Int64s, passes: int) -> npt.NDArray[np.uint64]:
    """Return the pass that takes each key: high bits of a multiplicative hash, so that runs of numbers spread evenly."""
    mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    residue: npt.NDArray[np.uint64] = (mixed >> np.uint64(32)) % np.uint64(passes)
    return residue


def _find_repeated(keys: Int64s) -> tuple[Int64s, int]:
    """Return some of the keys that occur more than once, and how many rows repeat an earlier one. Sorts in place.

    >>> _find_repeated(np.array([3, 1, 3, 3]))
    (array([3]), 2)
    """
    keys.sort()
    again = keys[1:][keys[1:] == keys[:-1]]
    return np.unique(again)[:MOST_CANDIDATES], len(again)


def _confirm(source: TableSource, column: str, candidates: Int64s, repeats: int) -> None:
    """Count the ids behind the candidate keys, and raise if one of them truly occurs twice."""
    seen: Counter[Any] = Counter()
    for ids, keys in _read_keys(source, column):
        seen.update(ids.filter(pa.array(np.isin(keys, candidates))).to_pylist())
    example, count = seen.most_common(1)[0]
    if count > 1:
        got = Described(f"{example!r} {count:,} times; {repeats:,} rows or more repeat an id")
        fix = "Drop or merge the repeated rows: each label is released once."
        raise invalid(column, "row ids", "differ from row to row", got=got, fix=fix)
