"""`labeldp top-k`: the leading items of counts by users, chosen privately.

The counts come from an owner's table: one of counts, or one of users and items in which a pair counts once. The selections
themselves are those of `labeldp.selection`; here their options are checked, the ledger is charged, and the answer is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import (
    AsJson,
    Budget,
    BudgetDelta,
    LabelSet,
    LedgerFile,
    Seed,
    answer,
    entry_facts,
    entry_text,
    facts_table,
    name_label_set,
    open_ledger,
    spinner,
    styled,
    to_json_types,
    warn_seeded,
)
from labeldp.cli.tables import Consent, Reading
from labeldp.errors import Described, LabelDPError, invalid, name_type
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console


COUNTS, CHOICE = "Counts (one of --count and --user)", "Choice"
#: Items shown one by one to people; JSON has them all.
MOST_SHOWN = 50


class Neighbours(str, Enum):
    """How two data sets that must look alike differ."""

    one_more_or_less = "add_remove"
    one_replaced = "replace"


class Method(str, Enum):
    """The selections that have a name here."""

    stable = "stable"
    limited_domain = "limited-domain"
    top_stable = "top-stable"
    exponential = "exponential"


def top_k(
    source: Annotated[Path, typer.Argument(help="Counts of items, or rows of users and items: a table.")],
    *,
    item: Annotated[str, typer.Option("--item", help="The column of items.", metavar="COLUMN")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The privacy of each user; smaller is more.")],
    neighbours: Annotated[Neighbours, typer.Option("--neighbours", help="One user more or less, or one replaced.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Only --method exponential can do without.")] = 0.0,
    count: Annotated[
        str | None,
        typer.Option("--count", help="A column of users per item.", metavar="COLUMN", rich_help_panel=COUNTS),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="A column of users; a pair counts once.", metavar="COLUMN", rich_help_panel=COUNTS),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", help="A table with the public list of items.", rich_help_panel=COUNTS),
    ] = None,
    public_items: Annotated[
        bool, typer.Option("--public-items", help="SOURCE's own list of items is public.", rich_help_panel=COUNTS)
    ] = False,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", help="How many; left out: as many as the counts suggest.", rich_help_panel=CHOICE),
    ] = None,
    k_max: Annotated[
        int | None,
        typer.Option("--k-max", help="Most items; needed where items are not public.", rich_help_panel=CHOICE),
    ] = None,
    regularizer: Annotated[
        float | None,
        typer.Option("--regularizer", help="What each item away from --k costs, in users.", rich_help_panel=CHOICE),
    ] = None,
    method: Annotated[Method, typer.Option("--method", help="How to choose.", rich_help_panel=CHOICE)] = Method.stable,
    to: Annotated[
        Path | None, typer.Option("--to", "--out", help="Keep the answer too: a new JSON file.", metavar="FILE")
    ] = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = 0.0,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Choose the items that most users have, so that no user can be told from it.

    Counts are users per item: each user adds at most one to each. A set is found by a large gap in the counts and a
    private test that the gap is there; where the test fails nothing is named. Which items occur is private too, unless
    --candidates or --public-items says that their list is known.

    [bold]Examples[/bold]

      labeldp top-k sales.csv --item product --count buyers --k-max 20 -e 1 -d 1e-6 --neighbours add_remove

      labeldp top-k ratings.parquet --user user --item movie --k 10 -e 1 -d 1e-6 --neighbours replace

      labeldp top-k states.csv --item state --count cases --public-items -e 0.5 -d 1e-6 --neighbours add_remove

      labeldp top-k states.csv --item state --count cases --public-items --method exponential -k 3 -e 1 --neighbours
      replace --ledger spent.sqlite --budget 2
    """
    consent.check_epsilon(epsilon)
    asked = _Asked(
        method=method, epsilon=epsilon, delta=delta, neighbours=neighbours.value, k=k, k_max=k_max, weight=regularizer
    )
    asked.check()
    if to is not None:
        from labeldp.release.saving import check_new

        check_new(to, owner="top-k")
    with spinner("counting"):
        histogram = read_counts(
            source, item=item, count=count, user=user, candidates=candidates, public=public_items, reading=reading
        )
    book = open_ledger(ledger, budget, delta=budget_delta)
    name = name_label_set(label_set, source, item)
    if seed is not None:
        warn_seeded()
    with spinner("selecting"):
        found, entry = _charge_and_select(asked, histogram, book=book, label_set=name, seed=seed)
    facts = _facts(found, asked, histogram, entry=entry, label_set=name)
    if to is not None:
        from labeldp.release.saving import write_new

        write_new(to, (json.dumps(to_json_types(facts), allow_nan=False, indent=1) + "\n").encode(), owner="top-k")
    answer(facts, as_json=as_json, show=lambda console: _show(console, found, facts))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A selection as it was asked for, all of it public."""

    method: Method
    epsilon: float
    delta: float
    neighbours: str
    k: int | None
    k_max: int | None
    weight: float | None

    def check(self) -> None:
        """Refuse options that the method does not know, before a file is read."""
        if self.method is not Method.stable:
            if self.k is None:
                got, fix = Described("nothing"), "Only --method stable chooses how many."
                raise invalid("top-k", "--k", f"be given for --method {self.method.value}", got=got, fix=fix)
            if self.k_max is not None or self.weight is not None:
                raise LabelDPError("--k-max and --regularizer belong to --method stable. Leave them out.")
        elif self.weight is not None and self.k is None:
            raise LabelDPError("--regularizer says what each item away from --k costs. Add --k.")

    def select(self, histogram: Any, rng: Any) -> Any:
        """Run the method once."""
        from labeldp import selection

        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "neighbours": self.neighbours}
        if self.method is Method.stable:
            return selection.stable_top_k(
                histogram,
                **budget,
                k=self.k,
                k_max=self.k_max,
                regularizer=self.weight,
                fallback=histogram.public,
                rng=rng,
            )
        methods: dict[Method, Callable[..., Any]] = {
            Method.limited_domain: selection.limited_domain,
            Method.top_stable: selection.top_stable,
            Method.exponential: selection.top_k_exponential,
        }
        return methods[self.method](histogram, **budget, k=self.k, rng=rng)


def _charge_and_select(
    asked: _Asked, histogram: Any, *, book: Any, label_set: str, seed: int | None
) -> tuple[Any, int | None]:
    """Charge the ledger, then draw; return what was found and the ledger's row.

    No promise here depends on the counts. So a rehearsal on counts of zero tells it, and refuses whatever the method
    refuses, before anything is charged.
    """
    import dataclasses

    import numpy as np

    from labeldp.release import budget as spending

    empty = dataclasses.replace(histogram, counts=np.zeros_like(histogram.counts))
    promise = asked.select(empty, None).guarantee
    items = _Items(label_set, int(histogram.counts.size) if histogram.public else 0)
    budget = spending.Budget(owner="top-k", labels=items, ledger=book, seeded=seed is not None)
    mechanism = f"top-k({asked.method.value}, k = {asked.k or 'chosen'}, {asked.neighbours})"
    entry = budget.charge(budget.state(promise), mechanism=mechanism)
    return asked.select(histogram, seed), entry


@dataclass(frozen=True)
class _Items:
    """What a ledger may know of counted items: a `LabelSet` whose rows are the items of a public list.

    How many users there are is private where one more is a neighbour, and so is a list of items that is not public:
    `n_classes` is then 0, and the fingerprint is that of the name alone.
    """

    name: str
    n_classes: int
    classes_read_off: bool = False
    beside: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.n_classes

    def fingerprint(self, *, start: int = 0) -> str:
        from labeldp.accounting import fingerprint

        return fingerprint(self.name, n_rows=self.n_classes, start=start)


def _facts(found: Any, asked: _Asked, histogram: Any, *, entry: int | None, label_set: str) -> dict[str, Any]:
    """Return what was found, for machines."""
    ordered = asked.method in (Method.exponential, Method.limited_domain)
    return {
        "items": found.items.tolist(),
        "ordered": ordered,
        "k": found.k,
        "proposed": found.proposed,
        "passed": found.passed,
        "method": asked.method.value,
        "neighbours": asked.neighbours,
        "public_items": histogram.public,
        "epsilon": found.guarantee.epsilon(asked.delta),
        "delta": asked.delta,
        "guarantee": promise_facts(found.guarantee),
        "label_set": label_set,
        **entry_facts(entry),
        "seeded": found.seeded,
    }


def _show(console: Console, found: Any, facts: dict[str, Any]) -> None:
    items = facts["items"]
    how = "in the order drawn" if facts["ordered"] else "as a set: the order says nothing"
    title = f"{len(items)} item{'' if len(items) == 1 else 's'}"
    none = styled(("no item", "bold yellow"), " can be named at this budget")
    console.print(styled((title, "bold green"), f", {how}") if items else none)
    for place, item in enumerate(items[:MOST_SHOWN], start=1):
        console.print(f"  {place:>3}  {item}" if facts["ordered"] else f"       {item}")
    if len(items) > MOST_SHOWN:
        console.print(styled((f"       {len(items) - MOST_SHOWN:,} more: see --json or --to", "dim")))
    proposed = facts["proposed"]
    rows: list[tuple[str, Any]] = [
        ("k", str(facts["k"]) + (f" ({proposed} proposed)" if proposed not in (None, facts["k"]) else "")),
        ("passed", _passed_text(facts)),
        ("neighbours", facts["neighbours"]),
        *promise_rows(found.guarantee, delta=facts["delta"]),
        ("ledger entry", entry_text(facts)),
    ]
    console.print(facts_table(rows))


def _passed_text(facts: dict[str, Any]) -> str:
    if facts["method"] == "exponential":
        return "nothing was tested: the items are always named"
    if facts["passed"]:
        return "yes"
    if facts["method"] == "limited-domain":
        return "no: fewer than k could be told from items that nobody has"
    return "no: the gap is too small for this budget" + (", so k were drawn one by one" if facts["items"] else "")


def read_counts(
    source: Path,
    *,
    item: str,
    count: str | None,
    user: str | None,
    candidates: Path | None,
    public: bool,
    reading: Reading,
) -> Any:
    """Return the counts of a table as a `Histogram`, which knows whether the list of its items is public.

    Give `count` for a table with one row per item, or `user` for a table with one row per pair, which counts once however
    often it occurs. The list of items is public with `candidates` (another table that has it) or with `public` (the items
    of a table of counts); else which items occur is private too.
    """
    from labeldp.learn.tables import read_columns
    from labeldp.selection import Histogram

    if (count is None) == (user is None):
        raise LabelDPError(
            "top-k: give --count (a table of counts) or --user (a table of users and items), one of them."
        )
    if public and (candidates is not None or user is not None):
        raise LabelDPError("top-k: --public-items is for a table of counts alone; --candidates names another list.")
    opened = reading.open(source, beside=[] if candidates is None else [candidates])
    opened.require(item, *(name for name in (count, user) if name is not None))
    listed = None if candidates is None else _read_candidates(candidates, item, reading, source=source)
    table = read_columns(opened, list(dict.fromkeys(name for name in (item, count, user) if name is not None)))
    names = _read_names(source, item, table[item])
    if user is not None:
        return Histogram.from_pairs(_read_names(source, user, table[user]), names, candidates=listed)
    counts = table[count].to_numpy()  # a missing one becomes NaN, which the library refuses
    if public:
        return Histogram.of(counts, candidates=names.to_pylist(), owner="top-k")
    return Histogram.of(_count_by_name(source, item, names, counts), candidates=listed, owner="top-k")


def _read_names(source: Path, column: str, values: Any) -> Any:
    """Return a column of names: whole numbers or text, none of them missing."""
    import pyarrow as pa

    from labeldp.data.tables import decode_dictionary

    values = decode_dictionary(values)
    if values.null_count:
        got = Described(f"{values.null_count:,} missing of {len(values):,} rows")
        raise invalid(source.name, column, "have no missing values", got=got, fix="Drop or fill them first.")
    if not (
        pa.types.is_integer(values.type) or pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    ):
        fix = "Cast it first; a rounded name is another name."
        raise invalid(source.name, column, "be whole numbers or text", got=name_type(values.type), fix=fix)
    return values


def _count_by_name(source: Path, item: str, names: Any, counts: Any) -> dict[Any, Any]:
    """Return counts by name; a name on two rows is refused, since a user may have been counted on both."""
    found = dict(zip(names.to_pylist(), counts.tolist(), strict=True))
    if len(found) < len(names):
        got = Described(f"{len(names) - len(found):,} repeated")
        fix = "Count each user once per item, or give rows of users and items with --user."
        raise invalid(source.name, item, "name each item once", got=got, fix=fix)
    return found


def _read_candidates(path: Path, item: str, reading: Reading, *, source: Path) -> list[Any]:
    """Return the public list of items: the column of that name."""
    from labeldp.learn.tables import read_columns

    listed = reading.open(path, beside=[source])
    listed.require(item)
    return list(_read_names(path, item, read_columns(listed, [item])[item]).to_pylist())
