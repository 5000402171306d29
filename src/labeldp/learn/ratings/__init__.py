"""Learning from ratings: ordered labels of (user, item) pairs, released by any channel or as private sums.

>>> from labeldp.learn.ratings import LabelPrivateRatings
>>> LabelPrivateRatings(epsilon=2.0).epsilon
2.0

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), the
MovieLens experiment; Salakhutdinov and Mnih, "Bayesian probabilistic matrix factorization using MCMC" (2008).

Design notes. The pairs are public, the ratings are not: ids, counts and features of pairs cost nothing. The learner sees
released values only, as scores and weights of outputs at its own predictions, so that any channel will do.
"""

from labeldp.learn.ratings.evidence import CellSums
from labeldp.learn.ratings.factorisation import MatrixFactorisation
from labeldp.learn.ratings.private import GroupSums, LabelPrivateRatings, RatingStage

__all__ = ["CellSums", "GroupSums", "LabelPrivateRatings", "MatrixFactorisation", "RatingStage"]
