"""Two users on one machine: python benchmarks/two_users.py [--source SRC] [--json FILE] (as root, Linux).

User A (uid 12001, umask 022, a home folder that everybody may read) releases labels with a ledger and a sealed key, fits with
a checkpoint, and runs a job on a local Dask cluster; the first two are killed halfway, so that their leftovers can be looked at
too. All the while user B (uid 12002) tries to open every file of A's in A's home, /tmp, /var/tmp and
/dev/shm, to find A's passphrase on any command line or in any environment, and to connect to every port that A listens on:
first as a Dask client that asks the cluster to run code, then as a browser.

A finished release, model or report is public: B may read it. Everything else that labeldp wrote is A's alone, and no port
may obey B. Work of A's that did not come as far as it should shows nothing, and counts as a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from container import find_python

ROOT = Path(__file__).resolve().parent.parent
A, B = 12001, 12002
SECRET = "open sesame 12001"
#: Finished and public, or A's own business: everything else that B can open is a finding.
PUBLIC = re.compile(r"^(release|dask-release|public\.skops|numba|\.cache)(/|$)|^(table|fit)\.(csv|py)$")

FIT = """
import sys, time, numpy as np, labeldp
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 20)); y = (X[:, 0] > 0).astype(int)
print("begun", flush=True)
while True:
    labeldp.LabelPrivateClassifier(epsilon=2.0, stages=3, classes=[0, 1], checkpoint="fit-state").fit(X, y)
"""

#: A cluster as the dask engine opens it, held long enough for B to try every port of it.
CLUSTER = """
import time
from labeldp.engines.engine import open_engine
if __name__ == "__main__":
    with open_engine("dask", workers=1):
        time.sleep(40)
"""

#: What B does until its standard input ends; it prints one JSON object.
SPY = """
import json, os, re, select, socket, sys, time, urllib.request
owner, secret, roots = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]
opened, ports, seen = set(), {}, set()
from distributed import Client  # before it is needed: it takes seconds to load

def look(root):
    for folder, folders, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.stat(path).st_uid == owner:
                    with open(path, "rb") as handle:
                        handle.read(1)
                    opened.add(path)
            except OSError:
                pass

def listening():
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).read().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[7]) == owner:
                yield int(words[1].rsplit(":", 1)[1], 16)

def knock(port):
    answers = []
    try:
        client = Client(f"tcp://127.0.0.1:{port}", timeout=8)
        if client.submit(os.getuid, pure=False).result(timeout=8) == owner:
            answers.append("ran code as A")
        client.close()
    except BaseException:
        pass
    try:
        reply = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=4)
        answers.append(f"HTTP {reply.status}")
    except urllib.error.HTTPError as error:
        answers.append(f"HTTP {error.code}")
    except BaseException:
        pass
    return answers

import urllib.error
while not select.select([sys.stdin], [], [], 0)[0]:
    for root in roots:
        look(root)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                if os.stat(f"/proc/{pid}").st_uid == owner and secret in open(f"/proc/{pid}/{name}", "rb").read():
                    seen.add(name)
            except OSError:
                pass
    for port in listening():
        if port not in ports:
            ports[port] = None
            ports[port] = knock(port)
    time.sleep(0.05)
