r"""`PrivateGLM`: numbers as labels, from one noisy sum of features times labels, noisy totals, or answers to single labels.

A generalised linear model sees its labels only through t = sum_i v_i y_i z_i (`labeldp.learn.convex.families`), z_i public rows
with a constant for the intercept, v_i public weights (`labeldp.learn.convex.design`). This vector is all that needs noise.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X, years = rng.normal(size=(20_000, 3)) * [1.0, 100.0, 0.01], rng.uniform(0.2, 1.0, size=20_000)
>>> claims = rng.poisson(years * np.exp(-1.0 + 0.5 * X[:, 0]))
>>> model = PrivateGLM("poisson", epsilon=1.0, bounds=(0, 3), random_state=0).fit(X, claims, exposure=years)
>>> (
...     bool(abs(model.coef_[0] - 0.5) < 0.1),
...     bool(abs(model.intercept_ + 1.0) < 0.1),
...     model.guarantee_.epsilon(1e-5) <= 1.0,
... )
(True, True, True)
>>> model.predict(X[:2], exposure=[1.0, 0.5]).shape
(2,)

*What is released.* Labels are clipped to public bounds and brought to a grid of 2^16 steps between them, weighted rows to a
grid of R 2^-20: integers k_i and a_i. T = sum_i k_i a_i is measured with exact discrete noise, Gaussian for delta > 0 and
Laplace for delta = 0. Since y_i = low + step k_i, t follows from T and the public sum of the rows; a centre of the labels, the
middle of the bounds or any label-free prediction, is a public shift and changes nothing.

*What is solved.* sum_i v_i e_i A(<b, z_i>) - <t, b> + <b, P b> / 2, measured from the null model, whose one mean comes from t
too. P is the Bayes penalty for the noise that was added (`labeldp.learn.convex.moments`): chosen from what was released, free,
and unable to blow up. `l2` replaces it. The problem is strictly convex for any t, also where noise has taken t out of the
range of means.

*Others' aggregates.* `fit_measurement` fits the same model to noisy totals of public groups that someone else released, and
``statistic="groups"`` has the owner of labels release such totals herself, in rounds (`labeldp.learn.convex.totals`).

*Without a curator.* ``statistic="answers"`` has every count (or 0 and 1) answered once, by the channel that tells most about its
mean, and maximises the likelihood of the answers (`labeldp.learn.convex.likelihood`); `fit_release` does so from answers that
someone else released.

References: McCullagh & Nelder 1989; Vu & Slavkovic 2009, Foulds et al. 2016, Bernstein & Sheldon 2018 (noisy sufficient
statistics, and the noise in the posterior); Canonne, Kamath, Steinke 2020 (discrete noise).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.utils import ClassifierTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.channel import FiniteChannel
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.base import check_penalty
from labeldp.learn.convex.design import Design, Sharing, check_exposure, make_design
from labeldp.learn.convex.families import NAMES, TOP, Family, find_family
from labeldp.learn.convex.likelihood import Answered, AnsweredModel, release_answers
from labeldp.learn.convex.moments import (
    ClassMoments,
    Moments,
    NumberMoments,
    Shrinkage,
    choose_shrinkage,
    minimise_round,
    release_moments,
    solve_softmax,
)
from labeldp.learn.convex.totals import FittedWeights, TotalNoise, fit_totals, release_rounds
from labeldp.mechanisms.numbers import check_bounds
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release
from labeldp.release.budget import assume_public
from labeldp.release.grid import box_on_grid
from labeldp.release.labels import SensitiveLabels, as_plain, box_labels
from labeldp.release.numbers import Asked, read_finite
from labeldp.release.persons import Persons
from labeldp.release.queries import check_groups
from labeldp.release.release import check_release
from labeldp.release.scores import ScoredRegressor, check_raw_labels, compare_labels
from labeldp.softmax import softmax
from labeldp.validate import (
    check_choice,
    check_delta,
    check_epsilon,
    check_integer,
    check_weights,
    expect_numbers,
    hide_labels,
)

OWNER = "PrivateGLM"
#: A class has at least this share of the null model's probability over K.
LEAST_SHARE = 0.02
#: Said of a model that was fitted to totals that others released.
THEIRS = (
    "the totals were released by someone else: the promise is theirs, and labeldp neither spent anything nor checked it"
)
NO_PROMISE = "nothing is known of what the totals promise: pass promise=, what their publisher states"


class PrivateGLM(ScoredRegressor, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A generalised linear model from one noisy sum of features times labels.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma", "binomial", "multinomial"}
        Numbers, counts, amounts, shares (or 0 and 1), classes. Counts and amounts have a log link and take an exposure; gamma
        is solved by the Poisson score, which is right for any variance (`labeldp.learn.convex.families` says why).
    epsilon, delta : float
        The budget. delta > 0: discrete Gaussian noise; delta = 0: discrete Laplace noise, whose 1-norm sensitivity grows with
        the root of the number of features: prefer ``statistic="groups"`` there.
    bounds : (low, high)
        Public bounds of a label; what lies outside is clipped. Required for gaussian, poisson and gamma, unless the labels
        come as `SensitiveLabels`, which know theirs.
    l2 : float or "auto"
        A penalty on the weights of standardised columns against the sum of losses; "auto" is the Bayes penalty for the
        noise, from what was released: free.
    clip : float or "auto"
        The norm of a (standardised) row at which its weight begins to fall; "auto" is the median norm. Features are public.
    standardise : bool
        Whether columns are divided by their deviations. They are centred in any case, and `coef_` is in their own units.
    statistic : {"moments", "groups", "answers"}
        One noisy sum over all rows; or noisy totals of groups of similar rows, in rounds on fresh rows, each grouped by
        what the model so far predicts; or an answer to each label, for poisson and binomial, which trusts no one: a first
        twentieth of the rows finds the level of means, the others are asked by it. Groups and answers cost pure epsilon,
        whatever the number of columns.
    rounds, n_groups : int, int or "auto"
        For ``statistic="groups"``; "auto" is groups of 20 / epsilon rows. Answers have as many rounds.
    intercept_scaling : float
        The constant of a row, as a multiple of `clip`: a larger one makes the intercept more exact and all else less.
    classes : sequence, optional
        Of multinomial labels: the public list of classes.
    random_state, ledger, label_set
        As in `SufficientStatistics`.

    Attributes
    ----------
    coef_, intercept_ : (d,) and a number, or (K, d) and (K,); of the columns as they came
    statistic_ : the released sums (D,) or (K, D), in units of the standardised rows; or the totals of groups
    release_, stages_ : the released answers, and each stage as it was run, for answers
    noise_, noise_scale_, sensitivity_ : the noise in words, its deviation, and the sensitivity of the sums
    l2_ : the penalty, a number if it was given; otherwise the prior variance of a weight is in `prior_variance_`
    guarantee_, seeded_ : what is promised, and whether the noise had a seed
    classes_ : of multinomial labels

    Notes
    -----
    *Guarantee.*
    One replaced label moves the integers T = sum_i k_i a_i by (k - k') a_i, at most 2^16 steps times the longest row, in either
    norm: the sensitivity is computed from the integers, so that neither rounding nor the intercept is left out. `measure` adds
    exact noise for it: pure epsilon (delta = 0) or discrete Gaussian noise whose exact loss implies (epsilon, delta), when one
    label is replaced; with `persons`, for the largest sum of these over the rows of one person, when all her labels are. Weights, exposures, scales and bounds are public and did not see the labels. Everything after it is
    post-processing. A curator sees the labels and is trusted.

    Of answers: every label is in one stage, where its answer is epsilon-private; what shapes a stage is made of earlier answers
    and public data. Pure epsilon when one label is replaced, and no one to trust.

    *Edge cases.*
    epsilon = inf releases exact sums. A constant label, collinear or constant columns and d > n need no care: the problem is
    strictly convex. Long rows lose weight; they are not changed. Missing or infinite labels and features, dates, texts,
    exposures that are not positive and bounds the wrong way are refused before anything is charged or drawn; no message
    shows a label. Sparse features are refused: centred, they are dense.
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Any = None,
        l2: float | str = "auto",
        clip: float | str = "auto",
        standardise: bool = True,
        statistic: str = "moments",
        rounds: int = 2,
        n_groups: int | str = "auto",
        intercept_scaling: float = 0.5,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.family = family
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.l2 = l2
        self.clip = clip
        self.standardise = standardise
        self.statistic = statistic
        self.rounds = rounds
        self.n_groups = n_groups
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(
        self, X: Any, y: Any, *, exposure: Any = None, sample_weight: Any = None, persons: Any = None
    ) -> PrivateGLM:
        """Release the sums of y and solve.

        Parameters
        ----------
        X : array of shape (n, d)
            Public features, in any units.
        y : array of n numbers (classes for multinomial), or `SensitiveLabels`
            The labels.
        exposure : array of shape (n,), optional
            Public exposures > 0 of counts or amounts (years insured, impressions): means are proportional to them.
        sample_weight : array of shape (n,), optional
            Public weights >= 0. A row's weight times its norm is held to R, so that no weight costs more noise.
        persons : Persons, or a column of n ids, optional
            Who owns each row, public. Then (epsilon, delta) is for all labels of a person together. Her rows' weights times their
            norms add up to at most R, which is chosen with the weights for the least estimated error from public features
            (`labeldp.learn.convex.persons`); a `clip` that is a number says R. Totals of groups are of one row per
            person, by public chance. Not for ``statistic="answers"``.
        """
        check_choice(OWNER, "family", self.family, NAMES)
        check_choice(OWNER, "statistic", self.statistic, ("moments", "groups", "answers"))
        if self.family == "multinomial":
            return self._fit_classes(X, y, exposure, sample_weight, persons)
        family, bounds = self._find_family(y.bounds if isinstance(y, SensitiveLabels) else None)
        epsilon, delta, key = self._check_budget()
        design, owners = self._make_design(X, exposure, sample_weight, persons)
        beside = [name for name, given in self._beside(exposure, sample_weight) if given is not None]
        if self.statistic == "answers":
            _refuse_weights(sample_weight)
            if owners is not None:
                fix = "Use privatize(counts, mechanism, persons=ids) and fit_release, or another statistic."
                raise invalid(OWNER, "persons", "be left out for answers in stages", got=Described("persons"), fix=fix)
            answered = release_answers(
                OWNER,
                family,
                design,
                y,
                bounds=bounds,
                epsilon=epsilon,
                rounds=check_integer(OWNER, "rounds", self.rounds, least=1, most=100),
                key=key,
                ledger=self.ledger,
                label_set=self.label_set,
                beside=beside,
                fit=partial(self._solve_answers, family, bounds),
            )
            self._keep_answers(family, design, answered.model, answered.release)
            self.stages_ = answered.stages
            return self
        box = box_on_grid(OWNER, y, n_rows=len(design.rows), bounds=bounds, label_set=self.label_set, beside=beside)
        if self.statistic == "groups":
            return self._fit_rounds(
                family, design, box, bounds, epsilon=epsilon, key=key, weighted=sample_weight, persons=owners
            )
        grid, step = design.on_grid()
        query = NumberMoments(scores=box.scores, weights=grid)
        found = release_moments(
            box.labels,
            query,
            step=step,
            unit=box.step,
            epsilon=epsilon,
            delta=delta,
            key=key,
            ledger=self.ledger,
            persons=owners,
        )
        sums = found.sums[0] + box.low * found.rows.sum(axis=0)
        fitted = self._solve(family, design, sums, found.scale, bounds)
        self._keep_release(found, sums)
        self._keep_model(family, design, fitted, bounds)
        self.guarantee_, self.seeded_ = found.guarantee, key.seeded
        return self

    def fit_measurement(
        self,
        X: Any,
        *,
        groups: Any,
        sums: Any,
        noise: TotalNoise,
        counts: Any = None,
        exposure: Any = None,
        promise: Guarantee | None = None,
    ) -> PrivateGLM:
        """Fit the model to noisy totals of public groups that someone else released; no label is seen, nothing is spent.

        Totals tell only of what differs between groups. A column whose mean is nearly the same in all of them keeps a weight
        near 0, and what groups have in common beside the columns (a region's roads) is ascribed to the columns: of single
        rows such a model may say less than the null model does.

        Parameters
        ----------
        X : array of shape (n, d)
            Public features of the rows; or one row for each group, its mean features, with `counts`.
        groups : integers of shape (n,)
            The group of each row, 0 .. G-1.
        sums : numbers of shape (G,)
            The noisy total of the labels of each group.
        noise : LaplaceNoise or GaussianNoise
            What was added to a total, as its publisher states it: `LaplaceNoise.of_report(max_value=, epsilon=)` for an
            attribution report.
        counts : numbers of shape (n,), optional
            How many labels a row stands for.
        exposure : array of shape (n,), optional
            As in `fit`.
        promise : Guarantee, optional
            What the publisher promises. `guarantee_` repeats it and says whose it is; without it, it promises nothing.
        """
        check_choice(OWNER, "family", self.family, NAMES)
        if self.family == "multinomial":
            fix = "Fit one binomial model for each class."
            raise invalid(OWNER, "family", "be one of numbers", got=self.family, fix=fix)
        family, bounds = self._find_family()
        if not isinstance(noise, TotalNoise):
            fix = "For example LaplaceNoise(scale) or GaussianNoise(sigma)."
            raise invalid(OWNER, "noise", "be the noise of the totals", got=type(noise).__name__, fix=fix)
        if promise is not None and not isinstance(promise, Guarantee):
            raise invalid(OWNER, "promise", "be a Guarantee", got=type(promise).__name__)
        totals = read_finite(as_plain(sums), Asked(OWNER, "sums", place="group", must="be numbers", fix=""))
        design, _ = self._make_design(X, exposure, None)
        n = len(design.rows)
        cells = check_groups(OWNER, groups, len(totals))
        if len(cells) != n:
            raise invalid(OWNER, "groups", "have one entry per row of X", got=Described(f"{len(cells)} for {n} rows"))
        if np.ndim(noise.variance) and np.shape(noise.variance) != totals.shape:
            got = Described(f"{np.shape(noise.variance)} for {len(totals)} sums")
            raise invalid(OWNER, "noise", "have one scale, or one for each sum", got=got)
        copies = None if counts is None else check_weights(OWNER, "counts", counts, n_rows=n)
        found = fit_totals(family, design, cells, totals, noise, bounds=bounds, counts=copies, l2=self._read_penalty())
        self._keep_totals(family, design, found, totals, bounds)
        self.noise_, self.noise_scale_ = f"{noise!r}, by others", float(np.sqrt(np.mean(noise.variance)))
        stated = Guarantee.pure(math.inf).assuming(NO_PROMISE) if promise is None else promise
        self.guarantee_, self.seeded_ = stated.assuming(THEIRS), stated.seeded
        return self

    def fit_release(self, X: Any, release: Release, *, exposure: Any = None) -> PrivateGLM:
        """Fit the model to answers that were released before, by any mechanism for classes or numbers; nothing is spent.

        The labels are counts 0 .. C (poisson) or 0 and 1 (binomial), where C stands for all counts from it on: a release of
        classes 0, 1, .., C, or one of `UnbiasedResponse(.., bounds=(0, C), grid="integers")`. From `release_` and the owner's
        features, the model is the owner's.
        """
        check_choice(OWNER, "family", self.family, NAMES)
        listed = np.asarray(check_release(OWNER, release).classes)
        if listed.dtype.kind not in "iuf" or not np.array_equal(listed, np.arange(len(listed))):
            fix = 'Release counts as classes 0 .. C, or with grid="integers".'
            raise invalid(OWNER, "release", "hold counts 0 .. C", got=Described("other labels"), fix=fix)
        bounds = (0.0, float(len(listed) - 1))
        family = find_family(check_choice(OWNER, "family", self.family, ("poisson", "binomial")))
        family.check_bounds(OWNER, bounds)
        self._read_penalty()
        X = release.answered(X, owner=OWNER)
        if exposure is not None:
            exposure = release.answered(exposure, owner=OWNER, name="exposure")
        design, _ = self._make_design(X, exposure, None)
        found = self._solve_answers(family, bounds, design, release.codes, release.channel)
        given = () if exposure is None else ("exposures",)
        self._keep_answers(family, design, found, replace(release, guarantee=assume_public(release.guarantee, *given)))
        return self

    # ------------------------------------------------------------------------------------------------ reading

    def _find_family(self, known: tuple[float, float] | None = None) -> tuple[Family, tuple[float, float]]:
        """Return the family of numbers and the bounds of a label, or refuse; `known` are those of labels in a box."""
        family = find_family(self.family)
        given = known if self.bounds is None else self.bounds
        if given is None and self.family == "binomial":
            given = (0.0, 1.0)
        if given is None:
            fix = "Two public numbers (low, high), known without the labels; what lies outside is clipped."
            raise invalid(OWNER, "bounds", "be given: sensitivity is a multiple of their distance", got=None, fix=fix)
        bounds = check_bounds(OWNER, given)
        family.check_bounds(OWNER, bounds)
        return family, bounds

    def _check_budget(self) -> tuple[float, float, NoiseKey]:
        self._read_penalty()
        epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
        if epsilon == 0:
            raise invalid(OWNER, "epsilon", "be > 0", got=self.epsilon, fix="No finite noise achieves 0.")
        return epsilon, delta, as_key(OWNER, self.random_state, name="random_state")

    def _read_penalty(self) -> float | None:
        return None if isinstance(self.l2, str) and self.l2 == "auto" else check_penalty(OWNER, self.l2)

    def _make_design(
        self, X: Any, exposure: Any, sample_weight: Any, persons: Any = None, *, n_classes: int = 2
    ) -> tuple[Design, Persons | None]:
        with expect_numbers(OWNER, X):
            X = validate_data(self, X, dtype=np.float64)
        owners = None if persons is None else Persons.of(persons, n_rows=len(X), owner=OWNER)
        sharing = None
        if owners is not None and self.statistic == "moments":
            epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
            sharing = Sharing(owners, n_classes, epsilon, delta)
        if exposure is not None and self.family not in ("poisson", "gamma"):
            fix = "Only counts and amounts have one; use sample_weight for weights."
            raise invalid(OWNER, "exposure", f"be left out for {self.family}", got=Described("exposures"), fix=fix)
        design = make_design(
            OWNER,
            X,
            clip=self.clip,
            standardise=self.standardise,
            intercept_scaling=self.intercept_scaling,
            exposure=exposure,
            sample_weight=sample_weight,
            sharing=sharing,
        )
        return design, owners

    @staticmethod
    def _beside(exposure: Any, sample_weight: Any) -> tuple[tuple[str, Any], ...]:
        """What is handed in beside the labels, and must not have seen them, in words."""
        return (("exposures", exposure), ("sample weights", sample_weight))

    # ------------------------------------------------------------------------------------------------ solving

    def _solve(
        self, family: Family, design: Design, sums: Floats, noise: float, bounds: tuple[float, float]
    ) -> FittedWeights:
        """Return the model that the released sums say, from them and the noise alone."""
        exposed = design.weights * design.exposure
        extent, constant = float(exposed.sum()), design.constant
        mean = family.clip_mean(
            float(sums[-1]) / (constant * extent),
            bounds,
            exposure=extent / float(design.weights.sum()),
            noise=noise / (constant * extent),
        )
        offset, factor = family.anchor(mean)
        start = np.full(len(exposed), offset)
        hessian = design.rows.T @ (design.rows * (exposed * factor * family.slope(start))[:, None])
        scores = sums - design.rows.T @ (exposed * factor * family.mean(start))
        penalty = self._find_penalty(
            hessian,
            scores[None, :],
            design,
            noise=noise,
            dispersion=family.dispersion(mean, bounds) * np.asarray(family.guesses),
            spread=family.spread(bounds),
        )

        def objective(weights: Floats) -> tuple[float, Floats]:
            at = offset + design.rows @ weights
            value = float(exposed @ family.cumulant(at)) * factor - sums @ weights + 0.5 * weights @ penalty @ weights
            slope = design.rows.T @ (exposed * factor * family.mean(at)) - sums + penalty @ weights
            return float(value), slope

        weights = minimise_round(objective, np.zeros(len(sums)), hessian + penalty)
        return FittedWeights(weights, offset, factor, getattr(self, "prior_variance_", math.nan))

    def _find_penalty(
        self, hessian: Floats, scores: Floats, design: Design, *, noise: float, dispersion: Any, spread: float
    ) -> Floats:
        """Return the penalty (D, D) of weights and intercept; keep what it follows from."""
        level = hessian[-1, -1]
        lean = hessian[:-1, -1] / level  # next to nothing: columns are centred
        inner = hessian[:-1, :-1] - np.outer(lean, hessian[-1, :-1])
        rest = scores[:, :-1] - np.outer(scores[:, -1], lean)
        penalty = np.zeros_like(hessian)
        given = self._read_penalty()
        self.__dict__.pop("prior_variance_", None)
        self.__dict__.pop("l2_", None)
        if given is not None:
            chosen, self.l2_ = Shrinkage(given * np.eye(len(inner)), math.nan), given
        else:
            length = float(np.average((design.rows[:, :-1] ** 2).sum(axis=1), weights=design.weights))
            most = spread**2 / max(length, 1e-300)
            loud = noise * math.sqrt(1.0 + float(lean @ lean))  # the intercept's noise leans on the others
            chosen = choose_shrinkage(inner, rest, noise=loud, dispersion=dispersion, most=most)
            self.prior_variance_ = chosen.variance
        penalty[:-1, :-1] = chosen.penalty
        penalty[-1, -1] = (float(np.max(dispersion)) + noise**2 / level) * (design.constant / spread) ** 2
        return penalty

    def _fit_classes(self, X: Any, y: Any, exposure: Any, sample_weight: Any, persons: Any) -> PrivateGLM:
        """Release the sums of rows by class, as `SufficientStatistics` does, and solve the softmax model."""
        if self.statistic != "moments":
            raise invalid(OWNER, "statistic", 'be "moments" for multinomial', got=self.statistic)
        epsilon, delta, key = self._check_budget()
        labels = box_labels(OWNER, y, n_rows=_num_samples(X), classes=self.classes, label_set=self.label_set)
        design, owners = self._make_design(X, exposure, sample_weight, persons, n_classes=labels.n_classes)
        if sample_weight is not None:
            labels = labels.with_beside("sample weights")
        grid, step = design.on_grid()
        found = release_moments(
            labels,
            ClassMoments(rows=grid),
            step=step,
            epsilon=epsilon,
            delta=delta,
            key=key,
            ledger=self.ledger,
            persons=owners,
        )
        K, total = labels.n_classes, float(design.weights.sum())
        noise = found.scale * (1.0 if K == 2 else math.sqrt(1.0 - 1.0 / K))  # completion takes a K-th away
        shares = np.maximum(found.sums[:, -1] / (design.constant * total), LEAST_SHARE / K)
        shares /= shares.sum()
        extent = float((shares * (1 - shares)).mean())
        hessian = extent * (design.rows.T @ (design.rows * design.weights[:, None]))
        scores = found.sums - np.outer(shares, design.rows.T @ design.weights)
        penalty = self._find_penalty(hessian, scores, design, noise=noise, dispersion=1.0, spread=2.0)
        # In the coordinates L'b, L L' = P, the penalty is round, as the solver wants it.
        factor = np.linalg.inv(np.linalg.cholesky(penalty)).T
        offsets = np.log(shares)[None, :]
        solved = solve_softmax(
            design.rows @ factor, found.sums @ factor, offsets, l2=1.0, max_iter=500, row_weights=design.weights
        )
        self._keep_release(found, found.sums)
        self.coef_, self.intercept_ = design.map_back(solved @ factor.T, np.log(shares))
        self.classes_ = np.asarray(labels.classes)
        self.guarantee_, self.seeded_ = found.guarantee, key.seeded
        return self

    def _fit_rounds(
        self,
        family: Family,
        design: Design,
        box: Any,
        bounds: tuple[float, float],
        *,
        epsilon: float,
        key: NoiseKey,
        weighted: Any,
        persons: Persons | None,
    ) -> PrivateGLM:
        """Release totals of groups in rounds, and fit the model to all of them."""
        _refuse_weights(weighted)
        found = release_rounds(
            OWNER,
            family,
            design,
            box,
            bounds=bounds,
            epsilon=epsilon,
            rounds=check_integer(OWNER, "rounds", self.rounds, least=1, most=100),
            n_groups=None if self.n_groups == "auto" else check_integer(OWNER, "n_groups", self.n_groups, least=1),
            l2=self._read_penalty(),
            key=key,
            ledger=self.ledger,
            persons=persons,
        )
        self._keep_totals(family, design, found.model, found.sums, bounds)
        self.noise_, self.noise_scale_ = found.words, float(np.sqrt(found.noise.variance))
        self.guarantee_, self.seeded_ = found.guarantee, key.seeded
        return self

    def _solve_answers(
        self, family: Family, bounds: tuple[float, float], design: Design, codes: Any, channel: FiniteChannel
    ) -> Answered:
        """Return the model of the largest posterior for these answers."""

        def find_penalty(hessian: Floats, scores: Floats) -> Floats:
            spread = family.spread(bounds)
            return self._find_penalty(hessian, scores[None, :], design, noise=0.0, dispersion=1.0, spread=spread)

        return AnsweredModel.start(family, design, codes, channel, bounds=bounds).fit(find_penalty)

    # ------------------------------------------------------------------------------------------------ keeping

    def _keep_answers(self, family: Family, design: Design, found: Answered, release: Release) -> None:
        for name in ("statistic_", "sensitivity_", "noise_", "noise_scale_", "stages_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        self._keep_model(family, design, found.fitted, (0.0, float(len(release.classes) - 1)))
        self.release_, self.guarantee_, self.seeded_ = release, release.guarantee, release.seeded

    def _keep_release(self, found: Moments, sums: Floats) -> None:
        for name in ("release_", "stages_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        self.statistic_, self.sensitivity_ = sums, found.sensitivity
        self.noise_, self.noise_scale_ = found.noise, found.scale

    def _keep_totals(
        self, family: Family, design: Design, found: FittedWeights, sums: Floats, bounds: tuple[float, float]
    ) -> None:
        for name in ("l2_", "prior_variance_", "sensitivity_", "release_", "stages_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        given = self._read_penalty()
        if given is None:
            self.prior_variance_ = found.prior_variance
        else:
            self.l2_ = given
        self.statistic_ = sums
        self._keep_model(family, design, found, bounds)

    def _keep_model(self, family: Family, design: Design, fitted: FittedWeights, bounds: tuple[float, float]) -> None:
        """Keep coefficients of the columns as they came, and the score beyond which a log link does not go."""
        start = fitted.offset + math.log(fitted.factor)
        self.coef_, self.intercept_ = design.map_back(fitted.weights, start)
        self.bounds_, self.top_score_ = bounds, start + TOP if family.takes_exposure else math.inf
        self.__dict__.pop("classes_", None)

    # ------------------------------------------------------------------------------------------------ predicting

    def _find_scores(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        scores: Floats = rows @ self.coef_.T + self.intercept_
        return scores

    def predict(self, X: Any, *, exposure: Any = None) -> npt.NDArray[Any]:
        """Return the mean of each row's label, times its exposure; for multinomial the likeliest class.

        Means of gaussian labels are brought within the bounds, which are public.
        """
        scores = self._find_scores(X)
        if self.family == "multinomial":
            named: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
            return named
        if self.family == "gaussian":
            return np.clip(scores, *self.bounds_)
        if self.family == "binomial":
            return find_family("binomial").mean(scores)
        means: Floats = np.exp(np.minimum(scores, self.top_score_)) * check_exposure(
            OWNER, exposure, n_rows=len(scores)
        )
        return means

    @available_if(lambda self: self.family in ("binomial", "multinomial"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities: (n, K) in the order of `classes_`, or of 0 and 1 for binomial labels; others have none."""
        scores = self._find_scores(X)
        if self.family == "multinomial":
            return softmax(scores)
        share = find_family("binomial").mean(scores)
        return np.column_stack([1 - share, share])

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        labels_are_public: bool = False,
    ) -> float:
        """Return the share of the null model's deviance that is explained, on raw labels y, outside any guarantee.

        The null model has the mean of y (per unit of exposure). For gaussian labels this is R^2; of classes the answer is
        the accuracy. `labels_are_public` as for every learner: without it a `RawLabelWarning` is given, once.
        """
        check_raw_labels(OWNER, y, declared=labels_are_public)
        if self.family == "multinomial":
            return compare_labels(OWNER, accuracy_score, y, self.predict(X), sample_weight)
        predicted = self.predict(X, exposure=exposure)
        n = len(predicted)
        with hide_labels(f"{OWNER}.score", "y", must=f"be {n} numbers, one per row"):
            values = np.asarray(y, np.float64).reshape(n)
        weights = (
            np.ones(n) if sample_weight is None else check_weights(OWNER, "sample_weight", sample_weight, n_rows=n)
        )
        exposed, family = check_exposure(OWNER, exposure, n_rows=n), find_family(self.family)
        null = exposed * float(weights @ values) / float(weights @ exposed)
        lost, whole = (float(weights @ family.deviance(values, mean)) for mean in (predicted, null))
        return 1.0 - lost / whole if whole > 0 else 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.family == "multinomial":
            tags.estimator_type, tags.regressor_tags = "classifier", None
            tags.classifier_tags = ClassifierTags()
        return replace(tags)


def _refuse_weights(sample_weight: Any) -> None:
    if sample_weight is not None:
        fix = 'Totals of groups and answers to labels have none; use statistic="moments".'
        raise invalid(OWNER, "sample_weight", "be left out", got=Described("weights"), fix=fix)
