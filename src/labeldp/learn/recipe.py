r"""The recipe: what "auto" stands for, from epsilon, the numbers of examples and classes, and whom the user trusts.

>>> recipe(1.0, n_examples=60_000, n_classes=10)
Recipe(shares=(0.25, 0.75), prior=UniformPrior())
>>> recipe(0.1, n_examples=60_000, n_classes=10, trust="curator")
Recipe(shares=(), prior=ClusterPrior(n_clusters=118, ..., whole_budget=True, random_state=0))
>>> recipe(1.0, n_examples=60_000, n_classes=10, trust="curator").prior  # answers teach as much
UniformPrior()

Let n be the examples, K the classes and e the budget.

**No one is trusted.** Every label is answered once, by `InformativeResponse`: a set of labels. A quarter of the examples are asked
without a prior, and the others with the model of that quarter as prior, which makes their answers tell more. That pays once
the quarter has taught something: an answer has at most I(e) nats (`most_information`), and

    n / 4 I(e) >= K max(10, 4.3 ln K)                     two stages, (1/4, 3/4); else one.

For a network on features, whose answers are pooled where they say little, a quarter always pays. To tell K classes apart takes ln K nats an example, so that many classes need more: with 150 intents of 15,000 sentences at epsilon
2, two stages would lose ten points (the study `many-classes`).

With two classes a prior changes nothing, and with epsilon 0 or infinity there is nothing to choose: one stage. So it is for an
estimator without `fit_likelihood`, whose fits on a quarter are calibrated by too few rows, and for one whose fits are long
(`fits_once`): a network that learns its own features from pixels. Whoever is trusted, "auto" is then one draw and one fit by the
forward loss: clusters of pixels would say little. Where it has a quick reader, though, on features, which reads for it or asks for it, the plan
is the reader's (`labeldp.learn.readers`).

How the answers are read is not decided here, since a receiver reads them too: one by one, by the forward loss, and by a network in
rounds of EM too (`labeldp.learn.stages`); or, where all of them together say little, pooled in clusters first (`labeldp.learn.pools`).

**A curator is trusted.** She counts labels in clusters of the features, with noise of scale 2 / e_p. The largest of K such
noises is about (2 / e_p) ln K, and a cluster's own class should stand far above it: clusters of 22 ln K / e_p examples. A
histogram is worth most for its first dozen clusters a class, which cost

    e_1 = 22 ln K 12 K / n.

    e <  8 e_1       the histogram takes all of e, and no label is answered (stages = 0);
    e >= 8 e_1       answers alone teach as much: nothing is counted, and the curator is not needed.

So the more rows there are, the less needs to be counted: e_1 is 0.1 for 60,000 examples of ten classes, and 0.76 for 8,000.
With few rows the limit is 3 at most: from there on an answer says much by itself. For a network on features and for a linear
model it is 1.5 at most: their answers are pooled in clusters too, and teach as much from there on. Where the data cannot carry two
clusters she has nothing to do either, nor with more than 30 classes: what a histogram is worth was measured with ten.

Counting and answering both, a part of e for each, is no way of "auto" any more. It lost to counts alone below the limit, and to answers
alone above it, on digits and on clothes, for a network and for a linear model: a network that reads faint answers learns their
noise, which a model of counts does not have. It is there for who asks for it, with `prior` and `stages`.

What is not "auto" is taken as it is. Only numbers that are public decide: no label, and no feature. The constants were found by
experiments on images with ten classes; the study `recipes` compares the rule with the ways that it chooses from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labeldp.errors import invalid
from labeldp.learn.corrections import fits_once
from labeldp.learn.pools import pools_features, says_little
from labeldp.learn.settings import stage_shares
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.mechanisms.informative import most_information
from labeldp.priors import ClusterPrior, Prior, UniformPrior
from labeldp.priors.staged import EVIDENCE, cluster_count
from labeldp.validate import check_choice

OWNER = "LabelPrivateClassifier"
NO_ONE, CURATOR = "no one", "curator"
#: Two stages without a curator, and the nats per class that the first has to teach: with many classes, so many times ln K.
SHARES = (0.25, 0.75)
LEAST_NATS, NATS_OF_MANY = 10.0, 4.3
#: Up to so many classes persons are asked in one stage: two did not pay with three classes (study `persons`).
FEW_CLASSES = 3
#: Clusters a class of a histogram that is worth its budget, and the multiple of its cost from which on answers are worth more.
CLUSTERS_PER_CLASS, ANSWERS = 12, 8.0
#: The same limit as a budget, whatever the rows: such answers say much by themselves; and where answers are pooled in clusters.
MOST_COUNTED, MOST_POOLED = 3.0, 1.5
#: Histograms were measured with ten classes; with more classes than this, answers alone.
MOST_CLASSES = 30
#: Principal components that are clustered, steps of k-means over all rows, and noise scales taken off a noisy count.
HISTOGRAM: dict[str, Any] = {"n_components": 128, "full_steps": 12, "shrink": 0.5}


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
    trust: str | None = None,
    estimator: Any = None,
    of_persons: bool = False,
) -> Recipe:
    """Return what to do with a budget.

    Parameters
    ----------
    epsilon : float
        The whole budget.
    n_examples, n_classes : int
        How many labels there are, and of how many classes.
    stages, prior, trust
        As for `LabelPrivateClassifier`. What is not "auto" is taken as it is, and a prior of None is the uniform one.
    estimator : classifier, optional
        What will be trained, by default SoftmaxRegression; two stages need one with `fit_likelihood`, whose fits are not long.
    of_persons : bool
        Whether all labels of a person are protected together; `n_examples` are then persons.

    Raises
    ------
    LabelDPError
        If there are neither stages nor a prior: then there would be nothing to learn from.
    """
    estimator = SoftmaxRegression() if estimator is None else estimator
    if trust is not None:
        check_choice(OWNER, "trust", trust, (NO_ONE, CURATOR))
    known = {"stages": (stages, 'be "auto", a number, or shares', "For example stages=2, or stages=(0.7, 0.3).")}
    known["prior"] = (prior, 'be "auto", None, or a prior', 'For example prior=ClusterPrior(), or trust="curator".')
    for name, (value, must, fix) in known.items():
        if isinstance(value, str) and value != "auto":
            raise invalid(OWNER, name, must, got=value, fix=fix)
    sizes = {"n_examples": n_examples, "n_classes": n_classes}
    silent = isinstance(stages, int) and not isinstance(stages, bool) and stages == 0
    source = UniformPrior() if prior is None else prior
    once = fits_once(estimator)
    if isinstance(prior, str):
        asked = None if isinstance(stages, str) else silent
        counted = trust == CURATOR and not (once and not silent)
        source = (
            _choose_histogram(epsilon, silent=asked, pooled=pools_features(estimator), **sizes) if counted else None
        )
        source = UniformPrior() if source is None else source
    if silent and isinstance(source, UniformPrior):
        fix = 'Without a label and without a prior there is nothing to learn from; use trust="curator", ClusterPrior(), or a stage.'
        raise invalid(OWNER, "stages", "be 1 or more without a prior", got=stages, fix=fix)
    if silent:
        return Recipe(shares=(), prior=source.alone())
    if not isinstance(stages, str):
        return Recipe(shares=stage_shares(stages, epsilon), prior=source)
    if isinstance(prior, str) and not isinstance(source, UniformPrior):
        return Recipe(shares=(), prior=source)
    few = of_persons and n_classes <= FEW_CLASSES
    taught = hasattr(estimator, "fit_likelihood") and not once and not few and _teaches(epsilon, estimator, **sizes)
    return Recipe(shares=SHARES if taught else (1.0,), prior=source)


def _teaches(epsilon: float, estimator: Any, *, n_examples: int, n_classes: int) -> bool:
    """Whether the first of two stages would teach enough to choose the questions of the second."""
    if n_classes == 2 or not 0 < epsilon < math.inf or n_examples < len(SHARES) / min(SHARES):
        return False
    linear = isinstance(estimator, SoftmaxRegression)
    if pools_features(estimator) and not linear and says_little(epsilon, n_examples=n_examples, n_classes=n_classes):
        return True
    least = n_classes * max(LEAST_NATS, NATS_OF_MANY * math.log(n_classes))
    return SHARES[0] * n_examples * most_information(epsilon) >= least


def _choose_histogram(
    epsilon: float, *, silent: bool | None, pooled: bool, n_examples: int, n_classes: int
) -> Prior | None:
    """Return the histogram that this much data can carry, or None; `silent` where stages say it already."""
    if not 0 < epsilon < math.inf:
        return None
    first = EVIDENCE * math.log(max(n_classes, 2)) * CLUSTERS_PER_CLASS * n_classes / n_examples
    limit = min(ANSWERS * first, MOST_POOLED if pooled else MOST_COUNTED)
    if silent is None and (n_classes > MOST_CLASSES or epsilon >= limit):
        return None
    alone = silent is None or silent
    spent = epsilon if alone else min(first, epsilon / 2)
    clusters = cluster_count(spent, n_examples=n_examples, n_classes=n_classes)
    if clusters < 2:
        return None
    return ClusterPrior(n_clusters=clusters, epsilon=None if alone else spent, whole_budget=alone, **HISTOGRAM)
