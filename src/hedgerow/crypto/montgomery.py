"""Products of many big numbers modulo an odd number, in kernels: Montgomery's method on words of 64 bits.

A number x modulo m is kept as x R modulo m with R = 2**(64 n), n words: its Montgomery form. The product of two forms,

    a b / R modulo m,      of a, b below R, is below R as well, and congruent; not always below m (`reduce` makes it so)

is computed word by word of a: t += a[i] b, then t += q m with the q that clears the lowest word of t, which is dropped.
t stays below R + m, so one bit beyond n words is all it ever needs. numba has no integers of 128 bits, LLVM does: eight
words of both rows are one piece of LLVM code, with two chains of carries that do not wait for each other. So numbers
take multiples of eight words, how many is an argument, and all lengths share one compiled kernel.

Nothing here is constant in time towards others on the same machine: tables are read at secret places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hedgerow.compiling import kernel
from hedgerow.crypto.additive import Cells, Flags, Ints, RowIds, Words

STEP = 8
"""Words of one piece of code."""

_BLOCK = 256
"""Rows that go through a table together: their numbers, and a window of the table, stay in the cache."""

_u = np.uint64
_ZERO, _ONE = _u(0), _u(1)
_I64, _I128 = ir.IntType(64), ir.IntType(128)


class Modulus:
    """An odd number m, and numbers modulo it as words."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.n_words = STEP * -(-value.bit_length() // (64 * STEP))
        self.words = self.plain(value)
        self.inverse = _u(-pow(value, -1, 2**64) % 2**64)
        self._one = (1 << (64 * self.n_words)) % value
        self._back = pow(self._one, -1, value)

    def plain(self, number: int) -> Words:
        """A number as it is."""
        return np.frombuffer(number.to_bytes(8 * self.n_words, "little"), "<u8").astype(np.uint64)

    def form(self, number: int) -> Words:
        """In Montgomery form."""
        return self.plain(int(number) * self._one % self.value)

    def number(self, words: Words) -> int:
        """The inverse."""
        return int.from_bytes(words.astype("<u8").tobytes(), "little") * self._back % self.value

    def inverted(self, words: Words, invert: Callable[[int, int], int]) -> Words:
        """The form of 1 / x, from that of x."""
        return self.form(int(invert(self.number(words), self.value)))


# --- one product -----------------------------------------------------------------------------------------------------


def _typed_rows(
    _context: Any, t: Any, _at: Any, _a: Any, b: Any, _b_at: Any, _q: Any, m: Any, _m_at: Any, _one: Any, _other: Any
) -> tuple[Any, Callable[..., Any]]:
    """t[at:] += a b[b_at:] + q m[m_at:], eight words; takes and gives what each of the two carries."""
    word, index = types.uint64, types.int64
    pair = types.UniTuple(word, 2)  # type: ignore[no-untyped-call]  # numba has no types here
    signature = pair(t, index, word, b, index, word, m, index, word, word)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(argument: int) -> Any:
            array = context.make_array(signature.args[argument])(context, builder, arguments[argument])
            return builder.gep(array.data, [arguments[argument + 1]])

        def wide(number: Any) -> Any:
            return builder.zext(number, _I128)

        def low(number: Any) -> Any:
            return builder.trunc(number, _I64)

        def high(number: Any) -> Any:
            return builder.lshr(number, ir.Constant(_I128, 64))

        sums, others, modulus = place(0), place(3), place(6)
        a, q = wide(arguments[2]), wide(arguments[5])
        one, other = wide(arguments[8]), wide(arguments[9])
        for k in range(STEP):
            here = ir.Constant(_I64, k)
            at = builder.gep(sums, [here])
            product = builder.mul(a, wide(builder.load(builder.gep(others, [here]))))
            first = builder.add(builder.add(product, wide(builder.load(at))), one)
            one = high(first)
            product = builder.mul(q, wide(builder.load(builder.gep(modulus, [here]))))
            second = builder.add(builder.add(product, wide(low(first))), other)
            other = high(second)
            builder.store(low(second), at)
        return context.make_tuple(builder, signature.return_type, [low(one), low(other)])

    return signature, generate


_add_rows_of_words: Any = intrinsic(_typed_rows)


