"""What the tests of the door share: a ledger that only records, and a release of each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.accounting import AccountName, RowKey
from labeldp.channel import Channel, FiniteChannel, MatrixChannel
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import Mechanism
from labeldp.release import Release, SensitiveLabels, privatize


@dataclass
class Recorder:
    """A ledger that writes down what it is charged with, or refuses."""

    refusal: Exception | None = None
    charges: list[dict[str, Any]] = field(default_factory=list)

    def row_key(self) -> RowKey:
        return RowKey.fresh()

    def choose_account(self, name: AccountName) -> SimpleNamespace:
        return SimpleNamespace(label_set=str(name), notes=())

    def charge(self, guarantee: Guarantee, **facts: Any) -> SimpleNamespace:
        self.charges.append({"guarantee": guarantee, **facts})
        if self.refusal is not None:
            raise self.refusal
        return SimpleNamespace(id=41 + len(self.charges))


@pytest.fixture
def recorder() -> Callable[..., Recorder]:
    return Recorder


@dataclass(frozen=True)
class Fixed(Mechanism):
    """A mechanism that has one channel, whatever it is asked."""

    answer: FiniteChannel
    epsilon: float = 5.0

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        return self.answer


@pytest.fixture
def fixed() -> Callable[..., Fixed]:
    return Fixed


N = 60
PRIOR = np.random.default_rng(0).dirichlet(np.ones(3), N)
TRUE = np.arange(N) * 5 % 3
GROUPS = np.arange(N) % 2
SUBSETS = [[0.5, 0.25, 0.25, 0.0], [0.25, 0.5, 0.25, 0.0], [0.25, 0.25, 0.5, 0.0]]


def flip_by_group() -> MatrixChannel:
    return MatrixChannel([np.eye(3) * 0.5 + 1 / 6, np.eye(3) * 0.2 + 0.8 / 3], index=GROUPS, outputs_are_labels=True)


#: One release of every kind of channel; the last is of outputs that are not labels.
RELEASES: dict[str, Callable[[], Release]] = {
    "one row": lambda: privatize(TRUE, labeldp.RandomizedResponse(1.0, n_classes=3), rng=1),
    "rows by group": lambda: privatize(TRUE, labeldp.RRWithPrior(1.0), prior=PRIOR[:2], groups=GROUPS, rng=1),
    "uneven rows by group": lambda: privatize(
        SensitiveLabels(TRUE, n_classes=3),
        Fixed(Channel(keep=[0.1, 1 / 3], base=[[0.2, 0.5, 0.3], [1 / 3, 2 / 3, 0]], index=GROUPS)),
        rng=1,
    ),
    "candidates": lambda: privatize(TRUE, labeldp.RRWithPrior(1.0), prior=PRIOR, rng=1),
    "candidates at epsilon inf": lambda: privatize(TRUE, labeldp.RRTopK(float("inf"), k=2), prior=PRIOR, rng=1),
    "square matrix": lambda: privatize(
        SensitiveLabels(TRUE, n_classes=3), Fixed(flip_by_group().take(slice(None))), rng=1
    ),
    "outputs that are not labels": lambda: privatize(
        SensitiveLabels(TRUE, n_classes=3), Fixed(MatrixChannel(SUBSETS)), rng=1
    ),
}


@pytest.fixture(params=list(RELEASES))
def release(request: pytest.FixtureRequest) -> Release:
    """A release of each kind in turn, all of the same 60 labels."""
    return RELEASES[request.param]()


@pytest.fixture
def make_release() -> Callable[[str], Release]:
    return lambda name: RELEASES[name]()
