"""What a party brings to a closed scoring, whatever kind of part it has: bits of leaves, and words of their values.

A value v is entered as round(v 2**FRACTION_BITS), modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.engine.dtypes import Bytes
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Table
from hedgerow.errors import FixedPointOverflow
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, as_owner, partial_trees_of
from hedgerow.protocols.vertical.common.shared_parts import PartialTree, SharedLeavesPart, Words, all_indicators

FRACTION_BITS = 40
LARGEST_SCORE = 1 << 22
"""Of values that the label holder enters itself: what the leaves of all trees may add up to, without the base score."""

_NEVER_MISSING = 2  # an answer is 0 or 1


@dataclass(frozen=True, eq=False)
class Side:
    """One party's trees, words and rows."""

    trees: tuple[PartialTree, ...]
    leaves: tuple[Words, ...]  # by tree
    codes: Bytes  # [columns, rows]
    answering: OwnerPart | None = None  # who turns codes into the columns of the trees, if these are answers
    missing_codes: tuple[int, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows to score."""
        return int(self.codes.shape[1])

    def bits(self, rows: slice, n_outputs: int) -> list[Bytes]:
        """By output: which leaves own splits leave for each of some rows, uint8 [rows, leaves of its trees]."""
        codes, missing = self.codes[:, rows], self.missing_codes
        if self.answering is not None:
            codes = self.answering.answers(codes)
            missing = (_NEVER_MISSING,) * len(codes)
        return [all_indicators(self.trees[k::n_outputs], codes, missing) for k in range(n_outputs)]

    def values(self, n_outputs: int) -> list[Words]:
        """By output: this party's words of the values of all leaves of its trees."""
        none = np.zeros(0, np.uint64)
        return [np.concatenate([none, *self.leaves[k::n_outputs]]) for k in range(n_outputs)]

    def n_leaves(self, n_outputs: int) -> tuple[int, ...]:
        """By output: leaves of all its trees."""
        return tuple(sum(tree.n_leaves for tree in self.trees[k::n_outputs]) for k in range(n_outputs))


def shared_side(part: SharedLeavesPart, table: Table, n_threads: int) -> Side:
    """A party that has splits and shares of leaves."""
    return Side(part.trees, part.leaves, part.codes(table, n_threads), None, part.missing_codes)


def owner_side(part: OwnerPart, trees: Sequence[PartialTree], table: Table, n_threads: int) -> Side:
    """A feature holder that answers by handles, and was told where these stand; values are the label holder's."""
    nothing = tuple(np.zeros(tree.n_leaves, np.uint64) for tree in trees)
    return Side(tuple(trees), nothing, part.codes(table, n_threads), part)


def label_holder_side(part: LabelHolderPart, table: Table, n_threads: int) -> Side:
    """The label holder, with leaf values of its own."""
    trees = partial_trees_of(part)[part.party]
    return Side(trees, encoded_leaves(part.party, part.ensemble), part.codes(table, n_threads), as_owner(part)[0])


def encoded_leaves(party: str, ensemble: Ensemble) -> tuple[Words, ...]:
    """The leaf values of each tree as words; FixedPointOverflow if scores could leave the range."""
    values = [tree.value[tree.is_leaf].astype(np.float64) for tree in ensemble.trees]
    for k in range(ensemble.n_outputs):
        largest = sum(float(np.abs(leaves).max()) for leaves in values[k :: ensemble.n_outputs])
        if not largest < LARGEST_SCORE:
            raise FixedPointOverflow(
                f"{party}: leaf values may add up to {largest:.3g}, but closed scoring has room for scores below "
                f"{LARGEST_SCORE:.3g} only"
            )
    return tuple(np.rint(np.ldexp(leaves, FRACTION_BITS)).astype(np.int64).view(np.uint64) for leaves in values)
