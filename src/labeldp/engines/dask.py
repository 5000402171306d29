"""The engine of many machines: pieces of a table as tasks of dask.distributed, on any cluster that a `Client` can reach.

Design notes. A key travels in the arguments of a task, over the cluster's own channel (TLS if it has it), and nowhere else:
not in the work, which is stored as a result; not in a task's name, which dashboards and logs show; not in a repr. Work is
stored once as the result of a task and not scattered: what is scattered dies with its worker, a result is made again.
Failures come back as values, so that the worker is named and its log has nothing to print.

Without a client or a scheduler's address, `start_cluster` starts a scheduler in this process and a few worker processes, gone
when the work is over. A worker has one thread: drawing has threads of its own, and a process may be killed without taking
others along. There is no dashboard, and workers' files are in a temporary folder: nothing of a job outlives it. A piece may
lose its worker ten times before it is given up, since on one machine whoever kills workers (for memory, say) kills many.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import dask
import pyarrow as pa
from distributed import Client, LocalCluster, as_completed, get_worker
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

import labeldp
from labeldp.engines.engine import Engine, Progress
from labeldp.engines.job import CarriedKey
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.random import thread_count
from labeldp.validate import check_integer

Item = TypeVar("Item")
Result = TypeVar("Result")

OWNER = "privatize_table"
#: Results joined by one task of a reduction.
FAN_IN = 8
#: Tasks that wait at the scheduler: enough for a thousand workers, and a billion rows are 240.
MOST_WAITING = 4096
#: How long a cluster may take to have its first worker.
WORKER_SECONDS = 60
#: What must be the same here and there: it decides bytes, or what a pickle means.
PACKAGES = ("numpy", "pyarrow", "scikit-learn", "distributed")


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """An error of a worker, as a value."""

    kind: type[LabelDPError]
    message: str


class Cluster(Engine):
    """A client of a cluster, and what to do when the work is over."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._close: Callable[[], None] = lambda: None
        with _translate_errors():
            _check_workers(client)

    def close_with(self, close: Callable[[], None]) -> Cluster:
        """Return this cluster, which will call `close` when the work is over."""
        self._close = close
        return self

    def close(self) -> None:
        """Close what was opened for this work; a client of the user's stays."""
        self._close()

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Submit a task for each item and yield results in the order in which they end."""
        with _translate_errors(), self._shared(work) as (shared, name):
            numbers = iter(range(len(items)))
            waiting: Any = as_completed(loop=self._client.loop)  # type: ignore[no-untyped-call]

            def submit() -> None:
                number = next(numbers, None)
                if number is not None:
                    waiting.add(self._client.submit(_run, shared, items[number], key=f"{name}-{number}", pure=False))

            for _ in range(MOST_WAITING):
                submit()
            for future in waiting:
                number, result = int(future.key.rpartition("-")[2]), _result(future)
                future.release()
                submit()
                yield number, result

    def reduce(
        self, work: Callable[[Item], Result], join: Callable[[Result, Result], Result], items: Sequence[Item]
    ) -> Result:
        """Join results as a tree: they stay where they are made, and are joined eight at a time."""
        with _translate_errors(), self._shared(work) as (shared, name):
            level = [
                self._client.submit(_run, shared, item, key=f"{name}-{number}", pure=False)
                for number, item in enumerate(items)
            ]
            depth = 0
            while len(level) > 1:
                depth += 1
                level = [
                    self._client.submit(
                        _join_results, join, level[at : at + FAN_IN], key=f"{name}-join-{depth}-{at}", pure=False
                    )
                    for at in range(0, len(level), FAN_IN)
                ]
            result: Result = _result(level[0])
            return result

    def write(self, writer: Any, pieces: Sequence[Any], *, key: Any, progress: Progress | None) -> Iterator[Any]:
        """Submit a task for each piece; the key goes beside the piece, never inside the writer."""
        carried = CarriedKey.of(key)
        done, total = 0, sum(piece.count for piece in pieces)
        items = [(piece, carried) for piece in pieces]
        for _, written in self.each(functools.partial(_write, writer), items):
            done += written.rows
            if progress is not None:
                progress(done, total)
            yield written

    @contextmanager
    def _shared(self, work: Any) -> Iterator[tuple[Any, str]]:
        """Give the work as a result on the cluster, and a name for its tasks; both are gone at the end."""
        name = f"labeldp-{secrets.token_hex(8)}"
        packed = cloudpickle.dumps((work, _versions()))
        shared: Any = self._client.submit(_unpack, packed, key=f"{name}-work", pure=False)
        try:
            yield shared, name
        finally:
            shared.release()


def open_cluster(*, client: Any, scheduler: str | None, workers: int | None) -> Cluster:
    """Return the user's client, a client of the scheduler at an address, or a cluster of this machine's own."""
    if client is not None:
        if not isinstance(client, Client):
            raise invalid(OWNER, "client", "be a distributed.Client", got=type(client).__name__)
        return Cluster(client)
    if scheduler is not None:
        return _connect(scheduler)

    return start_cluster(workers)


def _connect(scheduler: str) -> Cluster:
    try:
        client: Any = Client(scheduler, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        fix = "Start one with `dask scheduler`, or leave it out for a cluster on this machine."
        got = Described(f"{scheduler} ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
        raise invalid(OWNER, "scheduler", "be the address of a scheduler that answers", got=got, fix=fix) from error
    try:
        return Cluster(client).close_with(client.close)
    except BaseException:
        client.close()
        raise


# ---------------------------------------------------------------------------------------------------- on a worker


def _unpack(packed: bytes) -> tuple[Any, dict[str, str]]:
    work: tuple[Any, dict[str, str]] = cloudpickle.loads(packed)
    return work


def _run(shared: tuple[Callable[[Any], Any], dict[str, str]], item: Any) -> Any:
    """Do the work on one item; what goes wrong comes back as a value that names this worker."""
    work, expected = shared
    try:
        _check_versions(expected, _versions(), where=_here())
        return work(item)
    except LabelDPError as error:
        return _Failed(kind=type(error), message=str(error))
    except (OSError, pa.ArrowException) as error:
        what = getattr(error, "strerror", None) or type(error).__name__  # Arrow's own words may quote a row
        return _Failed(kind=LabelDPError, message=f"{OWNER}: could not write on worker {_here()}: {what}.")


def _join_results(join: Callable[[Any, Any], Any], results: Sequence[Any]) -> Any:
    failed = next((result for result in results if isinstance(result, _Failed)), None)
    return failed if failed is not None else functools.reduce(join, results)


def _write(writer: Any, item: tuple[Any, CarriedKey]) -> Any:
    piece, carried = item
    (written,) = writer.write([piece], key=carried.key())
    return written


def _here() -> str:
    return str(get_worker().address)


def _versions() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "labeldp": labeldp.__version__}
    return {**found, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# ------------------------------------------------------------------------------------------------- on this side


def _check_workers(client: Client) -> None:
    """Refuse a cluster without workers, and workers of other versions than ours."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        fix = "Start some with `dask worker ADDRESS`."
        raise invalid(
            OWNER, "scheduler", "have workers", got=Described(f"none for {WORKER_SECONDS} s"), fix=fix
        ) from error
    for where, found in client.run(_versions, on_error="return").items():
        if isinstance(found, BaseException):
            got = Described(f"{type(found).__name__}: {found}")
            raise invalid(OWNER, f"worker {where}", "have labeldp installed", got=got, fix="Install the same version.")
        _check_versions(_versions(), found, where=where)


