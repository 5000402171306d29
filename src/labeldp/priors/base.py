"""What a prior source is: it says what it costs, and turns features (and a budget) into beliefs about labels.

Features as a clusterer wants them: one row an example, and not too many columns.

>>> import numpy as np
>>> flat_features(np.ones((5, 2, 3)), n_components=None, random_state=0).shape
(5, 3)

Design notes. Labels are never asked for. k-means in the first hundred or so principal components of half-whitened image
features found purer clusters than in all of them, at a fifth of the time (RECIPES.md).

Priors that cost nothing on these labels: uniform, public knowledge, and models trained elsewhere.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Floats, Ints
from labeldp.errors import Described, invalid, nearest
from labeldp.guarantee import Guarantee, Trust
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.validate import check_integer, check_positive, check_probability_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorTable:
    """Beliefs about the labels of n examples: rows of class probabilities, and the row of each example.

    `guarantee` is what it cost to learn them (None: nothing), `seeded` whether noise in them came from a seed, and
    `description` says in words where they come from.
    """

    rows: Floats
    index: Ints
    guarantee: Guarantee | None = None
    seeded: bool = False
    description: str = ""

    def probabilities(self, examples: Any = slice(None)) -> Floats:
        """Return the (m, K) prior of some examples."""
        chosen: Floats = self.rows[self.index[examples]]
        return chosen

    @property
    def says_nothing(self) -> bool:
        """Whether this is the uniform belief, which needs no record."""
        return bool((self.rows == 1.0 / self.rows.shape[1]).all())


#: (name, how to measure it) -> the table, measured now or kept from a run that was stopped
Kept = Callable[[str, Callable[[], PriorTable]], PriorTable]
#: What a prior that costs nothing stands on.
DID_NOT_SEE = "the prior did not see these labels"


class Prior(abc.ABC):
    """A source of beliefs about labels.

    `sees_labels` says whether `table` measures the labels (then the ledger is charged before it runs), `raw_features`
    whether it is given the features as the user has them, or as a pipeline's transformers make them.
    """

    sees_labels: ClassVar[bool] = True
    raw_features: ClassVar[bool] = False

    @abc.abstractmethod
    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Return how much of the epsilon `budget` this source spends on the same labels; 0 if it sees none of them."""

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Return what the beliefs cost, with the trust and the assumptions that they need; a curator's, unless told."""
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        return Guarantee.pure(spent, trust=Trust.CURATOR if spent else Trust.NO_ONE)

    def alone(self) -> Prior:
        """Return this source for a learner that releases no label: it may spend the whole budget. By default, itself."""
        return self

    def journaled(self, kept: Kept) -> Prior:
        """Return this source with a memory for what it measures on its way to the table. By default there is nothing."""
        return self

    def prepared(self, X: Any, *, budget: float, n_examples: int, n_classes: int) -> Prior:
        """Return this source with the work done that needs no label, so that it fails, if it must, before it is charged.

        What it costs is the same. By default there is nothing to prepare.
        """
        return self

    @abc.abstractmethod
    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Return the beliefs, spending on the labels what `cost` says of the whole `budget`."""


def one_row(row: Floats, n: int, description: str) -> PriorTable:
    """Return the same belief for all examples."""
    return PriorTable(rows=row[None, :], index=np.zeros(n, np.int64), description=description)


def own_rows(rows: Floats, description: str, guarantee: Guarantee | None = None) -> PriorTable:
    """Return a belief for each example."""
    return PriorTable(rows=rows, index=np.arange(len(rows)), guarantee=guarantee, description=description)


def flat_features(X: Any, *, n_components: int | None, random_state: int) -> Any:
    """Return a row per example to cluster: views averaged, images flattened, and the first principal components.

    Features (n, views, d) are averaged over the views; (n, ...) of more axes are images and are flattened. Where there
    are no more than `n_components` columns, or it is None, or the features are sparse, they stay as they are.
    """
    rows = X
    if isinstance(X, np.ndarray) and X.ndim > 2:
        rows = X.mean(axis=1) if X.ndim == 3 else X.reshape(len(X), -1)
    if n_components is None or not isinstance(rows, np.ndarray) or rows.shape[1] <= n_components:
        return rows
    from sklearn.decomposition import PCA

    count = check_integer("ClusterPrior", "n_components", n_components, least=1)
    rank = min(count, *rows.shape)
    return PCA(rank, svd_solver="randomized", random_state=random_state).fit_transform(rows)


@dataclass(frozen=True)
class UniformPrior(Prior):
    """Nothing is known: all classes are equally likely. RRWithPrior is then randomized response."""

    sees_labels: ClassVar[bool] = False

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Nothing."""
        return 0.0

    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Return one uniform row."""
        return one_row(np.full(labels.n_classes, 1.0 / labels.n_classes), len(labels), "uniform")


@dataclass(frozen=True, eq=False)
class PublicPrior(Prior):
    """Beliefs that anyone may know: a table, a public model, or columns of the features.

    Parameters
    ----------
    source : array of shape (K,) or (n, K), a fitted model with `predict_proba`, or a list of column names
        Class probabilities, in the order of the classes. A model's columns are matched to the classes by its
        `classes_`; classes it does not know get probability 0.

    Guarantee
    ---------
    Costs nothing, provided the source did not see these labels: that is an assumption, and it is recorded.
    """

    source: Any = field(repr=False)
    sees_labels: ClassVar[bool] = False
    raw_features: ClassVar[bool] = True

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Nothing."""
        return 0.0

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Nothing, on the assumption that the source did not see these labels."""
        return Guarantee.pure(0.0, assumptions=(DID_NOT_SEE,))

    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Return the public beliefs."""
        if hasattr(self.source, "predict_proba"):
            rows, words = model_probabilities(self.source, X, labels.classes), "a public model"
        elif isinstance(self.source, (list, tuple)) and all(isinstance(name, str) for name in self.source):
            rows, words = _columns(X, self.source), "public columns"
        else:
            rows, words = np.atleast_2d(np.asarray(self.source)), "a public table"
        rows = check_probability_rows("PublicPrior", "source", rows)
        if rows.shape[1] != labels.n_classes or len(rows) not in (1, len(labels)):
            must = f"be ({labels.n_classes},) or ({len(labels)}, {labels.n_classes})"
            raise invalid("PublicPrior", "source", must, got=Described(f"shape {rows.shape}"))
        return one_row(rows[0], len(labels), words) if len(rows) == 1 else own_rows(rows, words)


