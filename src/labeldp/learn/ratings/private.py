"""`LabelPrivateRatings`: from a table of ratings to a recommender, under one budget for each rating.

Ratings are released in two ways, and the learner reads both as evidence about the mean rating of a pair.

*Sums*, for those who trust a curator: what every user gave in total to each group of items, and every item got from each
group of users. At small epsilon two numbers per id and group say more than a randomized label per rating, since the noise of
a sum does not grow with the number of ratings in it. Groups are clusters of public features: each rating is in one cell of
each side. Exact noise needs integers, so values are written as base + step * integer:

>>> integer_scores((1, 2, 3, 4, 5)), integer_scores((0.5, 1.0, 1.5))
((array([-2, -1,  0,  1,  2]), 1.0, 3.0), (array([-1,  0,  1]), 0.5, 1.0))

*Responses*, which trust no one: every rating is randomized once, in stages. Stages hold disjoint ratings, assigned without a
look at them, so that all stages together cost one epsilon. The channel of a stage is the best one for what the model of the
earlier stages expects. Pairs with similar predictions share a channel: `OptimalResponse` for the information about the mean,
under the law that a rating has at that mean, averaged over the model's own uncertainty.

Sums and responses are about the same ratings and compose in sequence; stages compose in parallel.

>>> budget = Budget(owner="example", labels=SensitiveLabels([1, 5], classes=[1, 2, 3, 4, 5]))
>>> plan = RatingPlan.of(budget, 1.0, sums=None)
>>> plan.by_user, plan.by_item, plan.response, plan.promise.trust.words
(0.6, 0.4, 0.0, 'a curator')
>>> RatingPlan.of(budget, 2.0, sums=None).response
2.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from labeldp.arrays import Floats, Int64s, Places
from labeldp.channel import MeanEvidence, MeanTable
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn.ratings.factorisation import MatrixFactorisation, rating_values
from labeldp.learn.ratings.gibbs import Evidence, Progress
from labeldp.learn.ratings.pairs import CellSums, PairTable
from labeldp.learn.responses import Predictor, Responded, respond_in_stages
from labeldp.learn.settings import assign_stages, stage_shares
from labeldp.priors.cluster import cluster
from labeldp.random import NoiseKey, as_key
from labeldp.release import LabelSums, Query, Release, SensitiveLabels, Sensitivity, measure
from labeldp.release.budget import Budget, check_measurable
from labeldp.release.grid import box_on_grid
from labeldp.release.labels import box_labels
from labeldp.release.queries import check_groups, round_to_integers
from labeldp.release.scores import ScoredRegressor
from labeldp.release.stages import StageDoor
from labeldp.release.templates import copy_template
from labeldp.validate import check_epsilon, check_integer, check_real

OWNER = "LabelPrivateRatings"


class LabelPrivateRatings(ScoredRegressor, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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

    Notes
    -----
    *Guarantee.*
    Pure epsilon when one rating is replaced: sums and responses compose in sequence, stages are disjoint. A user with many
    ratings has that promise for each of them, not for all together; `user_guarantee_` says what it is for all ratings of a user,
    by group privacy: epsilon times the most ratings of anyone, which is little privacy where that is many.

    Attributes
    ----------
    guarantee_, release_ (None without responses), by_user_, by_item_ (None without sums), stages_, seeded_, ledger_entry_
    most_ratings_, user_guarantee_ : the most ratings of a user, and the same release as a promise about all ratings of one user
    learner_ : the fitted learner;  values_ : the rating values

    Examples
    --------
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

        Parameters
        ----------
        pairs : array (n, 2), or a list of (user, item)
            Public. Ids are whole numbers or text.
        ratings : sequence of numbers, or SensitiveLabels
            One per pair. Boxed numbers with bounds are brought to the nearest of `values`, which are then even.
        progress : (share done, what is being done) -> None, optional
            Called after each sweep of the last fit.
        """
        table = PairTable.of(pairs)
        labels = self._box_ratings(ratings, len(table))
        key = as_key(OWNER, self.random_state, name="random_state")
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded)
        plan = RatingPlan.of(budget, self.epsilon, sums=self.sums)
        learner, family = self._prepare(labels, plan)
        stage = assign_stages(len(table), self._choose_shares(len(table), plan), key.child("split"))
        features = table.features(learner.pair_features)
        entry = budget.charge(plan.promise, mechanism=self._describe())
        evidence = _measure_sums(table, labels, features, family, plan=plan, budget=budget, key=key)
        responded = None
        if plan.response > 0:
            responded = respond_in_stages(
                labels,
                stage,
                family,
                _make_predictor(table, features, learner, family, evidence),
                door=StageDoor(budget=budget, key=key, epsilon=plan.response),
                informed=evidence.by_user is not None,
                owner=OWNER,
            )
            told = MeanEvidence.read(responded.codes, responded.channel, family)
            evidence = Evidence(responses=told, by_user=evidence.by_user, by_item=evidence.by_item)
        learner.fit_evidence(table, evidence, family.values, features=features, progress=progress)
        self.guarantee_, self.seeded_, self.ledger_entry_ = plan.promise, key.seeded, entry
        self.most_ratings_ = int(np.bincount(table.users).max())
        self.release_ = None if responded is None else self._as_release(responded, stage, labels)
        self.stages_ = () if responded is None else responded.stages
        self.by_user_, self.by_item_ = evidence.by_user, evidence.by_item
        self.learner_, self.values_ = learner, family.values
        return self

    @property
    def user_guarantee_(self) -> Guarantee:
        """What is promised about all ratings of one user together (`Unit.PERSON`), by group privacy."""
        check_is_fitted(self, "most_ratings_")
        return self.guarantee_.for_persons(self.most_ratings_)

    def predict(self, pairs: Any) -> Floats:
        """Return the expected rating of each pair, within the rating values; an id that was not seen is an average one."""
        check_is_fitted(self, "learner_")
        return self.learner_.predict(pairs)

    def predict_spread(self, pairs: Any) -> Floats:
        """Return the posterior standard deviation of each pair's mean rating."""
        check_is_fitted(self, "learner_")
        return self.learner_.predict_spread(pairs)

    def _box_ratings(self, ratings: Any, n_rows: int) -> SensitiveLabels:
        """Return the ratings in a box of classes; numbers with bounds are brought to the nearest of `values`."""
        if isinstance(ratings, SensitiveLabels) and ratings.bounds is not None:
            values = rating_values(self.values)
            bounds = (float(values[0]), float(values[-1]))
            if not np.allclose(np.diff(values), np.diff(values)[0], rtol=1e-9):  # decimals are not exact in binary
                got, fix = Described("others"), "Box them as SensitiveLabels(ratings, classes=values)."
                raise invalid(OWNER, "values", "be even for numbers with bounds", got=got, fix=fix)
            box = box_on_grid(
                OWNER, ratings, n_rows=n_rows, bounds=bounds, label_set=self.label_set, steps=len(values) - 1
            )
            box.labels.classes = tuple(values.tolist())
            return box.labels
        return box_labels(
            OWNER,
            ratings,
            n_rows=n_rows,
            classes=self.values,
            label_set=self.label_set,
            argument="ratings",
            numeric=True,
        )

    def _prepare(self, labels: SensitiveLabels, plan: RatingPlan) -> tuple[MatrixFactorisation, MeanTable]:
        """Check everything that can be checked without noise; return the learner and the law of its labels."""
        learner = copy_template(OWNER, "learner", self.learner) if self.learner is not None else self._default_learner()
        if not isinstance(learner, MatrixFactorisation):
            raise invalid(OWNER, "learner", "be a MatrixFactorisation", got=type(learner).__name__)
        values = rating_values(labels.classes)
        if plan.by_user > 0:
            integer_scores(values)
        return learner, learner.family(values)

    def _default_learner(self) -> MatrixFactorisation:
        seed = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None
        return MatrixFactorisation(factors=default_factors(self.epsilon), random_state=seed)

    def _choose_shares(self, n: int, plan: RatingPlan) -> tuple[float, ...]:
        """Return the shares of the stages; one stage where nothing is released in them, or where they would be small."""
        if plan.response == 0 or (self.stages is None and n < LEAST_STAGED):
            return (1.0,)
        return stage_shares(STAGES if self.stages is None else self.stages, plan.response)

    def _as_release(self, responded: Responded, stage: npt.NDArray[np.uint8], labels: SensitiveLabels) -> Release:
        return Release(
            codes=responded.codes,
            classes=labels.classes,
            channel=responded.channel,
            guarantee=self.guarantee_,
            mechanism=self._describe(),
            seeded=self.seeded_,
            label_set=str(labels.name),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            ledger_entry=self.ledger_entry_,
            stage=stage,
        )

    def _describe(self) -> str:
        return f"LabelPrivateRatings(epsilon={self.epsilon!r}, sums={self.sums!r}, stages={self.stages!r})"


