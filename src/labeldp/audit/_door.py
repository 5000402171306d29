"""`door_audit`: a mechanism and the door it is released through, run as anyone would run them.

>>> import labeldp
>>> found = door_audit(labeldp.privatize, labeldp.RandomizedResponse(1.0), n_classes=3, n_draws=20_000, seed=0)
>>> found.passed, [check.name for check in found.checks]
(True, ['released', 'matrix within guarantee', 'seed marked', 'channel, fresh noise', 'channel, in pieces'])

Design notes. The mechanism is a value that is handed to the door and asked for its guarantee, nothing more. A door that
refuses fails: what cannot be released cannot be audited, and an honest refusal names a false claim. Pieces under one seed
are released as a table is: noise that starts anew with each piece repeats at the distance of a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer
from labeldp.audit._accuracy import accuracy_audit
from labeldp.audit._channel import ChannelAudit, channel_audit
from labeldp.audit._static import matrix_check
from labeldp.audit._values import Audit, Check, check_confidence, within
from labeldp.errors import PrivacyError
from labeldp.release import Release, SensitiveLabels

Ints = npt.NDArray[np.int64]
Door = Callable[..., Release]

#: Rows of a piece; a power of two, so that it is one of the distances at which `channel_audit` looks for repetition.
PIECE = 4096


def door_audit(
    door: Door,
    mechanism: Any,
    *,
    n_classes: int,
    prior: Any = None,
    claimed_accuracy: float | None = None,
    n_draws: int = 200_000,
    confidence: float = 0.95,
    seed: int | None = None,
) -> Audit:
    """Audit `mechanism` as released by `door`, called like `labeldp.privatize`, under one public prior.

    `claimed_accuracy` is how often a label drawn from the prior stays as it is, if that is claimed. All statistical
    answers together are wrong about a sound mechanism with probability 1 - confidence at most.
    """
    k = check_integer("door_audit", "n_classes", n_classes, least=2)
    sure = check_confidence("door_audit", confidence)
    each = 1.0 - (1.0 - sure) / (2 if claimed_accuracy is None else 3)
    claim = mechanism.guarantee
    refusal, first = _first(door, mechanism, k, prior)
    claims = {"epsilon": claim.epsilon(), "delta": 0.0, "guarantee": str(claim), "mechanism": repr(mechanism)}
    if first is None:
        return Audit(claims=claims, checks=(refusal,), confidence=sure)
    runs = {"fresh noise": _fresh, "in pieces": _in_pieces}
    found = {
        name: channel_audit(
            make(door, mechanism, k, prior), n_classes=k, n_draws=n_draws, confidence=each, claimed=claim, seed=seed
        )
        for name, make in runs.items()
    }
    checks = [refusal, matrix_check(first), _seed_marked(door, mechanism, k, prior), *_named(found)]
    if claimed_accuracy is not None:
        shares = np.full(k, 1.0 / k) if prior is None else prior
        run = _fresh(door, mechanism, k, prior)
        checks.append(
            accuracy_audit(
                run, prior=shares, claimed=claimed_accuracy, n_draws=n_draws, confidence=each, seed=seed
            ).check()
        )
    bound = max(one.lower_bound for one in found.values())
    measures = {name: asdict(one) for name, one in found.items()}
    return Audit(claims=claims, checks=tuple(checks), confidence=sure, lower_bound=bound, measures=measures)


def _first(door: Door, mechanism: Any, k: int, prior: Any) -> tuple[Check, Release | None]:
    """Release every label once; a door that refuses for privacy's sake is an answer."""
    try:
        release = door(_boxed(np.arange(k), k), mechanism, prior=prior, groups=None, rng=None, start=0)
    except PrivacyError as error:
        return Check(name="released", passed=False, detail=str(error)), None
    return Check(name="released", passed=True, detail="the door released every label"), release


def _boxed(labels: Ints, k: int) -> SensitiveLabels:
    """Return labels that know all their classes, whichever occur."""
    return SensitiveLabels(labels, n_classes=k)


def _fresh(door: Door, mechanism: Any, k: int, prior: Any) -> Callable[[Ints], Any]:
    """Return a run in which each call is a release of its own."""
    return lambda labels: door(_boxed(labels, k), mechanism, prior=prior, groups=None, rng=None, start=0).codes


def _in_pieces(door: Door, mechanism: Any, k: int, prior: Any) -> Callable[[Ints], Any]:
    """Return a run in which each call is one release, given in pieces under a seed of its own."""
    source = np.random.default_rng()

    def pieces(labels: Ints) -> Iterator[Any]:
        key = int(source.integers(1 << 62))
        for start in range(0, len(labels), PIECE):
            part = _boxed(labels[start : start + PIECE], k)
            yield door(part, mechanism, prior=prior, groups=None, rng=key, start=start).codes

    return lambda labels: np.concatenate(list(pieces(labels)))


def _seed_marked(door: Door, mechanism: Any, k: int, prior: Any) -> Check:
    """A release with a seed says so, and one without does not."""
    labels = _boxed(np.arange(k), k)
    plain = door(labels, mechanism, prior=prior, groups=None, rng=None, start=0)
    seeded = door(labels, mechanism, prior=prior, groups=None, rng=1, start=0)
    passed = seeded.seeded and not plain.seeded
    return Check(name="seed marked", passed=passed, detail=f"with a seed: {seeded.seeded}, without: {plain.seeded}")


def _named(found: dict[str, ChannelAudit]) -> Iterator[Check]:
    for name, one in found.items():
        detail = f"at confidence {one.confidence:g}, {one.n_draws:,} draws: {one.event}"
        yield within(f"channel, {name}", one.lower_bound, one.claimed, detail=detail)
