"""SoftmaxRegression: scikit-learn's contract, scikit-learn's answer, and gradients by finite differences."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from labeldp import InformativeResponse, RandomizedResponse, privatize
from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.learn import SoftmaxRegression
from labeldp.learn.softmax import are_faint
from labeldp.softmax import ColumnMoments, SoftmaxObjective, sum_forward, sum_soft, sum_targets


@parametrize_with_checks([SoftmaxRegression()])
def test_it_is_a_scikit_learn_classifier(estimator, check):
    with warnings.catch_warnings():
        # The suite warns itself when it skips the array API, which numpy alone cannot be asked for.
        warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
        check(estimator)


def tight(**settings):
    return SoftmaxRegression(tol=1e-8, max_iter=5000, **settings)


@pytest.mark.parametrize("load_set", [load_digits, load_iris])
@pytest.mark.parametrize("intercept", [True, False])
def test_it_finds_what_scikit_learn_finds(load_set, intercept):
    X, y = load_set(return_X_y=True)
    X, y = X[::3] / X.max(), y[::3]
    l2 = 1e-3
    ours = tight(l2=l2, fit_intercept=intercept, standardise=False).fit(X, y)
    theirs = LogisticRegression(C=1 / (len(y) * l2), tol=1e-8, max_iter=5000, fit_intercept=intercept).fit(X, y)
    # A gradient of 1e-8 and curvature of l2 = 1e-3 leave coefficients within 1e-5 times sqrt(d); 1e-4 has room.
    assert np.abs(ours.coef_ - theirs.coef_).max() < 1e-4
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 1e-4


def test_its_penalty_is_that_of_standardised_columns():
    X, y = load_iris(return_X_y=True)
    X = X * [1e4, 1e-3, 1.0, 30.0] + [0.0, 0.1, -1e2, 1.0]
    l2 = 1e-2
    ours = SoftmaxRegression(l2=l2, tol=1e-7, max_iter=5000).fit(X, y)
    scaler = StandardScaler().fit(X)
    theirs = LogisticRegression(C=1 / (len(y) * l2), tol=1e-8, max_iter=5000).fit(scaler.transform(X), y)
    # A gradient of 1e-7 and curvature of l2 = 1e-2 leave coefficients within 1e-5 times sqrt(d).
    assert np.abs(ours.coef_ * scaler.scale_ - theirs.coef_).max() < 1e-4
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(scaler.transform(X))).max() < 1e-4


UNITS = {"as they are": 1.0, "large": 1e6, "small": 1e-6, "mixed": np.array([1e-4, 1.0, 1e5, 3.0, 1e3])}


@pytest.mark.parametrize("method", ["fit", "fit_targets", "fit_likelihood"])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("intercept", [True, False])
def test_units_of_columns_change_no_prediction(method, units, intercept):
    generator = np.random.default_rng(8)
    X = generator.standard_normal((400, 5))
    X[:, 1] = X[:, 1] > 1.3  # a rare category
    X[:, 2] = 4.0  # a constant
    y = (X[:, 0] + X[:, 1] + 0.3 * generator.standard_normal(400) > 0).astype(int)
    rows = np.eye(2)[y] * 0.6 + 0.2

    def answer(features):
        model = SoftmaxRegression(fit_intercept=intercept, tol=1e-6, max_iter=5000)
        fitted = model.fit(features, y) if method == "fit" else getattr(model, method)(features, rows, classes=[0, 1])
        return fitted.predict_proba(features)

    shift = np.array([0.0, 7.0, 0.0, -1e3, 3.0]) if intercept else 0.0
    # A gradient of 1e-6 at curvature l2 = 1e-3 leaves 1e-3 of a coefficient; a logit has five of them, and a probability
    # moves by a quarter of its logit at most.
    assert np.abs(answer((X + shift) * UNITS[units]) - answer(X)).max() < 2e-3


def test_features_that_share_a_unit_stay_as_they_are():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    X[:, 0] = 0.0
    plain, ours = (SoftmaxRegression(standardise=choice).fit(X, y) for choice in (False, True))
    # Two ways to an optimum that is known to a gradient of 1e-5, at a curvature of l2 = 1e-3.
    assert np.abs(plain.predict_proba(X) - ours.predict_proba(X)).max() < 1e-2
    columns = ColumnMoments.of_rows(X * 1.01).columns(intercept=True)
    assert columns.scale[20] == pytest.approx(1.01 * X[:, 20].std(), rel=1e-12)
    X[:, 0] = X[:, 1] * 1e-3  # too narrow to have the unit of the others
    assert ColumnMoments.of_rows(X).columns(intercept=True).scale[20] == pytest.approx(X[:, 20].std(), rel=1e-12)


def test_a_rare_category_keeps_its_unit_and_a_number_gets_a_standard_deviation():
    X = np.zeros((1000, 3))
    X[:7, 0] = 2.0
    X[:, 1] = np.arange(1000)
    X[:, 2] = 5.0
    for rows in (X, scipy.sparse.csr_matrix(X), X.astype(np.float32)):
        columns = ColumnMoments.of_rows(rows).columns(intercept=True)
        assert columns.scale == pytest.approx([2.0, X[:, 1].std(), 1.0], rel=1e-12)
        assert columns.mean == pytest.approx(X.mean(axis=0), rel=1e-12)


def test_moments_of_parts_join_to_those_of_the_whole():
    generator = np.random.default_rng(9)
    X = generator.standard_normal((20_000, 3)) * [1e-3, 1.0, 50.0] + [1e6, 0.0, -2.0]
    weights = generator.integers(0, 3, 20_000).astype(float)
    whole = ColumnMoments.of_rows(X, weights)
    parts = ColumnMoments.of_rows(X[:7], weights[:7]).join(ColumnMoments.of_rows(X[7:], weights[7:]))
    repeated = np.repeat(X, weights.astype(int), axis=0)
    for found in (whole, parts):
        assert found.total == weights.sum()
        assert found.mean == pytest.approx(repeated.mean(axis=0), rel=1e-12, abs=1e-12)
        # The first column is 1e-3 wide at 1e6: its deviations have seven digits, their squares six.
        assert found.squares / found.total == pytest.approx(repeated.var(axis=0), rel=1e-6)
        assert found.high.tolist() == repeated.max(axis=0).tolist()


def test_short_floats_far_from_zero_are_learned_from():
    generator = np.random.default_rng(10)
    year = generator.integers(1990, 2025, 3000)
    y = (year + generator.normal(0, 4, 3000) > 2008).astype(int)
    X = np.column_stack([year * 86_400.0 * 365, generator.standard_normal(3000)])
    short, long = (
        SoftmaxRegression().fit(X.astype(kind), y).predict_proba(X)[:, 1] for kind in (np.float32, np.float64)
    )
    assert np.abs(short - long).max() < 1e-3  # a float32 of 6e10 is exact to an hour, the coefficients to 1e-5 / l2


def test_a_solver_that_stops_early_says_so():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match=r"SoftmaxRegression: the solver stopped after 2 iterations.*max_iter"):
        SoftmaxRegression(max_iter=2).fit(X, y)


def test_without_standardising_a_table_of_large_numbers_does_not_converge():
    generator = np.random.default_rng(11)
    X = np.column_stack([generator.lognormal(10, 1, 2000), generator.standard_normal(2000)])
    y = (X[:, 1] + generator.standard_normal(2000) > 1).astype(int)
    with pytest.warns(ConvergenceWarning):
        raw = SoftmaxRegression(standardise=False, max_iter=30).fit(X, y)
    ours = SoftmaxRegression(max_iter=30).fit(X, y)
    assert log_loss(y, ours.predict_proba(X)) < log_loss(y, raw.predict_proba(X))


def test_two_classes_have_half_of_scikit_learns_coefficient_each():
    X, y = load_iris(return_X_y=True)
    X, y = X[y < 2] / 8, y[y < 2]
    ours = tight(l2=1e-2, standardise=False).fit(X, y)
    theirs = LogisticRegression(C=2 / (len(y) * 1e-2), tol=1e-9, max_iter=5000).fit(X, y)
    assert np.abs(ours.coef_[1] - theirs.coef_[0] / 2).max() < 1e-4  # as above
    assert np.abs(ours.decision_function(X) - theirs.decision_function(X)).max() < 1e-3  # four features, each up to 1


def objectives():
    """An objective of each kind on the same 30 examples, five features and four classes."""
    generator = np.random.default_rng(3)
    X = generator.standard_normal((30, 5))
    soft = generator.dirichlet(np.ones(4), 30)
    signed = 3.0 * np.eye(4)[generator.integers(0, 4, 30)] - 0.5
    weights = generator.uniform(0.1, 2.0, 30)
    likelihood = generator.uniform(0.0, 1.0, (30, 4))
    likelihood[:5, 2] = 0.0
    with np.errstate(divide="ignore"):
        logs = np.ascontiguousarray(np.log(likelihood).T)
    one = np.ones(30)
    hot = scipy.sparse.csr_matrix((weights, (np.arange(30), np.arange(30) % 4)), shape=(30, 4))
    offsets = generator.standard_normal((4, 30))
    return {
        "soft": soft_objective(X, soft, one),
        "signed": soft_objective(X, signed, one),
        "weighted": soft_objective(X, hot, weights),
        "offsets": soft_objective(X, soft, one, offsets=offsets),
        "forward": forward_objective(X, logs),
        "sparse": soft_objective(scipy.sparse.csr_matrix(X), soft, one),
        "no intercept": soft_objective(X, soft, one, intercept=False),
        "columns": replace(forward_objective(X, logs), columns=ColumnMoments.of_rows(X).columns(intercept=True)),
    }


def soft_objective(X, targets, weights, *, l2=0.1, intercept=True, offsets=None):
    return SoftmaxObjective(
        curved=partial(sum_soft, X, weights=weights, offsets=offsets),
        linear=sum_targets(X, targets, intercept=intercept),
        total=float(weights.sum()),
        l2=l2,
        intercept=intercept,
    )


def forward_objective(X, logs, *, l2=0.1):
    linear = np.zeros((len(logs), X.shape[1] + 1))
    return SoftmaxObjective(curved=partial(sum_forward, X, logarithms=logs), linear=linear, total=float(len(X)), l2=l2)


@pytest.mark.parametrize(
    "kind", ["soft", "signed", "weighted", "offsets", "forward", "sparse", "no intercept", "columns"]
)
def test_the_gradient_is_the_slope_of_the_loss(kind):
    objective = objectives()[kind]
    theta = np.random.default_rng(4).standard_normal((4, 6))
    if kind == "no intercept":
        theta[:, -1] = 0.0
    theta = theta.reshape(-1)
    gradient = objective(theta)[1]
    step = 1e-5  # central differences err by step^2 / 6 = 2e-11 times the third derivative, and rounding / step = 1e-11
    slopes = np.array([(objective(theta + e)[0] - objective(theta - e)[0]) / (2 * step) for e in step * np.eye(24)])
    if kind == "no intercept":
        slopes.reshape(4, 6)[:, -1] = 0.0
    assert np.abs(slopes - gradient).max() <= 1e-6 * np.abs(gradient).max()


def test_the_loss_is_the_one_in_the_docstring():
    generator = np.random.default_rng(5)
    X, q, theta = (
        generator.standard_normal((7, 2)),
        generator.dirichlet(np.ones(3), 7),
        generator.standard_normal((3, 3)),
    )
    z = X @ theta[:, :2].T + theta[:, 2]
    direct = np.mean(np.log(np.exp(z).sum(axis=1)) - (q * z).sum(axis=1)) + 0.05 * (theta[:, :2] ** 2).sum()
    assert soft_objective(X, q, np.ones(7))(theta.reshape(-1))[0] == pytest.approx(direct, rel=1e-12)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    direct = np.mean(-np.log((p * q).sum(axis=1))) + 0.05 * (theta[:, :2] ** 2).sum()
    forward = forward_objective(X, np.ascontiguousarray(np.log(q).T))
    assert forward(theta.reshape(-1))[0] == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forward_does_not_underflow_at_huge_logits(dtype):
    X = np.array([[1.0], [-1.0]], dtype)
    logs = np.array([[0.0, -np.inf], [-np.inf, 0.0]], dtype)
    theta = np.array([[-1e4, 0.0], [1e4, 0.0]])  # sure of the wrong label of both rows: each loses 2e4
    loss, gradient = forward_objective(X, logs, l2=0.0)(theta.reshape(-1))
    assert loss == 2e4
    assert gradient.reshape(2, 2)[:, 0].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("method", ["fit", "fit_targets", "fit_likelihood"])
@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_features_give_the_dense_answer(problem, method, kind, monkeypatch):
    X = np.where(np.abs(problem.X) < 0.5, 0.0, problem.X)
    one_hot = np.eye(3)[problem.y] * 0.7 + 0.1

    def fitted(features):
        if method == "fit":
            return tight().fit(features, problem.y)
        return getattr(tight(), method)(features, one_hot, classes=[0, 1, 2])

    dense = fitted(X)
    monkeypatch.setattr(kind, "toarray", refused(kind))
    monkeypatch.setattr(kind, "todense", refused(kind))
    sparse = fitted(kind(X))
    # Both stop at a gradient of 1e-8; l2 = 1e-3 bounds the distance of either from the optimum by 1e-5 sqrt(15).
    assert np.abs(dense.coef_ - sparse.coef_).max() < 1e-4


def refused(kind):
    plain = kind.toarray

    def convert(self, *args, **options):
        assert self.shape[0] < 100, "a sparse X was made dense"
        return plain(self, *args, **options)

    return convert


@pytest.mark.parametrize("method", ["fit", "fit_targets", "fit_likelihood"])
def test_single_precision_gives_nearly_the_same(problem, method):
    one_hot = np.eye(3)[problem.y] * 0.7 + 0.1

    def fitted(dtype):
        model, X = SoftmaxRegression(l2=1e-2), problem.X.astype(dtype)
        if method == "fit":
            return model.fit(X, problem.y)
        return getattr(model, method)(X, one_hot.astype(dtype), classes=[0, 1, 2])

    single, double = fitted(np.float32), fitted(np.float64)
    # tol = 1e-5 over l2 = 1e-2 is 1e-3; float32 rounding of the gradient, about 1e-6, adds a tenth of that.
    assert np.abs(single.coef_ - double.coef_).max() < 5e-3
    assert np.isfinite(single.predict_proba(problem.X)).all()


def test_a_warm_start_needs_fewer_steps(problem):
    model = SoftmaxRegression(warm_start=True, tol=1e-6).fit(problem.X, problem.y)
    cold = model.n_iter_
    assert model.fit(problem.X, problem.y).n_iter_ < cold / 4
    assert SoftmaxRegression(tol=1e-6).fit(problem.X, problem.y).fit(problem.X, problem.y).n_iter_ == cold


def test_a_warm_start_of_another_shape_starts_anew(problem):
    model = SoftmaxRegression(warm_start=True).fit(problem.X[:, :2], problem.y)
    model.fit(problem.X, problem.y)
    assert np.array_equal(model.coef_, SoftmaxRegression().fit(problem.X, problem.y).coef_)


def test_weights_are_repetitions(problem):
    counts = np.random.default_rng(0).integers(0, 4, len(problem.y))
    weighted = tight().fit(problem.X, problem.y, sample_weight=counts)
    repeated = tight().fit(np.repeat(problem.X, counts, axis=0), np.repeat(problem.y, counts))
    assert np.abs(weighted.coef_ - repeated.coef_).max() < 1e-4  # two optima of one problem, each within 1e-5 sqrt(d)


def test_one_hot_targets_and_likelihoods_are_plain_labels(problem):
    plain = tight().fit(problem.X, problem.y)
    hot = np.eye(3)[problem.y]
    for method in ("fit_targets", "fit_likelihood"):
        other = getattr(tight(), method)(problem.X, hot, classes=[0, 1, 2])
        assert np.abs(plain.coef_ - other.coef_).max() < 1e-4  # as above


def test_corrected_losses_undo_randomized_response(problem_of):
    """Signed and forward training on RR labels at epsilon 1 find the clean model; uncorrected training does not.

    Measured over 30 seeds, the mean distance between probabilities was 0.011 (deviation 0.003) for the forward loss,
    0.026 (0.011) for signed targets and 0.281 (0.002) without correction. Each bound is eight deviations away or more,
    so a bad seed has probability below 1e-9; the seed is fixed.
    """
    data = problem_of(20_000, seed=1)
    release = privatize(data.y, RandomizedResponse(1.0, n_classes=3), rng=0)
    clean = SoftmaxRegression(l2=1e-4).fit(data.X, data.y).predict_proba(data.X)

    def distance(model):
        return np.abs(model.predict_proba(data.X) - clean).mean()

    model = SoftmaxRegression(l2=1e-4)
    forward = release.channel.likelihood(release.codes)
    signed = release.channel.unbiased_targets(release.codes)
    assert distance(clone(model).fit_likelihood(data.X, forward, classes=[0, 1, 2])) < 0.04
    assert distance(clone(model).fit_targets(data.X, signed, classes=[0, 1, 2])) < 0.12
    assert distance(clone(model).fit(data.X, release.labels)) > 0.26


X6 = np.arange(12.0).reshape(6, 2)
Y6 = [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SoftmaxRegression(l2=-1.0).fit(X6, Y6), "`l2` must be >= 0, got -1.0"),
        (lambda: SoftmaxRegression(l2="1").fit(X6, Y6), "`l2` must be a number, got '1'"),
        (lambda: SoftmaxRegression(tol=0).fit(X6, Y6), "`tol` must be finite and > 0, got 0"),
        (lambda: SoftmaxRegression(max_iter=0).fit(X6, Y6), "`max_iter` must be an integer >= 1, got 0"),
        (lambda: SoftmaxRegression().fit(X6, [1] * 6), "`y` must have two classes or more, got one class"),
        (
            lambda: SoftmaxRegression().fit_targets(X6, np.ones((6, 2)) / 2, classes=[0, 1, 2]),
            r"`targets` must have shape \(6, 3\), got an array of shape \(6, 2\)",
        ),
        (
            lambda: SoftmaxRegression().fit_targets(X6, np.ones((6, 2)), classes=[0, 1]),
            "`targets` must have rows that sum to 1, got a sum of 2 in row 0",
        ),
        (
            lambda: SoftmaxRegression().fit_targets(X6, np.full((6, 2), np.nan), classes=[0, 1]),
            "`targets` must be finite, got NaN or infinity",
        ),
        (
            lambda: SoftmaxRegression().fit_likelihood(X6, np.zeros((6, 2)), classes=[0, 1]),
            "`likelihood` must be >= 0 and not all zero in a row, got row 0",
        ),
        (
            lambda: SoftmaxRegression().fit_likelihood(X6, np.ones((6, 2)) * [1, -1], classes=[0, 1]),
            "`likelihood` must be >= 0 and not all zero in a row, got row 0",
        ),
    ],
)
def test_bad_input_is_refused_in_the_one_shape(call, message):
    with pytest.raises(LabelDPError, match=f"SoftmaxRegression: {message}"):
        call()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_table_in_its_own_units_is_learned_as_well_as_a_scaled_one(epsilon):
    """The first 6,000 people of Adult: census weights of 2e5 beside years of schooling beside categories."""
    adult = load("adult")
    frame = adult.X_train.slice(0, 6000).to_pandas()
    words = list(adult.categorical)
    numbers = [name for name in frame.columns if name not in words]
    hot = pd.get_dummies(frame[words].astype(str), dtype=float).to_numpy()
    raw = np.column_stack([frame[numbers].to_numpy(np.float64), hot])
    y = adult.y_train[:6000]
    release = privatize(y, RandomizedResponse(epsilon, n_classes=2), rng=0)
    likelihood = release.channel.likelihood(release.codes)

    def loss(X):
        return log_loss(y, SoftmaxRegression().fit_likelihood(X, likelihood, classes=[0, 1]).predict_proba(X))

    losses = [loss(X) for X in (raw, StandardScaler().fit_transform(raw), scipy.sparse.csr_matrix(raw))]
    assert losses == pytest.approx([losses[1]] * 3, rel=0.01)
    assert losses[0] < 0.55  # the entropy of the base rate


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_classes", "epsilon"), [(60, 1.5), (2, 0.01)], ids=["many classes", "a small epsilon"])
def test_faint_evidence_is_followed_although_its_first_gradient_is_below_tol(n_classes, epsilon, dtype):
    """The answers are the labels themselves, read as faint ones: what is in them does not depend on noise."""
    rng = np.random.default_rng(0)
    y = np.arange(1200) % n_classes
    X = (rng.normal(size=(n_classes, 12))[y] + 0.1 * rng.normal(size=(1200, 12))).astype(dtype)
    likelihood = RandomizedResponse(epsilon, n_classes=n_classes).channel(n_classes=n_classes).likelihood(y)
    first = np.abs(1 / n_classes - likelihood / likelihood.sum(axis=1, keepdims=True)).T @ np.abs(X) / len(X)
    tol = 10 * float(first.max())
    model = SoftmaxRegression(l2=0.0, tol=tol).fit_likelihood(X, likelihood, classes=range(n_classes))
    assert model.n_iter_ > 0
    assert (model.predict(X) == y).mean() > 0.9
    # A start that was fitted is judged by `tol` alone.
    again = model.set_params(warm_start=True).fit_likelihood(X, likelihood, classes=range(n_classes))
    assert again.n_iter_ == 0


def test_no_evidence_is_the_uniform_model_without_a_step():
    X = np.random.default_rng(1).normal(size=(50, 3))
    model = SoftmaxRegression().fit_likelihood(X, np.full((50, 4), 0.25), classes=range(4))
    assert model.n_iter_ == 0
    assert not model.coef_.any()


# ------------------------------------------------------------------------------------------------ how strong a penalty


@pytest.fixture(scope="module")
def faint():
    """Two classes that lean on one of 60 columns, answers at epsilon 0.5, and rows to be scored."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6_000, 60))
    y = (rng.random(6_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    release = privatize(y[:3_000], RandomizedResponse(0.5, n_classes=2), rng=1)
    return X[:3_000], release.channel.likelihood(release.codes), X[3_000:], y[3_000:]


def loss_of(model, X, y):
    return -float(np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])))


