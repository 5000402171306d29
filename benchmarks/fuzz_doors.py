"""What `fuzz.py` says to labeldp: command lines, and messages between peers.

A kind's `prepare` makes the valid inputs, once, before processes are forked. `make` writes a changed input into a folder and
returns what was done, and whether a changed meaning is allowed: digests were computed anew, or the format has none. `run`
reads it as a user would and returns "unchanged" or "changed", or lets the error out. The kinds that are files are in
`fuzz_files.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROWS = 120


class Kind:
    """One kind of input.

    `share` is its part of all inputs, `refusals` what else counts as a refusal, and `chunk` how many inputs one process tries:
    what leaks in one process does not count against the next.
    """

    name = ""
    share = 1
    chunk = 200
    number = 0  # of the input that is made or read now
    refusals: tuple[type[BaseException], ...] = ()

    def prepare(self, root: Path) -> None:
        raise NotImplementedError

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        raise NotImplementedError

    def run(self, folder: Path) -> str:
        raise NotImplementedError


def write_people(path: Path) -> None:
    """Write a small table of people, with everything that the commands need."""
    rng = np.random.default_rng(5)
    columns = {
        "id": np.arange(ROWS),
        "age": rng.integers(18, 90, ROWS),
        "hours": np.round(rng.normal(40, 5, ROWS), 2),
        "region": np.array(["north", "south", "west"])[np.arange(ROWS) % 3],
        "income": np.where(rng.random(ROWS) > 0.5, "high", "low"),
    }
    table = pa.table(columns)
    pyarrow.csv.write_csv(table, path) if path.suffix == ".csv" else pq.write_table(table, path)


# ----------------------------------------------------------------------------------------------------- command line


class RefusedByCommandError(Exception):
    """The command line refused."""


@functools.cache
def build_command() -> Any:
    """Return the command line; typer takes longer to build it than most commands take to run."""
    import typer

    from labeldp.cli import app

    return typer.main.get_command(app)


def run_command(arguments: list[str]) -> str:
    """Run the command line in this process, and return what it printed; an unexpected end raises."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            build_command().main(args=arguments, prog_name="labeldp")
        except SystemExit as end:
            code = end.code
    said = err.getvalue()
    if code in {0, None}:
        return out.getvalue()
    if code in {2, 3, 4} or (code == 1 and arguments[:1] == ["audit"] and "fault of labeldp" not in said):
        raise RefusedByCommandError
    if not isinstance(code, int):
        code = "another"
    raise AssertionError(f"exit code {code}: {said.strip().splitlines()[-1][-160:] if said.strip() else ''}")


