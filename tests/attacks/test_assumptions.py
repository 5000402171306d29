"""What a guarantee stands on is said by the guarantee: attacks by what its user hands in beside the labels.

A prior, a grouping, features or a list of classes that were made from the labels carry them past any noise, and no code can
tell. What is allowed is what the guarantee says; so it must say it, on every path, and be carried by composition.

On the commit before: `privatize(y, RRWithPrior(.1), prior=one_hot(y))` gave back 1,000 of 1,000 raw labels at epsilon .1 and
`assumptions == ()`; of the 25 paths below 6 named a prior in a field, which `print` did not show, and none a grouping,
weights, features or a seed. Now all do, and print it. A class that one row alone has was published 100 of 100 times at
epsilon .1; now it is refused 100 of 100 times. That a release is refused can be seen by whoever sees that there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import (
    LPRRSGD,
    PATE,
    LabelPrivateClassifier,
    LabelPrivateRegressor,
    LPNormalSGD,
    MultiLabelPATE,
    OutputPerturbation,
    PrivateGLM,
    SimplexERM,
    SufficientStatistics,
)
from labeldp.learn.ratings import LabelPrivateRatings
from labeldp.mechanisms import PeerToPeerRR
from labeldp.release.queries import LabelSums

N = 240
RNG = np.random.default_rng(5)
Y = np.arange(N) % 2
X = np.column_stack([Y + RNG.normal(size=N), RNG.normal(size=N)])
GROUPS = np.arange(N) // 2 % 4
BOXED = {"classes": [0, 1]}
PUBLIC = labeldp.PublicPrior([0.4, 0.6])


def boxed() -> labeldp.SensitiveLabels:
    return labeldp.SensitiveLabels(Y, classes=[0, 1])


def one_hot(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.eye(2)[labels]


# ---------------------------------------------------------------------------- what is handed in beside the labels


def test_a_prior_made_of_the_labels_releases_them_and_the_guarantee_says_on_what_it_stands() -> None:
    truth = RNG.integers(0, 2, 1_000)
    release = labeldp.privatize(truth, labeldp.RRWithPrior(0.1), prior=one_hot(truth))
    assert (release.labels == truth).sum() == 1_000  # the attack is as good as ever: nothing but words can answer it
    assert "the prior did not see these labels" in release.guarantee.assumptions
    assert "the prior did not see these labels" in str(release.guarantee)


def test_groups_made_of_the_labels_release_them_and_the_guarantee_says_on_what_it_stands() -> None:
    """With a cluster per label a noisy count of 500 tells everyone's label at epsilon .5."""
    truth = RNG.integers(0, 2, 1_000)
    counted = labeldp.measure(truth, labeldp.LabelCounts(groups=truth), epsilon=0.5)
    assert np.diag(counted.value).sum() > 900
    assert "the grouping did not see these labels" in counted.guarantee.assumptions


def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    columns = {"y": Y, "a": X[:, 0], "b": X[:, 1], "g": GROUPS, "p": np.full(N, 0.4), "q": np.full(N, 0.6)}
    pq.write_table(pa.table(columns), path)
    return path


def in_table(tmp_path: Path, **given: Any) -> Guarantee:
    return privatize_table(table(tmp_path), label="y", to=tmp_path / "out", classes=[0, 1], **given).guarantee


