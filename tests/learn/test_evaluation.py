"""A whole report: exact against scikit-learn, private by enumeration, with intervals that cover and twins that do not."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    roc_auc_score,
)

from labeldp import Ledger, RandomizedResponse, RRWithPrior, SensitiveLabels, measure, privatize
from labeldp.errors import BudgetError, LabelDPError, OptimisticScoreWarning
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression, evaluate, noisy_accuracy
from labeldp.learn.metrics import Scores
from labeldp.learn.score_counts import Cells, ScoreCounts
from labeldp.release import Sensitivity

#: The figures of a whole report.
MAIN = ("accuracy", "majority", "balanced_accuracy", "auc", "log_loss", "constant_log_loss", "brier", "ece")


def problem(n, k, seed, *, ties=False, slope=1.0):
    """Labels, and probabilities that know something of them; `ties` rounds them."""
    rng = np.random.default_rng(seed)
    y = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 5.0)))
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), y] += 1.5
    chances = np.exp(slope * logits)
    chances /= chances.sum(axis=1, keepdims=True)
    if ties:
        chances = np.round(chances, 1) + 0.01
        chances /= chances.sum(axis=1, keepdims=True)
    return chances, y


# ----------------------------------------------------------------------------------------------------- public labels


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_exact_figures_are_those_of_scikit_learn(k, ties):
    chances, y = problem(400, k, seed=k, ties=ties)
    found = evaluate(chances, None, y, classes=range(k), labels_are_public=True)
    predicted = chances.argmax(axis=1)
    # Sums of 400 products in another order: some ulp.
    same = {"rel": 1e-9, "abs": 1e-12}
    assert found.accuracy.value == pytest.approx(accuracy_score(y, predicted), **same)
    assert found.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(y, predicted), **same)
    assert found.log_loss.value == pytest.approx(log_loss(y, chances, labels=range(k)), **same)
    rates = np.bincount(y, minlength=k) / len(y)
    constant = log_loss(y, np.tile(rates, (len(y), 1)), labels=range(k))
    assert found.constant_log_loss.value == pytest.approx(constant, **same)
    assert found.majority.value == pytest.approx(rates.max(), **same)
    assert found.majority_class == int(rates.argmax())
    squared = ((chances - np.eye(k)[y]) ** 2).sum(axis=1).mean()
    assert found.brier.value == pytest.approx(brier_score_loss(y, chances[:, 1]) if k == 2 else squared, **same)
    aucs = [roc_auc_score(y == c, chances[:, c]) for c in range(k)]
    assert [auc.value for auc in found.aucs] == pytest.approx(aucs, **same)
    whole = aucs[1] if k == 2 else roc_auc_score(y, chances, multi_class="ovr", average="macro")
    assert found.auc.value == pytest.approx(whole, **same)
    table = [[cell.value for cell in row] for row in found.confusion]
    assert np.allclose(table, confusion_matrix(y, predicted, labels=range(k)))
    assert found.accuracy.interval is None
    assert found.guarantee is None


@pytest.mark.parametrize(("k", "ties"), [(2, False), (2, True), (3, True)])
def test_bins_and_cuts_by_counting(k, ties):
    """Calibration row by row, and precision at k as the mean over random orders of tied rows."""
    chances, y = problem(300, k, seed=5, ties=ties)
    found = evaluate(chances, None, y, classes=range(k), labels_are_public=True)
    said = chances[:, 1] if k == 2 else chances.max(axis=1)
    came = (y == 1) if k == 2 else (y == chances.argmax(axis=1))
    total = 0.0
    for place in found.calibration:
        rows = (said >= place.low) & (said <= place.high)
        assert rows.sum() == place.n_rows
        assert place.observed.value == pytest.approx(came[rows].mean())
        assert place.mean_probability == pytest.approx(said[rows].mean())
        total += rows.mean() * abs(came[rows].mean() - said[rows].mean())
    assert sum(place.n_rows for place in found.calibration) == 300
    assert found.ece.value == pytest.approx(total)
    for top in found.tops:
        score = chances[:, top.class_]
        at = np.sort(score)[::-1][top.n_rows - 1]
        above, tied = score > at, score == at
        right = (y == top.class_)[above].sum() + (top.n_rows - above.sum()) * (y == top.class_)[tied].mean()
        assert top.precision.value == pytest.approx(right / top.n_rows)
        assert top.lift.value == pytest.approx(right / top.n_rows / (y == top.class_).mean())
        assert top.recall.value == pytest.approx(right / (y == top.class_).sum())
    assert len(found.tops) == 12 * (1 if k == 2 else k)


def test_a_model_and_names_for_classes(problem_of):
    data = problem_of(600, seed=3)
    model = SoftmaxRegression().fit(data.X[:300], data.y[:300])
    names = np.array(["a", "b", "c"])
    named = SoftmaxRegression().fit(data.X[:300], names[data.y[:300]])
    codes = evaluate(model, data.X[300:], data.y[300:], labels_are_public=True)
    words = evaluate(named, data.X[300:], names[data.y[300:]], labels_are_public=True)
    assert words.classes == ("a", "b", "c")
    assert words.accuracy == codes.accuracy
    assert words.accuracy.value == accuracy_score(data.y[300:], model.predict(data.X[300:]))
    # A label that the model does not know has no chance, and is one more class.
    strange = np.append(names[data.y[300:]][:-1], "z")
    more = evaluate(named, data.X[300:], strange, labels_are_public=True)
    assert more.classes == ("a", "b", "c", "z")
    assert more.base_rates[3].value == pytest.approx(1 / 300)
    assert more.log_loss.value > words.log_loss.value


def test_population_intervals_cover_the_population():
    """200 samples of 400 rows: the interval holds the value of 200,000 rows. At 93 % each, fewer than 160 of 200 have
    probability 2e-8; the twin, half as wide, covers about two thirds.
    """
    chances, y = problem(200_000, 2, seed=11)
    truth = evaluate(chances, None, y, classes=[0, 1], labels_are_public=True)
    rng = np.random.default_rng(1)
    names = ("accuracy", "balanced_accuracy", "auc", "log_loss", "brier")
    wide, narrow = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for _ in range(200):
        rows = rng.choice(len(y), 400)
        found = evaluate(chances[rows], None, y[rows], classes=[0, 1], labels_are_public=True)
        for name in names:
            metric, value = getattr(found, name), getattr(truth, name).value
            low, high = metric.population
            wide[name] += low <= value <= high
            narrow[name] += abs(value - metric.value) <= (high - low) / 4
    assert scipy.stats.binom.cdf(159, 200, 0.93) < 1e-6
    assert min(wide.values()) >= 160
    assert max(narrow.values()) < 160


# -------------------------------------------------------------------------------------------------- honest extremes


def everything(found):
    """Every metric of a report."""
    yield from (getattr(found, name) for name in MAIN)
    yield from (*found.recalls, *found.aucs, *found.base_rates, *(place.observed for place in found.calibration))
    yield from (cell for row in found.confusion or () for cell in row)
    for top in found.tops:
        yield from (top.precision, top.lift, top.recall, top.false_positive_rate)


RNG = np.random.default_rng(9)
EXTREMES = {
    "one row": (np.array([0.3]), [0], 2),
    "two rows, one class": (np.array([0.3, 0.7]), [1, 1], 2),
    "a constant": (np.full(500, 0.3), RNG.integers(0, 2, 500), 2),
    "all of one class": (RNG.uniform(size=500), np.zeros(500, int), 2),
    "certain of everything": ((RNG.uniform(size=500) > 0.5).astype(float), RNG.integers(0, 2, 500), 2),
    "a class that is absent": (RNG.dirichlet(np.ones(3), 300), RNG.integers(0, 2, 300), 3),
    "more classes than a screen": (RNG.dirichlet(np.full(100, 0.1), 3000), RNG.integers(0, 100, 3000), 100),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("how", ["public", "protected", "no noise", "released"])
def test_extremes_are_honest(name, how):
    chances, y, k = EXTREMES[name]
    if how == "released":
        if len(y) == 1:
            return
        found = evaluate(chances, None, privatize(np.array(y), RandomizedResponse(1.0, n_classes=k), rng=0))
    else:
        options = {
            "public": {"labels_are_public": True},
            "protected": {"epsilon": 1.0},
            "no noise": {"epsilon": math.inf},
        }
        found = evaluate(chances, None, y, classes=range(k), **options[how])
    for metric in everything(found):
        assert (metric.value is None) == bool(metric.reason)
        for ends in (metric.interval, metric.population):
            assert ends is None or ends[0] <= metric.value <= ends[1]
            assert ends is None or all(map(math.isfinite, ends))
        assert (metric.interval is None) == (metric.value is None or how == "public")
    if name == "a constant":
        assert found.auc.value == pytest.approx(0.5)
        assert len(found.calibration) == 1
    if name in ("all of one class", "two rows, one class", "one row"):
        assert found.auc.value is None
    if name == "a class that is absent" and how == "public":
        assert found.recalls[2].reason == "no row has this class"
        assert "over 2 of 3 classes" in found.notes[0]
    if k == 100 and how != "public":
        assert found.confusion is None
        assert "100 classes" in found.confusion_reason
    json.loads(found.to_json())
    ET.fromstring(found.to_svg())
    assert str(found.n_rows) in str(found).replace(",", "")


@pytest.mark.parametrize("name", ["ye\x1bs", "y\x00", "\ud800", "\uffff", "]]><&\"'", "a\tb\nc"])
def test_a_drawing_is_well_formed_whatever_classes_are_called(name: str) -> None:
    """Before: control characters were no XML, and half a character could not be written."""
    labels = ["no", name] * 100
    scores = np.random.default_rng(0).dirichlet([1.0, 1.0], size=200)
    found = evaluate(scores, None, labels, classes=["no", name], labels_are_public=True)
    texts = ET.fromstring(found.to_svg().encode()).itertext()
    assert any("no" in text for text in texts)


def test_noise_that_went_too_far_does_not_look_certain():
    """No row is of the second class, so that half of the noisy shares are below 0: their intervals have a width all the same."""
    chances = np.linspace(0.01, 0.99, 1000)
    for seed in range(20):
        found = evaluate(chances, None, np.zeros(1000, int), classes=[0, 1], epsilon=1.0, rng=seed)
        for metric in (found.base_rates[1], *(place.observed for place in found.calibration)):
            assert metric.interval[1] > metric.interval[0]
            assert metric.interval[1] - metric.interval[0] > 1e-3


def test_a_report_is_a_frozen_value():
    chances, y = problem(200, 3, seed=1)
    found = evaluate(chances, None, y, classes=range(3), epsilon=1.0, rng=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.n_rows = 3
    again = evaluate(chances, None, y, classes=range(3), epsilon=1.0, rng=0)
    assert again == found
    assert found.seeded
    facts = json.loads(found.to_json())
    assert facts["accuracy"]["value"] == found.accuracy.value
    assert facts["accuracy"]["interval"] == list(found.accuracy.interval)
    assert facts["confidence"] == 0.95
    assert facts["tops"][0]["class"] == 0


# ------------------------------------------------------------------------------------------------- refused, and charged


def test_refused_before_anything_is_charged(tmp_path):
    chances, y = problem(100, 2, seed=2)
    book = Ledger(tmp_path / "spent.sqlite", budget=1.0)
    how = {"classes": [0, 1], "epsilon": 0.5, "ledger": book}
    bad = chances.copy()
    bad[3] = math.nan
    with pytest.raises(LabelDPError, match="NaN in row 3"):
        evaluate(bad, None, y, **how)
    with pytest.raises(LabelDPError, match="sum"):
        evaluate(chances * 2, None, y, **how)
    with pytest.raises(LabelDPError, match="one row per label"):
        evaluate(chances[:50], None, y, **how)
    with pytest.raises(LabelDPError, match="classes"):
        evaluate(chances, None, y, epsilon=0.5, ledger=book)
    with pytest.raises(LabelDPError, match="epsilon"):
        evaluate(chances, None, y, **{**how, "epsilon": 0.0})
    with pytest.raises(LabelDPError, match="both"):
        evaluate(chances, None, y, **how, labels_are_public=True)
    with pytest.raises(LabelDPError, match="neither"):
        evaluate(chances, None, y, classes=[0, 1])
    with pytest.raises(LabelDPError, match="box"):
        evaluate(chances, None, SensitiveLabels(y, n_classes=2), classes=[0, 1], labels_are_public=True)
    with pytest.raises(LabelDPError, match="not charged"):
        evaluate(chances, None, y, classes=[0, 1], labels_are_public=True, ledger=book)
    with pytest.raises(LabelDPError, match="release only"):
        evaluate(chances, None, y, **how, rows=[1, 2])
    release = privatize(y, RandomizedResponse(1.0, n_classes=2), rng=0)
    with pytest.raises(LabelDPError, match="cost nothing"):
        evaluate(chances, None, release, epsilon=1.0)
    assert book.spent("labels") is None
    with pytest.raises(BudgetError):
        evaluate(chances, None, y, **{**how, "epsilon": 1.5})
    assert len(book.entries()) == 0


def test_one_charge_for_the_whole_report(tmp_path):
    chances, y = problem(300, 3, seed=2)
    book = Ledger(tmp_path / "spent.sqlite", budget=1.0)
    boxed = SensitiveLabels(y, n_classes=3, name="answers")
    found = evaluate(chances, None, boxed, epsilon=0.75, ledger=book)
    (entry,) = book.entries()
    assert (entry.label_set, entry.guarantee.epsilon(), int(found.ledger_entry)) == ("answers", 0.75, entry.id)
    assert "ScoreCounts" in entry.mechanism
    assert found.guarantee.epsilon() == 0.75
    assert found.guarantee.trust.words == "a curator"
    assert any("predictions are public" in text for text in found.guarantee.assumptions)
    assert book.remaining("answers") == pytest.approx(0.25)


# ------------------------------------------------------------------------------------------------------- the privacy


def all_labels(n, k):
    return np.stack(np.meshgrid(*[np.arange(k)] * n, indexing="ij"), axis=-1).reshape(-1, n)


def largest_move(query, n, k):
    """The largest L1 and L2 distance of answers for labels that differ in one place, over all labels."""
    l1 = l2 = 0.0
    for labels in all_labels(n, k):
        here = query.exact(labels, n_classes=k)
        for row in range(n):
            for other in range(k):
                changed = labels.copy()
                changed[row] = other
                moved = (query.exact(changed, n_classes=k) - here).astype(float)
                l1, l2 = max(l1, np.abs(moved).sum()), max(l2, math.sqrt((moved**2).sum()))
    return l1, l2


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_sensitivity_is_the_largest_move_of_all_neighbours(k):
    """Every label vector of four rows, every neighbour, on the cells that a report chooses."""
    chances, _ = problem(4, k, seed=k)
    query = Cells.choose(Scores(chances, classes=tuple(range(k))), epsilon=50.0).query
    stated = query.sensitivity(n_classes=k)
    l1, l2 = largest_move(query, 4, k)
    assert (l1, l2) == pytest.approx(tuple(stated))
    assert stated.l1 >= l1
    assert stated.l2 >= l2


class HalfTheSensitivity(ScoreCounts):
    """The broken twin: it says that a label moves one count."""

    def sensitivity(self, *, n_classes):
        return Sensitivity(1.0, 1.0)


def draw_noise(query, epsilon, seed):
    """20,000 draws of the noise of a measurement, as the difference from its exact answer."""
    labels = np.array([0, 1, 2])
    measured = measure(SensitiveLabels(labels, n_classes=3), query, epsilon=epsilon, rng=seed)
    return measured.value - query.exact(labels, n_classes=3)


def law_gap(noise, rate):
    """The largest distance of the draws' distribution function from that of discrete Laplace noise of this rate."""
    values = np.arange(-60, 61)
    q = math.exp(-rate)
    exact = np.where(values >= 0, 1 - q ** (values + 1.0) / (1 + q), q ** (-values.astype(float)) / (1 + q))
    return float(np.abs(np.searchsorted(np.sort(noise), values, side="right") / len(noise) - exact).max())


