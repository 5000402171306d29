"""Plots as plain SVG: they print, need no script, open offline for ever, and show a point's value under the pointer.

>>> plot = Bars(title="Accuracy", labels=("plain",), values=(79.0,), x_title="%", alt="plain 79")
>>> svg(plot)[:19], "<title>plain: 79</title>" in svg(plot)
('<svg class="static"', True)

A plot is a plain value: `Lines` (series over x, with horizontal reference lines) or `Bars` (one horizontal bar per label).
`svg` draws it as an element of a page, `plot_file` as a file of its own. Each mark carries a `<title>`, which a browser
shows when the pointer rests on it; the page adds a table of all numbers for readers who have no pointer.

Colours are the CSS variables --series-0 .. --series-7, so that light, dark and print share one drawing; a file of its own
brings the light palette with it, and the dark one if asked. Lines differ in dash as well as in colour, for readers who do not tell colours apart.

>>> min(contrast(colour, LIGHT["ground"]) for colour in SERIES_LIGHT) > 4.5
True

Design notes. Text has a contrast of at least 7 to its ground and lines of at least 4.5 (WCAG 2.2 asks for 4.5 and 3);
`contrast` computes it and a test holds it. SVG does not break lines, so names are wrapped here by the number of their
letters. Coordinates are pixels of a drawing 680 wide, which scales with the page.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from labeldp.errors import Described, invalid

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#4a525c",
    "rule": "#d5dae0",
    "panel": "#f4f6f8",
    "link": "#0a4b94",
}
DARK = {
    "ground": "#14181d",
    "ink": "#e9edf1",
    "soft": "#b4bdc7",
    "rule": "#3a424c",
    "panel": "#1d232a",
    "link": "#8cc4ff",
}
SERIES_LIGHT = ("#0b5cad", "#a8430a", "#146c43", "#7b2a94", "#55606c", "#9b1550", "#6b5a00", "#00696e")
SERIES_DARK = ("#6db3f2", "#f0a060", "#5fd39a", "#d79be8", "#b4bdc7", "#f58ab0", "#d8c34a", "#5ccfd4")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2")

WIDTH, HEIGHT = 680.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 16.0, 16.0, 52.0
#: Room for the labels of bars, and for the values behind them.
LABELS, VALUES = 210.0, 52.0
#: Height of a bar with its gap, and of each further line of its label or of a title.
BAR, LINE = 30.0, 16.0
#: Width of a letter at 13 pixels, on the safe side of common fonts.
LETTER = 7.4
#: Lines of a bar's label; the rest of a longer one is left out, and its `<title>` has it whole.
MOST_LINES = 3


# ------------------------------------------------------------------------------------------------------- the values


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a plot.

    Parameters
    ----------
    name : str
        What the legend calls it.
    x, y : tuple of float
        The points, in order of x.
    spreads : tuple of float, optional
        Drawn as bars around the points, from y - spread to y + spread. Empty: none are drawn.
    points : bool
        Whether each point has a dot; steps of a curve do not.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spreads: tuple[float, ...] = ()
    points: bool = True

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.spreads and len(self.spreads) != len(self.x)):
            got = Described(f"{len(self.x)} x, {len(self.y)} y and {len(self.spreads)} spreads")
            raise invalid(f"Series {self.name}", "x", "have as many values as y (and spreads)", got=got)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over x, which is on a logarithmic scale if `x_log`.

    `references` are horizontal lines with a name (no privacy, chance). `alt` says in words what the drawing shows, for
    readers who do not see it.
    """

    title: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    alt: str
    x_log: bool = False
    references: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Horizontal bars from zero, one per label; `spreads`, if any, are drawn around their ends."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
    x_title: str
    alt: str
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.values) or (self.spreads and len(self.spreads) != len(self.values)):
            got = Described(f"{len(self.labels)} labels, {len(self.values)} values and {len(self.spreads)} spreads")
            raise invalid("Bars", "values", "have one value per label", got=got)


Plot = Lines | Bars


