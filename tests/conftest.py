"""What every test may rely on: hypothesis without a clock, and the shared data sets or a clear skip."""

from __future__ import annotations

import functools
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from scripts.browser import CHROMIUM, Browser, Tab

REPOSITORY = Path(__file__).resolve().parent.parent

# No deadline: the first example of a property may compile a numba kernel, and two cores are shared by all workers.
# On the continuous integration machine the examples are the same each time: what it accepts, it accepts again. At home
# they are new each time, and keep looking.
settings.register_profile("labeldp", deadline=None, print_blob=True, derandomize=os.environ.get("CI") == "true")
settings.load_profile("labeldp")


def data_directory() -> Path:
    """The directory of data sets: $LABELDP_DATA, or shared/data beside the clone."""
    named = os.environ.get("LABELDP_DATA")
    return Path(named) if named else REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """A function from the name of a data set to its directory; it skips the test where the set is absent."""

    def find(name: str) -> Path:
        path = data_directory() / name
        if not path.exists():
            pytest.skip(f"data set `{name}` is not in {data_directory()}; LABELDP_DATA names the directory that has it")
        return path

    return find


def overlap(
    first: AbstractContextManager[Any], second: AbstractContextManager[Any], *, then: Callable[[Any], None]
) -> None:
    """Enter two contexts in threads of their own, the second inside of the first; when that has ended, call `then` in the second.

    It is called with what the second gave.
    """
    one_began, both_began, one_ended = threading.Event(), threading.Event(), threading.Event()

    def begin_first() -> None:
        with first:
            one_began.set()
            assert both_began.wait(60)
        one_ended.set()

    def end_last() -> None:
        assert one_began.wait(60)
        with second as given:
            both_began.set()
            assert one_ended.wait(60)
            then(given)

    threads = [threading.Thread(target=run) for run in (begin_first, end_last)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone."""
    return REPOSITORY


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """Runs programs in processes of their own that need not load anything: see tests/forking.py."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    try:
        from forking import Forks
    finally:
        sys.path.pop(0)
    server = Forks(REPOSITORY / "src")
    yield server
    server.close()


@functools.cache
def find_command() -> Any:
    """Made once: typer's own runner makes all commands anew for each line, which takes longer than most of them run."""
    import typer.main

    from labeldp.cli import app

    return typer.main.get_command(app)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command, a line or its words, and expect an exit code; returns what it wrote on either stream.

    typer's own runner keeps the streams apart from click 8.2 on.
    """

    def call(line: str | Sequence[str], *, code: int = 0) -> Any:
        words = line.split() if isinstance(line, str) else list(line)
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as left:
            find_command().main(words, prog_name="labeldp")
        assert left.value.code == code, f"{line}: {left.value.code}\n{stdout.getvalue()}\n{stderr.getvalue()}"
        return SimpleNamespace(exit_code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    return call


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The one Chromium of this process."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    made = Browser(str(tmp_path_factory.mktemp("profile")))
    yield made
    made.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A fresh tab."""
    made = Tab(browser)
    yield made
    made.close()
