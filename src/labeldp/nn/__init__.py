"""Networks: PyTorch behind scikit-learn's methods, driven by `LabelPrivateClassifier` like any other learner.

>>> import labeldp.nn
>>> labeldp.nn.NetClassifier("mlp", hidden=64).hidden
64

Needs the extra `labeldp[torch]`; without it, importing this package says so.

Design notes. Names are fetched when they are first asked for, so that one network does not load what another needs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from labeldp.errors import missing_extra, nearest

if find_spec("torch") is None:
    raise missing_extra("torch", "torch", "labeldp.nn")

if TYPE_CHECKING:
    from labeldp.nn.byol import BYOL, ModuleFeatures
    from labeldp.nn.classifier import NetClassifier
    from labeldp.nn.dpsgd import DPSGDClassifier
    from labeldp.nn.presets import Augment, PaperPreset, Training, cpu_preset, paper_preset
    from labeldp.nn.saved import load_network, save_network

_FILE_OF = {
    "BYOL": "byol",
    "Augment": "presets",
    "DPSGDClassifier": "dpsgd",
    "ModuleFeatures": "byol",
    "NetClassifier": "classifier",
    "PaperPreset": "presets",
    "Training": "presets",
    "cpu_preset": "presets",
    "load_network": "saved",
    "paper_preset": "presets",
    "save_network": "saved",
}

__all__ = [
    "BYOL",
    "Augment",
    "DPSGDClassifier",
    "ModuleFeatures",
    "NetClassifier",
    "PaperPreset",
    "Training",
    "cpu_preset",
    "load_network",
    "paper_preset",
    "save_network",
]


def __getattr__(name: str) -> object:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'labeldp.nn' has no attribute {name!r}. {nearest(name, _FILE_OF)}")
    return getattr(import_module(f"labeldp.nn.{_FILE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FILE_OF])
