"""Run a study by its name, and write what it leaves: `result.json`, plots, a page, a table for the terminal.

>>> names()[:3]
('adult-learners', 'cluster-bounds', 'cluster-response')
>>> row = StudyRow(table="t", setting="plain", epsilon=1.0, trust="no one", values=(79.0, 80.0), paper=80.78)
>>> format_cells(row)
('plain', '1', 'no one', '80.78', '', '79.50', '0.71', '-1.28', '2')

Every table has paper / ours / difference, with epsilon and trust beside them.

Design notes. Pages are static and small, so that results can be committed and compared. Files are written only after the
run has ended well, or when somebody asks for the page of what has been measured so far (`write_measured`), which says in
its title, its first sentence and its facts that it is a part. A page can be made again from its `result.json`
(`write_result`), and the README of the results from the studies themselves (`results_readme`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from labeldp.errors import Described, invalid, nearest
from labeldp.guarantee import format_up
from labeldp.report import Block, Facts, Plot, Section, Table, page, plot_file, write_page
from labeldp.validate import check_integer
from studies.study import Kept, Progress, Study, StudyResult, StudyRow, read_result

Where = str | os.PathLike[str] | None

#: Where each study lives: file and class. A study is imported when it is asked for, since it brings its learners along.
STUDIES = {
    "adult-learners": "adult_learners:AdultLearners",
    "cluster-bounds": "cluster_bounds:ClusterBounds",
    "cluster-response": "cluster_response:ClusterResponse",
    "dimension-free": "dimension_free:DimensionFree",
    "encoder": "encoder:Encoder",
    "excess-risk": "excess_risk:ExcessRisk",
    "first-model": "first_model:FirstModel",
    "glm": "glm:Glm",
    "images-cifar10": "images:CIFAR10",
    "images-cifar100": "more_images:CIFAR100",
    "images-fashion-mnist": "images:FashionMNIST",
    "images-kmnist": "more_images:KMNIST",
    "images-mnist": "images:MNIST",
    "informative": "informative:Informative",
    "many-classes": "many_classes:ManyClasses",
    "multilabel-pate": "multilabel_pate:MultiLabelPate",
    "networks": "networks:Networks",
    "noisy-max": "noisy_max:NoisyMax",
    "numbers": "numbers:Numbers",
    "paper-stages": "paper_stages:PaperStages",
    "peers": "peers:Peers",
    "persons": "persons:Persons",
    "prior-response": "prior_response:PriorResponse",
    "ratings": "ratings:Ratings",
    "recipes": "recipes:Recipes",
    "stage-settings": "stage_settings:StageSettings",
    "tables": "tables:Tables",
    "top-k": "top_k:TopK",
}
COLUMNS = ("setting", "epsilon", "trusts", "paper", "exact", "ours", "sd", "diff.", "seeds")
NUMERIC = frozenset(COLUMNS) - {"setting", "trusts"}
#: A page lists this many seeds one by one; more of them as "0 to 99".
FEW_SEEDS = 20


def names() -> tuple[str, ...]:
    """Return the names that `run` knows."""
    return tuple(sorted(STUDIES))


def find_study(name: str, *, quick: bool = False, directory: Where = None, kept: Kept | None = None) -> Study[Any]:
    """Return a study by its name, ready to run; an unknown name is answered with the nearest one."""
    if name not in STUDIES:
        raise invalid("study", "name", "be a known study", got=name, fix=nearest(name, names()))
    module, _, kind = STUDIES[name].partition(":")
    data = None if directory is None else Path(directory)
    found: Study[Any] = getattr(import_module(f"studies.{module}"), kind)(quick=quick, directory=data, kept=kept)
    return found


def run(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out_dir: Where = None,
    directory: Where = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Run a study and write `result.json`, `plot-1.svg`, ... and `index.html` into `out_dir`.

    `quick` is a small version that shows that it runs; its numbers mean nothing. `seeds` is how many seeds to use, 0, 1,
    ...; `out_dir` is ``labeldp-study/NAME`` in the current directory unless given; `directory` holds the data sets (else
    LABELDP_DATA); `progress` is called with the share done and what is being done. What was measured waits in
    `partial.jsonl` until the run has ended: called again after a crash, it goes on from there. Returns the result, whose
    `page` is where the page is.
    """
    target = find_target(name, out_dir)
    kept = Kept(target / f"partial{'-quick' * quick}.jsonl")
    chosen = find_study(name, quick=quick, directory=directory, kept=kept)
    if seeds is not None:
        check_integer("study", "seeds", seeds, least=1)
    result = chosen.run(seeds=seeds, progress=progress)
    made = write_result(result, target)
    kept.forget()
    return dataclasses.replace(result, page=made)


