"""Priors: what is believed about each label before it is looked at, and what that belief costs.

>>> from labeldp.priors import ClusterPrior, UniformPrior
>>> UniformPrior().cost(1.0, n_examples=1000, n_classes=10)
0.0
>>> ClusterPrior(n_clusters=10).cost(1.0, n_examples=1000, n_classes=10)
0.25
"""

from labeldp.priors.base import ModelPrior, Prior, PriorTable, PublicPrior, UniformPrior, model_probabilities, tempered
from labeldp.priors.cluster import Clustering, ClusterPrior, cluster_features, heterogeneity, public_heterogeneity
from labeldp.priors.staged import StagedClusterPrior

__all__ = [
    "ClusterPrior",
    "Clustering",
    "ModelPrior",
    "Prior",
    "PriorTable",
    "PublicPrior",
    "StagedClusterPrior",
    "UniformPrior",
    "cluster_features",
    "heterogeneity",
    "model_probabilities",
    "public_heterogeneity",
    "tempered",
]
