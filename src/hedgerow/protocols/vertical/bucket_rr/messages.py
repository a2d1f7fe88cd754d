"""The messages of vertical.bucket_rr, in the order in which they are sent, after those of vertical/agreement.py."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Public, Randomised
from hedgerow.transport.frames import Bools, Int32s, Message, UInt8s


@dataclass(frozen=True, slots=True)
class HaveTransfer(Message, name="vertical.bucket_rr.have_transfer", version=1):
    """Label holder to feature holder: I have kept this transfer of yours. "" means: none for such a job."""

    discloses = Public("the number of a transfer that the feature holder has made")
    transfer_id: str


@dataclass(frozen=True, slots=True)
class SameAsBefore(Message, name="vertical.bucket_rr.same_as_before", version=1):
    """Feature holder to label holder: I hold what that transfer was made from; nothing is sent, nothing is charged."""

    discloses = Exact("that the feature holder's values are the same as then, and how often it has sent them in all")
    transfers: int
    others: int
    per_element: float
    per_record: float
    is_bound: bool  # False: no less than these


@dataclass(frozen=True, slots=True)
class ColumnKinds(Message, name="vertical.bucket_rr.column_kinds", version=1):
    """Feature holder to label holder: how my columns are bucketed. No names, no edges."""

    discloses = Exact(
        "for each column of the feature holder, without its name: how many buckets it has, whether they are levels, "
        "whether a value may be missing; and how often its values were sent in all"
    )
    n_values: Int32s  # buckets of values
    has_levels: Bools
    may_be_missing: Bools
    n_messages: int  # of buckets that follow
    transfer_id: str  # "" if nobody keeps it
    transfers: int
    others: int
    per_element: float
    per_record: float
    is_bound: bool  # False: no less than these


@dataclass(frozen=True, slots=True)
class Buckets(Message, name="vertical.bucket_rr.buckets", version=1):
    """Feature holder to label holder: the randomised buckets of some columns, those of each column packed by itself."""

    discloses = Randomised("the bucket of every value of the feature holder's columns")
    first: int  # column that these begin with
    packed: UInt8s


@dataclass(frozen=True, slots=True)
class OwnSplits(Message, name="vertical.bucket_rr.own_splits", version=1):
    """Label holder to feature holder: what the model asks about your columns. Nobody else's, and not in which tree."""

    discloses = Exact(
        "at which buckets of the feature holder's own columns the model splits; this depends on the labels, and no "
        "noise covers it"
    )
    column: Int32s
    bin: Int32s  # last bucket that goes left, -1 for a split by levels
    missing_left: Bools
    left_levels: UInt8s  # [splits, 32] one bit per level
