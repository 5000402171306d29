"""Attacks on Gaussian noise: PYTHONPATH=src python benchmarks/attack_noise.py [--tries 10000].

The attacker knows the features, the other labels, the code and every public number. A fair coin chooses between two labels
of one example; she sees the release and says which it was. Three attacks, each falling back on the last where it sees
nothing:

- *reachable floats*: noise that is sigma times the normal quantile of a 53-bit number reaches few of the floats near it. She
  counts in how many coordinates the release can be reached from each candidate (Mironov 2012);
- *off the grid*: with noise in steps, a statistic that was not rounded before leaves its fraction of a step in the answer;
- *likelihood*: which candidate is nearer. For Gaussian noise of the stated sigma nothing does better.

The promise allows (e^epsilon + delta) / (1 + e^epsilon) of right guesses. LPNormalSGD is attacked at its noisy labels, of
which its model is a function: whoever sees the model sees less. Takes about two minutes of
one core for 1,000 tries. With PYTHONPATH at the sources of an older version it attacks that one.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta

import labeldp
from labeldp.guarantee import best_guess
from labeldp.learn import OutputPerturbation
from labeldp.learn.convex.base import make_row_map
from labeldp.learn.convex.losses import choose_loss
from labeldp.learn.convex.output import Minimiser
from labeldp.learn.convex.sgd import OneHotLabels
from labeldp.release import SensitiveLabels, vectors

DELTA = 1e-5
#: How sure the bounds on the rate of success are, each.
SURE = 0.999
#: Quantiles tried on either side of the likeliest: rounding of the quantile and of the sum moves it by fewer.
NEAR = np.arange(-64, 65)
ATTACKS = ("reachable floats", "off the grid", "likelihood")


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the attacker has: the released numbers, what they would be without noise under each label, and public facts."""

    released: Any
    candidates: tuple[Any, Any]
    sigma: float
    step: float | None


def guess(sight: Sight) -> dict[str, int]:
    """Return each attack's guess, 0 or 1."""
    near = [float(((sight.released - one) ** 2).sum()) for one in sight.candidates]
    likely = int(near[1] < near[0])
    reached = [int(is_reachable(sight.released, one, sight.sigma).sum()) for one in sight.candidates]
    on = [fits_grid(sight.released, one, sight.step) for one in sight.candidates]
    return {
        "reachable floats": likely if reached[0] == reached[1] else int(reached[1] > reached[0]),
        "off the grid": likely if on[0] == on[1] else int(on[1] > on[0]),
        "likelihood": likely,
    }


def is_reachable(released: Any, centre: Any, sigma: float) -> Any:
    """Whether centre + sigma Phi^-1((w + 1/2) 2^-53) is the released float for a whole number w, coordinate by coordinate."""
    word = np.rint(ndtr((released - centre) / sigma) * 2.0**53 - 0.5)[..., None] + NEAR
    uniform = np.clip(word * 2.0**-53 + 2.0**-54, 2.0**-54, 1.0 - 2.0**-53)
    return (centre[..., None] + sigma * ndtri(uniform) == released[..., None]).any(axis=-1)


def fits_grid(released: Any, centre: Any, step: float | None) -> int:
    """In how many coordinates release and candidate are whole steps apart, up to the rounding of floats."""
    if step is None:
        return 0
    apart = (released - centre) / step
    return int((np.abs(apart - np.rint(apart)) <= 1e-6 + 1e-15 * np.abs(apart)).sum())


