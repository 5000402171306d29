"""The explorer: its numbers against the mechanisms, its server against strangers, its page in Chromium by real input."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.errors import LabelDPError
from labeldp.plots import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, contrast
from labeldp.report.explorer import Explorer, Settings, compute_facts

# ------------------------------------------------------------------------------------------------------ the numbers


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("sharpness", [0.0, 1.0])
def test_numbers_are_those_of_the_library(epsilon: float, sharpness: float):
    settings = Settings(epsilon=epsilon, n_classes=4, sharpness=sharpness, k=3)
    found = {one["name"]: one for one in compute_facts(settings)["mechanisms"]}
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
    found = compute_facts(Settings(epsilon=1.0, n_classes=3, sharpness=0.4))
    prior = np.array(found["prior"])
    for one in found["mechanisms"]:
        matrix = np.array(one["matrix"])
        guesses = itertools.product(range(3), repeat=3)
        best = max(sum(prior[g[o]] * matrix[g[o], o] for o in range(3)) for g in guesses)
        assert one["guess"] == pytest.approx(best, abs=1e-12)


def test_larger_clusters_help():
    small, large = (compute_facts(Settings(cluster_size=size))["mechanisms"][3]["accuracy"] for size in (20, 5000))
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


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with Explorer() as running:
        yield running


def asked(url: str, **headers: str) -> tuple[int, str, Any]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
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


def test_command_serves_until_interrupted(monkeypatch):
    """A browser is opened on the address, the page is there, and Ctrl-C ends the command without a traceback."""
    statuses: list[int] = []

    def visit(url: str) -> None:
        statuses.append(asked(url)[0])
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def open_page(url: str) -> bool:
        threading.Thread(target=visit, args=(url,), daemon=True).start()
        return True

    monkeypatch.setattr(webbrowser, "open", open_page)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # another test may have left its own
    try:
        done = CliRunner().invoke(app, ["explore"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, statuses) == (0, [200])
    assert "http://127.0.0.1:" in done.stdout
    assert "Stopped" in done.stdout


def test_contrast_of_what_is_coloured():
    """Numbers on a full cell (28 % of the series colour), and the pressed button."""
    for palette, series in ((LIGHT, SERIES_LIGHT[0]), (DARK, SERIES_DARK[0])):
        assert contrast(palette["ink"], mixed(series, palette["ground"], 0.28)) >= 4.5
        assert contrast(palette["ground"], palette["link"]) >= 4.5


def mixed(colour: str, ground: str, share: float) -> str:
    parts = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


# ------------------------------------------------------------------------------------------------------ the browser


def open_explorer(tab: Any, url: str, **view: Any) -> None:
    tab.open(url, **view)
    tab.until("document.documentElement.dataset.drawn !== undefined")


ACCURACY = "document.querySelector('#rows tr:nth-child({row}) td').textContent"


def test_sliders_and_buttons_by_real_input(explorer, tab):
    open_explorer(tab, explorer.url)
    first = compute_facts(Settings())["mechanisms"]
    assert tab.value(ACCURACY.format(row=1)) == f"{100 * first[0]['accuracy']:.1f}%"
    # A click near the right end of the slider drags epsilon up; the page then shows what the library says there.
    tab.press_at("#epsilon", 0.9)
    tab.until("document.getElementById('epsilon-value').textContent !== '1'")
    epsilon = float(tab.value("document.getElementById('epsilon').value"))
    assert epsilon > 5
    expected = compute_facts(Settings(epsilon=epsilon))["mechanisms"][0]["accuracy"]
    tab.until(f"{ACCURACY.format(row=1)} === '{100 * expected:.1f}%'")
    # The keyboard moves the number of classes by one.
    tab.value("document.getElementById('n_classes').focus()")
    tab.press_key("ArrowRight", 39)
    tab.until("document.querySelectorAll('#channel tbody tr').length === 6")
    # The button of another mechanism shows its channel.
    tab.press_at(".tabs button:nth-child(3)")
    tab.until("document.querySelector('#channel caption').textContent.includes('RRWithPrior')")
    assert tab.value("document.querySelector('.tabs button:nth-child(3)').getAttribute('aria-pressed')") == "true"
    # A larger cluster and a sharper prior change what they should.
    before = tab.value(ACCURACY.format(row=4))
    tab.press_at("#cluster_size", 0.99)
    tab.until(f"{ACCURACY.format(row=4)} !== '{before}'")
    tab.press_at("#sharpness", 0.95)
    tab.until("document.getElementById('prior-words').textContent.includes('99')")
    tab.press_at("button[type=reset]")
    tab.until(f"{ACCURACY.format(row=1)} === '{100 * first[0]['accuracy']:.1f}%'")
    assert tab.complaints() == []
    outside = [url for url in tab.requested() if not url.startswith((explorer.url, "data:", "about:"))]
    assert outside == []
    assert any("facts?" in url for url in tab.requested())  # so the silence above means something


def test_page_fits_360_pixels_and_has_names_for_everything(explorer, tab):
    open_explorer(tab, explorer.url, width=360, height=800)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert tab.value("innerWidth") == 360
    assert tab.value(fits)
    tab.press_at(".tabs button:nth-child(4)")
    tab.value("document.getElementById('n_classes').focus()")
    tab.press_key("End", 35)
    tab.until("document.querySelectorAll('#channel tbody tr').length === 12")
    assert tab.value(fits)
    # The broken twin: without its scrolling box the table of twelve classes would overflow.
    tab.value("document.getElementById('channel').style.overflow = 'visible'")
    assert not tab.value(fits)
    unnamed = "[...document.querySelectorAll('input')].filter((e) => !e.labels.length).length"
    assert tab.value(unnamed) == 0
    small = (
        "[...document.querySelectorAll('button, input')].filter((e) => e.getBoundingClientRect().height < 24)"
        ".map((e) => e.id)"
    )
    assert tab.value(small) == []  # WCAG 2.2: a target is at least 24 pixels high
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    names = [node["name"]["value"] for node in tree if node["role"]["value"] in {"slider", "button", "table"}]
    assert len(names) >= 5 + 5 + 2
    assert all(names)


def test_dark_page_is_dark(explorer, tab):
    open_explorer(tab, explorer.url, dark=True)
    colour = tab.value("getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb({}, {}, {})".format(*(int(DARK["ground"][i : i + 2], 16) for i in (1, 3, 5)))
    assert tab.complaints() == []
