"""What is believed about each row's label, batch by batch: nothing, columns of probabilities, a model, or groups.

>>> Uniform().cost(1.0, n_examples=1000, n_classes=3)
0.0

Design notes. `prepare` runs before anything is charged and may pass over the table; it finds what is wrong with it.
`respond` runs after the charge and returns the `Response` that answers each batch with a channel. Nothing here sees a
label: groups are counted in `labeldp.release`, and only noisy counts come back. A model gives a row the same
probabilities only within the same chunk (sums round differently in matrices of other sizes), so it works in chunks of
a fixed size and place; batches then hold whole chunks.

Beliefs from groups of rows: a public column of group ids, or k-means on the numeric columns, then noisy counts.

The counts get the noise of `ClusterPrior` (Ghazi et al. 2021, Algorithm 4) and cost the same share of the budget; the
release is the one that `ClusterPrior(groups=...)` and `RRWithPrior` give in memory under the same key.

Design notes. Groups are made before the charge and without labels. k-means is fitted by `partial_fit` on the chunks of a
sample (see `_standard`). Values of a column and counts of labels are joined as a tree, wherever the pieces are.

From a batch of columns to what a fitted model wants to see.

Design notes. A model that remembers column names gets an Arrow table of them, which scikit-learn accepts and whose
names it checks; one that does not gets the numeric columns as a matrix, in the order of the table. pandas is not
needed. Labels never enter: the label column and those named apart are left out.

Numeric columns on one scale, learned from a sample of the table without labels: what k-means and learners see.

Design notes. The sample is chunks of a fixed size and place, at most `FIT_CHUNKS` of them spread over the table, so that
batch sizes and engines do not change it. Infinite values count as missing, and missing ones as average.

Two stages at scale: a model of the labels that were drawn first is the prior of the others, in one release, without a shuffle.

Ghazi et al. 2021, Algorithm 3 (LP-MST): the rows are split without looking at labels, the first part is released by
randomized response, a model learns from it, and the second part is released by RRWithPrior on the model's predictions.

Guarantee. Each label is drawn once, by a channel that is epsilon-DP and depends on features and on the released labels of
*other* rows alone. Replacing one label of the first stage changes the law of that one output by at most e^epsilon, and what
follows is computed from it; one of the second stage changes its own output alone. Hence epsilon in all.

>>> from labeldp.random import NoiseKey
>>> salt = stage_salt(NoiseKey.from_seed(1))
>>> stages = stage_of(salt, 0, 8, first_share=0.5)
>>> bool((stage_of(salt, 3, 5, first_share=0.5) == stages[3:]).all())
True

Design notes. The stage of a row is a keyed hash of its position: any worker computes it by itself. The salt is derived from
the key one way, and tells nothing of it; stages are released anyway. Labels of the first stage are drawn once for training
and again for the release, under the same noise: the same labels. The learner goes over the table on the coordinating
machine, batch after batch: `partial_fit` has an order.
"""

from __future__ import annotations

import abc
import copy
import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.arrays import Float64s, Floats, Int64s
from labeldp.channel import FiniteChannel
from labeldp.data.tables import TableSource
from labeldp.engines.engine import Engine, prefetched
from labeldp.engines.rows import BATCH_ROWS, Rows, changed, numbers, numeric_columns
from labeldp.errors import Described, invalid
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRWithPrior
from labeldp.priors import ClusterPrior, model_probabilities
from labeldp.priors.cluster import MOST_CLUSTERS
from labeldp.random import NoiseKey
from labeldp.release.door import draw_part
from labeldp.release.measurement import StreamedCounts, shares
from labeldp.validate import check_integer, check_probability_rows

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

    def _matrix(self, batch: Any) -> Floats:
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

    def _matrix(self, batch: Any) -> Floats:
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


