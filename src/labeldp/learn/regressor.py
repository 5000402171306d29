"""`LabelPrivateRegressor`: any scikit-learn regressor, trained on numbers that it never sees.

`fit` releases every label once (`labeldp.UnbiasedResponse`): a number whose mean is the label. A regressor with squared loss
fits the same function to such answers as to labels, only with more noise, so that nothing about it need change:

    E[(f(x) - answer)^2] = E[(f(x) - label)^2] + the variance of the answer, whatever f is.

That holds as well for the error on rows held out, so a penalty or a size that a regressor chooses by cross-validation on the
answers (`RidgeCV`, early stopping) is chosen for the labels.

Labels may be answered in stages, the model of the earlier ones being a belief about the later ones; rows whose answers tell more weigh
more; and ``correction="evidence"`` reads more out of an answer than that its mean is the label. The mathematics of all three, and
when they gain, is in `labeldp.learn.number_stages`.

Reference: the unbiased channel as a linear program, Ghazi et al. 2023; here in stages, with the model as prior.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, is_classifier
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import _num_samples, check_is_fitted

from labeldp.arrays import Floats, Places
from labeldp.channel import NumericChannel
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Unit
from labeldp.learn.checkpoint import Checkpoint, Journal
from labeldp.learn.classifier import takes_rows_of
from labeldp.learn.corrections import (
    check_answered,
    check_rows,
    remember_columns,
    split_pipeline,
    take_answered,
    takes_weights,
    warn_of_budget,
)
from labeldp.learn.number_stages import Training, draw_numbers, predict_within, train_on_numbers
from labeldp.learn.rehearsal import check_estimator, check_parameters
from labeldp.learn.settings import assign_stages, choose_budget, stage_shares
from labeldp.mechanisms import Mechanism, NumericMechanism, UnbiasedResponse
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, SensitiveLabels
from labeldp.release.budget import Budget, assume_public
from labeldp.release.labels import box_numbers
from labeldp.release.persons import ASSIGNMENT, Persons, check_apart
from labeldp.release.scores import ScoredRegressor
from labeldp.release.stages import StageDoor
from labeldp.release.templates import copy_template, list_weights
from labeldp.validate import check_choice, check_probability_rows, check_weights, stack_examples

OWNER = "LabelPrivateRegressor"
#: What a guarantee calls them.
WEIGHTS = "sample weights"
#: Penalties that the default regressor chooses from, by its own leave-one-out error.
PENALTIES = tuple(float(10.0**power) for power in np.arange(-3.0, 6.5, 0.5))


class LabelPrivateRegressor(ScoredRegressor, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Release every number once, with its mean kept, and train any regressor with squared loss on what was released.

    Parameters
    ----------
    estimator : regressor, or a pipeline that ends in one; default ridge regression with a penalty chosen on the answers
        Transformers of a pipeline are fitted on the features alone, which are not secret. The regressor's loss should be
        squared error: others (absolute, quantile) are not unbiased on noisy labels.
    epsilon : float, optional
        The whole budget. Left out, it is the mechanism's own, or 1 without one.
    bounds : (low, high)
        Public bounds of the labels, known without them; needed unless y is boxed, or a mechanism has them.
    stages : int or sequence of shares
        1 releases all labels in one way. In a later stage the model so far says where a label is thought to be, and the
        answer has less variance there. Stages cost `epsilon` in all: every label is in one.
    correction : {"unbiased", "evidence"}
        What the regressor is fitted to: the answers, whose mean is the label; or what they say of the mean of a label that is
        about normal around it, which tells more at small epsilon. The second needs a regressor that takes `sample_weight`.
    prior : array of shape (K,), optional
        Public probabilities of the mechanism's levels, for the first stage; by default all are equally likely.
    mechanism : NumericMechanism, optional
        By default `UnbiasedResponse(epsilon, bounds=bounds)`. Another one is taken at `epsilon`.
    outside : {"clip", "refuse"}
        What is done with a label outside of the bounds (`SensitiveLabels`).
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release `seeded`: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    label_set : str
        The ledger's name for these labels.
    checkpoint : path or Checkpoint, optional
        A directory where every stage is kept before it is used, as for `LabelPrivateClassifier`.

    Notes
    -----
    *Guarantee.*
    Pure epsilon when one label is replaced, and no one to trust: stages are disjoint, and a stage's beliefs are made of what was
    released before. It stands on bounds, prior, features and weights that did not see the labels.

    Attributes
    ----------
    guarantee_, release_, stages_ : what was promised, what was released (`release_.values`), and each stage as it was run
    seeded_ : whether the noise came from a seed, hence is not private
    estimator_, bounds_ : the regressor of the last fit; predictions are brought within the bounds
    n_features_in_, feature_names_in_ : as always

    Examples
    --------
    >>> X = np.linspace(0, 1, 4000)[:, None]
    >>> model = LabelPrivateRegressor(epsilon=2.0, bounds=(0, 100), random_state=0).fit(X, 20 + 60 * X[:, 0])
    >>> model.predict([[0.5]]).round(-1).tolist(), model.guarantee_.epsilon()
    ([50.0], 2.0)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float | None = None,
        bounds: tuple[float, float] | None = None,
        stages: int | Sequence[float] = 1,
        correction: str = "unbiased",
        prior: Any = None,
        mechanism: Mechanism | None = None,
        outside: str = "clip",
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.bounds = bounds
        self.stages = stages
        self.correction = correction
        self.prior = prior
        self.mechanism = mechanism
        self.outside = outside
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, persons: Any = None) -> LabelPrivateRegressor:
        """Release y in stages and train; y is not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.

        Parameters
        ----------
        X : array, sparse matrix or table
            The features, public.
        y : numbers, one per row, or SensitiveLabels with bounds
            What is protected.
        sample_weight : array of shape (n,), optional
            Public weights >= 0 of the rows in every fit. A row of weight 0 is in no fit; its label is released and charged
            all the same. Weights that depend on the raw labels are not public; `guarantee_` says that these do not.
        persons : Persons, or a column of n ids, optional
            Who owns each row, public. Then `epsilon` is what a person spends on all her labels together, and `guarantee_` says
            so. Persons are split into stages; in each, one row of a person is asked (or the few that tell more together), by
            public chance. Rows without an answer are in no fit; label-free transformers see them.
        """
        bounds = self.bounds if self.bounds is not None else getattr(self.mechanism, "bounds", None)
        labels = box_numbers(
            OWNER, y, n_rows=_num_samples(X), bounds=bounds, outside=self.outside, label_set=self.label_set
        )
        key = as_key(OWNER, self.random_state, name="random_state", pieces=self.checkpoint is not None)
        weights = _check_weights(sample_weight, len(labels))
        response = _check_response(self.mechanism, choose_budget(OWNER, self.epsilon, self.mechanism), labels)
        law = _check_prior(self.prior, response)
        shares = stage_shares(self.stages, response.epsilon, owner=OWNER)
        known = None if persons is None else Persons.of(persons, n_rows=len(labels), owner=OWNER)
        given = (*self._list_given(weights), *(() if law is None else ("prior",)))
        given = given if known is None else (*given, ASSIGNMENT)
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=known)
        promise = budget.state(budget.about_unit(response.guarantee))
        transformer, last = self._split_estimator(weights)
        check_parameters(transformer)
        features = self._fit_transformer(transformer, last, X)
        check_estimator(last, features, n_classes=None)
        response.channel(law)  # fails here, if it must
        words = self._describe(response, known)
        with self._open_journal(labels, shares, key, weights, known, words) as journal:
            stage = journal.keep_split(
                lambda noise: assign_stages(len(labels), shares, noise.child("split"), owner=OWNER, persons=known)
            )
            assert stage is not None  # there is always a stage
            _check_first_stage(stage, weights)
            if known is not None:
                check_apart(known, [np.flatnonzero(stage == number) for number in range(len(shares))])
            entry = journal.keep_charge(budget, promise, mechanism=words)
            door = StageDoor[Release](
                budget=budget, key=journal.key, epsilon=response.epsilon, keep=journal.keep_release
            )
            draw = draw_numbers(labels, response, door, persons=known, weights=weights)
            training = train_on_numbers(
                features,
                stage,
                draw,
                last,
                levels=response.levels,
                prior=law,
                weights=weights,
                evidence=self.correction == "evidence",
            )
        release = Release(
            codes=training.codes,
            classes=tuple(response.levels.tolist()),
            channel=training.channel,
            guarantee=promise,
            mechanism=words,
            seeded=key.seeded,
            label_set=str(labels.name),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            ledger_entry=entry,
            stage=(stage if training.rows is None else stage[training.rows]) if len(shares) > 1 else None,
            rows=training.rows,
            n_rows=None if training.rows is None else len(labels),
        )
        return self._keep(training, release, transformer)

    def fit_release(self, X: Any, release: Release, *, sample_weight: Any = None) -> LabelPrivateRegressor:
        """Train from a release of numbers that someone else made; with the owner's parameters, the model is that of her `fit`.

        Needs the release and the features, and no label. `epsilon`, bounds, mechanism and stages are those of the release; the
        owner's `prior` is needed only for the weights of its first stage.
        """
        check_answered(OWNER, X, release)
        if not isinstance(release.channel, NumericChannel):
            fix = "Release numbers with UnbiasedResponse; LabelPrivateClassifier learns from classes."
            raise invalid(OWNER, "release", "hold numbers", got=Described("other labels"), fix=fix)
        warn_of_budget(OWNER, self.epsilon, release)
        if sample_weight is not None:
            sample_weight = release.answered(sample_weight, owner=OWNER, name="sample_weight")
        weights = _check_weights(sample_weight, len(release))
        transformer, last = self._split_estimator(weights)
        # Transformers need no label: they are fitted on the rows without an answer too, if those are given.
        features = take_answered(OWNER, self._fit_transformer(transformer, last, X), release)
        stage = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        _check_first_stage(stage, weights)
        levels = release.channel.levels
        law = None if self.prior is None else _check_law(self.prior, len(levels))

        def replay(_number: int, rows: Places, _laws: Any, _groups: Any) -> Release:
            return replace(release.take(rows), rows=None, n_rows=None)

        training = train_on_numbers(
            features,
            stage,
            replay,
            last,
            levels=levels,
            prior=law,
            weights=weights,
            evidence=self.correction == "evidence",
        )
        promise = assume_public(release.guarantee, *self._list_given(weights))
        return self._keep(training, replace(release, guarantee=promise), transformer)

    def predict(self, X: Any) -> Floats:
        """Return the expected label of each row, brought within the bounds."""
        check_is_fitted(self, "estimator_")
        if self._transformer is None:
            features = check_rows(self, X, inner=self.estimator_, reset=False)
        else:
            X = stack_examples(OWNER, X)
            remember_columns(self, X, reset=False)
            features = self._transformer.transform(X)
        return predict_within(self.estimator_, features, self.bounds_)

    @property
    def transformer_(self) -> Any:
        """The fitted steps before the regressor, which never saw a label; None where there are none."""
        check_is_fitted(self, "estimator_")
        return self._transformer

    def _list_given(self, weights: Floats | None) -> tuple[str, ...]:
        """Return, in words, what shapes the training beside features and labels, and must not have seen these."""
        starts = list_weights(self.estimator)
        return starts if weights is None else (*starts, WEIGHTS)

    def _split_estimator(self, weights: Floats | None) -> tuple[Any, BaseEstimator]:
        plain = _default_regressor() if self.estimator is None else copy_template(OWNER, "estimator", self.estimator)
        transformer, last = split_pipeline(plain, owner=OWNER)
        classifies = hasattr(last, "__sklearn_tags__") and is_classifier(last)  # of others nothing can be asked
        if classifies or not (hasattr(last, "fit") and hasattr(last, "predict")):
            raise invalid(OWNER, "estimator", "be a regressor", got=type(last).__name__)
        check_choice(OWNER, "correction", self.correction, ("unbiased", "evidence"))
        if self.correction == "evidence" and not takes_weights(last):
            fix = 'Use correction="unbiased", or a regressor whose fit takes sample_weight.'
            raise invalid(OWNER, "estimator", "take weights for evidence", got=type(last).__name__, fix=fix)
        if weights is not None and not takes_weights(last):
            fix = "Leave out the weights, or use a regressor whose fit takes sample_weight."
            raise invalid(OWNER, "sample_weight", "be taken by the estimator", got=type(last).__name__, fix=fix)
        return transformer, last

    def _fit_transformer(self, transformer: Any, last: BaseEstimator, X: Any) -> Any:
        """Return the features as the last step wants them; transformers are fitted here and never see a label."""
        if transformer is None:
            return check_rows(self, X, inner=last, reset=True)
        X = stack_examples(OWNER, X)
        remember_columns(self, X, reset=True)
        return transformer.fit_transform(X)

    def _open_journal(  # noqa: PLR0917  # one caller, above
        self,
        labels: SensitiveLabels,
        shares: tuple[float, ...],
        key: NoiseKey,
        weights: Floats | None,
        persons: Persons | None,
        words: str,
    ) -> Journal:
        """Return the journal of this run."""
        facts = {
            "settings": f"{words}, {shares!r}, prior {_digest(self.prior)}",
            "examples": len(labels),
            "label set": labels.name,
            "seeded": key.seeded,
        }
        if self.correction != "unbiased":
            facts["settings"] = f"{facts['settings']}, {self.correction}"
        if weights is not None:  # models of earlier stages choose channels: with other weights it is another run
            facts["set of sample weights"] = _digest(weights)
        if persons is not None:  # they shape stages and who is asked about what
            facts["assignment of rows to persons"] = persons.digest
        pieces = [f"stage-{number + 1}" for number in range(len(shares))]
        return Journal(self.checkpoint, facts=facts, labels=labels, key=key, pieces=pieces, owner=OWNER)

    def _keep(self, training: Training, release: Release, transformer: Any) -> LabelPrivateRegressor:
        """Keep the result, all of it at once: a fit that fails leaves the last one as it was."""
        assert isinstance(release.channel, NumericChannel)
        self._transformer = transformer
        self.release_ = release
        self.estimator_ = training.model
        self.stages_ = tuple(training.stages)
        self.guarantee_, self.seeded_ = release.guarantee, release.seeded
        self.bounds_ = release.channel.bounds
        return self

    def _describe(self, response: NumericMechanism, persons: Persons | None) -> str:
        whose = "" if persons is None else f" for each of {persons.n_persons:,} persons"
        return f"{OWNER}(stages={self.stages!r}, mechanism={response!r}){whose}"

    def __sklearn_tags__(self) -> Any:
        inner = _default_regressor() if self.estimator is None else self.estimator
        return takes_rows_of(inner, super().__sklearn_tags__())


# ------------------------------------------------------------------------------------------------ checks


def _default_regressor() -> BaseEstimator:
    return RidgeCV(alphas=PENALTIES)


def _check_response(mechanism: Any, epsilon: float, labels: SensitiveLabels) -> NumericMechanism:
    """Return the mechanism at this epsilon, for these labels, or refuse it before anything is spent."""
    assert labels.bounds is not None
    if mechanism is None:
        return UnbiasedResponse(epsilon, bounds=labels.bounds)
    if not isinstance(mechanism, NumericMechanism):
        fix = "For example UnbiasedResponse(1.0, bounds=(0, 100))."
        raise invalid(OWNER, "mechanism", "be a mechanism for numbers", got=mechanism, fix=fix)
    response = mechanism.with_epsilon(epsilon)
    promise = response.guarantee
    if promise.unit is not Unit.LABEL or not promise.epsilon() <= epsilon:
        raise PrivacyError(
            f"{OWNER}: {response!r} was asked for epsilon = {epsilon!r} for a label and promises {promise.epsilon()!r}. "
            "Nothing was drawn. Fix its `with_epsilon` or its `guarantee`."
        )
    if response.bounds != labels.bounds:
        got = Described(f"{response.bounds} for labels of {labels.bounds}")
        raise invalid(OWNER, "mechanism", "have the bounds of the labels", got=got)
    return response


def _check_prior(prior: Any, mechanism: NumericMechanism) -> Floats | None:
    if prior is None:
        return None
    if not mechanism.uses_prior:
        raise invalid(OWNER, "prior", f"be left out: {type(mechanism).__name__} takes none", got=Described("one"))
    return _check_law(prior, mechanism.n_classes)


def _check_law(prior: Any, size: int) -> Floats:
    rows = check_probability_rows(OWNER, "prior", np.atleast_2d(np.asarray(prior)))
    if rows.shape != (1, size):
        got = Described(f"an array of shape {np.shape(prior)}")
        raise invalid(OWNER, "prior", f"be {size} probabilities, one per level", got=got)
    law: Floats = rows[0]
    return law


def _check_weights(sample_weight: Any, n_rows: int) -> Floats | None:
    return None if sample_weight is None else check_weights(OWNER, "sample_weight", sample_weight, n_rows=n_rows)


def _check_first_stage(stage: npt.NDArray[Any], weights: Floats | None) -> None:
    """Refuse weights that leave the first stage nothing to train on."""
    if weights is not None and not weights[stage == 0].any():
        got = Described("weights of 0 for all rows of the first stage")
        raise invalid(OWNER, "sample_weight", "leave the first stage a row", got=got, fix="Leave those rows out of X.")


def _digest(array: Any) -> str:
    """Return a short text that tells public arrays apart."""
    return "none" if array is None else hashlib.sha256(np.asarray(array, "<f8").tobytes()).hexdigest()
