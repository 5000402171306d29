"""Features of raw tables and private scores: each against an independent computation."""

from __future__ import annotations

import datetime as dt
import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from labeldp import LabelPrivateClassifier, LabelPrivateRegressor, Ledger, SensitiveLabels
from labeldp.errors import LabelDPError
from labeldp.learn import PATE, PrivateSearchCV, SoftmaxRegression, evaluate
from labeldp.learn.convex import OutputPerturbation, PrivateGLM
from labeldp.learn.scoring import PUBLIC_SCORES, CorrectCount, noise_width, score_privately
from labeldp.learn.tables import TableEncoder

RNG = np.random.default_rng(3)
MIXED = pa.table({"age": RNG.normal(40, 9, 50), "sex": RNG.choice(["f", "m"], 50), "kids": RNG.integers(0, 4, 50)})


def test_numbers_and_words_as_scikit_learn_has_them():
    got = TableEncoder().fit_transform(MIXED)
    numbers = np.column_stack([MIXED["age"].to_numpy(), MIXED["kids"].to_numpy()])
    words = MIXED["sex"].to_numpy().reshape(-1, 1)
    expected = np.hstack(
        [StandardScaler().fit_transform(numbers), OneHotEncoder(sparse_output=False).fit_transform(words)]
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)  # float32


def test_order_of_columns_and_strangers_do_not_matter():
    encoder = TableEncoder().fit(MIXED)
    moved = MIXED.select(["sex", "kids", "age"]).append_column("new", pa.array(range(50)))
    assert np.array_equal(encoder.transform(moved), encoder.transform(MIXED))


def test_batches_equal_the_whole():
    encoder = TableEncoder().fit(MIXED)
    parts = [encoder.transform(MIXED.slice(i, 7)) for i in range(0, 50, 7)]
    assert np.array_equal(np.vstack(parts), encoder.transform(MIXED))


def test_rare_words_share_a_column_and_missing_ones_have_none():
    table = pa.table({"w": ["a"] * 5 + ["b"] * 4 + ["c"] * 2 + ["d"]})
    encoder = TableEncoder(max_categories=3).fit(table)
    assert encoder.categories_["w"] == ["a", "b"]
    got = encoder.transform(pa.table({"w": ["a", "d", "never seen", None]}))
    assert got.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]]


def test_missing_numbers_become_the_median_and_are_marked():
    encoder = TableEncoder().fit(pa.table({"x": [1.0, None, 1.0, 4.0, float("nan")]}))
    assert encoder.numbers_["x"] == [2.0, pytest.approx(2**0.5)]
    got = encoder.transform(pa.table({"x": [None, 2.0]}))
    assert got.tolist() == [[pytest.approx(-(0.5**0.5)), 1.0], [0.0, 0.0]]
    assert encoder.notes_ == [
        "numbers centred and scaled: x",
        "x: 2 of 5 missing, filled with the median 1, and marked in a column",
    ]


def test_a_gap_in_a_column_that_had_none_is_the_mean():
    assert TableEncoder().fit(pa.table({"x": [1.0, 3.0]})).transform(pa.table({"x": [None]})).tolist() == [[0.0]]


def test_times_come_again():
    monday = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    table = pa.table({"when": [monday + dt.timedelta(days=7 * week, hours=6) for week in range(3)]})
    encoder = TableEncoder().fit(table)
    got = encoder.transform(table)
    assert encoder.n_outputs == got.shape[1] == 7
    week, day = got[:, 1:3], got[:, 5:7]
    np.testing.assert_allclose(week, [[math.sin(math.pi / 14), math.cos(math.pi / 14)]] * 3, atol=1e-6)  # float32
    np.testing.assert_allclose(day, [[1.0, 0.0]] * 3, atol=1e-6)
    with pytest.raises(LabelDPError, match="be dates or times"):
        encoder.transform(pa.table({"when": [1.5]}))


