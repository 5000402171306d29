"""Tables for the engine's tests: a few thousand rows with every kind of column that the engine treats differently."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

N = 3_000
CLASSES = ("high", "low", "middle")


def make_table(n: int = N, *, seed: int = 0) -> pa.Table:
    """Ids, numbers, text, group ids, a prior in three columns, and labels of four types."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, n)
    prior = rng.dirichlet(np.ones(3), n)
    return pa.table(
        {
            "id": np.arange(n) + 7,
            "x": rng.normal(size=n) + codes,
            "level": pa.array(np.asarray(CLASSES, dtype=object)[codes]),
            "y": pa.array(rng.normal(size=n) - codes, mask=rng.random(n) < 0.05),
            "site": pa.array([f"s{c}" for c in rng.integers(0, 5, n)]),
            "zone": rng.integers(10, 14, n).astype(np.int16),
            "p_high": prior[:, 0],
            "p_low": prior[:, 1],
            "p_middle": prior[:, 2],
            "number": codes.astype(np.int8),
            "flag": codes == 1,
            "half": codes / 2.0,
            "kind": pa.array(np.asarray(CLASSES, dtype=object)[codes]).dictionary_encode(),
        }
    )


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return make_table()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a table, by default in row groups that no batch size divides, and returns its path."""

    def written(table: Any, name: str = "table.parquet", *, row_group_size: int = 701) -> Path:
        path = tmp_path / name
        pq.write_table(table, path, row_group_size=row_group_size)
        return path

    return written


@pytest.fixture
def path(table: pa.Table, write: Callable[..., Path]) -> Path:
    return write(table)


# ------------------------------------------------------------------------------------------------------- clusters


def need_dask() -> None:
    pytest.importorskip("distributed", reason="needs labeldp[dask]")


@pytest.fixture(scope="session")
def clusters(repository: Path) -> Any:
    """The module of real clusters, which the benchmarks kill too."""
    need_dask()
    spec = importlib.util.spec_from_file_location("own_cluster", repository / "benchmarks" / "own_cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def own_cluster(clusters: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A function that starts a scheduler and workers as processes; all of them end with the session."""
    started: list[Any] = []

    def start(**options: Any) -> Any:
        started.append(clusters.OwnCluster(tmp_path_factory.mktemp("cluster"), **options))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture(scope="session")
def cluster(own_cluster: Callable[..., Any]) -> Any:
    """A worker of its own process that is started again when it is killed: where a process is the point."""
    return own_cluster(workers=1)


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    from distributed import Client

    from labeldp.engines.dask import run_loop

    asked = {"timeout": "600s", "security": cluster.security, "set_as_default": False}
    with run_loop() as loop, Client(cluster.address, loop=loop, **asked) as opened:
        yield opened


@pytest.fixture(scope="session")
def inside(clusters: Any) -> Iterator[Any]:
    """A client of a cluster inside this process, with messages over TLS: as good as processes where none is killed."""
    from distributed import Client, LocalCluster
    from distributed.security import Security

    from labeldp.engines.dask import run_loop

    where = {"processes": False, "protocol": "tls", "n_workers": 2, "threads_per_worker": 1}
    where["security"] = Security.temporary()
    with run_loop() as loop:
        with clusters.configure(clusters.QUIET):  # it lives as long as the tests
            # Any free port for the scheduler's pages: other tests may be running on this machine.
            cluster = LocalCluster(**where, loop=loop, dashboard_address="127.0.0.1:0")
            client = Client(cluster, set_as_default=False)
        with cluster, client as opened:
            yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of five files in folders by year, one of them without rows."""
    whole = make_table(2_000)
    cuts = [0, 700, 700, 1_100, 1_900, 2_000]
    for number, (low, high) in enumerate(itertools.pairwise(cuts)):
        path = tmp_path / "in" / f"year={2020 + number // 3}" / f"part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(whole.slice(low, high - low), path, row_group_size=333)
    return tmp_path / "in"


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, str]]:
    """A function from a release to what must be equal of equal releases: all bytes but the time and the ledger's row."""

    def digests(directory: Path) -> dict[str, str]:
        paths = (path for path in directory.rglob("*") if path.is_file() and path.name != "release.json")
        found = {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        manifest = json.loads((directory / "release.json").read_text())
        for name in ("created", "ledger_entry", "ledger_hash", "sha256"):
            manifest.pop(name)
        return {**found, "release.json": json.dumps(manifest)}

    return digests
