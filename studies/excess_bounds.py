r"""The papers' bounds on excess risk as functions, with their constants, to be drawn beside what was measured.

All are about minimising E loss(w; x, y) over a ball of diameter D, the loss convex and L-Lipschitz in w, from n independent
examples seen once, b at a time. The upper bounds rest on Shamir & Zhang 2013, Theorem 2: if E|g|^2 <= G^2, T steps of
length c / sqrt t end within (D^2/c + c G^2)(2 + log T) / sqrt T of the best; c = D/G makes it 2 D G (2 + log T) / sqrt T.
That is of the last iterate. The mean of those after T/2, by convexity, is within sqrt 2 times as much.

>>> [round(theorem_9(n, epsilon=1.0, n_classes=2, diameter=20.0), 2) for n in (10**4, 10**6)]
[10.69, 1.51]

References: Ghazi et al. 2021, supplement F and G; Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization"
(2013); Bartlett, Mendelson 2002 (Rademacher complexity).

Design notes. The supplement's O(..) hide constants; these are the ones that its proofs give, with the tighter moments that
the learners use. Its lower bound hides a constant and a logarithm that its proof does not state: only its rate is here.
"""

from __future__ import annotations

import math

from labeldp.accounting import analytic_gaussian_sigma


def lipschitz(n_classes: int) -> float:
    """Return L for rows of norm 1: 1 for logistic loss (two classes), sqrt 2 for softmax."""
    return 1.0 if n_classes == 2 else math.sqrt(2.0)


def sgd_bound(n: int, *, diameter: float, clean: float, noisy: float, batch_size: int = 1) -> float:
    """Return 2 D G (2 + log T) / sqrt T for T = n/b steps and G^2 = clean^2 + noisy^2 / b.

    The mean gradient of a batch is at most `clean` long; the noise of its examples is independent, of variance at most
    noisy^2 each.
    """
    steps = max(1.0, n / batch_size)
    moment = math.sqrt(clean**2 + noisy**2 / batch_size)
    return 2.0 * diameter * moment * (2.0 + math.log(steps)) / math.sqrt(steps)


def response_moment(epsilon: float, size: int) -> float:
    """Return (E + 2k - 3)/(E - 1), E = e^epsilon: the largest unbiased gradient of k-ary randomized response, over L.

    The observed label o has weight (E + k - 2)/(E - 1), every other one -1/(E - 1): the sum of absolute weights is that.
    """
    # Both divided by E, so that a large epsilon does not overflow.
    small = math.exp(-epsilon)
    return (1.0 + (2.0 * size - 3.0) * small) / -math.expm1(-epsilon)


def theorem_9(n: int, *, epsilon: float, n_classes: int, diameter: float, batch_size: int = 1) -> float:
    """LP-RR-SGD, pure epsilon: O(D L K log n / (epsilon sqrt n)), here with G = L (E + 2K - 3)/(E - 1)."""
    clean = lipschitz(n_classes)
    noisy = clean * response_moment(epsilon, n_classes)
    return sgd_bound(n, diameter=diameter, clean=clean, noisy=noisy, batch_size=batch_size)


def corollary_10(
    n: int, *, epsilon: float, k: int, n_classes: int, miss: float, diameter: float, batch_size: int = 1
) -> float:
    """LP-RR-SGD within the k likeliest labels: Theorem 9 for k, plus 2 D L Pr[the label is not among them].

    A label outside its set is redrawn within it: the risk of any two w then differs by at most 2 D L Pr[miss] more or
    less than it should.
    """
    clean = lipschitz(n_classes)
    noisy = clean * response_moment(epsilon, k)
    walk = sgd_bound(n, diameter=diameter, clean=clean, noisy=noisy, batch_size=batch_size)
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
