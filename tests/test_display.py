"""Cards of notebooks: true in every word, escaped, without a raw label, readable in light and dark; estimators warn of nothing."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
import sqlite3
import sys
import threading
import warnings
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import labeldp
from labeldp import display
from labeldp.audit import Audit, canary_audit, channel_audit
from labeldp.audit.inference import accuracy_audit, label_inference
from labeldp.audit.results import Check
from labeldp.display import WARNING_COLOURS, card, percent
from labeldp.errors import LabelDPError
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit, advantage_bound, best_guess
from labeldp.plots import contrast
from labeldp.release import LabelCounts, measure

NASTY = '<script>alert("x")</script>'


class Words(HTMLParser):
    """The text of a card, its tags, and whether they are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style", "role", "scope"}  # nothing that runs, loads or names
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data + " | "


def words(value: object) -> str:
    """What the card of a value says; it must be well formed, and hold no script, style sheet or address."""
    found = Words(value._repr_html_())
    assert found.tags <= {"div", "dl", "dt", "dd", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert "url(" not in value._repr_html_()
    return found.words


@pytest.fixture
def ledger(tmp_path) -> labeldp.Ledger:
    return labeldp.Ledger(tmp_path / "spent.sqlite", budget=2.0)


def boxed(n: int = 60) -> labeldp.SensitiveLabels:
    classes = ["yes", "no", NASTY]
    return labeldp.SensitiveLabels(np.array(classes)[np.arange(n) % 3], classes=classes, name="illness")


def test_a_release_says_what_it_promises_and_what_it_stands_on(ledger):
    release = labeldp.privatize(boxed(), labeldp.RandomizedResponse(1.0), ledger=ledger)
    said = words(release)
    for text in (
        "Release of illness",
        "60 randomized labels",
        "yes, no, " + NASTY,  # as text: `words` refuses the tag
        release.guarantee.cost,
        release.guarantee.unit.sentence,
        f"at most {percent(best_guess(1.0), up=True)} after",
        "whoever holds the raw labels has seen them",
        f"entry {release.ledger_entry} of a ledger",
        "a secret key of the operating system",
    ):
        assert text in said, text
    assert "Not private" not in said
    seeded = labeldp.privatize(boxed(), labeldp.RandomizedResponse(1.0), rng=1)
    assert 'role="alert"' in seeded._repr_html_()
    assert "Not private" in words(seeded)
    assert SEEDED in words(seeded)
    assert "to no ledger" in words(seeded)


def test_a_release_of_persons_and_of_sets_is_called_what_it_is():
    persons = labeldp.privatize(boxed(), labeldp.RandomizedResponse(1.0), persons=np.arange(60) // 3)
    said = words(persons)
    assert "20 randomized labels of 60 rows; nothing was released about the others" in said
    assert "all labels of one person replaced" in said
    assert "between two versions of a person's labels" in said
    labels = labeldp.SensitiveLabels(np.arange(60) % 12, n_classes=12)
    assert "answers about labels" in words(labeldp.privatize(labels, labeldp.InformativeResponse(0.5)))


@pytest.mark.parametrize(
    ("promise", "said", "unsaid"),
    [
        (Guarantee.pure(0.0), "at most 50% after", "curator"),
        (Guarantee.pure(np.inf), "nothing is hidden", "at most"),
        (Guarantee.pure(1.0, trust=Trust.CURATOR), "a curator", "whoever holds the raw labels"),
        (Guarantee.pure(1.0, unit=Unit.RECORD_ADD_REMOVE), "whether a record was there", "one label"),
        (Guarantee.pure(0.5).for_persons(4), "epsilon = 0.5 at delta = 0", "Not private"),
        (Guarantee.zcdp(0.1), "at delta = 1e-05", "(pure)"),
    ],
    ids=["zero", "infinite", "curator", "record", "person", "zcdp"],
)
def test_a_guarantee_is_told_by_unit_trust_and_delta(promise, said, unsaid):
    assert said in words(promise)
    assert unsaid not in words(promise)


def test_the_ledger_tells_what_is_spent_and_left_and_a_broken_one_is_called_so(ledger):
    assert "no row yet" in words(ledger)
    labeldp.privatize(boxed(), labeldp.RandomizedResponse(0.7), ledger=ledger)
    measure(boxed(), LabelCounts(), epsilon=0.3, rng=2, ledger=ledger)
    said = words(ledger)
    assert re.search(r"illness \| 2 \| 1 \| 2 \| 1 \| one label replaced \| a curator", said)
    assert "1 of its releases had seeded noise" in said
    with contextlib.closing(sqlite3.connect(ledger.path)) as file, file:
        for (name,) in file.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            file.execute(f"drop trigger {name}")
        file.execute("delete from record where id = 2")
    assert "cannot be trusted" in words(ledger)
    with pytest.raises(LabelDPError):
        ledger.entries()


def test_many_label_sets_are_counted_not_listed(tmp_path):
    book = labeldp.Ledger(tmp_path / "many.sqlite")
    for number in range(15):
        book.charge(Guarantee.pure(0.1), label_set=f"set {number:02}", rows="0" * 64, n_rows=1, mechanism="m")
    assert "set 11" in words(book)
    assert "set 12" not in words(book)
    assert "and 3 more" in words(book)


def test_a_measurement_shows_noise_and_cost_and_no_raw_count():
    found = measure(boxed(), LabelCounts(), epsilon=0.5)
    assert found.noise in words(found)
    assert "1 x 3 whole numbers, noise included" in words(found)
    assert "trusts | a curator" in words(found)


def leaky(labels):
    return np.asarray(labels)


def test_audits_say_what_failed_and_what_passing_is_worth():
    failed = channel_audit(leaky, n_classes=2, n_draws=2000, claimed=1.0, seed=0)
    assert failed.rejected
    assert "FAILED: 1 of 1 checks" in words(failed)
    assert "or more, with confidence 95%" in words(failed)
    canary = canary_audit(lambda y: np.zeros((len(y), 2)), np.zeros(50, int), n_classes=2, references=0, claimed=1.0)
    passed = [
        canary,
        accuracy_audit(leaky, prior=[0.5, 0.5], claimed=0.5, n_draws=100),
        label_inference(np.full((20, 2), 0.5), np.arange(20) % 2, prior=[0.5, 0.5], claimed=1.0),
    ]
    for audit in passed:
        assert "Every check passed." in words(audit)
        assert "a passed one promises nothing" in words(audit)
    checks = (Check(name="fine", passed=True, detail="d"), Check(name=NASTY, passed=False, detail="e"))
    said = words(Audit(claims={"label_set": NASTY}, checks=checks, confidence=0.9, lower_bound=2.5))
    assert said.index("FAILED |") < said.index("passed |")  # the failed one first
    assert "epsilon is 2.5 or more, with confidence 90%" in said


def test_a_box_of_labels_shows_nothing():
    """The values of labels are in no card and in no other repr; the fixture's labels differ from the classes' names."""
    labels = labeldp.SensitiveLabels([0, 1, 1], n_classes=2, name="secret")
    assert not hasattr(labels, "_repr_html_")
    assert "contents hidden" in repr(labels)


def test_long_texts_of_others_are_cut_and_escaped():
    text = card(NASTY, rows=[(NASTY, "x" * 10_000)], warning=NASTY, columns=(NASTY,), table=[(NASTY,)])
    assert "<script" not in text
    assert unescape(text).count(NASTY) == 5
    assert len(text) < 8_000
    assert contrast(*WARNING_COLOURS) > 7


def test_one_rounding_for_estimates_and_one_for_bounds():
    assert percent(advantage_bound(1.0), up=True) == "46.3%"  # tanh(1/2) = 0.46212
    assert percent(0.46212) == "46.2%"


ROOMS = ("labeldp", "labeldp.features", "labeldp.learn", "labeldp.learn.convex", "labeldp.learn.ratings", "labeldp.nn")


def public_estimators() -> list[type]:
    found = {}
    for room in ROOMS:
        if room == "labeldp.nn":
            pytest.importorskip("torch")
        module = importlib.import_module(room)
        for name in module.__all__:
            one = getattr(module, name)
            if inspect.isclass(one) and issubclass(one, BaseEstimator):
                found[name] = one
    return [found[name] for name in sorted(found)]


def test_the_html_of_every_public_estimator_warns_of_nothing():
    """scikit-learn parses the docstring of an estimator for its HTML, and warns of headings that it does not know."""
    estimators = public_estimators()
    assert len(estimators) >= 22
    for kind in estimators:
        needed = [
            name
            for name, one in inspect.signature(kind).parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert kind.__name__ in kind(**dict.fromkeys(needed))._repr_html_()


def test_an_unknown_heading_would_be_seen():
    """The broken twin of the test above."""
    pytest.importorskip("sklearn", minversion="1.8")  # earlier versions do not read docstrings for the HTML

    class Odd(BaseEstimator):
        """Odd.

        Parameters
        ----------
        a : int
            One.

        Guarantee
        ---------
        None.
        """

        def __init__(self, a=1):
            self.a = a

    with pytest.warns(UserWarning, match="Unknown section"):
        Odd()._repr_html_()


# ------------------------------------------------------------------------------------------------- how far work is


class Stream(io.StringIO):
    """Standard error as a test wants it."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "kind", "shown"),
    [(True, "xterm", True), (True, "dumb", False), (True, "unknown", False), (False, "xterm", False)],
)
def test_bars_need_a_terminal_that_overwrites_its_lines(monkeypatch, terminal, kind, shown):
    """A pipe has none whatever colours are forced: a log of control characters is nobody's wish."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Stream(terminal=terminal))
    assert display.can_show_bars() is shown


def test_no_other_place_decides_it():
    """`isatty` is asked for bars in display alone; elsewhere for other things (a width, a question), each named here."""
    root = Path(display.__file__).parent
    others = {"display.py", "cli/screen.py", "cli/tables.py", "cli/look.py"}
    asking = {str(one.relative_to(root)) for one in root.rglob("*.py") if "isatty()" in one.read_text(encoding="utf-8")}
    assert asking == others
    drawing = {
        str(one.relative_to(root)) for one in root.rglob("*.py") if "rich.progress" in one.read_text(encoding="utf-8")
    }
    assert drawing == {"display.py"}


def test_a_log_has_a_line_for_a_tenth_and_not_more_than_one_in_half_a_minute(monkeypatch):
    """400 steps of a second each: a tenth is due after 40 s. A step that stands still speaks after ten minutes."""
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    error = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", error)
    with display.open_bar("training", total=400) as told:
        for step in range(1, 401):
            now[0] += 1.0
            told(step, words=f"training: step {step}")
    lines = error.getvalue().splitlines()
    assert lines[:2] == ["training: step 40: 10 %, after 40 s", "training: step 80: 20 %, after 1 min 20 s"]
    assert len(lines) == 10
    assert error.getvalue().replace("\n", "").isprintable()
    with display.open_bar("reading", total=1000) as told:
        for _ in range(601):
            now[0] += 1.0
            told(1)
    assert error.getvalue().splitlines()[10:] == ["reading: 0 %, after 10 min 0 s"]
    with display.open_bar("counting") as told:
        now[0] += 31.0
        told(5000)
    assert error.getvalue().splitlines()[11:] == ["counting: 5,000 done, after 31 s"]


def test_short_work_leaves_a_log_alone(monkeypatch):
    monkeypatch.setattr(display.time, "monotonic", lambda: 0.0)
    error = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", error)
    with display.open_bar("training", total=3) as told:
        told(3)
    assert error.getvalue() == ""


def test_work_of_no_known_length_says_that_it_goes_on(monkeypatch):
    error = Stream(terminal=False)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(display, "LINE_SECONDS", 0.001)
    said = threading.Event()
    console = SimpleNamespace(print=lambda line, **_: (error.write(line + "\n"), said.set()))
    with display.open_spinner("reporting", console=console):
        assert said.wait(60)  # how busy the machine is decides when, not whether
    assert error.getvalue().startswith("reporting: still at work after ")


def test_a_terminal_has_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    error = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", error)
    with display.open_bar("training", total=2) as told:
        told(1, words="half")
    assert "half" in error.getvalue()
    assert "\x1b[" in error.getvalue()
