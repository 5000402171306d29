"""A container: the install cannot be written, there is no home, and the user is a number that the system does not know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STRANGER = 12345


def as_stranger(command: list[str]) -> list[str]:
    """Return the command as a user without a name; who is not root stays who she is, and owns a tree without rights to write."""
    if os.getuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv to become someone else")
    user = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    # The interpreter of this machine may lie in root's home: to read it is allowed, to write nothing.
    return [
        *user,
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
        "--bounding-set=-dac_override",
        *command,
    ]


@pytest.mark.parametrize("place", [None, "cache"])
def test_privatize_in_a_read_only_tree(place: str | None, tmp_path: Path, repository: Path) -> None:
    """Before: `RuntimeError: cannot cache function ... no locator available`, exit code 1, nothing released.

    Now it runs to the end. Without a place one line says how to name one, and no folder called `~` appears; with
    NUMBA_CACHE_DIR it is used, and nothing is said.
    """
    shutil.copytree(
        repository / "src" / "labeldp", tmp_path / "tree" / "labeldp", ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in [*(tmp_path / "tree").rglob("*"), tmp_path / "tree"]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    home = tmp_path / "home"
    home.mkdir()
    (home / "table.csv").write_text("x,ill\n" + "1,yes\n2,no\n" * 20)
    if os.getuid() == 0:
        os.chown(home, STRANGER, STRANGER)
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "OMP_NUM_THREADS")}
    cache = {} if place is None else {"NUMBA_CACHE_DIR": str(home / place)}
    environment = {**keep, **cache, "PYTHONPATH": str(tmp_path / "tree"), "PYTHONDONTWRITEBYTECODE": "1"}
    if os.getuid() != 0:
        environment["HOME"] = "/nonexistent"
    command = [
        sys.executable,
        "-m",
        "labeldp",
        "privatize",
        "table.csv",
        "--label",
        "ill",
        "--epsilon",
        "1",
        "--to",
        "out",
    ]
    done = subprocess.run(as_stranger(command), cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (home / "out" / "release.json").is_file()
    said = [line for line in done.stderr.splitlines() if "NUMBA_CACHE_DIR" in line]
    assert len(said) == (1 if place is None else 0), done.stderr
    assert sorted(path.name for path in home.iterdir()) == sorted(
        ["out", "table.csv", *([] if place is None else [place])]
    )
