"""The paper's small Inception for 28 x 28 images.

    Conv(3x3, 96) -> S1 -> S2 -> S3 -> GlobalMaxPool -> Linear
    S1: Block(32, 32), Block(32, 48), Conv(3x3, 160, stride 2)
    S2: Block(112, 48), Block(96, 64), Block(80, 80), Block(48, 96), Conv(3x3, 240, stride 2)
    S3: Block(176, 160), Block(176, 160)
    Block(a, b): Conv(1x1, a) beside Conv(3x3, b); Conv: convolution, BatchNorm, ReLU

>>> import torch
>>> SmallInception(1, n_classes=10)(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])

References: Ghazi et al. (2021), supplement B.
"""

from __future__ import annotations

from torch import nn

from labeldp.nn.models._layers import Beside, GlobalMax, convolution

#: (channels of the 1x1, channels of the 3x3) of each block, then the channels of the strided convolution after them.
STAGES: tuple[tuple[tuple[tuple[int, int], ...], int | None], ...] = (
    (((32, 32), (32, 48)), 160),
    (((112, 48), (96, 64), (80, 80), (48, 96)), 240),
    (((176, 160), (176, 160)), None),
)


class SmallInception(nn.Sequential):
    """The network as a sequence."""

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
