from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import compare, limbs
from hedgerow.crypto.compare import Circuit, deal_signs, products_of, signs
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.shares import SUM32, XOR8, Share, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

CIRCUITS = [Circuit(w, q) for w, q in itertools.product((4, 5), (4, 6))]
WIDTHS = range(3, 9)


def make(values, n_limbs):
    """Numbers [n, L]."""
    return np.array([limbs.constant(value, n_limbs) for value in values], np.uint32).reshape(-1, n_limbs)


def edges(n_limbs):
    """Numbers around those at which signs change, the smallest and the largest, and single bits of both signs."""
    top = 1 << (32 * n_limbs - 1)
    powers = [sign << k for sign in (1, -1) for k in range(0, 32 * n_limbs - 1, 7)]
    return [0, 1, -1, 2, -2, top - 1, top - 2, -top, 1 - top, *powers]


def signs_at(table, words, circuit):
    """The shares of all parties of the signs of some numbers."""
    kind = limbs_kind(words.shape[-1])
    d = table.split(words, kind)
    n = words.size // kind.limbs
    return table.talk(
        lambda step: deal_signs(step, n, kind, circuit),
        lambda step, me: signs(step, d[me], circuit, is_first=me == 0),
    )


@pytest.mark.parametrize("circuit", CIRCUITS)
@pytest.mark.parametrize("n_limbs", WIDTHS)
def test_edges_of_every_width(circuit, n_limbs):
    """The smallest, the largest, 0, -1 and all powers of two, 96 to 256 bits, each under several masks."""
    values = edges(n_limbs) * 5
    table = Table(2 + n_limbs % 3, n_limbs)
    found = signs_at(table, make(values, n_limbs), circuit)
    assert value_of(found).tolist() == [int(value < 0) for value in values]
    assert all(share.kind == XOR8 and share.words.max() <= 1 for share in found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_signs_are_those_of_whole_numbers(data):
    """Any numbers, 2 to 8 parties, all widths and circuits, any shape."""
    n_limbs = data.draw(st.sampled_from(WIDTHS))
    half = 1 << (32 * n_limbs - 1)
    number = st.one_of(st.integers(-half, half - 1), st.sampled_from(edges(n_limbs)))
    values = data.draw(st.lists(number, min_size=0, max_size=6))
    circuit = data.draw(st.sampled_from([*CIRCUITS, Circuit(1, 2), Circuit(3, 3), Circuit(6, 5)]))
    table = Table(data.draw(st.integers(2, 8)), data.draw(st.integers(0, 2**30)))
    found = signs_at(table, make(values, n_limbs).reshape(1, -1, n_limbs), circuit)
    assert value_of(found).tolist() == [[int(value < 0) for value in values]]


def test_differences_that_end_in_any_digit():
    """A number whose masked opening agrees with the mask down to some digit: the tree goes all the way there."""
    for place in range(160):
        words = make([1 << place, -(1 << place)], 5) if place < 159 else make([-(1 << place)] * 2, 5)
        expected = [int(place == 159), 1]
        assert value_of(signs_at(Table(2, place), words, Circuit())).tolist() == expected


@pytest.mark.parametrize("circuit", CIRCUITS)
@pytest.mark.parametrize("n_limbs", WIDTHS)
def test_rounds_and_bytes(circuit, n_limbs):
    """4 L bytes, then 2 q - 1 bits per block, packed, in as many rounds as the logarithm of the digits says."""
    n, w, q = 24, circuit.digit_bits, circuit.fan_in
    table = Table(3)
    signs_at(table, make(range(n), n_limbs), circuit)
    n_digits = math.ceil((32 * n_limbs - 1) / w)
    rounds = next(k for k in itertools.count() if q**k >= n_digits)
    assert table.meter.rounds == len(circuit.openings(n, n_limbs)) == 1 + rounds
    expected, left = 4 * n_limbs * n, n_digits
    for _ in range(rounds):
        fan_in = min(q, left)
        left = math.ceil(left / fan_in)
        expected += math.ceil(n * left * (2 * fan_in - 1) / 8)
    assert table.meter.sent_bytes == sum(circuit.openings(n, n_limbs)) == expected


def test_published_figures():
    """160 bits, digits of 5 and blocks of 6: two rounds on bits, about 30 bytes opened and 240 dealt per number.

    Digits of 4 and blocks of 4: three rounds and 45 % less is dealt.
    """
    dealt = {}
    for circuit in (Circuit(5, 6), Circuit(4, 4)):
        table = Table(3)
        signs_at(table, make(range(800), 5), circuit)
        dealt[circuit] = table.meter.dealt_bytes / 800
    assert len(Circuit(5, 6).openings(800, 5)) == 3
    assert len(Circuit(4, 4).openings(800, 5)) == 4
    assert sum(Circuit(5, 6).openings(800, 5)) / 800 == pytest.approx(29.6, abs=0.1)
    assert dealt[Circuit(5, 6)] < 241
    assert dealt[Circuit(4, 4)] < 0.57 * dealt[Circuit(5, 6)]


@pytest.mark.parametrize("q", range(1, 7))
def test_products_of_masked_bits(q):
    """For all masks and all that can be opened, the chosen dealt bits make the products."""
    tables = products_of(q)
    product, first, second = tables.choices
    for rho, m in itertools.product(range(1 << q), repeat=2):
        equal = rho ^ m
        dealt = int(tables.of_masks[rho])
        assert (dealt & int(product[m])).bit_count() % 2 == (equal == (1 << q) - 1)
        for mask, shown in [(0, 0), (1, 2), (13, 6), (31, 9), (5, 31)]:
            keep = (1 << (q - 1)) - 1
            mask_, shown_ = mask & keep, shown & keep
            larger = mask_ ^ shown_
            expected = sum(
                larger >> i & 1 for i in range(q - 1) if equal >> (i + 1) == (1 << (q - 1 - i)) - 1
            )  # fmt: skip
            with_larger = int(tables.with_larger[rho | mask_ << q])
            found = (dealt & int(first[m | shown_ << q])).bit_count() + (with_larger & int(second[m])).bit_count()
            assert found % 2 == expected % 2


@pytest.mark.parametrize("width", [1, 3, 7, 8, 11, 28])
def test_packed_bits(width):
    """Packing loses nothing, leaves no gaps, and the last byte alone may be filled up, with zeros."""
    dtype = np.dtype(np.uint32)
    values = np.random.default_rng(0).integers(0, 2**32, 37, dtype=dtype)
    packed = np.zeros(-(-37 * width // 8), np.uint8)
    compare._pack(values, width, packed)
    found = np.empty_like(values)
    compare._unpack(packed, width, found)
    assert np.array_equal(found, values & dtype.type((1 << width) - 1))
    whole = sum(int(value) << (width * k) for k, value in enumerate(found))
    assert int.from_bytes(packed.tobytes(), "little") == whole


# What others see


def openings(run, *, twice=False):
    """All that is opened for fixed numbers; with `twice`, other numbers are opened with the same dealt masks."""
    found = []
    for factor in (1, 3) if twice else (1,):
        table = Table(3, run)
        signs_at(table, make([factor * value for value in (5, -7, 0, 2**90, -(2**90))], 4), Circuit())
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No opened words or bits move together from seed to seed; the control uses every mask twice and each is found."""
    runs = [openings(run) for run in range(60)]
    assert {opening.name for opening in runs[0]} == {"sign 1", "and 1"}
    assert repeated_masks(runs) == []
    found = repeated_masks([openings(run, twice=True) for run in range(60)])
    pairs = {(first, second) for first, second, _ in found}
    assert {(("sign 1", k), ("sign 3", k)) for k in range(5)} <= pairs


def test_opened_bits_are_balanced():
    """For fixed numbers every opened bit is 1 in about half of the runs."""
    runs = [openings(run) for run in range(400)]
    bits = [
        np.concatenate([
            opening.words if opening.how == "bits" else np.unpackbits(opening.words.reshape(-1).view(np.uint8))
            for opening in run
        ])
        for run in runs
    ]  # fmt: skip
    assert np.abs(np.mean(bits, axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(400)


# Bad input


def test_what_has_no_sign():
    """Words, digits and blocks that the tables have no room for."""
    step = Table(2).dealer.step(Label())
    with pytest.raises(InvalidType, match="in limbs, got kind sum32"):
        deal_signs(step, 1, SUM32, Circuit())
    with pytest.raises(InvalidType, match="in limbs, got kind sum32"):
        next(signs(None, Share(np.zeros(1, np.uint32), SUM32), Circuit(), is_first=True))
    with pytest.raises(InvalidParameter, match="digit_bits must be between 1 and 6, got 7"):
        Circuit(7, 4)
    with pytest.raises(InvalidParameter, match="fan_in must be between 2 and 6, got 7"):
        Circuit(4, 7)
