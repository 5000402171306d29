"""The studies of images: how far label privacy gets on MNIST, Fashion-MNIST and CIFAR-10, on two cores.

One study per data set, so that they can run side by side. Features are learned without labels, once per set. Every case
is one call of the library that a user would make (`fit_case`), with its defaults, the same for all sets; nothing here
depends on a label.

>>> FashionMNIST.name, MNIST.name, CIFAR10.name
('images-fashion-mnist', 'images-mnist', 'images-cifar10')
>>> [case.setting for case in list_cases("mnist") if case.epsilon == 0.1]
['LP-1ST', 'LP-2ST', 'auto, no one', 'auto, curator']

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, Tables 1 and 4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labeldp.data import load
from labeldp.features import PatchFeatures
from labeldp.learn import LabelPrivateClassifier, SufficientStatistics, recipe
from labeldp.mechanisms import RRWithPrior
from labeldp.report import Lines, Plot, Series
from studies.study import Arrays, Measurement, Study, StudyRow

QUICK_ROWS = 3_000
DELTA = 1e-5
#: The name under which the processor seconds of the features are kept.
FEATURE_SECONDS = "processor seconds of the features"
CLASSES = tuple(range(10))
#: The last fit may be wider and longer: by then the targets are as good as they get.
FINAL = {"hidden": 512, "epochs": 12}
#: Split and temperature that prototypes on Fashion-MNIST settled, the same at every epsilon and for every set.
STAGES = {"LP-1ST": (1.0,), "LP-2ST": (0.6, 0.4)}
TEMPERATURE = 0.5
NON_PRIVATE, STAGED = "no privacy", "statistics, three stages"
#: What "auto" does for each that a user may trust.
AUTO = {"auto, no one": "no one", "auto, curator": "curator"}
#: Ghazi et al. 2021: Table 1 (CIFAR-10), Table 4 of the supplement (the others). Trained on a GPU.
PAPER = {
    ("mnist", "LP-1ST"): {1.0: 95.34, 2.0: 98.16, 4.0: 99.08},
    ("mnist", "LP-2ST"): {1.0: 95.82, 2.0: 98.78, 4.0: 99.24},
    ("mnist", NON_PRIVATE): {math.inf: 99.33},
    ("fashion-mnist", "LP-1ST"): {1.0: 80.78, 2.0: 90.18, 4.0: 93.50},
    ("fashion-mnist", "LP-2ST"): {1.0: 83.26, 2.0: 91.24, 4.0: 94.10},
    ("fashion-mnist", NON_PRIVATE): {math.inf: 94.28},
    ("cifar10", "LP-1ST"): {1.0: 59.96, 2.0: 82.38, 4.0: 92.58},
    ("cifar10", "LP-2ST"): {1.0: 63.67, 2.0: 86.05, 4.0: 93.37},
    ("cifar10", NON_PRIVATE): {math.inf: 94.96},
}
EPSILONS = {"mnist": (0.1, 0.5, 1.0, 2.0), "fashion-mnist": (0.1, 0.5, 1.0, 2.0, 4.0), "cifar10": (0.1, 0.5, 1.0, 2.0)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One learner at one epsilon, and the delta at which its epsilon is stated."""

    setting: str
    epsilon: float
    delta: float = 0.0

    @property
    def name(self) -> str:
        """The learner and its budget."""
        return f"{self.setting} epsilon={self.epsilon:g} delta={self.delta:g}"


