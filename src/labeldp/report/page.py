"""`page`: one self-contained HTML file that opens from disk, prints, and asks the network for nothing.

>>> from labeldp.report import Section, page
>>> text = page("A report", sections=[Section(title="Result", blocks=("It worked.",))])
>>> "<h1>A report</h1>" in text, "not private" in text
(True, False)

Design notes. A content security policy in the page forbids every request, so that "no network" does not rest on care.
All text is escaped here and nowhere else. A seeded report opens with a red banner that a screen reader reads first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

import labeldp
from labeldp.report.plots import (
    SCRIPT,
    Bars,
    Block,
    Facts,
    Lines,
    Plot,
    Section,
    Table,
    figures_json,
    packed_library,
    style_sheet,
    svg,
)

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
BANNER = (
    "Not private. The noise behind this page came from a seed, so that the numbers can be repeated; whoever knows the "
    "seed can undo it."
)


def page(
    title: str,
    *,
    sections: Sequence[Section],
    lead: str = "",
    seeded: bool = False,
    interactive: bool = True,
    language: str = "en",
) -> str:
    """Return the page as text.

    `lead` is the one sentence to read if no other; `seeded` puts up the banner "not private"; `interactive` embeds Plotly
    (2 MB) where there are plots: without it the plots are static drawings and the page has a few kilobytes.
    """
    plots = [block for section in sections for block in section.blocks if isinstance(block, (Lines, Bars))]
    live = interactive and bool(plots)
    anchors = _anchors(sections)
    body = [
        '<a class="skip" href="#content">Skip to the content</a>',
        f'<div class="banner" role="alert"><p>{escape(BANNER)}</p></div>' if seeded else "",
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(lead)}</p>' if lead else "",
        f"{_contents(sections, anchors)}</header>",
        '<main id="content" tabindex="-1">',
        *(_section(section, anchor, live=live) for section, anchor in zip(sections, anchors, strict=True)),
        f"</main><footer><p>Made by labeldp {escape(labeldp.__version__)}. This file needs no network.</p></footer>",
        _scripts(plots) if live else "",
    ]
    return _document(title, language, "\n".join(part for part in body if part))


def write_page(path: str | os.PathLike[str], text: str) -> Path:
    """Write a page at once or not at all, and return its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target


def _document(title: str, language: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(language, quote=True)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _anchors(sections: Sequence[Section]) -> list[str]:
    """An anchor per section; the second of one name gets a number."""
    seen: Counter[str] = Counter()
    anchors = []
    for section in sections:
        seen[section.anchor] += 1
        count = seen[section.anchor]
        anchors.append(section.anchor if count == 1 else f"{section.anchor}-{count}")
    return anchors


def _contents(sections: Sequence[Section], anchors: Sequence[str]) -> str:
    if len(sections) < 3:
        return ""
    links = "".join(
        f'<li><a href="#{anchor}">{escape(section.title)}</a></li>'
        for section, anchor in zip(sections, anchors, strict=True)
    )
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _section(section: Section, anchor: str, *, live: bool) -> str:
    blocks = "\n".join(_block(block, f"{anchor}-{i}", live=live) for i, block in enumerate(section.blocks))
    return f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, name: str, *, live: bool) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Facts):
        return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in block.pairs) + "</dl>"
    if isinstance(block, Table):
        return _table(block, name)
    return _figure(block, name, live=live)


def _table(table: Table, name: str) -> str:
    kind = [' class="number"' if i in table.numeric else "" for i in range(len(table.columns))]
    head = "".join(f'<th scope="col"{kind[i]}>{escape(text)}</th>' for i, text in enumerate(table.columns))
    rows = "".join(_table_row(row, kind) for row in table.rows)
    # The box takes the keyboard's focus so that its content can be scrolled without a pointer.
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">'
        f'<table><caption id="{name}">{escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _table_row(row: tuple[str, ...], kind: Sequence[str]) -> str:
    cells = "".join(f"<td{kind[i]}>{escape(text)}</td>" for i, text in enumerate(row) if i > 0)
    return f'<tr><th scope="row"{kind[0]}>{escape(row[0])}</th>{cells}</tr>'


def _figure(plot: Plot, name: str, *, live: bool) -> str:
    words = escape(f"{plot.title}. {plot.alt}", quote=True)
    place = f'<div class="live" role="img" aria-label="{words}"></div>' if live else ""
    drawing = f'<div class="scroll" role="group" tabindex="0" aria-label="Drawing">{svg(plot)}{place}</div>'
    data = _table(plot_table(plot), f"{name}-data")
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption>{drawing}"
        f"<details><summary>The numbers of this plot</summary>{data}</details></figure>"
    )


def plot_table(plot: Plot) -> Table:
    """Return the numbers of a plot, for readers who do not see it."""
    if isinstance(plot, Bars):
        if not plot.spreads:
            plain = tuple((name, f"{value:.2f}") for name, value in zip(plot.labels, plot.values, strict=True))
            return Table(caption=plot.title, columns=("setting", plot.x_title), rows=plain, numeric=(1,))
        numbers = zip(plot.labels, plot.values, plot.spreads, strict=True)
        rows = tuple((name, f"{value:.2f}", f"{spread:.2f}") for name, value, spread in numbers)
        return Table(caption=plot.title, columns=("setting", "mean", "sd"), rows=rows, numeric=(1, 2))
    places = sorted({value for series in plot.series for value in series.x})
    known = [dict(zip(series.x, series.y, strict=True)) for series in plot.series]
    columns = (plot.x_title, *(series.name for series in plot.series), *(name for name, _ in plot.references))
    fixed = tuple(f"{value:.4g}" for _, value in plot.references)
    points = tuple((f"{x:g}", *(f"{line[x]:.4g}" if x in line else "" for line in known), *fixed) for x in places)
    return Table(caption=plot.title, columns=columns, rows=points, numeric=tuple(range(1, len(columns))))


def _scripts(plots: list[Plot]) -> str:
    return (
        f'<script type="application/json" id="figures">{figures_json(plots)}</script>\n'
        f'<script type="text/plain" id="library">{packed_library()}</script>\n<script>{SCRIPT}</script>'
    )
