"""The studies of images: how far label privacy gets on MNIST, Fashion-MNIST and CIFAR-10, on two cores.

One study per data set, so that they can run side by side. Features are learned without labels, once per set; every row
is one call of the library with its defaults (`images_cases`), on at least three seeds.

>>> FashionMNIST.name, MNIST.name, CIFAR10.name
('images-fashion-mnist', 'images-mnist', 'images-cifar10')

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, Tables 1 and 4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labeldp.data import load
from labeldp.report import Lines, Plot, Series
from studies.facts import Stopwatch
from studies.images_cases import NON_PRIVATE, Case, cases, features, fitted, inputs, paper
from studies.images_words import findings
from studies.kept import Arrays, Kept, Measured
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

QUICK_ROWS = 3_000


class Images(NamedTuple):
    """Features and labels of a set, and the processor seconds that the features took."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    seconds: float


class ImageStudy(Study):
    """Every case of a data set on every seed."""

    data: ClassVar[str]
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy: LP-1ST and "
        "LP-2ST, Inception or ResNet18 on a GPU"
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
        """Learn features, then fit every case with every seed: an hour or so on one core; a killed run goes on."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        tell(0.0, f"{self.data}: label-free features")
        images = _images(self.data, self.kept, directory=directory, quick=quick)
        rows = _rows(self.data, images, numbers, self.kept, tell)
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        facts = watch.facts(seeds=numbers, quick=quick, command=command)
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=findings(self.data, rows, feature_seconds=images.seconds),
            facts={**facts, "features": repr(features(self.data)), "feature_cpu_seconds": round(images.seconds, 1)},
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """Accuracy against epsilon, a line per learner."""
        private = [row for row in result.rows if math.isfinite(row.epsilon)]
        settings = dict.fromkeys(row.setting for row in private)
        series = tuple(_line(setting, [row for row in private if row.setting == setting]) for setting in settings)
        words = "; ".join(f"{row.setting} at {row.epsilon:g}: {row.mean:.1f}%" for row in private)
        ceiling = tuple((NON_PRIVATE, row.mean) for row in result.rows if row.setting == NON_PRIVATE)
        return (
            Lines(
                title=f"{self.data}: accuracy against epsilon",
                series=series,
                x_title="epsilon",
                y_title=self.measure,
                alt=words,
                x_log=True,
                references=ceiling,
            ),
        )


class FashionMNIST(ImageStudy):
    """Fashion-MNIST."""

    name: ClassVar[str] = "images-fashion-mnist"
    title: ClassVar[str] = "Fashion-MNIST with private labels, on a CPU"
    data: ClassVar[str] = "fashion-mnist"


class MNIST(ImageStudy):
    """MNIST."""

    name: ClassVar[str] = "images-mnist"
    title: ClassVar[str] = "MNIST with private labels, on a CPU"
    data: ClassVar[str] = "mnist"


class CIFAR10(ImageStudy):
    """CIFAR-10."""

    name: ClassVar[str] = "images-cifar10"
    title: ClassVar[str] = "CIFAR-10 with private labels, on a CPU"
    data: ClassVar[str] = "cifar10"


def _images(data: str, kept: Kept, *, directory: str | Path | None, quick: bool) -> Images:
    """Return label-free features of a set, fitted on its training images."""
    raw = load(data, directory=directory)
    rows = slice(QUICK_ROWS) if quick else slice(None)  # the sets come in random order: the first rows are a sample
    found = kept.arrays("features", partial(_features, data, raw.X_train[rows], raw.X_test[rows]))
    return Images(found["X"], raw.y_train[rows], found["X_test"], raw.y_test[rows], float(found["seconds"]))


def _features(data: str, train: Any, test: Any) -> Arrays:
    start = time.process_time()
    learned = features(data).fit(train)
    X, X_test = learned.transform(train), learned.transform(test)
    return {"X": X, "X_test": X_test, "seconds": np.array(time.process_time() - start)}


def _rows(data: str, images: Images, seeds: Sequence[int], kept: Kept, tell: Progress) -> list[StudyRow]:
    """Return a row per case, seed by seed, so that a run that is stopped early has whole seeds."""
    todo = [(seed, case) for seed in seeds for case in cases(data)]
    found: dict[Case, list[Measured]] = {case: [] for case in cases(data)}
    for done, (seed, case) in enumerate(todo):
        tell(done / len(todo), f"{data}: {case.name(seed)}")
        found[case].append(kept.get(case.name(seed), partial(_measured, case, images, seed)))
    tell(1.0, "done")
    return [_row(data, case, runs) for case, runs in found.items()]


def _measured(case: Case, images: Images, seed: int) -> Measured:
    """Fit one case with one seed; the promise is read off the fitted model, not off the case."""
    start = time.process_time()
    model = fitted(case, images.X, images.y, seed=seed)
    seconds = time.process_time() - start
    right = float(np.mean(model.predict(inputs(case, images.X_test)) == images.y_test))
    promise = getattr(model, "guarantee_", None)
    return {
        "accuracy": 100.0 * right,
        "cpu_seconds": seconds,
        "epsilon": math.inf if promise is None else promise.epsilon(case.delta),
        "trust": "everyone" if promise is None else promise.trust.words,
    }


def _row(data: str, case: Case, runs: list[Measured]) -> StudyRow:
    seconds = fmean(run["cpu_seconds"] for run in runs)
    delta = f"delta {case.delta:g}; " if case.delta else ""
    return StudyRow(
        table=data,
        setting=case.setting,
        epsilon=max(run["epsilon"] for run in runs),
        trust=runs[0]["trust"],
        values=tuple(run["accuracy"] for run in runs),
        paper=paper(data, case),
        note=f"{delta}{seconds:.0f} CPU s a fit, features not counted",
    )


def _line(setting: str, rows: list[StudyRow]) -> Series:
    x, y, spreads = zip(*((row.epsilon, row.mean, row.spread) for row in rows), strict=True)
    return Series(name=setting, x=x, y=y, spreads=spreads)
