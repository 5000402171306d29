"""The attack on the noise of DP-SGD: which float could have been added to which sum."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("opacus", reason="DPSGDClassifier needs the extra opacus")

from labeldp.nn import DPSGDClassifier

ROWS, WIDTH, TRIES = 1024, 1000, 20
#: Gradients are multiples of this: sums are exact in 32-bit floats, whatever their order.
UNIT = 2.0**-20


def records(generator):
    """Features whose gradients at zero weights are whole units, and a second version of the last record."""
    X = generator.integers(9_000, 11_300, (ROWS, WIDTH)) * (2 * UNIT)
    other = X.copy()
    other[-1] += 2 * UNIT * generator.integers(0, 2, WIDTH)
    return X, other


def train_once(X, y, seed):
    """One step of full-batch DP-SGD from zero: the weights are minus the noisy mean gradient, exactly."""
    model = DPSGDClassifier(
        epsilon=0.5,
        epochs=1,
        batch_size=ROWS,
        learning_rate=1.0,
        average=False,
        classes=[0, 1],
        random_state=seed,
    )
    return model.fit(X, y).coefs_[0][:, 0]


def count_possible(weights, X, y):
    """In how many coordinates the noise that must have been drawn on this data set is a 32-bit float."""
    total = ((0.5 - y)[:, None] * X).sum(axis=0)
    noise = -weights * ROWS - total
    telling = (np.abs(noise) >= 16) & (np.abs(weights * ROWS) < 16)
    return int((noise.astype(np.float32) == noise)[telling].sum())


def test_the_noise_does_not_tell_which_record_was_there():
    """One record replaced, that is one removed and one added, each at epsilon = 0.5, delta = 1e-5.

    What is allowed: (1, 1e-5 (1 + e^0.5)) between the two data sets, so that a guess is right with probability at most
    73.2%. The attacker knows all records but the last, of which she knows two versions, and asks which of the two sums
    the released gradient can have come from: a 32-bit sum of a 32-bit sum and 32-bit noise reaches few floats. Before:
    right 20 of 20 times. Now 12.5 of 20 (a draw counts half): noise is an integer on a grid that the sum lies on too, so
    that every version is as possible as the other. A fair coin is right more than 19 times of 20 once in 10^6.
    """
    generator = np.random.default_rng(5)
    y = np.zeros(ROWS, int)
    right = 0.0
    for seed in range(TRIES):
        X, other = records(generator)
        truth = int(generator.integers(2))
        weights = train_once((X, other)[truth], y, seed)
        counts = [count_possible(weights, version, y) for version in (X, other)]
        right += 0.5 if counts[0] == counts[1] else float(np.argmax(counts) == truth)
    assert right <= TRIES - 1
