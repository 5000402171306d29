"""The study `cluster-response`: true epsilons, a small run, words read off rows, and what its committed result shows."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from labeldp import ClusterRR
from labeldp.data import load
from labeldp.errors import LabelDPError
from studies import StudyRow, read_result
from studies import cluster_cases as cases
from studies import cluster_response as subject
from studies import cluster_words as words

TREATMENTS = (*subject.TREATMENTS, cases.CLUSTER_UNBIASED, cases.STAGES, cases.STAGES_FORWARD)


@pytest.fixture(scope="module")
def digits() -> cases.Case:
    return cases.case(load("digits"))


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("treatment", TREATMENTS, ids=lambda treatment: treatment.setting)
def test_every_treatment_spends_what_it_was_given_and_no_more(
    digits: cases.Case, treatment: cases.Treatment, epsilon: float
):
    row = cases.Job(case=digits, treatment=treatment, epsilon=epsilon, seeds=(0,), n_clusters=10).row()
    assert 0.999 * epsilon < row.epsilon <= epsilon
    assert row.trust == ("no one" if treatment.mechanism in {"uniform", "stages"} else "a curator")
    assert 0 < row.mean < 130


def test_prior_response_gets_the_very_histogram_of_the_cluster_response(digits: cases.Case):
    for cluster, prior in ((cases.CLUSTER_FORWARD, cases.PRIOR_FORWARD), (cases.CLUSTER_BOTH, cases.PRIOR_BOTH)):
        one = cases.released(digits, cluster, 1.0, 3, 10)
        two = cases.released(digits, prior, 1.0, 3, 10)
        np.testing.assert_array_equal(one.prior, two.prior)
        assert one.channel.epsilon == pytest.approx(two.channel.epsilon, rel=1e-9)  # both claims are rounded up


def test_what_the_paper_claims_for_the_same_noise():
    # MECHANISMS.md section 4: sigma = 2 / epsilon_1 costs epsilon_1, of which Theorem 1 as printed sees half.
    for epsilon, split in ((1.0, 0.5), (0.3, 0.2)):
        mechanism = ClusterRR(epsilon, split=split)
        sigma = 2 / (split * epsilon)
        tau = 0.02
        kept = 1 - 1 / (1 + math.expm1(epsilon * (1 - split)) * tau)
        printed = 1 / sigma + math.log1p(kept / ((1 - kept) * tau))
        assert cases.paper_claim(mechanism, n_classes=10) == pytest.approx(printed, rel=1e-9)  # a dozen roundings
        assert cases.paper_claim(mechanism, n_classes=10) < epsilon
        assert cases.paper_claim(mechanism, n_classes=2) == pytest.approx(epsilon, rel=1e-12)


def test_binary_task_keeps_features_and_clusters(digits: cases.Case):
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
    monkeypatch.setattr(subject, "QUICK_ROWS", 600)


def test_a_small_run_has_every_panel_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    small_study(monkeypatch)
    told: list[float] = []
    study = subject.ClusterResponse()
    result = study.run(quick=True, seeds=1, progress=lambda share, _: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    expected = {"mnist", "fashion-mnist"}
    expected |= {words.clusters_table(name) for name in expected}
    expected |= {f"binary mnist (class {digit} against the rest)" for digit in subject.DIGITS}
    assert set(result.tables()) == expected
    assert "cifar10" in result.findings[-1]
    titles = [plot.title for plot in study.plots(result)]
    assert len(titles) == 5  # two sets, the number of clusters, two binary tasks
    again = study.run(quick=True, seeds=1)
    assert again.rows == result.rows  # two threads, one answer


def test_a_set_that_is_needed_is_missed_at_once(tmp_path: Path):
    with pytest.raises(LabelDPError, match="mnist"):
        subject.ClusterResponse().run(directory=tmp_path)


def rows_with(values: dict[str, float]) -> list[StudyRow]:
    return [
        StudyRow(table="mnist", setting=name, epsilon=epsilon, trust="no one", values=(value + epsilon,))
        for name, value in values.items()
        for epsilon in (1.0, 0.5)
    ]


def test_words_name_the_winner_of_each_epsilon():
    base = dict.fromkeys((treatment.setting for treatment in words.UNIFORM), 50.0)
    rows = rows_with({**base, cases.CLUSTER_BOTH.setting: 60.0, cases.CLUSTER.setting: 40.0})
    said = words.compared(rows, "mnist")
    assert "ClusterRR, histogram beats UniformRR, plain at epsilon 0.5 (+10.0), 1 (+10.0)" in said
    assert "ClusterRR, plain never beats UniformRR, plain" in said


@pytest.mark.parametrize("table", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("base", words.UNIFORM, ids=lambda treatment: treatment.setting)
def test_committed_result_meets_what_it_must_show(repository: Path, table: str, base: cases.Treatment):
    # Issue 4: ClusterRR beats UniformRR on both sets at these epsilons, mean of 5 seeds, at the true total epsilon. It
    # does for UniformRR as the paper has it (modified loss) and plain. Against the forward loss, which the paper does not
    # have, Fashion-MNIST at epsilon 1 is a tie (98.24 sd 0.10 against 98.29 sd 0.17), so that it is not asserted.
    result = read_result(repository / "studies" / "results" / "cluster-response" / "result.json")
    assert result.facts["quick"] is False
    ours = words.line(result.rows, table, cases.CLUSTER_BOTH.setting)
    theirs = words.line(result.rows, table, base.setting)
    assert tuple(round(row.epsilon, 9) for row in ours) == subject.EPSILONS
    tie = (table, base) == ("fashion-mnist", cases.UNIFORM_FORWARD)
    for row, other in zip(ours, theirs, strict=True):
        if round(row.epsilon, 9) in subject.MUST_SHOW:
            assert row.n_seeds == other.n_seeds == 5
            assert row.epsilon <= other.epsilon
            assert row.mean > other.mean or (tie and round(row.epsilon, 9) == 1.0)
