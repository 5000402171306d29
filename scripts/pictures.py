"""Draw the pictures of docs/pictures: python scripts/pictures.py [--check] [NAME ...], from the root of a clone.

    python scripts/pictures.py              # all drawings, in about ten seconds
    python scripts/pictures.py walk trust   # these two
    python scripts/pictures.py --check      # which are out of date? ends with 1 if one is

A drawing is SVG text that is a function of the sources and of studies/results: draw it again when either changes.
tests/docs/test_pictures.py compares. Photographs of screens (the report, the explorer, a terminal) are taken by
scripts/screenshots.py, which needs Chromium.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import draw_answers
import draw_howto
import draw_mechanisms
import draw_numbers
import draw_persons
import draw_studies
import draw_walk

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: Every drawing: its name, without .svg, and the function that returns its text.
DRAWINGS: dict[str, Callable[[], str]] = {
    **draw_walk.DRAWINGS,
    **draw_mechanisms.DRAWINGS,
    **draw_studies.DRAWINGS,
    **draw_answers.DRAWINGS,
    **draw_persons.DRAWINGS,
    **draw_numbers.DRAWINGS,
    **draw_howto.DRAWINGS,
}
#: Those that train a model, or search for alpha, first: drawn like the others, and not compared by the tests.
SLOW = frozenset({"numbers-deciles", "mechanism-PeerToPeerRR"})
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def same_drawing(first: str, second: str) -> bool:
    """Whether two drawings are the same but for the last digit that is written: other versions of numpy round otherwise.

    >>> same_drawing('<text x="10.1">7%</text>', '<text x="10.2">7%</text>'), same_drawing("<a>7</a>", "<a>9</a>")
    (True, False)
    """
    if NUMBER.sub("0", first) != NUMBER.sub("0", second):
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(abs(float(a) - float(b)) <= 1.1 * max(_last_digit(a), _last_digit(b)) for a, b in pairs)


def _last_digit(number: str) -> float:
    """The worth of the last digit of a number as it is written; of a whole one at least 0.1: a coordinate may end in .0."""
    digits, _, power = number.partition("e")
    _, _, fraction = digits.partition(".")
    return 10.0 ** (int(power or 0) - max(1, len(fraction)))


def is_current(name: str) -> bool:
    """Whether the committed picture is what would be drawn now."""
    path = PICTURES / f"{name}.svg"
    return path.exists() and same_drawing(path.read_text(encoding="utf-8"), DRAWINGS[name]())


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of the documentation.")
    parser.add_argument("names", nargs="*", choices=[*DRAWINGS, []], help="drawings; all if none is named")
    parser.add_argument("--check", action="store_true", help="write nothing; say which are out of date")
    said = parser.parse_args()
    names = said.names or list(DRAWINGS)
    if said.check:
        stale = [name for name in names if not is_current(name)]
        print(f"out of date: {', '.join(stale)}" if stale else f"{len(names)} drawings are up to date")
        return int(bool(stale))
    for name in names:
        (PICTURES / f"{name}.svg").write_text(DRAWINGS[name](), encoding="utf-8")
    print(f"drew {len(names)} pictures in docs/pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
