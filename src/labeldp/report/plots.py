"""Plots as plain SVG: they print, need no script, and each point tells its value to a pointer that rests on it.

>>> from labeldp.report.plots import Bars
>>> svg(Bars(title="t", labels=("a",), values=(1.0,), x_title="x", alt="a 1"))[:19]
'<svg class="static"'

Design notes. Colours are the page's CSS variables --series-0 .. --series-7, so that light, dark and print share one
drawing. Lines differ in dash as well as in colour, for readers who do not tell colours apart. A file of its own gets the
light palette (`standalone`).

Plots that answer to the pointer: Plotly, embedded once, compressed, and drawn over the static ones.

>>> from labeldp.report.plots import Bars
>>> figure(Bars(title="t", labels=("a",), values=(1.0,), x_title="x", alt="a 1"))["data"][0]["type"]
'bar'

Design notes. plotly.min.js has 4.8 MB; gzip and base64 make that 2. The browser's own DecompressionStream unpacks it, from
file:// too. Where it is missing, where scripts are off, or if anything fails, the static drawing stays: it holds the same
numbers. Colours are read off the page's style, so that a change between light and dark redraws.

What a report is made of: sections of text, tables, facts and plots, all plain values.

>>> Table(caption="Two numbers", columns=("setting", "accuracy"), rows=(("plain", "79.0"),)).columns
('setting', 'accuracy')
>>> Section(title="Result", blocks=("One sentence.",)).anchor
'result'

The look of a page: one style sheet for light, dark, print and a screen of 360 pixels.

>>> min(contrast(colour, LIGHT["ground"]) for colour in SERIES_LIGHT) > 4.5
True

Design notes. Text has a contrast of at least 7 to its ground, lines of plots at least 4.5 (WCAG 2.2 asks for 4.5 and 3);
`contrast` computes it and a test holds it. Tables and drawings scroll inside their own box, never the page.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from labeldp.errors import Described, invalid, missing_extra

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
    return _svg_bars(plot) if isinstance(plot, Bars) else _svg_lines(plot)


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


def _svg_lines(plot: Lines) -> str:
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


def _svg_bars(plot: Bars) -> str:
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


SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
LABEL_WIDTH = 15


@lru_cache(maxsize=1)
def packed_library() -> str:
    """Return plotly.min.js as gzip in base64; the same bytes every time, for pages that can be compared."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("plotly", "all", "A report with interactive plots")
    source = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return base64.b64encode(gzip.compress(source.read_bytes(), compresslevel=9, mtime=0)).decode("ascii")


def figure(plot: Plot) -> dict[str, Any]:
    """Return a plot as the JSON that Plotly draws; colours are left to the page, by position."""
    return _bars(plot) if isinstance(plot, Bars) else _lines(plot)


def _lines(plot: Lines) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for number, series in enumerate(plot.series):
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": series.name,
            "x": series.x,
            "y": series.y,
        }
        trace["line"] = {"dash": _dash(number), "width": 2}
        trace["marker"] = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 8}
        if series.spreads:
            trace["error_y"] = {"type": "data", "array": series.spreads, "thickness": 1.5}
        traces.append(trace)
    places = sorted({value for series in plot.series for value in series.x})
    for number, (name, value) in enumerate(plot.references, start=len(plot.series)):
        line = {"dash": _dash(number), "width": 1.5}
        ends = (places[0], places[-1])
        traces.append({"type": "scatter", "mode": "lines", "name": name, "x": ends, "y": (value, value), "line": line})
    axis: dict[str, Any] = {"title": {"text": plot.x_title}}
    if plot.x_log:
        axis |= {"type": "log", "tickvals": places, "ticktext": [f"{place:g}" for place in places]}
        axis |= {
            "range": [math.log10(places[0]) - 0.05, math.log10(places[-1]) + 0.05],
            "minor": {"ticks": ""},
            "tickangle": 0,
        }
    layout = {"xaxis": axis, "yaxis": {"title": {"text": plot.y_title}}, "legend": {"orientation": "h", "y": -0.22}}
    return {"data": traces, "layout": {**layout, "height": 460}}


def _dash(number: int) -> str:
    return ",".join(f"{length}px" for length in DASHES[number % len(DASHES)].split()) or "solid"


def _bars(plot: Bars) -> dict[str, Any]:
    labels = ["<br>".join(textwrap.wrap(label, LABEL_WIDTH)) for label in plot.labels]
    trace: dict[str, Any] = {"type": "bar", "orientation": "h", "x": plot.values, "y": labels, "name": plot.title}
    trace |= {"hovertemplate": "%{y}: %{x:.2f}<extra></extra>", "text": [f"{value:.1f}" for value in plot.values]}
    trace |= {"textposition": "inside", "insidetextanchor": "start"}
    if plot.spreads:
        trace["error_x"] = {"type": "data", "array": plot.spreads, "thickness": 2}
    layout = {
        "xaxis": {"title": {"text": "<br>".join(textwrap.wrap(plot.x_title, 42))}, "rangemode": "tozero"},
        # Classes may be numbers: without a type the plot would put ticks between them.
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True},
        "showlegend": False,
        "height": 120 + 52 * len(labels),
    }
    return {"data": [trace], "layout": layout}


def figures_json(plots: list[Plot]) -> str:
    """Return all figures as JSON that cannot end the script element it stands in."""
    return json.dumps([figure(plot) for plot in plots], allow_nan=False).replace("</", "<\\/")


