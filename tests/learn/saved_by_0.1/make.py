"""Write the models and the release of this folder, and what they answer. Run it by the version whose files are to be kept.

Usage: python make.py DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from labeldp import ClusterPrior, LabelPrivateClassifier, RRWithPrior, SensitiveLabels, privatize
from labeldp.learn import PATE, MultiLabelPATE, SoftmaxRegression, TableEncoder, save_model
from labeldp.learn.ratings import LabelPrivateRatings
from labeldp.nn import NetClassifier

#: Rows that every model answers for, written with the answers: 9 numbers that a test can read back from JSON exactly.
NEW = [[-1.5, 0.25, 0.5], [0.125, -0.75, 1.0], [2.0, 0.5, -0.25]]


def main(folder: Path) -> None:
    """Fit, save and write down the answers."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    classes = ["no", "yes"]
    answers: dict[str, object] = {"new": NEW}

    def keep(name: str, model: object, told: object) -> None:
        save_model(model, folder / f"{name}.skops", facts={"label": "ill"})
        answers[name] = told

    softmax = LabelPrivateClassifier(
        SoftmaxRegression(), epsilon=3.0, stages=2, prior=ClusterPrior(n_clusters=4), classes=classes, random_state=1
    ).fit(X, y)
    keep("softmax", softmax, softmax.predict_proba(NEW).tolist())
    answers["softmax guarantee"] = softmax.guarantee_.to_json()

    forest = RandomForestClassifier(n_estimators=2, max_depth=2, random_state=0)
    piped = LabelPrivateClassifier(
        Pipeline([("scale", StandardScaler()), ("forest", forest)]), epsilon=3.0, classes=classes, random_state=1
    ).fit(X, y)
    keep("forest", piped, piped.predict_proba(NEW).tolist())

    table = pa.table({"age": X[:, 0], "town": np.where(X[:, 1] > 0, "Bern", "Lyon")})
    encoded = LabelPrivateClassifier(
        Pipeline([("table", TableEncoder()), ("classifier", SoftmaxRegression())]),
        epsilon=3.0,
        classes=classes,
        random_state=1,
    ).fit(table, y)
    rows = pa.table({"age": [-1.0, 2.0], "town": ["Bern", "Lyon"]})
    keep("table", encoded, encoded.predict_proba(rows).tolist())

    pate = PATE(n_teachers=30, epsilon=8.0, delta=1e-5, aggregation="gnmax", classes=classes, random_state=1).fit(
        X, y, X[:20]
    )
    keep("pate", pate, pate.predict_proba(NEW).tolist())
    piped_pate = Pipeline([("scale", StandardScaler()), ("student", PATE(**pate.get_params(deep=False)))])
    piped_pate.fit(X, y, student__X_public=StandardScaler().fit_transform(X)[:20])
    keep("piped-pate", piped_pate, piped_pate.predict_proba(NEW).tolist())

    labels = (X[:, :2] > 0).astype(int)
    many = OneVsRestClassifier(LogisticRegression())
    sets = MultiLabelPATE(many, student=many, n_teachers=30, epsilon=50.0, aggregation="pate", random_state=1)
    sets.fit(X, labels, X[:20])
    keep("multi-label-pate", sets, sets.predict(NEW).tolist())

    pairs = [(u, i) for u in range(8) for i in range(6)]
    stars = [1 + 4 * ((u + i) % 2) for u, i in pairs]
    ratings = LabelPrivateRatings(epsilon=4.0, values=[1, 2, 3, 4, 5], random_state=1).fit(pairs, stars)
    keep("ratings", ratings.learner_, ratings.learner_.predict(pairs[:6]).tolist())

    bare = SoftmaxRegression().fit(X, y)
    keep("plain", bare, bare.predict_proba(NEW).tolist())

    network = LabelPrivateClassifier(
        NetClassifier("mlp", hidden=4, epochs=2, random_state=0), epsilon=3.0, classes=classes, random_state=1
    ).fit(X, y)
    keep("network", network, network.predict_proba(NEW).tolist())

    prior = np.full((120, 2), 0.5)
    prior[:40] = (0.9, 0.1)
    release = privatize(SensitiveLabels(y, classes=classes), RRWithPrior(1.0), prior=prior, rng=1)
    release.save(folder / "release")
    answers["release"] = {
        "codes": release.codes.tolist(),
        "likelihood": release.channel.likelihood(release.codes)[:5].tolist(),
        "guarantee": release.guarantee.to_json(),
        "mechanism": release.mechanism,
    }
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
