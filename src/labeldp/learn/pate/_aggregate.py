"""From votes to answers: the only functions that see votes, and all that leaves them is what a plan has paid for.

>>> import numpy as np
>>> from labeldp._random import BitStream, NoiseKey
>>> from labeldp.learn.pate._plan import VotePlan
>>> counts = count_classes(np.array([[0, 1], [0, 1], [0, 2]]), n_classes=3)
>>> counts.tolist()
[[3, 0, 0], [0, 2, 1]]
>>> plan = VotePlan(n_queries=2, n_answers=2, sigma=0.01)
>>> answer_classes(counts, plan, level=0.0, bits=BitStream(NoiseKey.from_seed(1))).codes.tolist()
[0, 1]

References: Papernot et al. 2018; Zhu & Wang 2022, Example 14.

Design notes. Counts are whole and get discrete Gaussian noise by an exact sampler: no note on floating point is needed,
except for the Gumbel noise of StableTopK, whose guarantee carries its own. Ties go to the first class, which is
post-processing. In StableTopK two public candidates are added: one with the vote of every teacher, so that "no label"
is the gap below it, and one with no vote, so that "all labels" is the gap above it. Their counts are constant, so that
gaps move no further than before: each count moves by at most 1 under replacement, a gap by at most 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import BitStream, NoiseKey
from labeldp._samplers import discrete_gaussian, variance_above
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.learn.pate._plan import VotePlan
from labeldp.selection import StablePlan

Counts = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
Sets = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassAnswers:
    """Which queries were answered (`rows`, rising) and how (`codes`); `n_asked`: how many were asked before the end."""

    rows: Places
    codes: Places
    n_asked: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SetAnswers:
    """Which queries were answered (`rows`, rising) and with which labels (`sets`, one row of 0 and 1 each)."""

    rows: Places
    sets: Sets


def count_classes(votes: npt.NDArray[Any], *, n_classes: int) -> Counts:
    """Return counts (queries, classes) of votes (teachers, queries), each the code of one class."""
    if votes.ndim != 2 or votes.dtype.kind not in "iu" or votes.min() < 0 or votes.max() >= n_classes:
        must = f"be one code in [0, {n_classes}) per teacher and query"
        raise invalid("PATE", "votes", must, got=Described("something else"), kind=PrivacyError)
    n_queries = votes.shape[1]
    cells = np.arange(n_queries) * n_classes + votes
    return np.bincount(cells.reshape(-1), minlength=n_queries * n_classes).reshape(n_queries, n_classes)


def count_labels(votes: npt.NDArray[Any], *, tau: int | None) -> Counts:
    """Return counts (queries, labels) of votes (teachers, queries, labels) of 0 and 1.

    The clip is checked here, on the votes that are counted: accounting for tau and using more would void the promise.
    """
    if votes.ndim != 3 or votes.dtype.kind not in "iub" or not np.isin(votes, (0, 1)).all():
        must = "be 0 or 1 per teacher, query and label"
        raise invalid("MultiLabelPATE", "votes", must, got=Described("something else"), kind=PrivacyError)
    if tau is not None and votes.sum(axis=2, dtype=np.int64).max() > tau:
        got = Described("a teacher with more")
        raise invalid("MultiLabelPATE", "votes", f"name at most tau = {tau} labels", got=got, kind=PrivacyError)
    counts: Counts = votes.sum(axis=0, dtype=np.int64)
    return counts


def answer_classes(counts: Counts, plan: VotePlan, *, level: float, bits: BitStream) -> ClassAnswers:
    """Answer by GNMax; with a confidence test, only where the largest count with its own noise is at least `level`."""
    check_length(counts, plan)
    rows = np.arange(len(counts))
    if plan.threshold_sigma is not None:
        rows = np.flatnonzero(counts.max(axis=1) + noise(bits, plan.threshold_sigma, (len(counts),)) >= level)
    rows = rows[: plan.n_answers]
    # After the last answer that was paid for nothing is asked any more.
    n_asked = int(rows[-1]) + 1 if rows.size == plan.n_answers else len(counts)
    noisy = counts[rows] + noise(bits, plan.sigma, (rows.size, counts.shape[1]))
    return ClassAnswers(rows=rows, codes=noisy.argmax(axis=1), n_asked=n_asked)


def answer_labels(counts: Counts, plan: VotePlan, *, n_teachers: int, bits: BitStream) -> SetAnswers:
    """Answer every query with the labels whose noisy count is more than half of the teachers."""
    check_length(counts, plan)
    noisy = counts + noise(bits, plan.sigma, counts.shape)
    return SetAnswers(rows=np.arange(len(counts)), sets=(2 * noisy > n_teachers).astype(np.uint8))


def answer_stable(
    counts: Counts, plan: StablePlan, *, n_teachers: int, key: NoiseKey, most_labels: int | None = None
) -> SetAnswers:
    """Answer by StableTopK: the leading labels, none or all among the possibilities; nothing where its test fails.

    `most_labels` is public: sets of more labels are not among the choices.
    """
    # The first rank is the added candidate alone, which is the empty set.
    k_max = None if most_labels is None else most_labels + 1
    sets = np.zeros(counts.shape, np.uint8)
    passed = np.zeros(len(counts), bool)
    for row, votes in enumerate(counts):
        padded = np.concatenate([[n_teachers], votes, [0]])
        found = plan.select(padded, k_max=k_max, rng=key.child(row))
        passed[row] = found.passed
        if found.passed:
            leading = found.items - 1
            sets[row, leading[(leading >= 0) & (leading < votes.size)]] = 1
    rows = np.flatnonzero(passed)
    return SetAnswers(rows=rows, sets=sets[rows])


def noise(bits: BitStream, sigma: float, shape: tuple[int, ...]) -> Counts:
    """Draw discrete Gaussian noise of at least this sigma."""
    size = int(np.prod(shape))
    return discrete_gaussian(bits, variance=variance_above(sigma**2), size=size).reshape(shape)


def check_length(counts: Counts, plan: VotePlan) -> None:
    """Refuse more queries than were paid for."""
    if len(counts) > plan.n_queries:
        must = f"be at most the plan's queries ({plan.n_queries})"
        raise invalid("PATE", "counts", must, got=len(counts), kind=PrivacyError)
