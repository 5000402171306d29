r"""The study `cluster-response`: whether it pays to redraw labels from their cluster, at the epsilon that is really spent.

It repeats Figures 1 and 2 of the paper on clusters: UniformRR, ClusterRR and RRWithPrior with the same histogram on three
sets of pictures, the number of clusters, and a binary task beside LP-2ST. Every method has one linear model, one rule for
its penalty and the true total epsilon; each row of ClusterRR says what the paper's accounting would have claimed for the
same noise.

>>> ClusterResponse.name, MUST_SHOW
('cluster-response', (0.1, 0.2, 0.5, 1.0))
>>> round(claim_of_paper(ClusterRR(1.0), n_classes=10), 3), claim_of_paper(ClusterRR(1.0), n_classes=2)
(0.75, 1.0)

**The penalty follows from how noisy the released labels are.** A released label pulls the weights at zero with the gradient
g_i = 1/K - q_i, where q_i are the targets (or the normalised likelihood) of example i. If the labels were pure noise of
that size, the mean gradient would still be about

    l2 = sqrt(mean_i |g_i|^2) / sqrt(n)

long (times the length of x): its standard error. This is the penalty, for every mechanism and every correction. It has
no constant to tune and reads released values alone. It takes care of scale by itself: unbiased targets are longer by
1/keep and are held harder; the forward loss is flatter by about keep^2 and is held less.

>>> float(penalty(np.eye(2)[[0, 1, 1, 0]]))  # |1/2 - q| is sqrt(1/2) for plain labels of two classes
0.3535533905932738

**Training on labels and histogram together.** The labels alone waste what the histogram of a cluster says, and labels
redrawn from the histogram forget what single labels said. With p_i the model's probabilities, l_i the likelihood of the
label released for example i, and N_ck the noisy count of class k in cluster c, `fit_with_histogram` minimises

    - sum_i log sum_k p_ik l_ik  +  1/2 sum_ck (m_ck - N_ck)^2 / v_ck,      m_ck = sum of p_ik over the examples of c,
    v_ck = max(N_ck, 1) + V,      V the variance of the noise on a count,

plus the penalty. The first sum is the forward loss. The second is Pearson's chi-square of the counts that the model
expects, with the noise added to each cell's variance: a histogram that cost little weighs little, and there is nothing to
tune. Its gradient in the logits of example i is p_ik (g_k - sum_j p_ij g_j), g_k = (m_ck - N_ck) / v_ck. Both parts read
the release alone. They come from the same labels, so the sum is a composite likelihood: its minimum aims at the truth,
but it is no statement about uncertainty.

>>> noise_variance(1.0, n_classes=10), noise_variance(1.0, n_classes=2)
(8.0, 4.0)

References: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022, Label differential privacy via clustering, section 7. Learning
from label proportions has the second part of the loss alone, without noise: Quadrianto, Smola, Caetano, Le 2009, Estimating
labels from label proportions.

Design notes. Features are the first principal components of the pixels, for the clusters and for the model alike: no label
is looked at, and a fit takes a second. Clusters are found anew for each seed, so that the spread includes their luck.
RRWithPrior gets the very histogram that ClusterRR released, and the same epsilon for its response. Cases are independent,
so that two threads share them; arithmetic releases the interpreter's lock.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s
from labeldp.data import Dataset, load
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.mechanisms import ClusterRR, RandomizedResponse, RRWithPrior
from labeldp.priors import ClusterPrior, cluster_features
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.report import Lines, Plot, Series
from labeldp.softmax import SoftmaxObjective, compute_logits, minimise, normalise_columns, sum_slopes
from studies.study import Measurement, Study, StudyRow, list_tables

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
#: The epsilons that get all seeds; the others get `FEW_SEEDS`.
MUST_SHOW = (0.1, 0.2, 0.5, 1.0)
FEW_SEEDS = 3
SETS = ("mnist", "fashion-mnist", "cifar10")
#: A set that many do not have; the study goes on without it, and says so.
OPTIONAL = "cifar10"
COMPONENTS, N_CLUSTERS = 50, 100
#: The rows that vary the number of clusters: at this epsilon, these numbers.
CLUSTERS_EPSILON, CLUSTER_COUNTS = 0.5, (10, 30, 100, 300, 1000)
#: Figure 2's task is "one digit against the rest"; the paper does not say which. An easy and a hard one.
BINARY_SET, DIGITS = "mnist", (0, 8)
QUICK_ROWS, QUICK_EPSILONS, QUICK_COUNTS = 3_000, (0.5, 1.0), (10, 30)
#: Most steps of L-BFGS, the same for every row: a bound on time, which the fits of Fashion-MNIST reach.
STEPS = 80
#: The solver stops when no entry of the gradient exceeds this share of the length of an example's gradient at zero.
RELATIVE_TOLERANCE = 1e-4
#: Epsilon as asked for and as promised differ by rounding at most.
NEAR = 1e-9


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
UNIFORMS = (UNIFORM_PLAIN, UNIFORM, UNIFORM_FORWARD)
TREATMENTS = (*UNIFORMS, CLUSTER, CLUSTER_FORWARD, CLUSTER_BOTH, PRIOR_FORWARD, PRIOR_BOTH)
BINARY_TREATMENTS = (UNIFORM_FORWARD, CLUSTER, CLUSTER_BOTH, STAGES, STAGES_FORWARD)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A treatment of a task at an epsilon; no treatment is the row without privacy. `n_seeds` limits the seeds."""

    task: Task
    treatment: Treatment | None = None
    epsilon: float = math.inf
    n_clusters: int = N_CLUSTERS
    table: str = ""
    n_seeds: int | None = None

    @property
    def setting(self) -> str:
        """The row's name."""
        if self.treatment is None:
            return "no privacy"
        return self.treatment.setting + (f", {self.n_clusters} clusters" if self.table else "")

    @property
    def name(self) -> str:
        """Table, row and epsilon."""
        return f"{self.table or self.task.name}: {self.setting}, epsilon {self.epsilon:g}"


