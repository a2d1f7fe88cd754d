"""Masks between pairs of parties that cancel in the sum over all of them.

    anna                     ben                      carla
    x_a + m_ab + m_ac        x_b - m_ab + m_bc        x_c - m_ac - m_bc        sum = x_a + x_b + x_c  (mod 2**64)

1. Each owner makes a key pair for this round (`KeyPair.generate`), signs `signed_key_statement(...)` with its identity
   key and sends its public key with the signature. Everybody checks everybody's signature, so that who passes keys on
   cannot put its own in their place.
2. Each pair computes the same secret (`pair_secret`): HKDF-SHA256(X25519(mine, theirs); run, round, names, keys).
3. For each message both compute the same mask words, AES-256-CTR under a key from that secret, beginning at a counter
   that names the message (`Position`). The earlier of the two names (sorted) adds them, the later one subtracts them.
4. Who sums up the messages of all owners, modulo 2**64, gets the sum of their values. One message alone, and any sum
   that lacks an owner, is uniform to everyone who lacks one of the keys in it.
5. If an owner drops out, nothing is taken back: the others start again at 1 under a new round id.

What it rests on: at least two owners who do not tell their keys to the receiver, and masks that are used once. Two
messages under one mask give away their exact difference, so a position is spent before its mask is computed, only
later positions remain, and neither a copy nor a forked process can go back (`PairwiseMasks`).

What is not claimed: constant time, beyond what the `cryptography` package gives for its own operations; erasure of
keys, which Python cannot promise (let go of the objects of a round when it is over, they cannot be stored).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from hedgerow.crypto.csprng import CHUNK_BYTES, KEY_BYTES, WORD, Keystream, Spent, Unshared, Words, nonce_at
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

PUBLIC_KEY_BYTES = 32
MAX_WORDS = 2**48
"""Words of one message; the counter has room for 2**57, so two messages of one key never meet in its stream."""

_POSITION = struct.Struct(">BIHH")  # leaves 56 bits for the number of the block within the message
_CHUNK_WORDS = CHUNK_BYTES // WORD.itemsize


class Position(NamedTuple):
    """Which message a mask is for. With one set of keys, positions must increase, compared from left to right.

    So `purpose` changes only forwards: all messages about trees share one purpose, with the leaves as a last level.
    A word's own place (node, feature, bin) is its index within the message.
    """

    purpose: int  # 0..255, for instance 0 totals, 1 quantiles, 2 histograms
    tree: int = 0  # below 2**32
    level: int = 0  # below 2**16
    part: int = 0  # below 2**16

    def packed(self) -> bytes:
        """Nine bytes whose order is the order of positions."""
        return nonce_of(self)[: _POSITION.size]


class KeyPair(Unshared):
    """An X25519 key pair for one round of masking; there is no way to store it, so a restart makes new keys.

    1. private = 32 bytes of the operating system. 2. public = private * base point, sent to all with a signature.
    """

    def __init__(self, private: X25519PrivateKey) -> None:
        super().__init__()
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> KeyPair:
        """A new pair from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    def exchange(self, theirs: bytes) -> bytes:
        """The X25519 shared point; ValueError for a public key that forces a known one."""
        with self.turn():
            return self._private.exchange(X25519PublicKey.from_public_bytes(theirs))

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"


def signed_key_statement(run_id: str, round_id: int, party: str, public: bytes, *, job: bytes) -> bytes:
    """What a party's identity signs: "in this round of this run, for the job with this digest, this is my key".

    1. label, run id, job, round id, party, key, each preceded by its length, so that no two statements share their
       bytes.
    """
    if len(public) != PUBLIC_KEY_BYTES:
        raise ProtocolError(f"{party} gave a public key of {len(public)} bytes, it must have {PUBLIC_KEY_BYTES}")
    return joined("hedgerow masking key v2", run_id, job, _round_bytes(round_id), party, public)


def pair_secret(mine: KeyPair, theirs: bytes, *, run_id: str, round_id: int, me: str, peer: str) -> bytes:
    """The 32 bytes that only `me` and `peer` know, the same for both.

    1. shared = X25519(my private key, their public key); a key that forces a known result is refused.
    2. secret = HKDF-SHA256(shared; run id, round id, both names sorted, both public keys in the same order).
    """
    if me == peer:
        raise ProtocolError(f"{me} cannot share masks with itself")
    if len(theirs) != PUBLIC_KEY_BYTES:
        raise ProtocolError(f"{peer} gave a public key of {len(theirs)} bytes, it must have {PUBLIC_KEY_BYTES}")
    if theirs == mine.public:
        raise ProtocolError(f"{peer} gave the public key of {me} as its own")
    try:
        shared = mine.exchange(theirs)
    except ValueError as error:
        raise ProtocolError(f"{peer} gave a public key that would make the secret known to all") from error
    (first, first_key), (second, second_key) = sorted([(me, mine.public), (peer, theirs)])
    about = joined("hedgerow pair secret v1", run_id, _round_bytes(round_id), first, second, first_key, second_key)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=about).derive(shared)


