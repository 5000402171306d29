"""How a network is trained: the settings, what `None` in a `NetClassifier` stands for, and how images are changed.

>>> cpu_preset("mlp").optimizer, cpu_preset("mlp").batch_size
('adamw', 256)
>>> paper = paper_preset("cifar10", epsilon=2.0, stages=2)
>>> paper.module, paper.stages, paper.mixup, paper.training.schedule
('resnet18', (0.7, 0.3), (8.0, 8.0), 'piecewise')
>>> parse_augment("example", "crop,flip")
Augment(crop=0.125, flip=True, cutout=0.0)
>>> minutes = cpu_preset("fast-cnn")
>>> minutes.cpu_minutes, minutes.sizes[0], round(minutes.measure_work(minutes.sizes[0][1]), 2)
(5.0, (0.5, 0.63), 0.4)

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), supplement,
sections B (training) and E (hyperparameters); DeVries, Taylor, "Improved Regularization of Convolutional Neural Networks
with Cutout" (2017).

Design notes. The paper's l2 coefficient of 1e-4 is taken as the optimizer's weight decay. It prints a batch size of 265 for
28 x 28 images; it is kept. Of mixup it says that 4 to 8 is good, and less in the second stage; of the first stage's share, 65% at
epsilon 2 on CIFAR-10 and elsewhere a little above 50%; of the temperature, at most 1. It prints no table of them: the values
here, at epsilon 1, 2, 4 and 8, interpolated between and constant outside, are ours. The ratings network is "trained similarly" to CIFAR's: its peak rate is that
of CIFAR-100, scaled with the batch, which is our reading.

Sizes of augmentation are shares of the side, so that one setting serves 28 and 32 pixels. A crop is a shift: the border is
repeated, which is background where there is one. What cutout removes becomes 0, the mean of standardised images. Random
numbers come from torch's generator of the CPU, whose state a checkpoint keeps.

The settings of "fast-cnn" come from prototypes on CIFAR-10: 63% of the steps at half the side and 31% at three quarters are 40% and 45%
of the work. Grey images lose by it: on training images of Fashion-MNIST held out, those shown whole from the start were
ahead of growing ones after the same minutes, in a third of the passes (`benchmarks/image_sizes.py`, benchmarks/results/image_sizes.md). Mirror images are a choice: digits, letters, and scans with a left and a right are not what their mirror images are, so
that no preset flips. For photographs and clothes `augment="shift,flip"` is worth two points or more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labeldp.errors import Described, invalid, nearest
from labeldp.nn.fast_cnn import SPEEDS, plan_epochs, shrink_images
from labeldp.validate import check_choice, check_epsilon, check_integer, check_positive, check_real

OPTIMIZERS = ("adamw", "sgd", "muon")
#: The network that has presets by time, and its own optimizer.
FAST = "fast-cnn"
SCHEDULES = ("linear", "piecewise", "constant")
PRECISIONS = tuple(SPEEDS)


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes of images that keep what they show, on whole batches.

    Parameters
    ----------
    crop : float
        Each image is shifted by up to this share of the side, in both directions. 0 for none.
    flip : bool
        Whether half of the images are mirrored left to right. Not for digits and letters.
    cutout : float
        A square of this share of the side is blanked in each image. 0 for none.

    Example
    -------
    >>> import torch
    >>> Augment(crop=0.25, cutout=0.5)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """

    crop: float = 0.0
    flip: bool = False
    cutout: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def __call__(self, images: Tensor, *, turn: Tensor | None = None) -> Tensor:
        """Return changed images (n, channels, height, width); `turn` (n,) says which are mirrored, by default a random half."""
        if self.flip:
            images = mirror_half(images) if turn is None else mirror_some(images, turn)
        if self.crop:
            images = shift_images(images, most=max(1, round(self.crop * images.shape[3])))
        if self.cutout:
            images = blank_squares(images, side=max(1, round(self.cutout * images.shape[3])))
        return images


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network is trained.

    Parameters
    ----------
    epochs : int
        Passes over the data; more where those would be fewer than `least_steps` steps (small tables).
    batch_size : int
        The most examples in a step.
    lr, weight_decay : float
        The peak of the learning rate, and the decay of the weights as the optimizer understands it: for "muon" what shifts and the
        last layer lose in a step at the peak, as a share of themselves.
    optimizer : {"adamw", "sgd", "muon"}
        sgd has momentum 0.9; muon is for "fast-cnn".
    schedule : {"linear", "piecewise", "constant"}
        The rate after the warm-up: a line to 0, a tenth at 30, 60 and 90% of the run, or the peak all along.
    warm_up : float
        The share of the steps in which the rate grows from 0 to `lr`.
    mixup : float
        alpha of Beta(alpha, alpha); 0 for none.
    augment : Augment
        Changes of images; the empty one changes nothing.
    ema : float
        Decay of a moving average of the weights that predicts in their place; 0 for none.
    least_steps : int
        See `epochs`.
    sizes : tuple of (share of the side, share of the steps)
        Images are shown smaller at first; () for their own size all along. The rate follows the work done, not the steps.
    mirrors : bool
        Where `augment` flips: an image is seen as it is and mirrored in turn, pass by pass. A prediction is the mean of those of an
        image and of what `augment` may make of it (`Training.look_again`).
    cpu_minutes : float
        Minutes of one core that a fit of "fast-cnn" may take; `epochs` is then the most passes that there are. A fit turns it
        into a number of passes before it begins (`labeldp.nn.fast_cnn.plan_epochs`). 0 for `epochs` as they are.
    precision : {"float32", "bfloat16"}
        What the layers of the network multiply in a step. Weights, their average, the optimizer and the loss are float32 in both, and
        so are predictions. bfloat16 has 8 significant bits, and takes about half the time where a processor has instructions for it.
    """

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    optimizer: str = "adamw"
    schedule: str = "linear"
    warm_up: float = 0.1
    mixup: float = 0.0
    augment: Augment = Augment()  # frozen
    ema: float = 0.0
    least_steps: int = 0
    sizes: tuple[tuple[float, float], ...] = ()
    mirrors: bool = False
    cpu_minutes: float = 0.0
    precision: str = "float32"

    def check(self, owner: str) -> Training:
        """Return these settings if each makes sense; `owner` is who the error names."""
        check_integer(owner, "epochs", self.epochs, least=1)
        check_integer(owner, "batch_size", self.batch_size, least=2, fix="BatchNorm needs two examples to compare.")
        check_positive(owner, "lr", self.lr)
        check_choice(owner, "optimizer", self.optimizer, OPTIMIZERS)
        check_choice(owner, "schedule", self.schedule, SCHEDULES)
        check_choice(owner, "precision", self.precision, PRECISIONS)
        for name in ("weight_decay", "mixup", "cpu_minutes"):
            value = check_real(owner, name, getattr(self, name))
            if not 0 <= value < float("inf"):
                raise invalid(owner, name, "be finite and >= 0", got=value)
        for name in ("ema", "warm_up"):
            value = check_real(owner, name, getattr(self, name))
            if not 0 <= value < 1:
                raise invalid(owner, name, "be in [0, 1)", got=value)
        if len(self.sizes) and not are_shares(self.sizes):
            fix = "For example ((0.5, 0.7), (1.0, 0.3)): shares of the side, and of the steps, which sum to 1."
            raise invalid(owner, "sizes", "be pairs of shares in (0, 1]", got=self.sizes, fix=fix)
        return self

    def count_epochs(self, steps_per_epoch: int) -> int:
        """Return the number of epochs for a data set of this many steps: `epochs`, or enough for `least_steps`."""
        return max(self.epochs, -(-self.least_steps // steps_per_epoch))

    def find_size(self, part: float) -> float:
        """Return the share of the side that images are shown at when this part of the steps, in [0, 1], is done."""
        reached = 0.0
        for side, share in self.sizes:
            reached += share
            if part < reached:
                return side
        return self.sizes[-1][0] if self.sizes else 1.0

    def measure_work(self, part: float) -> float:
        """Return the part of the work that is done with this part of the steps: a step costs as its pixels do."""
        work, left = 0.0, part
        for side, share in self.sizes:
            work += side * side * min(left, share)
            left = max(0.0, left - share)
        return min(1.0, work / sum(side * side * share for side, share in self.sizes)) if self.sizes else part

    def show_images(self, images: Tensor, rows: Tensor, *, part: float, epoch: int) -> Tensor:
        """Return a batch of images as this part of the run, in its pass `epoch`, is to see them; `rows` are their places."""
        if self.sizes:
            images = shrink_images(images, self.find_size(part))
        if self.augment:
            images = self.augment(images, turn=take_turns(rows, epoch) if self.mirrors else None)
        return images.contiguous(memory_format=torch.channels_last) if self.sizes else images

    def look_again(self, images: Tensor) -> list[tuple[float, Tensor]]:
        """Return what a prediction is the mean of, each with its share: images and their mirror images, each also moved by a pixel.

        Either is done only where the network was trained on images that are moved, or mirrored, and looks so (`mirrors`). An image and
        its mirror image have the same prediction: they are moved after they are mirrored.
        """
        views = [(1.0, images)]
        if self.mirrors and self.augment.flip:
            views = [(0.5, images), (0.5, images.flip(3))]
        if self.mirrors and self.augment.crop:
            views = [
                (share * part, view if by == 0 else move_images(view, by=by))
                for share, view in views
                for part, by in ((0.5, 0), (0.25, -1), (0.25, 1))
            ]
        return views

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values; `from_json` reads them.

        Settings that labeldp 0.1 did not have are left out where they say nothing: a run that it began is found again.
        """
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in NEWER or value != NEWER[name]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Training:
        """Return the settings that `to_json` wrote."""
        sizes = tuple((float(side), float(part)) for side, part in values.get("sizes", ()))
        return cls(**{**values, "augment": Augment(**values["augment"]), "sizes": sizes})


