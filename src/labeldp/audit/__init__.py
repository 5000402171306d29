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

from labeldp._advantage import advantage_bound
from labeldp.audit._accuracy import AccuracyAudit, accuracy_audit
from labeldp.audit._audit import Pipeline, Randomizer, audit
from labeldp.audit._canary import CanaryAudit, canary_audit, one_run_bound
from labeldp.audit._channel import ChannelAudit, channel_audit
from labeldp.audit._columns import raw_label_check
from labeldp.audit._door import door_audit
from labeldp.audit._inference import LabelInference, attack_release, label_inference
from labeldp.audit._intervals import lower_limit, upper_limit
from labeldp.audit._observed import observed_audit
from labeldp.audit._scores import model_scores, release_scores
from labeldp.audit._static import directory_check, ledger_checks, matrix_check, private_check
from labeldp.audit._values import Audit, Check

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
