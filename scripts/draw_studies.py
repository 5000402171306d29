"""Draw lines and bars of the committed studies (studies/results/*/result.json): accuracy against epsilon, beside papers and peers."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from drawing import RULE, SOFT, box, picture, series, text

from labeldp.plots import Bars, Lines, Series, plot_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from studies.encoder import MIRRORS  # noqa: E402 - studies are not installed
from studies.networks import SAME_QUESTIONS  # noqa: E402 - studies are not installed
from studies.paper_figures import TABLE_1  # noqa: E402 - studies are not installed

RESULTS = ROOT / "studies" / "results"


@functools.cache
def read_rows(study: str) -> tuple[dict[str, Any], ...]:
    """The rows of a study: table, setting, epsilon, trust, mean, spread, and the paper's number if there is one."""
    return tuple(json.loads((RESULTS / study / "result.json").read_text(encoding="utf-8"))["rows"])


def has_rows(study: str, table: str) -> bool:
    """Whether a study has a committed result with rows in tables of this beginning."""
    there = (RESULTS / study / "result.json").exists()
    return there and any(row["table"].startswith(table) for row in read_rows(study))


def trace(rows: Iterable[Mapping[str, Any]], name: str, *, value: str = "mean") -> Series | None:
    """One line through rows of one setting at several epsilons, those without privacy or without a value left out."""
    points = sorted(
        (float(f"{float(row['epsilon']):.3g}"), float(row[value]), float(row["spread"] or 0.0))
        for row in rows
        if row[value] is not None and math.isfinite(float(row["epsilon"]))
    )
    if not points:
        return None
    x, y, spreads = zip(*points, strict=True)
    return Series(name=name, x=x, y=y, spreads=spreads if value == "mean" else ())


def draw_lines(title: str, series: Iterable[Series | None], *, y_title: str, references: dict[str, float]) -> str:
    """A file of lines over epsilon; its words say where each line begins and ends."""
    there = tuple(one for one in series if one is not None)
    ends = "; ".join(f"{one.name}: {one.y[0]:.1f} at {one.x[0]:g}, {one.y[-1]:.1f} at {one.x[-1]:g}" for one in there)
    flat = "".join(f"; {name}: {value:.1f}" for name, value in references.items())
    return plot_file(
        Lines(
            title=title,
            series=there,
            x_title="epsilon",
            y_title=y_title,
            alt=ends + flat,
            x_log=True,
            references=tuple(references.items()),
        ),
        dark=True,
    )


#: Settings of the studies of images that are drawn, and what the page calls them.
WAYS = {
    "auto, no one": "labeldp, trusts no one",
    "auto, curator": "labeldp, trusts a curator",
    "LP-2ST": "LP-2ST, our network",
}


