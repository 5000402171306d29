"""Draw the pictures of docs/informative.md: python scripts/draw_answers.py, from the root of a clone.

`answers.svg` shows the answers that one row may give, of labels and of sets, as the mechanisms choose them for its prior. The
other two are lines of the committed study `informative`. Files have a white ground of their own, so that they are
readable on a light page and on a dark one.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.mechanisms import InformativeResponse, RRWithPrior
from labeldp.plots import LIGHT, SERIES_LIGHT, Lines, Series, plot_file

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
RESULT = ROOT / "studies" / "results" / "informative" / "result.json"
EPSILON, PRIOR = 1.0, np.array([0.5, 0.14, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.02, 0.01])
#: The drawing of answers, in pixels: left end of the squares, their step and size.
LEFT, STEP, SIZE = 150.0, 36.0, 28.0


def text(x: float, y: float, words: str, *, size: int = 14, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place}{weight} fill="{LIGHT["ink"]}">{escape(words)}</text>'


def draw_rows(matrix: np.ndarray[Any, Any], top: float, colour: str, what: str) -> tuple[str, float]:
    """Return a line of squares for each answer: filled where the answer names the class, and how often it is given."""
    parts = []
    for answer in np.flatnonzero(matrix.max(axis=0) > 0):
        column = matrix[:, answer]
        named = column > column.min() if column.max() > column.min() else np.arange(len(column)) == answer
        parts.append(text(LEFT - 12, top + 19, what, anchor="end"))
        for label, inside in enumerate(named):
            fill = colour if inside else LIGHT["ground"]
            place = f'x="{LEFT + STEP * label:g}" y="{top:g}" width="{SIZE:g}" height="{SIZE:g}" rx="3"'
            parts.append(f'<rect {place} fill="{fill}" stroke="{LIGHT["soft"]}"/>')
        given = 100 * float(PRIOR @ column)
        parts.append(text(LEFT + STEP * len(named) + 8, top + 19, f"{given:.0f}% of rows"))
        top += SIZE + 8
    return "".join(parts), top


def draw_answers() -> str:
    """Return the picture of the answers that one row may give."""
    labels = RRWithPrior(EPSILON).channel(PRIOR).matrix()
    sets = InformativeResponse(EPSILON).channel(PRIOR[None]).matrix(0)
    parts, base = [text(LEFT - 12, 110, "what is believed", anchor="end")], 112.0
    for label, mass in enumerate(PRIOR):
        high, at = 150.0 * mass, LEFT + STEP * label
        parts.append(
            f'<rect x="{at:g}" y="{base - high:g}" width="{SIZE:g}" height="{high:g}" fill="{LIGHT["soft"]}"/>'
        )
        parts.append(text(at + SIZE / 2, base - high - 5, f"{100 * mass:.0f}%", size=12, anchor="middle"))
        parts.append(text(at + SIZE / 2, base + 17, "ABCDEFGHIJ"[label], bold=True, anchor="middle"))
    parts.append(text(20, 172, "--for labels: the label that is right most often", size=15, bold=True))
    drawn, top = draw_rows(labels, 184, SERIES_LIGHT[1], "the label is")
    parts += [drawn, text(20, top + 30, "--for training: the set that teaches most", size=15, bold=True)]
    drawn, bottom = draw_rows(sets, top + 42, SERIES_LIGHT[0], "it is among")
    parts.append(drawn)
    words = (
        f"Ten classes and a belief about them. With labels the row may answer with {int((labels.max(axis=0) > 0).sum())} of the "
        f"classes; with sets it answers with one of {int((sets.max(axis=0) > 0).sum())} sets, of about equal weight."
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {bottom + 8:g}" role="img" aria-label="{escape(words)}"'
    ground = f'<rect width="640" height="{bottom + 8:g}" fill="{LIGHT["ground"]}"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} font-family="sans-serif">{ground}{"".join(parts)}</svg>\n'


def draw_study(rows: list[dict[str, Any]], table: str, names: dict[str, str], *, y_title: str) -> str:
    """Return lines of the study: one for each setting, under the name that the page has for it."""
    series = []
    for setting, name in names.items():
        mine = [row for row in rows if row["table"].endswith(table) and row["setting"] == setting]
        series.append(Series(name=name, x=tuple(row["epsilon"] for row in mine), y=tuple(row["mean"] for row in mine)))
    ends = "; ".join(f"{line.name} from {line.y[0]:.0f} to {line.y[-1]:.0f}" for line in series)
    return plot_file(
        Lines(title=y_title, series=tuple(series), x_title="epsilon", y_title=y_title, alt=ends, x_log=True)
    )


def main() -> None:
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "answers.svg").write_text(draw_answers(), encoding="utf-8")
    mechanisms = {"sets": "sets by the prior", "sets, without the prior": "sets, no prior used"}
    mechanisms |= {"randomized response": "randomized response", "RRWithPrior": "RRWithPrior"}
    shares = draw_study(rows, "right 60% of the time", mechanisms, y_title="information, % of the best possible")
    (PICTURES / "information.svg").write_text(shares, encoding="utf-8")
    ways = {"randomized response": "randomized response", "RRWithPrior, two stages": "RRWithPrior, two stages"}
    ways |= {"sets": "sets, one draw", "sets, two stages": "sets, two stages"}
    loss = draw_study(rows, "thousandths of a nat", ways, y_title="excess loss, thousandths of a nat")
    (PICTURES / "excess-loss.svg").write_text(loss, encoding="utf-8")


if __name__ == "__main__":
    main()
