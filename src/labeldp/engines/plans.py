"""What `privatize_table` plans before it draws: whose rows are asked, which groups there are, and how a mechanism answers.

A mechanism is asked for a channel in one of three ways (`answer_beliefs`): once for all rows, once with a row of beliefs per group, or
batch by batch where each row has beliefs of its own. In the third case the channels of two batches must not have rows in common
to write down. A mechanism whose channel has such rows (a matrix per distinct prior) is asked with the distinct beliefs of the
whole table, found in a pass before the charge. A mechanism that measures (`ClusterRR`) gets the group of every row, 8 bytes a
row on this machine, and its questions for counts are answered by passes over the table. `Plan.rehearse` tries all that can fail
without a label.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from labeldp.arrays import Float64s, Floats, Int64s
from labeldp.channel import FiniteChannel
from labeldp.engines.drawing import Response
from labeldp.engines.engine import Engine
from labeldp.engines.examples import MOST_CELLS, TableExamples
from labeldp.engines.rows import (
    OWNER,
    Rows,
    check_owners,
    gather_persons,
)
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import (
    MeasuringMechanism,
    Mechanism,
)
from labeldp.mechanisms.response import find_distinct_rows
from labeldp.priors import Beliefs, Grouping, Prior, Reader
from labeldp.priors.cluster import group_examples
from labeldp.random import NoiseKey
from labeldp.release import LabelCounts
from labeldp.release.budget import Budget
from labeldp.release.door import check_claim, check_persons
from labeldp.release.measurement import Counter
from labeldp.release.persons import (
    COMMON,
    GROUP,
    AnswerPlan,
    RowsOfPersons,
    best_answers,
    best_common,
    check_person_mechanism,
    information_of,
)
from labeldp.validate import check_choice


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """How a table will be answered: the mechanism at its epsilon, the prepared prior, and what is promised for both.

    `words` name them for people. `response` is known before the charge where no label is needed for it; `probe` is a channel
    of the kind that will answer, None where that needs a count of labels.
    """

    mechanism: Mechanism
    prior: Prior | None
    examples: TableExamples
    budget: Budget
    epsilon: float
    spent: float
    promise: Guarantee
    groups: Groups | None
    response: Response | None = None
    probe: FiniteChannel | None = None
    asking: AskedPersons | None = None

    @property
    def words(self) -> str:
        """The mechanism, what it was used on, and for whom."""
        paid = f" at epsilon {self.spent:.4g}" if self.spent else ""
        told = repr(self.mechanism) + ("" if self.prior is None else f" on {self.prior.description}{paid}")
        return told if self.asking is None else self.asking.answers.describe(told)

    def respond(self, key: NoiseKey) -> Response:
        """Return the response to all batches; what it needs to know of labels is measured now, after the charge."""
        response = self.response or self._answer(key)
        response.channel.prepare()  # once, not once a batch
        return response

    def _answer(self, key: NoiseKey) -> Response:
        beliefs = self._believe(key)
        if isinstance(self.mechanism, MeasuringMechanism):
            return self._measure(self.mechanism, beliefs, key)
        return answer_beliefs(self.mechanism, beliefs, self.examples)

    def rehearse(self) -> Plan:
        """Return the plan after everything that can fail without labels was tried.

        Where the response needs no label, it is found here. Otherwise the mechanism is asked for a channel with beliefs
        of the shape that the prior will give, and one that measures is listened to up to its first question.
        """
        free = self.prior is None or not self.prior.sees_labels
        beliefs = self._believe(NoiseKey.from_seed(0)) if free else self._pretend()
        if isinstance(self.mechanism, MeasuringMechanism):
            try:
                channel = self._ask(self.mechanism, beliefs, _stop_asking)
            except _AskedError:
                return self
            response = answer_alike(
                channel, self.groups, self.mechanism, beliefs=beliefs, claimed=self.mechanism.response_epsilon
            )
        else:
            response = answer_beliefs(self.mechanism, beliefs, self.examples)
        return replace(self, response=response if free else None, probe=response.channel)

    def _believe(self, key: NoiseKey) -> Beliefs | None:
        if self.prior is None:
            return None
        beliefs = self.prior.beliefs(self.examples, budget=self.epsilon, key=key, response=self.mechanism)
        self.budget.check_spent(beliefs.guarantee, epsilon=self.spent)
        return beliefs

    def _pretend(self) -> Beliefs:
        """Return beliefs of the shape that the prior will give, made of nothing: one row per group, or a row for each.

        Many rows differ from each other, as noise makes them differ: a mechanism may take only so many.
        """
        assert self.prior is not None
        size, grouping = self.examples.n_classes, self.prior.grouping
        if grouping is None:
            return Beliefs(reader=Reader(read=functools.partial(_read_uniform, size)), stage=_no_stage)
        count = grouping.n_groups
        lean = np.linspace(0.0, 0.5, count)[:, None] if count > 1_000 else np.zeros((count, 1))
        rows = (1.0 - lean) / size + lean * np.eye(size)[0]
        return Beliefs(rows=rows, reader=grouping)

    def _ask(self, mechanism: MeasuringMechanism, beliefs: Beliefs | None, count: Any) -> FiniteChannel:
        """Ask a mechanism that measures for its channel, with the group of every row."""
        rows = None if beliefs is None else beliefs.rows
        if beliefs is not None and rows is None:
            got, fix = Described("a row for each"), "Give it groups, or a prior of one row."
            raise invalid(OWNER, "prior", f"be shared by rows for {type(mechanism).__name__}", got=got, fix=fix)
        by_group = beliefs is not None and isinstance(beliefs.reader, Grouping)
        prior = rows if by_group or rows is None else rows[0]
        numbers = None if self.groups is None else self.groups.numbers
        size, n = self.examples.n_classes, len(self.examples)
        return mechanism.measured_channel(count, groups=numbers, n_classes=size, n_examples=n, prior=prior)

    def _measure(self, mechanism: MeasuringMechanism, beliefs: Beliefs | None, key: NoiseKey) -> Response:
        """Let the mechanism ask for noisy counts, and answer each row by the channel of its group."""

        def count(query: LabelCounts, epsilon: float, child: NoiseKey) -> Int64s:
            assert self.groups is not None
            assert query.n_groups is not None
            asked = self.groups.regroup(query.groups, n_groups=query.n_groups)
            return self.examples.count(asked).release(epsilon=epsilon, key=child).value

        counter = Counter(count, mechanism, key, lambda: None, start=0)  # the charge has been made
        channel = self._ask(mechanism, beliefs, counter)
        response = answer_alike(channel, self.groups, mechanism, beliefs=beliefs, claimed=mechanism.response_epsilon)
        if counter.shares is None or self.groups is None:
            return response
        rows = self.groups.by_group(counter.groups)
        return replace(response, prior=counter.shares, prior_rows=rows, reader=self.groups.grouping)


class AskedPersons(NamedTuple):
    """Which rows of a table are answered: the plan, the rows with it, whose they are, and the mechanism at the epsilon of a row."""

    answers: AnswerPlan
    rows: Rows
    owners: RowsOfPersons
    mechanism: Mechanism

    @property
    def ids(self) -> Any:
        """What each person is called."""
        return self.owners.ids


def plan_persons(
    mechanism: Mechanism,
    rows: Rows,
    engine: Engine,
    *,
    epsilon: float | None,
    column: str,
    way: str,
    prior: Prior | None,
) -> AskedPersons:
    """Return which rows are answered so that each person spends epsilon: a pass over the column of ids, before anything else."""
    if rows.row_ids is not None:
        fix = "The ledger recognises persons by their ids."
        raise invalid(OWNER, "row_ids", "be left out where persons are given", got=rows.row_ids, fix=fix)
    check_choice(OWNER, "persons_way", way, (COMMON, GROUP))
    if prior is not None and prior.sees_labels:
        got = Described(type(prior).__name__)
        fix = "What it costs is promised about labels: use a public prior, a model, or none."
        raise invalid(OWNER, "prior", "not see labels where persons are given", got=got, fix=fix)
    total = mechanism.guarantee.epsilon() if epsilon is None else epsilon
    spent = 0.0 if prior is None else prior.cost(total, n_examples=rows.count, n_classes=rows.n_classes)
    if spent > 0:  # it was spent on each label: a person with many of them has lost as many times that
        fix = "Use a model of other labels, a public prior, or none."
        raise invalid(OWNER, "prior", "cost nothing where persons are given", got=Described(f"{spent:g}"), fix=fix)
    mechanism = mechanism if mechanism.guarantee.epsilon() == total else mechanism.with_epsilon(total)
    check_person_mechanism(mechanism)
    information = information_of(mechanism, n_classes=rows.n_classes)
    most = best_answers(total, information, most=rows.count) if way == COMMON else 1
    found = gather_persons(rows, engine, column=column, most=most)
    check_owners(rows, engine, column=column)
    if way == COMMON:
        most = best_common(total, information, found.counts, most=min(most, int(found.counts.max())))
        found = found if found.most == most else found.keep(most)
        answers = found.plan(way=way, epsilon=total, most=most)
        everyone = len(answers.rows) == rows.count
        rows = rows if everyone else replace(rows, asked=answers.rows)
    else:
        answers = found.plan_group(epsilon=total)
    check_persons(answers, answers.epsilons)
    return AskedPersons(answers, rows, found, mechanism.with_epsilon(answers.label_epsilon))


def make_plan(
    mechanism: Mechanism,
    prior: Prior | None,
    examples: TableExamples,
    budget: Budget,
    *,
    epsilon: float | None,
    groups: Any,
) -> Plan:
    """Prepare the prior, split the budget, find the groups, and rehearse: all that comes before the charge."""
    total = mechanism.guarantee.epsilon() if epsilon is None else epsilon
    if prior is None:
        mechanism, spent = budget.fit_mechanism(mechanism, total), 0.0
        promise = budget.state(mechanism.guarantee)
    else:
        prior = prior.prepare(examples, budget=total)
        division = budget.split(total, prior=prior, mechanism=mechanism, same_noise=True)
        mechanism, spent, promise = division.mechanism, division.spent, division.promise
    found = find_groups(examples, groups, mechanism=mechanism, prior=prior, budget=total)
    plan = Plan(
        mechanism=mechanism,
        prior=prior,
        examples=examples,
        budget=budget,
        epsilon=total,
        spent=spent,
        promise=promise,
        groups=found,
    )
    return plan.rehearse()


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The group of every row, numbered from 0 without gaps, and how a batch's are read."""

    numbers: Int64s
    grouping: Grouping

    def by_group(self, values: Any) -> Int64s:
        """Return a value for each group where all rows of a group have the same; refuse others."""
        whole = np.asarray(values, dtype=np.int64)
        found = np.zeros(self.grouping.n_groups, np.int64)
        found[self.numbers] = whole
        if not np.array_equal(found[self.numbers], whole):
            fix = "Give it finer groups."
            got = Described("one that does not")
            raise invalid(OWNER, "mechanism", "treat all rows of a group alike", got=got, fix=fix)
        return found

    def regroup(self, values: Any, *, n_groups: int) -> Grouping:
        """Return the grouping that a function of the groups is."""
        read = functools.partial(_read_renumbered, self.grouping.read, self.by_group(values))
        return replace(self.grouping, read=read, n_groups=n_groups)


