r"""The study `dimension-free`: output perturbation and samples on a simplex with the parameters that their theorems prescribe.

Theorem 1 (output perturbation) and Theorem 4 (samples on the simplex) bound the excess risk without the dimension. Here both
run with the paper's own penalty, beside the library's, and beside the bound with all its constants; and where a prescription
cannot be run, the number that says so.

>>> [round(value, 1) for value in (prescribe_l2(10_000), prescribe_l2(1_000_000))]
[12.5, 125.0]
>>> [prescribe_samples(n) for n in (10**6, 10**8, 10**10)]
[0, 7, 165]

**Theorem 1.** The problem of `studies.excess_risk`: sparse rows of norm 1 in any dimension, a logistic model of norm B = 8
that is the best. The penalty is L R sqrt n / B; the noise is what (epsilon, delta) needs, not the paper's, which is too small
(`labeldp.learn.convex.bounds`).

**Theorem 4.** Features are +-1, the best weights B on the first of d and nothing else: a corner of the 1-norm ball. The paper's
number of samples is below one until n is about 10^7, whatever the penalty; `SimplexERM` takes the number as given and finds
the least penalty that its budget allows.

Reference: Jain & Thakurta 2014, (Near) dimension independent risk bounds for differentially private learning, Theorems 1 and 4
(supplement A and B).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from labeldp.guarantee import Trust
from labeldp.learn import OutputPerturbation, SimplexERM
from labeldp.learn.convex.bounds import (
    bound_output_risk,
    bound_simplex_risk,
    prescribe_output,
    prescribe_simplex,
)
from labeldp.learn.convex.losses import Logistic
from labeldp.report import Lines, Plot, Series
from studies.excess_risk import SCALE, TEST_ROWS, TEST_SEED, Problem
from studies.excess_risk import SIZE as NORM
from studies.study import Measurement, Study, StudyRow

EPSILON, DELTA = 1.0, 1e-5
#: The solver's distance from the minimiser, in gradient norm, as a share of nothing: it is part of the sensitivity.
TOLERANCE = 1e-3
WIDTHS, COUNTS = (10, 1_000, 100_000), (1_000, 10_000, 100_000)
BASE_WIDTH, BASE_COUNT = 1_000, 10_000
OWN, DEFAULT = "the paper's l2", "the library's l2"
BY_WIDTH = f"Theorem 1 against p (n = {BASE_COUNT:,}, epsilon {EPSILON:g})"
BY_COUNT = f"Theorem 1 against n (p = {BASE_WIDTH:,}, epsilon {EPSILON:g})"
#: Simplex: corners are twice the features; the radius B of the ball, also the size of the best weight.
SIMPLEX_WIDTHS, SIMPLEX_COUNT, RADIUS, N_SAMPLES = (10, 100, 1_000), 10_000, 2.0, 200
SIMPLEX = f"Theorem 4 against d (n = {SIMPLEX_COUNT:,}, 2 d corners, {N_SAMPLES} samples)"
SIMPLEX_EPSILONS = (1.0, 4.0)
PRESCRIBED_COUNTS, PRESCRIBED_CORNERS = (10**4, 10**6, 10**7, 10**8, 10**10), 1_000
PRESCRIBED = (
    f"Theorem 4: samples that it prescribes ({PRESCRIBED_CORNERS:,} corners, epsilon {EPSILON:g}; a number, not nats)"
)


def prescribe_l2(n: int) -> float:
    """Return the paper's penalty against the sum of losses, for the best weights of this problem."""
    return prescribe_output(n, loss=Logistic(), radius=1.0, norm=NORM)


def prescribe_samples(n: int) -> int:
    """Return the paper's number of samples."""
    plan = prescribe_simplex(n, n_corners=PRESCRIBED_CORNERS, loss=Logistic(), reach=1.0, epsilon=EPSILON, delta=DELTA)
    return plan.n_samples


