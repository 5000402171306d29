"""`Evaluation`: the report of `labeldp.learn.evaluate`, as a value that prints, is drawn, and is written as JSON.

>>> from labeldp.learn import evaluate
>>> found = evaluate([0.1, 0.6, 0.3, 0.8], None, [0, 1, 1, 1], classes=[0, 1], labels_are_public=True)
>>> print(found.accuracy, "|", found.auc)
0.75 | 1
>>> found.recalls[1].value == 2 / 3, found.ece.population is None
(True, True)

Each figure is a `Metric`: a value and two intervals of 95 %. `interval` is about these very rows: it covers the noise of the
release, and is None where nothing is noisy. `population` is about the population that they were drawn from: noise and sampling.
A figure that cannot be told is None and has a `reason`; nothing is made up.

Design notes. `build_evaluation` turns sums, and draws of what they may really be, into the report; how sums are come by
is the business of `labeldp.learn.evaluation`.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

from labeldp.accounting import note_entry
from labeldp.arrays import Bools, Float64s
from labeldp.guarantee import Guarantee
from labeldp.learn.metrics import Metrics, Scores, wilson
from labeldp.plots import Bars, Lines, Plot, Series, plot_file
from labeldp.release import Measurement, Release

#: How sure intervals are.
CONFIDENCE = 0.95
#: Ratios and logarithms of sums, whose curvature is accounted for, by a mean without this share of draws at each end.
CURVED = ("recalls", "balanced_accuracy", "aucs", "auc", "constant_log_loss", "lifts")
TRIMMED = 0.01
#: Shares of all rows, or numbers of rows: the ends of their intervals are whole numbers of rows.
COUNTED = ("accuracy", "base_rates", "confusion")
#: The loss of a constant is given if classes that cannot be told from noise are at most this part of the largest loss.
MOST_UNKNOWN = 0.1
#: The normal quantile of an interval.
NORMAL = float(scipy.stats.norm.isf((1 - CONFIDENCE) / 2))
#: A number of rows can be told from noise if it is this many standard deviations of the noise.
TOLD_APART = 4.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure: its value, an interval about these rows (noise), one about the population (noise and sampling).

    `value` is None if it cannot be told, and `reason` says why. `interval` is None where the value is exact, `population`
    where nothing can be said of it.
    """

    value: float | None
    interval: tuple[float, float] | None = None
    population: tuple[float, float] | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"not known: {self.reason}"
        between = "" if self.interval is None else f" ({self.interval[0]:.4g} to {self.interval[1]:.4g})"
        return f"{self.value:.4g}{between}"


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Rows whose probability is between `low` and `high`: their mean probability, and the share that turned out so."""

    low: float
    high: float
    n_rows: int
    mean_probability: float
    observed: Metric


@dataclass(frozen=True, kw_only=True)
class Top:
    """The `n_rows` rows of the largest probability of a class: `precision` of them have it, `lift` times its base rate.

    `recall` is the share of the class that is among them, and `false_positive_rate` the share of the others: a point of
    the ROC curve.
    """

    class_: Any
    share: float
    n_rows: int
    precision: Metric
    lift: Metric
    recall: Metric
    false_positive_rate: Metric


class Report(abc.ABC):
    """What reports on classifiers and on regressors share: words, plain values and drawings of a frozen dataclass.

    A report has fields `guarantee` and `ledger_entry`; it says its `lines` and its `plots`.
    """

    guarantee: Guarantee | None
    ledger_entry: int | None

    @abc.abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the report line by line."""

    @abc.abstractmethod
    def plots(self) -> tuple[Plot, ...]:
        """Return the drawings."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def facts(self) -> dict[str, Any]:
        """Return the report as plain values: numbers, text, lists and dictionaries."""
        facts = _to_plain(self, leave_out=("guarantee", "ledger_entry"))
        promise = None if self.guarantee is None else self.guarantee.to_json()
        return {**facts, **note_entry(self.ledger_entry), "guarantee": promise, "confidence": CONFIDENCE}

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(self.facts(), allow_nan=False)

    def to_svg(self) -> str:
        """Return the drawings as the text of an SVG file."""
        return plot_file(*self.plots())


@dataclass(frozen=True, kw_only=True)
class Evaluation(Report):
    """How good a classifier is on some rows; `str` is the report in words, `to_json` for machines, `to_svg` drawn.

    Fields
    ------
    source : "public labels", "protected labels" or "released labels"
    n_rows, classes
        What was scored, and the order of everything that is said of each class.
    accuracy, majority, majority_class
        The share of right predictions, beside that of always naming the commonest class.
    balanced_accuracy, recalls
        The mean over classes of the share of their rows that are predicted right, and each of them.
    auc, aucs
        Of two classes the AUC of the second; of more the mean over classes of each against the rest.
    log_loss, constant_log_loss
        The mean -log probability of the label, beside that of predicting the base rates for every row.
    brier
        The mean squared error of the probabilities: of the second of two classes, else summed over classes.
    ece, calibration
        The mean distance between the probability (of two classes of the second, else of the predicted one) and how often
        it came true, over bins of equally many rows; and the bins.
    base_rates, confusion
        The share of each class; `confusion[true][predicted]` in rows, None if not given, and `confusion_reason` says why.
    tops
        Precision, lift and recall of the rows of the largest probability, by class and share: of two classes of the second.
    method, assumptions, notes
        How the figures were come by, what they rest on, and what to beware of.
    guarantee, noise, seeded, ledger_entry, n_counts
        Of protected labels: what the report cost, as one release, its noise, and how many counts it was made of. Of
        released labels: the promise of that release, which is not spent again.
    """

    source: str
    n_rows: int
    classes: tuple[Any, ...]
    accuracy: Metric
    majority: Metric
    majority_class: Any
    balanced_accuracy: Metric
    recalls: tuple[Metric, ...]
    auc: Metric
    aucs: tuple[Metric, ...]
    log_loss: Metric
    constant_log_loss: Metric
    brier: Metric
    ece: Metric
    calibration: tuple[CalibrationBin, ...]
    base_rates: tuple[Metric, ...]
    confusion: tuple[tuple[Metric, ...], ...] | None
    confusion_reason: str
    tops: tuple[Top, ...]
    method: str
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    guarantee: Guarantee | None = None
    noise: str | None = None
    seeded: bool = False
    ledger_entry: int | None = None
    n_counts: int | None = None

    def __repr__(self) -> str:
        return f"<Evaluation: {self.n_rows} rows, {self.source}, accuracy {self.accuracy}, AUC {self.auc}>"

    def headline(self) -> list[tuple[str, Metric, str]]:
        """Return the figures of the whole: name, figure, and what to hold it against."""
        commonest = f"the commonest class alone: {self.majority}"
        what = f"of the class {self.classes[1]}" if len(self.classes) == 2 else "mean of each class against the rest"
        return [
            ("accuracy", self.accuracy, commonest),
            ("balanced accuracy", self.balanced_accuracy, f"chance: {1 / len(self.classes):.4g}"),
            ("AUC", self.auc, f"{what}; chance: 0.5"),
            ("log loss", self.log_loss, f"a constant: {self.constant_log_loss}"),
            ("Brier score", self.brier, "0 is best"),
            ("calibration error", self.ece, f"mean over {len(self.calibration)} bins"),
        ]

    def lines(self) -> Iterator[str]:
        """Yield the report line by line."""
        yield f"{self.n_rows:,} rows, {self.source}: {self.method}"
        for name, metric, beside in self.headline():
            population = _between(metric.population)
            yield f"  {name:18}{metric!s}" + (f"; population {population}" if population else "") + f"  [{beside}]"
        for value, rate in zip(self.classes, self.base_rates, strict=True):
            yield f"  share of {value!s:9}{rate!s}"
        for place in self.calibration:
            said = f"{place.low:.3f} .. {place.high:.3f}"
            yield f"  said {said}: mean {place.mean_probability:.4f}, came true {place.observed!s} of {place.n_rows:,}"
        for top in self.tops:
            words = f"precision {top.precision!s}, lift {top.lift!s}"
            yield f"  top {top.n_rows:,} ({100 * top.share:g}%) for {top.class_!s}: {words}"
        if self.guarantee is not None:
            yield f"  {'cost' if self.n_counts is not None else 'nothing more; the release:'} {self.guarantee.headline}"
        yield from (f"  assumes: {text}" for text in self.assumptions)
        yield from (f"  note: {text}" for text in self.notes)

    def plots(self) -> tuple[Plot, ...]:
        """Return the drawings: calibration, the ROC curve where there are cuts, and the base rates."""
        bins = [place for place in self.calibration if place.observed.value is not None]
        means = tuple(place.mean_probability for place in bins)
        seen = tuple(float(place.observed.value or 0.0) for place in bins)
        found: list[Plot] = [
            Lines(
                title="Calibration: how often what was said came true",
                series=(
                    Series(name="these rows", x=means, y=seen, spreads=tuple(_half(b.observed) for b in bins)),
                    Series(name="perfect", x=(0.0, 1.0), y=(0.0, 1.0)),
                ),
                x_title="mean probability of a bin",
                y_title="share that came true",
                alt=f"{len(bins)} bins of about equally many rows; calibration error {self.ece}.",
            )
        ]
        curves = [(value, *self._curve(value)) for value in dict.fromkeys(top.class_ for top in self.tops)]
        series = tuple(Series(name=str(value), x=x, y=y) for value, x, y in curves if len(x) > 2)
        if series:
            chance = Series(name="chance", x=(0.0, 1.0), y=(0.0, 1.0))
            found.append(
                Lines(
                    title="ROC: the share of a class that is found, against that of the others",
                    series=(*series, chance),
                    x_title="false positive rate",
                    y_title="true positive rate",
                    alt=f"AUC {self.auc}.",
                )
            )
        rates = [
            (str(v), 100 * rate.value) for v, rate in zip(self.classes, self.base_rates, strict=True) if rate.value
        ]
        if 0 < len(rates) <= 20:
            labels, values = zip(*rates, strict=True)
            found.append(Bars(title="Base rates", labels=labels, values=values, x_title="% of rows", alt="base rates"))
        return tuple(found)

    def _curve(self, value: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the points of a class's ROC curve, both corners included."""
        points = [
            (top.false_positive_rate.value, top.recall.value)
            for top in self.tops
            if top.class_ == value and top.recall.value is not None and top.false_positive_rate.value is not None
        ]
        inner = sorted(points)
        x = (0.0, *(float(a or 0.0) for a, _ in inner), 1.0)
        return x, (0.0, *(float(b or 0.0) for _, b in inner), 1.0)


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def _half(metric: Metric) -> float:
    """Return half the width of the wider interval, for a bar around a point."""
    ends = metric.population or metric.interval
    return 0.0 if ends is None else (ends[1] - ends[0]) / 2


