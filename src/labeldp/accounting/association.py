r"""How small a cluster can be: the Label Association Problem, and the precision that no private mechanism exceeds.

A cluster holds s examples with s different labels out of K. From a private release one wants to name the labels that
occur in each cluster. Naming more labels buys recall and costs precision; without privacy both can be 1.

>>> bound = label_association(epsilon=1.0, cluster_size=10, n_classes=1000)
>>> round(bound.best_precision, 3), round(bound.largest_product, 3)
(0.027, 0.027)
>>> bound.too_small
True

References: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022 (Definition 2, Theorem 5 and its proof).

Design notes. Their proof: let labels be assigned at random, and redraw one of them, y', outside its cluster's set. A
mechanism that names a true label with probability at least `recall` also names y' without its being there with
probability at least e^-epsilon recall, and there are K - s such labels in each cluster, so that

    precision * recall <= s e^epsilon / (K - s)                                       (largest_product).

Keep the true positives in the count of named labels and compare averages over the random assignment, under which both
data sets have the same law: per cluster s recall are right and at least (K - s) e^-epsilon recall are wrong, so

    precision <= s e^epsilon / (s e^epsilon + K - s),                                  (best_precision)

whatever the recall. At epsilon = 0 it is the s/K of blind naming; for s = 1 randomized response attains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labeldp._validate import check_epsilon, check_integer
from labeldp.errors import invalid


@dataclass(frozen=True, kw_only=True)
class AssociationBound:
    """What can be known of the labels that occur in clusters of one size.

    Fields
    ------
    best_precision : float
        No epsilon-private mechanism names labels of which a larger share are right, on every data set.
    largest_product : float
        The paper's bound on precision times recall, at most 1; weaker, and stated for comparison.
    blind_precision : float
        s/K, what naming every label achieves.
    """

    epsilon: float
    cluster_size: int
    n_classes: int
    best_precision: float
    largest_product: float
    blind_precision: float

    @property
    def too_small(self) -> bool:
        """Whether most of what is named must be wrong: clusters are too small for this many classes at this epsilon."""
        return self.best_precision < 0.5

    @property
    def sentence(self) -> str:
        """The bound in words, for a plan or a report."""
        return (
            f"In clusters of {self.cluster_size} examples with {self.n_classes} possible labels, at epsilon "
            f"{self.epsilon:g}, at most {self.best_precision:.1%} of the labels that any mechanism names can be right "
            f"in the worst case (naming all: {self.blind_precision:.1%})."
        )


def label_association(epsilon: float, *, cluster_size: int, n_classes: int) -> AssociationBound:
    """Return the bounds for clusters of `cluster_size` examples and `n_classes` possible labels.

    *Edge cases*: a cluster as large as the number of classes may hold every label, and nothing is bounded (1); epsilon
    = inf bounds nothing either.
    """
    owner = "label_association"
    budget = check_epsilon(owner, epsilon)
    classes = check_integer(owner, "n_classes", n_classes, least=2)
    size = check_integer(owner, "cluster_size", cluster_size, least=1)
    odds = math.exp(-budget)
    absent = max(classes - size, 0) * odds
    return AssociationBound(
        epsilon=budget,
        cluster_size=size,
        n_classes=classes,
        best_precision=size / (size + absent),
        largest_product=min(1.0, size / absent) if absent > 0 else 1.0,
        blind_precision=min(1.0, size / classes),
    )


def least_cluster_size(epsilon: float, *, n_classes: int, precision: float = 0.5) -> int:
    """Return the smallest cluster for which `precision` is not ruled out: s >= p (K - s) / ((1 - p) e^epsilon).

    >>> least_cluster_size(1.0, n_classes=1000)
    269
    """
    owner = "least_cluster_size"
    budget = check_epsilon(owner, epsilon)
    classes = check_integer(owner, "n_classes", n_classes, least=2)
    if not 0 < precision < 1:
        raise invalid(owner, "precision", "be in (0, 1)", got=precision)
    ratio = precision / (1 - precision) * math.exp(-budget)
    size = max(1, math.ceil(classes * ratio / (1 + ratio)))
    while size > 1 and label_association(budget, cluster_size=size - 1, n_classes=classes).best_precision >= precision:
        size -= 1  # the ceiling of a float may be one too high
    return size
