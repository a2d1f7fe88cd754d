"""Shamir's secret sharing: any `threshold` of n shares give the secret, fewer tell nothing about it.

Over the integers modulo the smallest prime above 2**256, so that every 32-byte string is a secret and a share is 33
bytes. A share is one point of a random polynomial whose value at zero is the secret:

    f(x) = secret + a_1 x + ... + a_(threshold-1) x^(threshold-1)        share of party k: (k, f(k)),  k = 1 .. n
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter, ProtocolError

PRIME = 2**256 + 297
SECRET_BYTES = 32
MAX_SHARES = 2**16 - 1
_VALUE_BYTES = 33
_HEADER = struct.Struct("<HH")
SHARE_BYTES = _HEADER.size + _VALUE_BYTES


class Share(NamedTuple):
    """One point of the polynomial, with the number of points that are needed."""

    number: int
    threshold: int
    value: int

    def to_bytes(self) -> bytes:
        """37 bytes."""
        return _HEADER.pack(self.number, self.threshold) + self.value.to_bytes(_VALUE_BYTES, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> Share:
        """The share that `to_bytes` wrote; ProtocolError for anything else."""
        if len(data) != SHARE_BYTES:
            raise ProtocolError(f"a share has {SHARE_BYTES} bytes, got {len(data)}")
        number, threshold = _HEADER.unpack_from(data)
        share = cls(number, threshold, int.from_bytes(data[_HEADER.size :], "little"))
        if number < 1 or threshold < 1 or share.value >= PRIME:
            raise ProtocolError("these bytes are not a share")
        return share

    def __repr__(self) -> str:
        return f"Share(number={self.number}, threshold={self.threshold}, value=hidden)"


def split(secret: bytes, n: int, threshold: int, rng: SecureRandom) -> list[Share]:
    """Shares of a 32-byte secret for parties 1 .. n.

    1. a_1 .. a_(threshold-1) uniform modulo the prime.
    2. share k = secret + a_1 k + a_2 k^2 + ...
    """
    if len(secret) != SECRET_BYTES:
        raise InvalidParameter(f"secret must have {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= n <= MAX_SHARES:
        raise InvalidParameter(f"threshold must be between 1 and n, n at most {MAX_SHARES}, got {threshold} of {n}")
    highest_first = [rng.integer(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "little")
    shares = []
    for x in range(1, n + 1):
        value = 0
        for coefficient in highest_first:
            value = (value + coefficient) * x % PRIME
        shares.append(Share(x, threshold, (value + constant) % PRIME))
    return shares


def join(shares: Sequence[Share]) -> bytes:
    """The secret behind at least `threshold` shares.

    1. secret = f(0), interpolated through the first `threshold` shares.
    2. Every further share must lie on the same polynomial; otherwise one of them is wrong, and nothing is returned.
    """
    if not shares:
        raise ProtocolError("no shares were given")
    threshold = shares[0].threshold
    if any(share.threshold != threshold for share in shares):
        raise ProtocolError("these shares have different thresholds, so they are not of one secret")
    numbers = tuple(share.number for share in shares)
    if len(set(numbers)) < len(numbers):
        raise ProtocolError(f"two shares have the same number among {sorted(numbers)}")
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares were given, {threshold} are needed")
    base, values = numbers[:threshold], [share.value for share in shares[:threshold]]
    for share in shares[threshold:]:
        if _interpolated(base, values, share.number) != share.value:
            raise ProtocolError(f"the shares {sorted(numbers)} are not of one secret: at least one of them is wrong")
    secret = _interpolated(base, values, 0)
    if secret >= 2**256:
        raise ProtocolError(
            f"the shares {sorted(numbers)} give no secret of {SECRET_BYTES} bytes: one of them is wrong"
        )
    return secret.to_bytes(SECRET_BYTES, "little")


def _interpolated(numbers: tuple[int, ...], values: Sequence[int], x: int) -> int:
    weights = _weights(numbers, x)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME


@functools.lru_cache(maxsize=1024)
def _weights(numbers: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Lagrange weights at x; they depend on who answered only, and the same parties answer again and again."""
    weights = []
    for k in numbers:
        above, below = 1, 1
        for other in numbers:
            if other != k:
                above = above * (x - other) % PRIME
                below = below * (k - other) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
