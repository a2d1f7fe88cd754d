"""The messages of horizontal.secure_sum, in the order in which they are first sent.

What ranges cannot say (texts from a list, JSON in texts, numbers that must fit together) is checked by who receives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from hedgerow.errors import ProtocolError
from hedgerow.ledger import Exact, Public, Result, Sealed, SecureSum
from hedgerow.transport.frames import Float32s, Float64s, Int32s, Int64s, Message, UInt8s, UInt64s
from hedgerow.transport.ranges import FINITE, Anything, Ends, Free, Index, Shape, Within

MOST_COLUMNS = 2**16
MOST_CLASS_BYTES = 2**20
"""Of the list of classes, as JSON."""
MOST_MODEL_BYTES = 2**30
"""Of a model as JSON."""
LATEST_ROUND = 2**31 - 1
"""Of keys."""
MOST_REQUESTS = 2**20
"""Of a private training."""
LARGEST_SIGMA = 2.0**56
"""Of all owners' noise together; each can draw its own up to 2^48 (privacy/discrete_gaussian.py)."""
LARGEST_SCORE = 1e6
LARGEST_LABEL = 1e37
"""Beyond it differences of labels are no float32."""
LARGEST_WEIGHT = 1e300
"""Of all rows together."""
LARGEST_CLIP = 2**17
DEEPEST_REQUEST = 8
"""Levels of an oblivious tree."""

_CLASSES = Shape(Free("n_class_bytes", at_most=MOST_CLASS_BYTES))
_PROOF = Free("n_proof_bytes", 1, 2**14)
_SCORES = Within(-LARGEST_SCORE, LARGEST_SCORE)
_LABELS = Within(-LARGEST_LABEL, LARGEST_LABEL)
_TOTAL_WEIGHT = Within(0.0, LARGEST_WEIGHT)


def refuse(sender: str, message: Message, what: str) -> ProtocolError:
    """The error to raise about a message that says what cannot be."""
    return ProtocolError(f"{sender} sent {message.NAME} {what}")


@dataclass(frozen=True, slots=True)
class TableDescription(Message, name="horizontal.table_description", version=3):
    """Owner to coordinator: does my table fit yours?"""

    discloses = Exact(
        "the owner's column names and types, the levels that occur in its categorical columns (of more than 255, that "
        "they are so many), whether numeric columns hold whole numbers only, its label classes, whether its rows have "
        "weights, which model it goes on from"
    )
    columns: Annotated[tuple[str, ...], Shape(Free("n_columns", 1, MOST_COLUMNS))]
    kinds: Annotated[tuple[str, ...], Shape("n_columns")]  # of number lines, times or levels: `agreement.py`
    levels: Annotated[tuple[str, ...], Shape("n_columns")]  # JSON list of a categorical column's, "" for a numeric one
    classes: Annotated[str, _CLASSES]  # JSON list, "" for regression
    weighted: bool = False
    earlier: Annotated[str, Shape(Free("n_digest_letters", at_most=64))] = ""  # SHA-256 of the model to go on from


@dataclass(frozen=True, slots=True)
class EarlierModel(Message, name="horizontal.earlier_model", version=1):
    """One owner to a coordinator that is none: the model that all owners go on from."""

    discloses = Result("the model that training goes on from, which all owners have")
    document: Annotated[str, Shape(Free("n_model_letters", 1, MOST_MODEL_BYTES))]  # JSON, as in model files


@dataclass(frozen=True, slots=True)
class Agreement(Message, name="horizontal.agreement", version=3):
    """Coordinator to owners: what all go by."""

    discloses = Exact("the union of all owners' levels and classes, whether any rows have weights")
    kinds: Annotated[tuple[str, ...], Shape("n_columns")]
    levels: Annotated[tuple[str, ...], Shape("n_columns")]
    classes: Annotated[str, _CLASSES]
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class OwnLabelRange(Message, name="horizontal.own_label_range", version=1):
    """Owner to coordinator: between what my labels lie. Only with exact_label_range=True."""

    discloses = Exact("the owner's smallest and its largest label")
    low: Annotated[float, _LABELS]
    high: Annotated[float, _LABELS]


