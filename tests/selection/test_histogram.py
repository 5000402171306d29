"""Counts in every form, sets in an order that tells nothing, and bad input that is told what is wrong."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.selection import (
    Histogram,
    StablePlan,
    large_gap,
    limited_domain,
    noisy_max,
    propose_test_release,
    stable_plan,
    stable_top_k,
    top_k_exponential,
    top_stable,
)
from labeldp.selection.base import find_levels

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace"}


@given(
    st.lists(
        st.one_of(st.integers(0, 6), st.integers(10**6, 10**6 + 3), st.integers(2**31 - 2, 2**31 + 1)),
        min_size=1,
        max_size=30,
    )
)
def test_levels_gaps_and_top_agree_with_sorting(counts):
    h = np.array(counts)
    ordered = np.append(np.sort(h)[::-1], 0)
    levels, histogram = find_levels(h), Histogram.of(h)
    ranks, steep = levels.gaps(h.size)
    dense = np.zeros(h.size, int)
    dense[ranks - 1] = steep
    assert np.array_equal(dense, ordered[:-1] - ordered[1:])
    for k in range(1, h.size + 1):
        assert levels.value_at(k) == ordered[k - 1]
        assert np.array_equal(histogram.top(k), np.sort(np.argsort(-h, kind="stable")[:k]))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=60))
def test_pairs_count_each_user_once(pairs):
    users, items = (np.array(column) for column in zip(*pairs, strict=True))
    found = Histogram.from_pairs(users, items)
    expected = {item: len({u for u, i in pairs if i == item}) for item in set(items.tolist())}
    assert dict(zip(found.names.tolist(), found.counts.tolist(), strict=True)) == expected


def test_pairs_from_arrow_text_and_lists_agree():
    users, items = ["u1", "u2", "u1", "u1"], ["b", "b", "a", "b"]
    columns = [
        (users, items),
        (np.array(users), np.array(items)),
        (pa.array(users), pa.array(items)),
        (pa.chunked_array([users[:2], users[2:]]), pa.chunked_array([items])),
    ]
    for user_column, item_column in columns:
        found = Histogram.from_pairs(user_column, item_column, candidates=["c", "b", "a"])
        assert found.public
        assert found.counts.tolist() == [0, 2, 1]


def test_pairs_in_parts_equal_pairs_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 300, 5000), rng.integers(0, 40, 5000)
    whole = Histogram.from_pairs(users, items)
    monkeypatch.setattr("labeldp.selection.histogram.CHUNK", 333)
    parts = Histogram.from_pairs(users, items)
    assert np.array_equal(whole.counts, parts.counts)
    assert whole.counts.sum() == len(set(zip(users.tolist(), items.tolist(), strict=True)))


def test_memory_of_pairs_is_bounded_by_codes_and_one_part(monkeypatch):
    n, part = 600_000, 2**16
    monkeypatch.setattr("labeldp.selection.histogram.CHUNK", part)
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 20_000, n), rng.integers(0, 10_000, n)
    tracemalloc.start()
    Histogram.from_pairs(users, items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Codes take 2 * 4 bytes a row; a part takes about six arrays of 8 bytes (keys, unique and inverse), and the distinct
    # values of each part are held together while columns are coded (2 * 8 bytes a row at most).
    assert peak < 8 * n + 16 * n + 80 * part


def test_names_come_back_in_an_order_that_tells_nothing():
    loud = {"zoe": 900, "ann": 870, "mia": 1}
    turned = dict(reversed(list(loud.items())))
    for counts in (loud, turned, {**loud, "eve": 0}):
        found = stable_top_k(counts, epsilon=2.0, delta=1e-4, neighbours="replace", k_max=2, rng=4)
        assert found.items.tolist() == ["ann", "zoe"]
    found = stable_top_k(loud, candidates=["mia", "zoe", "eve", "ann"], rng=4, **{**BUDGET, "epsilon": 2.0})
    assert found.items.tolist() == ["zoe", "ann"]


def test_names_of_several_types_stay_what_they_are():
    found = stable_top_k({1: 900, "one": 870, (1, 2): 1}, k_max=2, rng=4, **BUDGET)
    assert set(found.items.tolist()) == {1, "one"}


def test_a_histogram_shows_no_counts():
    assert "917" not in repr(Histogram.of([917, 3]))
    assert "secret" not in repr(Histogram.of({"secret": 3}))


def test_whole_floats_and_every_integer_type_are_counts():
    for kind in (np.float64, np.int8, np.uint64, np.int32):
        assert Histogram.of(np.array([3, 1], kind)).counts.dtype == np.int64


def test_a_regularizer_forbids_and_prefers_ranks():
    h = [500, 300, 100, 50, 0]
    forbid = [-np.inf, 0.0, -np.inf, -np.inf]
    assert {large_gap(h, epsilon=1.0, neighbours="replace", regularizer=forbid, rng=i).k for i in range(9)} == {2}
    prefer = stable_top_k(h, regularizer=lambda ranks: 1e4 * (ranks == 3), rng=1, **BUDGET)
    assert prefer.k == 3
    assert stable_top_k(h, k_max=1, rng=1, **BUDGET).k == 1


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_a_fixed_k_is_filled_shrunk_and_met_with_a_large_budget(k):
    h, budget = [5000, 4000, 3000, 2000, 1000], {"epsilon": 30.0, "delta": 1e-6, "neighbours": "replace"}
    for gap_at in range(1, 5):
        prefer = np.where(np.arange(1, 5) == gap_at, 0.0, -1e6)[: min(4, 2 * k)]
        if not (prefer == 0).any():
            continue
        found = stable_top_k(h, k=k, regularizer=prefer, rng=1, **budget)
        assert found.passed
        assert found.proposed == gap_at
        assert found.items.tolist() == list(range(k))


def test_a_fixed_k_without_fallback_gives_what_is_stable():
    sold = {"ham": 9000, "egg": 8000, "tea": 2}
    found = stable_top_k(sold, k=3, fallback=False, rng=1, **BUDGET)
    assert found.passed
    assert found.items.tolist() == ["egg", "ham"]
    flat = stable_top_k(dict.fromkeys("abcdef", 5), k=3, fallback=False, rng=1, **BUDGET)
    assert not flat.passed
    assert flat.items.size == 0


def test_a_failed_test_falls_back_to_k_items():
    found = stable_top_k(np.full(20, 5), k=4, rng=1, **BUDGET)
    assert not found.passed
    assert found.items.size == 4


CALLS = {
    "stable_top_k": lambda counts, **kw: stable_top_k(counts, **{**BUDGET, **kw}),
    "large_gap": lambda counts, **kw: large_gap(counts, **{**BUDGET, **kw}),
    "noisy_max": lambda counts, **kw: noisy_max(counts, **{**BUDGET, **kw}),
    "propose_test_release": lambda counts, **kw: propose_test_release(counts, **{**BUDGET, "k": 1, **kw}),
    "top_k_exponential": lambda counts, **kw: top_k_exponential(counts, **{**BUDGET, "k": 1, **kw}),
    "limited_domain": lambda counts, **kw: limited_domain(counts, **{**BUDGET, "k": 1, **kw}),
    "top_stable": lambda counts, **kw: top_stable(counts, **{**BUDGET, "k": 1, **kw}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("counts", "changes", "message"),
    [
        ([3, -1, 2], {}, "`counts` must be >= 0"),
        ([3.5, 1, 2], {}, "`counts` must hold whole numbers, got a fraction"),
        ([3, np.nan, 2], {}, "`counts` must hold whole numbers, got NaN"),
        ([3, np.inf, 2], {}, "`counts` must be below 2\\^53"),
        ([], {}, "`counts` must be a list of at least one count"),
        ([[1, 2]], {}, "`counts` must be a list of at least one count"),
        (["a", "b"], {}, "`counts` must hold whole numbers, got dtype"),
        ([True, False], {}, "`counts` must hold whole numbers, got dtype bool"),
        ([2**60, 1], {}, "`counts` must be below 2\\^53"),
        ([3, 2, 1], {"neighbours": "swap"}, "`neighbours` must be one of 'add_remove', 'replace'"),
        ([3, 2, 1], {"neighbours": None}, "`neighbours` must be one of"),
        ([3, 2, 1], {"epsilon": 0.0}, "`epsilon` must be finite and > 0"),
        ([3, 2, 1], {"epsilon": np.nan}, "`epsilon` must be finite and > 0"),
        ([3, 2, 1], {"epsilon": np.inf}, "`epsilon` must be finite and > 0"),
        ([3, 2, 1], {"delta": 1.0}, "`delta` must be in"),
        ([3, 2, 1], {"candidates": ["a", "b"]}, "`candidates` must name every count"),
        ([3, 2], {"candidates": ["a", "a"]}, "`candidates` must be distinct"),
        ({"ham": 2}, {"candidates": ["hum", "egg"]}, "`candidates` must list every item that is counted"),
        ([3, 2, 1], {"rng": "seed"}, "`rng` must be"),
    ],
)
def test_bad_input_is_refused_everywhere(name, counts, changes, message):
    with pytest.raises(LabelDPError, match=message):
        CALLS[name](counts, **changes)


@pytest.mark.parametrize("name", CALLS)
def test_neighbours_have_no_default(name):
    budget = {"epsilon": 1.0, "delta": 1e-6, "k": 1}
    if name in {"large_gap", "noisy_max"}:
        del budget["k"]
    with pytest.raises(TypeError, match="neighbours"):
        globals()[name]([3, 2, 1], **budget)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stable_top_k([3], **BUDGET), "`counts` must have at least two candidates, got one"),
        (lambda: stable_top_k([3, 2], k=3, **BUDGET), r"`k` must be an integer in \[1, 2\], got 3"),
        (lambda: stable_top_k([3, 2], k=0, **BUDGET), "`k` must be an integer >= 1"),
        (lambda: stable_top_k([3, 2], test_delta=1e-6, **BUDGET), "`test_delta` must be > 0 and less than delta"),
        (lambda: stable_top_k([3, 2], test_delta=2e-6, **BUDGET), "`test_delta` must be > 0 and less than delta"),
        (lambda: stable_top_k([3, 2], test_delta=0.0, **BUDGET), "`test_delta` must be > 0"),
        (lambda: stable_top_k([3, 2], **{**BUDGET, "delta": 0.0}), "`delta` must be > 0, got 0.0. A released set"),
        (lambda: stable_top_k([3, 2], queries=0, **BUDGET), "`queries` must be an integer >= 1"),
        (lambda: stable_top_k({"a": 3}, **BUDGET), "`k_max` must be given where candidates are not public"),
        (lambda: stable_top_k({"a": 3}, k=1, **BUDGET), "`fallback` must be False where candidates are not public"),
        (lambda: stable_top_k([3, 2, 1], regularizer=[0.0, np.nan], **BUDGET), "`regularizer` must hold numbers below"),
        (lambda: stable_top_k([3, 2, 1], regularizer=[0.0, np.inf], **BUDGET), "`regularizer` must hold numbers below"),
        (lambda: stable_top_k([3, 2, 1], regularizer=[0.0], **BUDGET), "`regularizer` must give one number for each"),
        (lambda: stable_top_k([3, 2], regularizer=[-np.inf], **BUDGET), "`regularizer` must leave a rank to choose"),
        (lambda: stable_top_k([3, 2], k=1, regularizer=np.nan, **BUDGET), "`regularizer` must be a weight >= 0"),
        (lambda: stable_top_k([3, 2], noise="cauchy", **BUDGET), "`noise` must be one of 'gumbel'"),
        (lambda: large_gap([3], epsilon=1.0, neighbours="replace"), "at least two candidates"),
        (lambda: large_gap([3, 1], epsilon=1.0, neighbours="replace", noise="gaussian"), "`delta` must be > 0"),
        (lambda: noisy_max({"a": 3}, epsilon=1.0, neighbours="replace"), "`candidates` must be given for a mapping"),
        (lambda: propose_test_release([3, 2], k=2, **BUDGET), "There is no gap after the last candidate"),
        (lambda: propose_test_release([3, 2], k=1, noise="laplace", test_delta=1e-9, **BUDGET), "It is delta"),
        (lambda: top_k_exponential([3, 2], k=3, **BUDGET), r"`k` must be an integer in \[1, 2\]"),
        (lambda: top_k_exponential({"a": 1}, k=1, **BUDGET), "`candidates` must be given for a mapping"),
        (lambda: limited_domain([3, 2], k=3, **BUDGET), r"`k` must be an integer in \[1, 2\]"),
        (lambda: limited_domain([3, 2], k=2, k_bar=1, **BUDGET), "`k_bar` must be an integer >= 2"),
        (lambda: stable_plan(noise="gaussian", **BUDGET), "`choices` must be an integer >= 1"),
        (lambda: StablePlan(neighbours="replace", scale=0.0, sigma=1.0, test_delta=1e-6), "`scale` must be finite"),
        (lambda: StablePlan(neighbours="replace", scale=1.0, sigma=1.0, test_delta=0.0), "`test_delta` must be > 0"),
        (lambda: Histogram.from_pairs([1, 2], [1]), "be columns of one length"),
        (lambda: Histogram.from_pairs([], []), "column of integers or text"),
        (lambda: Histogram.from_pairs(["a", None], [1, 2]), "`users` must be a column of integers or text"),
        (lambda: Histogram.from_pairs([1, 2], [1.5, np.nan]), "`items` must be a column of integers or text"),
        (lambda: Histogram.from_pairs(pa.array([1, None]), pa.array([1, 2])), "`users` must be a column of integers"),
    ],
)
def test_bad_input_is_told_what_is_wrong(call, message):
    with pytest.raises(LabelDPError, match=message):
        call()