@dataclass(frozen=True, kw_only=True)
class Output:
    """Output perturbation at p features and n examples, with one of the two penalties."""

    table: str
    p: int
    n: int
    penalty: str

    @property
    def name(self) -> str:
        """Table, point and penalty."""
        return f"{self.table}: {self.setting}"

    @property
    def setting(self) -> str:
        """The row."""
        return f"{self.penalty}, " + (f"p = {self.p:,}" if self.table == BY_WIDTH else f"n = {self.n:,}")

    def measure(self, seed: int) -> Measurement:
        """Fit once; the bound is that of the penalty that was used."""
        problem = Problem(n_features=self.p)
        test, _ = problem.draw(TEST_ROWS, seed=TEST_SEED)
        rows, labels = problem.draw(self.n, seed=seed)
        own: dict[str, Any] = {"l2": prescribe_l2(self.n), "tolerance": TOLERANCE} if self.penalty == OWN else {}
        settings: dict[str, Any] = {"clip": 1.0, "fit_intercept": False, "classes": range(2), "random_state": seed}
        model = OutputPerturbation(epsilon=EPSILON, delta=DELTA, **settings, **own).fit(rows, labels)
        bound = bound_output_risk(
            self.n, loss=Logistic(), radius=1.0, norm=NORM, epsilon=EPSILON, delta=DELTA, tolerance=TOLERANCE
        )
        return Measurement(
            table=self.table,
            setting=self.setting,
            epsilon=model.guarantee_.epsilon(DELTA),
            trust=model.guarantee_.trust.words,
            value=SCALE * problem.excess(model.predict_proba(test), test),
            paper=SCALE * bound if self.penalty == OWN else None,
            note=f"one label replaced; delta {DELTA:g}" + (f"; l2 {own['l2']:g}" if own else ""),
        )


@dataclass(frozen=True, kw_only=True)
class Simplex:
    """Samples on the simplex of 2 d corners."""

    d: int
    epsilon: float

    @property
    def name(self) -> str:
        """Width and epsilon."""
        return f"{SIMPLEX}: d = {self.d:,}, epsilon {self.epsilon:g}"

    def measure(self, seed: int) -> Measurement:
        """Fit once with the least entropy that the budget allows, and bound what that entropy gives."""
        rng = np.random.default_rng([seed, self.d])
        X = rng.choice([-1.0, 1.0], size=(SIMPLEX_COUNT, self.d))
        y = (rng.random(SIMPLEX_COUNT) < expit(RADIUS * X[:, 0])).astype(np.int64)
        model = SimplexERM(
            epsilon=self.epsilon,
            delta=DELTA,
            clip=1.0,
            radius=RADIUS,
            n_samples=N_SAMPLES,
            fit_intercept=False,
            classes=[0, 1],
            random_state=seed,
        ).fit(X, y)
        bound = bound_simplex_risk(
            SIMPLEX_COUNT,
            n_corners=2 * self.d,
            loss=Logistic(),
            reach=RADIUS,
            entropy=model.entropy_,
            n_samples=N_SAMPLES,
        )
        test = np.random.default_rng(TEST_SEED).choice([-1.0, 1.0], size=(TEST_ROWS, self.d))
        excess = _logistic_excess(RADIUS * test[:, 0], test @ model.coef_[0])
        return Measurement(
            table=SIMPLEX,
            setting=f"d = {self.d:,}",
            epsilon=model.guarantee_.epsilon(DELTA),
            trust=model.guarantee_.trust.words,
            value=SCALE * excess,
            paper=SCALE * bound,
            note=f"one label replaced; delta {DELTA:g}; entropy {model.entropy_:,.0f}",
        )


def _logistic_excess(best: Any, scores: Any) -> float:
    """Return the mean log loss of scores less that of the best, over labels of the best."""
    p = expit(best)
    return float(np.mean(np.logaddexp(0, scores) - p * scores - np.logaddexp(0, best) + p * best))


@dataclass(frozen=True, kw_only=True)
class Prescribed:
    """How many samples Theorem 4 prescribes for n examples."""

    n: int

    @property
    def name(self) -> str:
        """The number of examples."""
        return f"{PRESCRIBED}: n = {self.n:,}"

    def measure(self, _seed: int) -> Measurement:
        """Compute; nothing is drawn."""
        return Measurement(
            table=PRESCRIBED,
            setting=f"n = {self.n:,}",
            epsilon=EPSILON,
            trust=Trust.CURATOR.words,
            value=float(prescribe_samples(self.n)),
            note=f"delta {DELTA:g}",
        )


