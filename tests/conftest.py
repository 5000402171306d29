"""What every test may rely on: hypothesis without a clock, and the shared data sets or a clear skip."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

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
