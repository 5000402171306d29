"""Where every random bit of a release comes from, and the threads that work on spans of rows.

The noise of example ``i`` is a function of a secret key and ``i``: the ``i``-th block of AES-256 in counter mode,
read as two 64-bit words. It is cryptographically strong, seekable, the same whatever the batch size, thread count or
engine, and safe to retry: a task that runs twice releases the same label, not a second sample.

>>> NoiseKey.from_seed(7)
<NoiseKey: secret, seeded>
>>> key = NoiseKey.from_seed(7)
>>> bool((key.words(start=0, count=5)[3:] == key.words(start=3, count=2)).all())
True

The key comes from the operating system and lives for one release. A seed derives the key instead, for experiments;
what it touches is marked `seeded`, because whoever knows the seed can undo the noise.

**No noise twice.** The same noise on two answers cancels out: release labels y, then labels that differ in one place, from the
same words, and where the two releases differ the second is the raw label. So a key that is not seeded hands out each of its
blocks once (`Claims`), to whomever asks. Its children share its claims, and so does a second object made of the same bytes:

>>> key = NoiseKey.from_os()
>>> first = key.words(start=0, count=4)
>>> key.words(start=4, count=4).shape  # the next rows of the same labels: other blocks
(4, 2)
>>> key.words(start=3, count=1)
Traceback (most recent call last):
...
labeldp.errors.PrivacyError: NoiseKey: noise was drawn from this key before. ...

A public call claims what it will need before it charges a ledger (`as_key`, `NoiseKey.claim_rows`), so that a key that was used
before costs nothing. A call that fails after that has used the key up. Work that may be repeated, because its labels and
channels are the same each time, claims a whole key once and draws from a twin of it that keeps no account
(`NoiseKey.claim_all`): an engine whose task runs twice, a checkpoint that draws again what a kill has lost. Such work must
see to it by itself that a repeated draw is the same draw; both say how they do.

What claims cannot see: another process. They are those of one process, and a fork or whoever moves `reveal()` starts with
none of what comes later. The journals of such work are therefore on disk (`labeldp.engines.job`, `labeldp.learn.checkpoint`).

Because the noise of a row depends on its position alone, rows can be worked on in any order. `over_spans` splits them
into spans and gives each to a thread:

>>> seen = []
>>> over_spans(lambda low, high: seen.append((low, high)), 10, step=4)
>>> sorted(seen)
[(0, 4), (4, 8), (8, 10)]

References: NIST SP 800-38A (counter mode); FIPS 197 (AES).

Design notes. A block's counter is ``stream || index``, 64 bits each, so that independent uses of one key (streams)
never share a block. Claims are spans of blocks by the path of names from the root, so that disjoint pieces of one data set
are drawn under one key and merge into one span. Claims of a key from the operating system end with it; those of a key that
was made of bytes, or whose bytes were revealed, stay for the life of the process, some hundred bytes each. Keys do not pickle: an engine that must move one does so on purpose, through `NoiseKey.reveal`.
Compiled loops and AES release the interpreter's lock, so plain threads are enough. Spans are handed out one by one: a
busy core delays its own span only, and the answer never depends on how many threads there are. Their number is that of
the cores this process may use, or $LABELDP_THREADS.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
import threading
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from labeldp.arrays import UInt8s, Words
from labeldp.errors import LabelDPError, PrivacyError, invalid

KEY_BYTES = 32
BLOCK_BYTES = 16
#: Zeros are encrypted in pieces of this many blocks: 1 MiB, which stays in a core's cache.
PIECE_BLOCKS = 1 << 16
#: Words that a stream reads ahead.
READ_AHEAD = 1024
_ZEROS = bytes(PIECE_BLOCKS * BLOCK_BYTES)


#: The names from a root to one of its children, each with its type.
Path = tuple[str, ...]


class Claims:
    """What was handed out of a key and of its children. Threads may claim at the same time; one of them gets it.

    A claim is a span of whole numbers (blocks, by default all of them) under a name, at the key that a path leads to.
    """

    __slots__ = ("_lock", "_spans", "_whole")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[Path, str], list[tuple[float, float]]] = {}
        self._whole: set[Path] = set()

    def take(self, path: Path, name: str, low: float = 0, high: float = math.inf) -> None:
        """Note that [low, high) is taken; raise `PrivacyError` if some of it was taken before."""
        with self._lock:
            if any(path[:depth] in self._whole for depth in range(len(path) + 1)):
                raise _refuse_again()
            spans = self._spans.setdefault((path, name), [])
            at = bisect_right(spans, (low, math.inf))
            if (at > 0 and spans[at - 1][1] > low) or (at < len(spans) and spans[at][0] < high):
                raise _refuse_again()
            # Spans that touch become one: a million rows that came in order are one span.
            if at < len(spans) and spans[at][0] == high:
                high = spans.pop(at)[1]
            if at > 0 and spans[at - 1][1] == low:
                low, at = spans[at - 1][0], at - 1
                spans.pop(at)
            spans.insert(at, (low, high))

    def take_whole(self, path: Path) -> None:
        """Note that a key is taken with all its children; raise `PrivacyError` if anything of it was taken before."""
        with self._lock:
            above = any(path[:depth] in self._whole for depth in range(len(path) + 1))
            below = any(taken[: len(path)] == path for taken in self._whole)
            if above or below or any(taken[: len(path)] == path for taken, _ in self._spans):
                raise _refuse_again()
            self._whole.add(path)


def _refuse_again() -> PrivacyError:
    return PrivacyError(
        "NoiseKey: noise was drawn from this key before. The same noise on two answers cancels out and shows a raw label. "
        "Use rng=None (random_state=None) for fresh noise, or another child of the key; pieces of one data set need "
        "`start=` rows that do not overlap."
    )


#: Claims of keys whose bytes someone has or had, by the SHA-256 of the bytes.
_known: dict[bytes, tuple[Claims, Path]] = {}


class NoiseKey:
    """A secret 256-bit key that every draw of one release comes from. It shows nothing and does not pickle.

    If it is not seeded, each of its blocks is handed out once, in this process, whichever object is asked: this one, a
    child by the same names, or a key of the same bytes. Anything drawn twice raises `PrivacyError`.
    """

    __slots__ = ("_apart", "_claims", "_path", "_secret", "seeded")

    _secret: bytes
    _claims: Claims | None  # None: draws may be repeated
    _path: Path
    _apart: bool
    seeded: bool

    def __init__(self, secret: bytes, *, seeded: bool) -> None:
        if len(secret) != KEY_BYTES:
            raise invalid("NoiseKey", "secret", f"have {KEY_BYTES} bytes", got=len(secret))
        self._secret, self.seeded, self._apart = bytes(secret), seeded, False
        self._claims, self._path = (None, ()) if seeded else _known.setdefault(_name(self._secret), (Claims(), ()))

    @classmethod
    def _make(
        cls, secret: bytes, *, seeded: bool, claims: Claims | None, path: Path = (), apart: bool = False
    ) -> NoiseKey:
        key = cls.__new__(cls)
        key._secret, key.seeded, key._claims, key._path = secret, seeded, claims, path  # noqa: SLF001 - its own
        key._apart = apart  # noqa: SLF001 - its own
        return key

    @classmethod
    def from_os(cls) -> NoiseKey:
        """Return a fresh key from the operating system's generator: the only private kind."""
        return cls._make(secrets.token_bytes(KEY_BYTES), seeded=False, claims=Claims())

    @classmethod
    def from_seed(cls, seed: int) -> NoiseKey:
        """Return a reproducible key for experiments; everything drawn from it is marked seeded."""
        return cls(hashlib.sha256(b"labeldp seed 1:" + str(int(seed)).encode()).digest(), seeded=True)

    @classmethod
    def carried(cls, secret: bytes, *, seeded: bool) -> NoiseKey:
        """Return a key that keeps no account of what is drawn, where work that has claimed it (`claim_all`) goes on.

        For an engine's worker and for a job that is taken up again. Whoever calls this sees to it that what is drawn twice
        is drawn of the same labels by the same channel.
        """
        return cls._make(bytes(secret), seeded=seeded, claims=None)

    def child(self, *names: str | int) -> NoiseKey:
        """Return an independent key for a named part (a stage, a histogram), by HMAC-SHA256 of the path of names.

        The same names give the same key, with the same claims. An integer and the text of its digits are different names.
        """
        secret, added = self._secret, tuple(f"{type(name).__name__}:{name}" for name in names)
        for name in added:
            secret = hmac.new(secret, name.encode(), hashlib.sha256).digest()
        return self._make(secret, seeded=self.seeded, claims=self._claims, path=self._path + added, apart=self._apart)

    def apart(self) -> NoiseKey:
        """Return the same key, and later children of it, as one that draws apart through each channel and query (`through`).

        For work that may be repeated, and whose copies may go on in other processes, where no claim is seen: the same noise
        through two channels would tell of a label what no epsilon bounds. A seeded key is returned as it is: it is
        reproducible by intention, and protects no one.
        """
        if self.seeded:
            return self
        return self._make(self._secret, seeded=False, claims=self._claims, path=self._path, apart=True)

    def through(self, describe: Callable[[], bytes]) -> NoiseKey:
        """Return the key that a draw takes its noise from: this one, or of one that draws `apart` a child by what is drawn through.

        `describe` says all that decides the draw beside labels and noise, in public bytes. The same bytes give the same noise,
        so a repeated draw is the same draw; other bytes give independent noise, so two draws are two honest releases.

        >>> key = NoiseKey.carried(bytes(32), seeded=False)
        >>> one, other = (key.apart().through(lambda: text).words(start=0, count=1) for text in (b"one", b"other"))
        >>> bool((one != other).all()), key.through(lambda: b"one") is key
        (True, True)
        """
        return self.child("through", hashlib.sha256(describe()).hexdigest()) if self._apart else self

    def claim(self, purpose: str) -> NoiseKey:
        """Return the child key of a purpose that may be served only once: the same noise on two answers cancels out.

        A seeded key is reproducible by intention and may be claimed again.
        """
        self.claim_call(purpose)
        return self.child(purpose)

    def claim_call(self, name: str) -> None:
        """Note that a call of this name is served by this key; raise `PrivacyError` if one was before."""
        if self._claims is not None:
            self._claims.take(self._path, f"call {name}")

    def claim_rows(self, start: int, count: int, *, stream: int = 0) -> NoiseKey:
        """Claim the blocks of rows `start` .. `start + count - 1`, and return the twin from which they may be drawn.

        Raises `PrivacyError` if one of them was drawn or claimed before. The twin keeps no account: it is for the one
        release that claimed it, which may draw a row again in another thread or step.
        """
        self._take(start, count, stream)
        return self._make(self._secret, seeded=self.seeded, claims=None, apart=self._apart)

    def claim_all(self) -> NoiseKey:
        """Claim the key with all its children, and return a twin that keeps no account: for work that may be repeated.

        Raises `PrivacyError` if anything of it was drawn or claimed before; nothing can be from now on.
        """
        if self._claims is not None:
            self._claims.take_whole(self._path)
            self.reveal()  # the twin's bytes may travel: whoever makes a key of them here finds it taken
        return self._make(self._secret, seeded=self.seeded, claims=None, apart=self._apart)

    def _take(self, start: int, count: int, stream: int) -> None:
        if self._claims is not None and count > 0:
            self._claims.take(self._path, f"blocks {stream}", start, start + count)

    def words(self, *, start: int, count: int, stream: int = 0) -> Words:
        """Return blocks ``start .. start + count - 1`` as an array of shape (count, 2) of 64-bit words.

        Row i is the noise of example ``start + i``. `stream` separates independent uses of one key.
        """
        buffer = np.empty(count * BLOCK_BYTES + BLOCK_BYTES - 1, np.uint8)
        self.fill(buffer, start=start, count=count, stream=stream)
        return buffer[: count * BLOCK_BYTES].view("<u8").reshape(count, 2)

    def fill(self, buffer: UInt8s, *, start: int, count: int, stream: int = 0) -> None:
        """Write blocks into `buffer`, which needs `BLOCK_BYTES` - 1 bytes more than ``count`` blocks.

        Raises `PrivacyError` if the key is not seeded and one of them was drawn before.
        """
        self._take(start, count, stream)
        nonce = stream.to_bytes(8, "big") + start.to_bytes(8, "big")
        encryptor = Cipher(algorithms.AES(self._secret), modes.CTR(nonce)).encryptor()
        view = buffer.data
        for done in range(0, count, PIECE_BLOCKS):
            size = min(PIECE_BLOCKS, count - done) * BLOCK_BYTES
            begin = done * BLOCK_BYTES
            encryptor.update_into(memoryview(_ZEROS)[:size], view[begin : begin + size + BLOCK_BYTES - 1])

    def reveal(self) -> bytes:
        """Return the secret itself, for an engine that moves it to a worker. Never store or log it.

        A key that is made of it in this process knows what this one has drawn; one in another process does not.
        """
        if self._claims is not None:
            _known.setdefault(_name(self._secret), (self._claims, self._path))
        return self._secret

    def __repr__(self) -> str:
        return f"<NoiseKey: secret{', seeded' if self.seeded else ''}>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("NoiseKey: a secret key does not pickle. Draw where the key is, or move `key.reveal()`.")


