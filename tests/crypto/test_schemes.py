"""Laws of sums under encryption, the same for every scheme: exact sums, nothing else told, one sentence for rubbish."""

from __future__ import annotations

import copy
import functools
import math
import pickle

import numpy as np
import pytest

from hedgerow.crypto import elgamal, montgomery, okamoto_uchiyama, paillier
from hedgerow.crypto.additive import LIMIT, MOST_LIMIT
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter, ProtocolError

ONE_SENTENCE = "^a ciphertext that is not one, or that does not hold a sum in range$"
SCHEMES = ("elgamal", "paillier", "ou")
LIMITS = (LIMIT, MOST_LIMIT)


def primes(scheme, key_bits=2048):
    """Of one key for all tests: drawing them takes longest."""
    return drawn_primes(scheme, key_bits)


@functools.cache
def drawn_primes(scheme, key_bits):
    """Once."""
    if scheme == "paillier":
        return paillier.new_primes(key_bits)
    return okamoto_uchiyama.new_primes(SecureRandom.from_seed(b"p" * 32), key_bits)


def two_sides(scheme, n_rows, limit=LIMIT, key_bits=2048):
    """Keys and a holder that has the public key, and keys of a tree."""
    rng = SecureRandom.from_seed(b"k" * 32)
    if scheme == "elgamal":
        keys, holder = elgamal.Keys(rng, n_rows, limit=limit), elgamal.Holder(n_rows, limit=limit)
    else:
        module = paillier if scheme == "paillier" else okamoto_uchiyama
        keys = module.Keys(rng, key_bits, limit, primes(scheme, key_bits))
        holder = module.Holder(n_rows, key_bits, limit)
    assert keys.sizes == holder.sizes
    holder.take_key(keys.key)
    holder.take_points(0, keys.row_points(0, n_rows))
    holder.take_tree(keys.begin_tree())
    return keys, holder


