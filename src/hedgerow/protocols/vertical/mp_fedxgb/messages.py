"""The messages of vertical.mp_fedxgb, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Public
from hedgerow.protocols.vertical.on_shares.messages import Hidden
from hedgerow.transport.frames import Int32s, Message, UInt8s


@dataclass(frozen=True, slots=True)
class ColumnSizes(Message, name="vertical.mp_fedxgb.column_sizes", version=1):
    """Label holder or feature holder to each other: how many bins each column has."""

    discloses = Exact("the number of bins of each column, and whether it has missing values")
    n_bins: Int32s  # [columns] of values
    has_missing: UInt8s  # [columns]


@dataclass(frozen=True, slots=True)
class AllColumns(Message, name="vertical.mp_fedxgb.all_columns", version=1):
    """Label holder to dealer: how much is to be dealt."""

    discloses = Exact("the numbers of rows, of everybody's columns and of their bins, and which columns have gaps")
    n_rows: int
    n_columns: Int32s  # [holders]
    n_bins: Int32s  # [columns of all holders]
    has_missing: UInt8s


@dataclass(frozen=True, slots=True)
class SharingSeed(Message, name="vertical.mp_fedxgb.sharing_seed", version=1):
    """Label holder or feature holder to each other: random bytes that make shares of what the sender will share."""

    discloses = Exact("random bytes that say nothing about data")
    seed: bytes


@dataclass(frozen=True, slots=True)
class MaskedBins(Message, name="vertical.mp_fedxgb.masked_bins", version=1):
    """Label holder or feature holder to each other: which values lie in each of some bins."""

    discloses = Hidden("the bin of every value of the sender's columns")
    words: UInt8s


@dataclass(frozen=True, slots=True)
class NumeratorShare(Message, name="vertical.mp_fedxgb.numerator_share", version=1):
    """Label holder or feature holder to feature holder: shares of P_i Q_j - P_j Q_i of all pairs that are compared."""

    discloses = Exact("by how much one possible split is better than another, times their denominators (first only)")
    tree: int
    level: int
    round: int
    words: UInt8s  # [nodes, pairs, limbs] 32-bit words


@dataclass(frozen=True, slots=True)
class DenominatorShare(Message, name="vertical.mp_fedxgb.denominator_share", version=1):
    """Label holder or feature holder to label holder: shares of Q_i Q_j of all pairs that are compared."""

    discloses = Exact("the products of sums of hessians on both sides of two possible splits")
    tree: int
    level: int
    round: int
    words: UInt8s  # [nodes, pairs, limbs]


@dataclass(frozen=True, slots=True)
class TestNumeratorShare(Message, name="vertical.mp_fedxgb.test_numerator_share", version=1):
    """Label holder or feature holder to feature holder: shares of what each winner gains, times a denominator."""

    __test__ = False  # to pytest: this is no test
    discloses = Exact("what the best split of each node gains, times its denominator (first only)")
    tree: int
    level: int
    words: UInt8s  # [nodes, limbs]


@dataclass(frozen=True, slots=True)
class TestDenominatorShare(Message, name="vertical.mp_fedxgb.test_denominator_share", version=1):
    """Label holder or feature holder to label holder: shares of those denominators."""

    __test__ = False
    discloses = Exact("the product of the node's and both children's sums of hessians")
    tree: int
    level: int
    words: UInt8s  # [nodes, limbs]


@dataclass(frozen=True, slots=True)
class NumeratorSigns(Message, name="vertical.mp_fedxgb.numerator_signs", version=1):
    """Feature holder to label holder: which numerators are negative (of pairs), or positive (of winners)."""

    discloses = Exact("which of two possible splits is better, and whether the best one gains anything")
    bits: UInt8s  # packed


@dataclass(frozen=True, slots=True)
class Better(Message, name="vertical.mp_fedxgb.better", version=1):
    """Label holder to feature holders: which of each pair is better, or which winners gain anything."""

    discloses = Exact("which of two possible splits is better, and whether the best one gains anything")
    bits: UInt8s  # packed


@dataclass(frozen=True, slots=True)
class StepShare(Message, name="vertical.mp_fedxgb.step_share", version=1):
    """Label holder or feature holder to label holder: shares of H + lambda of each leaf, and a perturbation."""

    discloses = Exact("the sum of hessians of each leaf, but for a perturbation of at most two lambda")
    tree: int
    words: UInt8s  # [leaves, limbs]


@dataclass(frozen=True, slots=True)
class Steps(Message, name="vertical.mp_fedxgb.steps", version=1):
    """Label holder to feature holders: the sums that were opened, whose inverse is the step of gradient descent."""

    discloses = Exact("the sum of hessians of each leaf, but for a perturbation of at most two lambda")
    tree: int
    words: UInt8s  # [leaves, limbs]


@dataclass(frozen=True, slots=True)
class PredictionShare(Message, name="vertical.mp_fedxgb.prediction_share", version=1):
    """Label holder or feature holder to label holder: shares of the tree's value for some rows."""

    discloses = Exact("the value of the tree for every row, hence which rows share a leaf")
    tree: int
    words: UInt8s  # [rows] 64-bit words


@dataclass(frozen=True, slots=True)
class LevelDone(Message, name="vertical.mp_fedxgb.level_done", version=1):
    """Label holder to dealer: one more level is over, or was not needed."""

    discloses = Public("how far the training is")
