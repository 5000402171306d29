r"""Generalised linear models from answers to single labels: counts and zeros or ones, and no one to trust.

Every label was answered once through a public channel. Of a row with mean m_i(w) = e_i A'(<w, x_i>) the answer o_i has the
likelihood T_i[., o_i].p(m_i), p(m) the law of a count (or of 0 and 1) with that mean (`labeldp.channel.means`). The model
maximises the sum of its logarithms, less a penalty on the weights.

>>> from labeldp.channel import MatrixChannel
>>> from labeldp.learn.convex.design import make_design
>>> from labeldp.learn.convex.families import find_family
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(20_000, 1))
>>> claims = np.minimum(rng.poisson(0.1 * np.exp(0.5 * X[:, 0])), 2)
>>> flip = MatrixChannel([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])  # is there a claim? true in three of four cases
>>> codes = np.where(rng.random(20_000) < 0.75, claims > 0, claims == 0).astype(int)
>>> design = make_design("example", X, clip="auto", standardise=True, intercept_scaling=0.5)
>>> model = AnsweredModel.start(find_family("poisson"), design, codes, flip, bounds=(0.0, 2.0))
>>> bool(abs(model.factor - 0.11) < 0.02)
True

*Against unbiased answers.* sum_i y~_i x_i of debiased answers y~ is a canonical statistic too, and its noise is that of y~. For
rare counts the likelihood of the best answer tells much more: of the information of the count itself, at a mean of .124,

>>> from labeldp.mechanisms import BinnedResponse
>>> mean, laws = np.array([0.124]), CountLaws(2)
>>> law = laws.tabulate(mean)[0][0]
>>> best = OptimalResponse(2.0, objective=MeanInformation(values=(0, 1, 2))).channel(law)
>>> told = AnswerLikelihood.read(np.array([0]), best, laws).information(mean)[0] * mean[0]
>>> debiased = BinnedResponse(2.0, bounds=(0, 2), bins=3).channel()
>>> round(float(told), 2), round(float(0.124 / (0.124 + law @ debiased.variances[0])), 2)
(0.34, 0.12)

No epsilon-private answer has more, to the solver's precision: that is what `MeanInformation` maximises. The price is that the law must be about right: answers that only say whether there was a
claim cannot see that claims come in clusters, and then the level of all means is too low by as much.

*Prior.* At the null model the score of the weights has mean H w and variance H, H = sum_i I_i (dm_i/ds)^2 x_i x_i' the information
of the answers: the Bayes penalty of `labeldp.learn.convex.moments` without further noise. It is chosen at the null model, and once
more at the model found.

The likelihood need not be concave in w through a channel. It is climbed from the null model, where it is nearly a parabola.

Guarantee
---------
Of the fit: none of its own, it sees answers alone. Of `release_answers`: pure epsilon for each label, no one to trust; a label is
in one stage, and what shapes a stage is made of earlier answers (`labeldp.learn.responses`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from labeldp.arrays import Floats, Places
from labeldp.channel import AnswerLikelihood, CountLaws, FiniteChannel, MeanLaws, MeanTable, ShareLaws
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.design import Design
from labeldp.learn.convex.families import LEAST_MARGIN, Family
from labeldp.learn.convex.moments import minimise_round
from labeldp.learn.convex.totals import FittedWeights
from labeldp.learn.responses import RatingStage, Responded, respond_in_stages
from labeldp.learn.settings import assign_stages
from labeldp.mechanisms import MeanInformation, OptimalResponse
from labeldp.random import NoiseKey
from labeldp.release import Release
from labeldp.release.budget import Budget
from labeldp.release.grid import box_on_grid
from labeldp.release.stages import StageDoor

#: The first stage of answers: enough to find the level of all means, by which the others are asked.
FIRST_SHARE = 0.05
#: With fewer rows a first stage is too small to learn from.
LEAST_STAGED = 1_000
#: Candidates of the null model's mean, before it is refined between two of them.
_CANDIDATES = 64


def answer_laws(owner: str, family: Family, bounds: tuple[float, float]) -> MeanLaws:
    """Return the law of a label given its mean; only counts and zeros or ones have one that is known."""
    low, high = bounds
    if family.name == "binomial":
        return ShareLaws()
    if family.name != "poisson":
        fix = "The law of amounts given their mean is not known: use LabelPrivateRegressor."
        raise invalid(owner, "family", "be poisson or binomial for answers to labels", got=family.name, fix=fix)
    if low != 0 or not high.is_integer():
        got = Described(f"({low:g}, {high:g})")
        raise invalid(owner, "bounds", "be (0, C), C whole, for answers to counts", got=got)
    return CountLaws(int(high))


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsweredModel:
    """The likelihood of answers as a function of weights, measured from the null model (`offset`, `factor`)."""

    family: Family
    design: Design
    answers: AnswerLikelihood
    offset: float
    factor: float

    @classmethod
    def start(
        cls, family: Family, design: Design, codes: Any, channel: FiniteChannel, *, bounds: tuple[float, float]
    ) -> AnsweredModel:
        """Read the answers, and find the null model."""
        answers = AnswerLikelihood.read(codes, channel, answer_laws("PrivateGLM", family, bounds))
        mean = _find_null(family, answers, design.exposure, bounds)
        offset, factor = family.anchor(mean)
        return cls(family=family, design=design, answers=answers, offset=offset, factor=factor)

    def find_means(self, weights: Floats, rows: Floats, exposure: Floats) -> tuple[Floats, Floats]:
        """Return the means of some rows, and their derivatives in the score."""
        at, extent = self.offset + rows @ weights, exposure * self.factor
        return extent * self.family.mean(at), extent * self.family.slope(at)

    def linearise(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the information H of the answers at these weights, and the score there plus H w."""
        rows = self.design.rows
        means, change = self.find_means(weights, rows, self.design.exposure)
        hessian = rows.T @ (rows * (self.answers.information(means) * change**2)[:, None])
        slope = rows.T @ (self.answers.climb(means)[1] * change)
        return hessian, slope + hessian @ weights

    def fit(self, find_penalty: Callable[[Floats, Floats], Floats]) -> Answered:
        """Climb to the model; `find_penalty(H, scores)` says the penalty (D, D)."""
        rows, exposure = self.design.rows, self.design.exposure
        weights: Floats = np.zeros(rows.shape[1])
        penalty: Floats = np.eye(len(weights))
        hessian = penalty
        for _ in range(2):  # the second time with the information at the model found
            hessian, scores = self.linearise(weights)
            penalty = find_penalty(hessian, scores)

            def objective(point: Floats, penalty: Floats = penalty) -> tuple[float, Floats]:
                means, change = self.find_means(point, rows, exposure)
                value, slope = self.answers.climb(means)
                pull = rows.T @ (slope * change)
                return float(-value.sum() + 0.5 * point @ penalty @ point), penalty @ point - pull

            weights = minimise_round(objective, weights, hessian + penalty)
        spread = np.linalg.pinv(hessian + penalty, hermitian=True)
        return Answered(model=self, fitted=FittedWeights(weights, self.offset, self.factor, math.nan), spread=spread)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """A fitted model and the covariance of its weights: what it predicts, and how sure it is."""

    model: AnsweredModel
    fitted: FittedWeights
    spread: Floats

    def predict(self, design: Design) -> tuple[Floats, Floats]:
        """Return the mean of each row, and its standard deviation."""
        means, change = self.model.find_means(self.fitted.weights, design.rows, design.exposure)
        squares = np.einsum("nd,nd->n", design.rows @ self.spread, design.rows)
        return means, change * np.sqrt(np.maximum(squares, 0.0))


