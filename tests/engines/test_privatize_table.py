"""A table goes through the door as its labels would in memory, bit for bit, whatever the batches; its other columns stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp
from labeldp.accounting import fingerprint
from labeldp.data.tables import open_table
from labeldp.engines import TableRelease, open_released_table, privatize_table
from labeldp.guarantee import SEEDED, did_not_see
from labeldp.priors import ClusterPrior
from labeldp.priors.base import CHUNK_ROWS
from labeldp.random import as_key
from labeldp.release import Release, SensitiveLabels, load_release, privatize

CLASSES = ("high", "low", "middle")
PRIOR = ["p_high", "p_low", "p_middle"]
SEED = 11


def released(path: Path, to: str = "out", **options: Any) -> tuple[TableRelease, Release]:
    settings: dict[str, Any] = {"label": "level", "epsilon": 1.5, "rng": SEED, "purpose": "labels", **options}
    done = privatize_table(path, to=path.parent / to, **settings)
    return done, load_release(done.directory)


def in_memory(table: pa.Table, options: dict[str, Any], *, epsilon: float = 1.5) -> Release:
    """The same release by the calls in memory."""
    labels = SensitiveLabels(table["level"].to_numpy(zero_copy_only=False))
    key = as_key("test", SEED)
    if "prior_columns" in options:
        prior = np.column_stack([table[name].to_numpy() for name in PRIOR])
        return privatize(labels, labeldp.RRWithPrior(epsilon), prior=prior, rng=key)
    if "cluster_column" in options:
        groups = np.unique(table[options["cluster_column"]].to_numpy(), return_inverse=True)[1]
        source = ClusterPrior(groups=groups)
        spent = source.cost(epsilon, n_examples=len(labels), n_classes=3)
        belief = source.table(None, labels, budget=epsilon, key=key)
        rest = labeldp.RRWithPrior(epsilon - spent)
        return privatize(labels, rest, prior=belief.rows, groups=belief.index, rng=key)
    return privatize(labels, labeldp.RandomizedResponse(epsilon), rng=key)


BELIEFS: list[dict[str, Any]] = [{}, {"prior_columns": PRIOR}, {"cluster_column": "site"}, {"cluster_column": "zone"}]


@pytest.mark.parametrize("options", BELIEFS, ids=str)
@pytest.mark.parametrize("batch_rows", [17, 1000, 2**16])
def test_the_labels_are_those_of_one_call_in_memory(
    options: dict[str, Any], batch_rows: int, path: Path, table: pa.Table
) -> None:
    done, release = released(path, batch_rows=batch_rows, **options)
    expected = in_memory(table, options)
    np.testing.assert_array_equal(release.codes, expected.codes)
    assert release.classes == expected.classes == CLASSES
    assert release.guarantee.epsilon() <= 1.5
    for name, array in expected.channel.example_arrays().items():
        np.testing.assert_array_equal(release.channel.example_arrays()[name], array)
    for name, array in expected.channel.row_arrays().items():
        np.testing.assert_array_equal(release.channel.row_arrays()[name], array)
    assert (done.rows, done.dropped, done.seeded) == (len(table), 0, True)


@pytest.mark.parametrize("options", BELIEFS, ids=str)
def test_other_columns_their_order_and_types_stay(options: dict[str, Any], path: Path, table: pa.Table) -> None:
    done, release = released(path, **options)
    written = pq.read_table(done.directory / "labels.parquet")
    assert written.column_names[: len(table.column_names)] == table.column_names
    assert all(name.startswith("_labeldp_") for name in written.column_names[len(table.column_names) :])
    for name in table.column_names:
        assert written.schema.field(name).type == table.schema.field(name).type
        if name != "level":
            assert written[name].to_pylist() == table[name].to_pylist()
    assert written["level"].to_pylist() == release.labels.tolist()
    assert 0 < np.mean(release.labels != table["level"].to_numpy(zero_copy_only=False)) < 1
    features, again = open_released_table(done.directory)
    assert set(features.names) == set(table.column_names) - {"level"}
    assert next(features.batches()).num_columns == len(table.column_names) - 1
    np.testing.assert_array_equal(again.codes, release.codes)


@pytest.mark.parametrize("label", ["level", "number", "flag", "half", "kind"])
def test_labels_of_every_type(label: str, path: Path, table: pa.Table) -> None:
    done, release = released(path, label=label)
    values = table[label].to_pylist()
    expected = privatize(SensitiveLabels(np.asarray(values, dtype=object), classes=done.classes),
                         labeldp.RandomizedResponse(1.5), rng=SEED)  # fmt: skip
    assert done.classes == tuple(sorted(set(values)))
    assert release.labels.tolist() == expected.labels.tolist()
    written = pq.read_table(done.directory / "labels.parquet", columns=[label])
    assert written.schema.field(label).type == table.schema.field(label).type
    assert written[label].to_pylist() == release.labels.tolist()
    read_off = any("read off" in text for text in done.guarantee.assumptions)
    assert read_off == (label != "flag")  # a boolean's classes are known beforehand


def test_a_dictionary_holds_the_public_classes_and_not_the_raw_order(write: Callable[..., Path]) -> None:
    """dictionary_encode lists values as they first occur: the input's dictionary would give the first label away."""
    values = pa.array(["z", "a", "m", "z", "a", "m"] * 50).dictionary_encode()
    assert values.dictionary.to_pylist() == ["z", "a", "m"]
    done, _ = released(write(pa.table({"kind": values})), label="kind")
    column = pq.read_table(done.directory / "labels.parquet")["kind"]
    assert [chunk.dictionary.to_pylist() for chunk in column.chunks] == [["a", "m", "z"]]


