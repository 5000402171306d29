r"""How a stage gets its answers: drawn by the owner of the labels, through the door, or read from a release by its receiver.

>>> round_priors(np.array([[0.51, 0.49], [0.9, 0.1]]), most=2).tolist()
[[0.51, 0.49], [0.9, 0.1]]

`draw_labels` is the only line of a learner in stages that a label goes through; `replay_release` gives the same answers to whoever
has the release. `Owners` says whose the rows are, where all labels of a person are protected together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Codes, Floats
from labeldp.channel import CandidateChannel, FiniteChannel, join_answers
from labeldp.channel.evidence import LazyRows, is_flat
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.learn.beliefs import mix_uniform
from labeldp.learn.settings import OWNER
from labeldp.mechanisms import InformativeResponse, Mechanism
from labeldp.priors import PriorTable
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.persons import Persons, best_answers, check_apart, check_person_mechanism, information_of
from labeldp.release.stages import StageDoor

#: A prior is mixed with this much of the uniform one, so that it never rules a label out for good.
PRIOR_FLOOR = 0.02
#: Between 0, where a model is about persons, and 1, where it is about rows and varies more (`weigh_answers`).
ROWS_POWER = 0.25


class Answers(NamedTuple):
    """What a stage released: outputs and their channel; `kept` are the places of its rows that were asked, None for all.

    `weights` say how much each of them counts in training, where persons own them (`weigh_answers`); None for all alike.
    """

    codes: Codes
    channel: FiniteChannel
    kept: npt.NDArray[np.int64] | None = None
    weights: Floats | None = None


#: (stage number, rows of the data set, their prior) -> the answers of those rows
Draw = Callable[[int, npt.NDArray[np.intp], Any], Answers]


def draw_labels(
    labels: SensitiveLabels, mechanism: Mechanism, door: StageDoor[Release], *, owners: Owners | None = None
) -> Draw:
    """Return the owner's way to get a stage: through the door, once per label, or once per person and few of her labels.

    A mechanism that takes no prior (`Mechanism.uses_prior`) is given none. One that takes few distinct priors
    (`Mechanism.most_priors`) gets rounded ones: which channel a label goes through may be any function of what is public.
    `InformativeResponse` is not told that nothing is known: without a prior its answers are as small as labels. But where
    persons answer several rows, at several epsilons, it is: answers are sets then in all stages, and join.
    """
    several = owners is not None and owners.count_answers(mechanism, labels.n_classes) > 1

    def draw(number: int, rows: npt.NDArray[np.intp], prior: Any) -> Answers:
        told = round_priors(prior, most=mechanism.most_priors) if mechanism.uses_prior else None
        if isinstance(mechanism, InformativeResponse) and is_flat(prior) and not several:
            told = None
        asked = {} if owners is None else owners.ask(mechanism, rows, told, prior)
        release = door.draw(number, lambda key: privatize(labels.take(rows), mechanism, prior=told, rng=key, **asked))
        # Which rows were asked is the release's word: a run that goes on may believe a little differently than when it drew.
        weights = None if owners is None else owners.weigh(rows if release.rows is None else rows[release.rows])
        return Answers(release.codes, release.channel, release.rows, weights)

    return draw


def replay_release(release: Release, *, owners: Owners | None = None) -> Draw:
    """Return the receiver's way to get a stage: out of the release; `owners` own all rows, answered or not, where she knows them."""
    all_weights = None
    if owners is not None:
        all_weights = owners.weigh(np.arange(len(release)) if release.rows is None else release.rows)

    def draw(_number: int, rows: npt.NDArray[np.intp], _prior: Any) -> Answers:
        weights = None if all_weights is None else all_weights[rows]
        return Answers(release.codes[rows], release.channel.take(rows), weights=weights)

    return draw


def is_silent(release: Release) -> bool:
    """Whether a release holds no label's answer: one candidate for each, and odds that favour none."""
    channel = release.channel
    return (
        isinstance(channel, CandidateChannel)
        and channel.odds == 0
        and release.prior is not None
        and bool((channel.sizes == 1).all())
    )


def read_prior(release: Release) -> PriorTable:
    """Return the belief that a release carries, or the uniform one."""
    if release.prior is not None and release.prior_index is not None:
        return PriorTable(rows=release.prior, index=release.prior_index)
    uniform = np.full((1, release.n_classes), 1.0 / release.n_classes)
    return PriorTable(rows=uniform, index=np.zeros(len(release), np.int64))


# ------------------------------------------------------------------------------------------------- whose rows they are


