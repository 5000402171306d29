"""`release_page`: everything about one release that its reader should know, on one page.

>>> import pathlib, tempfile
>>> import labeldp
>>> folder = tempfile.TemporaryDirectory()
>>> place = pathlib.Path(folder.name) / "release"
>>> labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=7).save(place)
>>> text = release_page(place, interactive=False)
>>> "73.2%" in text, "Not private" in text  # a seed stands behind this one
(True, True)
>>> folder.cleanup()

Design notes. The release is loaded as any reader loads it: every checksum and the promise are checked first, and a page
about a damaged release is never made. Of ten million rows only counts are taken. The page holds no label of a row, and
no number on it was computed from a raw label.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from labeldp.accounting import Ledger
from labeldp.release import load_release
from labeldp.report._changes import against_epsilon, changes, stages
from labeldp.report._page import page
from labeldp.report._promise import inference, protection
from labeldp.report._rates import rates
from labeldp.report._records import audit_section, ledger_section, model_section, versions_section
from labeldp.report._words import cost, in_words


def release_page(
    directory: str | os.PathLike[str],
    *,
    ledger: Ledger | None = None,
    audit: dict[str, Any] | None = None,
    model_facts: dict[str, Any] | None = None,
    interactive: bool = True,
) -> str:
    """Return one self-contained HTML page about a release directory.

    `ledger`: where the release was charged; its chain is checked. `audit`: the JSON object that `labeldp audit` writes.
    `model_facts`: `facts_` of a loaded model. `interactive`: embed Plotly (2 MB), or leave static drawings alone.
    """
    release = load_release(directory)
    manifest = json.loads((Path(directory) / "release.json").read_text(encoding="utf-8"))
    found = rates(release)
    sections = [
        protection(release, manifest),
        inference(release.guarantee),
        changes(release, found),
        against_epsilon(release, found) if release.channel.outputs_are_labels else None,
        stages(release),
        model_section(model_facts, release),
        ledger_section(release, ledger),
        audit_section(audit, release),
        versions_section(release, manifest),
    ]
    return page(
        f"Release report: {release.label_set}",
        sections=[section for section in sections if section is not None],
        lead=f"{len(release):,} labels, {release.guarantee}. {_lead(release.guarantee)}",
        seeded=release.seeded,
        interactive=interactive,
    )


def _lead(promise: Any) -> str:
    words = in_words(*cost(promise))
    return f"{words[0].upper()}{words[1:]}."