def by_command(tmp_path: Path, *options: str) -> Guarantee:
    words = ["privatize", str(table(tmp_path)), "--label", "y", "--classes", "0,1", "--to", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == 0, result.output
    return labeldp.load_release(tmp_path / "out").guarantee


def classify(**given: Any) -> Guarantee:
    made = LabelPrivateClassifier(epsilon=2.0, classes=[0, 1], **given).fit(X, Y).guarantee_
    assert isinstance(made, Guarantee)
    return made


def learned(learner: Any, labels: Any = Y) -> Guarantee:
    made = learner.fit(X, labels).guarantee_
    assert isinstance(made, Guarantee)
    return made


def with_peers(*given: Any, **options: Any) -> Any:
    pytest.importorskip("zmq", reason="needs labeldp[peers]")
    from labeldp.peers import run_peers

    return run_peers(*given, **options)


FITTED = LogisticRegression().fit(X, Y)
LINEAR = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1], "clip": 5.0}
PATHS: list[tuple[str, str, Callable[[Path], Guarantee]]] = [
    ("prior", "privatize", lambda _: labeldp.privatize(boxed(), labeldp.RRTopK(1.0, k=1), prior=[0.3, 0.7]).guarantee),
    ("grouping", "ClusterRR", lambda _: labeldp.privatize(boxed(), labeldp.ClusterRR(1.0), groups=GROUPS).guarantee),
    (
        "grouping",
        "a prior by group",
        lambda _: (
            labeldp.privatize(boxed(), labeldp.RRWithPrior(1.0), prior=np.full((4, 2), 0.5), groups=GROUPS).guarantee
        ),
    ),
    ("grouping", "counts", lambda _: labeldp.measure(Y, labeldp.LabelCounts(groups=GROUPS), epsilon=1.0).guarantee),
    ("weights", "sums", lambda _: labeldp.measure(Y, LabelSums(scores=[0, 1], weights=GROUPS), epsilon=1.0).guarantee),
    ("prior", "classifier", lambda _: classify(prior=PUBLIC)),
    ("prior", "classifier, a model", lambda _: classify(prior=labeldp.ModelPrior(FITTED))),
    ("grouping", "classifier, a cluster prior", lambda _: classify(prior=labeldp.ClusterPrior(groups=GROUPS))),
    ("grouping", "classifier, no stage", lambda _: classify(stages=0, prior=labeldp.ClusterPrior(groups=GROUPS))),
    ("features", "classifier", lambda _: classify(stages=2)),
    ("prior", "LPRRSGD", lambda _: learned(LPRRSGD(epsilon=1.0, clip=5.0, classes=[0, 1], prior=PUBLIC))),
    ("features", "LPRRSGD", lambda _: learned(LPRRSGD(epsilon=1.0, clip=5.0, classes=[0, 1]))),
    ("features", "LPNormalSGD", lambda _: learned(LPNormalSGD(**LINEAR))),
    ("features", "OutputPerturbation", lambda _: learned(OutputPerturbation(**LINEAR))),
    ("features", "SufficientStatistics", lambda _: learned(SufficientStatistics(**LINEAR))),
    ("features", "PrivateGLM", lambda _: learned(PrivateGLM(bounds=(0, 1)))),
    ("features", "LabelPrivateRegressor", lambda _: learned(LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1)))),
    ("features", "PrivateGLM in groups", lambda _: learned(PrivateGLM(bounds=(0, 1), statistic="groups"))),
    ("features", "SimplexERM", lambda _: learned(SimplexERM(**LINEAR))),
    (
        "features",
        "PATE",
        lambda _: PATE(GaussianNB(), n_teachers=20, epsilon=8.0, delta=1e-3, n_queries=20).fit(X, Y, X[:20]).guarantee_,
    ),
    ("prior", "a table", lambda path: in_table(path, mechanism=labeldp.RRWithPrior(1.0), prior=PUBLIC)),
    ("prior", "a table's columns", lambda path: in_table(path, epsilon=1.0, prior_columns=["p", "q"])),
    ("grouping", "a table, ClusterRR", lambda path: in_table(path, mechanism=labeldp.ClusterRR(1.0), groups="g")),
    (
        "grouping",
        "a table's histograms",
        lambda path: in_table(path, epsilon=1.0, cluster_column="g", prior_epsilon=0.5),
    ),
    ("other columns", "a table", lambda path: in_table(path, epsilon=1.0)),
    ("prior", "the command", lambda path: by_command(path, "--epsilon", "1", "--prior-columns", "p,q")),
    ("grouping", "peers", lambda _: with_peers(Y[:12], groups=GROUPS[:12] // 2, alpha=0.25, theta=1.0).guarantee),
    ("grouping", "peers, simulated", lambda _: PeerToPeerRR(0.2, theta=1.0).simulate(Y, groups=GROUPS).guarantee),
]


@pytest.mark.parametrize(("thing", "make"), [path[::2] for path in PATHS], ids=[f"{p[1]}: {p[0]}" for p in PATHS])
def test_every_path_names_what_must_not_have_seen_the_labels(
    thing: str, make: Callable[[Path], Guarantee], tmp_path: Path
) -> None:
    promise = make(tmp_path)
    text = f"the {thing} did not see these labels"
    assert text in promise.assumptions
    assert f"assumes: {text}" in str(promise)
    assert text in promise.then(Guarantee.pure(1.0)).assumptions  # it does not get lost on the way
    assert text in Guarantee.from_json(json.loads(json.dumps(promise.to_json()))).assumptions
    assert not promise.seeded


NUMBERS: list[tuple[str, Callable[[], Guarantee]]] = [
    ("privatize", lambda: labeldp.privatize(Y, labeldp.UnbiasedResponse(1.0, bounds=(0, 1))).guarantee),
    ("LabelPrivateRegressor", lambda: learned(LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1)))),
    ("LabelPrivateRegressor, stages", lambda: learned(LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1), stages=2))),
    ("PrivateGLM", lambda: learned(PrivateGLM(bounds=(0, 1)))),
    ("PrivateGLM in groups", lambda: learned(PrivateGLM(bounds=(0, 1), statistic="groups"))),
    ("PrivateGLM, classes", lambda: learned(PrivateGLM(bounds=(0, 1)), labeldp.SensitiveLabels(Y, n_classes=2))),
]


