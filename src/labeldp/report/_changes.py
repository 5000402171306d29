"""The sections about the labels themselves: how often they were changed, what is expected right, and in which stages."""

from __future__ import annotations

import math

import numpy as np

from labeldp.release import Release
from labeldp.report._epsilons import families
from labeldp.report._rates import Rates
from labeldp.report._values import Bars, Block, Lines, Section, Table
from labeldp.report._words import percent

#: Classes with a bar or a row of their own.
MOST_BARS = 20
MOST_ROWS = 100


def changes(release: Release, found: Rates) -> Section:
    """Return flip rates, expected accuracy, and how many labels of each class were released."""
    title = "How labels were changed"
    if found.flips is None or found.expected_accuracy is None:
        text = "What was released are not labels but outputs of another kind; learners undo the noise by the channel."
        return Section(title=title, blocks=(text,))
    blocks: list[Block] = [_expected(release, found), _flips(release, found), _counts(release, found)]
    if found.n_asked is not None:
        blocks.append(
            f"Each example has its own channel: these are averages over {found.n_asked:,} evenly spaced ones."
        )
    return Section(title=title, blocks=tuple(blocks))


def _expected(release: Release, found: Rates) -> str:
    right = percent(found.expected_accuracy or 0.0)
    care = (
        "" if found.prior_flips is None else " It is as good as the prior: one that is mostly noise promises too much."
    )
    return (
        f"{right} of the {len(release):,} released labels are expected to be the true ones, under {found.expected_under}. "
        "This is a forecast from the channel, which is public; no released label was compared with a true one." + care
    )


def _flips(release: Release, found: Rates) -> Bars:
    """Bars of what is to be expected: under the prior where there is one."""
    shown = (found.prior_flips or found.flips or ())[:MOST_BARS]
    pairs = [(str(name), flip) for name, flip in zip(release.classes, shown, strict=False) if not math.isnan(flip)]
    some = f" (the first {len(shown)})" if release.n_classes > len(shown) else ""
    return Bars(
        title=f"How often a label of each class is released as another one{some}",
        labels=tuple(name for name, _ in pairs),
        values=tuple(100 * flip for _, flip in pairs),
        x_title=f"flipped (%), under {found.expected_under}",
        alt=", ".join(f"{name} {percent(flip)}" for name, flip in pairs),
    )


def _counts(release: Release, found: Rates) -> Table:
    counts = np.bincount(release.codes, minlength=release.n_classes)
    shown = min(release.n_classes, len(found.flips or ()), MOST_ROWS)
    columns = [("flipped, whichever row has it", found.flips or ())]
    if found.prior_flips is not None:
        columns.insert(0, ("flipped, if the prior is right", found.prior_flips))
    rows = tuple(
        (
            str(release.classes[code]),
            *("-" if math.isnan(values[code]) else percent(values[code]) for _, values in columns),
            f"{int(counts[code]):,}",
        )
        for code in range(shown)
    )
    rest = release.n_classes - shown
    caption = "Flip rates, and how often each class was released, noise included"
    return Table(
        caption=caption + (f" ({rest:,} more classes are not listed)" if rest else ""),
        columns=("class", *(name for name, _ in columns), "released as this class"),
        rows=rows,
        numeric=tuple(range(1, len(columns) + 2)),
    )


def against_epsilon(release: Release, found: Rates) -> Section:
    """Return the expected accuracy of labels at other epsilons."""
    lines = families(release)
    own = found.expected_accuracy
    plot = Lines(
        title="Expected accuracy of released labels against epsilon",
        series=lines,
        x_title="epsilon",
        y_title="labels expected right (%)",
        alt=" ".join(
            f"{line.name}: {line.y[0]:.1f}% at {line.x[0]:g}, {line.y[-1]:.1f}% at {line.x[-1]:g}." for line in lines
        ),
        x_log=True,
        references=() if own is None else (("this release", 100 * own),),
    )
    text = (
        f"What another budget for the randomized labels would keep, computed from the channels of the library for "
        f"{release.n_classes:,} classes. Where counts or a prior were released too, their own cost comes on top."
    )
    return Section(title="Accuracy against epsilon", blocks=(text, plot))


def stages(release: Release) -> Section | None:
    """Return the rows of each stage, or None where all labels were released at once."""
    if release.stage is None:
        return None
    counts = np.bincount(release.stage)
    rows = tuple((str(number), f"{int(count):,}") for number, count in enumerate(counts) if count)
    table = Table(caption="Rows per stage", columns=("stage", "rows"), rows=rows, numeric=(1,))
    text = (
        "Labels were released in turns, each on rows of its own: a model of the earlier ones was the prior of the next. "
        "Stages are disjoint, so that one label is in one of them."
    )
    return Section(title="Stages", blocks=(text, table))
