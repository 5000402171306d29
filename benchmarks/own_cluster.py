"""A real cluster to kill: a scheduler and workers as processes of their own, with their logs in files. No benchmark itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
#: A worker imports numba and pyarrow: seconds on a quiet machine, a minute on one with a dozen other processes.
START_SECONDS = 120


class OwnCluster:
    """`dask scheduler` and `dask worker` processes; all they print is in `folder`."""

    def __init__(self, folder: Path, *, workers: int = 2, preload: str | None = None, limit: int | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)
        )
        self._wait_for(self.file)
        for _ in range(workers):
            self.add_worker(preload=preload, limit=limit)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def add_worker(self, *, preload: str | None = None, limit: int | None = None) -> subprocess.Popen[bytes]:
        extra = [] if preload is None else ["--preload", preload]
        return self._start(
            "dask_worker",
            self.address,
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--nworkers",
            "1",
            "--no-dashboard",
            "--local-directory",
            str(self.folder),
            *extra,
            limit=limit,
        )

    def logs(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # noqa: PERF203 - a handful of processes
                process.kill()
                process.wait()

    def _start(self, module: str, *arguments: str, limit: int | None = None) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{module}-{len(self.processes)}.log").open("wb")
        command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments]
        if limit is not None:
            command = ["prlimit", f"--fsize={limit}", *command]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "PYTHONWARNINGS": "ignore"}
        environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "10"
        with log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.processes.append(process)
        return process

    def _wait_for(self, path: Path) -> None:
        end = time.monotonic() + START_SECONDS
        while not path.exists() or not path.read_text().strip():
            if time.monotonic() > end:
                raise TimeoutError(self.logs().decode())
            time.sleep(0.05)
