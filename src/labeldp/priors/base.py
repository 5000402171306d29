"""What is believed about labels before anyone looks at them: `Prior`, the examples it is asked about, and its answers.

A prior says what it costs and what it assumes, does the work that needs no label, and then gives beliefs: a row of class
probabilities for each example. One object serves features in memory and a table that is larger than memory.

>>> from labeldp.release import SensitiveLabels
>>> labels = SensitiveLabels(["no", "yes", "no"], classes=["no", "yes"])
>>> examples = ArrayExamples(None, labels)
>>> from labeldp.priors import PublicPrior
>>> prior = PublicPrior([0.9, 0.1])
>>> prior.cost(1.0, n_examples=3, n_classes=2), prior.promise(1.0, n_examples=3, n_classes=2).assumptions
(0.0, ('the prior did not see these labels',))
>>> beliefs = prior.prepare(examples, budget=1.0).beliefs(examples, budget=1.0, key=NoiseKey.from_seed(0))
>>> beliefs.rows.tolist(), beliefs.reader.read(None, slice(0, 3)).tolist()
([[0.9, 0.1]], [0, 0, 0])

The order of calls, which learners and engines keep:

1. `prepare(examples, budget=)` does what needs no label (clusters, checks of columns) and fails, if it must, for free;
2. `promise(budget, ...)` says what the beliefs cost of an epsilon, and what they assume; `Budget.split` asks it;
3. the ledger is charged;
4. `beliefs(examples, budget=, key=)` spends what was promised. For a prior that `sees_labels` this comes after the charge.

Design notes. `Examples` is all that a prior may ask about a data set: columns, a model's predictions, groups, noisy counts in
groups. Each answer is a `Reader`, a function of one batch that may travel to another machine: it holds no label, no key and
no exact count. In memory there is one batch, and readers look up an array by position; a table's readers work on the
batch they are given. Labels themselves stay behind the door: `Examples.count` gives counts that come out only with noise.

A model gives a row the same probabilities only within the same chunk (sums round differently in matrices of other sizes),
so a table's readers work in chunks of `CHUNK_ROWS`, and `Reader.chunk` asks for batches that hold whole chunks.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from labeldp.arrays import Float64s, Floats, Ints
from labeldp.errors import Described, invalid, nearest
from labeldp.guarantee import Guarantee, Trust, did_not_see
from labeldp.items import is_dataset
from labeldp.mechanisms import Mechanism
from labeldp.random import NoiseKey
from labeldp.release import LabelCounts, Measurement, SensitiveLabels, measure
from labeldp.release.door import draw_part
from labeldp.release.persons import Persons
from labeldp.validate import check_integer, check_positive

#: Rows that a model or a clustering of a table sees at a time, whatever the batch size: part of what makes releases equal.
CHUNK_ROWS = 2**13

Result = TypeVar("Result")


class Prior(abc.ABC):
    """A source of beliefs about labels, in memory or on a table.

    A subclass says what it costs (`cost`) and gives `beliefs`; one that only ever works in memory may give a whole `table`
    instead. `sees_labels` says whether its beliefs are measured on the labels (then the ledger is charged before they are
    asked for), `raw_features` whether it is given the features as the user has them, or as a pipeline's transformers
    make them, and `draws_labels` whether it draws the labels of some rows as they will be released.
    """

    sees_labels: ClassVar[bool] = True
    raw_features: ClassVar[bool] = False
    draws_labels: ClassVar[bool] = False

    @property
    def grouping(self) -> Grouping | None:
        """The groups whose examples share beliefs, known after `prepare`; None where there are none."""
        return None

    @property
    def description(self) -> str:
        """Where the beliefs come from, in words, without what they cost; a release says so after its mechanism."""
        return repr(self)

    @abc.abstractmethod
    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Return how much of the epsilon `budget` this source spends on the same labels; 0 if it sees none of them."""

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Return what the beliefs cost, with the trust and the assumptions that they need.

        Unless a subclass knows better, beliefs that cost something are a curator's, and those that cost nothing stand on
        a prior that did not see these labels.
        """
        spent = self.cost(budget, n_examples=n_examples, n_classes=n_classes)
        if spent:
            return Guarantee.pure(spent, trust=Trust.CURATOR)
        return Guarantee.pure(0.0, assumptions=did_not_see("prior"))

    def alone(self) -> Prior:
        """Return this source for a learner that releases no label: it may spend the whole budget. By default, itself."""
        return self

    def with_journal(self, kept: Kept) -> Prior:
        """Return this source with a memory for what it measures on its way to the table. By default there is nothing."""
        return self

    def prepare(self, examples: Examples, *, budget: float) -> Prior:
        """Return this source with the work done that needs no label, so that it fails, if it must, before it is charged.

        Nothing is drawn, and what it costs is the same. By default there is nothing to prepare.
        """
        return self

    def beliefs(
        self, examples: Examples, *, budget: float, key: NoiseKey, response: Mechanism | None = None
    ) -> Beliefs:
        """Return the beliefs about all examples, to be read batch by batch; spends what `cost` says of `budget`.

        `key` is where noise comes from, `response` the mechanism that will answer with these beliefs: a prior that
        learns from labels as they are released needs it, others do not.
        """
        name = type(self).__name__
        fix = "Give it a method `beliefs`, or use PublicPrior, ModelPrior or ClusterPrior."
        raise invalid(name, "examples", "be in memory", got=Described("rows that come in batches"), fix=fix)

    def table(
        self, X: Any, labels: SensitiveLabels, *, budget: float, key: NoiseKey, persons: Persons | None = None
    ) -> PriorTable:
        """Return the beliefs about examples in memory, spending on the labels what `cost` says of the whole `budget`.

        With `persons` that is spent on all labels of a person: her rows are capped in every count.
        """
        examples = ArrayExamples(X, labels, persons=persons)
        found = self.prepare(examples, budget=budget).beliefs(examples, budget=budget, key=key)
        return found.table(len(examples))


# -------------------------------------------------------------------------------------------- what a prior is asked about


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads something public of a batch of examples: a number, a group or a row for each.

    `read(batch, rows)` is given the batch and the positions of its rows among all, a slice. `columns` are those that it
    needs in the batch, and `chunk` asks for batches of a multiple of so many rows. It may travel: no label, no key.
    """

    read: Callable[[Any, slice], Any]
    columns: tuple[str, ...] = ()
    chunk: int = 1

    @classmethod
    def of_array(cls, array: Any) -> Reader:
        """Return a reader of an array that has an entry, or a row, for each example."""
        return cls(read=_AtPosition(array))


