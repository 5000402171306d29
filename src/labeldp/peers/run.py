"""`run_peers`: the whole protocol on one machine, as tasks or as processes, and `PeerRun`: what the learner has then.

>>> run = run_peers([1, 0, 1, 1], groups=[0, 0, 0, 0], alpha=0.25, theta=1.0)
>>> run.participates.tolist(), (run.absent, run.lost, run.silent, run.refused)
([True, True, True, True], (0, 0, 0, {}))

Design notes. Tasks and processes run the same code of `roles`; only the addresses differ (inproc or TCP). `conduct` is
`run_peers` behind its checks: with terms of the caller's making, and with `watch`, which is told each phase as it begins
and may do harm to the peers. The tests of drop-out use both.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import secrets
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import zmq
import zmq.asyncio

from labeldp.guarantee import Guarantee, did_not_see
from labeldp.mechanisms import PeerToPeerRR
from labeldp.mechanisms.cluster import check_clusters
from labeldp.mechanisms.peers import check_binary
from labeldp.peers.messages import Roster, Terms, check_share, open_context, open_socket
from labeldp.peers.roles import Attendance, Learner, Peer, Rendezvous, Seat, host_peers, make_peer
from labeldp.validate import check_integer, check_positive

OWNER = "run_peers"
HOST = "127.0.0.1"


class Watch(Protocol):
    """Told the phase that begins, and what hosts the peers: tasks, one per peer, or processes."""

    def __call__(self, phase: str, /, *, tasks: Sequence[asyncio.Task[None]], hosts: Sequence[BaseProcess]) -> None: ...


def run_peers(
    labels_by_peer: Any,
    *,
    groups: Any,
    alpha: float,
    theta: float,
    processes: int = 0,
    timeout: float = 5.0,
    join_timeout: float = 60.0,
    least_share: float = 0.5,
) -> PeerRun:
    """Run the protocol among the peers of one machine and return what the learner received.

    Parameters
    ----------
    labels_by_peer : array of 0 and 1, or of booleans
        The label of each peer. Each is handed to its peer alone; rendezvous and learner get none.
    groups : integer array
        The cluster of each peer, 0 .. C-1 without gaps.
    alpha, theta : float
        As for `labeldp.PeerToPeerRR`.
    processes : int
        Worker processes that host the peers (TCP on this machine); 0 makes every peer a task of this process. A script
        that asks for processes needs the usual `if __name__ == "__main__":`.
    timeout, join_timeout : float
        Seconds of each phase, and of the first, in which processes start. A run takes at most join_timeout + 4 timeout.
    least_share : float
        Peers report nothing if less than this share of their cluster survived, in (0, 1]. Those who never came count as lost.

    Guarantee
    ---------
    `PeerRun.guarantee`, derived there. Noise is always secure: each peer draws from a key of its own.
    """
    truth = check_binary(labels_by_peer)
    clusters, _ = check_clusters(groups, len(truth), owner=OWNER)
    mechanism = PeerToPeerRR(alpha, theta=theta)
    workers = check_integer(OWNER, "processes", processes, least=0)
    share = check_share(OWNER, least_share)
    terms = Terms(
        run=secrets.token_hex(8),
        alpha=mechanism.alpha,
        theta=mechanism.theta,
        rendezvous="",
        learner="",
        timeout=check_positive(OWNER, "timeout", timeout),
        join_timeout=check_positive(OWNER, "join_timeout", join_timeout),
        least_share=share,
        host=HOST if workers else None,
        most_peers=len(truth),
    )
    roster = Roster.of(clusters.tolist())
    seats = [
        Seat(name=name, ticket=roster.tickets[name], label=int(label)) for name, label in enumerate(truth.tolist())
    ]
    return conduct(seats, roster=roster, terms=terms, processes=workers)


def conduct(
    seats: Sequence[Seat],
    *,
    roster: Roster,
    terms: Terms,
    processes: int = 0,
    watch: Watch | None = None,
    make: Callable[[Seat, Terms], Peer] = make_peer,
) -> PeerRun:
    """Run the protocol in an event loop of its own, in a thread of its own: the caller may have a loop already.

    Parameters
    ----------
    seats : sequence of Seat
        The peers: names as on the roster, with their tickets and labels.
    roster, terms : Roster, Terms
        Who may take part, and on what terms; the addresses in `terms` are filled in here.
    processes : int
        Worker processes; 0 for tasks.
    watch : callable, optional
        Told each phase as it begins; see `Watch`.
    make : callable
        Makes the peer of a seat. For tasks only: workers always make honest ones.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="labeldp-peers") as pool:
        work = _conduct(seats, roster=roster, terms=terms, processes=processes, watch=watch, make=make)
        learner, attendance = pool.submit(asyncio.run, work).result()
    return PeerRun.of(learner, attendance)