# ------------------------------------------------------------------------------------------------ the budget

#: Up to this epsilon, sums alone predict MovieLens-1M better than responses alone (`studies/ratings.py`).
SUMS_UP_TO = 1.0
#: The users' part of the budget of sums: a user has fewer ratings than an item, so her sums carry more noise each.
USERS_SHARE = 0.6
#: A first stage so small that it costs little and finds the mean, a second to learn from, the rest with good channels.
STAGES = (0.02, 0.38, 0.6)
#: Below this many labels stages are too small to learn from.
LEAST_STAGED = 1_000
#: More budget says more about an id: factors at these epsilons.
_EPSILONS, _FACTORS = (0.5, 1.0, 2.0, 3.0, 4.0, 8.0), (5, 8, 8, 10, 10, 12)


@dataclass(frozen=True, kw_only=True)
class RatingPlan:
    """What each part may spend (0 if there is no such part), and the promise of the whole."""

    by_user: float
    by_item: float
    response: float
    promise: Guarantee

    @classmethod
    def of(cls, budget: Budget, epsilon: float, *, sums: float | None) -> RatingPlan:
        """Divide epsilon; `sums` is the share of the sums, by default all of it up to epsilon 1 and none above."""
        whole = check_epsilon(OWNER, epsilon)
        if whole == 0:
            raise invalid(OWNER, "epsilon", "be > 0", got=epsilon, fix="Nothing can be learned at 0.")
        by_default = 1.0 if whole <= SUMS_UP_TO else 0.0
        share = by_default if sums is None else check_real(OWNER, "sums", sums)
        if not 0 <= share <= 1 or (math.isinf(whole) and share > 0):
            raise invalid(OWNER, "sums", "be a share in [0, 1], and 0 without privacy", got=sums)
        spent, response = budget.take_share(whole, share=share)
        by_user, by_item = (
            check_measurable(OWNER, one, of=whole) for one in budget.take_share(spent, share=USERS_SHARE)
        )
        parts = []
        if by_user > 0:
            parts.append(Guarantee.pure(by_user, trust=Trust.CURATOR).named("sums by user"))
            parts.append(Guarantee.pure(by_item, trust=Trust.CURATOR).named("sums by item"))
        if response > 0:
            parts.append(Guarantee.pure(response).named("responses"))
        promise = budget.state(Guarantee.in_sequence(parts))
        return cls(by_user=by_user, by_item=by_item, response=response, promise=promise)


