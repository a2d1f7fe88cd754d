"""Messages of protocols in which nobody knows the rows of a node: everybody masks its columns, and shares by seeds."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Public
from hedgerow.protocols.vertical.on_shares.messages import Hidden
from hedgerow.transport.frames import Int32s, Message, UInt8s


@dataclass(frozen=True, slots=True)
class ColumnSizes(Message, name="vertical.shared_rows.column_sizes", version=1):
    """Label holder or feature holder to each other: how many bins each column has."""

    discloses = Exact("the number of bins of each column, and whether it has missing values")
    n_bins: Int32s  # [columns] of values
    has_missing: UInt8s  # [columns]


@dataclass(frozen=True, slots=True)
class AllColumns(Message, name="vertical.shared_rows.all_columns", version=1):
    """Label holder or feature holder to dealer: how much is to be dealt; the latter where noise is dealt too."""

    discloses = Exact("the numbers of rows, of everybody's columns and of their bins, and which columns have gaps")
    n_rows: int
    n_columns: Int32s  # [holders]
    n_bins: Int32s  # [columns of all holders]
    has_missing: UInt8s


@dataclass(frozen=True, slots=True)
class SharingSeed(Message, name="vertical.shared_rows.sharing_seed", version=1):
    """Label holder or feature holder to each other: random bytes that make shares of what the sender will share."""

    discloses = Exact("random bytes that say nothing about data")
    seed: bytes


@dataclass(frozen=True, slots=True)
class MaskedBins(Message, name="vertical.shared_rows.masked_bins", version=1):
    """Label holder or feature holder to each other: which values lie in each of some bins."""

    discloses = Hidden("the bin of every value of the sender's columns")
    words: UInt8s


@dataclass(frozen=True, slots=True)
class LevelDone(Message, name="vertical.shared_rows.level_done", version=1):
    """Label holder to dealer: one more level is over, or was not needed."""

    discloses = Public("how far the training is")
