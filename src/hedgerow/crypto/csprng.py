"""Random words that nobody can foresee: AES-256 in counter mode under a key from the operating system.

`Keystream` is the stream of one key, to be read at any position; masks are made of it. `SecureRandom` is a generator
that reads such a stream from its beginning to its end. Both give little-endian 64-bit words, on every machine.

What is not claimed: the key stays in memory until Python lets go of the object, and cannot be erased with certainty
before. Who reads the memory of a party can compute the words that this party has drawn.
"""

from __future__ import annotations

import os
import struct
from threading import Lock
from typing import NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

KEY_BYTES = 32
NONCE_BYTES = 16
WORD = np.dtype("<u8")
CHUNK_BYTES = 1 << 17  # within a second-level cache; smaller pieces cost more in calls than they gain in cache
_ZEROS = memoryview(bytes(CHUNK_BYTES))

Words = npt.NDArray[np.uint64]


class Unshared:
    """Base of what must exist just once: generators, private keys, mask streams. `with self.turn():` around each use.

    Two copies would hand out the same random words or the same masks, and a mask that was used twice hides nothing. A
    copy comes about in three ways, and each is refused:

    1. `copy`, `deepcopy` or pickling: there is no way to take the object apart.
    2. A fork: the child holds all that the parent held. Using it there raises.
    3. Two threads inside one object at the same time: they take turns.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()

    def turn(self) -> Lock:
        """The lock to hold while using the object; raises in a process that only inherited it."""
        if os.getpid() != self._process:
            raise ProtocolError(
                f"{type(self).__name__} was made in process {self._process} and may not be used in process "
                f"{os.getpid()}, which was forked from it: both would draw the same words. Make a new one."
            )
        return self._lock

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProtocolError(f"{type(self).__name__} cannot be copied or stored: the copy would draw the same words")


class Spent:
    """The last place of a stream that was used. Places must increase, compared field by field from left to right."""

    def __init__(self, stream: str, anew: str) -> None:
        self._stream, self._anew = stream, anew
        self._last: tuple[int, ...] = ()

    def spend(self, place: tuple[int, ...]) -> None:
        """Take a place out of use for ever, or raise."""
        if place <= self._last:
            raise ProtocolError(
                f"the words at {place} cannot be used: {self._stream} already used at {self._last}, and a mask that is "
                f"used twice gives away the difference of what it hides. Use a later place or {self._anew}."
            )
        self._last = place


def nonce_at(layout: struct.Struct, place: tuple[int, ...], ranges: str) -> bytes:
    """The counter at which the words of a place begin: its fields, big-endian, so that their order is that of places.

    What is left of the 16 bytes is 0, the number of the first block. ProtocolError for fields beyond their `ranges`.
    """
    try:
        return layout.pack(*place).ljust(NONCE_BYTES, b"\0")
    except (struct.error, TypeError) as error:
        raise ProtocolError(f"{ranges}, got {place}") from error


class Keystream:
    """The words of one key, from any place in its stream.

    1. `start(nonce)`: the 16 bytes of the nonce are the counter of the first block.
    2. `fill(buffer)`: the next len(buffer) bytes, AES-256(key, counter), AES-256(key, counter + 1), ...

    Who wants streams that never meet leaves room for the counter in the last bytes of the nonce.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidParameter(f"a key must have {KEY_BYTES} bytes, got {len(key)}")
        # One cipher for many nonces: setting up a key takes as long as 20 KB of words.
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(NONCE_BYTES))).encryptor()

    def start(self, nonce: bytes) -> None:
        """Go to the beginning of the stream of this nonce."""
        self._cipher.reset_nonce(nonce)

    def fill(self, buffer: memoryview) -> None:
        """Overwrite the buffer, of at most CHUNK_BYTES bytes, with what comes next in the stream."""
        self._cipher.update_into(_ZEROS[: len(buffer)], buffer)


class SecureRandom(Unshared):
    """A generator of uniform bytes, words and integers; `SecureRandom()` takes its seed from `os.urandom`.

    1. seed = 32 bytes of the operating system, or given by `from_seed` (tests, seeds that two parties share).
    2. stream = AES-256-CTR(seed, 0); every draw takes the next bytes of it, so that only the sequence of draws counts:
       bytes(3) + bytes(5) == bytes(8), and words(1) is those eight bytes as one little-endian number.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        super().__init__()
        self._stream = Keystream(os.urandom(KEY_BYTES) if seed is None else seed)
        self._stream.start(bytes(NONCE_BYTES))

    @classmethod
    def from_seed(cls, seed: bytes) -> SecureRandom:
        """The generator that draws the same for the same seed of 32 bytes."""
        if not isinstance(seed, bytes):
            raise InvalidType(f"seed must be bytes, got {type(seed).__name__}")
        if len(seed) != KEY_BYTES:
            raise InvalidParameter(f"seed must have {KEY_BYTES} bytes, got {len(seed)}")
        return cls(seed)

    def bytes(self, n: int) -> bytes:
        """The next n bytes."""
        if n < 0:
            raise InvalidParameter(f"n must not be negative, got {n}")
        drawn = bytearray(n)
        view = memoryview(drawn)
        with self.turn():
            for start in range(0, n, CHUNK_BYTES):
                self._stream.fill(view[start : start + CHUNK_BYTES])
        return bytes(drawn)

    def words(self, shape: int | tuple[int, ...]) -> Words:
        """An array of uniform 64-bit words."""
        n_words = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self.bytes(8 * n_words), WORD).astype(np.uint64).reshape(shape)

    def below(self, n: int, size: int | tuple[int, ...]) -> Words:
        """An array of integers, each uniform among 0 .. n-1; n at most 2**64.

        1. Draw words; those at or above the largest multiple of n that fits 64 bits are drawn again.
        2. The rest modulo n, each remainder then standing for equally many words.
        """
        if not 1 <= n <= 2**64:
            raise InvalidParameter(f"n must be between 1 and 2**64, got {n}")
        drawn = self.words(size)
        if n == 2**64:
            return drawn
        last = np.uint64(2**64 - 2**64 % n - 1)
        flat = drawn.reshape(-1)
        while len(again := np.flatnonzero(flat > last)):
            flat[again] = self.words(len(again))
        flat %= np.uint64(n)
        return drawn

    def integer(self, n: int) -> int:
        """One integer, uniform among 0 .. n-1, for n of any length: draws its bits until they are below n."""
        if n < 1:
            raise InvalidParameter(f"n must be at least 1, got {n}")
        bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
            if drawn < n:
                return drawn
