"""Messages of every protocol on shares: to and from the dealer, and the rounds in which words are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from hedgerow.crypto.csprng import KEY_BYTES
from hedgerow.ledger import Disclosure, Exact, Public
from hedgerow.transport.frames import MAX_FRAME_BYTES, Int32s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Shape, Within

Words: TypeAlias = Annotated[UInt8s, Shape("n_bytes"), Anything()]
"""Words as bytes (`crypto.shares.as_bytes`), as many as the receiver expects; under masks they may be anything."""
SeedBytes: TypeAlias = Annotated[bytes, Shape(KEY_BYTES)]
Number: TypeAlias = Annotated[int, Within(0, MOST)]
"""Of a tree, level, round or step; the receiver compares it with the one that is due."""
_LANE_LENGTH = Free("lane_length", at_least=1, at_most=64)
_COLUMNS = Free("n_all", at_least=1, at_most="most_columns")


@dataclass(frozen=True, slots=True)
class Hidden(Disclosure):
    """Uniformly random to the receiver: it lacks a part of the mask, and every mask is used once."""

    PROTECTION: ClassVar[str] = "under a mask of which the receiver lacks a part"


class Revealed(Message, is_base=True):
    """Base of messages for `Mesh.reveal`: shares of a result, in `words`. Each class states what is learned from it."""

    __slots__ = ()

    words: UInt8s


@dataclass(frozen=True, slots=True)
class Seed(Message, name="vertical.on_shares.seed", version=1):
    """Label holder or feature holder to dealer: random bytes from which the two make the same words."""

    discloses = Exact("random bytes that say nothing about data, and that nobody else may know")
    seed: SeedBytes


@dataclass(frozen=True, slots=True)
class Dealt(Message, name="vertical.on_shares.dealt", version=1):
    """Dealer to label holder or feature holder: what makes its words shares of what was dealt in one step."""

    discloses = Hidden("products of masks, which say nothing about data")
    tree: Number
    level: Number
    lane: Annotated[str, Shape(_LANE_LENGTH)]
    step: Number
    # Empty where the receiver's words are its shares already; drawing on it finds a byte too many or too few.
    corrections: Annotated[UInt8s, Shape(Free("n_bytes", at_most=MAX_FRAME_BYTES)), Anything()]


@dataclass(frozen=True, slots=True)
class MaskedWords(Message, name="vertical.on_shares.masked_words", version=1):
    """Label holder or feature holder to each other: shares of masked words, which are opened so; one per round."""

    discloses = Hidden("what is computed from labels and columns on the way to a result")
    words: Words


# --- where nobody knows the rows of a node: everybody masks its columns, and shares by seeds -------------------------


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


ON_SHARES = (Seed, Dealt, MaskedWords)
SHARED_ROWS = (ColumnSizes, AllColumns, SharingSeed, MaskedBins, LevelDone)
"""What protocols declare together."""
