r"""`evaluate`: how good a classifier is, on labels that are public, protected, or released already.

One report with every metric (`labeldp.learn.metrics` has them), and three sources of truth; its user says which.

*Public labels* (`labels_are_public=True`): exact.

*Protected labels* (`epsilon=`): one release and one charge for the whole report. The probabilities of all rows are public, so
that rows can be put into cells of similar scores without looking at labels; what is measured is how many rows of each cell
have which label. With two classes the second is counted, and one replaced label moves one count by 1: sensitivity 1, and
the cells compose in parallel. With K > 2 classes, class c has its own cells, by its own score p[., c] (and by the predicted
class, up to `MOST_DETAILED` classes), and in them the rows of class c are counted. A replaced label leaves one cell of its old
class and enters one of its new class: sensitivity 2, whatever the cells are. Noise is exact discrete Laplace of rate
a = epsilon / sensitivity on every count (`labeldp.measure`), of variance 2 e^a / (e^a - 1)^2.

A sum over labels, theta = sum_i 1[y_i = c] w_i, follows from the counts N_b of its cells by

    theta = sum_i e_i w_i + sum_b (N_b - sum_(i in b) e_i) w_b,       w_b = sum_b v_i w_i / sum_b v_i,     v_i = e_i (1 - e_i),

where e_i is the score, made to fit the noisy counts by a line in log odds. It is exact but for noise where w is constant within
cells; cells end where bins, cuts and predictions end as long as there are cells enough. What is left is how labels lie
within a cell, with variance sum_i v_i (w_i - w_b)^2. More cells mean less of that and more noise: the error of a log loss is of
order m / B^2 for B cells with m rows of the rarer side, and its noise of order sqrt(B) / a, so that B = (2 m a)^0.4. (Noisy sums
of each weight, one by one, were the other way: a budget divided by their number, and a log loss with the range of its
logarithm as sensitivity. At epsilon 1 their errors are 2 to 4 times as large; benchmarks/evaluation.py.)

*Released labels* (a `Release`): free, since it reads what is public. Where the channel T_i of every row can be inverted, its
unbiased targets c_i(o_i) have E[c_i(o_i)[k] | y_i] = 1[y_i = k], so theta = sum_i c_i(o_i)[c] w_i is unbiased, whatever the model,
as long as it was not trained on these rows. Its noise has the covariance sum_i V_i V_i' - sum_ic c_i(o_i)[c] w_ic w_ic', in
expectation, V_i being row i's part of theta. Candidate sets that leave classes out hide which label was outside them: no function
of their output is unbiased, and nothing but a model of the labels tells "outside" from "anywhere inside". There the labels are
taken to follow the evaluated model's own odds, times a factor for each class in each bin of its score,

    r_i[k] ~ p[i, k] exp(t[k, bin_k(i)]),      t = argmax sum_i log sum_k r_i[k] T_i[k, o_i] - |t|^2 / (2 s^2),       s = 3,

and the sums are those of the posteriors r_i[k] T_i[k, o_i] / (their sum). The report says that it rests on this.

*Intervals.* `interval` is about the metric of these very rows, and covers the noise of the release: sums are drawn again as
(estimate - noise), where the noise has its public law (or, of released labels, its estimated covariance), and the middle 95 % of
the metrics of `DRAWS` such sums is the interval. For what is linear in the sums that is exact. Where noise would be
counted twice (ECE, the largest base rate: a sum of absolute values and a maximum), the interval is the estimate with the 95th
percentile of how far noise can move it, which covers at least that often. `population` is about the population that the
rows were drawn from: noise and sampling, added in squares on each side; the latter by Wilson's interval for what is a share,
and by Student's t for mean losses. What cannot be told from noise is None, and says why.

>>> from labeldp.learn import evaluate
>>> chances, labels = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], ["no", "yes", "yes", "yes"]
>>> found = evaluate(chances, None, labels, classes=["no", "yes"], labels_are_public=True)
>>> found.accuracy.value, found.auc.value, found.accuracy.interval
(0.75, 1.0, None)
>>> noisy = evaluate(chances, None, labels, classes=["no", "yes"], epsilon=1.0)
>>> noisy.guarantee.epsilon(), noisy.guarantee.trust.words
(1.0, 'a curator')

References: Dwork, McSherry, Nissim & Smith 2006 (histograms); Natarajan et al. 2013 (unbiased losses); Deville & Sarndal 1992
(sums that are fitted to known totals).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.special
from sklearn.utils.validation import _num_samples

from labeldp.arrays import Float64s, Int64s, Ints
from labeldp.errors import Described, OptimisticScoreWarning, invalid
from labeldp.learn.corrections import take_rows
from labeldp.learn.evaluated import Estimated, Evaluation, build_evaluation
from labeldp.learn.metrics import OWNER, Scores
from labeldp.learn.scoring import can_invert, find_codes
from labeldp.priors import model_probabilities
from labeldp.release import Measurement, Query, Release, SensitiveLabels, Sensitivity, measure
from labeldp.release.labels import as_plain, count_missing
from labeldp.release.measurement import check_measuring, choose_noise
from labeldp.release.scores import check_raw_labels

#: From more classes than this on, noisy reports leave the confusion matrix and the cuts of each class out.
MOST_DETAILED = 12
#: How often sums are drawn again for an interval; fewer where they are many, so that all draws stay below `DRAWN_CELLS`.
DRAWS, FEWEST_DRAWS, DRAWN_CELLS = 4000, 1000, 1 << 23
#: Intervals are drawn by a public seed: they say nothing about labels, and the same release gives the same report.
DRAW_SEED = 0
#: How far, in logarithms of odds, a released label may be from the model's belief: the penalty's standard deviation.
FACTOR_SPREAD = 3.0
#: How uncertain the slope of the scores within a cell is, as a share of the slope that fits the cells.
SLOPE_DOUBT = 0.25
#: Log odds are cut here: beyond it a line through them would be drawn by a few certain rows.
MOST_LOGIT = 12.0

PUBLIC_SCORES = "the predictions are public: whatever labels their model has seen, it has seen through releases"


def evaluate(
    model: Any,
    X: Any,
    labels: Any,
    *,
    labels_are_public: bool = False,
    epsilon: float | None = None,
    classes: Sequence[Any] | None = None,
    rows: Any = None,
    ledger: Any = None,
    label_set: str = "labels",
    rng: Any = None,
) -> Evaluation:
    """Return a report on a classifier: accuracy, AUC, log loss, Brier score, calibration, confusion, precision at k.

    Parameters
    ----------
    model : fitted classifier with `predict_proba`, or an array of probabilities
        An array has a row per label and a column per class; of two classes a vector will do, of the second one.
    X : features, or None with an array
        One row per label.
    labels : sequence, SensitiveLabels, or Release
        What to compare with. One of three is asked for: `labels_are_public=True` for labels that are no secret (exact);
        `epsilon=` for labels that are protected (one noisy measurement, charged); a `Release` for labels that were
        released already (free).
    labels_are_public : bool
        Declares that the labels may be read. The declaration is the caller's word and is not checked.
    epsilon : float
        What the whole report may spend on these labels; pure, one label replaced; the caller, a curator, sees the labels.
    classes : sequence, optional
        The public list of classes; by default that of the boxed labels, of the release, or of the model.
    rows : indices or mask, optional
        Of a release, only these rows: those that the model was not trained on.
    ledger, label_set, rng
        As for `labeldp.measure`; `label_set` names labels that are not boxed.

    Guarantee
    ---------
    With `epsilon`: pure epsilon when one label is replaced, for everything in the report together; it is stated and charged
    before anything is drawn, and whatever can be refused is refused before that. Public and released labels cost nothing.

    Edge cases
    ----------
    Probabilities that are NaN or do not sum to 1 are refused. A class that the model does not know has probability 0. Ties
    in a score are ties: a constant model has AUC 1/2, and rows of one probability share a bin. A class that does not
    occur, or too few rows of it to be told from noise, leaves its recall and AUC None, with the reason.
    """
    if isinstance(labels, Release):
        if labels_are_public or epsilon is not None or ledger is not None:
            got, fix = Described("a release"), "Released labels cost nothing: leave epsilon, ledger and the declaration out."
            raise invalid(OWNER, "labels", "be what epsilon or labels_are_public speaks of", got=got, fix=fix)
        return _evaluate_release(model, X, labels, classes, rows)
    if rows is not None:
        raise invalid(OWNER, "rows", "be given with a release only", got=rows, fix="Pass those rows and labels alone.")
    if labels_are_public == (epsilon is not None):
        fix = "labels_are_public=True for labels that are no secret, epsilon= for others, or a Release as labels."
        got = Described("both" if labels_are_public else "neither")
        raise invalid(OWNER, "labels", "have labels_are_public or epsilon", got=got, fix=fix)
    if epsilon is None:
        return _evaluate_exactly(model, X, labels, classes, ledger)
    return _evaluate_protected(
        model, X, labels, classes, epsilon=epsilon, ledger=ledger, label_set=label_set, rng=rng
    )


# ------------------------------------------------------------------------------------------------------- public labels


def _evaluate_exactly(model: Any, X: Any, labels: Any, classes: Sequence[Any] | None, ledger: Any) -> Evaluation:
    """Read the labels and compute; one that is no class of the model is one that it gives no chance."""
    if ledger is not None:
        raise invalid(OWNER, "ledger", "be left out", got=ledger, fix="Public labels are not charged.")
    check_raw_labels(OWNER, labels, declared=True)
    plain = as_plain(labels)
    missing = count_missing(plain)
    if missing:
        fix = "Score on rows with a label."
        raise invalid(OWNER, "labels", "have no missing values", got=Described(f"{missing:,} missing"), fix=fix)
    values = plain.tolist()
    known = _list_classes(model, classes)
    others = sorted({*values} - {*known}, key=lambda value: (str(type(value)), value))
    if others and classes is not None:
        row = next(row for row, value in enumerate(values) if value in set(others))
        raise invalid(OWNER, "labels", "be among classes", got=Described(f"another value in row {row:,}"))
    listed = (*known, *others)
    scores = Scores(_find_chances(model, X, listed, len(values)), classes=listed)
    codes = find_codes(values, listed)
    soft = np.zeros((scores.n, scores.n_classes))
    soft[np.arange(scores.n), codes] = 1.0
    found = Estimated(sums=scores.exact_sums(codes), draws=None, soft=soft, method="counted exactly")
    return build_evaluation(scores, found, source="public labels")


def _list_classes(model: Any, classes: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the public list of classes: as given, or the model's."""
    if classes is not None:
        return tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    if not hasattr(model, "classes_"):
        fix = "Say what the columns of the probabilities stand for."
        raise invalid(OWNER, "classes", "be given with an array of probabilities", got=None, fix=fix)
    return tuple(c.item() if isinstance(c, np.generic) else c for c in model.classes_)


