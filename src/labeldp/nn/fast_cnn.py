r"""A small network for small images that trains on a processor in minutes: "fast-cnn", its optimizer, and what a fit costs.

>>> network = FastCNN(3, n_classes=10, width=192)
>>> network(torch.zeros(2, 3, 32, 32)).shape, network.widths
(torch.Size([2, 10]), (32, 96, 192))
>>> round(
...     count_operations((3, 32, 32), n_classes=10, width=192) / 1e6
... )  # million, for an image of 32 pixels in training
168

*The network.* A patch of 2 x 2 pixels (3 x 3 where images are grey) is whitened: with the mean product of patches C = V diag(s) V^T, the
filters are the rows of diag(s + floor)^(-1/2) V^T and their negatives. They are found from images alone, without a label, and are
not trained. Then come three stages of two 3 x 3 convolutions, the first of each halving the side, with BatchNorm (whose scale
stays 1) and GELU; the largest value of each channel; and a linear layer without bias whose answer is divided by the width. A
convolution starts as the identity where it can. The network has no layer that depends on the side: it can be trained on smaller copies
of the images first, where a step costs a fourth, and on the images themselves last.

*The optimizer.* `Muon` replaces the momentum M of a convolution, as a matrix (out, in x 9), by the nearest matrix with orthonormal
rows, up to a factor of 0.7 to 1.2 in each direction, and steps by that times the rate; before, the filters are brought to mean
square norm 1. With M = U S V^T the polynomial a x + b x^3 + c x^5 acts on the singular values S alone, since M (M^T M)^k =
U S^(2k+1) V^T: a few of its steps take every value that is not tiny near 1, and no decomposition is made. The steps are taken on
the small square A = M M^T: with Q = a + b A + c A^2 a step makes M to Q M and A to Q A Q, so that the wide M is multiplied once at
the end. All else (the shifts of BatchNorm, the last layer) goes by gradient descent with the same momentum, at rates of their own.

*The gradient of a convolution.* y = w * x at place p is the sum over the nine taps t of W_t x[p + t], W_t a matrix (out, in). So
dx = sum of W_t^T dy[p - t], the convolution of dy with the filters turned around, and dW_t = sum over images and places of
dy[p] x[p + t]^T, one product of two tall matrices for each tap, over the places that the tap does not take outside the image. On small
images most of a padded convolution is zeros: oneDNN, which multiplies them, takes 49 ms for the gradient of 256 filters on 256 channels
of 1 x 1 where the products take 1, and 68 instead of 13 at 2 x 2 (400 images, one core of an EPYC of the third generation). Where
channels are few it is the faster one, and is used.

*The cost.* `count_operations` counts multiplications and additions of a training step: 2 for each product of the forward pass, as many
for the gradient of the weights, and as many for that of the input, but for the first convolution, whose input is not
trained. `plan_epochs` divides a budget at one of `SPEEDS` by it: a number of passes that is the same on every machine, however busy. What it
really takes is shown by the progress bar.

References: Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), for the network; Jordan et al., "Muon: An optimizer for
hidden layers in neural networks" (2024); Coates, Ng, "Learning Feature Representations with K-means" (2012), for whitened patches;
Howard, "Training Imagenet in 3 hours for 25 minutes" (2018), for growing images.

Design notes. `torch.optim.Muon` is no substitute: it takes matrices only, works in bfloat16, which many processors do not multiply,
leaves the norms of filters to weight decay, and is not in the lowest torch that we support. How the two of
`SPEEDS` compare is measured by `benchmarks/precision.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Channels of the last stage unless the user says it: for runs of minutes, and for longer ones.
NARROW, WIDE = 192, 256
#: Minutes from which on the wider network is the default.
LONG = 30.0
#: The side of a whitened patch of colour images, and of grey ones, whose patches of 2 x 2 have four directions only.
PATCH, GREY_PATCH = 2, 3
#: Added to the spread of a direction before it is divided out, in variances of a pixel.
FLOOR = 5e-4
#: Images that patches are taken from, and how many at a time.
PATCH_IMAGES, TOGETHER = 5000, 500
#: BatchNorm's share of the newest batch in its statistics.
NEWEST = 0.4
#: The least side of an image: three stages halve it.
LEAST_SIDE = 10
#: Channels from which on the gradient of filters is computed tap by tap.
MANY_CHANNELS = 64
#: Operations in a second of one core that `plan_epochs` counts on, everything included, by the numbers that it computes with.
SPEEDS = {"float32": 64e9, "bfloat16": 110e9}


class FastCNN(nn.Module):
    """The network of the module. `width` is that of the last stage; `channels` are those of an image."""

    def __init__(self, channels: int, *, n_classes: int, width: int = NARROW) -> None:
        super().__init__()
        self.width, self.widths = width, stage_widths(width)
        size = patch_side(channels)
        first = 2 * channels * size * size
        self.whiten = Whitening(channels, first, size, bias=False).requires_grad_(requires_grad=False)
        sizes = (first, *self.widths)
        self.stages = nn.Sequential(*(Stage(i, o) for i, o in pairwise(sizes)))
        self.head = nn.Linear(width, n_classes, bias=False)
        nn.init.normal_(self.head.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images of any side from `LEAST_SIDE` on."""
        found = self.stages(functional.gelu(self.whiten(images))).amax(dim=(2, 3))
        logits: Tensor = self.head(found) / self.width
        return logits

    @torch.no_grad()
    def fit_whitening(self, batches: Iterable[Tensor]) -> None:
        """Set the first layer from batches of images, of which no label is known."""
        size = self.whiten.kernel_size[0]
        total = torch.zeros(self.whiten.weight[0].numel(), self.whiten.weight[0].numel(), dtype=torch.float64)
        count = 0
        for images in batches:
            patches = functional.unfold(images.cpu().contiguous(), size).transpose(1, 2).flatten(0, 1).double()
            total += patches.T @ patches
            count += len(patches)
        spreads, directions = torch.linalg.eigh(total / max(count, 1))
        # An eigenvector has no sign. Its largest entry decides, so that rounding on another machine does not.
        at = directions.abs().argmax(dim=0)
        directions = directions * directions.gather(0, at[None]).sign()
        filters = (directions / (spreads.clamp(min=0) + FLOOR).sqrt()).T.reshape(-1, *self.whiten.weight.shape[1:])
        self.whiten.weight.copy_(torch.cat([filters, -filters]))

    def weight_groups(self, *, batch_size: int, decay: float) -> list[dict[str, Any]]:
        """Return the trained weights as `Muon` takes them, for batches of this size.

        The rate of what goes by gradient descent grows with the batch, as if the loss were its sum; orthogonal steps have one size.
        """
        trained = [weight for weight in self.stages.parameters() if weight.requires_grad]
        filters = [weight for weight in trained if weight.ndim == 4]
        shifts = [weight for weight in trained if weight.ndim == 1]
        return [
            {"params": filters, "share": 1.0, "orthogonal": True, "decay": 0.0},
            {"params": shifts, "share": SHIFTS * batch_size, "orthogonal": False, "decay": decay},
            {"params": [self.head.weight], "share": HEAD * batch_size, "orthogonal": False, "decay": decay},
        ]


