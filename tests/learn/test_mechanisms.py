"""Any mechanism for the response of a stage: the same promise, the same model for a receiver, and clear refusals."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from labeldp import (
    ClusterPrior,
    ClusterRR,
    InformativeResponse,
    OptimalResponse,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    load_release,
)
from labeldp.accounting import Ledger
from labeldp.channel import MatrixChannel
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import SEEDED, Guarantee, Trust, did_not_see
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.saved import load_model, save_model
from labeldp.mechanisms import MeanInformation, Mechanism


@dataclass(frozen=True)
class Pairs(Mechanism):
    """A stranger's mechanism: outputs 0 .. K-1 are pairs of classes (k, k + 1), each likelier for its two members."""

    epsilon: float
    trust: Trust = Trust.NO_ONE

    @property
    def guarantee(self):
        return Guarantee.pure(self.epsilon, trust=self.trust, assumptions=("pairs are public",))

    def channel(self, prior=None, *, groups=None, n_classes=None):
        odds = np.exp(self.epsilon * (1 - 1e-9))  # the ratio of two entries, rounded down
        rows = np.eye(n_classes) + np.eye(n_classes, k=1) + np.eye(n_classes, k=1 - n_classes)
        rows = np.where(rows > 0, odds, 1.0)
        return MatrixChannel(rows / rows.sum(axis=1, keepdims=True))


class Few(OptimalResponse):
    """OptimalResponse that takes thirty priors: each is a linear program."""

    most_priors = 30


MECHANISMS = {
    "RandomizedResponse": RandomizedResponse(0.1),
    "RRTopK": RRTopK(9.0, k=2),
    "RRWithPrior": RRWithPrior(0.1),
    "labels": Few(1.0),
    "outputs": Few(1.0, objective=MeanInformation(values=(1.0, 2.0, 3.0))),
    "stranger": Pairs(1.0),
}


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("name", MECHANISMS)
def test_any_mechanism_and_the_receiver_gets_the_same_model(problem, tmp_path, door, name, stages):
    """Each mechanism's own epsilon does not matter: it is taken at what the histogram leaves of 4."""
    owner = LabelPrivateClassifier(
        epsilon=4.0,
        stages=stages,
        prior=ClusterPrior(n_clusters=5, epsilon=1.0),
        mechanism=MECHANISMS[name],
        correction="posterior",
        ledger=Ledger(tmp_path / "ledger", budget=4.0),
        random_state=0,
    ).fit(problem.X, problem.y)
    assert sum(door.drawn) == 600
    assert owner.guarantee_.epsilon() == 4.0
    assert owner.release_.channel.epsilon <= 3.0
    assert type(MECHANISMS[name]).__name__ in owner.release_.mechanism
    owner.release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier(correction="posterior").fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.predict_proba(problem.X), owner.predict_proba(problem.X))
    # By fields: an accuracy that is not defined is NaN, and two stages with NaN are not equal from Python 3.13 on.
    np.testing.assert_equal([asdict(stage) for stage in receiver.stages_], [asdict(stage) for stage in owner.stages_])
    if name != "outputs":  # the information about a mean of 1, 2, 3 says little about the class in the middle
        assert owner.score(problem.X, problem.y) > 0.7  # seeded; chance is 1/3


@pytest.mark.parametrize(
    ("settings", "default"),
    [
        ({}, InformativeResponse(7.0)),
        ({"correction": "none"}, RRWithPrior(7.0)),
        ({"correction": "unbiased"}, RRWithPrior(7.0)),
        ({"filter_earlier": True}, RRWithPrior(7.0)),
    ],
)
def test_answers_are_sets_unless_training_takes_labels(problem, settings, default):
    plain, named = (
        LabelPrivateClassifier(epsilon=1.0, stages=2, mechanism=mechanism, random_state=0, **settings).fit(
            problem.X, problem.y
        )
        for mechanism in (None, default)
    )
    assert np.array_equal(plain.release_.codes, named.release_.codes)
    assert np.array_equal(plain.predict_proba(problem.X), named.predict_proba(problem.X))
    assert "mechanism" not in plain.release_.mechanism


def test_a_run_with_a_mechanism_goes_on_from_its_checkpoint(problem, tmp_path, door):
    settings = {"epsilon": 2.0, "stages": 2, "random_state": None, "checkpoint": tmp_path / "run"}
    first, again = (
        LabelPrivateClassifier(mechanism=Pairs(1.0), **settings).fit(problem.X, problem.y) for _ in range(2)
    )
    assert sum(door.drawn) == 600
    assert np.array_equal(first.predict_proba(problem.X), again.predict_proba(problem.X))
    with pytest.raises(LabelDPError, match="same settings"):
        LabelPrivateClassifier(mechanism=RRTopK(1.0, k=2), **settings).fit(problem.X, problem.y)


