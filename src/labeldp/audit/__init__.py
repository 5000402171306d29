"""Audits: lower bounds on epsilon, attacks and checks, from what can be called or read and from nothing that is claimed.

>>> from labeldp.audit import Randomizer, audit
>>> found = audit(Randomizer(run=lambda labels: labels, n_classes=2, claimed=1.0), n_draws=20_000)  # reveals everything
>>> found.passed, found.lower_bound > 5
(False, True)

A rejection carries a confidence. An acceptance promises nothing: an attack that fails proves no privacy.

`audit` is all that most users need: it takes a release or its directory, a mechanism (`Randomizer`) or a training
(`Pipeline`). The single audits are `channel_audit` and `canary_audit`; `attack_release` is what an attacker makes of one
release. `release_scores` and `model_scores` turn what a training publishes into the scores that a `Pipeline` returns.

Where to read on. `suite`: the whole audit. `channel`, `canary`, `inference`: the three ways to attack. `static`,
`contents`: checks that only read, of what a release claims and of what stands in it. `results`: what comes out, and the confidence limits under all of it.

Design notes. Nothing here imports a mechanism or a learner: an audit cannot trust the claim that it checks. The auditor's
own coins and labels come from NumPy; they protect no one.
"""

from labeldp.audit.canary import canary_audit
from labeldp.audit.channel import channel_audit, number_answers
from labeldp.audit.inference import attack_release, model_scores, release_scores
from labeldp.audit.results import Audit
from labeldp.audit.suite import Pipeline, Randomizer, audit

__all__ = [
    "Audit",
    "Pipeline",
    "Randomizer",
    "attack_release",
    "audit",
    "canary_audit",
    "channel_audit",
    "model_scores",
    "number_answers",
    "release_scores",
]
