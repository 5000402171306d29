"""Another user of the machine looks for what labeldp leaves: ledgers, unfinished releases, states of fits.

On the commit before, a ledger was made with the rights of any file, so that everyone could read what was spent on whose labels,
and an unfinished table's folder was open until its owner's rights were set: benchmarks/two_users.py, which tries far more,
opened `spent.sqlite`, `job.json` and drafts of `key.json` from a second account. Now all three are their owner's alone from the
first moment, whatever the umask. A finished release is public, and stays readable.
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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.accounting import Ledger
from labeldp.engines import privatize_table

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


class Killed(BaseException):
    """What a kill looks like from inside."""


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


def test_unfinished_work_is_closed_at_every_step(home: Path, repository: Path):
    pq.write_table(pa.table({"a": np.arange(4_000), "ill": np.arange(4_000) % 2}), home / "table.parquet")
    (home / "table.parquet").chmod(0o600)
    seen: list[list[str]] = []

    def stop(done: int, total: int | None) -> None:
        seen.append(read_by_another(home, repository))
        if len(seen) == 2:
            raise Killed

    with pytest.raises(Killed):
        privatize_table(
            home / "table.parquet",
            label="ill",
            to=home / "out",
            epsilon=1.0,
            classes=[0, 1],
            batch_rows=1_000,
            keep_unfinished=True,
            progress=stop,
        )
    assert len(seen) == 2
    assert [*seen, read_by_another(home, repository)] == [[], [], []]