@pytest.mark.parametrize("make", [make for _, make in NUMBERS], ids=[name for name, _ in NUMBERS])
def test_every_path_of_numbers_names_its_bounds_and_says_that_it_clipped(make: Callable[[], Guarantee]) -> None:
    """Bounds read off the labels would be the largest label, released."""
    said = "the bounds [0, 1] did not see these labels; numbers outside were clipped to them"
    assert make().assumptions.count(said) == 1


def test_numbers_that_were_refused_outside_of_bounds_are_not_said_to_be_clipped() -> None:
    inside = labeldp.SensitiveLabels(Y, bounds=(0, 1), outside="refuse")
    for learner in (LabelPrivateRegressor(epsilon=1.0), PrivateGLM(), PrivateGLM(statistic="groups")):
        assumed = learned(learner, inside).assumptions
        assert "the bounds [0, 1] did not see these labels" in assumed
        assert not any("clipped" in text for text in assumed)


def test_what_was_not_handed_in_is_not_assumed() -> None:
    """A line that is always there is read by no one."""
    assert labeldp.privatize(boxed(), labeldp.RandomizedResponse(1.0)).guarantee.assumptions == ()
    assert labeldp.measure(boxed(), labeldp.LabelCounts(), epsilon=1.0).guarantee.assumptions == ()
    assert not any("prior" in text for text in classify().assumptions)


# ------------------------------------------------------------------------------------------------------- seeds

SEEDS: list[tuple[str, Callable[[Path], Guarantee]]] = [
    ("privatize", lambda _: labeldp.privatize(boxed(), labeldp.RandomizedResponse(1.0), rng=1).guarantee),
    ("measure", lambda _: labeldp.measure(Y, labeldp.LabelCounts(), epsilon=1.0, rng=1).guarantee),
    ("classifier", lambda _: classify(random_state=1)),
    ("LPRRSGD", lambda _: learned(LPRRSGD(epsilon=1.0, clip=5.0, random_state=1))),
    ("OutputPerturbation", lambda _: learned(OutputPerturbation(**LINEAR, random_state=1))),
    ("SufficientStatistics", lambda _: learned(SufficientStatistics(**LINEAR, random_state=1))),
    ("PrivateGLM", lambda _: learned(PrivateGLM(bounds=(0, 1), random_state=1))),
    ("LabelPrivateRegressor", lambda _: learned(LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1), random_state=1))),
    ("a table", lambda path: in_table(path, epsilon=1.0, rng=1)),
    ("the command", lambda path: by_command(path, "--epsilon", "1", "--seed", "1")),
    ("peers, simulated", lambda _: PeerToPeerRR(0.2, theta=1.0).simulate(Y, groups=GROUPS, rng=1).guarantee),
    (
        "top-k",
        lambda _: (
            labeldp.selection.stable_top_k([90, 50, 1], neighbours="replace", epsilon=1.0, delta=1e-5, rng=1).guarantee
        ),
    ),
    ("ratings", lambda _: _rate(random_state=1).guarantee_),
    ("several labels", lambda _: _answer_several(random_state=1).guarantee_),
]


