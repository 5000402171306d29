r"""How good a model is, when the labels to test it on are protected: a noisy score that costs, and an estimate that is free.

*A private score* (`score_privately`) looks at raw test labels, so it is a release like any other, with its noise and its
price. The number of right predictions, c = sum_i 1[label_i = prediction_i], moves by at most 1 when one label is replaced.
With discrete Laplace noise of rate a = epsilon, Pr[Z = z] = (1 - q) / (1 + q) q^|z|, q = e^-a, hence
Pr[|Z| > t] = 2 q^(t+1) / (1 + q): the noise stays within t with 95 % for t = ceil(log(40 / (1 + q)) / a) - 1.

>>> score = score_privately(["a", "b", "b"], ["a", "b", "a"], classes=["a", "b"], epsilon=50.0)
>>> score.correct, score.n_examples, score.guarantee.epsilon()
(2, 3, 50.0)

*A noisy accuracy* (`noisy_accuracy`, `choose_by_noisy_accuracy`) reads labels that were released already, and costs nothing.
Let h(x_i) be a prediction, o_i the released output of label y_i through the channel T_i, and c_i(o)[y] the channel's
unbiased targets: E[c_i(o_i)[k] | y_i] = 1[y_i = k]. Then

    a = (1/n) sum_i c_i(o_i)[h(x_i)],        E[a | labels] = (1/n) sum_i 1[y_i = h(x_i)],

the accuracy on these very examples, whatever the model, as long as it was not trained on them (or on their outputs). The
standard error is that of a mean of n independent terms, from the terms themselves; it covers noise and sampling. Two
models are compared on the same outputs: the error of a difference counts only examples where they disagree, and is much
smaller than that of either.

The estimate needs a channel that can be inverted: randomized response, or a first stage without prior. RRWithPrior's
candidate sets hide which label was outside them, so no function of its output is unbiased; it is refused.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> X = np.repeat([[0.0], [1.0]], 5000, axis=0)
>>> y = np.repeat([0, 1], 5000)
>>> release = privatize(y, RandomizedResponse(1.0, n_classes=2), rng=0)
>>> class Step:
...     def __init__(self, at):
...         self.at = at
...
...     def predict(self, X):
...         return (X[:, 0] > self.at).astype(int)
>>> good = noisy_accuracy(Step(0.5), X, release)
>>> abs(good.accuracy - 1.0) < 5 * good.standard_error
True
>>> choose_by_noisy_accuracy({"good": Step(0.5), "bad": Step(2.0)}, X, release).name
'good'

Both are about accuracy alone; `labeldp.learn.evaluate` is a whole report, for one charge or free.

References: Natarajan, Dhillon, Ravikumar, Tewari, "Learning with Noisy Labels" (2013), for unbiased losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import _num_samples

from labeldp.arrays import Floats, Int64s
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.corrections import take_rows
from labeldp.priors import model_probabilities
from labeldp.release import Query, Release, SensitiveLabels, Sensitivity, measure

#: How sure the stated width of the noise is.
CONFIDENCE = 0.95
#: What a count of labels by predictions stands on: nobody can tell what labels a model has seen.
PUBLIC_SCORES = "the predictions are public: whatever labels their model has seen, it has seen through releases"


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectCount(Query):
    """How many public predictions (codes, one per label; -1 is no class) equal the label: sensitivity 1.

    Several models are counted at once by a row of predictions for each. A replaced label moves the counts of those models
    that predict the old or the new label there, by 1 each: the sensitivity is the largest number of models that two classes
    share in one column.
    """

    predicted: Any
    assumptions: tuple[str, ...] = (PUBLIC_SCORES,)

    def check_size(self, n_examples: int) -> None:
        """One prediction per label, of each model."""
        found = np.atleast_2d(self.predicted).shape[1]
        if found != n_examples:
            got = Described(f"{found} for {n_examples} labels")
            raise invalid("CorrectCount", "predicted", "have one prediction per label", got=got)

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """One replaced label makes at most one prediction of each model right or wrong."""
        table = np.atleast_2d(self.predicted)
        votes = np.stack([np.count_nonzero(table == code, axis=0) for code in range(n_classes)])
        two = np.sort(votes, axis=0)[-2:].sum(axis=0)
        most = float(max(1, two.max(initial=0)))
        return Sensitivity(most, math.nextafter(math.sqrt(most), math.inf) if most > 1 else 1.0)

    @property
    def counts_alike(self) -> bool:
        """Each row is one prediction of each model."""
        return True

    def take(self, rows: Int64s) -> CorrectCount:
        """Count some rows."""
        return CorrectCount(predicted=np.atleast_2d(self.predicted)[:, rows])

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.int64]:
        """Count."""
        self.check_size(len(codes))
        table = np.atleast_2d(self.predicted)
        return np.asarray(np.count_nonzero(table == codes, axis=1), np.int64)


@dataclass(frozen=True, kw_only=True)
class PrivateScore:
    """A noisy count of right predictions; `within` is how far the noise moves it in 95 of 100 draws."""

    correct: int
    n_examples: int
    within: int
    noise: str
    guarantee: Guarantee
    seeded: bool
    ledger_entry: int | None

    @property
    def accuracy(self) -> float:
        """The noisy share of right predictions, clipped to what a share can be."""
        return min(max(self.correct / self.n_examples, 0.0), 1.0)


def score_privately(
    predictions: Any,
    labels: Any,
    *,
    classes: Sequence[Any] | None = None,
    epsilon: float,
    ledger: Any = None,
    label_set: str = "labels",
    rng: Any = None,
) -> PrivateScore:
    """Measure how many predictions are right, with exact noise, charged to the ledger before it is drawn.

    Parameters
    ----------
    predictions : sequence
        One public prediction per label. A class that the labels cannot have is never right.
    labels : SensitiveLabels, or a column of labels
        What is protected.
    classes : sequence, optional
        The public list of classes, for labels that are not boxed. If it is left out, it is read off the labels and the
        guarantee says so.
    epsilon : float
        What the score costs.
    ledger, label_set, rng
        As for `labeldp.measure`; `label_set` names labels that are not boxed.
    """
    boxed = labels if isinstance(labels, SensitiveLabels) else SensitiveLabels(labels, classes=classes, name=label_set)
    query = CorrectCount(predicted=find_codes(predictions, boxed.classes))
    measured = measure(boxed, query, epsilon=epsilon, rng=rng, ledger=ledger)
    return PrivateScore(
        correct=int(measured.value[0]),
        n_examples=len(boxed),
        within=noise_width(epsilon),
        noise=measured.noise,
        guarantee=measured.guarantee,
        seeded=measured.seeded,
        ledger_entry=measured.ledger_entry,
    )


def find_codes(predictions: Any, classes: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return each prediction's position among the classes; a class that the labels cannot have is never right."""
    position = {c: j for j, c in enumerate(classes)}
    values = np.asarray(predictions).tolist()
    return np.fromiter((position.get(value, -1) for value in values), np.int64, len(values))


