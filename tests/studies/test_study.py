"""The template of a study: seeds joined into rows, what a killed run leaves, threads, and a result that survives JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import labeldp
from labeldp.errors import LabelDPError
from studies import Measurement, Study, StudyResult, StudyRow, read_result
from studies.study import Kept


@dataclass(frozen=True)
class Case:
    name: str
    n_seeds: int | None = None


class Toy(Study[Case]):
    """Two cases; a value is ten times the seed, and every call is written down."""

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "A toy"
    paper: ClassVar[str] = "none"
    measure: ClassVar[str] = "points"

    def __init__(self, *, stop_at: int | None = None, kept: Kept | None = None) -> None:
        super().__init__(kept=kept)
        self.calls: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def cases(self) -> Sequence[Case]:
        return [Case("a"), Case("b", n_seeds=1)]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        return seeds[: case.n_seeds]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        self.calls.append((case.name, seed))
        if len(self.calls) == self.stop_at:
            raise KeyboardInterrupt
        return [
            Measurement(
                table=table,
                setting=case.name,
                epsilon=1.0 + seed,
                trust="no one",
                value=10.0 * seed,
                note="{seconds:.1f} s, chose {choice}",
                details={"seconds": float(seed), "choice": f"s{seed}"},
            )
            for table in ("one", "two")
        ]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        return (f"{len(rows)} rows",)

    def plots(self, _rows: Sequence[StudyRow]) -> tuple[()]:
        return ()


def test_seeds_of_a_case_become_one_row_per_measurement():
    told: list[float] = []
    result = Toy().run(seeds=3, progress=lambda share, _: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert [(row.table, row.setting, row.values) for row in result.rows] == [
        ("one", "a", (0.0, 10.0, 20.0)),
        ("two", "a", (0.0, 10.0, 20.0)),
        ("one", "b", (0.0,)),
        ("two", "b", (0.0,)),
    ]
    assert result.rows[0].epsilon == 3.0  # the largest that any seed states
    assert result.rows[0].note == "1.0 s, chose s0, s1, s2"  # a mean of numbers, a list of words
    assert result.findings == ("4 rows",)
    assert result.facts["seeds"] == [0, 1, 2]
    assert result.facts["command"] == "python -m studies toy --seeds 3"
    assert Toy().run().facts["command"] == "python -m studies toy"


def test_threads_change_no_row(monkeypatch: pytest.MonkeyPatch):
    alone = Toy().run(seeds=4)
    monkeypatch.setattr(Toy, "workers", 3)
    assert Toy().run(seeds=4).rows == alone.rows


def test_what_was_measured_before_a_crash_is_not_measured_again(tmp_path: Path):
    path = tmp_path / "partial.jsonl"
    first = Toy(stop_at=3, kept=Kept(path))
    with pytest.raises(KeyboardInterrupt):
        first.run(seeds=3)
    with path.open("a") as file:
        file.write('{"version": "cut sh')  # what a crash in the middle of a line leaves
    second = Toy(kept=Kept(path))
    assert second.run(seeds=3).rows == Toy().run(seeds=3).rows
    assert second.calls == [("a", 2), ("b", 0)]
    second.kept.forget()
    assert not path.exists()


def test_lines_of_another_version_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "partial.jsonl"
    Kept(path).get("a", lambda: {"accuracy": 1.0})
    monkeypatch.setattr("labeldp.__version__", "0.0.other")
    assert Kept(path).get("a", lambda: {"accuracy": 2.0}) == {"accuracy": 2.0}


def test_parts_are_joined_by_a_whole_run_and_their_processor_time_adds_up(tmp_path: Path):
    path = tmp_path / "partial.jsonl"
    part = Toy(kept=Kept(path))
    assert part.measure_part("b", seeds=2) == 1
    assert part.calls == [("b", 0)]
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "spent": 70.0}) + "\n")  # as if the part had taken long
    whole = Toy(kept=Kept(path))
    result = whole.run(seeds=2)
    assert whole.calls == [("a", 0), ("a", 1)]
    assert result.rows == Toy().run(seeds=2).rows
    assert whole.kept.seconds >= 70.0
    assert result.facts["cpu_seconds"] >= round(whole.kept.seconds, 1)
    assert result.facts["processes"] == 2
    assert "wall_seconds" not in result.facts  # of one of them it would say nothing


def test_a_page_of_a_part_says_what_is_missing_and_measures_nothing(tmp_path: Path):
    path = tmp_path / "partial.jsonl"
    with pytest.raises(LabelDPError, match="Measure something first"):
        Toy(kept=Kept(path)).join_measured()
    stopped = Toy(stop_at=3, kept=Kept(path))
    with pytest.raises(KeyboardInterrupt):
        stopped.run(seeds=3)
    reader = Toy(kept=Kept(path))
    part = reader.join_measured(seeds=3)
    assert reader.calls == []
    assert [(row.setting, row.values) for row in part.rows] == [("a", (0.0, 10.0))] * 2
    assert part.is_partial
    assert part.facts["not_measured"] == ["a (seed 2)", "b (seed 0)"]
    assert part.findings[0].startswith("A part of the study: 2 runs have been measured")
    assert "a (seed 2); b (seed 0)" in part.findings[0]
    assert part.findings[1:] == ("2 rows",)
    assert part.facts["command"] == "python -m studies toy --seeds 3 --measured"
    assert path.exists()
    fewer = Toy(kept=Kept(path)).join_measured(seeds=1)
    assert fewer.facts["not_measured"] == ["b (seed 0)"]
    again = Toy(kept=Kept(path))
    rows = again.run(seeds=3).rows
    assert again.calls == [("a", 2), ("b", 0)]
    whole = Toy(kept=Kept(path)).join_measured(seeds=3)
    assert (whole.is_partial, whole.rows, whole.findings) == (False, rows, ("4 rows",))


def test_words_and_plots_that_need_all_rows_wait_for_them():
    class Whole(Toy):
        def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
            return (f"b has {next(row for row in rows if row.setting == 'b').mean}",)

        def plots(self, rows: Sequence[StudyRow]) -> tuple[()]:
            _ = rows[2]  # needs three
            return ()

    row = StudyRow(table="one", setting="a", epsilon=1.0, trust="no one", values=(1.0,))
    assert "not measured yet" in Whole().describe_part([row])[0]
    assert Whole().draw_part([row]) == ()


def test_seconds_of_lines_of_every_age_add_up(tmp_path: Path):
    """Once a line had the seconds of its process until then; now it has its own. One that was measured twice counts once."""
    path = tmp_path / "partial.jsonl"
    lines = [
        {"name": "a", "part": "p", "seconds": 10.0},
        {"name": "b", "part": "q", "seconds": 100.0},  # side by side
        {"name": "c", "part": "p", "seconds": 14.0},
        {"name": "d", "part": "r", "spent": 7.0},
        {"name": "d", "part": "s", "spent": 8.0},
        {"name": "e"},  # older still: nothing is known
    ]
    version = labeldp.__version__
    path.write_text("".join(json.dumps({"version": version, "measured": 1, **line}) + "\n" for line in lines))
    kept = Kept(path)
    assert (kept.seconds, kept.parts) == (122.0, 4)
    kept.add_seconds(50.0)  # of a process that was killed
    kept.get("f", lambda: 1)
    assert kept.measure_since() < 10.0
    assert 172.0 <= kept.seconds < 182.0  # nothing here takes ten seconds of a processor
    assert Kept(path).seconds == pytest.approx(kept.seconds, abs=0.01)  # lines have hundredths


def test_arrays_are_made_once(tmp_path: Path):
    import numpy as np

    kept = Kept(tmp_path / "partial.jsonl")
    made = kept.arrays("features", lambda: {"X": np.arange(3)})
    again = Kept(kept.path).arrays("features", lambda: {"X": np.zeros(3)})
    np.testing.assert_array_equal(made["X"], again["X"])
    kept.forget()
    assert not list(tmp_path.iterdir())


ROWS = (
    StudyRow(table="mnist", setting="no privacy", epsilon=math.inf, trust="everyone", values=(92.0,), paper=99.33),
    StudyRow(table="mnist", setting="plain", epsilon=1.0, trust="no one", values=(78.0, 80.0, 79.0), note="n"),
)
RESULT = StudyResult(
    name="first-model",
    title="A title",
    paper="A paper",
    measure="%",
    rows=ROWS,
    findings=("Found this.", "And <that>."),
    facts={"seeds": [0, 1, 2], "quick": False, "versions": {"numpy": "2"}},
)


def test_row_statistics():
    single, several = ROWS
    assert (several.mean, several.spread, several.n_seeds, several.difference) == (79.0, 1.0, 3, None)
    assert single.spread == 0.0
    assert single.difference == pytest.approx(92.0 - 99.33)


def test_result_survives_json():
    text = json.dumps(RESULT.to_json(), allow_nan=False)  # no infinity in JSON
    assert StudyResult.from_json(json.loads(text)) == RESULT


@pytest.mark.parametrize("damage", ["rows", "findings", "name"])
def test_json_that_is_not_a_study_is_refused(damage: str):
    data = RESULT.to_json()
    del data[damage]
    with pytest.raises(LabelDPError, match="not the JSON of a study"):
        StudyResult.from_json(data)


def test_a_file_that_is_not_json_is_refused(tmp_path: Path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(LabelDPError, match="cannot read"):
        read_result(tmp_path / "x.json")
