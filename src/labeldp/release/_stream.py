"""The door for a stream of labels: what `privatize` and `measure` do at once, done batch by batch.

>>> from labeldp._random import NoiseKey
>>> from labeldp.release import SensitiveLabels
>>> counts = StreamedCounts(n_groups=1, n_classes=3)
>>> for part in ([0, 1], [2, 2]):
...     counts.add(SensitiveLabels(part, n_classes=3), np.zeros(2, np.int64))
>>> counts
<StreamedCounts: 4 labels of 3 classes in 1 groups, contents hidden>
>>> counts.release(epsilon=1.0, key=NoiseKey.from_os()).value.shape
(1, 3)

Design notes. The answers are those of the calls in memory, bit for bit: counts are sums of integers, their noise comes
from the same place of the same key, and a label's noise is found by its position. Charging is the caller's, once for
the whole stream and before the first noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.channel import FiniteChannel
from labeldp.errors import PrivacyError
from labeldp.guarantee import Guarantee
from labeldp.release._labels import SensitiveLabels, codes_of
from labeldp.release._measure import Measurement, _check_budget, _noise_for
from labeldp.release._privatize import draw_codes
from labeldp.release._queries import LabelCounts


class StreamedCounts:
    """Labels counted by class in public groups, as they come; only the noisy counts come out.

    Guarantee
    ---------
    That of ``measure(labels, LabelCounts(groups=...), epsilon=...)`` on all the labels at once: the same sensitivity
    (2, or 1 for two classes), the same noise.
    """

    __slots__ = ("_exact", "_sizes", "n_classes", "n_groups")

    def __init__(self, *, n_groups: int, n_classes: int) -> None:
        self.n_groups, self.n_classes = n_groups, n_classes
        self._exact = np.zeros((n_groups, 1 if n_classes == 2 else n_classes), np.int64)
        self._sizes = np.zeros(n_groups, np.int64)

    def __repr__(self) -> str:
        size = f"{int(self._sizes.sum())} labels of {self.n_classes} classes in {self.n_groups} groups"
        return f"<StreamedCounts: {size}, contents hidden>"

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The public size of each group."""
        return self._sizes.copy()

    def add(self, labels: SensitiveLabels, groups: npt.NDArray[np.int64]) -> None:
        """Count a batch."""
        query = LabelCounts(groups=groups, n_groups=self.n_groups)
        self._exact += query.exact(codes_of(labels), n_classes=self.n_classes)
        self._sizes += np.bincount(groups, minlength=self.n_groups)

    def joined(self, other: StreamedCounts) -> StreamedCounts:
        """Return the counts of two disjoint sets of rows together: sums, in whatever order, of whole numbers."""
        both = StreamedCounts(n_groups=self.n_groups, n_classes=self.n_classes)
        both._exact += self._exact + other._exact
        both._sizes += self._sizes + other._sizes
        return both

    def release(self, *, epsilon: float, key: NoiseKey) -> Measurement:
        """Return the noisy counts (C, K); with two classes the first follows from the public group size."""
        target, _ = _check_budget(epsilon, 0.0)
        noise = _noise_for(LabelCounts().sensitivity(n_classes=self.n_classes), target, 0.0)
        noisy = self._exact + noise.draw(key, self._exact.size).reshape(self._exact.shape)
        if self.n_classes == 2:
            noisy = np.stack([self._sizes - noisy[:, 0], noisy[:, 0]], axis=1)
        return Measurement(value=noisy, guarantee=noise.guarantee, seeded=key.seeded, noise=noise.text)


def draw_part(
    labels: SensitiveLabels, channel: FiniteChannel, *, promise: Guarantee, key: NoiseKey, start: int
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Draw the outputs of labels `start` .. of a stream, after checking that their channel keeps the promise."""
    if not channel.epsilon <= promise.epsilon():
        raise PrivacyError(
            f"draw_part: epsilon = {promise.epsilon()!r} is promised, but the channel of the rows from {start} on has "
            f"{channel.epsilon!r}. They were not drawn. Fix the mechanism's `channel` or its `guarantee`."
        )
    return draw_codes(codes_of(labels), channel, key, start=start)