@dataclass(frozen=True, kw_only=True)
class Grouping(Reader):
    """Public groups of examples, 0 .. n_groups - 1, made without labels; `words` say how."""

    n_groups: int
    words: str

    @classmethod
    def of_groups(cls, groups: Ints) -> Grouping:
        """Return the grouping that an array of group numbers is."""
        count = int(groups.max()) + 1
        return cls(read=_AtPosition(groups), n_groups=count, words=f"of {count} clusters")


@dataclass(frozen=True)
class _AtPosition:
    """Looks up an array at the positions of a batch's rows."""

    array: Any = field(repr=False)

    def __call__(self, _: Any, rows: slice) -> Any:
        return self.array[rows]


def read_row_zero(_: Any, rows: slice) -> Ints:
    """Read row 0 of a table of beliefs for every example: all of them are believed alike."""
    return np.zeros(rows.stop - rows.start, np.int64)


class Counts(Protocol):
    """Labels counted in groups, behind the door: only noisy counts come out."""

    def release(self, *, epsilon: float, key: NoiseKey) -> Measurement:
        """Return counts (C, K) with the noise of `measure`."""


class Examples(abc.ABC):
    """The examples whose labels a prior is about: features in memory, or the rows of a table that an engine walks."""

    #: The classes, in the order of their codes, and how many there are, K.
    classes: tuple[Any, ...]
    n_classes: int

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many examples there are."""

    @abc.abstractmethod
    def read_columns(self, names: Sequence[str]) -> Reader:
        """Return a reader of named columns as a matrix of numbers; columns that are not there are refused."""

    @abc.abstractmethod
    def read_features(self, owner: str) -> Reader:
        """Return a reader of the numeric features, centred and scaled; missing values count as average."""

    @abc.abstractmethod
    def read_model(self, model: Any) -> Reader:
        """Return a reader of a fitted classifier's probabilities, (m, K), in the order of the classes."""

    @abc.abstractmethod
    def group_column(self, name: str) -> Grouping:
        """Return groups by the sorted values of a public column of whole numbers or text."""

    @abc.abstractmethod
    def group_clusters(
        self, n_clusters: int, *, random_state: int, full_steps: int, n_components: int | None
    ) -> Grouping:
        """Return clusters of the features by k-means."""

    @abc.abstractmethod
    def collect(
        self, reader: Reader, work: Callable[[Any, int], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """Return `work(values, first position)` of every batch that a reader reads, joined; the order must not matter."""

    @abc.abstractmethod
    def count(self, grouping: Grouping) -> Counts:
        """Count the labels in public groups; the counts stay behind the door until they have their noise."""

    @abc.abstractmethod
    def draw(
        self, reader: Reader, channel: Callable[[int], Any], *, promise: Guarantee, key: NoiseKey
    ) -> Iterator[tuple[Any, slice, Any]]:
        """Yield what a reader reads of each chunk, its rows, and its labels as they will be released under this key.

        `channel(m)` answers m rows. The ledger must have been charged with `promise`; drawing again for the release gives
        the same labels, at no further cost.
        """


class ArrayExamples(Examples):
    """Features in memory (an array, a data frame, an Arrow table, or None where none are needed) and boxed labels.

    With `persons` a count is of at most so many rows of each person as `measure` says, with noise for all of them.
    """

    def __init__(self, X: Any, labels: SensitiveLabels, *, persons: Persons | None = None) -> None:
        self._X, self._labels, self._persons = X, labels, persons
        self.classes, self.n_classes = labels.classes, labels.n_classes

    def __len__(self) -> int:
        return len(self._labels)

    def read_columns(self, names: Sequence[str]) -> Reader:
        """Look the columns up by name."""
        return Reader.of_array(_named_columns(self._X, names))

    def read_features(self, owner: str) -> Reader:
        """Scale all features, as a table of one piece would be."""
        from sklearn.preprocessing import StandardScaler

        matrix = np.array(refuse_dataset(self._X), dtype=np.float64)
        matrix[np.isinf(matrix)] = np.nan
        scale = StandardScaler()
        for start in range(0, len(matrix), CHUNK_ROWS):
            scale.partial_fit(matrix[start : start + CHUNK_ROWS])
        return Reader.of_array(np.nan_to_num(scale.transform(matrix), nan=0.0))

    def read_model(self, model: Any) -> Reader:
        """Predict all examples at once."""
        return Reader.of_array(model_probabilities(model, self._X, self.classes))

    def group_column(self, name: str) -> Grouping:
        """Number the sorted values of the column."""
        values = np.asarray(_columns_of(self._X, [name])[0])
        groups = np.unique(values, return_inverse=True)[1].astype(np.int64)
        return replace(Grouping.of_groups(groups), words=f"by {name}")

    def group_clusters(
        self, n_clusters: int, *, random_state: int, full_steps: int, n_components: int | None
    ) -> Grouping:
        """Cluster all rows, or their principal components."""
        from labeldp.priors.cluster import cluster

        rows = flat_features(self._X, n_components=n_components, random_state=random_state)
        return Grouping.of_groups(
            cluster(rows, n_clusters=n_clusters, random_state=random_state, full_steps=full_steps)
        )

    def collect(
        self, reader: Reader, work: Callable[[Any, int], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """There is one batch."""
        return work(reader.read(self._X, slice(0, len(self))), 0)

    def count(self, grouping: Grouping) -> Counts:
        """Return a question that is asked of the labels when its noise is due."""
        groups = grouping.read(self._X, slice(0, len(self)))
        return _Question(self._labels, LabelCounts(groups=groups, n_groups=grouping.n_groups), self._persons)

    def draw(
        self, reader: Reader, channel: Callable[[int], Any], *, promise: Guarantee, key: NoiseKey
    ) -> Iterator[tuple[Any, slice, Any]]:
        """Draw chunk by chunk."""
        if self._persons is not None:
            fix = "LabelPrivateClassifier(stages=2) learns in stages that split no person."
            raise invalid(
                "ArrayExamples", "persons", "be left out where a prior draws labels", got=Described("some"), fix=fix
            )
        for start in range(0, len(self), CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, len(self)))
            labels = self._labels.take(rows)
            codes = draw_part(labels, channel(len(labels)), promise=promise, key=key, start=start)
            yield reader.read(self._X, rows), rows, codes


@dataclass(frozen=True)
class _Question:
    """Counts of labels in memory: `measure` counts them when it is given an epsilon and a key."""

    labels: SensitiveLabels
    query: LabelCounts
    persons: Persons | None = None

    def release(self, *, epsilon: float, key: NoiseKey) -> Measurement:
        return measure(self.labels, self.query, epsilon=epsilon, rng=key, persons=self.persons)


# ---------------------------------------------------------------------------------------------- what a prior answers


@dataclass(frozen=True, kw_only=True, eq=False)
class Beliefs:
    """Beliefs about labels, to be read batch by batch.

    Where examples share rows, `rows` are those (C, K) and `reader` reads which one each example has; otherwise `rows` is
    None and `reader` reads a row for each, (m, K). `guarantee` is what it cost to learn them (None: nothing), `seeded`
    whether noise in them came from a seed, `stage` the stage of a slice of rows where labels are drawn in stages. It may
    travel: it holds no key and no exact count.
    """

    reader: Reader
    rows: Floats | None = None
    guarantee: Guarantee | None = None
    seeded: bool = False
    description: str = ""
    stage: Callable[[slice], Any] | None = None

    def for_rows(self, batch: Any, rows: slice) -> Floats:
        """Return the (m, K) beliefs about a batch, whose rows have these positions."""
        found = self.reader.read(batch, rows)
        answer: Floats = found if self.rows is None else self.rows[found]
        return answer

    def table(self, n_examples: int) -> PriorTable:
        """Return the beliefs about examples in memory."""
        found = self.reader.read(None, slice(0, n_examples))
        return PriorTable(
            rows=found if self.rows is None else self.rows,
            index=np.arange(len(found)) if self.rows is None else found,
            guarantee=self.guarantee,
            seeded=self.seeded,
            description=self.description,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorTable:
    """Beliefs about the labels of n examples in memory: rows of class probabilities, and the row of each example.

    `guarantee` is what it cost to learn them (None: nothing), `seeded` whether noise in them came from a seed, and
    `description` says in words where they come from.
    """

    rows: Floats
    index: Ints
    guarantee: Guarantee | None = None
    seeded: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        # A release or a checkpoint on disk may say anything; a place outside the rows would be another example's belief.
        rows, index = np.asarray(self.rows), np.asarray(self.index)
        if rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[1] == 0:
            raise invalid("PriorTable", "rows", "be rows of class probabilities", got=self.rows)
        low, high = (index.min(initial=0), index.max(initial=-1)) if index.dtype.kind in "iu" else (0, len(rows))
        if index.ndim != 1 or low < 0 or high >= len(rows):
            raise invalid("PriorTable", "index", "name a row of the beliefs for each example", got=self.index)

    def probabilities(self, examples: Any = slice(None)) -> Floats:
        """Return the (m, K) prior of some examples; where one row serves all, it is in memory once (and read-only)."""
        index = self.index[examples]
        if len(self.rows) == 1:
            return np.broadcast_to(self.rows, (len(index), self.rows.shape[1]))
        chosen: Floats = self.rows[index]
        return chosen

    def take(self, examples: Any) -> PriorTable:
        """Return the beliefs about some examples."""
        return replace(self, index=self.index[examples])

    @property
    def says_nothing(self) -> bool:
        """Whether this is the uniform belief, which needs no record."""
        return bool((self.rows == 1.0 / self.rows.shape[1]).all())


#: (name, how to measure it) -> the table, measured now or kept from a run that was stopped
Kept = Callable[[str, Callable[[], PriorTable]], PriorTable]


# ------------------------------------------------------------------------------------------- models and features


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


def chunk_probabilities(model: Any, rows: Float64s, classes: Sequence[Any]) -> Floats:
    """Return a model's class probabilities, computed `CHUNK_ROWS` rows at a time by one thread.

    The same row of the same chunk then has the same probabilities on every machine, to the last bit.
    """
    chunks = [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]
    with one_thread():
        return np.concatenate([model_probabilities(model, chunk, classes) for chunk in chunks])


def one_thread() -> Any:
    """Return a context in which linear algebra has one thread: sums of a product may depend on how many share it.

    A chunk is too small to share: threads that wait for each other cost fifteen times the work on a busy core.
    """
    return _thread_controller().limit(limits=1)


@functools.cache
def _thread_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def refuse_dataset(X: Any) -> Any:
    """Return features as they are; refuse a dataset of items, which clusters cannot be made of."""
    if is_dataset(X):
        fix = "Put labeldp.features.Embeddings in front, which makes rows of its items, or use a prior that needs no features."
        raise invalid(
            "Prior", "X", "be rows of numbers to count labels in clusters", got=Described("a dataset"), fix=fix
        )
    return X


def flat_features(X: Any, *, n_components: int | None, random_state: int) -> Any:
    """Return a row per example to cluster: views averaged, images flattened, and the first principal components.

    Features (n, views, d) are averaged over the views; (n, ...) of more axes are images and are flattened. Where there
    are no more than `n_components` columns, or it is None, or the features are sparse, they stay as they are. k-means in
    the first hundred or so components of half-whitened image features found purer clusters than in all of them, at a
    fifth of the time.

    >>> flat_features(np.ones((5, 2, 3)), n_components=None, random_state=0).shape
    (5, 3)
    """
    rows = refuse_dataset(X)
    if isinstance(X, np.ndarray) and X.ndim > 2:
        rows = X.mean(axis=1) if X.ndim == 3 else X.reshape(len(X), -1)
    if n_components is None or not isinstance(rows, np.ndarray) or rows.shape[1] <= n_components:
        return rows
    from sklearn.decomposition import PCA

    count = check_integer("ClusterPrior", "n_components", n_components, least=1)
    rank = min(count, *rows.shape)
    with np.errstate(invalid="ignore"):  # of rows that are all the same, which have no variance to be divided by
        return PCA(rank, svd_solver="randomized", random_state=random_state).fit_transform(rows)


def _named_columns(X: Any, names: Sequence[str]) -> Floats:
    """Return named columns of a data frame or table as a matrix."""
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in _columns_of(X, names)])


def _columns_of(X: Any, names: Sequence[str]) -> list[Any]:
    """Return named columns of a data frame or table; one that is not there is answered with the ones like it."""
    available = list(getattr(X, "columns", [])) if not hasattr(X, "column_names") else list(X.column_names)
    for name in names:
        if name not in available:
            fix = nearest(name, map(str, available))
            raise invalid("PublicPrior", "source", "name columns of the features", got=name, fix=fix)
    return [X[name] for name in names]
