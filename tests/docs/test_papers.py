"""docs/papers.md is what scripts/papers.py makes of the committed results, and its papers' numbers are those of the studies."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest

from studies import images, more_images, ratings


@pytest.fixture(scope="module")
def script(repository: Path):
    return runpy.run_path(str(repository / "scripts" / "papers.py"))


def test_the_page_is_up_to_date(script, repository: Path):
    made, page = script["make_page"](), (repository / "docs" / "papers.md").read_text(encoding="utf-8")
    assert made == page, "run: python scripts/papers.py"


def test_the_printed_numbers_are_those_of_the_studies(script):
    """Typed twice, for cells that no study repeats: they must agree where both have one."""
    tables = {"cifar10": script["TABLE_1"], **script["TABLE_4"]}
    for (data, setting), cells in images.PAPER.items():
        for epsilon, value in cells.items():
            line = "LP-1ST" if math.isinf(epsilon) else setting
            assert tables[data][line][epsilon] == value
    for name in ("LP-1ST", "LP-2ST"):
        treatment = next(one for one in ratings.TREATMENTS if one.setting == f"NCF, {name}")
        for epsilon, value in treatment.paper.items():
            assert script["TABLE_3"][name][epsilon] == value
    assert set(more_images.PAPER) == {
        (one, line) for one in ("kmnist", "cifar100") for line in ("LP-1ST", "LP-2ST", "no privacy")
    }


def test_every_numbered_thing_of_the_papers_has_a_line(repository: Path):
    page = (repository / "docs" / "papers.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## [^\n]*\{ #([a-z-]+) \}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    wanted = {
        "deep-learning": [
            *(f"Algorithm {i}" for i in range(1, 7)), *(f"Table {i}" for i in range(1, 6)), *(f"Figure {i}" for i in range(1, 6)),
            "Theorem 3", "Theorem 5", "Theorem 17", "Corollary 2", "Corollary 6", "Proposition 11", "Observation 4",
        ],
        "clustering": [
            *(f"Theorem {i}" for i in range(1, 7)), "Corollary 1", "Corollary 2", "Algorithm 1", "Algorithm 2", "Table 1",
            "Figure 1", "Figure 2", "Definition 1", "Definition 2",
        ],
        "selection": [
            *(f"Algorithm {i}" for i in range(1, 4)), "Algorithms 4, 5", "Theorem 8", "Theorem 11", "Theorem 12", "Theorem 20",
            "Proposition 7", "Corollary 9", "Corollary 19", "Lemma 10", "Lemma 18", "Table 1", "Table 2", "Figure 1", "Example 13",
            "Example 14",
        ],
        "dimension": [*(f"Theorem {i}" for i in range(1, 6)), "Lemma 1", "Lemma 2"],
    }  # fmt: skip
    for section, items in wanted.items():
        index = sections[section].split("\n### ", maxsplit=1)[0]
        assert [item for item in items if item not in index] == []
