"""What one label set has spent and may spend, as one short value: so that a charge need not read all charges before it.

>>> from labeldp.guarantee import SHOWN_DELTA, Guarantee, format_up
>>> balance = Balance(limit=(2.0, 0.0)).add(Guarantee.pure(0.5)).add(Guarantee.pure(0.5)).add(Guarantee.pure(0.25))
>>> balance.releases, balance.spent.epsilon(), balance.left
(3, 1.25, 0.75)
>>> balance.admits(Guarantee.pure(0.75)), balance.admits(Guarantee.pure(0.76))
(True, False)
>>> Balance.from_text(balance.to_text()) == balance
True

A balance is a function of the rows of its label set, in their order, and of nothing else: `Balance.add` and
`Balance.limited_to` are the only steps, for a charge as for a replay. So a stored balance can be checked by replay, and
its digest, written into each row of the ledger, binds it to the chain (`labeldp.accounting.ledger_file`).

*How long it gets.* Equal losses are counted, so a million equal charges are one line. Different losses are kept apart, up
to `MOST_PARTS` of them; then they are put together by `labeldp.loss.compact`, whose answer is never smaller. At delta = 0
nothing is lost by that: epsilons are added exactly, and rounded up at the end. At delta > 0 more than `MOST_PARTS` different epsilons compose by
their zCDP instead of by convolution, which is never smaller, and at most a quarter larger in the cases of
tests/accounting/test_balance.py at delta <= 1e-6:

>>> many = [Guarantee.pure(0.01 + i / 1e5) for i in range(1000)]
>>> whole = sum_up_all(many).spent
>>> round(whole.epsilon(), 12), round(Guarantee.in_sequence(many).epsilon(), 12), round(whole.epsilon(1e-5), 3)
(14.995, 14.995, 2.083)

Renyi curves and profiles, which have no common short form, are kept however many there are: a ledger of thousands of
different ones is as slow as their composition.

References: Dwork, McSherry, Nissim & Smith 2006 (composition in sequence); Bun & Steinke 2016 (zCDP of a pure loss).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from labeldp.errors import LabelDPError, invalid
from labeldp.guarantee import SHOWN_DELTA, Guarantee, format_up
from labeldp.loss import Then, compact
from labeldp.loss.base import from_number, to_number
from labeldp.loss.compose import split_finite
from labeldp.loss.curves import epsilon_from_rdp
from labeldp.untrusted import parse_json
from labeldp.validate import check_delta, check_epsilon, check_integer

#: Different losses that are kept apart.
MOST_PARTS = 64
#: How far a sum may pass its budget, relatively. A decimal as a double errs by 2^-53: the charges' sum by that much
#: below, the budget by that much above, and the sum is rounded up by 2^-52. So three times 0.1 fits into 0.3, and
#: whatever a person would not call equal does not fit.
ROUNDING = 2.0**-50
OWNER = "Ledger"


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Number of releases, what they cost together, and the budget of the set's own (epsilon at delta), if any.

    `spent` is a guarantee without parts: loss, unit, trust and assumptions of all releases in sequence; None without one.
    """

    releases: int = 0
    spent: Guarantee | None = None
    limit: tuple[float, float] | None = None

    @property
    def left(self) -> float:
        """The epsilon that the budget still admits at its delta, by adding up; inf without a budget."""
        if self.limit is None or math.isinf(self.limit[0]):
            return math.inf
        return self.limit[0] if self.spent is None else max(0.0, self.limit[0] - self.spent.epsilon(self.limit[1]))

    def in_words(self) -> tuple[str, str, str, str, str, str]:
        """Return releases, spent (rounded up), budget, left (rounded down), what is hidden and who is trusted, as text."""
        left = "no limit" if math.isinf(self.left) else format_down(self.left)
        if self.spent is None:
            return f"{self.releases:,}", "0", say_budget(self.limit), left, "", ""
        pure = math.isfinite(self.spent.epsilon())
        delta = (0.0 if pure else SHOWN_DELTA) if self.limit is None else self.limit[1]
        used = format_up(self.spent.epsilon(delta)) + (f" at delta {delta:g}" if delta else "")
        about, trusts = self.spent.unit.sentence, self.spent.trust.words
        return f"{self.releases:,}", used, say_budget(self.limit), left, about, trusts

    def add(self, guarantee: Guarantee) -> Balance:
        """Return the balance after one more release, of the same unit."""
        together = guarantee if self.spent is None else Guarantee.in_sequence([self.spent, guarantee])
        loss = compact(together.loss, most=MOST_PARTS)
        # Of promises about persons, what they are for one label is not added up: it would grow with every release.
        spent = dataclasses.replace(together, loss=loss, name="", parts=(), label_loss=None)
        return dataclasses.replace(self, releases=self.releases + 1, spent=spent)

    def limited_to(self, limit: tuple[float, float] | None) -> Balance:
        """Return the balance under another budget."""
        return dataclasses.replace(self, limit=limit)

    def admits(self, guarantee: Guarantee) -> bool:
        """Whether one more release keeps within the budget; a total that cannot be computed (NaN) does not."""
        if self.limit is None:
            return True
        epsilon, delta = self.limit
        most = epsilon * (1.0 + ROUNDING)
        total = self.add(guarantee).spent
        assert total is not None
        # Any valid bound that is small enough will do; the tightest takes a convolution, so it comes last.
        return _quick_bound(total, delta) <= most or total.epsilon(delta) <= most

    def to_text(self) -> str:
        """Return strict JSON, one text for one balance."""
        limit = None if self.limit is None else [to_number(self.limit[0]), self.limit[1]]
        spent = None if self.spent is None else self.spent.to_json()
        facts = {"releases": self.releases, "spent": spent, "limit": limit}
        return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> Balance:
        """Return what `to_text` wrote; anything else raises `LabelDPError`."""
        try:
            facts = parse_json(text)
            limit, spent = facts["limit"], facts["spent"]
            return cls(
                releases=check_integer(OWNER, "releases", facts["releases"], least=0),
                spent=None if spent is None else Guarantee.from_json(spent),
                limit=None if limit is None else _read_limit(*limit),
            )
        except LabelDPError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            fix = "Restore the ledger from a backup."
            raise invalid(OWNER, "balance", "be one that labeldp wrote", got=type(error).__name__, fix=fix) from error


