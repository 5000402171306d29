r"""Answers pooled in neighbourhoods: a first model where little was said, and no one is trusted.

A network that maximises the likelihood of few answers, or of faint ones, learns their noise by heart (the study `recipes` has both
ways beside each other). So where all answers together say little (`says_little`), the first fit does not read them one by one. The rows are clustered by their features, which needs no label, and the
labels of a cluster c are taken as draws from shares pi_c that are the likeliest ones, given L_i[y] = Pr[answer of i | y]:

    sum_{i in c} log sum_y pi_c[y] L_i[y]  +  a sum_y log pi_c[y],         a = `PSEUDO_COUNT`.

The second term is a Dirichlet law of 1 + a: it keeps shares off zero. EM finds the maximum: the log-likelihood is concave in pi_c.
What is believed of a row is the mean of its clusters' shares over `CLUSTERINGS` clusterings with other starts, which blurs
the borders of each. A network is then fitted on these beliefs: it tells the rows of a cluster apart.

>>> from labeldp import InformativeResponse, privatize
>>> X = np.repeat([[0.0], [1.0]], 2_000, axis=0) + np.random.default_rng(0).normal(scale=0.1, size=(4_000, 1))
>>> y = np.repeat([0, 1], 2_000)
>>> release = privatize(y, InformativeResponse(0.5, n_classes=3), rng=1)
>>> beliefs = pool_answers(X, [Evidence(release.codes, release.channel)])
>>> float(np.mean(beliefs.argmax(axis=1) == y)) > 0.98, beliefs.shape  # a cluster of few rows may be misread
(True, (4000, 3))

How many clusters? To tell which of K classes a cluster is takes ln K nats and some more, and n answers at epsilon e have at most
n I(e) nats (`most_information`): one cluster for each 4 ln K of them, at least K.

*A row's own answer.* The rounds after the first fit take the model's beliefs p_i times L_i to the power `OWN_ANSWER`, one half: the
model has seen the answer of row i before it is asked about i, and counted in full it would be counted twice. With few rows, which
a network sees dozens of times, that was worth several points (a prototype, on training images that were held out).

**A linear model** of d columns has K d coefficients to fill with noise, so that answers say little to it where they have few nats for each
(`overwhelms`). A table need not have neighbourhoods, though, and the answers themselves say whether it has (`fit_linear`). A third of
them after the other is held out. One model is fitted by the forward loss on the others, with the penalty that explains the held-out ones best
(`labeldp.learn.softmax.choose_l2`), another on what pooling makes of them, and the kind that explains the held-out answers better is fitted
on all. Pooled shares are flat: pseudo-counts and the mean
over clusterings blur them. So the pooled model's logits z are multiplied by that s of a few (`STEEPNESSES`) under which the held-out
answers are likeliest: sum_i log sum_y p_i[y] L_i[y] is largest, p_i = softmax(s z_i).

Everything here reads what was released and nothing else: post-processing, free. The clusters see features alone, so that nothing is
assumed that is not assumed anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from labeldp.arrays import Floats, Ints
from labeldp.channel import Evidence
from labeldp.errors import hide_warnings
from labeldp.items import Items, is_dataset
from labeldp.learn.corrections import fit_soft
from labeldp.learn.softmax import (
    FOLDS,
    NATS_PER_COEFFICIENT,
    SoftmaxRegression,
    choose_l2,
    explain,
    hold_out,
    make_trial,
)
from labeldp.mechanisms import most_information
from labeldp.priors import cluster, flat_features

#: Answers of fewer nats a class than this are pooled first: with few rows, which a network sees so often that it learns their
#: answers by heart, and with more. All of it was measured with ten classes; with more than thirty nothing is pooled.
LITTLE_OF_FEW, LITTLE_OF_MANY, MANY_ROWS, MOST_CLASSES = 1500.0, 100.0, 20_000, 30
#: Nats over ln K that a cluster needs to be told, clusterings that are averaged, and clusters at most.
NATS_PER_CLUSTER, CLUSTERINGS, MOST_CLUSTERS = 4.0, 3, 1000
#: Principal components that are clustered, and steps of k-means over all rows.
COMPONENTS, FULL_STEPS = 128, 3
#: What is added to each count of a cluster, and steps of EM: more change beliefs by less than a hundredth.
PSEUDO_COUNT, STEPS = 0.3, 100
#: The power of a row's own answer in the rounds after pooling.
OWN_ANSWER = 0.5
#: Clusters at most for a linear model: more of them took most of the time, and brought little.
MOST_OF_LINEAR = 300
#: What the logits of a pooled linear model may be multiplied by.
STEEPNESSES = (1.0, 1.5, 2.0, 3.0, 4.0)


def says_little(epsilon: float, *, n_examples: int, n_classes: int) -> bool:
    """Whether so many answers at this epsilon should be pooled before a network reads them.

    n answers have n I(e) nats. Fewer than 100 K are pooled, and of fewer than 20,000 rows fewer than 1,500 K.

    >>> says_little(1.0, n_examples=8_000, n_classes=10), says_little(1.0, n_examples=60_000, n_classes=10)
    (True, False)
    """
    if not 0 < epsilon < math.inf or not 2 < n_classes <= MOST_CLASSES or n_examples < 2 * n_classes:
        return False
    little = LITTLE_OF_FEW if n_examples < MANY_ROWS else LITTLE_OF_MANY
    return n_examples * most_information(epsilon) < little * n_classes


def pools_features(estimator: Any) -> bool:
    """Whether rows are near each other for an estimator where their features are.

    So it is for a linear model, and for a network that says so (`reads_features`); pixels are not.
    """
    return isinstance(estimator, SoftmaxRegression) or bool(getattr(estimator, "reads_features", False))


def overwhelms(epsilon: float, *, n_examples: int, n_classes: int, n_columns: int) -> bool:
    """Whether a linear model of so many columns has too many coefficients for so many answers at this epsilon.

    An answer has at most I(e) nats, and a label ln K.

    >>> [overwhelms(epsilon, n_examples=60_000, n_classes=10, n_columns=512) for epsilon in (4.0, 8.0)]
    [True, False]
    """
    if not 0 < epsilon < math.inf or not 2 < n_classes <= MOST_CLASSES or n_examples < 2 * FOLDS * n_classes:
        return False
    nats = n_examples * min(most_information(epsilon), math.log(n_classes))
    return nats < NATS_PER_COEFFICIENT * n_classes * n_columns


def pool_answers(X: Any, evidence: Sequence[Evidence], *, random_state: int = 0) -> Floats:
    """Return beliefs (n, K) about rows from the answers of their neighbourhoods.

    Parameters
    ----------
    X : array of shape (n, d) or (n, views, d), or a dataset of such rows
        The features, as the network reads them.
    evidence : sequence of Evidence
        What was released of the rows, one part after the other; together as many rows as X.
    random_state : int
        Seed of the clusterings. They see no labels, so this is not a privacy matter.
    """
    likelihood = _likelihood(evidence)
    return _average_shares(_find_neighbourhoods(X, evidence, random_state=random_state), likelihood)


def fit_linear(
    estimator: SoftmaxRegression,
    X: Floats,
    evidence: Sequence[Evidence],
    *,
    classes: Sequence[Any],
    weights: Floats | None = None,
) -> SoftmaxRegression:
    """Return a linear model of pooled answers, or of answers read one by one, whichever explains held-out answers better.

    Parameters
    ----------
    estimator : SoftmaxRegression
        What to fit; it is copied.
    X, evidence
        The features, and what was released of the rows, as for `pool_answers`.
    classes
        The classes, in the order of columns.
    weights : array of shape (n,), optional
        Public weights of the rows, in fits and in the likelihood of what is held out.
    """
    likelihood, groups = _likelihood(evidence), _find_neighbourhoods(X, evidence, most=MOST_OF_LINEAR)
    strength, read = choose_l2(estimator, X, likelihood, classes=classes, weights=weights)
    pooled = np.zeros(likelihood.shape)
    trial = make_trial(estimator)
    parts = hold_out(len(likelihood))
    for held in parts:
        kept = np.flatnonzero(~held)
        # Held-out answers are made to say nothing: the same neighbourhoods serve each time.
        beliefs = _average_shares(groups, np.where(held[:, None], 1.0, likelihood))
        shares = {} if weights is None else {"sample_weight": weights[kept]}
        with hide_warnings(ConvergenceWarning):  # only what is kept has to be finished
            pooler = clone(trial).fit_targets(X[kept], beliefs[kept], classes=classes, **shares)
        pooled[held] = X[held] @ pooler.coef_.T + pooler.intercept_

    counts = np.any(parts, axis=0) * (np.ones(len(likelihood)) if weights is None else weights)
    explained = {steepness: explain(steepness * pooled, likelihood, counts) for steepness in STEEPNESSES}
    best = max(STEEPNESSES, key=lambda steepness: float(explained[steepness].sum()))
    if explain(read, likelihood, counts).sum() > explained[best].sum():
        reader: SoftmaxRegression = clone(estimator).set_params(l2=strength)
        reader.fit_likelihood(X, likelihood, classes=classes, sample_weight=weights)
        reader.set_params(l2=estimator.l2)  # as it was asked for; `l2_` says what was chosen
        return reader
    model: SoftmaxRegression = fit_soft(
        clone(estimator), X, _average_shares(groups, likelihood), classes, weights=weights
    )
    model.coef_, model.intercept_ = best * model.coef_, best * model.intercept_
    return model


def _likelihood(evidence: Sequence[Evidence]) -> Floats:
    """Return the likelihoods of all answers, (n, K), each row as a share of its largest."""
    likelihood = np.concatenate([part.make(slice(None)) for part in evidence])
    answer: Floats = likelihood / likelihood.max(axis=1, keepdims=True)
    return answer


def _find_neighbourhoods(
    X: Any, evidence: Sequence[Evidence], *, random_state: int = 0, most: int = MOST_CLUSTERS
) -> list[Ints]:
    """Return the cluster of each row in each of the clusterings: as many clusters as the answers can tell, and `most`."""
    nats = sum(len(part) * most_information(part.channel.epsilon) for part in evidence)
    n_examples, n_classes = sum(map(len, evidence)), evidence[0].channel.n_classes
    count = min(most, count_pools(nats, n_examples=n_examples, n_classes=n_classes))
    # Rows of features that come one by one are few numbers each: clustering needs them side by side.
    if is_dataset(X):
        X = (X if isinstance(X, Items) else Items(X, owner="pool_answers")).read()
    rows = flat_features(X, n_components=COMPONENTS, random_state=random_state)
    starts = range(random_state, random_state + CLUSTERINGS)
    return [cluster(rows, n_clusters=count, random_state=start, full_steps=FULL_STEPS) for start in starts]


def _average_shares(groups: Sequence[Ints], likelihood: Floats) -> Floats:
    """Return what is believed of each row: the mean of its clusters' shares."""
    beliefs = np.zeros(likelihood.shape)
    for mine in groups:
        beliefs += find_shares(mine, likelihood)[mine] / len(groups)
    return beliefs


