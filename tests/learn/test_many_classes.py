"""Many classes: learners that make likelihoods, targets and priors by batch end where whole arrays end."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

import labeldp
from labeldp import softmax
from labeldp.channel import Evidence, LazyRows, evidence
from labeldp.errors import LabelDPError
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.learn.beliefs import ModelBeliefs, Posteriors, mix_uniform, predict_labels

N, K = 400, 30


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    X = (rng.normal(size=(K, 12))[y] + 0.5 * rng.normal(size=(N, 12))).astype(np.float64)
    labels = labeldp.SensitiveLabels(y, classes=range(K))
    release = labeldp.privatize(labels, labeldp.InformativeResponse(3.0), rng=1)
    return X, y, release


@pytest.fixture
def lazy(monkeypatch):
    """As if nothing were small: rows are made on demand, and logits in batches of a few rows."""
    monkeypatch.setattr(evidence, "SMALL", 0)
    monkeypatch.setattr(softmax, "CELLS", 37 * K)


class Told(LazyRows):
    """Rows of an array."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def make(self, rows):
        return self.array[rows]


def fitted(method, X, values, **extra):
    model = SoftmaxRegression(l2=0.01)
    return getattr(model, method)(X, values, classes=range(K), **extra)


# The two differ in the order of sums alone, 1e-16 of their size a sum; the solver stops at a gradient of 1e-5, and with l2 = 0.01
# (the least curvature where the loss is convex) ends within 1e-3 of a minimum. From the same start the ways hardly part.
CLOSE = {"rtol": 1e-3, "atol": 1e-3}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_softmax_by_batches_is_softmax_on_the_array(problem, monkeypatch, sparse, weighted):
    X, _, release = problem
    X = scipy.sparse.csr_matrix(X) if sparse else X
    extra = {"sample_weight": np.random.default_rng(1).uniform(0.5, 2.0, N)} if weighted else {}
    whole = release.channel.likelihood(release.codes)
    targets = whole / whole.sum(axis=1, keepdims=True)
    dense = [fitted("fit_likelihood", X, whole, **extra), fitted("fit_targets", X, targets, **extra)]
    monkeypatch.setattr(evidence, "SMALL", 0)
    monkeypatch.setattr(softmax, "CELLS", 37 * K)
    asked = Evidence(release.codes, release.channel)
    batched = [fitted("fit_likelihood", X, asked, **extra), fitted("fit_targets", X, Told(targets), **extra)]
    for one, other in zip(dense, batched, strict=True):
        np.testing.assert_allclose(other.coef_, one.coef_, **CLOSE)
        np.testing.assert_array_equal(other.predict(X), one.predict(X))


def test_the_sums_of_batches_are_the_sums_of_the_whole(problem, monkeypatch):
    X, _, release = problem
    theta = 0.3 * np.random.default_rng(3).normal(size=(K, X.shape[1] + 1))
    logarithms = np.log(release.channel.likelihood(release.codes)).T.copy()
    value, slopes = softmax.sum_forward(X, theta, logarithms)
    monkeypatch.setattr(softmax, "CELLS", 37 * K)
    asked = Evidence(release.codes, release.channel)
    batched, other = softmax.sum_forward(X, theta, lambda rows: np.log(asked.make(rows)).T.copy())
    assert batched == pytest.approx(value, rel=1e-12)  # 400 terms, summed in another order
    np.testing.assert_allclose(other, slopes, rtol=1e-10, atol=1e-12)


def test_softmax_with_evidence_follows_a_loop_over_rows(problem):
    """The oracle: -sum_i log sum_k p_ik L_ik, written as the formula has it."""
    X, _, release = problem
    model = fitted("fit_likelihood", X, Evidence(release.codes, release.channel))
    p, total = model.predict_proba(X), 0.0
    for i in range(N):
        total -= np.log(sum(p[i, k] * release.channel.matrix(i)[k, release.codes[i]] for k in range(K)))
    theta = np.column_stack([model.coef_, model.intercept_])
    logarithms = np.log(release.channel.likelihood(release.codes)).T.copy()
    assert softmax.sum_forward(X, theta, logarithms)[0] == pytest.approx(total, rel=1e-10)


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("method", ["fit_likelihood", "fit_targets"])
def test_bad_rows_among_lazy_ones_are_named(problem, method):
    X, _, release = problem
    values = release.channel.likelihood(release.codes)
    values = values / values.sum(axis=1, keepdims=True)
    values[311] = 0.0
    with pytest.raises(LabelDPError, match="row 311"):
        fitted(method, X, Told(values))
    values[311] = np.nan
    with pytest.raises(LabelDPError, match="finite"):
        fitted(method, X, Told(values))
    with pytest.raises(LabelDPError, match=r"shape \(400, 30\)"):
        fitted(method, X, Told(values[:-1]))


