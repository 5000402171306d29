"""The page about a release: what it must say, what it must not hold, and what it makes of ledgers, audits and models."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import labeldp
from labeldp.accounting import Ledger
from labeldp.audit import audit as run_audit
from labeldp.display import percent
from labeldp.errors import LabelDPError, PrivacyError, ReleaseError
from labeldp.guarantee import Guarantee
from labeldp.learn import evaluate
from labeldp.priors import ClusterPrior
from labeldp.report import Lines, Table
from labeldp.report.release_page import inference_section, release_page

N = 400
AUDIT = {
    "claims": {"epsilon": 1.0, "label_set": "clinic"},
    "checks": [
        {"name": "intact", "passed": True, "detail": "every checksum holds"},
        {"name": "law", "passed": False, "detail": "epsilon is above"},
    ],
    "lower_bound": 1.25,
    "confidence": 0.95,
    "passed": False,
}


def words(text):
    """The page as it reads: without scripts, styles and tags."""
    bare = re.sub(r"<(script|style).*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", bare).split())


@pytest.fixture
def saved(tmp_path):
    """Save a release of 400 labels of three classes; returns its directory."""

    def make(*, epsilon=1.0, rng=None, ledger=None):
        values = np.array(["x", "y", "z"])[np.arange(N) % 3]
        labels = labeldp.SensitiveLabels(values, classes=["x", "y", "z"], name="clinic")
        release = labeldp.privatize(labels, labeldp.RandomizedResponse(epsilon, n_classes=3), ledger=ledger, rng=rng)
        release.save(tmp_path / "release")
        return tmp_path / "release"

    return make


def test_it_says_what_from_whom_and_how_well(saved):
    text = words(release_page(saved()))
    for said in (
        "400 labels",
        "one label replaced",
        "could have randomized it before anyone else saw it. Whoever holds the file from which it was made has seen the labels",
        "Delta 0: the promise has no exception",
        "Noise from a secret key of the operating system",
        "at most 73.2%",  # E / (E + 1) at epsilon 1
        "factor of at most 2.71829",  # e, rounded up
        "beats chance by at most 46.3%",  # tanh(1 / 2)
        "57.6% of the 400 released labels are expected",  # E / (E + 2)
        "No ledger was given",
        "No audit was given",
        f"labeldp {labeldp.__version__}",
        f"numpy {np.__version__}",
        "release.json",
    ):
        assert said in text, said


def test_flip_rates_are_those_of_the_channel(saved):
    text = words(release_page(saved(epsilon=2.0)))
    E = np.exp(2.0)
    assert f"x {100 * 2 / (E + 2):.1f}%" in text


@pytest.mark.parametrize("rng", [None, 5])
def test_the_red_banner_stands_on_seeded_releases_alone(saved, rng):
    text = release_page(saved(rng=rng))
    assert ('role="alert"' in text) == ("Not private." in text) == (rng is not None)


@pytest.mark.parametrize("mechanism", [labeldp.RRWithPrior(2.0), labeldp.InformativeResponse(2.0)])
def test_a_curator_stages_and_a_prior_are_named(tmp_path, mechanism):
    X = np.random.default_rng(0).normal(size=(N, 2))
    model = labeldp.LabelPrivateClassifier(epsilon=2.0, mechanism=mechanism, stages=2, prior=ClusterPrior(n_clusters=4))
    model.fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    model.release_.save(tmp_path / "r")
    text = words(release_page(tmp_path / "r"))
    assert "The curator who made it has seen the labels and must be trusted" in text
    assert "Rows per stage" in text
    assert "flipped, if the prior is right" in text


def test_with_delta_guesses_are_bounded_and_beliefs_are_not_promised():
    section = inference_section(Guarantee.gaussian(sigma=4.0, sensitivity=1.0))
    [table] = [block for block in section.blocks if isinstance(block, Table)]
    assert "largest belief after" not in table.columns
    assert not [block for block in section.blocks if isinstance(block, Lines)]
    assert "at delta = 1e-05" in " ".join(block for block in section.blocks if isinstance(block, str))
    # Its twin: a pure promise does bound beliefs.
    [table] = [block for block in inference_section(Guarantee.pure(1.0)).blocks if isinstance(block, Table)]
    assert "largest belief after" in table.columns


def test_the_ledger_is_checked_against_the_release(saved, tmp_path):
    book = Ledger(tmp_path / "l", budget=3.0)
    place = saved(ledger=book)
    text = words(release_page(place, ledger=book))
    assert re.search(r"Spent 1 Budget 3 Left 2 Record intact.*entry \d+, as charged", text)
    other = Ledger(tmp_path / "other", budget=3.0)
    assert "which this ledger does not have" in words(release_page(place, ledger=other))


def test_an_audit_is_shown_and_a_foreign_one_is_called_so(saved):
    place = saved()
    text = words(release_page(place, audit=AUDIT))
    assert "FAILED: 1 of 2 checks" in text
    assert "Lower bound on epsilon 1.25, with confidence 95%" in text
    assert "NOT of this release" not in text
    foreign = {**AUDIT, "claims": {"label_set": "school"}}
    assert "NOT of this release" in words(release_page(place, audit=foreign))


def test_an_audit_that_read_raw_labels_is_for_their_owner_and_no_page_has_it(saved):
    """Before: the page, which is for anyone, said how many labels are of the commonest class, exactly."""
    place = saved()
    found = run_audit(place, labels=np.arange(N) % 3).to_json()
    assert found["raw_labels"] is True
    older = {name: value for name, value in found.items() if name != "raw_labels"}
    for one in (found, older, {**AUDIT, "raw_labels": True}):
        with pytest.raises(PrivacyError, match="`audit` must not have read raw labels"):
            release_page(place, audit=one)
    alone = run_audit(place).to_json()
    assert alone["raw_labels"] is False
    assert "No audit was given" not in words(release_page(place, audit=alone))


@pytest.mark.parametrize(
    "audit", [{"passed": True}, {"checks": []}, {"passed": True, "claims": None, "lower_bound": 0}]
)
def test_an_audit_may_lack_keys(saved, audit):
    assert "Audit" in words(release_page(saved(), audit=audit))


def test_a_model_is_shown_with_what_it_cost(saved):
    place = saved()
    release = labeldp.load_release(place)
    facts = {
        "guarantee": release.guarantee.to_json(),
        "label_set": "clinic",
        "created": release.created,
        "features": ["age"],
        "stages": [{"number": 1, "n_examples": N, "average_k": 3.0, "expected_accuracy": None}],
    }
    text = words(release_page(place, model_facts=facts))
    assert "it adds nothing to what the release cost" in text
    assert "not defined" in text
    other = words(release_page(place, model_facts={**facts, "created": "earlier"}))
    assert "its own cost adds" in other


def evaluated(n=3000, classes=("a", "<b>")):
    """Labels of which 90 % are what the score says, released at epsilon 2, and the evaluation of the score."""
    rng = np.random.default_rng(0)
    chances = rng.choice([0.1, 0.9], n)
    truth = (rng.random(n) < chances).astype(int)
    labels = labeldp.SensitiveLabels(np.array(classes)[truth], classes=list(classes))
    release = labeldp.privatize(labels, labeldp.RandomizedResponse(2.0), rng=3)
    return release, evaluate(chances, None, release)


def test_it_says_what_the_release_bought_with_intervals(tmp_path):
    release, found = evaluated()
    release.save(tmp_path / "release")
    page = release_page(tmp_path / "release", evaluation=json.loads(found.to_json()))
    text = words(page)
    low, high = found.accuracy.interval
    for said in (
        f"Accuracy is {percent(found.accuracy.value)} ({percent(low)} to {percent(high)}, with confidence 95%, for these rows)",
        f"beside {percent(found.majority.value)} of always naming the commonest class, on 3,000 rows with released labels",
        "nothing more was spent",
        "Confusion: rows by true label",
        f"AUC {found.auc.value:.4f}",
        "Calibration: what the model said, and what came true",
    ):
        assert said in text, said
    assert "<b>" not in page
    # Nine of ten predictions are right; the release at epsilon 2 tells that to within a few points.
    assert abs(found.accuracy.value - 0.9) < 0.05
    # A figure that cannot be told has its reason, and facts of another shape are left out, not guessed.
    facts = {
        **found.facts(),
        "auc": {"value": None, "reason": "too few rows"},
        "calibration": [{"odd": 1}],
        "confusion": [[1]],
    }
    other = words(release_page(tmp_path / "release", evaluation=facts))
    assert "AUC not known too few rows" in other
    assert "what came true" not in other
    with pytest.raises(LabelDPError, match="labeldp evaluate"):
        release_page(tmp_path / "release", evaluation={"passed": True})
    untold = words(release_page(tmp_path / "release", evaluation="Its features are not there."))
    assert "cannot be told from this release: Its features are not there." in untold


def test_assumptions_and_persons_are_said(tmp_path):
    labels = labeldp.SensitiveLabels(np.arange(60) % 3, n_classes=3)
    persons = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), persons=np.arange(60) // 3)
    persons.save(tmp_path / "persons")
    text = words(release_page(tmp_path / "persons"))
    assert "What the promise stands on" in text
    assert "Assumes the assignment of rows to persons did not see these labels" in text
    assert "decide between two versions of all labels of one person" in text
    assert "20 of 60 rows" in text
    labeldp.privatize(labels, labeldp.RandomizedResponse(1.0)).save(tmp_path / "plain")
    assert "names no assumption" in words(release_page(tmp_path / "plain"))


def test_one_number_is_rounded_one_way(saved):
    """The bound of a belief is 73.2 in words, in the table, and in the numbers of the drawing; 73.1 and 73.11 are nowhere."""
    text = words(release_page(saved()))
    assert text.count("73.2") >= 4
    assert not re.search(r"73\.1", text)


def test_a_damaged_release_has_no_page(saved):
    place = saved()
    data = bytearray((place / "labels.parquet").read_bytes())
    data[20] ^= 1
    (place / "labels.parquet").write_bytes(bytes(data))
    with pytest.raises(ReleaseError, match="checksum"):
        release_page(place)


def test_no_limit_is_said_plainly(saved):
    assert "Nothing is hidden" in words(release_page(saved(epsilon=np.inf)))


def test_the_page_does_not_grow_with_the_rows(tmp_path):
    sizes = []
    for n in (1_000, 30_000):
        labels = labeldp.SensitiveLabels(np.arange(n) % 10, n_classes=10)
        labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=10)).save(tmp_path / str(n))
        sizes.append(len(release_page(tmp_path / str(n))))
    # Two more digits in a dozen numbers, and nothing else.
    assert abs(sizes[1] - sizes[0]) < 200
    assert sizes[1] < 40_000


def test_a_thousand_classes_stay_readable(tmp_path):
    labels = labeldp.SensitiveLabels(np.arange(5_000) % 1_000, n_classes=1_000)
    labeldp.privatize(labels, labeldp.RandomizedResponse(3.0, n_classes=1_000)).save(tmp_path / "r")
    text = release_page(tmp_path / "r")
    assert "900 more classes are not listed" in text
    assert len(text) < 150_000