def find_groups(
    examples: TableExamples, groups: Any, *, mechanism: Mechanism, prior: Prior | None, budget: float
) -> Groups | None:
    """Return the groups that a mechanism which measures will ask about; None where there are none.

    Its groups are those that were given, without gaps, or those of a prior with a row per group, as they are.
    """
    lent = None if prior is None else prior.grouping
    if not isinstance(mechanism, MeasuringMechanism):
        if groups is not None and lent is None:
            fix = "They are for ClusterRR, or for a prior of shape (C, K); ClusterPrior(groups=...) counts by a column."
            raise invalid(
                OWNER, "groups", f"be left out for {type(mechanism).__name__}", got=Described("some"), fix=fix
            )
        return None
    if groups is None and lent is None:
        return None
    grouping = group_examples(examples, groups, budget=budget) if lent is None else lent
    parts = examples.collect(grouping, _list_groups, _join_lists)
    numbers = np.concatenate([numbers for _, numbers in sorted(parts, key=lambda part: part[0])]).astype(np.int64)
    if lent is not None:
        return Groups(numbers=numbers, grouping=grouping)
    present, numbers = np.unique(numbers, return_inverse=True)
    renumber = np.zeros(grouping.n_groups, np.int64)
    renumber[present] = np.arange(len(present))
    read = functools.partial(_read_renumbered, grouping.read, renumber)
    return Groups(numbers=numbers.reshape(-1), grouping=replace(grouping, read=read, n_groups=len(present)))


