"""Plots that answer to the pointer: Plotly, embedded once, compressed, and drawn over the static ones.

>>> from labeldp.report._values import Bars
>>> figure(Bars(title="t", labels=("a",), values=(1.0,), x_title="x", alt="a 1"))["data"][0]["type"]
'bar'

Design notes. plotly.min.js has 4.8 MB; gzip and base64 make that 2. The browser's own DecompressionStream unpacks it, from
file:// too. Where it is missing, where scripts are off, or if anything fails, the static drawing stays: it holds the same
numbers. Colours are read off the page's style, so that a change between light and dark redraws.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import textwrap
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from labeldp.errors import missing_extra
from labeldp.report._svg import DASHES
from labeldp.report._values import Bars, Lines, Plot

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
