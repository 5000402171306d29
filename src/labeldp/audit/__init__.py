"""Audits: lower bounds on epsilon, attacks and checks, from what can be called or read and from nothing that is claimed.

>>> import numpy as np
>>> from labeldp.audit import Randomizer, audit
>>> found = audit(Randomizer(run=lambda labels: labels, n_classes=2, claimed=1.0), n_draws=20_000)  # reveals everything
>>> found.passed, found.lower_bound > 5
(False, True)

A rejection carries a confidence. An acceptance promises nothing: an attack that fails proves no privacy.

Design notes. Nothing here imports a mechanism or a learner: an audit cannot trust the claim that it checks. The auditor's
own coins and labels come from NumPy; they protect no one.
"""

from labeldp.audit.canary import CanaryAudit, canary_audit, one_run_bound
from labeldp.audit.channel import ChannelAudit, channel_audit, observed_audit
from labeldp.audit.inference import (
    AccuracyAudit,
    LabelInference,
    accuracy_audit,
    attack_release,
    label_inference,
    model_scores,
    release_scores,
)
from labeldp.audit.results import Audit, Check, lower_limit, upper_limit
from labeldp.audit.static import directory_check, ledger_checks, matrix_check, private_check, raw_label_check
from labeldp.audit.suite import Pipeline, Randomizer, audit, door_audit
from labeldp.guarantee import advantage_bound

__all__ = [
    "AccuracyAudit",
    "Audit",
    "CanaryAudit",
    "ChannelAudit",
    "Check",
    "LabelInference",
    "Pipeline",
    "Randomizer",
    "accuracy_audit",
    "advantage_bound",
    "attack_release",
    "audit",
    "canary_audit",
    "channel_audit",
    "directory_check",
    "door_audit",
    "label_inference",
    "ledger_checks",
    "lower_limit",
    "matrix_check",
    "model_scores",
    "observed_audit",
    "one_run_bound",
    "private_check",
    "raw_label_check",
    "release_scores",
    "upper_limit",
]
