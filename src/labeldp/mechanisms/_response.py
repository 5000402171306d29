"""Randomized response within candidate sets: what RRTop-k and RRWithPrior share."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from labeldp._validate import FloatArray, as_float_matrix
from labeldp.channel import CandidateChannel, Channel, check_row_index, odds_to_keep, safe_odds
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms._base import Mechanism
from labeldp.mechanisms._priors import batches_of, check_width, is_streamed
from labeldp.mechanisms._select import CandidateSets


class CandidateResponse(Mechanism):
    """Choose candidate labels from the prior, then respond at random within them.

    A subclass says which candidates; epsilon is the same whatever they are, as long as the choice does not look at the
    label.
    """

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    @abc.abstractmethod
    def candidates(self, prior: FloatArray, *, first_row: int = 0) -> CandidateSets:
        """Return the candidate set of each row of the prior."""

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        """Return the channel: one row for one prior, a row per group, or a candidate set per example."""
        owner = type(self).__name__
        if prior is None:
            prior = self._prior_when_none(n_classes)
        if is_streamed(prior) and groups is not None:
            raise invalid(owner, "groups", "be left out when the prior comes in batches", got=Described("both"))
        if is_streamed(prior) or (np.ndim(prior) == 2 and groups is None):
            return self._per_example(owner, prior, n_classes)
        rows = as_float_matrix(owner, "prior", np.atleast_2d(np.asarray(prior)))
        check_width(owner, rows.shape[1], n_classes)
        if np.ndim(prior) == 1 and groups is not None:
            raise invalid(owner, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
        return self._shared(rows, groups)

    def _per_example(self, owner: str, prior: Any, n_classes: int | None) -> CandidateChannel:
        pieces: list[CandidateSets] = []
        done, width = 0, 0
        for matrix in batches_of(owner, prior, n_classes):
            pieces.append(self.candidates(matrix, first_row=done))
            done, width = done + len(matrix), matrix.shape[1]
        whole = pieces[0]
        if len(pieces) > 1:
            whole = CandidateSets(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        odds = safe_odds(self.epsilon)
        return CandidateChannel.trusted(odds=odds, members=whole.members, sizes=whole.sizes, n_classes=width)

    def _shared(self, rows: FloatArray, groups: Any) -> Channel:
        sets = self.candidates(rows)
        keep, redraw = odds_to_keep(safe_odds(self.epsilon), sets.sizes)
        base = sets.unpacked(rows.shape[1]) / sets.sizes[:, None].astype(np.float64)
        index = None if groups is None else check_row_index(type(self).__name__, "groups", groups, len(rows))
        return Channel(keep=keep, redraw=redraw, base=base, index=index)

    def _prior_when_none(self, n_classes: int | None) -> FloatArray:
        fix = "Pass prior=, one row of class probabilities for all or one per example."
        raise invalid(type(self).__name__, "prior", "be given", got=None, fix=fix)