SCRIPT = """
(async () => {
  const places = [...document.querySelectorAll('.live')];
  if (!places.length || typeof DecompressionStream === 'undefined') return;
  const packed = Uint8Array.from(atob(document.getElementById('library').textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const script = document.createElement('script');
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  const figures = JSON.parse(document.getElementById('figures').textContent);
  const style = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const axis = {gridcolor: style('rule'), zerolinecolor: style('rule'), linecolor: style('rule'), automargin: true};
  const paint = figure => {
    const data = figure.data.map((trace, i) => {
      const colour = style('series-' + i % 8);
      const marker = {...trace.marker, color: colour};
      return {...trace, marker, ...(trace.line ? {line: {...trace.line, color: colour}} : {}),
        ...(trace.error_x ? {error_x: {...trace.error_x, color: style('ink')}} : {}),
        ...(trace.type === 'bar' ? {textfont: {color: style('ground')}} : {})};
    });
    const grid = {...axis, gridcolor: style('rule'), zerolinecolor: style('rule'), linecolor: style('rule')};
    const layout = {...figure.layout, paper_bgcolor: style('ground'), plot_bgcolor: style('ground'),
      font: {color: style('ink'), size: 13, family: 'inherit'}, margin: {l: 56, r: 12, t: 12, b: 56},
      xaxis: {...grid, ...figure.layout.xaxis, fixedrange: true},
      yaxis: {...grid, ...figure.layout.yaxis, fixedrange: true},
      hoverlabel: {bgcolor: style('panel'), font: {color: style('ink')}}};
    return [data, layout, {responsive: true, displayModeBar: false}];
  };
  const draw = () => places.forEach((place, i) => {
    place.closest('figure').classList.add('drawn');
    Plotly.react(place, ...paint(figures[i]));
  });
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  document.documentElement.dataset.plots = String(places.length);
})().catch(() => document.querySelectorAll('.drawn').forEach(figure => figure.classList.remove('drawn')));
"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a caption; the first column names its row. Columns listed in `numeric` are aligned to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                got = Described(f"{len(row)} cells in row {number}")
                raise invalid("Table", "rows", f"have {len(self.columns)} cells each", got=got)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of a name and what it is, shown as a description list."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a plot: points in order of x; `spreads`, if any, are drawn as bars around them."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.spreads and len(self.spreads) != len(self.x)):
            got = Described(f"{len(self.x)} x, {len(self.y)} y and {len(self.spreads)} spreads")
            raise invalid(f"Series {self.name}", "x", "have as many values as y (and spreads)", got=got)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over x. `references` are horizontal lines with a name (no privacy, chance); `alt` says it all in words."""

    title: str
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    alt: str
    x_log: bool = False
    references: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Horizontal bars from zero, one per label, with their spread."""

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
Block = str | Table | Facts | Lines | Bars


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it; a text block is one paragraph."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """The heading as the last part of a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


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
#: Ground and ink of the banner of a seeded report.
BANNER_COLOURS = ("#a3101a", "#ffffff")


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2): from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance: the sRGB transfer curve undone, then the weights of the three primaries."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _variables(palette: dict[str, str], series: tuple[str, ...]) -> str:
    pairs = [*palette.items(), *((f"series-{i}", colour) for i, colour in enumerate(series))]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)


def style_sheet() -> str:
    """Return the whole style sheet."""
    light, dark = _variables(LIGHT, SERIES_LIGHT), _variables(DARK, SERIES_DARK)
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{color-scheme:light;{light}}}}}"
        f".banner{{background:{BANNER_COLOURS[0]};color:{BANNER_COLOURS[1]}}}" + _RULES
    )


_RULES = """
*{box-sizing:border-box}
html{font:17px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink)}
header,main,footer{max-width:52rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.8rem;line-height:1.2;margin:2rem 0 .5rem}
h2{font-size:1.3rem;line-height:1.3;margin:2.5rem 0 .5rem}
p,dl{max-width:44rem}
p,dd,dt,h1,h2,td,th,figcaption{overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-100rem}
.skip:focus{left:1rem;top:1rem;background:var(--ground);padding:.5rem 1rem;z-index:9}
.lead{font-size:1.1rem;color:var(--soft)}
.banner{padding:.8rem 1rem;font-weight:600}
.banner p{max-width:50rem;margin:0 auto}
nav ul{padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.88rem;margin:.3rem 0}
caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--rule)}
td,th{overflow-wrap:normal}
.number+:not(.number){padding-left:.9rem}
thead th{border-bottom:2px solid var(--soft)}
.number{text-align:right;font-variant-numeric:tabular-nums}
tbody th{font-weight:500}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.3rem 1rem;font-size:.92rem}
dt{color:var(--soft)}
dd{margin:0}
figure{margin:1.5rem 0;padding:0}
figcaption{font-weight:600}
svg.static{width:100%;min-width:30rem;height:auto;display:block}
.live{width:100%}
.live,.drawn svg.static{display:none}
.drawn .live{display:block}
details{font-size:.9rem}
summary{cursor:pointer;padding:.3rem 0;color:var(--soft)}
footer{margin-top:3rem;padding-bottom:2rem;color:var(--soft);font-size:.85rem;border-top:1px solid var(--rule)}
@media (max-width:30rem){
 h1{font-size:1.45rem}
 dl{grid-template-columns:1fr}
 dd{margin:0 0 .5rem}
}
@media print{
 nav,.skip,details:not([open]),.drawn .live{display:none}
 .drawn svg.static{display:block}
 svg.static{min-width:0}
 .scroll{overflow:visible}
 .banner{print-color-adjust:exact;-webkit-print-color-adjust:exact;border:2px solid}
 figure,table,section>h2{break-inside:avoid}
 h2{break-after:avoid}
}
"""
