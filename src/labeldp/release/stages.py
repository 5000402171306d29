"""Releases in stages: each stage's release is shaped by what was learned from the stages before it.

Learners in stages have one pattern. A stage forms a belief from the model so far, releases something about labels that
the belief makes more telling, and learns a better model from the release. `run_stages` is that loop and `StageDoor` the
owner's way to release in it. What differs is left to the caller: what a belief is, what is released, who learns.

Example: three labels, one in each stage; the "model" is the list of what was released.

>>> from labeldp.mechanisms import RandomizedResponse
>>> from labeldp.random import NoiseKey
>>> from labeldp.release import SensitiveLabels, privatize
>>> labels = SensitiveLabels([0, 1, 1], n_classes=2)
>>> door = StageDoor(budget=Budget(owner="example", labels=labels), key=NoiseKey.from_seed(0), epsilon=1.0)
>>> responses = run_stages(
...     3,
...     start=(),
...     believe=lambda number, model: [number],
...     release=lambda number, rows: door.draw(
...         number, lambda key: privatize(labels.take(rows), RandomizedResponse(1.0), rng=key)
...     ),
...     learn=lambda number, model, rows, release: (*model, int(release.codes[0])),
... )
>>> len(responses)
3

Guarantee
---------
A belief is made of the model, and a model of what was released and of public data: whatever `believe` and `learn` do is
post-processing, and labels are seen in `release` only. What all stages cost together is stated beforehand, by `Budget`: the
largest stage where each label is in one stage alone (parallel), the sum where every stage asks about all labels
(sequence). `StageDoor` holds each stage to its part of it.

| who | belief | released in a stage | labels of a stage | composition |
|---|---|---|---|---|
| `LabelPrivateClassifier` | the model's probabilities | a response to each label | its own | parallel |
| `LabelPrivateRatings` | predicted ratings and their spread | a response to each rating | its own | parallel |
| `SufficientStatistics` | a network's probabilities and features | class moments | all | sequence |
| `PrivateGLM`, answers | predicted counts and their spread | a response to each count | its own | parallel |
| `PrivateGLM`, groups | rows that the model treats alike | totals of groups | its own | parallel |

A receiver of a release runs the same loop: her `release` reads the stage out of the release instead of drawing it, and her
model is the owner's.

Two other places have stages and do not use this loop. `labeldp.priors.StagedClusterPrior` has the same pattern (clusters of a
model's features, a histogram in each stage, all labels, in sequence) in a loop of its own. `labeldp.engines` streams its two
stages through a table too large to hold, and a row finds its stage by a hash of its position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from labeldp.guarantee import Guarantee
from labeldp.random import NoiseKey
from labeldp.release.budget import Budget

Model = TypeVar("Model")
Belief = TypeVar("Belief")


class Charged(Protocol):
    """What a stage releases, with what it cost: a `Release`, a `Measurement`, a prior's table."""

    @property
    def guarantee(self) -> Guarantee | None:
        """The cost of this stage alone; None if it cost nothing."""


Released = TypeVar("Released", bound=Charged)
Outcome = TypeVar("Outcome")

#: (number of the stage, how to draw it) -> its release: drawn now and written down, or read back from a stopped run
Keep = Callable[[int, Callable[[], Released]], Released]


def run_stages(
    count: int,
    *,
    start: Model,
    believe: Callable[[int, Model], Belief],
    release: Callable[[int, Belief], Outcome],
    learn: Callable[[int, Model, Belief, Outcome], Model],
) -> Model:
    """Believe, release and learn, `count` times in this order; return the last model.

    Parameters
    ----------
    count : int
        Number of stages; with 0 the answer is `start`.
    start : anything
        The model before the first stage: None, a prior's, or an empty list to append to.
    believe : (number, model) -> belief
        What this stage's release is shaped by. Sees no labels.
    release : (number, belief) -> outcome
        The one step that may see labels; the owner's goes through `StageDoor.draw`.
    learn : (number, model, belief, outcome) -> model
        The model for the next stage. Sees no labels.

    Notes
    -----
    Numbers of stages count from 0.
    """
    model = start
    for number in range(count):
        belief = believe(number, model)
        outcome = release(number, belief)
        model = learn(number, model, belief, outcome)
    return model


@dataclass(frozen=True, kw_only=True, eq=False)
class StageDoor(Generic[Released]):
    """How the owner of labels releases a stage: with noise of its own, once, and for no more than was charged.

    Parameters
    ----------
    budget : Budget
        Charged with all stages before the first of them is drawn.
    key : NoiseKey
        Noise of the run. Stage `number` has the child (`name`, number): no noise is used twice, and a seeded run draws
        the same whichever stages were kept from before.
    epsilon, delta : float
        What one stage may cost.
    name : str
        What a stage is called in the key.
    keep : callable, optional
        Writes a stage down before it is used, and returns what an earlier, stopped run wrote: a label that was drawn is
        not drawn again. Without one, nothing is kept.
    """

    budget: Budget
    key: NoiseKey
    epsilon: float
    delta: float = 0.0
    name: str = "stage"
    keep: Keep[Released] | None = None

    def draw(self, number: int, release: Callable[[NoiseKey], Released]) -> Released:
        """Return what `release` makes with the noise of this stage, or what was kept of it.

        Raises `PrivacyError` if it says that it cost more than (`epsilon`, `delta`).
        """
        make = partial(release, self.key.child(self.name, number))
        released = make() if self.keep is None else self.keep(number, make)
        self.budget.check_spent(released.guarantee, epsilon=self.epsilon, delta=self.delta)
        return released
