"""What an engine is: it carries work to pieces of a table, and brings back what came of it.

>>> with open_engine("local") as engine:
...     sorted(engine.each(len, ["a", "bc"])), engine.reduce(len, max, ["a", "bc"])
([(0, 1), (1, 2)], 2)
>>> list(prefetch((n * n for n in range(4)), depth=2))
[0, 1, 4, 9]

Design notes. An engine knows nothing of labels, mechanisms or priors. Work is a function of one piece, may run twice or in any
order, and must give the same each time. A key goes beside the piece, never inside the work: engines may store work, never
a key.

On this machine the steps of a pipeline overlap: each runs in a thread of its own (`prefetch`), a few items ahead of the next.
A bounded queue is the whole of the flow control: memory is `depth` items a step. Arrow's readers and writers and the
compiled kernels let other threads run, so reading, randomizing and writing share the cores.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from labeldp.errors import Described, invalid, missing_extra
from labeldp.validate import check_choice

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]


class Engine(abc.ABC):
    """Carries work to items."""

    @abc.abstractmethod
    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield the number and the result of each item, in any order."""

    @abc.abstractmethod
    def reduce(
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

    def reduce(
        self, work: Callable[[Item], Result], join: Callable[[Result, Result], Result], items: Sequence[Item]
    ) -> Result:
        """One after the other; one result and the sum so far are in memory."""
        return functools.reduce(join, (work(item) for item in items))

    def write(self, writer: Any, pieces: Sequence[Any], *, key: Any, progress: Progress | None) -> Iterator[Any]:
        """All pieces through one pipeline, so that it never runs dry between files."""
        yield from writer.write(pieces, key=key, progress=progress)


OWNER = "privatize_table"
#: The names of the engines.
ENGINES = ("local", "dask")


@contextmanager
def open_engine(
    engine: str,
    *,
    client: Any = None,
    scheduler: str | None = None,
    workers: int | None = None,
    insecure: bool = False,
) -> Iterator[Engine]:
    """Give the engine that was asked for, and close what was opened for it.

    `insecure` accepts a cluster that talks in the clear with other machines (`labeldp.engines.dask`).
    """
    check_choice(OWNER, "engine", engine, ENGINES)
    given = [
        name
        for name, value in (
            ("client", client),
            ("scheduler", scheduler),
            ("workers", workers),
            ("insecure", insecure or None),
        )
        if value is not None
    ]
    if engine == "local":
        if given:
            raise invalid(OWNER, given[0], "be left out", got=Described("one"), fix="It is for engine='dask'.")
        yield Here()
        return
    if insecure and client is None and scheduler is None:
        fix = "Workers inside this process cannot be reached by others: it is about a client or a scheduler."
        raise invalid(OWNER, "insecure", "be left out", got=True, fix=fix)
    given = [name for name in given if name != "insecure"]
    if len(given) > 1:
        got = Described(" and ".join(given))
        raise invalid(OWNER, "client, scheduler and workers", "be given one at a time", got=got)
    try:
        from labeldp.engines.dask import open_cluster
    except ImportError as error:
        raise missing_extra("distributed", "dask", "engine='dask'") from error
    cluster = open_cluster(client=client, scheduler=scheduler, workers=workers, insecure=insecure)
    try:
        yield cluster
    finally:
        cluster.close()


_END = object()
#: How often a step that waits for room looks whether anyone still wants its items.
_PATIENCE_SECONDS = 0.1


def prefetch(items: Iterable[Item], *, depth: int) -> Iterator[Item]:
    """Yield the items in order while a thread makes the next `depth` of them; its error is raised here.

    When the reader stops early (an error further on, Ctrl-C), the thread stops at its next item and is waited for. A signal
    may come at any instruction of the reader, so it takes no lock of Python's own: an interrupt between the taking of a
    lock and the block that lets go of it would hold it for good, and the thread with it. Simple queues are safe: one
    brings items, and one takes back the permission to make another.
    """
    ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    room: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(depth):
        room.put(None)
    gone: list[bool] = []
    thread = threading.Thread(target=_fill, args=(items, ready, room, gone), name="labeldp-prefetch", daemon=True)
    try:
        thread.start()
        while True:
            item, error = ready.get()
            room.put(None)
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        gone.append(True)
        if thread.is_alive():  # False too where an interrupt came before it was started
            thread.join()


def _fill(
    items: Iterable[Any],
    ready: queue.SimpleQueue[tuple[Any, BaseException | None]],
    room: queue.SimpleQueue[None],
    gone: list[bool],
) -> None:
    """Put items until there are no more, one fails, or nobody wants them."""
    iterator = iter(items)
    try:
        for item in iterator:
            if not _wait_for_room(room, gone):
                break
            ready.put((item, None))
        else:
            ready.put((_END, None))
    except BaseException as error:  # noqa: BLE001 - handed to the reader, which raises it
        ready.put((None, error))
    finally:
        # A generator holds files and threads of its own: it must be closed in the thread that ran it.
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _wait_for_room(room: queue.SimpleQueue[None], gone: list[bool]) -> bool:
    """Wait until another item may be put; False when the reader has gone."""
    while not gone:
        with contextlib.suppress(queue.Empty):
            room.get(timeout=_PATIENCE_SECONDS)
            return not gone
    return False