def noise_width(epsilon: float) -> int:
    """Return the least t with Pr[|Z| > t] <= 5 % for discrete Laplace noise of rate epsilon.

    >>> noise_width(1.0), noise_width(math.inf)
    (3, 0)
    """
    if math.isinf(epsilon):
        return 0
    q = math.exp(-epsilon)
    needed = math.log(2.0 / ((1.0 - CONFIDENCE) * (1.0 + q))) / epsilon
    return max(0, math.ceil(needed) - 1)


@dataclass(frozen=True, kw_only=True)
class NoisyAccuracy:
    """An unbiased estimate of a share of right predictions, which may lie outside [0, 1], and its standard error."""

    accuracy: float
    standard_error: float
    n_examples: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The model of the best estimate. `behind` is how far each of the others is behind it, with the error of that."""

    name: str
    model: Any
    scores: Mapping[str, NoisyAccuracy]
    behind: Mapping[str, NoisyAccuracy]


def noisy_accuracy(model: Any, X: Any, release: Release, *, rows: Any = None) -> NoisyAccuracy:
    """Return the estimated accuracy of a fitted model on released labels that it was not trained on.

    Parameters
    ----------
    model : fitted classifier
        Anything with `predict`.
    X : features
        One row per label of the release.
    release : Release
        Labels by randomized response (or any channel with an unbiased inverse).
    rows : indices or mask, optional
        Only these: those that were held out.
    """
    return _average(estimate_hits(model, X, release, rows=rows))


def choose_by_noisy_accuracy(models: Mapping[str, Any], X: Any, release: Release, *, rows: Any = None) -> Choice:
    """Return the fitted model that does best on held-out released labels; ties go to the first.

    Free at any number of models: it reads the release and nothing else. The best estimate of many is itself too high;
    report the accuracy of the choice from other labels.
    """
    if not models:
        raise invalid("choose_by_noisy_accuracy", "models", "have a model", got=Described("none"))
    terms = {name: estimate_hits(model, X, release, rows=rows) for name, model in models.items()}
    scores = {name: _average(found) for name, found in terms.items()}
    best = max(scores, key=lambda name: scores[name].accuracy)
    behind = {name: _average(terms[best] - found) for name, found in terms.items() if name != best}
    return Choice(name=best, model=models[best], scores=scores, behind=behind)


def estimate_hits(model: Any, X: Any, release: Release, *, rows: Any = None) -> Floats:
    """Return each example's unbiased estimate of whether it was predicted right; arguments as for `noisy_accuracy`."""
    chosen = _choose_rows(X, release, rows)
    part = release.take(chosen)
    _check_invertible(part.channel)
    predicted = find_codes(model.predict(take_rows(X, chosen)), release.classes)
    targets = part.channel.unbiased_targets(part.codes)
    known = np.maximum(predicted, 0)[:, None]
    hits: Floats = np.take_along_axis(targets, known, axis=1)[:, 0]
    return np.where(predicted >= 0, hits, 0.0)  # a class that the labels cannot have is never right


