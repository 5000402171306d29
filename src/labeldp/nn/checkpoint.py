"""Networks and runs on disk, as arrays without pickle: the state after each epoch, so that a killed run can go on.

>>> import tempfile, pathlib, numpy as np
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "kept.npz"
>>> write_arrays(path, {"one": np.ones(2)}, {"format": "example"}, new=True)
>>> read_arrays(path)
({'one': array([1., 1.])}, {'format': 'example'})
>>> folder.cleanup()

A file holds arrays and one line of JSON, in NumPy's npz format without pickle: reading it runs no code. It is written beside
its place and renamed, so that the place holds a whole file at any time. It ends with the SHA-256 of everything before it: a
file with a changed byte is refused. That is no signature; whoever edits a file on purpose can seal it again.

A checkpoint holds the weights, their moving average, the state of the optimizer and of torch's generators. With all of them
a run that goes on ends with the same bits as one that was never stopped. The name of the file carries a fingerprint of
everything that decides the run: data, targets, settings, seed, first weights. So another run in the same directory (that of
the next stage) has another name, a finished run is found finished, and the state of one run is never taken for another's.

Design notes. The names of the arrays are those of torch's `state_dict`; no file names a Python module or class, and code can
move without breaking what users have saved. The fingerprint is part of the format: a change to what it is made of turns
existing checkpoints into files that are never found.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from labeldp.arrays import Array
from labeldp.errors import Described, LabelDPError, ReleaseError, invalid
from labeldp.nn.training import Run, Task
from labeldp.release.unfinished import hidden_name, lock
from labeldp.untrusted import check_archive, check_seal, parse_json, seal_archive

FORMAT = "labeldp training"
VERSION = 1

Arrays: TypeAlias = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The file of one run: `save` after each epoch, `restore` before the first."""

    path: Path

    @classmethod
    def of(cls, directory: str | os.PathLike[str], run: Run, task: Task, *, seed: int) -> Checkpoints:
        """Return the place of a run that has not begun, in a directory, which is made if it is not there."""
        folder = check_place(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = f"The system says: {error.strerror or error}."
            raise invalid("NetClassifier", "checkpoint", "be a directory", got=str(folder), fix=fix) from error
        return cls(path=folder / f"training-{fingerprint(run, task, seed=seed)}.npz")

    def save(self, run: Run) -> None:
        """Write the state in place of the last one; a failure leaves that as it was."""
        try:
            write_arrays(self.path, *pack_run(run), new=False)
        except OSError as error:
            reason = error.strerror or error
            raise LabelDPError(
                f"NetClassifier: could not write {self.path}: {reason}. The last one is kept."
            ) from error

    def restore(self, run: Run) -> None:
        """Bring a run that has not begun to where its file says it was; without a file, change nothing.

        A file that cannot be read is an error, and is left as it is: to train anew is for the user to decide.
        """
        if not self.path.exists():
            return
        try:
            arrays, header = read_arrays(self.path)
            if header.get("format") != FORMAT or header.get("version") != VERSION:
                raise ReleaseError(f"format {header.get('format')!r}, version {header.get('version')!r}")
            unpack_run(run, arrays, header)
        except DAMAGE as error:
            raise ReleaseError(
                f"NetClassifier: `checkpoint` {self.path} cannot be read: {error}. "
                "It was left as it is: move it away to train from the beginning."
            ) from error


def check_place(directory: Any) -> Path:
    """Return the directory of checkpoints as a path; refuse one that could not be made or written to. Nothing is made yet."""
    try:
        folder = Path(directory)
        there = next((place for place in (folder, *folder.absolute().parents) if place.exists()), folder)
    except (TypeError, OSError):
        raise invalid("NetClassifier", "checkpoint", "be the path of a directory", got=directory) from None
    if not there.is_dir():
        fix = f"{there} is a file." if there.exists() else f"There is no {there}."
        raise invalid("NetClassifier", "checkpoint", "be a directory", got=str(folder), fix=fix)
    if not os.access(there, os.W_OK | os.X_OK):
        fix = f"You may not write to {there}."
        raise invalid("NetClassifier", "checkpoint", "be a directory of yours", got=str(folder), fix=fix)
    return folder


def fingerprint(run: Run, task: Task, *, seed: int) -> str:
    """Return 32 hexadecimal digits of everything that decides a run that has not begun."""
    digest = hashlib.blake2b(digest_size=16)
    settings = {"training": task.training.to_json(), "seed": seed, "kind": task.evidence.kind, "version": VERSION}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    task.evidence.update_digest(digest)
    for name, array in sorted(get_arrays(run.module).items()):
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    task.inputs.update_digest(digest)
    return digest.hexdigest()


def pack_run(run: Run) -> tuple[Arrays, dict[str, Any]]:
    """Return the state of a run and of torch's generators: arrays by name, and the header."""
    arrays: Arrays = {f"module/{name}": array for name, array in get_arrays(run.module).items()}
    if run.average is not None:
        arrays.update({f"average/{name}": array for name, array in get_arrays(run.average).items()})
    numbers: dict[str, dict[str, Any]] = {}
    for index, slots in run.optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            if isinstance(value, torch.Tensor):
                arrays[f"optimizer/{index}/{slot}"] = value.cpu().numpy()
            else:
                numbers.setdefault(str(index), {})[slot] = value
    arrays["generator/cpu"] = torch.get_rng_state().numpy()
    device = next(run.module.parameters()).device
    if device.type == "cuda":
        arrays["generator/cuda"] = torch.cuda.get_rng_state(device).numpy()
    header = {"format": FORMAT, "version": VERSION, "epoch": run.epoch, "history": run.history, "numbers": numbers}
    return arrays, header


def unpack_run(run: Run, arrays: Arrays, header: dict[str, Any]) -> None:
    """Put a stored state into a run; the generators last, so that nothing is half restored when a part is wrong."""
    slots: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in header["numbers"].items()}
    for name, array in select_section(arrays, "optimizer").items():
        index, slot = name.split("/", 1)
        slots.setdefault(int(index), {})[slot] = torch.tensor(array)
    state = run.optimizer.state_dict()
    set_arrays(run.module, select_section(arrays, "module"))
    if run.average is not None:
        set_arrays(run.average, select_section(arrays, "average"))
    run.optimizer.load_state_dict({"state": slots, "param_groups": state["param_groups"]})
    run.epoch, run.history = int(header["epoch"]), [float(loss) for loss in header["history"]]
    torch.set_rng_state(torch.tensor(arrays["generator/cpu"]))
    device = next(run.module.parameters()).device
    if device.type == "cuda":
        torch.cuda.set_rng_state(torch.tensor(arrays["generator/cuda"]), device)


