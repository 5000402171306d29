r"""Linear softmax models by L-BFGS: one loss, one gradient and one solver, for a whole matrix or one batch after another.

Let z = W x + b be the K logits of a row. Two losses are known here.

*Soft targets* q, whose entries sum to one and may be negative (a channel's unbiased targets are):

    loss = log sum_k exp(z_k) - sum_k q_k z_k,       gradient in z = softmax(z) - q,

convex in W whatever q is. The targets enter through sums of q x' and of q alone, computed once, so that a step costs two
products with X, and labels are needed in one pass only.

*Likelihoods* l_k = Pr[what was observed | label k], the forward loss:

    loss = -log sum_k p_k l_k = log sum_k exp(z_k) - log sum_k exp(z_k + log l_k),
    gradient in z = softmax(z) - softmax(z + log l),

a difference of two log-sums, so that no probability underflows, however large the logits. It is not convex: where the
solver ends depends on where it starts.

What is minimised is the mean over rows plus l2 / 2 ||W S||^2, the intercepts b free. Value and gradient are sums over rows,
so rows may come in batches (`RowBatches`), or from pieces of a table that an engine carries: whoever has the sums makes a
`SoftmaxObjective` and calls `minimise`.

*Units.* S is the identity, or the scales of the columns (`Columns`), which the features alone decide. The solver then works on
V = W S and c = b + W m, m the means: the coefficients of the standardised columns (x - m) / S. The rows themselves are
never rewritten: z = W x + b = V (x - m) / S + c, and the gradient follows by the chain rule,

    d/dV = (d/dW - d/db m') / S,         d/dc = d/db,

so dense, sparse and streamed rows are one code, and W and b refer to the columns as they came. Without it a column of large
numbers decides the first step alone, and the solver ends at its limit or in probabilities of 0 and 1. The scale of a
column is its standard deviation, and of a column with two values the distance between them: a rare category is no
larger a thing than a frequent one, and divided by its small deviation it would hardly be penalised. Features that share a
unit stay as they are: all of them in [-1, 1] and none narrower than 1/64, as pixels, shares, categories and rows of norm 1
are. There the deviation of a column says how often it matters, and dividing by it would raise the corners of images to the
height of their middle.

>>> import numpy as np
>>> X, targets = np.array([[-1.0], [1.0]]), np.array([[1.2, -0.2], [0.0, 1.0]])
>>> objective = SoftmaxObjective(
...     curved=lambda theta: sum_soft(X, theta, np.ones(2)), linear=sum_targets(X, targets), total=2.0, l2=0.1
... )
>>> theta, steps = minimise(objective, np.zeros((2, 2)), max_iter=100, tol=1e-6, owner="example")
>>> bool(theta[1, 0] > theta[0, 0])
True

Design notes. Parameters are theta (K, d + 1), the last column the intercepts, in float64; products with X are in the precision
of X. A two-valued column is known by its moments: variance <= (high - mean)(mean - low) for any column, with equality if and
only if no value lies between (Bhatia and Davis 2000). Logits are kept as (K, n): sums over a few classes then run along contiguous rows, several times faster than along
short ones. A whole matrix is one batch, so both ways are one code; with many classes it is cut, so that memory is bounded.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from labeldp.arrays import Floats, Ints

#: The sum over some rows of the curved part of the loss, and of its gradient (K, d + 1).
Sums = tuple[float, Floats]


class RowBatches(abc.ABC):
    """Rows of features that are read in batches, from the start, as often as they are asked for.

    `shape` is (rows, features) and `dtype` the precision of the batches.
    """

    shape: tuple[int, int]
    dtype: Any

    @abc.abstractmethod
    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Yield the positions of some rows (a slice or an index array) and their matrix, until each row came once."""

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Any) -> RowBatches:
        """Return some of the rows, each at most once, in the order of `rows`; nothing is read yet."""
        return _SomeRows(self, np.arange(len(self))[rows])


