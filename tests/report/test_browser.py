"""The page in a real browser: it draws, says nothing on the console, calls no one, and fits 360 pixels."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import labeldp
from labeldp.report import Bars, Lines, Section, Series, Table, page
from labeldp.report.release_page import release_page

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
    "--allow-file-access-from-files",
)
LONG = "randomized response among the likeliest labels of the prior"
LINES = Lines(
    title="Lines",
    series=tuple(Series(name=f"{LONG} {i}", x=(0.5, 1.0, 8.0), y=(1.0 + i, 2.0, 3.0)) for i in range(4)),
    x_title="epsilon",
    y_title="%",
    alt="lines",
    x_log=True,
)
BARS = Bars(title="Bars", labels=(LONG, "b"), values=(60.0, 70.0), spreads=(1.0, 0.5), x_title=LONG, alt="bars")
WIDE = Table(caption="A wide table", columns=tuple(f"column {i}" for i in range(12)), rows=(("word " * 3,) * 12,))
SECTIONS = [Section(title="S", blocks=("Words.", LINES, BARS, WIDE))]
TEXT = page("A page with a rather long title", sections=SECTIONS)


def opened(url: str, profile: Path, *flags: str) -> tuple[str, list[str]]:
    """Return the document after its scripts ran, and what the console said."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


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
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}/pixel", calls
        made.shutdown()


def test_plots_are_drawn_and_the_console_is_silent(tmp_path):
    (tmp_path / "page.html").write_text(TEXT, encoding="utf-8")
    document, console = opened((tmp_path / "page.html").as_uri(), tmp_path / "profile")
    assert console == []
    assert 'data-plots="2"' in document
    assert document.count('class="drawn"') == 2
    assert document.count('class="main-svg"') >= 2  # Plotly's own drawings
    outside_scripts = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert not re.search(r'(?:src|href)="https?://', outside_scripts)


def test_nothing_overflows_at_360_pixels(tmp_path):
    (tmp_path / "page.html").write_text(TEXT, encoding="utf-8")
    # A headless window is never narrower than 500 pixels; a frame is.
    measure = (
        "<body><iframe id=f width=360 height=800 style='border:0' src=page.html></iframe><script>"
        "addEventListener('load', () => setTimeout(() => {"
        "const d = document.getElementById('f').contentDocument, e = d.documentElement;"
        "document.title = [e.dataset.plots, innerWidth > 360, e.clientWidth, e.scrollWidth].join(' ');"
        "}, 3000));</script>"
    )
    (tmp_path / "frame.html").write_text(measure, encoding="utf-8")
    document, _ = opened((tmp_path / "frame.html").as_uri(), tmp_path / "profile")
    found = re.search(r"<title>(\d+) true (\d+) (\d+)</title>", document)
    assert found is not None, document[-500:]
    drawn, visible, needed = (int(group) for group in found.groups())
    assert drawn == 2
    assert 300 < visible <= 360
    assert needed <= visible


def test_policy_keeps_the_page_from_calling_anyone(tmp_path, server):
    url, calls = server
    leaky = page("Static, for speed: the policy is the same", sections=SECTIONS, interactive=False).replace(
        "</main>", f'<img src="{url}"></main>'
    )
    (tmp_path / "leaky.html").write_text(leaky, encoding="utf-8")
    _, console = opened((tmp_path / "leaky.html").as_uri(), tmp_path / "profile")
    assert calls == []
    assert len(console) >= 1  # so the silence of the other test means something
    # The broken twin: without the policy the same page calls out, so that `calls == []` could have failed.
    bare = re.sub(r"<meta http-equiv[^>]*>", "", leaky)
    (tmp_path / "bare.html").write_text(bare, encoding="utf-8")
    opened((tmp_path / "bare.html").as_uri(), tmp_path / "profile-2")
    assert calls == ["/pixel"]