# ------------------------------------------------------------------------------------------- from beliefs to a response


def answer_beliefs(mechanism: Mechanism, beliefs: Beliefs | None, examples: TableExamples) -> Response:
    """Return how a mechanism answers all batches, given beliefs about them."""
    size, claimed = examples.n_classes, mechanism.guarantee.epsilon()
    if beliefs is None:
        channel = mechanism.channel(n_classes=size)
        return answer_alike(channel, None, mechanism, beliefs=None, claimed=claimed)
    if beliefs.rows is None:
        return _answer_each(mechanism, beliefs, examples)
    if not isinstance(beliefs.reader, Grouping):
        channel = mechanism.channel(beliefs.rows[0], n_classes=size)
        return answer_alike(channel, None, mechanism, beliefs=beliefs, claimed=claimed)
    return _answer_groups(mechanism, beliefs, size)


def _answer_groups(mechanism: Mechanism, beliefs: Beliefs, n_classes: int) -> Response:
    """Return a response with a channel for each group; beliefs that were measured are released with it."""
    assert beliefs.rows is not None
    count = len(beliefs.rows)
    channel = mechanism.channel(beliefs.rows, groups=np.arange(count), n_classes=n_classes)
    check_claim(mechanism, channel, claimed=mechanism.guarantee.epsilon())
    _check_channel(channel, n_classes, examples=count)
    told = beliefs.guarantee is not None
    return Response(
        channel=channel,
        promise=mechanism.guarantee,
        reader=beliefs.reader,
        expected=_expect_truth(channel, beliefs.rows),
        prior=beliefs.rows.astype(np.float64) if told else None,
        prior_rows=np.arange(count) if told else None,
    )