def test_text_that_names_rows_is_left_out():
    names = [f"person {row}" for row in range(200)]
    encoder = TableEncoder().fit(pa.table({"name": names, "x": range(200)}))
    assert encoder.transform(pa.table({"x": [1], "name": ["new"]})).shape == (1, 1)
    assert "name: left out, no value occurs twice" in encoder.notes_


def test_whole_numbers_where_words_were_are_words():
    encoder = TableEncoder().fit(pa.table({"zip": ["3012", "8001", "3012", "8001"]}))
    assert encoder.transform(pa.table({"zip": [8001, 3012]})).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_all_missing_features_are_named():
    with pytest.raises(LabelDPError, match="a table without age, sex"):
        TableEncoder().fit(MIXED).transform(MIXED.select(["kids"]))


def test_dates_booleans_decimals_dictionaries_and_empty_columns():
    days = [dt.date(2020, 1, d) for d in (1, 3)]
    table = pa.table(
        {
            "day": days,
            "yes": [True, False],
            "word": pa.array(["p", "q"]).dictionary_encode(),
            "empty": pa.nulls(2),
            "same": [5, 5],
        }
    )
    got = TableEncoder().fit_transform(table)
    assert got[:, :5].tolist() == [[-1.0, 1.0, 0.0, 1.0, 0.0], [1.0, -1.0, 0.0, 0.0, 1.0]]
    angle = 2 * math.pi * np.array([[2 / 7], [4 / 7]])  # a Wednesday and a Friday
    np.testing.assert_allclose(got[:, 5:7], np.hstack([np.sin(angle), np.cos(angle)]), atol=1e-6)  # float32
    assert got.shape == (2, 9)


@pytest.mark.parametrize(
    ("column", "says"), [([[1], [2]], "numbers, text"), ([math.inf, 1.0], "be finite"), ([b"a", b"b"], "numbers, text")]
)
def test_columns_that_are_no_features(column, says):
    with pytest.raises(LabelDPError, match=says):
        TableEncoder().fit(pa.table({"x": column}))


def test_a_missing_feature_is_named():
    with pytest.raises(LabelDPError, match="Did you mean `agee`"):
        TableEncoder().fit(MIXED).transform(MIXED.rename_columns(["agee", "sex", "kids"]))


def test_text_where_numbers_were():
    with pytest.raises(LabelDPError, match="be numbers"):
        TableEncoder().fit(pa.table({"x": [1, 2]})).transform(pa.table({"x": ["a", "b"]}))


def fit_to_words(owner, frame, labels):
    """Hand features with words and dates to a learner."""
    return {
        "LabelPrivateClassifier": lambda: LabelPrivateClassifier(epsilon=1.0, classes=[0, 1]).fit(frame, labels),
        "LabelPrivateRegressor": lambda: LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1)).fit(frame, labels),
        "PATE": lambda: PATE(epsilon=1.0, n_teachers=5, classes=[0, 1]).fit(frame, labels, frame),
        "PrivateGLM": lambda: PrivateGLM(epsilon=1.0, bounds=(0, 1)).fit(frame, labels),
        "OutputPerturbation": lambda: OutputPerturbation(epsilon=1.0, clip="unit-norm").fit(frame, labels),
        "SoftmaxRegression": lambda: SoftmaxRegression().fit(frame, labels),
    }[owner]()


@pytest.mark.parametrize(
    "owner",
    [
        "LabelPrivateClassifier",
        "LabelPrivateRegressor",
        "PATE",
        "PrivateGLM",
        "OutputPerturbation",
        "SoftmaxRegression",
    ],
)
def test_words_in_features_are_named_and_the_encoder_is_offered(owner):
    frame = pd.DataFrame(
        {
            "age": [31.0, 45.0] * 5,
            "job": ["nurse", None] * 5,
            "day": pd.Timestamp("2026-01-01"),
            "sex": pd.Categorical(["f", "m"] * 5),
        }
    )
    labels = np.array([0, 1] * 5)
    with pytest.raises(
        LabelDPError,
        match=rf"^{owner}: `X` must be numbers, got words or dates in 'job', 'day', 'sex'\. .*TableEncoder",
    ):
        fit_to_words(owner, frame, labels)
    with pytest.raises(LabelDPError, match="must be numbers, got text"):
        fit_to_words(owner, frame[["job"]].fillna("none").to_numpy(), labels)