def are_shares(sizes: Any) -> bool:
    """Whether these are pairs of shares in (0, 1], the second ones of which sum to 1."""
    try:
        pairs = [(float(side), float(part)) for side, part in sizes]
    except (TypeError, ValueError):
        return False
    # Shares are typed by hand: decimals round.
    return all(0 < share <= 1 for pair in pairs for share in pair) and abs(sum(part for _, part in pairs) - 1) <= 1e-9


#: Settings that are newer than files of labeldp 0.1, and what they are where nobody sets them.
NEWER: dict[str, Any] = {"sizes": (), "mirrors": False, "cpu_minutes": 0.0, "precision": "float32"}

#: Half the side, three quarters of it, all of it; of images in colour.
GROWING = ((0.5, 0.63), (0.75, 0.31), (1.0, 0.06))
#: What grey images have instead.
ALL_OF_IT = ((1.0, 1.0),)
#: A shift by two pixels of 32.
SHIFT = 0.0625
#: More passes over a small data set than this do not help.
MOST_PASSES = 200
#: What is more than this many is better spent on another network (`benchmarks/members.py`).
ENOUGH_PASSES = 40
MINUTES = Training(
    epochs=MOST_PASSES,
    batch_size=400,
    lr=0.06,
    weight_decay=5e-3,
    optimizer="muon",
    warm_up=0.02,
    augment=Augment(crop=SHIFT),
    sizes=GROWING,
    mirrors=True,
    cpu_minutes=5.0,
)
HOURS = replace(MINUTES, cpu_minutes=60.0)
#: Presets that say what a fit may take.
BY_TIME = {"minutes": MINUTES, "hours": HOURS}