def _answer_each(mechanism: Mechanism, beliefs: Beliefs, examples: TableExamples) -> Response:
    """Return a response with beliefs for each row, asked for batch by batch, or by the distinct ones of the table."""
    size = examples.n_classes
    probe = mechanism.channel(np.full((1, size), 1.0 / size), n_classes=size)
    check_claim(mechanism, probe, claimed=mechanism.guarantee.epsilon())
    if probe.n_examples is None:  # whatever is believed, it answers the same way
        return answer_alike(probe, None, mechanism, beliefs=None, claimed=mechanism.guarantee.epsilon())
    _check_channel(probe, size, examples=1)
    if not probe.row_arrays():
        return Response(
            channel=probe, promise=mechanism.guarantee, reader=beliefs.reader, mechanism=mechanism, stage=beliefs.stage
        )
    if beliefs.stage is not None:
        fix = "Use InformativeResponse, RRWithPrior or RRTopK, whose channels differ from row to row."
        got = repr(mechanism)
        raise invalid(OWNER, "mechanism", "answer each row's own beliefs in stages", got=got, fix=fix)
    return _answer_groups(mechanism, share_rows(beliefs, examples), size)


def share_rows(beliefs: Beliefs, examples: TableExamples) -> Beliefs:
    """Return beliefs with each distinct row once, in the order of numpy.unique, found in a pass over the table."""
    most = MOST_CELLS // examples.n_classes
    rows = examples.collect(beliefs.reader, _find_distinct, functools.partial(_join_distinct, most))
    read = functools.partial(_read_place, beliefs.reader.read, {row.tobytes(): place for place, row in enumerate(rows)})
    reader = Grouping(
        read=read,
        columns=beliefs.reader.columns,
        chunk=beliefs.reader.chunk,
        n_groups=len(rows),
        words="by distinct rows",
    )
    return replace(beliefs, rows=rows, reader=reader)