def find_target(name: str, out_dir: Where) -> Path:
    """Return where the results of a study go, and what was measured of it so far."""
    return Path("labeldp-study") / name if out_dir is None else Path(out_dir)


def measure_part(
    name: str,
    only: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out_dir: Where = None,
    directory: Where = None,
    progress: Progress | None = None,
) -> int:
    """Measure the cases of a study whose name begins with `only`; `run` with the same `out_dir` takes them up. Returns how many.

    Parts may run side by side, one process each: that is how a study of hours uses two cores.
    """
    kept = Kept(find_target(name, out_dir) / f"partial{'-quick' * quick}.jsonl")
    found = find_study(name, quick=quick, directory=directory, kept=kept).measure_part(
        only, seeds=seeds, progress=progress
    )
    if not found:
        raise invalid("study", "only", "be the beginning of the name of a case", got=only)
    return found


def write_measured(
    name: str, *, quick: bool = False, seeds: int | None = None, out_dir: Where = None, directory: Where = None
) -> StudyResult:
    """Write JSON, plots and page of what has been measured of a study so far, and measure nothing; returns the result.

    `partial.jsonl` stays, so that `run` and `measure_part` with the same `out_dir` go on from it. The page names the cases and
    seeds that are missing. Where none is, it is the page of a whole run, but for the file that stays.
    """
    if seeds is not None:
        check_integer("study", "seeds", seeds, least=1)
    target = find_target(name, out_dir)
    kept = Kept(target / f"partial{'-quick' * quick}.jsonl")
    result = find_study(name, quick=quick, directory=directory, kept=kept).join_measured(seeds=seeds)
    return dataclasses.replace(result, page=write_result(result, target))


def add_measured(name: str, *, seeds: int | None = None, out_dir: Where = None, directory: Where = None) -> StudyResult:
    """Add the rows of cases that were measured later (`measure_part` with the same `out_dir`) to a result that is there.

    A study may get a case after a run of hours. Its old rows stand as they are; the fact `added` says how many rows came later, by which
    command, version and date, for how many seconds. A row that is there already is refused: a case is measured
    again by a whole run. The words are said anew, of all rows.
    """
    target = find_target(name, out_dir)
    before = read_result(target / "result.json")
    kept = Kept(target / "partial.jsonl")
    study = find_study(name, directory=directory, kept=kept)
    part = study.join_measured(seeds=seeds)
    known = {_place(row) for row in before.rows}
    twice = [row for row in part.rows if _place(row) in known]
    if twice:
        got = Described(f"{twice[0].setting!r} of {twice[0].table!r}, which {target / 'result.json'} has")
        raise invalid("study", "add", "be given new rows", got=got, fix="Run the study as a whole to measure it again.")
    cases = [case.name for case in study.cases() if any(kept.find(f"{case.name}, seed {seed}") for seed in study.seeds)]
    told = {
        "rows": len(part.rows),
        "cases": cases,
        "seeds": list(part.facts["seeds"]),
        "cpu_seconds": part.facts["cpu_seconds"],
        "finished": part.facts["finished"],
        "versions": part.facts["versions"],
    }
    facts = {**before.facts, "added": [*before.facts.get("added", ()), told]}
    rows = tuple(study.arrange_rows((*before.rows, *part.rows)))
    result = retell(dataclasses.replace(before, rows=rows, facts=facts))
    made = write_result(result, target)
    kept.forget()
    return dataclasses.replace(result, page=made)


