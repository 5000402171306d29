"""A release's key outside of the process that made it: as task data on its way to a worker, or sealed with a passphrase.

>>> key = NoiseKey.from_seed(7)
>>> CarriedKey.of(key)
<CarriedKey: secret>
>>> opened(sealed(key, "correct horse battery", about=b"job 1"), "correct horse battery", about=b"job 1")
<NoiseKey: secret, seeded>
>>> opened(sealed(key, "correct horse battery", about=b"job 1"), "guess", about=b"job 1")
Traceback (most recent call last):
...
labeldp.errors.PrivacyError: privatize_table: `passphrase` must be that of the job, ...

References: RFC 7914 (scrypt); NIST SP 800-38D (AES-GCM).

Design notes. scrypt with 128 MiB makes each guess of a passphrase dear; AES-GCM tells a wrong one from a right one, and binds
the box to its job. Whoever has the box and the passphrase can undo the noise: it is removed when the job ends. A carried
key pickles, on purpose, and shows nothing: schedulers and workers print the arguments of tasks that fail.
"""

from __future__ import annotations

import secrets
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from labeldp._random import KEY_BYTES, NoiseKey
from labeldp.errors import Described, PrivacyError, invalid

#: scrypt's cost: 128 * R * N = 128 MiB and some 0.3 s a guess.
N, R, P = 2**17, 8, 1
SALT_BYTES, NONCE_BYTES = 16, 12
LEAST_PASSPHRASE = 12


class CarriedKey:
    """A key as data of a task. It pickles, since that is what it is for; it shows nothing."""

    __slots__ = ("_secret", "_seeded")

    def __init__(self, secret: bytes, seeded: bool) -> None:  # noqa: FBT001 - pickle calls it by position
        self._secret, self._seeded = secret, seeded

    @classmethod
    def of(cls, key: NoiseKey) -> CarriedKey:
        """Return a key to be carried."""
        return cls(key.reveal(), key.seeded)

    def key(self) -> NoiseKey:
        """Return the key, where it has arrived."""
        return NoiseKey(self._secret, seeded=self._seeded)

    def __repr__(self) -> str:
        return "<CarriedKey: secret>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CarriedKey, (self._secret, self._seeded)


def check_passphrase(passphrase: Any) -> str:
    """Return a passphrase that is worth sealing with."""
    if not isinstance(passphrase, str) or len(passphrase) < LEAST_PASSPHRASE:
        got = Described("one that is shorter" if isinstance(passphrase, str) else type(passphrase).__name__)
        fix = "Whoever guesses it can undo the noise of an unfinished job."
        must = f"be a text of {LEAST_PASSPHRASE} characters or more"
        raise invalid("privatize_table", "passphrase", must, got=got, fix=fix)
    return passphrase


def sealed(key: NoiseKey, passphrase: str, *, about: bytes) -> dict[str, Any]:
    """Return a box, as JSON, that opens with the passphrase and for this job only."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    box = AESGCM(_stretched(passphrase, salt)).encrypt(nonce, bytes([key.seeded]) + key.reveal(), about)
    return {"kdf": "scrypt", "n": N, "r": R, "p": P, "salt": salt.hex(), "nonce": nonce.hex(), "box": box.hex()}


def opened(box: dict[str, Any], passphrase: str, *, about: bytes) -> NoiseKey:
    """Return the key of a box."""
    try:
        salt, nonce = bytes.fromhex(box["salt"]), bytes.fromhex(box["nonce"])
        plain = AESGCM(_stretched(passphrase, salt)).decrypt(nonce, bytes.fromhex(box["box"]), about)
    except (InvalidTag, KeyError, TypeError, ValueError) as error:
        fix = "Try again, or throw the job away (--discard)."
        got = Described("one that does not open its key")
        raise invalid(
            "privatize_table", "passphrase", "be that of the job", got=got, fix=fix, kind=PrivacyError
        ) from error
    return NoiseKey(plain[1:], seeded=bool(plain[0]))


def _stretched(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, n=N, r=R, p=P).derive(passphrase.encode("utf-8", "surrogatepass"))
