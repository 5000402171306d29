"""Draw the pictures of docs/tutorials/numbers.md.

`numbers-answers.svg` has the exact laws of answers to one amount, `numbers-error.svg` the lines of the committed study `numbers`,
`numbers-deciles.svg` the model of the page itself, on the page's made-up claims.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from labeldp import LabelPrivateRegressor
from labeldp.mechanisms import UnbiasedResponse
from labeldp.plots import Lines, Series, plot_file

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "studies" / "results" / "numbers" / "result.json"
BOUNDS, AMOUNT = (0.0, 4096.0), 1024.0
#: Settings of the study that are drawn, and what the page calls them.
WAYS = {
    "ridge: unbiased response": "ridge, unbiased answers",
    "ridge: unbiased response, evidence": "ridge, their evidence",
    "ridge: Laplace noise": "ridge, Laplace noise",
    "boosted trees: unbiased response": "trees, unbiased answers",
}


def make_claims(n: int) -> tuple[Any, Any]:
    """Return the claims of the page: four columns, and amounts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    mean = 800 * np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1])
    return X, rng.gamma(2.0, mean / 2)


def draw_answers() -> str:
    """Return the laws of answers to one amount: how often an answer is at most so large, in steps."""
    series = []
    for epsilon in (0.5, 1.0, 4.0):
        mechanism = UnbiasedResponse(epsilon, bounds=BOUNDS)
        channel = mechanism.channel()
        level = int(np.argmin(np.abs(mechanism.levels - AMOUNT)))
        chances = channel.transition[0, level]
        # Answers that are never given continue the list; the others stand in their order.
        there = np.flatnonzero(channel.transition[0].max(axis=0) > 0)
        sums = 100 * np.cumsum(chances[there])
        series.append(
            Series(
                name=f"epsilon {epsilon:g}",
                x=tuple(np.repeat(channel.values[0, there], 2).tolist()),
                y=tuple(np.column_stack([np.concatenate([[0.0], sums[:-1]]), sums]).ravel().tolist()),
                points=False,
            )
        )
    ends = "; ".join(f"at {line.name} answers reach from {line.x[0]:.0f} to {line.x[-1]:.0f}" for line in series)
    return plot_file(
        Lines(
            title=f"What is answered to an amount of {AMOUNT:.0f}",
            series=tuple(series),
            x_title="answer",
            y_title="% of answers that are at most this",
            alt=f"The mean of all answers is {AMOUNT:.0f}; {ends}.",
        ),
        dark=True,
    )


def draw_errors() -> str:
    """Return the lines of the study."""
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    series, flat = [], []
    for setting, name in WAYS.items():
        mine = [row for row in rows if row["setting"].startswith(f"{setting}, epsilon")]
        if mine:
            points = sorted((row["epsilon"], row["mean"] / 1000) for row in mine)
            x, y = zip(*points, strict=True)
            series.append(Series(name=name, x=x, y=y))
    for setting in ("ridge: no privacy", "the mean label"):
        flat += [(setting, row["mean"] / 1000) for row in rows if row["setting"] == setting]
    ends = "; ".join(f"{line.name} from {line.y[0]:.2f} to {line.y[-1]:.2f}" for line in series)
    title = "Test error of house values, (100,000 dollars)^2"
    return plot_file(
        Lines(
            title=title,
            series=tuple(series),
            x_title="epsilon",
            y_title="MSE",
            alt=ends,
            x_log=True,
            references=tuple(flat),
        ),
        dark=True,
    )


def draw_deciles() -> str:
    """Return predicted and true means of the deciles of predictions, of the page's model."""
    X, amounts = make_claims(24_000)
    train, test = slice(0, 20_000), slice(20_000, None)
    trees = HistGradientBoostingRegressor(max_iter=60, min_samples_leaf=500, random_state=0)
    model = LabelPrivateRegressor(trees, epsilon=2.0, bounds=BOUNDS, random_state=0)
    model.fit(np.exp(X[train] / 2), amounts[train])
    guess, true = model.predict(np.exp(X[test] / 2)), np.minimum(amounts[test], BOUNDS[1])
    decile = np.argsort(np.argsort(guess)) * 10 // len(guess)
    means = [(float(guess[decile == d].mean()), float(true[decile == d].mean())) for d in range(10)]
    x, y = zip(*means, strict=True)
    return plot_file(
        Lines(
            title="Deciles of predictions",
            series=(Series(name="mean amount", x=x, y=y), Series(name="the same as predicted", x=x, y=x)),
            x_title="mean prediction",
            y_title="mean amount",
            alt=f"From the first decile, predicted {x[0]:.0f} and true {y[0]:.0f}, to the last, {x[-1]:.0f} and {y[-1]:.0f}.",
        ),
        dark=True,
    )


DRAWINGS: dict[str, Callable[[], str]] = {
    "numbers-answers": draw_answers,
    "numbers-error": draw_errors,
    "numbers-deciles": draw_deciles,
}
