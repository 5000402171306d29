"""A fitted `NetClassifier` as plain values and arrays, and back: what copying, pickling, skops and files of networks have in common.

A network by name is rebuilt from its name and a few numbers, so that what is stored cannot bring code. A module of the user's own
stays a module in a copy, which skops refuses to store; a file has its arrays alone.

>>> state = {"module": "mlp", "preset": "cpu", "augment": Augment(flip=True)}
>>> pack_state(state)["augment"]
{'augment': {'crop': 0.0, 'flip': True, 'cutout': 0.0}}
>>> unpack_state(pack_state(state))["augment"] == state["augment"]
True
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from labeldp.nn.checkpoint import check_arrays, get_arrays, set_arrays
from labeldp.nn.fast_cnn import FastCNN
from labeldp.nn.inputs import Scale
from labeldp.nn.models import Ensemble, list_members, make_network, place_network
from labeldp.nn.presets import Augment, Training

#: Settings that networks stored by labeldp 0.1 do not have.
NEWER_SETTINGS: dict[str, Any] = {
    "image_shape": None,
    "cpu_minutes": None,
    "pretrain": 0,
    "members": None,
    "precision": None,
}


def pack_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a `NetClassifier` with its network, scale and settings as plain values and arrays.

    A module of the user's own stays as it is: its code is not ours to name.
    """
    packed = dict(state)
    if isinstance(packed.get("preset"), Training):
        packed["preset"] = packed["preset"].to_json()
    if isinstance(packed.get("augment"), Augment):
        packed["augment"] = {"augment": vars(packed["augment"]).copy()}
    if "module_" not in state:
        return packed
    packed["training_"] = state["training_"].to_json()
    packed["_scale"] = vars(state["_scale"]).copy()
    if isinstance(state["module"], str):
        network = state["module_"]
        packed["module_"] = {
            "hidden": find_width(network),
            "members": len(list_members(network)),
            "arrays": get_arrays(network),
        }
    return packed


def find_width(network: nn.Module) -> int:
    """Return the width that a network of ours was built with: the setting `hidden` may have been changed since."""
    network = list_members(network)[0]
    if isinstance(network, FastCNN):
        return network.width
    first = next((part for part in network.modules() if isinstance(part, nn.Linear)), None)
    return 0 if first is None else int(first.out_features)


def unpack_state(packed: dict[str, Any]) -> dict[str, Any]:
    """Return the state that `pack_state` packed, its network rebuilt and ready to predict."""
    state = {**NEWER_SETTINGS, **packed}
    if isinstance(state.get("preset"), dict):
        state["preset"] = Training.from_json(state["preset"])
    if isinstance(state.get("augment"), dict):
        state["augment"] = Augment(**state["augment"]["augment"])
    if "module_" not in state:
        return state
    state["training_"] = Training.from_json(state["training_"])
    shift = np.asarray(state["_scale"]["shift"], np.float32)
    pixels = state["_scale"].get("pixels")  # labeldp 0.1 did not keep them
    pixels = None if pixels is None else (float(pixels[0]), float(pixels[1]))
    state["_scale"] = Scale(shift=shift, factor=float(state["_scale"]["factor"]), pixels=pixels)
    batch = (1, *state["_sample_shape"])
    if np.broadcast_shapes(shift.shape, batch) != batch:
        raise ValueError(f"a shift of shape {shift.shape} fits no examples of shape {batch[1:]}")
    width = state.get("n_features_in_", 1)
    if not isinstance(width, (int, np.integer)) or isinstance(width, bool) or width < 1:
        raise ValueError(f"a number of features cannot be {width!r}")
    if isinstance(state["module_"], dict):
        # Whatever else can be called, a type that a file names for example, would be called here.
        if not isinstance(state["module"], str):
            raise TypeError(f"its network has no name, but a {type(state['module']).__name__}")
        state["module_"] = rebuild_network(state)
    return state


def rebuild_network(state: dict[str, Any]) -> nn.Module:
    """Return the network of a state whose `module_` is packed: made anew, then given its arrays.

    `module` is a name, or what the caller, and no file, gave for it.
    """
    shape, members = tuple(state["_sample_shape"]), state["module_"].get("members", 1)  # labeldp 0.1 had one
    # A file says how many: no more than it has arrays of.
    if not isinstance(members, int) or not 1 <= members <= max(1, len(state["module_"]["arrays"])):
        raise ValueError(f"a number of networks cannot be {members!r}")
    make_one = partial(
        make_network,
        state["module"],
        n_classes=len(state["classes_"]),
        sample_shape=shape,
        hidden=state["module_"]["hidden"],
        dropout=state["dropout"],
        sizes=tuple(state["_sizes"]),
    )

    def make() -> nn.Module:
        return make_one() if members == 1 else Ensemble([make_one() for _ in range(members)])

    if isinstance(state["module"], str):
        # A file says how wide its network is. On this device tensors have a shape and no memory: the network is compared
        # with the arrays that are there before it is allocated.
        with torch.device("meta"):
            check_arrays(make(), state["module_"]["arrays"])
    with torch.random.fork_rng(devices=[]):  # first weights are drawn and overwritten: nobody's generator moves
        network = make()
    set_arrays(network, state["module_"]["arrays"])
    return place_network(network.eval(), sample_shape=shape, device=torch.device(state["device"]))