async def _conduct(
    seats: Sequence[Seat],
    *,
    roster: Roster,
    terms: Terms,
    processes: int,
    watch: Watch | None,
    make: Callable[[Seat, Terms], Peer],
) -> tuple[Learner, Attendance]:
    """Open the two public places, start the peers, hold the run, collect the reports, and clear up."""
    context = open_context(len(seats))
    desk, inbox = open_socket(context, zmq.ROUTER, linger=terms.linger), open_socket(context, zmq.PULL)
    tasks: list[asyncio.Task[None]] = []
    hosts: list[BaseProcess] = []
    try:
        terms = _bind(desk, inbox, terms)
        if processes:
            hosts = _start_workers(seats, terms, processes)
        else:
            tasks = [asyncio.create_task(make(seat, terms).play(context)) for seat in seats]
        told = None if watch is None else functools.partial(watch, tasks=tasks, hosts=hosts)
        rendezvous = Rendezvous(roster=roster, terms=terms, watch=told)
        attendance = await rendezvous.hold(desk)
        learner = Learner(roster=roster.for_learner(), terms=terms)
        await learner.collect(inbox, survivors=attendance.survivors)
        return learner, attendance
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _stop_workers(hosts)
        context.destroy(linger=0)


def _bind(desk: zmq.asyncio.Socket, inbox: zmq.asyncio.Socket, terms: Terms) -> Terms:
    """Bind the places of rendezvous and learner and return the terms that name them."""
    if terms.host is None:
        places = (f"inproc://{terms.run}/rendezvous", f"inproc://{terms.run}/learner")
        desk.bind(places[0])
        inbox.bind(places[1])
    else:
        ports = [socket.bind_to_random_port(f"tcp://{terms.host}") for socket in (desk, inbox)]
        places = (f"tcp://{terms.host}:{ports[0]}", f"tcp://{terms.host}:{ports[1]}")
    return replace(terms, rendezvous=places[0], learner=places[1])


def _start_workers(seats: Sequence[Seat], terms: Terms, processes: int) -> list[BaseProcess]:
    """Start worker processes, each with its share of the peers.

    A server that has imported this once forks them quickly, and it has no threads, locks or labels of ours to copy.
    """
    method = "spawn" if sys.platform == "win32" else "forkserver"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["labeldp.peers.roles"])
    count = min(processes, len(seats))
    shares = [list(seats[first::count]) for first in range(count)]
    make = context.Process  # type: ignore[attr-defined]  # the stubs know it of each kind of context, not of all
    hosts: list[BaseProcess] = [make(target=host_peers, args=(share, terms), daemon=True) for share in shares]
    for process in hosts:
        process.start()
    return hosts


def _stop_workers(hosts: Sequence[BaseProcess]) -> None:
    """Wait a moment for workers to end by themselves, and kill those that do not: nobody listens to them any more."""
    for process in hosts:
        process.join(1.0)
    for process in hosts:
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


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

    @classmethod
    def of(cls, learner: Learner, attendance: Attendance) -> PeerRun:
        """Return the run as the learner may keep it: the reports that it collected, and counts of what went wrong.

        The guarantee follows from `attendance.survivors`. They are the word of the rendezvous, which the learner takes for true.
        """
        roster, terms = learner.roster, learner.terms
        rows = np.array(sorted(learner.reports), dtype=np.intp)
        left = [roster.clusters[name] for name in attendance.survivors]
        return cls(
            mechanism=PeerToPeerRR(terms.alpha, theta=terms.theta),
            rows=rows,
            labels=np.array([learner.reports[int(row)] for row in rows], dtype=np.uint8),
            cluster_sizes=np.bincount(left, minlength=max(roster.clusters.values()) + 1).astype(np.int64),
            n_peers=len(roster.clusters),
            absent=len(roster.clusters) - len(attendance.joined),
            lost=len(attendance.joined - attendance.survivors),
            silent=len(attendance.survivors - learner.heard),
            refused=dict(roster.refused),
        )

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

        *Derivation.* All survivors were there until after the last question of a survivor, and answered the rendezvous
        then at the place where they are asked. So each question to a member of A was answered, and a member of A whom
        nobody asked would have answered too: she is among those whom a report may be of. A survivor takes part with probability theta, picks one of n uniformly, and reports
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
        return replace(promise, assumptions=(*promise.assumptions, *did_not_see("grouping"), LIVENESS, HONEST))

    @property
    def peer_guarantee(self) -> Guarantee:
        """What one peer reveals to those who ask her: all get the same flipped label, so asking often gains nothing."""
        return self.mechanism.peer_guarantee

    def __repr__(self) -> str:
        gone = self.absent + self.lost
        return f"<PeerRun: {len(self.rows)} reports of {self.n_peers} peers, {gone} dropped out, by {self.mechanism!r}>"