def test_trust_and_assumptions_of_the_mechanism_are_stated(problem):
    model = LabelPrivateClassifier(epsilon=2.0, mechanism=Pairs(1.0, Trust.CURATOR), classes=range(3), random_state=0)
    model.fit(problem.X, problem.y)
    assert model.guarantee_.trust is Trust.CURATOR
    assert set(model.guarantee_.assumptions) == {"pairs are public", SEEDED, *did_not_see("features")}


def test_more_distinct_priors_than_a_mechanism_takes_are_rounded(problem):
    settings = {"epsilon": 3.0, "stages": (0.2, 0.8), "random_state": 0}
    model = LabelPrivateClassifier(mechanism=Few(1.0), **settings).fit(problem.X, problem.y)
    rows = model.release_.channel.row_arrays()["transition"]
    assert 10 < len(rows) <= 31  # one of the first stage
    late = model.release_.stage == 1
    plain = LabelPrivateClassifier(mechanism=RandomizedResponse(1.0), **settings).fit(problem.X, problem.y)
    right = [np.mean(fitted.release_.labels[late] == problem.y[late]) for fitted in (model, plain)]
    assert right[0] > right[1]  # seeded: what a prior is for


class Liar(Pairs):
    """Promises what it was made with, whatever it is asked for."""

    def with_epsilon(self, epsilon):
        return self


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"mechanism": ClusterRR(1.0)}, LabelDPError, "fit_release"),
        ({"mechanism": "RRTopK"}, LabelDPError, "`mechanism` must be a mechanism"),
        ({"mechanism": RandomizedResponse(1.0, n_classes=5)}, LabelDPError, "`n_classes` must be 5"),
        ({"mechanism": RRTopK(1.0, k=9)}, LabelDPError, "k"),
        ({"mechanism": Liar(2.0)}, PrivacyError, "promises 2.0"),
        (
            {"mechanism": Pairs(1.0), "estimator": KNeighborsClassifier(), "correction": "none"},
            LabelDPError,
            "not labels",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(problem, tmp_path, door, changes, error, match):
    ledger = Ledger(tmp_path / "ledger", budget=9.0)
    with pytest.raises(error, match=match):
        LabelPrivateClassifier(epsilon=1.0, ledger=ledger, **changes).fit(problem.X, problem.y)
    assert ledger.spent() is None
    assert door.drawn == door.measured == []


def test_outputs_that_are_not_labels_are_not_taken_for_labels(problem):
    release = LabelPrivateClassifier(mechanism=Pairs(1.0), random_state=0).fit(problem.X, problem.y).release_
    with pytest.raises(LabelDPError, match="correction='none'"):
        LabelPrivateClassifier(GaussianNB(), correction="none").fit_release(problem.X, release)


@pytest.mark.parametrize(
    ("settings", "spent"),
    [
        ({"mechanism": Pairs(0.5)}, 0.5),
        ({"mechanism": Pairs(0.5), "epsilon": 2.0}, 2.0),
        ({"mechanism": RRWithPrior(3.0), "prior": ClusterPrior(n_clusters=2, epsilon=0.5)}, 3.0),
        ({}, 1.0),
    ],
    ids=["the mechanism's own", "what is said beside it", "with a prior that costs", "no mechanism"],
)
def test_a_mechanism_brings_its_budget(problem, settings, spent):
    X, y = problem.X, problem.y
    model = LabelPrivateClassifier(**settings, classes=[0, 1, 2], random_state=0).fit(X, y)
    assert model.guarantee_.epsilon() == pytest.approx(spent, rel=1e-12)  # sums of parts round
    assert model.guarantee_.epsilon() <= spent
    assert model.release_.channel.epsilon <= spent
    assert f"epsilon={spent!r}" in model.release_.mechanism


def test_a_budget_stays_with_a_saved_model(problem, tmp_path):
    X, y = problem.X, problem.y
    model = LabelPrivateClassifier(mechanism=Pairs(0.5), classes=[0, 1, 2], random_state=0).fit(X, y)
    save_model(model, tmp_path / "model.skops")
    assert load_model(tmp_path / "model.skops").epsilon == 0.5


def test_a_mechanism_without_a_pure_epsilon_brings_none(problem):
    X, y = problem.X, problem.y
    with pytest.raises(LabelDPError, match="`epsilon` must be given"):
        LabelPrivateClassifier(mechanism=RandomizedResponse(np.inf)).fit(X, y)
