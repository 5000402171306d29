"""What a long study has measured so far, kept in a file, so that a run that was killed goes on where it stopped.

>>> import tempfile
>>> from pathlib import Path
>>> path = Path(tempfile.mkdtemp()) / "partial.jsonl"
>>> Kept(path).get("a", lambda: {"accuracy": 90.0})
{'accuracy': 90.0}
>>> Kept(path).get("a", lambda: {"accuracy": 0.0})  # another run: what was measured stands
{'accuracy': 90.0}

Design notes. One line of JSON per measurement, appended and flushed when it is known; a line cut short by a crash is left
out. Noise in studies comes from seeds, so a run in two halves gives the numbers of one in one piece. The file carries the
version, and lines of another version do not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import labeldp

Arrays = dict[str, npt.NDArray[Any]]
Measured = dict[str, Any]


class Kept:
    """Measurements by name; without a path they last as long as this object."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[str, Measured] = {} if path is None or not path.exists() else _read(path)

    def get(self, name: str, measured: Callable[[], Measured]) -> Measured:
        """Return what is known under a name, or measure it and keep it."""
        if name not in self._known:
            self._known[name] = measured()
            self._append(name)
        return self._known[name]

    def arrays(self, name: str, made: Callable[[], Arrays]) -> Arrays:
        """Return arrays that took long to make, from a file beside the measurements or made now and kept there."""
        if self.path is None:
            return made()
        file = self.path.with_name(f"{self.path.stem}-{name}-{labeldp.__version__}.npz")
        if not file.exists():
            found = made()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            half = file.with_suffix(".half.npz")
            np.savez(half, **found)  # type: ignore[arg-type]  # NumPy's stubs take the names for options
            half.rename(file)  # whole or not at all
            return found
        with np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}

    def forget(self) -> None:
        """Remove the files: the result has been written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            for file in self.path.parent.glob(f"{self.path.stem}-*.npz"):
                file.unlink()

    def _append(self, name: str) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"version": labeldp.__version__, "name": name, "measured": self._known[name]})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _read(path: Path) -> dict[str, Measured]:
    known: dict[str, Measured] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut short by a crash
        if row["version"] == labeldp.__version__:
            known[row["name"]] = row["measured"]
    return known
