"""Priors that cost nothing on these labels: uniform, public, and models."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from labeldp import ClusterPrior, ModelPrior, PublicPrior, RRWithPrior, UniformPrior
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import LabelPrivateClassifier
from labeldp.priors import model_probabilities, tempered
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels

Y = np.arange(12) % 3
X = np.c_[np.eye(3)[Y], np.arange(12) / 12]
LABELS = SensitiveLabels(Y, n_classes=3)
KEY = NoiseKey.from_seed(0)
MODEL = LogisticRegression().fit(X, Y)


def table(prior, features=X, labels=LABELS):
    return prior.table(features, labels, budget=1.0, key=KEY)


def promise(prior, budget=1.0):
    return prior.promise(budget, n_examples=12, n_classes=3)


def test_a_uniform_prior_knows_and_costs_nothing():
    answer = table(UniformPrior())
    assert (answer.probabilities() == 1 / 3).all()
    assert answer.probabilities().shape == (12, 3)
    assert answer.says_nothing
    assert promise(UniformPrior()) == Guarantee.pure(0.0)
    assert answer.guarantee is None


@pytest.mark.parametrize("row", [[0.5, 0.25, 0.25], np.array([0.5, 0.25, 0.25]), [[0.5, 0.25, 0.25]]])
def test_a_public_row_is_for_all(row):
    answer = table(PublicPrior(row))
    assert answer.rows.shape == (1, 3)
    assert (answer.probabilities() == [0.5, 0.25, 0.25]).all()
    assert not answer.says_nothing


def test_a_public_table_is_row_by_row():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 12)
    answer = table(PublicPrior(rows))
    assert np.array_equal(answer.probabilities([3, 1]), rows[[3, 1]])


def test_a_public_model_speaks_for_itself():
    assert np.array_equal(table(PublicPrior(MODEL)).probabilities(), MODEL.predict_proba(X))


def test_a_models_columns_follow_the_classes_of_the_labels():
    words = np.array(["a", "b", "c"])[Y]
    model = LogisticRegression().fit(X[Y > 0], words[Y > 0])
    labels = SensitiveLabels(words, classes=["c", "a", "b"])
    rows = table(PublicPrior(model), labels=labels).probabilities()
    assert (rows[:, 1] == 0).all()  # "a", which the model has never seen
    assert np.array_equal(rows[:, [2, 0]], model.predict_proba(X))
    with pytest.raises(
        LabelDPError, match=r"`model` must predict the classes of the labels, got 'b'. There is: `a`, `c`"
    ):
        model_probabilities(model, X, ["a", "c"])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_public_columns_are_found_by_name(frame):
    chances = np.random.default_rng(0).dirichlet(np.ones(3), 12)
    features = frame({"age": np.arange(12.0), **{f"p{k}": chances[:, k] for k in range(3)}})
    answer = table(PublicPrior(["p2", "p0", "p1"]), features)
    assert np.array_equal(answer.probabilities(), chances[:, [2, 0, 1]])
    with pytest.raises(
        LabelDPError, match=r"PublicPrior: `source` must name columns of the features, got 'pp0'. Did you"
    ):
        table(PublicPrior(["pp0", "p1", "p2"]), features)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_public_columns_work_inside_the_classifier(frame):
    chances = np.full((12, 3), 0.1) + 0.7 * np.eye(3)[Y]
    features = frame({"age": np.arange(12.0), **{f"p{k}": chances[:, k] for k in range(3)}})
    told = {"prior": PublicPrior(["p0", "p1", "p2"]), "mechanism": RRWithPrior(0.5)}
    model = LabelPrivateClassifier(epsilon=0.5, random_state=0, **told).fit(features, Y)
    # At epsilon 0.5 a belief of 0.8 (mixed with 2% of uniform) leaves one candidate: e^0.5 / (e^0.5 + 1) < 0.8.
    assert np.array_equal(model.release_.labels, Y)
    assert model.stages_[0].average_k == 1.0


def test_columns_of_a_bare_matrix_have_no_names():
    with pytest.raises(LabelDPError, match=r"must name columns of the features, got 'p0'. There is none"):
        table(PublicPrior(["p0", "p1", "p2"]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.ones(2) / 2, r"`source` must be \(3,\) or \(12, 3\), got shape \(1, 2\)"),
        (np.ones((5, 3)) / 3, r"`source` must be \(3,\) or \(12, 3\), got shape \(5, 3\)"),
        ([0.5, 0.6, 0.1], "rows of probabilities that sum to 1, got a sum of 1.2 in row 0"),
        ([-0.5, 1.5, 0.0], "got -0.5 in row 0"),
        ([np.nan, 0.5, 0.5], "got NaN in row 0"),
        ([0.0, 0.0, 0.0], "got only zeros in row 0. Use a uniform row"),
    ],
)
def test_what_is_not_a_distribution_is_refused(source, message):
    with pytest.raises(LabelDPError, match=f"PublicPrior: .*{message}"):
        table(PublicPrior(source))


@given(
    p=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=6),
    temperature=st.floats(0.05, 20.0),
)
def test_tempering_is_a_power(p, temperature):
    row = np.array([p]) / sum(p)
    answer = tempered(row, temperature)
    direct = np.exp(np.log(row / row.max()) / temperature)
    np.testing.assert_allclose(answer, direct / direct.sum(), rtol=1e-9, atol=1e-300)  # exp(log) errs by 20 * 14 ulp
    assert answer.argmax() == row.argmax() or math.isclose(row.max(), row[0, answer.argmax()])


def test_a_sharp_temperature_does_not_underflow():
    assert tempered(np.array([[0.6, 0.4, 0.0]]), 1e-4).tolist() == [[1.0, 0.0, 0.0]]
    assert tempered(np.full((1, 1000), 1e-3), 1e-3).sum() == pytest.approx(1.0)


def test_a_model_prior_is_tempered():
    assert np.allclose(table(ModelPrior(MODEL)).probabilities(), MODEL.predict_proba(X), rtol=1e-12)
    sharp = table(ModelPrior(MODEL, temperature=0.5)).probabilities()
    squares = MODEL.predict_proba(X) ** 2
    assert np.allclose(sharp, squares / squares.sum(axis=1, keepdims=True), rtol=1e-12)
    with pytest.raises(LabelDPError, match="`temperature` must be finite and > 0, got 0"):
        table(ModelPrior(MODEL, temperature=0))


def test_a_model_prior_costs_what_its_model_spent():
    paid = Guarantee.pure(0.3, trust=Trust.PEERS, assumptions=("a",))
    prior = ModelPrior(MODEL, guarantee=paid)
    assert prior.cost(1.0, n_examples=12, n_classes=3) == 0.3
    assert promise(prior) == paid
    assert table(prior).guarantee == paid
    assert ModelPrior(MODEL).cost(1.0, n_examples=12, n_classes=3) == 0.0
    with pytest.raises(
        LabelDPError, match=r"ModelPrior: `guarantee` must have a pure epsilon.*Train the model under a pure"
    ):
        promise(ModelPrior(MODEL, guarantee=Guarantee.zcdp(0.1)))
    assert promise(ModelPrior(MODEL, guarantee=Guarantee.zcdp(0.1)), math.inf) == Guarantee.zcdp(0.1)


@pytest.mark.parametrize("prior", [PublicPrior([0.2, 0.3, 0.5]), PublicPrior(MODEL), ModelPrior(MODEL)])
def test_a_free_prior_says_what_it_stands_on(prior):
    assert promise(prior) == Guarantee.pure(0.0, assumptions=("the prior did not see these labels",))


def test_only_the_cluster_prior_looks_at_labels():
    assert ClusterPrior.sees_labels
    assert not any(kind.sees_labels for kind in (UniformPrior, PublicPrior, ModelPrior))
