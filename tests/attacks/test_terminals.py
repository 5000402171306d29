"""Terminals and pipes: text from other people's files does not steer a terminal, and no stream brings a command down.

*The forger* names columns, classes, label sets and files so that a terminal obeys (escape sequences, a link, the one-byte forms
of both, marks that turn the direction of reading), so that a line is forged, and so that rich reads markup. On the commit
before, escape sequences went through in 17 of the 24 answers below, `inspect` of a forged manifest among them. Now none does,
and the text is there, readable.

*The chaos tester* closes streams, leaves a pipe early and fills a disk. On the commit before, a closed stdout
gave AttributeError (code 1) to every answer for people, a pipe without a reader code 1, or 2 and "Broken pipe" with --json, and
a full disk a traceback for --help. Now the code is that of the command, in silence, and a full disk is code 2 with one line that says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

import labeldp
from labeldp.cli import COMMANDS, app

#: Clear the screen, a link, a bell, the one-byte form of an escape, directions, a carriage return, a forged line, markup.
EVIL = "a[red]\x1b[2J\x1b]8;;evil.example\x1b\\\x07\x9b2J\u202e\u2066\r\nFORGED: all is well \\"
COMMAND = typer.main.get_command(app)
SOURCE = str(Path(labeldp.__file__).parent.parent)
N = 240


def answer(*words: str) -> tuple[Any, str]:
    """Run a command line in this process; return its exit code, and all that it wrote."""
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written), pytest.raises(SystemExit) as left:
        COMMAND.main(list(words), prog_name="labeldp")
    return left.value.code, written.getvalue()


def complaint(text: str) -> str | None:
    """Say what is wrong with text for a terminal, or None."""
    if not text.replace("\n", "").isprintable():
        return "a terminal would obey"
    if any(line.strip(" │┃").startswith("FORGED") for line in text.splitlines()):
        return "a line is forged"
    if "FORGED" in text and "a[red]" not in text:
        return "markup was read"
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables whose columns, classes and file names are the forger's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")  # no line is broken for its length, so each broken one is forged
    rng = np.random.default_rng(0)
    x = rng.normal(size=N).round(2)
    table = pa.table({EVIL: x, "label" + EVIL: np.where(x > 0, EVIL, "no"), "user": rng.integers(0, 8, N)})
    pq.write_table(table, f"{EVIL}.parquet")
    counts = {EVIL: 900, "other": 600, "third": 3}
    items = [item for item, count in counts.items() for _ in range(count)]
    pq.write_table(pa.table({"item": items, "user": np.arange(len(items))}), "items.parquet")
    return tmp_path


def forge(release: Path, **facts: Any) -> None:
    """Change a manifest and seal it anew, as anyone can."""
    path = release / "release.json"
    manifest = json.loads(path.read_text()) | facts
    manifest.pop("sha256")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(manifest))


NEIGHBOURS = ["--neighbours", "add_remove", "--user", "user", "--k-max", "1"]
SET = ["--label-set", "a[red]set"]  # a ledger refuses names that are not seen
TABLE, LABEL = f"{EVIL}.parquet", "label" + EVIL
LINES = {
    "privatize": ["privatize", TABLE, "-l", LABEL, "-e", "1", "--to", f"out{EVIL}", "--ledger", f"l{EVIL}", *SET],
    "inspect": ["inspect", f"out{EVIL}"],
    "ledger": ["ledger", f"l{EVIL}"],
    "report": ["report", f"out{EVIL}", "--to", f"page{EVIL}"],
    "train": ["train", f"out{EVIL}", "--to", f"model{EVIL}"],
    "predict": ["predict", f"model{EVIL}", TABLE, "--to", f"predicted{EVIL}.parquet"],
    "evaluate": ["evaluate", f"model{EVIL}", TABLE, "--label", LABEL, "-e", "1"],
    "look": ["look", TABLE, "--label", LABEL, "--show-raw"],
    "audit": ["audit", f"out{EVIL}"],
    "top-k": ["top-k", "items.parquet", "--item", "item", "-e", "3", "-d", "1e-6", *NEIGHBOURS],
    "plan": ["plan", TABLE, "--label", EVIL[:8], "--classes", "2"],
    "pate": ["pate", TABLE, "-l", EVIL[:8], "--public", TABLE, "-e", "1", "--to", "student"],
    "train-ratings": [
        "train-ratings",
        TABLE,
        "--user",
        "user",
        "--item",
        EVIL[:8],
        "--rating",
        EVIL,
        "-e",
        "1",
        "--to",
        "m",
    ],
    "predict-ratings": ["predict-ratings", f"model{EVIL}", TABLE, "--to", "answers"],
    "again": ["privatize", TABLE, "-l", LABEL, "-e", "1", "--to", f"out{EVIL}"],
    "absent": ["inspect", f"out{EVIL[:9]}"],
    "absent ledger": ["ledger", EVIL],
    "column": ["privatize", TABLE, "-l", EVIL[:8], "-e", "1", "--to", "new"],
    "extra": ["inspect", "x", EVIL],
    "unknown": [EVIL],
    "option": ["inspect", f"--{EVIL}"],
    "number": ["plan", "--classes", "2", "--epsilon", EVIL],
    "discard": ["privatize", "--discard", EVIL],
}


def test_no_command_passes_on_what_a_terminal_obeys(folder: Path):
    del folder
    said = {name: answer(*line) for name, line in LINES.items()}
    forge(Path(f"out{EVIL}"), made_by=EVIL, created=EVIL, mechanism=EVIL, label_set=EVIL)
    said |= {f"forged: {name}": answer(*LINES[name]) for name in ("inspect", "audit")}
    assert {name: wrong for name, (_, text) in said.items() if (wrong := complaint(text))} == {}
    codes = {
        name: said[name][0] for name in ("privatize", "inspect", "ledger", "report", "train", "predict", "evaluate")
    }
    assert set(codes.values()) == {0}, said
    assert set(said) >= {command.__name__.replace("_", "-") for command in COMMANDS} - {"demo", "explore"}
    # The broken twin of the silence: most answers do quote the forger, and each as it can be read.
    assert sum("FORGED" in text for _, text in said.values()) >= 18
    assert "\\x1b[2J" in said["forged: inspect"][1]


def test_json_is_exact(folder: Path):
    del folder
    answer(*LINES["privatize"])
    _, text = answer(*LINES["inspect"], "--json")
    assert json.loads(text)["label_column"] == LABEL
    assert text.isascii()
    assert complaint(text) is None


def test_a_real_terminal_gets_colours_of_ours_only(folder: Path, forks: Any):
    """On a pseudo-terminal the command colours its own words; every escape sequence there is a colour, none the forger's."""
    del folder
    answer(*LINES["privatize"])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    program = "from labeldp.cli import main; main()"
    forks.start(program, *LINES["inspect"], files=(theirs, theirs, theirs), environment=environment)
    assert forks.wait() == 0
    os.close(theirs)
    screen = bytearray()
    try:
        while part := os.read(ours, 65536):
            screen += part
    except OSError:  # Linux: the other side is closed and all was read
        pass
    os.close(ours)
    text = screen.decode().replace("\r\n", "\n")
    pieces = text.split("\x1b")
    assert len(pieces) > 3
    assert all(piece[:1] == "[" and piece[1:].partition("m")[0].replace(";", "").isdigit() for piece in pieces[1:])
    assert complaint("".join(piece.partition("m")[2] for piece in pieces[1:])) is None


