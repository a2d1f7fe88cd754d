"""Two openings under one mask, for who may look closer than `attacks.shares.mask_reuse`.

`from_one_run` has words of a ring of 64 bits, and knows only that hidden values are small numbers, as sums in fixed
point are: two words that lie within 2**33 of each other do not do so by chance. `from_runs` is the experimenter's: it
has several runs over the same data, and takes the pairs that `testing.openings.repeated_masks` finds, however large the
values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hedgerow.engine.dtypes import Ints, Words
from hedgerow.errors import InvalidParameter, InvalidType
from twins.openings import Opening, repeated_masks

FALSE_ALARMS = 1e-3
"""Pairs that chance may bring together, on average, before an attack on one run makes no sense."""


class Unhidden(NamedTuple):
    """What two opened words show together: (name, index) of each, and what their hidden values differ by.

    With the relation "opposite", one mask added and once taken off, it is their sum; with "no mask" the value itself.
    """

    first: tuple[str, int]
    second: tuple[str, int] | None
    relation: str
    value: int


@dataclass(frozen=True)
class ReusedMasks:
    """All pairs that were found."""

    n_words: int
    found: tuple[Unhidden, ...]

    def verdict(self) -> str:
        """The outcome in words."""
        if self.found:
            n_found = len(self.found)
            return f"ALARM: {n_found:,} of {self.n_words:,} opened words show what they hide: a mask was used again."
        return f"Of {self.n_words:,} opened words no two had the same mask, as far as this attack can see."


def from_one_run(openings: Sequence[Opening], value_bits: int) -> ReusedMasks:
    """Words of one run that lie closer together than chance brings them: hidden values are below 2**value_bits."""
    words, places = _words64(openings)
    if len(words) ** 2 * 2.0 ** (value_bits + 1 - 64) > FALSE_ALARMS:
        raise InvalidParameter(f"value_bits {value_bits} is too much: {len(words):,} words come as close by chance")
    near = np.uint64(1 << (value_bits + 1))
    bare = words + near // np.uint64(2) < near
    found = [Unhidden(places[k], None, "no mask", _signed(int(words[k]), 64)) for k in np.flatnonzero(bare).tolist()]
    # Sorted on the ring, words under one mask are neighbours; under opposite masks, one and the negative of the other.
    chosen = np.flatnonzero(~bare)
    numbers = np.concatenate([chosen, chosen])
    both = np.concatenate([words[chosen], -words[chosen]])
    order = np.argsort(both, kind="stable")
    gaps = np.roll(both[order], -1) - both[order]
    for at in np.flatnonzero(gaps < near).tolist():
        i, j = sorted((int(order[at]), int(order[(at + 1) % len(order)])))
        first, second = int(numbers[i]), int(numbers[j])
        is_same = (i < len(chosen)) == (j < len(chosen))
        # Each pair is met twice, with all signs exchanged the second time.
        if first < second and i < len(chosen):
            one, other = int(words[first]), int(words[second])
            value = one - other if is_same else one + other
            relation = "same" if is_same else "opposite"
            found.append(Unhidden(places[first], places[second], relation, _signed(value, 64)))
    return ReusedMasks(len(words), tuple(found))


def from_runs(runs: Sequence[Sequence[Opening]]) -> ReusedMasks:
    """Every repeated mask between runs over the same data, with what it shows in the first of them."""
    found = []
    named = [_named_apart(run) for run in runs]
    by_name = {opening.name: opening for opening in named[0]}
    for first, second, relation in repeated_masks(named):
        one, bits = _word(by_name[first[0]], first[1])
        if second is None:
            found.append(Unhidden(first, None, relation, _signed(one, bits)))
            continue
        other, other_bits = _word(by_name[second[0]], second[1])
        bits = min(bits, other_bits)
        value = one ^ other if bits == 1 else one + other if relation == "opposite" else one - other
        found.append(Unhidden(first, second, relation, _signed(value, bits)))
    return ReusedMasks(sum(math.prod(opening.words.shape) for opening in runs[0]), tuple(found))


def _named_apart(openings: Sequence[Opening]) -> list[Opening]:
    """A number with each name that was there before."""
    seen: Counter[str] = Counter()
    out = []
    for opening in openings:
        seen[opening.name] += 1
        again = seen[opening.name]
        out.append(opening if again == 1 else opening._replace(name=f"{opening.name} ({again})"))
    return out


def _words64(openings: Sequence[Opening]) -> tuple[Words, list[tuple[str, int]]]:
    chosen = [opening for opening in _named_apart(openings) if opening.how == "sum"]
    if any(opening.words.dtype != np.uint64 for opening in chosen):
        raise InvalidType("an attack on one run needs words of 64 bits: shorter ones come close by chance")
    words = np.concatenate([opening.words.reshape(-1) for opening in chosen] or [np.empty(0, np.uint64)])
    return words, [(opening.name, index) for opening in chosen for index in range(opening.words.size)]


def _word(opening: Opening, index: int) -> tuple[int, int]:
    """A word by its place, and its number of bits, of those that can be compared: limbs by their lowest."""
    width = 8 * opening.words.itemsize
    if opening.how == "bits":
        used = width if opening.used_bits is None else opening.used_bits
        return int(opening.words.reshape(-1)[index // used]) >> index % used & 1, 1
    words: Ints | Words = opening.words[..., 0] if opening.how == "limbs" else opening.words
    return int(words.reshape(-1)[index]), width


def _signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if bits > 1 and value >= 1 << (bits - 1) else value
