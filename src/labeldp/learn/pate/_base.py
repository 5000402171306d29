"""What both PATE learners share: how private and public rows come in, and the order in which things happen.

Design notes. Everything that can be refused is refused before a teacher learns. Then teachers vote, then the ledger is
charged with the whole promise, then votes are aggregated: a run that dies while teachers learn has cost nothing, and a
charge that is refused has released nothing. `fit` is the door: raw labels are opened in it and not kept.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from labeldp._random import NoiseKey
from labeldp._validate import check_integer
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Unit, read_unit
from labeldp.learn._rows import checked_rows
from labeldp.learn.pate._checkpoint import VoteStore, identity_of
from labeldp.learn.pate._teachers import Vote, collect_votes

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ballot:
    """The votes of a run, sensitive, and the folder in which they are kept until it is over."""

    votes: Array
    store: VoteStore | None

    def close(self) -> None:
        """Forget what is on disk."""
        if self.store is not None:
            self.store.discard()


class TeacherEnsemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Teachers, public rows, unit and checkpoint of a PATE learner. Subclasses vote, aggregate and teach a student."""

    n_teachers: int
    n_queries: int | None
    unit: str
    n_jobs: int | None
    verbose: int
    checkpoint: str | os.PathLike[str] | None

    def _rows(self, X: Any, X_public: Any, teacher: Any) -> tuple[Any, Any]:
        """Return private and public rows, as many of the latter as there are queries."""
        owner = type(self).__name__
        if X_public is None:
            raise invalid(owner, "X_public", "be given", got=None, fix="Teachers vote on public, unlabeled points.")
        private = checked_rows(self, X, inner=teacher, reset=True)
        public = checked_rows(self, X_public, inner=teacher, reset=False)
        check_integer(owner, "n_teachers", self.n_teachers, least=1, most=private.shape[0])
        n_queries = public.shape[0] if self.n_queries is None else self.n_queries
        return private, public[: check_integer(owner, "n_queries", n_queries, least=1, most=public.shape[0])]

    def _checked_new(self, X: Any) -> Any:
        """Return new rows to predict for."""
        return checked_rows(self, X, inner=self.student_, reset=False)

    def _unit(self) -> Unit:
        """Return the unit, one of those in which a change of the data reaches one teacher."""
        unit = read_unit(self.unit)
        if unit is Unit.RECORD_ADD_REMOVE:
            fix = 'Use "label" or "record_replace": a record more or less deals all rows anew.'
            raise invalid(type(self).__name__, "unit", "replace", got=self.unit, fix=fix)
        return unit

    def _polled(self, vote: Vote, teacher: Any, X: Any, targets: Array, X_public: Any, *, key: NoiseKey) -> Ballot:
        """Teach and poll all teachers; resumes from the checkpoint, if there is one."""
        split = int(key.child("split").words(start=0, count=1)[0, 0])
        store = None
        if self.checkpoint is not None:
            settings = sorted((name, repr(value)) for name, value in teacher.get_params(deep=True).items())
            method = vote.keywords if isinstance(vote, partial) else {}
            facts = (type(self).__name__, type(teacher).__name__, settings, method, self.n_teachers)
            identity = identity_of(X, targets, X_public, *facts)
            store = VoteStore.opened(type(self).__name__, self.checkpoint, identity=identity, split=split)
            split = store.split
        votes = collect_votes(
            vote,
            teacher,
            X,
            targets,
            X_public,
            n_teachers=self.n_teachers,
            split=split,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            store=store,
        )
        return Ballot(votes=votes, store=store)


def restated(guarantee: Guarantee, unit: Unit) -> Guarantee:
    """Return a promise about replaced records as one about replaced labels, which are a special case of them."""
    parts = tuple((name, restated(part, unit)) for name, part in guarantee.parts)
    return dataclasses.replace(guarantee, unit=unit, parts=parts)


def same_length(owner: str, n_rows: int, n_targets: int) -> None:
    """Refuse labels that are not one per row."""
    if n_rows != n_targets:
        got = Described(f"{n_targets} for {n_rows} rows")
        raise invalid(owner, "y", "have one label per row of X", got=got)


def some_answers(owner: str, n_answered: int, n_queries: int, release: Callable[[], None]) -> None:
    """Refuse to teach a student on nothing; what was spent is spent, so votes on disk are forgotten as well."""
    if n_answered == 0:
        release()
        fix = "The budget is spent. Use more teachers, a larger epsilon, fewer queries or a lower threshold."
        raise invalid(owner, "answers", "be at least one", got=Described(f"0 of {n_queries} queries"), fix=fix)