# ------------------------------------------------------------------------------------------------------------- networks


def test_a_network_on_evidence_is_bit_for_bit_that_on_the_array(problem, monkeypatch):
    pytest.importorskip("torch", reason="networks need labeldp[torch]")
    from labeldp import nn

    X, _, release = problem
    whole = release.channel.likelihood(release.codes)
    targets = whole / whole.sum(axis=1, keepdims=True)

    def weights(method, values):
        network = nn.NetClassifier("mlp", hidden=16, epochs=2, batch_size=64, mixup=0.5)
        network = getattr(network, method)(X, values, classes=range(K))
        return network.predict_proba(X), network.predict(X)

    dense = [weights("fit_likelihood", whole), weights("fit_targets", targets)]
    monkeypatch.setattr(evidence, "SMALL", 0)
    asked = Evidence(release.codes, release.channel)
    batched = [weights("fit_likelihood", asked), weights("fit_targets", Told(targets))]
    for one, other in zip(dense, batched, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])
        assert np.array_equal(one[1], one[0].argmax(axis=1))


@pytest.mark.usefixtures("lazy")
def test_a_network_refuses_bad_rows_of_a_batch_and_other_shapes(problem):
    pytest.importorskip("torch", reason="networks need labeldp[torch]")
    from labeldp import nn

    X, _, release = problem
    values = release.channel.likelihood(release.codes)
    network = nn.NetClassifier("mlp", hidden=16, epochs=1, batch_size=64)
    with pytest.raises(LabelDPError, match=r"shape \(400, 30\)"):
        network.fit_likelihood(X, Told(values[:-1]), classes=range(K))
    values[:] = 0.0
    with pytest.raises(LabelDPError, match="not all zero"):
        network.fit_likelihood(X, Told(values), classes=range(K))


def test_a_checkpoint_knows_lazy_evidence_from_another(problem, monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="networks need labeldp[torch]")
    from labeldp import nn

    monkeypatch.setattr(evidence, "SMALL", 0)
    X, _, release = problem
    asked = Evidence(release.codes, release.channel)
    told = []

    def fit(values, epochs_seen):
        network = nn.NetClassifier(
            "mlp", hidden=16, epochs=2, batch_size=64, checkpoint=tmp_path, progress=lambda *step: told.append(step)
        )
        told.clear()
        network.fit_likelihood(X, values, classes=range(K))
        assert (len(told) > 0) == epochs_seen

    fit(asked, epochs_seen=True)
    fit(asked, epochs_seen=False)  # the same fit has ended already
    fit(asked[::-1], epochs_seen=True)  # other evidence is another fit


# ------------------------------------------------------------------------------------------------------ the whole learner


def learner(**changes):
    given = {
        "epsilon": 3.0,
        "mechanism": labeldp.InformativeResponse(1.0),
        "stages": (0.25, 0.75),
        "prior": None,
        "correction": "forward",
        "temperature": 1.0,
        "rounds": 2,
        "classes": range(K),
        "random_state": 0,
    }
    return LabelPrivateClassifier(SoftmaxRegression(l2=0.01), **(given | changes))


