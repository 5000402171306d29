"""Small models on shared cores: threads of linear algebra would wait for each other longer than they work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def _one_core() -> Iterator[None]:
    with threadpool_limits(limits=1):
        yield
