r"""Train on both things that a cluster mechanism released: the labels and the histogram of each cluster.

The labels alone waste what the histogram says, and labels redrawn from the histogram forget what single labels said. With
p_i the model's probabilities, l_i the likelihood of the label released for example i, and N_ck the noisy count of class k
in cluster c, this minimises

    - sum_i log sum_k p_ik l_ik  +  1/2 sum_ck (m_ck - N_ck)^2 / v_ck,      m_ck = sum of p_ik over the examples of c,
    v_ck = max(N_ck, 1) + V,      V the variance of the noise on a count,

plus the penalty of `cluster_model`. The first sum is the forward loss. The second is Pearson's chi-square of the counts
that the model expects, with the noise added to each cell's variance: a histogram that cost little weighs little, and
there is nothing to tune. Its gradient in the logits of example i is p_ik (g_k - sum_j p_ij g_j), g_k = (m_ck - N_ck) / v_ck.
Both parts read the release alone. They come from the same labels, so the sum is a composite likelihood: its minimum
aims at the truth, but it is no statement about uncertainty.

>>> noise_variance(1.0, n_classes=10), noise_variance(1.0, n_classes=2)
(8.0, 4.0)

Reference: learning from label proportions has the second part alone, without noise (Quadrianto, Smola, Caetano, Le 2009,
Estimating labels from label proportions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.learn.softmax import Problem, _normalised
from labeldp.release import Release
from studies.cluster_model import NoiseScaledSoftmax, model


def noise_variance(epsilon: float, *, n_classes: int) -> float:
    """Return V for a histogram that spent epsilon; at least the variance of discrete Laplace noise of its rate.

    More than two classes: rate epsilon / 2 on each count, variance at most 2 / rate^2 = 8 / epsilon^2. Two classes: one
    count at rate epsilon, variance at most 2 / epsilon^2, which appears in two cells; half the weight each.
    """
    return (4.0 if n_classes == 2 else 8.0) / epsilon**2


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What was released, with the examples in the order of their clusters: arrays are (K, n) and (K, C)."""

    logarithms: Floats
    cluster: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    counts: Floats
    variances: Floats

    def loss(self, logits: Floats) -> tuple[float, Floats]:
        """Return the loss, summed over examples, and its gradient in the logits (K, n)."""
        explained, reached = _normalised(logits + self.logarithms)
        mass, height = _normalised(logits)
        gap = np.add.reduceat(mass, self.starts, axis=1, dtype=np.float64) - self.counts
        pull = gap / self.variances
        each = pull.astype(mass.dtype)[:, self.cluster]
        gradient = mass - explained
        gradient += mass * (each - (mass * each).sum(axis=0))
        return float((height - reached).sum()) + 0.5 * float((gap * pull).sum()), gradient


def evidence(release: Release, *, epsilon: float) -> tuple[npt.NDArray[np.int64], Evidence]:
    """Return the order of the examples by cluster, and the evidence in it; `epsilon` is what the histogram spent."""
    if release.prior is None or release.prior_index is None:
        got, fix = Described("one without"), "ClusterRR with split > 0 releases one."
        raise invalid("fit_with_histogram", "release", "carry a histogram of each cluster", got=got, fix=fix)
    index = np.asarray(release.prior_index, np.int64)
    order = np.argsort(index, kind="stable")
    sizes = np.bincount(index, minlength=len(release.prior))
    counts = (release.prior * sizes[:, None]).T
    likelihood = release.channel.likelihood(release.codes)[order]
    with np.errstate(divide="ignore"):  # a label that is ruled out has log 0 = -inf, and exp of it is 0 again
        logarithms = np.ascontiguousarray(np.log(likelihood).T, dtype=np.float32)
    made = Evidence(
        logarithms=logarithms,
        cluster=index[order],
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
        counts=counts,
        variances=np.maximum(counts, 1.0) + noise_variance(epsilon, n_classes=len(release.classes)),
    )
    return order, made


def fit_with_histogram(X: Any, release: Release, *, epsilon: float) -> NoiseScaledSoftmax:
    """Return the model fitted to released labels and histogram; the penalty is by the rule of `cluster_model`."""
    order, known = evidence(release, epsilon=epsilon)
    ordered = np.ascontiguousarray(X[order])
    n, n_classes = len(order), len(release.classes)
    pull = known.loss(np.zeros((n_classes, n), np.float32))[1]
    l2 = math.sqrt(float(np.square(pull).sum(axis=0, dtype=np.float64).mean()) / n)
    zeros = np.zeros((n_classes, ordered.shape[1] + 1))
    problem = Problem(X=ordered, linear=zeros, total=float(n), l2=l2, intercept=True)

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(zeros.shape)
        return problem.finished(theta, *known.loss(problem.logits(theta)))

    return model().fit_objective(ordered, objective, l2=l2, classes=release.classes)
