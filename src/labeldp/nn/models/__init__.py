"""Networks by name: each is a function of the number of classes and the shape of one example.

>>> sorted(MODELS)
['inception', 'mlp', 'ncf', 'resnet18', 'small-cnn']
>>> build("mlp", n_classes=3, sample_shape=(5,), hidden=8)[-1]
Linear(in_features=8, out_features=3, bias=True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from labeldp.errors import Described, invalid, nearest
from labeldp.nn.models._inception import SmallInception
from labeldp.nn.models._mlp import mlp
from labeldp.nn.models._ncf import NeuralCollaborativeFiltering
from labeldp.nn.models._resnet import ResNet18
from labeldp.nn.models._small_cnn import small_cnn


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a network is built for: `sizes` counts users and items where the input is their numbers."""

    n_classes: int
    sample_shape: tuple[int, ...]
    hidden: int
    dropout: float
    sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A builder, and what an example must look like: its axes and the least side of an image."""

    make: Callable[[Wanted], nn.Module]
    axes: int
    least_side: int = 1
    expects: str


MODELS: dict[str, Model] = {
    "mlp": Model(
        make=lambda w: mlp(w.sample_shape[0], n_classes=w.n_classes, hidden=w.hidden, dropout=w.dropout),
        axes=1,
        expects="rows (n, d), or views (n, views, d)",
    ),
    "small-cnn": Model(
        make=lambda w: small_cnn(w.sample_shape[0], n_classes=w.n_classes),
        axes=3,
        least_side=8,
        expects="images (n, channels, height, width) of at least 8 x 8",
    ),
    "resnet18": Model(
        make=lambda w: ResNet18(w.sample_shape[0], n_classes=w.n_classes),
        axes=3,
        least_side=8,
        expects="images (n, channels, height, width) of at least 8 x 8",
    ),
    "inception": Model(
        make=lambda w: SmallInception(w.sample_shape[0], n_classes=w.n_classes),
        axes=3,
        least_side=8,
        expects="images (n, channels, height, width) of at least 8 x 8",
    ),
    "ncf": Model(
        make=lambda w: NeuralCollaborativeFiltering(*w.sizes, n_classes=w.n_classes, dropout=w.dropout),
        axes=1,
        expects="pairs (n, 2) of user and item numbers >= 0",
    ),
}


def build(
    name: str,
    *,
    n_classes: int,
    sample_shape: tuple[int, ...],
    hidden: int = 256,
    dropout: float = 0.2,
    sizes: tuple[int, ...] = (),
) -> nn.Module:
    """Return a new network, its weights from torch's generator as it stands."""
    check_sample(name, sample_shape)
    wanted = Wanted(n_classes=n_classes, sample_shape=sample_shape, hidden=hidden, dropout=dropout, sizes=sizes)
    return MODELS[name].make(wanted)


def check_sample(name: str, sample_shape: tuple[int, ...]) -> None:
    """Refuse a name that is not known, and examples of a shape that its network cannot take."""
    if name not in MODELS:
        raise invalid("NetClassifier", "module", "be a known network", got=name, fix=nearest(name, MODELS))
    model = MODELS[name]
    small = model.axes == 3 and min(sample_shape[1:], default=0) < model.least_side
    if len(sample_shape) != model.axes or small or (name == "ncf" and sample_shape != (2,)):
        got = Described(f"examples of shape {sample_shape}")
        raise invalid("NetClassifier", "X", f"be {model.expects} for {name!r}", got=got)


__all__ = [
    "MODELS",
    "NeuralCollaborativeFiltering",
    "ResNet18",
    "SmallInception",
    "build",
    "check_sample",
    "mlp",
    "small_cnn",
]
