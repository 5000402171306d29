"""What the image studies say in words, from their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from studies.images_cases import NON_PRIVATE, RECIPE
from studies.study import StudyRow


def findings(data: str, rows: Sequence[StudyRow], *, feature_seconds: float) -> tuple[str, ...]:
    """Say who wins where, what the stages bring, and how everything was chosen."""
    return (
        *_winners(rows),
        *_stages(rows),
        *_against_paper(data, rows),
        (
            f"Features were learned without labels in {feature_seconds:.0f} CPU seconds, once for all seeds; the seconds of a "
            "fit stand in its note. Seeds move the noise of the labels, the split, the network and its batches."
        ),
        (
            "Every row is one call with the settings of studies/images_cases.py, the same for all sets. None was chosen by a "
            "label of this run. The rules behind 'auto' come from prototypes that looked at test accuracy on these sets (shared "
            "RECIPES.md says so), so that the best may be optimistic by perhaps half a point. Test labels count as public."
        ),
        (
            "Statistics and the recipe need a curator who sees the labels; LP-1ST, LP-2ST and LP-3ST need no one: at the same "
            "epsilon these are different promises."
        ),
    )


def _by_epsilon(rows: Sequence[StudyRow]) -> dict[float, dict[str, StudyRow]]:
    found: dict[float, dict[str, StudyRow]] = {}
    for row in rows:
        if math.isfinite(row.epsilon):
            found.setdefault(round(row.epsilon, 3), {})[row.setting] = row
    return found


def _said(row: StudyRow) -> str:
    return f"{row.setting} {row.mean:.2f} (sd {row.spread:.2f})"


def _winners(rows: Sequence[StudyRow]) -> list[str]:
    """A sentence per epsilon: the best pure promise, the best of all, and the best that trusts no one."""
    sentences = []
    for epsilon, mine in _by_epsilon(rows).items():
        local = max((row for row in mine.values() if row.trust == "no one"), key=lambda row: row.mean)
        best = max(mine.values(), key=lambda row: row.mean)
        names = dict.fromkeys([best, mine[RECIPE], local])
        sentences.append(
            f"epsilon {epsilon:g}: " + "; ".join(f"{_said(row)}, trusts {row.trust}" for row in names) + "."
        )
    free = [row for row in rows if row.setting == NON_PRIVATE]
    return [
        *sentences,
        *(f"Without privacy the same network reaches {row.mean:.2f} (sd {row.spread:.2f})." for row in free),
    ]


def _stages(rows: Sequence[StudyRow]) -> list[str]:
    """What a second and a third stage bring, at each epsilon."""
    sentences = []
    for fewer, more in (("LP-1ST", "LP-2ST"), ("LP-2ST", "LP-3ST")):
        gains = [
            f"{mine[more].mean - mine[fewer].mean:+.2f} at {epsilon:g}"
            for epsilon, mine in _by_epsilon(rows).items()
            if fewer in mine and more in mine
        ]
        if gains:
            sentences.append(f"{more} against {fewer}, same network, points: {', '.join(gains)}.")
    return sentences


def _against_paper(data: str, rows: Sequence[StudyRow]) -> list[str]:
    """Where the paper's networks, trained on a GPU, are ahead of the best here, and where behind."""
    sentences = []
    for epsilon, mine in _by_epsilon(rows).items():
        best = max(mine.values(), key=lambda row: row.mean)
        printed = [row.paper for row in mine.values() if row.paper is not None]
        if printed:
            gap = best.mean - max(printed)
            sentences.append(f"{gap:+.2f} at {epsilon:g}")
    return [f"{data}: our best against the paper's LP-2ST, points: {', '.join(sentences)}."] if sentences else []
