"""What the explorer shows for one position of its sliders, computed by the mechanisms themselves.

>>> facts = explored(Settings(epsilon=1.0, n_classes=2, sharpness=0.0))
>>> round(facts["mechanisms"][0]["accuracy"], 4), round(facts["mechanisms"][0]["gain_bound"], 4)
(0.7311, 0.2311)

Design notes. The prior is geometric: class j + 1 is e^-sharpness times as likely as class j. ClusterRR's channel depends on
a noisy histogram, so it is the mean over `CLUSTERS` simulated clusters of labels in the prior's proportions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer, check_real
from labeldp.audit import advantage_bound
from labeldp.errors import invalid
from labeldp.mechanisms import ClusterRR, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.release import SensitiveLabels, privatize

Floats = npt.NDArray[np.floating[Any]]
OWNER = "explorer"

#: Simulated clusters behind ClusterRR's mean channel: its mean accuracy is then known to about 0.01.
CLUSTERS = 40
#: The noise of that simulation: the same at each position, so that dragging a slider moves smoothly. No one's labels.
SEED = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the sliders stand: the bounds are those of the page."""

    epsilon: float = 1.0
    n_classes: int = 5
    sharpness: float = 0.7
    cluster_size: int = 200
    k: int = 2

    def __post_init__(self) -> None:
        for name, low, high in (("epsilon", 0.1, 10.0), ("sharpness", 0.0, 5.0)):
            value = check_real(OWNER, name, getattr(self, name))
            if not low <= value <= high:
                raise invalid(OWNER, name, f"be in [{low:g}, {high:g}]", got=value)
            object.__setattr__(self, name, value)
        check_integer(OWNER, "n_classes", self.n_classes, least=2, most=12)
        check_integer(OWNER, "cluster_size", self.cluster_size, least=10, most=5000)
        # k above the number of classes means all of them: the two sliders move independently.
        object.__setattr__(self, "k", min(check_integer(OWNER, "k", self.k, least=1, most=12), self.n_classes))

    @property
    def prior(self) -> Floats:
        """The believed probability of each class, the likeliest first."""
        weight = np.exp(-self.sharpness * np.arange(self.n_classes))
        answer: Floats = weight / weight.sum()
        return answer


def explored(settings: Settings) -> dict[str, Any]:
    """Return everything that the page shows, as plain JSON values."""
    prior = settings.prior
    top, best = RRTopK(settings.epsilon, k=settings.k), RRWithPrior(settings.epsilon)
    plain = RandomizedResponse(settings.epsilon, n_classes=settings.n_classes)
    matrices = {
        "RR": plain.channel().matrix(),
        "RRTop-k": top.channel(prior).matrix(),
        "RRWithPrior": best.channel(prior).matrix(),
        "ClusterRR": _cluster_matrix(settings),
    }
    trust = {"RR": plain, "RRTop-k": top, "RRWithPrior": best, "ClusterRR": ClusterRR(settings.epsilon)}
    return {
        "settings": {
            "epsilon": settings.epsilon,
            "n_classes": settings.n_classes,
            "sharpness": settings.sharpness,
            "cluster_size": settings.cluster_size,
            "k": settings.k,
        },
        "prior": prior.tolist(),
        "two_label_bound": advantage_bound(settings.epsilon),
        "mechanisms": [
            {"name": name, "trusts": trust[name].guarantee.trust.words, **_described(matrix, prior, settings.epsilon)}
            for name, matrix in matrices.items()
        ],
    }


def _described(matrix: Floats, prior: Floats, epsilon: float) -> dict[str, Any]:
    """Return what a channel does under a prior, and what a Bayesian attacker gains from its output.

    Her best guess after output o is argmax_y p_y T[y, o], right with probability sum_o max_y p_y T[y, o].
    """
    after = float((prior[:, None] * matrix).max(axis=0).sum())
    before = float(prior.max())
    return {
        "matrix": matrix.tolist(),
        "candidates": np.flatnonzero(matrix.max(axis=0) > 0).tolist(),
        "flips": (1.0 - np.diagonal(matrix)).tolist(),
        "accuracy": float(prior @ np.diagonal(matrix)),
        "guess": after,
        "guess_before": before,
        "gain": max(0.0, after - before),  # no release can lower it; rounding can
        "gain_bound": (1.0 - before) * advantage_bound(epsilon),
    }


def _cluster_matrix(settings: Settings) -> Floats:
    """Return the mean channel of ClusterRR over simulated clusters of this size."""
    edges = np.rint(np.cumsum(settings.prior) * settings.cluster_size)
    one = np.searchsorted(edges, np.arange(settings.cluster_size), side="right")
    labels = np.tile(np.minimum(one, settings.n_classes - 1), CLUSTERS)
    groups = np.repeat(np.arange(CLUSTERS), settings.cluster_size)
    mechanism = ClusterRR(settings.epsilon)
    boxed = SensitiveLabels(labels, n_classes=settings.n_classes)
    channel = privatize(boxed, mechanism, groups=groups, rng=SEED).channel
    firsts = range(0, len(labels), settings.cluster_size)
    answer: Floats = np.mean([channel.matrix(first) for first in firsts], axis=0)
    return answer