#: The paper's networks are for a GPU: on a CPU they need hours for what "fast-cnn" learns in minutes, so that their length there
#: is for the user to say.
FOR_A_GPU = ("resnet18", "inception")
#: Rates and lengths at which each network by name trains in minutes on one core; of those for a GPU, rates for a few passes.
CPU = {
    "mlp": Training(epochs=6, batch_size=256, lr=3e-3, weight_decay=1e-2, least_steps=300),
    "small-cnn": Training(epochs=5, batch_size=128, lr=3e-3, weight_decay=1e-2, least_steps=200),
    "resnet18": Training(epochs=3, batch_size=128, lr=1e-3, weight_decay=1e-2),
    "inception": Training(epochs=3, batch_size=128, lr=1e-3, weight_decay=1e-2),
    FAST: MINUTES,
    "ncf": Training(epochs=6, batch_size=4096, lr=3e-3, weight_decay=1e-2, least_steps=200),
}


def cpu_preset(module: str | None) -> Training:
    """Return the settings that train a network by name on a CPU; any other network gets the small CNN's."""
    return CPU.get(module or "small-cnn", CPU["small-cnn"])


@dataclass(frozen=True, kw_only=True)
class PaperPreset:
    """A run as the paper describes it, of one data set at one epsilon: network, shares, temperature, mixup of each stage.

    Network and training are the paper's; shares, temperature and mixup are ours, by what it says of them (see the module).
    `NetClassifier(preset.module, preset=preset.training)` with `mixup` set per stage is its network.
    """

    module: str
    stages: tuple[float, ...]
    temperature: float
    mixup: tuple[float, ...]
    training: Training


#: Where the paper reports results; what we set there, since it prints no such table.
PAPER_EPSILONS = (1.0, 2.0, 4.0, 8.0)
FIRST_SHARE = (0.8, 0.7, 0.6, 0.6)
TEMPERATURE = (0.6, 0.5, 0.5, 0.5)
FIRST_MIXUP = (16.0, 8.0, 8.0, 4.0)
LATER_MIXUP = (8.0, 8.0, 4.0, 4.0)

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