class ClusterResponse(Study[Case]):
    """UniformRR, ClusterRR and RRWithPrior on three sets; the number of clusters; a binary task: about ten minutes."""

    name: ClassVar[str] = "cluster-response"
    title: ClassVar[str] = "Labels from their clusters: when does it pay, at the epsilon that is really spent?"
    paper: ClassVar[str] = (
        "Esfandiari, Mirrokni, Syed and Vassilvitskii (2022), Label differential privacy via clustering, Figures 1 and 2 "
        "(curves without numbers, so that there is no column of theirs)"
    )
    measure: ClassVar[str] = "test accuracy as a share of the accuracy without privacy, %"
    needs: ClassVar[str] = "MNIST, Fashion-MNIST and, if it is to be in it, CIFAR-10"
    workers: ClassVar[int] = 2

    #: The sets that the folder does not have; known after `cases`.
    missing: tuple[str, ...] = ()

    def cases(self) -> Sequence[Case]:
        """Read the sets, and list the cases of each; the study goes on without `OPTIONAL`, and says so."""
        found: list[Case] = []
        for name in SETS:
            try:
                dataset = load(name, directory=self.directory)
            except LabelDPError:
                if name != OPTIONAL:
                    raise
                self.missing += (name,)
                continue
            found += self._list_cases(make_task(dataset, rows=QUICK_ROWS if self.quick else None))
        return found

    def _list_cases(self, task: Task) -> Iterator[Case]:
        yield Case(task=task, n_seeds=1)
        yield from self._over_epsilons(task, TREATMENTS)
        for epsilon in (0.5, 1.0):
            yield Case(task=task, treatment=CLUSTER_UNBIASED, epsilon=epsilon, n_seeds=FEW_SEEDS)
        table = clusters_table(task.name)
        for count in QUICK_COUNTS if self.quick else CLUSTER_COUNTS:
            for treatment in (CLUSTER, CLUSTER_BOTH):
                yield Case(
                    task=task,
                    treatment=treatment,
                    epsilon=CLUSTERS_EPSILON,
                    n_clusters=count,
                    table=table,
                    n_seeds=FEW_SEEDS,
                )
        if task.name == BINARY_SET:
            for digit in DIGITS:
                yield from self._over_epsilons(task.binary(digit), BINARY_TREATMENTS)

    def _over_epsilons(self, task: Task, treatments: Sequence[Treatment]) -> Iterator[Case]:
        for treatment in treatments:
            for epsilon in QUICK_EPSILONS if self.quick else EPSILONS:
                n_seeds = None if epsilon in MUST_SHOW else FEW_SEEDS
                yield Case(task=task, treatment=treatment, epsilon=epsilon, n_seeds=n_seeds)

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """All seeds for the epsilons that must be shown, few for the others."""
        return seeds[: case.n_seeds]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once; the value is the accuracy as a share of the one without privacy, in %."""
        if case.treatment is None:
            note = f"test accuracy {case.task.full_accuracy:.2f}%"
            found, epsilon, trust = 100.0, math.inf, "everyone"
        else:
            fitted, promise = fit_treatment(
                case.task, case.treatment, epsilon=case.epsilon, seed=seed, n_clusters=case.n_clusters
            )
            note, epsilon, trust = describe_claim(case), promise.epsilon(), promise.trust.words
            found = 100.0 * case.task.accuracy(fitted) / case.task.full_accuracy
        table = case.table or case.task.name
        return [Measurement(table=table, setting=case.setting, epsilon=epsilon, trust=trust, value=found, note=note)]

    def arrange_rows(self, rows: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """The sets first, then the number of clusters and the binary tasks."""
        return sorted(rows, key=lambda row: row.table.startswith(("binary", "clusters")))

    def facts(self) -> dict[str, Any]:
        """The settings that all rows share."""
        return {
            "features": f"the first {COMPONENTS} principal components of the pixels, for clusters and model",
            "clusters": f"MiniBatchKMeans, {N_CLUSTERS} unless a row says otherwise, found anew for each seed",
            "model": repr(make_model()),
            "penalty": "l2 = root mean square of an example's gradient at zero weights / sqrt(n), for every row",
            "threads": self.workers,
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what each set shows, then what holds for all of them."""
        names, binary = _sets(rows), [table for table in list_tables(rows) if table.startswith("binary")]
        said = [compare_uses(rows, name) for name in names]
        said += [_best_use(rows, names), _beside_prior(rows, names), _unbiased(rows, names), ACCOUNTING]
        said += [_clusters(rows, name) for name in names]
        said += [_binary(rows, table) for table in binary]
        said.append(CHOSEN)
        if self.missing:
            said.append(f"Left out, since the folder of data sets does not have it: {', '.join(self.missing)}.")
        return tuple(said)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Accuracy against epsilon for each set, against the number of clusters, and for the binary tasks."""
        names, binary = _sets(rows), [table for table in list_tables(rows) if table.startswith("binary")]
        panels = [_against_epsilon(rows, name) for name in names]
        return (*panels, _against_count(rows, names), *(_against_epsilon(rows, table) for table in binary))


# ------------------------------------------------------------------------------------- the task and its treatments


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Features, labels and the accuracy of the model without privacy; clusters are found when first asked for."""

    name: str
    X_train: npt.NDArray[np.float32]
    y_train: Int64s
    X_test: npt.NDArray[np.float32]
    y_test: Int64s
    n_classes: int
    full_accuracy: float = 0.0
    clusters: dict[tuple[int, int], Int64s] = field(default_factory=dict, repr=False)
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def groups(self, n_clusters: int, seed: int) -> Int64s:
        """Return the cluster of each example; two threads that ask together get one answer."""
        with self.lock:
            if (n_clusters, seed) not in self.clusters:
                made = cluster_features(self.X_train, n_clusters=n_clusters, random_state=seed)
                self.clusters[n_clusters, seed] = made.groups
            return self.clusters[n_clusters, seed]

    def accuracy(self, fitted: Any) -> float:
        """Return the accuracy on the test part, in %."""
        return 100.0 * float(np.mean(fitted.predict(self.X_test) == self.y_test))

    def binary(self, digit: int) -> Task:
        """Return the task "this class or another", with the same features and clusters."""
        name = f"binary {self.name} (class {digit} against the rest)"
        y_train, y_test = ((y == digit).astype(np.int64) for y in (self.y_train, self.y_test))
        return _add_full_accuracy(replace(self, name=name, y_train=y_train, y_test=y_test, n_classes=2))