class OutputTarget:
    """OutputPerturbation with default settings on 12 rows; the victim is the first, whose row is as long as allowed."""

    name = "OutputPerturbation"

    def __init__(self, *, n_classes: int, epsilon: float) -> None:
        rng = np.random.default_rng(1)
        self.classes, self.epsilon = list(range(n_classes)), epsilon
        self.X = rng.normal(size=(12, 8))
        self.y = rng.integers(n_classes, size=12)
        self.candidates: tuple[Any, Any] | None = None

    def see(self, secret: int) -> Sight:
        """Fit with the first or the last class as the victim's label."""
        labels = self.y.copy()
        labels[0] = self.classes[-secret]
        model = OutputPerturbation(epsilon=self.epsilon, delta=DELTA, clip=1.0, classes=self.classes)
        model.fit(self.X, labels)
        if self.candidates is None:
            self.candidates = self._solve(model, 0), self._solve(model, 1)
        # The intercept is a product of a weight and a constant; the coefficients are the weights themselves.
        return Sight(released=model.coef_, candidates=self.candidates, sigma=model.sigma_, step=self._find_step(model))

    def _query(self, model: Any) -> Minimiser:
        row_map = make_row_map(self.name, clip=1.0, fit_intercept=True, intercept_scaling=0.25)
        loss = choose_loss(self.name, "auto", len(self.classes))
        radius = row_map.radius
        return Minimiser(rows=row_map.apply(self.X), loss=loss, l2=model.l2_, tolerance=1e-3 * radius, radius=radius)

    def _solve(self, model: Any, secret: int) -> Any:
        labels = self.y.copy()
        labels[0] = self.classes[-secret]
        weights = self._query(model).exact(labels, n_classes=len(self.classes))
        return weights[:, :-1]

    def _find_step(self, model: Any) -> float | None:
        if not hasattr(vectors, "find_step"):
            return None
        query = self._query(model)
        sizes = {"n_classes": len(self.classes), "n_examples": 12}
        return vectors.find_step(query, query.sensitivity(**sizes), query.size(**sizes), self.epsilon, DELTA)


class LabelTarget:
    """The noisy label that LPNormalSGD learns from, of one example."""

    name = "LPNormalSGD"

    def __init__(self, *, n_classes: int, epsilon: float) -> None:
        self.classes, self.epsilon = list(range(n_classes)), epsilon
        self.candidates = tuple(
            OneHotLabels().exact(np.array([self.classes[-secret]]), n_classes=n_classes) for secret in (0, 1)
        )

    def see(self, secret: int) -> Sight:
        """Release the first or the last class."""
        labels = SensitiveLabels([self.classes[-secret]], classes=self.classes)
        measured = vectors.measure_vector(labels, OneHotLabels(), epsilon=self.epsilon, delta=DELTA)
        step = getattr(measured, "step", None)
        return Sight(released=measured.value, candidates=self.candidates, sigma=measured.sigma, step=step)


class Unrounded(LabelTarget):
    """The twin that forgets to round: a statistic of 0.3 or 0.7 steps, and noise in whole steps. It must be caught."""

    name = "a twin that does not round"

    def see(self, secret: int) -> Sight:
        """Add whole steps of noise to a fraction of one."""
        noise = np.rint(1000.0 * np.random.default_rng().normal(size=(1, 4)))
        candidates = tuple(np.full((1, 4), share) for share in (0.3, 0.7))
        return Sight(released=candidates[secret] + noise, candidates=candidates, sigma=1000.0, step=1.0)


def count_successes(target: Any, tries: int, rng: np.random.Generator) -> dict[str, int]:
    """Return how often each attack was right in so many tries."""
    right = dict.fromkeys(ATTACKS, 0)
    for secret in rng.integers(2, size=tries).tolist():
        for attack, said in guess(target.see(secret)).items():
            right[attack] += said == secret
    return right


def find_bounds(right: int, tries: int) -> tuple[float, float]:
    """Return bounds on the rate of success, below and above, each of confidence `SURE` (Clopper & Pearson)."""
    wrong = tries - right
    below = float(beta.ppf(1.0 - SURE, right, wrong + 1)) if right else 0.0
    return below, float(beta.ppf(SURE, right + 1, wrong)) if wrong else 1.0


def tables(tries: int) -> Iterator[str]:
    yield "| release | classes | epsilon | attack | right | at least | at most | allowed | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    settings = [
        *((kind, k, epsilon) for kind in (OutputTarget, LabelTarget) for k in (2, 3) for epsilon in (1.0, 0.1)),
        (Unrounded, 2, 1.0),
    ]
    for kind, n_classes, epsilon in settings:
        found = count_successes(kind(n_classes=n_classes, epsilon=epsilon), tries, np.random.default_rng())
        allowed = best_guess(epsilon, delta=DELTA)
        for attack, right in found.items():
            below, above = find_bounds(right, tries)
            verdict = "BROKEN" if below > allowed else "within"
            bounds = f"{100 * below:.1f}% | {100 * above:.1f}% | {100 * allowed:.1f}%"
            yield f"| {kind.name} | {n_classes} | {epsilon:g} | {attack} | {right} of {tries} | {bounds} | {verdict} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"labeldp {labeldp.__version__}, NumPy {np.__version__}, {platform.machine()}, delta {DELTA:g}.")
    print("Bounds on the rate of success, one-sided, each 99.9% sure.\n")
    for line in tables(arguments.tries):
        print(line, flush=True)
