"""Learning from ratings: ordered labels of (user, item) pairs, released by any channel or as private sums.

>>> from labeldp.learn.ratings import LabelPrivateRatings
>>> LabelPrivateRatings(epsilon=2.0).epsilon
2.0

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), the
MovieLens experiment; Salakhutdinov and Mnih, "Bayesian probabilistic matrix factorization using MCMC" (2008).

Design notes. The pairs are public, the ratings are not: ids, counts and features of pairs cost nothing. The learner sees
released values only, as targets and weights at its own predictions, so that any channel will do: that is
`labeldp.channel.MeanEvidence`, and the stages are `labeldp.learn.responses`, both shared with learners of other numbers.
"""

from labeldp.learn.ratings.factorisation import MatrixFactorisation
from labeldp.learn.ratings.pairs import CellSums
from labeldp.learn.ratings.private import GroupSums, LabelPrivateRatings
from labeldp.learn.responses import RatingStage

__all__ = ["CellSums", "GroupSums", "LabelPrivateRatings", "MatrixFactorisation", "RatingStage"]
