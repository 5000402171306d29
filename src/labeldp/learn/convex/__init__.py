"""Convex learners with private labels, each with a proof, and each blind to raw labels outside the door.

| learner | what is released | noise | trusts |
|---|---|---|---|
| `LPRRSGD` | every label once, by randomized response | pure epsilon | no one |
| `LPNormalSGD` | every one-hot label once, with Gaussian noise | (epsilon, delta) | no one |
| `SufficientStatistics` | the sums of features by class, once | exact discrete noise, pure or (epsilon, delta) | a curator |
| `PrivateGLM` | the sum of features times labels, or totals of groups | exact discrete noise, pure or (epsilon, delta) | a curator |
| `OutputPerturbation` | the minimiser of a regularised loss | (epsilon, delta); label or record | a curator |
| `SimplexERM` | samples from a minimiser on the simplex | pure or (epsilon, delta); label or record | a curator |

>>> import numpy as np
>>> X = np.repeat([[-1.0, 0.5], [1.0, 0.5]], 500, axis=0)
>>> y = np.repeat(["no", "yes"], 500)
>>> model = SufficientStatistics(epsilon=1.0, delta=1e-5, clip=2.0, classes=["no", "yes"], random_state=0).fit(X, y)
>>> model.predict([[-1.0, 0.5], [1.0, 0.5]]).tolist(), model.guarantee_.epsilon(1e-5) <= 1.0, model.seeded_
(['no', 'yes'], True, True)

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021), supplement;
Jain, Thakurta, "(Near) Dimension Independent Risk Bounds for Differentially Private Learning" (2014), supplement.

What theory promises of the last two, with all constants, is in `labeldp.learn.convex.bounds`.

Design notes. Features are clipped to a public bound, of which sensitivity is a multiple; the intercept is the weight of
a constant feature and is penalised like any other, or sensitivity would be unbounded. Nothing that depends on raw
labels is kept besides what was released: no iteration counts, no losses.
"""

from labeldp.learn.convex.glm import PrivateGLM
from labeldp.learn.convex.output import OutputPerturbation
from labeldp.learn.convex.sgd import LPRRSGD, LPNormalSGD
from labeldp.learn.convex.simplex import SimplexERM
from labeldp.learn.convex.sufficient import SufficientStatistics
from labeldp.learn.convex.totals import GaussianNoise, LaplaceNoise

__all__ = [
    "LPRRSGD",
    "GaussianNoise",
    "LPNormalSGD",
    "LaplaceNoise",
    "OutputPerturbation",
    "PrivateGLM",
    "SimplexERM",
    "SufficientStatistics",
]
