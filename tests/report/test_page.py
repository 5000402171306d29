"""The page: escaping, structure, contrast, size, and what a reader without eyes, scripts or colours gets."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from labeldp.errors import LabelDPError
from labeldp.plots import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, contrast, nice_ticks
from labeldp.report import Bars, Facts, Lines, Section, Series, Table, page, plot_file, plot_table, write_page
from labeldp.report.page import BANNER_COLOURS

LINES = Lines(
    title="Accuracy",
    series=(Series(name="plain", x=(0.5, 1.0, 2.0), y=(10.0, 20.0, 40.0), spreads=(1.0, 2.0, 0.0)),),
    x_title="epsilon",
    y_title="%",
    alt="rises from 10 to 40",
    x_log=True,
    references=(("no privacy", 50.0),),
)
BARS = Bars(title="Bars", labels=("a", "b <c>"), values=(1.0, 2.0), spreads=(0.1, 0.0), x_title="%", alt="a 1, b 2")
TABLE = Table(caption="Cells", columns=("name", "value"), rows=(("x", "1"), ("y", "2")), numeric=(1,))
SECTIONS = [
    Section(title="Words", blocks=("Plain words.", Facts(pairs=(("seeds", "0, 1"),)))),
    Section(title="Words", blocks=(TABLE,)),
    Section(title="Plots", blocks=(LINES, BARS)),
]
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Balance(HTMLParser):
    """Collects tags and attributes, and fails on an element closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Balance:
    reader = Balance()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_page_is_well_formed_and_asks_for_nothing():
    reader = parsed(page("A title", sections=SECTIONS))
    for tag, attributes in reader.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            target = attributes.get(name) or ""
            assert target == "data:," or not target or target.startswith("#"), (tag, target)
    policy = [a["content"] or "" for t, a in reader.tags if t == "meta" and "http-equiv" in a]
    assert policy[0].startswith("default-src 'none'")


def test_page_speaks_to_screen_readers():
    reader = parsed(page("A title", sections=SECTIONS))
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("h1") == tags.count("main") == 1
    assert tags.count("table") == tags.count("caption") == 3  # the table, and the numbers of two plots
    anchors = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(anchors) == len(set(anchors))  # two sections of one name have two anchors
    referred = [a["aria-labelledby"] for _, a in reader.tags if "aria-labelledby" in a]
    referred += [(a["href"] or "")[1:] for t, a in reader.tags if t == "a"]
    assert set(referred) <= set(anchors)
    labels = [a.get("aria-label") or "" for t, a in reader.tags if t == "svg"]
    assert "rises from 10 to 40" in labels[0]
    assert "a 1, b 2" in labels[1]
    assert [a["scope"] for t, a in reader.tags if t == "th"].count("row") == 2 + 3 + 2
    assert next(a["lang"] for t, a in reader.tags if t == "html") == "en"
    assert "Skip to the content" in page("A title", sections=SECTIONS)


def test_everything_is_escaped():
    nasty = '<script>alert("x")</script>&'
    table = Table(caption=nasty, columns=(nasty,), rows=((nasty,),))
    bars = Bars(title=nasty, labels=(nasty,), values=(1.0,), x_title=nasty, alt=nasty)
    series = Series(name=nasty, x=(1.0,), y=(1.0,))
    lines = Lines(title=nasty, series=(series,), x_title=nasty, y_title=nasty, alt=nasty, references=((nasty, 1.0),))
    blocks = (nasty, table, bars, lines, Facts(pairs=((nasty, nasty),)))
    text = page(nasty, sections=[Section(title=nasty, blocks=blocks)], lead=nasty)
    assert "<script" not in text
    parsed(text)
    ET.fromstring(plot_file(bars).split("\n", 1)[1])
    ET.fromstring(plot_file(lines).split("\n", 1)[1])