def _find_chances(model: Any, X: Any, classes: tuple[Any, ...], n: int) -> Float64s:
    """Return a row of probabilities for each of n labels, with a column for each class."""
    if hasattr(model, "predict_proba"):
        if X is None or _num_samples(X) != n:
            got = Described(f"{0 if X is None else _num_samples(X)} rows for {n} labels")
            raise invalid(OWNER, "X", "have one row per label", got=got)
        return np.asarray(model_probabilities(model, X, classes), np.float64)
    if X is not None:
        fix = "A model needs `predict_proba`; an array of probabilities needs no X: pass None."
        raise invalid(OWNER, "model", "be a classifier with probabilities", got=type(model).__name__, fix=fix)
    chances = np.asarray(model)
    if chances.dtype.kind not in "fiub":
        raise invalid(OWNER, "model", "be a classifier or an array of probabilities", got=type(model).__name__)
    if chances.ndim == 1 and len(classes) == 2:
        chances = np.stack([1.0 - chances, chances], axis=1)
    if chances.ndim != 2 or len(chances) != n:
        got = Described(f"an array of shape {chances.shape} for {n} labels")
        raise invalid(OWNER, "probabilities", "have one row per label", got=got)
    return chances.astype(np.float64)


# ---------------------------------------------------------------------------------------------------- protected labels


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCounts(Query):
    """How many rows of each cell have the label that the cell is for: the one measurement behind a private report.

    Parameters
    ----------
    cells : integer array of shape (n,) or (K, n)
        The public cell of each row. A vector is for two classes, of which the second is counted. Of K > 2 classes row c
        has the cells in which class c is counted; different classes have different cells.
    n_cells : int
        How many cells there are in all.

    Notes
    -----
    A replaced label of two classes moves one count by 1. Of more, it leaves one cell of its old class and enters one of its
    new class: 2 in the 1-norm, sqrt 2 in the 2-norm. Neither depends on how many cells there are.
    """

    cells: Ints = field(repr=False)
    n_cells: int
    assumptions: tuple[str, ...] = (PUBLIC_SCORES,)

    def check_size(self, n_examples: int) -> None:
        """One cell per label and class, numbered below `n_cells`; the cells of one class are not those of another."""
        table = np.atleast_2d(self.cells)
        if table.shape[1] != n_examples or table.shape[0] == 2 or table.size == 0:
            got = Described(f"an array of shape {np.shape(self.cells)} for {n_examples} labels")
            raise invalid("ScoreCounts", "cells", "have one entry per label (and class)", got=got)
        if int(table.min()) < 0 or int(table.max()) >= self.n_cells:
            raise invalid("ScoreCounts", "cells", f"be in [0, {self.n_cells - 1}]", got=Described("others"))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """1 for two classes, else (2, sqrt 2)."""
        counted = len(np.atleast_2d(self.cells))
        if counted != (1 if n_classes == 2 else n_classes):
            got = Described(f"cells of {counted} for labels of {n_classes} classes")
            raise invalid("ScoreCounts", "cells", "have a row for each class that is counted", got=got)
        return Sensitivity(1.0, 1.0) if n_classes == 2 else Sensitivity(2.0, math.nextafter(math.sqrt(2.0), 2.0))

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Count."""
        if n_classes == 2:
            mine = np.atleast_2d(self.cells)[0][codes == 1]
        else:
            mine = np.take_along_axis(self.cells, codes.astype(np.int64)[None], axis=0)[0]
        return np.bincount(mine, minlength=self.n_cells).astype(np.int64)


def _evaluate_protected(
    model: Any, X: Any, labels: Any, classes: Sequence[Any] | None, *, epsilon: float, ledger: Any, label_set: str, rng: Any
) -> Evaluation:
    """Box, choose cells without labels, measure once, and work out the rest from what was measured."""
    target, _ = check_measuring(epsilon, 0.0)
    if isinstance(labels, SensitiveLabels):
        if classes is not None and tuple(classes) != labels.classes:
            fix = "Leave classes out: SensitiveLabels know theirs."
            raise invalid(OWNER, "classes", "be those of the labels", got=classes, fix=fix)
        boxed = labels
    else:
        boxed = SensitiveLabels(labels, classes=_list_classes(model, classes), name=label_set)
    chances = _find_chances(model, X, boxed.classes, len(boxed))
    scores = Scores(chances, classes=boxed.classes, detailed=boxed.n_classes <= MOST_DETAILED)
    plan = Cells.choose(scores, epsilon=target)
    measured = measure(boxed, plan.query, epsilon=target, rng=rng, ledger=ledger)
    return build_evaluation(
        scores, plan.estimate(scores, measured), source="protected labels", measured=measured, n_counts=plan.query.n_cells
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of a private report: chosen from public scores, epsilon and the number of rows."""

    query: ScoreCounts
    rate: float
    #: Groups of counts, over all classes, whose sum is public: a sum over all classes counts rows.
    groups: Ints
    group_sizes: Ints

    @classmethod
    def choose(cls, scores: Scores, *, epsilon: float) -> Cells:
        """Return the cells for so many rows at this epsilon; see the module for how many."""
        K = scores.n_classes
        query = ScoreCounts(cells=np.zeros(scores.n, np.int64) if K == 2 else np.zeros((K, scores.n), np.int64), n_cells=1)
        noise = choose_noise(query.sensitivity(n_classes=K), epsilon, 0.0)
        rate = math.inf if noise.rate is None else float(noise.rate)
        tables, groups, first = [], [], 0
        for c in [1] if K == 2 else range(K):
            grouped = np.zeros(scores.n, np.int64) if K == 2 else scores.predicted
            if K > 2 and not scores.detailed:
                grouped = (scores.predicted == c).astype(np.int64)
            own = divide_rows(scores, c, grouped, rate=rate)
            owner = np.zeros(int(own.max()) + 1, np.int64)
            owner[own] = scores.predicted if scores.detailed else 0
            tables.append(own + first)
            groups.append(owner)
            first += len(owner)
        sizes = np.bincount(scores.predicted if scores.detailed else np.zeros(scores.n, np.int64), minlength=K)
        cells = tables[0] if K == 2 else np.stack(tables)
        query = ScoreCounts(cells=cells, n_cells=first)
        return cls(query=query, rate=rate, groups=np.concatenate(groups), group_sizes=sizes)

    def estimate(self, scores: Scores, measured: Measurement) -> Estimated:
        """Return the sums that the noisy counts tell of, and draws of what they may really be."""
        K, width = scores.n_classes, scores.width
        rng = np.random.default_rng(DRAW_SEED)
        n_draws = _count_draws(K * width)
        noise = _draw_laplace(rng, self.rate, (n_draws, self.query.n_cells))
        counts = measured.value.astype(np.float64)
        spread = measured.spread
        if K > 2:
            noise, counts = self._project(noise, 0.0), self._project(counts[None], self.group_sizes)[0]
        sums, draws = np.zeros((K, width)), np.zeros((n_draws, K, width))
        soft = np.zeros((scores.n, K))
        for c in [1] if K == 2 else range(K):
            cells = np.atleast_2d(self.query.cells)[0 if K == 2 else c]
            low, high = int(cells.min()), int(cells.max()) + 1
            part = Allocation.fit(scores, c, cells - low, counts[low:high], spread=spread)
            mean, drawn = part.sums(), part.draws(rng, noise[:, low:high])
            sums += mean.reshape(K, width) if K == 2 else 0.0
            if K == 2:
                draws += drawn.reshape(n_draws, K, width)
                soft[:, 1] = part.soft
                soft[:, 0] = 1.0 - part.soft
            else:
                sums[c], draws[:, c], soft[:, c] = mean, drawn, part.soft
        method = f"{self.query.n_cells} counts of rows by score and label, {measured.noise} on each"
        return Estimated(sums=sums, draws=sums - draws, soft=np.clip(soft, 0.0, 1.0), method=method)

    def _project(self, counts: Float64s, sizes: Any) -> Float64s:
        """Return counts, or noise, with what is known of their sums: over all classes, a group has so many rows."""
        members = np.bincount(self.groups, minlength=len(self.group_sizes))
        totals = np.zeros((len(counts), len(self.group_sizes)))
        for group in np.flatnonzero(members):
            totals[:, group] = counts[:, self.groups == group].sum(axis=1)
        off = np.divide(totals - sizes, members, out=np.zeros_like(totals), where=members > 0)
        return np.asarray(counts - off[:, self.groups], np.float64)