def test_metadata_about_the_label_does_not_pass(write: Callable[..., Path]) -> None:
    field = pa.field("level", pa.string(), metadata={"rate": "0.02"})
    other = pa.field("x", pa.int64(), metadata={"unit": "m"})
    kinds = {"pandas_type": "unicode", "numpy_type": "object"}
    names = ("level", "x")
    pandas = {
        "attributes": {"positives": 3},
        "remark": "3 positives",
        "index_columns": [],
        "column_indexes": [],
        "columns": [{"name": name, "field_name": name, **kinds, "metadata": {"n": 3}} for name in names],
        "creator": {"library": "pyarrow", "version": "1.0", "seen": "3 positives"},
        "pandas_version": "3.0",
    }
    schema = pa.schema([field, other], metadata={"note": "3 positives", "pandas": json.dumps(pandas)})
    table = pa.table({"level": ["a", "b"] * 30, "x": range(60)}, schema=schema)
    done, _ = released(write(table))
    written = pq.read_schema(done.directory / "labels.parquet")
    assert not (written.field("level").metadata or {}).keys() - {b"PARQUET:field_id"}
    assert not (written.field("x").metadata or {}).keys() - {b"PARQUET:field_id"}  # may speak of the label too
    assert written.metadata.keys() == {b"pandas"}
    assert b"positives" not in written.metadata[b"pandas"]
    assert [one["metadata"] for one in json.loads(written.metadata[b"pandas"])["columns"]] == [None, {}]


def test_a_description_that_is_not_pandas_own_is_dropped_whole(write: Callable[..., Path]) -> None:
    table = pa.table({"level": ["a", "b"] * 30}, schema=pa.schema([("level", pa.string())], metadata={"pandas": "{}"}))
    done, _ = released(write(table))
    assert pq.read_schema(done.directory / "labels.parquet").metadata is None


def test_statistics_are_those_of_the_released_labels(write: Callable[..., Path]) -> None:
    """At epsilon 0 every class comes out everywhere; a row group's raw labels were one class each."""
    table = pa.table({"number": np.repeat([0, 1, 2, 3], 500)})
    done, _ = released(write(table, row_group_size=500), label="number", epsilon=0.0)
    found = pq.ParquetFile(done.directory / "labels.parquet").metadata.row_group(0).column(0).statistics
    assert (found.min, found.max, found.num_values) == (0, 3, 2000)


def test_csv_in_parquet_out(tmp_path: Path, table: pa.Table) -> None:
    plain = table.drop_columns(["kind"])
    pa_csv.write_csv(plain, tmp_path / "table.csv")
    done, release = released(tmp_path / "table.csv", batch_rows=500)
    np.testing.assert_array_equal(release.codes, in_memory(table, {}).codes)
    assert pq.read_table(done.directory / "labels.parquet")["id"].to_pylist() == table["id"].to_pylist()


def test_a_folder_of_parts_is_one_table(tmp_path: Path, table: pa.Table) -> None:
    (tmp_path / "parts").mkdir()
    for number, start in enumerate(range(0, len(table), 800)):
        pq.write_table(table.slice(start, 800), tmp_path / "parts" / f"{number}.parquet")
    _, release = released(tmp_path / "parts", batch_rows=333)
    np.testing.assert_array_equal(release.codes, in_memory(table, {}).codes)


