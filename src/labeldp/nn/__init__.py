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
    from labeldp.nn._augment import Augment
    from labeldp.nn._byol import BYOL
    from labeldp.nn._classifier import NetClassifier
    from labeldp.nn._dpsgd import DPSGDClassifier
    from labeldp.nn._features import ModuleFeatures
    from labeldp.nn._presets import PaperPreset, Training, cpu_preset, paper_preset
    from labeldp.nn._saved import load_network, save_network

_FILE_OF = {
    "BYOL": "_byol",
    "Augment": "_augment",
    "DPSGDClassifier": "_dpsgd",
    "ModuleFeatures": "_features",
    "NetClassifier": "_classifier",
    "PaperPreset": "_presets",
    "Training": "_presets",
    "cpu_preset": "_presets",
    "load_network": "_saved",
    "paper_preset": "_presets",
    "save_network": "_saved",
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
