"""What `fuzz.py` lets labeldp read: releases, models, networks, ledgers, tables, checkpoints and unfinished jobs.

See `fuzz_doors.py` for what a kind of input is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import pyarrow as pa
from fuzz_doors import ROWS, Kind, RefusedByCommandError, run_command, write_people
from sklearn.naive_bayes import GaussianNB

import labeldp
from labeldp.accounting import Ledger
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.learn import PATE, LabelPrivateClassifier, SoftmaxRegression, TableEncoder, load_model, save_model
from labeldp.learn.ratings import LabelPrivateRatings, MatrixFactorisation
from labeldp.release import privatize
from labeldp.release.loading import load_release

X = np.random.default_rng(0).normal(size=(ROWS, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def describe(value: Any, depth: int = 0) -> Any:
    """Return plain values that are equal where two objects are: arrays by their bytes, objects by their state."""
    if depth > 30:
        return "deep"
    if isinstance(value, np.ndarray) and value.dtype.names:  # by field: between the fields may be any bytes
        return [(name, describe(value[name], depth + 1)) for name in value.dtype.names]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest())
    if isinstance(value, dict):
        return sorted((repr(key), describe(part, depth + 1)) for key, part in value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        return [describe(part, depth + 1) for part in value]
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.random.Generator):
        return describe(value.bit_generator.state, depth + 1)
    state = getattr(value, "__dict__", None) or getattr(value, "__getstate__", dict)()
    # What has no state is its type: its repr may be the place where it lies in memory.
    return (type(value).__name__, describe(state, depth + 1) if isinstance(state, (dict, tuple)) else None)


def swap_for_special(path: Path, rng: random.Random) -> str:
    """Put a link, a pipe, a folder or nothing in the place of a file."""
    action = rng.choice(("link to another file", "link to /dev/zero", "link to itself", "pipe", "folder", "missing"))
    keep = path.with_name("other-" + path.name)
    path.rename(keep)
    if action == "link to another file":
        path.symlink_to(keep.name)
        return action
    keep.unlink()
    if action == "link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif action == "link to itself":
        path.symlink_to(path.name)
    elif action == "pipe":
        os.mkfifo(path)
    elif action == "folder":
        path.mkdir()
    return action


def change_file(path: Path, rng: random.Random, *, other: bytes = b"") -> str:
    """Change a file by what fits its name, or its bytes."""
    data = path.read_bytes()
    name = path.name if len(path.name) < 20 else f"*{path.suffix}"
    change = CHANGES.get(path.suffix)
    if change is None or rng.random() < 0.35:
        path.write_bytes(mutations.mutate_bytes(data, rng, other=other))
        return f"bytes of {name}"
    path.write_bytes(change(data, rng, other))
    return f"{path.suffix[1:]} of {name}"


#: By the ending of a file's name: how its content is changed with its format kept.
CHANGES: dict[str, Callable[[bytes, random.Random, bytes], bytes]] = {
    ".json": lambda data, rng, _: mutations.mutate_json(data.decode(), rng).encode("utf-8", "surrogatepass"),
    ".parquet": lambda data, rng, other: mutations.mutate_parquet(data, rng, other=other),
    ".npy": lambda data, rng, _: mutations.mutate_npy(data, rng),
    ".npz": lambda data, rng, other: mutations.mutate_zip(data, rng, other=other),
    ".skops": lambda data, rng, other: mutations.mutate_zip(data, rng, other=other),
}


# ---------------------------------------------------------------------------------------------------------- releases


class Releases(Kind):
    """Release directories: one for each kind of channel, in memory and from tables."""

    name, share = "release", 50
    refusals = (RefusedByCommandError,)

    def prepare(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        true, groups = np.arange(60) * 5 % 3, np.arange(60) % 2
        beliefs = np.random.default_rng(0).dirichlet(np.ones(3), 60)
        made = {
            "plain": privatize(true, labeldp.RandomizedResponse(1.0, n_classes=3), rng=1),
            "candidates": privatize(true, labeldp.RRWithPrior(1.0), prior=beliefs, rng=1),
            "groups": privatize(true, labeldp.RRWithPrior(1.0), prior=beliefs[:2], groups=groups, rng=1),
            "cluster": privatize(true, labeldp.ClusterRR(1.0), groups=groups, rng=1),
        }
        made["stages"] = dataclasses.replace(made["groups"], stage=groups.astype(np.uint8))
        for name, release in made.items():
            release.save(root / name)
        write_people(root / "people.parquet")
        settings: dict[str, Any] = {"label": "income", "epsilon": 1.0, "rng": 1}
        privatize_table(root / "people.parquet", to=root / "table", **settings)
        privatize_table(root / "people.parquet", to=root / "prior", cluster_column="region", **settings)
        (root / "parts").mkdir()
        for number in range(2):
            write_people(root / "parts" / f"{number}.parquet")
        privatize_table(root / "parts", to=root / "files", **settings)
        self.names = [*made, "table", "prior", "files"]
        self.known = {name: self.read(root / name) for name in self.names}
        # Few bytes, many rows: runs of one value are written once.
        many = pa.table({"label": pa.array(np.zeros(40_000_000, np.int8)).cast(pa.int8())})
        self.bomb = mutations.write_parquet(many)

    def read(self, folder: Path) -> Any:
        release = load_release(folder)
        return describe({**vars(release), "epsilon": release.guarantee.to_json()})

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        name = self.chosen = rng.choice(self.names)
        place = folder / "release"
        shutil.copytree(self.root / name, place)
        files = sorted(path for path in place.rglob("*") if path.is_file())
        path = rng.choice((place / "release.json", rng.choice(files)))
        action = rng.random()
        if action < 0.05:
            how = swap_for_special(path, rng)
        elif action < 0.06:
            path = rng.choice([one for one in files if one.suffix == ".parquet"])
            path.write_bytes(self.bomb)
            how = "40 million rows"
        else:
            theirs = self.root / rng.choice(self.names) / path.name
            how = change_file(path, rng, other=theirs.read_bytes() if theirs.is_file() else b"")
        resealed = rng.random() < 0.6
        if resealed and (place / "release.json").is_file():
            mutations.reseal_release(place)
        return f"{how}, {'resealed' if resealed else 'as it is'}", resealed

    def run(self, folder: Path) -> str:
        same = self.read(folder / "release") == self.known[self.chosen]
        if not same:  # what a reader would do next must hold too
            run_command(["inspect", str(folder / "release"), "--json"])
            run_command(["report", str(folder / "release"), "--to", str(folder / "report.html")])
        return "unchanged" if same else "changed"


# ------------------------------------------------------------------------------------------------------------ models


class Models(Kind):
    """Saved learners: linear models, also of tables, forests, boosting, PATE, ratings, and a network if there is torch."""

    name, share = "model", 40

    def prepare(self, root: Path) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.tree import DecisionTreeClassifier

        root.mkdir()
        self.root = root
        private: dict[str, Any] = {"epsilon": 2.0, "random_state": 0}
        pairs = np.stack([np.arange(ROWS) % 8, np.arange(ROWS) // 8], axis=1)
        people = pa.table(
            {"age": X[:, 0], "hours": X[:, 1], "region": np.array(["north", "south"])[np.arange(ROWS) % 2]}
        )
        pate = PATE(GaussianNB(), student=DecisionTreeClassifier(random_state=0), n_teachers=10, epsilon=50.0, random_state=4)  # fmt: skip
        made = {
            "softmax": LabelPrivateClassifier(SoftmaxRegression(), **private).fit(X, Y),
            "forest": LabelPrivateClassifier(RandomForestClassifier(n_estimators=3, max_depth=4), **private).fit(X, Y),
            "plain forest": RandomForestClassifier(n_estimators=3, max_depth=4, random_state=0).fit(X, Y),
            "boosting": LabelPrivateClassifier(HistGradientBoostingClassifier(max_iter=3), **private).fit(X, Y),
            "pipeline": make_pipeline(StandardScaler(), LabelPrivateClassifier(SoftmaxRegression(), **private)).fit(
                X, Y
            ),
            "table": LabelPrivateClassifier(make_pipeline(TableEncoder(), SoftmaxRegression()), **private).fit(
                people, Y
            ),
            "pate": pate.fit(X, Y, X),
            "ratings": LabelPrivateRatings(
                MatrixFactorisation(), epsilon=2.0, values=(1, 2, 3, 4, 5), random_state=0
            ).fit(pairs, 1 + np.arange(ROWS) % 5),
        }
        with contextlib.suppress(ImportError):
            from labeldp.nn import NetClassifier

            net = NetClassifier("mlp", hidden=4, epochs=1, batch_size=16, random_state=0)
            made["net"] = LabelPrivateClassifier(net, **private).fit(X.astype(np.float32), Y)
        self.rows = {name: X[:20].astype(np.float32) for name in made} | {"ratings": pairs[:20], "table": people[:20]}
        for name, model in made.items():
            save_model(model, root / f"{name}.skops")
        self.names = list(made)
        self.data = {name: (root / f"{name}.skops").read_bytes() for name in self.names}
        self.known = {name: self.read(root / f"{name}.skops", name) for name in self.names}

    def read(self, path: Path, name: str) -> Any:
        model = load_model(path)
        answers = model.predict(self.rows[name])
        return describe({"model": model, "answers": np.asarray(answers)})

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        name = self.chosen = rng.choice(self.names)
        path = folder / "model.skops"
        path.write_bytes(self.data[name])
        if rng.random() < 0.02:
            return swap_for_special(path, rng), False
        how = change_file(path, rng, other=self.data[rng.choice(self.names)])
        resealed = rng.random() < 0.6
        if resealed:
            path.write_bytes(mutations.reseal_archive(path.read_bytes()))
        return f"{how}, {'resealed' if resealed else 'as it is'}", resealed

    def run(self, folder: Path) -> str:
        return "unchanged" if self.read(folder / "model.skops", self.chosen) == self.known[self.chosen] else "changed"


class Networks(Kind):
    """Files of `save_network`: arrays without pickle, read without a ledger or a promise."""

    name, share = "network", 10

    def prepare(self, root: Path) -> None:
        from labeldp.nn import NetClassifier, save_network

        root.mkdir()
        net = NetClassifier("mlp", hidden=4, epochs=1, batch_size=16, random_state=0).fit(X.astype(np.float32), Y)
        save_network(net, root / "net.npz")
        self.data = (root / "net.npz").read_bytes()
        self.known = self.read(root / "net.npz")

    def read(self, path: Path) -> Any:
        from labeldp.nn import load_network

        net = load_network(path)
        return describe({"header": net.history_, "answers": net.predict_proba(X[:20].astype(np.float32))})

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        path = folder / "net.npz"
        path.write_bytes(self.data)
        if rng.random() < 0.02:
            return swap_for_special(path, rng), False
        how = change_file(path, rng)
        resealed = rng.random() < 0.6
        if resealed:
            path.write_bytes(mutations.reseal_archive(path.read_bytes()))
        return f"{how}, {'resealed' if resealed else 'as it is'}", resealed

    def run(self, folder: Path) -> str:
        return "unchanged" if self.read(folder / "net.npz") == self.known else "changed"


# ----------------------------------------------------------------------------------------------------------- ledgers


class Ledgers(Kind):
    """Ledger files: read, summed up, verified and charged."""

    name, share = "ledger", 30

    def prepare(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        for name, entries in (("short", 2), ("long", 40)):
            book = Ledger(root / name, budget=1000.0)
            for number in range(entries):
                charge(book, epsilon=0.1 + number / 100, label_set=f"set {number % 3}")
            book.set_budget(20.0, label_set="set 1")
        self.names = ["short", "long"]
        self.data = {name: (root / name).read_bytes() for name in self.names}
        self.known = {name: self.read(root / name) for name in self.names}

    def read(self, path: Path) -> Any:
        book = Ledger(path, timeout=1.0)
        book.verify()
        sets = [(name, book.budget(name), book.remaining(name), str(book.spent(name))) for name in book.label_sets()]
        return repr((book.entries(), book.budgets(), sets))

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        name = self.chosen = rng.choice(self.names)
        path = folder / "ledger.sqlite"
        path.write_bytes(self.data[name])
        other = self.data[rng.choice(self.names)]
        action, resealed = rng.random(), False
        if action < 0.02:
            how = swap_for_special(path, rng)
        elif action < 0.04:
            path.with_name("ledger.sqlite-journal").write_bytes(rng.randbytes(rng.choice((0, 10, 600, 5000))))
            how = "a strange journal"
        elif action < 0.35:
            path.write_bytes(
                mutations.mutate_bytes(self.data[name], rng, other=other) or b"\0"
            )  # empty is a new ledger
            how = "bytes"
        elif action < 0.6:
            path.write_bytes(mutations.mutate_pages(self.data[name], rng, other=other))
            how = "pages"
        elif action < 0.8:
            mutations.mutate_cells(path, rng)
            how = "cells"
        else:
            resealed = rng.random() < 0.8
            how = f"content, {'resealed' if resealed else 'as it is'}"
            with contextlib.suppress(UnicodeEncodeError):  # the hash of a half character cannot be computed
                change_content(path, rng, resealed=resealed)
        return how, resealed

    def run(self, folder: Path) -> str:
        path = folder / "ledger.sqlite"
        if path.is_fifo() or path.is_dir() or not path.exists():
            self.read(path)
            return "unchanged"  # a missing file is a new ledger
        same = self.read(path) == self.known[self.chosen]
        charge(Ledger(path, timeout=1.0), epsilon=0.5, label_set="set 0")
        return "unchanged" if same else "changed"


def charge(book: Ledger, *, epsilon: float, label_set: str) -> None:
    rows = hashlib.sha256(label_set.encode()).hexdigest()
    book.charge(Guarantee.pure(epsilon), label_set=label_set, rows=rows, n_rows=10, mechanism="rr", who="fuzz")


def change_content(path: Path, rng: random.Random, *, resealed: bool) -> None:
    """Change the JSON of a row, and compute the chain anew from there."""
    from labeldp.accounting.ledger_file import Record

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        guards = list(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        for name, _ in guards:
            connection.execute(f'DROP TRIGGER "{name}"')
        rows = list(
            connection.execute("SELECT id, kind, label_set, at, who, content, previous, hash FROM record ORDER BY id")
        )
        row = rng.choice(rows)[0]
        fields = ("id", "kind", "label_set", "when", "who", "content", "previous", "hash")
        previous = "0" * 64
        for one in rows:
            facts = dict(zip(fields, one, strict=True))
            if facts["id"] == row:
                text = mutations.mutate_json(facts["content"], rng)
                facts["content"] = text.encode("utf-8", "replace").decode()  # SQLite takes no half characters
                if rng.random() < 0.2:
                    facts[rng.choice(("label_set", "when", "who"))] = rng.choice(("", "x" * 10_000, "\x1b[2J", "é"))
            if resealed:
                facts["previous"] = previous
                facts["hash"] = previous = Record(**facts).compute_hash()
            connection.execute(
                "UPDATE record SET label_set = :label_set, at = :when, who = :who, content = :content, "
                "previous = :previous, hash = :hash WHERE id = :id",
                facts,
            )
        for _, sql in guards:
            connection.execute(sql)


# ------------------------------------------------------------------------------------------------- tables, jobs, runs


class Tables(Kind):
    """CSV and Parquet files, and folders of them, given to `privatize`; they have no digest, so a change may be read."""

    name, share = "table", 10
    refusals = (RefusedByCommandError,)
    OPTIONS = ([], ["--cluster-column", "region"], ["--row-ids", "id"], ["--missing", "drop"])

    def prepare(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        write_people(root / "people.csv")
        write_people(root / "people.parquet")
        for suffix in ("csv", "parquet"):
            for options in self.OPTIONS:  # compiles what is compiled late, before the forks
                self.release(root / f"people.{suffix}", options, to=root / f"{suffix} {' '.join(options)}")

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        self.path, self.options = folder / rng.choice(("people.csv", "people.parquet")), rng.choice(self.OPTIONS)
        shutil.copy(self.root / self.path.name, self.path)
        if rng.random() < 0.03:
            return swap_for_special(self.path, rng), True
        if self.path.suffix == ".csv" and rng.random() < 0.5:
            lines = self.path.read_text(encoding="utf-8").split("\n")
            odd = rng.choice(
                ('"', '"\n', ",", ",,,,,,", "\0", "é\ud800", "9" * 5000, "x" * 200_000, "\r", "NaN,NaN,inf,,")
            )
            lines[rng.choice((0, 1, rng.randrange(len(lines))))] += odd
            self.path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
            how = "lines of CSV"
        else:
            how = change_file(self.path, rng)
        return how, True

    def run(self, folder: Path) -> str:
        self.release(self.path, self.options, to=folder / "out")
        load_release(folder / "out")
        return "changed"

    @staticmethod
    def release(path: Path, options: list[str], *, to: Path) -> None:
        run_command(["privatize", str(path), "-l", "income", "-e", "1", "--to", str(to), *options])


class StopError(LabelDPError):
    """A failure in the middle of a job."""


class Student(GaussianNB):
    """A student that fails when it is told to."""

    fails = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if Student.fails:
            raise StopError("stopped.")
        return super().fit(X, y, sample_weight)


class Checkpoints(Kind):
    """Directories of training runs that are taken up again: finished ones of learners, half-way ones of networks, votes."""

    name, share = "checkpoint", 3

    def prepare(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.fits = {"learner": self.fit_learner, "votes": self.fit_votes}
        with contextlib.suppress(ImportError):
            import labeldp.nn  # noqa: F401

            self.fits["net"] = self.fit_net
        Student.fails = True  # votes are removed once a student has learned from them
        with contextlib.suppress(StopError):
            self.fit_votes(root / "votes")
        Student.fails = False
        shutil.copytree(root / "votes", root / "votes again")
        self.known = {name: fit(root / name) for name, fit in self.fits.items()}
        shutil.move(root / "votes again", root / "votes")

    @staticmethod
    def fit_learner(place: Path) -> Any:
        prior = labeldp.ClusterPrior(n_clusters=3)
        model = LabelPrivateClassifier(
            SoftmaxRegression(), epsilon=2.0, stages=2, prior=prior, random_state=0, checkpoint=place
        ).fit(X, Y)
        return describe({"answers": model.predict_proba(X), "guarantee": model.guarantee_.to_json()})

    @staticmethod
    def fit_votes(place: Path) -> Any:
        model = PATE(GaussianNB(), student=Student(), n_teachers=10, epsilon=50.0, random_state=4, checkpoint=place)
        return describe({"answers": model.fit(X, Y, X[:30]).predict_proba(X), "guarantee": model.guarantee_.to_json()})

    @staticmethod
    def fit_net(place: Path) -> Any:
        from labeldp.nn import NetClassifier

        net = NetClassifier("mlp", hidden=4, epochs=2, batch_size=16, random_state=0, checkpoint=place)
        return describe(net.fit(X.astype(np.float32), Y).predict_proba(X.astype(np.float32)))

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        self.chosen = rng.choice(sorted(self.fits))
        place = folder / "run"
        shutil.copytree(self.root / self.chosen, place)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "lock")
        path = rng.choice(files)
        if rng.random() < 0.05:
            return f"{self.chosen}: {swap_for_special(path, rng)}", False
        how = change_file(path, rng)
        resealed = path.parent.name.startswith("stage-") and rng.random() < 0.5
        if resealed:
            mutations.reseal_release(path.parent)
        elif path.suffix == ".npz" and rng.random() < 0.5:
            path.write_bytes(mutations.reseal_archive(path.read_bytes()))
            resealed = True
        return f"{self.chosen}: {how}, {'resealed' if resealed else 'as it is'}", resealed

    def run(self, folder: Path) -> str:
        return "unchanged" if self.fits[self.chosen](folder / "run") == self.known[self.chosen] else "changed"


class Jobs(Kind):
    """Unfinished jobs of `privatize_table` that are taken up again by the process that has their key."""

    name, share = "job", 3
    chunk = 1  # a job that ends destroys its key

    def prepare(self, root: Path) -> None:
        root.mkdir()
        (root / "parts").mkdir()
        for number in range(3):
            write_people(root / "parts" / f"{number}.parquet")

        def stop(done: int, total: int) -> None:
            if 2 * done >= total:
                raise StopError("stopped.")

        self.root = root
        with contextlib.suppress(StopError):
            self.privatize(root, progress=stop, keep_unfinished=True)
        (self.job,) = [path for path in root.iterdir() if ".partial-" in path.name]
        (root / "whole").mkdir()
        self.privatize(root / "whole")  # resuming here would destroy the key that forked processes need
        self.known = self.describe(root / "whole" / "out")

    def privatize(self, folder: Path, **options: Any) -> None:
        privatize_table(
            self.root / "parts", label="income", epsilon=1.0, to=folder / "out", rng=1, batch_rows=64, **options
        )

    def resume(self, folder: Path) -> Any:
        self.privatize(folder, resume=folder / self.job.name)
        return self.describe(folder / "out")

    @staticmethod
    def describe(place: Path) -> Any:
        return describe({**vars(load_release(place)), "created": None})

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        place = folder / self.job.name
        shutil.copytree(self.job, place)
        path = rng.choice(sorted(path for path in place.rglob("*") if path.is_file()))
        if rng.random() < 0.1:
            return f"{path.name}: {swap_for_special(path, rng)}", False
        return change_file(path, rng), False

    def run(self, folder: Path) -> str:
        return "unchanged" if self.resume(folder) == self.known else "changed"