# ------------------------------------------------------------------------------------------- networks as arrays by name


def get_arrays(network: nn.Module) -> Arrays:
    """Return copies of the weights and BatchNorm statistics of a network, by their names in torch.

    >>> get_arrays(nn.Linear(2, 1))["bias"].shape
    (1,)
    """
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def check_arrays(network: nn.Module, arrays: Arrays) -> None:
    """Refuse arrays unless their names and shapes are those of the network."""
    own = network.state_dict()
    wrong = sorted(own.keys() ^ arrays.keys()) or [n for n in own if tuple(own[n].shape) != arrays[n].shape]
    if wrong:
        got = Described(f"another {wrong[0]}")
        raise invalid("NetClassifier", "weights", "be those of this network", got=got, kind=ReleaseError)


def set_arrays(network: nn.Module, arrays: Arrays) -> None:
    """Put arrays into a network; refuse them unless the names and shapes are those of the network."""
    check_arrays(network, arrays)
    # torch.tensor copies: a loaded network never shares memory with the file or another network.
    network.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})


# ---------------------------------------------------------------------------------------------------------------- files

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
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_arrays(path: Path, arrays: Arrays, header: dict[str, Any], *, new: bool) -> None:
    """Write arrays and a header of JSON values to one file, whole or not at all.

    The bytes go to a hidden file beside the place, are forced to the disk, and take the place at once. With `new` a place
    that is taken is an OSError; without it the file there is replaced.
    """
    hidden = path.with_name(hidden_name(path.name))
    text = np.array(json.dumps({**header, "sealed": True}, allow_nan=False))
    box = io.BytesIO()
    np.savez(box, allow_pickle=False, **{**arrays, HEADER: text})
    try:
        with hidden.open("xb") as handle:
            lock(handle.fileno())
            handle.write(seal_archive(box.getvalue()))
            handle.flush()
            os.fsync(handle.fileno())
        if new:
            os.link(hidden, path)
        else:
            hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the header of a file; a damaged one raises one of `DAMAGE`.

    What its members declare is compared with its size first. A file that was written with a seal must have it; files of
    labeldp 0.1 before seals say nothing of one.
    """
    if not path.is_file():  # a pipe, or a device such as /dev/zero, has no end to read to
        raise ValueError("it is no file")
    data = path.read_bytes()
    sealed = check_seal(data)
    check_archive(data)
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    header: dict[str, Any] = parse_json(str(arrays.pop(HEADER)))
    if header.pop("sealed", False) and not sealed:
        raise ValueError("it was changed after it was written: its seal is gone")
    return arrays, header


def select_section(arrays: Arrays, name: str) -> Arrays:
    """Return the arrays whose names begin with `name/`, without it."""
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