class Whitening(nn.Conv2d):
    """The first layer, in float32 under autocast too.

    Where neighbours are alike its filters are large and of both signs, and what they sum to is small: with 8 bits of each, a filter
    that should not see how bright a patch is does. A network would learn from those, and predict from others.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, out, height, width)."""
        if images.device.type not in ("cpu", "cuda"):  # where every torch that we support knows autocast
            return super().forward(images)
        with torch.autocast(images.device.type, enabled=False):
            return super().forward(images)


class Stage(nn.Module):
    """Two convolutions, the side halved after the first."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolve(channels, out), normalise(out)
        self.conv2, self.norm2 = convolve(out, out), normalise(out)

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, out, height // 2, width // 2)."""
        half = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(images), 2)))
        return functional.gelu(self.norm2(self.conv2(half)))


class TapByTap(torch.autograd.Function):
    """A 3 x 3 convolution with a border of zeros whose gradient is the one of the module's docstring.

    Its steps are differentiable themselves, so that a gradient of the gradient is right too.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, filters: Tensor) -> Tensor:
        """Return the convolution, computed as torch does."""
        ctx.save_for_backward(images, filters)
        return functional.conv2d(images, filters, padding=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of images and filters."""
        (gradient,) = gradients
        # What autocast computed in bfloat16 has its gradients computed so too; they are summed up in float32.
        images, filters = (saved.to(gradient.dtype) for saved in ctx.saved_tensors)
        needs_images, needs_filters = ctx.needs_input_grad
        turned = filters.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
        return (
            functional.conv2d(gradient, turned, padding=1) if needs_images else None,
            multiply_taps(images, gradient) if needs_filters else None,
        )