@kernel
def product(a: Words, at: int, b: Words, b_at: int, out: Words, to: int, m: Words, inverse: Any, t: Words) -> None:
    """out[to:] = a[at:] b[b_at:] / R modulo m, below R. `t` has 2 n + 2 words; `out` may be `a` or `b`."""
    n = len(m)
    for k in range(2 * n + 2):
        t[k] = _ZERO
    for i in range(n):
        factor = a[at + i]
        q = (t[i] + factor * b[b_at]) * inverse
        one, other = _ZERO, _ZERO
        for j in range(0, n, STEP):
            one, other = _add_rows_of_words(t, i + j, factor, b, b_at + j, q, m, j, one, other)
        half = t[i + n] + one
        top = half + other
        t[i + n] = top
        t[i + n + 1] = _ONE if half < one or top < other else _ZERO
    for k in range(n):
        out[to + k] = t[n + k]
    if t[2 * n] != _ZERO:
        _take_away(out, to, m)


@kernel
def _take_away(numbers: Words, at: int, m: Words) -> bool:
    """numbers[at:] -= m, modulo R; whether it had been smaller."""
    borrow = _ZERO
    for k in range(len(m)):
        x = numbers[at + k] - m[k]
        y = x - borrow
        borrow = _ONE if numbers[at + k] < m[k] or x < borrow else _ZERO
        numbers[at + k] = y
    return bool(borrow)


@kernel
def _add(numbers: Words, to: int, others: Words, at: int, m: Words) -> None:
    """numbers[to:] += others[at:] modulo m, below R."""
    carry = _ZERO
    for k in range(len(m)):
        x = numbers[to + k] + others[at + k]
        y = x + carry
        carry = _ONE if x < others[at + k] or y < carry else _ZERO
        numbers[to + k] = y
    while carry != _ZERO:
        if _take_away(numbers, to, m):
            carry = _ZERO


@kernel
def _is_below(numbers: Words, at: int, m: Words) -> bool:
    for k in range(len(m) - 1, -1, -1):
        if numbers[at + k] != m[k]:
            return bool(numbers[at + k] < m[k])
    return False


@kernel
def reduce(numbers: Words, m: Words) -> None:
    """Each number, below R, as the one below m."""
    for at in range(0, len(numbers), len(m)):
        while not _is_below(numbers, at, m):
            _take_away(numbers, at, m)


# --- many ------------------------------------------------------------------------------------------------------------


@kernel
def product_if_below(numbers: Words, m: Words, inverse: Any, out: Words) -> bool:
    """out *= the product of all numbers [n, words], flat; False if one is not below m."""
    t = np.empty(2 * len(m) + 2, np.uint64)
    for at in range(0, len(numbers), len(m)):
        if not _is_below(numbers, at, m):
            return False
        product(out, 0, numbers, at, out, 0, m, inverse, t)
    return True


@kernel
def multiply(numbers: Words, factors: Words, m: Words, inverse: Any) -> None:
    """numbers[i] *= factors[i], below m."""
    t = np.empty(2 * len(m) + 2, np.uint64)
    for at in range(0, len(numbers), len(m)):
        product(numbers, at, factors, at, numbers, at, m, inverse, t)
    reduce(numbers, m)


@kernel
def add_rows(
    rows: Words,  # in  [all rows, words], flat
    which: RowIds,  # in  [n] rows to be multiplied
    cell: Cells,  # in  [n] where each goes
    skipped: int,  # this cell gets nothing
    cells: Words,  # out [cells, words], flat; those not in use are not set
    used: Flags,  # in, out [cells]
    m: Words,
    inverse: Any,
) -> None:
    """cells[cell[k]] *= rows[which[k]]: what is encrypted is added."""
    n, t = len(m), np.empty(2 * len(m) + 2, np.uint64)
    for k in range(len(which)):
        c = int(cell[k])
        if c == skipped:
            continue
        to, at = n * c, n * int(which[k])
        if used[c]:
            product(cells, to, rows, at, cells, to, m, inverse, t)
        else:
            used[c] = 1
            cells[to : to + n] = rows[at : at + n]


@kernel
def fold_cells(
    cells: Words,  # in  joint cells of some columns
    used: Flags,
    n_codes: Ints,  # in  [columns] codes of each; the last column's code changes fastest
    skipped: Ints,  # in  [columns] the code of each that gets nothing
    first: Ints,  # in  [columns] where the sums of each begin
    sums: Words,  # in, out [sums, words]
    m: Words,
    inverse: Any,
) -> None:
    """sums[first[j] + code of column j] *= cells, for every joint cell in use."""
    n, t = len(m), np.empty(2 * len(m) + 2, np.uint64)
    for c in range(len(used)):
        if not used[c]:
            continue
        rest = c
        for j in range(len(n_codes) - 1, -1, -1):
            code = rest % n_codes[j]
            rest //= n_codes[j]
            if code != skipped[j]:
                to = n * (first[j] + code)
                product(sums, to, cells, n * c, sums, to, m, inverse, t)


