"""What a release bought: how good a model is, as a section of the report, from the facts of an evaluation.

>>> from labeldp.learn import evaluate
>>> found = evaluate([0.1, 0.6, 0.3, 0.8], None, [0, 1, 1, 1], classes=[0, 1], labels_are_public=True)
>>> section = quality_section(found.facts())
>>> section.title, section.blocks[0]
('What it bought', 'Accuracy is 75%, beside 75% of always naming the commonest class, on 4 rows with public labels: counted exactly.')

The facts are those of `Evaluation.facts` (or of numbers, `NumberEvaluation.facts`): of a model that was just scored, or read from
the JSON file of `labeldp evaluate --json`. On released labels they are estimates through the channel and cost nothing; each figure
has an interval about these rows (noise) and one about the population (noise and sampling).

Design notes. A file may be older, or someone else's: what it does not have is left out, what is no number is not shown as one,
and all text is escaped by the page. Shares are rounded as everywhere (`labeldp.display.percent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labeldp.display import percent
from labeldp.errors import Described, invalid
from labeldp.plots import Lines, Series
from labeldp.release.numbers import say_number
from labeldp.report.page import Block, Facts, Section, Table

TITLE = "What it bought"
#: The most classes whose confusion fits a page.
MOST_CONFUSED = 12
#: Figures that are shares of rows, and those that are not, in the order of the table: name in the facts, and on the page.
SHARES = (("accuracy", "accuracy"), ("balanced_accuracy", "balanced accuracy"), ("ece", "calibration error"))
SCORES = (("auc", "AUC"), ("log_loss", "log loss"), ("brier", "Brier score"))
NUMBERS = (
    ("rmse", "RMSE"),
    ("mae", "MAE"),
    ("explained", "variance explained"),
    ("deviance", "Poisson deviance"),
    ("mean_error", "mean error"),
)
SPENT = {
    "released labels": "The labels were released already: nothing more was spent.",
    "protected labels": "This evaluation is a release of the scored labels, and its cost adds to theirs.",
    "public labels": "The scored labels were declared public: nothing was spent.",
}


def read_evaluation(found: Any) -> dict[str, Any]:
    """Return the facts of an evaluation from its JSON: that of `labeldp evaluate --json`, or of `Evaluation.to_json`."""
    facts = found.get("report", found) if isinstance(found, dict) else None
    if not isinstance(facts, dict) or not ({"accuracy", "rmse"} & set(facts)) or "n_rows" not in facts:
        fix = "Write it with `labeldp evaluate MODEL --release HELD_OUT --json > evaluation.json`."
        got = Described("another kind of JSON")
        raise invalid("report", "evaluation", "hold the answer of an evaluation", got=got, fix=fix)
    return facts


def quality_section(evaluation: dict[str, Any] | str) -> Section:
    """Return what a model that learned from the release is worth: figures, calibration and confusion, with intervals.

    A text says why it cannot be told; the section then says so.
    """
    if isinstance(evaluation, str):
        fix = (
            "`labeldp evaluate MODEL --release HELD_OUT --json` scores it on other released labels, for `--evaluation`."
        )
        return Section(
            title=TITLE, blocks=(f"How good the model is cannot be told from this release: {evaluation} {fix}",)
        )
    facts = read_evaluation(evaluation)
    blocks: list[Block] = [_lead(facts), _figures(facts)]
    bins = [
        one
        for one in facts.get("calibration") or ()
        if isinstance(one, Mapping) and _value(one.get("observed")) is not None
    ]
    if bins:
        blocks += _calibration(bins, facts)
    confusion, classes = facts.get("confusion"), [str(name) for name in facts.get("classes") or ()]
    if confusion and len(classes) <= MOST_CONFUSED:
        blocks.append(_confusion(confusion, classes))
    source = str(facts.get("source"))
    pairs = [("Cost", SPENT.get(source, "not known"))]
    pairs += [("Assumes", str(text)) for text in facts.get("assumptions") or ()]
    pairs += [("Beware", str(text)) for text in facts.get("notes") or ()]
    if facts.get("seeded"):
        pairs.append(("Seed", "the noise behind these figures came from a seed"))
    return Section(title=TITLE, blocks=(*blocks, Facts(pairs=tuple(pairs))))


def _lead(facts: Mapping[str, Any]) -> str:
    """Return the figure to read if no other."""
    rows, source, method = facts.get("n_rows"), facts.get("source"), facts.get("method", "")
    where = f"on {rows:,} rows with {source}: {method}." if isinstance(rows, int) else f"with {source}: {method}."
    if "rmse" in facts:
        return f"The root mean squared error is {_number(facts['rmse'])}{_within(facts['rmse'], _number_text)}, {where}"
    accuracy = facts["accuracy"]
    blind = _share(facts.get("majority"))
    return f"Accuracy is {_share(accuracy)}{_within(accuracy, percent)}, beside {blind} of always naming the commonest class, {where}"


def _within(metric: Any, say: Any) -> str:
    ends = _ends(metric, "interval")
    return "" if ends is None else f" ({say(ends[0])} to {say(ends[1])}, with confidence 95%, for these rows)"


def _figures(facts: Mapping[str, Any]) -> Table:
    """Return a row per figure: its value, both intervals, and why it has none."""
    listed: list[tuple[str, str, Any]] = []
    if "rmse" in facts:
        listed = [(name, shown, _number_text) for name, shown in NUMBERS]
    else:
        listed = [
            *((name, shown, percent) for name, shown in SHARES),
            *((name, shown, _score_text) for name, shown in SCORES),
        ]
    rows = []
    for name, shown, say in listed:
        metric = facts.get(name)
        if not isinstance(metric, Mapping):
            continue
        value = _value(metric)
        text = "not known" if value is None else say(value)
        rows.append(
            (
                shown,
                text,
                _between(metric, "interval", say),
                _between(metric, "population", say),
                str(metric.get("reason") or ""),
            )
        )
    caption = (
        "Figures, with intervals of 95 %: about these rows (noise), and about rows like these (noise and sampling)"
    )
    return Table(
        caption=caption, columns=("figure", "value", "these rows", "population", "note"), rows=tuple(rows), numeric=(1,)
    )


def _calibration(bins: list[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[Block]:
    """Return the drawing of what was said beside what came true, and its table."""
    numbers = "rmse" in facts
    mean = "mean_prediction" if numbers else "mean_probability"
    say = _number_text if numbers else percent
    scale = 1.0 if numbers else 100.0
    kept = [one for one in bins if isinstance(one.get(mean), (int, float))]
    x = tuple(_rounded(scale * float(one[mean]), numbers) for one in kept)
    y = tuple(_rounded(scale * float(_value(one["observed"]) or 0.0), numbers) for one in kept)
    halves = tuple(scale * _half(one["observed"]) for one in kept)
    ends = (min(x, default=0.0), max(x, default=1.0)) if numbers else (0.0, 100.0)
    unit = "" if numbers else " (%)"
    plot = Lines(
        title="Calibration: what the model said, and what came true",
        series=(
            Series(name="these rows", x=x, y=y, spreads=halves),
            Series(name="perfect", x=ends, y=ends, points=False),
        ),
        x_title=f"mean of what was said{unit}",
        y_title=f"came true{unit}",
        alt=f"{len(kept)} bins of about equally many rows.",
    )
    rows = tuple(
        (
            say(float(one[mean])),
            say(float(_value(one["observed"]) or 0.0)),
            _between(one["observed"], "interval", say) or _between(one["observed"], "population", say),
            f"{one.get('n_rows', 0):,}",
        )
        for one in kept
    )
    columns = ("said, on average", "came true", "with confidence 95%", "rows")
    table = Table(caption="Calibration by bins of what was said", columns=columns, rows=rows, numeric=(0, 1, 3))
    return [plot, table]


def _confusion(confusion: Any, classes: list[str]) -> Table:
    """Return rows by label and prediction, each with half the width of its interval."""
    rows = []
    for name, row in zip(classes, confusion, strict=False):
        cells = []
        for metric in row:
            value, ends = _value(metric), _ends(metric, "interval")
            width = "" if ends is None else f" ± {(ends[1] - ends[0]) / 2:,.0f}"
            cells.append("-" if value is None else f"{value:,.0f}{width}")
        rows.append((name, *cells))
    whole = tuple(row for row in rows if len(row) == len(classes) + 1)
    caption = "Confusion: rows by true label (down) and prediction (across), estimated; ± is half an interval of 95 %"
    columns = ("label", *classes)
    return Table(caption=caption, columns=columns, rows=whole, numeric=tuple(range(1, len(columns))))


# ------------------------------------------------------------------------------------------------------------ one metric


def _value(metric: Any) -> float | None:
    value = metric.get("value") if isinstance(metric, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ends(metric: Any, kind: str) -> tuple[float, float] | None:
    ends = metric.get(kind) if isinstance(metric, Mapping) else None
    if not isinstance(ends, (list, tuple)) or len(ends) != 2 or not all(isinstance(end, (int, float)) for end in ends):
        return None
    return float(ends[0]), float(ends[1])


def _half(metric: Any) -> float:
    ends = _ends(metric, "population") or _ends(metric, "interval")
    return 0.0 if ends is None else (ends[1] - ends[0]) / 2


def _between(metric: Any, kind: str, say: Any) -> str:
    ends = _ends(metric, kind)
    return "" if ends is None else f"{say(ends[0])} to {say(ends[1])}"


def _share(metric: Any) -> str:
    value = _value(metric)
    return "not known" if value is None else percent(value)


def _number(metric: Any) -> str:
    value = _value(metric)
    return "not known" if value is None else _number_text(value)


def _number_text(value: float) -> str:
    return say_number(value)


def _score_text(value: float) -> str:
    return f"{value:.4f}"


def _rounded(value: float, numbers: bool) -> float:  # noqa: FBT001 - of two kinds of values
    """Return a point as its table has it: shares in tenths of a percent."""
    return value if numbers else round(value, 1)