def test_words_cost_nothing_and_under_the_encoder_they_are_learned_from(tmp_path):
    frame = pd.DataFrame({"job": ["nurse", "clerk"] * 50, "age": np.arange(100.0)})
    labels = np.array([0, 1] * 50)
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=10.0)
    with pytest.raises(LabelDPError, match="TableEncoder"):
        LabelPrivateClassifier(epsilon=8.0, classes=[0, 1], ledger=ledger).fit(frame, labels)
    assert len(ledger.entries()) == 0
    model = LabelPrivateClassifier(
        make_pipeline(TableEncoder(), SoftmaxRegression()), epsilon=8.0, classes=[0, 1], ledger=ledger
    ).fit(frame, labels)
    # e^-8 of 100 labels are wrong; no model but that of the jobs explains the others.
    assert np.array_equal(model.predict(frame), labels)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (
            pd.DataFrame({"age": [1.0, np.nan], "pay": [2.0, 3.0], "kids": [np.nan, 1.0]}),
            r"`X` must have no gaps, got missing values in 'age', 'kids' \(Input X contains NaN\). labeldp.learn.TableEncoder\(\)",
        ),
        (np.array([[1.0], [np.nan]]), r"got one in row 1 \(Input X contains NaN\).*sklearn.impute.SimpleImputer"),
        (np.array([[1.0], [np.inf]]), "`X` must be finite, got Input X contains infinity .*Clip such numbers"),
        (np.zeros((2, 8, 8)), r"`X` must be rows of numbers, \(n, d\), got Found array with dim 3.*PatchFeatures\(\)"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "`X` must have columns of different names, got 'a' more"),
    ],
)
def test_features_that_are_no_rows_of_numbers_say_what_helps(X, said):
    with pytest.raises(LabelDPError, match=said):
        LabelPrivateClassifier(epsilon=1.0, classes=[0, 1]).fit(X, [0, 1])
    with pytest.raises(LabelDPError, match=said):
        SoftmaxRegression().fit(X, [0, 1])


@pytest.mark.parametrize("learner", [LabelPrivateClassifier, LabelPrivateRegressor])
@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (2.0, "got a float. Settings such as epsilon= are given by name"),
        (Ridge, r"got the class Ridge. Make one: Ridge\(\)"),
    ],
)
def test_what_is_no_estimator_is_refused(learner, estimator, said):
    with pytest.raises(LabelDPError, match=f"`estimator` must be an estimator of scikit-learn's kind, {said}"):
        PrivateSearchCV(estimator, {"alpha": [1.0]}).fit(np.zeros((4, 1)), [0, 1, 0, 1])
    with pytest.raises(LabelDPError, match=f"`estimator` must be an estimator of scikit-learn's kind, {said}"):
        learner(estimator).fit(np.zeros((4, 1)), SensitiveLabels([0, 1, 0, 1], **BOXES[learner]))


BOXES = {LabelPrivateClassifier: {"classes": [0, 1]}, LabelPrivateRegressor: {"bounds": (0, 1)}}


def test_two_columns_of_one_name_are_refused_in_front_of_a_transformer():
    frame = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    pipeline = make_pipeline(TableEncoder(), SoftmaxRegression())
    with pytest.raises(
        LabelDPError, match=r"`X` must have columns of different names, got 'a' more than once\. Rename"
    ):
        LabelPrivateClassifier(pipeline, epsilon=1.0, classes=[0, 1]).fit(frame, [0, 1])


