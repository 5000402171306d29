"""A fitted estimator's state as plain values and arrays: what a file without pickle can hold.

>>> from torch import nn
>>> arrays_of(nn.Linear(2, 1))["bias"].shape
(1,)

Design notes. Copying, pickling and skops all ask `__getstate__`. For a network by name the state holds its arrays and the
few numbers that rebuild it; a module of the user's own stays as it is, which skops refuses to store and copying needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from labeldp.errors import Described, ReleaseError, invalid
from labeldp.nn._augment import Augment
from labeldp.nn._files import Arrays
from labeldp.nn._inputs import Scale
from labeldp.nn._modules import placed
from labeldp.nn._presets import Training, plain
from labeldp.nn.models import build


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
