"""Compiled loops of the factor sampler: one Gibbs pass over the rows of one side, and predictions.

The model has mean m_e = center + u_e . v_e for rating e. Three kinds of evidence enter a row's conditional, all Gaussian:
a pseudo-target t_e of weight w_e; a sum over a cell of this row's own ratings, S_c = sum m_e + noise, linear in the row with
X_c = sum of the other side's factors; and a sum over a cell of the other side's, where the row enters through one
rating. `residual` holds S_c - sum m_e at the current factors and is kept up to date as rows change, so that a pass is a
sequence of exact conditionals of one joint law.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp.kernels import compile_loop

_JIT: dict[str, Any] = {"nogil": True, "boundscheck": False, "fastmath": {"reassoc", "contract", "nsz"}}


@compile_loop(**_JIT)
def gibbs_pass(  # pragma: no cover - compiled
    pointer: Any,
    order: Any,
    other: Any,
    groups: int,
    target: Any,
    weight: Any,
    other_factors: Any,
    precision: Any,
    shift: Any,
    own_weight: Any,
    own_residual: Any,
    cross_cell: Any,
    cross_weight: Any,
    cross_residual: Any,
    normal: Any,
    factors: Any,
    gram: Any,
    pull: Any,
) -> None:
    """Draw every row of `factors` from its conditional; cell c of row i is i * groups + g, ratings in `pointer`'s range.

    Ratings of one pair stand side by side in `order`.

    `gram` (n, k, k) and `pull` (n, k) are left holding what responses and own sums say of each row: its information
    matrix and the vector that it would multiply the row to.
    """
    n, k = factors.shape
    responses, owns, crosses = len(target) > 0, len(own_weight) > 0, len(cross_weight) > 0
    matrix, vector, total, old = np.empty((k, k)), np.empty(k), np.empty(k), np.empty(k)
    for i in range(n):
        matrix[:] = precision
        vector[:] = shift[i]
        old[:] = factors[i]
        gram[i] = 0.0
        pull[i] = 0.0
        for g in range(groups):
            cell = i * groups + g
            total[:] = 0.0
            run = 0.0
            for position in range(pointer[cell], pointer[cell + 1]):
                e = order[position]
                v = other_factors[other[e]]
                if responses and weight[e] > 0.0:
                    add(gram[i], pull[i], v, weight[e], target[e])
                if crosses:
                    # A pair that occurs several times stands side by side, and enters its cell as one multiple of v.
                    run += 1.0
                    last = position + 1 == pointer[cell + 1]
                    if last or other[order[position + 1]] != other[e]:
                        c = cross_cell[e]
                        known = cross_residual[c] / run + inner(v, old)
                        add(matrix, vector, v, cross_weight[c] * run * run, known)
                        run = 0.0
                if owns:
                    for a in range(k):
                        total[a] += v[a]
            if owns:
                add(gram[i], pull[i], total, own_weight[cell], own_residual[cell] + inner(total, old))
        for a in range(k):
            vector[a] += pull[i, a]
            for b in range(k):
                matrix[a, b] += gram[i, a, b]
        draw_row(matrix, vector, normal[i], factors[i])
        if owns or crosses:
            for a in range(k):
                old[a] = factors[i, a] - old[a]
            for g in range(groups):
                cell = i * groups + g
                for position in range(pointer[cell], pointer[cell + 1]):
                    e = order[position]
                    moved = inner(other_factors[other[e]], old)
                    if owns:
                        own_residual[cell] -= moved
                    if crosses:
                        cross_residual[cross_cell[e]] -= moved


@compile_loop(**_JIT)
def inner(left: Any, right: Any) -> float:  # pragma: no cover - compiled
    """Return the inner product."""
    s = 0.0
    for a in range(len(left)):
        s += left[a] * right[a]
    return s


@compile_loop(**_JIT)
def add(matrix: Any, vector: Any, v: Any, weight: float, target: float) -> None:  # pragma: no cover - compiled
    """Add an observation target ~ v.row of this weight; both halves of the matrix, since whole rows vectorise."""
    for a in range(len(v)):
        scaled = weight * v[a]
        vector[a] += scaled * target
        for b in range(len(v)):
            matrix[a, b] += scaled * v[b]


@compile_loop(**_JIT)
def draw_row(matrix: Any, vector: Any, normal: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Draw from N(A^-1 b, A^-1), A = `matrix` (its lower half is read, and overwritten by its Cholesky factor L).

    L L' = A; y = L^-1 b + z, and L'^-1 y has mean A^-1 b and covariance L'^-1 L^-1 = A^-1.
    """
    k = len(vector)
    for a in range(k):
        for b in range(a + 1):
            s = matrix[a, b]
            for c in range(b):
                s -= matrix[a, c] * matrix[b, c]
            matrix[a, b] = np.sqrt(s) if a == b else s / matrix[b, b]
    for a in range(k):
        s = vector[a]
        for c in range(a):
            s -= matrix[a, c] * vector[c]
        vector[a] = s / matrix[a, a]
    for a in range(k):
        vector[a] += normal[a]
    for a in range(k - 1, -1, -1):
        s = vector[a]
        for c in range(a + 1, k):
            s -= matrix[c, a] * vector[c]
        vector[a] = s / matrix[a, a]
    for a in range(k):
        out[a] = vector[a]


@compile_loop(**_JIT)
def products(users: Any, items: Any, user_factors: Any, item_factors: Any, out: Any) -> None:  # pragma: no cover
    """Write u . v for every pair."""
    k = user_factors.shape[1]
    for e in range(len(users)):
        s = 0.0
        for a in range(k):
            s += user_factors[users[e], a] * item_factors[items[e], a]
        out[e] = s


@compile_loop(**_JIT)
def moments(  # pragma: no cover - compiled
    users: Any, items: Any, user_samples: Any, item_samples: Any, mean: Any, square: Any
) -> None:
    """Write the mean and the mean square of u . v over the kept samples, for every pair."""
    count, _, k = user_samples.shape
    for e in range(len(users)):
        first, second = 0.0, 0.0
        for r in range(count):
            s = 0.0
            for a in range(k):
                s += user_samples[r, users[e], a] * item_samples[r, items[e], a]
            first += s
            second += s * s
        mean[e] = first / count
        square[e] = second / count
