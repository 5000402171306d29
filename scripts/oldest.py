"""The core tests on the lowest versions that pyproject.toml declares: `make oldest`, or python scripts/oldest.py.

    python scripts/oldest.py                     # this Python, and 3.10 and 3.13 where they are at hand
    python scripts/oldest.py -- tests/release    # other tests than the core; what follows is for pytest
    python scripts/oldest.py --types             # the check of names alone

For each interpreter an environment is made in .venv-oldest/VERSION and filled under constraints-oldest.txt; only pip and a
package index are needed. An interpreter that is not there is named, and left out.

The core is what a base install does: `CORE` below, and the examples of the sources. What needs an extra (torch, dask, opacus,
peers) is not run, for extras have their own ranges; studies, documentation and the rules of the house do not depend on versions.

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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-oldest"
CONSTRAINTS = ROOT / "constraints-oldest.txt"
OTHERS = ("3.10", "3.13")  # the first and the last that are supported
TOOLS = "pytest>=9 pytest-randomly pytest-timeout pytest-xdist hypothesis mpmath psutil pandas polars cloudpickle dp-accounting"
CORE = "accounting attacks audit channel cli data engines features learn loss mechanisms priors release report selection testing"
SINGLE = "test_demo.py test_guarantee.py test_random.py test_samplers.py"
NEED_EXTRAS = (
    "src/labeldp/nn",
    "src/labeldp/peers",
    "src/labeldp/engines/dask.py",
    "tests/attacks/test_assumptions.py",
    "tests/attacks/test_messages.py",
    "tests/learn/saved_by_0.1",
    "tests/release/test_scores.py",
)
COUNTED = re.compile(r"\[(attr-defined|call-arg|name-defined|syntax)\]$")


def find_interpreters() -> dict[str, str]:
    """Return this interpreter and the others that are at hand, by version; say which are not."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": getattr(sys, "_base_executable", sys.executable)}
    for version in OTHERS:
        kept = [str(place) for place in Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
        places = [found.get(version), shutil.which(f"python{version}"), *kept]
        # pyenv has a command for every version, which fails for those that are installed but not chosen.
        place = next((place for place in places if place and runs(place)), None)
        if place is None:
            print(f"skipped: Python {version}: no command `python{version}` that runs", flush=True)
        else:
            found[version] = place
    return found


def runs(python: str) -> bool:
    """Whether an interpreter starts, and can make environments."""
    return subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0


def prepare(version: str, interpreter: str) -> Path:
    """Make or bring up to date the environment of one version, and return its Python."""
    home = HOME / version
    python, stamp = home / "bin" / "python", home / ".installed"
    sources = max(CONSTRAINTS.stat().st_mtime, (ROOT / "pyproject.toml").stat().st_mtime)
    if stamp.exists() and stamp.stat().st_mtime >= sources:
        return python
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", home], check=True)
    quiet = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", CONSTRAINTS]
    subprocess.run([*quiet, "--editable", ROOT, *TOOLS.split()], check=True)
    stamp.touch()
    return python


def test(version: str, python: Path, chosen: list[str]) -> bool:
    """Run the core, or the chosen tests, and say whether they passed."""
    core = [f"tests/{name}" for name in [*CORE.split(), *SINGLE.split()]]
    left_out = [f"--ignore={name}" for name in NEED_EXTRAS]
    # The checks of scikit-learn 1.6 hand pytest a generator, of which newer versions of pytest warn; and models that were
    # saved with a newer scikit-learn warn of it when they are read.
    options = [
        "-q",
        "-W",
        "ignore::sklearn.exceptions.InconsistentVersionWarning",
        "-W",
        "ignore::pytest.PytestRemovedIn10Warning",
        "-o",
        f"cache_dir={HOME / version / 'pytest'}",
    ]
    workers = [] if any(one.startswith("-n") for one in chosen) else ["-n", os.environ.get("WORKERS", "2")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    env["NUMBA_CACHE_DIR"] = str(HOME / version / "numba")
    print(f"Python {version}:", flush=True)
    command = [python, "-m", "pytest", *options, *workers, *left_out, *(chosen or [*core, "src"])]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


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
    parser.add_argument("chosen", nargs="*", help="arguments of pytest, instead of the core tests")
    asked = parser.parse_args()
    pythons = {version: prepare(version, place) for version, place in find_interpreters().items()}
    passed = asked.types or not [v for v, python in pythons.items() if not test(v, python, asked.chosen)]
    named = bool(asked.chosen) or check_names(next(iter(pythons.values())))
    sys.exit(0 if passed and named else 1)


if __name__ == "__main__":
    main()
