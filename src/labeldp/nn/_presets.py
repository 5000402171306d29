"""Settings of training: what `None` in a `NetClassifier` stands for, on a CPU and in the paper.

>>> cpu_preset("mlp").optimizer, cpu_preset("mlp").batch_size
('adamw', 256)
>>> paper = paper_preset("cifar10", epsilon=2.0, stages=2)
>>> paper.module, paper.stages, paper.mixup, paper.training.schedule
('resnet18', (0.7, 0.3), (8.0, 8.0), 'piecewise')

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), supplement,
sections B (training) and E (hyperparameters).

Design notes. The paper's l2 coefficient of 1e-4 is taken as the optimizer's weight decay. It prints a batch size of 265 for
28 x 28 images; it is kept. Mixup, the first stage's share and the temperature stand at epsilon 1, 2, 4 and 8 and are
interpolated between them, constant outside. The ratings network is "trained similarly" to CIFAR's: its peak rate is that
of CIFAR-100, scaled with the batch, which is our reading.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from labeldp._validate import check_choice, check_epsilon, check_integer, check_positive, check_real
from labeldp.errors import invalid
from labeldp.nn._augment import Augment, as_augment

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("linear", "piecewise", "constant")

#: Where the paper tuned, and what it found there.
PAPER_EPSILONS = (1.0, 2.0, 4.0, 8.0)
FIRST_SHARE = (0.8, 0.7, 0.6, 0.6)
TEMPERATURE = (0.6, 0.5, 0.5, 0.5)
FIRST_MIXUP = (16.0, 8.0, 8.0, 4.0)
LATER_MIXUP = (8.0, 8.0, 4.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network is trained.

    `epochs` passes, and more where those would be fewer than `least_steps` steps (small tables). `warm_up` is the share of
    the steps in which the rate grows from 0 to `lr`. `mixup` is the alpha of Beta(alpha, alpha), 0 for none; `ema` the
    decay of an average of the weights that predicts in their place, 0 for none.
    """

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    optimizer: str = "adamw"
    schedule: str = "linear"
    warm_up: float = 0.1
    mixup: float = 0.0
    augment: Augment = Augment()  # noqa: RUF009  # frozen
    ema: float = 0.0
    least_steps: int = 0

    def checked(self, owner: str) -> Training:
        """Return these settings if each makes sense."""
        check_integer(owner, "epochs", self.epochs, least=1)
        check_integer(owner, "batch_size", self.batch_size, least=2, fix="BatchNorm needs two examples to compare.")
        check_positive(owner, "lr", self.lr)
        check_choice(owner, "optimizer", self.optimizer, OPTIMIZERS)
        check_choice(owner, "schedule", self.schedule, SCHEDULES)
        for name in ("weight_decay", "mixup"):
            value = check_real(owner, name, getattr(self, name))
            if not 0 <= value < float("inf"):
                raise invalid(owner, name, "be finite and >= 0", got=value)
        for name in ("ema", "warm_up"):
            value = check_real(owner, name, getattr(self, name))
            if not 0 <= value < 1:
                raise invalid(owner, name, "be in [0, 1)", got=value)
        return self

    def passes(self, steps_per_epoch: int) -> int:
        """Return the number of epochs for a data set of this many steps."""
        return max(self.epochs, -(-self.least_steps // steps_per_epoch))


#: The rates and lengths that RECIPES measured for the MLP; the others are plain choices that train in minutes.
CPU = {
    "mlp": Training(epochs=6, batch_size=256, lr=3e-3, weight_decay=1e-2, least_steps=300),
    "small-cnn": Training(epochs=5, batch_size=128, lr=3e-3, weight_decay=1e-2, least_steps=200),
    "resnet18": Training(epochs=3, batch_size=128, lr=1e-3, weight_decay=1e-2),
    "inception": Training(epochs=3, batch_size=128, lr=1e-3, weight_decay=1e-2),
    "ncf": Training(epochs=6, batch_size=4096, lr=3e-3, weight_decay=1e-2, least_steps=200),
}

PAPER_AUGMENT = Augment(crop=0.125, flip=True, cutout=0.5)
_GREY = Training(
    epochs=40,
    batch_size=265,
    lr=0.02,
    weight_decay=1e-4,
    optimizer="sgd",
    warm_up=0.15,
    augment=PAPER_AUGMENT,
)
_COLOUR = replace(_GREY, epochs=200, batch_size=512, lr=0.4, schedule="piecewise")
PAPER: dict[str, tuple[str, Training]] = {
    "mnist": ("inception", _GREY),
    "fashion-mnist": ("inception", _GREY),
    "kmnist": ("inception", _GREY),
    "cifar10": ("resnet18", _COLOUR),
    "cifar100": ("resnet18", replace(_COLOUR, batch_size=256, lr=0.2)),
    "movielens-1m": ("ncf", replace(_COLOUR, batch_size=128, lr=0.1, augment=Augment())),
}
#: Which of the paper's data sets a network by name was made for, where nothing else is said.
PAPER_FOR = {"resnet18": "cifar10", "ncf": "movielens-1m"}


@dataclass(frozen=True, kw_only=True)
class PaperPreset:
    """The paper's run of one data set at one epsilon: network, shares of the stages, temperature, mixup of each stage.

    `NetClassifier(preset.module, preset=preset.training)` with `mixup` set per stage is its network.
    """

    module: str
    stages: tuple[float, ...]
    temperature: float
    mixup: tuple[float, ...]
    training: Training


def cpu_preset(module: str | None) -> Training:
    """Return the settings that train on a CPU; a network that is not one of ours gets the small CNN's."""
    return CPU.get(module or "small-cnn", CPU["small-cnn"])


def paper_preset(data: str, *, epsilon: float, stages: int = 2) -> PaperPreset:
    """Return the paper's settings for a data set, an epsilon and a number of stages."""
    check_choice("paper_preset", "data", data, tuple(PAPER))
    budget = check_epsilon("paper_preset", epsilon)
    count = check_integer("paper_preset", "stages", stages, least=1, most=100)
    module, training = PAPER[data]
    first = 1.0 if count == 1 else round(_between(FIRST_SHARE, budget), 6)
    later = () if count == 1 else (round((1 - first) / (count - 1), 6),) * (count - 1)
    alphas = (_between(FIRST_MIXUP, budget), *(_between(LATER_MIXUP, budget),) * (count - 1))
    return PaperPreset(
        module=module,
        stages=(first, *later),
        temperature=_between(TEMPERATURE, budget),
        mixup=alphas,
        training=replace(training, mixup=alphas[0]),
    )


def resolved(owner: str, preset: Any, module: str | None, changes: dict[str, Any]) -> Training:
    """Return the preset with every setting that is not None in its place.

    A preset is "cpu", "paper" (the settings of the data set that the network was made for, mixup 8) or a `Training`.
    """
    if isinstance(preset, Training):
        base = preset
    elif check_choice(owner, "preset", preset, ("cpu", "paper")) == "cpu":
        base = cpu_preset(module)
    else:
        base = replace(PAPER[PAPER_FOR.get(module or "", "fashion-mnist")][1], mixup=8.0)
    given = {name: value for name, value in changes.items() if value is not None}
    if "augment" in given:
        given["augment"] = as_augment(owner, given["augment"])
    if "epochs" in given:
        given["least_steps"] = 0  # who says how many passes, means it
    return replace(base, **given).checked(owner)


def plain(training: Training) -> dict[str, Any]:
    """Return the settings as JSON values."""
    return asdict(training)


def _between(values: tuple[float, ...], epsilon: float) -> float:
    return float(np.interp(epsilon, PAPER_EPSILONS, values))
