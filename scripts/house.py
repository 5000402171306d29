"""What the house looks like in numbers: files, lines, imports, and how many files six typical calls run through.

    python scripts/house.py            # the tree of this clone
    python scripts/house.py --json

Counted. *Files* are the Python files under src/labeldp. A *code line* is one that holds code: neither blank, nor a
comment, nor part of a docstring. *Docstring / code* and *test / code* are lines of docstrings and code lines of tests for
each code line. *Imports' share* is the lines of import statements among code lines. A module has *one importer* when
exactly one other module imports it. A *private import* takes a module or a name that begins with an underscore out of
another package. *Files run through* are those in which a function ran while the call did, after a first call has
loaded everything; the call is made twice and the second one counts.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import json
import os
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def code_lines(path: Path) -> tuple[int, int, int]:
    """Return the lines of code, of docstrings and of imports of a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    documented: set[int] = set()
    imported: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    full: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            full.update(range(token.start[0], token.end[0] + 1))
    return len(full - documented), len(documented), len(imported)


def module_name(path: Path, source: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def count_files(root: Path) -> dict[str, Any]:
    """Return the counts of a tree that need no call."""
    source = root / "src"
    files = sorted((source / "labeldp").rglob("*.py"))
    names = {module_name(path, source): path for path in files}
    importers: dict[str, set[str]] = collections.defaultdict(set)
    private = 0
    code = documented = imports = 0
    for name, path in names.items():
        lines = code_lines(path)
        code, documented, imports = code + lines[0], documented + lines[1], imports + lines[2]
        room = name.split(".")[1] if "." in name else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("labeldp"):
                continue
            importers[str(node.module)].add(name)
            parts = str(node.module).split(".")[1:]
            for alias in node.names:
                if f"{node.module}.{alias.name}" in names:
                    importers[f"{node.module}.{alias.name}"].add(name)
            reached = [*parts[1:], *(alias.name for alias in node.names)]
            if parts and parts[0] != room and any(part.startswith("_") and part != "__version__" for part in reached):
                private += 1
    tests = sum(code_lines(path)[0] for path in (root / "tests").rglob("*.py"))
    sizes = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    alone = [name for name, who in importers.items() if name in names and name.count(".") >= 2 and len(who) == 1]
    return {
        "files": len(files),
        "code lines": code,
        "median file, lines": sizes[len(sizes) // 2],
        "files of 80 lines or fewer": sum(size <= 80 for size in sizes),
        "docstring / code": round(documented / code, 2),
        "test / code": round(tests / code, 2),
        "imports' share of code": f"{100 * imports / code:.1f}%",
        "modules with one importer": len(alone),
        "private imports across packages": private,
    }


@contextlib.contextmanager
def files_run(root: Path, seen: set[str]) -> Iterator[None]:
    """Collect the files of the package in which a function runs, in all threads."""
    import threading

    package = str(root / "src" / "labeldp") + os.sep

    def note(frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(package) and frame.f_code.co_name != "<module>":
            seen.add(name.removeprefix(package))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def calls(folder: Path) -> dict[str, Callable[[int], object]]:
    """Return the six calls; each is given the number of the round, for names of files that must be new."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from typer.testing import CliRunner

    import labeldp
    from labeldp.cli import app
    from labeldp.learn import SufficientStatistics
    from labeldp.nn import NetClassifier
    from labeldp.selection import stable_top_k

    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=600) > 0).astype(int)
    prior = rng.dirichlet(np.ones(3), size=600)
    three = rng.integers(0, 3, 600)
    table = folder / "people.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "ill": np.where(y == 1, "yes", "no")}), table)

    def command(*words: str) -> None:
        done = CliRunner().invoke(app, list(words))
        if done.exit_code:
            raise SystemExit(f"{words}: {done.output}")

    def release(number: int) -> Path:
        return folder / f"release-{number}"

    return {
        "privatize with RRWithPrior": lambda _: labeldp.privatize(
            three, labeldp.RRWithPrior(epsilon=1.0), prior=prior, rng=0
        ),
        "LabelPrivateClassifier.fit": lambda _: labeldp.LabelPrivateClassifier(
            epsilon=2.0, stages=2, classes=[0, 1], random_state=0
        ).fit(X, y),
        "command privatize": lambda number: command(
            *("privatize", str(table), "--label", "ill", "--epsilon", "1", "--to", str(release(number)), "--json")
        ),
        "SufficientStatistics(stages=3).fit": lambda _: SufficientStatistics(
            epsilon=2.0,
            delta=1e-5,
            stages=3,
            classes=[0, 1],
            random_state=0,
            clip=1.0,
            network=NetClassifier("mlp", hidden=8, random_state=0),
        ).fit(X.astype(np.float32), y),
        "command report": lambda number: command(
            *("report", str(release(number)), "--to", str(folder / f"report-{number}.html"), "--json")
        ),
        "stable_top_k": lambda _: stable_top_k(
            np.array([900, 850, 800, 20, 10, 5]), k_max=3, epsilon=2.0, delta=1e-6, neighbours="add_remove", rng=0
        ),
    }


def count_calls(root: Path) -> dict[str, int]:
    """Return how many files each of the six calls runs through."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for title, call in calls(Path(name)).items():
            call(1)
            seen: set[str] = set()
            with files_run(root, seen):
                call(2)
            found[title] = len(seen)
            if os.environ.get("HOUSE_SHOW"):
                print(title, *sorted(seen), sep="\n    ")
    return found


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--root", type=Path, default=ROOT, help="the clone to look at")
    chosen = parser.parse_args()
    root = chosen.root.resolve()
    sys.path.insert(0, str(root / "src"))
    figures: dict[str, Any] = {**count_files(root), **count_calls(root)}
    if chosen.json:
        print(json.dumps(figures, indent=1))
        return
    for title, figure in figures.items():
        print(f"{title:38} {figure}")


if __name__ == "__main__":
    main()
