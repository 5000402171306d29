r"""The study `excess-risk`: measured excess risk against dimension, examples, epsilon and classes, beside the bounds.

On a synthetic problem whose best model is known it asks two questions: does the risk of label-private learning depend on
the dimension p, from 10 to 100,000, as DP-SGD's does; and where do the measured numbers lie between the papers' upper and
lower bounds?

>>> [sweep.symbol for sweep in SWEEPS], SWEEPS[0].points[-1]
(['p', 'n', 'epsilon', 'K'], 100000)

**The problem.** Sparse rows of norm 1 in any dimension, labels from a softmax model. Five coordinates carry the label and
are +-1/sqrt(10) in every row; of the p - 5 others a random block of five is +-1/sqrt(10). A row has ten entries whatever p
is. The model's parameter theta is in the ball and minimises the population log loss, since that loss is proper; so for any
weights w

    risk(w) - risk(theta) = E_x KL( softmax(theta x) || softmax(w x) ),

which needs no draws of labels, and a mean over rows only.

>>> problem = Problem(n_features=1000, n_classes=3)
>>> X, y = problem.draw(200, seed=0)
>>> X.shape, X.nnz, round(problem.excess(problem.probabilities(X), X), 6)
((200, 1000), 2000, 0.0)

**The bounds** are those of the papers as functions, with their constants. All are about minimising E loss(w; x, y) over a
ball of diameter D, the loss convex and L-Lipschitz in w, from n independent examples seen once, b at a time. The upper
bounds rest on Shamir & Zhang 2013, Theorem 2: if E|g|^2 <= G^2, T steps of length c / sqrt t end within
(D^2/c + c G^2)(2 + log T) / sqrt T of the best; c = D/G makes it 2 D G (2 + log T) / sqrt T. That is of the last iterate. The
mean of those after T/2, by convexity, is within sqrt 2 times as much.

>>> [round(theorem_9(n, epsilon=1.0, n_classes=2, diameter=20.0), 2) for n in (10**4, 10**6)]
[9.7, 1.37]

**The learners** are those of the theorems as their theorems run them, and DP-SGD three ways. The label-private walks make one
pass over the data in small batches, within the ball. DP-SGD has the step of the theory, which shrinks with the root of p once
noise outweighs gradients; the same, projected on the ball that the problem allows (post-processing); and a step that ignores
p and the ball.

>>> [method.name for method in METHODS if method.unit == "record"]
['DP-SGD (record)', 'DP-SGD in the ball (record)', 'DP-SGD, step blind to p (record)']

References: Ghazi et al. 2021, supplement F (Theorem 9, Corollary 10, Propositions 11 and 12) and G (Theorem 17); Shamir, Zhang,
"Stochastic Gradient Descent for Non-smooth Optimization" (2013); Bartlett, Mendelson 2002 (Rademacher complexity); Bassily,
Feldman, Talwar, Thakurta 2019; Song, Steinke, Thakkar, Thakurta, "Evading the Curse of Dimensionality in Unconstrained
Private GLMs" (2021).

Design notes. The supplement's O(..) hide constants; these are the ones that its proofs give, with the tighter moments that
the learners use. Its lower bound hides a constant and a logarithm that its proof does not state: only its rate is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from scipy.special import softmax

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.arrays import Floats, Int64s
from labeldp.learn import LPRRSGD, LPNormalSGD, OutputPerturbation
from labeldp.priors import PublicPrior
from labeldp.report import Lines, Plot, Series
from studies.adult_learners import make_private_sgd, need_opacus
from studies.study import Measurement, Study, StudyRow

QUICK_ROWS = 500
#: Rows over which the divergence is averaged; drawn apart from all training rows.
TEST_ROWS, TEST_SEED = 20_000, 1_000_000
#: The unit of the tables: thousandths of a nat.
SCALE = 1000.0
#: Coordinates that carry the label, and as many that do not, in every row.
SIGNAL = 5
#: The norm of theta, below the radius D/2 of the ball.
SIZE = 8.0
DIAMETER = 20.0
#: A share of probability below this counts as this: the excess stays finite.
LEAST = 1e-12
DELTA = 1e-5
#: Examples to a step of the label-private walks, and the candidates that a prior leaves.
BATCH, CANDIDATES = 10, 2
#: DP-SGD: one pass in batches of 250. Its step blind to p is that of p = 0 without noise.
PASSES, RECORD_BATCH = 1, 250
RESPONSE, PRIOR, NORMAL = "LP-RR-SGD", "LP-RR-SGD, top 2", "LP-Normal-SGD"
RECORD, IN_BALL, BLIND = "DP-SGD (record)", "DP-SGD in the ball (record)", "DP-SGD, step blind to p (record)"
#: The lines of the plots: with the bounds, more could not be told apart. The tables have all.
DRAWN = (RESPONSE, PRIOR, NORMAL, RECORD, IN_BALL)
LOWER, UPPER = "rate of Proposition 12", "Theorem 17 (corrected), x 2"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where the four quantities stand."""

    p: int
    n: int
    epsilon: float
    K: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One quantity is varied over `points`; the others stay at `base`."""

    symbol: str
    points: tuple[float, ...]
    base: Point

    def at(self, value: float) -> Point:
        """Return the point with the varied quantity at this value."""
        named: dict[str, Any] = {self.symbol: value}
        return replace(self.base, **named)

    @property
    def title(self) -> str:
        """Name the sweep and what stays."""
        rest = [f"{name} = {getattr(self.base, name):,}" for name in ("p", "n", "epsilon", "K") if name != self.symbol]
        return f"against {self.symbol} ({', '.join(rest)})"


BASE = Point(p=1_000, n=10_000, epsilon=1.0, K=2)
SWEEPS = (
    Sweep(symbol="p", points=(10, 100, 1_000, 10_000, 100_000), base=BASE),
    Sweep(symbol="n", points=(1_000, 3_000, 10_000, 30_000, 100_000), base=BASE),
    Sweep(symbol="epsilon", points=(0.1, 0.25, 0.5, 1.0, 2.0), base=BASE),
    Sweep(symbol="K", points=(2, 4, 8, 16), base=BASE),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point of a sweep: all methods that take part in the sweep are measured on the same data."""

    sweep: Sweep
    value: float

    @property
    def name(self) -> str:
        """The point, and what stays."""
        return f"{self.sweep.symbol} = {self.value:,}, {self.sweep.title}"


