"""`OptimalResponse`: the best private channel for a purpose, by linear program.

>>> optimal = OptimalResponse(1.0, objective=UnbiasedReport(values=(1, 2, 3)))
>>> design = optimal.design([0.2, 0.5, 0.3])
>>> (design.transition @ design.reports).round(6).tolist()
[1.0, 2.0, 3.0]

**The program.** Every extreme epsilon-private channel is a mixture of staircase patterns S in {e^-epsilon, 1}^K, one
output each (Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016, Theorem 2).
With weights theta >= 0 and T[y, o] = theta_o S_o[y], rows that sum to one are K linear equations, and a gain that is a
sum over outputs of a sublinear function of their columns is linear in theta.

**What a channel may be best for.**

| objective | gain of an output with pattern S, under a prior p | an output stands for |
|---|---|---|
| `Accuracy` | max_y p[y] S[y]: the chance that the best guess is right | a label |
| `MeanInformation` | (S.dp)^2 / (S.p): Fisher information about the mean | its posterior mean |
| `UnbiasedReport` | - sum_y p[y] S[y] (g - v[y])^2, with E[g] = v[y] for every y | a number g |

The first two are sublinear in S (a maximum of linear forms; a quadratic over a linear form), so mixtures of staircase
patterns reach their optimum; for the third, outputs with one report and any columns are mixtures of patterns with it.

**Laws with a given mean.** `MeanInformation` needs to know how the law of an ordered label changes with its mean: it tilts
the prior (`labeldp.channel.means`).

Design notes. The solver is right to 1e-9, privacy must be right to the last bit. So the vertex is computed again from
its support, rows are divided by their sums, and then T moves towards the channel that says nothing, (1 - s) T + s 1 q',
by the least s of a doubling search at which the channel on its sampling grid keeps epsilon. s is some 1e-15.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labeldp.arrays import Floats, Places
from labeldp.channel import MatrixChannel, slopes, tilted_laws
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms.response import Mechanism, check_n_classes, check_width, read_distinct_priors
from labeldp.validate import check_epsilon, check_integer, check_positive, check_probability_rows, check_real

#: 2^K patterns: 1,023 at ten classes, milliseconds.
MOST_CLASSES = 10
#: From this epsilon on a program is that of this one.
CERTAIN = 700.0
#: Distinct priors in one call: one linear program each.
MOST_PRIORS = 1_000
#: Gauss-Hermite nodes that average over where the mean may be: exact for polynomials of degree 17.
_NODES = 9
#: A matrix may be over its epsilon by this much and still be called rounded: the solver meets its equations to 1e-7, which moves a
#: ratio of two entries by twice that; the arithmetic after it, by 1e-14.
ROUNDING = 1e-6
#: Weights below this are the solver's tolerance, not outputs.
_NEGLIGIBLE = 1e-8


class Objective(abc.ABC):
    """A purpose: the columns that may be mixed and what each gains."""

    #: Whether outputs stand for labels, so that those with one report are one output.
    reports_labels: bool = False

    @abc.abstractmethod
    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Return the candidate outputs for these patterns under a prior."""

    @abc.abstractmethod
    def reports_of_labels(self, n_classes: int) -> Floats:
        """Return what each label is reported as when nothing is hidden."""

    @abc.abstractmethod
    def check_classes(self, n_classes: int) -> None:
        """Refuse a number of classes that the objective does not fit."""

    def most_outputs(self, n_classes: int) -> int:
        """Return how many outputs an optimum may need: a vertex has as many as there are conditions, one per label."""
        return n_classes


