r"""`ClusterPrior`: beliefs from a noisy histogram of labels in each cluster of the features, and the clusters themselves.

`cluster_features` finds clusters for `ClusterRR` and `ClusterPrior` without labels, none of them too small, and
`heterogeneity` says how much a cluster's label distribution leaves open.

>>> import numpy as np
>>> X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2], [30.0]])
>>> found = cluster_features(X, n_clusters=3, min_size=2)
>>> found
<Clustering: 2 clusters of 7 rows, sizes 3 .. 4, 1 merged>
>>> bool(found.assign([[29.0]])[0] == found.groups[3])
True

References: Esfandiari, Mirrokni, Syed, Vassilvitskii, "Label differential privacy via clustering" (2022), Definition 1
(heterogeneity). Ghazi et al., "Deep learning with label differential privacy" (2021), Algorithm 4 (noisy histograms).
Sculley, "Web-scale k-means clustering" (2010).

Design notes. Nothing here takes labels but `public_heterogeneity`, whose argument says that they are public. Sizes are
functions of the features, so showing them costs nothing. A centroid is the mean of a cluster's rows, whatever the
clusterer; merging moves the mean as if the rows had been one cluster from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Float64s, Int64s, Ints
from labeldp.errors import Described, hide_warnings, invalid
from labeldp.guarantee import Guarantee, did_not_see
from labeldp.mechanisms import Mechanism
from labeldp.priors.base import Beliefs, Counts, Examples, Grouping, Prior
from labeldp.random import NoiseKey
from labeldp.release.measurement import shares
from labeldp.release.queries import check_groups
from labeldp.validate import check_epsilon, check_integer, check_probability_rows, check_real

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
    groups : integer array of shape (n,) or name of a column, optional
        The user's own cluster of each example instead: numbers 0 .. C-1, or a public column of whole numbers or text,
        whose sorted values are the clusters.
    epsilon : float, optional
        epsilon_p, what the histogram spends. By default 25 / (mean cluster size), between a twentieth (of at most 1) and
        half of the budget.
    n_components : int, optional
        Cluster on this many principal components of features that have more; by default on the features as they are.
        Views of an example (a third axis) are averaged first. In memory only.
    full_steps : int
        Steps of k-means over all rows after MiniBatchKMeans: tighter clusters for some seconds more. In memory only.
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

    Edge cases
    ----------
    In memory k-means sees all rows, and columns as they are: one with large numbers decides alone. Scale them before, for
    instance by a StandardScaler in the pipeline that `LabelPrivateClassifier` trains. On a table k-means is fitted to a
    sample of the numeric columns, standardised. A column's name has no cost before `prepare`: how many groups there are is
    not known then, unless `epsilon` is given.
    """

    n_clusters: int | None = None
    groups: Any = field(default=None, repr=False)
    epsilon: float | None = None
    n_components: int | None = None
    full_steps: int = 0
    shrink: float = 0.0
    whole_budget: bool = False
    random_state: int = field(default=0)
    _grouping: Grouping | None = field(default=None, repr=False)
    #: What was counted in `prepare`, and whose labels.
    _counted: tuple[Examples, Counts] | None = field(default=None, repr=False)

    @property
    def grouping(self) -> Grouping | None:
        """The clusters, once they are found."""
        return self._grouping

    @property
    def description(self) -> str:
        """The groups in which labels are counted."""
        return f"noisy histograms {'of clusters' if self._grouping is None else self._grouping.words}"

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

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Return what the histograms cost a curator; groups that were handed in must not have seen the labels."""
        promise = super().promise(budget, n_examples=n_examples, n_classes=n_classes)
        return promise if self.groups is None else replace(promise, assumptions=did_not_see("grouping"))

    def alone(self) -> ClusterPrior:
        """Return this prior with the whole budget, unless it was told its epsilon."""
        return self if self.epsilon is not None else replace(self, whole_budget=True)

    def group(self, examples: Examples, *, budget: float) -> Grouping:
        """Return the clusters by themselves: of the user, of a column, or of k-means. No label is looked at."""
        if self._grouping is not None:
            return self._grouping
        if self.groups is not None:
            return group_examples(examples, self.groups, budget=budget)
        steps = check_integer("ClusterPrior", "full_steps", self.full_steps, least=0)
        return examples.group_clusters(
            self.count(budget, len(examples)),
            random_state=self.random_state,
            full_steps=steps,
            n_components=self.n_components,
        )

    def prepare(self, examples: Examples, *, budget: float) -> ClusterPrior:
        """Return the prior with its clusters found, its cost settled, and labels counted behind the door."""
        if self._counted is not None and self._counted[0] is examples:
            return self
        grouping = self.group(examples, budget=budget)
        found = replace(self, _grouping=grouping)
        spent = found.cost(budget, n_examples=len(examples), n_classes=examples.n_classes)
        told = None if self.whole_budget else spent
        return replace(found, epsilon=told, _counted=(examples, examples.count(grouping)))

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Draw the noise of the counts and turn them into shares."""
        ready = self.prepare(examples, budget=budget)
        grouping, counted = ready._grouping, ready._counted  # noqa: SLF001 - its own
        assert grouping is not None
        assert counted is not None
        spent = ready.cost(budget, n_examples=len(examples), n_classes=examples.n_classes)
        measured = counted[1].release(epsilon=spent, key=key.child("cluster prior"))
        return Beliefs(
            rows=shares(self._shrink(measured.value, spent)),
            reader=grouping,
            guarantee=measured.guarantee.named("cluster histogram"),
            seeded=measured.seeded,
            description=f"{ready.description} at epsilon {spent:.4g}",
        )

    def count(self, budget: float, n_examples: int) -> int:
        """Return the number of clusters: as given, or about 50 / budget examples each, at most `MOST_CLUSTERS`."""
        if self._grouping is not None:
            return self._grouping.n_groups
        if isinstance(self.groups, str):
            if self.epsilon is not None:
                return 1  # the number of groups is asked for to find the cost, which was given
            fix = "Give it an epsilon, or an array of cluster numbers: a column is counted when the prior is prepared."
            raise invalid("ClusterPrior", "groups", "be counted before they have a cost", got=self.groups, fix=fix)
        if self.groups is not None:
            return int(check_one_each(self.groups, n_examples).max()) + 1
        if self.n_clusters is not None:
            fix = "There are no more rows than that."
            return check_integer("ClusterPrior", "n_clusters", self.n_clusters, least=1, most=n_examples, fix=fix)
        wanted = round(n_examples * min(budget, 10.0) / (2 * EPSILON_TIMES_SIZE))
        return min(n_examples, max(2, min(wanted, MOST_CLUSTERS, n_examples // 2)))

    def _shrink(self, counts: Ints, spent: float) -> npt.NDArray[Any]:
        """Return max(count - shrink * scale, 0) + 1/2, or the counts as they are where nothing is to be taken off."""
        if check_real("ClusterPrior", "shrink", self.shrink) < 0:
            raise invalid("ClusterPrior", "shrink", "be >= 0", got=self.shrink)
        if self.shrink == 0:
            return counts
        kept: npt.NDArray[Any] = np.maximum(counts - self.shrink * 2.0 / spent, 0.0) + 0.5
        return kept


def group_examples(examples: Examples, groups: Any, *, budget: float) -> Grouping:
    """Return the groups that were asked for: the name of a column, an array of group numbers, or a `ClusterPrior`'s.

    Labels are not looked at. `budget` only sizes the clusters of a ClusterPrior that was not told how many.
    """
    if isinstance(groups, str):
        return examples.group_column(groups)
    if isinstance(groups, ClusterPrior):
        return groups.group(examples, budget=budget)
    return Grouping.of_groups(check_one_each(groups, len(examples)))


def check_one_each(groups: Any, n: int) -> Int64s:
    """Return the user's groups, checked: integers from 0, one per label."""
    numbers = check_groups("ClusterPrior", groups, None)
    if len(numbers) != n:
        got = Described(f"{len(numbers)} for {n} labels")
        raise invalid("ClusterPrior", "groups", "have one entry per label", got=got)
    return numbers


OWNER = "cluster_features"
#: Rows that k-means looks at in one step.
_BATCH = 4096


def default_clusterer(*, n_clusters: int, random_state: int) -> Any:
    """Return the MiniBatchKMeans that is used where none is given."""
    from sklearn.cluster import MiniBatchKMeans

    return MiniBatchKMeans(
        n_clusters=n_clusters,
        random_state=random_state,
        batch_size=_BATCH,
        n_init=1,
        max_iter=50,
        reassignment_ratio=0.01,
    )


def cluster(X: Any, *, n_clusters: int, random_state: int, full_steps: int = 0) -> Int64s:
    """Return the cluster of each row by MiniBatchKMeans and then `full_steps` of k-means, numbered without gaps."""
    model = default_clusterer(n_clusters=n_clusters, random_state=random_state)
    found = model.fit_predict(X)
    if full_steps:
        from sklearn.cluster import KMeans

        centres = model.cluster_centers_
        with hide_warnings():  # that few steps do not converge is what was asked for
            found = KMeans(len(centres), init=centres, n_init=1, max_iter=full_steps, tol=0.0).fit_predict(X)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clustering:
    """The cluster of each row (`groups`, 0 .. C-1 without gaps), and how to find that of a new row.

    `sizes` and `centroids` describe the clusters; `merged` counts the clusters that were too small and became part of
    another, `empty` those that had no rows, `noise` the rows that the clusterer gave no cluster (-1 of DBSCAN) and that
    went to the nearest centroid.
    """

    groups: Int64s
    sizes: Int64s
    centroids: Float64s
    merged: int
    empty: int
    noise: int
    _model: Any = field(repr=False)
    #: The cluster that each number of the clusterer became.
    _became: dict[int, int] = field(repr=False)

    @property
    def n_clusters(self) -> int:
        """The number of clusters, each with a row."""
        return len(self.sizes)

    def assign(self, X_new: Any) -> Int64s:
        """Return the cluster of new rows: what the clusterer predicts, or the nearest centroid if it cannot predict.

        A clusterer that predicts gives its training rows the clusters they have. Noise goes to the nearest centroid.
        """
        rows = _as_rows(X_new, "Clustering.assign", width=self.centroids.shape[1])
        if not hasattr(self._model, "predict"):
            return _nearest(rows, self.centroids)
        predicted = np.asarray(self._model.predict(X_new)).astype(np.int64)
        known = np.array([*self._became, -1])
        strange = ~np.isin(predicted, known)
        if strange.any():
            raise _unknown(int(predicted[np.argmax(strange)]), "Clustering.assign", int(strange.sum()))
        answer = np.array([self._became.get(int(number), -1) for number in predicted], dtype=np.int64)
        lone = np.flatnonzero(answer < 0)
        if len(lone):
            answer[lone] = _nearest(rows[lone], self.centroids)
        return answer

    def check(self, groups: Any) -> Int64s:
        """Return cluster ids of new rows if each is one of these clusters, or say which is not."""
        ids = np.asarray(groups)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            got = Described(f"an array of shape {ids.shape} and dtype {ids.dtype}")
            raise invalid("Clustering.check", "groups", "be integers, one per row", got=got)
        strange = (ids < 0) | (ids >= self.n_clusters)
        if strange.any():
            raise _unknown(int(ids[np.argmax(strange)]), "Clustering.check", int(strange.sum()), self.n_clusters)
        return ids.astype(np.int64)

    def __repr__(self) -> str:
        counts = {"merged": self.merged, "empty": self.empty, "rows of noise": self.noise}
        notes = "".join(f", {count} {what}" for what, count in counts.items() if count)
        sizes = f"sizes {self.sizes.min()} .. {self.sizes.max()}"
        return f"<Clustering: {self.n_clusters} clusters of {len(self.groups)} rows, {sizes}{notes}>"


def cluster_features(
    X: Any, *, n_clusters: int | None = None, clusterer: Any = None, min_size: int = 1, random_state: int = 0
) -> Clustering:
    """Return clusters of the rows of X, each with at least `min_size` rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        Features: numbers, without labels among them.
    n_clusters : int, optional
        Clusters of MiniBatchKMeans, at most n. Leave it out when a clusterer is given.
    clusterer : scikit-learn clusterer, optional
        Anything with `fit_predict`. It is cloned, not changed. Rows that it calls noise (-1) go to the nearest centroid.
    min_size : int
        While a cluster has fewer rows, the smallest of them joins the cluster with the nearest centroid; `merged` counts
        how often. Noise of a histogram drowns small clusters: `labeldp.accounting.least_cluster_size` says how small.
    random_state : int
        Seed of k-means. It sees no labels, so this is not a privacy matter.
    """
    rows = _as_rows(X, OWNER)
    least = check_integer(OWNER, "min_size", min_size, least=1)
    if least > rows.shape[0]:
        raise invalid(OWNER, "min_size", f"be at most the number of rows, {rows.shape[0]}", got=min_size)
    model, asked = _model(clusterer, n_clusters, rows.shape[0], random_state)
    found = np.asarray(model.fit_predict(X)).astype(np.int64)
    names, groups = np.unique(found[found >= 0], return_inverse=True)
    if not len(names):
        got = Described(f"noise in all {len(found)} rows")
        raise invalid(OWNER, "clusterer", "find a cluster", got=got, fix="For DBSCAN, a larger `eps` finds some.")
    kept = np.flatnonzero(found >= 0)
    centroids, sizes = _means(rows[kept], groups, len(names)), np.bincount(groups)
    lone = np.flatnonzero(found < 0)
    whole = np.empty(len(found), dtype=np.int64)
    whole[kept] = groups
    if len(lone):
        whole[lone] = _nearest(rows[lone], centroids)
        centroids, sizes = _means(rows, whole, len(names)), np.bincount(whole, minlength=len(names))
    target = merge_small(centroids, sizes, min_size=least)
    whole = target[whole]
    left = int(target.max()) + 1
    final = _means(rows, whole, left)
    became = {int(name): int(target[k]) for k, name in enumerate(names)}
    return Clustering(
        groups=whole,
        sizes=np.bincount(whole).astype(np.int64),
        centroids=final,
        merged=len(names) - left,
        empty=max(0, asked - len(names)),
        noise=len(lone),
        _model=model,
        _became={**_homes_of_empty(model, became, final), **became},
    )


def merge_small(centroids: Float64s, sizes: Any, *, min_size: int) -> Int64s:
    """Return the new number of each cluster after the smallest below `min_size` has joined its nearest, and so on.

    Ties go to the lower number. Ends because every step leaves one cluster fewer, and one cluster has all rows.
    """
    means, counts = np.array(centroids, dtype=np.float64), np.array(sizes, dtype=np.int64)
    home = np.arange(len(counts))
    alive = np.ones(len(counts), bool)
    while alive.sum() > 1:
        small = int(np.argmin(np.where(alive, counts, np.iinfo(np.int64).max)))
        if counts[small] >= min_size:
            break
        alive[small] = False
        distances = np.where(alive, ((means - means[small]) ** 2).sum(axis=1), np.inf)
        near = int(np.argmin(distances))
        total = counts[near] + counts[small]
        means[near] += (means[small] - means[near]) * (counts[small] / max(total, 1))
        counts[near] = total
        home[home == small] = near
    return np.unique(home, return_inverse=True)[1].astype(np.int64)


def heterogeneity(noisy_shares: Any, sizes: Any) -> float:
    r"""Return an upper bound on the paper's phi, estimated from noisy label shares of clusters: post-processing, so it is free.

    phi = E_X sum_y |p(y | X) - p(y | c(X))| (Definition 1), between 0 and 2. The law p(y | X) of one example is not
    known, but with 1_Y the indicator of its label, p(. | X) = E[1_Y | X], so by Jensen's inequality

        phi <= E sum_y |1_Y[y] - p(y | c)| = 2 E (1 - p(Y | c)) = 2 sum_c (n_c / n) (1 - sum_y p(y | c)^2),

    with equality when the features determine the label. This is that bound with the shares put in for p. Noise of
    variance v in a share adds about v to its square, so noisy shares of small clusters make it too small.

    Parameters
    ----------
    noisy_shares : array of shape (C, K)
        Rows of probabilities, such as `release.channel.base` of ClusterRR. Never raw label shares.
    sizes : integer array of shape (C,)
        The rows of each cluster.

    Example
    -------
    >>> heterogeneity([[1.0, 0.0], [0.5, 0.5]], [30, 10])
    0.25
    """
    rows = check_probability_rows("heterogeneity", "noisy_shares", noisy_shares).astype(np.float64)
    counts = np.asarray(sizes)
    if counts.shape != (len(rows),) or counts.dtype.kind not in "iu" or (counts < 0).any() or not counts.any():
        got = Described(f"an array of shape {counts.shape} and dtype {counts.dtype} for {len(rows)} clusters")
        raise invalid("heterogeneity", "sizes", "be counts, one per cluster, not all zero", got=got)
    return float(np.clip(2.0 * ((counts / counts.sum()) @ (1.0 - (rows**2).sum(axis=1))), 0.0, 2.0))


def public_heterogeneity(*, public_labels: Any, groups: Any) -> float:
    """Return `heterogeneity` of labels that the caller declares public: no noise is in it, and it is not private.

    It is an upper bound on phi up to the luck of the sample, not phi itself: what a label tells beyond its cluster and what
    is left to chance even given the features cannot be told apart from one label per example. Coin tosses that no feature
    informs have phi = 0, and get 1 here. It equals phi where the features determine the label. Shares of small clusters,
    taken from the sample itself, make it a little too small.

    >>> public_heterogeneity(public_labels=["a", "a", "a", "b"], groups=[0, 0, 1, 1])
    0.5
    """
    owner = "public_heterogeneity"
    codes = np.unique(np.asarray(public_labels), return_inverse=True)[1].reshape(-1)
    clusters = np.asarray(groups)
    if not len(codes) or clusters.shape != codes.shape or clusters.dtype.kind not in "iu" or clusters.min() < 0:
        got = Described(f"an array of shape {clusters.shape} and dtype {clusters.dtype} for {len(codes)} labels")
        raise invalid(owner, "groups", "be integers from 0, one per label", got=got)
    counts = np.zeros((int(clusters.max()) + 1, int(codes.max()) + 1))
    np.add.at(counts, (clusters, codes), 1)
    sizes = counts.sum(axis=1).astype(np.int64)
    full = sizes > 0
    return heterogeneity(counts[full] / sizes[full, None], sizes[full])


def _as_rows(X: Any, owner: str, *, width: int | None = None) -> Any:
    """Return features as a float matrix, dense or CSR, without missing values."""
    from sklearn.utils import check_array

    try:
        rows = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    except (ValueError, TypeError) as error:
        got = Described(str(error).splitlines()[0])
        raise invalid(owner, "X", "be a matrix of finite numbers, a row per example", got=got) from error
    if width is not None and rows.shape[1] != width:
        raise invalid(owner, "X_new", f"have {width} columns, as the clustered rows had", got=rows.shape[1])
    return rows


def _model(clusterer: Any, n_clusters: Any, n_rows: int, random_state: int) -> tuple[Any, int]:
    """Return a fresh clusterer, and the number of clusters that it was asked for (0: it decides)."""
    if clusterer is None:
        fix = "There cannot be more clusters than rows."
        count = check_integer(OWNER, "n_clusters", n_clusters, least=1, most=n_rows, fix=fix)
        return default_clusterer(n_clusters=count, random_state=random_state), count
    if n_clusters is not None:
        fix = "Set it on the clusterer."
        raise invalid(OWNER, "n_clusters", "be left out when a clusterer is given", got=n_clusters, fix=fix)
    if not hasattr(clusterer, "fit_predict"):
        raise invalid(OWNER, "clusterer", "have `fit_predict`, as scikit-learn clusterers do", got=clusterer)
    wanted = getattr(clusterer, "n_clusters", None)
    if isinstance(wanted, int):
        check_integer(OWNER, "clusterer.n_clusters", wanted, least=1, most=n_rows)
    from sklearn.base import clone

    return clone(clusterer), wanted if isinstance(wanted, int) else 0


def _homes_of_empty(model: Any, became: dict[int, int], centroids: Float64s) -> dict[int, int]:
    """Return where new rows of a centre without training rows go: to the cluster nearest to that centre."""
    centres = getattr(model, "cluster_centers_", None)
    if centres is None or not hasattr(model, "predict"):
        return {}
    empty = [number for number in range(len(centres)) if number not in became]
    if not empty:
        return {}
    homes = _nearest(np.asarray(centres, dtype=np.float64)[empty], centroids)
    return dict(zip(empty, homes.tolist(), strict=True))


def _means(rows: Any, groups: Int64s, n_groups: int) -> Float64s:
    """Return the mean row of each group, for dense and sparse rows."""
    from scipy.sparse import csr_array

    ones = np.ones(len(groups))
    members = csr_array((ones, (groups, np.arange(len(groups)))), shape=(n_groups, len(groups)))
    sums = members @ rows
    dense = sums if isinstance(sums, np.ndarray) else sums.toarray()
    counts = np.bincount(groups, minlength=n_groups)
    return np.asarray(dense / np.maximum(counts, 1)[:, None], dtype=np.float64)


def _nearest(rows: Any, centroids: Float64s) -> Int64s:
    """Return the nearest centroid of each row; ties go to the lower number."""
    from sklearn.metrics import pairwise_distances_argmin

    return np.asarray(pairwise_distances_argmin(rows, centroids), dtype=np.int64)


def _unknown(number: int, owner: str, count: int, known: int | None = None) -> Exception:
    rows = f"{number} ({count} rows are of no known cluster)"
    must = "be known clusters" if known is None else f"be known clusters, 0 .. {known - 1}"
    fix = "Cluster the new rows with `assign`, or cluster old and new rows together before labels are used."
    return invalid(owner, "groups", must, got=Described(rows), fix=fix)