class ExcessRisk(Study[Case]):
    """Four sweeps around one point; eight learners; five bounds: a few minutes, half of them for p = 100,000."""

    name: ClassVar[str] = "excess-risk"
    title: ClassVar[str] = "Excess risk against dimension, examples, epsilon and classes, beside the bounds"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), supplement F: not a measured value but the upper bound, of "
        "Theorem 9 (LP-RR-SGD), Corollary 10 (top 2) or Proposition 11 (LP-Normal-SGD), with the constants of its proof"
    )
    measure: ClassVar[str] = "excess population risk, nats / 1000"
    needs: ClassVar[str] = "PyTorch and opacus"
    default_seeds: ClassVar[int] = 3

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The sweeps of this run."""
        return tuple(_shorten(sweep) for sweep in SWEEPS) if self.quick else SWEEPS

    def cases(self) -> Sequence[Case]:
        """Every point of every sweep."""
        need_opacus()
        return [Case(sweep=sweep, value=value) for sweep in self.sweeps for value in sweep.points]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit every method of the sweep at one point, all on the same data, and return the excess risk of each."""
        return measure_point(case.sweep, case.value, seed)

    def facts(self) -> dict[str, Any]:
        """The ball, the test rows and the points."""
        return {
            "diameter of the ball": DIAMETER,
            "rows of the test mean": TEST_ROWS,
            "points": {sweep.symbol: list(sweep.points) for sweep in self.sweeps},
            "the other three, where one is varied": repr(self.sweeps[0].base),
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say how the risk grows with the dimension, how far it is from the bounds, and what the rows do not show."""
        by_symbol = {sweep.symbol: sweep for sweep in self.sweeps}
        return (
            _dimension(rows, by_symbol["p"]),
            _blind(rows, by_symbol["p"]),
            _slopes(rows, by_symbol["n"]),
            _bounds(rows, by_symbol["n"]),
            LIMITS,
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """One plot per sweep: measured means, and the bounds; logarithms of both axes."""
        return tuple(_draw_sweep(rows, sweep) for sweep in self.sweeps)


def _shorten(sweep: Sweep) -> Sweep:
    """Return the quick version: two points, few examples, but more than a batch of DP-SGD; its numbers mean nothing."""
    points = (RECORD_BATCH + 50, QUICK_ROWS) if sweep.symbol == "n" else sweep.points[:2]
    return replace(sweep, points=points, base=replace(sweep.base, n=QUICK_ROWS, p=100))


def name_row(method: str, symbol: str, value: float) -> str:
    """Return the name of a row: plots and words find it again by this.

    >>> name_row("LP-RR-SGD", "p", 100000)
    'LP-RR-SGD, p = 100,000'
    """
    return f"{method}, {symbol} = {value:,}"


def measure_point(sweep: Sweep, value: float, seed: int) -> list[Measurement]:
    """Return a measurement per method at one point of a sweep; every method sees the same data for the same seed.

    Epsilon is what the fitted guarantee states at the method's delta.
    """
    at = sweep.at(value)
    problem = Problem(n_features=at.p, n_classes=at.K)
    test, _ = problem.draw(TEST_ROWS, seed=TEST_SEED)
    rows, labels = problem.draw(at.n, seed=seed)
    task = Task(problem=problem, epsilon=at.epsilon, rows=rows, labels=labels, seed=seed)
    fitted: dict[Any, Any] = {}  # methods that differ in post-processing alone share a fit
    found = []
    for method in METHODS:
        if sweep.symbol not in method.sweeps:
            continue
        if method.fit not in fitted:
            fitted[method.fit] = method.fit(task)
        model = fitted[method.fit]
        epsilon = model.guarantee_.epsilon(method.delta)
        final = model if method.after is None else method.after(model)
        bound = bound_of(method.name, at, test)
        found.append(
            Measurement(
                table=sweep.title,
                setting=name_row(method.name, sweep.symbol, value),
                epsilon=epsilon,
                trust="everyone" if math.isinf(epsilon) else model.guarantee_.trust.words,
                value=SCALE * problem.excess(final.predict_proba(test), test),
                paper=None if bound is None else SCALE * bound,
                note=UNITS[method.unit] + (f"; delta {method.delta:g}" if method.delta else ""),
            )
        )
    return found


UNITS = {"label": "one label replaced", "record": "one record added or removed", "none": ""}


# ----------------------------------------------------------------------------------------------------- the problem


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The distribution; two classes are one logit, 0 for the first."""

    n_features: int
    n_classes: int = 2

    @property
    def theta(self) -> Floats:
        """Return the (K, 5) parameters, the same for every p: directions from a fixed seed, of norm `SIZE` in all."""
        scores = 1 if self.n_classes == 2 else self.n_classes
        raw = np.random.default_rng(self.n_classes).normal(size=(scores, SIGNAL))
        scaled: Floats = SIZE * raw / np.linalg.norm(raw)
        return np.concatenate([np.zeros((1, SIGNAL)), scaled]) if scores == 1 else scaled

    def draw(self, n: int, *, seed: int) -> tuple[Any, Int64s]:
        """Return n rows (csr) and their labels."""
        rng = np.random.default_rng([seed, self.n_features, self.n_classes])
        rest = self.n_features - SIGNAL
        block = (rng.integers(rest, size=(n, 1)) + np.arange(SIGNAL)) % rest + SIGNAL
        columns = np.concatenate([np.broadcast_to(np.arange(SIGNAL), (n, SIGNAL)), block], axis=1)
        signs = rng.choice([-1.0, 1.0], size=columns.shape) / math.sqrt(2 * SIGNAL)
        starts = np.arange(n + 1) * 2 * SIGNAL
        rows = scipy.sparse.csr_matrix((signs.reshape(-1), columns.reshape(-1), starts), shape=(n, self.n_features))
        edges = np.cumsum(self.probabilities(rows), axis=1)[:, :-1]
        labels: Int64s = (rng.random((n, 1)) > edges).sum(axis=1)
        return rows, labels

    def probabilities(self, rows: Any) -> Floats:
        """Return the true class probabilities (n, K)."""
        shares: Floats = softmax(np.asarray(rows[:, :SIGNAL] @ self.theta.T), axis=1)
        return shares

    def excess(self, predicted: Floats, rows: Any) -> float:
        """Return the mean divergence of predictions from the truth: the excess population risk, in nats."""
        true = self.probabilities(rows)
        return float(
            (true * (np.log(np.maximum(true, LEAST)) - np.log(np.maximum(predicted, LEAST)))).sum(axis=1).mean()
        )


# ---------------------------------------------------------------------------------------------------- the learners


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One point of a sweep with one seed: the problem, the budget and the training data."""

    problem: Problem
    epsilon: float
    rows: Any
    labels: Any
    seed: int


@dataclass(frozen=True, kw_only=True)
class Method:
    """A learner, by name: how it is fitted, the delta of its epsilon, its unit and the sweeps that it takes part in.

    `after` turns what `fit` released into another model: post-processing, which needs no second fit.
    """

    name: str
    fit: Callable[[Task], Any]
    after: Callable[[Any], Any] | None = None
    delta: float = 0.0
    unit: str = "label"
    sweeps: tuple[str, ...] = ("p", "n", "epsilon", "K")


def _walk_settings(task: Task) -> dict[str, Any]:
    return {
        "clip": 1.0,
        "diameter": DIAMETER,
        "epochs": 1,
        "batch_size": BATCH,
        "fit_intercept": False,
        "classes": range(task.problem.n_classes),
        "random_state": task.seed,
    }


def _fit_open(task: Task) -> Any:
    return LPRRSGD(epsilon=math.inf, **_walk_settings(task)).fit(task.rows, task.labels)


def _fit_response(task: Task) -> Any:
    return LPRRSGD(epsilon=task.epsilon, **_walk_settings(task)).fit(task.rows, task.labels)


def top_prior(problem: Problem, rows: Any) -> Floats:
    """Return a public prior: the true model's two likeliest labels of each row, even; the others are ruled out."""
    shares = problem.probabilities(rows)
    chosen = np.argsort(-shares, axis=1)[:, :CANDIDATES]
    prior = np.zeros_like(shares)
    np.put_along_axis(prior, chosen, 1.0 / CANDIDATES, axis=1)
    return prior


def miss_probability(problem: Problem, rows: Any) -> float:
    """Return the probability that a label is not among the prior's candidates."""
    shares = -np.sort(-problem.probabilities(rows), axis=1)
    return float(shares[:, CANDIDATES:].sum(axis=1).mean())


def _fit_prior_response(task: Task) -> Any:
    prior = PublicPrior(top_prior(task.problem, task.rows))
    return LPRRSGD(epsilon=task.epsilon, prior=prior, **_walk_settings(task)).fit(task.rows, task.labels)


def _fit_normal(task: Task) -> Any:
    return LPNormalSGD(epsilon=task.epsilon, delta=DELTA, **_walk_settings(task)).fit(task.rows, task.labels)


def _fit_output(task: Task) -> Any:
    model = OutputPerturbation(
        epsilon=task.epsilon,
        delta=DELTA,
        clip=1.0,
        fit_intercept=False,
        classes=range(task.problem.n_classes),
        random_state=task.seed,
    )
    return model.fit(task.rows, task.labels)


def _fit_record(task: Task, learning_rate: float | str = "auto") -> Any:
    model = make_private_sgd(
        epsilon=task.epsilon,
        delta=DELTA,
        epochs=PASSES,
        batch_size=RECORD_BATCH,
        learning_rate=learning_rate,
        classes=range(task.problem.n_classes),
        random_state=task.seed,
    )
    return model.fit(task.rows, task.labels)


def project_on_ball(model: Any) -> Any:
    """Return a copy whose weights, offsets included, are projected on the ball."""
    size = math.hypot(float(np.linalg.norm(model.coefs_[0])), float(np.linalg.norm(model.intercepts_[0])))
    share = min(1.0, 0.5 * DIAMETER / size) if size > 0 else 1.0
    nearer = copy(model)
    nearer.coefs_, nearer.intercepts_ = [share * model.coefs_[0]], [share * model.intercepts_[0]]
    return nearer


def _fit_record_blind(task: Task) -> Any:
    steps = math.ceil(PASSES * len(task.labels) / min(RECORD_BATCH, len(task.labels)))
    return _fit_record(task, DIAMETER / math.sqrt(steps))


METHODS = (
    Method(name="SGD, no privacy", fit=_fit_open, unit="none"),
    Method(name=RESPONSE, fit=_fit_response),
    Method(name=PRIOR, fit=_fit_prior_response, sweeps=("K",)),
    Method(name=NORMAL, fit=_fit_normal, delta=DELTA),
    Method(name="output perturbation", fit=_fit_output, delta=DELTA, sweeps=("p", "n", "epsilon")),
    Method(name=RECORD, fit=_fit_record, delta=DELTA, unit="record"),
    Method(
        name=IN_BALL,
        fit=_fit_record,
        after=project_on_ball,
        delta=DELTA,
        unit="record",
        sweeps=("p", "n", "epsilon"),
    ),
    Method(name=BLIND, fit=_fit_record_blind, delta=DELTA, unit="record", sweeps=("p",)),
)


# ------------------------------------------------------------------------------------------------------ the bounds


def lipschitz(n_classes: int) -> float:
    """Return L for rows of norm 1: 1 for logistic loss (two classes), sqrt 2 for softmax."""
    return 1.0 if n_classes == 2 else math.sqrt(2.0)


def sgd_bound(
    n: int, *, diameter: float, clean: float, noisy: float, longest: float = math.inf, batch_size: int = 1
) -> float:
    """Return 2 D G (2 + log T) / sqrt T for T = n/b steps and G^2 = clean^2 + noisy^2 / b, at most longest^2.

    The mean gradient of a batch is at most `clean` long; the noise of its examples is independent, of variance at most
    noisy^2 each; no gradient is longer than `longest`.
    """
    steps = max(1.0, n / batch_size)
    moment = min(longest, math.sqrt(clean**2 + noisy**2 / batch_size))
    return 2.0 * diameter * moment * (2.0 + math.log(steps)) / math.sqrt(steps)


def response_weights(epsilon: float, size: int) -> tuple[float, float]:
    """Return a = (E + k - 1)/(E - 1) and w = (E + 2k - 3)/(E - 1), E = e^epsilon, of k-ary randomized response.

    The unbiased gradient is a g(o) less a vector that does not depend on the observed label o: its variance is at most
    a^2 L^2. Label o has weight (E + k - 2)/(E - 1), every other one -1/(E - 1): no gradient is longer than w L.
    """
    # Both divided by E, so that a large epsilon does not overflow.
    small, gap = math.exp(-epsilon), -math.expm1(-epsilon)
    return (1.0 + (size - 1.0) * small) / gap, (1.0 + (2.0 * size - 3.0) * small) / gap


def theorem_9(n: int, *, epsilon: float, n_classes: int, diameter: float, batch_size: int = 1) -> float:
    """LP-RR-SGD, pure epsilon: O(D L K log n / (epsilon sqrt n)), here with G^2 = L^2 min(w^2, 1 + a^2/b)."""
    clean = lipschitz(n_classes)
    spread, longest = (clean * weight for weight in response_weights(epsilon, n_classes))
    return sgd_bound(n, diameter=diameter, clean=clean, noisy=spread, longest=longest, batch_size=batch_size)


def corollary_10(
    n: int, *, epsilon: float, k: int, n_classes: int, miss: float, diameter: float, batch_size: int = 1
) -> float:
    """LP-RR-SGD within the k likeliest labels: Theorem 9 for k, plus 2 D L Pr[the label is not among them].

    A label outside its set is redrawn within it: the risk of any two w then differs by at most 2 D L Pr[miss] more or
    less than it should.
    """
    clean = lipschitz(n_classes)
    spread, longest = (clean * weight for weight in response_weights(epsilon, k))
    walk = sgd_bound(n, diameter=diameter, clean=clean, noisy=spread, longest=longest, batch_size=batch_size)
    return walk + 2.0 * diameter * clean * miss


def proposition_11(
    n: int, *, epsilon: float, delta: float, n_classes: int, diameter: float, batch_size: int = 1
) -> float:
    """LP-Normal-SGD, (epsilon, delta): O(D L sqrt(K log(1/delta)) log n / (epsilon sqrt n)).

    Here with G^2 = L^2 (1 + K s^2), s the analytic Gaussian noise of a one-hot label (sensitivity sqrt 2; 1 for two
    classes), where the supplement has a constant times sqrt(log 1/delta)/epsilon.
    """
    clean = lipschitz(n_classes)
    reach = 1.0 if n_classes == 2 else math.sqrt(2.0)
    spread = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=reach)
    noisy = clean * math.sqrt(1.0 + n_classes * spread**2)
    return sgd_bound(n, diameter=diameter, clean=clean, noisy=noisy, batch_size=batch_size)


