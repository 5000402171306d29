"""One family of errors, one shape of message.

Every message says who refuses, which argument, what it must be, what it was, and what to do instead.

>>> str(invalid("RandomizedResponse", "epsilon", "be >= 0", got=-1.0, fix="Use math.inf for no privacy."))
'RandomizedResponse: `epsilon` must be >= 0, got -1.0. Use math.inf for no privacy.'

Raw labels are sensitive, and messages end up in logs: none shows a label, or how often one occurs. It says which row to look
at. What holds many values (a list, an array, a column) is shown by its type and its size alone: labels may have been given
where something else was expected. `Described` is for values that must not, or need not, be shown as they are: its text is
written by the caller. An error of another library whose message may quote data is replaced, `from None`: a chain of
exceptions prints the inner message too.

*Warnings.* What is done with a warning is a matter of the whole process and not of a thread, and Python's `warnings.catch_warnings` puts
back what it found. Of two that overlap in threads, the first to end shows what the other one hides, and the last one puts back what the
first had set, for good: fits in threads left a process in which no warning was shown any more, of a charge or of raw labels neither.
So whoever hides warnings does it here, by `hide_warnings` or `keep_warnings`: the first to begin remembers how things were, and they are
put back when the last has ended. Other libraries overlap with that as they like; what they put back afterwards hides nothing.
"""

from __future__ import annotations

import difflib
import threading
import warnings
from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

#: A value is shown in at most this many characters.
LONGEST_SHOWN = 80


class LabelDPError(ValueError):
    """Anything labeldp refuses: the message ends with what to do instead."""


class PrivacyError(LabelDPError):
    """A stated guarantee would not hold: always an error, never a warning."""


class BudgetError(PrivacyError):
    """The release would cost more than its label set has left."""


class AccountError(BudgetError):
    """The ledger knows these rows, or some of them, under another account, and nobody said which one is to pay."""


class OtherKeyError(LabelDPError):
    """Rows were hashed under another key than the ledger has by now: another process made it, or replaced it."""


class ColumnTypeError(LabelDPError):
    """A value of a text table is not of the type that was concluded from the rows that were looked at."""


class ReleaseError(LabelDPError):
    """A release on disk is damaged, unfinished, tampered with or not ours."""


class RawLabelWarning(UserWarning):
    """Raw labels were read outside any guarantee: by `score`, and by what scikit-learn chooses with it."""


class OptimisticScoreWarning(UserWarning):
    """A model is scored on released labels that it was trained on: it has learned some of their noise."""


class HeavyRowWarning(UserWarning):
    """Sample weights leave almost no rows: a few have nearly all of the weight."""


class PixelScaleWarning(UserWarning):
    """Images come on another scale than those of the fit: bytes 0 to 255 after floats 0 to 1, or the other way round."""


class SlowPrecisionWarning(UserWarning):
    """A network is to be trained in numbers that this processor has no instructions for: it takes longer, not shorter."""


class MissingExtraError(LabelDPError, ImportError):
    """An optional package is absent; the message names the extra that brings it."""


def name_type(kind: object) -> Described:
    """Return what an Arrow type is called. Names of fields stay behind: those of a mapping that was handed in are data.

    >>> import pyarrow as pa
    >>> f"{name_type(pa.struct({'ill': pa.int8()}))}, {name_type(pa.date32())}"
    'struct, date32[day]'
    """
    return Described(str(kind).partition("<")[0])


def invalid(
    owner: str, name: str, must: str, *, got: object, fix: str = "", kind: type[LabelDPError] = LabelDPError
) -> LabelDPError:
    """Return (not raise) the error ``owner: `name` must <must>, got <got>. <fix>``.

    Parameters
    ----------
    owner : str
        Who refuses: a public function or class, as the user calls it.
    name : str
        The argument.
    must : str
        What it must do or be: "be >= 0", "have one entry per class".
    got : object
        The value, shown by its repr in at most 80 characters, or by its type and size if it holds many; `Described` text
        is shown as it is.
    fix : str
        A sentence that says what to do instead.
    kind : type
        A more special error of this module.
    """
    message = f"{owner}: `{name}` must {must}, got {shorten(got)}."
    return kind(f"{message} {fix}" if fix else message)


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error for an optional package that is not installed."""
    return MissingExtraError(
        f"{purpose} needs `{package}`, which is not installed. Run: pip install 'labeldp[{extra}]'"
    )


def shorten(value: object) -> str:
    """Show a value in at most `LONGEST_SHOWN` characters; text that speaks for itself goes unquoted.

    >>> shorten(Described("3 rows of 10"))
    '3 rows of 10'
    >>> shorten("x" * 200)[-3:]
    '...'
    >>> shorten(["ill", "well"])
    'a list of 2'
    """
    if isinstance(value, Described):
        text = str(value)
    elif isinstance(value, Sized) and not isinstance(value, (str, bytes)):
        text = _describe_many(value)
    else:
        text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _describe_many(value: Sized) -> str:
    """Return the type of what holds many values, and how many: it may be a column of labels in the wrong place."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return f"{article} {kind} of shape {shape}" if shape is not None else f"{article} {kind} of {len(value)}"