def _name(secret: bytes) -> bytes:
    return hashlib.sha256(b"labeldp claims 1:" + secret).digest()


class BitStream:
    """The words of one stream of a key in order, for samplers that need an unforeseen number of them."""

    def __init__(self, key: NoiseKey, *, stream: int = 1) -> None:
        self._key = key
        self._stream = stream
        self._next_block = 0
        self._ahead: Words = np.empty(0, np.uint64)
        self.seeded = key.seeded

    def take(self, count: int) -> Words:
        """Return the next `count` words; none is ever handed out twice.

        Small requests are served from a block read ahead: setting up the cipher costs more than a thousand words.
        """
        missing = count - self._ahead.size
        if missing > 0:
            fresh = self._read(max(missing, READ_AHEAD))
            self._ahead = np.concatenate([self._ahead, fresh]) if self._ahead.size else fresh
        words, self._ahead = self._ahead[:count], self._ahead[count:]
        return words

    def _read(self, count: int) -> Words:
        blocks = (count + 1) // 2
        words = self._key.words(start=self._next_block, count=blocks, stream=self._stream)
        self._next_block += blocks
        return words.reshape(-1)


def as_key(owner: str, rng: Any, *, name: str = "rng", pieces: bool = False) -> NoiseKey:
    """Return the key that the `rng` of a public call, or the `random_state` of an estimator, names.

    None is a fresh key from the operating system, the only private choice. An int is a seed, a NumPy generator draws a
    seed; both mark what is drawn `seeded`. A `NoiseKey` is returned as it is, and has then served `owner`: a second call
    of `owner` with it raises `PrivacyError`, before anything is charged. With `pieces` it may serve more than once, and
    the caller claims what it needs. Anything else is refused in the name of `owner` and of its argument `name`.
    """
    if rng is None:
        return NoiseKey.from_os()
    if isinstance(rng, NoiseKey):
        if not pieces:
            rng.claim_call(f"by {owner}")
        return rng
    if isinstance(rng, np.random.Generator):
        return NoiseKey(rng.bytes(KEY_BYTES), seeded=True)
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return NoiseKey.from_seed(int(rng))
    fix = "Use None for secure noise; an int seed or numpy.random.Generator makes a reproducible, not private, release."
    raise invalid(owner, name, "be None, an int or a numpy.random.Generator", got=rng, fix=fix)


def thread_count() -> int:
    """Return how many threads to use: $LABELDP_THREADS, or the number of cores that this process may use."""
    named = os.environ.get("LABELDP_THREADS")
    if named is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not named.isdigit() or int(named) < 1:
        raise invalid("labeldp", "LABELDP_THREADS", "be a number >= 1", got=named)
    return int(named)


def over_spans(work: Callable[[int, int], None], n: int, *, step: int) -> None:
    """Call work(low, high) for consecutive spans that cover n rows, in threads; return when all are done.

    Parameters
    ----------
    work : callable
        Does the rows [low, high). Spans run at the same time: each writes to its own part of the output.
    n : int
        Number of rows.
    step : int
        Rows per span, but for the last.

    Notes
    -----
    An error in a span is raised here.
    """
    starts = range(0, n, step)
    threads = min(thread_count(), len(starts))
    if threads <= 1:
        for low in starts:
            work(low, min(low + step, n))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda low: work(low, min(low + step, n)), starts):
            pass
