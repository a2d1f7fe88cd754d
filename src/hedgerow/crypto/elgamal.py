"""Sums of rows that stay encrypted: additive ElGamal on edwards25519, several values per row under one randomness.

    run     r_i, uniform, one per row;   R_i = r_i G                                    1. sent, once
    tree    x_k = 8 z_k with z_k uniform below L, one per value;   Q_k = x_k G          2. sent
            C_ik = v_ik G + x_k R_i                                                     3. sent
    sum     over any rows: (sum R_i, sum C_ik) encrypts the sums of v_ik
            plus rho (G, Q_k) with a new uniform rho, then times 8, then affine         4. sent back
    open    C - x_k R = 8 m G; |m| < limit is found by a table, and recomputed before it is believed

`Keys` and `Holder` are the two sides of `crypto.additive`.

Whoever holds the x_k is the only one who can open anything; whoever sums sees points alone. Why each step is as it is:

- **One r_i for all trees.** Sound under decisional Diffie-Hellman because keys are new and independent for every tree
  and every value, and everybody follows the protocol: see "Reuse" below. It would not be if one key met two vectors of
  values under the same R_i: their difference would be open. So a `TreeKey` encrypts each row once, and is replaced with
  its tree. The r_i are as secret as the keys: x_k R_i = r_i Q_k.
- **rho.** The holder of the keys knows every r_i, so it could tell from sum R_i which rows were added. After
  re-randomising, what it gets depends on the sums and on nothing else. Points are sent as x and y: projective
  coordinates would tell how a sum was made.
- **Times 8, and keys that are multiples of 8.** The group has eight points of small order. A sender could add one to
  C_i to mark a row, or to R to learn a key modulo 8. Eight times a point has no such part, 8 z times one is neutral.
- **Every point is checked**: coordinates below p, on the curve. What does not open to a number in range is refused;
  there is one error for everything, so that refusals do not tell which check failed.

Reuse. Masks x_k R_i, with R and Q, are a matrix of rank 1 of n rows and m keys. One challenge (A, B, C) of decisional
Diffie-Hellman makes such a matrix of rank w if it is real and of any rank up to 2 w if it is not, with R and Q as ever;
at rank m + 1 masks are uniform and independent of all else. So ciphertexts are told from random points with at most
ceil(log2(m + 1)) times the advantage against DDH, and a little for numbers that are not quite uniform (2**-87 for a
million rows). The number of rows is no factor. docs/decisions/0027-homomorphic.md has the proof, its sources and what
it does not cover; tests/crypto/test_elgamal_reuse.py counts its steps in small fields.

What is not claimed: decryption takes longer for larger sums (about a quarter of its time depends on them), tables are
read at secret places, and keys stay in memory until Python lets go of them. Quantum computers break all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.compiling import compile_beside, is_compiled, kernel
from hedgerow.crypto.additive import (
    LIMIT,
    REFUSED,
    VALUES,
    Cells,
    Flags,
    Ints,
    RowIds,
    Sizes,
    check_limit,
    check_values,
)
from hedgerow.crypto.csprng import SecureRandom, Unshared
from hedgerow.crypto.edwards25519 import (
    AFFINE,
    BASE,
    COFACTOR,
    COMPRESSED,
    ORDER,
    POINT,
    Digits,
    Points,
    Table,
    add,
    add_multiples,
    add_signed,
    affine_of,
    checked_summand,
    compress,
    decompress,
    double,
    is_same,
    is_small,
    multiples,
    negate,
    prefetch,
    set_neutral,
    signed_digits,
    table_of,
    to_affine,
    to_summand,
)
from hedgerow.crypto.field25519 import WIRE_WORDS, Words, to_words
from hedgerow.errors import ProtocolError

BASE_BITS = 13
"""Window of the table of G: 20 additions per multiple, 13 MB."""

KEY_BITS = 7
"""Window of tables of public keys, which are new with every tree: 37 additions, 370 KB, 3 ms."""

_LADDER_BITS, _LADDER_DIGITS = 5, 52
_BABY_BITS = 20
_BLOCK = 1024
"""Rows whose points are made together: a window's part of the table stays in the cache, one inversion serves all."""

