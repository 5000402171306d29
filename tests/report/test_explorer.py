"""The explorer: its numbers against the mechanisms, its server against strangers, its page in Chromium by real input."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.errors import LabelDPError
from labeldp.report.explorer import Explorer, Settings, explored
from labeldp.report.plots import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, contrast

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")

# ------------------------------------------------------------------------------------------------------ the numbers


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("sharpness", [0.0, 1.0])
def test_numbers_are_those_of_the_library(epsilon: float, sharpness: float):
    settings = Settings(epsilon=epsilon, n_classes=4, sharpness=sharpness, k=3)
    found = {one["name"]: one for one in explored(settings)["mechanisms"]}
    prior = settings.prior
    best = labeldp.RRWithPrior(epsilon).channel(prior)
    assert found["RRWithPrior"]["matrix"] == best.matrix().tolist()
    assert found["RRWithPrior"]["accuracy"] == pytest.approx(best.expected_accuracy(prior), rel=1e-12)
    assert found["RRTop-k"]["candidates"] == [0, 1, 2]
    assert found["RRWithPrior"]["accuracy"] >= found["RR"]["accuracy"] - 1e-12  # optimal for its prior
    assert found["RR"]["trusts"] == "no one"
    assert found["ClusterRR"]["trusts"] == "a curator"
    for one in found.values():
        assert np.allclose(np.sum(one["matrix"], axis=1), 1.0)
        assert one["gain"] <= one["gain_bound"] + 1e-12
        assert one["flips"] == pytest.approx(1 - np.diagonal(one["matrix"]))


def test_attacker_is_the_best_of_all():
    """Every deterministic attacker, enumerated, does no better than the one that is shown."""
    found = explored(Settings(epsilon=1.0, n_classes=3, sharpness=0.4))
    prior = np.array(found["prior"])
    for one in found["mechanisms"]:
        matrix = np.array(one["matrix"])
        guesses = itertools.product(range(3), repeat=3)
        best = max(sum(prior[g[o]] * matrix[g[o], o] for o in range(3)) for g in guesses)
        assert one["guess"] == pytest.approx(best, abs=1e-12)


def test_larger_clusters_help():
    small, large = (explored(Settings(cluster_size=size))["mechanisms"][3]["accuracy"] for size in (20, 5000))
    assert large > small


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 0.0}, {"epsilon": 11.0}, {"n_classes": 1}, {"sharpness": -1.0}, {"cluster_size": 5}, {"k": 0}],
    ids=str,
)
def test_settings_outside_the_sliders_are_refused(wrong: dict[str, Any]):
    with pytest.raises(LabelDPError, match=next(iter(wrong))):
        Settings(**wrong)


# ------------------------------------------------------------------------------------------------------- the server


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    with Explorer() as running:
        yield running


def asked(url: str, **headers: str) -> tuple[int, str, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_facts_are_json(explorer):
    status, text, headers = asked(explorer.url + "facts?epsilon=2&n_classes=3")
    assert status == 200
    assert json.loads(text)["settings"]["epsilon"] == 2.0
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


def test_only_loopback_is_bound_and_answered(explorer):
    assert explorer.url.startswith("http://127.0.0.1:")
    for stranger in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil:80"):
        assert asked(explorer.url, Host=stranger)[0] == 403
    for friend in ("localhost:99", "127.0.0.1", "[::1]:80", "[::1]"):
        assert asked(explorer.url, Host=friend)[0] == 200


@pytest.mark.parametrize("query", ["epsilon=much", "epsilon=-1", "colour=red", "epsilon=nan", "n_classes=2.5", "k=99"])
def test_bad_queries_are_answered_with_words(explorer, query):
    status, text, _ = asked(f"{explorer.url}facts?{query}")
    assert status == 400
    assert "must" in json.loads(text)["error"]


def test_nothing_else_is_served(explorer):
    for path in ("etc", "../pyproject.toml", "_facts.py", "page.html"):
        assert asked(explorer.url + path)[0] == 404


def test_a_taken_port_is_named(explorer):
    port = int(explorer.url.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(LabelDPError, match="port"):
        Explorer(port=port)


def test_command_serves_until_interrupted(tmp_path):
    import signal
    import sys

    command = [sys.executable, "-m", "labeldp", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http"))
        assert asked(url)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert "Stopped" in process.stdout.read()


def test_contrast_of_what_is_coloured():
    """Numbers on a full cell (28 % of the series colour), and the pressed button."""
    for palette, series in ((LIGHT, SERIES_LIGHT[0]), (DARK, SERIES_DARK[0])):
        assert contrast(palette["ink"], mixed(series, palette["ground"], 0.28)) >= 4.5
        assert contrast(palette["ground"], palette["link"]) >= 4.5


def mixed(colour: str, ground: str, share: float) -> str:
    parts = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


# ------------------------------------------------------------------------------------------------------ the browser


class Browser:
    """Chromium over its debugging pipe: JSON and a zero byte each way, so no port, no driver, no package."""

    def __init__(self, profile: Path, *, dark: bool = False) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = (
            f"--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --user-data-dir={profile}"
        )
        line = f"exec {CHROMIUM} {flags} about:blank 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        if dark:
            feature = {"name": "prefers-color-scheme", "value": "dark"}
            self.call("Emulation.setEmulatedMedia", features=[feature])

    _session: str | None = None

    def call(self, method: str, **arguments: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser closed its pipe"
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def value(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until something is true; a page that never gets there fails here."""
        for _ in range(200):
            if self.value(expression):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def open(self, url: str, *, width: int = 1000, height: int = 1300) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.drawn !== undefined")

    def press_at(self, selector: str, share: float = 0.5) -> None:
        """Bring an element into view and click on it, at a share of its width."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        place = {"x": box[0] + share * box[2], "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def key(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def complaints(self) -> list[Any]:
        """Everything that the console, the log or a script's failure said."""
        noisy = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in noisy]

    def requested(self) -> list[str]:
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    made = Browser(tmp_path / "profile")
    yield made
    made.close()


