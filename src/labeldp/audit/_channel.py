"""`channel_audit`: how far apart two labels come out of a mechanism that is seen only as a callable.

>>> import labeldp
>>> def run(labels):
...     return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2)).codes
>>> found = channel_audit(run, n_classes=2, n_draws=40_000, claimed=0.5, confidence=0.999, seed=0)
>>> found.rejected, 0.8 < found.lower_bound <= 1.0
(True, True)

References: Clopper & Pearson 1934; Ding et al. 2018 (events chosen on one half of the draws, tested on the other).

Design notes. Three families of events. *Law*: which output comes out. *Lag*: whether an
output agrees with that of the example a fixed distance away. *Call*: whether it agrees with that of the example at the
same place in another call. The last two see noise that is used twice: the companion then gives the noise away, and with
it the label. Labels are drawn by the auditor, anew for each call, so one call serves every family: uniformly where events
are chosen, and from the labels of the chosen events where those are judged.
Each family chooses its event and tests it at its own part of the level: noise that is used once per call makes the law
look odd in a way that does not come back, and must not hide the agreement that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_delta, check_integer
from labeldp.audit._events import Counts, Event, best_event
from labeldp.audit._values import Check, Progress, check_confidence, claimed_epsilon, within
from labeldp.errors import Described, invalid

Ints = npt.NDArray[np.int64]
Run = Callable[[Ints], Any]

#: Calls of `run`: half to choose the event on, half to judge it, in pairs for the family `call`. Several, since noise that
#: is drawn once for a whole call must show in both halves; few, since distances longer than half a call are not seen.
CALLS = 16
#: Distances at which noise might repeat: every small one, and the powers of two that batches and buffers have.
LAGS = (*range(1, 65), *(1 << power for power in range(7, 17)))
#: How the level is divided: most of it where a wrong epsilon shows; noise that is used twice shows at any level.
PARTS = {"law": 0.9, "call": 0.05, "lag": 0.05}
#: Fewer draws than this for each label and call tell nothing.
LEAST_DRAWS = 10


class Family(NamedTuple):
    """Counts (contexts, labels, cells); each name speaks for as many contexts as the next."""

    names: tuple[str, ...]
    counts: Counts

    def name(self, context: int) -> str:
        """What is counted in a context."""
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
        return within("channel", self.lower_bound, self.claimed, detail=detail)


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
    labels = _among(rng, set(), (CALLS // 2, size), k)
    values, outputs = _numbered(_outputs(run, labels, done=0, n_jobs=n_jobs, progress=progress))
    shape = (1, k, len(values) + 1)  # a cell for outputs that the first half of the calls did not show
    families = _tables(labels, outputs, shape=shape)
    chosen = {
        name: best_event(family.counts, delta=share, level=PARTS[name] * (1.0 - sure))
        for name, family in families.items()
    }
    labels = _aimed(rng, chosen, (CALLS // 2, size), k)
    outputs = _placed(values, _outputs(run, labels, done=CALLS // 2, n_jobs=n_jobs, progress=progress))
    judged_on = _tables(labels, outputs, shape=shape)
    bound, event = max(
        _judged(chosen[name], judged_on[name], delta=share, level=PARTS[name] * (1.0 - sure)) for name in PARTS
    )
    return ChannelAudit(
        lower_bound=bound, confidence=sure, delta=share, claimed=epsilon, event=event, n_draws=CALLS * size
    )


def _outputs(run: Run, labels: Ints, *, done: int, n_jobs: int, progress: Progress | None) -> npt.NDArray[Any]:
    """Return what some calls gave, a row for each."""
    from joblib import Parallel, delayed

    calls = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(delayed(run)(row) for row in labels)
    found = []
    for outputs in calls:
        found.append(_checked(outputs, labels.shape[1]))
        if progress is not None:
            progress(done + len(found), CALLS)
    return np.array(found)


def _numbered(outputs: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """Return the different outputs, sorted, and the number of each."""
    values, numbers = np.unique(outputs, return_inverse=True)
    return values, numbers.reshape(outputs.shape)


def _placed(values: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> Ints:
    """Return the number of each output among known ones; a new one gets the number after the last."""
    place = np.minimum(np.searchsorted(values, outputs), len(values) - 1)
    return np.where(values[place] == outputs, place, len(values))


def _aimed(rng: np.random.Generator, chosen: dict[str, Event], shape: tuple[int, int], k: int) -> Ints:
    """Return labels for the second half of the calls: half of these for the event of the law, half for the other two.

    Only labels of a chosen event, and of its companions (the context), tell anything about it. The choice looked at
    earlier calls alone.
    """
    law = {chosen["law"].one, chosen["law"].other}
    rest = {label for name in ("call", "lag") for label in _labels_of(chosen[name], k)}
    half = (shape[0] // 2, shape[1])
    return np.concatenate([_among(rng, labels, half, k) for labels in (law, rest)])


def _labels_of(event: Event, k: int) -> tuple[int, int, int]:
    """Return the labels in an event of agreement; contexts are the companion's labels, once for each distance."""
    return event.context % k, event.one, event.other