def test_the_noise_has_the_law_that_was_paid_for():
    """Massart: 20,000 draws stay within sqrt(log(2 / 1e-7) / 40,000) of their law but for 1e-7. The twin does not."""
    cells = np.arange(3)[None] + 3 * np.arange(3)[:, None]
    allowed = math.sqrt(math.log(2 / 1e-7) / 40_000)
    assert law_gap(draw_noise(ScoreCounts(cells=cells, n_cells=20_000), 1.0, 1), 0.5) < allowed
    assert law_gap(draw_noise(HalfTheSensitivity(cells=cells, n_cells=20_000), 1.0, 1), 0.5) > allowed
    assert largest_move(HalfTheSensitivity(cells=cells, n_cells=9), 3, 3)[0] > 1.0


@pytest.mark.parametrize("k", [2, 3])
def test_nothing_but_the_counts_is_told(k):
    """Labels exchanged within cells leave the counts, hence the whole report; a report that looks again would differ."""
    chances, y = problem(400, k, seed=6)
    plan = Cells.choose(Scores(chances, classes=tuple(range(k))), epsilon=1.0)
    cells = np.atleast_2d(plan.query.cells)
    rng = np.random.default_rng(0)
    other = y.copy()
    # Rows that share the cells of every class may exchange their labels.
    for rows in np.split(np.lexsort(cells), np.flatnonzero(np.any(np.diff(cells[:, np.lexsort(cells)]), axis=0)) + 1):
        other[rows] = rng.permutation(other[rows])
    assert (other != y).sum() > 20
    first, second = (evaluate(chances, None, labels, classes=range(k), epsilon=1.0, rng=3) for labels in (y, other))
    assert first == second
    exact = [evaluate(chances, None, labels, classes=range(k), labels_are_public=True) for labels in (y, other)]
    assert exact[0].log_loss != exact[1].log_loss  # the broken twin: the exact loss beside the counts


