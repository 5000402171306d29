"""Draw lines and bars of the committed studies (studies/results/*/result.json): accuracy against epsilon, beside papers and peers."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from labeldp.plots import Bars, Lines, Series, plot_file

RESULTS = Path(__file__).resolve().parent.parent / "studies" / "results"


@functools.cache
def read_rows(study: str) -> tuple[dict[str, Any], ...]:
    """The rows of a study: table, setting, epsilon, trust, mean, spread, and the paper's number if there is one."""
    return tuple(json.loads((RESULTS / study / "result.json").read_text(encoding="utf-8"))["rows"])


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


def draw_images(data: str) -> str:
    """Accuracy on one set of images, beside the paper's own numbers, which are of a larger network."""
    rows = read_rows(f"images-{data}")
    settings = {name: [row for row in rows if row["setting"] == name] for name in {row["setting"] for row in rows}}
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


ADULT = {
    "sufficient statistics, softmax": "noisy sums, a curator",
    "DP-SGD, linear (record)": "DP-SGD, whole records",
    "LP-RR-SGD": "LP-RR-SGD, no one",
    "randomized response, forward": "randomized response, corrected",
    "LP-Normal-SGD": "LP-Normal-SGD, a curator",
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


DRAWINGS: dict[str, Callable[[], str]] = {
    "accuracy-mnist": lambda: draw_images("mnist"),
    "accuracy-fashion-mnist": lambda: draw_images("fashion-mnist"),
    "accuracy-cifar10": lambda: draw_images("cifar10"),
    "accuracy-adult": draw_adult,
    "accuracy-many-classes": draw_many_classes,
    "calibration-tables": draw_calibration,
    "rows-and-trust": draw_rows_and_trust,
    "first-model": draw_first_model,
}
