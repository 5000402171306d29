"""`audit`: everything that can be asked of a release, a mechanism or a pipeline, in one answer.

>>> import labeldp
>>> def run(labels):
...     return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2)).codes
>>> found = audit(Randomizer(run=run, n_classes=2, claimed=1.0), n_draws=20_000, seed=0, confidence=0.9999999)
>>> found.passed, [check.name for check in found.checks]
(True, ['channel'])

`door_audit` is for those who write a mechanism or a way to release: it runs the two together, as anyone would.

>>> mechanism = labeldp.RandomizedResponse(1.0)
>>> found = door_audit(labeldp.privatize, mechanism, n_classes=3, n_draws=20_000, confidence=0.9999999)
>>> found.passed, [check.name for check in found.checks]
(True, ['released', 'matrix within guarantee', 'seed marked', 'channel, fresh noise', 'channel, in pieces'])

Design notes. The mechanism is a value that is handed to the door and asked for its guarantee, nothing more. A door that
refuses fails: what cannot be released cannot be audited, and an honest refusal names a false claim. Pieces under one seed
are released as a table is: noise that starts anew with each piece repeats at the distance of a piece.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from labeldp.arrays import Int64s
from labeldp.audit.canary import Train, canary_audit
from labeldp.audit.channel import ChannelAudit, Run, channel_audit, number_answers, observed_audit
from labeldp.audit.contents import columns_check, plausible_check, raw_label_check, support_check
from labeldp.audit.inference import accuracy_audit, attack_release
from labeldp.audit.results import Audit, Check, Progress, bound_check, check_confidence, claimed_epsilon
from labeldp.audit.static import directory_check, ledger_checks, load_check, matrix_check, private_check
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.release import Release, SensitiveLabels
from labeldp.release.labels import as_plain
from labeldp.validate import check_integer

if TYPE_CHECKING:
    from labeldp.accounting import Ledger


#: Rows of a release that are attacked, evenly spaced: an accuracy is then known to 0.1 %.
MOST_ATTACKED = 1_000_000
#: Rows of a piece; a power of two, so that it is one of the distances at which `channel_audit` looks for repetition.
PIECE = 4096
#: Called as `labeldp.privatize` is.
Door = Callable[..., Release]


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomizer:
    """A mechanism to audit: labels in, one output for each; see `channel_audit` for the fields.

    `claimed` is a number or a `Guarantee`; it is read at `delta`.
    """

    run: Run
    n_classes: int
    claimed: Any
    delta: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pipeline:
    """A training to audit: labels in, scores out; see `canary_audit` for the fields.

    `claimed` is a number or a `Guarantee`; it is read at `delta`.
    """

    train: Train
    labels: Any
    n_classes: int
    claimed: Any
    delta: float = 0.0
    canaries: Any = None
    references: int = 1
    persons: Any = None


def audit(
    subject: Any,
    *,
    labels: Any = None,
    ledger: Ledger | None = None,
    n_draws: int = 1_000_000,
    confidence: float = 0.95,
    seed: int | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> Audit:
    """Audit a release (its directory, or the value), a `Randomizer` or a `Pipeline`.

    Parameters
    ----------
    subject : path, Release, Randomizer or Pipeline
        A release is read: is it intact, does its matrix keep its promise, was the noise secure, is the ledger charged,
        does the directory hold anything that it should not. The other two are run.
    labels : integer array, optional
        The raw labels of a release as codes, which its owner has: then it is attacked too, and epsilon bounded from below.
        The answer then depends on raw labels that no noise protects: it is for the owner, not for publication.
    ledger : Ledger, optional
        Where the release should have been charged.
    n_draws, confidence, seed, n_jobs, progress
        As in `channel_audit` and `canary_audit`. Each bound of one answer holds with probability `confidence`.

    Returns
    -------
    Audit
        Every check, passed or failed, the claims, and `lower_bound`, which is None where nothing was run. A directory that
        cannot be loaded gives one failed check.
    """
    sure = check_confidence("audit", confidence)
    no_checks: tuple[Check, ...] = ()
    if isinstance(subject, Randomizer):
        return _audit_randomizer(subject, n_draws=n_draws, confidence=sure, seed=seed, n_jobs=n_jobs, progress=progress)
    if isinstance(subject, Pipeline):
        return _audit_pipeline(subject, confidence=sure, seed=seed, n_jobs=n_jobs, progress=progress)
    if isinstance(subject, Release):
        checks, release = no_checks, subject
    elif isinstance(subject, (str, os.PathLike)):
        checks, found = _check_directory(Path(subject))
        if found is None:
            return Audit(claims={}, checks=checks, confidence=sure)
        release = found
    else:
        fix = "Wrap a callable in labeldp.audit.Randomizer or Pipeline, with what it claims."
        raise invalid(
            "audit",
            "subject",
            "be a release, a Randomizer or a Pipeline",
            got=Described(type(subject).__name__),
            fix=fix,
        )
    return _audit_release(subject, release, checks, labels=labels, ledger=ledger, confidence=sure, seed=seed)


def _audit_randomizer(subject: Randomizer, *, n_draws: int, confidence: float, **how: Any) -> Audit:
    """Run `channel_audit` on a mechanism."""
    found = channel_audit(
        subject.run,
        n_classes=subject.n_classes,
        claimed=subject.claimed,
        delta=subject.delta,
        n_draws=n_draws,
        confidence=confidence,
        **how,
    )
    return _make_audit(subject, found)


def _audit_pipeline(subject: Pipeline, *, confidence: float, **how: Any) -> Audit:
    """Run `canary_audit` on a training."""
    found = canary_audit(
        subject.train,
        subject.labels,
        n_classes=subject.n_classes,
        claimed=subject.claimed,
        delta=subject.delta,
        canaries=subject.canaries,
        references=subject.references,
        persons=subject.persons,
        confidence=confidence,
        **how,
    )
    return _make_audit(subject, found)


def _make_audit(subject: Randomizer | Pipeline, found: Any) -> Audit:
    """Return the answer about something that was run: one check, its bound, and everything else as measures."""
    claims = _list_claims(subject.claimed, subject.delta)
    measures = {name: value for name, value in asdict(found).items() if name not in {"lower_bound", "confidence"}}
    return Audit(
        claims=claims,
        checks=(found.check(),),
        confidence=found.confidence,
        lower_bound=found.lower_bound,
        measures=measures,
    )


def _list_claims(claimed: Any, delta: float) -> dict[str, Any]:
    """Return what is claimed, as plain values by name."""
    facts: dict[str, Any] = {"epsilon": claimed_epsilon("audit", claimed, delta), "delta": delta}
    return {**facts, "guarantee": claimed.headline} if isinstance(claimed, Guarantee) else facts


def _check_directory(root: Path) -> tuple[tuple[Check, ...], Release | None]:
    """Return the checks of the files alone, and the release if it can be read."""
    intact, release = load_check(root)
    if release is None:
        return (intact,), None
    checks = (
        _settle("no key or stray file", lambda: directory_check(root)),
        _settle("only what labeldp writes", lambda: columns_check(root, release)),
        _settle("no raw label column", lambda: raw_label_check(root, release)),
    )
    return (intact, *checks), release


def _settle(name: str, ask: Callable[[], Check]) -> Check:
    """Return the answer to a check; a release that makes the check itself fail has failed it."""
    try:
        return ask()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, pa.ArrowException) as error:
        return Check(name=name, passed=False, detail=f"could not be read: {type(error).__name__}: {error}"[:500])


def _audit_release(
    subject: Any,
    release: Release,
    checks: Iterable[Check],
    *,
    labels: Any,
    ledger: Ledger | None,
    confidence: float,
    seed: int | None,
) -> Audit:
    """Return the audit of one release: what was read, and what its owner's labels show."""
    name = "the release" if isinstance(subject, Release) else Path(subject).name
    place = None if isinstance(subject, Release) else Path(subject)
    possible = _settle("outputs possible", lambda: support_check(release))
    plausible = _settle("outputs plausible", lambda: plausible_check(release, place))
    read = [*checks, possible, plausible, matrix_check(release), private_check(release)]
    if ledger is not None:
        read += ledger_checks(ledger, [(name, release)])
    claims = {**_list_claims(release.guarantee, 0.0), "mechanism": release.mechanism, "label_set": release.label_set}
    if labels is None:
        return Audit(claims=claims, checks=tuple(read), confidence=confidence)
    truth = _check_labels(labels, release)
    if not possible.passed:
        # No posterior and no bound is defined for an output that the channel cannot give; the check above has failed.
        return Audit(claims=claims, checks=tuple(read), confidence=confidence)
    rows = slice(None, None, max(1, -(-len(release) // MOST_ATTACKED)))
    part, truth = release.take(rows), truth[rows]
    found = observed_audit(part, truth, confidence=confidence, seed=seed)
    # The attacker knows how common each class is: the prior under which the bound is tightest.
    shares = np.bincount(truth, minlength=release.n_classes) / len(truth)
    attack = attack_release(part, truth, prior=shares, confidence=confidence)
    return Audit(
        claims=claims,
        checks=(*read, found.check(), attack.check()),
        confidence=confidence,
        lower_bound=found.lower_bound,
        measures={"attack": asdict(attack), "event": found.event},
        raw_labels=True,
    )


def _check_labels(labels: Any, release: Release) -> Int64s:
    """Return the owner's raw labels as codes, one for each row of the release; refuse anything else."""
    truth = as_plain(labels)
    if release.rows is not None and truth.shape == (release.n_rows,):  # labels of all rows, answered or not
        truth = truth[release.rows]
    if truth.shape != (len(release),) or truth.dtype.kind not in "iu":
        got = Described(f"an array of shape {truth.shape} and dtype {truth.dtype}")
        raise invalid("audit", "labels", f"be {len(release)} integer codes", got=got, fix="Use the release's classes.")
    if len(truth) and not (int(truth.min()) >= 0 and int(truth.max()) < release.n_classes):
        got = Described(f"{int(truth.min())} .. {int(truth.max())}")
        raise invalid("audit", "labels", f"be codes in [0, {release.n_classes - 1}]", got=got)
    return truth.astype(np.int64)


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
    """Audit a mechanism together with the function it is released through, under one public prior.

    Parameters
    ----------
    door : callable
        Called as `labeldp.privatize` is: (labels, mechanism, *, prior, groups, rng, start) -> Release.
    mechanism : Mechanism
        Handed to the door and asked for its guarantee, which is the claim; nothing more.
    n_classes : int
        K; for numbers, how many of them are told apart.
    prior : array of shape (K,), optional
        Handed to the door.
    claimed_accuracy : float, optional
        How often a label drawn from the prior stays as it is, if that is claimed too.
    n_draws, confidence, seed
        As in `channel_audit`, for each of its two runs. All statistical answers together are wrong about a sound
        mechanism with probability 1 - confidence at most.

    Notes
    -----
    Checked: that the door releases every label, that the matrix keeps the promise, that a seed is marked, and the channel
    twice, once with fresh noise in each call and once in pieces under one seed, as a table is released.
    """
    k = check_integer("door_audit", "n_classes", n_classes, least=2)
    sure = check_confidence("door_audit", confidence)
    each = 1.0 - (1.0 - sure) / (2 if claimed_accuracy is None else 3)
    claim = mechanism.guarantee
    refusal, first = _release_all(door, mechanism, k, prior)
    claims = {"epsilon": claim.epsilon(), "delta": 0.0, "guarantee": claim.headline, "mechanism": repr(mechanism)}
    if first is None:
        return Audit(claims=claims, checks=(refusal,), confidence=sure)
    runs = {"fresh noise": _run_afresh, "in pieces": _run_in_pieces}
    found = {
        name: channel_audit(
            make(door, mechanism, k, prior), n_classes=k, n_draws=n_draws, confidence=each, claimed=claim, seed=seed
        )
        for name, make in runs.items()
    }
    checks = [refusal, matrix_check(first), _seed_check(door, mechanism, k, prior), *_channel_checks(found)]
    if claimed_accuracy is not None:
        shares = np.full(k, 1.0 / k) if prior is None else prior
        run = _run_afresh(door, mechanism, k, prior)
        checks.append(
            accuracy_audit(
                run, prior=shares, claimed=claimed_accuracy, n_draws=n_draws, confidence=each, seed=seed
            ).check()
        )
    bound = max(one.lower_bound for one in found.values())
    measures = {name: asdict(one) for name, one in found.items()}
    return Audit(claims=claims, checks=tuple(checks), confidence=sure, lower_bound=bound, measures=measures)


def _release_all(door: Door, mechanism: Any, k: int, prior: Any) -> tuple[Check, Release | None]:
    """Release every label once; a door that refuses for the sake of privacy gives a failed check and no release."""
    try:
        release = door(_box(np.arange(k), k, mechanism), mechanism, prior=prior, groups=None, rng=None, start=0)
    except PrivacyError as error:
        return Check(name="released", passed=False, detail=str(error)), None
    return Check(name="released", passed=True, detail="the door released every label"), release


def _box(labels: Int64s, k: int, mechanism: Any) -> SensitiveLabels:
    """Return labels that know all their classes, whichever occur; of numbers, k even ones from bound to bound."""
    if getattr(mechanism, "takes_numbers", False):
        low, high = mechanism.bounds
        return SensitiveLabels(np.linspace(low, high, k)[labels], bounds=(low, high))
    return SensitiveLabels(labels, n_classes=k)


def _run_afresh(door: Door, mechanism: Any, k: int, prior: Any) -> Callable[[Int64s], Any]:
    """Return a run in which each call is a release of its own."""
    return lambda labels: number_answers(
        door(_box(labels, k, mechanism), mechanism, prior=prior, groups=None, rng=None, start=0)
    )


def _run_in_pieces(door: Door, mechanism: Any, k: int, prior: Any) -> Callable[[Int64s], Any]:
    """Return a run in which each call is one release, given in pieces under a seed of its own."""
    source = np.random.default_rng()

    def pieces(labels: Int64s) -> Iterator[Any]:
        """Yield the outputs of one release, a piece at a time, all under one key."""
        key = int(source.integers(1 << 62))
        for start in range(0, len(labels), PIECE):
            part = _box(labels[start : start + PIECE], k, mechanism)
            yield number_answers(door(part, mechanism, prior=prior, groups=None, rng=key, start=start))

    return lambda labels: np.concatenate(list(pieces(labels)))


def _seed_check(door: Door, mechanism: Any, k: int, prior: Any) -> Check:
    """Check that a release with a seed says so, and that one without does not."""
    labels = _box(np.arange(k), k, mechanism)
    plain = door(labels, mechanism, prior=prior, groups=None, rng=None, start=0)
    seeded = door(labels, mechanism, prior=prior, groups=None, rng=1, start=0)
    passed = seeded.seeded and not plain.seeded
    return Check(name="seed marked", passed=passed, detail=f"with a seed: {seeded.seeded}, without: {plain.seeded}")


def _channel_checks(found: dict[str, ChannelAudit]) -> Iterator[Check]:
    """Yield a check for each audit of the channel, under the name of its run."""
    for name, one in found.items():
        detail = f"at confidence {one.confidence:g}, {one.n_draws:,} draws: {one.event}"
        yield bound_check(f"channel, {name}", one.lower_bound, one.claimed, detail=detail)
