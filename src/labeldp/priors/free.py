"""Priors that cost nothing: the uniform one, one that is public, and the beliefs of a model that did not see these labels.

>>> from labeldp.priors import ArrayExamples
>>> from labeldp.release import SensitiveLabels
>>> examples = ArrayExamples(None, SensitiveLabels([0, 1, 1], n_classes=2))
>>> UniformPrior().beliefs(examples, budget=1.0, key=NoiseKey.from_seed(0)).rows.tolist()
[[0.5, 0.5]]

Nothing is spent on them, since they look at no label. What they stand on is said in the guarantee instead: that a public prior, or the
model behind one, did not see these labels. No code can tell.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, did_not_see
from labeldp.mechanisms import Mechanism
from labeldp.priors.base import Beliefs, Examples, Grouping, Prior, Reader, read_row_zero, tempered
from labeldp.random import NoiseKey
from labeldp.validate import check_positive, check_probability_rows


@dataclass(frozen=True)
class UniformPrior(Prior):
    """Nothing is known: all classes are equally likely. RRWithPrior is then randomized response."""

    sees_labels: ClassVar[bool] = False

    @property
    def description(self) -> str:
        """Uniform."""
        return "a uniform prior"

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Nothing."""
        return 0.0

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Nothing, and nothing is assumed: it knows nothing."""
        return Guarantee.pure(0.0)

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Return one uniform row."""
        row = np.full((1, examples.n_classes), 1.0 / examples.n_classes)
        return Beliefs(rows=row, reader=Reader(read=read_row_zero), description=self.description)


@dataclass(frozen=True, eq=False)
class PublicPrior(Prior):
    """Beliefs that anyone may know: a table, a public model, or columns of the features.

    Parameters
    ----------
    source : array of shape (K,), (n, K) or (C, K), a fitted model with `predict_proba`, or a list of column names
        Class probabilities, in the order of the classes. A model's columns are matched to the classes by its
        `classes_`; classes it does not know get probability 0.
    groups : array of shape (n,) or name of a column, optional
        For a source of shape (C, K): which of its rows each example has. The rows go by the sorted values of a column.

    Guarantee
    ---------
    Costs nothing, provided the source did not see these labels: that is an assumption, and it is recorded.
    """

    source: Any = field(repr=False)
    groups: Any = field(default=None, kw_only=True, repr=False)
    sees_labels: ClassVar[bool] = False
    raw_features: ClassVar[bool] = True
    _found: Beliefs | None = field(default=None, kw_only=True, repr=False)

    @property
    def description(self) -> str:
        """The model, the columns or the table."""
        if hasattr(self.source, "predict_proba"):
            return f"a {type(self.source).__name__}'s predictions"
        return f"columns {', '.join(self.source)}" if self._names_columns else "a public table"

    @property
    def grouping(self) -> Grouping | None:
        """The groups of a (C, K) source."""
        reader = None if self._found is None else self._found.reader
        return reader if isinstance(reader, Grouping) else None

    @property
    def _names_columns(self) -> bool:
        return isinstance(self.source, (list, tuple)) and all(isinstance(name, str) for name in self.source)

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Nothing."""
        return 0.0

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Nothing, on the assumption that neither the source nor its groups saw these labels."""
        things = ("prior",) if self.groups is None else ("prior", "grouping")
        return Guarantee.pure(0.0, assumptions=did_not_see(*things))

    def prepare(self, examples: Examples, *, budget: float) -> PublicPrior:
        """Return the prior with its beliefs found, and every row of a table or of columns checked."""
        if self._found is not None:
            return self
        if hasattr(self.source, "predict_proba"):
            found = Beliefs(reader=examples.read_model(self.source), description=self.description)
        elif self._names_columns:
            found = self._from_columns(examples)
        else:
            found = self._from_table(examples)
        return replace(self, _found=found)

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Return the public beliefs."""
        ready = self.prepare(examples, budget=budget)
        assert ready._found is not None  # noqa: SLF001 - its own
        return ready._found  # noqa: SLF001

    def _from_columns(self, examples: Examples) -> Beliefs:
        reader = examples.read_columns(self.source)
        if len(set(self.source)) != examples.n_classes or len(self.source) != examples.n_classes:
            got = Described(f"{len(set(self.source))} different columns for {examples.n_classes} classes")
            fix = "Name one column per class, in the order of the classes."
            raise invalid("PublicPrior", "source", "have one column per class", got=got, fix=fix)
        examples.collect(reader, _check_source, _join_nothing)
        return Beliefs(reader=reader, description=self.description)

    def _from_table(self, examples: Examples) -> Beliefs:
        rows = check_probability_rows("PublicPrior", "source", np.atleast_2d(np.asarray(self.source)))
        n, size = len(examples), examples.n_classes
        if self.groups is not None:
            from labeldp.priors.cluster import group_examples

            grouping = group_examples(examples, self.groups, budget=0.0)
            self._check_shape(rows, (grouping.n_groups,), size)
            return Beliefs(rows=rows, reader=grouping, description=self.description)
        self._check_shape(rows, (1, n), size)
        if len(rows) == 1:
            return Beliefs(rows=rows, reader=Reader(read=read_row_zero), description=self.description)
        return Beliefs(reader=Reader.of_array(rows), description=self.description)

    def _check_shape(self, rows: Floats, lengths: tuple[int, ...], n_classes: int) -> None:
        if rows.shape[1] != n_classes or len(rows) not in lengths:
            shapes = [f"({n_classes},)" if length == 1 else f"({length}, {n_classes})" for length in lengths]
            got = Described(f"shape {rows.shape}")
            raise invalid("PublicPrior", "source", f"be {' or '.join(shapes)}", got=got)


def _check_source(rows: Floats, first: int) -> None:
    check_probability_rows("PublicPrior", "source", rows, first_row=first)


def _join_nothing(one: None, other: None) -> None:
    """Join the results of checks, which have none."""


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

    @property
    def description(self) -> str:
        """The model and its temperature."""
        return f"a {type(self.model).__name__}'s predictions at temperature {self.temperature:g}"

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
        return Guarantee.pure(0.0, assumptions=did_not_see("prior")) if self.guarantee is None else self.guarantee

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Return the model's tempered predictions."""
        check_positive("prior", "temperature", self.temperature)
        predicted = examples.read_model(self.model)
        read = functools.partial(_read_tempered, predicted.read, self.temperature)
        return Beliefs(reader=replace(predicted, read=read), guarantee=self.guarantee, description=self.description)


def _read_tempered(read: Callable[[Any, slice], Floats], temperature: float, batch: Any, rows: slice) -> Floats:
    return tempered(read(batch, rows), temperature)
