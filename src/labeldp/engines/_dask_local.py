"""A cluster of this machine's own: a scheduler in this process and a few worker processes, gone when the work is over.

Design notes. One thread a worker: drawing has threads of its own, and a process may be killed without taking others along. No
dashboard, and workers' files in a temporary folder: nothing of a job outlives it. A piece may lose its worker ten times
before it is given up, since on one machine whoever kills workers (for memory, say) kills many.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile

import dask
from distributed import Client, LocalCluster

from labeldp._threads import thread_count
from labeldp._validate import check_integer
from labeldp.engines._dask import OWNER, Cluster

SETTINGS = {
    "distributed.scheduler.allowed-failures": 10,
    # No pages at all: distributed serves some even without a dashboard.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


def local_cluster(workers: int | None) -> Cluster:
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
        return opened.closing(stack.pop_all().close)
