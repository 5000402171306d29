r"""How good a regressor is, on numbers that are public, protected, or released already: the twin of the report on classes.

>>> import numpy as np
>>> from labeldp.learn import evaluate
>>> found = evaluate([1.0, 2.0, 4.0], None, [1.0, 3.0, 4.0], bounds=(0, 5), labels_are_public=True)
>>> round(found.rmse.value, 4), round(found.mae.value, 4), found.rmse.interval
(0.5774, 0.3333, None)

Every figure is a mean over rows of a function g of the label and of the public prediction f_i:

| figure | g(y) |
|---|---|
| mean squared error, of which `rmse` is the root | (f_i - y)^2 |
| `mae` | abs(f_i - y) |
| `gain`: the mean squared error of the mean label, less that of the model | (c - y)^2 - (f_i - y)^2, c the mean of y |
| `deviance` (Poisson; where the lower bound is not negative, and all f_i > 0) | 2 (y log(y / f_i) - y + f_i) |
| `calibration` by decile of the predictions | y, in the decile |

*Public* labels are read. *Released* ones are answers o with known chances T[l, o] at each level l: a function h of the answer with
sum_o T[l, o] h(o) = g(l) for all l has the mean g whatever the label is. It is found by least squares, weighted by how often
answers occur, without directions that are all noise; what it misses, b = max_l |sum_o T[l, o] h(o) - g(l)|, bounds the bias, and
widens the interval. y itself is met exactly by mechanisms that are unbiased, so that `gain`, the deciles and the gain in deviance
have no such part. A label between levels was rounded to one of them, which adds at most a quarter of a squared step to the mean
squared error, and half a step to `mae`: the interval reaches down by that, unless levels are whole numbers one apart, counts.

*Protected* labels (`epsilon=`): one measurement, one charge. With u and f scaled to [0, 1], each row adds to four sums of
integers: u to that of its decile, u^2, (u - f)^2 and abs(u - f), all in [0, 1]. A replaced label moves the four by 1 each at most, so
the 1-norm of the change is at most 4, and discrete Laplace noise of rate epsilon / 4 hides it.

*Intervals* are of 95 %. `population` is about rows like these: of public and released labels the normal one of a mean, noise included;
of protected ones noise and the largest variance that a mean in [0, 1] leaves, p (1 - p). `interval` is about these very rows, and
None where nothing is noisy. Of released labels it is the same as `population`: the noise is part of that, so it covers at
least as often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy
from sklearn.utils.validation import _num_samples

from labeldp.arrays import Float64s, Int64s
from labeldp.channel import NumericChannel
from labeldp.channel.finite import spans
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.evaluated import NORMAL, Metric, Report
from labeldp.learn.metrics import BINS, OWNER
from labeldp.mechanisms.numbers import check_bounds
from labeldp.plots import Lines, Plot, Series
from labeldp.release import Query, Release, SensitiveLabels, Sensitivity, measure
from labeldp.release.grid import box_on_grid
from labeldp.release.labels import as_plain
from labeldp.release.measurement import check_measuring
from labeldp.release.numbers import Asked, read_finite
from labeldp.release.persons import count_rows
from labeldp.release.scores import check_raw_labels
from labeldp.validate import hide_labels

#: Directions of a channel with less than this share of the largest singular value say more of noise than of labels.
LEAST_DIRECTION = 1e-3
#: Sums of protected labels are of multiples of one over this.
PARTS = 1 << 20
#: The half-width of a 95 % interval of discrete Laplace noise, in standard deviations: ln 20 / sqrt 2.
LAPLACE = math.log(20.0) / math.sqrt(2.0)


@dataclass(frozen=True, kw_only=True)
class NumberBin:
    """Rows whose predictions are between `low` and `high`: their mean, and the mean of the labels."""

    low: float
    high: float
    n_rows: int
    mean_prediction: float
    observed: Metric


@dataclass(frozen=True, kw_only=True)
class NumberEvaluation(Report):
    """How good a regressor is on some rows; `str` is the report in words, `to_json` for machines, `to_svg` drawn.

    Fields
    ------
    source : "public labels", "protected labels" or "released labels"
    n_rows, bounds : what was scored
    rmse, mae : the root of the mean squared error, and the mean absolute error
    gain : by how much the mean squared error is less than that of always predicting the mean label
    explained : the same as a share of the variance of the labels (R squared)
    deviance, deviance_gain : the mean Poisson deviance, and by how much it is less than that of the mean label
    mean_error : the mean prediction less the mean label
    calibration : deciles of the predictions, and the mean label of each
    method, assumptions, notes, guarantee, noise, seeded, ledger_entry : as for `Evaluation`
    """

    source: str
    n_rows: int
    bounds: tuple[float, float] | None
    rmse: Metric
    mae: Metric
    gain: Metric
    explained: Metric
    deviance: Metric
    deviance_gain: Metric
    mean_error: Metric
    calibration: tuple[NumberBin, ...]
    method: str
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    guarantee: Guarantee | None = None
    noise: str | None = None
    seeded: bool = False
    ledger_entry: int | None = None

    def headline(self) -> list[tuple[str, Metric, str]]:
        """Return the figures of the whole: name, figure, and what to hold it against."""
        return [
            ("RMSE", self.rmse, "0 is best"),
            ("MAE", self.mae, "0 is best"),
            ("squared error saved", self.gain, "against the mean label; 0: no better"),
            ("variance explained", self.explained, "1 is best; 0: no better than the mean label"),
            ("Poisson deviance", self.deviance, "0 is best"),
            ("deviance saved", self.deviance_gain, "against the mean label; 0: no better"),
            ("mean error", self.mean_error, "prediction less label; 0 is best"),
        ]

    def lines(self) -> Iterator[str]:
        """Yield the report line by line."""
        yield f"{self.n_rows:,} rows, {self.source}: {self.method}"
        for name, metric, beside in self.headline():
            yield f"  {name:20}{metric!s}  [{beside}]"
        for place in self.calibration:
            said = f"{place.low:.4g} .. {place.high:.4g}"
            yield f"  said {said}: mean {place.mean_prediction:.4g}, was {place.observed!s} in {place.n_rows:,} rows"
        if self.guarantee is not None:
            cost = "cost" if self.source == "protected labels" else "nothing more; the release:"
            yield f"  {cost} {self.guarantee.headline}"
        yield from (f"  assumes: {text}" for text in self.assumptions)
        yield from (f"  note: {text}" for text in self.notes)

    def plots(self) -> tuple[Plot, ...]:
        """Return the drawing of calibration by decile."""
        bins = [place for place in self.calibration if place.observed.value is not None]
        said = tuple(place.mean_prediction for place in bins)
        seen = tuple(float(place.observed.value or 0.0) for place in bins)
        ends = [place.observed.population or (0.0, 0.0) for place in bins]
        line = (min(said), max(said)) if said else (0.0, 1.0)
        return (
            Lines(
                title="Calibration: the mean label of each decile of the predictions",
                series=(
                    Series(name="these rows", x=said, y=seen, spreads=tuple((b - a) / 2 for a, b in ends)),
                    Series(name="perfect", x=line, y=line),
                ),
                x_title="mean prediction",
                y_title="mean label",
                alt=f"{len(bins)} bins of about equally many rows; RMSE {self.rmse}.",
            ),
        )


def scores_numbers(model: Any, labels: Any, bounds: Any) -> bool:
    """Whether `evaluate` is asked about numbers: by the release, the box, the model, or by bounds that were given."""
    if isinstance(labels, Release):
        return labels.channel.outputs_are_numbers
    boxed = labels.bounds is not None if isinstance(labels, SensitiveLabels) else False
    return boxed or bounds is not None or hasattr(model, "bounds_")


def evaluate_numbers(
    model: Any,
    X: Any,
    labels: Any,
    *,
    bounds: Any,
    epsilon: float | None,
    rows: Any,
    notes: tuple[str, ...],
    ledger: Any,
    label_set: str,
    rng: Any,
    persons: Any = None,
) -> NumberEvaluation:
    """Return the report on a regressor, or on an array of predictions; `evaluate` has checked which source it is."""
    if isinstance(labels, Release):
        own, known = getattr(model, "bounds_", None), getattr(labels.channel, "bounds", None)
        if own not in (None, known) or bounds not in (None, known):
            got = Described(f"{known} for {own or bounds}")
            raise invalid(OWNER, "labels", "be a release with the bounds of the model", got=got, fix="Of other labels?")
        part = labels if rows is None else labels.take(np.arange(len(labels))[rows])
        guess = _predict(model, X, len(labels))
        guess = guess if rows is None else guess[np.arange(len(labels))[rows]]
        return _from_release(guess, part, notes=notes)
    if epsilon is not None:
        labels = labels if isinstance(labels, SensitiveLabels) else _read_vector(labels)
        return _from_protected(
            _predict(model, X, len(labels)),
            labels,
            bounds=_find_bounds(model, labels, bounds),
            epsilon=epsilon,
            ledger=ledger,
            label_set=label_set,
            rng=rng,
            persons=persons,
        )
    if ledger is not None:
        raise invalid(OWNER, "ledger", "be left out", got=ledger, fix="Public labels are not charged.")
    check_raw_labels(OWNER, labels, declared=True)
    values = read_finite(as_plain(labels), Asked(OWNER, must="be numbers", fix="The model predicts numbers."))
    guess = _predict(model, X, len(values))
    known = bounds if bounds is not None else getattr(model, "bounds_", None)
    exact = Estimates(
        labels=values,
        squares=(guess - values) ** 2,
        sizes=np.abs(guess - values),
        entropies=xlogy(values, values) if len(values) and values.min() >= 0 else None,
    )
    return _build(guess, exact, source="public labels", bounds=known, method="computed exactly", noisy=False)


def _read_vector(labels: Any) -> Any:
    """Return labels that have a length: a generator, a sparse matrix and a single number are refused, before anything is charged."""
    with hide_labels(OWNER, "labels", must="be one number per row"):
        plain = as_plain(labels)
    if plain.ndim != 1:
        got = Described(f"a {type(labels).__name__}")
        raise invalid(OWNER, "labels", "be one number per row", got=got, fix="Pass a list, an array or a column.")
    return plain


def _predict(model: Any, X: Any, n: int) -> Float64s:
    """Return a finite prediction for each of n labels."""
    if hasattr(model, "predict"):
        if X is None or _num_samples(X) != n:
            got = Described(f"{0 if X is None else _num_samples(X)} rows for {n} labels")
            raise invalid(OWNER, "X", "have one row per label", got=got)
        guess = np.asarray(model.predict(X))
    else:
        guess = np.asarray(model)
    if guess.shape != (n,) or guess.dtype.kind not in "fiu" or not np.isfinite(guess).all():
        got = Described(f"{guess.dtype} of shape {guess.shape} for {n} labels")
        raise invalid(OWNER, "predictions", "be one finite number per label", got=got)
    if n < 2:
        raise invalid(OWNER, "labels", "be two or more", got=n)
    return guess.astype(np.float64)


def _find_bounds(model: Any, labels: Any, bounds: Any) -> tuple[float, float]:
    known = bounds
    if known is None:
        known = labels.bounds if isinstance(labels, SensitiveLabels) else getattr(model, "bounds_", None)
    if known is None:
        raise invalid(OWNER, "bounds", "be given", got=None, fix="Two public numbers, known without the labels.")
    return check_bounds(OWNER, known)


# ------------------------------------------------------------------------------------------------ estimates of rows


class Estimates(NamedTuple):
    """For each row an estimate without bias of its label, (f - y)^2, |f - y| and y log y; exact ones of public labels.

    `slack_squares` and `slack_sizes` are how far the mean of those may be off, below and above, whatever the labels are.
    """

    labels: Float64s
    squares: Float64s
    sizes: Float64s
    entropies: Float64s | None
    slack_squares: tuple[float, float] = (0.0, 0.0)
    slack_sizes: tuple[float, float] = (0.0, 0.0)
    slack_entropies: float = 0.0


def _from_release(guess: Float64s, release: Release, *, notes: tuple[str, ...]) -> NumberEvaluation:
    """Estimate through the channel: a function of the answer whose mean is that of the label, as nearly as there is one."""
    channel = release.channel
    assert isinstance(channel, NumericChannel)
    levels, n = channel.levels, len(guess)
    index = np.zeros(n, np.int64) if channel.index is None else channel.index
    squares, sizes, entropies = np.empty(n), np.empty(n), np.empty(n)
    off_squares, off_sizes, off_entropies = np.empty(n), np.empty(n), np.empty(n)
    positive = levels[0] >= 0
    for group in range(len(channel.transition)):
        inverse, missed = invert_rows(channel.transition[group])
        mine = np.flatnonzero(index == group)
        for low, high in spans(len(mine), width=4 * len(levels)):
            rows = mine[low:high]
            weights = inverse[release.codes[rows]]
            away = guess[rows, None] - levels
            for target, out, off in (
                (away**2, squares, off_squares),
                (np.abs(away), sizes, off_sizes),
                (np.broadcast_to(xlogy(levels, levels) if positive else levels, away.shape), entropies, off_entropies),
            ):
                out[rows] = np.einsum("nk,nk->n", weights, target)
                off[rows] = np.abs(target @ missed.T).max(axis=1)
    step = float(levels[1] - levels[0])
    counts = step == 1.0 and float(levels[0]).is_integer()
    square, half = (0.0, 0.0) if counts else (step**2 / 4, step / 2)
    found = Estimates(
        labels=release.values,
        squares=squares,
        sizes=sizes,
        entropies=entropies if positive else None,
        slack_squares=(float(off_squares.mean()) + square, float(off_squares.mean())),
        slack_sizes=(float(off_sizes.mean()) + half, float(off_sizes.mean())),
        slack_entropies=float(off_entropies.mean()) + (0.0 if counts else half),
    )
    assumed = "labels are whole numbers" if counts else "errors of rounding to the levels are within the intervals"
    return _build(
        guess,
        found,
        source="released labels",
        bounds=channel.bounds,
        method="unbiased estimates through the channel",
        noisy=True,
        notes=notes,
        assumptions=(assumed,),
        guarantee=release.guarantee,
        seeded=release.seeded,
    )


def invert_rows(transition: npt.NDArray[np.floating[Any]]) -> tuple[Float64s, Float64s]:
    """Return Q (M, K) with T Q as near to the identity as answers that tell something allow, and T Q less the identity.

    With D the chances of the answers, for levels that are equally likely, it is the Q of the least variance among those of
    the least distance, without directions of `LEAST_DIRECTION`: Q = D^(-1/2) pinv(T D^(-1/2)).

    >>> inverse, missed = invert_rows(np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> inverse.round(9).tolist(), bool(np.abs(missed).max() < 1e-12)
    ([[1.5, -0.5], [-0.5, 1.5]], True)
    """
    table = np.asarray(transition, np.float64)
    often = np.sqrt(table.mean(axis=0))
    scale = np.where(often > 0, 1.0 / np.where(often > 0, often, 1.0), 0.0)
    inverse: Float64s = scale[:, None] * np.linalg.pinv(table * scale, rcond=LEAST_DIRECTION)
    return inverse, table @ inverse - np.eye(len(table))


# ------------------------------------------------------------------------------------------------ protected labels


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberErrors(Query):
    """Sums over rows for a report: of labels by decile, of their squares, of squared and of absolute errors.

    A label of code k is `scores[k]` of `steps` steps up a grid; `guess` are public predictions in [0, 1], `bins` the public decile of
    each row. All terms are in [0, 1], times `PARTS` and rounded, so that a replaced label moves each of the four sums by `PARTS` at
    most: 4 PARTS in the 1-norm, and 2 PARTS in the 2-norm. Scores beyond the grid would move them further, and are refused.
    """

    guess: Float64s
    bins: Int64s
    n_bins: int
    scores: Int64s
    steps: int
    assumptions: tuple[str, ...] = ("the predictions did not see these labels",)

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """Four terms in [0, 1]."""
        if len(self.scores) != n_classes or not 0 <= self.scores.min() <= self.scores.max() <= self.steps:
            got = Described(f"{len(self.scores)} for {n_classes} classes, up to {self.scores.max()} of {self.steps}")
            raise invalid(OWNER, "scores", "be a place on the grid for each class", got=got)
        return Sensitivity(4.0 * PARTS, 2.0 * PARTS)

    def check_size(self, n_examples: int) -> None:
        """One prediction per label."""
        if n_examples != len(self.guess):
            raise invalid(
                OWNER, "predictions", "be one per label", got=Described(f"{len(self.guess)} for {n_examples}")
            )

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Sum in integers: the deciles, then the three others."""
        self.check_size(len(codes))
        scaled = self.scores[codes].astype(np.float64) / self.steps
        away = np.abs(scaled - self.guess)
        terms = [np.rint(PARTS * term).astype(np.int64) for term in (scaled, scaled**2, away**2, away)]
        deciles = np.zeros(self.n_bins, np.int64)
        np.add.at(deciles, self.bins, terms[0])
        return np.concatenate([deciles, [term.sum() for term in terms[1:]]])


def _from_protected(
    guess: Float64s,
    labels: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    ledger: Any,
    label_set: str,
    rng: Any,
    persons: Any,
) -> NumberEvaluation:
    """Measure once, at epsilon, and work out the rest."""
    target, _ = check_measuring(epsilon, 0.0)
    boxed = box_on_grid(OWNER, labels, n_rows=len(guess), bounds=bounds, label_set=label_set)
    counted = count_rows(persons, len(guess), reach=4.0, epsilon=target, owner=OWNER)  # four sums of terms in [0, 1]
    mine = boxed.labels if counted.everyone is None else boxed.labels.with_persons(counted.everyone)
    if counted.rows is not None:
        mine, guess = mine.take(counted.rows), guess[counted.rows]
    low, width, n = bounds[0], bounds[1] - bounds[0], len(guess)
    bins = find_bins(guess)
    n_bins = int(bins.max()) + 1
    scaled = np.clip((guess - low) / width, 0.0, 1.0)
    query = NumberErrors(guess=scaled, bins=bins, n_bins=n_bins, scores=boxed.scores, steps=boxed.steps)
    measured = measure(mine, query, epsilon=target, rng=rng, ledger=ledger, persons=counted.persons)
    sums, noise = measured.value / PARTS, LAPLACE * measured.spread / PARTS
    sizes = np.bincount(bins, minlength=n_bins)
    mean = float(sums[:n_bins].sum()) / n
    spread_of_mean = noise * math.sqrt(n_bins) / n  # independent noises add in squares
    square, error, size = (float(one) / n for one in sums[n_bins:])
    shifted = float(scaled.mean())
    variance = square - mean**2
    gain, gain_noise = variance - error, (2 * noise + 2 * abs(mean) * spread_of_mean * n) / n
    unit = width**2
    root = _root(_bound(error * unit, noise / n * unit, _sampling(error, n) * unit, most=unit))
    explained = Metric(value=None, reason="the variance of these labels cannot be told from noise")
    if variance > 2 * gain_noise:
        explained = Metric(value=gain / variance)
    bare = Metric(value=None, reason="it is not among the sums that are measured")
    return NumberEvaluation(
        source="protected labels",
        n_rows=n,
        bounds=bounds,
        rmse=root,
        mae=_bound(size * width, noise / n * width, _sampling(size, n) * width, most=width),
        gain=_bound(gain * unit, gain_noise * unit, _sampling(0.5, n) * unit),
        explained=explained,
        deviance=bare,
        deviance_gain=bare,
        mean_error=_bound((shifted - mean) * width, spread_of_mean * width, _sampling(mean, n) * width),
        calibration=tuple(
            NumberBin(
                low=float(guess[bins == b].min()),
                high=float(guess[bins == b].max()),
                n_rows=int(sizes[b]),
                mean_prediction=float(guess[bins == b].mean()),
                observed=_bound(
                    low + width * sums[b] / sizes[b],
                    width * noise / sizes[b],
                    width * _sampling(float(sums[b]) / sizes[b], int(sizes[b])),
                ),
            )
            for b in range(n_bins)
        ),
        method="sums with noise, measured once",
        assumptions=("labels outside of the bounds count as the nearest one",),
        notes=counted.notes,
        guarantee=measured.guarantee,
        noise=measured.noise,
        seeded=measured.seeded,
        ledger_entry=measured.ledger_entry,
    )


def _sampling(share: float, n: int) -> float:
    """Return the half-width of sampling for a mean in [0, 1] of this value, at the largest variance that it can have."""
    inside = min(max(share, 0.0), 1.0)
    return NORMAL * math.sqrt(inside * (1 - inside) / n)


def _bound(value: float, noise: float, sampling: float, *, most: float = math.inf) -> Metric:
    """Return a figure with both intervals; one that cannot be negative, where `most` is its largest value, is cut.

    Noise may take a whole interval past an end of what is possible: then it is that end.
    """
    least = 0.0 if math.isfinite(most) else -math.inf

    def cut(one: float) -> float:
        return float(min(max(one, least), most))

    wide = math.hypot(noise, sampling)
    ends = [(cut(value - half), cut(value + half)) for half in (noise, wide)]
    return Metric(value=cut(value), interval=ends[0], population=ends[1])


# ------------------------------------------------------------------------------------------------ building


def find_bins(guess: Float64s) -> Int64s:
    """Return the decile of each prediction; equal predictions share one, and none is empty.

    >>> find_bins(np.array([3.0, 1.0, 1.0, 2.0])).tolist()
    [2, 0, 0, 1]
    """
    edges = np.quantile(guess, np.arange(1, BINS) / BINS, method="inverted_cdf")
    place = np.searchsorted(np.unique(edges), guess, side="left")
    return np.unique(place, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _build(
    guess: Float64s,
    found: Estimates,
    *,
    source: str,
    bounds: Any,
    method: str,
    noisy: bool,
    notes: tuple[str, ...] = (),
    assumptions: tuple[str, ...] = (),
    guarantee: Guarantee | None = None,
    seeded: bool = False,
) -> NumberEvaluation:
    """Return the report of rows whose terms are known, exactly or without bias."""
    labels, n = found.labels, len(guess)
    mean = float(labels.mean())
    squares = _average(found.squares, noisy=noisy, slack=found.slack_squares, least=0.0)
    # The mean label is known up to its own error: its square is too large by that on average.
    extra = float(labels.var(ddof=1)) / n if noisy else 0.0
    saved = 2 * guess * labels - guess**2 - 2 * mean * labels
    gain = _average(saved + mean**2 + extra, noisy=noisy)
    bins = find_bins(guess)
    places = [np.flatnonzero(bins == b) for b in range(int(bins.max()) + 1)]
    deviance, deviance_gain = _find_deviance(guess, found, mean, noisy=noisy)
    return NumberEvaluation(
        source=source,
        n_rows=n,
        bounds=None if bounds is None else check_bounds(OWNER, bounds),
        rmse=_root(squares),
        mae=_average(found.sizes, noisy=noisy, slack=found.slack_sizes, least=0.0),
        gain=gain,
        explained=_explain(gain, squares),
        deviance=deviance,
        deviance_gain=deviance_gain,
        mean_error=_average(guess - labels, noisy=noisy),
        calibration=tuple(
            NumberBin(
                low=float(guess[rows].min()),
                high=float(guess[rows].max()),
                n_rows=len(rows),
                mean_prediction=float(guess[rows].mean()),
                observed=_average(labels[rows], noisy=noisy),
            )
            for rows in places
        ),
        method=method,
        assumptions=assumptions,
        notes=notes,
        guarantee=guarantee,
        seeded=seeded,
    )


def _average(
    terms: Float64s, *, noisy: bool, slack: tuple[float, float] = (0.0, 0.0), least: float = -math.inf
) -> Metric:
    """Return a mean with its normal interval, which is widened by how far its terms may be off on average."""
    value = float(terms.mean())
    if len(terms) < 2:
        return (
            Metric(value=value, reason="one row has no interval") if not noisy else Metric(value=None, reason="one row")
        )
    half = NORMAL * float(terms.std(ddof=1)) / math.sqrt(len(terms))
    ends = (max(least, value - half - slack[0]), max(least, value + half + slack[1]))
    return Metric(value=max(least, value), interval=ends if noisy else None, population=ends)


def _root(squares: Metric) -> Metric:
    """Return the root of a mean of squares, and of the ends of its intervals."""
    ends = [
        None if one is None else (math.sqrt(one[0]), math.sqrt(one[1]))
        for one in (squares.interval, squares.population)
    ]
    return Metric(value=math.sqrt(squares.value or 0.0), interval=ends[0], population=ends[1])


def _explain(gain: Metric, squares: Metric) -> Metric:
    """Return gain / (gain + error), where the variance of labels can be told from noise."""
    assert gain.value is not None
    assert squares.value is not None
    whole = gain.value + squares.value
    width = 0.0 if squares.interval is None else squares.interval[1] - squares.interval[0]
    if whole <= max(width, 0.0):
        return Metric(value=None, reason="the variance of these labels cannot be told from noise")
    return Metric(value=gain.value / whole)


def _find_deviance(guess: Float64s, found: Estimates, mean: float, *, noisy: bool) -> tuple[Metric, Metric]:
    """Return the mean Poisson deviance, and what is saved of that of the mean label."""
    why = ""
    if found.entropies is None:
        why = "labels may be negative"
    elif guess.min() <= 0:
        why = "a prediction is not positive"
    elif mean <= 0:
        why = "the mean label cannot be told from zero"
    if why:
        return Metric(value=None, reason=why), Metric(value=None, reason=why)
    assert found.entropies is not None
    logs, labels = np.log(guess), found.labels
    slack = 2 * found.slack_entropies
    terms = 2 * (found.entropies - labels * logs - labels + guess)
    # 2 mean(y log f - f) - 2 (c log c - c) at c = the mean label, by its slope there.
    saved = 2 * (labels * logs - guess - labels * math.log(mean) + mean)
    return _average(terms, noisy=noisy, slack=(slack, slack), least=0.0), _average(saved, noisy=noisy)
