"""`PATE`: teachers vote for one class each, and GNMax or Confident-GNMax answers; and what both PATE learners share.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X, X_public = rng.normal(size=(2000, 2)), rng.normal(size=(60, 2))
>>> model = PATE(n_teachers=100, epsilon=4.0, n_answers=20, classes=[0, 1], random_state=0)
>>> model.fit(X, (X[:, 0] > 0).astype(int), X_public).predict([[-2.0, 0.0], [2.0, 0.0]]).tolist()
[0, 1]
>>> model.n_answered_ <= 20, model.seeded_
(True, True)

`TeacherEnsemble` is the part that does not depend on what a vote is: how private and public rows come in, what one change of
the data is, and how teachers are polled.

Design notes. Everything that can be refused is refused before a teacher learns. Then teachers vote, then the ledger is
charged with the whole promise, then votes are aggregated: a run that dies while teachers learn has cost nothing, and a
charge that is refused has released nothing. `fit` is the door: raw labels are opened in it and not kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.utils.validation import check_is_fitted

from labeldp.arrays import Array, Floats
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit, read_unit
from labeldp.learn.boosters import hush
from labeldp.learn.corrections import check_rows
from labeldp.learn.pate.teachers import Vote, VoteStore, collect_votes, digest_run, vote_for_class
from labeldp.learn.pate.votes import (
    ASSUMPTIONS,
    ClassAnswers,
    VotePlan,
    answer_classes,
    check_share,
    count_classes,
    vote_plan,
)
from labeldp.learn.rehearsal import check_estimator
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.priors import model_probabilities
from labeldp.random import BitStream, NoiseKey, as_key
from labeldp.release import SensitiveLabels
from labeldp.release.budget import Budget
from labeldp.release.labels import box_labels, codes_of
from labeldp.release.persons import ASSIGNMENT, Persons
from labeldp.release.scores import ScoredClassifier
from labeldp.release.templates import check_reticent, copy_template, list_weights
from labeldp.validate import check_choice, check_integer, check_real

AGGREGATIONS = ("confident-gnmax", "gnmax")


@dataclass(frozen=True, kw_only=True, eq=False)
class Ballot:
    """The votes of a run, sensitive, and the folder in which they are kept until it is over."""

    votes: Array
    store: VoteStore | None

    def close(self) -> None:
        """Forget what is on disk."""
        if self.store is not None:
            self.store.discard()


class TeacherEnsemble(ScoredClassifier, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Teachers, public rows, unit and checkpoint of a PATE learner. Subclasses vote, aggregate and teach a student.

    `labeldp.learn.save_model` knows PATE learners by this class.
    """

    n_teachers: int
    n_queries: int | None
    unit: str
    n_jobs: int | None
    verbose: int
    checkpoint: str | os.PathLike[str] | None

    def _copy_templates(self, make_default: Callable[[], BaseEstimator]) -> tuple[BaseEstimator, BaseEstimator]:
        """Return teacher and student untrained: a teacher that has seen others' rows, or a student that has seen labels, would tell.

        A teacher learns raw labels: one that is set to keep or to tell what it learns is refused, and libraries that do so by default
        are silenced.
        """
        owner = type(self).__name__
        given = {"teacher": self.teacher, "student": self.student}
        fresh = {
            name: make_default() if one is None else copy_template(owner, name, one) for name, one in given.items()
        }
        check_reticent(owner, "teacher", fresh["teacher"])
        hush(fresh["teacher"])
        return fresh["teacher"], fresh["student"]

    def _list_given(self, persons: Persons | None) -> tuple[str, ...]:
        """Return, in words, what was handed in beside features and labels, and must not have seen these."""
        starts = list_weights(self.teacher, self.student)
        return starts if persons is None else (*starts, ASSIGNMENT)

    def _check_points(self, X: Any, X_public: Any, teacher: Any) -> tuple[Any, Any]:
        """Return private and public rows, as many of the latter as there are queries."""
        owner = type(self).__name__
        if X_public is None:
            raise invalid(owner, "X_public", "be given", got=None, fix="Teachers vote on public, unlabeled points.")
        private = check_rows(self, X, inner=teacher, reset=True)
        public = check_rows(self, X_public, inner=teacher, reset=False)
        check_integer(owner, "n_teachers", self.n_teachers, least=1, most=private.shape[0])
        n_queries = public.shape[0] if self.n_queries is None else self.n_queries
        return private, public[: check_integer(owner, "n_queries", n_queries, least=1, most=public.shape[0])]

    def _check_new(self, X: Any) -> Any:
        """Return new rows to predict for."""
        return check_rows(self, X, inner=self.student_, reset=False)

    def _read_persons(self, persons: Any, n_rows: int) -> Persons | None:
        """Return who owns each row, at least as many as there are teachers; None where nobody was named."""
        if persons is None:
            return None
        found = Persons.of(persons, n_rows=n_rows, owner=type(self).__name__)
        fix = "A teacher learns from all rows of a person, and there must be a person for each."
        check_integer(type(self).__name__, "n_teachers", self.n_teachers, least=1, most=found.n_persons, fix=fix)
        return found

    def _read_unit(self, persons: Persons | None) -> Unit:
        """Return the unit, one of those in which a change of the data reaches one teacher.

        Where persons are given no person's rows are in two parts: all labels of one, replaced together, reach one teacher, and the
        numbers are those of one label.
        """
        unit = read_unit(self.unit)
        if persons is not None or unit is Unit.PERSON:
            if persons is None or unit is Unit.RECORD_REPLACE:
                got = Described(f'unit="{unit.value}" {"without" if persons is None else "with"} persons')
                fix = 'Give `persons` to `fit`, and leave the unit as it is ("label"): it becomes that of a person.'
                raise invalid(type(self).__name__, "unit", "go with `persons`", got=got, fix=fix, kind=PrivacyError)
            return Unit.PERSON
        if unit is Unit.RECORD_ADD_REMOVE:
            fix = 'Use "label" or "record_replace": a record more or less deals all rows anew.'
            raise invalid(type(self).__name__, "unit", "replace", got=self.unit, fix=fix)
        return unit

    def _poll(
        self,
        vote: Vote,
        teacher: Any,
        X: Any,
        targets: Array,
        X_public: Any,
        *,
        key: NoiseKey,
        persons: Persons | None,
    ) -> Ballot:
        """Teach and poll all teachers; goes on from the checkpoint, if there is one of the same data and settings."""
        split = int(key.child("split").words(start=0, count=1)[0, 0])
        store = None
        if self.checkpoint is not None:
            settings = sorted((name, repr(value)) for name, value in teacher.get_params(deep=True).items())
            method = vote.keywords if isinstance(vote, partial) else {}
            facts = (type(self).__name__, type(teacher).__name__, settings, method, self.n_teachers)
            whose = () if persons is None else (persons.codes,)
            identity = digest_run(X, targets, X_public, *facts, *whose)
            store = VoteStore.open(type(self).__name__, self.checkpoint, identity=identity, split=split)
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
            persons=persons,
        )
        return Ballot(votes=votes, store=store)