def read_images(data: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a set on its features by setting: of its own study, and at the other epsilons of the paper's table."""
    rows = list(read_rows(f"images-{data}"))
    if has_rows("paper-stages", "Table"):
        rows += [row for row in read_rows("paper-stages") if row["table"] in {f"Table 1, {data}", f"Table 4, {data}"}]
    return {name: [row for row in rows if row["setting"] == name] for name in {row["setting"] for row in rows}}


def draw_images(data: str) -> str:
    """Accuracy on one set of images, beside the paper's own numbers, which are of a larger network."""
    settings = read_images(data)
    lines = [trace(settings.get(setting, ()), name) for setting, name in WAYS.items()]
    lines.append(trace(settings.get("LP-2ST", ()), "LP-2ST, the paper's ResNet", value="paper"))
    lines.append(trace(settings.get("LP-1ST", ()), "LP-1ST, the paper's ResNet", value="paper"))
    # Last, since not every set has it: a way has the same colour in all of these drawings.
    lines.append(trace(settings.get("statistics, three stages", ()), "noisy sums, a curator and a delta"))
    plain = settings["no privacy"][0]
    references = {"no privacy, our network": float(plain["mean"])}
    if plain["paper"] is not None:
        references["no privacy, the paper's"] = float(plain["paper"])
    return draw_lines(data, lines, y_title="test accuracy, %", references=references)


def draw_pixels() -> str:
    """CIFAR-10 by what the learner starts from: features of patches, pixels, a public encoder; and the paper's networks.

    Lines of the studies `networks` and `encoder` are there as soon as these have rows.
    """
    networks, encoder = (list(read_rows(name)) if has_rows(name, "cifar10") else [] for name in ("networks", "encoder"))
    ends = [row for row in networks if row["table"] == "cifar10" and not _was_asked_better(row, networks)]
    ends = [row for row in ends if not row["setting"].endswith("pretrained")]  # one point is no line
    starts = {
        "features of patches, no one": read_images("cifar10").get("auto, no one", []),
        "a public encoder, no one": [row for row in encoder if row["setting"] == "auto, no one"],
        "the same and mirror images, no one": [row for row in encoder if row["setting"] == MIRRORS],
        "a public encoder, a curator": [row for row in encoder if row["setting"] == "auto, curator"],
        "a network on pixels, no one": ends,
    }
    lines = [trace(rows, f"labeldp: {name}") for name, rows in starts.items()]
    for name in ("LP-2ST", "LP-2ST, pre-trained"):
        known = {at: value for at, value in TABLE_1[name].items() if math.isfinite(at)}
        words = "the paper's LP-2ST on pixels" if name == "LP-2ST" else "the same, pre-trained on CIFAR-100"
        lines.append(Series(name=words, x=tuple(known), y=tuple(known.values())))
    # The encoder's own end is where its lines end: one line more could not be told from the others.
    free = [float(row["mean"]) for row in ends if math.isinf(float(row["epsilon"]))]
    return draw_lines(
        "CIFAR-10, by what is learned from",
        lines,
        y_title="test accuracy, %",
        references={"no privacy, pixels": max(free)} if free else {},
    )


def _was_asked_better(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether a row has the same questions for all, and another one of its epsilon has chosen ones."""
    plain = row["setting"].endswith(SAME_QUESTIONS)
    chosen = (one for one in rows if not one["setting"].endswith(SAME_QUESTIONS) and one["table"] == row["table"])
    return plain and any(abs(float(one["epsilon"]) - float(row["epsilon"])) < 1e-6 for one in chosen)


ADULT = {
    "sufficient statistics, softmax": "noisy sums, a curator",
    "DP-SGD, linear (record)": "DP-SGD, whole records",
    "LP-RR-SGD": "LP-RR-SGD, no one",
    "randomized response, forward": "randomized response, corrected",
    "LP-Normal-SGD": "LP-Normal-SGD, no one, a delta",
    "randomized response, plain": "randomized response, as it is",
}


def draw_adult() -> str:
    """Log loss of learners on Adult, DP-SGD among them."""
    rows = [row for row in read_rows("adult-learners") if row["table"].startswith("log loss")]
    lines = [trace([row for row in rows if row["setting"] == setting], name) for setting, name in ADULT.items()]
    plain = next(row for row in rows if row["setting"] == "no privacy")
    return draw_lines(
        "Adult", lines, y_title="test log loss, hundredths of a nat", references={"no privacy": float(plain["mean"])}
    )


def draw_many_classes() -> str:
    """150 classes: labels, and sets of classes."""
    rows = read_rows("many-classes")
    names = ("randomized response", "sets", "sets, two stages")
    lines = [trace([row for row in rows if row["setting"] == name], name) for name in names]
    plain = next(row for row in rows if row["setting"] == "no privacy")
    return draw_lines("CLINC150", lines, y_title="test accuracy, %", references={"no privacy": float(plain["mean"])})


def draw_calibration() -> str:
    """How far the mean probability of LightGBM on Adult is from the base rate: before the correction, and with it."""
    table = "adult: mean probability minus base rate, points"
    rows = [row for row in read_rows("tables") if row["table"] == table and row["setting"].startswith("LightGBM")]
    names = {"LightGBM: before": "Bayes' weights under a flat prior", "LightGBM: the rule": "crossfit, the default"}
    lines = [
        trace([row for row in rows if row["setting"] == f"{key}, epsilon {float(row['epsilon']):g}"], name)
        for key, name in names.items()
    ]
    return draw_lines(
        "LightGBM on Adult", lines, y_title="mean probability - base rate, points", references={"true": 0.0}
    )


def draw_rows_and_trust() -> str:
    """What "auto" reaches on MNIST, by rows and trust."""
    lines = []
    for n in (2000, 8000, 60000):
        for trust in ("no one", "curator"):
            rows = [
                row
                for row in read_rows("recipes")
                if row["table"] == f"mnist, {n} rows" and row["setting"] == f"auto, {trust}"
            ]
            lines.append(trace(rows, f"{n:,} rows, trusts {'a ' * (trust == 'curator')}{trust}"))
    return draw_lines("MNIST, what auto reaches", lines, y_title="test accuracy, %", references={})


def draw_first_model() -> str:
    """A linear model at epsilon 1: what each step brings."""
    rows = [row for row in read_rows("first-model") if row["table"] == "mnist"]
    names, values = tuple(row["setting"] for row in rows), tuple(float(row["mean"]) for row in rows)
    spreads = tuple(float(row["spread"] or 0.0) for row in rows)
    alt = "; ".join(f"{name} {value:.1f}" for name, value in zip(names, values, strict=True))
    title = "test accuracy, %, a linear model of MNIST, epsilon 1"
    return plot_file(Bars(title=title, labels=names, values=values, spreads=spreads, x_title=title, alt=alt), dark=True)


def draw_stage_counts() -> str:
    """LP-MST on CIFAR-10: accuracy against the number of stages."""
    rows = [row for row in read_rows("paper-stages") if row["table"].startswith("Figure 1(a)")]
    lines = []
    for epsilon in sorted({float(f"{row['epsilon']:.3g}") for row in rows}):
        mine = [row for row in rows if math.isclose(row["epsilon"], epsilon, rel_tol=2e-3)]
        x = tuple(float(row["setting"].split()[0]) for row in mine)
        y, spreads = tuple(float(row["mean"]) for row in mine), tuple(float(row["spread"]) for row in mine)
        lines.append(Series(name=f"epsilon {epsilon:g}", x=x, y=y, spreads=spreads))
    words = "; ".join(f"{line.name}: {', '.join(f'{value:.1f}' for value in line.y)}" for line in lines)
    plot = Lines(
        title="LP-MST on CIFAR-10, features without labels",
        series=tuple(lines),
        x_title="stages",
        y_title="test accuracy, %",
        alt=words,
    )
    return plot_file(plot, dark=True)


#: A cell of a map of two quantities, and the room for the names of its rows.
CELL_WIDTH, CELL_HEIGHT, SIDE = 66, 40, 62


def draw_map(table: str, x: float, down: str, across: str) -> tuple[list[str], str]:
    """One half of Figure 4 as a map: a row for each value of the first quantity, a column for each of the second."""
    cells = {}
    for row in read_rows("paper-stages"):
        if row["table"].startswith(table):
            first, second = (part.split()[-1] for part in row["setting"].split(", "))
            cells[first, second] = float(row["mean"])
    rows, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    low, high = min(cells.values()), max(cells.values())
    left, top = x + SIDE, 66
    parts = [
        text(left, 22, f"down: {down}", size=13, colour=SOFT),
        text(left, 40, f"across: {across}", size=13, colour=SOFT),
    ]
    parts += [
        text(left + CELL_WIDTH * (i + 0.5), top - 8, name, size=13, anchor="middle") for i, name in enumerate(columns)
    ]
    for i, name in enumerate(rows):
        y = top + CELL_HEIGHT * i
        parts.append(text(left - 10, y + 25, name, size=13, anchor="end"))
        for j, other in enumerate(columns):
            if (name, other) in cells:
                value = cells[name, other]
                strength = 0.04 + 0.5 * (value - low) / max(high - low, 1e-9)
                place = left + CELL_WIDTH * j
                size = {"width": CELL_WIDTH, "height": CELL_HEIGHT}
                parts.append(box(place, y, **size, fill=series(0), stroke=RULE, strength=strength, round_by=0))
                parts.append(text(place + CELL_WIDTH / 2, y + 25, f"{value:.1f}", size=13, anchor="middle"))
    told = "; ".join(f"{a} and {b}: {value:.1f}" for (a, b), value in cells.items())
    return parts, f"{down} and {across}: {told}"


def draw_stage_settings() -> str:
    """Figure 4 of the paper on our features: share and temperature, and a mixup for each stage."""
    first, said = draw_map("Figure 4(a)", 0, "share of stage 1", "temperature")
    second, also = draw_map("Figure 4(b)", 350, "mixup of stage 1", "mixup of stage 2")
    words = f"LP-2ST on CIFAR-10 at epsilon 2, test accuracy in percent. {said}. {also}."
    return picture(690, 240, [*first, *second], words=words)


DRAWINGS: dict[str, Callable[[], str]] = {
    "accuracy-mnist": lambda: draw_images("mnist"),
    "accuracy-fashion-mnist": lambda: draw_images("fashion-mnist"),
    "accuracy-cifar10": lambda: draw_images("cifar10"),
    "accuracy-pixels": draw_pixels,
    "accuracy-adult": draw_adult,
    "accuracy-many-classes": draw_many_classes,
    "calibration-tables": draw_calibration,
    "rows-and-trust": draw_rows_and_trust,
    "first-model": draw_first_model,
}
#: Of a study of an hour that is measured in parts: what has rows is drawn.
if has_rows("paper-stages", "Figure 1(a)"):
    DRAWINGS["paper-stages"] = draw_stage_counts
if has_rows("paper-stages", "Figure 4(a)") and has_rows("paper-stages", "Figure 4(b)"):
    DRAWINGS["paper-stage-settings"] = draw_stage_settings
