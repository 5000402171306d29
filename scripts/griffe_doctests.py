"""Fence the examples of docstrings for the pages of the reference: Markdown would take ``>>>`` for three quotations in each other.

mkdocstrings loads `FencedDoctests` (mkdocs.yml, `extensions`). The sources are not touched: `make test` runs their examples as they are.
"""

from __future__ import annotations

from typing import Any

import griffe


class FencedDoctests(griffe.Extension):
    """Put each example of a docstring, from ``>>>`` to the next empty line, into a block of code."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring as it was read; objects without one are left alone."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """Return a docstring with its examples in fences; what is fenced already stays.

    >>> fence("Add.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all.").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'That is all.']
    """
    lines: list[str] = []
    fenced, margin = False, None
    for line in text.splitlines():
        bare = line.lstrip()
        if margin is not None and not bare:
            lines.append(f"{margin}```")
            margin = None
        if bare.startswith("```"):
            fenced = not fenced
        if margin is None and not fenced and bare.startswith(">>>"):
            margin = line[: len(line) - len(bare)]
            lines.append(f"{margin}```pycon")
        lines.append(line)
    if margin is not None:
        lines.append(f"{margin}```")
    return "\n".join(lines)
