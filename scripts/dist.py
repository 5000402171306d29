"""Build wheel and sdist into dist/, and try them as a stranger would: `make dist`, or python scripts/dist.py.

    python scripts/dist.py                  # everything: build, check, the wheel alone, each extra alone
    python scripts/dist.py --only base dask # build, check, and these environments
    python scripts/dist.py --build-only     # build and check: nothing is installed but the tools
    python scripts/dist.py --sbom           # build, check, and list what a base install brings (`make sbom`)
    python scripts/dist.py --tag v0.1.0     # everything, and the version must be that of the tag

1. The tools (build, twine, cyclonedx-bom) go into an environment of their own. The sdist is built from this folder, the wheel from the sdist.
2. `twine check --strict` reads their metadata. The sdist has what a developer needs, the wheel has the package alone, both are of
   the version that the package, CHANGELOG.md and CITATION.cff name, and neither has data but what may be shipped (`DATA`).
3. The wheel is installed alone into a fresh environment in a temporary folder, under constraints.txt. For each extra there is one more,
   which sees the packages of the base and gets what the extra adds; torch is the one that is pinned. The base runs the demo and the examples of README.md, and has no package of an
   extra; each extra runs its smallest use. All of them run in an empty folder, where no source of this one is found.
4. build/labeldp-VERSION.cdx.json is the software bill of materials of the base install (CycloneDX): every package that it
   brings, with version and licence. It is validated against its schema.

Ends with a table of what was run and how long it took, and with code 1 if anything failed. Needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BILL = ROOT / "build"
PINS = ROOT / "constraints.txt"
TOOLS = ("build", "twine", "cyclonedx-bom")

#: What an sdist must have, beside the package: enough to test, document and release it.
NEEDED = (
    *(
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "Makefile",
        "pyproject.toml",
        "mkdocs.yml",
    ),
    *(
        "constraints.txt",
        "constraints-oldest.txt",
        "docs/index.md",
        "scripts/dist.py",
        "studies/run.py",
        "tests/test_house.py",
    ),
    *(".github/workflows/release.yml", ".ci/run"),
)
#: What a wheel must have: what is no Python and is still read.
CARRIED = ("py.typed", "data/adult.parquet", "report/assets/guarantee.schema.json", "report/assets/page.html")
#: Suffixes of text and pictures. Whatever has another one is data, and must be in `DATA`.
TEXT = {
    *(".py", ".md", ".toml", ".txt", ".cff", ".json", ".yml", ".yaml", ".typed"),
    *(".svg", ".png", ".webp", ".html", ".css", ".js", ".ipynb"),
}
NAMES = {"LICENSE", "Makefile", "PKG-INFO", "METADATA", "WHEEL", "RECORD", ".gitignore", "run"}
#: What a study has measured of its cases: scores, no rows of a data set.
NAMES |= {"partial.jsonl"}
#: UCI Adult (CC BY 4.0), and models and a release of made-up rows, which tests load.
DATA = ("labeldp/data/adult.parquet", "tests/learn/saved_by_0.1/", "tests/nn/saved_by_0.1/")

#: Packages of extras, none of which a base install may have.
OPTIONAL = "torch dask distributed opacus zmq lightgbm xgboost pandas polars matplotlib"

BASE = f"""
import importlib.util, json, pathlib
import labeldp
found = [name for name in "{OPTIONAL}".split() if importlib.util.find_spec(name)]
assert not found, f"a base install has {{found}}"
report = json.loads(pathlib.Path("inspected.json").read_text())
assert report["guarantee"]["schema"] == "urn:labeldp:schema:guarantee:1", report
print("base:", labeldp.__version__, labeldp.__file__)
"""

#: A release by command, of the table that `try_base` writes.
RELEASE = ("privatize", "few.csv", "--label", "ill", "--epsilon", "1", "--to", "out", "--json")

ROWS = """
import numpy as np
import labeldp
X = np.random.default_rng(0).normal(size=(400, 3))
y = (X[:, 0] > 0).astype(int)
settings = {"epsilon": 8.0, "classes": [0, 1]}
"""

#: The smallest use of each extra.
USES = {
    "torch": ROWS
    + """
import torch
from labeldp.nn import NetClassifier
assert torch.__version__.split("+")[0] == PINNED["torch"], torch.__version__
model = labeldp.LabelPrivateClassifier(NetClassifier("mlp", epochs=5), **settings).fit(X, y)
assert (model.predict(X) == y).mean() > 0.7
print("torch", torch.__version__, model.guarantee_.headline)
""",
    "dask": ROWS
    + """
if __name__ == "__main__":
    import pyarrow as pa
    import pyarrow.parquet as pq
    from labeldp.engines import privatize_table
    pq.write_table(pa.table({"x": X[:, 0], "y": y}), "rows.parquet")
    done = privatize_table("rows.parquet", label="y", to="out", epsilon=1.0, classes=[0, 1], engine="dask", workers=1)
    assert len(done.load()) == 400
    print("dask", done.guarantee.headline)
