"""What an audit answers with, and the two numbers that every audit rests on: exact confidence limits of a share.

>>> audit = Audit(claims={"epsilon": 1.0}, checks=(Check(name="law", passed=True, detail="fine"),), confidence=0.95)
>>> audit.passed, audit.to_json()["checks"]
(True, [{'name': 'law', 'passed': True, 'detail': 'fine'}])
>>> round(float(lower_limit(9, 10, level=0.05)), 4), round(float(upper_limit(0, 100, level=0.05)), 4)
(0.6058, 0.0295)

An audit is a tuple of checks that passed or failed, with the claims beside the bound. `lower_limit` and `upper_limit`
invert the tails of the binomial distribution, so they hold for every number of trials and every share, not only in the
limit of many.

Reference: Clopper & Pearson 1934.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeldp.arrays import Floats
from labeldp.display import card, percent
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.validate import check_epsilon, check_real

#: Where a guarantee is read when it must be found by trial; a step of 0.05 is as fine as an audit can see.
GRID = np.arange(1, 801) * 0.05
#: What an audit's answer is worth, whatever it is.
WORTH = "a failed check is evidence against the claim; a passed one promises nothing"
#: Whom an audit is for that compared a release with the raw labels: its figures are counts of them, and have no noise.
OWNERS_ALONE = "the owner of the labels alone: it was made from the raw ones, without noise"
#: Told (done, total) while an audit works.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question (`name`), its answer (`passed`), and the figures that the answer rests on (`detail`)."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was claimed and what was found.

    `lower_bound` is an epsilon that the audited thing exceeds or equals with probability `confidence` at least (None:
    nothing was run, only read). A failed check carries that confidence; a passed one promises nothing. `measures` holds
    what was measured beside the checks, as plain numbers by name. `raw_labels` says that raw labels were read for it: then it
    is for their owner, and no report takes it.
    """

    claims: Mapping[str, Any]
    checks: tuple[Check, ...]
    confidence: float
    lower_bound: float | None = None
    measures: Mapping[str, Any] = field(default_factory=dict)
    raw_labels: bool = False

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: claims, checks, lower_bound, confidence, measures, raw_labels, passed."""
        return {
            "claims": dict(self.claims),
            "checks": [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in self.checks],
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "measures": dict(self.measures),
            "raw_labels": self.raw_labels,
            "passed": self.passed,
        }

    def _repr_html_(self) -> str:
        """Return a card for a notebook: what was claimed, the bound, and every check."""
        rows = [(f"claimed {name.replace('_', ' ')}", str(value)) for name, value in self.claims.items()]
        if self.lower_bound is not None:
            rows.append(("lower bound", say_bound(self.lower_bound, self.confidence)))
        return audit_card("Audit", self.checks, rows=[*([("for", OWNERS_ALONE)] if self.raw_labels else []), *rows])


def audit_card(title: str, checks: Sequence[Check], *, rows: Iterable[tuple[str, str]] = ()) -> str:
    """Return the card of any audit: failed checks first, and what a passed one is worth."""
    failed = sum(not check.passed for check in checks)
    said = "Every check passed." if checks else "Nothing was checked."
    verdict = f"FAILED: {failed:,} of {len(checks):,} checks." if failed else said
    ordered = sorted(checks, key=lambda check: check.passed)
    return card(
        title,
        rows=[*([] if failed else [("found", verdict)]), ("worth", WORTH), *rows],
        warning=verdict if failed else "",
        columns=("check", "result", "what it rests on"),
        table=[(check.name, "passed" if check.passed else "FAILED", check.detail) for check in ordered],
    )


def say_bound(bound: float, confidence: float) -> str:
    """Return a lower bound on epsilon in words."""
    return f"epsilon is {bound:.4g} or more, with confidence {percent(confidence)}"


def check_confidence(owner: str, confidence: Any) -> float:
    """Return a confidence as a float in (0, 1); refuse anything else in the name of `owner`."""
    value = check_real(owner, "confidence", confidence)
    if not 0 < value < 1:
        raise invalid(owner, "confidence", "be in (0, 1)", got=confidence, fix="0.95 is usual.")
    return value


def claimed_epsilon(owner: str, claimed: Any, delta: float) -> float | None:
    """Return the epsilon that is claimed for one label replaced, at this delta.

    A number is taken as it is. A guarantee is asked; one whose unit is a record added or removed is converted first,
    since a label replaced is two of these steps. None stays None: nothing is claimed.
    """
    if claimed is None:
        return None
    if not isinstance(claimed, Guarantee):
        return check_epsilon(owner, claimed, name="claimed")
    return _epsilon_of_two_records(claimed, delta) if claimed.unit is Unit.RECORD_ADD_REMOVE else claimed.epsilon(delta)


def _epsilon_of_two_records(claimed: Guarantee, delta: float) -> float:
    """Return what a guarantee for a record added or removed says when a label is replaced: one removed, one added.

    With D, D - r and D' = D - r + r': P_D <= E P_(D-r) + d <= E (E P_D' + d) + d, so (2 epsilon, (1 + E) d) for every
    (epsilon, d) that the guarantee has. The least such epsilon on a grid is a claim too.
    """
    pure = 2.0 * claimed.epsilon()
    grid = GRID[[(1.0 + math.exp(one)) * claimed.delta(float(one)) <= delta for one in GRID]] if delta > 0 else GRID[:0]
    return min(pure, 2.0 * float(grid[0])) if len(grid) else pure


def bound_check(name: str, bound: float, claimed: float | None, *, detail: str) -> Check:
    """Return the check that a lower bound on epsilon does not exceed the claim; without a claim it passes."""
    says = "nothing claimed" if claimed is None else f"{claimed:.6g} claimed"
    passed = claimed is None or bound <= claimed
    return Check(name=name, passed=passed, detail=f"epsilon >= {bound:.4g}, {says}; {detail}")


def lower_limit(successes: Any, trials: Any, *, level: float) -> Floats:
    """Return the largest p with Pr[Binomial(trials, p) >= successes] <= level; 0 where nothing succeeded.

    The true share is below it with probability `level` at most, whatever it is. Pr[X >= c] = I_p(c, n - c + 1), the
    incomplete beta function, so the limit is its inverse at `level`.
    """
    from scipy.special import betaincinv

    c, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    limit = betaincinv(np.maximum(c, 1.0), np.maximum(n - c + 1.0, 1.0), level)
    answer: Floats = np.where(c >= 1, limit, 0.0)
    return answer


def upper_limit(successes: Any, trials: Any, *, level: float) -> Floats:
    """Return the least p with Pr[Binomial(trials, p) <= successes] <= level; 1 where nothing failed.

    The true share is above it with probability `level` at most: the lower limit of the failures, seen from 1.
    """
    n = np.asarray(trials, np.float64)
    answer: Floats = 1.0 - lower_limit(n - np.asarray(successes, np.float64), n, level=level)
    return answer