@pytest.mark.parametrize("options", [{}, {"cluster_column": "site"}, {"prior_columns": PRIOR}], ids=str)
def test_missing_labels_are_dropped_and_counted(
    options: dict[str, Any], write: Callable[..., Path], table: pa.Table
) -> None:
    gone = np.random.default_rng(5).random(len(table)) < 0.1
    with_gaps = table.set_column(2, "level", pc.if_else(pa.array(gone), None, table["level"]))
    done, release = released(write(with_gaps), missing="drop", batch_rows=100, row_ids="id", **options)
    kept = table.filter(pa.array(~gone))
    assert (done.rows, done.dropped) == (len(kept), int(gone.sum()))
    np.testing.assert_array_equal(release.codes, in_memory(kept, options).codes)
    assert pq.read_table(done.directory / "labels.parquet")["id"].to_pylist() == kept["id"].to_pylist()


def test_nan_is_missing_too(write: Callable[..., Path]) -> None:
    done, release = released(write(pa.table({"half": [0.5, float("nan"), 1.0] * 40})), label="half", missing="drop")
    assert (done.dropped, len(release), done.classes) == (40, 80, (0.5, 1.0))


def test_listed_classes_may_be_spelt_as_text(path: Path) -> None:
    done, release = released(path, label="number", classes=["0", "1", "2", "3"])
    assert done.classes == release.classes == (0, 1, 2, 3)
    assert done.guarantee.assumptions == (SEEDED, *did_not_see("other columns"))


@pytest.mark.parametrize("batch_rows", [100, CHUNK_ROWS, 3 * CHUNK_ROWS])
def test_clusters_do_not_depend_on_batches(batch_rows: int, big: Path, baseline: dict[str, Release]) -> None:
    done, release = released(big, f"clusters{batch_rows}", batch_rows=batch_rows, n_clusters=8, row_ids="id")
    np.testing.assert_array_equal(release.codes, baseline["clusters"].codes)
    np.testing.assert_array_equal(release.prior_index, baseline["clusters"].prior_index)
    assert done.guarantee.epsilon() <= 1.5
    assert "8 clusters" in done.mechanism


