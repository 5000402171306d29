"""Estimators that learned the raw labels elsewhere, and are handed in to be trained under a promise.

Before these checks a frozen model answered with the raw labels at any epsilon, and the promise assumed nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier

from labeldp import LabelPrivateClassifier, LabelPrivateRegressor, Ledger
from labeldp.engines import privatize_table
from labeldp.errors import PrivacyError
from labeldp.learn import (
    PATE,
    MultiLabelPATE,
    PrivateSearchCV,
    SoftmaxRegression,
    SufficientStatistics,
    load_model,
    save_model,
)
from labeldp.priors import LearnedPrior, StagedClusterPrior

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = RNG.integers(0, 2, 60)  # nothing to do with X: whoever predicts them has seen them
WORDS = "must be untrained, got a fitted"
WEIGHTS = "the network's first weights did not see these labels"


class NeverForgets(ClassifierMixin, BaseEstimator):
    """An estimator that makes its own clones, and these are fitted."""

    def fit(self, X: Any, y: Any) -> NeverForgets:
        self.model_ = getattr(self, "model_", None) or DecisionTreeClassifier().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)

    def __sklearn_clone__(self) -> NeverForgets:
        return self


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier().fit(X, Y)


def frozen() -> FrozenEstimator:
    return FrozenEstimator(tree())


HOLDERS: dict[str, Callable[[], Any]] = {
    "alone": frozen,
    "in a pipeline": lambda: make_pipeline(StandardScaler(), frozen()),
    "bagged": lambda: BaggingClassifier(frozen(), n_estimators=2),
    "calibrated": lambda: CalibratedClassifierCV(frozen()),
    "voting": lambda: VotingClassifier([("a", frozen()), ("b", LogisticRegression())], voting="soft"),
    "stacked": lambda: StackingClassifier([("a", make_pipeline(PCA(), frozen()))]),
    "first guess": lambda: GradientBoostingClassifier(init=frozen()),
    "its own clone": lambda: NeverForgets().fit(X, Y),
    "a step in front that needs labels": lambda: make_pipeline(
        ColumnTransformer([("a", FrozenEstimator(TargetEncoder().fit(X, Y)), [0, 1, 2])]), LogisticRegression()
    ),
    "a selection by labels": lambda: make_pipeline(
        FrozenEstimator(SelectFromModel(LogisticRegression()).fit(X, Y)), LogisticRegression()
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_classifier_is_refused_before_anything_is_charged(tmp_path, holder):
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=10.0)
    learner = LabelPrivateClassifier(HOLDERS[holder](), epsilon=0.1, classes=[0, 1], ledger=ledger)
    with pytest.raises(PrivacyError, match=f"`estimator` {WORDS}"):
        learner.fit(X, Y)
    assert ledger.remaining("labels") == 10.0


@pytest.mark.parametrize("name", ["stage_params", "final_params"])
def test_parameters_of_stages_are_looked_at_too(name):
    params: Any = {"estimator": frozen()}
    plan = {name: [params] if name == "stage_params" else params}
    with pytest.raises(PrivacyError, match=f"`{name}` {WORDS}"):
        LabelPrivateClassifier(BaggingClassifier(n_estimators=2), classes=[0, 1], **plan).fit(X, Y)


def test_what_clone_forgets_is_taken(tmp_path):
    """A fitted tree is an unfitted one to a learner, among parameters too, and a file has it unfitted."""
    model = LabelPrivateClassifier(
        BaggingClassifier(tree(), n_estimators=2, random_state=0),
        epsilon=1.0,
        classes=[0, 1],
        final_params={"estimator": tree()},
    ).fit(X, Y)
    assert hasattr(model.final_params["estimator"], "tree_")
    save_model(model, tmp_path / "m.skops")
    back = load_model(tmp_path / "m.skops")
    assert not hasattr(back.final_params["estimator"], "tree_")
    assert not hasattr(back.estimator.estimator, "tree_")


class EmptyFromTheStart(LogisticRegression):
    """An estimator as many people write them: what it will learn has its name from the start."""

    def __init__(self, C: float = 1.0) -> None:
        super().__init__(C=C)
        self.model_ = None
        self.history_: list[float] = []
        self.n_iter_ = 0


def test_names_of_what_will_be_learned_are_not_what_was_learned():
    for estimator in (EmptyFromTheStart(), BaggingClassifier(EmptyFromTheStart(), n_estimators=2)):
        LabelPrivateClassifier(estimator, epsilon=8.0, classes=[0, 1], random_state=0).fit(X, Y)


class KeepsItsLesson(EmptyFromTheStart):
    """The same, and a copy of it knows how many it has seen: a number is something that was learned too."""

    def __sklearn_clone__(self) -> KeepsItsLesson:
        other = KeepsItsLesson(C=self.C)
        other.n_iter_ = self.n_iter_
        return other


def test_a_number_beside_names_without_a_value_is_something_learned():
    taught = KeepsItsLesson()
    taught.n_iter_ = 3
    with pytest.raises(PrivacyError, match="untrained"):
        LabelPrivateClassifier(taught, epsilon=8.0, classes=[0, 1], random_state=0).fit(X, Y)


def test_steps_that_make_features_may_be_frozen():
    """They are features, of which the promise says what it assumes; and a step without a state calls itself fitted."""
    front = make_pipeline(FrozenEstimator(StandardScaler().fit(X)), FunctionTransformer())
    for estimator in (make_pipeline(front, SoftmaxRegression()), make_pipeline(*front, SoftmaxRegression())):
        model = LabelPrivateClassifier(estimator, epsilon=1.0, classes=[0, 1]).fit(X, Y)
        assert "the features did not see these labels" in model.guarantee_.assumptions
        assert WEIGHTS not in model.guarantee_.assumptions


def test_other_learners_refuse_too(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=10.0)
    paid: dict[str, Any] = {"epsilon": 1.0, "ledger": ledger}
    public = RNG.normal(size=(20, 3))
    rows = np.column_stack([Y, 1 - Y])
    ridge = BaggingRegressor(FrozenEstimator(Ridge().fit(X, Y)), n_estimators=2)
    plain = LabelPrivateClassifier(BaggingClassifier(n_estimators=2))
    fits: dict[str, Callable[[], Any]] = {
        "regressor": lambda: LabelPrivateRegressor(ridge, bounds=(0, 1), **paid).fit(X, Y.astype(float)),
        "search": lambda: PrivateSearchCV(frozen(), {}, classes=[0, 1], **paid).fit(X, Y),
        "grid": lambda: PrivateSearchCV(
            BaggingClassifier(n_estimators=2), {"estimator": [None, frozen()]}, classes=[0, 1], **paid
        ).fit(X, Y),
        "grid by counts": lambda: PrivateSearchCV(
            plain, {"estimator__estimator": [frozen()]}, by="noisy_count", classes=[0, 1], **paid
        ).fit(X, Y),
        "teacher": lambda: PATE(frozen(), n_teachers=5, classes=[0, 1], **paid).fit(X, Y, public),
        "student": lambda: PATE(student=frozen(), n_teachers=5, classes=[0, 1], **paid).fit(X, Y, public),
        "teacher of many labels": lambda: MultiLabelPATE(OneVsRestClassifier(frozen()), n_teachers=5, **paid).fit(
            X, rows, public
        ),
        "student of many labels": lambda: MultiLabelPATE(
            student=OneVsRestClassifier(frozen()), n_teachers=5, **paid
        ).fit(X, rows, public),
        "network": lambda: SufficientStatistics(
            network=FrozenEstimator(WithFeatures().fit(X, Y)), stages=2, delta=1e-6, classes=[0, 1], **paid
        ).fit(X, Y),
        "clusters": lambda: LabelPrivateClassifier(
            prior=StagedClusterPrior(FrozenEstimator(SoftmaxRegression().fit(X, Y))), classes=[0, 1], **paid
        ).fit(X, Y),
    }
    for name, fit in fits.items():
        with pytest.raises(PrivacyError, match=WORDS):
            fit()
        assert ledger.remaining("labels") == 10.0, name


class WithFeatures(SoftmaxRegression):
    """A model that has what a network of SufficientStatistics must have."""

    def hidden_features(self, X: Any) -> Any:
        return np.asarray(X)


def test_a_prior_that_learns_is_untrained(tmp_path):
    import pandas as pd

    place = tmp_path / "table.csv"
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(ill=Y).to_csv(place, index=False)
    raw = SGDClassifier(loss="log_loss", random_state=0).fit(X, Y)
    common: dict[str, Any] = {"label": "ill", "classes": [0, 1], "epsilon": 1.0, "rng": 0}
    with pytest.raises(PrivacyError, match=f"`learner` {WORDS}"):
        privatize_table(place, to=tmp_path / "frozen", prior=LearnedPrior(FrozenEstimator(raw)), **common)
    fitted, unfitted = (
        privatize_table(place, to=tmp_path / name, prior=LearnedPrior(learner), **common)
        for name, learner in (("fitted", raw), ("unfitted", clone(raw)))
    )
    assert np.array_equal(fitted.load().codes, unfitted.load().codes)


def test_a_template_that_was_set_later_is_not_saved(tmp_path):
    model = LabelPrivateClassifier(epsilon=1.0, classes=[0, 1]).fit(X, Y)
    model.set_params(estimator=BaggingClassifier(frozen()))
    with pytest.raises(PrivacyError, match=f"save_model: `estimator` {WORDS}"):
        save_model(model, tmp_path / "m.skops")
    assert not (tmp_path / "m.skops").exists()


# ------------------------------------------------------------------------------------------------------------- networks


@pytest.fixture
def network():
    torch = pytest.importorskip("torch")
    return torch.nn.Linear(3, 2)


def test_weights_that_a_network_brings_are_assumed_to_be_public(network):
    from labeldp.nn import NetClassifier

    def net(module: Any) -> Any:
        return NetClassifier(module, hidden=4, epochs=1, batch_size=16, random_state=0)

    def make(n_classes: int, sample_shape: tuple[int, ...]) -> Any:
        return network

    for module, said in ((network, True), (make, True), ("mlp", False)):
        model = LabelPrivateClassifier(make_pipeline(StandardScaler(), net(module)), classes=[0, 1]).fit(X, Y)
        assert (WEIGHTS in model.guarantee_.assumptions) == said
        assert model.release_.guarantee.assumptions == model.guarantee_.assumptions
    # A receiver's model says it of her own network, whatever the release was made with.
    other = LabelPrivateClassifier(net(network)).fit_release(X, model.release_)
    assert WEIGHTS in other.guarantee_.assumptions

    search = PrivateSearchCV(net("mlp"), {"module": ["mlp", network]}, classes=[0, 1], cv=2).fit(X, Y)
    assert WEIGHTS in search.guarantee_.assumptions
    assert WEIGHTS not in search.release_.guarantee.assumptions

    votes = PATE(student=net(network), n_teachers=5, epsilon=50.0, classes=[0, 1]).fit(X, Y, X)
    assert WEIGHTS in votes.guarantee_.assumptions
    prior = StagedClusterPrior(net(network), histograms=1)
    assert WEIGHTS in prior.promise(1.0, n_examples=60, n_classes=2).assumptions
