"""Paillier's cryptosystem (1999), for sums under encryption: `crypto.packed` modulo n^2.

    key        n = p q, of 2,048 or 3,072 bits; N = n^2, g = 1 + n, so that g^m = 1 + m n
    encrypt    (1 + m n) u modulo n^2, u an n-th power
    open       modulo p^2: c^(p-1) = 1 + m n (p - 1), as u^(p-1) is 1 there; so m modulo p, and likewise modulo q

Plaintexts are numbers modulo n: with sums below 2^31, 31 of them go into one ciphertext of 2,048 bits' keys.

Who has no key learns nothing if n-th powers modulo n^2 cannot be told from other numbers (decisional composite
residuosity), and rows take short exponents (`crypto.packed`). At best that is as hard as factoring n: about 112 bits
for 2,048, 128 for 3,072. Primes come from OpenSSL, as those of RSA keys do. n and phi(n) have no divisor in common,
because p and q have the same length.

One key serves for a run, and never for another. Powers take as long as they take: opening is not constant in time.
"""

from __future__ import annotations

from hedgerow.crypto.additive import LIMIT, Words
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.packed import Fields, PackedHolder, PackedKeys, check_key_bits, gmpy2, to_words

KEY_BITS = 2048
PUBLIC_EXPONENT = 65537
"""Of the RSA key whose primes are taken; not used otherwise."""


def new_primes(key_bits: int) -> tuple[int, int]:
    """p and q of half the length each, so that n has exactly key_bits bits."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    numbers = rsa.generate_private_key(PUBLIC_EXPONENT, key_bits).private_numbers()
    return numbers.p, numbers.q


def fields_of(key_bits: int, limit: int) -> Fields:
    """Every plaintext below 2**(key_bits - 1) is below n."""
    return Fields.of(check_key_bits(key_bits) - 1, limit)


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
        p, q = primes or new_primes(key_bits)
        n = p * q
        super().__init__(rng, n * n, fields_of(key_bits, limit), [to_words(n, key_bits // 64)])
        self._p, self._q, self._n = p, q, n
        invert = gmpy2().invert
        self._halves = [(f, f * f, int(invert(f - 1, f) * invert(n // f, f) % f)) for f in (p, q)]
        self._q_inverse = int(invert(q, p))
        for prime in (p, q):
            self.add_part(prime * prime, prime, n)

    def plaintexts(self, ciphertexts: list[int]) -> list[int]:
        """By both primes."""
        by_prime = []
        for prime, square, scale in self._halves:
            powers = gmpy2().powmod_base_list([c % square for c in ciphertexts], prime - 1, square)
            by_prime.append([int((power - 1) // prime * scale % prime) for power in powers])
        return [b + self._q * ((a - b) * self._q_inverse % self._p) for a, b in zip(*by_prime, strict=True)]


class Holder(PackedHolder):
    """n alone."""

    def __init__(self, n_rows: int, key_bits: int = KEY_BITS, limit: int = LIMIT) -> None:
        n_words = key_bits // 64
        super().__init__(n_rows, key_bits, 2 * n_words, n_words, fields_of(key_bits, limit))

    def whole_of(self, n: int, rest: Words) -> int:  # noqa: ARG002 - there is none
        """n^2."""
        return n * n

    def powers(self, exponents: list[int]) -> list[int]:
        """(1 + n)^k = 1 + k n."""
        return [(1 + k * self.n) % (self.n * self.n) for k in exponents]
