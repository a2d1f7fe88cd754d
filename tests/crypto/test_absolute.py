"""Laws of sizes of shared numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.compare import Circuit, absolute, bit_times, deal_absolute, deal_bit_products
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, Share
from hedgerow.errors import InvalidType
from twins.openings import repeated_masks
from twins.share_table import Table, value_of

EXTREMES = [0, 1, -1, 2**31 - 1, -(2**31) + 1, 2**30, -(2**30), 12345, -54321]


def sizes(table, values, circuit=None):
    """What all parties' results make."""
    circuit = circuit or Circuit()
    x = table.split(np.array(values, np.int64).astype(np.uint32), SUM32)
    results = table.talk(
        lambda step: deal_absolute(step, len(values), circuit),
        lambda step, me: absolute(step, x[me], circuit, is_first=me == 0),
    )
    return value_of(results).view(np.int32).tolist()


@pytest.mark.parametrize("n_parties", [2, 3, 5])
@pytest.mark.parametrize("circuit", [Circuit(), Circuit(4, 4)])
def test_sizes_of_extremes(n_parties, circuit):
    """Law: |x| for the smallest, the largest and all that is special."""
    assert sizes(Table(n_parties), EXTREMES, circuit) == [abs(x) for x in EXTREMES]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=1, max_size=40), st.integers(2, 4))
def test_sizes(values, n_parties):
    """Law: |x|, whatever the numbers and however many parties."""
    assert sizes(Table(n_parties), values) == [abs(x) for x in values]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**32 - 1)), min_size=1, max_size=40), st.integers(2, 4))
def test_a_bit_times_a_number(pairs, n_parties):
    """Law: s x."""
    table = Table(n_parties)
    bits = table.split(np.array([bit for bit, _ in pairs], np.uint8), XOR8)
    numbers = table.split(np.array([number for _, number in pairs], np.uint32), SUM32)
    results = table.talk(
        lambda step: deal_bit_products(step, len(pairs)),
        lambda step, me: bit_times(step, bits[me], numbers[me], is_first=me == 0),
    )
    assert value_of(results).tolist() == [bit * number for bit, number in pairs]


def openings(run, *, twice=False):
    """All that is opened for fixed numbers; with `twice`, other numbers are opened with the same dealt masks."""
    found = []
    for factor in (1, -2) if twice else (1,):
        table = Table(3, run)
        sizes(table, [factor * x for x in (5, -7, 0, 2**28)])
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened bits or words move together from seed to seed; the control uses every mask twice."""
    runs = 48  # bits say little, so many runs are needed
    assert repeated_masks([openings(run) for run in range(runs)]) == []
    assert repeated_masks([openings(run, twice=True) for run in range(runs)])


def test_other_kinds_are_refused():
    """Sums modulo 2**64, or a table of numbers, are no input."""
    words = np.zeros((2, 3), np.uint32)
    for wrong in (Share(words, SUM32), Share(np.zeros(3, np.uint64), SUM64)):
        with pytest.raises(InvalidType, match="kind sum32, in a row"):
            next(absolute(None, wrong, Circuit(), is_first=True))
    with pytest.raises(InvalidType, match="must be of kind xor8"):
        next(bit_times(None, Share(words[0], SUM32), Share(words[0], SUM32), is_first=True))
