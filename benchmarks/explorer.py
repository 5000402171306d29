"""Requests a second of the explorer, idle and while 1,000 connections (60 at `--before`) say nothing.

    python benchmarks/explorer.py [--before FOLDER]

One client, one request after the other, each on a new connection, as a slider that is dragged asks. `--before` names a checkout
of another commit: both are measured one after the other, in one run; a busy machine
slows both. The result goes to benchmarks/results/explorer.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SILENT, REQUESTS = 1000, 100
PATHS = {"page": "/", "facts, one setting": "/facts?epsilon=1", "facts, new settings": "/facts?epsilon={}"}
SERVER = """
import threading
from labeldp.report.explorer import Explorer
with Explorer() as explorer:
    print(explorer.url, flush=True)
    while input() == "threads":
        print(threading.active_count(), flush=True)
"""


def ask(port: int, path: str) -> None:
    """Ask once and read the answer to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    if b" 200 " not in answer[:16]:
        raise SystemExit(f"{path}: {answer[:80]!r}")


def rate(port: int, path: str) -> float:
    """Return the requests a second for a path; `{}` in it becomes another number each time."""
    start = time.perf_counter()
    for number in range(REQUESTS):
        ask(port, path.format(1 + number / 1000))
    return REQUESTS / (time.perf_counter() - start)


def measure(source: Path, n_silent: int) -> dict[str, Any]:
    """Return the figures of the explorer of one source tree."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, env=environment, **pipes) as server:  # type: ignore[call-overload]
        port = int(server.stdout.readline().strip().strip("/").rsplit(":", 1)[1])
        for path in PATHS.values():  # the first answer of a process compiles and loads
            ask(port, path.format(9))
        found: dict[str, Any] = {f"{name}, idle": round(rate(port, path)) for name, path in PATHS.items()}
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(n_silent)]
        for one in silent:
            one.sendall(b"GET / HT")
        found["silent connections"] = n_silent
        found["page, silent connections held"] = round(rate(port, "/"))
        server.stdin.write("threads\n")
        server.stdin.flush()
        found["threads, silent connections held"] = int(server.stdout.readline())
        for one in silent:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()
        ask(port, "/")
        errors = server.communicate("stop\n")[1]
    found["tracebacks at their end"] = errors.count("Traceback")
    return found


def main() -> None:
    """Measure this tree, and another one in the same run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of the commit to compare with")
    before = parser.parse_args().before
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    trees = {"now": HERE.parent / "src"} | ({"before": before / "src"} if before else {})
    # The server before takes some seven connections a second beyond its queue of five: 1,000 would take minutes.
    best: dict[str, Any] = {name: measure(source, SILENT if name == "now" else 60) for name, source in trees.items()}
    best["unit"] = {"rates": "requests a second", "machine": f"{os.cpu_count()} cores, shared"}
    text = json.dumps(best, indent=1)
    print(text)
    (HERE / "results" / "explorer.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
