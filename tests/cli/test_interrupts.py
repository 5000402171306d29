"""Signals at the worst places: in imports, locks, destructors and cleaning up; before the command begins, and after its end.

Every signal is sent by the process itself, at a given line, so that nothing here depends on time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from labeldp.cli.interrupts import can_be_interrupted

BEGIN = """
import os, signal, sys, time, weakref
from labeldp.cli import interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has its children ignore it

def send(name="SIGTERM"):
    os.kill(os.getpid(), signal.Signals[name])
    for _ in range(1000):  # the handler runs between two of these
        pass

def wait():
    while True:
        time.sleep(1)
"""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", BEGIN + program, *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_an_import_is_not_broken_off() -> None:
    """Before: the import was broken off, and whoever had asked for it began it anew, on modules that were half made."""
    done = run(
        """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "interrupted_module":
            send()
sys.meta_path.insert(0, Finder())
interrupts.listen()
try:
    try:
        import interrupted_module
    except ImportError:
        wait()
except KeyboardInterrupt as error:
    print("the import ended by itself:", isinstance(error.__context__, ImportError))
    print("stopped", interrupts.exit_code())
"""
    )
    assert done.stdout.split("\n") == ["the import ended by itself: True", "stopped 143", ""], done.stderr


@pytest.mark.parametrize(
    "swallow",
    [
        """
    try:
        send()
    except BaseException:
        pass""",
        """
    thing = Thing()
    reference = weakref.ref(thing, lambda _: send())
    del thing""",
        """
    thing = Loud()
    del thing""",
    ],
    ids=["caught", "weak reference", "destructor"],
)
def test_an_interrupt_that_is_swallowed_comes_again(swallow: str) -> None:
    """Before: the command went on to its end, deaf to every further signal."""
    done = run(
        f"""
class Thing:
    pass
class Loud:
    def __del__(self):
        send()
interrupts.listen()
try:{swallow}
    wait()
except KeyboardInterrupt:
    print("stopped", interrupts.exit_code())
"""
    )
    assert (done.stdout, done.stderr) == ("stopped 143\n", "")


def test_further_signals_do_not_disturb_the_cleaning_up() -> None:
    """The first signal gives the exit code; two that come at once are one."""
    done = run(
        """
interrupts.listen()
try:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    send("SIGTERM"), send("SIGINT")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    wait()
except KeyboardInterrupt:
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGINT"):
        send(name)
    print("cleaned up")
    interrupts.end_listening()
send("SIGINT"), send("SIGTERM")
print("ended")
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("cleaned up\nended\n", "", 0)


def test_no_alarm_is_left_when_the_command_ends() -> None:
    """A signal that waits for the end of an import when the command ends: the interpreter would be killed by its alarm."""
    done = run(
        """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "interrupted_module":
            send()
            interrupts.end_listening()
            os.kill(os.getpid(), signal.SIGALRM)
            print(signal.getitimer(signal.ITIMER_REAL))
sys.meta_path.insert(0, Finder())
interrupts.listen()
try:
    import interrupted_module
except ImportError:
    print("ended")
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("(0.0, 0.0)\nended\n", "", 0)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    done = run("signal.signal(signal.SIGHUP, signal.SIG_IGN)\ninterrupts.listen()\nsend('SIGHUP')\nprint('went on')")
    assert (done.stdout, done.returncode) == ("went on\n", 0)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    "moment",
    [
        "import typer.main as home\nname = 'get_params_from_function'",  # outside typer's own border
        "from labeldp.cli import privatize as home\nname = 'PrivatizeCommand.parse_args'",
    ],
    ids=["commands", "arguments"],
)
def test_a_signal_before_the_command_begins(name: str, moment: str) -> None:
    """Before: a traceback, or 130 whatever the signal."""
    done = run(
        f"""
from functools import reduce
from labeldp.cli import main
{moment}
*way, last = name.split(".")
owner = reduce(getattr, way, home)
real = getattr(owner, last)
setattr(owner, last, lambda *given, **named: (send({name!r}), real(*given, **named))[1])
main()
""",
        "privatize",
        "--help",
    )
    assert done.returncode == 128 + signal.Signals[name], done.stderr
    assert done.stderr == "stopped: interrupted.\n"


def test_a_signal_after_the_end_changes_nothing() -> None:
    """Before: a traceback from the interpreter's end, or a command that had done its work and was said to be killed."""
    done = run("import atexit\nfrom labeldp.cli import main\natexit.register(send)\nmain()", "--version")
    assert (done.returncode, done.stderr) == (0, "")


def test_locks_are_not_left_taken() -> None:
    """The lock of a condition is taken and let go of by functions of Python, which are not broken off; waiting is."""
    verdicts: dict[str, set[bool]] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == threading.__file__:
            verdicts.setdefault(frame.f_code.co_name, set()).add(can_be_interrupted(frame))

    event, before = threading.Event(), sys.getprofile()
    sys.setprofile(look)
    try:
        event.wait(0)
        event.set()
    finally:
        sys.setprofile(before)
    assert verdicts["__enter__"] == verdicts["__exit__"] == verdicts["notify_all"] == {False}
    assert verdicts["wait"] == {True}
    assert can_be_interrupted(sys._getframe())


def test_files_are_removed_to_the_end(tmp_path: Path) -> None:
    """A signal in the middle of a removal is raised after it."""
    for name in "abc":
        (tmp_path / "folder" / name).mkdir(parents=True)
    done = run(
        """
import shutil
interrupts.listen()
try:
    sys.addaudithook(lambda event, given: send() if event == "os.rmdir" else None)
    shutil.rmtree(sys.argv[1])
    wait()
except KeyboardInterrupt:
    print(os.path.exists(sys.argv[1]))
""",
        str(tmp_path / "folder"),
    )
    assert done.stdout == "False\n", done.stderr
