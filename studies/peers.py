r"""The study `peers`: what a learner gets from peers who report each other's flipped labels, and what she learns of one of them.

Binary labels in clusters of n peers, a share p of them positive. Three things cost the learner: flips (alpha), peers who take
part by chance (theta), and peers who drop out. She estimates the share of positives of each cluster and takes its majority as
the label of its members. Both errors have exact expectations here, and stand beside draws.

>>> exact = expect_share_error(200, share=0.2, alpha=0.1, theta=1.0)
>>> round(100 * exact, 2), round(100 * expect_share_error(200, share=0.2, alpha=0.1, theta=0.25), 2)
(4.69, 8.24)

**The error of a share.** Let a of the n peers survive to the end. A survivor reports with probability theta a / n, the noisy
label of a uniform survivor (`labeldp.peers.PeerRun.guarantee`). Given m >= 1 reports of a noisy labels of which X are positive,
their mean M has mean X / a and variance (X/a)(1 - X/a)/m. With mu = alpha + (1 - 2 alpha) p and v = alpha (1 - alpha) / a,
where survivors are a random a of n, so that their own share has variance s = p (1 - p) / a (n - a) / (n - 1),

    Var M = w + (mu (1 - mu) - w) E[1/m | m >= 1],      w = v + (1 - 2 alpha)^2 s,

and the estimate (M - alpha) / (1 - 2 alpha) has 1 / (1 - 2 alpha)^2 of that.

**The excess risk.** A hypothesis gives each cluster a label; the best takes the true majority. The one that the reports
suggest errs on top by |1 - 2 p| wherever their majority is wrong, of which the probability is a sum over X and m (ties and no
reports count half). Features say nothing here beyond the cluster, so that the heterogeneity of Definition 1 is 0 and Theorem 4
allows 2 alpha and a term that vanishes.

>>> round(100 * expect_excess_risk(20, share=0.3, alpha=0.3, theta=1.0), 2)
11.9

Reference: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022, Label differential privacy via clustering, Algorithm 2, Theorems 3
and 4. The paper has no experiment with its peers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from scipy.stats import binom

from labeldp.accounting.peers import calibrate_peers, peers_epsilon, peers_paper_epsilon, peers_shuffle_epsilon
from labeldp.arrays import Float64s, Int64s
from labeldp.guarantee import Trust
from labeldp.loss.peers import LARGEST_EXACT
from labeldp.mechanisms import PeerToPeerRR
from labeldp.mechanisms.peers import bound_peer_risk
from labeldp.random import NoiseKey
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow, list_tables

SIZE, N_CLUSTERS, SHARE = 200, 100, 0.2
EPSILON, DELTA = 1.0, 1e-5
THETAS, ALPHAS, LOSSES = (0.1, 0.25, 0.5, 0.75, 1.0), (0.05, 0.1, 0.2, 0.3, 0.4), (0.0, 0.1, 0.3, 0.5)
#: Flips where drop-out is varied.
LOSS_ALPHA = 0.1
PART = f"participation: clusters of {SIZE}, alpha made for epsilon {EPSILON:g}, delta {DELTA:g}"
FLIPS = f"flips: clusters of {SIZE}, all take part"
GONE = f"drop-out: clusters of {SIZE}, alpha {LOSS_ALPHA:g}, all others take part"
#: Theorem 4: small clusters of nearly even labels, where majorities do go wrong.
RISK_SIZES, RISK_SHARE = (20, 50, 200), 0.3
RISK = f"Theorem 4: excess risk in points (a share of {RISK_SHARE:g} is positive, all take part)"
#: Theorem 3: its own alpha and delta where they exist, and one that is used.
PRIVACY_SIZES, PRIVACY_ALPHA = (200, 1_000, 5_000), 0.1
PRIVACY = f"Theorem 3 and Lemma 9: epsilon of the learner at delta {DELTA:g} (not points), alpha {PRIVACY_ALPHA:g}"
ERROR = "share of positives, error"


def expect_share_error(n: int, *, share: float, alpha: float, theta: float, lost: float = 0.0) -> float:
    """Return the root mean square error of a cluster's estimated share, given that there is a report."""
    a = round((1.0 - lost) * n)
    signal, mean = 1.0 - 2.0 * alpha, alpha + (1.0 - 2.0 * alpha) * share
    own = share * (1.0 - share) / a * (n - a) / max(n - 1, 1)
    spread = alpha * (1.0 - alpha) / a + signal**2 * own
    m = np.arange(1, a + 1)
    chance = binom.pmf(m, a, theta * a / n)
    inverse = float((chance / m).sum() / chance.sum())
    return math.sqrt(spread + (mean * (1.0 - mean) - spread) * inverse) / signal


