"""The messages of vertical.bucket_rr, in the order in which they are sent, after ReadyToTrain and GoAhead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hedgerow.ledger import Exact, Public, Randomised
from hedgerow.transport.frames import Bools, Int32s, Message, UInt8s
from hedgerow.transport.ranges import MOST, Anything, Free, Index, Shape, Within

ID_LETTERS = 32
OF_THIS_RUN = "of this run"
"""Instead of a number: the transfer that an earlier attempt of this run has made."""
TransferId: TypeAlias = Annotated[str, Shape(Free("id_letters", 0, ID_LETTERS))]
Times: TypeAlias = Annotated[int, Within(0, MOST)]
Epsilon: TypeAlias = Annotated[float, Within(0.0, math.inf)]
N_COLUMNS = Free("n_columns", 1, "most_columns")
N_SPLITS = Free("n_splits")


@dataclass(frozen=True, slots=True)
class HaveTransfer(Message, name="vertical.bucket_rr.have_transfer", version=1):
    """Label holder to feature holder: I have kept this transfer of yours. "" means: none for such a job."""

    discloses = Public("the number of a transfer that the feature holder has made")
    transfer_id: TransferId


@dataclass(frozen=True, slots=True)
class SameAsBefore(Message, name="vertical.bucket_rr.same_as_before", version=1):
    """Feature holder to label holder: I hold what that transfer was made from; nothing is sent, nothing is charged."""

    discloses = Exact("that the feature holder's values are the same as then, and how often it has sent them in all")
    transfers: Times
    others: Times
    per_element: Epsilon
    per_record: Epsilon
    is_bound: bool  # False: no less than these


@dataclass(frozen=True, slots=True)
class ColumnKinds(Message, name="vertical.bucket_rr.column_kinds", version=1):
    """Feature holder to label holder: how my columns are bucketed. No names, no edges."""

    discloses = Exact(
        "for each column of the feature holder, without its name: how many buckets it has, whether they are levels, "
        "whether a value may be missing; and how often its values were sent in all"
    )
    n_values: Annotated[Int32s, Shape(N_COLUMNS), Within(1, "most_values")]  # buckets of values
    has_levels: Annotated[Bools, Shape(N_COLUMNS)]
    may_be_missing: Annotated[Bools, Shape(N_COLUMNS)]
    n_messages: Annotated[int, Within(1, "n_columns")]  # of buckets that follow
    transfer_id: TransferId  # "" if nobody keeps it
    transfers: Times
    others: Times
    per_element: Epsilon
    per_record: Epsilon
    is_bound: bool  # False: no less than these


@dataclass(frozen=True, slots=True)
class Buckets(Message, name="vertical.bucket_rr.buckets", version=1):
    """Feature holder to label holder: the randomised buckets of some columns, those of each column packed by itself."""

    discloses = Randomised("the bucket of every value of the feature holder's columns")
    first: Annotated[int, Within("start", "start")]  # column that these begin with
    packed: Annotated[UInt8s, Shape("n_bytes"), Anything()]


@dataclass(frozen=True, slots=True)
class OwnSplits(Message, name="vertical.bucket_rr.own_splits", version=1):
    """Label holder to feature holder: what the model asks about your columns. Nobody else's, and not in which tree."""

    discloses = Exact(
        "at which buckets of the feature holder's own columns the model splits; this depends on the labels, and no "
        "noise covers it"
    )
    column: Annotated[Int32s, Shape(N_SPLITS), Index("n_columns")]
    bin: Annotated[Int32s, Shape(N_SPLITS), Index("n_values", by="column", lowest=-1)]  # last one that goes left
    missing_left: Annotated[Bools, Shape(N_SPLITS)]
    left_levels: Annotated[UInt8s, Shape(N_SPLITS, 32), Anything()]  # one bit per level, where bin is -1
