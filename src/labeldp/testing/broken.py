"""Deliberately broken mechanisms: what the conformance suite must catch. NEVER USE THEM ON REAL LABELS.

Each twin is a `Broken`: a `Subject` with one known fault, and the check that must find it. They show that the checks
can fail, and they are at hand for whoever writes an audit.

>>> [broken.name for broken in broken_subjects()][:3]
['off by one k', 'draws from all, says so', 'draws from all, lies']

References: faults found in public code. google-research/label-dp evaluates the formula for k from 1 with k from 0; a
public RRWithPrior draws from all labels when y is outside the top k.

Design notes. A lying door is made from the honest one: it releases with another channel under a guarantee of infinite
epsilon, which `labeldp.privatize` allows, and then puts the honest channel and guarantee in the release. A door that
looks at labels gets them by releasing them with epsilon = inf. So nothing here opens `SensitiveLabels` itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeldp.arrays import Floats, Int64s
from labeldp.channel import ArcChannel, FiniteChannel, MatrixChannel, NumericChannel, safe_odds
from labeldp.channel.finite import FULL_RANGE
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import (
    BinnedResponse,
    InformativeResponse,
    Mechanism,
    NumericMechanism,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    UnbiasedResponse,
)
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, privatize
from labeldp.testing.subject import Door, Subject


@dataclass(frozen=True)
class OffByOneK(Mechanism):
    """RRWithPrior with k* = argmax over j = 0 .. K-1 of e^epsilon / (e^epsilon + j - 1) (p_(1) + ... + p_(j+1)).

    The factor belongs to j labels, the mass to j + 1: k comes out too small, and at a small epsilon, where j = 0 has the
    factor e^epsilon / (e^epsilon - 1), the answer is the constant likeliest label. Private, but not optimal.
    """

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon: this fault costs accuracy, not privacy."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return the matrix of each distinct prior row, with the wrong k."""
        rows, index = _find_distinct(prior, groups)
        dense = [RRTopK(self.epsilon, k=self.choose_k(row)).channel(row).matrix() for row in rows]
        return MatrixChannel(np.array(dense), index=index, outputs_are_labels=True)

    def choose_k(self, prior: Floats) -> int:
        """Return the wrong k."""
        mass = np.cumsum(np.sort(prior)[::-1])
        odds = math.expm1(self.epsilon)
        return int(np.argmax(mass / (odds + np.arange(len(mass))))) + 1


@dataclass(frozen=True)
class DrawsFromAll(Mechanism):
    """RRTop-k that answers a label outside the top k with a uniform draw from ALL labels.

    An output outside the top k then proves that the label was outside: the privacy loss is infinite.
    """

    epsilon: float
    k: int

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon: the promise that it breaks."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return the matrix of each distinct prior row, truthfully: its epsilon is infinite."""
        rows, index = _find_distinct(prior, groups)
        dense = np.array([RRTopK(self.epsilon, k=self.k).channel(row).matrix() for row in rows])
        outside = np.diagonal(dense, axis1=1, axis2=2) == 0
        dense[outside] = 1.0 / rows.shape[1]
        return MatrixChannel(dense, index=index, outputs_are_labels=True)


@dataclass(frozen=True)
class Understated(Mechanism):
    """A mechanism that claims half of what it costs."""

    inner: Mechanism

    @property
    def guarantee(self) -> Guarantee:
        """Half of the epsilon that the mechanism within has."""
        return Guarantee.pure(self.inner.guarantee.epsilon() / 2)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return the channel of the mechanism within."""
        return self.inner.channel(prior, groups=groups, n_classes=n_classes)


@dataclass(frozen=True)
class Unchecked(Mechanism):
    """A mechanism that claims nothing, so that the door draws from any channel."""

    inner: Mechanism

    @property
    def guarantee(self) -> Guarantee:
        """An infinite epsilon: no promise."""
        return Guarantee.pure(math.inf)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return the channel of the mechanism within."""
        return self.inner.channel(prior, groups=groups, n_classes=n_classes)