def count_pools(nats: float, *, n_examples: int, n_classes: int) -> int:
    """Return how many clusters answers of so many nats can tell.

    >>> count_pools(986.0, n_examples=8_000, n_classes=10), count_pools(1.0, n_examples=8_000, n_classes=10)
    (107, 10)
    """
    told = int(nats / (NATS_PER_CLUSTER * math.log(n_classes)))
    return min(max(told, n_classes), MOST_CLUSTERS, n_examples // 2)


def find_shares(groups: Ints, likelihood: Floats) -> Floats:
    """Return pi of the module, (C, K), for rows in groups 0 .. C-1 whose answers have these likelihoods (n, K).

    >>> find_shares(np.zeros(10, int), np.tile([[1.0, 0.0]], (10, 1))).round(2).tolist()  # ten sure answers
    [[0.97, 0.03]]
    """
    count, n_classes = int(groups.max()) + 1, likelihood.shape[1]
    shares: Floats = np.full((count, n_classes), 1.0 / n_classes)
    for _ in range(STEPS):
        believed = shares[groups] * likelihood
        believed /= believed.sum(axis=1, keepdims=True)
        sums = [np.bincount(groups, weights=column, minlength=count) for column in believed.T]
        shares = np.stack(sums, axis=1) + PSEUDO_COUNT
        shares /= shares.sum(axis=1, keepdims=True)
    return shares
