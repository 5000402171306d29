"""The study `stage-settings`: what the split, the temperature and mixup do to two-stage training, and choosing without labels.

The first three tables repeat the ablations of the paper's Figures 4 and 5 on Fashion-MNIST with our network: one setting is
moved, the others stay at their defaults. The last asks whether mixup can be chosen from released labels alone: two
folds of one release, the unbiased `noisy_accuracy` of each candidate on the fold it was not trained on, and the test
accuracy of the choice beside that of the best by test.

>>> StageSettings.name, len(SETTINGS)
('stage-settings', 9)

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, supplement, Figures 4 and 5.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from labeldp.data import load
from labeldp.features import PatchFeatures
from labeldp.learn import LabelPrivateClassifier, noisy_accuracy
from labeldp.mechanisms import RandomizedResponse
from labeldp.release import privatize
from labeldp.report import Plot
from studies.first_model import draw_bars
from studies.images import CLASSES, STAGES, TEMPERATURE, Images, make_network
from studies.study import Measurement, Study, StudyRow, list_tables

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
    value: str
    stages: Any = STAGES["LP-2ST"]
    temperature: float = TEMPERATURE
    mixup: float = 4.0

    @property
    def name(self) -> str:
        """The setting and its value."""
        return f"{self.table} {self.value}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choice of mixup by released labels at an epsilon."""

    epsilon: float

    @property
    def name(self) -> str:
        """The table of its rows."""
        return f"choosing mixup at epsilon {self.epsilon:g}"


SETTINGS = (
    *(Setting(table="share of stage 1", value=f"{share:g}", stages=(share, 1 - share)) for share in (0.4, 0.6, 0.8)),
    *(Setting(table="temperature", value=f"{value:g}", temperature=value) for value in (0.25, 0.5, 1.0)),
    *(Setting(table="mixup", value=f"{value:g}", mixup=value) for value in MIXUPS),
)


