"""The suite: the checks in order, and the two calls that run them.

>>> [check.name for check in mechanism_checks()][:3]
['rows_are_distributions', 'privacy_holds', 'epsilon_is_exact']
"""

from __future__ import annotations

from typing import Any

from labeldp.mechanisms import Mechanism
from labeldp.release import privatize as the_door
from labeldp.testing import _draws as draws
from labeldp.testing import _matrices as matrices
from labeldp.testing._check import Check, ConformanceError
from labeldp.testing._subject import Door, Subject

_CHECKS = (
    Check(
        name="rows_are_distributions", promise="rows of every matrix sum to one", judge=matrices.rows_are_distributions
    ),
    Check(name="privacy_holds", promise="no log-ratio exceeds the guarantee", judge=matrices.privacy_holds),
    Check(name="epsilon_is_exact", promise="channel.epsilon is the worst log-ratio", judge=matrices.epsilon_is_exact),
    Check(name="channel_ignores_labels", promise="the channel is public", judge=draws.channel_ignores_labels),
    Check(name="frequencies_match", promise="labels come out as the matrix says", judge=draws.frequencies_match),
    Check(name="examples_are_independent", promise="no noise is used twice", judge=draws.examples_are_independent),
    Check(name="secure_by_default", promise="fresh noise unless a seed is given", judge=draws.secure_by_default),
    Check(name="seeds_reproduce", promise="a seed says what it did", judge=draws.seeds_reproduce),
    Check(name="pieces_equal_whole", promise="batches do not change the release", judge=draws.pieces_equal_whole),
)
_OPTIMAL = Check(name="is_optimal", promise="no private mechanism is right more often", judge=matrices.is_optimal)


def mechanism_checks(*, optimal: bool = False) -> tuple[Check, ...]:
    """Return the checks that every mechanism passes; with `optimal`, also that of a mechanism optimal for its prior."""
    return (*_CHECKS, _OPTIMAL) if optimal else _CHECKS


def check_mechanism(
    mechanism: Mechanism,
    *,
    privatize: Door = the_door,
    n_classes: int = 5,
    prior: Any = None,
    seed: int = 0,
    failure: float = 1e-6,
) -> None:
    """Run every check; raise one `ConformanceError` that lists all that failed, or return None.

    See `Subject` for the parameters. A sound mechanism is found at fault with probability `failure` at most.

    >>> import labeldp
    >>> check_mechanism(labeldp.RandomizedResponse(1.0, n_classes=3))
    """
    subject = Subject(
        mechanism=mechanism, privatize=privatize, n_classes=n_classes, prior=prior, seed=seed, failure=failure
    )
    _run(subject, _CHECKS)


def check_optimal(mechanism: Mechanism, *, n_classes: int = 5, prior: Any = None) -> None:
    """Raise `ConformanceError` unless the mechanism is right as often as any epsilon-private one can be.

    Under each prior, the expected accuracy of its matrix must be max_k w_k to 1e-9 (see `RRWithPrior`).

    >>> import labeldp
    >>> check_optimal(labeldp.RRWithPrior(1.0), prior=[0.5, 0.3, 0.2], n_classes=3)
    """
    _run(Subject(mechanism=mechanism, n_classes=n_classes, prior=prior), (_OPTIMAL,))


def _run(subject: Subject, checks: tuple[Check, ...]) -> None:
    """Run the checks and raise once, with everything that was found."""
    found = {check: faults for check in checks if (faults := check.faults(subject))}
    if found:
        reports = [check.report(subject, faults) for check, faults in found.items()]
        message = f"{len(found)} of {len(checks)} checks failed\n" + "\n".join(reports)
        raise ConformanceError(message, failed=tuple(check.name for check in found))