def make_task(dataset: Dataset, *, rows: int | None = None) -> Task:
    """Return the task of a data set, reduced by PCA; `rows` takes the first ones only (the sets come shuffled)."""
    from sklearn.decomposition import PCA

    train, test = dataset.matrix()
    train, y_train = train[:rows], dataset.y_train[:rows]
    reduction = PCA(min(COMPONENTS, train.shape[1]), svd_solver="covariance_eigh").fit(train)
    made = Task(
        name=dataset.name,
        X_train=reduction.transform(train).astype(np.float32),
        y_train=y_train.astype(np.int64),
        X_test=reduction.transform(test).astype(np.float32),
        y_test=dataset.y_test.astype(np.int64),
        n_classes=dataset.n_classes,
    )
    return _add_full_accuracy(made)


def _add_full_accuracy(given: Task) -> Task:
    return replace(given, full_accuracy=given.accuracy(make_model().fit(given.X_train, given.y_train)))


def make_mechanism(given: Task, treatment: Treatment, epsilon: float, n_clusters: int) -> ClusterRR:
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


def release_labels(given: Task, treatment: Treatment, epsilon: float, seed: int, n_clusters: int) -> Release:
    """Release the labels of a task."""
    labels = SensitiveLabels(given.y_train, n_classes=given.n_classes, name=given.name)
    if treatment.mechanism == "uniform":
        return privatize(labels, RandomizedResponse(epsilon, n_classes=given.n_classes), rng=seed)
    mechanism = make_mechanism(given, treatment, epsilon, n_clusters)
    clustered = privatize(labels, mechanism, groups=given.groups(n_clusters, seed), rng=seed)
    if treatment.mechanism == "cluster":
        return clustered
    shares, index = clustered.prior, clustered.prior_index
    answer = privatize(labels, RRWithPrior(mechanism.response_epsilon), prior=shares, groups=index, rng=seed)
    histogram = Guarantee.pure(mechanism.histogram_epsilon, trust=Trust.CURATOR).named("histogram")
    return replace(answer, prior=shares, prior_index=index, guarantee=histogram.then(answer.guarantee))


