"""Tables longer than a batch: the same model as in memory, and never more than one batch of features at a time."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp import RandomizedResponse, load_release, privatize
from labeldp.data import open_table
from labeldp.errors import LabelDPError
from labeldp.learn import SoftmaxRegression, TableEncoder, table_classifier
from labeldp.learn.tables import TableRows, is_longer, read_columns, read_labelled
from labeldp.softmax import RowBatches

COLUMNS = ["age", "town", "gaps", "day", "empty"]
BATCH = 100


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """400 rows in row groups of 150: numbers, text with rare words, gaps, dates and a column of nothing; 16 no label."""
    generator = np.random.default_rng(0)
    n = 400
    age = generator.normal(50.0, 10.0, n)
    town = generator.choice(["Bern", "Lyon", "Ulm", "Graz"], n, p=[0.5, 0.3, 0.17, 0.03])
    label = np.where(age + 5 * (town == "Bern") + generator.normal(0, 3, n) > 52, "yes", "no").astype(object)
    label[generator.choice(n, 16, replace=False)] = None
    gaps = np.where(generator.random(n) < 0.2, np.nan, generator.normal(1e6, 1.0, n))
    table = pa.table(
        {
            "age": age,
            "town": town,
            "gaps": pa.array(gaps, from_pandas=True),
            "day": pa.array(generator.integers(0, 20_000, n).astype(np.int32)).cast(pa.date32()),
            "empty": pa.nulls(n, pa.float64()),
            "ill": label,
        }
    )
    path = tmp_path_factory.mktemp("table") / "people.parquet"
    pq.write_table(table, path, row_group_size=150)
    return path


class Matrix(RowBatches):
    """A matrix that comes in batches of a few rows, last rows first."""

    def __init__(self, matrix, size):
        self.matrix, self.size = matrix, size
        self.shape, self.dtype = matrix.shape, matrix.dtype

    def batches(self):
        for start in reversed(range(0, len(self.matrix), self.size)):
            rows = slice(start, min(start + self.size, len(self.matrix)))
            yield rows, self.matrix[rows]


def test_rows_in_batches_choose_a_penalty_too():
    """Forty columns, one of which says something, and faint answers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 40))
    y = (X[:, 0] > 0).astype(int)
    release = privatize(y, RandomizedResponse(0.5, n_classes=2), rng=0)
    likelihood = release.channel.likelihood(release.codes)
    rows = Matrix(X, 700)
    found = SoftmaxRegression().fit_likelihood(rows, likelihood, classes=[0, 1])
    assert found.l2_ > 1e-3
    given = SoftmaxRegression(l2=found.l2_).fit_likelihood(X, likelihood, classes=[0, 1])
    np.testing.assert_allclose(found.predict_proba(rows), given.predict_proba(X), atol=1e-3)  # both end at tol=1e-5


@pytest.mark.parametrize("order", [np.arange(7), np.array([5, 0, 6, 2]), np.array([3])])
def test_some_rows_of_batches_are_those_rows(order):
    matrix = np.arange(14.0).reshape(7, 2)
    some = Matrix(matrix, 3).take(order)
    found = np.full((len(order), 2), np.nan)
    for positions, part in some.batches():
        found[positions] = part
    assert np.array_equal(found, matrix[order])
    again = np.empty((1, 2))
    for positions, part in some.take([len(order) - 1]).batches():
        again[positions] = part
    assert np.array_equal(again, matrix[order[-1:]])


@pytest.mark.parametrize("how", ["fit", "weights", "fit_targets", "fit_likelihood"])
def test_a_model_of_batches_is_the_model_of_the_matrix(how):
    """Both stop at a gradient of 1e-9, and curvature is l2 = 0.01 or more: coefficients are within 1e-6, with room."""
    generator = np.random.default_rng(1)
    X = generator.standard_normal((90, 3))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    values = generator.dirichlet(np.ones(3), 90)
    models = []
    for features in (X, Matrix(X, 13)):
        model = SoftmaxRegression(l2=0.01, tol=1e-9, max_iter=1000)
        if how in ("fit", "weights"):
            model.fit(features, y, sample_weight=None if how == "fit" else values[:, 0])
        else:
            getattr(model, how)(features, values, classes=[0, 1, 2])
        models.append(model)
    assert np.abs(models[0].coef_ - models[1].coef_).max() < 1e-6
    assert np.abs(models[0].predict_proba(X) - models[1].predict_proba(Matrix(X, 7))).max() < 1e-6
    assert models[1].n_features_in_ == 3


