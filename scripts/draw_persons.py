"""Draw the pictures of docs/persons.md.

`persons.svg` shows who answers what: three persons with rows of their own, and the epsilon that each way spends on each row, as
`plan_answers` plans it. `person-information.svg` is what a person's answers tell, against the number of her rows, computed exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from drawing import GROUND, SOFT, picture, series, text

from labeldp.mechanisms import InformativeResponse, most_information
from labeldp.plots import Lines, Series, plot_file
from labeldp.release.persons import Persons, information_of, plan_answers

EPSILON, MECHANISM = 1.0, InformativeResponse(1.0, n_classes=2)
OWNERS = ["Ann"] * 3 + ["Bob"] + ["Cyd"] * 4
WAYS = {
    "one": "one: a row of each person, chosen without labels",
    "shares": "shares: every row, a share of her epsilon each",
    "group": "group: every row, as whoever has most rows can afford",
}
#: In pixels: the left end of the squares, their step and size.
LEFT, STEP, SIZE = 40.0, 68.0, 58.0


def draw_rows(top: float, epsilons: dict[int, float], colour: str, title: str) -> str:
    """Return a line of squares, one for each row: filled with its epsilon where it is answered, empty where it is not."""
    parts = [text(LEFT, top, title, size=15, bold=True)]
    worst = max(sum(e for row, e in epsilons.items() if OWNERS[row] == name) for name in set(OWNERS))
    for row, name in enumerate(OWNERS):
        x = LEFT + STEP * row + (14.0 * sorted(set(OWNERS)).index(name))
        fill = colour if row in epsilons else GROUND
        place = f'x="{x:g}" y="{top + 10:g}" width="{SIZE:g}" height="30" rx="3"'
        parts.append(f'<rect {place} fill="{fill}" fill-opacity="0.5" stroke="{SOFT}"/>')
        if row in epsilons:
            parts.append(text(x + SIZE / 2, top + 30, f"{epsilons[row]:.2g}", anchor="middle"))
    parts.append(text(LEFT + STEP * len(OWNERS) + 40, top + 30, f"a person: {worst:.3g}"))
    return "".join(parts)


def draw_persons() -> str:
    """Return the picture of who answers what."""
    persons = Persons.of(OWNERS)
    parts = []
    for name in sorted(set(OWNERS)):
        rows = [row for row, owner in enumerate(OWNERS) if owner == name]
        middle = LEFT + STEP * float(np.mean(rows)) + 14.0 * sorted(set(OWNERS)).index(name) + SIZE / 2
        parts.append(text(middle, 22, f"{name}: {len(rows)} row" + ("s" if len(rows) > 1 else ""), anchor="middle"))
    top = 52.0
    every = dict.fromkeys(range(len(OWNERS)), EPSILON)
    parts.append(draw_rows(top, every, series(3), "the label as unit: every row at epsilon 1"))
    for place, (way, title) in enumerate(WAYS.items()):
        top += 68.0
        plan = plan_answers(persons, MECHANISM, way=way)
        told = {int(row): plan.epsilons[int(share)] for row, share in zip(plan.rows, plan.share, strict=True)}
        parts.append(draw_rows(top, told, series(place), title))
    height, width = top + 56.0, LEFT + STEP * len(OWNERS) + 160
    words = "Eight rows of three persons. With the label as unit a person spends four times epsilon; in each other way, one."
    return picture(width, height, parts, words=words)


def draw_information() -> str:
    """Return what a person's answers tell in all, against how many rows she has, where somebody has 40."""
    rows, most = np.array([1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40]), 40
    information = information_of(MECHANISM)
    lines = {
        "the most that is possible": [most_information(EPSILON)] * len(rows),
        "one answer": [information(EPSILON)] * len(rows),
        "equal shares": [int(m) * information(EPSILON / int(m)) for m in rows],
        "group privacy, 40 rows": [int(m) * information(EPSILON / most) for m in rows],
    }
    curves = tuple(Series(name=name, x=tuple(rows.tolist()), y=tuple(values)) for name, values in lines.items())
    title = "information of a person's answers, nats"
    alt = "; ".join(f"{name} from {values[0]:.4f} to {values[-1]:.4f}" for name, values in lines.items())
    return plot_file(
        Lines(title=title, series=curves, x_title="rows of the person", y_title="nats", alt=alt, x_log=True), dark=True
    )


DRAWINGS: dict[str, Callable[[], str]] = {"persons": draw_persons, "person-information": draw_information}
