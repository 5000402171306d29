r"""The study `cluster-bounds`: Theorem 2 and its two corollaries beside the error that is measured, and DP-SGD in Figure 1.

The sets, features, clusters and model are those of `studies.cluster_response`. Three releases have a bound of the paper on
their excess risk: ClusterRR with the library's parameters (Theorem 2, beta = 0), with those of Corollary 2, and UniformRR with
the modified loss (Corollary 1). DP-SGD is the third line of the paper's Figure 1: the same linear model, trained with noise in
every step, at delta = 1 / n.

>>> [case.split(",")[0] for case in (DPSGD, LIBRARY, PRESCRIBED, UNIFORM)]
['DP-SGD (record)', 'ClusterRR', "ClusterRR with Corollary 2's parameters", 'UniformRR']

Reference: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022, Label differential privacy via clustering, Theorem 2, Corollaries 1
and 2, Figure 1.

Design notes. Excess error is test accuracy without privacy less test accuracy, in points: the theorems are about the minimiser
in the class, of a loss in [0, 1], for which the error is one; a logistic loss is what is minimised. Their dimension is taken as
the number of weights, their constant, which the paper does not state, as 1. The heterogeneity phi is computed from raw labels
here, which a release must not do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Int64s
from labeldp.channel import Channel
from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier
from labeldp.mechanisms import ClusterRR, RandomizedResponse
from labeldp.mechanisms.cluster import bound_cluster_bias, bound_cluster_risk, prescribe_cluster
from labeldp.priors import heterogeneity
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.report import Lines, Plot, Series
from studies.adult_learners import make_private_sgd, need_opacus
from studies.cluster_response import (
    BINARY_SET,
    DIGITS,
    N_CLUSTERS,
    OPTIONAL,
    QUICK_ROWS,
    SETS,
    Task,
    make_model,
    make_task,
)
from studies.study import Measurement, Study, StudyRow, list_tables

EPSILONS = (0.5, 1.0, 2.0)
SGD_EPSILONS = (0.1, 0.5, 1.0, 2.0)
#: The sets of ten classes whose bounds are shown.
BOUND_SETS = ("mnist", "fashion-mnist")
#: DP-SGD: passes and records to a batch. Rows are scaled to norm 1 by their own length, which looks at no other row.
PASSES, BATCH = 5, 1_000
DPSGD, LIBRARY = "DP-SGD (record)", "ClusterRR, the library's parameters"
PRESCRIBED, UNIFORM = "ClusterRR with Corollary 2's parameters", "UniformRR, modified loss (Corollary 1)"
BOUNDS = ", Theorem 2 (excess test error, points)"
FIGURE = ", Figure 1 (share of the accuracy without privacy, %)"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One of the four on one set, or on the task "this digit or another" of it, at one epsilon."""

    data: str
    setting: str
    epsilon: float
    digit: int | None = None

    @property
    def task_name(self) -> str:
        """The name of the task, as `studies.cluster_response` has it."""
        return self.data if self.digit is None else f"binary {self.data} (class {self.digit} against the rest)"

    @property
    def name(self) -> str:
        """Task, row and epsilon."""
        return f"{self.task_name}: {self.setting}, epsilon {self.epsilon:g}"