def _read_limit(epsilon: Any, delta: Any) -> tuple[float, float]:
    return check_epsilon(OWNER, from_number(epsilon)), check_delta(OWNER, delta)


def _quick_bound(total: Guarantee, delta: float) -> float:
    """Return an upper bound on epsilon(delta) that takes no convolution: the sum of epsilons, or by the Renyi curves."""
    loss = total.loss
    if not isinstance(loss, Then):
        return math.inf
    finite, rest = split_finite(loss.items)
    if not rest:
        return finite if delta == 0 else min(finite, _renyi_bound(loss, delta))
    return _renyi_bound(loss, delta)


def _renyi_bound(loss: Then, delta: float) -> float:
    return epsilon_from_rdp(loss.rdp, delta, slack=loss.slack, landmarks=loss.landmarks)


def sum_up_all(guarantees: Iterable[Guarantee]) -> Balance:
    """Return the balance after these releases, from nothing."""
    balance = Balance()
    for guarantee in guarantees:
        balance = balance.add(guarantee)
    return balance


def digest_text(text: str) -> str:
    """Return the SHA-256 by which a row of the ledger names a balance."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def say_budget(limit: tuple[float, float] | None) -> str:
    """Return a budget in words.

    >>> say_budget((2.0, 1e-5)), say_budget(None)
    ('2 at delta 1e-05', 'none was set')
    """
    if limit is None:
        return "none was set"
    return f"{limit[0]:g}" + (f" at delta {limit[1]:g}" if limit[1] else "")


def format_down(value: float) -> str:
    """Return a number in six digits, rounded down from the shortest decimal that names it: what is left is not overstated.

    >>> format_down(0.29999999), format_down(0.3), format_down(math.inf)
    ('0.299999', '0.3', 'inf')
    """
    if math.isinf(value):
        return "inf"
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(Decimal(repr(float(value))))):.6g}"
