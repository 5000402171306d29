"""`OptimalResponse`: optimal by other roads (RRWithPrior, a dense linear program, closed forms), and private to the bit."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from labeldp.channel import MatrixChannel, slopes, tilted_laws
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.mechanisms import (
    Accuracy,
    MeanInformation,
    OptimalResponse,
    RRWithPrior,
    UnbiasedReport,
    make_private,
)
from labeldp.testing import ConformanceError, check_mechanism, check_optimal
from labeldp.testing.suite import worst_log_ratio

STARS = (1, 2, 3, 4, 5)
SKEWED = np.array([0.06, 0.11, 0.26, 0.35, 0.22])


@pytest.mark.parametrize(
    ("epsilon", "objective"),
    [
        (0.3, Accuracy()),
        (1.0, MeanInformation(values=(1, 2, 3), spread=0.6)),
        (4.0, MeanInformation(values=(1, 2, 3))),
        (1.0, UnbiasedReport(values=(1, 2, 3))),
    ],
    ids=["accuracy", "information", "information at a point", "unbiased"],
)
def test_conforms(epsilon, objective):
    check_mechanism(OptimalResponse(epsilon, objective=objective), n_classes=3)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 8.0, math.inf])
def test_accuracy_is_that_of_the_best_private_mechanism(epsilon):
    check_optimal(OptimalResponse(epsilon))


def test_the_optimality_check_catches_another_objective():
    class Wrong(OptimalResponse):
        def channel(self, prior=None, *, groups=None, n_classes=None):
            return super().channel(np.full(n_classes, 1.0 / n_classes), n_classes=n_classes)

    with pytest.raises(ConformanceError):
        check_optimal(Wrong(1.0), prior=SKEWED)


@settings(max_examples=40)
@given(
    weights=st.lists(st.floats(0.001, 1.0), min_size=2, max_size=7),
    epsilon=st.floats(0.01, 6.0),
)
def test_same_accuracy_as_rr_with_prior(weights, epsilon):
    prior = np.asarray(weights) / np.sum(weights)
    ours = OptimalResponse(epsilon).channel(prior)
    theirs = RRWithPrior(epsilon).channel(prior)
    # 1e-7: the solver's own tolerance on a problem of unit size.
    assert ours.expected_accuracy(prior) == pytest.approx(theirs.expected_accuracy(prior), abs=1e-7)
    assert ours.epsilon <= epsilon


def least_variance(prior: np.ndarray, values: np.ndarray, epsilon: float, grid: np.ndarray) -> float:
    """The dense program: all matrices T (K, grid) with private columns, unbiased rows, least variance. No patterns."""
    size, width = len(values), len(grid)
    cost = np.concatenate([prior[y] * (grid - values[y]) ** 2 for y in range(size)])
    equal = np.zeros((2 * size, size * width))
    for y in range(size):
        equal[y, y * width : (y + 1) * width] = 1.0
        equal[size + y, y * width : (y + 1) * width] = grid
    private = np.zeros((width * size * (size - 1), size * width))
    row = 0
    for o in range(width):
        for y in range(size):
            for z in range(size):
                if y != z:
                    private[row, y * width + o], private[row, z * width + o] = 1.0, -math.exp(epsilon)
                    row += 1
    right = np.concatenate([np.ones(size), values])
    solved = linprog(cost, A_ub=private, b_ub=np.zeros(row), A_eq=equal, b_eq=right, bounds=(0, 1), method="highs")
    assert solved.status == 0, solved.message
    return float(solved.fun)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_unbiased_report_against_the_dense_program(epsilon):
    values, prior = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    objective = UnbiasedReport(values=values, n_reports=15)
    design = OptimalResponse(epsilon, objective=objective).design(prior)
    exact = least_variance(prior, values, epsilon, objective.report_grid(math.exp(-epsilon)))
    variance = prior @ (design.transition @ design.reports**2 - values**2)
    assert variance == pytest.approx(exact, rel=1e-6)  # the tolerance of two runs of the solver
    # Privacy moved the matrix by some 1e-15 and reports are below 100.
    assert design.transition @ design.reports == pytest.approx(values, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "added"), [(1.0, 15.5), (2.0, 3.0), (4.0, 0.35)])
def test_unbiased_report_on_five_stars(epsilon, added):
    """Golden: a prototype's dense program on the same prior, printed in two digits, hence the tolerance of 3 %."""
    design = OptimalResponse(epsilon, objective=UnbiasedReport(values=STARS)).design(SKEWED / SKEWED.sum())
    assert -design.worth == pytest.approx(added, rel=0.03)


def information(transition: np.ndarray, law: np.ndarray, values: np.ndarray) -> float:
    """Fisher information about the mean, from its definition: by a finite difference along the tilted family."""
    step, mean = 1e-5, float(law @ values)
    low, high = tilted_laws(law, values, np.array([mean - step, mean + step])) @ transition
    now = law @ transition
    return float((((high - low) / (2 * step)) ** 2 / np.where(now > 0, now, 1.0)).sum())


