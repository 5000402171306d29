"""Another user of the machine looks for what a release leaves behind.

On the commit before, a ledger was made with the rights of any file, so that everyone could read what was spent on whose labels:
benchmarks/two_users.py, which tries far more, opened `spent.sqlite` from a second account. Now it is its owner's alone from
the first moment, whatever the umask. A finished release is public, and stays readable.
"""

from __future__ import annotations

import importlib.util
import json
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
LOOK = """
import json, os, sys
found = []
for folder, folders, files in os.walk(sys.argv[1]):
    for name in files:
        try:
            open(os.path.join(folder, name), "rb").close()
            found.append(os.path.relpath(os.path.join(folder, name), sys.argv[1]))
        except OSError:
            pass
print(json.dumps(sorted(found)))
"""

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


def read_by_another(home: Path, repository: Path) -> list[str]:
    """Return the files that another user can open."""
    spec = importlib.util.spec_from_file_location("container", repository / "benchmarks" / "container.py")
    assert spec is not None
    assert spec.loader is not None
    container = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(container)
    python, _ = container.find_python(OTHER)
    command = [python, "-c", LOOK, str(home)]
    options = {"user": OTHER, "group": OTHER, "extra_groups": [], "cwd": "/"}
    return list(json.loads(subprocess.run(command, check=True, capture_output=True, **options).stdout))


def test_a_new_ledger_is_its_owners_alone(home: Path, repository: Path):
    ledger = Ledger(home / "spent.sqlite", budget=2.0)
    labels = labeldp.SensitiveLabels(np.arange(100) % 2, n_classes=2)
    labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), ledger=ledger).save(home / "release")
    assert (home / "spent.sqlite").stat().st_mode & 0o777 == 0o600
    assert read_by_another(home, repository) == [
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
