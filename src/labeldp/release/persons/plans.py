r"""How a person's epsilon is spent on her rows, what her answers tell, and what they cost her together.

>>> from labeldp.mechanisms import InformativeResponse
>>> told = information_of(InformativeResponse(1.0, n_classes=2))
>>> [best_answers(epsilon, told, most=40) for epsilon in (1.0, 4.0)]  # answers at epsilon / c each
[1, 2]

**What an answer can tell.** Her labels (y_1, .., y_m) are one label with K^m values. Whatever she answers at epsilon about it, its
information is at most x - 1 - ln x, x = epsilon / (1 - e^-epsilon), however many rows she has (`most_information`). One answer about
one label has most of that already. Information grows with the square of a small epsilon, so epsilon / m for each of m rows
gives about 1/m of it. So the default asks one row of each person, and more where c answers at epsilon / c are computed to tell
more than one at epsilon (`best_answers`).

| way | rows that are asked | each at | her epsilon |
|---|---|---|---|
| "one" | c = min(c*, her m rows): c* maximises c I(epsilon / c) | epsilon / c | epsilon |
| "common" | min(c, m), with one c for everybody: that of most information in all | epsilon / c | min(c, m) epsilon / c |
| "shares" | all | epsilon / m | epsilon |
| "group" | all | epsilon / (the most rows of anyone) | m epsilon / most rows |

Where c* is 1, which it is below an epsilon of 3.7 with two classes and of more with more (docs/persons.md), "one" and "common" are the same. Tables are answered at one epsilon, by
"common" or "group". Shares are the largest floats whose exact sum keeps within epsilon (`equal_parts`).

**Guarantee.** The answers of a person's rows are drawn independently given her labels. Let x_i be the channel of row i, with exact
epsilon e_i. For two vectors of labels y, z of hers and any answers o, Pr[o | y] / Pr[o | z] = prod_i x_i[y_i, o_i] / x_i[z_i, o_i] <=
exp(sum_i e_i) over her answered rows; rows without an answer contribute nothing. Other persons' answers have the same law. So the
release is pure epsilon-DP per person with epsilon the largest sum over persons (`person_epsilon`, in exact rationals).
The bound is tight: choose the worst pair of labels and the worst answer in every row.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Float64s, Int64s, Ints
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.loss import Pure
from labeldp.loss.rounding import fraction_up
from labeldp.mechanisms import MeasuringMechanism, Mechanism, answer_worth
from labeldp.release.budget import equal_parts
from labeldp.release.persons.owners import OWNER
from labeldp.validate import check_integer

#: The ways in which a person's epsilon is spent on her rows.
WAYS = ONE, COMMON, SHARES, GROUP = "one", "common", "shares", "group"
_WORDS = {
    ONE: "one answer, or the few that tell more",
    COMMON: "so many answers at most",
    SHARES: "equal shares",
    GROUP: "by the most rows of anyone",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerPlan:
    """Which rows are answered, and with which epsilon: a function of public things.

    Fields
    ------
    way : str
        "one", "common", "shares" or "group".
    epsilon : float
        What a person may spend in all.
    n_rows, n_persons : int
        Of all rows, answered or not.
    rows : int64 of shape (A,)
        The positions of the answered rows among all, rising.
    owners : int64 of shape (A,)
        The person of each answered row; her number says only which rows are hers.
    epsilons : tuple of floats
        The different epsilons of an answer, falling.
    share : uint16 of shape (A,)
        Which of them each answered row has.
    """

    way: str
    epsilon: float
    n_rows: int
    n_persons: int
    rows: Int64s = field(repr=False)
    owners: Int64s = field(repr=False)
    epsilons: tuple[float, ...]
    share: Ints = field(repr=False)

    @property
    def label_epsilon(self) -> float:
        """The most that is spent on one label."""
        return max(self.epsilons)

    def parts(self) -> list[tuple[float, Int64s]]:
        """Return each epsilon with the positions of the rows that are answered at it."""
        if len(self.epsilons) == 1:
            return [(self.epsilons[0], self.rows)]
        return [(epsilon, self.rows[self.share == place]) for place, epsilon in enumerate(self.epsilons)]

    @cached_property
    def _most_answers(self) -> int:
        """The most answers of one person."""
        if len(self.owners) and bool(
            (self.owners[1:] > self.owners[:-1]).all()
        ):  # another person in each row, as mostly
            return 1
        return int(np.bincount(self.owners).max(initial=0))

    def person_epsilon(self, actual: Sequence[float] | None = None) -> float:
        """Return the largest sum of epsilons over one person's answered rows: exact, and then rounded up to a float.

        `actual` are the epsilons that the channels really have, in the place of those that were planned.
        """
        each = list(self.epsilons if actual is None else actual)
        if any(math.isinf(one) for one in each) and len(self.rows):
            return math.inf
        exact = [Fraction(one) for one in each]
        if len(each) == 1:  # as it nearly always is: her number of answers, times their epsilon
            return fraction_up(exact[0] * self._most_answers)
        pairs = self.owners * np.int64(len(each)) + self.share.astype(np.int64)
        found, counts = np.unique(pairs, return_counts=True)
        owners, shares = found // len(each), found % len(each)
        worst = Fraction(0)
        alone = np.ones(len(found), np.bool_)
        if len(found) > 1:
            same = owners[1:] == owners[:-1]
            alone[1:] &= ~same
            alone[:-1] &= ~same
        # Whoever has one epsilon in all her rows is one of few cases; the others are added up one by one.
        for share in range(len(each)):
            most = int(counts[alone & (shares == share)].max(initial=0))
            worst = max(worst, exact[share] * most)
        rest = np.flatnonzero(~alone)
        total, last = Fraction(0), -1
        for place in rest.tolist():
            total = (total if owners[place] == last else Fraction(0)) + exact[shares[place]] * int(counts[place])
            last = owners[place]
            worst = max(worst, total)
        return fraction_up(worst)

    def information(self, information: Callable[[float], float]) -> float:
        """Return the mean over persons of the nats that her answers have, added up over her rows.

        `information` gives the nats of one answer at an epsilon (`information_of`).
        """
        counts = np.bincount(self.share, minlength=len(self.epsilons))
        total = math.fsum(int(count) * information(one) for one, count in zip(self.epsilons, counts, strict=True))
        return total / max(1, self.n_persons)

    def promise_for(self, promise: Guarantee) -> Guarantee:
        """Return the plan's promise about a person, with the trust and assumptions of a mechanism's promise about a label.

        The door compares the channels with it. Refused for a plan that does not keep its own epsilon.
        """
        spent = self.person_epsilon()
        if not spent <= self.epsilon:
            raise PrivacyError(f"persons: a plan of epsilon {spent!r} for a person does not keep {self.epsilon!r}.")
        loss, label = Pure(worst=self.epsilon), Pure(worst=self.label_epsilon)
        return replace(promise, loss=loss, unit=Unit.PERSON, label_loss=label)

    def describe(self, mechanism: str) -> str:
        """Return what was asked, in words: the mechanism, and how many rows of how many persons."""
        return (
            f"{mechanism} for each of {self.n_persons:,} persons ({_WORDS[self.way]}: {len(self.rows):,} of "
            f"{self.n_rows:,} rows answered)"
        )

    @property
    def digest(self) -> str:
        """A SHA-256 of which rows are answered and how: part of what a job is."""
        facts = repr((self.way, self.epsilon, self.n_rows, self.epsilons)).encode()
        parts = (self.rows.astype("<i8"), self.share.astype("<u2"))
        return hashlib.sha256(b"\n".join([facts, *(part.tobytes() for part in parts)])).hexdigest()


def check_person_mechanism(mechanism: Mechanism) -> float:
    """Return the epsilon of a mechanism that can answer for persons; refuse one whose promise does not add up over rows."""
    promise = mechanism.guarantee
    epsilon = promise.epsilon()
    if isinstance(mechanism, MeasuringMechanism) or (math.isinf(epsilon) and promise.delta(0.0) < 1.0):
        got = Described(repr(mechanism))
        fix = "Use InformativeResponse, RandomizedResponse, RRWithPrior, UnbiasedResponse, ..., whose answers are of one label each."
        raise invalid(
            "privatize", "mechanism", "be pure and ask labels alone where persons are given", got=got, fix=fix
        )
    return epsilon


def information_of(
    mechanism: Mechanism, *, n_classes: int | None = None, prior: Any = None
) -> Callable[[float], float]:
    """Return the function that gives the nats of one answer of this mechanism at an epsilon, remembered.

    Labels follow the mean of the prior's rows, or are equally likely. It is the exact mutual information of label and answer
    under the channel's own matrix (`labeldp.mechanisms.answer_worth`).
    """
    law = _mean_prior(mechanism, n_classes, prior)
    known: dict[float, float] = {}

    def information(epsilon: float) -> float:
        if epsilon not in known:
            worth = answer_worth(mechanism.with_epsilon(epsilon), law, informed=prior is not None, rows=4)
            known[epsilon] = worth.information
        return known[epsilon]

    return information


def _mean_prior(mechanism: Mechanism, n_classes: int | None, prior: Any) -> Float64s:
    """Return one law of labels: the mean of the prior's rows, or the uniform one."""
    if isinstance(prior, np.ndarray) or (isinstance(prior, (list, tuple)) and np.ndim(prior) in (1, 2)):
        rows = np.atleast_2d(np.asarray(prior, np.float64))
        step = max(1, len(rows) // 4096)
        mean = rows[::step].mean(axis=0)
        law: Float64s = mean / mean.sum()
        return law
    size = n_classes
    if mechanism.takes_numbers:
        size = len(mechanism.levels)  # type: ignore[attr-defined]  # whoever takes numbers has levels
    elif size is None:
        size = getattr(mechanism, "n_classes", None)
    if size is None:
        fix = "Give the mechanism its n_classes, or a prior."
        raise invalid(OWNER, "n_classes", "be known", got=None, fix=fix)
    return np.full(size, 1.0 / size)


def best_answers(epsilon: float, information: Callable[[float], float], *, most: int) -> int:
    """Return the number c of answers, at epsilon / c each, that tell most: c I(epsilon / c), at most `most`.

    I(e) / e, the information per unit of epsilon, rises from 0 and falls again once an answer tells nearly all there is to
    tell; so c I(epsilon / c) rises and then falls, and the first c after which it falls is the best. Infinite epsilon
    asks everything, and zero asks one.

    >>> from labeldp.mechanisms import InformativeResponse
    >>> [best_answers(e, information_of(InformativeResponse(1.0, n_classes=2)), most=40) for e in (0.5, 2.0, 4.0, 12.0)]
    [1, 1, 2, 5]
    """
    limit = check_integer(OWNER, "most", most, least=0)
    if math.isinf(epsilon):
        return max(1, limit)
    best, count = information(epsilon), 1
    while count < limit:
        told = (count + 1) * information(equal_parts(epsilon, count + 1))
        if not told > best * (1 + 1e-9):  # sums in floats: a gain below that is none
            break
        best, count = told, count + 1
    return count


def best_common(epsilon: float, information: Callable[[float], float], counts: Any, *, most: int) -> int:
    """Return the c, at most `most`, for which everybody's answers tell most at one epsilon: sum_i min(c, m_i) I(epsilon / c).

    Beyond c* (`best_answers`) c I(epsilon / c) falls, and min(c, m) / c does not rise: `most` need be no larger than that.
    """
    if math.isinf(epsilon):
        return most
    rows = np.asarray(counts, np.int64)
    told = [int(np.minimum(rows, c).sum()) * information(equal_parts(epsilon, c)) for c in range(1, most + 1)]
    return int(np.argmax(told)) + 1
