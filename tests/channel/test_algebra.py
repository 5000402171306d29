"""What every channel answers, against the dense matrix of each example and sums written out in loops.

Tolerances. The formulas and the loops do the same few dozen operations in different orders on numbers of size one, so
they agree to 1e-13; where a loop divides by keep (1e-6 at the least here) the unit of rounding grows to 1e-16 / 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labeldp.arrays import Float64s
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel, finite
from labeldp.errors import LabelDPError

N = 37
EXACT = 1e-13


def n_of(channel: FiniteChannel) -> int:
    return channel.n_examples if channel.n_examples is not None else N


def dense(channel: FiniteChannel) -> Float64s:
    return np.stack([channel.matrix(i) for i in range(n_of(channel))])


def probabilities(channel: FiniteChannel, seed: int = 5) -> Float64s:
    rows = np.random.default_rng(seed).exponential(size=(n_of(channel), channel.n_classes))
    normalised: Float64s = rows / rows.sum(axis=1, keepdims=True)
    return normalised


def possible_outputs(channel: FiniteChannel) -> npt.NDArray[np.int64]:
    """An output of each example that some label can give, drawn from the matrix."""
    generator = np.random.default_rng(6)
    laws = dense(channel).mean(axis=1)
    return np.array([generator.choice(channel.n_outputs, p=law / law.sum()) for law in laws])


def invertible(channel: FiniteChannel) -> bool:
    if isinstance(channel, Channel):
        return bool(np.all(channel.keep > 0))
    return bool(np.all(np.linalg.matrix_rank(dense(channel)) == channel.n_classes))


def check_refusal(channel: FiniteChannel) -> None:
    """A channel that has no inverse says so, instead of dividing by zero."""
    nothing = np.zeros(n_of(channel), int)
    reason = "never keeps its label" if isinstance(channel, Channel) else "has rank"
    with pytest.raises(LabelDPError, match=reason):
        channel.unbiased(np.zeros((n_of(channel), channel.n_classes)), nothing)
    with pytest.raises(LabelDPError, match=reason):
        channel.unbiased_targets(nothing)


def test_rows_sum_to_one_and_are_probabilities(channel: FiniteChannel) -> None:
    matrices = dense(channel)
    assert matrices.shape == (n_of(channel), channel.n_classes, channel.n_outputs)
    assert matrices.min() >= 0
    np.testing.assert_allclose(matrices.sum(axis=2), 1.0, rtol=0, atol=EXACT)


def test_matrix_is_what_the_channel_was_made_of(channel: FiniteChannel) -> None:
    """Of keep and base by the definition, entry by entry; of matrices, the matrix of the example's group."""
    if isinstance(channel, MatrixChannel):
        groups = channel.index if channel.index is not None else np.zeros(N, int)
        np.testing.assert_array_equal(dense(channel), channel.transition[groups])
        return
    assert isinstance(channel, Channel)
    index = channel.index if channel.index is not None else np.zeros(N, int)
    for i, T in enumerate(dense(channel)):
        keep, base = channel.keep[index[i]], channel.base[index[i]]
        for y in range(channel.n_classes):
            for o in range(channel.n_classes):
                inside = base[y] > 0
                expected = keep * (o == y and inside) + (1 - keep * inside) * base[o]
                assert T[y, o] == pytest.approx(expected, rel=1e-12, abs=EXACT)


def test_forward_is_p_times_the_matrix_and_sums_to_one(channel: FiniteChannel) -> None:
    p = probabilities(channel)
    answer = channel.forward(p)
    np.testing.assert_allclose(answer, np.einsum("nk,nkm->nm", p, dense(channel)), rtol=0, atol=EXACT)
    np.testing.assert_allclose(answer.sum(axis=1), 1.0, rtol=0, atol=EXACT)


def test_forward_of_a_certain_label_is_its_row(channel: FiniteChannel) -> None:
    matrices = dense(channel)
    for y in range(channel.n_classes):
        certain = np.zeros((n_of(channel), channel.n_classes))
        certain[:, y] = 1
        np.testing.assert_allclose(channel.forward(certain), matrices[:, y], rtol=0, atol=EXACT)


