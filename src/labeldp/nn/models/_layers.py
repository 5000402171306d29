"""Layers that several networks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
