"""A release trained elsewhere, from its directory and the features alone, is the owner's model to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from labeldp import ClusterPrior, ModelPrior, PublicPrior, RandomizedResponse, RRWithPrior, load_release, privatize
from labeldp.channel import MatrixChannel
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.mechanisms import Mechanism
from labeldp.release import SensitiveLabels

#: Owner's settings that a release must carry all of.
CASES = [
    {"stages": stages, "correction": correction, "epsilon": epsilon, "prior": prior}
    for stages, epsilon in ((1, 1.0), (2, 1.3), (3, 4.0))
    for correction in ("forward", "posterior", "unbiased", "none")
    for prior in (None, ClusterPrior(n_clusters=5))
]

RECEIVER = """
import sys
from pathlib import Path
import numpy as np
from labeldp import load_release
from labeldp.learn import LabelPrivateClassifier

root = Path(sys.argv[1])
X = np.load(root / "X.npy")
for directory in sorted(root.glob("release-*")):
    correction = directory.name.split("-")[2]
    model = LabelPrivateClassifier(correction=correction).fit_release(X, load_release(directory))
    np.save(root / (directory.name + ".npy"), np.c_[model.estimator_.coef_, model.estimator_.intercept_])
"""


def test_the_receivers_model_is_the_owners(problem, tmp_path):
    """Every case in one other process, which knows neither labels, epsilon, stages nor prior."""
    np.save(tmp_path / "X.npy", problem.X)
    owned = {}
    for number, case in enumerate(CASES):
        model = LabelPrivateClassifier(random_state=number, **case).fit(problem.X, problem.y)
        name = f"release-{number:02d}-{case['correction']}"
        model.release_.save(tmp_path / name)
        owned[name] = np.c_[model.estimator_.coef_, model.estimator_.intercept_]
    # One thread as here: the order of a sum, and so its last bit, is the number of threads'.
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", RECEIVER, str(tmp_path)], check=True, env=environment, timeout=120)
    for name, coefficients in owned.items():
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), coefficients), name


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("correction", ["forward", "posterior"])
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
