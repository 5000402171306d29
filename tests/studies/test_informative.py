"""The study `informative`: the linear program is the best, the shares are what they must be, and the committed result says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labeldp.mechanisms import most_information, response_worth
from studies import read_result
from studies.informative import (
    BEST,
    BLIND,
    DIGITS,
    EPSILONS,
    LOSS,
    MECHANISMS,
    ONE_RR,
    ONE_SETS,
    PRIORS,
    RESPONSE,
    SETS,
    Case,
    Informative,
    best_information,
    find,
    information,
    name_prior,
)

RESULT = Path(__file__).parents[2] / "studies" / "results" / "informative" / "result.json"
PRIOR = np.array([0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01])


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_no_mechanism_exceeds_the_program_nor_the_program_the_bound(epsilon: float) -> None:
    best = best_information(PRIOR, epsilon)
    assert best <= most_information(epsilon) + 1e-9  # the solver's own tolerance
    found = {name: information(name, PRIOR, epsilon) for name in MECHANISMS if name != BEST}
    assert all(0.0 <= nats <= best + 1e-9 for nats in found.values())
    assert found[SETS] >= 0.98 * best
    assert epsilon > 2 or found[BLIND] > found[RESPONSE]  # above, its size is the best for two labels, not for a prior
    assert found[RESPONSE] == pytest.approx(
        response_worth(epsilon, PRIOR).information, rel=1e-9
    )  # two sums of one thing


def test_a_quick_run_measures_models() -> None:
    """One seed of a small simulation shows that it runs; which is better is for the whole study to say."""
    study = Informative(quick=True)
    loss = [study.run_case(Case(table=LOSS, setting=way, epsilon=2.0), 0)[0].value for way in (ONE_RR, ONE_SETS)]
    assert all(0 < value < 1000 for value in loss)
    (right,) = study.run_case(Case(table=DIGITS, setting=ONE_SETS, epsilon=4.0), 0)
    assert right.value > 80  # 10 by guessing, 97 without privacy


def test_the_committed_result() -> None:
    rows = read_result(RESULT).rows
    for accuracy in PRIORS:
        for epsilon in EPSILONS:
            values = {name: find(rows, name_prior(accuracy), name, epsilon).mean for name in MECHANISMS}
            assert values[BEST] == pytest.approx(100.0)
            assert all(
                value <= values[SETS] + 1e-9 for name, value in values.items() if name != BEST
            )  # sums of doubles
            assert values[SETS] > 95.0
