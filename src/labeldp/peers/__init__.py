r"""The peer-to-peer mechanism as a real protocol: every user keeps her label, and the learner gets noisy ones.

>>> run = run_peers([0, 1, 1, 0, 1, 0], groups=[0, 0, 0, 1, 1, 1], alpha=0.25, theta=1.0)
>>> len(run.rows), run.lost, run.guarantee.epsilon() <= 1.0987  # log 3
(6, 0, True)

Roles. A *peer* has one label, flips it once with her own noise, asks one uniformly chosen peer of her cluster (herself
included) and reports what she saw. The *learner* hears reports. The *rendezvous* introduces peers to each other and says
who was there to the end; questions and answers go from peer to peer, so it sees no label of any kind.

    peer -> rendezvous   hello(address)              rendezvous -> peer   start(addresses, size and word of her cluster)
    peer -> peer         ask(word)                   peer -> peer         answer(noisy label)
    peer -> rendezvous   ready(who did not answer)   rendezvous -> peer   check, and a knock where others ask her
    peer -> rendezvous   alive, and here             rendezvous -> peer   close(survivors of her cluster)
    peer -> learner      report(noisy label seen), or abstain

Who drops out. Every wait has an end. A survivor was there after the last question, and answered a knock at the place where
she is asked: one whom nobody can reach hides no one. Reports are sent only after the close, and only if the peer who was asked is among
the survivors: the reports then follow the law of the mechanism on the survivors, whose guarantee `PeerRun` derives. As
all reports wait for the close, the time of a report says nothing of the pick either.

Unit. One label replaced: a peer has one label, so that it is hers alone. Who comes as several peers has the promise for each of
them; for all together it is group privacy (`Guarantee.for_persons`).

Who may ask. Those with the word of the cluster, which is new in every run and which its peers and the rendezvous have; the
learner has it not, and has no ticket with which it could come as a peer (`Roster.for_learner`).

Again. A run draws new flips, so two runs with the same labels are two releases, and cost `first.guarantee.then(second.guarantee)`.
No ledger is charged here: nobody but the peers knows whose labels they are.

What is not claimed. Messages are not encrypted: who listens has the words, and gets what any peer may get (`peer_guarantee`).
Give the sockets CURVE keys or a private network where others can listen. A peer who lies about her
label or her pick makes the reports worse, and the others' amplification weaker, at worst down to `peer_guarantee`. What a
rendezvous that lies can learn, and what a peer that lies can do, is in docs/sharp-edges.md.

References: Esfandiari, Mirrokni, Syed, Vassilvitskii, "Label differential privacy via clustering" (2022), Algorithm 2.

Where to read on. `messages`: what is sent, who may send it, how long one waits. `roles`: peer, rendezvous and learner.
`run`: all of them on one machine. Nothing here shares code with the engines. Needs pyzmq: ``pip install 'labeldp[peers]'``.
"""

from labeldp.peers.messages import Roster, Terms  # first: it says which package is missing
from labeldp.peers.roles import Attendance, Learner, Peer, Rendezvous
from labeldp.peers.run import PeerRun, run_peers

__all__ = ["Attendance", "Learner", "Peer", "PeerRun", "Rendezvous", "Roster", "Terms", "run_peers"]