@lru_cache(maxsize=64)
def expect_excess_risk(n: int, *, share: float, alpha: float, theta: float) -> float:
    """Return the expected excess risk of the majority of the reports of a cluster over its true majority."""
    positives = round(share * n)
    ones = np.convolve(
        binom.pmf(np.arange(positives + 1), positives, 1 - alpha),
        binom.pmf(np.arange(n - positives + 1), n - positives, alpha),
    )
    wrong = 0.0
    for m, chance in enumerate(binom.pmf(np.arange(n + 1), n, theta)):
        if chance > 0:
            at = np.arange(n + 1) / n
            above, even = binom.sf(m / 2, m, at), binom.pmf(m / 2, m, at) if m % 2 == 0 else 0.0
            wrong += float(chance * (ones * (above + even / 2)).sum())
    return abs(1.0 - 2.0 * positives / n) * wrong


@dataclass(frozen=True, kw_only=True)
class Case:
    """Clusters of `size` peers at one alpha, theta and share of peers who drop out."""

    table: str
    setting: str
    alpha: float
    theta: float = 1.0
    lost: float = 0.0
    size: int = SIZE
    share: float = SHARE

    @property
    def name(self) -> str:
        """Table and row."""
        return f"{self.table}: {self.setting}"

    @property
    def survivors(self) -> int:
        """How many of a cluster are there to the end."""
        return round((1.0 - self.lost) * self.size)

    @cached_property
    def epsilon(self) -> float:
        """What the learner learns of one label, at delta; peers who drop out leave a smaller cluster to hide in."""
        return peers_epsilon(DELTA, cluster_size=self.survivors, alpha=self.alpha, theta=self.theta)

    def draw_reports(self, seed: int) -> tuple[Int64s, Float64s]:
        """Return the number of reports and of positive ones in each of `N_CLUSTERS` clusters."""
        rng = np.random.default_rng(seed)
        labels = np.zeros((N_CLUSTERS, self.size), np.int64)
        labels[:, : round(self.share * self.size)] = 1
        left = rng.permuted(labels, axis=1)[:, : self.survivors]
        groups = np.repeat(np.arange(N_CLUSTERS), self.survivors)
        # A pick outside the survivors is not reported: each of them reports with probability theta a / n.
        mechanism = PeerToPeerRR(self.alpha, theta=self.theta * self.survivors / self.size)
        key = NoiseKey.from_seed(seed).child(self.name)
        reports = mechanism.simulate(left.reshape(-1), groups=groups, rng=key)
        at = groups[reports.rows]
        ones: Float64s = np.bincount(at, weights=reports.labels, minlength=N_CLUSTERS).astype(np.float64)
        return np.bincount(at, minlength=N_CLUSTERS).astype(np.int64), ones

    def measure(self, seed: int) -> Measurement:
        """Return the error of shares, or the excess risk beside Theorem 4."""
        m, ones = self.draw_reports(seed)
        shared: dict[str, Any] = {
            "table": self.table,
            "setting": self.setting,
            "epsilon": self.epsilon,
            "trust": Trust.PEERS.words,
        }
        if self.table != RISK:
            told = m > 0
            estimate = (ones[told] / m[told] - self.alpha) / (1.0 - 2.0 * self.alpha)
            error = math.sqrt(float(np.mean((estimate - self.share) ** 2)))
            terms = {"share": self.share, "alpha": self.alpha, "theta": self.theta, "lost": self.lost}
            expected = 100.0 * expect_share_error(self.size, **terms)
            note = f"delta {DELTA:g}; alpha {self.alpha:.3f}; one peer learns epsilon {self.peer_epsilon:.2f}"
            return Measurement(value=100.0 * error, expected=expected, note=note, **shared)
        wrong = np.where(2 * ones == m, 0.5, 2 * ones > m).mean()
        bound = bound_peer_risk(
            self.size * N_CLUSTERS, alpha=self.alpha, theta=self.theta, heterogeneity=0.0, dimension=N_CLUSTERS
        )
        expected = 100.0 * expect_excess_risk(self.size, share=self.share, alpha=self.alpha, theta=self.theta)
        note = f"delta {DELTA:g}; of Theorem 4, {100 * bound.residual:.0f} stay as n grows; C = 1"
        value = 100.0 * abs(1.0 - 2.0 * self.share) * float(wrong)
        return Measurement(value=value, expected=expected, paper=100.0 * bound.total, note=note, **shared)

    @property
    def peer_epsilon(self) -> float:
        """What the one who is asked reveals to the one who asks."""
        return PeerToPeerRR(self.alpha, theta=self.theta).peer_guarantee.epsilon()


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What the learner learns of one label: exactly, by the paper's Lemma 9, and by shuffling."""

    size: int
    theta: float

    @property
    def name(self) -> str:
        """Size and participation."""
        return f"{PRIVACY}: {self.size:,} peers, theta {self.theta:g}"

    def measure(self) -> Measurement:
        """Compute; nothing is drawn."""
        at: dict[str, Any] = {"cluster_size": self.size, "alpha": PRIVACY_ALPHA}
        paper = peers_paper_epsilon(DELTA, theta=self.theta, **at)
        shuffled = peers_shuffle_epsilon(DELTA, **at)
        exact = peers_epsilon(DELTA, theta=self.theta, **at)
        return Measurement(
            table=PRIVACY,
            setting=f"{self.size:,} peers, theta {self.theta:g}",
            epsilon=exact,
            trust=Trust.PEERS.words,
            value=exact,
            paper=paper if math.isfinite(paper) else None,
            note="; ".join(
                (
                    f"delta {DELTA:g}",
                    f"shuffled flips {shuffled:.3f}",
                    *(["Lemma 9 needs more peers"] if math.isinf(paper) else []),
                    *(["a bound: the cluster is beyond the exact accountant"] if self.size > LARGEST_EXACT else []),
                )
            ),
        )


