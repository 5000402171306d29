"""A small table of ratings with structure that a recommender can find."""

from __future__ import annotations

import numpy as np
import pytest

STARS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="session")
def stars() -> tuple[np.ndarray, np.ndarray]:
    """6,000 ratings of 150 users on 60 items: means by item and user, rounded and noisy."""
    rng = np.random.default_rng(3)
    quality, mood = rng.normal(0, 0.9, 60), rng.normal(0, 0.5, 150)
    users, items = rng.integers(0, 150, 6_000), rng.integers(0, 60, 6_000)
    means = 3.4 + quality[items] + mood[users]
    ratings = np.clip(np.rint(means + rng.normal(0, 0.6, 6_000)), 1, 5).astype(np.int64)
    return np.column_stack([users, items]), ratings