@dataclass(frozen=True, kw_only=True)
class Accuracy(Objective):
    """The chance that the output is the label: what RRWithPrior is best for (Ghazi et al. 2021, Theorem 3)."""

    reports_labels = True

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Guess the likeliest label of each pattern."""
        joint = pattern * prior
        return _unconditional_columns(pattern, joint.argmax(axis=1).astype(np.float64), joint.max(axis=1))

    def reports_of_labels(self, n_classes: int) -> Floats:
        """Each label is itself."""
        return np.arange(n_classes, dtype=np.float64)

    def check_classes(self, n_classes: int) -> None:
        """Any number fits."""


@dataclass(frozen=True, kw_only=True)
class _NumericObjective(Objective):
    """An objective for labels that are numbers; `values` are public, rising, in the order of the classes."""

    values: Sequence[float]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        numbers = tuple(check_real(owner, "values", value) for value in self.values)
        if len(numbers) < 2 or not all(a < b for a, b in pairwise(numbers)):
            raise invalid(owner, "values", "be two or more rising numbers, one per class", got=Described(repr(numbers)))
        if not all(math.isfinite(number) for number in numbers):
            raise invalid(owner, "values", "be finite", got=Described(repr(numbers)))
        object.__setattr__(self, "values", numbers)

    def reports_of_labels(self, n_classes: int) -> Floats:
        """Each label is its value."""
        return np.asarray(self.values)

    def check_classes(self, n_classes: int) -> None:
        """There must be a value per class."""
        if len(self.values) != n_classes:
            got = Described(f"{len(self.values)} for {n_classes} classes")
            raise invalid(type(self).__name__, "values", "have one entry per class", got=got)


@dataclass(frozen=True, kw_only=True)
class MeanInformation(_NumericObjective):
    """Fisher information about the mean of ordered labels, where the prior is right about the shape of their law.

    Parameters
    ----------
    values : sequence of rising numbers
        What the classes are worth, in their order (1, 2, 3, 4, 5 stars).
    spread : float
        How uncertain the prior's mean m is: the information is averaged over means m + spread z, z standard normal,
        each with the tilt of the prior that has it (`tilted_laws`).

    Notes
    -----
    An output o of pattern S has Pr[o] = theta S.p(m), whose derivative in m is theta S.dp, so that it adds
    theta (S.dp)^2 / (S.p) to the information. A prior that is a point says nothing of a shape: a flat one stands in.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        spread = check_real("MeanInformation", "spread", self.spread)
        if not (spread >= 0 and math.isfinite(spread)):
            raise invalid("MeanInformation", "spread", "be finite and >= 0", got=self.spread)
        object.__setattr__(self, "spread", spread)

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Average the information over the quadrature nodes; report the posterior mean under the prior."""
        values = np.asarray(self.values)
        law = prior if np.count_nonzero(prior) > 1 else np.full(len(prior), 1.0 / len(prior))
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES if self.spread > 0 else 1)
        laws = tilted_laws(law, values, law @ values + self.spread * nodes)
        chance, change = pattern @ laws.T, pattern @ slopes(laws, values).T
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(chance > 0, change**2 / chance, 0.0) @ (weights / weights.sum())
        mass = pattern @ law
        with np.errstate(divide="ignore", invalid="ignore"):
            report = np.where(mass > 0, pattern @ (law * values) / mass, law @ values)
        return _unconditional_columns(pattern, report, gain)


@dataclass(frozen=True, kw_only=True)
class UnbiasedReport(_NumericObjective):
    """The least variance, under the prior, of a number whose mean is the label's value whatever the label is.

    Parameters
    ----------
    values : sequence of rising numbers
        What the classes are worth, in their order.
    reach : float, optional
        How far from the middle of the values a report may lie, in half-ranges. By default 3 coth(epsilon / 2), three
        times what two-point randomized response needs: with reports middle +- a half-range, a coth(epsilon / 2) half-range
        is the least that makes it unbiased.
    n_reports : int
        Size of the grid of reports, besides the values themselves.
    """

    reach: float | None = None
    n_reports: int = 121

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reach is not None:
            check_positive("UnbiasedReport", "reach", self.reach)
        check_integer("UnbiasedReport", "n_reports", self.n_reports, least=2)

    def columns(self, pattern: Floats, prior: Floats) -> Columns:
        """Pair every pattern with every report; two conditions per label: rows sum to one and reports are unbiased."""
        values, grid = np.asarray(self.values), self.report_grid(float(pattern.min()))
        rows = np.repeat(pattern, len(grid), axis=0)
        report = np.tile(grid, len(pattern))
        cost = ((report[:, None] - values) ** 2 * rows) @ prior
        return Columns(rows, report, -cost, (rows * report[:, None]).T, values)

    def most_outputs(self, n_classes: int) -> int:
        """Two conditions per label."""
        return 2 * n_classes

    def report_grid(self, least: float) -> Floats:
        """Return the numbers that may be reported: an even grid over the reach, and the values; `least` is e^-epsilon."""
        low, high = self.values[0], self.values[-1]
        if least >= 1:
            raise invalid("UnbiasedReport", "epsilon", "be > 0", got=0.0, fix="No report is unbiased without budget.")
        reach = 3.0 * (1 + least) / (1 - least) if self.reach is None else self.reach
        half = reach * (high - low) / 2
        return np.union1d(np.linspace((low + high) / 2 - half, (low + high) / 2 + half, self.n_reports), self.values)


def _unconditional_columns(pattern: Floats, report: Floats, gain: Floats) -> Columns:
    """Columns without further conditions."""
    return Columns(pattern, report, gain, np.empty((0, len(pattern))), np.empty(0))


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

    Optimality: no epsilon-private channel does better under the prior (the module says why); the solver stops within 1e-7.

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

    most_priors: ClassVar[int | None] = MOST_PRIORS

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
        # e^-epsilon is no float far above: the best channel of less epsilon keeps more of it, and is the same to 300 digits.
        epsilon = self.epsilon if math.isinf(self.epsilon) else min(self.epsilon, CERTAIN)
        return _solve_program(epsilon, self.objective, tuple(law.tolist()))

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> MatrixChannel:
        """Return one matrix for one prior, one per group, or one per distinct prior of the examples."""
        if prior is None:
            size = check_n_classes("OptimalResponse", n_classes)
            prior = np.full(size, 1.0 / size)
        rows, index = read_distinct_priors("OptimalResponse", prior, groups, most=MOST_PRIORS)
        check_width("OptimalResponse", rows.shape[1], n_classes)
        designs = [self.design(row).transition for row in rows]
        whole = stack_transitions(designs, least=self.objective.most_outputs(rows.shape[1]))
        return MatrixChannel(whole, index=index, outputs_are_labels=self.objective.reports_labels)

    def _check_classes(self, n_classes: int) -> None:
        if n_classes > MOST_CLASSES:
            fix = "Use RRWithPrior, or merge classes into bins: there are 2^K patterns."
            raise invalid("OptimalResponse", "n_classes", f"be at most {MOST_CLASSES}", got=n_classes, fix=fix)
        self.objective.check_classes(n_classes)


@lru_cache(maxsize=4 * MOST_PRIORS)
def _solve_program(epsilon: float, objective: Objective, prior: tuple[float, ...]) -> ResponseDesign:
    """Solve one program; the same one is asked for again by every batch and every part of a release."""
    law = np.asarray(prior)
    if math.isinf(epsilon):
        return _reveal_labels(objective, law)
    columns = objective.columns(staircase_patterns(len(law), math.exp(-epsilon)), law)
    transition, chosen = find_best_mixture(columns)
    # theta is the largest entry of a column: patterns are at most one.
    worth = float(columns.gain[chosen] @ transition.max(axis=0))
    reports = columns.report[chosen]
    if objective.reports_labels:
        transition, reports = _merge_reports(transition, reports.astype(np.intp)), np.arange(len(law), dtype=np.float64)
    return _freeze_design(make_private(transition, epsilon), reports, worth)


def _reveal_labels(objective: Objective, law: Floats) -> ResponseDesign:
    """Nothing is hidden: every label comes out as it is. Its worth is that of epsilon = 700, the same to 300 digits."""
    singles, reports = np.eye(len(law)), objective.reports_of_labels(len(law))
    columns = objective.columns(staircase_patterns(len(law), math.exp(-CERTAIN)), law)
    weights = find_best_mixture(columns)
    worth = float(columns.gain[weights[1]] @ weights[0].max(axis=0))
    return _freeze_design(singles, reports, worth)


def _freeze_design(transition: Floats, reports: Floats, worth: float) -> ResponseDesign:
    """Return a design that a cache may share: its arrays cannot be written."""
    transition.flags.writeable = reports.flags.writeable = False
    return ResponseDesign(transition=transition, reports=reports, worth=worth)


def _merge_reports(transition: Floats, reports: Places) -> Floats:
    """Return outputs that stand for one label as one output, a column per label: a function of the output is free."""
    whole = np.zeros((len(transition), len(transition)))
    np.add.at(whole.T, reports, transition.T)
    return whole


def stack_transitions(transitions: list[Floats], *, least: int = 1) -> Floats:
    """Return matrices with as many outputs as the largest has; outputs that a group never gives have probability zero.

    With `least` outputs at least, so that one mechanism has the same outputs whatever the priors are.
    """
    most = max(least, *(matrix.shape[1] for matrix in transitions))
    whole = np.zeros((len(transitions), transitions[0].shape[0], most))
    for group, matrix in enumerate(transitions):
        whole[group, :, : matrix.shape[1]] = matrix
    return whole


class Columns(NamedTuple):
    """Candidate outputs: their pattern (J, K), what each is reported as, what a unit of its weight gains.

    `equations` (E, J) and `right` (E,) are conditions on the weights besides those of the rows.
    """

    pattern: Floats
    report: Floats
    gain: Floats
    equations: Floats
    right: Floats


def staircase_patterns(n_classes: int, least: float) -> Floats:
    """Return the staircase patterns with entries `least` and 1; the constant one once."""
    numbers = np.arange(1, 1 << n_classes)
    high = (numbers[:, None] >> np.arange(n_classes)) & 1
    answer: Floats = np.where(high == 1, 1.0, least)
    return answer


def find_best_mixture(columns: Columns) -> tuple[Floats, Places]:
    """Return the optimal channel (K, M) before it is made exactly private, and which columns are its outputs."""
    from scipy.optimize import linprog

    conditions = np.vstack([columns.pattern.T, columns.equations])
    right = np.concatenate([np.ones(columns.pattern.shape[1]), columns.right])
    solved = linprog(-columns.gain, A_eq=conditions, b_eq=right, bounds=(0, None), method="highs")
    if solved.status != 0:
        raise LabelDPError(f"OptimalResponse: no channel meets the objective ({solved.message}). Widen its reports.")
    chosen = np.flatnonzero(solved.x > _NEGLIGIBLE)
    theta = _sharpen_vertex(conditions[:, chosen], right, solved.x[chosen])
    transition = (columns.pattern[chosen] * theta[:, None]).T
    return transition / transition.sum(axis=1, keepdims=True), chosen


def _sharpen_vertex(conditions: Floats, right: Floats, theta: Floats) -> Floats:
    """Return the vertex with this support to full precision, or the solver's where that has a negative weight."""
    exact: Floats = np.linalg.lstsq(conditions, right, rcond=None)[0]
    return exact if exact.min() > 0 else theta


