"""How Ctrl-C, SIGTERM and the end of the terminal stop a command: by one exception, raised where it does no harm, and heard.

>>> exit_code()
130

A command that is stopped cleans up and says what it has left, as after any error: each of the three signals raises a
`KeyboardInterrupt` in the main thread. Python does so between any two instructions, in whatever code is at work there, and
not all code can bear it:

- *Imports.* Libraries import others when they are first used: pyarrow imports pandas in the middle of a job. An import that is
  broken off leaves modules half made, and is begun anew by the next who asks. pandas then keeps the lock of all imports for
  good, and the first thread that imports anything waits for ever. So nothing is raised while an import is under way.
- *Locks.* An interrupt between the taking of a lock and the block that lets go of it keeps it taken. `threading` and
  `contextlib` are left to finish what they do, but for waiting. So is the removal of files by `shutil`: it is what
  cleaning up consists of.
- *Code that swallows it.* Destructors, callbacks of weak references and compiled code drop exceptions. The command would go
  on to its end. So an interrupt that has vanished is raised again.

A signal that comes at such a place is tried again a moment later. While an interrupt is on its way up, further signals
change nothing: neither they nor an impatient user disturb the cleaning up, and a kill is all that does. A signal that was
ignored before the command began (`nohup`) stays ignored. When the command has ended all three are ignored, so that the exit
code tells what was done: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP, and that of the command if it was done before.

Design notes. What is on its way up is known by a weak reference to the exception: whoever handles it holds it, as its
cause, its context or the exception at hand, and whoever has swallowed it does not. Trying again takes the timer of the
system (SIGALRM), which wakes a main thread that waits; where there is none (Windows) an interrupt is raised at once.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import weakref
from types import FrameType
from typing import Any

#: How soon a signal that came at a bad moment is tried again.
PAUSE_SECONDS = 0.02
#: Files whose functions are not broken off while they run, or while they are at work further down.
_BRIEF = {threading.__file__, contextlib.__file__}
_WHOLE = {shutil.__file__}
#: Functions of `threading` that wait for others, perhaps for ever.
_WAITING = {"wait", "wait_for", "join", "_wait_for_tstate_lock", "acquire", "_shutdown"}


class Interrupt(KeyboardInterrupt):
    """What a signal raises in a command."""


#: Stands for an interrupt that nobody handles: a signal has come, and it was not raised yet.
_GONE = weakref.ref(Interrupt())


class _Listener:
    """Which signal has come, and the interrupt that it has raised."""

    def __init__(self) -> None:
        self.heard: list[signal.Signals] = []
        self.number = int(signal.SIGINT)
        self._listening = False
        self._raised: weakref.ref[Interrupt] | None = None

    def listen(self) -> None:
        known = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        self.heard = [name for name in known if signal.getsignal(name) != signal.SIG_IGN]
        self._listening, self._raised = True, None
        sys.unraisablehook = self._say_unraisable
        for name in self.heard:
            signal.signal(name, self._hear)

    def end(self) -> None:
        self._listening = False
        for name in self.heard:
            signal.signal(name, signal.SIG_IGN)
        if self._raised is not None and hasattr(signal, "setitimer"):  # at the interpreter's end an alarm would kill
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._raised is None:
            if hasattr(signal, "SIGALRM"):
                signal.signal(signal.SIGALRM, self._try)
            self._raised = _GONE
            self.number = number
            self._try(number, frame)

    def _try(self, _: int, frame: FrameType | None) -> None:
        """Raise the interrupt, unless one is on its way already or this is no place for it."""
        if not self._listening or self._raised is None or self._raised() is not None:
            return
        if hasattr(signal, "setitimer") and not can_be_interrupted(frame):
            self._try_again()
            return
        error = Interrupt()
        self._raised = weakref.ref(error, self._try_again)
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: it would hold itself

    def _try_again(self, _: Any = None) -> None:
        if self._listening and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, PAUSE_SECONDS)

    def _say_unraisable(self, told: Any) -> None:
        """An interrupt in a destructor is raised again elsewhere, and is no news."""
        if not isinstance(told.exc_value, Interrupt):
            sys.__unraisablehook__(told)


_listener = _Listener()


def can_be_interrupted(frame: FrameType | None) -> bool:
    """Whether an exception may be raised in this frame: see above for the places where it may not."""
    if frame is None:
        return True
    code = frame.f_code
    if code.co_filename in _BRIEF and code.co_name not in _WAITING:
        return False
    above: FrameType | None = frame
    while above is not None:
        code = above.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_filename in _WHOLE or code.co_name == "__del__":
            return False
        above = above.f_back
    return True


def listen() -> None:
    """Let the three signals stop this command; called once, in the main thread, when it begins."""
    _listener.listen()


def end_listening() -> None:
    """Ignore the three signals from here on: the command has ended, and its exit code stands."""
    _listener.end()


def exit_code() -> int:
    """Return what the shell expects of a command that a signal has ended: 128 and its number."""
    return 128 + _listener.number
