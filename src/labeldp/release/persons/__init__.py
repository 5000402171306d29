r"""Persons: who owns which row, and which of her labels are asked so that all of them together cost epsilon.

A patient has several stays, a customer several visits. A promise about one label is then no promise about her: with m rows her
loss is m times as large. Here the unit is the person (`Unit.PERSON`): all her labels may be replaced at once. Rows and who owns
them are public; labels are not.

>>> from labeldp.mechanisms import InformativeResponse
>>> persons = Persons.of(["ann", "bob", "ann", "ann"])
>>> persons
<Persons: 4 rows of 2 persons, at most 3 of one>
>>> plan = plan_answers(persons, InformativeResponse(1.0, n_classes=2))
>>> len(plan.rows), plan.person_epsilon(), plan.label_epsilon
(2, 1.0, 1.0)

| chapter | what is in it |
|---|---|
| `owners` | who owns which row: `Persons`, the check of ids, parts that split nobody |
| `plans` | how her epsilon is spent on her rows, what the answers tell, and the proof of what they cost her together |
| `choice` | which of her rows are asked, or count in a statistic: in memory, and for tables that are not |
"""

from labeldp.release.persons.choice import (
    Counted,
    RowsOfPersons,
    best_cap,
    check_score,
    choose_rows,
    compare_ways,
    count_rows,
    gather_rows,
    pick_rows,
    plan_answers,
)
from labeldp.release.persons.owners import ASSIGNMENT, CHOICE, OWNER, Persons, check_apart, read_ids
from labeldp.release.persons.plans import (
    COMMON,
    GROUP,
    ONE,
    SHARES,
    WAYS,
    AnswerPlan,
    best_answers,
    best_common,
    check_person_mechanism,
    information_of,
)

__all__ = [
    "ASSIGNMENT",
    "CHOICE",
    "COMMON",
    "GROUP",
    "ONE",
    "OWNER",
    "SHARES",
    "WAYS",
    "AnswerPlan",
    "Counted",
    "Persons",
    "RowsOfPersons",
    "best_answers",
    "best_cap",
    "best_common",
    "check_apart",
    "check_person_mechanism",
    "check_score",
    "choose_rows",
    "compare_ways",
    "count_rows",
    "gather_rows",
    "information_of",
    "pick_rows",
    "plan_answers",
    "read_ids",
]
