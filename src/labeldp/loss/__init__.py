"""Privacy losses: frozen values that answer epsilon(delta) and delta(epsilon) with the tightest bound they know.

>>> sequence([(Pure(worst=1.0), 2)]).epsilon(0.0)
2.0

Users meet them through `labeldp.Guarantee`; the house builds with `sequence`, `parallel`, `group_loss` and `read_loss`.
"""

from __future__ import annotations

from labeldp.loss.base import BoundedRange, Loss, Pure
from labeldp.loss.compose import Beside, Lump, Then, compact, parallel, read_loss, sequence
from labeldp.loss.curves import RDP, ZCDP, Gaussian, Profile
from labeldp.loss.discrete import DiscreteGaussian
from labeldp.loss.group import group_loss

__all__ = [
    "RDP",
    "ZCDP",
    "Beside",
    "BoundedRange",
    "DiscreteGaussian",
    "Gaussian",
    "Loss",
    "Lump",
    "Profile",
    "Pure",
    "Then",
    "compact",
    "group_loss",
    "parallel",
    "read_loss",
    "sequence",
]