def test_faint_answers_choose_a_stronger_penalty(faint):
    X, likelihood, held, y = faint
    chosen, plain = (SoftmaxRegression(l2=l2).fit_likelihood(X, likelihood, classes=[0, 1]) for l2 in ("auto", 1e-3))
    assert chosen.l2_ > plain.l2_ == 1e-3
    # 3,000 rows: a standard error of the difference is near 0.006 nats. Without the choice the model loses to a constant.
    assert loss_of(chosen, held, y) < math.log(2) < loss_of(plain, held, y)
    np.testing.assert_array_equal(chosen.coef_, SoftmaxRegression().fit_likelihood(X, likelihood, classes=[0, 1]).coef_)


def test_the_penalty_is_the_same_for_features_of_every_kind(faint):
    X, likelihood, *_ = faint
    dense = SoftmaxRegression().fit_likelihood(X, likelihood, classes=[0, 1])
    for rows in (scipy.sparse.csr_matrix(X), X.astype(np.float32)):
        assert SoftmaxRegression().fit_likelihood(rows, likelihood, classes=[0, 1]).l2_ == dense.l2_
    # A constant of a row's likelihoods says nothing, and a weight of two is a row that is there twice.
    scaled = SoftmaxRegression().fit_likelihood(X, 7.0 * likelihood, classes=[0, 1], sample_weight=np.full(3_000, 2.0))
    assert scaled.l2_ == dense.l2_


