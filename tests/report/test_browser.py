"""Pages in a real browser: they draw, say nothing on the console, call no one, and fit 360 pixels in light and dark."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import labeldp
from labeldp.report import Bars, Lines, Section, Series, Table, page
from labeldp.report.release_page import release_page

LONG = "randomized response among the likeliest labels of the prior"
LINES = Lines(
    title="Lines",
    series=tuple(Series(name=f"{LONG} {i}", x=(0.5, 1.0, 1.01, 8.0), y=(1.0 + i, 2.0, 2.5, 3.0)) for i in range(4)),
    x_title=f"{LONG}, {LONG}",
    y_title=LONG,
    alt="lines",
    x_log=True,
    references=((f"{LONG}, {LONG}", 2.0),),
)
BARS = Bars(
    title="Bars", labels=(f"{LONG}, {LONG}", "b"), values=(60.0, 70.0), spreads=(1.0, 0.5), x_title=LONG, alt="b"
)
WIDE = Table(caption="A wide table", columns=tuple(f"column {i}" for i in range(12)), rows=(("word " * 3,) * 12,))
SECTIONS = [Section(title="S", blocks=("Words.", LINES, BARS, WIDE))]
TEXT = page("A page with a rather long title", sections=SECTIONS)

#: Looks a page over: what a reader sees, and what a reader without eyes is told. Contrast is that of WCAG 2.2, of each
#: text's computed colour on the nearest ground that is not transparent; `marks` is the same of lines, points and bars.
#: `cut` counts texts of drawings that leave their drawing, `crossed` numbers below an axis that touch.
LOOK = """(() => {
  const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const all = selector => [...document.querySelectorAll(selector)], e = document.documentElement;
  const texts = all('h1,h2,p,dt,dd,th,td,caption,a,summary,figcaption').filter(t =>
    t.textContent.trim() && t.getClientRects().length && !t.classList.contains('skip'));
  const ids = all('[id]').map(t => t.id);
  const box = t => t.getBoundingClientRect();
  const marks = [...all('polyline').map(m => [m, 'stroke']), ...all('circle,rect').map(m => [m, 'fill'])];
  const rows = all('svg').flatMap(s => { const t = [...s.querySelectorAll('text')].filter(t =>
    /^[-0-9.e]+$/.test(t.textContent) && t.getAttribute('text-anchor') === 'middle').map(box);
    return t.slice(1).filter((r, i) => r.y === t[i].y && r.left < t[i].right); });
  return {drawings: all('svg.static').filter(s => box(s).height > 100).length, figures: all('figure').length,
    visible: e.clientWidth, needed: e.scrollWidth, texts: texts.length,
    contrast: Math.min(...texts.map(t => ratio(getComputedStyle(t).color, ground(t)))),
    marks: Math.min(...marks.map(([m, kind]) => ratio(getComputedStyle(m)[kind], ground(m)))),
    cut: all('svg text').filter(t => { const s = box(t.closest('svg')), r = box(t);
      return r.left < s.left - 1 || r.right > s.right + 1 || r.top < s.top - 1 || r.bottom > s.bottom + 1; }).length,
    crossed: rows.length,
    unnamed: all('[role=img],[role=region],[role=group],nav,section,svg.static').filter(t =>
      !t.getAttribute('aria-label') && !document.getElementById(t.getAttribute('aria-labelledby'))).length,
    doubled: ids.length - new Set(ids).size, lang: e.lang, scripts: all('script').length,
    dark: matchMedia('(prefers-color-scheme: dark)').matches, ground: getComputedStyle(document.body).backgroundColor,
    alert: document.querySelector('[role=alert]')?.textContent ?? ''};
})()"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return (folder / name).as_uri()


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A server on loopback that remembers who called."""
    calls: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}/pixel", calls
        made.shutdown()


@pytest.mark.parametrize("width", [360, 1280])
def test_plots_are_drawn_whole_and_nothing_overflows(tab, tmp_path, width):
    address = write(tmp_path, "page.html", TEXT)
    tab.open(address, width=width)
    found = tab.value(LOOK)
    assert (found["drawings"], found["figures"], found["scripts"]) == (2, 2, 0)
    assert found["needed"] <= found["visible"] <= width
    assert (found["cut"], found["crossed"]) == (0, 0)
    assert tab.value("document.querySelector('circle title').textContent") == f"{LONG} 0: 1 at 0.5"
    assert tab.complaints() == []
    assert [url for url in tab.requested() if not url.startswith("data:")] == [address]


def test_policy_keeps_the_page_from_calling_anyone(tab, tmp_path, server):
    url, calls = server
    leaky = TEXT.replace("</main>", f'<img src="{url}"><script>document.title = "ran"</script></main>')
    tab.open(write(tmp_path, "leaky.html", leaky))
    assert calls == []
    assert tab.value("document.title") != "ran"
    assert len(tab.complaints()) >= 2  # so the silence of the other test means something
    # The broken twin: without the policy the same page calls out, so that `calls == []` could have failed.
    bare = re.sub(r"<meta http-equiv[^>]*>", "", leaky)
    tab.open(write(tmp_path, "bare.html", bare))
    assert calls == ["/pixel"]
    assert tab.value("document.title") == "ran"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a seeded release, with an audit."""
    folder = tmp_path_factory.mktemp("report")
    classes = ["a", "b", "c", LONG]
    labels = labeldp.SensitiveLabels(np.array(classes)[np.arange(600) % 4], classes=classes)
    labeldp.privatize(labels, labeldp.RandomizedResponse(0.9, n_classes=4), rng=1).save(folder / "release")
    audit = {"passed": True, "checks": [{"name": LONG, "passed": True, "detail": "word" * 40}]}
    return release_page(folder / "release", audit=audit)


@pytest.mark.parametrize("dark", [False, True])
def test_a_report_reads_well_in_light_and_dark_at_360_pixels(tab, report, tmp_path, dark):
    tab.open(write(tmp_path, "report.html", report), width=360, height=800, dark=dark)
    found = tab.value(LOOK)
    assert tab.complaints() == []
    assert found["drawings"] == found["figures"] == 3  # beliefs, flip rates, accuracy against epsilon
    assert found["needed"] <= found["visible"] <= 360
    assert (found["doubled"], found["unnamed"], found["lang"]) == (0, 0, "en")
    assert (found["cut"], found["crossed"]) == (0, 0)
    assert found["texts"] > 60
    assert found["contrast"] >= 4.5
    assert found["marks"] >= 3
    assert "Not private" in found["alert"]
    assert found["dark"] == dark
    assert found["ground"] == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_the_look_can_fail(tab, report, tmp_path):
    """The broken twin: pale text and marks, a wide box, plots without a name, a label too long: all are seen."""
    bad = report.replace("<h1>", '<h1 style="color:#aaa">').replace("--series-0:", "--series-0:#ddd;--other:")
    bad = bad.replace("</header>", '<div style="width:700px">wide</div></header>').replace('aria-label="Drawing"', "")
    bad = bad.replace(">belief after (%)<", f">{LONG}<").replace(">20<", f">{20:030d}<")
    tab.open(write(tmp_path, "report.html", bad), width=360, height=800)
    found = tab.value(LOOK)
    assert found["needed"] > found["visible"]
    assert found["contrast"] < 3
    assert found["marks"] < 3
    assert found["unnamed"] == 3
    assert found["cut"] > 0
    assert found["crossed"] > 0