def restate_unit(guarantee: Guarantee, unit: Unit) -> Guarantee:
    """Return a promise about replaced records as one about replaced labels, which are a special case of them."""
    parts = tuple((name, restate_unit(part, unit)) for name, part in guarantee.parts)
    return replace(guarantee, unit=unit, parts=parts)


def check_answers(owner: str, n_answered: int, n_queries: int, ballot: Ballot) -> None:
    """Refuse to teach a student on nothing; what was spent is spent, so votes on disk are forgotten as well."""
    if n_answered == 0:
        ballot.close()
        fix = "The budget is spent. Use more teachers, a larger epsilon, fewer queries or a lower threshold."
        raise invalid(owner, "answers", "be at least one", got=Described(f"0 of {n_queries} queries"), fix=fix)


class PATE(TeacherEnsemble):
    """Private aggregation of teacher ensembles: a student that learns from noisy majorities of teachers.

    Parameters
    ----------
    teacher, student : classifiers; default SoftmaxRegression()
        Teachers learn private labels, the student the answers. Teachers need only `predict`. One with a `checkpoint`, a `memory`,
        `callbacks`, `progress` or `verbose` is refused: it would keep or show what it learns. Code of your own is yours to look at.
    n_teachers : int
        Parts of the private data. More teachers drown the noise, and know less each.
    epsilon, delta : float
        The budget of the whole run; delta must be > 0.
    n_queries : int, optional
        Ask about that many public points, the first ones; by default all.
    n_answers : int, optional
        Stop after that many answers: only for "confident-gnmax", by default half of the queries. Fewer answers are
        clearer ones.
    aggregation : {"confident-gnmax", "gnmax"}
        "gnmax" answers every query. "confident-gnmax" first tests whether the largest count, with noise, reaches
        `threshold`; it helps where teachers are many and some points are hard.
    threshold : float
        The share of teachers that must agree, in [0, 1].
    threshold_share : float
        The part of the budget (in zCDP) that pays for the tests.
    unit : {"label", "record_replace"}
        What one change of the private data is. Either reaches one teacher, so that the numbers are the same. Where `fit` is
        given `persons` it is all labels of a person, at the same price.
    classes : sequence, optional
        The public list of classes. If it is left out it is read off y, and the guarantee says so.
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the model `seeded_`: not private.
    ledger : Ledger, optional
        Charged once with the whole promise, after the teachers have learned and before a vote is counted.
    label_set : str
        The ledger's name for these labels.
    n_jobs : int, optional
        Of joblib; the backend that is set there decides where teachers learn.
    checkpoint : path, optional
        A folder for the votes of an interrupted run, new or from that run. It holds private votes without noise: it is
        readable by its owner alone and is deleted when `fit` is done.
    verbose : int
        1 writes how many teachers have voted to stderr.

    Notes
    -----
    *Guarantee.*
    (epsilon, delta) in the stated unit; trusts a curator. Accounting is independent of the data: T / (2 s1^2) + A / s^2
    in zCDP, whether or not all A answers are given (see `labeldp.learn.pate.votes`). Predictions of the student are
    post-processing.

    *Edge cases.*
    A part without some classes makes a teacher that never votes for them; a part with one class a constant teacher. No
    answer at all is an error (the budget is spent). If all answers agree the student is constant.

    Attributes
    ----------
    guarantee_, seeded_, ledger_entry_ : what was promised, whether it is reproducible, the ledger's row
    answered_, answers_, n_answered_, n_asked_ : rows of X_public that were answered, with what, and how many were asked
    plan_ : the noise, public;  student_, classes_, n_features_in_ : as always
    """

    def __init__(
        self,
        teacher: Any = None,
        *,
        student: Any = None,
        n_teachers: int = 100,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_queries: int | None = None,
        n_answers: int | None = None,
        aggregation: str = "confident-gnmax",
        threshold: float = 0.6,
        threshold_share: float = 0.2,
        unit: str = "label",
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.n_teachers = n_teachers
        self.epsilon = epsilon
        self.delta = delta
        self.n_queries = n_queries
        self.n_answers = n_answers
        self.aggregation = aggregation
        self.threshold = threshold
        self.threshold_share = threshold_share
        self.unit = unit
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any, X_public: Any = None, *, persons: Any = None) -> PATE:
        """Teach the teachers on X and y, let them vote on X_public, and teach the student what was answered.

        `persons` (n,) are the public ids of who owns each row: all rows of a person go to one teacher, and the promise is about
        all her labels.
        """
        teacher, student = self._copy_templates(SoftmaxRegression)
        private, public = self._check_points(X, X_public, teacher)
        labels = box_labels("PATE", y, n_rows=private.shape[0], classes=self.classes, label_set=self.label_set)
        if self.student is not None:
            check_estimator(self.student, public, n_classes=labels.n_classes)
        owners = self._read_persons(persons, private.shape[0])
        plan = self._make_plan(public.shape[0], owners)
        level = self._find_level()
        key = as_key("PATE", self.random_state, name="random_state")
        bits = BitStream(key.claim("PATE"))
        given = self._list_given(owners)
        budget = Budget(owner="PATE", labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=owners)
        codes = codes_of(labels).astype(np.int64)
        ballot = self._poll(vote_for_class, teacher, private, codes, public, key=key, persons=owners)
        plan = replace(plan, assumptions=budget.state(plan.guarantee).assumptions)
        entry = budget.charge(plan.guarantee, mechanism=self._describe(plan))
        counts = count_classes(ballot.votes, n_classes=labels.n_classes)
        found = answer_classes(counts, plan, level=level, bits=bits)
        check_answers("PATE", found.rows.size, found.n_asked, ballot)
        self._keep(found, plan, labels, public, student)
        self.seeded_, self.ledger_entry_ = key.seeded, entry
        ballot.close()
        return self

    def _make_plan(self, n_queries: int, persons: Persons | None) -> VotePlan:
        """Return the noise of the run."""
        tested = check_choice("PATE", "aggregation", self.aggregation, AGGREGATIONS) == "confident-gnmax"
        if not tested and self.n_answers not in (None, n_queries):
            fix = 'Use n_queries, or aggregation="confident-gnmax".'
            raise invalid("PATE", "n_answers", "be left out for gnmax", got=self.n_answers, fix=fix)
        by_default = max(n_queries // 2, 1) if tested else n_queries
        return vote_plan(
            epsilon=self.epsilon,
            delta=self.delta,
            n_queries=n_queries,
            n_answers=by_default if self.n_answers is None else self.n_answers,
            threshold_share=check_share("PATE", "threshold_share", self.threshold_share) if tested else None,
            unit=self._read_unit(persons),
            assumptions=ASSUMPTIONS,
        )

    def _find_level(self) -> float:
        """Return how many teachers must agree."""
        share = check_real("PATE", "threshold", self.threshold)
        if not 0 <= share <= 1:
            raise invalid("PATE", "threshold", "be a share of teachers in [0, 1]", got=self.threshold)
        return share * self.n_teachers

    def _describe(self, plan: VotePlan) -> str:
        return (
            f"PATE({self.aggregation}, {self.n_teachers} teachers, at most {plan.n_queries} queries and "
            f"{plan.n_answers} answers, sigma {plan.sigma:.6g})"
        )

    def _keep(
        self, found: ClassAnswers, plan: VotePlan, labels: SensitiveLabels, X_public: Any, student: BaseEstimator
    ) -> None:
        """Teach the student and keep what is public."""
        classes = np.asarray(labels.classes)
        answers = classes[found.codes]
        varied = np.unique(found.codes).size > 1
        student = student if varied else DummyClassifier(strategy="most_frequent")
        self.student_ = student.fit(X_public[found.rows], answers)
        self.classes_, self.plan_, self.guarantee_ = classes, plan, plan.guarantee
        self.answered_, self.answers_ = found.rows, answers
        self.n_answered_, self.n_asked_ = int(found.rows.size), found.n_asked

    def predict_proba(self, X: Any) -> Floats:
        """Return the student's class probabilities (n, K), in the order of `classes_`; 0 for classes never answered."""
        check_is_fitted(self, "student_")
        return model_probabilities(self.student_, self._check_new(X), tuple(self.classes_.tolist()))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the student's class of each row."""
        check_is_fitted(self, "student_")
        found: npt.NDArray[Any] = np.asarray(self.student_.predict(self._check_new(X)))
        return found
