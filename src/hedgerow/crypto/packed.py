"""What Paillier and Okamoto-Uchiyama share: products of ciphertexts are sums, and a ciphertext has room for several.

    ciphertext   c = g^m u modulo N, u any n-th power; m is known modulo a big number, of which `plain_bits` are used
    row          m = v_0 2^w + v_1: both values in one ciphertext; a product of rows encrypts the sums of both
    field        (s_0 + 2^(w-1)) 2^w + (s_1 + 2^(w-1)), between 0 and 2^(2w): sums stay below `limit` <= 2^(w-2); so a
                 sum with noise, each below the limit, never reaches into its neighbour, and is refused if it is not
    sent back    Horner: c_0 c_1^(2^(2w)) c_2^(2^(4w)) ... has a sum in every field; times g^k for a constant k, which
                 makes all fields positive and holds the noise; times r^n for a new uniform r
    open         m below 2^(2w fields), or it is refused; each field apart

**What comes back depends on nothing but the sums.** The holder of the key made the u of every row, so it could tell
from their product which rows were added. r^n is uniform among all n-th powers, so the product with it is as well,
whatever it was before: perfectly, not by an assumption, which against who can factor n would be worth little. It is
also why the holder draws r itself, for the price of a long power per ciphertext, and uses nothing random that the
owner of the key has sent.

**Rows are encrypted by who can factor N**: each prime power of N apart, put together by the Chinese remainder theorem.
Modulo p^2 the n-th powers are a group of p - 1 elements, which a table of one random element's powers reaches: e is 260
random bits, b^e takes 26 products. That is not uniform in the group. It is as good as uniform if numbers with short
exponents cannot be told from others (Koshiba and Kurosawa 2004: as hard as discrete logarithms with short exponents).
Nobody who does not know p sees b or anything modulo p alone, and the best known attacks on 260 bits take 2^130 steps
even if they do. What the key's owner gets back is not concerned: see above.

A ciphertext is sent as words in Montgomery form, c 2^(64 words) modulo N, as kernels take it (`crypto.montgomery`).
Checked are: the length of n, which must be odd; words below N; no common divisor with n.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hedgerow.crypto import montgomery
from hedgerow.crypto.additive import (
    REFUSED,
    VALUES,
    Cells,
    Flags,
    Ints,
    RowIds,
    Sizes,
    Words,
    check_limit,
    check_values,
)
from hedgerow.crypto.csprng import SecureRandom, Unshared
from hedgerow.crypto.montgomery import Modulus
from hedgerow.errors import InvalidParameter, ProtocolError

KEY_BITS = (2048, 3072)
"""Lengths of n: about 112 and 128 bits of security, as NIST rates factoring (SP 800-57)."""

WINDOW, N_WINDOWS = 10, 26
"""Of exponents: 260 bits."""

_SLACK_WORDS = 2
"""Random words beyond the length of a modulus: reduced, they are 2**-128 from uniform."""


def gmpy2() -> Any:
    """The package for powers and inverses of big numbers."""
    try:
        import gmpy2
    except ImportError:
        raise InvalidParameter(
            "Paillier and Okamoto-Uchiyama need the package gmpy2; install it with: "
            "pip install 'hedgerow[homomorphic]', or take scheme='elgamal'"
        ) from None
    return gmpy2


class Fields(NamedTuple):
    """How sums lie in a plaintext."""

    half: int
    """w: bits of one of the two values."""
    pack: int
    limit: int

    @classmethod
    def of(cls, plain_bits: int, limit: int) -> Fields:
        """As many as plaintexts below 2**plain_bits hold."""
        half = (check_limit(limit) - 1).bit_length() + 2
        return cls(half, plain_bits // (VALUES * half), limit)

    @property
    def bits(self) -> int:
        """Of a field."""
        return VALUES * self.half

    def constant(self, noise: Ints) -> int:
        """What is added to the fields of one ciphertext, for noise [sums, 2]; fields without a sum get none."""
        middle, total = 1 << (self.half - 1), 0
        for one, other in [*noise.tolist(), *[(0, 0)] * (self.pack - len(noise))][::-1]:
            total = (total << self.bits) + ((one + middle) << self.half) + other + middle
        return total

    def split(self, plain: int) -> list[tuple[int, int]]:
        """Sums; ProtocolError unless all are in range."""
        middle, mask = 1 << (self.half - 1), (1 << self.half) - 1
        if plain >> (self.bits * self.pack):
            raise ProtocolError(REFUSED)
        return [
            ((plain >> (self.bits * j + self.half) & mask) - middle, (plain >> (self.bits * j) & mask) - middle)
            for j in range(self.pack)
        ]


def sizes_of(key_words: int, words: int, fields: Fields) -> Sizes:
    """Nothing per tree, and one number for everything else."""
    return Sizes(key_words, 0, 0, words, words, words, pack=fields.pack)


def check_key_bits(key_bits: int) -> int:
    """One of those that are offered."""
    if key_bits not in KEY_BITS:
        raise InvalidParameter(f"key_bits must be one of {', '.join(map(str, KEY_BITS))}, got {key_bits}")
    return key_bits


# --- who has the key -------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A prime power of N, and how its owner encrypts modulo it."""

    modulus: Modulus
    table: Words
    constants: Words
    lift: Words
    """Modulo N: 1 here and 0 modulo the rest, times 2**(128 words) for Montgomery's products."""


class PackedKeys(Unshared, ABC):
    """The owner of a key that serves for a whole run: every ciphertext has randomness of its own."""

    def __init__(self, rng: SecureRandom, whole: int, fields: Fields, key: Sequence[Words]) -> None:
        """`whole` is N, `key` what is public."""
        super().__init__()
        self._rng, self._whole, self._fields = rng, Modulus(whole), fields
        self._key = np.concatenate(key)
        self.sizes = sizes_of(len(self._key), self._whole.n_words, fields)
        self._parts: list[Part] = []
        self._uniform: tuple[Words, int] | None = None

    @property
    def key(self) -> Words:
        """What is public."""
        return self._key

    def row_points(self, first: int, last: int) -> Words:
        """There are none."""
        return np.empty((last - first, 0), np.uint64)

    def begin_tree(self) -> Words:
        """Nothing is new: ciphertexts are."""
        return np.empty(0, np.uint64)

    def encrypt_rows(self, first: int, values: Ints) -> Words:  # noqa: ARG002 - rows are not told apart
        """Each under randomness of its own."""
        return self.encrypt_totals(values)

    def encrypt_totals(self, values: Ints) -> Words:
        """As rows are."""
        flat = check_values(values, VALUES, self._fields.limit).reshape(-1)
        n, whole = len(values), self._whole
        out = np.zeros(n * whole.n_words, np.uint64)
        for modulus, table, constants, lift in self._parts:
            digits = np.frombuffer(self._rng.bytes(2 * N_WINDOWS * n), "<u2").astype(np.uint16) % (1 << WINDOW)
            part = np.empty(n * modulus.n_words, np.uint64)
            montgomery.encrypt_part(
                flat, digits, table, N_WINDOWS, WINDOW, constants, modulus.words, modulus.inverse, part
            )
            montgomery.add_lifted(part, modulus.n_words, lift, out, whole.words, whole.inverse)
        if self._uniform is not None:
            lift, n_drawn = self._uniform
            drawn = self._rng.words(n * n_drawn)
            montgomery.add_lifted(drawn, n_drawn, lift, out, whole.words, whole.inverse)
        montgomery.reduce(out, whole.words)
        return out.reshape(n, whole.n_words)

    def open(self, words: Words) -> Ints:
        """All fields of each."""
        flat = np.ascontiguousarray(words).reshape(-1)
        check_ciphertexts(flat, self._whole, self._whole.value)
        sums = [
            pair
            for plain in self.plaintexts([self._whole.number(each) for each in words])
            for pair in self._fields.split(plain)
        ]
        opened = np.array(sums, np.int64).reshape(-1, VALUES)
        if (np.abs(opened) >= self._fields.limit).any():
            raise ProtocolError(REFUSED)
        return opened

    @abstractmethod
    def plaintexts(self, ciphertexts: list[int]) -> list[int]:
        """m of each."""

    def add_part(self, power: int, prime: int, unit: int) -> None:
        """`power`, a square of `prime`, is a factor of N; g^m is 1 + m unit modulo it, but for an n-th power."""
        modulus, powmod = Modulus(power), gmpy2().powmod
        base = int(powmod(2 + self._rng.integer(power - 2), prime, power))
        words, inverse = modulus.words, modulus.inverse
        table = montgomery.make_table(modulus.form(base), modulus.form(1), N_WINDOWS, WINDOW, words, inverse)
        of_values = (unit << self._fields.half, unit)
        constants = np.concatenate([modulus.form(sign * each % power) for sign in (1, -1) for each in of_values])
        self._parts.append(Part(modulus, table, constants, self._lift(power)))

    def add_uniform(self, factor: int) -> None:
        """Modulo this factor of N, every number is an n-th power, and m is nowhere."""
        self._uniform = self._lift(factor), -(-factor.bit_length() // 64) + _SLACK_WORDS

    def _lift(self, factor: int) -> Words:
        rest = self._whole.value // factor
        one_here = rest * pow(rest, -1, factor)
        return self._whole.form(one_here << (64 * self._whole.n_words))


# --- who sums --------------------------------------------------------------------------------------------------------


def check_ciphertexts(flat: Words, whole: Modulus, n: int) -> None:
    """ProtocolError unless all are below N and have no divisor in common with n."""
    together = whole.form(1)
    if not montgomery.product_if_below(flat, whole.words, whole.inverse, together):
        raise ProtocolError(REFUSED)
    if math.gcd(whole.number(together), n) != 1:
        raise ProtocolError(REFUSED)


class PackedHolder(ABC):
    """Encrypted rows of a peer, and sums of them, in Montgomery form."""

    def __init__(self, n_rows: int, key_bits: int, words: int, key_words: int, fields: Fields) -> None:
        self._key_bits, self._fields = check_key_bits(key_bits), fields
        self.sizes = sizes_of(key_words, words, fields)
        self._rows = np.empty((n_rows, words), np.uint64)
        self._gmpy2 = gmpy2()

    def take_key(self, words: Words) -> None:
        """n, and what else the scheme has."""
        n_words = self._key_bits // 64
        n = from_words(words[:n_words])
        if n.bit_length() != self._key_bits or n % 2 == 0:
            raise ProtocolError(REFUSED)
        self.n, self._whole = n, Modulus(self.whole_of(n, words[n_words:]))
        self._no_noise = self.powers([self._fields.constant(np.empty((0, VALUES), np.int64))])[0]

    def take_points(self, first: int, words: Words) -> None:  # noqa: B027 - other schemes have some
        """There are none."""

    def take_tree(self, words: Words) -> None:  # noqa: B027 - other schemes have some
        """There are none."""

    def take_rows(self, first: int, words: Words) -> None:
        """One ciphertext a row."""
        check_ciphertexts(np.ascontiguousarray(words).reshape(-1), self._whole, self.n)
        self._rows[first : first + len(words)] = words

    def no_sums(self, n: int) -> Words:
        """Ones."""
        return np.tile(self._whole.form(1), (n, 1))

    def unset_sums(self, n: int) -> Words:
        """Any."""
        return np.empty((n, self._whole.n_words), np.uint64)

    def add_rows(self, which: RowIds, cell: Cells, skipped: int, cells: Words, used: Flags) -> None:
        """A product per row."""
        whole = self._whole
        montgomery.add_rows(
            self._rows.reshape(-1), which, cell, skipped, cells.reshape(-1), used, whole.words, whole.inverse
        )

    def fold_cells(self, cells: Words, used: Flags, n_codes: Ints, skipped: Ints, first: Ints, sums: Words) -> None:
        """A product per cell in use and column."""
        whole, flat = self._whole, sums.reshape(-1)
        montgomery.fold_cells(cells.reshape(-1), used, n_codes, skipped, first, flat, whole.words, whole.inverse)

    def complete(self, sums: Words, n_codes: Ints, skipped: Ints, first: Ints, total: Words) -> None:
        """A product per sum, and an inverse per column."""
        whole = self._whole
        check_ciphertexts(np.ascontiguousarray(total), whole, self.n)
        others = self.no_sums(len(n_codes))
        flat = sums.reshape(-1)
        montgomery.multiply_others(flat, n_codes, skipped, first, others.reshape(-1), whole.words, whole.inverse)
        rest = np.concatenate([whole.inverted(each, self._gmpy2.invert) for each in others])
        totals = np.tile(total, len(n_codes))
        montgomery.multiply(rest, totals, whole.words, whole.inverse)
        sums[first + skipped] = rest.reshape(len(n_codes), -1)

    def finished(self, sums: Words, rng: SecureRandom, noise: Ints | None = None) -> Words:
        """Packed, times the constant with the noise, times a new n-th power."""
        whole, fields, n = self._whole, self._fields, len(sums)
        n_out = self.sizes.ciphertexts(n)
        out = np.empty(n_out * whole.n_words, np.uint64)
        montgomery.pack(sums.reshape(-1), n, fields.pack, fields.bits, out, whole.words, whole.inverse)
        drawn = [1 + rng.integer(self.n - 1) for _ in range(n_out)]
        hiding = self._gmpy2.powmod_base_list(drawn, self.n, whole.value)
        constants = [self._no_noise] * n_out
        if noise is not None:
            small = check_values(noise, VALUES, fields.limit)
            constants = self.powers([fields.constant(small[k : k + fields.pack]) for k in range(0, n, fields.pack)])
        factors = [whole.form(int(a * b % whole.value)) for a, b in zip(hiding, constants, strict=True)]
        montgomery.multiply(out, np.concatenate(factors), whole.words, whole.inverse)
        return out.reshape(n_out, whole.n_words)

    @abstractmethod
    def whole_of(self, n: int, rest: Words) -> int:
        """N, from the public key; ProtocolError if the rest of the key is none."""

    @abstractmethod
    def powers(self, exponents: list[int]) -> list[int]:
        """g^k modulo N of each."""


def to_words(number: int, n_words: int) -> Words:
    """Little-endian."""
    return np.frombuffer(number.to_bytes(8 * n_words, "little"), "<u8").astype(np.uint64)


def from_words(words: Words) -> int:
    """The inverse."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")
