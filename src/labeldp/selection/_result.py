"""What a selection hands out: the chosen items, how many, whether the test passed, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.guarantee import Guarantee

Items = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The result of a private selection.

    `items`: names (or indices where the counts have none). A set is listed in an order that says nothing of the counts
    (that of the candidates, or sorted names); an ordered selection in the order in which it was drawn.
    `k`: how many were proposed; public, also when the test failed. `passed`: whether a stability test let a set out;
    True where there is no test. `proposed`: the rank that was tested, where k was fixed beforehand. `guarantee`: of
    this one call. `seeded`: reproducible, hence not private.
    """

    items: Items
    k: int
    passed: bool
    guarantee: Guarantee
    seeded: bool
    proposed: int | None = None

    def __repr__(self) -> str:
        marks = ("" if self.passed else ", test failed") + (", seeded: not private" if self.seeded else "")
        return f"<Selection: k = {self.k}, {np.size(self.items)} items{marks}; {self.guarantee}>"
