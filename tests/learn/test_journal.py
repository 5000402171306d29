"""A run that is killed goes on where it was: the same model, no label drawn twice, the ledger charged once."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from labeldp import load_release
from labeldp.accounting import Ledger
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.priors import ClusterPrior, StagedClusterPrior
from labeldp.release import SensitiveLabels

#: A run that counts what passes the door in a file, and whose estimator kills the process at its third fit.
RUN = """
import os, signal, sys
from pathlib import Path
import numpy as np
from labeldp.accounting import Ledger
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.priors import ClusterPrior
from labeldp.release import door, measurement

root = Path(sys.argv[1])
fits = 0

def counting(module, name):
    opened = module.codes_of
    def codes_of(labels):
        with (root / "door.txt").open("a") as log:
            log.write(f"{name} {len(labels)}\\n")
        return opened(labels)
    module.codes_of = codes_of

counting(door, "drawn")
counting(measurement, "measured")

class Mortal(SoftmaxRegression):
    def fit_targets(self, X, targets, *, classes):
        global fits
        fits += 1
        if fits == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit_targets(X, targets, classes=classes)

LabelPrivateClassifier(
    Mortal(), epsilon=1.0, stages=(0.4, 0.3, 0.3), prior=ClusterPrior(n_clusters=6), random_state=4,
    ledger=Ledger(root / "budget.ledger", budget=1.0), checkpoint=root / "run",
).fit(np.load(root / "X.npy"), np.load(root / "y.npy"))
"""


def test_killed_in_stage_two_and_resumed(problem, tmp_path, door, forks):
    """The process is killed in fit 3, the EM round of stage 2 (1 distils). The run that goes on draws stage 3 only."""
    np.save(tmp_path / "X.npy", problem.X)
    np.save(tmp_path / "y.npy", problem.y)
    killed = forks.run(RUN, tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    # 600 measured for the histogram; stages of 240 and 180 were drawn when it died.
    assert (tmp_path / "door.txt").read_text().split("\n")[:-1] == ["measured 600", "drawn 240", "drawn 180"]
    settings = {"epsilon": 1.0, "stages": (0.4, 0.3, 0.3), "prior": ClusterPrior(n_clusters=6), "random_state": 4}
    ledger = Ledger(tmp_path / "budget.ledger")
    resumed = LabelPrivateClassifier(SoftmaxRegression(), ledger=ledger, checkpoint=tmp_path / "run", **settings)
    resumed.fit(problem.X, problem.y)
    assert (door.drawn, door.measured) == ([180], [])
    assert len(ledger.entries()) == 1  # a second charge would also be over the budget
    whole = LabelPrivateClassifier(SoftmaxRegression(), **settings).fit(problem.X, problem.y)
    assert np.array_equal(resumed.release_.codes, whole.release_.codes)
    assert np.array_equal(resumed.estimator_.coef_, whole.estimator_.coef_)


class Stopping(SoftmaxRegression):
    """Fails at its second fit."""

    left = 2

    def fit_likelihood(self, X, likelihood, *, classes):
        Stopping.left -= 1
        if Stopping.left == 0:
            raise KeyboardInterrupt
        return super().fit_likelihood(X, likelihood, classes=classes)


@pytest.mark.filterwarnings("ignore:.*correction='forward' reads the likelihood alone")
def test_secure_noise_is_not_drawn_twice_either(problem, tmp_path, door):
    """Noise from the operating system cannot be made again: what was drawn before the stop is what the model learns from."""
    Stopping.left = 2
    settings = {"estimator": Stopping(), "stages": 3, "random_state": None, "correction": "forward"}
    with pytest.raises(KeyboardInterrupt):
        classifier(tmp_path, **settings).fit(problem.X, problem.y)
    before = list(door.drawn)
    kept = [load_release(tmp_path / "run" / f"stage-{number}").codes for number in (1, 2)]
    model = classifier(tmp_path, **settings).fit(problem.X, problem.y)
    assert len(before) == 2
    assert sum(door.drawn) == 600
    assert door.measured == [600]
    for number, codes in enumerate(kept):
        assert np.array_equal(model.release_.codes[model.release_.stage == number], codes)


def classifier(tmp_path, **changes):
    settings = {"epsilon": 1.0, "stages": 2, "prior": ClusterPrior(n_clusters=5), "random_state": 0}
    return LabelPrivateClassifier(**{**settings, "checkpoint": tmp_path / "run", **changes})


def test_a_finished_run_is_not_drawn_again(problem, tmp_path, door):
    first = classifier(tmp_path, random_state=None).fit(problem.X, problem.y)
    drawn = (list(door.drawn), list(door.measured))
    again = classifier(tmp_path, random_state=None).fit(problem.X, problem.y)
    assert (door.drawn, door.measured) == drawn
    assert np.array_equal(first.release_.codes, again.release_.codes)
    assert np.array_equal(first.estimator_.coef_, again.estimator_.coef_)
    assert first.guarantee_ == again.guarantee_


def test_a_checkpoint_changes_nothing(problem, tmp_path):
    kept, plain = (classifier(tmp_path, checkpoint=c).fit(problem.X, problem.y) for c in (tmp_path / "run", None))
    assert np.array_equal(kept.release_.codes, plain.release_.codes)
    assert np.array_equal(kept.estimator_.coef_, plain.estimator_.coef_)


def test_the_ledger_is_asked_and_no_note(problem, tmp_path):
    """A run that goes on finds its charge by its name in the ledger; there is no note beside it that could be lost."""
    ledger = Ledger(tmp_path / "budget.ledger", budget=1.0)
    for _ in range(2):
        model = classifier(tmp_path, ledger=ledger).fit(problem.X, problem.y)
        assert model.release_.ledger_entry == ledger.entries()[0].id
    assert len(ledger.entries()) == 1


def test_without_stages_the_histogram_is_kept(problem, tmp_path, door):
    first = classifier(tmp_path, stages=0, random_state=None).fit(problem.X, problem.y)
    again = classifier(tmp_path, stages=0, random_state=None).fit(problem.X, problem.y)
    assert door.measured == [600]
    assert np.array_equal(first.release_.prior, again.release_.prior)


class Dying(SoftmaxRegression):
    """Fails at its first fit on soft targets, once."""

    alive = True

    def fit_targets(self, X, targets, *, classes):
        if Dying.alive:
            Dying.alive = False
            raise KeyboardInterrupt
        return super().fit_targets(X, targets, classes=classes)


def test_between_two_histograms_the_first_is_kept(problem, tmp_path, door):
    Dying.alive = True
    prior = StagedClusterPrior(Dying())
    with pytest.raises(KeyboardInterrupt):
        classifier(tmp_path, stages=0, prior=prior, random_state=None).fit(problem.X, problem.y)
    assert door.measured == [600]
    model = classifier(tmp_path, stages=0, prior=prior, random_state=None).fit(problem.X, problem.y)
    assert door.measured == [600, 600]
    assert model.guarantee_.epsilon() == 1.0
    assert {"histogram-1", "histogram-2", "prior"} <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize(
    "changes", [{"epsilon": 2.0}, {"stages": 3}, {"prior": None}, {"random_state": None}, {"label_set": "other"}]
)
def test_another_run_is_refused(problem, tmp_path, changes):
    classifier(tmp_path).fit(problem.X, problem.y)
    with pytest.raises(LabelDPError, match="`checkpoint` must hold a run of the same settings"):
        classifier(tmp_path, **changes).fit(problem.X, problem.y)


def test_other_rows_are_refused(problem, tmp_path):
    classifier(tmp_path).fit(problem.X, problem.y)
    with pytest.raises(LabelDPError, match="same settings, got another examples"):
        classifier(tmp_path).fit(problem.X[:-1], problem.y[:-1])


@pytest.mark.parametrize("name", ["plan/stage.npy", "plan/facts.json", "prior/rows.npy", "run-1.json"])
def test_damage_is_said_and_nothing_is_drawn(problem, tmp_path, door, name):
    classifier(tmp_path).fit(problem.X, problem.y)
    drawn = list(door.drawn)
    (tmp_path / "run" / name).write_bytes(b"\x93NUMPYbroken")
    with pytest.raises(ReleaseError, match="cannot be read"):
        classifier(tmp_path).fit(problem.X, problem.y)
    assert door.drawn == drawn


def test_no_raw_label_and_no_key_is_written(problem, tmp_path):
    """What is on disk are the split, the noisy table, releases and plain facts."""
    classifier(tmp_path).fit(problem.X, problem.y)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"plan", "run-1.json", "lock", "prior", "stage-1", "stage-2"}
    assert {path.name for path in (tmp_path / "run" / "plan").iterdir()} == {"facts.json", "stage.npy"}
    facts = json.loads((tmp_path / "run" / "plan" / "facts.json").read_text())
    assert set(facts) == {"facts", "files", "sha256"}
    assert set(facts["facts"]) == {"version", "settings", "classes", "examples", "label set", "seeded"}


def test_classes_that_do_not_store_are_refused_before_the_charge(problem, tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger", budget=5.0)
    names = [b"a", b"b", b"c"]
    labels = SensitiveLabels([names[c] for c in problem.y], classes=names)
    with pytest.raises(LabelDPError, match="be text, numbers or booleans"):
        classifier(tmp_path, ledger=ledger).fit(problem.X, labels)
    assert ledger.spent() is None
