"""No array of n x K x K, and no temporary that grows with n: the peak beyond inputs and outputs stays small.

NumPy reports its allocations to tracemalloc, and the formulas are NumPy, so the traced peak is the whole peak. A dense
channel of this size would take n K K 8 bytes = 6.4 GB; the answers themselves are n K 8 bytes = 32 MB.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from labeldp.channel import CandidateChannel, Channel, FiniteChannel

N, K = 20_000, 200
ALLOWED = 64 << 20


def make(kind: str) -> FiniteChannel:
    generator = np.random.default_rng(1)
    if kind == "candidates":
        members = generator.integers(1, 256, (N, K // 8), dtype=np.uint8)
        return CandidateChannel(odds=1.0, members=members, n_classes=K)
    base = generator.dirichlet(np.ones(K), 50)
    return Channel(keep=np.full(50, 0.5), base=base, index=generator.integers(0, 50, N))


@pytest.mark.parametrize("question", ["forward", "posterior", "unbiased", "likelihood", "unbiased_targets", "accuracy"])
@pytest.mark.parametrize("kind", ["candidates", "rows"])
def test_extra_memory_does_not_grow_with_the_examples(kind: str, question: str) -> None:
    channel = make(kind)
    p = np.full((N, K), 1.0 / K)
    observed = np.argmax(np.asarray(channel.take(slice(0, 1)).forward(p[:1]))) + np.zeros(N, int)
    if isinstance(channel, CandidateChannel):
        observed = np.argmax(np.unpackbits(channel.members, axis=1, bitorder="little"), axis=1)
    asks: dict[str, Callable[[], object]] = {
        "forward": lambda: channel.forward(p),
        "posterior": lambda: channel.posterior(p, observed),
        "unbiased": lambda: channel.unbiased(p, observed),
        "likelihood": lambda: channel.likelihood(observed),
        "unbiased_targets": lambda: channel.unbiased_targets(observed),
        "accuracy": lambda: channel.expected_accuracy(p),
    }
    tracemalloc.start()
    try:
        answer = asks[question]()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    extra = peak - np.asarray(answer).nbytes
    assert 0 < extra < ALLOWED  # above zero: the tracer did see NumPy
