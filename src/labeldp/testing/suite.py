"""The conformance suite: what every mechanism must do, as checks that share no formula with what they judge.

>>> [check.name for check in mechanism_checks()][:3]
['rows_are_distributions', 'privacy_holds', 'epsilon_is_exact']
>>> from labeldp import RandomizedResponse
>>> from labeldp.testing import Subject
>>> subject = Subject(mechanism=RandomizedResponse(1.0))
>>> list(privacy_holds(subject)), list(frequencies_match(subject))  # a judge yields one sentence per fault
([], [])

Some checks look at what a mechanism *says*: its dense matrices and its guarantee, by brute force. The others look at what
it *does*: labels released through the door, against the matrix that was stated. A prior is believed to be public, so
these compare with the channel that the mechanism builds without labels, never with the one that a release carries: a
door that lies about its channel is caught by its draws.

>>> round(worst_log_ratio([[0.75, 0.25], [0.25, 0.75]]), 6)  # log 3
1.098612
>>> float(two_sided([50], 100, [0.5])[0])
1.0

Design notes. Four questions are statistical (frequencies, numbers, independence, freshness); each spends a quarter of
`Subject.failure`, divided by the number of numbers it compares (Bonferroni). The tests are exact binomial ones. Where the laws
of examples differ (blocks of labels that go by position) outputs are numbered by their chance under the example's own law, and
a count is the sum of unlike coins: outside of one step around its mean its tails are within those of the binomial with the
mean chance (Hoeffding 1956), so the same tests hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Floats, Int64s
from labeldp.channel import FiniteChannel, NumericChannel, SetAnswers
from labeldp.mechanisms import Mechanism, NumericMechanism
from labeldp.release import SensitiveLabels
from labeldp.release import privatize as the_door
from labeldp.testing.subject import Check, ConformanceError, Door, Subject, Trial
from labeldp.testing.words import PAIRS, Answer, count_words

#: How many checks share `Subject.failure`: frequencies, numbers, independence and freshness.
STATISTICAL_CHECKS = 4
#: Draws of each prior, label and layout. A probability near 1/2 that is wrong by 0.1 is then found: at a level of
#: 1e-10, 6.5 standard deviations, and one is 0.5 / sqrt(2000) = 0.011.
DRAWS = 2000
#: Labels whose words are counted, spread over all: with them the ends, where a draw wraps around.
MOST_COUNTED = 5
#: Lags at which noise might repeat: every small one, and the powers of two that batches and buffers have.
LAGS = (*range(1, 65), *(1 << power for power in range(7, 17)))
#: Two steps of 2^16, so that the largest lag too has as many pairs.
EXAMPLES = 1 << 17
#: Two secure releases agree in every label with at most this probability, or less if `failure` asks for less.
SAME = 1e-9
#: How often that is asked: without rng and with two seeds, in three layouts.
SAME_ASKED = 6
#: No more labels than this are drawn to reach it: where outputs are that certain, the question is left open.
MOST_LABELS = 1 << 18
#: Sizes of the pieces in which examples are released again; the rest comes in one more.
PIECES = (1, 7, 64, 200)
#: A row of K entries sums to one within rounding: below 1e-12 even for thousands of classes.
SUM_TOLERANCE = 1e-12
#: The accuracy asked of a stated epsilon, and of an optimum; rounding is a millionth of it.
STATED_TOLERANCE = 1e-9


def check_mechanism(
    mechanism: Mechanism,
    *,
    privatize: Door = the_door,
    n_classes: int = 5,
    prior: Any = None,
    seed: int = 0,
    failure: float = 1e-6,
) -> None:
    """Run every check on a mechanism; raise one `ConformanceError` that lists all that failed, or return None.

    Parameters
    ----------
    mechanism : Mechanism
        Yours or ours; only `channel`, `guarantee` and what is released with it are looked at.
    privatize : callable
        The function to release with, called as `labeldp.privatize` is; that one unless you test another.
    n_classes : int
        K, unless the mechanism states its own.
    prior : array of shape (K,) or (R, K), optional
        Priors to try; by default five that tempt a mechanism to err, if it takes a prior at all.
    seed : int
        Makes every draw that can be seeded reproducible.
    failure : float
        A sound mechanism is found at fault with this probability at most, over all checks together.

    Example
    -------
    >>> import labeldp
    >>> check_mechanism(labeldp.RandomizedResponse(1.0, n_classes=3))
    """
    subject = Subject(
        mechanism=mechanism, privatize=privatize, n_classes=n_classes, prior=prior, seed=seed, failure=failure
    )
    _run(subject, _CHECKS)


def check_optimal(mechanism: Mechanism, *, n_classes: int = 5, prior: Any = None) -> None:
    """Raise `ConformanceError` unless the mechanism is right as often as any epsilon-private one can be.

    Under each prior, the expected accuracy of its matrix must be max_k w_k to 1e-9 (see `RRWithPrior`).

    >>> import labeldp
    >>> check_optimal(labeldp.RRWithPrior(1.0), prior=[0.5, 0.3, 0.2], n_classes=3)
    """
    _run(Subject(mechanism=mechanism, n_classes=n_classes, prior=prior), (_OPTIMAL,))


def mechanism_checks(*, optimal: bool = False) -> tuple[Check, ...]:
    """Return the checks that every mechanism passes; with `optimal`, also that of a mechanism optimal for its prior."""
    return (*_CHECKS, _OPTIMAL) if optimal else _CHECKS


def _run(subject: Subject, checks: tuple[Check, ...]) -> None:
    """Run the checks and raise once, with everything that was found."""
    found = {check: faults for check in checks if (faults := check.faults(subject))}
    if found:
        reports = [check.report(subject, faults) for check, faults in found.items()]
        message = f"{len(found)} of {len(checks)} checks failed\n" + "\n".join(reports)
        raise ConformanceError(message, failed=tuple(check.name for check in found))


def rows_are_distributions(subject: Subject) -> Iterator[str]:
    """Entries in [0, 1], rows that sum to one."""
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            if not np.all((matrix >= 0) & (matrix <= 1 + SUM_TOLERANCE)):
                yield f"{describe(trial, row)}: entries from {matrix.min()!r} to {matrix.max()!r}"
            sums = matrix.sum(axis=1)
            if not np.all(np.abs(sums - 1) <= SUM_TOLERANCE):
                worst = int(np.argmax(np.abs(sums - 1)))
                yield f"{describe(trial, row)}: the row of label {worst} sums to {float(sums[worst])!r}"


def privacy_holds(subject: Subject) -> Iterator[str]:
    """No output is more than e^epsilon times likelier under one label than under another.

    A guarantee that is not pure has an infinite `epsilon()` and passes: this check judges pure promises.
    """
    promised = subject.mechanism.guarantee.epsilon()
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            exact = worst_log_ratio(matrix)
            if not exact <= promised + rounding_of(promised):
                yield f"{describe(trial, row)}: log-ratio {exact!r}, promised {promised!r}"


def epsilon_is_exact(subject: Subject) -> Iterator[str]:
    """`channel.epsilon` is the worst log-ratio of the matrices of its examples."""
    for trial in subject.one_of_each():
        exact = max(worst_log_ratio(matrix) for _, matrix in matrices(subject, trial))
        stated = subject.channel(trial).epsilon
        if not (stated == exact or abs(stated - exact) <= STATED_TOLERANCE):
            yield f"{trial.layout}: states {stated!r}, matrices have {exact!r}"


def is_optimal(subject: Subject) -> Iterator[str]:
    """Pr[output = label], label ~ prior, is max_k w_k: what no epsilon-private mechanism exceeds (Theorem 3)."""
    epsilon = subject.mechanism.guarantee.epsilon()
    flat = np.full((1, subject.n_classes), 1.0 / subject.n_classes)
    priors = flat if subject.priors is None else subject.priors
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            got = float(priors[row] @ np.diagonal(matrix))
            best = best_accuracy(priors[row], epsilon)
            if not abs(got - best) <= STATED_TOLERANCE:
                yield f"{describe(trial, row)}: expected accuracy {got!r}, optimum {best!r}"


def best_accuracy(prior: Floats, epsilon: float) -> float:
    """Return max_k w_k, w_k = e^epsilon / (e^epsilon + k - 1) (p_(1) + ... + p_(k)), by sorting.

    Written as 1 / (1 + (k - 1) e^-epsilon), which neither overflows nor loses anything at a large epsilon.

    >>> best_accuracy(np.array([0.6, 0.4]), 0.0)
    0.6
    """
    mass = np.cumsum(np.sort(np.asarray(prior, dtype=np.float64))[::-1])
    return float((mass / (1 + np.arange(len(mass)) * math.exp(-epsilon))).max())


def channel_ignores_labels(subject: Subject) -> Iterator[str]:
    """A release carries the channel that the mechanism builds without labels, whatever the labels are."""
    for trial in subject.one_of_each():
        public = list_statements(subject.channel(trial).released())
        shifted = (trial.codes + 1) % subject.n_classes
        for codes in (trial.codes, shifted):
            other = Trial(layout=trial.layout, codes=codes, rows=trial.rows, prior=trial.prior, groups=trial.groups)
            released = list_statements(subject.release(other, rng=subject.seed).channel)
            if not state_the_same(public, released):
                yield f"{trial.layout}: the channel of the release is not the one built without labels"


def frequencies_match(subject: Subject) -> Iterator[str]:
    """Every label, under every prior, comes out as often as its row of the matrix says."""
    cells = subject.n_rows * subject.n_classes
    rows, codes = np.divmod(np.repeat(np.arange(cells), DRAWS), subject.n_classes)
    layouts = 1 if subject.priors is None else 3
    outputs = subject.channel(next(subject.one_of_each())).n_outputs
    level = share_failure(subject) / (layouts * cells * outputs)
    for trial in subject.trials(codes, rows):
        seen = see_outputs(subject, trial, subject.release(trial, rng=subject.seed).codes)
        if np.any(seen.numbers < 0):
            yield f"{trial.layout}: example {int(np.argmax(seen.numbers < 0))} has an output that its channel does not have"
            continue
        counts = count_outputs(trial, seen.numbers, subject, outputs)
        for row, stated in seen.average(trial, subject):
            unlikely = two_sided(counts[row], DRAWS, stated) <= level
            for label, output in np.argwhere(unlikely).tolist():
                found, chance = int(counts[row, label, output]), float(stated[label, output])
                yield f"{describe(trial, row)}: {label} -> {output} {found} times of {DRAWS}, stated probability {chance:.6g}"


def examples_are_independent(subject: Subject) -> Iterator[str]:
    """Noise is not used twice: outputs a fixed distance apart agree as often as independent ones do.

    For lag L the examples are cut into blocks of 2 L and example i of the first half is paired with i + L. The pairs
    are disjoint, so the number that agree is binomial, with the probability sum_o T[y, o]^2.
    """
    row, label = find_least_certain(subject)
    codes, rows = np.full(EXAMPLES, label), np.full(EXAMPLES, row)
    level = share_failure(subject) / (len(LAGS) * (1 if subject.priors is None else 3))
    for trial in subject.trials(codes, rows):
        seen = see_outputs(subject, trial, subject.release(trial, rng=subject.seed).codes)
        agree = np.array([count_agreeing(seen.numbers, lag) for lag in LAGS])
        chances = np.array([seen.agreement(lag) for lag in LAGS])
        unlikely = two_sided(agree[:, 0], agree[:, 1], chances) <= level
        for j in np.flatnonzero(unlikely):
            same, pairs = agree[j].tolist()
            yield f"{describe(trial, row)}: lag {LAGS[j]}: {same} of {pairs} pairs agree, expected share {chances[j]:.6g}"


def words_are_counted(subject: Subject) -> Iterator[str]:
    """Counted over all words, every answer has the chance that the matrix states, and no more than e^epsilon times any other label's.

    So what is too rare to be drawn here is seen too: a label that is kept once in 10^18 draws, an answer that only one label gives. An
    answer that is a set has one number of words for all labels in it and one for all others: nothing else of the label shows, and no
    left-over word goes where the label says.
    """
    promised = subject.mechanism.guarantee.epsilon()
    for trial in subject.one_of_each():
        channel = subject.channel(trial)
        rows, first = np.unique(trial.rows, return_index=True)
        for row, example in zip(rows.tolist(), first.tolist(), strict=True):
            labels = np.unique(np.linspace(0, subject.n_classes - 1, MOST_COUNTED).round().astype(int)).tolist()
            laws = {label: count_words(channel, label=label, row=example) for label in labels}
            known = {label: law for label, law in laws.items() if law is not None}
            if len(known) == len(laws):
                yield from judge_words(channel.take(slice(example, example + 1)), known, promised, describe(trial, row))


def judge_words(
    channel: FiniteChannel, laws: dict[int, dict[Answer, int]], promised: float, where: str
) -> Iterator[str]:
    """Yield what is wrong with the numbers of words that some labels have for each answer of one example."""
    labels, answers = list(laws), list(dict.fromkeys(answer for law in laws.values() for answer in law))
    like = channel.empty_codes(1)
    if any(not 0 <= part <= np.iinfo(like.dtype).max for answer in answers for part in answer):
        yield f"{where}: an answer is none that a release could hold"
        return
    codes = np.array(answers, like.dtype).reshape(len(answers), *like.shape[1:])
    many = channel if channel.n_examples is None else channel.take(np.zeros(len(answers), np.int64))
    if not np.all(many.are_outputs(codes)):
        yield f"{where}: an answer is none of its channel"
        return
    counts = [[law.get(answer, 0) for law in laws.values()] for answer in answers]
    matrix, columns = np.asarray(channel.matrix(0)), np.asarray(many.outputs_of(codes))
    stated, drawn = matrix[labels][:, columns].T, np.array([[count / PAIRS for count in line] for line in counts])
    if np.any(columns < 0) or not np.all(np.abs(drawn - stated) <= STATED_TOLERANCE):
        yield f"{where}: an answer has another share of the words than its matrix states"
    exact = max(math.inf if min(line) == 0 else math.log(Fraction(max(line), min(line))) for line in counts)
    if not exact <= promised + rounding_of(promised):
        yield f"{where}: counted over all words a log-ratio is {exact!r}, promised {promised!r}"
    if isinstance(channel, SetAnswers):
        inside = many.members(codes)[:, labels]  # type: ignore[attr-defined]  # a part of a channel of sets
        for line, named in zip(counts, inside.tolist(), strict=True):
            kinds = [{count for count, one in zip(line, named, strict=True) if one is kind} for kind in (True, False)]
            if any(len(kind) > 1 for kind in kinds):
                yield f"{where}: labels alike for an answer have it with different numbers of words"
                break
            if all(kinds) and Fraction(max(kinds[0]), max(kinds[1])) > 1 + Fraction(channel.odds):
                yield f"{where}: an answer has too many words for the labels in it"
                break


def numbers_are_unbiased(subject: Subject) -> Iterator[str]:
    """The answers to a number have the number as their mean: at every level by the matrix, and between levels as drawn.

    Between levels, a quarter of the way up, each output must come out as the mixture of the two rows says; whoever rounds
    to the nearest level, or lets the rounding see the answer, has another law. Other mechanisms are not asked.
    """
    mechanism = subject.mechanism
    if not isinstance(mechanism, NumericMechanism):
        return
    for trial in subject.one_of_each():
        channel = subject.channel(trial)
        if not isinstance(channel, NumericChannel):
            yield f"{trial.layout}: the channel does not say which numbers its outputs are"
            continue
        rows, first = np.unique(trial.rows, return_index=True)
        for row, example in zip(rows.tolist(), first.tolist(), strict=True):
            matrix = channel.matrix(example)
            values = channel.take(np.full(channel.n_outputs, example)).decode(np.arange(channel.n_outputs))
            missed = np.abs(matrix @ values - mechanism.levels).max()
            # A mean of M products is right to some roundings of the largest number.
            if not missed <= SUM_TOLERANCE * np.abs(values).max():
                yield f"{describe(trial, row)}: the mean answer misses a level by {float(missed)!r}"
    cells = subject.n_rows * (subject.n_classes - 1)
    rows, below = np.divmod(np.repeat(np.arange(cells), DRAWS), subject.n_classes - 1)
    outputs = subject.channel(next(subject.one_of_each())).n_outputs
    level = share_failure(subject) / ((1 if subject.priors is None else 3) * cells * outputs)
    levels = mechanism.levels
    for trial in subject.trials(below, rows):
        numbers = 0.75 * levels[trial.codes] + 0.25 * levels[trial.codes + 1]
        labels = SensitiveLabels(numbers, bounds=mechanism.bounds)
        how = {"prior": trial.prior, "groups": trial.groups}
        drawn = subject.privatize(labels, mechanism, rng=subject.seed, start=0, **how).codes.astype(np.int64)
        for row, matrix in matrices(subject, trial):
            for code in range(subject.n_classes - 1):
                mine = drawn[(trial.rows == row) & (trial.codes == code)]
                stated = 0.75 * matrix[code] + 0.25 * matrix[code + 1]
                counts = np.bincount(mine, minlength=outputs)
                if np.any(two_sided(counts, len(mine), stated) <= level):
                    yield f"{describe(trial, row)}: a number between levels {code} and {code + 1} has another law"


def secure_by_default(subject: Subject) -> Iterator[str]:
    """Without an rng the noise is fresh at every call, and the release says that it is not seeded."""
    for trial in make_unsure_trials(subject):
        first, second = subject.release(trial, rng=None), subject.release(trial, rng=None)
        if first.seeded or second.seeded:
            yield f"{trial.layout}: a release without rng is marked seeded"
        if len(trial.codes) > 1 and np.array_equal(first.codes, second.codes):
            yield f"{trial.layout}: two releases without rng have the same {len(trial.codes)} labels"


def seeds_reproduce(subject: Subject) -> Iterator[str]:
    """A seed gives the same labels again, another seed gives others, and the release says that it is seeded."""
    for trial in make_unsure_trials(subject):
        first, again, other = (subject.release(trial, rng=subject.seed + j) for j in (0, 0, 1))
        if not (first.seeded and again.seeded and other.seeded):
            yield f"{trial.layout}: a release with a seed is not marked seeded"
        if not np.array_equal(first.codes, again.codes):
            yield f"{trial.layout}: one seed, two different releases"
        if len(trial.codes) > 1 and np.array_equal(first.codes, other.codes):
            yield f"{trial.layout}: two seeds, the same {len(trial.codes)} labels"


def pieces_equal_whole(subject: Subject) -> Iterator[str]:
    """Given in pieces with `start=`, the examples are released exactly as if they were given whole."""
    n = sum(PIECES) + 33  # not a multiple of 64: kernels that work on tiles have a short last one
    at = np.arange(n)
    codes, rows = at % subject.n_classes, (at // subject.n_classes) % subject.n_rows
    for trial in subject.trials(codes, rows):
        whole = subject.release(trial, rng=subject.seed, start=5).codes
        edges = np.minimum(np.cumsum((0, *PIECES, n)), len(trial.codes))
        pairs = [(int(a), int(b)) for a, b in itertools.pairwise(edges) if a < b]
        parts = [subject.release(trial.part(a, b), rng=subject.seed, start=5 + a).codes for a, b in pairs]
        differ = np.flatnonzero(np.concatenate(parts) != whole)
        if len(differ):
            yield f"{trial.layout}: {len(differ)} of {len(whole)} labels differ, the first at {int(differ[0])}"


def share_failure(subject: Subject) -> float:
    """Return the part of the subject's `failure` that one statistical check may spend."""
    return subject.failure / STATISTICAL_CHECKS


