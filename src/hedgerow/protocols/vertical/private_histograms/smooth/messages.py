"""The messages of the policy smooth_then_trees alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Public, Randomised, Result
from hedgerow.protocols.vertical.on_shares.messages import Hidden, Words
from hedgerow.protocols.vertical.private_histograms.messages import NoisyInside
from hedgerow.transport.frames import Bools, Int32s, Int64s, Message, UInt8s


@dataclass(frozen=True, slots=True)
class SmoothColumns(Message, name="vertical.private_histograms.smooth_columns", version=1):
    """Label holder or feature holder to each other: which columns of the public schema are mine."""

    discloses = Exact("which columns of the public schema the sender has")
    places: Int32s  # [columns] in the schema


@dataclass(frozen=True, slots=True)
class SmoothRows(Message, name="vertical.private_histograms.smooth_rows", version=1):
    """Label holder to dealer: how many rows there are."""

    discloses = Exact("the number of rows")
    n_rows: int


@dataclass(frozen=True, slots=True)
class SmoothAsked(Message, name="vertical.private_histograms.smooth_asked", version=1):
    """Label holder to feature holders: the next question of the recipe (`private_boosting.requests.SumRequest`)."""

    discloses = Result("what the recipe has learned from noisy sums so far, as updates of scores")
    number: int  # -1: that was the last one
    kind: str
    sigma: float
    features: Int32s
    goes_right: UInt8s  # [levels, 256]
    update: str
    update_feature: int
    update_values: Int64s  # in units of scores
    bins: UInt8s  # start: [columns, 256], the bin of each cell
    gradient_bits: int  # gradients are in units of 2**-gradient_bits


@dataclass(frozen=True, slots=True)
class SmoothCounts(Message, name="vertical.private_histograms.smooth_counts", version=1):
    """Label holder or feature holder to each other: rows in each public cell of my columns, with noise of my own."""

    discloses = Randomised("the number of rows in each public cell of each of the sender's columns")
    counts: Int64s


@dataclass(frozen=True, slots=True)
class SmoothAhead(Message, name="vertical.private_histograms.smooth_ahead", version=1):
    """Label holder to dealer: which sums are asked for next, so that it can work ahead."""

    discloses = Public("columns that follow from noisy sums and a public seed, and how much noise is wanted")
    kind: str
    sigma: float
    owners: Int32s  # [requests, levels] whose column it is
    bins: Int32s  # [requests] bins of the column: bin_sums alone
    starts: Int32s  # [requests] where its bins begin among all: bin_sums alone


@dataclass(frozen=True, slots=True)
class SmoothBins(Message, name="vertical.private_histograms.smooth_bins", version=1):
    """Label holder to dealer: how many bins the columns of each party have."""

    discloses = Result("the number of bins of each party, which follow from noisy counts")
    n_bins: Int32s  # [holders] rows of the masked matrices
    gradient_bits: int


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
    column: Int32s
    bin: Int32s  # last bin that goes left, -1 for a split by levels
    missing_left: Bools
    left_levels: UInt8s  # [splits, 32] one bit per level
