r"""`LabelPrivateClassifier`: any scikit-learn classifier, trained on labels that it never sees.

`fit` protects the labels in stages (`labeldp.learn.stages`) and trains on what was released. A user says what her labels may
cost and whom she trusts with them; what is done for that is the recipe (`labeldp.learn.recipe`).

>>> LabelPrivateClassifier(epsilon=0.5, trust="no one")
LabelPrivateClassifier(epsilon=0.5, trust='no one')

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021).
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from labeldp.arrays import Floats
from labeldp.errors import Described, LabelDPError, PrivacyError, hide_warnings, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.beliefs import check_whole_arrays, predict_labels
from labeldp.learn.checkpoint import PRIOR, Checkpoint, Journal
from labeldp.learn.corrections import (
    check_answered,
    check_rows,
    check_weighable,
    predict_classes,
    remember_columns,
    split_pipeline,
    take_answered,
    takes_weights,
    warn_of_budget,
)
from labeldp.learn.draws import Owners, draw_labels, is_silent, read_prior, replay_release
from labeldp.learn.readers import choose_reader, read_examples
from labeldp.learn.recipe import NO_ONE, Recipe, recipe
from labeldp.learn.rehearsal import check_parameters, check_training
from labeldp.learn.settings import (
    Reader,
    Settings,
    are_sets,
    assign_stages,
    check_response,
    check_settings,
    choose_budget,
    default_response,
    sample_channel,
    settle_settings,
    state_response,
)
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.learn.stages import Training, assemble_release, train_in_stages
from labeldp.mechanisms import Mechanism
from labeldp.priors import ArrayExamples, Prior, UniformPrior
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, SensitiveLabels
from labeldp.release.budget import Budget, assume_public
from labeldp.release.labels import box_labels
from labeldp.release.persons import ASSIGNMENT, Persons
from labeldp.release.scores import ScoredClassifier
from labeldp.release.stages import StageDoor
from labeldp.release.templates import list_weights
from labeldp.validate import check_choice, check_class_list, check_weights, stack_examples

OWNER = "LabelPrivateClassifier"
#: What a guarantee calls them.
WEIGHTS = "sample weights"
#: How the row of a person is chosen that is asked.
PERSON_ROWS = ("chance", "information")


class LabelPrivateClassifier(ScoredClassifier, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Privatize labels once, in stages, and train any classifier with `predict_proba` on what was released.

    `fit(X, y)` splits the examples without looking at y. Stage 1 randomizes its labels with what the prior says; each
    later stage uses the model of the stages before it as prior for its own labels. Every label is drawn once, so the
    stages cost `epsilon` in all; a prior that looks at the labels takes its share of that budget first.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, or a pipeline that ends in one; default SoftmaxRegression()
        Transformers of a pipeline are fitted on the features alone, which are not secret.
    epsilon : float, optional
        The whole budget, for the prior and the labels together. Left out, it is the mechanism's own, or 1 without one.
    trust : {"no one", "curator"}, optional
        Whom the owners of labels trust. "no one": every label could be randomized by its owner, and whatever would need
        more is refused. "curator": someone may count labels and release noisy counts, which teaches more where epsilon or rows are
        few. None: whatever the other settings need, and no one where they are "auto". The guarantee says who it was.
    stages : int, sequence of shares, or "auto"
        1 draws all labels at once (LP-1ST with RRWithPrior), 2 is LP-2ST, ... 0 releases no label: the prior has the
        whole budget, and the model is distilled from it. "auto": (1/4, 3/4) where that pays, else 1; with a curator 1, or
        0 where epsilon and rows are few (`labeldp.learn.recipe`). 1 for an estimator whose fits are long; for persons of up to
        three classes 1, or 0.
    prior : Prior or "auto", optional
        What the first stage knows: UniformPrior (None), PublicPrior, ClusterPrior, ... "auto": nothing, unless a curator is
        trusted; then noisy counts of labels in clusters. Counts are evidence in training too (`labeldp.learn.bags`).
    mechanism : Mechanism, optional
        How each stage randomizes its labels; by default InformativeResponse, whose answers are sets of labels, or RRWithPrior
        where training wants labels (correction "none" or "unbiased", `filter_earlier`). Any mechanism of pure epsilon, yours
        included: it is taken at what the prior leaves of `epsilon` (`Mechanism.with_epsilon`), so its own epsilon matters only
        where `epsilon` is left out. One without a prior (RandomizedResponse) gets none. A mechanism that counts labels itself (ClusterRR) is
        refused: use `privatize(y, mechanism, groups=...)` and `fit_release`. Without stages it has nothing to do.
    correction : {"auto", "forward", "crossfit", "posterior", "em", "unbiased", "none"}
        How training accounts for the noise. "auto" is em for an estimator that has `fit_likelihood`: forward first, then
        rounds of EM; forward alone for SoftmaxRegression, where EM would stand still (or, where answers say little about many columns,
        pooled in clusters of the features, `labeldp.learn.pools`), and for an estimator whose fits are long (it says
        `fits_once`, as NetClassifier("fast-cnn") does; where answers say little to pixels, or images are grey, a quick network on
        features that need no label reads them by em first, and the long fit learns its posteriors, `labeldp.learn.readers`); and else
        crossfit, which gives any classifier true probabilities for about five fits (`labeldp.learn.crossfit`). An estimator without `sample_weight` is
        then fitted on labels drawn from posteriors, with a warning.
    distil : bool or "auto"
        Whether the estimator is first fitted on the prior's own beliefs, its predictions then being the prior of stage
        1. "auto": if there are no stages, or a prior that is "auto" knows something. Post-processing, free.
    rounds : int or "auto"
        Fits after the last stage on the posteriors of all examples (EM; without stages, self-training). Free. "auto": 6 for
        em (2 where its answers say so little that they were pooled, `labeldp.learn.pools`; 1 where fits are long), 2 without
        stages, else 0. With crossfit, rounds beyond its own two.
    stage_params : list of dicts, optional
        Parameters of the estimator: for distilling the prior, if it is distilled, then for the fits of each stage and for each
        round; the last ones hold for all that comes later. Mixup, for example.
    final_params : dict, optional
        Parameters of the estimator for the last fit: a wider network, more epochs.
    temperature : float, optional
        Below 1 sharpens a stage's model before it serves as prior. By default 1 for InformativeResponse, "em" and "crossfit";
        else 0.6 at epsilon 1 and 0.5 from 2 on; and 2/3 for self-training without stages. The rounds after the last stage have
        their own: 2/3 for a network with mixup, whose beliefs are flatter than what it knows, and 1 for all others.
    filter_earlier : bool
        Drop labels of earlier stages that the newest model does not rank among its first k (the mean candidates of the
        new stage, rounded up). Free: it looks at released labels only.
    classes : sequence, optional
        The public list of classes. If it is left out it is read off y, and the guarantee says so.
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release `seeded`: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    checkpoint : path or Checkpoint, optional
        A directory where everything drawn is kept before it is used. A run that was stopped goes on from it, and a seeded
        run ends with the same model. The noise key of an unfinished run is in this process's memory; with
        `Checkpoint(place, passphrase=...)` it is sealed in the directory too, so that a killed run goes on under the same
        charge. If the key is gone, what was kept is used, what is missing is drawn and charged again (a warning says so
        before), and without a ledger that is refused. No label is drawn in two ways under one charge.
    label_set : str
        The ledger's name for these labels.
    person_rows : {"chance", "information"}
        Where `fit` is given `persons`: which row of a person is asked. By public chance; or, in a later stage, the one whose answer
        has most expected information under the model so far. Free either way. The second asks about unusual rows: it pays where
        the model is right about all rows, and where it is only roughly right the model is then about other rows than
        those it will see (study `persons`).

    Attributes
    ----------
    guarantee_, release_, stages_ : what was promised, what was released, and each stage as it was run
    seeded_ : whether the noise came from a seed, hence is not private
    estimator_ : the classifier of the last fit
    correction_, distil_, rounds_, shares_, prior_ : what "auto" came to; the prior in words
    classes_, n_features_in_, feature_names_in_ : as always

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
    >>> y = np.repeat(["no", "yes"], 500)
    >>> model = LabelPrivateClassifier(epsilon=2.0, classes=["no", "yes"], random_state=0).fit(X, y)
    >>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.epsilon(), model.seeded_
    (['no', 'yes'], 2.0, True)
    """

    person_rows: str = PERSON_ROWS[0]  # models of version 0.1 were saved without it

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float | None = None,
        trust: str | None = None,
        stages: int | Sequence[float] | str = "auto",
        prior: Prior | str | None = "auto",
        mechanism: Mechanism | None = None,
        correction: str = "auto",
        distil: bool | str = "auto",
        rounds: int | str = "auto",
        stage_params: Sequence[Mapping[str, Any]] | None = None,
        final_params: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        filter_earlier: bool = False,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        person_rows: str = "chance",
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.trust = trust
        self.stages = stages
        self.prior = prior
        self.mechanism = mechanism
        self.correction = correction
        self.distil = distil
        self.rounds = rounds
        self.stage_params = stage_params
        self.final_params = final_params
        self.temperature = temperature
        self.filter_earlier = filter_earlier
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.checkpoint = checkpoint
        self.person_rows = person_rows

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, persons: Any = None) -> LabelPrivateClassifier:
        """Privatize y in stages and train; y is not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that. What a
        checkpoint has already is taken from there.

        Parameters
        ----------
        X : array, sparse matrix or table
            The features, public.
        y : labels, one per row, or SensitiveLabels
            What is protected.
        sample_weight : array of shape (n,), optional
            Public weights >= 0: how much each row counts in every fit, in the base rates and in the calibration of
            "crossfit". A whole number is as many copies of the row, and 0 leaves it out of training; its label is drawn and
            charged all the same. Label-free transformers and the prior do not read them.
        persons : Persons, or a column of n ids, optional
            Who owns each row, public. Then `epsilon` is what a person spends on all her labels together, and `guarantee_` says
            so. Persons, not rows, are split into stages; in each, one row of a person is asked (or the few that tell more
            together; `person_rows` says which). Rows without an answer are in no fit; label-free transformers and clusters see them. An
            answer of whoever has many rows counts a little more (`labeldp.learn.draws.weigh_answers`), unless you give `sample_weight`,
            which then stands, or the estimator takes no weights. A curator's counts are of at most so many rows of a person
            as their noise is worth (`labeldp.measure`).

        Notes
        -----
        *Weights and privacy.* Weights act on what was released, so they change neither the noise nor its price: training is
        post-processing. From the second stage on, the model that they shaped chooses candidates, as features do. All of
        it holds for weights that are public: `guarantee_` says that they did not see these labels. Weights that depend on
        the raw labels are not public, and give labels away: class weights, "balanced" weights, weights that undo a
        sampling by label. Balance by a public base rate, or by the released labels in `fit_release`.
        """
        labels = box_labels(OWNER, y, n_rows=_num_samples(X), classes=self.classes, label_set=self.label_set)
        # A run with a checkpoint claims the whole key, when it begins: it may draw again what a kill has lost.
        key = as_key(OWNER, self.random_state, name="random_state", pieces=self.checkpoint is not None)
        weights = _check_weights(sample_weight, len(labels))
        known = None if persons is None else Persons.of(persons, n_rows=len(labels), owner=OWNER)
        labels = labels if known is None else labels.with_persons(known)  # stages are parts of them
        check_choice(OWNER, "person_rows", self.person_rows, PERSON_ROWS)
        informed = self.person_rows == PERSON_ROWS[1]
        owners = None if known is None else Owners(persons=known, weights=weights, informed=informed)
        epsilon = choose_budget(OWNER, self.epsilon, self.mechanism)
        count = len(labels) if known is None else known.n_persons
        plan, reader = self._plan(
            X, epsilon, n_examples=count, n_classes=labels.n_classes, of_persons=known is not None
        )
        budget = self._open_budget(labels, key, weights, known)
        parts = budget.split(epsilon, prior=plan.prior, response=bool(plan.shares))
        transformer, settings = check_settings(
            self, labels.classes, parts.promise.epsilon(), silent=not plan.shares, reader=reader
        )
        if weights is not None:
            check_weighable(settings.estimator, settings.correction, distil=settings.distil)
        elif owners is not None:
            owners = replace(owners, weighs=_takes_weights(settings))
        check_whole_arrays(settings.estimator, settings.correction, n_rows=len(labels), n_classes=labels.n_classes)
        asked = self.mechanism if plan.shares and self.mechanism is not None else default_response(settings)
        response = check_response(
            asked,
            epsilon=parts.response,
            n_classes=labels.n_classes,
            correction=settings.correction,
        )
        promise = budget.state(state_response(parts.promise, response), *response.guarantee.assumptions)
        self._check_trust(promise)
        examples, features = self._prepare_features(transformer, settings, X, plan, of_persons=known is not None)

        # The prior's clusters and the split of the examples need no label. A prior that sees none is made here too, so
        # that it fails, if it must, before the charge.
        rows = X if plan.prior.raw_features or features is None else features
        prior = plan.prior.prepare(ArrayExamples(rows, labels, persons=known), budget=epsilon)
        if owners is not None:
            check_takes_persons(prior)
            owners.check_mechanism(response, labels.n_classes)
        table = None if prior.sees_labels else prior.table(rows, labels, budget=epsilon, key=key)
        words = self._describe(known)
        with self._open_journal(labels, plan, key, weights, known, measured=table is None) as journal:
            stage = journal.keep_split(partial(_split, len(labels), plan.shares, known))
            _check_first_stage(stage, weights)
            if owners is not None:
                owners.check_stages(stage)
            entry = journal.keep_charge(budget, promise, mechanism=words)
            if table is None:
                measured = prior.with_journal(journal.keep_table)
                told = {} if known is None else {"persons": known}
                table = journal.keep_table(
                    PRIOR, partial(measured.table, rows, labels, budget=epsilon, key=journal.key, **told)
                )
            budget.check_spent(table.guarantee, epsilon=parts.spent)
            settings = settle_settings(
                settings, self, table, sets=are_sets(sample_channel(response, n_classes=labels.n_classes))
            )
            door = StageDoor[Release](budget=budget, key=journal.key, epsilon=parts.response, keep=journal.keep_release)
            draw = draw_labels(labels, response, door, owners=owners)
            training = train_in_stages(
                features,
                stage,
                table,
                draw,
                settings,
                weights=weights,
                of_persons=known is not None,
                examples=examples,
            )
        release = assemble_release(
            training, stage, table, labels, seeded=key.seeded, guarantee=promise, mechanism=words
        )
        return self._keep(training, replace(release, ledger_entry=entry), transformer, settings, plan, weights=weights)

    def fit_release(
        self, X: Any, release: Release, *, sample_weight: Any = None, persons: Any = None
    ) -> LabelPrivateClassifier:
        """Train from a release that someone else made; with the owner's parameters, the model is that of her `fit`.

        Needs the release and the features, and no label. A release without stages is one stage, and one that holds a
        prior and no answers is none. `epsilon`, the mechanism, the shares of the stages, what the prior says and `classes`
        are those of the release; "auto" means here what it means to the owner. `sample_weight` is as for `fit`; weights that
        were made from the release and the features are public too, whatever the labels were. Where a person was asked about
        some of her rows only, X may have all rows, which is what the owner's transformers saw, or the answered ones. `persons` are
        the owners of all rows, answered or not, of a release about persons: answers then count as in the owner's `fit`, and
        without them all alike. They change no promise.
        """
        self._check_release(X, release)
        warn_of_budget(OWNER, self.epsilon, release)
        if sample_weight is not None:
            sample_weight = release.answered(sample_weight, owner=OWNER, name="sample_weight")
        weights = _check_weights(sample_weight, len(release))
        known = None if persons is None else self._check_owners(persons, release)
        silent = is_silent(release)
        epsilon = release.guarantee.epsilon()
        last = self._find_last_step()
        count = len(release) if known is None else known.n_persons
        reader = choose_reader(self, last, X, epsilon, n_examples=count, n_classes=release.n_classes, release=release)
        transformer, settings = check_settings(self, release.classes, epsilon, silent=silent, reader=reader)
        if weights is not None:
            check_weighable(settings.estimator, settings.correction, distil=settings.distil)
        check_whole_arrays(settings.estimator, settings.correction, n_rows=len(release), n_classes=release.n_classes)
        # Transformers need no label: they are fitted on the rows without an answer too, if those are given.
        examples = self._fit_transformer(transformer, settings, X)
        features = None if settings.only_asks else take_answered(OWNER, read_examples(settings, examples), release)
        examples = take_answered(OWNER, examples, release)
        stages = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        stage = None if silent else stages
        _check_first_stage(stage, weights)
        owners = None
        if known is not None:
            owners = Owners(persons=known, weights=weights, weighs=weights is None and _takes_weights(settings))
        table, draw = read_prior(release), replay_release(release, owners=owners)
        settings = settle_settings(settings, self, table, sets=are_sets(release.channel))
        of_persons = release.guarantee.unit is Unit.PERSON
        training = train_in_stages(
            features, stage, table, draw, settings, weights=weights, of_persons=of_persons, examples=examples
        )
        plan = Recipe(shares=tuple(report.share for report in training.stages), prior=UniformPrior())
        return self._keep(training, release, transformer, settings, plan, weights=weights)

    def check_fit(
        self, X: Any, *, n_classes: int, n_rows: int | None = None, of_persons: bool = False, features: Any = None
    ) -> Any:
        """Refuse what `fit` would refuse whatever the labels are, and return the features as the last step takes them.

        For who compares learners and pays before they are fitted (`PrivateSearchCV`). Label-free transformers are fitted, unless
        the `features` that they make are handed in. Features of a quick reader and the prior's clusters are not made: they take long.

        Parameters
        ----------
        X : array, sparse matrix, table or dataset
            The features.
        n_classes : int
            How many classes there are.
        n_rows : int, optional
            The fewest rows that a fit will have; by default all, or the first stage's.
        of_persons : bool
            Whether rows have owners, a few of whose labels are answered.
        features : optional
            What an earlier call returned, if nothing before the last step is different.
        """
        classes, epsilon = tuple(range(n_classes)), choose_budget(OWNER, self.epsilon, self.mechanism)
        with hide_warnings():  # `fit` says it
            plan, _ = self._plan(X, epsilon, n_examples=_num_samples(X), n_classes=n_classes, of_persons=of_persons)
            transformer, settings = check_settings(self, classes, epsilon, silent=not plan.shares)
            check_whole_arrays(settings.estimator, settings.correction, n_rows=_num_samples(X), n_classes=n_classes)
            if features is None:
                check_parameters(transformer)
                features = self._fit_transformer(transformer, settings, X)
        rows = _count_first(_num_samples(X), plan, of_persons=of_persons) if n_rows is None else n_rows
        check_training(settings, X, features, n_rows=rows)
        return features

    def releases_labels(self, X: Any, *, n_examples: int, n_classes: int) -> bool:
        """Whether a fit would answer labels, and not measure a prior alone: what `stages` and `trust` come to."""
        epsilon = choose_budget(OWNER, self.epsilon, self.mechanism)
        return bool(self._plan(X, epsilon, n_examples=n_examples, n_classes=n_classes, of_persons=False)[0].shares)

    def _plan(
        self, X: Any, epsilon: float, *, n_examples: int, n_classes: int, of_persons: bool
    ) -> tuple[Recipe, Reader | None]:
        """Return what "auto" comes to: the shares of the stages with the first prior, and who reads for a long fit."""
        last = self._find_last_step()
        sizes = {"n_examples": n_examples, "n_classes": n_classes}
        reader = choose_reader(self, last, X, epsilon, **sizes)
        plan = recipe(
            epsilon,
            stages=self.stages,
            prior=None if reader is not None and reader.only_asks else self.prior,
            trust=self.trust,
            estimator=last if reader is None else reader.estimator,
            of_persons=of_persons,
            **sizes,
        )
        return plan, reader

    def _prepare_features(
        self, transformer: Any, settings: Settings, X: Any, plan: Recipe, *, of_persons: bool
    ) -> tuple[Any, Any]:
        """Return the rows as the user's estimator takes them, and what runs through the stages, None if nobody is asked by a model.

        All fits are rehearsed here, the long one before features are made for its reader, which takes minutes.
        """
        n_rows = _count_first(_num_samples(X), plan, of_persons=of_persons)
        check_parameters(transformer)
        examples = self._fit_transformer(transformer, settings, X)
        if settings.student is None:
            check_training(settings, None, examples, n_rows=n_rows)
            return examples, examples
        check_training(settings, examples, None, n_rows=n_rows)
        if settings.only_asks and len(plan.shares) <= 1:
            return examples, None
        features = read_examples(settings, examples)
        check_training(replace(settings, student=None), None, features, n_rows=n_rows)
        return examples, features

    def _check_release(self, X: Any, release: Release) -> None:
        """Refuse what is no release of classes, or not of these rows and classes."""
        check_answered(OWNER, X, release)
        if release.channel.outputs_are_numbers:
            fix = "LabelPrivateRegressor learns from numbers."
            raise invalid(OWNER, "release", "hold labels with classes", got=Described("numbers"), fix=fix)
        if self.classes is not None and check_class_list(OWNER, self.classes) != release.classes:
            got = Described(f"{len(self.classes)} for a release with its own {release.n_classes}")
            fix = "Leave classes out: a release knows its own."
            raise invalid(OWNER, "classes", "be those of the release, in their order", got=got, fix=fix)

    def _check_owners(self, persons: Any, release: Release) -> Persons:
        """Return who owns all rows of a release about persons; what is about labels does not become one about persons here."""
        if release.guarantee.unit is not Unit.PERSON:
            got = Described("one about labels")
            fix = "Leave them out here: they are of use where the labels are randomized, privatize(..., persons=ids)."
            raise invalid(
                OWNER, "release", "be about persons where these are given", got=got, fix=fix, kind=PrivacyError
            )
        n = len(release) if release.n_rows is None else release.n_rows
        return Persons.of(persons, n_rows=n, owner=OWNER)

    def _keep(
        self,
        training: Training,
        release: Release,
        transformer: Any,
        settings: Settings,
        plan: Recipe,
        *,
        weights: Floats | None,
    ) -> LabelPrivateClassifier:
        """Keep the result, all of it at once: a fit that fails leaves the last one as it was."""
        self._transformer = transformer
        self.release_ = release
        self.estimator_ = training.model
        self.stages_ = tuple(training.stages)
        given = self._list_given(weights)
        self.guarantee_, self.seeded_ = assume_public(release.guarantee, *given), release.seeded
        self.classes_ = np.asarray(release.classes)
        self.correction_, self.distil_, self.rounds_ = settings.last_correction, settings.distil, training.rounds
        self.shares_ = plan.shares
        of_release = isinstance(plan.prior, UniformPrior) and release.prior is not None
        self.prior_ = "that of the release" if of_release else repr(plan.prior)
        return self

    def _check_trust(self, promise: Guarantee) -> None:
        """Refuse what needs someone's trust where no one is to be trusted."""
        if self.trust == NO_ONE and promise.trust:
            got = Described(f"settings that trust {promise.trust.words}")
            fix = (
                "Give the public list `classes`, without which someone has to read them off all labels, and leave out priors and "
                'mechanisms that count labels; or use trust="curator".'
            )
            raise invalid(OWNER, "trust", "cover what the prior and the mechanism need", got=got, fix=fix)

    def _find_last_step(self) -> Any:
        """Return what is trained: the estimator, or the last step of a pipeline."""
        return split_pipeline(SoftmaxRegression() if self.estimator is None else self.estimator)[1]

    def _open_budget(
        self, labels: SensitiveLabels, key: NoiseKey, weights: Floats | None, persons: Persons | None
    ) -> Budget:
        """Return what owns the spending of this fit, and what is taken at the user's word beside it."""
        given = self._list_given(weights)
        about = given if persons is None else (*given, ASSIGNMENT)
        return Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=about, persons=persons)

    def _list_given(self, weights: Floats | None) -> tuple[str, ...]:
        """Return, in words, what shapes the training beside features and labels, and must not have seen these."""
        starts = list_weights(self.estimator, self.stage_params, self.final_params)
        return starts if weights is None else (*starts, WEIGHTS)

    def _open_journal(
        self,
        labels: SensitiveLabels,
        plan: Recipe,
        key: NoiseKey,
        weights: Floats | None,
        persons: Persons | None,
        *,
        measured: bool,
    ) -> Journal:
        """Return the journal of this run; what would not fit on disk is refused before anything is spent."""
        if self.checkpoint is not None:
            from labeldp.release.saving import check_plain_classes

            check_plain_classes(labels.classes, owner=OWNER)
        facts = {
            "settings": f"{self._describe(persons)}, {plan!r}",
            "classes": [repr(c) for c in labels.classes],
            "examples": len(labels),
            "label set": labels.name,
            "seeded": key.seeded,
        }
        if weights is not None:  # models of earlier stages choose candidates: with other weights it is another run
            facts["set of sample weights"] = hashlib.sha256(weights.astype("<f8").tobytes()).hexdigest()
        if persons is not None:  # they shape stages and who is asked about what
            facts["assignment of rows to persons"] = persons.digest
        pieces = [*([PRIOR] if measured else []), *(f"stage-{number + 1}" for number in range(len(plan.shares)))]
        return Journal(self.checkpoint, facts=facts, labels=labels, key=key, pieces=pieces)

    def _fit_transformer(self, transformer: Any, settings: Settings, X: Any) -> Any:
        """Return the features as the last step wants them; transformers are fitted here and never see a label."""
        if transformer is None:
            return check_rows(self, X, inner=settings.taker, reset=True)
        X = stack_examples(OWNER, X)
        # Rows that come in batches (`labeldp.learn.tables.TableRows`) show the names of their columns in a header.
        remember_columns(self, getattr(X, "header", X), reset=True)
        return transformer.fit_transform(X)

    @property
    def transformer_(self) -> Any:
        """The fitted steps before the classifier, which never saw a label; None where there are none."""
        check_is_fitted(self, "estimator_")
        return self._transformer

    def _features(self, X: Any) -> Any:
        """Return new features as the last step wants them."""
        if self._transformer is None:
            return check_rows(self, X, inner=self.estimator_, reset=False)
        X = stack_examples(OWNER, X)
        remember_columns(self, X, reset=False)
        return self._transformer.transform(X)

    def _describe(self, persons: Persons | None) -> str:
        """Return what was done to the labels, in words: the mechanism of the release, and part of a checkpoint's facts."""
        how = "" if self.mechanism is None else f", mechanism={self.mechanism!r}"
        whom = "" if self.trust is None else f", trust={self.trust!r}"
        asked = "" if self.person_rows == PERSON_ROWS[0] else f", rows by {self.person_rows}"
        whose = "" if persons is None else f" for each of {persons.n_persons:,} persons{asked}"
        epsilon = choose_budget(OWNER, self.epsilon, self.mechanism)
        return f"{OWNER}(epsilon={epsilon!r}{whom}, stages={self.stages!r}, prior={self.prior!r}{how}){whose}"

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        check_is_fitted(self, "estimator_")
        return predict_classes(self.estimator_, self._features(X), tuple(self.classes_.tolist()))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        check_is_fitted(self, "estimator_")
        best = predict_labels(self.estimator_, self._features(X), tuple(self.classes_.tolist()))
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        return takes_rows_of(self.estimator, super().__sklearn_tags__())


