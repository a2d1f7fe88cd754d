"""The slow, obvious twin of protocols/vertical/private_histograms, and a look at what its parties have shares of.

`NaiveTrees` grows a tree from gradients of all rows as whole numbers: every split of every level is tried, and noise is
added to utilities if there is any. `watched` adds up the shares of all parties in a real run, and
writes down the noise that the dealer drew: with both, all that is released must be equal to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from hedgerow.crypto.shares import Array, Share
from hedgerow.engine.dtypes import Bools, Bytes, Ints
from hedgerow.protocols.shares.full_tree import FullTree
from hedgerow.protocols.shares.mesh import Mesh
from hedgerow.protocols.shares.messages import Revealed
from hedgerow.protocols.vertical.private_histograms.dealer import GrownDealing
from hedgerow.protocols.vertical.private_histograms.holder import LARGEST_STEP, Growing
from hedgerow.protocols.vertical.private_histograms.holding import Holding, signed


class Binned(NamedTuple):
    """One party's columns."""

    codes: Bytes  # [columns, rows]
    n_bins: Sequence[int]  # of values; the next code is that of a missing one
    gaps: Sequence[bool]  # which may have missing values


class Split(NamedTuple):
    """A possible split."""

    place: int  # of its owner among those who have data
    column: int  # among the owner's
    bin: int  # last one that goes left
    missing_left: bool


@dataclass
class NaiveTree:
    """A full tree: one split for each level, and its leaves."""

    splits: list[Split] = field(default_factory=list)
    leaf_rows: list[Bools] = field(default_factory=list)


@dataclass(frozen=True)
class NaiveTrees:
    """Everybody's columns, and public numbers."""

    parties: Sequence[Binned]
    depth: int

    def splits(self) -> list[Split]:
        """All possible ones, in the public order."""
        found = []
        for place, party in enumerate(self.parties):
            for column, (bins, gaps) in enumerate(zip(party.n_bins, party.gaps, strict=True)):
                found += [Split(place, column, b, False) for b in range(bins if gaps else bins - 1)]
                found += [Split(place, column, b, True) for b in range(bins - 1 if gaps else 0)]
        return found

    def goes_left(self, split: Split) -> Bools:
        """Which rows."""
        party = self.parties[split.place]
        codes = party.codes[split.column]
        left = codes <= split.bin
        if split.missing_left:
            left = left | (codes == party.n_bins[split.column])
        return np.asarray(left)

    def utility(self, gradients: Ints, level: Sequence[Bools], split: Split) -> int:
        """The sum over nodes of |G_L| + |G_R|, in units of gradients."""
        left = self.goes_left(split)
        return sum(abs(int(gradients[side].sum())) for rows in level for side in (rows & left, rows & ~left))

    def histogram(self, gradients: Ints, rows: Bools) -> Ints:
        """G of the bins of a node that have shares: all but a column's last, or all if it has gaps."""
        cells = [
            rows & (party.codes[column] == b)
            for party in self.parties
            for column, (bins, gaps) in enumerate(zip(party.n_bins, party.gaps, strict=True))
            for b in range(bins if gaps else bins - 1)
        ]
        return np.array([gradients[cell].sum() for cell in cells])

    def column_sums(self, gradients: Ints, rows: Bools, number: int) -> Ints:
        """G of all bins of one of all columns, the missing ones last."""
        columns = [(party, column) for party in self.parties for column in range(len(party.n_bins))]
        party, column = columns[number]
        n_codes = party.n_bins[column] + party.gaps[column]
        return np.array([gradients[rows & (party.codes[column] == b)].sum() for b in range(n_codes)])

    def grow(self, gradients: Ints, noises: Sequence[Ints] | None = None) -> NaiveTree:
        """A full tree; `noises` are added to the utilities of each level [splits]."""
        tree, level, splits = NaiveTree(), [np.ones(len(gradients), np.bool_)], self.splits()
        for depth in range(self.depth):
            utilities = [self.utility(gradients, level, split) for split in splits]
            if noises is not None:
                utilities = [u + int(noise) for u, noise in zip(utilities, noises[depth], strict=True)]
            best = splits[utilities.index(max(utilities))]
            tree.splits.append(best)
            level = self.divided(level, best)
        tree.leaf_rows = level
        return tree

    def divided(self, level: Sequence[Bools], split: Split) -> list[Bools]:
        """The rows of all children, left and right in turn."""
        left = self.goes_left(split)
        return [side for rows in level for side in (rows & left, rows & ~left)]


