r"""`PrivateSearchCV`: choose hyper-parameters, under a guarantee of the whole search.

A search by raw scores (`GridSearchCV`) reads every label once more for each candidate, without noise: its choice is no part of
the guarantee of the model that it returns (`labeldp.release.scores`). Here the choice is made in one of two ways.

*By released labels* (`by="released"`). The labels are released once. Every candidate is trained on the released labels of
the training folds and scored on the released labels of the fold held out. All of it reads the release and the features
alone: it is post-processing, free at any number of candidates and folds, and the guarantee of the search is that of the
one release. Two scores read a released output o of a label y through its channel T:

- "likelihood": log sum_y p(y | x) T[y, o]. It is proper: with eta the true distribution of the label given x, the output has
  the distribution eta T, and for any p

      E[log (p T)(o)] - E[log (eta T)(o)] = -KL(eta T || p T) <= 0                               (Gibbs' inequality),

  with equality if p T = eta T; for a channel that can be inverted that is p = eta. So the candidate with the best expected
  score is the one nearest to the truth, as the channel sees it. No prior enters: it would reward candidates that repeat it.
- "accuracy": the unbiased estimate of `labeldp.learn.noisy_accuracy`, which needs a channel that can be inverted. Its
  expectation is the accuracy on the labels themselves, and its noise is larger.

What noise costs here: with two classes by randomized response, an unbiased term of two candidates that differ in a row is
+-1 / tanh(epsilon / 2). If they differ in n_d of n rows, the estimated difference of their accuracies has a standard error of
at most sqrt(n_d) / (n tanh(epsilon / 2)): the rows that are needed grow like 1 / epsilon^2.

*By a charged noisy count* (`by="noisy_count"`), for learners that release something else than labels (the convex learners), or to
choose what shapes the release itself (stages, prior, mechanism). The rows are divided once, without looking at labels. Each of
m candidates is fitted on the training rows by its own `fit`, at an equal share of the budget; then the right predictions of
all of them on the rows held out are counted, with exact noise (`labeldp.measure`), and the largest count wins. A label is in
one of the two parts, so with fits at (e, d) and counts at s the search costs

    max(m e, s) + e  at  delta (m + 1) d,      with the refit of the winner on all rows, s = m e;
    max(m e, s)      at  delta m d,            without it, s = m e = epsilon.

The whole is stated and charged, as one entry, before anything is drawn. One replaced label moves the count of a candidate by
at most 1, and only for candidates that predict the old or the new label there: the sensitivity of all counts together is the
largest number of candidates that share two classes in a row, at most m.

>>> import numpy as np
>>> from labeldp.learn import PrivateSearchCV, SoftmaxRegression
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(4000, 2))
>>> y = (X[:, 0] > 0).astype(int)
>>> search = PrivateSearchCV(SoftmaxRegression(), {"l2": [1e-3, 1e6]}, epsilon=1.0, classes=[0, 1], random_state=0)
>>> search.fit(X, y).best_params_, search.guarantee_.epsilon(), len(search.release_)
({'l2': 0.001}, 1.0, 4000)

References: Gneiting & Raftery 2007 (proper scores); Patrini et al. 2017 (likelihood through a channel); Dwork, McSherry,
Nissim & Smith 2006 (composition, post-processing).

Design notes. Nothing is released here: `LabelPrivateClassifier.fit` draws the one release, or each candidate's own `fit` and
`measure` do. Folds are made from rows, public groups and, for splitters that stratify, released codes; never from labels.
The best estimator carries the guarantee of the whole search, so that whoever saves or hands on that model alone still says
what it cost.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, check_is_fitted

from labeldp.arrays import Floats, Places
from labeldp.errors import Described, LabelDPError, PrivacyError, hide_warnings, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.classifier import WEIGHTS, LabelPrivateClassifier, takes_rows_of
from labeldp.learn.corrections import as_indexable, check_answered, take_answered, take_rows
from labeldp.learn.draws import is_silent
from labeldp.learn.scoring import CorrectCount, estimate_hits, estimate_likelihood, find_codes
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.random import NoiseKey, as_key
from labeldp.release import Measurement, Release, SensitiveLabels, measure
from labeldp.release.budget import Budget, SearchShares, assume_public
from labeldp.release.labels import box_labels
from labeldp.release.persons import ASSIGNMENT, Persons, check_apart
from labeldp.release.scores import ScoredClassifier
from labeldp.release.templates import check_template, check_untrained, copy_template, list_weights
from labeldp.validate import check_choice, check_delta, check_epsilon, check_integer, check_weights

OWNER = "PrivateSearchCV"
RELEASED, NOISY_COUNT = "released", "noisy_count"
#: What a score is, per row of the release: by the name that users give.
SCORES = {"likelihood": estimate_likelihood, "accuracy": estimate_hits}
#: Settings of a learner that the search itself decides: one budget, one ledger, one set of labels.
OURS = ("epsilon", "delta", "classes", "random_state", "ledger", "label_set", "checkpoint")
#: Settings of LabelPrivateClassifier that shape the release; they are no candidates where there is one release.
OF_RELEASE = ("stages", "prior", "mechanism")
#: Folds are cut by a public seed: they say nothing about labels.
FOLD_SEED = 0


class PrivateSearchCV(ScoredClassifier, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Choose the best of a grid of candidates; `epsilon` is the price of the whole search and of its final model.

    Parameters
    ----------
    estimator : classifier, pipeline that ends in one, or learner of labeldp; default SoftmaxRegression()
        By released labels: any classifier with `predict_proba`, which is trained as `LabelPrivateClassifier` trains it; or
        a LabelPrivateClassifier, to choose among its own settings too (`correction`, `rounds`, `estimator__l2`, ...).
        By a noisy count: a learner of labeldp with an `epsilon`. Its own `epsilon`, `delta`, `classes`, `random_state` and
        `label_set` are replaced by those of the search.
    param_grid : dict or list of dicts
        Names of parameters and the values to try, as for scikit-learn's ParameterGrid. Public, like all settings.
    epsilon, delta : float
        The whole budget. `delta` is for learners that need one; released labels need none.
    by : {"released", "noisy_count"}
        How candidates are compared; the docstring of the module has both.
    scoring : {"likelihood", "accuracy"}
        What is estimated from released labels. A noisy count is always of right predictions.
    cv : int or splitter
        Folds. An int cuts the rows at random by a public seed. A splitter is given the rows, the groups, and the released
        codes in place of y. By a noisy count only its first split is used, and it is given no y.
    refit : bool
        Whether the best candidate is fitted on all rows. Free with released labels; without it there is no
        `best_estimator_`. By a noisy count it costs one more fit; without it the winner stays as it was fitted.
    n_jobs : int, optional
        Processes for the candidates, by released labels. They get the release and no label.
    classes, random_state, ledger, label_set
        As for LabelPrivateClassifier.
    progress : callable (fits done, fits in all), optional
        Told after each fit of a candidate on a fold, by released labels.

    Attributes
    ----------
    best_params_, best_index_, best_score_, best_estimator_, cv_results_ : as in scikit-learn
        `cv_results_` also says how far each candidate is behind the best, with the standard error of that ("behind",
        "behind_error"). The best score of many is itself too high: report the accuracy of the choice from other labels.
    guarantee_ : of the whole search, final model included; `best_estimator_.guarantee_` is the same
    release_ : the one release. It is there as soon as it is drawn: a search that fails later goes on by `fit_release`.
    noise_ : by a noisy count, the noise of the counts, in words
    seeded_, ledger_entry_, classes_, n_features_in_ : as always
    """

    progress: Callable[[int, int], None] | None = None  # models of version 0.1 were saved without it

    def __init__(
        self,
        estimator: Any = None,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        by: str = RELEASED,
        scoring: str = "likelihood",
        cv: Any = 5,
        refit: bool = True,
        n_jobs: int | None = None,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.by = by
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.progress = progress

    # -------------------------------------------------------------------------------------------- by released labels

    def fit(
        self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None, persons: Any = None
    ) -> PrivateSearchCV:
        """Search, within one budget; `groups` are public and for the splitter. Neither may have seen the labels, and the guarantee says so.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.

        `sample_weight` (n,) are public weights, by released labels only: in the training of every candidate, as
        `LabelPrivateClassifier.fit` says, and in the scores, which are then weighted means. They must not have seen the
        labels, and the guarantee says so.

        `persons` (n,) are the public ids of who owns each row: then epsilon is what a person spends on all her labels together, as
        `LabelPrivateClassifier.fit` says, and no person is on two sides of a fold. A splitter is given them as groups, unless
        there are others. By a noisy count candidates must take them too, a split that divides a person is refused, and
        at most so many of her rows are counted as their noise is worth.
        """
        candidates, X = self._list_candidates(), as_indexable(OWNER, X)
        # What the estimator was told of the classes counts where the search was told nothing.
        classes = getattr(self.estimator, "classes", None) if self.classes is None else self.classes
        labels = box_labels(OWNER, y, n_rows=_num_samples(X), classes=classes, label_set=self.label_set)
        owners = None if persons is None else Persons.of(persons, n_rows=len(labels), owner=OWNER)
        labels = labels if owners is None else labels.with_persons(owners)  # fits and scores see parts of them
        if self.by == NOISY_COUNT:
            if sample_weight is not None:
                fix = "A weighted count, and a learner of bounded contributions, would have another sensitivity."
                raise invalid(OWNER, "sample_weight", "be left out by a noisy count", got=Described("weights"), fix=fix)
            return self._fit_charged(X, labels, candidates, groups, owners)
        weights = self._check_weights(sample_weight, len(labels), of_persons=owners is not None)
        owner = self._make({}).set_params(
            epsilon=self.epsilon, classes=None, random_state=self.random_state, ledger=self.ledger
        )
        self._rehearse(owner, candidates, X, n_classes=labels.n_classes, groups=groups, persons=owners)
        self.release_ = owner.fit(X, labels, sample_weight=weights, persons=owners).release_
        return self.fit_release(X, self.release_, groups=groups, sample_weight=weights, persons=owners)

    def fit_release(
        self, X: Any, release: Release, *, groups: Any = None, sample_weight: Any = None, persons: Any = None
    ) -> PrivateSearchCV:
        """Search from a release that exists; needs no label and costs nothing. `sample_weight` and `persons` as for `fit`.

        Rows that the release has no answer for (`Release.rows`) may be given or left out, in all of them alike.
        """
        candidates, whole = self._list_candidates(), as_indexable(OWNER, X)
        check_choice(OWNER, "by", self.by, (RELEASED,))
        check_answered(OWNER, whole, release)
        asked = None if persons is None else Persons.of(persons, n_rows=_num_samples(whole), owner=OWNER)
        if asked is not None and release.guarantee.unit is not Unit.PERSON:
            got = Described(f"one about `{release.guarantee.unit.value}`")
            fix = "Nothing makes it one about persons now. For folds that split nobody pass groups=, and a splitter that uses them."
            raise invalid(
                OWNER, "release", "be about persons where these are given", got=got, fix=fix, kind=PrivacyError
            )
        X, n = take_answered(OWNER, whole, release), _num_samples(whole)
        if len(release) < n:  # some rows of a person have no answer
            assert release.rows is not None
            asked = None if asked is None else asked.take(release.rows)
            groups = None if groups is None else release.answered(groups, owner=OWNER, name="groups")
        if sample_weight is not None:
            sample_weight = release.answered(sample_weight, owner=OWNER, name="sample_weight")
        if is_silent(release):
            fix = "It holds a prior and no answers: there is nothing to compare candidates by. Release with a stage."
            raise invalid(OWNER, "release", "hold answers", got=Described("none"), fix=fix)
        weights = self._check_weights(sample_weight, len(release), of_persons=asked is not None)
        folds = self._cut_folds(X, release.codes, groups, asked)
        _check_folds(folds, weights)
        alone = replace(release, rows=None, n_rows=None)  # X are the answered rows from here on
        terms: list[Floats] = []
        # As they come, in order: `progress` hears of each fit, and a process that fails is heard of at once.
        scored = Parallel(n_jobs=self.n_jobs, return_as="generator")(
            delayed(score_fold)(self._make(params), X, alone, fold, scoring=self.scoring, weights=weights)
            for params in candidates
            for fold in folds
        )
        for term in scored:
            terms.append(term)
            if self.progress is not None:
                self.progress(len(terms), len(candidates) * len(folds))
        sizes = [len(test) for _, test in folds]
        table = np.stack([np.concatenate(terms[at : at + len(folds)]) for at in range(0, len(terms), len(folds))])
        held = None if weights is None else weights[np.concatenate([test for _, test in folds])]
        results, best = tabulate(candidates, table, sizes, weights=held)
        model = self._make(candidates[best]).fit_release(whole, release, sample_weight=weights) if self.refit else None
        self.release_, self.seeded_, self.ledger_entry_ = release, release.seeded, release.ledger_entry
        given = self._list_given(candidates, groups)
        guarantee = assume_public(release.guarantee, *given, *([] if weights is None else [WEIGHTS]))
        return self._keep(results, best, model, guarantee, release.classes)

    # ----------------------------------------------------------------------------------------- by charged noisy counts

    def _fit_charged(
        self,
        X: Any,
        labels: SensitiveLabels,
        candidates: list[dict[str, Any]],
        groups: Any,
        persons: Persons | None,
    ) -> PrivateSearchCV:
        """Fit every candidate, count right predictions of all with noise, and refit the winner: one charge."""
        key = as_key(OWNER, self.random_state, name="random_state")
        epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
        train, held = self._hold_out(X, groups, persons)
        given = self._list_given(candidates, groups)
        given = given if persons is None else (*given, ASSIGNMENT)
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=persons)
        shares = budget.share_search(epsilon, delta, fits=len(candidates), refit=self.refit)
        self._check_candidates(
            candidates, take_rows(X, train), shares.epsilon, n_classes=labels.n_classes, of_persons=persons is not None
        )
        words = f"{OWNER}({type(self.estimator).__name__}, {len(candidates)} candidates, epsilon={epsilon!r})"
        entry = budget.charge(shares.promise, mechanism=words)

        def fit_share(params: Mapping[str, Any], part: Any, key: NoiseKey) -> Any:
            about = {} if persons is None else {"persons": persons.take(part)}
            spent = self._fit_at(shares, params, take_rows(X, part), labels.take(part), key=key, about=about)
            budget.check_spent(spent.guarantee_, epsilon=shares.epsilon, delta=shares.delta)
            return spent

        models = [fit_share(one, train, key.child("fit", number)) for number, one in enumerate(candidates)]
        asked = None if persons is None else persons.take(held)
        measured = count_right(
            models, take_rows(X, held), labels.take(held), shares.score, key.child("scores"), persons=asked
        )
        counted = len(held) if measured.rows is None else len(measured.rows)
        results, best = tabulate(candidates, measured.value[:, None] / counted, None)
        if self.refit:
            models.append(fit_share(candidates[best], np.arange(len(labels)), key.child("refit")))
        assumptions = [text for one in models for text in one.guarantee_.assumptions]
        self.__dict__.pop("release_", None)  # of an earlier search by released labels
        self.noise_, self.seeded_, self.ledger_entry_ = measured.noise, key.seeded, entry
        model = models[-1 if self.refit else best]
        return self._keep(results, best, model, budget.state(shares.promise, *assumptions), labels.classes)

    def _fit_at(
        self,
        shares: SearchShares,
        params: Mapping[str, Any],
        X: Any,
        y: SensitiveLabels,
        *,
        key: NoiseKey,
        about: Mapping[str, Any],
    ) -> Any:
        """Fit one candidate at its share, without a ledger of its own: the whole search was charged."""
        # A key would stay in the candidate's settings; a fresh one is drawn inside where the noise is to be private.
        seed = int(key.words(start=0, count=1)[0, 0] >> np.uint64(1)) if key.seeded else None
        model = self._make(params)
        known = model.get_params(deep=False)
        ours = {"epsilon": shares.epsilon, "delta": shares.delta, "classes": None, "random_state": seed}
        model.set_params(**{name: value for name, value in ours.items() if name in known}).fit(X, y, **about)
        allowed = (Unit.PERSON,) if about else (Unit.LABEL, Unit.RECORD_REPLACE)  # a record holds its label
        if model.guarantee_.unit not in allowed:
            raise PrivacyError(
                f"{OWNER}: the guarantee of a candidate is about `{model.guarantee_.unit.value}`; the search promises for "
                f"`{allowed[0].value}`. Nothing was kept. Use a learner whose unit is that."
            )
        return model

    def _cut_folds(
        self, X: Any, codes: Any, groups: Any, persons: Persons | None, *, cv: Any = None
    ) -> list[tuple[Places, Places]]:
        """Return the folds; a number of them cuts persons, where these are given, and a splitter gets them as groups.

        `cv` is a copy of the search's own, where that is to stay as it is.
        """
        cv = self.cv if cv is None else cv
        splitter = self._cut_rows(_num_samples(X) if persons is None else persons.n_persons, cv=cv)
        if persons is None:
            return list(splitter.split(X, codes, groups))
        if splitter is cv:
            with hide_warnings(UserWarning, message="The groups parameter is ignored"):  # what it cuts is looked at
                folds = list(splitter.split(X, codes, persons.codes if groups is None else groups))
            for fold in folds:
                check_apart(persons, fold)
            return folds
        whose = np.arange(persons.n_persons)
        return [
            (persons.rows_of(np.isin(whose, one)), persons.rows_of(np.isin(whose, two)))
            for one, two in splitter.split(whose)
        ]

    def _hold_out(self, X: Any, groups: Any, persons: Persons | None) -> tuple[Places, Places]:
        """Return the training rows and those held out: disjoint, or the two would not compose in parallel."""
        train, held = self._cut_folds(X, None, groups, persons)[0]
        if persons is not None:
            check_apart(persons, [train, held])
            if "persons" not in inspect.signature(self.estimator.fit).parameters:
                fix = "Use LabelPrivateClassifier or SufficientStatistics, whose `fit` takes them."
                got = type(self.estimator).__name__
                raise invalid(OWNER, "estimator", "take persons", got=got, fix=fix, kind=PrivacyError)
        if len(np.intersect1d(train, held)) or len(np.unique(train)) < len(train) or len(np.unique(held)) < len(held):
            raise invalid(OWNER, "cv", "put each row in one part, once", got=type(self.cv).__name__)
        return train, held

    # ------------------------------------------------------------------------------------------- before anything is paid

    def _rehearse(
        self,
        owner: LabelPrivateClassifier,
        candidates: list[dict[str, Any]],
        X: Any,
        *,
        n_classes: int,
        groups: Any,
        persons: Persons | None,
    ) -> None:
        """Refuse what a search by released labels would stumble over once these are paid for; `owner` will release them."""
        n, of_persons = _num_samples(X), persons is not None
        if not owner.releases_labels(X, n_examples=n if persons is None else persons.n_persons, n_classes=n_classes):
            fix = (
                "Its plan releases a prior and no answers: there is nothing to compare candidates by. Give it stages=1."
            )
            raise invalid(OWNER, "estimator", "release labels", got=Described("none of them"), fix=fix)
        folds = self._try_splitter(X, groups, persons)
        least = n if of_persons else min(len(train) for train, _ in folds)
        self._check_candidates(candidates, X, self.epsilon, n_classes=n_classes, of_persons=of_persons, n_rows=least)

    def _check_candidates(
        self,
        candidates: list[dict[str, Any]],
        X: Any,
        epsilon: float,
        *,
        n_classes: int,
        of_persons: bool,
        n_rows: int | None = None,
    ) -> None:
        """Refuse candidates whose fits would refuse their settings, where they can say so (`check_fit`).

        Label-free transformers are fitted once for all candidates that share them.
        """

        def name_features(params: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
            # Values of a grid are the same objects in all candidates that have them.
            return tuple((name, id(value)) for name, value in sorted(params.items()) if not self._is_of_last(name))

        for _, group in groupby(sorted(candidates, key=name_features), key=name_features):
            features = None
            for params in group:
                learner = self._make(params)
                if isinstance(learner, LabelPrivateClassifier):
                    learner.set_params(epsilon=epsilon)
                    features = learner.check_fit(
                        X, n_classes=n_classes, n_rows=n_rows, of_persons=of_persons, features=features
                    )

    def _is_of_last(self, name: str) -> bool:
        """Whether a parameter changes the classifier alone, or how it is trained: all before it then makes the same features."""
        whole = isinstance(self.estimator, LabelPrivateClassifier)
        if whole and name != "estimator" and not name.startswith("estimator__"):
            return True
        inner = self.estimator.estimator if whole else self.estimator
        own = name.removeprefix("estimator__") if whole else name
        if not isinstance(inner, Pipeline):
            return own != "estimator"  # which may become a pipeline
        return own.startswith(f"{inner.steps[-1][0]}__")

    def _try_splitter(self, X: Any, groups: Any, persons: Persons | None) -> list[tuple[Places, Places]]:
        """Return folds as a splitter would cut them if all codes were equal; it is a copy, and random numbers are put back."""
        state = np.random.get_state()  # noqa: NPY002 - what a splitter without a seed would draw from
        try:
            with hide_warnings():
                codes = np.zeros(_num_samples(X), np.int64)
                return self._cut_folds(X, codes, groups, persons, cv=copy.deepcopy(self.cv))
        except LabelDPError:
            raise
        except (ValueError, TypeError) as error:
            fix = f"It says: {error}"
            raise invalid(OWNER, "cv", "cut these rows", got=type(self.cv).__name__, fix=fix) from error
        finally:
            np.random.set_state(state)  # noqa: NPY002

    # ----------------------------------------------------------------------------------------------- what both share

    def _list_candidates(self) -> list[dict[str, Any]]:
        """Return the grid, each candidate made once, so that a name that does not exist is refused before any charge."""
        check_choice(OWNER, "by", self.by, (RELEASED, NOISY_COUNT))
        check_choice(OWNER, "scoring", self.scoring, tuple(SCORES))
        whole = isinstance(self.n_jobs, Integral) and not isinstance(self.n_jobs, bool)
        if self.n_jobs is not None and (not whole or self.n_jobs == 0):
            fix = "-1 is all cores."
            raise invalid(OWNER, "n_jobs", "be an integer other than 0, or None", got=self.n_jobs, fix=fix)
        if self.progress is not None and not callable(self.progress):
            raise invalid(OWNER, "progress", "be a callable", got=self.progress)
        self._check_estimator()
        listed = [dict(params) for params in ParameterGrid({} if self.param_grid is None else self.param_grid)]
        if not listed:
            raise invalid(OWNER, "param_grid", "have a candidate", got=Described("none"))
        whole = isinstance(self.estimator, LabelPrivateClassifier) and self.by == RELEASED
        fixed = (*OURS, *OF_RELEASE) if whole else OURS if self.by == NOISY_COUNT else ()
        taken = next((name for params in listed for name in params if name.split("__")[0] in fixed), None)
        if taken is not None:
            fix = "It shapes the release, and there is one release." if taken.split("__")[0] in OF_RELEASE else ""
            fix = fix or "The search decides it for all candidates."
            raise invalid(OWNER, "param_grid", "leave this out", got=taken, fix=fix)
        for params in listed:
            self._make(params)
        return listed

    def _check_estimator(self) -> None:
        """Refuse an estimator that would spend by itself, or that cannot be searched in this way."""
        if self.estimator is not None:
            check_template(OWNER, "estimator", self.estimator)
        settings = {} if self.estimator is None else self.estimator.get_params(deep=False)
        if settings.get("ledger") is not None:
            fix = "Give `ledger` to the search: it charges the whole of it, once."
            raise invalid(OWNER, "estimator", "have no ledger of its own", got=Described("one"), fix=fix)
        if self.by == NOISY_COUNT:
            self._check_learner(settings)
            return
        last = self.estimator.steps[-1][1] if isinstance(self.estimator, Pipeline) else self.estimator
        private = isinstance(last, BaseEstimator) and {"epsilon", "label_set"} <= set(last.get_params(deep=False))
        if private and not isinstance(self.estimator, LabelPrivateClassifier):
            fix = 'Released labels are private already. Put a pipeline inside of LabelPrivateClassifier, or use by="noisy_count".'
            raise invalid(OWNER, "estimator", "be a plain classifier", got=type(last).__name__, fix=fix)
        if self.delta != 0:
            raise invalid(OWNER, "delta", "be 0 by released labels", got=self.delta)

    def _check_learner(self, settings: Mapping[str, Any]) -> None:
        """Refuse a learner that cannot take a share of the budget."""
        if "epsilon" not in settings:
            fix = 'Use a learner of labeldp (OutputPerturbation, LabelPrivateClassifier, ...), or by="released".'
            got = type(self.estimator).__name__
            raise invalid(OWNER, "estimator", "have an `epsilon`, to be fitted by a share", got=got, fix=fix)
        if settings.get("checkpoint") is not None:
            raise invalid(OWNER, "estimator", "have no checkpoint: each candidate draws", got=Described("one"))
        if settings.get("delta") and self.delta == 0:
            fix = f"{type(self.estimator).__name__} needs one; it is divided among the fits."
            raise invalid(OWNER, "delta", "be > 0", got=self.delta, fix=fix)

    def _make(self, params: Mapping[str, Any]) -> Any:
        """Return one candidate, unfitted, and without anything that spends."""
        plain = SoftmaxRegression() if self.estimator is None else copy_template(OWNER, "estimator", self.estimator)
        # Cloned as scikit-learn does: an estimator among the values would otherwise be shared by all folds.
        plain.set_params(**{name: clone(value, safe=False) for name, value in params.items()})
        check_untrained(OWNER, "param_grid", plain)
        if self.by == NOISY_COUNT:
            return plain
        if isinstance(plain, LabelPrivateClassifier):
            return plain.set_params(epsilon=None, classes=None)  # the search and its release say both
        # In one stage: no candidate's model may choose what the others are compared by.
        return LabelPrivateClassifier(plain, stages=1)

    def _list_given(self, candidates: list[dict[str, Any]], groups: Any) -> tuple[str, ...]:
        """Return, in words, what shapes the search beside features and labels, and must not have seen these.

        A splitter may hold rows (`PredefinedSplit`), and groups are the user's: folds that are cut by a label tell of it, and the two sides
        of a split do not compose in parallel.
        """
        cuts = [
            name for name, given in (("splitter", hasattr(self.cv, "split")), ("groups", groups is not None)) if given
        ]
        return (*list_weights(*(self._make(params) for params in candidates)), *cuts)

    def _check_weights(self, sample_weight: Any, n: int, *, of_persons: bool = False) -> Floats | None:
        """Return the weights, checked with the folds where these are known before there is a release."""
        splitter = self._cut_rows(n, cv=self.cv)
        if sample_weight is None:
            return None
        weights = check_weights(OWNER, "sample_weight", sample_weight, n_rows=n)
        if splitter is not self.cv and not of_persons:
            _check_folds(list(splitter.split(np.zeros(n))), weights)
        return weights

    def _cut_rows(self, n: int, *, cv: Any) -> Any:
        """Return the splitter."""
        if hasattr(cv, "split"):
            return cv
        folds = check_integer(OWNER, "cv", cv, least=2)
        if folds > n:
            raise invalid(OWNER, "cv", f"be at most the number of rows (n_samples={n})", got=folds)
        return KFold(folds, shuffle=True, random_state=FOLD_SEED)

    def _keep(
        self, results: dict[str, Any], best: int, model: Any, guarantee: Guarantee, classes: Sequence[Any]
    ) -> PrivateSearchCV:
        """Keep the result, all of it at once; the final model says what the whole search cost."""
        self.__dict__.pop("best_estimator_", None)
        if model is not None:
            model.guarantee_ = guarantee
            if hasattr(model, "release_"):
                model.release_ = replace(model.release_, guarantee=guarantee, ledger_entry=self.ledger_entry_)
            if hasattr(model, "ledger_entry_"):
                model.ledger_entry_ = self.ledger_entry_
            self.best_estimator_ = model
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
                if hasattr(model, name):
                    setattr(self, name, getattr(model, name))
        self.cv_results_, self.best_index_ = results, best
        self.best_params_, self.best_score_ = results["params"][best], float(results["mean_test_score"][best])
        self.guarantee_ = guarantee
        self.classes_ = np.asarray(classes)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K) of the best candidate, in the order of `classes_`."""
        check_is_fitted(self, "best_estimator_")
        chances: Floats = self.best_estimator_.predict_proba(X)
        return chances

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row, by the best candidate."""
        check_is_fitted(self, "best_estimator_")
        labels: npt.NDArray[Any] = self.best_estimator_.predict(X)
        return labels

    def __sklearn_tags__(self) -> Any:
        return takes_rows_of(self.estimator, super().__sklearn_tags__())