""",
    "opacus": ROWS
    + """
from labeldp.nn import DPSGDClassifier
model = DPSGDClassifier(epsilon=4.0, epochs=3, batch_size=100, classes=[0, 1]).fit(X, y)
assert (model.predict(X) == y).mean() > 0.7
print("opacus", model.guarantee_.headline)
""",
    "peers": """
import numpy as np
from labeldp.peers import run_peers
run = run_peers([0, 1, 1, 0] * 5, groups=np.zeros(20, int), alpha=0.25, theta=1.0)
assert run.participates.all()
print("peers", run.guarantee.headline)
""",
    "boosting": ROWS
    + """
from lightgbm import LGBMClassifier
from xgboost import XGBClassifier
from labeldp.learn.saved import load_model, save_model
for model in (LGBMClassifier(n_estimators=10, verbose=-1), XGBClassifier(n_estimators=10)):
    name = type(model).__name__
    fitted = labeldp.LabelPrivateClassifier(model, **settings).fit(X, y)
    save_model(fitted, f"{name}.skops")
    assert np.allclose(load_model(f"{name}.skops").predict_proba(X), fitted.predict_proba(X))
    print("boosting", name, fitted.guarantee_.headline)
""",
}


class Row(NamedTuple):
    """A line of the table at the end."""

    what: str
    good: bool
    seconds: float
    words: str


def run(*command: object, folder: Path = ROOT, quiet: bool = False) -> str:
    """Run a command without the caller's Python settings, and return what it printed; it must succeed."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "NUMBA_CACHE_DIR", "LABELDP_DATA")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    if not quiet:
        print(done.stdout, end="", flush=True)
    return done.stdout


def make_environment(place: Path, *wanted: str, over: Path | None = None) -> Path:
    """Install packages under the pins into a fresh environment, and return its folder of commands.

    With `over` it also sees the packages of that environment, and only those that are missing there are installed.
    """
    run(sys.executable, "-m", "venv", place)
    if over is not None:
        (find_packages(place) / "over.pth").write_text(f"{find_packages(over)}\n")
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    run(*pip, "--constraint", PINS, *wanted, quiet=True)
    return place / "bin"


def find_packages(place: Path) -> Path:
    """Return the folder of packages of an environment."""
    (found,) = (place / "lib").glob("python3.*/site-packages")
    return found


# --------------------------------------------------------------------------------------------------- what was built


