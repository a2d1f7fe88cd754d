"""The messages of vertical.secret_shared alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Public, Result
from hedgerow.protocols.shares.messages import Hidden, Revealed, Words
from hedgerow.transport.frames import Int32s, Int64s, Message, UInt8s
from hedgerow.transport.ranges import Anything, Index, Shape, Within


@dataclass(frozen=True, slots=True)
class ColumnShapes(Message, name="vertical.secret_shared.column_shapes", version=1):
    """Feature holder to label holder: how many bins each column has."""

    discloses = Exact("the number of bins of each column, and whether it has missing values")
    n_bins: Annotated[Int32s, Shape("n_columns"), Within(1, "max_bins")]  # of values
    has_missing: Annotated[UInt8s, Shape("n_columns"), Within(0, 1)]


@dataclass(frozen=True, slots=True)
class Sizes(Message, name="vertical.secret_shared.sizes", version=1):
    """Label holder to feature holders and dealer: how much is to be dealt and compared."""

    discloses = Exact("the number of rows, and of each feature holder the numbers of bins and of possible splits")
    n_rows: Annotated[int, Within("least_rows", "most_rows")]
    bins: Annotated[Int64s, Shape("n_others"), Within(1, "most_bins")]  # rows of each feature holder's masked matrix
    candidates: Annotated[Int64s, Shape("n_others"), Within(1, "most_candidates")]


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
class LevelDone(Message, name="vertical.secret_shared.level_done", version=1):
    """Label holder to dealer: one more level is over, or was not needed."""

    discloses = Public("how far the training is")


ALL = (ColumnShapes, Sizes, MaskedColumns, LevelInput, WinnerShare, WhichWay, LevelDone)
