"""What a network can learn before it is told anything of a label: which images look alike.

>>> import numpy as np
>>> stripes = np.tile(np.float32([0, 0, 1, 1]), (20, 1, 12, 3))
>>> images = np.concatenate([stripes, stripes.swapaxes(2, 3)]) + 0.1 * np.random.default_rng(0).random((40, 1, 12, 12))
>>> groups = group_images(ArrayInputs.of(images.astype(np.float32)), count=2, flips=False, seed=0)
>>> sorted(np.bincount(groups).tolist())
[20, 20]

Under label privacy images are public, and so is all that is made of them alone. Cheap features (`labeldp.features.PatchFeatures`) are
computed in seconds, without a label; k-means finds groups of images that are near each other in them; and the network is
first trained to tell the group of an image. Its filters then know what images look like before the first private answer is read,
which is worth most where answers say little. The last layer, which knew the groups, is replaced.

Design notes. Features are fitted on a sample and computed a few thousand images at a time: no copy of all images is made. The run is one
like any other (`labeldp.nn.training`), with its own place among the checkpoints: its fingerprint has the groups in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from labeldp.arrays import Array, Float32s, Int64s
from labeldp.errors import Described, invalid
from labeldp.features import PatchFeatures
from labeldp.nn.fast_cnn import FastCNN
from labeldp.nn.inputs import ArrayInputs, Inputs
from labeldp.nn.presets import Training
from labeldp.nn.training import Evidence, Task
from labeldp.priors.cluster import cluster

__all__ = ["ArrayInputs", "check_groups", "describe_images", "describe_pretraining", "group_images", "replace_head"]

#: The passes of the first run, as a share of those of the second; all of them at the smallest size.
SHARE = 0.25
#: Components of the features, images that they are fitted on, and images whose features are computed together.
COMPONENTS, SAMPLE, TOGETHER = 128, 9000, 2000


def group_images(inputs: Inputs, *, count: int, flips: bool, seed: int) -> Int64s:
    """Return the group of each image, 0, 1, ...; `flips` where an image and its mirror image are to be alike."""
    check_groups(count, len(inputs))
    features = describe_images(inputs, n_components=COMPONENTS, flips=flips, random_state=seed)
    return cluster(features, n_clusters=count, random_state=seed)


def check_groups(count: int, n: int) -> None:
    """Refuse more groups than n images can have, or fewer than two."""
    if not 2 <= count <= n // 2:
        fix = f"Give between 2 and {n // 2} groups for {n} images, or 0 for none."
        raise invalid("NetClassifier", "pretrain", "be the number of groups of alike images", got=count, fix=fix)


def describe_images(inputs: Inputs, *, watch: Callable[[Any], Any] = iter, **settings: Any) -> Float32s:
    """Return features of images by which alike ones are near each other: `PatchFeatures` with these settings.

    `watch` is put around the pieces that are computed one after the other: it may show how many are done.
    """
    channels, height, width = inputs.sample_shape
    n = len(inputs)
    features = PatchFeatures(image_shape=(height, width, channels), **settings)
    features.fit(take_flat(inputs, torch.arange(0, n, max(1, n // SAMPLE))))
    parts = [features.transform(take_flat(inputs, rows)) for rows in watch(torch.split(torch.arange(n), TOGETHER))]
    return np.concatenate(parts)


def take_flat(inputs: Inputs, rows: torch.Tensor) -> Array:
    """Return images as rows of numbers, channels last."""
    parts = [inputs.batch(some).permute(0, 2, 3, 1).flatten(1).cpu().numpy() for some in torch.split(rows, TOGETHER)]
    return np.concatenate(parts)


def describe_pretraining(inputs: Inputs, training: Training, *, count: Any, seed: int) -> Task:
    """Return the task of telling the group of an image, on images as small as those of the first steps."""
    if len(inputs.sample_shape) != 3:
        got = Described(f"examples of shape {inputs.sample_shape}")
        raise invalid("NetClassifier", "pretrain", "be left out unless X are images", got=got)
    groups = group_images(inputs, count=count, flips=training.augment.flip, seed=seed)
    settings = replace(
        training,
        epochs=max(1, round(SHARE * training.epochs)),
        sizes=((training.find_size(0.0), 1.0),) if training.sizes else (),
        mixup=0.0,
        ema=0.0,
    )
    evidence = Evidence(kind="plain", values=torch.from_numpy(groups), n_classes=int(groups.max()) + 1)
    return Task(inputs=inputs, evidence=evidence, training=settings)


def replace_head(network: FastCNN, n_classes: int) -> nn.Linear:
    """Give the network a new last layer for so many classes, and return the old one."""
    old = network.head
    new = nn.Linear(network.width, n_classes, bias=False, device=old.weight.device)
    nn.init.normal_(new.weight)
    network.head = new
    return old