def fit_treatment(
    given: Task, treatment: Treatment, *, epsilon: float, seed: int, n_clusters: int = N_CLUSTERS
) -> tuple[Any, Guarantee]:
    """Return the classifier trained on what a treatment released, and what the release promised."""
    if treatment.mechanism == "stages":
        return _fit_stages(given, treatment, epsilon, seed)
    release = release_labels(given, treatment, epsilon, seed, n_clusters)
    if treatment.correction == "histogram":
        spent = make_mechanism(given, treatment, epsilon, n_clusters).histogram_epsilon
        return fit_with_histogram(given.X_train, release, epsilon=spent), release.guarantee
    learner = LabelPrivateClassifier(make_model(), correction=treatment.correction)
    return learner.fit_release(given.X_train, release), release.guarantee


def _fit_stages(given: Task, treatment: Treatment, epsilon: float, seed: int) -> tuple[Any, Guarantee]:
    staged = LabelPrivateClassifier(
        make_model(),
        epsilon=epsilon,
        stages=2,
        mechanism=RRWithPrior(epsilon),
        correction=treatment.correction,
        classes=range(given.n_classes),
        random_state=seed,
    ).fit(given.X_train, given.y_train)
    return staged, staged.guarantee_


def describe_claim(case: Case) -> str:
    """Say what the paper's accounting would claim for the noise of a case; nothing where the paper has no such case."""
    if case.treatment is None or case.treatment.mechanism != "cluster":
        return ""
    mechanism = make_mechanism(case.task, case.treatment, case.epsilon, case.n_clusters)
    return f"the paper's accounting would claim {claim_of_paper(mechanism, n_classes=case.task.n_classes):.4g}"