def divide_rows(scores: Scores, c: int, groups: Ints, *, rate: float) -> Ints:
    """Return the cell of each row for class c, numbered from 0: rows of one group with neighbouring scores.

    Cells start where metrics have their steps (bins, cuts, groups). Those with fewer rows than the noise tells apart are
    joined with a neighbour; then the least important are joined, or the most important are split, until there are as many
    as the module says. A row's importance is half of its share of the rows, half of its share of p (1 - p).
    """
    chance = scores.chances[:, c]
    doubt = chance * (1 - chance)
    weight = 0.5 / scores.n + 0.5 * doubt / max(float(doubt.sum()), LEAST_WEIGHT)
    expected = float(chance.sum())
    rarer = max(min(expected, scores.n - expected), 1.0)
    wanted = scores.n if math.isinf(rate) else max(2, round((2 * rarer * rate) ** 0.4))
    fewest = 1.0 if math.isinf(rate) else 2 * math.sqrt(2.0) / rate
    order = np.lexsort((chance, groups))
    value, group = chance[order], groups[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(value) != 0) | (np.diff(group) != 0)])  # of runs that stay together
    row_ends = np.r_[starts[1:], scores.n]
    weights = np.add.reduceat(weight[order], starts)
    marks = [scores.bins[order]] if scores.n_classes == 2 else [np.where(group == c, scores.bins[order], -1)]
    if scores.detailed:
        marks.append(np.searchsorted(np.sort(scores.cuts[0][c]), value, side="left"))
        marks.append(np.searchsorted(np.sort(scores.cuts[0][c]), value, side="right"))
        marks.append(scores.predicted[order])
    steps = np.any([np.r_[True, np.diff(mark) != 0] for mark in marks], axis=0)[starts]
    walls = np.r_[True, np.diff(group) != 0][starts]
    bounds = _join_cells(np.flatnonzero(steps | walls), walls, weights, row_ends, wanted=wanted, fewest=fewest)
    bounds = _split_cells(bounds, weights, row_ends, wanted=wanted, fewest=fewest)
    cell = np.zeros(len(starts), np.int64)
    cell[bounds[1:]] = 1
    out = np.empty(scores.n, np.int64)
    out[order] = np.repeat(np.cumsum(cell), np.diff(np.r_[starts, scores.n]))
    return out


