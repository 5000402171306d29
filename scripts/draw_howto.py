"""Draw the pictures of the how-to pages: what is read out of a file, what becomes of columns, what a choice gives away, how wide
the intervals of an evaluation are, what a loss does with an answer, where an encoder stands, what an engine costs, and the mechanism of docs/extending.md.

Nothing is written by hand: files are read and encoded by the library, losses come from a channel, figures of measurements are read
from the tables that the benchmarks printed into benchmarks/results (choosing.md, evaluation.md) and docs/scale.md.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from draw_mechanisms import draw_response
from drawing import GROUND, SOFT, arrow, box, line, paragraph, picture, series, text

from labeldp import data
from labeldp.guarantee import best_guess
from labeldp.learn import TableEncoder
from labeldp.mechanisms import RandomizedResponse
from labeldp.plots import Bars, Lines, Series, plot_file

ROOT = Path(__file__).resolve().parent.parent


def read_table(path: Path, head: str) -> list[list[str]]:
    """The rows of the first Markdown table of a file whose line of names begins so; blanks and the rule under the names are left out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = next(n for n, words in enumerate(lines) if words.startswith(head))
    rows = []
    for words in lines[begin + 2 :]:
        if not words.startswith("|"):
            break
        rows.append([cell.strip() for cell in words.strip("|").split("|")])
    return rows


# ------------------------------------------------------------------------------------------------- docs/tables.md

#: Five lines as a spreadsheet in Zürich writes them: what is odd in them is what the page is about.
LINES = (
    "age;größe;town;since;ill",
    "31;1,61;Zürich;12.08.2019;yes",
    "32;;Genève;13.09.2019;no",
    "33;1,63;Bern;14.10.2019;YES",
    "34;1,64;Zürich;15.11.2019;yes ",
)
#: Where columns of the table stand, in pixels.
COLUMNS = (28.0, 104.0, 200.0, 304.0, 440.0, 536.0)


def draw_reading() -> str:
    """The lines of a file, and below them the table that is read out of it, its types, and its labels after two options."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "survey.csv"
        path.write_bytes("\n".join(LINES).encode("cp1252"))
        source = data.open_table(path)
        found, words = next(iter(source.batches())), source.form.words
        merged = source.rewrite("ill", strip=True, merge={"yes": "YES"})
        classes = next(iter(merged.batches()))["ill"].to_pylist()
    parts = [text(24, 26, "the file", size=15, bold=True), box(16, 36, 664, 26 * len(LINES) + 12)]
    for number, raw in enumerate(LINES):
        x = 28.0
        for place, field in enumerate(raw.split(";")):
            shown = field.replace(" ", "␣")
            if place:
                parts.append(text(x, 60 + 26 * number, ";", size=15, mono=True, colour=SOFT))
                x += 9.1
            parts.append(text(x, 60 + 26 * number, shown, size=15, mono=True, colour=series(place)))
            x += 9.1 * len(shown)
    top = 36.0 + 26 * len(LINES) + 12
    parts += [arrow(40, top + 4, 40, top + 34), text(56, top + 24, f"found out: {words}", size=13)]
    top += 58
    parts.append(text(24, top, "the table", size=15, bold=True))
    parts.append(box(16, top + 10, 664, 26 * len(LINES) + 34))
    for place, name in enumerate(found.schema.names):
        x = COLUMNS[place]
        parts.append(text(x, top + 32, name, size=14, bold=True, colour=series(place)))
        parts.append(text(x, top + 50, str(found.schema.field(name).type), size=12, mono=True, colour=SOFT))
        for number, value in enumerate(found[name].to_pylist()):
            shown = "(missing)" if value is None else str(value).replace(" ", "␣")
            parts.append(
                text(x, top + 76 + 26 * number, shown, size=14, colour=SOFT if value is None else series(place))
            )
    parts.append(text(COLUMNS[5], top + 32, "ill", size=14, bold=True, colour=series(4)))
    parts.append(text(COLUMNS[5], top + 50, "--strip --merge", size=12, mono=True, colour=SOFT))
    parts += [
        text(COLUMNS[5], top + 76 + 26 * number, value, size=14, colour=series(4))
        for number, value in enumerate(classes)
    ]
    says = (
        f"Five lines of a file, and the table that is read out of it: {words}. Three spellings of yes are one class "
        "after --strip and --merge; an empty field is missing; days are dates."
    )
    return picture(696, top + 26 * len(LINES) + 54, parts, words=says)


# ------------------------------------------------------------------------------------------------ docs/columns.md


def draw_encoding() -> str:
    """Four rows of a table, and the numbers that `TableEncoder` makes of them."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "town": rng.choice(["Bern", "Chur", "Uri"], 500),
            "age": rng.integers(18, 80, 500).astype(float),
            "income": rng.lognormal(10, 0.7, 500).round(2),
        }
    )
    people.loc[rng.random(500) < 0.15, "age"] = np.nan
    known, gaps = (np.flatnonzero(people["age"].isna() == gap)[:3] for gap in (False, True))
    shown = people.iloc[[*known, gaps[0]]]
    encoder = TableEncoder().fit(people)
    features = np.asarray(encoder.transform(shown))
    origin = [*encoder.numbers_, *(name for name, words in encoder.categories_.items() for _ in words), *encoder.gaps_]
    names = [*encoder.numbers_, *(word for words in encoder.categories_.values() for word in words), "no age"]
    colours = {name: series(place) for place, name in enumerate(people.columns)}
    parts = [text(24, 28, "four of 500 rows", size=15, bold=True), box(16, 40, 220, 156)]
    for place, name in enumerate(people.columns):
        x = (80.0, 136.0, 224.0)[place]
        parts.append(text(x, 64, name, size=14, bold=True, anchor="end", colour=colours[name]))
        for number, value in enumerate(shown[name]):
            blank = isinstance(value, float) and math.isnan(value)
            words = "(gap)" if blank else value if isinstance(value, str) else f"{value:,.0f}"
            parts.append(
                text(x, 92 + 28 * number, words, size=14, anchor="end", colour=SOFT if blank else colours[name])
            )
    parts += [
        arrow(242, 118, 294, 118),
        text(300, 28, "what the learner sees", size=15, bold=True),
        box(298, 40, 386, 156),
    ]
    for place, (name, column) in enumerate(zip(names, origin, strict=True)):
        x = 352.0 + 64.0 * place
        parts.append(text(x, 64, name, size=13.5, bold=True, anchor="end", colour=colours[column]))
        for number, value in enumerate(features[:, place]):
            words = f"{value:.2f}" if column in encoder.numbers_ and name != "no age" else f"{value:.0f}"
            parts.append(text(x, 92 + 28 * number, words, size=14, anchor="end", colour=colours[column]))
    parts += [
        paragraph(24, 222, "no label takes part, so this costs nothing", letters=30),
        paragraph(
            300,
            222,
            "numbers of about one size, a column for each word, the gap at the median and marked by a column of its own",
            letters=58,
        ),
    ]
    says = (
        "Four rows with town, age and income, one of them without an age, and the six columns of numbers that they become: "
        "age and income centred and scaled, a column of zeros and ones for each town, and one that marks the missing age."
    )
    return picture(700, 258, parts, words=says)