def proposition_12_rate(n: int, *, epsilon: float, n_classes: int, diameter: float) -> float:
    """D L / sqrt(epsilon n): the rate below which no label-private learner can stay on every problem, for epsilon <= 1.

    Its constant and its logarithm of 1/epsilon are not stated by the proof and are 1 here; and it speaks of the worst
    distribution, so that a given problem may well be easier. Above epsilon 1 the non-private D L / sqrt n remains.
    """
    return diameter * lipschitz(n_classes) / math.sqrt(min(epsilon, 1.0) * n)


def debiased_width(epsilon: float, k: int) -> float:
    """Return (1 + k p)/(1 - k p) = (E + 2k - 1)/(E - 1) for p = 1/(E + k - 1): the width of a debiased loss, over that of the loss.

    A loss in [0, 1] becomes (loss(o) - p sum_j loss(j)) / (1 - k p), which lies in [-k p, 1] / (1 - k p).
    """
    share = k / (math.expm1(epsilon) + k)
    return (1.0 + share) / (1.0 - share)


def theorem_17(
    n: int,
    *,
    epsilon: float,
    k: int,
    complexity: float,
    slope: float,
    width: float = 1.0,
    miss: float = 0.0,
    confidence: float = 0.05,
) -> float:
    """Bound |debiased empirical risk - population risk|, for all f at once, with probability 1 - `confidence`.

    2 `slope` W R_n(F) + `width` W sqrt(log(2/confidence) / (2n)) + `width` Pr[miss], W = `debiased_width`, for a loss of
    this `slope` whose values span `width`. The supplement's second term lacks W: its proof uses a concentration bound
    for functions in [0, 1], and the debiased loss spans W. Each of n examples moves the supremum by at most
    `width` W / n, so McDiarmid's inequality on either side gives the term above; symmetrisation and contraction give the
    first. The empirical minimiser is then within twice this of the best in F.
    """
    wide = debiased_width(epsilon, k)
    chance = math.sqrt(math.log(2.0 / confidence) / (2.0 * n))
    return 2.0 * slope * wide * complexity + width * wide * chance + width * miss