def score_fold(
    model: Any, X: Any, release: Release, fold: tuple[Places, Places], *, scoring: str, weights: Floats | None = None
) -> Floats:
    """Return the score of each row held out, by a candidate trained on the released labels of the others."""
    train, test = fold
    public = None if weights is None else weights[train]
    fitted = model.fit_release(take_rows(X, train), release.take(train), sample_weight=public)
    return SCORES[scoring](fitted, X, release, rows=test)


def count_right(
    models: Sequence[Any],
    X: Any,
    labels: SensitiveLabels,
    epsilon: float,
    key: NoiseKey,
    *,
    persons: Persons | None = None,
) -> Measurement:
    """Return the noisy numbers of right predictions of all models, one measurement for all."""
    predicted = np.stack([find_codes(model.predict(X), labels.classes) for model in models])
    return measure(labels, CorrectCount(predicted=predicted), epsilon=epsilon, rng=key, persons=persons)


def _check_folds(folds: Sequence[tuple[Places, Places]], weights: Floats | None) -> None:
    """Refuse weights that leave a fold nothing to be trained or scored on."""
    for part in (part for fold in folds for part in fold if weights is not None and not weights[part].any()):
        got, fix = Described(f"0 for all {len(part)} rows of a part"), "Take fewer folds, or leave those rows out of X."
        raise invalid(OWNER, "sample_weight", "leave each part of each fold a row", got=got, fix=fix)