def estimate_likelihood(model: Any, X: Any, release: Release, *, rows: Any = None) -> Floats:
    """Return each example's log sum_y p(y | x) T[y, o]: how likely the model makes what was released of it.

    A proper score of the model's probabilities p, for any channel (`labeldp.learn.search` has the proof). An output that
    the model rules out counts as one of the least probability that a double can tell from 0 beside 1, as in scikit-learn's
    log loss.
    """
    chosen = _choose_rows(X, release, rows)
    part = release.take(chosen)
    chances = model_probabilities(model, take_rows(X, chosen), release.classes)
    likely = (chances * part.channel.likelihood(part.codes)).sum(axis=1)
    terms: Floats = np.log(np.maximum(likely, np.finfo(np.float64).eps))
    return terms


def _choose_rows(X: Any, release: Release, rows: Any) -> npt.NDArray[np.intp]:
    """Return the rows to score, or say why these cannot be."""
    if _num_samples(X) != len(release):
        got = Described(f"{_num_samples(X)} rows for {len(release)} labels")
        raise invalid("noisy_accuracy", "X", "have one row per released label", got=got)
    chosen = np.arange(len(release)) if rows is None else np.arange(len(release))[rows]
    if len(chosen) < 2:
        raise invalid("noisy_accuracy", "rows", "be two or more", got=len(chosen))
    return chosen


def can_invert(channel: FiniteChannel) -> bool:
    """Whether a channel has an unbiased inverse for every label: all outputs are possible for all, and differ in law."""
    if isinstance(channel, CandidateChannel):
        return bool((channel.sizes == channel.n_classes).all()) and channel.odds > 0
    if isinstance(channel, Channel):
        return bool((channel.base > 0).all() and (channel.keep > 0).all())
    if isinstance(channel, MatrixChannel):
        return bool((np.linalg.matrix_rank(channel.transition) == channel.n_classes).all())
    return False


def _check_invertible(channel: FiniteChannel) -> None:
    """Refuse a channel whose outputs are not all possible for all labels: it has no unbiased inverse."""
    whole = True
    if isinstance(channel, CandidateChannel):
        whole = bool((channel.sizes == channel.n_classes).all())
    elif isinstance(channel, Channel):
        whole = bool((channel.base > 0).all())
    if not whole:
        fix = "Hold out labels that were released by RandomizedResponse, or a first stage without prior (rows=)."
        got = Described("candidate sets that leave classes out")
        raise invalid("noisy_accuracy", "release", "be of a channel with an unbiased inverse", got=got, fix=fix)


def _average(terms: Floats) -> NoisyAccuracy:
    """Return the mean of independent terms and its standard error."""
    error = float(terms.std(ddof=1)) / math.sqrt(len(terms))
    return NoisyAccuracy(accuracy=float(terms.mean()), standard_error=error, n_examples=len(terms))
