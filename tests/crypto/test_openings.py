from __future__ import annotations

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import Opening, Repeated, repeated_masks


def draw(run, n, dtype=np.uint32):
    """Uniform words of one run."""
    raw = SecureRandom.from_seed(run.to_bytes(32, "little")).bytes(n * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, dtype)


def test_honest_masks_pass():
    """Fresh masks of all kinds, 20,000 words and 3,000 bits: nothing is found."""
    runs = [
        [
            Opening("words", draw(run, 12_000)),
            Opening("wide", draw(run + 1000, 8_000, np.uint64)),
            Opening("bits", draw(run + 2000, 375, np.uint8), "bits"),
        ]
        for run in range(48)
    ]
    assert repeated_masks(runs) == []


def test_same_opposite_and_no_mask():
    """One mask for two words, of one opening or of two, added or subtracted; and a word without a mask."""
    runs = []
    for run in range(4):
        mask = draw(run, 5)
        numbers = np.concatenate([draw(run + 10, 5).reshape(5, 1), draw(run + 20, 5).reshape(5, 1)], axis=1)
        numbers[2, 0] = mask[1] + np.uint32(77)  # its other limb has nothing to do with it
        runs.append(
            [
                Opening("first", np.array([9, 8, 7, 6, 5], np.uint32) + mask),
                Opening("second", np.array([3 - int(mask[0]) + 2**64, int(mask[4]) + 5], object).astype(np.uint64)),
                Opening("numbers", numbers, "limbs"),
                Opening("bare", np.array([42], np.uint32)),
            ]
        )
    assert set(repeated_masks(runs)) == {
        Repeated(("bare", 0), None, "no mask"),
        Repeated(("first", 4), ("second", 1), "same"),
        Repeated(("first", 1), ("numbers", 2), "same"),
        Repeated(("first", 0), ("second", 0), "opposite"),
    }


def test_bits_under_one_mask():
    """A bit that follows another, or its opposite, is found; bits beyond those used do not count."""
    runs = []
    for run in range(64):
        bits = draw(run, 6, np.uint16) & np.uint16(0x7FF)
        bits[5] = (bits[5] & ~np.uint16(1)) | ((bits[0] >> 3) & 1) ^ 1
        runs.append([Opening("tree", bits, "bits", used_bits=11)])
    assert repeated_masks(runs) == [Repeated(("tree", 3), ("tree", 55), "same")]


def test_balance_does_not_see_it():
    """Why this test exists: words under one mask are as balanced as any."""
    one, two = draw(0, 50_000), draw(0, 50_000) + np.uint32(1)
    for words in (one, two):
        assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 0.002
    pair = [[Opening("one", draw(run, 3)), Opening("two", draw(run, 3) + np.uint32(1))] for run in range(3)]
    assert len(repeated_masks(pair)) == 3


def test_bad_runs():
    """Too few runs to tell chance from a mask, runs that differ, and what are no words."""
    with pytest.raises(InvalidParameter, match="at least 2"):
        repeated_masks([[]])
    bits = [[Opening("bits", draw(run, 10, np.uint8), "bits")] for run in range(20)]
    with pytest.raises(InvalidParameter, match="80 bits need at least 34 runs"):
        repeated_masks(bits)
    with pytest.raises(InvalidParameter, match="same names"):
        repeated_masks([[Opening("a", draw(0, 3))], [Opening("a", draw(0, 4))]])
    with pytest.raises(InvalidType, match="unsigned"):
        repeated_masks([[Opening("a", np.zeros(2))]] * 3)
    assert repeated_masks([[], []]) == []
