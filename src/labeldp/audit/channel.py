"""Audits of a mechanism that is seen only as a callable, or only by one of its releases: events that tell labels apart.

>>> import labeldp
>>> def run(labels):
...     return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2)).codes
>>> found = channel_audit(run, n_classes=2, n_draws=40_000, claimed=0.5, confidence=0.999, seed=0)
>>> found.rejected, 0.8 < found.lower_bound <= 1.0
(True, True)

`observed_audit` does the same for one release, with the raw labels that its owner has:

>>> import numpy as np
>>> labels = np.arange(40_000) % 2
>>> release = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2), rng=0)
>>> found = observed_audit(release, labels, seed=0)
>>> 0.85 < found.lower_bound <= 1.0, found.rejected
(True, False)

The mathematics. A table of counts has the shape (contexts, labels, cells): in each context (a channel row, the label of
a companion) and for each label, how often the output fell into each cell. An event is a context, two labels a and b and a
set A of cells. With p = Pr[A | a] and q = Pr[A | b], (epsilon, delta)-privacy says p <= e^epsilon q + delta, so

    epsilon >= log((p - delta) / q) >= log((lower limit of p - delta) / upper limit of q),

the last with probability 1 - level when each limit spends half of it. The event is chosen on draws that are not used
for this: given the choice, the counts on the other half are binomial as if the event had been named beforehand. That is
simultaneous over all events without dividing the level among them.

>>> chosen = best_event(np.array([[[900, 100], [100, 900]]]), delta=0.0, level=0.05)
>>> (chosen.one, chosen.other, chosen.cells), round(chosen.bound, 2)
((0, 1, (0,)), 1.99)

References: Clopper & Pearson 1934; Ding et al. 2018 (events chosen on one half of the draws, tested on the other).

Design notes. `channel_audit` looks at three families of events. *Law*: which output comes out. *Lag*: whether an output
agrees with that of the example a fixed distance away. *Call*: whether it agrees with that of the example at the same
place in another call. The last two see noise that is used twice: the companion then gives the noise away, and with it
the label. Labels are drawn by the auditor, anew for each call, so one call serves every family: uniformly where events
are chosen, and from the labels of the chosen events where those are judged. Each family chooses its event and tests it at
its own part of the level: noise that is used once per call makes the law look odd in a way that does not come back, and
must not hide the agreement that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Int64s
from labeldp.audit.results import (
    Check,
    Progress,
    bound_check,
    check_confidence,
    claimed_epsilon,
    lower_limit,
    upper_limit,
)
from labeldp.errors import Described, invalid
from labeldp.release import Release
from labeldp.validate import check_delta, check_integer

Run = Callable[[Int64s], Any]

#: Calls of `run`: half to choose the event on, half to judge it, in pairs for the family `call`. Several, since noise that
#: is drawn once for a whole call must show in both halves; few, since distances longer than half a call are not seen.
CALLS = 16
#: Distances at which noise might repeat: every small one, and the powers of two that batches and buffers have.
LAGS = (*range(1, 65), *(1 << power for power in range(7, 17)))
#: How the level is divided: most of it where a wrong epsilon shows; noise that is used twice shows at any level.
PARTS = {"law": 0.9, "call": 0.05, "lag": 0.05}
#: Fewer draws than this for each label and call tell nothing.
LEAST_DRAWS = 10
#: The commonest channel rows that are looked at; rare ones have too few examples to tell anything.
MOST_CONTEXTS = 64
#: Pairs of labels (in some context) whose unions of cells are tried; more would cost time and rarely find a better event.
MOST_PAIRS = 32


class Family(NamedTuple):
    """Counts of shape (contexts, labels, cells), and a name for each run of contexts; all runs are equally long."""

    names: tuple[str, ...]
    counts: Int64s

    def name(self, context: int) -> str:
        """Return what is counted in a context."""
        return self.names[context * len(self.names) // len(self.counts)]


@dataclass(frozen=True, kw_only=True)
class ChannelAudit:
    """A lower bound on epsilon at `delta`, and the event that gave it.

    With probability `confidence` at least, the mechanism's epsilon is `lower_bound` or more, or its examples are not
    randomized independently of each other, which breaks the claim too. `rejected`: the bound exceeds the claim.
    """

    lower_bound: float
    confidence: float
    delta: float
    claimed: float | None
    event: str
    n_draws: int

    @property
    def rejected(self) -> bool:
        """Whether the claim is refuted, at this confidence."""
        return self.claimed is not None and self.lower_bound > self.claimed

    def check(self) -> Check:
        """Return the audit as one check."""
        detail = f"at confidence {self.confidence:g}, delta {self.delta:g}, {self.n_draws:,} draws: {self.event}"
        return bound_check("channel", self.lower_bound, self.claimed, detail=detail)


def channel_audit(
    run: Run,
    *,
    n_classes: int,
    n_draws: int = 1_000_000,
    confidence: float = 0.95,
    delta: float = 0.0,
    claimed: Any = None,
    seed: int | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> ChannelAudit:
    """Feed random labels through `run` and return a lower confidence bound on its epsilon.

    Parameters
    ----------
    run : callable
        Takes integer labels 0 .. n_classes - 1 and returns one output for each; called 16 times, with fresh noise.
    n_classes : int
        K.
    n_draws : int
        Labels in all; half of them choose the event, the other half judge it.
    confidence, delta
        The bound holds with this probability at least, for epsilon at this delta.
    claimed : float or Guarantee, optional
        What is to be refuted.
    seed : int, optional
        Of the auditor's labels alone. The noise of `run` is its own affair.
    n_jobs : int
        Calls that run at once, through joblib.
    progress : callable, optional
        Told (done, total).

    Guarantee
    ---------
    Let `run` randomize each example by itself, from its own label and fresh noise, with (epsilon, delta)-privacy. The
    choice depends on the first half of the calls only. Given it, and given the labels, the number of outputs (or of disjoint
    pairs) in an event is binomial for either label, and the limits fail with probability 1 - confidence together.
    So Pr[lower_bound > epsilon] <= 1 - confidence. A mechanism that ignores labels has epsilon = 0 and gets 0 that often.

    Assumes
    -------
    A mechanism whose examples depend on each other by design (a histogram of the cluster) is for `canary_audit`, which
    assumes no independence.
    """
    k = check_integer("channel_audit", "n_classes", n_classes, least=2)
    size = check_integer("channel_audit", "n_draws", n_draws, least=CALLS * k * LEAST_DRAWS) // CALLS
    sure = check_confidence("channel_audit", confidence)
    share = check_delta("channel_audit", delta)
    epsilon = claimed_epsilon("channel_audit", claimed, share)
    rng = np.random.default_rng(seed)
    labels = _draw_labels(rng, set(), (CALLS // 2, size), k)
    values, outputs = _number_outputs(_call(run, labels, done=0, n_jobs=n_jobs, progress=progress))
    shape = (1, k, len(values) + 1)  # a cell for outputs that the first half of the calls did not show
    families = _count_families(labels, outputs, shape=shape)
    chosen = {
        name: best_event(family.counts, delta=share, level=PARTS[name] * (1.0 - sure))
        for name, family in families.items()
    }
    labels = _draw_telling_labels(rng, chosen, (CALLS // 2, size), k)
    outputs = _number_known(values, _call(run, labels, done=CALLS // 2, n_jobs=n_jobs, progress=progress))
    judged_on = _count_families(labels, outputs, shape=shape)
    bound, event = max(
        _judge(chosen[name], judged_on[name], delta=share, level=PARTS[name] * (1.0 - sure)) for name in PARTS
    )
    return ChannelAudit(
        lower_bound=bound, confidence=sure, delta=share, claimed=epsilon, event=event, n_draws=CALLS * size
    )


def observed_audit(
    release: Release, labels: Any, *, delta: float = 0.0, confidence: float = 0.95, seed: int | None = None
) -> ChannelAudit:
    """Compare the released labels with the raw ones, and bound epsilon from below as `channel_audit` does.

    Parameters
    ----------
    release : Release
        What was released; its guarantee is the claim.
    labels : integer array of shape (n,)
        The raw labels as codes, which its owner has. The answer depends on them without noise: it is for the owner.
    delta, confidence
        The bound holds with this probability at least, for epsilon at this delta.
    seed : int, optional
        Of the split into two halves.

    Only examples with the same channel row are compared: over different rows two labels' outputs may differ because the
    examples do. The row is part of the event, chosen on one half of the examples and judged on the other. Valid where
    each example was randomized by itself given its channel row, as every per-example mechanism does; it sees the
    response alone, not a histogram that was paid for beside it.
    """
    truth = np.asarray(labels)
    if truth.shape != (len(release),) or truth.dtype.kind not in "iu":
        got = Described(f"an array of shape {truth.shape} and dtype {truth.dtype}")
        raise invalid("observed_audit", "labels", f"be {len(release)} integer codes", got=got)
    sure = check_confidence("observed_audit", confidence)
    context = _number_contexts(release)
    rows = np.flatnonzero(context >= 0)
    half = np.random.default_rng(seed).permutation(rows)
    shape = (int(context.max()) + 1, release.n_classes, release.channel.n_outputs)
    columns = [np.asarray(part).astype(np.int64) for part in (context, truth, release.codes)]
    parts = [count_cells(*(column[part] for column in columns), shape=shape) for part in np.array_split(half, 2)]
    picked = best_event(parts[0], delta=delta, level=1.0 - sure)
    event = picked.judge(parts[1], delta=delta, level=1.0 - sure)
    one, other = release.classes[event.one], release.classes[event.other]
    return ChannelAudit(
        lower_bound=event.bound,
        confidence=sure,
        delta=delta,
        claimed=claimed_epsilon("observed_audit", release.guarantee, delta),
        event=f"released labels, {one!r} against {other!r}",
        n_draws=len(rows),
    )


def _call(run: Run, labels: Int64s, *, done: int, n_jobs: int, progress: Progress | None) -> npt.NDArray[Any]:
    """Call `run` with each row of labels and return the outputs, a row for each call; `done` calls went before."""
    from joblib import Parallel, delayed

    calls = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(delayed(run)(row) for row in labels)
    found = []
    for outputs in calls:
        found.append(_check_outputs(outputs, labels.shape[1]))
        if progress is not None:
            progress(done + len(found), CALLS)
    return np.array(found)


def _number_outputs(outputs: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the different outputs, sorted, and the number of each."""
    values, numbers = np.unique(outputs, return_inverse=True)
    return values, numbers.reshape(outputs.shape)


