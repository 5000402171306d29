"""A process that has loaded the house and forks itself for each program that a test wants to run in a process of its own.

To load scikit-learn, numba and pyarrow takes seconds of a processor, most of what such a test used to take. A fork is
what a fresh process is where a program is killed, meets a limit, crashes, or talks to a terminal. It is not where start-up
is the point (what an import loads, streams that are closed from the beginning): such a test starts Python itself.

Run as a program it serves the socket whose number it is given; `Forks` is the other side, behind the fixture `forks`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What the programs of tests import, late imports of the house included; neither torch nor dask, which start threads.
LOADED = """
import labeldp.accounting, labeldp.audit, labeldp.cli, labeldp.data, labeldp.engines, labeldp.learn, labeldp.report
import pyarrow.compute, pyarrow.parquet, rich.console, rich.progress, rich.table, skops.io
import sklearn.cluster, sklearn.ensemble, sklearn.naive_bayes, sklearn.preprocessing
"""
#: The longest message: a program with its arguments and environment.
LONGEST = 2**18


class Forks:
    """Runs programs in forks of one process that has loaded the house."""

    def __init__(self, source: Path) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for side in (self._ours, theirs):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            number = theirs.fileno()
            self._server = subprocess.Popen([sys.executable, __file__, str(number)], pass_fds=[number], env=environment)

    def start(
        self,
        program: str,
        *arguments: object,
        files: tuple[int, int, int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program, as `python -c` would, in this folder, on three open files: its input, output and errors."""
        request = {
            "program": program,
            "arguments": [str(argument) for argument in arguments],
            "environment": dict(os.environ if environment is None else environment),
            "folder": str(Path.cwd()),
        }
        socket.send_fds(self._ours, [json.dumps(request).encode()], list(files))
        self._child = int(self._hear())

    def wait(self) -> int:
        """Return the exit code of the program that was started last, negative for a signal as in `subprocess`."""
        try:
            return int(self._hear())
        except BaseException:  # a test that took too long is stopped here: so is its program
            os.kill(self._child, signal.SIGKILL)
            self._hear()
            raise

    def run(
        self, program: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; return its code and what it wrote."""
        with Path(os.devnull).open("rb") as none, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = (none.fileno(), out.fileno(), err.fileno())
            self.start(program, *arguments, files=files, environment=environment)
            code = self.wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess([program, *arguments], code, out.read().decode(), err.read().decode())

    def _hear(self) -> bytes:
        answer = self._ours.recv(LONGEST)
        assert answer, "the process that forks is gone"
        return answer

    def close(self) -> None:
        self._ours.close()  # the server reads the end, and leaves
        self._server.wait()


def serve(ours: socket.socket) -> None:
    """Fork for each request, and answer with the number of the process, and with the code that it ended with."""
    while True:
        message, files, _, _ = socket.recv_fds(ours, LONGEST, 3)
        if not message:
            return
        child = os.fork()
        if child == 0:
            ours.close()
            run_as_main(json.loads(message), files)
        ours.send(str(child).encode())
        for file in files:
            os.close(file)
        ours.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def run_as_main(request: dict[str, Any], files: list[int]) -> None:
    """Become the program: its files, folder, environment and arguments; and end as the interpreter does."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, closefd=False, errors=errors)  # noqa: SIM115 - they live as long as the process
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    sys.argv = ["-c", *request["arguments"]]
    code = 0
    try:
        exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends the program ends this process
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -c` has it, and not the folders of tests
    exec(LOADED)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has its children ignore it
    serve(socket.socket(fileno=int(sys.argv[1])))
