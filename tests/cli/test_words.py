"""What a command says about a promise, in numbers and in words: each against an independent computation."""

from __future__ import annotations

import math

import pytest

from labeldp.guarantee import Guarantee, advantage_bound, best_guess
from labeldp.report.words import in_words, percent


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 800.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
def test_advantage_formula(epsilon, delta):
    E = math.exp(min(epsilon, 700))
    assert advantage_bound(epsilon, delta=delta) == pytest.approx((E - 1 + 2 * delta) / (E + 1), rel=1e-12)
    assert best_guess(epsilon) == pytest.approx(E / (1 + E), rel=1e-12)


def test_advantage_is_that_of_the_best_test_on_randomized_response():
    # Two labels, keep E / (E + 1): guess what was released; right E / (E + 1), so the advantage is exact here.
    E = math.e
    assert advantage_bound(1.0) == pytest.approx(E / (E + 1) - 1 / (E + 1), rel=2e-15)  # rounded up by 2^-50


def test_percentages_never_understate_a_risk():
    for share in (0.0, 0.4621, 0.73106, 0.9991, 0.99999, 0.9999999):
        shown = float(percent(share, up=True).rstrip("%")) / 100
        assert shown >= share - 1e-9
        assert (shown == 1.0) == (share > 0.99999999)


def test_words_for_the_ends():
    assert "nothing is hidden" in in_words(math.inf)
    assert "nothing about a label" in in_words(0.0)


def test_a_guarantee_that_is_not_pure_is_told_at_its_delta():
    from labeldp.report.words import promise_facts

    facts = promise_facts(Guarantee.zcdp(0.1))
    assert facts["delta"] == 1e-5
    assert 0 < facts["epsilon"] < math.inf
    assert promise_facts(Guarantee.pure(math.inf))["epsilon"] == math.inf


def test_help_paragraphs_become_lines_and_keep_their_indent():
    from labeldp.cli.screen import reflow

    assert reflow("One.\n\n    Two\n    lines.\n\n      an example") == "One.\n\nTwo lines.\n\n  an example"