class StageSettings(Study[Setting | Choice]):
    """Ablations of two-stage training, and a choice by released labels."""

    name: ClassVar[str] = "stage-settings"
    title: ClassVar[str] = "Two-stage training: split, temperature, mixup, and choosing without labels"
    paper: ClassVar[str] = (
        "Ghazi et al. (2021), Deep Learning with Label Differential Privacy, supplement, Figures 4 and 5"
    )
    measure: ClassVar[str] = "test accuracy, %"
    needs: ClassVar[str] = "Fashion-MNIST; PyTorch"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def images(self) -> Images:
        """Small label-free features of the set."""
        raw = load(DATA, directory=self.directory)
        rows = slice(QUICK_ROWS) if self.quick else slice(None)
        start = time.process_time()
        learned = PatchFeatures(preset="small", flips=True).fit(raw.X_train[rows])
        X, X_test = learned.transform(raw.X_train[rows]), learned.transform(raw.X_test[rows])
        return Images(X, raw.y_train[rows], X_test, raw.y_test[rows], time.process_time() - start)

    def cases(self) -> Sequence[Setting | Choice]:
        """Every value of every setting, then the choices."""
        _ = self.images  # missing data is found before any fit
        return [*SETTINGS, *(Choice(epsilon=epsilon) for epsilon in CHOICE_EPSILONS)]

    def run_case(self, case: Setting | Choice, seed: int) -> Sequence[Measurement]:
        """Train with one setting, or score every candidate of a choice."""
        if isinstance(case, Setting):
            return [self.run_setting(case, seed)]
        return self.run_choice(case, seed)

    def run_setting(self, setting: Setting, seed: int) -> Measurement:
        """Return the test accuracy of LP-2ST with this setting."""
        model = LabelPrivateClassifier(
            make_network(seed, mixup=setting.mixup),
            epsilon=EPSILON,
            stages=setting.stages,
            temperature=setting.temperature,
            correction="none",
            filter_earlier=True,
            classes=CLASSES,
            random_state=seed,
        ).fit(self.images.X, self.images.y)
        return Measurement(
            table=setting.table,
            setting=setting.name,
            epsilon=EPSILON,
            trust="no one",
            value=_accuracy(model, self.images),
            note="{k:.2f} candidates in stage 2",
            details={"k": model.stages_[-1].average_k},
        )

    def run_choice(self, case: Choice, seed: int) -> Sequence[Measurement]:
        """Score each mixup on folds of one release, and on the test set after training on all of it."""
        images = self.images
        release = privatize(images.y, RandomizedResponse(case.epsilon, n_classes=len(CLASSES)), rng=seed)
        fold = np.random.default_rng(seed).integers(FOLDS, size=len(images.y))
        estimates, tests = {}, {}
        for mixup in MIXUPS:
            held_out = [_estimate_fold(images, release, fold == number, mixup, seed) for number in range(FOLDS)]
            estimates[f"{mixup:g}"] = 100.0 * fmean(held_out)
            whole = make_learner(seed, mixup=mixup).fit_release(images.X, release)
            tests[f"{mixup:g}"] = _accuracy(whole, images)
        chosen = max(estimates, key=lambda name: estimates[name])
        row = partial(Measurement, table=case.name, epsilon=case.epsilon, trust="no one")
        return [
            row(setting=BY_LABELS, value=tests[chosen], note="mixup {chosen}", details={"chosen": chosen}),
            row(setting=BY_TEST, value=max(tests.values())),
            *(
                row(
                    setting=f"mixup {name}",
                    value=tests[name],
                    note="estimated {estimate:.1f}",
                    details={"estimate": estimates[name]},
                )
                for name in tests
            ),
        ]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what moved the accuracy most, and how far the choice was from the best."""
        sentences = []
        for table in list_tables(rows):
            mine = [row for row in rows if row.table == table]
            sentences.append(_choice_sentence(mine) if table.startswith("choosing") else _range_sentence(mine))
        fixed = (
            "The estimate is unbiased (tests/learn), free post-processing of one release, and its models train on half of "
            "the labels, so that it lies below the accuracy of the final model."
        )
        return (*sentences, fixed)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """A bar chart per table."""
        return tuple(draw_bars([row for row in rows if row.table == table], table) for table in list_tables(rows))


BY_LABELS, BY_TEST = "chosen by released labels", "best by test"


def _accuracy(model: Any, images: Images) -> float:
    return 100.0 * float(np.mean(model.predict(images.X_test) == images.y_test))


def _estimate_fold(images: Images, release: Any, held: Any, mixup: float, seed: int) -> float:
    """Return the estimated accuracy on one fold of a model trained on the others."""
    others = np.flatnonzero(~held)
    model = make_learner(seed, mixup=mixup).fit_release(images.X[others], release.take(others))
    return noisy_accuracy(model, images.X, release, rows=np.flatnonzero(held)).accuracy


def make_learner(seed: int, *, mixup: float) -> LabelPrivateClassifier:
    """Return the network on a release, by the forward loss alone: mixup is chosen by one fit."""
    return LabelPrivateClassifier(make_network(seed, mixup=mixup), correction="forward")


def _range_sentence(rows: Sequence[StudyRow]) -> str:
    best, worst = max(rows, key=lambda row: row.mean), min(rows, key=lambda row: row.mean)
    return (
        f"{rows[0].table}: best {best.setting} {best.mean:.2f} (sd {best.spread:.2f}), worst {worst.setting} "
        f"{worst.mean:.2f} (sd {worst.spread:.2f})."
    )


def _choice_sentence(rows: Sequence[StudyRow]) -> str:
    named = {row.setting: row for row in rows}
    most, choice = named[BY_TEST], named[BY_LABELS]
    lost = most.mean - choice.mean
    worst = max(b - c for b, c in zip(most.values, choice.values, strict=True))
    return f"{rows[0].table}: the choice by released labels loses {lost:.2f} points on average, {worst:.2f} at worst."
