"""Text features: label-free, the same every time, and plain words for what is no text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import labeldp
from labeldp.errors import LabelDPError
from labeldp.features import TextFeatures
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression, load_model, save_model

VERBS = ("book", "cancel", "show", "change")
THINGS = ("flight to rome", "hotel in paris", "card balance", "alarm at seven")
TEXTS = [f"please {verb} my {thing} {i}" for i in range(6) for verb in VERBS for thing in THINGS]
INTENTS = np.array([j for _ in range(6) for _ in VERBS for j in range(4)])


def test_rows_have_the_norm_of_standardised_columns_and_never_change():
    first = TextFeatures(n_components=16).fit_transform(TEXTS)
    assert first.shape == (96, 16)
    assert first.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 4.0, rtol=1e-5)  # sqrt(16), in float32
    assert np.array_equal(TextFeatures(n_components=16).fit_transform(TEXTS), first)
    fitted = TextFeatures(n_components=16).fit(TEXTS)
    # The randomized SVD gives the rows it was fitted on as U S; new rows are projected: equal but for rounding of float32.
    np.testing.assert_allclose(fitted.transform(TEXTS), first, atol=1e-3)
    assert fitted.get_feature_names_out()[0] == "textfeatures0"


def test_labels_are_never_asked_for():
    with_labels = TextFeatures(n_components=8).fit_transform(TEXTS, INTENTS)
    assert np.array_equal(with_labels, TextFeatures(n_components=8).fit_transform(TEXTS))


@pytest.mark.parametrize(
    "column",
    [
        np.array(TEXTS, dtype=object),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object)[:, None],
        pa.table({"text": TEXTS}),
        tuple(TEXTS),
    ],
    ids=["objects", "strings", "one column", "pyarrow", "tuple"],
)
def test_any_column_of_texts_will_do(column):
    assert np.array_equal(
        TextFeatures(n_components=8).fit_transform(column), TextFeatures(n_components=8).fit_transform(TEXTS)
    )


def test_a_missing_text_is_empty_and_an_unknown_one_is_zero():
    rows = TextFeatures(n_components=8).fit([*TEXTS, None, float("nan")]).transform(["", "ωωω", None])
    assert np.array_equal(rows, np.zeros((3, 8)))


def test_fewer_words_than_components_are_fewer_columns():
    found = TextFeatures(n_components=500).fit_transform(TEXTS)
    assert found.shape[1] <= 96
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("one text", "Put it into a list"),
        ([["a", "b"]], "be a column of texts"),
        (pa.table({"a": ["x"], "b": ["y"]}), "2 columns"),
        (["fine", 42], "a int in row 1"),
        ([], "have a text"),
        (["alpha", "bravo"], "words that 2 texts share"),
    ],
)
def test_what_is_no_column_of_texts_is_refused(values, words):
    with pytest.raises(LabelDPError, match=words):
        TextFeatures(n_components=2).fit(values)


def test_settings_are_checked():
    for bad in ({"n_components": 0}, {"min_count": 0}, {"n_components": 2.5}):
        with pytest.raises(LabelDPError):
            TextFeatures(**bad).fit(TEXTS)
    assert clone(TextFeatures(n_components=7)).n_components == 7


def test_a_private_learner_takes_texts_and_is_saved_with_them(tmp_path):
    estimator = make_pipeline(TextFeatures(n_components=16), SoftmaxRegression(l2=1e-2))
    model = LabelPrivateClassifier(
        estimator,
        epsilon=8.0,
        mechanism=labeldp.InformativeResponse(1.0),
        stages=1,
        prior=None,
        correction="forward",
        classes=range(4),
        random_state=0,
    ).fit(TEXTS, INTENTS)
    assert (model.predict(TEXTS) == INTENTS).mean() > 0.9
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS))
