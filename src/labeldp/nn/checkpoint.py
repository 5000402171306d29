"""The state of a run on disk after each epoch, so that a killed run goes on and ends with the same weights.

A file holds arrays (weights, moving average, optimizer, generators) and one line of JSON, in NumPy's npz format without
pickle. It is written beside its place and renamed, so that the place holds a whole file at any time. Its name carries a
fingerprint of everything that decides the run: data, targets, settings, seed, first weights. Another run in the same
directory (the next stage's) has another name, a finished run is found finished, and nothing foreign is ever resumed.

A fitted estimator's state as plain values and arrays: what a file without pickle can hold.

>>> from torch import nn
>>> arrays_of(nn.Linear(2, 1))["bias"].shape
(1,)

Design notes. Copying, pickling and skops all ask `__getstate__`. For a network by name the state holds its arrays and the
few numbers that rebuild it; a module of the user's own stays as it is, which skops refuses to store and copying needs.

Arrays and a line of JSON in one file, NumPy's npz without pickle: written whole or not at all.

>>> import tempfile, pathlib, numpy as np
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "kept.npz"
>>> write_arrays(path, {"one": np.ones(2)}, {"format": "example"}, new=True)
>>> read_arrays(path)
({'one': array([1., 1.])}, {'format': 'example'})
>>> folder.cleanup()
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from labeldp.errors import Described, LabelDPError, ReleaseError, invalid
from labeldp.nn.inputs import Scale, placed
from labeldp.nn.models import build
from labeldp.nn.presets import Augment, Training, plain
from labeldp.nn.training import Run, Task

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


def arrays_of(network: nn.Module) -> Arrays:
    """Return the weights and statistics of a network by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def give_arrays(network: nn.Module, arrays: Arrays, *, owner: str) -> nn.Module:
    """Put arrays into a network that has the same names and shapes."""
    own = network.state_dict()
    wrong = sorted(own.keys() ^ arrays.keys()) or [n for n in own if tuple(own[n].shape) != arrays[n].shape]
    if wrong:
        got = Described(f"another {wrong[0]}")
        raise invalid(owner, "weights", "be those of this network", got=got, kind=ReleaseError)
    # torch.tensor copies: a loaded network never shares memory with the file or another network.
    network.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    return network


def to_arrays(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state with its network, scale and settings as plain values."""
    packed = dict(state)
    if isinstance(packed.get("preset"), Training):
        packed["preset"] = plain(packed["preset"])
    if isinstance(packed.get("augment"), Augment):
        packed["augment"] = {"augment": vars(packed["augment"]).copy()}
    if "module_" not in state:
        return packed
    packed["training_"] = plain(state["training_"])
    packed["_scale"] = {"shift": state["_scale"].shift, "factor": state["_scale"].factor}
    if isinstance(state["module"], str):
        packed["module_"] = {"hidden": hidden_width(state["module_"]), "arrays": arrays_of(state["module_"])}
    return packed


def from_arrays(packed: dict[str, Any]) -> dict[str, Any]:
    """Return the state that was packed, its network rebuilt."""
    state = dict(packed)
    if isinstance(state.get("preset"), dict):
        state["preset"] = as_training(state["preset"])
    if isinstance(state.get("augment"), dict):
        state["augment"] = Augment(**state["augment"]["augment"])
    if "module_" not in state:
        return state
    state["training_"] = as_training(state["training_"])
    shift = np.asarray(state["_scale"]["shift"], np.float32)
    state["_scale"] = Scale(shift=shift, factor=float(state["_scale"]["factor"]))
    if isinstance(state["module_"], dict):
        state["module_"] = rebuilt(state)
    return state


def rebuilt(state: dict[str, Any]) -> nn.Module:
    """Return the network that a state describes, ready to predict."""
    with torch.random.fork_rng(devices=[]):  # first weights are drawn and overwritten: nobody's generator moves
        network = build(
            state["module"],
            n_classes=len(state["classes_"]),
            sample_shape=tuple(state["_sample_shape"]),
            hidden=state["module_"]["hidden"],
            dropout=state["dropout"],
            sizes=tuple(state["_sizes"]),
        )
    give_arrays(network, state["module_"]["arrays"], owner="NetClassifier").eval()
    return placed(network, sample_shape=tuple(state["_sample_shape"]), device=torch.device(state["device"]))


def hidden_width(network: nn.Module) -> int:
    """Return the width that a network of ours was built with: `hidden` may have been set anew since."""
    first = next((part for part in network.modules() if isinstance(part, nn.Linear)), None)
    return 0 if first is None else int(first.out_features)


def as_training(values: dict[str, Any]) -> Training:
    """Return settings from plain values."""
    return Training(**{**values, "augment": Augment(**values["augment"])})


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
