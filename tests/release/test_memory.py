"""Peak memory of `privatize`, beyond its inputs and outputs, stays below 64 MiB however many labels there are.

Compiled kernels allocate outside Python, so the peak is the kernel's own: VmHWM of a fresh process, reset (writing 5 to
/proc/self/clear_refs) after a small release has loaded everything and freed memory has gone back to the system, less
what was resident then. Outputs are subtracted:
the codes, the candidate sets and their sizes, and the boxed codes that the door makes of int64 labels. Where the mark
cannot be reset the traced peak of NumPy's allocations is used: it misses compiled code, which allocates nothing per row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED = 64 << 20

CHILD = """
import contextlib, ctypes, sys, tracemalloc
import numpy as np
import labeldp

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field + ":"))

def release(n):
    if sys.argv[1] != "plain":
        prior = np.random.default_rng(0).random((n, 10))
        prior /= prior.sum(axis=1, keepdims=True)
        return (np.arange(n) % 10, labeldp.RRWithPrior(1.0), prior)
    return (np.arange(n) % 2, labeldp.RandomizedResponse(1.0, n_classes=2), None)

def run(labels, mechanism, prior):
    if sys.argv[1] == "wasteful":
        prior = prior + 0.0
    return labeldp.privatize(labels, mechanism, prior=prior, rng=1)

run(*release(100_000))  # compile or load the kernels, import what is needed
inputs = release(int(sys.argv[2]))
with contextlib.suppress(AttributeError, OSError):  # the C library keeps freed memory for later; glibc can let it go
    ctypes.CDLL(None).malloc_trim(0)
try:
    open("/proc/self/clear_refs", "w").write("5")
    before = resident("VmRSS")
    out = run(*inputs)
    peak = resident("VmHWM") - before
except OSError:
    tracemalloc.start()
    out = run(*inputs)
    peak = tracemalloc.get_traced_memory()[1]
boxed = len(out) * out.codes.itemsize
outputs = out.codes.nbytes + sum(a.nbytes for a in out.channel.example_arrays().values())
outputs += out.channel.sizes.nbytes if hasattr(out.channel, "sizes") else 0
print(peak - outputs - boxed, peak)
"""


def measured(what: str, n: int, repository: Path) -> int:
    """Bytes beyond inputs and outputs, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, what, str(n)],
        env={"PYTHONPATH": str(repository / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    extra, peak = (int(number) for number in done.stdout.split())
    print(f"{what}: {extra / 2**20:.1f} MiB beyond inputs and outputs, peak {peak / 2**20:.1f} MiB")
    return extra


@pytest.mark.parametrize(("what", "n"), [("prior", 1_000_000), ("plain", 5_000_000)])
def test_extra_memory_is_bounded(what: str, n: int, repository: Path) -> None:
    assert measured(what, n, repository) < ALLOWED


def test_a_copy_of_the_prior_would_be_noticed(repository: Path) -> None:
    """The broken twin: one float64 copy of the prior, 76 MiB, is over the line."""
    assert measured("wasteful", 1_000_000, repository) > ALLOWED
