"""What a process costs that can keep no compiled code: a read-only install, or a container whose user has no home.

    python benchmarks/no_cache.py [--repeats 3] [--write]

`labeldp privatize` on a small table, by randomized response and with a prior in columns, from a copy of the package: first
with NUMBA_CACHE_DIR, filled by a run that is not counted, and then where no folder can be written. Seconds are of the
processor, imports included, so that a busy machine changes them little; medians of the repeats. `--write` puts the lines into
docs/scale.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, BEGIN, END = ROOT / "docs" / "scale.md", "<!-- no_cache -->", "<!-- end no_cache -->"
CASES = {"randomized response": [], "RRWithPrior on columns": ["--prior-columns", "p_no,p_yes"]}


def copy_package(folder: Path) -> None:
    """Copy the package, with a file in the place of each folder that numba would write to: not even root gets past it."""
    shutil.copytree(ROOT / "src" / "labeldp", folder / "labeldp", ignore=shutil.ignore_patterns("__pycache__"))
    for kernels in (folder / "labeldp").rglob("kernels.py"):
        (kernels.parent / "__pycache__").touch()


def seconds(folder: Path, number: int, options: list[str], cache: Path | None) -> float:
    """Run the command; return the seconds of the processor that it took."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment |= {"PYTHONPATH": str(folder), "HOME": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    words = ["privatize", "table.csv", "--label", "ill", "--epsilon", "1", "--to", f"out{number}", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "labeldp", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ("NUMBA_CACHE_DIR" in done.stderr) == (cache is None), done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    lines = [
        f"`python benchmarks/no_cache.py --repeats {chosen.repeats}`, {machine}; seconds of the processor, imports included:",
        "",
    ]
    lines += ["| `labeldp privatize` by | with a cache | without | more |", "|---|---|---|---|"]
    number = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_package(folder)
        (folder / "table.csv").write_text("p_no,p_yes,ill\n" + "0.5,0.5,yes\n0.9,0.1,no\n" * 50)
        for case, words in CASES.items():
            found: dict[bool, list[float]] = {True: [], False: []}
            seconds(folder, number := number + 1, words, folder / "cache")
            for _ in range(chosen.repeats):
                for kept in (True, False):
                    found[kept].append(seconds(folder, number := number + 1, words, folder / "cache" if kept else None))
            warm, cold = statistics.median(found[True]), statistics.median(found[False])
            lines.append(f"| {case} | {warm:.1f} | {cold:.1f} | {cold - warm:.1f} |")
    text = "\n".join(lines)
    print(text)
    if chosen.write:
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