def own_sets(mechanism: Mechanism, n_classes: int, prior_of: Callable[[Any], Floats]) -> Response:
    """Return the response of a mechanism that chooses candidates for each row from its own prior."""

    def answer(batch: Any, _: int) -> Answer:
        prior = prior_of(batch)
        channel = mechanism.channel(prior, n_classes=n_classes)
        return Answer(channel, float(np.sum(channel.expected_accuracy(prior))))

    one = mechanism.channel(np.full((1, n_classes), 1.0 / n_classes))
    return Response(answer=answer, shared=one.take(slice(0, 0)))


#: A small table is gone through so often at most.
MOST_EPOCHS = 20
#: Counts held in memory, groups times classes: 128 MB, and twice that for the channel.
MOST_CELLS = 2**24


class Groups(Belief, abc.ABC):
    """Rows in public groups, whose labels are counted with noise; a subclass says how rows are grouped."""

    n_groups: int

    def __init__(self, *, epsilon: float | None) -> None:
        self._epsilon = epsilon

    @abc.abstractmethod
    def group(self, rows: Rows, engine: Engine) -> None:
        """Learn the groups, without labels."""

    @abc.abstractmethod
    def of(self, batch: Any) -> Int64s:
        """Return the group of each row."""

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Make the groups and count labels in them; the counts stay behind the door until they have their noise."""
        self.group(rows, engine)
        if self.n_groups * len(rows.classes) > MOST_CELLS:
            got = Described(f"{self.n_groups:,} groups of {len(rows.classes):,} classes")
            raise invalid(
                "privatize_table", "clusters", f"need at most {MOST_CELLS:,} counts", got=got, fix="Merge some."
            )
        self._counts: StreamedCounts | None = engine.reduced(self._counted, StreamedCounts.joined, rows.pieces())

    def _counted(self, piece: Rows) -> StreamedCounts:
        """Count one piece's labels in its groups."""
        counts = StreamedCounts(n_groups=self.n_groups, n_classes=len(piece.classes))
        size = BATCH_ROWS // self.chunk * self.chunk
        for batch in prefetched(piece.batches(columns=[piece.label, *self.columns], size=size), depth=2):
            counts.add(piece.labels(batch), self.of(batch))
        return counts

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Epsilon of the histograms, by the rule of `ClusterPrior`."""
        if budget == 0:
            fix = "Leave the clusters out: nothing can be learned at epsilon 0."
            raise invalid("privatize_table", "epsilon", "be > 0 for a prior from clusters", got=budget, fix=fix)
        prior = ClusterPrior(n_clusters=self.n_groups, epsilon=self._epsilon)
        return prior.cost(budget, n_examples=n_examples, n_classes=n_classes)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """Draw the noise of the counts, and answer each row by its group's shares."""
        assert self._counts is not None
        measured = self._counts.release(epsilon=spent, key=key.child("cluster prior"))
        self._counts = None  # exact: what answers batches may travel, and they must not travel with it
        prior = shares(measured.value)
        whole = mechanism.channel(prior, groups=np.arange(self.n_groups))
        accuracy = np.asarray(whole.expected_accuracy(prior))
        whole.prepare()  # once, not once a batch

        def answer(batch: Any, _: int) -> Answer:
            groups = self.of(batch)
            return Answer(whole.take(groups), float(accuracy[groups].sum()))

        return Response(answer=answer, shared=whole, prior=prior.astype(np.float64))


