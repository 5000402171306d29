"""`Release`: everything that leaves the door, and all that a learner needs.

Where a person may be asked about some of her rows only (`labeldp.release.persons`), a release holds the answers of those rows,
and `rows` says, publicly, which they are among all `n_rows`. The others have no answer: no label, no noise, and no place in
`codes`. `answered` takes the same rows of features, and `take` some of the answers.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labeldp.channel import FiniteChannel, NumericChannel
from labeldp.display import NOT_PRIVATE, card, list_names
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.guarantee import Guarantee
from labeldp.items import is_dataset
from labeldp.release.labels import decode_labels

if TYPE_CHECKING:
    from labeldp.release.dataset import ReleasedItems


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """Released labels, how they were randomized, and what that promises. Contains no raw label and no key.

    Fields
    ------
    codes : unsigned integers, one per example
        What came out of the channel: positions in `classes` (or in the channel's outputs, if those are not labels).
    classes : tuple
        The public list of classes; of numbers, the levels of the channel.
    channel, guarantee
        How the labels were randomized, and the promise; the promise covers the channel.
    mechanism : str
        What was asked for, in words.
    seeded : bool
        True if the noise came from a seed: reproducible, and therefore not private.
    start : int
        The position of the first row in a data set given in pieces.
    label_set, created, ledger_entry
        The ledger's name for these labels, when (UTC), and the row of the ledger, if there is one: a number that knows
        its hash (`labeldp.accounting.EntryNumber`), so that an audit can tell it from the same row of another ledger.
    stage : small integers, one per example, optional
        In which stage of a multi-stage release each label was drawn.
    prior : (C, K) probabilities, optional, and prior_index
        A released belief that informed the first stage (a noisy histogram per cluster), and its row for each example.
    label_column : str, optional
        What the table that the labels come from calls their column.
    person_column : str, optional
        What that table calls the column of ids that says whose row it is, where labels of a person are protected together.
    label_notes : texts
        What was done to each label by itself before it was randomized: spaces taken away, spellings merged.
    rows : int64, one per example, optional
        The position of each answer's row among all rows, rising, where some rows were not asked; None where all were.
    n_rows : int, optional
        How many rows there are then, answered or not.
    """

    codes: npt.NDArray[np.unsignedinteger[Any]]
    classes: tuple[Hashable, ...]
    channel: FiniteChannel
    guarantee: Guarantee
    mechanism: str
    seeded: bool
    start: int = 0
    label_set: str = "labels"
    created: str = ""
    ledger_entry: int | None = None
    stage: npt.NDArray[np.unsignedinteger[Any]] | None = None
    prior: npt.NDArray[np.floating[Any]] | None = None
    prior_index: npt.NDArray[np.integer[Any]] | None = None
    label_column: str | None = None
    person_column: str | None = None
    label_notes: tuple[str, ...] = ()
    rows: npt.NDArray[np.int64] | None = None
    n_rows: int | None = None

    @property
    def rows_in_all(self) -> int:
        """How many rows there are, answered or not."""
        return len(self) if self.n_rows is None else self.n_rows

    def answered(self, values: Any, *, owner: str = "Release.answered", name: str = "X") -> Any:
        """Return the rows of a table, a matrix or a vector that the answers belong to: all, or those that were asked.

        Whoever learns from a release goes through here: features of all rows are cut to those with an answer, and features
        of the answered rows alone are taken as they are.
        """
        import pyarrow as pa
        from sklearn.utils import _safe_indexing
        from sklearn.utils.validation import _num_samples

        count = _num_samples(values)
        if self.rows is not None and count == self.n_rows:
            # scikit-learn takes rows of a table of pyarrow from 1.7 on
            by_itself = hasattr(values, "batches") or isinstance(values, pa.Table)
            return values.take(self.rows) if by_itself else _safe_indexing(values, self.rows)
        if count != len(self):
            many = f"{len(self)} labels" if self.rows is None else f"{len(self):,} answers of {self.rows_in_all:,} rows"
            raise invalid(owner, name, "have one row per released label", got=Described(f"{count} rows for {many}"))
        return values

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The released labels, as the classes they name."""
        if not self.channel.outputs_are_labels:
            use = "release.values" if self.channel.outputs_are_numbers else "release.codes and release.channel"
            raise LabelDPError(f"Release: this mechanism's outputs are not labels. Use {use}.")
        return decode_labels(self.codes, self.classes)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The released numbers; where answers are unbiased, a learner with squared loss takes them for the labels.

        They may lie outside of the bounds. What is known of their noise is known to `channel` (`NumericChannel`).
        """
        if not isinstance(self.channel, NumericChannel):
            raise LabelDPError(
                "Release: this mechanism's outputs are not numbers. Use release.labels, or release.codes."
            )
        return self.channel.decode(self.codes).astype(np.float64, copy=False)

    @property
    def shown(self) -> npt.NDArray[Any] | None:
        """What stands in the label column of a table: labels or numbers; None where outputs are neither."""
        if self.channel.outputs_are_numbers:
            return self.values
        return self.labels if self.channel.outputs_are_labels else None

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def expected_accuracy(self, prior: Any = None) -> float:
        """Return the expected share of released labels that are the true ones, if labels follow `prior`."""
        return float(np.mean(self.channel.expected_accuracy(prior)))

    def take(self, rows: Any) -> Release:
        """Return the release of a subset of examples, by their numbers, a mask or a slice; the promise is the same."""
        if not isinstance(rows, slice):
            rows = _check_rows(rows, n_rows=len(self))
        return replace(
            self,
            codes=self.codes[rows],
            channel=self.channel.take(rows),
            stage=None if self.stage is None else self.stage[rows],
            prior_index=None if self.prior_index is None else self.prior_index[rows],
            rows=None if self.rows is None else self.rows[rows],
        )

    def dataset(self, X: Any, *, take: Any = None, evidence: str | None = None) -> ReleasedItems:
        """Return pairs (x, evidence), one per example, for a training loop of your own (`labeldp.release.ReleasedItems`).

        X holds the features of the released rows, in their order, or of all rows where only some were answered: an array, a tensor, or
        a dataset of PyTorch, whose labels, if it has any, are left behind. A `DataLoader` takes what is returned, and `labeldp.nn.ForwardLoss` the evidence.
        """
        from labeldp.release.dataset import ReleasedItems

        # Of a dataset no rows can be taken here: one of all rows of persons is refused, with the fix.
        cut = self.rows is not None and not is_dataset(X) and hasattr(X, "__len__") and len(X) == self.n_rows
        return ReleasedItems(self.answered(X) if cut else X, self, take=take, evidence=evidence)

    def at(self, positions: slice) -> Release:
        """Return the release of the rows at these positions among all, answered or not."""
        if self.rows is None:
            return self.take(positions)
        low, high, _ = positions.indices(self.rows_in_all)
        part = self.take(slice(*np.searchsorted(self.rows, [low, high]).tolist()))
        assert part.rows is not None
        return replace(part, rows=part.rows - low, n_rows=high - low)

    def save(self, directory: str | os.PathLike[str], *, features: Any = None) -> None:
        """Write the release into a new directory, at once or not at all: Parquet and JSON, with checksums.

        `features`, an Arrow table with a row per example, is written beside the labels; the release must then know the
        name of its `label_column`.
        """
        from labeldp.release.saving import save_release

        save_release(self, directory, features=features)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        warning = "SEEDED, NOT PRIVATE; " if self.seeded else ""
        asked = "" if self.n_rows is None else f" of {self.n_rows} rows"
        return f"<Release: {warning}{len(self)} labels{asked} by {self.mechanism}; {self.guarantee.headline}>"

    def _repr_html_(self) -> str:
        """Return a card for a notebook: what was released, of which classes, how, and what that promises."""
        asked = "" if self.n_rows is None else f" of {self.n_rows:,} rows; nothing was released about the others"
        numbers = isinstance(self.channel, NumericChannel)
        kind = "levels" if numbers else "classes"
        named = "" if numbers else f": {list_names(self.classes)}"
        rows = [
            ("holds", f"{len(self):,} {self._answers}{asked}"),
            (kind, f"{self.n_classes:,}{named}"),
            ("made by", self.mechanism),
            ("noise", "from a seed" if self.seeded else "from a secret key of the operating system"),
            *self.guarantee.card_rows(),
            *(("done to labels", text) for text in self.label_notes),
            ("charged", "to no ledger" if self.ledger_entry is None else f"entry {self.ledger_entry} of a ledger"),
        ]
        return card(f"Release of {self.label_set}", rows=rows, warning=NOT_PRIVATE if self.seeded else "")

    @property
    def _answers(self) -> str:
        """What an answer is, in words."""
        if self.channel.outputs_are_numbers:
            return "randomized numbers"
        return (
            "randomized labels" if self.channel.outputs_are_labels else "randomized answers about labels, such as sets"
        )


def _check_rows(rows: Any, *, n_rows: int) -> npt.NDArray[Any]:
    """Return numbers of released rows, or a mask of them, as an array; refuse rows that there are not."""
    chosen = np.asarray(rows)
    chosen = chosen if chosen.size else chosen.astype(np.intp)  # an empty list has no type
    numbers = chosen.dtype.kind in "iu"
    if chosen.dtype == np.bool_:
        right = chosen.shape == (n_rows,)
    else:
        right = numbers and chosen.ndim == 1 and bool(((chosen >= -n_rows) & (chosen < n_rows)).all())
    if not right:
        flat = numbers and chosen.ndim == 1
        got = (
            f"{chosen.min()} to {chosen.max()}" if flat else f"an array of shape {chosen.shape} and type {chosen.dtype}"
        )
        fix = "Rows are whole numbers from 0 on, in the order of the release; a mask has an entry for each of them."
        raise invalid("Release.take", "rows", f"be among the {n_rows:,} released rows", got=Described(got), fix=fix)
    return chosen


def check_release(owner: str, release: Any) -> Release:
    """Return a release, or refuse what is none: the way in for everything that learns from one."""
    if not isinstance(release, Release):
        fix = "Read one from disk with labeldp.load_release(path)." if isinstance(release, (str, os.PathLike)) else ""
        raise invalid(owner, "release", "be a Release", got=Described(f"a {type(release).__name__}"), fix=fix)
    return release
