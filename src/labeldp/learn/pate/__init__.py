"""PATE: teachers on disjoint parts of private data vote on public points, and a student learns from noisy answers.

>>> import numpy as np
>>> from labeldp.learn.pate import PATE
>>> rng = np.random.default_rng(0)
>>> X, X_public = rng.normal(size=(2000, 2)), rng.normal(size=(40, 2))
>>> y = np.where(X[:, 0] > 0, "yes", "no")
>>> model = PATE(n_teachers=100, epsilon=4.0, delta=1e-5, aggregation="gnmax", classes=["no", "yes"], random_state=0)
>>> model.fit(X, y, X_public).predict([[-2.0, 0.0], [2.0, 0.0]]).tolist(), model.guarantee_.epsilon(1e-5) <= 4.0
(['no', 'yes'], True)

| call | a teacher votes for | aggregation |
|---|---|---|
| `PATE` | one class | "gnmax", "confident-gnmax" |
| `MultiLabelPATE` | any number of labels | "stable-top-k", "pate" (a noisy count per label), "pate-tau" (of clipped votes) |

References: Papernot et al., "Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data" (2017);
Papernot et al., "Scalable Private Learning with PATE" (2018); Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K
and Application to Multi-label PATE" (2022), Examples 13 and 14.

Design notes. Accounting never looks at votes: a data-dependent epsilon is itself private, and is neither computed nor
shown. Raw labels and votes stay inside `fit`: nothing of them is kept on the fitted estimator.
"""

from labeldp.learn.pate.multiclass import PATE
from labeldp.learn.pate.multilabel import MultiLabelPATE
from labeldp.learn.pate.teachers import LabelModel
from labeldp.learn.pate.votes import VotePlan, set_plan, vote_plan

# LabelModel is here because files of saved models name it (`labeldp.learn.save_model`).
__all__ = ["PATE", "LabelModel", "MultiLabelPATE", "VotePlan", "set_plan", "vote_plan"]