def ball_complexity(n: int, *, diameter: float) -> float:
    """Return (D/2) / sqrt n: the Rademacher complexity of linear functions in the ball, on rows of norm at most 1."""
    return 0.5 * diameter / math.sqrt(n)


def bound_of(method: str, at: Point, rows: Any) -> float | None:
    """Return the paper's upper bound for a method at a point, in nats; None where it has none."""
    common: dict[str, Any] = {"n_classes": at.K, "diameter": DIAMETER, "batch_size": BATCH}
    if method == RESPONSE:
        return theorem_9(at.n, epsilon=at.epsilon, **common)
    if method == NORMAL:
        return proposition_11(at.n, epsilon=at.epsilon, delta=DELTA, **common)
    if method == PRIOR:
        absent = miss_probability(Problem(n_features=at.p, n_classes=at.K), rows)
        return corollary_10(at.n, epsilon=at.epsilon, k=CANDIDATES, miss=absent, **common)
    return None


def generalization(at: Point) -> float | None:
    """Return twice Theorem 17's bound, for two classes and no prior: what the debiased empirical minimiser may lose.

    On the ball the logistic loss spans at most log(1 + e^{D/2}) and has slope 1.
    """
    if at.K != 2:
        return None
    span = math.log1p(math.exp(0.5 * DIAMETER))
    complexity = ball_complexity(at.n, diameter=DIAMETER)
    return 2.0 * theorem_17(at.n, epsilon=at.epsilon, k=2, complexity=complexity, slope=1.0, width=span)