class LeafRule(NamedTuple):
    """What follows from the noisy sums of a leaf."""

    gradient_bits: int
    count_unit: int
    curvature: float
    lambda_int: int
    sigma: float
    learning_rate: float
    score_bits: int

    def value(self, gradient: int, count: int) -> int:
        """In units of 2**-score_bits; for scores that are far from their bound."""
        unit = 2.0**-self.gradient_bits
        rows = max(count / self.count_unit, 0.0)
        step = -(gradient * unit) / (rows * self.curvature + self.lambda_int + self.sigma * unit)
        step = min(max(step, -LARGEST_STEP), LARGEST_STEP)
        return math.trunc(self.learning_rate * step / 2.0**-self.score_bits)


@dataclass
class Watched:
    """Shares of all parties added up, in the order of the run, and the dealer's noise."""

    gradients: list[Array] = field(default_factory=list)  # of each tree
    histograms: list[Array] = field(default_factory=list)  # of gradients, of each level of each tree [nodes, bins]
    rows: list[Array] = field(default_factory=list)  # the vectors of all nodes of these [nodes, 2, rows]
    sums: list[tuple[type[Revealed], Array]] = field(default_factory=list)  # what noise was added to
    released: list[tuple[type[Revealed], Ints]] = field(default_factory=list)
    choice_noise: list[Ints] = field(default_factory=list)  # of each level of each tree
    gaussian: list[tuple[float, Ints]] = field(default_factory=list)  # sigma, and what was drawn


@contextmanager
def watched(n_parties: int) -> Iterator[Watched]:
    """All runs in memory meanwhile; one at a time."""
    seen, waiting = Watched(), _Waiting(n_parties)
    makes, sums, adds_noise, reveals = Growing.gradients, FullTree.sums, Holding.noisy, Mesh.reveal
    exact: dict[int, Array] = {}  # by the share of what has noise in it
    chooses, draws = GrownDealing.choice_noise, GrownDealing.gaussian

    def gradients(self: Growing) -> Array:
        words = makes(self)
        waiting.add(seen.gradients, "gradients", self.me.name, words)
        return words

    def histograms(self: FullTree) -> Array:
        words = sums(self)
        waiting.add(seen.histograms, "histograms", self.place, words)
        waiting.add(seen.rows, "rows", self.place, self.y)
        return words

    def noisy(self: Holding, words: Array, *rest: Any) -> Share:
        made = adds_noise(self, words, *rest)
        exact[id(made)] = words
        return made

    def reveal(self: Mesh, kind: type[Revealed], share: Share, *, event: Any) -> Array:
        words = exact.pop(id(share), None)
        if words is not None:
            waiting.add(seen.sums, "sums", self.me.name, words, kind)
        found = reveals(self, kind, share, event=event)
        if words is not None and self.me.name == self.holders[0]:
            seen.released.append((kind, signed(found)))
        return found

    def choice_noise(self: GrownDealing, shape: tuple[int, ...]) -> Ints:
        seen.choice_noise.append(chooses(self, shape))
        return seen.choice_noise[-1]

    def gaussian(self: GrownDealing, shape: tuple[int, ...], sigma: float) -> Ints:
        seen.gaussian.append((sigma, draws(self, shape, sigma)))
        return seen.gaussian[-1][1]

    with (
        patch.object(Growing, "gradients", gradients),
        patch.object(FullTree, "sums", histograms),
        patch.object(Holding, "noisy", noisy),
        patch.object(Mesh, "reveal", reveal),
        patch.object(GrownDealing, "choice_noise", choice_noise),
        patch.object(GrownDealing, "gaussian", gaussian),
    ):
        yield seen


class _Waiting:
    """Shares that wait for those of the other parties."""

    def __init__(self, n_parties: int) -> None:
        self._n_parties = n_parties
        self._words: dict[tuple[str, int], list[Array]] = {}
        self._turns: dict[tuple[str, Any], int] = {}

    def add(self, to: list[Any], what: str, party: Any, words: Array, name: object = None) -> None:
        """The last of the parties adds all up."""
        turn = self._turns[what, party] = self._turns.get((what, party), -1) + 1
        shares = self._words.setdefault((what, turn), [])
        shares.append(words.copy())
        if len(shares) == self._n_parties:
            total = np.sum(self._words.pop((what, turn)), axis=0, dtype=words.dtype).view(np.int32).astype(np.int64)
            to.append(total if name is None else (name, total))