@dataclass(frozen=True, kw_only=True, eq=False)
class Owners:
    """Who owns each row, where all labels of a person are protected together, and which rows have no weight in training."""

    persons: Persons
    weights: Floats | None = None
    #: Whether the row of most expected information is asked, and not one by public chance.
    informed: bool = False
    #: Whether an answered row counts for rows of hers that were not asked (`weigh_answers`).
    weighs: bool = False

    def ask(self, mechanism: Mechanism, rows: npt.NDArray[np.intp], told: Any, prior: Any) -> dict[str, Any]:
        """Return what the door is told of the persons of some rows: their ids, and, if `informed`, how much each row's answer teaches.

        That is the expected information of the answer under what is believed of the row (`expect_information`), a function of
        public things and of answers of other persons. Rows that are in no fit are asked last.
        """
        score = expect_information(mechanism, told, prior) if self.informed else None
        if self.weights is not None and not self.weights[rows].all():
            score = np.zeros(len(rows)) if score is None else score
            score = np.where(self.weights[rows] > 0, score, -1.0)
        return {"persons": self.persons.take(rows), "persons_score": score}

    def weigh(self, rows: npt.NDArray[Any]) -> Floats | None:
        """Return how much each answered row counts in training; None for all alike. `rows` are all that their persons answered."""
        return weigh_answers(self.persons, rows) if self.weighs else None

    def count_answers(self, mechanism: Mechanism, n_classes: int) -> int:
        """Return how many rows of a person are asked at most, where nothing is known of labels."""
        epsilon = check_person_mechanism(mechanism)
        return best_answers(epsilon, information_of(mechanism, n_classes=n_classes), most=self.persons.most_rows)

    def check_mechanism(self, mechanism: Mechanism, n_classes: int) -> None:
        """Refuse, before anything is charged, a mechanism that cannot answer for persons: a rehearsal without a label.

        Where persons answer several rows, it answers at several epsilons, in stages with different priors; all of it becomes one
        release. Made-up labels, always the first class, go through the same doors.
        """
        most = self.count_answers(mechanism, n_classes)
        if most == 1:
            return
        codes = np.repeat(np.arange(most), np.arange(1, most + 1))
        made_up = SensitiveLabels(np.zeros(len(codes), np.int64), n_classes=n_classes)
        flat = np.full((len(codes), n_classes), 1.0 / n_classes)
        tilted = mix_with_uniform(np.tile(np.eye(n_classes)[0], (len(codes), 1)))
        try:
            told = [prior if mechanism.uses_prior else None for prior in (flat, tilted)]
            tried = [privatize(made_up, mechanism, prior=prior, persons=codes, rng=0) for prior in told]
            join_answers([(release.codes, release.channel) for release in tried])
        except LabelDPError as error:
            got = Described(
                f"{type(mechanism).__name__}, whose answers at several epsilons are not one release ({error})"
            )
            fix = f"At this epsilon {most} rows of a person are asked. Use InformativeResponse or RandomizedResponse, or a smaller epsilon."
            raise invalid(OWNER, "mechanism", "answer for persons", got=got, fix=fix) from None

    def check_stages(self, stage: npt.NDArray[Any] | None) -> None:
        """Refuse stages that split a person: they would not compose in parallel."""
        if stage is not None:
            check_apart(self.persons, [np.flatnonzero(stage == number) for number in range(int(stage.max()) + 1)])


def weigh_answers(persons: Persons, rows: npt.NDArray[Any]) -> Floats:
    r"""Return a weight for each answered row: (m / c)^(1/4), for a person of m rows who answered c of them, `rows` being all of these.

    With the label as unit a model is about rows: whoever has ten stays counts ten times. One answer of each person makes it about
    persons, and probabilities are then wrong for rows wherever people of many rows have other labels. m / c undoes it: a row was
    asked with chance c / m. But unequal weights vary more: n rows of weights w are worth (sum w)^2 / sum w^2 rows of
    equal ones. A power between 0 and 1 trades the one for the other. 1/4 was best of 0, 1/4, .35, 1/2, 3/4 and 1 in keeping AUC
    while lowering log loss, on the patients of the study `persons` that it does not test on. All of it is public.

    >>> weigh_answers(Persons.of([0] * 16 + [1]), np.array([3, 16])).tolist()
    [2.0, 1.0]
    """
    whose = persons.codes[rows]
    answers = np.bincount(whose, minlength=persons.n_persons)
    weights: Floats = (persons.counts[whose] / answers[whose]) ** ROWS_POWER
    return weights


def expect_information(mechanism: Mechanism, told: Any, prior: Any) -> Floats | None:
    """Return the nats that an answer about each row is expected to have, for labels that follow `prior` (n, K).

    `told` is what the mechanism is told of the rows, the prior, or nothing. Channels that answer with sets know the exact
    number; of others the entropy of the belief stands for it, which they rise with. None where all rows are believed alike.

    >>> sure, torn = [0.9, 0.1], [0.5, 0.5]
    >>> nats = expect_information(InformativeResponse(1.0), np.array([sure, torn]), np.array([sure, torn]))
    >>> bool(nats[0] < nats[1])
    True
    """
    if isinstance(prior, LazyRows) or is_flat(prior) or bool((prior == prior[0]).all()):
        return None
    size = prior.shape[1]
    channel = mechanism.channel(told, n_classes=size).place(0, len(prior))
    if hasattr(channel, "information"):
        nats: Floats = channel.information(prior)
        return nats
    entropy: Floats = -(prior * np.log(np.maximum(prior, np.finfo(np.float64).tiny))).sum(axis=1)
    return entropy


# -------------------------------------------------------------------------------------------- what a mechanism is told


def mix_with_uniform(prior: Floats) -> Floats:
    """Return the prior mixed with a little of the uniform one (`PRIOR_FLOOR`)."""
    return mix_uniform(prior, PRIOR_FLOOR)


def round_priors(prior: Floats, *, most: int | None) -> Floats:
    """Return the rows rounded so that at most `most` distinct ones are left; as they are, if they are few or `most` is None.

    Rows are rounded to multiples of 1/64, then of 1/32 and so on until few enough are left, and are divided by their
    sums. The last resort is the mean row for all.

    >>> round_priors(np.array([[0.51, 0.49], [0.52, 0.48], [0.9, 0.1]]), most=2).round(3).tolist()
    [[0.516, 0.484], [0.516, 0.484], [0.906, 0.094]]
    """
    if most is None or len(np.unique(prior, axis=0)) <= most:
        return prior
    for steps in (64, 32, 16, 8, 4, 2):
        rounded = np.round(prior * steps)
        rounded[rounded.sum(axis=1) == 0] = 1.0  # many classes, all of them unlikely
        rounded /= rounded.sum(axis=1, keepdims=True)
        if len(np.unique(rounded, axis=0)) <= most:
            return rounded
    mean: Floats = np.broadcast_to(prior.mean(axis=0), prior.shape).copy()
    return mean
