"""What every test may rely on: hypothesis without a clock, and the shared data sets or a clear skip."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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
