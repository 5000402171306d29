"""The rules of the house that no linter checks: imports, words, docstrings, and that tests do not vanish."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labeldp

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "labeldp"

#: Raise it as tests grow; never lower it without saying in the commit which tests went and why.
LEAST_TESTS = 9_780

#: Never loaded by `import labeldp`: the first five are optional or strangers, the rest are heavy and fetched when needed.
HEAVY = ("torch", "ray", "dask", "pyspark", "matplotlib", "sklearn", "numba", "pyarrow", "scipy", "pandas")

OWN_FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "scripts", "studies", ".ci", ".github")
OWN_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cff", ".cfg", ".sh", ".yml", ".yaml", ".json", ".html", ""}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def own_text_files() -> Iterator[Path]:
    # Folders are named rather than asked of git: the tests also run from an unpacked archive.
    for folder in OWN_FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts)
    yield from (path for path in ROOT.iterdir() if path.name != ".git")  # a file in a worktree, with its place


def lines_that_match(pattern: re.Pattern[str], paths: Iterator[Path] | list[Path]) -> list[str]:
    found = []
    for path in paths:
        if not path.is_file() or path.suffix not in OWN_SUFFIXES:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()}")
    return found


# ---------------------------------------------------------------------------------------------------- the front door


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy():
    program = (
        "import json, sys, time; start = time.process_time(); import labeldp; "
        "print(json.dumps([time.process_time() - start, sorted(sys.modules)]))"
    )
    elapsed, loaded = json.loads(run_python(program))
    print(f"import labeldp: {1000 * elapsed:.1f} ms")
    assert [name for name in HEAVY if name in loaded] == []
    # About 20 ms of a processor, whoever else is using it. Half a second still catches a front door that has stopped being
    # lazy and loads scikit-learn.
    assert elapsed < 0.5


def test_import_budget_would_catch_a_heavy_import():
    loaded = json.loads(run_python("import json, sys, scipy, labeldp; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in HEAVY if name in loaded] == ["scipy"]


@pytest.mark.parametrize("name", labeldp.__all__)
def test_public_name_resolves_to_its_room(name: str):
    room = importlib.import_module(f"labeldp.{labeldp._ROOM_OF[name]}")
    assert getattr(labeldp, name) is getattr(room, name)
    assert name in dir(labeldp)


def test_front_door_says_the_same_three_times():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen_by_types = {
        alias.name: (node.module or "").removeprefix("labeldp.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module != "labeldp"
    }
    assert seen_by_types == labeldp._ROOM_OF
    assert sorted(labeldp.__all__) == sorted(labeldp._ROOM_OF)


def test_rooms_are_attributes_without_an_import():
    assert run_python("import labeldp; print(labeldp.errors.__name__)").strip() == "labeldp.errors"


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match="Did you mean `RandomizedResponse`"):
        labeldp.RandomisedResponse  # noqa: B018
    assert not hasattr(labeldp, "no_such_thing")


# ----------------------------------------------------------------------------------------------------------- the text


def test_no_unfinished_work_in_the_sources():
    assert lines_that_match(re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b"), sources()) == []


#: Documents of the founders that are not in the repository: what is needed of them stands in docs/ or in a docstring.
ABSENT = re.compile(r"\b(?:" + "RECIPES|MECHANISMS|DESIGN|STYLE" + r")(?:\.md\b|,? section)")


def test_no_citation_of_what_is_not_here():
    committed = [path for path in own_text_files() if "results" not in path.parts]
    assert lines_that_match(ABSENT, committed) == []


#: An absolute path into somebody's machine; a part of a URL or of a relative path is not one.
MACHINE_PATH = re.compile(r"(?<![\w.~*)}-])/(?:work|root|home|Users)(?:/|\b)(?!-)")
#: Package indexes differ from machine to machine; files name none. Split, so that this file does not name one.
REGISTRY = re.compile("|".join((r"pypi\." + "org", r"python" + r"hosted\.org", "test" + r"\.pypi")))


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine path", "registry"])
def test_no_trace_of_one_machine(pattern: re.Pattern[str]):
    assert lines_that_match(pattern, own_text_files()) == []


def test_trace_patterns_catch_and_spare():
    machine = "/" + "work/main/x.py"
    assert MACHINE_PATH.search(f"open('{machine}')")
    assert MACHINE_PATH.search("see " + "/" + "root")
    assert not MACHINE_PATH.search("https://example.invalid/home/page and src/work/x")
    assert REGISTRY.search("https://" + "pypi" + ".org/simple")


# -------------------------------------------------------------------------------------------------------- the imports


def private_imports(path: Path) -> list[str]:
    """Names that begin with an underscore and are taken out of another room, or out of another file of this one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"labeldp", "studies"}:
            parts = [*str(node.module).split(".")[1:], *(alias.name for alias in node.names)]
            hidden = [part for part in parts if part.startswith("_") and not part.startswith("__")]
            found += [f"{name_of(path)}:{node.lineno}: {name}" for name in hidden]
    return found


def test_no_room_reaches_into_what_another_hides():
    everywhere = [*sources(), *(ROOT / "studies").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert [line for path in everywhere for line in private_imports(path)] == []


def test_a_private_import_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "room.py").write_text("from labeldp.release.loading import _inside, load_release\n")
    assert private_imports(tmp_path / "room.py") == ["room.py:1: _inside"]


ALIAS = re.compile(r"^[A-Z]\w* = npt\.NDArray\[[^\]]*(?:\[Any\])?\]$")


def test_types_of_arrays_are_named_in_one_place():
    assert lines_that_match(ALIAS, sources()) == []


# ---------------------------------------------------------------------------------------------------------- the tests


def test_tests_do_not_vanish(request: pytest.FixtureRequest):
    # A worker of xdist is handed the folders of a whole run by name; it collects all of them.
    asked = [Path(name).name for name in request.config.args]
    if asked != request.config.getini("testpaths") or request.config.option.keyword:
        pytest.skip("counts the tests of a whole run: `make test` names no files")
    names = [item.nodeid for item in request.session.items]
    assert len(names) >= LEAST_TESTS
    # The four kinds are all there: tests, examples of the sources, of the studies and of the README.
    for start in ("tests/", "src/labeldp/", "studies/", "README.md"):
        assert any(name.startswith(start) for name in names), start


def test_every_test_file_is_collected():
    files = {name_of(path) for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"}
    misnamed = [name for name in files if "def test_" in (ROOT / name).read_text(encoding="utf-8")]
    assert [name for name in sorted(misnamed) if not Path(name).name.startswith("test_")] == []
