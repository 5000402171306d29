"""Features made without labels: under label privacy they cost nothing, and good ones are worth more than any mechanism.

A linear learner with private labels on good public features is the strongest thing at small epsilon. For tables,
scikit-learn's `RBFSampler` (random Fourier features) and `StandardScaler` are label-free already and are used as they
are; `UnitRows` brings any features to norm one, which is what the convex learners' sensitivity asks for. For images
there is `PatchFeatures`, for short texts `TextFeatures`; for whatever an encoder of yours knows, `Embeddings`.

>>> import numpy as np
>>> from sklearn.kernel_approximation import RBFSampler
>>> from sklearn.pipeline import make_pipeline
>>> table = np.random.default_rng(0).normal(size=(5, 3))
>>> rows = make_pipeline(RBFSampler(n_components=16, random_state=0), UnitRows()).fit_transform(table)
>>> np.linalg.norm(rows, axis=1).round(6).tolist()
[1.0, 1.0, 1.0, 1.0, 1.0]
"""

from labeldp.features.embeddings import Embeddings
from labeldp.features.text import TextFeatures
from labeldp.features.transforms import PatchFeatures, UnitRows

__all__ = ["Embeddings", "PatchFeatures", "TextFeatures", "UnitRows"]