LEAST_WEIGHT = 1e-300


def _join_cells(bounds: Ints, walls: Any, weights: Float64s, row_ends: Ints, *, wanted: int, fewest: float) -> list[int]:
    """Join cells, given by the runs at which they start, until none is too small and there are no more than wanted."""
    starts = bounds.tolist()
    row_starts = np.r_[0, row_ends[:-1]]
    mass = np.add.reduceat(weights, starts).tolist()
    size = np.diff(np.r_[row_starts[starts], row_ends[-1]]).tolist()
    closed = walls[starts].tolist()  # cell j may not be joined with the one before it
    settled: set[int] = set()
    while len(starts) > 1:
        open_cells = [
            j for j in range(len(starts)) if starts[j] not in settled and (size[j] < fewest or len(starts) > wanted)
        ]
        if not open_cells:
            break
        j = min(open_cells, key=lambda at: (size[at] >= fewest, mass[at]))
        before = mass[j - 1] if j > 0 and not closed[j] else math.inf
        after = mass[j + 1] if j + 1 < len(starts) and not closed[j + 1] else math.inf
        if math.isinf(before) and math.isinf(after):
            settled.add(starts[j])
            continue
        right = j if before <= after else j + 1  # the cell that is joined with the one before it
        mass[right - 1] += mass[right]
        size[right - 1] += size[right]
        for values in (starts, mass, size, closed):
            del values[right]
    return [int(start) for start in starts]


