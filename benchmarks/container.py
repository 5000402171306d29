"""The commands as a container runs them: python benchmarks/container.py [--source SRC] [--json FILE] (as root, Linux).

A container often has a read-only tree, a user id that no password file knows, no HOME, and one mounted folder to write to.
Here the same is made of the machine at hand. The package is copied to a tree that belongs to root and that nobody may
write. Then, in a mount namespace of its own, everything is mounted read-only but one output folder, the process gives up
root for a random user id, and the environment holds PATH, PYTHONPATH, LANG and TMPDIR (the output folder), nothing else.
The main commands run one after the other. A second round has `NUMBA_CACHE_DIR` in the output folder, twice: the first call
fills the cache, the second uses it, which shows what a missing cache costs. Where the machine does not allow mount
namespaces, ordinary rights hold the process back, and the script says so. Seconds are of the processor, imports included, so
that a busy machine changes them little.

Every command must end with code 0, and print no traceback. `--source` takes the package from another clone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600  # seconds for one command: compiling everything on a busy core
#: In a namespace of its own: the output folder stays writable, all the rest that can be made read-only is.
READ_ONLY = (
    'mount --bind "$0" "$0" && mount -o remount,ro,bind / && (mount -o remount,ro,bind /dev/shm || true) && exec "$@"'
)


def find_python(uid: int) -> tuple[str, str]:
    """Return an interpreter that this user may run, of our version, and the folder of our packages.

    That of an environment may lie in root's home. Then the system's own takes its place, if it has the same version.
    """
    packages = sysconfig.get_path("purelib")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for place in (getattr(sys, "_base_executable", sys.executable), f"/usr/bin/python{version}"):
        try:
            subprocess.run(
                [place, "-c", "import os"], user=uid, group=uid, extra_groups=[], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return place, packages
    sys.exit(f"No Python {version} that every user may run: {sys.executable} is closed to others.")


def build_tree(folder: Path, source: Path) -> None:
    """Copy the package, and write a table to work on; all of it is root's, and read-only."""
    shutil.copytree(source / "labeldp", folder / "labeldp", ignore=shutil.ignore_patterns("__pycache__"))
    rng = random.Random(0)
    rows = ["age,hours,town,income"]
    for _ in range(2_000):
        age, hours = rng.randrange(18, 80), rng.randrange(1, 60)
        rich = "high" if age + hours + rng.gauss(0, 15) > 85 else "low"
        rows.append(f"{age},{hours},{rng.choice('abc')},{rich}")
    (folder / "people.csv").write_text("\n".join(rows) + "\n")
    for place in [folder, *folder.rglob("*")]:
        os.chown(place, 0, 0)
        place.chmod(0o555 if place.is_dir() else 0o444)


def can_unshare(out: Path) -> bool:
    """Whether this machine lets root mount in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", READ_ONLY, out, "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


def run(arguments, *, tree: Path, out: Path, uid: int, closed: bool, cache: Path | None = None):
    """Run one command as that user; return its code, its seconds of the processor and all that it said as errors."""
    python, packages = find_python(uid)
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": f"{tree}:{packages}", "TMPDIR": str(out)}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = str(cache)
    command = [python, "-m", "labeldp", *arguments]
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "--"]
    command = [*(["unshare", "--mount", "sh", "-c", READ_ONLY, out] if closed else []), *drop, *command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=LIMIT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stderr


def commands(tree: Path, out: Path) -> dict[str, list[str]]:
    """The main commands, each with files of its own."""
    table, release = str(tree / "people.csv"), str(out / "release")
    private = ["--label", "income", "--epsilon", "1", "--classes", "low,high"]
    return {
        "demo": ["demo", "--out-dir", str(out)],
        "privatize": ["privatize", table, *private, "--to", release, "--ledger", str(out / "spent.sqlite")],
        "inspect": ["inspect", release],
        "train from a release": ["train", release, "--to", str(out / "public.skops")],
        "train from a table": ["train", table, *private, "--to", str(out / "model.skops")],
        "report": ["report", release, "--to", str(out / "report.html"), "--ledger", str(out / "spent.sqlite")],
        "audit": ["audit", release],
    }


def strangers(uid: int, out: Path) -> list[str]:
    """Files of that user outside the output folder, in the places where anybody may write."""
    places = [place for place in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock") if Path(place).is_dir()]
    found = subprocess.run(["find", *places, "-uid", str(uid)], capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if not line.startswith(str(out))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds the package")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        sys.exit("This needs root, to become another user, and setpriv of util-linux.")
    uid = random.SystemRandom().randrange(100_000, 2_000_000_000)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        home.chmod(0o755)
        tree, out = home / "tree", home / "out"
        tree.mkdir()
        out.mkdir()
        build_tree(tree, chosen.source)
        os.chown(out, uid, uid)
        out.chmod(0o700)
        closed = can_unshare(out)
        options = {"tree": tree, "out": out, "uid": uid, "closed": closed}
        print(
            f"user {uid}; " + ("all mounts read-only but one folder" if closed else "no mount namespace: rights only")
        )
        results, traces = {}, 0
        demo = commands(tree, out)["demo"]
        rounds = [(what, words, None) for what, words in commands(tree, out).items()]
        rounds += [(f"demo, cache {how}", demo, out / "numba") for how in ("filled", "used")]
        for what, words, cache in rounds:
            code, seconds, stderr = run(words, **options, cache=cache)
            traces += "Traceback" in stderr
            said = (stderr.strip().splitlines() or [""])[-1][:110] if code else ""
            told = "NUMBA_CACHE_DIR" in stderr  # the line that says how to name a place for compiled code
            results[what] = {"code": code, "seconds": round(seconds, 1), "told of the cache": told, "said": said}
            print(
                f"  {what:24} code {code}  {seconds:6.1f} s  {'no cache: told' if told else '':14}  {said}", flush=True
            )
        left = strangers(uid, out)
        print(f"tracebacks: {traces}; files outside the output folder: {len(left)} {left[:3]}")
    if chosen.json:
        summary = {"namespace": closed, "results": results, "tracebacks": traces, "outside": len(left)}
        chosen.json.write_text(json.dumps(summary, indent=1) + "\n")
    if traces or left or any(result["code"] for result in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
