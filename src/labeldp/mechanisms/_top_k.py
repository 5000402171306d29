"""`RRTopK`: randomized response on the k likeliest labels of a prior."""

from __future__ import annotations

from dataclasses import dataclass, field

from labeldp._validate import FloatArray, check_epsilon, check_integer, check_probability_rows
from labeldp.mechanisms._response import CandidateResponse
from labeldp.mechanisms._select import CandidateSets, top_k_sets


@dataclass(frozen=True)
class RRTopK(CandidateResponse):
    """Randomized response within the k likeliest labels of each example's prior; other labels give a random one of them.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    k : int
        How many labels can come out.

    Guarantee
    ---------
    Pure epsilon when one label is replaced (Ghazi et al. 2021, Algorithm 1): within the set as for randomized response
    on k classes; a label outside it gives each member 1/k, between the two likelihoods of a member.

    Assumes
    -------
    The prior did not see this label for free: it is public, or its own cost is composed with this one.

    Edge cases
    ----------
    Ties go to the lower label, whatever y is. epsilon = inf keeps the k labels exactly and still redraws the others.
    k = 1 is the constant likeliest label and reveals nothing.

    Example
    -------
    >>> RRTopK(1.0, k=2).channel([0.5, 0.3, 0.2]).base.tolist()
    [[0.5, 0.5, 0.0]]
    """

    epsilon: float
    k: int = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RRTopK", self.epsilon))
        object.__setattr__(self, "k", check_integer("RRTopK", "k", self.k, least=1))

    def candidates(self, prior: FloatArray, *, first_row: int = 0) -> CandidateSets:
        """Return the k likeliest labels of each row."""
        check_integer("RRTopK", "k", self.k, least=1, most=prior.shape[1], fix="There are no more classes than that.")
        return top_k_sets(check_probability_rows("RRTopK", "prior", prior, first_row=first_row), k=self.k)
