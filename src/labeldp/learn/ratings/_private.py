"""`LabelPrivateRatings`: from a table of ratings to a recommender, under one budget for each rating."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from labeldp._random import NoiseKey, as_key
from labeldp.channel import MatrixChannel
from labeldp.errors import Described, invalid
from labeldp.learn._stages import assign_stages, stage_shares
from labeldp.learn.ratings._evidence import Responses
from labeldp.learn.ratings._factorisation import MatrixFactorisation, rating_values
from labeldp.learn.ratings._family import RatingFamily
from labeldp.learn.ratings._gibbs import Evidence, Progress
from labeldp.learn.ratings._pairs import PairTable
from labeldp.learn.ratings._plan import LEAST_STAGED, STAGES, RatingPlan, default_factors
from labeldp.learn.ratings._staged import Believed, Codes, Released, Rows, respond_in_stages
from labeldp.learn.ratings._sums import cell_sums, integer_scores
from labeldp.release import Release, SensitiveLabels
from labeldp.release._charging import charge
from labeldp.release._labels import CLASSES_READ_OFF

Floats = npt.NDArray[np.floating[Any]]

#: Models between stages only place channels: fewer passes and factors do.
_BETWEEN_SWEEPS, _BETWEEN_BURN = 20, 8


class LabelPrivateRatings(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Protect every rating, and learn to predict ratings of (user, item) pairs. Who rated what is public, how is not.

    Two ways to look at ratings share one budget. Sums: what every user gave in total to each group of items, and every item
    got from each group of users, with discrete Laplace noise; the curator is trusted. Responses: every rating once,
    randomized by the channel that tells most about its mean, in stages; no one is trusted. The default is sums alone up to
    epsilon 1 and responses alone above.

    Parameters
    ----------
    learner : MatrixFactorisation, optional
        What learns from the released values; by default with a number of factors that fits epsilon.
    epsilon : float
        The whole budget of each rating.
    sums : float in [0, 1], optional
        The share of the budget for sums.
    stages : int or sequence of shares, optional
        Of the responses; 1 is a fixed channel. By default 2 %, 38 % and 60 % of the ratings.
    values : sequence of rising numbers, optional
        The public list of rating values, at most ten. If it is left out it is read off, and the guarantee says so.
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release seeded: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    label_set : str
        The ledger's name for these ratings.

    Guarantee
    ---------
    Pure epsilon when one rating is replaced: sums and responses compose in sequence, stages are disjoint. A user with many
    ratings has that promise for each of them, not for all together.

    Attributes
    ----------
    guarantee_, release_ (None without responses), by_user_, by_item_ (None without sums), stages_, seeded_, ledger_entry_
    learner_ : the fitted learner;  values_ : the rating values

    Example
    -------
    >>> pairs = [(u, i) for u in range(60) for i in range(40)]
    >>> ratings = [1 + 2 * (i % 3) for u, i in pairs]
    >>> model = LabelPrivateRatings(epsilon=1.0, values=(1, 2, 3, 4, 5), random_state=0).fit(pairs, ratings)
    >>> (
    ...     model.guarantee_.epsilon(),
    ...     model.guarantee_.trust.words,
    ...     bool(model.predict([(0, 2)]) > model.predict([(0, 0)])),
    ... )
    (1.0, 'a curator', True)
    """

    def __init__(
        self,
        learner: MatrixFactorisation | None = None,
        *,
        epsilon: float = 1.0,
        sums: float | None = None,
        stages: int | Sequence[float] | None = None,
        values: Sequence[float] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "ratings",
    ) -> None:
        self.learner = learner
        self.epsilon = epsilon
        self.sums = sums
        self.stages = stages
        self.values = values
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, pairs: Any, ratings: Any, *, progress: Progress | None = None) -> LabelPrivateRatings:
        """Release what the plan says and learn from it; the ratings are not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.
        """
        plan = RatingPlan.of(self.epsilon, sums=self.sums)
        table, labels = PairTable.of(pairs), self._boxed(ratings)
        key = as_key("LabelPrivateRatings", self.random_state)
        learner, family = self._prepared(table, labels, plan)
        stage = assign_stages(len(table), self._shares(len(table), plan), key.child("split"))
        features = table.features(learner.pair_features)
        promise = plan.promise.assuming(CLASSES_READ_OFF) if labels.classes_read_off else plan.promise
        entry = charge(self.ledger, promise, labels, mechanism=self._description(), seeded=key.seeded)
        evidence = self._summed(table, labels, features, family, plan=plan, key=key)
        released = None
        if plan.response > 0:
            believed = _beliefs(table, features, learner, family, evidence)
            informed = evidence.by_user is not None
            released = respond_in_stages(
                labels, stage, family, believed, epsilon=plan.response, key=key, informed=informed
            )
            told = Responses.read(released.codes, released.channel, family)
            evidence = Evidence(responses=told, by_user=evidence.by_user, by_item=evidence.by_item)
        learner.fit_evidence(table, evidence, family.values, features=features, progress=progress)
        self.guarantee_, self.seeded_, self.ledger_entry_ = promise, key.seeded, entry
        self.release_ = None if released is None else self._as_release(released, stage, labels)
        self.stages_ = () if released is None else released.stages
        self.by_user_, self.by_item_ = evidence.by_user, evidence.by_item
        self.learner_, self.values_ = learner, family.values
        return self

    def predict(self, pairs: Any) -> Floats:
        """Return the expected rating of each pair."""
        check_is_fitted(self, "learner_")
        return self.learner_.predict(pairs)

    def predict_spread(self, pairs: Any) -> Floats:
        """Return the posterior standard deviation of each pair's mean rating."""
        check_is_fitted(self, "learner_")
        return self.learner_.predict_spread(pairs)

    # Parts of fit

    def _boxed(self, ratings: Any) -> SensitiveLabels:
        if isinstance(ratings, SensitiveLabels):
            return ratings
        classes = None if self.values is None else list(self.values)
        return SensitiveLabels(ratings, classes=classes, name=self.label_set)

    def _prepared(
        self, table: PairTable, labels: SensitiveLabels, plan: RatingPlan
    ) -> tuple[MatrixFactorisation, RatingFamily]:
        """Check everything that can be checked without noise, and return the learner and the family of its labels."""
        if len(labels) != len(table):
            got = Described(f"{len(labels)} for {len(table)} pairs")
            raise invalid("LabelPrivateRatings", "ratings", "have one entry per pair", got=got)
        learner = clone(self.learner) if self.learner is not None else self._default_learner()
        if not isinstance(learner, MatrixFactorisation):
            raise invalid("LabelPrivateRatings", "learner", "be a MatrixFactorisation", got=type(learner).__name__)
        values = rating_values(labels.classes)
        if plan.by_user > 0:
            integer_scores(values)
        return learner, learner.family(values)

    def _default_learner(self) -> MatrixFactorisation:
        seed = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None
        return MatrixFactorisation(factors=default_factors(self.epsilon), random_state=seed)

    def _shares(self, n: int, plan: RatingPlan) -> tuple[float, ...]:
        if plan.response == 0 or (self.stages is None and n < LEAST_STAGED):
            return (1.0,)
        return stage_shares(STAGES if self.stages is None else self.stages, plan.response)

    def _summed(
        self,
        table: PairTable,
        labels: SensitiveLabels,
        features: tuple[Floats, Floats],
        family: RatingFamily,
        *,
        plan: RatingPlan,
        key: NoiseKey,
    ) -> Evidence:
        if plan.by_user == 0:
            return Evidence()
        users, items, values = table.users, table.items, family.values
        by_user = cell_sums(
            labels, users, items, table.n_users, features[1],
            values=values, epsilon=plan.by_user, key=key.child("sums", "user"),
        )  # fmt: skip
        by_item = cell_sums(
            labels, items, users, table.n_items, features[0],
            values=values, epsilon=plan.by_item, key=key.child("sums", "item"),
        )  # fmt: skip
        return Evidence(by_user=by_user, by_item=by_item)

    def _as_release(self, released: Released, stage: npt.NDArray[np.uint8], labels: SensitiveLabels) -> Release:
        return Release(
            codes=released.codes,
            classes=labels.classes,
            channel=released.channel,
            guarantee=self.guarantee_,
            mechanism=self._description(),
            seeded=self.seeded_,
            label_set=labels.name,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            ledger_entry=self.ledger_entry_,
            stage=stage,
        )

    def _description(self) -> str:
        return f"LabelPrivateRatings(epsilon={self.epsilon!r}, sums={self.sums!r}, stages={self.stages!r})"


def _beliefs(
    table: PairTable,
    features: tuple[Floats, Floats],
    learner: MatrixFactorisation,
    family: RatingFamily,
    known: Evidence,
) -> Believed:
    """Return what the model of the labels released so far, and of the sums, says of other pairs."""
    between = clone(learner).set_params(factors=max(2, learner.factors - 2), sweeps=_BETWEEN_SWEEPS, burn=_BETWEEN_BURN)

    def believed(rows: Rows, codes: Codes, channel: MatrixChannel, asked: Rows) -> tuple[Floats, Floats]:
        part, evidence = table, known
        if len(rows):
            seen = Responses.read(codes, channel, family)
            if known.by_user is None:  # without sums, pairs whose labels are not out yet have no say
                part, evidence = table.take(rows), Evidence(responses=seen)
            else:
                placed = seen.placed(rows, len(table))
                evidence = Evidence(responses=placed, by_user=known.by_user, by_item=known.by_item)
        between.fit_evidence(part, evidence, family.values, features=features)
        users, items = table.users[asked], table.items[asked]
        told: tuple[Floats, Floats] = between.moments(users, items)
        return told

    return believed
