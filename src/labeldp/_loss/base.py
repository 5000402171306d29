"""What every privacy loss answers, so that composition needs to know no particular one.

A loss is a frozen value. It holds for a symmetric neighbouring relation: whatever bounds M(D) against M(D') bounds
M(D') against M(D). All of its answers are upper bounds, rounded up.

>>> from labeldp._loss import Pure
>>> Pure(worst=1.0).to_json()
{'kind': 'pure', 'epsilon': 1.0}

References: Mironov 2017 (Renyi DP); Bun & Steinke 2016 (zCDP and its approximate form); Zhu, Dong & Wang 2022
(dominating pairs).

Design notes: `profile` is None where only a Renyi curve is known; such a loss composes through `rdp`. A loss with a
profile also composes by convolution (see `discrete`).
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from typing import Any

from labeldp._loss.discrete import DiscreteLoss
from labeldp._loss.rounding import Array


class Loss(ABC):
    """The privacy loss of a mechanism: a set of upper bounds on how far two neighbours' outputs differ."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the least known epsilon such that (epsilon, delta)-DP holds; inf if there is none."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the least known delta such that (epsilon, delta)-DP holds."""

    @abstractmethod
    def rdp(self, orders: Array) -> Array:
        """Return bounds on the Renyi divergence at `orders` > 1, after an event of probability `slack` is set aside."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The words that name this loss to a reader."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, with inf as the string "inf"."""

    @property
    def slack(self) -> float:
        """The probability set aside before `rdp` holds (the delta of approximate RDP)."""
        return 0.0

    @property
    def landmarks(self) -> tuple[float, ...]:
        """Orders at which `rdp` is known best; an optimiser over orders tries them first."""
        return ()

    def profile(self, epsilons: Array) -> Array | None:
        """Return the exact privacy profile at `epsilons` >= 0, or None where only a Renyi curve is known."""
        return None

    def atoms(self) -> DiscreteLoss | None:
        """Return a dominating pair of finite support if this loss has one."""
        return None

    @property
    def key(self) -> str:
        """A text that orders losses, so that composition has one normal form."""
        return json.dumps(self.to_json(), sort_keys=True)


def to_number(value: float) -> float | str:
    """Return a JSON number, or "inf": strict JSON has no infinity."""
    return "inf" if math.isinf(value) else value


def from_number(value: Any) -> Any:
    """Undo `to_number`; anything else passes through to the check of the field that it fills."""
    return math.inf if value == "inf" else value
