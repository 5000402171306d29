"""The study `cluster-response`: true epsilons, its model, a small run, words read off rows, and its committed result."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from labeldp import ClusterRR, RandomizedResponse, privatize
from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.release import SensitiveLabels
from studies import StudyRow, read_result
from studies import cluster_response as subject
from studies.cluster_response import NoiseScaledSoftmax, make_model, penalty

TREATMENTS = (*subject.TREATMENTS, subject.CLUSTER_UNBIASED, subject.STAGES, subject.STAGES_FORWARD)

#: These studies stop their solver at a fixed number of steps, on small parts of the data too; their tests are not about that.
# It compares forward with the others on purpose, also where a prior has chosen the channel.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:LabelPrivateClassifier. correction='forward' reads the likelihood alone"),
]


@pytest.fixture(scope="module")
def digits() -> subject.Task:
    return subject.make_task(load("digits"), rows=400)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("treatment", TREATMENTS, ids=lambda treatment: treatment.setting)
def test_every_treatment_spends_what_it_was_given_and_no_more(
    digits: subject.Task, treatment: subject.Treatment, epsilon: float
):
    case = subject.Case(task=digits, treatment=treatment, epsilon=epsilon, n_clusters=10)
    (row,) = subject.ClusterResponse().run_case(case, seed=0)
    assert 0.999 * epsilon < row.epsilon <= epsilon
    assert row.trust == ("no one" if treatment.mechanism in {"uniform", "stages"} else "a curator")
    assert 0 < row.value < 130


def test_prior_response_gets_the_very_histogram_of_the_cluster_response(digits: subject.Task):
    for cluster, prior in (
        (subject.CLUSTER_FORWARD, subject.PRIOR_FORWARD),
        (subject.CLUSTER_BOTH, subject.PRIOR_BOTH),
    ):
        one = subject.release_labels(digits, cluster, 1.0, 3, 10)
        two = subject.release_labels(digits, prior, 1.0, 3, 10)
        np.testing.assert_array_equal(one.prior, two.prior)
        assert one.channel.epsilon == pytest.approx(two.channel.epsilon, rel=1e-9)  # both claims are rounded up


def test_what_the_paper_claims_for_the_same_noise():
    # A changed label moves two counts: sigma = 2 / epsilon_1 costs epsilon_1, of which Theorem 1 as printed sees half.
    for epsilon, split in ((1.0, 0.5), (0.3, 0.2)):
        mechanism = ClusterRR(epsilon, split=split)
        sigma = 2 / (split * epsilon)
        tau = 0.02
        kept = 1 - 1 / (1 + math.expm1(epsilon * (1 - split)) * tau)
        printed = 1 / sigma + math.log1p(kept / ((1 - kept) * tau))
        assert subject.claim_of_paper(mechanism, n_classes=10) == pytest.approx(printed, rel=1e-9)  # a dozen roundings
        assert subject.claim_of_paper(mechanism, n_classes=10) < epsilon
        assert subject.claim_of_paper(mechanism, n_classes=2) == pytest.approx(epsilon, rel=1e-12)


def test_binary_task_keeps_features_and_clusters(digits: subject.Task):
    binary = digits.binary(8)
    assert binary.n_classes == 2
    assert binary.y_train.sum() == (digits.y_train == 8).sum()
    assert binary.groups(5, 0) is digits.groups(5, 0)


def small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let digits stand for every set that is asked for, but for CIFAR-10, which is absent."""

    def stand_in(name: str, *, directory: object = None) -> object:
        if name == "cifar10":
            raise LabelDPError(f"no {name} in {directory}")
        return dataclasses.replace(load("digits"), name=name)

    monkeypatch.setattr(subject, "load", stand_in)
    monkeypatch.setattr(subject, "SETS", ("mnist", "cifar10"))
    monkeypatch.setattr(subject, "DIGITS", (8,))
    monkeypatch.setattr(subject, "QUICK_ROWS", 300)
    monkeypatch.setattr(subject, "QUICK_EPSILONS", (1.0,))
    monkeypatch.setattr(subject, "QUICK_COUNTS", (10,))
    monkeypatch.setattr(subject, "N_CLUSTERS", 20)