def _number_known(values: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> Int64s:
    """Return the number of each output among known ones; a new one gets the number after the last."""
    place = np.minimum(np.searchsorted(values, outputs), len(values) - 1)
    return np.where(values[place] == outputs, place, len(values))


def _draw_telling_labels(rng: np.random.Generator, chosen: dict[str, Event], shape: tuple[int, int], k: int) -> Int64s:
    """Return labels for the second half of the calls: half of these for the event of the law, half for the other two.

    Only labels of a chosen event, and of its companions (the context), tell anything about it. The choice looked at
    earlier calls alone.
    """
    law = {chosen["law"].one, chosen["law"].other}
    rest = {label for name in ("call", "lag") for label in _event_labels(chosen[name], k)}
    half = (shape[0] // 2, shape[1])
    return np.concatenate([_draw_labels(rng, labels, half, k) for labels in (law, rest)])


def _event_labels(event: Event, k: int) -> tuple[int, int, int]:
    """Return the labels in an event of agreement; contexts are the companion's labels, once for each distance."""
    return event.context % k, event.one, event.other


def _draw_labels(rng: np.random.Generator, labels: set[int], shape: tuple[int, int], k: int) -> Int64s:
    """Return labels drawn uniformly from a set; from all where it holds fewer than two.

    Each call begins with every label once: a mechanism that reads its classes off the labels finds them all.
    """
    drawn = rng.choice(np.array(sorted(labels) if len(labels) > 1 else range(k)), shape)
    drawn[:, :k] = np.arange(k)
    return drawn


def _check_outputs(outputs: Any, n: int) -> npt.NDArray[Any]:
    """Return the outputs of one call as an array, one for each label that went in."""
    array = np.asarray(outputs)
    if array.shape != (n,):
        got = Described(f"an array of shape {array.shape}")
        raise invalid("channel_audit", "run", f"return {n} outputs for {n} labels", got=got)
    return array


def _judge(chosen: Event, judged_on: Family, *, delta: float, level: float) -> tuple[float, str]:
    """Return the bound that other draws give a chosen event, and the event in words."""
    if chosen.one == chosen.other:
        return 0.0, "no event told labels apart"
    event = chosen.judge(judged_on.counts, delta=delta, level=level)
    return event.bound, f"{judged_on.name(event.context)}, label {event.one} against {event.other}"


def _count_families(labels: Int64s, outputs: Int64s, *, shape: tuple[int, int, int]) -> dict[str, Family]:
    """Return the counts of the three families, from some calls."""
    law = count_cells(None, labels.ravel(), outputs.ravel(), shape=shape)
    call = _count_agreement(tuple(part[half::2].ravel() for part in (labels, outputs) for half in (0, 1)), shape[1])
    lags = {
        f"agreement at distance {lag}": _count_agreement(rows, shape[1]) for lag, rows in _pair_at_lags(labels, outputs)
    }
    return {
        "law": Family(names=("which output comes out",), counts=law),
        "call": Family(names=("agreement with the same place in another call",), counts=call),
        "lag": Family(names=tuple(lags), counts=np.concatenate([*lags.values()])),
    }


def _pair_at_lags(labels: Int64s, outputs: Int64s) -> Iterator[tuple[int, Sequence[Int64s]]]:
    """Yield (lag, (target labels, companion labels, target outputs, companion outputs)).

    For lag L each call is cut into blocks of 2 L, and example i of a first half is paired with i + L: disjoint pairs.
    """
    for lag in LAGS:
        whole = labels.shape[1] // (2 * lag) * 2 * lag
        if whole:
            y, o = (part[:, :whole].reshape(-1, 2, lag) for part in (labels, outputs))
            yield lag, tuple(part[:, half].ravel() for part in (y, o) for half in (0, 1))


def _count_agreement(rows: Sequence[Int64s], k: int) -> Int64s:
    """Return counts (companion's label, target's label, differs or agrees)."""
    target, companion, output, other = rows
    return count_cells(companion, target, (output == other).astype(np.int64), shape=(k, k, 2))


def count_cells(context: Int64s | None, labels: Int64s, cells: Int64s, *, shape: tuple[int, int, int]) -> Int64s:
    """Return a table of this shape: how often each cell came out, in each context, for each label (None: one context)."""
    flat = labels * shape[2] + cells
    if context is not None:
        flat = flat + context * (shape[1] * shape[2])
    return np.bincount(flat, minlength=shape[0] * shape[1] * shape[2]).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Label `one` gives an output in `cells` more often than label `other` does, in one context."""

    context: int
    one: int
    other: int
    cells: tuple[int, ...]
    bound: float

    def judge(self, counts: Int64s, *, delta: float, level: float) -> Event:
        """Return the event with the bound that other draws give it."""
        rows = counts[self.context]
        inside = rows[:, list(self.cells)].sum(axis=1)
        total = rows.sum(axis=1)
        bound = log_ratio(
            inside[self.one], total[self.one], inside[self.other], total[self.other], delta=delta, level=level
        )
        return replace(self, bound=float(bound))


def log_ratio(
    one_inside: Any, one_total: Any, other_inside: Any, other_total: Any, *, delta: float, level: float
) -> Any:
    """Return log((lower limit of p - delta) / upper limit of q), at least 0."""
    low = lower_limit(one_inside, one_total, level=level / 2) - delta
    high = upper_limit(other_inside, other_total, level=level / 2)
    return np.log(np.maximum(low, high) / high)


def best_event(counts: Int64s, *, delta: float, level: float) -> Event:
    """Return the event with the largest bound over contexts, pairs of labels and unions of cells.

    By Neyman and Pearson the best set for a pair holds the cells with the largest ratios, so it is one of the prefixes
    when cells are sorted by their (slightly smoothed) ratio; few draws may make a single cell better. Pairs are tried
    where a single cell tells most. If nothing tells labels apart, the event compares label 0 with itself.
    """
    best = Event(context=0, one=0, other=0, cells=(0,), bound=0.0)
    for context, one, other in _rank_pairs(counts, level=level):
        rows = counts[context]
        order = np.argsort(-(rows[one] + 0.5) / (rows[other] + 0.5), kind="stable")
        sorted_rows = (rows[one][order], rows[other][order])
        first, second = (np.concatenate([np.cumsum(row), row]) for row in sorted_rows)  # prefixes, then single cells
        bounds = log_ratio(first, rows[one].sum(), second, rows[other].sum(), delta=delta, level=level)
        most = int(np.argmax(bounds))
        if bounds[most] > best.bound:
            size = len(order)
            chosen = order[: most + 1] if most < size else order[most - size : most - size + 1]
            cells = tuple(int(cell) for cell in chosen)
            best = Event(context=context, one=one, other=other, cells=cells, bound=float(bounds[most]))
    return best


def _rank_pairs(counts: Int64s, *, level: float) -> list[tuple[int, int, int]]:
    """Return the (context, one label, other label) that some single cell tells apart best."""
    total = counts.sum(axis=2, keepdims=True)
    low = lower_limit(counts, total, level=level / 2)
    high = np.where(total > 0, upper_limit(counts, total, level=level / 2), 1.0)
    one, other = low.argmax(axis=1), high.argmin(axis=1)
    ratio = low.max(axis=1) / high.min(axis=1)
    ranked = np.argsort(-ratio, axis=None, kind="stable")
    found: dict[tuple[int, int, int], None] = {}
    for context, cell in zip(*np.unravel_index(ranked, ratio.shape), strict=True):
        pair = (int(context), int(one[context, cell]), int(other[context, cell]))
        if pair[1] != pair[2]:
            found[pair] = None
        if len(found) == MOST_PAIRS:
            break
    return list(found)


def _number_contexts(release: Release) -> npt.NDArray[np.int64]:
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
