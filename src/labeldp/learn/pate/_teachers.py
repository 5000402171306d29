"""Teachers: rows are dealt into parts without a look at them, each part teaches one model, each model votes.

>>> parts = deal(7, n_teachers=3, split=1)
>>> sorted(len(part) for part in parts), sorted(int(row) for part in parts for row in part)
([2, 2, 3], [0, 1, 2, 3, 4, 5, 6])

Design notes. A worker returns votes, never a model: models of private labels are not kept. Workers are module functions
and run through joblib, so that whatever backend is set (`joblib.parallel_config`) spreads them; they come in blocks, so
that votes are kept and progress is shown between blocks whatever the backend can do. Teachers take random states from
`split`, not from the noise key, so that a resumed run goes on as it began. A teacher learns on one core (`n_jobs` is for
using more): parts are small, and threads of linear algebra then cost more than they do, four times on two cores. Errors and warnings that a teacher raises
are seen by whoever calls `fit`, the trusted curator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from threadpoolctl import ThreadpoolController

from labeldp._random import NoiseKey
from labeldp.errors import Described, invalid
from labeldp.learn.pate._checkpoint import VoteStore
from labeldp.learn.pate._columns import fit_labels

Array = npt.NDArray[Any]
#: (teacher, its rows, its targets, public points) -> votes
Vote = Callable[[Any, Any, Array, Any], Array]
#: Teachers per worker between two looks at what is done.
PER_WORKER = 4


def deal(n_rows: int, *, n_teachers: int, split: int) -> list[Array]:
    """Return disjoint parts of all rows, equal but for one row, by a random order that depends on `split` alone."""
    words = NoiseKey.from_seed(split).child("parts").words(start=0, count=n_rows)
    return [np.sort(part) for part in np.array_split(np.argsort(words[:, 0], kind="stable"), n_teachers)]


def seeded_teacher(teacher: Any, index: int, *, split: int) -> Any:
    """Return an unfitted copy whose every `random_state` is a number of its own."""
    model = clone(teacher)
    names = [name for name in sorted(model.get_params(deep=True)) if name.split("__")[-1] == "random_state"]
    words = NoiseKey.from_seed(split).child("teacher", index).words(start=0, count=max(len(names), 1))
    return model.set_params(
        **{name: int(word >> np.uint64(33)) for name, word in zip(names, words[:, 0], strict=False)}
    )


def collect_votes(
    vote: Vote,
    teacher: Any,
    X: Any,
    targets: Array,
    X_public: Any,
    *,
    n_teachers: int,
    split: int,
    n_jobs: int | None,
    verbose: int,
    store: VoteStore | None,
) -> Array:
    """Return the votes of all teachers, stacked; those in the store are not asked again."""
    parts = deal(X.shape[0], n_teachers=n_teachers, split=split)
    votes: dict[int, Array] = {}
    if store is not None:
        votes = {i: kept for i in range(n_teachers) if (kept := store.load(i)) is not None}
    waiting = [i for i in range(n_teachers) if i not in votes]
    block = PER_WORKER * joblib.effective_n_jobs(n_jobs)
    with joblib.Parallel(n_jobs=n_jobs) as pool:
        for start in range(0, len(waiting), block):
            now = waiting[start : start + block]
            jobs = (
                joblib.delayed(vote)(seeded_teacher(teacher, i, split=split), X[parts[i]], targets[parts[i]], X_public)
                for i in now
            )
            for i, answer in zip(now, pool(jobs), strict=True):
                votes[i] = answer
                if store is not None:
                    store.save(i, answer)
            if verbose:
                sys.stderr.write(f"PATE: {len(votes)} of {n_teachers} teachers have voted\n")
    return np.stack([votes[i] for i in range(n_teachers)])


def vote_for_class(teacher: Any, X: Any, codes: Array, X_public: Any) -> Array:
    """Teach on codes of classes and return one code per public point; a part of one class makes a constant teacher."""
    model = teacher if np.unique(codes).size > 1 else DummyClassifier(strategy="most_frequent")
    with one_core():
        model.fit(X, codes)
        votes = np.asarray(model.predict(X_public))
    if votes.shape != (X_public.shape[0],) or not np.isin(votes, codes).all():
        fix = "It must be a classifier: `predict` returns one of the labels it was fitted on."
        got = Described(f"a prediction of shape {votes.shape}, dtype {votes.dtype}")
        raise invalid("PATE", "teacher", "predict one class per point", got=got, fix=fix)
    return votes.astype(np.int32)


def vote_for_labels(teacher: Any, X: Any, targets: Array, X_public: Any, *, tau: int | None) -> Array:
    """Teach on rows of 0 and 1 and return such rows for the public points, clipped to tau labels each."""
    with one_core():
        model = fit_labels(teacher, X, targets)
        votes = model.predict(X_public)
        return votes if tau is None else clipped(votes, model.scores(X_public), tau=tau)


def clipped(votes: Array, scores: Array, *, tau: int) -> Array:
    """Return votes with at most tau labels a row: those of the highest score, among equals the first.

    >>> clipped(np.array([[1, 1, 0, 1]], np.uint8), np.array([[0.6, 0.9, 0.1, 0.9]]), tau=2).tolist()
    [[0, 1, 0, 1]]
    """
    ranked = np.where(votes == 1, scores, -np.inf)
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :tau]
    kept = np.zeros_like(votes)
    np.put_along_axis(kept, order, 1, axis=1)
    return kept & votes


def one_core() -> Any:
    """Return a context in which neither linear algebra nor OpenMP starts threads."""
    return threadpools().limit(limits=1)


@lru_cache(maxsize=1)
def threadpools() -> Any:
    """Find the thread pools of this process; a search takes milliseconds, so it is done once."""
    return ThreadpoolController()