def test_a_small_run_has_every_panel_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    small_study(monkeypatch)
    told: list[float] = []
    study = subject.ClusterResponse(quick=True)
    result = study.run(seeds=1, progress=lambda share, _: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    binary = "binary mnist (class 8 against the rest)"
    assert result.tables() == ("mnist", subject.clusters_table("mnist"), binary)
    assert "cifar10" in result.findings[-1]
    titles = [plot.title for plot in study.plots(result.rows)]
    assert len(titles) == 3  # the set, the number of clusters, the binary task
    again = subject.ClusterResponse(quick=True)
    named = {(row.table, row.setting, row.epsilon): row for row in result.rows}
    for case in again.cases()[1::4]:  # alone, where two threads made the rows: one answer
        (found,) = again.run_case(case, seed=0)
        assert named[found.table, found.setting, found.epsilon].values == (found.value,)


def test_a_set_that_is_needed_is_missed_at_once(tmp_path: Path):
    with pytest.raises(LabelDPError, match="mnist"):
        subject.ClusterResponse(directory=tmp_path).run()


def rows_with(values: dict[str, float]) -> list[StudyRow]:
    return [
        StudyRow(table="mnist", setting=name, epsilon=epsilon, trust="no one", values=(value + epsilon,))
        for name, value in values.items()
        for epsilon in (1.0, 0.5)
    ]


def test_words_name_the_winner_of_each_epsilon():
    base = dict.fromkeys((treatment.setting for treatment in subject.UNIFORMS), 50.0)
    rows = rows_with({**base, subject.CLUSTER_BOTH.setting: 60.0, subject.CLUSTER.setting: 40.0})
    said = subject.compare_uses(rows, "mnist")
    assert "ClusterRR, histogram beats UniformRR, plain at epsilon 0.5 (+10.0), 1 (+10.0)" in said
    assert "ClusterRR, plain never beats UniformRR, plain" in said


@pytest.mark.parametrize("table", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("base", subject.UNIFORMS, ids=lambda treatment: treatment.setting)
def test_committed_result_meets_what_it_must_show(repository: Path, table: str, base: subject.Treatment):
    # ClusterRR beats UniformRR on both sets at these epsilons, mean of 5 seeds, at the true total epsilon. It
    # does for UniformRR as the paper has it (modified loss) and plain. Against the forward loss, which the paper does not
    # have, Fashion-MNIST at epsilon 1 is a tie (98.24 sd 0.10 against 98.29 sd 0.17), so that it is not asserted.
    result = read_result(repository / "studies" / "results" / "cluster-response" / "result.json")
    assert result.facts["quick"] is False
    ours = subject.pick_line(result.rows, table, subject.CLUSTER_BOTH.setting)
    theirs = subject.pick_line(result.rows, table, base.setting)
    assert tuple(round(row.epsilon, 9) for row in ours) == subject.EPSILONS
    tie = (table, base) == ("fashion-mnist", subject.UNIFORM_FORWARD)
    for row, other in zip(ours, theirs, strict=True):
        if round(row.epsilon, 9) in subject.MUST_SHOW:
            assert row.n_seeds == other.n_seeds == 5
            assert row.epsilon <= other.epsilon
            assert row.mean > other.mean or (tie and round(row.epsilon, 9) == 1.0)


# ------------------------------------------------------------------------------------------- the model and its loss


def blobs(n: int = 2_000, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes around the corners of a simplex: a linear model gets about 97% of them."""
    generator = np.random.default_rng(5)
    y = generator.integers(n_classes, size=n)
    X = 2.8 * np.eye(n_classes)[y] + generator.normal(size=(n, n_classes))
    return X.astype(np.float32), y


def test_penalty_is_the_standard_error_of_the_gradient_at_zero():
    targets = np.array([[2.0, -1.0], [0.5, 0.5]])  # |1/2 - q|^2: 4.5 and 0
    assert penalty(targets) == pytest.approx(math.sqrt(4.5 / 2 / 2), rel=1e-12)  # a few roundings


def test_plain_labels_and_their_one_hot_rows_have_one_penalty_and_one_model():
    X, y = blobs()
    plain = make_model().fit(X, y)
    soft = make_model().fit_targets(X, np.eye(3)[y], classes=range(3))
    assert plain.l2 == pytest.approx(soft.l2, rel=1e-12)
    assert plain.l2 == pytest.approx(math.sqrt(2 / 3 / len(y)), rel=1e-12)
    np.testing.assert_allclose(plain.coef_, soft.coef_, atol=1e-3)  # the solver stops at a relative gradient of 1e-4


def test_noisier_targets_are_held_harder_and_likelihoods_only_count_up_to_scale():
    X, y = blobs()
    labels = SensitiveLabels(y, n_classes=3)
    penalties = []
    for epsilon in (4.0, 1.0, 0.25):
        release = privatize(labels, RandomizedResponse(epsilon, n_classes=3), rng=0)
        targets = release.channel.unbiased_targets(release.codes)
        penalties.append(make_model().fit_targets(X, targets, classes=range(3)).l2)
        likelihood = release.channel.likelihood(release.codes)
        one = make_model().fit_likelihood(X, likelihood, classes=range(3))
        two = make_model().fit_likelihood(X, 7.0 * likelihood, classes=range(3))
        assert one.l2 == pytest.approx(two.l2, rel=1e-9)
    assert penalties == sorted(penalties)


def test_a_likelihood_that_says_nothing_can_be_fitted():
    X, _ = blobs(100)
    fitted = make_model().fit_likelihood(X, np.ones((100, 3)), classes=range(3))
    assert np.abs(fitted.coef_).max() == 0.0
    assert fitted.tol > 0


@pytest.mark.parametrize(("n_classes", "share"), [(2, 1.0), (10, 0.5)])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_noise_variance_is_at_least_that_of_the_discrete_laplace(epsilon: float, n_classes: int, share: float):
    ratio = math.exp(-epsilon * share)
    exact = 2 * ratio / (1 - ratio) ** 2
    cells = 2 if n_classes == 2 else 1  # the one count of two classes appears twice
    assert subject.noise_variance(epsilon, n_classes=n_classes) >= cells * exact


def test_gradient_against_differences():
    generator = np.random.default_rng(0)
    known = subject.Evidence(
        logarithms=np.log(generator.uniform(0.1, 1.0, (3, 8))),
        cluster=np.repeat([0, 1], [3, 5]),
        starts=np.array([0, 3]),
        counts=generator.uniform(0, 4, (3, 2)),
        variances=generator.uniform(1, 3, (3, 2)),
    )
    logits = generator.normal(size=(3, 8))
    gradient = known.loss(logits.copy())[1]
    step = 1e-5
    for place in np.ndindex(3, 8):
        ends = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[place] += sign * step
            ends.append(known.loss(moved)[0])
        # central differences of a loss of size 10 in doubles: 1e-15 * 10 / 1e-5 of rounding, step^2 of curvature
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def with_histogram(X: np.ndarray, y: np.ndarray, groups: np.ndarray, *, turned: int = 0) -> float:
    """Accuracy from labels and histogram at epsilon 0.2; `turned` clusters get another's histogram: the broken twin."""
    mechanism = ClusterRR(0.2, tau=1 / 3)
    release = privatize(SensitiveLabels(y, n_classes=3), mechanism, groups=groups, rng=1)
    assert release.prior is not None
    release.prior[:] = np.roll(release.prior, turned, axis=1)
    fitted = subject.fit_with_histogram(X, release, epsilon=mechanism.histogram_epsilon)
    return float(np.mean(fitted.predict(X) == y))


def test_histograms_teach_where_labels_alone_do_not():
    X, y = blobs()
    groups = X.argmax(axis=1)  # clusters found without labels, and good ones
    release = privatize(SensitiveLabels(y, n_classes=3), RandomizedResponse(0.2, n_classes=3), rng=1)
    alone = make_model().fit_likelihood(X, release.channel.likelihood(release.codes), classes=range(3))
    # Seeded, hence exact: failure probability 0 unless the code changes. 0.9 and 0.5 are far from what was seen.
    good = with_histogram(X, y, groups)
    assert good > 0.9
    assert good > float(np.mean(alone.predict(X) == y))
    assert with_histogram(X, y, groups, turned=1) < 0.5


def test_a_release_without_histogram_is_refused():
    X, y = blobs(50)
    release = privatize(SensitiveLabels(y, n_classes=3), RandomizedResponse(1.0, n_classes=3), rng=0)
    with pytest.raises(LabelDPError, match="carry a histogram"):
        subject.fit_with_histogram(X, release, epsilon=1.0)


def test_fit_of_an_own_objective_keeps_its_penalty():
    X, _ = blobs(20)
    fitted = NoiseScaledSoftmax().fit_objective(
        X, lambda theta: (float(theta @ theta), 2 * theta), l2=0.5, classes=[0, 1]
    )
    assert fitted.l2 == 0.5
    assert fitted.predict(X).shape == (20,)