print(json.dumps({"opened": sorted(opened), "ports": [ports[p] for p in sorted(ports)], "secret": sorted(seen)}))
"""


def as_user(command, uid, home, source, **more):
    """Start a process of that user, with an environment of its own."""
    python, packages = find_python(uid)
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(home), "PYTHONPATH": f"{source}:{packages}"}
    env["NUMBA_CACHE_DIR"] = str(home / "numba")
    return subprocess.Popen(
        [python, *command],
        user=uid,
        group=uid,
        extra_groups=[],
        umask=0o022,
        cwd=home,
        env=env,
        start_new_session=True,
        **more,
    )


def write_table(path: Path, rows: int) -> None:
    """A table of A's, which A has closed to others."""
    rng = random.Random(0)
    lines = [f"{rng.randrange(100)},{rng.choice(('low', 'high'))}" for _ in range(rows)]
    path.write_text("age,income\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    os.chown(path, A, A)


def stop(process, sent=signal.SIGKILL):
    """End a process and its children, which share its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sent)
    process.wait(timeout=60)


def work(home: Path, source: Path, *, quick: bool) -> dict[str, int | str]:
    """Everything that A does, in turn; return how each ended."""
    labeldp = ["-m", "labeldp"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    private = ["--label", "income", "--epsilon", "1", "--classes", "low,high"]
    ended: dict[str, int | str] = {}

    def finish(name, *arguments):
        ended[name] = as_user([*labeldp, *arguments], A, home, source, **quiet).wait(timeout=300)

    ledger = ["--ledger", "spent.sqlite"]
    finish("privatize", "privatize", "table.csv", *private, "--to", "release", *ledger)
    halfway = ["privatize", "table.csv", *private, "--to", "killed", *ledger, "--passphrase-file", "passphrase"]
    process = as_user([*labeldp, *halfway], A, home, source, **quiet)
    limit = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < limit and not any(home.glob(".killed.*/*/*")):
        time.sleep(0.002)
    stop(process)
    ended["privatize, killed"] = "leftover" if any(home.glob(".killed.*")) else "no leftover"
    process = as_user(["fit.py"], A, home, source, **quiet)
    while process.poll() is None and time.monotonic() < limit + 120 and not any(home.glob("fit-state/*")):
        time.sleep(0.01)
    time.sleep(0.5)
    stop(process)
    ended["fit, killed"] = "leftover" if any(home.glob("fit-state/*")) else "no leftover"
    if not quick:
        finish("dask", "privatize", "table.csv", *private, "--to", "dask-release", "--engine", "dask", *ledger)
        ended["cluster"] = as_user(["cluster.py"], A, home, source, **quiet).wait(timeout=300)
    return ended


def try_all(source: Path, *, rows: int = 400_000, quick: bool = False):
    """Let A work and B spy, and return what A's work came to and what B found."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        home, other = top / "a", top / "b"
        for place, uid in ((home, A), (other, B)):
            place.mkdir()
            os.chown(place, uid, uid)
        shutil.copytree(source / "labeldp", top / "src" / "labeldp", ignore=shutil.ignore_patterns("__pycache__"))
        write_table(home / "table.csv", rows)
        for file, text in (("fit.py", FIT), ("cluster.py", CLUSTER), ("passphrase", SECRET)):
            (home / file).write_text(text)
            (home / file).chmod(0o600)
            os.chown(home / file, A, A)
        roots = [str(home), "/tmp", "/var/tmp", "/dev/shm"]
        spying = ["-c", SPY, str(A), SECRET, *roots]
        spy = as_user(spying, B, other, top / "src", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            ended = work(home, top / "src", quick=quick)
            said, _ = spy.communicate("\n", timeout=120)
        finally:
            stop(spy)
        found = json.loads(said)
        inside = [path.removeprefix(f"{home}/") for path in found["opened"]]
        # A random part of a name says nothing: one example of each kind is enough.
        kinds = {re.sub(r"[0-9a-f]{8,}", "*", path) for path in inside if not PUBLIC.match(path)}
        return ended, {"opened": sorted(kinds), "ports": found["ports"], "secret": found["secret"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds the package")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("This needs root, to become two other users.")
    ended, found = try_all(chosen.source)
    for what, how in ended.items():
        print(f"A: {what:20} {how}")
    print("B opened:", *(found["opened"] or ["nothing but finished outputs"]), sep="\n  ")
    print("B at A's ports:", *(", ".join(answers or ["refused"]) for answers in found["ports"]), sep="\n  ")
    print("B saw the passphrase in:", ", ".join(found["secret"]) or "nothing")
    if chosen.json:
        chosen.json.write_text(json.dumps({"ended": ended, "found": found}, indent=1) + "\n")
    obeyed = any("ran code as A" in (answers or ()) for answers in found["ports"])
    missed = [how for how in ended.values() if how not in (0, "leftover", "open")]
    sys.exit(1 if missed or found["opened"] or obeyed or found["secret"] else 0)


if __name__ == "__main__":
    main()
