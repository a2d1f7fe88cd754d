"""The messages of vertical.mp_fedxgb alone, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact
from hedgerow.protocols.shares.messages import Number, Revealed, Words
from hedgerow.transport.frames import Message


@dataclass(frozen=True, slots=True)
class NumeratorShare(Revealed, name="vertical.mp_fedxgb.numerator_share", version=1):
    """Label holder or feature holder to feature holder: shares of P_i Q_j - P_j Q_i of all pairs that are compared."""

    discloses = Exact("by how much one possible split is better than another, times their denominators (first only)")
    tree: Number
    level: Number
    round: Number
    words: Words  # [nodes, pairs, limbs] 32-bit words


@dataclass(frozen=True, slots=True)
class DenominatorShare(Revealed, name="vertical.mp_fedxgb.denominator_share", version=1):
    """Label holder or feature holder to label holder: shares of Q_i Q_j of all pairs that are compared."""

    discloses = Exact("the products of sums of hessians on both sides of two possible splits")
    tree: Number
    level: Number
    round: Number
    words: Words  # [nodes, pairs, limbs]


@dataclass(frozen=True, slots=True)
class TestNumeratorShare(Revealed, name="vertical.mp_fedxgb.test_numerator_share", version=1):
    """Label holder or feature holder to feature holder: shares of what each winner gains, times a denominator."""

    __test__ = False  # to pytest: this is no test
    discloses = Exact("what the best split of each node gains, times its denominator (first only)")
    tree: Number
    level: Number
    words: Words  # [nodes, limbs]


@dataclass(frozen=True, slots=True)
class TestDenominatorShare(Revealed, name="vertical.mp_fedxgb.test_denominator_share", version=1):
    """Label holder or feature holder to label holder: shares of those denominators."""

    __test__ = False
    discloses = Exact("the product of the node's and both children's sums of hessians")
    tree: Number
    level: Number
    words: Words  # [nodes, limbs]


@dataclass(frozen=True, slots=True)
class NumeratorSigns(Message, name="vertical.mp_fedxgb.numerator_signs", version=1):
    """Feature holder to label holder: which numerators are negative (of pairs), or positive (of winners)."""

    discloses = Exact("which of two possible splits is better, and whether the best one gains anything")
    bits: Words  # packed


@dataclass(frozen=True, slots=True)
class Better(Message, name="vertical.mp_fedxgb.better", version=1):
    """Label holder to feature holders: which of each pair is better, or which winners gain anything."""

    discloses = Exact("which of two possible splits is better, and whether the best one gains anything")
    bits: Words  # packed


@dataclass(frozen=True, slots=True)
class StepShare(Revealed, name="vertical.mp_fedxgb.step_share", version=1):
    """Label holder or feature holder to label holder: shares of H + lambda of each leaf, and a perturbation."""

    discloses = Exact("the sum of hessians of each leaf, but for a perturbation of at most two lambda")
    tree: Number
    words: Words  # [leaves, limbs]


@dataclass(frozen=True, slots=True)
class Steps(Message, name="vertical.mp_fedxgb.steps", version=1):
    """Label holder to feature holders: the sums that were opened, whose inverse is the step of gradient descent."""

    discloses = Exact("the sum of hessians of each leaf, but for a perturbation of at most two lambda")
    tree: Number
    words: Words  # [leaves, limbs]


@dataclass(frozen=True, slots=True)
class PredictionShare(Revealed, name="vertical.mp_fedxgb.prediction_share", version=1):
    """Label holder or feature holder to label holder: shares of the tree's value for some rows."""

    discloses = Exact("the value of the tree for every row, hence which rows share a leaf")
    tree: Number
    words: Words  # [rows] 64-bit words


ALL = (
    *(NumeratorShare, DenominatorShare, TestNumeratorShare, TestDenominatorShare),
    *(NumeratorSigns, Better, StepShare, Steps, PredictionShare),
)