def test_posterior_is_bayes_by_brute_force(channel: FiniteChannel) -> None:
    prior, observed, matrices = probabilities(channel), possible_outputs(channel), dense(channel)
    answer = channel.posterior(prior, observed)
    for i, o in enumerate(observed):
        joint = [prior[i, y] * matrices[i, y, o] for y in range(channel.n_classes)]
        np.testing.assert_allclose(answer[i], np.array(joint) / sum(joint), rtol=1e-12, atol=EXACT)
    np.testing.assert_allclose(answer.sum(axis=1), 1.0, rtol=0, atol=EXACT)


def test_one_prior_for_all_is_that_prior_for_each(channel: FiniteChannel) -> None:
    prior, observed = probabilities(channel)[0], possible_outputs(channel)
    each = np.tile(prior, (n_of(channel), 1))
    np.testing.assert_array_equal(channel.posterior(prior, observed), channel.posterior(each, observed))


def test_likelihood_is_the_column_of_the_output(channel: FiniteChannel) -> None:
    observed = possible_outputs(channel)
    columns = np.stack([T[:, o] for T, o in zip(dense(channel), observed, strict=True)])
    np.testing.assert_allclose(channel.likelihood(observed), columns, rtol=1e-12, atol=EXACT)


def test_unbiased_loss_has_the_true_loss_as_its_expectation(channel: FiniteChannel) -> None:
    """Sum over o of T[y, o] unbiased(loss, o) = loss[y] in the support; outside it, the mean loss under base."""
    if not invertible(channel):
        check_refusal(channel)
        return
    n = n_of(channel)
    losses = np.random.default_rng(7).normal(size=(n, channel.n_classes))
    matrices = dense(channel)
    each = np.stack([channel.unbiased(losses, np.full(n, o)) for o in range(channel.n_outputs)], axis=1)
    expectation = np.einsum("nym,nm->ny", matrices, each)
    expected, rounding = losses.copy(), np.full(n, 1e-12)
    if isinstance(channel, Channel):
        at = channel.index if channel.index is not None else np.zeros(n, int)
        mean = np.einsum("nk,nk->n", channel.base[at], losses)
        outside = channel.base[at] == 0
        # A label outside the support is always redrawn: (mean - redraw mean) / keep = mean.
        expected = np.where(outside, mean[:, None], losses)
        rounding = 1e-12 / np.minimum(1.0, channel.keep[at] * 10)  # dividing by keep divides the rounding too
    assert np.all(np.abs(expectation - expected) <= rounding[:, None])


def test_unbiased_targets_are_the_weights_of_the_unbiased_loss(channel: FiniteChannel) -> None:
    if not invertible(channel):
        check_refusal(channel)
        return
    observed = possible_outputs(channel)
    losses = np.random.default_rng(8).normal(size=(n_of(channel), channel.n_classes))
    targets = channel.unbiased_targets(observed)
    # The size of the numbers that cancel: 1 / keep, or the entries of the inverse.
    scale = 1 / channel.keep.min() if isinstance(channel, Channel) else np.abs(targets).max()
    np.testing.assert_allclose(targets.sum(axis=1), 1.0, rtol=0, atol=EXACT * scale * 10)
    weighted = (targets * losses).sum(axis=1)
    np.testing.assert_allclose(weighted, channel.unbiased(losses, observed), rtol=1e-12, atol=EXACT * scale * 10)


def test_expected_accuracy_is_prior_times_diagonal(channel: FiniteChannel) -> None:
    if not channel.outputs_are_labels:
        with pytest.raises(LabelDPError, match="must compare outputs with labels, got outputs that are not labels"):
            channel.expected_accuracy()
        return
    prior = probabilities(channel)
    diagonal = np.stack([np.diag(T) for T in dense(channel)])
    np.testing.assert_allclose(channel.expected_accuracy(prior), (prior * diagonal).sum(axis=1), rtol=0, atol=EXACT)
    np.testing.assert_allclose(
        channel.expected_accuracy(), diagonal.mean(axis=1)[: np.size(channel.expected_accuracy())]
    )
    if channel.n_examples is None:
        assert isinstance(channel.expected_accuracy(prior[0]), float)
        assert channel.expected_accuracy(prior[0]) == pytest.approx(float(prior[0] @ diagonal[0]), abs=EXACT)


