"""How long `SoftmaxRegression` takes beside scikit-learn's LogisticRegression: the same problem, in the same run.

    python benchmarks/bench_softmax.py [n] [d] [K]

Both minimise the mean log-loss + l2 / 2 ||W||^2 by L-BFGS to the same largest entry of the gradient. The line printed
gives the best of `REPEATS` alternating fits of each, the loss that each reached, and the ratio of the times.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

from labeldp.learn import SoftmaxRegression

REPEATS = 3
L2 = 1e-3
TOLERANCE = 1e-5


def make_problem(n, d, n_classes, dtype):
    """Gaussian features and labels drawn from a softmax model of them."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, d))
    logits = X @ generator.standard_normal((d, n_classes)) * (2 / np.sqrt(d)) + generator.gumbel(size=(n, n_classes))
    return X.astype(dtype), logits.argmax(axis=1)


def compute_objective(model, X, y):
    """The objective at the fitted coefficients, computed the same way for both."""
    logits = X.astype(np.float64) @ model.coef_.T + model.intercept_
    peak = logits.max(axis=1)
    loss = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak - logits[np.arange(len(y)), y]
    return loss.mean() + L2 / 2 * (model.coef_**2).sum()


def time_fit(model, X, y):
    """Seconds of wall clock and CPU of one fit."""
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    return time.perf_counter() - wall, time.process_time() - cpu


def main(n=100_000, d=200, n_classes=10):
    """Print a line for float64 and one for float32."""
    for dtype in (np.float64, np.float32):
        X, y = make_problem(n, d, n_classes, dtype)
        ours = SoftmaxRegression(l2=L2, tol=TOLERANCE, max_iter=500)
        theirs = LogisticRegression(C=1 / (n * L2), tol=TOLERANCE, max_iter=500, solver="lbfgs")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a line search that stops short in float32 is seen in the loss reached
            runs = [(time_fit(ours, X, y), time_fit(theirs, X, y)) for _ in range(REPEATS)]
        mine, other = min(run[0] for run in runs), min(run[1] for run in runs)
        print(
            f"{np.dtype(dtype).name} n={n} d={d} K={n_classes}: labeldp {mine[0]:.2f} s (cpu {mine[1]:.2f}), "
            f"scikit-learn {other[0]:.2f} s (cpu {other[1]:.2f}), ratio {mine[0] / other[0]:.2f} "
            f"(cpu {mine[1] / other[1]:.2f}); iterations {ours.n_iter_} and {int(theirs.n_iter_[0])}; "
            f"objective {compute_objective(ours, X, y):.10f} and {compute_objective(theirs, X, y):.10f}"
        )


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
