"""`MultiLabelPATE`: teachers vote for any number of labels, and a private selection answers with a set of them.

>>> import numpy as np
>>> from sklearn.tree import DecisionTreeClassifier
>>> rng = np.random.default_rng(0)
>>> X, X_public = rng.normal(size=(3000, 3)), rng.normal(size=(20, 3))
>>> model = MultiLabelPATE(DecisionTreeClassifier(), n_teachers=300, epsilon=16.0, random_state=0)
>>> model.fit(X, X > 0, X_public).guarantee_.epsilon(1e-5) <= 16.0
True

Design notes. What is protected is a row of labels: a matrix of 0 and 1, which `SensitiveLabels` cannot hold. So
`read_indicators` is the check on its way in, and `LabelRows` is all that a budget and a ledger know of it: a name and a
number of rows. Columns are public, hence no list of classes is read off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.validation import check_is_fitted

from labeldp.accounting import fingerprint
from labeldp.arrays import Floats, Int64s, UInt8s
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.pate.multiclass import TeacherEnsemble, check_answers, restate_unit
from labeldp.learn.pate.teachers import fit_labels, vote_for_labels
from labeldp.learn.pate.votes import (
    ASSUMPTIONS,
    EVEN,
    SetAnswers,
    VotePlan,
    answer_labels,
    answer_stable,
    count_labels,
    set_plan,
    vote_plan,
)
from labeldp.learn.rehearsal import check_parameters
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.random import BitStream, NoiseKey, as_key
from labeldp.release.budget import Budget
from labeldp.selection import StablePlan
from labeldp.validate import check_choice, check_integer

OWNER = "MultiLabelPATE"
AGGREGATIONS = ("stable-top-k", "pate", "pate-tau")


class MultiLabelPATE(TeacherEnsemble):
    """PATE for rows that have several labels at once: fit(X, Y, X_public), Y an indicator matrix of 0 and 1.

    Parameters
    ----------
    teacher, student : multi-label classifiers; default OneVsRestClassifier(SoftmaxRegression())
        `predict` returns rows of 0 and 1. Labels that are always or never there in a part are handled outside.
    aggregation : {"stable-top-k", "pate", "pate-tau"}
        "stable-top-k": the leading labels, as many as the votes suggest, if a private test finds that no teacher could
        change them; else no answer. If less than one answer is to be expected even of teachers who all agree, the fit is refused
        before anything is charged. "pate": a noisy count per label against half of the teachers. "pate-tau": the same
        on votes clipped to `tau` labels per teacher and point: those of her highest probability.
    noise : {"gumbel", "laplace", "gaussian"}
        How "stable-top-k" chooses how many labels lead; Gumbel is the cheapest, Gaussian is the paper's.
    test_delta : float, optional
        Probability of a false pass of each stability test; by default delta / 2 over the queries.
    most_labels : int, optional
        For "stable-top-k" alone: no answer has more labels. Public, so not chosen by looking at the labels. Fewer choices
        are made with less error.
    choice_share : float
        For "stable-top-k": the part of an answer's budget (in zCDP) that chooses how many labels lead; the rest pays for
        the test. Half is the paper's; with `most_labels` a third is better.
    tau : int, optional
        For "pate-tau" alone; public, so not chosen by looking at the labels.
    n_teachers, epsilon, delta, n_queries, unit, random_state, ledger, label_set, n_jobs, checkpoint, verbose
        As in PATE. A "label" is all of one row of Y: the unit is one row of labels replaced.

    Notes
    -----
    *Guarantee.*
    (epsilon, delta) in the stated unit; trusts a curator. One teacher's votes are replaced: the replace column of
    StableTopK (gaps move by 2), T queries costing T delta_t and T rho; D^2 / (2 s^2) an answer with D^2 = m for "pate",
    min(2 tau, m) for "pate-tau".

    *Edge cases.*
    No vote at all for a point is a clear answer: no label. Constant columns of answers make constant predictions. No
    answer at all is an error (the budget is spent).

    Attributes
    ----------
    guarantee_, seeded_, ledger_entry_, plan_, student_, n_features_in_ : as in PATE
    answered_, answers_, n_answered_ : rows of X_public that were answered, and their labels as rows of 0 and 1
    classes_ : the column numbers of Y
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
        aggregation: str = "stable-top-k",
        noise: str = "gumbel",
        test_delta: float | None = None,
        most_labels: int | None = None,
        choice_share: float = EVEN,
        tau: int | None = None,
        unit: str = "label",
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
        self.aggregation = aggregation
        self.noise = noise
        self.test_delta = test_delta
        self.most_labels = most_labels
        self.choice_share = choice_share
        self.tau = tau
        self.unit = unit
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, Y: Any, X_public: Any = None, *, persons: Any = None) -> MultiLabelPATE:
        """Teach the teachers on X and Y, let them vote on X_public, and teach the student what was answered.

        Y has a row per row of X and a column per label, dense or sparse. `persons` are as for `PATE.fit`.
        """
        teacher, student = self._copy_templates(make_default_model)
        private, public = self._check_points(X, X_public, teacher)
        targets = read_indicators(OWNER, Y, n_rows=private.shape[0])
        check_parameters(self.student)
        tau = self._check_tau(targets.shape[1])
        key = as_key(OWNER, self.random_state, name="random_state")
        labels = LabelRows(name=self.label_set, n_rows=len(targets), n_classes=targets.shape[1])
        owners = self._read_persons(persons, private.shape[0])
        given = self._list_given(owners)
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=owners)
        unit = self._read_unit(owners)
        plan, promise = self._make_plan(public.shape[0], targets.shape[1], tau, unit)
        promise = budget.state(restate_unit(promise, unit), *ASSUMPTIONS)
        noise_key = key.claim(OWNER)
        vote = partial(vote_for_labels, tau=tau)
        ballot = self._poll(vote, teacher, private, targets, public, key=key, persons=owners)
        entry = budget.charge(promise, mechanism=f"{OWNER}({self.aggregation}, {self.n_teachers} teachers)")
        counts = count_labels(ballot.votes, tau=tau)
        found = self._answer(counts, plan, noise_key)
        check_answers(OWNER, found.rows.size, len(counts), ballot)
        self._model = fit_labels(student, public[found.rows], found.sets)
        self.student_ = student
        self.classes_ = np.arange(targets.shape[1])
        self.plan_, self.guarantee_, self.seeded_, self.ledger_entry_ = plan, promise, key.seeded, entry
        self.answered_, self.answers_, self.n_answered_ = found.rows, found.sets, int(found.rows.size)
        ballot.close()
        return self

    def _check_tau(self, n_labels: int) -> int | None:
        """Return the clip of "pate-tau"; the others have none."""
        check_choice(OWNER, "aggregation", self.aggregation, AGGREGATIONS)
        if self.aggregation == "pate-tau":
            check_integer(OWNER, "tau", self.tau, least=1, most=n_labels)
        elif self.tau is not None:
            raise invalid(OWNER, "tau", 'be left out unless aggregation="pate-tau"', got=self.tau)
        if self.most_labels is not None and self.aggregation != "stable-top-k":
            must = 'be left out unless aggregation="stable-top-k"'
            raise invalid(OWNER, "most_labels", must, got=self.most_labels)
        return None if self.tau is None else int(self.tau)

    def _check_most_labels(self, n_labels: int) -> int | None:
        """Return the bound on an answer's labels, if there is one."""
        if self.most_labels is None:
            return None
        return check_integer(OWNER, "most_labels", self.most_labels, least=1, most=n_labels)

    def _make_plan(
        self, n_queries: int, n_labels: int, tau: int | None, unit: Unit
    ) -> tuple[VotePlan | StablePlan, Guarantee]:
        """Return the noise and what the whole run promises."""
        if self.aggregation != "stable-top-k":
            reach = n_labels if tau is None else min(2 * tau, n_labels)
            plan = vote_plan(
                epsilon=self.epsilon, delta=self.delta, n_queries=n_queries, squared_reach=reach, unit=unit
            )
            return plan, plan.guarantee
        most = self._check_most_labels(n_labels)
        stable = set_plan(
            epsilon=self.epsilon,
            delta=self.delta,
            n_queries=n_queries,
            noise=self.noise,
            test_delta=self.test_delta,
            # Two public candidates are added; the last rank has no gap after it.
            choices=(n_labels if most is None else most) + 1 if self.noise == "gaussian" else None,
            choice_share=self.choice_share,
        )
        self._check_hope(stable, n_queries)
        return stable, stable.guarantee.times(n_queries)

    def _check_hope(self, plan: StablePlan, n_queries: int) -> None:
        """Refuse, from public numbers and before anything is charged, a plan that answers nothing even if all teachers agree.

        No gap between counts is larger than the number of teachers. A plan whose best case is less than one answer would spend the
        budget on nothing; with less agreement a plan that passes here may still answer none.
        """
        chance = plan.pass_chance(self.n_teachers)
        if n_queries * chance >= 1.0:
            return
        must = f"let a query pass its test: {n_queries:,} queries at this budget are sure to pass with {plan.sure_gap:,} who agree"
        got = Described(f"{self.n_teachers:,}, with whom {n_queries * chance:.1g} answers are expected at best")
        fix = 'Nothing was charged. Use more teachers, a larger epsilon, fewer queries, or aggregation="pate".'
        raise invalid(OWNER, "n_teachers", must, got=got, fix=fix)

    def _answer(self, counts: Int64s, plan: VotePlan | StablePlan, key: NoiseKey) -> SetAnswers:
        if isinstance(plan, StablePlan):
            most = self._check_most_labels(counts.shape[1])
            return answer_stable(counts, plan, n_teachers=self.n_teachers, key=key, most_labels=most)
        return answer_labels(counts, plan, n_teachers=self.n_teachers, bits=BitStream(key))

    def predict(self, X: Any) -> UInt8s:
        """Return the student's labels: rows of 0 and 1."""
        check_is_fitted(self, "student_")
        return self._model.predict(self._check_new(X))

    def predict_proba(self, X: Any) -> Floats:
        """Return the student's probability of each label (n, m); rows need not sum to 1."""
        check_is_fitted(self, "student_")
        return self._model.scores(self._check_new(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def make_default_model() -> Any:
    """Return a linear model per label."""
    return OneVsRestClassifier(SoftmaxRegression())


@dataclass(frozen=True, kw_only=True)
class LabelRows:
    """Rows of labels as a `Budget` and a ledger know them: a name, and how many there are. Holds no label."""

    name: str
    n_rows: int
    n_classes: int
    classes_read_off: bool = False
    beside: tuple[str, ...] = ("features",)

    def __len__(self) -> int:
        return self.n_rows

    def fingerprint(self, *, start: int = 0) -> str:
        """Return what the ledger knows these rows by."""
        return fingerprint(self.name, n_rows=self.n_rows, start=start, row_ids=None)


def read_indicators(owner: str, Y: Any, *, n_rows: int) -> UInt8s:
    """Return Y as `n_rows` rows of 0 and 1, with at least one column; or refuse without a word about its values."""
    if Y is None:
        raise invalid(owner, "Y", "be given", got=None)
    array = np.asarray(Y.toarray() if scipy.sparse.issparse(Y) else Y)
    fix = "Use sklearn.preprocessing.MultiLabelBinarizer for lists of labels."
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "iubf":
        got = Described(f"{array.dtype} of shape {array.shape}")
        raise invalid(owner, "Y", "be a matrix of 0 and 1 with a column per label", got=got, fix=fix)
    if not np.isin(array, (0, 1)).all():
        kind = "NaN" if array.dtype.kind == "f" and np.isnan(array).any() else "another number"
        raise invalid(owner, "Y", "hold 0 and 1 only", got=Described(kind), fix=fix)
    if np.ma.is_masked(Y):
        raise invalid(
            owner, "Y", "hold 0 and 1 only", got=Described("masked cells"), fix="Fill or drop such rows first."
        )
    if len(array) != n_rows:
        raise invalid(owner, "Y", "have one row per row of X", got=Described(f"{len(array)} for {n_rows} rows"))
    return array.astype(np.uint8)