@dataclass(frozen=True, eq=False)
class ModelPrior(Prior):
    """The predictions of a model, tempered: p^(1/temperature), normalised.

    Parameters
    ----------
    model : fitted estimator with `predict_proba`
        Trained on other labels, or on these under `guarantee`.
    temperature : float
        Below 1 sharpens, above 1 flattens.
    guarantee : Guarantee, optional
        What training the model spent on these same labels; composed in sequence with what the prior informs, and charged
        with it. It must be pure: what it leaves of a budget epsilon is otherwise not a number.

    Guarantee
    ---------
    That of `guarantee`, as it is. Without one it costs nothing, provided the model did not see these labels: that is an
    assumption, and it is recorded. The model's predictions travel with the release, so that its receiver can train.
    """

    model: Any
    sees_labels: ClassVar[bool] = False
    raw_features: ClassVar[bool] = True
    temperature: float = field(default=1.0, kw_only=True)
    guarantee: Guarantee | None = field(default=None, kw_only=True)

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """What the model's training spent on these labels, already."""
        spent = 0.0 if self.guarantee is None else self.guarantee.epsilon()
        if math.isinf(spent) and math.isfinite(budget):
            fix = "Train the model under a pure guarantee, or on other labels."
            raise invalid("ModelPrior", "guarantee", "have a pure epsilon", got=self.guarantee, fix=fix)
        return spent

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """The model's own guarantee, or nothing on the assumption that it did not see these labels."""
        self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        return Guarantee.pure(0.0, assumptions=(DID_NOT_SEE,)) if self.guarantee is None else self.guarantee

    def table(self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey) -> PriorTable:
        """Return the model's tempered predictions."""
        rows = tempered(model_probabilities(self.model, X, labels.classes), self.temperature)
        return own_rows(rows, f"a model at temperature {self.temperature:g}", self.guarantee)


def tempered(probabilities: Floats, temperature: float) -> Floats:
    """Return softmax(log p / temperature): p^(1/temperature), normalised, without underflow of the largest.

    >>> tempered(np.array([[0.8, 0.2]]), 0.5).round(3).tolist()
    [[0.941, 0.059]]
    """
    power = 1.0 / check_positive("prior", "temperature", temperature)
    peak = probabilities.max(axis=1, keepdims=True)
    scaled = (probabilities / peak).astype(np.float64) ** power
    answer: Floats = scaled / scaled.sum(axis=1, keepdims=True)
    return answer


def model_probabilities(model: Any, X: Any, classes: Sequence[Any]) -> Floats:
    """Return a model's class probabilities in the order of `classes`; classes it has never seen get none."""
    predicted = np.asarray(model.predict_proba(X), dtype=np.float64)
    known = [c.item() if isinstance(c, np.generic) else c for c in model.classes_]
    position = {c: j for j, c in enumerate(classes)}
    strange = [c for c in known if c not in position]
    if strange:
        fix = nearest(str(strange[0]), [str(c) for c in classes])
        raise invalid("prior", "model", "predict the classes of the labels", got=strange[0], fix=fix)
    rows = np.zeros((len(predicted), len(classes)))
    rows[:, [position[c] for c in known]] = predicted
    return rows


def _columns(X: Any, names: Sequence[str]) -> Floats:
    """Return named columns of a data frame or table as a matrix."""
    available = list(getattr(X, "columns", [])) if not hasattr(X, "column_names") else list(X.column_names)
    for name in names:
        if name not in available:
            raise invalid(
                "PublicPrior",
                "source",
                "name columns of the features",
                got=name,
                fix=nearest(name, map(str, available)),
            )
    return np.column_stack([np.asarray(X[name], dtype=np.float64) for name in names])
