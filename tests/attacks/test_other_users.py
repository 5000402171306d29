"""Another user of the machine, who has no password of ours, tries to run code where labels are drawn."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError

distributed = pytest.importorskip("distributed", reason="needs labeldp[dask]")
psutil = pytest.importorskip("psutil", reason="comes with distributed")
from labeldp.engines.dask import run_loop  # noqa: E402 - it needs distributed

NOBODY = 65534
SECONDS = 600

OWNER = """
import sys, time
from pathlib import Path
from labeldp.engines import privatize_table

root = Path(sys.argv[1])

def wait(done, total):
    (root / "drawing").touch()
    while not (root / "go on").exists():
        time.sleep(0.05)

privatize_table(root / "in", label="label", to=root / "out", epsilon=1.0, engine="dask", workers=1, progress=wait)
"""

ATTACKER = f"""
import os, sys, logging, signal
import distributed
def give_up(*_): raise TimeoutError
signal.signal(signal.SIGALRM, give_up)
logging.disable(logging.CRITICAL)
if os.getuid() == 0:  # become someone who owns nothing here
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
seconds = int(sys.argv[1])
for port in sys.argv[2:]:
    signal.alarm(5 * seconds)
    try:
        client = distributed.Client("tcp://127.0.0.1:" + port, timeout=seconds, set_as_default=False)
        print("ran as", client.run_on_scheduler(os.getuid), flush=True)
        os._exit(0)
    except Exception as error:
        print("refused:", type(error).__name__, flush=True)
os._exit(0)
"""


def attack(ports: list[int], *, seconds: int = 3) -> list[str]:
    """Return what another user got from each port in so many seconds: the user as whom the code ran, or the refusal."""
    command = [sys.executable, "-c", ATTACKER, str(seconds), *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True, cwd="/")
    return done.stdout.splitlines()


def open_ports(pid: int) -> list[int]:
    """Return the ports on which a process and its children listen."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    found = [entry for one in family for entry in one.net_connections(kind="inet")]
    return sorted({entry.laddr.port for entry in found if entry.status == psutil.CONN_LISTEN})


def make_table(root: Path) -> None:
    (root / "in").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"label": np.arange(100) % 3}), root / "in" / f"{number}.parquet")


def test_nobody_reaches_the_cluster_of_a_job(tmp_path: Path) -> None:
    """Before: five ports were open, and at the scheduler's code ran as the job's owner. Now: no port is open."""
    make_table(tmp_path)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + SECONDS
        while not (tmp_path / "drawing").exists() and owner.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        ports = open_ports(owner.pid)
        answers = attack(ports)
        (tmp_path / "go on").touch()
        assert owner.wait(SECONDS) == 0, owner.stderr.read() if owner.stderr else ""
    finally:
        owner.kill()
        owner.communicate()
    assert not [answer for answer in answers if answer.startswith("ran as")]
    assert ports == []
    assert len(labeldp.load_release(tmp_path / "out")) == 200


def test_a_planted_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where dask keeps its files is put on the path of modules, so whoever owns that folder can run code as us.

    By default it is one folder among temporary files, for all users; here another user made it first, open to all. Before:
    the scheduler took it. Now scheduler and workers have a folder that is ours alone.
    """
    shared = tmp_path / "dask-scratch-space"
    shared.mkdir()
    shared.chmod(0o777)
    make_table(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[str] = []

    def look(done: int, total: int) -> None:
        seen.extend(str(path) for path in shared.iterdir())
        seen.extend(place for place in sys.path if Path(place).is_relative_to(shared))
        (folder,) = (path for path in tmp_path.iterdir() if path.name.startswith(".labeldp-dask"))
        assert folder.stat().st_mode & 0o777 == 0o700

    privatize_table(
        tmp_path / "in", label="label", to=tmp_path / "out", epsilon=1.0, engine="dask", workers=1, progress=look
    )
    assert seen == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dask-scratch-space", "in", "out"]
    assert list(shared.iterdir()) == []


@pytest.fixture(scope="module", params=["tcp", "tls"])
def users_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster that a user brings, on loopback: in the clear, or with certificates."""
    security = distributed.security.Security.temporary() if request.param == "tls" else None
    where = {"processes": False, "protocol": request.param, "n_workers": 1, "threads_per_worker": 1}
    with (
        run_loop() as loop,
        distributed.LocalCluster(**where, security=security, dashboard_address="127.0.0.1:0", loop=loop) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_a_cluster_that_is_brought(users_cluster: Any, tmp_path: Path) -> None:
    """In the clear everyone runs code there, and we say so; with certificates nobody without one does, and we are silent."""
    make_table(tmp_path)
    address = users_cluster.scheduler.address
    # Where the door is open she has the time that a busy machine needs; where it is closed she would wait all of it.
    answers = attack([int(address.rpartition(":")[2])], seconds=100 if address.startswith("tcp") else 3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        privatize_table(
            tmp_path / "in", label="label", to=tmp_path / "out", epsilon=1.0, engine="dask", client=users_cluster
        )
    told = [one for one in told if "every user of this machine" in str(one.message)]
    if address.startswith("tcp"):
        assert answers == [f"ran as {os.getuid()}"]
        assert len(told) >= 1
    else:
        assert len(answers) == 1
        assert answers[0].startswith("refused")
        assert told == []


@pytest.mark.parametrize(
    "address", ["tcp://192.0.2.1:8786", "192.0.2.1:8786", "ws://192.0.2.1:8786", "tcp://[2001:db8::1]:1"]
)
def test_other_machines_are_not_talked_to_in_the_clear(address: str, tmp_path: Path) -> None:
    """Before: such a scheduler was used, and a listener on the way read names of files, classes, and the key of the noise.

    Addresses are those of RFC 5737 and 3849.
    """
    make_table(tmp_path)
    with pytest.raises(LabelDPError, match=r"`scheduler` must talk TLS with other machines.*insecure=True"):
        privatize_table(
            tmp_path / "in", label="label", to=tmp_path / "out", epsilon=1.0, engine="dask", scheduler=address
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_tls_without_certificates(tmp_path: Path) -> None:
    make_table(tmp_path)
    with pytest.raises(LabelDPError, match=r"scheduler that answers, got tls://127\.0\.0\.1:1 "):
        privatize_table(
            tmp_path / "in",
            label="label",
            to=tmp_path / "out",
            epsilon=1.0,
            engine="dask",
            scheduler="tls://127.0.0.1:1",
        )
