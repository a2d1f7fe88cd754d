"""Okamoto's and Uchiyama's cryptosystem (1998), for sums under encryption: `crypto.packed` modulo n = p^2 q.

    key        p and q of a third of n each, n of 2,048 or 3,072 bits; g random; N = n
    encrypt    g^m u modulo n, u an n-th power
    open       modulo p^2: c^(p-1) = (g^(p-1))^m = (1 + p k)^m = 1 + m k p; so m modulo p

It is faster than Paillier's, because N is half as long and plaintexts are a third: numbers modulo p, of which 10 sums
below 2^31 take 660 bits out of 683. Who has no key learns nothing if numbers in the subgroup of order p cannot be told
from others (p-subgroup assumption), and rows take short exponents (`crypto.packed`). At best that is as hard as
factoring n. Three things are said against it, and hold here as follows:

- **Whoever makes a plaintext exceed p and sees what it opens to, factors n**: m minus that is a multiple of p. Here
  fields bound the plaintext: sums below the limit make 2^682 at most, less than p. And nobody sees what is opened: the
  label holder sends back neither sums nor anything made of them but its splits. A feature holder that departs from the
  protocol and sends other plaintexts sees a refusal, which ends the run and its key.
- **It is not to be used where others choose ciphertexts** and learn from the answers. There is one error for all that
  does not open to sums in range, and each one ends the run: an answer of one bit, in most runs none.
- **Equal lengths are perhaps not equally strong.** n = p^2 q has smaller primes than p q of the same length (683
  against 1,024 bits), and methods that find small factors or squared ones get better with that. None is known that
  breaks 2,048 bits; the 112 and 128 bits that are stated are those of factoring numbers of this length in general.
  Take 3,072 where that matters, or another scheme.

Primes are drawn from the generator of the run, and tested by gmpy2 (Baillie-PSW and Miller-Rabin with 40 bases).
One key serves for a run, and never for another. Powers take as long as they take: opening is not constant in time.
"""

from __future__ import annotations

import math

from hedgerow.crypto.additive import LIMIT, REFUSED, Words
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.packed import Fields, PackedHolder, PackedKeys, check_key_bits, from_words, gmpy2, to_words
from hedgerow.errors import ProtocolError

KEY_BITS = 2048
_ROUNDS = 64
"""GMP takes the first 24 for Baillie-PSW."""


def prime_bits(key_bits: int) -> tuple[int, int]:
    """Of p and of q."""
    third = -(-check_key_bits(key_bits) // 3)
    return third, key_bits - 2 * third


def new_prime(rng: SecureRandom, bits: int) -> int:
    """Uniform among primes of this many bits whose second bit is set too."""
    while True:
        candidate = rng.integer(1 << (bits - 2)) | 3 << (bits - 2) | 1
        if gmpy2().is_prime(candidate, _ROUNDS):
            return candidate


def new_primes(rng: SecureRandom, key_bits: int) -> tuple[int, int]:
    """p and q with p^2 q of exactly key_bits bits; every number modulo q is an n-th power, and p - 1 of p^2."""
    p_bits, q_bits = prime_bits(key_bits)
    while True:
        p, q = new_prime(rng, p_bits), new_prime(rng, q_bits)
        if (p * p * q).bit_length() == key_bits and math.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return p, q


def fields_of(key_bits: int, limit: int) -> Fields:
    """Every plaintext of a bit less than p has is below p."""
    return Fields.of(prime_bits(key_bits)[0] - 1, limit)


class Keys(PackedKeys):
    """p and q."""

    def __init__(
        self,
        rng: SecureRandom,
        key_bits: int = KEY_BITS,
        limit: int = LIMIT,
        primes: tuple[int, int] | None = None,
    ) -> None:
        """`primes` that others have made are for tests."""
        p, q = primes or new_primes(rng, key_bits)
        n, square = p * p * q, p * p
        powmod, invert = gmpy2().powmod, gmpy2().invert
        while True:
            g = 2 + rng.integer(n - 2)
            opened = int(powmod(g, p - 1, square) - 1) // p
            if math.gcd(g, n) == 1 and opened % p:
                break
        words = key_bits // 64
        super().__init__(rng, n, fields_of(key_bits, limit), [to_words(n, words), to_words(g, words)])
        self._p, self._square, self._scale = p, square, int(invert(opened, p))
        # g is an n-th power times 1 + unit, modulo p^2: the power is that of order p - 1, g^p
        unit = int(g * invert(powmod(g, p, square), square) - 1) % square
        self.add_part(square, p, unit)
        self.add_uniform(q)

    def plaintexts(self, ciphertexts: list[int]) -> list[int]:
        """By p."""
        powers = gmpy2().powmod_base_list([c % self._square for c in ciphertexts], self._p - 1, self._square)
        return [int((power - 1) // self._p * self._scale % self._p) for power in powers]


class Holder(PackedHolder):
    """n and g."""

    def __init__(self, n_rows: int, key_bits: int = KEY_BITS, limit: int = LIMIT) -> None:
        n_words = key_bits // 64
        super().__init__(n_rows, key_bits, n_words, 2 * n_words, fields_of(key_bits, limit))

    def whole_of(self, n: int, rest: Words) -> int:
        """n; g must be a number modulo it."""
        self._g = from_words(rest)
        if not 1 < self._g < n or math.gcd(self._g, n) != 1:
            raise ProtocolError(REFUSED)
        return n

    def powers(self, exponents: list[int]) -> list[int]:
        """g^k."""
        return [int(power) for power in gmpy2().powmod_exp_list(self._g, exponents, self.n)]
