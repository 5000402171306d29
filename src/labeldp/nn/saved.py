"""A fitted network in a file without pickle: arrays by name and one line of JSON.

>>> import tempfile, pathlib, numpy as np
>>> from labeldp.nn import NetClassifier
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "network.npz"
>>> model = NetClassifier("mlp", hidden=4, epochs=1, batch_size=2).fit(np.eye(4), ["no", "yes", "no", "yes"])
>>> save_network(model, path)
>>> bool((load_network(path).predict_proba(np.eye(4)) == model.predict_proba(np.eye(4))).all())
True
>>> folder.cleanup()

Design notes. A network by name is rebuilt from its name. A module of the user's own is hers to pass again: the file holds
its arrays and no code. `labeldp.learn.save_model` stores networks by name too, inside whatever holds them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labeldp.errors import Described, LabelDPError, ReleaseError, invalid
from labeldp.nn.checkpoint import (
    DAMAGE,
    Arrays,
    arrays_of,
    as_training,
    give_arrays,
    hidden_width,
    read_arrays,
    section,
    write_arrays,
)
from labeldp.nn.classifier import NetClassifier
from labeldp.nn.inputs import Scale, checked_device, made, placed
from labeldp.nn.presets import Augment, Training, plain

FORMAT = "labeldp network"
VERSION = 1
#: Settings that are not the network's: where it was trained and who watched.
LEFT_OUT = ("module", "checkpoint", "progress", "device", "random_state")


def save_network(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted network to a new file."""
    if not isinstance(model, NetClassifier) or not hasattr(model, "module_"):
        raise invalid("save_network", "model", "be a fitted NetClassifier", got=Described(type(model).__name__))
    if model.classes_.dtype.kind == "O":
        raise invalid("save_network", "model", "have numbers or text as classes", got=Described("other objects"))
    arrays = {f"module/{name}": array for name, array in arrays_of(model.module_).items()}
    arrays |= {"classes": model.classes_, "shift": model._scale.shift}  # noqa: SLF001  # one state, in two files
    try:
        write_arrays(Path(path), arrays, described(model), new=True)
    except OSError as error:
        fix = f"The system says: {error.strerror or error}. Nothing was kept."
        raise invalid("save_network", "path", "be a new file in an existing folder", got=str(path), fix=fix) from error


def described(model: NetClassifier) -> dict[str, Any]:
    """Return what rebuilds a network besides its arrays, as JSON values."""
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in LEFT_OUT}
    if isinstance(settings["preset"], Training):
        settings["preset"] = plain(settings["preset"])
    if isinstance(settings["augment"], Augment):
        settings["augment"] = vars(settings["augment"]).copy()
    state = vars(model)
    return {
        "format": FORMAT,
        "version": VERSION,
        "module": model.module if isinstance(model.module, str) else None,
        "settings": settings,
        "hidden": hidden_width(model.module_) or 1,
        "factor": state["_scale"].factor,
        "sample_shape": list(state["_sample_shape"]),
        "sizes": list(state["_sizes"]),
        "n_features_in": state.get("n_features_in_"),
        "training": plain(model.training_),
        "history": list(model.history_),
    }


def load_network(path: str | os.PathLike[str], *, module: Any = None, device: str = "cpu") -> NetClassifier:
    """Return a saved network; `module` is the module or the callable of a network that has no name."""
    place = Path(path)
    if not place.is_file():
        raise invalid("load_network", "path", "be an existing file", got=str(place))
    try:
        arrays, header = read_arrays(place)
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise ReleaseError(f"it is {header.get('format')!r}, version {header.get('version')!r}")
        return restored(arrays, header, module=checked_source(header, module), device=device)
    except LabelDPError as error:
        raise ReleaseError(f"load_network: {place.name}: {error}") from error
    except DAMAGE as error:
        raise ReleaseError(
            f"load_network: {place} is not a readable network: {error}. Ask its owner for it again."
        ) from error


def checked_source(header: dict[str, Any], module: Any) -> Any:
    """Return the name in the file, or the module that the user passes for a network without one."""
    if header["module"] is None and module is None:
        fix = "The file holds its arrays; pass the module, or the callable that makes it."
        raise invalid("load_network", "module", "be given for a network of your own", got=None, fix=fix)
    return header["module"] if module is None else module


def restored(arrays: Arrays, header: dict[str, Any], *, module: Any, device: str) -> NetClassifier:
    """Return the estimator that a file describes."""
    settings = dict(header["settings"])
    if isinstance(settings["preset"], dict):
        settings["preset"] = as_training(settings["preset"])
    if isinstance(settings["augment"], dict):
        settings["augment"] = Augment(**settings["augment"])
    model: NetClassifier = NetClassifier(module, device=device).set_params(**settings)
    sizes, shape = tuple(header["sizes"]), tuple(header["sample_shape"])
    with torch.random.fork_rng(devices=[]):
        network = made(
            module,
            n_classes=len(arrays["classes"]),
            sample_shape=shape,
            hidden=header["hidden"],
            dropout=settings["dropout"],
            sizes=sizes,
        )
    give_arrays(network, section(arrays, "module"), owner="load_network")
    learned = {
        "module_": placed(network.eval(), sample_shape=shape, device=checked_device(device)),
        "classes_": arrays["classes"],
        "training_": as_training(header["training"]),
        "history_": tuple(header["history"]),
        "_scale": Scale(shift=arrays["shift"].astype(np.float32), factor=float(header["factor"])),
        "_sample_shape": shape,
        "_sizes": sizes,
    }
    if header["n_features_in"] is not None:
        learned["n_features_in_"] = header["n_features_in"]
    model.__dict__.update(learned)
    return model
