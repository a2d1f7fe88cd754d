"""A mask that is used twice shows the difference of what it hides; masks that are used once show nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hedgerow.attacks.shares.mask_reuse import FEWEST, in_rounds
from hedgerow.crypto.choosing import Choosing, chosen, deal_choosing
from hedgerow.crypto.shares import SUM64, Share
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import Opening
from twins.reused_masks import Unhidden, from_one_run, from_runs
from twins.share_table import Table

HIDDEN = np.array([1500, -70, 3, 1 << 20, 5, -9], np.int64)


def run(seed, broken=None, dtype=np.uint64):
    """Six hidden values opened under masks; `broken` uses the first mask again for the fifth."""
    masks = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, 6, dtype)
    if broken == "same":
        masks[4] = masks[0]
    if broken == "opposite":
        masks[4:5] = -masks[:1]
    if broken == "none":
        masks[4] = 0
    words = HIDDEN.astype(dtype) + masks
    return [Opening("lift", words[:3]), Opening("winner", words[3:])]


FOUND = {
    "same": Unhidden(("lift", 0), ("winner", 1), "same", 1495),
    "opposite": Unhidden(("lift", 0), ("winner", 1), "opposite", 1505),
    "none": Unhidden(("winner", 1), None, "no mask", 5),
}


@pytest.mark.parametrize("broken", ["same", "opposite", "none"])
def test_a_broken_run_shows_differences(broken):
    """By one run alone, for values are small; and by several runs, for any values."""
    one = from_one_run(run(0, broken), value_bits=24)
    assert one.found == (FOUND[broken],)
    assert one.verdict().startswith("ALARM")
    assert from_runs([run(seed, broken) for seed in range(4)]).found == one.found


def test_runs_with_shorter_words():
    """32 bits are enough with several runs."""
    assert from_runs([run(seed, "same", np.uint32) for seed in range(4)]).found == (FOUND["same"],)


def test_bits_under_one_mask():
    """Their exclusive or."""

    def bits(seed):
        masks = np.random.default_rng(seed).integers(0, 2, 8, np.uint8)
        masks[5] = masks[2]
        hidden = np.array([0, 0, 1, 0, 0, 0, 0, 0], np.uint8)
        return [Opening("sign", np.packbits(masks ^ hidden, bitorder="little"), "bits")]

    (found,) = from_runs([bits(seed) for seed in range(40)]).found
    assert found == Unhidden(("sign", 2), ("sign", 5), "same", 1)


def test_fresh_masks_show_nothing():
    """A mask each."""
    for result in (from_one_run(run(0), 24), from_runs([run(seed) for seed in range(4)])):
        assert result.found == ()
        assert "no two" in result.verdict()


def opened_by_choosing(run, factors):
    """What parties open to choose among small values, each time with the masks of the same seed."""
    rng = np.random.default_rng(1)
    bits, values = rng.integers(0, 2, (3, 4, 4), np.uint8), rng.integers(0, 1 << 20, 4, np.uint64)
    plan, opened = Choosing(4, 4, 3), []
    for factor in factors:
        table = Table(3, run)
        shares = [Share(values * np.uint64(factor if me == 0 else 0), SUM64) for me in range(3)]
        table.talk(
            lambda step: deal_choosing(step, plan),
            lambda step, me, shares=shares: chosen(step, bits[me], shares[me], plan, me=me),
        )
        opened += table.opened
    return values.astype(np.int64), opened


def test_a_part_of_our_protocols():
    """Masks dealt once show nothing; the same masks for three times the values show these."""
    _, once = opened_by_choosing(0, [1])
    assert sum(opening.how == "sum" for opening in once) == 1
    assert from_one_run(once, 24).found == ()
    assert from_runs([opened_by_choosing(run, [1])[1] for run in range(48)]).found == ()
    values, twice = opened_by_choosing(0, [1, 3])
    found = from_one_run(twice, 24).found
    assert sorted(abs(each.value) for each in found) == sorted((2 * values).tolist())
    assert {each.first[0] for each in found} == {"value"}
    assert {each.second[0] for each in found} == {"value (2)"}


def test_values_that_are_too_large_are_refused():
    """Where chance brings words as close together."""
    with pytest.raises(InvalidParameter, match="value_bits"):
        from_one_run(run(0), 60)
    with pytest.raises(InvalidType, match="64 bits"):
        from_one_run(run(0, dtype=np.uint32), 8)


# --- rounds of words of 32 bits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [FEWEST, 40, 1000])
def test_rounds_under_the_same_masks_are_found(size, sign):
    """Also masks that are taken off the second time; rounds of other lengths count as far as both go."""
    rng = np.random.default_rng(size)
    masks, other = (rng.integers(0, 1 << 32, size, np.uint32) for _ in range(2))
    small = rng.integers(-1000, 1000, (3, size)).astype(np.uint32)
    again = (small[2] + masks) if sign > 0 else (small[2] - masks)
    longer = np.concatenate([again, rng.integers(0, 1 << 32, 5, np.uint32)])
    assert in_rounds([small[0] + masks, small[1] + other, again]) == [(0, 2)]
    assert in_rounds([small[1] + other, small[0] + masks, longer]) == [(1, 2)]
    assert in_rounds([small[0] + masks, small[1] + other]) == []


def test_short_rounds_and_chance_are_no_alarm():
    """Thousands of rounds that have nothing to do with each other, and some with few words that are equal."""
    rng = np.random.default_rng(1)
    rounds = list(rng.integers(0, 1 << 32, (1500, 16), np.uint32))
    rounds += [np.zeros(FEWEST - 1, np.uint32)] * 2
    assert in_rounds(rounds) == []
    assert in_rounds([]) == []
