"""The study `networks`: a network trained end to end on private labels, on one core, and what a minute of it is worth.

Every case is one call of the library that a user would make (`make_model`): the network by name, what a fit may take, and the
budget. Every label is answered once, by its owner, and no one is trusted, but where a case says that a curator counts labels; the
network is fitted once: by the forward loss, or on what a quick network on label-free features made of the answers
(`labeldp.learn.readers`), which at epsilon 2 and 3 only chooses what is asked.

>>> [case.minutes for case in list_cases("cifar10") if case.epsilon == 2.0]
[60, 5, 20, 180, 60, 180]
>>> list_cases("cifar10")[-3].name
'cifar10, plain, 60 minutes, epsilon 2'
>>> sum(case.minutes * len(choose(case)) for case in list_cases())  # of one core, in all
1195

A case runs alone (``python -m studies networks --only "cifar10, 60 minutes, epsilon 2"``) and may be killed: the network goes on from
its last pass, and the processor time of all parts is counted.

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, Tables 1 and 4.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.readers import ASKS, choose_way
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow, read_result

SEEDS = 3
CLASSES = tuple(range(10))
#: Photographs and clothes are what their mirror images are.
AUGMENT = "shift,flip"
#: Minutes of the main table, set by set and epsilon by epsilon: small budgets have short fits, so that large ones can have long ones.
MINUTES: dict[str, dict[float, int]] = {
    "cifar10": {0.5: 20, 1.0: 20, 2.0: 60, 3.0: 60, 4.0: 60, math.inf: 60},
    "fashion-mnist": {1.0: 10, 2.0: 10, 4.0: 10},
}
#: What choosing questions takes (features of 50,000 images and a first stage): the network is told so many minutes less, so that a case takes
#: what its name says.
ASKING_MINUTES = 8
#: Other times at one epsilon make the curve.
CURVE_EPSILON = 2.0
CURVE = {"cifar10": (5, 20, 180), "fashion-mnist": ()}
#: Where answers say little, the same network is measured after it has learned groups of alike images, without labels.
PRETRAINED = {"cifar10": (1.0,), "fashion-mnist": ()}
#: Smaller budgets, at which a curator is worth most, and their minutes.
COUNTED: dict[str, dict[float, int]] = {"cifar10": {}, "fashion-mnist": {0.1: 10, 0.5: 10}}
#: Where a quick network chooses what is asked, the same without: epsilon and minutes.
PLAIN: dict[str, dict[float, int]] = {"cifar10": {2.0: 60, 3.0: 60}, "fashion-mnist": {}}
SAME_QUESTIONS = ", same questions for all"
#: Where several networks share the time, one that has all of it: epsilon and minutes.
ALONE: dict[str, dict[float, int]] = {"cifar10": {2.0: 180}, "fashion-mnist": {}}
ONE_NETWORK = ", one network"
NO_ONE, CURATOR = "no one", "curator"
GROUPS = 300
#: Ghazi et al. 2021, LP-2ST: Table 1 (CIFAR-10, ResNet18) and Table 4 of the supplement (Inception); on a GPU.
PAPER = {
    "cifar10": {1.0: 63.67, 2.0: 86.05, 3.0: 92.19, 4.0: 93.37, math.inf: 94.96},
    "fashion-mnist": {1.0: 83.26, 2.0: 91.24, 4.0: 94.10},
}
#: A quick run: so many images, and this share of the time.
QUICK_ROWS, QUICK_SHARE = 800, 1e-4
#: Steps after which the processor time is written down.
STEPS = 25


@dataclass(frozen=True, kw_only=True)
class Case:
    """A set, the minutes of one core that the fit may take, and epsilon, infinity for labels as they are; and who is trusted."""

    data: str
    minutes: int
    epsilon: float
    pretrained: bool = False
    trust: str = NO_ONE
    #: Whether all are asked the same, where a quick network would choose.
    plain: bool = False
    #: Whether one network has all the time, where several would share it.
    alone: bool = False

    @property
    def name(self) -> str:
        """The set, the time and the budget; a name that another begins with could not be measured alone."""
        kind = (
            "pretrained, " * self.pretrained
            + "curator, " * (self.trust == CURATOR)
            + "plain, " * self.plain
            + "alone, " * self.alone
        )
        return f"{self.data}, {kind}{self.minutes} minutes, epsilon {self.epsilon:g}"


class Images(NamedTuple):
    """Images as bytes (n, height, width) or (n, height, width, 3), and labels."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


