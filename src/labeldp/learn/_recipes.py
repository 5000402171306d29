r"""Which stages and which prior: the default that "auto" stands for, from epsilon, the number of classes and of examples.

Let n be the examples, K the classes and e the budget. The prior is a noisy histogram of labels per cluster. A count has
noise of scale 2 / e_p, the largest of K of them is about (2 / e_p) ln K, and a cluster's own class should stand far
above that: clusters of

    size = 22 ln K / e_p                                  (50 / e_p for ten classes)

examples, at most 1000 of them. The budget is divided by

    e <= 0.2         one histogram takes all of it; no label is released (stages = 0);
    e <= 1           two histograms of e / 2 take all of it, the second on clusters of what a model learned from the
                     first (`StagedClusterPrior`);
    e  > 1           one histogram takes 1/4, and the labels are released by RRWithPrior at e - 1/4, in three parts
                     (0.4, 0.3, 0.3), each with the model of the parts before it as prior.

An estimator without `fit_targets` has one histogram throughout, alone up to e = 0.3, and then min(e / 2, 1/4). Where even
two clusters would be too small, or e is 0 or infinite, there is no prior: two stages of the paper (one, at 0 or infinity).
One histogram, the parts and their numbers are those of RECIPES.md.

>>> recipe(0.1, n_examples=60_000, n_classes=10)
Recipe(shares=(), prior=ClusterPrior(n_clusters=118, ..., whole_budget=True, random_state=0))
>>> recipe(2.0, n_examples=60_000, n_classes=10).shares
(0.4, 0.3, 0.3)
>>> recipe(0.1, n_examples=100, n_classes=10).prior
UniformPrior()

Trust: the histogram is counted by a curator who sees the labels, and the guarantee says so. `stages=2, prior=None` needs
no one's trust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labeldp._validate import check_choice
from labeldp.errors import invalid
from labeldp.learn._stages import stage_shares
from labeldp.priors import ClusterPrior, Prior, StagedClusterPrior, UniformPrior
from labeldp.priors._staged import cluster_count

#: Up to these epsilons histograms alone were better than a histogram and a response: one of them, and two.
ONE_ALONE, TWO_ALONE = 0.3, 1.0
#: Below this epsilon half of it is too little for a histogram.
LEAST_FOR_TWO = 0.2
#: What a histogram before a response takes at most: more was worth less than a better response.
BEFORE_RESPONSE = 0.25
SHARES = (0.4, 0.3, 0.3)
#: Principal components that are clustered, steps of k-means over all rows, and noise scales taken off a noisy count.
COMPONENTS = 128
FULL_STEPS = 12
SHRINK = 0.5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The shares of the stages (none: no label is released) and where the first prior comes from."""

    shares: tuple[float, ...]
    prior: Prior


def recipe(
    epsilon: float,
    *,
    n_examples: int,
    n_classes: int,
    stages: Any = "auto",
    prior: Any = "auto",
    estimator: Any = None,
) -> Recipe:
    """Return what to do; what is not "auto" is taken as it is, and `None` is the uniform prior."""
    many = hasattr(estimator, "fit_targets")
    if isinstance(stages, str):
        check_choice("LabelPrivateClassifier", "stages", stages, ("auto",))
        alone = epsilon <= (TWO_ALONE if many else ONE_ALONE)
    else:
        alone = _is_none(stages)
    count = 2 if many and alone and epsilon > LEAST_FOR_TWO else 1
    source = prior
    if isinstance(prior, str):
        check_choice("LabelPrivateClassifier", "prior", prior, ("auto",))
        sizes = {"n_examples": n_examples, "n_classes": n_classes}
        source = _histograms(epsilon, count, alone=alone, estimator=estimator, **sizes)
    source = UniformPrior() if source is None else source
    if isinstance(stages, str):
        return Recipe(shares=_shares(epsilon, source, alone=alone and isinstance(prior, str)), prior=source)
    if alone and isinstance(source, UniformPrior):
        fix = "Without a label and without a prior there is nothing to learn from; use ClusterPrior(), or a stage."
        raise invalid("LabelPrivateClassifier", "stages", "be 1 or more without a prior", got=stages, fix=fix)
    return Recipe(shares=() if alone else stage_shares(stages, epsilon), prior=source.alone() if alone else source)


def _is_none(stages: Any) -> bool:
    return isinstance(stages, int) and not isinstance(stages, bool) and stages == 0


def _shares(epsilon: float, source: Prior, *, alone: bool) -> tuple[float, ...]:
    """Return the shares for "auto": none, the three parts, or the paper's two where nothing is known."""
    if isinstance(source, UniformPrior):
        return stage_shares(2 if 0 < epsilon < math.inf else 1, epsilon)
    return () if alone else SHARES


def _histograms(epsilon: float, count: int, *, alone: bool, estimator: Any, n_examples: int, n_classes: int) -> Prior:
    """Return the histogram or histograms that this much data can carry, or the uniform prior."""
    if not 0 < epsilon < math.inf:
        return UniformPrior()
    spent = epsilon if alone else min(epsilon / 2, BEFORE_RESPONSE)
    clusters = cluster_count(spent / count, n_examples=n_examples, n_classes=n_classes)
    if clusters < 2:
        return UniformPrior()
    told = None if alone else spent
    if count > 1:
        return StagedClusterPrior(
            estimator,
            histograms=count,
            epsilon=told,
            n_components=COMPONENTS,
            full_steps=FULL_STEPS,
            shrink=SHRINK,
            whole_budget=alone,
        )
    return ClusterPrior(
        n_clusters=clusters,
        epsilon=told,
        n_components=COMPONENTS,
        full_steps=FULL_STEPS,
        shrink=SHRINK,
        whole_budget=alone,
    )
