"""Fingerprints: equal for equal rows, different for any other, whatever holds the ids."""

import hashlib
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from labeldp.accounting import Ledger, fingerprint
from labeldp.accounting.ledger_file import CHUNK
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee


def test_it_is_sixty_four_digits_and_stable():
    # Golden: computed by hand below from the definition. A change of definition splits every existing ledger in two.
    def framed(data):
        return len(data).to_bytes(8, "little") + data

    ids = b"i" + b"".join(value.to_bytes(8, "little", signed=True) for value in (5, -6))
    text = b"labeldp rows 1\n" + framed(b"adult") + framed(b"3:2") + framed(ids)
    assert fingerprint("adult", n_rows=2, start=3, row_ids=[5, -6]) == hashlib.sha256(text).hexdigest()


def test_every_fact_counts():
    prints = [
        fingerprint("a", n_rows=2),
        fingerprint("b", n_rows=2),
        fingerprint("a", n_rows=3),
        fingerprint("a", n_rows=2, start=1),
        fingerprint("a", n_rows=2, row_ids=[0, 1]),
        fingerprint("a", n_rows=2, row_ids=[1, 0]),
        fingerprint("a", n_rows=2, row_ids=["0", "1"]),
        fingerprint("a", n_rows=2, row_ids=["01", ""]),
        fingerprint("a", n_rows=2, row_ids=["", "01"]),
        fingerprint("a", n_rows=1, row_ids=[-1]),
        fingerprint("a", n_rows=1, row_ids=np.array([2**64 - 1], dtype=np.uint64)),
    ]
    assert all(one != other for one, other in itertools.combinations(prints, 2))


@pytest.mark.parametrize("size", [0, 1, 3, CHUNK, 2 * CHUNK + 1])
def test_the_container_does_not_count(size):
    numbers = list(range(size))
    expected = fingerprint("a", n_rows=size, row_ids=numbers)
    for held in (
        np.arange(size, dtype=np.int32),
        np.arange(size, dtype=np.uint64),
        np.array(numbers, dtype=object),
        pd.Series(numbers, dtype="int64"),
        pa.array(numbers, type=pa.int64()),
        np.arange(2 * size)[::2] // 2,
    ):
        assert fingerprint("a", n_rows=size, row_ids=held) == expected


def test_texts_may_come_in_any_container():
    words = ["é", "row-2", "", "x" * 50]
    expected = fingerprint("a", n_rows=4, row_ids=words)
    for held in (np.array(words), np.array(words, dtype=object), pd.Series(words), pa.array(words)):
        assert fingerprint("a", n_rows=4, row_ids=held) == expected


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1.0, 2.0], "float64"),
        ([True, False], "bool"),
        ([None, "a"], "NoneType, str"),
        (np.ma.array([7, 8], mask=[False, True]), "masked ones"),
        ([b"a", b"b"], "bytes"),
        (np.array([2**64, 1], dtype=object), "more than 64 bits"),
        (np.array([2**63, -1], dtype=object), "more than 64 bits"),
        ([1, 2, 3], "shape .3,. for 2 rows"),
        ([[1], [2]], "shape .2, 1. for 2 rows"),
    ],
)
def test_ids_that_are_not_integers_or_texts_are_refused(ids, said):
    with pytest.raises(LabelDPError, match=f"fingerprint: `row_ids` must .* got .*{said}"):
        fingerprint("a", n_rows=2, row_ids=ids)


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": 5}, {"n_rows": -1}, {"n_rows": 1.0}, {"start": -1}])
def test_bad_facts_are_refused(wrong):
    with pytest.raises(LabelDPError, match=f"fingerprint: `{next(iter(wrong))}` must"):
        fingerprint(**{"name": "a", "n_rows": 1, **wrong})


def test_a_ledger_finds_the_same_rows_under_any_name(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for name, rows in (("a", fingerprint("a", n_rows=3, row_ids=[7, 8, 9])), ("b", fingerprint("b", n_rows=4))):
        ledger.charge(Guarantee.pure(1.0), label_set=name, rows=rows, n_rows=3 if name == "a" else 4, mechanism="RR")

    def find(name, n_rows, *columns):
        return [entry.label_set for entry in ledger.find_releases(name, n_rows=n_rows, row_ids=columns)]

    assert find("a", 1) == ["a"]  # by name, whatever the rows
    assert find("c", 3, ["x", "y", "z"], [7, 8, 9]) == ["a"]  # by ids, in one of the columns
    assert find("c", 3, [9, 8, 7]) == find("c", 3) == []  # other rows
    assert find("c", 4, [1, 2, 3, 4]) == ["b"]  # an entry without ids knows the number alone
    assert find("c", 5) == []