class ClusterBounds(Study[Case]):
    """Three releases with their bounds on four tasks, DP-SGD on three sets: about five minutes on one core."""

    name: ClassVar[str] = "cluster-bounds"
    title: ClassVar[str] = "Clusters: the theorems beside what is measured, and DP-SGD beside both"
    paper: ClassVar[str] = (
        "Esfandiari, Mirrokni, Syed and Vassilvitskii (2022), Label differential privacy via clustering: not a measured value but "
        "the upper bounds of Theorem 2 and Corollaries 1 and 2 with a constant of 1; Figure 1 is a curve without numbers"
    )
    measure: ClassVar[str] = "what the name of a table says"
    needs: ClassVar[str] = "MNIST, Fashion-MNIST and, if it is to be in it, CIFAR-10; PyTorch and opacus"
    default_seeds: ClassVar[int] = 3

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks that were asked for, by name."""
        return {}

    def cases(self) -> Sequence[Case]:
        """DP-SGD on every set; the bounds on two of them and on the binary tasks. Sets are read when they are first needed."""
        need_opacus()
        root = self.directory or os.environ.get("LABELDP_DATA", "")
        sets = [name for name in SETS if name != OPTIONAL or (Path(root) / name).is_dir()]
        tasks = [*((name, None) for name in BOUND_SETS), *((BINARY_SET, digit) for digit in DIGITS)]
        return [
            *(Case(data=name, setting=DPSGD, epsilon=epsilon) for name in sets for epsilon in SGD_EPSILONS),
            *(
                Case(data=name, digit=digit, setting=setting, epsilon=epsilon)
                for name, digit in tasks
                for setting in (LIBRARY, PRESCRIBED, UNIFORM)
                for epsilon in EPSILONS
            ),
        ]

    def find_task(self, case: Case) -> Task:
        """Return the task of a case, made when it is first asked for."""
        if case.data not in self.tasks:
            dataset = load(case.data, directory=self.directory)
            self.tasks[case.data] = make_task(dataset, rows=QUICK_ROWS if self.quick else None)
        if case.task_name not in self.tasks and case.digit is not None:
            self.tasks[case.task_name] = self.tasks[case.data].binary(case.digit)
        return self.tasks[case.task_name]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once."""
        measure = measure_sgd if case.setting == DPSGD else measure_release
        return [measure(case, self.find_task(case), seed)]

    def facts(self) -> dict[str, Any]:
        """What the two kinds of rows share."""
        return {
            "DP-SGD": f"{PASSES} passes in batches of {BATCH:,}, rows of norm 1, delta 1 / n, one record added or removed",
            "bounds": "constant 1, failure 0.05, dimension the number of weights, phi from raw labels",
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """How far the bounds are from what is measured, and where DP-SGD stands."""
        return (*_sgd(rows), *_bounds(rows), LIMITS)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """DP-SGD against epsilon, a line per set."""
        tables = [table for table in list_tables(rows) if table.endswith(FIGURE)]
        series = []
        for table in tables:
            mine = [row for row in rows if row.table == table]
            series.append(
                Series(
                    name=table.removesuffix(FIGURE),
                    x=tuple(row.epsilon for row in mine),
                    y=tuple(row.mean for row in mine),
                    spreads=tuple(row.spread for row in mine),
                )
            )
        return (
            Lines(
                title="DP-SGD in Figure 1",
                series=tuple(series),
                x_title="epsilon (one record added or removed, delta 1 / n)",
                y_title="share of the accuracy without privacy, %",
                alt="; ".join(f"{line.name} " + ", ".join(f"{value:.0f}" for value in line.y) for line in series),
                x_log=True,
            ),
        )


LIMITS = (
    "DP-SGD hides whether a record is there at all, features included, from anyone but its curator; the others hide one label "
    "of public features. In the unit of the others a replaced label is a record removed and one added: DP-SGD's epsilon is then "
    "at most twice what is shown, at a delta of (1 + e^epsilon) times. UniformRR trusts no one, ClusterRR a curator for its histogram."
)


def measure_sgd(case: Case, task: Task, seed: int) -> Measurement:
    """Return the accuracy of DP-SGD on rows of norm 1, as a share of the accuracy without privacy."""
    delta = 1.0 / len(task.y_train)
    train, test = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (task.X_train, task.X_test))
    model = make_private_sgd(
        epsilon=case.epsilon,
        delta=delta,
        epochs=PASSES,
        batch_size=BATCH,
        classes=range(task.n_classes),
        random_state=seed,
    ).fit(train, task.y_train)
    right = 100.0 * float(np.mean(model.predict(test) == task.y_test))
    return Measurement(
        table=task.name + FIGURE,
        setting=case.setting,
        epsilon=model.guarantee_.epsilon(delta),
        trust=model.guarantee_.trust.words,
        value=100.0 * right / task.full_accuracy,
        note=f"one record added or removed; delta 1 / {len(task.y_train):,}",
    )


def measure_release(case: Case, task: Task, seed: int) -> Measurement:
    """Return the excess test error of a release beside the bound of the paper."""
    groups = task.groups(N_CLUSTERS, seed)
    sizes, phi = describe_clusters(task, groups)
    least = int(sizes.min())
    labels = SensitiveLabels(task.y_train, n_classes=task.n_classes, name=task.name)
    shared: dict[str, Any] = {"n_classes": task.n_classes, "heterogeneity": phi, "least_size": least}
    bias = 0.0
    if case.setting == UNIFORM:
        release = privatize(labels, RandomizedResponse(case.epsilon, n_classes=task.n_classes), rng=seed)
        redraw = find_redraw(release)
        terms: dict[str, Any] = {"noise": 0.0, "floor": 1.0 / task.n_classes, "redraw": redraw, "correction": redraw}
    else:
        release, terms = release_clusters(case, labels, groups, phi, seed)
        bias = bound_cluster_bias(**shared, **terms)
        terms["correction"] = 0.0
    dimension = (task.X_train.shape[1] + 1) * (task.n_classes - 1)
    bound = bound_cluster_risk(len(task.y_train), dimension=dimension, **shared, **terms)
    correction = "unbiased" if case.setting == UNIFORM else "none"
    fitted = LabelPrivateClassifier(make_model(), correction=correction).fit_release(task.X_train, release)
    return Measurement(
        table=task.name + BOUNDS,
        setting=case.setting,
        epsilon=release.guarantee.epsilon(),
        trust=release.guarantee.trust.words,
        value=task.full_accuracy - task.accuracy(fitted),
        paper=100.0 * bound.total,
        note="phi {phi:.2f}; tau {tau:.3f}; of the bound {residual:.0f} stay as n grows, with constants {bias:.0f}",
        details={"phi": phi, "tau": terms["floor"], "residual": 100.0 * bound.residual, "bias": 100.0 * bias},
    )


