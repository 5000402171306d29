"""What a check is: a name, a promise in words, and a judge that complains or is silent.

>>> from labeldp.testing import mechanism_checks
>>> str(mechanism_checks()[0])
'rows_are_distributions'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labeldp.testing._subject import Subject

#: A judge yields one sentence per fault; none is a pass.
Judge = Callable[[Subject], Iterator[str]]
#: Faults shown in one message; the rest are counted.
MOST_SHOWN = 5


class ConformanceError(AssertionError):
    """A mechanism breaks its word; the message lists every failed check by name. `failed` holds the names."""

    def __init__(self, message: str, *, failed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.failed = failed


@dataclass(frozen=True, kw_only=True)
class Check:
    """One property that every mechanism must have. Call it with a `Subject`: it returns None or raises."""

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
