"""`observed_audit`: a lower bound on epsilon from one release and the raw labels behind it, for its owner.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> labels = np.arange(40_000) % 2
>>> release = privatize(labels, RandomizedResponse(1.0, n_classes=2), rng=0)
>>> found = observed_audit(release, labels, seed=0)
>>> 0.85 < found.lower_bound <= 1.0, found.rejected
(True, False)

Design notes. Only examples with the same channel row are compared: over different rows two labels' outputs may differ
because the examples do. The row is part of the event, chosen on one half of the examples and judged on the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.audit._channel import ChannelAudit, counted
from labeldp.audit._events import best_event
from labeldp.audit._values import check_confidence, claimed_epsilon
from labeldp.errors import Described, invalid
from labeldp.release import Release

#: The commonest channel rows that are looked at; rare ones have too few examples to tell anything.
MOST_CONTEXTS = 64


def observed_audit(
    release: Release, labels: Any, *, delta: float = 0.0, confidence: float = 0.95, seed: int | None = None
) -> ChannelAudit:
    """Compare the released labels with the raw ones (codes), and bound epsilon from below as `channel_audit` does.

    Valid where each example was randomized by itself given its channel row, as every per-example mechanism does; it sees
    the response alone, not a histogram that was paid for beside it.
    """
    truth = np.asarray(labels)
    if truth.shape != (len(release),) or truth.dtype.kind not in "iu":
        got = Described(f"an array of shape {truth.shape} and dtype {truth.dtype}")
        raise invalid("observed_audit", "labels", f"be {len(release)} integer codes", got=got)
    sure = check_confidence("observed_audit", confidence)
    context = _contexts(release)
    rows = np.flatnonzero(context >= 0)
    half = np.random.default_rng(seed).permutation(rows)
    shape = (int(context.max()) + 1, release.n_classes, release.channel.n_outputs)
    parts = [_counts(context, truth, release.codes, part, shape) for part in np.array_split(half, 2)]
    picked = best_event(parts[0], delta=delta, level=1.0 - sure)
    event = picked.judged(parts[1], delta=delta, level=1.0 - sure)
    one, other = release.classes[event.one], release.classes[event.other]
    return ChannelAudit(
        lower_bound=event.bound,
        confidence=sure,
        delta=delta,
        claimed=claimed_epsilon("observed_audit", release.guarantee, delta),
        event=f"released labels, {one!r} against {other!r}",
        n_draws=len(rows),
    )


def _counts(context: Any, truth: Any, codes: Any, rows: Any, shape: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    where, label, output = (np.asarray(part)[rows].astype(np.int64) for part in (context, truth, codes))
    return counted(where, label, output, shape=shape)


def _contexts(release: Release) -> npt.NDArray[np.int64]:
    """Return the number of each example's channel row among the commonest ones, -1 for the rest."""
    arrays = release.channel.example_arrays()
    if not arrays:
        return np.zeros(len(release), np.int64)
    stored = np.ascontiguousarray(next(iter(arrays.values())))
    flat = stored.view(np.dtype((np.void, stored.shape[1] * stored.itemsize))).ravel() if stored.ndim == 2 else stored
    _, inverse, count = np.unique(flat, return_inverse=True, return_counts=True)
    rank = np.full(len(count), -1, np.int64)
    common = np.argsort(-count, kind="stable")[:MOST_CONTEXTS]
    rank[common] = np.arange(len(common))
    return rank[inverse.reshape(-1)]