# ----------------------------------------------------------------------------------------------- docs/choosing.md

TOOLS = {
    "scikit-learn, by score": "model.score, raw labels",
    "scikit-learn, by cross validation": "cross_val_score, raw labels",
    "scikit-learn, by grid search": "GridSearchCV, raw labels",
    "scikit-learn, by calibration": "CalibratedClassifierCV, raw labels",
    "PrivateSearchCV, released, likelihood": "PrivateSearchCV",
    "PrivateSearchCV, noisy count": 'PrivateSearchCV, by="noisy_count"',
}


def draw_choice() -> str:
    """How often the winner of a choice named a label, as the attack of benchmarks/choosing.py counted, beside what epsilon allows."""
    found = {}
    for who, epsilon, named, _ in read_table(ROOT / "benchmarks" / "results" / "choosing.md", "| chosen by"):
        if who in TOOLS and float(epsilon) == 0.1:
            right, tries = (int(number.replace(",", "")) for number in named.split(" of "))
            found[TOOLS[who]] = 100 * right / tries
    found["what epsilon 0.1 allows"] = 100 * best_guess(0.1)
    alt = "; ".join(f"{name} {share:.1f}%" for name, share in found.items())
    title = "the choice names the label of one person, % of tries; each model has epsilon 0.1"
    return plot_file(
        Bars(title=title, labels=tuple(found), values=tuple(found.values()), x_title=title, alt=alt), dark=True
    )


# --------------------------------------------------------------------------------------------- docs/evaluating.md

#: Sources of truth, by their headings in benchmarks/results/evaluation.md; the first one is exact.
SOURCES = {
    "public labels: exact": "protected labels, epsilon 1",
    "protected, epsilon 2": "protected labels, epsilon 2",
    "protected, epsilon 1": "protected labels, epsilon 1",
    "protected, epsilon 0.5": "protected labels, epsilon 0.5",
    "released at epsilon 1": "released by randomized response, epsilon 1",
}


