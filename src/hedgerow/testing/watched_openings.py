"""What parties get to know in a run of vertical.mp_fedxgb: their own shares put together with those they received.

    with watched() as seen:
        play(PROTOCOL, job, data)
    nodes = opened_nodes(seen.openings["ben"], NUMERATORS, tree=0, plan=plan)      as `attacks.argmax_opened` has them

Shares of others are on the wire; a party's own are in its memory alone, so we look there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.opened_nodes import OpenedLevel, OpenedNode, nodes_of_tree
from hedgerow.crypto import limbs
from hedgerow.crypto.shares import Array, Share
from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.protocols.protocol import PartyData
from hedgerow.protocols.vertical.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.vertical.mp_fedxgb.labels import Labels
from hedgerow.protocols.vertical.mp_fedxgb.messages import (
    DenominatorShare,
    NumeratorShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.vertical.mp_fedxgb.openings import Openings
from hedgerow.protocols.vertical.mp_fedxgb.plan import Plan
from hedgerow.protocols.vertical.on_shares.columns import OneHotColumns

NUMERATORS: tuple[type[Any], type[Any]] = (NumeratorShare, TestNumeratorShare)
"""What P2 opens."""
DENOMINATORS: tuple[type[Any], type[Any]] = (DenominatorShare, TestDenominatorShare)
"""What P1 opens."""


class Seen(NamedTuple):
    """One opening to a party, or the bits by which all learn what it says."""

    kind: type[Any] | None  # None for bits
    fields: dict[str, int]
    words: Array


@dataclass
class Watched:
    """Of all parties that run meanwhile."""

    openings: dict[str, list[Seen]] = field(default_factory=dict)
    gradients: list[Ints] = field(default_factory=list)
    """The label holder's, of each tree: gradients and hessians [2, rows]."""

    def opened(self, party: str, kind: type[Any], tree: int) -> list[Array]:
        """All openings of a kind to a party, of one tree."""
        return [seen.words for seen in self.openings[party] if seen.kind is kind and seen.fields["tree"] == tree]


@contextmanager
def watched() -> Iterator[Watched]:
    """Openings by party, in order, and the label holder's gradients."""
    seen = Watched()
    opens, tells, makes = Openings.to, Openings.signs, Labels.gradients

    def to(self: Openings, receiver: str, share: Share, kind: type[Any], **fields: int) -> Array | None:
        value = opens(self, receiver, share, kind, **fields)
        if value is not None:
            seen.openings.setdefault(receiver, []).append(Seen(kind, fields, np.array(value)))
        return value

    def signs(
        self: Openings, numerators: Array | None, denominators: Array | None, n: int, judge: Callable[[Array], Bools]
    ) -> Bools:
        bits = tells(self, numerators, denominators, n, judge)
        seen.openings.setdefault(self._me.name, []).append(Seen(None, {}, np.array(bits)))
        return bits

    def gradients(self: Labels) -> Array:
        words = makes(self)
        signed = np.int32 if words.dtype == np.uint32 else np.int64
        seen.gradients.append(words.view(signed).astype(np.int64))
        return words

    with (
        patch.object(Openings, "to", to),
        patch.object(Openings, "signs", signs),
        patch.object(Labels, "gradients", gradients),
    ):
        yield seen


def opened_nodes(seen: list[Seen], kinds: tuple[type[Any], type[Any]], tree: int, plan: Plan) -> list[OpenedNode]:
    """The comparisons of a tree, node by node, as NUMERATORS or DENOMINATORS."""
    levels: list[OpenedLevel] = []
    numbers: list[npt.NDArray[np.object_]] = []
    better: list[Bools] = []
    bits = iter([each.words for each in seen if each.kind is None])
    for what in seen:
        if what.kind not in kinds:
            continue
        opened, answer = limbs.to_ints(what.words), next(bits)
        if what.fields["tree"] != tree:
            continue
        if what.kind is kinds[0]:
            numbers.append(opened)
            better.append(answer.reshape(opened.shape))
        else:
            levels.append(OpenedLevel(plan.rounds(what.fields["level"]), numbers, better, opened.tolist(), answer))
            numbers, better = [], []
    return nodes_of_tree(levels, [plan.n_candidates(level) for level in range(plan.depth)])


@dataclass(frozen=True)
class Columns:
    """Everybody's columns. A party knows the plan, the lists of candidates, and `goes_left` of its own ones."""

    plan: Plan
    candidates: list[list[int]]
    """Whose left sides grow: of each column those with missing values at the right, then at the left."""
    goes_left: Mapping[int, Bools]

    @classmethod
    def of(cls, job: MpFedXgbJob, data: Mapping[str, PartyData]) -> Columns:
        """As the parties of a job bin them."""
        holders = [OneHotColumns(name, job, data[name]) for name in job.holders]
        n_rows = holders[0].codes.shape[1]
        plan = Plan.of(job, n_rows, [tuple(each.n_bins) for each in holders], [tuple(each.gaps) for each in holders])
        lists: dict[tuple[int, int, bool], list[int]] = {}
        goes_left: dict[int, Bools] = {}
        for place, each in enumerate(holders):
            for cut, (column, at_left) in enumerate(zip(each.cuts.column, each.cuts.missing_left, strict=True)):
                number = int(plan.first_cut[place]) + cut
                lists.setdefault((place, int(column), bool(at_left)), []).append(number)
                goes_left[number] = np.unpackbits(each.goes_left(cut), count=n_rows).astype(np.bool_)
        return cls(plan, list(lists.values()), goes_left)

    def of_party(self, place: int) -> dict[int, Bools]:
        """Where the candidates of one holder send all rows."""
        return {cut: left for cut, left in self.goes_left.items() if self.plan.owner_of_cut[cut] == place}

    def rows_of(self, nodes: list[OpenedNode]) -> list[Bools]:
        """The rows of each node, which nobody but P1 knows."""
        rows: list[Bools] = []
        for node in nodes:
            if node.above is None:
                rows.append(np.ones(self.plan.n_rows, np.bool_))
            else:
                left = self.goes_left[nodes[node.above[0]].winner]
                rows.append(rows[node.above[0]] & (left if node.above[1] else ~left))
        return rows
