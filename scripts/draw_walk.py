"""Draw the walk of a label from table to report, and whom the owner of a label can trust: the front page and README.md.

The words and figures in the boxes are the library's own: the guarantee is printed by a `Release`, the shares are read off its channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from drawing import GROUND, SOFT, arrow, box, line, paragraph, picture, series, text

import labeldp
from labeldp.plots import Lines, Series, plot_file

#: The rows of the little table: a feature, and a label that leaves by the door as itself or as the other one.
ROWS = (("34", "no", "no"), ("51", "yes", "yes"), ("29", "no", "yes"), ("62", "yes", "yes"))
EPSILON = 1.0


def draw_table(x: float, y: float, title: str, column: int, colour: str) -> list[str]:
    """A little table with its label column in a colour."""
    parts = [box(x, y, 112, 150), text(x + 14, y + 24, "age", size=13, bold=True)]
    parts += [
        box(x + 52, y + 6, 54, 138, fill=colour, stroke="none", strength=0.18),
        text(x + 79, y + 24, "ill", size=13, bold=True, anchor="middle"),
    ]
    for number, row in enumerate(ROWS):
        parts.append(text(x + 14, y + 50 + 26 * number, row[0], size=14))
        parts.append(text(x + 79, y + 50 + 26 * number, row[column], size=14, anchor="middle"))
    parts.append(text(x + 56, y + 172, title, size=14, bold=True, anchor="middle"))
    return parts


def draw_walk() -> str:
    """Return the picture of the front page."""
    mechanism = labeldp.RandomizedResponse(EPSILON, n_classes=2)
    release = labeldp.privatize(labeldp.SensitiveLabels(["no", "yes"], classes=["no", "yes"]), mechanism)
    keep = 100 * float(release.channel.matrix()[0, 0])
    top = 60.0
    says = f"each label stays with {keep:.0f}%, else it is the other one (epsilon {EPSILON:g}, two classes)"
    bars = enumerate((14, 26, 38, 46))
    parts = [
        *draw_table(10, top, "a table", 1, series(1)),
        paragraph(66, top + 192, "features are public, labels are not", letters=18, size=12.5, anchor="middle"),
        arrow(126, top + 75, 150, top + 75),
        box(154, top - 18, 166, 186, fill=series(1), strength=0.1, stroke=series(1)),
        text(237, top + 6, "the door", size=15, bold=True, anchor="middle"),
        text(237, top + 26, "privatize()", size=13, anchor="middle", mono=True),
        paragraph(237, top + 52, says, letters=23, size=12.5, anchor="middle"),
        paragraph(
            237, top + 124, "the promise is compared with the exact worst case", letters=23, size=12.5, anchor="middle"
        ),
        arrow(237, top + 170, 237, top + 200),
        box(160, top + 204, 154, 50),
        text(237, top + 224, "the ledger", size=14, bold=True, anchor="middle"),
        text(237, top + 243, "charged before drawing", size=12.5, anchor="middle"),
        line(334, 12, 334, top + 254, stroke=series(1), dash="7 5", width=2),
        text(326, 24, "raw labels stop here", size=13, anchor="end", colour=series(1)),
        text(342, 24, "from here on nothing costs privacy", size=13, colour=series(2)),
        arrow(322, top + 75, 352, top + 75),
        *draw_table(356, top, "a release", 2, series(2)),
        paragraph(
            412, top + 192, "answers, how they were made, and the promise", letters=18, size=12.5, anchor="middle"
        ),
        arrow(472, top + 75, 496, top + 75),
        box(500, top + 20, 112, 110),
        text(556, top + 58, "a model", size=15, bold=True, anchor="middle"),
        paragraph(556, top + 80, "trained by the likelihood of the answers", letters=16, size=12.5, anchor="middle"),
        arrow(616, top + 75, 640, top + 75),
        box(644, top, 86, 150),
        *(line(656, top + 26 + 16 * n, 718 - 12 * (n % 3), top + 26 + 16 * n, stroke=SOFT, width=3) for n in range(3)),
        *(box(658 + 17 * n, top + 134 - high, 11, high, fill=series(0), stroke="none", round_by=1) for n, high in bars),
        text(687, top + 172, "a report", size=14, bold=True, anchor="middle"),
        paragraph(687, top + 192, "what it cost, what it bought", letters=14, size=12.5, anchor="middle"),
        box(348, top + 240, 382, 32, fill=GROUND, stroke=series(2)),
        text(539, top + 261, release.guarantee.headline, size=12.5, anchor="middle"),
    ]
    words = (
        "A table with ages and labels goes through the door, which keeps each label or replaces it and charges the ledger. "
        "What comes out is a release with a promise; a model is trained on it, and a report says what it cost and bought."
    )
    return picture(740, top + 284, parts, words=words)


#: The corners: whom she trusts, what is done there, calls of the library, where it pays.
CORNERS = (
    (
        "no one",
        "Each label is randomized by itself, from public settings: its owner could do it.",
        ("InformativeResponse", 'trust="no one"', "LabelPrivateRegressor"),
        0,
    ),
    (
        "a curator",
        "Someone reads all labels, and releases noisy counts and sums of them.",
        ("measure, ClusterPrior", 'trust="curator"', "SufficientStatistics, PATE"),
        1,
    ),
    (
        "her peers",
        "Each flips her label, then passes on that of a peer under her own name.",
        ("PeerToPeerRR", "labeldp.peers", "two classes, a delta"),
        2,
    ),
)
PLACES = ((250.0, 14.0), (14.0, 272.0), (486.0, 272.0))


def draw_trust() -> str:
    """Return the triangle of trust."""
    parts = [
        line(350, 170, 140, 272, stroke=SOFT, width=2),
        line(390, 170, 600, 272, stroke=SOFT, width=2),
        line(254, 350, 486, 350, stroke=SOFT, width=2),
    ]
    for (name, does, calls, colour), (x, y) in zip(CORNERS, PLACES, strict=True):
        parts.append(box(x, y, 240, 156, fill=GROUND, stroke="none"))
        parts.append(box(x, y, 240, 156, fill=series(colour), strength=0.1, stroke=series(colour)))
        parts.append(text(x + 120, y + 24, f"trusts {name}", size=16, bold=True, anchor="middle"))
        parts.append(paragraph(x + 120, y + 46, does, letters=32, size=13, anchor="middle"))
        parts += [
            text(x + 120, y + 106 + 18 * n, call, size=12.5, anchor="middle", mono=True) for n, call in enumerate(calls)
        ]
    parts += [
        paragraph(96, 196, "more is learned where epsilon or rows are few", letters=24, anchor="middle"),
        paragraph(644, 196, "less noise, if peers keep quiet about whom they asked", letters=24, anchor="middle"),
        box(262, 226, 216, 64, fill=GROUND, stroke="none"),
        text(370, 250, "the owner of a label", size=15, bold=True, anchor="middle"),
        text(370, 270, "whom must she trust?", size=13, anchor="middle"),
        paragraph(370, 384, "one sees raw labels, the others only flipped ones", letters=26, anchor="middle"),
    ]
    words = (
        "A triangle of whom the owner of a label must trust: no one, a curator who reads all labels, or her peers, who "
        "see flipped ones. At the same epsilon these are three different promises."
    )
    return picture(740, 446, parts, words=words)


def draw_belief() -> str:
    """Return what may be believed of a label after a release, against what was believed before, for some epsilons."""
    before = [(n / 60) ** 2 / 2 for n in range(61)]
    before += [1 - p for p in reversed(before[:-1])]  # dense at both ends, where the lines bend
    lines = []
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        odds = math.exp(epsilon)
        after = tuple(100 * odds * p / (odds * p + 1 - p) for p in before)
        name = "nothing released" if epsilon == 0 else f"epsilon {epsilon:g}"
        lines.append(Series(name=name, x=tuple(100 * p for p in before), y=after, points=False))
    middle = "; ".join(f"{one.name}: {one.y[60]:.0f}%" for one in lines)
    return plot_file(
        Lines(
            title="The most that a release can make someone believe of a label",
            series=tuple(lines),
            x_title="believed before, %",
            y_title="believed after, at most, %",
            alt=f"From 50% before: {middle}.",
        ),
        dark=True,
    )


DRAWINGS: dict[str, Callable[[], str]] = {"walk": draw_walk, "trust": draw_trust, "belief": draw_belief}
