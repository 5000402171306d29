"""The rule for any classifier: its calibration map against brute force, its symmetries, and true probabilities at the end."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.optimize import differential_evolution
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from labeldp import ClusterPrior, LabelPrivateClassifier, PublicPrior, RandomizedResponse
from labeldp.learn.corrections import draw_copies, fit_released
from labeldp.learn.crossfit import ForwardMap, base_rates, calibrate_start, fit_crossfit, fit_map, recentre
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.mechanisms import OptimalResponse

TREE = DecisionTreeClassifier(min_samples_leaf=50, random_state=0)


def respond(y, *, epsilon, n_classes, generator):
    """Return released labels and their likelihoods."""
    keep = np.exp(epsilon) / (np.exp(epsilon) + n_classes - 1)
    stay = generator.random(len(y)) < keep
    codes = np.where(stay, y, (y + generator.integers(1, n_classes, len(y))) % n_classes)
    likelihood = np.where(codes[:, None] == np.arange(n_classes), keep, (1 - keep) / (n_classes - 1))
    return codes, likelihood


# --------------------------------------------------------------------------------------------------- the calibration map


def brute_force(z, likelihood, towards, ridge):
    """The best slope and intercepts by a global search over a box: the last intercept is free, by the ridge."""
    zeta = z - z.mean(axis=1, keepdims=True)
    centre = zeta.mean(axis=0)
    spread = (zeta - centre).std() or 1.0
    zeta = (zeta - centre) / spread
    home = towards.intercepts + towards.slope * centre

    def lost(t):
        p = softmax(t[0] * zeta + t[1:], axis=1)
        away = ridge / 2 * ((t[0] - towards.slope * spread) ** 2 + ((t[1:] - home) ** 2).sum())
        return -np.log((p * likelihood).sum(axis=1)).sum() + away

    box = [(0.0, 6.0), *((h - 4.0, h + 4.0) for h in home)]
    found = differential_evolution(lost, box, seed=0, tol=1e-12, atol=1e-12, maxiter=3000, polish=True)
    return lost, found.x, found.fun, (zeta, spread, centre)


@pytest.mark.parametrize(
    ("n_classes", "epsilon", "slope", "ridge"), [(2, 1.0, 0.0, 1.0), (2, 3.0, 1.0, 20.0), (3, 2.0, 0.0, 1.0)]
)
def test_the_map_is_the_best_there_is(n_classes, epsilon, slope, ridge):
    generator = np.random.default_rng(n_classes)
    z = np.log(generator.dirichlet(np.ones(n_classes), 60))
    truth = softmax(1.7 * z + np.arange(n_classes), axis=1)
    y = (truth.cumsum(axis=1) < generator.random((60, 1))).sum(axis=1)
    _, likelihood = respond(y, epsilon=epsilon, n_classes=n_classes, generator=generator)
    rates = np.maximum(base_rates(likelihood), 1e-2)
    rates /= rates.sum()
    towards = recentre(ForwardMap(slope=slope, intercepts=np.zeros(n_classes)), z, rates)
    ours = fit_map(z, likelihood, towards=towards, ridge=ridge)
    lost, best, value, (_, spread, centre) = brute_force(z, likelihood, towards, ridge)
    mine = np.concatenate([[ours.slope * spread], ours.intercepts + ours.slope * centre])
    # The solver stops at a gradient of 1e-7 per row; curvature is at least the ridge, 1/60 per row.
    assert lost(mine) <= value + 1e-6
    assert mine == pytest.approx(best, abs=1e-3)


def test_base_rates_are_those_of_maximum_likelihood():
    generator = np.random.default_rng(0)
    likelihood = generator.uniform(0.1, 1.0, (40, 3))
    found = base_rates(likelihood)
    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 101) for b in np.linspace(0, 1 - a, 101)]
    best = max(np.log(likelihood @ np.maximum(pi, 0)).sum() for pi in grid)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.log(likelihood @ found).sum() >= best - 1e-9  # the likelihood is concave: no point of a grid is above it


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 1.0, 6.0])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_base_rates_of_faint_answers_are_found_too(epsilon, n_classes):
    """As often as rates say, each answer: then these rates are the likeliest. Plain steps of EM ended 5 points off at 0.1."""
    rates = np.arange(1.0, n_classes + 1) ** 2
    rates /= rates.sum()
    keep = np.exp(epsilon)
    likelihood = np.where(np.eye(n_classes, dtype=bool), keep, 1.0) / (keep + n_classes - 1)
    found = base_rates(likelihood, weights=likelihood.T @ rates)
    # The likelihood is within 1e-10 of its maximum, and bends at least by the square of what an answer tells.
    told = (keep - 1) / (keep + n_classes - 1)
    assert np.abs(found - rates).max() < 2e-5 / told


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 1e-7, 1e-12])
def test_answers_that_say_next_to_nothing_have_base_rates(epsilon, n_classes):
    """A second step is the first to the last bit then, and its length over what changed is no number to be squared."""
    generator = np.random.default_rng(0)
    for _ in range(4):
        _, likelihood = respond(
            generator.integers(0, n_classes, 1000), epsilon=epsilon, n_classes=n_classes, generator=generator
        )
        found = base_rates(likelihood)
        assert found.sum() == pytest.approx(1.0, abs=1e-12)
        assert (likelihood / (likelihood @ found)[:, None]).mean(axis=0).max() <= 1 + 2e-10


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 3.0])
def test_no_class_deserves_a_larger_base_rate(epsilon):
    """The conditions of Karush, Kuhn and Tucker, on the border too: few rows leave some classes out."""
    generator = np.random.default_rng(4)
    _, likelihood = respond(generator.integers(0, 3, 300), epsilon=epsilon, n_classes=8, generator=generator)
    found = base_rates(likelihood)
    growth = (likelihood / (likelihood @ found)[:, None]).mean(axis=0)
    assert growth.max() <= 1 + 2e-10  # where the search ends, and rounding
    assert growth[found > 1e-3] == pytest.approx(1.0, abs=1e-6)


def test_intercepts_move_until_the_mean_is_the_base_rates():
    generator = np.random.default_rng(1)
    z = np.log(generator.dirichlet(np.ones(4), 500)) * 3
    rates = np.array([0.7, 0.25, 0.04, 0.01])
    moved = recentre(ForwardMap(slope=1.5, intercepts=np.array([9.0, -20.0, 0.0, 3.0])), z, rates)
    assert moved(z).mean(axis=0) == pytest.approx(rates, abs=1e-7)
    assert moved.slope == 1.5


def test_a_prior_that_is_too_sure_is_flattened_and_a_right_one_stays():
    generator = np.random.default_rng(2)
    p = generator.beta(0.7, 2.0, 40_000)
    y = (generator.random(40_000) < p).astype(int)
    _, likelihood = respond(y, epsilon=1.0, n_classes=2, generator=generator)
    right = np.column_stack([1 - p, p])
    sure = right**2 / (right**2).sum(axis=1, keepdims=True)
    # The slope's standard error is about .03 at this size: 1 / sqrt(n I), I = .05 measured by the curvature.
    for told in (right, sure):
        assert np.abs(calibrate_start(likelihood, told)[:, 1] - p).mean() < 0.03
    assert calibrate_start(likelihood, np.full((40_000, 2), 0.5))[:, 1] == pytest.approx(y.mean(), abs=0.04)


def test_a_prior_stands_where_the_release_says_nothing_of_it():
    generator = np.random.default_rng(3)
    p = generator.beta(0.7, 2.0, 2_000)
    prior = np.column_stack([1 - p, p])
    silent = np.ones((2_000, 2))  # one candidate: the answer is the prior's guess whatever the label is
    assert calibrate_start(silent, prior) == pytest.approx(
        prior, abs=1e-3
    )  # probabilities are kept from 0 by that much
    # Forty rows that speak, all against the prior: the slope falls, and not to 0.
    silent[:40] = np.where((p[:40] > 0.5)[:, None], [0.7, 0.3], [0.3, 0.7])
    odds, moved = (np.log(told[:, 1] / told[:, 0])[p > 0.01] for told in (prior, calibrate_start(silent, prior)))
    assert 0.5 < moved.std() / odds.std() < 1.0


def test_a_release_that_says_nothing_leaves_the_prior_to_the_model():
    generator = np.random.default_rng(4)
    x = generator.integers(0, 4, 4_000)
    prior = np.array([0.05, 0.3, 0.6, 0.9])[x]
    start = calibrate_start(np.ones((4_000, 2)), np.column_stack([1 - prior, prior]))
    model = fit_crossfit(TREE, x[:, None], np.ones((4_000, 2)), classes=[0, 1], start=start)
    # Two rounds, each of which draws at most 1.5 copies a row from soft targets of 4,000 rows.
    assert model.predict_proba([[0], [1], [2], [3]])[:, 1] == pytest.approx([0.05, 0.3, 0.6, 0.9], abs=0.05)


def test_base_rates_of_rows_that_share_a_key():
    # sqrt(2) a + sqrt(3) b is the same for both kinds, but for rounding: kinds are told apart by whole rows.
    kinds = np.array([[np.sqrt(3.0), 0.0], [0.0, np.sqrt(2.0)]]) / 2
    likelihood = np.repeat(kinds, [30, 10], axis=0)
    assert base_rates(likelihood) == pytest.approx([0.75, 0.25], abs=1e-7)


# ----------------------------------------------------------------------------------------------------------- copies of rows


@pytest.mark.parametrize("n_classes", [2, 3, 12, 400])
def test_copies_keep_every_row_and_the_weight_of_every_class(n_classes):
    generator = np.random.default_rng(3)
    targets = generator.dirichlet(np.full(n_classes, 0.5), 4000)
    rows, columns, weights = draw_copies(GaussianNB(), targets)
    assert len(rows) <= 2 * 4000 + 1
    assert np.unique(rows).tolist() == list(range(4000))
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)
    sums = np.bincount(columns, weights=weights, minlength=n_classes)
    # Systematic draws of weights up to tau <= 1/2: a class is off by at most its own random part, sd < sqrt(n_k tau) / 2.
    spread = 0.5 * np.sqrt(4000 * 0.5 / n_classes) + 1
    assert np.abs(sums - targets.sum(axis=0)).max() < 7 * spread + 4000 * 1e-3 * 2 / n_classes


def test_an_estimator_without_weights_gets_labels_in_the_proportions_of_the_targets():
    targets = np.tile([0.7, 0.2, 0.1], (3000, 1))
    rows, columns, weights = draw_copies(KNeighborsClassifier(), targets)
    assert np.bincount(rows).tolist() == [2] * 3000
    assert (weights == 1.0).all()
    # Two systematic draws a row have a variance below that of independent ones: 7 deviations of sqrt(6000 / 4).
    assert np.abs(np.bincount(columns) - 6000 * targets[0]).max() < 7 * np.sqrt(1500)


# ----------------------------------------------------------------------------------------------- what must hold for all


def make_rows(n, seed, *, n_classes=2, columns=3):
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n, columns))
    logits = np.column_stack([np.full(n, 1.5), *(X[:, k] * 1.5 for k in range(n_classes - 1))])
    p = softmax(logits, axis=1)
    y = (p.cumsum(axis=1) < generator.random((n, 1))).sum(axis=1)
    return X, y, p, generator


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1)])
def test_permuting_the_classes_permutes_the_answer(order):
    n_classes = len(order)
    X, y, _, generator = make_rows(3000, 4, n_classes=n_classes)
    codes, likelihood = respond(y, epsilon=2.0, n_classes=n_classes, generator=generator)
    plain = LogisticRegression(tol=1e-8, max_iter=2000)
    one = fit_crossfit(plain, X, likelihood, classes=range(n_classes), codes=codes).predict_proba(X)
    place = np.argsort(order)
    again = LogisticRegression(tol=1e-8, max_iter=2000)
    other = fit_crossfit(again, X, likelihood[:, order], classes=range(n_classes), codes=place[codes]).predict_proba(X)
    # The solvers stop at 1e-7 and 1e-8 and their errors go through slopes of about 3; ties in draws are by place.
    assert other == pytest.approx(one[:, order], abs=1e-3 if n_classes == 2 else 2e-2)


@pytest.mark.parametrize("estimator", [GaussianNB(), TREE, LogisticRegression()])
def test_a_release_that_says_nothing_leaves_the_beliefs_before(estimator):
    X, _, p, _ = make_rows(2000, 5)
    silent = np.ones((2000, 2))
    flat = fit_crossfit(estimator, X, silent, classes=[0, 1]).predict_proba(X)
    # Every slope is as good as any other, and the ridge holds it at 0; nothing pulls the rates from 1/2.
    assert flat == pytest.approx(np.full((2000, 2), 0.5), abs=1e-3)
    told = fit_crossfit(LogisticRegression(), X, silent, classes=[0, 1], start=p).predict_proba(X)
    assert told.mean(axis=0) == pytest.approx(p.mean(axis=0), abs=1e-3)


def test_without_noise_it_is_a_plain_fit():
    X, y, _, _ = make_rows(500, 6, n_classes=3)
    plain = RandomForestClassifier(10, random_state=0).fit(X, np.array(list("abc"))[y])
    ours = fit_crossfit(RandomForestClassifier(10, random_state=0), X, np.eye(3)[y], classes=list("abc"))
    assert (ours.predict_proba(X) == plain.predict_proba(X)).all()
    model = LabelPrivateClassifier(RandomForestClassifier(10, random_state=0), epsilon=np.inf, classes=list("abc"))
    assert (model.fit(X, np.array(list("abc"))[y]).predict_proba(X) == plain.predict_proba(X)).all()


# ------------------------------------------------------------------------------------------------- true probabilities


def rare_table(seed):
    """20,000 rows with 11% positives, randomized at epsilon 1; a function of one column and noise columns."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((20_000, 4))
    p = 1 / (1 + np.exp(3.0 - 1.5 * X[:, 0]))
    y = (generator.random(20_000) < p).astype(int)
    codes, likelihood = respond(y, epsilon=1.0, n_classes=2, generator=generator)
    return X, p, codes, likelihood


