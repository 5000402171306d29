"""What may go wrong on a cluster: the job ends whole and the same, or fails cleanly, and can be taken up or thrown away.

`benchmarks/kill_workers.py` does the same to 20 million rows, with more kills.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.engines import discard_job, privatize_table
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.release.manifest import digest

pytest.importorskip("distributed", reason="needs labeldp[dask]")

FILES, ROWS = 40, 500
PHRASE = "correct horse battery staple"
Contents = Callable[[Path], dict[str, str]]


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Forty files of a few hundred rows."""
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        table = pa.table({"x": rng.random(ROWS), "label": pa.array(rng.choice(["a", "b", "c"], ROWS))})
        pq.write_table(table, tmp_path / "in" / f"part-{number:02d}.parquet")
    return tmp_path / "in"


def unfinished(error: pytest.ExceptionInfo[LabelDPError]) -> str:
    found = re.search(r"kept in (\S+): take it up", str(error.value))
    assert found is not None, str(error.value)
    return found.group(1)


def call(parts: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"label": "label", "to": parts.parent / "out", "epsilon": 1.0, **options}
    return privatize_table(parts, **settings)


class StopError(LabelDPError):
    """A failure in the middle of a job."""


def halfway(done: int, total: int) -> None:
    if 2 * done >= total:
        raise StopError("the power went.")


def limit_files(size: int) -> None:
    """On a worker: how large a file it may write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def pretend_version(version: str) -> None:
    """On a worker: which version of labeldp it says it is."""
    labeldp.__version__ = version


class TestKills:
    def test_a_worker_killed_while_it_draws(self, parts: Path, client: Any, contents: Contents) -> None:
        """The nanny starts it again, its piece is drawn again, and comes out the same."""
        killed: list[int] = []

        def kill(done: int, total: int) -> None:
            if len(killed) < 2 and done > (len(killed) + 1) * total // 4:
                pids = sorted(set(client.run(os.getpid).values()) - set(killed))
                for pid in pids[:1]:  # none while it is being started again
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

        ledger = labeldp.Ledger(parts.parent / "ledger.sqlite")
        call(parts, rng=3, engine="dask", client=client, progress=kill, ledger=ledger)
        assert len(killed) == 2
        assert len(ledger.entries()) == 1
        call(parts, rng=3, to=parts.parent / "plain")
        assert contents(parts.parent / "out") == contents(parts.parent / "plain")
        assert not list(parts.parent.glob(".*partial*"))

    # distributed's client dials a scheduler that is dead a few times, and leaves the socket of each handshake that fails to the garbage
    # collector, whenever that comes: no socket of ours.
    @pytest.mark.filterwarnings("ignore:Exception ignored in.*SSLSocket:pytest.PytestUnraisableExceptionWarning")
    def test_the_scheduler_killed(self, parts: Path, own_cluster: Any, contents: Contents) -> None:
        mine = own_cluster(workers=1, nanny=False)  # no worker is killed here

        def kill(done: int, total: int) -> None:
            if 3 * done > total and mine.scheduler.poll() is None:
                mine.scheduler.kill()

        ledger = labeldp.Ledger(parts.parent / "ledger.sqlite")
        how = {"engine": "dask", "scheduler": mine.address, "keep_unfinished": True}
        with mine.configured(), pytest.raises(LabelDPError, match=r"the scheduler is gone") as error:
            call(parts, rng=3, ledger=ledger, progress=kill, **how)
        mine.close()
        assert not (parts.parent / "out").exists()
        (entry,) = ledger.entries()
        # By the other engine: the bytes are the same.
        done = call(parts, rng=3, ledger=ledger, resume=unfinished(error))
        assert done.ledger_entry == entry.id
        assert len(ledger.entries()) == 1
        call(parts, rng=3, to=parts.parent / "plain")
        assert contents(parts.parent / "out") == contents(parts.parent / "plain")

    def test_a_disk_that_is_full_on_a_worker(self, tmp_path: Path, client: Any) -> None:
        """A real limit: the workers may not write files past 150 kB, which the kernel reports as it reports no room."""
        (tmp_path / "in").mkdir()
        for number, rows in enumerate([500, 60_000]):
            table = pa.table({"x": np.random.default_rng(0).random(rows), "label": np.arange(rows) % 3})
            pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
        client.wait_for_workers(1)  # one that another test has killed is back
        client.run(limit_files, 150_000)
        try:
            with pytest.raises(
                LabelDPError, match=r"could not write on worker tls://\S+: File too large.* Entry 1 of the"
            ):
                call(tmp_path / "in", engine="dask", client=client, ledger=ledger)
        finally:
            client.run(limit_files, resource.RLIM_INFINITY)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "ledger.sqlite"]


# Kills itself when half is done: its key is only in the sealed box.
CHILD = """
import os, signal, sys
from pathlib import Path
import labeldp
from labeldp.engines import privatize_table
root = Path(sys.argv[1])
die = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if 2 * done >= total else None
privatize_table(root / "in", label="label", to=root / "out", epsilon=1.0, ledger=labeldp.Ledger(root / "ledger.sqlite"),
                passphrase=sys.argv[2], progress=die)
