"""What all five learners must do: keep the promise they print, take what scikit-learn hands them, refuse the rest."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from labeldp.accounting import Ledger
from labeldp.errors import BudgetError, LabelDPError
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.learn.convex import LPRRSGD, LPNormalSGD, OutputPerturbation, SimplexERM, SufficientStatistics
from labeldp.learn.convex.base import RowMap
from labeldp.learn.convex.losses import Logistic
from labeldp.priors import ClusterPrior, PublicPrior
from labeldp.release import Release, SensitiveLabels, Sensitivity

LEARNERS: list[Callable[..., Any]] = [LPRRSGD, LPNormalSGD, OutputPerturbation, SimplexERM, SufficientStatistics]
GAUSSIAN = {LPNormalSGD, OutputPerturbation}
MANY = [learner for learner in LEARNERS if learner is not SimplexERM]


def two_classes(n: int = 4000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0.1, "yes", "no")


def three_classes(n: int = 6000, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.argmax(X[:, :3], axis=1)


@pytest.mark.parametrize("learner", LEARNERS)
def test_two_classes_are_learned_within_the_budget(learner: Callable[..., Any]):
    X, y = two_classes()
    model = learner(epsilon=2.0, clip=2.0, classes=["no", "yes"], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.guarantee_.epsilon(0.0 if learner is LPRRSGD else 1e-5) <= 2.0
    assert model.guarantee_.unit is Unit.LABEL
    assert model.guarantee_.trust is (Trust.NO_ONE if learner in (LPRRSGD, LPNormalSGD) else Trust.CURATOR)
    assert model.seeded_ is True
    assert model.classes_.tolist() == ["no", "yes"]
    shares = model.predict_proba(X)
    assert shares.shape == (len(X), 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-12)
    assert ((model.decision_function(X) > 0) == (model.predict(X) == "yes")).all()


@pytest.mark.parametrize("learner", MANY)
def test_many_classes_are_learned_within_the_budget(learner: Callable[..., Any]):
    X, y = three_classes()
    model = learner(epsilon=2.0, clip=3.0, classes=[0, 1, 2], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert model.decision_function(X).shape == (len(X), 3)


@pytest.mark.parametrize("loss", ["huber", "squared", "logistic", "softmax"])
@pytest.mark.parametrize("learner", [LPRRSGD, LPNormalSGD, OutputPerturbation])
def test_each_loss_learns(learner: Callable[..., Any], loss: str):
    X, y = two_classes()
    model = learner(epsilon=4.0, clip=2.0, loss=loss, classes=["no", "yes"], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("learner", LEARNERS)
def test_without_a_seed_noise_is_secure_and_differs(learner: Callable[..., Any]):
    X, y = two_classes(400)
    one, two = (learner(epsilon=1.0, clip=2.0, classes=["no", "yes"]).fit(X, y) for _ in range(2))
    assert one.seeded_ is False
    assert not np.array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_seed_repeats_and_survives_clone_and_pickle(learner: Callable[..., Any]):
    X, y = two_classes(400)
    model = learner(epsilon=1.0, clip=2.0, classes=["no", "yes"], random_state=3).fit(X, y)
    again = clone(model).fit(X, y)
    assert np.array_equal(model.coef_, again.coef_)
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_ledger_is_charged_once_with_the_guarantee_and_stops_at_its_budget(
    learner: Callable[..., Any], tmp_path: Any
):
    X, y = two_classes(300)
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(1.2, delta=1e-5, label_set="incomes")
    settings = {"epsilon": 1.0, "clip": 2.0, "classes": ["no", "yes"], "ledger": ledger, "label_set": "incomes"}
    model = learner(**settings).fit(X, y)
    entries = ledger.entries("incomes")
    assert len(entries) == 1
    assert entries[0].guarantee == model.guarantee_
    with pytest.raises(BudgetError):
        learner(**settings).fit(X, y)
    assert len(ledger.entries("incomes")) == 1


@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_that_depends_on_raw_labels_is_kept(learner: Callable[..., Any]):
    """Fitted attributes are released values or public facts; iteration counts, losses and labels are neither."""
    X, y = two_classes(300)
    model = learner(epsilon=1.0, clip=2.0, classes=["no", "yes"], random_state=0).fit(X, y)
    public = {"coef_", "intercept_", "classes_", "guarantee_", "seeded_", "n_features_in_"}
    public |= {"l2_", "sensitivity_", "sigma_", "entropy_", "noise_", "noise_scale_", "moments_", "centre_", "release_"}
    assert {name for name in vars(model) if name.endswith("_")} <= public
    # Plain values and our frozen ones alone: what was fitted can be saved.
    plain = (np.ndarray, bool, int, float, str, type(None), Guarantee, Sensitivity, Release)
    fitted = set(vars(model)) - set(model.get_params())
    assert all(isinstance(getattr(model, name), plain) for name in fitted)


def forbid_dense_rows(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """From here on, making a sparse matrix of n rows dense fails."""
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.csr_array, scipy.sparse.csc_array):
        real = kind.toarray

        def guarded(self: Any, *rest: Any, _real: Any = real, **named: Any) -> Any:
            assert n not in self.shape, "a matrix with a row per example was made dense"
            return _real(self, *rest, **named)

        monkeypatch.setattr(kind, "toarray", guarded)


@pytest.mark.parametrize("learner", LEARNERS)
def test_sparse_features_give_the_same_model_and_stay_sparse(
    learner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    X, y = two_classes(500)
    X = X * (np.random.default_rng(4).random(X.shape) < 0.5)
    settings = {"epsilon": 1.0, "clip": 0.8, "classes": ["no", "yes"], "random_state": 5}
    dense = learner(**settings).fit(X, y)

    rows = scipy.sparse.csr_matrix(X)
    forbid_dense_rows(monkeypatch, n=500)
    with pytest.raises(AssertionError, match="made dense"):  # the guard works
        rows.toarray()
    sparse = learner(**settings).fit(rows, y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sparse.predict_proba(rows), dense.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("learner", LEARNERS)
def test_sensitive_labels_are_taken_as_they_are(learner: Callable[..., Any]):
    X, y = two_classes(300)
    boxed = SensitiveLabels(y, classes=["no", "yes"], name="incomes")
    model = learner(epsilon=1.0, clip=2.0, random_state=0).fit(X, boxed)
    assert model.classes_.tolist() == ["no", "yes"]
    with pytest.raises(LabelDPError, match="`classes` must be those of the labels"):
        learner(epsilon=1.0, clip=2.0, classes=["a", "b"]).fit(X, boxed)


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"clip": None}, "`clip` must be given"),
        ({"clip": -1.0}, "`clip` must be finite and > 0"),
        ({"clip": math.inf}, "`clip` must be finite and > 0"),
        ({"clip": "big"}, "`clip` must be a number"),
        ({"epsilon": -1.0}, "`epsilon` must be >= 0"),
        ({"epsilon": math.nan}, "`epsilon` must be >= 0"),
    ],
)
def test_bad_settings_are_refused_before_the_ledger_is_charged(
    learner: Callable[..., Any], settings: dict[str, Any], match: str, tmp_path: Any
):
    X, y = two_classes(50)
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(LabelDPError, match=match):
        learner(**{"clip": 1.0, "ledger": ledger, **settings}).fit(X, y)
    assert ledger.entries() == ()


@pytest.mark.parametrize("learner", LEARNERS)
def test_one_class_is_refused_unless_the_public_list_has_more(learner: Callable[..., Any]):
    X = np.random.default_rng(6).normal(size=(2000, 2))
    constant = np.zeros(2000, int)
    with pytest.raises(LabelDPError, match="two classes or more"):
        learner(clip=1.0, random_state=0).fit(X, constant)
    model = learner(clip=1.0, epsilon=2.0, classes=[0, 1], random_state=0).fit(X, constant)
    assert np.mean(model.predict(X) == 0) > 0.9  # a constant label is learned as such


@pytest.mark.parametrize("learner", LEARNERS)
def test_separable_data_and_more_columns_than_rows_are_no_trouble(learner: Callable[..., Any]):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(20, 100))
    y = (X[:, 0] > 0).astype(int)
    model = learner(clip=1.0, classes=[0, 1], random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("learner", LEARNERS)
def test_wrong_shapes_and_missing_values_are_refused(learner: Callable[..., Any]):
    X, y = two_classes(50)
    with pytest.raises(LabelDPError, match="one label per row"):
        learner(clip=1.0).fit(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        learner(clip=1.0).fit(np.where(X > 0.9, np.nan, X), y)
    with pytest.raises(LabelDPError, match="`y` must be given"):
        learner(clip=1.0).fit(X, None)


@pytest.mark.parametrize("learner", sorted(GAUSSIAN, key=lambda one: one.__name__))
def test_gaussian_learners_need_a_delta(learner: Callable[..., Any]):
    with pytest.raises(LabelDPError, match="`delta` must"):
        learner(clip=1.0, delta=0.0).fit(*two_classes(50))


def test_responses_at_epsilon_zero_are_refused():
    with pytest.raises(LabelDPError, match="`epsilon` must be > 0"):
        LPRRSGD(clip=1.0, epsilon=0.0).fit(*two_classes(50))


# ---------------------------------------------------------------------------------------------------------- priors


def test_a_public_prior_narrows_the_responses_and_costs_nothing():
    X, y = three_classes()
    prior = np.full((len(X), 3), 0.02)
    prior[np.arange(len(X)), np.argsort(-X[:, :3], axis=1)[:, 0]] += 0.47
    prior[np.arange(len(X)), np.argsort(-X[:, :3], axis=1)[:, 1]] += 0.47
    settings = {"epsilon": 0.3, "clip": 3.0, "classes": [0, 1, 2], "random_state": 0}
    with_prior = LPRRSGD(prior=PublicPrior(prior), **settings).fit(X, y)
    without = LPRRSGD(**settings).fit(X, y)
    assert with_prior.guarantee_.epsilon() <= 0.3
    assert (np.asarray(with_prior.release_.channel.sizes) == 2).all()
    assert with_prior.score(X, y) > without.score(X, y) - 0.02


def test_a_cluster_prior_shares_the_budget():
    X, y = three_classes(2000)
    model = LPRRSGD(prior=ClusterPrior(n_clusters=10), epsilon=1.0, clip=3.0, classes=[0, 1, 2], random_state=0).fit(
        X, y
    )
    assert 0.999 <= model.guarantee_.epsilon() <= 1.0
    assert model.guarantee_.trust is Trust.CURATOR
    assert model.score(X, y) > 0.6


def test_a_prior_that_takes_everything_is_refused():
    X, y = three_classes(100)
    with pytest.raises(LabelDPError, match="epsilon"):
        LPRRSGD(prior=ClusterPrior(n_clusters=3, epsilon=2.0), epsilon=1.0, clip=1.0, classes=[0, 1, 2]).fit(X, y)


# ------------------------------------------------------------------------------------------------- rows, conformance


def test_rows_are_bounded_by_the_radius_and_short_ones_are_left_alone():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(500, 6)) * rng.uniform(0, 3, size=(500, 1))
    for unit in (False, True):
        bounded = RowMap(clip=1.5, unit=unit, constant=0.4)
        for rows in (bounded.apply(X), bounded.apply(scipy.sparse.csr_matrix(X)).toarray()):
            assert np.linalg.norm(rows, axis=1).max() <= bounded.radius
            assert (rows[:, -1] == 0.4).all()
    short = np.array([[0.1, 0.2]])
    assert RowMap(clip=1.0, unit=False, constant=0.0).apply(short).tolist() == short.tolist()


def test_new_rows_are_clipped_like_the_old_ones():
    X, y = two_classes(500)
    model = SufficientStatistics(clip=1.0, classes=["no", "yes"], random_state=0).fit(X, y)
    far = 1e6 * X[:5]
    near = X[:5] / np.linalg.norm(X[:5], axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(far), model.predict_proba(near), atol=1e-6)


def test_the_intercept_is_the_weight_of_the_constant():
    X, y = two_classes(500)
    model = OutputPerturbation(clip=1.0, l2=5.0, epsilon=math.inf, classes=["no", "yes"]).fit(X, y)
    rows = RowMap(clip=1.0, unit=False, constant=0.25).apply(X)
    whole = np.append(model.coef_[0], model.intercept_ / 0.25)
    np.testing.assert_allclose(rows @ whole, model.decision_function(X), atol=1e-9)
    gradient = (
        rows.T @ Logistic().slopes((rows @ whole)[:, None], np.eye(2)[(y == "yes").astype(int)])[:, 0] + 5 * whole
    )
    assert np.linalg.norm(gradient) <= 1e-3 * math.hypot(1.0, 0.25)  # penalised with the rest, to the certificate


def failed_checks(estimator: Any) -> set[str]:
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    return {result["check_name"] for result in results if result["status"] == "failed"}


def test_scikit_learn_s_checks_pass_for_sufficient_statistics():
    """A generous epsilon: the checks ask for a model that learns from 30 rows. Pure noise has nothing to calibrate."""
    assert failed_checks(SufficientStatistics(clip=10.0, epsilon=200.0, delta=0.0, random_state=0)) == set()


@pytest.mark.parametrize(
    "model", [LPRRSGD(), LPNormalSGD(), OutputPerturbation(l2=100.0)], ids=lambda model: type(model).__name__
)
def test_scikit_learn_s_checks_pass_for_the_others(model: Any):
    """With a given l2 the noise of OutputPerturbation is the same in every check and is calibrated once."""
    assert failed_checks(model.set_params(clip=10.0, epsilon=50.0, random_state=0)) == set()


def test_scikit_learn_s_checks_pass_for_simplex_erm():
    """A tight clip and a generous epsilon: twenty samples of a sparse model then learn the blobs of the checks."""
    assert failed_checks(SimplexERM(clip=2.0, epsilon=300.0, n_samples=20, random_state=0)) == set()


@pytest.mark.parametrize("learner", LEARNERS)
def test_in_a_pipeline_with_names(learner: Callable[..., Any]):
    from sklearn.exceptions import NotFittedError
    from sklearn.preprocessing import StandardScaler

    X, y = two_classes(300)
    model = learner(clip=2.0, classes=["no", "yes"], random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    assert pipeline.predict_proba(X).shape == (300, 2)
    with pytest.raises(ValueError, match="features"):
        pipeline[-1].predict(X[:, :2])
    parameters = model.get_params()
    assert learner(**parameters).get_params().keys() == parameters.keys()
