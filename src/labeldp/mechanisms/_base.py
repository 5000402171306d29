"""What a mechanism is: public facts, the channel they imply, and the guarantee it keeps.

A mechanism never sees a label. It turns public knowledge (a prior, groups) into a `Channel`; the door draws from it.
One that needs statistics of the labels first (`MeasuringMechanism`) asks the door for noisy counts.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.channel import FiniteChannel
from labeldp.guarantee import Guarantee

#: (groups, n_groups, epsilon) -> noisy counts of labels, one row per group and one column per class.
NoisyCounts = Callable[[npt.NDArray[np.integer[Any]], int, float], npt.NDArray[np.int64]]


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


class MeasuringMechanism(Mechanism):
    """A mechanism whose channel depends on noisy counts of the labels.

    It still sees no label: `measured_channel` is handed a function that answers with noisy counts, at a price. The
    door makes that function, charges the whole `guarantee` once before the first count, and refuses to draw if the
    prices and `response_epsilon` add up to more than the guarantee, or if the channel exceeds `response_epsilon`.
    """

    @property
    @abc.abstractmethod
    def response_epsilon(self) -> float:
        """The part of the guarantee that is left for the channel."""

    @abc.abstractmethod
    def measured_channel(
        self, count: NoisyCounts, *, groups: Any, n_classes: int, n_examples: int, prior: Any = None
    ) -> FiniteChannel:
        """Return the channel, after checking every public argument and then asking `count` for what it needs."""