#: Mean probability minus base rate. The estimate of the base rate has a standard error of sqrt(1/4 / n) / tanh(1/2) = .0077
#: at n = 20,000 and epsilon 1: .04 is 5.2 of them, passed by chance with probability 2e-7.
MOST_OFF = 0.04
CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "forest": RandomForestClassifier(30, min_samples_leaf=20, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=40, random_state=0),
    "tree": TREE,
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_mean_probability_is_the_base_rate_and_bins_are_calibrated(name):
    X, p, codes, likelihood = rare_table(7)
    model = fit_crossfit(CLASSIFIERS[name], X, likelihood, classes=[0, 1], codes=codes)
    chances = model.predict_proba(X)[:, 1]
    assert abs(chances.mean() - p.mean()) < MOST_OFF
    # Halves by the model's own order: the same standard error, sqrt 2 larger, and as much again for the slope.
    for half in (chances <= np.median(chances), chances > np.median(chances)):
        assert abs(chances[half].mean() - p[half].mean()) < 2 * np.sqrt(2) * MOST_OFF


@pytest.mark.parametrize("name", ["logistic", "forest"])
def test_posterior_weights_fail_that_test(name):
    X, p, codes, _ = rare_table(7)
    channel = RandomizedResponse(1.0, n_classes=2).channel()
    uniform = np.full((len(codes), 2), 0.5)
    twin = fit_released(
        CLASSIFIERS[name], X, codes=codes, channel=channel, prior=uniform, correction="posterior", classes=[0, 1]
    )
    assert abs(twin.predict_proba(X)[:, 1].mean() - p.mean()) > 5 * MOST_OFF


