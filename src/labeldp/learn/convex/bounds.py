r"""What theory promises of `OutputPerturbation` and `SimplexERM`: bounds on the excess risk that do not grow with the dimension.

>>> from labeldp.learn.convex.losses import Logistic
>>> at = {"loss": Logistic(), "radius": 1.0, "norm": 5.0, "epsilon": 1.0, "delta": 1e-5}
>>> [round(bound_output_risk(n, **at), 2) for n in (10**4, 10**6)]
[0.31, 0.03]
>>> prescribe_simplex(10**8, n_corners=1000, loss=Logistic(), reach=1.0, epsilon=1.0, delta=1e-5).n_samples
7

F(w) = E loss(<w, x>; y) is the risk over the distribution from which n examples are drawn independently. The loss is convex
and L-Lipschitz in the score. The bounds are on the expectation of F(released) - F(w*), over the examples and the noise, for
every fixed w*.

**A regularised minimiser generalises.** Let w_n minimise sum_i loss_i + l r(w), where r is 1-strongly convex in a norm in
which |x| is at most R (in the dual norm). Replacing one example by another moves w_n by at most 2 L R / l (as in
`labeldp.learn.convex.output`), so any loss by at most 2 (L R)^2 / l. A rule with this stability has
E[F(w_n)] <= E[F_n(w_n)] + 2 (L R)^2 / l, with F_n the mean loss of the examples (Bousquet & Elisseeff 2002). And
F_n(w_n) + (l/n) r(w_n) <= F_n(w*) + (l/n) r(w*). Together

    E[F(w_n)] - F(w*) <= 2 (L R)^2 / l + (l/n) (r(w*) - min r).                                                   (1)

**Theorem 1: output perturbation.** r = |w|^2/2. Noise b of standard deviation s in each weight moves the score of x by
<b, x>, of mean absolute value at most s R; a model with C scores, by a vector of mean length at most s R sqrt C. The solver
stops within gamma / l of the minimiser. So, with |w*| <= B,

    E[F(w_n + b)] - F(w*) <= L R (s sqrt C + gamma / l) + 2 (L R)^2 / l + l B^2 / (2 n),   s = s_1 (c R + 2 gamma) / l,

c R + 2 gamma over l being the sensitivity and s_1 the noise at sensitivity 1. The dimension does not occur. The paper
prescribes l = L R sqrt n / B; the best is l = sqrt(2 n A) / B with A / l the sum of all terms but the last.

**The noise costs less than that.** L R s bounds the first order of the loss, whose mean is zero: b has mean zero and is drawn
apart from the examples. With a Hessian in the scores whose trace is at most T (`Loss.bend_bound`), Taylor's formula with the
remainder of second order leaves

    E[F(w_n + b)] - E[F(w_n)] <= T R^2 s^2 / 2,   s = s_1 c R / l,

which falls with l^2 and not with l. Beside it the term 2 (L R)^2 / l of stability is for the worst distribution there is: at
n = 10,000 it is 2/14 nats, where all of the excess that the study `dimension-free` measures is some hundredths. So the balance (`balance_output`) is that of the noise and the penalty's bias alone,

    T (s_1 c R^2 / l)^2 / 2 + l B^2 / (2 n)   is least at   l = (2 n T (s_1 c R^2 / B)^2)^(1/3).

It grows with n^(1/3), the paper's with n^(1/2). It is a choice of a parameter, not a bound: privacy does not depend on it.

**Theorem 4: samples on the simplex.** r = sum theta_j log theta_j, between -log p and 0 on p corners, 1-strongly convex in
the 1-norm; R bounds the entries of x. The mean of m samples moves a score by at most R / sqrt m on average (a standard
deviation), so

    E[F(mean of samples)] - F(theta*) <= L R / sqrt m + 2 (L R)^2 / l + (l/n) log p.

The paper prescribes l = n^(2/3) / (epsilon log p)^(1/3) and m = (epsilon l / log(1/delta))^2 (32 + 16 n R^2 L_g / l)^-2.

*Errata.* The paper's noise for Theorem 1, L R sqrt(log(1/delta) + epsilon)/(l epsilon), is too small: at epsilon 1 and delta
1e-5 its delta is 1.4e-2; here s_1 is exact. Its Theorem 4 states the noise of sampling as log m / sqrt m, by a tail bound: the
standard deviation does without the logarithm. Its m is below 1 (no sample at all) until n is about 10^7 at epsilon 1, delta
1e-5; `SimplexERM` takes the number of samples as given and finds the least l instead. Its O(..) holds with probability 2/3,
by Markov's inequality; these are expectations, with all constants.

References: Jain & Thakurta 2014, Theorems 1 and 4 (supplement A and B.2); Bousquet & Elisseeff 2002 (stability); Shalev-Shwartz
et al. 2009.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.errors import invalid
from labeldp.learn.convex.losses import Loss
from labeldp.validate import check_choice, check_delta, check_epsilon, check_integer, check_positive


class SimplexPlan(NamedTuple):
    """The weight of the entropy against the sum of losses, and the number of samples; 0 samples say that n is too small."""

    entropy: float
    n_samples: int


def prescribe_output(n_examples: int, *, loss: Loss, radius: float, norm: float) -> float:
    """Return the l2 of Theorem 1, L R sqrt n / B, against the sum of losses; `norm` is B, the length of the best weights.

    >>> from labeldp.learn.convex.losses import Logistic
    >>> prescribe_output(10_000, loss=Logistic(), radius=1.0, norm=5.0)
    20.0
    """
    owner = "prescribe_output"
    n, slope = check_integer(owner, "n_examples", n_examples, least=1), _slope_bound(owner, loss)
    return slope * check_positive(owner, "radius", radius) * math.sqrt(n) / check_positive(owner, "norm", norm)


def balance_output(
    n_examples: int,
    *,
    loss: Loss,
    radius: float,
    norm: float,
    epsilon: float,
    delta: float,
    n_classes: int = 2,
    unit: str = "label",
) -> float:
    """Return the l2 at which the noise's second order and the penalty's bias add up to least; see the module.

    Parameters are those of `bound_output_risk`. It suits any smooth loss, the squared one too (for `unit="label"`).

    >>> from labeldp.learn.convex.losses import Logistic
    >>> at = {"loss": Logistic(), "radius": 1.0, "norm": 5.0, "delta": 1e-5}
    >>> [round(balance_output(10_000, epsilon=epsilon, **at), 1) for epsilon in (0.1, 1.0, 10.0)]
    [57.4, 14.1, 3.7]
    """
    owner = "balance_output"
    n, classes = (
        check_integer(owner, "n_examples", n_examples, least=1),
        check_integer(owner, "n_classes", n_classes, least=2),
    )
    reach, size = check_positive(owner, "radius", radius), check_positive(owner, "norm", norm)
    multiple = _unit_noise(owner, epsilon, delta)
    change = _change(owner, loss, unit)
    return float((2.0 * n * loss.bend_bound(classes) * (multiple * change * reach**2 / size) ** 2) ** (1 / 3))


def bound_output_risk(
    n_examples: int,
    *,
    loss: Loss,
    radius: float,
    norm: float,
    epsilon: float,
    delta: float,
    l2: float | None = None,
    tolerance: float = 0.0,
    n_scores: int = 1,
    unit: str = "label",
) -> float:
    """Return Theorem 1's bound on the expected excess risk of `OutputPerturbation`, with its constants.

    Parameters
    ----------
    n_examples, loss, radius, norm
        n; the loss, with L, D_y; R, the largest norm of a row; B, the norm of the weights that it is compared with.
    epsilon, delta
        The budget, on which the noise depends.
    l2, tolerance
        The penalty against the sum of losses (by default the paper's, `prescribe_output`) and the solver's gamma.
    n_scores
        C: 1 for two classes, K for softmax.
    unit : {"label", "record"}
        What the noise hides: c is D_y or 2 L.

    Edge cases
    ----------
    A loss without a bounded slope (squared) has no such bound, and is refused. epsilon = inf leaves (1) of the module.
    """
    owner = "bound_output_risk"
    n, slope = check_integer(owner, "n_examples", n_examples, least=1), _slope_bound(owner, loss)
    reach, size = check_positive(owner, "radius", radius), check_positive(owner, "norm", norm)
    gamma = check_epsilon(owner, tolerance, name="tolerance")
    penalty = prescribe_output(n, loss=loss, radius=reach, norm=size) if l2 is None else l2
    check_positive(owner, "l2", penalty)
    multiple = _unit_noise(owner, epsilon, delta)
    spread = multiple * (_change(owner, loss, unit) * reach + 2.0 * gamma) / penalty
    noise = slope * reach * (spread * math.sqrt(check_integer(owner, "n_scores", n_scores, least=1)) + gamma / penalty)
    return noise + 2.0 * (slope * reach) ** 2 / penalty + penalty * size**2 / (2.0 * n)


def prescribe_simplex(
    n_examples: int, *, n_corners: int, loss: Loss, reach: float, epsilon: float, delta: float
) -> SimplexPlan:
    """Return Theorem 4's l and m for p corners (`SimplexERM` has 2 d, and 2 more with an intercept) of reach R.

    Whether these keep (epsilon, delta) is the learner's business: it computes what its samples cost, and refuses.
    """
    owner = "prescribe_simplex"
    n = check_integer(owner, "n_examples", n_examples, least=1)
    p = check_integer(owner, "n_corners", n_corners, least=2)
    budget, failure = check_positive(owner, "epsilon", epsilon), check_positive(owner, "delta", delta)
    entropy = n ** (2 / 3) / (budget * math.log(p)) ** (1 / 3)
    curved = 32.0 + 16.0 * n * check_positive(owner, "reach", reach) ** 2 * loss.smoothness / entropy
    return SimplexPlan(entropy, math.floor((budget * entropy / math.log(1.0 / failure) / curved) ** 2))


def bound_simplex_risk(
    n_examples: int, *, n_corners: int, loss: Loss, reach: float, entropy: float, n_samples: int
) -> float:
    """Return Theorem 4's bound on the expected excess risk of `SimplexERM` over the best theta on the simplex.

    >>> from labeldp.learn.convex.losses import Logistic
    >>> at = {"n_corners": 1000, "loss": Logistic(), "reach": 1.0, "entropy": 3000.0}
    >>> round(bound_simplex_risk(10**6, n_samples=200, **at), 3)
    0.092
    """
    owner = "bound_simplex_risk"
    n, slope = check_integer(owner, "n_examples", n_examples, least=1), _slope_bound(owner, loss)
    p, m = (
        check_integer(owner, "n_corners", n_corners, least=2),
        check_integer(owner, "n_samples", n_samples, least=1),
    )
    weight, size = check_positive(owner, "entropy", entropy), slope * check_positive(owner, "reach", reach)
    return size / math.sqrt(m) + 2.0 * size**2 / weight + weight / n * math.log(p)


def _change(owner: str, loss: Loss, unit: str) -> float:
    """Return c: D_y for a label, 2 L for a record."""
    labels = check_choice(owner, "unit", unit, ("label", "record")) == "label"
    return loss.label_reach if labels else 2.0 * _slope_bound(owner, loss)


def _unit_noise(owner: str, epsilon: float, delta: float) -> float:
    """Return s_1, the Gaussian noise at sensitivity 1."""
    budget, failure = check_epsilon(owner, epsilon), check_delta(owner, delta)
    return 0.0 if math.isinf(budget) else analytic_gaussian_sigma(epsilon=budget, delta=failure, sensitivity=1.0)


def _slope_bound(owner: str, loss: Loss) -> float:
    """Return L, whatever the score."""
    slope = loss.slope_bound(math.inf)
    if math.isinf(slope):
        fix = 'Use "logistic", "softmax" or "huber".'
        raise invalid(owner, "loss", "have a bounded slope", got=loss.name, fix=fix)
    return slope