def claim_of_paper(mechanism: ClusterRR, *, n_classes: int) -> float:
    """Return what the paper's Theorem 1 as printed claims for the noise that was drawn: 1/sigma + the response.

    A label that changes moves two counts, so that noise of scale sigma on each costs 2/sigma; the library draws sigma =
    2 / epsilon_1, for which the theorem claims epsilon_1 / 2. With two classes the library releases one count, at sigma =
    1 / epsilon_1, and the claim is right. The response term, log(1 + (1 - lambda) / (lambda m)) with m the least share
    that lambda was made for, is epsilon_2 in both.
    """
    over_sigma = mechanism.histogram_epsilon / (1.0 if n_classes == 2 else 2.0)
    return over_sigma + mechanism.response_epsilon


# ------------------------------------------------------------------------------------------- the model and its loss


def penalty(targets: Floats) -> float:
    """Return l2 = sqrt(mean |1/K - q|^2 / n) for rows q that sum to one, signed or not."""
    n, n_classes = targets.shape
    squares = np.square(targets - 1.0 / n_classes).sum(axis=1, dtype=np.float64)
    return math.sqrt(float(squares.mean()) / n)


#: Flat weights -> (loss, gradient)
Objective = Callable[[Floats], tuple[float, Floats]]


class NoiseScaledSoftmax(SoftmaxRegression):
    """`SoftmaxRegression` whose l2 and tolerance are set by `penalty` at each fit; the other parameters are its own."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NoiseScaledSoftmax:
        """Fit on plain labels: every |1/K - q|^2 is 1 - 1/K."""
        n_classes = max(2, len(np.unique(y)))
        self._scale(math.sqrt((1.0 - 1.0 / n_classes) / len(y)), len(y))
        super().fit(X, y, sample_weight)
        return self

    def fit_targets(
        self, X: Any, targets: Any, *, classes: Sequence[Any], sample_weight: Any = None
    ) -> NoiseScaledSoftmax:
        """Fit on soft or signed targets."""
        self._scale(penalty(np.asarray(targets)), len(targets))
        super().fit_targets(X, targets, classes=classes, sample_weight=sample_weight)
        return self

    def fit_likelihood(
        self, X: Any, likelihood: Any, *, classes: Sequence[Any], sample_weight: Any = None
    ) -> NoiseScaledSoftmax:
        """Fit the forward loss, whose gradient at zero is 1/K minus the normalised likelihood."""
        rows = np.asarray(likelihood)
        self._scale(penalty(rows / rows.sum(axis=1, keepdims=True)), len(rows))
        super().fit_likelihood(X, likelihood, classes=classes, sample_weight=sample_weight)
        return self

    def fit_objective(self, X: Any, objective: Objective, *, l2: float, classes: Sequence[Any]) -> NoiseScaledSoftmax:
        """Fit a loss of the caller's own, a function of flat (K, d + 1) weights, which has this l2 in it already."""
        self._scale(l2, len(X))
        shape = len(classes), X.shape[1] + 1
        theta, self.n_iter_ = minimise(
            objective, np.zeros(shape), max_iter=STEPS, tol=self.tol, owner="NoiseScaledSoftmax"
        )
        self.n_features_in_, self.classes_ = X.shape[1], np.asarray(classes)
        self.coef_, self.intercept_ = theta[:, :-1].copy(), theta[:, -1].copy()
        return self

    def _scale(self, l2: float, n: int) -> None:
        self.l2 = l2
        # A release that says nothing (all likelihoods equal) has l2 = 0, and the solver needs a tolerance above 0.
        self.tol = max(RELATIVE_TOLERANCE * l2 * math.sqrt(n), 1e-12)


def make_model() -> NoiseScaledSoftmax:
    """Return the one model of the studies, unfitted."""
    # The penalty is in the units of the principal components, as it was when the results were made.
    return NoiseScaledSoftmax(max_iter=STEPS, standardise=False)