_NOISE_WINDOWS = 3
"""Windows of G that hold any noise: 39 bits, and it has 36."""

_u = np.uint64


# --- scalars ---------------------------------------------------------------------------------------------------------

_I64, _I256, _I512 = ir.IntType(64), ir.IntType(256), ir.IntType(512)
_NEGATIVE_INVERSE = -pow(ORDER, -1, 2**256) % 2**256


def random_scalars(rng: SecureRandom, n: int) -> Words:
    """[n, 4]: 252 random bits each, which is 2**-127.6 from uniform modulo L."""
    drawn = rng.words((n, WIRE_WORDS))
    drawn[:, 3] &= _u(2**60 - 1)
    return drawn


def _typed_product(
    _context: Any, factor: Any, _at: Any, scalar: Any, _from: Any, _value: Any, out: Any
) -> tuple[Any, Callable[..., Any]]:
    """out = (factor * scalar / 2**256 + value) modulo L, in four words; factor below L, scalar below 2**256.

    Montgomery's reduction, written for LLVM's integers of 512 bits: T = factor * scalar is below L 2**256, and T plus
    that multiple of L that clears its low half is below 2 L 2**256.
    """
    signature = types.void(factor, types.int64, scalar, types.int64, types.int64, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(argument: int, offset: Any) -> Any:
            array = context.make_array(signature.args[argument])(context, builder, arguments[argument])
            return builder.bitcast(builder.gep(array.data, [offset]), _I256.as_pointer())

        def reduced(number: Any) -> Any:
            enough = builder.icmp_unsigned(">=", number, ir.Constant(_I256, ORDER))
            return builder.select(enough, builder.sub(number, ir.Constant(_I256, ORDER)), number)

        one = builder.load(place(0, arguments[1]), align=8)
        other = builder.load(place(2, arguments[3]), align=8)
        product = builder.mul(builder.zext(one, _I512), builder.zext(other, _I512))
        quotient = builder.mul(builder.trunc(product, _I256), ir.Constant(_I256, _NEGATIVE_INVERSE))
        cleared = builder.add(product, builder.mul(builder.zext(quotient, _I512), ir.Constant(_I512, ORDER)))
        result = reduced(builder.trunc(builder.lshr(cleared, ir.Constant(_I512, 256)), _I256))
        value = builder.sext(arguments[4], _I256)
        negative = builder.icmp_signed("<", arguments[4], ir.Constant(_I64, 0))
        value = builder.select(negative, builder.add(value, ir.Constant(_I256, ORDER)), value)
        total = reduced(builder.add(result, value))
        builder.store(total, place(5, ir.Constant(_I64, 0)), align=8)
        return context.get_dummy_value()

    return signature, generate


multiply_add: Any = intrinsic(_typed_product)


# --- compiling -------------------------------------------------------------------------------------------------------


def get_compiled() -> None:
    """Have all kernels here compiled by another process, unless they are there: half of what a first run takes."""
    if not is_compiled(_find_logarithms):
        compile_beside(__name__)


def rehearse() -> None:
    """Encrypt, add, complete and open a few rows: every kernel that a run needs, but for compressed points."""
    rng, n, codes, zero = SecureRandom(), 4, np.array([2, 2]), np.zeros(2, np.int64)
    keys, holder, which = Keys(rng, n), Holder(n), np.arange(n, dtype=np.uint32)
    holder.take_points(0, keys.row_points(0, n))
    holder.take_tree(keys.begin_tree())
    holder.take_rows(0, keys.encrypt_rows(0, np.ones((n, VALUES), np.int64)))
    sums, cells, used = holder.no_sums(4), holder.unset_sums(4), np.zeros(4, np.uint8)
    holder.add_rows(which, which.astype(np.int32), 0, cells, used)
    holder.fold_cells(cells, used, codes, zero, np.array([0, 2]), sums)
    holder.complete(sums, codes, zero, np.array([0, 2]), keys.encrypt_totals(np.full((1, VALUES), n))[0])
    keys.open(holder.finished(sums, rng))


# --- on the wire -----------------------------------------------------------------------------------------------------


def sizes_of(n_values: int = VALUES, *, compressed: bool = False) -> Sizes:
    """A point per row, a key per value; a sum is one ciphertext."""
    point = COMPRESSED if compressed else AFFINE
    whole = (1 + n_values) * point
    return Sizes(0, point, n_values * point, n_values * point, whole, whole, pack=1)


def to_wire(points: Words, *, compressed: bool) -> Words:
    """Affine points [..., 8] as they are sent: compressed, [..., 4]."""
    if not compressed:
        return points
    out = np.empty((*points.shape[:-1], COMPRESSED), np.uint64)
    compress(np.ascontiguousarray(points).reshape(-1), points.size // AFFINE, out.reshape(-1))
    return out


def from_wire(points: Words) -> Words:
    """The inverse, by the number of words. Affine ones are not checked yet; ProtocolError for others that are none.

    Never read-only, as what was received is: numba would compile every kernel once more for that.
    """
    if points.shape[-1] == AFFINE:
        return points if points.flags.writeable else points.copy()
    out = np.empty((*points.shape[:-1], AFFINE), np.uint64)
    if decompress(np.ascontiguousarray(points).reshape(-1), points.size // COMPRESSED, out.reshape(-1)):
        raise ProtocolError(REFUSED)
    return out


# --- what is made once per process -----------------------------------------------------------------------------------


class Logarithms(NamedTuple):
    """An open hash of the lowest word of y of 8 j G for 0 <= j <= 2**bits; y is the same for j and -j."""

    keys: Words
    values: npt.NDArray[np.int32]  # j, or -1: nothing there
    step: Points  # what adds 2**(bits + 1) times 8 G


@functools.cache
def base_table() -> Table:
    """Multiples of G."""
    return table_of(affine_of(*BASE), BASE_BITS)


@functools.cache
def logarithms(bits: int = _BABY_BITS) -> Logarithms:
    """Baby steps of the search for m in 8 m G. With 20 bits: 24 MB."""
    scalars = np.stack([to_words(COFACTOR), to_words(COFACTOR << (bits + 1))])
    ahead = multiples(base_table(), scalars).reshape(-1)
    one, step = np.empty(POINT, np.uint32), np.empty(POINT, np.uint32)
    checked_summand(ahead, 0, one, 0)
    checked_summand(ahead, AFFINE, step, 0)
    keys, values = np.zeros(2 << bits, np.uint64), np.full(2 << bits, -1, np.int32)
    _fill_hash(one, (1 << bits) + 1, keys, values)
    return Logarithms(keys, values, step)


@kernel
def _slot(key: Any, n_slots: int) -> Any:
    return (key * _u(0x9E3779B97F4A7C15)) >> _u(20) & _u(n_slots - 1)


@kernel
def _fill_hash(one: Points, n: int, keys: Words, values: Any) -> None:
    chunk = 4096
    points, scratch = np.empty(chunk * POINT, np.uint32), np.empty(chunk * 5, np.uint64)
    affine, current = np.empty(chunk * AFFINE, np.uint64), np.empty(POINT, np.uint32)
    set_neutral(current, 0)
    for start in range(0, n, chunk):
        m = min(chunk, n - start)
        for i in range(m):
            points[POINT * i : POINT * (i + 1)] = current
            add(current, 0, one, 0)
        to_affine(points, m, affine, 0, scratch)
        for i in range(m):
            key = affine[AFFINE * i + 4]
            slot = _slot(key, len(keys))
            while values[slot] >= 0:
                slot = (slot + _u(1)) & _u(len(keys) - 1)
            keys[slot], values[slot] = key, start + i


# --- who has the keys ------------------------------------------------------------------------------------------------


class RowRandomness(Unshared):
    """r_i of every row, for a run or for one tree; it never leaves its owner."""

    def __init__(self, rng: SecureRandom, n_rows: int) -> None:
        super().__init__()
        self._scalars = random_scalars(rng, n_rows)

    def points(self, first: int, last: int) -> Words:
        """Affine [rows, 8]: R_i of rows first to last."""
        return _multiples_of_base(self._scalars[first:last])

    def of(self, first: int, last: int) -> Words:
        """r_i of rows first to last, for a key of the same owner."""
        return self._scalars[first:last]


def _multiples_of_base(scalars: Words) -> Words:
    out = np.empty((len(scalars), AFFINE), np.uint64)
    for start in range(0, len(scalars), _BLOCK):
        out[start : start + _BLOCK] = multiples(base_table(), scalars[start : start + _BLOCK])
    return out


class TreeKey(Unshared):
    """The keys x_k of one tree, one for each value of a row."""

    def __init__(self, rng: SecureRandom, n_values: int, limit: int = LIMIT) -> None:
        super().__init__()
        self._rng, self.n_values, self._limit = rng, n_values, limit
        secrets = [COFACTOR * rng.integer(ORDER) for _ in range(n_values)]
        self._factors = np.concatenate([to_words((x << 256) % ORDER) for x in secrets])
        words = np.concatenate([to_words(x) for x in secrets])
        self._digits = np.empty((n_values, _LADDER_DIGITS), np.int16)
        for k in range(n_values):
            signed_digits(words, WIRE_WORDS * k, _LADDER_BITS, _LADDER_DIGITS, self._digits[k], 0)
        self.public = multiples(base_table(), words.reshape(n_values, WIRE_WORDS))
        self._next_row = 0

    def encrypt(self, randomness: RowRandomness, first: int, values: Ints) -> Words:
        """Affine [rows, values, 8]: C of the rows from `first`, for values [rows, values] below the limit either way.

        Rows come in ascending order and never again: two values under one key and one R would show their difference.
        """
        last = first + len(values)
        with self.turn():
            if first < self._next_row:
                raise ProtocolError(f"row {first} was encrypted under this key already; a new tree has a new key")
            self._next_row = last
        return self._encrypted(randomness.of(first, last), values)

    def encrypt_anew(self, values: Ints) -> Words:
        """Affine [n, 1 + values, 8]: whole ciphertexts of n sums, each under randomness of its own."""
        scalars = random_scalars(self._rng, len(values))
        points = _multiples_of_base(scalars)
        return np.concatenate([points[:, None], self._encrypted(scalars, values)], axis=1)

    def _encrypted(self, scalars: Words, values: Ints) -> Words:
        if len(values) != len(scalars):
            raise ProtocolError(f"{len(values)} rows cannot be encrypted under randomness of {len(scalars)}")
        flat = check_values(values, self.n_values, self._limit).reshape(-1)
        out = np.empty((*values.shape, AFFINE), np.uint64)
        table = base_table()
        _encrypt(flat, self.n_values, scalars.reshape(-1), self._factors, *table, out.reshape(-1))
        return out

    def decrypt(self, sums: Words) -> Ints:
        """Sums [n, values] of ciphertexts [n, 1 + values, 8] of `Holder.finished`; ProtocolError if one is none."""
        n = len(sums)
        points = np.empty(n * self.n_values * POINT, np.uint32)
        found = np.empty(n * self.n_values, np.int64)
        flat = np.ascontiguousarray(sums).reshape(-1)
        is_right = bool(_strip_keys(flat, n, self.n_values, self._digits, points))
        if not is_right or not _find_logarithms(points, len(found), *base_table(), *logarithms(), self._limit, found):
            raise ProtocolError(REFUSED)
        return found.reshape(n, self.n_values)


class Keys:
    """All that the owner of keys has in a run: what is random about its rows, and one `TreeKey` after the other."""

    def __init__(self, rng: SecureRandom, n_rows: int, *, compressed: bool = False, limit: int = LIMIT) -> None:
        self.sizes = sizes_of(compressed=compressed)
        self._rng, self._compressed, self._limit = rng, compressed, check_limit(limit)
        self._randomness = RowRandomness(rng, n_rows)
        self._tree = TreeKey(rng, VALUES, limit)

    @property
    def key(self) -> Words:
        """There is none: every tree has its own."""
        return np.empty(0, np.uint64)

    def row_points(self, first: int, last: int) -> Words:
        """R_i."""
        return self._sent(self._randomness.points(first, last))

    def begin_tree(self) -> Words:
        """Q_k."""
        self._tree = TreeKey(self._rng, VALUES, self._limit)
        return self._sent(self._tree.public).reshape(-1)

    def encrypt_rows(self, first: int, values: Ints) -> Words:
        """C_ik."""
        return self._sent(self._tree.encrypt(self._randomness, first, values)).reshape(len(values), -1)

    def encrypt_totals(self, values: Ints) -> Words:
        """Whole ciphertexts, under randomness of their own."""
        return self._sent(self._tree.encrypt_anew(values)).reshape(len(values), -1)

    def open(self, words: Words) -> Ints:
        """By the tree's keys and logarithms."""
        return self._tree.decrypt(from_wire(words.reshape(len(words), 1 + VALUES, self.sizes.point)))

    def _sent(self, points: Words) -> Words:
        return to_wire(points, compressed=self._compressed)


@kernel
def _encrypt(
    values: Ints,  # in  [rows, n_values], flat
    n_values: int,
    scalars: Words,  # in  [rows, 4], flat
    factors: Words,  # in  [n_values, 4], flat: keys times 2**256
    table: Points,
    bits: int,
    n_windows: int,
    affine: Words,  # out [rows, n_values, 8], flat
) -> None:
    """C = (v + x r) G: whoever has the key needs no table of Q."""
    points = np.empty(_BLOCK * POINT, np.uint32)
    digits, scratch = np.empty(_BLOCK * n_windows, np.int16), np.empty(_BLOCK * 5, np.uint64)
    scalar = np.empty(4, np.uint64)
    for start in range(0, len(values), _BLOCK):
        n = min(_BLOCK, len(values) - start)
        for i in range(n):
            row, k = divmod(start + i, n_values)
            multiply_add(factors, 4 * k, scalars, 4 * row, values[start + i], scalar)
            signed_digits(scalar, 0, bits, n_windows, digits, i * n_windows)
            set_neutral(points, POINT * i)
        add_multiples(points, n, POINT, digits, table, 1 << (bits - 1), n_windows)
        to_affine(points, n, affine, AFFINE * start, scratch)


@kernel
def _strip_keys(sums: Words, n: int, n_values: int, digits: Any, points: Points) -> bool:
    """points[i, k] = C_k - x_k R of ciphertext i; False if one is no point.

    Yao's method: R doubles once for all keys, and goes into the bucket of the digit that each key has there.
    """
    n_buckets = 1 << (_LADDER_BITS - 1)
    buckets = np.empty(n_values * n_buckets * POINT, np.uint32)
    summands = np.empty((1 + n_values) * POINT, np.uint32)
    r, total, product = np.empty(POINT, np.uint32), np.empty(POINT, np.uint32), np.empty(POINT, np.uint32)
    summand = np.empty(POINT, np.uint32)
    for i in range(n):
        for p in range(1 + n_values):
            if not checked_summand(sums, AFFINE * ((1 + n_values) * i + p), summands, POINT * p):
                return False
        set_neutral(r, 0)
        add(r, 0, summands, 0)
        for b in range(n_values * n_buckets):
            set_neutral(buckets, POINT * b)
        for w in range(_LADDER_DIGITS):
            for _ in range(_LADDER_BITS if w else 0):
                double(r, 0)
            to_summand(r, 0, summand, 0)
            for k in range(n_values):
                digit = np.int64(digits[k, w])
                if digit:
                    add_signed(buckets, POINT * (k * n_buckets + abs(digit) - 1), summand, 0, digit < 0)
        for k in range(n_values):
            set_neutral(total, 0)
            set_neutral(product, 0)
            for b in range(n_buckets - 1, -1, -1):  # sum of b times bucket b
                to_summand(buckets, POINT * (k * n_buckets + b), summand, 0)
                add(total, 0, summand, 0)
                to_summand(total, 0, summand, 0)
                add(product, 0, summand, 0)
            negate(product, 0)
            add(product, 0, summands, POINT * (1 + k))
            to = POINT * (n_values * i + k)
            points[to : to + POINT] = product
    return True


@kernel
def _is_multiple(m: int, affine: Words, at: int, table: Points, bits: int, n_windows: int) -> bool:
    """Whether a point is 8 m G."""
    point, digits = np.empty(POINT, np.uint32), np.empty(n_windows, np.int16)
    scalar = np.zeros(4, np.uint64)
    scalar[0] = _u(8 * abs(m))
    signed_digits(scalar, 0, bits, n_windows, digits, 0)
    set_neutral(point, 0)
    add_multiples(point, 1, POINT, digits, table, 1 << (bits - 1), n_windows)
    if m < 0:
        negate(point, 0)
    return is_same(point, 0, affine, at)


@kernel
def _look_up(
    key: Any,
    centre: int,
    affine: Words,
    at: int,
    table: Points,
    bits: int,
    n_windows: int,
    keys: Words,
    values: Any,
    limit: int,
) -> int:
    """m = centre +- j with the point at affine[at:] = 8 m G, for a j that the hash has under this key; or `limit`."""
    slot = _slot(key, len(keys))
    while values[slot] >= 0:
        if keys[slot] == key:
            for m in (centre + values[slot], centre - values[slot]):
                if abs(m) < limit and _is_multiple(m, affine, at, table, bits, n_windows):
                    return int(m)
        slot = (slot + _u(1)) & _u(len(keys) - 1)
    return limit


@kernel
def _find_logarithms(
    points: Points,  # in  n points
    n: int,
    table: Points,
    bits: int,
    n_windows: int,
    keys: Words,
    values: Any,
    step: Points,
    limit: int,
    found: Ints,  # out [n]
) -> bool:
    """found[i] = m with points[i] = 8 m G and |m| < limit, outwards from 0; False if there is no such m.

    Giant steps of all that are still sought are taken together, because to_affine then needs one inversion for all.
    """
    span = len(keys)  # numbers that one look-up covers: twice as many as there are baby steps
    exact, scratch = np.empty(AFFINE * n, np.uint64), np.empty(10 * n, np.uint64)
    to_affine(points, n, exact, 0, scratch)
    walking, affine = np.empty(2 * POINT * n, np.uint32), np.empty(2 * AFFINE * n, np.uint64)
    who = np.arange(n)
    for i in range(n):
        for side in range(2):
            to = POINT * (2 * i + side)
            walking[to : to + POINT] = points[POINT * i : POINT * (i + 1)]
    left, distance = n, 0
    while left and distance - span // 2 < limit:
        to_affine(walking, 2 * left, affine, 0, scratch)
        kept = 0
        for i in range(left):
            m, at = limit, AFFINE * who[i]
            for side in range(2 if distance else 1):
                if m == limit:
                    centre = distance if side == 0 else -distance
                    key = affine[AFFINE * (2 * i + side) + 4]
                    m = _look_up(key, centre, exact, at, table, bits, n_windows, keys, values, limit)
            if m != limit:
                found[who[i]] = m
                continue
            for side in range(2):
                to = POINT * (2 * kept + side)
                walking[to : to + POINT] = walking[POINT * (2 * i + side) : POINT * (2 * i + side + 1)]
                add_signed(walking, to, step, 0, side == 0)
            who[kept] = who[i]
            kept += 1
        left, distance = kept, distance + span
    return left == 0


# --- who sums --------------------------------------------------------------------------------------------------------


class Holder:
    """Encrypted rows of a peer, and sums of them: points that are no longer affine, all of a sum beside each other."""

    def __init__(self, n_rows: int, n_values: int = VALUES, *, compressed: bool = False, limit: int = LIMIT) -> None:
        self.sizes = sizes_of(n_values, compressed=compressed)
        self._width, self._compressed, self._limit = 1 + n_values, compressed, check_limit(limit)
        self._rows: Points = np.empty((n_rows, self._width * POINT), np.uint32)
        self._tables: tuple[Table, ...] = ()

    def take_key(self, words: Words) -> None:
        """There is none."""

    def take_points(self, first: int, words: Words) -> None:
        """R_i: the first point of each row."""
        self._take(first, words, 0)

    def take_tree(self, words: Words) -> None:
        """Q_k. Refused if of small order: sums would come back without randomness."""
        public = from_wire(words.reshape(-1, self.sizes.point))
        if len(public) != self._width - 1 or any(is_small(key, 0) for key in public):
            raise ProtocolError(REFUSED)
        self._tables = (base_table(), *(table_of(key, KEY_BITS) for key in public))

    def take_rows(self, first: int, words: Words) -> None:
        """C_ik: the other points of each row."""
        self._take(first, words, 1)

    def _take(self, first: int, words: Words, place: int) -> None:
        n = len(words)
        points = from_wire(words.reshape(n, -1, self.sizes.point))
        flat, rows = np.ascontiguousarray(points).reshape(-1), self._rows[first : first + n].reshape(-1)
        if not _take(flat, n, points.shape[1], rows, self._width, place):
            raise ProtocolError(REFUSED)

    def no_sums(self, n: int) -> Points:
        """Neutral points."""
        return _neutral(n * self._width).reshape(n, -1)

    def unset_sums(self, n: int) -> Points:
        """Any."""
        return np.empty((n, self._width * POINT), np.uint32)

    def add_rows(self, which: RowIds, cell: Cells, skipped: int, cells: Points, used: Flags) -> None:
        """An addition per row and point."""
        _add_rows(self._rows.reshape(-1), self._width, which, cell, skipped, cells.reshape(-1), used)

    def fold_cells(self, cells: Points, used: Flags, n_codes: Ints, skipped: Ints, first: Ints, sums: Points) -> None:
        """An addition per cell in use, column and point."""
        _fold_cells(cells.reshape(-1), used, self._width, n_codes, skipped, first, sums.reshape(-1))

    def complete(self, sums: Points, n_codes: Ints, skipped: Ints, first: Ints, total: Words) -> None:
        """An addition per sum and point."""
        affine = from_wire(total.reshape(self._width, self.sizes.point)).reshape(-1)
        if not _complete(sums.reshape(-1), self._width, n_codes, skipped, first, affine):
            raise ProtocolError(REFUSED)

    def finished(self, sums: Points, rng: SecureRandom, noise: Ints | None = None) -> Words:
        """Noise times G, rho (G, Q_k), times 8, affine."""
        if not self._tables:
            raise ProtocolError("sums are not sent before there are keys to re-randomise them under")
        n, flat = len(sums), sums.reshape(-1)
        if noise is not None:
            small = check_values(noise, self._width - 1, self._limit)
            _add_noise(flat, n, self._width, small.reshape(-1), *base_table()[:2])
        rho = random_scalars(rng, n).reshape(-1)
        for p, table in enumerate(self._tables):
            _randomise(flat, n, self._width, p, rho, *table)
        out = np.empty((n, self._width, AFFINE), np.uint64)
        to_affine(flat, n * self._width, out.reshape(-1), 0, np.empty(5 * n * self._width, np.uint64))
        return to_wire(out, compressed=self._compressed).reshape(n, -1)


@kernel
def _take(affine: Words, n: int, some: int, rows: Points, width: int, place: int) -> bool:
    is_right = True
    for i in range(n):
        for p in range(some):
            is_right &= checked_summand(affine, AFFINE * (some * i + p), rows, POINT * (width * i + place + p))
    return is_right


@kernel
def _add_rows(
    rows: Points,  # in  [all rows, width] summands, flat
    width: int,
    which: RowIds,  # in  [n] rows to be added
    cell: Cells,  # in  [n] where each goes
    skipped: int,  # this cell gets nothing
    cells: Points,  # out [cells, width] points, flat; those not in use are not set
    used: Flags,  # in, out [cells]
) -> None:
    """cells[cell[k]] += rows[which[k]]."""
    n, size = len(which), width * POINT
    for k in range(n):
        ahead = min(k + 3, n - 1)
        for line in range(0, size, 16):
            prefetch(rows, size * np.int64(which[ahead]) + line)
            prefetch(cells, size * np.int64(cell[ahead]) + line)
        c = np.int64(cell[k])
        if c == skipped:
            continue
        to, at = size * int(c), size * np.int64(which[k])
        if not used[c]:
            used[c] = 1
            for p in range(width):
                set_neutral(cells, to + POINT * p)
        for p in range(width):
            add(cells, to + POINT * p, rows, at + POINT * p)


@kernel
def _fold_cells(
    cells: Points,  # in  joint cells of some columns
    used: Flags,
    width: int,
    n_codes: Ints,  # in  [columns] codes of each; the last column's code changes fastest
    skipped: Ints,  # in  [columns] the code of each that gets nothing
    first: Ints,  # in  [columns] where the sums of each begin
    sums: Points,  # in, out [sums, width]
) -> None:
    """sums[first[j] + code of column j] += cells, for every joint cell in use."""
    summand = np.empty(width * POINT, np.uint32)
    for c in range(len(used)):
        if not used[c]:
            continue
        for p in range(width):
            to_summand(cells, POINT * (width * c + p), summand, POINT * p)
        rest = c
        for j in range(len(n_codes) - 1, -1, -1):
            code = rest % n_codes[j]
            rest //= n_codes[j]
            if code != skipped[j]:
                for p in range(width):
                    add(sums, POINT * (width * (first[j] + code) + p), summand, POINT * p)


@kernel
def _complete(
    sums: Points,  # in, out [sums, width]
    width: int,
    n_codes: Ints,  # in  [columns]
    skipped: Ints,  # in  [columns] the code of each that is still missing
    first: Ints,  # in  [columns]
    total: Words,  # in  [width, 8] affine, flat: the ciphertext of all rows of the node
) -> bool:
    """The sum of each column's skipped code: the total less all other codes. False if the total is no ciphertext."""
    summands, summand = np.empty(width * POINT, np.uint32), np.empty(POINT, np.uint32)
    for p in range(width):
        if not checked_summand(total, AFFINE * p, summands, POINT * p):
            return False
    for j in range(len(n_codes)):
        for p in range(width):
            to = POINT * (width * int(first[j] + skipped[j]) + p)
            set_neutral(sums, to)
            for code in range(n_codes[j]):
                if code != skipped[j]:
                    to_summand(sums, POINT * (width * (first[j] + code) + p), summand, 0)
                    add(sums, to, summand, 0)
            negate(sums, to)
            add(sums, to, summands, POINT * p)
    return True


@kernel
def _neutral(n: int) -> Points:
    """n points, flat, of nothing."""
    sums = np.empty(n * POINT, np.uint32)
    for i in range(n):
        set_neutral(sums, POINT * i)
    return sums


@kernel
def _add_noise(sums: Points, n: int, width: int, noise: Ints, table: Points, bits: int) -> None:
    """Each point but the first of a sum plus noise[n, width - 1] times G."""
    half, scalar = 1 << (bits - 1), np.zeros(4, np.uint64)
    digits: Digits = np.empty(_NOISE_WINDOWS, np.int16)
    for i in range(n):
        for k in range(width - 1):
            value = noise[(width - 1) * i + k]
            scalar[0] = _u(abs(value))
            signed_digits(scalar, 0, bits, _NOISE_WINDOWS, digits, 0)
            if value < 0:
                for w in range(_NOISE_WINDOWS):
                    digits[w] = -digits[w]
            at = POINT * (width * i + 1 + k)
            add_multiples(sums[at : at + POINT], 1, POINT, digits, table, half, _NOISE_WINDOWS)


@kernel
def _randomise(
    sums: Points, n: int, width: int, place: int, rho: Words, table: Points, bits: int, n_windows: int
) -> None:
    """Point `place` of each sum plus rho times the table's point, and times 8."""
    digits: Digits = np.empty(n * n_windows, np.int16)
    for i in range(n):
        signed_digits(rho, 4 * i, bits, n_windows, digits, i * n_windows)
    add_multiples(sums[POINT * place :], n, POINT * width, digits, table, 1 << (bits - 1), n_windows)
    for i in range(n):
        for _ in range(3):
            double(sums, POINT * (width * i + place))
