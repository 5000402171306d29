"""What an attacker makes of the things a pipeline publishes: guesses of labels, beside the bound on what she can gain.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> labels = np.arange(10_000) % 2
>>> release = privatize(labels, RandomizedResponse(1.0, n_classes=2), rng=0)
>>> found = attack_release(release, labels)
>>> round(found.bound, 3), found.advantage_interval[0] <= found.bound
(0.231, True)

`label_inference` counts how often the best guess is right, with and without what was released. `attack_release` makes the
guesses from a release. `release_scores` and `model_scores` give a score for every example and label, which is what
`canary_audit` guesses from:

>>> release_scores(release).shape
(10000, 2)

`accuracy_audit` looks at the other side: whether as many labels survive as was claimed.

>>> found = accuracy_audit(lambda labels: labels * 0, prior=[0.5, 0.5], claimed=0.7, n_draws=10_000, seed=0)
>>> found.rejected, found.upper_bound < 0.55
(True, True)

References: Yeom et al. 2018 (advantage); Wu et al. 2022 (label inference under label privacy); Kairouz et al. 2015 (the
region of error rates).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.audit.channel import Run
from labeldp.audit.results import (
    OWNERS_ALONE,
    Check,
    audit_card,
    check_confidence,
    claimed_epsilon,
    lower_limit,
    upper_limit,
)
from labeldp.display import percent
from labeldp.errors import Described, invalid
from labeldp.guarantee import advantage_bound
from labeldp.release import Release
from labeldp.release.labels import as_plain
from labeldp.validate import check_delta, check_integer, check_probability_rows, check_real

Interval = tuple[float, float]
OWNER = "label_inference"
#: Probabilities below this count as this: a score is finite, and a label that cannot be still comes last.
LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class LabelInference:
    """An attacker's accuracy with and without the release, the difference, and the most that it can be.

    Intervals are exact (Clopper and Pearson), at `confidence` each, for rows that are independent draws. `bound` is None
    where nothing was claimed; `exceeded` says that the whole interval of the advantage lies above it.
    """

    accuracy: float
    accuracy_interval: Interval
    prior_accuracy: float
    advantage: float
    advantage_interval: Interval
    bound: float | None
    two_label_bound: float | None
    confidence: float
    n: int

    @property
    def exceeded(self) -> bool:
        """Whether the attacker did better than the claim allows, at this confidence."""
        return self.bound is not None and self.advantage_interval[0] > self.bound

    def check(self) -> Check:
        """Return the attack as one check."""
        low, high = self.advantage_interval
        allowed = "nothing claimed" if self.bound is None else f"at most {self.bound:.4f} is allowed"
        detail = (
            f"guesses right {self.accuracy:.4f}, without the release {self.prior_accuracy:.4f}: "
            f"advantage {self.advantage:.4f} ({low:.4f} to {high:.4f}), {allowed}"
        )
        return Check(name="label inference", passed=not self.exceeded, detail=detail)

    def _repr_html_(self) -> str:
        """Return a card for a notebook."""
        rows = [("for", OWNERS_ALONE), ("confidence", percent(self.confidence))]
        return audit_card("Label inference attack", [self.check()], rows=rows)


def label_inference(
    beliefs: Any, labels: Any, *, prior: Any, claimed: Any = None, delta: float = 0.0, confidence: float = 0.95
) -> LabelInference:
    """Compare an attacker who guesses the likeliest label under `beliefs` with one who knows only `prior`.

    Parameters
    ----------
    beliefs : array of shape (n, K)
        What the attacker believes after the release: a posterior of released labels, or a model's probabilities.
    labels : integer array of shape (n,)
        The true labels.
    prior : array of shape (K,) or (n, K)
        What she believed before. It must be what she can know without these labels: for a model, the probabilities of a
        model trained on other labels. Against a weaker prior, what the features say counts as a leak, and no bound holds.
    claimed : float or Guarantee, optional
        Gives the bounds.
    delta, confidence
        The delta at which the claim is read; the confidence of each interval.

    Guarantee
    ---------
    Let h be the likeliest label before, p its prior, and A_y the outputs after which the attacker guesses y. Given all
    other labels, her gain is

        sum_y p_y P_y(A_y) - p_h = sum over y != h of (p_y P_y(A_y) - p_h P_h(A_y)) <= sum over y != h of
        p_y (P_y(A_y) - P_h(A_y)) <= (1 - p_h) (E - 1 + 2 delta) / (E + 1),

    by p_h >= p_y and `advantage_bound`. `bound` is the mean of that over examples, `two_label_bound` the factor alone.
    It is a bound on the expected gain of one attacker with this prior; it holds as far as labels do follow the prior.
    """
    after = check_probability_rows(OWNER, "beliefs", beliefs)
    n, k = after.shape
    before = np.broadcast_to(check_probability_rows(OWNER, "prior", np.atleast_2d(prior)), (n, k))
    truth = _check_labels(labels, n, k)
    share, sure = check_delta(OWNER, delta), check_confidence(OWNER, confidence)
    epsilon = claimed_epsilon(OWNER, claimed, share)
    right, right_before = after.argmax(axis=1) == truth, before.argmax(axis=1) == truth
    factor = None if epsilon is None else advantage_bound(epsilon, delta=share)
    return LabelInference(
        accuracy=float(right.mean()),
        accuracy_interval=_bound_share(int(right.sum()), n, level=1.0 - sure),
        prior_accuracy=float(right_before.mean()),
        advantage=float(right.mean() - right_before.mean()),
        advantage_interval=_bound_difference(right, right_before, level=1.0 - sure),
        bound=None if factor is None else factor * float(1.0 - before.max(axis=1).mean()),
        two_label_bound=factor,
        confidence=sure,
        n=n,
    )


def attack_release(
    release: Release, labels: Any, *, prior: Any = None, delta: float = 0.0, confidence: float = 0.95
) -> LabelInference:
    """Attack a release by Bayes' rule, with the channel that it carries.

    Parameters
    ----------
    release : Release
        What was released; its guarantee is the claim.
    labels : integer array of shape (n,)
        The true labels as codes. The answer depends on them without noise: it is for their owner.
    prior : array of shape (K,) or (n, K), optional
        What the attacker knew before; uniform if left out.
    delta, confidence
        As in `label_inference`, whose answer this is.
    """
    belief = np.full(release.n_classes, 1.0 / release.n_classes) if prior is None else np.asarray(prior, np.float64)
    posterior = release.channel.posterior(belief, release.codes)
    return label_inference(
        posterior, labels, prior=belief, claimed=release.guarantee, delta=delta, confidence=confidence
    )


def _check_labels(labels: Any, n: int, k: int) -> npt.NDArray[Any]:
    """Return n labels as codes 0 .. k - 1."""
    truth = as_plain(labels)
    if truth.shape != (n,) or truth.dtype.kind not in "iu" or (n and not 0 <= int(truth.min()) <= int(truth.max()) < k):
        got = Described(f"an array of shape {truth.shape} and dtype {truth.dtype}")
        raise invalid(OWNER, "labels", f"be {n} integers in [0, {k - 1}]", got=got)
    return truth


def _bound_share(successes: int, trials: int, *, level: float) -> Interval:
    """Return limits of a binomial share, each at half of the level."""
    low = lower_limit(successes, trials, level=level / 2)
    return float(low), float(upper_limit(successes, trials, level=level / 2))


def _bound_difference(after: npt.NDArray[np.bool_], before: npt.NDArray[np.bool_], *, level: float) -> Interval:
    """Return limits of Pr[right after] - Pr[right before], from the rows on which the two differ.

    The difference is Pr[only after] - Pr[only before]; each of the two counts is binomial and gets half of the level.
    """
    n = len(after)
    gained = _bound_share(int((after & ~before).sum()), n, level=level / 2)
    lost = _bound_share(int((before & ~after).sum()), n, level=level / 2)
    return gained[0] - lost[1], gained[1] - lost[0]


@dataclass(frozen=True, kw_only=True)
class AccuracyAudit:
    """An upper bound on how often a released label is the true one, beside the accuracy that was claimed."""

    upper_bound: float
    confidence: float
    claimed: float
    n_draws: int

    @property
    def rejected(self) -> bool:
        """Whether the claimed accuracy is refuted, at this confidence."""
        return self.upper_bound < self.claimed

    def check(self) -> Check:
        """Return the audit as one check."""
        detail = f"accuracy <= {self.upper_bound:.4f}, {self.claimed:.4f} claimed; {self.n_draws:,} draws"
        return Check(name="accuracy", passed=not self.rejected, detail=detail)

    def _repr_html_(self) -> str:
        """Return a card for a notebook."""
        return audit_card("Audit of accuracy", [self.check()], rows=[("confidence", percent(self.confidence))])


def accuracy_audit(
    run: Run, *, prior: Any, claimed: float, n_draws: int = 100_000, confidence: float = 0.95, seed: int | None = None
) -> AccuracyAudit:
    """Draw labels from `prior`, release them, and bound from above how often they stay what they were.

    A mechanism that is private but keeps fewer labels than it claims is caught so. `run` is as in `channel_audit`,
    `prior` an array of shape (K,), `claimed` the accuracy to refute, `seed` that of the labels alone. The number of labels
    that stay is binomial when examples are randomized independently; the limit is exact.
    """
    owner = "accuracy_audit"
    shares = check_probability_rows(owner, "prior", np.atleast_2d(prior))[0].astype(np.float64)
    size = check_integer(owner, "n_draws", n_draws, least=1)
    sure = check_confidence(owner, confidence)
    labels = np.random.default_rng(seed).choice(len(shares), size, p=shares / shares.sum())
    kept = int((np.asarray(run(labels)) == labels).sum())
    bound = float(upper_limit(kept, size, level=1.0 - sure))
    promised = check_real(owner, "claimed", claimed)
    return AccuracyAudit(upper_bound=bound, confidence=sure, claimed=promised, n_draws=size)


def release_scores(release: Release) -> Floats:
    """Return log Pr[what was released | label y], of shape (n, K), for every row, answered or not, and label y.

    The logarithm of a prior that was released is added to it: where a histogram reveals a label, the response to it may
    be constant and say nothing. For `canary_audit` and `Pipeline`, with `references=0`.
    """
    answer: Floats = np.log(np.maximum(release.channel.likelihood(release.codes), LEAST))
    if release.prior is not None and release.prior_index is not None:
        prior = np.log(np.maximum(np.asarray(release.prior, np.float64), LEAST))
        answer = answer + prior[release.prior_index]
    if release.rows is None:
        return answer
    whole = np.zeros((release.rows_in_all, release.n_classes))  # a row without an answer speaks for no label
    whole[release.rows] = answer
    return whole


def model_scores(model: Any, X: Any) -> Floats:
    """Return the logarithm of a fitted classifier's `predict_proba(X)`, of shape (n, K).

    For `canary_audit` and `Pipeline`, with a reference run: it removes what the features say anyway.
    """
    answer: Floats = np.log(np.maximum(np.asarray(model.predict_proba(X), np.float64), LEAST))
    return answer
