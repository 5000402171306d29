"""Tables whose label is a number: the same release as in memory, on the path that classes take."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import SGDClassifier, SGDRegressor

import labeldp
from labeldp.engines import privatize_table, train_released
from labeldp.errors import BudgetError, LabelDPError, ReleaseError
from labeldp.mechanisms import BinnedResponse, LaplaceResponse
from labeldp.release import SensitiveLabels, load_release, privatize
from labeldp.release.manifest import digest, file_facts

BOUNDS = (0.0, 100.0)
RAW = np.round(np.random.default_rng(5).gamma(2.0, 20.0, 2_000), 2)  # some 4 % lie above 100

MECHANISMS = {
    "unbiased": labeldp.UnbiasedResponse(1.5, bounds=BOUNDS),
    "coarse": labeldp.UnbiasedResponse(1.5, bounds=BOUNDS, grid=5, outputs=9),
    "laplace": LaplaceResponse(1.5, bounds=BOUNDS),
    "binned": BinnedResponse(1.5, bounds=BOUNDS),
}


def in_memory(values: Any, mechanism: Any, **options: Any) -> Any:
    return privatize(SensitiveLabels(values, bounds=mechanism.bounds), mechanism, rng=3, **options)


def in_table(path: Path, **options: Any) -> Any:
    to = path.parent / f"out{len(list(path.parent.iterdir()))}"
    return privatize_table(path, to=to, rng=3, **{"label": "amount", **options})


@pytest.mark.parametrize("batch_rows", [17, 2**16])
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_numbers_are_those_of_one_call_in_memory(name: str, batch_rows: int, write: Callable[..., Path]) -> None:
    path = write(pa.table({"x": np.arange(len(RAW)), "amount": RAW, "z": np.arange(len(RAW))}))
    done = in_table(path, mechanism=MECHANISMS[name], batch_rows=batch_rows)
    expected, release = in_memory(RAW, MECHANISMS[name]), done.load()
    np.testing.assert_array_equal(release.values, expected.values)
    assert release.classes == expected.classes == done.classes
    assert release.channel.values.tobytes() == expected.channel.values.tobytes()
    assert release.mechanism == expected.mechanism
    assert release.guarantee.epsilon() == 1.5
    assert "numbers outside were clipped" in str(release.guarantee)
    file = pq.read_table(done.directory / "labels.parquet")
    assert file.column_names == ["x", "amount", "z"]
    np.testing.assert_array_equal(file["amount"].to_numpy(), expected.values)


COLUMNS: dict[str, Any] = {
    "float32": pa.array(RAW.astype(np.float32)),
    "int16": pa.array(np.minimum(RAW, 30_000).astype(np.int16)),
    "uint64": pa.array(RAW.astype(np.uint64)),
    "decimal128": pa.array([Decimal(str(one)) for one in RAW], pa.decimal128(10, 2)),
    "dictionary": pa.array(RAW).dictionary_encode(),
    "half": pa.array(RAW.astype(np.float16)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_every_kind_of_number(kind: str, write: Callable[..., Path]) -> None:
    path = write(pa.table({"amount": COLUMNS[kind]}))
    done = in_table(path, bounds=BOUNDS, epsilon=1.5)
    plain = [float(one) for one in COLUMNS[kind].to_pylist()]
    np.testing.assert_array_equal(done.load().values, in_memory(plain, MECHANISMS["unbiased"]).values)
    assert pq.read_schema(done.directory / "labels.parquet").field("amount").type == pa.float64()


def test_counts_are_their_own_levels(write: Callable[..., Path]) -> None:
    counts = np.random.default_rng(0).poisson(1.0, 500)
    done = in_table(write(pa.table({"amount": counts})), counts=4, epsilon=1.0)
    mechanism = labeldp.UnbiasedResponse(1.0, bounds=(0, 4), grid="integers")
    assert done.classes == (0.0, 1.0, 2.0, 3.0, 4.0)
    np.testing.assert_array_equal(done.load().values, in_memory(counts, mechanism).values)


@pytest.mark.parametrize("kind", ["double", "half", "dictionary"])
def test_rows_without_a_number_are_left_out(kind: str, write: Callable[..., Path]) -> None:
    """NaN is no number in half precision and in a dictionary too, where old versions of pyarrow do not find it."""
    values = RAW.astype(np.float16)
    values[::7] = np.nan
    column = pa.array(values if kind == "half" else values.astype(float), from_pandas=False)
    column = column.dictionary_encode() if kind == "dictionary" else column
    done = in_table(write(pa.table({"amount": column})), bounds=BOUNDS, epsilon=1.5, missing="drop")
    kept = values[~np.isnan(values)].astype(float)
    assert (done.rows, done.dropped) == (len(kept), len(RAW) - len(kept))
    np.testing.assert_array_equal(done.load().values, in_memory(kept, MECHANISMS["unbiased"]).values)


def test_a_public_law_of_the_levels_by_group(write: Callable[..., Path]) -> None:
    groups = np.arange(len(RAW)) % 3
    laws = np.random.default_rng(1).dirichlet(np.ones(5), 3)
    path = write(pa.table({"site": groups, "amount": RAW}))
    done = in_table(path, mechanism=MECHANISMS["coarse"], prior=laws, groups="site")
    expected = in_memory(RAW, MECHANISMS["coarse"], prior=laws, groups=groups)
    np.testing.assert_array_equal(done.load().values, expected.values)


def test_the_ledger_knows_rows_under_another_name(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(pa.table({"id": np.arange(len(RAW)), "amount": RAW}))
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    in_table(path, bounds=BOUNDS, epsilon=1.5, ledger=ledger, row_ids="id")
    ledger.set_budget(2.0, label_set="amount")
    with pytest.raises(BudgetError):
        in_table(path, bounds=(0, 50), epsilon=1.5, ledger=ledger, row_ids="id")
    assert [entry.guarantee.epsilon() for entry in ledger.entries()] == [1.5]


def test_numbers_of_another_channel_are_refused(write: Callable[..., Path]) -> None:
    """A file of numbers that its channel never answers, with checksums that hold: not a release."""
    done = in_table(write(pa.table({"amount": RAW})), bounds=BOUNDS, epsilon=1.5)
    file = done.directory / "labels.parquet"
    for forged in (RAW, RAW.astype(np.int64), pa.array([None, *RAW[1:]])):
        pq.write_table(pa.table({"amount": forged}), file)
        manifest = json.loads((done.directory / "release.json").read_text())
        manifest["files"]["labels.parquet"] = file_facts(file)
        manifest["sha256"] = digest({name: value for name, value in manifest.items() if name != "sha256"})
        (done.directory / "release.json").write_text(json.dumps(manifest))
        with pytest.raises(ReleaseError):
            load_release(done.directory)


def test_a_long_release_trains_a_regressor_in_batches(tmp_path: Path) -> None:
    """What `partial_fit` sees are the released numbers in order; a classifier is refused, here and in memory."""
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(2):
        rows = slice(1_000 * part, 1_000 * (part + 1))
        pq.write_table(pa.table({"x": np.arange(1_000) / 500, "amount": RAW[rows]}), folder / f"{part}.parquet")
    done = privatize_table(folder, label="amount", to=tmp_path / "out", bounds=BOUNDS, epsilon=4.0, rng=1)
    release, x = done.load(), np.concatenate([np.arange(1_000) / 500] * 2)[:, None]
    found = train_released(SGDRegressor(random_state=0), done.directory, batch_rows=300)
    expected = SGDRegressor(random_state=0)
    for start in (0, 300, 600, 900, 1_000, 1_300, 1_600, 1_900):
        stop = min(start + 300, 1_000 if start < 1_000 else 2_000)
        expected.partial_fit(x[start:stop], release.values[start:stop])
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    for estimator in (SGDClassifier(), labeldp.learn.SoftmaxRegression()):
        with pytest.raises(LabelDPError, match="be a regressor for numbers"):
            train_released(estimator, done.directory)
    with pytest.raises(LabelDPError, match="hold labels with classes"):
        labeldp.LabelPrivateClassifier().fit_release(x, release)
