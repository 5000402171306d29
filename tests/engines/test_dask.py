"""The engines give the same bytes, whatever carries the pieces; and the key is nowhere but where labels are drawn."""

from __future__ import annotations

import base64
import functools
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import labeldp
from labeldp.accounting import Ledger, RowKey
from labeldp.engines import open_released_table, privatize_table
from labeldp.engines.job import CarriedKey
from labeldp.errors import LabelDPError
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels, privatize

pytest.importorskip("distributed", reason="needs labeldp[dask]")

PRIOR = ["p_high", "p_low", "p_middle"]
BELIEFS: list[dict[str, Any]] = [
    {},
    {"prior_columns": PRIOR},
    {"cluster_column": "site"},
    {"n_clusters": 4, "row_ids": "id"},
    {"model": True},
    {"label": "kind"},
    {"label": "x", "bounds": (-1.0, 3.0)},
    {"label": "y", "counts": (-4, 2), "missing": "drop", "row_ids": "id"},
]


def given(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"label": "level", "epsilon": 1.5, "rng": 11, **options}
    if "model" in options:
        table = pq.read_table(folder / "year=2020" / "part-0.parquet")
        settings["model"] = LogisticRegression().fit(table.select(["x"]), table["level"].to_numpy(zero_copy_only=False))
    return settings


@pytest.mark.parametrize("options", BELIEFS, ids=str)
def test_engines_and_batches_give_the_same_bytes(
    options: dict[str, Any], folder: Path, inside: Any, contents: Callable[[Path], dict[str, str]]
) -> None:
    settings = given(options, folder)
    runs: list[Any] = [("local", 10_000, {}), ("local", 100, {}), ("dask", 77, {"client": inside})]
    found = []
    for number, (engine, size, how) in enumerate(runs):
        to = folder.parent / f"out{number}"
        privatize_table(folder, to=to, engine=engine, batch_rows=size, **how, **settings)
        found.append(contents(to))
    assert found[1:] == found[:-1]
    assert len(found[0]) > 5


def test_one_call_in_memory_gives_the_same_labels(folder: Path, inside: Any) -> None:
    done = privatize_table(
        folder,
        label="level",
        to=folder.parent / "out",
        epsilon=1.5,
        purpose="labels",
        rng=11,
        engine="dask",
        client=inside,
    )
    parts = sorted(folder.rglob("*.parquet"))
    raw = pa.concat_tables([pq.ParquetFile(part).read() for part in parts])
    expected = privatize(
        SensitiveLabels(raw["level"].to_numpy(zero_copy_only=False)), labeldp.RandomizedResponse(1.5), rng=11
    )
    np.testing.assert_array_equal(done.load().codes, expected.codes)


def test_output_lies_as_the_input_does(folder: Path, inside: Any) -> None:
    done = privatize_table(folder, label="number", to=folder.parent / "out", epsilon=0.0, engine="dask", client=inside)
    root = Path(str(done.directory)) / "labels"
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet"))]
    assert [path.relative_to(root) for path in sorted(root.rglob("*.parquet"))] == names
    for name in names:
        before, after = pq.ParquetFile(folder / name), pq.ParquetFile(root / name)
        assert after.schema_arrow.names == before.schema_arrow.names
        assert [f.type for f in after.schema_arrow] == [f.type for f in before.schema_arrow]
        others = [column for column in before.schema_arrow.names if column != "number"]
        assert after.read(others).equals(before.read(others))
    features, release = open_released_table(root.parent)
    assert sum(batch.num_rows for batch in features.batches()) == len(release) == 2_000
    assert "number" not in features.names


