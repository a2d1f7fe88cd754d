from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.choosing import DEALT_BYTES, Choosing, chosen, deal_choosing
from hedgerow.crypto.dealing import Label
from hedgerow.crypto.shares import SUM32, SUM64, Share
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

small = settings(max_examples=30, deadline=None)  # the first example waits for the compiler


def chosen_at(table, bits, shares, plan):
    """What all parties hold in the end, for bits [parties, rows, leaves] and shares of the values."""
    return table.talk(
        lambda step: deal_choosing(step, plan),
        lambda step, me: chosen(step, bits[me], shares[me], plan, me=me),
    )


def made_up(run, n_parties, n_rows, n_leaves):
    """Bits that rule out a third of the leaves for each party, and any words as values."""
    rng = np.random.default_rng(run)
    bits = (rng.random((n_parties, n_rows, n_leaves)) < 2 / 3).astype(np.uint8)
    return bits, rng.integers(0, 2**64, n_leaves, dtype=np.uint64)


@small
@given(st.integers(2, 8), st.integers(0, 9), st.integers(0, 7), st.integers(0, 2**30))
def test_chosen_values_are_those_of_numpy(n_parties, n_rows, n_leaves, run):
    """For 2 to 8 parties, any bits and any words; in as many rounds and bytes as the plan says."""
    bits, values = made_up(run, n_parties, n_rows, n_leaves)
    table, plan = Table(n_parties, run), Choosing(n_rows, n_leaves, n_parties)
    found = chosen_at(table, bits, table.split(values, SUM64), plan)
    expected = (bits.all(axis=0) * values).sum(axis=1, dtype=np.uint64)
    assert np.array_equal(value_of(found), expected)
    assert table.meter.rounds == 1 + len(plan.pairs) == 1 + int(np.ceil(np.log2(n_parties)))
    assert table.meter.sent_bytes == (2 * sum(plan.pairs) + 1) * plan.n_bytes + 8 * n_leaves
    bits_dealt = sum(plan.pairs) * plan.n_bytes
    assert table.meter.dealt_bytes <= DEALT_BYTES * n_rows * n_leaves + bits_dealt + 8 * (2 + len(plan.pairs)) + 64


@pytest.mark.parametrize("owner", [0, 2])
def test_values_of_one_party_need_no_sharing(owner):
    """A party's own values are shared as they are: its words are the values, the others' are 0."""
    bits, values = made_up(5, 3, 20, 4)
    table, plan = Table(3), Choosing(20, 4, 3)
    shares = [Share(values if me == owner else np.zeros_like(values), SUM64) for me in range(3)]
    found = chosen_at(table, bits, shares, plan)
    assert np.array_equal(value_of(found), (bits.all(axis=0) * values).sum(axis=1, dtype=np.uint64))


def test_rounds_for_each_number_of_parties():
    """Pairs of each round, and one round more than ceil(log2 M)."""
    assert [Choosing(1, 1, m).pairs for m in range(2, 9)] == [
        (1,), (1, 1), (2, 1), (2, 1, 1), (3, 1, 1), (3, 2, 1), (4, 2, 1),
    ]  # fmt: skip
    assert [len(Choosing(1, 1, m).pairs) + 1 for m in range(2, 9)] == [2, 3, 3, 4, 4, 4, 4]


# What others see


def openings(run, *, twice=False):
    """All that is opened for fixed input; with `twice`, other values are opened with the same dealt masks."""
    found = []
    for factor in (1, 3) if twice else (1,):
        table = Table(3, run)
        bits, values = made_up(1, 3, 4, 4)
        if factor > 1:
            bits = 1 - bits
        shares = [Share(values * np.uint64(factor) if me == 0 else np.zeros_like(values), SUM64) for me in range(3)]
        chosen_at(table, bits, shares, Choosing(4, 4, 3))
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened bits or words move together from seed to seed; the control uses every mask twice."""
    runs = 48  # bits say little, so many runs are needed
    assert repeated_masks([openings(run) for run in range(runs)]) == []
    found = repeated_masks([openings(run, twice=True) for run in range(runs)])
    assert {(first[0], second[0]) for first, second, _ in found} == {
        (f"{name} 1", f"{name} 3") for name in ("and", "choose", "value")
    }
    assert len(found) == 5 * 16 + 4  # two masks for each of two products, one for the choice; one per leaf's value


def test_opened_bits_are_balanced():
    """For fixed input every opened bit is 1 in about half of the runs, also where a party's share is its own bit."""
    runs = []
    for run in range(400):
        opened = openings(run)
        runs.append(
            np.concatenate([np.unpackbits(o.words.view(np.uint8)) if o.how == "sum" else o.words for o in opened])
        )
    assert np.abs(np.mean(runs, axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(400)


def test_results_are_shared_anew():
    """For fixed input every bit of each party's result is balanced over the seeds: shares may be sent as they are."""
    bits, values = made_up(2, 3, 2, 4)
    plan = Choosing(2, 4, 3)
    runs = []
    for run in range(400):
        table = Table(3, run)
        shares = [Share(values if me == 0 else np.zeros_like(values), SUM64) for me in range(3)]
        found = chosen_at(table, bits, shares, plan)
        runs.append(np.unpackbits(np.stack([share.words for share in found]).view(np.uint8)))
    assert np.abs(np.mean(runs, axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(400)


# Bad input


def test_what_cannot_be_chosen():
    """Bits of another shape or size, values of another kind, places and plans that do not exist."""
    table, plan = Table(2), Choosing(3, 2, 2)
    hand = table.hands[0].step(Label())
    bits, values = np.ones((3, 2), np.uint8), Share(np.zeros(2, np.uint64), SUM64)
    with pytest.raises(InvalidType, match=r"uint8 of shape \(3, 2\), got uint8 \(2, 3\)"):
        next(chosen(hand, bits.T, values, plan, me=0))
    with pytest.raises(InvalidType, match="got float64"):
        next(chosen(hand, bits.astype(float), values, plan, me=0))
    with pytest.raises(InvalidParameter, match="0 or 1"):
        next(chosen(hand, 2 * bits, values, plan, me=0))
    with pytest.raises(InvalidParameter, match="me must be between 0 and 1, got 2"):
        next(chosen(hand, bits, values, plan, me=2))
    for wrong in (Share(np.zeros(3, np.uint64), SUM64), Share(np.zeros(2, np.uint32), SUM32)):
        with pytest.raises(InvalidType, match="kind sum64"):
            next(chosen(hand, bits, wrong, plan, me=0))
    with pytest.raises(InvalidParameter, match="n_parties must be at least 2, got 1"):
        Choosing(1, 1, 1)
    with pytest.raises(InvalidParameter, match="rows and leaves"):
        Choosing(-1, 1, 2)
