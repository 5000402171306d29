"""`PeerRun`: what the learner has after a run, what it was promised, and what went wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labeldp.guarantee import Guarantee
from labeldp.mechanisms import PeerToPeerRR

#: What the learner's guarantee stands on beside the mechanism's own assumption.
LIVENESS = "whether a peer drops out or answers depends neither on labels and noise nor on who asks her"
HONEST = "the rendezvous names the survivors truthfully, the same to all"


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerRun:
    """The reports of a run: `labels[k]` is what peer `rows[k]` reported, a noisy label of someone in her cluster.

    `cluster_sizes` counts the survivors of each cluster, `n_peers` all who were on the roster. `absent` never said
    hello, `lost` left before the close, `silent` survived but were not heard by the learner, and `refused` counts the
    messages that were dropped, by reason.
    """

    mechanism: PeerToPeerRR
    rows: npt.NDArray[np.intp]
    labels: npt.NDArray[np.uint8]
    cluster_sizes: npt.NDArray[np.int64]
    n_peers: int
    absent: int
    lost: int
    silent: int
    refused: dict[str, int]
    seeded: bool = False

    @property
    def participates(self) -> npt.NDArray[np.bool_]:
        """Whether each peer's report was received."""
        mask = np.zeros(self.n_peers, bool)
        mask[self.rows] = True
        return mask

    @cached_property
    def guarantee(self) -> Guarantee:
        r"""What the learner learns about one label: the worst cluster, at the number of its survivors.

        *Statement.* Let a cluster have n peers at the start and let A, of size a, be its survivors. If A does not
        depend on labels and noise, the reports of the cluster have the profile of `PeerToPeerRR.guarantee_for(a)`, and
        the label of a peer outside A has none: nothing made from it is reported.

        *Derivation.* All survivors were there until after the last question of a survivor, so each question to a
        member of A was answered. A survivor takes part with probability theta, picks one of n uniformly, and reports
        only if her pick is in A. So, independently of each other and of all labels, each of a peers reports with
        probability theta a / n <= theta, and given that she does, her pick is uniform on A. This is the mechanism on A
        with theta a / n for theta; delta does not fall as theta grows (reports dropped at random are a
        post-processing), hence the profile at theta bounds it. Reports that are lost, or refused by a peer because too
        few survived, are dropped by a rule that looks at no label. Nobody picks again, so a pick outside A costs a
        report and no privacy. (Picking again among A would have kept the law of the picks too; it would take another
        round of questions, in which peers can be lost again.)
        """
        sizes = np.unique(self.cluster_sizes[self.cluster_sizes > 0]).tolist()
        parts = [self.mechanism.guarantee_for(size) for size in sizes]
        if not parts:
            return Guarantee.pure(0.0).named("no survivors, no reports")
        promise = Guarantee.in_parallel(parts)
        return replace(promise, assumptions=(*promise.assumptions, LIVENESS, HONEST))

    @property
    def peer_guarantee(self) -> Guarantee:
        """What one peer reveals to those who ask her: all get the same flipped label, so asking often gains nothing."""
        return self.mechanism.peer_guarantee

    def __repr__(self) -> str:
        gone = self.absent + self.lost
        return f"<PeerRun: {len(self.rows)} reports of {self.n_peers} peers, {gone} dropped out, by {self.mechanism!r}>"
