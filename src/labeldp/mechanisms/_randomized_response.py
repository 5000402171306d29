"""`RandomizedResponse`: the classic, over all K classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeldp._validate import check_epsilon
from labeldp.channel import Channel, odds_to_keep, safe_odds
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms._base import Mechanism
from labeldp.mechanisms._priors import check_n_classes


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Return the label with probability e^epsilon / (e^epsilon + K - 1), any other one with 1 / (e^epsilon + K - 1).

    As a channel: keep = (e^epsilon - 1) / (e^epsilon + K - 1), base uniform.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    n_classes : int, optional
        K; if it is left out, the list of classes that the labels come with says it.

    Guarantee
    ---------
    Pure epsilon when one label is replaced, exactly: the two likelihoods of an output differ by a factor of e^epsilon
    at most (Warner 1965; Kairouz, Oh, Viswanath 2016). Each label may be randomized by its owner: no one is trusted.

    Edge cases
    ----------
    epsilon = 0 is uniform over all classes; epsilon = inf returns every label as it is; one class is an error.

    Example
    -------
    >>> RandomizedResponse(1.0, n_classes=2).channel().matrix().round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]
    """

    epsilon: float
    n_classes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RandomizedResponse", self.epsilon))
        if self.n_classes is not None:
            object.__setattr__(self, "n_classes", check_n_classes("RandomizedResponse", self.n_classes))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        """Return the one row that serves every example; a prior or groups are refused, since they would be ignored."""
        owner = "RandomizedResponse"
        if prior is not None or groups is not None:
            name = "prior" if prior is not None else "groups"
            raise invalid(owner, name, "be left out", got=Described("one"), fix="Use RRWithPrior to use a prior.")
        if n_classes is not None and self.n_classes not in (None, n_classes):
            raise invalid(owner, "n_classes", f"be {self.n_classes}, as the mechanism says", got=n_classes)
        size = check_n_classes(owner, self.n_classes if self.n_classes is not None else n_classes)
        keep, redraw = odds_to_keep(safe_odds(self.epsilon), size)
        return Channel(keep=keep, redraw=redraw, base=np.full(size, 1.0 / size))
