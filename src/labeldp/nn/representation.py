"""Features of images that no label was looked at for: learned by self-supervision (`BYOL`).

Under label privacy the features are public, so a representation made from them alone costs no budget. `BYOL` is a scikit-learn
transformer and stands in front of any learner. What an encoder says that was trained elsewhere is `labeldp.features.Embeddings`.

>>> images = np.random.default_rng(0).uniform(size=(12, 1, 8, 8)).astype(np.float32)
>>> BYOL(width=2, epochs=1, batch_size=4).fit_transform(images).shape
(12, 16)

*BYOL.* Two random views of an image go through an online network (encoder, projector, predictor) and a target network
(encoder, projector). The online network predicts the target's projection of the other view,

    loss = 2 - 2 cos(predictor(online(v)), target(v')) + the same with v and v' exchanged,

and only it is trained; the target follows as a moving average, target <- tau target + (1 - tau) online, with tau rising from
`decay` to 1 along half a cosine. Without the predictor and the slow target the constant answer would be a solution. Views
are a random window (a share of the side, resized), its mirror image, brightness and contrast.

References: Grill et al., "Bootstrap Your Own Latent" (2020).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn
from torch.nn import functional

from labeldp.arrays import Array, Float32s
from labeldp.errors import Described, invalid
from labeldp.nn.inputs import ArrayInputs, Scale, order_axes
from labeldp.nn.models import check_device, small_cnn
from labeldp.nn.training import seed_torch, update_average
from labeldp.validate import check_integer, check_positive, check_real


class BYOL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Features of small images by self-supervision (bootstrap your own latent), trainable on a CPU, without a label.

    Parameters
    ----------
    width : int
        Width of the small convolutional encoder; features have 8 times as many columns.
    hidden, projection : int
        Width of the hidden layer, and of the output, of the projector and the predictor.
    epochs, batch_size, lr, weight_decay
        Training with AdamW, linear warm-up over a tenth of the steps, then half a cosine. `epochs=0` leaves the first
        weights: random features.
    decay : float
        First decay of the target network.
    least_window : float
        A view shows a window of between this share and all of the side.
    flip : bool
        Whether views are mirrored, and features averaged over an image and its mirror image. Not for digits and letters.
    brightness, contrast : float
        How much views differ: brightness in standard deviations of the pixels, contrast as a share.
    device : str
        "cpu", "cuda", ...
    random_state : int or numpy RandomState
        Seed of first weights, order and views. Not a privacy matter.
    progress : callable (steps done, steps in all, loss), optional

    Attributes
    ----------
    encoder_ : torch.nn.Module
        The online encoder, in evaluation mode.
    history_ : tuple of float
        The mean loss of each epoch, between 0 and 8.
    sample_shape_ : tuple of int
        The shape of an image.
    """

    def __init__(
        self,
        *,
        width: int = 32,
        hidden: int = 256,
        projection: int = 64,
        epochs: int = 10,
        batch_size: int = 256,
        lr: float = 5e-3,
        weight_decay: float = 1e-4,
        decay: float = 0.98,
        least_window: float = 0.6,
        flip: bool = True,
        brightness: float = 0.4,
        contrast: float = 0.4,
        device: str = "cpu",
        random_state: Any = 0,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.width = width
        self.hidden = hidden
        self.projection = projection
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.decay = decay
        self.least_window = least_window
        self.flip = flip
        self.brightness = brightness
        self.contrast = contrast
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> BYOL:
        """Learn from images, bytes or floats, of at least 8 x 8, channels last or first or none; `y` is not looked at."""
        images = check_images(X)
        self._check_settings()
        device = check_device(self.device)
        scale = Scale.measure(images)
        inputs = ArrayInputs.of(images, scale=scale, device=str(device))
        with seed_torch(int(check_random_state(self.random_state).randint(2**31)), device):
            pair = Pair.make(images.shape[1], width=self.width, hidden=self.hidden, projection=self.projection)
            history = self._train(pair.to(device), inputs)
        self.encoder_, self.history_, self._scale = pair.online[0].eval(), tuple(history), scale
        self.sample_shape_ = tuple(images.shape[1:])
        return self

    def _check_settings(self) -> None:
        """Refuse settings out of their range."""
        for name, least in (("width", 1), ("hidden", 1), ("projection", 1), ("epochs", 0), ("batch_size", 2)):
            check_integer("BYOL", name, getattr(self, name), least=least)
        check_positive("BYOL", "lr", self.lr)
        for name, most in (("decay", 1.0), ("least_window", 1.0), ("contrast", 1.0), ("brightness", 100.0)):
            if not 0 <= check_real("BYOL", name, getattr(self, name)) <= most:
                raise invalid("BYOL", name, f"be in [0, {most:g}]", got=getattr(self, name))

    def _train(self, pair: Pair, inputs: ArrayInputs) -> list[float]:
        """Train the online network and let the target follow; return the mean losses of the epochs."""
        per_epoch = max(1, min(-(-len(inputs) // self.batch_size), len(inputs) // 2))
        total, done, history = self.epochs * per_epoch, 0, []
        weights = [*pair.online.parameters(), *pair.predictor.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=self.lr, weight_decay=self.weight_decay)
        look = Views(least_window=self.least_window, flip=self.flip, brightness=self.brightness, contrast=self.contrast)
        for _ in range(self.epochs):
            losses = []
            for rows in torch.tensor_split(torch.randperm(len(inputs)), per_epoch):
                part = (done + 0.5) / total
                for group in optimizer.param_groups:
                    group["lr"] = self.lr * min(part / 0.1, 0.5 * (1 + math.cos(math.pi * part)))
                images = inputs.batch(rows)
                losses.append(pair.step(look(images), look(images), optimizer, decay=raise_decay(self.decay, part)))
                done += 1
                if self.progress is not None:
                    self.progress(done, total, losses[-1])
            history.append(math.fsum(losses) / len(losses))
        return history

    def transform(self, X: Any) -> Float32s:
        """Return features, float32 (n, 8 width), averaged over an image and its mirror image where flips are views."""
        check_is_fitted(self, "encoder_")
        images = check_images(X)
        if images.shape[1:] != self.sample_shape_:
            got = Described(f"images of shape {images.shape[1:]}")
            raise invalid("BYOL", "X", f"be images of shape {self.sample_shape_}, as in fit", got=got)
        inputs = ArrayInputs.of(images, scale=self._scale, device=str(check_device(self.device)))
        parts = []
        with torch.inference_mode():
            for rows in torch.split(torch.arange(len(inputs)), 512):
                batch = inputs.batch(rows)
                features = self.encoder_(batch)
                parts.append((features + self.encoder_(batch.flip(3))) / 2 if self.flip else features)
        answer: Float32s = torch.cat(parts).cpu().numpy()
        return answer

    @property
    def _n_features_out(self) -> int:
        return 8 * int(self.width)


@dataclass(frozen=True, kw_only=True)
class Views:
    """How a random view of an image is made; the fields are those of `BYOL`."""

    least_window: float = 0.6
    flip: bool = True
    brightness: float = 0.4
    contrast: float = 0.4

    def __call__(self, images: Tensor) -> Tensor:
        """Return one random view of each image."""
        n, device = len(images), images.device
        side = torch.empty(n).uniform_(self.least_window, 1.0)
        centre = (2 * torch.rand(n, 2) - 1) * (1 - side)[:, None]
        sign = torch.where(torch.rand(n) < 0.5, -1.0, 1.0) if self.flip else torch.ones(n)
        window = torch.zeros(n, 2, 3)
        window[:, 0, 0], window[:, 1, 1], window[:, :, 2] = side * sign, side, centre
        grid = functional.affine_grid(window.to(device), list(images.shape), align_corners=False)
        seen = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
        factor = 1 + self.contrast * (2 * torch.rand(n, 1, 1, 1) - 1)
        offset = self.brightness * (2 * torch.rand(n, 1, 1, 1) - 1)
        changed: Tensor = seen * factor.to(device) + offset.to(device)
        return changed


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The online network with its predictor, and the target network that follows it."""

    online: nn.Sequential
    predictor: nn.Module
    target: nn.Sequential

    @classmethod
    def make(cls, channels: int, *, width: int, hidden: int, projection: int) -> Pair:
        """Return new networks for images of so many channels, the target equal to the online one."""
        layers = list(small_cnn(channels, n_classes=2, width=width).children())[:-1]
        online = nn.Sequential(nn.Sequential(*layers), _make_head(8 * width, hidden, projection))
        target = copy.deepcopy(online).requires_grad_(requires_grad=False)
        return cls(online=online, predictor=_make_head(projection, hidden, projection), target=target)

    def to(self, device: torch.device) -> Pair:
        """Move all networks to a device."""
        for network in (self.online, self.predictor, self.target):
            network.to(device)
        return self

    def step(self, first: Tensor, second: Tensor, optimizer: torch.optim.Optimizer, *, decay: float) -> float:
        """Take one step on two views of a batch, let the target follow with this decay, and return the loss before it."""
        both = torch.cat([first, second])
        with torch.no_grad():
            aims = self.target(both).chunk(2)
        guesses = self.predictor(self.online(both)).chunk(2)
        loss = compare_directions(guesses[0], aims[1]) + compare_directions(guesses[1], aims[0])
        value = float(loss.detach())
        if not math.isfinite(value):
            raise invalid("BYOL", "loss", "stay finite", got=Described(str(value)), fix="Lower lr.")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        update_average(self.target, self.online, decay=decay)
        return value


def compare_directions(guess: Tensor, aim: Tensor) -> Tensor:
    """Return the mean over rows of 2 - 2 cos(guess, aim): 0 where they point the same way, 4 where they are opposite."""
    return 2 - 2 * functional.cosine_similarity(guess, aim, dim=1).mean()


def raise_decay(decay: float, part: float) -> float:
    """Return the target's decay when this part of the run in [0, 1] is done: from `decay` to 1 along half a cosine."""
    return 1 - (1 - decay) * (math.cos(math.pi * part) + 1) / 2


def check_images(X: Any) -> Array:
    """Return images as (n, channels, height, width), bytes or float32; refuse other shapes and sides below 8."""
    given = np.asarray(X)
    images = order_axes(given)
    if images.ndim != 4 or min(images.shape[2:], default=0) < 8 or len(images) < 2:
        got = Described(f"an array of shape {given.shape}")
        must = "be two images or more, (n, height, width) with channels last or first, of at least 8 x 8"
        raise invalid("BYOL", "X", must, got=got)
    if images.dtype == np.uint8:
        return images
    checked: Array = check_array(images, dtype=np.float32, allow_nd=True, input_name="X")
    return checked


def _make_head(width: int, hidden: int, out: int) -> nn.Sequential:
    """Return the two layers that the projector and the predictor each are."""
    return nn.Sequential(
        nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out)
    )
