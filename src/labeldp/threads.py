"""Threads for work that is split by rows: spans of a data set, each done by one thread, none depending on another.

Compiled loops and AES release the interpreter's lock, so plain threads are enough. Spans are handed out one by one: a
busy core delays its own span only, and the answer never depends on how many threads there are.

The number of threads is that of the cores this process may use, or $LABELDP_THREADS.

>>> seen = []
>>> over_spans(lambda low, high: seen.append((low, high)), 10, step=4)
>>> sorted(seen)
[(0, 4), (4, 8), (8, 10)]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from labeldp.errors import invalid


def thread_count() -> int:
    """Return how many threads to use."""
    named = os.environ.get("LABELDP_THREADS")
    if named is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not named.isdigit() or int(named) < 1:
        raise invalid("labeldp", "LABELDP_THREADS", "be a number >= 1", got=named)
    return int(named)


def over_spans(work: Callable[[int, int], None], n: int, *, step: int) -> None:
    """Call work(low, high) for consecutive spans that cover n rows; an error in one of them is raised here."""
    starts = range(0, n, step)
    threads = min(thread_count(), len(starts))
    if threads <= 1:
        for low in starts:
            work(low, min(low + step, n))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda low: work(low, min(low + step, n)), starts):
            pass
