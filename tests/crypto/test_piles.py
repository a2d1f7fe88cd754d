"""Sets in piles: the same as in one piece, with one pile at a time in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import piles
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.identifiers import IdRule, first_rows, prepare_ids
from hedgerow.crypto.piles import Gathered, first_bits, in_piles, n_piles_for
from hedgerow.crypto.psi import common_places, random_order, shuffled
from hedgerow.engine.scratch import Scratch
from hedgerow.errors import ProtocolError

SEEDS = st.integers(0, 2**32 - 1)
PILES = st.sampled_from([1, 4, 16, 64])


class CountingScratch:
    """Files without a name, and how often they were asked for."""

    def __init__(self):
        self.asked = 0

    def __call__(self, shape, dtype):
        """Make one."""
        self.asked += 1
        return Scratch().empty(shape, dtype)


def in_small_piles(pile, function):
    """What a function gives if piles are this small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piles, "PILE", pile)
        patch.setattr(piles, "_STEP", 7)
        return function()


def points(seed, n):
    """Uniform, as blinded ones are."""
    return np.random.default_rng(seed).integers(0, 256, (n, 32), dtype=np.uint8)


def generator(seed):
    """The same words in every run."""
    return SecureRandom.from_seed(seed.to_bytes(32, "little"))


def cut(table, size):
    """Blocks."""
    return [table[start : start + size] for start in range(0, len(table), size)]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 200), pile=PILES, size=st.integers(1, 50), seed=SEEDS)
def test_orders_and_shuffles_are_those_of_one_pile(n, pile, size, seed):
    """With the same randomness, the same order and the same points, whatever the piles."""
    table = points(seed, n)
    room = CountingScratch()
    there = in_small_piles(pile, lambda: random_order(n, generator(seed), room))
    np.testing.assert_array_equal(there, random_order(n, generator(seed)))
    blocks = cut(table, size)
    moved, order = in_small_piles(pile, lambda: shuffled(blocks, generator(seed), room))
    assert blocks == []
    np.testing.assert_array_equal(order, there)
    np.testing.assert_array_equal(moved, table[order])
    assert (room.asked > 0) == (n > pile)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), n_sets=st.integers(2, 4), pile=PILES, size=st.integers(1, 50), seed=SEEDS)
def test_sets_are_compared_pile_by_pile_as_at_once(data, n_sets, pile, size, seed):
    """The same places in the same order: that of the points' values."""
    pool = points(seed, 150)
    rng = np.random.default_rng(seed)
    sets = {f"party {k}": rng.permutation(pool)[: data.draw(st.integers(0, 150))] for k in range(n_sets)}
    expected = common_places(sets)
    cut_up = {owner: cut(table, size) or [table] for owner, table in sets.items()}
    found = in_small_piles(pile, lambda: common_places(cut_up, CountingScratch()))
    assert all(not blocks for blocks in cut_up.values())
    for owner in sets:
        assert found[owner].dtype == np.int64
        np.testing.assert_array_equal(found[owner], expected[owner])


@settings(max_examples=40, deadline=None)
@given(picks=st.lists(st.integers(0, 60), max_size=150), pile=PILES)
def test_repeated_ids_are_found_across_piles(picks, pile):
    """The first row of each id is kept, and its digest."""
    room = CountingScratch()
    how = {"context": "run", "party": "anna", "duplicates": "first"}
    whole = prepare_ids(picks, IdRule("integer"), **how)
    found = in_small_piles(pile, lambda: prepare_ids(picks, IdRule("integer"), **how, room=room))
    assert whole.rows.tolist() == [row for row, value in enumerate(picks) if value not in picks[:row]]
    np.testing.assert_array_equal(found.rows, whole.rows)
    np.testing.assert_array_equal(found.digests, whole.digests)
    assert found.n_rows == len(picks)


def test_rows_that_are_alike_in_their_first_bytes_are_told_apart():
    """Sharing the first eight bytes is not enough to be a repetition."""
    table = np.zeros((5, 32), np.uint8)
    table[:, 20] = [1, 2, 1, 3, 2]
    assert first_rows(table).tolist() == [0, 1, 3]


def test_points_that_repeat_are_counted_over_all_piles():
    """The error has the number for the whole set."""
    table = points(1, 300)
    twice = np.concatenate([table, table[:90]])
    with pytest.raises(ProtocolError, match="the set of ben holds 90 points of 390 twice"):
        in_small_piles(16, lambda: common_places({"anna": table, "ben": twice}))


def test_points_that_crowd_are_refused():
    """A peer cannot make one pile as large as the set: blinded points are spread evenly."""
    crowded = points(1, 1000)
    crowded[:, 0] = 77
    with pytest.raises(ProtocolError, match="the set of ben are not spread as blinded points are"):
        in_small_piles(16, lambda: common_places({"anna": points(2, 1000), "ben": crowded}))


@pytest.mark.parametrize(("n", "expected"), [(0, 1), (1, 1), (2**21, 1), (2**21 + 1, 2), (2**22 + 1, 4), (10**8, 64)])
def test_number_of_piles(n, expected):
    """A power of two, such that none is expected to be larger than PILE."""
    assert n_piles_for(n) == expected
    assert n / n_piles_for(n) <= piles.PILE


def test_first_bits_name_the_pile():
    """In the order of the words."""
    words = np.array([0, 2**62 - 1, 2**62, 2**63, 2**64 - 1], np.uint64)
    assert first_bits(words, 4).tolist() == [0, 0, 1, 2, 3]
    assert first_bits(words, 1).tolist() == [0] * 5


def test_rows_keep_their_order_within_a_pile():
    """And each comes with its number."""
    rows = np.arange(100)
    dealt = in_small_piles(8, lambda: list(in_piles(cut(rows, 9), lambda _, part: part % 3, 3, np.empty)))
    for pile, (found, numbers) in enumerate(dealt):
        assert found.tolist() == numbers.tolist() == rows[rows % 3 == pile].tolist()


def test_memory_is_that_of_a_few_piles():
    """All steps on 60,000 points in piles of 1,024 take few bytes a point for orders, and in memory many more."""
    n, pile = 60_000, 1 << 10

    def peak(room):
        def steps():
            came = Gathered(room)
            for start in range(0, n, 1000):
                came.add(points(start, 1000))
            moved, order = shuffled(came.taken(), generator(1), room)
            found = common_places({"anna": [moved], "ben": [moved]}, room)
            assert len(found["anna"]) == len(order) == n

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(piles, "PILE", pile)
            patch.setattr(piles, "_STEP", pile)
            tracemalloc.start()
            try:
                steps()
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    bound = 8 * n + 60 * 32 * pile  # the order and its inverse, and some piles at work
    assert peak(Scratch().empty) < bound
    assert peak(np.empty) > 2 * bound
