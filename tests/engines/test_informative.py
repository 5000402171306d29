"""Answers that are sets, from table to file to model: memory == local == dask, load == save, and what the audits say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.naive_bayes import GaussianNB

import labeldp
from labeldp import InformativeResponse, SensitiveLabels
from labeldp.audit import audit, channel_audit, number_answers
from labeldp.audit.channel import observed_audit
from labeldp.audit.contents import plausible_check, support_check
from labeldp.audit.static import matrix_check
from labeldp.channel import ArcChannel, SetChannel
from labeldp.engines import privatize_table
from labeldp.errors import ReleaseError
from labeldp.release.manifest import digest
from labeldp.report.rates import set_facts
from labeldp.report.release_page import release_page

K, N, SEED = 10, 2_000, 3
SURE = 1 - 1e-7  # of each audit of fresh noise: a sound release is refuted with probability 1e-7 at most


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, K, N)
    features = rng.normal(size=(N, 4)) + 2.0 * np.random.default_rng(1).normal(size=(K, 4))[codes]
    columns = {f"x{j}": features[:, j] for j in range(4)}
    path = tmp_path_factory.mktemp("informative") / "table.parquet"
    pq.write_table(pa.table({**columns, "label": codes}), path, row_group_size=333)
    return path


def labels(path: Path) -> SensitiveLabels:
    return SensitiveLabels(pq.read_table(path)["label"].to_numpy(), n_classes=K)


def beliefs() -> np.ndarray:
    return np.random.default_rng(2).dirichlet(np.full(K, 0.4), N)


@pytest.mark.parametrize("prior", [None, "array"])
def test_memory_local_dask_and_disk_agree(table: Path, prior: Any, inside: Any, tmp_path: Path) -> None:
    given = {} if prior is None else {"prior": beliefs()}
    expected = labeldp.privatize(labels(table), InformativeResponse(1.0), rng=SEED, **given)
    expected.save(tmp_path / "saved")
    likely = expected.channel.likelihood(expected.codes)
    for number, how in enumerate([{"batch_rows": 37}, {}, {"engine": "dask", "client": inside}]):
        settings = {"label": "label", "classes": range(K), "rng": SEED, "mechanism": InformativeResponse(1.0)}
        privatize_table(table, to=tmp_path / str(number), **settings, **given, **how)
    for name in ("saved", "0", "1", "2"):
        found = labeldp.load_release(tmp_path / name)
        assert type(found.channel) is (ArcChannel if prior is None else SetChannel)
        assert found.codes.dtype == expected.codes.dtype
        assert np.array_equal(found.codes, expected.codes)
        assert np.array_equal(found.channel.likelihood(found.codes), likely)


def test_a_part_of_a_release_is_saved_with_its_positions(table: Path, tmp_path: Path) -> None:
    whole = labeldp.privatize(labels(table), InformativeResponse(1.0), rng=SEED, start=7)
    rows = np.random.default_rng(0).permutation(N)[:100]
    whole.take(rows).save(tmp_path / "part")
    part = labeldp.load_release(tmp_path / "part")
    assert np.array_equal(part.channel.likelihood(part.codes), whole.channel.likelihood(whole.codes)[rows])
    whole.take(slice(10, 60)).save(tmp_path / "slice")
    part = labeldp.load_release(tmp_path / "slice")
    assert np.array_equal(part.channel.likelihood(part.codes), whole.channel.likelihood(whole.codes)[10:60])


def rewrite(path: Path, **channel: Any) -> None:
    manifest = json.loads((path / "release.json").read_text())
    manifest["channel"].update(channel)
    manifest["sha256"] = digest(manifest)
    (path / "release.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "channel",
    [
        {"size": 0},
        {"size": 10},
        {"size": "3"},
        {"size": 2.0},
        {"first": -1},
        {"first": "x"},
        {"circles": "-1"},
        {"circles": "9" * 30},
        {"n_classes": 11},
        {"n_classes": 1 << 40},
        {"odds": "nan"},
        {"odds": "1e9"},
        {"odds": [1]},
        {"kind": "sets"},
        {"kind": "sets", "shapes": [[10, 3]]},
    ],
)
def test_a_changed_header_of_arcs_is_refused(channel: dict[str, Any], table: Path, tmp_path: Path) -> None:
    labeldp.privatize(labels(table), InformativeResponse(1.0), rng=SEED).save(tmp_path / "out")
    rewrite(tmp_path / "out", **channel)
    with pytest.raises((ReleaseError, labeldp.PrivacyError)):
        labeldp.load_release(tmp_path / "out")


@pytest.mark.parametrize(
    "channel",
    [
        {"shapes": []},
        {"shapes": [[2, 2]]},
        {"shapes": [[2]]},
        {"shapes": [2, 1]},
        {"shapes": "none"},
        {"shapes": [[2, 1]] * 300},
        {"shapes": [[2, 1]]},
        {"n_classes": 20},
        {"odds": "1e9"},
        {"kind": "arcs", "size": 3, "circles": "0", "first": 0},
    ],
)
def test_a_changed_header_of_sets_is_refused(channel: dict[str, Any], table: Path, tmp_path: Path) -> None:
    labeldp.privatize(labels(table), InformativeResponse(1.0), rng=SEED, prior=beliefs()).save(tmp_path / "out")
    rewrite(tmp_path / "out", **channel)
    with pytest.raises((ReleaseError, labeldp.PrivacyError)):
        labeldp.load_release(tmp_path / "out")


def test_commands_privatize_inspect_report_and_train(table: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    out, listed = tmp_path / "out", ",".join(map(str, range(K)))
    words = ["-l", "label", "-e", "2", "--mechanism", "informative", "--classes", listed]
    run(["privatize", str(table), *words, "--to", str(out)])
    facts = json.loads(run(["inspect", str(out), "--json"]).stdout)
    assert "Her answer names 3 of 10 classes; the true one is among them with probability" in facts["answers"]
    assert facts["flip_rate"] is None
    assert "Her answer names 3 of 10 classes" in release_page(out)
    run(["train", str(out), "--to", str(tmp_path / "model.skops")])


@pytest.mark.parametrize("prior", [None, "array"])
def test_sets_are_what_a_table_is_answered_with_for_training(
    table: Path, prior: Any, inside: Any, tmp_path: Path, contents: Any
) -> None:
    """No mechanism is named: memory, local and dask give the same bytes, whatever the batches."""
    given = {} if prior is None else {"prior": beliefs()}
    expected = labeldp.privatize(labels(table), InformativeResponse(1.0), rng=SEED, **given)
    settings = {"label": "label", "classes": range(K), "rng": SEED, "epsilon": 1.0, **given}
    ways: list[dict[str, Any]] = [{"batch_rows": 37}, {"purpose": "training"}, {"engine": "dask", "client": inside}]
    for number, how in enumerate(ways):
        done = privatize_table(table, to=tmp_path / str(number), **settings, **how)
        assert np.array_equal(done.load().codes, expected.codes)
        assert done.expected_accuracy is None
        wanted = "a set of 4 of 10 classes, with the true one in it 64.4% of the time"
        assert done.answers == (wanted if prior is None else "a set of classes, by what the prior leaves open")
        assert contents(tmp_path / str(number)) == contents(tmp_path / "0")
        assert "label" not in pq.read_schema(tmp_path / str(number) / "labels.parquet").names
    mechanism = labeldp.RandomizedResponse(1.0) if prior is None else labeldp.RRWithPrior(1.0)
    one_label = privatize_table(table, to=tmp_path / "labels", **settings, purpose="labels")
    assert np.array_equal(one_label.load().codes, labeldp.privatize(labels(table), mechanism, rng=SEED, **given).codes)
    assert one_label.answers == "one label, the true one or another"


@pytest.mark.parametrize(
    "given", [{}, {"prior": [0.9, 0.1]}, {"cluster_column": "g"}, {"learner": GaussianNB()}], ids=str
)
def test_two_classes_are_answered_with_labels_by_randomized_response(given: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 500)
    path = tmp_path / "two.parquet"
    pq.write_table(pa.table({"x": rng.normal(size=500) + codes, "g": np.arange(500) % 2, "label": codes}), path)
    done = privatize_table(path, label="label", to=tmp_path / "out", epsilon=1.0, rng=SEED, classes=(0, 1), **given)
    release = done.load()
    left = 1.0 if "cluster_column" not in given else dict(done.guarantee.parts)["response"].epsilon()
    plain = labeldp.RandomizedResponse(left, n_classes=2).channel()
    assert done.answers == "one label, the true one or another"
    assert pq.read_table(tmp_path / "out" / "labels.parquet")["label"].to_pylist() == release.labels.tolist()
    # The same law; 1e-6 covers what is lost when thresholds and odds are rounded down.
    np.testing.assert_allclose(release.channel.matrix(), plain.matrix(), atol=1e-6)
    assert abs(done.expected_accuracy - plain.matrix()[0, 0]) < 1e-6


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"purpose": "learning"}, "`purpose` must be 'training' or 'labels'"),
        ({"purpose": "labels", "mechanism": InformativeResponse(1.0)}, "`purpose` must be left out where a mechanism"),
        ({"epsilon": 1e-19}, "`epsilon` must be 0, or large enough for 64-bit words"),
    ],
    ids=str,
)
def test_what_is_refused_is_refused_before_the_charge(
    options: dict[str, Any], told: str, table: Path, tmp_path: Path
) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite", budget=2.0)
    settings = {"label": "label", "classes": range(K), "epsilon": 1.0, "ledger": ledger, **options}
    with pytest.raises(labeldp.LabelDPError, match=told):
        privatize_table(table, to=tmp_path / "out", **settings)
    assert not ledger.entries()
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_is_released_and_how_to_get_labels(
    table: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    listed = ",".join(map(str, range(K)))
    start = ["privatize", str(table), "-l", "label", "-e", "1", "--classes", listed, "--to"]
    made = run([*start, str(tmp_path / "sets")])
    assert "a set of 4 of 10 classes, with the true one in it 64.4% of the time" in " ".join(made.stdout.split())
    assert "--for labels" in made.stdout
    told = run(["inspect", str(tmp_path / "sets")])
    assert "column _labeldp_output, in the place of labels" in " ".join(told.stdout.split())
    made = run([*start, str(tmp_path / "labels"), "--for", "labels"])
    assert "one label, the true one or another" in made.stdout
    assert "--for labels" not in made.stdout
    assert "stored in" not in run(["inspect", str(tmp_path / "labels")]).stdout
    refused = run([*start, str(tmp_path / "no"), "--for", "labels", "--mechanism", "rr"], code=2)
    assert "`--for` must be left out with --mechanism" in " ".join(refused.stderr.split())


def test_set_facts_of_blocks(table: Path) -> None:
    found = labeldp.privatize(labels(table), InformativeResponse(1.0), prior=beliefs())
    facts = set_facts(found)
    assert facts is not None
    assert "of 10 classes on average" in facts.sentence
    members = found.channel.members(found.codes)
    true = pq.read_table(table)["label"].to_numpy()
    share = members[np.arange(N), true].mean()
    assert abs(share - facts.true_named) < 5.5 * 0.5 / N**0.5  # 5.5 sigma: once in 26 million


@pytest.mark.parametrize("prior", [None, "array"])
def test_static_audits_understand_sets(table: Path, prior: Any, tmp_path: Path) -> None:
    given = {} if prior is None else {"prior": beliefs()}
    found = labeldp.privatize(labels(table), InformativeResponse(1.0), **given)
    found.save(tmp_path / "out")
    for check in (matrix_check(found), support_check(found), plausible_check(found)):
        assert check.passed, check.detail
    report = audit(tmp_path / "out")
    assert report.passed, [check for check in report.checks if not check.passed]
    true = pq.read_table(table)["label"].to_numpy()
    seen = observed_audit(found, true, seed=0, confidence=SURE)
    assert seen.lower_bound <= 1.0


def test_answers_that_any_labels_could_not_give_are_implausible(table: Path) -> None:
    """Rows whose answers all name label 0: no label makes that likely."""
    found = labeldp.privatize(labels(table), InformativeResponse(0.5), prior=beliefs(), rng=1)
    codes = found.codes.copy()
    codes[:, 1] |= 1
    from dataclasses import replace

    assert not plausible_check(replace(found, codes=codes)).passed


def test_the_channel_audit_finds_the_epsilon_of_sets_and_no_more() -> None:
    def run(mechanism: Any) -> Any:
        return lambda codes: number_answers(labeldp.privatize(SensitiveLabels(codes, n_classes=4), mechanism))

    asked: dict[str, Any] = {"n_classes": 4, "n_draws": 200_000, "claimed": 1.0, "confidence": SURE, "seed": 0}
    sound = channel_audit(run(InformativeResponse(1.0)), **asked)
    assert not sound.rejected
    assert sound.lower_bound > 0.7
    broken = channel_audit(run(InformativeResponse(2.0)), **asked)
    assert broken.rejected
