"""Labels from every kind of column become the same codes, and show nothing of themselves."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import labeldp
from labeldp.errors import LabelDPError
from labeldp.release import SensitiveLabels
from labeldp.release.budget import CLASSES_READ_OFF
from labeldp.release.labels import box_numbers, codes_of

WORDS = ["no", "yes", "no", "maybe", "yes", "maybe"]
#: Their codes in the sorted list, and in the declared one.
CODES, CODES_DECLARED = [1, 2, 1, 0, 2, 0], [1, 0, 1, 3, 0, 3]
SORTED = ("maybe", "no", "yes")
DECLARED = ["yes", "no", "never", "maybe"]
NUMBERS = [0, 2, 1, 2, 1, 0]


def check(column: Any, listed: tuple[Any, ...], codes: list[int], *, read_off: bool, **given: Any) -> None:
    boxed = SensitiveLabels(column, **given)
    assert boxed.classes == listed
    assert [type(c) for c in boxed.classes] == [type(c) for c in listed]
    assert codes_of(boxed).tolist() == codes
    assert boxed.classes_read_off is read_off
    assert boxed.n_classes == len(listed)
    assert len(boxed) == len(codes)


@pytest.mark.parametrize(
    "column",
    [
        WORDS,
        tuple(WORDS),
        np.array(WORDS),
        np.array(WORDS, dtype=object),
        pd.Series(WORDS),
        pd.Series(WORDS, dtype="string"),
        pd.Series(WORDS, dtype=object),
        pd.Index(WORDS),
        pl.Series(WORDS),
        pl.Series(WORDS, dtype=pl.Categorical),
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.chunked_array([WORDS[:1], WORDS[1:]]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_text_from_any_library(column: Any) -> None:
    check(column, SORTED, CODES, read_off=True)
    check(column, tuple(DECLARED), CODES_DECLARED, read_off=False, classes=DECLARED)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(WORDS, dtype=pd.CategoricalDtype(DECLARED)),
        pd.Categorical(WORDS, categories=DECLARED),
        pd.CategoricalIndex(WORDS, categories=DECLARED),
        pl.Series(WORDS, dtype=pl.Enum(DECLARED)),
        pa.DictionaryArray.from_arrays(pa.array(CODES_DECLARED), pa.array(DECLARED), ordered=True),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_a_declared_list_of_classes_is_taken_with_its_order_and_its_unused_class(column: Any) -> None:
    """Only an enumeration is known not to have been inferred from the data; of the others the guarantee says so."""
    check(column, tuple(DECLARED), CODES_DECLARED, read_off=not isinstance(column, pl.Series))


@pytest.mark.parametrize("chunked", [False, True])
def test_the_order_of_an_unordered_arrow_dictionary_is_not_taken(chunked: bool) -> None:
    """`dictionary_encode` lists values as they first occur: released classes in that order name the first label."""
    column = pa.array(WORDS).dictionary_encode()
    assert column.dictionary.to_pylist()[0] == WORDS[0]
    check(pa.chunked_array([column]) if chunked else column, SORTED, CODES, read_off=True)


def test_arrow_dictionaries_that_differ_between_chunks_are_unified() -> None:
    pieces = [pa.array(["b", "a", "b"]).dictionary_encode(), pa.array(["c", "a", "c"]).dictionary_encode()]
    check(pa.chunked_array(pieces), ("a", "b", "c"), [1, 0, 1, 2, 0, 2], read_off=True)


@pytest.mark.parametrize(
    "column",
    [
        NUMBERS,
        *(np.array(NUMBERS, dtype) for dtype in ("u1", "u2", "i1", "i4", "i8", "u8", ">i4")),
        pd.Series(NUMBERS),
        pd.Series(NUMBERS, dtype="Int16"),
        pl.Series(NUMBERS, dtype=pl.UInt8),
        pa.array(NUMBERS),
        pa.chunked_array([NUMBERS[:1], NUMBERS[1:]]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_integers_are_codes_when_the_number_of_classes_is_known(column: Any) -> None:
    check(column, (0, 1, 2), NUMBERS, read_off=True)
    check(column, (0, 1, 2, 3, 4), NUMBERS, read_off=False, n_classes=5)
    check(column, (2, 1, 0), [2, 0, 1, 0, 1, 2], read_off=False, classes=[2, 1, 0])


@pytest.mark.parametrize(
    "column",
    [
        [True, False],
        np.array([True, False]),
        pd.Series([True, False]),
        pd.Series([True, False], dtype="boolean"),
        pl.Series([True, False]),
        pa.array([True, False]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_booleans_declare_their_two_classes(column: Any) -> None:
    check(column, (False, True), [1, 0], read_off=False)
    check(column[:1], (False, True), [1], read_off=False)  # also where only one of them occurs


def test_floats_and_mixtures() -> None:
    check([0.5, -1.5, 0.5, -1.5], (-1.5, 0.5), [1, 0, 1, 0], read_off=True)
    check(np.array([0.5, -1.5], np.float32), (0.5, -1.5), [0, 1], read_off=False, classes=[0.5, -1.5])
    check(["a", 1, "1"], ("a", 1, "1"), [0, 1, 2], read_off=False, classes=["a", 1, "1"])
    check(np.array([b"a", b"b"] * 2), (b"a", b"b"), [0, 1] * 2, read_off=True)


def test_codes_take_the_smallest_dtype() -> None:
    for n_classes, dtype in [(2, np.uint8), (256, np.uint8), (257, np.uint16), (65_537, np.uint32)]:
        assert codes_of(SensitiveLabels([0, 1], n_classes=n_classes)).dtype == dtype


def test_labels_are_the_ones_that_were_checked() -> None:
    """The compiled sampler trusts its codes: an array that changes after the check must not reach it."""
    array = np.array([0, 1, 1], np.uint8)
    boxed = SensitiveLabels(array, n_classes=2)
    array[:] = 200
    assert codes_of(boxed).tolist() == [0, 1, 1]


# Nothing is shown


SECRET = "secret-label-4711"


def test_repr_and_str_hide_the_labels_and_their_classes() -> None:
    boxed = SensitiveLabels([SECRET, "other"] * 2, name="diagnosis")
    assert repr(boxed) == "<SensitiveLabels 'diagnosis': 4 labels of 2 classes, contents hidden>"
    for text in (str(boxed), f"{boxed}", repr([boxed]), repr({"y": boxed})):
        assert SECRET not in text


def test_iteration_indexing_pickling_and_copying_are_refused() -> None:
    boxed = SensitiveLabels([0, 1], n_classes=2)
    for attempt in (list, tuple, set, sum, lambda b: 0 in b):
        with pytest.raises(LabelDPError, match=r"labels are not shown\. Use labeldp\.privatize or labeldp\.measure"):
            attempt(boxed)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(LabelDPError, match=r"labels are not pickled\. Privatize them first"):
            pickle.dumps(boxed, protocol)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(LabelDPError, match="labels are not pickled"):
            duplicate(boxed)
    with pytest.raises(TypeError):
        boxed[0]  # type: ignore[index]
    with pytest.raises(TypeError):
        vars(boxed)


def test_take_keeps_name_classes_and_ids() -> None:
    boxed = SensitiveLabels(WORDS, name="opinion", row_ids=[10, 11, 12, 13, 14, 15])
    part = boxed.take(slice(1, 3))
    assert (part.name, part.classes, part.classes_read_off, len(part)) == ("opinion", SORTED, True, 2)
    assert part.row_ids.tolist() == [11, 12]
    assert codes_of(part).tolist() == [2, 1]
    assert SensitiveLabels(WORDS).take(np.array([3])).row_ids is None


# What is refused


def test_of_an_unknown_label_the_row_is_said_and_neither_the_label_nor_its_count() -> None:
    labels = ["alpha"] * 20 + ["wrong-one"] * 3 + ["wrong-two"] * 5
    with pytest.raises(LabelDPError) as caught:
        SensitiveLabels(labels, classes=["alpha", "beta"])
    text = str(caught.value)
    assert text.startswith("labels: `labels` must be among the classes, got another one in row 20 (rows count from 0).")
    assert "wrong" not in text
    assert "alpha" not in text


@pytest.mark.parametrize(
    "column",
    [
        ["a", "b", "a"],
        np.array([3, 4, 3]),
        np.array([0.5, 1.5, 0.5]),
        pd.Series(["a", "b", "a"]),
        pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"]),
        pl.Series(["a", "b", "a"], dtype=pl.Categorical),
        pa.array(["a", "b", "a"]).dictionary_encode(),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_a_class_that_one_row_alone_has_is_not_read_off(column: Any) -> None:
    """The list of classes becomes public with a release: it would say what the label of row 1 is."""
    message = r"must have each class more than once .*, got one that row 1 alone has .* pass classes= "
    with pytest.raises(LabelDPError, match=message):
        SensitiveLabels(column)
    assert len(SensitiveLabels(column, classes=["a", "b", 3, 4, 0.5, 1.5])) == 3


@pytest.mark.parametrize(
    ("values", "given", "message"),
    [
        ([0, 1, 7, 7], {"n_classes": 3}, r"`labels` must be among the classes, got another one in row 2 "),
        ([0, -1], {"n_classes": 3}, r"`labels` must be among the classes, got another one in row 1 "),
        ([0, 1], {"classes": [1, 2]}, r"`labels` must be among the classes, got another one in row 0 "),
        ([0.25, 0.5], {"classes": [0.5]}, r"`labels` must be among the classes, got another one in row 0 "),
        (["ye"], {"classes": ["yes", "no"]}, r"got another one in row 0 "),
        ([True], {"classes": ["yes", "no"]}, r"`labels` must be among the classes, got another one in row 0 "),
        (
            np.array([[0], [1]], object)[:, 0],
            {"classes": [5]},
            r"`labels` must be among the classes, got another one in row 0 ",
        ),
        (["a", "b"], {"n_classes": 3}, r"`classes` must have 3 entries, got 2\. Pass classes=, the full public list"),
        ([0, 1], {"classes": [0, 1], "n_classes": 3}, r"`classes` must have 3 entries, got 2\."),
        ([True], {"n_classes": 3}, r"`classes` must have 3 entries, got 2\."),
        ([0], {"n_classes": 0}, r"`n_classes` must be an integer >= 1, got 0"),
        ([0], {"n_classes": 2.5}, r"`n_classes` must be an integer >= 1, got 2\.5"),
        ([0], {"n_classes": "2"}, r"`n_classes` must be an integer >= 1, got '2'"),
        (["a"], {"classes": ["a", "b", "a"]}, r"`classes` must name each class once, got one again at place 2"),
        ([0], {"classes": [[0], [1]]}, r"`classes` must be hashable, got a list"),
        ([0], {"classes": 3}, r"`classes` must be a list of classes, got a int\. A list"),
        (pa.array([[0], [1], [0], [1]]), {}, r"`labels` must be "),
        (pa.array([[0], [1], [0], [1]]), {"n_classes": 2}, r"`labels` must be "),
        ([[0, 1], [1, 0]], {}, r"`labels` must be one label per example, got an array of shape \(2, 2\)"),
        ([[0], [1, 0]], {}, r"`labels` must be one label per example, got sequences of different lengths"),
        (3, {}, r"`labels` must be one label per example, got an array of shape \(\)"),
        ("abc", {}, r"`labels` must be one label per example, got an array of shape \(\)"),
        (["a", 1], {}, r"`labels` must be of one kind to be sorted, got a mixture\. Pass classes="),
        (SensitiveLabels([0], n_classes=2), {}, r"`values` must be raw labels, got labels that are boxed already"),
    ],
)
def test_bad_labels_and_classes(values: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        SensitiveLabels(values, **given)


@pytest.mark.parametrize(
    "column",
    [
        ["a", None, "b", None],
        ["a", float("nan"), "b", float("nan")],
        [1.0, float("nan"), 2.0, float("nan")],
        [1, None, 2, None],
        [True, None, False, None],
        np.array(["2020-01-01", "NaT", "2020-01-02", "NaT"], "M8[D]"),
        pd.Series(["a", None, "b", None]),
        pd.Series([1, None, 2, None], dtype="Int64"),
        pd.Series([True, None, False, None], dtype="boolean"),
        pd.Categorical(["a", None, "b", None]),
        pl.Series(["a", None, "b", None]),
        pl.Series([1, None, 2, None]),
        pl.Series(["a", None, "b", None], dtype=pl.Enum(["a", "b"])),
        pa.array(["a", None, "b", None]),
        pa.array([1, None, 2, None]),
        pa.array([True, None, False, None]),
        pa.array(["a", None, "b", None]).dictionary_encode(),
        pa.chunked_array([["a", None], ["b", None]]),
        np.ma.array([0, 1, 0, 1], mask=[False, True, True, False]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__} {getattr(column, 'dtype', '')}",
)
def test_missing_labels_are_counted(column: Any) -> None:
    with pytest.raises(LabelDPError, match=r"`labels` must have no missing values, got 2 missing\. Drop or fill them"):
        SensitiveLabels(column)


@pytest.mark.parametrize("empty", [[], np.array([], int), pd.Series([], dtype=str), pa.array([], pa.string())])
def test_no_labels_at_all_do_not_pass_the_door(empty: Any) -> None:
    assert len(SensitiveLabels(empty, classes=["a", "b"])) == 0
    with pytest.raises(LabelDPError, match=r"^labels: `labels` must hold at least one label, got none"):
        labeldp.privatize(SensitiveLabels(empty, classes=["a", "b"]), labeldp.RandomizedResponse(1.0))
    with pytest.raises(LabelDPError, match=r"must hold at least one label, got none"):
        labeldp.measure(empty, labeldp.LabelCounts(), epsilon=1.0)


def test_classes_that_were_read_off_the_labels_are_an_assumption_of_the_guarantee() -> None:
    mechanism = labeldp.RandomizedResponse(1.0)
    read_off = labeldp.privatize(WORDS, mechanism)
    declared = labeldp.privatize(SensitiveLabels(WORDS, classes=DECLARED), mechanism)
    counted = labeldp.measure(WORDS, labeldp.LabelCounts(), epsilon=1.0)
    assert read_off.guarantee.assumptions == counted.guarantee.assumptions == (CLASSES_READ_OFF,)
    assert declared.guarantee.assumptions == ()
    assert "public" in CLASSES_READ_OFF
    assert read_off.guarantee.trust is labeldp.Trust.CURATOR  # whoever read the list off has seen all labels
    assert declared.guarantee.trust is labeldp.Trust.NO_ONE


def test_one_text_is_no_list_of_classes() -> None:
    """It would be read as the list of its characters."""
    with pytest.raises(
        LabelDPError, match=r"`classes` must be a list of classes, got one text.*classes=\[\"no\", \"yes\"\]"
    ):
        SensitiveLabels(["no", "yes"], classes="no,yes")


def test_amounts_that_are_taken_for_classes_are_answered_with_bounds():
    """Before: a regression through the classifier was told to merge the classes of its amounts."""
    with pytest.raises(LabelDPError, match=r"row 0 alone has.*LabelPrivateRegressor"):
        SensitiveLabels([10.5, 7.25, 7.25])
    with pytest.raises(LabelDPError, match="alone has") as told:
        SensitiveLabels([10, 7, 7])
    assert "Regressor" not in str(told.value)


def test_masked_numbers_are_missing_on_their_way_to_a_learner():
    """Before: what lies under a mask was released as a label."""
    numbers = np.ma.array([0.1, 0.9, 0.3], mask=[False, True, False])
    with pytest.raises(LabelDPError, match="must have no missing values, got 1 missing"):
        box_numbers("learner", numbers, n_rows=3, bounds=(0, 1), outside="clip", label_set="y")
    whole = box_numbers("learner", np.ma.array([0.1, 0.9, 0.3]), n_rows=3, bounds=(0, 1), outside="clip", label_set="y")
    assert len(whole) == 3