def paper_preset(data: str, *, epsilon: float, stages: int = 2) -> PaperPreset:
    """Return the paper's network and training for a data set, with our shares, temperature and mixup.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist", "kmnist", "cifar10", "cifar100", "movielens-1m"}
        One of the paper's data sets. It decides the network too.
    epsilon : float
        The budget of the labels. Between 1, 2, 4 and 8 our numbers are interpolated; below and above they are those of
        1 and 8.
    stages : int
        The first stage takes our share for this epsilon, the others share the rest equally.
    """
    check_choice("paper_preset", "data", data, tuple(PAPER))
    budget = check_epsilon("paper_preset", epsilon)
    count = check_integer("paper_preset", "stages", stages, least=1, most=100)

    def interpolate(tuned: tuple[float, ...]) -> float:
        return float(np.interp(budget, PAPER_EPSILONS, tuned))

    module, training = PAPER[data]
    first = 1.0 if count == 1 else round(interpolate(FIRST_SHARE), 6)
    later = () if count == 1 else (round((1 - first) / (count - 1), 6),) * (count - 1)
    alphas = (interpolate(FIRST_MIXUP), *(interpolate(LATER_MIXUP),) * (count - 1))
    return PaperPreset(
        module=module,
        stages=(first, *later),
        temperature=interpolate(TEMPERATURE),
        mixup=alphas,
        training=replace(training, mixup=alphas[0]),
    )


def resolve_training(owner: str, preset: Any, module: str | None, changes: dict[str, Any]) -> Training:
    """Return the settings of a fit, checked: the preset, with every change that is not None in its place.

    A preset is "cpu", "paper" (the settings of the data set that the network was made for, mixup 8), "minutes" or "hours" (of
    "fast-cnn" alone, whose "cpu" is "minutes") or a `Training`. The paper's image networks have no length for a CPU: with "cpu" they
    need `epochs`. `module` is the name of the network, None for the user's own. A
    change of `epochs` is meant as it is said: it also sets `least_steps` and `cpu_minutes` to 0.
    """
    fast = module == FAST
    if isinstance(preset, Training):
        base = preset
    elif check_choice(owner, "preset", preset, ("cpu", "paper", *BY_TIME)) == "cpu":
        if module in FOR_A_GPU and changes.get("epochs") is None:
            got = Described(f"none for {module!r} with preset='cpu'")
            fix = f"It is a network for a GPU (preset='paper'): on a CPU use {FAST!r}, or say `epochs`."
            raise invalid(owner, "epochs", "be given", got=got, fix=fix)
        base = cpu_preset(module)
    elif fast != (preset in BY_TIME):
        fix = f"{FAST!r} has 'minutes' and 'hours'; other networks have 'cpu' and 'paper'."
        raise invalid(owner, "preset", "be one that the network has", got=preset, fix=fix)
    elif fast:
        base = BY_TIME[preset]
    else:
        base = replace(PAPER[PAPER_FOR.get(module or "", "fashion-mnist")][1], mixup=8.0)
    given = {name: value for name, value in changes.items() if value is not None}
    if "augment" in given:
        given["augment"] = parse_augment(owner, given["augment"])
    if "epochs" in given:
        if "cpu_minutes" in given:
            got = Described("both")
            raise invalid(
                owner, "epochs", "be given without `cpu_minutes`", got=got, fix="Each says how long to train."
            )
        given |= {"least_steps": 0, "cpu_minutes": 0.0}
    elif "cpu_minutes" in given:
        check_positive(owner, "cpu_minutes", given["cpu_minutes"], fix="Say `epochs` for a number of passes.")
        given["epochs"] = MOST_PASSES
    chosen = replace(base, **given).check(owner)
    if not fast and chosen.optimizer == "muon":
        fix = 'Use "adamw" or "sgd" for other networks.'
        raise invalid(owner, "optimizer", f"be left to {FAST!r}", got=chosen.optimizer, fix=fix)
    if not fast and chosen.cpu_minutes:
        fix = "Use `epochs` for other networks."
        raise invalid(owner, "cpu_minutes", f"be left to {FAST!r}", got=chosen.cpu_minutes, fix=fix)
    return chosen


