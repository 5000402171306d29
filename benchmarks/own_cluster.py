"""A real cluster to kill: a scheduler and workers as processes of their own, with their logs in files. No benchmark itself.

It talks TLS, with certificates of its own that live in its folder: `make_certificates` runs the commands of docs/scale.md.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
#: A worker imports numba and pyarrow: seconds on a quiet machine, minutes on one with a dozen other processes.
START_SECONDS = 600
#: A cluster that waits watches itself: stacks every 10 ms, its loop every 20 ms, memory every 100 ms, which took a
#: twentieth of a processor for as long as it was there. Here it looks seldom.
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False",
}


def make_certificates(folder: Path) -> dict[str, str]:
    """Make an authority and a certificate for all parts of a cluster; return dask's settings for them."""
    names = {name: str(folder / name) for name in ("ca.pem", "ca-key.pem", "cert.pem", "key.pem", "request.pem")}
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority = (
        "-x509",
        "-days",
        "30",
        "-subj",
        "/CN=our cluster",
        "-keyout",
        names["ca-key.pem"],
        "-out",
        names["ca.pem"],
    )
    request = ("-subj", "/CN=our worker", "-keyout", names["key.pem"], "-out", names["request.pem"])
    sign = ("-req", "-days", "30", "-in", names["request.pem"], "-CA", names["ca.pem"], "-CAkey", names["ca-key.pem"])
    mask = os.umask(0o077)  # the keys are their owner's alone
    try:
        for command in (
            ("req", *curve, *authority),
            ("req", *curve, *request),
            ("x509", *sign, "-CAcreateserial", "-out", names["cert.pem"]),
        ):
            subprocess.run(["openssl", *command], check=True, capture_output=True)
    finally:
        os.umask(mask)
    settings = {"CA_FILE": names["ca.pem"]}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        settings |= {f"{role}__CERT": names["cert.pem"], f"{role}__KEY": names["key.pem"]}
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in settings.items()}


def configure(environment: dict[str, str]) -> Any:
    """Return a context in which dask's configuration has these settings, as if they were in the environment."""
    import dask

    read = dask.config.interpret_value
    names = {name: name.removeprefix("DASK_").lower().replace("__", ".") for name in environment}
    return dask.config.set({names[name]: read(value) for name, value in environment.items()})


class OwnCluster:
    """`dask scheduler` and `dask worker` processes; all they print is in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        preload: str | None = None,
        limit: int | None = None,
        nanny: bool = True,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.certificates = make_certificates(folder)
        self.scheduler = self._start(
            "dask_scheduler", "--host", "tls://127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.file),
        )  # fmt: skip
        self._wait_for(self.file)
        for _ in range(workers):
            self.add_worker(preload=preload, limit=limit, nanny=nanny)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    @property
    def security(self) -> Any:
        """What a client needs."""
        from distributed import Security

        at = self.certificates
        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        own = {"tls_client_cert": at[f"{prefix}CLIENT__CERT"], "tls_client_key": at[f"{prefix}CLIENT__KEY"]}
        return Security(tls_ca_file=at[f"{prefix}CA_FILE"], require_encryption=True, **own)

    def configured(self) -> Any:
        """Return a context in which dask's configuration names the certificates, as the environment of a user does."""
        return configure(self.certificates)

    def add_worker(
        self, *, preload: str | None = None, limit: int | None = None, nanny: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a worker; its nanny, a process more, would start it again when it is killed."""
        extra = ["--nanny" if nanny else "--no-nanny", *([] if preload is None else ["--preload", preload])]
        return self._start(
            "dask_worker",
            self.address,
            "--host",
            "tls://127.0.0.1",
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
        environment |= {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10", **QUIET, **self.certificates}
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
