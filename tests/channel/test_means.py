"""What answers say of means: laws against high precision, scores and information by enumeration, targets that are unbiased."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from labeldp.channel import (
    AnswerLikelihood,
    CountLaws,
    MatrixChannel,
    MeanEvidence,
    MeanTable,
    NormalLaws,
    ShareLaws,
)
from labeldp.errors import LabelDPError
from labeldp.mechanisms import InformativeResponse, MeanInformation, OptimalResponse, UnbiasedResponse

FAMILIES = {"stars": NormalLaws((1, 2, 3, 4, 5)), "counts": CountLaws(4), "shares": ShareLaws()}


def channel_of(size: int, bounds: tuple[float, float]) -> list:
    """Answers of three kinds to `size` values: numbers, patterns, sets."""
    law = np.arange(size, 0, -1) / np.arange(1, size + 1).sum()
    values = np.linspace(*bounds, size).tolist()
    return [
        UnbiasedResponse(1.0, bounds=bounds, grid=size).channel(),
        OptimalResponse(1.0, objective=MeanInformation(values=values)).channel(law),
        InformativeResponse(1.0).channel(n_classes=size).place(0, 1),
    ]


@pytest.mark.parametrize("mean", [1e-6, 0.03, 0.7, 5.0, 40.0])
def test_counts_have_the_poisson_law_and_its_derivative(mean):
    laws, slopes = (table[0] for table in CountLaws(3).tabulate(np.array([mean])))
    with mpmath.workdps(40):
        m = mpmath.mpf(mean)
        exact = [mpmath.exp(-m) * m**k / mpmath.factorial(k) for k in range(3)]
        tail = 1 - mpmath.fsum(exact)
        moved = [-exact[0], exact[0] - exact[1], exact[1] - exact[2], exact[2]]
        assert laws.tolist() == pytest.approx([*map(float, exact), float(tail)], rel=1e-12)  # some ten roundings
        assert slopes.tolist() == pytest.approx([float(value) for value in moved], rel=1e-9, abs=1e-15)  # differences


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_derivatives_and_information_is_their_variance(name):
    """For three kinds of channel: E[score] = 0, E[score^2] = information, and the score is the slope of the likelihood."""
    family = FAMILIES[name]
    values = family.values
    low, high = float(values[0]), float(values[-1])
    means = low + (high - low) * np.array([0.11, 0.4, 0.83])
    step = 1e-6
    for channel in channel_of(len(values), (low, high)):
        total, square, stated = np.zeros(3), np.zeros(3), np.zeros(3)
        for row, mean in enumerate(means):
            dense = channel.matrix(0)
            one = MatrixChannel(dense)
            for output in np.flatnonzero(dense.max(axis=0) > 0):
                told = AnswerLikelihood.read(np.array([output]), one, family)
                value, score = told.climb(np.array([mean]))
                below, above = (told.climb(np.array([mean + h]))[0][0] for h in (-step, step))
                assert score[0] == pytest.approx(
                    (above - below) / (2 * step), rel=1e-5, abs=1e-5
                )  # central differences
                total[row] += np.exp(value[0]) * score[0]
                square[row] += np.exp(value[0]) * score[0] ** 2
                stated[row] = told.information(np.array([mean]))[0]
        assert total == pytest.approx(np.zeros(3), abs=1e-9)
        assert square == pytest.approx(stated, rel=1e-9)


def test_targets_are_unbiased_at_the_true_mean_with_variance_one_over_weight():
    """By enumeration over all answers of a numeric channel; a table that took the answers for labels is caught."""
    mechanism = UnbiasedResponse(1.0, bounds=(0, 10), grid=11)
    channel, table = mechanism.channel(), MeanTable.of(NormalLaws(mechanism.levels, 4.0))
    place = int(table.at(np.array([3.0]))[0])
    mean, law = table.grid[place], table.laws[place]
    chances = law @ channel.matrix()
    codes = np.flatnonzero(chances > 0)
    targets, weights = MeanEvidence.read(codes, channel, table).at_means(np.full(len(codes), mean))
    chances = chances[codes]
    assert chances @ targets == pytest.approx(mean, abs=1e-9)
    # A millionth is added to every information.
    assert chances @ (targets - mean) ** 2 == pytest.approx(1 / weights[0], rel=1e-3)
    assert 1 / weights[0] < float(law @ channel.variances[0]) + 4.0  # less than the answers' own variance
    wrong, _ = MeanEvidence.read(
        codes, MatrixChannel(np.full((11, channel.n_outputs), 1 / channel.n_outputs)), table
    ).at_means(np.full(len(codes), mean))
    assert abs(float(chances @ (wrong - mean) ** 2) - float(chances @ (targets - mean) ** 2)) > 1.0


def test_a_table_and_the_laws_agree():
    family, channel = FAMILIES["counts"], UnbiasedResponse(2.0, bounds=(0, 4), grid="integers").channel()
    table, codes = MeanTable.of(family), np.array([0, 2, 3])
    means = table.grid[[10, 100, 300]]
    told, exact = MeanEvidence.read(codes, channel, table), AnswerLikelihood.read(codes, channel, family)
    targets, weights = told.at_means(means)
    assert weights == pytest.approx(exact.information(means) + 1e-6)
    assert (targets - means) * weights == pytest.approx(exact.climb(means)[1])


def test_evidence_of_another_number_of_labels_is_refused():
    channel = UnbiasedResponse(1.0, bounds=(0, 4), grid="integers").channel()
    with pytest.raises(LabelDPError, match="one label per value"):
        MeanEvidence.read(np.zeros(2, int), channel, MeanTable.of(CountLaws(3)))
    with pytest.raises(LabelDPError, match="one label per value"):
        AnswerLikelihood.read(np.zeros(2, int), channel, CountLaws(3))