class Peers(Study["Case | Privacy"]):
    """Participation, flips, drop-out, and the paper's two theorems beside what is exact: a minute."""

    name: ClassVar[str] = "peers"
    title: ClassVar[str] = "Peers instead of a curator: what do flips, participation and drop-out cost?"
    paper: ClassVar[str] = (
        "Esfandiari, Mirrokni, Syed and Vassilvitskii (2022), Label differential privacy via clustering: not measured values "
        "but the bounds of Lemma 9 (Theorem 3) and of Theorem 4 with a constant of 1"
    )
    measure: ClassVar[str] = (
        "error of a cluster's share of positives, points (root mean square); other tables name theirs"
    )
    needs: ClassVar[str] = "nothing"
    default_seeds: ClassVar[int] = 10

    def cases(self) -> Sequence[Case | Privacy]:
        """The five tables."""
        thetas = THETAS[-2:] if self.quick else THETAS
        found: list[Case | Privacy] = []
        for theta in thetas:
            alpha = calibrate_peers(EPSILON, delta=DELTA, cluster_size=SIZE, theta=theta)
            found.append(Case(table=PART, setting=f"theta {theta:g}: {ERROR}", alpha=alpha, theta=theta))
        found += [Case(table=FLIPS, setting=f"alpha {alpha:g}: {ERROR}", alpha=alpha) for alpha in ALPHAS]
        found += [Case(table=GONE, setting=f"lost {lost:g}: {ERROR}", alpha=LOSS_ALPHA, lost=lost) for lost in LOSSES]
        found += [
            Case(table=RISK, setting=f"alpha {alpha:g}, clusters of {n}", alpha=alpha, size=n, share=RISK_SHARE)
            for n in RISK_SIZES
            for alpha in ALPHAS
        ]
        sizes = PRIVACY_SIZES[:1] if self.quick else PRIVACY_SIZES
        return [*found, *(Privacy(size=size, theta=theta) for size in sizes for theta in (1.0, 0.25))]

    def choose_seeds(self, case: Case | Privacy, seeds: Sequence[int]) -> Sequence[int]:
        """One for what is computed and not drawn."""
        return seeds[:1] if isinstance(case, Privacy) else seeds

    def run_case(self, case: Case | Privacy, seed: int) -> Sequence[Measurement]:
        """Draw the reports of a hundred clusters, or compute."""
        return [case.measure() if isinstance(case, Privacy) else case.measure(seed)]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """What each of the three costs, and how far the theorems are from what is measured."""
        return (*(_against(rows, table) for table in (PART, FLIPS, GONE)), _risk(rows), _privacy(rows), LIMITS)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """The error against each of the three."""
        return tuple(_draw(rows, table) for table in (PART, FLIPS, GONE) if table in list_tables(rows))


