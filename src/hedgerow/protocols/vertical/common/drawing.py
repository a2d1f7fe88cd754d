"""What all parties can repeat for themselves, because it follows from the job: draws of rows and of columns, and rules.

    RowDraw        by iteration: the rows that trees are grown by. All others, rows that are watched among them, walk
                   down the trees as well, without being counted
    ColumnRules    by tree and level: what nodes may ask about, of whichever party; and the signs of monotone columns

Columns go by their numbers among those of all parties, in the order of the parties, as in one table. What nodes may ask
about depends on the splits above them only where columns have constraints: then who compares splits must know by which
column each is, and tell whoever looks for splits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hedgerow.engine.dtypes import ROW_ID, Bools, Ints
from hedgerow.engine.feature_choice import FeatureChoice
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.rows import sampled_rows
from hedgerow.errors import InvalidParameter


class RowDraw:
    """The rows that are learned from, and of these the ones drawn for an iteration, as one table of them draws."""

    def __init__(self, rules: BoostingParams, n_rows: int, watched: Bools | None = None) -> None:
        self._rules, self.n_rows, self._learned = rules, n_rows, None if watched is None else ~watched
        self.learned: slice | Ints = slice(None) if watched is None else np.flatnonzero(~watched)
        """What is learned from, to index rows with."""
        self.n_learned = n_rows if self._learned is None else int(self._learned.sum())

    def for_iteration(self, iteration: int) -> Bools | None:
        """Which rows count; None: all."""
        if self._rules.subsample == 1.0:
            return self._learned
        threshold = np.uint64(min(int(self._rules.subsample * 2.0**64), 2**64 - 1))
        which = (np.uint64(self._rules.seed), np.uint64(iteration), threshold)
        drawn, all_rows = np.empty(self.n_learned, ROW_ID), (np.array([0]), np.array([self.n_learned]), np.array([0]))
        n_drawn = sampled_rows(*which, *all_rows, drawn)
        counted = np.zeros(self.n_rows, np.bool_)
        counted[np.arange(self.n_rows)[self.learned][drawn[:n_drawn]]] = True
        return counted


class ColumnRules:
    """What is drawn and allowed among the columns of all parties, and which of them are whose."""

    def __init__(self, protocol: str, rules: BoostingParams, n_columns: Mapping[str, int]) -> None:
        """`n_columns` by party, in their order; of parties whose columns do not matter here, several in one number."""
        self._rules, self.n_columns = rules, dict(n_columns)
        self.n_all = sum(n_columns.values())
        ends = np.cumsum(list(n_columns.values())).tolist()
        self._first = {party: end - n for (party, n), end in zip(n_columns.items(), ends, strict=True)}
        if rules.monotone is not None and len(rules.monotone) != self.n_all:
            raise InvalidParameter(
                f"{protocol}: monotonic_cst is for {len(rules.monotone)} columns, but the parties have {self.n_all}"
            )
        largest = max((column for group in rules.interaction or () for column in group), default=0)
        if largest >= self.n_all:
            raise InvalidParameter(
                f"{protocol}: interaction_cst names column {largest}, but the parties have {self.n_all}"
            )
        self._monotone = np.array(rules.monotone or [0] * self.n_all, np.int64)

    @staticmethod
    def matter(rules: BoostingParams) -> bool:
        """Whether it matters at all which column is which."""
        drawn = min(rules.colsample_bytree, rules.colsample_bylevel, rules.colsample_bynode) < 1.0
        return drawn or ColumnRules.follow_splits(rules)

    @staticmethod
    def follow_splits(rules: BoostingParams) -> bool:
        """Whether what happens below a split depends on its column."""
        return rules.monotone is not None or rules.interaction is not None

    def first(self, party: str) -> int:
        """The number of a party's first column."""
        return self._first[party]

    def begin_tree(self, number: int) -> None:
        """The draws of a tree, by its number among all trees."""
        self._choice = FeatureChoice(self._rules, self.n_all, number)

    def begin_level(self, n_nodes: int) -> None:
        """The draws of the next level."""
        self._allowed = self._choice.for_nodes(n_nodes)

    def allowed(self, party: str) -> Bools:
        """The columns of a party that nodes of the level may ask about: [nodes, columns], or [1, columns]."""
        first = self._first[party]
        return np.ascontiguousarray(self._allowed[:, first : first + self.n_columns[party]])

    def signs(self, party: str) -> Ints:
        """Of the monotone columns of a party; empty if there are none in the job."""
        first = self._first[party]
        own: Ints = self._monotone[first : first + self.n_columns[party]]
        return own if self._rules.monotone is not None else own[:0]

    def split(self, columns: Ints) -> Ints:
        """By which column each node of the level was split, -1 for a leaf. Returns the signs of these columns."""
        self._choice.split(columns)
        signs: Ints = np.where(columns >= 0, self._monotone[columns], 0)
        return signs
