"""A small convolutional network: five convolutions at three sizes, a minute an epoch at most.

>>> import torch
>>> small_cnn(1, n_classes=10)(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])
"""

from __future__ import annotations

from torch import nn

from labeldp.nn.models._layers import Beside, GlobalMax, GlobalMean, convolution


def small_cnn(channels: int, *, n_classes: int, width: int = 16) -> nn.Sequential:
    """Return a network for images of 8 x 8 or more; its last layer sees the maximum and the mean of each channel."""
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
