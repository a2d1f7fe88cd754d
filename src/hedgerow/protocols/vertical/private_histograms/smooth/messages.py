"""The messages of the policy smooth_then_trees alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hedgerow.ledger import Exact, Public, Randomised, Result
from hedgerow.protocols.vertical.on_shares.messages import Hidden, Words
from hedgerow.protocols.vertical.private_histograms.messages import NoisyInside
from hedgerow.transport.frames import Bools, Int32s, Int64s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Index, Shape, Within

MOST_LEVELS = 8
"""Of a tree: the ways of a row are a byte."""
LARGEST_VALUE = 1 << 30
"""Of an update, in units of scores."""
Name: TypeAlias = Annotated[str, Shape(Free("length", at_most=16))]
_LARGEST = 2**53  # whole numbers that a float holds
Sigma: TypeAlias = Annotated[float, Within(0, _LARGEST)]


@dataclass(frozen=True, slots=True)
class SmoothColumns(Message, name="vertical.private_histograms.smooth_columns", version=1):
    """Label holder or feature holder to each other: which columns of the public schema are mine."""

    discloses = Exact("which columns of the public schema the sender has")
    places: Annotated[Int32s, Shape(Free("n_own", at_least=1, at_most="most_columns")), Index("n_described")]


@dataclass(frozen=True, slots=True)
class SmoothRows(Message, name="vertical.private_histograms.smooth_rows", version=1):
    """Label holder to dealer: how many rows there are."""

    discloses = Exact("the number of rows")
    n_rows: Annotated[int, Within(1, "most_rows")]


@dataclass(frozen=True, slots=True)
class SmoothAsked(Message, name="vertical.private_histograms.smooth_asked", version=1):
    """Label holder to feature holders: the next question of the recipe (`private_boosting.requests.SumRequest`)."""

    discloses = Result("what the recipe has learned from noisy sums so far, as updates of scores")
    number: Annotated[int, Within(-1, MOST)]  # -1: that was the last one
    kind: Name
    sigma: Sigma
    features: Annotated[Int32s, Shape(Free("n_levels", at_most=MOST_LEVELS)), Index("n_columns")]
    goes_right: Annotated[UInt8s, Shape(Free("n_sides", at_most=MOST_LEVELS), 256), Within(0, 1)]
    update: Annotated[str, Shape(Free("update_length", at_most=16))]
    update_feature: Annotated[int, Index("n_columns", lowest=-1)]
    update_values: Annotated[
        Int64s, Shape(Free("n_values", at_most="most_values")), Within(-LARGEST_VALUE, LARGEST_VALUE)
    ]  # in units of scores
    bins: Annotated[UInt8s, Shape(Free("n_binned", at_most="n_columns"), 256), Anything()]  # start: that of each cell
    gradient_bits: Annotated[int, Within(0, 30)]  # gradients are in units of 2**-gradient_bits


@dataclass(frozen=True, slots=True)
class SmoothCounts(Message, name="vertical.private_histograms.smooth_counts", version=1):
    """Label holder or feature holder to each other: rows in each public cell of my columns, with noise of my own."""

    discloses = Randomised("the number of rows in each public cell of each of the sender's columns")
    counts: Annotated[Int64s, Shape("n_cells"), Within(-_LARGEST, _LARGEST)]


@dataclass(frozen=True, slots=True)
class SmoothAhead(Message, name="vertical.private_histograms.smooth_ahead", version=1):
    """Label holder to dealer: which sums are asked for next, so that it can work ahead."""

    discloses = Public("columns that follow from noisy sums and a public seed, and how much noise is wanted")
    kind: Name
    sigma: Sigma
    owners: Annotated[
        Int32s, Shape(Free("n_requests", 1, 1 << 16), Free("n_levels", at_most=MOST_LEVELS)), Index("n_holders")
    ]  # whose column it is
    bins: Annotated[Int32s, Shape(Free("n_asked", at_most=1 << 16)), Within(1, 256)]  # of the column: bin_sums alone
    starts: Annotated[Int32s, Shape("n_asked"), Within(0, "n_bins")]  # where they begin among all: bin_sums alone


@dataclass(frozen=True, slots=True)
class SmoothBins(Message, name="vertical.private_histograms.smooth_bins", version=1):
    """Label holder to dealer: how many bins the columns of each party have."""

    discloses = Result("the number of bins of each party, which follow from noisy counts")
    n_bins: Annotated[Int32s, Shape("n_holders"), Within(0, "most_bins")]  # rows of the masked matrices
    gradient_bits: Annotated[int, Within("coarsest", "finest")]


@dataclass(frozen=True, slots=True)
class SmoothSides(Message, name="vertical.private_histograms.smooth_sides", version=1):
    """Label holder or feature holder to each other: masked, which way my levels of a tree send each row."""

    discloses = Hidden("which way every row goes at the sender's levels of a tree, and what leaf values follow")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothPositives(Message, name="vertical.private_histograms.smooth_positives", version=1):
    """Label holder or feature holder to each other: shares of the noisy number of positive rows."""

    discloses = NoisyInside("the number of positive rows")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothBinSums(Message, name="vertical.private_histograms.smooth_bin_sums", version=1):
    """Label holder or feature holder to each other: shares of noisy sums over the bins of one column."""

    discloses = NoisyInside("sums of gradients in each bin of one column")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothLeafSums(Message, name="vertical.private_histograms.smooth_leaf_sums", version=1):
    """Label holder or feature holder to each other: shares of noisy sums over the leaves of a tree."""

    discloses = NoisyInside("sums of gradients and numbers of rows in each leaf of a tree")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothMean(Message, name="vertical.private_histograms.smooth_mean", version=1):
    """Label holder or feature holder to each other: shares of noisy sums over all rows."""

    discloses = NoisyInside("sums of gradients and of their slopes over all rows")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothQuestions(Message, name="vertical.private_histograms.smooth_questions", version=1):
    """Label holder to feature holder: what the model asks about your columns."""

    discloses = Result("splits by the feature holder's own columns, which follow from noisy sums")
    column: Annotated[Int32s, Shape(Free("n_splits")), Index("n_columns")]
    bin: Annotated[Int32s, Shape("n_splits"), Within(-1, 255)]  # last bin that goes left, -1 for a split by levels
    missing_left: Annotated[Bools, Shape("n_splits")]
    left_levels: Annotated[UInt8s, Shape("n_splits", 32), Anything()]  # one bit per level
