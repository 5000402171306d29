"""The report on a regressor: exact against scikit-learn, noisy ones by enumeration, coverage, and what a label can move."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from sklearn.metrics import mean_absolute_error, mean_poisson_deviance, mean_squared_error, r2_score

import labeldp
from labeldp.errors import LabelDPError, OptimisticScoreWarning
from labeldp.learn import LabelPrivateRegressor, evaluate
from labeldp.learn.number_scores import PARTS, NumberErrors, find_bins, invert_rows
from labeldp.mechanisms import BinnedResponse, LaplaceResponse
from labeldp.release import SensitiveLabels, privatize

RNG = np.random.default_rng(0)
GUESS = RNG.uniform(1.0, 9.0, 3_000)
LABELS = np.clip(GUESS + RNG.normal(0.3, 1.5, 3_000), 0.0, 10.0)
BOUNDS = (0.0, 10.0)


def test_public_figures_are_those_of_scikit_learn() -> None:
    found = evaluate(GUESS, None, LABELS, bounds=BOUNDS, labels_are_public=True)
    assert found.rmse.value == pytest.approx(mean_squared_error(LABELS, GUESS) ** 0.5)
    assert found.mae.value == pytest.approx(mean_absolute_error(LABELS, GUESS))
    assert found.explained.value == pytest.approx(r2_score(LABELS, GUESS))
    assert found.deviance.value == pytest.approx(mean_poisson_deviance(LABELS, GUESS))
    null = mean_poisson_deviance(LABELS, np.full(len(LABELS), LABELS.mean()))
    assert found.deviance_gain.value == pytest.approx(null - mean_poisson_deviance(LABELS, GUESS))
    assert found.gain.value == pytest.approx(LABELS.var() - mean_squared_error(LABELS, GUESS))
    assert [one.n_rows for one in found.calibration] == [300] * 10
    order = np.argsort(GUESS)
    assert found.calibration[0].observed.value == pytest.approx(LABELS[order[:300]].mean())
    assert found.rmse.interval is None
    assert json.loads(found.to_json())["source"] == "public labels"
    assert "<svg" in found.to_svg()


CHANNELS = {
    "unbiased, much noise": labeldp.UnbiasedResponse(0.5, bounds=BOUNDS),
    "unbiased": labeldp.UnbiasedResponse(2.0, bounds=BOUNDS),
    "counts": labeldp.UnbiasedResponse(1.0, bounds=BOUNDS, grid="integers"),
    "laplace": LaplaceResponse(2.0, bounds=BOUNDS),
    "binned": BinnedResponse(2.0, bounds=BOUNDS),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_estimates_through_a_channel_by_enumeration(name: str) -> None:
    """At every level the mean over all answers is the figure itself, up to what the interval allows for."""
    channel = CHANNELS[name].channel()
    levels, table = channel.levels, channel.matrix(0)
    inverse, missed = invert_rows(table)
    for target in (levels, levels**2, np.abs(levels - 3.3), (levels - 7.1) ** 2):
        off = np.abs(table @ (inverse @ target) - target).max()
        # What is missed is what is said to be missed, to the rounding of K products.
        assert off <= np.abs(missed @ target).max() + 1e-9 * np.abs(target).max()
        assert off <= 0.03 * np.ptp(target)  # 16 answers cannot tell 33 levels apart at epsilon 0.5; else far less


@pytest.mark.parametrize("name", CHANNELS)
def test_intervals_of_a_release_hold_the_exact_figures(name: str) -> None:
    """40 releases; an interval that holds 95 of 100 misses more than 13 of 40 once in 1e8 times, five figures, five channels."""
    labels = np.rint(LABELS) if name == "counts" else LABELS
    exact = evaluate(GUESS, None, labels, bounds=BOUNDS, labels_are_public=True)
    boxed = SensitiveLabels(labels, bounds=BOUNDS)
    names = ("rmse", "mae", "gain", "mean_error", "deviance_gain")
    missed, naive = dict.fromkeys(names, 0), 0
    for seed in range(40):
        release = privatize(boxed, CHANNELS[name], rng=seed)
        found = evaluate(GUESS, None, release)
        naive += not found.rmse.interval[0] <= np.mean((GUESS - release.values) ** 2) ** 0.5 <= found.rmse.interval[1]
        for one in names:
            low, high = getattr(found, one).interval
            missed[one] += not low <= getattr(exact, one).value <= high
    most = int(scipy.stats.binom.isf(1e-8, 40, 0.05))
    assert max(missed.values()) <= most < naive  # answers taken for labels are caught


def test_protected_figures_are_near_and_charged_once(tmp_path: Any) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    exact = evaluate(GUESS, None, LABELS, bounds=BOUNDS, labels_are_public=True)
    found = evaluate(GUESS, None, LABELS, bounds=BOUNDS, epsilon=0.5, ledger=ledger, rng=1, label_set="y")
    assert [entry.guarantee.epsilon() for entry in ledger.entries()] == [0.5]
    assert found.guarantee.trust.words == "a curator"
    assert found.ledger_entry == ledger.entries()[0].id
    # Noise of rate 0.5 / 4 over 3,000 rows of range 10; the chance of 20 of its scales is below 1e-8 a figure.
    scale = 4 / 0.5 / len(GUESS) * 10
    assert found.mae.value == pytest.approx(exact.mae.value, abs=20 * scale + 10 / 65_536)
    assert found.rmse.value**2 == pytest.approx(exact.rmse.value**2, abs=20 * scale * 10 + 0.01)
    for one, other in zip(found.calibration, exact.calibration, strict=True):
        assert one.observed.value == pytest.approx(other.observed.value, abs=20 * scale * 10 + 0.01)
    boxed = SensitiveLabels(LABELS, bounds=BOUNDS)
    again = evaluate(GUESS, None, boxed, epsilon=0.5, rng=1)
    assert again.mae.value == found.mae.value


def test_what_one_label_can_move_in_the_sums() -> None:
    """Every replacement of one of three labels, on a grid of eleven: the stated bound holds, and is nearly met."""
    guess, steps = np.array([0.0, 0.35, 1.0]), 10
    query = NumberErrors(guess=guess, bins=np.array([0, 1, 1]), n_bins=2, scores=np.arange(steps + 1), steps=steps)
    worst = 0.0
    for row in range(3):
        answers = []
        for code in range(steps + 1):
            codes = np.array([3, 7, 5])
            codes[row] = code
            answers.append(query.exact(codes, n_classes=steps + 1))
        table = np.array(answers)
        worst = max(worst, np.abs(table[:, None] - table[None]).sum(axis=2).max())
    stated = query.sensitivity(n_classes=steps + 1)
    assert 0.99 * stated.l1 <= worst <= stated.l1 == 4 * PARTS
    assert stated.l2 == 2 * PARTS


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 0, 4, 2, 1], [0, 1, 2, 3, 4, 9]])
def test_classes_that_are_numbers_are_scored_as_their_numbers(order: list[int]) -> None:
    """In any order of the list, and beyond the bounds: the code of a class is its place there, and no number."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 4000)
    guess = np.clip(y + rng.normal(size=4000), 0, 4)
    exact = evaluate(guess, None, y, bounds=(0, 4), labels_are_public=True)
    found = evaluate(guess, None, SensitiveLabels(y, classes=order), bounds=(0, 4), epsilon=1.0, rng=1)
    # Noise of rate 1 / 4 over 4,000 rows of range 4: the chance of 20 of its scales is below 1e-8 a figure.
    scale = 4 / 4000 * 4
    assert found.mae.value == pytest.approx(exact.mae.value, abs=20 * scale)
    assert found.rmse.value**2 == pytest.approx(exact.rmse.value**2, abs=20 * scale * 4)


