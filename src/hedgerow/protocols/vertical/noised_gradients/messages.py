"""The messages of vertical.noised_gradients, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.ledger import Exact, Randomised, Result
from hedgerow.transport.frames import Float64s, Int32s, Message, UInt8s


@dataclass(frozen=True, slots=True)
class StartWithoutNoise(Message, name="vertical.noised_gradients.start_without_noise", version=1):
    """Label holder to feature holders: what all begin with; only sent where there is no noise at all."""

    discloses = Exact("base score and range of the labels")
    base_score: float
    label_low: float
    label_high: float


@dataclass(frozen=True, slots=True)
class NoisyGradients(Message, name="vertical.noised_gradients.noisy_gradients", version=1):
    """Label holder to feature holders: every row's gradient with noise, the same numbers to all of them."""

    discloses = Randomised("the gradient of every row, which shows its label")
    gradients: Int32s


@dataclass(frozen=True, slots=True)
class NoisyLevel(Message, name="vertical.noised_gradients.noisy_level", version=1):
    """Label holder to feature holder: gradients (and hessians) with fresh noise for one level; per="message" only."""

    discloses = Randomised("gradient and hessian of every row, once more for every level of every tree")
    gradients: Int32s
    hessians: Int32s  # empty: 1 for every row


@dataclass(frozen=True, slots=True)
class BestGains(Message, name="vertical.noised_gradients.best_gains", version=1):
    """Feature holder to label holder: how much the best split of my columns gains in each node."""

    discloses = Exact("the gain of the best split of the feature holder's columns in each node")
    gains: Float64s  # [nodes] -1 where none is allowed


@dataclass(frozen=True, slots=True)
class Winners(Message, name="vertical.noised_gradients.winners", version=1):
    """Label holder to feature holder: what becomes of each node. Whose it is otherwise is not said."""

    discloses = Result("which nodes split, and which of them by the receiver's columns")
    roles: UInt8s  # [nodes] LEAF, OTHERS or YOURS, see joint_forest.py


@dataclass(frozen=True, slots=True)
class WhichWay(Message, name="vertical.noised_gradients.which_way", version=1):
    """Feature holder to label holder: the rows of nodes that I won, and a number for each question."""

    discloses = Exact("which rows of a node the feature holder's split sends right, and whether it was asked before")
    handles: Int32s  # [nodes that it won]
    sides: UInt8s  # one bit per row of the table, 1 for right, 0 in other nodes


@dataclass(frozen=True, slots=True)
class Partition(Message, name="vertical.noised_gradients.partition", version=1):
    """Label holder to feature holder: the sides of all rows of this level. Left out where it won all of them."""

    discloses = Exact("which rows of each node go right, whoever's column decided")
    sides: UInt8s  # one bit per row of the table
