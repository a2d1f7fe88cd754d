"""The messages of vertical.secret_shared alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Public, Result
from hedgerow.protocols.shares.job import MOST_COLUMNS
from hedgerow.protocols.shares.messages import Hidden, Revealed, Words
from hedgerow.protocols.vertical.common.messages import MOST_CLASSES
from hedgerow.transport.frames import Int32s, Int64s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Index, Shape, Within


@dataclass(frozen=True, slots=True)
class ColumnShapes(Message, name="vertical.secret_shared.column_shapes", version=2):
    """Feature holder to label holder: how many bins, or levels, each column has."""

    discloses = Exact("the number of bins of each column, whether these are levels, and whether it has missing values")
    n_bins: Annotated[Int32s, Shape("n_columns"), Within(1, "max_bins")]  # of values
    has_missing: Annotated[UInt8s, Shape("n_columns"), Within(0, 1)]
    has_levels: Annotated[UInt8s, Shape("n_columns"), Within(0, 1)]


@dataclass(frozen=True, slots=True)
class Sizes(Message, name="vertical.secret_shared.sizes", version=2):
    """Label holder to feature holders and dealer: how much is to be dealt and compared.

    Numbers of columns, and of trees before, are told where columns are drawn or kept apart; else they are 0.
    """

    discloses = Exact(
        "the number of rows, of each feature holder the numbers of bins and of possible splits, how many classes there "
        "are, the sum of weights of rows, rounded up to a power of two, and, where columns are drawn or kept apart, "
        "everybody's number of columns and the number of earlier trees"
    )
    n_rows: Annotated[int, Within("least_rows", "most_rows")]
    bins: Annotated[Int64s, Shape("n_others"), Within(1, "most_bins")]  # rows of each feature holder's masked matrix
    candidates: Annotated[Int64s, Shape("n_others"), Within(1, "most_candidates")]
    n_classes: Annotated[int, Within(2, MOST_CLASSES)]  # 2 for a regression
    n_units: Annotated[int, Within(0, MOST)]  # as `shares.scales.Weighing` has it
    unit_exponent: Annotated[int, Within(-1100, 1100)]
    n_columns: Annotated[Int64s, Shape("n_holders"), Within(0, MOST_COLUMNS)]
    n_before: Annotated[int, Within(0, MOST)]


@dataclass(frozen=True, slots=True)
class MaskedColumns(Message, name="vertical.secret_shared.masked_columns", version=1):
    """Feature holder to label holder: which values lie in each of some bins."""

    discloses = Hidden("the bin of every value of the feature holder's columns")
    words: Words


@dataclass(frozen=True, slots=True)
class LevelInput(Message, name="vertical.secret_shared.level_input", version=1):
    """Label holder to feature holders: gradients and hessians of some nodes' rows, and which rows nodes have.

    A level may take several of these, if it is large.
    """

    discloses = Hidden("gradient and hessian of every row, and its node")
    sums: Words
    rows: Annotated[UInt8s, Shape("n_row_bytes"), Anything()]


@dataclass(frozen=True, slots=True)
class WinnerShare(Revealed, name="vertical.secret_shared.winner_share", version=1):
    """Label holder or feature holder to each other: shares of the handle of each node's winner, which is opened so."""

    discloses = Result("of each node whose split won, or that it is a leaf")
    words: Words


@dataclass(frozen=True, slots=True)
class WhichWay(Message, name="vertical.secret_shared.which_way", version=1):
    """Feature holder to label holder: which way the rows go in nodes that I won, and a number for each question."""

    discloses = Exact(
        "which of the node's rows the split sends left (others are masked), and whether it was asked before"
    )
    handles: Annotated[Int32s, Shape("n_won"), Index("n_handles")]
    hidden: Annotated[UInt8s, Shape("n_won", "n_bytes"), Anything()]  # sides of all rows under one-bit masks
    answers: Annotated[UInt8s, Shape("n_won", "n_bytes"), Anything()]


@dataclass(frozen=True, slots=True)
class NodesKept(Message, name="vertical.secret_shared.nodes_kept", version=1):
    """Label holder to feature holders: where leaves are limited, which nodes of the level split after all."""

    discloses = Result("which nodes of a level gain most, where there is room for some of them only")
    kept: Annotated[UInt8s, Shape("n_won"), Within(0, 1)]  # of the nodes that somebody's split won


@dataclass(frozen=True, slots=True)
class GroupsAsked(Message, name="vertical.secret_shared.groups_asked", version=1):
    """Label holder or feature holder to each other: with interaction constraints, what my splits rule out below them.

    A column stands for all that are in the same groups as it: the first of these.
    """

    discloses = Result("of each split that won, which of the public groups of columns hold its column")
    columns: Annotated[Int32s, Shape("n_won"), Index("n_columns")]


@dataclass(frozen=True, slots=True)
class LevelDone(Message, name="vertical.secret_shared.level_done", version=1):
    """Label holder to dealer: one more level is over, or was not needed."""

    discloses = Public("how far the training is")


ALL = (ColumnShapes, Sizes, MaskedColumns, LevelInput, WinnerShare, WhichWay, NodesKept, GroupsAsked, LevelDone)
