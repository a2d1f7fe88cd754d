"""Laws of numbers that count only if others are not negative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.limits import as_limbs, deal_limited, limited
from hedgerow.crypto.shares import SUM32, SUM64
from twins.openings import repeated_masks
from twins.share_table import Table, value_of


def counted(table, numbers, checks, kind=SUM32):
    """What all parties' results make: numbers [numbers, n], checks [checks, n]."""
    numbers, checks = np.array(numbers, np.int64), np.array(checks, np.int64)
    x = table.split(numbers.astype(kind.dtype), kind)
    c = table.split(checks.astype(kind.dtype), kind)
    results = table.talk(
        lambda step: deal_limited(step, numbers.shape[1], len(checks), len(numbers), kind),
        lambda step, me: limited(step, x[me], as_limbs(c[me].words, kind), is_first=me == 0),
    )
    return value_of(results).view(np.int32 if kind == SUM32 else np.int64).tolist()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(2, 4), st.sampled_from([SUM32, SUM64]))
def test_numbers_count_if_nothing_is_negative(data, n_checks, n_parties, kind):
    """Law: x where all checks are at least 0, else 0."""
    n, most = data.draw(st.integers(1, 20)), 2 ** (8 * kind.number_bytes - 2)
    column = st.lists(st.one_of(st.integers(-2, 2), st.integers(-most, most)), min_size=n, max_size=n)
    numbers, checks = [data.draw(column) for _ in range(2)], [data.draw(column) for _ in range(n_checks)]
    allowed = (np.array(checks) >= 0).all(axis=0)
    assert counted(Table(n_parties), numbers, checks, kind) == np.where(allowed, numbers, 0).tolist()


@pytest.mark.parametrize("kind", [SUM32, SUM64])
def test_a_limit_that_is_just_reached_is_enough(kind):
    """0 is not negative, -1 is."""
    assert counted(Table(2), [[7, 7], [-9, -9]], [[0, -1]], kind) == [[7, 0], [-9, 0]]


def openings(run, *, twice=False):
    """All that is opened for fixed numbers; with `twice`, other numbers are opened with the same dealt masks."""
    found = []
    for factor in (1, -2) if twice else (1,):
        table = Table(3, run)
        counted(table, [[5 * factor, 6], [7, 8 * factor]], [[factor, 3], [4, -factor]])
        found += [opening._replace(name=f"{opening.name} {factor}") for opening in table.opened]
    return found


def test_no_mask_covers_two_values():
    """No two opened bits or words move together from seed to seed; the control uses every mask twice."""
    runs = 48  # bits say little, so many runs are needed
    assert repeated_masks([openings(run) for run in range(runs)]) == []
    assert repeated_masks([openings(run, twice=True) for run in range(runs)])