class Commands(Kind):
    """Command lines: valid ones of every command, with arguments exchanged, gone, repeated, or hostile."""

    name, share = "command", 15
    refusals = (RefusedByCommandError,)

    LINES = (
        "--version",
        "--help",
        "plan --classes 10",
        "plan --classes 2 --epsilon 1 --epsilon 2 --prior-accuracy 0.8",
        "plan people.parquet --label income --classes 2",
        "plan --classes 100 --epsilon 1 --cluster-size 20",
        "plan people.parquet --label income --read-classes",
        "privatize people.parquet --label income --epsilon 1 --to new",
        "privatize people.csv -l income -e 1 --to new --ledger spent.sqlite --budget 2",
        "privatize people.parquet -l income -e 1 --to new --clusters 3",
        "privatize people.parquet -l income -e 1 --to new --mechanism cluster-rr --groups region",
        "privatize people.csv -l income -e 2 --to new --classes low,high --missing drop --row-ids id --json",
        "privatize people.csv -l region -e 1 --to new --mechanism rr-top-k --mechanism-option k=2 --seed 3",
        "privatize people.csv -l income -e 1 --to new --model model.skops",
        "privatize people.csv -l income -e 1 --to new --cluster-column region --prior-epsilon 0.2",
        "inspect release",
        "inspect release --json",
        "train release --to new.skops",
        "train people.parquet --label income --epsilon 1 --to new.skops --seed 1",
        "train people.csv -l income -e 1 --stages 2 --to new.skops --ledger spent.sqlite --budget 2",
        "predict model.skops people.parquet --to new.parquet",
        "predict model.skops people.csv --to new.parquet --keep id",
        "evaluate model.skops people.parquet --label income --public-labels",
        "evaluate model.skops people.csv -l income --epsilon 0.5 --ledger spent.sqlite",
        "ledger spent.sqlite",
        "ledger spent.sqlite --label-set people.csv:income",
        "ledger spent.sqlite --set-budget 2",
        "ledger spent.sqlite --known 5f2b --json",
        "top-k people.csv --item region --count age --k-max 2 -e 1 -d 1e-6 --neighbours add_remove",
        "top-k people.csv --user id --item region --k 2 -e 1 -d 1e-6 --neighbours replace",
        "report release --to new.html",
        "report release --to new.html --ledger spent.sqlite --model model.skops",
        "train-ratings people.csv --user id --item region --rating age -e 1 --to new.skops",
        "predict-ratings ratings.skops people.csv --to new.parquet",
        "explore --prior 0.5,0.5 --rows 100 --to new.html --no-browser",
        "audit release --ledger spent.sqlite",
    )
    #: Words that would start a server, a cluster or many processes: what they do is not this script's business.
    AVOIDED = frozenset({"--engine", "--scheduler", "--workers", "--jobs", "demo", "dask", "pate"})
    ODD = (
        *(
            "",
            " ",
            "-",
            "--",
            "-1",
            "0",
            "1",
            "2",
            "3",
            "nan",
            "inf",
            "-inf",
            "1e400",
            "1e-400",
            "99999999999999999999",
        ),
        *(
            "1_000",
            "0x10",
            "\uff11",
            "é",
            "\ud800",
            "\x1b[31m",
            "[bold]",
            "[/]",
            "a\nb",
            "%s%n",
            "x" * 5000,
            "a,b,,c",
            "=",
            "k=",
        ),
        *("k=()", "k=[", "k=9**9**9", "k=__import__('os')", "os:system", "json:dumps", "a:b:c", ":", "people.csv"),
        *(
            "people.parquet",
            "release",
            "release/release.json",
            "spent.sqlite",
            "model.skops",
            "missing.csv",
            "empty.csv",
        ),
        *(
            "empty",
            "pipe",
            "loop",
            ".",
            "..",
            "new",
            "new/deep",
            "release/../people.csv",
            "file://people.csv",
            "memory://x",
        ),
        *(
            "http://127.0.0.1:9/x.csv",
            "income",
            "age",
            "region",
            "id",
            "no such",
            "low,high",
            "low,low",
            "rr",
            "rr-with-prior",
        ),
        *(
            "cluster-rr",
            "--json",
            "--seed",
            "--label",
            "--epsilon",
            "--classes",
            "--to",
            "--ledger",
            "--help",
            "--debug",
        ),
    )

    def prepare(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        write_people(root / "people.csv")
        write_people(root / "people.parquet")
        (root / "empty.csv").write_bytes(b"")
        (root / "empty").mkdir()
        os.mkfifo(root / "pipe")
        (root / "loop").symlink_to("loop")
        first = (
            "privatize people.csv -l income -e 1 --to release --ledger spent.sqlite --budget 9 --seed 1",
            "train people.csv -l income -e 1 --to model.skops --seed 1",
        )
        with _chdir(root):
            for line in (
                *first,
                *self.LINES[:30],
            ):  # so that what is imported and compiled late is there before the forks
                with contextlib.suppress(RefusedByCommandError):
                    run_command(line.split())
            for path in root.glob("new*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.options = {
            name: [option for one in part.params for option in one.opts if option.startswith("-")]
            for name, part in build_command().commands.items()
        }

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        words = rng.choice(self.LINES).split()
        for _ in range(rng.choice((1, 1, 2, 3))):
            place, action = rng.randrange(len(words) + 1), rng.randrange(6)
            options = self.options.get(words[0] if words else "", ["--help"])
            if action <= 1 and place < len(words):
                words[place] = rng.choice(self.ODD)
            elif action == 2:
                words[place:place] = [rng.choice(options), rng.choice(self.ODD)]
            elif action == 3:
                words[place : place + 1] = []
            elif action == 4:
                words.insert(place, rng.choice(self.ODD))
            else:
                words += [rng.choice(options)]
        if not words or self.AVOIDED & set(words):
            words = ["ledger", rng.choice(self.ODD)]
        for path in self.root.iterdir():
            if path.is_dir() and path.name != "pipe":
                shutil.copytree(path, folder / path.name)
            elif path.name == "pipe":
                os.mkfifo(folder / "pipe")
            else:
                shutil.copy(path, folder / path.name, follow_symlinks=False)
        self.words = words
        return " ".join(words)[:120].encode("ascii", "backslashreplace").decode(), True

    def run(self, folder: Path) -> str:
        with _chdir(folder):
            run_command(self.words)
        return "unchanged"


@contextlib.contextmanager
def _chdir(place: Path) -> Any:
    before = Path.cwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


# ------------------------------------------------------------------------------------------------------------- peers


class Messages(Kind):
    """Messages between peers: to the readers of both desks, and by a lying rendezvous to a peer that plays."""

    name, share = "peer", 20
    RUN = "run"

    def prepare(self, root: Path) -> None:
        from labeldp.peers import messages

        root.mkdir()
        self.refusals = (messages.Refused,)
        signed: dict[str, Any] = {"peer": 3, "ticket": "t" * 32}
        fields: dict[str, dict[str, Any]] = {
            "hello": {**signed, "address": "tcp://127.0.0.1:5555"},
            "start": {"members": [[0, "inproc://none/0"], [3, "inproc://run/3"]]},
            "ask": {"peer": 3},
            "answer": {"peer": 3, "label": 1},
            "ready": {**signed, "failed": None},
            "check": {},
            "alive": signed,
            "close": {"survivors": [0, 1, 3]},
            "report": {**signed, "label": 1},
            "abstain": signed,
        }
        self.valid = {kind: messages.encode(kind, run=self.RUN, **rest) for kind, rest in fields.items()}

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bool]:
        self.live = rng.random() < 0.1
        self.kind = rng.choice(("start", "check", "close", "ask") if self.live else sorted(self.valid))
        data = self.valid[self.kind]
        if rng.random() < 0.5:
            self.body = mutations.mutate_bytes(data, rng, other=rng.choice(list(self.valid.values())))
        else:
            text = mutations.mutate_json(data.decode(), rng)
            self.body = text.encode("utf-8", "surrogatepass")
        if self.kind == "start" and rng.random() < 0.3:
            odd = rng.choice(
                ("inproc://\ud800", "tcp://\0", "tcp://[", "ipc://" + "x" * 200, "é", "tcp://*:*", "udp://x:1")
            )
            self.body = json.dumps({"kind": "start", "run": self.RUN, "members": [[3, odd]]}).encode()
        return f"{self.kind}{' to a peer that plays' if self.live else ''}", True

    def run(self, folder: Path) -> str:
        from labeldp.peers import messages

        if self.live:
            asyncio.run(asyncio.wait_for(self.play(), 8))
            return "changed"
        roster = messages.Roster(clusters={3: 0}, tickets={3: "t" * 32})
        signed = roster.admit(self.body, run=self.RUN, kinds=tuple(self.valid)) if b"ticket" in self.body else None
        if signed is not None and (signed["peer"], signed["ticket"]) != (3, "t" * 32):
            raise AssertionError("admitted without the ticket")
        whole = messages.read(self.body, run=self.RUN, kinds=(self.kind,))
        return "unchanged" if whole == json.loads(self.valid[self.kind]) else "changed"

    async def play(self) -> None:
        """Be the rendezvous of one peer, and send one message of the run as it was changed."""
        import zmq
        import zmq.asyncio

        from labeldp.peers import messages
        from labeldp.peers.roles import Peer

        context = zmq.asyncio.Context()
        desk, inbox = context.socket(zmq.ROUTER), context.socket(zmq.PULL)
        desk.bind("inproc://desk")
        inbox.bind("inproc://inbox")
        terms = messages.Terms(
            run=self.RUN, alpha=0.1, theta=1.0, rendezvous="inproc://desk", learner="inproc://inbox",
            timeout=0.05, join_timeout=0.05, least_share=0.5, host=None,
        )  # fmt: skip
        peer = asyncio.create_task(Peer(1, name=3, ticket="t" * 32, terms=terms).play(context))
        try:
            sender = (await asyncio.wait_for(desk.recv_multipart(), 5))[0]
            for kind in ("start", "check", "close"):
                if self.kind == "ask" and kind == "check":
                    stranger = context.socket(zmq.DEALER)
                    stranger.set(zmq.LINGER, 0)
                    stranger.connect("inproc://run/3")
                    await stranger.send(self.body)
                    stranger.close()
                await desk.send_multipart([sender, self.body if kind == self.kind else self.valid[kind]])
            await peer
        finally:
            peer.cancel()
            desk.close(0)
            inbox.close(0)
            context.destroy(0)