# ------------------------------------------------------------------------------------------------------- the intervals


def count_covered(reports, quiet, truth, names):
    """How many intervals hold the truth, and how many of a twin whose width is that of a report without noise."""
    covered, twin = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for found in reports:
        for name in names:
            metric, value, calm = getattr(found, name), getattr(truth, name).value, getattr(quiet, name)
            covered[name] += metric.interval[0] <= value <= metric.interval[1]
            half = (calm.interval[1] - calm.interval[0]) / 2
            twin[name] += abs(metric.value - value) <= half
    return covered, twin


#: Of 120 intervals that cover with 93 %, fewer than 92 do so with probability below 1e-7, for each of eight figures.
REPEATS, LEAST_COVERED = 120, 92


def test_what_the_bound_on_coverage_means():
    assert 8 * scipy.stats.binom.cdf(LEAST_COVERED - 1, REPEATS, 0.93) < 1e-6


@pytest.mark.parametrize(("k", "slope"), [(2, 1.0), (2, 4.0), (3, 1.0)])
def test_intervals_on_protected_labels_cover(k, slope):
    """Calibrated and overconfident models; the twin ignores the noise (its width is that of epsilon 50)."""
    chances, y = problem(1500, k, seed=21, slope=slope)
    truth = evaluate(chances, None, y, classes=range(k), labels_are_public=True)
    reports = [evaluate(chances, None, y, classes=range(k), epsilon=1.0, rng=seed) for seed in range(REPEATS)]
    quiet = evaluate(chances, None, y, classes=range(k), epsilon=50.0, rng=0)
    covered, twin = count_covered(reports, quiet, truth, MAIN)
    assert min(covered.values()) >= LEAST_COVERED, covered
    assert max(twin[name] for name in ("accuracy", "auc", "brier", "balanced_accuracy")) < LEAST_COVERED, twin
    worst = max(abs(np.mean([found.accuracy.value for found in reports]) - truth.accuracy.value), 0.0)
    assert worst < 0.005  # unbiased: the mean of 120 with a spread below 0.01 each is within 0.001 of it


