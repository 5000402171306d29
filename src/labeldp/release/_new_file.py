"""New files, whole or absent: nothing is overwritten, and a crash leaves nothing that looks finished.

>>> check_new("no/such/folder/report.html", owner="report")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: report: `path` must be in an existing folder, got 'no/such/folder/report.html'. Create it first.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from labeldp.errors import LabelDPError, invalid


def check_new(path: str | os.PathLike[str], *, owner: str) -> Path:
    """Refuse a target that exists or has no folder, before any budget is spent on what would go there."""
    target = Path(path)
    if os.path.lexists(target):
        fix = "Nothing is overwritten: choose another name, or remove it first."
        raise invalid(owner, "path", "be a new file", got=str(target), fix=fix)
    if not target.parent.is_dir():
        raise invalid(owner, "path", "be in an existing folder", got=str(target), fix="Create it first.")
    return target


def write_new(target: Path, data: bytes, *, owner: str) -> None:
    """Write a new file through a hidden one: the target is whole or absent, and an existing one is never replaced."""
    hidden = target.parent / f".{target.name}.partial-{secrets.token_hex(8)}"
    try:
        with hidden.open("xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.link(hidden, target)
    except FileExistsError:
        check_new(target, owner=owner)
        raise
    except OSError as error:
        message = f"{owner}: could not write {target}: {error.strerror or error}. Nothing was kept."
        raise LabelDPError(message) from error
    finally:
        hidden.unlink(missing_ok=True)