ACCURACY = "document.querySelector('#rows tr:nth-child({row}) td').textContent"


@needs_chromium
def test_sliders_and_buttons_by_real_input(explorer, browser, tmp_path):
    browser.open(explorer.url)
    first = explored(Settings())["mechanisms"]
    assert browser.value(ACCURACY.format(row=1)) == f"{100 * first[0]['accuracy']:.1f}%"
    # A click near the right end of the slider drags epsilon up; the page then shows what the library says there.
    browser.press_at("#epsilon", 0.9)
    browser.until("document.getElementById('epsilon-value').textContent !== '1'")
    epsilon = float(browser.value("document.getElementById('epsilon').value"))
    assert epsilon > 5
    expected = explored(Settings(epsilon=epsilon))["mechanisms"][0]["accuracy"]
    browser.until(f"{ACCURACY.format(row=1)} === '{100 * expected:.1f}%'")
    # The keyboard moves the number of classes by one.
    browser.value("document.getElementById('n_classes').focus()")
    browser.key("ArrowRight", 39)
    browser.until("document.querySelectorAll('#channel tbody tr').length === 6")
    # The button of another mechanism shows its channel.
    browser.press_at(".tabs button:nth-child(3)")
    browser.until("document.querySelector('#channel caption').textContent.includes('RRWithPrior')")
    assert browser.value("document.querySelector('.tabs button:nth-child(3)').getAttribute('aria-pressed')") == "true"
    # A larger cluster and a sharper prior change what they should.
    before = browser.value(ACCURACY.format(row=4))
    browser.press_at("#cluster_size", 0.99)
    browser.until(f"{ACCURACY.format(row=4)} !== '{before}'")
    browser.press_at("#sharpness", 0.95)
    browser.until("document.getElementById('prior-words').textContent.includes('99')")
    browser.press_at("button[type=reset]")
    browser.until(f"{ACCURACY.format(row=1)} === '{100 * first[0]['accuracy']:.1f}%'")
    browser.picture(tmp_path / "explorer.png")
    assert (tmp_path / "explorer.png").stat().st_size > 10_000
    assert browser.complaints() == []
    outside = [url for url in browser.requested() if not url.startswith((explorer.url, "data:", "about:"))]
    assert outside == []
    assert any("facts?" in url for url in browser.requested())  # so the silence above means something


@needs_chromium
def test_page_fits_360_pixels_and_has_names_for_everything(explorer, browser, tmp_path):
    browser.open(explorer.url, width=360, height=800)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.value("innerWidth") == 360
    assert browser.value(fits)
    browser.press_at(".tabs button:nth-child(4)")
    browser.value("document.getElementById('n_classes').focus()")
    browser.key("End", 35)
    browser.until("document.querySelectorAll('#channel tbody tr').length === 12")
    assert browser.value(fits)
    browser.picture(tmp_path / "narrow.png")
    # The broken twin: without its scrolling box the table of twelve classes would overflow.
    browser.value("document.getElementById('channel').style.overflow = 'visible'")
    assert not browser.value(fits)
    unnamed = "[...document.querySelectorAll('input')].filter((e) => !e.labels.length).length"
    assert browser.value(unnamed) == 0
    small = (
        "[...document.querySelectorAll('button, input')].filter((e) => e.getBoundingClientRect().height < 24)"
        ".map((e) => e.id)"
    )
    assert browser.value(small) == []  # WCAG 2.2: a target is at least 24 pixels high
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = [node["name"]["value"] for node in tree if node["role"]["value"] in {"slider", "button", "table"}]
    assert len(names) >= 5 + 5 + 2
    assert all(names)


@needs_chromium
def test_dark_page_is_dark(explorer, tmp_path):
    browser = Browser(tmp_path / "profile", dark=True)
    try:
        browser.open(explorer.url)
        colour = browser.value("getComputedStyle(document.body).backgroundColor")
        assert colour == "rgb({}, {}, {})".format(*(int(DARK["ground"][i : i + 2], 16) for i in (1, 3, 5)))
        browser.picture(tmp_path / "dark.png")
        assert browser.complaints() == []
    finally:
        browser.close()
