r"""Any classifier from released labels: cross-fit, calibrate by the likelihood, refit on posteriors.

Let L_i[k] = Pr[what was released of row i | its label is k]: labels, candidate sets, answers of any channel, one stage or many.
An estimator that can maximise sum_i log sum_k p(k | x_i) L_i[k] itself needs no more (`fit_likelihood`). Most cannot: they take
labels and weights. Weights q_i ~ start_i L_i, the posterior under what was believed before, are not enough. A model of E[q | x]
sees the noise twice, once in the release and once in its undoing: with few positives and epsilon 1, one in nine becomes
two in five, for every estimator. What follows turns probabilities of that kind into true ones, from L alone.

    1  p = the beliefs before: the start, calibrated; without one, the base rates of maximum likelihood
    2  twice: cross-fit.  Two halves; on each, the estimator is fitted to q = p L / sum p L and predicts the other half: m
              calibrate.  p = softmax(a log m + b), a >= 0 and b by the forward likelihood sum log sum_k p_k L_k, then b
                          so that the mean of p is the base rates
    3  the answer is the estimator itself, fitted once more, on the posteriors q of all rows

Step 2 undoes what the noise, the estimator's own shrinking and its overfitting did to m: all three are read off rows that the
model did not see. Step 3 is an ordinary fit: nothing is attached to the estimator, and what it predicts are probabilities.

>>> import numpy as np
>>> from sklearn.tree import DecisionTreeClassifier
>>> rng = np.random.default_rng(0)
>>> x = rng.integers(0, 2, 100_000)
>>> y = rng.random(100_000) < np.where(x, 0.3, 0.05)
>>> keep = 0.75  # randomized response at epsilon = log 3
>>> released = np.where(rng.random(100_000) < keep, y, ~y)
>>> likelihood = np.where(released[:, None] == [False, True], keep, 1 - keep)
>>> tree = DecisionTreeClassifier(max_depth=2)
>>> model = fit_crossfit(tree, x[:, None], likelihood, classes=[False, True])
>>> model.predict_proba([[0], [1]])[:, 1].round(2).tolist()
[0.05, 0.3]

*The second slope.* In the first round a half is predicted by a model that saw nothing of it. In the second, the model of one half
learned from posteriors that came from the other half, so that its slope looks steeper than it is. It is taken to the power
`RELAXATION`. Rows that are held out of both rounds would give an honest slope. Up to epsilon 1 that was worse, and above no
better: the rows are missing where they were needed, and a mean of two honest models is flatter than the truth.

*Priors.* Where a prior chose the channels, the release may say little about the prior itself; with one candidate for every row, it
says nothing. A slope and a mean of maximum likelihood are then accidents of a few rows. Maps are held at the prior, and then
at the model that learned from it, as they are: by `STEADY` rows and by `RIDGE`. LightGBM on Adult with a prior of clusters of
raw columns at epsilon 1, where one row in thirty says something, is a case that needs it (the study `tables`).

*Cost.* A soft target is a row once per label, with weights; at most 1.5 n rows in a round and 2 n in the last fit, the small
weights by systematic sampling that keeps every expectation (Fearnhead and Clifford 2003). Where outputs are labels, or sets of labels
of one size, and all rows have one channel, the first round takes them as they are, since calibration undoes their noise as well: flat
posteriors would cost a copy for every label. In rows: 1 + 1.5 + 2 = 4.5 plain fits, and 5 for other channels.

*What it does not do.* At epsilon 0.5 and below, where data are nearly linear, `SoftmaxRegression` is better: it maximises the
likelihood itself. With a few hundred rows there is little to calibrate by; the ridge then leaves the base rates. An estimator
without `sample_weight` is fitted on labels drawn from the posteriors, `COPIES` a row, which adds noise of its own.

Everything here reads what was released and nothing else: post-processing, free. Halves and draws come from a public seed,
the estimator's `random_state` if that is a number and else 0, so that an owner and a receiver end with the same model.

References: Dempster, Laird, Rubin 1977 (EM); Patrini et al. 2017 (forward likelihood); Platt 1999 (slope and intercept).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _num_samples

from labeldp.arrays import Floats, Places
from labeldp.learn.corrections import draw_copies, fit_copies, fit_soft, predict_classes, public_seed, take_rows
from labeldp.softmax import normalise_columns

#: Rounds of step 2.
ROUNDS = 2
#: The second slope is taken to this power. Chosen on rows of Adult's training part; the study `tables` confirms it elsewhere.
RELAXATION = 0.75
#: Copies of a row, on average, in the fits on halves.
HALF_COPIES = 1.5
#: Weight of the ridge that holds the map of a model at the base rates, or after a prior at the model as it is, in rows:
#: nothing, unless rows are few or say little.
RIDGE = 1.0
#: Weight of the ridge that holds the map of a prior at the prior as it is, in rows. Chosen on rows of Adult's training part.
STEADY = 30.0
#: Probabilities are kept this far from 0, times 2 / K, before logarithms: a tree may say 0.
LEAST = 1e-3
#: Logarithms of probabilities that vary by less than this vary by rounding.
FLAT = 1e-9
#: Recentred means are found to this: far below what a thousand rows can tell.
CLOSE = 1e-8
#: Base rates are as likely as any to this many nats a row, or after so many steps: far below what a hundred million rows can tell.
CLOSEST, MOST_STEPS = 1e-10, 2_000
#: A leap is at most this many steps long. Where answers say nearly nothing, the second step is the first to the last bit, and a leap without
#: end would be as good; whatever a leap of this length cannot reach is within `CLOSEST` already, or is reached by the next ones.
LONGEST = 1e6


def fit_crossfit(
    estimator: BaseEstimator,
    X: Any,
    likelihood: Floats,
    *,
    classes: Sequence[Any],
    start: Floats | None = None,
    codes: npt.NDArray[Any] | None = None,
    rounds: int = ROUNDS,
    weights: Floats | None = None,
) -> BaseEstimator:
    """Fit the estimator by the rule of the module, and return it.

    Parameters
    ----------
    estimator
        What to fit; it has `predict_proba`. Clones of it are fitted on halves, itself on all rows.
    X
        The features, whose rows `take_rows` can take.
    likelihood : array of shape (n, K)
        Pr[what was released of row i | label k].
    classes
        The classes, in the order of columns.
    start : array of shape (n, K), optional
        What was believed of each row before, calibrated (`calibrate_start`). Where channels were chosen by a belief it is
        needed: base rates alone do not explain what such channels release.
    codes : array of shape (n,), optional
        The released labels as columns, where outputs are labels.
    rounds : int
        How often to cross-fit.
    weights : array of shape (n,), optional
        Public weights > 0 of the rows: in every fit, in the base rates and in the maps.
    """
    n, n_classes = likelihood.shape
    if bool(((likelihood > 0).sum(axis=1) == 1).all()):  # without noise there is nothing to undo
        return fit_soft(estimator, X, (likelihood > 0).astype(np.float64), classes, weights=weights)
    p = calibrate_start(likelihood, weights=weights) if start is None else start
    rates = np.average(p, axis=0, weights=weights)
    plain = _name_labels(likelihood, codes) if start is None else None
    cut = _cut_in_half(n, public_seed(estimator))
    parts = tuple(take_rows(X, rows) for rows in cut)
    for turn in range(rounds if n > 1 else 0):
        # Labels or sets as they are in the first round, where that will do; else posteriors.
        targets = plain if plain is not None and turn == 0 else posteriors_of(p, likelihood)
        m = np.empty((n, n_classes))
        for seen, other in ((0, 1), (1, 0)):
            m[cut[other]] = _fit_half(
                estimator,
                parts[seen],
                targets[cut[seen]],
                parts[other],
                rates=rates,
                classes=classes,
                weights=None if weights is None else weights[cut[seen]],
            )
        z = np.log(np.maximum(m, LEAST * 2 / n_classes))
        # A model that learned from a prior stands where the release says nothing; without a prior nothing is believed.
        home = flat_map(rates) if start is None else identity_map(z, rates, weights=weights)
        found = fit_map(z, likelihood, towards=home, weights=weights)
        p = recentre(found if turn == 0 else found.relaxed(), z, rates, weights=weights)(z)
    del parts  # the last fit needs room for copies
    return fit_soft(estimator, X, posteriors_of(p, likelihood), classes, weights=weights)


def posteriors_of(beliefs: Floats, likelihood: Floats) -> Floats:
    """Return beliefs times likelihood, normalised; no belief is so small that it contradicts what was released."""
    joint = np.maximum(beliefs, 1e-6) * likelihood
    answer: Floats = joint / joint.sum(axis=1, keepdims=True)
    return answer


def calibrate_start(likelihood: Floats, prior: Floats | None = None, *, weights: Floats | None = None) -> Floats:
    """Return beliefs (n, K) to start from: of the prior, with a slope and intercepts of penalised maximum likelihood.

    A prior may be too sure, or tempered on purpose, or off in its base rates. Where a release says little, as behind channels
    that a sure prior has chosen, it says little of that too, and the prior stands: `STEADY` rows hold its slope at 1 and its
    mean at that of its posteriors. Without a prior, or with one that says the same of all rows, what is left are base rates.
    """
    if prior is None or bool((prior == prior[0]).all()):
        return np.tile(base_rates(likelihood, weights=weights), (len(likelihood), 1))
    z = np.log(np.maximum(prior, LEAST * 2 / likelihood.shape[1]))
    # The mean is what the prior expects, given what was released: base rates without features do not belong to channels
    # that features have chosen.
    middle = np.average(posteriors_of(prior, likelihood), axis=0, weights=weights)
    as_it_is = identity_map(z, middle, weights=weights)
    return fit_map(z, likelihood, towards=as_it_is, ridge=STEADY, weights=weights)(z)


def base_rates(likelihood: Floats, *, weights: Floats | None = None) -> Floats:
    """Return the shares pi of the classes that maximise sum_i w_i log sum_k pi_k L_i[k], a concave function, by EM.

    A step multiplies pi_k by g_k, the mean of L_i[k] / sum_j pi_j L_i[j]. Since the function is concave and sum_k pi_k g_k = 1, its
    mean over rows is at most max_k g_k - 1 below its maximum: steps end when that is below `CLOSEST`.

    Where answers say little, steps are short, and thousands are needed. So after two of them comes a leap to where they seem to lead:
    pi + 2 a r + a^2 v, with r the first step, v what the second changed about it, and a = |r| / |v|. It is not taken, or only a part of it,
    where that would make the release less likely than the two steps did.

    Reference: Varadhan, Roland 2008, Simple and Globally Convergent Methods for Accelerating the Convergence of Any EM Algorithm.
    """
    kinds, which = _distinct_rows(likelihood)
    share = np.bincount(which, weights=weights) / (len(likelihood) if weights is None else weights.sum())

    def grow(rates: Floats) -> Floats:
        answer: Floats = (share / (kinds @ rates)) @ kinds
        return answer

    def judge(rates: Floats) -> float:
        return float(share @ np.log(kinds @ rates))

    rates = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(MOST_STEPS):
        growth = grow(rates)
        if growth.max() - 1.0 < CLOSEST:
            break
        one = rates * growth
        two = one * grow(one)
        first, change = one - rates, two - 2.0 * one + rates
        length = min(float(np.linalg.norm(first) / max(np.linalg.norm(change), np.finfo(float).tiny)), LONGEST)
        least, rates, begin = judge(two), two, rates
        while length > 1.0:
            leap = np.maximum(begin + 2.0 * length * first + length**2 * change, 1e-3 * two)
            leap /= leap.sum()
            if judge(leap) >= least:
                rates = leap
                break
            length /= 4.0
    return rates


def _distinct_rows(values: Floats) -> tuple[Floats, Places]:
    """Return the distinct rows and which of them each row is, by sorting one number of each row.

    Different rows with the same number are found out; then whole rows are sorted, which takes ten times as long.
    """
    keys = values @ np.sqrt(np.arange(2.0, 2.0 + values.shape[1]))
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    if not bool((values[first][which] == values).all()):
        kinds, which = np.unique(values, axis=0, return_inverse=True)
        return kinds, which.reshape(-1)
    return values[first], which


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardMap:
    """softmax(slope z + intercepts), z (n, K) logarithms of probabilities."""

    slope: float
    intercepts: Floats

    def __call__(self, z: Floats) -> Floats:
        """Return probabilities (n, K)."""
        logits = self.slope * z.T + self.intercepts[:, None]
        answer: Floats = normalise_columns(logits)[0].T
        return answer

    def relaxed(self) -> ForwardMap:
        """Return the map with its slope taken to the power `RELAXATION`; the intercepts are due anew (`recentre`)."""
        return ForwardMap(slope=self.slope**RELAXATION, intercepts=self.intercepts)


def flat_map(rates: Floats) -> ForwardMap:
    """Return the map that says the rates, whatever z is."""
    return ForwardMap(slope=0.0, intercepts=np.log(np.maximum(rates, LEAST * 2 / len(rates))))


def identity_map(z: Floats, rates: Floats, *, weights: Floats | None = None) -> ForwardMap:
    """Return the map of slope 1 whose mean is the rates: probabilities as they are, but for their mean."""
    return recentre(ForwardMap(slope=1.0, intercepts=np.zeros(z.shape[1])), z, rates, weights=weights)


def fit_map(
    z: Floats, likelihood: Floats, *, towards: ForwardMap, ridge: float = RIDGE, weights: Floats | None = None
) -> ForwardMap:
    """Return the map that maximises sum_i log sum_k p_ik L_ik, a >= 0, less a ridge that pulls it `towards` another.

    Weights of rows count relative to their mean: the ridge holds as much whatever their unit.

    With zeta = (z - its means) / s, s the spread of z, a map is softmax(alpha zeta + beta), and the ridge is
    ridge / 2 [(alpha - alpha')^2 + |beta - beta'|^2], with a dash the other map: what a map without evidence is.
    """
    zeta = np.ascontiguousarray((z - z.mean(axis=1, keepdims=True)).T)
    centre = np.average(zeta, axis=1, weights=weights)
    zeta -= centre[:, None]
    spread = float(np.sqrt(np.average(zeta**2, axis=1, weights=weights).mean()))
    home = np.concatenate([[towards.slope * spread], towards.intercepts + towards.slope * centre])
    if spread < FLAT:  # it says the same of every row, but for rounding: there is no slope to find
        zeta, spread, home[0] = np.zeros_like(zeta), 1.0, 0.0
    zeta /= spread
    with np.errstate(divide="ignore"):  # a label that is ruled out
        logarithms = np.log(likelihood).T
    n_classes, n = zeta.shape
    scales = None if weights is None else weights / weights.mean()

    def objective(t: Floats) -> tuple[float, Floats]:
        logits = t[0] * zeta + t[1:, None]
        explained, reached = normalise_columns(logits + logarithms)
        mass, height = normalise_columns(logits)
        mass -= explained
        losses = height - reached
        if scales is not None:
            mass *= scales
            losses *= scales
        away = t - home
        slopes = np.concatenate([[float((mass * zeta).sum())], mass.sum(axis=1)]) + ridge * away
        return (float(losses.sum()) + ridge / 2 * float(away @ away)) / n, slopes / n

    start = np.concatenate([[spread], home[1:]])
    bounds = [(0.0, None), *([(None, None)] * n_classes)]
    options = {"maxiter": 200, "gtol": 1e-7, "ftol": 1e-12}
    t = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    slope = float(t[0]) / spread
    return ForwardMap(slope=slope, intercepts=t[1:] - slope * centre)


def recentre(found: ForwardMap, z: Floats, rates: Floats, *, weights: Floats | None = None) -> ForwardMap:
    """Return the map with its slope and the intercepts whose mean probabilities are the rates: convex, by Newton's method."""
    n_classes = z.shape[1]
    goal = np.maximum(rates, LEAST / n_classes)
    goal /= goal.sum()
    share = np.full(len(z), 1.0 / len(z)) if weights is None else weights / weights.sum()
    steep = np.ascontiguousarray(found.slope * z.T)
    shift = found.intercepts
    for turn in range(100):
        p = normalise_columns(steep + shift[:, None])[0]
        mean = p @ share
        if turn == 0:  # the first step in logarithms, from however far
            shift = shift + np.log(goal) - np.log(np.maximum(mean, 1e-300))
            continue
        gap = goal - mean
        if np.abs(gap).max() < CLOSE:
            break
        curvature = np.diag(mean) - (p * share) @ p.T
        step = np.linalg.lstsq(curvature, gap, rcond=1e-12)[0]
        # A step of more than 1 leaves the region where the quadratic is a fair picture of the sum.
        shift = shift + step / max(1.0, float(np.abs(step).max()))
    return ForwardMap(slope=found.slope, intercepts=shift)


def _fit_half(
    estimator: BaseEstimator,
    X: Any,
    targets: Floats,
    there: Any,
    *,
    rates: Floats,
    classes: Sequence[Any],
    weights: Floats | None,
) -> Floats:
    """Return what a clone that was fitted on one half says of the other; classes that it did not see have the base rates.

    A half may have one class only, which most estimators refuse: its model is the base rates.
    """
    made = clone(estimator)
    answer = np.tile(rates, (_num_samples(there), 1))
    if hasattr(made, "fit_targets"):
        return predict_classes(fit_soft(made, X, targets, classes, weights=weights), there, classes)
    copies = draw_copies(made, targets, weights=weights, most=HALF_COPIES)
    present = np.unique(copies[1])
    if len(present) > 1:
        found = predict_classes(fit_copies(made, X, *copies, classes=classes), there, classes)
        sane = np.isfinite(found).all(axis=1)  # Bayes may divide nothing by nothing where a class has one row
        answer[np.ix_(sane, present)] = found[np.ix_(sane, present)] * rates[present].sum()
    return answer


def _name_labels(likelihood: Floats, codes: npt.NDArray[Any] | None) -> Floats | None:
    """Return what was released as targets that calibration can undo, where rows differ by the names of labels alone; else None.

    Labels stand for themselves. A set of labels is its labels in equal parts: what its likelihood has above the least entry.
    """
    if codes is not None:
        return np.eye(likelihood.shape[1])[codes] if _has_one_channel(likelihood, codes) else None
    if not bool((np.sort(likelihood, axis=1) == np.sort(likelihood[:1], axis=1)).all()):
        return None
    above = likelihood - likelihood.min(axis=1, keepdims=True)
    total = above.sum(axis=1, keepdims=True)
    return above / total if bool((total > 0).all()) else None


def _has_one_channel(likelihood: Floats, codes: npt.NDArray[Any]) -> bool:
    """Whether equal labels have equal likelihoods, largest at themselves: labels as they are then stand for all of it."""
    first = np.zeros(likelihood.shape[1], np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    same = bool((likelihood == likelihood[first[codes]]).all())
    return same and bool((likelihood[np.arange(len(codes)), codes] == likelihood.max(axis=1)).all())


def _cut_in_half(n: int, seed: int) -> tuple[Places, Places]:
    """Return two halves of the rows, each in order."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