def answer_alike(
    channel: FiniteChannel, groups: Groups | None, mechanism: Mechanism, *, beliefs: Beliefs | None, claimed: float
) -> Response:
    """Return the response of a channel that is known: one for all rows, or one with an example for every row.

    The second becomes a channel with an example for every group, which is all that travels to workers.
    """
    check_claim(mechanism, channel, claimed=claimed)
    shared = None if beliefs is None or beliefs.rows is None else beliefs.rows
    if channel.n_examples is None:
        _check_channel(channel, channel.n_classes, examples=None)
        law = None if shared is None or len(shared) > 1 else shared[0]
        return Response(channel=channel, promise=Guarantee.pure(claimed), expected=_expect_truth(channel, law))
    if groups is None:
        got, fix = Described("a channel for each row"), "Give it groups or a prior."
        raise invalid(OWNER, "mechanism", "answer all rows alike without groups or a prior", got=got, fix=fix)
    first = np.zeros(groups.grouping.n_groups, np.int64)  # a group without rows is never read
    present, places = np.unique(groups.numbers, return_index=True)
    first[present] = places
    for array in channel.example_arrays().values():
        if not np.array_equal(array[first][groups.numbers], array):
            groups.by_group(np.arange(len(array)))  # refuses: rows of one group differ
    small = channel.take(first)
    return Response(
        channel=small, promise=Guarantee.pure(claimed), reader=groups.grouping, expected=_expect_truth(small, None)
    )


def _expect_truth(channel: FiniteChannel, prior: Floats | None) -> Any:
    """Return the chance of a true label under a prior: for all rows, or for each group; NaN where outputs are not labels."""
    if not channel.outputs_are_labels:
        return math.nan if channel.n_examples is None else np.full(channel.n_examples, math.nan)
    if channel.n_examples is None:
        return float(np.mean(channel.expected_accuracy(prior)))
    found: Float64s = np.asarray(channel.expected_accuracy(prior), np.float64)
    return np.broadcast_to(found, (channel.n_examples,))


def _check_channel(channel: FiniteChannel, n_classes: int, *, examples: int | None) -> None:
    """Refuse a channel for another number of classes or of examples than it was asked for."""
    if channel.n_classes != n_classes:
        got = Described(f"{channel.n_classes} for {n_classes} classes of labels")
        raise invalid(OWNER, "mechanism", "have as many classes as the labels", got=got)
    if channel.n_examples not in (None, examples):
        got = Described(f"{channel.n_examples} for {examples}")
        raise invalid(OWNER, "mechanism", "answer each row of a prior", got=got)


# What follows are steps of a pass over the table: functions of a batch, by name, so that they travel to workers.


def _read_renumbered(read: Any, numbers: Int64s, batch: Any, rows: slice) -> Int64s:
    found: Int64s = numbers[read(batch, rows)]
    return found


def _read_uniform(n_classes: int, _: Any, rows: slice) -> Floats:
    return np.full((rows.stop - rows.start, n_classes), 1.0 / n_classes)


def _no_stage(rows: slice) -> Any:
    return np.zeros(rows.stop - rows.start, np.uint8)


def _list_groups(numbers: Int64s, first: int) -> list[tuple[int, Int64s]]:
    return [(first, numbers)]


def _join_lists(one: list[Any], other: list[Any]) -> list[Any]:
    return one + other


def _find_distinct(rows: Floats, _: int) -> Floats:
    return find_distinct_rows(rows + 0.0)[0]  # -0.0 becomes 0.0, so that equal rows have equal bytes


def _join_distinct(most: int, one: Floats, other: Floats) -> Floats:
    both = find_distinct_rows(np.concatenate([one, other]))[0]
    if len(both) > most:
        fix = "Put similar beliefs into groups."
        raise invalid(OWNER, "prior", f"have at most {most:,} distinct rows", got=Described("more"), fix=fix)
    return both


def _read_place(read: Any, places: dict[bytes, int], batch: Any, rows: slice) -> Int64s:
    return np.array([places[row.tobytes()] for row in read(batch, rows) + 0.0], np.int64)


class _AskedError(Exception):
    """A mechanism asked for counts in a rehearsal: all that comes before has passed its checks."""


def _stop_asking(*_: Any) -> NoReturn:
    raise _AskedError
