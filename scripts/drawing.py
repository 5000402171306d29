"""The few shapes of which the drawings of docs/pictures are made: SVG text with the colours of labeldp.plots, light and dark.

A drawing is a list of strings, each an element, and `picture` is the file. Sizes are pixels of the drawing, which scales with
the page. Every colour is a variable, so that one file serves light and dark screens.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from labeldp.plots import file_style

INK, SOFT, RULE, PANEL, GROUND = (f"var(--{name})" for name in ("ink", "soft", "rule", "panel", "ground"))


def series(number: int) -> str:
    """The colour of the series of this number."""
    return f"var(--series-{number % 8})"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 14,
    bold: bool = False,
    anchor: str = "start",
    colour: str = INK,
    mono: bool = False,
) -> str:
    """A line of text whose base line is at y."""
    style = (' font-weight="bold"' if bold else "") + (' font-family="monospace"' if mono else "")
    place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text {place}{style} fill="{colour}">{escape(words)}</text>'


def paragraph(x: float, y: float, words: str, *, letters: int, size: float = 13, anchor: str = "start") -> str:
    """Text that is broken into lines of so many letters."""
    lines = textwrap.wrap(words, letters)
    return "".join(text(x, y + 1.3 * size * i, line, size=size, anchor=anchor) for i, line in enumerate(lines))


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = PANEL,
    stroke: str = SOFT,
    strength: float = 1.0,
    round_by: float = 6,
    dashed: bool = False,
) -> str:
    """A rectangle, filled by a share `strength` of its colour."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}"'
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<rect {place} fill="{fill}" fill-opacity="{strength:.3g}" stroke="{stroke}"{dash}/>'


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = SOFT, width: float = 1.5, dash: str = "") -> str:
    """A straight line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}" stroke-width="{width:g}"{dashes}/>'


def sticks(tall: Sequence[tuple[float, float]], bottom: float, *, stroke: str) -> str:
    """Upright lines from `bottom`, each given by its place and its height: one element, however many they are."""
    path = "".join(f"M{x:.1f} {bottom:g}v{-height:.1f}" for x, height in tall if height >= 0.05)
    return f'<path d="{path}" stroke="{stroke}" stroke-width="3" fill="none"/>'


def arrow(x1: float, y1: float, x2: float, y2: float, *, stroke: str = SOFT) -> str:
    """A straight line with a head at its second end."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
    left, right = ((x2 - 9 * along[0] + s * 5 * across[0], y2 - 9 * along[1] + s * 5 * across[1]) for s in (1, -1))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in (left, (x2, y2), right))
    end = x2 - 6 * along[0], y2 - 6 * along[1]
    return line(x1, y1, *end, stroke=stroke, width=2) + f'<polygon points="{points}" fill="{stroke}"/>'


def picture(width: float, height: float, parts: Sequence[str], *, words: str) -> str:
    """Return the text of an SVG file; `words` say what it shows, for readers who do not see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(words)}">'
    ground = f'<rect width="{width:g}" height="{height:g}" fill="{GROUND}"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{file_style(dark=True)}{ground}{"".join(parts)}</svg>\n'
