"""A quick reader beside a long fit: for a network from pixels, whose own fits are too long to choose questions or to be repeated.

A network that learns its own features takes minutes or hours for a fit. One with a hidden layer on features that need no label
takes seconds, and knows much of what the long one will know. It helps in two ways, let there be n answers at epsilon e on K classes,
each of at most I(e) nats (`most_information`).

*It reads the answers first.* A network from pixels has millions of weights, and an answer at epsilon .5 has a thirtieth of a nat.
Maximising the likelihood of such answers, pass after pass, it learns their noise by heart; the quick one, with few weights and good
features from its first step, does not. So where all answers together say little to pixels,

    n I(e) < 1000 K and e < 3,

or where images are grey and e < 6, since features of patches tell most of what there is to see in them, the quick estimator runs through
the stages and rounds of EM in the long one's place (`labeldp.learn.stages`), and the long one is fitted once, in the end, on the
posteriors of all examples,

    q_i[y] = p_i[y] L_i[y] / sum_k p_i[k] L_i[k],           p the quick model's beliefs, L_i the likelihood of i's answer:

the M-step of one more round, by an estimator that sees the images themselves. Since the stages are quick, there are two of them where
that pays, as for any network on features, and a curator's counts are of clusters of these features.

*It asks the questions.* Where answers say more than that, the long one reads them by itself, by the forward loss, better than the
quick one could. But what is asked of three quarters of the examples follows from what a quarter's answers taught (`labeldp.learn.recipe`),
and for that the quick one will do: on CIFAR-10 at epsilon 2 an answer to its questions has a quarter more information under its own
beliefs than one without a prior, at 3 a sixth, at 4 a thirtieth. So below 4, where three classes or more can be asked about and a
fit is planned to take long beside the features,

    a fit of 12 ms an image or more, and 1000 K <= n I(e) or 3 <= e < 4,

the quick estimator learns the first stage, asks in the second, and is forgotten; the long one is fitted once, on the likelihood of all answers.
A receiver has the answers already: she needs no features and no reader for the same fit.

>>> [choose_way(epsilon, n_examples=50_000, n_classes=10, minutes=60.0) for epsilon in (1.0, 2.0, 3.0, 4.0)]
['reads', 'asks', 'asks', None]
>>> [choose_way(epsilon, n_examples=50_000, n_classes=10, minutes=5.0) for epsilon in (1.0, 2.0)]
['reads', None]
>>> [choose_way(epsilon, n_examples=50_000, n_classes=10, minutes=60.0, grey=True) for epsilon in (2.0, 4.0, 8.0)]
['reads', 'reads', None]
>>> [round(50_000 * most_information(epsilon) / 10) for epsilon in (1.0, 2.0)]  # nats a class of CIFAR-10
[617, 2372]

An estimator that wants a reader says so: it has long fits (`fits_once`), `make_reader()`, which returns the quick estimator,
`read_images(X)`, which returns the features that this one takes, `are_grey(X)`, and `planned_minutes` if questions may be chosen.
`labeldp.nn.NetClassifier("fast-cnn")` does. Features see no label, and all else reads what was released: post-processing, free; a
question that follows from answers of others' labels, and from public features, costs what any costs. Who sets anything by herself that is "auto"
otherwise (the correction, rounds, parameters of stages; for questions also stages, prior and mechanism) asks for a plan of the
estimator's own, and gets that. All of it was measured with ten classes.

Reference: Hinton, Vinyals, Dean 2015 (distillation).
"""

from __future__ import annotations

import math
from typing import Any

from labeldp.learn.corrections import fits_once
from labeldp.learn.settings import Reader, Settings
from labeldp.mechanisms import most_information

#: Nats a class below which a network from pixels is not told answers one by one. On CIFAR-10 the quick network alone was
#: ahead at epsilon 1, and far behind at epsilon 2 (studies `images-cifar10` and `networks`).
LITTLE = 1000.0
#: From here on an answer says much by itself; for grey images, where both ways are as good with 1,400 digits at 6, and a reader is ahead
#: with 50,000 images of Fashion-MNIST at 4 (training images held out).
MOST_EPSILON, MOST_OF_GREY = 3.0, 6.0
#: From here on a prior changes what is asked by too little to pay for features.
MOST_ASKED = 4.0
#: Seconds of a fit for each image from which on questions pay for the 8 ms of features and of a first stage (32 pixels in colour). With 13 ms,
#: on 45,000 training images of CIFAR-10 at epsilon 2, they were worth 1.6 points and 9% of the log loss on the images held out
#: (`benchmarks/questions.py`, benchmarks/results/questions.md).
SECONDS_TO_ASK = 0.012
READS, ASKS = "reads", "asks"


def choose_way(
    epsilon: float, *, n_examples: int, n_classes: int, minutes: float = 0.0, grey: bool = False
) -> str | None:
    """Return what a quick estimator is good for beside a network from pixels, or None; `minutes` are what that one's fit will take."""
    if not 0 < epsilon < max(MOST_OF_GREY, MOST_ASKED):
        return None
    # An owner knows what she asked for, and a receiver what was promised: the same but for the last digits.
    told = n_examples * most_information(round(epsilon, 6))
    if epsilon < (MOST_OF_GREY if grey else MOST_EPSILON) and (grey or told < LITTLE * n_classes):
        return READS
    asks = epsilon < MOST_ASKED and n_classes > 2 and 60 * minutes >= SECONDS_TO_ASK * n_examples
    return ASKS if asks else None


def choose_reader(
    learner: Any, estimator: Any, X: Any, epsilon: float, *, n_examples: int, n_classes: int, release: Any = None
) -> Reader | None:
    """Return the quick estimator beside a long fit, and whether it only asks; None where the learner's own estimator does all.

    Parameters
    ----------
    learner : LabelPrivateClassifier
        Whose settings say whether all that could be "auto" is.
    estimator : classifier
        The last step of the learner's estimator.
    X : array or dataset
        The examples as the user has them.
    epsilon : float
        The whole budget.
    n_examples, n_classes : int
        How many answers there will be, and of how many classes.
    release : Release, optional
        The answers, if they are there already. Then nobody is asked any more, and how many stages there were, or how long a fit
        takes, does not matter to the one that reads them all.
    """
    own = (learner.correction, learner.rounds, learner.distil) == ("auto",) * 3
    own = own and learner.stage_params is None and learner.temperature is None and not learner.filter_earlier
    if not own or not fits_once(estimator) or not hasattr(estimator, "make_reader"):
        return None
    minutes = getattr(estimator, "planned_minutes", 0.0) if release is None else math.inf
    way = choose_way(epsilon, n_examples=n_examples, n_classes=n_classes, minutes=minutes, grey=estimator.are_grey(X))
    if way is None or (way == ASKS and not _leaves_questions(learner, release)):
        return None
    return Reader(estimator.make_reader(), only_asks=way == ASKS)


def _leaves_questions(learner: Any, release: Any) -> bool:
    """Whether what is asked is "auto", and was not asked with a prior of another kind, which is evidence that forward leaves out."""
    free = isinstance(learner.stages, str) and (learner.prior is None or isinstance(learner.prior, str))
    return free and learner.mechanism is None and (release is None or release.prior is None)


def read_examples(settings: Settings, examples: Any) -> Any:
    """Return what runs through the stages: the examples, or, where a student waits, the features that its reader takes."""
    return examples if settings.student is None else settings.student.read_images(examples)
