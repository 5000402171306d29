"""`canary_audit`: one training run, many planted labels, and a lower bound on the epsilon of the whole pipeline.

>>> import numpy as np
>>> labels = np.zeros(400, np.int64)
>>> honest = canary_audit(lambda y: np.zeros((len(y), 2)), labels, n_classes=2, seed=0)  # ignores the labels
>>> leaky = canary_audit(lambda y: np.eye(2)[y], labels, n_classes=2, references=0, claimed=1.0, seed=0)
>>> honest.lower_bound, leaky.rejected, round(leaky.lower_bound, 1)
(0.0, True, 4.3)

References: Steinke, Nasr & Jagielski 2023 (one training run). The proof below is for labels, and takes a shorter way to
a bound for delta > 0.

Design notes. Others' one-run audits have failed under the null where they chose the number of guesses by the number of
right ones. Here it is a function of the scores alone, and the few shares that are tried divide the level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Float64s, Int64s
from labeldp.audit.results import (
    Check,
    Progress,
    audit_card,
    bound_check,
    check_confidence,
    claimed_epsilon,
    lower_limit,
    say_bound,
)
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.release.labels import as_plain
from labeldp.release.persons import Persons
from labeldp.validate import check_delta, check_integer

Train = Callable[[Int64s], Any]

#: Canaries unless a number is given: enough for a bound of 0.8 where epsilon is 1 and the attack is the best one.
CANARIES = 1000
#: The shares of canaries that are guessed, the surest first; the level is divided among them.
SHARES = (0.125, 0.5, 1.0)
#: The share of the level that is spent. An alarm at exactly 5 % would come more than ten times in 200 runs of a null two
#: times in five, which looks like a fault; at a quarter of it, once in 19,000 times. It costs about 0.04 of epsilon.
SPENT = 0.25
OWNER = "canary_audit"


@dataclass(frozen=True, kw_only=True)
class CanaryAudit:
    """A lower bound on epsilon at `delta` from `right` of `guesses` planted labels, in one run of the pipeline."""

    lower_bound: float
    confidence: float
    delta: float
    claimed: float | None
    n_canaries: int
    guesses: int
    right: int

    @property
    def rejected(self) -> bool:
        """Whether the claim is refuted, at this confidence."""
        return self.claimed is not None and self.lower_bound > self.claimed

    def check(self) -> Check:
        """Return the audit as one check."""
        detail = (
            f"at confidence {self.confidence:g}, delta {self.delta:g}: "
            f"{self.right:,} of {self.guesses:,} guesses right, {self.n_canaries:,} canaries"
        )
        return bound_check("canaries", self.lower_bound, self.claimed, detail=detail)

    def _repr_html_(self) -> str:
        """Return a card for a notebook."""
        rows = [("lower bound", say_bound(self.lower_bound, self.confidence))]
        return audit_card("Audit by canaries", [self.check()], rows=rows)


def canary_audit(
    train: Train,
    labels: Any,
    *,
    n_classes: int,
    canaries: Any = None,
    persons: Any = None,
    references: int = 1,
    confidence: float = 0.95,
    delta: float = 0.0,
    claimed: Any = None,
    seed: int | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> CanaryAudit:
    """Plant labels by fair coins, train once, guess the coins from what came out, and bound epsilon.

    A canary is a label; with `persons` it is a person, and one coin chooses all her labels together.

    Parameters
    ----------
    train : callable
        Takes integer labels, one per example, runs the whole pipeline, and returns scores (n, n_classes): the larger
        scores[i, y], the likelier label y of example i looks to an attacker. `model_scores` and `release_scores` make
        them. Whatever the pipeline publishes may be used; the labels it was given may not.
    labels : integer array of shape (n,)
        The labels 0 .. n_classes - 1 that are not planted, and one of the two labels of each canary. If they are someone's
        real ones, the bound is for their owner: no noise protects it. Made-up labels serve as well.
    canaries : int or integer array, optional
        How many, or which rows. By default 1000, or every row where there are fewer. With `persons`: how many persons, or which of
        them, numbered as they first occur.
    persons : column of ids, optional
        Who owns each row: the bound is then for all labels of one person replaced. `claimed`, where it is a `Guarantee`, must be
        about what is planted.
    references : int
        Further runs with coins of their own, whose mean score is subtracted: it removes what the features say anyway.
        Right for scores of a model; for scores of released labels it is noise, so use 0.
    n_classes, confidence, delta, claimed
        K; the probability with which the bound holds; the delta of its epsilon; what is to be refuted.
    seed : int, optional
        Of the coins, the rows and the other labels.
    n_jobs, progress
        Runs at once, through joblib; told (done, total).

    Guarantee
    ---------
    *Statement.* If `train` is (epsilon, delta)-private when one label is replaced (with `persons`, all labels of one person),
    Pr[lower_bound > epsilon] <= 1 - confidence. Nothing is assumed about how canaries affect each other.

    *Proof.* Canary i has two fixed labels and a fair coin S_i that chooses one; the coins are independent, and w is what
    came out of the run. Guesses are a function of w and of public things. Fix i and the coins before it. Let P_t be the law
    of w given these and S_i = t: averaging over the later coins keeps P_1 <= E P_0 and P_0 <= E P_1 for E = e^epsilon
    when delta = 0, since the two runs differ in one label, or in those of one person. By Bayes Pr[S_i = t | w, S_1 .. S_(i-1)] = P_t / (P_0 + P_1)
    <= E / (E + 1) = q. So, given w, each guess is right with probability at most q whatever the earlier ones were, and
    the number of right ones among the r(w) guesses made is stochastically below Binomial(r, q). Its upper tail is
    computed exactly; the limit of Clopper and Pearson inverts it, and epsilon >= log(q / (1 - q)).

    For delta > 0 the chance may exceed q, by X_i = max_t (P_t - E P_(1-t))_+ / ((E + 1)(P_0 + P_1)), at most one t having
    a positive part. The mean of X_i over w, whose density is (P_0 + P_1) / 2, is at most 2 delta / (2 (E + 1)). Couple
    each guess with a coin of chance q: it is right if the coin is, or else by an excess that happens with probability X_i.
    The probability of any excess is at most m delta / (E + 1) <= m delta / 2 for m canaries, and without one the binomial
    bound stands. So 1 - confidence - m delta / 2 is left for the binomial tail, of which a quarter is spent (`SPENT`).

    *Edge cases.* Where m delta / 2 uses up the level the bound is 0: use fewer canaries. A score of exactly 0 after the
    reference is subtracted is no guess; a training that ignores its labels guesses at random and gets 0.
    """
    k = check_integer(OWNER, "n_classes", n_classes, least=2)
    codes = _check_labels(labels, k)
    sure, share = check_confidence(OWNER, confidence), check_delta(OWNER, delta)
    epsilon = claimed_epsilon(OWNER, _claim_about(claimed, persons), share)
    runs = 1 + check_integer(OWNER, "references", references, least=0)
    rng = np.random.default_rng(seed)
    owners = None if persons is None else Persons.of(persons, n_rows=len(codes), owner=OWNER)
    chosen = _choose_rows(canaries, len(codes) if owners is None else owners.n_persons, rng)
    rows, whose = chosen, np.arange(len(chosen))
    if owners is not None:  # all rows of the chosen persons, and which of them each row belongs to
        place = np.full(owners.n_persons, -1, np.int64)
        place[chosen] = whose
        rows = np.flatnonzero(place[owners.codes] >= 0)
        whose = place[owners.codes[rows]]
    other = (codes[rows] + rng.integers(1, k, len(rows))) % k
    coins = rng.integers(0, 2, (runs, len(chosen))).astype(bool)
    scores = _train_on_coins(train, codes, rows, other, coins[:, whose], k=k, n_jobs=n_jobs, progress=progress)
    if owners is not None:  # what speaks for a person's coin is what speaks for it in all her rows
        scores = np.array([np.bincount(whose, weights=one, minlength=len(chosen)) for one in scores])
    centred = scores[0] - scores[1:].mean(axis=0) if runs > 1 else scores[0]
    level = SPENT * (1.0 - sure - len(chosen) * share / 2)
    bound, guesses, right = one_run_bound(centred, coins[0], level=level)
    return CanaryAudit(
        lower_bound=bound,
        confidence=sure,
        delta=share,
        claimed=epsilon,
        n_canaries=len(chosen),
        guesses=guesses,
        right=right,
    )


def _claim_about(claimed: Any, persons: Any) -> Any:
    """Return the claim about what is planted: labels, or persons. One about labels says nothing of a person."""
    if not isinstance(claimed, Guarantee):
        return claimed
    if persons is None:
        return claimed.for_labels() if claimed.unit is Unit.PERSON else claimed
    if claimed.unit is Unit.LABEL:
        fix = "Claim claimed.for_persons(most_rows), or leave out persons."
        raise invalid(OWNER, "claimed", "be about persons where persons are planted", got=claimed.unit.value, fix=fix)
    return claimed


def one_run_bound(scores: Any, coins: Any, *, level: float, shares: Sequence[float] = SHARES) -> tuple[float, int, int]:
    """Return (lower bound on epsilon, guesses made, guesses right).

    Parameters
    ----------
    scores : array of shape (m,)
        For each canary, how much speaks for "the coin fell on 1". A positive score guesses 1, a negative one 0, and 0
        does not guess. The larger the number, the surer the guess.
    coins : boolean array of shape (m,)
        How the coins fell.
    level : float
        The probability with which the bound may be too large.
    shares : sequence of float
        The shares of canaries to guess, the surest first. The best bound is returned, so each spends its part of the
        level. They must not depend on the coins.
    """
    value, truth = np.asarray(scores, np.float64), np.asarray(coins, bool)
    order = np.argsort(-np.abs(value), kind="stable")
    order = order[: np.count_nonzero(value)]
    hits = np.cumsum((value > 0)[order] == truth[order])
    found = [(0.0, 0, 0)]
    for share in shares:
        guesses = min(round(share * len(value)), len(order))
        if guesses and level > 0:
            right = int(hits[guesses - 1])
            found.append((log_odds(right, guesses, level=level / len(shares)), guesses, right))
    return max(found)


def log_odds(right: int, guesses: int, *, level: float) -> float:
    """Return the epsilon whose q = e^epsilon / (1 + e^epsilon) is the lower limit of `right` of `guesses`, at least 0."""
    share = float(lower_limit(right, guesses, level=level))
    return float(np.log(share / (1.0 - share))) if share > 0.5 else 0.0


def _train_on_coins(
    train: Train,
    codes: Int64s,
    rows: Int64s,
    other: Int64s,
    coins: npt.NDArray[np.bool_],
    *,
    k: int,
    n_jobs: int,
    progress: Progress | None,
) -> Float64s:
    """Run the training once for each row of coins, and return how much its scores prefer each canary's other label.

    A coin that fell on 1 plants the other label. The answer has a row for each run and a column for each canary.
    """
    from joblib import Parallel, delayed

    planted = []
    for fell in coins:
        labels = codes.copy()
        labels[rows] = np.where(fell, other, codes[rows])
        planted.append(labels)
    found = []
    for scores in Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(delayed(train)(y) for y in planted):
        table = _check_scores(scores, (len(codes), k))
        found.append(table[rows, other] - table[rows, codes[rows]])
        if progress is not None:
            progress(len(found), len(coins))
    return np.array(found)


def _check_scores(scores: Any, shape: tuple[int, int]) -> Float64s:
    """Return scores as floats of this shape, all finite."""
    table = np.asarray(scores, np.float64)
    if table.shape != shape:
        got = Described(f"an array of shape {table.shape}")
        raise invalid(OWNER, "train", f"return scores of shape {shape}", got=got, fix="A row per label that it got.")
    if not np.isfinite(table).all():
        raise invalid(
            OWNER, "train", "return finite scores", got=Described("some that are not"), fix="Clip logarithms."
        )
    return table


def _check_labels(labels: Any, k: int) -> Int64s:
    """Return labels as codes 0 .. k - 1, one per example."""
    array = as_plain(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(OWNER, "labels", "be integer labels, one per example", got=got)
    if int(array.min()) < 0 or int(array.max()) >= k:
        raise invalid(
            OWNER, "labels", f"be in [0, {k - 1}]", got=Described(f"{int(array.min())} .. {int(array.max())}")
        )
    return array.astype(np.int64)


def _choose_rows(canaries: Any, n: int, rng: np.random.Generator) -> Int64s:
    """Return the rows of the canaries: the ones that are named, or as many as wanted, drawn without replacement."""
    if canaries is None or np.ndim(canaries) == 0:
        count = min(CANARIES, n) if canaries is None else check_integer(OWNER, "canaries", canaries, least=1, most=n)
        return rng.choice(n, count, replace=False)
    rows = np.asarray(canaries)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) != len(rows) or not len(rows):
        raise invalid(OWNER, "canaries", "be row numbers, each once", got=Described(f"{rows.dtype} {rows.shape}"))
    if int(rows.min()) < 0 or int(rows.max()) >= n:
        raise invalid(OWNER, "canaries", f"be in [0, {n - 1}]", got=Described("a row outside"))
    return rows.astype(np.int64)
