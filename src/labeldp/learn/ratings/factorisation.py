"""`MatrixFactorisation`: a learner of ratings that takes the outputs of any channel, noisy sums, or plain numbers.

>>> import labeldp
>>> pairs = [(u, i) for u in range(40) for i in range(30)]
>>> ratings = [1 + 4 * (i % 2) for u, i in pairs]
>>> labels = labeldp.SensitiveLabels(ratings, classes=[1, 5])
>>> release = labeldp.privatize(labels, labeldp.RandomizedResponse(2.0), rng=0)
>>> model = MatrixFactorisation(factors=2, random_state=0).fit_release(pairs, release)
>>> model.predict([(0, 0), (0, 1)]).round().tolist()
[1.0, 5.0]

Model and sampler are in `labeldp.learn.ratings.gibbs`. A receiver of a release learns the model that its owner would: the
learner sees released values and public pairs only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from labeldp.arrays import Floats
from labeldp.channel import MeanEvidence, MeanTable, NormalLaws
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.learn.ratings.gibbs import Evidence, Progress, SamplerSettings, sample_factors
from labeldp.learn.ratings.pairs import CellSums, PairTable, find_ids, split_pairs
from labeldp.release import Release
from labeldp.validate import check_integer, check_positive


class MatrixFactorisation(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Predict a number for a (user, item) pair by factors of both, averaged over their posterior.

    Parameters
    ----------
    factors : int
        Numbers per user and item, at least 2; the first two start as the biases.
    sweeps, burn : int
        Passes of the sampler, and how many of them are thrown away.
    pair_features : int
        Singular vectors of the 0/1 matrix of pairs that serve as prior means of the factors; 0 for none. Who rated what is
        taken to be public.
    dispersion : float, optional
        Public guess at the variance of a rating around its mean, before truncation to the values; by default a quarter
        of the range, squared.
    random_state : int, optional
        Seeds the sampler. It works on released values only: this is not privacy noise.

    Attributes
    ----------
    values_ : the rating values;  user_ids_, item_ids_ : the ids that it knows
    center_, user_factors_, item_factors_ : kept samples; the last row of a sample stands for ids that were not seen

    Notes
    -----
    Model and sampler: `labeldp.learn.ratings.gibbs`. Memory is (sweeps - burn)(users + items) factors 4 bytes.

    Examples
    --------
    >>> pairs = [(u, i) for u in range(30) for i in range(20)]
    >>> ratings = [1 + 4 * ((u + i) % 2) for u, i in pairs]
    >>> model = MatrixFactorisation(factors=4, random_state=0).fit(pairs, ratings)
    >>> model.predict([(0, 0), (0, 1)]).round().tolist()
    [1.0, 5.0]
    """

    def __init__(
        self,
        *,
        factors: int = 8,
        sweeps: int = 40,
        burn: int = 12,
        pair_features: int = 16,
        dispersion: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.factors = factors
        self.sweeps = sweeps
        self.burn = burn
        self.pair_features = pair_features
        self.dispersion = dispersion
        self.random_state = random_state

    def fit(self, pairs: Any, ratings: Any, *, progress: Progress | None = None) -> MatrixFactorisation:
        """Learn from plain numbers: public ratings, or a comparison without privacy."""
        numbers = np.asarray(ratings, dtype=np.float64)
        table = PairTable.of(pairs)
        _check_length(table, len(numbers), "ratings")
        if not np.all(np.isfinite(numbers)) or np.ptp(numbers) == 0:
            got = Described("a missing one, or all the same")
            raise invalid("MatrixFactorisation", "ratings", "be finite numbers that differ", got=got)
        ends = np.unique(numbers)
        values = ends if len(ends) <= 64 else np.linspace(ends[0], ends[-1], 5)
        return self.fit_evidence(table, Evidence(numbers=numbers), values, progress=progress)

    def fit_release(
        self,
        pairs: Any,
        release: Release | None = None,
        *,
        values: Any = None,
        by_user: CellSums | None = None,
        by_item: CellSums | None = None,
        progress: Progress | None = None,
    ) -> MatrixFactorisation:
        """Learn from a release of numbers or numeric classes (any channel), from private sums, or from both; no label is needed.

        `values` are the rating values where there is no release that says them.
        """
        table = PairTable.of(pairs)
        numbers = rating_values(release.classes if release is not None else values)
        responses = None
        if release is not None:
            _check_length(table, len(release), "release")
            responses = MeanEvidence.read(release.codes, release.channel, self.family(numbers))
        evidence = Evidence(responses=responses, by_user=by_user, by_item=by_item)
        return self.fit_evidence(table, evidence, numbers, progress=progress)

    def fit_evidence(
        self,
        table: PairTable,
        evidence: Evidence,
        values: Any,
        *,
        features: tuple[Floats, Floats] | None = None,
        progress: Progress | None = None,
    ) -> MatrixFactorisation:
        """Learn from tabulated evidence: what the other two end in. `features` are those of the ids of `table`."""
        settings = self._settings()
        dimensions = check_integer("MatrixFactorisation", "pair_features", self.pair_features, least=0)
        made = table.features(dimensions) if features is None else features
        family = self.family(values)
        samples = sample_factors(table, evidence, family, made, settings, seed=self.random_state, progress=progress)
        self.values_ = family.values
        self.user_ids_, self.item_ids_ = table.user_ids, table.item_ids
        self.center_, self.user_factors_, self.item_factors_ = samples.center, samples.users, samples.items
        return self

    def predict(self, pairs: Any) -> Floats:
        """Return the posterior mean rating of each pair, within the values; an id that was not seen is an average one."""
        mean, _ = self.moments(*self._find_pairs(pairs))
        return mean

    def predict_spread(self, pairs: Any) -> Floats:
        """Return the posterior standard deviation of each pair's mean rating."""
        _, spread = self.moments(*self._find_pairs(pairs))
        return spread

    def family(self, values: Any) -> MeanTable:
        """Return the law of a label given its mean that this learner assumes."""
        if self.dispersion is not None:
            check_positive("MatrixFactorisation", "dispersion", self.dispersion)
        return MeanTable.of(NormalLaws(values, self.dispersion))

    def _find_pairs(self, pairs: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        check_is_fitted(self, "user_factors_")
        left, right = split_pairs(pairs)
        return find_ids(left, self.user_ids_), find_ids(right, self.item_ids_)

    def moments(self, users: Any, items: Any) -> tuple[Floats, Floats]:
        """Return posterior mean and deviation for pairs given as positions in `user_ids_` and `item_ids_`."""
        from labeldp.learn.ratings import kernels

        mean, square = np.empty(len(users)), np.empty(len(users))
        kernels.moments(users, items, self.user_factors_, self.item_factors_, mean, square)
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        return np.clip(self.center_ + mean, self.values_[0], self.values_[-1]), spread

    def _settings(self) -> SamplerSettings:
        owner = "MatrixFactorisation"
        sweeps = check_integer(owner, "sweeps", self.sweeps, least=1)
        return SamplerSettings(
            factors=check_integer(owner, "factors", self.factors, least=2),
            sweeps=sweeps,
            burn=check_integer(owner, "burn", self.burn, least=0, most=sweeps - 1),
        )


def rating_values(classes: Any) -> Floats:
    """Return classes as rising numbers, or say that they are no ratings."""
    if classes is None:
        raise invalid("ratings", "values", "be given", got=None, fix="The public list of rating values.")
    try:
        numbers = np.asarray([float(value) for value in classes])
    except (TypeError, ValueError):
        fix = "A rating is a number: use a classifier for other labels."
        raise invalid("ratings", "values", "be numbers", got=Described("other values"), fix=fix) from None
    if len(numbers) < 2 or not np.all(np.isfinite(numbers)) or not np.all(np.diff(numbers) > 0):
        got = Described(f"{len(numbers)} that are not, or one of them alone")
        raise invalid("ratings", "values", "be two or more rising numbers", got=got)
    return numbers


def _check_length(table: PairTable, n: int, name: str) -> None:
    if len(table) != n:
        raise LabelDPError(f"ratings: `{name}` must have one entry per pair, got {n} for {len(table)} pairs.")