def _split_cells(bounds: list[int], weights: Float64s, row_ends: Ints, *, wanted: int, fewest: float) -> list[int]:
    """Split the most important cells in two halves of equal importance until there are as many as wanted."""
    total = np.r_[0.0, np.cumsum(weights)]
    rows = np.r_[0, row_ends]
    ends = [*bounds[1:], len(weights)]
    cells = {start: end for start, end in zip(bounds, ends, strict=True)}
    done: set[int] = set()
    while len(cells) < wanted and len(done) < len(cells):
        start = max((s for s in cells if s not in done), key=lambda s: total[cells[s]] - total[s])
        end = cells[start]
        middle = int(np.searchsorted(total, (total[start] + total[end]) / 2))
        middle = min(max(middle, start + 1), end - 1)
        small = middle <= start or min(rows[middle] - rows[start], rows[end] - rows[middle]) < fewest
        if small:
            done.add(start)
        else:
            cells[start], cells[middle] = middle, end
    return sorted(cells)


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """What noisy counts of one class in its cells say of its sums; the formulas are those of the module."""

    base: Float64s
    means: Float64s
    excess: Float64s
    within: Float64s
    slope: Float64s
    soft: Float64s

    @classmethod
    def fit(cls, scores: Scores, c: int, cells: Ints, counts: Float64s, *, spread: float) -> Allocation:
        """Fit scores to counts, and collect the weights of the cells."""
        logit = np.clip(scipy.special.logit(scores.chances[:, c]), -MOST_LOGIT, MOST_LOGIT)
        sizes = np.bincount(cells, minlength=len(counts))
        intercept, slope = fit_line(logit, cells, np.clip(counts, 0, sizes), sizes, spread=spread)
        chance = scipy.special.expit(intercept + slope * logit)
        doubt = np.maximum(chance * (1 - chance), 1e-9)  # a certain row still takes its part of a count
        total = np.bincount(cells, doubt, len(counts))
        excess = counts - np.bincount(cells, chance, len(counts))
        soft = chance + doubt * (excess / total)[cells]
        centre = np.bincount(cells, doubt * logit, len(counts)) / total
        width = scores.width * (2 if scores.n_classes == 2 else 1)
        base, means, lean = np.zeros(width), np.zeros((len(counts), width)), np.zeros(width)
        square = np.zeros((width, width))
        for low, high in scores.pieces():
            weights, rest = _count_weights(scores, c, low, high)
            part, here = slice(low, high), cells[low:high]
            base += rest + chance[part] @ weights
            weighted = doubt[part, None] * weights
            np.add.at(means, here, weighted)
            lean += (logit[part] - centre[here]) @ weighted
            square += weights.T @ weighted
        means /= total[:, None]
        within = square - (means * total[:, None]).T @ means
        return cls(
            base=base, means=means, excess=excess, within=within, slope=SLOPE_DOUBT * slope * lean, soft=soft
        )

    def sums(self) -> Float64s:
        """Return the sums."""
        return self.base + self.excess @ self.means

    def draws(self, rng: np.random.Generator, noise: Float64s) -> Float64s:
        """Return draws of their error: the noise of the counts, and where in its cell a label lies."""
        inside = _draw_normals(rng, self.within, len(noise))
        return np.asarray(noise @ self.means + inside + rng.normal(size=(len(noise), 1)) * self.slope, np.float64)


