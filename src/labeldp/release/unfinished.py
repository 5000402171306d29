"""Work that may be killed: what keeps its noise key until it ends, so that a draw that is made again is the same draw.

A job over a table (`labeldp.engines.job`) and a training run with a checkpoint (`labeldp.learn.checkpoint`) charge a ledger
once and may be stopped anywhere after that. Noise is a function of the key and of the position, so whoever has the key draws
the same labels again; whoever has not would draw a second time what was charged once. There are two places for a key:
the memory of the process, which a kill ends, or a box on disk that opens with a passphrase.

>>> from labeldp.random import NoiseKey
>>> key = NoiseKey.from_seed(7)
>>> unseal(seal(key, "correct horse battery", about=b"job 1"), "correct horse battery", about=b"job 1", owner="example")
<NoiseKey: secret, seeded>
>>> unseal(seal(key, "correct horse battery", about=b"job 1"), "guess", about=b"job 1", owner="example")
Traceback (most recent call last):
...
labeldp.errors.PrivacyError: example: `passphrase` must be that of the job, ...

**Boxes.** scrypt with 128 MiB makes each guess of a passphrase dear; AES-GCM tells a wrong one from a right one, and binds the
box to its job. Whoever has the box and the passphrase can undo the noise: it is removed when the work ends. A `Box` is
stretched once and closed as often as what it holds changes, with a fresh nonce each time.

**Labels.** The same noise on other labels would show the difference. So the work is named by `mark_labels`, a MAC of the labels
under the key itself: without the key it is 32 random bytes, and with the key the noise could be undone anyway.

**Leftovers.** Whatever we write is made under a hidden name, `.NAME.partial-` and 16 hex digits, beside the place that it will
have (`hidden_name`), and whoever makes it holds a lock on it (`hold`), which the system lets go of when the process ends,
however it ends. So a leftover of a kill is a hidden name of ours that nobody holds: `find_leftovers` finds them all,
those of jobs, releases, models and checkpoints, and `remove_leftover` removes one. A link is removed, never followed.

References: RFC 7914 (scrypt); NIST SP 800-38D (AES-GCM); RFC 2104 (HMAC).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from labeldp.errors import Described, PrivacyError, invalid
from labeldp.random import KEY_BYTES, NoiseKey
from labeldp.release.labels import SensitiveLabels, codes_of

#: scrypt's cost: 128 * R * N = 128 MiB and some 0.3 s a guess.
N, R, P = 2**17, 8, 1
SALT_BYTES, NONCE_BYTES = 16, 12
LEAST_PASSPHRASE = 12


def check_passphrase(passphrase: Any, *, owner: str) -> str:
    """Return a passphrase that is worth sealing with."""
    if not isinstance(passphrase, str) or len(passphrase) < LEAST_PASSPHRASE:
        got = Described("one that is shorter" if isinstance(passphrase, str) else type(passphrase).__name__)
        fix = "Whoever guesses it can undo the noise of an unfinished job."
        must = f"be a text of {LEAST_PASSPHRASE} characters or more"
        raise invalid(owner, "passphrase", must, got=got, fix=fix)
    return passphrase


@dataclass(frozen=True)
class Box:
    """A passphrase, stretched: closes bytes into plain JSON, and opens what it or the same passphrase has closed."""

    _salt: bytes = field(repr=False)
    _cipher: AESGCM = field(repr=False)

    @classmethod
    def of(cls, passphrase: str, *, salt: bytes | None = None) -> Box:
        """Stretch a passphrase, which takes some 0.3 s on purpose."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        secret = passphrase.encode("utf-8", "surrogatepass")
        return cls(salt, AESGCM(Scrypt(salt=salt, length=KEY_BYTES, n=N, r=R, p=P).derive(secret)))

    @classmethod
    def open(cls, closed: dict[str, Any], passphrase: str, *, about: bytes, owner: str) -> tuple[Box, bytes]:
        """Return the box of this passphrase and what it holds, or refuse a passphrase that is not its own."""
        try:
            box = cls.of(passphrase, salt=bytes.fromhex(closed["salt"]))
            plain = box._cipher.decrypt(bytes.fromhex(closed["nonce"]), bytes.fromhex(closed["box"]), about)  # noqa: SLF001 - its own
        except (InvalidTag, KeyError, TypeError, ValueError) as error:
            fix = "Try again, or throw the job away (--discard)."
            got = Described("one that does not open its key")
            raise invalid(owner, "passphrase", "be that of the job", got=got, fix=fix, kind=PrivacyError) from error
        return box, plain

    def close(self, data: bytes, *, about: bytes) -> dict[str, Any]:
        """Return the data as a closed box, which opens for this job only."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        closed = self._cipher.encrypt(nonce, data, about)
        parts = {"salt": self._salt.hex(), "nonce": nonce.hex(), "box": closed.hex()}
        return {"kdf": "scrypt", "n": N, "r": R, "p": P, **parts}


def seal(key: NoiseKey, passphrase: str, *, about: bytes) -> dict[str, Any]:
    """Return a key in a box, as JSON, that opens with the passphrase and for this job only."""
    return Box.of(passphrase).close(bytes([key.seeded]) + key.reveal(), about=about)


def unseal(box: dict[str, Any], passphrase: str, *, about: bytes, owner: str) -> NoiseKey:
    """Return the key of a box. It keeps no account of its draws (`NoiseKey.carried`): the job does."""
    plain = Box.open(box, passphrase, about=about, owner=owner)[1]
    return NoiseKey.carried(plain[1:], seeded=bool(plain[0]))


def mark_labels(key: NoiseKey, batches: Iterable[SensitiveLabels], *about: bytes) -> str:
    """Return 32 hex digits that only this key makes of these labels, in this order, and of what they are released by.

    An HMAC under the key: it tells nothing to whoever has not the key. Labels that differ in one place, or another
    setting in `about`, have another mark; how the labels are cut into batches makes no difference.
    """
    made = hmac.new(_mark_secret(key), digestmod=hashlib.sha256)
    for labels in batches:
        wide = "<i8" if labels.bounds is None else "<f8"  # numbers as they are: two that differ have two marks
        made.update(np.ascontiguousarray(codes_of(labels).astype(wide)).tobytes())
    return mark(key, made.digest(), *about)


def mark(key: NoiseKey, *parts: bytes) -> str:
    """Return 32 hex digits, an HMAC-SHA256 of the parts under a child of the key that draws nothing."""
    made = hmac.new(_mark_secret(key), digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()[:32]


def _mark_secret(key: NoiseKey) -> bytes:
    return NoiseKey.carried(key.reveal(), seeded=key.seeded).child("mark").reveal()


def write_private(path: Path, value: dict[str, Any]) -> None:
    """Write a small JSON file that its owner alone may read, whatever the umask; at once, or not at all, and durably."""
    from labeldp.release.saving import flush, flush_directory

    draft = path.parent / hidden_name(path.name)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        lock(descriptor)
        draft.chmod(0o600)
        json.dump(value, handle)
        flush(handle)
    draft.replace(path)
    flush_directory(path.parent)


# ------------------------------------------------------------------------------------------------------------ leftovers


def hidden_name(name: str) -> str:
    """Return a new name for what will be `name` when it is whole."""
    return f".{name}.partial-{secrets.token_hex(8)}"


def is_partial(name: str) -> bool:
    """Whether a file or directory of this name is unfinished work: hidden, and half written where a process was killed.

    >>> is_partial(".stage-1.partial-0123456789abcdef"), is_partial(hidden_name("out")), is_partial("stage-1")
    (True, True, False)
    """
    return re.fullmatch(r"\..+\.partial-[0-9a-f]{16}", name) is not None


def make_private(folder: Path) -> int:
    """Make a folder that its owner alone may open, whatever the umask; return the mode that it would have had.

    Whoever gives the folder its name in the end may give it that mode too. It is empty until it is closed to others.
    """
    folder.mkdir()
    usual = folder.stat().st_mode & 0o7777
    folder.chmod(0o700)
    return usual


def lock(descriptor: int) -> bool:
    """Take the lock of an open file or folder; False if another has it. It ends with the descriptor.

    Where the file system or the system has no such locks, nobody holds one: True.
    """
    try:
        import fcntl
    except ImportError:  # Windows: a file in use cannot be removed there anyway
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or folder while the body runs; gives False if another process or thread has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:  # a link, a file of someone else, or a folder on Windows: nothing to hold
        yield True
        return
    try:
        yield lock(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Unfinished work of ours on disk: where, what it is in words, and whether a process is still at work on it."""

    path: Path
    what: str
    in_use: bool