def draw_intervals() -> str:
    """The accuracy and the AUC of one model on 10,000 rows of Adult, and how wide their intervals are, by the labels that are read."""
    parts = []
    words = []
    for number, (metric, name) in enumerate((("accuracy", "accuracy"), ("auc", "AUC"))):
        left, width = 190.0 + 250 * number, 230.0
        found = {}
        for source, heading in SOURCES.items():
            cells = read_figure("adult", heading, metric)
            found[source] = (100 * cells[0], 0.0 if source.startswith("public") else 100 * cells[1])
        middle, widest = next(iter(found.values()))[0], max(half for _, half in found.values())
        scale = width / 2 / (1.15 * widest)
        parts.append(text(left + width / 2, 26, f"{name}, %", size=15, bold=True, anchor="middle"))
        parts.append(line(left + width / 2, 40, left + width / 2, 48 + 34 * len(found), stroke=SOFT, dash="4 4"))
        for row, (source, (value, half)) in enumerate(found.items()):
            y, x = 66 + 34 * row, left + width / 2
            if not number:
                parts.append(text(176, y + 5, source, size=14, anchor="end"))
            if half:
                parts.append(line(x - half * scale, y, x + half * scale, y, stroke=series(row), width=5))
            parts.append(box(x - 4, y - 4, 8, 8, fill=series(row), stroke=series(row), round_by=4))
            shown = f"{value:.1f}" if not half else f"± {half:.2f}"
            parts.append(box(x - 26, y - 21, 52, 14, fill=GROUND, stroke=GROUND, round_by=0))
            parts.append(text(x, y - 9, shown, size=12.5, anchor="middle"))
            words.append(f"{name}, {source}: {shown}")
        parts.append(
            text(
                left, 70 + 34 * len(found), f"{middle - width / 2 / scale:.1f}", size=12.5, colour=SOFT, anchor="start"
            )
        )
        parts.append(
            text(
                left + width,
                70 + 34 * len(found),
                f"{middle + width / 2 / scale:.1f}",
                size=12.5,
                colour=SOFT,
                anchor="end",
            )
        )
    return picture(696, 84 + 34 * len(SOURCES), parts, words=f"Intervals of 95%, Adult. {'; '.join(words)}.")


def read_figure(data: str, heading: str, metric: str) -> tuple[float, float]:
    """The exact value of a figure, and the mean half width of its intervals, as benchmarks/evaluation.py wrote them."""
    written = (ROOT / "benchmarks" / "results" / "evaluation.md").read_text(encoding="utf-8")
    section = written.split(f"### {data}, {heading}\n", maxsplit=1)[1].split("\n### ", maxsplit=1)[0]
    cells = next(words for words in section.splitlines() if words.startswith(f"| {metric} |")).strip("|").split("|")
    return float(cells[1]), float(cells[3])


# ------------------------------------------------------------------------------------------------ docs/pytorch.md


def draw_losses() -> str:
    """The loss of one answer, against the probability that a network gives to what it names: three classes, epsilon 1."""
    channel = RandomizedResponse(1.0, n_classes=3).channel()
    beliefs = np.concatenate([np.linspace(0.02, 0.1, 17), np.linspace(0.12, 0.9, 40), np.linspace(0.905, 0.98, 16)])
    rows = np.column_stack([beliefs, (1 - beliefs) / 2, (1 - beliefs) / 2])
    named = np.zeros(len(rows), dtype=np.int64)
    likely = np.asarray(channel.likelihood(named))
    lines = {
        "cross-entropy: takes it for the label": -np.log(beliefs),
        "ForwardLoss: what was released is so likely": -np.log((rows * likely).sum(axis=1)),
        "UnbiasedLoss: right on average": np.asarray(channel.unbiased(-np.log(rows), named)),
    }
    x = tuple(100 * float(p) for p in beliefs)
    drawn = tuple(Series(name=name, x=x, y=tuple(map(float, y)), points=False) for name, y in lines.items())
    ends = "; ".join(f"{one.name} from {one.y[0]:.2f} to {one.y[-1]:.2f}" for one in drawn)
    return plot_file(
        Lines(
            title="The loss of one released label, three classes, epsilon 1",
            series=drawn,
            x_title="probability that the network gives to the released label, %",
            y_title="loss, nats",
            alt=ends,
        ),
        dark=True,
    )


# --------------------------------------------------------------------------------------------- docs/embeddings.md