@dataclass(frozen=True, slots=True)
class CommonLabelRange(Message, name="horizontal.common_label_range", version=1):
    """Coordinator to owners: between what all labels lie. Only with exact_label_range=True."""

    discloses = Exact("the smallest and the largest label of all owners together")
    low: Annotated[float, Within(-LARGEST_LABEL, "own_low")]
    high: Annotated[float, Within("own_high", LARGEST_LABEL)]


@dataclass(frozen=True, slots=True)
class MaskKey(Message, name="horizontal.mask_key", version=1):
    """Owner to coordinator, to be passed on: my key for the masks of this round of keys."""

    discloses = Public("a fresh public key")
    round_id: Annotated[int, Within("round_id", "round_id")]
    public: Annotated[bytes, Shape(32)]
    signature: Annotated[bytes, Shape(Free("n_signature_bytes", 1, 256))]
    certificate: Annotated[bytes, Shape(_PROOF)]


@dataclass(frozen=True, slots=True)
class MaskKeys(Message, name="horizontal.mask_keys", version=1):
    """Coordinator to owners: everybody's keys. No names at all means: somebody was lost, begin again."""

    discloses = Public("the fresh public keys of all owners, each signed by its owner")
    round_id: Annotated[int, Within("round_id", LATEST_ROUND)]
    owners: Annotated[tuple[str, ...], Shape(Free("n_keys", at_most="n_owners"))]
    publics: Annotated[UInt8s, Shape("n_keys", 32), Anything()]
    proofs: Annotated[UInt8s, Shape(Free("n_bytes")), Anything()]  # of each owner in turn: signature, certificate
    proof_ends: Annotated[Int64s, Shape(Free("n_proofs")), Ends("proofs")]  # [2 x owners]


@dataclass(frozen=True, slots=True)
class MaskedWeights(Message, name="horizontal.masked_weights", version=1):
    """Owner to coordinator: number of rows and their weights' exact sum, or one for each class. Only with weights."""

    discloses = SecureSum("number of rows and their total weight; with class_weight='balanced' that of each class too")
    values: Annotated[UInt64s, Shape("n_values"), Anything()]


@dataclass(frozen=True, slots=True)
class CommonWeights(Message, name="horizontal.common_weights", version=1):
    """Coordinator to owners: the same over all owners."""

    discloses = Exact("number of rows and their total weight over all owners, or that of each class")
    n_rows: Annotated[int, Within("fewest_rows", "most_rows")]
    totals: Annotated[Float64s, Shape("n_totals"), _TOTAL_WEIGHT]


@dataclass(frozen=True, slots=True)
class MaskedTotals(Message, name="horizontal.masked_totals", version=1):
    """Owner to coordinator: number of rows, label totals, values that are present in each numeric column.

    Then, where rows are watched for early stopping, the exact sum of these rows' weights.
    """

    discloses = SecureSum(
        "number of rows, label totals, values present per numeric column; with early stopping the total weight of the "
        "rows that are watched"
    )
    values: Annotated[UInt64s, Shape("n_values"), Anything()]


@dataclass(frozen=True, slots=True)
class Probes(Message, name="horizontal.probes", version=1):
    """Coordinator to owners: count the rows below these points. No points at all: the edges are found."""

    discloses = Exact("between which values the quantiles of each column lie, over all owners")
    points: Annotated[Float64s, Shape(Free("n_points", at_most="most_points")), FINITE]
    ends: Annotated[Int64s, Shape("n_numeric"), Ends("points")]  # where each column's points end


@dataclass(frozen=True, slots=True)
class MaskedCounts(Message, name="horizontal.masked_counts", version=1):
    """Owner to coordinator: rows below each probe."""

    discloses = SecureSum("the exact number of rows below each probed value of each column")
    values: Annotated[UInt64s, Shape("n_values"), Anything()]


@dataclass(frozen=True, slots=True)
class NoisyCells(Message, name="horizontal.noisy_cells", version=1):
    """Owner to coordinator: rows per cell of a public grid, with this owner's share of the noise."""

    discloses = SecureSum("the number of rows in each cell of a public grid, with noise")
    values: Annotated[UInt64s, Shape("n_values"), Anything()]
    sensitivity: Annotated[float, Within("sensitivity", "sensitivity")]
    sigma: Annotated[float, Within("sigma", "sigma")]  # of this owner's share of the noise


