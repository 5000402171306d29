"""What the tests of learners share: a small problem that a linear model can learn, and counters at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from labeldp.release import door as _privatize
from labeldp.release import measurement as _measure


@dataclass(frozen=True)
class Problem:
    """Three Gaussian classes in four dimensions, about 95% separable; the labels are codes."""

    X: np.ndarray
    y: np.ndarray


def make_problem(n: int = 600, *, seed: int = 0) -> Problem:
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, n)
    centres = np.array([[2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 2.0, 0]])
    return Problem(X=centres[y] + generator.standard_normal((n, 4)) * 0.8, y=y)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small problems on shared cores: threads that wait for each other cost more than they bring.

    For a file, not for each test: finding the libraries that have threads takes ten milliseconds.
    """
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def problem() -> Problem:
    return make_problem()


@pytest.fixture(scope="session")
def problem_of() -> Callable[..., Problem]:
    return make_problem


@dataclass
class Door:
    """How many labels passed each leaf of the door, call by call."""

    drawn: list[int] = field(default_factory=list)
    measured: list[int] = field(default_factory=list)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Count rows where raw codes leave their box: `codes_of` is the one place that opens it, for both leaves."""
    counts = Door()

    def counting(module: Any, into: list[int]) -> None:
        opened = module.codes_of

        def codes_of(labels: Any) -> Any:
            into.append(len(labels))
            return opened(labels)

        monkeypatch.setattr(module, "codes_of", codes_of)

    counting(_privatize, counts.drawn)
    counting(_measure, counts.measured)
    return counts