# ---------------------------------------------------------------------------------------------------- all kinds of release

RELEASES = {
    "labels": {},
    "two stages": {"stages": 2},
    "cluster prior": {"prior": ClusterPrior(n_clusters=8, epsilon=0.5)},
    "cluster prior, distilled, three stages": {"prior": ClusterPrior(n_clusters=8), "stages": 3, "distil": True},
    "candidate sets": {"prior": "public"},
    "answers that are no labels": {"mechanism": OptimalResponse(1.0)},
    "more rounds": {"rounds": 1},
}


@pytest.mark.parametrize("kind", RELEASES)
def test_any_release_trains_and_a_receiver_gets_the_owners_model(kind):
    X, y, p, _ = make_rows(6000, 8, n_classes=3)
    settings = dict(RELEASES[kind])
    if settings.get("prior") == "public":
        settings["prior"] = PublicPrior(0.5 * p + 0.5 / 3)
    owner = LabelPrivateClassifier(GaussianNB(), epsilon=3.0, classes=range(3), random_state=0, **settings).fit(X, y)
    assert owner.correction_ == "crossfit"
    found = owner.predict_proba(X)
    shares = np.bincount(y) / len(y)
    # Three classes at epsilon 2.5 or more: keep .86 or more, so that a rate has a standard error below .5 / (.79 sqrt 6000).
    assert found.mean(axis=0) == pytest.approx(shares, abs=5.5 * 0.5 / (0.79 * np.sqrt(6000)))
    assert np.abs(found - p).mean() < np.abs(shares - p).mean() / 2  # it has learned
    same = {name: value for name, value in settings.items() if name in {"rounds", "distil"}}
    receiver = LabelPrivateClassifier(GaussianNB(), **same).fit_release(X, owner.release_)
    assert (receiver.predict_proba(X) == found).all()


