"""The explorer: what its script computes against the library, its page in Chromium by real input, and the command."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import subprocess
import webbrowser
from importlib import resources
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.display import percent
from labeldp.errors import LabelDPError
from labeldp.guarantee import advantage_bound
from labeldp.mechanisms import answer_worth, most_information, response_worth, subset_worth
from labeldp.plots import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, contrast
from labeldp.report.explorer import Settings, explorer_page, settings_of_release

SCRIPT = (resources.files("labeldp.report") / "assets" / "mechanisms.js").read_text(encoding="utf-8")
NODE = shutil.which("node")


# ------------------------------------------------------------------------------------------------------ the numbers


@pytest.fixture
def compute(request):
    """Run an expression beside mechanisms.js and return its value: in node, or else in chromium."""
    if NODE is not None:

        def run(expression: str) -> Any:
            text = f"{SCRIPT}\nconsole.log(JSON.stringify({expression}));"
            done = subprocess.run([NODE, "-"], input=text, capture_output=True, text=True, check=True)
            return json.loads(done.stdout)

        return run
    tab = request.getfixturevalue("tab")  # skips, with the reason, where there is no chromium either
    return lambda expression: tab.value(f"(() => {{ {SCRIPT}\nreturn {expression}; }})()")


#: Settings with (epsilon, prior, k): geometric priors, flat ones, two classes, a sure one, 16 classes, and no order.
CASES = [
    (epsilon, prior, k)
    for epsilon in (0.1, 1.0, 3.0, 8.0)
    for prior, k in (
        (Settings(n_classes=5).belief.tolist(), 2),
        (Settings(n_classes=16, sharpness=0.3).belief.tolist(), 3),
        ([0.25] * 4, 4),
        ([0.7, 0.3], 1),
        ([0.05, 0.6, 0.1, 0.25], 2),
        ([0.97, 0.01, 0.01, 0.01], 2),
    )
]


def test_every_number_is_that_of_the_library(compute):
    """Matrices, shares, information, clean labels and the best guess of each mechanism, at settings of all kinds.

    The script adds in another order than NumPy, hence 1e-9. Blocks of a prior order masses that agree to a millionth by public
    chance, in the library by its seed, in the page by number; hence 3e-6 there.
    """
    asked = [{"epsilon": e, "prior": p, "k": k, "rows": 500} for e, p, k in CASES]
    answers = compute(f"{json.dumps(asked)}.map(describeAll)")
    for (epsilon, given, k), found in zip(CASES, answers, strict=True):
        prior = np.array(given)
        named = {one["name"]: one for one in found}
        before = prior.max()
        mechanisms = {
            "RR": labeldp.RandomizedResponse(epsilon, n_classes=len(prior)),
            "RRTop-k": labeldp.RRTopK(epsilon, k=k),
            "RRWithPrior": labeldp.RRWithPrior(epsilon),
        }
        for name, mechanism in mechanisms.items():
            matrix = mechanism.channel(prior if mechanism.uses_prior else None).matrix()
            one = named[name]
            assert np.allclose(one["matrix"], matrix, atol=1e-9), (name, epsilon, given)
            assert one["accuracy"] == pytest.approx(prior @ np.diagonal(matrix), abs=1e-9)
            assert one["guess"] == pytest.approx((prior[:, None] * matrix).max(axis=0).sum(), abs=1e-9)
            assert (one["information"], one["cleanLabels"]) == pytest.approx(answer_worth(mechanism, prior), abs=1e-9)
        blocks = labeldp.InformativeResponse(epsilon)
        channel = blocks.channel(prior[None], n_classes=len(prior)).place(0, 1)
        one = named["Informative, this prior"]
        assert (one["information"], one["cleanLabels"]) == pytest.approx(answer_worth(blocks, prior, rows=1), abs=3e-6)
        assert one["guess"] == pytest.approx((prior[:, None] * channel.matrix(0)).max(axis=0).sum(), abs=3e-6)
        for one in found:
            assert one["gainBound"] == pytest.approx((1 - before) * advantage_bound(epsilon), abs=1e-12)
            assert one["gain"] <= one["gainBound"] + 1e-9
            assert one["information"] <= most_information(epsilon) + 1e-12
            assert one["trusts"] == ("a curator" if one["name"] == "ClusterRR" else "no one")


def test_sets_without_a_prior_are_means_over_all_circles(compute):
    """By enumeration of all subsets, and for a flat prior by the closed form of the library."""
    prior, epsilon = [0.4, 0.3, 0.2, 0.1], 0.7
    (found,) = compute(f"[uninformedWorth({epsilon}, {prior})]")
    odds, d = math.expm1(epsilon), 2
    sets = [[int(y in chosen) for y in range(4)] for chosen in itertools.combinations(range(4), d)]
    matrix = (1 + odds * np.array(sets).T) * 4 / len(sets) / (d * odds + 4)
    assert np.allclose(matrix.sum(axis=1), 1)
    joint = np.array(prior)[:, None] * matrix
    exact = float((joint * np.log(matrix / joint.sum(axis=0))).sum())
    assert found["information"] == pytest.approx(exact, abs=1e-9)
    assert found["guess"] == pytest.approx(joint.max(axis=0).sum(), abs=1e-9)
    flat = compute("[2, 5, 10, 16].map((K) => uninformedWorth(1.5, Array(K).fill(1 / K)))")
    for size, one in zip((2, 5, 10, 16), flat, strict=True):
        assert (one["information"], one["cleanLabels"]) == pytest.approx(subset_worth(1.5, n_classes=size), abs=1e-9)


def test_a_cluster_is_answered_as_the_library_answers_it(compute):
    """From the same counts, exactly; and the simulated means beside those of a simulation by the library."""
    counts, rows, epsilon = [700, 250, 45, 5], 1000, 2.0
    (matrix,) = compute(f"[clusterResponse({epsilon}, {counts}, {rows})]")
    half = labeldp.ClusterRR(epsilon / 2, split=0)  # what is left of epsilon after the counts
    assert np.allclose(matrix, half.channel(np.array(counts) / rows).matrix(), atol=1e-9)
    for given in ([0.6, 0.3, 0.1], [0.7, 0.3]):
        prior = np.array(given)
        (found,) = compute(
            f"[describeLabels('c', '', clusterChannels(1, {given}, 200), {{prior: {given}, epsilon: 1}})]"
        )
        one = np.repeat(np.arange(len(prior)), np.rint(200 * prior).astype(int))
        boxed = labeldp.SensitiveLabels(np.tile(one, 400), n_classes=len(prior))
        groups = np.repeat(np.arange(400), 200)
        channel = labeldp.privatize(boxed, labeldp.ClusterRR(1.0), groups=groups, rng=0).channel
        each = np.array([prior @ np.diagonal(channel.matrix(first)) for first in range(0, 80_000, 200)])
        # Both are means of independent clusters, 40 and 400; five standard errors of their difference (and seeds are fixed).
        assert abs(found["accuracy"] - each.mean()) <= 5 * each.std() * math.sqrt(1 / 40 + 1 / 400)


def test_shares_are_rounded_as_everywhere(compute):
    shares = [0.0, 0.5, 0.46212, 0.73106, 0.99999, 0.9997, 1.0, 1 / 3, 0.1234567]
    up, nearest = compute(f"[{shares}.map((s) => percent(s, true)), {shares}.map((s) => percent(s))]")
    assert up == [percent(share, up=True) for share in shares]
    assert nearest == [percent(share) for share in shares]
    bound, nats, entropy = compute(
        "[percent(advantageBound(1), true), informationBound(1, [0.5, 0.5]), informationBound(9, [1, 1].map((x) => x / 2))]"
    )
    assert bound == "46.3%"
    assert nats == pytest.approx(most_information(1.0), abs=1e-12)
    assert entropy == pytest.approx(math.log(2), abs=1e-12)


def test_a_broken_script_is_caught(compute):
    """The comparison can fail: without the margin of the odds numbers still agree, with twice the odds they do not."""
    (right,) = compute("[worth(randomizedResponse(1, [0.5, 0.5]), [0.5, 0.5]).information]")
    assert right == pytest.approx(response_worth(1.0, [0.5, 0.5]).information, abs=1e-9)
    (wrong,) = compute("[worth(randomizedResponse(1.01, [0.5, 0.5]), [0.5, 0.5]).information]")
    assert wrong != pytest.approx(response_worth(1.0, [0.5, 0.5]).information, abs=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": 11.0},
        {"n_classes": 1},
        {"sharpness": -1.0},
        {"rows": 5},
        {"k": 0},
        {"prior": (1.0,)},
        {"prior": (0.5, -0.5)},
        {"prior": (0.0, 0.0)},
        {"prior": (0.1,) * 17},
    ],
    ids=str,
)
def test_settings_outside_the_sliders_are_refused(wrong: dict[str, Any]):
    with pytest.raises(LabelDPError, match=next(iter(wrong))):
        Settings(**wrong)


# --------------------------------------------------------------------------------------------------------- a release


def test_a_release_gives_its_classes_rows_and_shares(tmp_path):
    labels = labeldp.SensitiveLabels(np.repeat(["a", "<b>", "c"], [3000, 2000, 1000]), classes=["a", "<b>", "c"])
    labeldp.privatize(labels, labeldp.RandomizedResponse(2.0), rng=1).save(tmp_path / "release")
    found = settings_of_release(tmp_path / "release")
    assert (found.rows, found.epsilon, found.names) == (6000, 2.0, ("a", "<b>", "c"))
    # The likeliest rates are the counts through the inverse channel: their standard error here is below 0.012.
    assert np.abs(np.array(found.prior) - [1 / 2, 1 / 3, 1 / 6]).max() < 0.06
    assert "Nothing was spent" in found.source
    text = explorer_page(found)
    assert "<b>" not in text
    assert "\\u003cb>" in text


def test_a_release_that_the_page_cannot_show_is_refused(tmp_path):
    many = labeldp.SensitiveLabels(np.arange(40) % 20, n_classes=20)
    labeldp.privatize(many, labeldp.RandomizedResponse(2.0), rng=1).save(tmp_path / "many")
    with pytest.raises(LabelDPError, match="16 classes"):
        settings_of_release(tmp_path / "many")


def test_what_stands_in_a_name_is_not_filled_in():
    """A class called like a place of the template stays a name: it does not bring the script into the data."""
    text = explorer_page(Settings(prior=(0.5, 0.5), names=("{script}", "</script><script>alert(1)</script>")))
    assert text.count("<script") == 2
    start = re.search(r'id="start">(.*?)</script>', text)[1]
    assert json.loads(start)["names"][0] == "{script}"


# ------------------------------------------------------------------------------------------------------- the command


def test_command_writes_one_file_and_opens_it(monkeypatch, tmp_path):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["explore", "--prior", "0.6,0.3,0.1", "--rows", "5000"])
    page = tmp_path / "labeldp-explorer.html"
    assert (done.exit_code, opened) == (0, [page.as_uri()])
    assert '"rows": 5000' in page.read_text()
    done = CliRunner().invoke(app, ["explore", "--classes", "3", "--to", "other.html", "--no-browser", "--json"])
    assert json.loads(done.stdout)["address"] == (tmp_path / "other.html").as_uri()
    assert len(opened) == 1


@pytest.mark.parametrize(
    "line",
    ["--prior a,b", "--prior 0.5,0.5 --classes 2", "--epsilon 99", "--release nowhere", "--release . --prior 1,1"],
)
def test_bad_lines_are_refused(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["explore", "--no-browser", *line.split()])
    assert done.exit_code != 0
    assert not list(tmp_path.iterdir())


def test_only_an_older_explorer_is_replaced(tmp_path):
    """What somebody else wrote stays, whatever it is called: a slip of the name must not cost a table or a report."""
    written = tmp_path / "page.html"
    for rows in ("10", "20"):
        assert CliRunner().invoke(app, ["explore", "--no-browser", "--rows", rows, "--to", str(written)]).exit_code == 0
    assert '"rows": 20' in written.read_text()
    table = tmp_path / "people.csv"
    table.write_text("age,ill\n1,no\n")
    for wrong in (table, tmp_path):
        done = CliRunner().invoke(app, ["explore", "--no-browser", "--to", str(wrong)])
        assert "must be a new file" in str(done.exception) + done.output
        assert done.exit_code != 0
    assert table.read_text() == "age,ill\n1,no\n"


def test_contrast_of_what_is_coloured():
    """Numbers on a full cell (28 % of the series colour), and the pressed button."""
    for palette, series in ((LIGHT, SERIES_LIGHT[0]), (DARK, SERIES_DARK[0])):
        assert contrast(palette["ink"], mixed(series, palette["ground"], 0.28)) >= 4.5
        assert contrast(palette["ground"], palette["link"]) >= 4.5


def mixed(colour: str, ground: str, share: float) -> str:
    parts = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


# ------------------------------------------------------------------------------------------------------ the browser


@pytest.fixture
def address(tmp_path) -> str:
    place = tmp_path / "explorer.html"
    place.write_text(explorer_page(), encoding="utf-8")
    return place.as_uri()


def open_explorer(tab: Any, url: str, **view: Any) -> None:
    tab.open(url, **view)
    tab.until("document.documentElement.dataset.drawn !== undefined")


ACCURACY = "document.querySelector('#rows-shown tr:nth-child({row}) td').textContent"


def test_sliders_buttons_and_the_address_by_real_input(address, tab):
    open_explorer(tab, address)
    plain = labeldp.RandomizedResponse(1.0, n_classes=5).channel().expected_accuracy()
    assert tab.value(ACCURACY.format(row=1)) == percent(float(plain))
    assert tab.value("document.querySelectorAll('figure svg.static').length") == 3
    # A click near the right end of the slider drags epsilon up; the page then shows what the library says there.
    tab.press_at("#epsilon", 0.9)
    tab.until("document.getElementById('epsilon-value').textContent !== '1'")
    epsilon = float(tab.value("document.getElementById('epsilon').value"))
    assert epsilon > 5
    expected = float(labeldp.RandomizedResponse(epsilon, n_classes=5).channel().expected_accuracy())
    tab.until(f"{ACCURACY.format(row=1)} === '{percent(expected)}'")
    # The keyboard moves the number of classes by one, and the button of another mechanism shows its channel.
    tab.value("document.getElementById('n_classes').focus()")
    tab.press_key("ArrowRight", 39)
    tab.until("document.querySelectorAll('#channel tbody tr').length === 6")
    tab.press_at(".tabs button:nth-child(3)")
    tab.until("document.querySelector('#channel caption').textContent.includes('RRWithPrior')")
    # What was chosen stands in the address; whoever opens it sees the same, and a changed one is followed.
    tab.until(f"location.hash.includes('epsilon={epsilon:g}&n_classes=6')")
    shared = tab.value("document.getElementById('address').href")
    assert shared == tab.value("location.href")
    tab.value("location.hash = '#epsilon=2&prior=0.5,0.3,0.2&rows=77'")
    tab.until("document.querySelectorAll('#channel tbody tr').length === 3")
    assert tab.value("document.getElementById('n_classes').disabled")
    assert tab.value("document.getElementById('n_classes-value').textContent") == "3"
    assert "50%" in tab.value("document.getElementById('prior-words').textContent")
    tab.open("about:blank")
    open_explorer(tab, shared)
    assert tab.value(ACCURACY.format(row=1)) != percent(float(plain))
    assert tab.value("document.getElementById('n_classes').value") == "6"
    # A prior that is none is said to be none.
    tab.value(
        "(() => { const e = document.getElementById('prior'); e.value = 'much'; e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    tab.until("document.getElementById('fault').textContent.includes('numbers')")
    tab.press_at("button[type=reset]")
    tab.until(f"{ACCURACY.format(row=1)} === '{percent(float(plain))}'")
    assert tab.complaints() == []
    outside = [url for url in tab.requested() if not url.startswith((address, "data:", "about:"))]
    assert outside == []


def test_nothing_but_its_own_script_runs(address, tab, tmp_path):
    """A script that somebody adds to the file is refused by the policy; the page still draws."""
    text = explorer_page().replace("</main>", '<script>document.title = "ran"</script></main>')
    (tmp_path / "changed.html").write_text(text, encoding="utf-8")
    open_explorer(tab, (tmp_path / "changed.html").as_uri())
    assert tab.value("document.title") == "labeldp explorer"
    assert tab.complaints() != []


@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_360_pixels_and_has_names_for_everything(address, tab, dark):
    open_explorer(tab, address + "#n_classes=16", width=360, height=800, dark=dark)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert tab.value("innerWidth") == 360
    assert tab.value(fits)
    assert tab.value("document.querySelectorAll('#channel tbody tr').length") == 16
    # The box that scrolls has a shadow at its edge.
    assert "gradient" in tab.value("getComputedStyle(document.getElementById('channel')).backgroundImage")
    # The broken twin: without its scrolling box the table of sixteen classes would overflow.
    tab.value("document.getElementById('channel').style.overflow = 'visible'")
    assert not tab.value(fits)
    assert tab.value("[...document.querySelectorAll('input')].filter((e) => !e.labels.length).length") == 0
    small = (
        "[...document.querySelectorAll('button, input')].filter((e) => e.getBoundingClientRect().height < 24)"
        ".map((e) => e.id)"
    )
    assert tab.value(small) == []  # WCAG 2.2: a target is at least 24 pixels high
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    names = [
        node["name"]["value"] for node in tree if node["role"]["value"] in {"slider", "button", "table", "textbox"}
    ]
    assert len(names) >= 4 + 5 + 2
    assert all(names)
    ground = (DARK if dark else LIGHT)["ground"]
    colour = tab.value("getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb({}, {}, {})".format(*(int(ground[i : i + 2], 16) for i in (1, 3, 5)))
    assert tab.complaints() == []
