"""What the conformance suite examines, and what a check is.

>>> from labeldp import RRTopK
>>> Subject(mechanism=RRTopK(1.0, k=2), n_classes=3).priors.shape
(5, 3)

A `Subject` is a mechanism, the door it is released through, and priors to try. It makes `Trial`s: the same examples in
every layout that a prior may have (per example, by group, one for all). A `Check` is a name, a promise in words, and a
judge that yields faults or nothing:

>>> from labeldp.testing import mechanism_checks
>>> str(mechanism_checks()[0])
'rows_are_distributions'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeldp.arrays import Floats, Int64s
from labeldp.channel import FiniteChannel
from labeldp.errors import LabelDPError
from labeldp.mechanisms import Mechanism, NumericMechanism
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.validate import check_integer, check_probability_rows

#: Called as `labeldp.privatize` is.
Door = Callable[..., Release]
#: The layouts of a prior.
PER_EXAMPLE, BY_GROUP, SHARED, NO_PRIOR = "a prior per example", "a prior per group", "one prior", "no prior"
#: Faults shown in one message; the rest are counted.
MOST_SHOWN = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Examples to release in one call, and the public arguments they are released with."""

    layout: str
    codes: Int64s
    rows: Int64s
    prior: Floats | None
    groups: Int64s | None

    def part(self, low: int, high: int) -> Trial:
        """Return the examples from `low` to `high`, with their rows of the prior and their groups."""
        rows = slice(low, high)
        prior = self.prior[rows] if self.layout == PER_EXAMPLE and self.prior is not None else self.prior
        groups = None if self.groups is None else self.groups[rows]
        return Trial(layout=self.layout, codes=self.codes[rows], rows=self.rows[rows], prior=prior, groups=groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A mechanism under examination.

    Parameters
    ----------
    mechanism : Mechanism
        Its `channel` and `guarantee` are believed only as far as they agree with what is drawn.
    privatize : callable
        Called as `labeldp.privatize` is: (labels, mechanism, *, prior, groups, rng, start) -> Release.
    n_classes : int
        K, unless the mechanism states its own.
    prior : array of shape (K,) or (R, K), optional
        Priors to try. By default those of `default_priors` if the mechanism takes a prior, and none if it refuses one.
    seed : int
        Makes every draw that can be seeded reproducible.
    failure : float
        The probability at most of finding fault with a sound mechanism, over all checks together.
    """

    mechanism: Mechanism
    privatize: Door = privatize
    n_classes: int = 5
    prior: Any = None
    seed: int = 0
    failure: float = 1e-6
    priors: Floats | None = field(init=False)

    def __post_init__(self) -> None:
        stated = getattr(self.mechanism, "n_classes", None)
        size = check_integer("Subject", "n_classes", self.n_classes if stated is None else stated, least=2)
        object.__setattr__(self, "n_classes", size)
        given = self.prior if self.prior is not None else _choose_priors(self.mechanism, size)
        rows = None if given is None else check_probability_rows("Subject", "prior", np.atleast_2d(given))
        object.__setattr__(self, "priors", rows)

    @property
    def n_rows(self) -> int:
        """How many priors there are to try; a mechanism without prior has one way to behave."""
        return 1 if self.priors is None else len(self.priors)

    def trials(self, codes: Int64s, rows: Int64s) -> Iterator[Trial]:
        """Yield the same examples in every layout that a prior may have; rows[i] is the prior of example i."""
        if self.priors is None:
            yield Trial(layout=NO_PRIOR, codes=codes, rows=rows, prior=None, groups=None)
            return
        yield Trial(layout=PER_EXAMPLE, codes=codes, rows=rows, prior=self.priors[rows], groups=None)
        yield Trial(layout=BY_GROUP, codes=codes, rows=rows, prior=self.priors, groups=rows)
        for row in np.unique(rows):
            mine = rows == row
            yield Trial(layout=SHARED, codes=codes[mine], rows=rows[mine], prior=self.priors[row], groups=None)

    def one_of_each(self) -> Iterator[Trial]:
        """Yield one example of every prior and label."""
        rows, codes = np.divmod(np.arange(self.n_rows * self.n_classes), self.n_classes)
        return self.trials(codes, rows)

    def channel(self, trial: Trial) -> FiniteChannel:
        """Return the public channel of a trial, at the positions from 0 on: what the mechanism says without any label."""
        channel = self.mechanism.channel(trial.prior, groups=trial.groups, n_classes=self.n_classes)
        return channel.place(0, len(trial.codes))

    def release(self, trial: Trial, *, rng: Any, start: int = 0) -> Release:
        """Return the trial's examples as released by the subject's door; a mechanism for numbers is given its levels."""
        mechanism = self.mechanism
        if isinstance(mechanism, NumericMechanism):
            labels = SensitiveLabels(mechanism.levels[trial.codes], bounds=mechanism.bounds)
        else:
            labels = SensitiveLabels(trial.codes, n_classes=self.n_classes)
        return self.privatize(labels, self.mechanism, prior=trial.prior, groups=trial.groups, rng=rng, start=start)


def default_priors(n_classes: int) -> Floats:
    """Return priors that tempt a mechanism to err: flat (all tied), steep, tied at the top, tied below, with zeros.

    Ties and zeros matter: a tie-break may look at the label, and a label with no prior mass may be let out.
    """
    label = np.arange(n_classes)
    flat = np.ones(n_classes)
    steep = 0.5**label
    tied_top = np.where(label < max(2, n_classes - 1), 2.0, 1.0)
    tied_below = np.where(label == n_classes - 1, 2.0, 1.0)
    zeros = np.where(label < (n_classes + 1) // 2, 1.0 + label, 0.0)
    rows = np.array([flat, steep, tied_top, tied_below, zeros])
    answer: Floats = rows / rows.sum(axis=1, keepdims=True)
    return answer


def _choose_priors(mechanism: Mechanism, n_classes: int) -> Floats | None:
    """Return priors if the mechanism takes one, and None if it refuses one and works without.

    A mechanism that does neither raises the error with which it refused the prior.
    """
    rows = default_priors(n_classes)
    try:
        mechanism.channel(rows[0], n_classes=n_classes)
    except LabelDPError as refusal:
        try:
            mechanism.channel(None, n_classes=n_classes)
        except LabelDPError:
            raise refusal from None
        return None
    return rows


#: A judge yields one sentence per fault; none is a pass.
Judge = Callable[[Subject], Iterator[str]]


class ConformanceError(AssertionError):
    """A mechanism breaks its word; the message lists every failed check by name. `failed` holds the names."""

    def __init__(self, message: str, *, failed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.failed = failed


@dataclass(frozen=True, kw_only=True)
class Check:
    """One property that every mechanism must have. Call it with a `Subject`: it returns None or raises.

    `name` is that of the judge, `promise` the property in words, and `judge` yields one sentence per fault.
    """

    name: str
    promise: str
    judge: Judge

    def __call__(self, subject: Subject) -> None:
        """Raise `ConformanceError` if the subject does not have the property."""
        faults = self.faults(subject)
        if faults:
            raise ConformanceError(self.report(subject, faults), failed=(self.name,))

    def faults(self, subject: Subject) -> list[str]:
        """Return the faults found; a subject that raises where it should answer is at fault too."""
        try:
            return list(self.judge(subject))
        except Exception as error:  # noqa: BLE001 - whatever a stranger's code raises is a finding, not a crash
            return [f"raised {type(error).__name__}: {error}"]

    def report(self, subject: Subject, faults: list[str]) -> str:
        """Return the check's name, its promise and the first faults."""
        more = [f"... and {len(faults) - MOST_SHOWN} more"] if len(faults) > MOST_SHOWN else []
        lines = [f"{self.name} ({self.promise}), for {subject.mechanism!r}:", *faults[:MOST_SHOWN], *more]
        return "\n    ".join(lines)

    def __str__(self) -> str:
        return self.name
