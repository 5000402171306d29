"""Steps that run ahead in a thread: in order, bounded, with their errors, and gone when nobody wants them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.engines.engine import prefetch
from labeldp.engines.rows import regroup


def workers() -> int:
    return sum(thread.name == "labeldp-prefetch" for thread in threading.enumerate())


def test_items_come_in_order() -> None:
    assert list(prefetch(range(1000), depth=3)) == list(range(1000))
    assert workers() == 0


def test_an_error_of_the_thread_is_raised_after_what_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("two")

    steps = prefetch(items(), depth=2)
    assert next(steps) == 1
    with pytest.raises(KeyError, match="two"):
        next(steps)
    assert workers() == 0


def test_no_more_than_the_depth_is_made_ahead() -> None:
    made: list[int] = []
    enough = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                enough.set()
            yield number

    steps = prefetch(items(), depth=2)
    assert next(steps) == 0
    enough.wait(timeout=10)
    # One was taken, two wait in the queue, and one is in the thread's hands.
    assert len(made) <= 4
    steps.close()  # type: ignore[attr-defined]
    assert len(made) <= 4
    assert workers() == 0


def test_stopping_early_closes_the_source_in_a_chain() -> None:
    closed: list[str] = []

    def source() -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            closed.append("source")

    def step() -> Iterator[int]:
        for number in prefetch(source(), depth=2):
            yield number * 2

    for number in prefetch(step(), depth=2):
        if number >= 10:
            break
    del number
    import gc

    gc.collect()
    assert closed == ["source"]
    assert workers() == 0


@given(st.lists(st.integers(0, 9)), st.integers(1, 12))
def test_regrouping_keeps_rows_and_makes_exact_sizes(lengths: list[int], size: int) -> None:
    schema = pa.schema([("a", pa.int64())])
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    parts = [
        pa.record_batch([pa.array(range(s, s + n), pa.int64())], schema=schema)
        for s, n in zip(starts, lengths, strict=True)
    ]
    groups = list(regroup(parts, size))
    assert [value for group in groups for value in group.column(0).to_pylist()] == list(range(sum(lengths)))
    assert all(group.num_rows == size for group in groups[:-1])
    assert all(0 < group.num_rows <= size for group in groups[-1:])
