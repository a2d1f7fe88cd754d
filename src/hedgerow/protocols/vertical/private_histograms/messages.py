"""The messages of vertical.private_histograms alone: first those of grown trees, then those of smooth_then_trees.

Each in the order in which they are first sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from hedgerow.ledger import Disclosure, Exact, Randomised, Result
from hedgerow.protocols.shares.messages import Hidden, Revealed, Words
from hedgerow.transport.frames import Bools, Int32s, Int64s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Index, Shape, Within

LARGEST_VALUE = 1 << 30
"""Of an update, in units of scores."""
_LARGEST_COUNT = 2**53  # whole numbers that a float holds


@dataclass(frozen=True, slots=True)
class NoisyInside(Disclosure):
    """Noise that only the dealer knows was added on shares: what all learn of one row is what the budget allows."""

    PROTECTION: ClassVar[str] = "with noise inside the shares; the event in the ledger says how much"


@dataclass(frozen=True, slots=True)
class CountedColumns(Message, name="vertical.private_histograms.counted_columns", version=1):
    """Label holder or feature holder to each other: of how many columns the bins follow from noisy counts."""

    discloses = Randomised("how many bins, told next, its columns have: they follow from counts with noise of its own")
    n_counted: Annotated[int, Within(0, "most_columns")]


@dataclass(frozen=True, slots=True)
class StartShare(Revealed, name="vertical.private_histograms.start_share", version=1):
    """Label holder or feature holder to each other: shares of the noisy number of positive rows."""

    discloses = NoisyInside("the number of positive rows")
    words: Words


@dataclass(frozen=True, slots=True)
class WinnerShare(Revealed, name="vertical.private_histograms.winner_share", version=1):
    """Label holder or feature holder to each other: shares of the handle of a level's noisy winner."""

    discloses = NoisyInside("whose split won a level, and its handle, which says nothing to others")
    words: Words


@dataclass(frozen=True, slots=True)
class HistogramShare(Revealed, name="vertical.private_histograms.histogram_share", version=1):
    """Label holder or feature holder to each other: shares of noisy histograms of some columns at all nodes."""

    discloses = NoisyInside("sums of gradients in each bin of some columns at each node")
    words: Words


@dataclass(frozen=True, slots=True)
class LeafShare(Revealed, name="vertical.private_histograms.leaf_share", version=1):
    """Label holder or feature holder to each other: shares of noisy sums of the leaves of a tree."""

    discloses = NoisyInside("sums of gradients and numbers of rows in each leaf")
    words: Words


@dataclass(frozen=True, slots=True)
class Chosen(Message, name="vertical.private_histograms.chosen", version=1):
    """Label holder to feature holders: what follows from the noisy sums."""

    discloses = Result("columns, splits, leaf values and the first score, which follow from what all know")
    values: Annotated[Int64s, Shape("n_values"), Within("lowest", "highest")]


# --- attempts after the first, with either policy --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReleasesBegun(Message, name="vertical.private_histograms.releases_begun", version=1):
    """Label holder or feature holder to each other: what earlier attempts of the run have released, or were about to.

    Before anything is released in a later attempt. All count with the largest numbers that anybody has kept.
    """

    discloses = Exact("how often each of the releases of a run was begun in earlier attempts")
    counts: Annotated[Int64s, Shape("n_releases"), Within(0, MOST)]


@dataclass(frozen=True, slots=True)
class StepsThatFit(Message, name="vertical.private_histograms.steps_that_fit", version=1):
    """Label holder to dealer: how many trees, or requests, the run will have, with those of earlier attempts."""

    discloses = Exact("how many trees the budget has room for, which follows from where earlier attempts broke off")
    n_steps: Annotated[int, Within("least", "most")]


# --- smooth_then_trees -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SmoothColumns(Message, name="vertical.private_histograms.smooth_columns", version=1):
    """Label holder or feature holder to each other: which columns of the public schema are mine."""

    discloses = Exact("which columns of the public schema the sender has")
    places: Annotated[Int32s, Shape(Free("n_columns", 1, "most_columns")), Index("n_described")]  # in the schema


@dataclass(frozen=True, slots=True)
class SmoothSizes(Message, name="vertical.private_histograms.smooth_sizes", version=1):
    """Label holder or feature holder to dealer: all that it needs to know, from everybody, so that nobody can lie."""

    discloses = Exact("the number of rows, and who has which columns of the public schema")
    n_rows: Annotated[int, Within(1, "most_rows")]
    n_columns: Annotated[Int32s, Shape("n_holders"), Within(1, "most_columns")]
    places: Annotated[Int32s, Shape(Free("n_places", 1)), Index("n_described")]  # in the schema, of all columns


@dataclass(frozen=True, slots=True)
class SmoothAsked(Message, name="vertical.private_histograms.smooth_asked", version=2):
    """Label holder to feature holders: what the next question of the recipe is about, as far as the schedule is open.

    Its kind, its noise and the columns of sums of bins follow from the job (`schedule`), and are not asked for.
    """

    discloses = Result("what the recipe has learned from noisy sums so far, as updates of scores")
    number: Annotated[int, Within("due", "due")]
    features: Annotated[Int32s, Shape("n_levels"), Index("n_columns")]  # of the levels of a tree
    goes_right: Annotated[UInt8s, Shape("n_levels", 256), Within(0, 1)]
    update_values: Annotated[Int64s, Shape("n_values"), Within(-LARGEST_VALUE, LARGEST_VALUE)]  # in units of scores
    bins: Annotated[UInt8s, Shape("n_binned", 256), Anything()]  # at the start: the bin of each cell of each column


@dataclass(frozen=True, slots=True)
class SmoothCounts(Message, name="vertical.private_histograms.smooth_counts", version=1):
    """Label holder or feature holder to each other: rows in each public cell of my columns, with noise of my own."""

    discloses = Randomised("the number of rows in each public cell of each of the sender's columns")
    counts: Annotated[Int64s, Shape("n_cells"), Within(-_LARGEST_COUNT, _LARGEST_COUNT)]


@dataclass(frozen=True, slots=True)
class SmoothSides(Message, name="vertical.private_histograms.smooth_sides", version=1):
    """Label holder or feature holder to each other: masked, which way my levels of a tree send each row."""

    discloses = Hidden("which way every row goes at the sender's levels of a tree, and what leaf values follow")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothPositives(Revealed, name="vertical.private_histograms.smooth_positives", version=1):
    """Label holder or feature holder to each other: shares of the noisy number of positive rows."""

    discloses = NoisyInside("the number of positive rows")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothBinSums(Revealed, name="vertical.private_histograms.smooth_bin_sums", version=1):
    """Label holder or feature holder to each other: shares of noisy sums over the bins of one column."""

    discloses = NoisyInside("sums of gradients in each bin of one column")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothLeafSums(Revealed, name="vertical.private_histograms.smooth_leaf_sums", version=1):
    """Label holder or feature holder to each other: shares of noisy sums over the leaves of a tree."""

    discloses = NoisyInside("sums of gradients and numbers of rows in each leaf of a tree")
    words: Words


@dataclass(frozen=True, slots=True)
class SmoothMean(Revealed, name="vertical.private_histograms.smooth_mean", version=1):
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


ALL = (
    *(SmoothColumns, SmoothSizes, SmoothAsked, SmoothCounts, SmoothSides),
    *(SmoothPositives, SmoothBinSums, SmoothLeafSums, SmoothMean, SmoothQuestions),
    *(CountedColumns, StartShare, WinnerShare, HistogramShare, LeafShare, Chosen),
)
LATER = (ReleasesBegun, StepsThatFit)
