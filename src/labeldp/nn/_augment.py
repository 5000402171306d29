"""Random changes of images that keep what they show: crop, mirror, cutout, on whole batches.

>>> as_augment("example", "crop,flip")
Augment(crop=0.125, flip=True, cutout=0.0)
>>> import torch
>>> Augment(crop=0.25, cutout=0.5)(torch.zeros(2, 1, 8, 8)).shape
torch.Size([2, 1, 8, 8])

References: DeVries, Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout" (2017).

Design notes. Sizes are shares of the side, so that one setting serves 28 and 32 pixels. A crop is a shift: the border is
repeated, which is background where there is one. What cutout removes becomes 0, the mean of standardised images. Random
numbers come from torch's generator of the CPU, whose state a checkpoint keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from labeldp._validate import check_real
from labeldp.errors import invalid, nearest


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Shift by up to `crop` of the side, mirror half of the images, blank a square of `cutout` of the side."""

    crop: float = 0.0
    flip: bool = False
    cutout: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def __call__(self, images: Tensor) -> Tensor:
        """Return changed images (n, channels, height, width)."""
        if self.flip:
            images = mirrored(images)
        if self.crop:
            images = shifted(images, most=max(1, round(self.crop * images.shape[3])))
        if self.cutout:
            images = blanked(images, side=max(1, round(self.cutout * images.shape[3])))
        return images


#: What a name in a list of names stands for: the paper's "standard data augmentations" at 32 pixels.
NAMED: dict[str, dict[str, Any]] = {"crop": {"crop": 0.125}, "flip": {"flip": True}, "cutout": {"cutout": 0.5}}


def as_augment(owner: str, value: Any) -> Augment:
    """Return an `Augment` from one, or from names such as "crop,flip,cutout"; "" is none."""
    if isinstance(value, Augment):
        for name in ("crop", "cutout"):
            if not 0 <= check_real(owner, f"augment.{name}", getattr(value, name)) < 1:
                raise invalid(owner, f"augment.{name}", "be in [0, 1)", got=getattr(value, name))
        return value
    names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else [repr(value)]
    merged: dict[str, Any] = {}
    for name in names:
        if name not in NAMED:
            raise invalid(owner, "augment", "be an Augment or names", got=value, fix=nearest(name, NAMED))
        merged.update(NAMED[name])
    return Augment(**merged)


def mirrored(images: Tensor) -> Tensor:
    """Return the images, each mirrored left to right with probability one half."""
    turn = torch.rand(len(images)).lt(0.5).to(images.device)
    return torch.where(turn[:, None, None, None], images.flip(3), images)


def shifted(images: Tensor, *, most: int) -> Tensor:
    """Return the images, each moved by up to `most` pixels each way."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (most,) * 4, mode="replicate")
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    down, right = (torch.randint(2 * most + 1, (len(images),)).to(images.device) for _ in range(2))
    return windows[torch.arange(len(images), device=images.device), :, down, right]


def blanked(images: Tensor, *, side: int) -> Tensor:
    """Return the images, each with a square around a random pixel set to 0; the square may reach over the border."""
    inside = []
    for axis in (2, 3):
        size = images.shape[axis]
        low = torch.randint(size, (len(images), 1)) - side // 2
        at = torch.arange(size)
        inside.append((at >= low) & (at < low + side))
    hole = (inside[0][:, :, None] & inside[1][:, None, :])[:, None].to(images.device)
    return images.masked_fill(hole, 0.0)