# ------------------------------------------------------------------------------------------------- words and plots

LIMITS = (
    "What this is not: the lower rate of Proposition 12 is drawn with constant 1, which its proof does not state, and it "
    "is about the worst problem, so that a measured line below it contradicts nothing. Features here are sparse, of "
    "norm 1, with five informative coordinates; the label-private walks are one pass with the theorems' steps, not what "
    "one would use to win (the learners' defaults make five passes). DP-SGD's epsilon is for a record, the others' for a label."
)


def _ends(rows: Sequence[StudyRow], sweep: Sweep, method: str) -> tuple[StudyRow, StudyRow]:
    named = {row.setting: row for row in rows if row.table == sweep.title}
    first, last = (named[name_row(method, sweep.symbol, value)] for value in (sweep.points[0], sweep.points[-1]))
    return first, last


def _dimension(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    told = []
    for method in METHODS:
        if "p" in method.sweeps and method.name != BLIND:
            first, last = _ends(rows, sweep, method.name)
            told.append(f"{method.name} {first.mean:.1f} to {last.mean:.1f} ({last.mean / first.mean:.1f} times)")
    low, high = sweep.points[0], sweep.points[-1]
    return f"From p = {low:,} to {high:,} the mean excess risk, in thousandths of a nat, goes: " + "; ".join(told) + "."


def _blind(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    first, last = _ends(rows, sweep, BLIND)
    return (
        f"DP-SGD with a step that ignores p and without the ball goes from {first.mean:.1f} to {last.mean:.1f}: on a "
        "generalised linear model the noise meets each row in one direction only, and the growth with p comes from the steps "
        "and the ball that the theory of general convex losses needs (Song et al. 2021). The dependence on p is of the general "
        "problem; this one shows it for the algorithm as analysed, not for every way to run it."
    )


def _slopes(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    told = []
    for method in (RESPONSE, NORMAL):
        first, last = _ends(rows, sweep, method)
        told.append(f"{method} {first.mean:.1f} to {last.mean:.1f}")
    ratio = (sweep.points[-1] / sweep.points[0]) ** 0.5
    return f"From n = {sweep.points[0]:,} to {sweep.points[-1]:,}: {'; '.join(told)}. A rate of 1/sqrt n would divide by {ratio:.1f}."


def _bounds(rows: Sequence[StudyRow], sweep: Sweep) -> str:
    _, last = _ends(rows, sweep, RESPONSE)
    bound = last.paper or 0.0
    general = generalization(sweep.at(sweep.points[-1])) or 0.0
    return (
        f"The upper bounds hold and are far away: at n = {sweep.points[-1]:,} Theorem 9 allows {bound / 1000:.2f} nats where "
        f"{last.mean / 1000:.4f} is measured, and twice the corrected Theorem 17 allows {general:.2f}. With D = {DIAMETER:g} they "
        "say something about the rate only; predicting the uniform distribution loses a few tenths of a nat. The theorems are "
        "about the last iterate; the learners return the mean of the second half of them, for which convexity gives at most "
        "sqrt 2 times as much."
    )


def _draw_sweep(rows: Sequence[StudyRow], sweep: Sweep) -> Plot:
    """Return the plot of a sweep: log10 of the excess in nats against the varied quantity."""
    named = {row.setting: row for row in rows if row.table == sweep.title}
    lines = []
    for method in METHODS:
        if sweep.symbol in method.sweeps and method.name in DRAWN:
            means = [named[name_row(method.name, sweep.symbol, value)].mean / 1000.0 for value in sweep.points]
            lines.append(Series(name=method.name, x=sweep.points, y=tuple(map(_log, means))))
    lines += [*_upper_bounds(named, sweep), _lower_rate(sweep)]
    told = "; ".join(f"{line.name} from {10 ** line.y[0]:.2g} to {10 ** line.y[-1]:.2g}" for line in lines)
    return Lines(
        title=f"Excess risk {sweep.title}",
        series=tuple(lines),
        x_title=f"{sweep.symbol} (logarithmic)",
        y_title="log10 of the excess risk in nats",
        alt=f"From {sweep.symbol} = {sweep.points[0]:,} to {sweep.points[-1]:,}: {told}.",
        x_log=True,
    )


def _upper_bounds(named: dict[str, StudyRow], sweep: Sweep) -> list[Series]:
    answer = []
    for method, name in ((RESPONSE, "Theorem 9"), (PRIOR, "Corollary 10"), (NORMAL, "Proposition 11")):
        rows = [named.get(name_row(method, sweep.symbol, value)) for value in sweep.points]
        bounds = [row.paper for row in rows if row is not None and row.paper is not None]
        if len(bounds) == len(sweep.points):
            answer.append(Series(name=name, x=sweep.points, y=tuple(_log(bound / 1000.0) for bound in bounds)))
    general = [generalization(sweep.at(value)) for value in sweep.points]
    known = [value for value in general if value is not None]
    if len(known) == len(sweep.points):
        answer.append(Series(name=UPPER, x=sweep.points, y=tuple(map(_log, known))))
    return answer


def _lower_rate(sweep: Sweep) -> Series:
    places = [sweep.at(value) for value in sweep.points]
    rates = [proposition_12_rate(at.n, epsilon=at.epsilon, n_classes=at.K, diameter=DIAMETER) for at in places]
    return Series(name=LOWER, x=sweep.points, y=tuple(map(_log, rates)))


def _log(value: float) -> float:
    """log10; an excess that a mean over test rows puts at or below zero is drawn at 1e-6."""
    return math.log10(max(value, 1e-6))