def test_what_is_wrong_with_numbers_is_said_as_before():
    with pytest.raises(ValueError, match="contains NaN"):
        SoftmaxRegression().fit(pd.DataFrame({"age": [1.0, np.nan]}), [0, 1])
    with pytest.raises(TypeError):
        SoftmaxRegression().fit(np.array([[{}], [1.0]], dtype=object), [0, 1])


def test_one_replaced_label_moves_the_count_of_right_predictions_by_at_most_one():
    query = CorrectCount(predicted=np.array([0, 2, 1, -1]))
    worst = 0
    for labels in itertools.product(range(3), repeat=4):
        here = query.exact(np.array(labels), n_classes=3)[0]
        assert here == sum(a == b for a, b in zip(labels, (0, 2, 1, -1), strict=True))
        for i, other in itertools.product(range(4), range(3)):
            changed = [*labels[:i], other, *labels[i + 1 :]]
            worst = max(worst, abs(query.exact(np.array(changed), n_classes=3)[0] - here))
    assert worst == query.sensitivity(n_classes=3).l1 == 1


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0, 10.0])
def test_noise_width_is_the_least_that_holds(epsilon):
    z = np.arange(-5000, 5001)
    law = np.exp(-epsilon * np.abs(z))
    law /= law.sum()  # what lies beyond 5000 is below e^-250
    t = noise_width(epsilon)
    assert law[np.abs(z) > t].sum() <= 0.05
    assert t == 0 or law[np.abs(z) > t - 1].sum() > 0.05


def test_scores_are_clipped_to_shares_and_seeded_ones_say_so():
    score = score_privately(["a"] * 3, ["a", "a", "b"], classes=["a", "b"], epsilon=1e-3, rng=1)
    assert 0.0 <= score.accuracy <= 1.0
    assert score.seeded


def test_a_private_score_says_what_it_takes_of_the_predictions():
    """As a whole report does. Before: predictions that a model of these very labels had made were scored without a word of it."""
    score = score_privately([0, 1, 1], [0, 1, 1], classes=[0, 1], epsilon=1.0)
    assert score.guarantee.assumptions == (PUBLIC_SCORES,)
    whole = evaluate([0.1, 0.9, 0.9], None, [0, 1, 1], classes=[0, 1], epsilon=1.0)
    assert whole.guarantee.assumptions == (PUBLIC_SCORES,)


def test_predictions_outside_the_classes_are_wrong():
    assert score_privately([7, 1], [0, 1], classes=[0, 1], epsilon=60.0).correct == 1


def test_a_polars_frame_has_words():
    words = ["f", "m", None, "f"]
    frame = pl.DataFrame({"text": words, "kind": pl.Series(words, dtype=pl.Categorical), "n": [1.0, 2.0, 3.0, 4.0]})
    table = pa.table({"text": words, "kind": words, "n": [1.0, 2.0, 3.0, 4.0]})
    assert np.array_equal(TableEncoder().fit_transform(frame), TableEncoder().fit_transform(table))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pd.Series([1, "a", 2.5], dtype=object), "type object, which Arrow"),
        (pd.Series([1j, 2j, 3j]), "type complex128, which Arrow"),
        (pd.cut(pd.Series([1.0, 2.0, 3.0]), 2), "interval"),
    ],
)
def test_columns_that_arrow_does_not_take_are_named(column, said):
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "odd": column})
    with pytest.raises(
        LabelDPError, match=rf"`odd` must be numbers, text, booleans or dates, got .*{said}.*Leave it out"
    ):
        TableEncoder().fit(frame)


@pytest.mark.parametrize("frame", [pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])])
def test_two_columns_of_one_name_are_refused(frame):
    with pytest.raises(LabelDPError, match="`X` must have columns of different names, got 'a' more than once"):
        TableEncoder().fit(frame)