def _place(row: StudyRow) -> tuple[str, str, str]:
    """What tells a row from the others of a study."""
    return row.table, row.setting, f"{row.epsilon:.6g}"


def retell(result: StudyResult) -> StudyResult:
    """Return the result with its findings said anew from its rows and facts: nothing is measured.

    Words change more often than numbers: a finding that compares what should not be compared is mended in the code, and
    committed results say it right without a run of hours.
    """
    chosen = find_study(result.name, quick=bool(result.facts.get("quick")))
    chosen.known = result.facts
    if result.is_partial:  # its first sentence says what is missing
        return dataclasses.replace(result, findings=(result.findings[0], *chosen.describe_part(result.rows)))
    return dataclasses.replace(result, findings=chosen.findings(result.rows))


def write_result(result: StudyResult, directory: str | os.PathLike[str]) -> Path:
    """Write JSON, plots and page of a result, and return the path of the page."""
    target = Path(directory)
    study = find_study(result.name, quick=bool(result.facts.get("quick")))
    plots = study.draw_part(result.rows) if result.is_partial else study.plots(result.rows)
    text = json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n"
    write_page(target / "result.json", text)
    for number, plot in enumerate(plots, start=1):
        write_page(target / f"plot-{number}.svg", plot_file(plot))
    for old in target.glob("plot-*.svg"):  # of a page before this one that had more
        if int(old.stem.removeprefix("plot-")) > len(plots):
            old.unlink()
    lead = f"Study {result.name}: {result.measure}."
    title = f"{result.title} (measured in part)" if result.is_partial else result.title
    made = page(title, sections=_sections(result, plots), lead=lead, seeded=result.seeded)
    return write_page(target / "index.html", made)


def _sections(result: StudyResult, plots: Sequence[Plot]) -> list[Section]:
    """Return the sections of the page: findings, plots, tables, how it was run."""
    told = tuple((name.replace("_", " "), _format_fact(value)) for name, value in _tell_run(result.facts).items())
    return [
        Section(title="What was found", blocks=tuple(result.findings)),
        Section(title="Plots", blocks=tuple(plots)),
        Section(title="Paper, ours, difference", blocks=tuple(_tables(result))),
        Section(title="How it was run", blocks=(Facts(pairs=told),)),
    ]