class _SomeRows(RowBatches):
    """Rows of another source, in any order: each batch of the source gives those that fall into it."""

    def __init__(self, source: RowBatches, rows: Ints) -> None:
        self.shape = (len(rows), source.shape[1])
        self.dtype = source.dtype
        self._source = source
        self._order = np.argsort(rows, kind="stable")
        self._sorted = rows[self._order]

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Yield what each batch of the source has of these rows."""
        everything = np.arange(len(self._source))
        for positions, matrix in self._source.batches():
            inside = np.flatnonzero(np.isin(everything[positions], self._sorted))
            wanted = everything[positions][inside]
            found = self._order[np.searchsorted(self._sorted, wanted)]
            if len(found):
                yield found, matrix[inside]


#: Logits that are in memory at a time (64 MiB of float32): with many classes a batch is cut into smaller ones.
CELLS = 1 << 24


def read_batches(X: Any, n_classes: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield positions and matrices: the batches of `RowBatches`, or a whole matrix, of at most `CELLS` logits each."""
    most = max(1, CELLS // n_classes)
    for positions, matrix in X.batches() if isinstance(X, RowBatches) else [(slice(None), X)]:
        n = matrix.shape[0]
        if n <= most:
            yield positions, matrix
            continue
        everything = np.arange(len(X) if isinstance(X, RowBatches) else n)[positions]
        for low in range(0, n, most):
            yield everything[low : low + most], matrix[low : low + most]


# ------------------------------------------------------------------------------------------------ units of the columns

#: Rows whose squares are in memory at a time.
SPAN = 1 << 13
#: Columns in [-1, 1] share a unit if none that varies is narrower than this.
NARROWEST = 1 / 64
#: From the uniform model the gradient has to fall at least to this share of itself; see `minimise`.
LEAST_FALL = 0.1
#: Two-valued columns are recognised up to this share of (high - low)^2: rounding, and far below one row in 10^9.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnMoments:
    """What some rows say of their columns: total weight, means, sums of squared deviations, smallest and largest values."""

    total: float
    mean: Floats
    squares: Floats
    low: Floats
    high: Floats

    @classmethod
    def of_rows(cls, X: Any, weights: Floats | None = None) -> ColumnMoments:
        """Return the moments of rows, dense, sparse or in batches, each with a weight >= 0 (by default 1)."""
        zero = np.zeros(X.shape[1])
        found = cls(total=0.0, mean=zero, squares=zero, low=zero, high=zero)
        for positions, matrix in read_batches(X):
            scales = np.ones(matrix.shape[0]) if weights is None else np.asarray(weights[positions], np.float64)
            for start in range(0, matrix.shape[0], SPAN):
                found = found.join(_measure_span(matrix[start : start + SPAN], scales[start : start + SPAN]))
        return found

    def join(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of both sets of rows (Chan, Golub, LeVeque 1979): no difference of large squares is taken."""
        if not (self.total and other.total):
            return other if not self.total else self
        total = self.total + other.total
        apart, share = other.mean - self.mean, other.total / total
        return ColumnMoments(
            total=total,
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + apart * apart * (self.total * share),
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    def columns(self, *, intercept: bool) -> Columns:
        """Return means and scales; without an intercept nothing can be centred, and a scale is that of the distance from 0.

        A constant column has scale 1 with an intercept, which stands for it. Columns that share a unit have mean 0 and scale 1.
        """
        width = self.high - self.low
        inside = bool((self.low >= -1).all()) and bool((self.high <= 1).all())
        if inside and bool(((width == 0) | (width >= NARROWEST)).all()):
            return Columns(mean=np.zeros_like(self.mean), scale=np.ones_like(self.mean))
        variance = self.squares / self.total
        bound = (self.high - self.mean) * (self.mean - self.low)
        # The mean is rounded to its own digits, which is more than the width of a narrow column far from 0 may have.
        slack = ROUNDING * width**2 + 4 * np.finfo(np.float64).eps * np.abs(self.mean) * width
        scale = np.where(bound - variance <= slack, width, np.sqrt(variance))
        if not intercept:
            scale = np.hypot(scale, self.mean)
        scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
        return Columns(mean=self.mean if intercept else np.zeros_like(self.mean), scale=scale)


def _measure_span(X: Any, weights: Floats) -> ColumnMoments:
    """Return the moments of a few rows; rows of weight 0 do not count."""
    kept = weights > 0
    if not kept.all():
        X, weights = X[np.flatnonzero(kept)], weights[kept]
    total, d = float(weights.sum()), X.shape[1]
    if not total:
        zero = np.zeros(d)
        return ColumnMoments(total=0.0, mean=zero, squares=zero, low=zero, high=zero)
    if scipy.sparse.issparse(X):
        rows = scipy.sparse.csr_matrix(X, dtype=np.float64)
        rows.sum_duplicates()
        heavy = np.repeat(weights, np.diff(rows.indptr))
        mean = np.bincount(rows.indices, weights=heavy * rows.data, minlength=d) / total
        away = np.bincount(rows.indices, weights=heavy * (rows.data - mean[rows.indices]) ** 2, minlength=d)
        absent = total - np.bincount(rows.indices, weights=heavy, minlength=d)
        low, high = (_dense(end).reshape(-1) for end in (rows.min(axis=0), rows.max(axis=0)))
        return ColumnMoments(
            total=total, mean=mean, squares=away + np.maximum(absent, 0.0) * mean**2, low=low, high=high
        )
    rows = np.asarray(X, np.float64)
    low, high = rows.min(axis=0), rows.max(axis=0)
    mean = np.clip(weights @ rows / total, low, high)  # a constant column has its own value as mean, to the last digit
    return ColumnMoments(total=total, mean=mean, squares=weights @ (rows - mean) ** 2, low=low, high=high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Means and scales (d,) of the columns: how coefficients of raw columns and of standardised ones belong together."""

    mean: Floats
    scale: Floats

    def to_standard(self, theta: Floats) -> Floats:
        """Return the coefficients of the standardised columns, V and c of the module."""
        W, b = theta[:, :-1], theta[:, -1]
        return np.column_stack([W * self.scale, b + W @ self.mean])

    def to_raw(self, theta: Floats) -> Floats:
        """Return the coefficients of the raw columns, W and b of the module."""
        W = theta[:, :-1] / self.scale
        return np.column_stack([W, theta[:, -1] - W @ self.mean])

    def pull_back(self, gradient: Floats) -> Floats:
        """Return the gradient in V and c, from the one in W and b."""
        W = (gradient[:, :-1] - np.outer(gradient[:, -1], self.mean)) / self.scale
        return np.column_stack([W, gradient[:, -1]])


# ------------------------------------------------------------------------------------------------ objective and solver


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxObjective:
    """Mean loss and penalty: [curved(theta) - <linear, theta>] / total + l2 / 2 ||W S||^2. Call it with a flat theta.

    With `columns`, what it is called with are coefficients of the standardised columns, and `curved` and `linear` still
    belong to the raw ones.

    Parameters
    ----------
    curved : theta -> (value, gradient)
        The sum over all rows of what is curved in the loss, and its gradient in theta: `sum_soft` or `sum_forward`.
    linear : array of shape (K, d + 1)
        `sum_targets`: the targets' part, zero for the forward loss.
    total : float
        The number of rows, or the sum of their weights.
    l2 : float
        Weight of the squared norm of W.
    intercept : bool
        Whether there are intercepts; without, their gradient is zero and they stay where they start.
    columns : Columns, optional
        Means and scales; without them S is the identity.
    """

    curved: Callable[[Floats], Sums]
    linear: Floats
    total: float
    l2: float
    intercept: bool = True
    columns: Columns | None = None

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """Return the value, and the gradient as a flat vector."""
        theta = flat.reshape(self.linear.shape)
        raw = theta if self.columns is None else self.columns.to_raw(theta)
        curved, gradient = self.curved(raw)
        if not self.intercept:
            gradient[:, -1] = 0.0
        gradient -= self.linear
        gradient /= self.total
        if self.columns is not None:
            gradient = self.columns.pull_back(gradient)
        gradient[:, :-1] += self.l2 * theta[:, :-1]
        penalty = 0.5 * self.l2 * float((theta[:, :-1] ** 2).sum())
        return (curved - float((self.linear * raw).sum())) / self.total + penalty, gradient.reshape(-1)


def minimise(
    objective: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    max_iter: int,
    tol: float,
    owner: str,
    l2: float = 0.0,
    dtype: Any = np.float64,
) -> tuple[Floats, int]:
    """Return where L-BFGS ends, in the shape of `start`, and its iterations.

    It stops when no entry of the gradient exceeds `tol`, after `max_iter` iterations, or when rounding leaves no way down.
    In the last two cases a `ConvergenceWarning` of scikit-learn, in the name of `owner`, says that the gradient is above `tol`.

    *Faint evidence.* At theta = 0, the uniform model, the forward loss of a faint answer (a small epsilon, or many classes) has a
    gradient below any usual `tol`, and little curvature: the minimum is far away, and zero iterations would be taken for an arrival.
    From such a start the gradient has to fall to a tenth of what it was, if that is less than `tol`. A start that someone
    fitted before is judged by `tol` alone.

    A mean loss has a curvature of 1/4 at most along a standardised column. A penalty `l2` far above that makes a valley in
    which a search along a line finds no step, so that coefficients are solved for in units of 1 / sqrt(1 + 4 l2). `dtype` is the
    precision of the features: with values that are known to a relative eps, no search can tell gradients below sqrt(eps) from 0,
    and a search that ends there has not failed.
    """
    units = np.ones(start.shape)
    units[:, :-1] = np.sqrt(1.0 + 4.0 * l2)
    unit: Floats = units.reshape(-1)

    def scaled(flat: Floats) -> tuple[float, Floats]:
        value, gradient = objective(flat / unit)
        return value, gradient / unit

    begin: Floats = start.reshape(-1) * unit
    first = [scaled(begin)]
    steep = float(np.abs(first[0][1]).max(initial=0.0))

    def known(flat: Floats) -> tuple[float, Floats]:
        # The solver asks for its start first; a second computation might be a pass over a table.
        return first.pop() if first and np.array_equal(flat, begin) else scaled(flat)

    faint = not begin.any() and steep > float(np.finfo(dtype).eps)  # below, the gradient is rounding
    goal = min(tol, LEAST_FALL * steep) if faint else tol
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "gtol": goal, "ftol": 0.0, "maxcor": 10}
    found = scipy.optimize.minimize(known, begin, jac=True, method="L-BFGS-B", options=options)
    steepest = float(np.abs(found.jac).max(initial=0.0))
    stopped = found.status == 1
    enough = tol if stopped else max(tol, float(np.sqrt(np.finfo(dtype).eps)))
    if not steepest <= enough:  # NaN too
        from sklearn.exceptions import ConvergenceWarning

        fix = "Raise `max_iter`" if stopped else "Look at the features for extreme values"
        warnings.warn(
            f"{owner}: the solver stopped after {int(found.nit)} iterations with a gradient of {steepest:.2g}, above "
            f"`tol` = {tol:g}. {fix}, or raise `tol`.",
            ConvergenceWarning,
            stacklevel=3,
        )
    theta: Floats = (found.x / unit).reshape(start.shape)
    return theta, int(found.nit)


def sum_targets(X: Any, targets: Any, *, n_classes: int | None = None, intercept: bool = True) -> Floats:
    """Return the sums of q x' beside those of q, (K, d + 1). Without intercept, 0 for them.

    `targets` (n, K) may be sparse, or a function that makes those of the rows at some positions; then `n_classes` says K.
    """
    count = targets.shape[1] if n_classes is None else n_classes
    whole: Floats | None = None
    for positions, matrix in read_batches(X, count):
        part = targets(positions) if callable(targets) else _take(targets, positions)
        linear = np.empty((count, X.shape[1] + 1))
        linear[:, :-1] = _transposed_product(part, matrix)
        linear[:, -1] = np.asarray(part.sum(axis=0, dtype=np.float64)).reshape(-1) if intercept else 0.0
        whole = linear if whole is None else whole + linear
    return np.zeros((count, X.shape[1] + 1)) if whole is None else whole


def _take(rows: Any, positions: Any) -> Any:
    """Return some rows; all of them are not copied."""
    return rows if isinstance(positions, slice) and positions == slice(None) else rows[positions]


def sum_soft(X: Any, theta: Floats, weights: Floats, *, offsets: Floats | None = None) -> Sums:
    """Return the sums over rows of weight * log sum_k exp(z_k + offset_k) and of its gradient; `offsets` are (K, 1 or n)."""

    def sums() -> Iterator[Sums]:
        for positions, matrix in read_batches(X, len(theta)):
            scales = weights[positions]
            logits = compute_logits(matrix, theta)
            if offsets is not None:
                logits += offsets if offsets.shape[1] == 1 else offsets[:, positions]
            mass, height = normalise_columns(logits)
            mass *= scales
            yield float(height @ scales.astype(np.float64)), sum_slopes(matrix, mass)

    return add_sums(sums(), theta)


def sum_forward(
    X: Any, theta: Floats, logarithms: Floats | Callable[[Any], Floats], *, weights: Floats | None = None
) -> Sums:
    """Return the sums over rows of -weight * log sum_k p_k l_k and of its gradient.

    `logarithms` are those of l, (K, n), or a function that makes those of the rows at some positions.
    """

    def sums() -> Iterator[Sums]:
        for positions, matrix in read_batches(X, len(theta)):
            logits = compute_logits(matrix, theta)
            known = logarithms(positions) if callable(logarithms) else logarithms[:, positions]
            explained, reached = normalise_columns(logits + known)
            mass, height = normalise_columns(logits)
            mass -= explained
            losses = height - reached
            if weights is not None:
                scales = weights[positions]
                mass *= scales
                losses *= scales
            yield float(losses.sum()), sum_slopes(matrix, mass)

    return add_sums(sums(), theta)


def add_sums(sums: Iterable[Sums], theta: Floats) -> Sums:
    """Return the sums of several batches or pieces as one; zero if there are none."""
    whole: Sums | None = None
    for value, slopes in sums:
        whole = (value, slopes) if whole is None else (whole[0] + value, whole[1] + slopes)
    return (0.0, np.zeros_like(theta)) if whole is None else whole


def compute_logits(X: Any, theta: Floats) -> Floats:
    """Return (K, n) logits of a matrix in its precision."""
    weights = theta[:, :-1].astype(X.dtype, copy=False)
    logits = _dense(X @ weights.T).T.copy() if scipy.sparse.issparse(X) else weights @ X.T
    logits += theta[:, -1:].astype(X.dtype)
    answer: Floats = logits
    return answer


def normalise_columns(logits: Floats) -> tuple[Floats, Floats]:
    """Return the softmax of each column, in place, and the logs of the sums in float64."""
    peak = logits.max(axis=0)
    logits -= peak
    np.exp(logits, out=logits)
    total = logits.sum(axis=0)
    logits /= total
    return logits, np.log(total, dtype=np.float64) + peak


def softmax(logits: Floats) -> Floats:
    """Return exp(z) / sum exp(z) along rows, without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    answer: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return answer


def sum_slopes(X: Any, residual: Floats) -> Floats:
    """Return the gradient in theta, (K, d + 1), of a sum over rows whose gradient in the logits is `residual` (K, n)."""
    slopes = np.empty((residual.shape[0], X.shape[1] + 1))
    slopes[:, :-1] = _transposed_product(residual.T, X)
    slopes[:, -1] = residual.sum(axis=1, dtype=np.float64)
    return slopes


def _transposed_product(rows: Any, X: Any) -> Floats:
    """Return rows' X, dense, for (n, K) rows; a sparse X is never made dense.

    (X' rows)' and not rows' X: for a few long rows, OpenBLAS with two threads was measured 25 times slower the other way.
    """
    if scipy.sparse.issparse(rows):
        return _dense(rows.T @ X)
    return _dense(X.T @ rows).T


def _dense(product: Any) -> Floats:
    answer: Floats = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
    return answer
