r"""Solvers that need the labels only through noisy class moments: ridge and softmax, with penalties from the noise.

*Ridge.* With features Phi, G = Phi'Phi and residual moments m = Phi'(Y - P) + noise of variance s^2 an entry, the
weights are (G + l)^{-1} m. In the eigenvectors of G (eigenvalues g_j) the noiseless weights are w_j, m_j = g_j w_j + s z_j,
and the expected squared distance of the fitted from the noiseless predictions, sum_j g_j (m_j/(g_j + l) - w_j)^2, is, up
to a constant, estimated without bias by

    risk(l) = sum_j [g_j m_j^2 / (g_j + l)^2 - 2 (m_j^2 - s^2) / (g_j + l)]

(since E[m_j w_j] g_j = E[m_j^2] - s^2). It uses only what was released, so the best l is chosen for free: Mallows' rule
with the noise of privacy in the place of the noise of labels.

>>> import numpy as np
>>> gram, moments = np.diag([100.0, 1.0]), np.array([[50.0, 3.0]])
>>> quiet, loud = (best_ridge(gram, moments, noise=s, n=1000) for s in (0.01, 20.0))
>>> quiet < loud
True

*Softmax.* sum_i log sum_k exp(o_ik + <w_k, x_i>) - <M, W> + l/2 |W|^2, where M are the class moments and o = log P: the
likelihood of a canonical model needs no more of the labels. It is convex for any M, and bounded below for l > 0 even
where noise has taken M out of the range of class moments. Near uniform P its Hessian is G/K, so that l = (ridge's)/K.

References: Stein 1981; Mallows 1973; Vu & Slavkovic 2009 and Foulds et al. 2016 (noisy sufficient statistics).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize
from scipy.special import logsumexp

Floats = npt.NDArray[np.floating[Any]]

#: Penalties tried, relative to the mean eigenvalue of G.
GRID = np.logspace(-6, 4, 61)


def best_ridge(gram: Floats, moments: Floats, *, noise: float, n: int) -> float:
    """Return the penalty of least estimated risk for residual moments (C, D) with noise of this spread."""
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    squares = ((moments @ vectors) ** 2).sum(axis=0)
    variance = len(moments) * noise**2
    # Along an eigenvector the noiseless squares are |R'a|^2 <= |R|^2 |a|^2 <= 2 n g_j, for residuals R of norm sqrt 2 a row:
    # where features have next to no extent (g_j = 0), what is there is noise, and an estimate beyond the bound is too.
    bound = 2.0 * n * values
    squares = variance + np.clip(squares - variance, -bound, bound)
    penalties = GRID * max(float(values.mean()), 1e-12 * n)
    risks = estimated_risks(values, squares, variance=variance, penalties=penalties)
    return float(penalties[int(np.argmin(risks))])


def estimated_risks(values: Floats, squares: Floats, *, variance: float, penalties: Floats) -> Floats:
    """Return risk(l) of the module for each penalty: linear in the squared moments, so unbiased when they are."""
    shrunk = values[None, :] + penalties[:, None]
    risks: Floats = (values * squares / shrunk**2 - 2.0 * (squares - variance) / shrunk).sum(axis=1)
    return risks


def ridge(gram: Floats, moments: Floats, *, l2: float) -> Floats:
    """Return (C, D) weights (G + l2)^{-1} m."""
    lifted = gram + l2 * np.eye(len(gram))
    weights: Floats = scipy.linalg.solve(lifted, moments.T, assume_a="pos").T
    return weights


def softmax_head(rows: Any, moments: Floats, offsets: Floats, *, l2: float, max_iter: int = 200) -> Floats:
    """Return (K, D) weights of the softmax model with these class moments and log-prior offsets (1 or n, K)."""
    shape = moments.shape
    scale = 1.0 / rows.shape[0]

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        scores = np.asarray(rows @ weights.T) + offsets
        heights = logsumexp(scores, axis=1)
        shares = np.exp(scores - heights[:, None])
        gradient = np.asarray(rows.T @ shares).T - moments + l2 * weights
        total = float(heights.sum()) - float(np.vdot(moments, weights)) + 0.5 * l2 * float(flat @ flat)
        return scale * total, scale * gradient.reshape(-1)

    options = {"maxiter": max_iter, "gtol": 1e-6, "ftol": 1e-10}
    found = scipy.optimize.minimize(objective, np.zeros(moments.size), jac=True, method="L-BFGS-B", options=options)
    weights: Floats = found.x.reshape(shape)
    return weights
