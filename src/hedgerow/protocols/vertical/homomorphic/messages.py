"""The messages of vertical.homomorphic, in the order in which they are first sent.

What is encrypted is words, as many as the scheme says (`crypto.additive`). Any words may come; those that are no
ciphertexts or no keys are refused where they are read, by the scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hedgerow.ledger import Encrypted, Exact, Public, Randomised, Result
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Bools, Int32s, Message, UInt8s, UInt64s
from hedgerow.transport.ranges import Anything, Free, Index, Shape, Within

N_SPLITS = Free("n_splits", 1, "most_splits")
FirstRow: TypeAlias = Annotated[int, Within("first_row", "first_row")]


@dataclass(frozen=True, slots=True)
class PublicKey(Message, name="vertical.homomorphic.public_key", version=1):
    """Label holder to feature holders: the public key of a run, where the scheme has one."""

    discloses = Public("a public key")
    words: Annotated[UInt64s, Shape("n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class RowPoints(Message, name="vertical.homomorphic.row_points", version=1):
    """Label holder to feature holders: random points of some rows."""

    discloses = Public("random points")
    first_row: FirstRow
    words: Annotated[UInt64s, Shape("n_block", "n_words"), Anything()]


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
    words: Annotated[UInt64s, Shape("n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class EncryptedRows(Message, name="vertical.homomorphic.encrypted_rows", version=1):
    """Label holder to feature holders: gradient and hessian of some rows."""

    discloses = Encrypted("gradient and hessian of every row")
    first_row: FirstRow
    words: Annotated[UInt64s, Shape("n_block", "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class NodeTotals(Message, name="vertical.homomorphic.node_totals", version=1):
    """Label holder to feature holders: the sums over each node that is to be summed."""

    discloses = Encrypted("sums of gradients and hessians of nodes")
    words: Annotated[UInt64s, Shape("n_summed", "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class EncryptedSums(Message, name="vertical.homomorphic.encrypted_sums", version=1):
    """Feature holder to label holder: per node, column (in this tree's order) and bin the sum over its rows."""

    discloses = Exact("the sums of gradients and hessians of every bin of the feature holder's columns in every node")
    words: Annotated[UInt64s, Shape("n_ciphertexts", "n_words"), Anything()]


@dataclass(frozen=True, slots=True)
class BinCounts(Message, name="vertical.homomorphic.bin_counts", version=1):
    """Feature holder to label holder: with min_samples_leaf, of each such sum, how many rows it is over."""

    discloses = Exact("how many rows there are in every bin of the feature holder's columns in every node")
    counts: Annotated[Int32s, Shape("n_summed", "n_sums"), Within(0, "n_rows")]


@dataclass(frozen=True, slots=True)
class CountedRows(Message, name="vertical.homomorphic.counted_rows", version=1):
    """Label holder to feature holders: which rows count, once, where numbers of rows decide something.

    One bit for each row that is watched, or none without early stopping.
    """

    discloses = Exact("which rows are watched for early stopping, and how many trees an earlier model has")
    n_earlier: Annotated[int, Within(0, messages.MOST_TREES)]
    watched: Annotated[UInt8s, Shape("n_watched_bytes"), Anything()]


@dataclass(frozen=True, slots=True)
class NoisySums(Message, name="vertical.homomorphic.noisy_sums", version=1):
    """Feature holder to label holder: the same with noise inside, where the job has dp."""

    discloses = Randomised("the sums of gradients and hessians of every bin of the feature holder's columns in nodes")
    words: Annotated[UInt64s, Shape("n_ciphertexts", "n_words"), Anything()]


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
