"""`LabelPrivateRatings`: its promise, each label once, the ledger, the receiver's model, and that it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.accounting import Ledger
from labeldp.errors import BudgetError, LabelDPError
from labeldp.guarantee import Trust
from labeldp.learn import responses as _responses
from labeldp.learn.ratings import LabelPrivateRatings, MatrixFactorisation
from labeldp.learn.ratings import private as _private
from labeldp.mechanisms import RandomizedResponse, UnbiasedResponse
from labeldp.release import SensitiveLabels, load_release, privatize

STARS = (1, 2, 3, 4, 5)
SHORT = {"factors": 3, "sweeps": 20, "burn": 8, "pair_features": 4, "random_state": 0}


def rmse(model, pairs, ratings) -> float:
    return float(np.sqrt(np.mean((model.predict(pairs) - ratings) ** 2)))


def private(epsilon=2.0, **settings) -> LabelPrivateRatings:
    return LabelPrivateRatings(
        MatrixFactorisation(**SHORT), epsilon=epsilon, values=STARS, **{"random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def local(stars) -> LabelPrivateRatings:
    """A model of responses alone."""
    return private(2.0).fit(*stars)


@pytest.mark.parametrize(("epsilon", "sums"), [(1.0, None), (4.0, None), (3.0, 0.4)], ids=["sums", "responses", "both"])
def test_learns_more_than_a_constant(stars, epsilon, sums):
    """A constant has the deviation of the ratings; seeded, so this either holds or not."""
    pairs, ratings = stars
    model = private(epsilon, sums=sums).fit(pairs[:5_000], ratings[:5_000])
    assert rmse(model, pairs[5_000:], ratings[5_000:]) < 0.93 * ratings[5_000:].std()
    assert model.guarantee_.epsilon() <= epsilon
    shuffled = private(epsilon, sums=sums).fit(pairs[:5_000], np.random.default_rng(0).permutation(ratings[:5_000]))
    # The broken twin: labels that say nothing teach nothing.
    assert rmse(shuffled, pairs[5_000:], ratings[5_000:]) > 0.97 * ratings[5_000:].std()


def test_trust_follows_the_release(stars, local):
    pairs, ratings = (column[:1_500] for column in stars)
    assert private(1.0).fit(pairs, ratings).guarantee_.trust is Trust.CURATOR
    assert local.guarantee_.trust is Trust.NO_ONE
    assert local.by_user_ is None
    both = private(2.0, sums=0.5).fit(pairs, ratings)
    assert both.guarantee_.trust is Trust.CURATOR
    assert both.guarantee_.epsilon() <= 2.0
    assert [name for name, _ in both.guarantee_.parts] == ["sums by user", "sums by item", "responses"]


def test_each_label_goes_through_the_door_once(stars, monkeypatch):
    """The door is instrumented: responses see disjoint rows that make up all, and each sum is asked for once."""
    pairs, ratings = (column[:2_000] for column in stars)
    drawn, summed = [], []
    real_privatize, real_measure = _responses.privatize, _private.measure

    def watched(labels, mechanism, **options):
        drawn.append((np.asarray(labels.row_ids), mechanism.epsilon))
        return real_privatize(labels, mechanism, **options)

    def watched_measure(labels, query, *, epsilon, rng):
        summed.append(epsilon)
        return real_measure(labels, query, epsilon=epsilon, rng=rng)

    monkeypatch.setattr(_responses, "privatize", watched)
    monkeypatch.setattr(_private, "measure", watched_measure)
    labels = SensitiveLabels(ratings, classes=STARS, row_ids=np.arange(len(ratings)))
    model = private(3.0, sums=0.5, stages=(0.2, 0.3, 0.5)).fit(pairs, labels)
    rows = np.concatenate([part for part, _ in drawn])
    assert np.array_equal(np.sort(rows), np.arange(len(ratings)))
    assert len(drawn) == 3
    assert len(summed) == 2
    assert sum(summed) + drawn[0][1] <= model.guarantee_.epsilon() <= 3.0


def test_the_channel_keeps_what_the_stages_promise(local):
    assert local.release_.channel.epsilon <= 2.0
    assert local.release_.seeded
    assert np.bincount(local.release_.stage).tolist() == [stage.n_examples for stage in local.stages_]
    assert local.stages_[0].n_channels == 1
    assert local.stages_[-1].n_channels > 1


def test_unseeded_noise_is_fresh(stars):
    pairs, ratings = (column[:1_500] for column in stars)
    one, two = (private(1.5, random_state=None, stages=1).fit(pairs, ratings) for _ in range(2))
    assert not one.seeded_
    # Equal outputs of 1,500 labels would have probability far below 2^-300.
    assert not np.array_equal(one.release_.codes, two.release_.codes)


def test_a_receiver_learns_the_same_model(stars, local, tmp_path):
    pairs, _ = stars
    local.release_.save(tmp_path / "release")
    received = load_release(tmp_path / "release")
    twin = MatrixFactorisation(**SHORT).fit_release(pairs, received)
    assert np.array_equal(twin.predict(pairs[:50]), local.predict(pairs[:50]))


def test_the_ledger_is_charged_once_and_refuses_before_anything_is_drawn(stars, tmp_path, monkeypatch):
    pairs, ratings = (column[:1_500] for column in stars)
    book = Ledger(tmp_path / "spent.sqlite", budget=2.5)
    model = private(2.0, sums=0.5, ledger=book).fit(pairs, ratings)
    assert model.ledger_entry_ is not None
    assert book.spent("ratings").epsilon() == pytest.approx(2.0)
    asked = []
    monkeypatch.setattr(_private, "measure_cells", lambda *_args, **_options: asked.append("sums"))
    monkeypatch.setattr(_private, "respond_in_stages", lambda *_args, **_options: asked.append("responses"))
    with pytest.raises(BudgetError):
        private(2.0, ledger=book).fit(pairs, ratings)
    assert asked == []


def test_any_channel_will_do(stars):
    """Randomized response and a learner that reads its channel, against one that takes the outputs at face value."""
    pairs, ratings = stars
    train, rest = slice(0, 5_000), slice(5_000, None)
    release = privatize(SensitiveLabels(ratings[train], classes=STARS), RandomizedResponse(1.5), rng=1)
    aware = MatrixFactorisation(**SHORT).fit_release(pairs[train], release)
    naive = MatrixFactorisation(**SHORT).fit(pairs[train], release.labels)
    assert rmse(aware, pairs[rest], ratings[rest]) < rmse(naive, pairs[rest], ratings[rest])


def test_nothing_hidden_is_no_worse(stars):
    pairs, ratings = stars
    model = private(math.inf).fit(pairs[:5_000], ratings[:5_000])
    assert rmse(model, pairs[5_000:], ratings[5_000:]) < 0.75 * ratings.std()
    assert model.guarantee_.epsilon() == math.inf


def test_ids_that_were_not_seen_are_average(stars):
    pairs, ratings = stars
    model = MatrixFactorisation(**SHORT).fit(pairs, ratings)
    told = model.predict([(10_000, 10_000), (0, 10_000)])
    assert np.all(np.isfinite(told))
    assert told[0] == pytest.approx(ratings.mean(), abs=0.5)  # factors of an average id, in a posterior of few sweeps
    assert model.predict_spread(pairs[:3]).shape == (3,)


def test_text_ids(stars):
    pairs, ratings = stars
    named = [(f"user {u}", f"film {i}") for u, i in pairs[:2_000]]
    model = MatrixFactorisation(**SHORT).fit(named, ratings[:2_000])
    assert np.all(np.isfinite(model.predict(named[:5])))


def test_classes_read_off_are_said(stars):
    pairs, ratings = stars
    model = LabelPrivateRatings(MatrixFactorisation(**SHORT), epsilon=1.0, random_state=0).fit(pairs, ratings)
    assert any("read off" in text for text in model.guarantee_.assumptions)


@pytest.mark.parametrize(
    ("settings", "ratings", "said"),
    [
        ({"epsilon": 0.0}, (1, 5), "epsilon"),
        ({"epsilon": -1.0}, (1, 5), "epsilon"),
        ({"sums": 2.0}, (1, 5), "sums"),
        ({"epsilon": math.inf, "sums": 0.5}, (1, 5), "sums"),
        ({}, (1, 9), "among the classes"),
        ({}, (1, 5, 3), "`ratings` must have one label per row"),
        ({"values": ("good", "bad")}, ("good", "bad"), "numbers"),
        ({"values": (5, 1)}, (1, 5), "rising"),
        ({"learner": "ridge"}, (1, 5), "learner"),
    ],
    ids=str,
)
def test_bad_input(settings, ratings, said):
    options = {"epsilon": 1.0, "values": STARS, **settings}
    learner = options.pop("learner", None)
    with pytest.raises(LabelDPError, match=said):
        (LabelPrivateRatings(**options) if learner is None else _with_learner(learner, options)).fit(
            [(0, 0), (1, 1)], list(ratings)
        )


def _with_learner(learner, options):
    from sklearn.linear_model import Ridge

    assert learner == "ridge"
    return LabelPrivateRatings(Ridge(), **options)


@pytest.mark.parametrize(
    "settings", [{"factors": 1}, {"sweeps": 0}, {"sweeps": 5, "burn": 5}, {"dispersion": -1.0}], ids=str
)
def test_bad_settings_of_the_learner(settings):
    with pytest.raises(LabelDPError):
        MatrixFactorisation(**settings).fit([(0, 0), (1, 1)], [1, 5])


def test_stars_may_come_as_numbers_with_bounds(stars):
    """A box of numbers is brought to the list of values, and then nothing differs from a box of classes."""
    pairs, ratings = (column[:1_500] for column in stars)
    boxed = SensitiveLabels(np.asarray(ratings, float), bounds=(1, 5))
    told = private(2.0).fit(pairs, boxed)
    named = private(2.0).fit(pairs, SensitiveLabels(ratings, classes=STARS))
    assert np.array_equal(told.release_.codes, named.release_.codes)
    assert "clipped" in str(told.guarantee_.assumptions)
    with pytest.raises(LabelDPError, match="bounds"):
        private(2.0).fit(pairs, SensitiveLabels(np.asarray(ratings, float), bounds=(0, 5)))
    with pytest.raises(LabelDPError, match="even"):
        private(2.0).set_params(values=(1, 2, 5)).fit(pairs, boxed)


def test_factors_learn_from_a_release_of_unbiased_numbers(stars):
    """Half stars, released as any other number: the factor learner reads its evidence off the numeric channel."""
    pairs, ratings = stars
    numbers = np.asarray(ratings, float)
    mechanism = UnbiasedResponse(4.0, bounds=(0.5, 5.5), grid=11)
    release = privatize(SensitiveLabels(numbers, bounds=(0.5, 5.5)), mechanism, rng=0)
    model = MatrixFactorisation(factors=3, sweeps=20, burn=8, random_state=0).fit_release(pairs, release)
    constant = np.mean((numbers - numbers.mean()) ** 2)
    # The set's own signal is most of its variance; the answers' noise leaves at least half of it.
    assert np.mean((model.predict(pairs) - numbers) ** 2) < 0.7 * constant