def draw_encoder() -> str:
    """Where the encoder stands: beside the door, never behind it."""
    free, paid = series(2), series(1)
    parts = [
        box(10, 12, 676, 128, fill=free, strength=0.07, stroke=free, dashed=True),
        text(24, 34, "features: public, and free", size=13.5, bold=True, colour=free),
        box(24, 48, 124, 72, fill=GROUND),
        text(86, 78, "examples", size=15, bold=True, anchor="middle"),
        text(86, 98, "images, texts", size=12.5, anchor="middle"),
        arrow(152, 84, 184, 84),
        box(188, 48, 132, 72, fill=GROUND),
        text(254, 72, "your encoder", size=15, bold=True, anchor="middle"),
        paragraph(254, 91, "run once; trained on much else", letters=19, size=12.5, anchor="middle"),
        arrow(324, 84, 356, 84),
        box(360, 48, 132, 72, fill=GROUND),
        text(426, 72, "a folder", size=15, bold=True, anchor="middle"),
        paragraph(426, 91, "rows of numbers, kept for next time", letters=20, size=12.5, anchor="middle"),
        arrow(496, 84, 548, 84),
        box(10, 176, 482, 96, fill=paid, strength=0.07, stroke=paid, dashed=True),
        text(124, 198, "labels: each is answered once, at epsilon", size=13.5, bold=True, colour=paid),
        box(24, 208, 124, 52, fill=GROUND),
        text(86, 239, "labels", size=15, bold=True, anchor="middle"),
        arrow(152, 234, 184, 234),
        box(188, 208, 132, 52, fill=GROUND, stroke=paid),
        text(254, 239, "the door", size=15, bold=True, anchor="middle"),
        arrow(324, 234, 356, 234),
        box(360, 208, 120, 52, fill=GROUND),
        text(420, 239, "answers", size=15, bold=True, anchor="middle"),
        line(484, 234, 613, 234, width=2),
        box(552, 48, 122, 72, fill=GROUND),
        text(613, 72, "a learner", size=15, bold=True, anchor="middle"),
        paragraph(613, 91, "small: it needs few labels", letters=16, size=12.5, anchor="middle"),
        arrow(613, 234, 613, 124),
        line(86, 204, 200, 124, stroke=paid, dash="5 4", width=2),
        line(132, 154, 154, 174, stroke=paid, width=3),
        line(154, 154, 132, 174, stroke=paid, width=3),
        text(166, 166, "never: an encoder that saw these labels may say them", size=13, colour=paid),
    ]
    says = (
        "Examples go through an encoder that was trained elsewhere, once, into a folder of numbers: that part is free. Labels go "
        "through the door, and a small learner reads numbers and answers. A crossed-out line from labels to the encoder: never."
    )
    return picture(696, 284, parts, words=says)


# -------------------------------------------------------------------------------------------------- docs/scale.md


def draw_engines() -> str:
    """Time for a row against the number of rows, as benchmarks/bench_engines.py wrote it into docs/scale.md."""
    rows = read_table(ROOT / "docs" / "scale.md", "| rows | MB | copy s")
    counts = tuple(float(row[0].replace(",", "")) / 1e6 for row in rows)
    names = {2: "a copy of the table, nothing drawn", 3: "labeldp, one process", 4: "labeldp, dask, two workers"}
    drawn = tuple(
        Series(name=name, x=counts, y=tuple(float(row[place]) / n for row, n in zip(rows, counts, strict=True)))
        for place, name in names.items()
    )
    ends = "; ".join(
        f"{one.name}: {one.y[0]:.2f} at {one.x[0]:g} million rows, {one.y[-1]:.2f} at {one.x[-1]:g}" for one in drawn
    )
    return plot_file(
        Lines(
            title="What a row costs",
            series=drawn,
            x_title="rows of the table, millions",
            y_title="microseconds a row",
            alt=ends,
            x_log=True,
        ),
        dark=True,
    )


# ---------------------------------------------------------------------------------------------- docs/extending.md


def draw_ladder() -> str:
    """The mechanism of the page, run from the page itself: five steps."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)\nladder = ", page, re.DOTALL)
    if block is None:
        raise ValueError("docs/extending.md has no block that ends with `ladder = `.")
    names: dict[str, Any] = {"__name__": "extending"}
    exec(
        compile(block[1], "docs/extending.md", "exec", dont_inherit=True), names
    )  # our own page, which the tests run as well
    return draw_response(
        lambda epsilon: names["Ladder"](epsilon=epsilon, n_classes=5).channel().matrix(),
        letters="01234",
        words="Labels 0 to 4 by the mechanism of this page: at epsilon 0.5 and 1 mostly an end of the list is said, the nearer one more "
        "often; at 4 mostly the true label or a neighbour.",
    )


DRAWINGS: dict[str, Callable[[], str]] = {
    "reading": draw_reading,
    "encoding": draw_encoding,
    "choice": draw_choice,
    "intervals": draw_intervals,
    "losses": draw_losses,
    "encoder": draw_encoder,
    "engines": draw_engines,
    "ladder": draw_ladder,
}
