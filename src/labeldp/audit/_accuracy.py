"""`accuracy_audit`: a mechanism that is private but keeps fewer labels than it claims is caught too.

>>> import numpy as np
>>> found = accuracy_audit(lambda labels: labels * 0, prior=[0.5, 0.5], claimed=0.7, n_draws=10_000, seed=0)
>>> found.rejected, found.upper_bound < 0.55
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp._validate import check_integer, check_probability_rows, check_real
from labeldp.audit._channel import Run
from labeldp.audit._intervals import upper_limit
from labeldp.audit._values import Check, check_confidence


@dataclass(frozen=True, kw_only=True)
class AccuracyAudit:
    """An upper bound on how often a released label is the true one."""

    upper_bound: float
    confidence: float
    claimed: float
    n_draws: int

    @property
    def rejected(self) -> bool:
        """Whether the claimed accuracy is refuted, at this confidence."""
        return self.upper_bound < self.claimed

    def check(self) -> Check:
        """Return the audit as one check."""
        detail = f"accuracy <= {self.upper_bound:.4f}, {self.claimed:.4f} claimed; {self.n_draws:,} draws"
        return Check(name="accuracy", passed=not self.rejected, detail=detail)


def accuracy_audit(
    run: Run, *, prior: Any, claimed: float, n_draws: int = 100_000, confidence: float = 0.95, seed: int | None = None
) -> AccuracyAudit:
    """Draw labels from `prior`, release them, and bound from above how often they stay what they were.

    The number of labels that stay is binomial when examples are randomized independently; the limit is exact.
    """
    owner = "accuracy_audit"
    shares = check_probability_rows(owner, "prior", np.atleast_2d(prior))[0].astype(np.float64)
    size = check_integer(owner, "n_draws", n_draws, least=1)
    sure = check_confidence(owner, confidence)
    labels = np.random.default_rng(seed).choice(len(shares), size, p=shares / shares.sum())
    kept = int((np.asarray(run(labels)) == labels).sum())
    bound = float(upper_limit(kept, size, level=1.0 - sure))
    promised = check_real(owner, "claimed", claimed)
    return AccuracyAudit(upper_bound=bound, confidence=sure, claimed=promised, n_draws=size)