# ------------------------------------------------------------------------------------------------ the owner's side


class AnswerRelease(NamedTuple):
    """The model, what was released, and each stage as it was run."""

    model: Answered
    release: Release
    stages: tuple[RatingStage, ...]


#: (rows, codes, channel) -> the model of these answers
FitAnswers = Callable[[Design, Any, FiniteChannel], Answered]


def release_answers(
    owner: str,
    family: Family,
    design: Design,
    y: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    rounds: int,
    key: NoiseKey,
    ledger: Any,
    label_set: str,
    beside: Sequence[str],
    fit: FitAnswers,
) -> AnswerRelease:
    """Have every label answered once, in stages on disjoint rows, and fit the model to the answers.

    `bounds` are those of a label, `beside` names what came in with the labels. Everything that can be refused is refused before
    the ledger is charged, and nothing is drawn before that.
    """
    laws, n = answer_laws(owner, family, bounds), len(design.rows)
    later = [(1 - FIRST_SHARE) / (rounds - 1)] * (rounds - 1) if n >= LEAST_STAGED else []
    shares = (FIRST_SHARE, *later) if later else (1.0,)
    size = len(laws.values)
    box = box_on_grid(owner, y, n_rows=n, bounds=bounds, label_set=label_set, beside=beside, steps=size - 1)
    if not np.array_equal(box.scores, np.arange(size)):
        fix = f"Box them as SensitiveLabels(y, classes=range({size})), or as numbers with bounds."
        raise invalid(owner, "y", f"be counts 0 .. {size - 1}", got=Described("other classes"), fix=fix)
    flat = OptimalResponse(epsilon, objective=MeanInformation(values=laws.values.tolist()))
    flat.channel(n_classes=size)  # fails here, if it must: at most ten values
    budget = Budget(owner=owner, labels=box.labels, ledger=ledger, seeded=key.seeded)
    promise = budget.state(Guarantee.pure(epsilon))
    stage = assign_stages(n, shares, key.child("split"), owner=owner)
    words = f"{owner}({family.name!r}, epsilon={epsilon!r}, statistic='answers', rounds={rounds!r})"
    entry = budget.charge(promise, mechanism=words)

    def predict(known: Responded | None, rows: Places) -> tuple[Floats, Floats]:
        assert known is not None  # before the first stage nothing is known
        return fit(design.take(known.rows), known.codes, known.channel).predict(design.take(rows))

    told = respond_in_stages(
        box.labels,
        stage,
        MeanTable.of(laws),
        predict,
        door=StageDoor[Release](budget=budget, key=key, epsilon=epsilon),
        informed=False,
        owner=owner,
    )
    release = Release(
        codes=told.codes,
        classes=box.labels.classes,
        channel=told.channel,
        guarantee=promise,
        mechanism=words,
        seeded=key.seeded,
        label_set=str(box.labels.name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=entry,
        stage=stage,
    )
    return AnswerRelease(fit(design, told.codes, told.channel), release, told.stages)


def _find_null(family: Family, answers: AnswerLikelihood, exposure: Floats, bounds: tuple[float, float]) -> float:
    """Return the one mean per unit of exposure under which the answers are likeliest."""
    usual = float(exposure.mean())
    low, high = (bound / usual for bound in bounds)
    ends = (low + LEAST_MARGIN * (high - low), high - LEAST_MARGIN * (high - low))
    # Rare counts and rare ones are told apart by their logarithms; common ones are near the other end.
    rising = np.geomspace(*ends, _CANDIDATES)
    tried = np.unique(np.concatenate([rising, high + low - rising]))

    def lose(mean: float) -> float:
        offset, factor = family.anchor(mean)
        means = exposure * factor * family.mean(np.full(len(exposure), offset))
        return -float(answers.climb(means)[0].sum())

    best = int(np.argmin([lose(float(mean)) for mean in tried]))
    around = (float(tried[max(best - 1, 0)]), float(tried[min(best + 1, len(tried) - 1)]))
    found = scipy.optimize.minimize_scalar(lose, bounds=around, method="bounded")
    return family.clip_mean(float(found.x), bounds, exposure=usual, noise=0.0)