def _among(rng: np.random.Generator, labels: set[int], shape: tuple[int, int], k: int) -> Ints:
    """Return labels drawn uniformly from a set; from all where it holds fewer than two.

    Each call begins with every label once: a mechanism that reads its classes off the labels finds them all.
    """
    drawn = rng.choice(np.array(sorted(labels) if len(labels) > 1 else range(k)), shape)
    drawn[:, :k] = np.arange(k)
    return drawn


def _checked(outputs: Any, n: int) -> npt.NDArray[Any]:
    array = np.asarray(outputs)
    if array.shape != (n,):
        got = Described(f"an array of shape {array.shape}")
        raise invalid("channel_audit", "run", f"return {n} outputs for {n} labels", got=got)
    return array


def _judged(chosen: Event, judged_on: Family, *, delta: float, level: float) -> tuple[float, str]:
    """Return the bound of a chosen event on other draws, and its words."""
    if chosen.one == chosen.other:
        return 0.0, "no event told labels apart"
    event = chosen.judged(judged_on.counts, delta=delta, level=level)
    return event.bound, f"{judged_on.name(event.context)}, label {event.one} against {event.other}"


def _tables(labels: Ints, outputs: Ints, *, shape: tuple[int, int, int]) -> dict[str, Family]:
    """Return the counts of the three families, from some calls."""
    law = counted(None, labels.ravel(), outputs.ravel(), shape=shape)
    call = _agreement(tuple(part[half::2].ravel() for part in (labels, outputs) for half in (0, 1)), shape[1])
    lags = {f"agreement at distance {lag}": _agreement(rows, shape[1]) for lag, rows in _pairs_of(labels, outputs)}
    return {
        "law": Family(names=("which output comes out",), counts=law),
        "call": Family(names=("agreement with the same place in another call",), counts=call),
        "lag": Family(names=tuple(lags), counts=np.concatenate([*lags.values()])),
    }


def _pairs_of(labels: Ints, outputs: Ints) -> Iterator[tuple[int, Sequence[Ints]]]:
    """Yield (lag, (target labels, companion labels, target outputs, companion outputs)).

    For lag L each call is cut into blocks of 2 L, and example i of a first half is paired with i + L: disjoint pairs.
    """
    for lag in LAGS:
        whole = labels.shape[1] // (2 * lag) * 2 * lag
        if whole:
            y, o = (part[:, :whole].reshape(-1, 2, lag) for part in (labels, outputs))
            yield lag, tuple(part[:, half].ravel() for part in (y, o) for half in (0, 1))


def _agreement(rows: Sequence[Ints], k: int) -> Counts:
    """Return counts (companion's label, target's label, differs or agrees)."""
    target, companion, output, other = rows
    return counted(companion, target, (output == other).astype(np.int64), shape=(k, k, 2))


def counted(context: Ints | None, labels: Ints, cells: Ints, *, shape: tuple[int, int, int]) -> Counts:
    """Return how often each cell came out in each context for each label."""
    flat = labels * shape[2] + cells
    if context is not None:
        flat = flat + context * (shape[1] * shape[2])
    return np.bincount(flat, minlength=shape[0] * shape[1] * shape[2]).reshape(shape)
