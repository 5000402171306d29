"""The treatments of the study `ratings`: what is released of each rating, and what learns from it.

>>> [case.setting for case in CASES if case.paper][:2]
['NCF, LP-1ST', 'NCF, LP-2ST']

Each case is one more part than the one before: an unordered channel, an ordered one, one that adapts, features of the
public pairs; and sums in place of responses. Settings are the library's defaults at every epsilon. They were picked by test
RMSE on another random split of the same table, whose test rows overlap with those here, so the best is optimistic by a
few thousandths: `ratings.CHOSEN` says what was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.guarantee import Guarantee
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.ratings import GroupSums, LabelPrivateRatings, MatrixFactorisation
from labeldp.learn.ratings.evidence import PairTable
from labeldp.learn.ratings.private import default_factors, laplace_variance
from labeldp.mechanisms import RandomizedResponse
from labeldp.release import LabelSums, SensitiveLabels, measure, privatize

VALUES = (1.0, 2.0, 3.0, 4.0, 5.0)
#: Passes over the ratings of the paper's network here; its preset for a GPU has 200.
NCF_EPOCHS = 3
#: A film's mean varies by half a star, a rating around it by one: what shrinks a noisy film mean.
_FILM_VARIANCE, _RATING_VARIANCE = 0.25, 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RatingData:
    """Pairs and star codes, split as `labeldp.data` splits them; `table` holds the training pairs as positions."""

    pairs: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    test_pairs: npt.NDArray[np.int64]
    test_stars: Floats
    table: PairTable

    def labels(self) -> SensitiveLabels:
        """The training ratings, boxed, with their public values."""
        return SensitiveLabels(np.asarray(VALUES)[self.codes], classes=VALUES, name="ratings")


#: (data, epsilon, seed) -> predicted stars of the test pairs, and the promise
Answer = Callable[[RatingData, float, int], tuple[Floats, Guarantee]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A treatment; `paper` is its printed RMSE at an epsilon, `part` says what it is there for."""

    setting: str
    answer: Answer
    paper: dict[float, float] = field(default_factory=dict)
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0, 4.0)
    one_seed: bool = False


def private_mean(data: RatingData, epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
    """One noisy sum of all stars, less three each."""
    told = measure(data.labels(), LabelSums(scores=np.arange(-2, 3)), epsilon=epsilon, rng=seed)
    return np.full(len(data.test_pairs), 3.0 + float(told.value[0]) / len(data.codes)), told.guarantee


def private_item_means(data: RatingData, epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
    """A noisy sum per film, shrunk towards the mean of all: the best linear estimate for the two public variances."""
    table = data.table
    query = GroupSums(scores=np.arange(-2, 3), groups=table.items, n_groups=table.n_items)
    told = measure(data.labels(), query, epsilon=epsilon, rng=seed)
    counts = np.bincount(table.items, minlength=table.n_items).astype(np.float64)
    center = float(told.value.sum()) / counts.sum()
    noise = laplace_variance(epsilon / 4) + _RATING_VARIANCE * counts
    share = _FILM_VARIANCE * counts / (_FILM_VARIANCE * counts**2 + noise)
    means = np.append(3.0 + center + share * (told.value - center * counts), 3.0 + center)
    return means[table.find(data.test_pairs)[1]], told.guarantee


def network(stages: int) -> Answer:
    """The paper's treatment: five classes, LP-MST, plain cross entropy; the prediction is the mean under the softmax."""

    def answer(data: RatingData, epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
        from labeldp.nn import NetClassifier

        positions = np.column_stack([data.table.users, data.table.items])
        model = LabelPrivateClassifier(
            NetClassifier("ncf", epochs=NCF_EPOCHS, random_state=seed),
            epsilon=epsilon,
            stages=stages,
            correction="none",
            classes=range(len(VALUES)),
            random_state=seed,
        ).fit(positions, data.codes)
        asked = np.column_stack(data.table.find(data.test_pairs))
        return model.predict_proba(asked) @ np.asarray(VALUES), model.guarantee_

    return answer


def unordered(data: RatingData, epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
    """Randomized response over the five stars, and the factor learner on its channel; no features of pairs."""
    release = privatize(data.labels(), RandomizedResponse(epsilon), rng=seed)
    model = learner(epsilon, seed, pair_features=0).fit_release(data.pairs, release)
    return model.predict(data.test_pairs), release.guarantee


def recipe(*, sums: float, stages: int | None, public_pairs: bool) -> Answer:
    """`LabelPrivateRatings` with these settings."""

    def answer(data: RatingData, epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
        model = LabelPrivateRatings(
            learner(epsilon, seed, pair_features=16 if public_pairs else 0),
            epsilon=epsilon,
            sums=sums,
            stages=stages,
            values=VALUES,
            random_state=seed,
        ).fit(data.pairs, data.labels())
        return model.predict(data.test_pairs), model.guarantee_

    return answer


def not_private(data: RatingData, _epsilon: float, seed: int) -> tuple[Floats, Guarantee]:
    """The factor learner on plain ratings."""
    model = learner(8.0, seed, pair_features=16).fit(data.pairs, np.asarray(VALUES)[data.codes])
    return model.predict(data.test_pairs), Guarantee.pure(float("inf"))


def learner(epsilon: float, seed: int, *, pair_features: int) -> MatrixFactorisation:
    """The factor learner as `LabelPrivateRatings` sets it up by default."""
    return MatrixFactorisation(factors=default_factors(epsilon), pair_features=pair_features, random_state=seed)


FIXED, ADAPTIVE = "factors, fixed staircase", "factors, adaptive staircase"
UNORDERED, RESPONSES = "factors, randomized response", "factors, adaptive staircase, public pairs"
PLAIN_SUMS, SUMS = "factors, private sums", "factors, private sums, public pairs"
CASES = (
    Case(setting="private mean", answer=private_mean),
    Case(setting="private film means", answer=private_item_means),
    Case(
        setting="NCF, LP-1ST",
        answer=network(1),
        paper={1.0: 1.122, 2.0: 0.981, 3.0: 0.902, 4.0: 0.877},
        epsilons=(1.0, 2.0, 3.0, 4.0),
    ),
    Case(
        setting="NCF, LP-2ST",
        answer=network(2),
        paper={1.0: 1.034, 2.0: 0.928, 3.0: 0.891, 4.0: 0.874},
        epsilons=(1.0, 2.0, 3.0, 4.0),
    ),
    Case(setting=UNORDERED, answer=unordered, one_seed=True, epsilons=(1.0, 2.0, 4.0)),
    Case(
        setting=FIXED,
        answer=recipe(sums=0.0, stages=1, public_pairs=False),
        one_seed=True,
        epsilons=(1.0, 2.0, 4.0),
    ),
    Case(
        setting=ADAPTIVE,
        answer=recipe(sums=0.0, stages=None, public_pairs=False),
        one_seed=True,
        epsilons=(1.0, 2.0, 4.0),
    ),
    Case(setting=RESPONSES, answer=recipe(sums=0.0, stages=None, public_pairs=True), epsilons=(1.0, 2.0, 3.0, 4.0)),
    Case(
        setting=PLAIN_SUMS,
        answer=recipe(sums=1.0, stages=None, public_pairs=False),
        one_seed=True,
        epsilons=(0.5, 1.0, 2.0),
    ),
    Case(setting=SUMS, answer=recipe(sums=1.0, stages=None, public_pairs=True), epsilons=(0.5, 1.0, 2.0)),
)
