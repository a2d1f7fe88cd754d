"""The messages of vertical.private_histograms alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from hedgerow.ledger import Disclosure, Randomised, Result
from hedgerow.protocols.shares.messages import Revealed, Words
from hedgerow.transport.frames import Int64s, Message
from hedgerow.transport.ranges import Shape, Within


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


ALL = (CountedColumns, StartShare, WinnerShare, HistogramShare, LeafShare, Chosen)
