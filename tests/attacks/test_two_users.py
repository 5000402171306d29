"""Another user of the machine looks for what a release leaves behind.

On the commit before, a ledger was made with the rights of any file, so that everyone could read what was spent on whose labels:
benchmarks/two_users.py, which tries far more, opened `spent.sqlite` from a second account. Now it is its owner's alone from
the first moment, whatever the umask. A finished release is public, and stays readable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import labeldp
from labeldp.accounting import Ledger

OTHER = 12002
#: Needs no interpreter, since ours may lie in a home that is closed to others. Folders that cannot be entered are passed over.
LOOK = """find . -type f -exec sh -c 'for file; do cat "$file" > /dev/null && echo "$file"; done' sh {} + ; true"""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everyone may read, and a umask that closes nothing."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    before = os.umask(0)
    yield place
    os.umask(before)
    shutil.rmtree(place)


def read_by_another(home: Path) -> list[str]:
    """Return the files that another user can open."""
    options = {"user": OTHER, "group": OTHER, "extra_groups": [], "cwd": home, "text": True}
    said = subprocess.run(["sh", "-c", LOOK], check=True, capture_output=True, **options).stdout
    return sorted(line.removeprefix("./") for line in said.splitlines())


def test_a_new_ledger_is_its_owners_alone(home: Path):
    ledger = Ledger(home / "spent.sqlite", budget=2.0)
    labels = labeldp.SensitiveLabels(np.arange(100) % 2, n_classes=2)
    labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), ledger=ledger).save(home / "release")
    assert (home / "spent.sqlite").stat().st_mode & 0o777 == 0o600
    assert read_by_another(home) == [
        "release/channel.parquet",
        "release/labels.parquet",
        "release/release.json",
    ]


def test_a_ledger_that_is_shared_on_purpose_stays_so(home: Path):
    path = home / "spent.sqlite"
    path.touch()
    path.chmod(0o660)
    labels = labeldp.SensitiveLabels(np.arange(100) % 2, n_classes=2)
    labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), ledger=Ledger(path, budget=2.0))
    assert path.stat().st_mode & 0o777 == 0o660
