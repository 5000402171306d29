"""Small problems on shared cores: threads that wait for each other cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield
