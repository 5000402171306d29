"""Accuracy through the channel: unbiased by exact expectation, with an honest error, and a choice by it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from labeldp import RandomizedResponse, RRWithPrior, privatize
from labeldp.channel import MatrixChannel
from labeldp.errors import LabelDPError
from labeldp.learn import SoftmaxRegression, choose_by_noisy_accuracy, noisy_accuracy


class Says:
    """Predicts what it was told, row by row."""

    def __init__(self, answers):
        self.answers = np.asarray(answers)

    def predict(self, X):
        return self.answers[X[:, 0].astype(int)]


def rows_of(n):
    return np.arange(n, dtype=float)[:, None]


TRANSITION = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


@pytest.mark.parametrize("truth", [(0, 1, 2, 2), (1, 1, 0, 2)])
@pytest.mark.parametrize("uneven", [False, True])
def test_unbiased_by_exact_expectation(truth, uneven):
    """Enumerate all 3^4 outputs of four labels: the mean over their exact chances is the true accuracy."""
    release = privatize(np.array(truth), RandomizedResponse(0.7, n_classes=3), rng=0)
    if uneven:
        release = replace(release, channel=MatrixChannel(TRANSITION, outputs_are_labels=True))
    matrix = TRANSITION if uneven else release.channel.matrix(0)
    model, X = Says([0, 1, 1, 2]), rows_of(4)
    expected, naive = 0.0, 0.0
    for outputs in itertools.product(range(3), repeat=4):
        chance = math.prod(matrix[y, o] for y, o in zip(truth, outputs, strict=True))
        drawn = replace(release, codes=np.array(outputs, release.codes.dtype))
        expected += chance * noisy_accuracy(model, X, drawn).accuracy
        naive += chance * float(np.mean(model.predict(X) == np.array(outputs)))
    right = float(np.mean(model.predict(X) == np.array(truth)))
    assert expected == pytest.approx(right, abs=1e-12)  # 81 terms in float64
    assert abs(naive - right) > 0.05  # the broken twin: agreement with the noisy labels themselves


def test_the_standard_error_is_the_spread(problem_of):
    """400 releases of 300 labels: their spread lies within the stated error (chi-squared, 1e-7 each side)."""
    data = problem_of(300, seed=8)
    model = SoftmaxRegression().fit(data.X, data.y)
    found = [
        noisy_accuracy(model, data.X, privatize(data.y, RandomizedResponse(1.0, n_classes=3), rng=seed))
        for seed in range(400)
    ]
    spread = np.std([score.accuracy for score in found], ddof=1)
    stated = math.sqrt(np.mean([score.standard_error**2 for score in found]))
    low, high = (math.sqrt(scipy.stats.chi2.ppf(p, 399) / 399) for p in (1e-7, 1 - 1e-7))
    # Stated errors also cover the sampling of examples, which was held fixed: variance a (1 - a) / n at most on top.
    accuracy = model.score(data.X, data.y)
    fixed = math.sqrt(stated**2 - accuracy * (1 - accuracy) / 300)
    assert fixed * low < spread < stated * high
    truth = scipy.stats.norm.isf(1e-7) * stated / math.sqrt(400)
    assert abs(np.mean([score.accuracy for score in found]) - accuracy) < truth


def test_the_choice_is_paired_and_free(problem_of):
    data = problem_of(5000, seed=9)
    release = privatize(data.y, RandomizedResponse(1.0, n_classes=3), rng=1)
    models = {f"l2={l2}": SoftmaxRegression(l2=l2).fit(data.X[:500], data.y[:500]) for l2 in (1e-3, 1.0, 100.0)}
    held = np.arange(5000) >= 500
    choice = choose_by_noisy_accuracy(models, data.X, release, rows=held)
    scores = {name: model.score(data.X[held], data.y[held]) for name, model in models.items()}
    assert scores[choice.name] > max(scores.values()) - 0.01  # seeded
    assert choice.model is models[choice.name]
    assert set(choice.behind) == set(models) - {choice.name}
    for name, gap in choice.behind.items():
        assert gap.accuracy == pytest.approx(choice.scores[choice.name].accuracy - choice.scores[name].accuracy)
    close = next(name for name in choice.behind if "100" not in name)
    assert choice.behind[close].standard_error < choice.scores[close].standard_error / 2  # they agree on most examples
    assert choice.scores[choice.name].n_examples == 4500


def test_a_class_that_labels_cannot_have_is_never_right(problem):
    release = privatize(problem.y, RandomizedResponse(2.0, n_classes=3), rng=0)
    assert noisy_accuracy(Says(["none"] * 600), rows_of(600), release).accuracy == 0.0


def test_what_cannot_be_estimated_is_refused(problem):
    prior = np.tile([0.98, 0.01, 0.01], (600, 1))
    narrow = privatize(problem.y, RRWithPrior(0.5), prior=prior, rng=0)
    model = Says(problem.y)
    with pytest.raises(LabelDPError, match="`release` must be of a channel with an unbiased inverse"):
        noisy_accuracy(model, rows_of(600), narrow)
    plain = privatize(problem.y, RandomizedResponse(2.0, n_classes=3), rng=0)
    with pytest.raises(LabelDPError, match="one row per released label"):
        noisy_accuracy(model, rows_of(599), plain)
    with pytest.raises(LabelDPError, match="`rows` must be two or more"):
        noisy_accuracy(model, rows_of(600), plain, rows=[3])
    with pytest.raises(LabelDPError, match="`models` must have a model"):
        choose_by_noisy_accuracy({}, rows_of(600), plain)