AnyCase = Output | Simplex | Prescribed


class DimensionFree(Study[AnyCase]):
    """Both theorems with their own parameters: two minutes."""

    name: ClassVar[str] = "dimension-free"
    title: ClassVar[str] = "Risk that does not grow with the dimension: the papers' own parameters, run"
    paper: ClassVar[str] = (
        "Jain and Thakurta (2014), (Near) dimension independent risk bounds for differentially private learning: not a measured "
        "value but the upper bounds of Theorems 1 and 4, with the constants of their proofs"
    )
    measure: ClassVar[str] = "excess population risk, nats / 1000"
    needs: ClassVar[str] = "nothing"
    default_seeds: ClassVar[int] = 3

    def cases(self) -> Sequence[AnyCase]:
        """The three tables of fits, and the prescription."""
        widths, counts = (WIDTHS[:1], COUNTS[:1]) if self.quick else (WIDTHS, COUNTS)
        simplex = SIMPLEX_WIDTHS[:1] if self.quick else SIMPLEX_WIDTHS
        penalties = (OWN, DEFAULT)
        return [
            *(Output(table=BY_WIDTH, p=p, n=BASE_COUNT, penalty=one) for one in penalties for p in widths),
            *(Output(table=BY_COUNT, p=BASE_WIDTH, n=n, penalty=one) for one in penalties for n in counts),
            *(Simplex(d=d, epsilon=epsilon) for epsilon in SIMPLEX_EPSILONS for d in simplex),
            *(Prescribed(n=n) for n in PRESCRIBED_COUNTS),
        ]

    def choose_seeds(self, case: AnyCase, seeds: Sequence[int]) -> Sequence[int]:
        """One for what is computed and not drawn."""
        return seeds[:1] if isinstance(case, Prescribed) else seeds

    def run_case(self, case: AnyCase, seed: int) -> Sequence[Measurement]:
        """Fit once, or compute."""
        return [case.measure(seed)]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """How the risk goes with the dimension and with n, beside the bounds."""
        words = [_told(rows, table) for table in (BY_WIDTH, BY_COUNT, SIMPLEX)]
        samples = "; ".join(f"{row.setting}: {row.mean:.0f}" for row in rows if row.table == PRESCRIBED)
        return (
            *words,
            (
                f"Theorem 4 as printed cannot be run on data of this size: it prescribes {samples} samples. SimplexERM takes the "
                "number of samples as given, and the least entropy that the budget then allows."
            ),
            (
                "A nat / 1000 is a thousandth; predicting one half loses log 2 = 693 at worst. The bounds are expectations with all "
                "constants, where the paper states orders with probability 2/3."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Measured and bound against p and against n, logarithms of both axes."""
        return tuple(_draw(rows, table) for table in (BY_WIDTH, BY_COUNT))


def _told(rows: Sequence[StudyRow], table: str) -> str:
    parts = []
    for row in (row for row in rows if row.table == table):
        bound = f" (bound {row.paper:.0f})" if row.paper is not None else ""
        budget = f" at epsilon {row.epsilon:.2g}" if table == SIMPLEX else ""
        parts.append(f"{row.setting}{budget}: {row.mean:.1f}{bound}")
    return f"{table}: " + "; ".join(parts) + "."


def _draw(rows: Sequence[StudyRow], table: str) -> Plot:
    mine = [row for row in rows if row.table == table]
    series = []
    for name in (OWN, DEFAULT):
        chosen = [row for row in mine if row.setting.startswith(name)]
        x = tuple(float(row.setting.split("= ")[1].replace(",", "")) for row in chosen)
        series.append(Series(name=name, x=x, y=tuple(math.log10(row.mean / SCALE) for row in chosen)))
        if name == OWN:
            bound = tuple(math.log10((row.paper or SCALE) / SCALE) for row in chosen)
            series.append(Series(name="the bound", x=x, y=bound))
    return Lines(
        title=table,
        series=tuple(series),
        x_title="p" if table == BY_WIDTH else "n",
        y_title="log10 of the excess risk in nats",
        alt="; ".join(f"{line.name} from {10 ** line.y[0]:.2g} to {10 ** line.y[-1]:.2g}" for line in series),
        x_log=True,
    )