class GroupColumn(Groups):
    """A public column of whole numbers or text; its values are the groups."""

    def __init__(self, column: str, *, epsilon: float | None) -> None:
        super().__init__(epsilon=epsilon)
        self.columns = (column,)
        self.description = f" on noisy histograms by {column}"

    def group(self, rows: Rows, engine: Engine) -> None:
        """Collect the column's values, sorted."""
        column = self.columns[0]
        rows.source.require(column)
        dtype = _value_type(rows.source.schema.field(column).type)
        if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            fix = "Round or cast it first."
            raise invalid("privatize_table", "cluster_column", "be whole numbers or text", got=str(dtype), fix=fix)
        seen: frozenset[Any] = engine.reduced(self._seen, lambda one, other: one | other, rows.pieces())
        _check_seen(column, seen)
        self._source = replace(rows.source, parts=())
        self._values = pa.array(sorted(seen), type=dtype)
        self.n_groups = len(seen)

    def _seen(self, piece: Rows) -> frozenset[Any]:
        """Return the values of one piece."""
        seen: set[Any] = set()
        for batch in piece.batches(columns=self.columns):
            seen.update(pc.unique(_decoded(batch.column(0))).to_pylist())
            _check_seen(self.columns[0], seen)
        return frozenset(seen)

    def of(self, batch: Any) -> Int64s:
        """Look the values up."""
        found = pc.index_in(_decoded(batch.column(self.columns[0])), value_set=self._values)
        if found.null_count:
            raise changed(self._source)
        groups: Int64s = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return groups