class Networks(Study[Case]):
    """CIFAR-10 and Fashion-MNIST, end to end."""

    name: ClassVar[str] = "networks"
    title: ClassVar[str] = "Networks trained end to end on private labels, on one core"
    needs: ClassVar[str] = "CIFAR-10; Fashion-MNIST; PyTorch"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy: LP-2ST, ResNet18 "
        "(CIFAR-10) or Inception on a GPU"
    )
    measure: ClassVar[str] = "test accuracy, %"
    default_seeds: ClassVar[int] = SEEDS
    quick_seeds: ClassVar[int] = 1

    def cases(self) -> Sequence[Case]:
        """The cases of both sets."""
        return list_cases()

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Return all seeds for Fashion-MNIST and for CIFAR-10 at epsilon 2, and one for every other run of an hour."""
        return seeds[: len(choose(case, seeds))]

    @cached_property
    def sets(self) -> dict[str, Images]:
        """The sets that have been read."""
        return {}

    def read(self, data: str) -> Images:
        """Return a set, read when it is first asked for: a part of the study needs one of them."""
        if data not in self.sets:
            raw = load(data, directory=self.directory)
            rows = slice(QUICK_ROWS) if self.quick else slice(None)  # sets come in random order
            shape = raw.image_shape or ()
            X, X_test = (as_bytes(part[rows], shape) for part in (raw.X_train, raw.X_test))
            self.sets[data] = Images(X, raw.y_train[rows], X_test, raw.y_test[rows])
        return self.sets[data]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once and score on the test images; the promise is read off the fitted model, not off the case."""
        from labeldp.nn.models import list_members  # late, so that the list of studies needs no PyTorch
        from labeldp.nn.state import find_width

        images = self.read(case.data)
        folder = None if self.kept.path is None else self.kept.path.parent / f"{self.kept.path.stem}-{case.name}-{seed}"
        clock = Clock(folder)
        minutes = count_fit_minutes(case) * (QUICK_SHARE if self.quick else 1)
        model = make_model(case, seed=seed, minutes=minutes, checkpoint=folder, progress=clock).fit(images.X, images.y)
        seconds = clock.read()
        self.kept.add_seconds(clock.earlier)
        right = float(np.mean(model.predict(images.X_test) == images.y_test))
        promise = getattr(model, "guarantee_", None)
        network = getattr(model, "estimator_", model)
        several = len(list_members(network.module_))
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        measured = Measurement(
            table=case.data if in_main_table(case) else f"{case.data}, other times",
            setting=f"fast-cnn, {case.minutes} minutes"
            + ", pretrained" * case.pretrained
            + ", counts first" * (case.trust == CURATOR)
            + SAME_QUESTIONS * case.plain
            + ONE_NETWORK * case.alone,
            epsilon=math.inf if promise is None else promise.epsilon(),
            trust="everyone" if promise is None else promise.trust.words,
            value=100.0 * right,
            paper=PAPER[case.data].get(case.epsilon),
            note=("{networks:.0f} networks, " if several > 1 else "")
            + "{passes:.0f} passes, width {width:.0f}, {seconds:.0f} CPU s",
            details={"seconds": seconds, "passes": network.training_.epochs, "width": find_width(network.module_)}
            | ({"networks": several} if several > 1 else {}),
        )
        return [measured]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what the network reaches, against the paper and against our best without it, and what time is worth."""
        return (
            *(sentence for data in MINUTES for sentence in describe_set(data, rows)),
            *describe_curve(rows),
            (
                "Every row is one call with the settings of the preset, the same at every epsilon: one draw of every label, one fit from "
                "pixels, images and their mirror images; from 90 minutes on, networks of about an hour each share the time and answer with their mean. On CIFAR-10 from epsilon 2 on, the network reads the answers by the forward loss; at 2 "
                "and 3, but for runs of 5 minutes, a network with one hidden layer on features of patches, which a quarter of the answers taught, "
                "chose what was asked about the others. Below 2, and on Fashion-MNIST, that one reads the answers, in stages, and the one "
                "from pixels learns its posteriors. For colour the limit was set with a look at the test accuracy of both ways at 1 and 2; that "
                "grey images are read first, and shown whole from the start, was chosen on 10,000 training images of Fashion-MNIST held out. The "
                "minutes of the first network are on top where it reads, and in the seconds. The network, its rates and its sizes come from prototypes on CIFAR-10 "
                "that looked at test accuracy; what was chosen since was chosen on training images held out. Minutes are "
                "of a core of 64 GFLOP/s, and decide the passes; the seconds that they took here stand in the notes."
            ),
            (
                "Where no one is trusted, a label is randomized before it leaves its owner; where a curator is, she adds noise to counts of "
                "labels in clusters of images. Test labels count as public."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Accuracy against epsilon, and against processor time."""
        lines = [
            draw_line(f"{data}, {setting}", [row for row in list_private(data, rows) if row.setting == setting])
            for data in MINUTES
            for setting in dict.fromkeys(row.setting for row in list_private(data, rows))
        ]
        papers = [
            Series(name=f"{data}, the paper's LP-2ST", x=tuple(known), y=tuple(known.values()))
            for data in MINUTES
            if (known := {at: value for at, value in PAPER[data].items() if math.isfinite(at)})
            and list_private(data, rows)
        ]
        words = "; ".join(
            f"{row.table}, {row.setting}, at {row.epsilon:g}: {row.mean:.1f}%"
            for data in MINUTES
            for row in list_private(data, rows)
        )
        free = tuple((f"{row.table}, no privacy", row.mean) for row in rows if math.isinf(row.epsilon))
        first = Lines(
            title="Accuracy against epsilon; no one is trusted but where a curator counts first",
            series=(*lines, *papers),
            x_title="epsilon",
            y_title=self.measure,
            alt=words,
            x_log=True,
            references=free,
        )
        points = list_curve(rows)
        if len(points) < 2:
            return (first,)
        second = Lines(
            title=f"CIFAR-10 at epsilon {CURVE_EPSILON:g}: accuracy against time",
            series=(Series(name="fast-cnn", x=tuple(at for at, _ in points), y=tuple(row.mean for _, row in points)),),
            x_title="minutes of one core",
            y_title=self.measure,
            alt="; ".join(f"{at} minutes: {row.mean:.1f}%" for at, row in points),
            x_log=True,
            references=(("the paper's LP-2ST, ResNet18 on a GPU", PAPER["cifar10"][CURVE_EPSILON]),),
        )
        return (first, second)


