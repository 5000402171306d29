"""A bar with the loss while a network trains; the loss is that of the labels given, so it shows no raw one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labeldp.errors import invalid
from labeldp.nn._training import Listener, Task


@contextmanager
def listening(progress: Any, task: Task) -> Iterator[Listener | None]:
    """Give what the loop should tell after each step: nothing, the user's callable, or a bar."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise invalid("NetClassifier", "progress", "be a bool or a callable", got=progress)
    elif not progress:
        yield None
    else:
        with bar(task) as told:
            yield told


@contextmanager
def bar(task: Task) -> Iterator[Listener]:
    """Draw a bar on the standard error, its numbers refreshed a few times a second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task("training", total=task.epochs * task.steps_per_epoch)

        def told(done: int, total: int, loss: float) -> None:
            shown.update(line, completed=done, total=total, description=f"loss {loss:.4f}")

        yield told
