"""What an engine is: it carries work to pieces of a table, and brings back what came of it.

>>> sorted(Here().each(len, ["a", "bc"]))
[(0, 1), (1, 2)]
>>> Here().reduced(len, max, ["a", "bc"])
2

Design notes. An engine knows nothing of labels. Work is a function of one piece, may run twice or in any order, and must
give the same each time. A key goes beside the piece, never inside the work: engines may store work, never a key.

Steps of a pipeline that overlap: each runs in a thread of its own, a few items ahead of the next.

>>> list(prefetched((n * n for n in range(4)), depth=2))
[0, 1, 4, 9]

Design notes. A bounded queue is the whole of the flow control: memory is `depth` items a step. Arrow's readers and
writers and the compiled kernels let other threads run, so reading, randomizing and writing share the cores.
"""

from __future__ import annotations

import abc
import functools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
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


_END = object()
#: How often a step that waits for room looks whether anyone still wants its items.
_PATIENCE_SECONDS = 0.1


def prefetched(items: Iterable[Item], *, depth: int) -> Iterator[Item]:
    """Yield the items in order while a thread makes the next `depth` of them; its error is raised here.

    When the reader stops early (an error further on), the thread stops at its next item and is waited for.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_fill, args=(items, ready, stopped), name="labeldp-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()


def _fill(items: Iterable[Any], ready: queue.Queue[tuple[Any, BaseException | None]], stopped: threading.Event) -> None:
    """Put items until there are no more, one fails, or nobody wants them."""
    iterator = iter(items)
    try:
        for item in iterator:
            if not _put(ready, (item, None), stopped):
                break
        else:
            _put(ready, (_END, None), stopped)
    except BaseException as error:  # noqa: BLE001 - handed to the reader, which raises it
        _put(ready, (None, error), stopped)
    finally:
        # A generator holds files and threads of its own: it must be closed in the thread that ran it.
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _put(ready: queue.Queue[tuple[Any, BaseException | None]], entry: Any, stopped: threading.Event) -> bool:
    """Wait for room and put an entry; False when the reader has gone."""
    while not stopped.is_set():
        try:
            ready.put(entry, timeout=_PATIENCE_SECONDS)
        except queue.Full:
            continue
        return True
    return False