class KMeans(Groups):
    """MiniBatchKMeans on the numeric columns, standardised; missing values count as average."""

    chunk = CHUNK_ROWS

    def __init__(self, n_clusters: int, *, epsilon: float | None, apart: Sequence[str]) -> None:
        super().__init__(epsilon=epsilon)
        self.n_groups = check_integer("privatize_table", "n_clusters", n_clusters, least=1, most=MOST_CLUSTERS)
        self._apart = tuple(apart)
        self.description = f" on noisy histograms of {self.n_groups} clusters"

    def group(self, rows: Rows, engine: Engine) -> None:
        """Fit the scale, then the centres, on chunks spread over the table."""
        from sklearn.cluster import MiniBatchKMeans

        fix = "There are no more rows than that."
        check_integer("privatize_table", "n_clusters", self.n_groups, least=1, most=rows.count, fix=fix)
        self.columns = tuple(numeric_columns(rows.source, but=self._apart))
        if not self.columns:
            fix = "Name a column of groups instead (cluster_column=)."
            raise invalid("privatize_table", "n_clusters", "have numeric columns", got=Described("none"), fix=fix)
        self._features = Standardised(self.columns)
        chunks = _first_large(self._features.fit(rows, engine), self.n_groups)
        self._centres = MiniBatchKMeans(n_clusters=self.n_groups, random_state=0, n_init=1)
        for _ in range(max(1, min(MOST_EPOCHS, FIT_CHUNKS // len(chunks)))):
            for chunk in chunks:
                with one_thread():
                    self._centres.partial_fit(chunk)

    def of(self, batch: Any) -> Int64s:
        """Return the nearest centre of each row, chunk by chunk."""
        matrix = self._features.of(batch)
        starts = range(0, len(matrix), CHUNK_ROWS)
        with one_thread():
            found = [self._centres.predict(matrix[start : start + CHUNK_ROWS]) for start in starts]
        groups: Int64s = np.concatenate(found).astype(np.int64)
        return groups


def _first_large(chunks: list[Float64s], least: int) -> list[Float64s]:
    """Return the chunks with the largest first, which must have a row for each cluster; all as one if none has."""
    largest = max(range(len(chunks)), key=lambda place: len(chunks[place]))
    ordered = [chunks[largest], *chunks[:largest], *chunks[largest + 1 :]]
    return ordered if len(ordered[0]) >= least else [np.concatenate(ordered)]


def _check_seen(column: str, seen: Collection[Any]) -> None:
    if None in seen:
        fix = "Fill them with a group of their own."
        got = Described(f"missing ones in {column}")
        raise invalid("privatize_table", "cluster_column", "have no missing values", got=got, fix=fix)
    if len(seen) > MOST_CELLS // 2:
        got = Described(f"more than {MOST_CELLS // 2:,} in {column}")
        raise invalid("privatize_table", "cluster_column", "name groups", got=got, fix="It looks like a row id.")


def _value_type(dtype: Any) -> Any:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True, kw_only=True)
class Features:
    """Which columns a model takes, and whether it knows them by name."""

    columns: tuple[str, ...]
    by_name: bool

    def of(self, batch: Any) -> Any:
        """Return a batch's features: an Arrow table by name, or a float matrix."""
        if not self.by_name:
            return numbers(batch, self.columns)
        return pa.table({name: _plain(batch.column(name)) for name in self.columns})


def features_for(model: Any, source: TableSource, *, apart: Sequence[str]) -> Features:
    """Return the columns that a model was fitted on, or all numeric ones if it has forgotten their names."""
    named = getattr(model, "feature_names_in_", None)
    if named is not None:
        names = tuple(str(name) for name in named)
        source.require(*names)
        _check_apart(names, apart)
        return Features(columns=names, by_name=True)
    names = tuple(numeric_columns(source, but=apart))
    wanted = getattr(model, "n_features_in_", len(names))
    if wanted != len(names):
        got = Described(f"a model of {wanted} features for {len(names)} numeric columns")
        fix = "Fit it on a table with named columns, so that it knows which it wants."
        raise invalid("privatize_table", "model", "take the table's numeric columns", got=got, fix=fix)
    return Features(columns=names, by_name=False)


def _check_apart(names: Sequence[str], apart: Sequence[str]) -> None:
    """A model that reads the label is no prior: it would see, for free, what is to be hidden."""
    seen = next((name for name in names if name in apart), None)
    if seen is not None:
        fix = "Fit it without the label and the row ids."
        raise invalid("privatize_table", "model", "not take the label as a feature", got=seen, fix=fix)


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


#: Chunks of the sample: half a million rows, past which centres and scales hardly move.
FIT_CHUNKS = 64
#: Numbers of the sample held in memory: 256 MB.
FIT_CELLS = 2**25


class Standardised:
    """Centres and scales columns as they were in a sample; `sample` is that sample, until it is let go."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def fit(self, rows: Rows, engine: Engine) -> list[Float64s]:
        """Learn the scale, and return the sample's chunks, scaled."""
        from sklearn.preprocessing import StandardScaler

        chunks = self._sample(rows, engine)
        self._scale = StandardScaler()
        for chunk in chunks:
            self._scale.partial_fit(chunk)
        return [self.scaled(chunk) for chunk in chunks]

    def of(self, batch: Any) -> Float64s:
        """Return a batch's columns, scaled."""
        return self.scaled(self._numbers(batch))

    def scaled(self, matrix: Float64s) -> Float64s:
        """Return raw numbers scaled."""
        answer: Float64s = np.nan_to_num(self._scale.transform(matrix), nan=0.0)
        return answer

    def _sample(self, rows: Rows, engine: Engine) -> list[Float64s]:
        """Return evenly spread chunks; only the spans that hold one are read."""
        pieces = rows.pieces()
        whole = [(place, number) for place, piece in enumerate(pieces) for number in _chunk_numbers(piece)]
        most = max(1, min(FIT_CHUNKS, FIT_CELLS // (CHUNK_ROWS * len(self.columns))))
        stride = math.ceil(len(whole) / most) if rows.count > most * CHUNK_ROWS else 1
        chosen = whole[::stride]
        wanted = [(pieces[at], tuple(n for place, n in chosen if place == at)) for at in sorted({p for p, _ in chosen})]
        found = dict(engine.each(self._read, wanted))
        return [chunk for place in sorted(found) for chunk in found[place]]

    def _read(self, wanted: tuple[Rows, tuple[int, ...]]) -> list[Float64s]:
        """Return some chunks of a piece, as matrices."""
        piece, chosen = wanted
        batches = itertools.islice(piece.batches(columns=self.columns, size=CHUNK_ROWS), max(chosen) + 1)
        return [self._numbers(batch) for number, batch in enumerate(batches) if number in chosen]

    def _numbers(self, batch: Any) -> Float64s:
        matrix = numbers(batch, self.columns)
        matrix[np.isinf(matrix)] = np.nan
        return matrix


def _chunk_numbers(piece: Rows) -> range:
    return range(math.ceil(piece.count / CHUNK_ROWS))


#: Share of the first stage (Ghazi et al. 2021, supplement E, between epsilon 1 and 8: 0.8 to 0.6).
FIRST_SHARE = 0.7


def stage_salt(key: NoiseKey) -> bytes:
    """Return the salt of a release's stages."""
    return key.child("stages").reveal()


def stage_of(salt: bytes, start: int, count: int, *, first_share: float) -> npt.NDArray[np.uint8]:
    """Return the stage, 0 or 1, of rows `start` .. by a keyed hash of their positions: AES in counter mode."""
    words = NoiseKey(salt, seeded=True).words(start=start, count=count)[:, 0]
    stages: npt.NDArray[np.uint8] = (words >= np.uint64(int(first_share * 2.0**64))).astype(np.uint8)
    return stages


class Staged(Belief):
    """What a learner makes of the labels of the first stage; nothing, for those."""

    chunk = CHUNK_ROWS

    def __init__(self, learner: Any, *, apart: Sequence[str]) -> None:
        if not (hasattr(learner, "partial_fit") and hasattr(learner, "predict_proba")):
            fix = "For example SGDClassifier(loss='log_loss'), or GaussianNB()."
            got = type(learner).__name__
            raise invalid("privatize_table", "learner", "have `partial_fit` and `predict_proba`", got=got, fix=fix)
        self._learner = learner
        self._apart = tuple(apart)
        self.description = f" in two stages, the second on a {type(learner).__name__}'s predictions"

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Choose the columns, and learn their scale."""
        self.columns = tuple(numeric_columns(rows.source, but=self._apart))
        if not self.columns:
            raise invalid("privatize_table", "learner", "have numeric columns", got=Described("none"))
        self._features = Standardised(self.columns)
        self._features.fit(rows, engine)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """Train on the first stage as it is released, and answer the second by what was learned."""
        salt, features, classes = stage_salt(key), self._features, rows.classes
        model = self._trained(rows, mechanism, key, salt)
        flat = 1.0 / len(classes)

        def answer(batch: Any, start: int) -> Answer:
            prior = np.full((batch.num_rows, len(classes)), flat)
            later = stage_of(salt, start, batch.num_rows, first_share=FIRST_SHARE) == 1
            starts = range(0, batch.num_rows, CHUNK_ROWS)
            with one_thread():
                chunks = [features.of(batch.slice(at, CHUNK_ROWS)) for at in starts]
                predicted = np.concatenate([model_probabilities(model, chunk, classes) for chunk in chunks])
            prior[later] = predicted[later]
            channel = mechanism.channel(prior, n_classes=len(classes))
            return Answer(channel, float(np.sum(channel.expected_accuracy(prior))))

        def stage(start: int, count: int) -> npt.NDArray[np.uint8]:
            return stage_of(salt, start, count, first_share=FIRST_SHARE)

        one = mechanism.channel(np.full((1, len(classes)), flat))
        return Response(answer=answer, shared=one.take(slice(0, 0)), stage=stage)

    def _trained(self, rows: Rows, mechanism: Mechanism, key: NoiseKey, salt: bytes) -> Any:
        """Fit a copy of the learner on the released labels of the first stage, chunk after chunk."""
        model, labels = copy.deepcopy(self._learner), np.asarray(rows.classes)
        start = rows.first
        batches = rows.batches(columns=[rows.label, *self.columns], size=CHUNK_ROWS)
        for batch in prefetched(batches, depth=2):
            first = stage_of(salt, start, batch.num_rows, first_share=FIRST_SHARE) == 0
            flat = np.full((batch.num_rows, len(labels)), 1.0 / len(labels))
            channel = mechanism.channel(flat, n_classes=len(labels))
            codes = draw_part(rows.labels(batch), channel, promise=mechanism.guarantee, key=key, start=start)
            if first.any():
                with one_thread():
                    model.partial_fit(self._features.of(batch)[first], labels[codes[first]], classes=labels)
            start += batch.num_rows
        return model
