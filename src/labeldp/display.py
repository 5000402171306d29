"""How values are shown to people: one rounding of shares, the card that a value shows in a notebook, and how far work is.

>>> percent(0.46212), percent(0.46212, up=True)
('46.2%', '46.3%')
>>> text = card("A promise", rows=[("assumes", "<script>no one looks</script>")], warning="Not private.")
>>> "<script" in text, "&lt;script&gt;no one looks" in text
(False, True)

There is one rule for shares on every screen, page and card: an estimate is rounded to the nearest tenth of a percent, a bound
on a risk is rounded up (`up=True`), so that it is never understated.

How far work is stands on standard error: as a bar where that is a terminal (or a notebook), and as plain lines, few of them and none for
short work, where it is kept (a file, a pipe, the log of a job). `can_show_bars` is the one place that decides it.

Design notes. A card is one `<div>` with its styles inside it: it neither needs nor changes a style sheet, has no script, and asks
no network for anything. It takes the colours of the notebook around it (no ground of its own, lines in a mix of the ink), so it
reads in every theme, light or dark; only the warning brings its colours, white on red. All text is escaped here and nowhere
else: names of classes and assumptions come from files, and files come from strangers. It is a description list, which screen
readers know, and which reads well as plain text where a viewer takes styles away.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Rows of a card's table, items of a list and characters of a text, beyond which the rest is counted or cut.
MOST_LINES = 12
MOST_LETTERS = 600
#: Ground and ink of a warning, the same in light and dark.
WARNING_COLOURS = ("#a3101a", "#ffffff")
#: What stands on everything whose noise came from a seed.
NOT_PRIVATE = "Not private: the noise came from a seed, and whoever knows the seed can take it away."


def percent(share: float, *, up: bool = False) -> str:
    """Return a share with one decimal, or with more where fewer would say certainty; `up` never understates a risk.

    >>> percent(0.73106, up=True), percent(0.99999, up=True), percent(1.0), percent(0.5), percent(0.9997)
    ('73.2%', '99.999%', '100%', '50%', '99.97%')
    """
    digits, value = 1, _round_percent(share, 1, up=up)
    while share < 1.0 and value >= 100.0 and digits < 6:
        digits += 1
        value = _round_percent(share, digits, up=up)
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") + "%"


def _round_percent(share: float, digits: int, *, up: bool) -> float:
    # A hair is taken off before rounding up: 0.5 is 50 %, whatever the product's last bit says.
    return math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits if up else round(share * 100, digits)


def list_names(names: Sequence[object], *, most: int = MOST_LINES) -> str:
    """Return the first names of a list, and how many more there are.

    >>> list_names("abc", most=2)
    'a, b and 1 more'
    """
    rest = len(names) - most
    return ", ".join(str(name) for name in names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


_BOX = (
    "border:1px solid color-mix(in srgb,currentColor 35%,transparent);border-radius:6px;padding:.6em .9em;max-width:46em;"
    "line-height:1.45;text-align:left;overflow-wrap:break-word;color:inherit;background:transparent"
)
_WARNING = (
    f"background:{WARNING_COLOURS[0]};color:{WARNING_COLOURS[1]};padding:.3em .6em;border-radius:4px;margin:.4em 0"
)
_LIST = "display:grid;grid-template-columns:minmax(6em,max-content) 1fr;gap:.2em 1em;margin:.4em 0 0"
_NAME = "margin:0;padding:0;font-weight:400;grid-column:1;opacity:.75"
_TEXT = "margin:0;padding:0;grid-column:2;overflow-wrap:anywhere"
_TABLE = "border-collapse:collapse;margin:.5em 0 0;color:inherit;background:transparent;font-size:inherit"
_CELL = (
    "text-align:{side};padding:.15em .8em .15em 0;vertical-align:top;background:transparent;color:inherit;"
    "border:0;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent);font-weight:{weight}"
)


def card(
    title: str,
    *,
    rows: Iterable[tuple[str, str]],
    warning: str = "",
    columns: Sequence[str] = (),
    table: Sequence[Sequence[str]] = (),
    numeric: Sequence[int] = (),
    left_out: int = 0,
) -> str:
    """Return a small card as HTML: a title, a warning where there is one, names with what they are, and a table.

    Parameters
    ----------
    title : str
        What the value is.
    rows : pairs of (name, text)
        What is to be known of it. A name that is that of the row before is not said again.
    warning : str
        Shown first, white on red, and announced as an alert.
    columns, table, numeric
        A table below: its header, its rows, of which the first `MOST_LINES` are shown, and the columns of numbers.
    left_out : int
        How many rows the caller left out of the table already.
    """
    parts = [f'<div style="font-weight:600">{escape(title)}</div>']
    if warning:
        parts.append(f'<div role="alert" style="{_WARNING}">{escape(warning)}</div>')
    said, pairs = "", []
    for name, text in rows:
        shown = escape(_cut(text)).replace("\n", "<br>")
        pairs.append("" if name == said else f'<dt style="{_NAME}">{escape(name)}</dt>')
        pairs.append(f'<dd style="{_TEXT}">{shown}</dd>')
        said = name
    if pairs:
        parts.append(f'<dl style="{_LIST}">{"".join(pairs)}</dl>')
    if table:
        parts.append(_table(columns, table, numeric, left_out))
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int], left_out: int) -> str:
    """Return a table in a box that scrolls by itself, and a line about the rows that are left out."""
    kinds = [_CELL.format(side="right" if i in numeric else "left", weight="{weight}") for i in range(len(columns))]
    head = "".join(
        f'<th scope="col" style="{kinds[i].format(weight=600)}">{escape(text)}</th>' for i, text in enumerate(columns)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{kinds[i].format(weight=400)}">{escape(_cut(text))}</td>' for i, text in enumerate(row))
        + "</tr>"
        for row in rows[:MOST_LINES]
    )
    rest = max(0, len(rows) - MOST_LINES) + left_out
    more = f"<div>and {rest:,} more</div>" if rest else ""
    return f'<div style="overflow-x:auto"><table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cut(text: str) -> str:
    """Return a text of at most `MOST_LETTERS` letters: what others wrote does not fill the screen."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ... ({len(text):,} letters)"


