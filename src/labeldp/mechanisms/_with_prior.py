"""`RRWithPrior`: the best epsilon-private guess at the label, given a prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeldp._validate import FloatArray, check_epsilon
from labeldp.channel import safe_odds
from labeldp.mechanisms._priors import check_n_classes
from labeldp.mechanisms._response import CandidateResponse
from labeldp.mechanisms._select import CandidateSets, likeliest_sets


@dataclass(frozen=True)
class RRWithPrior(CandidateResponse):
    """RRTop-k with the k that makes a right answer likeliest, chosen for each example from its prior.

    k* maximises w_k = e^epsilon / (e^epsilon + k - 1) (p_(1) + ... + p_(k)), the probability that the output is the
    label when the label follows the prior.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].

    Guarantee
    ---------
    Pure epsilon when one label is replaced: k* looks at the prior alone, so this is RRTop-k (Ghazi et al. 2021,
    Algorithm 2). No epsilon-private mechanism gives the right label more often under the prior (their Theorem 3; the
    tests solve its linear program).

    Assumes
    -------
    The prior did not see this label for free: it is public, or its own cost is composed with this one.

    Edge cases
    ----------
    w is unimodal in k: w_(k+1) > w_k iff p_(k+1) (e^epsilon + k - 1) > p_(1) + ... + p_(k), and the difference of the two
    sides falls with k. Labels with equal prior enter together, so ties need no breaking for epsilon > 0. epsilon = 0
    gives the constant likeliest label (the first at a tie). epsilon = inf is the identity, also for labels that the
    prior thinks impossible. Without a prior, all labels are taken as equally likely: randomized response.

    Example
    -------
    >>> RRWithPrior(1.0).channel([0.6, 0.3, 0.1]).base.round(3).tolist()
    [[0.5, 0.5, 0.0]]
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RRWithPrior", self.epsilon))

    def candidates(self, prior: FloatArray, *, first_row: int = 0) -> CandidateSets:
        """Return the optimal candidate set of each row."""
        return likeliest_sets("RRWithPrior", prior, odds=safe_odds(self.epsilon), first_row=first_row)

    def _prior_when_none(self, n_classes: int | None) -> FloatArray:
        size = check_n_classes("RRWithPrior", n_classes)
        return np.full(size, 1.0 / size)
