"""From what a user calls a network to a network: a name of ours, a torch module, or a callable that makes one.

| name | input | network |
|---|---|---|
| "mlp" | rows (n, d), or views (n, views, d) | one hidden layer: the head on label-free features |
| "small-cnn" | images of at least 8 x 8 | five convolutions at three sizes |
| "fast-cnn" | images of at least 10 x 10 | six convolutions on whitened patches: minutes on a CPU (`labeldp.nn.fast_cnn`) |
| "resnet18" | images of at least 8 x 8 | ResNet18-v2 with the stem for 32 x 32 images |
| "inception" | images of at least 8 x 8 | the small Inception of Ghazi et al. for 28 x 28 images |
| "ncf" | pairs (n, 2) of user and item numbers | neural collaborative filtering, ratings as classes |

>>> sorted(MODELS)
['fast-cnn', 'inception', 'mlp', 'ncf', 'resnet18', 'small-cnn']
>>> build("mlp", n_classes=3, sample_shape=(5,), hidden=8)[-1]
Linear(in_features=8, out_features=3, bias=True)

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), supplement B,
for the two image networks of the paper; the other references are at the networks.

Design notes. A network by name is a function of a few numbers (classes, shape of an example, hidden width, dropout, counts of
users and items), so that a file stores the name, the numbers and the arrays, and never code. First weights come from
torch's generator as it stands; whoever builds a network seeds it. The names of the layers are the names of the arrays in
saved files: renaming an attribute of a module here makes old files unreadable.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from labeldp.errors import Described, invalid, nearest
from labeldp.nn.fast_cnn import LEAST_SIDE, FastCNN

IMAGES = "images (n, channels, height, width) of at least 8 x 8"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The numbers that a network is built from.

    `hidden` and `dropout` are used by the networks that have them. `sizes` is (users, items) for "ncf", else empty.
    """

    n_classes: int
    sample_shape: tuple[int, ...]
    hidden: int = 256
    dropout: float = 0.2
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Model:
    """A network by name: its builder, and what one example must look like (number of axes, least side of an image)."""

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
        make=lambda w: small_cnn(w.sample_shape[0], n_classes=w.n_classes), axes=3, least_side=8, expects=IMAGES
    ),
    "fast-cnn": Model(
        make=lambda w: FastCNN(w.sample_shape[0], n_classes=w.n_classes, width=w.hidden),
        axes=3,
        least_side=LEAST_SIDE,
        expects=f"images (n, channels, height, width) of at least {LEAST_SIDE} x {LEAST_SIDE}",
    ),
    "resnet18": Model(
        make=lambda w: ResNet18(w.sample_shape[0], n_classes=w.n_classes), axes=3, least_side=8, expects=IMAGES
    ),
    "inception": Model(
        make=lambda w: SmallInception(w.sample_shape[0], n_classes=w.n_classes), axes=3, least_side=8, expects=IMAGES
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
    """Return a new network by name, its first weights from torch's generator as it stands.

    `sample_shape` is the shape of one example, without the axis of examples. An unknown name, or a shape that the network
    cannot take, is refused.
    """
    check_sample(name, sample_shape)
    wanted = Wanted(n_classes=n_classes, sample_shape=sample_shape, hidden=hidden, dropout=dropout, sizes=sizes)
    return MODELS[name].make(wanted)


def check_sample(name: str, sample_shape: tuple[int, ...]) -> None:
    """Refuse a name that is not known, and examples of a shape that its network cannot take."""
    check_module(name)
    model = MODELS[name]
    small = model.axes == 3 and min(sample_shape[1:], default=0) < model.least_side
    if len(sample_shape) != model.axes or small or (name == "ncf" and sample_shape != (2,)):
        got = Described(f"examples of shape {sample_shape}")
        raise invalid("NetClassifier", "X", f"be {model.expects} for {name!r}", got=got)


def check_module(module: Any) -> None:
    """Refuse a name that is not known, with the nearest one; modules and callables are looked at when they are used."""
    if isinstance(module, str) and module not in MODELS:
        raise invalid("NetClassifier", "module", "be a known network", got=module, fix=nearest(module, MODELS))


def make_network(
    module: Any, *, n_classes: int, sample_shape: tuple[int, ...], hidden: int, dropout: float, sizes: tuple[int, ...]
) -> nn.Module:
    """Return a new network from the `module` of a `NetClassifier`.

    A name is built; a module is copied, with its weights, so that training never changes the user's own; a callable is
    called with `n_classes` and `sample_shape`. Anything else is refused.
    """
    if isinstance(module, str):
        return build(
            module, n_classes=n_classes, sample_shape=sample_shape, hidden=hidden, dropout=dropout, sizes=sizes
        )
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if callable(module):
        _check_signature(module)
    network = module(n_classes=n_classes, sample_shape=sample_shape) if callable(module) else None
    if not isinstance(network, nn.Module):
        names = ", ".join(repr(name) for name in MODELS)
        got = module if network is None else Described(f"a callable that returns {type(network).__name__}")
        fix = f"Names are {names}; a callable takes n_classes and sample_shape."
        raise invalid(
            "NetClassifier", "module", "be a name, a torch module or a callable that makes one", got=got, fix=fix
        )
    return network


def _check_signature(maker: Any) -> None:
    """Refuse a callable that cannot be called with `n_classes` and `sample_shape`: a class of modules, for example."""
    try:
        inspect.signature(maker).bind(n_classes=2, sample_shape=(1,))
    except TypeError:
        got = Described(
            f"{'the class ' if isinstance(maker, type) else ''}{getattr(maker, '__name__', type(maker).__name__)}"
        )
        fix = "Pass a module that is made already, or lambda n_classes, sample_shape: your_module."
        raise invalid("NetClassifier", "module", "take n_classes and sample_shape", got=got, fix=fix) from None
    except ValueError:  # compiled code has no signature that could be looked at
        pass


def check_network(network: nn.Module, batch: Tensor, *, n_classes: int, n_views: int = 1) -> None:
    """Refuse a network that does not answer this batch with one logit per example and class, or has nothing to train.

    The batch is of one of `n_views` views of each example.
    """
    if not any(weight.requires_grad for weight in network.parameters()):
        fix = "Leave `requires_grad` of some of its parameters as it is."
        raise invalid("NetClassifier", "module", "have weights to train", got=type(network).__name__, fix=fix)
    logits = try_network(network, batch, n_views=n_views)
    if logits.ndim != 2 or logits.shape[1] != n_classes:
        got = Described(f"an output of shape {tuple(logits.shape)}")
        fix = "The last layer has one output per class, and no softmax."
        raise invalid("NetClassifier", "module", f"return (n, {n_classes}) logits", got=got, fix=fix)


def try_network(network: nn.Module, batch: Tensor, *, n_views: int = 1) -> Tensor:
    """Return the network's answer to a batch, in evaluation mode and without gradients.

    A batch that the network cannot take becomes one of our errors, with the first line of what torch says.
    """
    network.eval()
    try:
        with torch.no_grad():
            answer = network(batch)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        got = Described(f"examples of shape {tuple(batch.shape[1:])}")
        fix = f"It says: {first}"
        if n_views > 1:
            shape = f"(n, {n_views}, {batch.shape[1]})"
            got = Described(f"X of shape {shape}: {n_views} views of rows (n, {batch.shape[1]})")
            fix = f"Are these grey images? They have a channel: X[:, np.newaxis], (n, 1, {n_views}, {batch.shape[1]}). {fix}"
        raise invalid("NetClassifier", "X", "be what the module takes", got=got, fix=fix) from error
    if not isinstance(answer, Tensor):
        fix = "Wrap it so that it returns the logits alone."
        raise invalid("NetClassifier", "module", "return a tensor", got=type(answer).__name__, fix=fix)
    return answer


def place_network(network: nn.Module, *, sample_shape: tuple[int, ...], device: torch.device) -> nn.Module:
    """Return the network on its device; for images in the order of memory that convolutions on a CPU prefer.

    The order decides how sums are rounded. A network that was stored is placed in the same way when it is loaded, and
    therefore gives the same bits.
    """
    network = network.to(device)
    if len(sample_shape) != 3:
        return network
    ordered: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    return ordered


def check_device(device: Any) -> torch.device:
    """Return the torch device of this name; refuse one that does not exist or that this machine does not have."""
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


def find_last_linear(network: nn.Module) -> nn.Linear:
    """Return the last linear layer, in the order in which the network was put together; refuse a network without one."""
    found = [part for part in network.modules() if isinstance(part, nn.Linear)]
    if not found:
        fix = "Hidden features are what feeds the last nn.Linear."
        raise invalid("NetClassifier", "module", "have a linear layer", got=type(network).__name__, fix=fix)
    return found[-1]


class Ensemble(nn.Module):
    """Networks that learned the same evidence, each from first weights and in an order of its own; their answers are averaged.

    It returns logarithms of mean probabilities, log (1/m) sum_i softmax(z_i): logits whose softmax is the mean.

    >>> agreed, doubtful = nn.Linear(1, 2), nn.Linear(1, 2)
    >>> for part, bias in ((agreed, [2.0, 0.0]), (doubtful, [0.0, 0.0])):
    ...     _ = nn.init.zeros_(part.weight)
    ...     part.bias.data = torch.tensor(bias)
    >>> shares = Ensemble([agreed, doubtful])(torch.zeros(1, 1)).softmax(1)[0]  # the means of .881 and .5, .119 and .5
    >>> [round(share, 3) for share in shares.tolist()]
    [0.69, 0.31]
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, batch: Tensor) -> Tensor:
        """Return log mean probabilities (n, K)."""
        each = torch.stack([member(batch).log_softmax(dim=1) for member in self.members])
        return each.logsumexp(dim=0) - math.log(len(self.members))


def list_members(network: nn.Module) -> list[nn.Module]:
    """Return the networks that answer together: those of an ensemble, or the network itself."""
    return list(network.members) if isinstance(network, Ensemble) else [network]


# ----------------------------------------------------------------------------------------------- the networks by name


def mlp(n_features: int, *, n_classes: int, hidden: int = 256, dropout: float = 0.2) -> nn.Sequential:
    """Return Linear, BatchNorm, ReLU, Dropout, Linear: the head on label-free features, seconds on a CPU.

    >>> sum(p.numel() for p in mlp(640, n_classes=10, hidden=256).parameters())
    167178
    """
    return nn.Sequential(
        nn.Linear(n_features, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, n_classes),
    )


def small_cnn(channels: int, *, n_classes: int, width: int = 16) -> nn.Sequential:
    """Return a network for images of 8 x 8 or more: five convolutions at three sizes.

    Its last layer sees the maximum and the mean of each channel, 8 `width` numbers.

    >>> small_cnn(1, n_classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return nn.Sequential(
        convolution(channels, width),
        nn.MaxPool2d(2),
        convolution(width, 2 * width),
        convolution(2 * width, 2 * width),
        nn.MaxPool2d(2),
        convolution(2 * width, 4 * width),
        convolution(4 * width, 4 * width),
        Beside(GlobalMax(), GlobalMean()),
        nn.Linear(8 * width, n_classes),
    )


#: (channels, stride) of the eight blocks of ResNet18.
BLOCKS = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


class ResNet18(nn.Sequential):
    """ResNet18-v2 for 32 x 32 images: one 3 x 3 convolution in place of the 7 x 7 and the pooling of the large one.

    >>> network = ResNet18(3, n_classes=10)
    >>> network(torch.zeros(2, 3, 32, 32)).shape, sum(p.numel() for p in network.parameters())
    (torch.Size([2, 10]), 11172170)

    Reference: He, Zhang, Ren, Sun, "Identity Mappings in Deep Residual Networks" (2016).
    """

    def __init__(self, channels: int, *, n_classes: int) -> None:
        layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False)]
        width = 64
        for out, stride in BLOCKS:
            layers.append(PreActivated(width, out, stride=stride))
            width = out
        super().__init__(
            *layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True), GlobalMean(), nn.Linear(width, n_classes)
        )


