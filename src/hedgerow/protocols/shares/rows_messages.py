"""Messages of protocols in which nobody knows the rows of a node: everybody masks its columns, and shares by seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Public
from hedgerow.protocols.shares.messages import Hidden, SeedBytes, Words
from hedgerow.transport.frames import Int32s, Message, UInt8s
from hedgerow.transport.ranges import Free, Shape, Within

_COLUMNS = Free("n_all", at_least=1, at_most="most_columns")


@dataclass(frozen=True, slots=True)
class ColumnSizes(Message, name="vertical.shared_rows.column_sizes", version=1):
    """Label holder or feature holder to each other: how many bins each column has."""

    discloses = Exact("the number of bins of each column, and whether it has missing values")
    n_bins: Annotated[Int32s, Shape(_COLUMNS), Within(1, "max_bins")]  # of values
    has_missing: Annotated[UInt8s, Shape("n_all"), Within(0, 1)]


@dataclass(frozen=True, slots=True)
class AllColumns(Message, name="vertical.shared_rows.all_columns", version=1):
    """Label holder or feature holder to dealer: how much is to be dealt; the latter where noise is dealt too."""

    discloses = Exact("the numbers of rows, of everybody's columns and of their bins, and which columns have gaps")
    n_rows: Annotated[int, Within(1, "most_rows")]
    n_columns: Annotated[Int32s, Shape("n_holders"), Within(1, "most_columns")]
    n_bins: Annotated[Int32s, Shape(_COLUMNS), Within(1, "max_bins")]  # of all holders' columns
    has_missing: Annotated[UInt8s, Shape("n_all"), Within(0, 1)]


@dataclass(frozen=True, slots=True)
class SharingSeed(Message, name="vertical.shared_rows.sharing_seed", version=1):
    """Label holder or feature holder to each other: random bytes that make shares of what the sender will share."""

    discloses = Exact("random bytes that say nothing about data")
    seed: SeedBytes


@dataclass(frozen=True, slots=True)
class MaskedBins(Message, name="vertical.shared_rows.masked_bins", version=1):
    """Label holder or feature holder to each other: which values lie in each of some bins."""

    discloses = Hidden("the bin of every value of the sender's columns")
    words: Words


@dataclass(frozen=True, slots=True)
class LevelDone(Message, name="vertical.shared_rows.level_done", version=1):
    """Label holder to dealer: one more level is over, or was not needed."""

    discloses = Public("how far the training is")