@pytest.mark.parametrize("batch_rows", [100, 2 * CHUNK_ROWS])
def test_a_model_does_not_depend_on_batches(batch_rows: int, big: Path, baseline: dict[str, Release]) -> None:
    _, release = released(big, f"model{batch_rows}", batch_rows=batch_rows, model=fitted_by_name(big))
    np.testing.assert_array_equal(release.codes, baseline["model"].codes)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More rows than one chunk of a model."""
    folder = tmp_path_factory.mktemp("big")
    rng = np.random.default_rng(3)
    n = 2 * CHUNK_ROWS + 777
    codes = rng.integers(0, 3, n)
    columns = {"id": np.arange(n), "x": rng.normal(size=n) + 2 * codes, "y": rng.normal(size=n) - codes}
    table = pa.table({**columns, "level": pa.array(np.asarray(CLASSES, dtype=object)[codes])})
    pq.write_table(table, folder / "big.parquet", row_group_size=5000)
    return folder / "big.parquet"


@pytest.fixture(scope="module")
def baseline(big: Path) -> dict[str, Release]:
    """Releases of the large table in one batch, whose groups and priors are learned once."""
    clusters = released(big, "clusters", n_clusters=8, row_ids="id")[1]
    model = released(big, "model", model=fitted_by_name(big))[1]
    return {"clusters": clusters, "model": model}


def fitted_by_name(path: Path) -> Any:
    """A model fitted on other labels of the same kind, which remembers its columns."""
    table = pq.read_table(path).slice(0, 500)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return model.fit(table.select(["y", "x"]), table["level"].to_numpy(zero_copy_only=False))


def test_clusters_and_models_beat_randomized_response(big: Path, baseline: dict[str, Release]) -> None:
    """The point of a prior: x tells the classes apart, so more labels come out true, as was forecast.

    Standard deviation of a share of 17,161 labels: below 0.004; 0.05 is over twelve of them (p < 1e-30).
    """
    truth = pq.read_table(big)["level"].to_numpy(zero_copy_only=False)
    plain, flat = released(big, "plain")
    again, _ = released(big, "again", model=fitted_by_name(big))
    share = {name: float(np.mean(release.labels == truth)) for name, release in {**baseline, "flat": flat}.items()}
    assert share["clusters"] > share["flat"] + 0.05
    assert share["model"] > share["flat"] + 0.05
    assert abs(share["flat"] - plain.expected_accuracy) < 0.05
    assert abs(share["model"] - again.expected_accuracy) < 0.05


def test_a_model_without_names_takes_the_numeric_columns(write: Callable[..., Path], table: pa.Table) -> None:
    part = table.select(["x", "zone", "level", "site"])
    X = np.column_stack([part["x"].to_numpy(), part["zone"].to_numpy()])
    model = LogisticRegression().fit(X, part["level"].to_numpy(zero_copy_only=False))
    done, release = released(write(part), model=model)
    labels = SensitiveLabels(part["level"].to_numpy(zero_copy_only=False))
    expected = privatize(labels, labeldp.RRWithPrior(1.5), prior=model.predict_proba(X), rng=SEED)
    np.testing.assert_array_equal(release.codes, expected.codes)
    assert "LogisticRegression" in done.mechanism
    assert any("did not see these labels" in text for text in done.guarantee.assumptions)


def test_the_histogram_and_the_response_share_the_budget(path: Path) -> None:
    done, release = released(path, cluster_column="site", prior_epsilon=0.3)
    assert 1.5 - 1e-12 < done.guarantee.epsilon() <= 1.5  # the division rounds by a few units in the last place
    assert "a curator" in str(done.guarantee)
    assert release.prior is not None
    assert release.prior.shape == (5, 3)
    np.testing.assert_array_equal(release.prior_index, release.channel.index)


def test_the_ledger_is_charged_once_with_the_rows(path: Path, tmp_path: Path, table: pa.Table) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite", budget=2.0)
    done, release = released(path, cluster_column="site", ledger=ledger, row_ids="id", label_set="survey")
    (entry,) = ledger.entries()
    assert (entry.id, entry.label_set, entry.n_rows, entry.seeded) == (done.ledger_entry, "survey", len(table), True)
    assert entry.rows == fingerprint("survey", n_rows=len(table), row_ids=table["id"].to_numpy())
    assert release.ledger_entry == entry.id
    assert ledger.spent("survey").epsilon() == done.guarantee.epsilon()  # type: ignore[union-attr]


def test_text_ids_give_the_fingerprint_of_memory(write: Callable[..., Path], tmp_path: Path) -> None:
    n = 70_000  # more than one chunk of a fingerprint
    ids = [f"row {i}" for i in range(n)]
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    path = write(pa.table({"name": ids, "flag": np.arange(n) % 2 == 0}), row_group_size=9_999)
    released(path, label="flag", row_ids="name", ledger=ledger)
    assert ledger.entries()[0].rows == fingerprint("flag", n_rows=n, row_ids=np.asarray(ids, dtype=object))


def test_progress_counts_to_the_end(path: Path, table: pa.Table) -> None:
    seen: list[tuple[int, int]] = []
    released(path, batch_rows=1000, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1000, 3000), (2000, 3000), (3000, 3000)]


def test_without_a_seed_the_noise_is_fresh_and_not_marked(path: Path) -> None:
    first, one = released(path, "one", rng=None, label="flag")
    _, two = released(path, "two", rng=None, label="flag")
    assert not first.seeded
    # 3,000 labels, each differing with probability 2 * 0.82 * 0.18 = 0.3: equality has probability below 1e-400.
    assert np.any(one.codes != two.codes)


def test_a_table_that_is_open_already(path: Path, table: pa.Table) -> None:
    done = privatize_table(
        open_table(path), label="level", to=path.parent / "out", epsilon=1.5, purpose="labels", rng=SEED
    )
    np.testing.assert_array_equal(done.load().codes, in_memory(table, {}).codes)


def test_a_released_table_trains_a_classifier(big: Path, baseline: dict[str, Release]) -> None:
    features, release = open_released_table(big.parent / "clusters")
    X = np.column_stack([np.concatenate([b.column(n).to_numpy() for b in features.batches()]) for n in ("x", "y")])
    model = labeldp.LabelPrivateClassifier(epsilon=1.5).fit_release(X, release)
    truth = pq.read_table(big)["level"].to_numpy(zero_copy_only=False)
    assert np.mean(model.predict(X) == truth) > 0.7  # 0.33 by guessing; 0.83 without privacy
