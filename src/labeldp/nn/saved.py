"""Files of networks: arrays by name and one line of JSON, without code.

>>> import numpy as np, pathlib, tempfile
>>> X, y = np.repeat([[-1.0, 0.5], [1.0, -0.5]], 40, axis=0), np.repeat(["no", "yes"], 40)
>>> model = NetClassifier("mlp", hidden=8, epochs=20, batch_size=16).fit(X, y)
>>> folder = tempfile.TemporaryDirectory()
>>> save_network(model, pathlib.Path(folder.name) / "network.npz")
>>> loaded = load_network(pathlib.Path(folder.name) / "network.npz")
>>> bool((loaded.predict_proba(X) == model.predict_proba(X)).all())
True
>>> folder.cleanup()

Design notes. A file holds what `labeldp.nn.state` packs, and names no Python module or class: a module of the user's own is hers to
pass again to `load_network`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from labeldp.arrays import Array
from labeldp.errors import Described, LabelDPError, ReleaseError, invalid
from labeldp.nn.checkpoint import DAMAGE, get_arrays, read_arrays, select_section, write_arrays
from labeldp.nn.classifier import NetClassifier
from labeldp.nn.models import check_device, list_members
from labeldp.nn.state import find_width, pack_state, rebuild_network
from labeldp.release.templates import is_owners

FORMAT = "labeldp network"
VERSION = 1
#: Settings that are not written beside those of the owner (`is_owners`: places, seeds, who watched): where it was trained.
LEFT_OUT = ("module", "device")


def save_network(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted `NetClassifier` to a new npz file: its arrays by name and one line of JSON.

    Of a network of the user's own the file holds the arrays, not the code. A path that is taken is refused, and so are
    classes that are neither numbers nor text. A file is written whole or not at all.
    """
    if not isinstance(model, NetClassifier) or not hasattr(model, "module_"):
        raise invalid("save_network", "model", "be a fitted NetClassifier", got=Described(type(model).__name__))
    if model.classes_.dtype.kind == "O":
        raise invalid("save_network", "model", "have numbers or text as classes", got=Described("other objects"))
    state = pack_state(dict(vars(model)))
    settings = _without_owner({name: state[name] for name in model.get_params(deep=False)})
    if isinstance(settings["augment"], dict):
        settings["augment"] = settings["augment"]["augment"]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "module": model.module if isinstance(model.module, str) else None,
        "settings": settings,
        "hidden": find_width(model.module_) or 1,
        "members": len(list_members(model.module_)),
        "factor": state["_scale"]["factor"],
        "pixels": state["_scale"]["pixels"],
        "sample_shape": list(state["_sample_shape"]),
        "sizes": list(state["_sizes"]),
        "n_features_in": state.get("n_features_in_"),
        "training": state["training_"],
        "history": list(state["history_"]),
    }
    arrays = {f"module/{name}": array for name, array in get_arrays(model.module_).items()}
    arrays |= {"classes": model.classes_, "shift": state["_scale"]["shift"]}
    try:
        write_arrays(Path(path), arrays, header, new=True)
    except OSError as error:
        fix = f"The system says: {error.strerror or error}. Nothing was kept."
        raise invalid("save_network", "path", "be a new file in an existing folder", got=str(path), fix=fix) from error


def load_network(path: str | os.PathLike[str], *, module: Any = None, device: str = "cpu") -> NetClassifier:
    """Return a network that `save_network` wrote, ready to predict on `device`.

    `module` is the module, or the callable that makes it, of a network that has no name. A file that is damaged, or not
    one of ours, is a ReleaseError; nothing in a file is run.
    """
    place = Path(path)
    if not place.is_file():
        raise invalid("load_network", "path", "be an existing file", got=str(place))
    try:
        arrays, header = read_arrays(place)
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise ReleaseError(f"it is {header.get('format')!r}, version {header.get('version')!r}")
        if header["module"] is None and module is None:
            fix = "The file holds its arrays; pass the module, or the callable that makes it."
            raise invalid("load_network", "module", "be given for a network of your own", got=None, fix=fix)
        check_device(device)
        settings = _without_owner(header["settings"])  # a file says what it likes, a folder to write to for example
        if isinstance(settings["augment"], dict):
            settings["augment"] = {"augment": settings["augment"]}
        model = NetClassifier(header["module"] if module is None else module, device=device, **settings)
        state = {**vars(model), **_read_fitted(arrays, header)}
        if module is not None:  # hers to make; what a file says of a module is a name
            state["module_"] = rebuild_network(state)
        model.__setstate__(state)
    except LabelDPError as error:
        raise ReleaseError(f"load_network: {place.name}: {error}") from error
    except DAMAGE as error:
        raise ReleaseError(
            f"load_network: {place} is not a readable network: {error}. Ask its owner for it again."
        ) from error
    return model


def _without_owner(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in LEFT_OUT and not is_owners(name)}


def _read_fitted(arrays: dict[str, Array], header: dict[str, Any]) -> dict[str, Any]:
    """Return the fitted attributes that a file describes, packed as `pack_state` packs them."""
    fitted = {
        "module_": {
            "hidden": header["hidden"],
            "members": header.get("members", 1),
            "arrays": select_section(arrays, "module"),
        },
        "classes_": arrays["classes"],
        "training_": header["training"],
        "history_": tuple(header["history"]),
        "_scale": {"shift": arrays["shift"], "factor": header["factor"], "pixels": header.get("pixels")},
        "_sample_shape": tuple(header["sample_shape"]),
        "_sizes": tuple(header["sizes"]),
    }
    return fitted if header["n_features_in"] is None else {**fitted, "n_features_in_": header["n_features_in"]}
