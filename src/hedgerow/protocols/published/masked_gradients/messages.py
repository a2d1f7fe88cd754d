"""The messages of vertical.masked_gradients, in the order in which they are first sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hedgerow.ledger import Exact, Public
from hedgerow.protocols.vertical.common import messages
from hedgerow.transport.frames import Float32s, Int64s, Message
from hedgerow.transport.ranges import FINITE, Anything, Free, Shape, Within

SCALE = Within(1e-60, 1e60)
N_CANDIDATES = Free("n_candidates", "least_candidates", "most_candidates")
"""For which one message brings noise: all vectors of some candidates, or some vectors of the same one as before."""


@dataclass(frozen=True, slots=True)
class Scales(Message, name="vertical.masked_gradients.scales", version=1):
    """Label holder to feature holders: what a gradient and a hessian of 1 are, in the units that are sent."""

    discloses = Exact("scales of gradients, which follow from the number of rows and the range of the labels")
    gradient_scale: Annotated[float, SCALE]
    hessian_scale: Annotated[float, SCALE]


@dataclass(frozen=True, slots=True)
class NoiseVectors(Message, name="vertical.masked_gradients.noise_vectors", version=1):
    """Feature holder to label holder: noise vectors B of some candidates, or of one candidate a part of them.

    Rows are those of all nodes of the level, node by node, within a node by number; at the root, all rows in order.
    """

    discloses = Exact("noise whose neighbours are correlated where a candidate sends rows left; number of candidates")
    first_vector: Annotated[int, Within("n_seen", "n_seen")]
    last: bool  # no further candidate comes at this level
    vectors: Annotated[
        Float32s, Shape(N_CANDIDATES, Free("n_vectors", 1, "n_left"), "n_rows"), Within("least_noise", "most_noise")
    ]


@dataclass(frozen=True, slots=True)
class NextVectors(Message, name="vertical.masked_gradients.next_vectors", version=1):
    """Label holder to feature holder: the next vectors of the same candidate, please."""

    discloses = Public("that a message has arrived")


@dataclass(frozen=True, slots=True)
class MaskedGradients(Message, name="vertical.masked_gradients.masked_gradients", version=1):
    """Label holder to feature holder: g + B c and h + B d for each of these candidates, in units; sums of each node."""

    discloses = Exact("every row's gradient behind noise that its receiver has made, hence every label; sums of nodes")
    gradients: Annotated[Float32s, Shape("n_candidates", "n_rows"), FINITE]  # rows as in NoiseVectors
    hessians: Annotated[Float32s, Shape("n_hessians", "n_hessian_rows"), FINITE]  # none where each hessian is 1
    gradient_sums: Annotated[Int64s, Shape("n_nodes"), Anything()]
    hessian_sums: Annotated[Int64s, Shape("n_nodes"), Within(0, 2**32 - 1)]


@dataclass(frozen=True, slots=True)
class BestScores(Message, name="vertical.masked_gradients.best_scores", version=1):
    """Feature holder to label holder: the score of my best candidate in each node."""

    discloses = Exact("the noisy score of the feature holder's best candidate in each node")
    scores: messages.Gains


@dataclass(frozen=True, slots=True)
class Winners(messages.Winners, Message, name="vertical.masked_gradients.winners", version=1):
    """Label holder to feature holder: what becomes of each node."""


@dataclass(frozen=True, slots=True)
class WhichWay(messages.WhichWay, Message, name="vertical.masked_gradients.which_way", version=1):
    """Feature holder to label holder: the rows of nodes that I won, and a number for each question."""


@dataclass(frozen=True, slots=True)
class Partition(messages.Partition, Message, name="vertical.masked_gradients.partition", version=1):
    """Label holder to feature holder: the sides of all rows of this level."""
