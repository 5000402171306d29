"""Counts answered one by one: the model of scikit-learn where nothing is hidden, one answer a label, what a receiver learns."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from labeldp.accounting import Ledger
from labeldp.errors import BudgetError, LabelDPError
from labeldp.guarantee import Trust
from labeldp.learn import PrivateGLM, load_model, save_model
from labeldp.learn import responses as _responses
from labeldp.mechanisms import RandomizedResponse, UnbiasedResponse
from labeldp.release import SensitiveLabels, privatize


def claims(n: int = 6000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rare counts: features, counts, years."""
    rng = np.random.default_rng(seed)
    X, years = rng.normal(size=(n, 2)), rng.uniform(0.2, 1.0, size=n)
    return X, rng.poisson(years * 0.2 * np.exp(0.6 * X[:, 0])).astype(float), years


def answered(epsilon: float = 2.0, **settings) -> PrivateGLM:
    return PrivateGLM("poisson", epsilon=epsilon, bounds=(0, 2), statistic="answers", random_state=0, **settings)


def test_without_privacy_it_is_the_model_of_scikit_learn():
    X, y, years = claims(3000)
    model = PrivateGLM(
        "poisson", epsilon=np.inf, bounds=(0, 9), statistic="answers", l2=1e-9, intercept_scaling=0.5, random_state=0
    ).fit(X, y, exposure=years)
    plain = PoissonRegressor(alpha=0, solver="newton-cholesky", tol=1e-10).fit(X, y / years, sample_weight=years)
    # The intercept keeps its weak prior, of one against some 400 claims; solvers stop at 1e-8.
    assert model.coef_ == pytest.approx(plain.coef_, abs=3e-3)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=5e-3)
    z = (y > 0).astype(float)
    model = PrivateGLM("binomial", epsilon=np.inf, statistic="answers", l2=1e-9, random_state=0).fit(X, z)
    logit = LogisticRegression(C=np.inf, tol=1e-10).fit(X, z)
    assert model.coef_ == pytest.approx(logit.coef_[0], abs=3e-3)


def test_every_label_is_answered_once_and_no_one_is_trusted(monkeypatch):
    X, y, years = claims()
    drawn, real = [], _responses.privatize

    def watched(labels, mechanism, **options):
        drawn.append((np.asarray(labels.row_ids), mechanism.epsilon))
        return real(labels, mechanism, **options)

    monkeypatch.setattr(_responses, "privatize", watched)
    labels = SensitiveLabels(y, bounds=(0, 2), row_ids=np.arange(len(y)))
    model = answered().fit(X, labels, exposure=years)
    rows = np.concatenate([part for part, _ in drawn])
    assert np.array_equal(np.sort(rows), np.arange(len(y)))
    assert {epsilon for _, epsilon in drawn} == {2.0}
    assert model.release_.channel.epsilon <= model.guarantee_.epsilon() == 2.0
    assert model.guarantee_.trust is Trust.NO_ONE
    words = str(model.guarantee_)
    assert "clipped" in words
    assert "exposures" in words


def test_what_shapes_the_second_stage_is_earlier_answers_alone():
    """Labels of the second stage that are replaced change neither the first stage's answers nor any channel."""
    X, y, years = claims()
    one = answered().fit(X, y, exposure=years)
    later = one.release_.stage == 1
    other = np.where(later, 2.0 - np.minimum(y, 2), y)
    two = answered().fit(X, other, exposure=years)
    assert np.array_equal(one.release_.codes[~later], two.release_.codes[~later])
    assert np.array_equal(one.release_.channel.transition, two.release_.channel.transition)
    assert np.array_equal(one.release_.channel.index, two.release_.channel.index)
    assert not np.array_equal(one.release_.codes[later], two.release_.codes[later])


def test_rare_counts_are_asked_whether_there_is_one():
    X, y, years = claims()
    matrix = answered().fit(X, y, exposure=years).release_.channel.transition[-1]
    keep = np.exp(2.0) / (1 + np.exp(2.0))
    told = matrix[:, matrix.max(axis=0) > 0]
    assert np.sort(told[0])[::-1] == pytest.approx([keep, 1 - keep])
    assert told[1] == pytest.approx(told[2])


