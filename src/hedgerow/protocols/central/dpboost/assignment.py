"""Which records serve which tree: disjoint subsets, so that one record pays for one tree of an ensemble only.

"independent": each record draws its own place from secret randomness, whatever the others do. Adding or removing a
record then changes one subset and leaves all others as they are, which is what parallel composition needs.

Places are drawn from streams of their own, one per ensemble, whose seeds are the first thing that a training draws. So
neither noise nor other records have a say in them, and a training without noise has the places of one with noise.

"paper": a secret random permutation is cut into subsets of floor(n w) records. One record more changes the sizes of
several subsets at once (for a quarter of all n), so this is accounted for only where n is public: "replace_one".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.dtypes import ROW_ID, Bools, Ints, RowIds
from hedgerow.privacy.discrete_gaussian import RandomBytes
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings


class Shares(NamedTuple):
    """What part of the records each tree of an ensemble gets: parts[k] / whole, exactly. The rest serves none."""

    parts: tuple[int, ...]
    whole: int


def shares(settings: DPBoostSettings, n_trees: int) -> Shares:
    """The shares of the trees of an ensemble of `n_trees`.

    dpboost      eta (1 - eta)^k / (1 - (1 - eta)^n), in proportion to how much the tree's leaves may say
    parallel     half of what is left
    sequential   everybody, in ensembles of one tree
    """
    if settings.protocol == "central.parallel":
        return Shares(tuple(2 ** (n_trees - 1 - k) for k in range(n_trees)), 2**n_trees)
    stays, of = (1 - Fraction(settings.learning_rate)).as_integer_ratio()
    parts = tuple(stays**k * of ** (n_trees - 1 - k) for k in range(n_trees))
    return Shares(parts, sum(parts))


def streams(settings: DPBoostSettings, random: RandomBytes) -> list[RandomBytes]:
    """A secret stream for each ensemble, from a seed of 32 bytes each; where everybody serves, none is needed."""
    if settings.protocol == "central.sequential":
        return [random] * len(settings.ensembles)
    return [SecureRandom.from_seed(random.bytes(32)) for _ in settings.ensembles]


def subsets(settings: DPBoostSettings, n_rows: int, n_trees: int, random: RandomBytes) -> list[RowIds]:
    """The rows of each tree of one ensemble, in the order of row numbers."""
    wanted = shares(settings, n_trees)
    if n_trees == 1 and wanted.parts[0] == wanted.whole:
        return [np.arange(n_rows, dtype=ROW_ID)]
    if settings.assignment == "independent":
        places = independent_places(wanted, n_rows, random)
    else:
        places = exact_places(exact_sizes(settings, wanted, n_rows), n_rows, random)
    small = np.uint16 if n_trees < 2**16 else np.int64  # numpy sorts 16-bit numbers in one pass
    order = np.argsort(places.astype(small), kind="stable").astype(ROW_ID)
    cuts = np.searchsorted(places[order], np.arange(n_trees + 1))
    return [order[start:stop] for start, stop in itertools.pairwise(cuts.tolist())]


def set_apart(settings: DPBoostSettings, n_rows: int, random: RandomBytes) -> Bools:
    """Which rows serve no tree but help to choose how many there are: each by a secret coin of its own.

    One row more or less moves no other to the other side, and what it holds has no say: one side or the other sees a
    difference, never both.
    """
    words = np.frombuffer(random.bytes(8 * n_rows), "<u8")
    limit = Fraction(settings.validation_fraction) * 2**64
    return words < np.uint64(int(limit))


def independent_places(wanted: Shares, n_rows: int, random: RandomBytes) -> Ints:
    """Each row's tree, or the number of trees for none, from one secret 64-bit word each: exact to 2^-64."""
    words = np.frombuffer(random.bytes(8 * n_rows), "<u8")
    limits = [(below << 64) // wanted.whole for below in itertools.accumulate(wanted.parts)]
    ends = np.array([max(limit, 1) - 1 for limit in limits], np.uint64)
    places: Ints = np.searchsorted(ends, words, side="left").astype(np.int64)
    return places


def exact_sizes(settings: DPBoostSettings, wanted: Shares, n_rows: int) -> list[int]:
    """floor(n w) rows per tree; for the parallel baseline floor(unused / 2)."""
    if settings.protocol != "central.parallel":
        return [n_rows * part // wanted.whole for part in wanted.parts]
    sizes: list[int] = []
    for _ in wanted.parts:
        sizes.append((n_rows - sum(sizes)) // 2)
    return sizes


def exact_places(sizes: Sequence[int], n_rows: int, random: RandomBytes) -> Ints:
    """Each row's tree when a random permutation of the rows is cut into these sizes."""
    permutation = np.argsort(np.frombuffer(random.bytes(8 * n_rows), "<u8"), kind="stable")
    places = np.full(n_rows, len(sizes), np.int64)
    places[permutation[: sum(sizes)]] = np.repeat(np.arange(len(sizes)), sizes)
    return places
