"""ResNet18-v2 for 32 x 32 images: one 3 x 3 convolution in place of the 7 x 7 and the pooling of the large one.

>>> import torch
>>> network = ResNet18(3, n_classes=10)
>>> network(torch.zeros(2, 3, 32, 32)).shape, sum(p.numel() for p in network.parameters())
(torch.Size([2, 10]), 11172170)

References: He, Zhang, Ren, Sun, "Identity Mappings in Deep Residual Networks" (2016); Ghazi et al. (2021), supplement B.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from labeldp.nn.models._layers import GlobalMean

#: (channels, stride) of the eight blocks.
BLOCKS = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


class PreActivated(nn.Module):
    """x + f(x), with BatchNorm and ReLU before each convolution of f."""

    def __init__(self, channels: int, out: int, *, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(channels)
        self.first = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        same = channels == out and stride == 1
        self.shortcut = None if same else nn.Conv2d(channels, out, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the sum; a changed shape goes through a 1 x 1 convolution of the activated input."""
        active = functional.relu(self.first_norm(images))
        kept = images if self.shortcut is None else self.shortcut(active)
        changed = self.second(functional.relu(self.second_norm(self.first(active))))
        total: Tensor = kept + changed
        return total


class ResNet18(nn.Sequential):
    """The network as a sequence."""

    def __init__(self, channels: int, *, n_classes: int) -> None:
        layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False)]
        width = 64
        for out, stride in BLOCKS:
            layers.append(PreActivated(width, out, stride=stride))
            width = out
        super().__init__(
            *layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True), GlobalMean(), nn.Linear(width, n_classes)
        )