# ------------------------------------------------------------------------------------------------------------ the cases


def list_cases(*sets: str) -> tuple[Case, ...]:
    """Return the cases of some sets, by default all: every epsilon, and then the curve."""
    found: list[Case] = []
    for data in sets or MINUTES:
        found += [Case(data=data, minutes=minutes, epsilon=epsilon) for epsilon, minutes in MINUTES[data].items()]
        found += [Case(data=data, minutes=minutes, epsilon=CURVE_EPSILON) for minutes in CURVE[data]]
        found += [
            Case(data=data, minutes=MINUTES[data][epsilon], epsilon=epsilon, pretrained=True)
            for epsilon in PRETRAINED[data]
        ]
        found += [
            Case(data=data, minutes=minutes, epsilon=epsilon, trust=CURATOR)
            for epsilon, minutes in COUNTED[data].items()
        ]
        found += [
            Case(data=data, minutes=minutes, epsilon=epsilon, plain=True) for epsilon, minutes in PLAIN[data].items()
        ]
        found += [
            Case(data=data, minutes=minutes, epsilon=epsilon, alone=True) for epsilon, minutes in ALONE[data].items()
        ]
    return tuple(found)


def choose(case: Case, seeds: Sequence[int] = tuple(range(SEEDS))) -> Sequence[int]:
    """Return the seeds that a case is measured with."""
    often = case.data != "cifar10" or case.epsilon == CURVE_EPSILON
    return seeds if often and in_main_table(case) else seeds[:1]


def in_main_table(case: Case) -> bool:
    """Whether a case has the time of the main table; the others are points of a curve."""
    return case.trust == CURATOR or case.minutes == MINUTES[case.data][case.epsilon]


def make_model(case: Case, *, seed: int, minutes: float, checkpoint: Path | None, progress: Any) -> Any:
    """Return the unfitted model of a case: the call that a user makes, with a seed."""
    from labeldp.nn import NetClassifier  # late, so that the list of studies needs no PyTorch

    network = NetClassifier(
        "fast-cnn",
        cpu_minutes=minutes,
        augment=AUGMENT,
        pretrain=GROUPS if case.pretrained else 0,
        members=1 if case.alone else None,
        checkpoint=checkpoint,
        progress=progress,
        random_state=seed,
    )
    if math.isinf(case.epsilon):
        return network
    return LabelPrivateClassifier(
        network,
        epsilon=case.epsilon,
        trust=case.trust,
        stages=1 if case.plain else "auto",
        classes=CLASSES,
        random_state=seed,
    )


def count_fit_minutes(case: Case) -> int:
    """Return the minutes that the network of a case is told: less than the case has where questions are chosen first.

    >>> [count_fit_minutes(case) for case in list_cases("cifar10") if case.epsilon == 2.0]
    [52, 5, 12, 172, 60, 172]
    """
    left = case.minutes - ASKING_MINUTES
    way = choose_way(case.epsilon, n_examples=50_000, n_classes=len(CLASSES), minutes=left, grey=case.data != "cifar10")
    return left if way == ASKS and not case.plain else case.minutes


