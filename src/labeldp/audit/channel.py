"""Audits of a mechanism that is seen only as a callable, or only by one of its releases: events that tell labels apart.

>>> import labeldp
>>> def run(labels):
...     return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2)).codes
>>> found = channel_audit(run, n_classes=2, n_draws=40_000, claimed=0.5, confidence=0.9999999)
>>> found.rejected, 0.6 < found.lower_bound <= 1.0
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

Design notes. `channel_audit` looks at five families of events. *Law*: which output comes out. *Place*: the same, among the
first or the last rows, in a part of the call, in rows that come back at a period, in a call of few rows, or where the
labels are sorted or take turns. *Lag*: whether an output agrees with that of the example a fixed distance away. *Call*:
whether it agrees with that of the example at the same place in another call. *Pair*: which output comes out, where it is
known what came out for a companion: an example some distance away, its mirror image in the call, or one of another call.
Noise that is used twice, or turned round and used again (u and 1 - u), gives itself away by the companion's answer, and with
it the label. The distances of pairs are found, not listed: the residuals of the first half of the calls (was the
label's commonest output given; which output, less its mean for the label) are correlated with themselves at every distance
by a Fourier transform, and the largest correlations are candidates. Periods are found by folding. Since they are found on
the first half and judged on the second, the search costs no confidence.

Labels are drawn by the auditor, anew for each call, so one call serves every family: uniformly where events are chosen,
and from the labels of the chosen events where those are judged. Each family chooses its event and tests it at its own part
of the level: noise that is used once per call makes the law look odd in a way that does not come back, and must not hide
the agreement that does.

What it cannot see. Noise that repeats after more rows than one call has (`ChannelAudit.rows`, a sixteenth of the draws), or
in another process; companions that lie at no fixed distance; a mechanism that leaks for one input in a million, for a
label pattern or a number of rows that is not tried, at a time, on a machine, or that knows that it is audited: whoever
writes the mechanism can always hide a switch from whoever only calls it. Read the code too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s
from labeldp.audit.results import (
    Check,
    Progress,
    audit_card,
    bound_check,
    check_confidence,
    claimed_epsilon,
    lower_limit,
    say_bound,
    upper_limit,
)
from labeldp.channel import SetAnswers
from labeldp.channel.finite import spans
from labeldp.errors import Described, invalid
from labeldp.release import Release
from labeldp.release.labels import as_plain
from labeldp.validate import check_delta, check_integer

Run = Callable[[Int64s], Any]

#: Calls of `run`: half to choose the event on, half to judge it, in pairs for the family `call`. Several, since noise that
#: is drawn once for a whole call must show in both halves; few, since distances longer than a call are not seen. In each half
#: the labels of one call are sorted, and those of another take turns.
CALLS = 16
SORTED, TURNS = -2, -1
#: Besides, in each half: short calls of this many rows (two for each label, if that is more), every other one sorted.
SHORT_CALLS, SHORT_ROWS = 16, 64
#: Distances at which noise might repeat: every small one, and the powers of two that batches and buffers have.
LAGS = (*range(1, 65), *(1 << power for power in range(7, 17)))
#: How the level is divided: most of it where a wrong epsilon shows; noise that is used twice shows at any level.
PARTS = {"law": 0.8, "place": 0.05, "call": 0.05, "lag": 0.05, "pair": 0.05}
#: Distances of companions that are always tried, and how many more are taken from each kind of residual.
PAIR_LAGS = (1, 2, 3, 4, 8, 16, 32, 64)
FOUND_LAGS, FOUND_SHIFTS, FOUND_PERIODS = 4, 2, 4
#: Ends of a call, in rows, and parts of it, that are looked at by themselves.
ENDS, BLOCKS = (10, 100, 1000), 8
#: Periods at which rows are folded onto each other.
PERIODS = (*range(2, 65), *(1 << power for power in range(7, 15)), 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10000)
#: Companions are told apart by label and output where these are so few; else by whether their output was the usual one.
MOST_COMPANIONS = 36
#: Pairs at a distance that must be there for it to be looked at, in one call.
LEAST_PAIRS = 16
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
    randomized independently of each other, which breaks the claim too. `rejected`: the bound exceeds the claim. `rows` is
    the length of a call: noise that comes back later than that is not seen.
    """

    lower_bound: float
    confidence: float
    delta: float
    claimed: float | None
    event: str
    n_draws: int
    rows: int = 0

    @property
    def rejected(self) -> bool:
        """Whether the claim is refuted, at this confidence."""
        return self.claimed is not None and self.lower_bound > self.claimed

    def check(self) -> Check:
        """Return the audit as one check."""
        detail = f"at confidence {self.confidence:g}, delta {self.delta:g}, {self.n_draws:,} draws: {self.event}"
        if not self.rejected and self.rows:
            detail += (
                f"; not seen: noise that repeats after more than {self.rows:,} rows, a switch on an input not tried"
            )
        return bound_check("channel", self.lower_bound, self.claimed, detail=detail)

    def _repr_html_(self) -> str:
        """Return a card for a notebook."""
        rows = [("lower bound", say_bound(self.lower_bound, self.confidence))]
        return audit_card("Audit of a channel", [self.check()], rows=rows)


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
        Takes integer labels 0 .. n_classes - 1 and returns one output for each; called 16 times, with fresh noise, and 32
        times with few labels.
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
    shapes = (CALLS // 2, size), (SHORT_CALLS, min(size, max(SHORT_ROWS, 2 * k)))
    ask = partial(_call, run, n_jobs=n_jobs, progress=progress)
    labels = _arrange(_draw_labels(rng, set(), shapes[0], k), _draw_labels(rng, set(), shapes[1], k), k)
    long, short = (ask(part, done=done) for part, done in zip(labels, (0, CALLS // 2), strict=True))
    values = np.unique(np.concatenate([long.ravel(), short.ravel()]))
    first = Calls(labels, tuple(_number_known(values, part) for part in (long, short)), n_outputs=len(values) + 1)
    search = _search(first, k)
    families = _count_families(first, search, k)
    chosen = {
        name: best_event(family.counts, delta=share, level=PARTS[name] * (1.0 - sure))
        for name, family in families.items()
    }
    law, rest = _telling_labels(chosen, first, k)
    labels = _arrange(_draw_telling_labels(rng, law, rest, shapes[0], k), _draw_labels(rng, rest, shapes[1], k), k)
    done = CALLS // 2 + SHORT_CALLS
    long, short = (ask(part, done=done + more) for part, more in zip(labels, (0, CALLS // 2), strict=True))
    second = Calls(labels, tuple(_number_known(values, part) for part in (long, short)), n_outputs=len(values) + 1)
    judged_on = _count_families(second, search, k)
    bound, event = max(
        _judge(chosen[name], judged_on[name], delta=share, level=PARTS[name] * (1.0 - sure)) for name in PARTS
    )
    return ChannelAudit(
        lower_bound=bound, confidence=sure, delta=share, claimed=epsilon, event=event, n_draws=CALLS * size, rows=size
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

    Notes
    -----
    Only examples with the same channel row are compared: over different rows two labels' outputs may differ because the
    examples do. The row is part of the event, chosen on one half of the examples and judged on the other. Valid where
    each example was randomized by itself given its channel row, as every per-example mechanism does; it sees the
    response alone, not a histogram that was paid for beside it.
    """
    truth = as_plain(labels)
    if truth.shape != (len(release),) or truth.dtype.kind not in "iu":
        got = Described(f"an array of shape {truth.shape} and dtype {truth.dtype}")
        raise invalid("observed_audit", "labels", f"be {len(release)} integer codes", got=got)
    sure = check_confidence("observed_audit", confidence)
    context, outputs = _number_contexts(release), number_answers(release)
    rows = np.flatnonzero(context >= 0)
    half = np.random.default_rng(seed).permutation(rows)
    width = int(outputs.max(initial=0)) + 1 if isinstance(release.channel, SetAnswers) else release.channel.n_outputs
    shape = (int(context.max()) + 1, release.n_classes, width)
    columns = [np.asarray(part).astype(np.int64) for part in (context, truth, outputs)]
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


#: Of answers that are sets, these many labels are looked at.
SET_LABELS = 10


def number_answers(release: Release) -> npt.NDArray[Any]:
    """Return one number for each output of a release: what `channel_audit` and `observed_audit` compare.

    A code as it is; where answers are sets, the number whose bits say which of the first ten labels the set names. What the
    set says of two of these labels then shows whatever the row's blocks are: an answer that names one label and not the
    other is e^epsilon times likelier under the first. Other labels are not told apart.
    """
    channel = release.channel
    if not isinstance(channel, SetAnswers) or channel.outputs_are_labels:
        return release.codes
    shown = min(SET_LABELS, release.n_classes)
    out = np.empty(len(release), np.int64)
    for low, high in spans(len(release), width=release.n_classes):
        part = release.take(slice(low, high))
        out[low:high] = channel.take(slice(low, high)).members(part.codes)[:, :shown] @ (1 << np.arange(shown))
    return out


def _call(run: Run, labels: Int64s, *, done: int, n_jobs: int, progress: Progress | None) -> npt.NDArray[Any]:
    """Call `run` with each row of labels and return the outputs, a row for each call; `done` calls went before."""
    from joblib import Parallel, delayed

    calls = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(delayed(run)(row) for row in labels)
    found = []
    for outputs in calls:
        found.append(_check_outputs(outputs, labels.shape[1]))
        if progress is not None:
            progress(done + len(found), CALLS + 2 * SHORT_CALLS)
    return np.array(found)


def _number_known(values: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> Int64s:
    """Return the number of each output among known ones; a new one gets the number after the last."""
    place = np.minimum(np.searchsorted(values, outputs), len(values) - 1)
    return np.where(values[place] == outputs, place, len(values))


def _telling_labels(chosen: dict[str, Event], calls: Calls, k: int) -> tuple[set[int], set[int]]:
    """Return the labels of the law's event, and those of the other families' events with their companions'.

    Only these tell anything about the events. The choice looked at earlier calls alone.
    """
    rest = {label for name in PARTS if name != "law" for label in (chosen[name].one, chosen[name].other)}
    rest |= {chosen[name].context % k for name in ("call", "lag")}  # the companion's labels, once for each distance
    rest |= _companion_labels(chosen["pair"].context, calls, k)
    return {chosen["law"].one, chosen["law"].other}, rest


def _draw_telling_labels(
    rng: np.random.Generator, law: set[int], rest: set[int], shape: tuple[int, int], k: int
) -> Int64s:
    """Return labels for the second half of the calls: half of these for the event of the law, half for the others."""
    half = (shape[0] // 2, shape[1])
    return np.concatenate([_draw_labels(rng, labels, half, k) for labels in (law, rest)])


def _arrange(long: Int64s, short: Int64s, k: int) -> tuple[Int64s, Int64s]:
    """Return the labels of one half of the calls: one long call sorted, one in turns, every other short one sorted.

    The first rows, which hold every label, stay.
    """
    long[SORTED, k:].sort()
    kinds = np.unique(long[TURNS, k:])
    long[TURNS, k:] = np.resize(kinds, long.shape[1] - k) if len(kinds) else long[TURNS, k:]
    short[::2, k:].sort(axis=1)
    return long, short


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


class Calls:
    """Labels and numbered outputs of some calls: of the long ones, and of the short ones."""

    def __init__(self, labels: tuple[Int64s, Int64s], outputs: tuple[Int64s, ...], *, n_outputs: int) -> None:
        self.labels, self.short_labels = labels
        self.outputs, self.short_outputs = outputs
        self.n_outputs = n_outputs


class Search(NamedTuple):
    """What the first half of the calls suggests: the usual output of each label, distances, shifts between calls, periods."""

    usual: Int64s
    lags: tuple[int, ...]
    shifts: tuple[int, ...]
    periods: tuple[tuple[int, int], ...]


def _search(calls: Calls, k: int) -> Search:
    """Look for distances at which residuals agree or disagree, and for periods at which labels stay as they are.

    Nothing here is a test: what is found is judged on other calls.
    """
    labels, outputs = calls.labels, calls.outputs
    size = labels.shape[1]
    law = count_cells(None, labels.ravel(), outputs.ravel(), shape=(1, k, calls.n_outputs))[0]
    total = np.maximum(law.sum(axis=1), 1)
    usual = law.argmax(axis=1)
    kept = (outputs == usual[labels]) - (law[np.arange(k), usual] / total)[labels]
    which = outputs - (law @ np.arange(calls.n_outputs) / total)[labels]
    lags: dict[int, None] = dict.fromkeys(lag for lag in PAIR_LAGS if lag + LEAST_PAIRS <= size)
    shifts: dict[int, None] = {0: None}
    for residual in (kept, which):
        waves = np.fft.rfft(residual, 2 * size, axis=1)
        own = np.fft.irfft((waves * waves.conj()).real.sum(axis=0), 2 * size)[:size]
        across = np.fft.irfft((waves[1::2] * waves[::2].conj()).sum(axis=0), 2 * size)
        pairs = size - np.arange(size)
        near = np.where((np.arange(size) > 0) & (pairs >= LEAST_PAIRS), np.abs(own) / np.sqrt(pairs), 0.0)
        lags |= dict.fromkeys(np.argsort(-near)[:FOUND_LAGS].tolist())
        offset = np.concatenate([np.arange(size), np.arange(-size, 0)])
        there = size - np.abs(offset)
        far = np.where(there >= LEAST_PAIRS, np.abs(across) / np.sqrt(np.maximum(there, 1)), 0.0)
        shifts |= dict.fromkeys(offset[np.argsort(-far)[:FOUND_SHIFTS]].tolist())
    lags.pop(0, None)
    return Search(usual, tuple(lags), tuple(shifts), _find_periods(kept.sum(axis=0)))


def _find_periods(residual: Floats) -> tuple[tuple[int, int], ...]:
    """Return the periods and offsets at which the residuals, added up over calls, are farthest from 0."""
    found = []
    for period in PERIODS:
        whole = len(residual) // period * period
        if whole > period:
            folded = np.abs(residual[:whole].reshape(-1, period).sum(axis=0)) / (whole / period) ** 0.5
            at = int(folded.argmax())
            found.append((float(folded[at]), period, at))
    return tuple((period, at) for _, period, at in sorted(found, reverse=True)[:FOUND_PERIODS])


def _count_families(calls: Calls, search: Search, k: int) -> dict[str, Family]:
    """Return the counts of the five families, from some calls."""
    labels, outputs = calls.labels, calls.outputs
    law = count_cells(None, labels.ravel(), outputs.ravel(), shape=(1, k, calls.n_outputs))
    call = _count_agreement(tuple(part[half::2].ravel() for part in (labels, outputs) for half in (0, 1)), k)
    lags = {
        f"agreement at distance {lag}": _count_agreement(_pair_at_lag(calls, lag), k)
        for lag in LAGS
        if 2 * lag <= labels.shape[1]
    }
    places = dict(_count_places(calls, search, k))
    pairs = {name: _count_pairs(rows, search, calls.n_outputs, k) for name, rows in _pair_all(calls, search)}
    return {
        "law": Family(names=("which output comes out",), counts=law),
        "place": Family(names=tuple(places), counts=np.concatenate([*places.values()])),
        "call": Family(names=("agreement with the same place in another call",), counts=call),
        "lag": Family(names=tuple(lags), counts=np.concatenate([*lags.values()])),
        "pair": Family(names=tuple(pairs), counts=np.concatenate([*pairs.values()])),
    }


def _count_places(calls: Calls, search: Search, k: int) -> Iterator[tuple[str, Int64s]]:
    """Yield what comes out in some rows of a call, and in calls of their own kind."""
    size = calls.labels.shape[1]
    rows: dict[str, Any] = {}
    for end in ENDS:
        if 2 * end <= size:
            rows[f"the first {end} rows of a call"] = slice(0, end)
            rows[f"the last {end} rows of a call"] = slice(size - end, size)
    for block in range(BLOCKS):
        rows[f"part {block + 1} of {BLOCKS} of a call"] = slice(block * size // BLOCKS, (block + 1) * size // BLOCKS)
    for period, at in search.periods:
        rows[f"every {period}th row from {at}"] = slice(at, None, period)
    chosen = {name: (calls.labels[:, part], calls.outputs[:, part]) for name, part in rows.items()}
    for name, at in {"a call with sorted labels": SORTED, "a call whose labels take turns": TURNS}.items():
        chosen[name] = calls.labels[at], calls.outputs[at]
    for name, at in {"a short call with sorted labels": 0, "a short call": 1}.items():
        chosen[name] = calls.short_labels[at::2], calls.short_outputs[at::2]
    for name, (y, o) in chosen.items():
        yield name, count_cells(None, y.ravel(), o.ravel(), shape=(1, k, calls.n_outputs))


def _pair_all(calls: Calls, search: Search) -> Iterator[tuple[str, Sequence[Int64s]]]:
    """Yield every kind of companion: (target labels, companion labels, target outputs, companion outputs)."""
    size = calls.labels.shape[1]
    for lag in search.lags:
        yield f"beside the answer at distance {lag}", _pair_at_lag(calls, lag)
    middle = size // 2
    mirrored = [
        part[:, half]
        for part in (calls.labels, calls.outputs)
        for half in (slice(middle), slice(None, -middle - 1, -1))
    ]
    yield "beside the answer at the mirrored place", tuple(part.ravel() for part in mirrored)
    for shift in search.shifts:
        here, there = slice(max(0, -shift), size - max(0, shift)), slice(max(0, shift), size - max(0, -shift))
        pairs = [
            part[half::2, rows] for part in (calls.labels, calls.outputs) for half, rows in ((0, here), (1, there))
        ]
        yield f"beside the answer {shift} rows on in another call", tuple(part.ravel() for part in pairs)


def _pair_at_lag(calls: Calls, lag: int) -> Sequence[Int64s]:
    """Return (target labels, companion labels, target outputs, companion outputs) of disjoint pairs at a distance.

    Each call is cut into blocks of 2 lag, and example i of a first half is paired with i + lag; so is what is left over.
    """
    size = calls.labels.shape[1]
    whole = size // (2 * lag) * 2 * lag
    left = max(0, size - whole - lag)
    found = []
    for part in (calls.labels, calls.outputs):
        blocks = part[:, :whole].reshape(-1, 2, lag)
        for half in (0, 1):
            start = whole + half * lag
            found.append(np.concatenate([blocks[:, half].ravel(), part[:, start : start + left].ravel()]))
    return tuple(found)


def _companion_kinds(n_outputs: int, k: int) -> int:
    """Return how many kinds of companions are told apart."""
    return 2 + (k * n_outputs if k * n_outputs <= MOST_COMPANIONS else 0)


def _companion_labels(context: int, calls: Calls, k: int) -> set[int]:
    """Return the companion's label in an event of pairs, if the event says it."""
    kind = context % _companion_kinds(calls.n_outputs, k)
    return set() if kind < 2 else {(kind - 2) // calls.n_outputs}


def _count_pairs(rows: Sequence[Int64s], search: Search, n_outputs: int, k: int) -> Int64s:
    """Return counts (kind of companion, target's label, target's output).

    Kinds: its output was not the usual one of its label, or was; then, where they are few, each label and output.
    """
    target, companion, output, other = rows
    usual = (other == search.usual[companion]).astype(np.int64)
    counts = count_cells(usual, target, output, shape=(2, k, n_outputs))
    if _companion_kinds(n_outputs, k) == 2:
        return counts
    each = count_cells(companion * n_outputs + other, target, output, shape=(k * n_outputs, k, n_outputs))
    return np.concatenate([counts, each])


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
    if not arrays or isinstance(
        release.channel, SetAnswers
    ):  # the position of a row says nothing about its answer's law
        return np.zeros(len(release), np.int64)
    stored = np.ascontiguousarray(next(iter(arrays.values())))
    flat = stored.view(np.dtype((np.void, stored.shape[1] * stored.itemsize))).ravel() if stored.ndim == 2 else stored
    _, inverse, count = np.unique(flat, return_inverse=True, return_counts=True)
    rank = np.full(len(count), -1, np.int64)
    common = np.argsort(-count, kind="stable")[:MOST_CONTEXTS]
    rank[common] = np.arange(len(common))
    return rank[inverse.reshape(-1)]
