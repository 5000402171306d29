"""Drawings of docs/pictures are those that the sources and the committed studies give; photographs are small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # chapters of scripts/ import each other by their names

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