def make_private(transition: Floats, epsilon: float) -> Floats:
    """Return a matrix on the grid from which labels are drawn, moved towards saying nothing until it keeps epsilon exactly.

    A matrix that spends all of epsilon in exact arithmetic may exceed it by rounding. Each row is mixed with the mean of all rows,
    by 2^-52 first and twice as much each time; a matrix that was meant to be private needs a few units in the last place, or what
    the grid does to entries near 2^-52. A matrix whose own epsilon is over by more than `ROUNDING` was made for another budget, and
    is refused: moved until it fits it would be another mechanism, under the name of the one that was meant.

    Parameters
    ----------
    transition : array of shape (K, M)
        Probabilities of outputs (columns) for each label (rows).
    epsilon : float
        The largest log-ratio within a column that is allowed.

    Raises
    ------
    PrivacyError
        If the matrix, as it is given, exceeds epsilon by more than `ROUNDING`; the message has its own epsilon.

    Example
    -------
    >>> flip = np.array([[math.e, 1.0], [1.0, math.e]]) / (1 + math.e)
    >>> MatrixChannel(flip).epsilon <= 1.0, MatrixChannel(make_private(flip, 1.0)).epsilon <= 1.0
    (False, True)
    """
    budget = check_epsilon("make_private", epsilon)
    transition = check_probability_rows("make_private", "transition", np.asarray(transition, np.float64))
    own = _log_ratio(transition)
    if own > budget + ROUNDING:
        fix = "Make it for this epsilon, or claim what it spends: more than rounding is not mended here."
        must = f"keep epsilon {budget:.6g}, up to rounding"
        raise invalid(
            "make_private", "transition", must, got=Described(f"one of {own:.6g}"), fix=fix, kind=PrivacyError
        )
    silent = np.broadcast_to(transition.mean(axis=0), transition.shape)
    share = 0.0
    while share < 1.0:
        channel = MatrixChannel((1.0 - share) * transition + share * silent)
        if channel.epsilon <= budget:
            kept: Floats = channel.transition[0]
            return kept
        share = max(2.0 * share, math.ldexp(1.0, -52))
    nothing: Floats = MatrixChannel(silent).transition[0]
    return nothing


def _log_ratio(transition: Floats) -> float:
    """Return the largest log-ratio within a column of a matrix as it is, before the grid; infinite where a zero is beside more."""
    high, low = transition.max(axis=0), transition.min(axis=0)
    with np.errstate(divide="ignore"):
        return float(np.log(high[high > 0] / low[high > 0]).max())