def test_answers_that_say_enough_keep_the_penalty():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 3))
    y = (X[:, 0] > 0).astype(int)
    sure = np.eye(2)[y]
    assert not are_faint(sure, n_columns=10_000)  # labels as they are
    assert not are_faint(np.ones((3_000, 2)), n_columns=3)  # answers of nothing, from which nothing is chosen
    assert not are_faint(np.array([[0.6, 0.4]] * 11), n_columns=60)  # too few to hold any out
    assert SoftmaxRegression().fit_likelihood(X, sure, classes=[0, 1]).l2_ == 1e-3
    likely = np.where(sure == 1, math.exp(2), 1.0)
    assert SoftmaxRegression().fit_likelihood(X, likely, classes=[0, 1]).l2_ == 1e-3


def test_nats_are_the_information_of_the_channel():
    """The mean of what answers say is the mutual information of the channel under uniform labels, by enumeration."""
    channel = InformativeResponse(1.0, n_classes=4).channel()
    matrix = np.asarray(channel.matrix(0))
    joint = matrix / 4
    exact = float(np.sum(joint * np.log(matrix / matrix.mean(axis=0))))
    shares = matrix.T / matrix.sum(axis=0)[:, None]
    nats = math.log(4) + np.sum(shares * np.log(shares), axis=1)
    assert math.isclose(float(nats @ joint.sum(axis=0)), exact, rel_tol=1e-12)
    # `are_faint` turns where 20 (K - 1) d is passed: with n answers in their exact shares, at n I / 60 columns.
    counts = np.round(60_000 * joint.sum(axis=0)).astype(int)
    answers = np.repeat(matrix.T, counts, axis=0)
    most = len(answers) * exact / 60
    assert [are_faint(answers, n_columns=int(columns)) for columns in (0.99 * most, 1.01 * most)] == [False, True]
