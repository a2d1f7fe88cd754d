from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import lifting, limbs
from hedgerow.crypto.lifting import deal_gains, deal_lift, gains, lift
from hedgerow.crypto.shares import SUM32, SUM64, XOR32, Share, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

BITS = {SUM32: 32, SUM64: 64}
small = settings(max_examples=30, deadline=None)  # the first example waits for the compiler


def sums_of(kind):
    """Sums at the ends of what can be lifted, around zero, and anywhere between."""
    end = 1 << (BITS[kind] - 2)
    return st.one_of(st.sampled_from([-end, 1 - end, -1, 0, 1, end - 1, end]), st.integers(-end, end))


@st.composite
def cases(draw):
    """(kind, L, M, run, sums [4, n])."""
    kind = draw(st.sampled_from([SUM32, SUM64]))
    n = draw(st.integers(0, 6))
    row = st.lists(sums_of(kind), min_size=n, max_size=n)
    values = np.array([draw(row) for _ in range(4)], object).reshape(4, n)
    return kind, draw(st.integers(3, 8)), draw(st.integers(2, 8)), draw(st.integers(0, 2**30)), values


def as_words(values, kind):
    """Two's complement."""
    return (values % (1 << BITS[kind])).astype(kind.dtype)


def gains_at(table, values, kind, wide, lambda_int):
    """(P, Q) as shares of all parties, for sums [4, ...]."""
    shares = [table.split(as_words(value, kind), kind) for value in values]
    found = table.talk(
        lambda step: deal_gains(step, values[0].size, kind, wide),
        lambda step, me: gains(step, tuple(x[me] for x in shares), lambda_int, wide, is_first=me == 0),
    )
    return [[both[which] for both in found] for which in (0, 1)]


def plain(values, lambda_int):
    """P and Q in Python's integers."""
    GL, HL, GR, HR = values
    return GL**2 * (HR + lambda_int) + GR**2 * (HL + lambda_int), (HL + lambda_int) * (HR + lambda_int)


@small
@given(cases())
def test_lifted_numbers_are_the_same(case):
    """[x] in the wide ring opens to x, both ends included; one word each, and two wide numbers dealt."""
    kind, n_limbs, n_parties, run, values = case
    table, wide = Table(n_parties, run), limbs_kind(n_limbs)
    x = table.split(as_words(values, kind), kind)
    found = table.talk(
        lambda step: deal_lift(step, values.shape, kind, wide),
        lambda step, me: lift(step, x[me], wide, is_first=me == 0),
    )
    assert np.array_equal(limbs.to_ints(value_of(found)), values)
    assert table.meter.rounds == 1
    assert table.meter.sent_bytes == values.size * kind.number_bytes
    assert table.meter.dealt_bytes <= 2 * values.size * wide.number_bytes + 16 + 7


@small
@given(cases(), st.one_of(st.sampled_from([1, 2**14]), st.integers(1, 2**40)))
def test_gains_are_those_of_whole_numbers(case, lambda_int):
    """P and Q open to what Python's integers make, modulo the ring, for all widths, both kinds and 2 to 8 parties."""
    kind, n_limbs, n_parties, run, values = case
    P, Q = gains_at(Table(n_parties, run), values, kind, limbs_kind(n_limbs), lambda_int)
    for found, expected in zip((P, Q), plain(values, lambda_int), strict=True):
        assert np.array_equal(limbs.to_ints(value_of(found), signed=False), expected % (1 << (32 * n_limbs)))


def test_gains_of_the_largest_sums_without_reduction():
    """At |G|, H = 2**30 a ring of 96 bits holds P, and 64-bit sums at 2**62 fit 192 bits: signed, not only modulo."""
    for kind, n_limbs in ((SUM32, 3), (SUM64, 6)):
        end = 1 << (BITS[kind] - 2)
        values = np.array([[end, -end, end], [end, 0, 1], [-end, end, -end], [end, end, 0]], object)
        found = gains_at(Table(3), values, kind, limbs_kind(n_limbs), 1)
        for shares, expected in zip(found, plain(values, 1), strict=True):
            assert np.array_equal(limbs.to_ints(value_of(shares)), expected)


