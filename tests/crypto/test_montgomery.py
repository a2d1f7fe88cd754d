"""Products of big numbers in kernels are those of Python's integers, at every length and at the ends of all ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import montgomery
from hedgerow.crypto.montgomery import STEP, Modulus
from hedgerow.crypto.packed import from_words, to_words

BITS = (500, 512, 1366, 2048, 4096)
"""One step of words and several; filled to the last bit or not."""


def modulus_of(bits):
    """An odd number of so many bits, with no pattern."""
    rng = np.random.default_rng(bits)
    return Modulus(int.from_bytes(rng.bytes(bits // 8 + 1), "little") % (1 << (bits - 1)) | 1 << (bits - 1) | 1)


def multiplied(modulus, a, b):
    """One product of plain words, as a kernel does it."""
    n = modulus.n_words
    out, t = np.empty(n, np.uint64), np.empty(2 * n + 2, np.uint64)
    montgomery.product(to_words(a, n), 0, to_words(b, n), 0, out, 0, modulus.words, modulus.inverse, t)
    return from_words(out)


@pytest.mark.parametrize("bits", BITS)
def test_numbers_take_steps_of_words(bits):
    """As few as hold them; forms are there and back the same number."""
    modulus = modulus_of(bits)
    assert modulus.n_words % STEP == 0
    assert 0 <= 64 * modulus.n_words - bits < 64 * STEP
    for number in (0, 1, modulus.value - 1, modulus.value // 3):
        assert modulus.number(modulus.form(number)) == number


@settings(max_examples=60)
@given(st.sampled_from(BITS), st.data())
def test_products_are_those_of_integers(bits, data):
    """Any two numbers below R, also such as are not below m; the result is below R."""
    modulus = modulus_of(bits)
    r = 1 << (64 * modulus.n_words)
    ends = [0, 1, modulus.value - 1, modulus.value, r - modulus.value, r - 1]
    number = st.one_of(st.sampled_from(ends), st.integers(0, r - 1))
    a, b = data.draw(number), data.draw(number)
    found = multiplied(modulus, a, b)
    assert found < r
    assert found % modulus.value == a * b * pow(r, -1, modulus.value) % modulus.value


@pytest.mark.parametrize("bits", BITS)
def test_what_is_not_below_m_is_noticed_and_reduced(bits):
    """m and all above are refused where they come from a peer, and reduced where they are ours."""
    modulus = modulus_of(bits)
    m, n = modulus.value, modulus.n_words
    most = min(m + (m >> 1), (1 << (64 * n)) - 1)
    for number in (0, 1, m - 1, m, m + 1, most):
        words, together = to_words(number, n), modulus.form(1)
        is_below = montgomery.product_if_below(words, modulus.words, modulus.inverse, together)
        assert is_below == (number < m)
        montgomery.reduce(words, modulus.words)
        assert from_words(words) == number % m


def test_rows_are_multiplied_into_cells_and_folded():
    """Against integers: joint cells of two columns, a skipped one, cells that nothing goes to."""
    modulus, rng = modulus_of(1366), np.random.default_rng(5)
    m, n = modulus.value, modulus.n_words
    numbers = [int(x) ** 20 % m for x in rng.integers(2, 2**60, 40)]
    rows = np.concatenate([modulus.form(number) for number in numbers])
    which = rng.permutation(40)[:30].astype(np.uint32)
    cell = rng.choice([0, 1, 2, 4, 5], 30).astype(np.int32)
    cells, used = np.empty(6 * n, np.uint64), np.zeros(6, np.uint8)
    montgomery.add_rows(rows, which, cell, 1, cells, used, modulus.words, modulus.inverse)
    expected = [1] * 6
    for row, c in zip(which, cell, strict=True):
        expected[c] = expected[c] * numbers[row] % m
    assert used.tolist() == [int(c in cell and c != 1) for c in range(6)]
    for c in np.flatnonzero(used):
        assert modulus.number(cells[n * c : n * (c + 1)]) == expected[c]
    sums = np.tile(modulus.form(1), 5)
    n_codes, skipped, first = np.array([2, 3]), np.array([0, 1]), np.array([0, 2])
    montgomery.fold_cells(cells, used, n_codes, skipped, first, sums, modulus.words, modulus.inverse)
    wanted = [1] * 5
    for c in np.flatnonzero(used):
        for place, code, without in ((0, c // 3, 0), (2, c % 3, 1)):
            if code != without:
                wanted[place + code] = wanted[place + code] * expected[c] % m
    assert [modulus.number(each) for each in sums.reshape(5, n)] == wanted


@pytest.mark.parametrize("n_sums", [1, 2, 3, 4, 7])
def test_packing_is_horners_rule(n_sums):
    """Three at a time, each to the power of its field; the last ciphertext has what is left."""
    modulus = modulus_of(512)
    numbers = [pow(3, 7**k + 100, modulus.value) for k in range(n_sums)]
    sums = np.concatenate([modulus.form(number) for number in numbers])
    out = np.empty(-(-n_sums // 3) * modulus.n_words, np.uint64)
    montgomery.pack(sums, n_sums, 3, 64, out, modulus.words, modulus.inverse)
    for i, words in enumerate(out.reshape(-1, modulus.n_words)):
        expected = 1
        for j, number in enumerate(numbers[3 * i : 3 * i + 3]):
            expected = expected * pow(number, 1 << (64 * j), modulus.value) % modulus.value
        assert modulus.number(words) == expected


def test_tables_have_all_powers():
    """base ** (d 2**(bits w))."""
    modulus, base = modulus_of(512), 0x1234567
    table = montgomery.make_table(modulus.form(base), modulus.form(1), 3, 2, modulus.words, modulus.inverse)
    found = [modulus.number(words) for words in table.reshape(12, -1)]
    assert found == [pow(base, d << (2 * w), modulus.value) for w in range(3) for d in range(4)]
