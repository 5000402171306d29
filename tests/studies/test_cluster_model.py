"""The model of the cluster studies: its penalty is a rule, and training on labels and histogram does what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.cluster_model import NoiseScaledSoftmax, model, penalty

from labeldp import ClusterRR, RandomizedResponse, privatize
from labeldp.errors import LabelDPError
from labeldp.release import SensitiveLabels
from studies import cluster_histogram as subject


def blobs(n: int = 3_000, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes around the corners of a simplex: a linear model gets about 97% of them."""
    generator = np.random.default_rng(5)
    y = generator.integers(n_classes, size=n)
    X = 2.8 * np.eye(n_classes)[y] + generator.normal(size=(n, n_classes))
    return X.astype(np.float32), y


def test_penalty_is_the_standard_error_of_the_gradient_at_zero():
    targets = np.array([[2.0, -1.0], [0.5, 0.5]])  # |1/2 - q|^2: 4.5 and 0
    assert penalty(targets) == pytest.approx(math.sqrt(4.5 / 2 / 2), rel=1e-12)  # a few roundings


def test_plain_labels_and_their_one_hot_rows_have_one_penalty_and_one_model():
    X, y = blobs()
    plain = model().fit(X, y)
    soft = model().fit_targets(X, np.eye(3)[y], classes=range(3))
    assert plain.l2 == pytest.approx(soft.l2, rel=1e-12)
    assert plain.l2 == pytest.approx(math.sqrt(2 / 3 / len(y)), rel=1e-12)
    np.testing.assert_allclose(plain.coef_, soft.coef_, atol=1e-3)  # the solver stops at a relative gradient of 1e-4


def test_noisier_targets_are_held_harder_and_likelihoods_only_count_up_to_scale():
    X, y = blobs()
    labels = SensitiveLabels(y, n_classes=3)
    penalties = []
    for epsilon in (4.0, 1.0, 0.25):
        release = privatize(labels, RandomizedResponse(epsilon, n_classes=3), rng=0)
        targets = release.channel.unbiased_targets(release.codes)
        penalties.append(model().fit_targets(X, targets, classes=range(3)).l2)
        likelihood = release.channel.likelihood(release.codes)
        one = model().fit_likelihood(X, likelihood, classes=range(3))
        two = model().fit_likelihood(X, 7.0 * likelihood, classes=range(3))
        assert one.l2 == pytest.approx(two.l2, rel=1e-9)
    assert penalties == sorted(penalties)


def test_a_likelihood_that_says_nothing_can_be_fitted():
    X, _ = blobs(100)
    fitted = model().fit_likelihood(X, np.ones((100, 3)), classes=range(3))
    assert np.abs(fitted.coef_).max() == 0.0
    assert fitted.tol > 0


@pytest.mark.parametrize(("n_classes", "share"), [(2, 1.0), (10, 0.5)])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_noise_variance_is_at_least_that_of_the_discrete_laplace(epsilon: float, n_classes: int, share: float):
    ratio = math.exp(-epsilon * share)
    exact = 2 * ratio / (1 - ratio) ** 2
    cells = 2 if n_classes == 2 else 1  # the one count of two classes appears twice
    assert subject.noise_variance(epsilon, n_classes=n_classes) >= cells * exact


def test_gradient_against_differences():
    generator = np.random.default_rng(0)
    known = subject.Evidence(
        logarithms=np.log(generator.uniform(0.1, 1.0, (3, 8))),
        cluster=np.repeat([0, 1], [3, 5]),
        starts=np.array([0, 3]),
        counts=generator.uniform(0, 4, (3, 2)),
        variances=generator.uniform(1, 3, (3, 2)),
    )
    logits = generator.normal(size=(3, 8))
    gradient = known.loss(logits.copy())[1]
    step = 1e-5
    for place in np.ndindex(3, 8):
        ends = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[place] += sign * step
            ends.append(known.loss(moved)[0])
        # central differences of a loss of size 10 in doubles: 1e-15 * 10 / 1e-5 of rounding, step^2 of curvature
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def with_histogram(X: np.ndarray, y: np.ndarray, groups: np.ndarray, *, turned: int = 0) -> float:
    """Accuracy from labels and histogram at epsilon 0.2; `turned` clusters get another's histogram: the broken twin."""
    mechanism = ClusterRR(0.2, tau=1 / 3)
    release = privatize(SensitiveLabels(y, n_classes=3), mechanism, groups=groups, rng=1)
    assert release.prior is not None
    release.prior[:] = np.roll(release.prior, turned, axis=1)
    fitted = subject.fit_with_histogram(X, release, epsilon=mechanism.histogram_epsilon)
    return float(np.mean(fitted.predict(X) == y))


def test_histograms_teach_where_labels_alone_do_not():
    X, y = blobs()
    groups = X.argmax(axis=1)  # clusters found without labels, and good ones
    release = privatize(SensitiveLabels(y, n_classes=3), RandomizedResponse(0.2, n_classes=3), rng=1)
    alone = model().fit_likelihood(X, release.channel.likelihood(release.codes), classes=range(3))
    # Seeded, hence exact: failure probability 0 unless the code changes. 0.9 and 0.5 are far from what was seen.
    good = with_histogram(X, y, groups)
    assert good > 0.9
    assert good > float(np.mean(alone.predict(X) == y))
    assert with_histogram(X, y, groups, turned=1) < 0.5


def test_a_release_without_histogram_is_refused():
    X, y = blobs(50)
    release = privatize(SensitiveLabels(y, n_classes=3), RandomizedResponse(1.0, n_classes=3), rng=0)
    with pytest.raises(LabelDPError, match="carry a histogram"):
        subject.fit_with_histogram(X, release, epsilon=1.0)


def test_fit_of_an_own_objective_keeps_its_penalty():
    X, _ = blobs(20)
    fitted = NoiseScaledSoftmax().fit_objective(
        X, lambda theta: (float(theta @ theta), 2 * theta), l2=0.5, classes=[0, 1]
    )
    assert fitted.l2 == 0.5
    assert fitted.predict(X).shape == (20,)
