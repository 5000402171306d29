"""The sections that say what was protected, from whom, and what anyone could infer before and after.

>>> from labeldp.guarantee import Guarantee
>>> [section.title for section in (inference(Guarantee.pure(1.0)),)]
['What anyone could infer']
"""

from __future__ import annotations

import math
from typing import Any

from labeldp._advantage import advantage_bound, best_guess
from labeldp.guarantee import Guarantee, shown
from labeldp.release import Release
from labeldp.report._values import Block, Facts, Lines, Section, Series, Table
from labeldp.report._words import cost, in_words, largest_belief, percent, right_guesses

#: Beliefs that somebody may have had before: from a rare illness to near certainty.
BELIEFS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
#: Points of the drawn curve, in percent.
CURVE = (0.0, 1.0, 2.5, 5.0, *(float(p) for p in range(10, 91, 5)), 95.0, 97.5, 99.0, 100.0)

FROM_WHOM = {
    "no one": "From everyone, whoever collected the labels included: each was randomized before anyone else saw it.",
    "a curator": "From everyone but the curator who collected the labels: she sees them and must be trusted.",
}


def protection(release: Release, manifest: dict[str, Any]) -> Section:
    """Return what was protected, from whom, by what, and what that stands on."""
    promise = release.guarantee
    column = manifest.get("label_column")
    trust = promise.trust.words
    pairs = [
        ("Protected", f"{len(release):,} labels" + (f" of column {column}" if column else "")),
        ("Not protected", "every other column of the table: features are public" if column else "the features"),
        ("Unit", f"{promise.unit.sentence}: data that differ by so much look alike"),
        ("From whom", FROM_WHOM.get(trust, f"From everyone but {trust}, who must be trusted.")),
        ("Classes", _listed(release.classes)),
        ("Promise", str(promise)),
        ("Mechanism", release.mechanism),
        ("Label set", release.label_set),
        *((f"Part: {name}", str(part)) for name, part in promise.parts),
        *(("Assumes", text) for text in promise.assumptions),
    ]
    return Section(title="What was protected, and from whom", blocks=(Facts(pairs=tuple(pairs)),))


def _listed(classes: tuple[Any, ...], most: int = 12) -> str:
    names = ", ".join(str(name) for name in classes[:most])
    rest = len(classes) - most
    return f"{len(classes):,}: {names}" + (f" and {rest:,} more" if rest > 0 else "")


def inference(promise: Guarantee) -> Section:
    """Return epsilon in plain words: guesses and beliefs about one label, before and after the release."""
    epsilon, delta = cost(promise)
    title = "What anyone could infer"
    if math.isinf(epsilon):
        return Section(title=title, blocks=(f"{in_words(epsilon)[0].upper()}{in_words(epsilon)[1:]}.",))
    words = in_words(epsilon, delta)
    blocks: list[Block] = [f"{words[0].upper()}{words[1:]}.", _factor(epsilon, delta), _beliefs(epsilon, delta)]
    if delta == 0:
        blocks.append(_curve(epsilon))
    blocks.append(
        "These are bounds for somebody who knows everything else, all other labels included, whatever she does with "
        "the release. They are about what this release adds: features that reveal a label reveal it without any release."
    )
    return Section(title=title, blocks=tuple(blocks))


def _factor(epsilon: float, delta: float) -> str:
    odds = shown(math.exp(epsilon)) if epsilon < 700 else "more than 1e300"
    gain = percent(advantage_bound(epsilon, delta=delta), up=True)
    if delta == 0:
        return (
            f"Epsilon is {shown(epsilon)}: the odds of any two values of one label change by a factor of at most {odds} "
            f"(e to the power epsilon). A test between the two beats chance by at most {gain}."
        )
    return (
        f"Epsilon is {shown(epsilon)} at delta = {delta:g}: but for a part of probability delta, what is seen is at most "
        f"{odds} times likelier for one value of a label than for another. A test between two beats chance by at most "
        f"{gain}."
    )


def _beliefs(epsilon: float, delta: float) -> Table:
    """A belief before, the share of right guesses before and after, and (where delta is 0) the largest belief after."""
    columns = ["belief in one of two values", "right guesses before", "right guesses after, at most"]
    columns += ["largest belief after"] if delta == 0 else []
    rows = []
    for prior in BELIEFS:
        row = [percent(prior), percent(max(prior, 1 - prior)), percent(right_guesses(prior, epsilon, delta), up=True)]
        rows.append((*row, percent(largest_belief(prior, epsilon), up=True)) if delta == 0 else tuple(row))
    caption = "Before and after the release, for someone who must decide between two values of one label"
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows), numeric=tuple(range(len(columns))))


def _curve(epsilon: float) -> Lines:
    after = tuple(100 * largest_belief(p / 100, epsilon) for p in CURVE)
    half = percent(best_guess(epsilon), up=True)
    return Lines(
        title="The largest belief in a value after the release, against the belief before",
        series=(Series(name="after, at most", x=CURVE, y=after), Series(name="before", x=CURVE, y=CURVE)),
        x_title="belief before (%)",
        y_title="belief after (%)",
        alt=f"A curve above the diagonal: a belief of 50% becomes at most {half}.",
    )