def _check_versions(ours: dict[str, str], theirs: dict[str, str], *, where: str) -> None:
    other = next((name for name in ours if ours[name] != theirs.get(name)), None)
    if other is not None:
        got = Described(f"{other} {theirs.get(other)}")
        fix = "Install the same versions on client and workers: other versions may write other bytes."
        raise invalid(OWNER, f"worker {where}", f"have {other} {ours[other]}", got=got, fix=fix)


def _result(future: Any) -> Any:
    result = future.result()
    if isinstance(result, _Failed):
        raise result.kind(result.message)
    return result


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn what a cluster raises into our one shape."""
    try:
        yield
    except LabelDPError:
        raise
    except KilledWorker as error:
        where = getattr(error.last_worker, "address", error.last_worker)
        raise LabelDPError(
            f"{OWNER}: workers died again and again on one piece, the last on {where}. Give them more memory, or look at its log."
        ) from error
    except (FutureCancelledError, OSError, TimeoutError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LabelDPError(f"{OWNER}: the scheduler is gone, or out of reach ({what}). Start it again.") from error
    except Exception as error:  # noqa: BLE001 - all that a worker may raise
        # What it says may quote a row, and would be printed by a chain of exceptions too.
        raise LabelDPError(f"{OWNER}: a worker failed: {type(error).__name__}. See its log.") from None


SETTINGS = {
    "distributed.scheduler.allowed-failures": 10,
    # No pages at all: distributed serves some even without a dashboard.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


def start_cluster(workers: int | None) -> Cluster:
    """Return a cluster of so many workers; by default one a core."""
    count = thread_count() if workers is None else check_integer(OWNER, "workers", workers, least=1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(SETTINGS))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="labeldp-dask-"))
        cluster = stack.enter_context(
            LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                local_directory=folder,
                silence_logs=logging.CRITICAL,
            )
        )
        client = stack.enter_context(Client(cluster, set_as_default=False))  # type: ignore[no-untyped-call]
        opened = Cluster(client)
        return opened.close_with(stack.pop_all().close)