def test_statistics_of_the_label_are_those_of_what_was_released(tmp_path: Path, inside: Any) -> None:
    """Each file holds one class; at epsilon 0 all four come out everywhere, and the statistics must say so."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"label": np.full(500, number)}), tmp_path / "in" / f"{number}.parquet")
    privatize_table(tmp_path / "in", label="label", to=tmp_path / "out", epsilon=0.0, engine="dask", client=inside)
    for number in range(4):
        found = (
            pq.ParquetFile(tmp_path / "out" / "labels" / f"{number}.parquet").metadata.row_group(0).column(0).statistics
        )
        assert (found.min, found.max) == (0, 3)  # each misses a class with probability 4 * 0.75^500 < 1e-60


def test_a_cluster_of_its_own(folder: Path, contents: Callable[[Path], dict[str, str]]) -> None:
    for number, how in enumerate([{}, {"engine": "dask", "workers": 1}]):
        privatize_table(folder, label="level", to=folder.parent / f"out{number}", epsilon=1.0, rng=5, **how)
    assert contents(folder.parent / "out0") == contents(folder.parent / "out1")


def test_long_files_are_cut_the_same_way(
    folder: Path, inside: Any, contents: Callable[[Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labeldp.engines.rows.SPAN_ROWS", 400)
    for number, how in enumerate([{}, {"engine": "dask", "client": inside}]):
        privatize_table(
            folder, label="level", to=folder.parent / f"out{number}", epsilon=1.0, rng=5, n_clusters=3, **how
        )
    assert contents(folder.parent / "out0") == contents(folder.parent / "out1")
    names = [
        path.name for path in sorted((folder.parent / "out0" / "labels" / "year=2020" / "part-0.parquet").iterdir())
    ]
    assert names == ["00000.parquet", "00001.parquet"]  # row groups of 333, 333 and 34 rows, at most 400 together


class TestSecrecy:
    """The key is task data: not in a file, a log, a task's name or a repr, on any side."""

    def forms(self, key: bytes) -> list[bytes]:
        return [key, key.hex().encode(), base64.b64encode(key).rstrip(b"="), repr(key)[2:-1].encode()]

    def test_nowhere_on_the_cluster(
        self, folder: Path, client: Any, cluster: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = NoiseKey.from_seed(12345)
        seen: list[bytes] = []

        def look(done: int, total: int) -> None:
            staging = next(folder.parent.glob(".out.partial-*"))
            seen.extend(path.read_bytes() for path in staging.rglob("*") if path.is_file())
            seen.append(repr(client.run_on_scheduler(_scheduler_words)).encode())

        with caplog.at_level("DEBUG"):
            privatize_table(
                folder, label="level", to=folder.parent / "out", epsilon=1.0, rng=12345, engine="dask", client=client,
                progress=look, cluster_column="site",
            )  # fmt: skip
        client.run(_flush_logs)  # what processes have logged is in their files when they answer
        seen += [cluster.logs(), caplog.text.encode(), repr(client.get_worker_logs()).encode()]
        seen += [path.read_bytes() for path in (folder.parent / "out").rglob("*") if path.is_file()]
        seen += [path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()]
        assert len(b"".join(seen)) > 10_000
        assert b"labeldp-" in b"".join(seen)  # the names of tasks were among what was looked at
        for part in (key, key.child("cluster prior")):
            for form in self.forms(part.reveal()):
                assert not any(form in text for text in seen)

    def test_the_search_would_find_a_key_that_a_task_shows(self, client: Any, cluster: Any) -> None:
        """The broken twin: a plain bytes argument of a failing task is printed by its worker."""
        key = NoiseKey.from_seed(777).reveal()
        future = client.submit(_fails, key, key="twin", pure=False)
        with pytest.raises(ZeroDivisionError):
            future.result()
        logs = repr(client.get_worker_logs()).encode() + cluster.logs()
        assert any(form in logs or form[:20] in logs for form in self.forms(key)[1:])
        carried = CarriedKey.of(NoiseKey.from_seed(778))
        with pytest.raises(ZeroDivisionError):
            client.submit(_fails, carried, key="carried", pure=False).result()
        logs = repr(client.get_worker_logs()).encode() + cluster.logs()
        assert b"CarriedKey: secret" in logs
        assert not any(form in logs or form[:20] in logs for form in self.forms(carried.key().reveal()))

    def test_work_that_is_stored_holds_no_key_and_no_count(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What travels beside the key, and may be written to a worker's disk, is pickled here and searched."""
        import cloudpickle

        from labeldp.engines.engine import Here

        key, packed = NoiseKey.from_seed(99), []
        real = Here.write

        def spy(self: Here, writer: Any, pieces: Any, **options: Any) -> Any:
            packed.append(cloudpickle.dumps(writer))
            return real(self, writer, pieces, **options)

        monkeypatch.setattr(Here, "write", spy)
        privatize_table(folder, label="level", to=folder.parent / "out", epsilon=1.0, rng=99, cluster_column="site")
        for part in (key, key.child("cluster prior")):
            assert not any(form in packed[0] for form in self.forms(part.reveal()))
        assert b"StreamedCounts" not in packed[0]

    def test_no_work_of_a_job_that_may_be_taken_up_holds_a_key(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Marks of labels and of answers are made under the key, and rows are hashed under that of the ledger.

        On the commit before, both keys lay in the work, which is stored as a result: a worker that is short of memory writes
        those to its disk, and one that cannot unpack them prints their bytes.
        """
        import cloudpickle

        from labeldp.engines.engine import Here

        packed: list[bytes] = []
        for name in ("each", "reduce", "write"):
            real = getattr(Here, name)

            def spy(self: Here, work: Any, *rest: Any, real: Any = real, **options: Any) -> Any:
                packed.append(cloudpickle.dumps(work))
                return real(self, work, *rest, **options)

            monkeypatch.setattr(Here, name, spy)
        privatize_table(
            folder, label="level", to=folder.parent / "out", epsilon=1.0, rng=99, cluster_column="site", keep_unfinished=True,
            ledger=Ledger(folder.parent / "ledger.jsonl"),
        )  # fmt: skip
        found = b"".join(packed)
        for word in (b"_mark_piece", b"_mark_answers", b"_protect_piece", b"Writer"):
            assert word in found  # all of it was looked at
        assert b"CarriedKey" not in found
        assert b"RowKey" not in found
        assert not any(form in found for form in self.forms(NoiseKey.from_seed(99).reveal()))

    @pytest.mark.parametrize("key", [CarriedKey.of(NoiseKey.from_seed(5)), RowKey.fresh()], ids=["noise", "ledger"])
    def test_a_cluster_takes_no_work_with_a_key_in_it(self, key: Any, inside: Any) -> None:
        from labeldp.engines.dask import Cluster

        cluster = Cluster(inside)
        work = functools.partial(_second, {"deep": [key]})
        with pytest.raises(LabelDPError, match=r"must hold no key, got one with a (CarriedKey|RowKey)"):
            list(cluster.each(work, [1, 2]))
        with pytest.raises(LabelDPError, match="must hold no key"):
            cluster.reduce(work, max, [1, 2])
        ((number, _),) = cluster.each(functools.partial(_second, None), [(1, key)])  # beside a piece it travels
        assert number == 0

    def test_a_carried_key_travels_and_shows_nothing(self) -> None:
        key = NoiseKey.from_seed(3)
        again = pickle.loads(pickle.dumps(CarriedKey.of(key)))
        assert again.key().reveal() == key.reveal()
        assert again.key().seeded
        assert repr(again) == str(again) == "<CarriedKey: secret>"


def _scheduler_words(dask_scheduler: Any) -> list[str]:
    tasks = [f"{task!r} {task.group_key} {task.prefix.name}" for task in dask_scheduler.tasks.values()]
    return [*tasks, repr(dask_scheduler.transition_log), repr(dask_scheduler.get_logs())]


def _flush_logs() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _second(_: Any, item: Any) -> Any:
    return item


def _fails(key: Any) -> float:
    return 1 / 0


class TestUrls:
    @pytest.fixture
    def memory(self, folder: Path) -> Any:
        fsspec = pytest.importorskip("fsspec", reason="needs labeldp[dask]")
        system = fsspec.filesystem("memory")
        for path in folder.rglob("*.parquet"):
            system.pipe(f"/labeldp-in/{path.relative_to(folder).as_posix()}", path.read_bytes())
        yield system
        system.rm("/", recursive=True)

    def fetched(self, system: Any, url: str, to: Path) -> Path:
        for name in system.find(url):
            place = to / name.split("/labeldp-out/")[1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(system.cat(name))
        return to

    def test_a_file_url_is_a_path(self, folder: Path, contents: Callable[[Path], dict[str, str]]) -> None:
        options: dict[str, Any] = {"label": "level", "epsilon": 1.0, "rng": 5}
        privatize_table(folder, to=folder.parent / "out0", **options)
        privatize_table(folder.as_uri(), to=(folder.parent / "out1").as_uri(), **options)
        assert contents(folder.parent / "out0") == contents(folder.parent / "out1")

    @pytest.mark.parametrize("engine", ["local", "dask"])
    def test_memory(
        self, engine: str, memory: Any, folder: Path, inside: Any, contents: Callable[[Path], dict[str, str]]
    ) -> None:
        """The workers of a cluster inside this process see its memory."""
        options: dict[str, Any] = {"label": "level", "epsilon": 1.0, "rng": 5, "cluster_column": "site"}
        privatize_table(folder, to=folder.parent / "out", **options)
        url = "memory://labeldp-out"
        if engine == "local":
            done = privatize_table("memory://labeldp-in", to=f"{url}/x", **options)
        else:
            done = privatize_table("memory://labeldp-in", to=f"{url}/x", engine="dask", client=inside, **options)
        with pytest.raises(LabelDPError, match=r"must be on this machine"):
            done.load()
        assert {name.split("/")[2] for name in memory.find("/labeldp-out")} == {"x"}  # nothing hidden is left
        copy = self.fetched(memory, "/labeldp-out/x", folder.parent / "copy")
        assert contents(copy / "x") == contents(folder.parent / "out")

    def test_a_failure_leaves_nothing(self, memory: Any, folder: Path) -> None:
        memory.pipe("/labeldp-in/zzz.parquet", io.BytesIO(b"PAR1 broken").getvalue())
        with pytest.raises(LabelDPError, match=r"zzz\.parquet.* must be readable Parquet"):
            privatize_table("memory://labeldp-in", label="level", to="memory://labeldp-out/x", epsilon=1.0)
        assert not memory.exists("/labeldp-out")

    def test_what_is_not_there(self, memory: Any) -> None:
        with pytest.raises(LabelDPError, match=r"be an existing file, got 'nowhere'"):
            privatize_table("memory://nowhere", label="level", to="memory://labeldp-out/x", epsilon=1.0)
