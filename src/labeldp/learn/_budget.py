"""How a budget is divided between a prior and the response that it informs: one rule for every learner.

The prior's promise and the response compose in sequence on the same labels. The response gets what is left, rounded so
that together they never exceed the budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from labeldp.accounting import what_is_left
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.priors import Prior, PriorTable
from labeldp.release import SensitiveLabels
from labeldp.release._labels import CLASSES_READ_OFF


class Division(NamedTuple):
    """What the prior spends, what the labels' response gets, and the promise of the whole."""

    spent: float
    response: float
    promise: Guarantee


def divided(owner: str, source: Prior, budget: float, labels: SensitiveLabels) -> Division:
    """Divide the budget, or say that the prior leaves nothing of it."""
    before = source.promise(budget, n_examples=len(labels), n_classes=labels.n_classes)
    spent = before.epsilon()
    if spent > 0 and not spent < budget:
        fix = "Give the learner a larger epsilon or the prior a smaller one."
        raise invalid(owner, "epsilon", f"exceed the prior's cost {spent:g}", got=budget, fix=fix)
    if labels.classes_read_off:
        before = before.assuming(CLASSES_READ_OFF)
    response = what_is_left(budget, after=spent)
    return Division(spent, response, _promised(before, response))


def whole(owner: str, source: Prior, budget: float, labels: SensitiveLabels) -> Division:
    """Give the prior what it asks for, up to the whole budget: no label is released, and nothing is left for one."""
    before = source.promise(budget, n_examples=len(labels), n_classes=labels.n_classes)
    spent = before.epsilon()
    if not spent <= budget:
        raise invalid(owner, "epsilon", f"cover the prior's cost {spent:g}", got=budget)
    if labels.classes_read_off:
        before = before.assuming(CLASSES_READ_OFF)
    return Division(spent, 0.0, before.named("prior") if spent > 0 else before)


def within(owner: str, division: Division, table: PriorTable) -> PriorTable:
    """Refuse beliefs that cost more than was planned and charged for them."""
    if table.guarantee is not None and not table.guarantee.epsilon() <= division.spent:
        raise PrivacyError(
            f"{owner}: the prior said that it costs epsilon = {division.spent!r} and spent "
            f"{table.guarantee.epsilon()!r}. No label was released. Fix its `cost`."
        )
    return table


def _promised(before: Guarantee, response: float) -> Guarantee:
    """Return the prior's promise and then the response's; a prior that cost nothing leaves its assumptions alone."""
    answer = Guarantee.pure(response).named("response")
    if before.epsilon() > 0:
        return before.named("prior").then(answer)
    return replace(answer, assumptions=before.assumptions)
