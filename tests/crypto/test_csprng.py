from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.crypto.csprng import CHUNK_BYTES, Keystream, SecureRandom
from hedgerow.errors import InvalidParameter, InvalidType

SEED = bytes(range(32))


def test_stream_is_aes_256_ctr():
    """The generator's bytes are the AES-256-CTR key stream of its seed from counter zero, also across chunks."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    n = 2 * CHUNK_BYTES + 7
    expected = Cipher(algorithms.AES(SEED), modes.CTR(bytes(16))).encryptor().update(bytes(n))
    assert SecureRandom.from_seed(SEED).bytes(n) == expected


def test_published_vector():
    """The key stream is that of NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt), first two blocks."""
    stream = Keystream(bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"))
    stream.start(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"))
    drawn = bytearray(32)
    stream.fill(memoryview(drawn))
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    assert bytes(p ^ d for p, d in zip(plain, drawn, strict=True)) == cipher


@given(st.lists(st.integers(0, 100), max_size=8))
def test_only_the_sequence_of_draws_counts(lengths):
    """However a number of bytes is drawn, they are the same bytes."""
    rng = SecureRandom.from_seed(SEED)
    assert b"".join(rng.bytes(n) for n in lengths) == SecureRandom.from_seed(SEED).bytes(sum(lengths))


@pytest.mark.parametrize("shape", [0, 3, (), (2, 3), (0, 4), 10_000])
def test_words_are_little_endian_bytes(shape):
    """Words of any shape are the next bytes, eight at a time, and can be written to."""
    words = SecureRandom.from_seed(SEED).words(shape)
    assert words.dtype == np.uint64
    assert words.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert words.astype("<u8").tobytes() == SecureRandom.from_seed(SEED).bytes(8 * words.size)
    words += np.uint64(1)


def test_generators_differ():
    """Two generators with seeds of the operating system have nothing in common, nor has one with itself later."""
    one, two = SecureRandom(), SecureRandom()
    assert len({one.bytes(16), one.bytes(16), two.bytes(16), two.bytes(16)}) == 4


@pytest.mark.parametrize("n", [1, 2, 3, 10, 2**32 + 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64])
def test_below_stays_below(n):
    """Integers are below n, and near n where n is large; shapes are kept."""
    drawn = SecureRandom().below(n, (50, 40))
    assert drawn.shape == (50, 40)
    assert drawn.dtype == np.uint64
    assert int(drawn.max()) < n
    if n > 10:
        assert int(drawn.max()) > 0.98 * n


def test_below_is_unbiased():
    """For n = 3 * 2**62, where a plain remainder would give the lowest third twice as often, all thirds are equal."""
    n = 3 * 2**62
    thirds = np.bincount((SecureRandom().below(n, 60_000) >> np.uint64(62)).astype(int), minlength=3)
    biased = np.bincount((SecureRandom().words(60_000) % np.uint64(n) >> np.uint64(62)).astype(int), minlength=3)
    assert np.all(np.abs(thirds - 20_000) < 6 * np.sqrt(60_000 * 2 / 9))
    assert biased[0] > 29_000


@given(st.integers(1, 2**300))
def test_integer_stays_below(n):
    """One integer of any length is in its range."""
    assert 0 <= SecureRandom().integer(n) < n


def test_integer_is_uniform():
    """Each of five numbers comes up equally often, as far as chance allows."""
    rng = SecureRandom()
    found = np.bincount([rng.integer(5) for _ in range(10_000)], minlength=5)
    assert np.all(np.abs(found - 2000) < 6 * np.sqrt(10_000 * 4 / 25))


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda rng: rng.below(0, 1), InvalidParameter, "n must be between 1 and"),
        (lambda rng: rng.below(2**64 + 1, 1), InvalidParameter, "n must be between 1 and"),
        (lambda rng: rng.integer(0), InvalidParameter, "n must be at least 1, got 0"),
        (lambda rng: rng.bytes(-1), InvalidParameter, "must not be negative, got -1"),
        (lambda _: SecureRandom.from_seed(b"short"), InvalidParameter, "seed must have 32 bytes, got 5"),
        (lambda _: SecureRandom.from_seed(7), InvalidType, "seed must be bytes, got int"),
        (lambda _: Keystream(bytes(16)), InvalidParameter, "32 bytes, got 16"),
    ],
)
def test_bad_arguments(use, error, words):
    """Arguments out of range are refused with the value."""
    with pytest.raises(error, match=words):
        use(SecureRandom())


def test_no_use_after_fork(monkeypatch):
    """A generator refuses to draw in another process than its own."""
    rng = SecureRandom()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="SecureRandom was made in process"):
        rng.words(1)
