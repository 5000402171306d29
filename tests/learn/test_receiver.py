"""A release trained elsewhere, from its directory and the features alone, is the owner's model to the last bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from labeldp import ClusterPrior, ModelPrior, PublicPrior, RandomizedResponse, RRWithPrior, load_release, privatize
from labeldp.channel import MatrixChannel
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.learn import LabelPrivateClassifier, LabelPrivateRegressor, SoftmaxRegression
from labeldp.mechanisms import Mechanism
from labeldp.release import SensitiveLabels

#: Owner's settings that a release must carry all of: every pair of a number of stages, a correction and a prior.
PRIOR = ClusterPrior(n_clusters=5)
CASES = [
    {"stages": stages, "correction": correction, "epsilon": epsilon, "prior": prior}
    for stages, epsilon, correction, prior in (
        (1, 1.0, "forward", PRIOR),
        (1, 1.0, "posterior", None),
        (1, 1.0, "unbiased", PRIOR),
        (1, 1.0, "none", None),
        (2, 1.3, "forward", None),
        (2, 1.3, "posterior", PRIOR),
        (2, 1.3, "unbiased", None),
        (2, 1.3, "none", PRIOR),
        (3, 4.0, "forward", PRIOR),
        (3, 4.0, "posterior", None),
        (3, 4.0, "unbiased", PRIOR),
        (3, 4.0, "none", None),
    )
]


#: With a prior, forward warns of what it leaves out; that it travels is another matter.
ASKED_FOR = pytest.mark.filterwarnings("ignore:.*correction='forward' reads the likelihood alone")


@ASKED_FOR
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['stages']}-{case['correction']}-{case['prior'] is not None}"
)
def test_the_receivers_model_is_the_owners(problem, tmp_path, case):
    """The receiver has the directory and the features; she knows neither labels, epsilon, stages nor prior."""
    owner = LabelPrivateClassifier(random_state=0, **case).fit(problem.X, problem.y)
    owner.release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier(correction=case["correction"])
    receiver.fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.estimator_.coef_, owner.estimator_.coef_)
    assert np.array_equal(receiver.estimator_.intercept_, owner.estimator_.intercept_)


@ASKED_FOR
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("correction", ["auto", "forward", "posterior"])
def test_what_a_prior_knew_travels_with_the_release(problem, problem_of, tmp_path, filtered, correction):
    other = problem_of(200, seed=2)
    model = SoftmaxRegression().fit(other.X, other.y)
    options = {"filter_earlier": filtered, "correction": correction}
    for number, prior in enumerate(
        [PublicPrior([0.2, 0.3, 0.5]), PublicPrior(model), ModelPrior(model, temperature=0.5)]
    ):
        owner = LabelPrivateClassifier(stages=2, prior=prior, random_state=0, **options).fit(problem.X, problem.y)
        owner.release_.save(tmp_path / str(number))
        receiver = LabelPrivateClassifier(**options).fit_release(problem.X, load_release(tmp_path / str(number)))
        assert np.array_equal(receiver.estimator_.coef_, owner.estimator_.coef_)
        assert receiver.stages_ == owner.stages_
        assert receiver.guarantee_ == owner.guarantee_


def test_a_uniform_prior_needs_no_record(problem):
    release = LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y).release_
    assert release.prior is None
    assert release.prior_index is None


@pytest.mark.parametrize(
    "mechanism", [RandomizedResponse(3.0, n_classes=3), RRWithPrior(3.0)], ids=["one row", "candidates"]
)
def test_a_release_made_by_hand_is_one_stage(problem, mechanism):
    prior = None if isinstance(mechanism, RandomizedResponse) else np.full((600, 3), 1 / 3)
    release = privatize(problem.y, mechanism, prior=prior, rng=0)
    model = LabelPrivateClassifier().fit_release(problem.X, release)
    assert model.score(problem.X, problem.y) > 0.8  # seeded
    assert len(model.stages_) == 1
    assert model.release_ is release


#: Three labels, four outputs: each label is likely in two of them. No ratio exceeds 9 < e^2.2.
SETS = np.array([[0.45, 0.45, 0.05, 0.05], [0.45, 0.05, 0.45, 0.05], [0.05, 0.45, 0.45, 0.05]])


@dataclass(frozen=True)
class Sets(Mechanism):
    """A mechanism whose outputs are not labels."""

    @property
    def guarantee(self):
        return Guarantee.pure(2.2)

    def channel(self, prior=None, *, groups=None, n_classes=None):
        return MatrixChannel(SETS)


@pytest.mark.parametrize("correction", ["forward", "posterior"])
def test_outputs_that_are_not_labels_train_too(problem, correction):
    release = privatize(SensitiveLabels(problem.y, n_classes=3), Sets(), rng=0)
    model = LabelPrivateClassifier(correction=correction).fit_release(problem.X, release)
    assert model.score(problem.X, problem.y) > 0.8  # seeded; chance is 1/3


def test_rows_that_do_not_match_are_refused(problem):
    release = LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y).release_
    with pytest.raises(LabelDPError, match="`X` must have one row per released label, got 599 rows for 600 labels"):
        LabelPrivateClassifier().fit_release(problem.X[:-1], release)


def test_a_release_goes_in_by_its_own_way(problem):
    release = LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y).release_
    for learner in (LabelPrivateClassifier(), LabelPrivateRegressor(bounds=(0, 1))):
        with pytest.raises(LabelDPError, match=r"`release` must be a Release, got a str\. .*load_release"):
            learner.fit_release(problem.X, "release")
        with pytest.raises(LabelDPError, match=r"`y` must be raw labels, got a Release\. .*fit_release"):
            learner.fit(problem.X, release)


def test_classes_of_several_kinds_are_those_of_their_labels(problem):
    """A number beside a text stays a number: NumPy would make texts of both, and find other classes."""
    classes = ["none", 1, 2]
    labels = SensitiveLabels(np.array([classes[code] for code in problem.y], dtype=object), classes=classes)
    learner = LabelPrivateClassifier(classes=classes, random_state=0)
    learner.fit_release(problem.X, privatize(labels, RandomizedResponse(2.0), rng=0))
    learner.fit(problem.X, labels)
    for no_list in (3, "none,1,2"):
        with pytest.raises(LabelDPError, match="`classes` must be a list of classes"):
            LabelPrivateClassifier(classes=no_list).fit_release(problem.X, learner.release_)


def test_settings_that_contradict_a_release_are_told(problem):
    """Its classes and its epsilon stand: other classes are a mistake, and another epsilon buys nothing."""
    release = LabelPrivateClassifier(epsilon=2.0, classes=range(3), random_state=0).fit(problem.X, problem.y).release_
    LabelPrivateClassifier(epsilon=2.0, classes=range(3)).fit_release(problem.X, release)  # warnings are errors here
    with pytest.raises(LabelDPError, match="`classes` must be those of the release"):
        LabelPrivateClassifier(classes=range(5)).fit_release(problem.X, release)
    with pytest.warns(UserWarning, match="`epsilon` is 5 and the release has 2, which stands"):
        model = LabelPrivateClassifier(epsilon=5.0).fit_release(problem.X, release)
    assert model.guarantee_.epsilon() == 2.0
