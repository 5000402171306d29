"""Without torch, which the extra labeldp[torch] brings, there is nothing here to test."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def blobs():
    """Three classes in five columns; the best possible accuracy is about 0.97."""
    generator = np.random.default_rng(0)
    centres = 1.5 * generator.normal(size=(3, 5))
    y = generator.integers(0, 3, 450)
    return (centres[y] + generator.normal(size=(450, 5))).astype(np.float32), y


@pytest.fixture(scope="session")
def rows():
    """Seventy rows of three classes, for runs whose every step is looked at."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 70)
    return (generator.normal(size=(70, 4)) + y[:, None]).astype(np.float32), y