class Backwards(ClassifierMixin, BaseEstimator):
    """Gaussian Bayes that lists its classes backwards."""

    def fit(self, X, y, sample_weight=None):
        self.inner_ = GaussianNB().fit(X, y, sample_weight=sample_weight)
        self.classes_ = self.inner_.classes_[::-1]
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)[:, ::-1]


def test_classes_in_another_order_are_put_in_theirs():
    X, y, _, generator = make_rows(3000, 9)
    codes, likelihood = respond(y, epsilon=2.0, n_classes=2, generator=generator)
    plain = fit_crossfit(GaussianNB(), X, likelihood, classes=["no", "yes"], codes=codes)
    other = fit_crossfit(Backwards(), X, likelihood, classes=["no", "yes"], codes=codes)
    assert other.predict_proba(X)[:, ::-1] == pytest.approx(plain.predict_proba(X), abs=1e-9)


@pytest.mark.parametrize("n", [2, 7, 40, 300])
@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB(), RandomForestClassifier(5, random_state=0)])
def test_few_rows_and_classes_that_are_missing_from_a_half(n, estimator):
    X, y, _, generator = make_rows(n, 10, n_classes=6, columns=5)
    y[: min(n, 2)] = [0, 1][: min(n, 2)]
    codes, likelihood = respond(y, epsilon=4.0, n_classes=6, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Gaussian Bayes divides by the weights of a class of one row
        found = fit_crossfit(estimator, X, likelihood, classes=range(6), codes=codes).predict_proba(X)
    assert np.isfinite(found).all()
    assert found.sum(axis=1) == pytest.approx(np.ones(n), abs=1e-9)


def test_one_released_class_in_each_half():
    X = np.arange(20.0)[:, None]
    likelihood = np.tile([0.9, 0.1], (20, 1))
    found = fit_crossfit(LogisticRegression(), X, likelihood, classes=["a", "b"], codes=np.zeros(20, int))
    assert (found.predict_proba(X)[:, 0] > 0.9).all()


def test_kinds_of_features():
    X, y, _, _ = make_rows(1500, 11)
    frame = pd.DataFrame(X, columns=list("abc"))
    settings = {"epsilon": 2.0, "classes": [0, 1], "random_state": 0}
    dense = LabelPrivateClassifier(LogisticRegression(), **settings).fit(X, y).predict_proba(X)
    sparse = LabelPrivateClassifier(LogisticRegression(), **settings).fit(scipy.sparse.csr_matrix(X), y)
    # Sums in another order, and solvers that stop at a gradient of 1e-4.
    assert sparse.predict_proba(scipy.sparse.csr_matrix(X)) == pytest.approx(dense, abs=1e-3)
    named = LabelPrivateClassifier(LogisticRegression(), **settings).fit(frame, y).predict_proba(frame)
    assert named == pytest.approx(dense, abs=1e-12)
    keeps = make_pipeline(StandardScaler().set_output(transform="pandas"), LogisticRegression())
    piped = LabelPrivateClassifier(keeps, **settings).fit(frame, y)
    assert piped.predict_proba(frame)[:, 1] == pytest.approx(dense[:, 1], abs=0.05)  # another penalty, no more
    deep = make_pipeline(FunctionTransformer(lambda rows: rows.reshape(len(rows), -1)), GaussianNB())
    views = LabelPrivateClassifier(deep, **settings).fit(np.repeat(X[:, None, :], 2, axis=1), y)
    assert views.predict_proba(np.repeat(X[:, None, :], 2, axis=1)).shape == (1500, 2)


def test_a_warm_start_does_not_leak_between_halves():
    X, y, _, generator = make_rows(1000, 12)
    codes, likelihood = respond(y, epsilon=2.0, n_classes=2, generator=generator)
    made = [RandomForestClassifier(10, random_state=0, warm_start=warm) for warm in (False, True)]
    cold, warm = (fit_crossfit(one, X, likelihood, classes=[0, 1], codes=codes).predict_proba(X) for one in made)
    assert (cold == warm).all()


def test_an_estimator_without_weights_is_resampled_and_says_so():
    X, y, _, _ = make_rows(3000, 13)
    model = LabelPrivateClassifier(KNeighborsClassifier(50), epsilon=3.0, classes=[0, 1], random_state=0)
    with pytest.warns(UserWarning, match="KNeighborsClassifier takes no sample_weight"):
        model.fit(X, y)
    with pytest.warns(UserWarning, match="drawn from the posteriors"):
        receiver = LabelPrivateClassifier(KNeighborsClassifier(50)).fit_release(X, model.release_)
    assert (receiver.predict_proba(X) == model.predict_proba(X)).all()
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(
        y.mean(), abs=0.06
    )  # 5.5 deviations of .5/(.9 sqrt 3000)


# -------------------------------------------------------------------------------------------------------- boosting libraries


def make_booster(package, **settings):
    module = pytest.importorskip(package, reason=f"{package} is in the extra `boosting`")
    if package == "lightgbm":
        return module.LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1, random_state=0, **settings)
    return module.XGBClassifier(n_estimators=20, n_jobs=1, random_state=0, **settings)


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c")])
@pytest.mark.parametrize("correction", ["auto", "posterior", "none"])
def test_boosting_libraries_take_any_classes(package, classes, correction):
    X, y, p, _ = make_rows(4000, 14, n_classes=len(classes))
    booster = make_booster(package, max_depth=3)
    model = LabelPrivateClassifier(booster, epsilon=4.0, classes=classes, correction=correction, random_state=0)
    found = model.fit(X, np.array(classes)[y]).predict_proba(X)
    assert set(model.predict(X)) <= set(classes)
    assert np.abs(found - p).mean() < 0.15
    assert (model.predict(X) == np.array(classes)[p.argmax(axis=1)]).mean() > 0.8
    receiver = LabelPrivateClassifier(make_booster(package, max_depth=3), correction=correction)
    assert (receiver.fit_release(X, model.release_).predict_proba(X) == found).all()


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_boosting_libraries_take_classes_that_no_row_has(package):
    X, y, _, _ = make_rows(400, 15)
    model = LabelPrivateClassifier(make_booster(package), epsilon=np.inf, classes=["a", "b", "never"])
    found = model.fit(X, np.array(["a", "b"])[y]).predict_proba(X)
    assert found.shape == (400, 3)
    assert found[:, 2].max() < 0.05


