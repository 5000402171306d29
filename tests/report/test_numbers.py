"""What one number can be guessed to, against every guess that there is; and the page about a release of numbers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import labeldp
from labeldp.report.rates import channel_facts, guess_errors, number_facts
from labeldp.report.release_page import release_page


def test_the_best_guess_is_the_best_of_all() -> None:
    """Every function from answers to levels is tried."""
    channel = labeldp.UnbiasedResponse(1.0, bounds=(0, 3), grid="integers", outputs=5).channel()
    table = channel.transition[0][:, channel.transition[0].max(axis=0) > 0]
    assert table.shape[1] <= 8
    joint, levels = table / 4, channel.levels
    tried = [
        sum((joint[:, o] * np.abs(levels - levels[g])).sum() for o, g in enumerate(guess))
        for guess in itertools.product(range(4), repeat=table.shape[1])
    ]
    assert channel_facts(channel).off_after == pytest.approx(min(tried), rel=1e-12)
    assert guess_errors(joint, levels) == pytest.approx(min(tried), rel=1e-12)
    hits = [
        sum(joint[g, o] for o, g in enumerate(guess)) for guess in itertools.product(range(4), repeat=table.shape[1])
    ]
    assert channel_facts(channel).hit_after == pytest.approx(max(hits), rel=1e-12)
    assert channel_facts(channel).off_before == pytest.approx(min(np.abs(levels - one).mean() for one in levels))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_guesses_get_no_better_than_epsilon_allows(epsilon: float) -> None:
    facts = channel_facts(labeldp.UnbiasedResponse(epsilon, bounds=(-10, 10)).channel())
    assert facts.off_before * np.exp(-epsilon) <= facts.off_after <= facts.off_before
    assert facts.hit_before <= facts.hit_after <= np.exp(epsilon) * facts.hit_before


def test_groups_count_by_their_rows_and_the_page_says_it(tmp_path: Path) -> None:
    mechanism = labeldp.UnbiasedResponse(1.0, bounds=(0, 10), grid=5)
    laws = np.array([[0.9, 0.025, 0.025, 0.025, 0.025], [0.2] * 5])
    groups = np.array([0] * 30 + [1] * 10)
    values = np.linspace(0, 10, 40)
    release = labeldp.privatize(labeldp.SensitiveLabels(values, bounds=(0, 10)), mechanism, prior=laws, groups=groups)
    parts = [channel_facts(mechanism.channel(law)) for law in laws]
    found = number_facts(release)
    assert found is not None
    assert found.off_after == pytest.approx(0.75 * parts[0].off_after + 0.25 * parts[1].off_after)
    release.save(tmp_path / "out")
    page = release_page(tmp_path / "out")
    assert found.sentence in page
    assert "in [0, 10], rounded without bias to 5 levels" in page
    assert "classes" not in page.split("How numbers were changed")[1].split("</section>")[0]
