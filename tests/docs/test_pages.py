"""Every code block of the documentation is run, top to bottom, in an empty folder; what it prints must be what the page says.

A ``python`` block shares its names with the blocks before it on the page. In a ``console`` block, lines that start with
``$ `` are commands. A ``text`` block right after either is its output, where ``...`` stands for anything (as in doctest).
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from labeldp.cli import app
from scripts.notebooks import split_page

COMMAND = get_command(app)
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if re.search(r"^```(python|console)$", path.read_text(), re.MULTILINE)
)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> list[tuple[str, str, str | None, int]]:
    """(language, code, expected output or None, line) of each block that runs."""
    return [tuple(part) for part in split_page(text) if part.kind in {"python", "console"}]


def run_python(code: str, names: dict[str, object], where: str) -> str:
    """Run a block and return what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), names)
    return out.getvalue()


def run_console(code: str, folder: Path) -> str:
    """Run the commands of a block, each of which must succeed, and return what they printed.

    A line that only calls `labeldp` runs in this process, which has everything loaded; anything else is the shell's.
    """
    lines = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
    assert lines, "a console block has lines that start with `$ `"
    return "".join(run_labeldp(line) if LABELDP.match(line) else run_shell(line, folder) for line in lines)


#: A call of the command alone, perhaps expected to fail, perhaps with an output sent elsewhere or a comment: no pipe, no
#: second command, and nothing that the shell fills in but the words of a file.
WORDS = re.compile(r"\$\(cat (\S+)\)")
LABELDP = re.compile(rf"^(! )?labeldp ([^|;&$#]|{WORDS.pattern})*(#.*)?$")


def run_labeldp(line: str) -> str:
    """Run one command line in this process, and return what it printed unless that was sent to a file."""
    words = shlex.split(WORDS.sub(lambda found: Path(found[1]).read_text(), line), comments=True)
    fails = words[0] == "!"
    words, sent = words[1 + fails :], {}
    for mark in (">", "2>"):
        if mark in words:
            place = words.index(mark)
            sent[mark] = Path(words[place + 1])
            del words[place : place + 2]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        COMMAND.main(words, prog_name="labeldp")
    assert bool(left.value.code) == fails, f"{line}\n{out.getvalue()}{err.getvalue()}"
    if ">" not in sent:
        return out.getvalue()
    sent[">"].write_text(out.getvalue())
    return ""


def run_shell(script: str, folder: Path) -> str:
    """Run a line in bash, with this environment's commands first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def check_printed(expected: str | None, printed: str, where: str) -> None:
    """Compare as doctest does."""
    if expected is not None and not doctest.OutputChecker().check_output(expected, printed, SAME):
        pytest.fail(f"{where} printed\n{printed}\nand the page says\n{expected}")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {"__name__": "__main__"}
    for language, code, expected, line in blocks(page.read_text()):
        where = f"{page.name}:{line}"
        printed = run_python(code, names, where) if language == "python" else run_console(code, tmp_path)
        check_printed(expected, printed, where)


def test_a_loop_of_your_own_has_at_most_fifteen_lines() -> None:
    """The page promises a short loop: with its imports, network and optimizer, and the line that looks at the result."""
    loop = next(code for _, code, _, _ in blocks((DOCS / "pytorch.md").read_text()) if "ForwardLoss()" in code)
    assert len([line for line in loop.splitlines() if line.strip()]) <= 15


def test_a_wrong_page_is_caught(tmp_path: Path) -> None:
    """The runner is not blind: a wrong output, a failing command and an exception are failures."""
    (wrong,) = blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(pytest.fail.Exception):
        check_printed(wrong[2], run_python(wrong[1], {}, "page"), "page")
    with pytest.raises(AssertionError):
        run_console("$ false\n$ true\n", tmp_path)
    with pytest.raises(AssertionError):
        run_console("$ labeldp inspect nowhere\n", tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_python("1 / 0", {}, "page")


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (DOCS.parent / "mkdocs.yml").read_text()
    missing = [
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).as_posix() not in contents
    ]
    assert not missing
