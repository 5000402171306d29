"""The state of a run on disk after each epoch, so that a killed run goes on and ends with the same weights.

A file holds arrays (weights, moving average, optimizer, generators) and one line of JSON, in NumPy's npz format without
pickle. It is written beside its place and renamed, so that the place holds a whole file at any time. Its name carries a
fingerprint of everything that decides the run: data, targets, settings, seed, first weights. Another run in the same
directory (the next stage's) has another name, a finished run is found finished, and nothing foreign is ever resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldp.errors import LabelDPError, ReleaseError, invalid
from labeldp.nn._arrays import arrays_of, give_arrays
from labeldp.nn._files import DAMAGE, Arrays, read_arrays, section, write_arrays
from labeldp.nn._presets import plain
from labeldp.nn._training import Run, Task

FORMAT = "labeldp training"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The place of one run."""

    path: Path

    @classmethod
    def of(cls, directory: str | os.PathLike[str], run: Run, task: Task, *, seed: int) -> Checkpoints:
        """Return the place of a run in a directory, which is made if it is not there."""
        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = f"The system says: {error.strerror or error}."
            raise invalid("NetClassifier", "checkpoint", "be a directory", got=str(folder), fix=fix) from error
        return cls(path=folder / f"training-{fingerprint(run, task, seed=seed)}.npz")

    def save(self, run: Run) -> None:
        """Write the state in place of the last one; a failure leaves that as it was."""
        try:
            write_arrays(self.path, *packed(run), new=False)
        except OSError as error:
            reason = error.strerror or error
            raise LabelDPError(
                f"NetClassifier: could not write {self.path}: {reason}. The last one is kept."
            ) from error

    def restore(self, run: Run) -> None:
        """Bring a run that has not begun to where the file says it was, if there is one."""
        if not self.path.exists():
            return
        try:
            arrays, header = read_arrays(self.path)
            if header.get("format") != FORMAT or header.get("version") != VERSION:
                raise ReleaseError(f"format {header.get('format')!r}, version {header.get('version')!r}")
            unpack(run, arrays, header)
        except DAMAGE as error:
            raise ReleaseError(
                f"NetClassifier: `checkpoint` {self.path} cannot be read: {error}. "
                "It was left as it is: move it away to train from the beginning."
            ) from error


def fingerprint(run: Run, task: Task, *, seed: int) -> str:
    """Return 32 hexadecimal digits of everything that decides a run."""
    digest = hashlib.blake2b(digest_size=16)
    settings = {"training": plain(task.training), "seed": seed, "kind": task.evidence.kind, "version": VERSION}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(task.evidence.values.numpy()).data)
    for name, array in sorted(arrays_of(run.module).items()):
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    task.inputs.update(digest)
    return digest.hexdigest()


def packed(run: Run) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays by name, and the header."""
    arrays: Arrays = {f"module/{name}": array for name, array in arrays_of(run.module).items()}
    if run.average is not None:
        arrays.update({f"average/{name}": array for name, array in arrays_of(run.average).items()})
    numbers: dict[str, dict[str, Any]] = {}
    for index, slots in run.optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            if isinstance(value, torch.Tensor):
                arrays[f"optimizer/{index}/{slot}"] = value.cpu().numpy()
            else:
                numbers.setdefault(str(index), {})[slot] = value
    arrays["generator/cpu"] = torch.get_rng_state().numpy()
    if device_of(run).type == "cuda":
        arrays["generator/cuda"] = torch.cuda.get_rng_state(device_of(run)).numpy()
    header = {"format": FORMAT, "version": VERSION, "epoch": run.epoch, "history": run.history, "numbers": numbers}
    return arrays, header


def unpack(run: Run, arrays: Arrays, header: dict[str, Any]) -> None:
    """Put a stored state into a run; the generators last, so that nothing is half restored when a part is wrong."""
    device = device_of(run)
    slots: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in header["numbers"].items()}
    for name, array in section(arrays, "optimizer").items():
        index, slot = name.split("/", 1)
        slots.setdefault(int(index), {})[slot] = torch.tensor(array)
    state = run.optimizer.state_dict()
    give_arrays(run.module, section(arrays, "module"), owner="NetClassifier")
    if run.average is not None:
        give_arrays(run.average, section(arrays, "average"), owner="NetClassifier")
    run.optimizer.load_state_dict({"state": slots, "param_groups": state["param_groups"]})
    run.epoch, run.history = int(header["epoch"]), [float(loss) for loss in header["history"]]
    torch.set_rng_state(torch.tensor(arrays["generator/cpu"]))
    if device.type == "cuda":
        torch.cuda.set_rng_state(torch.tensor(arrays["generator/cuda"]), device)


def device_of(run: Run) -> torch.device:
    """Return where the weights are."""
    return next(run.module.parameters()).device
