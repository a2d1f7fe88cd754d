"""Sums under encryption: they come out exact, tell nothing but themselves, and rubbish is refused with one sentence."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.compiling import kernel
from hedgerow.crypto import elgamal
from hedgerow.crypto.additive import LIMIT, MOST_LIMIT
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.edwards25519 import AFFINE, BASE, ORDER, affine_of, multiples
from hedgerow.crypto.elgamal import Holder, RowRandomness, TreeKey, multiply_add
from hedgerow.crypto.field25519 import P, from_words, to_words
from hedgerow.errors import ProtocolError
from twins import naive_edwards as naive

ONE_SENTENCE = "a ciphertext that is not one, or that does not hold a sum in range"
SMALL = [naive.ORDER_2, naive.ORDER_4, naive.negative(naive.ORDER_4), naive.ORDER_8]


@kernel
def _scaled(factor, scalar, value, out):
    multiply_add(factor, 0, scalar, 0, value, out)


def as_ints(affine):
    """An affine point of Python integers."""
    return from_words(affine[:4]), from_words(affine[4:8])


class Pair:
    """Who has the keys and who sums, with the same rows."""

    def __init__(self, values, seed=b"a" * 32, n_values=2, limit=LIMIT):
        self.rng = SecureRandom.from_seed(seed)
        self.values = np.asarray(values, np.int64).reshape(-1, n_values)
        self.randomness = RowRandomness(self.rng, len(self.values))
        self.key = TreeKey(self.rng, n_values, limit)
        self.points = self.randomness.points(0, len(self.values))
        self.encrypted = self.key.encrypt(self.randomness, 0, self.values)
        self.holder = Holder(len(self.values), n_values, limit=limit)
        self.holder.take_tree(self.key.public.reshape(-1))
        self.take(self.points, self.encrypted)

    def take(self, points, encrypted):
        """What the holder is sent."""
        self.holder.take_points(0, points)
        self.holder.take_rows(0, encrypted.reshape(len(encrypted), -1))

    def sums(self, cell, n_cells, skipped=-1):
        """Points of sums of rows per cell."""
        cells, used = self.holder.no_sums(n_cells), np.ones(n_cells, np.uint8)
        which = np.arange(len(self.values), dtype=np.uint32)
        self.holder.add_rows(which, np.asarray(cell, np.int32), skipped, cells, used)
        return cells

    def sent_back(self, cell, n_cells, noise=None):
        """What is sent for these sums: points [sums, 1 + values, 8]."""
        return self.holder.finished(self.sums(cell, n_cells), self.rng, noise).reshape(n_cells, -1, AFFINE)


# --- scalars ---------------------------------------------------------------------------------------------------------

values = st.one_of(st.sampled_from([0, 1, -1, 2**31 - 1, 1 - 2**31, 2**63 - 1, -(2**63)]), st.integers(-(2**31), 2**31))


@given(st.integers(0, ORDER - 1), st.integers(0, 2**256 - 1), values)
def test_scalars_are_multiplied_modulo_the_order(factor, scalar, value):
    """Montgomery's product plus a small signed number, against Python's integers."""
    out = np.empty(4, np.uint64)
    _scaled(to_words((factor << 256) % ORDER), to_words(scalar), value, out)
    assert from_words(out) == (factor * scalar + value) % ORDER


def test_random_scalars_have_252_bits():
    """All of them are used, and none above."""
    drawn = elgamal.random_scalars(SecureRandom.from_seed(b"b" * 32), 2000)
    numbers = [from_words(each) for each in drawn]
    assert max(numbers) < 2**252
    ones = [sum(number >> bit & 1 for number in numbers) for bit in range(252)]
    assert min(ones) > 850
    assert max(ones) < 1150


@pytest.mark.parametrize("residue", [1, ORDER // 8 + 1, ORDER - 1])
def test_keys_are_eight_times_any_residue(residue, monkeypatch):
    """z is drawn below L, not below L / 8: 8 z is any residue. The largest ones encrypt and open as others do."""
    asked = []

    def drawn(_rng, n):
        asked.append(n)
        return residue

    monkeypatch.setattr(SecureRandom, "integer", drawn)
    pair = Pair([[5, -7], [LIMIT - 9, 0]])
    assert asked == [ORDER, ORDER]
    assert as_ints(pair.key.public[0]) == naive.multiple(8 * residue)
    assert np.array_equal(pair.key.decrypt(pair.sent_back([0, 0], 1)), [[LIMIT - 4, -7]])


# --- sums ------------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=15)
def test_sums_come_out_exact(data):
    """Any rows in any cells; empty cells are 0, and one value a row works as two do."""
    n_values = data.draw(st.sampled_from([1, 2, 3]))
    n, n_cells = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 5))
    most = (LIMIT - 1) // n
    number = st.integers(-most, most)
    drawn = data.draw(st.lists(number, min_size=n * n_values, max_size=n * n_values))
    cell = np.array(data.draw(st.lists(st.integers(0, n_cells - 1), min_size=n, max_size=n)))
    pair = Pair(drawn, n_values=n_values)
    expected = np.zeros((n_cells, n_values), np.int64)
    np.add.at(expected, cell, pair.values)
    assert np.array_equal(pair.key.decrypt(pair.sent_back(cell, n_cells)), expected)


def test_the_largest_sums_come_out():
    """Either sign, at the end of the range, at the borders of giant steps and next to them."""
    steps = [2**21 * k + d for k in (0, 1, 511, 1023) for d in (-1, 0, 1)] + [2**20, 2**20 + 1, 3 * 2**20]
    ends = [LIMIT - 1, LIMIT - 2, *steps]
    pair = Pair([[sign * m, m] for m in ends for sign in (1, -1)])
    found = pair.key.decrypt(pair.sent_back(np.arange(len(pair.values)), len(pair.values)))
    assert np.array_equal(found, pair.values)


@pytest.mark.parametrize("limit", [LIMIT, MOST_LIMIT])
def test_noise_is_added_under_encryption(limit):
    """Any number below the limit, on top of any sum, either way; what is added leaves nothing behind but the sum."""
    pair = Pair([[5, 7], [-3, 2]], limit=limit)
    noise = np.array([[0, 1], [-1, 2**20], [4095, -4097], [8191, -8192], [2**24 + 1, 2 - 2**26]])
    if limit > LIMIT:
        noise = np.concatenate([noise, [[2**33 + 4096, -(2**33) - 5000]]])
    found = pair.key.decrypt(pair.sent_back([0, 1], len(noise), noise))
    expected = noise.copy()
    expected[:2] += pair.values
    assert np.array_equal(found, expected)
    with pytest.raises(ProtocolError, match=f"values below {limit}"):
        pair.sent_back([0, 1], 2, np.array([[0, 0], [0, limit]]))


def test_columns_are_summed_together_and_folded():
    """Joint cells of three columns, without their most frequent codes, give each column's sums and the total's rest."""
    rng = np.random.default_rng(3)
    n, n_codes = 400, np.array([3, 4, 2])
    codes = np.stack([rng.choice(k, n, p=np.r_[0.6, np.full(k - 1, 0.4 / (k - 1))]) for k in n_codes])
    pair = Pair(np.stack([rng.integers(-1000, 1000, n), rng.integers(0, 1000, n)], 1))
    joint = (codes[0] * n_codes[1] + codes[1]) * n_codes[2] + codes[2]
    holder, n_cells = pair.holder, int(np.prod(n_codes))
    cells, used = holder.unset_sums(n_cells), np.zeros(n_cells, np.uint8)
    holder.add_rows(np.arange(n, dtype=np.uint32), joint.astype(np.int32), 0, cells, used)
    assert not used[0]
    first, skipped = np.cumsum(n_codes) - n_codes, np.zeros(3, np.int64)
    sums = holder.no_sums(int(n_codes.sum()))
    holder.fold_cells(cells, used, n_codes, skipped, first, sums)
    holder.complete(sums, n_codes, skipped, first, pair.key.encrypt_anew(pair.values.sum(0)[None]).reshape(-1))
    found = pair.key.decrypt(holder.finished(sums, pair.rng).reshape(-1, 3, AFFINE))
    expected = [pair.values[codes[j] == k].sum(0) for j in range(3) for k in range(n_codes[j])]
    assert np.array_equal(found, expected)


# --- what is seen ----------------------------------------------------------------------------------------------------


def test_what_comes_back_tells_nothing_of_the_rows():
    """The same sum, and sums of other rows with the same values: all points differ, and R is no sum of the R_i."""
    pair = Pair([[5, 7]] * 4)
    first, second = (pair.sent_back([0, 0, 1, 1], 2).reshape(-1, AFFINE) for _ in range(2))
    everything = np.concatenate([first, second, pair.points, pair.encrypted.reshape(-1, AFFINE)])
    assert len(np.unique(everything, axis=0)) == len(everything)
    r = [as_ints(point) for point in pair.points]
    sums = [naive.multiple(8, naive.add(r[0], r[1])), naive.add(r[0], r[1])]
    assert as_ints(first[0]) not in sums


def test_two_trees_and_two_runs_have_no_point_in_common():
    """The same values under new keys, and under new randomness."""
    randomness = RowRandomness(SecureRandom(), 3)
    trees = [TreeKey(SecureRandom(), 2).encrypt(randomness, 0, np.ones((3, 2), np.int64)) for _ in range(2)]
    runs = [RowRandomness(SecureRandom(), 3).points(0, 3) for _ in range(2)]
    everything = np.concatenate([each.reshape(-1, AFFINE) for each in (*trees, *runs)])
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.parametrize("small", SMALL)
def test_points_of_small_order_mark_no_rows(small):
    """A sender adds one to C of a row: the sums that come back open as ever, and have no part of small order."""
    pair = Pair([[5, 7], [1, 2]])
    marked = pair.encrypted.copy()
    marked[0, 0] = affine_of(*naive.add(as_ints(marked[0, 0]), small))
    pair.take(pair.points, marked)
    back = pair.sent_back([0, 0], 1)
    assert naive.multiple(ORDER, as_ints(back[0, 1])) == naive.NEUTRAL
    assert np.array_equal(pair.key.decrypt(back), [[6, 9]])


@pytest.mark.parametrize("small", SMALL)
def test_points_of_small_order_ask_nothing_of_a_key(small):
    """Whoever sums adds one to R: it opens as if that had not been done, whatever the key is modulo 8."""
    for seed in range(4):
        pair = Pair([[5, 7]], seed=bytes([seed]) * 32)
        back = pair.sent_back([0], 1)
        back[0, 0] = affine_of(*naive.add(as_ints(back[0, 0]), small))
        assert np.array_equal(pair.key.decrypt(back), [[5, 7]])


# --- what is refused -------------------------------------------------------------------------------------------------


def _rubbish():
    off = affine_of(1, 1)
    twice_written = affine_of(BASE[0] + P, BASE[1]) if BASE[0] + P < 2**256 else affine_of(P, 1)
    return [off, affine_of(0, 0), twice_written, np.full(AFFINE, 2**64 - 1, np.uint64)]


@pytest.mark.parametrize("rubbish", _rubbish())
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_point_is_refused_with_one_sentence(rubbish, place):
    """By whoever sums and by whoever opens, wherever it stands."""
    pair = Pair([[5, 7], [1, 2]])
    back = pair.sent_back([0, 0], 1)
    back[0, place] = rubbish
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        pair.key.decrypt(back)
    points, encrypted = pair.points.copy(), pair.encrypted.copy()
    (points if place == 0 else encrypted[:, place - 1])[1] = rubbish
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        pair.take(points, encrypted)


@pytest.mark.parametrize("m", [LIMIT, -LIMIT, LIMIT + 2**21, 2**40, ORDER // 2])
def test_what_is_out_of_range_is_refused_with_the_same_sentence(m):
    """Also a sum that another key made."""
    pair = Pair([[5, 7]])
    back = pair.sent_back([0], 1)
    shift = multiples(elgamal.base_table(), to_words(8 * (m - 5) % ORDER)[None])[0]
    back[0, 1] = affine_of(*naive.add(as_ints(back[0, 1]), as_ints(shift)))
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        pair.key.decrypt(back)
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        TreeKey(pair.rng, 2).decrypt(pair.sent_back([0], 1))


@pytest.mark.parametrize("key", [*SMALL, naive.NEUTRAL, (1, 1)])
def test_keys_of_small_order_are_refused(key):
    """They would make re-randomising do nothing."""
    pair = Pair([[5, 7]])
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        pair.holder.take_tree(np.concatenate([pair.key.public[0], affine_of(*key)]))


def test_a_total_that_is_no_ciphertext_is_refused():
    """Before anything is made of it."""
    holder, one, zero = Holder(1), np.array([2]), np.array([0])
    total = np.concatenate([affine_of(*BASE), affine_of(1, 1), affine_of(*BASE)])
    with pytest.raises(ProtocolError, match=ONE_SENTENCE):
        holder.complete(holder.no_sums(2), one, zero, zero, total)


def test_a_key_encrypts_a_row_once():
    """Two values under one key and one R would show their difference; later rows may follow, earlier ones not."""
    rng = SecureRandom()
    randomness, key, values_ = RowRandomness(rng, 8), TreeKey(rng, 2), np.ones((4, 2), np.int64)
    key.encrypt(randomness, 0, values_)
    for first in (0, 3):
        with pytest.raises(ProtocolError, match=f"row {first} was encrypted under this key already"):
            key.encrypt(randomness, first, values_)
    key.encrypt(randomness, 4, values_)


@pytest.mark.parametrize("value", [LIMIT, -LIMIT, 2**62, 2**63 - 1, -(2**63)])
def test_values_out_of_range_are_not_encrypted(value):
    """Nobody could open their sum."""
    rng = SecureRandom()
    with pytest.raises(ProtocolError, match="are encrypted for a row"):
        TreeKey(rng, 2).encrypt_anew(np.array([[0, value]]))


def test_rows_without_randomness_are_not_encrypted():
    """More values than there are random points: nothing else in memory takes their place."""
    rng = SecureRandom()
    with pytest.raises(ProtocolError, match="3 rows cannot be encrypted under randomness of 2"):
        TreeKey(rng, 2).encrypt(RowRandomness(rng, 3), 1, np.ones((3, 2), np.int64))


def test_sums_are_not_finished_without_keys():
    """They would go out as they were added, and show which rows are in them."""
    holder = Holder(1)
    with pytest.raises(ProtocolError, match="before there are keys"):
        holder.finished(holder.no_sums(1), SecureRandom())


@pytest.mark.parametrize("secret", [TreeKey(SecureRandom(), 2), RowRandomness(SecureRandom(), 2)])
def test_secrets_are_not_copied(secret):
    """A copy would encrypt once more; nothing of them shows in their words."""
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ProtocolError, match="cannot be copied or stored"):
            way(secret)
    assert repr(secret).startswith("<hedgerow.crypto.elgamal.")


@pytest.mark.parametrize("is_there", [True, False])
def test_kernels_that_are_not_there_are_compiled_beside(monkeypatch, is_there):
    """By a process that rehearses this module, which works; not if they are there."""
    asked = []
    monkeypatch.setattr(elgamal, "is_compiled", lambda _kernel: is_there)
    monkeypatch.setattr(elgamal, "compile_beside", asked.append)
    elgamal.get_compiled()
    assert asked == ([] if is_there else ["hedgerow.crypto.elgamal"])
    opened = []
    honest = elgamal.Keys.open
    monkeypatch.setattr(elgamal.Keys, "open", lambda keys, words: opened.append(honest(keys, words)))
    elgamal.rehearse()
    assert opened[0].tolist() == [[2, 2], [2, 2], [2, 2], [2, 2]]
