"""What an engine is: it carries work to pieces of a table, and brings back what came of it.

>>> sorted(Here().each(len, ["a", "bc"]))
[(0, 1), (1, 2)]
>>> Here().reduced(len, max, ["a", "bc"])
2

Design notes. An engine knows nothing of labels. Work is a function of one piece, may run twice or in any order, and must
give the same each time. A key goes beside the piece, never inside the work: engines may store work, never a key.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]


class Engine(abc.ABC):
    """Carries work to items."""

    @abc.abstractmethod
    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield the number and the result of each item, in any order."""

    @abc.abstractmethod
    def reduced(
        self, work: Callable[[Item], Result], join: Callable[[Result, Result], Result], items: Sequence[Item]
    ) -> Result:
        """Return the results joined; `join` must not depend on order."""

    @abc.abstractmethod
    def write(self, writer: Any, pieces: Sequence[Any], *, key: Any, progress: Progress | None) -> Iterator[Any]:
        """Have a `Writer` draw and write the pieces, and yield what it wrote."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what was opened for the work."""


class Here(Engine):
    """The process itself: pieces one after the other, and the steps of drawing overlapped in threads."""

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """One after the other."""
        for number, item in enumerate(items):
            yield number, work(item)

    def reduced(
        self, work: Callable[[Item], Result], join: Callable[[Result, Result], Result], items: Sequence[Item]
    ) -> Result:
        """One after the other; one result and the sum so far are in memory."""
        return functools.reduce(join, (work(item) for item in items))

    def write(self, writer: Any, pieces: Sequence[Any], *, key: Any, progress: Progress | None) -> Iterator[Any]:
        """All pieces through one pipeline, so that it never runs dry between files."""
        yield from writer.write(pieces, key=key, progress=progress)
