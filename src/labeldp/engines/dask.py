"""The engine of many machines: pieces of a table as tasks of dask.distributed, on any cluster that a `Client` can reach.

Design notes. A key travels in the arguments of a task, over the cluster's own channel (TLS if it has it), and nowhere else:
not in the work, which is stored as a result; not in a task's name, which dashboards and logs show; not in a repr. Work is
stored once as the result of a task and not scattered: what is scattered dies with its worker, a result is made again. A
worker whose memory is short writes results to its disk, so work with a key in it is refused (`_pack`), whoever made it.
Failures come back as values, so that the worker is named and its log has nothing to print.

**Who may reach a cluster.** A scheduler and its workers run what they are sent. Over plain TCP they ask nobody for a name: any
user of the machine, on loopback too, and any host that reaches the port, runs code as the owner of the cluster, and reads
raw labels and the key on their way to a worker. So:

- without a client or an address, `start_cluster` has scheduler and workers as threads of this process, which talk through
  its memory. No port is open. The compiled loops and Arrow let other threads run, so threads are as fast as processes, and
  they start at once;
- a scheduler at an address, or a client, must talk TLS (`tls://`, certificates from dask's configuration). Plain addresses
  of other machines, of the scheduler or of any worker, are refused, and those of loopback draw an
  `InsecureClusterWarning`; `insecure=True` accepts both.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import ipaddress
import logging
import platform
import secrets
import shutil
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import cloudpickle  # type: ignore[import-untyped]
import dask
import pyarrow as pa
from distributed import Client, LocalCluster, as_completed, get_worker
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker
from tornado.ioloop import IOLoop

import labeldp
from labeldp.accounting import RowKey
from labeldp.engines.engine import Engine, Progress
from labeldp.engines.job import CarriedKey
from labeldp.errors import Described, InsecureClusterWarning, LabelDPError, invalid
from labeldp.random import thread_count
from labeldp.release.unfinished import find_leftovers, hidden_name, hold, make_private, remove_leftover
from labeldp.validate import check_integer

Item = TypeVar("Item")
Result = TypeVar("Result")

OWNER = "privatize_table"
#: Results joined by one task of a reduction.
FAN_IN = 8
#: Tasks that wait at the scheduler: enough for a thousand workers, and a billion rows are 240.
MOST_WAITING = 4096
#: The name of clusters' folders among temporary files.
SCRATCH = "labeldp-dask"
#: How long a scheduler may take to answer, and a cluster to have its first worker.
SCHEDULER_SECONDS, WORKER_SECONDS = 10, 60
#: What must be the same here and there: it decides bytes, or what a pickle means.
PACKAGES = ("numpy", "pyarrow", "scikit-learn", "distributed")


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """An error of a worker, as a value."""

    kind: type[LabelDPError]
    message: str


class Cluster(Engine):
    """A client of a cluster, and what to do when the work is over."""

    def __init__(self, client: Client, *, insecure: bool = False) -> None:
        self._client = client
        self._close: Callable[[], None] = lambda: None
        address = getattr(client.scheduler, "address", None)
        check_addresses([] if address is None else [str(address)], insecure=insecure)
        with _translate_errors():
            workers = _check_workers(client)
        check_addresses(workers, insecure=insecure)

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
        shared: Any = self._client.submit(_unpack, _pack((work, _versions())), key=f"{name}-work", pure=False)
        try:
            yield shared, name
        finally:
            shared.release()


class _WorkPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles work that will be stored, and stops at a key, however deep it lies."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse keys of the noise and of a ledger; all else pickles as it does."""
        if isinstance(obj, CarriedKey | RowKey):
            raise LabelDPError(
                f"{OWNER}: work for a cluster must hold no key, got one with a {type(obj).__name__}. Work is stored as a result, "
                "which workers may write to their disks: send the key beside each piece."
            )
        return super().reducer_override(obj)


def _pack(work: Any) -> bytes:
    """Return work as bytes for a worker."""
    buffer = io.BytesIO()
    _WorkPickler(buffer).dump(work)
    return buffer.getvalue()


def open_cluster(*, client: Any, scheduler: str | None, workers: int | None, insecure: bool = False) -> Cluster:
    """Return the user's client, a client of the scheduler at an address, or a cluster of this process's own.

    `insecure` accepts a cluster that talks in the clear (see above).
    """
    if client is not None:
        if not isinstance(client, Client):
            raise invalid(OWNER, "client", "be a distributed.Client", got=type(client).__name__)
        return Cluster(client, insecure=insecure)
    if scheduler is not None:
        check_addresses([scheduler], insecure=insecure)  # before a word is said
        return _connect(scheduler, insecure=insecure)

    return start_cluster(workers)


#: Protocols that encrypt and ask for a certificate, or that never leave the process.
SAFE = ("tls", "wss", "inproc")


