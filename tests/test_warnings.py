"""Warnings are hidden and kept by one mechanism, and are as they were afterwards, whoever overlaps with whom in threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import overlap

from labeldp.errors import hide_warnings, keep_warnings

#: The one that shows a command's notes puts something else in the place of one function, in a process of its own.
MAY_CATCH = {"errors.py", "cli/screen.py"}
WAYS: list[Callable[[], AbstractContextManager[Any]]] = [hide_warnings, keep_warnings]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_the_first_to_end_shows_nothing_of_the_other_and_the_last_puts_back_what_was(first, second):
    """Before: what the last one put back was what the first had set, so that this process never showed a warning again."""
    types = []

    def warn(kept: Any) -> None:
        types.append(kept)  # a list that is filled at the end
        warnings.warn("labels 0, 1, 1", RuntimeWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before, show = warnings.filters, warnings.showwarning
        overlap(first(), second(), then=warn)
        assert warnings.filters is before
        assert warnings.showwarning is show
        assert not told
        warnings.warn("a later one", UserWarning, stacklevel=1)
    assert types == [[RuntimeWarning] if second is keep_warnings else None]
    assert [str(one.message) for one in told] == ["a later one"]


def test_only_what_was_named_is_hidden():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with hide_warnings(RuntimeWarning, message="of a"):
            for text, category in (("of a", RuntimeWarning), ("of b", RuntimeWarning), ("of a", UserWarning)):
                warnings.warn(text, category, stacklevel=1)
    assert [(str(one.message), one.category) for one in told] == [("of b", RuntimeWarning), ("of a", UserWarning)]


@pytest.mark.parametrize("way", WAYS)
def test_a_body_that_fails_leaves_warnings_as_they_were(way):
    before, show = warnings.filters, warnings.showwarning
    with pytest.raises(KeyError), way():
        raise KeyError
    assert warnings.filters is before
    assert warnings.showwarning is show


@pytest.mark.parametrize("way", WAYS)
def test_what_another_library_puts_back_afterwards_hides_nothing(way):
    """scikit-learn catches warnings whenever it looks at an array; in another thread it may begin in here and end out there."""
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_place: shown.append(str(message))
        before, other = list(warnings.filters), warnings.catch_warnings()
        with way():
            warnings.warn("hidden", UserWarning, stacklevel=1)
            other.__enter__()
        other.__exit__(None, None, None)
        assert list(warnings.filters) == before
        warnings.warn("a later one", UserWarning, stacklevel=1)
        with way():
            warnings.warn("hidden again", UserWarning, stacklevel=1)
        warnings.warn("the last one", UserWarning, stacklevel=1)
    assert shown == ["a later one", "the last one"]


def test_nobody_hides_warnings_in_another_way():
    root = Path(__file__).parents[1] / "src" / "labeldp"
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if "with warnings.catch" in path.read_text()}
    found |= {str(path.relative_to(root)) for path in root.rglob("*.py") if "(warnings.catch" in path.read_text()}
    assert found - {"release/scores.py"} == MAY_CATCH  # whose docstring shows a warning