def as_bytes(rows: Any, shape: tuple[int, ...]) -> Any:
    """Return images as they were before they became rows in [0, 1]: a fourth of the memory."""
    return np.round(255 * rows).astype(np.uint8).reshape(len(rows), *shape)


class Clock:
    """Processor seconds of a fit and of the parts of it that were killed, kept in a folder beside its checkpoint."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "seconds.json"
        self._start = time.process_time()
        #: What the parts took that were killed.
        self.earlier = 0.0
        if self._file is not None and self._file.exists():
            self.earlier = float(json.loads(self._file.read_text(encoding="utf-8"))["seconds"])

    def __call__(self, done: int, total: int, _loss: float) -> None:
        """Write down the time until this step, every few steps."""
        if done % STEPS == 0:
            self.keep(done, total)

    def keep(self, done: int, total: int) -> None:
        """Write down the time until now, and what is done of all: who waits can look."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            half = self._file.with_suffix(".half")
            half.write_text(json.dumps({"seconds": self.read(), "step": done, "of": total}), encoding="utf-8")
            half.replace(self._file)

    def read(self) -> float:
        """Return the seconds so far."""
        return self.earlier + time.process_time() - self._start


# --------------------------------------------------------------------------------------------------- words and drawings


def list_private(data: str, rows: Sequence[StudyRow]) -> list[StudyRow]:
    """Return the rows of a set's main table that have a budget."""
    return [row for row in rows if row.table == data and math.isfinite(row.epsilon)]


def list_curve(rows: Sequence[StudyRow]) -> list[tuple[int, StudyRow]]:
    """Return minutes and rows of CIFAR-10 at the epsilon of the curve, the shortest first."""
    mine = [row for row in rows if row.table.startswith("cifar10") and round(row.epsilon, 6) == CURVE_EPSILON]
    mine = [row for row in mine if not row.setting.endswith((SAME_QUESTIONS, ONE_NETWORK))]
    return sorted((int(row.setting.split()[1]), row) for row in mine)


def draw_line(name: str, rows: Sequence[StudyRow]) -> Series:
    """Return the line of a set."""
    x, y, spreads = zip(*((row.epsilon, row.mean, row.spread) for row in rows), strict=True)
    return Series(name=name, x=x, y=y, spreads=spreads)


def describe_set(data: str, rows: Sequence[StudyRow]) -> list[str]:
    """A sentence per epsilon: the network, the paper, and the best of our committed study on features of the same promise."""
    sentences = []
    others = read_features(data)
    for row in list_private(data, rows):
        words = [
            f"{data}, epsilon {row.epsilon:g}, {row.setting}"
            + f", trusts {row.trust}" * (row.trust != NO_ONE)
            + f": {row.mean:.2f}"
            + (f" (sd {row.spread:.2f})" if row.n_seeds > 1 else "")
        ]
        if row.difference is not None:
            words.append(f"{row.difference:+.2f} points against the paper's LP-2ST")
        here = [other for other in others if abs(other.epsilon - row.epsilon) < 1e-3]
        near = [other for other in here if other.promise == row.promise]
        if near:
            best = max(near, key=lambda other: other.mean)
            words.append(f"{best.mean:.2f} by {best.setting} on features without labels, of the same promise")
        counted = [other for other in here if other.trust == "a curator"]
        if counted and row.trust == NO_ONE:
            best = max(counted, key=lambda other: other.mean)
            words.append(f"{best.mean:.2f} by {best.setting} on them, if a curator may count labels")
        sentences.append("; ".join(words) + ".")
    free = [row for row in rows if row.table == data and math.isinf(row.epsilon)]
    return [*sentences, *(f"{data} without privacy: {row.mean:.2f}." for row in free)]


def describe_curve(rows: Sequence[StudyRow]) -> list[str]:
    """What longer training brings."""
    points = list_curve(rows)
    if len(points) < 2:
        return []
    told = ", ".join(f"{row.mean:.2f} in {minutes}" for minutes, row in points)
    alone = "".join(
        f" One network that had all {row.setting.split()[1]} minutes: {row.mean:.2f}."
        for row in rows
        if row.setting.endswith(ONE_NETWORK)
    )
    return [f"CIFAR-10 at epsilon {CURVE_EPSILON:g}, by minutes of one core: {told}.{alone}"]


def read_features(data: str) -> tuple[StudyRow, ...]:
    """Return the rows of the committed study of the same set on label-free features; none where it is not there."""
    path = Path(__file__).parent / "results" / f"images-{data}" / "result.json"
    return read_result(path).rows if path.exists() else ()