def release_clusters(
    case: Case, labels: SensitiveLabels, groups: Int64s, phi: float, seed: int
) -> tuple[Release, dict[str, Any]]:
    """Release with ClusterRR, and return sigma, tau and lambda of what was released."""
    k = labels.n_classes
    if case.setting == PRESCRIBED:
        # The corollary's epsilon is a third, or a half, of what it spends: the total is the case's.
        plan = prescribe_cluster(case.epsilon / (2.0 if k == 2 else 3.0), heterogeneity=phi, n_classes=k)
        mechanism = ClusterRR(case.epsilon, tau=plan.floor, split=plan.split)
    else:
        mechanism = ClusterRR(case.epsilon)
    release = privatize(labels, mechanism, groups=groups, rng=seed)
    floor = mechanism.tau if mechanism.tau is not None else 0.1 / k
    noise = (1.0 if k == 2 else 2.0) / mechanism.histogram_epsilon
    return release, {"noise": noise, "floor": floor, "redraw": find_redraw(release)}


def find_redraw(release: Release) -> float:
    """Return lambda, the largest of any cluster."""
    channel = release.channel
    assert isinstance(channel, Channel)
    return 1.0 - float(np.min(channel.keep))


def describe_clusters(task: Task, groups: Int64s) -> tuple[Int64s, float]:
    """Return the sizes of the clusters and phi, from raw labels: for a study, never for a release."""
    counts = np.zeros((int(groups.max()) + 1, task.n_classes))
    np.add.at(counts, (groups, task.y_train), 1.0)
    sizes = counts.sum(axis=1)
    return sizes.astype(np.int64), heterogeneity(counts / sizes[:, None], sizes.astype(np.int64))


def _sgd(rows: Sequence[StudyRow]) -> list[str]:
    found = []
    for table in list_tables(rows):
        if table.endswith(FIGURE):
            parts = [f"{row.mean:.1f} at {row.epsilon:.3g}" for row in rows if row.table == table]
            found.append(
                f"{table.removesuffix(FIGURE)}, DP-SGD, share of the accuracy without privacy: {', '.join(parts)}."
            )
    if found:
        means = [
            [row.mean for row in rows if row.table == table] for table in list_tables(rows) if table.endswith(FIGURE)
        ]
        most = max(max(line) - min(line) for line in means)
        found.append(
            f"Over these epsilons DP-SGD moves by at most {most:.1f} points on a set: with {PASSES} passes and rows of norm 1 "
            "noise is not what limits it, and more passes would cost budget."
        )
    return found


def _bounds(rows: Sequence[StudyRow]) -> list[str]:
    found = []
    for table in list_tables(rows):
        if not table.endswith(BOUNDS):
            continue
        mine = [row for row in rows if row.table == table]
        parts = []
        for setting in dict.fromkeys(row.setting for row in mine):
            cells = [f"{row.mean:.1f} ({row.paper:.0f}) at {row.epsilon:.3g}" for row in mine if row.setting == setting]
            parts.append(f"{setting} {', '.join(cells)}")
        phi = next(float(match[1]) for row in mine if (match := re.match(r"phi ([\d.]+);", row.note)))
        vain = (
            " Phi is above 1/K, so that the corollary's floor is 1/K and its clusters say nothing."
            if phi > 0.1 and "binary" not in table
            else ""
        )
        found.append(
            f"{table.removesuffix(BOUNDS)}, excess error (the bound), points; phi {phi:.2f}: {'; '.join(parts)}.{vain}"
        )
    if found:
        worst = [row for row in rows if row.paper is not None and row.mean > row.paper]
        held = "Every bound holds" if not worst else f"{len(worst)} rows are above their bound"
        large = sum(row.paper >= 100 for row in rows if row.paper is not None)
        found.append(
            f"{held}; {large} of {sum(row.paper is not None for row in rows)} allow 100 points or more, which says nothing."
        )
    return found
