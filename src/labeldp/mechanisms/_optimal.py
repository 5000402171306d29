"""`OptimalResponse`: the best private channel for a purpose, by linear program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import FloatArray, check_epsilon, check_probability_rows
from labeldp.channel import MatrixChannel, check_row_index
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms._base import Mechanism
from labeldp.mechanisms._optimal_objectives import Accuracy, Objective
from labeldp.mechanisms._optimal_program import best_mixture, made_private, patterns
from labeldp.mechanisms._priors import check_n_classes, check_width, is_streamed

Floats = npt.NDArray[np.floating[Any]]

#: 2^K patterns: 1,023 at ten classes, milliseconds.
MOST_CLASSES = 10
#: Distinct priors in one call: one linear program each.
MOST_PRIORS = 1_000


@dataclass(frozen=True, kw_only=True, eq=False)
class ResponseDesign:
    """One solved program: T (K, M), what each output stands for, and the objective that T attains."""

    transition: Floats
    reports: Floats
    worth: float


@dataclass(frozen=True)
class OptimalResponse(Mechanism):
    """Randomize a label by the epsilon-private channel that is best for an objective, whatever its outputs are.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    objective : Objective
        `Accuracy` (the default), `MeanInformation` for ordered labels, or `UnbiasedReport`.

    Guarantee
    ---------
    Pure epsilon when one label is replaced: within an output, probabilities are theta or theta e^-epsilon, so two
    labels differ by a factor of e^epsilon at most; the integers that are drawn from are checked to keep it. No one is trusted.

    Optimality: no epsilon-private channel does better under the prior (`_optimal_program`); the solver stops within 1e-7.

    Assumes
    -------
    The prior did not see this label for free: it is public, or its own cost is composed with this one.

    Edge cases
    ----------
    epsilon = inf returns every label. epsilon = 0 is one constant output (an error for `UnbiasedReport`). Labels that
    the prior thinks impossible are randomized like all others. Without a prior all labels are equally likely. At most
    ten classes, and 1,000 distinct priors in a call: pass `groups`.

    Example
    -------
    >>> from labeldp.mechanisms import MeanInformation
    >>> stars = OptimalResponse(1.0, objective=MeanInformation(values=(1, 2, 3, 4, 5), spread=0.6))
    >>> stars.design([0.05, 0.1, 0.25, 0.35, 0.25]).transition.round(3).tolist()
    [[0.731, 0.269], [0.731, 0.269], [0.731, 0.269], [0.731, 0.269], [0.269, 0.731]]
    """

    epsilon: float
    objective: Objective = field(default_factory=Accuracy, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("OptimalResponse", self.epsilon))
        if not isinstance(self.objective, Objective):
            fix = "For example MeanInformation(values=(1, 2, 3, 4, 5))."
            raise invalid("OptimalResponse", "objective", "be an objective", got=self.objective, fix=fix)

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    def design(self, prior: Any) -> ResponseDesign:
        """Return the best channel under one prior, and what its outputs stand for."""
        law = check_probability_rows("OptimalResponse", "prior", np.atleast_2d(np.asarray(prior)))[0]
        self._check_classes(len(law))
        return _solved(self.epsilon, self.objective, tuple(law.tolist()))

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> MatrixChannel:
        """Return one matrix for one prior, one per group, or one per distinct prior of the examples."""
        if prior is None:
            size = check_n_classes("OptimalResponse", n_classes)
            prior = np.full(size, 1.0 / size)
        rows, index = self._rows(prior, groups)
        check_width("OptimalResponse", rows.shape[1], n_classes)
        designs = [self.design(row).transition for row in rows]
        whole = stacked(designs, least=self.objective.most_outputs(rows.shape[1]))
        return MatrixChannel(whole, index=index, outputs_are_labels=self.objective.reports_labels)

    def _rows(self, prior: Any, groups: Any) -> tuple[FloatArray, Any]:
        """Return the distinct priors, and which of them each example has; None if one serves all."""
        owner = "OptimalResponse"
        if is_streamed(prior):
            prior = np.concatenate([np.asarray(piece) for piece in prior])
        if np.ndim(prior) == 1 and groups is not None:
            raise invalid(owner, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
        rows = check_probability_rows(owner, "prior", np.atleast_2d(np.asarray(prior)))
        if np.ndim(prior) == 1:
            return rows, None
        index = np.arange(len(rows)) if groups is None else check_row_index(owner, "groups", groups, len(rows))
        if groups is None:
            rows, index = np.unique(rows, axis=0, return_inverse=True)
            index = index.reshape(-1)
        if len(rows) > MOST_PRIORS:
            fix = "Put similar priors into groups: each distinct prior is a linear program."
            raise invalid(owner, "prior", f"have at most {MOST_PRIORS:,} distinct rows", got=len(rows), fix=fix)
        return rows, index

    def _check_classes(self, n_classes: int) -> None:
        if n_classes > MOST_CLASSES:
            fix = "Use RRWithPrior, or merge classes into bins: there are 2^K patterns."
            raise invalid("OptimalResponse", "n_classes", f"be at most {MOST_CLASSES}", got=n_classes, fix=fix)
        self.objective.check_classes(n_classes)


@lru_cache(maxsize=4 * MOST_PRIORS)
def _solved(epsilon: float, objective: Objective, prior: tuple[float, ...]) -> ResponseDesign:
    """Solve one program; the same one is asked for again by every batch and every part of a release."""
    law = np.asarray(prior)
    if math.isinf(epsilon):
        return _identity(objective, law)
    columns = objective.columns(patterns(len(law), math.exp(-epsilon)), law)
    transition, chosen = best_mixture(columns)
    # theta is the largest entry of a column: patterns are at most one.
    worth = float(columns.gain[chosen] @ transition.max(axis=0))
    reports = columns.report[chosen]
    if objective.reports_labels:
        transition, reports = _merged(transition, reports.astype(np.intp)), np.arange(len(law), dtype=np.float64)
    return _frozen(made_private(transition, epsilon), reports, worth)


def _identity(objective: Objective, law: Floats) -> ResponseDesign:
    """Nothing is hidden: every label comes out as it is. Its worth is that of epsilon = 700, the same to 300 digits."""
    singles, reports = np.eye(len(law)), objective.reports_of_labels(len(law))
    columns = objective.columns(patterns(len(law), math.exp(-700.0)), law)
    weights = best_mixture(columns)
    worth = float(columns.gain[weights[1]] @ weights[0].max(axis=0))
    return _frozen(singles, reports, worth)


def _frozen(transition: Floats, reports: Floats, worth: float) -> ResponseDesign:
    """Return a design that a cache may share: its arrays cannot be written."""
    transition.flags.writeable = reports.flags.writeable = False
    return ResponseDesign(transition=transition, reports=reports, worth=worth)


def _merged(transition: Floats, reports: npt.NDArray[np.intp]) -> Floats:
    """Return outputs that stand for one label as one output, a column per label: a function of the output is free."""
    whole = np.zeros((len(transition), len(transition)))
    np.add.at(whole.T, reports, transition.T)
    return whole


def stacked(transitions: list[Floats], *, least: int = 1) -> Floats:
    """Return matrices with as many outputs as the largest has; outputs that a group never gives have probability zero.

    With `least` outputs at least, so that one mechanism has the same outputs whatever the priors are.
    """
    most = max(least, *(matrix.shape[1] for matrix in transitions))
    whole = np.zeros((len(transitions), transitions[0].shape[0], most))
    for group, matrix in enumerate(transitions):
        whole[group, :, : matrix.shape[1]] = matrix
    return whole
