"""Cases and treatments of the cluster studies: a data set reduced without labels, and what is done to its labels.

>>> round(paper_claim(ClusterRR(1.0), n_classes=10), 3), paper_claim(ClusterRR(1.0), n_classes=2)
(0.75, 1.0)

Design notes. Features are the first principal components of the pixels, for the clusters and for the model alike: no
label is looked at, and a fit takes a second. Clusters are found anew for each seed, so that the spread includes their
luck. RRWithPrior gets the very histogram that ClusterRR released, and the same epsilon for its response.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Int64s
from labeldp.data import Dataset
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import LabelPrivateClassifier
from labeldp.mechanisms import ClusterRR, RandomizedResponse, RRWithPrior
from labeldp.priors import ClusterPrior
from labeldp.priors.cluster import cluster
from labeldp.release import Release, SensitiveLabels, privatize
from studies.cluster_histogram import fit_with_histogram
from studies.cluster_model import model
from studies.study import StudyRow

COMPONENTS = 50
N_CLUSTERS = 100


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """A mechanism by its short name ("uniform", "cluster", "prior", "stages") and a correction of training.

    Corrections are those of `LabelPrivateClassifier`, and "histogram": labels and histogram together.
    """

    setting: str
    mechanism: str
    correction: str


UNIFORM_PLAIN = Treatment(setting="UniformRR, plain", mechanism="uniform", correction="none")
UNIFORM = Treatment(setting="UniformRR, unbiased", mechanism="uniform", correction="unbiased")
UNIFORM_FORWARD = Treatment(setting="UniformRR, forward", mechanism="uniform", correction="forward")
CLUSTER = Treatment(setting="ClusterRR, plain", mechanism="cluster", correction="none")
CLUSTER_FORWARD = Treatment(setting="ClusterRR, forward", mechanism="cluster", correction="forward")
CLUSTER_UNBIASED = Treatment(setting="ClusterRR, unbiased", mechanism="cluster", correction="unbiased")
CLUSTER_BOTH = Treatment(setting="ClusterRR, histogram", mechanism="cluster", correction="histogram")
PRIOR_FORWARD = Treatment(setting="RRWithPrior, forward", mechanism="prior", correction="forward")
PRIOR_BOTH = Treatment(setting="RRWithPrior, histogram", mechanism="prior", correction="histogram")
STAGES = Treatment(setting="LP-2ST, plain", mechanism="stages", correction="none")
STAGES_FORWARD = Treatment(setting="LP-2ST, forward", mechanism="stages", correction="forward")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Features, labels and the accuracy of the model without privacy; clusters are found when first asked for."""

    name: str
    X_train: npt.NDArray[np.float32]
    y_train: Int64s
    X_test: npt.NDArray[np.float32]
    y_test: Int64s
    n_classes: int
    full_accuracy: float = 0.0
    found: dict[tuple[int, int], Int64s] = field(default_factory=dict, repr=False)
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def groups(self, n_clusters: int, seed: int) -> Int64s:
        """Return the cluster of each example; two threads that ask together get one answer."""
        with self.lock:
            if (n_clusters, seed) not in self.found:
                made = cluster(self.X_train, n_clusters=n_clusters, random_state=seed)
                self.found[n_clusters, seed] = made.astype(np.int64)
            return self.found[n_clusters, seed]

    def accuracy(self, fitted: Any) -> float:
        """Return the accuracy on the test part, in %."""
        return 100.0 * float(np.mean(fitted.predict(self.X_test) == self.y_test))

    def binary(self, digit: int) -> Case:
        """Return the task "this class or another", with the same features and clusters."""
        name = f"binary {self.name} (class {digit} against the rest)"
        y_train, y_test = ((y == digit).astype(np.int64) for y in (self.y_train, self.y_test))
        return _with_full_accuracy(replace(self, name=name, y_train=y_train, y_test=y_test, n_classes=2))


def case(dataset: Dataset, *, rows: int | None = None) -> Case:
    """Return the case of a data set, reduced by PCA; `rows` takes the first ones only (the sets come shuffled)."""
    from sklearn.decomposition import PCA

    train, test = dataset.matrix()
    train, y_train = train[:rows], dataset.y_train[:rows]
    reduction = PCA(min(COMPONENTS, train.shape[1]), svd_solver="covariance_eigh").fit(train)
    made = Case(
        name=dataset.name,
        X_train=reduction.transform(train).astype(np.float32),
        y_train=y_train.astype(np.int64),
        X_test=reduction.transform(test).astype(np.float32),
        y_test=dataset.y_test.astype(np.int64),
        n_classes=dataset.n_classes,
    )
    return _with_full_accuracy(made)


def _with_full_accuracy(given: Case) -> Case:
    return replace(given, full_accuracy=given.accuracy(model().fit(given.X_train, given.y_train)))


