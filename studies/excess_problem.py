r"""A convex problem whose excess risk is known: sparse rows of norm 1 in any dimension, labels from a softmax model.

Five coordinates carry the label and are +-1/sqrt(10) in every row; of the p - 5 others a random block of five is
+-1/sqrt(10). Labels follow a softmax model on the five. The model's parameter theta is in the ball and minimises the
population log loss, since that loss is proper; so for any weights w

    risk(w) - risk(theta) = E_x KL( softmax(theta x) || softmax(w x) ),

which needs no draws of labels, and a mean over rows only. A row has ten entries whatever p is.

>>> problem = Problem(n_features=1000, n_classes=3)
>>> X, y = problem.draw(200, seed=0)
>>> X.shape, X.nnz, round(problem.excess(problem.probabilities(X), X), 6)
((200, 1000), 2000, 0.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.special import softmax

from labeldp.arrays import Floats

#: Coordinates that carry the label, and as many that do not, in every row.
SIGNAL = 5
#: The norm of theta, below the radius D/2 of the ball.
SIZE = 8.0
DIAMETER = 20.0
#: A share of probability below this counts as this: the excess stays finite.
LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The distribution; two classes are one logit, 0 for the first."""

    n_features: int
    n_classes: int = 2

    @property
    def theta(self) -> Floats:
        """Return the (K, 5) parameters, the same for every p: directions from a fixed seed, of norm `SIZE` in all."""
        scores = 1 if self.n_classes == 2 else self.n_classes
        raw = np.random.default_rng(self.n_classes).normal(size=(scores, SIGNAL))
        scaled: Floats = SIZE * raw / np.linalg.norm(raw)
        return np.concatenate([np.zeros((1, SIGNAL)), scaled]) if scores == 1 else scaled

    def draw(self, n: int, *, seed: int) -> tuple[Any, npt.NDArray[np.int64]]:
        """Return n rows (csr) and their labels."""
        rng = np.random.default_rng([seed, self.n_features, self.n_classes])
        rest = self.n_features - SIGNAL
        block = (rng.integers(rest, size=(n, 1)) + np.arange(SIGNAL)) % rest + SIGNAL
        columns = np.concatenate([np.broadcast_to(np.arange(SIGNAL), (n, SIGNAL)), block], axis=1)
        signs = rng.choice([-1.0, 1.0], size=columns.shape) / math.sqrt(2 * SIGNAL)
        starts = np.arange(n + 1) * 2 * SIGNAL
        rows = scipy.sparse.csr_matrix((signs.reshape(-1), columns.reshape(-1), starts), shape=(n, self.n_features))
        edges = np.cumsum(self.probabilities(rows), axis=1)[:, :-1]
        labels: npt.NDArray[np.int64] = (rng.random((n, 1)) > edges).sum(axis=1)
        return rows, labels

    def probabilities(self, rows: Any) -> Floats:
        """Return the true class probabilities (n, K)."""
        shares: Floats = softmax(np.asarray(rows[:, :SIGNAL] @ self.theta.T), axis=1)
        return shares

    def excess(self, predicted: Floats, rows: Any) -> float:
        """Return the mean divergence of predictions from the truth: the excess population risk, in nats."""
        true = self.probabilities(rows)
        return float(
            (true * (np.log(np.maximum(true, LEAST)) - np.log(np.maximum(predicted, LEAST)))).sum(axis=1).mean()
        )
