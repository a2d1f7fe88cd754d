"""The messages of horizontal.secure_sum, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hedgerow.ledger import Exact, Public, Result, Sealed, SecureSum
from hedgerow.transport.frames import Float32s, Float64s, Int32s, Int64s, Message, UInt8s, UInt64s


@dataclass(frozen=True, slots=True)
class TableDescription(Message, name="horizontal.table_description", version=1):
    """Owner to coordinator: does my table fit yours?"""

    discloses = Exact(
        "the owner's column names and types, the levels that occur in its categorical columns, whether numeric columns "
        "hold whole numbers only, its label classes or label range"
    )
    columns: tuple[str, ...]
    kinds: tuple[str, ...]  # "float64", "float32", "integer" or "levels"
    levels: tuple[str, ...]  # JSON list of the levels of a categorical column, "" for a numeric one
    classes: str  # JSON list, "" for regression
    label_low: float
    label_high: float


@dataclass(frozen=True, slots=True)
class Agreement(Message, name="horizontal.agreement", version=1):
    """Coordinator to owners: what all go by."""

    discloses = Exact("the union of all owners' levels and classes, the common range of the labels")
    kinds: tuple[str, ...]
    levels: tuple[str, ...]
    classes: str
    label_low: float
    label_high: float


@dataclass(frozen=True, slots=True)
class MaskKey(Message, name="horizontal.mask_key", version=1):
    """Owner to coordinator, to be passed on: my key for the masks of this round of keys."""

    discloses = Public("a fresh public key")
    round_id: int
    public: bytes
    signature: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class MaskKeys(Message, name="horizontal.mask_keys", version=1):
    """Coordinator to owners: everybody's keys. No names at all means: somebody was lost, begin again."""

    discloses = Public("the fresh public keys of all owners, each signed by its owner")
    round_id: int
    owners: tuple[str, ...]
    publics: UInt8s  # [owners, 32]
    proofs: UInt8s  # of each owner in turn: signature, certificate
    proof_ends: Int64s  # [2 x owners]


@dataclass(frozen=True, slots=True)
class MaskedTotals(Message, name="horizontal.masked_totals", version=1):
    """Owner to coordinator: number of rows, label totals, values that are present in each numeric column."""

    discloses = SecureSum("number of rows, label totals, values present per numeric column")
    values: UInt64s


@dataclass(frozen=True, slots=True)
class Probes(Message, name="horizontal.probes", version=1):
    """Coordinator to owners: count the rows below these points. No points at all: the edges are found."""

    discloses = Exact("between which values the quantiles of each column lie, over all owners")
    points: Float64s
    ends: Int64s  # [numeric columns] where each column's points end


@dataclass(frozen=True, slots=True)
class MaskedCounts(Message, name="horizontal.masked_counts", version=1):
    """Owner to coordinator: rows below each probe."""

    discloses = SecureSum("the exact number of rows below each probed value of each column")
    values: UInt64s


@dataclass(frozen=True, slots=True)
class NoisyCells(Message, name="horizontal.noisy_cells", version=1):
    """Owner to coordinator: rows per cell of a public grid, with this owner's share of the noise."""

    discloses = SecureSum("the number of rows in each cell of a public grid, with noise")
    values: UInt64s
    sensitivity: float
    sigma: float  # of this owner's share of the noise


@dataclass(frozen=True, slots=True)
class SumWanted(Message, name="horizontal.sum_wanted", version=1):
    """Coordinator to owners: the next question of the private recipe (`private_boosting.requests.SumRequest`)."""

    discloses = Result("what the recipe has learned from noisy sums so far, as updates of scores")
    number: int  # -1: that was the last one
    kind: str
    n_sums: int
    sensitivity_squared: int
    sigma: float
    clip: int
    features: Int32s
    goes_right: UInt8s
    update: str
    update_feature: int
    update_values: Float64s
    bins: UInt8s
    base_score: float
    centre: float
    spread: float


@dataclass(frozen=True, slots=True)
class NoisySum(Message, name="horizontal.noisy_sum", version=1):
    """Owner to coordinator: its part of the sum that was asked for, with its share of the noise."""

    discloses = SecureSum("class counts, gradient and hessian sums, with noise")
    values: UInt64s
    sensitivity: float
    sigma: float  # of this owner's share of the noise


@dataclass(frozen=True, slots=True)
class Start(Message, name="horizontal.start", version=1):
    """Coordinator to owners: bins and constants that training begins with."""

    discloses = Exact("edges of the bins, base score and number of rows, over all owners")
    edges: Float64s
    ends: Int64s  # [numeric columns]
    base_scores: Float64s
    n_rows: int


@dataclass(frozen=True, slots=True)
class NextStep(Message, name="horizontal.next_step", version=1):
    """Coordinator to owners. In this order: new keys, descend, close the tree, begin one, sum some nodes."""

    discloses = Result("the splits and leaf values of the growing model")
    plan: Int64s  # the numbers of a `Plan`
    feature: Int64s  # [nodes] feature that each active node splits on, -1 for a leaf; empty: stay
    goes_left: UInt8s  # [nodes, 32] one bit per code
    leaf_values: Float32s  # empty: the tree goes on
    build: Int64s  # nodes to sum; empty: that was all


class Plan(NamedTuple):
    """The numbers of a `NextStep`, in one array because there is one in every level of every tree."""

    new_round: int  # agree on keys for this round first; 0: keep those there are
    last: int  # 1: the children are leaves
    start: int  # output that the next tree is for; -1: no new tree
    tree: int  # where the masks of the answer are taken from
    level: int
    part: int


@dataclass(frozen=True, slots=True)
class MaskedHistogram(Message, name="horizontal.masked_histogram", version=1):
    """Owner to coordinator: one share alone is uniformly random."""

    discloses = SecureSum("gradient and hessian sums per node, feature and bin")
    values: UInt64s  # [nodes, cells], and as many row counts after them where leaves have a least number of rows


@dataclass(frozen=True, slots=True)
class SealedSeeds(Message, name="horizontal.sealed_seeds", version=1):
    """Owner to coordinator, to be passed on: shares of this tree's own-mask seeds, each sealed for one owner."""

    discloses = Sealed("shares of the seeds of an owner's own masks")
    owners: tuple[str, ...]
    blobs: UInt8s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class RelayedSeeds(Message, name="horizontal.relayed_seeds", version=1):
    """Coordinator to owner: the shares that the others have sealed for it."""

    discloses = Exact("one share of each other owner's seeds, too few to open them")
    owners: tuple[str, ...]
    blobs: UInt8s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class WhoSent(Message, name="horizontal.who_sent", version=1):
    """Coordinator to owners: these sent their sums of this level, those were lost before."""

    discloses = Public("who takes part in this sum")
    sent: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unmasking(Message, name="horizontal.unmasking", version=1):
    """Owner to coordinator: per owner a share of its seed if it sent, else the seed of the pair's mask. Never both."""

    discloses = Exact("what takes the masks off the sum over those who sent, and off nothing else")
    owners: tuple[str, ...]
    blobs: UInt8s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class FinishedModel(Message, name="horizontal.finished_model", version=1):
    """Coordinator to owners: all trees, their nodes one after the other; what follows from these is left out."""

    discloses = Result("the whole model")
    tree_ends: Int64s  # [trees] where each tree's nodes end
    feature: Int32s
    bin: Int32s
    missing_left: UInt8s
    value: Float32s
    gain: Float32s
    cover: Float64s
    left_levels: UInt8s  # [splits by levels, 32] one bit per level
