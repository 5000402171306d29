"""docs/papers.md is what scripts/papers.py makes of the committed results, and its papers' numbers are those of the studies."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from pathlib import Path

import pytest

from studies import StudyResult, StudyRow, encoder, images, more_images, networks, paper_figures

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "scripts")
)  # chapters of scripts/ import each other by their names

import papers
import papers_deep
import papers_parts


def test_the_page_is_up_to_date(repository: Path):
    made, page = papers.make_page(), (repository / "docs" / "papers.md").read_text(encoding="utf-8")
    assert made == page, "run: python scripts/papers.py"


def test_the_printed_numbers_of_studies_agree():
    """Typed twice, where several studies repeat a cell."""
    for (data, setting), cells in images.PAPER.items():
        for epsilon, value in cells.items():
            line = "LP-1ST" if math.isinf(epsilon) else setting
            assert paper_figures.PRINTED[data][line][epsilon] == value
    for data, known in networks.PAPER.items():
        for epsilon, value in known.items():
            line = "LP-1ST" if math.isinf(epsilon) else "LP-2ST"
            assert paper_figures.PRINTED[data][line][epsilon] == value
    for epsilon, value in encoder.PAPER.items():
        assert paper_figures.TABLE_1["LP-2ST, pre-trained"][epsilon] == value
    # Ghazi et al. 2021, Table 3.
    assert papers_deep.TABLE_3["LP-1ST"] == {1.0: 1.122, 2.0: 0.981, 3.0: 0.902, 4.0: 0.877, 8.0: 0.867}
    assert papers_deep.TABLE_3["LP-2ST"] == {1.0: 1.034, 2.0: 0.928, 3.0: 0.891, 4.0: 0.874, 8.0: 0.865}
    assert papers_deep.TABLE_3["no privacy"] == {math.inf: 0.868}
    assert set(more_images.PAPER) == {
        (one, line) for one in ("kmnist", "cifar100") for line in ("LP-1ST", "LP-2ST", "no privacy")
    }


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[str, StudyResult]:
    """The results that the page is made of; what a test puts here stands in for a committed one."""
    held: dict[str, StudyResult] = {}
    real = papers_parts.result_of
    monkeypatch.setattr(papers_parts, "result_of", lambda study: held.get(study) or real(study))
    return held


def make_result(name: str, rows: list[StudyRow], **facts) -> StudyResult:
    known = {"finished": "2026-01-02T03:04:05+00:00", "versions": {"labeldp": "0.0.9"}, **facts}
    return StudyResult(name=name, title="", paper="", measure="", rows=tuple(rows), findings=(), facts=known)


def row(table: str, setting: str, epsilon: float, value: float, trust: str = "no one") -> StudyRow:
    return StudyRow(table=table, setting=setting, epsilon=epsilon, trust=trust, values=(value,))


def line_of(text: str, start: str) -> list[str]:
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [part.strip() for part in found.strip("|").split("|")][1:]


def test_results_that_come_later_are_taken_wholly_or_in_part(results):
    results["networks"] = make_result(
        "networks",
        [
            row("cifar10", "fast-cnn, 60 minutes", 2.0, 81.5),
            row("cifar10, other times", "fast-cnn, 180 minutes", 2.0, 99.0),
            row("cifar10", "fast-cnn, 60 minutes, pretrained", 1.0, 71.25),
        ],
        partial=True,
        not_measured=["a", "b"],
    )
    results["encoder"] = make_result(
        "encoder", [row("cifar10", "auto, no one", 2.0, 91.5), row("cifar10", "auto, curator", 2.0, 98.0, "a curator")]
    )
    made = papers_deep.cifar_table()
    assert line_of(made, "ours: network end to end")[:5] == ["not yet", "81.50", "not yet", "not yet", ""]
    assert line_of(made, "ours: network pre-trained")[:3] == ["71.25", "", ""]
    assert line_of(made, "ours: best on a public encoder")[:2] == ["not yet", "91.50"]
    said = papers_parts.command("networks", "encoder")
    assert "`networks` is measured in part: 2 of its cases are open." in said
    assert "No result" not in said


def test_rows_of_two_studies_stand_in_one_table(results):
    table = "Table 1, cifar10"
    results["paper-stages"] = make_result(
        "paper-stages",
        [row(table, "LP-1ST", 3.0, 71.0), row(table, "LP-2ST", 3.0, 72.0), row(table, "auto, no one", 3.0, 75.0)],
    )
    made = papers_deep.cifar_table()
    assert line_of(made, "ours: LP-2ST")[2] == "72.00"
    assert line_of(made, "ours: best that trusts no one, pure")[2] == "75.00<br>auto, no one"
    assert line_of(made, "paper: LP-2ST, GPU")[2] == "92.19"


def test_a_best_is_not_known_before_auto_is_measured(results):
    table = "Table 1, cifar10"
    results["paper-stages"] = make_result("paper-stages", [row(table, "LP-2ST", 6.0, 72.0)])
    made = papers_deep.cifar_table()
    assert line_of(made, "ours: LP-2ST")[4] == "72.00"
    assert line_of(made, "ours: best that trusts no one, pure")[4] == "not yet"


def test_figures_show_the_rows_of_their_study(results):
    figures = paper_figures
    results["paper-stages"] = make_result(
        "paper-stages",
        [
            row(figures.FIGURE_1A, "3 stages", 2.0, 70.5),
            row(figures.FIGURE_1B, figures.name_prior(100), 0.5, 55.5, "a curator"),
            row(figures.FIGURE_2, "50 clusters", 0.05, 44.5),
            row(figures.FIGURE_3, "stage 1, top 2, 5 passes", 2.0, 83.5),
            row(figures.FIGURE_4A, "share 0.6, temperature 0.5", 2.0, 69.5),
            row(figures.FIGURE_4B, "mixup 4, then 8", 2.0, 68.5),
            row(figures.FIGURE_5, "mixup 4, then 8", 2.0, 81.0),
        ],
    )
    assert line_of(papers_deep.stages_table(), "ε = 2")[2] == "70.50"
    assert line_of(papers_deep.priors_table(), "100 clusters counted at 0.05; trusts a curator, pure")[1] == "55.50"
    assert line_of(papers_deep.votes_table(), "50 clusters")[2] == "44.5"
    assert line_of(papers_deep.passes_table(), "stage 1, top 2")[2] == "83.5"
    assert line_of(papers_deep.sweep_table(figures.FIGURE_4A), "share 0.6")[1] == "69.50"
    assert line_of(papers_deep.sweep_table(figures.FIGURE_4B), "mixup 4")[2] == "68.50"
    assert line_of(papers_deep.first_table(), "80 to 85 %") == ["1", "68.50", "68.50", "68.50"]
    assert papers_deep.count_seeds(figures.FIGURE_1A) == "One seed of each cell"


def test_rows_that_were_measured_later_are_told(results):
    old = make_result("ratings", [row("epsilon 8", "NCF, LP-1ST", 8.0, 891.0)])
    later = {"rows": 1, "finished": "2026-02-03T00:00:00+00:00", "versions": {"labeldp": "0.1.1"}}
    results["ratings"] = dataclasses.replace(old, facts={**old.facts, "added": [later]})
    assert line_of(papers_deep.ratings_table(), "ours: LP-1ST")[4] == "0.891"
    said = papers_parts.command("ratings")
    assert (
        "1 rows of `ratings` were measured later, 2026-02-03 by labeldp 0.1.1, the others 2026-01-02 by 0.0.9." in said
    )


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


def test_networks_stand_beside_both_tables_of_images(results):
    results["networks"] = make_result("networks", [row("fashion-mnist", "fast-cnn, 10 minutes", 2.0, 91.75)])
    clothes = line_of(papers_deep.small_images_table("fashion-mnist"), "ours: network end to end")
    assert clothes == ["not yet", "91.75", "", "not yet", ""]
    assert "network" not in papers_deep.small_images_table("mnist")
    assert line_of(papers_deep.cifar_table(), "ours: network end to end")[1] == "not yet"


def test_commands_say_how_many_seeds_they_were_run_with(results):
    results["networks"] = make_result(
        "networks",
        [
            row("cifar10", "fast-cnn, 60 minutes", 3.0, 80.0),
            dataclasses.replace(row("cifar10", "fast-cnn, 60 minutes", 2.0, 80.0), values=(80.0, 81.0, 82.0)),
        ],
    )
    assert papers_parts.command("networks") == (
        "Command: `python -m studies networks --out-dir studies/results/networks` (one or three seeds)."
    )
    assert papers_parts.say_seeds([]) == ""


def test_a_line_of_the_index_is_shown_by_numbers_or_by_a_command_or_says_why_not(repository: Path):
    page = (repository / "docs" / "papers.md").read_text(encoding="utf-8")
    lines = [[part.strip() for part in line.strip("|").split(" | ")] for line in page.splitlines() if "| " in line]
    begins = [i for i, line in enumerate(lines) if line[-1].rstrip(" |") == "shown by"]
    shown = []
    for begin in begins:
        for line in lines[begin + 2 :]:
            if len(line) != 3:
                break
            shown.append(line)
    assert len(shown) > 55
    unshown = [line[0] for line in shown if not re.search(r"\(#|`pytest |`python -m studies ", line[2])]
    assert unshown == [
        "Table 1, rates",
        "Definition 2, Theorem 5: no private learner of label sets",
        "Theorem 2",
    ]
