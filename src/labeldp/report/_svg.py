"""Plots as plain SVG: they print, need no script, and each point tells its value to a pointer that rests on it.

>>> from labeldp.report._values import Bars
>>> svg(Bars(title="t", labels=("a",), values=(1.0,), x_title="x", alt="a 1"))[:19]
'<svg class="static"'

Design notes. Colours are the page's CSS variables --series-0 .. --series-7, so that light, dark and print share one
drawing. Lines differ in dash as well as in colour, for readers who do not tell colours apart. A file of its own gets the
light palette (`standalone`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from labeldp.report._style import LIGHT, SERIES_LIGHT
from labeldp.report._values import Bars, Lines, Plot, Series

WIDTH, HEIGHT = 680.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 16.0, 16.0, 52.0
LABELS, BAR = 210.0, 30.0
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2")
#: Width of a letter at 13 pixels, on the safe side of common fonts.
LETTER = 7.4


class _Axis(NamedTuple):
    """From data to the picture: `low` lies at `start`, `high` at `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.stop - self.start) * ((at - low) / (high - low) if high > low else 0.5)


def svg(plot: Plot) -> str:
    """Return the drawing of a plot as an element of a page."""
    return _bars(plot) if isinstance(plot, Bars) else _lines(plot)


def standalone(plot: Plot) -> str:
    """Return the drawing as a file of its own: light palette, white ground."""
    colours = "".join(f"--series-{i}:{colour};" for i, colour in enumerate(SERIES_LIGHT))
    names = "".join(f"--{name}:{colour};" for name, colour in LIGHT.items())
    style = f"<style>svg{{{names}{colours}background:#fff;font-family:sans-serif}}</style>"
    head, body = svg(plot).split(">", 1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg">{style}{body}\n'


def nice_ticks(low: float, high: float, *, count: int = 5) -> tuple[float, ...]:
    """Return round numbers that cover [low, high].

    >>> nice_ticks(0.0, 97.0)
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """
    if not high > low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if size * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(step * i, 12) for i in range(first, last + 1))


def _open(plot: Plot, height: float) -> str:
    words = escape(f"{plot.title}. {plot.alt}", quote=True)
    return f'<svg class="static" viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{words}">'


def _text(x: float, y: float, words: str, *, anchor: str = "middle", extra: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="13" fill="var(--ink)"{extra}>'
        f"{escape(words)}</text>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float, *, stroke: str = "var(--rule)", extra: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{extra}/>'


def _spread(values: Sequence[float], spreads: Sequence[float], sign: int) -> list[float]:
    return [v + sign * s for v, s in zip(values, spreads or [0.0] * len(values), strict=True)]


def _lines(plot: Lines) -> str:
    names = [series.name for series in plot.series] + [name for name, _ in plot.references]
    legend_rows = math.ceil(len(names) / _legend_columns(names))
    height = HEIGHT + 20.0 * legend_rows
    heights = [v for s in plot.series for sign in (-1, 1) for v in _spread(s.y, s.spreads, sign)]
    heights += [value for _, value in plot.references]
    ticks = nice_ticks(min(heights), max(heights))
    places = sorted({value for series in plot.series for value in series.x})
    x = _Axis(places[0], places[-1], LEFT + 12, WIDTH - RIGHT - 12, plot.x_log)
    y = _Axis(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_open(plot, height), _grid(plot, x, y, ticks, places)]
    parts += [
        _reference(name, y(value), value, len(plot.series) + i) for i, (name, value) in enumerate(plot.references)
    ]
    parts += [_line(series, x, y, i) for i, series in enumerate(plot.series)]
    parts.append(_legend(names, HEIGHT + 6))
    return "".join(parts) + "</svg>"


def _grid(plot: Lines, x: _Axis, y: _Axis, ticks: Sequence[float], places: Sequence[float]) -> str:
    parts = [_rule(LEFT, y(tick), WIDTH - RIGHT, y(tick)) for tick in ticks]
    parts += [_text(LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end") for tick in ticks]
    shown = places if plot.x_log else [t for t in nice_ticks(places[0], places[-1]) if places[0] <= t <= places[-1]]
    parts += [_text(x(place), HEIGHT - BOTTOM + 20, f"{place:g}") for place in shown]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, plot.x_title))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(_text(16, middle, plot.y_title, extra=f' transform="rotate(-90 16 {middle:g})"'))
    return "".join(parts)


def _line(series: Series, x: _Axis, y: _Axis, number: int) -> str:
    colour, dash = f"var(--series-{number % 8})", DASHES[number % len(DASHES)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(series.x, series.y, strict=True))
    parts = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>']
    lows, highs = _spread(series.y, series.spreads, -1), _spread(series.y, series.spreads, 1)
    for a, b, low, high in zip(series.x, series.y, lows, highs, strict=True):
        if high > low:
            parts.append(_rule(x(a), y(low), x(a), y(high), stroke=colour))
        tip = escape(f"{series.name}: {b:.4g} at {a:g}")
        parts.append(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{colour}"><title>{tip}</title></circle>')
    return "".join(parts)


def _reference(name: str, height: float, value: float, number: int) -> str:
    extra = f' stroke-width="1.5" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
    drawn = _rule(LEFT, height, WIDTH - RIGHT, height, stroke=f"var(--series-{number % 8})", extra=extra)
    return f"<g><title>{escape(f'{name}: {value:.4g}')}</title>{drawn}</g>"


def _legend(names: Sequence[str], top: float) -> str:
    columns = _legend_columns(names)
    parts, width = [], (WIDTH - LEFT) / columns
    for number, name in enumerate(names):
        x, y = LEFT + (number % columns) * width, top + 20.0 * (number // columns)
        dash = f' stroke-width="2.5" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
        parts.append(_rule(x, y, x + 24, y, stroke=f"var(--series-{number % 8})", extra=dash))
        parts.append(_text(x + 30, y + 4, name, anchor="start"))
    return "".join(parts)


def _legend_columns(names: Sequence[str]) -> int:
    """As many columns, up to three, as the longest name leaves room for."""
    longest = max(len(name) for name in names)
    return max(1, min(3, int((WIDTH - LEFT) / (38 + LETTER * longest))))


def _bars(plot: Bars) -> str:
    ticks = nice_ticks(0.0, max([*_spread(plot.values, plot.spreads, 1), 0.0]))
    bottom = TOP + BAR * len(plot.labels)
    height = bottom + BOTTOM
    x = _Axis(0.0, ticks[-1], LABELS, WIDTH - 52)
    parts = [_open(plot, height)]
    parts += [_rule(x(t), TOP, x(t), bottom) + _text(x(t), bottom + 18, f"{t:g}") for t in ticks if t >= 0]
    spreads = plot.spreads or (0.0,) * len(plot.values)
    for i, (label, value, spread) in enumerate(zip(plot.labels, plot.values, spreads, strict=True)):
        parts.append(_bar(label, value, spread, x, TOP + BAR * i))
    parts.append(_text((LABELS + WIDTH - 52) / 2, height - 8, plot.x_title))
    return "".join(parts) + "</svg>"


def _bar(label: str, value: float, spread: float, x: _Axis, top: float) -> str:
    tip = escape(f"{label}: {value:.4g}" + (f" (sd {spread:.2g})" if spread else ""))
    middle = top + BAR / 2
    box = f'<rect x="{x(0.0):.1f}" y="{top + 4:.1f}" width="{max(x(value) - x(0.0), 0):.1f}" height="{BAR - 8:g}"'
    parts = [f'{box} fill="var(--series-0)"><title>{tip}</title></rect>']
    if spread:
        extra = ' stroke-width="2"'
        parts.append(_rule(x(value - spread), middle, x(value + spread), middle, stroke="var(--ink)", extra=extra))
    parts.append(_text(LABELS - 8, middle + 4, label, anchor="end"))
    parts.append(_text(x(value + spread) + 6, middle + 4, f"{value:.1f}", anchor="start"))
    return "".join(parts)
