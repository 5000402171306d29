"""Photograph the report, the explorer, a terminal and the cards of notebooks for docs/pictures: python scripts/screenshots.py, from the root of a clone.

Each is photographed on a light and on a dark screen; the documentation shows the one that fits (`#only-light`, `#only-dark`). It
needs Chromium, and says so where there is none. Noise is fresh, so that no two photographs are the same: take them again when the
look of a screen has changed, and look at them.
"""

from __future__ import annotations

import base64
import io
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from browser import CHROMIUM, Browser, Tab
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

import labeldp
from labeldp import data
from labeldp.audit import channel_audit
from labeldp.plots import DARK, LIGHT

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: The most that a picture may weigh: pages are read on telephones too.
MOST_BYTES = 150_000
COLUMNS = 92
#: What is typed at the terminal of the picture, as on docs/index.md, with a ledger of its own; what other pictures need is typed before.
BEFORE = (
    "labeldp privatize people.parquet --label income --classes '<=50K,>50K' --epsilon 1 --to release --ledger spent.sqlite --budget 2",
    "labeldp train release --to model.skops",
    "labeldp explore --to explorer.html --no-browser",
    "labeldp audit release --ledger spent.sqlite --json",
)
TYPED = (
    "labeldp privatize people.parquet --label income --epsilon 1 --classes '<=50K,>50K' --to income-release --ledger income.sqlite --budget 2",
    "labeldp ledger income.sqlite",
)
#: Sixteen colours that are readable on white; those of a dark terminal are rich's own.
ON_WHITE = TerminalTheme(
    (255, 255, 255),
    (27, 31, 36),
    [
        (27, 31, 36),
        (155, 21, 80),
        (20, 108, 67),
        (107, 90, 0),
        (11, 92, 173),
        (123, 42, 148),
        (0, 105, 110),
        (74, 82, 92),
    ],
)


def run(line: str, folder: Path) -> str:
    """Run a command as a terminal of so many columns would show it, and return what it printed, colours included."""
    here = {
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "LOGNAME": "ada",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    words = [sys.executable, "-m", "labeldp", *shlex.split(line)[1:]]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **here},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return done.stdout


def terminal_page(told: list[tuple[str, str]], *, dark: bool) -> str:
    """A page that looks like a terminal in which these lines were typed, with what they printed."""
    theme, palette = (DIMMED_MONOKAI, DARK) if dark else (ON_WHITE, LIGHT)
    parts = []
    for line, printed in told:
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(printed))
        html = console.export_html(theme=theme, inline_styles=True, code_format="{code}")
        typed = " \\\n    ".join(textwrap.wrap(line, COLUMNS - 8, break_long_words=False, break_on_hyphens=False))
        parts.append(f"<b>$ {escape(typed)}</b>\n{html}")
    style = f"margin:0;padding:16px 18px;background:{palette['panel']};color:{palette['ink']};font:14px/1.3 monospace"
    return whole_page(f'<pre style="{style}">{"".join(parts)}</pre>', palette["panel"])


def whole_page(body: str, ground: str) -> str:
    """A page with a ground of one colour to its very edge."""
    return f'<!doctype html><meta charset="utf-8"><html style="background:{ground}"><body style="margin:0">{body}'


#: What is typed in the notebook of the picture.
NAMES = ("release", "ledger", "channel_audit(run, n_classes=2, claimed=1.0)")


def card_page(folder: Path, *, dark: bool) -> str:
    """A page with cards as a notebook shows them: of a release, a ledger and the result of an audit."""
    release = labeldp.load_release(folder / "release")
    ledger = labeldp.Ledger(folder / "spent.sqlite")

    def run(labels: Any) -> Any:
        return labeldp.privatize(labels, labeldp.RandomizedResponse(epsilon=1.0, n_classes=2)).codes

    found = channel_audit(run, n_classes=2, claimed=1.0)
    palette = DARK if dark else LIGHT
    style = f"padding:8px 18px;color:{palette['ink']};font:15px/1.4 sans-serif"
    shown = (release, ledger, found)
    cards = "".join(
        f'<p style="font:14px monospace">In [{n}]: {name}</p>{value._repr_html_()}'
        for n, (name, value) in enumerate(zip(NAMES, shown, strict=True), start=1)
    )
    return whole_page(f'<div style="{style}">{cards}</div>', palette["ground"])


def photograph(tab: Tab, name: str, url: str, *, width: int, height: int | None, dark: bool) -> None:
    """Write the upper part of a page, or all of it, as a PNG."""
    tab.call("Emulation.setScrollbarsHidden", hidden=True)
    tab.open(url, width=width, height=height or 700, dark=dark)
    tab.until(
        "document.querySelector('tbody tr, pre, dl') || performance.now() > 20000"
    )  # the explorer computes its tables
    tall = height or int(tab.value("document.documentElement.scrollHeight"))
    if height is None:  # a window as tall as the page, so that all of it is drawn
        tab.open(url, width=width, height=tall, dark=dark)
    clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
    taken = base64.b64decode(tab.call("Page.captureScreenshot", format="png", clip=clip)["data"])
    path = PICTURES / f"{name}-{'dark' if dark else 'light'}.png"
    path.write_bytes(taken)
    print(f"{path.name}: {len(taken):,} bytes")
    if len(taken) > MOST_BYTES:
        sys.exit(f"{path.name} is larger than {MOST_BYTES:,} bytes: make the window smaller.")


def main() -> None:
    if CHROMIUM is None:
        sys.exit("There is no chromium on this machine: apt-get install chromium. No photograph was taken.")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as profile:
        folder = Path(name)
        pq.write_table(data.load("adult").table().slice(0, 8000), folder / "people.parquet")
        audit = [run(line, folder) for line in BEFORE][-1]
        (folder / "audit.json").write_text(audit, encoding="utf-8")
        run(
            "labeldp report release --to report.html --ledger spent.sqlite --audit audit.json --model model.skops",
            folder,
        )
        told = [(line, run(line, folder)) for line in TYPED]
        browser = Browser(profile)
        try:
            tab = Tab(browser)
            for dark in (False, True):
                page = folder / f"terminal-{dark}.html"
                page.write_text(terminal_page(told, dark=dark), encoding="utf-8")
                photograph(tab, "terminal", page.as_uri(), width=820, height=None, dark=dark)
                page = folder / f"cards-{dark}.html"
                page.write_text(card_page(folder, dark=dark), encoding="utf-8")
                photograph(tab, "cards", page.as_uri(), width=700, height=None, dark=dark)
                photograph(tab, "report", (folder / "report.html").as_uri(), width=860, height=780, dark=dark)
                photograph(tab, "explorer", (folder / "explorer.html").as_uri(), width=860, height=780, dark=dark)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