def find_leftovers(place: str | os.PathLike[str]) -> list[Leftover]:
    """Return what killed processes left, by name, in the order of names.

    `place` is one leftover itself; or a target, whether it is there or not: what was to become it; or a folder that is
    neither: everything of ours that lies in it, not in the folders below.

    >>> find_leftovers("no/such/place")
    []
    """
    path = Path(place)
    if is_partial(path.name):
        return [_describe_leftover(path)] if os.path.lexists(path) else []
    siblings = [one for one in _hidden_in(path.parent) if one.name.startswith(f".{path.name}.partial-")]
    return [_describe_leftover(one) for one in siblings or (_hidden_in(path) if path.is_dir() else [])]


def _hidden_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_partial(path.name)) if folder.is_dir() else []


def _describe_leftover(path: Path) -> Leftover:
    if path.is_symlink() or not path.is_dir():
        what = "a half-written file"
    elif (path / "key.json").is_file() and (path / "job.json").is_file():
        what = "an unfinished job with its sealed key, which --resume could finish"
    elif (path / "work").is_dir():
        what = "an unfinished job without a key, which nobody can finish"
    else:
        what = "a half-written folder"
    with hold(path) as free:
        return Leftover(path=path, what=what, in_use=not free)


def remove_leftover(path: Path) -> bool:
    """Remove one leftover, and tell whether that was done: False where a process is still at work on it."""
    with hold(path) as free:
        if free and is_partial(path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                with suppress(FileNotFoundError):
                    path.unlink()
            return True
    return False