def multiply_taps(images: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient (out, in, 3, 3) of filters from images (n, in, h, w) and the gradient (n, out, h, w) of what they became.

    >>> x, dy = torch.randn(2, 3, 4, 1), torch.randn(2, 5, 4, 1)
    >>> found = multiply_taps(x, dy)
    >>> torch.allclose(found, torch.nn.grad.conv2d_weight(x, (5, 3, 3, 3), dy, padding=1), atol=1e-5)
    True
    """
    seen, changed = images.permute(0, 2, 3, 1), gradient.permute(0, 2, 3, 1)
    height, width = images.shape[2:]
    taps = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rows, below = overlap(height, down)
            columns, beside = overlap(width, right)
            left = changed[:, rows, columns].flatten(0, 2)
            taps.append(left.T @ seen[:, below, beside].flatten(0, 2))  # a tap that is always outside sums nothing
    return torch.stack(taps).reshape(3, 3, *taps[0].shape).permute(2, 3, 0, 1)


def overlap(length: int, shift: int) -> tuple[slice, slice]:
    """Return the places p in 0 .. length - 1 whose p + shift is there too, and those p + shift.

    >>> overlap(5, 1), overlap(5, -1), overlap(1, 1)
    ((slice(0, 4, None), slice(1, 5, None)), (slice(1, 5, None), slice(0, 4, None)), (slice(0, 0, None), slice(1, 1, None)))
    """
    first, last = max(0, -shift), length - max(0, shift)
    return slice(first, last), slice(first + shift, last + shift)


class Convolution(nn.Conv2d):
    """A 3 x 3 convolution that takes the faster gradient on a processor."""

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, out, height, width)."""
        if images.device.type == "cpu" and self.in_channels >= MANY_CHANNELS and torch.is_grad_enabled():
            found: Tensor = TapByTap.apply(images, self.weight)  # type: ignore[no-untyped-call]  # torch's own
            return found
        return super().forward(images)


def convolve(channels: int, out: int) -> nn.Conv2d:
    """Return a 3 x 3 convolution whose first filters hand the channels on as they are."""
    layer = Convolution(channels, out, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: min(channels, out)])
    return layer


def normalise(channels: int) -> nn.BatchNorm2d:
    """Return a BatchNorm with a trained shift and no trained scale: the next filters have a norm of their own."""
    layer = nn.BatchNorm2d(channels, momentum=NEWEST)
    layer.weight.requires_grad = False
    return layer