"""


class TestResume:
    def test_after_the_coordinator_was_killed(self, parts: Path, forks: Any) -> None:
        root = parts.parent
        done = forks.run(CHILD, root, PHRASE)
        assert done.returncode == -signal.SIGKILL, done.stderr
        (place,) = root.glob(".out.partial-*")
        before = {path.name: path.read_bytes() for path in (place / "release" / "labels").iterdir()}
        assert 10 < len(before) < FILES
        assert PHRASE.encode() not in b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
        ledger = labeldp.Ledger(root / "ledger.sqlite")
        with pytest.raises(LabelDPError, match=r"`passphrase` must open the key of the job"):
            call(parts, ledger=ledger, resume=place)
        with pytest.raises(PrivacyError, match=r"`passphrase` must be that of the job"):
            call(parts, ledger=ledger, resume=place, passphrase="a wrong passphrase")
        release = call(parts, ledger=ledger, resume=place, passphrase=PHRASE)
        assert len(ledger.entries()) == 1
        assert release.ledger_entry == ledger.entries()[0].id
        assert not release.seeded
        assert len(release.load()) == FILES * ROWS
        # What was drawn before is part of the release, byte for byte: no row under two noises.
        after = {path.name: path.read_bytes() for path in (root / "out" / "labels").iterdir()}
        assert all(after[name] == data for name, data in before.items())
        assert not place.exists()

    def test_in_the_same_process_and_with_the_same_noise(self, parts: Path, contents: Contents) -> None:
        ledger = labeldp.Ledger(parts.parent / "ledger.sqlite")
        with pytest.raises(StopError, match=r"Entry 1 of the ledger covers it") as error:
            call(parts, keep_unfinished=True, ledger=ledger, progress=halfway, rng=8, batch_rows=100)
        place = Path(unfinished(error))
        (place / "release" / "labels" / "part-03.parquet").write_bytes(b"damaged meanwhile")
        seen: list[int] = []
        call(parts, resume=place, ledger=ledger, progress=lambda done, total: seen.append(total))
        assert 0 < seen[0] < FILES * ROWS  # only what was missing, and what was damaged, is drawn
        assert len(ledger.entries()) == 1
        call(parts, rng=8, to=parts.parent / "plain")
        assert contents(parts.parent / "out") == contents(parts.parent / "plain")

    def test_a_charge_is_found_again(self, parts: Path) -> None:
        """Killed between the charge and its note: the ledger's row carries the job's name."""
        ledger = labeldp.Ledger(parts.parent / "ledger.sqlite")
        with pytest.raises(StopError) as error:
            call(parts, keep_unfinished=True, ledger=ledger, progress=halfway)
        place = Path(unfinished(error))
        noted = {**json.loads((place / "job.json").read_text()), "ledger_entry": None}
        (place / "job.json").write_text(json.dumps({**noted, "sha256": digest(noted)}))
        assert call(parts, resume=place, ledger=ledger).ledger_entry == 1
        assert len(ledger.entries()) == 1

    def test_another_job_is_refused(self, parts: Path) -> None:
        with pytest.raises(StopError) as error:
            call(parts, keep_unfinished=True, progress=halfway)
        place = unfinished(error)
        with pytest.raises(LabelDPError, match=r"be the same job as before, got another table, label, budget or prior"):
            call(parts, resume=place, epsilon=2.0)
        with pytest.raises(LabelDPError, match=r"be the same job as before, got another table, label, budget or prior"):
            call(parts, resume=place, label="x", bounds=(0, 1))
        with pytest.raises(LabelDPError, match=r"`rng` must be left out"):
            call(parts, resume=place, rng=4)
        with pytest.raises(LabelDPError, match=r"`resume` must be a job of"):
            call(parts, resume=place, to=parts.parent / "elsewhere")
        assert call(parts, resume=place).rows == FILES * ROWS  # the refusals left it whole

    def test_thrown_away(self, parts: Path) -> None:
        with pytest.raises(StopError) as error:
            call(parts, keep_unfinished=True, progress=halfway)
        place = unfinished(error)
        discard_job(place)
        assert [path.name for path in parts.parent.iterdir()] == ["in"]
        with pytest.raises(LabelDPError, match=r"be the folder of an unfinished job"):
            call(parts, resume=place)
        with pytest.raises(LabelDPError, match=r"be the folder of an unfinished job"):
            discard_job(parts)
        assert parts.exists()

    def test_a_key_that_is_gone(self, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(StopError) as error:
            call(parts, keep_unfinished=True, progress=halfway)
        monkeypatch.setattr("labeldp.engines.job._held", {})  # another process
        with pytest.raises(LabelDPError, match=r"a job whose key was kept or sealed, got one whose key is gone"):
            call(parts, resume=unfinished(error))

    def test_a_short_passphrase(self, parts: Path) -> None:
        with pytest.raises(LabelDPError, match=r"`passphrase` must be a text of 12 characters or more"):
            call(parts, passphrase="short")


class TestBadInput:
    """Found before anything is drawn; the file or the worker is named; nothing is visible, nothing is charged."""

    def refused(self, parts: Path, message: str, **options: Any) -> None:
        ledger = labeldp.Ledger(parts.parent / "ledger.sqlite")
        before = sorted(parts.parent.iterdir())
        with pytest.raises(LabelDPError, match=message):
            call(parts, ledger=ledger, **options)
        assert ledger.entries() == ()
        assert sorted(parts.parent.iterdir()) == before

    def test_mixed_schemas(self, parts: Path, inside: Any) -> None:
        pq.write_table(pa.table({"x": ["text"], "label": ["a"]}), parts / "part-21.parquet")
        self.refused(parts, r"another schema in part-21\.parquet", engine="dask", client=inside)

    @pytest.mark.parametrize("engine", ["local", "dask"])
    def test_a_class_that_is_not_listed_in_file_37(self, engine: str, parts: Path, inside: Any) -> None:
        table = pa.table({"x": np.zeros(ROWS), "label": ["a", "odd"] * (ROWS // 2)})
        pq.write_table(table, parts / "part-37.parquet")
        how = {"engine": "dask", "client": inside} if engine == "dask" else {}
        self.refused(parts, r"got another value in row 1 of part-37\.parquet", classes=["a", "b", "c"], **how)

    def test_files_without_rows_are_kept(self, parts: Path, inside: Any) -> None:
        empty = pq.read_table(parts / "part-05.parquet").slice(0, 0)
        pq.write_table(empty, parts / "part-05.parquet")
        done = call(parts, engine="dask", client=inside)
        assert done.rows == (FILES - 1) * ROWS
        assert pq.read_table(parts.parent / "out" / "labels" / "part-05.parquet").num_rows == 0

    def test_a_file_of_no_bytes(self, parts: Path, inside: Any) -> None:
        (parts / "part-11.parquet").write_bytes(b"")
        self.refused(parts, r"part-11\.parquet` must be readable Parquet", engine="dask", client=inside)

    def test_nothing_but_empty_files(self, tmp_path: Path, inside: Any) -> None:
        (tmp_path / "in").mkdir()
        schema = pa.schema([("label", pa.string())])
        pq.write_table(schema.empty_table(), tmp_path / "in" / "a.parquet")
        self.refused(tmp_path / "in", r"have rows, got an empty table", engine="dask", client=inside)

    @pytest.mark.parametrize("engine", ["local", "dask"])
    def test_an_unreadable_row_group_of_labels(self, engine: str, parts: Path, inside: Any) -> None:
        """The label column is read before the charge: damage there costs nothing."""
        damage(parts / "part-30.parquet", column=1)
        how = {"engine": "dask", "client": inside} if engine == "dask" else {}
        self.refused(parts, r"part-30\.parquet` must be readable Parquet", **how)

    def test_an_unreadable_row_group_of_features(self, parts: Path, inside: Any) -> None:
        """Damaged after the charge, found while drawing: nothing is visible, and the error says that the charge stays.

        A ledger reads all columns before the charge, to know the account; damage that is there by then costs nothing.
        """
        good = (parts / "part-30.parquet").read_bytes()

        class Damaging(labeldp.Ledger):
            def charge(self, *args: Any, **facts: Any) -> Any:
                entry = super().charge(*args, **facts)
                damage(parts / "part-30.parquet", column=0)
                return entry

        ledger = Damaging(parts.parent / "ledger.sqlite")
        with pytest.raises(LabelDPError, match=r"part-30\.parquet.* Entry 1 of the ledger covers it") as error:
            call(parts, engine="dask", client=inside, ledger=ledger, keep_unfinished=True)
        assert not (parts.parent / "out").exists()
        (parts / "part-30.parquet").write_bytes(good)  # the file is fetched again, and the charge is not lost
        call(parts, ledger=ledger, resume=unfinished(error))
        assert len(ledger.entries()) == 1

    def test_a_scheduler_that_does_not_answer(self, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("labeldp.engines.dask.SCHEDULER_SECONDS", 1)
        self.refused(
            parts,
            r"a scheduler that answers, got tcp://127\.0\.0\.1:1 ",
            engine="dask",
            scheduler="tcp://127.0.0.1:1",
            insecure=True,
        )

    def test_a_machine_too_busy_for_a_loop_of_distributed(self, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before: an AssertionError without a word."""

        def give_up(*_: Any, **__: Any) -> None:
            raise AssertionError

        monkeypatch.setattr("labeldp.engines.dask.Client", give_up)
        self.refused(parts, "too busy", engine="dask", scheduler="tcp://127.0.0.1:1", insecure=True)

    def test_no_file_is_left_for_an_event_loop(self, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before: who waited for the loop waited for ever."""

        def run(work: Any) -> None:
            work.close()
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr("labeldp.engines.dask.asyncio.run", run)
        with pytest.raises(OSError, match="Too many open files"):
            call(parts, engine="dask", workers=1)

    def test_workers_of_another_version(self, parts: Path, client: Any) -> None:
        message = rf"`worker tls://\S+` must have labeldp {re.escape(labeldp.__version__)}, got labeldp 0\.0\.1"
        client.wait_for_workers(1)
        client.run(pretend_version, "0.0.1")
        try:
            self.refused(parts, message, engine="dask", client=client)
        finally:
            client.run(pretend_version, labeldp.__version__)

    def test_folders_named_after_the_label(self, tmp_path: Path) -> None:
        """label=yes/part.parquet: the names of folders would be released as they are."""
        for name in ("no", "yes"):
            (tmp_path / "in" / f"label={name}").mkdir(parents=True)
            pq.write_table(pa.table({"label": [name] * 9}), tmp_path / "in" / f"label={name}" / "part.parquet")
        self.refused(tmp_path / "in", r"`label` must not be in the names of folders, got label=\.\.\.")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"engine": "spark"}, r"`engine` must be one of 'local', 'dask'"),
            ({"workers": 2}, r"`workers` must be left out"),
            ({"engine": "dask", "workers": 2, "scheduler": "tcp://127.0.0.1:1"}, r"given one at a time"),
            ({"engine": "dask", "workers": 0}, r"`workers` must be an integer >= 1"),
            ({"engine": "dask", "client": "tcp://127.0.0.1:1"}, r"`client` must be a distributed\.Client, got 'str'"),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_options_that_do_not_go_together(self, options: dict[str, Any], message: str, parts: Path) -> None:
        self.refused(parts, message, **options)


def damage(path: Path, *, column: int) -> None:
    """Overwrite the pages of one column of the first row group; the footer stays whole."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(column)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = os.urandom(chunk.total_compressed_size)
    path.write_bytes(bytes(data))
