"""Mechanisms for labels that are numbers: amounts, durations, counts.

>>> spend = UnbiasedResponse(1.0, bounds=(0, 100), grid=5)
>>> channel = spend.channel()
>>> channel.levels.tolist(), channel.epsilon <= 1.0, bool(abs(channel.bias).max() < 1e-10)
([0.0, 25.0, 50.0, 75.0, 100.0], True, True)

A label lies within public bounds. It is rounded without bias to one of K even levels, and the level is answered with one of M
numbers v_o (`labeldp.channel.NumericChannel`). All mechanisms here are unbiased: whatever the label is, the mean of the answer
is the label, so that a learner with squared loss may take answers for labels. Answers must lie outside of the bounds for that:
those of any epsilon-private answer to a label at the bound have a mean inside of all answers.

| mechanism | T[level, output] | used as |
|---|---|---|
| `UnbiasedResponse` | the one with the least variance under a prior, by linear program | the choice |
| `LaplaceResponse` | discretised Laplace noise | a baseline |
| `BinnedResponse` | randomized response on k levels | a baseline |

**The program.** With E = e^epsilon, levels y and candidate answers v, find T and m >= 0 that

    minimise    sum_y p[y] sum_o T[y, o] (v_o - y)^2
    subject to  sum_o T[y, o] = 1,    sum_o v_o T[y, o] = y,    m_o <= T[y, o] <= E m_o.

The last says that T is epsilon-private, whatever m is. It is linear in (T, m), K M + M variables, and needs no list of 2^K
patterns. With T = m + D, 0 <= D <= (E - 1) m, there are K M inequalities. A vertex has at most 2 K answers: of its
2 K + K M basic variables each answer with m_o > 0 holds K + 1, each other one K.

How far answers reach: two answers at middle +- c, c = coth(epsilon / 2) half-ranges, are unbiased and private, and no answers
that all lie inside of them are. Candidates reach twice as far; more gained nothing (15 levels, epsilon from 0.1 to 8).

References: Duchi, Jordan, Wainwright 2013 and Wang et al. 2019 (two and three answers, worst case); Kairouz, Oh, Viswanath 2016
(staircase channels); Ghazi et al. 2023 (unbiased channels for regression by linear program).

Design notes. The solver is right to 1e-9, privacy must be right to the last bit and the mean to 1e-12. So the vertex is
computed again from which of its bounds are tight; T goes to its sampling grid and is moved towards saying nothing until the
grid's own epsilon is within the claim (`make_private`); then the numbers v are moved by the least that makes the means right.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labeldp.arrays import Floats
from labeldp.channel import NumericChannel, odds_to_keep, safe_odds
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms.optimal import make_private
from labeldp.mechanisms.response import Mechanism, check_width, read_distinct_priors
from labeldp.validate import check_choice, check_epsilon, check_integer, check_real

#: Levels that numbers are rounded to: rounding adds a six thousandth of the squared range, below a tenth of the noise up to
#: epsilon 5.
LEVELS = 33
#: Candidate answers of the program, besides the levels; four times as many gained a thousandth at epsilon 2.
ANSWERS = 65
#: Seconds at 65 x 129 (benchmarks/numeric_labels.py), and steeply more beyond.
MOST_LEVELS, MOST_ANSWERS = 129, 257
#: Distinct priors in one call: one linear program each.
MOST_PRIORS = 250
#: The share of the uniform prior in each prior: a number that was thought impossible still has an answer of finite variance.
MIX = 0.01
#: Programs are solved up to this epsilon: beyond it e^epsilon leaves the solver's range, and rounding is all the variance.
LARGEST = 16.0
#: Below it the squares of answers, which reach 1 / epsilon ranges far, near the largest float.
LEAST = 1e-100
#: Answers reach this many times as far as they must.
REACH = 2.0
#: Masses below this are the solver's tolerance, not answers.
NEGLIGIBLE = 1e-9
#: The mean of an answer is right to this share of the largest one: rounding of some hundred products, with room.
UNBIASED = 1e-12
#: Bounds whose numbers, or whose differences, would leave what floats can tell apart.
HUGE, NARROW = 1e150, 1e-9


def check_bounds(owner: str, bounds: Any) -> tuple[float, float]:
    """Return public bounds (low, high): two finite numbers, the smaller first, that floats can tell apart.

    >>> check_bounds("demo", (0, 10))
    (0.0, 10.0)
    """
    fix = "Two public numbers (low, high), known without the labels: never their own least and largest."
    if isinstance(bounds, (str, bytes)) or not hasattr(bounds, "__len__") or len(bounds) != 2:
        raise invalid(owner, "bounds", "be (low, high)", got=bounds, fix=fix)
    low, high = (check_real(owner, "bounds", bound, fix=fix) for bound in bounds)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise invalid(owner, "bounds", "be finite", got=Described(f"({low:g}, {high:g})"), fix=fix)
    if not low < high:
        raise invalid(owner, "bounds", "rise", got=Described(f"({low:g}, {high:g})"), fix="(low, high), low first.")
    if max(abs(low), abs(high)) > HUGE or high - low <= NARROW * max(abs(low), abs(high)):
        fix = f"Within {HUGE:g}, and further apart than {NARROW:g} of the larger one; take a public number off the labels."
        raise invalid(owner, "bounds", "be told apart by floats", got=Described(f"({low!r}, {high!r})"), fix=fix)
    return low, high


def choose_bounds(owner: str, bounds: Any, counts: Any) -> tuple[float, float] | None:
    """Return the public bounds of numbers, given as such or as counts: 0 .. C, or (first, last); None where none are given.

    >>> choose_bounds("demo", None, 4), choose_bounds("demo", None, (1, 5)), choose_bounds("demo", None, None)
    ((0.0, 4.0), (1.0, 5.0), None)
    """
    if bounds is not None and counts is not None:
        fix = "Counts are their own bounds: the first and the last."
        raise invalid(owner, "bounds", "be left out where counts are given", got=Described("both"), fix=fix)
    if counts is None:
        return None if bounds is None else check_bounds(owner, bounds)
    pair = (0, counts) if type(counts) is int else counts
    whole = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(type(one) is int for one in pair)
    if not whole or not 0 < pair[1] - pair[0] < MOST_LEVELS or max(map(abs, pair)) > 2**53:
        fix = f"Whole numbers, at most {MOST_LEVELS}: counts=4, counts=(0, 4), --counts 0..4. For more: bounds (--bounds)."
        raise invalid(
            owner, "counts", "be the largest count, or the first and the last", got=Described(f"{counts!r}"), fix=fix
        )
    return check_bounds(owner, pair)


@dataclass(frozen=True)
class NumericMechanism(Mechanism):
    """What mechanisms for numbers share: epsilon, bounds, the levels between them, and answers that are unbiased.

    A kind of its own says, for one prior over the levels, T and what its answers stand for (`design`).
    """

    takes_numbers: ClassVar[bool] = True
    most_priors: ClassVar[int | None] = MOST_PRIORS

    epsilon: float
    bounds: tuple[float, float] = field(kw_only=True)

    def __post_init__(self) -> None:
        owner = type(self).__name__
        object.__setattr__(self, "epsilon", check_epsilon(owner, self.epsilon))
        if self.epsilon == 0:
            raise invalid(owner, "epsilon", "be > 0", got=0.0, fix="No answer is unbiased without budget.")
        if self.epsilon < LEAST:
            fix = "Unbiased answers reach 1 / epsilon beyond the bounds: further than floats do."
            raise invalid(owner, "epsilon", f"be at least {LEAST:g}", got=self.epsilon, fix=fix)
        object.__setattr__(self, "bounds", check_bounds(owner, self.bounds))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    @property
    @abc.abstractmethod
    def n_classes(self) -> int:
        """The number of levels, K: what a prior has a column for."""

    @cached_property
    def levels(self) -> Floats:
        """The numbers that labels are rounded to, from the lower bound to the upper one."""
        return np.linspace(*self.bounds, self.n_classes)

    @abc.abstractmethod
    def design(self, prior: Floats) -> NumberDesign:
        """Return T and its answers for levels in [-1, 1], under one prior over the levels."""

    @abc.abstractmethod
    def most_answers(self) -> int:
        """How many answers a design has at most: every channel of one mechanism has that many outputs."""

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> NumericChannel:
        """Return one matrix for one prior, one per group, or one per distinct prior of the examples."""
        owner, size = type(self).__name__, self.n_classes
        if n_classes not in (None, size):
            raise invalid(owner, "n_classes", f"be {size}, the number of levels", got=n_classes)
        if prior is None:
            if groups is not None:
                raise invalid(owner, "groups", "be left out without a prior", got=Described("some"))
            rows, index = np.full((1, size), 1.0 / size), None
        elif not self.uses_prior:
            raise invalid(owner, "prior", "be left out: it would be ignored", got=Described("one"))
        else:
            rows, index = read_distinct_priors(owner, prior, groups, most=MOST_PRIORS)
            check_width(owner, rows.shape[1], size)
        designs = [self.design(row) for row in rows]
        width = self.most_answers()
        transition = np.zeros((len(rows), size, width))
        values = np.empty((len(rows), width))
        for group, design in enumerate(designs):
            answers = design.transition.shape[1]
            transition[group, :, :answers] = design.transition
            values[group] = self._state_answers(design, width)
        return NumericChannel(transition, levels=self.levels, values=values, index=index)

    def _state_answers(self, design: NumberDesign, width: int) -> Floats:
        """Return what outputs stand for, in units of the labels; those that never occur continue the list."""
        low, high = self.bounds
        middle, half = (low + high) / 2, (high - low) / 2
        values = correct_means(design.transition, middle + half * design.values, self.levels)
        more = values[-1] + (high - low) * np.arange(1, width - len(values) + 1)
        return np.concatenate([values, more])


class NumberDesign(NamedTuple):
    """A channel for levels in [-1, 1]: T (K, M), on its sampling grid and within epsilon; and what answers stand for."""

    transition: Floats
    values: Floats


@dataclass(frozen=True)
class UnbiasedResponse(NumericMechanism):
    """Answer a number with a number whose mean it is, of the least variance that epsilon allows under a prior.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in (0, inf].
    bounds : (low, high)
        Public: known without the labels. Labels outside are clipped by `SensitiveLabels`.
    grid : int or "integers"
        Number of even levels, bounds included; "integers" has one for each whole number: counts. At most 129.
    outputs : int
        Number of candidate answers, besides the levels.

    Guarantee
    ---------
    Pure epsilon when one label is replaced, and no one to trust: T[y, o] is between m_o and e^epsilon m_o for every level y, and
    a label between levels has a mixture of their rows; the integers that are drawn from are checked to keep it.

    Unbiased: sum_o T[y, o] v_o = y for every level, to 1e-12 of the largest answer, and so for every label between levels.
    Optimal: no epsilon-private unbiased answer that takes the candidate values has less variance under the prior.

    Assumes
    -------
    Bounds and prior did not see this label for free: they are public, or their own cost is composed with this one.

    Edge cases
    ----------
    epsilon = inf answers with the level itself: rounding is all that is left. Above 16 the channel of 16 is used, which promises
    more than is asked. epsilon = 0 is refused, and so is what is below 1e-100. A prior is mixed with a hundredth of the uniform one, so that a number that it
    thinks impossible has an answer of finite variance too. Without a prior all levels are equally likely. At most 250
    distinct priors in a call: pass `groups`.

    Example
    -------
    >>> import labeldp
    >>> mechanism = labeldp.UnbiasedResponse(2.0, bounds=(0, 5000))
    >>> release = labeldp.privatize([120.0, 4800.0, 0.0], mechanism, rng=0)
    >>> release.values.shape, release.guarantee.epsilon(), release.channel.n_outputs
    ((3,), 2.0, 66)
    """

    grid: int | str = field(default=LEVELS, kw_only=True)
    outputs: int = field(default=ANSWERS, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("UnbiasedResponse", self.grid, self.bounds)
        check_integer("UnbiasedResponse", "outputs", self.outputs, least=2, most=MOST_ANSWERS)

    @property
    def n_classes(self) -> int:
        """The number of levels, K."""
        return check_grid("UnbiasedResponse", self.grid, self.bounds)

    def most_answers(self) -> int:
        """Two conditions per level."""
        return 2 * self.n_classes

    def design(self, prior: Floats) -> NumberDesign:
        """Return the solved program, for levels in [-1, 1]."""
        mixed = (1 - MIX) * np.asarray(prior, np.float64) + MIX / len(prior)
        return solve_unbiased(self.epsilon, self.outputs, tuple((mixed / mixed.sum()).tolist()))


@dataclass(frozen=True)
class LaplaceResponse(NumericMechanism):
    """Add discretised Laplace noise to a number: T[y, o] ~ e^(-epsilon |o - y| / (high - low)), o on the grid beyond the bounds.

    The tails beyond four times the noise's scale (or 256 steps, if that is less) are folded into the last answers, whose
    numbers are then moved so that the mean stays right. Parameters, guarantee and edge cases are those of `UnbiasedResponse`,
    but it takes no prior. A baseline: at epsilon 2 its variance is more than twice the best one.

    >>> noisy = LaplaceResponse(2.0, bounds=(0, 1)).channel()
    >>> best = UnbiasedResponse(2.0, bounds=(0, 1)).channel()
    >>> bool(noisy.spread() > 2 * best.spread())
    True
    """

    uses_prior: ClassVar[bool] = False

    grid: int | str = field(default=LEVELS, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("LaplaceResponse", self.grid, self.bounds)

    @property
    def n_classes(self) -> int:
        """The number of levels, K."""
        return check_grid("LaplaceResponse", self.grid, self.bounds)

    def most_answers(self) -> int:
        """The levels, and the steps beyond them on both sides."""
        return self.n_classes + 2 * self._reach()

    def _reach(self) -> int:
        """How many steps beyond the bounds answers lie."""
        steps = self.n_classes - 1
        return min(256, math.ceil(4 * steps / min(self.epsilon, LARGEST)))

    def design(self, prior: Floats) -> NumberDesign:
        """Return the folded law of the noise."""
        size, reach = self.n_classes, self._reach()
        if math.isinf(self.epsilon):
            return reveal_levels(size)
        epsilon = min(self.epsilon, LARGEST)
        ratio = math.exp(-epsilon / (size - 1))
        places = np.arange(-reach, size + reach)
        law = (1 - ratio) / (1 + ratio) * ratio ** np.abs(places - np.arange(size)[:, None])
        # The sum of a tail from its first step on: ratio^k / (1 + ratio).
        law[:, 0] = ratio ** (np.arange(size) + reach) / (1 + ratio)
        law[:, -1] = law[::-1, 0]
        law /= law.sum(axis=1, keepdims=True)
        return NumberDesign(make_private(law, epsilon), 2.0 * places / (size - 1) - 1.0)


@dataclass(frozen=True)
class BinnedResponse(NumericMechanism):
    """Randomized response on k levels, decoded so that the mean is the label: v_o = (l_o - (1 - keep) middle) / keep.

    The label is rounded to a level without bias, kept with probability odds / (odds + k), odds = e^epsilon - 1, and else
    redrawn from all levels. The bins themselves would be pulled to the middle; what is answered here is not. It takes no prior.
    Guarantee and edge cases are those of `UnbiasedResponse`. A baseline.

    Parameters
    ----------
    epsilon, bounds
        As for `UnbiasedResponse`.
    bins : int, optional
        k, from 2 to 129. By default that with the least variance for numbers that are spread evenly.

    Example
    -------
    >>> BinnedResponse(1.0, bounds=(0, 1)).n_classes, BinnedResponse(6.0, bounds=(0, 1)).n_classes
    (3, 10)
    """

    uses_prior: ClassVar[bool] = False

    bins: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins is not None:
            check_integer("BinnedResponse", "bins", self.bins, least=2, most=MOST_LEVELS)

    @property
    def n_classes(self) -> int:
        """The number of levels, k."""
        if self.bins is not None:
            return self.bins
        return min(range(2, MOST_LEVELS + 1), key=lambda k: _binned_error(safe_odds(self.epsilon), k))

    def most_answers(self) -> int:
        """One for each level."""
        return self.n_classes

    def design(self, prior: Floats) -> NumberDesign:
        """Return the matrix of randomized response."""
        size = self.n_classes
        if math.isinf(self.epsilon):
            return reveal_levels(size)
        epsilon = min(self.epsilon, LARGEST)
        keep, redraw = (float(one) for one in odds_to_keep(safe_odds(epsilon), size))
        law = keep * np.eye(size) + redraw / size
        return NumberDesign(make_private(law, epsilon), np.linspace(-1, 1, size) / keep)


def _binned_error(odds: float, size: int) -> float:
    """Return the mean squared error of decoded bins for a label spread evenly over [-1, 1].

    E v^2 = sum of l^2 / size / keep^2 whatever the label is on average; less E l^2; and a sixth of a squared step for rounding.
    """
    keep = float(odds_to_keep(odds, size)[0])
    levels = np.linspace(-1, 1, size)
    # Rounding puts half a share on each end.
    share = np.full(size, 1.0 / (size - 1))
    share[[0, -1]] /= 2
    second = float(share @ levels**2)
    return (keep * second + (1 - keep) * float((levels**2).mean())) / keep**2 - 1.0 / 3.0


def check_grid(owner: str, grid: Any, bounds: tuple[float, float]) -> int:
    """Return the number of levels that a grid means between these bounds."""
    if isinstance(grid, str):
        check_choice(owner, "grid", grid, ("integers",))
        low, high = bounds
        if not (low.is_integer() and high.is_integer() and high - low < MOST_LEVELS):
            fix = f"At most {MOST_LEVELS} of them; or give grid= a number: rounding to fewer levels keeps the mean."
            raise invalid(owner, "grid", "have whole bounds", got=Described(f"({low:g}, {high:g})"), fix=fix)
        return int(high - low) + 1
    fix = 'Or "integers", for counts.'
    return check_integer(owner, "grid", grid, least=2, most=MOST_LEVELS, fix=fix)


def reveal_levels(size: int) -> NumberDesign:
    """Return the design that hides nothing."""
    return NumberDesign(np.eye(size), np.linspace(-1, 1, size))


# ------------------------------------------------------------------------------------------------ the program


@lru_cache(maxsize=4 * MOST_PRIORS)
def solve_unbiased(epsilon: float, outputs: int, prior: tuple[float, ...]) -> NumberDesign:
    """Solve the program of the module for even levels in [-1, 1]; the same one is asked for again by every part of a release."""
    size = len(prior)
    if math.isinf(epsilon):
        return reveal_levels(size)
    epsilon = min(epsilon, LARGEST)
    levels, answers = np.linspace(-1, 1, size), candidate_answers(epsilon, outputs, size)
    transition, chosen = find_best_rows(epsilon, levels, answers, np.asarray(prior))
    transition, values = make_private(transition, epsilon), answers[chosen]
    transition.flags.writeable = values.flags.writeable = False
    return NumberDesign(transition, values)


def candidate_answers(epsilon: float, outputs: int, size: int) -> Floats:
    """Return the numbers that may be answered to levels in [-1, 1]: an even grid, the two that suffice, and the levels."""
    least = 1.0 / math.tanh(epsilon / 2)
    even = np.linspace(-REACH * least, REACH * least, outputs)
    known = np.unique(np.concatenate([even, [-least, least], np.linspace(-1, 1, size)]))
    # Of two that are nearly one, the program would take both at half the weight.
    apart = np.concatenate([[True], np.diff(known) > 1e-6])
    answers: Floats = known[apart]
    return answers


def find_best_rows(epsilon: float, levels: Floats, answers: Floats, prior: Floats) -> tuple[Floats, Any]:
    """Return the optimal T (K, M), before it is made exactly private, and which candidates its answers are."""
    from scipy import sparse
    from scipy.optimize import linprog

    size, count = len(levels), len(answers)
    gain, scale = math.expm1(epsilon), float(np.abs(answers).max())
    scaled = answers / scale  # so that all coefficients are near one
    above = sparse.hstack([sparse.identity(size * count), -gain * sparse.vstack([sparse.identity(count)] * size)])
    each = sparse.identity(size)
    sums = sparse.hstack([sparse.kron(each, np.ones((1, count))), sparse.csr_matrix(np.ones((size, count)))])
    means = sparse.hstack([sparse.kron(each, scaled[None]), sparse.csr_matrix(np.tile(scaled, (size, 1)))])
    solved = linprog(
        np.concatenate([(prior[:, None] * scaled**2).ravel(), scaled**2]),
        A_ub=above.tocsr(),
        b_ub=np.zeros(size * count),
        A_eq=sparse.vstack([sums, means]).tocsr(),
        b_eq=np.concatenate([np.ones(size), levels / scale]),
        bounds=(0, None),
        method="highs-ds",
    )
    if solved.status != 0:
        raise LabelDPError(
            f"UnbiasedResponse: no answer was found ({solved.message}). Use more outputs, or another grid."
        )
    more, least = solved.x[: size * count].reshape(size, count), solved.x[size * count :]
    chosen = np.flatnonzero(least > NEGLIGIBLE * least.max())
    transition = sharpen_rows(more[:, chosen], least[chosen], gain, scaled[chosen], levels / scale)
    # Rows of the solver's own precision may sum to 1 + 1e-9, and exceed a bound by as much.
    transition = np.maximum(transition, transition.max(axis=0) / (1 + gain))
    return transition / transition.sum(axis=1, keepdims=True), chosen


def sharpen_rows(more: Floats, least: Floats, gain: float, answers: Floats, levels: Floats) -> Floats:
    """Return T = m + D at the vertex with these tight bounds, to full precision; the solver's own where that is none.

    Where D is 0 or (E - 1) m its bound is tight, and T is m or E m; the other D are unknown beside m. There are two equations
    for each level.
    """
    size, count = more.shape
    share = more / (gain * least)
    high, inside = share > 1 - 1e-6, (share >= 1e-6) & (share <= 1 - 1e-6)
    plain: Floats = least + more
    level, answer = np.nonzero(inside)
    base = np.where(high, 1 + gain, 1.0)
    matrix = np.zeros((2 * size, count + len(level)))
    matrix[:size, :count], matrix[size:, :count] = base, base * answers
    matrix[level, count + np.arange(len(level))] = 1.0
    matrix[size + level, count + np.arange(len(level))] = answers[answer]
    solution = np.linalg.lstsq(matrix, np.concatenate([np.ones(size), levels]), rcond=None)[0]
    found, extra = solution[:count], solution[count:]
    if found.min() <= 0 or (extra < 0).any() or (extra > gain * found[answer]).any():
        return plain
    exact: Floats = base * found
    exact[level, answer] += extra
    return exact


def correct_means(transition: Floats, values: Floats, levels: Floats) -> Floats:
    """Return the answers, moved by the least (in squares) that makes the mean right at every level.

    Raises `LabelDPError` where it is not right to 1e-12 of the largest answer then.
    """
    exact = transition.astype(np.longdouble)
    moved = np.asarray(values, np.float64)
    for _ in range(3):
        short = (levels - exact @ moved.astype(np.longdouble)).astype(np.float64)
        moved = moved + np.linalg.lstsq(transition, short, rcond=1e-8)[0]
    left = float(np.abs(levels - exact @ moved.astype(np.longdouble)).max())
    if not left <= UNBIASED * float(np.abs(moved).max()) or not np.all(np.diff(moved) > 0):
        raise LabelDPError(
            f"UnbiasedResponse: the mean misses a level by {left:g}. Use a larger epsilon, another grid or fewer outputs."
        )
    answer: Floats = moved
    return answer