def test_beyond_the_ends_it_goes_wrong_rarely():
    """A quarter beyond 2**30 fails for an eighth of the masks, without an error: widths must be asserted."""
    table, wide = Table(2), limbs_kind(4)
    x = np.full(4000, 2**30 + 2**28, np.uint32)
    shares = table.split(x, SUM32)
    found = table.talk(
        lambda step: deal_lift(step, x.size, SUM32, wide),
        lambda step, me: lift(step, shares[me], wide, is_first=me == 0),
    )
    wrong = np.mean(limbs.to_ints(value_of(found)) != 2**30 + 2**28)
    assert 0.08 < wrong < 0.17  # 2**28 / 2**31 = 0.125


@pytest.mark.parametrize("kind", [SUM32, SUM64])
def test_rounds_and_bytes(kind):
    """One round, four words per candidate, and 32 wide numbers dealt."""
    table, wide, n = Table(3), limbs_kind(5), 300
    gains_at(table, np.zeros((4, 3, n // 3), object), kind, wide, 1)
    assert table.meter.rounds == 1
    assert table.meter.sent_bytes == 4 * kind.number_bytes * n
    assert 0 <= table.meter.dealt_bytes - 32 * wide.number_bytes * n <= 3 * 16


def test_blocks_change_nothing(monkeypatch):
    """Tables that come in blocks give what they give at once, and no table is larger than a block."""
    values = np.random.default_rng(0).integers(-(2**30), 2**30, (4, 2, 11)).astype(object)
    wide = limbs_kind(5)
    monkeypatch.setattr(lifting, "BLOCK", 5)
    seen = []
    made = lifting._tables
    monkeypatch.setattr(lifting, "_tables", lambda r, kind: seen.append(r.shape) or made(r, kind))
    P, Q = gains_at(Table(3), values, SUM32, wide, 7)
    for shares, expected in zip((P, Q), plain(values, 7), strict=True):
        assert value_of(shares).shape == (2, 11, 5)
        assert np.array_equal(limbs.to_ints(value_of(shares)), expected)
    assert seen == [(4, 5)] * 4 + [(4, 2)]


# What others see


def openings(run, *, twice=False):
    """All that is opened for fixed sums; with `twice`, other sums are opened with the same dealt masks."""
    found = []
    for factor in (1, 2) if twice else (1,):
        table = Table(3, run)
        values = np.arange(40).reshape(4, 10).astype(object) * factor
        gains_at(table, values, SUM32, limbs_kind(4), 3)
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened words move together from seed to seed; the control uses every mask twice and each is found."""
    assert repeated_masks([openings(run) for run in range(4)]) == []
    found = repeated_masks([openings(run, twice=True) for run in range(4)])
    assert [(first, second) for first, second, _ in found] == [(("lift 1", k), ("lift 2", k)) for k in range(40)]


def test_opened_bits_are_balanced():
    """For fixed sums every opened bit is 1 in about half of the runs."""
    runs = np.stack([openings(run)[0].words for run in range(400)])
    bits = np.unpackbits(runs.reshape(400, -1).view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(400)


# Bad input


def test_what_cannot_be_lifted():
    """Bits, a ring that is narrower than the sums, and sums that do not go together."""
    step = Table(2).dealer
    from hedgerow.crypto.dealing import Label

    first = step.step(Label())
    with pytest.raises(InvalidType, match="sum32 or sum64, got xor32"):
        deal_lift(first, 1, XOR32, limbs_kind(4))
    with pytest.raises(InvalidParameter, match="as many bits as sum64, got limbs:1"):
        deal_gains(first, 1, SUM64, limbs_kind(1))
    with pytest.raises(InvalidParameter, match="got sum64"):
        deal_gains(first, 1, SUM32, SUM64)
    one, other = Share(np.zeros(3, np.uint32), SUM32), Share(np.zeros(4, np.uint32), SUM32)
    with pytest.raises(InvalidType, match="one kind and shape"):
        next(gains(None, (one, one, one, other), 1, limbs_kind(4), is_first=True))
