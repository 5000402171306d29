"""A guarantee as the command line tells it: facts for machines, rows for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labeldp._advantage import advantage_bound
from labeldp.report._words import Cost, cost, in_words, percent

if TYPE_CHECKING:  # a guarantee brings SciPy, and --help must not wait for it
    from labeldp.guarantee import Guarantee

__all__ = ["Cost", "cost", "in_words", "percent", "promise_facts", "promise_rows"]


def promise_facts(guarantee: Guarantee) -> dict[str, object]:
    """Return a guarantee as plain facts, for JSON."""
    epsilon, delta = cost(guarantee)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "unit": guarantee.unit.value,
        "trust": guarantee.trust.words,
        "assumptions": list(guarantee.assumptions),
        "attacker_advantage": advantage_bound(epsilon, delta=delta),
        "text": str(guarantee),
    }


def promise_rows(guarantee: Guarantee) -> list[tuple[str, str | None]]:
    """Return a guarantee as rows of a table, for people."""
    epsilon, delta = cost(guarantee)
    rows: list[tuple[str, str | None]] = [
        ("promise", str(guarantee)),
        ("in words", in_words(epsilon, delta)),
        (
            "advantage",
            f"an attacker gains at most {percent(advantage_bound(epsilon, delta=delta), up=True)} over a blind guess",
        ),
    ]
    rows += [("made of", f"{name}: {part}") for name, part in guarantee.parts]
    rows += [("assumes", text) for text in guarantee.assumptions]
    return rows