def _tell_run(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts as a reader of today can use them: a command that runs, and whose seconds they are.

    Before facts had the number of `processes`, each counted its own seconds, so that a run that was resumed named its last part's.

    >>> _tell_run({"command": "labeldp study peers", "cpu_seconds": 3.5})
    {'command': 'python -m studies peers', 'cpu seconds of the last process (those of earlier ones, if it was resumed, were not kept)': 3.5}
    >>> _tell_run({"command": "python -m studies peers", "cpu_seconds": 3.5, "processes": 2})
    {'command': 'python -m studies peers', 'cpu_seconds': 3.5, 'processes': 2}
    """
    told = dict(facts)
    if "command" in told:
        told["command"] = re.sub("^labeldp study ", "python -m studies ", told["command"])
    if "processes" in told:
        return told
    last = "cpu seconds of the last process (those of earlier ones, if it was resumed, were not kept)"
    return {last if name == "cpu_seconds" else name: value for name, value in told.items()}


def _tables(result: StudyResult) -> list[Block]:
    blocks: list[Block] = [
        (
            f"Numbers are {result.measure}: the mean over seeds, with the standard deviation over seeds (sd). Epsilon is the "
            "true total for one label. Exact, where there is such a column, is the expectation of ours without drawing. "
            f"Trusts says whom the owner of a label must trust with it. Paper: {result.paper}."
        )
    ]
    return blocks + [_table(group, [row for row in result.rows if row.table == group]) for group in result.tables()]


def _table(caption: str, rows: Sequence[StudyRow]) -> Table:
    chosen, noted = _columns(rows), any(row.note for row in rows)
    titles = [COLUMNS[i] for i in chosen] + ["note"] * noted
    text = [[format_cells(row)[i] for i in chosen] + [row.note] * noted for row in rows]
    numeric = tuple(i for i, title in enumerate(titles) if title in NUMERIC)
    return Table(caption=caption, columns=tuple(titles), rows=tuple(tuple(line) for line in text), numeric=numeric)


def _columns(rows: Sequence[StudyRow]) -> list[int]:
    """Return the positions of the columns to show: "exact" only where a study has it."""
    exact = any(row.expected is not None for row in rows)
    return [i for i, title in enumerate(COLUMNS) if title != "exact" or exact]


def format_cells(row: StudyRow) -> tuple[str, ...]:
    """Return a row as text, in the order of `COLUMNS`; epsilon is rounded up."""
    return (
        row.setting,
        format_up(row.epsilon),
        row.trust,
        _format_number(row.paper),
        _format_number(row.expected),
        _format_number(row.mean),
        f"{row.spread:.2f}" if row.n_seeds > 1 else "",
        "" if row.difference is None else f"{round(row.difference, 2) + 0.0:+.2f}",  # no "-0.00"
        str(row.n_seeds),
    )


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _format_fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_format_fact(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        parts = [_format_fact(part) if isinstance(part, dict) else str(part) for part in value]
        if len(parts) <= FEW_SEEDS or any(isinstance(part, str) for part in value):
            return ("; " if any("," in part for part in parts) else ", ").join(parts)
        return f"{parts[0]} to {parts[-1]}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def rich_table(result: StudyResult) -> RichTable:
    """Return the result as a table for a terminal of 80 columns."""
    part = "; measured in part" if result.is_partial else ""
    title = f"{result.title}\n{result.measure}; seeded: not private{part}"
    table = RichTable(title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    columns = _columns(result.rows)
    for i in columns:
        table.add_column(COLUMNS[i], justify="right" if COLUMNS[i] in NUMERIC else "left", overflow="fold")
    for group in result.tables():
        table.add_section()
        table.add_row(f"[bold]{group}[/bold]")
        for row in result.rows:
            if row.table == group:
                text = format_cells(row)
                table.add_row(*(text[i] for i in columns))
    return table


def results_readme() -> str:
    """Return the text of studies/results/README.md, from what each study says of itself."""
    lines = [f"| `{name}` | {find_study(name).title} | {find_study(name).needs} |" for name in names()]
    return README.format(table="\n".join(lines))


README = """\
# Results of studies

A folder per study: `result.json` (every value of every seed, versions, CPU seconds), the plots as SVG, and `index.html`, a
page that opens from disk. The noise behind them is seeded, so that the numbers can be repeated; they are not private.

| study | its question | needs |
|---|---|---|
{table}

Studies are not part of the installed package: run them from the root of a clone.

```sh
python -m studies --list
LABELDP_DATA=<folder of data sets> python -m studies first-model --out-dir studies/results/first-model
make study NAME=prior-response QUICK=1
```

A `result.json` made before the studies left the package names the same command as `labeldp study NAME`. One without `processes`
counts the processor seconds of its last process alone: a run that was resumed took more.

A study keeps what it has measured in `partial.jsonl` beside its results until it has ended; called again after a crash it
goes on from there. A study of hours may be measured in parts, side by side or on several days (`--only CASE`), and shown before
it is whole (`--measured`): its page then says so in its title, names the cases and seeds that are missing, and has the
`partial.jsonl` beside it that the next run goes on from. Processor seconds are those of all parts together. A case that a study got
after its run is measured alone (`--only CASE`) and its rows are added to the result (`--add`); the fact "added" has its own date,
versions and seconds.

The same in Python: `studies.run("first-model", out_dir="studies/results/first-model")`. A page is made again from its
JSON, without running anything, by `studies.write_result(studies.read_result("result.json"), ".")`; with its findings said
anew from its rows by `python -m studies NAME --retell --out-dir studies/results/NAME`. This file is made by
`python -m studies --readme`.
"""
