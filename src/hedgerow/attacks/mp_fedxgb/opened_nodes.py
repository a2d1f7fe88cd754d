"""What MP-FedXGB's comparisons open about the nodes of a tree, node by node, and how far an attack on it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.engine.dtypes import Bools
from hedgerow.protocols.published.mp_fedxgb.comparisons import Round

T = TypeVar("T")


class Pair(NamedTuple):
    """One comparison: two candidates and the number that was opened about them."""

    first: int
    second: int
    value: int


@dataclass(frozen=True)
class OpenedNode:
    """All that was opened to one party about one node."""

    pairs: tuple[Pair, ...]
    winner: int
    test: int
    """About the winner and no split at all."""
    above: tuple[int, bool] | None = None
    """The node that it is a child of, by its place among those of the tree, and whether it is the left one."""


class OpenedLevel(NamedTuple):
    """The same as it comes: all nodes of a level, round by round."""

    rounds: Sequence[Round]
    numbers: Sequence[npt.NDArray[np.object_]]  # [nodes, pairs] of each round
    second_is_better: Sequence[Bools]  # [nodes, pairs] of each round: everybody is told
    tests: Sequence[int]  # [nodes]
    splits: Bools  # [nodes] whether the winner is better than no split


def nodes_of_tree(levels: Sequence[OpenedLevel], n_candidates: Sequence[int]) -> list[OpenedNode]:
    """Node by node, parents before children; there are so many candidates at each level."""
    found: list[OpenedNode] = []
    above: list[tuple[int, bool] | None] = [None]
    for level, n in zip(levels, n_candidates, strict=False):
        children: list[tuple[int, bool] | None] = []
        for k, parent in enumerate(above):
            left, pairs = np.arange(n), []
            for each, numbers, is_second in zip(level.rounds, level.numbers, level.second_is_better, strict=True):
                both = (left[each.first].tolist(), left[each.first + 1].tolist())
                pairs += [Pair(*pair) for pair in zip(*both, map(int, numbers[k]), strict=True)]
                left = left[each.winners(is_second[k])]
            if level.splits[k]:
                children += [(len(found), True), (len(found), False)]
            found.append(OpenedNode(tuple(pairs), int(left[0]), int(level.tests[k]), parent))
        above = children
    return found


def in_order(options: Sequence[Sequence[T]], fits: Callable[[T, T], bool]) -> list[tuple[T, ...]]:
    """Options of which one each can be chosen so that every one fits the one before; as they are, if none can."""
    left = [list(each) for each in options]
    for k in range(1, len(left)):
        left[k] = [one for one in left[k] if any(fits(before, one) for before in left[k - 1])]
    for k in range(len(left) - 1, 0, -1):
        left[k - 1] = [one for one in left[k - 1] if any(fits(one, after) for after in left[k])]
    return [tuple(each) for each in (left if all(left) else options)]


@dataclass(frozen=True)
class Outcome:
    """How much an attack found out, by its own account; whether it is right is another question."""

    n_opened: int
    """Numbers that it had to work on."""
    n_candidates: int
    """At all nodes together."""
    clear: int
    """Candidates with one possible left side."""
    two_sided: int
    """Candidates with two possible left sides, mostly left and right."""

    @property
    def has_nothing_to_work_on(self) -> bool:
        """Whether nothing was opened at all."""
        return self.n_opened == 0

    def verdict(self) -> str:
        """The outcome in words."""
        if self.has_nothing_to_work_on:
            return "Nothing was opened: there is nothing to work on."
        found = f"{self.clear:,} of {self.n_candidates:,} sums are clear, {self.two_sided:,} up to left and right"
        return f"{'ALARM: ' if self.clear + self.two_sided else ''}{self.n_opened:,} numbers were opened; {found}."


def outcome(nodes: Sequence[OpenedNode], sides: Sequence[Mapping[int, Sequence[object]]]) -> Outcome:
    """Of either attack, from what it found for each node."""
    n_candidates = sum(len({c for pair in node.pairs for c in pair[:2]} | {node.winner}) for node in nodes)
    sizes = [len(options) for found in sides for options in found.values()]
    n_opened = sum(len(node.pairs) + 1 for node in nodes)
    return Outcome(n_opened, n_candidates, sizes.count(1), sizes.count(2))