LIMITS = (
    "Trust: the learner is not trusted, the other peers are, not to tell her whom they asked; the peer who asks sees a flipped "
    "label, and what that reveals is in the notes and is not amplified. Drop-out is by chance here; a peer who leaves because of "
    "her label is outside the guarantee."
)


def _against(rows: Sequence[StudyRow], table: str) -> str:
    mine = [row for row in rows if row.table == table]
    parts = [
        f"{row.setting.split(':')[0]}: {row.mean:.1f} (exact {row.expected:.1f}) at epsilon {row.epsilon:.2f}"
        for row in mine
    ]
    return f"{table[0].upper()}{table[1:]}. Error in points: " + "; ".join(parts) + "."


def _risk(rows: Sequence[StudyRow]) -> str:
    mine = [row for row in rows if row.table == RISK and row.paper is not None]
    worst = max(mine, key=lambda row: row.mean)
    return (
        f"Theorem 4 holds with room: the excess risk is at most {worst.mean:.1f} points ({worst.setting}), where it allows "
        f"{worst.paper:.0f}. Its 2 alpha stays however many peers there are; what is measured falls to "
        f"{min(row.mean for row in mine):.1f}, since a majority survives flips that come alike to both labels."
    )


def _privacy(rows: Sequence[StudyRow]) -> str:
    parts = [
        f"{row.setting}: {row.mean:.3f}" + (f" (Lemma 9: {row.paper:.2f})" if row.paper is not None else "")
        for row in rows
        if row.table == PRIVACY
    ]
    return (
        f"The learner's epsilon (exact up to {LARGEST_EXACT:,} peers) at delta {DELTA:g}, alpha {PRIVACY_ALPHA:g}: "
        + "; ".join(parts)
        + "."
    )


def _draw(rows: Sequence[StudyRow], table: str) -> Plot:
    mine = [row for row in rows if row.table == table]
    x = tuple(float(row.setting.split(":")[0].split(" ")[1]) for row in mine)
    drawn = Series(name="drawn", x=x, y=tuple(row.mean for row in mine), spreads=tuple(row.spread for row in mine))
    exact = Series(name="exact", x=x, y=tuple(float(row.expected or 0.0) for row in mine))
    return Lines(
        title=table,
        series=(drawn, exact),
        x_title=mine[0].setting.split(" ")[0],
        y_title="error of a share, points",
        alt="; ".join(f"{row.setting} {row.mean:.1f}" for row in mine),
    )