@kernel
def multiply_others(sums: Words, n_codes: Ints, skipped: Ints, first: Ints, out: Words, m: Words, inverse: Any) -> None:
    """out[j] *= the product of a column's sums, but for its skipped code."""
    n, t = len(m), np.empty(2 * len(m) + 2, np.uint64)
    for j in range(len(n_codes)):
        for code in range(n_codes[j]):
            if code != skipped[j]:
                product(out, n * j, sums, n * (first[j] + code), out, n * j, m, inverse, t)


@kernel
def pack(sums: Words, n_sums: int, per: int, bits: int, out: Words, m: Words, inverse: Any) -> None:
    """out[i] = the product of sums[per i + j] ** 2**(bits j) over j: Horner's rule, the last sum first."""
    n, t = len(m), np.empty(2 * len(m) + 2, np.uint64)
    for i in range(-(-n_sums // per)):
        to, last = n * i, min(per * (i + 1), n_sums) - 1
        out[to : to + n] = sums[n * last : n * (last + 1)]
        for k in range(last - 1, per * i - 1, -1):
            for _ in range(bits):
                product(out, to, out, to, out, to, m, inverse, t)
            product(out, to, sums, n * k, out, to, m, inverse, t)


# --- powers of one number, and what its owner encrypts with them -----------------------------------------------------


@kernel
def make_table(base: Words, one: Words, n_windows: int, bits: int, m: Words, inverse: Any) -> Words:
    """[windows, 2**bits, words], flat: base ** (d 2**(bits w)), all in Montgomery form."""
    n, per = len(m), 1 << bits
    t, table = np.empty(2 * n + 2, np.uint64), np.empty(n_windows * per * n, np.uint64)
    current = base.copy()
    for w in range(n_windows):
        at = w * per * n
        table[at : at + n] = one
        for d in range(1, per):
            product(table, at + (d - 1) * n, current, 0, table, at + d * n, m, inverse, t)
        product(table, at + (per - 1) * n, current, 0, current, 0, m, inverse, t)
    return table


@kernel
def encrypt_part(
    values: Ints,  # in  [rows, 2], flat
    digits: npt.NDArray[np.uint16],  # in  [rows, windows], flat
    table: Words,
    n_windows: int,
    bits: int,
    constants: Words,  # in  [4, words], flat: what one of the first and of the second value adds, and of minus one
    m: Words,
    inverse: Any,
    out: Words,  # out [rows, words], flat: below R
) -> None:
    """out = (power of the table's base) (1 + values times constants) modulo m, no longer in Montgomery form."""
    n, n_rows = len(m), len(values) // 2
    t, factor, small = np.empty(2 * n + 2, np.uint64), np.empty(n, np.uint64), np.zeros(n, np.uint64)
    term = np.empty(n, np.uint64)
    for start in range(0, n_rows, _BLOCK):
        end = min(start + _BLOCK, n_rows)
        for w in range(n_windows):
            for i in range(start, end):
                at = n * ((w << bits) + int(digits[i * n_windows + w]))
                if w == 0:
                    out[n * i : n * (i + 1)] = table[at : at + n]
                else:
                    product(out, n * i, table, at, out, n * i, m, inverse, t)
        for i in range(start, end):
            factor[:] = _ZERO
            factor[0] = _ONE
            for v in range(2):
                value = values[2 * i + v]
                small[0] = _u(abs(value))
                product(constants, n * (v + (2 if value < 0 else 0)), small, 0, term, 0, m, inverse, t)
                _add(factor, 0, term, 0, m)
            product(out, n * i, factor, 0, out, n * i, m, inverse, t)


@kernel
def add_lifted(parts: Words, n_part: int, lift: Words, out: Words, m: Words, inverse: Any) -> None:
    """out[i] += parts[i] lift / R modulo m, for parts [rows, n_part], flat, of fewer words than m."""
    n = len(m)
    t, whole, term = np.empty(2 * n + 2, np.uint64), np.zeros(n, np.uint64), np.empty(n, np.uint64)
    for i in range(len(parts) // n_part):
        whole[:n_part] = parts[n_part * i : n_part * (i + 1)]
        product(whole, 0, lift, 0, term, 0, m, inverse, t)
        _add(out, n * i, term, 0, m)
