"""Priors: what is believed about each label before it is looked at, and what that belief costs.

>>> from labeldp.priors import ClusterPrior, UniformPrior
>>> UniformPrior().cost(1.0, n_examples=1000, n_classes=10)
0.0
>>> ClusterPrior(n_clusters=10).cost(1.0, n_examples=1000, n_classes=10)
0.25
"""

from labeldp.priors.base import (
    ArrayExamples,
    Beliefs,
    Examples,
    Grouping,
    Prior,
    PriorTable,
    Reader,
    flat_features,
    model_probabilities,
    tempered,
)
from labeldp.priors.cluster import (
    Clustering,
    ClusterPrior,
    cluster,
    cluster_features,
    heterogeneity,
    public_heterogeneity,
)
from labeldp.priors.free import ModelPrior, PublicPrior, UniformPrior
from labeldp.priors.staged import LearnedPrior, StagedClusterPrior

__all__ = [
    "ArrayExamples",
    "Beliefs",
    "ClusterPrior",
    "Clustering",
    "Examples",
    "Grouping",
    "LearnedPrior",
    "ModelPrior",
    "Prior",
    "PriorTable",
    "PublicPrior",
    "Reader",
    "StagedClusterPrior",
    "UniformPrior",
    "cluster",
    "cluster_features",
    "flat_features",
    "heterogeneity",
    "model_probabilities",
    "public_heterogeneity",
    "tempered",
]