def check_addresses(addresses: Iterable[str], *, insecure: bool) -> None:
    """Refuse addresses of other machines that are talked to in the clear, and warn of those of this one.

    >>> check_addresses(["tls://10.0.0.1:8786", "inproc://10.0.0.1/7/1"], insecure=False)
    >>> check_addresses(["tcp://10.0.0.1:8786"], insecure=False)
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: privatize_table: `scheduler` must talk TLS with other machines, got tcp://10.0.0.1:8786. ...
    """
    if insecure:
        return
    plain = [address for address in addresses if _protocol(address) not in SAFE]
    far = next((address for address in plain if not _is_loopback(address)), None)
    if far is not None:
        fix = (
            "Whoever reaches that port runs code as its owner, and raw labels and the key of the noise go there in the clear. "
            "Start it with certificates and use tls:// (docs/scale.md), or pass insecure=True (--insecure-scheduler) on a "
            "network that is yours alone."
        )
        raise invalid(OWNER, "scheduler", "talk TLS with other machines", got=Described(far), fix=fix)
    if plain:
        warnings.warn(
            f"{OWNER}: the cluster at {plain[0]} takes work from every user of this machine: any of them runs code as its "
            "owner. Start it with certificates and use tls:// (docs/scale.md), or leave it out; insecure=True "
            "(--insecure-scheduler) silences this.",
            InsecureClusterWarning,
            stacklevel=4,
        )


def _protocol(address: str) -> str:
    """Return the protocol of an address; dask's default is plain TCP."""
    name, sign, _ = address.partition("://")
    return name.lower() if sign else "tcp"


def _is_loopback(address: str) -> bool:
    """Whether an address is this machine's alone: every address that its host stands for is one of loopback."""
    host = urlsplit(f"//{address.partition('://')[2] or address}").hostname or ""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
        return bool(found) and all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False


def _connect(scheduler: str, *, insecure: bool) -> Cluster:
    try:
        client: Any = Client(scheduler, timeout=SCHEDULER_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except AssertionError as error:
        # distributed's whole answer; `run_loop` is no help, since a client that fails needs its loop later.
        busy = "distributed has not started its event loop in ten seconds: this machine is too busy. Try again."
        raise LabelDPError(f"{OWNER}: {busy}") from error
    except (OSError, ValueError, TypeError, TimeoutError) as error:  # TypeError: tls:// without certificates
        fix = (
            "Start one with `dask scheduler`, and name the certificates of tls:// in dask's configuration (docs/scale.md); or "
            "leave it out for a cluster inside this process."
        )
        got = Described(f"{scheduler} ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
        raise invalid(OWNER, "scheduler", "be the address of a scheduler that answers", got=got, fix=fix) from error
    try:
        return Cluster(client, insecure=insecure).close_with(client.close)
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


def _check_workers(client: Client) -> list[str]:
    """Refuse a cluster without workers, and workers of other versions than ours; return their addresses."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        fix = "Start some with `dask worker ADDRESS`."
        raise invalid(
            OWNER, "scheduler", "have workers", got=Described(f"none for {WORKER_SECONDS} s"), fix=fix
        ) from error
    answers = client.run(_versions, on_error="return")
    for where, found in answers.items():
        if isinstance(found, BaseException):
            got = Described(f"{type(found).__name__}: {found}")
            raise invalid(OWNER, f"worker {where}", "have labeldp installed", got=got, fix="Install the same version.")
        _check_versions(_versions(), found, where=where)
    return list(answers)


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
    # No pages at all: distributed serves some even without a dashboard.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Nothing of a job goes to the disk but what the job writes; its own bound on memory is `job.DEPTH`.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}
#: A free port of this machine alone, until it is closed a moment later.
NO_PAGES = "127.0.0.1:0"


def start_cluster(workers: int | None) -> Cluster:
    """Return a cluster of so many workers, threads of this process; by default one a core. No port is open."""
    count = thread_count() if workers is None else check_integer(OWNER, "workers", workers, least=1)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_scratch_folder())
        # For the scheduler too, which takes no `local_directory`: what it finds in there it may import, and in the folder
        # that all users share another one may have put it.
        stack.enter_context(dask.config.set({**SETTINGS, "temporary-directory": str(folder)}))
        cluster = stack.enter_context(
            LocalCluster(  # type: ignore[no-untyped-call]
                loop=stack.enter_context(run_loop()),
                n_workers=count,
                threads_per_worker=1,
                processes=False,
                protocol="inproc://",
                dashboard_address=NO_PAGES,
                worker_dashboard_address=NO_PAGES,
                scheduler_kwargs={"dashboard": False},
                local_directory=str(folder),
                silence_logs=logging.CRITICAL,
            )
        )
        cluster.sync(_stop_pages, cluster)
        client = stack.enter_context(Client(cluster, set_as_default=False))  # type: ignore[no-untyped-call]
        opened = Cluster(client)
        return opened.close_with(stack.pop_all().close)


async def _stop_pages(cluster: Any) -> None:
    """Close the ports for pages that distributed opens for every scheduler and worker, whether it has pages or not."""
    for server in (cluster.scheduler, *cluster.workers.values()):
        server.http_server.stop()


@contextmanager
def run_loop() -> Iterator[IOLoop]:
    """Lend the event loop of a thread of its own. distributed gives up when a busy machine has not started one in ten seconds."""
    started: Future[tuple[IOLoop, asyncio.Event]] = Future()

    async def run() -> None:
        end = asyncio.Event()
        started.set_result((IOLoop.current(), end))
        await end.wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except OSError as error:  # no file is left for a loop: who waits for it is told
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=work, name="labeldp-dask", daemon=True)
    thread.start()
    loop, end = started.result()
    try:
        yield loop
    finally:
        loop.add_callback(end.set)
        thread.join()


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Give a folder for scheduler and workers, this user's alone. What a kill leaves of one is removed by the next."""
    for left in find_leftovers(Path(tempfile.gettempdir()) / SCRATCH):
        with contextlib.suppress(OSError):  # another user's
            remove_leftover(left.path)
    folder = Path(tempfile.gettempdir()) / hidden_name(SCRATCH)
    make_private(folder)
    try:
        with hold(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