def test_a_receiver_has_the_owners_model(tmp_path):
    X, y, years = claims()
    owner = answered().fit(X, y, exposure=years)
    receiver = PrivateGLM("poisson").fit_release(X, owner.release_, exposure=years)
    assert np.array_equal(receiver.coef_, owner.coef_)
    assert receiver.guarantee_.epsilon() == 2.0
    save_model(owner, tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert np.array_equal(back.predict(X, exposure=years), owner.predict(X, exposure=years))
    assert back.guarantee_ == owner.guarantee_


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_any_release_of_counts_will_do_and_answers_are_not_taken_for_labels(kind):
    """The slope is within six of its standard errors (failure probability 2e-9); taken for labels it is not."""
    X, y, _ = claims(30_000, seed=1)
    y = np.random.default_rng(1).poisson(0.2 * np.exp(0.6 * X[:, 0]))
    if kind == "classes":
        release = privatize(SensitiveLabels(np.minimum(y, 2), n_classes=3), RandomizedResponse(1.0, n_classes=3), rng=1)
    else:
        mechanism = UnbiasedResponse(1.0, bounds=(0, 2), grid="integers")
        release = privatize(SensitiveLabels(y, bounds=(0, 2)), mechanism, rng=1)
    model = PrivateGLM("poisson", l2=1e-6).fit_release(X, release)
    error = 1 / np.sqrt(30_000 * 0.2 * 0.04)  # at least 4% of the count's information is left at epsilon 1
    assert abs(model.coef_[0] - 0.6) < 6 * error
    if kind == "classes":
        taken = PoissonRegressor(alpha=0).fit(X, release.labels)
        assert taken.coef_[0] < 0.6 - 6 * error


def test_what_cannot_be_asked_is_refused_before_anything_is_charged(tmp_path):
    X, y, years = claims(2000)
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(3.0)
    wrong = {
        "poisson or binomial": {"family": "gaussian"},
        "C whole": {"bounds": (0, 2.5)},
        "at most 10": {"bounds": (0, 12)},
    }
    for words, settings in wrong.items():
        with pytest.raises(LabelDPError, match=words):
            answered(ledger=ledger).set_params(**settings).fit(X, y)
    with pytest.raises(LabelDPError, match="sample_weight"):
        answered(ledger=ledger).fit(X, y, sample_weight=years)
    with pytest.raises(LabelDPError, match="persons"):  # and not a promise about labels instead
        answered(ledger=ledger).fit(X, y, persons=np.arange(2000) // 2)
    with pytest.raises(LabelDPError, match="counts 0"):
        answered(ledger=ledger).fit(X, SensitiveLabels(np.minimum(y, 1), classes=[1.0, 0.0]))
    release = privatize(SensitiveLabels(np.arange(2000) % 2, classes=[1, 0]), RandomizedResponse(1.0), rng=0)
    with pytest.raises(LabelDPError, match="counts 0"):
        PrivateGLM("poisson").fit_release(X, release)
    answered(ledger=ledger).fit(X, y, exposure=years)
    with pytest.raises(BudgetError):
        answered(ledger=ledger).fit(X, y, exposure=years)


def test_channels_of_all_stages_keep_epsilon_in_high_precision():
    """Entries are k 2^-52: ratios of integers in every column of every stage's channels, against e^epsilon to 60 digits."""
    X, y, years = claims(2000)
    for epsilon in (0.1, 2.0):
        transition = answered(epsilon).fit(X, y, exposure=years).release_.channel.transition
        weights = (transition * 2.0**52).transpose(0, 2, 1).reshape(-1, transition.shape[1])
        assert (weights == np.round(weights)).all()
        with mpmath.workdps(60):
            limit = mpmath.exp(mpmath.mpf(epsilon))
            for column in weights[weights.max(axis=1) > 0].astype(np.int64):
                assert mpmath.mpf(int(column.max())) / int(column.min()) <= limit
