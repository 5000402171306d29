"""Spans cover every row once, errors come back, and the number of threads is checked."""

from __future__ import annotations

import threading

import pytest

from labeldp import LabelDPError
from labeldp.random import over_spans, thread_count


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize(("n", "step"), [(0, 5), (1, 5), (5, 5), (11, 5), (1000, 7)])
def test_spans_cover_every_row_once(n, step, threads, monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", threads)
    rows: list[int] = []
    over_spans(lambda low, high: rows.extend(range(low, high)), n, step=step)
    assert sorted(rows) == list(range(n))


def test_several_threads_work_at_once(monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", "2")
    both = threading.Barrier(2, timeout=30)
    over_spans(lambda low, high: both.wait() and None, 2, step=1)  # one thread alone would wait for ever


def test_an_error_in_a_span_is_raised(monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", "2")

    def work(low: int, high: int) -> None:
        if low >= 4:
            raise KeyError(low)

    with pytest.raises(KeyError):
        over_spans(work, 10, step=2)


@pytest.mark.parametrize("named", ["0", "-1", "two", ""])
def test_a_bad_number_of_threads_is_refused(named, monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", named)
    with pytest.raises(LabelDPError, match="LABELDP_THREADS"):
        thread_count()
