"""From what the user calls a network to a network: a name, a module (copied) or a factory, checked against the data."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from labeldp.errors import Described, invalid
from labeldp.nn._inputs import Inputs
from labeldp.nn.models import MODELS, build, check_sample


def name_of(module: Any) -> str | None:
    """Return the name of a network by name, None for the user's own."""
    return module if isinstance(module, str) else None


def made(
    module: Any, *, n_classes: int, sample_shape: tuple[int, ...], hidden: int, dropout: float, sizes: tuple[int, ...]
) -> nn.Module:
    """Return a new network; torch's generator decides its first weights unless it is a module, which keeps its own."""
    if isinstance(module, str):
        return build(
            module, n_classes=n_classes, sample_shape=sample_shape, hidden=hidden, dropout=dropout, sizes=sizes
        )
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    network = module(n_classes=n_classes, sample_shape=sample_shape) if callable(module) else None
    if not isinstance(network, nn.Module):
        names = ", ".join(repr(name) for name in MODELS)
        got = module if network is None else Described(f"a callable that returns {type(network).__name__}")
        fix = f"Names are {names}; a callable takes n_classes and sample_shape."
        raise invalid(
            "NetClassifier", "module", "be a name, a torch module or a callable that makes one", got=got, fix=fix
        )
    return network


def check_module(module: Any) -> None:
    """Refuse a name that is not known before anything else is looked at."""
    if isinstance(module, str) and module not in MODELS:
        check_sample(module, ())


def checked_network(network: nn.Module, inputs: Inputs, *, n_classes: int) -> nn.Module:
    """Return the network if it answers two examples with one logit per class."""
    logits = tried(network, inputs.batch(torch.arange(min(2, len(inputs))), view=0))
    if logits.ndim != 2 or logits.shape[1] != n_classes:
        got = Described(f"an output of shape {tuple(logits.shape)}")
        fix = "The last layer has one output per class, and no softmax."
        raise invalid("NetClassifier", "module", f"return (n, {n_classes}) logits", got=got, fix=fix)
    return network


def tried(network: nn.Module, batch: Tensor) -> Tensor:
    """Return what a network says to a batch, its complaints in our words."""
    network.eval()
    try:
        with torch.no_grad():
            answer = network(batch)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        got = Described(f"examples of shape {tuple(batch.shape[1:])}")
        raise invalid("NetClassifier", "X", "be what the module takes", got=got, fix=f"It says: {first}") from error
    if not isinstance(answer, Tensor):
        fix = "Wrap it so that it returns the logits alone."
        raise invalid("NetClassifier", "module", "return a tensor", got=type(answer).__name__, fix=fix)
    return answer


def last_linear(network: nn.Module) -> nn.Linear:
    """Return the last linear layer, in the order in which the network was put together."""
    found = [part for part in network.modules() if isinstance(part, nn.Linear)]
    if not found:
        fix = "Hidden features are what feeds the last nn.Linear."
        raise invalid("NetClassifier", "module", "have a linear layer", got=type(network).__name__, fix=fix)
    return found[-1]


def placed(network: nn.Module, *, sample_shape: tuple[int, ...], device: torch.device) -> nn.Module:
    """Return the network on its device; for images in the order of memory that convolutions on a CPU prefer.

    The order decides how sums are rounded, so a network that was stored gets it back.
    """
    network = network.to(device)
    if len(sample_shape) != 3:
        return network
    ordered: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    return ordered


def checked_device(device: Any) -> torch.device:
    """Return a device that is there."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        fix = "For example 'cpu' or 'cuda'."
        raise invalid("NetClassifier", "device", "be a torch device", got=device, fix=fix) from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(chosen.type, False):
        fix = "This torch sees no such device here; use device='cpu'."
        raise invalid("NetClassifier", "device", "be present", got=str(device), fix=fix)
    return chosen