class Pair:
    """Both, with the same rows."""

    def __init__(self, scheme, values, limit=LIMIT, key_bits=2048):
        self.values = np.asarray(values, np.int64).reshape(-1, 2)
        self.keys, self.holder = two_sides(scheme, len(self.values), limit, key_bits)
        self.rng = SecureRandom.from_seed(b"h" * 32)
        self.rows = self.keys.encrypt_rows(0, self.values)
        self.holder.take_rows(0, self.rows)

    def sums(self, cell, n_cells):
        """Sums of rows per cell, as the holder keeps them; rows of cell -1 are in none."""
        cells, which = self.holder.no_sums(n_cells), np.arange(len(self.values), dtype=np.uint32)
        self.holder.add_rows(which, np.asarray(cell, np.int32), -1, cells, np.ones(n_cells, np.uint8))
        return cells

    def sent_back(self, cell, n_cells, noise=None):
        """What is sent for these sums."""
        return self.holder.finished(self.sums(cell, n_cells), self.rng, noise)

    def opened(self, cell, n_cells, noise=None):
        """And what it opens to."""
        return self.keys.open(self.sent_back(cell, n_cells, noise))[:n_cells]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_are_as_many_as_is_said(scheme):
    """Of keys, points, rows, totals and sums; so a receiver can check a message before it looks inside."""
    pair = Pair(scheme, [[1, 2]] * 3)
    sizes = pair.keys.sizes
    assert pair.keys.key.shape == (sizes.key,)
    assert pair.keys.row_points(0, 3).shape == (3, sizes.point)
    assert pair.keys.begin_tree().shape == (sizes.tree,)
    assert pair.rows.shape == (3, sizes.row)
    assert pair.keys.encrypt_totals(np.ones((2, 2), np.int64)).shape == (2, sizes.total)
    n_sums = 2 * sizes.pack + 1
    assert pair.sent_back([0, 1, 2], n_sums).shape == (3 if sizes.pack > 1 else n_sums, sizes.sums)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sums_of_any_rows_come_out_exact(scheme, limit):
    """Random rows in random cells, some in none; cells without rows are 0."""
    rng = np.random.default_rng(1)
    for n, n_cells in ((1, 1), (30, 4), (60, 25)):
        values = rng.integers(-(2**25), 2**25, (n, 2))
        cell = rng.integers(-1, n_cells, n)
        expected = np.zeros((n_cells, 2), np.int64)
        np.add.at(expected, cell[cell >= 0], values[cell >= 0])
        assert np.array_equal(Pair(scheme, values, limit).opened(cell, n_cells), expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_number_of_sums_is_packed(scheme):
    """One, as many as fit into a ciphertext, one less and one more; what is left of a ciphertext is 0."""
    pair = Pair(scheme, [[5, 7], [-3, 2]])
    pack = pair.keys.sizes.pack
    for n_sums in {1, 2, max(pack - 1, 2), pack, pack + 1, 2 * pack, 2 * pack + 1}:
        found = pair.keys.open(pair.sent_back([0, min(1, n_sums - 1)], n_sums))
        assert len(found) == pair.keys.sizes.ciphertexts(n_sums) * pack
        expected = np.zeros_like(found)
        np.add.at(expected, [0, min(1, n_sums - 1)], pair.values)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_the_largest_sums_come_out(scheme, limit):
    """Both ends of the range in both values, in all fields of a ciphertext at once."""
    ends = [limit - 1, 1 - limit, 0, -1]
    pair = Pair(scheme, [[one, other] for one in ends for other in ends], limit)
    n = len(pair.values)
    assert np.array_equal(pair.opened(np.arange(n), n), pair.values)


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
@pytest.mark.parametrize("value", [LIMIT, -LIMIT, LIMIT + 5, -LIMIT - 5, 2 * LIMIT - 2, 2 - 2 * LIMIT])
def test_what_is_out_of_range_is_refused(scheme, value):
    """A sum at the limit or up to twice as far, either way and in either value: fields do not run over into others."""
    half = value // 2
    for place in range(2):
        rows = np.zeros((4, 2), np.int64)
        rows[:2, place] = half, value - half
        pair = Pair(scheme, rows)
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.opened([0, 0, 1, 1], 2)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_noise_is_added_under_encryption(scheme, limit):
    """Any integers below the limit, in every field, also where nothing was summed; no more than that."""
    pair = Pair(scheme, [[5, 7], [-3, 2]], limit)
    rng = np.random.default_rng(2)
    n_sums = pair.keys.sizes.pack + 2
    noise = rng.integers(-(2**28), 2**28, (n_sums, 2))
    expected = noise.copy()
    expected[:2] += pair.values
    assert np.array_equal(pair.opened([0, 1], n_sums, noise), expected)
    noise[1, 1] = limit
    with pytest.raises(ProtocolError, match=f"values below {limit}"):
        pair.opened([0, 1], n_sums, noise)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_noise_that_leads_out_of_range_is_refused(scheme):
    """Both below the limit, their sum not, by whatever it is: an error, never another number."""
    pair = Pair(scheme, [[LIMIT - 10, 10 - LIMIT], [5, 7]])
    for noise in ([[10, 0], [0, 0]], [[0, -10], [0, 0]], [[LIMIT - 1, 0], [0, 0]], [[0, 1 - LIMIT], [0, 0]]):
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.opened([0, 1], 2, np.array(noise))
    assert pair.opened([0, 1], 2, np.array([[9, -9], [0, 0]])).tolist() == [[LIMIT - 1, 1 - LIMIT], [5, 7]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_columns_are_summed_together_and_folded(scheme):
    """Joint cells of three columns, without their most frequent codes, give each column's sums and the total's rest."""
    rng = np.random.default_rng(3)
    n, n_codes = 200, np.array([3, 4, 2])
    codes = np.stack([rng.choice(k, n, p=np.r_[0.6, np.full(k - 1, 0.4 / (k - 1))]) for k in n_codes])
    pair = Pair(scheme, np.stack([rng.integers(-1000, 1000, n), rng.integers(0, 1000, n)], 1))
    joint = (codes[0] * n_codes[1] + codes[1]) * n_codes[2] + codes[2]
    holder, n_cells = pair.holder, int(np.prod(n_codes))
    cells, used = holder.unset_sums(n_cells), np.zeros(n_cells, np.uint8)
    holder.add_rows(np.arange(n, dtype=np.uint32), joint.astype(np.int32), 0, cells, used)
    assert not used[0]
    first, skipped = np.cumsum(n_codes) - n_codes, np.zeros(3, np.int64)
    sums = holder.no_sums(int(n_codes.sum()))
    holder.fold_cells(cells, used, n_codes, skipped, first, sums)
    holder.complete(sums, n_codes, skipped, first, pair.keys.encrypt_totals(pair.values.sum(0)[None])[0])
    found = pair.keys.open(holder.finished(sums, pair.rng))[: len(sums)]
    expected = [pair.values[codes[j] == k].sum(0) for j in range(3) for k in range(n_codes[j])]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_things_look_different(scheme):
    """The same values of rows, the same totals, the same sums, sent twice: no two ciphertexts are alike."""
    pair = Pair(scheme, [[5, 7]] * 4)
    sent = [pair.sent_back([0, 0, 1, 1], 2) for _ in range(2)]
    pair.keys.begin_tree()
    totals = pair.keys.encrypt_totals(np.array([[5, 7], [5, 7]]))
    rows = [pair.rows, pair.keys.encrypt_rows(0, pair.values)]
    seen = [each.tobytes() for group in (*sent, totals, *rows) for each in group]
    assert len(set(seen)) == len(seen)


def _rubbish(scheme, pair):
    """Words that are no number, no ciphertext, or the wrong one."""
    n_words = pair.keys.sizes.row
    yield np.full(n_words, 2**64 - 1, np.uint64)
    if scheme == "elgamal":
        return
    whole = pair.keys._whole
    yield np.zeros(n_words, np.uint64)
    yield whole.words  # the modulus itself
    yield whole.form(primes(scheme)[0])  # has a divisor in common with it


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_ciphertext_is_refused_with_one_sentence(scheme):
    """As a row, as a total and as a sum."""
    pair = Pair(scheme, [[5, 7], [1, 2]])
    one, zero = np.array([2]), np.array([0])
    for rubbish in _rubbish(scheme, pair):
        rows = pair.rows.copy()
        rows[1] = rubbish
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.holder.take_rows(0, rows)
        total = pair.keys.encrypt_totals(pair.values[:1])[0]
        total[: len(rubbish)] = rubbish
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.holder.complete(pair.holder.no_sums(2), one, zero, zero, total)
        back = pair.sent_back([0, 1], 2)
        back[0, : len(rubbish)] = rubbish
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.keys.open(back)


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_public_keys_are_checked(scheme):
    """Exactly as long as was agreed, odd; g a number modulo n."""
    pair = Pair(scheme, [[5, 7]])
    key, n_words = pair.keys.key, 32
    even, short = key.copy(), key.copy()
    even[0] &= np.uint64(2**64 - 2)
    short[n_words - 1] &= np.uint64(2**63 - 1)
    wrong = [even, short, np.zeros_like(key)]
    if scheme == "ou":
        none, above, divides = key.copy(), key.copy(), key.copy()
        none[n_words:] = np.eye(1, n_words, dtype=np.uint64)[0]
        above[n_words:] = key[:n_words]
        divides[n_words:] = pair.keys._whole.plain(primes(scheme)[1])
        wrong += [none, above, divides]
    for each in wrong:
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.holder.take_key(each)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [LIMIT, -LIMIT, 2**62])
def test_values_out_of_range_are_not_encrypted(scheme, value):
    """Nobody could open their sum."""
    keys, _ = two_sides(scheme, 1)
    with pytest.raises(ProtocolError, match="are encrypted for a row"):
        keys.encrypt_totals(np.array([[0, value]]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("limit", [0, MOST_LIMIT + 1])
def test_limits_have_a_limit(scheme, limit):
    """By the parameter's name and value."""
    with pytest.raises(InvalidParameter, match=f"limit must be between 1 and {MOST_LIMIT}, got {limit}"):
        two_sides(scheme, 1, limit)


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_secrets_are_not_copied(scheme):
    """Nothing of them shows in their words."""
    keys, _ = two_sides(scheme, 1)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ProtocolError, match="cannot be copied or stored"):
            way(keys)
    assert repr(keys).startswith("<hedgerow.crypto.")


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_what_comes_back_has_a_new_nth_power_for_every_ciphertext(scheme):
    """Sent over the same sum without it: r^n, with r drawn below n by who sums, and nothing else.

    r^n is uniform among all n-th powers, so what is sent depends on the sums alone, whatever the rows' randomness was.
    """
    pair = Pair(scheme, [[5, 7], [-3, 2]])
    whole, n, pack = pair.keys._whole, pair.holder.n, pair.keys.sizes.pack
    n_sums = pack + 3
    twin = SecureRandom.from_seed(b"h" * 32)
    sent = [whole.number(each) for each in pair.sent_back([0, 1], n_sums)]
    drawn = [1 + twin.integer(n - 1) for _ in sent]
    fields, rows = pair.holder._fields, [whole.number(each) for each in pair.rows]
    packed = [rows[0] * pow(rows[1], 1 << fields.bits, whole.value), 1]
    constant = pair.holder.powers([fields.constant(np.zeros((0, 2), np.int64))])[0]
    for found, made, r in zip(sent, packed, drawn, strict=True):
        assert found == made * constant * pow(r, n, whole.value) % whole.value


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_keys_of_3072_bits(scheme):
    """More fields, the same sums."""
    rng = np.random.default_rng(4)
    values = rng.integers(-(2**25), 2**25, (12, 2))
    pair = Pair(scheme, values, key_bits=3072)
    assert pair.keys.sizes.pack == (46 if scheme == "paillier" else 15)
    cell = rng.integers(0, 3, 12)
    expected = np.zeros((3, 2), np.int64)
    np.add.at(expected, cell, values)
    assert np.array_equal(pair.opened(cell, 3), expected)


@pytest.mark.parametrize("module", [paillier, okamoto_uchiyama])
@pytest.mark.parametrize("key_bits", [1024, 2047, 4096])
def test_other_lengths_are_not_offered(module, key_bits):
    """1,024 bits are too few."""
    with pytest.raises(InvalidParameter, match=f"key_bits must be one of 2048, 3072, got {key_bits}"):
        module.Holder(1, key_bits)


# --- single schemes --------------------------------------------------------------------------------------------------


def test_paillier_is_that_of_phe():
    """The same key: they open what we encrypt, and we open what they encrypt and what they add to ours."""
    phe = pytest.importorskip("phe")
    pair = Pair("paillier", [[5, 7], [-3, 2], [2**31 - 1, 0]])
    p, q = primes("paillier")
    public = phe.PaillierPublicKey(p * q)
    private = phe.PaillierPrivateKey(public, p, q)
    whole, fields = pair.keys._whole, pair.holder._fields
    for words, (one, other) in zip(pair.rows, pair.values.tolist(), strict=True):
        plain = private.raw_decrypt(whole.number(words))
        assert plain == ((one << fields.half) + other) % public.n
    constant = fields.constant(np.array([[3, -4], [-5, 6]]))
    theirs = public.raw_encrypt(constant)
    assert pair.keys.open(whole.form(theirs)[None])[:2].tolist() == [[3, -4], [-5, 6]]
    added = theirs * whole.number(pair.rows[1]) % whole.value
    assert pair.keys.open(whole.form(added)[None])[:2].tolist() == [[0, -2], [-5, 6]]


def test_okamoto_uchiyama_is_that_of_the_paper():
    """Rows open by the definition, in Python's integers; what the definition encrypts, opens here."""
    pair = Pair("ou", [[5, 7], [-3, 2], [2**31 - 1, 0]])
    (p, q), fields, whole = primes("ou"), pair.holder._fields, pair.keys._whole
    n, g = p * p * q, pair.holder._g
    assert n == whole.value == pair.holder.n

    def log(x):
        return (pow(x, p - 1, p * p) - 1) // p

    for words, (one, other) in zip(pair.rows, pair.values.tolist(), strict=True):
        plain = log(whole.number(words)) * pow(log(g), -1, p) % p
        assert plain == ((one << fields.half) + other) % p
    constant = fields.constant(np.array([[3, -4], [-5, 6]]))
    theirs = pow(g, constant, n) * pow(pow(g, n, n), 123456789, n) % n
    assert pair.keys.open(whole.form(theirs)[None])[:2].tolist() == [[3, -4], [-5, 6]]


def test_plaintexts_beyond_the_fields_are_refused():
    """Of Okamoto-Uchiyama: up to p, just below it, and beyond; who saw such an opening could factor n."""
    pair = Pair("ou", [[5, 7]])
    (p, q), fields, whole, g = primes("ou"), pair.holder._fields, pair.keys._whole, pair.holder._g
    n, top = p * p * q, fields.bits * fields.pack
    assert 1 << top < p
    for plain in (1 << top, (1 << top) + fields.constant(np.zeros((0, 2), np.int64)), p - 1, 2 * p - 5):
        with pytest.raises(ProtocolError, match=ONE_SENTENCE):
            pair.keys.open(whole.form(pow(g, plain, n))[None])
    beyond = 3 * p + 12345
    opened = pair.keys.plaintexts([pow(g, beyond, n)])[0]
    assert opened == 12345  # which nobody is told, for:
    assert math.gcd(beyond - opened, n) % p == 0


@pytest.mark.parametrize("key_bits", [2048, 3072])
def test_primes_of_okamoto_uchiyama(key_bits):
    """Of a third each, n exactly as long as it should be, every number modulo q an n-th power."""
    p, q = primes("ou", key_bits)
    assert (p * p * q).bit_length() == key_bits
    assert abs(p.bit_length() - q.bit_length()) <= 2
    assert p != q
    assert pow(3, p - 1, p) == pow(5, q - 1, q) == 1
    assert (q - 1) % p
    assert (p - 1) % q


def test_randomness_of_rows_has_260_bits():
    """All digits of exponents are used, each value of a digit about as often."""
    drawn = []
    honest = montgomery.encrypt_part

    def watching(values, digits, *rest):
        drawn.append(digits.copy())
        return honest(values, digits, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(montgomery, "encrypt_part", watching)
        two_sides("ou", 1)[0].encrypt_rows(0, np.ones((2000, 2), np.int64))
    digits = drawn[0].reshape(2000, 26)
    assert digits.max() == 1023
    assert min(len(np.unique(column)) for column in digits.T) > 800
    bits = (digits[:, :, None] >> np.arange(10)) & 1
    assert bits.mean(axis=0).min() > 0.44
    assert bits.mean(axis=0).max() < 0.56
