"""Checks of what a mechanism does: labels drawn through the door, against the matrix it states.

>>> from labeldp import RandomizedResponse
>>> from labeldp.testing import Subject
>>> list(frequencies_match(Subject(mechanism=RandomizedResponse(1.0))))
[]

Design notes. Three questions are statistical (frequencies, independence, freshness); each spends a third of
`Subject.failure`, divided by the number of numbers it compares (Bonferroni). A prior is believed to be public, so every check compares with the channel that the
mechanism builds without labels, never with the one that a release carries: a door that lies about its channel is
caught by its draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from labeldp.channel import FiniteChannel
from labeldp.testing._exact import agreement, two_sided
from labeldp.testing._matrices import matrices, where
from labeldp.testing._subject import Ints, Subject, Trial

STATISTICAL_CHECKS = 3
#: Draws of each prior, label and layout. A probability near 1/2 that is wrong by 0.1 is then found: at a level of
#: 1e-10, 6.5 standard deviations, and one is 0.5 / sqrt(2000) = 0.011.
DRAWS = 2000
#: Lags at which noise might repeat: every small one, and the powers of two that batches and buffers have.
LAGS = (*range(1, 65), *(1 << power for power in range(7, 17)))
#: Two steps of 2^16, so that the largest lag too has as many pairs.
EXAMPLES = 1 << 17
#: Two secure releases agree in every label with at most this probability, or less if `failure` asks for less.
SAME = 1e-9
#: How often that is asked: without rng and with two seeds, in three layouts.
SAME_ASKED = 6
#: No more labels than this are drawn to reach it: where outputs are that certain, the question is left open.
MOST_LABELS = 1 << 18
PIECES = (1, 7, 64, 200)


def channel_ignores_labels(subject: Subject) -> Iterator[str]:
    """A release carries the channel that the mechanism builds without labels, whatever the labels are."""
    for trial in subject.one_of_each():
        public = arrays_of(subject.channel(trial))
        shifted = (trial.codes + 1) % subject.n_classes
        for codes in (trial.codes, shifted):
            other = Trial(layout=trial.layout, codes=codes, rows=trial.rows, prior=trial.prior, groups=trial.groups)
            released = arrays_of(subject.release(other, rng=subject.seed).channel)
            if not same_arrays(public, released):
                yield f"{trial.layout}: the channel of the release is not the one built without labels"


def frequencies_match(subject: Subject) -> Iterator[str]:
    """Every label, under every prior, comes out as often as its row of the matrix says."""
    cells = subject.n_rows * subject.n_classes
    rows, codes = np.divmod(np.repeat(np.arange(cells), DRAWS), subject.n_classes)
    layouts = 1 if subject.priors is None else 3
    outputs = subject.channel(next(subject.one_of_each())).n_outputs
    level = level_of(subject) / (layouts * cells * outputs)
    for trial in subject.trials(codes, rows):
        counts = counted(trial, subject.release(trial, rng=subject.seed).codes, subject, outputs)
        for row, matrix in matrices(subject, trial):
            unlikely = two_sided(counts[row], DRAWS, matrix) <= level
            for label, output in np.argwhere(unlikely).tolist():
                seen, stated = int(counts[row, label, output]), float(matrix[label, output])
                yield f"{where(trial, row)}: {label} -> {output} {seen} times of {DRAWS}, stated probability {stated:.6g}"


def examples_are_independent(subject: Subject) -> Iterator[str]:
    """Noise is not used twice: outputs a fixed distance apart agree as often as independent ones do.

    For lag L the examples are cut into blocks of 2 L and example i of the first half is paired with i + L. The pairs
    are disjoint, so the number that agree is binomial, with the probability sum_o T[y, o]^2.
    """
    row, label = least_certain(subject)
    codes, rows = np.full(EXAMPLES, label), np.full(EXAMPLES, row)
    level = level_of(subject) / (len(LAGS) * (1 if subject.priors is None else 3))
    for trial in subject.trials(codes, rows):
        drawn = subject.release(trial, rng=subject.seed).codes
        chance = agreement(next(matrices(subject, trial))[1][label])
        agree = np.array([agreeing(drawn, lag) for lag in LAGS])
        unlikely = two_sided(agree[:, 0], agree[:, 1], np.full(len(LAGS), chance)) <= level
        for j in np.flatnonzero(unlikely):
            same, pairs = agree[j].tolist()
            yield f"{where(trial, row)}: lag {LAGS[j]}: {same} of {pairs} pairs agree, expected share {chance:.6g}"


def secure_by_default(subject: Subject) -> Iterator[str]:
    """Without an rng the noise is fresh at every call, and the release says that it is not seeded."""
    for trial in unsure_trials(subject):
        first, second = subject.release(trial, rng=None), subject.release(trial, rng=None)
        if first.seeded or second.seeded:
            yield f"{trial.layout}: a release without rng is marked seeded"
        if len(trial.codes) > 1 and np.array_equal(first.codes, second.codes):
            yield f"{trial.layout}: two releases without rng have the same {len(trial.codes)} labels"


def seeds_reproduce(subject: Subject) -> Iterator[str]:
    """A seed gives the same labels again, another seed gives others, and the release says that it is seeded."""
    for trial in unsure_trials(subject):
        first, again, other = (subject.release(trial, rng=subject.seed + j) for j in (0, 0, 1))
        if not (first.seeded and again.seeded and other.seeded):
            yield f"{trial.layout}: a release with a seed is not marked seeded"
        if not np.array_equal(first.codes, again.codes):
            yield f"{trial.layout}: one seed, two different releases"
        if len(trial.codes) > 1 and np.array_equal(first.codes, other.codes):
            yield f"{trial.layout}: two seeds, the same {len(trial.codes)} labels"


def pieces_equal_whole(subject: Subject) -> Iterator[str]:
    """Given in pieces with `start=`, the examples are released exactly as if they were given whole."""
    n = sum(PIECES) + 33  # not a multiple of 64: kernels that work on tiles have a short last one
    at = np.arange(n)
    codes, rows = at % subject.n_classes, (at // subject.n_classes) % subject.n_rows
    for trial in subject.trials(codes, rows):
        whole = subject.release(trial, rng=subject.seed, start=5).codes
        edges = np.minimum(np.cumsum((0, *PIECES, n)), len(trial.codes))
        pairs = [(int(a), int(b)) for a, b in itertools.pairwise(edges) if a < b]
        parts = [subject.release(trial.part(a, b), rng=subject.seed, start=5 + a).codes for a, b in pairs]
        differ = np.flatnonzero(np.concatenate(parts) != whole)
        if len(differ):
            yield f"{trial.layout}: {len(differ)} of {len(whole)} labels differ, the first at {int(differ[0])}"


def level_of(subject: Subject) -> float:
    """Return what one statistical check may spend."""
    return subject.failure / STATISTICAL_CHECKS


def counted(trial: Trial, drawn: Any, subject: Subject, outputs: int) -> Ints:
    """Return how often each output came out of each label under each prior: (rows, labels, outputs)."""
    shape = (subject.n_rows, subject.n_classes, outputs)
    cell = np.ravel_multi_index((trial.rows, trial.codes, np.asarray(drawn, dtype=np.int64)), shape)
    return np.bincount(cell, minlength=math.prod(shape)).reshape(shape)


def agreeing(drawn: Any, lag: int) -> tuple[int, int]:
    """Return how many of the disjoint pairs at this lag agree, and how many pairs there are."""
    blocks = np.asarray(drawn)[: len(drawn) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    return int((blocks[:, 0] == blocks[:, 1]).sum()), int(blocks[:, 0].size)


def least_certain(subject: Subject) -> tuple[int, int]:
    """Return the prior and label whose output is hardest to foresee: where repeated noise shows best."""
    chances: dict[tuple[int, int], float] = {}
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            chances.update({(row, label): agreement(line) for label, line in enumerate(matrix)})
    return min(chances, key=lambda place: chances[place])


def unsure_trials(subject: Subject) -> Iterator[Trial]:
    """Yield trials with so many labels that two releases are hardly ever the same (see `SAME`).

    Where outputs are certain (epsilon = inf, a constant answer) or nearly so, one label is left to see the marks by.
    """
    row, label = least_certain(subject)
    chance = max(
        agreement(matrix[label]) for t in subject.one_of_each() for r, matrix in matrices(subject, t) if r == row
    )
    same = min(SAME, level_of(subject) / SAME_ASKED)
    needed = MOST_LABELS + 1 if chance >= 1 else math.ceil(math.log(same) / math.log(chance))
    n = needed if needed <= MOST_LABELS else 1
    return subject.trials(np.full(n, label), np.full(n, row))


def arrays_of(channel: FiniteChannel) -> dict[str, Any]:
    """Return everything that a channel states."""
    return {**channel.header(), **channel.row_arrays(), **channel.example_arrays()}


def same_arrays(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two channels state the same, bit for bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
