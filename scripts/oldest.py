"""The core tests on the lowest versions that pyproject.toml declares: `make oldest`, or python scripts/oldest.py.

    python scripts/oldest.py                     # this Python, and 3.10 and 3.13 where they are at hand
    python scripts/oldest.py -- tests/release    # other tests than the core; what follows is for pytest
    python scripts/oldest.py --only 3.10         # one interpreter
    python scripts/oldest.py --types             # the check of names alone

For each interpreter an environment is made in .venv-oldest/VERSION; only pip and a package index are needed. It is filled
under constraints-oldest.txt. Python 3.13 came after those versions, so it gets the newest that we know: constraints.txt. An
interpreter that is not there is named, and left out. A failing one does not stop the next; a table at the end has a line for
each, and the exit code is 1 if one of them failed.

The core is what a base install does: `CORE` below, and the examples of the sources. What needs an extra (torch, dask, opacus,
peers) is skipped with the reason, or left out by `NEED_EXTRAS`: extras have their own ranges. Studies, documentation and the
rules of the house do not depend on versions.

Then mypy, which `make setup` installs, reads the sources as Python 3.10 with the old libraries, and as 3.13. The old types
differ in many ways that do not matter, so only names that are not there, wrong arguments and syntax count.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-oldest"
OLD_PINS, NEW_PINS = ROOT / "constraints-oldest.txt", ROOT / "constraints.txt"
FIRST_NEW = (3, 13)  # came after the lowest versions of the libraries, which have no builds for it
OTHERS = ("3.10", "3.13")  # the first and the last that are supported
TOOLS = "pytest>=9 pytest-randomly pytest-timeout pytest-xdist hypothesis mpmath psutil pandas polars cloudpickle dp-accounting jsonschema"
CORE = "accounting attacks audit channel cli data engines features learn loss mechanisms priors release report selection testing"
SINGLE = "test_demo.py test_guarantee.py test_random.py test_samplers.py"
NEED_EXTRAS = (
    "src/labeldp/nn",
    "src/labeldp/peers",
    "src/labeldp/engines/dask.py",
    "tests/learn/saved_by_0.1",  # a script that makes old files, not tests
)
COUNTED = re.compile(r"\[(attr-defined|call-arg|name-defined|syntax)\]$")


def find_interpreters(only: str | None) -> dict[str, str]:
    """Return this interpreter and the others that are at hand, or only one of them, by version; say which are not."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": getattr(sys, "_base_executable", sys.executable)}
    for version in (only,) if only else OTHERS:
        kept = [str(place) for place in Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
        places = [found.get(version), shutil.which(f"python{version}"), *kept]
        # pyenv has a command for every version, which fails for those that are installed but not chosen.
        place = next((place for place in places if place and runs(place)), None)
        if place is None:
            print(f"skipped: Python {version}: no command `python{version}` that runs", flush=True)
        else:
            found[version] = place
    if only and only not in found:
        sys.exit(1)
    return {only: found[only]} if only else found


def runs(python: str) -> bool:
    """Whether an interpreter starts, and can make environments."""
    return subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0


def prepare(version: str, interpreter: str) -> Path:
    """Make or bring up to date the environment of one version, and return its Python."""
    home, pins = HOME / version, constraints(version)
    python, stamp = home / "bin" / "python", home / ".installed"
    sources = max(pins.stat().st_mtime, (ROOT / "pyproject.toml").stat().st_mtime)
    if stamp.exists() and stamp.stat().st_mtime >= sources:
        return python
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", home], check=True)
    quiet = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", pins]
    subprocess.run([*quiet, "--editable", ROOT, *TOOLS.split()], check=True)
    stamp.touch()
    return python


def constraints(version: str) -> Path:
    """Return the file of versions for a Python: the lowest, or, where those have no builds, what we develop with."""
    return OLD_PINS if tuple(map(int, version.split("."))) < FIRST_NEW else NEW_PINS


def test(version: str, python: Path, chosen: list[str]) -> Row:
    """Run the core, or the chosen tests, and return what to print of it."""
    core = [f"tests/{name}" for name in [*CORE.split(), *SINGLE.split()]]
    left_out = [f"--ignore={name}" for name in NEED_EXTRAS]
    counts = HOME / version / "counts.xml"
    counts.unlink(missing_ok=True)
    # The checks of scikit-learn 1.6 hand pytest a generator, of which newer versions of pytest warn; and models that were
    # saved with a newer scikit-learn warn of it when they are read. A new environment compiles all kernels first, so a
    # test may take longer than in `make test` before it counts as hung.
    options = [
        "-q",
        "--tb=short",
        "--timeout=900",
        f"--junit-xml={counts}",
        "-Wignore::sklearn.exceptions.InconsistentVersionWarning",
        "-Wignore::pytest.PytestRemovedIn10Warning",
        f"-ocache_dir={HOME / version / 'pytest'}",
    ]
    workers = [] if any(one.startswith("-n") for one in chosen) else ["-n", os.environ.get("WORKERS", "2")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    env["NUMBA_CACHE_DIR"] = str(HOME / version / "numba")
    print(f"Python {version}:", flush=True)
    command = [python, "-m", "pytest", *options, *workers, *left_out, *(chosen or [*core, "src"])]
    start = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    minutes, versions = f"{(time.monotonic() - start) / 60:.0f}", libraries(python)
    if not counts.exists():
        return Row(version, versions, f"pytest ended with {code}", "", "", minutes, good=False)
    suite = ET.parse(counts).getroot().find("testsuite")
    number = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    passed = number["tests"] - failed - number["skipped"]
    return Row(version, versions, str(passed), str(failed), str(number["skipped"]), minutes, good=code == 0)


def libraries(python: Path) -> str:
    """Return the versions of the libraries that a table of results should name."""
    names = ["numpy", "scipy", "scikit-learn", "pyarrow", "numba", "pandas"]
    code = "import platform, sys; from importlib.metadata import version as v; print(platform.python_version(), "
    code += "*(f'{name} {v(name)}' for name in sys.argv[1:]), sep=', ')"
    return subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True).stdout.strip()


class Row(NamedTuple):
    """A line of the table: what was run, and how it ended."""

    python: str
    versions: str
    passed: str
    failed: str
    skipped: str
    minutes: str
    good: bool


def print_table(rows: list[Row]) -> None:
    """Print what was run as a table in Markdown, as the documentation shows it."""
    print("\n| Python | versions | passed | failed | skipped | minutes |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row[:-1])} |", flush=True)
    print(flush=True)


def check_names(python: Path) -> bool:
    """Whether mypy finds every name as Python 3.10 with the old libraries, and everything as 3.13 with the new ones."""
    good = True
    for version, more in {"3.10": ["--python-executable", str(python), "--no-warn-unused-ignores"], "3.13": []}.items():
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--python-version",
            version,
            "--cache-dir",
            str(HOME / f"mypy-{version}"),
        ]
        found = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line for line in found.stdout.splitlines() if COUNTED.search(line)]
        if not re.search(r"^(Success|Found \d+ errors?)", found.stdout, re.MULTILINE):
            lines = [found.stdout + found.stderr]  # mypy did not come to an end
        print(f"names as Python {version}: {len(lines)} not found", *lines, sep="\n  ", flush=True)
        good = good and not lines
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", action="store_true", help="only the check of names")
    parser.add_argument("--only", metavar="VERSION", help="one interpreter, as 3.10")
    parser.add_argument("chosen", nargs="*", help="arguments of pytest, instead of the core tests")
    asked = parser.parse_args()
    rows: list[Row] = []
    pythons: dict[str, Path] = {}
    for version, place in find_interpreters(asked.only).items():
        try:
            pythons[version] = prepare(version, place)
        except subprocess.CalledProcessError as error:  # the next interpreter is tried all the same
            rows.append(Row(version, "", f"installation ended with {error.returncode}", "", "", "", good=False))
            continue
        if not asked.types:
            rows.append(test(version, pythons[version], asked.chosen))
    old = [python for version, python in pythons.items() if constraints(version) == OLD_PINS]
    named = bool(asked.chosen) or not old or check_names(old[0])
    if rows:
        print_table(rows)
    sys.exit(0 if named and all(row.good for row in rows) else 1)


if __name__ == "__main__":
    main()
