"""The page in a real browser: it draws, says nothing on the console, calls no one, and fits 360 pixels."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from labeldp.report import Bars, Lines, Section, Series, Table, page

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
