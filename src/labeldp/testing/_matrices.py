"""Checks of what a mechanism says: its dense matrices and its guarantee, by brute force.

>>> from labeldp import RandomizedResponse
>>> from labeldp.testing import Subject
>>> list(privacy_holds(Subject(mechanism=RandomizedResponse(1.0))))
[]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from labeldp.testing._exact import rounding_of, worst_log_ratio
from labeldp.testing._subject import Floats, Subject, Trial

#: A row of K entries sums to one within rounding: below 1e-12 even for thousands of classes.
SUM_TOLERANCE = 1e-12
#: The accuracy asked of a stated epsilon, and of an optimum; rounding is a millionth of it.
STATED_TOLERANCE = 1e-9


def rows_are_distributions(subject: Subject) -> Iterator[str]:
    """Entries in [0, 1], rows that sum to one."""
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            if not np.all((matrix >= 0) & (matrix <= 1 + SUM_TOLERANCE)):
                yield f"{where(trial, row)}: entries from {matrix.min()!r} to {matrix.max()!r}"
            sums = matrix.sum(axis=1)
            if not np.all(np.abs(sums - 1) <= SUM_TOLERANCE):
                worst = int(np.argmax(np.abs(sums - 1)))
                yield f"{where(trial, row)}: the row of label {worst} sums to {float(sums[worst])!r}"


def privacy_holds(subject: Subject) -> Iterator[str]:
    """No output is more than e^epsilon times likelier under one label than under another.

    A guarantee that is not pure has an infinite `epsilon()` and passes: this check judges pure promises.
    """
    promised = subject.mechanism.guarantee.epsilon()
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            exact = worst_log_ratio(matrix)
            if not exact <= promised + rounding_of(promised):
                yield f"{where(trial, row)}: log-ratio {exact!r}, promised {promised!r}"


def epsilon_is_exact(subject: Subject) -> Iterator[str]:
    """`channel.epsilon` is the worst log-ratio of the matrices of its examples."""
    for trial in subject.one_of_each():
        exact = max(worst_log_ratio(matrix) for _, matrix in matrices(subject, trial))
        stated = subject.channel(trial).epsilon
        if not (stated == exact or abs(stated - exact) <= STATED_TOLERANCE):
            yield f"{trial.layout}: states {stated!r}, matrices have {exact!r}"


def is_optimal(subject: Subject) -> Iterator[str]:
    """Pr[output = label], label ~ prior, is max_k w_k: what no epsilon-private mechanism exceeds (Theorem 3)."""
    epsilon = subject.mechanism.guarantee.epsilon()
    flat = np.full((1, subject.n_classes), 1.0 / subject.n_classes)
    priors = flat if subject.priors is None else subject.priors
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            got = float(priors[row] @ np.diagonal(matrix))
            best = best_accuracy(priors[row], epsilon)
            if not abs(got - best) <= STATED_TOLERANCE:
                yield f"{where(trial, row)}: expected accuracy {got!r}, optimum {best!r}"


def best_accuracy(prior: Floats, epsilon: float) -> float:
    """Return max_k w_k, w_k = e^epsilon / (e^epsilon + k - 1) (p_(1) + ... + p_(k)), by sorting.

    Written as 1 / (1 + (k - 1) e^-epsilon), which neither overflows nor loses anything at a large epsilon.

    >>> best_accuracy(np.array([0.6, 0.4]), 0.0)
    0.6
    """
    mass = np.cumsum(np.sort(np.asarray(prior, dtype=np.float64))[::-1])
    return float((mass / (1 + np.arange(len(mass)) * math.exp(-epsilon))).max())


def matrices(subject: Subject, trial: Trial) -> Iterator[tuple[int, Floats]]:
    """Yield the dense matrix of each prior in a trial, from the channel that was built without labels."""
    channel = subject.channel(trial)
    rows, first = np.unique(trial.rows, return_index=True)
    for row, example in zip(rows.tolist(), first.tolist(), strict=True):
        yield row, np.asarray(channel.matrix(example), dtype=np.float64)


def where(trial: Trial, row: int) -> str:
    """Return which prior in which layout, for messages."""
    return f"{trial.layout}, row {row}"
