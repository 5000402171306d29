"""Networks: PyTorch behind scikit-learn's methods, driven by `LabelPrivateClassifier` like any other learner.

>>> import labeldp.nn
>>> labeldp.nn.NetClassifier("mlp", hidden=64).hidden
64

| file | what it holds |
|---|---|
| `classifier` | `NetClassifier` |
| `inputs` | examples and targets: checked, standardised, taken in batches |
| `models` | networks by name, and the user's own |
| `fast_cnn` | "fast-cnn", the network that trains in minutes: its layers, its optimizer, its cost |
| `presets` | `Training`, `Augment`, the settings for a CPU and of the paper |
| `losses` | `ForwardLoss`, `UnbiasedLoss`, `PosteriorLoss`, `ReleasedDataset`: for a loop of your own, and for the one here |
| `training` | the loop and its learning rates |
| `pretraining` | what a network can learn from images alone |
| `checkpoint` | the state of a run on disk, arrays without pickle |
| `state` | a fitted network as plain values and arrays |
| `saved` | `save_network` and `load_network` |
| `dpsgd` | `DPSGDClassifier`: the baseline of whole-record privacy |

Needs the extra `labeldp[torch]`; without it, importing this package says so. `DPSGDClassifier` also needs the extra
`labeldp[opacus]`, and says so when it is fitted.

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
    from labeldp.nn.classifier import NetClassifier
    from labeldp.nn.dpsgd import DPSGDClassifier
    from labeldp.nn.losses import ForwardLoss, PosteriorLoss, ReleasedDataset, UnbiasedLoss
    from labeldp.nn.presets import Augment, PaperPreset, Training, cpu_preset, paper_preset
    from labeldp.nn.saved import load_network, save_network

_FILE_OF = {
    "Augment": "presets",
    "DPSGDClassifier": "dpsgd",
    "ForwardLoss": "losses",
    "NetClassifier": "classifier",
    "PaperPreset": "presets",
    "PosteriorLoss": "losses",
    "ReleasedDataset": "losses",
    "Training": "presets",
    "UnbiasedLoss": "losses",
    "cpu_preset": "presets",
    "load_network": "saved",
    "paper_preset": "presets",
    "save_network": "saved",
}

__all__ = [
    "Augment",
    "DPSGDClassifier",
    "ForwardLoss",
    "NetClassifier",
    "PaperPreset",
    "PosteriorLoss",
    "ReleasedDataset",
    "Training",
    "UnbiasedLoss",
    "cpu_preset",
    "load_network",
    "paper_preset",
    "save_network",
]


#: Names that were here once, and what does their work.
_GONE = {
    "BYOL": (
        "Nothing showed that it helps in the time that a CPU has. Without labels, use `labeldp.features.PatchFeatures` (and "
        "`labeldp.priors.ClusterPrior` on it), or an encoder of your own in `labeldp.features.Embeddings`."
    ),
    "ModuleFeatures": "Use `labeldp.features.Embeddings`.",
}


def __getattr__(name: str) -> object:
    if name in _GONE:  # ImportError: `from labeldp.nn import name` would replace the words of any AttributeError
        raise ImportError(f"labeldp.nn has no `{name}` any more. {_GONE[name]}", name=__name__)
    if name not in _FILE_OF:
        raise AttributeError(f"module 'labeldp.nn' has no attribute {name!r}. {nearest(name, _FILE_OF)}")
    return getattr(import_module(f"labeldp.nn.{_FILE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FILE_OF])
