"""`ClusterPrior`: beliefs from a noisy histogram of labels in each cluster of the features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp._validate import check_epsilon, check_integer, check_real
from labeldp.errors import Described, invalid
from labeldp.priors._base import Ints, Prior, PriorTable
from labeldp.priors._clustering import cluster as cluster  # noqa: PLC0414 - studies import it from here
from labeldp.priors._flat import flat_features
from labeldp.release import LabelCounts, SensitiveLabels, measure
from labeldp.release._counting import shares
from labeldp.release._queries import check_groups

#: The rule of thumb: a histogram pays when epsilon_p times the cluster size is about this.
EPSILON_TIMES_SIZE = 25.0
MOST_CLUSTERS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterPrior(Prior):
    """Cluster the features without labels, count labels per cluster with noise, and believe the shares.

    Each cluster's counts get discrete Laplace noise of rate epsilon_p / 2 (one changed label moves two counts; with two
    classes one count at rate epsilon_p), are clipped at 0 and divided by their sum; a cluster left with nothing is
    uniform (Ghazi et al. 2021, Algorithm 4, with one independent draw per count).

    Parameters
    ----------
    n_clusters : int, optional
        Clusters of MiniBatchKMeans. By default sized to the budget: about 50 / epsilon examples each, at most 1000.
    groups : integer array of shape (n,), optional
        The user's own cluster of each example, 0 .. C-1, instead.
    epsilon : float, optional
        epsilon_p, what the histogram spends. By default 25 / (mean cluster size), between a twentieth (of at most 1) and
        half of the budget.
    n_components : int, optional
        Cluster on this many principal components of features that have more; by default on the features as they are.
        Views of an example (a third axis) are averaged first.
    full_steps : int
        Steps of k-means over all rows after MiniBatchKMeans: tighter clusters for some seconds more.
    shrink : float
        Take this many noise scales (2 / epsilon_p) off each noisy count before it is clipped, and add half a count to
        all: what is left of pure noise no longer looks like a class. Post-processing; 0 is Algorithm 4.
    whole_budget : bool
        Spend all of the budget: nothing else is released about these labels.
    random_state : int
        Seed of k-means. It sees no labels, so this is not a privacy matter.

    Guarantee
    ---------
    Pure epsilon_p when one label is replaced, in sequence with whatever uses the prior on the same labels. The counts
    are taken by a curator who sees the labels: the guarantee says that she is trusted.
    """

    n_clusters: int | None = None
    groups: Any = field(default=None, repr=False)
    epsilon: float | None = None
    n_components: int | None = None
    full_steps: int = 0
    shrink: float = 0.0
    whole_budget: bool = False
    random_state: int = field(default=0)

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """epsilon_p: as given, or 25 / (mean cluster size), but between a twentieth and half of `budget`."""
        if budget == 0:
            fix = "At epsilon 0 no histogram can be released; use UniformPrior()."
            raise invalid("ClusterPrior", "budget", "be > 0", got=budget, fix=fix)
        clusters = self.count(budget, n_examples)  # checks the groups, before anything is charged
        if self.epsilon is not None:
            spent = check_epsilon("ClusterPrior", self.epsilon)
            if not 0 < spent < budget:
                fix = "The histogram and the response share one budget."
                raise invalid("ClusterPrior", "epsilon", f"be in (0, {budget:g})", got=self.epsilon, fix=fix)
            return spent
        if self.whole_budget:
            return budget
        wanted = EPSILON_TIMES_SIZE * clusters / n_examples
        # Large clusters need little, but with many classes their counts still drown below a twentieth.
        return min(max(wanted, min(budget, 1.0) / 20), budget / 2)

    def alone(self) -> ClusterPrior:
        """Return this prior with the whole budget, unless it was told its epsilon."""
        return self if self.epsilon is not None else replace(self, whole_budget=True)

    def prepared(self, X: Any, *, budget: float, n_examples: int, n_classes: int) -> ClusterPrior:
        """Return the prior with its clusters found and its cost settled."""
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        told = None if self.whole_budget else spent
        return replace(self, groups=self._clusters(X, n_examples, budget), n_clusters=None, epsilon=told)

    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Measure the histograms and turn them into shares."""
        spent = self.cost(budget, n_examples=len(labels), n_classes=labels.n_classes)
        index = self._clusters(X, len(labels), budget)
        n_groups = int(index.max()) + 1
        query = LabelCounts(groups=index, n_groups=n_groups)
        measured = measure(labels, query, epsilon=spent, rng=key.child("cluster prior"))
        return PriorTable(
            rows=shares(self._shrunk(measured.value, spent)),
            index=index,
            guarantee=measured.guarantee.named("cluster histogram"),
            seeded=measured.seeded,
            description=f"noisy histograms of {n_groups} clusters at epsilon {spent:.4g}",
        )

    def count(self, budget: float, n_examples: int) -> int:
        """Return the number of clusters: as given, or about 50 / budget examples each, at most `MOST_CLUSTERS`."""
        if self.groups is not None:
            return int(self._given(n_examples).max()) + 1
        if self.n_clusters is not None:
            fix = "There are no more rows than that."
            return check_integer("ClusterPrior", "n_clusters", self.n_clusters, least=1, most=n_examples, fix=fix)
        wanted = round(n_examples * min(budget, 10.0) / (2 * EPSILON_TIMES_SIZE))
        return min(n_examples, max(2, min(wanted, MOST_CLUSTERS, n_examples // 2)))

    def _clusters(self, X: Any, n: int, budget: float) -> Ints:
        if self.groups is None:
            rows = flat_features(X, n_components=self.n_components, random_state=self.random_state)
            steps = check_integer("ClusterPrior", "full_steps", self.full_steps, least=0)
            count = self.count(budget, n)
            return cluster(rows, n_clusters=count, random_state=self.random_state, full_steps=steps)
        return self._given(n)

    def _shrunk(self, counts: Ints, spent: float) -> npt.NDArray[Any]:
        """Return max(count - shrink * scale, 0) + 1/2, or the counts as they are where nothing is to be taken off."""
        if check_real("ClusterPrior", "shrink", self.shrink) < 0:
            raise invalid("ClusterPrior", "shrink", "be >= 0", got=self.shrink)
        if self.shrink == 0:
            return counts
        kept: npt.NDArray[Any] = np.maximum(counts - self.shrink * 2.0 / spent, 0.0) + 0.5
        return kept

    def _given(self, n: int) -> Ints:
        """Return the user's groups, checked: integers from 0, one per label."""
        groups = check_groups("ClusterPrior", self.groups, None)
        if len(groups) != n:
            got = Described(f"{len(groups)} for {n} labels")
            raise invalid("ClusterPrior", "groups", "have one entry per label", got=got)
        return groups