def paper_claim(mechanism: ClusterRR, *, n_classes: int) -> float:
    """Return what the paper's Theorem 1 as printed claims for the noise that was drawn: 1/sigma + the response.

    A label that changes moves two counts, so that noise of scale sigma on each costs 2/sigma; the library draws sigma =
    2 / epsilon_1, for which the theorem claims epsilon_1 / 2. With two classes the library releases one count, at sigma =
    1 / epsilon_1, and the claim is right. The response term, log(1 + (1 - lambda) / (lambda m)) with m the least share
    that lambda was made for, is epsilon_2 in both.
    """
    over_sigma = mechanism.histogram_epsilon / (1.0 if n_classes == 2 else 2.0)
    return over_sigma + mechanism.response_epsilon


def cluster_mechanism(given: Case, treatment: Treatment, epsilon: float, n_clusters: int) -> ClusterRR:
    """Return ClusterRR for a treatment.

    Training that sees labels alone needs labels that carry the histogram: the library's default tau and split. Training
    that reads the histogram itself wants from the labels what it does not say: tau = 1/K keeps the most labels that
    epsilon_2 allows, and the split is `ClusterPrior`'s rule, what a histogram of such clusters needs.
    """
    if treatment.correction != "histogram":
        return ClusterRR(epsilon)
    source = ClusterPrior(n_clusters=n_clusters)
    spent = source.cost(epsilon, n_examples=len(given.y_train), n_classes=given.n_classes)
    return ClusterRR(epsilon, tau=1.0 / given.n_classes, split=spent / epsilon)


def released(given: Case, treatment: Treatment, epsilon: float, seed: int, n_clusters: int) -> Release:
    """Release the labels of a case."""
    labels = SensitiveLabels(given.y_train, n_classes=given.n_classes, name=given.name)
    if treatment.mechanism == "uniform":
        return privatize(labels, RandomizedResponse(epsilon, n_classes=given.n_classes), rng=seed)
    mechanism = cluster_mechanism(given, treatment, epsilon, n_clusters)
    clustered = privatize(labels, mechanism, groups=given.groups(n_clusters, seed), rng=seed)
    if treatment.mechanism == "cluster":
        return clustered
    shares, index = clustered.prior, clustered.prior_index
    answer = privatize(labels, RRWithPrior(mechanism.response_epsilon), prior=shares, groups=index, rng=seed)
    histogram = Guarantee.pure(mechanism.histogram_epsilon, trust=Trust.CURATOR).named("histogram")
    return replace(answer, prior=shares, prior_index=index, guarantee=histogram.then(answer.guarantee))


def fitted(
    given: Case, treatment: Treatment, *, epsilon: float, seed: int, n_clusters: int = N_CLUSTERS
) -> tuple[Any, Guarantee]:
    """Return the classifier trained on what a treatment released, and what the release promised."""
    if treatment.mechanism == "stages":
        return _staged(given, treatment, epsilon, seed)
    release = released(given, treatment, epsilon, seed, n_clusters)
    if treatment.correction == "histogram":
        spent = cluster_mechanism(given, treatment, epsilon, n_clusters).histogram_epsilon
        return fit_with_histogram(given.X_train, release, epsilon=spent), release.guarantee
    learner = LabelPrivateClassifier(model(), correction=treatment.correction)
    return learner.fit_release(given.X_train, release), release.guarantee


def _staged(given: Case, treatment: Treatment, epsilon: float, seed: int) -> tuple[Any, Guarantee]:
    staged = LabelPrivateClassifier(
        model(),
        epsilon=epsilon,
        stages=2,
        correction=treatment.correction,
        classes=range(given.n_classes),
        random_state=seed,
    ).fit(given.X_train, given.y_train)
    return staged, staged.guarantee_


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One row to measure."""

    case: Case
    treatment: Treatment
    epsilon: float
    seeds: tuple[int, ...]
    n_clusters: int = N_CLUSTERS
    table: str = ""
    setting: str = ""

    def row(self) -> StudyRow:
        """Fit with every seed; the values are accuracies as a share of the one without privacy, in %."""
        fits = [
            fitted(self.case, self.treatment, epsilon=self.epsilon, seed=seed, n_clusters=self.n_clusters)
            for seed in self.seeds
        ]
        return StudyRow(
            table=self.table or self.case.name,
            setting=self.setting or self.treatment.setting,
            epsilon=max(guarantee.epsilon() for _, guarantee in fits),
            trust=fits[0][1].trust.words,
            values=tuple(100.0 * self.case.accuracy(fit) / self.case.full_accuracy for fit, _ in fits),
            note=self._note(),
        )

    def _note(self) -> str:
        if self.treatment.mechanism != "cluster":
            return ""
        mechanism = cluster_mechanism(self.case, self.treatment, self.epsilon, self.n_clusters)
        claimed = paper_claim(mechanism, n_classes=self.case.n_classes)
        return f"the paper's accounting would claim {claimed:.4g}"


def full_row(given: Case) -> StudyRow:
    """Return the row without privacy: 100 by definition, with its accuracy in the note."""
    note = f"test accuracy {given.full_accuracy:.2f}%"
    return StudyRow(
        table=given.name, setting="no privacy", epsilon=float("inf"), trust="everyone", values=(100.0,), note=note
    )
