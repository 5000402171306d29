"""The page and the table of a study's result: paper / ours / difference, always with epsilon and trust beside them.

>>> from studies.study import StudyRow
>>> cells(StudyRow(table="t", setting="plain", epsilon=1.0, trust="no one", values=(79.0, 80.0), paper=80.78))
('plain', '1', 'no one', '80.78', '', '79.50', '0.71', '-1.28', '2')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table as RichTable

from labeldp.guarantee import shown
from labeldp.report import Block, Facts, Plot, Section, Table
from studies.study import StudyResult, StudyRow

COLUMNS = ("setting", "epsilon", "trusts", "paper", "exact", "ours", "sd", "diff.", "seeds")
NUMERIC = frozenset(COLUMNS) - {"setting", "trusts"}


def cells(row: StudyRow) -> tuple[str, ...]:
    """Return a row as text, in the order of `COLUMNS`."""
    return (
        row.setting,
        shown(row.epsilon),
        row.trust,
        _number(row.paper),
        _number(row.expected),
        _number(row.mean),
        f"{row.spread:.2f}" if row.n_seeds > 1 else "",
        "" if row.difference is None else f"{round(row.difference, 2) + 0.0:+.2f}",  # no "-0.00"
        str(row.n_seeds),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _columns(rows: Sequence[StudyRow]) -> list[int]:
    """Return the positions of the columns to show: "exact" only where a study has it."""
    exact = any(row.expected is not None for row in rows)
    return [i for i, name in enumerate(COLUMNS) if name != "exact" or exact]


def rich_table(result: StudyResult) -> RichTable:
    """Return the result as a table for a terminal of 80 columns."""
    title = f"{result.title}\n{result.measure}; seeded: not private"
    table = RichTable(title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    shown_columns = _columns(result.rows)
    for i in shown_columns:
        table.add_column(COLUMNS[i], justify="right" if COLUMNS[i] in NUMERIC else "left", overflow="fold")
    for group in result.tables():
        table.add_section()
        table.add_row(f"[bold]{group}[/bold]")
        for row in result.rows:
            if row.table == group:
                text = cells(row)
                table.add_row(*(text[i] for i in shown_columns))
    return table


def sections(result: StudyResult, plots: Sequence[Plot]) -> list[Section]:
    """Return the sections of the page: findings, plots, tables, how it was run."""
    answer = [
        Section(title="What was found", blocks=tuple(result.findings)),
        Section(title="Plots", blocks=tuple(plots)),
    ]
    answer.append(Section(title="Paper, ours, difference", blocks=tuple(_tables(result))))
    answer.append(Section(title="How it was run", blocks=(Facts(pairs=tuple(_facts(result))),)))
    return answer


def _tables(result: StudyResult) -> list[Block]:
    blocks: list[Block] = [
        f"Numbers are {result.measure}: the mean over seeds, with the standard deviation over seeds (sd). Epsilon is the "
        "true total for one label. Exact, where there is such a column, is the expectation of ours without drawing. Trusts says whom the owner of a label must trust with it. Paper: "
        + result.paper
        + "."
    ]
    return blocks + [_table(group, [row for row in result.rows if row.table == group]) for group in result.tables()]


def _table(caption: str, rows: Sequence[StudyRow]) -> Table:
    chosen, noted = _columns(rows), any(row.note for row in rows)
    names = [COLUMNS[i] for i in chosen] + ["note"] * noted
    text = [[cells(row)[i] for i in chosen] + [row.note] * noted for row in rows]
    numeric = tuple(i for i, name in enumerate(names) if name in NUMERIC)
    return Table(caption=caption, columns=tuple(names), rows=tuple(tuple(line) for line in text), numeric=numeric)


def _facts(result: StudyResult) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _plain(value)) for name, value in result.facts.items()]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(part) for part in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