def _count_weights(scores: Scores, c: int, low: int, high: int) -> tuple[Float64s, Any]:
    """Return what a row of class c adds to the sums, and what the rows add that are not.

    Of two classes a row that is not of the second is of the first: the sums of both follow from one count.
    """
    weights = scores.weights(c, low, high)
    if scores.n_classes > 2:
        return weights, 0.0
    first = scores.weights(0, low, high)
    return np.concatenate([-first, weights], axis=1), np.concatenate([first.sum(axis=0), np.zeros(scores.width)])


def fit_line(logit: Float64s, cells: Ints, counts: Float64s, sizes: Ints, *, spread: float) -> tuple[float, float]:
    """Return (a, b) for which sigmoid(a + b logit) fits the counts of cells: b >= 0, and near (0, 1) where they say little.

    Newton's method on the binomial likelihood of cells at their mean log odds, each weighted down by the noise of its count;
    (0, 1), the scores as they are, is held by a normal prior of standard deviations 3 and 1.
    """
    place = np.bincount(cells, logit, len(counts)) / np.maximum(sizes, 1)
    design = np.stack([np.ones(len(place)), place], axis=1)
    prior, held = np.array([0.0, 1.0]), np.array([1 / 9.0, 1.0])
    line = prior.copy()
    for _ in range(25):
        chance = scipy.special.expit(design @ line)
        variance = np.maximum(sizes * chance * (1 - chance), 1e-9)
        trust = variance / (variance + spread**2)
        gradient = design.T @ (trust * (counts - sizes * chance)) - held * (line - prior)
        step = np.linalg.solve((design * (trust * variance)[:, None]).T @ design + np.diag(held), gradient)
        line = line + np.clip(step, -2.0, 2.0)
        line[1] = min(max(line[1], 0.0), 5.0)
    return float(line[0]), float(line[1])