def stage_widths(width: int) -> tuple[int, int, int]:
    """Return the channels of the three stages, the last one's being `width`.

    The first stage works on the largest images: it is narrow, in multiples of 16, which processors take at once.

    >>> stage_widths(192), stage_widths(256), stage_widths(8)
    ((32, 96, 192), (48, 128, 256), (16, 4, 8))
    """
    return 16 * max(1, round(width / 96)), max(1, width // 2), width


def patch_side(channels: int) -> int:
    """Return the side of the patches that are whitened."""
    return GREY_PATCH if channels < 3 else PATCH


# ------------------------------------------------------------------------------------------------------------ optimizer

MOMENTUM = 0.85
#: Rates of the shifts and of the last layer, as multiples of that of the filters, for the loss of one image.
SHIFTS, HEAD = 0.88, 11.2
#: a, b, c of the polynomial: steep at 0, so that few steps do; it ends between 0.7 and 1.2.
QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 3


class Muon(torch.optim.Optimizer):
    """Orthogonal steps for convolutions, gradient descent for the rest; both with Nesterov's momentum.

    `groups` say which weights are stepped in which way: "orthogonal", their "share" of the rate `lr`, and "decay", what they lose
    in a step at the peak rate.

    >>> weight = nn.Parameter(torch.eye(2).reshape(2, 2, 1, 1))
    >>> optimizer = Muon([{"params": [weight], "share": 1.0, "orthogonal": True, "decay": 0.0}], lr=0.1)
    >>> weight.grad = torch.tensor([[3.0, 0.0], [0.0, 0.0]]).reshape(2, 2, 1, 1)
    >>> optimizer.step()
    >>> [
    ...     [round(float(x), 1) for x in row] for row in weight.detach().flatten(1)
    ... ]  # the size of a gradient does not matter
    [[0.9, 0.0], [0.0, 1.0]]
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, lr: float, momentum: float = MOMENTUM) -> None:
        super().__init__(list(groups), {"lr": lr, "peak": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # nothing is returned
        """Take one step; a closure, which torch's optimizers may be given, is not called."""
        del closure
        for group in self.param_groups:
            rate = group["lr"] * group["share"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                momentum = state["momentum"].mul_(group["momentum"]).add_(weight.grad)
                change = weight.grad.add(momentum, alpha=group["momentum"])
                if group["orthogonal"]:
                    weight.mul_(math.sqrt(len(weight)) / weight.norm().clamp(min=TINY))
                    change = make_orthogonal(change.flatten(1)).view(weight.shape)
                elif group["decay"]:
                    weight.mul_(1 - group["decay"] * group["lr"] / group["peak"])
                weight.add_(change, alpha=-rate)


#: A gradient of zero stays zero.
TINY = 1e-7


def make_orthogonal(matrix: Tensor) -> Tensor:
    """Return a matrix with the same singular vectors whose singular values are about 1, where they are not tiny."""
    tall = matrix.shape[0] > matrix.shape[1]
    wide = (matrix.T if tall else matrix) / matrix.norm().clamp(min=TINY)
    square = wide @ wide.T
    factor = step = find_step(square)
    for _ in range(STEPS - 1):
        square = step @ square @ step
        step = find_step(square)
        factor = step @ factor
    answer: Tensor = factor @ wide
    return answer.T if tall else answer


def find_step(square: Tensor) -> Tensor:
    """Return Q = a + b A + c A^2 for A = `square`."""
    a, b, c = QUINTIC
    step = torch.addmm(square, square, square, beta=b, alpha=c)
    step.diagonal().add_(a)
    return step


# ----------------------------------------------------------------------------------------------------------------- cost


def count_operations(sample_shape: tuple[int, ...], *, n_classes: int, width: int) -> float:
    """Return the multiplications and additions of training on one image of (channels, height, width)."""
    channels, *side = sample_shape
    size = patch_side(channels)
    height, breadth = (length - size + 1 for length in side)
    inputs = 2 * channels * size * size
    total = 2.0 * height * breadth * inputs * channels * size * size  # not trained: forward only
    passes = 2  # forward and weights; from the second convolution on, inputs too
    for out in stage_widths(width):
        for channels_in, halved in ((inputs, False), (out, True)):
            if halved:
                height, breadth = height // 2, breadth // 2
            total += passes * 2.0 * 9 * channels_in * out * height * breadth
            passes = 3
        inputs = out
    return total + 3 * 2.0 * width * n_classes


def plan_epochs(
    minutes: float,
    *,
    n_examples: int,
    sample_shape: tuple[int, ...],
    n_classes: int,
    width: int,
    sizes: Sequence[tuple[float, float]],
    most: int,
    precision: str = "float32",
) -> int:
    """Return the passes over the data that take so many minutes of one core: at least 1, no more than `most`.

    `precision` says which of `SPEEDS` the core has, and `sizes` are pairs of a share of the side and the share of the steps that are taken at it.
    """
    mean = sum(
        part * count_operations(shrink_shape(sample_shape, share), n_classes=n_classes, width=width)
        for share, part in sizes
    )
    return max(1, min(most, round(60 * minutes * SPEEDS[precision] / (n_examples * mean))))


def shrink_shape(sample_shape: tuple[int, ...], share: float) -> tuple[int, ...]:
    """Return the shape of an image whose sides are a share of what they were, but no less than `LEAST_SIDE`."""
    return sample_shape[0], *(min(side, max(LEAST_SIDE, round(share * side))) for side in sample_shape[1:])


def shrink_images(images: Tensor, share: float) -> Tensor:
    """Return images (n, channels, height, width) made smaller to `shrink_shape`: means of squares, or of what a pixel covers."""
    height, width = shrink_shape(tuple(images.shape[1:]), share)[1:]
    if (height, width) == tuple(images.shape[2:]):
        return images
    if images.shape[2] % height == 0 and images.shape[3] % width == 0:
        return functional.avg_pool2d(images, (images.shape[2] // height, images.shape[3] // width))
    return functional.interpolate(images, size=(height, width), mode="bilinear", antialias=True)


def sample_rows(n_examples: int) -> Iterator[Tensor]:
    """Yield the rows of evenly spaced images that patches are taken from, few at a time."""
    rows = torch.arange(0, n_examples, max(1, n_examples // PATCH_IMAGES))[:PATCH_IMAGES]
    yield from torch.split(rows, TOGETHER)


def default_width(minutes: float) -> int:
    """Return the width of the last stage for a run of so many minutes of one core, 0 where that is not said."""
    return WIDE if minutes > LONG else NARROW