@pytest.mark.parametrize("k", [2, 3])
def test_intervals_on_released_labels_cover(k):
    chances, y = problem(1500, k, seed=22)
    truth = evaluate(chances, None, y, classes=range(k), labels_are_public=True)
    reports = [
        evaluate(chances, None, privatize(y, RandomizedResponse(1.5, n_classes=k), rng=seed)) for seed in range(REPEATS)
    ]
    quiet = evaluate(chances, None, privatize(y, RandomizedResponse(20.0, n_classes=k), rng=0))
    covered, twin = count_covered(reports, quiet, truth, MAIN)
    assert min(covered.values()) >= LEAST_COVERED, covered
    assert max(twin.values()) < LEAST_COVERED, twin


# ---------------------------------------------------------------------------------------------------- released labels


class Fixed:
    """A model of known probabilities, by row number."""

    def __init__(self, chances, classes):
        self.chances, self.classes_ = chances, np.asarray(classes)

    def predict_proba(self, X):
        return self.chances[np.asarray(X)[:, 0].astype(int)]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_accuracy_is_the_noisy_accuracy():
    chances, y = problem(900, 3, seed=4)
    release = privatize(y, RandomizedResponse(2.0, n_classes=3), rng=0)
    model, X = Fixed(chances, range(3)), np.arange(900.0)[:, None]
    held = np.arange(900) % 3 == 0
    found = evaluate(model, X, release, rows=held)
    alone = noisy_accuracy(model, X, release, rows=held)
    assert found.n_rows == 300
    assert found.accuracy.value == pytest.approx(alone.accuracy)
    # The standard error of the mean covers noise and sampling, as the interval about the population does.
    half = (found.accuracy.population[1] - found.accuracy.population[0]) / 2
    assert half == pytest.approx(1.96 * alone.standard_error, rel=0.1)  # both are estimates, of 300 rows
    assert found.guarantee == release.guarantee
    assert found.n_counts is None


