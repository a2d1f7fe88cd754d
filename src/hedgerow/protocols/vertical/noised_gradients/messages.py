"""The messages of vertical.noised_gradients, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hedgerow.ledger import Exact, Randomised
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Float64s, Int32s, Message
from hedgerow.transport.ranges import Shape, Within

FLOAT32 = Within(-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))
"""Scores and labels are float32 where trees grow."""
MOST_UNITS = 2**31 - 1
"""What sums of gradients or hessians over rows may reach, whichever sign; and so any of them."""


@dataclass(frozen=True, slots=True)
class StartWithoutNoise(Message, name="vertical.noised_gradients.start_without_noise", version=2):
    """Label holder to feature holders: what all begin with; only sent where there is no noise at all."""

    discloses = Exact("base scores and range of the labels")
    base_scores: Annotated[Float64s, Shape("n_outputs"), FLOAT32]
    label_low: Annotated[float, FLOAT32]
    label_high: Annotated[float, FLOAT32]


@dataclass(frozen=True, slots=True)
class NoisyGradients(Message, name="vertical.noised_gradients.noisy_gradients", version=1):
    """Label holder to feature holders: every row's gradient with noise, the same numbers to all of them.

    Of several classes all gradients of the first come first, then those of the next.
    """

    discloses = Randomised("the gradient of every row, which shows its label")
    gradients: Annotated[Int32s, Shape("n_gradients"), Within(-MOST_UNITS, MOST_UNITS)]


@dataclass(frozen=True, slots=True)
class NoisyLevel(Message, name="vertical.noised_gradients.noisy_level", version=1):
    """Label holder to feature holder: gradients (and hessians) with fresh noise for one level; per="message" only."""

    discloses = Randomised("gradient and hessian of every row, once more for every level of every tree")
    gradients: Annotated[Int32s, Shape("n_rows"), Within(-MOST_UNITS, MOST_UNITS)]
    hessians: Annotated[Int32s, Shape("n_hessians"), Within(0, MOST_UNITS)]  # none: 1 for every row


@dataclass(frozen=True, slots=True)
class BestGains(Message, name="vertical.noised_gradients.best_gains", version=1):
    """Feature holder to label holder: how much the best split of my columns gains in each node."""

    discloses = Exact("the gain of the best split of the feature holder's columns in each node")
    gains: messages.Gains


@dataclass(frozen=True, slots=True)
class Winners(messages.Winners, Message, name="vertical.noised_gradients.winners", version=1):
    """Label holder to feature holder: what becomes of each node."""


@dataclass(frozen=True, slots=True)
class WhichWay(messages.WhichWay, Message, name="vertical.noised_gradients.which_way", version=1):
    """Feature holder to label holder: the rows of nodes that I won, and a number for each question."""


@dataclass(frozen=True, slots=True)
class Partition(messages.Partition, Message, name="vertical.noised_gradients.partition", version=1):
    """Label holder to feature holder: the sides of all rows of this level."""
