"""One of each kind of channel, so that a test of the interface is written once and holds for all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from labeldp.arrays import Float64s
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel

#: Examples of a channel that has an index; a channel that serves any number is asked about as many.
N = 37
GENERATOR_SEED = 20240607


def packed(sets: object) -> npt.NDArray[np.uint8]:
    return np.packbits(np.asarray(sets, bool), axis=1, bitorder="little")


def some_sets(*, n: int, n_classes: int, seed: int) -> npt.NDArray[np.bool_]:
    """Sets of every size; the first is a single label, the second is all of them."""
    generator = np.random.default_rng(seed)
    sets = generator.random((n, n_classes)) < generator.random((n, 1))
    sets[np.arange(n), generator.integers(0, n_classes, n)] = True
    sets[0], sets[1] = np.arange(n_classes) == 2, True
    return sets


def grouped_index(n_rows: int) -> npt.NDArray[np.int64]:
    return np.arange(N) * 7 % n_rows


def random_rows(*shape: int, seed: int) -> Float64s:
    rows = np.random.default_rng(seed).exponential(size=shape)
    normalised: Float64s = rows / rows.sum(axis=-1, keepdims=True)
    return normalised


def candidates(*, odds: float, n_classes: int = 11) -> CandidateChannel:
    members = packed(some_sets(n=N, n_classes=n_classes, seed=GENERATOR_SEED))
    return CandidateChannel(odds=odds, members=members, n_classes=n_classes)


def square() -> Float64s:
    """A matrix with a heavy diagonal, so that it has an inverse."""
    matrix: Float64s = 0.5 * np.eye(4) + 0.5 * random_rows(4, 4, seed=1)
    return matrix


#: Every kind and every edge of it. Rows with base zeros, keep 0 and 1, sets of one label and of all.
CHANNELS: dict[str, Callable[[], FiniteChannel]] = {
    "one row": lambda: Channel(keep=0.3, base=[0.2, 0.5, 0.3]),
    "one uniform row": lambda: Channel(keep=0.6, base=np.full(5, 0.2)),
    "one row with a hole": lambda: Channel(keep=0.3, base=[0.2, 0.0, 0.5, 0.3]),
    "one row of one label": lambda: Channel(keep=0.3, base=[0.0, 1.0, 0.0]),
    "one row that keeps nothing": lambda: Channel(keep=0.0, base=[0.2, 0.5, 0.3]),
    "one row that keeps all": lambda: Channel(keep=1.0, base=[0.2, 0.5, 0.3]),
    "rows by group": lambda: Channel(
        keep=[0.1, 0.5, 0.999, 1e-6],
        base=[[0.2, 0.5, 0.3], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3], [1e-9, 1 - 1e-9, 0.0]],
        index=grouped_index(4),
    ),
    "rows by group in float32": lambda: Channel(
        keep=np.array([0.25, 0.75], np.float32),
        base=np.array([[0.25, 0.5, 0.25], [0.5, 0.0, 0.5]], np.float32),
        index=grouped_index(2).astype(np.uint8),
    ),
    "candidates": lambda: candidates(odds=1.7),
    "candidates of 8 classes": lambda: candidates(odds=0.01, n_classes=8),
    "candidates at epsilon 0": lambda: candidates(odds=0.0),
    "candidates at epsilon inf": lambda: candidates(odds=np.inf),
    "square matrix": lambda: MatrixChannel(square(), outputs_are_labels=True),
    "wide matrix": lambda: MatrixChannel(random_rows(3, 7, seed=2)),
    "narrow matrix": lambda: MatrixChannel(random_rows(5, 2, seed=3)),
    "matrix with an unused output": lambda: MatrixChannel([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]),
    "matrices by group": lambda: MatrixChannel(
        np.stack([square(), np.eye(4), np.roll(square(), 1, axis=1)]), index=grouped_index(3), outputs_are_labels=True
    ),
    "wide matrices by group": lambda: MatrixChannel(random_rows(2, 3, 5, seed=4), index=grouped_index(2)),
}


@pytest.fixture(params=list(CHANNELS))
def channel(request: pytest.FixtureRequest) -> FiniteChannel:
    """Each kind of channel in turn."""
    return CHANNELS[request.param]()