def test_candidate_sets_are_read_by_likelihood_and_say_so():
    chances, y = problem(6000, 4, seed=8)
    truth = evaluate(chances, None, y, classes=range(4), labels_are_public=True)
    release = privatize(y, RRWithPrior(1.0), prior=0.5 * chances + 0.125, rng=0)
    found = evaluate(chances, None, release)
    assert "maximum likelihood" in found.method
    assert "odds" in found.assumptions[0]
    for name in ("accuracy", "auc", "brier"):
        low, high = getattr(found, name).interval
        assert low <= getattr(truth, name).value <= high
    sure = np.where(np.arange(6000)[:, None] % 4 > 0, np.eye(4)[chances.argmax(axis=1)] * 0.96 + 0.01, 0.25)
    silent = privatize(y, RRWithPrior(1.0), prior=sure, rng=0)
    with pytest.raises(LabelDPError, match="more than half of the rows"):
        evaluate(chances, None, silent)


def test_a_release_that_tells_nothing_is_refused():
    chances, y = problem(100, 2, seed=8)
    with pytest.raises(LabelDPError, match="tells of labels"):
        evaluate(chances, None, privatize(y, RandomizedResponse(0.0, n_classes=2), rng=0))


def test_own_labels_are_warned_of_and_a_first_stage_is_preferred(problem_of):
    data = problem_of(2000, seed=3)
    paper = {"mechanism": RRWithPrior(2.0), "stages": 2}
    model = LabelPrivateClassifier(epsilon=2.0, random_state=0, classes=[0, 1, 2], **paper)
    model.fit(data.X, data.y)
    with pytest.warns(OptimisticScoreWarning, match="very release"):
        found = evaluate(model, data.X, model.release_)
    assert "optimistic" in found.notes[0]
    assert found.n_rows == int((model.release_.stage == model.release_.stage.min()).sum())
    assert "without candidate sets" in found.notes[1]
    assert found.method.startswith("unbiased")
    other = privatize(data.y, RandomizedResponse(2.0, n_classes=3), rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, data.X, other)
