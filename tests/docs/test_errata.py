"""The papers' errors in docs/proofs.md: every row names a test that exists, and those that belong to no one module are here."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from labeldp.mechanisms import RRWithPrior
from labeldp.selection.stable import gaussian_offset

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def errata_rows(page: str) -> list[str]:
    """The rows of the table of errors, without its head."""
    part = page.split("## Where the papers are wrong or loose")[1]
    return [line for line in part.splitlines() if line.startswith("|")][2:]


def missing_tests(rows: list[str], repository: Path) -> list[str]:
    """What is wrong with the rows: no test named, or one that is not there."""
    faults = []
    for row in rows:
        named = NAMED.findall(row)
        if not named:
            faults.append(row)
        for file, test in named:
            path = repository / file
            tree = ast.parse(path.read_text()) if path.is_file() else ast.parse("")
            if not any(isinstance(node, ast.FunctionDef) and node.name == test for node in ast.walk(tree)):
                faults.append(f"{file}::{test}")
    return faults


def test_every_erratum_names_a_test_that_exists(repository: Path):
    rows = errata_rows((repository / "docs" / "proofs.md").read_text())
    assert len(rows) >= 11
    assert missing_tests(rows, repository) == []


def test_a_row_without_a_test_would_be_found(repository: Path):
    """The broken twins: no name, a test that is gone, a file that is gone."""
    twins = [
        "| a | b | c | seen |",
        "| a | `tests/docs/test_errata.py::test_gone` |",
        "| a | `tests/gone.py::test_a` |",
    ]
    assert len(missing_tests(twins, repository)) == 3


def test_a_model_of_its_own_stage_gives_the_label_away():
    """Algorithm 3, line (b)i, as printed: the prior of stage t from the model of stage t, which has seen this label.

    A model that has learned its labels by heart is a prior that is certain of them. RRWithPrior then returns the label, whatever
    epsilon is: the two rows, of which one prior goes with each label, exclude each other. With one prior for both, as after
    stage t - 1, the ratio is e^epsilon.
    """
    epsilon = 1.0
    by_heart = [RRWithPrior(epsilon).channel(prior=np.eye(3)[[label]]).matrix(0)[label] for label in (0, 1)]
    assert [row.argmax() for row in by_heart] == [0, 1]
    assert by_heart[0].max() == by_heart[1].max() == 1.0  # no ratio bounds this
    earlier = RRWithPrior(epsilon).channel(prior=np.array([[0.5, 0.4, 0.1]])).matrix(0)
    seen = earlier.max(axis=0) > 0
    assert (earlier[:, seen].max(axis=0) <= math.exp(epsilon) * earlier[:, seen].min(axis=0)).all()


def test_the_quantile_of_the_stability_test():
    """[TK, Algorithm 2] takes sqrt(2 log(1/delta_t)) standard deviations: 6.438 at 1e-9, where 5.998 do."""
    chance = 1e-9
    assert round(math.sqrt(2 * math.log(1 / chance)), 3) == 6.438
    assert round(float(norm.isf(chance)), 3) == 5.998
    # Ours, for discrete noise of 10,000: an integer, so within 1e-4 of it.
    assert gaussian_offset(1e4, chance) / 1e4 == pytest.approx(5.998, abs=2e-4)


def stable_law(gaps: list[int], *, scale: float = 50.0, sigma: float = 60.0, chance: float = 1e-9) -> np.ndarray:
    """[TK, Algorithm 2] with Gaussian noise: Pr[the first set], Pr[the second set], Pr[anything else].

    Gap j wins if gap_j + N(0, scale^2) is the largest, and is released if gap_j + N(0, sigma^2) - sigma sqrt(2 log(1/delta_t))
    exceeds 1. The first integral is a sum over a fine grid: both integrands are smooth, and vanish at its ends.
    """
    grid, step = np.linspace(-700.0, 1500.0, 20_001, retstep=True)
    below = sum(norm.logcdf((grid - gap) / scale) for gap in gaps)
    released = []
    for gap in gaps[:2]:
        density = np.exp(below - norm.logcdf((grid - gap) / scale) + norm.logpdf(grid, gap, scale))
        passes = norm.cdf((gap - 1 - sigma * math.sqrt(2 * math.log(1 / chance))) / sigma)
        released.append(float(density.sum() * step * passes))
    return np.array([*released, 1 - sum(released)])


def composed_delta(epsilon: float, one: np.ndarray, two: np.ndarray, *, count: int) -> float:
    """The hockey-stick divergence of `count` draws of three outcomes, by a sum over all counts of them."""
    first, second = np.meshgrid(np.arange(count + 1), np.arange(count + 1), indexing="ij")
    inside = first + second <= count
    numbers = np.stack([first[inside], second[inside], count - first[inside] - second[inside]])
    ways = gammaln(count + 1) - gammaln(numbers + 1).sum(axis=0)
    loss = (np.log(one) - np.log(two)) @ numbers
    masses = np.exp(ways + np.log(one) @ numbers)
    return float((masses * np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))).sum())


def test_table_2_is_below_an_exact_lower_bound():
    """[TK, Table 2]: 600 queries to 800 teachers, 40 attributes, sigma_1 = 50, sigma = 60, delta_t = 1e-9, delta = 1e-6.

    The table says epsilon = 3.6. One teacher's record is replaced: he voted for attributes 1 and 3, and now for 2. Counts are
    (800, 400, 1) and then (799, 401, 0), and 0 for the others, in every query: the first gap falls from 400 to 398 and the
    second rises from 399 to 401. The mechanism as printed answers with the first attribute, with the first two, or with
    neither. Over 600 queries the exact delta at epsilon 6.36 is above 1e-6.
    """
    one, two = stable_law([400, 399, 1] + [0] * 36), stable_law([398, 401, 0] + [0] * 36)
    assert one.sum() == pytest.approx(1.0)
    assert composed_delta(6.36, one, two, count=600) > 1e-6
    assert composed_delta(3.6, one, two, count=600) > 5e-4  # hundreds of times what is claimed at 3.6
    # The sum is no accident of rounding: at epsilon 0 it is a total variation distance, the same both ways.
    both = [composed_delta(0.0, x, y, count=600) for x, y in ((one, two), (two, one))]
    assert both[0] == pytest.approx(both[1], rel=1e-9)
    assert both[0] < 1