def _rate(**given: Any) -> Any:
    pairs = np.column_stack([np.arange(200) % 10, np.arange(200) // 10])
    return LabelPrivateRatings(epsilon=4.0, values=[1, 2, 3], **given).fit(pairs, 1 + np.arange(200) % 3)


def _answer_several(**given: Any) -> Any:
    model = MultiLabelPATE(n_teachers=10, epsilon=20.0, delta=1e-2, n_queries=5, **given)
    return model.fit(X, np.column_stack([Y, 1 - Y]), X[:5])


@pytest.mark.parametrize("make", [make for _, make in SEEDS], ids=[name for name, _ in SEEDS])
def test_every_path_says_that_its_noise_had_a_seed(make: Callable[[Path], Guarantee], tmp_path: Path) -> None:
    """The attack: whoever knows the seed draws the same noise again and takes it off. The promise must not hide that."""
    promise = make(tmp_path)
    assert any("seed" in text for text in promise.assumptions)
    assert "seed" in str(promise)
    assert promise.seeded


def test_learners_say_whether_they_are_seeded() -> None:
    for seed in (None, 1):
        model = LabelPrivateClassifier(epsilon=2.0, classes=[0, 1], random_state=seed).fit(X, Y)
        assert model.seeded_ is (seed is not None)
        again = LabelPrivateClassifier().fit_release(X, model.release_)
        assert (again.seeded_, again.guarantee_) == (model.seeded_, model.guarantee_)


# ----------------------------------------------------------------------------------------------- the list of classes


def test_a_class_that_one_row_alone_has_would_tell_her_label() -> None:
    """The attacker knows all labels but one. At epsilon .1 she may be right between two labels 52.5% of the time.

    The victim's label is "rare" or "usual" by turns; if it is "rare" the released list of classes has it, else not. On the
    commit before all 100 releases with the rare label named it. Now none is made.
    """
    right = refused = 0
    for turn in range(200):
        secret = ["rare", "usual"][turn % 2]
        labels = [secret, *["usual"] * 9, *["other"] * 9]
        try:
            released = labeldp.privatize(labels, labeldp.RandomizedResponse(0.1)).classes
        except LabelDPError:
            refused += 1
            continue
        right += ("rare" in released) == (secret == "rare") and secret == "rare"
    assert (right, refused) == (0, 100)


READ_OFF: list[tuple[str, Callable[[Path], Guarantee]]] = [
    ("privatize", lambda _: labeldp.privatize(Y, labeldp.RandomizedResponse(1.0)).guarantee),
    ("text", lambda _: labeldp.privatize(np.where(Y, "a", "b"), labeldp.RandomizedResponse(1.0)).guarantee),
    ("classifier", lambda _: learned(LabelPrivateClassifier(epsilon=1.0))),
    ("stages", lambda _: learned(LabelPrivateClassifier(epsilon=1.0, stages=2))),
    ("LPRRSGD", lambda _: learned(LPRRSGD(epsilon=1.0, clip=5.0))),
    ("a table", lambda path: privatize_table(table(path), label="y", to=path / "out", epsilon=1.0).guarantee),
]


@pytest.mark.parametrize("make", [make for _, make in READ_OFF], ids=[name for name, _ in READ_OFF])
def test_whoever_reads_the_classes_off_pooled_labels_is_a_curator(
    make: Callable[[Path], Guarantee], tmp_path: Path
) -> None:
    promise = make(tmp_path)
    assert Trust.CURATOR in promise.trust
    assert any("read off" in text for text in promise.assumptions)