@dataclass(frozen=True)
class DrawsWithAnother:
    """A door that draws with one mechanism and reports the channel and the guarantee of another."""

    drawn: Mechanism

    def __call__(self, labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
        """Release with `drawn`, and say that it was `mechanism`."""
        release = privatize(labels, Unchecked(self.drawn), prior=prior, groups=groups, rng=rng, start=start)
        channel = mechanism.channel(prior, groups=groups, n_classes=release.n_classes)
        return replace(release, channel=channel, guarantee=mechanism.guarantee, mechanism=repr(mechanism))


@dataclass(frozen=True)
class TieBreakLooksAtLabel:
    """A door that lets the label win ties in its prior.

    Which labels can come out then tells what y is. With `hides`, the release carries the channel without that fault.
    """

    hides: bool

    def __call__(self, labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
        """Raise the prior of each true label a little, and release with that prior."""
        codes = reveal_codes(labels)
        rows = np.atleast_2d(prior)[np.zeros(len(codes), np.int64) if groups is None else groups]
        own = np.array(prior if np.ndim(prior) == 2 and groups is None else rows)
        own[np.arange(len(codes)), codes] += 1e-9  # within the tolerance of a row's sum
        release = privatize(labels, mechanism, prior=own, rng=rng, start=start)
        if not self.hides:
            return release
        return replace(release, channel=mechanism.channel(prior, groups=groups, n_classes=release.n_classes))


@dataclass(frozen=True)
class LabelHelpsBlocks:
    """A door that lets the label help to make its row's blocks.

    The prior of the true label is raised before blocks are made, so the label is where it should not be: with others than the
    public blocks say. The release itself looks like any other.
    """

    def __call__(self, labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
        """Release with blocks that the label helped to make."""
        codes = reveal_codes(labels)
        rows = np.atleast_2d(prior)[np.zeros(len(codes), np.int64) if groups is None else groups]
        own = np.array(prior if np.ndim(prior) == 2 and groups is None else rows)
        own[np.arange(len(codes)), codes] += 1.0
        return privatize(labels, mechanism, prior=own / own.sum(axis=1, keepdims=True), rng=rng, start=start)


@dataclass(frozen=True)
class UnequalInclusion(Mechanism):
    """Blocks of which label 0 is in two and every other label in one, each label with a normaliser of its own.

    An answer is e^epsilon times likelier with its label than without, for each label alone; but the normalisers differ, so
    the chances of one answer under two labels differ by more.
    """

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon: the promise that it breaks."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return the matrix of all labels, truthfully: its epsilon is above the promise."""
        if prior is not None or groups is not None or n_classes is None:
            raise invalid("UnequalInclusion", "prior", "be left out", got=Described("one"))
        inside = np.eye(n_classes, n_classes + 1)
        inside[0, n_classes] = 1.0
        weights = np.where(inside > 0, math.exp(self.epsilon), 1.0)
        return MatrixChannel(weights / weights.sum(axis=1, keepdims=True))


class LeftOverToLabel(ArcChannel):
    """Arcs whose left-over words, fewer than d of 2^64, answer with an arc that begins at the label."""

    def draw(self, codes: Any, words: Any) -> Any:
        """Draw as arcs do, but for the left-over words."""
        drawn = super().draw(codes, words)
        at = np.argsort(self._circles(0, len(codes)), axis=1)[np.arange(len(codes)), codes]
        last = np.uint64(FULL_RANGE - 1 - self.integers.rest)
        return np.where(words[:, 0] > last, at, drawn).astype(drawn.dtype)


@dataclass(frozen=True)
class LeftOverLooks(Mechanism):
    """InformativeResponse without a prior whose left-over words look at the label."""

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon: what the honest twin promises."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return arcs with the fault, which no matrix shows."""
        if prior is not None or groups is not None or n_classes is None:
            raise invalid("LeftOverLooks", "prior", "be left out", got=Described("one"))
        odds = safe_odds(self.epsilon)
        return LeftOverToLabel(odds=odds, size=2, n_classes=n_classes)


@dataclass(frozen=True)
class BinsAsTheyAre(NumericMechanism):
    """Randomized response on five levels that answers with the level: private, and every answer is pulled to the middle."""

    @property
    def n_classes(self) -> int:
        """Five levels."""
        return 5

    def most_answers(self) -> int:
        """One for each level."""
        return 5

    def design(self, prior: Floats) -> Any:
        """Return randomized response, which `channel` below does not decode."""
        return BinnedResponse(self.epsilon, bounds=self.bounds, bins=5).design(np.full(5, 0.2))

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> NumericChannel:
        """Return the levels as answers."""
        if prior is not None or groups is not None or n_classes not in (None, 5):
            raise invalid("BinsAsTheyAre", "prior", "be left out", got=Described("one"))
        return NumericChannel(self.design(np.empty(0)).transition, levels=self.levels, values=self.levels)


def answer_louder(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release numbers at twice the epsilon, and report the channel and the guarantee of the mechanism that was asked for."""
    twice = mechanism.with_epsilon(2.0 * mechanism.guarantee.epsilon())
    release = privatize(labels, twice, prior=prior, groups=groups, rng=rng, start=start)
    channel = mechanism.channel(prior, groups=groups)
    return replace(release, channel=channel, guarantee=mechanism.guarantee, mechanism=repr(mechanism))


def round_to_nearest(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release numbers rounded to the nearest level: private, and biased between levels."""
    assert isinstance(mechanism, NumericMechanism)
    shown = UnbiasedResponse(math.inf, bounds=mechanism.bounds, grid=129)  # numbers to a 128th of their range
    numbers = privatize(labels, shown).values
    low, step = mechanism.levels[0], mechanism.levels[1] - mechanism.levels[0]
    nearest = np.clip(low + step * np.round((numbers - low) / step), *mechanism.bounds)
    return privatize(nearest, mechanism, prior=prior, groups=groups, rng=rng, start=start)


def reuse_noise(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release every example with the words of the first one."""
    key = _keep_no_account(as_key("reuse_noise", rng, pieces=True))
    honest = privatize(labels, mechanism, prior=prior, groups=groups, rng=key, start=start)
    codes = reveal_codes(labels).astype(np.int32)
    words = np.repeat(key.words(start=0, count=1), len(codes), axis=0)
    return replace(honest, codes=honest.channel.draw(codes, words).astype(honest.codes.dtype))


def repeat_noise(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release with a counter that wraps after 4096 examples, as a buffer that is not refilled would."""
    key = _keep_no_account(as_key("repeat_noise", rng, pieces=True))
    honest = privatize(labels, mechanism, prior=prior, groups=groups, rng=key, start=start)
    codes = reveal_codes(labels).astype(np.int32)
    words = key.words(start=0, count=4096)[(start + np.arange(len(codes))) % 4096]
    return replace(honest, codes=honest.channel.draw(codes, words).astype(honest.codes.dtype))


def _keep_no_account(key: NoiseKey) -> NoiseKey:
    """Return a key that hands out its blocks as often as it is asked, which those of the house do not."""
    return NoiseKey.carried(key.reveal(), seeded=key.seeded)


def fix_seed(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release with the seed 0 where none is given, and call it secure."""
    release = privatize(labels, mechanism, prior=prior, groups=groups, rng=0 if rng is None else rng, start=start)
    return replace(release, seeded=rng is not None)


def hide_seed(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release with a seed and do not say so."""
    return replace(privatize(labels, mechanism, prior=prior, groups=groups, rng=rng, start=start), seeded=False)


def ignore_start(labels: Any, mechanism: Mechanism, *, prior: Any, groups: Any, rng: Any, start: int) -> Release:
    """Release every piece as if it were the first: pieces share their noise."""
    return replace(privatize(labels, mechanism, prior=prior, groups=groups, rng=rng, start=0), start=start)


@dataclass(frozen=True, kw_only=True, eq=False)
class Broken:
    """A subject with one known fault, and the name of the check that must find it."""

    name: str
    caught_by: str
    subject: Subject


def broken_subjects() -> tuple[Broken, ...]:
    """Return every broken twin; each is caught by the check it names and, where possible, by no other."""
    top_two = RRTopK(1.0, k=2)
    from_all = DrawsFromAll(1.0, 2)
    return (
        _make_twin("off by one k", "is_optimal", OffByOneK(0.5)),
        _make_twin("draws from all, says so", "privacy_holds", from_all),
        _make_twin("draws from all, lies", "frequencies_match", top_two, DrawsWithAnother(from_all)),
        _make_twin("epsilon doubled", "frequencies_match", RRWithPrior(1.0), DrawsWithAnother(RRWithPrior(2.0))),
        _make_twin(
            "epsilon doubled, no prior",
            "frequencies_match",
            RandomizedResponse(1.0),
            DrawsWithAnother(RandomizedResponse(2.0)),
        ),
        _make_twin("epsilon halved in words", "privacy_holds", Understated(RRWithPrior(1.0))),
        _make_twin(
            "tie-break looks at the label", "channel_ignores_labels", top_two, TieBreakLooksAtLabel(hides=False)
        ),
        _make_twin(
            "tie-break looks at the label, lies", "frequencies_match", top_two, TieBreakLooksAtLabel(hides=True)
        ),
        _make_twin("the label helps to make blocks", "frequencies_match", InformativeResponse(1.0), LabelHelpsBlocks()),
        _make_twin("unequal inclusion", "privacy_holds", UnequalInclusion(1.0)),
        _make_twin("left-over words look at the label", "words_are_counted", LeftOverLooks(1.0)),
        _make_twin(
            "epsilon doubled, numbers", "frequencies_match", BinnedResponse(1.0, bounds=(0, 4), bins=5), answer_louder
        ),
        _make_twin("bins as they are", "numbers_are_unbiased", BinsAsTheyAre(2.0, bounds=(0, 4))),
        _make_twin(
            "numbers rounded to the nearest level",
            "numbers_are_unbiased",
            BinnedResponse(3.0, bounds=(0, 4), bins=5),
            round_to_nearest,
        ),
        _make_twin("noise reused", "examples_are_independent", RRWithPrior(1.0), reuse_noise),
        _make_twin("noise repeats", "examples_are_independent", RRWithPrior(1.0), repeat_noise),
        _make_twin("fixed seed", "secure_by_default", RandomizedResponse(1.0), fix_seed),
        _make_twin("seed unmarked", "seeds_reproduce", RandomizedResponse(1.0), hide_seed),
        _make_twin("start ignored", "pieces_equal_whole", top_two, ignore_start),
    )


def _make_twin(name: str, caught_by: str, mechanism: Mechanism, door: Door = privatize) -> Broken:
    """Return a twin with five classes."""
    return Broken(name=name, caught_by=caught_by, subject=Subject(mechanism=mechanism, privatize=door, n_classes=5))


def reveal_codes(labels: Any) -> Int64s:
    """Return the true labels, which a release with epsilon = inf gives."""
    return privatize(labels, RandomizedResponse(math.inf)).codes.astype(np.int64)


def _find_distinct(prior: Any, groups: Any) -> tuple[Floats, Int64s | None]:
    """Return the distinct rows of a prior and the row of each example (None: one row for all)."""
    if np.ndim(prior) == 1:
        return np.atleast_2d(prior), None
    if groups is not None:
        return np.asarray(prior), np.asarray(groups)
    rows, index = np.unique(np.asarray(prior), axis=0, return_inverse=True)
    return rows, index.reshape(-1)