@dataclass(frozen=True, slots=True)
class SumWanted(Message, name="horizontal.sum_wanted", version=2):
    """Coordinator to owners: the next question of the private recipe (`central.gaussian.requests.SumRequest`)."""

    discloses = Result("what the recipe has learned from noisy sums so far, as updates of scores")
    number: Annotated[int, Index(MOST_REQUESTS, lowest=-1)]  # -1: that was the last one
    kind: Annotated[str, Shape(Free("n_kind_letters", 1, 32))]
    n_sums: Annotated[int, Within(0, "most_sums")]
    sensitivity_squared: Annotated[int, Within(1, 2**62)]
    sigma: Annotated[float, Within(0.0, LARGEST_SIGMA)]
    clip: Annotated[int, Within(0, LARGEST_CLIP)]
    features: Annotated[Int32s, Shape(Free("n_features", at_most=DEEPEST_REQUEST)), Index("n_columns")]
    goes_right: Annotated[UInt8s, Shape(Free("n_levels", at_most=DEEPEST_REQUEST), 256), Within(0, 1)]
    update: Annotated[str, Shape(Free("n_update_letters", 1, 32))]
    update_feature: Annotated[int, Index("n_columns", lowest=-1)]
    update_values: Annotated[Float64s, Shape(Free("n_update_values", at_most="most_update_values")), _SCORES]
    bins: Annotated[UInt8s, Shape(Free("n_binned", at_most="n_columns"), 256), Anything()]
    base_score: Annotated[float, _SCORES]
    centre: Annotated[float, Within(-1.0, 1.0)]
    spread: Annotated[float, Within(1.0 / LARGEST_SCORE, LARGEST_SCORE)]


@dataclass(frozen=True, slots=True)
class NoisySum(Message, name="horizontal.noisy_sum", version=1):
    """Owner to coordinator: its part of the sum that was asked for, with its share of the noise."""

    discloses = SecureSum("how many rows did not fit the schema, class counts, gradient and hessian sums, with noise")
    values: Annotated[UInt64s, Shape("n_values"), Anything()]
    sensitivity: Annotated[float, Within("sensitivity", "sensitivity")]
    sigma: Annotated[float, Within("sigma", "sigma")]  # of this owner's share of the noise


@dataclass(frozen=True, slots=True)
class Start(Message, name="horizontal.start", version=2):
    """Coordinator to owners: bins and constants that training begins with."""

    discloses = Exact("edges of the bins, base score, number and total weight of rows, over all owners")
    edges: Annotated[Float64s, Shape(Free("n_edges", at_most="most_edges")), FINITE]
    ends: Annotated[Int64s, Shape("n_numeric"), Ends("edges")]
    base_scores: Annotated[Float64s, Shape("n_outputs"), Within("lowest_score", "highest_score")]
    n_rows: Annotated[int, Within("fewest_rows", "most_rows")]
    total_weight: Annotated[float, _TOTAL_WEIGHT]
    class_totals: Annotated[Float64s, Shape("n_class_totals"), _TOTAL_WEIGHT]  # with class_weight="balanced"
    watched: Annotated[float, _TOTAL_WEIGHT]  # weight of the rows that are watched for early stopping


@dataclass(frozen=True, slots=True)
class NextStep(Message, name="horizontal.next_step", version=2):
    """Coordinator to owners. In this order: new keys, descend, close the tree, watch, begin one, sum some nodes."""

    discloses = Result("the splits and leaf values of the growing model")
    # What is left open here, sizes and numbers, follows from the steps before: `levels.Nodes.follow`.
    plan: Annotated[Int64s, Shape(7), Anything()]  # the numbers of a `Plan`
    feature: Annotated[Int64s, Shape(Free("n_nodes")), Anything()]  # of each active node, -1 for a leaf; empty: stay
    goes_left: Annotated[UInt8s, Shape("n_nodes", 32), Anything()]  # one bit per code
    leaf_values: Annotated[Float32s, Shape(Free("n_leaves")), FINITE]  # empty: the tree goes on
    build: Annotated[Int64s, Shape(Free("n_built")), Anything()]  # nodes to sum; empty: no more


class Plan(NamedTuple):
    """The numbers of a `NextStep`, in one array because there is one in every level of every tree."""

    new_round: int  # agree on keys for this round first; 0: keep those there are
    last: int  # 1: the children are leaves
    start: int  # output that the next tree is for; -1: no new tree
    tree: int  # where the masks of the answer are taken from
    level: int
    part: int
    watch: int = 0  # 1: tell the loss of the rows that are watched