class PairwiseMasks(Unshared):
    """Hides one party's messages under masks that cancel in the sum over `me` and all parties in `secrets`.

    1. For each peer: key = HKDF-Expand(pair secret, "mask stream"), once.
    2. `hide(values, position)`: the position is spent; only later ones can be used with these keys from now on.
    3. result = values + sum of the masks shared with later names - sum of those shared with earlier names, mod 2**64.

    `secrets` are those of `pair_secret`; each set is for one object. After a dropout, make new keys under a new round
    id and a new object.
    """

    def __init__(self, me: str, secrets: Mapping[str, bytes]) -> None:
        super().__init__()
        check_secrets(me, secrets)
        self.me = me
        self.peers = tuple(sorted(secrets))
        keys = {peer: derived(secrets[peer], "mask stream v1") for peer in self.peers}
        self._added = [Keystream(keys[peer]) for peer in self.peers if peer > me]
        self._subtracted = [Keystream(keys[peer]) for peer in self.peers if peer < me]
        self._spent = Spent("these keys were", "new keys")

    def __repr__(self) -> str:
        return f"PairwiseMasks({self.me!r}, with {', '.join(self.peers)})"

    def hide(self, values: Words, position: Position, out: Words | None = None) -> Words:
        """`values` (uint64, any shape) under the masks of `position`; `out` may be `values` itself.

        Whatever goes wrong after the position was spent, it stays spent, and `out` is then all zeros.
        """
        check_values(values, out)
        position = as_position(position)
        with self.turn():
            self._spent.spend(position)
            return add_streams(values, self._added, self._subtracted, nonce_of(position), out)


def as_position(position: Position) -> Position:
    """A position whose fields are within their ranges, also from a plain tuple; otherwise ProtocolError."""
    return Position(*_POSITION.unpack_from(nonce_of(position)))


def nonce_of(position: Position) -> bytes:
    """The counter at which the words of a position begin, whether or not it was spent."""
    ranges = "a mask position is (purpose below 2**8, tree below 2**32, level and part below 2**16)"
    return nonce_at(_POSITION, position, ranges)


def add_streams(
    values: Words, added: list[Keystream], subtracted: list[Keystream], nonce: bytes, out: Words | None = None
) -> Words:
    """values + all words of `added` - all words of `subtracted`, each stream read from `nonce` on."""
    result = np.empty(values.shape, np.uint64) if out is None else out
    try:
        if result is not values:
            np.copyto(result, values)
        flat = result.reshape(-1)
        for stream in (*added, *subtracted):
            stream.start(nonce)
        for start in range(0, len(flat), _CHUNK_WORDS):
            part = flat[start : start + _CHUNK_WORDS]
            mask = np.empty(len(part), WORD)
            for streams, combine in ((added, np.add), (subtracted, np.subtract)):
                for stream in streams:
                    stream.fill(mask.data.cast("B"))
                    combine(part, mask, part)
    except BaseException:
        result.fill(0)  # it may hold bare values, or values under some of their masks only
        raise
    return result


def check_values(values: Words, out: Words | None) -> None:
    """Refuse what cannot be masked word by word."""
    if not isinstance(values, np.ndarray) or values.dtype != np.uint64:
        raise InvalidType(f"values must be an array of uint64, got {getattr(values, 'dtype', type(values).__name__)}")
    if values.size > MAX_WORDS:
        raise ProtocolError(f"a message of {values.size} words is too long for one mask position (2**48)")
    if out is None:
        return
    if not isinstance(out, np.ndarray) or out.dtype != np.uint64:
        raise InvalidType(f"out must be an array of uint64, got {getattr(out, 'dtype', type(out).__name__)}")
    if out.shape != values.shape or not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidParameter(f"out must be writeable, C-contiguous and of shape {values.shape}, got {out.shape}")


def check_secrets(me: str, secrets: Mapping[str, bytes]) -> None:
    """Refuse a set of pair secrets that would hide nothing."""
    if not secrets:
        raise ProtocolError(f"{me} has nobody to share masks with: its values would be sent as they are")
    if me in secrets:
        raise ProtocolError(f"secrets must not hold one for {me} itself")
    for peer, secret in secrets.items():
        if len(secret) != KEY_BYTES:
            raise InvalidParameter(f"the secret shared with {peer} must have {KEY_BYTES} bytes, got {len(secret)}")
    if len(set(secrets.values())) < len(secrets):
        raise ProtocolError(f"{me} shares one secret with two peers; every pair needs its own")


def derived(secret: bytes, *about: str | bytes) -> bytes:
    """A key of its own for one purpose: HKDF-Expand-SHA256(secret, purpose)."""
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, info=joined(*about)).derive(secret)


def joined(*parts: str | bytes) -> bytes:
    """The parts in one byte string, each preceded by its length, so that no two lists of parts share their bytes."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(4, "little") + part for part in encoded)


def _round_bytes(round_id: int) -> bytes:
    if not 0 <= round_id < 2**64:
        raise InvalidParameter(f"round_id must be between 0 and 2**64 - 1, got {round_id}")
    return round_id.to_bytes(8, "little")