# -------------------------------------------------------------------------------------------------------- streams


ANSWERS = [
    (["plan", "--classes", "3"], 0),
    (["plan", "--classes", "3", "--json"], 0),
    (["inspect", "nowhere"], 2),
]
TEXTS = [["plan", "--classes", "3"], ["plan", "--classes", "3", "--json"], ["--help"]]

#: Loads what the commands need, and forks for each: it becomes the command there, on the streams that Python itself began
#: with, and ends as it ends. The codes go into a file.
PROGRAM = """
import json, os, sys
import labeldp.cli.inspect, labeldp.cli.plan, labeldp.mechanisms, labeldp.release
codes = []
for words in json.loads(sys.argv[2]):
    if os.fork() == 0:
        break
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
else:
    handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.write(handle, json.dumps(codes).encode())
    os._exit(0)
sys.argv[1:] = words
from labeldp.cli import main
main()
"""


def in_shell(lines: list[list[str]], streams: str, folder: Path) -> tuple[list[int], str, str]:
    """Run commands one after the other with streams as a shell hands them over: their codes, and what came out."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "100"}
    command = [sys.executable, "-c", PROGRAM, str(folder / "codes"), json.dumps(lines)]
    line = ["sh", "-c", f'exec "$@" {streams}', "sh", *command]
    (folder / "codes").unlink(missing_ok=True)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "codes").read_text()), done.stdout, done.stderr


def without_reader(lines: list[list[str]], *, both: bool, folder: Path) -> tuple[list[int], str]:
    """Run commands on a pipe whose reader has gone already: `| head -1` at its earliest."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "100"}
    command = [sys.executable, "-c", PROGRAM, str(folder / "codes"), json.dumps(lines)]
    stderr = writer if both else subprocess.PIPE
    done = subprocess.run(command, env=environment, stdout=writer, stderr=stderr, text=True, check=False)
    os.close(writer)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "codes").read_text()), done.stderr or ""


def test_closed_streams_and_early_readers_change_no_code(tmp_path: Path):
    lines, codes = map(list, zip(*ANSWERS, strict=True))
    found, text, said = in_shell(lines, "", tmp_path)
    assert found == codes
    assert "What an epsilon buys" in text
    assert said.startswith("error: ")
    for streams, heard in ((">&-", said), (">&- 2>&- <&-", "")):
        assert in_shell(lines, streams, tmp_path) == (codes, "", heard), streams
    assert without_reader(lines, both=False, folder=tmp_path) == (codes, said)
    assert without_reader(lines, both=True, folder=tmp_path) == (codes, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device of Linux that is always full")
def test_a_full_disk_is_said_once(tmp_path: Path):
    complaint = "error: No space left on device: standard output\n"
    assert in_shell(TEXTS, ">/dev/full", tmp_path) == ([2] * 3, "", complaint * 3)
    assert in_shell(TEXTS, ">/dev/full 2>&1", tmp_path) == ([2] * 3, "", "")


def test_a_file_that_is_opened_does_not_become_standard_output(tmp_path: Path):
    """Of a closed stream the number is free, and the next file that is opened gets it: what is printed would go into it."""
    program = (
        "import os, sys\n"
        "from labeldp.cli import screen\n"
        "screen.open_streams()\n"
        "with open(sys.argv[1], 'wb') as file:\n"
        "    os.write(1, b'noise'); os.write(2, b'noise')\n"
        "    sys.exit(0 if file.fileno() > 2 else 9)\n"
    )
    target = tmp_path / "table"
    line = ["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", sys.executable, "-c", program, str(target)]
    assert subprocess.run(line, env={**os.environ, "PYTHONPATH": SOURCE}, check=False).returncode == 0
    assert target.read_bytes() == b""
