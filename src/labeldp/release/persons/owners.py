"""Who owns which row: public ids, checked once, and what follows from them alone.

>>> persons = Persons.of(["ann", "bob", "ann"])
>>> persons.codes.tolist(), persons.ids.to_pylist(), persons.counts.tolist()
([0, 1, 0], ['ann', 'bob'], [2, 1])

Design notes. `Persons` know no label. They hold one whole number for each row, which costs a copy of the column; persons are
counted and numbered when someone asks, since the default of `privatize` needs neither (`labeldp.release.persons.choice.pick_rows`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Float64s, Int64s
from labeldp.errors import Described, PrivacyError, invalid, name_type

OWNER = "persons"
#: What is assumed where persons are handed in, and where a score chose their rows.
ASSIGNMENT, CHOICE = "assignment of rows to persons", "score of rows"
#: Whole numbers beyond this are not told apart as floats.
MOST_WHOLE = 2.0**53
#: A table with an entry for every whole number between the least and the largest is used where it has at most so many a row.
TABLE_PER_ROW = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Persons:
    """Who owns each row: public. Make them with `Persons.of`, from a column of ids.

    Fields
    ------
    numbers : int64 of shape (n,)
        A whole number for each row, the same where rows are one person's: her id, or the place of her id in `names`.
    names : Arrow array of text, optional
        The ids that are text. Without it the numbers are ids.

    `codes` and `ids` number the persons as they first occur.
    """

    numbers: Int64s = field(repr=False)
    names: Any = field(repr=False, default=None)

    @classmethod
    def of(cls, ids: Any, *, n_rows: int | None = None, owner: str = OWNER) -> Persons:
        """Return the persons that a column of ids names, one id for each row; `Persons` are returned as they are.

        An id is text or a whole number. Whole floats count as the integers they are, so that a column with 1 and 1.0 names one
        person. Refused, since a person could hide in two: missing ids, a mixture of text and numbers (is "1" the
        person 1?), text with spaces around it, fractions, booleans, dates.

        >>> Persons.of([7, 7, 8]).codes.tolist()
        [0, 0, 1]
        """
        if isinstance(ids, Persons):
            found = ids
        else:
            import pyarrow as pa

            column = _read_column(ids, owner)
            if pa.types.is_integer(column.type):
                # A copy: a caller who changes her array later must not change who owns what.
                found = cls(numbers=column.to_numpy(zero_copy_only=False).copy())
            else:
                numbers = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
                found = cls(numbers=numbers, names=column.dictionary)
        if n_rows is not None and len(found) != n_rows:
            got = Described(f"{len(found):,} for {n_rows:,} rows")
            raise invalid(owner, "persons", "have one id for each row", got=got)
        return found

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def _numbered(self) -> tuple[Int64s, Any]:
        """The person of each row, and the ids in that order, as an Arrow array."""
        import pyarrow as pa

        codes, found = number_rows(self.numbers)
        ids = pa.array(found)
        return codes, ids if self.names is None else self.names.take(ids)

    @property
    def codes(self) -> Int64s:
        """The person of each row, 0 .. P-1, in the order in which persons first occur (n,)."""
        return self._numbered[0]

    @property
    def ids(self) -> Any:
        """What each person is called, text or whole numbers: an Arrow array of P entries."""
        return self._numbered[1]

    @property
    def n_persons(self) -> int:
        """P: how many persons have a row."""
        return len(self.ids)

    @cached_property
    def counts(self) -> Int64s:
        """How many rows each person has (P,)."""
        return np.bincount(self.codes, minlength=self.n_persons).astype(np.int64)

    @property
    def most_rows(self) -> int:
        """The most rows that one person has."""
        return int(self.counts.max(initial=0))

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of which rows belong together, and of nothing else: what the persons are called does not matter."""
        return hashlib.sha256(b"labeldp persons 1\n" + self.codes.astype("<i8").tobytes()).hexdigest()

    def take(self, rows: Any) -> Persons:
        """Return the persons of some rows, numbered anew; who has none of them is not among them."""
        return Persons(numbers=np.array(self.numbers[rows]), names=self.names)  # a copy, also of a slice

    def rows_of(self, chosen: Any) -> Int64s:
        """Return the rows of some persons, given as a mask over the P persons: a part that splits nobody."""
        mask = np.asarray(chosen)
        if mask.shape != (self.n_persons,) or mask.dtype != np.bool_:
            got = Described(f"an array of shape {mask.shape} and dtype {mask.dtype}")
            raise invalid(OWNER, "chosen", f"be a mask over {self.n_persons:,} persons", got=got)
        return np.flatnonzero(mask[self.codes]).astype(np.int64)

    def sums(self, values: Any) -> Float64s:
        """Return the sum of a number per row, for each person (P,), as floats; `largest_sum` is a bound on the largest."""
        weights = np.asarray(values, np.float64)
        return np.bincount(self.codes, weights=weights, minlength=self.n_persons).astype(np.float64)

    def largest_sum(self, values: Any) -> float:
        """Return an upper bound on the largest sum of numbers >= 0 over one person's rows; exact up to rounding up.

        A sum of m floats >= 0 errs by at most (m - 1) 2^-53 relatively; whole numbers below 2^53 are summed exactly.
        """
        given = np.asarray(values, np.float64)
        top = float(self.sums(given).max(initial=0.0))
        if top < MOST_WHOLE and bool(np.all(given == np.floor(given))):
            return top
        return top * (1.0 + (self.most_rows + 2) * 2.0**-52)

    def __repr__(self) -> str:
        return f"<Persons: {len(self):,} rows of {self.n_persons:,} persons, at most {self.most_rows:,} of one>"