def test_a_score_beyond_the_grid_is_refused() -> None:
    """It would move the sums further than is stated: of 50 classes numbered 0 .. 49, on a grid of one step, 1,225 times as far."""
    guess = np.zeros(3)
    for scores, steps in [(np.arange(50), 1), (np.array([-1, 1]), 1), (np.arange(3), 2)]:
        query = NumberErrors(guess=guess, bins=np.zeros(3, int), n_bins=1, scores=scores, steps=steps)
        with pytest.raises(LabelDPError, match="a place on the grid for each class"):
            query.sensitivity(n_classes=2 if steps == 2 else len(scores))


def test_noise_beyond_what_is_possible_leaves_a_figure() -> None:
    """Errors of 0 under noise: a sum is below 0 by more than its half-width in one run of 40. Then both ends are 0, and no root fails."""
    y = np.linspace(0, 1, 1000)
    cut = 0
    for seed in range(200):
        found = evaluate(y, None, y, bounds=(0, 1), epsilon=1.0, rng=seed)
        for figure in (found.rmse, found.mae):
            assert 0 <= figure.interval[0] <= figure.interval[1] <= 1
            assert 0 <= figure.population[0] <= figure.value <= figure.population[1]
        cut += found.rmse.interval == (0.0, 0.0)
    assert cut > 0


