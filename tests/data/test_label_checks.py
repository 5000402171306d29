"""The look over labels and row ids: counted right in any batching, refused with the reason, never shown in bulk."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.data import check_label, check_row_ids, label_column, label_profile, open_table
from labeldp.data.label_column import LabelProfile
from labeldp.errors import LabelDPError


def stored(folder, values, *, name="label", **options):
    path = folder / "table.parquet"
    array = values if isinstance(values, pa.Array) else pa.array(values)
    pq.write_table(pa.table({name: array, "other": pa.nulls(len(array))}), path, **options)
    return open_table(path)


def profiled(folder, values):
    return label_profile(stored(folder, values), "label")


@settings(max_examples=25)
@given(values=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40), batch=st.integers(1, 9))
def test_profile_counts_as_python_does_in_any_batching(values, batch, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_column, "PROFILE_ROWS", batch)
        profile = profiled(tmp_path_factory.mktemp("profile"), pa.array(values, pa.string()))
    assert profile.counts == Counter(value for value in values if value is not None)
    assert (profile.rows, profile.missing, profile.complete) == (len(values), values.count(None), True)


@pytest.mark.parametrize(
    ("values", "dtype", "numeric"),
    [
        (pa.array([1, 1, 2, 2, None], pa.int8()), "int8", True),
        (pa.array([1.0, 1.0, 2.0, 2.0, float("nan")]), "double", True),
        (pa.array([True, True, False, False, None]), "bool", False),
        (pa.array(["x", "x", "y", "y", None]).dictionary_encode(), "string", False),
    ],
    ids=["int8", "NaN", "bool", "dictionary"],
)
def test_profile_of_each_type(values, dtype, numeric, tmp_path):
    profile = profiled(tmp_path, values)
    assert (profile.dtype, profile.numeric, profile.missing, profile.n_values) == (dtype, numeric, 1, 2)
    assert check_label(profile, missing="drop") == tuple(sorted(profile.counts))


def test_profile_stops_counting_but_not_the_rows(tmp_path):
    profile = profiled(tmp_path, np.arange(30_000))
    assert (profile.n_values, profile.complete, profile.rows) == (label_column.MOST_COUNTED + 1, False, 30_000)


def test_profile_at_the_limit_is_complete(tmp_path):
    profile = profiled(tmp_path, np.repeat(np.arange(label_column.MOST_COUNTED), 2))
    assert (profile.n_values, profile.complete) == (label_column.MOST_COUNTED, True)


def test_profile_repr_hides_counts(tmp_path):
    assert "SECRET" not in repr(profiled(tmp_path, ["SECRET", "SECRET", "b", "b"]))


def test_profile_of_a_csv_counts_empty_text_as_missing(tmp_path):
    (tmp_path / "table.csv").write_text("label,x\nyes,1\nyes,1\nno,2\nno,2\n,3\n")
    profile = label_profile(open_table(tmp_path / "table.csv"), "label")
    assert (profile.missing, dict(profile.counts)) == (1, {"yes": 2, "no": 2})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "a", "b", "b", None, None], r"no missing values, got 2 missing of 6 rows.*--missing drop"),
        (pa.array([None, None], pa.string()), "must have values, got 2 missing of 2 rows"),
        (["a", "a", "b"], r"more than once .*, got one that row 2 alone has .*give that row away: merge .*--classes"),
        (["a", "a", "b", "c"], "got one that row 2 alone has"),
        (["a", "a"], "two values or more, got one value only"),
        (np.repeat(np.arange(1_001), 2), r"at most 1,000 values, got more different numbers\..*--bounds"),
        (np.repeat(np.arange(200) / 7, 2), r"at most \d+ values, got more different numbers\."),
        (np.arange(20_000) / 7, r"at most 1,000 values, got more different numbers\..*--bounds"),
        ([str(i) for i in range(10_001)], r"must have classes, got more than 10,000 values.*identifier"),
    ],
    ids=["missing", "all missing", "once", "two once", "constant", "numeric", "fractions", "float", "text ids"],
)
def test_labels_that_cannot_be_released(values, message, tmp_path):
    with pytest.raises(LabelDPError, match=message):
        check_label(profiled(tmp_path, values))


def test_drop_does_not_save_an_empty_column(tmp_path):
    with pytest.raises(LabelDPError, match="must have values"):
        check_label(profiled(tmp_path, pa.array([None, None], pa.string())), missing="drop")


def test_missing_is_a_choice(tmp_path):
    with pytest.raises(LabelDPError, match="`missing` must be one of 'error', 'drop'"):
        check_label(profiled(tmp_path, ["a", "a", "b", "b"]), missing="fill")


def test_many_numeric_classes_at_the_limit_pass(tmp_path):
    assert len(check_label(profiled(tmp_path, np.repeat(np.arange(1_000), 2)))) == 1_000


def test_listed_classes_admit_rare_and_absent_ones(tmp_path):
    profile = profiled(tmp_path, ["a", "a", "b"])
    assert check_label(profile, classes=["b", "a", "z"]) == ("b", "a", "z")
    with pytest.raises(LabelDPError, match=r"got another value in row 2 \(rows count from 0\)\. List it too"):
        check_label(profile, classes=["a", "z"])
    for classes in (["a"], ["a", "b", "b"]):
        with pytest.raises(LabelDPError, match="`classes` must be two or more different values"):
            check_label(profile, classes=classes)


def test_listed_classes_do_not_hide_values_that_went_uncounted(tmp_path):
    profile = profiled(tmp_path, np.arange(20_000))
    with pytest.raises(LabelDPError, match="must hold only listed classes"):
        check_label(profile, classes=sorted(profile.counts))


def test_messages_show_the_row_and_never_a_label():
    secrets = {f"secret-{i}": 1 for i in range(50)}
    rows = {value: place for place, value in enumerate(secrets)}
    facts = {"column": "ill", "dtype": "string", "numeric": False, "rows": 50, "missing": 0}
    profile = LabelProfile(counts=secrets, first=rows, **facts)
    for classes in (None, ["a", "b"]):
        with pytest.raises(LabelDPError, match="row 0 ") as caught:
            check_label(profile, classes=classes)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("pieces", [1, 3])
def test_the_first_row_of_each_value_is_known(tmp_path, monkeypatch, coded, pieces):
    """Over batches, missing values and joined pieces: the row that a message names is the one to look at."""
    monkeypatch.setattr(label_column, "PROFILE_ROWS", 7)
    labels = [None, *np.random.default_rng(3).choice(["a", "b", "c", "d", None], 60).tolist()]
    found = []
    for number, part in enumerate(np.array_split(np.array(labels, object), pieces)):
        column = pa.array(part.tolist())
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"label": column.dictionary_encode() if coded else column}), path)
        found.append(label_profile(open_table(path), "label"))
    whole = functools.reduce(label_column.join_profiles, found)
    assert dict(whole.first) == {value: labels.index(value) for value in "abcd"}


def test_nested_labels_are_refused(tmp_path):
    with pytest.raises(LabelDPError, match="must be a column of single values"):
        profiled(tmp_path, pa.array([[1], [2]]))


# ------------------------------------------------------------------------------------------------------------ row ids


@settings(max_examples=40)
@given(
    ids=st.lists(st.integers(-3, 60) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), text=st.booleans()
)
def test_row_ids_agree_with_a_set_in_any_number_of_passes(ids, text, tmp_path_factory):
    values = pa.array([str(i) for i in ids]) if text else pa.array(ids, pa.int64())
    source = stored(tmp_path_factory.mktemp("ids"), values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_column, "IDS_AT_ONCE", 4)
        patch.setattr(label_column, "ID_ROWS", 5)
        if len(set(ids)) == len(ids):
            check_row_ids(source, "label")
        else:
            with pytest.raises(LabelDPError, match="must differ from row to row"):
                check_row_ids(source, "label")


def test_duplicate_message_has_one_example_and_counts(tmp_path):
    with pytest.raises(LabelDPError, match=r"got 7 3 times; 2 rows or more repeat an id\. Drop or merge"):
        check_row_ids(stored(tmp_path, [7, 1, 7, 2, 7]), "label")
    (tmp_path / "t.csv").write_text("id\nann\nbob\nann\n")
    with pytest.raises(LabelDPError, match="got 'ann' 2 times; 1 rows or more"):
        check_row_ids(open_table(tmp_path / "t.csv"), "id")


def test_colliding_hashes_of_text_are_not_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr(label_column, "hash", len, raising=False)  # every id of one length collides
    source = stored(tmp_path, ["aa", "bb", "cc"])
    check_row_ids(source, "label")
    with pytest.raises(LabelDPError, match="got 'bb' 2 times"):
        check_row_ids(stored(tmp_path, ["aa", "bb", "bb"]), "label")


def test_unsigned_ids_above_the_signed_range(tmp_path):
    check_row_ids(stored(tmp_path, pa.array([2**64 - 1, 2**63, 0], pa.uint64())), "label")
    with pytest.raises(LabelDPError, match="18446744073709551615 2 times"):
        check_row_ids(stored(tmp_path, pa.array([2**64 - 1, 2**64 - 1], pa.uint64())), "label")


def test_row_ids_of_the_wrong_kind(tmp_path):
    with pytest.raises(LabelDPError, match="must be whole numbers or text, got double"):
        check_row_ids(stored(tmp_path, [1.0, 2.0]), "label")
    with pytest.raises(LabelDPError, match="must have no missing values"):
        check_row_ids(stored(tmp_path, [1, None]), "label")
    with pytest.raises(LabelDPError, match="Did you mean `label`"):
        check_row_ids(stored(tmp_path, [1, 2]), "labl")
