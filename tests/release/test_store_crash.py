"""A release appears whole or not at all: full disks, failing renames, and a process that dies at every step of saving."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.errors import LabelDPError
from labeldp.release import Release, load_release, privatize

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing(real: Callable[..., Any], *, at: int) -> Callable[..., Any]:
    """The function, until its call number `at` (from 0), which finds the disk full."""
    calls = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > at:
            raise FULL
        return real(*arguments, **named)

    return wrapped


@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [
        (os, "fsync", 0),  # labels.parquet
        (os, "fsync", 1),  # channel.parquet
        (os, "fsync", 2),  # release.json
        (pq, "write_table", 0),
        (pq, "write_table", 1),
        (Path, "rename", 0),  # of Path, not of os: Python 3.10 keeps the functions of os from its start
        (Path, "mkdir", 0),
        (json, "dump", 0),
    ],
)
def test_a_full_disk_leaves_nothing_behind(
    owner: Any,
    name: str,
    at: int,
    tmp_path: Path,
    make_release: Callable[[str], Release],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = make_release("rows by group")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing(getattr(owner, name), at=at))
        with pytest.raises(
            LabelDPError, match=r"^Release\.save: could not write .*: No space left on device\. Nothing"
        ):
            release.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    release.save(tmp_path / "out")  # the same release can be saved once there is room
    assert len(load_release(tmp_path / "out")) == 60


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = privatize([0, 1], labeldp.RandomizedResponse(1.0, n_classes=2))

    def interrupted(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        release.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_flushed_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems refuse to flush a directory; the release is there, and saying otherwise would be wrong."""
    release = privatize([0, 1], labeldp.RandomizedResponse(1.0, n_classes=2))
    real = os.open

    def no_directories(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_directories)
        release.save(tmp_path / "out")
    assert len(load_release(tmp_path / "out")) == 2


# The child forks once for every step, and the fork kills itself at that step. It imports no compiled kernels.
CHILD = """
import os, signal, sys
from pathlib import Path
import numpy as np
import pyarrow.parquet
from labeldp.channel import Channel
from labeldp.guarantee import Guarantee
from labeldp.release import Release

release = Release(
    codes=(np.arange(3000) % 3).astype(np.uint8), classes=("a", "b", "c"), channel=Channel(keep=0.1, base=[0.2, 0.5, 0.3]),
    guarantee=Guarantee.pure(1.0), mechanism="test", seeded=True,
)
root = Path(sys.argv[1])
STEPS = [(Path, "mkdir"), (os, "fsync"), (Path, "rename"), (pyarrow.parquet, "write_table")]

def deadly(real, at):
    def wrapped(*arguments, **named):
        seen.append(real.__name__)
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return wrapped

for at in range(1, 30):
    child = os.fork()
    if child == 0:
        seen = []
        for owner, name in STEPS:
            setattr(owner, name, deadly(getattr(owner, name), at))
        release.save(root / f"step{at}")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(at, "killed" if os.WIFSIGNALED(status) else "done", flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def test_a_killed_process_leaves_a_whole_release_or_none(tmp_path: Path, forks: Any) -> None:
    done = forks.run(CHILD, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    # mkdir, two Parquet files written and flushed, the manifest and the directory flushed, rename, the parent flushed
    assert [what for _, what in lines] == ["killed"] * 9 + ["done"]
    visible = sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("."))
    assert visible == ["step10", "step9"]  # killed after the rename, or not at all
    for name in visible:
        assert load_release(tmp_path / name).codes.tolist() == [i % 3 for i in range(3000)]
    for hidden in (p for p in tmp_path.iterdir() if p.name.startswith(".")):
        assert ".partial-" in hidden.name  # what a crash leaves is out of sight, and says what it is
