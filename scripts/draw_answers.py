"""Draw the pictures of docs/informative.md.

`answers.svg` shows the answers that one row may give, of labels and of sets, as the mechanisms choose them for its prior. The
other two are lines of the committed study `informative`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from drawing import GROUND, SOFT, picture, series, text

from labeldp.mechanisms import InformativeResponse, RRWithPrior
from labeldp.plots import Lines, Series, plot_file

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "studies" / "results" / "informative" / "result.json"
EPSILON, PRIOR = 1.0, np.array([0.5, 0.14, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.02, 0.01])
#: The drawing of answers, in pixels: left end of the squares, their step and size.
LEFT, STEP, SIZE = 150.0, 36.0, 28.0


def draw_rows(matrix: np.ndarray[Any, Any], top: float, colour: str, what: str) -> tuple[str, float]:
    """Return a line of squares for each answer: filled where the answer names the class, and how often it is given."""
    parts = []
    for answer in np.flatnonzero(matrix.max(axis=0) > 0):
        column = matrix[:, answer]
        named = column > column.min() if column.max() > column.min() else np.arange(len(column)) == answer
        parts.append(text(LEFT - 12, top + 19, what, anchor="end"))
        for label, inside in enumerate(named):
            fill = colour if inside else GROUND
            place = f'x="{LEFT + STEP * label:g}" y="{top:g}" width="{SIZE:g}" height="{SIZE:g}" rx="3"'
            parts.append(f'<rect {place} fill="{fill}" stroke="{SOFT}"/>')
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
        parts.append(f'<rect x="{at:g}" y="{base - high:g}" width="{SIZE:g}" height="{high:g}" fill="{SOFT}"/>')
        parts.append(text(at + SIZE / 2, base - high - 5, f"{100 * mass:.0f}%", size=12, anchor="middle"))
        parts.append(text(at + SIZE / 2, base + 17, "ABCDEFGHIJ"[label], bold=True, anchor="middle"))
    parts.append(text(20, 172, "--for labels: the label that is right most often", size=15, bold=True))
    drawn, top = draw_rows(labels, 184, series(1), "the label is")
    parts += [drawn, text(20, top + 30, "--for training: the set that teaches most", size=15, bold=True)]
    drawn, bottom = draw_rows(sets, top + 42, series(0), "it is among")
    parts.append(drawn)
    words = (
        f"Ten classes and a belief about them. With labels the row may answer with {int((labels.max(axis=0) > 0).sum())} of the "
        f"classes; with sets it answers with one of {int((sets.max(axis=0) > 0).sum())} sets, of about equal weight."
    )
    return picture(640, bottom + 8, parts, words=words)


def draw_study(rows: list[dict[str, Any]], table: str, names: dict[str, str], *, y_title: str) -> str:
    """Return lines of the study: one for each setting, under the name that the page has for it."""
    lines = []
    for setting, name in names.items():
        mine = [row for row in rows if row["table"].endswith(table) and row["setting"] == setting]
        lines.append(Series(name=name, x=tuple(row["epsilon"] for row in mine), y=tuple(row["mean"] for row in mine)))
    ends = "; ".join(f"{line.name} from {line.y[0]:.0f} to {line.y[-1]:.0f}" for line in lines)
    return plot_file(
        Lines(title=y_title, series=tuple(lines), x_title="epsilon", y_title=y_title, alt=ends, x_log=True), dark=True
    )


MECHANISMS = {
    "sets": "sets by the prior",
    "sets, without the prior": "sets, no prior used",
    "randomized response": "randomized response",
    "RRWithPrior": "RRWithPrior",
}
WAYS = {
    "randomized response": "randomized response",
    "RRWithPrior, two stages": "RRWithPrior, two stages",
    "sets": "sets, one draw",
    "sets, two stages": "sets, two stages",
}


def read_rows() -> list[dict[str, Any]]:
    """The rows of the study."""
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    return rows


DRAWINGS: dict[str, Callable[[], str]] = {
    "answers": draw_answers,
    "information": lambda: draw_study(
        read_rows(), "right 60% of the time", MECHANISMS, y_title="information, % of the best possible"
    ),
    "excess-loss": lambda: draw_study(
        read_rows(), "thousandths of a nat", WAYS, y_title="excess loss, thousandths of a nat"
    ),
}
