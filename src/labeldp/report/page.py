"""`page`: one self-contained HTML file that opens from disk, prints, and asks the network for nothing.

>>> from labeldp.report import Section, Table, page
>>> table = Table(caption="Two numbers", columns=("setting", "accuracy"), rows=(("plain", "79.0"),), numeric=(1,))
>>> text = page("A report", sections=[Section(title="Result", blocks=("It worked.", table))])
>>> "<h1>A report</h1>" in text, "not private" in text.lower(), "<script" in text
(True, False, False)

A report is a list of `Section` values; a section holds blocks in reading order: a paragraph of text, a `Table`, `Facts`
(names and values) or a plot (`labeldp.plots`). All text is escaped here and nowhere else.

Design notes. The page has no script. A content security policy inside it forbids scripts and every request, so that "no
network" does not rest on care. One style sheet serves light, dark, print and a screen of 360 pixels: tables and drawings
scroll inside their own box, never the page; a shadow at its edge says that there is more. Under each plot stands the table of its numbers, folded. A seeded report opens
with a red banner that a screen reader reads first.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import labeldp
from labeldp.errors import Described, invalid
from labeldp.plots import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, Bars, Lines, Plot, css_variables, svg

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
BANNER = (
    "Not private. The noise behind this page came from a seed, so that the numbers can be repeated; whoever knows the "
    "seed can undo it."
)
#: Ground and ink of the banner of a seeded report.
BANNER_COLOURS = ("#a3101a", "#ffffff")
#: Packages whose version may change a number on a page.
PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "numba")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a caption; the first column names its row. Columns listed in `numeric` are aligned to the right.

    Columns listed in `codes` hold long names without a space, such as checksums: they may break anywhere.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                got = Described(f"{len(row)} cells in row {number}")
                raise invalid("Table", "rows", f"have {len(self.columns)} cells each", got=got)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of a name and what it is, shown as a description list."""

    pairs: tuple[tuple[str, str], ...]


Block = str | Table | Facts | Lines | Bars


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and the blocks under it; a block of text is one paragraph.

    >>> Section(title="What it costs", blocks=("One sentence.",)).anchor
    'what-it-costs'
    """

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """The heading as the last part of a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def page(
    title: str,
    *,
    sections: Sequence[Section],
    lead: str = "",
    seeded: bool = False,
    language: str = "en",
) -> str:
    """Return the page as text.

    Parameters
    ----------
    title : str
        The heading, and the title of the window.
    sections : sequence of Section
        What stands under it. Three or more get a table of contents.
    lead : str
        The one sentence to read if no other.
    seeded : bool
        Whether the noise came from a seed: the page then opens with the banner "not private".
    language : str
        The language of the text, for screen readers.
    """
    anchors = _anchors(sections)
    body = [
        '<a class="skip" href="#content">Skip to the content</a>',
        f'<div class="banner" role="alert"><p>{escape(BANNER)}</p></div>' if seeded else "",
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(lead)}</p>' if lead else "",
        f"{_contents(sections, anchors)}</header>",
        '<main id="content" tabindex="-1">',
        *(_section(section, anchor) for section, anchor in zip(sections, anchors, strict=True)),
        f"</main><footer><p>Made by labeldp {escape(labeldp.__version__)}. This file needs no network.</p></footer>",
    ]
    return _document(title, language, "\n".join(part for part in body if part))


def write_page(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text at once or not at all, replacing an older file of that name, and return its path.

    Folders on the way are made. A reader never sees half a page: it is written beside its place and then moved there.
    """
    from labeldp.release.unfinished import hidden_name  # it loads numpy, which `labeldp --help` does without

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(hidden_name(target.name))
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a number on a page: labeldp, Python and `PACKAGES`.

    >>> list(versions())[:3]
    ['labeldp', 'python', 'numpy']
    """
    from importlib import metadata  # takes longer than all else here, and `labeldp --help` loads this module

    found = {"labeldp": labeldp.__version__, "python": platform.python_version()}
    return {**found, **{package: metadata.version(package) for package in PACKAGES}}


def plot_table(plot: Plot) -> Table:
    """Return the numbers of a plot as a table, for readers who do not see it.

    Bars give a row per label, with mean and sd where there are spreads. Lines give a row per x and a column per series; a
    series without a point there has an empty cell, and each reference line has a column of its own.
    """
    if isinstance(plot, Bars):
        if not plot.spreads:
            plain = tuple((name, f"{round(value, 2):g}") for name, value in zip(plot.labels, plot.values, strict=True))
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


def _document(title: str, language: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(language, quote=True)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Return an anchor per section; the second of one name gets a number."""
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


def _section(section: Section, anchor: str) -> str:
    blocks = "\n".join(_block(block, f"{anchor}-{i}") for i, block in enumerate(section.blocks))
    return f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, name: str) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Facts):
        return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in block.pairs) + "</dl>"
    if isinstance(block, Table):
        return _table(block, name)
    return _figure(block, name)


def _table(table: Table, name: str) -> str:
    kind = [
        ' class="number"' if i in table.numeric else ' class="code"' if i in table.codes else ""
        for i in range(len(table.columns))
    ]
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


def _figure(plot: Plot, name: str) -> str:
    drawing = f'<div class="scroll" role="group" tabindex="0" aria-label="Drawing">{svg(plot)}</div>'
    data = _table(plot_table(plot), f"{name}-data")
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption>{drawing}"
        f"<details><summary>The numbers of this plot</summary>{data}</details></figure>"
    )


def style_sheet() -> str:
    """Return the whole style sheet: the colours of light, dark and print, and the rules they share."""
    light, dark = css_variables(LIGHT, SERIES_LIGHT), css_variables(DARK, SERIES_DARK)
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
.scroll{overflow-x:auto;max-width:100%;background:linear-gradient(to right,var(--ground) 1.2rem,transparent) 0 0/2.4rem 100% no-repeat local,
linear-gradient(to left,var(--ground) 1.2rem,transparent) 100% 0/2.4rem 100% no-repeat local,
linear-gradient(to right,transparent 2px,color-mix(in srgb,var(--ink) 40%,transparent) 2px,transparent) 0 0/.8rem 100% no-repeat scroll,
linear-gradient(to left,transparent 2px,color-mix(in srgb,var(--ink) 40%,transparent) 2px,transparent) 100% 0/.8rem 100% no-repeat scroll}
table{border-collapse:collapse;width:100%;font-size:.88rem;margin:.3rem 0}
caption{text-align:left;font-weight:600;padding:.4rem 0;max-width:calc(100vw - 3rem)}
th,td{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--rule)}
td,th{overflow-wrap:normal}
td.code{font:.8rem/1.4 ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere;min-width:16.5ch}
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
details{font-size:.9rem}
summary{cursor:pointer;padding:.3rem 0;color:var(--soft)}
footer{margin-top:3rem;padding-bottom:2rem;color:var(--soft);font-size:.85rem;border-top:1px solid var(--rule)}
@media (max-width:30rem){
 h1{font-size:1.45rem}
 dl{grid-template-columns:1fr}
 dd{margin:0 0 .5rem}
}
@media print{
 nav,.skip,details:not([open]){display:none}
 svg.static{min-width:0}
 .scroll{overflow:visible;background:none}
 .banner{print-color-adjust:exact;-webkit-print-color-adjust:exact;border:2px solid}
 figure,table,section>h2{break-inside:avoid}
 h2{break-after:avoid}
}
"""
