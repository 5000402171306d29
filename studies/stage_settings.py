"""The study `stage-settings`: what the split, the temperature and mixup do to two-stage training, and choosing without labels.

The first three tables repeat the ablations of the paper's Figures 4 and 5 on Fashion-MNIST with our network: one setting is
moved, the others stay at their defaults. The last asks whether mixup can be chosen from released labels alone: two
folds of one release, the unbiased `noisy_accuracy` of each candidate on the fold it was not trained on, and the test
accuracy of the choice beside that of the best by test.

>>> StageSettings.name
'stage-settings'

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, supplement, Figures 4 and 5.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from labeldp.data import load
from labeldp.features import PatchFeatures
from labeldp.learn import LabelPrivateClassifier, noisy_accuracy
from labeldp.mechanisms import RandomizedResponse
from labeldp.release import privatize
from labeldp.report import Bars, Plot
from studies.facts import Stopwatch
from studies.images import Images
from studies.images_cases import CLASSES, STAGES, TEMPERATURE, network
from studies.kept import Measured
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

DATA = "fashion-mnist"
EPSILON = 1.0
CHOICE_EPSILONS = (1.0, 2.0)
MIXUPS = (0.0, 1.0, 4.0)
FOLDS = 2
QUICK_ROWS = 3_000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value of one setting of LP-2ST, trained as in the paper on plain labels; the others as in the image studies."""

    table: str
    name: str
    stages: Any = STAGES["LP-2ST"]
    temperature: float = TEMPERATURE
    mixup: float = 4.0


SETTINGS = (
    *(Setting(table="share of stage 1", name=f"{share:g}", stages=(share, 1 - share)) for share in (0.4, 0.6, 0.8)),
    *(Setting(table="temperature", name=f"{value:g}", temperature=value) for value in (0.25, 0.5, 1.0)),
    *(Setting(table="mixup", name=f"{value:g}", mixup=value) for value in MIXUPS),
)


class StageSettings(Study):
    """Ablations of two-stage training, and a choice by released labels."""

    name: ClassVar[str] = "stage-settings"
    title: ClassVar[str] = "Two-stage training: split, temperature, mixup, and choosing without labels"
    paper: ClassVar[str] = (
        "Ghazi et al. (2021), Deep Learning with Label Differential Privacy, supplement, Figures 4 and 5"
    )
    measure: ClassVar[str] = "test accuracy, %"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Learn small features, then every setting on every seed, then the choices."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        images = _images(directory, quick=quick)
        jobs = [*_ablations(images, numbers), *_choices(images, numbers)]
        found: dict[str, list[Measured]] = {}
        for done, (name, seed, measured) in enumerate(jobs):
            tell(done / len(jobs), name)
            found.setdefault(name, []).append(self.kept.get(f"{name} seed={seed}", measured))
        tell(1.0, "done")
        rows = [*_ablation_rows(found), *_choice_rows(found)]
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=findings(rows),
            facts=watch.facts(seeds=numbers, quick=quick, command=command),
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """A bar chart per table."""
        return tuple(_bars([row for row in result.rows if row.table == table]) for table in result.tables())


Job = tuple[str, int, Any]


def _images(directory: str | Path | None, *, quick: bool) -> Images:
    raw = load(DATA, directory=directory)
    rows = slice(QUICK_ROWS) if quick else slice(None)
    start = time.process_time()
    learned = PatchFeatures(preset="small", flips=True).fit(raw.X_train[rows])
    X, X_test = learned.transform(raw.X_train[rows]), learned.transform(raw.X_test[rows])
    return Images(X, raw.y_train[rows], X_test, raw.y_test[rows], time.process_time() - start)


def _accuracy(model: Any, images: Images) -> float:
    return 100.0 * float(np.mean(model.predict(images.X_test) == images.y_test))


def _ablations(images: Images, seeds: Sequence[int]) -> Iterator[Job]:
    for seed in seeds:
        for setting in SETTINGS:
            yield f"{setting.table} {setting.name}", seed, partial(_ablated, setting, images, seed)


def _ablated(setting: Setting, images: Images, seed: int) -> Measured:
    model = LabelPrivateClassifier(
        network(seed, mixup=setting.mixup),
        epsilon=EPSILON,
        stages=setting.stages,
        temperature=setting.temperature,
        correction="none",
        filter_earlier=True,
        classes=CLASSES,
        random_state=seed,
    ).fit(images.X, images.y)
    return {"accuracy": _accuracy(model, images), "k": model.stages_[-1].average_k}


def _choices(images: Images, seeds: Sequence[int]) -> Iterator[Job]:
    for seed in seeds:
        for epsilon in CHOICE_EPSILONS:
            yield f"choice {epsilon:g}", seed, partial(_chosen, epsilon, images, seed)