def number_rows(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Return whole numbers as codes 0 .. P-1, in the order in which they first occur, and the P different ones in that order.

    >>> [part.tolist() for part in number_rows(np.array([40, 7, 40]))]
    [[0, 1, 0], [40, 7]]
    """
    import pyarrow as pa

    from labeldp.release.kernels import number_by_table

    low, span = find_span(numbers)
    n = len(numbers)
    if span <= TABLE_PER_ROW * n:
        codes, found = np.empty(n, np.int64), np.empty(min(n, span), np.int64)
        table = np.full(span, -1, np.int32 if n < 1 << 31 else np.int64)
        count = int(number_by_table(numbers, low, table, codes, found))
        return codes, found[:count].copy()
    encoded = pa.array(numbers).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_numpy(zero_copy_only=False)


def find_span(numbers: Int64s) -> tuple[int, int]:
    """Return the least of whole numbers, and how many lie between it and the largest, both counted; (0, 0) of none."""
    if not len(numbers):
        return 0, 0
    from labeldp.release.kernels import find_ends

    low, high = (int(one) for one in find_ends(numbers))
    return low, high - low + 1


def read_ids(ids: Any, *, owner: str = OWNER) -> Any:
    """Return a column of ids as an Arrow array of text or of int64, with none missing: the one check of ids.

    >>> read_ids([1.0, 2.0]).to_pylist()
    [1, 2]
    >>> read_ids([1, "1"])
    Traceback (most recent call last):
    labeldp.errors.LabelDPError: persons: `persons` must be ids of one type, got text and numbers. ...
    """
    column = _read_column(ids, owner)
    return column.dictionary_decode() if hasattr(column, "dictionary") else column


def _read_column(ids: Any, owner: str) -> Any:
    """Return checked ids as an Arrow array: int64, or a dictionary of text, of which each is looked at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _as_arrow(ids, owner)
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    # By NumPy: pyarrow 15 neither converts numbers of half precision nor finds NaN among them.
    numbers = np.asarray(column, dtype=np.float64) if pa.types.is_floating(kind) else None
    gone = column.null_count if numbers is None else int(np.isnan(numbers).sum())
    if gone:
        fix = "Drop such rows, or give each an id of its own: rows without an id cannot be one person's."
        raise invalid(owner, "persons", "have no missing ids", got=Described(f"{gone:,} missing"), fix=fix)
    if pa.types.is_integer(kind):
        if kind == pa.uint64() and len(column) and pc.max(column).as_py() >= 1 << 63:
            raise invalid(owner, "persons", "be below 2^63", got=Described("larger ones"), fix="Give them as text.")
        return column.cast(pa.int64())
    if numbers is not None:
        if not (np.all(numbers == np.floor(numbers)) and np.all(np.abs(numbers) < MOST_WHOLE)):
            fix = "A float does not name a person: give whole numbers, or text."
            raise invalid(owner, "persons", "be text or whole numbers", got=Described("fractions"), fix=fix)
        return pa.array(numbers.astype(np.int64))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        column = column.cast(pa.large_string()).dictionary_encode()
        names = column.dictionary
        if not pc.utf8_trim_whitespace(names).equals(names):
            fix = "Take the spaces away first: 'ann' and 'ann ' would be two persons."
            raise invalid(owner, "persons", "have no spaces around them", got=Described("some"), fix=fix)
        if len(names) and pc.min(pc.binary_length(names)).as_py() == 0:
            fix = "An empty text is a missing id: drop such rows, or give each an id of its own."
            raise invalid(owner, "persons", "have no missing ids", got=Described("empty ones"), fix=fix)
        return column
    raise invalid(owner, "persons", "be text or whole numbers", got=name_type(kind), fix="Give them as text.")


def _as_arrow(ids: Any, owner: str) -> Any:
    """Return a column of any library as an Arrow array."""
    import pyarrow as pa

    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        return ids
    if isinstance(ids, pa.Table) or hasattr(ids, "columns"):  # of any library; as an array it has two axes
        got = Described(f"a {type(ids).__name__}")
        raise invalid(owner, "persons", "be one id for each row", got=got, fix="Pass its column of ids.")
    if hasattr(ids, "to_arrow"):  # polars
        return ids.to_arrow()
    if isinstance(ids, np.ma.MaskedArray) and ids.ndim == 1:  # what is masked is missing, whatever lies under the mask
        return pa.array(ids.data, mask=np.ma.getmaskarray(ids))
    plain = ids
    if not (hasattr(ids, "dtype") and hasattr(ids, "array")):  # pandas has both, and pyarrow knows it
        plain = np.asarray(ids)
        if plain.ndim != 1:
            got = Described(f"an array of shape {plain.shape}")
            raise invalid(owner, "persons", "be one id for each row", got=got)
        if plain.dtype.kind in "US" and isinstance(ids, (list, tuple)):
            plain = np.array(ids, dtype=object)  # NumPy would turn 1 beside "a" into text
    try:
        return pa.array(plain, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        fix = (
            "Is the person 1 the same as '1'? Make them all text, or all whole numbers, so that one person has one id."
        )
        raise invalid(owner, "persons", "be ids of one type", got=Described("text and numbers"), fix=fix) from None


def check_apart(persons: Persons, parts: Sequence[Any]) -> None:
    """Refuse parts of the rows of which two have rows of one person: releases of them do not compose in parallel.

    >>> check_apart(Persons.of(["ann", "bob", "ann"]), [[0, 1], [2]])
    Traceback (most recent call last):
    labeldp.errors.PrivacyError: persons: `parts` must not have rows of one person in two of them, got 1 such person. ...
    """
    seen = np.full(persons.n_persons, -1, np.int64)
    split = np.zeros(persons.n_persons, np.bool_)
    for number, rows in enumerate(parts):
        mine = np.unique(persons.codes[rows])
        split[mine] |= seen[mine] >= 0
        seen[mine] = number
    count = int(split.sum())
    if count:
        got = Described(f"{count:,} such person{'s' if count > 1 else ''}")
        fix = "Split persons, not rows (Persons.rows_of); or compose the releases in sequence."
        raise invalid(OWNER, "parts", "not have rows of one person in two of them", got=got, fix=fix, kind=PrivacyError)