# ------------------------------------------------------------------------------------------------------ the drawing


def svg(plot: Plot) -> str:
    """Return the drawing of a plot as an `<svg>` element for a page.

    The page's style sheet must define the colour variables (`css_variables`). The element is 680 units wide, as high as
    its legend or its bars need, and carries `title` and `alt` as its label for screen readers.
    """
    return _draw_bars(plot) if isinstance(plot, Bars) else _draw_lines(plot)


def plot_file(plot: Plot, *more: Plot, dark: bool = False) -> str:
    """Return the drawing as the text of an SVG file: light palette, white ground, nothing outside it needed.

    Several plots are drawn one below the other, each under its title. With `dark` the file has the dark palette and ground as
    well, for readers whose screen is dark.

    >>> plot = Bars(title="Accuracy", labels=("plain",), values=(79.0,), x_title="%", alt="plain 79")
    >>> DARK["ground"] in plot_file(plot), DARK["ground"] in plot_file(plot, dark=True)
    (False, True)
    """
    style = file_style(dark=dark)
    if more:
        return _stack_drawings((plot, *more), style)
    head, body = svg(plot).split(">", 1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg">{style}{body}\n'


def _stack_drawings(plots: Sequence[Plot], style: str) -> str:
    """Return one SVG file with a drawing for each plot, in a column."""
    parts, top = [], 0.0
    for plot in plots:
        drawing = svg(plot)
        height = float(drawing.split('viewBox="', 1)[1].split('"', 1)[0].split()[-1])
        parts.append(_text(WIDTH / 2, top + 18, plot.title))
        parts.append(f'<svg y="{top + 26:g}" width="{WIDTH:g}" height="{height:g}"{drawing[4:]}')
        top += height + 38
    words = _escape(". ".join(plot.title for plot in plots))
    head = f'<svg class="static" viewBox="0 0 {WIDTH:g} {top:g}" role="img" aria-label="{words}"'
    joined = "".join(parts)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg">{style}{joined}</svg>\n'


def _draw_lines(plot: Lines) -> str:
    names = [series.name for series in plot.series] + [name for name, _ in plot.references]
    columns = _legend_columns(names)
    height = HEIGHT + 20.0 * math.ceil(len(names) / columns)
    heights = [v for s in plot.series for sign in (-1, 1) for v in _ends(s.y, s.spreads, sign)]
    ticks = nice_ticks(
        min([*heights, *(v for _, v in plot.references)]), max([*heights, *(v for _, v in plot.references)])
    )
    places = sorted({value for series in plot.series for value in series.x})
    x = _Axis(places[0], places[-1], LEFT + 12, WIDTH - RIGHT - 12, plot.x_log)
    y = _Axis(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_open_drawing(plot, height), _draw_grid(plot, x, y, ticks, places)]
    for number, (name, value) in enumerate(plot.references, start=len(plot.series)):
        parts.append(_draw_reference(name, value, y, number))
    parts += [_draw_series(series, x, y, number) for number, series in enumerate(plot.series)]
    parts.append(_draw_legend(names, columns, HEIGHT + 6))
    return "".join(parts) + "</svg>"


def _draw_grid(plot: Lines, x: _Axis, y: _Axis, ticks: Sequence[float], places: Sequence[float]) -> str:
    """Draw the horizontal rules, the numbers on both axes and the titles of the axes."""
    parts = [_rule(LEFT, y(tick), WIDTH - RIGHT, y(tick)) for tick in ticks]
    parts += [_text(LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end") for tick in ticks]
    round_places = [t for t in nice_ticks(places[0], places[-1]) if places[0] <= t <= places[-1]]
    numbers = _drop_crowded(places if plot.x_log else round_places, x)
    parts += [_text(x(place), HEIGHT - BOTTOM + 20, f"{place:g}") for place in numbers]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, _wrap(plot.x_title, WIDTH - LEFT, most=1)[0]))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    y_title = _wrap(plot.y_title, HEIGHT - BOTTOM, most=1)[0]
    parts.append(_text(16, middle, y_title, extra=f' transform="rotate(-90 16 {middle:g})"'))
    return "".join(parts)


def _drop_crowded(places: Sequence[float], x: _Axis) -> list[float]:
    """Return the places whose numbers, written in a row, do not touch; the last one is always among them."""
    kept: list[float] = []
    for place in reversed(places):
        letters = 0.5 * (len(f"{place:g}") + len(f"{kept[-1]:g}")) + 1.0 if kept else 0.0
        if not kept or x(kept[-1]) - x(place) >= letters * LETTER:
            kept.append(place)
    return kept[::-1]


def _draw_series(series: Series, x: _Axis, y: _Axis, number: int) -> str:
    colour, dash = f"var(--series-{number % 8})", DASHES[number % len(DASHES)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(series.x, series.y, strict=True))
    parts = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>']
    if not series.points:
        return parts[0]
    lows, highs = _ends(series.y, series.spreads, -1), _ends(series.y, series.spreads, 1)
    for a, b, low, high in zip(series.x, series.y, lows, highs, strict=True):
        if high > low:
            parts.append(_rule(x(a), y(low), x(a), y(high), stroke=colour))
        tip = _escape(f"{series.name}: {b:.4g} at {a:g}")
        # The transparent rim answers to a pointer that is near the point.
        circle = (
            f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{colour}" stroke="transparent" stroke-width="10">'
        )
        parts.append(f"{circle}<title>{tip}</title></circle>")
    return "".join(parts)


def _draw_reference(name: str, value: float, y: _Axis, number: int) -> str:
    extra = f' stroke-width="1.5" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
    line = _rule(LEFT, y(value), WIDTH - RIGHT, y(value), stroke=f"var(--series-{number % 8})", extra=extra)
    return f"<g><title>{_escape(f'{name}: {value:.4g}')}</title>{line}</g>"


def _draw_legend(names: Sequence[str], columns: int, top: float) -> str:
    parts, width = [], (WIDTH - LEFT) / columns
    for number, name in enumerate(names):
        x, y = LEFT + (number % columns) * width, top + 20.0 * (number // columns)
        dash = f' stroke-width="2.5" stroke-dasharray="{DASHES[number % len(DASHES)]}"'
        parts.append(_rule(x, y, x + 24, y, stroke=f"var(--series-{number % 8})", extra=dash))
        parts.append(_text(x + 30, y + 4, _wrap(name, WIDTH - LEFT - 38, most=1)[0], anchor="start"))
    return "".join(parts)


def _legend_columns(names: Sequence[str]) -> int:
    """Return as many columns, up to three, as the longest name leaves room for."""
    longest = max(len(name) for name in names)
    return max(1, min(3, int((WIDTH - LEFT) / (38 + LETTER * longest))))


def _draw_bars(plot: Bars) -> str:
    spreads = plot.spreads or (0.0,) * len(plot.values)
    ticks = nice_ticks(0.0, max([*_ends(plot.values, spreads, 1), 0.0]))
    x = _Axis(0.0, ticks[-1], LABELS, WIDTH - VALUES)
    labels = [_wrap(label, LABELS - 16, most=MOST_LINES) for label in plot.labels]
    tops = [TOP]
    for lines in labels:
        tops.append(tops[-1] + BAR + LINE * (len(lines) - 1))
    title = _wrap(plot.x_title, WIDTH - LABELS)
    height = tops[-1] + BOTTOM + LINE * (len(title) - 1)
    parts = [_open_drawing(plot, height)]
    parts += [_rule(x(t), TOP, x(t), tops[-1]) + _text(x(t), tops[-1] + 18, f"{t:g}") for t in ticks if t >= 0]
    for i, (label, value, spread) in enumerate(zip(plot.labels, plot.values, spreads, strict=True)):
        tip = f"{label}: {value:.4g}" + (f" (sd {spread:.2g})" if spread else "")
        parts.append(_draw_bar(labels[i], value, spread, x, middle=(tops[i] + tops[i + 1]) / 2, tip=tip))
    below = tops[-1] + BOTTOM - 8
    parts.append(_lines_of_text((LABELS + WIDTH - VALUES) / 2, below, title))
    return "".join(parts) + "</svg>"


def _draw_bar(label: Sequence[str], value: float, spread: float, x: _Axis, *, middle: float, tip: str) -> str:
    thickness = BAR - 8
    box = f'<rect x="{x(0.0):.1f}" y="{middle - thickness / 2:.1f}" width="{max(x(value) - x(0.0), 0):.1f}"'
    parts = [f'{box} height="{thickness:g}" fill="var(--series-0)"><title>{_escape(tip)}</title></rect>']
    if spread:
        extra = ' stroke-width="2"'
        parts.append(_rule(x(value - spread), middle, x(value + spread), middle, stroke="var(--ink)", extra=extra))
    words = _lines_of_text(LABELS - 8, middle + 4 - LINE * (len(label) - 1) / 2, label, anchor="end")
    parts.append(f"<g><title>{_escape(tip)}</title>{words}</g>")
    parts.append(_text(x(value + spread) + 6, middle + 4, f"{value:.1f}", anchor="start"))
    return "".join(parts)


class _Axis(NamedTuple):
    """A map from data to pixels: `low` lies at `start`, `high` at `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.stop - self.start) * ((at - low) / (high - low) if high > low else 0.5)


def nice_ticks(low: float, high: float, *, count: int = 5) -> tuple[float, ...]:
    """Return about `count` round numbers, equally far apart, that cover [low, high].

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


def _ends(values: Sequence[float], spreads: Sequence[float], sign: int) -> list[float]:
    """Return value + sign * spread of each; without spreads the values themselves."""
    return [v + sign * s for v, s in zip(values, spreads or [0.0] * len(values), strict=True)]


def _wrap(words: str, width: float, *, most: int | None = None) -> list[str]:
    """Return a text as lines that fit a width in pixels, at most so many."""
    lines = textwrap.wrap(words, max(1, int(width / LETTER)), max_lines=most, placeholder=" ...")
    return lines or [""]


def _open_drawing(plot: Plot, height: float) -> str:
    words = _escape(f"{plot.title}. {plot.alt}")
    return f'<svg class="static" viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{words}">'


def _lines_of_text(x: float, y: float, lines: Sequence[str], *, anchor: str = "middle") -> str:
    return "".join(_text(x, y + LINE * i, line, anchor=anchor) for i, line in enumerate(lines))


def _text(x: float, y: float, words: str, *, anchor: str = "middle", extra: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="13" fill="var(--ink)"{extra}>'
        f"{_escape(words)}</text>"
    )


def _escape(words: str) -> str:
    """Return text for an SVG; what XML 1.0 has no place for (control characters, halves of characters) becomes a mark of its own."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", words))


#: All but the characters that XML 1.0 allows (its section 2.2).
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _rule(x1: float, y1: float, x2: float, y2: float, *, stroke: str = "var(--rule)", extra: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{extra}/>'


# ------------------------------------------------------------------------------------------------------- the colours


def css_variables(palette: dict[str, str], series: tuple[str, ...]) -> str:
    """Return the colours of a palette and of its series as declarations of CSS variables."""
    pairs = [*palette.items(), *((f"series-{i}", colour) for i, colour in enumerate(series))]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)


def file_style(*, dark: bool = False) -> str:
    """Return the `<style>` of an SVG file of its own: the light palette, and the dark one for dark screens if asked."""
    rules = f"svg{{{css_variables(LIGHT, SERIES_LIGHT)}background:var(--ground);font-family:sans-serif}}"
    if dark:
        rules += f"@media (prefers-color-scheme:dark){{svg{{{css_variables(DARK, SERIES_DARK)}}}}}"
    return f"<style>{rules}</style>"


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, written #rrggbb (WCAG 2.2): from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance: the sRGB transfer curve undone, then the weights of the three primaries."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
