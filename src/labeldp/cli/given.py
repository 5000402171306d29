"""Which options stand on the command line, and the refusal of those that would do nothing there.

>>> given_options()  # outside of a command line there are none
()

An option that is ignored in silence is believed: who writes `train release --epsilon 0.1` thinks that this model is more
private than another. So a command says, as soon as it knows what it is about (a release or a table, classes or numbers), which of
its options have no meaning there, and one that was given is refused. It is refused whatever its value, also where that says
what is done anyway: what counts is that it stands on the line, and not what it says.

`labeldp.cli.tables.expand` tells this chapter which line is at work; a command that is called from Python has none, and
nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from labeldp.errors import Described, invalid

_line: dict[str, Any] = {"context": None}


@contextmanager
def reading_line(context: Any) -> Iterator[None]:
    """Let this be the line that is at work, a context of typer's, while the body runs."""
    before, _line["context"] = _line["context"], context
    try:
        yield
    finally:
        _line["context"] = before


def given_options() -> tuple[str, ...]:
    """Return the options that stand on the line, by their long names, in the order of the help text."""
    context = _line["context"]
    if context is None:
        return ()
    return tuple(
        next((name for name in option.opts if name.startswith("--")), option.opts[0])
        for option in context.command.params
        if option.param_type_name == "option" and _stands_on_line(context, option.name)
    )


def _stands_on_line(context: Any, name: str) -> bool:
    """Whether a value was typed; typer may carry a click of its own, so its words are compared, not its classes."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_idle(owner: str, options: Iterable[str], *, where: str, fix: str) -> None:
    """Refuse the first of these options that was given.

    Parameters
    ----------
    owner : str
        The command.
    options : iterable of str
        Options that would do nothing, by their long names (`--epsilon`).
    where : str
        Completes "must be left out": "for a release".
    fix : str
        Why it would do nothing, or what it belongs to.
    """
    idle = set(options)
    for name in given_options():
        if name in idle:
            raise invalid(owner, name, f"be left out {where}", got=Described("one"), fix=fix)