def test_stages_and_rounds_of_em_by_batches_end_where_arrays_end(problem, monkeypatch):
    X, y, _ = problem
    dense = learner().fit(X, y)
    monkeypatch.setattr(evidence, "SMALL", 0)
    monkeypatch.setattr(softmax, "CELLS", 37 * K)
    batched = learner().fit(X, y)
    # The first model differs in its last digits, so that a tie of blocks may fall otherwise, but rarely.
    assert (dense.release_.codes != batched.release_.codes).any(axis=-1).mean() < 0.02
    np.testing.assert_allclose(batched.predict_proba(X), dense.predict_proba(X), atol=0.05)
    assert batched.guarantee_ == dense.guarantee_


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("changes", [{}, {"correction": "posterior"}, {"rounds": 0}])
def test_a_receiver_of_many_classes_gets_the_owner_s_model(problem, changes, tmp_path):
    X, y, _ = problem
    owner = learner(**changes).fit(X, y)
    owner.release_.save(tmp_path / "release")
    receiver = learner(**changes).fit_release(X, labeldp.load_release(tmp_path / "release"))
    assert np.array_equal(owner.estimator_.coef_, receiver.estimator_.coef_)
    assert np.array_equal(owner.predict(X), receiver.predict(X))


@pytest.mark.usefixtures("lazy")
def test_labels_in_stages_by_batches_report_their_accuracy(problem):
    X, y, _ = problem
    model = learner(mechanism=None, correction="forward", rounds=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.set_params(mechanism=labeldp.RRWithPrior(1.0)).fit(X, y)
    assert all(0 < stage.expected_accuracy <= 1 for stage in model.stages_)


def test_more_than_memory_is_refused_before_the_charge(problem, monkeypatch, tmp_path):
    X, y, _ = problem
    # A machine with 256 kB: 400 rows of 30 classes are 96 kB as an array, and crossfit needs six.
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 64)
    ledger = labeldp.Ledger(tmp_path / "ledger", budget=10.0)
    given = {"epsilon": 1.0, "stages": 1, "prior": None, "classes": range(K), "ledger": ledger}
    with pytest.raises(LabelDPError, match=r"400 rows of 30 classes as 6 arrays .* need 0.0 GB.*SoftmaxRegression"):
        LabelPrivateClassifier(LogisticRegression(), correction="crossfit", **given).fit(X, y)
    assert not ledger.entries()
    LabelPrivateClassifier(SoftmaxRegression(), correction="forward", **given).fit(X, y)
    assert len(ledger.entries()) == 1


# --------------------------------------------------------------------------------------------------------------- beliefs


def test_lazy_beliefs_do_not_change_when_the_model_is_fitted_again(problem, monkeypatch):
    X, y, _ = problem
    model = SoftmaxRegression(l2=0.1, warm_start=True).fit(X, y)
    before = model.predict_proba(X)
    monkeypatch.setattr(evidence, "SMALL", 0)
    beliefs = ModelBeliefs(model, X, classes=tuple(range(K))).kept()
    model.fit(X, np.roll(y, 1))
    np.testing.assert_allclose(beliefs.make(slice(None)), before, rtol=1e-12)  # a prediction of the same coefficients


def test_posteriors_of_rows_without_an_answer_are_beliefs(problem):
    _, _, release = problem
    rng = np.random.default_rng(0)
    beliefs = rng.dirichlet(np.ones(K), size=2 * N)
    rows = rng.permutation(2 * N)[:N]
    found = Posteriors(beliefs, [(rows, Evidence(release.codes, release.channel))])
    likely = np.ones((2 * N, K))
    likely[rows] = release.channel.likelihood(release.codes)
    expected = beliefs * likely / (beliefs * likely).sum(axis=1, keepdims=True)
    some = rng.permutation(2 * N)[:100]
    np.testing.assert_allclose(found.make(some), expected[some], rtol=1e-12)
    np.testing.assert_allclose(found.make(slice(100, 300)), expected[100:300], rtol=1e-12)


def test_one_row_in_memory_stays_one_row_when_mixed():
    row = np.broadcast_to(np.array([[0.5, 0.25, 0.25]]), (10**12, 3))
    mixed = mix_uniform(row, 0.1)
    assert mixed.strides[0] == 0
    np.testing.assert_allclose(mixed[5], 0.9 * row[0] + 0.1 / 3)


def test_predicted_labels_need_no_whole_array(problem, monkeypatch):
    X, y, _ = problem
    model = SoftmaxRegression().fit(X, y)
    whole = predict_labels(model, X, tuple(range(K)))
    monkeypatch.setattr(evidence, "SMALL", 0)
    assert np.array_equal(predict_labels(model, X, tuple(range(K))), whole)
    assert np.array_equal(model.predict(X), np.arange(K)[whole])
