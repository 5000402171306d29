"""The channel's mathematics on aligned rows, once for every way a channel is stored.

Aligned means: ``keep`` and ``redraw`` have shape (m, 1) or (1, 1), ``base`` has shape (m, K) or (1, K), and row r
describes example r. Everything is O(K) per example; nothing inverts a matrix.

With S = {o : base[o] > 0},

    T[y, o] = keep 1[o = y, y in S] + (1 - keep 1[y in S]) base[o].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.channel._finite import Floats, Ints


class AlignedRows(NamedTuple):
    """Rows of a channel, one per example (or one for all)."""

    keep: Floats
    redraw: Floats
    base: Floats

    @property
    def support(self) -> npt.NDArray[np.bool_]:
        """Which labels can come out."""
        return self.base > 0


def matrix(rows: AlignedRows) -> Floats:
    """Return T of the first row as a dense K x K matrix."""
    inside = rows.support[0].astype(float)
    kept = float(rows.keep[0, 0]) * inside
    # 1 - keep is taken from `redraw`, which is accurate when keep is close to one.
    rest = np.where(inside > 0, float(rows.redraw[0, 0]), 1.0)
    answer: Floats = np.diag(kept) + rest[:, None] * rows.base[0][None, :]
    return answer


def unbiased(rows: AlignedRows, losses: Floats, observed: Ints) -> Floats:
    """Return (loss[o] - redraw sum_j base[j] loss[j]) / keep.

    For y in S its expectation over o ~ T[y, .] is
    (keep loss[y] + redraw sum base loss - redraw sum base loss) / keep = loss[y].
    """
    at_observed = np.take_along_axis(losses, observed[:, None], axis=1)[:, 0]
    redrawn = np.einsum("mk,mk->m", np.broadcast_to(rows.base, losses.shape), losses)
    answer: Floats = (at_observed - rows.redraw[:, 0] * redrawn) / rows.keep[:, 0]
    return answer


def unbiased_targets(rows: AlignedRows, observed: Ints) -> Floats:
    """Return (1[y = o] - redraw base[y]) / keep: the weights of `unbiased`, which sum to one."""
    answer: Floats = np.broadcast_to(-rows.redraw * rows.base / rows.keep, (len(observed), rows.base.shape[1])).copy()
    answer[np.arange(len(observed)), observed] += np.broadcast_to(1.0 / rows.keep[:, 0], len(observed))
    return answer


def forward(rows: AlignedRows, probabilities: Floats) -> Floats:
    """Return the law of the output when the label follows `probabilities`: p T, in O(K).

    (p T)[o] = keep p[o] 1[o in S] + (1 - keep p(S)) base[o].
    """
    kept = rows.keep * np.where(rows.support, probabilities, 0.0)
    total = probabilities.sum(axis=1, keepdims=True)
    answer: Floats = kept + (total - kept.sum(axis=1, keepdims=True)) * rows.base
    return answer


def joint(rows: AlignedRows, prior: Floats, observed: Ints) -> Floats:
    """Return prior[y] T[y, o] for every label y: Bayes' rule before it is normalised."""
    at = observed[:, None]
    base_at = np.take_along_axis(np.broadcast_to(rows.base, (len(observed), rows.base.shape[1])), at, axis=1)
    answer: Floats = prior * np.where(rows.support, rows.redraw, 1.0) * base_at
    kept = rows.keep * np.take_along_axis(prior, at, axis=1) * (base_at > 0)
    np.put_along_axis(answer, at, np.take_along_axis(answer, at, axis=1) + kept, axis=1)
    return answer


def accuracy(rows: AlignedRows, prior: Floats) -> Floats:
    """Return Pr[o = y] for y ~ prior: keep p(S) + redraw sum_y p[y] base[y]."""
    inside = np.where(rows.support, prior, 0.0).sum(axis=1)
    redrawn = np.einsum("mk,mk->m", np.broadcast_to(rows.base, prior.shape), prior)
    answer: Floats = rows.keep[:, 0] * inside + rows.redraw[:, 0] * redrawn
    return answer


def epsilon(rows: AlignedRows) -> Floats:
    """Return the exact pure epsilon of each row, rounded up.

    The largest log-ratio over y, z, o is log(T[o, o] / T[z, o]) = log(1 + keep / (redraw base[o])) at the least likely
    member o of S, for z in S. A label z outside S has T[z, o] = base[o] >= redraw base[o], so its pairs never
    exceed this. With one member, or keep = 0, the output says nothing: 0.
    """
    support = rows.support
    least = np.where(support, rows.base, np.inf).min(axis=1)
    keep = rows.keep[:, 0]
    with np.errstate(divide="ignore"):
        answer = log1p_up(keep / (rows.redraw[:, 0] * least))
    answer[(support.sum(axis=1) < 2) | (keep == 0)] = 0.0
    return answer


def log1p_up(ratio: Any) -> Floats:
    """Return log(1 + ratio), not less than the exact value for a ratio that was rounded three times.

    Three roundings move it by less than 2^-51 relative, the logarithm by less than one step of the floats.
    """
    answer: Floats = np.nextafter(np.log1p(np.asarray(ratio, dtype=np.float64) * (1 + 2.0**-50)), np.inf)
    return answer