def test_a_prior_is_no_factor_of_the_likelihood():
    X, y, _, _ = make_rows(2000, 16)
    prior = PublicPrior(np.tile([0.2, 0.8], (2000, 1)))
    told = {"epsilon": 1.0, "prior": prior, "mechanism": RandomizedResponse(1.0), "classes": [0, 1], "random_state": 0}
    with pytest.warns(UserWarning, match="leaves much to that prior"):
        asked = LabelPrivateClassifier(correction="forward", **told).fit(X, y)
    release = asked.release_
    direct = SoftmaxRegression().fit_likelihood(X, release.channel.likelihood(release.codes), classes=[0, 1])
    assert (asked.predict_proba(X) == direct.predict_proba(X)).all()
    free = LabelPrivateClassifier(**told).fit(X, y)
    assert free.correction_ == LabelPrivateClassifier().fit_release(X, free.release_).correction_ == "crossfit"


@pytest.mark.parametrize("prior", [ClusterPrior(n_clusters=20), "auto"])
def test_with_a_prior_the_default_learner_is_no_worse_than_a_constant(prior):
    X, y, p, _ = make_rows(8000, 17, n_classes=4)
    model = LabelPrivateClassifier(epsilon=2.0, stages=2, prior=prior, classes=range(4), random_state=0).fit(X, y)
    found = model.predict_proba(X)
    shares = np.bincount(y) / len(y)
    assert found.mean(axis=0) == pytest.approx(shares, abs=0.06)
    # Forward times prior, and forward alone, both fail here: one exaggerates the prior, the other forgets it.
    assert np.abs(found - p).mean() < 0.75 * np.abs(shares - p).mean()
