"""Which versions ran a study, for how long and with which seeds: what a reader needs to run it again.

>>> sorted(versions())[:3]
['labeldp', 'numba', 'numpy']
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import labeldp

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "plotly")


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a number or the look of a page."""
    found = {"labeldp": labeldp.__version__, "python": platform.python_version()}
    return dict(sorted({**found, **{package: version(package) for package in PACKAGES}}.items()))


class Stopwatch:
    """Processor and wall time since it was made; the processor time is of all threads of this process."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def facts(self, *, seeds: Sequence[int], quick: bool, command: str) -> dict[str, Any]:
        """Return the facts of a run that ends now."""
        return {
            "command": command,
            "quick": quick,
            "seeds": list(seeds),
            "cpu_seconds": round(time.process_time() - self._cpu, 1),
            "wall_seconds": round(time.perf_counter() - self._wall, 1),
            "processors": os.cpu_count(),
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "versions": versions(),
        }