def test_a_model_and_its_own_release() -> None:
    X = np.linspace(0, 1, 500)[:, None]
    model = LabelPrivateRegressor(epsilon=2.0, bounds=(0, 1), random_state=0).fit(X, X[:, 0])
    with pytest.warns(OptimisticScoreWarning, match="trained on this very release"):
        found = evaluate(model, X, model.release_)
    assert found.notes
    assert evaluate(model, X, X[:, 0], labels_are_public=True).bounds == (0.0, 1.0)
    part = evaluate(
        model, X, privatize(X[:, 0], labeldp.UnbiasedResponse(2.0, bounds=(0, 1)), rng=5), rows=slice(0, 99)
    )
    assert part.n_rows == 99


def test_a_release_of_other_labels_is_refused() -> None:
    X = np.linspace(0, 1, 50)[:, None]
    model = LabelPrivateRegressor(epsilon=2.0, bounds=(0, 1), random_state=0).fit(X, X[:, 0])
    other = privatize(X[:, 0], labeldp.UnbiasedResponse(2.0, bounds=(0, 2)), rng=0)
    with pytest.raises(LabelDPError, match="with the bounds of the model"):
        evaluate(model, X, other)
    classes = privatize([0, 1] * 25, labeldp.RandomizedResponse(1.0, n_classes=2), rng=0)
    with pytest.raises(LabelDPError, match="probabilities"):
        evaluate(model, X, classes)


def test_deciles_of_equal_predictions_are_one() -> None:
    assert find_bins(np.full(7, 2.0)).tolist() == [0] * 7
    found = evaluate(np.full(50, 2.0), None, LABELS[:50], bounds=BOUNDS, labels_are_public=True)
    assert len(found.calibration) == 1
    assert found.gain.value <= 0


@pytest.mark.parametrize(
    ("guess", "labels", "options", "message"),
    [
        ([1.0, np.nan], [1.0, 2.0], {"labels_are_public": True}, "be one finite number per label"),
        ([1.0], [1.0, 2.0], {"labels_are_public": True}, "be one finite number per label"),
        ([1.0, 2.0], [1.0, np.inf], {"labels_are_public": True}, "missing or infinite number in row 1"),
        ([1.0, 2.0], ["a", "b"], {"labels_are_public": True}, "be numbers"),
        ([1.0, 2.0], [1.0, 2.0], {"epsilon": 1.0, "bounds": (3, 1)}, "must rise"),
        ([1.0, 2.0], [1.0, np.nan], {"epsilon": 1.0}, "missing or infinite number in row 1"),
        ([1.0, 2.0], [1.0, 2.0], {}, "have labels_are_public or epsilon"),
        ([1.0, 2.0], (label for label in (1.0, 2.0)), {"epsilon": 1.0}, "be one number per row, got a generator"),
        ([1.0, 2.0], scipy.sparse.csr_matrix([1.0, 2.0]), {"epsilon": 1.0}, "be one number per row, got a csr_matrix"),
        ([1.0, 2.0], 7, {"epsilon": 1.0}, "be one number per row, got a int"),
    ],
)
def test_bad_input(guess: Any, labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        evaluate(np.array(guess), None, labels, **{"bounds": (0, 10), **options})
