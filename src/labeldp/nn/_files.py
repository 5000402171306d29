"""Arrays and a line of JSON in one file, NumPy's npz without pickle: written whole or not at all.

>>> import tempfile, pathlib, numpy as np
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "kept.npz"
>>> write_arrays(path, {"one": np.ones(2)}, {"format": "example"}, new=True)
>>> read_arrays(path)
({'one': array([1., 1.])}, {'format': 'example'})
>>> folder.cleanup()
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

HEADER = "header"

#: What a damaged file makes NumPy, zipfile, json, torch and the readers of its parts raise.
DAMAGE = (
    KeyError,
    TypeError,
    ValueError,
    RuntimeError,
    AttributeError,
    IndexError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_arrays(path: Path, arrays: Arrays, header: dict[str, Any], *, new: bool) -> None:
    """Write through a hidden file beside the place; `new` refuses a place that is taken, else it is replaced at once."""
    hidden = path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
    text = np.array(json.dumps(header, allow_nan=False))
    try:
        with hidden.open("xb") as handle:
            np.savez(handle, allow_pickle=False, **{**arrays, HEADER: text})
            handle.flush()
            os.fsync(handle.fileno())
        if new:
            os.link(hidden, path)
        else:
            hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return what was written; a damaged file raises one of `DAMAGE`."""
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    header: dict[str, Any] = json.loads(str(arrays.pop(HEADER)))
    return arrays, header


def section(arrays: Arrays, name: str) -> Arrays:
    """Return the arrays whose names begin with `name/`, without it."""
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