def test_mean_information_is_what_it_claims_and_beats_every_other_channel_tried():
    values = np.asarray(STARS, float)
    for epsilon in (0.5, 1.0, 3.0):
        mechanism = OptimalResponse(epsilon, objective=MeanInformation(values=STARS))
        design = mechanism.design(SKEWED)
        # 1e-5: second-order error of the finite difference, and bisection to 1e-12 divided by its step.
        assert information(design.transition, SKEWED, values) == pytest.approx(design.worth, rel=1e-4)
        rng = np.random.default_rng(7)
        for _ in range(50):
            pattern = np.where(rng.random((5, 4)) < 0.5, 1.0, math.exp(-epsilon))
            other = pattern / pattern.sum(axis=1, keepdims=True)
            if worst_log_ratio(other) <= epsilon:  # dividing rows may leave the set; those do not count
                assert information(other, SKEWED, values) <= design.worth * (1 + 1e-4)
        assert information(RRWithPrior(epsilon).channel(SKEWED).matrix(), SKEWED, values) <= design.worth * (1 + 1e-4)


def test_five_stars_are_split_in_two_at_small_epsilon():
    """At epsilon <= 1 the answer is two-bin randomized response split at 3|4, as a prototype found."""
    values = np.asarray(STARS, float)
    normal = np.exp(-((values - 3) ** 2) / 1.8)  # the discretised normal of the prototypes, at the mean of MovieLens
    law = tilted_laws(normal / normal.sum(), values, np.array([3.58]))[0]
    design = OptimalResponse(1.0, objective=MeanInformation(values=STARS, spread=0.6)).design(law)
    keep = math.e / (1 + math.e)
    expected = np.where(np.arange(5)[:, None] >= 3, [1 - keep, keep], [keep, 1 - keep])
    assert design.transition == pytest.approx(expected, abs=1e-9)  # exactly private costs 1e-15


def test_more_epsilon_never_tells_less():
    for objective in (Accuracy(), MeanInformation(values=STARS, spread=0.5), UnbiasedReport(values=STARS)):
        worth = [OptimalResponse(e, objective=objective).design(SKEWED).worth for e in (0.2, 1.0, 3.0, math.inf)]
        assert all(a <= b + 1e-9 for a, b in pairwise(worth)), objective


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0, 36.0, 50.0, 700.0])
def test_private_to_the_bit_at_every_scale(epsilon):
    channel = OptimalResponse(epsilon, objective=MeanInformation(values=STARS)).channel(SKEWED)
    assert worst_log_ratio(channel.matrix()) <= channel.epsilon <= epsilon


def test_groups_have_a_matrix_each():
    laws = tilted_laws(SKEWED, np.asarray(STARS, float), np.array([2.0, 4.0]))
    mechanism = OptimalResponse(1.0, objective=MeanInformation(values=STARS))
    channel = mechanism.channel(laws, groups=[1, 0, 1])
    assert channel.n_examples == 3
    assert np.array_equal(channel.matrix(0), mechanism.channel(laws[1]).matrix())
    assert not np.array_equal(channel.matrix(0), channel.matrix(1))


def test_tilts_have_the_mean_and_the_slope():
    values, means = np.array([0.0, 1.0, 5.0]), np.array([0.5, 2.0, 4.0])
    laws = tilted_laws(np.array([0.2, 0.5, 0.3]), values, means)
    assert laws @ values == pytest.approx(means, abs=1e-9)  # bisection ends below 1e-12 of the range
    step = 1e-6
    moved = tilted_laws(np.array([0.2, 0.5, 0.3]), values, means + step)
    assert (moved - laws) / step == pytest.approx(slopes(laws, values), abs=1e-5)  # first-order difference


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OptimalResponse(-1.0), "epsilon"),
        (lambda: OptimalResponse(1.0, objective="accuracy"), "objective"),
        (lambda: MeanInformation(values=(2, 1)), "rising"),
        (lambda: MeanInformation(values=STARS, spread=-1.0), "spread"),
        (
            lambda: OptimalResponse(1.0, objective=MeanInformation(values=(1, 2))).channel(n_classes=5),
            "one entry per class",
        ),
        (lambda: OptimalResponse(1.0).channel(n_classes=11), "at most 10"),
        (lambda: OptimalResponse(1.0).channel([0.5, 0.5], groups=[0]), "row per group"),
        (lambda: OptimalResponse(0.0, objective=UnbiasedReport(values=STARS)).channel(n_classes=5), "epsilon"),
        (lambda: OptimalResponse(1.0).channel(np.random.default_rng(0).dirichlet(np.ones(3), 1001)), "distinct"),
    ],
)
def test_bad_input(make, said):
    with pytest.raises(LabelDPError, match=said):
        make()


def _flip(epsilon: float) -> np.ndarray:
    """Randomized response of two labels, in floats."""
    return np.array([[1.0, math.exp(-epsilon)], [math.exp(-epsilon), 1.0]]) / (1.0 + math.exp(-epsilon))


# Below the grid of 2^-52 (epsilon 40) an entry becomes zero, which is rounding too.
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 30.0, 40.0])
def test_rounding_is_mended(epsilon):
    kept = make_private(_flip(epsilon), epsilon)
    assert MatrixChannel(kept).epsilon <= epsilon
    assert np.abs(kept - _flip(epsilon)).max() < 1e-14


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.9])
def test_a_matrix_made_for_another_budget_is_refused_with_its_epsilon(epsilon):
    with pytest.raises(PrivacyError, match=r"`transition` must keep epsilon .*, got one of 3\. "):
        make_private(_flip(3.0), epsilon)


def test_a_matrix_that_rules_a_label_out_is_refused():
    with pytest.raises(PrivacyError, match="got one of inf"):
        make_private(np.array([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]]), 5.0)
    unused = make_private(np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]), 1.0)
    assert unused[:, 2].tolist() == [0.0, 0.0]