def takes_rows_of(estimator: Any, tags: Any) -> Any:
    """Return scikit-learn's tags of a learner that hands its rows on: it takes the kinds that `estimator` takes."""
    inner = get_tags(SoftmaxRegression() if estimator is None else estimator).input_tags
    tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
    tags.input_tags.three_d_array = inner.three_d_array
    return tags


def _check_weights(sample_weight: Any, n_rows: int) -> Floats | None:
    return None if sample_weight is None else check_weights(OWNER, "sample_weight", sample_weight, n_rows=n_rows)


def _count_first(n: int, plan: Recipe, *, of_persons: bool) -> int:
    """Return how many of n rows the first fit has; of persons it is not known before how many of their rows are asked."""
    return n if of_persons or not plan.shares else max(1, round(plan.shares[0] * n))


def _takes_weights(settings: Settings) -> bool:
    """Whether the estimator's fits take weights as they are: rows are not drawn by weights that nobody asked for."""
    try:
        check_weighable(settings.estimator, settings.correction, distil=settings.distil)
    except LabelDPError:
        return False
    return takes_weights(settings.estimator)


def _check_first_stage(stage: npt.NDArray[Any] | None, weights: Floats | None) -> None:
    """Refuse weights that leave the first stage nothing to train on: later stages have what came before them."""
    if stage is not None and weights is not None and not weights[stage == 0].any():
        got = Described("weights of 0 for all rows of the first stage")
        raise invalid(OWNER, "sample_weight", "leave the first stage a row", got=got, fix="Leave those rows out of X.")


def check_takes_persons(prior: Prior) -> None:
    """Refuse, before anything is charged, a prior that looks at labels and cannot be told whose they are."""
    if prior.sees_labels and "persons" not in inspect.signature(prior.table).parameters:
        fix = "Give its `table` an argument persons=None, and hand it to `measure`; or use ClusterPrior."
        raise invalid(OWNER, "prior", "take persons", got=type(prior).__name__, fix=fix, kind=PrivacyError)


def _split(n: int, shares: tuple[float, ...], persons: Persons | None, key: NoiseKey) -> npt.NDArray[np.uint8] | None:
    """Return the stage of each example, the same for all rows of a person; None where no label is released."""
    return assign_stages(n, shares, key.child("split"), persons=persons) if shares else None