def test_banner_stands_on_seeded_pages_alone():
    seeded = page("t", sections=SECTIONS, seeded=True)
    assert "Not private." in seeded
    assert seeded.index("Not private.") < seeded.index("<h1>")
    assert "Not private." not in page("t", sections=SECTIONS)


def test_a_page_is_kilobytes_and_has_no_script():
    text = page("t", sections=SECTIONS)
    assert "<script" not in text
    assert len(text) < 30_000


def test_contrast_holds_in_light_and_dark():
    for palette, series in ((LIGHT, SERIES_LIGHT), (DARK, SERIES_DARK)):
        for ground in ("ground", "panel"):
            assert contrast(palette["ink"], palette[ground]) >= 7
            assert contrast(palette["soft"], palette[ground]) >= 7
            assert contrast(palette["link"], palette[ground]) >= 7
        assert min(contrast(colour, palette["ground"]) for colour in series) >= 4.5
    assert contrast(*BANNER_COLOURS) >= 7
    assert contrast("#777777", "#ffffff") < 4.5  # the measure can fail: a well-known grey that is just too light


def test_numbers_of_a_plot_are_all_in_its_table():
    assert plot_table(LINES).rows == (("0.5", "10", "50"), ("1", "20", "50"), ("2", "40", "50"))
    assert plot_table(BARS).rows == (("a", "1.00", "0.10"), ("b <c>", "2.00", "0.00"))


def test_drawing_puts_points_where_they_belong():
    root = ET.fromstring(plot_file(LINES).split("\n", 1)[1])
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    xs, ys = [float(c.get("cx", 0)) for c in circles], [float(c.get("cy", 0)) for c in circles]
    # 0.5, 1, 2 are equally far apart on a logarithmic axis; coordinates are written to 0.1.
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert (ys[0] - ys[1]) * 2 == pytest.approx(ys[1] - ys[2], abs=0.4)
    # A pointer that rests on a point, a bar or a reference line is told its value.
    assert [next(iter(c)).text for c in circles] == ["plain: 10 at 0.5", "plain: 20 at 1", "plain: 40 at 2"]


def test_every_mark_tells_its_value():
    assert "<title>no privacy: 50</title>" in plot_file(LINES)
    root = ET.fromstring(plot_file(BARS).split("\n", 1)[1])
    assert [next(iter(e)).text for e in root.iter() if e.tag.endswith("rect")] == ["a: 1 (sd 0.1)", "b <c>: 2"]


def test_numbers_on_an_axis_that_would_touch_are_left_out():
    crowded = Series(name="s", x=(1.0, 1.001, 1.002, 100.0), y=(1.0, 2.0, 3.0, 4.0))
    plot = Lines(title="t", series=(crowded,), x_title="x", y_title="y", alt="a", x_log=True)
    numbers = [e.text for e in ET.fromstring(plot_file(plot).split("\n", 1)[1]).iter() if e.tag.endswith("text")]
    assert "1.002" in numbers
    assert "100" in numbers
    assert "1.001" not in numbers


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.123, 0.125), (-3.0, 98.0), (5.0, 5.0), (0.0, 1e6)])
def test_ticks_cover_the_data_and_are_few(low: float, high: float):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= high - 1e-9
    assert 3 <= len(ticks) <= 8


def test_mistakes_are_told():
    with pytest.raises(LabelDPError, match=r"Table: `rows` must have 2 cells each, got 1 cells in row 0"):
        Table(caption="c", columns=("a", "b"), rows=(("x",),))
    with pytest.raises(LabelDPError, match="Series s"):
        Series(name="s", x=(1.0,), y=())
    with pytest.raises(LabelDPError, match="one value per label"):
        Bars(title="t", labels=("a",), values=(), x_title="x", alt="x")


def test_page_is_written_whole_and_replaces_an_older_one(tmp_path):
    target = tmp_path / "deep" / "page.html"
    assert write_page(target, "one") == target
    write_page(target, "two")
    assert target.read_text() == "two"
    assert [p.name for p in target.parent.iterdir()] == ["page.html"]
