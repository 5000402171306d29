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

Because the noise of a row depends on its position alone, rows can be worked on in any order. `over_spans` splits them
into spans and gives each to a thread:

>>> seen = []
>>> over_spans(lambda low, high: seen.append((low, high)), 10, step=4)
>>> sorted(seen)
[(0, 4), (4, 8), (8, 10)]

References: NIST SP 800-38A (counter mode); FIPS 197 (AES).

Design notes. A block's counter is ``stream || index``, 64 bits each, so that independent uses of one key (streams)
never share a block. Keys do not pickle: an engine that must move one does so on purpose, through `NoiseKey.reveal`.
Compiled loops and AES release the interpreter's lock, so plain threads are enough. Spans are handed out one by one: a
busy core delays its own span only, and the answer never depends on how many threads there are. Their number is that of
the cores this process may use, or $LABELDP_THREADS.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
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


class NoiseKey:
    """A secret 256-bit key that every draw of one release comes from. It shows nothing and does not pickle."""

    __slots__ = ("_claimed", "_secret", "seeded")

    def __init__(self, secret: bytes, *, seeded: bool) -> None:
        if len(secret) != KEY_BYTES:
            raise invalid("NoiseKey", "secret", f"have {KEY_BYTES} bytes", got=len(secret))
        self._secret = bytes(secret)
        self._claimed: set[str] = set()
        self.seeded = seeded

    @classmethod
    def from_os(cls) -> NoiseKey:
        """Return a fresh key from the operating system's generator: the only private kind."""
        return cls(secrets.token_bytes(KEY_BYTES), seeded=False)

    @classmethod
    def from_seed(cls, seed: int) -> NoiseKey:
        """Return a reproducible key for experiments; everything drawn from it is marked seeded."""
        return cls(hashlib.sha256(b"labeldp seed 1:" + str(int(seed)).encode()).digest(), seeded=True)

    def child(self, *names: str | int) -> NoiseKey:
        """Return an independent key for a named part (a stage, a histogram), by HMAC-SHA256 of the path of names.

        The same names give the same key. An integer and the text of its digits are different names.
        """
        secret = self._secret
        for name in names:
            secret = hmac.new(secret, f"{type(name).__name__}:{name}".encode(), hashlib.sha256).digest()
        return NoiseKey(secret, seeded=self.seeded)

    def claim(self, purpose: str) -> NoiseKey:
        """Return the child key of a purpose that may be served only once: the same noise on two answers cancels out.

        A seeded key is reproducible by intention and may be claimed again.
        """
        if purpose in self._claimed and not self.seeded:
            raise PrivacyError(
                f"NoiseKey: noise for {purpose} was drawn from this key before. Use rng=None for fresh noise."
            )
        self._claimed.add(purpose)
        return self.child(purpose)

    def words(self, *, start: int, count: int, stream: int = 0) -> Words:
        """Return blocks ``start .. start + count - 1`` as an array of shape (count, 2) of 64-bit words.

        Row i is the noise of example ``start + i``. `stream` separates independent uses of one key.
        """
        buffer = np.empty(count * BLOCK_BYTES + BLOCK_BYTES - 1, np.uint8)
        self.fill(buffer, start=start, count=count, stream=stream)
        return buffer[: count * BLOCK_BYTES].view("<u8").reshape(count, 2)

    def fill(self, buffer: UInt8s, *, start: int, count: int, stream: int = 0) -> None:
        """Write blocks into `buffer`, which needs `BLOCK_BYTES` - 1 bytes more than ``count`` blocks."""
        nonce = stream.to_bytes(8, "big") + start.to_bytes(8, "big")
        encryptor = Cipher(algorithms.AES(self._secret), modes.CTR(nonce)).encryptor()
        view = buffer.data
        for done in range(0, count, PIECE_BLOCKS):
            size = min(PIECE_BLOCKS, count - done) * BLOCK_BYTES
            begin = done * BLOCK_BYTES
            encryptor.update_into(memoryview(_ZEROS)[:size], view[begin : begin + size + BLOCK_BYTES - 1])

    def reveal(self) -> bytes:
        """Return the secret itself, for an engine that moves it to a worker. Never store or log it."""
        return self._secret

    def __repr__(self) -> str:
        return f"<NoiseKey: secret{', seeded' if self.seeded else ''}>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("NoiseKey: a secret key does not pickle. Draw where the key is, or move `key.reveal()`.")


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


def as_key(owner: str, rng: Any) -> NoiseKey:
    """Return the key that the `rng` of a public call names.

    None is a fresh key from the operating system, the only private choice. An int is a seed, a NumPy generator draws a
    seed; both mark what is drawn `seeded`. A `NoiseKey` is returned as it is. Anything else is refused in the name of
    `owner`.
    """
    if rng is None:
        return NoiseKey.from_os()
    if isinstance(rng, NoiseKey):
        return rng
    if isinstance(rng, np.random.Generator):
        return NoiseKey(rng.bytes(KEY_BYTES), seeded=True)
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return NoiseKey.from_seed(int(rng))
    fix = "Use None for secure noise; an int seed or numpy.random.Generator makes a reproducible, not private, release."
    raise invalid(owner, "rng", "be None, an int or a numpy.random.Generator", got=rng, fix=fix)


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
