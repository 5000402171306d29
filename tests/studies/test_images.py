"""The image studies: every case is a call that works, the promise of each is what it says, words follow rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the image studies train networks: install labeldp[torch]")

from studies import StudyRow, images  # noqa: E402 - after the skip


def make_images(n: int = 600, seed: int = 0) -> images.Images:
    """Ten far-apart classes in two views: whatever learns at all learns this."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    centres = 3.0 * rng.normal(size=(10, 12))
    X = (centres[y][:, None, :] + 0.3 * rng.normal(size=(n, 2, 12))).astype(np.float32)
    return images.Images(X, y, X[:300], y[:300], 1.0)


CASES = [
    images.Case(setting="LP-1ST", epsilon=8.0),
    images.Case(setting="LP-2ST", epsilon=8.0),
    images.Case(setting="auto, no one", epsilon=8.0),
    images.Case(setting="auto, curator", epsilon=1.4),
    images.Case(setting=images.STAGED, epsilon=4.0, delta=1e-5),
    images.Case(setting=images.NON_PRIVATE, epsilon=math.inf),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_every_case_keeps_its_promise_and_learns(case, monkeypatch):
    monkeypatch.setattr(images, "FINAL", {"hidden": 64, "epochs": 6})  # the last fit is as short as the others
    study = images.MNIST()
    study.images = make_images()
    (found,) = study.run_case(case, seed=0)
    assert found.epsilon <= case.epsilon
    # Chance is 10%; the classes are ten standard deviations apart.
    assert found.value > 60.0
    trusted = {"LP-1ST": "no one", "LP-2ST": "no one", "auto, no one": "no one", images.NON_PRIVATE: "everyone"}
    assert found.trust == trusted.get(case.setting, "a curator")


def test_the_words_follow_the_rows():
    def row(setting, value, trust="no one"):
        return StudyRow(table="mnist", setting=setting, epsilon=1.0, trust=trust, values=(value, value + 1), paper=None)

    study = images.MNIST()
    study.images = make_images(20)
    study.known = study.facts()
    rows = [row("LP-1ST", 80.0), row("LP-2ST", 82.0), row("auto, curator", 90.0, "a curator")]
    said = " ".join(study.findings(rows))
    assert "auto, curator 90.50" in said
    assert "+2.00 at 1" in said


def test_the_paper_s_numbers_stand_beside_their_cases():
    case = images.Case(setting="LP-2ST", epsilon=1.0)
    assert images.printed_value("fashion-mnist", case) == 83.26  # Ghazi et al. 2021, supplement, Table 4
    assert images.printed_value("fashion-mnist", images.Case(setting="LP-2ST", epsilon=0.1)) is None


def row(setting: str, value: float, trust: str, note: str = "", paper: float | None = None) -> StudyRow:
    return StudyRow(table="t", setting=setting, epsilon=1.0, trust=trust, values=(value,), note=note, paper=paper)


def test_a_curator_is_not_set_beside_the_paper_s_local_promise():
    """Once "+5.59 against LP-2ST" was a curator with delta beside local pure DP."""
    rows = [
        row("LP-2ST", 53.0, "no one", paper=63.67),
        row("auto, no one", 67.95, "no one"),
        row("statistics, three stages", 69.26, "a curator", "delta 1e-05; 3 CPU s"),
    ]
    study = images.CIFAR10()
    study.known = {"feature_cpu_seconds": 1.0}
    (said,) = [text for text in study.findings(rows) if "against the paper" in text]
    assert "+4.28 at 1 (auto, no one 67.95, paper 63.67)" in said
    assert "+5.59" not in said
    assert "69.26 at 1 (statistics, three stages, trusts a curator, delta 1e-05)" in said


def test_cifar100_has_the_paper_s_epsilons_and_a_hundred_classes():
    from studies import more_images

    study = more_images.CIFAR100()
    study.images = make_images(20)
    assert sorted({case.epsilon for case in study.cases()}) == [3.0, 4.0, 5.0, 6.0, 8.0, math.inf]
    case = images.Case(setting="LP-1ST", epsilon=8.0)
    assert study.find_printed(case) == 73.59
    for setting in ("LP-1ST", "LP-2ST", "auto, no one"):
        model = study.make_model(images.Case(setting=setting, epsilon=8.0), 0)
        assert len(model.get_params(deep=False)["classes"]) == 100
