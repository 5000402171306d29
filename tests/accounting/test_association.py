"""The Label Association bound against a linear program over all private mechanisms, on small cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from labeldp.accounting.calibration import label_association, least_cluster_size
from labeldp.errors import LabelDPError


def best_surplus(epsilon: float, size: int, n_classes: int, precision: float) -> float:
    """The largest E[right] - precision E[named] that a private mechanism can reach on all data sets with s labels.

    One cluster; a data set is a vector of `size` labels, an output is a set of labels. The sum over data sets with
    distinct labels is maximised over all epsilon-private mechanisms with entries in [0, 1] and rows that sum to one.
    A mechanism with more than `precision` on every data set would make it positive.
    """
    data = list(itertools.product(range(n_classes), repeat=size))
    outputs = [set(c) for r in range(n_classes + 1) for c in itertools.combinations(range(n_classes), r)]
    gain = np.zeros((len(data), len(outputs)))
    for i, labels in enumerate(data):
        if len(set(labels)) == size:
            gain[i] = [len(out & set(labels)) - precision * len(out) for out in outputs]
    rows = []
    for i, j in itertools.permutations(range(len(data)), 2):
        if sum(a != b for a, b in zip(data[i], data[j], strict=True)) == 1:
            for o in range(len(outputs)):
                row = np.zeros_like(gain)
                row[i, o], row[j, o] = 1.0, -math.exp(epsilon)
                rows.append(row.ravel())
    sums = np.kron(np.eye(len(data)), np.ones(len(outputs)))
    solved = linprog(-gain.ravel(), A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(len(data)))
    return -float(solved.fun)


@pytest.mark.parametrize(("size", "n_classes"), [(1, 3), (1, 4), (2, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_no_private_mechanism_exceeds_the_bound(size: int, n_classes: int, epsilon: float):
    bound = label_association(epsilon, cluster_size=size, n_classes=n_classes).best_precision
    # The solver's tolerance is 1e-7 per constraint; 1e-6 is above its sum here.
    assert best_surplus(epsilon, size, n_classes, bound) <= 1e-6


@pytest.mark.parametrize("epsilon", [0.7, 2.0])
def test_bound_is_attained_for_single_examples(epsilon: float):
    bound = label_association(epsilon, cluster_size=1, n_classes=4).best_precision
    assert bound == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + 3), rel=1e-12)  # randomized response
    assert best_surplus(epsilon, 1, 4, bound - 0.01) > 1e-3  # so the program does find mechanisms, when there are any


def test_bounds_in_the_limits():
    assert label_association(0.0, cluster_size=5, n_classes=50).best_precision == pytest.approx(0.1)
    assert label_association(math.inf, cluster_size=5, n_classes=50).best_precision == 1.0
    full = label_association(1.0, cluster_size=60, n_classes=50)
    assert (full.best_precision, full.largest_product, full.blind_precision) == (1.0, 1.0, 1.0)


def test_ours_is_never_weaker_than_the_papers():
    for epsilon, size, classes in itertools.product((0.1, 1.0, 4.0), (1, 10, 100), (20, 1000)):
        bound = label_association(epsilon, cluster_size=size, n_classes=classes)
        assert bound.best_precision <= bound.largest_product * (1 + 1e-15)  # recall is at most 1


@pytest.mark.parametrize("precision", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_least_cluster_size_is_the_least(epsilon: float, precision: float):
    size = least_cluster_size(epsilon, n_classes=300, precision=precision)
    assert label_association(epsilon, cluster_size=size, n_classes=300).best_precision >= precision
    if size > 1:
        assert label_association(epsilon, cluster_size=size - 1, n_classes=300).best_precision < precision


def test_sentence_says_it():
    small = label_association(1.0, cluster_size=10, n_classes=1000)
    assert small.too_small
    assert "clusters of 10 examples with 1000 possible labels" in small.sentence
    assert not label_association(1.0, cluster_size=1000, n_classes=10).too_small


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": -1.0, "cluster_size": 3, "n_classes": 4}, "`epsilon` must be >= 0"),
        ({"epsilon": 1.0, "cluster_size": 0, "n_classes": 4}, "`cluster_size` must be"),
        ({"epsilon": 1.0, "cluster_size": 3, "n_classes": 1}, "`n_classes` must be"),
    ],
)
def test_bad_input_is_answered_clearly(arguments: dict[str, float], words: str):
    with pytest.raises(LabelDPError, match=words):
        label_association(**arguments)
    with pytest.raises(LabelDPError, match="`precision` must be in"):
        least_cluster_size(1.0, n_classes=10, precision=1.0)
