"""Expected label accuracy against epsilon: what this release would keep at another budget, by the library's channels.

>>> import labeldp
>>> release = labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=0)
>>> [series.name for series in families(release)]
['randomized response']

Design notes. Three families, as far as a release's public facts reach. Randomized response needs the number of classes
alone. With a released prior, RRWithPrior is built on each of its rows at each epsilon, and rows weigh as many examples
as they have. With a candidate set of each example's own, the sets stay as they are and only the odds change: the
accuracy is then that of a label which is among its candidates, E / (E + k - 1).
"""

from __future__ import annotations

import math

import numpy as np

from labeldp.channel import CandidateChannel, odds_to_keep, safe_odds
from labeldp.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.release import Release
from labeldp.report._rates import spread
from labeldp.report._values import Series

EPSILONS = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
#: Rows of a released prior that are asked about, evenly spaced: a thousand give the mean to a few in a thousand.
MOST_ROWS = 1_000


def families(release: Release) -> tuple[Series, ...]:
    """Return a line per family, in percent, at `EPSILONS` and at the epsilon of the release's own channel."""
    own = release.channel.epsilon
    # Channels round down: an epsilon of 1 is a hair below it, and needs no place of its own.
    near = any(math.isclose(own, place, rel_tol=1e-6) for place in EPSILONS)
    places = sorted({*EPSILONS, *([own] if 0 < own < math.inf and not near else [])})
    found = [_series("randomized response", places, [_plain(release, epsilon) for epsilon in places])]
    if release.prior is not None and release.prior_index is not None:
        values = _with_prior(release, places)
        found.append(_series("randomized response with the released prior", places, values))
    elif isinstance(release.channel, CandidateChannel):
        values = _within_sets(release.channel, places)
        found.append(_series("within the candidate sets, if the label is in its set", places, values))
    return tuple(found)


def _series(name: str, places: list[float], shares: list[float]) -> Series:
    return Series(name=name, x=tuple(places), y=tuple(100 * share for share in shares))


def _plain(release: Release, epsilon: float) -> float:
    return float(RandomizedResponse(epsilon, n_classes=release.n_classes).channel().expected_accuracy())


def _with_prior(release: Release, places: list[float]) -> list[float]:
    """Return the expected accuracy of RRWithPrior on the released rows, weighed by their examples."""
    assert release.prior is not None
    assert release.prior_index is not None
    rows = spread(len(release.prior), MOST_ROWS)
    weights = np.bincount(release.prior_index, minlength=len(release.prior))[rows].astype(np.float64)
    prior = release.prior[rows]
    shares = []
    for epsilon in places:
        right = RRWithPrior(epsilon).channel(prior).expected_accuracy(prior)
        shares.append(float(np.average(right, weights=weights if weights.sum() else None)))
    return shares


def _within_sets(channel: CandidateChannel, places: list[float]) -> list[float]:
    """Return the mean of keep + redraw / k over the sizes k of the candidate sets, at each epsilon."""
    counts = np.bincount(channel.sizes)
    sizes = np.flatnonzero(counts)
    found = []
    for epsilon in places:
        keep, redraw = odds_to_keep(safe_odds(epsilon), sizes)
        found.append(float(np.average(keep + redraw / sizes, weights=counts[sizes])))
    return found