def settle_training(
    training: Training, *, n_examples: int, sample_shape: tuple[int, ...], n_classes: int, width: int, own: bool = False
) -> Training:
    """Return the settings of a fit on so many examples: minutes turned into passes, and for "muon" no batch larger than they are.

    Grey images do not grow, unless the settings are a `Training` of the user's `own`, which is taken as it is.
    """
    if training.optimizer == "muon":  # its rates go with the batch
        training = replace(training, batch_size=max(2, min(training.batch_size, n_examples)))
    if training.sizes and sample_shape[0] == 1 and not own:
        training = replace(training, sizes=ALL_OF_IT)
    if not training.cpu_minutes:
        return training
    passes = plan_epochs(
        training.cpu_minutes,
        n_examples=n_examples,
        sample_shape=sample_shape,
        n_classes=n_classes,
        width=width,
        sizes=training.sizes or ((1.0, 1.0),),
        most=training.epochs,
        precision=training.precision,
    )
    return replace(training, epochs=passes, cpu_minutes=0.0)


def count_networks(training: Training, **shapes: Any) -> int:
    """Return how many networks share the minutes of a fit: one for each hour, rounded, as long as each has `ENOUGH_PASSES`.

    One network that sees noisy answers too often learns their noise by heart. Networks that differ in their first weights and in the order
    of examples are wrong in different places, so that the mean of what they believe is nearer to the truth than any of them.
    `shapes` are those of `settle_training`.
    """
    hours = round(training.cpu_minutes / 60)
    if hours < 2:
        return 1
    passes = settle_training(training, **shapes).epochs
    return max(1, min(hours, passes // ENOUGH_PASSES))


#: What a name in a list of names stands for: the paper's "standard data augmentations" at 32 pixels, and a smaller shift.
NAMED: dict[str, dict[str, Any]] = {
    "crop": {"crop": 0.125},
    "shift": {"crop": SHIFT},
    "flip": {"flip": True},
    "cutout": {"cutout": 0.5},
}


def parse_augment(owner: str, value: Any) -> Augment:
    """Return an `Augment` from one, checked, or from names such as "crop,flip,cutout"; "" is none."""
    if isinstance(value, Augment):
        for name in ("crop", "cutout"):
            if not 0 <= check_real(owner, f"augment.{name}", getattr(value, name)) < 1:
                raise invalid(owner, f"augment.{name}", "be in [0, 1)", got=getattr(value, name))
        return value
    names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else [repr(value)]
    sizes: dict[str, Any] = {}
    for name in names:
        if name not in NAMED:
            raise invalid(owner, "augment", "be an Augment or names", got=value, fix=nearest(name, NAMED))
        sizes.update(NAMED[name])
    return Augment(**sizes)


def mirror_half(images: Tensor) -> Tensor:
    """Return the images, each mirrored left to right with probability one half."""
    return mirror_some(images, torch.rand(len(images)).lt(0.5))


def mirror_some(images: Tensor, turn: Tensor) -> Tensor:
    """Return the images, those mirrored left to right that `turn` (n,) is true for."""
    return torch.where(turn.to(images.device)[:, None, None, None], images.flip(3), images)


def take_turns(rows: Tensor, epoch: int) -> Tensor:
    """Return which images of a pass are mirrored: about half of them, and in the next pass the others.

    >>> first = take_turns(torch.arange(1000), 0)
    >>> bool((first ^ take_turns(torch.arange(1000), 1)).all()), 450 < int(first.sum()) < 550
    (True, True)
    """
    # A bit of a multiplicative hash (Knuth): neighbours, which may be alike, do not go together.
    return ((rows * 2654435761 >> 16) + epoch) % 2 == 1


def shift_images(images: Tensor, *, most: int) -> Tensor:
    """Return the images, each moved by up to `most` pixels each way; the border is repeated."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (most,) * 4, mode="replicate")
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    down, right = (torch.randint(2 * most + 1, (len(images),)).to(images.device) for _ in range(2))
    return windows[torch.arange(len(images), device=images.device), :, down, right]


def move_images(images: Tensor, *, by: int) -> Tensor:
    """Return the images, moved by so many pixels down and to the right; the border is repeated.

    >>> move_images(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), by=1).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    height, width = images.shape[2:]
    most = abs(by)
    padded = functional.pad(images, (most,) * 4, mode="replicate")
    first = most - by
    return padded[:, :, first : first + height, first : first + width]


def blank_squares(images: Tensor, *, side: int) -> Tensor:
    """Return the images, each with a square around a random pixel set to 0; the square may reach over the border."""
    inside = []
    for axis in (2, 3):
        size = images.shape[axis]
        low = torch.randint(size, (len(images), 1)) - side // 2
        at = torch.arange(size)
        inside.append((at >= low) & (at < low + side))
    hole = (inside[0][:, :, None] & inside[1][:, None, :])[:, None].to(images.device)
    return images.masked_fill(hole, 0.0)
