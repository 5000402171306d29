"""The image studies: every case is a call that works, the promise of each is what it says, a killed run goes on."""

import math

import numpy as np
import pytest
from studies.kept import Kept
from studies.study import StudyRow

torch = pytest.importorskip("torch", reason="the image studies train networks: install labeldp[torch]")

from studies.images_words import findings  # noqa: E402

from studies import images, images_cases  # noqa: E402 - after the skip


def made(n: int = 1500, seed: int = 0) -> images.Images:
    """Ten far-apart classes in two views: whatever learns at all learns this."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    centres = 3.0 * rng.normal(size=(10, 12))
    X = (centres[y][:, None, :] + 0.3 * rng.normal(size=(n, 2, 12))).astype(np.float32)
    return images.Images(X, y, X[:500], y[:500], 1.0)


CASES = [
    images_cases.Case(setting="LP-1ST", epsilon=8.0),
    images_cases.Case(setting="LP-2ST", epsilon=8.0),
    images_cases.Case(setting=images_cases.RECIPE, epsilon=8.0),
    images_cases.Case(setting=images_cases.STATISTICS, epsilon=1.0, delta=1e-5),
    images_cases.Case(setting=images_cases.PURE_STATISTICS, epsilon=4.0),
    images_cases.Case(setting=images_cases.STAGED, epsilon=4.0, delta=1e-5),
    images_cases.Case(setting=images_cases.NON_PRIVATE, epsilon=math.inf),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_every_case_keeps_its_promise_and_learns(case):
    found = images._measured(case, made(), seed=0)
    assert found["epsilon"] <= case.epsilon
    # Chance is 10%; the classes are ten standard deviations apart.
    assert found["accuracy"] > 60.0
    trusted = {"LP-1ST": "no one", "LP-2ST": "no one", images_cases.NON_PRIVATE: "everyone"}
    assert found["trust"] == trusted.get(case.setting, "a curator")


def test_what_was_measured_before_a_crash_is_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "cases", lambda data: CASES[:1])
    calls = []

    def measured(case, _images, seed):
        calls.append(case.name(seed))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"accuracy": 50.0 + seed, "cpu_seconds": 1.0, "epsilon": case.epsilon, "trust": "no one"}

    monkeypatch.setattr(images, "_measured", measured)
    path = tmp_path / "partial.jsonl"
    with pytest.raises(KeyboardInterrupt):
        images._rows("mnist", made(20), (0, 1), Kept(path), lambda *_: None)
    with path.open("a") as file:
        file.write('{"version": "cut sh')  # what a crash in the middle of a line leaves
    (row,) = images._rows("mnist", made(20), (0, 1), Kept(path), lambda *_: None)
    assert row.values == (50.0, 51.0)
    assert calls.count(CASES[0].name(0)) == 1


def test_lines_of_another_version_do_not_count(tmp_path, monkeypatch):
    path = tmp_path / "partial.jsonl"
    Kept(path).get("a", lambda: {"accuracy": 1.0})
    monkeypatch.setattr("labeldp.__version__", "0.0.other")
    assert Kept(path).get("a", lambda: {"accuracy": 2.0}) == {"accuracy": 2.0}


def test_the_words_follow_the_rows():
    def row(setting, value, trust="no one"):
        return StudyRow(table="mnist", setting=setting, epsilon=1.0, trust=trust, values=(value, value + 1), paper=None)

    said = " ".join(
        findings(
            "mnist",
            [row("LP-1ST", 80.0), row("LP-2ST", 82.0), row(images_cases.RECIPE, 90.0, "a curator")],
            feature_seconds=3.0,
        )
    )
    assert "recipe, pure 90.50" in said
    assert "+2.00 at 1" in said


def test_the_paper_s_numbers_stand_beside_their_cases():
    case = images_cases.Case(setting="LP-2ST", epsilon=1.0)
    assert images_cases.paper("fashion-mnist", case) == 83.26  # Ghazi et al. 2021, supplement, Table 4
    assert images_cases.paper("fashion-mnist", images_cases.Case(setting="LP-2ST", epsilon=0.1)) is None