class ChargedAgainWarning(UserWarning):
    """A run that was stopped is charged a second time, because the key of its noise is gone."""


class AccountWarning(UserWarning):
    """A ledger has recognised rows: what is charged to which account is not what the name alone would say."""


class NewRunWarning(UserWarning):
    """A run that is stopped may begin anew: its data are not the same when they are read twice."""


class NoCacheWarning(UserWarning):
    """Compiled loops cannot be kept on disk: every process compiles them anew."""


class InsecureClusterWarning(UserWarning):
    """A cluster takes work from anyone who reaches its port, without asking who it is."""


class Described(str):
    """A description in words of what was got, shown without quotes."""

    __slots__ = ()


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known names, or lists a few of them.

    >>> nearest("incmoe", ["age", "income"])
    'Did you mean `income`?'
    >>> nearest("Y", ["age", "y"])
    'Did you mean `y`?'
    """
    names = [str(k) for k in known]
    same = [k for k in names if k.casefold().strip() == str(name).casefold().strip()]
    close = same or difflib.get_close_matches(str(name), names, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(f"`{c}`" for c in close) + "?"
    shown = ", ".join(f"`{k}`" for k in names[:8])
    return f"There is: {shown}{', ...' if len(names) > 8 else ''}." if names else "There is none."


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or came of one: compiled code makes a SystemError of what it did not expect.

    >>> was_interrupted(KeyboardInterrupt()), was_interrupted(ValueError())
    (True, False)
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


# ------------------------------------------------------------------------------------------------------------- warnings


class _Quiet:
    """Who hides warnings of this process, or keeps them, at this moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._keepers = 0
        self._before = ExitStack()
        self._filters: Any = None
        self._show: Any = None
        self._kept: list[type[Warning]] = []

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._before.enter_context(warnings.catch_warnings())
                self._filters = warnings.filters
                if self._show is None or warnings.showwarning != self._note:
                    self._show = warnings.showwarning
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.close()
                # Whoever began to catch warnings meanwhile, in another thread, puts this very list back.
                self._filters[:] = warnings.filters

    def keep(self) -> None:
        with self._lock:
            if not self._keepers:
                self._kept, warnings.showwarning = [], self._note
            self._keepers += 1
            warnings.simplefilter("always")

    def stop_keeping(self) -> list[type[Warning]]:
        """Return the types of what was kept, each once, to the last who kept; to others nothing."""
        with self._lock:
            self._keepers -= 1
            if self._keepers:
                return []
            warnings.showwarning = self._show
            return list(dict.fromkeys(self._kept))

    def _note(  # noqa: PLR0917 - as Python calls it
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Keep the type of a warning, and nothing of its words; one that comes when nobody keeps them any more is shown."""
        if self._keepers:
            self._kept.append(category)
        else:
            self._show(message, category, filename, lineno, file, line)


_QUIET = _Quiet()


@contextmanager
def hide_warnings(category: type[Warning] = Warning, *, message: str = "") -> Iterator[None]:
    """Show no warning of this category, whose message begins as `message` (a pattern), until the body has ended.

    >>> with hide_warnings():
    ...     warnings.warn("not shown")
    """
    _QUIET.enter()
    try:
        warnings.filterwarnings("ignore", message, category)
        yield
    finally:
        _QUIET.leave()


@contextmanager
def keep_warnings() -> Iterator[list[type[Warning]]]:
    """Show no warning until the body has ended; the list that is given then has the types of those that came, and no words.

    Of several that overlap in threads, the list of the last to end has those of all.

    >>> with keep_warnings() as kept:
    ...     warnings.warn("labels 0, 1, 1", RuntimeWarning)
    >>> kept
    [<class 'RuntimeWarning'>]
    """
    kept: list[type[Warning]] = []
    _QUIET.enter()
    try:
        _QUIET.keep()
        try:
            yield kept
        finally:
            kept += _QUIET.stop_keeping()
    finally:
        _QUIET.leave()