class Seen(NamedTuple):
    """Outputs of a trial by number (n,), and the law of each example's number (n, outputs), given its label."""

    numbers: Int64s
    laws: Floats

    def average(self, trial: Trial, subject: Subject) -> Iterator[tuple[int, Floats]]:
        """Yield the mean law of each prior in a trial: (labels, outputs)."""
        for row in np.unique(trial.rows).tolist():
            cells = [self.laws[(trial.rows == row) & (trial.codes == label)] for label in range(subject.n_classes)]
            yield row, np.array([cell[0] if (cell == cell[0]).all() else cell.mean(axis=0) for cell in cells])

    def agreement(self, lag: int) -> float:
        """Return the mean chance that the disjoint pairs at this lag agree."""
        blocks = self.laws[: len(self.laws) // (2 * lag) * 2 * lag].reshape(-1, 2, lag, self.laws.shape[1])
        if len(self.laws) and (self.laws == self.laws[0]).all():
            return agreement(self.laws[0])
        return float(np.einsum("pio,pio->", blocks[:, 0], blocks[:, 1]) / max(1, blocks[:, 0, :, 0].size))


def see_outputs(subject: Subject, trial: Trial, codes: Any) -> Seen:
    """Return what a release of a trial shows, as numbers of outputs with their laws under the public channel.

    Where all examples of a prior and label have one law, a number is that of the output. Otherwise it is the output's rank
    by falling chance under the example's own law: outputs of different examples then mean the same.
    """
    channel = subject.channel(trial)
    numbers, laws = (
        np.asarray(channel.outputs_of(codes), np.int64),
        channel.forward(np.eye(subject.n_classes)[trial.codes]),
    )
    kinds = np.unique(trial.rows * subject.n_classes + trial.codes, return_inverse=True)[1].reshape(-1)
    first = np.full(int(kinds.max()) + 1, -1)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]
    if (laws == laws[first[kinds]]).all():
        return Seen(numbers, laws)
    order = np.argsort(-laws, axis=1, kind="stable")
    ranks = (order == numbers[:, None]).argmax(axis=1)
    return Seen(np.where(numbers < 0, -1, ranks), np.take_along_axis(laws, order, axis=1))


