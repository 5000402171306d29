"""The demo: privacy numbers never too small, a table of 80 columns, and a report without a banner."""

from __future__ import annotations

import io
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from labeldp import demo
from labeldp.demo import demo_page, demo_table
from labeldp.guarantee import advantage_bound, best_guess
from labeldp.report.words import percent


@given(st.just(0.0) | st.floats(1e-6, 50.0))
def test_privacy_numbers_are_exact_and_rounded_up(epsilon: float):
    with mpmath.workdps(50):
        odds = mpmath.exp(mpmath.mpf(epsilon))
        exact, guess = mpmath.expm1(mpmath.mpf(epsilon)) / (odds + 1), odds / (odds + 1)
        assert advantage_bound(epsilon) >= exact or advantage_bound(epsilon) == 1.0
        assert best_guess(epsilon) >= guess or best_guess(epsilon) == 1.0
        # A margin of 2^-50 (9e-16) on a tanh that is right to 2 ulp (4e-16), twice for the guess.
        assert advantage_bound(epsilon) - exact < 2e-15
        assert best_guess(epsilon) - guess < 3e-15
        # Rounding up forgives 1e-10 of a percent, so that 46.3 exactly is not shown as 46.4.
        assert float(percent(advantage_bound(epsilon), up=True).rstrip("%")) >= 100 * exact - 2e-10


def test_no_privacy_hides_nothing():
    assert advantage_bound(math.inf) == best_guess(math.inf) == 1.0
    assert percent(1.0, up=True) == "100%"


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> demo.DemoResult:
    """The demo on its smaller set at two epsilons: the whole one takes a quarter of a minute."""
    told: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SETS", ("digits",))
        patch.setattr(demo, "EPSILONS", (1.0, 4.0))
        result = demo.run_demo(progress=lambda share, _: told.append(share), out_dir=tmp_path_factory.mktemp("demo"))
    assert told == sorted(told)
    assert told[-1] == 1.0
    return result


def test_rows(small: demo.DemoResult):
    assert len(small.rows) == 1 + 2 * 3
    for row in small.rows:
        assert row.advantage == advantage_bound(row.epsilon)
    private = [row for row in small.rows if row.method != demo.NO_PRIVACY]
    assert {row.method: row.trust for row in private} == {
        "randomized response": "no one",
        "two stages": "no one",
        "cluster prior": "a curator",
    }
    assert {round(row.epsilon, 9) for row in private} == {1.0, 4.0}
    assert all(row.epsilon <= 4.0 for row in private)
    # Secure noise: no seed to rely on. In 100 runs each method's accuracy had a mean of 96 to 97, a standard deviation
    # of 0.5 to 0.7 and a minimum of 94; 60 is fifty deviations below. Chance is 10.
    assert min(row.accuracy for row in private if row.epsilon > 3) > 60


def test_table_fits_80_columns(small: demo.DemoResult):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(demo_table(small.rows))
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("a curator", "no one", "46.3%", "73.2%", "declared public", "none"):
        assert word in text


def test_report(small: demo.DemoResult):
    assert small.html_path.name == "labeldp-demo-report.html"
    text = small.html_path.read_text(encoding="utf-8")
    assert "Not private." not in text  # the noise is secure
    assert "declared public" in text
    assert "together would cost epsilon 15," in text  # 3 methods at 1 and at 4
    assert len(text) < 60_000
    assert demo_page(small.rows) == text
