"""What a prior source is: it says what it costs, and turns features (and a budget) into beliefs about labels."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.guarantee import Guarantee, Trust
from labeldp.release import SensitiveLabels

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorTable:
    """Beliefs about the labels of n examples: rows of class probabilities, and the row of each example.

    `guarantee` is what it cost to learn them (None: nothing), `seeded` whether noise in them came from a seed, and
    `description` says in words where they come from.
    """

    rows: Floats
    index: Ints
    guarantee: Guarantee | None = None
    seeded: bool = False
    description: str = ""

    def probabilities(self, examples: Any = slice(None)) -> Floats:
        """Return the (m, K) prior of some examples."""
        chosen: Floats = self.rows[self.index[examples]]
        return chosen

    @property
    def says_nothing(self) -> bool:
        """Whether this is the uniform belief, which needs no record."""
        return bool((self.rows == 1.0 / self.rows.shape[1]).all())


#: (name, how to measure it) -> the table, measured now or kept from a run that was stopped
Kept = Callable[[str, Callable[[], PriorTable]], PriorTable]
#: What a prior that costs nothing stands on.
DID_NOT_SEE = "the prior did not see these labels"


class Prior(abc.ABC):
    """A source of beliefs about labels.

    `sees_labels` says whether `table` measures the labels (then the ledger is charged before it runs), `raw_features`
    whether it is given the features as the user has them, or as a pipeline's transformers make them.
    """

    sees_labels: ClassVar[bool] = True
    raw_features: ClassVar[bool] = False

    @abc.abstractmethod
    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Return how much of the epsilon `budget` this source spends on the same labels; 0 if it sees none of them."""

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Return what the beliefs cost, with the trust and the assumptions that they need; a curator's, unless told."""
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        return Guarantee.pure(spent, trust=Trust.CURATOR if spent else Trust.NO_ONE)

    def alone(self) -> Prior:
        """Return this source for a learner that releases no label: it may spend the whole budget. By default, itself."""
        return self

    def journaled(self, kept: Kept) -> Prior:
        """Return this source with a memory for what it measures on its way to the table. By default there is nothing."""
        return self

    def prepared(self, X: Any, *, budget: float, n_examples: int, n_classes: int) -> Prior:
        """Return this source with the work done that needs no label, so that it fails, if it must, before it is charged.

        What it costs is the same. By default there is nothing to prepare.
        """
        return self

    @abc.abstractmethod
    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Return the beliefs, spending on the labels what `cost` says of the whole `budget`."""


def one_row(row: Floats, n: int, description: str) -> PriorTable:
    """Return the same belief for all examples."""
    return PriorTable(rows=row[None, :], index=np.zeros(n, np.int64), description=description)


def own_rows(rows: Floats, description: str, guarantee: Guarantee | None = None) -> PriorTable:
    """Return a belief for each example."""
    return PriorTable(rows=rows, index=np.arange(len(rows)), guarantee=guarantee, description=description)
