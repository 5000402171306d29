r"""Every metric of a classifier as a function of a few sums over labels, whose weights are public.

Features and model are public, so the probabilities p[i, k] of every row are, and with them the predictions, the ranks of the
scores, the bins and the cuts. What is secret is only which label y_i a row has. So each metric is written by sums

    theta[c, j] = sum_i 1[y_i = c] w_c[i, j],          w public,

one row of theta per class. With n_c = theta[c, count]:

| metric | from the sums |
|---|---|
| base rate of c | n_c / n |
| accuracy | sum_c theta[c, hit] / n, w = 1[row i is predicted as c] |
| balanced accuracy | mean_c theta[c, hit] / n_c |
| AUC of c against the rest | (n theta[c, rank] - n_c (n_c + 1) / 2) / (n_c (n - n_c)), w = midrank of p[i, c] / n |
| log loss | sum_c theta[c, loss] / n, w = -log p[i, c] |
| Brier score | (sum_ik p[i, k]^2 + n - 2 sum_c theta[c, chance]) / n, w = p[i, c]; half of it for two classes |
| confusion matrix | theta[c, predicted j], w = 1[row i is predicted as j] |
| calibration | theta[c, bin b] over the bin's rows; ECE is the mean distance to the bin's mean probability |
| precision at k | theta[c, cut k] / k, w = 1 for the k largest p[i, c]; a tie at the cut shares what is left of k |

The rank formula is the Mann-Whitney statistic, and with midranks it is exact with ties. So the same code gives exact metrics of
labels that may be read, and estimates from whatever estimates the sums: a noisy measurement, or released labels seen
through their channel (`labeldp.learn.evaluation`).

>>> scores = Scores([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], classes=("no", "yes"))
>>> found = scores.metrics(scores.exact_sums(np.array([0, 1, 1])))
>>> float(found["accuracy"]), float(found["auc"]), round(float(found["log_loss"]), 3)
(1.0, 1.0, 0.28)

References: Mann & Whitney 1947 (AUC by ranks); DeLong, DeLong & Clarke-Pearson 1988 (its variance); Wilson 1927 (intervals of
shares).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from labeldp.arrays import Array, Bools, Float64s, Ints
from labeldp.channel.finite import spans
from labeldp.errors import Described, invalid
from labeldp.validate import check_probability_rows

OWNER = "evaluate"
#: Shares of the rows, from the top of a score, at which precision is given; they are the points of the ROC curve as well.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Calibration is given in this many bins of equally many rows.
BINS = 10
#: The least probability in a log loss, as in scikit-learn: a probability of zero has no finite log.
LEAST = float(np.finfo(np.float64).eps)

Metrics = Mapping[str, Float64s]


class Scores:
    """Public probabilities of rows, and the weights that metrics give to them.

    Parameters
    ----------
    chances : array of shape (n, K)
        Rows of probabilities; NaN and rows that do not sum to 1 are refused.
    classes : tuple
        What the columns stand for; two or more.
    detailed : bool
        Whether the confusion matrix and the cuts of every class are among the sums. Without it a class has one sum for
        right predictions: K^2 noisy counts of many classes would drown the others.
    """

    def __init__(self, chances: Any, *, classes: tuple[Any, ...], detailed: bool = True) -> None:
        checked = check_probability_rows(OWNER, "probabilities", chances)
        self.chances = np.asarray(checked, np.float64)
        self.classes, self.detailed = classes, detailed
        self.n, self.n_classes = (int(size) for size in self.chances.shape)
        if self.n_classes != len(classes) or self.n_classes < 2:
            got = Described(f"{self.n_classes} columns for {len(classes)} classes")
            raise invalid(OWNER, "probabilities", "have a column for each of two or more classes", got=got)
        if self.n == 0:
            raise invalid(OWNER, "X", "have a row", got=Described("none"))
        self.predicted: Ints = self.chances.argmax(axis=1)
        n_predicted = self.n_classes if detailed else 1
        self.column_predicted = slice(4, 4 + n_predicted)
        self.column_cuts = slice(4 + n_predicted, 4 + n_predicted + (len(self.tops) if detailed else 0))
        self.column_bins = slice(self.column_cuts.stop, self.column_cuts.stop + self.n_bins)
        self.width = self.column_bins.stop

    # The public facts

    @cached_property
    def tops(self) -> Ints:
        """How many rows from the top each cut takes: a share of all of them, at least one, each number once."""
        return np.unique(np.maximum(1, np.rint(np.array(SHARES) * self.n).astype(np.int64)))

    @cached_property
    def ranks(self) -> Float64s:
        """The midrank of each probability among those of its class, over n."""
        return np.asarray(scipy.stats.rankdata(self.chances, axis=0) / self.n, np.float64)

    @cached_property
    def confidence(self) -> Float64s:
        """What calibration is about: the probability of the second of two classes, else of the predicted class."""
        found: Float64s = self.chances[:, 1] if self.n_classes == 2 else self.chances.max(axis=1)
        return found

    @cached_property
    def bins(self) -> Ints:
        """The calibration bin of each row: about equally many rows each, and rows of one probability in one bin."""
        edges = np.quantile(self.confidence, np.arange(1, BINS) / BINS, method="inverted_cdf")
        return np.unique(np.searchsorted(np.unique(edges), self.confidence, side="left"), return_inverse=True)[1]

    @cached_property
    def n_bins(self) -> int:
        """How many bins have rows."""
        return int(self.bins.max()) + 1

    @cached_property
    def bin_sizes(self) -> Ints:
        """How many rows each bin has."""
        return np.bincount(self.bins, minlength=self.n_bins)

    @cached_property
    def bin_means(self) -> Float64s:
        """The mean probability of each bin."""
        return np.asarray(np.bincount(self.bins, self.confidence, self.n_bins) / self.bin_sizes, np.float64)

    @cached_property
    def cuts(self) -> tuple[Float64s, Float64s]:
        """For each class and cut the probability at the cut, and the share that rows of just that probability have."""
        ordered = np.sort(self.chances, axis=0)
        at = ordered[self.n - self.tops].T
        low = np.stack([np.searchsorted(ordered[:, c], at[c], side="left") for c in range(self.n_classes)])
        high = np.stack([np.searchsorted(ordered[:, c], at[c], side="right") for c in range(self.n_classes)])
        above = self.n - high
        return at, (self.tops - above) / (high - low)

    @cached_property
    def loss_bounds(self) -> tuple[float, float]:
        """The least and the largest log loss that any labels could give."""
        losses = -np.log(np.clip(self.chances, LEAST, 1.0))
        return float(losses.min(axis=1).mean()), float(losses.max(axis=1).mean())

    @cached_property
    def squares(self) -> float:
        """sum_ik p[i, k]^2."""
        return float((self.chances**2).sum())

    def weights(self, c: int, low: int = 0, high: int | None = None) -> Float64s:
        """Return w_c of rows low .. high - 1: one column per sum."""
        rows = slice(low, self.n if high is None else high)
        chance = self.chances[rows, c]
        out = np.zeros((len(chance), self.width))
        out[:, 0], out[:, 1], out[:, 3] = 1.0, self.ranks[rows, c], chance
        out[:, 2] = -np.log(np.clip(chance, LEAST, 1.0))
        predicted = self.predicted[rows]
        at = np.arange(len(chance))
        if self.detailed:
            out[at, 4 + predicted] = 1.0
            place, shared = self.cuts
            above, tied = chance[:, None] > place[c], chance[:, None] == place[c]
            out[:, self.column_cuts] = above + tied * shared[c]
        else:
            out[:, 4] = predicted == c
        binned = np.ones(len(chance)) if self.n_classes == 2 else (predicted == c).astype(np.float64)
        out[at, self.column_bins.start + self.bins[rows]] = binned
        return out

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield spans of rows whose weights of all classes are a small temporary."""
        return spans(self.n, width=self.width * self.n_classes)

    # Sums and metrics

    def exact_sums(self, codes: Array) -> Float64s:
        """Return theta of labels that may be read."""
        sums = np.zeros((self.n_classes, self.width))
        for low, high in self.pieces():
            for c in np.unique(codes[low:high]):
                sums[c] += self.weights(int(c), low, high)[codes[low:high] == c].sum(axis=0)
        return sums

    def metrics(self, sums: Float64s, present: Bools | None = None, split: Bools | None = None) -> Metrics:
        """Return all metrics of sums (..., K, width), by name; each has the leading axes of `sums`.

        `present` says which classes have enough rows to divide by their number, `split` which have enough rows on both
        sides of their AUC; means over classes are over those. Without them: all classes that occur. Noisy sums may give
        a share below 0 or above 1: `bounds` has what can be, and a mean is brought there after it is taken, not before.
        """
        n, K = self.n, self.n_classes
        counts = sums[..., 0]
        if present is None:
            present = counts.reshape(-1, K)[0] > 0
        if split is None:
            split = present & (counts.reshape(-1, K)[0] < n)
        hits = np.stack([sums[..., c, 4 + (c if self.detailed else 0)] for c in range(K)], axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            recalls = hits / counts
            aucs = (n * sums[..., 1] - counts * (counts + 1) / 2) / (counts * (n - counts))
            rates = np.clip(counts / n, 0.0, 1.0)
            constant = -np.where(rates > 0, rates * np.log(np.where(rates > 0, rates, 1.0)), 0.0).sum(axis=-1)
        brier = (self.squares + n - 2 * sums[..., 3].sum(axis=-1)) / n
        binned = sums[..., 1, self.column_bins] if K == 2 else sums[..., self.column_bins].sum(axis=-2)
        gaps = (binned - self.bin_means * self.bin_sizes) / n
        found = {
            "base_rates": counts / n,
            "majority": counts.max(axis=-1) / n,
            "accuracy": hits.sum(axis=-1) / n,
            "recalls": recalls,
            "balanced_accuracy": _mean_over(recalls, present),
            "aucs": aucs,
            "auc": aucs[..., 1] if K == 2 else _mean_over(aucs, split),
            "log_loss": sums[..., 2].sum(axis=-1) / n,
            "constant_log_loss": constant,
            "brier": brier / 2 if K == 2 else brier,
            "calibration": binned / self.bin_sizes,
            "gaps": gaps,
            "ece": np.abs(gaps).sum(axis=-1),
        }
        if self.detailed:
            found["confusion"] = sums[..., self.column_predicted]
            taken = sums[..., self.column_cuts]
            with np.errstate(divide="ignore", invalid="ignore"):
                found["precisions"] = taken / self.tops
                found["lifts"] = found["precisions"] / (counts / n)[..., None]
                found["true_positive_rates"] = taken / counts[..., None]
                found["false_positive_rates"] = (self.tops - taken) / (n - counts)[..., None]
        return found

    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """Return what each metric can be at all, whatever the labels: a public fact."""
        n, K = self.n, self.n_classes
        squares = (self.chances**2).sum(axis=1)
        low, high = (1 + squares - 2 * edge(axis=1) for edge in (self.chances.max, self.chances.min))
        scale = 0.5 if K == 2 else 1.0
        share = (0.0, 1.0)
        far = np.maximum(self.bin_means, 1 - self.bin_means) * self.bin_sizes / n
        found: dict[str, tuple[Any, Any]] = dict.fromkeys(
            ("base_rates", "accuracy", "recalls", "balanced_accuracy", "aucs", "auc", "calibration"), share
        )
        found |= {
            "majority": (1.0 / K, 1.0),
            "log_loss": self.loss_bounds,
            "constant_log_loss": (0.0, math.log(K)),
            "brier": (scale * float(low.mean()), scale * float(high.mean())),
            "ece": (0.0, float(far.sum())),
        }
        if self.detailed:
            sizes = np.bincount(self.predicted, minlength=K)
            found |= dict.fromkeys(("precisions", "true_positive_rates", "false_positive_rates"), share)
            found |= {"confusion": (0.0, sizes.astype(np.float64)), "lifts": (0.0, np.inf)}
        return found

    # What sampling adds

    def standard_errors(self, soft: Float64s, found: Metrics, *, present: Bools, split: Bools) -> dict[str, Float64s]:
        """Return how far each metric is from that of the population which these rows were drawn from, by chance.

        A metric f moves by phi(x, y) / n when a row (x, y) is added (its influence), so its variance is
        sum_i phi(x_i, y_i)^2 / n^2. `soft` (n, K) stands for the labels: 1 for the label itself where it is known, and an
        estimate of it otherwise. For AUC phi is DeLong's: F_rest(s) - A over the share of c for rows of c, and
        1 - F_c(s) - A over the share of the rest for the others.
        """
        n, K = self.n, self.n_classes
        losses = -np.log(np.clip(self.chances, LEAST, 1.0))
        hit = np.zeros((n, K))
        hit[np.arange(n), self.predicted] = 1.0
        squares = 1 + (self.chances**2).sum(axis=1, keepdims=True) - 2 * self.chances
        scale = 0.5 if K == 2 else 1.0
        rates = np.clip(found["base_rates"], 1.0 / n, 1.0)

        def spread(influence: Float64s) -> float:
            return float(math.sqrt(max(float((soft * influence**2).sum()), 0.0)) / n)

        recall = (hit - np.nan_to_num(found["recalls"])) / rates
        aucs, moves = np.full(K, np.nan), np.zeros((n, K))
        for c in np.flatnonzero(split):
            influence = self._auc_influence(soft, found, int(c))
            aucs[c] = spread(influence)
            moves += influence / split.sum()
        return {
            "base_rates": np.sqrt(np.maximum(found["base_rates"] * (1 - found["base_rates"]), 0.0) / n),
            "accuracy": np.asarray(spread(hit - float(found["accuracy"]))),
            "balanced_accuracy": np.asarray(spread(np.where(present, recall, 0.0) / max(int(present.sum()), 1))),
            "log_loss": np.asarray(spread(losses - float(found["log_loss"]))),
            "brier": np.asarray(spread(scale * squares - float(found["brier"]))),
            "aucs": aucs,
            "auc": np.asarray(aucs[1] if K == 2 else spread(moves)),
        }

    def _auc_influence(self, soft: Float64s, found: Metrics, c: int) -> Float64s:
        """Return DeLong's influence (n, K) of a row on the AUC of class c, for each label that it might have."""
        positive = soft[:, c]
        order = np.argsort(self.chances[:, c], kind="stable")
        value = self.chances[order, c]
        first, last = np.searchsorted(value, value, side="left"), np.searchsorted(value, value, side="right")
        sums = np.concatenate([[0.0], np.cumsum(positive[order])])
        below = np.empty(self.n)
        below[order] = (sums[first] + sums[last]) / 2  # of class c, ties counted half
        below_all = np.empty(self.n)
        below_all[order] = (first + last) / 2
        total = min(max(float(sums[-1]), 1.0), self.n - 1.0)
        area = float(found["aucs"][c])
        own = ((below_all - below) / (self.n - total) - area) / (total / self.n)
        rest = ((1 - below / total) - area) / (1 - total / self.n)
        moves = np.repeat(rest[:, None], self.n_classes, axis=1)
        moves[:, c] = own
        return moves


def _mean_over(values: Float64s, known: npt.NDArray[np.bool_]) -> Float64s:
    """Return the mean over the classes that are known; NaN if none is."""
    if not known.any():
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values[..., known].mean(axis=-1), np.float64)


def wilson(share: float, rows: float, *, z: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of so many rows: it has a width at 0 and at 1 too.

    >>> [round(end, 3) for end in wilson(1.0, 10, z=1.96)]
    [0.722, 1.0]
    """
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * math.sqrt(max(share * (1 - share), 0.0) / rows + z * z / (4 * rows * rows)) / (1 + z * z / rows)
    return max(centre - half, 0.0), min(centre + half, 1.0)