def matrices(subject: Subject, trial: Trial) -> Iterator[tuple[int, Floats]]:
    """Yield the dense matrix of each prior in a trial, from the channel that was built without labels."""
    channel = subject.channel(trial)
    rows, first = np.unique(trial.rows, return_index=True)
    for row, example in zip(rows.tolist(), first.tolist(), strict=True):
        yield row, np.asarray(channel.matrix(example), dtype=np.float64)


def describe(trial: Trial, row: int) -> str:
    """Return which prior in which layout, for messages."""
    return f"{trial.layout}, row {row}"


def count_outputs(trial: Trial, drawn: Any, subject: Subject, outputs: int) -> Int64s:
    """Return how often each output came out of each label under each prior: (rows, labels, outputs)."""
    shape = (subject.n_rows, subject.n_classes, outputs)
    cell = np.ravel_multi_index((trial.rows, trial.codes, np.asarray(drawn, dtype=np.int64)), shape)
    return np.bincount(cell, minlength=math.prod(shape)).reshape(shape)


def count_agreeing(drawn: Any, lag: int) -> tuple[int, int]:
    """Return how many of the disjoint pairs at this lag agree, and how many pairs there are."""
    blocks = np.asarray(drawn)[: len(drawn) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    return int((blocks[:, 0] == blocks[:, 1]).sum()), int(blocks[:, 0].size)


def find_least_certain(subject: Subject) -> tuple[int, int]:
    """Return the prior and label whose output is hardest to foresee: where repeated noise shows best."""
    chances: dict[tuple[int, int], float] = {}
    for trial in subject.one_of_each():
        for row, matrix in matrices(subject, trial):
            chances.update({(row, label): agreement(line) for label, line in enumerate(matrix)})
    return min(chances, key=lambda place: chances[place])


def make_unsure_trials(subject: Subject) -> Iterator[Trial]:
    """Yield trials with so many labels that two releases are hardly ever the same (see `SAME`).

    Where outputs are certain (epsilon = inf, a constant answer) or nearly so, one label is left to see the marks by.
    """
    row, label = find_least_certain(subject)
    chance = max(
        agreement(matrix[label]) for t in subject.one_of_each() for r, matrix in matrices(subject, t) if r == row
    )
    same = min(SAME, share_failure(subject) / SAME_ASKED)
    needed = MOST_LABELS + 1 if chance >= 1 else math.ceil(math.log(same) / math.log(chance))
    n = needed if needed <= MOST_LABELS else 1
    return subject.trials(np.full(n, label), np.full(n, row))


def list_statements(channel: FiniteChannel) -> dict[str, Any]:
    """Return everything that a channel states, as arrays and plain values by name."""
    return {**channel.header(), **channel.row_arrays(), **channel.example_arrays()}


def state_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two channels state the same, bit for bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def worst_log_ratio(matrix: Any) -> float:
    """Return max over o, y, z of log T[y, o] / T[z, o] of a dense matrix T[true, output]; infinite at 0 against > 0.

    By enumeration of the columns: nothing here knows how a channel is made.
    """
    dense = np.asarray(matrix, dtype=np.float64)
    possible = dense[:, dense.max(axis=0) > 0]
    most, least = possible.max(axis=0), possible.min(axis=0)
    if np.any(least == 0):
        return math.inf
    return float(np.log(most / least).max())


def rounding_of(epsilon: float) -> float:
    """Return how much rounding can add to a log-ratio.

    Each of the two entries carries 3 roundings at most (keep + redraw * base), their quotient one more: 8 half-ulps
    of relative error in the ratio, which are absolute in its log; the log itself rounds by an ulp of the result.
    """
    return 8 * 2.0**-53 + (math.ulp(epsilon) if math.isfinite(epsilon) else 0.0)


def two_sided(counts: Any, n: Any, probabilities: Any) -> Floats:
    """Return the exact two-sided p-value of each binomial count: twice the smaller tail, at most 1.

    Under the hypothesis, Pr[p-value <= a] <= a for every a: both tails are computed exactly (by the incomplete beta
    function), nothing is asymptotic. So a level a / m for each of m counts gives a for all of them (Bonferroni), also
    when the counts depend on each other, as the counts of one multinomial do.
    """
    from scipy.special import betainc

    c = np.asarray(counts, dtype=np.float64)
    p = np.clip(np.asarray(probabilities, dtype=np.float64), 0.0, 1.0)
    # Pr[X >= c] = I_p(c, n - c + 1) for c >= 1; Pr[X <= c] = I_(1-p)(n - c, c + 1) for c < n.
    upper = np.where(c >= 1, betainc(np.maximum(c, 1), np.maximum(n - c + 1, 1), p), 1.0)
    lower = np.where(c < n, betainc(np.maximum(n - c, 1), c + 1, 1 - p), 1.0)
    return np.minimum(1.0, 2.0 * np.minimum(upper, lower))


def agreement(row: Any) -> float:
    """Return the probability that two independent outputs of one row agree: sum of squares.

    >>> agreement([0.5, 0.5])
    0.5
    """
    return float(np.square(np.asarray(row, dtype=np.float64)).sum())


#: What every mechanism passes, in the order in which it is reported.
_CHECKS = (
    Check(name="rows_are_distributions", promise="rows of every matrix sum to one", judge=rows_are_distributions),
    Check(name="privacy_holds", promise="no log-ratio exceeds the guarantee", judge=privacy_holds),
    Check(name="epsilon_is_exact", promise="channel.epsilon is the worst log-ratio", judge=epsilon_is_exact),
    Check(name="channel_ignores_labels", promise="the channel is public", judge=channel_ignores_labels),
    Check(name="frequencies_match", promise="labels come out as the matrix says", judge=frequencies_match),
    Check(name="numbers_are_unbiased", promise="the mean of an answer is the number", judge=numbers_are_unbiased),
    Check(name="words_are_counted", promise="no word of a draw says more than the matrix", judge=words_are_counted),
    Check(name="examples_are_independent", promise="no noise is used twice", judge=examples_are_independent),
    Check(name="secure_by_default", promise="fresh noise unless a seed is given", judge=secure_by_default),
    Check(name="seeds_reproduce", promise="a seed says what it did", judge=seeds_reproduce),
    Check(name="pieces_equal_whole", promise="batches do not change the release", judge=pieces_equal_whole),
)
_OPTIMAL = Check(name="is_optimal", promise="no private mechanism is right more often", judge=is_optimal)
