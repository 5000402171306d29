"""A released table, read and trained on without holding it: batches for `partial_fit`, sums over pieces for softmax.

>>> open_released_table("no/such/place")
Traceback (most recent call last):
labeldp.errors.ReleaseError: load_release: `directory` must hold a release, got 'no/such/place'. No release.json there.

The directory is a release like any other: `labeldp.load_release` reads its labels and channel without the table's other
columns. Those are features to whoever trains, and come as a `TableSource`, in batches.

Softmax regression needs the labels once: with soft targets q_i (the channel's unbiased ones) they enter the loss through the
sums of q_i x_i' and q_i alone, a statistic of K (d + 1) numbers; the same pass takes the means and scales of the columns, so
that the solver works on standardised ones. Each step of L-BFGS is one more pass over the features, as
sums that pieces give and a tree adds up. Loss, gradient and solver are those of `labeldp.softmax`, which
`labeldp.SoftmaxRegression` uses too.

Design notes. Released labels cost nothing to use again. Codes and candidate sets of the release are in memory here, a few
bytes a row; features never are.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import is_regressor

from labeldp.arrays import Floats, Int64s
from labeldp.data.tables import TableSource, open_table
from labeldp.engines.engine import Engine, open_engine
from labeldp.engines.rows import BATCH_ROWS, numbers, numeric_columns, spans_of
from labeldp.errors import Described, invalid
from labeldp.priors.base import one_thread
from labeldp.release import Release, load_release
from labeldp.release.columns import RESERVED
from labeldp.release.manifest import read_manifest
from labeldp.softmax import ColumnMoments, SoftmaxObjective, Sums, add_sums, minimise, sum_soft, sum_targets
from labeldp.validate import check_integer

OWNER = "train_released"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Piece:
    """A file of features, and the release of its rows; `asked` are those with an answer, where some have none."""

    source: TableSource
    release: Any
    columns: tuple[str, ...]
    asked: Int64s | None = None

    def batches(self, size: int) -> Any:
        """Yield features of rows with an answer, and the slice of the release's rows that they belong to."""
        start = done = 0
        for batch in self.source.batches(columns=self.columns, batch_rows=size):
            matrix = numbers(batch, self.columns)
            if not np.isfinite(matrix).all():
                got, fix = (
                    Described(f"some in {self.source.parts[0].name}"),
                    "Fill or drop them first, or name other columns.",
                )
                raise invalid(OWNER, "columns", "have no missing or infinite values", got=got, fix=fix)
            high = start + len(matrix)
            if self.asked is not None:
                inside = self.asked[slice(*np.searchsorted(self.asked, [start, high]).tolist())]
                matrix = matrix[inside - start]
            start = high
            if len(matrix):
                yield matrix, slice(done, done + len(matrix))
            done += len(matrix)


def train_released(
    estimator: Any,
    directory: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    epochs: int = 1,
    batch_rows: int = BATCH_ROWS,
    engine: str = "local",
    client: Any = None,
    scheduler: str | None = None,
    workers: int | None = None,
    insecure: bool = False,
) -> Any:
    """Fit an estimator on a released table, in bounded memory, and return it.

    Parameters
    ----------
    estimator
        Either one with `partial_fit`, which gets the released labels as they are, `epochs` times, in order (of a release of
        numbers a regressor, with squared loss: SGDRegressor); or
        `labeldp.SoftmaxRegression`, which gets the channel's unbiased targets through sums over the whole table, and is the
        model that `fit_targets` gives in memory.
    directory, columns
        A table's release, and which of its numeric columns are features (by default all but the ids of persons).
    epochs, batch_rows : int
        How often `partial_fit` goes over the table, and rows in memory at a time.
    engine, client, scheduler, workers, insecure
        As for `privatize_table`; `partial_fit` has an order and stays on this machine.
    """
    features, release = open_released_table(directory)
    ids = () if release.person_column is None else (release.person_column,)
    names = tuple(numeric_columns(features, but=ids) if columns is None else columns)
    features.require(*names)
    if not names:
        raise invalid(OWNER, "columns", "name features", got=Described("none"), fix="The table has no numeric columns.")
    pieces = _cut_pieces(features, release, names)
    rounds = check_integer(OWNER, "epochs", epochs, least=1)
    size = check_integer(OWNER, "batch_rows", batch_rows, least=1)
    if release.channel.outputs_are_numbers and not is_regressor(estimator):
        fix = "Use SGDRegressor(), or LabelPrivateRegressor().fit_release on a table in memory."
        raise invalid(OWNER, "estimator", "be a regressor for numbers", got=type(estimator).__name__, fix=fix)
    if hasattr(estimator, "partial_fit"):
        return _fit_batches(estimator, pieces, epochs=rounds, size=size)
    if not (hasattr(estimator, "fit_targets") and hasattr(estimator, "l2")):
        fix = "Use SoftmaxRegression(), SGDClassifier() or GaussianNB()."
        got = type(estimator).__name__
        raise invalid(OWNER, "estimator", "have `partial_fit`, or be a SoftmaxRegression", got=got, fix=fix)
    with open_engine(engine, client=client, scheduler=scheduler, workers=workers, insecure=insecure) as carrier:
        return _fit_softmax(estimator, pieces, carrier, size=size)