def tabulate(
    candidates: list[dict[str, Any]], table: Floats, sizes: Sequence[int] | None, *, weights: Floats | None = None
) -> tuple[dict[str, Any], int]:
    """Return `cv_results_` and the index of the best candidate, the first of equals.

    `table` has a row per candidate and a column per row held out, fold after fold, of the given sizes; or one column of
    noisy scores, without sizes. `weights` are those of the columns; with w_i and differences d_i of a candidate to the best, the
    squared error of their weighted mean d is sum_i w_i^2 (d_i - d)^2 / (sum_i w_i)^2.
    """
    scales = np.ones(table.shape[1]) if weights is None else weights
    mean = np.average(table, axis=1, weights=weights)
    best = int(mean.argmax())
    names = sorted({name for params in candidates for name in params})
    results: dict[str, Any] = {"params": candidates, "mean_test_score": mean}
    results |= {f"param_{name}": _column(candidates, name) for name in names}
    results["rank_test_score"] = np.asarray([1 + int((mean > own).sum()) for own in mean], np.int32)
    results["behind"] = mean[best] - mean
    if sizes is not None:
        folds = np.split(table, np.cumsum(sizes)[:-1], axis=1)
        parts = np.split(scales, np.cumsum(sizes)[:-1])
        splits = np.stack([np.average(fold, axis=1, weights=part) for fold, part in zip(folds, parts, strict=True)])
        results |= {f"split{number}_test_score": split for number, split in enumerate(splits)}
        results["std_test_score"] = splits.std(axis=0)
        # On the same rows: the error of a difference counts only where two candidates differ.
        apart = table[best] - table - results["behind"][:, None]
        results["behind_error"] = np.sqrt((apart**2) @ scales**2) / scales.sum()
    return results, best


def _column(candidates: list[dict[str, Any]], name: str) -> Any:
    """Return the values of one parameter, masked for the candidates that do not set it."""
    column = np.empty(len(candidates), dtype=object)
    column[:] = [params.get(name) for params in candidates]
    return np.ma.MaskedArray(column, mask=[name not in params for params in candidates])
