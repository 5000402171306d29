"""A quick reader before a long fit: for a network from pixels, where answers say too little to be read one by one.

A network that learns its own features has millions of weights, and an answer at epsilon .5 has a thirtieth of a nat. Maximising the
likelihood of such answers, pass after pass, it learns their noise by heart. A network with one hidden layer on features that need no
label does not: it has few weights and sees good features from its first step. So where all answers together say little to pixels,

    n I(e) < 1000 K and e < 3,             n answers of at most I(e) nats (`most_information`) on K classes,

or where images are grey and e < 6, since features of patches tell most of what there is to see in them, a quick estimator runs through the stages and rounds of EM in the long one's place (`labeldp.learn.stages`), and the long one is fitted
once, in the end, on the posteriors of all examples,

    q_i[y] = p_i[y] L_i[y] / sum_k p_i[k] L_i[k],           p the quick model's beliefs, L_i the likelihood of i's answer:

the M-step of one more round, by an estimator that sees the images themselves. Since the stages are quick, there are two of them where
that pays, as for any network on features, and a curator's counts are of clusters of these features.

>>> [pays_to_read(epsilon, n_examples=50_000, n_classes=10) for epsilon in (1.0, 2.0)]
[True, False]
>>> [pays_to_read(epsilon, n_examples=50_000, n_classes=10, grey=True) for epsilon in (2.0, 4.0, 8.0)]
[True, True, False]
>>> [round(50_000 * most_information(epsilon) / 10) for epsilon in (1.0, 2.0)]  # nats a class of CIFAR-10
[617, 2372]

An estimator that wants a reader says so: it has long fits (`fits_once`), `make_reader()`, which returns the quick estimator,
`read_images(X)`, which returns the features that this one takes, and `are_grey(X)`. `labeldp.nn.NetClassifier("fast-cnn")` does. Features see no label, and
all else reads what was released: post-processing, free. Who sets anything by herself that is "auto" otherwise (the correction, rounds,
parameters of stages) asks for a plan of the estimator's own, and gets that. All of it was measured with ten classes.

Reference: Hinton, Vinyals, Dean 2015 (distillation).
"""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from labeldp.learn.corrections import fits_once
from labeldp.learn.settings import Settings
from labeldp.mechanisms import most_information

#: Nats a class below which a network from pixels is not told answers one by one. On CIFAR-10 the quick network alone was
#: ahead at epsilon 1, and far behind at epsilon 2 (studies `images-cifar10` and `networks`).
LITTLE = 1000.0
#: From here on an answer says much by itself; for grey images, where both ways are as good with 1,400 digits at 6, and a reader is ahead
#: with 50,000 images of Fashion-MNIST at 4 (training images held out).
MOST_EPSILON, MOST_OF_GREY = 3.0, 6.0


def pays_to_read(epsilon: float, *, n_examples: int, n_classes: int, grey: bool = False) -> bool:
    """Whether so many answers at this epsilon should be read by a quick estimator before a network from pixels learns."""
    if not 0 < epsilon < (MOST_OF_GREY if grey else MOST_EPSILON):
        return False
    # An owner knows what she asked for, and a receiver what was promised: the same but for the last digits.
    return grey or n_examples * most_information(round(epsilon, 6)) < LITTLE * n_classes


def choose_reader(
    learner: Any, estimator: Any, X: Any, epsilon: float, *, n_examples: int, n_classes: int
) -> BaseEstimator | None:
    """Return the quick estimator that reads answers first, or None where the learner's own does.

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
    """
    own = (learner.correction, learner.rounds, learner.distil) == ("auto",) * 3
    own = own and learner.stage_params is None and learner.temperature is None and not learner.filter_earlier
    if not own or not fits_once(estimator) or not hasattr(estimator, "make_reader"):
        return None
    if not pays_to_read(epsilon, n_examples=n_examples, n_classes=n_classes, grey=estimator.are_grey(X)):
        return None
    reader: BaseEstimator = estimator.make_reader()
    return reader


def read_examples(settings: Settings, examples: Any) -> Any:
    """Return what runs through the stages: the examples, or, where a student waits, the features that its reader takes."""
    return examples if settings.student is None else settings.student.read_images(examples)
