"""The messages of vertical.homomorphic, in the order in which they are first sent. A point is 8 words, or 4 compressed.

Points are checked where they are read (`crypto.elgamal`): any words may come, and those that are no points are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hedgerow.ledger import Encrypted, Exact, Public, Result
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Bools, Int32s, Message, UInt8s, UInt64s
from hedgerow.transport.ranges import Anything, Free, Index, Shape, Within

KEYS = 2
"""Of a tree: for gradients and for hessians."""
WIDTH = 1 + KEYS
"""Points of a whole ciphertext."""

N_SPLITS = Free("n_splits", 1, "most_splits")
FirstRow: TypeAlias = Annotated[int, Within("first_row", "first_row")]


@dataclass(frozen=True, slots=True)
class RowPoints(Message, name="vertical.homomorphic.row_points", version=1):
    """Label holder to feature holders: r G of some rows, r random."""

    discloses = Public("random points")
    first_row: FirstRow
    points: Annotated[UInt64s, Shape("n_block", "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class ColumnOrder(Message, name="vertical.homomorphic.column_order", version=1):
    """Feature holder to label holder: what its columns are like, in an order that is drawn anew for every tree."""

    discloses = Exact("how many bins each of the feature holder's columns has, and whether they are levels")
    n_bins: Annotated[Int32s, Shape("n_columns"), Within(0, 255)]  # without the one for missing values
    is_categorical: Annotated[Bools, Shape("n_columns"), Anything()]


@dataclass(frozen=True, slots=True)
class TreeKeys(Message, name="vertical.homomorphic.tree_keys", version=1):
    """Label holder to feature holders: the public keys of a tree."""

    discloses = Public("public keys")
    keys: Annotated[UInt64s, Shape(KEYS, "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class EncryptedRows(Message, name="vertical.homomorphic.encrypted_rows", version=1):
    """Label holder to feature holders: gradient and hessian of some rows."""

    discloses = Encrypted("gradient and hessian of every row")
    first_row: FirstRow
    points: Annotated[UInt64s, Shape("n_block", KEYS, "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class NodeTotals(Message, name="vertical.homomorphic.node_totals", version=1):
    """Label holder to feature holders: the sums over each node that is to be summed."""

    discloses = Encrypted("sums of gradients and hessians of nodes")
    points: Annotated[UInt64s, Shape("n_summed", WIDTH, "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class EncryptedSums(Message, name="vertical.homomorphic.encrypted_sums", version=1):
    """Feature holder to label holder: per node, column (in this tree's order) and bin the sum over its rows."""

    discloses = Exact("the sums of gradients and hessians of every bin of the feature holder's columns in every node")
    points: Annotated[UInt64s, Shape("n_sums", WIDTH, "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class Winners(messages.Winners, Message, name="vertical.homomorphic.winners", version=1):
    """Label holder to feature holder: what becomes of each node."""


@dataclass(frozen=True, slots=True)
class YourSplits(Message, name="vertical.homomorphic.your_splits", version=1):
    """Label holder to feature holder: the splits that won, by nodes; of equally good ones the owner takes the first."""

    discloses = Result("by which of the receiver's columns its nodes split, and how")
    node: Annotated[Int32s, Shape(N_SPLITS), Index("n_nodes")]
    place: Annotated[Int32s, Shape(N_SPLITS), Index("n_columns")]  # in this tree's order
    bin: Annotated[Int32s, Shape(N_SPLITS), Within(-1, 255)]  # the last that goes left; -1: by levels
    missing_left: Annotated[Bools, Shape(N_SPLITS), Anything()]
    goes_left: Annotated[UInt8s, Shape(N_SPLITS, 32), Anything()]  # one bit per code


@dataclass(frozen=True, slots=True)
class WhichWay(messages.WhichWay, Message, name="vertical.homomorphic.which_way", version=1):
    """Feature holder to label holder: the rows of nodes that I won, and a number for each question."""


@dataclass(frozen=True, slots=True)
class Partition(messages.Partition, Message, name="vertical.homomorphic.partition", version=1):
    """Label holder to feature holder: the sides of all rows of this level."""
