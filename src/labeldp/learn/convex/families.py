r"""Families of generalised linear models, and the likelihoods that see labels only through sum_i y_i x_i.

| family | labels | mean at score s, of exposure e | score's variance / H | link |
|---|---|---|---|---|
| gaussian | numbers | s | the labels' variance | identity, canonical |
| poisson | counts | e exp(s) | 1 | log, canonical |
| gamma | amounts >= 0 | e exp(s) | the mean (of shape 1) | log, not canonical |
| binomial | 0, 1 or shares | 1 / (1 + exp(-s)) | 1 | logit, canonical |
| multinomial | classes | softmax of K scores | 1 | logit, canonical |

A canonical model has the likelihood sum_i [y_i s_i - e_i A(s_i)], s_i = <w, x_i>, with the mean A'. Of the labels it needs
t = sum_i y_i x_i and no more.

>>> family = find_family("poisson")
>>> float(family.mean(np.array([0.0]))[0]), float(family.cumulant(np.array([0.0]))[0])
(1.0, 1.0)

*Gamma.* The canonical link of the gamma family is the inverse, whose mean -1/s is a mean only where every score is
negative: no noisy t keeps that, and nobody wants it. Amounts are modelled on the log scale, mean exp(s), and there the
likelihood's score, sum_i (y_i e^{-s_i} - 1) x_i, is no fixed statistic. What is solved instead is sum_i (y_i - e_i e^{s_i}) x_i
= 0, the score of the Poisson family: a quasi-likelihood. It is unbiased whenever the mean is right, whatever the variance is,
so it finds the same model as the amount of data grows; with variances that grow like the squared mean it is less sharp
than the gamma likelihood would be, since it weighs large amounts more. Deviances are gamma's.

*Safe far away.* exp is continued by its tangent parabola beyond `TOP` above the null model, where no mean of bounded labels
lies: still convex, and no noise makes it overflow.

Reference: McCullagh & Nelder 1989, chapters 2, 8 and 9.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import numpy as np
import scipy.special

from labeldp.arrays import Floats
from labeldp.errors import invalid
from labeldp.validate import check_choice

#: Scores of log links beyond this, above the null model, follow a parabola.
TOP = 8.0
#: The mean of all labels is taken to be this share of the bounds' distance away from them, at least.
LEAST_MARGIN = 1e-6
NAMES = ("gaussian", "poisson", "gamma", "binomial", "multinomial")


class Family(abc.ABC):
    """A one-dimensional family: A and its derivatives at scores above the null model, and what is known beforehand.

    The null model has one mean for all. A log link takes it as a factor of the exposure, another one as an offset of the
    score (`anchor`), so that scores are measured from it.
    """

    name: ClassVar[str]
    takes_exposure: ClassVar[bool] = False
    #: Multiples of `variance` that labels may have; (1,) where the family knows it.
    guesses: ClassVar[tuple[float, ...]] = (1.0,)

    @abc.abstractmethod
    def anchor(self, mean: float) -> tuple[float, float]:
        """Return (offset of the score, factor of the exposure) of the null model with this mean."""

    @abc.abstractmethod
    def cumulant(self, scores: Floats) -> Floats:
        """A."""

    @abc.abstractmethod
    def mean(self, scores: Floats) -> Floats:
        """A'."""

    @abc.abstractmethod
    def slope(self, scores: Floats) -> Floats:
        """A''."""

    @abc.abstractmethod
    def variance(self, mean: Floats, bounds: tuple[float, float]) -> Floats:
        """The variance of a label with this mean: exact, or a guess from public bounds."""

    @abc.abstractmethod
    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Twice the likelihood that is lost against the mean y, of each label."""

    def spread(self, bounds: tuple[float, float]) -> float:
        """How far scores may be from the null model, as a standard deviation: the bound on what a prior allows."""
        return 1.0

    def check_bounds(self, owner: str, bounds: tuple[float, float]) -> None:  # noqa: B027  # any are fine
        """Refuse bounds that the family cannot have."""

    def dispersion(self, mean: float, bounds: tuple[float, float]) -> float:
        """The variance of the score in units of the Hessian, at the null model with this mean: V(mean) / A''."""
        offset, factor = self.anchor(mean)
        slope = factor * float(self.slope(np.array([offset]))[0])
        return float(self.variance(np.array([mean]), bounds)[0]) / slope

    def clip_mean(self, mean: float, bounds: tuple[float, float], *, exposure: float, noise: float) -> float:
        """Return a noisy mean of labels per unit of exposure, held within the bounds and half its noise away from them.

        `exposure` is the mean one of a label. Where noise is wider than the bounds, their middle is as good as anything.
        """
        low, high = bounds[0] / exposure, bounds[1] / exposure
        margin = min(max(LEAST_MARGIN * (high - low), noise / 2), (high - low) / 2)
        return float(np.clip(mean, low + margin, high - margin))


class GaussianFamily(Family):
    """Numbers with one variance: the identity link, least squares."""

    name = "gaussian"
    guesses = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)

    def anchor(self, mean: float) -> tuple[float, float]:
        """An offset."""
        return mean, 1.0

    def cumulant(self, scores: Floats) -> Floats:
        """s^2 / 2."""
        return scores**2 / 2

    def mean(self, scores: Floats) -> Floats:
        """The score."""
        return scores

    def slope(self, scores: Floats) -> Floats:
        """1."""
        return np.ones_like(scores)

    def variance(self, mean: Floats, bounds: tuple[float, float]) -> Floats:
        """A ninth of the largest variance of labels within the bounds with this mean, (high - m)(m - low).

        It is known to nobody without looking at labels, and bounds may be wide: `guesses` has what else it may be.
        """
        low, high = bounds
        inside = np.clip(mean, low + LEAST_MARGIN * (high - low), high - LEAST_MARGIN * (high - low))
        return np.asarray((high - inside) * (inside - low) / 9.0)

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """The squared error."""
        return np.asarray((y - mean) ** 2)

    def spread(self, bounds: tuple[float, float]) -> float:
        """Half the distance of the bounds: no labels within them have a larger deviation."""
        return (bounds[1] - bounds[0]) / 2


class LogFamily(Family):
    """Means exp(s), times the exposure; `TOP` bounds the curve."""

    takes_exposure = True

    def anchor(self, mean: float) -> tuple[float, float]:
        """A factor."""
        return 0.0, mean

    def cumulant(self, scores: Floats) -> Floats:
        """exp, and beyond `TOP` its parabola."""
        over = np.maximum(scores - TOP, 0.0)
        return np.asarray(np.exp(np.minimum(scores, TOP)) * (1 + over + over**2 / 2))

    def mean(self, scores: Floats) -> Floats:
        """exp, and beyond `TOP` its tangent."""
        return np.asarray(np.exp(np.minimum(scores, TOP)) * (1 + np.maximum(scores - TOP, 0.0)))

    def slope(self, scores: Floats) -> Floats:
        """exp, and beyond `TOP` constant."""
        return np.asarray(np.exp(np.minimum(scores, TOP)))

    def check_bounds(self, owner: str, bounds: tuple[float, float]) -> None:
        """Neither counts nor amounts are negative."""
        if bounds[0] < 0:
            raise invalid(owner, "bounds", f"start at 0 or above for {self.name}", got=bounds)


class PoissonFamily(LogFamily):
    """Counts: the variance is the mean."""

    name = "poisson"

    def variance(self, mean: Floats, bounds: tuple[float, float]) -> Floats:
        """The mean."""
        return mean

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """2 (y log(y / m) - y + m)."""
        return np.asarray(2.0 * (scipy.special.xlogy(y, y / mean) - y + mean))


class GammaFamily(LogFamily):
    """Amounts: the variance is the squared mean, as of waiting times; solved by the Poisson score."""

    name = "gamma"

    def variance(self, mean: Floats, bounds: tuple[float, float]) -> Floats:
        """The squared mean."""
        return mean**2

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """2 (y / m - 1 - log(y / m)); infinite for an amount of 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(2.0 * (y / mean - 1 - np.log(y / mean)))