@dataclass(frozen=True, slots=True)
class MaskedHistogram(Message, name="horizontal.masked_histogram", version=1):
    """Owner to coordinator: one share alone is uniformly random."""

    discloses = SecureSum("gradient and hessian sums per node, feature and bin")
    # [nodes, cells], and as many row counts after them where leaves have a least number of rows
    values: Annotated[UInt64s, Shape("n_sums", "n_cells"), Anything()]


@dataclass(frozen=True, slots=True)
class MaskedMetric(Message, name="horizontal.masked_metric", version=1):
    """Owner to coordinator: what the metric sums up over its rows that are watched. Only with early stopping."""

    discloses = SecureSum("the loss of all rows that are watched, one number per iteration")
    values: Annotated[UInt64s, Shape(1), Anything()]


@dataclass(frozen=True, slots=True)
class SealedSeeds(Message, name="horizontal.sealed_seeds", version=1):
    """Owner to coordinator, to be passed on: shares of this tree's own-mask seeds, each sealed for one owner."""

    discloses = Sealed("shares of the seeds of an owner's own masks")
    owners: Annotated[tuple[str, ...], Shape("n_peers")]
    blobs: Annotated[UInt8s, Shape("n_bytes"), Anything()]
    ends: Annotated[Int64s, Shape("n_peers"), Ends("blobs")]


@dataclass(frozen=True, slots=True)
class RelayedSeeds(Message, name="horizontal.relayed_seeds", version=1):
    """Coordinator to owner: the shares that the others have sealed for it."""

    discloses = Exact("one share of each other owner's seeds, too few to open them")
    owners: Annotated[tuple[str, ...], Shape(Free("n_relayed", at_most="n_peers"))]
    blobs: Annotated[UInt8s, Shape(Free("n_bytes", at_most="most_bytes")), Anything()]
    ends: Annotated[Int64s, Shape("n_relayed"), Ends("blobs")]


@dataclass(frozen=True, slots=True)
class WhoSent(Message, name="horizontal.who_sent", version=1):
    """Coordinator to owners: these sent their sums of this level, those were lost before."""

    discloses = Public("who takes part in this sum")
    sent: Annotated[tuple[str, ...], Shape(Free("n_sent", at_most="n_owners"))]
    lost: Annotated[tuple[str, ...], Shape(Free("n_lost", at_most="n_owners"))]


@dataclass(frozen=True, slots=True)
class Unmasking(Message, name="horizontal.unmasking", version=1):
    """Owner to coordinator: per owner a share of its seed if it sent, else the seed of the pair's mask. Never both."""

    discloses = Exact("what takes the masks off the sum over those who sent, and off nothing else")
    owners: Annotated[tuple[str, ...], Shape("n_owners")]
    blobs: Annotated[UInt8s, Shape("n_bytes"), Anything()]
    ends: Annotated[Int64s, Shape("n_owners"), Ends("blobs")]


@dataclass(frozen=True, slots=True)
class FinishedModel(Message, name="horizontal.finished_model", version=2):
    """Coordinator to owners: all trees, their nodes one after the other; what follows from these is left out."""

    discloses = Result("the whole model")
    feature: Annotated[Int32s, Shape(Free("n_nodes", 1, "most_nodes")), Index("n_features", lowest=-1)]
    bin: Annotated[Int32s, Shape("n_nodes"), Index(255, lowest=-1)]
    missing_left: Annotated[UInt8s, Shape("n_nodes"), Within(0, 1)]
    value: Annotated[Float32s, Shape("n_nodes"), FINITE]
    tree_ends: Annotated[Int64s, Shape(Free("n_trees", 1, "most_trees")), Ends("feature")]
    left_levels: Annotated[UInt8s, Shape(Free("n_sets", at_most="n_nodes"), 32), Anything()]  # one bit per level


@dataclass(frozen=True, slots=True)
class NodeStatistics(Message, name="horizontal.node_statistics", version=1):
    """Coordinator to owners: what predicting does not need. Only with share_cover=True or dp."""

    discloses = Result("gain, value and sum of the hessians of every node of the model, from sums over all owners")
    value: Annotated[Float32s, Shape("n_nodes"), FINITE]
    gain: Annotated[Float32s, Shape("n_nodes"), Within(-math.inf, math.inf)]
    cover: Annotated[Float64s, Shape("n_nodes"), FINITE]