def default_factors(epsilon: float) -> int:
    """Return how many factors a budget can feed: tuned at six epsilons, linear between them."""
    return round(float(np.interp(epsilon, _EPSILONS, _FACTORS)))


# ------------------------------------------------------------------------------------------------ responses in stages

#: Models between stages only place channels: fewer passes and factors do.
_BETWEEN_SWEEPS, _BETWEEN_BURN = 20, 8


def _make_predictor(
    table: PairTable,
    features: tuple[Floats, Floats],
    learner: MatrixFactorisation,
    family: MeanTable,
    sums: Evidence,
) -> Predictor:
    """Return what a model of the sums and of the responses so far says of other pairs."""
    between = clone(learner).set_params(factors=max(2, learner.factors - 2), sweeps=_BETWEEN_SWEEPS, burn=_BETWEEN_BURN)

    def predict(known: Responded | None, asked: Places) -> tuple[Floats, Floats]:
        part, evidence = table, sums
        if known is not None:
            seen = MeanEvidence.read(known.codes, known.channel, family)
            if sums.by_user is None:  # without sums, pairs whose labels are not out yet have no say
                part, evidence = table.take(known.rows), Evidence(responses=seen)
            else:
                placed = seen.place(known.rows, len(table))
                evidence = Evidence(responses=placed, by_user=sums.by_user, by_item=sums.by_item)
        between.fit_evidence(part, evidence, family.values, features=features)
        told: tuple[Floats, Floats] = between.moments(table.users[asked], table.items[asked])
        return told

    return predict


# ------------------------------------------------------------------------------------------------ sums over cells

#: Leading features that groups are made from: more of them are noise to a clustering.
_GROUPING = 5
#: A cell should hold this many times as many ratings as its noise has standard deviations, on average; then a label's own
#: variance and the noise weigh alike, and finer cells would only add noise.
_PER_DEVIATION = 2.0
#: More groups than this were never of use, and cost a sum each.
_MOST_GROUPS = 64


def _measure_sums(
    table: PairTable,
    labels: SensitiveLabels,
    features: tuple[Floats, Floats],
    family: MeanTable,
    *,
    plan: RatingPlan,
    budget: Budget,
    key: NoiseKey,
) -> Evidence:
    """Return the noisy sums of both sides; no evidence if the plan spends nothing on them."""
    if plan.by_user == 0:
        return Evidence()
    users, items, values = table.users, table.items, family.values
    by_user = measure_cells(
        labels, users, items, table.n_users, features[1],
        values=values, epsilon=plan.by_user, budget=budget, key=key.child("sums", "user"),
    )  # fmt: skip
    by_item = measure_cells(
        labels, items, users, table.n_items, features[0],
        values=values, epsilon=plan.by_item, budget=budget, key=key.child("sums", "item"),
    )  # fmt: skip
    return Evidence(by_user=by_user, by_item=by_item)