def test_the_encoder_learns_the_same_from_batches(place):
    source = open_table(place)
    whole = TableEncoder(max_categories=3).fit(read_columns(source, COLUMNS))
    rows = TableRows(source, COLUMNS, batch_rows=BATCH)
    batched = TableEncoder(max_categories=3).fit(rows)
    assert batched.categories_ == whole.categories_ == {"town": ["Bern", "Lyon"]}
    assert batched.rest_ == whole.rest_ == {"town": True}
    for name, facts in whole.numbers_.items():
        # Means of 100 terms, combined: a rounding of 1e-16 for each of 5; the spread of `gaps` is 1e-6 of its mean.
        np.testing.assert_allclose(batched.numbers_[name], facts, rtol=1e-9)
    assert "empty" not in batched.numbers_
    encoded = np.vstack([matrix for _, matrix in batched.transform(rows).batches()])
    # float32 has 1e-7; numbers are a few standard deviations.
    np.testing.assert_allclose(encoded, whole.transform(read_columns(source, COLUMNS)), atol=1e-5)


def labelled(place, *, batch_rows):
    return read_labelled(open_table(place), label="ill", missing="drop", classes=["no", "yes"], batch_rows=batch_rows)


@pytest.mark.parametrize(("stages", "correction"), [(3, "forward"), (2, "posterior"), (1, "unbiased"), (1, "none")])
def test_training_in_batches_gives_the_model_of_memory(place, stages, correction):
    """The labels drawn are the same. Both models stop where no entry of the gradient of the mean loss exceeds 1e-5.

    Features are float32, whose sums differ by 1e-6 with their order; with a curvature of 1e-2 or more along what tells
    the two classes apart, log-odds are within 1e-2 and probabilities, at a quarter of that, within 5e-3.
    """
    settings = {"epsilon": 3.0, "stages": stages, "correction": correction, "random_state": 0}
    found = []
    for size in (None, BATCH):
        data = labelled(place, batch_rows=size)
        assert data.dropped == 16
        model = table_classifier(columns=data.features.column_names, **settings)
        found.append(model.fit(data.features, data.labels))
    memory, batches = found
    assert np.array_equal(memory.release_.codes, batches.release_.codes)
    probabilities = [model.predict_proba(labelled(place, batch_rows=None).features) for model in found]
    assert np.abs(probabilities[0] - probabilities[1]).max() < 5e-3
    assert memory.stages_[0] == batches.stages_[0]


def test_a_release_written_in_batches_is_the_one_written_at_once(place, tmp_path):
    data = {size: labelled(place, batch_rows=size) for size in (None, BATCH)}
    model = table_classifier(epsilon=2.0, stages=2, columns=COLUMNS, random_state=0).fit(
        data[None].features, data[None].labels
    )
    release = replace(model.release_, label_column="ill")
    for size, found in data.items():
        release.save(tmp_path / str(size), features=found.features)
    tables = [pq.read_table(tmp_path / str(size) / "labels.parquet") for size in data]
    assert tables[0].equals(tables[1])
    loaded = load_release(tmp_path / str(BATCH))
    assert np.array_equal(loaded.codes, release.codes)
    receiver = table_classifier(epsilon=2.0, columns=COLUMNS).fit_release(
        TableRows(open_table(place), COLUMNS, keep=_kept(place), batch_rows=BATCH), loaded
    )
    assert np.abs(receiver.predict_proba(data[None].features) - model.predict_proba(data[None].features)).max() < 5e-3


def _kept(place):
    return np.array([value is not None for value in pq.read_table(place, columns=["ill"])["ill"].to_pylist()])


def test_one_batch_of_features_is_in_memory_at_a_time(place, monkeypatch):
    """Count the rows of features that are alive whenever another batch is read: at most the one before is."""
    alive, most, read = [], [0], [0]
    plain = TableEncoder.transform

    def watch(self, X):
        matrix = plain(self, X)
        if isinstance(matrix, np.ndarray):
            alive[:] = [ref for ref in alive if ref() is not None]
            alive.append(weakref.ref(matrix))
            most[0] = max(most[0], sum(len(ref()) for ref in alive))
            read[0] += 1
        return matrix

    gc.collect()
    monkeypatch.setattr(TableEncoder, "transform", watch)
    data = labelled(place, batch_rows=BATCH)
    model = table_classifier(epsilon=3.0, stages=2, columns=data.features.column_names, random_state=0)
    model.fit(data.features, data.labels)
    assert read[0] > 2 * 5  # it was read again and again
    assert most[0] <= 2 * BATCH


def test_the_count_catches_a_table_in_memory(place, monkeypatch):
    """The broken twin of the test above: the same count of a fit in memory is all rows."""
    rows = []
    plain = TableEncoder.transform
    monkeypatch.setattr(TableEncoder, "transform", lambda self, X: rows.append(len(X)) or plain(self, X))
    data = labelled(place, batch_rows=None)
    table_classifier(epsilon=3.0, columns=data.features.column_names).fit(data.features, data.labels)
    assert max(rows) == 384


def test_longer_than(place, tmp_path):
    assert is_longer(open_table(place), 399)
    assert not is_longer(open_table(place), 400)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 20)
    assert is_longer(open_table(tmp_path / "t.csv"), 19)
    assert not is_longer(open_table(tmp_path / "t.csv"), 20)


def test_weights_of_batches_are_checked():
    with pytest.raises(LabelDPError, match="have one weight per row"):
        SoftmaxRegression().fit(Matrix(np.eye(2), 1), [0, 1], sample_weight=[1.0])
