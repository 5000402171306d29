"""How the budget of a ratings table is divided: private sums, and responses in stages.

>>> plan = RatingPlan.of(1.0, sums=None)
>>> plan.by_user, plan.by_item, plan.response, plan.promise.trust.words
(0.6, 0.4, 0.0, 'a curator')
>>> RatingPlan.of(2.0, sums=None).response
2.0

Sums and responses speak of the same labels and compose in sequence. Stages are disjoint and compose in parallel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from labeldp._validate import check_epsilon, check_real
from labeldp.accounting import what_is_left
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee, Trust

#: Up to this epsilon, sums alone do better than responses alone (MovieLens, shared/RECIPES.md).
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
    """What each part may spend, and the promise of the whole."""

    by_user: float
    by_item: float
    response: float
    promise: Guarantee

    @classmethod
    def of(cls, epsilon: float, *, sums: float | None) -> RatingPlan:
        """Divide epsilon; `sums` is the share of the sums, by default all of it up to epsilon 1 and none above."""
        budget = check_epsilon("LabelPrivateRatings", epsilon)
        if budget == 0:
            raise invalid("LabelPrivateRatings", "epsilon", "be > 0", got=epsilon, fix="Nothing can be learned at 0.")
        share = (
            (1.0 if budget <= SUMS_UP_TO else 0.0) if sums is None else check_real("LabelPrivateRatings", "sums", sums)
        )
        if not 0 <= share <= 1 or (math.isinf(budget) and share > 0):
            raise invalid("LabelPrivateRatings", "sums", "be a share in [0, 1], and 0 without privacy", got=sums)
        spent = budget * share if share > 0 else 0.0
        by_user = spent * USERS_SHARE
        by_item = what_is_left(spent, after=by_user)
        response = 0.0 if share == 1 else what_is_left(budget, after=spent)
        return cls(by_user=by_user, by_item=by_item, response=response, promise=_promise(by_user, by_item, response))


def _promise(by_user: float, by_item: float, response: float) -> Guarantee:
    parts = []
    if by_user > 0:
        parts.append(Guarantee.pure(by_user, trust=Trust.CURATOR).named("sums by user"))
        parts.append(Guarantee.pure(by_item, trust=Trust.CURATOR).named("sums by item"))
    if response > 0:
        parts.append(Guarantee.pure(response).named("responses"))
    return Guarantee.in_sequence(parts)


def default_factors(epsilon: float) -> int:
    """Return how many factors a budget can feed."""
    return round(float(np.interp(epsilon, _EPSILONS, _FACTORS)))
