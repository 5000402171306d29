"""Drawings of docs/pictures are those that the sources and the committed studies give; photographs are small."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # chapters of scripts/ import each other by their names

import draw_studies  # noqa: E402
import pictures  # noqa: E402
from screenshots import MOST_BYTES  # noqa: E402

CHEAP = sorted(set(pictures.DRAWINGS) - pictures.SLOW)


@pytest.mark.parametrize("name", CHEAP)
def test_drawing_is_up_to_date(name: str):
    assert pictures.is_current(name), f"python scripts/pictures.py {name}"


def test_a_changed_drawing_is_caught():
    drawn = pictures.DRAWINGS["walk"]()
    assert pictures.same_drawing(drawn, drawn)
    assert not pictures.same_drawing(drawn, drawn.replace("73%", "93%"))
    assert not pictures.same_drawing(drawn, drawn.replace("the door", "a door"))


def test_drawings_serve_light_and_dark_screens():
    for name in pictures.DRAWINGS:
        text = (pictures.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert "prefers-color-scheme:dark" in text, name
        assert 'aria-label="' in text, name
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), name


def test_nothing_lies_about_that_no_script_makes():
    names = {path.stem for path in pictures.PICTURES.glob("*.svg")}
    assert names == set(pictures.DRAWINGS)


def test_photographs_are_small_and_come_in_pairs():
    photographs = sorted(pictures.PICTURES.glob("*.png"))
    assert photographs
    for path in photographs:
        assert path.stat().st_size <= MOST_BYTES, path.name
        other = path.name.replace("-light", "-x").replace("-dark", "-light").replace("-x", "-dark")
        assert (pictures.PICTURES / other).is_file(), path.name


def test_networks_are_drawn_as_soon_as_they_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A made-up result of a study that takes hours: its lines and its reference stand in the drawing."""
    real = draw_studies.RESULTS
    for name in ("images-cifar10", "encoder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_bytes((real / name / "result.json").read_bytes())
    monkeypatch.setattr(draw_studies, "RESULTS", tmp_path)
    draw_studies.read_rows.cache_clear()
    without = draw_studies.draw_pixels()
    pixels = "labeldp: a network on pixels, no one"
    assert pixels not in without
    usual = {"table": "cifar10", "setting": "fast-cnn, 60 minutes", "trust": "no one", "spread": 0.5, "paper": None}
    rows = [
        {**usual, "epsilon": 2.0, "mean": 81.5},
        {**usual, "epsilon": 4.0, "mean": 88.25},
        {**usual, "epsilon": "inf", "mean": 93.75},
        {**usual, "epsilon": 1.0, "mean": 70.5, "setting": "fast-cnn, 20 minutes, pretrained"},
        {**usual, "epsilon": 2.0, "mean": 99.5, "table": "cifar10, other times"},
    ]
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "result.json").write_text(json.dumps({"rows": rows}))
    with_networks = draw_studies.draw_pixels()
    draw_studies.read_rows.cache_clear()
    assert f"{pixels}: 81.5 at 2, 88.2 at 4" in with_networks
    assert "70.5" not in with_networks
    assert "no privacy, pixels: 93.8" in with_networks
    assert "99.5" not in with_networks
