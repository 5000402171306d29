"""The source of all noise: AES in counter mode, seekable, in disjoint streams, behind a key that shows nothing."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.random import KEY_BYTES, PIECE_BLOCKS, BitStream, NoiseKey, as_key, over_spans, thread_count


def blocks_by_ecb(secret: bytes, *, start: int, count: int, stream: int) -> np.ndarray:
    """The same blocks another way: each counter ``stream || index`` encrypted on its own, without counter mode."""
    counters = b"".join(((stream << 64) + index).to_bytes(16, "big") for index in range(start, start + count))
    encryptor = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()
    return np.frombuffer(encryptor.update(counters), "<u8").reshape(count, 2)


@given(
    seed=st.integers(0, 2**32),
    start=st.integers(0, 2**64 - 50),
    count=st.integers(0, 40),
    stream=st.integers(0, 2**64 - 1),
)
def test_words_are_aes_of_stream_and_index(seed: int, start: int, count: int, stream: int) -> None:
    key = NoiseKey.from_seed(seed)
    expected = blocks_by_ecb(key.reveal(), start=start, count=count, stream=stream)
    np.testing.assert_array_equal(key.words(start=start, count=count, stream=stream), expected)


def test_known_answer_of_the_standard() -> None:
    """FIPS 197, Appendix C.3: AES-256 of a given key and plaintext; the plaintext is our counter."""
    key = NoiseKey(bytes(range(32)), seeded=True)
    plain = int("00112233445566778899aabbccddeeff", 16)
    words = key.words(start=plain % 2**64, count=1, stream=plain >> 64)
    assert words.astype("<u8").tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_words_are_seekable_across_pieces() -> None:
    key = NoiseKey.from_seed(3)
    whole = key.words(start=5, count=PIECE_BLOCKS + 7)
    np.testing.assert_array_equal(
        whole[PIECE_BLOCKS - 2 :], key.words(start=5 + PIECE_BLOCKS - 2, count=9), err_msg="a piece lost its place"
    )
    # 2 (2^16 + 7) words that repeat: chance below (2^17.1)^2 / 2^65 < 1e-9, and the key is fixed.
    assert np.unique(whole).size == whole.size


@given(batches=st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_batches_do_not_change_the_words(batches: list[int]) -> None:
    key = NoiseKey.from_seed(4)
    starts = np.cumsum([0, *batches])
    parts = [key.words(start=int(start), count=count) for start, count in zip(starts, batches, strict=False)]
    np.testing.assert_array_equal(np.concatenate(parts), key.words(start=0, count=sum(batches)))


def test_streams_are_disjoint() -> None:
    key = NoiseKey.from_seed(5)
    words = np.concatenate([key.words(start=0, count=1000, stream=stream).reshape(-1) for stream in range(8)])
    # 16000 words of 64 bits: a chance repeat has probability below 16000^2 / 2^65 < 1e-11.
    assert np.unique(words).size == words.size


def test_a_stream_that_ends_does_not_reach_the_next_by_way_of_start() -> None:
    """The last block of one stream and the first of the next have adjacent counters and differ."""
    key = NoiseKey.from_seed(6)
    last = key.words(start=2**64 - 1, count=1, stream=0)
    assert not np.array_equal(last, key.words(start=0, count=1, stream=1))
    with pytest.raises(OverflowError):
        key.words(start=2**64, count=1)


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_bit_stream_never_hands_out_a_word_twice(counts: list[int]) -> None:
    bits = BitStream(NoiseKey.from_seed(8))
    words = np.concatenate([bits.take(count) for count in counts])
    assert words.size == sum(counts)
    assert np.unique(words).size == words.size


def test_bit_stream_replays_and_differs_from_per_example_noise() -> None:
    key = NoiseKey.from_seed(9)
    np.testing.assert_array_equal(BitStream(key).take(100), BitStream(key).take(100))
    assert not np.isin(BitStream(key).take(100), key.words(start=0, count=100)).any()
    assert BitStream(key).seeded


def test_seeded_keys_say_so_and_repeat() -> None:
    assert NoiseKey.from_seed(1).seeded
    assert NoiseKey.from_seed(1).reveal() == NoiseKey.from_seed(1).reveal() != NoiseKey.from_seed(2).reveal()
    assert not NoiseKey.from_os().seeded
    assert NoiseKey.from_os().reveal() != NoiseKey.from_os().reveal()


def test_a_key_shows_nothing() -> None:
    key = NoiseKey(b"correct horse battery staple 123", seeded=False)
    for text in (repr(key), str(key), f"{key}", repr([key]), repr(BitStream(key))):
        assert "horse" not in text
        assert key.reveal().hex() not in text
    assert repr(key) == "<NoiseKey: secret>"
    assert not hasattr(key, "__dict__")


def test_a_key_does_not_pickle_or_copy() -> None:
    key = NoiseKey.from_os()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LabelDPError, match="does not pickle"):
            attempt(key)
    with pytest.raises(LabelDPError, match="does not pickle"):
        pickle.dumps(BitStream(key))


def test_children_are_independent_and_keep_the_mark() -> None:
    key = NoiseKey.from_seed(10)
    paths: list[tuple[str | int, ...]] = [
        (),
        ("a",),
        ("b",),
        ("1",),
        (1,),
        ("a", "b"),
        ("b", "a"),
        ("ab",),
        (12,),
        (1, 2),
    ]
    secrets = [key.child(*path).reveal() for path in paths]
    assert len(set(secrets)) == len(paths)
    assert key.child("a", "b").reveal() == key.child("a").child("b").reveal()
    assert key.child("a").seeded
    assert not NoiseKey.from_os().child("a").seeded
    first, second = (key.child(name).words(start=0, count=2000).view(np.uint8) for name in ("a", "b"))
    # Differing bits of 256000 fair ones: 6 standard deviations (253 each), two-sided probability 2e-9.
    assert abs(int(np.unpackbits(first ^ second).sum()) - 128_000) < 6 * 253


def test_a_secret_has_one_length() -> None:
    with pytest.raises(LabelDPError, match=r"NoiseKey: `secret` must have 32 bytes, got 5\."):
        NoiseKey(b"short", seeded=False)


def test_as_key_takes_what_users_have() -> None:
    key = NoiseKey.from_os()
    assert as_key("f", key) is key
    assert not as_key("f", None).seeded
    assert as_key("f", 7).reveal() == as_key("f", np.int32(7)).reveal() == NoiseKey.from_seed(7).reveal()
    one, two = (as_key("f", np.random.default_rng(0)) for _ in range(2))
    assert one.seeded
    assert one.reveal() == two.reveal()
    assert len(one.reveal()) == KEY_BYTES


@pytest.mark.parametrize("rng", ["7", 7.0, True, object()])
def test_as_key_refuses_the_rest(rng: object) -> None:
    with pytest.raises(LabelDPError, match=r"privatize: `rng` must be None, an int or a numpy.random.Generator"):
        as_key("privatize", rng)


def test_the_seed_derivation_is_pinned() -> None:
    """Seeded experiments must replay across versions: this derivation may not change."""
    assert NoiseKey.from_seed(7).reveal() == hashlib.sha256(b"labeldp seed 1:7").digest()


def test_one_secure_key_serves_one_measurement():
    """The same noise on two statistics of equal sensitivity would cancel in their difference."""
    key = NoiseKey.from_os()
    key.claim("measure")
    with pytest.raises(PrivacyError, match="drawn from this key before"):
        key.claim("measure")
    key.claim("another purpose")
    seeded = NoiseKey.from_seed(1)
    assert seeded.claim("measure").reveal() == seeded.claim("measure").reveal()


# ------------------------------------------------------------------------------------------------ threads over spans of rows


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize(("n", "step"), [(0, 5), (1, 5), (5, 5), (11, 5), (1000, 7)])
def test_spans_cover_every_row_once(n, step, threads, monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", threads)
    rows: list[int] = []
    over_spans(lambda low, high: rows.extend(range(low, high)), n, step=step)
    assert sorted(rows) == list(range(n))


def test_several_threads_work_at_once(monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", "2")
    both = threading.Barrier(2, timeout=600)
    over_spans(
        lambda low, high: both.wait() and None, 2, step=1
    )  # one thread alone would wait until the barrier breaks


def test_an_error_in_a_span_is_raised(monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", "2")

    def work(low: int, high: int) -> None:
        if low >= 4:
            raise KeyError(low)

    with pytest.raises(KeyError):
        over_spans(work, 10, step=2)


@pytest.mark.parametrize("named", ["0", "-1", "two", ""])
def test_a_bad_number_of_threads_is_refused(named, monkeypatch):
    monkeypatch.setenv("LABELDP_THREADS", named)
    with pytest.raises(LabelDPError, match="LABELDP_THREADS"):
        thread_count()


# What was drawn from a key


def refused(draw: Callable[[], object]) -> bool:
    try:
        draw()
    except PrivacyError:
        return True
    return False


def test_no_block_is_handed_out_twice() -> None:
    """Against a set of blocks, in 2,000 requests of random spans on two streams: refused exactly where one was taken."""
    key, taken, rng = NoiseKey.from_os(), set[tuple[int, int]](), np.random.default_rng(5)
    for start, count, stream in zip(
        rng.integers(5_000, size=2_000).tolist(),
        rng.integers(0, 6, size=2_000).tolist(),
        rng.integers(2, size=2_000).tolist(),
        strict=True,
    ):
        wanted = {(stream, block) for block in range(start, start + count)}
        again = refused(lambda s=start, c=count, t=stream: key.words(start=s, count=c, stream=t))
        assert again == bool(wanted & taken)
        taken |= set() if again else wanted


def test_a_stream_of_bits_is_read_once() -> None:
    key = NoiseKey.from_os()
    BitStream(key).take(3)
    assert refused(lambda: BitStream(key).take(1))
    BitStream(key, stream=2).take(1)
    BitStream(key.child("a")).take(1)
    assert refused(lambda: BitStream(key.child("a")).take(1))


def test_a_whole_claim_covers_children_and_leaves_siblings() -> None:
    key = NoiseKey.from_os()
    twin = key.child("job").claim_all()
    assert np.array_equal(twin.child("x").words(start=0, count=2), twin.child("x").words(start=0, count=2))
    for draw in (
        lambda: key.child("job").words(start=0, count=1),
        lambda: key.child("job", "x").words(start=0, count=1),
        lambda: key.child("job").claim_all(),
        key.claim_all,
        lambda: NoiseKey(twin.reveal(), seeded=False).words(start=0, count=1),
    ):
        assert refused(draw)
    key.child("other").claim_all()
    key.words(start=0, count=1)


def test_a_used_key_is_not_claimed_whole() -> None:
    key = NoiseKey.from_os()
    key.child("a", "b").words(start=0, count=1)
    assert refused(key.claim_all)
    assert refused(key.child("a").claim_all)
    key.child("b").claim_all()


def test_the_argument_is_called_by_its_name() -> None:
    with pytest.raises(LabelDPError, match="Learner: `random_state` must be None"):
        as_key("Learner", "seed", name="random_state")
