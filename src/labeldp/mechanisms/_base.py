"""What a mechanism is: public facts, the channel they imply, and the guarantee it keeps.

A mechanism never sees a label. It turns public knowledge (a prior, groups) into a `Channel`; the door draws from it.
"""

from __future__ import annotations

import abc
from typing import Any

from labeldp.channel import FiniteChannel
from labeldp.guarantee import Guarantee


class Mechanism(abc.ABC):
    """A way to randomize labels: frozen public fields, `channel` and `guarantee`."""

    @property
    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised to the owner of each label."""

    @abc.abstractmethod
    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return how labels will be randomized.

        Parameters
        ----------
        prior : array of shape (K,), (C, K) with `groups`, or (n, K); or batches of the last, optional
            What is believed about each label before looking at it.
        groups : array of shape (n,), optional
            The row of `prior` that each example has.
        n_classes : int, optional
            K, where neither the mechanism nor the prior says it.
        """
