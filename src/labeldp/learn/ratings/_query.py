"""`GroupSums`: sums of integer scores of labels, one for each public group, each label in one group.

>>> query = GroupSums(scores=[-1, 0, 1], groups=[0, 0, 2], n_groups=3)
>>> query.sensitivity(n_classes=3)
Sensitivity(l1=2.0, l2=2.0)

`LabelSums` with an indicator weight per group says the same with n x groups integers; this needs n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer
from labeldp.errors import Described, invalid
from labeldp.release import LabelSums, Query, Sensitivity
from labeldp.release._queries import Integers, check_groups


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSums(Query):
    """sum over the labels of each group of score[label]; a replaced label moves one sum by the range of the scores.

    Parameters
    ----------
    scores : integers of shape (K,)
        What each class counts for.
    groups : integers of shape (n,)
        The public group of each label, 0 .. n_groups - 1.
    n_groups : int
        Number of groups, empty ones included.
    """

    scores: Any
    groups: Any
    n_groups: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", LabelSums(scores=self.scores).scores)
        check_integer("GroupSums", "n_groups", self.n_groups, least=1)
        object.__setattr__(self, "groups", check_groups("GroupSums", self.groups, self.n_groups))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """The range of the scores, in both norms: only one sum moves."""
        return LabelSums(scores=self.scores).sensitivity(n_classes=n_classes)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Integers:
        """Sum in integers, class by class: counts have no rounding."""
        if len(codes) != len(self.groups):
            got = Described(f"{len(self.groups)} for {len(codes)} labels")
            raise invalid("GroupSums", "groups", "have one entry per label", got=got)
        total = np.zeros(self.n_groups, np.int64)
        for code in range(n_classes):
            total += self.scores[code] * np.bincount(self.groups[codes == code], minlength=self.n_groups)
        return total