@pytest.mark.parametrize(
    "rows", [slice(3, 9), slice(None, None, 4), np.array([5, 5, 0, 36]), np.arange(37) % 2 == 0, slice(4, 4)]
)
def test_take_is_the_channel_of_those_examples(channel: FiniteChannel, rows: slice | npt.NDArray[np.int64]) -> None:
    whole = probabilities(channel)
    part = channel.take(rows)
    chosen = np.arange(n_of(channel))[rows]
    assert part.n_examples in (None, len(chosen))
    assert part.epsilon <= channel.epsilon
    assert (part.n_classes, part.n_outputs) == (channel.n_classes, channel.n_outputs)
    np.testing.assert_array_equal(
        part.forward(whole[rows]).reshape(-1, channel.n_outputs), channel.forward(whole)[rows]
    )
    for here, there in enumerate(chosen):
        np.testing.assert_array_equal(part.matrix(here), channel.matrix(there))


def test_answers_do_not_depend_on_the_span(channel: FiniteChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of 5 examples (the last one short) give bit for bit what one span of all gives."""
    p, observed = probabilities(channel), possible_outputs(channel)
    questions: dict[str, Callable[[], Any]] = {
        "forward": lambda: channel.forward(p),
        "posterior": lambda: channel.posterior(p, observed),
        "likelihood": lambda: channel.likelihood(observed),
        "accuracy": lambda: channel.expected_accuracy(p) if channel.outputs_are_labels else np.zeros(1),
        "unbiased": lambda: channel.unbiased(p, observed) if invertible(channel) else np.zeros(1),
    }
    whole = {name: ask() for name, ask in questions.items()}
    monkeypatch.setattr(finite, "SPAN", 5)
    for name, ask in questions.items():
        # A matrix product may add in another order for another number of rows.
        np.testing.assert_allclose(ask(), whole[name], rtol=1e-14, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("kind", ["rows", "candidates", "matrices"])
def test_more_examples_than_a_span_are_answered_like_each_alone(kind: str) -> None:
    n = finite.SPAN + 100
    generator = np.random.default_rng(9)
    index = generator.integers(0, 2, n)
    channel: FiniteChannel
    if kind == "rows":
        channel = Channel(keep=[0.2, 0.7], base=[[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]], index=index)
    elif kind == "candidates":
        sets = np.array([[1, 1, 0], [0, 1, 1]])[index]
        members = np.packbits(sets, axis=1, bitorder="little")
        channel = CandidateChannel(odds=2.0, members=members, n_classes=3)
    else:
        transition = [np.eye(3) * 0.4 + 0.2, np.roll(np.eye(3), 1, axis=1) * 0.7 + 0.1]
        channel = MatrixChannel(transition, index=index, outputs_are_labels=True)
    p = generator.dirichlet(np.ones(3), n)
    observed = generator.integers(1, 2, n)
    for i in (0, finite.SPAN - 1, finite.SPAN, n - 1):
        alone = channel.take(slice(i, i + 1))
        np.testing.assert_allclose(channel.forward(p)[i], alone.forward(p[i])[0], rtol=1e-14)
        np.testing.assert_allclose(channel.posterior(p, observed)[i], alone.posterior(p[i], observed[i])[0], rtol=1e-14)
        np.testing.assert_allclose(channel.unbiased(p, observed)[i], alone.unbiased(p[i], observed[i])[0], rtol=1e-12)
        np.testing.assert_allclose(channel.expected_accuracy(p)[i], alone.expected_accuracy(p[i])[0], rtol=1e-14)


def test_long_rows_take_short_spans() -> None:
    """A span never holds more than SPAN_CELLS numbers, so 100,000 classes do not need gigabytes."""
    pieces = list(finite.spans(1000, width=100_000))
    assert max(high - low for low, high in pieces) * 100_000 <= finite.SPAN_CELLS
    assert [low for low, _ in pieces[1:]] == [high for _, high in pieces[:-1]]
    assert (pieces[0][0], pieces[-1][1]) == (0, 1000)
    assert next(finite.spans(3, width=1 << 40)) == (0, 1)  # a row longer than that still gets its turn


def test_float32_questions_are_answered_in_float64(channel: FiniteChannel) -> None:
    p = probabilities(channel).astype(np.float32)
    answer = channel.forward(p)
    assert answer.dtype == np.float64
    np.testing.assert_allclose(answer, np.einsum("nk,nkm->nm", p, dense(channel)), rtol=0, atol=1e-6)  # float32 sums
    posterior = channel.posterior(p, possible_outputs(channel))
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=0, atol=1e-6)


def test_repr_says_what_it_is(channel: FiniteChannel) -> None:
    text = repr(channel)
    assert type(channel).__name__ in text
    assert f"{channel.n_classes} classes" in text
    assert ("any number of" in text) == (channel.n_examples is None)


weights = arrays(np.float64, st.integers(2, 6), elements=st.floats(0, 1).map(lambda x: 0.0 if x < 0.1 else x))


@given(row=weights.filter(lambda w: w.sum() > 0), keep=st.floats(1e-3, 1), seed=st.integers(0, 100))
def test_any_row_is_unbiased_forward_and_bayes(row: Float64s, keep: float, seed: int) -> None:
    base = row / row.sum()
    channel = Channel(keep=keep, base=base)
    T = channel.matrix()
    generator = np.random.default_rng(seed)
    losses, p = generator.normal(size=len(base)), generator.dirichlet(np.ones(len(base)))
    each = np.concatenate([channel.unbiased(losses[None], [o]) for o in range(len(base))])
    inside = base > 0
    # keep >= 1e-3 and losses below 6: the cancelling terms are below 1e4, a unit of rounding 1e-12 of one.
    np.testing.assert_allclose((T @ each)[inside], losses[inside], rtol=0, atol=2e-12 / min(1.0, 10 * keep))
    np.testing.assert_allclose(channel.forward(p)[0], p @ T, rtol=0, atol=EXACT)
    o = int(np.argmax(base))
    np.testing.assert_allclose(channel.posterior(p, [o])[0], p * T[:, o] / (p @ T[:, o]), rtol=1e-12, atol=EXACT)


@given(
    sets=arrays(np.bool_, st.tuples(st.integers(1, 5), st.integers(2, 20))),
    odds=st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.just(np.inf)),
)
def test_any_candidate_sets_are_the_channel_of_their_rows(sets: npt.NDArray[np.bool_], odds: float) -> None:
    sets[:, 0] |= ~sets.any(axis=1)
    members = np.packbits(sets, axis=1, bitorder="little")
    candidates = CandidateChannel(odds=odds, members=members, n_classes=sets.shape[1])
    sizes = sets.sum(axis=1)
    assert candidates.sizes.tolist() == sizes.tolist()
    rows = Channel(
        keep=candidates.keep, redraw=candidates.redraw, base=sets / sizes[:, None], index=np.arange(len(sets))
    )
    np.testing.assert_array_equal(candidates.base, rows.base)
    for i in range(len(sets)):
        np.testing.assert_array_equal(candidates.matrix(i), rows.matrix(i))
    # log1p(odds) against log1p(keep / (redraw / k)): three roundings of the argument
    assert candidates.epsilon == pytest.approx(rows.epsilon, rel=1e-14)


def test_what_is_possible_is_what_some_label_gives(channel: FiniteChannel) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        observed = rng.integers(0, channel.n_outputs, n_of(channel))
        np.testing.assert_array_equal(channel.possible(observed), (channel.likelihood(observed) > 0).any(axis=1))
    none = channel.take(slice(0, 0))
    assert channel.n_examples is None or len(none.possible(np.zeros(0, np.int64))) == 0


def test_a_label_that_is_no_candidate_is_impossible() -> None:
    sets = np.packbits(np.array([[1, 1, 0] + [0] * 6, [0, 0, 1] + [0] * 6, [0] * 8 + [1]]), axis=1, bitorder="little")
    channel = CandidateChannel(odds=2.0, members=sets, n_classes=9)
    assert channel.possible([1, 2, 8]).tolist() == [True, True, True]
    assert channel.possible([2, 0, 0]).tolist() == [False, False, False]
