"""The studies of KMNIST and CIFAR-100, for whoever has the files: the calls of `studies.images` on two more sets of the paper.

>>> KMNIST.name, CIFAR100.name
('images-kmnist', 'images-cifar100')
>>> PAPER["cifar100", "LP-2ST"][8.0]
74.14

No result is committed: we do not have the two sets. Everything but the data is what ran on the others; the files go into the
folders `kmnist` and `cifar100` (`labeldp.data.pictures` says which).

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, Table 2 (CIFAR-100)
and Table 5 of the supplement (KMNIST).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from studies.images import AUTO, NON_PRIVATE, STAGES, Case, ImageStudy, make_auto, make_network, make_stages

#: Ghazi et al. 2021: Table 2 and Table 5 of the supplement. Trained on a GPU; their LP rows trust no one and are pure.
PAPER: dict[tuple[str, str], dict[float, float]] = {
    ("kmnist", "LP-1ST"): {1.0: 76.56, 2.0: 92.04, 3.0: 95.86, 4.0: 96.86},
    ("kmnist", "LP-2ST"): {1.0: 81.26, 2.0: 93.72, 3.0: 97.19, 4.0: 97.83},
    ("kmnist", NON_PRIVATE): {math.inf: 98.33},
    ("cifar100", "LP-1ST"): {3.0: 20.96, 4.0: 46.28, 5.0: 61.38, 6.0: 68.34, 8.0: 73.59},
    ("cifar100", "LP-2ST"): {3.0: 28.74, 4.0: 50.15, 5.0: 63.51, 6.0: 70.58, 8.0: 74.14},
    ("cifar100", NON_PRIVATE): {math.inf: 76.38},
}
ALONE = next(name for name, trust in AUTO.items() if trust == "no one")


class MoreImages(ImageStudy):
    """LP-1ST, LP-2ST and what "auto" does without trust, at the paper's epsilons, on one set."""

    n_classes: ClassVar[int]

    def cases(self) -> Sequence[Case]:
        """The paper's epsilons; features are learned first, so that missing data is found before any fit."""
        _ = self.images
        epsilons = PAPER[self.data, "LP-2ST"]
        found = [Case(setting=setting, epsilon=epsilon) for epsilon in epsilons for setting in (*STAGES, ALONE)]
        return [*found, Case(setting=NON_PRIVATE, epsilon=math.inf)]

    def fit(self, case: Case, seed: int) -> Any:
        """Return the fitted model of a case."""
        return self.make_model(case, seed).fit(self.images.X, self.images.y)

    def make_model(self, case: Case, seed: int) -> Any:
        """Return the model of a case, for as many classes as the set has."""
        if case.setting == NON_PRIVATE:
            return make_network(seed, hidden=512, epochs=8, mixup=0.2)
        make = make_auto if case.setting in AUTO else make_stages
        return make(case, seed=seed).set_params(classes=tuple(range(self.n_classes)))

    def find_printed(self, case: Case) -> float | None:
        """Return the paper's number for this case, if it has one."""
        return PAPER.get((self.data, case.setting), {}).get(case.epsilon)


class KMNIST(MoreImages):
    """KMNIST."""

    name: ClassVar[str] = "images-kmnist"
    title: ClassVar[str] = "KMNIST with private labels, on a CPU"
    needs: ClassVar[str] = "KMNIST; PyTorch"
    data: ClassVar[str] = "kmnist"
    n_classes: ClassVar[int] = 10


class CIFAR100(MoreImages):
    """CIFAR-100."""

    name: ClassVar[str] = "images-cifar100"
    title: ClassVar[str] = "CIFAR-100 with private labels, on a CPU"
    needs: ClassVar[str] = "CIFAR-100; PyTorch"
    data: ClassVar[str] = "cifar100"
    n_classes: ClassVar[int] = 100
