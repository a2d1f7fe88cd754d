"""Which columns the nodes of a tree may split on: drawn from the public seed, or kept apart by public groups.

All parties know the numbers of everybody's columns then, and draw alike. A possible split that a node may not have
stays in the tournament, with nothing on its left side: it gains nothing, and what is dealt and compared is the same.

Groups that may interact are public too, and which of them hold the column of a split that has won is told to all:
columns that are in the same groups are not told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hedgerow.engine.dtypes import Bools, Int32s, Ints
from hedgerow.protocols.vertical.common.drawing import ColumnRules
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.shape import Shape


class AllowedColumns(ColumnRules):
    """Of one tree after the other; columns are numbered over all holders, the label holder's first."""

    def __init__(self, job: SecretSharedJob, shape: Shape) -> None:
        trees, counts = job.boosting, dict(zip(job.holders, shape.n_columns, strict=True))
        super().__init__(job.NAME, trees, counts)
        self._holders, self._n_before = job.holders, shape.n_before
        self.are_apart = trees.interaction is not None
        if trees.interaction is not None:
            groups = self._in_our_order(job, trees.interaction)
            super().__init__(job.NAME, replace(trees, interaction=groups), counts)
            holding = [tuple(column in group for group in groups) for column in range(self.n_all)]
            self._standing_for = np.array([holding.index(groups_of) for groups_of in holding], np.int32)

    def _in_our_order(self, job: SecretSharedJob, groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Groups over the columns of all parties in the job's order, by our numbers."""
        ours = np.concatenate([self.first(party) + np.arange(self.n_columns[party]) for party in job.parties])
        return tuple(tuple(ours[list(group)].tolist()) for group in groups)

    def begin_tree(self, number: int) -> None:
        """The draws of a tree of this training."""
        super().begin_tree(self._n_before + number)

    def cuts_of(self, place: int, columns: Ints) -> Bools:
        """Of splits by these columns of a holder, which nodes of the level may have: [nodes or 1, splits]."""
        return self.allowed(self._holders[place])[:, columns]

    def told(self, place: int, columns: Ints) -> Int32s:
        """The first columns of all that are in the same groups as these of a holder."""
        return self._standing_for[self.first(self._holders[place]) + columns]