def noise_variance(epsilon: float, *, n_classes: int) -> float:
    """Return V for a histogram that spent epsilon; at least the variance of discrete Laplace noise of its rate.

    More than two classes: rate epsilon / 2 on each count, variance at most 2 / rate^2 = 8 / epsilon^2. Two classes: one
    count at rate epsilon, variance at most 2 / epsilon^2, which appears in two cells; half the weight each.
    """
    return (4.0 if n_classes == 2 else 8.0) / epsilon**2


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What was released, with the examples in the order of their clusters: arrays are (K, n) and (K, C)."""

    logarithms: Floats
    cluster: Int64s
    starts: Int64s
    counts: Floats
    variances: Floats

    def loss(self, logits: Floats) -> tuple[float, Floats]:
        """Return the loss, summed over examples, and its gradient in the logits (K, n)."""
        explained, reached = normalise_columns(logits + self.logarithms)
        mass, height = normalise_columns(logits)
        gap = np.add.reduceat(mass, self.starts, axis=1, dtype=np.float64) - self.counts
        pull = gap / self.variances
        each = pull.astype(mass.dtype)[:, self.cluster]
        gradient = mass - explained
        gradient += mass * (each - (mass * each).sum(axis=0))
        return float((height - reached).sum()) + 0.5 * float((gap * pull).sum()), gradient


def collect_evidence(release: Release, *, epsilon: float) -> tuple[Int64s, Evidence]:
    """Return the order of the examples by cluster, and the evidence in it; `epsilon` is what the histogram spent."""
    if release.prior is None or release.prior_index is None:
        got, fix = Described("one without"), "ClusterRR with split > 0 releases one."
        raise invalid("fit_with_histogram", "release", "carry a histogram of each cluster", got=got, fix=fix)
    index = np.asarray(release.prior_index, np.int64)
    order = np.argsort(index, kind="stable")
    sizes = np.bincount(index, minlength=len(release.prior))
    counts = (release.prior * sizes[:, None]).T
    likelihood = release.channel.likelihood(release.codes)[order]
    with np.errstate(divide="ignore"):  # a label that is ruled out has log 0 = -inf, and exp of it is 0 again
        logarithms = np.ascontiguousarray(np.log(likelihood).T, dtype=np.float32)
    made = Evidence(
        logarithms=logarithms,
        cluster=index[order],
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
        counts=counts,
        variances=np.maximum(counts, 1.0) + noise_variance(epsilon, n_classes=len(release.classes)),
    )
    return order, made


def fit_with_histogram(X: Any, release: Release, *, epsilon: float) -> NoiseScaledSoftmax:
    """Return the model fitted to released labels and histogram; `epsilon` is what the histogram spent."""
    order, known = collect_evidence(release, epsilon=epsilon)
    ordered = np.ascontiguousarray(X[order])
    n, n_classes = len(order), len(release.classes)
    pull = known.loss(np.zeros((n_classes, n), np.float32))[1]
    l2 = math.sqrt(float(np.square(pull).sum(axis=0, dtype=np.float64).mean()) / n)

    def curve(theta: Floats) -> tuple[float, Floats]:
        loss, residual = known.loss(compute_logits(ordered, theta))
        return loss, sum_slopes(ordered, residual)

    linear = np.zeros((n_classes, ordered.shape[1] + 1))
    objective = SoftmaxObjective(curved=curve, linear=linear, total=n, l2=l2)
    return make_model().fit_objective(ordered, objective, l2=l2, classes=release.classes)


# -------------------------------------------------------------------------------------------------- words and plots


def clusters_table(name: str) -> str:
    """Return the table of the rows that vary the number of clusters."""
    return f"clusters at epsilon {CLUSTERS_EPSILON:g}: {name}"


def _sets(rows: Iterable[StudyRow]) -> list[str]:
    names = dict.fromkeys(row.table for row in rows)
    return [name for name in names if not name.startswith(("clusters", "binary"))]


def pick_line(rows: Iterable[StudyRow], table: str, setting: str) -> list[StudyRow]:
    """Return the rows of a setting, in order of epsilon."""
    mine = [row for row in rows if row.table == table and row.setting == setting and math.isfinite(row.epsilon)]
    return sorted(mine, key=lambda row: row.epsilon)


def compare_uses(rows: Sequence[StudyRow], table: str) -> str:
    """Compare both uses of ClusterRR with each correction of UniformRR, at every epsilon."""
    verdicts = []
    for treatment in (CLUSTER_BOTH, CLUSTER):
        ours = pick_line(rows, table, treatment.setting)
        against = [_verdict(ours, pick_line(rows, table, base.setting), base.setting) for base in UNIFORMS]
        verdicts.append(f"{treatment.setting} {'; '.join(against)}")
    return f"{table}, a curator's ClusterRR beside UniformRR, which trusts no one: " + ". ".join(verdicts) + "."


def _verdict(ours: Sequence[StudyRow], theirs: Sequence[StudyRow], name: str) -> str:
    gains = [(a.epsilon, a.mean - b.mean) for a, b in zip(ours, theirs, strict=True)]
    lost = [f"{epsilon:g} ({gain:+.1f})" for epsilon, gain in gains if gain <= 0]
    won = [f"{epsilon:g} ({gain:+.1f})" for epsilon, gain in gains if gain > 0]
    words = f"beats {name} at epsilon {', '.join(won)}" if won else f"never beats {name}"
    return words + (f" and does not at {', '.join(lost)}" if lost and won else "")


def _best_use(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    """Say which use of ClusterRR is best at each epsilon: no one use is best everywhere."""
    parts = []
    for name in names:
        uses = [pick_line(rows, name, one.setting) for one in (CLUSTER, CLUSTER_FORWARD, CLUSTER_BOTH)]
        best = [max(column, key=lambda row: row.mean) for column in zip(*uses, strict=True)]
        words = [f"{row.setting.removeprefix('ClusterRR, ')} ({row.mean:.1f}) at {row.epsilon:g}" for row in best]
        parts.append(f"{name} {', '.join(words)}")
    return "The best use of ClusterRR: " + "; ".join(parts) + "."


def _beside_prior(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        pairs = zip(pick_line(rows, name, CLUSTER_BOTH.setting), pick_line(rows, name, PRIOR_BOTH.setting), strict=True)
        gains = ", ".join(f"{a.mean - b.mean:+.1f} at {a.epsilon:g}" for a, b in pairs)
        parts.append(f"{name} {gains}")
    return (
        "ClusterRR less RRWithPrior with the same histogram and the same budgets, both trained on labels and histogram, in "
        "points: " + "; ".join(parts) + "."
    )


def _unbiased(rows: Sequence[StudyRow], names: Sequence[str]) -> str:
    parts = [
        f"{name} {row.mean:.0f}%" for name in names for row in pick_line(rows, name, CLUSTER_UNBIASED.setting)[-1:]
    ]
    return (
        "The modified loss with beta = lambda is of no use with a small floor tau: a label is kept with probability of "
        f"about tau (e^epsilon_2 - 1), and the targets grow as its inverse (at epsilon 1: {', '.join(parts)}). The paper's "
        "Corollary 2 has beta = 0, training on the labels as they are: that is the row `ClusterRR, plain`."
    )


def _count(row: StudyRow) -> int:
    found = re.search(r"(\d+) clusters", row.setting)
    return int(found.group(1)) if found else 0


def _by_count(rows: Sequence[StudyRow], name: str, treatment: Treatment) -> list[StudyRow]:
    table = clusters_table(name)
    mine = [row for row in rows if row.table == table and row.setting.startswith(treatment.setting)]
    return sorted(mine, key=_count)


def _clusters(rows: Sequence[StudyRow], name: str) -> str:
    parts = []
    for treatment in (CLUSTER, CLUSTER_BOTH):
        values = ", ".join(f"{_count(row)}: {row.mean:.1f}" for row in _by_count(rows, name, treatment))
        parts.append(f"{treatment.setting} {values}")
    return f"{name}, number of clusters at epsilon {CLUSTERS_EPSILON:g}: " + "; ".join(parts) + "."


def _binary(rows: Sequence[StudyRow], table: str) -> str:
    first, second = (CLUSTER.setting, STAGES.setting)
    plain = _verdict(pick_line(rows, table, first), pick_line(rows, table, second), second)
    first, second = (CLUSTER_BOTH.setting, STAGES_FORWARD.setting)
    best = _verdict(pick_line(rows, table, first), pick_line(rows, table, second), second)
    return f"{table}, a curator's ClusterRR beside LP-2ST, which trusts no one: {CLUSTER.setting} {plain}; {first} {best}. Nine in ten labels are of one class here."


ACCOUNTING = (
    "Epsilon is the true total everywhere. The dashed line is the same noise where the paper's Theorem 1 would have put "
    "it: its histogram term is half of what a changed label costs, since it moves two counts. At the default split it "
    "claims 0.75 epsilon. With two classes one count is released, and there is no gap."
)
CHOSEN = (
    "ClusterRR and RRWithPrior trust a curator with the labels for their histogram; UniformRR and LP-2ST trust no one: at "
    "the same epsilon that is not the same promise. Two settings were fixed while prototypes on MNIST and Fashion-MNIST "
    "showed test accuracy for one seed: the penalty's rule was taken without a factor (a quarter of it was also seen, "
    "and favours ClusterRR over unbiased UniformRR), and tau = 1/K with the library's rule for the histogram's share was taken for "
    "`ClusterRR, histogram` (other shares and floors were also seen). Test labels are taken as public."
)


def _against_epsilon(rows: Sequence[StudyRow], table: str) -> Lines:
    settings = dict.fromkeys(row.setting for row in rows if row.table == table and math.isfinite(row.epsilon))
    # Two points near chance; a line on top of another, where eight can be told apart; and the one that is drawn first.
    left_out = {CLUSTER_UNBIASED.setting, CLUSTER_FORWARD.setting, CLUSTER.setting}
    plain = pick_line(rows, table, CLUSTER.setting)
    series = [_series(CLUSTER.setting, plain)]
    if any(read_claim(row) < row.epsilon - NEAR for row in plain):
        series.append(_series("the same, as the paper would claim it", plain, claimed=True))
    series += [_series(name, pick_line(rows, table, name)) for name in settings if name not in left_out]
    return Lines(
        title=f"{table}: accuracy against epsilon",
        series=tuple(series),
        x_title="epsilon, the true total (dashed: the paper's claim)",
        y_title="share of the accuracy without privacy, %",
        alt="; ".join(f"{one.name} from {one.y[0]:.0f}% to {one.y[-1]:.0f}%" for one in series),
        x_log=True,
    )


def read_claim(row: StudyRow) -> float:
    """Return what the paper would claim, from the note of a row of ClusterRR."""
    return float(row.note.rsplit(" ", 1)[-1])


def _series(name: str, rows: Sequence[StudyRow], *, claimed: bool = False) -> Series:
    return Series(
        name=name,
        x=tuple(read_claim(row) if claimed else row.epsilon for row in rows),
        y=tuple(row.mean for row in rows),
        spreads=tuple(row.spread for row in rows),
    )


def _against_count(rows: Sequence[StudyRow], names: Sequence[str]) -> Lines:
    series = []
    for name in names:
        for treatment in (CLUSTER, CLUSTER_BOTH):
            mine = _by_count(rows, name, treatment)
            x, y = tuple(float(_count(row)) for row in mine), tuple(row.mean for row in mine)
            spreads = tuple(row.spread for row in mine)
            series.append(Series(name=f"{name}, {treatment.setting}", x=x, y=y, spreads=spreads))
    return Lines(
        title=f"Number of clusters at epsilon {CLUSTERS_EPSILON:g}",
        series=tuple(series),
        x_title="clusters",
        y_title="share of the accuracy without privacy, %",
        alt="; ".join(f"{one.name} from {one.y[0]:.0f}% to {one.y[-1]:.0f}%" for one in series),
        x_log=True,
    )