def integer_scores(values: Any) -> tuple[Int64s, float, float]:
    """Return integers s, a step and a base with values = base + step s: exact noise needs integers."""
    numbers = np.asarray(values, dtype=np.float64)
    base, step = float(numbers[len(numbers) // 2]), float(np.diff(numbers).min())
    scores = round_to_integers("LabelPrivateRatings", "values", (numbers - base) / step)
    # 1e-9: decimals such as 0.1 are not exact in binary.
    if np.any(np.abs(base + step * scores - numbers) > 1e-9 * max(1.0, np.abs(numbers).max())):
        fix = "Use sums=0, which needs no grid."
        raise invalid("LabelPrivateRatings", "values", "lie on a grid for sums", got=Described("others"), fix=fix)
    return scores, step, base


def laplace_variance(rate: float) -> float:
    """Return the variance of discrete Laplace noise, Pr[z] ~ e^(-rate |z|): 2 q / (1 - q)^2 with q = e^-rate."""
    q = math.exp(-rate)
    return 2 * q / (1 - q) ** 2


def number_of_groups(n_ratings: int, n_own: int, n_other: int, *, epsilon: float, scores: Int64s) -> int:
    """Return how many groups to divide an id's ratings into: from public counts and the noise alone."""
    deviation = math.sqrt(laplace_variance(epsilon / float(np.ptp(scores))))
    wanted = round(n_ratings / n_own / (_PER_DEVIATION * max(deviation, 1.0)))
    return int(min(max(wanted, 1), _MOST_GROUPS, max(n_other // 2, 1)))


def measure_cells(
    labels: SensitiveLabels,
    own: Int64s,
    other: Int64s,
    n_own: int,
    other_features: Floats,
    *,
    values: Any,
    epsilon: float,
    budget: Budget,
    key: NoiseKey,
) -> CellSums:
    """Measure the sums of one side, with discrete Laplace noise of `epsilon`.

    `own` and `other` are positions of the ids of each rating on this side and on the other; `other_features` are public
    and make the groups. Integer sums of (value - base) are measured, and the base is added back by public counts.
    """
    scores, step, base = integer_scores(values)
    count = number_of_groups(len(own), n_own, len(other_features), epsilon=epsilon, scores=scores)
    groups = group_ids(other_features, count)
    cell = own * count + groups[other]
    query = GroupSums(scores=scores, groups=cell, n_groups=n_own * count)
    measured = measure(labels, query, epsilon=epsilon, rng=key)
    budget.check_spent(measured.guarantee, epsilon=epsilon)
    sizes = np.bincount(cell, minlength=n_own * count)
    variance = 0.0 if math.isinf(epsilon) else step**2 * laplace_variance(epsilon / float(np.ptp(scores)))
    sums = (step * measured.value + base * sizes).reshape(n_own, count)
    return CellSums(sums=sums, groups=groups, noise_variance=variance)


def group_ids(features: Floats, count: int) -> Int64s:
    """Return a group for every id: clusters of its leading public features; the seed is fixed and sees no label."""
    useful = features[:, 1 : 1 + _GROUPING]
    if count == 1 or useful.shape[1] == 0:
        return np.zeros(len(features), np.int64)
    return cluster(np.ascontiguousarray(useful, np.float32), n_clusters=count, random_state=0).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSums(Query):
    """The sum of score[label] over the labels of each group; each label is in one group.

    `LabelSums` with an indicator weight per group says the same with n x groups integers; this needs n.

    >>> query = GroupSums(scores=[-1, 0, 1], groups=[0, 0, 2], n_groups=3)
    >>> query.sensitivity(n_classes=3)
    Sensitivity(l1=2.0, l2=2.0)

    Parameters
    ----------
    scores : integers of shape (K,)
        What each class counts for.
    groups : integers of shape (n,)
        The public group of each label, 0 .. n_groups - 1.
    n_groups : int
        Number of groups, empty ones included.
    """

    scores: Any
    groups: Any
    n_groups: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", LabelSums(scores=self.scores).scores)
        check_integer("GroupSums", "n_groups", self.n_groups, least=1)
        object.__setattr__(self, "groups", check_groups("GroupSums", self.groups, self.n_groups))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """The range of the scores, in both norms: only one sum moves."""
        return LabelSums(scores=self.scores).sensitivity(n_classes=n_classes)

    def check_size(self, n_examples: int) -> None:
        """One group per label, and no sum beyond 64 bits."""
        if n_examples != len(self.groups):
            got = Described(f"{len(self.groups)} for {n_examples} labels")
            raise invalid("GroupSums", "groups", "have one entry per label", got=got)
        LabelSums(scores=self.scores).check_size(n_examples)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Sum in integers, class by class: counts have no rounding."""
        self.check_size(len(codes))
        total = np.zeros(self.n_groups, np.int64)
        for code in range(n_classes):
            total += self.scores[code] * np.bincount(self.groups[codes == code], minlength=self.n_groups)
        return total
