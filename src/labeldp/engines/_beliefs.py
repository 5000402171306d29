"""What is believed about each row's label, batch by batch: nothing, columns of probabilities, a model, or groups.

>>> Uniform().cost(1.0, n_examples=1000, n_classes=3)
0.0

Design notes. `prepare` runs before anything is charged and may pass over the table; it finds what is wrong with it.
`respond` runs after the charge and returns the `Response` that answers each batch with a channel. Nothing here sees a
label: groups are counted in `labeldp.release`, and only noisy counts come back. A model gives a row the same
probabilities only within the same chunk (sums round differently in matrices of other sizes), so it works in chunks of
a fixed size and place; batches then hold whole chunks.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from labeldp._random import NoiseKey
from labeldp._validate import FloatArray, check_probability_rows
from labeldp.channel import FiniteChannel
from labeldp.engines._carry import Engine
from labeldp.engines._features import features_for
from labeldp.engines._rows import Rows, numbers
from labeldp.errors import Described, invalid
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRWithPrior
from labeldp.priors import model_probabilities

#: Rows that a model or a clustering sees at a time, whatever the batch size: part of what makes releases equal.
CHUNK_ROWS = 2**13
#: What the release assumes of a prior that costs nothing.
PUBLIC = "the prior was made without these labels"


class Answer(NamedTuple):
    """A batch's channel, and how many of its labels are expected to come out true."""

    channel: FiniteChannel
    accuracy: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Response:
    """How batches are answered, given their first row's position.

    `shared` is the channel without its examples, `prior` what was learned, if anything. It travels to workers: it holds
    no key and no exact count.
    """

    answer: Callable[[Any, int], Answer]
    shared: FiniteChannel
    prior: npt.NDArray[np.float64] | None = None
    #: The stage of some rows from a position on, where labels are drawn in stages.
    stage: Callable[[int, int], npt.NDArray[np.uint8]] | None = None


class Belief(abc.ABC):
    """A source of beliefs about the labels of a table's rows."""

    #: Batches must hold a multiple of so many rows.
    chunk = 1
    #: Columns that it reads.
    columns: Sequence[str] = ()
    #: What the guarantee stands on besides.
    assumption: str | None = None
    #: In words, after the mechanism.
    description = ""

    def prepare(self, rows: Rows, engine: Engine) -> None:  # noqa: B027 - most need nothing
        """Check what can be checked, before the charge."""

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Return how much of the budget it spends on the labels."""
        return 0.0

    def mechanism(self, epsilon: float, *, n_classes: int) -> Mechanism:
        """Return the mechanism that makes the most of it."""
        return RRWithPrior(epsilon)

    @abc.abstractmethod
    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """Return how batches are answered, spending what `cost` said."""


class Uniform(Belief):
    """Nothing is known: randomized response."""

    def mechanism(self, epsilon: float, *, n_classes: int) -> Mechanism:
        """Randomized response over all classes."""
        return RandomizedResponse(epsilon, n_classes=n_classes)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """One row serves all."""
        channel = mechanism.channel()
        accuracy = float(channel.expected_accuracy())
        return Response(answer=lambda batch, _: Answer(channel, accuracy * batch.num_rows), shared=channel)


class ProbabilityColumns(Belief):
    """A column of probabilities for each class, in the order of the classes."""

    assumption = PUBLIC

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.description = f" on columns {', '.join(self.columns)}"

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Check every row: a bad one must be found before anything is spent."""
        rows.source.require(*self.columns)
        if len(self.columns) != len(rows.classes) or len(set(self.columns)) != len(self.columns):
            got = Described(f"{len(set(self.columns))} different columns for {len(rows.classes)} classes")
            fix = "Name one column per class, in the order of the classes."
            raise invalid("privatize_table", "prior_columns", "have one column per class", got=got, fix=fix)
        for _ in engine.each(self._check, rows.pieces()):
            pass

    def _check(self, piece: Rows) -> None:
        done = piece.first
        for batch in piece.batches(columns=self.columns):
            matrix = self._matrix(batch)
            check_probability_rows("privatize_table", "prior_columns", matrix, first_row=done)
            done += len(matrix)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """A candidate set for each row."""
        return own_sets(mechanism, len(rows.classes), self._matrix)

    def _matrix(self, batch: Any) -> FloatArray:
        for name in self.columns:
            dtype = batch.schema.field(name).type
            if not (pa.types.is_floating(dtype) or pa.types.is_integer(dtype)):
                fix = "A prior is a probability for each class."
                got = Described(f"{dtype} in {name}")
                raise invalid("privatize_table", "prior_columns", "hold numbers", got=got, fix=fix)
        narrow = all(batch.schema.field(name).type == pa.float32() for name in self.columns)
        matrix = numbers(batch, self.columns)
        return matrix.astype(np.float32) if narrow else matrix


class Model(Belief):
    """A fitted classifier's probabilities, from the table's other columns."""

    chunk = CHUNK_ROWS
    assumption = PUBLIC

    def __init__(self, model: Any, *, apart: Sequence[str]) -> None:
        if not hasattr(model, "predict_proba") or not hasattr(model, "classes_"):
            fix = "Pass a fitted classifier."
            raise invalid(
                "privatize_table", "model", "have `predict_proba` and `classes_`", got=type(model).__name__, fix=fix
            )
        self._model = model
        self._apart = tuple(apart)
        self.description = f" on a {type(model).__name__}'s predictions"

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Choose the columns and try the model on the first chunk."""
        self._features = features_for(self._model, rows.source, apart=self._apart)
        self.columns = self._features.columns
        self._classes = rows.classes
        first = next(rows.batches(columns=self.columns, size=CHUNK_ROWS))
        check_probability_rows("privatize_table", "model", self._matrix(first))

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """A candidate set for each row."""
        return own_sets(mechanism, len(rows.classes), self._matrix)

    def _matrix(self, batch: Any) -> FloatArray:
        starts = range(0, batch.num_rows, CHUNK_ROWS)
        chunks = [self._features.of(batch.slice(start, CHUNK_ROWS)) for start in starts]
        with one_thread():  # sums of a product may depend on how many threads share it
            predicted = [model_probabilities(self._model, chunk, self._classes) for chunk in chunks]
        return np.concatenate(predicted)


def one_thread() -> Any:
    """Return a context in which linear algebra has one thread.

    A chunk is too small to share: threads that wait for each other cost fifteen times the work on a busy core.
    """
    return _controller().limit(limits=1)


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def own_sets(mechanism: Mechanism, n_classes: int, prior_of: Callable[[Any], FloatArray]) -> Response:
    """Return the response of a mechanism that chooses candidates for each row from its own prior."""

    def answer(batch: Any, _: int) -> Answer:
        prior = prior_of(batch)
        channel = mechanism.channel(prior, n_classes=n_classes)
        return Answer(channel, float(np.sum(channel.expected_accuracy(prior))))

    one = mechanism.channel(np.full((1, n_classes), 1.0 / n_classes))
    return Response(answer=answer, shared=one.take(slice(0, 0)))
