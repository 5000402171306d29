r"""`evaluate`: how good a classifier is, on labels that are public, protected, or released already.

One report with every metric (`labeldp.learn.metrics` has them), and three sources of truth; its user says which.

*Public labels* (`labels_are_public=True`): exact.

*Protected labels* (`epsilon=`): one release and one charge for the whole report, a noisy histogram of scores by labels
(`labeldp.learn.score_counts` has its mathematics).

*Released labels* (a `Release`): free, since it reads what is public. Where the channel T_i of every row can be inverted, its
unbiased targets c_i(o_i) have E[c_i(o_i)[k] | y_i] = 1[y_i = k], so theta = sum_i c_i(o_i)[c] w_i is unbiased, whatever the model,
as long as it was not trained on these rows. Its noise has the covariance sum_i V_i V_i' - sum_ic c_i(o_i)[c] w_ic w_ic', in
expectation, V_i being row i's part of theta. Candidate sets that leave classes out hide which label was outside them: no function
of their output is unbiased, and nothing but a model of the labels tells "outside" from "anywhere inside". There the labels are
taken to follow the evaluated model's own odds, to a power and times a factor for each class in each bin of its score,

    r_i[k] ~ p[i, k]^b exp(t[k, bin_k(i)]),    (b, t) = argmax sum_i log sum_k r_i[k] T_i[k, o_i] - ((b - 1)^2 + |t|^2) / 2,

and the sums are those of the posteriors r_i[k] T_i[k, o_i] / (their sum). The error of a sum has the variance of the labels under
their posteriors, and that of (b, t), by the information of the likelihood. The report says that it rests on this, and a release
of which more than half of the answers say nothing (one candidate) is refused: what it would report is the model's belief
in itself. Stages of a release that can be inverted are preferred: where some can (a first stage without prior), only their
rows are used, which were chosen without looking at labels.

*Intervals.* `interval` is about the metric of these very rows, and covers the noise of the release: sums are drawn again as
(estimate - noise), where the noise has its public law (or, of released labels, its estimated covariance), and the middle 95 % of
the metrics of 4,000 such sums is the interval. For what is linear in the sums that is exact. Where noise would be
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

References: Natarajan, Dhillon, Ravikumar & Tewari 2013 (unbiased losses); Efron & Tibshirani 1993 (intervals by drawing again).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from sklearn.utils.validation import _num_samples

from labeldp.arrays import Float64s, Ints
from labeldp.channel.finite import spans
from labeldp.errors import Described, OptimisticScoreWarning, invalid
from labeldp.learn.corrections import take_rows
from labeldp.learn.evaluated import Estimated, Evaluation, build_evaluation
from labeldp.learn.metrics import OWNER, Scores
from labeldp.learn.number_scores import evaluate_numbers, scores_numbers
from labeldp.learn.score_counts import DRAW_SEED, MOST_RATE, Cells, count_draws, draw_normals
from labeldp.learn.scoring import can_invert, find_codes
from labeldp.priors import model_probabilities
from labeldp.release import Release, SensitiveLabels, measure
from labeldp.release.labels import as_plain, count_missing
from labeldp.release.measurement import check_measuring
from labeldp.release.persons import Counted, count_rows
from labeldp.release.scores import check_raw_labels
from labeldp.validate import check_class_list

#: From more classes than this on, noisy reports leave the confusion matrix and the cuts of each class out.
MOST_DETAILED = 12
#: The standard deviations that the penalty gives to the power of the model's odds, and to the logarithms of factors.
POWER_SPREAD, FACTOR_SPREAD = 1.0, 1.0
#: Factors of all classes together are at most about this many.
MOST_FACTORS = 60
#: A model's least probability where its odds are taken for beliefs: nothing is impossible.
LEAST_CHANCE = 1e-6
#: A release in candidate sets is refused if more than this share of its answers tells nothing of the label.
MOST_BLIND = 0.5


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
    bounds: tuple[float, float] | None = None,
    persons: Any = None,
    positive: Any = None,
) -> Any:
    """Return a report on a classifier: accuracy, AUC, log loss, Brier score, calibration, confusion, precision at k.

    Of a regressor it is another one, with RMSE, MAE, deviance and calibration by decile (`labeldp.learn.number_scores`): where
    the model has `bounds_`, the labels are numbers in a box or a release, or `bounds` are given.

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
    bounds : (low, high), optional
        Says that labels are numbers, within these public bounds; by default those of the model, of the box or of the release.
    persons : Persons, or a column of n ids, optional
        With `epsilon`: who owns each row, publicly. Then epsilon is for all labels of one person together. At most so many rows
        of each count as makes the estimated error least (`labeldp.release.persons.best_cap`), by public chance, and the report is
        about those rows.
    positive : one of two classes, optional
        Which class AUC, calibration, precision and lift are about; by default the second in the list of classes. A box of labels
        and a release have an order of their own, which stands.

    Guarantee
    ---------
    With `epsilon`: pure epsilon when one label is replaced, or with `persons` all labels of one person, for everything in the
    report together; it is stated and charged before anything is drawn, and whatever can be refused is refused before that. Public and released labels cost nothing.

    Edge cases
    ----------
    Probabilities that are NaN or do not sum to 1 are refused. A class that the model does not know has probability 0. Ties
    in a score are ties: a constant model has AUC 1/2, and rows of one probability share a bin. A class that does not
    occur, or too few rows of it to be told from noise, leaves its recall and AUC None, with the reason.
    """
    of_numbers = partial(evaluate_numbers, bounds=bounds, ledger=ledger, label_set=label_set, rng=rng)
    if persons is not None and (epsilon is None or isinstance(labels, Release)):
        got = Described("a release" if isinstance(labels, Release) else "public labels")
        fix = "Only a report that spends has a unit: public labels have none, and released ones that of their release."
        raise invalid(OWNER, "persons", "come with labels that are protected by epsilon", got=got, fix=fix)
    if isinstance(labels, Release):
        if labels_are_public or epsilon is not None or ledger is not None:
            got, fix = (
                Described("a release"),
                "Released labels cost nothing: leave epsilon, ledger and the declaration out.",
            )
            raise invalid(OWNER, "labels", "be what epsilon or labels_are_public speaks of", got=got, fix=fix)
        if scores_numbers(model, labels, bounds):
            notes = warn_own_release(model, labels)
            return of_numbers(model, X, labels, epsilon=None, rows=rows, notes=notes)
        if positive is not None:
            _order_classes(labels.classes, positive, fixed=True)
        return _evaluate_release(model, X, labels, classes, rows)
    if rows is not None:
        raise invalid(OWNER, "rows", "be given with a release only", got=rows, fix="Pass those rows and labels alone.")
    if labels_are_public == (epsilon is not None):
        fix = "labels_are_public=True for labels that are no secret, epsilon= for others, or a Release as labels."
        got = Described("both" if labels_are_public else "neither")
        raise invalid(OWNER, "labels", "have labels_are_public or epsilon", got=got, fix=fix)
    if scores_numbers(model, labels, bounds):
        return of_numbers(model, X, labels, epsilon=epsilon, rows=None, notes=(), persons=persons)
    if positive is not None:
        known = labels.classes if isinstance(labels, SensitiveLabels) else _list_classes(model, classes)
        classes = _order_classes(known, positive, fixed=isinstance(labels, SensitiveLabels) or np.ndim(model) > 0)
    if epsilon is None:
        return _evaluate_exactly(model, X, labels, classes, ledger)
    paying = {"epsilon": epsilon, "ledger": ledger, "label_set": label_set, "rng": rng, "persons": persons}
    return _evaluate_protected(model, X, labels, classes, **paying)


def _order_classes(known: Sequence[Any], positive: Any, *, fixed: bool) -> tuple[Any, ...]:
    """Return two classes with the one that figures are about last; a `fixed` order must have it there."""
    if len(known) != 2 or positive not in known:
        got = Described("another" if len(known) == 2 else f"one for {len(known)} classes")
        fix = (
            f"There is: {', '.join(repr(one) for one in known)}."
            if len(known) == 2
            else "Of more classes each has its figures."
        )
        raise invalid(OWNER, "positive", "be one of the two classes", got=got, fix=fix)
    if fixed and known[1] != positive:
        fix = "Pass the columns, or box the labels with classes=, in the other order; a release keeps that of its classes."
        raise invalid(OWNER, "positive", "be the second class here", got=Described("the first"), fix=fix)
    return tuple(sorted(known, key=lambda one: one == positive))


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
        return check_class_list(OWNER, classes)
    if not hasattr(model, "classes_"):
        fix = "Say what the columns of the probabilities stand for."
        raise invalid(OWNER, "classes", "be given with an array of probabilities", got=None, fix=fix)
    return check_class_list(OWNER, model.classes_)


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


def _evaluate_protected(
    model: Any,
    X: Any,
    labels: Any,
    classes: Sequence[Any] | None,
    *,
    epsilon: float,
    ledger: Any,
    label_set: str,
    rng: Any,
    persons: Any,
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
    counted = count_persons(persons, len(boxed), n_classes=boxed.n_classes, epsilon=target)
    if counted.everyone is not None:
        boxed = boxed.with_persons(counted.everyone)
    if counted.rows is not None:
        boxed, chances = boxed.take(counted.rows), chances[counted.rows]
    scores = Scores(chances, classes=boxed.classes, detailed=boxed.n_classes <= MOST_DETAILED)
    plan = Cells.choose(scores, epsilon=target, most=counted.most)
    measured = measure(boxed, plan.query, epsilon=target, rng=rng, ledger=ledger, persons=counted.persons)
    return build_evaluation(
        scores,
        plan.estimate(scores, measured),
        source="protected labels",
        measured=measured,
        n_counts=plan.query.n_cells,
        notes=counted.notes,
    )


def count_persons(persons: Any, n_rows: int, *, n_classes: int, epsilon: float) -> Counted:
    """Return which rows of persons count in a report: chosen for the least error of a share that is added up over its cells.

    One label moves one count of two classes, and two of more; a sum over B cells has the noise of sqrt(B) of them, and B is as many
    as the report would have if all rows counted (`labeldp.learn.score_counts`).
    """
    reach = 1.0 if n_classes == 2 else 2.0
    cells = max(2.0, (n_rows * min(epsilon, MOST_RATE) / reach) ** 0.4)
    return count_rows(persons, n_rows, reach=reach * math.sqrt(cells), epsilon=epsilon, owner=OWNER)


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
        if X is None:
            raise invalid(OWNER, "X", "have one row per released label", got=None)
        X = release.answered(X, owner=OWNER)
        chances = np.asarray(model_probabilities(model, take_rows(X, chosen), release.classes), np.float64)
    else:
        chances = _find_chances(model, X, tuple(release.classes), len(release))[chosen]
    part = release.take(chosen)
    plain = _find_plain_stages(part)
    if plain is not None:
        notes = (*notes, f"only the {len(plain):,} rows of stages without candidate sets are used")
        part, chances = part.take(plain), chances[plain]
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
    if isinstance(own, Release):
        same = own is release or (len(own) == len(release) and np.array_equal(own.codes, release.codes))
    else:  # a loaded model remembers all of its release but the labels
        facts = ("label_set", "created", "mechanism")
        same = own is not None and len(own) == len(release) and bool(release.created)
        same = same and all(getattr(own, name) == getattr(release, name) for name in facts)
    if not same:
        return ()
    note = (
        "the model was trained on this very release: it has learned some of its noise, and every figure is optimistic. "
        "Score on a release of rows that it has not seen"
    )
    warnings.warn(f"evaluate: {note}.", OptimisticScoreWarning, stacklevel=4)
    return (note,)


def _find_plain_stages(part: Release) -> Ints | None:
    """Return the rows of stages that can be inverted, where others cannot; None where that changes nothing."""
    if part.stage is None or can_invert(part.channel):
        return None
    stages = [np.flatnonzero(part.stage == number) for number in np.unique(part.stage)]
    plain = [rows for rows in stages if can_invert(part.channel.take(rows))]
    rows = np.sort(np.concatenate(plain)) if plain else np.zeros(0, np.intp)
    return rows if len(rows) >= 2 else None


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
    noise = draw_normals(rng, covariance, count_draws(K * width))
    return Estimated(
        sums=sums.reshape(K, width),
        draws=(sums - noise).reshape(-1, K, width),
        soft=targets,
        method="unbiased estimates through the channel",
    )


def _estimate_likely(scores: Scores, likelihood: Float64s, part: Release) -> Estimated:
    """Return sums of posteriors under the model's odds, fitted to the release; see the module."""
    blind = float(np.mean(likelihood.max(axis=1) <= likelihood.min(axis=1) * (1 + 1e-12)))
    if blind > MOST_BLIND:
        got = Described(f"{100 * blind:.0f}% whose answer does not depend on their label (one candidate)")
        fix = (
            "Score on labels released by RandomizedResponse or by a first stage without prior (rows=), or use epsilon=."
        )
        raise invalid(OWNER, "labels", "tell of more than half of the rows", got=got, fix=fix)
    K, width = scores.n_classes, scores.width
    fit = _Odds.of(scores, likelihood, signal=min(part.channel.epsilon, 1.0))
    belief, posterior = fit.solve()
    sums, within = np.zeros(K * width), np.zeros((K * width, K * width))
    gradient, information = np.zeros((K * width, fit.size)), np.diag(fit.held)
    for low, high in spans(scores.n, width=K * max(width, fit.size)):
        soft, design = posterior[low:high], fit.design(low, high)
        mean = np.einsum("nk,nkp->np", soft, design)
        score = mean - np.einsum("nk,nkp->np", belief[low:high], design)
        information += score.T @ score
        weights = [scores.weights(c, low, high) for c in range(K)]
        rows = np.concatenate([soft[:, c, None] * weights[c] for c in range(K)], axis=1)
        sums += rows.sum(axis=0)
        within -= rows.T @ rows
        for c in range(K):
            own = slice(c * width, (c + 1) * width)
            within[own, own] += weights[c].T @ rows[:, own]
            gradient[own] += rows[:, own].T @ (design[:, c] - mean)
    covariance = within + gradient @ np.linalg.solve(information, gradient.T)
    rng = np.random.default_rng(DRAW_SEED)
    noise = draw_normals(rng, covariance, count_draws(K * width))
    assumption = (
        "labels follow the evaluated model's own odds, to a power and times a factor for each class in each bin of its "
        "score. This channel hides which label lies outside a candidate set, and only such a belief can tell; intervals "
        "cover its noise, not its failure"
    )
    return Estimated(
        sums=sums.reshape(K, width),
        draws=(sums - noise).reshape(-1, K, width),
        soft=posterior,
        method=f"maximum likelihood through the channel; {100 * blind:.0f}% of the rows have an answer that tells nothing",
        assumptions=(assumption,),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Odds:
    """A model's odds to a power, times factors for each class and bin: their penalised likelihood, and its maximum.

    Parameters are the power less 1, then the logarithms of the factors. `places` (n, K) has the factor of each row and class,
    `held` one over the variance that the penalty gives each parameter.
    """

    logs: Float64s
    likelihood: Float64s
    places: Ints
    held: Float64s

    @classmethod
    def of(cls, scores: Scores, likelihood: Float64s, *, signal: float) -> _Odds:
        """Cut each class's score into bins of equally many rows, as many as the release can tell apart."""
        K = scores.n_classes
        wanted = max(1, min(round((scores.n * signal**2 / K) ** 0.4), MOST_FACTORS // K))
        edges = [np.unique(np.quantile(scores.chances[:, c], np.arange(1, wanted) / wanted)) for c in range(K)]
        places = np.stack([np.searchsorted(edges[c], scores.chances[:, c], side="left") for c in range(K)], axis=1)
        firsts = 1 + np.concatenate([[0], np.cumsum([len(edge) + 1 for edge in edges])])
        held = np.full(int(firsts[-1]), 1.0 / FACTOR_SPREAD**2)
        held[0] = 1.0 / POWER_SPREAD**2
        logs = np.log(np.maximum(scores.chances, LEAST_CHANCE))
        scaled = likelihood / likelihood.max(axis=1, keepdims=True)
        return cls(logs=logs, likelihood=scaled, places=places + firsts[:-1], held=held)

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return len(self.held)

    def design(self, low: int, high: int) -> Float64s:
        """Return what each parameter adds to the log odds of rows low .. high - 1: (rows, K, size)."""
        rows, K = high - low, self.logs.shape[1]
        out = np.zeros((rows, K, self.size))
        out[:, :, 0] = self.logs[low:high]
        np.put_along_axis(out, self.places[low:high, :, None], 1.0, axis=2)
        return out

    def beliefs(self, values: Float64s) -> tuple[Float64s, Float64s, Float64s]:
        """Return r, the posteriors, and the likelihood of each row."""
        belief = scipy.special.softmax((1.0 + values[0]) * self.logs + values[self.places], axis=1)
        joint = belief * self.likelihood
        total = joint.sum(axis=1, keepdims=True)
        return belief, joint / total, total[:, 0]

    def solve(self) -> tuple[Float64s, Float64s]:
        """Return r and the posteriors at the maximum."""

        def cost(values: Float64s) -> tuple[float, Float64s]:
            belief, posterior, total = self.beliefs(values)
            off = belief - posterior
            slope = np.bincount(self.places.ravel(), off.ravel(), self.size)
            slope[0] = float((off * self.logs).sum())
            value = -float(np.log(total).sum()) + 0.5 * float(self.held @ values**2)
            return value, slope + self.held * values

        found = scipy.optimize.minimize(
            cost, np.zeros(self.size), jac=True, method="L-BFGS-B", options={"maxiter": 500}
        )
        belief, posterior, _ = self.beliefs(found.x)
        return belief, posterior