def build(folder: Path) -> str:
    """Make dist/ anew: the sdist from this folder, the wheel from the sdist; and let twine read both."""
    tools = make_environment(folder / "tools", *TOOLS)
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--outdir", DIST, ROOT, quiet=True)
    run(tools / "python", "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    return ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(DIST.iterdir()))


def find_built() -> tuple[Path, Path]:
    """Return the wheel and the sdist."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_contents(tag: str | None) -> str:
    """Compare what is in both archives with what must and what may be there."""
    wheel, sdist = find_built()
    inside = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()]
    version = read_version(tag)
    if tag is not None:
        check_date((ROOT / "CHANGELOG.md").read_text())
    assert wheel.name.split("-")[1] == version, wheel.name
    assert sdist.name == f"labeldp-{version}.tar.gz", sdist.name
    missing = [*set(NEEDED) - set(names), *({f"labeldp/{name}" for name in CARRIED} - set(inside))]
    assert not missing, f"not there: {missing}"
    strangers = [name for name in inside if not name.startswith(("labeldp/", f"labeldp-{version}.dist-info/"))]
    assert not strangers, f"in the wheel and not of the package: {strangers}"
    data = find_data({*names, *inside})
    assert not data, f"data that is not known to be free to ship: {data}"
    return f"{len(inside)} files in the wheel, {len(names)} in the sdist"


def find_data(names: Iterable[str]) -> list[str]:
    """Return the files that are neither text nor known as data that may be shipped."""
    return sorted(name for name in names if not is_text(name) and not any(part in name for part in DATA))


def is_text(name: str) -> bool:
    """Whether a file is source, text or a picture."""
    path = PurePosixPath(name)
    return path.suffix in TEXT or path.name in NAMES or path.name == "entry_points.txt"


def read_version(tag: str | None = None) -> str:
    """Return the version, which the package, the changelog, the citation and a tag, if there is one, must agree on."""
    found: dict[str, re.Match[str] | None] = {
        "package": re.search(r'^__version__ = "(.+)"', (ROOT / "src/labeldp/__init__.py").read_text(), re.MULTILINE),
        "CHANGELOG.md": re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE),
        "CITATION.cff": re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE),
    }
    if tag is not None:
        found["tag"] = re.fullmatch(r"v(.+)", tag)
    versions = {name: match and match[1] for name, match in found.items()}
    assert len(set(versions.values())) == 1, f"versions differ: {versions}"
    return str(versions["package"])


def check_date(changelog: str) -> None:
    """Refuse to release what the changelog still calls unreleased."""
    heading = next(line for line in changelog.splitlines() if line.startswith("## "))
    dated = re.fullmatch(r"## \S+ \(\d{4}-\d\d-\d\d\)", heading)
    assert dated, f"CHANGELOG.md: `{heading}` has no date. Write the day of the release, as in `## 1.2.3 (2026-01-31)`."


# ---------------------------------------------------------------------------------------------------- what it can do


def install_base(folder: Path) -> Path:
    """Install the wheel alone, once, and return its folder of commands."""
    place = folder / "base"
    return place / "bin" if place.is_dir() else make_environment(place, str(find_built()[0]))


def write_bill(folder: Path) -> str:
    """Write the bill of materials of a base install, and return what is on it."""
    BILL.mkdir(exist_ok=True)
    place = BILL / f"labeldp-{read_version()}.cdx.json"
    command = [folder / "tools" / "bin" / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml"]
    options = ["--output-reproducible", "--validate", "--output-file", place]
    run(*command, *options, install_base(folder) / "python", quiet=True)
    bill = json.loads(place.read_text())
    names = {part["name"].lower() for part in bill["components"]}
    assert {"numpy", "scikit-learn", "pyarrow"} <= names, names
    return f"{place.relative_to(ROOT)}: {len(names)} packages, CycloneDX {bill['specVersion']}"


def try_base(folder: Path) -> str:
    """The wheel alone: the demo, a release and its inspection, and the examples of README.md."""
    bin_folder = install_base(folder)
    work = folder / "work-base"
    work.mkdir()
    start = time.monotonic()
    run(bin_folder / "labeldp", "demo", "--out-dir", work, folder=work)
    seconds = time.monotonic() - start
    assert (work / "labeldp-demo-report.html").stat().st_size > 10_000
    (work / "few.csv").write_text(
        "age,ill\n" + "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(20, 80))
    )
    run(
        bin_folder / "labeldp",
        *RELEASE,
        folder=work,
        quiet=True,
    )
    told = run(bin_folder / "labeldp", "inspect", "out", "--json", folder=work, quiet=True)
    (work / "inspected.json").write_text(told)
    run(bin_folder / "python", "-c", BASE, folder=work)
    shutil.copy(ROOT / "README.md", work)
    doctest = ["-m", "doctest", "-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS", "README.md"]
    run(bin_folder / "python", *doctest, folder=work)
    return f"demo in {seconds:.0f} s, README.md"


def try_extra(folder: Path, extra: str) -> str:
    """The wheel with one extra: its smallest use."""
    wheel, _ = find_built()
    place = folder / extra
    install_base(folder)
    bin_folder = make_environment(place, f"{wheel}[{extra}]", over=folder / "base")
    work = folder / f"work-{extra}"
    work.mkdir()
    pins = dict(line.split("==") for line in PINS.read_text().splitlines() if "==" in line and not line.startswith("#"))
    (work / "use.py").write_text(f"PINNED = {pins!r}\n{USES[extra]}")
    told = run(bin_folder / "python", "use.py", folder=work)
    shutil.rmtree(place)  # torch alone is 700 MB
    return told.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["base", *USES], help="these environments alone")
    parser.add_argument("--build-only", action="store_true", help="no environments")
    parser.add_argument("--sbom", action="store_true", help="the bill of materials, and no other environments")
    parser.add_argument("--tag", help="the tag that is released: v and the version")
    asked = parser.parse_args()
    chosen = [] if asked.build_only or asked.sbom else asked.only or ["base", *USES]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="labeldp-dist-") as name:
        folder = Path(name)
        steps = {"build and twine": lambda: build(folder), "contents": lambda: check_contents(asked.tag)}
        steps |= {"base": lambda: try_base(folder)} if "base" in chosen else {}
        steps |= {extra: (lambda extra=extra: try_extra(folder, extra)) for extra in USES if extra in chosen}
        steps |= {"sbom": lambda: write_bill(folder)} if asked.sbom or "base" in chosen else {}
        for what, step in steps.items():
            start = time.monotonic()
            try:
                words, good = step(), True
            except (AssertionError, RuntimeError, ValueError, OSError) as error:  # the next one is tried all the same
                words, good = f"{type(error).__name__}: {error}", False
                print(words, flush=True)
            rows.append(Row(what, good, time.monotonic() - start, words))
            if what == "build and twine" and not good:
                break
    print("\n| step | result | seconds | |\n|---|---|---|---|")
    for row in rows:
        words = " ".join(row.words.split())[:100]
        print(f"| {row.what} | {'good' if row.good else 'FAILED'} | {row.seconds:.0f} | {words} |")
    sys.exit(0 if all(row.good for row in rows) else 1)


if __name__ == "__main__":
    main()
