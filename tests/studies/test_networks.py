"""The study of networks: every case is a call that works and may be killed, its promise is what it says, words follow rows."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the study trains networks: install labeldp[torch]")

from studies import StudyRow, networks  # noqa: E402 - after the skip
from studies.study import Kept  # noqa: E402


def make_images(n: int = 300, seed: int = 0) -> networks.Images:
    """Ten far-apart pictures of 12 x 12 in noise, in colour: whatever learns at all learns these."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    X = (rng.integers(0, 256, (10, 12, 12))[y] + 20 * rng.normal(size=(n, 12, 12))).clip(0, 255).astype(np.uint8)
    X = np.repeat(X[..., None], 3, axis=3)
    return networks.Images(X, y, X[:100], y[:100])


def make_study(path=None) -> networks.Networks:
    study = networks.Networks(quick=True, kept=Kept(path))
    study.sets.update({"cifar10": make_images(), "fashion-mnist": make_images()})
    return study


def test_a_curators_case_says_so(monkeypatch):
    monkeypatch.setattr(networks, "QUICK_SHARE", 5e-4)
    case = networks.Case(data="fashion-mnist", minutes=10, epsilon=0.5, trust="curator")
    assert case in networks.list_cases()
    (found,) = make_study().run_case(case, seed=0)
    assert found.epsilon <= 0.5
    assert found.trust == "a curator"
    assert found.table == "fashion-mnist"
    assert "counts" in found.setting


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_every_case_keeps_its_promise_and_says_what_it_took(epsilon, monkeypatch):
    monkeypatch.setattr(networks, "QUICK_SHARE", 5e-4)  # thirty passes, of one step each
    case = networks.Case(data="cifar10", minutes=60, epsilon=epsilon)
    assert case in networks.list_cases()
    (found,) = make_study().run_case(case, seed=0)
    assert found.epsilon <= epsilon
    assert found.trust == ("everyone" if math.isinf(epsilon) else "no one")
    assert found.value > 40.0  # chance is 10%
    assert found.details["seconds"] > 0
    assert found.paper == networks.PAPER["cifar10"][epsilon]


def test_a_killed_case_goes_on_and_its_seconds_add_up(tmp_path, monkeypatch):
    case = networks.Case(data="fashion-mnist", minutes=10, epsilon=4.0)
    monkeypatch.setattr(networks, "STEPS", 1)
    monkeypatch.setattr(networks, "QUICK_SHARE", 2e-4)  # two passes at least, of one step each
    (whole,) = make_study().run_case(case, seed=0)
    study = make_study(tmp_path / "partial.jsonl")
    tell, steps = networks.Clock.__call__, []

    def die(clock, done, total, loss):
        tell(clock, done, total, loss)
        steps.append(done)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks.Clock, "__call__", die)
        with pytest.raises(KeyboardInterrupt):
            study.run_case(case, seed=0)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    earlier = json.loads((folder / "seconds.json").read_text())["seconds"]
    before = study.kept.measure_since()
    (again,) = study.run_case(case, seed=0)
    assert study.kept.measure_since() > before + earlier  # the line of this case counts the part that was killed
    assert again.value == whole.value
    assert again.details["seconds"] > earlier > 0
    assert not folder.exists()  # what was measured needs no checkpoint


def test_seeds_go_where_they_say_most():
    study = networks.Networks()
    counts = {case.name: len(study.choose_seeds(case, (0, 1, 2))) for case in networks.list_cases()}
    assert counts["cifar10, plain, 60 minutes, epsilon 2"] == counts["fashion-mnist, 10 minutes, epsilon 1"] == 3
    assert counts["cifar10, 60 minutes, epsilon 2"] == 3
    assert counts["cifar10, 60 minutes, epsilon 3"] == 1
    assert counts["cifar10, 180 minutes, epsilon 2"] == counts["cifar10, 20 minutes, epsilon 1"] == 1
    names = sorted(counts)
    assert len(names) == len(networks.list_cases())
    assert not any(later.startswith(name) for name, later in pairwise(names))  # every case can be measured alone


def test_the_words_and_plots_follow_the_rows():
    def row(minutes, epsilon, value, table="cifar10"):
        facts = {"trust": "no one", "paper": networks.PAPER["cifar10"].get(epsilon)}
        return StudyRow(table=table, setting=f"fast-cnn, {minutes} minutes", epsilon=epsilon, values=(value,), **facts)

    rows = [row(60, 2.0, 88.0), row(60, 4.0, 91.0), row(5, 2.0, 81.0, "cifar10, other times"), row(60, math.inf, 93.0)]
    study = networks.Networks()
    said = " ".join(study.findings(rows))
    committed = [
        row for row in networks.read_features("cifar10") if round(row.epsilon, 3) == 2.0 and row.trust == "no one"
    ]
    best = max(committed, key=lambda row: row.mean)  # whatever it was when that study was last run
    assert (
        "epsilon 2, fast-cnn, 60 minutes: 88.00; +1.95 points against the paper's LP-2ST; "
        f"{best.mean:.2f} by {best.setting} on features without labels" in said
    )
    assert "81.00 in 5, 88.00 in 60" in said
    assert "without privacy: 93.00" in said
    first, second = study.plots(rows)
    assert [series.name for series in first.series] == ["cifar10, fast-cnn, 60 minutes", "cifar10, the paper's LP-2ST"]
    assert second.series[0].x == (5, 60)
    assert len(study.plots(rows[:2])) == 1
    for some in ([rows[2]], [rows[3]], rows[1:]):  # whatever has been measured first
        assert study.findings(some)
        assert study.plots(some)