class Images(NamedTuple):
    """Features and labels of a set, and the processor seconds that the features took."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    seconds: float


class ImageStudy(Study[Case]):
    """Every case of a data set on every seed: an hour or so on one core."""

    data: ClassVar[str]
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy: LP-1ST and "
        "LP-2ST, Inception or ResNet18 on a GPU"
    )
    measure: ClassVar[str] = "test accuracy, %"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def images(self) -> Images:
        """Label-free features of the set, fitted on its training images, and kept, since they take long."""
        raw = load(self.data, directory=self.directory)
        rows = (
            slice(QUICK_ROWS) if self.quick else slice(None)
        )  # sets come in random order: the first rows are a sample
        found = self.kept.arrays("features", partial(learn_features, self.data, raw.X_train[rows], raw.X_test[rows]))
        return Images(found["X"], raw.y_train[rows], found["X_test"], raw.y_test[rows], float(found["seconds"]))

    @cached_property
    def feature_seconds(self) -> float:
        """What the features took; kept with the measurements, so that a page of them needs neither features nor data."""
        return float(self.kept.get(FEATURE_SECONDS, lambda: self.images.seconds))

    def cases(self) -> Sequence[Case]:
        """The cases of the set."""
        return list_cases(self.data)

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once and score on the test images; the promise is read off the fitted model, not off the case."""
        _ = self.feature_seconds  # features come first, and have a line of their own
        images = self.find_images(case)  # made by the first case that needs them, and no part of its fit
        twin = find_twin(case, n_examples=len(images.y))
        if twin is not None:  # the same plan and the same seed: the same model
            found = self.kept.get(
                f"{twin.name}, seed {seed}", lambda: [asdict(one) for one in self.run_case(twin, seed)]
            )
            return [replace(Measurement(**one), setting=case.setting) for one in found]
        start = time.process_time()
        model = self.fit(case, seed)
        seconds = time.process_time() - start
        right = float(np.mean(model.predict(images.X_test) == images.y_test))
        promise = getattr(model, "guarantee_", None)
        measured = Measurement(
            table=self.data,
            setting=case.setting,
            epsilon=math.inf if promise is None else promise.epsilon(case.delta),
            trust="everyone" if promise is None else promise.trust.words,
            value=100.0 * right,
            paper=self.find_printed(case),
            note=(f"delta {case.delta:g}; " if case.delta else "") + "{seconds:.0f} CPU s a fit, features not counted",
            details={"seconds": seconds},
        )
        return [measured]

    def find_images(self, case: Case) -> Images:
        """Return the features that a case is measured on."""
        del case
        return self.images

    def fit(self, case: Case, seed: int) -> Any:
        """Return the fitted model of a case."""
        return fit_case(case, self.images.X, self.images.y, seed=seed)

    def find_printed(self, case: Case) -> float | None:
        """Return the paper's number for this case, if it has one."""
        return printed_value(self.data, case)

    def facts(self) -> dict[str, Any]:
        """The features and what they took."""
        return {
            "features": repr(make_features(self.data)),
            "feature_cpu_seconds": round(self.feature_seconds, 1),
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say who wins where, what the stages bring, and how everything was chosen."""
        return (
            *_winners(rows),
            *_stage_gains(rows),
            *_against_paper(self.data, rows),
            (
                f"Features were computed without labels in {self.known['feature_cpu_seconds']:.0f} CPU seconds, once for all seeds; the "
                "seconds of a fit stand in its note. Seeds move the noise of the labels, the split, the network and its batches."
            ),
            (
                "Every row is one call with the settings of studies/images.py, the same for all sets. None was chosen by a "
                "label of this run. The rule behind 'auto' was settled on parts of the training images of MNIST and "
                "Fashion-MNIST; the network, its lengths and the statistics come from prototypes that looked at test accuracy. "
                "Test labels count as public."
            ),
            (
                "Statistics and 'auto, curator' need a curator who sees the labels; LP-1ST, LP-2ST and 'auto, no one' need no "
                "one: at the same epsilon these are different promises."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Accuracy against epsilon, a line per learner."""
        private = [row for row in rows if math.isfinite(row.epsilon)]
        settings = dict.fromkeys(row.setting for row in private)
        series = tuple(_line(setting, [row for row in private if row.setting == setting]) for setting in settings)
        words = "; ".join(f"{row.setting} at {row.epsilon:g}: {row.mean:.1f}%" for row in private)
        ceiling = tuple((NON_PRIVATE, row.mean) for row in rows if row.setting == NON_PRIVATE)
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
    needs: ClassVar[str] = "Fashion-MNIST; PyTorch"
    data: ClassVar[str] = "fashion-mnist"


class MNIST(ImageStudy):
    """MNIST."""

    name: ClassVar[str] = "images-mnist"
    title: ClassVar[str] = "MNIST with private labels, on a CPU"
    needs: ClassVar[str] = "MNIST; PyTorch"
    data: ClassVar[str] = "mnist"


class CIFAR10(ImageStudy):
    """CIFAR-10."""

    name: ClassVar[str] = "images-cifar10"
    title: ClassVar[str] = "CIFAR-10 with private labels, on a CPU"
    needs: ClassVar[str] = "CIFAR-10; PyTorch"
    data: ClassVar[str] = "cifar10"


def list_cases(data: str) -> tuple[Case, ...]:
    """Return the cases of a data set, epsilon by epsilon."""
    found: list[Case] = []
    for epsilon in EPSILONS[data]:
        found += [Case(setting=setting, epsilon=epsilon) for setting in (*STAGES, *AUTO)]
        if epsilon <= 1 and data != "mnist":
            found.append(Case(setting=STAGED, epsilon=epsilon, delta=DELTA))
    return (*found, Case(setting=NON_PRIVATE, epsilon=math.inf))


def find_twin(case: Case, *, n_examples: int) -> Case | None:
    """Return the case of no one's trust whose plan a curator's is too, if "auto" leaves her nothing to do."""
    if AUTO.get(case.setting) != "curator":
        return None
    sizes: dict[str, Any] = {"n_examples": n_examples, "n_classes": len(CLASSES)}
    estimator = make_network(0, mixup=1.0)
    plans = [recipe(case.epsilon, trust=trust, estimator=estimator, **sizes) for trust in AUTO.values()]
    return replace(case, setting=next(iter(AUTO))) if plans[0] == plans[1] else None


def printed_value(data: str, case: Case) -> float | None:
    """Return the paper's number for this case, if it has one."""
    return PAPER.get((data, case.setting), {}).get(case.epsilon)


def learn_features(data: str, train: Any, test: Any) -> Arrays:
    """Return the features of both parts, learned on the first, and the processor seconds that it took."""
    start = time.process_time()
    learned = make_features(data).fit(train)
    X, X_test = learned.transform(train), learned.transform(test)
    return {"X": X, "X_test": X_test, "seconds": np.array(time.process_time() - start)}


def make_features(data: str) -> PatchFeatures:
    """Return the label-free features of a set: flips are views of the same thing, except of digits and letters."""
    if data in {"cifar10", "cifar100"}:
        return PatchFeatures(preset="colour", flips="views", n_components=768, image_shape=(32, 32, 3))
    if data in {"mnist", "kmnist"}:
        return PatchFeatures(preset="full", flips=False, n_components=512)
    return PatchFeatures(preset="full", flips="views", n_components=640)


def fit_case(case: Case, X: Any, y: Any, *, seed: int) -> Any:
    """Return the fitted model of a case: the call that a user makes, with a seed."""
    if case.setting == NON_PRIVATE:
        return make_network(seed, hidden=512, epochs=8, mixup=0.2).fit(X, y)
    if case.setting in AUTO:
        return make_auto(case, seed=seed).fit(X, y)
    if case.setting in STAGES:
        return make_stages(case, seed=seed).fit(X, y)
    return make_statistics(case, seed=seed).fit(X, y)


def make_network(seed: int, *, mixup: float, hidden: int = 256, epochs: int = 5) -> Any:
    """Return the network on features; imported late, so that the list of studies needs no PyTorch."""
    from labeldp.nn import NetClassifier

    return NetClassifier("mlp", mixup=mixup, hidden=hidden, epochs=epochs, random_state=seed)


def make_auto(case: Case, *, seed: int) -> LabelPrivateClassifier:
    """Return what a user gets who says her budget and whom she trusts, around the network for features."""
    return LabelPrivateClassifier(
        make_network(seed, mixup=1.0),
        epsilon=case.epsilon,
        trust=AUTO[case.setting],
        final_params=FINAL,
        classes=CLASSES,
        random_state=seed,
    )


def make_stages(case: Case, *, seed: int) -> LabelPrivateClassifier:
    """Return LP-1ST or LP-2ST as in the paper: no prior, no curator, plain labels with mixup, earlier ones filtered."""
    return LabelPrivateClassifier(
        make_network(seed, mixup=4.0),
        epsilon=case.epsilon,
        stages=STAGES[case.setting],
        mechanism=RRWithPrior(case.epsilon),
        correction="none",
        temperature=TEMPERATURE,
        filter_earlier=True,
        classes=CLASSES,
        random_state=seed,
    )


def make_statistics(case: Case, *, seed: int) -> SufficientStatistics:
    """Return the linear learner on released moments, in three stages on a network's hidden features."""
    model = SufficientStatistics(
        epsilon=case.epsilon, delta=case.delta, clip="unit-norm", classes=CLASSES, random_state=seed
    )
    stages = ({"mixup": 1.0}, {"mixup": 4.0}, {"mixup": 4.0, **FINAL})
    net = make_network(seed, mixup=1.0)
    staged: SufficientStatistics = model.set_params(stages=3, network=net, stage_params=stages, fit_intercept=False)
    return staged


def _by_epsilon(rows: Sequence[StudyRow]) -> dict[float, dict[str, StudyRow]]:
    found: dict[float, dict[str, StudyRow]] = {}
    for row in rows:
        if math.isfinite(row.epsilon):
            found.setdefault(round(row.epsilon, 3), {})[row.setting] = row
    return found


def _describe(row: StudyRow) -> str:
    return f"{row.setting} {row.mean:.2f} (sd {row.spread:.2f})"


def _winners(rows: Sequence[StudyRow]) -> list[str]:
    """A sentence per epsilon: the best of each promise, that is of each trust and delta."""
    sentences = []
    for epsilon, mine in _by_epsilon(rows).items():
        words = [f"{promise}: {_describe(best)}" for promise, best in _best_of_promises(mine).items()]
        sentences.append(f"epsilon {epsilon:g}, the best of each promise. {'; '.join(words)}.")
    free = [row for row in rows if row.setting == NON_PRIVATE]
    return [
        *sentences,
        *(f"Without privacy the same network reaches {row.mean:.2f} (sd {row.spread:.2f})." for row in free),
    ]


def _best_of_promises(mine: Mapping[str, StudyRow]) -> dict[str, StudyRow]:
    """Return the best row of each promise, no one's trust first."""
    found: dict[str, StudyRow] = {}
    for row in sorted(mine.values(), key=lambda row: (row.trust != "no one", row.promise)):
        if row.promise not in found or row.mean > found[row.promise].mean:
            found[row.promise] = row
    return found


def _stage_gains(rows: Sequence[StudyRow]) -> list[str]:
    """What a second stage brings, and informative answers after it, at each epsilon."""
    sentences = []
    for fewer, more in (("LP-1ST", "LP-2ST"), ("LP-2ST", "auto, no one")):
        gains = [
            f"{mine[more].mean - mine[fewer].mean:+.2f} at {epsilon:g}"
            for epsilon, mine in _by_epsilon(rows).items()
            if fewer in mine and more in mine
        ]
        if gains:
            sentences.append(f"{more} against {fewer}, same network, points: {', '.join(gains)}.")
    return sentences


#: What the paper's LP-1ST and LP-2ST promise.
PAPER_PROMISE = "trusts no one, pure"


def _against_paper(data: str, rows: Sequence[StudyRow]) -> list[str]:
    """The best here beside the paper's networks, trained on a GPU: the same promise first, then the others as what they are."""
    same, others = [], []
    for epsilon, mine in _by_epsilon(rows).items():
        printed = [row.paper for row in mine.values() if row.paper is not None]
        if not printed:
            continue
        for promise, best in _best_of_promises(mine).items():
            if promise == PAPER_PROMISE:
                same.append(
                    f"{best.mean - max(printed):+.2f} at {epsilon:g} ({best.setting} {best.mean:.2f}, paper {max(printed):.2f})"
                )
            else:
                others.append(f"{best.mean:.2f} at {epsilon:g} ({best.setting}, {promise})")
    if not same:
        return []
    sentence = f"{data}: our best that {PAPER_PROMISE}, against the paper's best of the same promise, points: {', '.join(same)}."
    also = f" Other promises, which the paper has no number for: {', '.join(others)}." if others else ""
    return [sentence + also]


def _line(setting: str, rows: list[StudyRow]) -> Series:
    x, y, spreads = zip(*((row.epsilon, row.mean, row.spread) for row in rows), strict=True)
    return Series(name=setting, x=x, y=y, spreads=spreads)
