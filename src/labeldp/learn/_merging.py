"""One release from the parts of a walk, and a walk's beginnings from a release."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from labeldp._validate import code_dtype
from labeldp.channel import CandidateChannel, FiniteChannel
from labeldp.guarantee import Guarantee
from labeldp.learn._walk import Walked, joined
from labeldp.priors import PriorTable
from labeldp.release import Release, SensitiveLabels


def merged(
    walked: Walked,
    stage: npt.NDArray[np.uint8] | None,
    table: PriorTable,
    labels: SensitiveLabels,
    *,
    seeded: bool,
    guarantee: Guarantee,
    mechanism: str,
) -> Release:
    """Return the release of all stages, in the order of the data set; without stages, that of the prior alone."""
    channel: FiniteChannel
    if stage is None:
        codes, channel = silent_labels(table)
    else:
        order = np.argsort(np.concatenate([part.rows for part in walked.parts]), kind="stable")
        codes = np.concatenate([part.codes for part in walked.parts])[order]
        channel = joined([part.channel for part in walked.parts]).take(order)
    return Release(
        codes=codes,
        classes=labels.classes,
        channel=channel,
        guarantee=guarantee,
        mechanism=mechanism,
        seeded=seeded or table.seeded,
        label_set=labels.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        stage=stage,
        prior=None if table.says_nothing else table.rows,
        prior_index=None if table.says_nothing else table.index,
    )


def silent_labels(table: PriorTable) -> tuple[npt.NDArray[np.unsignedinteger], CandidateChannel]:
    """Return the prior's likeliest label of each example, and the channel of one candidate: it says nothing of the label."""
    best = table.rows.argmax(axis=1)[table.index]
    n_classes = table.rows.shape[1]
    alone = np.eye(n_classes, dtype=np.uint8)
    members = np.packbits(alone, axis=1, bitorder="little")[best]
    return best.astype(code_dtype(n_classes)), CandidateChannel(odds=0.0, members=members, n_classes=n_classes)


def is_silent(release: Release) -> bool:
    """Whether a release holds no label's answer: one candidate for each, and odds that favour none."""
    channel = release.channel
    return (
        isinstance(channel, CandidateChannel)
        and channel.odds == 0
        and release.prior is not None
        and bool((channel.sizes == 1).all())
    )


def released_prior(release: Release) -> PriorTable:
    """Return the belief that a release carries, or the uniform one."""
    if release.prior is not None and release.prior_index is not None:
        return PriorTable(rows=release.prior, index=release.prior_index)
    uniform = np.full((1, release.n_classes), 1.0 / release.n_classes)
    return PriorTable(rows=uniform, index=np.zeros(len(release), np.int64))