class PreActivated(nn.Module):
    """A residual block x + f(x), with BatchNorm and ReLU before each of the two convolutions of f."""

    def __init__(self, channels: int, out: int, *, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(channels)
        self.first = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        same = channels == out and stride == 1
        self.shortcut = None if same else nn.Conv2d(channels, out, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the sum; where f changes the shape, x goes through a 1 x 1 convolution of the activated input."""
        active = functional.relu(self.first_norm(images))
        kept = images if self.shortcut is None else self.shortcut(active)
        changed = self.second(functional.relu(self.second_norm(self.first(active))))
        total: Tensor = kept + changed
        return total


#: (channels of the 1x1, channels of the 3x3) of each block, then the channels of the strided convolution after them.
STAGES: tuple[tuple[tuple[tuple[int, int], ...], int | None], ...] = (
    (((32, 32), (32, 48)), 160),
    (((112, 48), (96, 64), (80, 80), (48, 96)), 240),
    (((176, 160), (176, 160)), None),
)


class SmallInception(nn.Sequential):
    """The small Inception of Ghazi et al. (2021), supplement B, for 28 x 28 images.

        Conv(3x3, 96) -> S1 -> S2 -> S3 -> GlobalMaxPool -> Linear
        S1: Block(32, 32), Block(32, 48), Conv(3x3, 160, stride 2)
        S2: Block(112, 48), Block(96, 64), Block(80, 80), Block(48, 96), Conv(3x3, 240, stride 2)
        S3: Block(176, 160), Block(176, 160)
        Block(a, b): Conv(1x1, a) beside Conv(3x3, b); Conv: convolution, BatchNorm, ReLU

    >>> SmallInception(1, n_classes=10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, channels: int, *, n_classes: int) -> None:
        layers: list[nn.Module] = [convolution(channels, 96)]
        width = 96
        for blocks, down in STAGES:
            for narrow, wide in blocks:
                layers.append(Beside(convolution(width, narrow, size=1), convolution(width, wide)))
                width = narrow + wide
            if down is not None:
                layers.append(convolution(width, down, stride=2))
                width = down
        super().__init__(*layers, GlobalMax(), nn.Linear(width, n_classes))


#: Spread of the first embeddings: small, so that a pair begins near the mean rating.
SPREAD = 0.05


class NeuralCollaborativeFiltering(nn.Module):
    """Ratings as classes: two branches over (user, item) numbers, (n, 2).

    One branch multiplies an embedding of the user with one of the item (generalised matrix factorisation). The other puts
    two further embeddings side by side through hidden layers. A linear layer reads both.

    Numbers beyond those of training share one extra embedding, which stays at zero: the network then answers from the other
    side of the pair. `embed` and `head` are apart because mixup cannot mix numbers: it mixes what `embed` returns.

    >>> network = NeuralCollaborativeFiltering(4, 6, n_classes=5)
    >>> network(torch.tensor([[0, 5], [3, 0], [99, 2]])).shape
    torch.Size([3, 5])

    Reference: He, Liao, Zhang, Nie, Hu, Chua, "Neural Collaborative Filtering" (2017).
    """

    def __init__(
        self,
        n_users: int,
        n_items: int,
        *,
        n_classes: int,
        dimensions: int = 16,
        hidden: int = 32,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.users = _make_embedding(n_users, 2 * dimensions)
        self.items = _make_embedding(n_items, 2 * dimensions)
        self.tower = nn.Sequential(
            nn.Linear(2 * dimensions, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.output = nn.Linear(dimensions + hidden, n_classes)

    def embed(self, pairs: Tensor) -> Tensor:
        """Return the product of the first halves beside the second halves, (n, 3 dimensions)."""
        users, items = (
            table(pairs[:, side].clamp(max=table.num_embeddings - 1))
            for side, table in enumerate((self.users, self.items))
        )
        half = users.shape[1] // 2
        return torch.cat([users[:, :half] * items[:, :half], users[:, half:], items[:, half:]], dim=1)

    def head(self, embedded: Tensor) -> Tensor:
        """Return the logits of what `embed` returned."""
        third = embedded.shape[1] // 3
        deep = self.tower(embedded[:, third:])
        return cast("Tensor", self.output(torch.cat([embedded[:, :third], deep], dim=1)))

    def forward(self, pairs: Tensor) -> Tensor:
        """Return logits (n, K)."""
        return self.head(self.embed(pairs.long()))


def _make_embedding(count: int, width: int) -> nn.Embedding:
    """Return an embedding with one more row, at zero, for numbers that training never saw."""
    table = nn.Embedding(count + 1, width, padding_idx=count)
    nn.init.normal_(table.weight, std=SPREAD)
    with torch.no_grad():
        table.weight[count].zero_()
    return table


# -------------------------------------------------------------------------------------------------------- shared layers


def convolution(channels: int, out: int, *, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Return convolution, BatchNorm, ReLU, padded so that stride 1 keeps the side."""
    return nn.Sequential(
        nn.Conv2d(channels, out, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class Beside(nn.Module):
    """Several layers on one input, their channels side by side."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, images: Tensor) -> Tensor:
        """Return the parts' answers, one after the other along the channels."""
        return torch.cat([part(images) for part in self.parts], dim=1)


class GlobalMax(nn.Module):
    """The largest value of each channel."""

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, channels)."""
        return images.amax(dim=(2, 3))


class GlobalMean(nn.Module):
    """The mean of each channel."""

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, channels)."""
        return images.mean(dim=(2, 3))