def _chosen(epsilon: float, images: Images, seed: int) -> Measured:
    """Score each mixup on folds of one release, and on the test set after training on all of it."""
    release = privatize(images.y, RandomizedResponse(epsilon, n_classes=len(CLASSES)), rng=seed)
    fold = np.random.default_rng(seed).integers(FOLDS, size=len(images.y))
    estimates, tests = {}, {}
    for mixup in MIXUPS:
        held_out = [_fold_estimate(images, release, fold == number, mixup, seed) for number in range(FOLDS)]
        estimates[f"{mixup:g}"] = 100.0 * fmean(held_out)
        whole = LabelPrivateClassifier(network(seed, mixup=mixup)).fit_release(images.X, release)
        tests[f"{mixup:g}"] = _accuracy(whole, images)
    return {"estimates": estimates, "tests": tests, "chosen": max(estimates, key=lambda name: estimates[name])}


def _fold_estimate(images: Images, release: Any, held: Any, mixup: float, seed: int) -> float:
    """Return the estimated accuracy on one fold of a model trained on the others."""
    others = np.flatnonzero(~held)
    model = LabelPrivateClassifier(network(seed, mixup=mixup)).fit_release(images.X[others], release.take(others))
    return noisy_accuracy(model, images.X, release, rows=np.flatnonzero(held)).accuracy


def _ablation_rows(found: dict[str, list[Measured]]) -> Iterator[StudyRow]:
    for setting in SETTINGS:
        runs = found[f"{setting.table} {setting.name}"]
        yield StudyRow(
            table=setting.table,
            setting=f"{setting.table} {setting.name}",
            epsilon=EPSILON,
            trust="no one",
            values=tuple(run["accuracy"] for run in runs),
            note=f"{fmean(run['k'] for run in runs):.2f} candidates in stage 2",
        )


def _choice_rows(found: dict[str, list[Measured]]) -> Iterator[StudyRow]:
    for epsilon in CHOICE_EPSILONS:
        runs = found[f"choice {epsilon:g}"]
        row = partial(StudyRow, table=f"choosing mixup at epsilon {epsilon:g}", epsilon=epsilon, trust="no one")
        picked = [run["tests"][run["chosen"]] for run in runs]
        best = [max(run["tests"].values()) for run in runs]
        names = ", ".join(run["chosen"] for run in runs)
        yield row(setting="chosen by released labels", values=tuple(picked), note=f"mixup {names}")
        yield row(setting="best by test", values=tuple(best))
        for mixup in MIXUPS:
            name = f"{mixup:g}"
            estimate = fmean(run["estimates"][name] for run in runs)
            values = tuple(run["tests"][name] for run in runs)
            yield row(setting=f"mixup {name}", values=values, note=f"estimated {estimate:.1f}")


def findings(rows: Sequence[StudyRow]) -> tuple[str, ...]:
    """Say what moved the accuracy most, and how far the choice was from the best."""
    sentences = []
    for table in dict.fromkeys(row.table for row in rows if not row.table.startswith("choosing")):
        mine = [row for row in rows if row.table == table]
        best, worst = max(mine, key=lambda row: row.mean), min(mine, key=lambda row: row.mean)
        sentences.append(
            f"{table}: best {best.setting} {best.mean:.2f} (sd {best.spread:.2f}), worst {worst.setting} {worst.mean:.2f} "
            f"(sd {worst.spread:.2f})."
        )
    for table in dict.fromkeys(row.table for row in rows if row.table.startswith("choosing")):
        named = {row.setting: row for row in rows if row.table == table}
        most, choice = named["best by test"], named["chosen by released labels"]
        lost = most.mean - choice.mean
        worst_lost = max(b - c for b, c in zip(most.values, choice.values, strict=True))
        sentences.append(
            f"{table}: the choice by released labels loses {lost:.2f} points on average, {worst_lost:.2f} at worst."
        )
    fixed = (
        "The estimate is unbiased (tests/learn), free post-processing of one release, and its models train on half of "
        "the labels, so that it lies below the accuracy of the final model."
    )
    return (*sentences, fixed)


def _bars(rows: Sequence[StudyRow]) -> Plot:
    return Bars(
        title=rows[0].table,
        labels=tuple(row.setting for row in rows),
        values=tuple(row.mean for row in rows),
        spreads=tuple(row.spread for row in rows),
        x_title="test accuracy, % (bar: mean over seeds; line: one standard deviation each way)",
        alt="; ".join(f"{row.setting} {row.mean:.1f}%" for row in rows),
    )