class BinomialFamily(Family):
    """Zeros and ones, or shares."""

    name = "binomial"

    def anchor(self, mean: float) -> tuple[float, float]:
        """An offset, the logit."""
        return math.log(mean / (1 - mean)), 1.0

    def cumulant(self, scores: Floats) -> Floats:
        """log(1 + e^s)."""
        return np.asarray(np.logaddexp(0.0, scores))

    def mean(self, scores: Floats) -> Floats:
        """1 / (1 + e^-s)."""
        return np.asarray(scipy.special.expit(scores))

    def slope(self, scores: Floats) -> Floats:
        """The share times its complement."""
        share = scipy.special.expit(scores)
        return np.asarray(share * (1 - share))

    def variance(self, mean: Floats, bounds: tuple[float, float]) -> Floats:
        """The share times its complement."""
        return np.asarray(mean * (1 - mean))

    def deviance(self, y: Floats, mean: Floats) -> Floats:
        """Twice the Kullback-Leibler divergence of the share from the mean."""
        gain = scipy.special.xlogy(y, y / mean) + scipy.special.xlogy(1 - y, (1 - y) / (1 - mean))
        return np.asarray(2.0 * gain)

    def spread(self, bounds: tuple[float, float]) -> float:
        """2: scores of 4 are near certainty."""
        return 2.0

    def check_bounds(self, owner: str, bounds: tuple[float, float]) -> None:
        """Shares lie in [0, 1]."""
        if bounds != (0.0, 1.0):
            raise invalid(owner, "bounds", "be (0, 1) for binomial", got=bounds, fix="Leave them out.")


_FAMILIES: dict[str, Family] = {
    kind.name: kind() for kind in (GaussianFamily, PoissonFamily, GammaFamily, BinomialFamily)
}


def find_family(name: str) -> Family:
    """Return a family of numbers by its name; the multinomial one has K scores and is `labeldp.softmax`'s."""
    return _FAMILIES[check_choice("family", "family", name, tuple(_FAMILIES))]
