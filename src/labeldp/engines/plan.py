"""Before anything is drawn: which rows, which belief, what it costs, and the one charge.

Design notes. Every function here either returns or refuses; none of them draws. Charging comes last.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from labeldp.accounting import what_is_left
from labeldp.data.label_column import LabelProfile, check_label, check_row_ids, join_profiles, label_profile
from labeldp.data.tables import TableSource, below
from labeldp.engines.beliefs import Belief, GroupColumn, KMeans, Model, ProbabilityColumns, Staged, Uniform
from labeldp.engines.engine import Engine
from labeldp.engines.rows import Rows, Span, check_names, class_values, spans_of, table_fingerprint, value_type
from labeldp.errors import Described, invalid, shorten
from labeldp.guarantee import Guarantee, Trust
from labeldp.mechanisms import Mechanism
from labeldp.release.files import check_plain_classes
from labeldp.release.labels import Budget

OWNER = "privatize_table"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the budget is divided, and what is promised for the whole; `words` name the mechanism for people."""

    mechanism: Mechanism
    promise: Guarantee
    spent: float
    words: str
    budget: Budget


def chosen_belief(given: Mapping[str, Any], *, prior_epsilon: float | None, apart: Sequence[str]) -> Belief:
    """Return the one source of beliefs that was asked for, or the uniform one."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        got = Described(" and ".join(named))
        raise invalid(OWNER, "prior", "come from one source at most", got=got, fix="Choose one of them.")
    kind: str
    value: Any
    kind, value = next(iter(named.items()), ("", None))
    if prior_epsilon is not None and kind not in ("cluster_column", "n_clusters"):
        fix = "Only histograms of groups spend it: name cluster_column= or n_clusters=."
        raise invalid(OWNER, "prior_epsilon", "be left out", got=prior_epsilon, fix=fix)
    if kind == "prior_columns":
        return ProbabilityColumns(value)
    if kind == "cluster_column":
        return GroupColumn(value, epsilon=prior_epsilon)
    if kind == "n_clusters":
        return KMeans(value, epsilon=prior_epsilon, apart=apart)
    if kind == "learner":
        return Staged(value, apart=apart)
    return Model(value, apart=apart) if kind == "model" else Uniform()


def checked_rows(
    source: TableSource, label: str, *, classes: Sequence[Any] | None, missing: str, engine: Engine
) -> tuple[Rows, int]:
    """Return the rows to release, and how many are left out; one pass over the label column."""
    source.require(label)
    check_names(source)
    _check_partitions(source, label)
    listed = class_values(source, label, classes)
    spans = spans_of(source)
    profiles = _profiles(source, spans, label, engine)
    _check_files(spans, profiles, listed)
    profile = functools.reduce(join_profiles, profiles)
    found = check_label(profile, missing=missing, classes=listed)
    dtype = value_type(source.schema.field(label).type)
    declared = listed is not None or pa.types.is_boolean(dtype)
    if listed is None and declared:
        found = (False, True)
    check_plain_classes(found, owner=OWNER)
    rows = Rows(
        source=source,
        label=label,
        classes=found,
        value_set=pa.array(list(found), type=dtype),
        spans=spans,
        counts=tuple(one.rows - one.missing for one in profiles),
        drop=profile.missing > 0,
        read_off=not declared,
    )
    return rows, profile.missing


def _profiles(source: TableSource, spans: Sequence[Span], label: str, engine: Engine) -> list[LabelProfile]:
    """Return the profile of each span."""
    work = functools.partial(label_profile, label=label)
    found = dict(engine.each(work, [span.of(source) for span in spans]))
    return [found[number] for number in range(len(spans))]


def _check_files(spans: Sequence[Span], profiles: Sequence[LabelProfile], listed: Sequence[Any] | None) -> None:
    """Name the file where a value outside the list is; that there is one, the check of the whole will say as well."""
    known = set(listed or ())
    for span, profile in zip(spans, profiles, strict=True):
        others = [value for value in profile.counts if value not in known]
        if listed is not None and len(spans) > 1 and others:
            got = Described(f"{shorten(others[0])[:24]} outside `classes` in {span.file}")
            fix = "List it too (--classes), or merge it into another class."
            raise invalid(profile.column, "label", "hold only listed classes", got=got, fix=fix)


def _check_partitions(source: TableSource, label: str) -> None:
    """Refuse folders named after the label (label=yes/...): their names would be released as they are."""
    for part in source.parts:
        if any(name.partition("=")[0] == label and "=" in name for name in below(part, source.path).split("/")):
            fix = "The names of folders are released as they are: write the table again in other folders."
            raise invalid(OWNER, "label", "not be in the names of folders", got=below(part, source.path), fix=fix)


def check_columns(source: TableSource, *, label: str, row_ids: str | None, belief: Belief) -> None:
    """Refuse columns that are absent, ids that repeat, and a prior or ids that would give the label away."""
    for name, column in [("row_ids", row_ids), *(("prior", column) for column in belief.columns)]:
        if column == label:
            fix = "It is what is to be hidden: name another column."
            raise invalid(OWNER, name, "not be the label column", got=column, fix=fix)
    source.require(*belief.columns)
    if row_ids is not None:
        check_row_ids(source, row_ids)


def planned(belief: Belief, epsilon: float, budget: Budget) -> Plan:
    """Divide the budget between belief and response, rounding so that together they never exceed it."""
    n_classes = budget.labels.n_classes
    spent = belief.cost(epsilon, n_examples=len(budget.labels), n_classes=n_classes)
    mechanism = belief.mechanism(what_is_left(epsilon, after=spent), n_classes=n_classes)
    promise = mechanism.guarantee
    if spent > 0:
        histogram = Guarantee.pure(spent, trust=Trust.CURATOR).named("histograms of groups")
        promise = histogram.then(promise.named("response"))
    promise = budget.state(promise, *([] if belief.assumption is None else [belief.assumption]))
    words = f"{mechanism!r}{belief.description}{f' at epsilon {spent:.4g}' if spent else ''}"
    return Plan(mechanism=mechanism, promise=promise, spent=spent, words=words, budget=budget)


@dataclass(frozen=True, kw_only=True)
class TableLabels:
    """The label column of a table as a ledger knows it; its rows are named by their ids where the table has them."""

    rows: Rows
    name: str
    row_ids: str | None

    @property
    def classes_read_off(self) -> bool:
        """Whether the list of classes was read off the column."""
        return self.rows.read_off

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.rows.classes)

    def __len__(self) -> int:
        return self.rows.count

    def fingerprint(self, *, start: int = 0) -> str:
        """Return what the ledger knows the rows by."""
        return table_fingerprint(self.name, self.rows, row_ids=self.row_ids)
