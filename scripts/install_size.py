"""What the base install weighs, by package: python scripts/install_size.py [--site FOLDER] [--constraint FILE].

Without `--site` a fresh environment is made in a temporary folder and `pip install .` is run there, so it needs a
package index. Sizes are those of the files that each package's record names, compiled Python included, in MB of 10^6
bytes. CONTRIBUTING.md, "Dependencies", cites what this prints.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"pip", "setuptools", "wheel"}  # of the environment, not of labeldp


def plain(name: str) -> str:
    """Return a package's name in the one spelling that can be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(folder: Path, constraint: Path | None) -> Path:
    """Install labeldp without extras in a new environment, and return its folder of packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pinned = [] if constraint is None else ["--constraint", str(constraint)]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned, str(ROOT)], check=True)
    return next((folder / "lib").glob("python3.*")) / "site-packages"


def weigh(package: Distribution) -> int:
    """Return the bytes of a package's files that are there."""
    places = {Path(str(package.locate_file(name))) for name in package.files or ()}
    return sum(place.stat().st_size for place in places if place.is_file())


def needed_by(packages: dict[str, Distribution], name: str) -> list[str]:
    """Return who asks for a package outside any extra."""
    asks = []
    for other, package in packages.items():
        lines = [line for line in package.requires or () if "extra ==" not in line]
        if name in {plain(re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0]) for line in lines}:
            asks.append(other)
    return sorted(asks)


def report(site: Path) -> None:
    """Print the table."""
    packages = {plain(found.metadata["Name"]): found for found in distributions(path=[str(site)])}
    packages = {name: found for name, found in packages.items() if name not in TOOLS}
    sizes = {name: weigh(found) / 1e6 for name, found in packages.items()}
    print(
        f"{sum(sizes.values()):.0f} MB in {len(sizes)} packages, Python {sys.version_info[0]}.{sys.version_info[1]}\n"
    )
    print("| package | version | MB | asked for by |\n|---|---|---|---|")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"| {name} | {packages[name].version} | {size:.1f} | {', '.join(needed_by(packages, name)) or '-'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, help="measure this folder of packages instead")
    parser.add_argument("--constraint", type=Path, help="a file of versions for pip, such as constraints.txt")
    chosen = parser.parse_args()
    if chosen.site is not None:
        report(chosen.site)
        return
    with tempfile.TemporaryDirectory() as name:
        report(install(Path(name) / "base", chosen.constraint))


if __name__ == "__main__":
    main()