def _to_plain(value: Any, *, leave_out: tuple[str, ...] = ()) -> Any:
    """Return plain values of reports, metrics, bins and tuples of them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.name not in leave_out]
        return {name.rstrip("_"): _to_plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_to_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# ----------------------------------------------------------------------------------------------------------- building


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimated:
    """Sums over labels, draws of what they may really be (None: they are exact), and soft labels for what sampling adds."""

    sums: Float64s
    draws: Float64s | None
    soft: Float64s
    method: str
    assumptions: tuple[str, ...] = ()


def build_evaluation(
    scores: Scores,
    found: Estimated,
    *,
    source: str,
    measured: Measurement | None = None,
    release: Release | None = None,
    n_counts: int | None = None,
    notes: tuple[str, ...] = (),
) -> Evaluation:
    """Return the report: every metric with its intervals, or the reason why it has none."""
    counts, n, K = found.sums[:, 0], scores.n, scores.n_classes
    noise = np.zeros(K) if found.draws is None else found.draws[:, :, 0].std(axis=0)
    least = np.maximum(TOLD_APART * noise, 0.5)
    present, rest = counts > least, n - counts > least
    split = present & rest
    table = _Figures(scores, found, present=present, split=split)
    few = "no row has this class" if found.draws is None else "rows of this class cannot be told from noise"
    one = "a class, or the others together, has no rows" if found.draws is None else f"{few}, or rows of the others"
    some = "" if present.all() else f"over {int(present.sum())} of {K} classes"
    recalls = tuple(table.get("recalls", c, reason="" if present[c] else few) for c in range(K))
    aucs = tuple(table.get("aucs", c, reason="" if split[c] else one) for c in range(K))
    whole = split[1] if K == 2 else split.any()
    caveats = list(notes)
    if some and present.any():
        caveats.append(f"balanced accuracy is {some}: of the others {few}")
    if K > 2 and split.any() and not split.all():
        caveats.append(f"AUC is the mean over {int(split.sum())} of {K} classes: {one}")
    reason = "" if scores.detailed else f"{K} classes: as many noisy counts squared would drown the others"
    guarantee = measured.guarantee if measured is not None else (None if release is None else release.guarantee)
    edges = [scores.confidence[scores.bins == b] for b in range(scores.n_bins)]
    return Evaluation(
        source=source,
        n_rows=n,
        classes=scores.classes,
        accuracy=table.get("accuracy"),
        majority=table.get("majority"),
        majority_class=scores.classes[int(counts.argmax())],
        balanced_accuracy=table.get("balanced_accuracy", reason="" if present.any() else f"of every class: {few}"),
        recalls=recalls,
        auc=table.get("auc", reason="" if whole else one if K == 2 else f"of every class: {one}"),
        aucs=aucs,
        log_loss=table.get("log_loss"),
        constant_log_loss=_bound_constant(table.get("constant_log_loss"), least[~present] / n, K, exact=table.exact),
        brier=table.get("brier"),
        ece=table.get("ece"),
        calibration=tuple(
            CalibrationBin(
                low=float(edges[b].min()),
                high=float(edges[b].max()),
                n_rows=int(scores.bin_sizes[b]),
                mean_probability=float(scores.bin_means[b]),
                observed=table.get("calibration", b, rows=float(scores.bin_sizes[b])),
            )
            for b in range(scores.n_bins)
        ),
        base_rates=tuple(table.get("base_rates", c) for c in range(K)),
        confusion=tuple(tuple(table.get("confusion", c, j) for j in range(K)) for c in range(K))
        if scores.detailed
        else None,
        confusion_reason=reason,
        tops=tuple(_list_tops(scores, table, present, rest, few)) if scores.detailed else (),
        method=found.method,
        assumptions=found.assumptions,
        notes=tuple(caveats),
        guarantee=guarantee,
        noise=None if measured is None else measured.noise,
        seeded=bool((measured and measured.seeded) or (release and release.seeded)),
        ledger_entry=None if measured is None else measured.ledger_entry,
        n_counts=n_counts,
    )


def _bound_constant(metric: Metric, rates: Float64s, n_classes: int, *, exact: bool) -> Metric:
    """Return the loss of a constant with what classes may add to it whose rows cannot be told from noise.

    A class of base rate r adds -r log r, which grows up to r = 1/e; r may be anything up to `rates`.
    """
    capped = np.minimum(rates, 1 / math.e)
    unknown = 0.0 if exact else float(-(capped * np.log(np.maximum(capped, 1e-300))).sum())
    if unknown > MOST_UNKNOWN * math.log(n_classes):
        return Metric(value=None, reason="too many classes have rows that cannot be told from noise")
    if not unknown or metric.interval is None:
        return metric
    low, high = metric.interval
    return dataclasses.replace(metric, interval=(max(low - unknown, 0.0), min(high + unknown, math.log(n_classes))))


def _list_tops(scores: Scores, table: _Figures, present: Bools, rest: Bools, few: str) -> Iterator[Top]:
    """Yield precision at every cut: of the second of two classes, of every one of more."""
    for c in [1] if scores.n_classes == 2 else range(scores.n_classes):
        for j, taken in enumerate(scores.tops):
            why = "" if present[c] else few
            few_others = "" if rest[c] else "rows of the other classes are too few"
            yield Top(
                class_=scores.classes[c],
                share=float(taken / scores.n),
                n_rows=int(taken),
                precision=table.get("precisions", c, j, rows=float(taken)),
                lift=table.get("lifts", c, j, reason=why),
                recall=table.get("true_positive_rates", c, j, reason=why),
                false_positive_rate=table.get("false_positive_rates", c, j, reason=few_others),
            )


class _Figures:
    """Values, noise intervals and sampling errors of all metrics, asked for one by one."""

    def __init__(self, scores: Scores, found: Estimated, *, present: Bools, split: Bools) -> None:
        self.scores, self.n = scores, scores.n
        values = dict(scores.metrics(found.sums, present, split))
        self.bounds = scores.bounds()
        self.low: dict[str, Float64s] = {}
        self.high: dict[str, Float64s] = {}
        self.exact = found.draws is None
        if found.draws is not None:
            self._draw_intervals(values, scores.metrics(found.draws, present, split))
        self.values = {
            name: np.clip(value, *self.bounds[name]) if name in self.bounds else value for name, value in values.items()
        }
        self.errors = scores.standard_errors(found.soft, self.values, present=present, split=split)
        self.fewest = float(max(found.sums[:, 0][present].min(initial=math.inf), 1.0)) if present.any() else 1.0
        self.sides = np.maximum(np.minimum(found.sums[:, 0], self.n - found.sums[:, 0]), 1.0)
        self.split = split

    def _draw_intervals(self, values: dict[str, Float64s], drawn: Metrics) -> None:
        """Find the middle of the draws; of what counts noise twice, how far noise can move it.

        A ratio f of sums is moved by its curvature too, by h = f'' variance / 2 on average: the estimate lies h above the
        truth, and draws around the estimate lie h above that. h is taken off the estimate, and twice off the draws.
        """
        tail = (1 - CONFIDENCE) / 2
        for name, bound in self.bounds.items():
            with np.errstate(invalid="ignore"):
                low, high = np.quantile(drawn[name], [tail, 1 - tail], axis=0)
                moved = scipy.stats.trim_mean(drawn[name], TRIMMED, axis=0) - values[name] if name in CURVED else 0.0
            values[name] = values[name] - moved
            low, high = low - 2 * moved, high - 2 * moved
            if name in COUNTED:  # what is counted on these rows is a whole number of them
                unit = 1.0 if name == "confusion" else 1.0 / self.n
                low, high = np.floor(low / unit + 1e-6) * unit, np.ceil(high / unit - 1e-6) * unit
            # An estimate outside what can be is brought back, and its interval reaches from there as far as it did before:
            # otherwise noise that went too far would look like certainty.
            with np.errstate(invalid="ignore"):  # a figure without bounds may be infinite, and stays it
                back = np.nan_to_num(np.clip(values[name], *bound) - values[name], posinf=0.0, neginf=0.0)
            low, high = np.minimum(low, low + back), np.maximum(high, high + back)
            self.low[name], self.high[name] = np.clip(low, *bound), np.clip(high, *bound)
        gaps = drawn["gaps"] - values["gaps"]
        reach = {
            "ece": np.quantile(np.abs(gaps).sum(axis=1), CONFIDENCE),
            "majority": np.quantile(np.abs(drawn["base_rates"] - values["base_rates"]).max(axis=1), CONFIDENCE),
        }
        for name, far in reach.items():
            self.low[name] = np.clip(values[name] - far, *self.bounds[name])
            self.high[name] = np.clip(values[name] + far, *self.bounds[name])
        # A distance that is seen through noise is too long: its square by the noise's variance.
        values["ece"] = np.asarray(np.sqrt(np.maximum(values["gaps"] ** 2 - gaps.var(axis=0), 0.0)).sum())

    def get(self, name: str, *at: int, rows: float | None = None, reason: str = "") -> Metric:
        """Return one figure; `rows` says of how many rows it is a share, `reason` why it cannot be told."""
        if reason:
            return Metric(value=None, reason=reason)
        value = float(self.values[name][at]) + 0.0  # no minus zero
        if not math.isfinite(value):
            return Metric(value=None, reason="it divides by a number of rows that may be 0")
        if self.exact:
            return Metric(value=value, population=self._population(name, at, value, (value, value), rows))
        low, high = float(self.low[name][at]), float(self.high[name][at])
        if not (math.isfinite(low) and math.isfinite(high)):
            return Metric(value=None, reason="it divides by a number of rows that may be 0")
        interval = (min(low, value), max(high, value))
        return Metric(value=value, interval=interval, population=self._population(name, at, value, interval, rows))

    def _population(
        self, name: str, at: tuple[int, ...], value: float, interval: tuple[float, float], rows: float | None
    ) -> tuple[float, float] | None:
        """Return the interval with what sampling adds on each side, in squares; None where nothing is known of it."""
        if name in ("log_loss", "brier"):
            error = float(self.errors[name])
            if self.n < 2 or error == 0:
                return None
            half = float(scipy.stats.t.isf((1 - CONFIDENCE) / 2, self.n - 1)) * error
            ends = value - half, value + half
        elif name in ("accuracy", "base_rates", "majority"):
            ends = wilson(value, self.n, z=NORMAL)
        elif rows is not None:
            ends = wilson(value, rows, z=NORMAL)
        elif name in ("balanced_accuracy", "auc", "aucs"):
            least = {"balanced_accuracy": self.fewest, "aucs": float(self.sides[at]) if at else 1.0}
            least["auc"] = float(self.sides[self.split].min(initial=math.inf)) if self.split.any() else 1.0
            error = float(self.errors[name][at])
            worth = value * (1 - value) / error**2 if error > 0 else 0.0
            ends = wilson(value, max(worth, least[name]), z=NORMAL)
        else:
            return None
        bound = self.bounds[name]
        low = value - math.hypot(value - interval[0], max(value - ends[0], 0.0))
        high = value + math.hypot(interval[1] - value, max(ends[1] - value, 0.0))
        return max(low, float(np.max(bound[0]))), min(high, float(np.max(bound[1])))