#: Looks over a report in a frame of 360 pixels: what a reader sees, and what a reader without eyes is told. Contrast is
#: that of WCAG 2.2, of each text's computed colour on the nearest ground that is not transparent.
LOOK = """
<body style="margin:0"><iframe id=f width=360 height=800 style="border:0" src=report.html></iframe><script>
const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const ground = (w, e) => { for (; e; e = e.parentElement) { const c = w.getComputedStyle(e).backgroundColor;
  if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
addEventListener('load', () => setTimeout(() => {
  const w = document.getElementById('f').contentWindow, d = w.document, e = d.documentElement;
  const texts = [...d.querySelectorAll('h1,h2,p,dt,dd,th,td,caption,a,summary,figcaption')].filter(t =>
    t.textContent.trim() && t.getClientRects().length && !t.classList.contains('skip'));
  const ids = [...d.querySelectorAll('[id]')].map(t => t.id);
  const unnamed = [...d.querySelectorAll('[role=img],[role=region],[role=group],nav,section,svg.static')].filter(t =>
    !t.getAttribute('aria-label') && !d.getElementById(t.getAttribute('aria-labelledby')));
  document.title = JSON.stringify({plots: Number(e.dataset.plots), figures: d.querySelectorAll('figure').length,
    visible: e.clientWidth, needed: e.scrollWidth, texts: texts.length,
    contrast: Math.min(...texts.map(t => ratio(w.getComputedStyle(t).color, ground(w, t)))),
    dark: w.matchMedia('(prefers-color-scheme: dark)').matches, ground: w.getComputedStyle(d.body).backgroundColor,
    doubled: ids.length - new Set(ids).size, unnamed: unnamed.length, lang: e.lang,
    alert: d.querySelector('[role=alert]')?.textContent ?? ''});
}, 3000));</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of a seeded release, and the frame that looks it over."""
    folder = tmp_path_factory.mktemp("report")
    classes = ["a", "b", "c", LONG]
    labels = labeldp.SensitiveLabels(np.array(classes)[np.arange(600) % 4], classes=classes)
    labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=4), rng=1).save(folder / "release")
    audit = {"passed": True, "checks": [{"name": LONG, "passed": True, "detail": "word" * 40}]}
    (folder / "report.html").write_text(release_page(folder / "release", audit=audit), encoding="utf-8")
    (folder / "look.html").write_text(LOOK, encoding="utf-8")
    return folder


@pytest.mark.parametrize("dark", [False, True])
def test_a_report_reads_well_in_light_and_dark_at_360_pixels(report, tmp_path, dark):
    flags = ["--force-dark-mode"] if dark else []
    document, console = opened((report / "look.html").as_uri(), tmp_path / "profile", *flags)
    assert console == []
    told = re.search(r"<title>(.*?)</title>", document)
    assert told is not None, document[-500:]
    found = json.loads(told[1].replace("&amp;", "&"))
    assert found["plots"] == found["figures"] == 3  # beliefs, flip rates, accuracy against epsilon
    assert found["needed"] <= found["visible"] <= 360
    assert (found["doubled"], found["unnamed"], found["lang"]) == (0, 0, "en")
    assert found["texts"] > 60
    assert found["contrast"] >= 4.5
    assert "Not private" in found["alert"]
    assert found["dark"] == dark
    assert found["ground"] == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_the_look_can_fail(report, tmp_path):
    """The broken twin: pale text, a wide box and a plot without a name are all seen."""
    bad = (report / "report.html").read_text(encoding="utf-8").replace("<h1>", '<h1 style="color:#aaa">')
    bad = bad.replace("</header>", '<div style="width:700px">wide</div></header>').replace('aria-label="Drawing"', "")
    (tmp_path / "report.html").write_text(bad, encoding="utf-8")
    (tmp_path / "look.html").write_text(LOOK, encoding="utf-8")
    document, _ = opened((tmp_path / "look.html").as_uri(), tmp_path / "profile")
    found = json.loads(re.search(r"<title>(.*?)</title>", document)[1].replace("&amp;", "&"))
    assert found["needed"] > found["visible"]
    assert found["contrast"] < 3
    assert found["unnamed"] == 3


def test_a_report_has_a_picture(report, tmp_path):
    (tmp_path / "blank.html").write_text("<body>", encoding="utf-8")
    sizes = []
    for page_file, name in ((report / "report.html", "report.png"), (tmp_path / "blank.html", "blank.png")):
        picture = tmp_path / name
        flags = (f"--screenshot={picture}", "--window-size=900,3600", "--hide-scrollbars")
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / name}-profile", *flags, page_file.as_uri()]
        subprocess.run(command, capture_output=True, check=True, timeout=120)
        sizes.append(picture.stat().st_size)
    # A PNG of one colour is a few kilobytes; text and three plots are not.
    assert sizes[0] > 10 * sizes[1]