def _cut_pieces(features: TableSource, release: Release, columns: tuple[str, ...]) -> list[_Piece]:
    """Cut the release as its files are."""
    spans = spans_of(features)
    ends = [0, *itertools.accumulate(span.rows or 0 for span in spans)]
    shared = release.channel.n_examples is None
    pieces = []
    for span, low, high in zip(spans, ends, ends[1:], strict=False):
        rows = slice(low, high)
        if shared and release.rows is None:
            part = replace(release, codes=release.codes[rows], stage=None, prior_index=None)
        else:
            part = release.at(rows)
        pieces.append(_Piece(source=span.of(features), release=part, columns=columns, asked=part.rows))
    return pieces


def _fit_batches(estimator: Any, pieces: Sequence[_Piece], *, epochs: int, size: int) -> Any:
    numbers = pieces[0].release.channel.outputs_are_numbers
    classes = np.asarray(pieces[0].release.classes)
    for _ in range(epochs):
        for piece in pieces:
            values = piece.release.values if numbers else None
            for matrix, rows in piece.batches(size):
                if values is not None:
                    estimator.partial_fit(matrix, values[rows])
                    continue
                estimator.partial_fit(matrix, classes[piece.release.codes[rows]], classes=classes)
    return estimator


def _fit_softmax(estimator: Any, pieces: Sequence[_Piece], engine: Engine, *, size: int) -> Any:
    """Fit a SoftmaxRegression on unbiased targets; each value and gradient is a sum over the pieces."""
    classes = np.asarray(pieces[0].release.classes)
    shape = (len(classes), len(pieces[0].columns) + 1)
    limit = check_integer(OWNER, "max_iter", estimator.max_iter, least=1)
    total, linear, moments = engine.reduce(functools.partial(_sum_targets, size=size), _join_first, pieces)
    if not estimator.fit_intercept:
        linear[:, -1] = 0.0
    columns = moments.columns(intercept=estimator.fit_intercept) if estimator.standardise else None
    bare = [replace(piece, release=None) for piece in pieces]  # the labels have done their part

    def curved(theta: Floats) -> Sums:
        sums: Sums = engine.reduce(functools.partial(_sum_soft, theta=theta, size=size), _add, bare)
        return sums

    objective = SoftmaxObjective(
        curved=curved,
        linear=linear,
        total=total,
        l2=estimator.plain_l2,
        intercept=estimator.fit_intercept,
        columns=columns,
    )
    theta, estimator.n_iter_ = minimise(
        objective,
        np.zeros(shape),
        max_iter=limit,
        tol=estimator.tol,
        owner=OWNER,
        l2=estimator.plain_l2 if estimator.standardise else 0.0,
    )
    if columns is not None:
        theta = columns.to_raw(theta)
    estimator.classes_, estimator.n_features_in_ = classes, shape[1] - 1
    estimator.coef_, estimator.intercept_ = theta[:, :-1].copy(), theta[:, -1].copy()
    return estimator


#: The number of rows, their sums of q x' beside those of q, and the moments of their columns.
First = tuple[float, Floats, ColumnMoments]


def _sum_targets(piece: _Piece, *, size: int) -> First:
    """Return what the first pass takes from a piece."""
    release = piece.release
    linear = np.zeros((release.n_classes, len(piece.columns) + 1))
    moments = ColumnMoments.of_rows(np.zeros((0, len(piece.columns))))
    with one_thread():
        for matrix, rows in piece.batches(size):
            channel = release.channel if release.channel.n_examples is None else release.channel.take(rows)
            linear += sum_targets(matrix, channel.unbiased_targets(release.codes[rows]))
            moments = moments.join(ColumnMoments.of_rows(matrix))
    return float(len(release)), linear, moments


def _join_first(one: First, other: First) -> First:
    return one[0] + other[0], one[1] + other[1], one[2].join(other[2])


def _sum_soft(piece: _Piece, *, theta: Floats, size: int) -> Sums:
    """Return a piece's sums of the log-sums of its logits, and of their gradient."""
    with one_thread():
        return add_sums((sum_soft(matrix, theta, np.ones(len(matrix))) for matrix, _ in piece.batches(size)), theta)


def _add(first: Sums, second: Sums) -> Sums:
    return first[0] + second[0], first[1] + second[1]


def open_released_table(directory: str | os.PathLike[str]) -> tuple[TableSource, Release]:
    """Return the features of a table's release, row for row with its labels, and the release, all checked."""
    release = load_release(directory)
    manifest = read_manifest(directory)
    label = release.label_column
    if label is None:
        fix = "It was made from labels in memory: its features are where its owner left them."
        got = Described("labels alone")
        raise invalid("open_released_table", str(directory), "hold a table with its features", got=got, fix=fix)
    parts = manifest.label_files
    whole = open_table(parts[0])
    fields = [field for field in whole.schema if field.name != label and not field.name.startswith(RESERVED)]
    features = TableSource(path=manifest.directory, schema=pa.schema(fields), rows=release.rows_in_all, parts=parts)
    return features, release
