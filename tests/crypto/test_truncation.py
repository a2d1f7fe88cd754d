from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import limbs
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.lifting import bits_of, deal_truncation, shifted, truncated
from hedgerow.crypto.shares import SUM32, SUM64, XOR32, Share, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

small = settings(max_examples=40, deadline=None)  # the first example waits for the compiler
KINDS = [SUM32, SUM64, *(limbs_kind(n) for n in (1, 2, 4, 5, 6))]


def as_words(values, kind):
    """Two's complement of Python's integers."""
    values = np.asarray(values, object)
    if kind.limbs:
        flat = [limbs.constant(value, kind.limbs) for value in values.reshape(-1)]
        return np.array(flat, np.uint32).reshape(*values.shape, kind.limbs)
    return np.asarray(values % (1 << bits_of(kind)), kind.dtype)


def as_ints(words, kind):
    """Signed integers."""
    if kind.limbs:
        return limbs.to_ints(words)
    return words.view(np.dtype(f"i{kind.dtype.itemsize}")).astype(object)


def truncated_at(table, values, kind, d):
    """What the parties' shares open to."""
    x = table.split(as_words(values, kind), kind)
    found = table.talk(
        lambda step: deal_truncation(step, x[0].shape, kind, d),
        lambda step, me: truncated(step, x[me], d, is_first=me == 0),
    )
    return as_ints(value_of(found), kind)


@st.composite
def cases(draw):
    """(kind, d, M, run, values): values at the ends, around multiples of 2**d, and anywhere between."""
    kind = draw(st.sampled_from(KINDS))
    k = bits_of(kind)
    d = draw(
        st.one_of(st.sampled_from([1, 31, 32, 33, k - 3, k - 2]), st.integers(1, k - 2)).filter(lambda d: d < k - 1)
    )
    end = 1 << (k - 2)
    near = st.builds(lambda m, off: max(-end, min(end, (m << d) + off)), st.integers(-3, 3), st.integers(-1, 1))
    number = st.one_of(st.sampled_from([-end, 1 - end, -1, 0, 1, end - 1, end]), near, st.integers(-end, end))
    values = draw(st.lists(number, max_size=8))
    return kind, d, draw(st.integers(2, 4)), draw(st.integers(0, 2**30)), np.array(values, object)


@small
@given(cases())
def test_truncated_numbers_are_floors_or_one_more(case):
    """All kinds, all d, 2 to 4 parties, both ends included; whole quotients are exact, and stay in range."""
    kind, d, n_parties, run, values = case
    table = Table(n_parties, run)
    found = truncated_at(table, values, kind, d)
    end = 1 << (bits_of(kind) - 2 - d)
    for value, quotient in zip(values, found, strict=True):
        above = quotient - (value >> d)
        assert above in {0, 1}
        assert not (above and value % (1 << d) == 0)
        assert -end <= quotient <= end
    assert table.meter.rounds == 1
    assert table.meter.sent_bytes == len(values) * kind.number_bytes
    assert table.meter.dealt_bytes <= 2 * len(values) * kind.number_bytes + 16 + 7


@pytest.mark.parametrize("kind", [SUM64, limbs_kind(4)])
def test_it_does_not_drift(kind):
    """One more for as many masks as the part that is cut off, so that the mean over masks is right."""
    d, n = 40, 6000
    for part in (1, 4, 7):
        value = (-5 << d) + (part << (d - 3))
        found = truncated_at(Table(2, part), [value] * n, kind, d)
        assert abs(np.mean(found == -4) - part / 8) < 5 * 0.5 / np.sqrt(n)
        assert set(found) == {-5, -4}


@pytest.mark.parametrize("kind", [SUM32, limbs_kind(3)])
def test_beyond_the_ends_it_goes_wrong_rarely(kind):
    """A quarter beyond the end fails for an eighth of the masks, without an error: widths must be asserted."""
    k = bits_of(kind)
    value = (1 << (k - 2)) + (1 << (k - 4))
    found = truncated_at(Table(2), [value] * 4000, kind, 8)
    wrong = found != value >> 8
    assert 0.08 < np.mean(wrong) < 0.17
    assert set(found[wrong]) <= {(value >> 8) - (1 << (k - 8)), (value >> 8) + (1 << (k - 8))}


def test_any_shape():
    """Numbers keep their shape, and a single one may have none."""
    values = np.arange(-6, 6).reshape(3, 2, 2).astype(object) << 20
    assert np.array_equal(truncated_at(Table(3), values, limbs_kind(3), 20), values >> 20)
    assert truncated_at(Table(3), np.array(-7 << 9, object), SUM64, 9) == -7


@small
@given(st.sampled_from(KINDS), st.integers(0, 2**200), st.integers(1, 190), st.booleans())
def test_shifts_of_public_numbers(kind, number, d, signed):
    """Over limbs as over words, with a sign and without."""
    k = bits_of(kind)
    number, d = number % (1 << k), d % (k - 2) + 1
    taken = number - (1 << k) if signed and number >> (k - 1) else number
    found = shifted(as_words([number], kind), d, kind, signed=signed)
    assert np.array_equal(found, as_words([taken >> d], kind))


# What others see


def openings(run, *, twice=False):
    """All that is opened for fixed numbers; with `twice`, other numbers are opened with the same dealt masks."""
    found = []
    for factor in (1, 2) if twice else (1,):
        table = Table(3, run)
        truncated_at(table, np.arange(30).astype(object) * factor << 50, limbs_kind(4), 40)
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened words move together from seed to seed; the control uses every mask twice and each is found."""
    assert repeated_masks([openings(run) for run in range(4)]) == []
    found = repeated_masks([openings(run, twice=True) for run in range(4)])
    assert [pair[:2] for pair in found] == [(("truncation 1", k), ("truncation 2", k)) for k in range(30)]


def test_opened_bits_are_balanced():
    """For fixed numbers every opened bit is 1 in about half of the runs, the highest and the lowest too."""
    runs = np.stack([openings(run)[0].words for run in range(300)])
    bits = np.unpackbits(runs.reshape(300, -1).view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(300)


# Bad input


def test_what_cannot_be_truncated():
    """Bits, by nothing, and by all there is."""
    step = Table(2).dealer.step(Label())
    with pytest.raises(InvalidType, match="xor32"):
        deal_truncation(step, 1, XOR32, 3)
    for kind, d in ((SUM64, 0), (SUM64, 63), (limbs_kind(4), 127), (limbs_kind(4), -1)):
        with pytest.raises(InvalidParameter, match=f"d must be between 1 and {bits_of(kind) - 2} for {kind}, got {d}"):
            deal_truncation(step, 1, kind, d)
    with pytest.raises(InvalidParameter, match="got 0"):
        next(truncated(None, Share(np.zeros(3, np.uint64), SUM64), 0, is_first=True))