# ------------------------------------------------------------------------------------------------- how far work is

#: Seconds before work says its first line where no bar can be shown, and between two lines; so short work says none.
LINE_SECONDS = 30.0
#: Seconds after which a line is due though no further tenth of the work is done.
MOST_SECONDS = 600.0


def can_show_bars() -> bool:
    """Whether standard error overwrites its own lines, as a bar does: a terminal that is not "dumb", or a notebook."""
    from rich.console import Console

    if Console(stderr=True).is_jupyter:
        return True
    seen = sys.stderr is not None and sys.stderr.isatty()
    return seen and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


@contextmanager
def open_bar(
    words: str, *, total: float | None = None, done: float = 0.0, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show on standard error how far work is while the body runs: a bar, or lines where there can be none.

    What is given is called as `told(done, total=None, words=None)`: what is done of how much, both in any unit, and new words if
    what is done has changed. `done` is what was done before. `console` is where all of it goes; a plain one on standard error if left out.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    place = Console(stderr=True, markup=False, highlight=False) if console is None else console
    if not can_show_bars():
        yield _Lines(words, total=total, done=done, write=lambda line: place.print(line, soft_wrap=True)).tell
        return
    task = TextColumn("{task.description}", markup=False)
    columns = (
        BarColumn(20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        task,
    )
    with Progress(*columns, console=place, transient=True) as bar:
        line = bar.add_task(words, total=total)
        bar.update(line, completed=done)

        def tell(done: float, total: float | None = None, words: str | None = None) -> None:
            news: dict[str, Any] = {name: one for name, one in {"total": total, "description": words}.items() if one}
            bar.update(line, completed=done, **news)

        yield tell


class _Lines:
    """Says how far work is in lines: at most one in `LINE_SECONDS`, when another tenth is done or enough time has passed."""

    def __init__(
        self,
        words: str,
        *,
        total: float | None,
        done: float,
        write: Callable[[str], None],
    ) -> None:
        self._words, self._total, self._write = words, total, write
        self._start = self._last = time.monotonic()
        self._tenth = math.floor(10 * done / total) if total else 0

    def tell(self, done: float, total: float | None = None, words: str | None = None) -> None:
        """Say a line if one is due."""
        self._total, self._words = total or self._total, words or self._words
        now = time.monotonic()
        waited = now - self._last
        if waited < LINE_SECONDS:
            return
        share = min(done / self._total, 1.0) if self._total else None
        if share is not None and math.floor(10 * share) <= self._tenth and waited < MOST_SECONDS:
            return
        self._last, self._tenth = now, self._tenth if share is None else math.floor(10 * share)
        far = f"{done:,.0f} done" if share is None else f"{math.floor(100 * share)} %"
        self._write(f"{self._words}: {far}, after {_say_seconds(now - self._start)}")


@contextmanager
def open_spinner(words: str, *, console: Console) -> Iterator[None]:
    """Show on standard error that work goes on, where its length is not known: a sign that turns, or lines ever further apart."""
    if can_show_bars():
        with console.status(words):
            yield
        return
    done = threading.Event()

    def say() -> None:
        waited, pause = 0.0, LINE_SECONDS
        while not done.wait(pause):
            waited += pause
            console.print(f"{words}: still at work after {_say_seconds(waited)}", soft_wrap=True)
            pause = min(waited, MOST_SECONDS)

    speaker = threading.Thread(target=say, daemon=True, name="labeldp-spinner")
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()


def _say_seconds(seconds: float) -> str:
    """Return a time as people say it.

    >>> _say_seconds(42), _say_seconds(90), _say_seconds(7260)
    ('42 s', '1 min 30 s', '2 h 1 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