def _count_draws(cells: int) -> int:
    return max(FEWEST_DRAWS, min(DRAWS, DRAWN_CELLS // cells))


def _draw_laplace(rng: np.random.Generator, rate: float, shape: tuple[int, int]) -> Float64s:
    """Return simulated discrete Laplace noise for intervals, a difference of two geometric draws; nothing is protected by it."""
    if math.isinf(rate):
        return np.zeros(shape)
    stop = -math.expm1(-rate)
    return np.asarray(rng.geometric(stop, shape) - rng.geometric(stop, shape), np.float64)


def _draw_normals(rng: np.random.Generator, covariance: Float64s, count: int) -> Float64s:
    """Return normal draws; what rounding or an estimate leaves below zero in a covariance is taken as zero."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.normal(size=(count, len(values))) @ root.T, np.float64)


# ----------------------------------------------------------------------------------------------------- released labels


def _evaluate_release(model: Any, X: Any, release: Release, classes: Sequence[Any] | None, rows: Any) -> Evaluation:
    """Estimate through the channel: without bias where it can be inverted, else by likelihood."""
    if classes is not None and tuple(classes) != tuple(release.classes):
        raise invalid(OWNER, "classes", "be those of the release", got=classes, fix="Leave classes out.")
    notes = warn_own_release(model, release)
    chosen = np.arange(len(release)) if rows is None else np.arange(len(release))[rows]
    if len(chosen) < 2:
        raise invalid(OWNER, "rows", "be two or more", got=len(chosen))
    if hasattr(model, "predict_proba"):
        if X is None or _num_samples(X) != len(release):
            got = Described(f"{0 if X is None else _num_samples(X)} rows for {len(release)} labels")
            raise invalid(OWNER, "X", "have one row per released label", got=got)
        chances = np.asarray(model_probabilities(model, take_rows(X, chosen), release.classes), np.float64)
    else:
        chances = _find_chances(model, X, tuple(release.classes), len(release))[chosen]
    part = release.take(chosen)
    scores = Scores(chances, classes=tuple(release.classes), detailed=release.n_classes <= MOST_DETAILED)
    likelihood = np.asarray(part.channel.likelihood(part.codes), np.float64)
    if np.all(likelihood.max(axis=1) <= likelihood.min(axis=1) * (1 + 1e-12)):
        got = Described("answers that say nothing about any label")
        raise invalid(OWNER, "labels", "be a release that tells of labels", got=got, fix="Use epsilon > 0.")
    found = _estimate_unbiased(scores, part) if can_invert(part.channel) else _estimate_likely(scores, likelihood, part)
    return build_evaluation(scores, found, source="released labels", release=release, notes=notes)


def warn_own_release(model: Any, release: Release) -> tuple[str, ...]:
    """Warn, and return the note, where a model is scored on the very labels that it was trained on."""
    own = getattr(model, "release_", None)
    same = own is release or (
        own is not None
        and len(own) == len(release)
        and (own.created, own.label_set) == (release.created, release.label_set)
        and bool(own.created)
    )
    if not same:
        return ()
    note = (
        "the model was trained on this very release: it has learned some of its noise, and every figure is optimistic. "
        "Score on a release of rows that it has not seen"
    )
    warnings.warn(f"evaluate: {note}.", OptimisticScoreWarning, stacklevel=4)
    return (note,)


def _estimate_unbiased(scores: Scores, part: Release) -> Estimated:
    """Return unbiased sums and draws by the estimated covariance of their noise."""
    targets = np.asarray(part.channel.unbiased_targets(part.codes), np.float64)
    K, width = scores.n_classes, scores.width
    sums, covariance = np.zeros(K * width), np.zeros((K * width, K * width))
    for low, high in scores.pieces():
        weights = [scores.weights(c, low, high) for c in range(K)]
        rows = np.concatenate([targets[low:high, c, None] * weights[c] for c in range(K)], axis=1)
        sums += rows.sum(axis=0)
        covariance += rows.T @ rows
        for c in range(K):
            own = slice(c * width, (c + 1) * width)
            covariance[own, own] -= weights[c].T @ (targets[low:high, c, None] * weights[c])
    rng = np.random.default_rng(DRAW_SEED)
    noise = _draw_normals(rng, covariance, _count_draws(K * width))
    return Estimated(
        sums=sums.reshape(K, width),
        draws=(sums - noise).reshape(-1, K, width),
        soft=targets,
        method="unbiased estimates through the channel",
    )


def _estimate_likely(scores: Scores, likelihood: Float64s, part: Release) -> Estimated:
    """Return sums of posteriors under the model's odds, fitted to the release by factors; see the module."""
    K, width = scores.n_classes, scores.width
    signal = min(part.channel.epsilon, 1.0)
    wanted = min(max(round((scores.n * signal**2 / K) ** 0.4), 1), 20)
    edges = [np.unique(np.quantile(scores.chances[:, c], np.arange(1, wanted) / wanted)) for c in range(K)]
    places = np.stack([np.searchsorted(edges[c], scores.chances[:, c], side="left") for c in range(K)], axis=1)
    firsts = np.concatenate([[0], np.cumsum([len(edge) + 1 for edge in edges])])
    places = places + firsts[:-1]
    fit = _Factors(np.log(np.maximum(scores.chances, 1e-9)), likelihood, places, int(firsts[-1]))
    belief, posterior = fit.solve()
    sums, within = np.zeros(K * width), np.zeros((K * width, K * width))
    gradient, information = np.zeros((K * width, fit.size)), np.eye(fit.size) / FACTOR_SPREAD**2
    for low, high in scores.pieces():
        weights = [scores.weights(c, low, high) for c in range(K)]
        soft = posterior[low:high]
        rows = np.concatenate([soft[:, c, None] * weights[c] for c in range(K)], axis=1)
        sums += rows.sum(axis=0)
        within -= rows.T @ rows
        at, line = places[low:high], np.arange(high - low)[:, None]
        score, chosen = np.zeros((high - low, fit.size)), np.zeros((high - low, fit.size))
        score[line, at], chosen[line, at] = soft - belief[low:high], soft
        information += score.T @ score
        gradient -= rows.T @ chosen
        for c in range(K):
            own = slice(c * width, (c + 1) * width)
            mine = soft[:, c, None] * weights[c]
            within[own, own] += weights[c].T @ mine
            np.add.at(gradient.T[:, own], at[:, c], mine)
    covariance = within + gradient @ np.linalg.solve(information, gradient.T)
    rng = np.random.default_rng(DRAW_SEED)
    noise = _draw_normals(rng, covariance, _count_draws(K * width))
    assumption = (
        "labels follow the evaluated model's own odds, times a factor for each class in each bin of its score: this channel "
        "hides which label lies outside a candidate set, and only a model of the labels can tell"
    )
    return Estimated(
        sums=sums.reshape(K, width),
        draws=(sums - noise).reshape(-1, K, width),
        soft=posterior,
        method=f"maximum likelihood through the channel, {fit.size} factors",
        assumptions=(assumption,),
    )


class _Factors:
    """The penalised likelihood of factors t for each class and bin, and its maximum."""

    def __init__(self, logs: Float64s, likelihood: Float64s, places: Ints, size: int) -> None:
        self.logs, self.places, self.size = logs, places, size
        self.likelihood = likelihood / likelihood.max(axis=1, keepdims=True)

    def beliefs(self, factors: Float64s) -> tuple[Float64s, Float64s, Float64s]:
        """Return r, the posteriors, and the likelihood of each row."""
        belief = scipy.special.softmax(self.logs + factors[self.places], axis=1)
        joint = belief * self.likelihood
        total = joint.sum(axis=1, keepdims=True)
        return belief, joint / total, total[:, 0]

    def solve(self) -> tuple[Float64s, Float64s]:
        """Return r and the posteriors at the maximum."""

        def cost(factors: Float64s) -> tuple[float, Float64s]:
            belief, posterior, total = self.beliefs(factors)
            slope = np.bincount(self.places.ravel(), (belief - posterior).ravel(), self.size)
            value = -float(np.log(total).sum()) + float(factors @ factors) / (2 * FACTOR_SPREAD**2)
            return value, slope + factors / FACTOR_SPREAD**2

        found = scipy.optimize.minimize(cost, np.zeros(self.size), jac=True, method="L-BFGS-B", options={"maxiter": 500})
        belief, posterior, _ = self.beliefs(found.x)
        return belief, posterior
